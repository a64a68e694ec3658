from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import (
    HABITS,
    a_bill,
    a_doubt,
    a_run,
    a_step,
    a_workload,
    an_offer,
    some_terms,
    span,
)

from outlay.cost.bill import billed_s, committed_s, cost_of
from outlay.offers.offer import Commitment, OwnedMachine
from outlay.predict.run_time import pace_of, run_of
from outlay.uncertainty import LIKELY, Draws
from outlay.units import DAY_S, GB, HOUR_S, MONTH_S
from outlay.workload.workload import (
    Cadence,
    Checkpoint,
    Dataset,
    Evaluation,
    Length,
    OwnTime,
    StoredData,
    Usage,
)


def billed(
    run, *, usd=2.0, terms=(), offer=None, sampler=LIKELY, interest_per_year=0.0, **workload
):
    more = {} if offer is None else {"offer": offer}
    more["interest_per_year"] = interest_per_year
    return cost_of(
        a_workload(**workload), a_bill(run, usd=usd, terms=terms, sampler=sampler, **more)
    )


def amounts(cost):
    return {line.name: pytest.approx(line.usd) for line in cost.breakdown.lines}


# --- a machine's time ---


def test_compute_is_hours_times_the_price():
    cost = billed(a_run(10 * HOUR_S))
    # 10 h x $2
    assert amounts(cost) == {"compute": 20}
    assert cost.usd == pytest.approx(20)
    assert cost.unknown == ()


@pytest.mark.parametrize(
    ("part", "line"),
    [
        ("provisioning_s", "provisioning"),
        ("setup_s", "set-up"),
        ("download_s", "data download"),
        ("preparation_s", "data preparation"),
        ("warmup_s", "warm-up"),
        ("evaluation_s", "evaluation"),
        ("checkpoint_s", "checkpoints"),
        ("lost_s", "spot repetition"),
        ("restart_s", "spot restarts"),
        ("idle_s", "idle"),
    ],
)
def test_each_part_of_a_run_has_its_line(part, line):
    cost = billed(a_run(10 * HOUR_S, **{part: 0.25 * HOUR_S}))
    # 10 h x $2, a quarter of an hour x $2
    assert amounts(cost) == {"compute": 20, line: 0.5}


def test_several_machines_are_all_paid():
    # 3 x 10 h x $2
    assert billed(a_run(10 * HOUR_S), usage=Usage(machines=3)).usd == pytest.approx(60)


def test_a_line_says_how_it_came_about():
    line = billed(a_run(10 * HOUR_S), usage=Usage(machines=3)).breakdown.lines[0]
    assert line.basis == "10.00 h x $2/h x 3 machines"
    assert line.source == "made up, 2026-01-01"


def test_every_line_of_a_whole_run():
    workload = a_workload(
        length=Length(samples=360_000),
        data=Dataset(
            samples=90_000, size_bytes=36e9, preparation_s=900.0, at="depot", storage="none"
        ),
        checkpoint=Checkpoint(size_bytes=9e9, interval=Cadence(epochs=1)),
        evaluation=Evaluation(every=Cadence(steps=12_000), samples=1800),
        usage=Usage(idle_s=1800.0),
    )
    run = run_of(workload, pace_of(workload, a_step()), HABITS)
    bill = a_bill(run, usd=3.6, terms=(some_terms(storage_usd_per_byte_month={"volume": 0.0}),))
    # $3.60 an hour is a tenth of a cent a second
    assert amounts(cost_of(workload, bill)) == {
        "provisioning": 0.10,  # 100 s
        "set-up": 0.20,  # 200 s
        "data download": 0.36,  # 36 GB / 100 MB/s = 360 s
        "data preparation": 0.90,  # 900 s
        "warm-up": 0.05,  # 50 s
        "compute": 36,  # 360,000 / 10 = 36,000 steps of 1 s
        "evaluation": 0.18,  # 3 of 1800 samples, each a third of 0.1 s: 180 s
        "checkpoints": 0.36,  # 4 epochs: 4 of 90 s
        "idle": 1.80,  # 1800 s
        "transfer": 3.24,  # 36 GB x $0.09
    }


# --- billing steps ---


@pytest.mark.parametrize(
    ("used_s", "step_s", "minimum_s", "charged_s"),
    [
        (3601, 3600, None, 7200),
        (3600, 3600, None, 3600),
        (3600.0000001, 3600, None, 3600),
        (61, 60, None, 120),
        (10, 1, 60, 60),
        (61.5, 1, 60, 62),
        (100, None, None, 100),
        (10, None, 60, 60),
        (100, 60, 150, 180),  # the minimum is rounded up, too
    ],
)
def test_billed_s(used_s, step_s, minimum_s, charged_s):
    terms = some_terms(billing_step_s=step_s, billing_minimum_s=minimum_s)
    assert billed_s(used_s, terms) == pytest.approx(charged_s)


@given(
    st.floats(0, 1e8),
    st.none() | st.sampled_from([1.0, 60.0, 600.0, 3600.0]),
    st.none() | st.floats(0, 1e4),
)
@settings(deadline=None)
def test_billed_s_is_enough_in_whole_steps_and_not_a_step_too_much(used_s, step_s, minimum_s):
    charged_s = billed_s(used_s, some_terms(billing_step_s=step_s, billing_minimum_s=minimum_s))
    needed_s = max(used_s, minimum_s or 0.0)
    # A hair below is allowed for: a billionth of a step.
    assert charged_s >= needed_s - 1e-9 * (step_s or 0.0) - 1e-9 * needed_s
    if step_s is None:
        assert charged_s == needed_s
    else:
        assert charged_s % step_s == 0
        assert charged_s < needed_s + step_s


def test_a_session_is_rounded_up_to_the_billing_step():
    cost = billed(a_run(1.5 * HOUR_S), terms=(some_terms(billing_step_s=HOUR_S),))
    # 1.5 h x $2, and half an hour more
    assert amounts(cost) == {"compute": 3, "billing step": 1}


def test_each_session_is_rounded_up():
    run = a_run(15 * HOUR_S, sessions=10)
    cost = billed(run, terms=(some_terms(billing_step_s=HOUR_S),), usage=Usage(machines=2))
    # ten of 1.5 h: half an hour more each, x $2 x 2 machines
    assert cost.breakdown.line_usd("billing step") == pytest.approx(20)
    # 10 x 2 h x $2 x 2 machines
    assert cost.usd == pytest.approx(80)


def test_a_short_session_is_charged_the_minimum():
    cost = billed(a_run(0.25 * HOUR_S), terms=(some_terms(billing_minimum_s=HOUR_S),))
    # an hour at $2
    assert amounts(cost) == {"compute": 0.5, "billing step": 1.5}


# --- commitments ---

YEAR = 365 * DAY_S


def committed(term_s=30 * DAY_S, usd=2.0):
    commitment = Commitment(name="a term", term_s=term_s, price_usd_per_hour=usd, source="its page")
    return an_offer(usd=5.0, commitment=commitment)


def test_the_rest_of_a_commitment_is_paid():
    cost = billed(a_run(20 * DAY_S), offer=committed())
    # 20 of 30 days are used: 480 h x $2 and 240 h x $2
    assert amounts(cost) == {"compute": 960, "unused commitment": 480}
    line = cost.breakdown.lines[-1]
    assert line.basis == "a term: the rest of 720 h: 240.00 h x $2/h"
    assert line.source == "its page"


def test_as_many_terms_are_bought_as_a_run_goes_on():
    cost = billed(a_run(40 * DAY_S), offer=committed())
    # two terms of 30 days: 60 x 24 h x $2
    assert cost.usd == pytest.approx(2880)


def test_all_machines_are_committed():
    cost = billed(a_run(20 * DAY_S), offer=committed(), usage=Usage(machines=3))
    # 3 x 720 h x $2
    assert cost.usd == pytest.approx(4320)


def test_a_commitment_used_to_its_end_leaves_nothing():
    assert amounts(billed(a_run(30 * DAY_S), offer=committed())) == {"compute": 1440}


def test_a_month_of_sessions_bears_its_share_of_the_terms():
    month = a_run(100 * HOUR_S, sessions=10, calendar_s=MONTH_S, recurring=True)
    usage = Usage(sessions_per_month=10, horizon_s=18 * MONTH_S)
    # 540 days need two years: 730 x 30 / 540 = 40.56 days a month
    assert committed_s(a_workload(usage=usage), month, YEAR) == pytest.approx(730 / 18 * DAY_S)
    cost = billed(month, offer=committed(YEAR), usage=usage)
    # 100 h x $2; (730 / 18 x 24 - 100) h x $2
    assert amounts(cost) == {"compute": 200, "unused commitment": 1746.6667}


def test_a_month_of_sessions_without_a_horizon_pays_a_whole_term():
    month = a_run(100 * HOUR_S, sessions=10, calendar_s=MONTH_S, recurring=True)
    usage = Usage(sessions_per_month=10)
    assert committed_s(a_workload(usage=usage), month, YEAR) == YEAR


def test_a_horizon_shares_a_year_between_its_months():
    month = a_run(100 * HOUR_S, sessions=10, calendar_s=MONTH_S, recurring=True)
    usage = Usage(sessions_per_month=10, horizon_s=YEAR)
    # a month of 30 days bears 30 days of the year
    assert committed_s(a_workload(usage=usage), month, YEAR) == pytest.approx(30 * DAY_S)


def paid_upfront(share=1.0, **more):
    offer = committed(**more)
    return replace(offer, commitment=replace(offer.commitment, upfront_fraction=share))


def test_what_is_paid_upfront_bears_interest_until_it_is_used_up():
    three = paid_upfront(term_s=3 * YEAR)
    cost = billed(a_run(3 * YEAR), offer=three, interest_per_year=0.05)
    # 26,280 h x $2 = $52,560, half of which is tied up on average: x 5 % x 3 years
    assert amounts(cost) == {"compute": 52_560, "interest": 3942}
    assert cost.usd == pytest.approx(52_560 + 3942)
    line = cost.breakdown.lines[-1]
    assert line.basis == "$52,560.00 upfront / 2 x 0.05 a year x 3 y"


def test_half_upfront_bears_half_the_interest():
    cost = billed(a_run(3 * YEAR), offer=paid_upfront(0.5, term_s=3 * YEAR), interest_per_year=0.05)
    assert cost.breakdown.line_usd("interest") == pytest.approx(1971)


def test_a_commitment_paid_as_one_goes_bears_no_interest():
    cost = billed(a_run(3 * YEAR), offer=committed(3 * YEAR), interest_per_year=0.05)
    assert amounts(cost) == {"compute": 52_560}


def test_a_month_of_sessions_bears_its_share_of_the_interest():
    month = a_run(100 * HOUR_S, sessions=10, calendar_s=MONTH_S, recurring=True)
    usage = Usage(sessions_per_month=10, horizon_s=36 * MONTH_S, machines=2)
    cost = billed(month, offer=paid_upfront(term_s=3 * YEAR), interest_per_year=0.05, usage=usage)
    # 1,080 days take one term of 1,095; a month bears a 36th of 2 x $3,942 and of 2 x $52,560
    assert cost.breakdown.line_usd("interest") == pytest.approx(219)
    assert cost.usd == pytest.approx((2 * 52_560 + 2 * 3942) / 36)


def test_interest_is_nobodys_bill_and_bears_no_tax():
    terms = some_terms(credit_usd=1e9)
    cost = billed(
        a_run(YEAR), offer=paid_upfront(term_s=YEAR), terms=(terms,), tax_fraction=0.2,
        interest_per_year=0.05,
    )  # fmt: skip
    # 8,760 h x $2 are paid by credit; half of it x 5 % is not
    assert amounts(cost) == {"compute": 17_520, "credit": -17_520, "interest": 438}


def test_uncertain_interest_is_drawn():
    sampler = Draws(500)
    cost = billed(
        a_run(YEAR), offer=paid_upfront(term_s=YEAR), interest_per_year=span(0.03, 0.05, 0.08),
        sampler=sampler,
    )  # fmt: skip
    rates = sampler.of("interest rate", span(0.03, 0.05, 0.08))
    assert cost.breakdown.line_usd("interest") == pytest.approx(8760 * rates)


def test_a_discount_is_off_unused_hours_of_a_term_too():
    cost = billed(a_run(20 * DAY_S), offer=committed(), terms=(some_terms(discount_fraction=0.1),))
    # a tenth of all 720 h x $2
    assert cost.breakdown.line_usd("discount") == pytest.approx(-144)


# --- set-up fees ---


def test_a_set_up_fee_is_charged_once_for_each_machine():
    fee = an_offer(setup_cost_usd=50.0)
    cost = billed(a_run(10 * HOUR_S, sessions=5), offer=fee, usage=Usage(machines=2))
    # 2 x 10 h x $2, 2 x $50
    assert amounts(cost) == {"compute": 40, "set-up fee": 100}
    assert cost.breakdown.lines[-1].basis == "once: 2 x $50.00"


def test_a_set_up_fee_is_part_of_the_bill_that_is_taxed():
    cost = billed(a_run(10 * HOUR_S), offer=an_offer(setup_cost_usd=50.0), tax_fraction=0.2)
    # a fifth of $20 + $50
    assert amounts(cost) == {"compute": 20, "set-up fee": 50, "tax": 14}


def test_a_month_of_many_bears_its_share_of_a_set_up_fee():
    month = a_run(10 * HOUR_S, sessions=5, calendar_s=MONTH_S, recurring=True)
    fee = an_offer(setup_cost_usd=60.0)
    year = Usage(sessions_per_month=5, horizon_s=12 * MONTH_S)
    assert amounts(billed(month, offer=fee, usage=year)) == {"compute": 20, "set-up fee": 5}
    # of a month alone the bill bears all of it
    alone = Usage(sessions_per_month=5)
    assert amounts(billed(month, offer=fee, usage=alone)) == {"compute": 20, "set-up fee": 60}


def test_an_uncertain_set_up_fee_is_drawn():
    cost = billed(a_run(10 * HOUR_S), offer=an_offer(setup_cost_usd=span(40, 50, 60)),
                  sampler=Draws(500))  # fmt: skip
    assert cost.usd.shape == (500,)
    assert np.median(cost.usd) == pytest.approx(70, rel=1e-2)


# --- what is settled at the end ---


def test_units_are_sold_in_blocks():
    cost = billed(a_run(8 * HOUR_S), terms=(some_terms(block_usd=10.0),))
    # $16 of machine time take two blocks of $10
    assert amounts(cost) == {"compute": 16, "unused units": 4}
    assert cost.breakdown.lines[-1].basis == "units are sold for $10.00 at a time: 2 times"


def test_at_least_one_block_is_bought():
    cost = billed(a_run(0.5 * HOUR_S), terms=(some_terms(block_usd=10.0),))
    assert amounts(cost) == {"compute": 1, "unused units": 9}


def test_a_block_used_up_leaves_nothing():
    assert amounts(billed(a_run(5 * HOUR_S), terms=(some_terms(block_usd=10.0),))) == {
        "compute": 10
    }


def test_a_discount_is_off_machine_time_alone():
    terms = some_terms(
        discount_fraction=0.25,
        billing_step_s=HOUR_S,
        storage_usd_per_byte_month={"volume": 0.1 / GB},
    )
    images = StoredData(name="images", size_bytes=100 * GB)
    cost = billed(a_run(9.5 * HOUR_S, calendar_s=MONTH_S), terms=(terms,), stored=(images,))
    # a quarter of $19 and of the $1 that rounding adds; storage stays
    assert amounts(cost) == {"compute": 19, "billing step": 1, "storage": 10, "discount": -5}


@pytest.mark.parametrize(("credit_usd", "used_usd"), [(15.0, 15.0), (100.0, 20.0)])
def test_a_credit_pays_as_far_as_it_goes(credit_usd, used_usd):
    cost = billed(a_run(10 * HOUR_S), terms=(some_terms(credit_usd=credit_usd),))
    assert amounts(cost) == {"compute": 20, "credit": -used_usd}
    assert cost.usd == pytest.approx(20 - used_usd)


def test_tax_is_on_what_is_left_to_pay():
    terms = some_terms(discount_fraction=0.25, credit_usd=5.0)
    cost = billed(a_run(10 * HOUR_S), terms=(terms,), tax_fraction=0.2)
    # $20 less a quarter, less $5 of credit: $10
    assert amounts(cost) == {"compute": 20, "discount": -5, "credit": -5, "tax": 2}


@pytest.mark.parametrize(("included", "usd"), [(True, 20), (False, 24), (None, 24)])
def test_tax_that_is_included_is_not_added(included, usd):
    terms = some_terms(tax_included=included)
    assert billed(a_run(10 * HOUR_S), terms=(terms,), tax_fraction=0.2).usd == pytest.approx(usd)


def test_your_own_hours():
    own = OwnTime(usd_per_hour=40.0, session_s=900.0, once_s=2 * HOUR_S)
    cost = billed(a_run(10 * HOUR_S, sessions=4), own_time=own, tax_fraction=0.2)
    # (4 x 0.25 + 2) h x $40, without tax; 20 % on $20
    assert amounts(cost) == {"compute": 20, "tax": 4, "your own hours": 120}
    assert cost.breakdown.lines[-1].basis == "3.0 h x $40/h"


# --- as luck has it ---


def a_long_bill(sampler=LIKELY):
    """A workload with all that is uncertain, and its bill."""
    workload = a_workload(
        length=Length(samples=3_600_000),
        data=Dataset(
            samples=100_000, size_bytes=100e9, preparation_s=span(1800, 2100, 2400), at="depot"
        ),
        checkpoint=Checkpoint(size_bytes=5e9),
        usage=Usage(idle_s=span(600, 1200, 3600)),
        own_time=OwnTime(usd_per_hour=40.0, session_s=span(600, 900, 1800)),
        tax_fraction=0.19,
    )
    habits = replace(
        HABITS,
        provisioning_s=span(60, 180, 900),
        environment_s=span(180, 600, 1800),
        warmup_s=span(20, 60, 300),
        download_bytes_per_s=span(25e6, 100e6, 400e6),
        checkpoint_bytes_per_s=span(1e8, 1.3e8, 1e9),
        requeue_s=span(120, 600, 7200),
    )
    step = a_step(step_time_s=span(0.7, 1.0, 1.6))
    run = run_of(workload, pace_of(workload, step, sampler), habits, span(1, 4, 12), sampler)
    bill = a_bill(
        run,
        usd=sampler.of("spot price: acme", span(1.5, 2.0, 3.0)),
        terms=(some_terms(billing_step_s=60.0, block_usd=10.0),),
        sampler=sampler,
    )
    return workload, bill


def test_drawn_lines_sum_to_the_drawn_total():
    workload, bill = a_long_bill(Draws(500))
    cost = cost_of(workload, bill)
    assert cost.usd.shape == bill.run.busy_s.shape == (500,)
    assert np.array_equal(cost.usd, sum((line.usd for line in cost.breakdown.lines), 0.0))


def test_drawn_bills_of_exact_inputs_are_the_likely_bill_on_average():
    workload = a_workload(
        length=Length(samples=950_000),
        data=Dataset(size_bytes=100e9, at="depot", storage="none"),
        checkpoint=Checkpoint(size_bytes=5e9, interval=Cadence(time_s=950.0)),
        tax_fraction=0.19,
    )

    def bills(sampler, rate):
        run = run_of(workload, pace_of(workload, a_step(), sampler), HABITS, rate, sampler)
        return cost_of(workload, a_bill(run, sampler=sampler)).usd

    # Nothing is drawn where nothing may be interrupted.
    assert bills(Draws(), None) == bills(LIKELY, None)
    # One interruption in 10,000 s, some eleven in all: three standard errors.
    drawn, likely = bills(Draws(), 259.2), bills(LIKELY, 259.2)
    assert drawn.mean() == pytest.approx(likely, abs=3 * drawn.std() / 100)
    assert drawn.std() > 0.01 * likely


def test_the_likely_bill_is_within_the_drawn_ones():
    likely = cost_of(*a_long_bill()).usd
    drawn = cost_of(*a_long_bill(Draws())).usd
    assert np.percentile(drawn, 10) < likely < np.percentile(drawn, 90)


def test_ten_thousand_draws_of_a_whole_bill_take_less_than_a_second():
    started_s = time.perf_counter()
    cost = cost_of(*a_long_bill(Draws()))
    assert cost.usd.shape == (10_000,)
    assert time.perf_counter() - started_s < 1


# --- whatever the run ---

hours = st.floats(0, 1000).map(lambda number: number * HOUR_S)
PARTS = ("provisioning_s", "setup_s", "warmup_s", "evaluation_s", "lost_s", "restart_s", "idle_s")


@given(
    training_s=hours,
    parts=st.dictionaries(st.sampled_from(PARTS), hours),
    sessions=st.integers(1, 30),
    machines=st.integers(1, 8),
    usd=st.floats(0.01, 100),
    step_s=st.none() | st.sampled_from([1.0, 60.0, 3600.0]),
    size_bytes=st.none() | st.floats(0, 1e13),
)
@settings(deadline=None)
def test_lines_sum_to_the_total_and_none_is_negative(
    training_s, parts, sessions, machines, usd, step_s, size_bytes
):
    run = a_run(training_s, sessions=sessions, **parts)
    cost = billed(
        run,
        usd=usd,
        terms=(some_terms(billing_step_s=step_s),),
        usage=Usage(machines=machines),
        data=Dataset(size_bytes=size_bytes, at="depot", kept_at="depot"),
    )
    lines = cost.breakdown.lines
    assert sum((line.usd for line in lines), 0.0) == cost.usd
    assert all(line.usd > 0 for line in lines)
    # Never less than the hours at their price.
    held_usd = run.busy_s / HOUR_S * usd * machines
    assert cost.usd >= held_usd * (1 - 1e-9) - 1e-9


fractions = st.floats(0, 1)
BASE = {
    "idle_s": 0.0,
    "setup_s": 60.0,
    "evaluation_s": 0.0,
    "preparation_s": 0.0,
    "results_bytes": 0.0,
    "size_bytes": 0.0,
    "checkpoint_bytes": 0.0,
    "egress_usd_per_gb": 0.0,
    "volume_usd_per_gb": 0.0,
    "tax_fraction": 0.0,
    "own_usd_per_hour": 0.0,
    "keep_s": 0.0,
    "minimum_s": 0.0,
}
LARGEST = {
    "idle_s": 1e6,
    "setup_s": 1e6,
    "evaluation_s": 1e4,
    "preparation_s": 1e6,
    "results_bytes": 1e13,
    "size_bytes": 1e13,
    "checkpoint_bytes": 1e11,
    "egress_usd_per_gb": 1.0,
    "volume_usd_per_gb": 1.0,
    "tax_fraction": 1.0,
    "own_usd_per_hour": 100.0,
    "keep_s": 1e8,
    "minimum_s": 1e5,
}


def usd_of(fields):
    """What a run of 1000 samples in sessions costs with those inputs."""
    workload = a_workload(
        data=Dataset(
            size_bytes=fields["size_bytes"],
            preparation_s=fields["preparation_s"],
            results_bytes=fields["results_bytes"],
            at="depot",
        ),
        checkpoint=Checkpoint(size_bytes=fields["checkpoint_bytes"]),
        evaluation=Evaluation(every=Cadence(steps=10), time_s=fields["evaluation_s"]),
        usage=Usage(
            sessions_per_month=3,
            idle_s=fields["idle_s"],
            setup_s=fields["setup_s"],
            storage_s=fields["keep_s"],
        ),
        own_time=OwnTime(usd_per_hour=fields["own_usd_per_hour"], session_s=600.0),
        tax_fraction=fields["tax_fraction"],
    )
    run = run_of(workload, pace_of(workload, a_step()), HABITS)
    terms = some_terms(
        billing_step_s=60.0,
        billing_minimum_s=fields["minimum_s"],
        storage_usd_per_byte_month={"volume": fields["volume_usd_per_gb"] / GB},
        egress_usd_per_byte=fields["egress_usd_per_gb"] / GB,
    )
    cost = cost_of(workload, a_bill(run, terms=(terms,)))
    assert cost.unknown == ()
    return cost.usd


@given(
    st.fixed_dictionaries({name: st.floats(0, most) for name, most in LARGEST.items()}),
    st.sampled_from(sorted(BASE)),
    fractions,
)
@settings(deadline=None, max_examples=200)
def test_adding_a_cost_never_lowers_a_total(fields, name, share):
    less, more = sorted((fields[name], share * LARGEST[name]))
    low_usd, high_usd = (usd_of(fields | {name: value}) for value in (less, more))
    assert low_usd <= high_usd * (1 + 1e-9)


@given(st.floats(0.01, 100), st.floats(0.01, 100), hours)
@settings(deadline=None)
def test_a_dearer_hour_never_costs_less(one_usd, other_usd, training_s):
    cheap, dear = sorted((one_usd, other_usd))
    run = a_run(training_s)
    assert billed(run, usd=cheap).usd <= billed(run, usd=dear).usd


def test_credit_pays_its_own_provider_alone():
    # $2 of an hour at acme, where there are $100 of credit; $20 of storage are depot's
    bill = a_bill(a_run(HOUR_S, calendar_s=MONTH_S), terms=(some_terms(credit_usd=100.0),))
    elsewhere = StoredData(name="images", size_bytes=100 * GB, at="depot")
    cost = cost_of(a_workload(stored=(elsewhere,)), bill)
    assert cost.breakdown.line_usd("credit") == -2
    assert cost.usd == pytest.approx(20)


def test_storage_elsewhere_is_taxed_beside_a_machine_of_ones_own():
    # 100 GB x $0.20 a month at depot, and a fifth of it
    owned = OwnedMachine(electricity_usd_per_kwh=0.0, host_w=100)
    bill = a_bill(a_run(HOUR_S, calendar_s=MONTH_S), owned=owned)
    elsewhere = StoredData(name="images", size_bytes=100 * GB, at="depot")
    cost = cost_of(a_workload(stored=(elsewhere,), tax_fraction=0.2), bill)
    assert cost.breakdown.line_usd("tax") == pytest.approx(4)


def test_a_monthly_fee_is_paid_for_every_month_that_is_begun():
    # 45 days are two months: 2 x $9.99
    bill = a_bill(a_run(HOUR_S, calendar_s=45 * DAY_S), terms=(some_terms(fee_usd_per_month=9.99),))
    cost = cost_of(a_workload(), bill)
    assert cost.breakdown.line_usd("monthly fee") == pytest.approx(19.98)


# --- the local disk that comes with a machine ---

APART = a_doubt("local disk billed apart", kind="note")


def disk_cost(terms, machines=1, tenancy="on-demand", **offer):
    """The cost of three days on a machine that asks for nothing but its disk."""
    bill = a_bill(
        a_run(3 * DAY_S), usd=0.0, terms=(terms,), offer=an_offer(**offer), tenancy=tenancy
    )
    return cost_of(a_workload(usage=Usage(machines=machines)), bill)


def test_a_disk_that_is_billed_apart_is_paid_for_while_the_machine_runs():
    terms = some_terms(local_disk_usd_per_byte_month=0.1 / GB)
    cost = disk_cost(terms, machines=2, local_disk_bytes=500 * GB, doubts=(APART,))
    (line,) = cost.breakdown.lines
    # 2 x 500 GB x $0.10 x 3 of 30 days
    assert (line.name, line.usd) == ("local disk", pytest.approx(10))
    assert line.basis == "1,000 GB that come with the machine x $0.1/GB-month x 72.00 h"
    assert cost.unpriced == ()


def test_a_disk_that_is_billed_apart_costs_less_on_a_spot_machine():
    terms = some_terms(local_disk_usd_per_byte_month=0.1 / GB, local_disk_spot_fraction=0.4)
    cost = disk_cost(terms, tenancy="spot", local_disk_bytes=500 * GB, doubts=(APART,))
    (line,) = cost.breakdown.lines
    # 500 GB x 0.4 x $0.10 x 3 of 30 days
    assert line.usd == pytest.approx(2)
    assert line.basis == "500 GB that come with the machine x $0.04/GB-month x 72.00 h"


def test_a_disk_that_is_in_the_price_is_not_charged():
    terms = some_terms(local_disk_usd_per_byte_month=0.1 / GB)
    cost = disk_cost(terms, local_disk_bytes=500 * GB)
    assert (cost.breakdown.lines, cost.unpriced) == ((), ())


@pytest.mark.parametrize(
    ("rate", "size"), [(None, 500 * GB), (0.1 / GB, None)], ids=["no price", "no size"]
)
def test_a_disk_of_unknown_price_or_size_is_named_as_unpriced(rate, size):
    terms = some_terms(local_disk_usd_per_byte_month=rate)
    cost = disk_cost(terms, local_disk_bytes=size, doubts=(APART,))
    assert cost.breakdown.lines == ()
    (item,) = cost.unpriced
    assert item.what == "local disk of the machine at Acme: no price known"
