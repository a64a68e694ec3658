from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import (
    a_cost,
    a_doubt,
    a_fact,
    a_gpu,
    a_run,
    a_step,
    an_offer,
    an_option,
    span,
)

from outlay.cost.cash import Cash
from outlay.cost.lines import Breakdown, Cost, Line
from outlay.offers.offer import OwnedMachine
from outlay.plan.assumptions import scarcity_note
from outlay.plan.ranking import (
    Plan,
    advantage_of,
    break_evens,
    choose,
    equal_work,
    nearest_option,
    rank_options,
    tie_spot_usd_per_hour,
    tie_usd_per_hour,
    trouble_of,
)
from outlay.uncertainty import LIKELY
from outlay.units import DAY_S, HOUR_S
from outlay.workload.workload import Limits, Preferences, WorthSwitching


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


# --- by the mean of simulated runs ---


def drawn(name, hours, **said):
    """An option that takes uncertain hours, at a dollar each."""

    def outcome(sampler):
        taken = sampler.of(name, hours)
        line = Line(name="compute", usd=taken)
        return a_run(taken * HOUR_S), Cost(breakdown=Breakdown(lines=(line,)))

    run, cost = outcome(LIKELY)
    return an_option(run=run, cost=cost, outcome=outcome, **said)


def by_luck(*amounts, **said):
    """An option whose bill is the first amount in so many cases of common luck, and so on."""

    def outcome(sampler):
        # a log-normal with a deviation of 1: its logarithm is a standard normal
        width = np.exp(1.2815515594)
        luck = np.log(sampler.of("luck", span(1 / width, 1.0, width)))
        shares = np.cumsum([share for share, _ in amounts])[:-1]
        limits = [NormalDist().inv_cdf(share) for share in shares]
        bills = np.asarray([usd for _, usd in amounts])
        usd = bills[np.searchsorted(limits, luck)]
        line = Line(name="compute", usd=usd if np.ndim(usd) else float(usd))
        return a_run(), Cost(breakdown=Breakdown(lines=(line,)))

    return an_option(run=a_run(), cost=outcome(LIKELY)[1], outcome=outcome, **said)


def by_the_hour(**said):
    """Two hours at $1.32, and a third in 37 % of all cases."""
    return by_luck((0.63, 2.64), (0.37, 3.96), **{"instance": "hourly"} | said)


def by_the_second(**said):
    """Likely dearer than two hours there; cheaper where it is fast, or slow."""
    return by_luck((0.47, 2.50), (0.16, 2.80), (0.37, 3.10), **{"instance": "rival"} | said)


def test_the_mean_of_its_draws_decides_and_not_the_likely_figure():
    hourly, rival = by_the_hour(), by_the_second()
    assert (hourly.usd, rival.usd) == (2.64, 2.80)
    # 2.64 + 0.37 x 1.32; 0.47 x 2.50 + 0.16 x 2.80 + 0.37 x 3.10
    assert hourly.expected_cost_usd == pytest.approx(3.1284)
    assert rival.expected_cost_usd == pytest.approx(2.77)
    assert np.mean(rival.simulated().usd < hourly.simulated().usd) == pytest.approx(0.84)
    ranked = rank_options([hourly, rival])
    assert names(ranked) == ["rival", "hourly"]
    assert choose(ranked) is ranked[0]
    assert ranked[1].why_not == "costs $0.36 more and takes as long"


@pytest.mark.parametrize(
    ("risk", "first"), [("likely", "hourly"), ("expected", "rival"), ("p90", "rival")]
)
def test_the_user_says_what_of_an_uncertain_cost_counts(risk, first):
    prefer = Preferences(risk=risk)
    ranked = rank_options(
        [
            by_the_hour(prefer=prefer),
            by_the_second(prefer=prefer),
        ]
    )
    assert names(ranked)[0] == first
    assert Plan(options=ranked, chosen=None).risk == risk


def test_the_order_is_that_of_expected_costs_and_the_same_every_time():
    options = [
        drawn(f"speed: {place}", span(place, place + 1, (place + 1) * 1.3), instance=f"{place:02}")
        for place in range(1, 30)
    ]
    ranked = rank_options(options)
    expected = [one.expected_cost_usd for one in ranked]
    assert expected == sorted(expected)
    assert names(ranked) == names(rank_options(list(reversed(options))))


def test_a_gpu_whose_speed_is_less_certain_pays_for_it():
    sure = drawn("speed: sure", span(9.5, 10, 10.5), instance="sure")
    unsure = drawn("speed: unsure", span(6, 9.9, 16), instance="unsure")
    assert unsure.usd < sure.usd
    assert names(rank_options([unsure, sure])) == ["sure", "unsure"]


def test_unequal_work_is_ranked_by_the_mean_too():
    sure = drawn("speed: sure", span(9.5, 10, 10.5), samples=1000.0, instance="sure")
    unsure = drawn("speed: unsure", span(6, 19.8, 64), samples=2000.0, instance="unsure")
    # $10,000 a million samples against $9,900
    assert unsure.training_usd_per_million_samples < sure.training_usd_per_million_samples
    assert names(rank_options([unsure, sure])) == ["sure", "unsure"]


# --- ties ---


def spot(usd, instance="spot", **said):
    return an_option(usd, tenancy="spot", instance=instance, **said)


FREE = Preferences(usd_per_start=0.0, usd_per_interruption=0.0)


def tie_of(*options):
    plan = Plan(options=rank_options(options), chosen=choose(rank_options(options)))
    return plan.chosen.offer.instance, plan.tie


def test_who_saves_less_than_5_percent_and_5_dollars_is_no_better():
    # $4 of $100
    chosen, tie = tie_of(spot(96, prefer=FREE), an_option(100, prefer=FREE))
    assert (chosen, tie) == ("box", (1, 2))


@pytest.mark.parametrize(
    ("usd", "others_usd"),
    [(100, 106), (195, 201), (9, 9.9)],
    ids=["more than both", "3 %, but $6", "$0.90, but 9 %"],
)
def test_who_saves_more_than_either_is_better(usd, others_usd):
    chosen, tie = tie_of(spot(usd, prefer=FREE), an_option(others_usd, prefer=FREE))
    assert (chosen, tie) == ("spot", (1,))


def test_who_wins_in_less_than_60_percent_of_the_draws_is_no_better():
    # far apart in dollars, but each is as uncertain as the other, and independent of it
    one = drawn("one", span(500, 1000, 2000), tenancy="spot", instance="spot", prefer=FREE)
    other = drawn("other", span(540, 1080, 2160), prefer=FREE)
    wins = np.mean(one.simulated().usd < other.simulated().usd)
    assert 0.5 < wins < 0.6
    assert tie_of(one, other) == ("box", (1, 2))
    # the same luck for both: the cheaper one always wins
    common = drawn("one", span(540, 1080, 2160), prefer=FREE)
    assert tie_of(one, common) == ("spot", (1,))


def test_what_is_worth_switching_is_the_users_choice():
    mean = Preferences(
        usd_per_start=0.0, worth_switching=WorthSwitching(usd=0.0, fraction=0.0, wins=0.0)
    )
    assert tie_of(spot(99, prefer=mean), an_option(100, prefer=mean)) == ("spot", (1,))
    generous = Preferences(
        usd_per_start=0.0, worth_switching=WorthSwitching(usd=50.0, fraction=1.0)
    )
    assert tie_of(spot(80, prefer=generous), an_option(99, prefer=generous)) == ("box", (1, 2))


def test_a_tie_is_told_of_who_lost_it():
    options = [spot(99, prefer=FREE), an_option(100, prefer=FREE)]
    assert why_not(options, "spot") == (
        "a tie, as good as the choice within the error: costs $1.00 less and takes as long; "
        "the choice was taken because it is on demand"
    )
    assert why_not(options, "box") is None


UNCHECKED = replace(a_step(), is_checked=False)


@pytest.mark.parametrize(
    ("worse", "better", "because"),
    [
        ({"tenancy": "spot"}, {}, "it is on demand"),
        ({"tenancy": "spot"}, {"tenancy": "owned"}, "it is yours"),
        ({"tenancy": "reserved"}, {"tenancy": "spot"}, "it binds you to nothing"),
        ({"needs_quota": True}, {}, "it needs no quota"),
        ({"data_distance": 2}, {"data_distance": 1}, "its data is nearer"),
        ({"step": UNCHECKED}, {}, "its GPU was checked against measurements"),
        (
            {"offer": an_offer(doubts=(a_doubt("region not verified", kind="note"),))},
            {},
            "it is known to be there",
        ),
        # the gravest decides
        ({"tenancy": "spot"}, {"needs_quota": True, "data_distance": 2}, "it is on demand"),
        ({"needs_quota": True}, {"data_distance": 2, "step": UNCHECKED}, "it needs no quota"),
    ],
)
def test_of_those_that_cannot_be_told_apart_the_least_trouble_is_taken(worse, better, because):
    first = replace(an_option(99, prefer=FREE, instance="first"), **worse)
    second = replace(an_option(100, prefer=FREE, instance="second"), **better)
    assert trouble_of(second) < trouble_of(first)
    assert advantage_of(second, first) == because
    assert advantage_of(first, second) is None
    ranked = rank_options([first, second])
    assert ranked[0].usd == 99
    assert choose(ranked) is ranked[1]


def test_of_equal_trouble_the_cheapest_is_taken():
    assert tie_of(an_option(100), an_option(99, instance="cheap")) == ("cheap", (1, 2))


# --- limits that are kept with a chance ---


def test_what_is_31_percent_likely_to_miss_the_deadline_is_not_chosen():
    # 10 h are likely, 20 h the 90th percentile; 31 % take longer than 10 h x 2^(0.496 / 1.2816)
    deadline_h = 10 * 2 ** (NormalDist().inv_cdf(0.69) / 1.2815515594)
    limits = Limits(deadline_s=deadline_h * HOUR_S)
    risky = drawn("speed", span(5, 10, 20), instance="risky", limits=limits)
    safe = an_option(50, HOUR_S, instance="safe", limits=limits)
    ranked = rank_options([risky, safe])
    assert names([choose(ranked)]) == ["safe"]
    assert ranked[1].why_not == "31 % likely to miss the deadline, where 20 % is allowed"
    assert ranked[1].usd < 50
    assert risky.run.completion_s < limits.deadline_s


def test_why_not_within_the_budget_with_enough_certainty():
    # the budget is the likely cost: half of all draws are above it
    limits = Limits(budget_usd=10, confidence=0.9)
    option = drawn("speed", span(5, 10, 20), limits=limits)
    assert why_not([option], "box") == "50 % likely to go over budget, where 10 % is allowed"


# --- capacity ---


@pytest.mark.parametrize(
    ("machines", "tenancy", "words"),
    [
        (8, "spot", "64 spot Card at once may not be available in one region"),
        (2, "spot", None),
        (8, "on-demand", None),
    ],
)
def test_many_spot_gpus_of_a_scarce_kind_are_a_caution(machines, tenancy, words):
    # its memory is HBM3; 16 of those are taken to be there
    assert scarcity_note(tenancy, a_step(gpus=8, nodes=machines)) == words


def test_of_other_gpus_more_are_there():
    plain = a_gpu(facts={"memory_type": a_fact("GDDR6")})
    assert scarcity_note("spot", a_step(gpus=8, nodes=8, gpu=plain)) is None
    assert scarcity_note("spot", a_step(gpus=8, nodes=9, gpu=plain)) is not None


# --- where nothing satisfies the limits ---


def test_the_nearest_is_sound_and_not_a_stale_price():
    limits = Limits(budget_usd=5)
    stale = an_option(1, doubts=[a_doubt("stale")], instance="stale", limits=limits)
    gone = an_option(5.5, doubts=[GONE], instance="gone", limits=limits)
    near = an_option(6, instance="near", limits=limits)
    far = an_option(9, instance="far", limits=limits)
    assert nearest_option(rank_options([stale, gone, far, near])).offer.instance == "near"
    assert nearest_option(rank_options([stale, gone])).offer.instance == "stale"
    assert nearest_option([]) is None


def test_the_nearest_is_over_its_limits_by_the_smallest_share():
    limits = Limits(budget_usd=10, deadline_s=10 * HOUR_S)
    # twice the budget; 1.5 times the deadline
    dear = an_option(20, HOUR_S, instance="dear", limits=limits)
    late = an_option(1, 15 * HOUR_S, instance="late", limits=limits)
    ranked = rank_options([dear, late])
    plan = Plan(options=ranked, chosen=choose(ranked))
    assert plan.chosen is None
    assert plan.nearest.offer.instance == "late"
    assert plan.tie == ()


# --- the condition ---


def priced(price, *, hours=10.0, provider="aws", **said):
    """An option at a spot price, which its bill grows with."""

    def outcome(sampler):
        usd = hours * sampler.of(f"spot price: {provider}", price)
        return a_run(hours * HOUR_S), Cost(
            breakdown=Breakdown(lines=(Line(name="compute", usd=usd), Line(name="disk", usd=5.0)))
        )

    run, cost = outcome(LIKELY)
    offer = an_offer(provider, "p9.large", region="eu-9", spot_usd=cost.usd / hours)
    said = {"prefer": FREE, "tenancy": "spot", "offer": offer} | said
    return an_option(run=run, cost=cost, outcome=outcome, **said)


def conditions(*options, today=""):
    return {one.offer.instance: one.condition for one in rank_options(options, today)}


def test_a_spot_option_is_taken_below_the_price_at_which_the_next_is_as_good():
    # $5 and 10 h x $1 against $40: $3.50 an hour
    said = conditions(priced(1.0), an_option(40, instance="kept", prefer=FREE))
    assert said["p9.large"].startswith("if the spot price is still below $3.50 an hour; check it")
    assert said["p9.large"].endswith(
        "aws ec2 describe-spot-price-history --instance-types p9.large --region eu-9 "
        "--product-descriptions Linux/UNIX --start-time $(date +%s)"
    )
    assert said["kept"] is None


def test_the_price_it_is_held_against_is_one_that_is_seen_whatever_is_drawn():
    assert tie_spot_usd_per_hour(priced(span(0.5, 1.0, 4.0)), 40.0) == pytest.approx(3.50)
    # a provider charges no more for spot than on demand, where a draw is cut off
    free = priced(1.0)

    def capped(sampler):
        usd = 10 * np.minimum(sampler.of("spot price: aws", span(0.5, 1.0, 4.0)), 1.2) + 5
        return a_run(10 * HOUR_S), Cost(breakdown=Breakdown(lines=(Line(name="x", usd=usd),)))

    assert tie_spot_usd_per_hour(replace(free, outcome=capped), 16.0) == pytest.approx(1.10)


def test_a_rival_that_is_as_good_sets_no_price():
    same = priced(1.01, provider="gcp")
    said = conditions(priced(1.0), same, an_option(40, instance="kept", prefer=FREE))
    assert "below $3.50 an hour" in said["p9.large"]


def test_a_quote_above_the_price_that_pays_is_not_still_below_it():
    # Expected at half its quote: it pays below $3.50, and was seen at $4.00.
    option = priced(1.0)
    seen = replace(option, offer=replace(option.offer, spot_usd_per_hour=4.0))
    said = conditions(seen, an_option(40, instance="kept", prefer=FREE))["p9.large"]
    assert said is not None
    assert "still" not in said


def test_a_spot_option_that_lost_is_worth_its_price_at_most():
    said = conditions(priced(3.0), an_option(10, instance="kept", prefer=FREE))
    assert said["p9.large"].startswith("if the spot price is still $3.50 an hour or less")


@pytest.mark.parametrize(
    ("provider", "how"),
    [
        ("gcp", "check it at https://cloud.google.com/spot-vms/pricing"),
        ("azure", "armSkuName eq 'p9.large' and armRegionName eq 'eu-9'"),
        ("nobody knows", "an hour"),
    ],
)
def test_each_provider_says_its_spot_prices_itself(provider, how):
    assert how in conditions(priced(1.0, provider=provider))["p9.large"]


def test_an_old_price_is_to_be_looked_at_again():
    option = an_option(10, offer=an_offer(usd=2.5, as_of="2026-01-01"))
    assert conditions(option, today="2026-01-31")["box"] is None
    assert conditions(option, today="2026-02-01")["box"] == (
        "if it is still $2.50 an hour, as on 2026-01-01"
    )
    quote = an_option(10, offer=an_offer(usd=2.5, as_of="2025-01-01", quoted=True))
    assert conditions(quote, today="2026-02-01")["box"] is None


# --- reasons ---


def test_why_not_over_budget():
    options = [an_option(60, limits=Limits(budget_usd=50))]
    assert why_not(options, "box") == "over budget by $10.00"
    assert choose(rank_options(options)) is None


def test_why_not_over_budget_and_too_late():
    options = [an_option(60, limits=Limits(budget_usd=50, deadline_s=1.0))]
    said = why_not(options, "box")
    assert said is not None
    assert said.startswith("over budget by $10.00, and misses the deadline by ")


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
