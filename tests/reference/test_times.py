"""Times of kernels and steps against an H200: operations measured one by one, and whole steps.

The operations are recorded with their tensors (`data/*operations*.json.gz`), so that no torch is
needed; what a trace without a GPU makes of the same steps is in `tools/score_steps.py`.
"""

from __future__ import annotations

import csv
import statistics
import sys
from functools import cache
from pathlib import Path

import pytest

from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration
from outlay.predict.kernel_time import op_time_s
from outlay.predict.roofline import roofline_of

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

from measured import operations_of, steps_in

DATA = Path(__file__).parent / "data"
FITTED = DATA / "h200_operations_2026-11-15.json.gz"
HELD_OUT = DATA / "h200_held_out_operations_2026-11-15.json.gz"
HOST_BOUND = 0.85
"""A step whose kernels take less than this share of its time waits for the host."""
LISTS_CUT = {"held_out:bilstm_classifier_bf16_amp"}
"""Its recurrent layers were recorded without their tensors: there are too many of them."""


@cache
def machine():
    return roofline_of(gpus()["H200"], calibration())


@cache
def predicted_over_measured(path: Path) -> dict[tuple[str, int], float]:
    """Of each step bound by the GPU: the sum over its operations, over its wall time."""
    found = {}
    for step in steps_in(path):
        if step["busy_ms"] < HOST_BOUND * step["step_ms"] or step["workload"] in LISTS_CUT:
            continue
        operations = operations_of(step)
        total_s = sum(one.count * op_time_s(one.op, machine(), calibration()) for one in operations)
        found[step["workload"], step["batch_size"]] = total_s * 1e3 / step["step_ms"]
    return found


def test_steps_of_the_calibration_rows():
    with (DATA / "h200_calibration_2026-11.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["host_bound"] == "0"]
    ratios = predicted_over_measured(FITTED)
    found = [(row["workload"], int(row["batch"])) for row in rows]
    errors = [abs(ratios[one] - 1) for one in found if one in ratios]
    assert len(errors) >= 17
    assert statistics.fmean(errors) < 0.10
    assert max(errors) < 0.25


def test_steps_that_no_fit_has_seen():
    errors = [abs(ratio - 1) for ratio in predicted_over_measured(HELD_OUT).values()]
    assert len(errors) >= 35
    assert statistics.fmean(errors) < 0.10
    assert statistics.median(errors) < 0.08


@pytest.mark.parametrize(
    ("names", "precision", "bar"),
    [
        (("aten.mm", "aten.addmm"), "bf16", 0.10),
        (("aten.mm", "aten.addmm"), "fp32", 0.15),
        (("aten.add", "aten.mul", "aten.relu"), "bf16", 0.20),
        (("aten.native_batch_norm_backward",), "bf16", 0.20),
        (("aten.convolution_backward",), "bf16", 0.30),
        (("aten.convolution",), "tf32", 0.30),
    ],
)
def test_operations_of_steps_that_no_fit_has_seen(names, precision, bar):
    # Weighted by time: what lasts two microseconds decides nothing.
    off_s = total_s = 0.0
    for step in steps_in(HELD_OUT):
        for one in operations_of(step):
            if one.op.name in names and one.op.precision == precision:
                predicted_s = op_time_s(one.op, machine(), calibration())
                off_s += one.count * abs(predicted_s - one.time_s)
                total_s += one.count * one.time_s
    assert total_s > 0.001
    assert off_s / total_s < bar
