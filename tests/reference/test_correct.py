"""Published training speeds on one GPU, predicted alone and carried over from measured ones.

Lambda's benchmark (github.com/lambdal/deeplearning-benchmark: ResNet-50, BERT base and large, fp16
and TF32 or fp32), as in `published_efficiency.csv`; the same steps measured on an H200 with
`tools/measure_published.py`. Others' software is of 2020 to 2023, the H200's of 2026.
"""

from __future__ import annotations

import csv
import math
import statistics
from functools import cache
from pathlib import Path

import pytest

from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration
from outlay.predict.evidence import Evidence, MeasuredStep
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.trace.store import read_profile

DATA = Path(__file__).parent / "data"
TASKS = {
    "resnet50": "resnet50",
    "bert_base_squad": "bert_base",
    "bert_large_squad": "bert_large",
}
HOST_BOUND = 0.85
"""A step whose kernels take less than this share of it waits for the host."""


def rows(name):
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


@cache
def profile(name):
    return read_profile(DATA / "published" / f"{name}.json.gz")


@cache
def published():
    """Every speed of one GPU once: the GPU, the step, its batch, its seconds, and the software."""
    speeds = {}
    for row in rows("published_efficiency.csv"):
        if row["task"] not in TASKS or row["precision"] == "fp16_pure":
            continue
        gpu = find_gpu(row["gpu"]).gpu
        plain = "tf32" if "tf32" in gpu.peak_flops_per_s else "fp32"
        precision = "fp16_amp" if row["precision"] == "fp16" else plain
        size = round(float(row["batch_per_gpu_1"]))
        step_s = size / float(row["throughput_1"])
        step = (gpu.name, f"{TASKS[row['task']]}_{precision}", size, round(step_s, 6), row["torch"])
        speeds[step] = (gpu, step[1], size, step_s, row["torch"])
    return list(speeds.values())


@cache
def on_the_h200():
    steps = {}
    for row in rows("h200_published_2026-11-15.csv"):
        step_s, busy_s = float(row["step_ms"]) / 1e3, float(row["busy_ms"]) / 1e3
        measured = MeasuredStep(
            gpu=gpus()["H200"],
            batch_size=int(row["batch_size"]),
            step_s=step_s,
            busy_s=busy_s,
            holder="host" if busy_s < HOST_BOUND * step_s else "gpu",
        )
        steps.setdefault(row["workload"], {})[measured.batch_size] = measured
    return {name: tuple(sizes.values()) for name, sizes in steps.items()}


def predicted(gpu, name, size, measured):
    step = predict_step(
        profile(name),
        Placement(gpu=gpu),
        size,
        calibration(),
        largest=1,
        conditions=Conditions(evidence=Evidence(measured=tuple(measured))),
    )
    return step.step_time_s


def error(pairs):
    """The mean of errors, over 1 like under 1."""
    return statistics.fmean(abs(math.log(time.likely / step_s)) for time, step_s in pairs)


def inside(pairs):
    return statistics.fmean(time.low <= step_s <= time.high for time, step_s in pairs)


def width(pairs):
    return statistics.median(time.high / time.low for time, _ in pairs)


@pytest.fixture(scope="module")
def scores():
    """Predictions alone, carried from the H200, and from other published GPUs, one at a time."""
    alone, transferred, between, between_alone = [], [], [], []
    by_architectures = {}
    for gpu, name, size, step_s, software in published():
        time = predicted(gpu, name, size, ())
        alone.append((time, step_s))
        transferred.append((predicted(gpu, name, size, on_the_h200()[name]), step_s))
        for other, other_name, other_size, other_s, other_software in published():
            if (other_name, other_software) == (name, software) and other is not gpu:
                measured = MeasuredStep(
                    gpu=other, batch_size=other_size, step_s=other_s, holder="gpu"
                )
                between.append((predicted(gpu, name, size, (measured,)), step_s))
                between_alone.append((time, step_s))
                names = f"{other.architecture} to {gpu.architecture}"
                errors = abs(time.likely / step_s - 1), abs(between[-1][0].likely / step_s - 1)
                by_architectures.setdefault(names, []).append(errors)
    return alone, transferred, between, between_alone, by_architectures


def test_there_are_enough_of_them(scores):
    assert len(scores[0]) > 80
    assert len({gpu.name for gpu, *_ in published()}) >= 14


def test_from_an_h200_they_are_closer_than_alone(scores):
    alone, transferred, *_ = scores
    assert error(transferred) < error(alone)
    assert width(transferred) < width(alone)
    # meant to hold eight of ten
    assert inside(transferred) > 0.7


def test_between_gpus_with_the_same_software_they_are_closer_still(scores):
    _, _, between, alone, _ = scores
    assert len(between) > 200
    assert error(between) < 0.8 * error(alone)
    assert width(between) < width(alone)
    assert inside(between) > 0.7


def test_for_no_pair_of_architectures_it_is_worse_than_alone(scores):
    enough = {names: errors for names, errors in scores[-1].items() if len(errors) >= 12}
    assert len(enough) >= 8
    for names, errors in enough.items():
        alone, carried = (statistics.fmean(column) for column in zip(*errors, strict=True))
        assert carried <= alone, names
