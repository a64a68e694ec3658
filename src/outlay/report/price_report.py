"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlay.offers.offer import Tenancy
from outlay.offers.price_book import PriceBook
from outlay.prices.alerts import CheapOffer
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
    days = days_between(book.as_of, today)
    age = "of today" if days <= 0 else f"{days} day{'s' * (days > 1)} old"
    renew = ": `outlay prices refresh` renews them" if days > OLD_DAYS else ""
    return f"{book.name}, {age}{renew}"


# --- refresh ---


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
