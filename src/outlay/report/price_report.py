"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from outlay.offers.catalog import doubt_meanings
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.price_book import PriceBook
from outlay.prices.alerts import CheapOffer
from outlay.prices.checks import BUNDLED, ComparedMachine, SourceComparison, SourcePrice
from outlay.prices.price_store import Attempt, State
from outlay.report.console import Page, table
from outlay.report.documents import Document, copied
from outlay.report.text import counted, machine, usd
from outlay.units import days_between

OLD_DAYS = 14
"""Prices older than that are said to be old, with the command that renews them."""


def prices_in_words(book: PriceBook, today: str) -> str:
    """Whose prices, how old, and how to renew old ones: `the bundled snapshot of 2026-08-22`."""
    if book.kind == "past" or not today:
        return book.name
    if book.freshness:
        return _refreshed_in_words(book, today)
    days = days_between(book.as_of, today)
    age = "of today" if days <= 0 else f"{days} day{'s' * (days > 1)} old"
    renew = ": `outlay prices refresh` renews them" if days > OLD_DAYS else ""
    return f"{book.name}, {age}{renew}"


# --- refresh ---


def _refreshed_in_words(book: PriceBook, today: str) -> str:
    """`26 providers refreshed today, 3 older: azure 2024-08-19, ibm 2023-01-15 and 1 more`."""
    days = {name: days_between(day, today) for name, day in book.freshness.items()}
    new = [name for name, age in days.items() if age <= OLD_DAYS]
    old = sorted((day, name) for name, day in book.freshness.items() if name not in new)
    parts = []
    if new:
        is_of_today = all(book.confirmed.get(name) == today for name in new)
        when = "refreshed today" if is_of_today else f"of the last {OLD_DAYS} days"
        parts.append(f"{counted(len(new), 'provider')} {when}")
    if old:
        named = [f"{name} {day}" for day, name in old]
        shown = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
        parts.append(f"{len(old)} older: {shown}" if new else f"prices of {shown}")
    waiting = [name for _, name in old if days_between(_asked(book, name), today) > OLD_DAYS]
    renew = ": `outlay prices refresh` renews them" if waiting else ""
    return ", ".join(parts) + renew


def _asked(book: PriceBook, provider: str) -> str:
    return book.confirmed.get(provider) or book.freshness[provider]


def is_old(book: PriceBook, offer: Offer, tenancy: Tenancy, today: str) -> bool:
    """Whether nobody has asked for the price of an offer for long."""
    asked = max(offer.seen_on(tenancy), book.confirmed.get(offer.provider, ""))
    return days_between(asked, today) > OLD_DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshedSourceDocument:
    """What became of asking one source about one provider."""

    source: str
    provider: str
    """`all` where a source cannot even say which it has."""
    state: State
    """New prices; the same as before; no answer, so that the last good ones are kept; an answer
    that was refused whole, so that the last good ones are kept."""
    offers: int
    """That are kept of it now."""
    as_of: str | None
    """The day of those, null where there are none."""
    reason: str | None
    missing_key: str
    """The variables that hold the key without which it is not answered; empty where none is
    needed, or it is set."""
    unknown_gpus: tuple[str, ...]
    """GPUs among its prices that outlay does not know."""
    is_new_provider: bool
    """Whether outlay knows nothing of the provider but these prices."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefreshDocument(Document):
    """What `outlay prices refresh --json` prints."""

    sources: tuple[RefreshedSourceDocument, ...]


def refresh_document(attempts: Sequence[Attempt]) -> RefreshDocument:
    """What a refresh brought, as JSON."""
    return RefreshDocument(
        sources=tuple(
            RefreshedSourceDocument(
                source=attempt.source,
                provider=attempt.provider,
                state=attempt.state,
                offers=attempt.offers,
                as_of=attempt.as_of,
                reason=attempt.reason,
                missing_key=attempt.missing_key,
                unknown_gpus=attempt.unknown_gpus,
                is_new_provider=attempt.is_new_provider,
                notes=attempt.notes,
            )
            for attempt in attempts
        )
    )


def print_refresh(attempts: Sequence[Attempt]) -> None:
    """What a refresh brought: a row for each source and provider, then what is new."""
    page = Page()
    shown = [attempt for attempt in attempts if not attempt.missing_key]
    rows = [
        [
            attempt.source,
            attempt.provider,
            attempt.state,
            f"{attempt.offers:,}",
            attempt.as_of or "-",
            attempt.reason or "",
        ]
        for attempt in shown
    ]
    if rows:
        heads = ("source", "provider", "state", "offers", "as of", "reason")
        page.print(table(heads, rows, page.width, right=("offers",), wrap="reason"))
    for sentence in _refresh_remarks(attempts):
        page.print(sentence)


def _refresh_remarks(attempts: Sequence[Attempt]) -> Iterator[str]:
    """What is to be said of a refresh beside its table."""
    done = [attempt for attempt in attempts if attempt.state in ("fresh", "unchanged")]
    yield f"Refreshed: {len(done)} of {counted(len(attempts), 'list')}."
    new = sorted({attempt.provider for attempt in attempts if attempt.is_new_provider})
    if new:
        yield f"New to outlay, without terms (billing, storage, transfer): {', '.join(new)}."
    gpus = sorted({gpu for attempt in attempts for gpu in attempt.unknown_gpus})
    if gpus:
        yield f"GPUs that outlay does not know, kept and in no plan: {', '.join(gpus)}."
    keys = {attempt.provider: attempt.missing_key for attempt in attempts if attempt.missing_key}
    if keys:
        named = ", ".join(f"{provider} ({key})" for provider, key in sorted(keys.items()))
        yield f"Not asked, as no key is set: {named}."


def refresh_failures(attempts: Sequence[Attempt]) -> str:
    """What could not be refreshed, on one line; empty where everything was."""
    failed = [
        attempt
        for attempt in attempts
        if attempt.state in ("kept", "refused") and not attempt.missing_key
    ]
    if not failed:
        return ""
    named = [f"{attempt.provider} ({attempt.source})" for attempt in failed]
    shown = ", ".join(named[:5]) + (f" and {len(named) - 5} more" if len(named) > 5 else "")
    return f"not refreshed, so that the last good prices are used: {shown}"


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


def _comparison_row(compared: ComparedMachine, price: SourcePrice) -> tuple[str, ...]:
    """The machine's name stands in its first row; what a plan takes and the doubts, too."""
    offer, first = price.offer, price is compared.prices[0]
    instance = offer.instance if first or offer.instance != compared.offer.instance else ""
    why = f"used: {compared.why}" if price.is_used else compared.why
    said = "; ".join((why, *compared.doubts)) if first else ""
    more = price.more_fraction
    return (
        machine(offer) if first else "",
        offer.provider if first else "",
        instance,
        offer.region if first or offer.region != compared.offer.region else "",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapOfferDocument:
    """An offer below the price that is waited for."""

    provider: str
    instance: str
    gpu: str
    gpus: int
    region: str
    tenancy: Tenancy
    usd_per_gpu_hour: float
    usd_per_hour: float
    """Of the whole machine."""
    as_of: str
    source: str
    doubts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapOffersDocument(Document):
    """What `outlay prices watch --json` prints at each look."""

    below_usd_per_gpu_hour: float
    happened: bool
    prices_as_of: str
    offers: tuple[CheapOfferDocument, ...]


def cheap_offers_document(
    cheap: Sequence[CheapOffer], below: float, book: PriceBook, today: str
) -> CheapOffersDocument:
    """The offers below a price as JSON."""
    return CheapOffersDocument(
        below_usd_per_gpu_hour=below,
        happened=bool(cheap),
        prices_as_of=book.as_of or today,
        offers=tuple(
            CheapOfferDocument(
                provider=found.offer.provider,
                instance=found.offer.instance,
                gpu=found.offer.gpu,
                gpus=found.offer.gpus,
                region=found.offer.region,
                tenancy=found.tenancy,
                usd_per_gpu_hour=found.usd_per_gpu_hour,
                usd_per_hour=found.usd_per_hour,
                as_of=found.offer.seen_on(found.tenancy),
                source=found.offer.source,
                doubts=tuple(doubt.word for doubt in found.offer.doubts),
            )
            for found in cheap
        ),
    )


def print_cheap_offers(
    cheap: Sequence[CheapOffer], gpus: Sequence[str], below: float, book: PriceBook, today: str
) -> None:
    """The offers below a price, or that there are none."""
    page, names = Page(), ", ".join(gpus)
    words = prices_in_words(book, today)
    if not cheap:
        page.print(f"No {names} below {usd(below)} a GPU-hour; {words}.")
        return
    page.print(f"{names} below {usd(below)} a GPU-hour: {counted(len(cheap), 'offer')}; {words}.")
    rows = [
        (
            found.offer.provider,
            machine(found.offer),
            found.tenancy,
            found.offer.region,
            usd(found.usd_per_gpu_hour),
            usd(found.usd_per_hour),
            found.offer.seen_on(found.tenancy),
            found.offer.instance,
        )
        for found in cheap[:20]
    ]
    heads = ("provider", "machine", "tenancy", "region", "$/gpu-h", "$/h", "as of", "instance")
    page.print(table(heads, rows, page.width, right=("$/gpu-h", "$/h"), wrap="instance"))
    if len(cheap) > len(rows):
        page.print(f"Shown {len(rows)} of {len(cheap)}; --json has all.")


# --- import ---


# --- what is installed, and which sources answer ---
