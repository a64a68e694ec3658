"""Forecasts made halfway, against what a run came to."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.run.progress import MOST_POINTS, Spending, StepProgress
from outlay.run.rules import HourlyBilling
from outlay.uncertainty import Estimate


def ends_of(steps, step_s, pauses=(), warm_up_s=30.0, seed=0):
    """When each step ends: `pauses` are (every so many steps, seconds)."""
    dice, now_s, ends = random.Random(seed), warm_up_s, []
    for number in range(1, steps + 1):
        now_s += step_s(number) * dice.uniform(0.97, 1.03)
        ends.append(now_s)
        now_s += sum(seconds for every, seconds in pauses if number % every == 0)
    return ends, now_s


def halfway(ends, total_s, period_s, at=0.5):
    """The forecast of the end at a share of the whole time, seen every so many seconds."""
    progress, done, now_s = StepProgress(float(len(ends))), 0, 0.0
    while now_s < at * total_s:
        now_s += period_s
        while done < len(ends) and ends[done] <= now_s:
            done += 1
        progress.take(now_s, done)
    remaining = progress.remaining(now_s)
    assert remaining is not None
    return now_s, remaining, progress


RHYTHMS = {
    "plain": (2000, lambda _: 1.0, ()),
    "evaluations": (5000, lambda _: 0.5, ((500, 60.0),)),
    "evaluations and checkpoints": (6000, lambda _: 0.4, ((600, 45.0), (150, 5.0))),
    "long evaluations, one an epoch": (1000, lambda _: 2.0, ((100, 200.0),)),
    "short steps": (400_000, lambda _: 0.005, ((20_000, 20.0),)),
    "steps of a minute": (200, lambda _: 60.0, ((20, 300.0),)),
    "a warm-up of a tenth": (3000, lambda number: 2.0 if number < 300 else 1.0, ()),
    "slower from a quarter on": (4000, lambda number: 0.5 if number < 1000 else 0.8, ()),
    "two kinds of steps": (4000, lambda number: 2.0 if number % 16 == 0 else 0.25, ()),
}


@pytest.mark.parametrize("name", RHYTHMS)
def test_the_estimate_made_halfway_is_within_five_per_cent(name):
    steps, step_s, pauses = RHYTHMS[name]
    ends, total_s = ends_of(steps, step_s, pauses)
    now_s, remaining, _ = halfway(ends, total_s, 2.0)
    assert now_s + remaining.likely == pytest.approx(total_s, rel=0.05)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1500, 4000), st.floats(0.5, 5.0), st.integers(8, 25), st.floats(0.0, 0.5),
    st.integers(0, 1000),
)  # fmt: skip
def test_whatever_the_rhythm_is_halfway_is_near(steps, step_s, epochs, share, seed):
    every = max(steps // epochs, 1)
    pause_s = share * every * step_s
    ends, total_s = ends_of(steps, lambda _: step_s, ((every, pause_s),), 10.0, seed)
    now_s, remaining, _ = halfway(ends, total_s, max(2.0, step_s / 3))
    assert now_s + remaining.likely == pytest.approx(total_s, rel=0.05)


def test_the_range_narrows_and_holds_what_came():
    steps, step_s, pauses = RHYTHMS["evaluations"]
    ends, total_s = ends_of(steps, step_s, pauses)
    widths = []
    for share in (0.2, 0.5, 0.9):
        now_s, remaining, _ = halfway(ends, total_s, 2.0, share)
        widths.append(remaining.high - remaining.low)
        assert remaining.low <= total_s - now_s + 61
        assert total_s - now_s <= remaining.high + 61
    assert widths[0] > widths[1] > widths[2]


def test_what_is_kept_does_not_grow():
    progress = StepProgress(1e7)
    for number in range(1, 200_000):
        progress.take(float(number), number * 10)
    assert len(progress._points) <= MOST_POINTS + 1
    # A step takes 0.1 s: 10 in a second. 8,000,010 steps are left.
    assert progress.step_time_s() == pytest.approx(0.1)
    assert progress.remaining(199_999.0).likely == pytest.approx(800_001, rel=0.001)


def test_steps_that_cannot_be_counted_give_no_forecast():
    progress = StepProgress(None)
    for number in range(20):
        progress.take(float(number), number)
    assert progress.remaining(20.0) is None
    assert StepProgress(100.0).remaining(5.0) is None


def test_a_count_that_begins_anew_is_a_new_one():
    progress = StepProgress(1000.0)
    for number in range(1, 50):
        progress.take(float(number), number * 5)
    for number in range(50, 60):
        progress.take(float(number), number - 49)
    # From step 10 on, one a second: 990 are left.
    assert progress.remaining(59.0).likely == pytest.approx(990, rel=0.05)


def test_cost_counts_started_billing_steps():
    bill = HourlyBilling(usd_per_hour=3.0, billing_step_s=3600.0)
    spending = Spending(bill=bill, held_before_s=1800.0, started_s=100.0, budget_usd=7.0)
    # 30 min before and 31 min since: a second hour has begun.
    assert spending.cost_usd(100.0 + 1860.0) == 6.0
    # $7.00 pays two whole hours: 7200 s, 1800 of which were over at 100 s.
    assert spending.budget_ends_s() == 100.0 + 7200.0 - 1800.0
    final = spending.final_usd(1960.0, Estimate(low=0.0, likely=1.0, high=3600.0))
    assert (final.low, final.likely, final.high) == (6.0, 6.0, 9.0)


@given(st.floats(0.01, 100), st.sampled_from([1.0, 60.0, 3600.0]), st.floats(0.001, 5000))
def test_a_budget_is_used_up_and_never_passed(usd_per_hour, step_s, budget_usd):
    bill = HourlyBilling(usd_per_hour=usd_per_hour, billing_step_s=step_s)
    longest_s = bill.longest_s(budget_usd)
    step_usd = usd_per_hour / 3600 * step_s
    if budget_usd < step_usd:  # what is paid for in any case is used up
        assert longest_s == step_s
    else:
        assert bill.usd(longest_s) <= budget_usd * (1 + 1e-6)
        assert bill.usd(longest_s + step_s) > budget_usd * (1 - 1e-6)
    assert not math.isnan(longest_s)
