"""What must be paid on the first day, and what remains due if one stops early: sums by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.builders import a_workload, an_offer, some_terms, span

from outlay.cost.cash import NO_CASH, cash_of, upfront_usd
from outlay.facts import Fact
from outlay.offers.catalog import bundled_offers, reserved_offers
from outlay.offers.offer import Commitment, OwnedMachine
from outlay.offers.terms import terms_of
from outlay.uncertainty import LIKELY, Draws
from outlay.units import DAY_S, HOUR_S
from outlay.workload.workload import Usage

YEAR_S = 365 * DAY_S


def cash(offer=None, *, usd=2.0, terms=None, sampler=LIKELY, **workload):
    return cash_of(
        a_workload(**workload), offer or an_offer(usd=usd), usd, terms or some_terms(), sampler
    )


def committed(upfront_fraction, *, term_s=3 * YEAR_S, usd=2.0, **more):
    commitment = Commitment(
        name="a term",
        term_s=term_s,
        price_usd_per_hour=usd,
        upfront_fraction=upfront_fraction,
        source="its page",
    )
    return an_offer(usd=5.0, commitment=commitment, **more)


def amounts(found):
    return {payment.name: pytest.approx(payment.usd) for payment in found.payments}


def a_fact(text, unit="text"):
    return Fact(text=text, unit=unit, source="its page", as_of="2026-01-01")


# --- machines ---


def test_ordinary_hourly_billing_needs_no_cash():
    assert cash() is NO_CASH
    assert cash().upfront_usd == 0.0
    assert cash().due_usd() == 0.0


def desktop(purchase_usd):
    owned = OwnedMachine(electricity_usd_per_kwh=0.12, host_w=100, purchase_usd=purchase_usd)
    return an_offer("own", "desk", usd=None, owned=owned)


def test_a_machine_is_paid_on_the_first_day_whatever_share_a_run_bears():
    found = cash(desktop(2200))
    assert amounts(found) == {"purchase": 2200}
    assert found.due_usd() == 0.0


def test_every_machine_that_is_bought_is_paid():
    found = cash(desktop(2200), usage=Usage(machines=3))
    # 3 x $2,200
    assert found.upfront_usd == pytest.approx(6600)
    assert found.payments[0].basis == "3 x $2,200.00"


def test_a_machine_one_has_is_paid_already():
    assert cash(desktop(None)).upfront_usd == 0.0


def test_an_uncertain_purchase_is_drawn_as_the_bill_draws_it():
    draws = Draws(500)
    found = cash(desktop(span(1000, 1250, 1500)), sampler=draws)
    assert np.array_equal(found.upfront_usd, draws.of("purchase price", span(1000, 1250, 1500)))


def test_what_one_buys_is_no_bill_and_bears_no_tax():
    assert cash(desktop(2200), tax_fraction=0.19).upfront_usd == pytest.approx(2200)


# --- commitments ---


def test_all_upfront_is_the_whole_term_on_the_first_day():
    found = cash(committed(1.0))
    # 3 x 365 x 24 = 26,280 h x $2
    assert amounts(found) == {"upfront payment": 52_560}
    assert found.payments[0].basis == "a term: 26,280 h x $2/h"
    # all is paid: nothing falls due, whenever one stops
    assert [found.due_usd(years * YEAR_S) for years in (0, 1, 3)] == [0.0, 0.0, 0.0]


def test_aws_three_years_all_upfront_is_what_aws_asks_for():
    (g5,) = (
        offer
        for offer in bundled_offers()
        if (offer.provider, offer.instance, offer.region) == ("aws", "g5.12xlarge", "us-east-1")
    )
    (three,) = (
        offer for offer in reserved_offers(g5) if offer.commitment.name == "3 years, all upfront"
    )
    found = cash_of(a_workload(), three, three.hourly_usd("reserved"), terms_of("aws"))
    # Vantage's table, the source of the row: $2.132686 an hour for 26,280 h, all of it at once;
    # the discount in the row is rounded to a tenth of a percent.
    assert found.upfront_usd == pytest.approx(2.132686 * 26_280, rel=1e-3)


def test_aws_p5_for_three_years_is_67983_dollars_at_once_not_1888_a_month():
    offer = an_offer("aws", "p5.4xlarge", gpu="H100 SXM", region="us-west-2", usd=6.88)
    (three,) = (
        one for one in reserved_offers(offer) if one.commitment.name == "3 years, all upfront"
    )
    found = cash_of(a_workload(), three, three.hourly_usd("reserved"), terms_of("aws"))
    # $6.88 x (1 - 0.624) x 26,280 h; a 36th of it is $1,888
    assert found.upfront_usd == pytest.approx(67_983, abs=1)
    assert found.upfront_usd / 36 == pytest.approx(1888, abs=1)


def test_no_upfront_needs_no_cash_but_falls_due_to_the_end():
    found = cash(committed(0.0))
    assert found.payments == ()
    # 26,280 h x $2; after a year 17,520 h are left
    assert found.due_usd() == pytest.approx(52_560)
    assert found.due_usd(YEAR_S) == pytest.approx(35_040)
    assert found.due_usd(3 * YEAR_S) == found.due_usd(4 * YEAR_S) == 0.0


def test_partial_upfront_is_paid_in_both_ways():
    found = cash(committed(0.5))
    assert found.upfront_usd == pytest.approx(26_280)
    # the other half evenly: two thirds of it after one of three years
    assert found.due_usd() == pytest.approx(26_280)
    assert found.due_usd(YEAR_S) == pytest.approx(17_520)
    assert found.payments[0].basis == "a term: 26,280 h x $2/h x 0.5"


def test_all_machines_are_committed():
    found = cash(committed(0.5), usage=Usage(machines=2))
    assert (found.upfront_usd, found.due_usd()) == pytest.approx((52_560, 52_560))


def test_an_agreed_discount_and_tax_hold_for_terms_too():
    found = cash(committed(0.5), terms=some_terms(discount_fraction=0.1), tax_fraction=0.2)
    # half of 26,280 h x $1.80, and a fifth on top
    assert amounts(found) == {"upfront payment": 23_652, "tax": 4730.4}
    assert found.due_usd() == pytest.approx(23_652 * 1.2)
    included = some_terms(discount_fraction=0.1, tax_included=True)
    assert cash(committed(0.5), terms=included, tax_fraction=0.2).upfront_usd == pytest.approx(
        23_652
    )


def test_credit_pays_no_upfront_payment():
    assert cash(committed(1.0), terms=some_terms(credit_usd=1000.0)).upfront_usd == pytest.approx(
        52_560
    )


def test_upfront_of_one_machine():
    commitment = committed(0.5, term_s=100 * HOUR_S).commitment
    # 100 h x $2 / 2
    assert upfront_usd(commitment, 2.0, some_terms()) == pytest.approx(100)


# --- what is paid beforehand, and fees ---


def test_units_are_bought_before_they_are_used():
    found = cash(terms=some_terms(block_usd=9.99))
    assert amounts(found) == {"units": 9.99}


def test_a_balance_of_some_hours():
    terms = some_terms(facts={"prepaid": a_fact("yes"), "first_payment": a_fact("1", "h")})
    # an hour x $2 x 2 machines
    assert amounts(cash(terms=terms, usage=Usage(machines=2))) == {"balance": 4}
    assert cash(terms=terms).unknown == ()


def test_a_first_payment_less_the_credit_that_is_there():
    facts = {"prepaid": a_fact("yes"), "first_payment": a_fact("25", "USD")}
    assert cash(terms=some_terms(facts=facts)).upfront_usd == 25
    assert cash(terms=some_terms(facts=facts, credit_usd=10.0)).upfront_usd == 15
    assert cash(terms=some_terms(facts=facts, credit_usd=100.0)).upfront_usd == 0


def test_a_balance_of_unknown_amount_is_said_and_not_taken_for_nothing():
    found = cash(terms=some_terms(facts={"prepaid": a_fact("yes")}))
    assert found.upfront_usd == 0.0
    assert found.unknown == ("Acme is paid beforehand: the least amount is not known",)


def test_known_providers_that_are_paid_beforehand():
    # an hour of balance at RunPod, at least $25 at Nebius, nothing found of Vast.ai
    assert cash(terms=terms_of("runpod"), usd=0.5).upfront_usd == pytest.approx(0.5)
    assert cash(terms=terms_of("nebius")).upfront_usd == 25
    assert cash(terms=terms_of("vast")).unknown
    assert cash(terms=terms_of("lambda")) is NO_CASH


def test_fees_are_paid_on_the_first_day():
    offer = an_offer(setup_cost_usd=50.0)
    found = cash(offer, terms=some_terms(fee_usd_per_month=10.0), usage=Usage(machines=2))
    # a month of the subscription, and $50 for each machine
    assert amounts(found) == {"monthly fee": 10, "set-up fee": 100}
    assert found.upfront_usd == pytest.approx(110)
