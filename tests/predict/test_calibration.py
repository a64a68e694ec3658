from __future__ import annotations

from itertools import product

import pytest
from tests.builders import a_calibration, pass_numbers, product_numbers, span
from tests.rows import for_every

from outlay.facts import rows_of
from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration as bundled
from outlay.predict.calibration import calibration_of
from outlay.predict.step import Placement, predict_step
from outlay.trace.store import bundled_profiles, find_profile


def a_row(name, low, likely, high):
    numbers = {"low": str(low), "likely": str(likely), "high": str(high)}
    return {"name": name, "source": "a bench", "as_of": "2026-01-01"} | numbers


def test_rows_become_estimates_with_their_sources():
    calibration = calibration_of([a_row("kernel_s", 1e-6, 2e-6, 5e-6), a_row("x", 0, 0, 0)])
    assert calibration.estimate("kernel_s") == span(1e-6, 2e-6, 5e-6)
    assert calibration.number("kernel_s") == 2e-6
    assert calibration.sources["kernel_s"] == "a bench, 2026-01-01"


def test_a_row_out_of_order_is_refused():
    with pytest.raises(ValueError, match="not ordered"):
        calibration_of([a_row("kernel_s", 3, 2, 1)])


PASS = {"start_s": "1e-6", "share": "0.9", "cycles": "2", "unit_cycles": "30", "serial_cycles": "4"}
PRODUCT = {"start_s": "2e-6", "share": "0.8", "narrow": "5", "lead": "60", "memory_share": "0.7"}


def test_rows_of_kernels_become_their_numbers_and_errors():
    calibration = calibration_of(
        [],
        [{"family": "alike", "mean_error": "0.1"} | PASS],
        [{"family": "gemm_16", "mean_error": "0.2"} | PRODUCT],
    )
    assert calibration.of_pass("alike") == pass_numbers(
        start_s=1e-6, share=0.9, cycles=2, unit_cycles=30, serial_cycles=4
    )
    assert calibration.of_product("gemm_16") == product_numbers(
        start_s=2e-6, share=0.8, narrow=5, lead=60, memory_share=0.7
    )
    assert calibration.kernel_errors == {"alike": 0.1, "gemm_16": 0.2}


def test_the_first_row_there_is_goes_before_the_others():
    calibration = a_calibration(error_on_Ada=0.1)
    assert calibration.first("error_on_Ada", "error_on_others") == 0.1
    assert calibration.first("error_on_Volta", "error_on_others") == 0.4


def test_no_row_of_any_name():
    with pytest.raises(LookupError, match="left or right"):
        a_calibration().first("left", "right")


def test_a_family_nobody_measured_is_like_the_others():
    special = pass_numbers(share=0.1)
    calibration = a_calibration(passes={"scan": special})
    assert calibration.of_pass("scan") is special
    assert calibration.of_pass("sort") is calibration.passes["other"]


def test_the_first_recipe_there_is_goes_before_the_others():
    special = product_numbers(share=0.1)
    calibration = a_calibration(products={"forward_16": special})
    assert calibration.of_product("forward_16", "gemm_16") is special
    assert calibration.of_product("input_16", "gemm_16") is calibration.products["gemm_16"]
    with pytest.raises(LookupError, match="input_16 or weight_16"):
        calibration.of_product("input_16", "weight_16")


@pytest.mark.parametrize("table", ["kernel_passes.csv", "kernel_products.csv"])
def test_every_bundled_kernel_was_measured_and_is_plausible(table):
    rows = rows_of(table)
    assert len({row["family"] for row in rows}) == len(rows)
    for row in rows:
        assert row["source"], row["family"]
        assert int(row["operations"]) > 0, row["family"]
        # a kernel starts within 100 us; caches give some more than the bandwidth
        assert 0 <= float(row["start_s"]) < 1e-4, row["family"]
        assert 0 < float(row["share"]) <= 2, row["family"]


PRECISIONS = [None, "fp32", "tf32", "fp16", "bf16"]
GPUS = ["K80", "P100 SXM2", "V100 SXM2 16GB", "T4", "RTX 4090", "H100 SXM", "B200", "MI300X"]


@for_every("gpu, profile", product(GPUS, bundled_profiles()))
def test_the_bundled_rows_are_all_that_a_bundled_profile_needs(profile, gpu):
    traced = find_profile(profile)
    for precision in PRECISIONS:
        placement = Placement(gpu=gpus()[gpu], gpus=8)
        step = predict_step(traced, placement, 1, bundled(), precision)
        assert 0 < step.step_time_s.low <= step.step_time_s.high < 3600
