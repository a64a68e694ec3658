"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outlay.offers.offer import Offer, Tenancy
from outlay.offers.price_book import PriceBook
from outlay.prices.alerts import CheapOffer
from outlay.prices.price_store import Attempt, State
from outlay.report.console import Page, table
from outlay.report.documents import Document
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
