from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.trace.allocator import (
    NEED_TOLERANCE,
    Block,
    CachingAllocator,
    OutOfMemory,
    fits,
    needed_bytes,
    peak_use,
    peak_use_and_need,
    storages,
)
from outlay.trace.profile import AllocatorUse, History
from outlay.trace.workspace import REFERENCE
from outlay.units import MIB


def mib(*sizes: float) -> tuple[tuple[float, ...], ...]:
    """Sizes that do not depend on the batch."""
    return tuple((size * MIB,) for size in sizes)


def test_a_peak_is_the_most_at_once() -> None:
    history = History(sizes=mib(10), events=(0, -1, 0, -1))
    assert peak_use(history, 1) == AllocatorUse(allocated_bytes=10 * MIB, reserved_bytes=10 * MIB)


def test_sizes_grow_with_the_batch() -> None:
    history = History(sizes=((2.0 * MIB, 4.0 * MIB),), events=(0,))
    # 2 + 3 x 4 = 14 MiB
    assert peak_use(history, 3).allocated_bytes == 14 * MIB


FRAGMENTED = History(sizes=mib(10, 12), events=(0, 1, -2, 1))
"""10 and 12 MiB made, the 10 freed, 12 more asked for."""


def test_fragmentation_reserves_more_than_is_ever_allocated() -> None:
    # the 10 free MiB do not help: 10 + 12 + 12
    assert peak_use(FRAGMENTED, 1) == AllocatorUse(
        allocated_bytes=24 * MIB, reserved_bytes=34 * MIB
    )


def test_under_a_cap_free_segments_are_given_back() -> None:
    # the 10 are given back: 24 will do
    assert fits(FRAGMENTED, 1, 24 * MIB)
    assert not fits(FRAGMENTED, 1, 24 * MIB - 1)


def test_needed_bytes_is_the_least_cap_from_above() -> None:
    assert 24 * MIB <= needed_bytes(FRAGMENTED, 1) <= 24 * MIB * (1 + 2 * NEED_TOLERANCE)
    assert peak_use_and_need(FRAGMENTED, 1).reserved_bytes == 34 * MIB


def test_a_pinned_segment_cannot_be_given_back() -> None:
    # 20 freed, 12 cut from it and kept, 16 asked for: 8 free MiB are stuck. 20 + 16.
    history = History(sizes=mib(20, 12, 16), events=(0, -1, 1, 2))
    assert fits(history, 1, 36 * MIB)
    assert not fits(history, 1, 35 * MIB)


def test_expandable_segments_are_not_stuck() -> None:
    # Pages of 20 MiB: 40 of 40, then 22 of it freed and 12 + 10 taken from the same place.
    history = History(sizes=mib(22, 18, 12, 10), events=(0, 1, -2, 2, 3))
    assert fits(history, 1, 40 * MIB, expandable_segments=True)
    assert not fits(history, 1, 39 * MIB, expandable_segments=True)
    # 22 free, 16 cut from it and kept, 12 asked for: 6 + new. As segments 22 + 18 + 12 = 52.
    history = History(sizes=mib(22, 18, 16, 12), events=(0, 1, -2, 2, 3))
    assert not fits(history, 1, 51 * MIB)
    assert fits(history, 1, 60 * MIB, expandable_segments=True)


def test_optional_workspaces_are_left_out_where_there_is_no_room() -> None:
    history = History(sizes=mib(10, 30), events=(0, 1, -1), optional=frozenset({1}))
    assert peak_use(history, 1).reserved_bytes == 40 * MIB
    assert fits(history, 1, 10 * MIB)
    assert not fits(history, 1, 9 * MIB)


def test_small_storages_count_with_their_segments() -> None:
    history = History(sizes=((1000.0,), (20.0 * MIB,)), events=(0, 1))
    # a segment of 2 MiB for the small one
    assert fits(history, 1, 22 * MIB)
    assert not fits(history, 1, 21 * MIB)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Storages of 0.5 to 60 MiB, half of it a sample, made and freed in any order."""
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=6))
    events: list[int] = []
    live: list[int] = []
    made = 0
    for choice in draw(st.lists(st.integers(0, 11), min_size=1, max_size=60)):
        if choice < 6 or not live:
            events.append(choice % len(sizes))
            live.append(made)
            made += 1
        else:
            events.append(live.pop(choice % len(live)) - made)
    return History(
        sizes=tuple((size * MIB / 2, size * MIB / 2) for size in sizes), events=tuple(events)
    )


@given(histories(), st.integers(1, 8))
@settings(deadline=None)
def test_reserved_is_no_less_than_allocated(history: History, batch_size: int) -> None:
    point = peak_use_and_need(history, batch_size)
    assert point.allocated_bytes <= point.reserved_bytes
    assert point.needed_bytes is not None
    assert point.needed_bytes <= point.reserved_bytes
    assert fits(history, batch_size, point.needed_bytes)


@pytest.mark.parametrize("expandable_segments", [False, True])
@given(history=histories())
@settings(deadline=None)
def test_what_is_reserved_without_a_cap_is_enough(
    history: History, expandable_segments: bool
) -> None:
    cap_bytes = 2 * peak_use(history, 2).reserved_bytes + 40 * MIB
    assert fits(history, 2, cap_bytes, expandable_segments=expandable_segments)


@settings(deadline=None, max_examples=60)
@given(histories(), st.integers(1, 16), st.lists(st.integers(1, 400), min_size=2, max_size=6))
def test_what_bounds_tell_is_what_playing_it_through_shows(
    history: History, batch_size: int, caps_mib: list[int]
) -> None:
    """Caps in any order: an earlier run must not change what a later one is told."""
    made = list(storages(history, batch_size, REFERENCE))
    large = {number for number, size in made if abs(size) > MIB}
    small = CachingAllocator()
    blocks: dict[int, Block] = {}
    for number, size in storages(history, 1 << (batch_size - 1).bit_length(), REFERENCE):
        if 0 < abs(size) <= MIB:
            blocks[number] = small.allocate(abs(size))
        elif size == 0 and number in blocks:
            small.free(blocks.pop(number))
    for cap_mib in caps_mib:
        left = cap_mib * MIB - small.small.reserved_bytes
        runs = plays_through([one for one in made if one[0] in large], CachingAllocator(left))
        assert fits(history, batch_size, float(cap_mib * MIB)) is (runs and left >= 0)


def plays_through(made: list[tuple[int, int]], allocator: CachingAllocator) -> bool:
    """Whether storages can be made and freed in order, optional ones left out at need."""
    blocks: dict[int, Block] = {}
    for number, size in made:
        try:
            if size:
                blocks[number] = allocator.allocate(abs(size))
            elif number in blocks:
                allocator.free(blocks.pop(number))
        except OutOfMemory:
            if size > 0:
                return False
    return True
