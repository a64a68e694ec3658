"""The three lines above the table, and what they leave out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import (
    a_doubt,
    a_plan,
    a_profile,
    a_run,
    a_workload,
    an_offer,
    an_option,
    span,
)

from outlay.cost.cash import Cash
from outlay.cost.lines import Breakdown, Cost, Line, UnpricedItem
from outlay.offers.offer import Commitment
from outlay.plan.ranking import BreakEven, Plan
from outlay.plan.sensitivity import Swing, TrialValue
from outlay.report.console import Page
from outlay.report.plan import answer, print_plan, rent_or_buy, trial_words, worth_knowing
from outlay.uncertainty import LIKELY
from outlay.units import DAY_S, HOUR_S
from outlay.workload.workload import Limits, Preferences, Usage


def said(*options, workload=None, break_even=()):
    """The lines of the answer."""
    plan = a_plan(*options, break_even=break_even)
    return [line.plain for line in answer(plan, workload or a_workload())]


def test_what_to_take_what_it_is_spent_on_and_nothing_else():
    assert said(an_option(10, 10 * HOUR_S)) == [
        "Take: 1x T4 at acme (box), on-demand: $10.00, 10.0 h.",
        "Mostly compute $10.00; >99 % of the time is training.",
        "Nothing else satisfies the limits.",
    ]


def test_the_largest_lines_are_named_and_how_much_of_the_time_trains():
    lines = {"set-up": 1.0, "compute": 75.0, "idle": 4.0, "storage": 20.0, "tax": 0.5}
    cost = Cost(
        breakdown=Breakdown(lines=tuple(Line(name=name, usd=usd) for name, usd in lines.items())),
        unpriced=(UnpricedItem(what="egress"),),
    )
    run = a_run(15 * HOUR_S, setup_s=5 * HOUR_S)
    _, spent, _ = said(an_option(cost=cost, run=run))
    # 15 of 20 h
    assert spent == (
        "Mostly compute $75.00, storage $20.00, idle $4.00; 75 % of the time is training."
    )


def test_ranges_and_chances():
    def outcome(sampler):
        run = a_run(sampler.of("speed", span(5, 10, 20)) * HOUR_S)
        line = Line(name="compute", usd=run.busy_s / HOUR_S)
        return run, Cost(breakdown=Breakdown(lines=(line,)))

    run, cost = outcome(LIKELY)
    limits = Limits(budget_usd=20.0, deadline_s=10 * HOUR_S, confidence=0.4)
    option = an_option(run=run, cost=cost, outcome=outcome, limits=limits)
    take, spent, _ = said(option, workload=a_workload(limits=limits))
    # the mean: 10 x e^(s^2/2) = 11.575 with s = ln 2 / 1.2816, less a little of the far end
    assert take.endswith(": $10.00 ($5.00-20.00; $11.57 on average), 10.0 h (5.0 h - 20.0 h).")
    assert spent.endswith("Chance of keeping the budget: 90 %, the deadline: 50 %.")


def test_who_wants_it_faster_or_without_interruptions():
    spot = an_option(
        10, tenancy="spot", offer=an_offer(spot_usd=1.0), run=a_run(10 * HOUR_S, interruptions=0.31)
    )
    kept = an_option(20, 9 * HOUR_S, instance="kept")
    fast = an_option(30, 5 * HOUR_S, instance="fast")
    *_, instead = said(spot, kept, fast)
    assert instead == (
        "In half the time or less: 1x T4 at acme on-demand, $30.00 in 5.0 h. "
        "Without interruptions: 1x T4 at acme on-demand, $20.00 in 9.0 h."
    )
    (known,) = worth_knowing(a_plan(spot, kept, fast), None, None)
    assert known == "Expected interruptions of this run: 0.31."


def test_take_names_its_condition():
    offer = an_offer("aws", "p9.large", spot_usd=1.0, region="eu-west-9")

    def outcome(sampler):
        price = sampler.of("spot price: aws", 1.0)
        return a_run(10 * HOUR_S), Cost(
            breakdown=Breakdown(lines=(Line(name="compute", usd=10 * price),))
        )

    _, cost = outcome(LIKELY)
    prefer = Preferences(usd_per_start=0.0)
    spot = an_option(
        tenancy="spot",
        offer=offer,
        run=a_run(10 * HOUR_S),
        cost=cost,
        outcome=outcome,
        prefer=prefer,
    )
    take, *_ = said(spot, an_option(23, 9 * HOUR_S, instance="kept", prefer=prefer))
    # $23 are 10 h at $2.30
    assert "$10.00, 10.0 h, if the spot price is still below $2.30 an hour; check it with " in take
    assert "aws ec2 describe-spot-price-history --instance-types p9.large" in take
    assert "--region eu-west-9" in take


def test_a_tie_is_said_and_why_the_choice_is_not_the_first():
    spot = an_option(98.0, tenancy="spot", offer=an_offer("aws", "a", spot_usd=1.0))
    kept = an_option(101.0, instance="kept")
    _, tie, *_ = said(spot, kept)
    # $98 and a dollar for the start against $101: 2 %, $2
    assert tie == (
        "As good within the error: #1 (1x T4 at aws spot, $98.00 on average in 1.0 h); taken "
        "because it is on demand."
    )


def test_many_spot_gpus_at_once_are_a_caution():
    words = "64 spot H100 SXM at once may not be available in one region"
    option = an_option(10, tenancy="spot", scarcity=words)
    assert f"Caution: {words}." in said(option)


def frontier_shown(plan, capsys):
    """The rows of the table of what is faster for more money."""
    print_plan(Page(width=120), plan, a_workload(), a_profile(), full=True)
    _, _, after = capsys.readouterr().out.partition("Faster for more money")
    table, _, _ = after.partition("Assumed")
    return [line.split() for line in table.splitlines()[2:] if line.strip()]


def test_faster_for_more_money_is_faster_and_dearer_than_the_choice(capsys):
    # by the cost of a million samples: $10,000 in 1,000 h, $12,000 in 500 h, $30,000 in 2,000 h
    chosen = an_option(10, 3600, samples=1000, instance="chosen")
    fast = an_option(24, 3600, samples=2000, offer=an_offer(gpu="L4"))
    slow = an_option(15, 3600, samples=500, offer=an_offer(gpu="A10"))
    rows = frontier_shown(a_plan(chosen, fast, slow), capsys)
    # 1,000 h are 41.7 days
    assert rows == [
        ["1", "41.7", "d", "$10,000", "1x", "T4", "acme", "on-demand"],
        ["2", "20.8", "d", "$12,000", "1x", "L4", "acme", "on-demand"],
    ]


def test_the_frontier_begins_with_a_choice_that_is_not_the_cheapest(capsys):
    spot = an_option(98, 3000, tenancy="spot", offer=an_offer(spot_usd=1.0))
    kept = an_option(101, 3600, instance="kept")
    fast = an_option(150, 1800, offer=an_offer(gpu="L4"))
    rows = frontier_shown(a_plan(spot, kept, fast), capsys)
    assert [(row[3], row[-1]) for row in rows] == [
        ("$101.00", "on-demand"),
        ("$150.00", "on-demand"),
    ]


def test_what_the_cost_hangs_on_most():
    chosen, other = an_option(10), an_option(11, offer=an_offer("mart", gpu="L4"))
    swing = Swing(name="speed: T4", value=span(1, 2, 3), usd=span(8, 10, 14), winner=other)
    (known,) = worth_knowing(a_plan(chosen, other), swing, None)
    assert known == (
        "Least certain: the speed of T4 ($8.00 to $14.00); at one end 1x L4 at mart on-demand is "
        "the better choice."
    )
    narrow = replace(swing, usd=span(9.9, 10, 10.1))
    assert list(worth_knowing(a_plan(chosen, other), narrow, None)) == []


def test_nights_count_in_the_calendar_and_sessions_by_the_month():
    take, *_ = said(an_option(10, run=a_run(8 * HOUR_S, calendar_s=2 * DAY_S)))
    assert take.endswith("8.0 h of machine time over 2.0 d.")
    month = an_option(10, run=a_run(8 * HOUR_S, calendar_s=30 * DAY_S, recurring=True))
    take, *_ = said(month, workload=a_workload(usage=Usage(sessions_per_month=4)))
    assert take.endswith("$10.00 a month, 8.0 h.")


def test_ones_own_currency_stands_beside_dollars():
    workload = a_workload(currency="KRW", usd_per_unit=0.001)
    take, *_ = said(an_option(10), workload=workload)
    # $10 / 0.001
    assert "$10.00 (10,000 KRW)" in take


def test_the_nearest_is_sound_however_cheap_a_stale_price_is():
    limits = Limits(budget_usd=5)
    stale = an_option(1, limits=limits, instance="stale", doubts=[a_doubt("stale")])
    late = an_option(6, limits=limits, instance="near")
    (words,) = said(stale, late, an_option(9, limits=limits))
    assert words.endswith("Nearest: 1x T4 at acme on-demand, $6.00: over budget by $1.00.")


def test_no_answer_names_the_nearest():
    limits = Limits(budget_usd=5)
    assert said(an_option(10, limits=limits), an_option(8, limits=limits, instance="near")) == [
        (
            "No option satisfies the limits. "
            "Nearest: 1x T4 at acme on-demand, $8.00: over budget by $3.00."
        )
    ]


@pytest.mark.parametrize(
    ("gain_usd", "words"),
    [
        (
            5.0,
            (
                "Try both first: ten minutes of it and of 1x L4 at acme cost $2.00 and save $5.00 "
                "on average (40 % that the other is cheaper): outlay bench 'my run.toml' --on "
                "worth-it (its [run] table names your script)"
            ),
        ),
        (
            0.5,
            (
                "No trial needed: ten minutes of it and of 1x L4 at acme would cost $2.00 and save "
                "$0.50 on average."
            ),
        ),
    ],
)
def test_whether_to_try_first(gain_usd, words):
    first, second = an_option(10), an_option(11, offer=an_offer(gpu="L4"))
    trial = TrialValue(first=first, second=second, cost_usd=2.0, gain_usd=gain_usd, second_wins=0.4)
    assert trial_words(trial, "my run.toml") == words
    known = worth_knowing(a_plan(first, second), None, trial, "my run.toml")
    assert list(known) == [words]


def a_term(upfront_fraction):
    return an_offer(
        commitment=Commitment(
            name="3 years, somehow", term_s=3 * 365 * DAY_S, price_usd_per_hour=1.0,
            upfront_fraction=upfront_fraction, source="its page",
        )
    )  # fmt: skip


def paying(upfront_usd=0.0, rest_usd=0.0):
    payments = (Line(name="upfront payment", usd=upfront_usd),) if upfront_usd else ()
    return lambda _: Cash(payments=payments, rest_usd=rest_usd, term_s=3 * 365 * DAY_S)


@pytest.mark.parametrize(
    ("cash", "words"),
    [
        (paying(67_983.0), "On day one: $67,983 (upfront payment)."),
        (
            paying(0.0, 50_000.0),
            (
                "It binds you for 3 years, somehow: $50,000 must be paid by its end, even if you "
                "stop early."
            ),
        ),
        (
            paying(25_000.0, 25_000.0),
            (
                "On day one: $25,000 (upfront payment). It binds you for 3 years, somehow: $25,000 "
                "more must be paid by its end, even if you stop early."
            ),
        ),
    ],
)
def test_the_answer_says_what_must_be_paid_on_day_one(cash, words):
    option = an_option(10, tenancy="reserved", offer=a_term(1.0), cash_of=cash)
    assert words in said(option)


@pytest.mark.parametrize(("usd", "is_said"), [(0.35, False), (10.0, False), (25.0, True)])
def test_a_balance_is_said_where_it_is_more_than_the_run_costs(usd, is_said):
    balance = Cash(payments=(Line(name="balance", usd=usd),))
    lines = said(an_option(10, cash_of=lambda _: balance))
    assert any(line.startswith("On day one") for line in lines) is is_said


def test_cash_is_said_in_ones_own_currency_too():
    option = an_option(10, cash_of=paying(100.0))
    lines = said(option, workload=a_workload(currency="KRW", usd_per_unit=0.001))
    assert "On day one: $100.00 (100,000 KRW) (upfront payment)." in lines


def test_buying_over_the_budget_is_said_where_it_would_pay():
    over = replace(a_break_even(1000 * HOUR_S), over_budget="needs more than there is")
    assert said(an_option(10), break_even=(over,))[-1] == (
        "Buying desk becomes cheaper than renting after 1,000 h of use (167 days as it is used), "
        "but needs more than there is."
    )
    (line,) = rent_or_buy(Plan(options=(), chosen=None, break_even=(over,)))
    assert line.endswith("; needs more than there is")


def a_break_even(use_s):
    return BreakEven(
        buy="desk",
        rent="acme box on-demand",
        use_s=use_s,
        life_use_s=4000 * HOUR_S,
        calendar_s=None if use_s is None else 4 * use_s,
        owned_usd_per_hour=0.5,
        rented_usd_per_hour=2.0,
        purchase_usd=2200.0,
        resale_usd=200.0,
    )


def test_when_buying_pays():
    pays, never = a_break_even(1000 * HOUR_S), a_break_even(None)
    # 4,000 h by the calendar: 166.7 days
    assert said(an_option(10), break_even=(pays,))[-1] == (
        "Buying desk becomes cheaper than renting after 1,000 h of use (167 days as it is used)."
    )
    assert (
        said(an_option(10), break_even=(never,))[-1]
        == "Buying desk never becomes cheaper than renting here."
    )
    costs = "it costs $0.50/h to run, renting its work $2.00/h (acme box on-demand)"
    assert list(rent_or_buy(Plan(options=(), chosen=None, break_even=(pays, never)))) == [
        "desk ($2,200 less $200.00 resale) becomes cheaper after 1,000 h of use (167 days as it is "
        "used); " + costs,
        "desk ($2,200 less $200.00 resale) never becomes cheaper: running it costs more than "
        "renting the same work; " + costs,
    ]


def test_the_next_best_is_another_machine_and_not_the_same_words_again():
    chosen = an_option(10, offer=an_offer(region="east"))
    same = an_option(10, offer=an_offer(region="west"))
    other = an_option(12, HOUR_S, offer=an_offer("mart", gpu="L4"))
    assert said(chosen, same, other)[-1] == "Next best: 1x L4 at mart on-demand, $12.00 in 1.0 h."
    assert said(chosen, same)[-1] == "Nothing else satisfies the limits."


def page_of(plan, capsys, workload=None, **how):
    """What is printed, line by line."""
    print_plan(Page(width=120), plan, workload or a_workload(), a_profile(), **how)
    return capsys.readouterr().out.splitlines()


def test_the_column_that_is_ranked_by_is_in_order_and_marks_what_is_in_no_bill(capsys):
    prefer = Preferences(usd_per_start=4.0)
    unpriced = Cost(
        breakdown=Breakdown(lines=(Line(name="compute", usd=48.40),)),
        unpriced=(UnpricedItem(what="storage", usual_usd=18.90),),
    )
    options = [
        an_option(55.56, instance="a", offer=an_offer("acme", gpu="T4")),
        an_option(cost=unpriced, offer=an_offer("mart", gpu="L4")),
        an_option(68.72, offer=an_offer("yard", gpu="A10")),
        an_option(60.00, tenancy="spot", offer=an_offer("bay", spot_usd=1.0), prefer=prefer),
    ]
    lines = page_of(a_plan(*options), capsys)
    start = next(place for place, line in enumerate(lines) if "EXPECTED" in line)
    cells = [line.split("1.0 h")[1].split()[0] for line in lines[start + 1 : start + 5]]
    # 60 and 4 for its start; 48.40 and the usual 18.90 for what has no price
    assert cells == ["$55.56", "$64.00*", "$67.30*", "$68.72"]
    assert "$18.90 unpriced" in "\n".join(lines)
    assert any(line.startswith("  * Counts, beside the bill: interruptions") for line in lines)


def test_one_screen_has_no_more_than_the_answer_the_best_and_how_to_see_more(capsys):
    options = [
        an_option(10.0 + n, (20 - n) * HOUR_S, offer=an_offer(f"shop {n}")) for n in range(15)
    ]
    late = an_option(1, 30 * HOUR_S, limits=Limits(budget_usd=0.5), instance="late")
    stale = an_option(2, instance="stale", doubts=[a_doubt("stale")], offer=None)
    plan = replace(a_plan(*options, late, stale), assumptions=("One.", "Two."))
    short, full = page_of(plan, capsys), page_of(plan, capsys, full=True)
    assert len(short) <= 18
    assert sum("shop" in line for line in short if line.startswith("  ")) == 5
    assert not any(line.startswith(("Assumed", "Ruled out", "Faster for more")) for line in short)
    # What would be cheaper is not hidden, but that its price is doubtful.
    (doubtful,) = [line for line in short if line.startswith("Cheaper at doubtful prices")]
    assert "1, from $2.00" in doubtful
    more = " ".join(short[-2:])
    assert "--full:" in more
    assert "1 option ruled out, 2 assumptions" in more
    assert any(line.startswith("Assumed") for line in full)
    assert any(line.startswith("Ruled out") for line in full)


def test_an_own_offer_that_lost_is_on_the_first_screen_with_the_reason(capsys):
    mine = an_offer("north", "my box", quoted=True)
    limits = Limits(budget_usd=20.0)
    plan = a_plan(an_option(10, limits=limits), an_option(30, offer=mine, limits=limits))
    assert "Your 1x T4 (my box) at north: over budget by $10.00." in page_of(plan, capsys)
