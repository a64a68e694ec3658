"""A profile's allocations played through the model of torch's caching allocator, under a cap."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.trace.allocator import SMALL_BYTES, Block, CachingAllocator, OutOfMemory
from outlay.trace.trace import Held, History, value_at

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


def held(history: History, batch_size: int) -> Held:
    """Peak bytes allocated and reserved where memory has no end."""
    unlimited = _unlimited(history, batch_size)
    return Held(allocated_bytes=unlimited.allocated_bytes, reserved_bytes=unlimited.reserved_bytes)


def held_and_needed(history: History, batch_size: int) -> Held:
    """The same, and the least cap under which the steps run."""
    return replace(held(history, batch_size), needed_bytes=needed_bytes(history, batch_size))


@lru_cache(maxsize=4096)
def fits(
    history: History, batch_size: int, cap_bytes: float, *, expandable_segments: bool = False
) -> bool:
    """Whether the steps run if the allocator may reserve this much.

    The small pool is simulated once, without a cap: it is a hundredth of the whole and hardly
    gives anything back.
    """
    if expandable_segments:
        return _fits_expandable(history, batch_size, cap_bytes)
    unlimited = _unlimited(history, batch_size)
    if unlimited.reserved_bytes <= cap_bytes:
        return True
    large_cap_bytes = cap_bytes - unlimited.small_reserved_bytes
    allocator = CachingAllocator(large_cap_bytes)
    try:
        _play(unlimited.large, allocator)
    except OutOfMemory:
        return False
    return True


def needed_bytes(history: History, batch_size: int) -> float:
    """The least cap under which the steps run, to within `NEED_TOLERANCE`, from above."""
    unlimited = _unlimited(history, batch_size)
    high = float(unlimited.reserved_bytes)
    low = float(unlimited.small_reserved_bytes + _large_peak_bytes(unlimited.large))
    while high - low > NEED_TOLERANCE * high:
        middle = (low + high) / 2
        low, high = (low, middle) if fits(history, batch_size, middle) else (middle, high)
    return high


@lru_cache(maxsize=16)
def _unlimited(history: History, batch_size: int) -> _Unlimited:
    sizes_bytes = _sizes_bytes(history, batch_size)
    allocator = CachingAllocator()
    blocks: list[Block | None] = []
    large: list[tuple[int, int]] = []
    for event in history.events:
        if event < 0:
            number = len(blocks) + event
            block = blocks[number]
            assert block is not None
            allocator.free(block)
            blocks[number] = None
            if block.pool is allocator.large:
                large.append((number, 0))
            continue
        size_bytes = sizes_bytes[event]
        if size_bytes > SMALL_BYTES:
            large.append((len(blocks), -size_bytes if event in history.optional else size_bytes))
        blocks.append(allocator.allocate(size_bytes))
    return _Unlimited(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.peak_reserved_bytes,
        small_reserved_bytes=allocator.small.reserved_bytes,
        large=tuple(large),
    )


def _sizes_bytes(history: History, batch_size: int) -> list[int]:
    return [max(round(value_at(size, batch_size)), 1) for size in history.sizes]


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


def _play(storages: tuple[tuple[int, int], ...], allocator: CachingAllocator) -> None:
    """Make and free storages in order; an optional one that has no room is left out."""
    blocks: dict[int, Block] = {}
    for number, size_bytes in storages:
        if size_bytes > 0:
            blocks[number] = allocator.allocate(size_bytes)
        elif size_bytes == 0:
            block = blocks.pop(number, None)
            if block is not None:
                allocator.free(block)
        else:
            try:
                blocks[number] = allocator.allocate(-size_bytes)
            except OutOfMemory:
                continue


def _fits_expandable(history: History, batch_size: int, cap_bytes: float) -> bool:
    sizes_bytes = _sizes_bytes(history, batch_size)
    storages, made = [], 0
    for event in history.events:
        if event < 0:
            storages.append((made + event, 0))
            continue
        size_bytes = sizes_bytes[event]
        storages.append((made, -size_bytes if event in history.optional else size_bytes))
        made += 1
    allocator = CachingAllocator(cap_bytes, expandable_segments=True)
    try:
        _play(tuple(storages), allocator)
    except OutOfMemory:
        return False
    return True
