"""What torch's caching allocator makes of a step's allocations: bytes allocated and reserved.

A model of CUDACachingAllocator with its default settings on one stream: requests are rounded to
512 bytes, served from the smallest free block that is large enough, and split off it; freed blocks
join their free neighbours; segments are taken from the device and never given back.

Source: c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split). Ignores
`PYTORCH_CUDA_ALLOC_CONF`, several streams, and what the allocator does when the device is full.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outlay.trace.trace import Held
from outlay.units import MIB

_ROUND_BYTES = 512
_SMALL_BYTES = MIB
_SMALL_SEGMENT_BYTES = 2 * MIB
_LARGE_SEGMENT_BYTES = 20 * MIB
_OWN_SEGMENT_BYTES = 10 * MIB
_OWN_SEGMENT_ROUND_BYTES = 2 * MIB
_SEGMENT_GAP_BYTES = 1

FREED = -1
"""In a history, the size that says that a storage ends."""

History = Sequence[tuple[int, int]]
"""Every storage's number with its size in bytes where it is made, and with `FREED` at its end."""


@dataclass(slots=True, eq=False)
class Block:
    """A piece of a segment, in use or free."""

    address: int
    size_bytes: int
    before: Block | None = None
    after: Block | None = None
    is_free: bool = False


class CachingAllocator:
    """Blocks in two pools, one for requests up to 1 MiB and one for larger ones."""

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.peak_allocated_bytes = 0
        self.reserved_bytes = 0
        self._next_address = 0
        self._small = _Pool()
        self._large = _Pool()
        self._pool_of: dict[int, _Pool] = {}

    def allocate(self, request_bytes: int) -> Block:
        """A block for a request."""
        size_bytes = _rounded(max(request_bytes, 1), _ROUND_BYTES)
        pool = self._small if size_bytes <= _SMALL_BYTES else self._large
        block = pool.take_smallest(size_bytes) or self._segment(size_bytes, pool)
        spare_bytes = block.size_bytes - size_bytes
        if spare_bytes >= _ROUND_BYTES if pool is self._small else spare_bytes > _SMALL_BYTES:
            pool.put(_split(block, size_bytes))
        self.allocated_bytes += block.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        self._pool_of[block.address] = pool
        return block

    def free(self, block: Block) -> None:
        """Give a block back to its pool, joined with its free neighbours."""
        self.allocated_bytes -= block.size_bytes
        pool = self._pool_of.pop(block.address)
        if block.before is not None and block.before.is_free:
            pool.take(block.before)
            block = _joined(block.before, block)
        if block.after is not None and block.after.is_free:
            pool.take(block.after)
            block = _joined(block, block.after)
        pool.put(block)

    def _segment(self, size_bytes: int, pool: _Pool) -> Block:
        segment_bytes = _segment_bytes(size_bytes, small=pool is self._small)
        block = Block(self._next_address, segment_bytes)
        self._next_address += segment_bytes + _SEGMENT_GAP_BYTES
        self.reserved_bytes += segment_bytes
        return block


class _Pool:
    """Free blocks, ordered by size and then by address."""

    def __init__(self) -> None:
        self._order: list[tuple[int, int]] = []
        self._blocks: dict[int, Block] = {}

    def put(self, block: Block) -> None:
        block.is_free = True
        insort(self._order, (block.size_bytes, block.address))
        self._blocks[block.address] = block

    def take(self, block: Block) -> None:
        del self._order[bisect_left(self._order, (block.size_bytes, block.address))]
        del self._blocks[block.address]
        block.is_free = False

    def take_smallest(self, size_bytes: int) -> Block | None:
        position = bisect_left(self._order, (size_bytes, 0))
        if position == len(self._order):
            return None
        block = self._blocks[self._order[position][1]]
        self.take(block)
        return block


def _segment_bytes(size_bytes: int, *, small: bool) -> int:
    if small:
        return _SMALL_SEGMENT_BYTES
    if size_bytes < _OWN_SEGMENT_BYTES:
        return _LARGE_SEGMENT_BYTES
    return _rounded(size_bytes, _OWN_SEGMENT_ROUND_BYTES)


def _split(block: Block, size_bytes: int) -> Block:
    """Cut a block to size; returns the rest."""
    rest = Block(
        block.address + size_bytes, block.size_bytes - size_bytes, before=block, after=block.after
    )
    if block.after is not None:
        block.after.before = rest
    block.after, block.size_bytes = rest, size_bytes
    return rest


def _joined(left: Block, right: Block) -> Block:
    left.size_bytes += right.size_bytes
    left.after = right.after
    if right.after is not None:
        right.after.before = left
    return left


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def held_after(history: Iterable[tuple[int, int]]) -> Held:
    """Peak bytes allocated, and bytes reserved, after a history of allocations."""
    allocator = CachingAllocator()
    blocks: dict[int, Block] = {}
    for storage, size_bytes in history:
        if size_bytes == FREED:
            allocator.free(blocks.pop(storage))
        else:
            blocks[storage] = allocator.allocate(size_bytes)
    return Held(
        allocated_bytes=allocator.peak_allocated_bytes, reserved_bytes=allocator.reserved_bytes
    )


def histories_align(one: History, other: History) -> bool:
    """Whether two histories make and free the same storages in the same order."""
    return len(one) == len(other) and all(
        a == b and (size_a == FREED) == (size_b == FREED)
        for (a, size_a), (b, size_b) in zip(one, other, strict=True)
    )


def history_at(
    sizes: tuple[int, int], histories: tuple[History, History], batch_size: int
) -> list[tuple[int, int]]:
    """The history at another batch size: every storage grows along its line through two."""
    share = (batch_size - sizes[0]) / (sizes[1] - sizes[0])
    return [
        (storage, FREED if low == FREED else max(round(low + (high - low) * share), 1))
        for (storage, low), (_, high) in zip(*histories, strict=True)
    ]
