"""Memory of a step on one GPU: what it allocates and reserves, and the largest batch that fits.

In: a `Profile`, a batch size, and the `MemoryBudget` that a GPU leaves to torch's allocator. Out:
a `MemoryNeed`. A profile with a history is asked by simulating torch's caching allocator
(`trace.allocator`), which may give free segments back when it reaches its limit; one without is
estimated from what was allocated. docs/models/memory.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

from outlay.hardware.gpus import Gpu
from outlay.predict.calibration import Calibration
from outlay.trace import allocator
from outlay.trace.profile import AllocatorUse, Profile
from outlay.trace.workspace import REFERENCE, Traits
from outlay.uncertainty import Estimate
from outlay.units import MIB

LARGEST_BATCH = 1 << 20
"""No search goes beyond this: a larger batch per GPU is of no use to anybody."""
COARSE, FINE = 64, 512
"""By simulation the largest batch is found exactly up to twice this, and then to within a part of
it: coarsely where many GPUs are compared."""

_LONG_HISTORY = 40_000
"""Events beyond which a simulation takes a tenth of a second: the profile's table, whose points lie
at most a quarter apart, is then read between its points instead."""

_SUMS_THREADS = 2048
"""Threads for which the partial sums of a reduction take a MiB (see `trace.workspace`)."""
_SUMS_REFERENCE = 132
_SUMS_STEP = 1.25
"""Sizes of those sums that are told apart: the reference GPU's, and each a quarter larger."""
_TENSOR_RATIO = 1.9
"""A peak this many times the fp32 one is that of tensor cores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBudget:
    """What a GPU has for torch's allocator, and what of the GPU decides how much is taken."""

    available_bytes: float
    """What the allocator may reserve: usable memory less the CUDA context, or the user's cap."""
    context_bytes: float = 0.0
    """What CUDA and its libraries take beside it."""
    traits: Traits = REFERENCE
    expandable_segments: bool = False
    """Whether `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Peak memory of a step on one GPU, against what the GPU has for it."""

    allocated_bytes: Estimate
    reserved_bytes: Estimate
    """What the caching allocator takes from the device: where the step fits, what is available at
    most; where it does not, what it would take."""
    available_bytes: float
    """What the allocator may reserve: usable memory less the CUDA context, or the user's cap."""
    context_bytes: float
    """What CUDA and its libraries take beside it."""
    fits: bool
    """Whether the step runs in what is available, which may be less than it would reserve, with a
    margin to spare for what the simulation of the allocator gets wrong."""


def memory_budget(
    gpu: Gpu,
    *,
    share: float = 1.0,
    cap_bytes: float | None = None,
    expandable_segments: bool = False,
) -> MemoryBudget:
    """What the allocator finds on a GPU, on a share of one, or under the user's cap."""
    context_bytes = gpu.libraries.context_bytes
    available_bytes = gpu.usable_bytes * share - context_bytes
    return MemoryBudget(
        available_bytes=available_bytes if cap_bytes is None else cap_bytes,
        context_bytes=context_bytes,
        traits=traits_of(gpu),
        expandable_segments=expandable_segments,
    )


@cache
def traits_of(gpu: Gpu) -> Traits:
    """What of a GPU decides which workspaces are taken."""
    libraries = gpu.libraries
    backends = {"fp16": libraries.attention_fp16, "bf16": libraries.attention_bf16}
    resident = gpu.sm_count * libraries.threads_per_sm // _SUMS_THREADS
    return Traits(
        tensor_precisions=frozenset(
            precision
            for precision in ("tf32", "fp16", "bf16")
            if gpu.peak_flops_per_s.get(precision, 0.0) > _TENSOR_RATIO * gpu.peak("fp32")
        ),
        attention=frozenset(f"{backend} {precision}" for precision, backend in backends.items()),
        cublas_bytes=libraries.cublas_bytes,
        sums_bytes=_rounded_up(resident) * MIB,
    )


def _rounded_up(resident: int) -> int:
    """To the next size that is told apart: GPUs of nearly one size share a simulation.

    Rounded up, so that what is said to fit does.
    """
    steps = math.ceil(math.log(max(resident, 1) / _SUMS_REFERENCE) / math.log(_SUMS_STEP) - 1e-9)
    return round(_SUMS_REFERENCE * _SUMS_STEP**steps)


def memory_need(
    profile: Profile, batch_size: int, budget: MemoryBudget, calibration: Calibration
) -> MemoryNeed:
    """Peak memory of a step at a batch size."""
    allocated, reserved = _unlimited_need(profile, batch_size, budget, calibration)
    reserved = reserved.at_least(allocated.low)
    fits = _has_plenty(profile, batch_size, budget, calibration) or _fits(
        profile, batch_size, budget, calibration
    )
    need = MemoryNeed(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        available_bytes=budget.available_bytes,
        context_bytes=budget.context_bytes,
        fits=fits,
    )
    return within_available(need) if fits else need


def fits_budget(
    profile: Profile, batch_size: int, budget: MemoryBudget, calibration: Calibration
) -> bool:
    """Whether a step fits, as `memory_need` says, without working out how much it takes."""
    return _fits(profile, batch_size, budget, calibration) or _has_plenty(
        profile, batch_size, budget, calibration
    )


def within_available(need: MemoryNeed) -> MemoryNeed:
    """The need of a step that fits: the allocator gives back what it kept before it runs out."""
    return replace(
        need,
        allocated_bytes=need.allocated_bytes.at_most(need.available_bytes),
        reserved_bytes=need.reserved_bytes.at_most(need.available_bytes),
        fits=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNeed:
    """Peak memory as a profile's table has it, without any simulation."""

    allocated_bytes: Estimate
    reserved_bytes: Estimate
    needed_bytes: float
    """The least the allocator must be allowed to reserve."""


def table_need(profile: Profile, batch_size: int, calibration: Calibration) -> TableNeed:
    """Peak memory at a batch size on the reference GPU, read off the profile's table."""
    use = profile.allocator_use_at(batch_size)
    over_traced = calibration.estimate("allocated_over_traced")
    if use is None or use.needed_bytes is None:
        allocated = over_traced.scaled(profile.memory_at(batch_size).peak_bytes)
        reserved = calibration.estimate("reserved_over_allocated").scaled(allocated.likely)
        reserved = reserved.at_least(allocated.low)
        return TableNeed(
            allocated_bytes=allocated, reserved_bytes=reserved, needed_bytes=reserved.high
        )
    allocated = over_traced.scaled(use.allocated_bytes)
    reserved = calibration.estimate("reserved_over_simulated").scaled(use.reserved_bytes)
    return TableNeed(
        allocated_bytes=allocated,
        reserved_bytes=reserved.at_least(allocated.low),
        needed_bytes=use.needed_bytes,
    )


def _unlimited_need(
    profile: Profile, batch_size: int, budget: MemoryBudget, calibration: Calibration
) -> tuple[Estimate, Estimate]:
    """Bytes allocated and reserved where memory has no end."""
    over_traced = calibration.estimate("allocated_over_traced")
    over_simulated = calibration.estimate("reserved_over_simulated")
    use = _allocator_use(profile, batch_size, budget)
    if use is not None:
        return over_traced.scaled(use.allocated_bytes), over_simulated.scaled(use.reserved_bytes)
    allocated = over_traced.scaled(profile.memory_at(batch_size).peak_bytes)
    return allocated, calibration.estimate("reserved_over_allocated").scaled(allocated.likely)


def _allocator_use(profile: Profile, batch_size: int, budget: MemoryBudget) -> AllocatorUse | None:
    """What the allocator holds: from the profile's table, or simulated where that has a gap."""
    if profile.history is None or _is_in_table(profile, batch_size, budget):
        return _table_use(profile, batch_size, budget)
    return allocator.peak_use(
        profile.history, batch_size, budget.traits, expandable_segments=budget.expandable_segments
    )


def _table_use(profile: Profile, batch_size: int, budget: MemoryBudget) -> AllocatorUse | None:
    """What the table says, which is of the reference GPU.

    Where it stands for every GPU, in proportion to the bytes that live at the peak on this one,
    which may take other workspaces.
    """
    use = profile.allocator_use_at(batch_size)
    if use is None or profile.history is None or not profile.table_suffices:
        return use
    live_bytes = allocator.live_peak_bytes(profile.history, batch_size, budget.traits)
    more = live_bytes / allocator.live_peak_bytes(profile.history, batch_size)
    return AllocatorUse(
        allocated_bytes=use.allocated_bytes * more,
        reserved_bytes=use.reserved_bytes * more,
        needed_bytes=None if use.needed_bytes is None else use.needed_bytes * more,
    )


def _is_in_table(profile: Profile, batch_size: int, budget: MemoryBudget) -> bool:
    """Whether the profile's table answers for a batch size, by itself or between two points.

    It is of the reference GPU; a long history is read off it for every GPU.
    """
    if profile.table_suffices:
        return True
    if profile.history is None or len(profile.history.events) <= _LONG_HISTORY:
        return batch_size in profile.allocator_use and budget == _reference(budget)
    return bool(profile.allocator_use) and min(profile.allocator_use) <= batch_size <= max(
        profile.allocator_use
    )


def _reference(budget: MemoryBudget) -> MemoryBudget:
    """The same budget on the reference GPU, with the usual segments."""
    return MemoryBudget(available_bytes=budget.available_bytes, context_bytes=budget.context_bytes)


def _has_plenty(
    profile: Profile, batch_size: int, budget: MemoryBudget, calibration: Calibration
) -> bool:
    """Whether the allocator stays below the limit even where it need not."""
    limit = safe_bytes(budget, calibration)
    use = _allocator_use(profile, batch_size, budget)
    return profile.history is not None and use is not None and use.reserved_bytes <= limit


def _fits(
    profile: Profile, batch_size: int, budget: MemoryBudget, calibration: Calibration
) -> bool:
    """Whether a step fits, leaving a margin for what the simulation gets wrong.

    Without a simulation, whether even the high estimate of what is reserved fits.
    """
    limit = safe_bytes(budget, calibration)
    if profile.history is not None and not _is_in_table(profile, batch_size, budget):
        return allocator.fits(
            profile.history,
            batch_size,
            limit,
            budget.traits,
            expandable_segments=budget.expandable_segments,
        )
    use = _table_use(profile, batch_size, budget)
    if use is not None and use.needed_bytes is not None:
        return use.needed_bytes <= limit
    allocated, reserved = _unlimited_need(profile, batch_size, budget, calibration)
    return reserved.at_least(allocated.low).high <= budget.available_bytes


def safe_bytes(budget: MemoryBudget, calibration: Calibration) -> float:
    """What is available, less a margin for what the simulation gets wrong."""
    return budget.available_bytes * (1 - calibration.number("memory_margin_fraction"))


def largest_batch(
    profile: Profile, budget: MemoryBudget, calibration: Calibration, fineness: int = FINE
) -> int:
    """The largest batch per GPU that fits, 0 where not even one sample does.

    The profile's table, which is of the reference GPU, says where to look; on other GPUs the
    boundary is then looked for by simulation, a sixteenth away at first.
    """

    def fits(batch_size: int) -> bool:
        return _fits(profile, batch_size, budget, calibration)

    low, high = _bracket(profile, budget, calibration)
    while low and not fits(low):
        low, high = low - max(low // 16, 1), low
    if not low and not fits(1):
        return 0
    return largest_that_fits(fits, low, high, fineness if profile.history is not None else None)


def _bracket(profile: Profile, budget: MemoryBudget, calibration: Calibration) -> tuple[int, int]:
    """Two sizes between which the largest batch is to be looked for first."""
    limit = safe_bytes(budget, calibration)
    low, high = 0, 1
    for batch_size, use in sorted(profile.allocator_use.items()):
        if use.needed_bytes is None or use.needed_bytes > limit:
            high = max(batch_size, 1)
            break
        low, high = batch_size, min(2 * batch_size, LARGEST_BATCH)
    if budget == _reference(budget):
        return low, high
    return low, min(low + max(low // 16, 1), LARGEST_BATCH)


def largest_that_fits(
    fits: Callable[[int], bool], low: int, high: int, fineness: int | None
) -> int:
    """The largest size that fits, from one that does and one that may not."""
    while fits(high):
        if high == LARGEST_BATCH:
            return high
        low, high = high, min(high * 2, LARGEST_BATCH)
    while high - low > (max(low // fineness, 1) if fineness else 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def search_note(largest: int) -> tuple[str, ...]:
    """A word where the largest batch is the end of the search and not of the memory."""
    if largest < LARGEST_BATCH:
        return ()
    return (f"No batch beyond {LARGEST_BATCH:,} per GPU is tried: larger ones may fit as well.",)
