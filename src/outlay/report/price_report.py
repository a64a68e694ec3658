"""Prices on screen: what a refresh brought, sources side by side, what prices did."""

from __future__ import annotations

from outlay.offers.price_book import PriceBook
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


# --- import ---


# --- what is installed, and which sources answer ---
