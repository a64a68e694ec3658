from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.builders import a_calibration, a_gpu, a_profile

from outlay.predict.memory import (
    LARGEST_BATCH,
    MemoryBudget,
    largest_batch,
    memory_budget,
    traits_of,
)
from outlay.predict.memory import memory_need as need_in_room
from outlay.trace.allocator import peak_use_and_need
from outlay.trace.profile import AllocatorUse, History
from outlay.trace.workspace import REFERENCE
from outlay.units import GIB, MIB


def memory_need(profile, batch_size, available, calibration):
    room = MemoryBudget(available_bytes=available)
    return need_in_room(profile, batch_size, room, calibration)


def fits(profile, batch_size, available):
    return memory_need(profile, batch_size, available, a_calibration()).fits


def largest(profile, available):
    return largest_batch(profile, MemoryBudget(available_bytes=available), a_calibration())


def test_available_bytes_is_usable_memory_less_the_context():
    # 10 GiB - 100 MB
    assert memory_budget(a_gpu()).available_bytes == 10 * GIB - 100e6


def test_available_bytes_of_a_share():
    # half of 10 GiB - 100 MB: the context does not shrink
    assert memory_budget(a_gpu(), share=0.5).available_bytes == 5 * GIB - 100e6


def test_a_cap_is_all_that_is_available():
    assert memory_budget(a_gpu(), cap_bytes=1e9).available_bytes == 1e9


def test_traits_of_a_gpu():
    traits = traits_of(a_gpu())
    # fp16 has ten times the peak of fp32: tensor cores; there is no bf16 and no TF32
    assert traits.tensor_precisions == {"fp16"}
    assert traits.attention == {"flash fp16", "flash bf16"}
    assert traits.cublas_bytes == 10 * MIB
    # 100 multiprocessors of 2048 threads: a MiB each, rounded up to 132 / 1.25 = 105.6
    assert traits.sums_bytes == 106 * MIB


def test_memory_need():
    need = memory_need(a_profile(), 2, 5e9, a_calibration())
    # peak 0.5 + 2 x 0.5 = 1.5 GB; 0.9, 1 and 1.1 times that
    assert need.allocated_bytes.low == pytest.approx(1.35e9)
    assert need.allocated_bytes.likely == pytest.approx(1.5e9)
    assert need.allocated_bytes.high == pytest.approx(1.65e9)
    # 1, 1.1 and 1.25 times the likely 1.5 GB
    assert need.reserved_bytes.low == pytest.approx(1.5e9)
    assert need.reserved_bytes.likely == pytest.approx(1.65e9)
    assert need.reserved_bytes.high == pytest.approx(1.875e9)
    assert need.available_bytes == 5e9


def test_memory_need_where_the_allocator_was_modelled():
    use = {
        1: AllocatorUse(allocated_bytes=1e9, reserved_bytes=2e9),
        3: AllocatorUse(allocated_bytes=2e9, reserved_bytes=4e9),
    }
    need = memory_need(a_profile(allocator_use=use), 2, 5e9, a_calibration())
    # halfway from 2 to 4 GB; 0.9, 1 and 1.2 times that
    assert need.reserved_bytes.low == pytest.approx(2.7e9)
    assert need.reserved_bytes.likely == pytest.approx(3e9)
    assert need.reserved_bytes.high == pytest.approx(3.6e9)
    # halfway from 1 to 2 GB
    assert need.allocated_bytes.likely == pytest.approx(1.5e9)


def test_what_is_reserved_is_no_less_than_what_is_surely_allocated():
    use = {1: AllocatorUse(allocated_bytes=1.5e9, reserved_bytes=1.2e9)}
    need = memory_need(a_profile(allocator_use=use), 1, 5e9, a_calibration())
    # 0.9 x 1.5 GB, more than 0.9 x 1.2
    assert need.reserved_bytes.low == need.allocated_bytes.low == pytest.approx(1.35e9)


def test_it_fits_where_the_high_estimate_does():
    # at batch 2 the high estimate is 1.875 GB, the likely one 1.65 GB
    assert fits(a_profile(), 2, 1.8751e9)
    assert not fits(a_profile(), 2, 1.8749e9)


def test_largest_batch():
    # 1.25 x (0.5 + 0.5 b) GB <= 10.1 GB: b <= 15.2
    assert largest(a_profile(), 10.1e9) == 15


def test_largest_batch_is_none_where_not_one_sample_fits():
    # 1.25 x (0.5 + 0.5) GB = 1.25 GB
    assert largest(a_profile(), 1.2e9) == 0
    assert largest(a_profile(), -1.0) == 0


def test_largest_batch_comes_to_an_end_where_samples_take_no_memory():
    profile = a_profile(bytes_per_sample=0.0)
    assert largest(profile, 10e9) == LARGEST_BATCH


def test_largest_batch_is_not_sought_beyond_the_largest_of_any_use():
    # 1.25 x (0.5 GB + 100 b) <= 1 GB up to b = 3 million
    profile = a_profile(bytes_per_sample=100.0)
    assert largest(profile, 1e9) == LARGEST_BATCH


@given(st.floats(0, 20e9), st.floats(1e5, 5e9), st.floats(0, 200e9))
@settings(deadline=None)
def test_largest_batch_is_the_boundary(fixed_bytes, bytes_per_sample, available):
    profile = a_profile(fixed_bytes=fixed_bytes, bytes_per_sample=bytes_per_sample)
    batch = largest(profile, available)
    assume(batch < LARGEST_BATCH)
    assert batch == 0 or fits(profile, batch, available)
    assert not fits(profile, batch + 1, available)


@given(st.integers(1, 1000), st.integers(0, 1000))
@settings(deadline=None)
def test_a_larger_batch_never_needs_less(batch_size, more):
    small = memory_need(a_profile(), batch_size, 0, a_calibration())
    large = memory_need(a_profile(), batch_size + more, 0, a_calibration())
    assert small.reserved_bytes.high <= large.reserved_bytes.high


GROWING = History(
    sizes=((64.0 * MIB,), (0.0, 10.0 * MIB), (0.0, 12.0 * MIB)), events=(0, 1, 2, -2, 2, -1, -2)
)
"""64 MiB stay; 10 MiB a sample are made, then 12, the 10 are freed and 12 more made."""


def simulated(*sizes, history=GROWING):
    """A profile with a history, and a table of these batch sizes."""
    use = {size: peak_use_and_need(history, size) for size in sizes}
    return a_profile(allocator_use=use, history=history)


def test_memory_need_by_simulation():
    need = memory_need(simulated(1, 2), 4, 1e12, a_calibration())
    # 64 + 4 x (12 + 12) = 160 MiB allocated; 64 + 4 x (10 + 12 + 12) = 200 MiB reserved, because
    # what was freed (40) does not hold what is asked for (48)
    assert need.allocated_bytes.likely == 160 * MIB
    assert need.reserved_bytes.likely == 200 * MIB
    assert need.fits


def test_it_fits_where_giving_free_segments_back_makes_room():
    # 160 MiB will do at batch 4, and a tenth is left free: 160 / 0.9 = 177.8
    assert fits(simulated(), 4, 178 * MIB)
    assert not fits(simulated(), 4, 177 * MIB)


def test_where_it_fits_no_more_is_reserved_than_is_available():
    # it would reserve 200 MiB, and runs in 180
    need = memory_need(simulated(), 4, 180 * MIB, a_calibration())
    assert need.fits
    assert need.reserved_bytes.likely == need.reserved_bytes.high == 180 * MIB
    # where it does not, what it would take
    need = memory_need(simulated(), 4, 100 * MIB, a_calibration())
    assert not need.fits
    assert need.reserved_bytes.likely == 200 * MIB


def test_largest_batch_by_simulation():
    # 0.9 x 1000 = 900 MiB: 64 + 24 b <= 900 up to b = 34.8
    for table in [(), (1, 2, 3), (1, 16, 32, 40), (1, 64)]:
        assert largest(simulated(*table), 1000 * MIB) == 34


def test_largest_batch_by_simulation_is_to_a_64th():
    # 0.9 x 20,000 = 18,000 MiB: 64 + 24 b <= 18,000 up to b = 747.3
    batch = largest(simulated(1, 512, 1024), 20_000 * MIB)
    assert 747 - 747 / 64 <= batch <= 747


def test_no_batch_fits_by_simulation():
    # 64 + 24 = 88 MiB, and 88 / 0.9 = 97.8; the table's need is found to 1/256, from above
    assert largest(simulated(1, 2), 97 * MIB) == 0
    assert largest(simulated(1, 2), 98.5 * MIB) == 1


def test_traces_without_a_common_history_have_a_need_of_their_own():
    use = {
        1: AllocatorUse(allocated_bytes=1e9, reserved_bytes=3e9, needed_bytes=2e9),
        3: AllocatorUse(allocated_bytes=2e9, reserved_bytes=5e9, needed_bytes=4e9),
    }
    need = memory_need(a_profile(allocator_use=use), 2, 5e9, a_calibration())
    # halfway, workspaces included
    assert need.allocated_bytes.likely == 1.5e9
    assert need.reserved_bytes.likely == 4e9
    # 3 GB are needed at batch 2, and a tenth is left free
    assert fits(a_profile(allocator_use=use), 2, 3.34e9)
    assert not fits(a_profile(allocator_use=use), 2, 3.33e9)


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=12),
    st.floats(100, 8000),
    st.floats(0, 4000),
)
@settings(deadline=None, max_examples=40)
def test_a_bigger_cap_never_lowers_the_largest_batch(sizes, order, cap_mib, more_mib):
    history = History(
        sizes=((32.0 * MIB,), *((0.0, size * MIB / 2) for size in sizes)),
        # all are made, and every third is freed at once
        events=(0, *(e for n in order for e in ((1 + n % len(sizes)), *([-1] * (n % 3 == 0))))),
    )
    profile = simulated(1, 2, 4, 8, 16, 32, 64, history=history)
    smaller = largest(profile, cap_mib * MIB)
    bigger = largest(profile, (cap_mib + more_mib) * MIB)
    assert bigger >= smaller - max(smaller / 64, 1)


def test_a_table_that_suffices_stands_for_gpus_with_other_workspaces():
    # one storage of 1 GiB, and 1 GiB of scores that GPUs without a fused kernel keep beside it
    sizes = ((float(GIB),), (float(GIB),))
    history = History(sizes=sizes, events=(0, 1, -1), conditions={1: "math bf16"})
    use = AllocatorUse(allocated_bytes=GIB, reserved_bytes=1.25 * GIB, needed_bytes=1.125 * GIB)
    profile = replace(
        a_profile(), history=history, allocator_use={1: use, 2: use}, table_suffices=True
    )
    fused = MemoryBudget(available_bytes=40 * GIB)
    plain = replace(fused, traits=replace(REFERENCE, attention=frozenset({"math bf16"})))
    calibration = a_calibration()
    # what is allocated is 1 GiB times the table's share, and twice that with the scores
    needs = [need_in_room(profile, 1, budget, calibration) for budget in (fused, plain)]
    assert needs[1].allocated_bytes.likely == 2 * needs[0].allocated_bytes.likely
    assert needs[1].reserved_bytes.likely == 2 * needs[0].reserved_bytes.likely
    # 1.125 GiB fit into 2, 2.25 do not
    small = [replace(budget, available_bytes=2 * GIB) for budget in (fused, plain)]
    assert [need_in_room(profile, 1, budget, calibration).fits for budget in small] == [True, False]
