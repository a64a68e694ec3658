"""The prices that a command works with: the newest good ones there are.

For each provider the newest good prices that were refreshed, else those of the bundled snapshot;
lists of one's own go first, and negotiated discounts come off.

What is put together of all sources is kept beside them (`keep_book`, at the end of a refresh), so
that a command reads one list and not five; where that is missing or of other prices, it is put
together anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from outlay.errors import PriceStoreFailed
from outlay.offers.catalog import snapshot_date, snapshot_offers
from outlay.offers.expected_price import SpotMarket
from outlay.offers.offer import Offer, ZoneQuote
from outlay.offers.price_book import PriceBook, bundled_book
from outlay.prices.checks import doubted_by_others
from outlay.prices.listing import ProviderPrices
from outlay.prices.price_store import (
    PriceStore,
    columns_of,
    items_of,
    packed_json,
    unpacked_json,
)
from outlay.units import days_between

Warn = Callable[[str], None]
SAME_DAYS = 7
"""Lists whose days are no farther apart are as new as each other: the preferred source counts."""
PREFERRED = ("own", "vast", "skypilot", "gpuhunt")
"""Sources in the order they are taken from where their lists are as new: one's own, then who is
asked directly, then those whose names of instances and zones the tables of terms have."""


# --- the newest prices ---


def current_prices(today: str, warn: Warn = lambda _: None) -> PriceBook:
    """The newest good prices of every provider; the bundled ones where nothing was refreshed.

    What cannot be read of what was kept is warned of, and the bundled prices are used.
    """
    try:
        with PriceStore() as store:
            book = _kept_book(store)
    except PriceStoreFailed as error:
        warn(f"{error} Until then, the bundled prices are used.")
        book = None
    return _with_own_lists(book or bundled_book(), today)


def keep_book(store: PriceStore) -> None:
    """Put together what commands work with, and keep it beside what was refreshed."""
    lists = store.current()
    if lists:
        store.keep_derived(_BOOK, _packed(_merged(lists, store)))


_BOOK = "book"


def _kept_book(store: PriceStore) -> PriceBook | None:
    data = store.derived(_BOOK)
    book = None if data is None else _unpacked(data)
    if book is not None:
        return book
    lists = store.current()
    return _merged(lists, store) if lists else None


def _merged(lists: Sequence[ProviderPrices], store: PriceStore) -> PriceBook:
    """The newest good list of every provider, each looked at beside all others."""
    chosen, second = chosen_lists(lists)
    bundled = [offer for offer in snapshot_offers() if offer.provider not in chosen]
    refreshed = [offer for prices in chosen.values() for offer in prices.offers]
    freshness = _bundled_days()
    freshness |= {provider: prices.as_of for provider, prices in chosen.items()}
    confirmed = dict.fromkeys(freshness, snapshot_date())
    confirmed |= {provider: prices.fetched_at[:10] for provider, prices in chosen.items()}
    return _book(
        listed=doubted_by_others((*refreshed, *bundled), second),
        unknown=tuple(offer for prices in chosen.values() for offer in prices.unknown),
        freshness=freshness,
        confirmed=confirmed,
        market=_market(tuple(chosen.values()), store),
    )


def _book(
    *,
    listed: tuple[Offer, ...],
    unknown: tuple[Offer, ...],
    freshness: Mapping[str, str],
    confirmed: Mapping[str, str],
    market: SpotMarket | None,
) -> PriceBook:
    as_of = max(freshness.values())
    return PriceBook(
        name=f"refreshed prices, the newest of {as_of}",
        kind="refreshed",
        as_of=as_of,
        listed=listed,
        market=market,
        freshness=freshness,
        confirmed=confirmed,
        unknown=unknown,
    )


def chosen_lists(
    lists: Iterable[ProviderPrices],
) -> tuple[dict[str, ProviderPrices], dict[str, list[ProviderPrices]]]:
    """The list to work with of each provider, and what further sources say of it.

    The newest; of those that are at most a week older, the preferred source's (`PREFERRED`). A
    provider whose bundled offers are newer has no list.
    """
    by_provider: dict[str, list[ProviderPrices]] = {}
    for prices in lists:
        if prices.offers or prices.unknown:
            by_provider.setdefault(prices.provider, []).append(prices)
    bundled = _bundled_days()
    chosen, second = {}, {}
    for provider, found in by_provider.items():
        best = min(_as_new(found), key=_preference)
        second[provider] = [prices for prices in found if prices is not best]
        if best.as_of < bundled.get(provider, ""):
            second[provider] = found
        else:
            chosen[provider] = best
    return chosen, second


def _bundled_days() -> dict[str, str]:
    """The day of each provider's bundled offers."""
    days: dict[str, str] = {}
    for offer in snapshot_offers():
        days[offer.provider] = max(days.get(offer.provider, ""), offer.as_of)
    return days


def _as_new(lists: Sequence[ProviderPrices]) -> list[ProviderPrices]:
    newest = max(prices.as_of for prices in lists)
    return [prices for prices in lists if days_between(prices.as_of, newest) <= SAME_DAYS]


def _preference(prices: ProviderPrices) -> tuple[int, str]:
    known = prices.source in PREFERRED
    return (PREFERRED.index(prices.source) if known else len(PREFERRED), prices.source)


def _market(lists: Sequence[ProviderPrices], store: PriceStore) -> SpotMarket | None:  # noqa: ARG001
    """The spot prices of the lists' zones, with their past."""
    return None


def _own_lists() -> Any:
    """What reads lists of one's own; only those who have some need it."""
    try:
        from outlay.prices import own_lists  # type: ignore[attr-defined]
    except ImportError:
        return None
    return own_lists


def _with_own_lists(book: PriceBook, today: str) -> PriceBook:
    """A book with one's own offers first, and with what was agreed off all others."""
    own_lists = _own_lists()
    if own_lists is None:
        return book
    own, unknown = own_lists.own_offers(today), own_lists.unknown_own_offers(today)
    listed = snapshot_offers() if book.kind == "bundled" else book.listed
    priced = own_lists.discounted(own_lists.own_first(own, listed), today)
    if priced == listed and not unknown:
        return book
    days = {offer.provider: offer.as_of for offer in own}
    bundled = _bundled_days() if book.kind == "bundled" else {}
    return replace(
        book,
        name=f"{book.name}, with your own price lists",
        kind="refreshed",
        as_of=max(book.as_of, *days.values()) if days else book.as_of,
        listed=priced,
        freshness={**bundled, **book.freshness, **days},
        confirmed={**dict.fromkeys(bundled, book.as_of), **book.confirmed, **days},
        unknown=(*book.unknown, *unknown),
        _seen={},
    )


# What was put together, as JSON


def _packed(book: PriceBook) -> bytes:
    quotes = {} if book.market is None else book.market.quotes  # type: ignore[attr-defined]
    zones = [(*key, zone) for key, zones in quotes.items() for zone in zones]
    return packed_json(
        {
            "snapshot": snapshot_date(),
            "listed": columns_of(Offer, book.listed),
            "unknown": columns_of(Offer, book.unknown),
            "freshness": dict(book.freshness),
            "confirmed": dict(book.confirmed),
            "has_market": book.market is not None,
            "zones_of": [zone[:3] for zone in zones],
            "zones": columns_of(ZoneQuote, [zone for *_, zone in zones]),
        }
    )


def _unpacked(data: bytes) -> PriceBook | None:
    """The book that was put together; None where another snapshot was taken for it."""
    content = unpacked_json(data)
    if content["snapshot"] != snapshot_date():
        return None
    quotes: dict[tuple[str, str, str], list[ZoneQuote]] = {}
    for (provider, instance, region), zone in zip(
        content["zones_of"], items_of(ZoneQuote, content["zones"]), strict=True
    ):
        quotes.setdefault((provider, instance, region), []).append(zone)
    return _book(
        listed=items_of(Offer, content["listed"]),
        unknown=items_of(Offer, content["unknown"]),
        freshness=content["freshness"],
        confirmed=content["confirmed"],
        market=SpotMarket(quotes) if content["has_market"] else None,
    )


# --- the prices of a day in the past ---


def past_prices(day: str, warn: Warn = lambda _: None) -> PriceBook:
    """The prices of a day in the past: what was sold then, at the prices of then.

    `day` is YYYY-MM-DD, or YYYY-MM for the end of a month. Of days on which prices were refreshed
    here, those; else the bundled history, which has the end of each month.
    """
    raise NotImplementedError
