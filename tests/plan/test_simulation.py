"""Offers of a kind share their simulated runs: the figures are those of each offer's own bills."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.builders import a_cost, a_run, a_step, an_offer

from outlay.plan.from_measurement import profile_for
from outlay.plan.option import RANKED, draws_of
from outlay.plan.pipeline import best_offers, data_distance, plan_workload, rank_offers
from outlay.plan.simulation import (
    CURVE_POINTS,
    Judgement,
    SimulatedKind,
    Simulation,
    forecast_of,
    in_proportion,
    mean,
    price_curve,
    simulation_of,
)
from outlay.workload.file import parse_workload
from outlay.workload.workload import Limits

DRAWN = np.asarray([1.0, 2.0, 3.0, 10.0])


def a_simulation(usd=10.0, **said):
    figures = {
        "usd": usd,
        "training_usd": usd,
        "unpriced_usd": 0.0,
        "calendar_s": 3600.0,
        "completion_s": 3600.0,
        "interruptions": 0.0,
        "sessions": 1.0,
        "samples": 1000.0,
    }
    return Simulation(**(figures | said))


# --- figures of simulated runs ---


def test_means_and_chances():
    runs = a_simulation(DRAWN, completion_s=3600 * DRAWN)
    forecast = forecast_of(runs, Limits(budget_usd=3.0, deadline_s=2 * 3600.0))
    # (1 + 2 + 3 + 10) / 4; three of four within $3, two of four within 2 h
    assert forecast.means.usd == 4
    assert forecast.means.completion_s == 4 * 3600
    assert (forecast.within_budget, forecast.meets_deadline) == (0.75, 0.5)
    assert forecast_of(runs, Limits()).within_budget is None


def test_the_mean_of_one_figure_is_itself():
    assert mean(3.0) == 3
    assert mean(DRAWN) == 4


def test_what_has_no_bill_costs_without_end():
    runs = simulation_of(a_run(3600.0), None, 1.0, is_owned=False)
    assert runs.usd == float("inf")
    assert runs.calendar_s == 3600


def test_training_on_ones_own_machine_is_its_share_of_the_time():
    run = a_run(3600.0, setup_s=3600.0)
    assert simulation_of(run, a_cost(10), 1.0, is_owned=True).training_usd == 5


# --- kinds ---


def a_kind(limits=None):
    """Bills of $5, and of 1, 2, 3 or 10 hours at the price."""
    return SimulatedKind(
        step=a_step(),
        limits=limits or Limits(),
        billed=lambda price: a_simulation(5.0 + DRAWN * price, training_usd=DRAWN * price),
    )


def test_bills_in_proportion_to_the_price_are_a_line():
    kind = in_proportion(a_kind(), 4)
    for price in (0.0, 0.5, 7.0):
        assert np.allclose(kind.at(price).usd, a_kind().at(price).usd)
        assert np.allclose(kind.at(price).training_usd, DRAWN * price)
        # 5 + 4 h x price
        assert kind.forecast(price).means.usd == pytest.approx(5 + 4 * price)
    drawn = np.asarray([4.0, 3.0, 2.0, 1.0])
    # 5 + (4 + 6 + 6 + 10) / 4
    assert kind.forecast(drawn).means.usd == pytest.approx(11.5)


def test_the_chance_to_stay_within_the_budget_at_any_price():
    limits = Limits(budget_usd=11.0)
    kind = in_proportion(a_kind(limits), 4)
    # $6 are left for 1, 2, 3 and 10 h: $6, $3, $2 and $0.60 an hour
    for price in (0.5, 0.7, 2.5, 4.0, 9.0):
        slow = forecast_of(a_kind(limits).at(price), limits).within_budget
        assert kind.forecast(price).within_budget == slow
    assert kind.slope.affordable_with(0.75) == pytest.approx(2.0)
    assert kind.slope.affordable_with(0.5) == pytest.approx(3.0)
    assert in_proportion(a_kind(), 4).slope.affordable_with(0.5) == float("inf")


def test_what_the_price_does_not_change_is_within_the_budget_or_not():
    free = SimulatedKind(
        step=a_step(),
        limits=Limits(budget_usd=2.5),
        billed=lambda price: a_simulation(DRAWN + 0 * price),
    )
    assert in_proportion(free, 4).forecast(100.0).within_budget == 0.5


def test_a_price_curve_is_what_is_said_of_some_prices_and_lines_between():
    curve = price_curve(
        lambda price: Judgement(merit_usd=1 + 2 * price, paid_usd=3 * price), 8.0, 5.0
    )
    assert len(curve.usd_per_hour) == CURVE_POINTS
    assert curve.merits_usd([0.1, 7.77]) == pytest.approx([1.2, 16.54])
    assert curve.all_paid_usd([0.1]) == pytest.approx([0.3])
    assert curve.most_usd_per_hour == 5


# --- plans ---

TEXT = """
[step]
profile = "resnet50"
batch_size = 64
[length]
samples = 10_000_000
[checkpoint]
size = "1GB"
[data]
size = "100GB"
[limits]
budget = 60
deadline = "3d"
[consider]
gpus = ["T4", "L4", "A100", "RTX 4090"]
max_gpus = 2
[prefer]
waiting_per_hour = 0.1
access = "notebook"
"""


@pytest.fixture(scope="module", params=["", "[[provider]]\nname = 'gcp'\ncredit = 30\n"])
def plan(request):
    workload = parse_workload(TEXT + request.param)
    return plan_workload(workload, profile_for(workload.step), today="2026-11-01")


def test_what_is_shared_is_what_each_option_draws_itself(plan):
    tenancies = set()
    for option in plan.options:
        if option.run is None or option.cost is None:
            continue
        tenancies.add(option.tenancy)
        slow = option.simulation_of(*option.drawn(draws_of(RANKED)))
        fast = option.simulated()
        for name in ("usd", "training_usd", "calendar_s", "completion_s", "interruptions"):
            assert np.allclose(getattr(fast, name), getattr(slow, name)), (option.offer, name)
        forecast = forecast_of(slow, option.limits)
        assert option.expected_cost_usd == pytest.approx(mean(slow.usd))
        assert option.prospects.within_budget == pytest.approx(forecast.within_budget, abs=1e-9)
        assert option.prospects.meets_deadline == forecast.meets_deadline
    assert tenancies == {"on-demand", "spot"}


def test_sound_options_are_in_the_order_of_what_they_are_ranked_by(plan):
    merits = [option.merit_usd for option in plan.options if option.sound]
    assert len(merits) > 20
    assert merits == sorted(merits)
    assert plan.chosen.rank in plan.tie
    assert all(option.rank in plan.tie or option.why_not for option in plan.options)


def test_limits_are_kept_with_the_chance_that_is_asked_for(plan):
    for option in plan.options:
        if option.cost is None or option.run is None:
            continue
        ranges = option.ranges
        assert option.within_budget == (ranges.within_budget >= 0.8)
        assert option.meets_deadline == (ranges.meets_deadline >= 0.8)


RISKS = ("expected", "p90", "likely")


@pytest.mark.parametrize("risk", RISKS)
@pytest.mark.parametrize("length", ["samples = 10_000_000", "iterations = 10_000", "time = '6h'"])
def test_the_best_of_many_offers_are_those_of_the_whole_plan(risk, length):
    text = TEXT.replace("samples = 10_000_000", length).replace(
        "[prefer]", f"[prefer]\nrisk = '{risk}'"
    )
    workload = parse_workload(text.replace("batch_size = 64", "batch_size = 'max'"))
    profile = profile_for(workload.step)
    kinds = (("T4", 0.4), ("L4", 0.7), ("A100 40GB SXM", 1.6), ("H100 SXM", 3.0))
    offers = [
        an_offer(
            "gcp",
            f"{gpu} {number}",
            gpu=gpu,
            usd=usd * (1 + number / 50),
            spot_usd=usd * (0.5 + number / 100),
        )
        for gpu, usd in kinds
        for number in range(40)
    ]
    whole = rank_offers(workload, offers, profile)
    best = best_offers(workload, offers, profile, keep=15)
    names = [[(one.offer.instance, one.tenancy) for one in plan.options] for plan in (whole, best)]
    assert names[1][:15] == names[0][:15]
    assert best.chosen.offer.identity == whole.chosen.offer.identity


@pytest.mark.parametrize(
    ("at", "distances"),
    [
        ("internet", [0, 0, 0]),
        ("gcp", [0, 0, 2]),
        ("gcp:us-east1", [0, 1, 2]),
        ("home", [0, 0, 0]),
    ],
)
def test_how_far_the_data_lies(at, distances):
    workload = parse_workload(TEXT)
    workload = replace(workload, data=replace(workload.data, at=at))
    offers = [
        an_offer("gcp", region="us-east1"),
        an_offer("gcp", region="us-west1"),
        an_offer("runpod"),
    ]
    assert [data_distance(workload, offer) for offer in offers] == distances
