"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from outlay.offers.catalog import doubt_meanings
from outlay.offers.price_book import PriceBook
from outlay.prices.checks import BUNDLED, ComparedMachine, SourceComparison, SourcePrice
from outlay.report.console import Page, table
from outlay.report.documents import Document, copied
from outlay.report.text import counted, usd
from outlay.report.text import machine as machine_name
from outlay.units import days_between

OLD_DAYS = 14
"""Prices older than that are said to be old, with the command that renews them."""


def prices_in_words(book: PriceBook, today: str) -> str:
    """Whose prices, how old, and how to renew old ones: `the bundled snapshot of 2026-08-22`."""
    if book.kind == "past" or not today:
        return book.name
    days = days_between(book.as_of, today)
    age = "of today" if days <= 0 else f"{days} day{'s' * (days > 1)} old"
    renew = ": `outlay prices refresh` renews them" if days > OLD_DAYS else ""
    return f"{book.name}, {age}{renew}"


# --- refresh ---


# --- compare ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePriceDocument:
    """What one source says of a machine."""

    source: str
    """`skypilot`, `gpuhunt` ...; `bundled` for the snapshot that comes with outlay."""
    instance: str
    as_of: str
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    difference_fraction: float | None
    """How much more it is on demand than the price a plan takes (than the first, where a plan
    takes none); null for that price itself."""
    used: bool
    """Whether a plan takes this price."""
    doubts: Sequence[str]
    cited: str
    """Where it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMachineDocument:
    """One machine as two or more sources list it."""

    provider: str
    instance: str
    gpu: str
    gpus: int
    region: str
    apart_fraction: float | None
    """By how much the dearest price on demand is above the cheapest."""
    doubts: Sequence[str]
    """`sources disagree`, `sources far apart`, or none."""
    doubt_reasons: Mapping[str, str]
    why: str
    """Why a plan takes the price it takes."""
    prices: Sequence[SourcePriceDocument]
    """The one that a plan takes first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareDocument(Document):
    """What sources say of the same machines, the farthest apart first."""

    gpu: str
    machines: Sequence[ComparedMachineDocument]
    only_one: Mapping[str, int]
    """How many machines a source alone lists, by source."""


def compare_document(gpu: str, comparison: SourceComparison) -> CompareDocument:
    """`outlay prices compare --json`."""
    return CompareDocument(
        gpu=gpu,
        machines=[_machine_document(machine) for machine in comparison.machines],
        only_one=comparison.only_one,
    )


def _machine_document(machine: ComparedMachine) -> ComparedMachineDocument:
    return copied(
        ComparedMachineDocument,
        machine.offer,
        apart_fraction=machine.apart_fraction,
        doubts=machine.doubts,
        doubt_reasons={word: doubt_meanings()[word] for word in machine.doubts},
        why=machine.why,
        prices=[_source_price_document(price) for price in machine.prices],
    )


def _source_price_document(price: SourcePrice) -> SourcePriceDocument:
    offer = price.offer
    return SourcePriceDocument(
        source=price.source,
        instance=offer.instance,
        as_of=offer.as_of,
        price_usd_per_hour=offer.price_usd_per_hour,
        spot_usd_per_hour=offer.spot_usd_per_hour,
        difference_fraction=price.more_fraction,
        used=price.is_used,
        doubts=[doubt.word for doubt in offer.doubts],
        cited=offer.source,
    )


def print_comparison(page: Page, gpu: str, comparison: SourceComparison, most: int) -> None:
    """Print what sources say of the same machines, a row for each source."""
    shown = comparison.machines[:most]
    if shown:
        page.print(f"{gpu} by source, the farthest apart first")
        page.print(_comparison_table(shown, page.width))
        words = {word for machine in shown for word in machine.doubts}
        for word, meaning in doubt_meanings().items():
            if word in words:
                page.print(f"  {word}: {meaning}.")
    total = len(comparison.machines)
    page.print(f"Shown {len(shown)} of {counted(total, 'machine')} that two or more sources list.")
    alone = [f"{source} {number:,}" for source, number in comparison.only_one.items()]
    if alone:
        page.print(f"Listed by one source alone: {', '.join(alone)}.")
    if set(comparison.only_one) <= {BUNDLED} and not total:
        page.print("`outlay prices refresh` brings further sources.")


def _comparison_table(machines: Sequence[ComparedMachine], width: int) -> Table:
    rows = [_comparison_row(machine, price) for machine in machines for price in machine.prices]
    return table(
        ("machine", "provider", "instance", "region", "source", "as of", "$/h", "spot $/h",
         "differs", "in a plan"),
        rows,
        width,
        right=("$/h", "spot $/h", "differs"),
        drop=("instance", "spot $/h", "region"),
        wrap="in a plan",
    )  # fmt: skip


def _comparison_row(machine: ComparedMachine, price: SourcePrice) -> tuple[str, ...]:
    """The machine's name stands in its first row; what a plan takes and the doubts, too."""
    offer, first = price.offer, price is machine.prices[0]
    instance = offer.instance if first or offer.instance != machine.offer.instance else ""
    why = f"used: {machine.why}" if price.is_used else machine.why
    said = "; ".join((why, *machine.doubts)) if first else ""
    more = price.more_fraction
    return (
        machine_name(offer) if first else "",
        offer.provider if first else "",
        instance,
        offer.region if first or offer.region != machine.offer.region else "",
        price.source,
        offer.as_of,
        _price(offer.price_usd_per_hour),
        _price(offer.spot_usd_per_hour),
        "" if more is None else f"{100 * more:+.1f} %",
        said,
    )


def _price(amount: float | None) -> str:
    return "-" if amount is None else usd(amount)


# --- history ---


# --- changes ---


# --- watch ---


# --- import ---


# --- what is installed, and which sources answer ---
