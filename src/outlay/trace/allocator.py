"""What torch's caching allocator makes of a step's allocations: bytes allocated and reserved.

`CachingAllocator` is a model of CUDACachingAllocator on one stream: requests are rounded to 512
bytes, served from the smallest free block that is large enough, and split off it; freed blocks join
their free neighbours. Segments are taken from the device and kept, until the device or a cap is
full: then segments that are wholly free are given back, once, before the request fails. `peak_use`,
`fits` and `needed_bytes` play a profile's history through it, without a cap or under one.

Source: c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split,
release_cached_blocks). Ignores several streams, and every setting of `PYTORCH_CUDA_ALLOC_CONF`
but `expandable_segments`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import add

import numpy as np
import numpy.typing as npt

from outlay.trace.profile import AllocatorUse, History, value_at
from outlay.trace.traffic import rounded
from outlay.trace.workspace import CUBLAS, REFERENCE, Traits
from outlay.units import MIB

# The allocator


_ROUND_BYTES = 512
SMALL_BYTES = MIB
"""Requests up to this come from the pool of small blocks."""
_SMALL_SEGMENT_BYTES = 2 * MIB
_LARGE_SEGMENT_BYTES = 20 * MIB
_OWN_SEGMENT_BYTES = 10 * MIB
_OWN_SEGMENT_ROUND_BYTES = 2 * MIB
_SEGMENT_GAP_BYTES = 1
_ADDRESSES = 1 << 60
"""More than there are."""


class OutOfMemory(Exception):
    """A request that not even giving back every free segment makes room for."""


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment, in use or free."""

    address: int
    size_bytes: int
    pool: _Pool
    before: Block | None = None
    after: Block | None = None
    is_free: bool = False


class CachingAllocator:
    """Blocks in two pools, one for requests up to 1 MiB and one for larger ones.

    `cap_bytes` is the most it may reserve. With `expandable_segments` a pool is one segment that
    grows at its end by pages of 2 MiB (small) or 20 MiB (large), so that all its blocks can join.
    """

    def __init__(self, cap_bytes: float = math.inf, *, expandable_segments: bool = False) -> None:
        self.cap_bytes = cap_bytes
        self.expandable_segments = expandable_segments
        self.allocated_bytes = 0
        self.peak_allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_reserved_bytes = 0
        self.was_short = False
        """Whether it ever had to give back what was free."""
        self._next_address = 0
        self.small = _Pool(_SMALL_SEGMENT_BYTES)
        self.large = _Pool(_LARGE_SEGMENT_BYTES)

    def allocate(self, request_bytes: int) -> Block:
        """A block for a request; raises `OutOfMemory` where the cap leaves no room for one."""
        size_bytes = -(-max(request_bytes, 1) // _ROUND_BYTES) * _ROUND_BYTES
        is_small = size_bytes <= SMALL_BYTES
        pool = self.small if is_small else self.large
        block = pool.take_smallest(size_bytes) or self._from_device(size_bytes, pool)
        finely = is_small or self.expandable_segments
        if block.size_bytes - size_bytes > (_ROUND_BYTES - 1 if finely else SMALL_BYTES):
            pool.put(_split(block, size_bytes))
        self.allocated_bytes += block.size_bytes
        if self.allocated_bytes > self.peak_allocated_bytes:
            self.peak_allocated_bytes = self.allocated_bytes
        return block

    def free(self, block: Block) -> None:
        """Give a block back to its pool, joined with its free neighbours."""
        self.allocated_bytes -= block.size_bytes
        pool = block.pool
        if block.before is not None and block.before.is_free:
            pool.take(block.before)
            block = _joined(block.before, block)
        if block.after is not None and block.after.is_free:
            pool.take(block.after)
            _joined(block, block.after)
        pool.put(block)

    def _from_device(self, size_bytes: int, pool: _Pool) -> Block:
        """A block of new memory, after giving back what is wholly free if there is too little."""
        extend = self._new_pages if self.expandable_segments else self._new_segment
        block = extend(size_bytes, pool)
        if block is None:
            self._release_cached()
            block = extend(size_bytes, pool)
        if block is None:
            raise OutOfMemory
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return block

    def _new_segment(self, size_bytes: int, pool: _Pool) -> Block | None:
        segment_bytes = _segment_bytes(size_bytes, small=pool is self.small)
        if self.reserved_bytes + segment_bytes > self.cap_bytes:
            return None
        return self._new_block(segment_bytes, pool)

    def _new_block(self, size_bytes: int, pool: _Pool) -> Block:
        block = Block(self._next_address, size_bytes, pool)
        self._next_address += size_bytes + _SEGMENT_GAP_BYTES
        self.reserved_bytes += size_bytes
        pool.reserved_bytes += size_bytes
        return block

    def _new_pages(self, size_bytes: int, pool: _Pool) -> Block | None:
        """A block at the end of an expandable segment: what is free there, and new pages."""
        last = pool.last if pool.last is not None and pool.last.is_free else None
        missing_bytes = size_bytes - (last.size_bytes if last is not None else 0)
        page_bytes = rounded(missing_bytes, pool.page_bytes)
        if self.reserved_bytes + page_bytes > self.cap_bytes:
            return None
        block = self._new_block(page_bytes, pool)
        block.before, pool.last = pool.last, block
        if block.before is not None:
            block.before.after = block
        if last is None:
            return block
        pool.take(last)
        pool.last = _joined(last, block)
        return last

    def _release_cached(self) -> None:
        """Return to the device whatever is wholly free: segments, or pages of expandable ones."""
        self.was_short = True
        for pool in (self.large, self.small):
            for block in pool.blocks():
                if self.expandable_segments:
                    self._unmap(block, pool)
                elif block.before is None and block.after is None:
                    pool.take(block)
                    self._unreserve(block.size_bytes, pool)

    def _unreserve(self, size_bytes: int, pool: _Pool) -> None:
        self.reserved_bytes -= size_bytes
        pool.reserved_bytes -= size_bytes

    def _unmap(self, block: Block, pool: _Pool) -> None:
        """Give back the whole pages in a free block; the rest stays where it is.

        Assumes: pages begin where the block does, and what lay about the hole can still join.
        """
        pool.take(block)
        rest_bytes = block.size_bytes % pool.page_bytes
        self._unreserve(block.size_bytes - rest_bytes, pool)
        block.size_bytes = rest_bytes
        if rest_bytes:
            pool.put(block)
        else:
            _unlink(block)


class _Pool:
    """Free blocks, ordered by size and then by address."""

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.reserved_bytes = 0
        self.last: Block | None = None
        """The block at the end of the pool's expandable segment."""
        self._order: list[int] = []
        """Size and address of each in one number, as those are the quickest to compare."""
        self._blocks: dict[int, Block] = {}

    def blocks(self) -> list[Block]:
        return list(self._blocks.values())

    def put(self, block: Block) -> None:
        block.is_free = True
        key = block.size_bytes * _ADDRESSES + block.address
        insort(self._order, key)
        self._blocks[key] = block

    def take(self, block: Block) -> None:
        key = block.size_bytes * _ADDRESSES + block.address
        del self._order[bisect_left(self._order, key)]
        del self._blocks[key]
        block.is_free = False

    def take_smallest(self, size_bytes: int) -> Block | None:
        order = self._order
        position = bisect_left(order, size_bytes * _ADDRESSES)
        if position == len(order):
            return None
        block = self._blocks.pop(order.pop(position))
        block.is_free = False
        return block


def _segment_bytes(size_bytes: int, *, small: bool) -> int:
    if small:
        return _SMALL_SEGMENT_BYTES
    if size_bytes < _OWN_SEGMENT_BYTES:
        return _LARGE_SEGMENT_BYTES
    return rounded(size_bytes, _OWN_SEGMENT_ROUND_BYTES)


def _split(block: Block, size_bytes: int) -> Block:
    """Cut a block to size; returns the rest."""
    rest = Block(
        block.address + size_bytes, block.size_bytes - size_bytes, block.pool, block, block.after
    )
    if block.after is not None:
        block.after.before = rest
    if block.pool.last is block:
        block.pool.last = rest
    block.after, block.size_bytes = rest, size_bytes
    return rest


def _joined(left: Block, right: Block) -> Block:
    """The left block with the right one as part of it."""
    left.size_bytes += right.size_bytes
    _unlink(right)
    return left


def _unlink(block: Block) -> None:
    """Take a block out of its segment."""
    if block.before is not None:
        block.before.after = block.after
    if block.after is not None:
        block.after.before = block.before
    if block.pool.last is block:
        block.pool.last = block.before


# A history played through it


_LARGEST_BATCH = 1 << 20
NEED_TOLERANCE = 1 / 256
"""How closely the least cap is looked for; what comes back is on the safe side."""


def peak_use(
    history: History,
    batch_size: int,
    traits: Traits = REFERENCE,
    *,
    expandable_segments: bool = False,
) -> AllocatorUse:
    """Peak bytes allocated and reserved where memory has no end."""
    if expandable_segments:
        return _expandable_use(history, batch_size, traits)
    run = _unlimited_run(history, batch_size, _canonical_traits(history, batch_size, traits))
    return AllocatorUse(allocated_bytes=run.allocated_bytes, reserved_bytes=run.reserved_bytes)


def peak_use_and_need(
    history: History, batch_size: int, traits: Traits = REFERENCE
) -> AllocatorUse:
    """The same, and the least cap under which the steps run."""
    needed = needed_bytes(history, batch_size, traits)
    return replace(peak_use(history, batch_size, traits), needed_bytes=needed)


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
        allocator = CachingAllocator(cap_bytes, expandable_segments=True)
        return _runs(storages(history, batch_size, traits), allocator)
    power = 1 << (batch_size - 1).bit_length()
    alike = _canonical_traits(history, power, traits, small_alone=True)
    small_bytes = _small_reserved_bytes(history, power, alike)
    canonical = _canonical_traits(history, batch_size, traits)
    return _large_pool_runs(history, batch_size, cap_bytes - small_bytes, canonical)


def needed_bytes(history: History, batch_size: int, traits: Traits = REFERENCE) -> float:
    """The least cap under which the steps run, to within `NEED_TOLERANCE`, from above."""
    run = _unlimited_run(history, batch_size, _canonical_traits(history, batch_size, traits))
    high = float(run.reserved_bytes)
    low = float(run.small_reserved_bytes + _live_peak_bytes(run.large))
    while high - low > NEED_TOLERANCE * high:
        middle = (low + high) / 2
        enough = fits(history, batch_size, middle, traits)
        low, high = (low, middle) if enough else (middle, high)
    return high


@lru_cache(maxsize=4096)
def live_peak_bytes(history: History, batch_size: int, traits: Traits = REFERENCE) -> int:
    """The most bytes that live at once, each storage in blocks, as they would be without gaps."""
    sizes = [rounded(abs(size), _ROUND_BYTES) for size in _sizes_bytes(history, batch_size, traits)]
    order, spans = _spans(history)
    rises = [sum(sizes[index] for index in made) for made, _ in spans]
    nets = [
        rise - sum(sizes[index] for index in ended)
        for rise, (_, ended) in zip(rises, spans, strict=True)
    ]
    before = accumulate(map(nets.__getitem__, order), initial=0)
    peak: int = max(map(add, before, map(rises.__getitem__, order)))
    return peak


_Span = tuple[tuple[int, ...], tuple[int, ...]]
"""Indices of the sizes that are made one after another, and of those that end then."""


@lru_cache(maxsize=16)
def _spans(history: History) -> tuple[list[int], list[_Span]]:
    """A history cut where it begins to rise again, as indices of its distinct spans; and those."""
    numbers: dict[_Span, int] = {}
    order: list[int] = []
    all_made: list[int] = []
    made: list[int] = []
    ended: list[int] = []
    for event in (*history.events, 0):  # the last closes the last span
        if event >= 0:
            if ended:
                order.append(numbers.setdefault((tuple(made), tuple(ended)), len(numbers)))
                made, ended = [], []
            all_made.append(event)
            made.append(event)
        else:
            ended.append(all_made[event])
    made.pop()
    if made:
        order.append(numbers.setdefault((tuple(made), ()), len(numbers)))
    return order, list(numbers)


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


@lru_cache(maxsize=64)
def _sizes_bytes(history: History, batch_size: int, traits: Traits) -> Sequence[int]:
    """The sizes of the history at a batch size; 0 if the GPU has none, below 0 if optional."""
    sizes = [max(round(value_at(size, batch_size)), 1) for size in history.sizes]
    for index, condition in history.conditions.items():
        sizes[index] = round(traits.workspace_bytes(condition, sizes[index], batch_size))
    for index in history.optional:
        sizes[index] = -sizes[index]
    return sizes


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


# Without a cap


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnlimitedRun:
    """A history at one batch size, and what it takes where there is plenty of memory."""

    allocated_bytes: int
    reserved_bytes: int
    small_reserved_bytes: int
    large: tuple[tuple[int, int], ...]
    """Storages of the large pool alone: number and size; 0 where it ends, below 0 if optional."""


@lru_cache(maxsize=64)
def _unlimited_run(history: History, batch_size: int, traits: Traits) -> _UnlimitedRun:
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
    return _UnlimitedRun(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.peak_reserved_bytes,
        small_reserved_bytes=allocator.small.reserved_bytes,
        large=tuple(large),
    )


@lru_cache(maxsize=64)
def _expandable_use(history: History, batch_size: int, traits: Traits) -> AllocatorUse:
    allocator = CachingAllocator(expandable_segments=True)
    _runs(storages(history, batch_size, traits), allocator)
    return AllocatorUse(
        allocated_bytes=allocator.peak_allocated_bytes,
        reserved_bytes=allocator.peak_reserved_bytes,
    )


@lru_cache(maxsize=4096)
def _canonical_traits(
    history: History, batch_size: int, traits: Traits, *, small_alone: bool = False
) -> Traits:
    """The first traits given that take the very same workspaces, or the same small ones: most
    GPUs share them."""
    sizes = _sizes_bytes(history, batch_size, traits)
    workspaces_bytes = tuple(
        0 if small_alone and abs(sizes[index]) > SMALL_BYTES else sizes[index]
        for index in history.conditions
    )
    first = _first_traits(history, batch_size, workspaces_bytes)
    if not first:
        first.append(traits)
    return first[0]


@lru_cache(maxsize=1024)
def _first_traits(
    history: History,  # noqa: ARG001  part of what the list is remembered by
    batch_size: int,  # noqa: ARG001
    workspaces_bytes: tuple[int, ...],  # noqa: ARG001
) -> list[Traits]:
    """Those given first, to be put in by the caller."""
    return []


# Each pool by itself


@lru_cache(maxsize=256)
def _small_reserved_bytes(history: History, batch_size: int, traits: Traits) -> int:
    """What the pool of small blocks reserves."""
    allocator = CachingAllocator()
    blocks: dict[int, Block] = {}
    sizes = _sizes_bytes(history, batch_size, traits)
    for number, event in _ever_small_events(history):
        if event < 0:
            if number in blocks:
                allocator.free(blocks.pop(number))
        elif 0 < abs(sizes[event]) <= SMALL_BYTES:
            blocks[number] = allocator.allocate(abs(sizes[event]))
    return allocator.small.reserved_bytes


@dataclass(slots=True)
class _LargePool:
    """What is known of the pool of large blocks at a batch size, under whatever cap."""

    least_bytes: int
    """It has so much in use at once: no cap below it will do."""
    enough_bytes: float = math.inf
    """What it reserved where it never had to give anything back: any cap from it on will do."""


@lru_cache(maxsize=4096)
def _large_pool(history: History, batch_size: int, traits: Traits) -> _LargePool:
    sizes = np.asarray(_sizes_bytes(history, batch_size, traits))
    kept = np.where(sizes > SMALL_BYTES, sizes, 0)  # an optional one, below 0, is left out at need
    places, signs = _large_changes(history)
    return _LargePool(int(np.cumsum(signs * kept[places]).max(initial=0)))


@lru_cache(maxsize=16)
def _large_changes(history: History) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Which size begins (1) or ends (-1) at each event of `_ever_large_events`."""
    made: dict[int, int] = {}
    places = [
        made.setdefault(number, event) if event >= 0 else made[number]
        for number, event in _ever_large_events(history)
    ]
    signs = [1 if event >= 0 else -1 for _, event in _ever_large_events(history)]
    return np.asarray(places, np.int64), np.asarray(signs, np.int64)


@lru_cache(maxsize=4096)
def _large_pool_runs(history: History, batch_size: int, cap_bytes: float, traits: Traits) -> bool:
    """Whether the pool of large blocks gets through under a cap: simulated where that is open."""
    known = _large_pool(history, batch_size, traits)
    if cap_bytes < known.least_bytes or cap_bytes >= known.enough_bytes:
        return cap_bytes >= known.enough_bytes
    allocator = CachingAllocator(cap_bytes)
    runs = _runs(_large_storages(history, batch_size, traits), allocator)
    if runs and not allocator.was_short:
        known.enough_bytes = allocator.peak_reserved_bytes
    return runs


def _large_storages(history: History, batch_size: int, traits: Traits) -> Iterator[tuple[int, int]]:
    """The storages of the large pool alone, as `storages` has them."""
    sizes = _sizes_bytes(history, batch_size, traits)
    live: set[int] = set()
    for number, event in _ever_large_events(history):
        if event < 0:
            if number in live:
                yield number, 0
        elif abs(sizes[event]) > SMALL_BYTES:
            live.add(number)
            yield number, sizes[event]


@lru_cache(maxsize=16)
def _ever_large_events(history: History) -> tuple[tuple[int, int], ...]:
    """Number and event of each storage that is large at some batch size; -1 where it ends."""
    return _events_of(
        history,
        [
            max(value_at(size, 1), value_at(size, _LARGEST_BATCH)) > SMALL_BYTES
            or history.conditions.get(index) == CUBLAS
            for index, size in enumerate(history.sizes)
        ],
    )


@lru_cache(maxsize=16)
def _ever_small_events(history: History) -> tuple[tuple[int, int], ...]:
    """The same of each that is small at some batch size, or on some GPU."""
    return _events_of(
        history,
        [
            min(value_at(size, 1), value_at(size, _LARGEST_BATCH)) <= SMALL_BYTES + 1
            or index in history.conditions
            for index, size in enumerate(history.sizes)
        ],
    )


def _events_of(history: History, wanted: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    """Number and event of each storage that is wanted; -1 where it ends."""
    numbers: set[int] = set()
    events: list[tuple[int, int]] = []
    made = 0
    for event in history.events:
        if event >= 0:
            if wanted[event]:
                numbers.add(made)
                events.append((made, event))
            made += 1
        elif made + event in numbers:
            events.append((made + event, -1))
    return tuple(events)


def _live_peak_bytes(large: Sequence[tuple[int, int]]) -> int:
    """The most the large pool must have in use at once: no cap below it will do."""
    live: dict[int, int] = {}
    live_bytes = peak_bytes = 0
    for number, size_bytes in large:
        if size_bytes > 0:
            live[number] = size_bytes
            live_bytes += size_bytes
            peak_bytes = max(peak_bytes, live_bytes)
        elif size_bytes == 0:
            live_bytes -= live.pop(number, 0)
    return peak_bytes
