"""The prices that a command works with: the newest good ones there are, or those of a past day.

current_prices  for each provider the newest good prices that were refreshed, else those of the
                bundled snapshot; lists of one's own go first, and negotiated discounts come off
past_prices     what was sold on a day in the past, at the prices of then
spot_market     the spot prices of refreshed lists, zone by zone, with their past

What is put together of all sources is kept beside them (`keep_book`, at the end of a refresh), so
that a command reads one list and not five; where that is missing or of other prices, it is put
together anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from outlay.errors import PriceStoreFailed
from outlay.files import PRICE_LISTS, data_folder
from outlay.offers.catalog import (
    bundled_offers,
    doubted_by_age,
    gpu_filter,
    snapshot_date,
    snapshot_offers,
)
from outlay.offers.expected_price import SpotMarket
from outlay.offers.offer import Offer, ZoneQuote
from outlay.offers.price_book import PriceBook, bundled_book, day_of_the_rest
from outlay.offers.terms import known_provider
from outlay.prices.checks import (
    BUNDLED,
    OWN,
    SourceComparison,
    as_lists,
    compare_sources,
    doubted_by_others,
)
from outlay.prices.price_store import PriceStore, columns_of, items_of, packed_json, unpacked_json
from outlay.prices.sources import ProviderPrices
from outlay.prices.spot_advisor import interruption_risks, kept_interruptions
from outlay.prices.spot_market import spot_market
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
        with PriceStore(write_wait_s=0.0) as store:
            book = _kept_book(store)
    except PriceStoreFailed as error:
        warn(f"{error} Until then, the bundled prices are used.")
        book = None
    return _with_newest_risks(_with_own_lists(book or bundled_book(), today))


def _with_newest_risks(book: PriceBook) -> PriceBook:
    """A book with how often AWS takes machines away today, where that was refreshed."""
    risks = interruption_risks(kept_interruptions())
    return replace(book, risks=risks, _seen={}) if risks else book


def keep_book(store: PriceStore) -> None:
    """Put together what commands work with, and keep it beside what was refreshed."""
    stamp = store.stamp()
    lists = store.current()
    if lists:
        store.keep_derived(_BOOK, stamp, _packed(_merged(lists, store)))


_BOOK = "book"


def _kept_book(store: PriceStore) -> PriceBook | None:
    data = store.derived(_BOOK)
    book = None if data is None else _unpacked(data)
    if book is not None:
        return book
    stamp, lists = store.stamp(), store.current()
    if not lists:
        return None
    book = _merged(lists, store)
    with contextlib.suppress(PriceStoreFailed):  # where one may only read
        store.keep_derived(_BOOK, stamp, _packed(book))
    return book


def _merged(lists: Sequence[ProviderPrices], store: PriceStore) -> PriceBook:
    """The newest good list of every provider, each looked at beside all others."""
    chosen, second = chosen_lists(lists)
    bundled = [offer for offer in snapshot_offers() if offer.provider not in chosen]
    refreshed = [offer for prices in chosen.values() for offer in prices.offers]
    freshness = _bundled_days()
    freshness |= {provider: prices.as_of for provider, prices in chosen.items()}
    confirmed = dict.fromkeys(freshness, snapshot_date())
    confirmed |= {provider: prices.fetched_at[:10] for provider, prices in chosen.items()}
    today, rest = max(confirmed.values()), day_of_the_rest(confirmed, max(freshness.values()))
    # What nobody renews is doubted first, so that no other price is judged by it.
    aged = [doubted_by_age(offer, today, rest) for offer in (*refreshed, *bundled)]
    return _book(
        listed=doubted_by_others(aged, second),
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

    The newest; of those that are at most a week older, the preferred source's (`PREFERRED`). One
    that has only GPUs which outlay does not know goes behind all that has others. A provider whose
    bundled offers are newer has no list.
    """
    by_provider: dict[str, list[ProviderPrices]] = {}
    for prices in lists:
        if prices.offers or prices.unknown:
            by_provider.setdefault(prices.provider, []).append(prices)
    bundled = _bundled_days()
    chosen, second = {}, {}
    for provider, found in by_provider.items():
        best = most_preferred([prices for prices in found if prices.offers] or found)
        second[provider] = [prices for prices in found if prices is not best]
        if best.as_of < bundled.get(provider, "") or (provider in bundled and not best.offers):
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


def most_preferred(lists: Sequence[ProviderPrices]) -> ProviderPrices:
    """The list to take of one provider: of those that are as new as the newest, by its source."""
    return min(_as_new(lists), key=_preference)


def _as_new(lists: Sequence[ProviderPrices]) -> list[ProviderPrices]:
    newest = max(prices.as_of for prices in lists)
    return [prices for prices in lists if days_between(prices.as_of, newest) <= SAME_DAYS]


def _preference(prices: ProviderPrices) -> tuple[int, str]:
    known = prices.source in PREFERRED
    return (PREFERRED.index(prices.source) if known else len(PREFERRED), prices.source)


def _market(lists: Sequence[ProviderPrices], store: PriceStore) -> SpotMarket:
    """The spot prices of the lists' zones, with their past."""
    with_spot = [
        prices
        for prices in lists
        if any(offer.spot_usd_per_hour is not None for offer in prices.offers)
    ]
    past = (store.past_weeks(prices.source, prices.provider) for prices in with_spot)
    return spot_market(lists, chain.from_iterable(past))


def _with_own_lists(book: PriceBook, today: str) -> PriceBook:
    """A book with one's own offers first, and with what was agreed off all others."""
    if not (data_folder() / PRICE_LISTS).exists():  # what reads lists takes a while to import
        return book
    from outlay.prices.own_lists import discounted, own_first, own_offers, unknown_own_offers

    own, unknown = own_offers(today), unknown_own_offers(today)
    listed = snapshot_offers() if book.kind == "bundled" else book.listed
    priced = discounted(own_first(own, listed), today)
    if priced == listed and not unknown:
        return book
    days = {offer.provider: offer.as_of for offer in own}
    bundled = _bundled_days() if book.kind == "bundled" else {}
    return replace(
        book,  # with its own day: a new quote makes no list of others' prices older or newer
        name=f"{book.name}, with your own price lists",
        kind="refreshed",
        listed=priced,
        freshness={**days, **bundled, **book.freshness},
        confirmed={
            **dict.fromkeys(days, today),  # they hold, and nobody could renew them
            **dict.fromkeys(bundled, book.as_of),
            **book.confirmed,
        },
        unknown=(*book.unknown, *unknown),
        _seen={},
    )


# What was put together, as JSON


def _packed(book: PriceBook) -> bytes:
    quotes = {} if book.market is None else book.market.quotes
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
    """The book that was put together; None where it cannot be read or has another snapshot."""
    try:
        return _book_in(unpacked_json(data))
    except (ValueError, LookupError, TypeError):
        return None


def _book_in(content: Mapping[str, Any]) -> PriceBook | None:
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


# --- sources side by side ---


def source_comparison(
    gpu: str,
    *,
    gpus: int | None = None,
    providers: Sequence[str] = (),
    today: str,
    warn: Warn = lambda _: None,
) -> SourceComparison:
    """What every source, the bundled snapshot among them, says of the machines with a GPU.

    `gpu` is any usual spelling, or a range of memory (`24GB..48GB`); `gpus`: so many of them.
    """
    from outlay.prices.own_lists import own_offers

    with PriceStore() as store:
        refreshed = store.current()
    lists = [
        *as_lists(OWN, own_offers(today), today),
        *refreshed,
        *as_lists(BUNDLED, bundled_offers(today), snapshot_date()),
    ]
    sellers = tuple({prices.provider for prices in lists})
    wanted = gpu_filter(gpu)
    if gpus is not None:
        wanted = replace(wanted, low_gpus=gpus, high_gpus=gpus)
    return compare_sources(
        lists,
        current_prices(today, warn).offers_on(today),
        wanted,
        [known_provider(name, sellers) for name in providers],
    )
