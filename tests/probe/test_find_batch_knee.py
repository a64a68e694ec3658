"""The knee of throughput against batch."""

from __future__ import annotations

from tests.measured import a_search, a_trial

from outlay.probe.find_batch import BatchSearch, knee_of
from outlay.probe.trial import Trial


def test_knee_is_the_smallest_batch_that_is_nearly_as_fast_as_the_best():
    # 95 % of 200 is 190: 192 at batch 32 is enough, 100 at batch 16 is not
    assert a_search().knee == 32


def test_knee_just_below_the_share_is_none():
    # 95 % of 200 is 190
    assert knee_of([a_trial(8, 189.9, 1.0), a_trial(16, 200.0, 2.0)]) == 16
    assert knee_of([a_trial(8, 190.0, 1.0), a_trial(16, 200.0, 2.0)]) == 8


def test_knee_where_more_batch_is_slower():
    assert knee_of([a_trial(8, 100.0, 1.0), a_trial(4, 99.0, 1.0), a_trial(16, 80.0, 1.0)]) == 4


def test_trials_that_did_not_run_tell_nothing_of_speed():
    failed = Trial(batch_size=1, outcome="failed", why="no data", samples_per_s=500.0)
    unmeasured = Trial(batch_size=2, outcome="fits")
    assert knee_of([failed, unmeasured]) is None
    assert knee_of([]) is None
    assert knee_of([failed, a_trial(16, 100.0, 1.0)]) == 16


def test_search_takes_as_long_as_its_trials():
    # 30 + 20 + 30 + 30
    assert a_search().elapsed_s == 110
    assert BatchSearch(trials=()).elapsed_s == 0
