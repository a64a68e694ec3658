"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich.table import Table

from outlay.offers.price_book import PriceBook
from outlay.report.console import Page, table
from outlay.report.text import counted
from outlay.units import days_between

if TYPE_CHECKING:
    from outlay.prices.own_lists import ListSummary

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


# --- import ---


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnListDocument:
    """A price list of one's own that is kept, or the exchange rates."""

    name: str
    kind: Literal["offers", "discounts", "cards", "parts", "rates"] | None
    """None where it cannot be read; `notes` say why."""
    rows: int
    """Offers, cards or parts; of exchange rates, days."""
    discounts: int
    as_of: str | None
    """The newest day in it (YYYY-MM-DD)."""
    gpus: Sequence[str]
    """GPUs in it, as outlay names them."""
    unknown: Sequence[str]
    """Names in it that outlay does not know: kept, and in no plan."""
    notes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PricesImportDocument:
    """What `outlay prices import` did, and what is kept now."""

    schema: Literal[1] = 1
    imported: OwnListDocument | None
    removed: str | None
    lists: Sequence[OwnListDocument]


def import_document(
    imported: ListSummary | None, removed: str | None, lists: Iterable[ListSummary]
) -> PricesImportDocument:
    """The document of an import."""
    return PricesImportDocument(
        imported=None if imported is None else _list_document(imported),
        removed=removed,
        lists=[_list_document(kept) for kept in lists],
    )


def _list_document(kept: ListSummary) -> OwnListDocument:
    return OwnListDocument(
        name=kept.name,
        kind=kept.kind,
        rows=kept.rows,
        discounts=kept.discounts,
        as_of=kept.as_of,
        gpus=kept.gpus,
        unknown=kept.unknown,
        notes=kept.notes,
    )


_ROWS = {
    "offers": "offer",
    "cards": "card price",
    "parts": "part price",
    "rates": "day",
}
"""What one row of a list is."""


def print_import(
    out: Page, imported: ListSummary | None, removed: str | None, lists: Sequence[ListSummary]
) -> None:
    """What was taken or removed; what is kept where neither was asked for."""
    if imported is not None:
        for sentence in _imported_in_words(imported):
            out.print(sentence)
    elif removed is not None:
        out.print(f"Removed {removed}; {counted(len(lists), 'list')} kept.")
    elif lists:
        out.print(_lists_table(lists, out.width))
    else:
        out.print("No list of your own is kept: `outlay prices import FILE` takes one.")


def _imported_in_words(taken: ListSummary) -> Iterator[str]:
    rows = counted(taken.rows, _ROWS[taken.kind]) if taken.kind in _ROWS else ""
    agreed = counted(taken.discounts, "discount") if taken.discounts else ""
    day = f", the newest of {taken.as_of}" if taken.as_of else ""
    yield f"Kept {taken.name}: {' and '.join(filter(None, (rows, agreed)))}{day}."
    if taken.gpus:
        yield f"GPUs: {', '.join(taken.gpus)}."
    if taken.unknown:
        yield (
            f"Not known to outlay, so kept and in no plan: {', '.join(taken.unknown)}. "
            "`outlay gpus` lists GPUs, `outlay build --list KIND` parts."
        )
    yield from taken.notes


def _lists_table(lists: Sequence[ListSummary], width: int) -> Table:
    heads = ("list", "kind", "rows", "discounts", "newest", "gpus", "not known", "notes")
    rows = [
        (
            kept.name,
            kept.kind or "cannot be read",
            f"{kept.rows:,}",
            f"{kept.discounts}" if kept.discounts else "",
            kept.as_of or "",
            ", ".join(kept.gpus),
            ", ".join(kept.unknown),
            " ".join(kept.notes),
        )
        for kept in lists
    ]
    return table(heads, rows, width, right=("rows", "discounts"), drop=("gpus",), wrap="notes")


# --- what is installed, and which sources answer ---
