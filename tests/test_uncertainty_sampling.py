from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlay.uncertainty import (
    LIKELY,
    PERCENTILE_90,
    Draws,
    InputRecorder,
    OneAtLevel,
    at_deviations,
    mean_of,
    percentile_90,
    range_of,
    share_up_to,
)
from tests.builders import exactly, span

factors = st.floats(1, 50)
estimates = st.tuples(st.floats(1e-3, 1e6), factors, factors).map(
    lambda one: span(one[0] / one[1], one[0], one[0] * one[2])
)


# --- likely ---


def test_likely_is_the_best_single_figure():
    assert LIKELY.of("x", span(1, 2, 4)) == 2
    assert LIKELY.of("x", 3.0) == 3
    assert LIKELY.times("x", 2.5) == 2.5
    assert LIKELY.around("x", 10.0, 3.0) == 10


# --- draws of an estimate ---


@given(estimates)
@settings(deadline=None, max_examples=40)
def test_percentiles_of_the_draws_are_those_of_the_estimate(value):
    drawn = np.broadcast_to(Draws().of("x", value), (10_000,))
    # Drawn from 10,000 strata: a percentile lies within one of them, which at the 10th and the
    # 90th is 0.0001 / 0.1755 standard deviations wide: a ratio of 50 ** 0.00045 at most.
    values = np.percentile(drawn, [10, 50, 90])
    assert values == pytest.approx([value.low, value.likely, value.high], rel=2e-3)


@pytest.mark.parametrize("value", [span(0, 4, 12), span(0, 0, 5), span(-2, 1, 3)])
def test_draws_that_may_be_nothing_are_cut_off_at_zero(value):
    drawn = Draws().of("x", value)
    assert drawn.min() == 0
    values = np.percentile(drawn, [10, 50, 90])
    expected = [max(value.low, 0.0), value.likely, value.high]
    assert values == pytest.approx(expected, rel=2e-3, abs=2e-3)


def test_the_two_halves_are_log_normal():
    drawn = np.sort(Draws().of("x", span(1, 2, 8)))
    # Twice as far from the middle is the square of the ratio: 2 x 4^2 and 2 / 2^2.
    beyond = 0.5 * (1 + np.array([-1, 1]) * 0.98971)  # 2 x 1.2816 standard deviations
    assert np.quantile(drawn, beyond) == pytest.approx([0.5, 32], rel=0.03)


def test_an_exact_figure_is_not_drawn():
    assert Draws().of("x", 3.0) == 3
    assert Draws().of("x", exactly(3.0)) == 3


def test_draws_are_repeatable_and_differ_by_seed():
    first, again, other = Draws(), Draws(), Draws(seed=21)
    value = span(1, 2, 4)
    assert np.array_equal(first.of("x", value), again.of("x", value))
    assert not np.array_equal(first.of("x", value), other.of("x", value))
    # Other seeds only put the same strata into another order.
    assert np.array_equal(np.sort(first.of("x", value)), np.sort(other.of("x", value)))


def test_draws_do_not_depend_on_what_was_asked_before():
    first, second = Draws(), Draws()
    second.of("y", span(1, 2, 3))
    second.times("x", 5.0)
    assert np.array_equal(first.normal("x"), second.normal("x"))


def test_one_name_is_one_luck():
    sampler = Draws()
    low, high = (
        sampler.of("electricity", span(1, 2, 4)),
        sampler.of("electricity", span(10, 20, 40)),
    )
    assert np.allclose(10 * low, high)


def correlation(first, other):
    sampler = Draws()
    return np.corrcoef(sampler.normal(first), sampler.normal(other))[0, 1]


def test_names_of_one_family_share_half_of_their_luck():
    assert correlation("speed: T4", "speed: H200") == pytest.approx(0.5, abs=0.03)
    assert correlation("speed: T4", "speed") == pytest.approx(np.sqrt(0.5), abs=0.03)


def test_other_names_have_luck_of_their_own():
    assert correlation("set-up", "download") == pytest.approx(0, abs=0.03)
    assert correlation("speed: T4", "spot price: aws") == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("name", ["set-up", "speed: T4"])
def test_draws_of_a_name_are_standard_normal(name):
    drawn = Draws().normal(name)
    assert drawn.mean() == pytest.approx(0, abs=0.02)
    assert drawn.std() == pytest.approx(1, abs=0.02)
    assert np.percentile(drawn, 90) == pytest.approx(PERCENTILE_90, abs=0.04)


# --- counts and sums ---


@pytest.mark.parametrize("mean", [0.01, 0.1, 0.5, 1, 3, 10, 50, 199, 201, 1000])
def test_counts_are_poisson(mean):
    drawn = Draws().times("interruptions", mean)
    assert np.array_equal(drawn, np.rint(drawn))
    assert drawn.min() >= 0
    # One draw from each stratum: the mean is closer than that of independent draws.
    assert drawn.mean() == pytest.approx(mean, rel=2e-3, abs=2e-4)
    assert drawn.var() == pytest.approx(mean, rel=0.03)


@pytest.mark.parametrize(("mean", "none"), [(0.1, np.exp(-0.1)), (1.0, np.exp(-1.0))])
def test_counts_are_none_as_often_as_poisson_says(mean, none):
    assert np.mean(Draws().times("x", mean) == 0) == pytest.approx(none, abs=1e-4)


def test_counts_that_never_happen():
    assert not Draws().times("x", 0.0).any()


def test_counts_at_a_mean_of_their_own():
    means = np.repeat([0.5, 5.0], 5000)
    drawn = Draws().times("x", means)
    assert drawn[:5000].mean() == pytest.approx(0.5, rel=0.05)
    assert drawn[5000:].mean() == pytest.approx(5.0, rel=0.05)


def test_a_sum_of_many_strays_around_its_mean_and_never_below_zero():
    drawn = Draws().around("work lost", 100.0, 10.0)
    assert drawn.mean() == pytest.approx(100, rel=1e-3)
    assert drawn.std() == pytest.approx(10, rel=1e-2)
    assert Draws().around("work lost", 1.0, 10.0).min() == 0


# --- one input moved, inputs noted ---


def test_one_input_is_moved_and_no_other():
    value = span(1, 2, 8)
    up, down = OneAtLevel("x", PERCENTILE_90), OneAtLevel("x", -PERCENTILE_90)
    assert up.of("x", value) == pytest.approx(8)
    assert down.of("x", value) == pytest.approx(1)
    assert OneAtLevel("x", 0.0).of("x", value) == 2
    assert up.of("y", value) == 2
    assert up.of("x", 5.0) == 5
    assert (up.times("x", 2.5), up.around("x", 10.0, 3.0)) == (2.5, 10)


def test_noted_keeps_what_is_uncertain():
    sampler = InputRecorder()
    assert sampler.of("x", span(1, 2, 4)) == 2
    assert sampler.of("exact", exactly(3.0)) == 3
    assert sampler.of("plain", 5.0) == 5
    assert (sampler.times("n", 2.5), sampler.around("s", 10.0, 3.0)) == (2.5, 10)
    assert sampler.inputs == {"x": span(1, 2, 4)}


# --- ranges ---


def test_a_range_is_the_10th_and_90th_percentile():
    # 0 to 99: a tenth is below 10, a tenth above 89
    assert range_of(50.0, np.arange(100.0)) == span(10, 50, 89)


def test_a_range_takes_the_likely_figure_in():
    assert range_of(95.0, np.arange(100.0)) == span(10, 95, 95)
    assert range_of(5.0, np.arange(100.0)) == span(5, 5, 89)


def test_a_figure_that_is_not_drawn_has_no_range():
    assert range_of(5.0, 5.0) == exactly(5.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200), st.floats(-1e6, 1e6))
@settings(deadline=None)
def test_a_range_is_in_order(draws, likely):
    values = range_of(likely, np.array(draws))
    assert values.low <= values.likely == likely <= values.high


@given(estimates)
@settings(deadline=None, max_examples=30)
def test_the_range_of_an_estimates_draws_is_the_estimate(value):
    values = range_of(value.likely, Draws(2000).of("x", value))
    assert (values.low, values.high) == pytest.approx((value.low, value.high), rel=1e-2)


@pytest.mark.parametrize(("limit", "share"), [(-1, 0), (24, 0.25), (99, 1)])
def test_share_up_to_a_limit(limit, share):
    assert share_up_to(limit, np.arange(100.0)) == share


@pytest.mark.parametrize(("limit", "share"), [(4.9, 0), (5.0, 1)])
def test_share_of_a_figure_that_is_not_drawn(limit, share):
    assert share_up_to(limit, 5.0) == share


@given(estimates, st.lists(st.floats(-3, 3), min_size=2, max_size=20))
@settings(deadline=None)
def test_more_luck_is_more_of_an_input(value, levels):
    values = at_deviations(value, np.sort(np.array(levels)))
    assert np.all(np.diff(values) >= -1e-9 * values[1:])
    assert values.min() >= 0


def test_one_mean_that_is_large_leaves_the_others_alone():
    mean = np.full(10_000, 0.3)
    mean[0] = 201
    assert Draws().times("anything", mean)[1:].mean() == pytest.approx(0.3, rel=0.05)


def test_a_mean_that_strays_spreads_the_count():
    # variance = mean + mean^2 x relative variance = 10 + 100 x 0.2
    count = Draws().times("anything", 10.0, 0.2)
    assert count.mean() == pytest.approx(10, rel=0.02)
    assert count.var() == pytest.approx(30, rel=0.15)


# --- single figures of what is drawn ---


@pytest.mark.parametrize(
    "value", [span(5, 10, 20), span(9, 10, 40), span(2, 10, 11), span(1.0, 1.0, 3.0), 7.0]
)
def test_mean_of_is_the_mean_of_many_draws(value):
    drawn = Draws(100_000).of("a figure", value)
    assert mean_of(value) == pytest.approx(float(np.mean(drawn)), rel=1e-3)


def test_mean_of_what_may_be_zero():
    # half normals of 4 and 2 deviations' width: 2 + (4 - 2) / 1.2816 / sqrt(2 pi)
    assert mean_of(span(0, 2, 6)) == pytest.approx(2 + 2 / 1.2815515594 / np.sqrt(2 * np.pi))


def test_percentile_90_is_that_of_the_range():
    drawn = Draws(1000).of("a figure", span(5, 10, 20))
    assert percentile_90(drawn) == range_of(10, drawn).high
    assert percentile_90(3.0) == 3
