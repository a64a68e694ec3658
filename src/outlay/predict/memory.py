"""Memory: what a step allocates and reserves, whether it fits, and the largest batch that does."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.estimate import Estimate
from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.trace.trace import Profile

LARGEST_BATCH = 1 << 20
"""No search goes beyond this: a larger batch per GPU is of no use to anybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Peak memory of a step on one GPU, against what the GPU has for it."""

    allocated_bytes: Estimate
    reserved_bytes: Estimate
    """What the caching allocator takes from the device: what really runs out."""
    available_bytes: float
    """What the allocator may reserve: usable memory less the CUDA context."""

    @property
    def fits(self) -> bool:
        """Whether even the high estimate fits: nine times in ten it does."""
        return self.reserved_bytes.high <= self.available_bytes


def available_bytes(gpu: Gpu, calibration: Calibration, share: float = 1.0) -> float:
    """What the allocator may reserve on a GPU, or on a share of one."""
    return gpu.usable_bytes * share - calibration.number("context_bytes")


def memory_need(
    profile: Profile, batch_size: int, available: float, calibration: Calibration
) -> MemoryNeed:
    """Peak memory of a step at a batch size."""
    workspace = Estimate.exactly(_workspace_bytes(profile, calibration))
    peak_bytes = profile.memory_at(batch_size).peak_bytes
    allocated = calibration.estimate("allocated_over_traced").scaled(peak_bytes).plus(workspace)
    held = profile.held_at(batch_size)
    if held is None:
        reserved = calibration.estimate("reserved_over_allocated").scaled(allocated.likely)
    else:
        over = calibration.estimate("reserved_over_simulated")
        reserved = over.scaled(held.reserved_bytes).plus(workspace)
    return MemoryNeed(
        allocated_bytes=allocated,
        reserved_bytes=_at_least(reserved, allocated.low),
        available_bytes=available,
    )


def _workspace_bytes(profile: Profile, calibration: Calibration) -> float:
    """What cuBLAS keeps for itself once a step has called it."""
    calls_cublas = any(op.kind == "gemm" for op in profile.ops)
    return calibration.number("workspace_bytes") if calls_cublas else 0.0


def _at_least(estimate: Estimate, least: float) -> Estimate:
    return Estimate(
        low=max(estimate.low, least),
        likely=max(estimate.likely, least),
        high=max(estimate.high, least),
    )


def largest_batch(profile: Profile, available: float, calibration: Calibration) -> int:
    """The largest batch per GPU that fits, 0 where not even one sample does."""

    def fits(batch_size: int) -> bool:
        return memory_need(profile, batch_size, available, calibration).fits

    if not fits(1):
        return 0
    if fits(LARGEST_BATCH):
        return LARGEST_BATCH
    low, high = 1, 2
    while fits(high):
        low, high = high, min(high * 2, LARGEST_BATCH)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
