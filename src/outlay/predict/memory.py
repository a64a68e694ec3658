"""Memory: what a step allocates and reserves, whether it fits, and the largest batch that does.

A profile with a history is asked by simulating torch's caching allocator, which may give free
segments back when it reaches its limit; one without is estimated from what was allocated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outlay.estimate import Estimate
from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.trace import simulate
from outlay.trace.trace import Held, Profile

LARGEST_BATCH = 1 << 20
"""No search goes beyond this: a larger batch per GPU is of no use to anybody."""
_FINENESS = 64
"""By simulation the largest batch is found exactly up to twice this, and then to within 1/64."""

_LONG_HISTORY = 40_000
"""Events beyond which a simulation takes a tenth of a second: the profile's table, whose points lie
at most an eighth apart, is then read between its points instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Peak memory of a step on one GPU, against what the GPU has for it."""

    allocated_bytes: Estimate
    reserved_bytes: Estimate
    """What the caching allocator takes from the device: where the step fits, what is available at
    most; where it does not, what it would take."""
    available_bytes: float
    """What the allocator may reserve: usable memory less the CUDA context, or the user's cap."""
    fits: bool
    """Whether the step runs in what is available, which may be less than it would reserve."""


def available_bytes(gpu: Gpu, calibration: Calibration, share: float = 1.0) -> float:
    """What the allocator may reserve on a GPU, or on a share of one."""
    return gpu.usable_bytes * share - calibration.number("context_bytes")


def memory_need(
    profile: Profile, batch_size: int, available: float, calibration: Calibration
) -> MemoryNeed:
    """Peak memory of a step at a batch size."""
    allocated, reserved = _taken(profile, batch_size, calibration)
    reserved = _at_least(reserved, allocated.low)
    fits = _fits(profile, batch_size, available, calibration)
    return MemoryNeed(
        allocated_bytes=_at_most(allocated, available) if fits else allocated,
        reserved_bytes=_at_most(reserved, available) if fits else reserved,
        available_bytes=available,
        fits=fits,
    )


def _taken(
    profile: Profile, batch_size: int, calibration: Calibration
) -> tuple[Estimate, Estimate]:
    """Bytes allocated and reserved where memory has no end."""
    over_traced = calibration.estimate("allocated_over_traced")
    over_simulated = calibration.estimate("reserved_over_simulated")
    held = _held(profile, batch_size)
    if held is not None and (profile.history is not None or held.needed_bytes is not None):
        return over_traced.scaled(held.allocated_bytes), over_simulated.scaled(held.reserved_bytes)
    workspace = Estimate.exactly(_workspace_bytes(profile, calibration))
    allocated = over_traced.scaled(profile.memory_at(batch_size).peak_bytes).plus(workspace)
    if held is not None:
        return allocated, over_simulated.scaled(held.reserved_bytes).plus(workspace)
    return allocated, calibration.estimate("reserved_over_allocated").scaled(allocated.likely)


def _held(profile: Profile, batch_size: int) -> Held | None:
    """What the allocator holds: from the profile's table, or simulated where that has a gap."""
    if profile.history is None or _is_in_table(profile, batch_size):
        return profile.held_at(batch_size)
    return simulate.held(profile.history, batch_size)


def _is_in_table(profile: Profile, batch_size: int) -> bool:
    """Whether the profile's table answers for a batch size, by itself or between two points."""
    if profile.history is None or len(profile.history.events) <= _LONG_HISTORY:
        return batch_size in profile.held
    return bool(profile.held) and min(profile.held) <= batch_size <= max(profile.held)


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


def _at_most(estimate: Estimate, most: float) -> Estimate:
    return Estimate(
        low=min(estimate.low, most),
        likely=min(estimate.likely, most),
        high=min(estimate.high, most),
    )


def _fits(profile: Profile, batch_size: int, available: float, calibration: Calibration) -> bool:
    """Whether a step fits, leaving a margin for what the simulation gets wrong.

    Without a simulation, whether even the high estimate of what is reserved fits.
    """
    limit = available * (1 - calibration.number("memory_margin_fraction"))
    if profile.history is not None and not _is_in_table(profile, batch_size):
        return simulate.fits(profile.history, batch_size, limit)
    held = profile.held_at(batch_size)
    if held is not None and held.needed_bytes is not None:
        return held.needed_bytes <= limit
    allocated, reserved = _taken(profile, batch_size, calibration)
    return _at_least(reserved, allocated.low).high <= available


def largest_batch(profile: Profile, available: float, calibration: Calibration) -> int:
    """The largest batch per GPU that fits, 0 where not even one sample does.

    Looked for between the first size of the profile's table that does not fit and the one before;
    beyond the table by doubling.
    """

    def fits(batch_size: int) -> bool:
        return _fits(profile, batch_size, available, calibration)

    if not fits(1):
        return 0
    low, high = 1, 2
    for batch_size in sorted(profile.held) if profile.history is not None else ():
        if not fits(batch_size):
            high = batch_size
            break
        low, high = batch_size, min(2 * batch_size, LARGEST_BATCH)
    return _boundary(fits, low, high, _FINENESS if profile.history is not None else None)


def _boundary(fits: Callable[[int], bool], low: int, high: int, fineness: int | None) -> int:
    """The largest size that fits, from one that does and one that may not."""
    while fits(high):
        if high == LARGEST_BATCH:
            return high
        low, high = high, min(high * 2, LARGEST_BATCH)
    while high - low > (max(low // fineness, 1) if fineness else 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
