"""A profile's allocations played through the model of torch's caching allocator, under a cap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.trace.allocator import SMALL_BYTES, Block, CachingAllocator, OutOfMemory
from outlay.trace.trace import Held, History, value_at
from outlay.trace.workspace import CUBLAS, REFERENCE, Traits

_LARGEST_BATCH = 1 << 20
NEED_TOLERANCE = 1 / 256
"""How closely the least cap is looked for; what is found is on the safe side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unlimited:
    """A history at one batch size, and what it takes where there is plenty of memory."""

    allocated_bytes: int
    reserved_bytes: int
    small_reserved_bytes: int
    large: tuple[tuple[int, int], ...]
    """Storages of the large pool alone: number and size; 0 where it ends, below 0 if optional."""


def held(history: History, batch_size: int, traits: Traits = REFERENCE) -> Held:
    """Peak bytes allocated and reserved where memory has no end."""
    unlimited = _unlimited(history, batch_size, _alike(history, batch_size, traits))
    return Held(allocated_bytes=unlimited.allocated_bytes, reserved_bytes=unlimited.reserved_bytes)


def held_and_needed(history: History, batch_size: int, traits: Traits = REFERENCE) -> Held:
    """The same, and the least cap under which the steps run."""
    needed = needed_bytes(history, batch_size, traits)
    return replace(held(history, batch_size, traits), needed_bytes=needed)


@lru_cache(maxsize=4096)
def fits(
    history: History,
    batch_size: int,
    cap_bytes: float,
    traits: Traits = REFERENCE,
    *,
    expandable_segments: bool = False,
) -> bool:
    """Whether the steps run if the allocator may reserve this much.

    The small pool is simulated without a cap, at the next power of two: it is a hundredth of the
    whole and hardly gives anything back.
    """
    if expandable_segments:
        return _fits_expandable(history, batch_size, cap_bytes, traits)
    rounded = 1 << (batch_size - 1).bit_length()
    alike = _alike(history, rounded, traits)
    large_cap_bytes = cap_bytes - _small_reserved_bytes(history, rounded, alike)
    return _large_runs(history, batch_size, large_cap_bytes, _alike(history, batch_size, traits))


@lru_cache(maxsize=4096)
def _large_runs(history: History, batch_size: int, cap_bytes: float, traits: Traits) -> bool:
    """Whether the pool of large blocks gets through under a cap."""
    return _runs(_large(history, batch_size, traits), CachingAllocator(cap_bytes))


def needed_bytes(history: History, batch_size: int, traits: Traits = REFERENCE) -> float:
    """The least cap under which the steps run, to within `NEED_TOLERANCE`, from above."""
    unlimited = _unlimited(history, batch_size, _alike(history, batch_size, traits))
    high = float(unlimited.reserved_bytes)
    low = float(unlimited.small_reserved_bytes + _large_peak_bytes(unlimited.large))
    while high - low > NEED_TOLERANCE * high:
        middle = (low + high) / 2
        fine = fits(history, batch_size, middle, traits)
        low, high = (low, middle) if fine else (middle, high)
    return high


@lru_cache(maxsize=4096)
def _alike(history: History, batch_size: int, traits: Traits) -> Traits:
    """The first traits asked about that take the very same workspaces: most GPUs share them."""
    sizes = _sizes_bytes(history, batch_size, traits)
    taken = tuple(sizes[place] for place in history.conditions)
    first = _first_traits(history, batch_size, taken)
    if not first:
        first.append(traits)
    return first[0]


@lru_cache(maxsize=1024)
def _first_traits(
    history: History,  # noqa: ARG001  part of what the answer is remembered by
    batch_size: int,  # noqa: ARG001
    taken_bytes: tuple[int, ...],  # noqa: ARG001
) -> list[Traits]:
    """Whoever asked first, to be put in by the caller."""
    return []


@lru_cache(maxsize=256)
def _small_reserved_bytes(history: History, batch_size: int, traits: Traits) -> int:
    """What the pool of small blocks reserves."""
    allocator = CachingAllocator()
    blocks: dict[int, Block] = {}
    for number, size_bytes in storages(history, batch_size, traits):
        if 0 < abs(size_bytes) <= SMALL_BYTES:
            blocks[number] = allocator.allocate(abs(size_bytes))
        elif size_bytes == 0 and number in blocks:
            allocator.free(blocks.pop(number))
    return allocator.small.reserved_bytes


def _large(history: History, batch_size: int, traits: Traits) -> Iterator[tuple[int, int]]:
    """The storages of the large pool alone, as `storages` has them."""
    sizes = _sizes_bytes(history, batch_size, traits)
    live: set[int] = set()
    for number, event in _ever_large(history):
        if event < 0:
            if number in live:
                yield number, 0
        elif abs(sizes[event]) > SMALL_BYTES:
            live.add(number)
            yield number, sizes[event]


@lru_cache(maxsize=16)
def _ever_large(history: History) -> tuple[tuple[int, int], ...]:
    """Number and event of each storage that is large at some batch size."""
    large = [
        max(value_at(size, 1), value_at(size, _LARGEST_BATCH)) > SMALL_BYTES
        or history.conditions.get(place) == CUBLAS
        for place, size in enumerate(history.sizes)
    ]
    kept: set[int] = set()
    found: list[tuple[int, int]] = []
    made = 0
    for event in history.events:
        if event >= 0:
            if large[event]:
                kept.add(made)
                found.append((made, event))
            made += 1
        elif made + event in kept:
            found.append((made + event, -1))
    return tuple(found)


@lru_cache(maxsize=64)
def _unlimited(history: History, batch_size: int, traits: Traits) -> _Unlimited:
    allocator = CachingAllocator()
    blocks: dict[int, Block] = {}
    large: list[tuple[int, int]] = []
    for number, size_bytes in storages(history, batch_size, traits):
        if size_bytes == 0:
            block = blocks.pop(number)
            allocator.free(block)
            if block.pool is allocator.large:
                large.append((number, 0))
            continue
        blocks[number] = allocator.allocate(abs(size_bytes))
        if abs(size_bytes) > SMALL_BYTES:
            large.append((number, size_bytes))
    return _Unlimited(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.peak_reserved_bytes,
        small_reserved_bytes=allocator.small.reserved_bytes,
        large=tuple(large),
    )


def storages(history: History, batch_size: int, traits: Traits) -> Iterator[tuple[int, int]]:
    """Each storage's number and size in order; 0 where it ends, below 0 where it is optional.

    Storages that the GPU does not make are left out.
    """
    sizes = _sizes_bytes(history, batch_size, traits)
    made: list[bool] = []
    for event in history.events:
        if event >= 0:
            made.append(sizes[event] != 0)
            if made[-1]:
                yield len(made) - 1, sizes[event]
        elif made[event]:
            yield len(made) + event, 0


def _sizes_bytes(history: History, batch_size: int, traits: Traits) -> list[int]:
    """The sizes of the history at a batch size; 0 if the GPU has none, below 0 if optional."""
    sizes = [max(round(value_at(size, batch_size)), 1) for size in history.sizes]
    for place, condition in history.conditions.items():
        sizes[place] = round(traits.taken_bytes(condition, sizes[place], batch_size))
    for place in history.optional:
        sizes[place] = -sizes[place]
    return sizes


def _large_peak_bytes(large: tuple[tuple[int, int], ...]) -> int:
    """The most the large pool must have in use at once: no cap below it will do."""
    live: dict[int, int] = {}
    now_bytes = peak_bytes = 0
    for number, size_bytes in large:
        if size_bytes > 0:
            live[number] = size_bytes
            now_bytes += size_bytes
            peak_bytes = max(peak_bytes, now_bytes)
        elif size_bytes == 0:
            now_bytes -= live.pop(number, 0)
    return peak_bytes


def _runs(storages: Iterable[tuple[int, int]], allocator: CachingAllocator) -> bool:
    """Whether storages can be made and freed in order; an optional one is left out at need."""
    blocks: dict[int, Block] = {}
    for number, size_bytes in storages:
        if size_bytes == 0:
            block = blocks.pop(number, None)
            if block is not None:
                allocator.free(block)
            continue
        try:
            blocks[number] = allocator.allocate(abs(size_bytes))
        except OutOfMemory:
            if size_bytes > 0:
                return False
    return True


def _fits_expandable(history: History, batch_size: int, cap_bytes: float, traits: Traits) -> bool:
    allocator = CachingAllocator(cap_bytes, expandable_segments=True)
    return _runs(storages(history, batch_size, traits), allocator)


@lru_cache(maxsize=64)
def held_expandable(history: History, batch_size: int, traits: Traits = REFERENCE) -> Held:
    """Peak bytes with `expandable_segments` where memory has no end."""
    allocator = CachingAllocator(expandable_segments=True)
    _runs(storages(history, batch_size, traits), allocator)
    return Held(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.peak_reserved_bytes,
    )
