"""Cash: what must be paid on the first day, and what remains due if one stops early.

A bill says what a run costs; cash says when. A machine is bought, and a commitment paid upfront, on
the first day, whatever share of it the run bears. The amounts follow from the offer alone. What
must be paid beforehand in an amount that is not known is named in `unknown`, and in no payment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from outlay.cost.lines import Line
from outlay.offers.offer import Commitment, Offer
from outlay.offers.terms import Terms
from outlay.uncertainty import LIKELY, Number, Sampler, is_nonzero
from outlay.units import HOUR_S
from outlay.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Cash:
    """What must be paid on the first day, and what a term obliges to after it."""

    payments: tuple[Line, ...] = ()
    """What is paid on the first day."""
    rest_usd: Number = 0.0
    """What a commitment obliges to besides, paid evenly over its term."""
    term_s: float = 0.0
    unknown: tuple[str, ...] = ()
    """What must be paid beforehand in an amount that nobody found out."""
    upfront_usd: Number = field(init=False)
    """The sum of the payments."""

    def __post_init__(self) -> None:
        total = sum((payment.usd for payment in self.payments), 0.0)
        object.__setattr__(self, "upfront_usd", total)

    def due_usd(self, after_s: float = 0.0) -> Number:
        """What remains due to the end of the term if one stops so long after its beginning."""
        return self.rest_usd * max(1 - after_s / self.term_s, 0.0) if self.term_s else 0.0


NO_CASH = Cash()
USED_UP = ("units", "balance")
"""Payments that are no cost of their own: the bill is paid from them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Purchase:
    """What cash is worked out from: the offer at its price, of whom, and how many machines."""

    offer: Offer
    price_usd_per_hour: Number
    terms: Terms
    machines: int
    tax_fraction: float
    sampler: Sampler


def cash_of(
    workload: Workload,
    offer: Offer,
    price_usd_per_hour: Number,
    terms: Terms,
    sampler: Sampler = LIKELY,
) -> Cash:
    """What must be paid on the first day to have an offer, and what it obliges to.

    Of several terms that follow each other, the first. Credit pays what is put on an account, but
    neither upfront payments nor fees.
    """
    purchase = _Purchase(
        offer=offer,
        price_usd_per_hour=price_usd_per_hour,
        terms=terms,
        machines=workload.usage.machines,
        tax_fraction=0.0 if terms.tax_included else workload.tax_fraction,
        sampler=sampler,
    )
    if offer.owned is not None:
        return Cash(payments=tuple(_bought(purchase)))
    payments = tuple(line for line in _paid(purchase) if is_nonzero(line.usd))
    commitment = offer.commitment
    if commitment is None:
        unknown = tuple(_unknown(terms))
        return Cash(payments=payments, unknown=unknown) if payments or unknown else NO_CASH
    rest_usd = _term_usd(purchase, commitment) * (1 - commitment.upfront_fraction)
    return Cash(
        payments=payments,
        rest_usd=rest_usd * (1 + purchase.tax_fraction),
        term_s=commitment.term_s,
    )


def upfront_usd(commitment: Commitment, price_usd_per_hour: Number, terms: Terms) -> Number:
    """What is paid on the first day of a term for one machine, without tax."""
    agreed_usd = price_usd_per_hour * (1 - terms.discount_fraction)
    return agreed_usd * (commitment.upfront_fraction * commitment.term_s / HOUR_S)


def _term_usd(purchase: _Purchase, commitment: Commitment) -> Number:
    """The price of a term for all machines, without tax."""
    agreed_usd = purchase.price_usd_per_hour * (1 - purchase.terms.discount_fraction)
    return agreed_usd * (purchase.machines * commitment.term_s / HOUR_S)


def _bought(purchase: _Purchase) -> Iterator[Line]:
    """The machines to be bought; nothing for a machine one has."""
    owned, machines = purchase.offer.owned, purchase.machines
    if owned is None or owned.purchase_usd is None:
        return
    each_usd = purchase.sampler.of("purchase price", owned.purchase_usd)
    yield Line(
        name="purchase",
        usd=each_usd * machines,
        how=lambda: f"{machines} x ${each_usd:,.2f}",
        source=purchase.offer.source,
    )


def _paid(purchase: _Purchase) -> Iterator[Line]:
    """What a provider asks for on the first day, and the tax on it."""
    lines = [*_upfront(purchase), *_beforehand(purchase), *_fees(purchase)]
    yield from lines
    if purchase.tax_fraction and lines:
        due_usd = sum((line.usd for line in lines), 0.0)
        yield Line(
            name="tax",
            usd=due_usd * purchase.tax_fraction,
            how=f"{purchase.tax_fraction:.4g} of that",
            source="data/taxes.csv or the workload file",
        )


def _upfront(purchase: _Purchase) -> Iterator[Line]:
    commitment, machines = purchase.offer.commitment, purchase.machines
    if commitment is None or not commitment.upfront_fraction:
        return
    price_usd = purchase.price_usd_per_hour * (1 - purchase.terms.discount_fraction)
    share = commitment.upfront_fraction
    yield Line(
        name="upfront payment",
        usd=upfront_usd(commitment, purchase.price_usd_per_hour, purchase.terms) * machines,
        how=lambda: (
            f"{commitment.name}: {commitment.term_s / HOUR_S:,.0f} h x ${price_usd:,.6g}/h"
            + (f" x {share:.4g}" if share < 1 else "")
            + (f" x {machines} machines" if machines > 1 else "")
        ),
        source=commitment.source,
    )


def _beforehand(purchase: _Purchase) -> Iterator[Line]:
    """What is put on an account before a machine is had, less the credit that is there."""
    terms, fact = purchase.terms, purchase.terms.facts.get("first_payment")
    if purchase.offer.commitment is not None:
        return
    if terms.block_usd is not None:
        block_usd = terms.block_usd
        yield Line(
            name="units",
            usd=block_usd,
            how=f"units are sold for ${block_usd:,.2f} at a time",
            source=terms.source_of("block"),
        )
    elif fact is not None and fact.number is not None:
        least_usd: Number = fact.number
        how = f"the least that is put on an account at {terms.name}"
        if fact.unit == "h":
            least_usd = purchase.price_usd_per_hour * (fact.number * purchase.machines)
            how = f"{fact.number:g} h of balance at {terms.name}"
        yield Line(
            name="balance",
            usd=np.maximum(least_usd - terms.credit_usd, 0.0),
            how=how,
            source=terms.source_of("first_payment"),
        )


def _fees(purchase: _Purchase) -> Iterator[Line]:
    """The first month's fee, and what setting the machines up costs."""
    terms, machines = purchase.terms, purchase.machines
    if terms.fee_usd_per_month:
        yield Line(
            name="monthly fee",
            usd=terms.fee_usd_per_month,
            how=f"the first month at {terms.name}",
            source="the workload file",
        )
    yield from setup_fee_lines(purchase.offer, machines, purchase.sampler)


def setup_fee_lines(offer: Offer, machines: int, sampler: Sampler) -> Iterator[Line]:
    """What a provider charges once for setting machines up, where the user says so."""
    each_usd = sampler.of("set-up fee", offer.setup_cost_usd)
    if is_nonzero(each_usd):
        yield Line(
            name="set-up fee",
            usd=each_usd * machines,
            how=lambda: f"once: {machines} x ${each_usd:,.2f}",
            source=offer.source,
        )


def _unknown(terms: Terms) -> Iterator[str]:
    known = terms.block_usd is not None or "first_payment" in terms.facts
    if terms.quality("prepaid") == "yes" and not known:
        yield f"{terms.name} is paid beforehand: the least amount is not known"
