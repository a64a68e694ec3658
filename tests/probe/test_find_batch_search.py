"""Which batch size is tried next, on made-up memory and on what an H200 took."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from tests.conftest import ROOT

from outlay.probe.find_batch import (
    MOST_TRIALS,
    USUAL_TRIALS,
    SearchBounds,
    bracket,
    is_known,
    memory_line,
    next_size,
)
from outlay.probe.trial import Trial
from outlay.units import MIB

TRIALS = ROOT / "tests" / "reference" / "data" / "h200_trials_2026-11-15.csv"
"""Largest batches under a cap, found by bisection with `torch.cuda.set_per_process_memory_fraction`
in fresh processes, and what trials of the same steps took (`outlay probe --find-batch`); one NVIDIA
H200, torch 2.11, driver 580.159."""

Take = Callable[[int], float]
"""What tensors take at a batch size."""


def hunted(
    largest: int, take: Take, bounds: SearchBounds, first: int = 8
) -> tuple[list[Trial], tuple[int, int]]:
    """The trials of a search in which sizes up to `largest` fit."""
    trials: list[Trial] = []
    while (size := next_size(trials, bounds, first)) is not None:
        fits = size <= largest
        trials.append(
            Trial(
                batch_size=size,
                outcome="fits" if fits else "out of memory",
                peak_allocated_bytes=take(size) if fits else None,
            )
        )
    return trials, bracket(trials)


def rows() -> list[tuple[str, list[dict[str, str]]]]:
    with TRIALS.open(newline="") as file:
        table = list(csv.DictReader(file))
    return [
        (f"{name} {cap}", list(group))
        for (name, cap), group in groupby(table, key=lambda row: (row["workload"], row["cap_mib"]))
    ]


@pytest.mark.parametrize(("name", "group"), rows(), ids=[name for name, _ in rows()])
def test_on_what_an_h200_took(name: str, group: list[dict[str, str]]) -> None:
    sizes = [int(row["batch_size"]) for row in group]
    curve = [float(row["allocated_mib"]) * MIB for row in group]

    def take(size: int) -> float:
        return float(np.interp(size, sizes, curve))

    largest = int(group[0]["max_batch"])
    limit_bytes = float(group[0]["cap_mib"]) * MIB
    bounds = SearchBounds(limit_bytes=limit_bytes, fixed_bytes=None)
    trials, (low, high) = hunted(largest, take, bounds)
    slope = (curve[-1] - curve[0]) / (sizes[-1] - sizes[0])
    by_line = sizes[0] + (limit_bytes - curve[0]) / slope
    # What the allocator wastes beyond a twentieth shows only where it fails.
    is_smooth = largest >= 0.95 * by_line - 1
    assert len(trials) <= (USUAL_TRIALS if is_smooth else USUAL_TRIALS + 1)
    assert low <= largest < high
    assert high - low <= max(0.02 * low, 1)


def test_a_straight_line_is_found_in_four_trials() -> None:
    # 2 GB and 10 MB for each sample under 10 GB: (10 - 2) / 0.01 = 800 fit. The first trial, which
    # knows the fixed part, reaches for 0.6 of 0.985 of the limit; the second line is exact.
    def take(size: int) -> float:
        return 2e9 + 10e6 * size

    trials, (low, high) = hunted(800, take, SearchBounds(limit_bytes=10e9, fixed_bytes=2e9))
    assert [trial.batch_size for trial in trials][:3] == [8, 471, 785]
    assert low <= 800 < high
    assert high - low <= 0.02 * low
    assert len(trials) <= 5


@pytest.mark.parametrize("fixed", [0.02, 0.3])
@pytest.mark.parametrize("sample", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("waste", [0.0, 0.01, 0.02, 0.04, 0.08, 0.12])
def test_an_allocator_that_wastes_memory(waste: float, sample: float, fixed: float) -> None:
    """What it cannot use shows only where it fails; a search that creeps down would end far off."""
    largest = int((1 - waste - fixed) / sample)
    bounds = SearchBounds(limit_bytes=1.0, fixed_bytes=fixed)
    trials, (low, high) = hunted(largest, lambda size: fixed + sample * size, bounds)
    assert low <= largest < high
    assert high - low <= max(0.02 * low, 1)
    assert len(trials) <= (USUAL_TRIALS if waste <= 0.04 else MOST_TRIALS - 3)


@pytest.mark.parametrize("largest", [1, 2, 9, 54, 99, 117, 118, 123, 514, 1021])
@pytest.mark.parametrize("waste", [0.0, 0.06, 0.2])
@pytest.mark.parametrize("bend", [-0.3, 0.0, 0.3])
def test_a_search_ends_within_2_percent_or_says_that_it_gave_up(
    largest: int, waste: float, bend: float
) -> None:
    """Memory that bends up or down with the batch, under an allocator that wastes some of it."""

    def take(size: int) -> float:
        return 1e9 + 9e9 * (size / largest) * (1 + bend * (size / largest - 1))

    bounds = SearchBounds(limit_bytes=10e9 / (1 - waste), fixed_bytes=1e9)
    trials, (low, high) = hunted(largest, take, bounds)
    assert is_known(trials, bounds)
    assert low <= largest < high
    assert high - low <= max(0.02 * low, 1)
    few = replace(bounds, trials=3)
    trials, (low, high) = hunted(largest, take, few)
    assert len(trials) <= 3
    near_enough = low > 0 and high > 0 and high - low <= max(0.02 * low, 1)
    assert is_known(trials, few) == (near_enough or (low, high) == (0, 1))


def test_a_traced_prediction_is_tried_first() -> None:
    def take(size: int) -> float:
        return 2e9 + 10e6 * size

    bounds = SearchBounds(limit_bytes=10e9, fixed_bytes=2e9, predicted=792)
    trials, (low, high) = hunted(800, take, bounds)
    assert trials[0].batch_size == 792
    assert low <= 800 < high <= low + 0.02 * low
    assert len(trials) <= 3


def test_without_any_memory_to_see_sizes_are_doubled_then_halved() -> None:
    trials, (low, high) = hunted(100, lambda _: 0.0, SearchBounds())
    assert [trial.batch_size for trial in trials][:5] == [8, 16, 32, 64, 128]
    assert low <= 100 < high
    assert high - low <= 2


def test_one_sample_that_does_not_fit_ends_it() -> None:
    trials, (low, high) = hunted(0, lambda _: 0.0, SearchBounds(limit_bytes=1e9), first=1)
    assert [trial.batch_size for trial in trials] == [1]
    assert (low, high) == (0, 1)


def test_a_largest_batch_is_not_passed() -> None:
    trials, (low, high) = hunted(10**6, lambda size: 1e6 * size, SearchBounds(largest=64))
    assert max(trial.batch_size for trial in trials) == 64
    assert (low, high) == (64, 0)


def test_memory_line_through_two_trials() -> None:
    # (12 - 4) GB / (40 - 8) = 0.25 GB a sample; 12 - 40 * 0.25 = 2 GB at none.
    assert memory_line([(8, 4e9), (40, 12e9)], None) == (2e9, 0.25e9, True)


def test_memory_line_through_one_trial_and_what_is_fixed() -> None:
    # (5 - 1) GB / 8 = 0.5 GB a sample.
    assert memory_line([(8, 5e9)], 1e9) == (1e9, 0.5e9, False)
