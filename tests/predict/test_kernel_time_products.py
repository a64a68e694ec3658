from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_calibration, a_gpu, a_product, product_numbers

from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration as bundled
from outlay.predict.kernel_time import HIGHEST_SHARE, product_family, product_time_s
from outlay.predict.roofline import roofline_of

FULL_WAVE_FLOPS = 2 * 1280 * 1280 * 1000
"""Of `a_product()`: 10 x 10 tiles of 128 x 128, one for each of 100 multiprocessors."""


def timed(kernel, gpu=None, *, scales=None, **numbers):
    """Seconds of an fp16 product on a GPU of 100 TFLOP/s, of which products reach half."""
    calibration = a_calibration(products={"gemm_16": product_numbers(**numbers)}, **(scales or {}))
    return product_time_s(kernel, roofline_of(gpu or a_gpu(), calibration), calibration)


def test_a_full_wave_runs_at_the_share_of_peak():
    # 3.2768 GFLOP / (100 TFLOP/s x 0.5) = 65.536 us
    assert timed(a_product()) == pytest.approx(65.536e-6)
    assert timed(a_product(), share=0.25) == pytest.approx(131.072e-6)


def test_full_waves_add_up():
    assert timed(a_product(m=3 * 1280)) == pytest.approx(3 * 65.536e-6)
    assert timed(a_product(batch=4)) == pytest.approx(4 * 65.536e-6)
    assert timed(a_product(k=5000)) == pytest.approx(5 * 65.536e-6)


def test_one_row_more_makes_a_second_wave():
    # small tiles cost far more (narrow), and joining parts of k too (1 GB/s of bandwidth)
    slow = a_gpu(bandwidth_gb_per_s=1)
    assert timed(a_product(), slow, narrow=640) == pytest.approx(65.536e-6)
    assert timed(a_product(m=1281), slow, narrow=640) == pytest.approx(2 * 65.536e-6)


def test_smaller_tiles_waste_less_where_they_cost_no_more():
    # 41 x 40 tiles of 32 x 32 are 16.4 waves: 17 of them instead of 16
    slow = a_gpu(bandwidth_gb_per_s=1)
    assert timed(a_product(m=1281), slow) == pytest.approx(17 / 16 * 65.536e-6)


def test_a_small_product_leaves_multiprocessors_idle():
    # one tile of 32 x 32 x 320 on one of 100: 655,360 FLOPs / 0.5 TFLOP/s
    slow = a_gpu(bandwidth_gb_per_s=1)
    assert timed(a_product(m=20, n=20, k=320), slow) == pytest.approx(655_360 / 0.5e12)


def test_splitting_k_helps_few_tiles():
    # 16 tiles of 32 x 32, each 2 x 1024 x 100,000 FLOPs at 0.5 TFLOP/s
    kernel = a_product(m=128, n=128, k=100_000)
    calibration = a_calibration()
    machine = roofline_of(a_gpu(), calibration)
    unsplit = product_time_s(kernel, replace(machine, is_before_volta=True), calibration)
    assert unsplit == pytest.approx(409.6e-6)
    # in 16 parts, 256 of them in 3 waves: 3/16 of it; then 1.5 us, writing 16 and reading one more
    joining_s = 1.5e-6 + 4 * 17 * 128 * 128 / 1e12
    assert product_time_s(kernel, machine, calibration) == pytest.approx(76.8e-6 + joining_s)


def test_bound_by_memory():
    # 1 GB / (1000 GB/s x 0.5), well above 65.5 us
    assert timed(a_product(moved_bytes=1e9), memory_share=0.5) == pytest.approx(2e-3)


def test_bound_by_power():
    # 300 W at 30 GFLOP/s for each: the root of 100e12 x 30e9 x 300 = 30 TFLOP/s, below the 50
    # that the tiles reach
    scales = {"power_tensor": 3e10}
    assert timed(a_product(), scales=scales) == pytest.approx(FULL_WAVE_FLOPS / 30e12)


def test_the_way_into_a_tile_costs_steps():
    # 1000 steps and 1000 more before the first
    assert timed(a_product(), lead=1000) == pytest.approx(2 * 65.536e-6)


def test_narrow_tiles_cost_more():
    # 40 tiles of 32 x 32 in one wave; each fetches 1/32 + 1/32 - 1/64 = 3/64 more, 1 + 64 x 3/64
    slow = a_gpu(bandwidth_gb_per_s=1)
    one_tile_s = 2 * 32 * 32 * 1000 / 0.5e12
    assert timed(a_product(n=32), slow) == pytest.approx(one_tile_s)
    assert timed(a_product(n=32), slow, narrow=64) == pytest.approx(4 * one_tile_s)


def test_each_repeat_starts_and_runs():
    assert timed(a_product(repeats=3), start_s=5e-6) == pytest.approx(3 * 70.536e-6)


@pytest.mark.parametrize(
    ("arithmetic", "aligned", "turned", "recipe"),
    [
        ("fp16", 64, False, "gemm_16"),
        ("fp16", 8, False, "gemm_16"),
        ("bf16", 4, False, "gemm_16_odd"),
        ("fp16", 2, True, "gemm_16_odd"),
        ("fp16", 1, False, "gemm_16_single"),
        ("fp16", 8, True, "gemm_16"),
        ("tf32", 4, False, "gemm_tf32"),
        ("tf32", 2, False, "gemm_tf32_odd"),
        ("tf32", 1, True, "gemm_tf32_single"),
        ("tf32", 4, True, "gemm_tf32_turned"),
        ("fp32", 1, True, "gemm_fp32"),
        ("fp64", 8, False, "gemm_fp32"),
    ],
)
def test_recipe_by_arithmetic_and_how_rows_are_loaded(arithmetic, aligned, turned, recipe):
    assert product_family(a_product(aligned=aligned, turned=turned), arithmetic) == recipe


def test_an_unaligned_product_has_a_row_of_its_own_or_that_of_aligned_ones():
    kernel = a_product(aligned=1)
    plain = a_calibration()
    special = a_calibration(products={"gemm_16_single": product_numbers(share=0.1)})
    machine = roofline_of(a_gpu(), plain)
    assert product_time_s(kernel, machine, plain) == pytest.approx(65.536e-6)
    assert product_time_s(kernel, machine, special) == pytest.approx(5 * 65.536e-6)


def test_a_family_has_a_row_of_its_own_or_that_of_plain_products():
    special = a_calibration(products={"forward_16": product_numbers(share=0.25)})
    machine = roofline_of(a_gpu(), special)
    times_s = [
        product_time_s(a_product(family=family, aligned=aligned), machine, special)
        for family, aligned in [("forward", 8), ("forward", 1), ("weight", 8)]
    ]
    assert times_s == pytest.approx([131.072e-6, 131.072e-6, 65.536e-6])


def test_a_light_gpu_reaches_a_larger_share():
    # 64 TFLOP/s: 640 of 1000 FLOPs a cycle; 0.5 x 0.64^-0.5 = 0.625 of 64 = 40 TFLOP/s
    light = a_gpu(peaks={"fp32": 10e12, "fp16": 64e12})
    time_s = timed(a_product(), light, scales={"lightness_gemm": 0.5})
    assert time_s == pytest.approx(FULL_WAVE_FLOPS / 40e12)


@pytest.mark.parametrize(("share", "reached"), [(0.5, HIGHEST_SHARE), (1.02, 1.02)])
def test_no_light_gpu_goes_above_the_highest_share_but_for_one_fitted_so(share, reached):
    light = a_gpu(peaks={"fp32": 10e12, "fp16": 10e12})
    time_s = timed(a_product(), light, share=share, scales={"lightness_gemm": 1})
    assert time_s == pytest.approx(FULL_WAVE_FLOPS / (10e12 * reached))


@pytest.mark.parametrize(
    ("family", "precision", "sort"),
    [
        ("gemm", "fp16", "gemm"),
        ("batched", "fp16", "gemm"),
        ("attention", "fp16", "gemm"),
        ("forward", "fp16", "conv"),
        ("input_grouped", "fp16", "conv"),
        ("weight_colours", "fp16", "conv"),
        ("gemm", "fp32", "fp32"),
        ("direct_backward", "fp32", "direct"),
    ],
)
def test_lightness_is_by_the_sort_of_product(family, precision, sort):
    light = a_gpu(peaks={"fp32": 5e12, "fp16": 50e12})  # half of the reference
    kernel = a_product(family=family, precision=precision)
    plain, scaled = a_calibration(), a_calibration(**{f"lightness_{sort}": 0.5})
    slower = product_time_s(kernel, roofline_of(light, plain), plain)
    assert product_time_s(kernel, roofline_of(light, scaled), scaled) == pytest.approx(
        slower / 2**0.5
    )


def test_bf16_runs_in_fp32_on_a_gpu_without():
    # 10 TFLOP/s x 0.5
    kernel = a_product(precision="bf16")
    assert timed(kernel) == pytest.approx(FULL_WAVE_FLOPS / 5e12)


def test_old_gpus_lose_sight_of_rows_far_apart():
    old, new = a_gpu(architecture="Pascal"), a_gpu(architecture="Hopper")
    short, long = a_product(precision="fp32"), a_product(precision="fp32", k=1_000_000)
    assert timed(short, old) == pytest.approx(FULL_WAVE_FLOPS / 5e12)
    # rows of 4 MB, 2560 of them in flight: far more than 189 MB
    assert timed(long, new) == pytest.approx(1000 * FULL_WAVE_FLOPS / 5e12)
    assert timed(long, old) > 2 * timed(long, new)


def test_batches_of_fp32_come_in_two_tiles_before_hopper():
    # 100 products of 32 x 32: one small tile each, or a whole one of 64 x 128 before Hopper
    kernel = a_product(m=32, n=32, batch=100, precision="fp32")
    slow = {"bandwidth_gb_per_s": 1}
    small = timed(kernel, a_gpu(architecture="Hopper", **slow))
    large = timed(kernel, a_gpu(architecture="Ampere", **slow))
    assert small == pytest.approx(2 * 32 * 32 * 1000 / 0.05e12)
    assert large == pytest.approx(small * 64 * 128 / (32 * 32))


families = st.sampled_from(["gemm", "batched", "forward", "input", "weight", "attention"])


def products(sizes, depths):
    return st.builds(
        a_product,
        sizes,
        sizes,
        depths,
        family=families,
        precision=st.sampled_from(["fp32", "tf32", "fp16", "bf16"]),
        batch=st.integers(1, 64),
        moved_bytes=st.floats(0, 1e11),
        aligned=st.sampled_from([1, 2, 4, 8, 64]),
    )


any_product = products(st.integers(1, 20_000), st.integers(1, 20_000))
large_product = products(st.integers(129, 20_000), st.integers(2048, 20_000))
names = st.sampled_from(["K80", "P100 SXM2", "T4", "RTX 3090", "A100 80GB SXM", "H100 SXM"])
newer = st.sampled_from(["V100 SXM2 16GB", "T4", "RTX 3090", "A100 80GB SXM", "H100 SXM"])


def bundled_s(kernel, machine):
    return product_time_s(kernel, machine, bundled())


def scaled(rates, factor):
    return {kind: factor * rate for kind, rate in rates.items()}


def grown(kernel, what, factor):
    return replace(kernel, **{what: factor * getattr(kernel, what)})


@given(any_product, names, st.integers(1, 50), st.sampled_from(["batch", "moved_bytes"]))
@settings(deadline=None)
def test_more_products_or_bytes_never_take_less(kernel, name, factor, what):
    machine = roofline_of(gpus()[name], bundled())
    more_s = bundled_s(grown(kernel, what, factor), machine)
    assert more_s >= bundled_s(kernel, machine) * (1 - 1e-9)


@given(large_product, names, st.integers(1, 50), st.sampled_from(["m", "n", "k"]))
@settings(deadline=None)
def test_a_larger_product_never_takes_less(kernel, name, factor, what):
    # Small ones may: they are given no large tiles, nor parts of k.
    machine = roofline_of(gpus()[name], bundled())
    more_s = bundled_s(grown(kernel, what, factor), machine)
    assert more_s >= bundled_s(kernel, machine) * (1 - 1e-9)


@given(any_product, newer, st.integers(1, 4))
@settings(deadline=None)
def test_a_gpu_of_more_units_is_never_slower(kernel, name, factor):
    slow = roofline_of(gpus()[name], bundled())
    fast = replace(
        slow,
        multiprocessors=factor * slow.multiprocessors,
        bytes_per_s=factor * slow.bytes_per_s,
        peak_flops_per_s=scaled(slow.peak_flops_per_s, factor),
        sustained_flops_per_s=scaled(slow.sustained_flops_per_s, factor),
    )
    assert bundled_s(kernel, fast) <= bundled_s(kernel, slow) * (1 + 1e-9)


@given(any_product, newer, st.floats(1, 4))
@settings(deadline=None)
def test_a_gpu_of_faster_units_is_never_slower(kernel, name, factor):
    slow = roofline_of(gpus()[name], bundled())
    fast = replace(
        slow,
        bytes_per_s=factor * slow.bytes_per_s,
        peak_flops_per_s=scaled(slow.peak_flops_per_s, factor),
        sustained_flops_per_s=scaled(slow.sustained_flops_per_s, factor),
        flops_per_cycle_ratio=scaled(slow.flops_per_cycle_ratio, factor),
    )
    assert bundled_s(kernel, fast) <= bundled_s(kernel, slow) * (1 + 1e-9)
