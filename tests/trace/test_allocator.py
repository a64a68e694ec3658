from __future__ import annotations

import pytest

from outlay.trace.allocator import (
    FREED,
    CachingAllocator,
    held_after,
    histories_align,
    history_at,
)
from outlay.trace.trace import Held
from outlay.units import MIB


def test_small_requests_share_a_segment_of_2_mib() -> None:
    allocator = CachingAllocator()
    for _ in range(4):
        allocator.allocate(500)
    assert allocator.allocated_bytes == 4 * 512
    assert allocator.reserved_bytes == 2 * MIB


def test_middle_requests_share_a_segment_of_20_mib() -> None:
    allocator = CachingAllocator()
    for _ in range(5):
        allocator.allocate(4 * MIB)
    assert allocator.reserved_bytes == 20 * MIB
    allocator.allocate(4 * MIB)
    assert allocator.reserved_bytes == 40 * MIB


def test_large_requests_get_a_segment_rounded_to_2_mib() -> None:
    allocator = CachingAllocator()
    allocator.allocate(11 * MIB)
    # the rest of 1 MiB is not split off: it counts as allocated
    assert allocator.reserved_bytes == 12 * MIB
    assert allocator.allocated_bytes == 12 * MIB


def test_a_rest_over_1_mib_is_split_off() -> None:
    allocator = CachingAllocator()
    block = allocator.allocate(30 * MIB)
    allocator.free(block)
    allocator.allocate(12 * MIB)
    assert allocator.allocated_bytes == 12 * MIB
    allocator.allocate(18 * MIB)
    assert allocator.reserved_bytes == 30 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    small, large = allocator.allocate(20 * MIB), allocator.allocate(40 * MIB)
    allocator.free(large)
    allocator.free(small)
    assert allocator.allocate(19 * MIB).size_bytes == 20 * MIB
    assert allocator.reserved_bytes == 60 * MIB


def test_free_neighbours_join_but_segments_do_not() -> None:
    allocator = CachingAllocator()
    parts = [allocator.allocate(4 * MIB) for _ in range(5)]
    other = allocator.allocate(20 * MIB)
    for position in (1, 3, 2, 0, 4):
        allocator.free(parts[position])
    allocator.free(other)
    allocator.allocate(20 * MIB)
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 40 * MIB
    allocator.allocate(21 * MIB)
    assert allocator.reserved_bytes == 62 * MIB  # a segment of 22 MiB: nothing joined across


def test_fragmentation_reserves_more_than_is_ever_allocated() -> None:
    # 10 and 12 MiB made, 10 freed, 12 more asked for: 10 free MiB do not help.
    history = [(0, 10 * MIB), (1, 12 * MIB), (0, FREED), (2, 12 * MIB)]
    assert held_after(history) == Held(allocated_bytes=24 * MIB, reserved_bytes=34 * MIB)


def test_peak_is_the_most_at_once() -> None:
    history = [(0, 10 * MIB), (0, FREED), (1, 10 * MIB), (1, FREED)]
    assert held_after(history) == Held(allocated_bytes=10 * MIB, reserved_bytes=10 * MIB)


def test_history_at_another_batch_size() -> None:
    low = [(0, 100), (1, 8 * 50), (1, FREED)]
    high = [(0, 100), (1, 32 * 50), (1, FREED)]
    assert histories_align(low, high)
    assert history_at((8, 32), (low, high), 20) == [(0, 100), (1, 1000), (1, FREED)]
    assert not histories_align(low, high[:-1])
    assert not histories_align(low, [(0, 100), (0, FREED), (1, 1600)])


@pytest.mark.parametrize("request_bytes", [1, 512, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 99 * MIB])
def test_freed_memory_is_used_again(request_bytes: int) -> None:
    allocator = CachingAllocator()
    for _ in range(3):
        allocator.free(allocator.allocate(request_bytes))
    once = allocator.reserved_bytes
    assert allocator.allocated_bytes == 0
    allocator.allocate(request_bytes)
    assert allocator.reserved_bytes == once
