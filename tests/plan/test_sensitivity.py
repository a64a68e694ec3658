from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_cost, a_doubt, a_plan, a_run, an_offer, an_option, exactly, span

from outlay.plan.ranking import Plan
from outlay.plan.sensitivity import RIVALS, find_option, rivals_of, swings, trial_value
from outlay.predict.run_time import NeverEnds
from outlay.uncertainty import LIKELY
from outlay.units import HOUR_S


def an_uncertain(inputs, *, gpu="T4", usd=3.0, run=None, **said):
    """An option that costs the sum of its inputs, by name."""

    def outcome(sampler):
        return run, a_cost(sum(sampler.of(name, value) for name, value in inputs.items()))

    run = run or a_run()
    return an_option(
        run=run,
        cost=outcome(LIKELY)[1],
        outcome=outcome,
        offer=an_offer(gpu=gpu, instance=gpu, usd=usd),
        **said,
    )


# --- what the cost hangs on ---


def test_swings_are_sorted_by_how_far_they_move_the_cost():
    option = an_uncertain(
        {
            "tax": exactly(1.0),
            "set-up": span(1, 2, 3),
            "speed": span(5, 10, 30),
            "download": span(2, 4, 9),
            "plain": 3.0,
        }
    )
    found = swings(option)
    assert [swing.name for swing in found] == ["speed", "download", "set-up"]
    # 30 - 5, 9 - 2, 3 - 1
    assert [swing.width_usd for swing in found] == pytest.approx([25, 7, 2])
    assert [swing.value for swing in found] == [span(5, 10, 30), span(2, 4, 9), span(1, 2, 3)]
    # all together $20 are likely: 1 + 2 + 10 + 4 + 3; at the ends of the speed 15 and 40
    speed = found[0].usd
    assert (speed.low, speed.likely, speed.high) == pytest.approx((15, 20, 40))
    assert all(swing.winner is None for swing in found)


def test_an_input_that_lowers_the_cost_is_a_swing_too():
    def outcome(sampler):
        return a_run(), a_cost(100 / sampler.of("download", span(5, 10, 20)))

    option = an_option(run=a_run(), cost=outcome(LIKELY)[1], outcome=outcome)
    (swing,) = swings(option)
    # 100 / 20, 100 / 10, 100 / 5
    assert (swing.usd.low, swing.usd.likely, swing.usd.high) == pytest.approx((5, 10, 20))


def test_an_input_that_changes_the_winner_names_it():
    chosen = an_uncertain({"speed: A": span(8, 10, 15), "set-up: A": span(0.9, 1, 1.1)})
    rival = an_uncertain({"speed: B": 12.0}, gpu="L4")
    by_name = {swing.name: swing for swing in swings(chosen, [rival])}
    # at its slowest $16 against $12; set-up alone changes nothing: 11.1 against 12
    assert by_name["speed: A"].winner is rival
    assert by_name["set-up: A"].winner is None


def test_a_rival_that_shares_the_input_moves_with_it():
    chosen = an_uncertain({"speed": span(8, 10, 15)})
    rival = an_uncertain({"speed": span(9, 11, 16)}, gpu="L4")
    (swing,) = swings(chosen, [rival])
    # 8 against 9, 15 against 16
    assert swing.winner is None


def test_a_run_that_never_ends_at_one_end_of_an_input():
    def outcome(sampler):
        rate = sampler.of("interruption rate", span(1, 2, 8))
        if np.ndim(rate) == 0 and rate > 5:  # of a single run; draws all end
            raise NeverEnds
        return a_run(), a_cost(rate)

    option = an_option(run=a_run(), cost=outcome(LIKELY)[1], outcome=outcome)
    (swing,) = swings(option, [an_option(100.0)])
    assert swing.usd.high == float("inf")
    assert swing.winner is not None


def test_what_has_no_price_has_no_swings():
    assert swings(an_option(None)) == ()
    assert swings(an_option(10.0)) == ()


# --- rivals ---


def test_rivals_are_the_best_of_each_other_machine():
    cheapest = an_option(1, offer=an_offer(instance="cheapest"))
    same = an_option(2, offer=an_offer(instance="same machine"))
    # $2 and what a start asks of a person, $1
    spot = an_option(2, tenancy="spot", offer=an_offer(instance="as spot"))
    other = an_option(4, offer=an_offer(gpu="L4", instance="another gpu"))
    dearer = an_option(5, offer=an_offer(gpu="L4", instance="the same, dearer"))
    odd = an_option(3, offer=an_offer("north", doubts=(a_doubt(),)))
    found = rivals_of(a_plan(cheapest, same, spot, other, dearer, odd))
    assert [one.offer.instance for one in found] == ["as spot", "another gpu"]


def test_rivals_are_a_dozen_at_most():
    options = [an_option(n, offer=an_offer(f"provider {n}")) for n in range(1, 30)]
    assert len(rivals_of(a_plan(*options))) == RIVALS


def test_without_a_choice_there_are_no_rivals():
    assert rivals_of(Plan(options=(an_option(fits=False),), chosen=None)) == ()


# --- is a trial worth it ---

SIGMA = 1 / NormalDist().inv_cdf(0.9)


def log_normal(middle, factor):
    """A figure whose 10th and 90th percentile are its middle by and times a factor."""
    return span(middle / factor, middle, middle * factor)


def integrated(one, other, correlation=0.0):
    """Mean and deviation of the smaller of two log-normal costs, and how often it is the other.

    One is (middle, factor). On a grid of two independent standard normals, by the trapezoid rule.
    """
    z = np.linspace(-8, 8, 801)
    weight = np.exp(-(z**2) / 2)
    weights = np.outer(weight, weight) / weight.sum() ** 2
    second = correlation * z[:, None] + np.sqrt(1 - correlation**2) * z[None, :]
    a = one[0] * np.exp(z * np.log(one[1]) * SIGMA)[:, None]
    b = other[0] * np.exp(second * np.log(other[1]) * SIGMA)
    least = np.minimum(a, b)
    mean = (least * weights).sum()
    deviation = np.sqrt(((least - mean) ** 2 * weights).sum())
    return mean, deviation, (weights * (b < a)).sum()


def mean_of(middle, factor):
    """Of a log-normal: middle x e^(sigma^2 / 2)."""
    return middle * np.exp((np.log(factor) * SIGMA) ** 2 / 2)


@pytest.mark.parametrize(
    ("names", "correlation"),
    [
        (("speed of one", "speed of the other"), 0.0),
        # Half of what is wrong with two speeds is wrong with both.
        (("speed: T4", "speed: L4"), 0.5),
    ],
)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((100.0, 1.5), (105.0, 1.5)),
        ((100.0, 1.5), (150.0, 2.5)),
        ((100.0, 2.0), (110.0, 1.05)),
        ((100.0, 1.1), (300.0, 1.1)),
    ],
)
def test_the_gain_of_a_trial_is_what_the_smaller_of_two_saves(one, other, names, correlation):
    plan = a_plan(
        an_uncertain({names[0]: log_normal(*one)}),
        an_uncertain({names[1]: log_normal(*other)}, gpu="L4"),
    )
    found = trial_value(plan)
    least, deviation, other_wins = integrated(one, other, correlation)
    expected = min(mean_of(*one), mean_of(*other)) - least
    # Three standard errors of ten thousand draws.
    assert found.gain_usd == pytest.approx(expected, abs=3 * deviation / 100)
    error = np.sqrt(other_wins * (1 - other_wins)) / 100
    # the first is the one that costs less on average
    is_first = mean_of(*one) <= mean_of(*other)
    assert found.first.offer.gpu == ("T4" if is_first else "L4")
    wins = other_wins if is_first else 1 - other_wins
    assert found.second_wins == pytest.approx(wins, abs=3 * error + 1e-4)


def test_only_speeds_are_told_by_a_trial():
    plan = a_plan(
        an_uncertain({"spot price: acme": log_normal(100, 3)}),
        an_uncertain({"electricity": log_normal(101, 3)}, gpu="L4"),
    )
    found = trial_value(plan)
    assert (found.gain_usd, found.second_wins) == (0, 0)


def test_a_trial_of_what_is_certain_gains_nothing():
    found = trial_value(a_plan(an_uncertain({"x": 10.0}), an_uncertain({"x": 12.0}, gpu="L4")))
    assert (found.gain_usd, found.second_wins) == (0, 0)
    assert not found.is_worth_it


costs = st.tuples(st.floats(1, 1000), st.floats(1, 4))


@given(costs, costs)
@settings(deadline=None, max_examples=30)
def test_a_trial_never_loses_what_it_tells(one, other):
    plan = a_plan(
        an_uncertain({"speed: T4": log_normal(*one)}),
        an_uncertain({"speed: L4": log_normal(*other)}, gpu="L4"),
    )
    found = trial_value(plan)
    assert found.gain_usd >= 0
    assert 0 <= found.second_wins <= 1
    assert {found.first.offer.gpu, found.second.offer.gpu} == {"T4", "L4"}


def test_a_trial_costs_two_machines_set_up_and_ten_minutes():
    run = a_run(
        10 * HOUR_S,
        sessions=2.0,
        provisioning_s=200.0,
        setup_s=400.0,
        warmup_s=100.0,
        download_s=50.0,
        preparation_s=200.0,
    )
    plan = a_plan(
        an_uncertain({"speed: T4": span(5, 10, 30)}, usd=3.0, run=run),
        an_uncertain({"speed: L4": span(5, 11, 30)}, usd=6.0, run=run, gpu="L4"),
    )
    # (200 + 400 + 100) s / 2 sessions + 250 s of data + 600 s = 1200 s: a third of $3 and of $6
    assert trial_value(plan).cost_usd == pytest.approx(3)


def test_a_trial_is_worth_it_where_it_saves_more_than_it_costs():
    close = a_plan(
        an_uncertain({"speed: T4": log_normal(1000, 2)}),
        an_uncertain({"speed: L4": log_normal(1010, 2)}, gpu="L4"),
    )
    assert trial_value(close).is_worth_it
    far = a_plan(
        an_uncertain({"speed: T4": log_normal(10, 1.1)}),
        an_uncertain({"speed: L4": log_normal(100, 1.1)}, gpu="L4"),
    )
    assert not trial_value(far).is_worth_it


def test_the_rival_worth_most_is_tried():
    plan = a_plan(
        an_uncertain({"speed: T4": log_normal(100, 1.5)}),
        an_uncertain({"speed: L4": log_normal(101, 1.01)}, gpu="L4"),
        an_uncertain({"speed: A10": log_normal(102, 3)}, gpu="A10"),
    )
    assert trial_value(plan).second.offer.gpu == "A10"


@pytest.mark.parametrize(
    "options",
    [
        (an_option(fits=False), an_option(fits=False)),
        (an_option(1),),
        # the same GPU elsewhere is as fast
        (an_option(1), an_option(2, offer=an_offer("north"))),
        # not the same work
        (an_option(1, samples=1000), an_option(2, samples=2000, offer=an_offer(gpu="L4"))),
    ],
)
def test_without_a_rival_there_is_no_trial(options):
    assert trial_value(a_plan(*options)) is None


# --- the option that is meant ---

PLAN = a_plan(
    an_option(1, offer=an_offer("aws", "g4dn.xlarge", region="us-east-1")),
    an_option(2, offer=an_offer("gcp", "g2", gpu="L4", gpus=4), tenancy="spot"),
    an_option(3, offer=an_offer("gcp", "g2", gpu="L4", gpus=4)),
)


@pytest.mark.parametrize(
    ("asked", "rank"),
    [
        ("2", 2),
        ("#3", 3),
        (" 1 ", 1),
        ("gcp", 2),
        ("L4 on-demand", 3),
        ("gcp/l4/on-demand", 3),
        ("4x", 2),
        ("us-east t4", 1),
        ("XLARGE", 1),
        ("9", None),
        ("azure", None),
        ("gcp t4", None),
    ],
)
def test_find_option(asked, rank):
    found = find_option(PLAN.options, asked)
    assert (None if found is None else found.rank) == rank


def test_a_word_is_the_whole_word_where_there_is_one():
    options = [
        an_option(1, offer=an_offer("shadeform", "lambda_a100", gpu="A100")),
        an_option(2, offer=an_offer("lambda", "gpu_1x_a10", gpu="A10")),
    ]
    assert find_option(options, "lambda a10") is options[1]
    assert find_option(options, "lambda a1") is options[0]
