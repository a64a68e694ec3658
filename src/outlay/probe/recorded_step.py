"""The operations of a step, as the agent recorded them, as a `Profile`.

The size of the recorded step is its own where that is known: the mean of all is no step's size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outlay.errors import OutlayError
from outlay.measurement.measurement import Measurement
from outlay.probe.agent.protocol import (
    ModuleInputs,
    PersistentMemory,
    PhaseFailed,
    RecordedOperations,
)
from outlay.probe.messages import ProcessLog
from outlay.probe.steps import NO_OVERRIDE, StepSizeOverride
from outlay.trace.from_recording import RecordedStep, profile_of_step
from outlay.trace.profile import Op, Profile


def recorded_profile(
    measurement: Measurement, logs: Sequence[ProcessLog], override: StepSizeOverride = NO_OVERRIDE
) -> tuple[Profile | None, list[str]]:
    """The profile of a step, and notes where there is none."""
    log = next((log for log in logs if log.last(RecordedOperations)), None)
    if log is None:
        return None, _notes_without(measurement, logs)
    if measurement.samples_per_step is None:
        why = "How many samples a step has was not seen: give --batch-size to carry it elsewhere."
        return None, [why]
    try:
        return profile_of_step(recorded_step(measurement, log, override)), []
    except (OutlayError, ValueError) as error:
        return None, [f"The operations of the step could not be used: {error}"]


def _notes_without(measurement: Measurement, logs: Sequence[ProcessLog]) -> list[str]:
    if not logs or measurement.step is None or any(log.all(PhaseFailed) for log in logs):
        return []
    return [f"The operations of a step were not recorded: {_why_not_recorded(measurement)}"]


def _why_not_recorded(measurement: Measurement) -> str:
    """What came before the step to record, and what helps."""
    if measurement.ending == "interrupted":
        return "you stopped the command before."
    if measurement.ending != "stopped":
        return "the command ended before."
    if measurement.stopped_for == "cost":
        return "the money for the probe was spent before. Give a larger --max-cost."
    # Reports and requests take their time, while a burst is over: a longer probe does not help.
    return (
        "the step to record was over before the command heard of it, or never came. Where steps "
        "come in bursts (updates after a rollout), say how many one has: --optimizer-steps 32."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedSize:
    """Samples and passes of the steps that were recorded, for one of them."""

    samples: float
    passes: float
    samples_per_pass: int | None = None
    """Rows of the first pass, where they are its samples."""
    samples_per_batch: float | None = None
    """Samples of one batch of a loader."""


def recorded_step(
    measurement: Measurement, log: ProcessLog, override: StepSizeOverride = NO_OVERRIDE
) -> RecordedStep:
    """The step that one rank has recorded."""
    operations = log.last(RecordedOperations)
    assert operations is not None
    recording = operations.recording
    memory = log.last(PersistentMemory) or PersistentMemory()
    each = sum(optimizer.per_step for optimizer in measurement.optimizers) or 1.0
    steps = max(operations.optimizer_steps / each, 1.0)
    ops = tuple(_op(row, steps) for row in recording["ops"])
    size = _recorded_size(measurement, log, operations, steps, override)
    return RecordedStep(
        name=" ".join(measurement.command),
        batch_size=round(size.samples),
        passes=max(round(size.passes), 1),
        pass_size=size.samples_per_pass,
        ops=ops,
        parameter_shapes=frozenset(tuple(shape) for shape in recording["parameter_shapes"]),
        parameters=recording["parameters"],
        trainable_parameters=recording["trainable_parameters"],
        issued_ops=sum(op.count for op in ops),
        parameter_bytes=float(memory.parameters),
        gradient_bytes=float(memory.gradients),
        optimizer_bytes=float(memory.optimizer_states),
        frozen_bytes=float(memory.frozen or 0),
        peak_allocated_bytes=measurement.memory.allocated_bytes,
        peak_reserved_bytes=measurement.memory.reserved_bytes,
        recorded_on=measurement.measured_on,
        versions=measurement.versions,
        unknown_ops={name: count / steps for name, count in recording["unknown_ops"].items()},
    )


def _recorded_size(
    measurement: Measurement,
    log: ProcessLog,
    operations: RecordedOperations,
    steps: float,
    override: StepSizeOverride,
) -> _RecordedSize:
    """Of the recorded step itself, where that is known; else the mean of all."""
    usual = _RecordedSize(
        samples=measurement.samples_per_step or 1.0, passes=measurement.passes_per_step or 1.0
    )
    if override != NO_OVERRIDE or not operations.first_step:
        return usual
    loaded = _loaded_size(measurement, log, operations, steps)
    return _size_by_inputs(measurement, log, operations, loaded or usual) or loaded or usual


def _loaded_size(
    measurement: Measurement, log: ProcessLog, operations: RecordedOperations, steps: float
) -> _RecordedSize | None:
    """By its DataLoaders."""
    number = log.table.column("number")
    is_recorded = (number >= operations.first_step) & (number <= operations.last_step)
    has_batch = is_recorded & (log.table.column("batches") > 0)
    samples = float(log.table.column("samples")[has_batch].sum())
    batches, passes = (
        float(log.table.column(name)[is_recorded].sum()) for name in ("batches", "passes")
    )
    if not batches or not np.isfinite(samples):
        return None
    parts = min(batches, passes or batches) if _has_one_optimizer(measurement) else batches
    return _RecordedSize(
        samples=samples / steps,
        passes=max(parts / steps, 1.0),
        samples_per_batch=samples / batches,
    )


def _size_by_inputs(
    measurement: Measurement,
    log: ProcessLog,
    operations: RecordedOperations,
    expected: _RecordedSize,
) -> _RecordedSize | None:
    """By the inputs of its modules, where they agree with its loaders, or where there are none.

    A loader that loads ahead gives a batch more or less than the step has.
    """
    is_one_step = operations.optimizer_steps == 1 and _has_one_optimizer(measurement)
    if not operations.inputs or not is_one_step:
        return None
    inputs = ModuleInputs(**operations.inputs)
    rows, rows_per_pass = float(inputs.rows), float(inputs.rows) / inputs.inputs
    samples_per_batch = expected.samples_per_batch or expected.samples / expected.passes
    agrees = rows == expected.samples or rows_per_pass == samples_per_batch
    if log.table.column("batches").any() and not agrees:
        return None
    if inputs.singles:  # each of them is an operation's first dimension
        return _RecordedSize(samples=rows, passes=rows, samples_per_pass=1)
    return _RecordedSize(
        samples=rows, passes=float(inputs.inputs), samples_per_pass=int(inputs.samples)
    )


def _has_one_optimizer(measurement: Measurement) -> bool:
    return sum(optimizer.per_step > 0 for optimizer in measurement.optimizers) < 2


def _op(row: Mapping[str, Any], steps: float) -> Op:
    shapes = tuple(tuple(shape) for shape in row["shapes"])
    return Op(**{**row, "shapes": shapes, "count": row["count"] / steps})
