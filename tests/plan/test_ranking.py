from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import a_cost, a_doubt, a_gpu, a_run, an_offer, an_option

from outlay.cost.cash import Cash
from outlay.cost.lines import Breakdown, Cost, Line
from outlay.offers.offer import OwnedMachine
from outlay.plan.ranking import (
    Plan,
    break_evens,
    choose,
    equal_work,
    rank_options,
    tie_usd_per_hour,
)
from outlay.units import DAY_S, HOUR_S
from outlay.workload.workload import Limits, Preferences


def names(options):
    return [option.offer.instance for option in options]


def why_not(options, instance):
    return next(one.why_not for one in rank_options(options) if one.offer.instance == instance)


GONE = a_doubt("withdrawn", kind="no price")
ODD = a_doubt("looks odd")


# --- order and choice ---


def test_options_are_ranked_by_cost():
    ranked = rank_options(
        [
            an_option(30, instance="dear"),
            an_option(10, instance="cheap"),
            an_option(20, instance="middling"),
        ]
    )
    assert names(ranked) == ["cheap", "middling", "dear"]
    assert [option.rank for option in ranked] == [1, 2, 3]
    assert choose(ranked) is ranked[0]
    assert ranked[0].why_not is None


def test_of_equal_cost_the_faster_comes_first():
    ranked = rank_options(
        [an_option(10, 7200, instance="slow"), an_option(10, 3600, instance="fast")]
    )
    assert names(ranked) == ["fast", "slow"]


def test_waiting_that_costs_puts_the_faster_first():
    prefer = Preferences(waiting_usd_per_hour=3.0)
    ranked = rank_options(
        [
            an_option(10, 10 * HOUR_S, instance="slow", prefer=prefer),  # 10 + 10 x 3
            an_option(20, 5 * HOUR_S, instance="fast", prefer=prefer),  # 20 + 5 x 3
        ]
    )
    assert names(ranked) == ["fast", "slow"]
    # the frontier is in money that is paid
    assert [one.on_frontier for one in ranked] == [True, True]


def test_a_preferred_provider_wins_within_its_premium():
    prefer = Preferences(providers=("acme",), premium_fraction=0.25)
    dear, cheap = an_option(12, prefer=prefer), an_option(10, prefer=prefer)
    other = replace(cheap, offer=an_offer("other", "cheap"))
    # 12 / 1.25 = 9.60
    assert names(rank_options([other, dear])) == ["box", "cheap"]


def test_a_doubtful_price_is_never_chosen_however_cheap():
    ranked = rank_options(
        [an_option(1, doubts=[ODD], instance="too cheap"), an_option(100, instance="sound")]
    )
    assert names(ranked) == ["sound", "too cheap"]
    assert names([choose(ranked)]) == ["sound"]
    assert ranked[1].why_not == "doubtful: looks odd (price seen 2026-01-01)"


def test_where_every_price_is_doubtful_nothing_is_chosen():
    ranked = rank_options([an_option(1, doubts=[ODD]), an_option(2, doubts=[ODD])])
    assert choose(ranked) is None
    assert [option.feasible for option in ranked] == [True, True]
    assert not any(option.sound or option.on_frontier for option in ranked)


def test_a_note_is_no_doubt():
    option = an_option(1, doubts=[a_doubt("resold", kind="note")])
    assert option.sound
    assert choose(rank_options([option])) is not None


def test_a_doubt_about_spot_does_not_touch_on_demand():
    about_spot = a_doubt("bid", about="spot")
    assert an_option(doubts=[about_spot]).sound
    assert not an_option(doubts=[about_spot], tenancy="spot").sound


def test_what_is_not_for_sale_cannot_be_taken():
    ranked = rank_options([an_option(1, doubts=[GONE], instance="gone"), an_option(5)])
    assert names(ranked) == ["box", "gone"]
    assert not ranked[1].feasible
    assert ranked[1].why_not == "not for sale at this price: withdrawn"


def test_the_order_is_sound_then_doubtful_then_over_the_limits_then_impossible():
    limits = Limits(budget_usd=50)
    ranked = rank_options(
        [
            an_option(fits=False, instance="too small", limits=limits),
            an_option(60, instance="over budget", limits=limits),
            an_option(10, doubts=[ODD], instance="doubtful", limits=limits),
            an_option(20, instance="sound", limits=limits),
        ]
    )
    assert names(ranked) == ["sound", "doubtful", "over budget", "too small"]


# --- reasons ---


def test_why_not_over_budget():
    options = [an_option(60, limits=Limits(budget_usd=50))]
    assert why_not(options, "box") == "over budget by $10.00"
    assert choose(rank_options(options)) is None


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (
            Limits(budget_usd=100.0),
            "needs $2,200 on the first day, over the budget of $100",
        ),
        (
            Limits(budget_usd=99.5),
            "needs $2,200 on the first day, over the budget of $99.50",
        ),
        (
            Limits(budget_usd=5000.0, cash_upfront_usd=500.0),
            "needs $2,200 on the first day, over what may be paid then, $500",
        ),
    ],
)
def test_why_not_more_on_the_first_day_than_the_budget(limits, reason):
    options = [an_option(60, limits=limits, cash_of=bought_for(2200.0))]
    assert why_not(options, "box") == reason


def test_exactly_the_budget_is_within_it():
    assert an_option(50, limits=Limits(budget_usd=50)).within_budget


def test_why_not_late():
    # 3 days against 2
    options = [an_option(time_s=3 * DAY_S, limits=Limits(deadline_s=2 * DAY_S))]
    assert why_not(options, "box") == "misses the deadline by 1.0 days"
    assert not options[0].feasible


def test_why_not_late_by_hours():
    # 27 hours against 24
    options = [an_option(time_s=27 * HOUR_S, limits=Limits(deadline_s=DAY_S))]
    assert why_not(options, "box") == "misses the deadline by 3.0 h"


def test_how_long_data_is_kept_does_not_touch_the_deadline():
    kept = an_option(run=a_run(HOUR_S, storage_s=30 * DAY_S), limits=Limits(deadline_s=DAY_S))
    assert kept.meets_deadline


def test_the_deadline_counts_nights():
    # 8 hours of work over 3 days
    late = an_option(
        run=a_run(8 * HOUR_S, calendar_s=3 * DAY_S), limits=Limits(deadline_s=2 * DAY_S)
    )
    assert not late.meets_deadline
    assert an_option(time_s=2 * DAY_S, limits=Limits(deadline_s=2 * DAY_S)).meets_deadline


def test_why_not_too_big():
    # it needs 1 GiB and has half of one
    said = why_not([an_option(fits=False)], "box")
    assert said == "does not fit: batch 10 may need 1.0 GiB, it has 0.5 GiB"


def test_why_not_blocked():
    option = an_option(blocked="would hardly ever finish")
    assert not option.feasible
    assert why_not([option], "box") == "would hardly ever finish"


def test_why_not_late_in_a_month_of_sessions_is_of_one_session():
    # 20 h in 4 sessions are 5 h each
    month = a_run(20 * HOUR_S, sessions=4, calendar_s=30 * DAY_S, recurring=True)
    assert an_option(run=month, limits=Limits(deadline_s=5 * HOUR_S)).meets_deadline
    late = an_option(run=month, limits=Limits(deadline_s=4 * HOUR_S))
    assert why_not([late], "box") == "misses the deadline by 1.0 h"


def test_why_not_pytorch():
    option = an_option(gpu=a_gpu(runs="no"))
    assert not option.feasible
    assert "PyTorch does not run on it" in why_not([option], "box")


@pytest.mark.parametrize("runs", ["yes", "old builds", "unknown"])
def test_a_gpu_that_may_run_is_not_left_out(runs):
    assert an_option(gpu=a_gpu(runs=runs)).sound


def test_why_not_unpriced_says_at_which_price_it_would_win():
    options = [
        an_option(10, 2 * HOUR_S, instance="chosen"),
        an_option(None, 4 * HOUR_S, instance="unpriced"),
    ]
    # the same work costs 10 dollars in 4 hours at $2.50 an hour
    said = why_not(options, "unpriced")
    assert said == "no price known; would be the cheapest below $2.50/h"
    assert not options[1].within_budget


def test_why_not_unpriced_where_nothing_is_chosen():
    assert why_not([an_option(None)], "box") == "no price known"


def test_tie_usd_per_hour_needs_a_choice_and_a_run():
    chosen = an_option(10, 2 * HOUR_S)
    assert tie_usd_per_hour(an_option(None, HOUR_S), chosen) == pytest.approx(10)
    assert tie_usd_per_hour(an_option(None), None) is None
    assert tie_usd_per_hour(an_option(fits=False), chosen) is None


def test_why_not_dearer_and_slower():
    options = [an_option(10, HOUR_S), an_option(15, 2 * HOUR_S, instance="loser")]
    assert why_not(options, "loser") == "costs $5.00 more and takes 2.0x as long"


def test_why_not_dearer_and_as_fast():
    options = [an_option(10, HOUR_S), an_option(15, 1.01 * HOUR_S, instance="loser")]
    assert why_not(options, "loser") == "costs $5.00 more and takes as long"


def test_why_not_dearer_but_faster():
    options = [an_option(10, HOUR_S), an_option(15, HOUR_S / 4, instance="racer")]
    assert why_not(options, "racer") == "costs $5.00 more, but is 4.0x as fast"


# --- unequal work ---


def test_equal_work_is_the_same_number_of_samples():
    assert equal_work([an_option(samples=1000.0), an_option(samples=1000.2)])
    assert not equal_work([an_option(samples=1000.0), an_option(samples=2000.0)])
    assert equal_work([an_option(samples=1000.0), an_option(fits=False)])


def test_unequal_work_is_ranked_by_the_cost_of_training_a_sample():
    ranked = rank_options(
        [
            an_option(10, samples=1000, instance="little"),  # 1 cent a sample
            an_option(40, samples=8000, instance="much"),  # half a cent
        ]
    )
    assert names(ranked) == ["much", "little"]
    # $10,000 against $5,000; 3600 s / 1000 against 3600 s / 8000
    assert ranked[1].why_not == ("costs $5,000.00 more a million samples and takes 8.0x as long")
    assert Plan(options=ranked, chosen=None).ranked_by == "training cost per million samples"


def test_unequal_work_leaves_set_up_out():
    def cost(compute, setup):
        lines = (
            Line(name="compute", usd=compute),
            Line(name="checkpoints", usd=1),
            Line(name="spot repetition", usd=2),
            Line(name="set-up", usd=setup),
        )
        return Cost(breakdown=Breakdown(lines=lines))

    dear_start = an_option(cost=cost(7, 90), samples=2000, instance="dear to set up")
    cheap_start = an_option(cost=cost(17, 0), samples=1000, instance="cheap to set up")
    # (7 + 1 + 2) / 2000 x 10^6 against (17 + 1 + 2) / 1000 x 10^6
    assert dear_start.training_usd_per_million_samples == pytest.approx(5_000)
    assert cheap_start.training_usd_per_million_samples == pytest.approx(20_000)
    # (7 + 1 + 2 + 90) / 2000 x 10^6
    assert dear_start.usd_per_million_samples == pytest.approx(50_000)
    assert names(rank_options([cheap_start, dear_start])) == ["dear to set up", "cheap to set up"]


def test_on_ones_own_machine_training_is_its_share_of_the_time():
    option = an_option(
        tenancy="owned", cost=a_cost(10, name="electricity"), run=a_run(3600, setup_s=3600)
    )
    # half of 10 dollars for 1000 samples
    assert option.training_usd_per_million_samples == pytest.approx(5_000)


def test_what_does_not_run_has_no_cost_a_sample():
    option = an_option(fits=False)
    assert option.usd_per_million_samples is None
    assert option.training_usd_per_million_samples is None
    assert option.training_s_per_sample == float("inf")
    assert option.calendar_s is None


def test_what_has_no_price_has_no_cost_a_sample():
    option = an_option(None, 3600, samples=1000)
    assert option.usd_per_million_samples is None
    assert option.training_usd_per_million_samples is None
    assert option.training_s_per_sample == pytest.approx(3.6)


def test_equal_work_is_ranked_by_cost():
    assert Plan(options=(an_option(), an_option()), chosen=None).ranked_by == "cost"


# --- the frontier ---


def beaten(one, others):
    """Whether another is no worse in both, and better in one."""
    usd, time_s = one
    return any(
        other_usd <= usd and other_s <= time_s and (other_usd, other_s) != one
        for other_usd, other_s in others
    )


points = st.tuples(st.integers(1, 12).map(float), st.integers(1, 12).map(float))


@given(st.lists(points, min_size=1, max_size=15))
@settings(deadline=None)
def test_the_frontier_is_what_nothing_beats(chances):
    ranked = rank_options([an_option(usd, time_s) for usd, time_s in chances])
    found = {(one.cost.usd, one.run.busy_s) for one in ranked if one.on_frontier}
    assert found == {one for one in chances if not beaten(one, chances)}


sounds = st.sampled_from([(), (), (ODD,), (GONE,)])
chances_of = st.lists(st.tuples(points, sounds), min_size=1, max_size=12)
waiting = st.sampled_from([0.0, 5.0])


def many(chances, *, limits=None, waiting_usd=0.0):
    """Options named by their place in a list of (cost, time) and doubts."""
    return [
        an_option(
            usd,
            time_s,
            doubts=doubts,
            limits=limits,
            prefer=Preferences(waiting_usd_per_hour=waiting_usd * HOUR_S),
            instance=f"{place:02}",
        )
        for place, ((usd, time_s), doubts) in enumerate(chances)
    ]


@given(chances_of, waiting)
@settings(deadline=None)
def test_nothing_sound_beats_a_member_and_every_other_is_beaten_or_equalled(chances, waiting_usd):
    sound = [one for one in rank_options(many(chances, waiting_usd=waiting_usd)) if one.sound]
    members = [one for one in sound if one.on_frontier]
    for member in members:
        assert not any(one.usd < member.usd and one.busy_s <= member.busy_s for one in sound)
        assert not any(one.usd <= member.usd and one.busy_s < member.busy_s for one in sound)
    for other in sound:
        assert other.on_frontier or any(
            one.usd <= other.usd and one.busy_s <= other.busy_s for one in members
        )


@given(chances_of, st.data(), waiting)
@settings(deadline=None)
def test_a_cheaper_identical_offer_never_ranks_lower(chances, data, waiting_usd):
    place = data.draw(st.integers(0, len(chances) - 1))
    (usd, time_s), doubts = chances[place]
    less = data.draw(st.integers(1, 99)) / 100 * usd
    limits = data.draw(st.sampled_from([None, Limits(budget_usd=6), Limits(deadline_s=6)]))
    options = many([*chances, ((less, time_s), doubts)], limits=limits, waiting_usd=waiting_usd)
    ranks = {one.offer.instance: one.rank for one in rank_options(options)}
    assert ranks[f"{len(chances):02}"] < ranks[f"{place:02}"]


def feasible(chances, **limits):
    ranked = rank_options(many(chances, limits=Limits(**limits)))
    return {one.offer.instance for one in ranked if one.feasible}


bounds = st.tuples(st.floats(0, 15), st.floats(0, 15)).map(sorted)


@given(chances_of, bounds)
@settings(deadline=None)
def test_more_budget_never_removes_an_option(chances, budgets):
    less, more = budgets
    assert feasible(chances, budget_usd=less) <= feasible(chances, budget_usd=more)
    assert feasible(chances, budget_usd=more) <= feasible(chances)


@given(chances_of, bounds)
@settings(deadline=None)
def test_a_later_deadline_never_removes_an_option(chances, deadlines):
    sooner, later = deadlines
    assert feasible(chances, deadline_s=sooner) <= feasible(chances, deadline_s=later)
    assert feasible(chances, deadline_s=later) <= feasible(chances)


@given(st.lists(points, min_size=1, max_size=10), st.integers(1, 12), st.data())
@settings(deadline=None)
def test_the_choice_is_the_cheapest_sound_option(chances, budget_usd, data):
    limits = Limits(budget_usd=budget_usd)
    options = []
    for usd, time_s in chances:
        doubts = data.draw(st.sampled_from([(), (ODD,), (GONE,)]))
        options.append(an_option(usd, time_s, doubts=doubts, limits=limits))
    ranked = rank_options(options)
    sound = [one.cost.usd for one in options if not one.offer.doubts and one.cost.usd <= budget_usd]
    chosen = choose(ranked)
    assert (chosen.cost.usd if chosen else None) == min(sound, default=None)
    assert sorted(one.rank for one in ranked) == list(range(1, len(chances) + 1))
    assert [one for one in ranked if one.why_not is None] == ([chosen] if chosen else [])


def test_the_frontier_is_of_sound_options_fastest_first():
    ranked = rank_options(
        [
            an_option(10, 3600, instance="cheap"),
            an_option(20, 1800, instance="fast"),
            an_option(25, 1900, instance="beaten"),
            an_option(1, 60, instance="doubtful", doubts=[ODD]),
        ]
    )
    plan = Plan(options=ranked, chosen=choose(ranked))
    assert names(plan.frontier) == ["fast", "cheap"]


# --- break-even ---


def a_purchase(*, purchase_usd=2000.0, resale_usd=500.0, electricity_usd=1.0, hours=10.0, **more):
    """A machine to be bought on which the run takes 10 hours and a dollar of electricity."""
    owned = OwnedMachine(
        electricity_usd_per_kwh=0.25,
        host_w=100,
        purchase_usd=purchase_usd,
        resale_usd=resale_usd,
        lifetime_use_s=3000 * HOUR_S,
    )
    lines = (
        Line(name="electricity", usd=electricity_usd),
        # 10 h of 3,000
        Line(name="purchase less resale", usd=(purchase_usd - resale_usd) * hours / 3000),
    )
    return an_option(
        offer=an_offer(instance="desk", usd=None, owned=owned),
        tenancy="owned",
        cost=Cost(breakdown=Breakdown(lines=lines)),
        run=a_run(hours * HOUR_S),
        **more,
    )


def test_break_even_against_the_cheapest_rental():
    ranked = rank_options(
        [a_purchase(), an_option(16, instance="rented"), an_option(99, instance="dear")]
    )
    (one,) = break_evens(ranked)
    assert (one.buy, one.rent) == ("desk", "acme rented on-demand")
    # the same work: $16 rented against $1 of electricity in 10 hours
    assert one.rented_usd_per_hour == pytest.approx(1.6)
    assert one.owned_usd_per_hour == pytest.approx(0.1)
    # (2000 - 500) / (1.6 - 0.1) = 1000 hours
    assert (one.purchase_usd, one.resale_usd) == (2000, 500)
    assert one.use_s == pytest.approx(1000 * HOUR_S)


def test_break_even_compares_the_same_work():
    ranked = rank_options([a_purchase(samples=500.0), an_option(32, samples=1000.0)])
    (one,) = break_evens(ranked)
    # half the work costs $16 to rent
    assert one.rented_usd_per_hour == pytest.approx(1.6)


def bought_for(usd):
    return lambda _: Cash(payments=(Line(name="purchase", usd=usd),))


def test_break_even_stands_where_the_budget_excludes_buying_and_says_so():
    limits = Limits(budget_usd=100.0)
    ranked = rank_options(
        [a_purchase(limits=limits, cash_of=bought_for(2000.0)), an_option(16, limits=limits)]
    )
    (one,) = break_evens(ranked)
    assert one.use_s == pytest.approx(1000 * HOUR_S)
    assert one.over_budget == "needs $2,000 on the first day, over the budget of $100"
    (within,) = break_evens(rank_options([a_purchase(cash_of=bought_for(2000.0)), an_option(16)]))
    assert within.over_budget is None


def test_a_set_up_fee_is_paid_once_however_long_one_rents():
    lines = (Line(name="compute", usd=16.0), Line(name="set-up fee", usd=300.0))
    rented = an_option(cost=Cost(breakdown=Breakdown(lines=lines)))
    (one,) = break_evens(rank_options([a_purchase(), rented]))
    assert one.rented_usd_per_hour == pytest.approx(1.6)
    # (2000 - 500 - 300) / (1.6 - 0.1) = 800 hours
    assert one.use_s == pytest.approx(800 * HOUR_S)


def test_break_even_never():
    ranked = rank_options([a_purchase(), an_option(0.5)])
    assert [one.use_s for one in break_evens(ranked)] == [None]


def test_break_even_takes_no_doubtful_rental():
    ranked = rank_options([a_purchase(), an_option(16, doubts=[ODD])])
    assert break_evens(ranked) == ()


def test_a_machine_one_has_breaks_even_with_nothing():
    had = a_purchase()
    owned = OwnedMachine(electricity_usd_per_kwh=0.25, host_w=100)
    had = replace(had, offer=replace(had.offer, owned=owned))
    assert break_evens(rank_options([had, an_option(16)])) == ()


def test_why_not_speaks_of_money_paid():
    # waiting is worth $3 an hour: 10 + 30 against 20 + 15
    prefer = Preferences(waiting_usd_per_hour=3.0)
    slow = an_option(10, 10 * HOUR_S, instance="slow", prefer=prefer)
    fast = an_option(20, 5 * HOUR_S, instance="fast", prefer=prefer)
    chosen, loser = rank_options([slow, fast])
    assert chosen.offer.instance == "fast"
    assert loser.why_not.startswith("costs $10.00 less and takes 2.0x as long")
