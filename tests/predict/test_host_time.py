from __future__ import annotations

import pytest
from tests.builders import a_calibration, a_step_memory, an_op

from outlay.predict.host_time import Host, host_test_of, host_time_s
from outlay.trace.profile import Trace

COSTS_S = {
    "host_view_s": 1e-6,
    "host_forward_s": 2e-6,
    "host_backward_s": 3e-6,
    "host_update_s": 4e-6,
    "host_conv_s": 5e-6,
    "host_conv_backward_s": 6e-6,
    "host_norm_s": 7e-6,
    "host_rnn_s": 8e-6,
}


def issued_s(*ops, host=None):
    trace = Trace(batch_size=1, ops=ops, memory=a_step_memory(), parameters=0, issued_ops=len(ops))
    return host_time_s(trace, a_calibration(**COSTS_S), host or Host())


@pytest.mark.parametrize(
    ("op", "time_s"),
    [
        (an_op("other", launches=0), 1e-6),
        (an_op("conv", launches=0, phase="backward"), 1e-6),
        (an_op("gemm"), 2e-6),
        (an_op("elementwise"), 2e-6),
        (an_op("gemm", phase="backward"), 3e-6),
        (an_op("optimizer", phase="optimizer"), 4e-6),
        (an_op("norm", phase="optimizer"), 4e-6),
        (an_op("conv"), 5e-6),
        (an_op("conv", phase="backward"), 6e-6),
        (an_op("norm"), 7e-6),
        (an_op("norm", phase="backward"), 7e-6),
    ],
)
def test_each_sort_of_operation_has_its_cost(op, time_s):
    assert issued_s(op) == pytest.approx(time_s)


def test_how_much_an_operation_does_costs_the_host_nothing():
    assert issued_s(an_op(flops=1e15, moved_bytes=1e12)) == pytest.approx(2e-6)


def test_operations_count_as_often_as_they_run():
    # 10 x 2 us + 0.5 x 5 us
    assert issued_s(an_op(count=10), an_op("conv", count=0.5)) == pytest.approx(22.5e-6)


def test_a_recurrent_layer_issues_a_product_for_each_position_and_layer():
    # 10 positions x 2 layers x 8 us
    shapes = ((10, 4, 32), (2, 4, 32), (2, 4, 32))
    assert issued_s(an_op("rnn", flops=1_310_720, shapes=shapes)) == pytest.approx(160e-6)


def test_a_faster_host_issues_faster():
    # 100 x 2 us at 1.6 times the speed
    fast = Host(speed=1.6, measured=True)
    assert issued_s(an_op(count=100), host=fast) == pytest.approx(125e-6)


def test_nothing_to_issue():
    assert issued_s() == 0


def test_a_host_s_speed_is_the_reference_s_time_over_its_own():
    # 1 to 10 ms: the median is 5.5 ms, and the reference takes 11 ms
    result = host_test_of([n / 1000 for n in (10, 9, 8, 7, 6, 5, 4, 3, 2, 1)], _eleven_ms())
    assert result.step_s == pytest.approx(5.5e-3)
    assert result.speed == pytest.approx(2.0)
    assert result.samples == 10
    # from the second shortest to the longest: (10 - 2) / 2 / 5.5
    assert result.spread == pytest.approx(4 / 5.5)


def test_a_steady_host_has_no_spread():
    result = host_test_of([0.011] * 5, _eleven_ms())
    assert (result.speed, result.spread) == (1, 0)


def test_one_slow_sample_of_many_changes_little():
    result = host_test_of([0.011] * 30 + [5.0], _eleven_ms())
    assert (result.speed, result.spread) == (1, 0)


def _eleven_ms():
    return a_calibration(host_test_step_s=0.011)
