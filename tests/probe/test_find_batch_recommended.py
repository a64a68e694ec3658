"""Which batch size is recommended."""

from __future__ import annotations

import pytest

from outlay.probe.find_batch import SearchBounds, recommended_batch
from outlay.probe.trial import Trial


def fits(size: int, taken_bytes: float | None = None) -> Trial:
    return Trial(batch_size=size, outcome="fits", peak_allocated_bytes=taken_bytes)


def runs_out(size: int) -> Trial:
    return Trial(batch_size=size, outcome="out of memory")


@pytest.mark.parametrize(
    ("sizes", "size"),
    [
        ((64, 96, 100), 96),  # 3 % below 100 is 97, and 96 is near that
        ((64, 100), 97),  # 64 is not
        ((8, 10), 9),  # 10 * 0.97 is 9, an eighth more than 8
        ((1,), 1),
    ],
)
def test_a_size_that_ran_is_preferred_where_it_is_near(sizes: tuple[int, ...], size: int) -> None:
    trials = [*map(fits, sizes), runs_out(sizes[-1] + 2)]
    assert recommended_batch(trials, sizes[-1], sizes[-1] + 2, SearchBounds()) == size


def test_by_the_line_of_memory() -> None:
    # 10 bytes for each sample and 100 beside: 970 of 1000 bytes are 87 samples.
    known = SearchBounds(limit_bytes=1000.0)
    trials = [fits(20, 300.0), fits(89, 990.0), runs_out(91)]
    assert recommended_batch(trials, 89, 91, known) == 87
    assert recommended_batch([*trials, fits(87, 970.0)], 89, 91, known) == 87
    assert recommended_batch([*trials, fits(85, 950.0)], 89, 91, known) == 85


def test_what_was_tried_and_failed_is_not_recommended() -> None:
    odd = Trial(batch_size=97, outcome="failed")
    assert (
        recommended_batch([fits(64), fits(100), runs_out(102), odd], 100, 102, SearchBounds()) == 64
    )
    assert recommended_batch([fits(100), runs_out(102), odd], 100, 102, SearchBounds()) == 100


def test_all_where_none_ran_out() -> None:
    assert recommended_batch([fits(8), fits(16)], 16, 0, SearchBounds()) == 16
    assert recommended_batch([], 0, 0, SearchBounds()) is None
