"""The input pipeline against a DataLoader on the host of an H200: `tools/measure_feed.py`."""

from __future__ import annotations

import math
import statistics

import pytest
from tests.tables import REFERENCE, rows_in

from outlay.offers.instances import feed_rates
from outlay.predict.input_pipeline import thread_samples_per_s
from outlay.workload.workload import Feed

ROWS = rows_in(REFERENCE / "h200_feed_2026-11-15.csv")
LOADED = [row for row in ROWS if row["what"] == "loader alone"]
TRAINED = [row for row in ROWS if row["what"] == "training"]


def each(row):
    return float(row["samples_per_s"]) / int(row["workers"])


def predicted(row):
    return thread_samples_per_s(Feed(kind=row["kind"]), feed_rates())


@pytest.mark.parametrize("row", LOADED, ids=lambda row: f"{row['kind']}, {row['workers']}")
def test_a_worker_delivers_within_the_range(row):
    assert predicted(row).low <= each(row) <= predicted(row).high


def test_a_worker_among_many_delivers_what_is_predicted():
    # What counts is a machine whose threads are all busy: 8 and 15 workers of 16 threads.
    errors = [
        abs(math.log(predicted(row).likely / each(row)))
        for row in LOADED
        if int(row["workers"]) >= 8
    ]
    assert statistics.mean(errors) < 0.20
    assert max(errors) < 0.35


def test_training_is_as_fast_as_its_slowest_stage():
    (alone,) = (float(row["samples_per_s"]) for row in ROWS if row["what"] == "gpu alone")
    errors = []
    for row in TRAINED:
        (loaded,) = (
            float(one["samples_per_s"])
            for one in LOADED
            if (one["kind"], one["workers"]) == (row["kind"], row["workers"])
        )
        errors.append(abs(math.log(float(row["samples_per_s"]) / min(loaded, alone))))
    assert statistics.mean(errors) < 0.05
    assert max(errors) < 0.10
