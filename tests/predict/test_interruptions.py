"""Closed forms against interruptions simulated one by one."""

from __future__ import annotations

import math
import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.predict.interruptions import (
    expected_run_time_s,
    interruption_overhead,
    is_hopeless,
    optimal_interval_s,
)
from outlay.uncertainty import LIKELY, Draws, range_of

RUNS = 3000


def one_run(work_s, stretch_s, restart_s, rate_per_s, chance):
    """Time a machine is held until all is done, and how often it was taken away."""
    run_time_s, done, count = 0.0, 0.0, 0
    while done < work_s:
        stretch = left = min(stretch_s, work_s - done)
        while (until_taken := chance.expovariate(rate_per_s)) < left:
            run_time_s += until_taken
            count += 1
            left = restart_s + stretch  # what is lost is done again, after another set-up
        run_time_s += left
        done += stretch
    return run_time_s, count


@cache
def simulated(work_s, stretch_s, restart_s, between_s):
    chance = random.Random(7)
    runs = [one_run(work_s, stretch_s, restart_s, 1 / between_s, chance) for _ in range(RUNS)]
    run_time_s, counts = np.array(runs).T
    return run_time_s, counts


# work, stretch, restart, mean time between interruptions; all in seconds
SELDOM = (172_800.0, 3_600.0, 1_200.0, 86_400.0)
NOW_AND_THEN = (100_000.0, 1_000.0, 350.0, 10_000.0)
SHORT = (10_000.0, 1_000.0, 350.0, 10_000.0)
NOT_IN_WHOLE_STRETCHES = (9_400.0, 4_000.0, 300.0, 20_000.0)
LONG_RESTARTS = (24_000.0, 600.0, 900.0, 3_600.0)
OFTEN = (144_000.0, 7_200.0, 600.0, 7_200.0)
HARDLY_GETTING_THROUGH = (20_000.0, 1_000.0, 2_000.0, 1_000.0)

WHOLE = (SELDOM, NOW_AND_THEN, SHORT, LONG_RESTARTS, OFTEN, HARDLY_GETTING_THROUGH)


@pytest.mark.parametrize("case", WHOLE)
def test_expected_run_time_is_the_mean_of_simulated_runs(case):
    work_s, stretch_s, restart_s, between_s = case
    run_time_s, counts = simulated(*case)
    expected_s = expected_run_time_s(work_s, stretch_s, restart_s, 1 / between_s)
    assert abs(run_time_s.mean() - expected_s) < 3 * run_time_s.std() / math.sqrt(RUNS)
    # As many interruptions as there are in the time it is held.
    expected = expected_s / between_s
    assert abs(counts.mean() - expected) < 3 * counts.std() / math.sqrt(RUNS)


def test_expected_run_time_of_work_that_is_not_in_whole_stretches():
    # The closed form spreads 9400 s over 2.35 equal stretches; the last one is in truth shorter.
    work_s, stretch_s, restart_s, between_s = NOT_IN_WHOLE_STRETCHES
    run_time_s, _ = simulated(*NOT_IN_WHOLE_STRETCHES)
    expected_s = expected_run_time_s(work_s, stretch_s, restart_s, 1 / between_s)
    assert run_time_s.mean() < expected_s == pytest.approx(run_time_s.mean(), rel=0.02)


@pytest.mark.parametrize("case", WHOLE)
def test_interrupted_adds_up_to_the_time_held(case):
    work_s, stretch_s, restart_s, between_s = case
    overhead = interruption_overhead(work_s, stretch_s, restart_s, 1 / between_s, LIKELY)
    expected_s = expected_run_time_s(work_s, stretch_s, restart_s, 1 / between_s)
    assert work_s + overhead.lost_s + overhead.restart_s == pytest.approx(expected_s)
    assert overhead.count == pytest.approx(expected_s / between_s)
    # An interruption may cut a restart short, so that it is no longer than a whole one.
    assert 0 < overhead.restart_s <= overhead.count * restart_s * (1 + 1e-9)
    assert overhead.lost_s > 0


@pytest.mark.parametrize("case", [SELDOM, NOW_AND_THEN, SHORT, LONG_RESTARTS, OFTEN])
def test_the_drawn_range_is_that_of_simulated_runs(case):
    work_s, stretch_s, restart_s, between_s = case
    run_time_s, _ = simulated(*case)
    drawn = interruption_overhead(work_s, stretch_s, restart_s, 1 / between_s, Draws())
    total_s = work_s + drawn.lost_s + drawn.restart_s
    expected_s = expected_run_time_s(work_s, stretch_s, restart_s, 1 / between_s)
    assert total_s.mean() == pytest.approx(expected_s, rel=1e-3)
    overhead = range_of(expected_s, total_s)
    low, high = np.percentile(run_time_s, [10, 90])
    assert overhead.low == pytest.approx(low, rel=0.04)
    assert overhead.high == pytest.approx(high, rel=0.04)


def test_a_stretch_is_no_longer_than_the_work():
    # One stretch of 500 s: (e^0.05 - 1) x e^0.035 x 10,000 s = 0.0512711 x 1.0356197 x 10,000 s
    overhead = interruption_overhead(500.0, 1_000.0, 350.0, 1e-4, LIKELY)
    assert 500 + overhead.lost_s + overhead.restart_s == pytest.approx(530.974, abs=0.001)


def test_about_half_a_stretch_is_lost_each_time():
    overhead = interruption_overhead(1e6, 1_000.0, 0.0, 1e-6, LIKELY)
    assert overhead.lost_s / overhead.count == pytest.approx(500, rel=1e-3)


@pytest.mark.parametrize("rate_per_s", [1e-9, 1e-12])
def test_without_interruptions_nothing_is_lost(rate_per_s):
    overhead = interruption_overhead(1e6, 1_000.0, 350.0, rate_per_s, LIKELY)
    # one in 1e9 s or fewer, of 850 s each
    assert overhead.lost_s + overhead.restart_s == pytest.approx(1e6 * rate_per_s * 850, rel=0.01)
    assert expected_run_time_s(1e6, 1_000.0, 350.0, rate_per_s) == pytest.approx(1e6, rel=1e-5)


@given(st.floats(1, 1e3), st.floats(0, 1e3), st.floats(1e3, 1e7), st.floats(1, 10))
@settings(deadline=None)
def test_expected_run_time_grows_with_everything(stretch_s, restart_s, between_s, factor):
    least_s = expected_run_time_s(1e6, stretch_s, restart_s, 1 / between_s)
    assert least_s >= 1e6 * (1 - 1e-9)
    assert expected_run_time_s(1e6 * factor, stretch_s, restart_s, 1 / between_s) >= least_s * (
        1 - 1e-9
    )
    assert expected_run_time_s(1e6, stretch_s * factor, restart_s, 1 / between_s) >= least_s * (
        1 - 1e-9
    )
    assert expected_run_time_s(1e6, stretch_s, restart_s * factor, 1 / between_s) >= least_s * (
        1 - 1e-9
    )
    assert expected_run_time_s(1e6, stretch_s, restart_s, factor / between_s) >= least_s * (
        1 - 1e-9
    )


# --- how often to save ---


def wasteful_s(interval_s, write_s, between_s, restart_s=300.0):
    """Time held for a million seconds of work saved so often."""
    work_s = 1e6 * (1 + write_s / interval_s)
    return expected_run_time_s(work_s, interval_s + write_s, restart_s, 1 / between_s)


@pytest.mark.parametrize("share", [1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.5, 0.7])
def test_the_optimal_interval_is_the_best_of_a_grid(share):
    write_s, between_s = share * 10_000, 10_000
    best_s = optimal_interval_s(write_s, 1 / between_s)
    others = best_s * np.geomspace(0.05, 20, 2001)
    # An approximation: 4 in 100,000 off at the last, where a write takes 0.7 of the time between
    # two interruptions.
    least_s = wasteful_s(others, write_s, between_s).min()
    assert wasteful_s(best_s, write_s, between_s) <= least_s * (1 + 4e-5)


def test_the_optimal_interval_by_hand():
    # sqrt(2 x 50 x 10,000) = 1000 s; sqrt(50 / 20,000) = 0.05
    # 1000 x (1 + 0.05 / 3 + 0.0025 / 9) - 50
    assert optimal_interval_s(50, 1e-4) == pytest.approx(966.9444, abs=1e-4)


@given(st.floats(1e-9, 1e-6), st.floats(1e3, 1e8))
@settings(deadline=None)
def test_youngs_interval_is_its_limit_for_short_writes(share, between_s):
    write_s = share * between_s
    young_s = math.sqrt(2 * write_s * between_s)
    # The next term is -2/3 of sqrt(write / 2 between): 0.0005 at the most.
    assert optimal_interval_s(write_s, 1 / between_s) == pytest.approx(young_s, rel=5e-4)


def test_writes_that_take_longer_than_two_interruptions():
    assert optimal_interval_s(200.0, 1 / 100) == 100
    assert optimal_interval_s(1000.0, 1 / 100) == 100


# --- what never ends ---


@pytest.mark.parametrize(("stretch_s", "hopeless"), [(8_000, False), (9_500, True)])
def test_ten_interruptions_in_a_stretch_are_hopeless(stretch_s, hopeless):
    # one in 1000 s: (8000 + 1000) / 1000 = 9, (9500 + 1000) / 1000 = 10.5
    assert is_hopeless(stretch_s, 1_000, 1e-3) is hopeless


def test_what_never_ends_stays_a_number():
    assert math.isfinite(expected_run_time_s(1e6, 1e6, 1e6, 1.0))
