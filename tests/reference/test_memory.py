"""Predicted memory against what steps really took on an H200 (data/README.md says how)."""

from __future__ import annotations

import csv
import statistics
from functools import cache
from pathlib import Path

import pytest
from tests.trace.together import Together

from outlay.hardware.gpu_names import find_gpu
from outlay.plan.placement import calibration
from outlay.predict.memory import largest_batch, memory_budget, memory_need
from outlay.trace.allocator import peak_use
from outlay.trace.store import read_profile
from outlay.trace.target import UNCHANGED
from outlay.units import MIB

HERE = Path(__file__).parent
H200 = find_gpu("H200").gpu

STEPS = (
    "vision:resnet18_bf16_amp_nhwc",
    "vision:mobilenet_v3_large_bf16_amp",
    "vision:convnext_tiny_bf16_amp",
    "vision:vgg16_bf16_amp",
    "language:gpt2_small_tf32",
    "language:gpt2_small_checkpointed_bf16_amp",
    "language:bert_base_tf32",
    "plain:transformer_translation_fp16_amp",
    "plain:unet_2d_fp16_amp",
    "plain:gan_gradient_penalty_tf32",
    "plain:decoder_grouped_bf16",
)
"""A few of each kind; `tools/check_memory.py` takes them all, and traces each at four batch sizes.
Here they were traced before (`data/memory`), and what was kept is held against a new trace at one
size: whole traces of all of them take two minutes."""
KEPT = HERE / "data" / "memory"
BATCH_SIZE = 8


def rows(name):
    with (HERE / "data" / name).open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["workload"] in STEPS]


@cache
def traced(workload):
    return read_profile(KEPT / f"{workload.split(':')[1]}.json.gz")


@cache
def together(module):
    found = [step.split(":")[1] for step in STEPS if step.startswith(f"{module}:")]
    wanted = [(function, (BATCH_SIZE,), UNCHANGED) for function in found]
    return Together(HERE / "workloads" / f"{module}.py", wanted)


@pytest.mark.torch
@pytest.mark.frameworks
@pytest.mark.parametrize("workload", STEPS)
def test_kept_traces_are_those_of_today(workload):
    """If this fails, run `tools/check_memory.py --keep tests/reference H200`, and look."""
    module, function = workload.split(":")
    now, then = together(module).profile(function, (BATCH_SIZE,)), traced(workload)
    assert now.parameters == then.parameters
    # A polynomial in the batch size is kept in whole bytes: blocks of 512 bytes may differ.
    peaks = now.memory_at(BATCH_SIZE).peak_bytes, then.memory_at(BATCH_SIZE).peak_bytes
    assert peaks[0] == pytest.approx(peaks[1], rel=1e-4)
    uses = now.allocator_use[BATCH_SIZE], peak_use(then.history, BATCH_SIZE)
    assert uses[0].allocated_bytes == pytest.approx(uses[1].allocated_bytes, rel=1e-3)
    assert uses[0].reserved_bytes == pytest.approx(uses[1].reserved_bytes, rel=0.01)


def errors(column):
    found = []
    for row in rows("h200_memory_2026-11-15.csv"):
        room = memory_budget(H200, cap_bytes=1e15)
        profile, size = traced(row["workload"]), int(row["batch_size"])
        need = memory_need(profile, size, room, calibration())
        predicted = getattr(need, f"{column}_bytes").likely / MIB
        found.append(predicted / float(row[f"peak_{column}_mib"]) - 1)
    return found


@pytest.mark.parametrize(
    ("column", "mean_bar", "worst_bar"), [("allocated", 0.02, 0.06), ("reserved", 0.05, 0.15)]
)
def test_peak_memory(column, mean_bar, worst_bar):
    found = errors(column)
    assert len(found) >= 15
    assert statistics.fmean(map(abs, found)) <= mean_bar
    assert max(map(abs, found)) <= worst_bar


LARGEST = [
    *rows("h200_largest_batches_2026-11-15.csv"),
    *rows("h200_largest_batches_expandable_2026-11-15.csv"),
]


@cache
def largest_under_a_cap(place):
    row = LARGEST[place]
    room = memory_budget(
        H200,
        cap_bytes=float(row["cap_mib"]) * MIB,
        expandable_segments="expandable_segments" in row,
    )
    return largest_batch(traced(row["workload"]), room, calibration())


@pytest.mark.parametrize("place", range(len(LARGEST)), ids=lambda place: LARGEST[place]["workload"])
def test_largest_batch_under_a_cap(place):
    row, found = LARGEST[place], largest_under_a_cap(place)
    assert found < int(row["fails_at"])
    assert found >= min(int(row["max_batch"]) * 0.95, int(row["max_batch"]) - 1)


def test_largest_batches_are_little_below_what_runs():
    found = [
        largest_under_a_cap(place) / int(row["max_batch"]) for place, row in enumerate(LARGEST)
    ]
    assert len(found) >= 15
    assert statistics.fmean(found) >= 0.97
