from __future__ import annotations

import numpy as np
import pytest

from outlay.probe.steady_state import drift_of, mean_interval, period_of, student_t95, warm_up_of

RUNS = 300


def alike(random, count, likeness):
    """Noise of 5 % in which each value leans towards the one before."""
    pushes = random.normal(0, 0.05 * np.sqrt(1 - likeness**2), count)
    values = [random.normal(0, 0.05)]
    for push in pushes[1:]:
        values.append(likeness * values[-1] + push)
    return 1 + np.array(values)


def every_sixteenth(random, count):
    values = 1 + random.normal(0, 0.03, count)
    values[random.integers(16) :: 16] += 1
    return values


def heavy(random, count):
    """Log-normal around 1: e ** (0.5 ** 2 / 2) is its mean before the division."""
    return np.exp(random.normal(0, 0.5, count)) / np.exp(0.125)


@pytest.mark.parametrize(
    ("made", "count", "true_s"),
    [
        (lambda random, count: alike(random, count, 0.0), 50, 1.0),
        (lambda random, count: alike(random, count, 0.3), 100, 1.0),
        (lambda random, count: alike(random, count, 0.8), 500, 1.0),
        (every_sixteenth, 200, 1 + 1 / 16),
        (every_sixteenth, 1000, 1 + 1 / 16),
        (heavy, 200, 1.0),
    ],
)
def test_the_interval_holds_the_true_mean_19_times_of_20(made, count, true_s):
    covered = 0
    for seed in range(RUNS):
        values = made(np.random.default_rng([seed, count]), count)
        values = values[warm_up_of(values)[0] :]
        mean = mean_interval(values, period_of(values))
        covered += mean.low_s <= true_s <= mean.high_s
    assert 0.88 <= covered / RUNS <= 0.99


def test_a_period_makes_the_interval_narrow():
    values = every_sixteenth(np.random.default_rng(1), 1600)
    assert period_of(values) == 16
    mean = mean_interval(values, 16)
    # Without it the long steps would count as noise: 0.25 * 2 / sqrt(1600) = 1.2 %.
    assert mean.high_s - mean.mean_s < 0.004
    assert mean.steps % 16 == 0


def test_a_pattern_of_optimizers_and_one_in_time_are_kept_both():
    values = np.ones(2000)
    values[::6] += 1
    values += np.random.default_rng(2).normal(0, 0.01, 2000)
    assert period_of(values, 4) == 12


@pytest.mark.parametrize("likeness", [0.0, 0.5, 0.9])
def test_noise_has_no_period(likeness):
    periods = [period_of(alike(np.random.default_rng(seed), 400, likeness)) for seed in range(50)]
    assert sum(period > 1 for period in periods) <= 3


@pytest.mark.parametrize("slow", [5, 20, 60])
def test_slow_first_steps_are_left_out(slow):
    for seed in range(20):
        values = 0.2 + np.random.default_rng(seed).normal(0, 0.01, 200)
        values[:slow] *= 10
        dropped, settled = warm_up_of(values)
        assert settled
        # Blocks are of five; what follows by chance may go with it, but not most of it.
        assert slow <= dropped <= slow + 70
        assert mean_interval(values[dropped:]).mean_s == pytest.approx(0.2, rel=0.02)


def test_a_ramp_is_left_out():
    values = 0.1 * (1 + np.exp(-np.arange(400) / 20))
    values += np.random.default_rng(3).normal(0, 0.001, 400)
    dropped, settled = warm_up_of(values)
    assert settled
    # After 70 steps 0.1 * e ** -3.5 = 3 % are left of it.
    assert 70 <= dropped < 200


@pytest.mark.parametrize("place", [4, 30, 90])
def test_one_outlier_moves_nothing(place):
    values = 0.2 + np.random.default_rng(4).normal(0, 0.002, 200)
    without = warm_up_of(values)
    values[place] = 9.0
    assert warm_up_of(values)[0] == pytest.approx(without[0], abs=5)


def test_a_change_beyond_the_half_is_no_steady_state_yet():
    values = 0.2 + np.random.default_rng(5).normal(0, 0.002, 100)
    values[:70] *= 3
    dropped, settled = warm_up_of(values)
    assert not settled
    assert 70 <= dropped <= 80


def test_at_least_two_intervals_go_and_fewer_of_few():
    assert warm_up_of(np.ones(100))[0] == 2
    assert warm_up_of(np.ones(3)) == (1, False)
    assert warm_up_of(np.ones(2)) == (0, False)


def test_a_slow_drift_is_seen_and_noise_is_not():
    random = np.random.default_rng(6)
    noise = random.normal(0, 0.01, 400)
    # From 0.025 above the start to 0.025 below the end: 5 % of 1.05.
    assert drift_of(1 + np.linspace(0, 0.1, 400) + noise) == pytest.approx(0.05 / 1.05, rel=0.1)
    assert drift_of(1 + noise) == 0


def test_few_values_give_a_wide_interval():
    two = mean_interval(np.array([1.0, 1.0]))
    assert (two.low_s, two.high_s) == (0.5, 1.5)
    one = mean_interval(np.array([1.0]))
    assert (one.low_s, one.high_s) == (0.0, 2.0)
    three = mean_interval(np.array([0.9, 1.0, 1.1]))
    # t(2) = 4.303 times 0.1 / sqrt(3) = 0.248, less nothing: there are too few to be alike.
    assert three.high_s >= 1.248


def test_students_t():
    # Tables of the distribution: t(1) = 12.706, t(30) = 2.042, t(60) = 2.000, t(120) = 1.980.
    assert [student_t95(n) for n in (1, 30)] == [12.706, 2.042]
    assert [student_t95(n) for n in (60, 120)] == pytest.approx([2.000, 1.980], abs=5e-4)
