"""What is known of one step when it is asked what holds it back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DISK_BUSY = 0.7
"""Of the time: a disk with work for longer may hold the input back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSeen:
    """Settings of the DataLoader that gives the batches; None where they were not seen."""

    num_workers: int | None = None
    pin_memory: bool | None = None
    persistent_workers: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is known of one step in the steady state; None where it is not."""

    step_s: float
    device: Literal["cuda", "rocm", "mps", "cpu"]
    busy_s: float | None = None
    """Kernels other than exchanges ran, by a profile."""
    exchange_s: float | None = None
    """Exchanges that no other kernel covers, by the same."""
    gpu_fraction: float | None = None
    """By the driver's samples, exchanges included; used where there is no profile."""
    wait_s: float | None = None
    """Waiting for DataLoaders; None where there are none."""
    cpus: float | None = None
    """CPU seconds of the process for each second."""
    queued_fraction: float = 0.0
    """Of the time, for which the thread that trains waited for a CPU that others used."""
    ranks: int = 1
    cpu_threads: int | None = None
    loader: LoaderSeen | None = None
    read_bytes_per_s: float | None = None
    disk_fraction: float | None = None
    machine_cpu_fraction: float | None = None
    """Of all threads of the machine, how many have work."""
    memory_fraction: float | None = None
    """Of the GPU's memory, the most that was reserved."""
    is_full_precision: bool | None = None
    """Whether its products are computed in fp32, not in bf16 or fp16."""
    has_channels_first: bool | None = None
    """Whether it has convolutions of images, and most of them in the usual layout."""
    is_fused: bool | None = None
    """Whether its optimizers update all parameters in few kernels."""
    is_compiled: bool | None = None
    slowed_by: tuple[str, ...] = ()
    """Why the driver held the clock down for most of the time: `power`, `heat`, `hardware`."""

    @property
    def threads(self) -> int | None:
        """CPU threads of the machine for one process."""
        return None if self.cpu_threads is None else self.cpu_threads // max(self.ranks, 1)

    @property
    def is_disk_busy(self) -> bool:
        """Whether a disk is known to have work most of the time."""
        return (self.disk_fraction or 0.0) > DISK_BUSY
