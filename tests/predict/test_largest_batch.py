from __future__ import annotations

from tests.builders import a_calibration, a_profile

from outlay.predict.largest_batch import verified_largest
from outlay.predict.memory import MemoryBudget
from outlay.trace.allocator import peak_use_and_need
from outlay.trace.profile import AllocatorUse, History
from outlay.units import MIB


def growing(mib_per_sample, fixed_mib=64.0):
    """A fixed storage, and one that grows with the batch."""
    return History(sizes=((fixed_mib * MIB,), (0.0, mib_per_sample * MIB)), events=(0, 1))


class Tracer:
    """Traces a step whose memory is what `history_at` says; notes what it was asked for."""

    def __init__(self, history_at):
        self.history_at = history_at
        self.asked = []

    def __call__(self, sizes):
        self.asked.append(list(sizes))
        return {size: self.history_at(size) for size in sizes}


def profile_with(history):
    held = {size: peak_use_and_need(history, size) for size in (1, 2, 4, 8, 16, 32, 64)}
    return a_profile(allocator_use=held, history=history)


def search(profile, tracer, *rooms_mib):
    rooms = [MemoryBudget(available_bytes=mib * MIB) for mib in rooms_mib]
    return verified_largest(profile, rooms, a_calibration(), tracer)


def test_a_profile_that_is_right_takes_one_trace():
    tracer = Tracer(lambda _: growing(10.0))
    # a tenth stays free: 64 + 10 b <= 900 up to b = 83
    (found,) = search(profile_with(growing(10.0)), tracer, 1000)
    assert (found.batch_size, found.is_verified) == (83, True)
    assert tracer.asked == [[83]]
    # 64 + 830 MiB, in segments of 2 MiB and found to 1/256
    assert 894 * MIB <= found.needed_bytes <= 900 * MIB


def test_rooms_are_traced_together_and_sizes_once():
    tracer = Tracer(lambda _: growing(10.0))
    found = search(profile_with(growing(10.0)), tracer, 1000, 1000, 500)
    # 64 + 10 b <= 450 up to b = 38
    assert [one.batch_size for one in found] == [83, 83, 38]
    assert tracer.asked == [[38, 83]]


def test_a_profile_that_promises_too_much_is_found_out():
    # from 50 samples on the step really takes twice as much a sample
    tracer = Tracer(lambda size: growing(20.0 if size >= 50 else 10.0))
    (found,) = search(profile_with(growing(10.0)), tracer, 1000)
    # 64 + 20 b <= 900 up to b = 41, which is below 50 and takes 10 a sample: up to 49
    assert 41 <= found.batch_size <= 49
    assert found.is_verified
    assert len(tracer.asked) <= 6


def test_without_a_common_history_the_search_goes_on_upwards():
    # Each trace has its own history; the profile's table is far on the safe side.
    held = {
        1: AllocatorUse(allocated_bytes=74 * MIB, reserved_bytes=74 * MIB, needed_bytes=74 * MIB),
        4: AllocatorUse(
            allocated_bytes=400 * MIB, reserved_bytes=400 * MIB, needed_bytes=400 * MIB
        ),
    }
    tracer = Tracer(lambda _: growing(10.0))
    (found,) = search(a_profile(allocator_use=held), tracer, 1000)
    assert found.batch_size == 83


def test_nothing_is_traced_where_nothing_fits():
    tracer = Tracer(lambda _: growing(10.0))
    (found,) = search(profile_with(growing(10.0)), tracer, 70)
    assert (found.batch_size, found.is_verified) == (0, False)
    assert tracer.asked == []
