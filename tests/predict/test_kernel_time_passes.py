from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import a_calibration, a_gpu, a_pass, pass_numbers

from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration as bundled
from outlay.predict.kernel_time import pass_time_s
from outlay.predict.roofline import roofline_of


def timed(kernel, **numbers):
    """Seconds of a pass on the GPU of 1000 GB/s and 100 multiprocessors at 1 GHz."""
    calibration = a_calibration(passes={"other": pass_numbers(**numbers)})
    return pass_time_s(kernel, roofline_of(a_gpu(), calibration), calibration)


def test_bound_by_memory():
    # 8e9 B / (1000e9 x 0.8)
    assert timed(a_pass(moved_bytes=8e9), share=0.8) == pytest.approx(0.01)


def test_bound_by_instructions():
    # 1e9 elements x 10 cycles / (100 x 1e9)
    assert timed(a_pass(elements=1e9), cycles=10) == pytest.approx(0.1)


def test_each_unit_costs_cycles_of_its_own():
    # (1e9 x 10 + 1e6 x 5000) / 100e9
    kernel = a_pass(elements=1e9, thread_blocks=1e6)
    assert timed(kernel, cycles=10, unit_cycles=5000) == pytest.approx(0.15)


def test_units_that_the_operator_does_not_fix_cost_nothing():
    assert timed(a_pass(elements=1e9), cycles=10, unit_cycles=5000) == pytest.approx(0.1)


def test_bound_by_the_elements_of_one_unit():
    # 1e9 / 10 elements one after another, 2 cycles each at 1 GHz
    assert timed(a_pass(elements=1e9, thread_blocks=10), serial_cycles=2) == pytest.approx(0.2)


def test_what_takes_as_long_takes_a_little_longer_together():
    # memory and instructions 0.01 s each: (1 + 1)^(1/4)
    kernel = a_pass(moved_bytes=8e9, elements=1e9)
    assert timed(kernel, cycles=1) == pytest.approx(0.01 * 2**0.25)


def test_what_fits_the_cache_is_faster():
    # half of 4 MiB of cache, at twice the speed; a whole 2 MiB do not count as fitting
    mib = 2**20
    assert timed(a_pass(moved_bytes=mib)) == pytest.approx(mib / 0.8e12 / 2)
    assert timed(a_pass(moved_bytes=2 * mib)) == pytest.approx(2 * mib / 0.8e12)


def test_each_launch_has_its_start():
    # 3 x 5 us beside 10 ms
    kernel = a_pass(moved_bytes=8e9, launches=3)
    assert timed(kernel, start_s=5e-6) == pytest.approx(0.010015)


def test_a_pass_over_nothing_only_starts():
    assert timed(a_pass(), start_s=5e-6) == pytest.approx(5e-6)


def test_a_family_has_its_own_numbers():
    calibration = a_calibration(passes={"scan": pass_numbers(share=0.1)})
    machine = roofline_of(a_gpu(), calibration)
    # 8e9 / (1000e9 x 0.1), and the general 0.8
    scan = a_pass(family="scan", moved_bytes=8e9)
    assert pass_time_s(scan, machine, calibration) == pytest.approx(0.08)
    sort = a_pass(family="sort", moved_bytes=8e9)
    assert pass_time_s(sort, machine, calibration) == pytest.approx(0.01)


passes = st.builds(
    a_pass,
    family=st.sampled_from(sorted(bundled().passes)),
    moved_bytes=st.floats(0, 1e12),
    elements=st.floats(0, 1e12),
    thread_blocks=st.floats(1, 1e6) | st.just(math.inf),
)
names = st.sampled_from(["K80", "P100 SXM2", "T4", "RTX 3090", "A100 80GB SXM", "H100 SXM"])


@given(passes, names, st.floats(1, 100), st.sampled_from(["moved_bytes", "elements"]))
def test_more_to_do_never_takes_less(kernel, name, factor, what):
    machine = roofline_of(gpus()[name], bundled())
    more = replace(kernel, **{what: factor * getattr(kernel, what)})
    assert pass_time_s(more, machine, bundled()) >= pass_time_s(kernel, machine, bundled()) * (
        1 - 1e-9
    )


@given(passes, names, st.floats(1, 4))
def test_a_faster_gpu_is_never_slower(kernel, name, factor):
    slow = roofline_of(gpus()[name], bundled())
    fast = replace(slow, bytes_per_s=factor * slow.bytes_per_s, clock_hz=factor * slow.clock_hz)
    assert pass_time_s(kernel, fast, bundled()) <= pass_time_s(kernel, slow, bundled()) * (1 + 1e-9)
