"""What a run costs on an offer, in the lines a bill would have.

A total is the sum of its lines and nothing else. What has no known price is named in `unknown`
and is in no line: it is never counted as zero silently.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outlay.estimate import Breakdown, Estimate, Line
from outlay.offers.offer import Offer, Owned, Tenancy
from outlay.offers.terms import StorageKind, Terms
from outlay.predict.run import Run
from outlay.units import DAY_S, GB, HOUR_S, MONTH_S
from outlay.workload import FREE_SOURCES, WITH_THE_RUN, Stored, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A run's cost in lines, and what could not be priced."""

    breakdown: Breakdown
    unknown: tuple[str, ...] = ()

    @property
    def usd(self) -> Estimate:
        """The total of what could be priced."""
        return self.breakdown.usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """What a cost is worked out from: the run, the offer as it is had, and everybody's terms."""

    run: Run
    offer: Offer
    tenancy: Tenancy
    hourly_usd: Estimate
    """The price of the whole machine with the range it moves in."""
    terms: Callable[[str], Terms]
    gpu_w: float = 0.0
    """Power of all GPUs of the machine under load, for one's own machine."""


def rented_cost(workload: Workload, bill: Bill) -> Cost:
    """The cost of a run on a rented machine."""
    machines = workload.usage.machines
    lines = [
        _time_line("compute", bill.run.training_s, bill, machines),
        _time_line("checkpoints", bill.run.checkpoint_s, bill, machines),
        _time_line("spot repetition", bill.run.repeated_s, bill, machines),
        _time_line("set-up", _exactly(bill.run.sessions * bill.run.setup_s), bill, machines),
        _time_line("data preparation", _exactly(bill.run.preparation_s), bill, machines),
        _time_line("data download", _exactly(bill.run.download_s), bill, machines),
        _rounding_line(bill, machines),
    ]
    storage, no_storage = _storage_lines(workload, bill)
    transfer, no_transfer = _transfer_lines(workload, bill)
    kept = [line for line in (*lines, *storage, *transfer) if line.usd.high > 0]
    return Cost(breakdown=Breakdown(lines=tuple(kept)), unknown=(*no_storage, *no_transfer))


def owned_cost(workload: Workload, bill: Bill, owned: Owned) -> Cost:
    """The cost of a run on one's own machine: what running it adds, and its share of a purchase."""
    machines = workload.usage.machines
    busy = bill.run.busy_s.scaled(machines)
    electricity = owned_usd_per_hour(owned, bill.gpu_w)
    watts = (bill.gpu_w + owned.host_w) * owned.pue
    lines = [
        Line(
            name="electricity",
            usd=busy.scaled(electricity / HOUR_S),
            basis=f"{busy.likely / HOUR_S:,.1f} h x {watts:,.0f} W x "
            f"${owned.electricity_usd_per_kwh:.3f}/kWh",
            source=bill.offer.source,
        )
    ]
    if owned.wear_usd_per_hour:
        lines.append(
            Line(
                name="wear",
                usd=busy.scaled(owned.wear_usd_per_hour / HOUR_S),
                basis=f"{busy.likely / HOUR_S:,.1f} h x ${owned.wear_usd_per_hour:.3f}/h",
                source=bill.offer.source,
            )
        )
    if owned.purchase_usd is not None and owned.lifetime_use_s is not None:
        spread_usd = owned.purchase_usd - owned.resale_usd
        lines.append(
            Line(
                name="purchase less resale",
                usd=busy.scaled(spread_usd / owned.lifetime_use_s),
                basis=f"${spread_usd:,.0f} over {owned.lifetime_use_s / HOUR_S:,.0f} h of use, "
                f"{busy.likely / HOUR_S:,.1f} h of them",
                source=bill.offer.source,
            )
        )
    storage, no_storage = _storage_lines(workload, bill)
    transfer, no_transfer = _transfer_lines(workload, bill)
    return Cost(
        breakdown=Breakdown(lines=(*lines, *storage, *transfer)),
        unknown=(*no_storage, *no_transfer),
    )


def owned_usd_per_hour(owned: Owned, gpu_w: float) -> float:
    """What running one's own machine adds each hour: its electricity."""
    return (gpu_w + owned.host_w) * owned.pue / 1000 * owned.electricity_usd_per_kwh


def billed_s(used_s: float, terms: Terms) -> float:
    """Time charged for a session: at least the minimum, rounded up to the billing step."""
    charged_s = max(used_s, terms.billing_minimum_s or 0.0)
    step_s = terms.billing_step_s or 0.0
    if step_s <= 0:
        return charged_s
    # A hair off the quotient, so that 3600.0000001 s is one hour and not two.
    return math.ceil(charged_s / step_s - 1e-9) * step_s


def break_even_s(
    purchase_usd: float,
    *,
    rented_usd_per_hour: float,
    owned_usd_per_hour: float,
    use_fraction: float = 1.0,
) -> float | None:
    """Time after which buying has cost less than renting, None where it never does.

    purchase / ((rented - owned) x share of the time the machine is used).
    """
    saved_usd_per_s = (rented_usd_per_hour - owned_usd_per_hour) / HOUR_S * use_fraction
    return purchase_usd / saved_usd_per_s if saved_usd_per_s > 0 else None


def _exactly(value: float) -> Estimate:
    return Estimate.exactly(value)


def _time_line(name: str, time_s: Estimate, bill: Bill, machines: int) -> Line:
    price = bill.hourly_usd
    times = f" x {machines} machines" if machines > 1 else ""
    return Line(
        name=name,
        usd=time_s.times(price).scaled(machines / HOUR_S),
        basis=f"{time_s.likely / HOUR_S:,.2f} h x ${price.likely:,.4g}/h{times}",
        source=f"{bill.offer.source}, {bill.offer.as_of}",
    )


def _rounding_line(bill: Bill, machines: int) -> Line:
    """What the billing step adds to each session."""
    terms = bill.terms(bill.offer.provider)
    session_s = bill.run.busy_s.likely / bill.run.sessions
    added_s = (billed_s(session_s, terms) - session_s) * bill.run.sessions
    line = _time_line("billing step", _exactly(max(added_s, 0.0)), bill, machines)
    step_s = terms.billing_step_s or 0.0
    return Line(
        name=line.name,
        usd=line.usd,
        basis=f"each session rounded up to {step_s:.0f} s",
        source=terms.source_of("billing_step"),
    )


def _kept(workload: Workload) -> tuple[Stored, ...]:
    """Everything that lies somewhere and is paid for by the month."""
    data, checkpoint = workload.data, workload.checkpoint
    items = list(workload.stored)
    if data.size_bytes is not None and data.storage != "none":
        items.append(
            Stored(name="dataset", size_bytes=data.size_bytes, at=data.kept_at, kind=data.storage)
        )
    if checkpoint.size_bytes is not None:
        items.append(Stored(name="checkpoints", size_bytes=checkpoint.size_bytes * checkpoint.kept))
    return tuple(items)


def _storage_lines(workload: Workload, bill: Bill) -> tuple[list[Line], tuple[str, ...]]:
    lines, unknown = [], []
    for item in _kept(workload):
        place = bill.offer.provider if item.at == WITH_THE_RUN else item.at
        kind: StorageKind = item.kind  # type: ignore[assignment]  # checked when read
        terms = bill.terms(place)
        rate = terms.storage_usd_per_byte_month.get(kind)
        if place in FREE_SOURCES or (place == bill.offer.provider and bill.offer.owned):
            continue
        if rate is None:
            unknown.append(f"{kind} storage of the {item.name} at {terms.name}: no price known")
            continue
        lines.append(_storage_line(item, terms, rate, bill.run.kept_s))
    return lines, tuple(unknown)


def _storage_line(item: Stored, terms: Terms, rate: float, kept_s: Estimate) -> Line:
    return Line(
        name="storage",
        usd=kept_s.scaled(item.size_bytes * rate / MONTH_S),
        basis=f"{item.name}: {item.size_bytes / GB:,.4g} GB x ${rate * GB:.4g}/GB-month x "
        f"{kept_s.likely / DAY_S:,.1f} days at {terms.name}",
        source=terms.source_of(f"{item.kind}_storage"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pull:
    """Bytes moved out of a place over the whole period."""

    place: str
    name: str
    moved_bytes: float


def _pulls(workload: Workload, sessions: float) -> Iterator[_Pull]:
    """Everything that is moved out of where it lies."""
    every = workload.usage.machines * sessions
    for item in workload.stored:
        if item.pulled_bytes:
            yield _Pull(place=item.at, name=item.name, moved_bytes=item.pulled_bytes * every)
    data = workload.data
    if data.size_bytes is None:
        return
    if data.kept_at == WITH_THE_RUN:
        times = 1.0 if data.storage != "none" else every
        yield _Pull(place=data.at, name="dataset", moved_bytes=data.size_bytes * times)
    else:
        if data.at != data.kept_at:
            yield _Pull(place=data.at, name="dataset", moved_bytes=data.size_bytes)
        yield _Pull(place=data.kept_at, name="dataset", moved_bytes=data.size_bytes * every)


def _transfer_lines(workload: Workload, bill: Bill) -> tuple[list[Line], tuple[str, ...]]:
    """What leaving each place costs; all that leaves a provider shares its free allowance."""
    lines, unknown = [], []
    months = max(bill.run.period_s.likely / MONTH_S, 1.0)
    free_left: dict[str, float] = {}
    for pull in _pulls(workload, bill.run.sessions):
        if pull.place in (bill.offer.provider, WITH_THE_RUN, *FREE_SOURCES):
            continue
        terms = bill.terms(pull.place)
        if terms.egress_usd_per_byte is None:
            unknown.append(f"transfer of the {pull.name} out of {terms.name}: no price known")
            continue
        allowance = (terms.egress_free_bytes_per_month or 0.0) * months
        free_bytes = min(free_left.get(pull.place, allowance), pull.moved_bytes)
        free_left[pull.place] = free_left.get(pull.place, allowance) - free_bytes
        lines.append(_transfer_line(pull, free_bytes, terms, terms.egress_usd_per_byte))
    return lines, tuple(unknown)


def _transfer_line(pull: _Pull, free_bytes: float, terms: Terms, rate: float) -> Line:
    free = f" less {free_bytes / GB:,.4g} GB free" if free_bytes else ""
    return Line(
        name="transfer",
        usd=_exactly((pull.moved_bytes - free_bytes) * rate),
        basis=f"{pull.name}: {pull.moved_bytes / GB:,.4g} GB{free} x "
        f"${rate * GB:.4g}/GB out of {terms.name}",
        source=terms.source_of("egress"),
    )
