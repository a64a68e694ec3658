"""One option in full: its bill line by line, its hours, what its cost hangs on, and its sources."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from outlay.cost.lines import UnpricedItem
from outlay.hardware.gpus import PEAKS, Gpu
from outlay.offers.spot import spot_risk
from outlay.offers.terms import remarks, terms_of
from outlay.plan.option import Option
from outlay.plan.ranking import Plan
from outlay.plan.sensitivity import Swing
from outlay.report.console import INDENT, Page, Table, bullets, table
from outlay.report.plan import machine_of, money, place_of, prices_of_then
from outlay.report.text import (
    clipped_percent,
    doubt_reasons,
    duration,
    duration_range,
    usd,
    usd_range,
)
from outlay.trace.profile import Profile
from outlay.units import HOUR_S, MONTH_S, YEAR_S
from outlay.workload.workload import Workload

# Its sources: every row behind its price, its bill and its speed.


_GPU_FACTS = ("memory_usable", "memory_bandwidth", "tdp")


def print_sources(page: Page, option: Option, profile: Profile) -> None:
    """Print the table of sources."""
    rows = list(_rows(option, profile))
    body = table(("figure", "value", "source"), rows, page.width - INDENT, wrap="source")
    page.print_section("Where these figures come from", body)


def _rows(option: Option, profile: Profile) -> Iterator[tuple[str, str, str]]:
    offer = option.offer
    quote, price = offer.hourly_usd(option.tenancy), option.hourly_usd
    yield "price", "-" if quote is None else f"${quote:.4g}/h", _price_source(option)
    if price is not None and quote is not None and price != quote:
        yield "expected price", f"${price:.4g}/h", "data/price_moves.csv and spot_history_DATE.csv"
    for line in option.cost.breakdown.lines if option.cost else ():
        if line.source and not line.source.startswith(offer.source):
            yield line.name, f"${float(line.usd):.4g}", line.source
    if option.tenancy == "spot":
        risk = spot_risk(offer)
        rate = f"{risk.interruptions_per_month.likely:.3g} a month"
        yield "interruptions", rate, risk.source
    yield from _gpu_rows(option.step.placement.gpu)
    traced = ", ".join(f"{name} {version}" for name, version in profile.versions.items())
    yield "training step", profile.name, f"traced on {profile.traced_on} with {traced}"
    yield "efficiencies", "", "data/calibration.csv, each row with its measurements"
    yield "assumptions", "", "data/assumptions.csv, each row with its source or 'guess'"


def _price_source(option: Option) -> str:
    return f"{option.offer.source}, {option.offer.seen_on(option.tenancy)}"


def _gpu_rows(gpu: Gpu) -> Iterator[tuple[str, str, str]]:
    """The facts of the GPU that decide time and memory."""
    for name in (*_GPU_FACTS, *PEAKS.values()):
        fact = gpu.facts[name]
        if fact.number is not None:
            note = f" ({fact.note})" if fact.note else ""
            yield (
                f"{gpu.name} {name}",
                f"{fact.text} {fact.unit}",
                (f"{fact.source}, {fact.as_of}{note}"),
            )


# The option: its bill, its hours, and the inputs that move its cost.


MOST_SWINGS = 8


def print_explained(
    page: Page,
    plan: Plan,
    option: Option,
    workload: Workload,
    profile: Profile,
    swings: Sequence[Swing],
) -> None:
    """Print everything behind one option."""
    for sentence in prices_of_then(plan):
        page.print(sentence)
    page.print(_head(option, workload))
    for title, body in _sections(plan, option, workload, swings, page.width - INDENT):
        page.print_section(title, body)
    print_sources(page, option, profile)


def _head(option: Option, workload: Workload) -> Text:
    text = Text(f"#{option.rank} {machine_of(option)} at {place_of(option)}, {option.tenancy}: ")
    if option.cost_usd is None or option.run_time_s is None:
        text.append(option.why_not or "no price known")
        return text
    cost, time_s = option.cost_usd, option.run_time_s
    text.append(f"{money(cost.likely, workload)} ({usd_range(cost) or 'exactly'}), ")
    text.append(f"{duration(time_s.likely)} ({duration_range(time_s) or 'exactly'}). ")
    text.append("It is the choice." if option.why_not is None else f"Not chosen: {option.why_not}.")
    return text


def _sections(
    plan: Plan, option: Option, workload: Workload, swings: Sequence[Swing], width: int
) -> Iterator[tuple[str, RenderableType]]:
    if option.cost is not None:
        yield "What it costs, line by line", bill(option, workload, width)
    if option.cash.payments or option.cash.unknown or float(option.cash.due_usd()) > 0:
        yield "What must be paid, and when", _payments(option, width)
    if option.run is not None:
        yield "How its hours are spent", _hours(option, width)
    if swings:
        yield (
            "What its cost depends on: each input from its 10th to its 90th percentile",
            _swings(swings, width),
        )
    if option.offer.doubts:
        yield "What is doubtful about its price", _doubts(option, width)
    yield "Worth knowing", bullets([*_remarks(option), *option.notes])
    yield "Assumed", bullets(plan.assumptions)


_WEIGHTS = {
    "note": "for information",
    "weighed": "widens the price's range",
    "caution": "keeps it from being chosen",
    "no price": "not for sale at this price",
}


def _doubts(option: Option, width: int) -> Table:
    """Every doubt about an offer, how much it weighs in this tenancy, and what it means."""
    offer = option.offer
    reasons = doubt_reasons(offer, [doubt.word for doubt in offer.doubts])
    rows = [
        (
            doubt.word,
            _WEIGHTS[doubt.kind] if doubt.concerns(option.tenancy) else "does not apply here",
            reasons[doubt.word],
        )
        for doubt in offer.doubts
    ]
    return table(("doubt", "weight", "why"), rows, width, wrap="why")


def bill(option: Option, workload: Workload, width: int) -> Table:
    """The lines of an option, each with its range and how it came about."""
    assert option.cost is not None
    ranges = option.ranges
    spreads = ranges.lines if ranges else ()
    rows = []
    for place, line in enumerate(option.cost.breakdown.lines):
        spread = usd_range(spreads[place]) if place < len(spreads) else ""
        rows.append((line.name, usd(float(line.usd)), spread, line.basis))
    total = option.cost_usd
    own = "" if workload.currency == "USD" else f"{option.usd:,.2f} USD"
    if workload.rate_as_of:
        own += f", rate of {workload.rate_as_of}"
    rows.append(("total", usd(option.usd), "" if total is None else usd_range(total), own))
    rows += [("not priced", "unknown", "", _missing(item)) for item in option.cost.unpriced]
    return table(("line", "amount", "range", "how"), rows, width, right=("amount",), wrap="how")


def _payments(option: Option, width: int) -> Table:
    """What is paid on the first day, and what a term leaves due whenever one stops."""
    cash, commitment = option.cash, option.offer.commitment
    rows = [
        (f"on day one: {payment.name}", usd(float(payment.usd)), payment.basis)
        for payment in cash.payments
    ]
    if len(rows) > 1:
        rows.append(("on day one, all", usd(float(cash.upfront_usd)), ""))
    rows += [("on day one", "unknown", what) for what in cash.unknown]
    if commitment is not None:
        rows += _stopped(option)
        if float(cash.upfront_usd):
            refund = terms_of(option.offer.provider).quality("refund")
            back = "no refund is known of" if refund is None else refund
            rows.append(("refund of what was paid upfront", "", back))
    return table(("payment", "amount", "how"), rows, width, right=("amount",), wrap="how")


def _stopped(option: Option) -> list[tuple[str, str, str]]:
    """What remains due at some points of the term."""
    cash, rows = option.cash, []
    if not float(cash.due_usd()):
        return [("due if you stop early", usd(0.0), "the whole term is paid on day one")]
    stops = {"at once": 0.0, "after 1 month": MONTH_S, "after 1 year": YEAR_S}
    stops["half-way"] = cash.term_s / 2
    for when, after_s in sorted(stops.items(), key=lambda stop: stop[1]):
        if after_s < cash.term_s:
            left_h = (cash.term_s - after_s) / HOUR_S
            how = f"the rest of the term, {left_h:,.0f} of {cash.term_s / HOUR_S:,.0f} h"
            rows.append((f"due if you stop {when}", usd(float(cash.due_usd(after_s))), how))
    return rows


def _missing(item: UnpricedItem) -> str:
    if item.usual_usd is None:
        return item.what
    usual = usd(float(np.mean(item.usual_usd)))
    return f"{item.what}; {usual} at usual prices, which the ranking counts"


def _hours(option: Option, width: int) -> Table:
    """How the time it is held divides."""
    run = option.run
    assert run is not None
    rows = [
        (name, f"{float(time_s) / HOUR_S:,.2f} h", clipped_percent(float(time_s) / option.busy_s))
        for name, time_s in run.time_parts_s
    ]
    rows.append(("all", f"{option.busy_s / HOUR_S:,.2f} h", _sessions(option)))
    return table(("part", "time", "share"), rows, width, right=("time",), wrap="share")


def _sessions(option: Option) -> str:
    run = option.run
    assert run is not None
    clauses = []
    if float(run.sessions) > 1:
        clauses.append(f"in {float(run.sessions):,.0f} sessions")
    if float(run.calendar_s) > 1.01 * option.busy_s:
        clauses.append(f"over {duration(float(run.calendar_s))}")
    if float(run.waiting_s):
        clauses.append(f"and {duration(float(run.waiting_s))} of waiting for machines, not billed")
    return ", ".join(clauses)


def _swings(swings: Sequence[Swing], width: int) -> Table:
    rows = [
        (
            swing.name,
            usd(swing.usd.low),
            usd(swing.usd.high),
            "" if swing.winner is None else _named(swing.winner),
        )
        for swing in swings[:MOST_SWINGS]
    ]
    heads = ("input", "from", "to", "then cheaper")
    return table(heads, rows, width, right=("from", "to"), wrap="then cheaper")


def _named(option: Option) -> str:
    return f"{machine_of(option)} at {place_of(option)}"


def _remarks(option: Option) -> Iterator[str]:
    """What one should know of the machine and who rents it out."""
    provider = option.offer.provider
    yield from (f"{provider}: {remark}" for remark in remarks(terms_of(provider)))
    if option.tenancy == "spot" and option.run is not None:
        risk = spot_risk(option.offer)
        rate = risk.interruptions_per_month
        yield (
            f"interrupted {rate.likely:.3g} times a month ({rate.low:.3g} to {rate.high:.3g}; "
            f"{risk.source}): {float(option.run.interruptions):.2g} times in this run, with a "
            f"checkpoint every {duration(float(option.run.checkpoint_interval_s))}"
        )
        yield (
            f"your time for starts and interruptions counts as {usd(option.trouble_usd)} in the "
            "ranking, not in the bill: prefer.per_start and prefer.per_interruption set it"
        )
    if option.expected_cost_usd is not None and option.expected_cost_usd != option.usd:
        yield f"costs {usd(option.expected_cost_usd)} on average over its simulated runs"
    if option.condition is not None:
        yield f"take it {option.condition}"
    ranges = option.ranges
    if ranges is not None and ranges.within_budget is not None:
        yield f"chance of keeping the budget: {clipped_percent(ranges.within_budget)}"
    if ranges is not None and ranges.meets_deadline is not None:
        yield f"chance of keeping the deadline: {clipped_percent(ranges.meets_deadline)}"
