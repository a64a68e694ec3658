"""`tools/backtest.py` on a few zones whose prices are made up, and what it makes of its results."""

from __future__ import annotations

import math
from datetime import date, timedelta

import numpy as np
import pytest
from tests.builders import an_offer, exactly, span
from tests.docs.pages import tool as tool_named

from outlay.offers.expected_price import Percentiles, PriceMoves

FIRST = date(2025, 6, 1)
WEEKS = 40
UNTIL = (FIRST + timedelta(weeks=27)).isoformat()
"""Plans are made for weeks 28 to 39."""
DAY_S = 86400.0
STILL = {("*", kind): PriceMoves(constant=Percentiles()) for kind in ("spot", "on-demand")}
RETURNING = STILL | {
    ("aws", "spot"): PriceMoves(
        constant=Percentiles(low=-0.1, middle=0.0, high=0.1),
        below=Percentiles(low=1, middle=1, high=1),
        half_weeks=4,
    )
}
"""All that lies below its level comes back to it."""


@pytest.fixture(scope="module")
def tool():
    return tool_named("backtest")


def zone_rows(prices, *, provider="aws", instance="g5.xlarge", gpu="A10G", region="us-east-1"):
    """Rows of the weekly file: by zone, spot of $1 on demand in each week; None where not sold."""
    return [
        {
            "provider": provider,
            "instance": instance,
            "gpu": gpu,
            "gpus": "1.0",
            "region": region,
            "zone": zone,
            "week_of": (FIRST + timedelta(weeks=number)).isoformat(),
            "usd_per_hour": "1.0",
            "spot_usd_per_hour": "" if spot is None else str(spot),
        }
        for zone, series in prices.items()
        for number, spot in enumerate(series)
    ]


def history_of(tool, rows, movements=STILL, provider="aws"):
    tool.read_gpus(rows)
    return tool.History(tool.read_weekly(rows, provider), movements)


class TenHours:
    """Every run takes ten hours of a machine and a dollar besides."""

    def __init__(self, tool, *, run_s=10 * 3600.0):
        self._bill = tool.Bill(1.0, 10.0, run_s)

    def bill(self, offer, tenancy):
        return self._bill


def zone_of(choice):
    return choice.offer.region.split("/")[1]


# --- what was paid ---


def test_a_bill_is_a_sum_and_hours_times_the_price(tool):
    assert tool.Bill(1.0, 10.0, 3600.0).usd(0.3) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("days", "paid"),
    [
        # all of it in the first week
        (0.5, 0.3),
        (7, 0.3),
        # 7 days at $0.30 and 3.5 at $0.60: 4.2 / 10.5
        (10.5, 0.4),
        # 7 days at $0.30, 7 at $0.60 and 7 at $0.90
        (21, 0.6),
    ],
)
def test_weeks_are_charged_by_the_time_a_run_is_in_them(tool, days, paid):
    history = history_of(tool, zone_rows({"a": [0.9, 0.3, 0.6, 0.9, 0.9]}))
    assert history.paid_usd_per_hour(0, "spot", 1, days * DAY_S) == pytest.approx(paid)
    assert history.paid_usd_per_hour(0, "on-demand", 1, days * DAY_S) == pytest.approx(1.0)


def test_a_week_without_a_price_in_the_run_is_not_charged(tool):
    history = history_of(tool, zone_rows({"a": [0.3, 0.3, None, 0.3]}))
    assert history.paid_usd_per_hour(0, "spot", 0, 14 * DAY_S) == pytest.approx(0.3)
    assert math.isnan(history.paid_usd_per_hour(0, "spot", 0, 15 * DAY_S))


def test_a_run_beyond_the_recorded_weeks_is_not_charged(tool):
    history = history_of(tool, zone_rows({"a": [0.3, 0.3]}))
    assert history.paid_usd_per_hour(0, "spot", 0, 14 * DAY_S) == pytest.approx(0.3)
    assert math.isnan(history.paid_usd_per_hour(0, "spot", 0, 15 * DAY_S))


# --- what was known ---


def test_a_quote_knows_its_past_and_nothing_later(tool):
    history = history_of(tool, zone_rows({"a": [None, 0.4, 0.1, 0.9], "b": [0.5] * 4}))
    (offer, _), (steady, _) = history.quotes(2)
    assert (offer.zone.zone, offer.spot_usd_per_hour) == ("a", 0.1)
    assert offer.zone.weeks == 2
    assert offer.zone.seen_first == "2025-06-08"
    assert offer.zone.mean_share == pytest.approx(0.2)  # the root of 0.4 x 0.1
    # seen since records began: since when, nobody knows
    assert steady.zone.seen_first is None


def test_a_zone_where_spot_saves_nothing_is_only_had_on_demand(tool):
    ((offer, _),) = history_of(tool, zone_rows({"a": [1.0]})).quotes(0)
    assert offer.tenancies == ("on-demand",)


def test_an_unknown_gpu_is_left_out(tool):
    rows = zone_rows({"a": [0.5]}, instance="dl1.24xlarge", gpu="Gaudi HL-205")
    assert history_of(tool, rows).quotes(0) == ()


# --- who chose what ---


def chosen(tool, rows, movements=STILL, **runs):
    """Outcomes of all plans among all GPUs and regions."""
    history = history_of(tool, rows, movements)
    return list(tool.outcomes(history, {"made up": TenHours(tool, **runs)}, UNTIL))


LAUNCH, JUMP = 26, 29
PLAIN = [0.30] * WEEKS
MIRAGE = [None] * LAUNCH + [0.10] * (JUMP - LAUNCH) + [0.80] * (WEEKS - JUMP)
"""A launch floor that lasts three weeks."""


def test_a_launch_floor_that_jumps_is_taken_by_the_cheapest_quote_alone(tool):
    rows = zone_rows({"plain": PLAIN, "mirage": MIRAGE})
    rows += zone_rows({"other": [0.4] * WEEKS}, instance="g6.xlarge", gpu="L4")
    history = history_of(tool, rows)
    everything = list(tool.choices(history, TenHours(tool), JUMP - 1, JUMP + 3))
    outcome = tool._outcome("aws", 4, everything)
    assert (zone_of(outcome.expected), outcome.expected.tenancy) == ("plain", "spot")
    assert zone_of(outcome.quote) == "mirage"
    # A dollar and ten hours: promised 1 + 10 x 0.1 = $2, paid 1 + 10 x 0.8 = $9; the best $4
    assert outcome.quote.quoted_usd == pytest.approx(2.0)
    assert outcome.quote.paid_usd == pytest.approx(9.0)
    assert outcome.expected.paid_usd == pytest.approx(4.0) == pytest.approx(outcome.best_usd)


def test_a_dip_of_a_zone_that_comes_back_is_taken_by_the_cheapest_quote_alone(tool):
    dip = [0.6] * JUMP + [0.2] + [0.6] * (WEEKS - JUMP - 1)
    history = history_of(tool, zone_rows({"plain": PLAIN, "dip": dip}), RETURNING)
    everything = list(tool.choices(history, TenHours(tool), JUMP, JUMP + 8))
    outcome = tool._outcome("aws", 8, everything)
    assert outcome.quote.sound  # nothing is doubtful about it
    assert zone_of(outcome.quote) == "dip"
    assert zone_of(outcome.expected) == "plain"
    assert outcome.expected.paid_usd < outcome.quote.paid_usd


def test_over_all_plans_expected_cost_regrets_less(tool):
    dips = [0.6 if number % 5 else 0.2 for number in range(WEEKS)]
    results = chosen(tool, zone_rows({"plain": PLAIN, "dips": dips, "mirage": MIRAGE}), RETURNING)
    figures = tool.score(results)
    assert figures.regret < figures.quote_regret
    assert figures.regret < figures.on_demand_regret
    assert {result.age for result in results} == {4, 8, 12}


def test_plans_begin_after_the_last_fitted_day_with_quotes_of_all_ages(tool):
    results = chosen(tool, zone_rows({"plain": PLAIN}))
    # 12 weeks x 3 ages, among all regions and the American, all GPUs and the one there is
    assert len(results) == 12 * 3 * 2 * 2
    for result in results:
        seen = date.fromisoformat(result.expected.offer.as_of)
        assert seen + timedelta(weeks=result.age) > date.fromisoformat(UNTIL)


def test_prices_that_stand_still_are_paid_as_promised(tool):
    figures = tool.score(chosen(tool, zone_rows({"plain": PLAIN, "dear": [0.5] * WEEKS})))
    assert figures.spot_share == 1
    assert figures.distinct == 1
    assert figures.paid_over_promised == pytest.approx(1.0)
    assert figures.inside == 1
    assert figures.regret == figures.quote_regret == pytest.approx(0.0)
    # $11 on demand instead of $4
    assert figures.on_demand_regret == pytest.approx(11 / 4 - 1)


def test_on_demand_is_paid_as_promised(tool):
    results = chosen(tool, zone_rows({"a": [None] * WEEKS}))
    for result in results:
        choice = result.expected
        assert choice.tenancy == "on-demand"
        assert choice.paid_usd / choice.promised_usd == pytest.approx(1.00)
        assert result.best_usd == pytest.approx(11.0)
    figures = tool.score(results)
    assert (figures.spot_share, figures.regret, figures.on_demand_regret) == (0, 0, 0)
    assert math.isnan(figures.paid_over_promised)  # which is of spot alone


def test_what_is_not_started_on_demand_is_had_as_spot_alone(tool):
    rows = zone_rows(
        {"us-west1-b": [0.5] * 10},
        provider="gcp",
        instance="acc:H100:1",
        gpu="H100",
        region="us-west1",
    )
    history = history_of(tool, rows, provider="gcp")
    assert {choice.tenancy for choice in tool.choices(history, TenHours(tool), 0, 4)} == {"spot"}


# --- figures of a set of plans, by hand ---


def a_choice(tool, *, promised=10.0, paid=10.0, quoted=None, price=None, hour=1.0, **offer):
    tenancy = offer.pop("tenancy", "spot")
    return tool.Choice(
        offer=an_offer(**offer),
        tenancy=tenancy,
        price=price or exactly(1.0),
        promised_usd=promised,
        expected_usd=promised,
        quoted_usd=promised if quoted is None else quoted,
        sound=True,
        paid_usd_per_hour=hour,
        paid_usd=paid,
    )


def an_outcome(tool, expected, quote, on_demand, best_usd, *, provider="aws", age=4):
    return tool.Outcome(provider, age, expected, quote, on_demand, best_usd)


@pytest.fixture
def three(tool):
    """Two spot choices and one on demand; the best cost $10, $10 and $20."""
    wide = span(0.8, 1.0, 1.5)
    dear = a_choice(tool, tenancy="on-demand", promised=20.0, paid=20.0)
    return [
        # paid 1.1 times what was promised, within the range: regret 10 %
        an_outcome(
            tool,
            a_choice(tool, promised=10.0, paid=11.0, price=wide, hour=1.1),
            a_choice(tool, quoted=5.0, paid=15.0),
            dear,
            10.0,
        ),
        # 1.3 times, outside of the range: regret 30 %
        an_outcome(
            tool,
            a_choice(tool, promised=10.0, paid=13.0, price=wide, hour=1.6, instance="crate"),
            a_choice(tool, quoted=5.0, paid=10.0),
            None,
            10.0,
            age=8,
        ),
        # on demand: no regret
        an_outcome(tool, dear, a_choice(tool, quoted=10.0, paid=40.0), dear, 20.0, age=8),
    ]


def test_score_by_hand(tool, three):
    figures = tool.score(three)
    assert figures.plans == 3
    assert figures.spot_share == pytest.approx(2 / 3)
    assert figures.distinct == 2
    assert figures.paid_over_promised == pytest.approx((1.1 + 1.3) / 2)
    assert figures.inside == 0.5
    # 10, 30 and 0 %; 50, 0 and 100 %; 100 and 0 % where something was sold on demand
    assert figures.regret == pytest.approx(0.4 / 3)
    assert figures.quote_regret == pytest.approx(0.5)
    assert figures.on_demand_regret == pytest.approx(0.5)
    # of 0, 10, 30 at 0.9 of the way: 10 + 0.8 x 20; of 0, 50, 100: 50 + 0.8 x 50
    assert figures.worst_tenth == pytest.approx(0.26)
    assert figures.quote_worst_tenth == pytest.approx(0.9)


def test_ends_of_the_range_are_inside(tool):
    wide = span(0.8, 1.0, 1.5)
    ends = [a_choice(tool, price=wide, hour=hour) for hour in (0.8, 1.5, 0.799, 1.501)]
    results = [an_outcome(tool, choice, choice, None, 10.0) for choice in ends]
    assert tool.score(results).inside == 0.5


def test_table_has_a_line_for_each_age_and_one_for_all(tool, three):
    head, rule, *lines = tool.table(three)
    assert head.split(" | ")[1:3] == ["quotes old", "plans"]
    assert rule.count("|") == head.count("|")
    assert [line.split(" | ")[1:3] for line in lines] == [
        ["4 weeks", "1"],
        ["8 weeks", "2"],
        ["all", "3"],
    ]
    assert lines[0] == "| aws | 4 weeks | 1 | 100% | 1 | 1.10 | 100% | 10.0% | 50.0% | 100% |"


def test_mean_of_a_price_is_that_of_its_draws(tool):
    assert tool.mean_of(exactly(2.0), 1.0) == 2.0
    even = span(1 / 1.5, 1.0, 1.5)
    deviation = math.log(1.5) / 1.28155
    # a log-normal figure: exp(deviation² / 2); 200 draws miss a little of its ends
    assert tool.mean_of(even, None) == pytest.approx(math.exp(deviation**2 / 2), rel=0.002)
    assert tool.mean_of(even, 1.2) < tool.mean_of(even, None)
    assert tool.mean_of(even, 1e-3) == pytest.approx(1e-3)


# --- all of it ---


def monthly_rows():
    """Two years of lists with 8 types of two providers, enough to have a spread of their own."""
    random = np.random.default_rng(7)
    return [
        {
            "month": (month := f"{2024 + number // 12}-{number % 12 + 1:02}"),
            "provider": provider,
            "instance_type": f"{box}",
            "ondemand_min": str(usd),
            "ondemand_median": str(usd),
            "spot_min": str(usd / 2),
            "last_changed": f"{month}-20",
        }
        for provider in ("acme", "gcp")
        for box in range(8)
        for number, usd in enumerate(np.exp(np.cumsum(0.05 * random.standard_normal(24))))
    ]


def test_backtest_from_raw_rows_to_the_table(tool, monkeypatch):
    monkeypatch.setattr(tool, "LENGTHS", {"stylenat": 1e5})
    random = np.random.default_rng(11)
    moving = np.clip(0.4 * np.exp(0.2 * random.standard_normal((6, WEEKS))), 0.1, 0.95)
    rows = zone_rows(
        {f"z{number}": [round(usd, 4) for usd in row] for number, row in enumerate(moving)}
    )
    rows += zone_rows(
        {"us-west1-b": [0.4] * WEEKS},
        provider="gcp",
        instance="acc:L4:1",
        gpu="L4",
        region="us-west1",
    )
    results = tool.backtest(rows, monthly_rows(), UNTIL)
    assert {result.provider for result in results} == {"aws", "gcp"}
    for result in results:
        assert result.best_usd <= result.expected.paid_usd
        assert result.best_usd <= result.quote.paid_usd
        assert result.quote.quoted_usd <= result.expected.quoted_usd
        assert result.best_usd > 0
    lines = tool.table(results)
    assert [line.split(" | ")[0] for line in lines[2:]] == 4 * ["| aws"] + 4 * ["| gcp"]
