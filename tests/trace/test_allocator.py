from __future__ import annotations

import pytest

from outlay.trace.allocator import CachingAllocator, OutOfMemory
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


def test_a_cap_is_kept() -> None:
    allocator = CachingAllocator(30 * MIB)
    allocator.allocate(20 * MIB)
    with pytest.raises(OutOfMemory):
        allocator.allocate(12 * MIB)  # 20 + 12 > 30
    allocator.allocate(10 * MIB)
    assert allocator.reserved_bytes == 30 * MIB


def test_free_segments_are_given_back_before_a_request_fails() -> None:
    allocator = CachingAllocator(40 * MIB)
    allocator.free(allocator.allocate(20 * MIB))
    kept = allocator.allocate(12 * MIB)  # cut from the segment of 20: 8 MiB are left of it
    allocator.free(allocator.allocate(16 * MIB))
    assert allocator.reserved_bytes == 36 * MIB
    # 20 + 16 + 18 > 40: the 16 are given back. The 20 are not: 12 of them are in use.
    allocator.allocate(18 * MIB)
    assert allocator.reserved_bytes == 38 * MIB
    assert allocator.peak_reserved_bytes == 38 * MIB
    allocator.free(kept)
    with pytest.raises(OutOfMemory):
        allocator.allocate(24 * MIB)  # 18 + 24 > 40, even with the 20 given back
    assert allocator.reserved_bytes == 18 * MIB


def test_small_segments_are_given_back_too() -> None:
    allocator = CachingAllocator(20 * MIB)
    allocator.free(allocator.allocate(1000))
    allocator.allocate(20 * MIB)
    assert allocator.reserved_bytes == 20 * MIB


def test_expandable_segments_grow_by_pages_and_join() -> None:
    allocator = CachingAllocator(expandable_segments=True)
    first, second = allocator.allocate(30 * MIB), allocator.allocate(8 * MIB)
    assert allocator.reserved_bytes == 40 * MIB  # two pages of 20 MiB: 30 + 8, and 2 left
    allocator.free(first)
    allocator.free(second)
    allocator.allocate(58 * MIB)  # all 40 and one page more
    assert allocator.reserved_bytes == 60 * MIB
    assert allocator.allocated_bytes == 58 * MIB


def test_expandable_segments_give_back_whole_pages() -> None:
    allocator = CachingAllocator(80 * MIB, expandable_segments=True)
    hole, _ = allocator.allocate(50 * MIB), allocator.allocate(10 * MIB)
    allocator.free(hole)
    # 60 reserved, 50 free before what is kept. 60 + 60 > 80: two pages of the hole go back, 20 are
    # left, and three more pages make 80.
    allocator.allocate(60 * MIB)
    assert allocator.reserved_bytes == 80 * MIB
    with pytest.raises(OutOfMemory):
        allocator.allocate(20 * MIB)


@pytest.mark.parametrize("request_bytes", [1, 512, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 99 * MIB])
def test_freed_memory_is_used_again(request_bytes: int) -> None:
    allocator = CachingAllocator()
    for _ in range(3):
        allocator.free(allocator.allocate(request_bytes))
    once = allocator.reserved_bytes
    assert allocator.allocated_bytes == 0
    allocator.allocate(request_bytes)
    assert allocator.reserved_bytes == once
