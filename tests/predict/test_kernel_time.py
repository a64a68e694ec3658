from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import (
    a_calibration,
    a_gpu,
    a_pass,
    a_product,
    a_step_memory,
    an_op,
    pass_numbers,
    product_numbers,
)

from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration as bundled
from outlay.predict.kernel_time import device_time, kernel_time_s, kernels_of, op_time_s
from outlay.predict.roofline import roofline_of
from outlay.trace.profile import Trace

WAVE_S = 65.536e-6
"""Of 2 x 1280 x 1280 x 1000 FLOPs at 50 TFLOP/s."""


def a_matmul(**changes):
    """A product of one full wave."""
    fields = {
        "name": "aten.mm",
        "flops": 2 * 1280 * 1280 * 1000,
        "shapes": ((1280, 1000), (1000, 1280), (1280, 1280)),
    }
    return an_op("gemm", **(fields | changes))


def a_copy(**changes):
    """A pass of 10 ms: 8e9 B / (1000e9 x 0.8)."""
    return an_op("copy", **({"name": "aten.clone", "moved_bytes": 8e9} | changes))


def a_trace(*ops):
    return Trace(batch_size=1, ops=ops, memory=a_step_memory(), parameters=0, issued_ops=len(ops))


def device(*ops, calibration=None, gpu=None):
    calibration = calibration or a_calibration()
    return device_time(a_trace(*ops), roofline_of(gpu or a_gpu(), calibration), calibration)


def one_op_s(op, calibration=None, **gpu):
    calibration = calibration or a_calibration()
    return op_time_s(op, roofline_of(a_gpu(**gpu), calibration), calibration)


def test_a_stated_efficiency_is_of_the_slower_of_arithmetic_and_memory():
    # 8e9 B at 1000 GB/s are 8 ms, at a quarter of it 32 ms
    moving = an_op("elementwise", name="my_ext.swirl", moved_bytes=8e9, efficiency=0.25)
    assert one_op_s(moving) == pytest.approx(0.032)
    # arithmetic that takes longer: 5e11 FLOPs at the peak for fp16, at a quarter of it
    gpu = a_gpu()
    peak = roofline_of(gpu, a_calibration()).peak_flops_per_s["fp16"]
    product = replace(moving, kind="gemm", flops=0.05 * peak)
    assert one_op_s(product) == pytest.approx(0.05 / 0.25)


def test_what_is_no_product_runs_on_the_plain_units_whatever_its_dtype():
    fp32 = roofline_of(a_gpu(), a_calibration()).peak_flops_per_s["fp32"]
    filters = an_op("elementwise", name="my_ext.swirl", flops=0.05 * fp32, efficiency=0.5)
    assert one_op_s(filters) == pytest.approx(0.05 / 0.5)


def test_heads_may_stand_before_or_after_the_positions():
    # 2 samples, 8 heads of 64 channels, 1024 positions
    shapes = {"heads second": (2, 8, 1024, 64), "heads third": (2, 1024, 8, 64)}
    flops = 2 * 2 * 2 * 8 * 1024 * 1024 * 64
    kernels = {
        order: kernels_of(
            an_op("attention", name="flash.attend", flops=flops, shapes=(shape,) * 4),
            tensor_cores=True,
        )
        for order, shape in shapes.items()
    }
    assert kernels["heads second"] == kernels["heads third"]


def test_what_holds_memory_back_on_the_reference_does_less_on_lighter_gpus():
    # half of 1 - 0.8 of what plain copies reach is left: 0.93 - (0.93 - 0.8) / 2 = 0.865
    light = a_calibration(reference_bytes=40, lightness_memory=0.5)
    assert one_op_s(a_copy(), light) == pytest.approx(8e9 / (1000e9 * 0.865))


def plain_s(k, *, family, architecture, calibration=None):
    """An fp32 product of one tile on a GPU that does 10 TFLOP/s of it."""
    calibration = calibration or a_calibration(
        products={"gemm_fp32": product_numbers(), "direct_backward_fp32": product_numbers()}
    )
    machine = roofline_of(a_gpu(architecture=architecture), calibration)
    product = a_product(128, 128, k, precision="fp32", family=family)
    return kernel_time_s(product, machine, calibration)


def test_before_volta_plain_products_are_not_split_but_those_of_convolutions_are():
    long = 64_000
    on_volta = plain_s(long, family="gemm", architecture="Volta")  # in up to 32 parts
    assert plain_s(long, family="gemm", architecture="Pascal") > 4 * on_volta
    parts = plain_s(long, family="direct_backward", architecture="Pascal")
    in_parts = plain_s(long, family="direct_backward", architecture="Volta")
    assert parts == pytest.approx(in_parts, rel=0.01)  # memory, not splitting, tells them apart


def test_before_volta_convolutions_reach_a_share_of_the_peak():
    numbers = {"direct_backward_fp32": product_numbers(share=0.2)}
    old = a_calibration(products=numbers, share_direct_before_volta=0.8)
    assert plain_s(
        64_000, family="direct_backward", architecture="Pascal", calibration=old
    ) == pytest.approx(
        plain_s(
            64_000,
            family="direct_backward",
            architecture="Pascal",
            calibration=a_calibration(
                products={"direct_backward_fp32": product_numbers(share=0.8)}
            ),
        )
    )


def test_a_transform_spares_arithmetic_where_multiprocessors_do_little_in_a_cycle():
    # twice as light as the reference, whose share is all: 2 of the peak, of which 2.25 are spared
    light = a_calibration(
        reference_fp32=200,
        lightness_direct=1,
        products={
            "direct_transformed_fp32": product_numbers(share=1.0),
            "direct_backward_fp32": product_numbers(share=1.0),
        },
    )
    machine = roofline_of(a_gpu(architecture="Volta"), light)
    spared, plain = (
        kernel_time_s(a_product(precision="fp32", family=family), machine, light)
        for family in ("direct_transformed", "direct_backward")
    )
    assert plain / spared == pytest.approx(2.0)


def test_a_product_and_a_pass_take_their_time():
    assert one_op_s(a_matmul()) == pytest.approx(WAVE_S)
    assert one_op_s(a_copy()) == pytest.approx(0.01)


def test_a_view_takes_no_time():
    assert one_op_s(an_op("other", launches=0)) == 0


def test_every_kernel_waits_a_little():
    calibration = a_calibration(kernel_pause_s=1e-6)
    machine = roofline_of(a_gpu(), calibration)
    assert kernel_time_s(a_pass(launches=3), machine, calibration) == pytest.approx(3e-6)
    repeated = kernel_time_s(a_product(repeats=2), machine, calibration)
    assert repeated == pytest.approx(2 * (WAVE_S + 1e-6))


def test_an_operation_is_all_of_its_kernels():
    # turns of 8 x 64 x 256, 8 x 128 x 256 and 128 x 64 x 9 elements, then the product
    op = an_op(
        "conv",
        name="aten.convolution",
        shapes=((8, 64, 16, 16), (128, 64, 3, 3), (8, 128, 16, 16)),
    )
    calibration = a_calibration(
        passes={"turn": pass_numbers(start_s=1.0)}, products={"forward_16": product_numbers()}
    )
    assert len(kernels_of(op, tensor_cores=True)) == 4
    assert one_op_s(op, calibration) == pytest.approx(3.0, rel=1e-3)
    # neither Pascal nor fp64 has tensor cores, so nothing is turned
    assert one_op_s(op, calibration, architecture="Pascal") < 0.01
    double = replace(op, precision="fp64")
    assert one_op_s(double, calibration, peaks={"fp64": 5e12, "fp32": 10e12}) < 0.01


def test_device_time_counts_each_operation_as_often_as_it_runs():
    # 2 x 65.536 us + 0.5 x 10 ms + 655.36 us in fp32
    time = device(a_matmul(count=2), a_copy(count=0.5), a_matmul(precision="fp32"))
    assert time.total_s == pytest.approx(2 * WAVE_S + 0.005 + 10 * WAVE_S)


def test_device_time_by_kind_is_the_same_time_largest_first():
    time = device(a_matmul(count=2), a_copy(), a_matmul())
    assert list(time.by_kind_s) == ["copy", "gemm"]
    assert time.by_kind_s["copy"] == pytest.approx(0.01)
    assert time.by_kind_s["gemm"] == pytest.approx(3 * WAVE_S)
    assert time.total_s == pytest.approx(sum(time.by_kind_s.values()))


def test_arithmetic_is_what_products_do_beyond_moving_their_bytes():
    # at peak 32.768 us, as long as 32.768 MB take
    inside, outside = a_matmul(moved_bytes=32e6), a_matmul(moved_bytes=33e6)
    assert device(inside, a_copy()).arithmetic_s == pytest.approx(WAVE_S)
    assert device(outside, a_copy()).arithmetic_s == 0


def test_nothing_to_do():
    time = device()
    assert (time.total_s, time.arithmetic_s, time.kernel_error) == (0, 0, 0)
    assert time.by_kind_s == {}


# --- doubt ---


def doubted(*ops):
    calibration = a_calibration(
        kernel_error_unknown=0.6, kernel_errors={"gemm_16": 0.4, "gemm_fp32": 0.1, "alike": 0.3}
    )
    return device(*ops, calibration=calibration).kernel_error


def test_doubt_of_one_family_is_its_own():
    assert doubted(a_copy()) == pytest.approx(0.3)
    assert doubted(a_matmul(), a_matmul(count=3)) == pytest.approx(0.4)


def test_doubt_of_a_kernel_nobody_measured_is_large():
    assert doubted(a_copy(name="aten.roll")) == pytest.approx(0.6)


def test_doubts_of_different_families_partly_cancel():
    # half of the time each: ((0.5 x 0.4)^2 + (0.5 x 0.3)^2)^(1/2)
    copy = a_copy(moved_bytes=0.8e12 * WAVE_S)
    assert doubted(a_matmul(), copy) == pytest.approx(0.25)


def test_doubt_is_by_the_arithmetic_a_gpu_has():
    # no bf16 units: as fp32
    assert doubted(a_matmul(precision="bf16")) == pytest.approx(0.1)


# --- properties, with the bundled numbers ---

sizes = st.integers(1, 4096)


@st.composite
def operations(draw):
    """A product, or a pass, of made-up sizes."""
    precision = draw(st.sampled_from(["fp32", "tf32", "fp16", "bf16"]))
    m, n, k = draw(sizes), draw(sizes), draw(sizes)
    moved_bytes = float(2 * (m * n + n * k + m * k))
    fields = {"precision": precision, "moved_bytes": moved_bytes}
    if draw(st.booleans()):
        shapes = ((m, k), (k, n), (m, n))
        return an_op("gemm", name="aten.mm", flops=2 * m * n * k, shapes=shapes, **fields)
    kind, name = draw(
        st.sampled_from(
            [
                ("elementwise", "aten.add"),
                ("elementwise", "aten.gelu"),
                ("softmax", "aten._softmax"),
                ("norm", "aten.native_layer_norm"),
                ("reduction", "aten.sum"),
                ("optimizer", "aten._foreach_add_"),
                ("other", "mine.layer"),
            ]
        )
    )
    return an_op(kind, name=name, shapes=((m, n), (m, n)), **fields)


PEAKS = {"fp32": 20e12, "tf32": 100e12, "fp16": 200e12, "bf16": 200e12}


@given(operations(), st.floats(1, 4))
@settings(deadline=None)
def test_a_gpu_of_more_bandwidth_and_faster_arithmetic_is_never_slower(op, factor):
    slow = a_gpu(peaks=PEAKS)
    fast = a_gpu(
        bandwidth_gb_per_s=1000 * factor,
        peaks={kind: factor * peak for kind, peak in PEAKS.items()},
        board_tdp_w=300 * factor,
    )
    calibration = bundled()
    fast_s = op_time_s(op, roofline_of(fast, calibration), calibration)
    assert fast_s <= op_time_s(op, roofline_of(slow, calibration), calibration) * (1 + 1e-9)


@given(operations(), st.sampled_from(["K80", "T4", "RTX 3090", "H100 SXM", "MI300X"]))
@settings(deadline=None)
def test_every_operation_takes_some_time_everywhere(op, name):
    assert 0 < op_time_s(op, roofline_of(gpus()[name], bundled()), bundled()) < 3600


@pytest.mark.parametrize(("kind", "name"), [("other", "mine.block"), ("conv", "mine.conv")])
def test_flops_count_whatever_the_operator_is_called(kind, name):
    op = an_op(kind, name=name, flops=2e12, moved_bytes=1e6, shapes=((64, 64), (64, 64)))
    (kernel,) = kernels_of(op, tensor_cores=True)
    assert kernel.flops == pytest.approx(2e12)


def test_attention_over_images_keeps_its_width():
    # queries of 4 heads of width 32 at 16 x 16 positions, each looking at 49 others
    query = (2, 16, 16, 4, 32)
    flops = 2 * 2 * 2 * 16 * 16 * 4 * 49 * 32
    op = an_op("attention", name="mine.attention", flops=flops, shapes=(query, query, query))
    (kernel,) = kernels_of(op, tensor_cores=True)
    assert (kernel.m, kernel.n, kernel.k) == (2 * 16 * 16 * 4, 64, 49)
    assert kernel.flops == flops


def test_a_linear_layer_is_one_product_whatever_its_batch():
    op = an_op("gemm", name="aten.linear", flops=2 * 4 * 10 * 16 * 32,
               shapes=((4, 10, 16), (32, 16), (4, 10, 32)))  # fmt: skip
    (kernel,) = kernels_of(op, tensor_cores=True)
    assert (kernel.family, kernel.batch, kernel.m, kernel.n, kernel.k) == ("gemm", 1, 40, 32, 16)
