"""What the agent in a training process tells, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """One call of an optimizer's `step` that has ended, and what happened since the last one."""

    number: int
    """Optimizer steps of this process so far, from 1."""
    optimizer: int
    """Which of the script's optimizers, numbered in the order they were first seen."""
    host_s: float
    """When it returned, on the machine's monotonic clock, which all its processes share."""
    device_s: float | None = None
    """When the GPU had finished it, on a clock of its own; None on the CPU, or not known yet."""
    skipped: int = 0
    """Steps that a gradient scaler left out since the last one."""
    passes: int = 0
    """Backward passes."""
    batches: int = 0
    """Batches that came from DataLoaders."""
    samples: int | None = None
    """Samples in those; None where they could not be counted."""
    wait_s: float = 0.0
    """Waiting for those."""
    cpu_s: float | None = None
    """CPU time of the process, all its threads."""
    evaluated: bool = False
    """Whether a model was put into evaluation mode."""
    saves: int = 0
    """Checkpoints written."""
    saved_s: float = 0.0
    """Writing them."""
    new_epoch: bool = False
    """Whether a DataLoader was started anew."""
    aside: int = 0
    """Batches of DataLoaders that are not trained on."""
    gradless: bool = False
    """Whether most of the time was spent without gradients."""
