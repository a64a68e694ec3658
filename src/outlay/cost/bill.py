"""What a run costs on an offer, in the lines a bill would have.

What has no known price is named in `unknown` and is in no line: it is never counted as zero
silently. All arithmetic is on `Number`s: one figure, or one for each draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from outlay.cost.cash import setup_fee_lines, upfront_usd
from outlay.cost.lines import Breakdown, Cost, Line, UnpricedItem
from outlay.cost.ownership import owned_lines
from outlay.cost.storage import storage_and_transfer_lines
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.terms import Terms
from outlay.predict.run_time import TIME_PARTS, Run
from outlay.uncertainty import LIKELY, Number, Sampler, Uncertain, is_nonzero
from outlay.units import GB, HOUR_S, MONTH_S, YEAR_S
from outlay.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a cost is worked out from: the run, the offer as it is had, and everybody's terms."""

    run: Run
    offer: Offer
    tenancy: Tenancy
    price_usd_per_hour: Number
    """Of the whole machine, as it is had."""
    terms: Callable[[str], Terms]
    gpu_w: float = 0.0
    """Power of all GPUs of the machine under load, for one's own machine."""
    interest_per_year: Uncertain = 0.0
    """What money paid upfront for a commitment would bring or costs elsewhere."""
    sampler: Sampler = LIKELY
    source: str = field(init=False)
    """Where the price comes from, with its date."""

    def __post_init__(self) -> None:
        day = self.offer.seen_on(self.tenancy)
        object.__setattr__(self, "source", f"{self.offer.source}, {day}")


def cost_of(workload: Workload, bill: Bill) -> Cost:
    """The cost of a run: on a rented machine, or on one's own."""
    data_lines, unpriced = storage_and_transfer_lines(
        workload, bill.offer, bill.run, bill.terms, bill.sampler
    )
    if bill.offer.owned is None:
        lines = [*_time_lines(workload, bill), *_setup_fee_lines(workload, bill), *data_lines]
    else:
        owned = owned_lines(bill.offer, bill.run, workload.usage.machines, bill.gpu_w, bill.sampler)
        lines = [*owned, *data_lines]
    if _has_settlement(workload, bill, lines):
        lines += _settlement_lines(workload, bill, lines)
    lines += [*_interest_lines(workload, bill), *_own_time_lines(workload, bill)]
    charged = tuple(line for line in lines if is_nonzero(line.usd))
    return Cost(breakdown=Breakdown(lines=charged), unpriced=(*unpriced, *_unpriced_disk(bill)))


def billed_s(used_s: Number, terms: Terms) -> Number:
    """Time charged for a session: at least the minimum, rounded up to the billing step."""
    charged_s = np.maximum(used_s, terms.billing_minimum_s or 0.0)
    step_s = terms.billing_step_s or 0.0
    if step_s <= 0:
        return charged_s
    # A hair off the quotient, so that 3600.0000001 s is one hour and not two.
    whole: Number = np.ceil(charged_s / step_s - 1e-9) * step_s
    return whole


def _time_lines(workload: Workload, bill: Bill) -> Iterator[Line]:
    machines = workload.usage.machines
    for name, time_s in bill.run.time_parts_s:
        yield _time_line(name, time_s, bill, machines)
    rounded_s = _rounding_s(bill)
    if is_nonzero(rounded_s):
        yield _rounding_line(rounded_s, bill, machines)
    if bill.offer.commitment is not None:
        yield _unused_line(workload, rounded_s, bill)
    yield from _local_disk_lines(workload, bill)


def _local_disk_usd_per_byte_month(bill: Bill) -> float | None:
    """As it is had; None where it is in the machine's price, or its own is not known."""
    terms = bill.terms(bill.offer.provider)
    rate = terms.local_disk_usd_per_byte_month
    if rate is None or not bill.offer.has_disk_apart:
        return None
    return rate * (terms.local_disk_spot_fraction if bill.tenancy == "spot" else 1.0)


def _local_disk_lines(workload: Workload, bill: Bill) -> Iterator[Line]:
    """What the disk costs while the machine runs."""
    rate, disk_bytes = _local_disk_usd_per_byte_month(bill), bill.offer.local_disk_bytes
    if rate is None or disk_bytes is None:
        return
    all_bytes, busy_s = disk_bytes * workload.usage.machines, bill.run.busy_s
    terms = bill.terms(bill.offer.provider)
    yield Line(
        name="local disk",
        usd=busy_s * (all_bytes * rate / MONTH_S),
        how=lambda: (
            f"{all_bytes / GB:,.4g} GB that come with the machine x ${rate * GB:.4g}/GB-month x "
            f"{busy_s / HOUR_S:,.2f} h"
        ),
        source=terms.source_of("local_disk_storage"),
    )


def _unpriced_disk(bill: Bill) -> tuple[UnpricedItem, ...]:
    offer = bill.offer
    is_priced = _local_disk_usd_per_byte_month(bill) is not None and offer.local_disk_bytes
    if is_priced or not offer.has_disk_apart:
        return ()
    name = bill.terms(offer.provider).name
    return (UnpricedItem(what=f"local disk of the machine at {name}: no price known"),)


def _time_line(name: str, time_s: Number, bill: Bill, machines: int) -> Line:
    price = bill.price_usd_per_hour

    def how() -> str:
        times = f" x {machines} machines" if machines > 1 else ""
        return f"{time_s / HOUR_S:,.2f} h x ${price:,.4g}/h{times}"

    usd = time_s * price * (machines / HOUR_S)
    return Line(name=name, usd=usd, how=how, source=bill.source)


def _rounding_s(bill: Bill) -> Number:
    """What the billing step and minimum add to all sessions together."""
    terms, sessions = bill.terms(bill.offer.provider), bill.run.sessions
    session_s = bill.run.busy_s / sessions
    return np.maximum(billed_s(session_s, terms) - session_s, 0.0) * sessions


def _rounding_line(added_s: Number, bill: Bill, machines: int) -> Line:
    terms = bill.terms(bill.offer.provider)
    line = _time_line("billing step", added_s, bill, machines)
    return Line(
        name=line.name,
        usd=line.usd,
        how=f"each session rounded up to {terms.billing_step_s or 0.0:.0f} s",
        source=terms.source_of("billing_step"),
    )


def committed_s(workload: Workload, run: Run, term_s: float) -> Number:
    """Machine time that a commitment makes one pay for in this run, or in a month of sessions.

    As many terms as the use goes on are bought; a month bears its share of them.
    """
    terms_s = np.ceil(_horizon_s(workload, run) / term_s - 1e-9) * term_s
    paid: Number = terms_s * _month_share(workload, run)
    return paid


def _horizon_s(workload: Workload, run: Run) -> Number:
    """How long the use goes on: as stated for sessions, or as long as the run takes."""
    return (workload.usage.horizon_s if run.recurring else None) or run.calendar_s


def _month_share(workload: Workload, run: Run) -> Number:
    """What a bill bears of what is paid once: a month of sessions its share, a run all of it."""
    if not run.recurring:
        return 1.0
    share: Number = np.minimum(MONTH_S / _horizon_s(workload, run), 1.0)
    return share


def _unused_line(workload: Workload, rounded_s: Number, bill: Bill) -> Line:
    """What is paid for the hours of a commitment that nothing runs in."""
    commitment = bill.offer.commitment
    assert commitment is not None
    paid_s = committed_s(workload, bill.run, commitment.term_s)
    idle_s = np.maximum(paid_s - bill.run.busy_s - rounded_s, 0.0)
    line = _time_line("unused commitment", idle_s, bill, workload.usage.machines)
    return Line(
        name=line.name,
        usd=line.usd,
        how=lambda: f"{commitment.name}: the rest of {paid_s / HOUR_S:,.0f} h: {line.basis}",
        source=commitment.source,
    )


def _setup_fee_lines(workload: Workload, bill: Bill) -> Iterator[Line]:
    """The set-up fee; of one that is paid for many months, a month's share."""
    share = _month_share(workload, bill.run)
    for fee in setup_fee_lines(bill.offer, workload.usage.machines, bill.sampler):
        yield fee if np.all(share == 1.0) else _shared(fee, share)


def _shared(line: Line, share: Number) -> Line:
    """A month's share of what is paid once."""

    def how() -> str:
        return f"{line.basis} x {share:.4g}, the share of a month"

    return line._replace(usd=line.usd * share, how=how)


def _interest_lines(workload: Workload, bill: Bill) -> Iterator[Line]:
    """Interest on what is paid upfront for a commitment: nobody's bill, but a cost.

    What is tied up falls evenly from the payment to nothing at the end of the term.
    """
    commitment = bill.offer.commitment
    if commitment is None or not commitment.upfront_fraction:
        return
    rate = bill.sampler.of("interest rate", bill.interest_per_year)
    terms = bill.terms(bill.offer.provider)
    paid_usd = upfront_usd(commitment, bill.price_usd_per_hour, terms) * workload.usage.machines
    years = commitment.term_s / YEAR_S
    borne = committed_s(workload, bill.run, commitment.term_s) / commitment.term_s

    def how() -> str:
        part = "" if np.all(borne == 1.0) else f" x {borne:.4g} of the term"
        return f"${paid_usd:,.2f} upfront / 2 x {rate:.3g} a year x {years:.4g} y{part}"

    yield Line(
        name="interest",
        usd=paid_usd / 2 * rate * years * borne,
        how=how,
        source="usage.interest_per_year, or data/assumptions.csv",
    )


# The settlement: what comes off or on top of bills at the end

_MACHINE_TIME = (*TIME_PARTS, "billing step", "unused commitment")


def _has_settlement(workload: Workload, bill: Bill, lines: Iterable[Line]) -> bool:
    """Whether anything comes off or on top."""
    payees = {bill.offer.provider, *(line.payee for line in lines if line.payee)}
    return bool(workload.tax_fraction) or any(
        terms.block_usd or terms.discount_fraction or terms.fee_usd_per_month or terms.credit_usd
        for terms in map(bill.terms, payees)
    )


def _settlement_lines(workload: Workload, bill: Bill, lines: Sequence[Line]) -> Iterator[Line]:
    """What comes off or on top of bills: blocks, discount, credit, tax."""
    provider = bill.offer.provider
    terms = bill.terms(provider)
    due_usd: dict[str, Number] = {}
    for line in lines:
        payee = line.payee or provider
        due_usd[payee] = due_usd.get(payee, 0.0) + line.usd
    if bill.offer.owned is None:
        time_usd = sum((line.usd for line in lines if line.name in _MACHINE_TIME), 0.0)
        extras = (_block(terms, time_usd), _discount(terms, time_usd), _fee(terms, bill.run))
        for extra in extras:
            if extra is not None:
                due_usd[provider] = due_usd[provider] + extra.usd
                yield extra
    else:
        due_usd.pop(provider, None)  # what one's own machine costs is no bill
    for payee in due_usd:
        credit_usd = np.minimum(bill.terms(payee).credit_usd, due_usd[payee])
        if is_nonzero(credit_usd):
            due_usd[payee] = due_usd[payee] - credit_usd
            yield _credit(bill.terms(payee), credit_usd)
    taxed = [payee for payee in due_usd if bill.terms(payee).tax_included is not True]
    if workload.tax_fraction and taxed:
        yield _tax(workload.tax_fraction, sum((due_usd[payee] for payee in taxed), 0.0), taxed)


def _credit(terms: Terms, credit_usd: Number) -> Line:
    return Line(name="credit", usd=-credit_usd, how=f"of ${terms.credit_usd:,.2f} at {terms.name}")


def _tax(fraction: float, due_usd: Number, payees: Sequence[str]) -> Line:
    return Line(
        name="tax",
        usd=due_usd * fraction,
        how=f"{fraction:.4g} of what {' and '.join(payees)} charge",
        source="data/taxes.csv or the workload file",
    )


def _block(terms: Terms, time_usd: Number) -> Line | None:
    """What is bought in blocks (units of a subscription) and not used up."""
    if terms.block_usd is None:
        return None
    blocks = np.ceil(time_usd / terms.block_usd - 1e-9)
    return Line(
        name="unused units",
        usd=np.maximum(blocks, 1.0) * terms.block_usd - time_usd,
        how=lambda: f"units are sold for ${terms.block_usd:,.2f} at a time: {blocks:,.0f} times",
        source=terms.source_of("block"),
    )


def _discount(terms: Terms, time_usd: Number) -> Line | None:
    if not terms.discount_fraction:
        return None
    return Line(
        name="discount",
        usd=-time_usd * terms.discount_fraction,
        how=f"{terms.discount_fraction:.4g} off machine time at {terms.name}",
        source=terms.source_of("discount"),
    )


def _fee(terms: Terms, run: Run) -> Line | None:
    """What is paid by the month besides, for every month that is begun."""
    if not terms.fee_usd_per_month:
        return None
    months = np.maximum(np.ceil(run.calendar_s / MONTH_S - 1e-9), 1.0)
    return Line(
        name="monthly fee",
        usd=months * terms.fee_usd_per_month,
        how=lambda: f"{months:,.0f} x ${terms.fee_usd_per_month:,.2f} at {terms.name}",
        source="the workload file",
    )


def _own_time_lines(workload: Workload, bill: Bill) -> Iterator[Line]:
    """The user's own hours, where they count."""
    own = workload.own_time
    if own is None:
        return
    session_s = bill.sampler.of("own time", own.session_s)
    hours = (session_s * bill.run.sessions + bill.sampler.of("own time, once", own.once_s)) / HOUR_S
    yield Line(
        name="your own hours",
        usd=hours * own.usd_per_hour,
        how=lambda: f"{hours:,.1f} h x ${own.usd_per_hour:,.4g}/h",
        source="the workload file",
    )
