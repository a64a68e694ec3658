from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_calibration, a_gpu, a_memory, an_op

from outlay.predict.compute import (
    arithmetic,
    device_time_by_kind_s,
    device_time_s,
    host_time_s,
    op_time_s,
)
from outlay.trace.trace import Trace


def a_trace(*ops, issued_ops=100):
    return Trace(batch_size=1, ops=ops, memory=a_memory(), parameters=0, issued_ops=issued_ops)


@pytest.mark.parametrize(
    ("asked", "used"),
    [("fp16", "fp16"), ("fp32", "fp32"), ("bf16", "fp32"), ("tf32", "fp32"), ("int", "fp32")],
)
def test_arithmetic_falls_back_to_fp32_where_there_is_no_other(asked, used):
    assert arithmetic(asked, a_gpu()) == used


def test_arithmetic_is_what_is_asked_for_where_there_is_such():
    modern = a_gpu(peaks={"fp32": 1e13, "tf32": 5e13, "bf16": 1e14})
    assert arithmetic("tf32", modern) == "tf32"
    assert arithmetic("bf16", modern) == "bf16"


@pytest.mark.parametrize(
    ("op", "time_s"),
    [
        # 1e12 FLOPs / (100e12 x 0.5) = 0.02 s, above 1e9 B / (1000e9 x 0.8) = 0.00125 s
        (an_op("gemm", flops=1e12, moved_bytes=1e9), 0.02),
        # 1e12 / (100e12 x 0.4)
        (an_op("conv", flops=1e12), 0.025),
        # 1e12 / (100e12 x 0.25)
        (an_op("attention", flops=1e12), 0.04),
        # 1e12 / (100e12 x 0.2)
        (an_op("rnn", flops=1e12), 0.05),
        # no bf16 units: 1e12 / (10e12 x 0.5) in fp32
        (an_op("gemm", precision="bf16", flops=1e12), 0.2),
        # 8e9 B / (1000e9 x 0.8), above 1e6 FLOPs / 10e12
        (an_op("elementwise", flops=1e6, moved_bytes=8e9), 0.01),
        # outside of matrix units: 1e12 / 10e12 in fp32, whatever the precision
        (an_op("norm", flops=1e12), 0.1),
        # 3 launches x 10 us
        (an_op("copy", moved_bytes=8, launches=3), 3e-5),
        # a view starts no kernel
        (an_op("other", launches=0), 0.0),
    ],
)
def test_op_time_s_is_the_slowest_of_arithmetic_traffic_and_launch(op, time_s):
    assert op_time_s(op, a_gpu(), a_calibration()) == pytest.approx(time_s)


def test_op_time_s_takes_the_most_special_efficiency():
    special = a_calibration(
        conv_fp16_fraction=0.8, conv_fp16_channels_last_fraction=0.16, norm_memory_fraction=0.4
    )
    # 1e12 / (100e12 x 0.8)
    assert op_time_s(an_op("conv", flops=1e12), a_gpu(), special) == pytest.approx(0.0125)
    # 1e12 / (100e12 x 0.16)
    last = an_op("conv", flops=1e12, layout="channels_last")
    assert op_time_s(last, a_gpu(), special) == pytest.approx(0.0625)
    # 8e9 / (1000e9 x 0.4), where a copy still takes the general 0.8
    assert op_time_s(an_op("norm", moved_bytes=8e9), a_gpu(), special) == pytest.approx(0.02)
    assert op_time_s(an_op("copy", moved_bytes=8e9), a_gpu(), special) == pytest.approx(0.01)


@pytest.mark.parametrize("name", ["aten.native_batch_norm", "aten.native_batch_norm_backward"])
def test_op_time_s_knows_batch_norm_forward_and_backward_by_one_row(name):
    special = a_calibration(batch_norm_fp16_memory_fraction=0.1)
    # 8e9 / (1000e9 x 0.1)
    op = an_op("norm", name=name, moved_bytes=8e9)
    assert op_time_s(op, a_gpu(), special) == pytest.approx(0.08)


def test_a_gpu_below_the_reference_reaches_a_larger_share_of_its_peak():
    scaled = a_calibration(peak_exponent=0.5, bandwidth_exponent=1, gemm_fraction=0.25)
    # 0.25 x (400e12 / 100e12)^0.5 = 0.5 of 100e12
    gemm = an_op("gemm", flops=1e12)
    assert op_time_s(gemm, a_gpu(), scaled) == pytest.approx(0.02)
    # 0.4 x 2000e9 / 1000e9 = 0.8 of 1000e9
    scaled = a_calibration(bandwidth_exponent=1, other_memory_fraction=0.4)
    copy = an_op("copy", moved_bytes=8e9)
    assert op_time_s(copy, a_gpu(), scaled) == pytest.approx(0.01)


def test_no_gpu_reaches_more_than_the_highest_share():
    scaled = a_calibration(peak_exponent=1)
    # 0.5 x 400e12 / 100e12 = 2, cut at 0.9: 1e12 / (100e12 x 0.9)
    gemm = an_op("gemm", flops=1e12)
    assert op_time_s(gemm, a_gpu(), scaled) == pytest.approx(1 / 90)


def test_device_time_s_counts_each_operation_as_often_as_it_runs():
    trace = a_trace(
        an_op("gemm", count=2, flops=1e12),
        an_op("copy", count=0.5, moved_bytes=8e9),
        an_op("gemm", flops=1e12, precision="fp32"),
    )
    # 2 x 0.02 + 0.5 x 0.01 + 0.2
    assert device_time_s(trace, a_gpu(), a_calibration()) == pytest.approx(0.245)


def test_device_time_by_kind_is_the_same_time_largest_first():
    trace = a_trace(
        an_op("copy", moved_bytes=8e9),
        an_op("gemm", count=2, flops=1e12),
        an_op("gemm", flops=1e12),
    )
    times = device_time_by_kind_s(trace, a_gpu(), a_calibration())
    # gemm 3 x 0.02, copy 0.01
    assert list(times) == ["gemm", "copy"]
    assert times["gemm"] == pytest.approx(0.06)
    assert times["copy"] == pytest.approx(0.01)


def test_host_time_s_is_by_operation():
    # 300 x 10 us
    assert host_time_s(a_trace(issued_ops=300), a_calibration()) == pytest.approx(0.003)


kinds = st.sampled_from(["gemm", "conv", "attention", "norm", "copy", "optimizer", "other"])


@given(kinds, st.floats(0, 1e15), st.floats(0, 1e12), st.floats(1, 4))
@settings(deadline=None)
def test_a_faster_gpu_is_never_slower(kind, flops, moved_bytes, factor):
    op = an_op(kind, flops=flops, moved_bytes=moved_bytes)
    slow = a_gpu()
    fast = a_gpu(
        bandwidth_gb_per_s=1000 * factor, peaks={"fp32": 10e12 * factor, "fp16": 100e12 * factor}
    )
    calibration = a_calibration()
    assert op_time_s(op, fast, calibration) <= op_time_s(op, slow, calibration)
