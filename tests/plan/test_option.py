from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_doubt, a_gpu, a_run, an_offer, an_option, exactly, span

from outlay.cost.cash import Cash
from outlay.cost.lines import Breakdown, Cost, Line
from outlay.facts import assumptions
from outlay.plan.option import FIRST, RANKED, draws_of
from outlay.plan.ranking import rank_options
from outlay.uncertainty import DRAWS, LIKELY
from outlay.units import HOUR_S
from outlay.workload.workload import Limits, Preferences

HOURS = span(5, 10, 20)


def drawn_option(hours=HOURS, usd_per_hour=2.0, *, setup_hours=1.0, asked=None, **said):
    """An option whose training time, and perhaps whose price, is uncertain."""

    def outcome(sampler):
        if asked is not None:
            asked.append(sampler)
        training_s = sampler.of("speed", hours) * HOUR_S
        price = sampler.of("spot price", usd_per_hour)
        run = a_run(training_s, setup_s=setup_hours * HOUR_S)
        lines = (
            Line(name="set-up", usd=setup_hours * price),
            Line(name="compute", usd=training_s / HOUR_S * price),
        )
        return run, Cost(breakdown=Breakdown(lines=lines))

    run, cost = outcome(LIKELY)
    if asked is not None:
        asked.clear()
    return an_option(run=run, cost=cost, outcome=outcome, **said)


def paying(upfront, **said):
    """Uncertain or not, what must be paid on the first day."""
    return lambda sampler: Cash(
        payments=(Line(name="purchase", usd=sampler.of("purchase price", upfront)),), **said
    )


# --- cash ---


def test_nothing_to_pay_on_the_first_day():
    option = an_option(10, limits=Limits(budget_usd=10.0))
    assert option.cash_upfront_usd == 0.0
    assert option.cash_within_budget
    assert option.within_budget


def test_a_desktop_for_2200_dollars_is_not_within_a_budget_of_100():
    limits = Limits(budget_usd=100.0)
    option = an_option(61, limits=limits, cash_of=paying(2200.0))
    assert option.cash_upfront_usd == 2200
    assert not option.within_budget
    assert not option.feasible
    assert option.ranges.within_budget == 0.0


def test_the_budget_itself_may_be_paid_on_the_first_day():
    option = an_option(61, limits=Limits(budget_usd=2200.0), cash_of=paying(2200.0))
    assert option.within_budget
    assert option.ranges.within_budget == 1.0


@pytest.mark.parametrize(("may", "within"), [(2000.0, False), (2500.0, True), (0.0, False)])
def test_what_may_be_paid_on_the_first_day_may_be_said(may, within):
    limits = Limits(budget_usd=100.0, cash_upfront_usd=may)
    option = an_option(61, limits=limits, cash_of=paying(2200.0))
    assert option.within_budget is option.cash_within_budget is within
    alone = an_option(61, limits=Limits(cash_upfront_usd=may), cash_of=paying(2200.0))
    assert alone.within_budget is within
    assert alone.ranges.within_budget is None


def test_the_chance_to_stay_within_the_budget_holds_for_cash_too():
    # the purchase is above $1,500 in one of ten cases, the cost never above the budget
    limits = Limits(budget_usd=1500.0)
    option = an_option(61, limits=limits, cash_of=paying(span(1000, 1250, 1500)))
    assert option.ranges.within_budget == pytest.approx(0.9, abs=1e-3)


# --- ranges ---


def test_ranges_are_the_percentiles_of_what_is_drawn():
    option = drawn_option()
    # an hour of set-up and 5, 10 and 20 h of training; $2 an hour
    hours = option.run_time_s.scaled(1 / HOUR_S)
    assert (hours.low, hours.likely, hours.high) == pytest.approx((6, 11, 21), rel=1e-3)
    usd = option.cost_usd
    assert (usd.low, usd.likely, usd.high) == pytest.approx((12, 22, 42), rel=1e-3)
    assert option.calendar_s == option.run_time_s


def test_each_line_has_its_range():
    setup, compute = drawn_option().ranges.lines
    assert setup == exactly(2.0)
    assert (compute.low, compute.likely, compute.high) == pytest.approx((10, 20, 40), rel=1e-3)


def test_lines_of_one_name_have_their_own_ranges():
    def outcome(sampler):
        amounts = (sampler.of("a", span(1, 2, 4)), sampler.of("b", span(10, 20, 40)))
        lines = tuple(Line(name="storage", usd=usd) for usd in amounts)
        return a_run(), Cost(breakdown=Breakdown(lines=lines))

    option = an_option(run=a_run(), cost=outcome(LIKELY)[1], outcome=outcome)
    assert [one.likely for one in option.ranges.lines] == [2, 20]
    assert [one.high for one in option.ranges.lines] == pytest.approx([4, 40], rel=1e-3)


def test_what_is_exact_has_no_range():
    option = an_option(10.0, 3600.0)
    assert option.cost_usd == exactly(10.0)
    assert option.run_time_s == option.calendar_s == exactly(3600.0)


def test_what_has_no_price_has_a_time():
    option = an_option(None, 3600.0)
    assert option.cost_usd is None
    assert option.run_time_s == exactly(3600.0)
    assert option.ranges.lines == ()


def test_what_does_not_run_has_no_ranges():
    option = an_option(fits=False)
    assert option.ranges is option.cost_usd is option.run_time_s is option.calendar_s is None


@pytest.mark.parametrize(
    ("budget_usd", "chance"),
    [(2.01, 0.0), (12.0, 0.1), (22.0, 0.5), (42.0, 0.9), (1e6, 1.0)],
)
def test_chance_to_stay_within_the_budget(budget_usd, chance):
    option = drawn_option(limits=Limits(budget_usd=budget_usd))
    assert option.ranges.within_budget == pytest.approx(chance, abs=1e-3)
    # 0.8 is asked for
    assert option.within_budget is (chance >= 0.8)


@pytest.mark.parametrize(("hours", "chance"), [(6, 0.1), (11, 0.5), (21, 0.9)])
def test_chance_to_meet_the_deadline(hours, chance):
    option = drawn_option(limits=Limits(deadline_s=hours * HOUR_S))
    assert option.ranges.meets_deadline == pytest.approx(chance, abs=1e-3)


def test_without_limits_there_is_no_chance_to_miss_them():
    ranges = drawn_option().ranges
    assert ranges.within_budget is ranges.meets_deadline is None


def test_options_that_share_an_input_share_its_luck():
    cheap, dear = (drawn_option(10.0, span(p, 2 * p, 4 * p)) for p in (1, 3))
    sampler = draws_of(DRAWS)
    assert np.allclose(3 * cheap.drawn(sampler)[1].usd, dear.drawn(sampler)[1].usd)


# --- when they are worked out ---


def test_ranges_are_worked_out_when_first_asked_for_and_once():
    asked = []
    option = drawn_option(asked=asked)
    assert option.feasible
    assert asked == []
    assert option.cost_usd is not None
    assert option.run_time_s is not None
    assert len(asked) == 1


def test_ranking_draws_as_often_for_each_option():
    asked = []
    rank_options([drawn_option(asked=asked, instance=str(number)) for number in range(30)])
    assert len(asked) >= 30
    assert {sampler.size for sampler in asked} == {RANKED}


def test_what_is_far_beyond_its_limits_needs_no_draws():
    asked = []
    # $22 against $10, 11 h against 5
    for limits in (Limits(budget_usd=10), Limits(deadline_s=5 * HOUR_S)):
        assert not drawn_option(asked=asked, limits=limits).feasible
    assert asked == []


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ({"rank": FIRST}, DRAWS),
        ({"rank": FIRST + 1}, DRAWS // 5),
        ({"rank": FIRST + 1, "on_frontier": True}, DRAWS),
        ({"rank": FIRST + 1, "offer": an_offer(quoted=True)}, DRAWS),
    ],
)
def test_what_is_looked_at_is_drawn_in_full_number(said, size):
    asked = []
    option = replace(drawn_option(asked=asked), **said)
    ranges = option.ranges
    assert [sampler.size for sampler in asked] == [size]
    assert len(ranges.lines) == (2 if size == DRAWS else 0)
    # fewer draws, the same range: 21 h at $2
    assert ranges.cost_usd.high == pytest.approx(42, rel=0.02)


def test_the_first_25_are_drawn_in_full_number():
    asked = {}

    def option(number):
        asked[number] = []
        return drawn_option(asked=asked[number], setup_hours=1.0 + number, instance=f"{number:02}")

    for one in rank_options([option(number) for number in range(40)]):
        assert one.ranges is not None
    sizes = [max(sampler.size for sampler in asked[number]) for number in range(40)]
    assert sizes == [DRAWS] * 25 + [DRAWS // 5] * 15


# --- what it is judged by ---


def test_the_expected_cost_is_the_mean_of_its_draws():
    # two half log-normals: 10 h x (e^(s^2/2) P(-s) + e^(s^2/2) P(s)) = 10 h x e^(s^2/2), with
    # s = ln 2 / 1.2816; an hour of set-up; $2 an hour
    mean = 2 * (1 + 10 * np.exp((np.log(2) / 1.2815515594) ** 2 / 2))
    option = drawn_option()
    assert option.expected_cost_usd == pytest.approx(mean, rel=2e-3)
    assert option.usd == 22
    assert an_option(10.0).expected_cost_usd == 10
    assert an_option(None).expected_cost_usd is None
    assert an_option(fits=False).expected_cost_usd is None


@pytest.mark.parametrize(("risk", "hours"), [("likely", 10), ("p90", 20)])
def test_what_an_option_is_ranked_by_is_the_users_choice(risk, hours):
    option = drawn_option(prefer=Preferences(risk=risk))
    assert option.merit_usd == pytest.approx(2 * (1 + hours), rel=2e-3)
    # whatever it is ranked by, the expected cost stays the mean
    assert option.expected_cost_usd == drawn_option().expected_cost_usd


def test_the_chance_that_is_asked_for_decides_about_limits():
    # 11 h are likely; in 12 h with a chance of some 60 %
    deadline = {"deadline_s": 12 * HOUR_S}
    for confidence, meets in ((0.5, True), (0.8, False), (0.95, False)):
        option = drawn_option(limits=Limits(confidence=confidence, **deadline))
        assert option.meets_deadline is meets
        assert 0.5 < option.ranges.meets_deadline < 0.8


def test_what_spot_asks_of_a_person_counts_in_the_ranking_and_in_no_bill():
    prefer = Preferences(usd_per_interruption=3.0, usd_per_start=0.5)
    run = a_run(interruptions=2.0, sessions=4.0)
    spot = an_option(10.0, run=run, tenancy="spot", prefer=prefer)
    # 2 x $3 and 4 x $0.50
    assert (spot.trouble_usd, spot.merit_usd) == (8, 18)
    assert (spot.usd, spot.expected_cost_usd, spot.paid_usd) == (10, 10, 10)
    assert an_option(10.0, run=run, prefer=prefer).trouble_usd == 0
    free = Preferences(usd_per_interruption=0.0, usd_per_start=0.0)
    assert an_option(10.0, run=run, tenancy="spot", prefer=free).merit_usd == 10
    # by default what the table says of an interruption and of a start, which are guesses
    usual = an_option(10.0, run=run, tenancy="spot").trouble_usd
    rows = [assumptions()[f"spot_{what}_trouble_usd"] for what in ("interruption", "start")]
    assert all(row.is_guess for row in rows)
    assert usual == 2 * rows[0].number + 4 * rows[1].number


# --- what it is worth ---


def test_merit_is_the_cost_where_nothing_else_is_said():
    assert an_option(10.0).merit_usd == 10


def test_waiting_is_worth_money():
    prefer = Preferences(waiting_usd_per_hour=3.0)
    # $10 and 2 h of $3
    assert an_option(10.0, 2 * HOUR_S, prefer=prefer).merit_usd == pytest.approx(16)


def test_a_preferred_provider_may_cost_more():
    prefer = Preferences(providers=("acme",), premium_fraction=0.25)
    # $10 there are as good as $8 elsewhere
    assert an_option(10.0, prefer=prefer).merit_usd == pytest.approx(8)
    assert an_option(10.0, prefer=prefer, offer=an_offer("other")).merit_usd == 10


def test_what_does_not_run_has_no_merit():
    assert an_option(fits=False).merit_usd == float("inf")
    assert an_option(None).merit_usd == float("inf")


@pytest.mark.parametrize(
    ("said", "feasible", "sound"),
    [
        ({}, True, True),
        ({"fits": False}, False, False),
        ({"usd": None}, False, False),
        ({"blocked": "would never end"}, False, False),
        ({"limits": Limits(budget_usd=9.0)}, False, False),
        ({"limits": Limits(deadline_s=3599.0)}, False, False),
        ({"gpu": a_gpu(runs="no")}, False, False),
        ({"gpu": a_gpu(runs="special build")}, True, False),
        ({"gpu": replace(a_gpu(), vendor="AMD")}, True, True),
        ({"doubts": [a_doubt("withdrawn", kind="no price")]}, False, False),
        ({"doubts": [a_doubt()]}, True, False),
    ],
)
def test_feasible_and_sound(said, feasible, sound):
    option = an_option(**said)
    assert (option.feasible, option.sound) == (feasible, sound)


def test_kernels_of_an_extension_on_amd_are_a_doubt():
    option = an_option(gpu=replace(a_gpu(), vendor="AMD"))
    own = replace(option, step=replace(option.step, custom_ops=("natten.na2d",)))
    assert (own.feasible, own.sound) == (True, False)
    assert own.doubts == ("natten.na2d may have no build for AMD",)


# --- whatever is uncertain ---

positive = st.floats(0.1, 100)
estimates = st.lists(positive, min_size=3, max_size=3).map(lambda three: span(*sorted(three)))


@given(estimates, estimates, st.floats(0, 10))
@settings(deadline=None, max_examples=30)
def test_every_range_is_in_order(hours, usd_per_hour, setup_hours):
    option = drawn_option(hours, usd_per_hour, setup_hours=setup_hours)
    ranges = option.ranges
    for one in (ranges.cost_usd, ranges.run_time_s, ranges.calendar_s, *ranges.lines):
        assert one.low <= one.likely <= one.high
    assert option.usd == pytest.approx(sum(one.likely for one in ranges.lines))


def test_a_cost_that_is_unknown_under_other_luck_has_no_range():
    option = an_option(10.0, run=a_run(), outcome=lambda _: (a_run(), None))
    assert option.cost_usd is None
