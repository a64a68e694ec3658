"""What trials allocated, played through the model of the allocator."""

from __future__ import annotations

import pytest

from outlay.probe.agent.device import allocation_events
from outlay.probe.find_batch import SearchBounds, next_size, simulated_largest
from outlay.probe.trial import Trial
from outlay.units import MIB


def test_events_of_a_trace_of_the_allocator():
    trace = [
        {"action": "segment_alloc", "addr": 0, "size": 2 * MIB},
        {"action": "alloc", "addr": 10, "size": 512},
        {"action": "alloc", "addr": 20, "size": 1024},
        {"action": "free_requested", "addr": 10, "size": 512},
        {"action": "free_completed", "addr": 10, "size": 512},
        {"action": "alloc", "addr": 10, "size": 256},  # the same place, another storage
        {"action": "free_completed", "addr": 10, "size": 256},
        {"action": "free_completed", "addr": 99, "size": 1},  # from before the record
    ]
    assert allocation_events(trace) == [512, 1024, -1, 256, -3]


def step(batch_size: int) -> list[int]:
    """100 MiB that stay, and 30 MiB a sample that come and go twice."""
    passing = 30 * MIB * batch_size
    return [100 * MIB, passing, -2, passing, -3]


def test_largest_batch_by_what_two_trials_allocated():
    trials = {4: step(4), 8: step(8)}
    # Blocks are taken in steps of 2 MiB: 100 + 30 n <= 1000 for n = 30.
    assert simulated_largest(trials, 1000 * MIB) == 30


def test_trials_that_differ_tell_nothing():
    assert simulated_largest({4: step(4), 8: [*step(8), 5 * MIB]}, 1000 * MIB) is None


@pytest.mark.parametrize("trials", [{}, {8: step(8)}, {4: [], 8: []}])
def test_too_few_trials_tell_nothing(trials):
    assert simulated_largest(trials, 1000 * MIB) is None


def test_without_a_limit_there_is_no_largest():
    assert simulated_largest({4: step(4), 8: step(8)}, None) is None


def test_what_was_played_is_tried_before_the_line():
    trials = [
        Trial(
            batch_size=size,
            outcome="fits",
            peak_allocated_bytes=1e9 + size * 1e8,
            peak_reserved_bytes=1e9 + size * 1.2e8,
        )
        for size in (8, 40)
    ]
    bounds = SearchBounds(limit_bytes=10e9, fixed_bytes=1e9, simulated=77)
    assert next_size(trials, bounds, first=8) == 77
