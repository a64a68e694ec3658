from __future__ import annotations

import pytest
from tests.builders import a_calibration, span

from outlay.facts import rows_of
from outlay.hardware import gpus
from outlay.predict.calibration import calibration_of
from outlay.predict.step import Placement, predict_step
from outlay.trace.bundled import bundled_profiles, find_profile


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


def test_the_first_row_there_is_goes_before_the_others():
    calibration = a_calibration(gemm_fp16_fraction=0.7)
    assert calibration.first("gemm_fp16_fraction", "gemm_fraction") == 0.7
    assert calibration.first("gemm_bf16_fraction", "gemm_fraction") == 0.5


def test_no_row_of_any_name():
    with pytest.raises(LookupError, match="left or right"):
        a_calibration().first("left", "right")


PRECISIONS = [None, "fp32", "tf32", "fp16", "bf16"]
GPUS = ["K80", "P100 SXM2", "V100 SXM2 16GB", "T4", "RTX 4090", "H100 SXM", "B200", "MI300X"]


@pytest.mark.parametrize("profile", bundled_profiles())
@pytest.mark.parametrize("gpu", GPUS)
def test_the_bundled_rows_are_all_that_a_bundled_profile_needs(profile, gpu):
    calibration = calibration_of(rows_of("calibration.csv"))
    traced = find_profile(profile)
    for precision in PRECISIONS:
        placement = Placement(gpu=gpus()[gpu], gpus=8)
        step = predict_step(traced, placement, 1, calibration, precision)
        assert 0 < step.step_time_s.low <= step.step_time_s.high < 3600
