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
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from itertools import chain, pairwise
from statistics import fmean, median
from typing import Any

from outlay.errors import InputError, NotKnown, PriceStoreFailed
from outlay.facts import assumed, newest, rows_of
from outlay.files import PRICE_LISTS, data_folder
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import (
    bundled_offers,
    doubt_kinds,
    doubted_by_age,
    gpu_filter,
    snapshot_date,
    snapshot_offers,
)
from outlay.offers.expected_price import (
    CHANGE_WEEKS,
    PROVEN_WEEKS,
    USUAL_CHANGE,
    SpotMarket,
    ZoneQuotes,
    bundled_market,
)
from outlay.offers.offer import CHEAPEST_REGION, Offer, SpotRisk, UsualShare, ZoneQuote
from outlay.offers.price_book import OfferIdentity, PriceBook, bundled_book
from outlay.offers.spot import hazard_per_month
from outlay.offers.terms import known_provider
from outlay.prices.checks import (
    BUNDLED,
    OWN,
    SourceComparison,
    as_lists,
    compare_sources,
    doubted_by_others,
)
from outlay.prices.history import MonthlyPrice, bundled_history, month_end
from outlay.prices.listing import ProviderPrices, ZonePrice
from outlay.prices.price_store import (
    PastPrice,
    PriceStore,
    columns_of,
    items_of,
    packed_json,
    unpacked_json,
)
from outlay.prices.spot_advisor import interruption_risks, kept_interruptions
from outlay.uncertainty import Estimate
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


def _market(lists: Sequence[ProviderPrices], store: PriceStore) -> SpotMarket:
    """The spot prices of the lists' zones, with their past."""
    with_spot = [
        prices.provider
        for prices in lists
        if any(offer.spot_usd_per_hour is not None for offer in prices.offers)
    ]
    past = (store.past(provider=provider) for provider in with_spot)
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


# --- the prices of a day in the past ---


def past_prices(
    day: str, warn: Warn = lambda _: None, *, store: PriceStore | None = None
) -> PriceBook:
    """The prices of a day in the past: what was sold then, at the prices of then.

    `day` is YYYY-MM-DD, or YYYY-MM for the end of a month. Of each provider the newest prices from
    up to that day are taken: those of a refresh that is kept in `store` (None: the user's own), or
    the bundled history, which has the end of each month. Nothing that became known later is in
    them, but what is not a price: see the book's notes. Raises `InputError` for a day of which no
    prices are known.
    """
    try:
        with store or PriceStore() as kept:
            then = _day_meant(day, _refresh_days(kept))
            lists, changes = _kept_lists(kept, then), list(kept.past(until=then))
    except PriceStoreFailed as error:
        warn(f"{error} Until then, only the bundled history is used.")
        then, lists, changes = _day_meant(day), [], []
    month = _month_known(then)
    listed = {row.provider: row.as_of for row in _months()[month]}
    refreshed = [
        prices
        for prices in lists
        if prices.fetched_at[:10] > month_end(month)
        and prices.as_of >= listed.get(prices.provider, "")
    ]
    others = {prices.provider for prices in refreshed}
    rows = [row for row in _months()[month] if row.provider not in others]
    offers = [offer for prices in refreshed for offer in prices.offers]
    offers += [_offer_of_month(row) for row in rows]
    market = _past_market(rows, refreshed, changes)
    unknown = tuple(offer for prices in refreshed for offer in prices.unknown)
    return replace(_past_book(then, month if rows else "", offers, market), unknown=unknown)


def _past_book(day: str, month: str, offers: Sequence[Offer], market: SpotMarket) -> PriceBook:
    as_of = max(offer.as_of for offer in offers)
    known = (_as_known_then(offer, day, as_of) for offer in offers)
    judged = _judged_then(tuple(known), month)
    freshness: dict[str, str] = {}
    for offer in offers:
        freshness[offer.provider] = max(freshness.get(offer.provider, ""), offer.as_of)
    return PriceBook(
        name=f"the prices of {day}",
        kind="past",
        as_of=as_of,
        listed=judged,
        market=market,
        risks=_interruptions_known(judged, day),
        freshness=freshness,
        day=day,
        notes=tuple(_past_notes(month, freshness)),
    )


def _past_notes(month: str, providers: Collection[str]) -> Iterator[str]:
    """What is to be said of prices of the past."""
    if month:
        yield (
            f"Prices of then are from the lists of the end of {month}: each is that of the "
            "cheapest region in which the type was sold; which one that was is not known."
        )
    yield f"Providers whose prices of then are known: {', '.join(sorted(providers))}."
    yield (
        "Not of then but as known today: what storage, transfer and other terms cost, exchange "
        "rates, and how far prices usually move (fitted on all years)."
    )


def _judged_then(offers: tuple[Offer, ...], month: str) -> tuple[Offer, ...]:
    """Offers held against each other, with what is known to be wrong with them besides.

    A price that its provider's own lists have had for a quarter of a year is believed, however far
    below others it is: of early years few sellers are known, and the others were dear.
    """
    return tuple(
        _with_own_doubts(offer, judged, has_stood=_has_stood(offer, month))
        for offer, judged in zip(offers, doubted_by_others(offers), strict=True)
    )


def _with_own_doubts(offer: Offer, judged: Offer, *, has_stood: bool) -> Offer:
    new = [doubt for doubt in judged.doubts if doubt not in offer.doubts]
    if has_stood:
        new = [doubt for doubt in new if doubt.word != "suspiciously cheap"]
    return replace(judged, doubts=(*offer.doubts, *new))


def _has_stood(offer: Offer, month: str) -> bool:
    """Whether an on-demand price was about the same in its lists for a quarter of a year."""
    if offer.price_usd_per_hour is None or offer.region != CHEAPEST_REGION:
        return False
    known = _series()[offer.provider, offer.instance, offer.gpu]
    days = set()
    for past in reversed([past for past in known if past.month <= month]):
        usd = past.price_usd_per_hour
        if usd is None or not 1 / _ALIKE <= usd / offer.price_usd_per_hour <= _ALIKE:
            break
        days.add(past.as_of)
    return weeks_listed(days, offer.as_of) >= PROVEN_WEEKS


# Which day


def _day_meant(text: str, refreshed: Iterable[str] = ()) -> str:
    """The day that YYYY-MM-DD or YYYY-MM means: of a month its end, or the last day known of it.

    `refreshed`: days on which prices were refreshed here.
    """
    day = _day_written(text)
    first, last = month_end(min(_months())), max(month_end(max(_months())), *refreshed, "")
    if text == last[:7]:
        day = last
    if first <= day <= last:
        return day
    when = "before the first" if day < first else "after the last"
    raise InputError(
        f"No prices of {text} are known: that is {when} there are.",
        why=f"The history goes from {first} to {last}.",
        fix="Give a day or month within that, or leave --as-of out for the newest prices.",
    )


def _day_written(text: str) -> str:
    """A day as it was written; of a month its last one."""
    try:
        if len(text) == len("YYYY-MM"):
            date.fromisoformat(f"{text}-01")
            return _last_day(text)
        if len(text) == len("YYYY-MM-DD"):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise InputError(
        f"{text!r} is no day or month of prices.", fix="Write 2025-06 or 2025-06-15, for example."
    )


def _last_day(month: str) -> str:
    year, number = int(month[:4]), int(month[5:])
    following = date(year + number // 12, number % 12 + 1, 1)
    return date.fromordinal(following.toordinal() - 1).isoformat()


# Of the bundled months


@cache
def _months() -> Mapping[str, Sequence[MonthlyPrice]]:
    """The bundled history by month."""
    months: dict[str, list[MonthlyPrice]] = {}
    for row in bundled_history():
        months.setdefault(row.month, []).append(row)
    return months


def _month_known(day: str) -> str:
    """The last month whose end had come."""
    return max(month for month in _months() if month_end(month) <= day)


def _offer_of_month(row: MonthlyPrice) -> Offer:
    return _with_machine(
        Offer(
            provider=row.provider,
            instance=row.instance,
            gpu=row.gpu,
            gpus=max(1, round(row.gpus)),
            gpu_share=min(1.0, row.gpus),
            region=CHEAPEST_REGION,
            zones=row.regions,
            price_usd_per_hour=row.price_usd_per_hour,
            spot_usd_per_hour=row.spot_usd_per_hour,
            as_of=row.as_of,
            source=f"{row.source}, end of {row.month}",
            doubts=tuple(doubt_kinds()[word] for word in row.doubts),
        )
    )


@cache
def _machines() -> Mapping[tuple[str, str], Offer]:
    """An offer of every instance type of the snapshot, for what its machine has."""
    return {(offer.provider, offer.instance): offer for offer in snapshot_offers()}


def _with_machine(offer: Offer) -> Offer:
    """The offer with what the snapshot says of its machine; a type that is gone stays unknown."""
    known = _machines().get((offer.provider, offer.instance))
    if known is None:
        return offer
    is_same_gpu = (known.gpu, known.gpus) == (offer.gpu, offer.gpus)
    return replace(
        offer,
        vcpus=known.vcpus,
        ram_bytes=known.ram_bytes,
        local_disk_bytes=known.local_disk_bytes,
        gpu_memory_bytes=known.gpu_memory_bytes if is_same_gpu else None,
    )


@cache
def _ends() -> Sequence[Mapping[str, str]]:
    return rows_of("instance_ends.csv")


def _as_known_then(offer: Offer, day: str, as_of: str) -> Offer:
    """An offer with what was to be said against it on a day: its age, its announced end."""
    offer = doubted_by_age(offer, day, as_of)
    for row in _ends():
        fits = row["provider"] == offer.provider and fnmatchcase(
            offer.instance, row["instance_pattern"]
        )
        if fits and min(row["as_of"], row["withdrawn"]) <= day:
            word = "withdrawn" if row["withdrawn"] <= day else "withdrawal announced"
            return replace(offer, doubts=(*offer.doubts, doubt_kinds()[word]))
    return offer


# Of refreshes that were kept


_ALWAYS = "9999-12-31"


def _refresh_days(store: PriceStore) -> list[str]:
    """Every day on which prices of any provider were confirmed."""
    asked = {(attempt.source, attempt.provider) for attempt in store.attempts()}
    listed = {(row.source, row.provider) for row in store.prices_at(_ALWAYS)}
    return [day for pair in asked | listed for day in store.refresh_days(*pair)]


def _kept_lists(store: PriceStore, day: str) -> list[ProviderPrices]:
    """Of every provider the list that was refreshed last by a day, as it stood then."""
    rows: dict[tuple[str, str], list[PastPrice]] = {}
    for row in store.prices_at(day):
        rows.setdefault((row.provider, row.source), []).append(row)
    found: dict[str, list[ProviderPrices]] = {}
    for (provider, source), listed in rows.items():
        confirmed = max(one for one in store.refresh_days(source, provider) if one <= day)
        found.setdefault(provider, []).append(_kept_list(listed, confirmed))
    return [min(_as_new(lists), key=_preference) for lists in found.values()]


def _kept_list(rows: Sequence[PastPrice], confirmed: str) -> ProviderPrices:
    """What a source said of a provider, and said still on the day it was confirmed."""
    as_of = max(row.as_of or row.at[:10] for row in rows)
    offers = [_kept_offer(row, as_of) for row in rows if not row.zone]
    return ProviderPrices(
        source=rows[0].source,
        provider=rows[0].provider,
        as_of=as_of,
        fetched_at=f"{confirmed}T23:59:59Z",
        offers=tuple(offer for offer in offers if _is_known(offer.gpu)),
        unknown=tuple(offer for offer in offers if not _is_known(offer.gpu)),
        zones=tuple(
            ZonePrice(
                provider=row.provider,
                instance=row.instance,
                region=row.region,
                zone=row.zone,
                price_usd_per_hour=row.price_usd_per_hour,
                spot_usd_per_hour=row.spot_usd_per_hour,
            )
            for row in rows
            if row.zone
        ),
    )


@cache
def _is_known(gpu: str) -> bool:
    try:
        return bool(find_gpu(gpu).candidates)
    except NotKnown:
        return False


def _kept_offer(row: PastPrice, as_of: str) -> Offer:
    offer = Offer(
        provider=row.provider,
        instance=row.instance,
        gpu=row.gpu,
        gpus=max(1, round(row.gpus)),
        gpu_share=min(1.0, row.gpus),
        region=row.region,
        price_usd_per_hour=row.price_usd_per_hour,
        spot_usd_per_hour=row.spot_usd_per_hour,
        as_of=as_of,
        source=f"{row.source}, list of {as_of}",
        doubts=tuple(doubt_kinds()[word] for word in _kept_doubts(row)),
    )
    return _with_machine(offer)


_LASTING = (
    "not sold on demand", "bid floor", "region not verified", "aggregator", "marketplace",
    "maybe EUR", "host added", "host chosen", "local disk billed apart", "fraction of a GPU",
    "count or name fixed", "form not stated",
)  # fmt: skip
"""Doubts about what a machine type is or how it is sold, which hold whatever its price is."""


def _kept_doubts(row: PastPrice) -> list[str]:
    """What was said against a price as it was read, and of its machine type by the snapshot."""
    known = _machines().get((row.provider, row.instance))
    lasting = () if known is None else (doubt.word for doubt in known.doubts)
    words = dict.fromkeys((*row.doubts, *(word for word in lasting if word in _LASTING)))
    return [word for word in words if word in doubt_kinds()]


# How often spot machines were taken away, as far as that was known


def _interruptions_known(offers: Iterable[Offer], day: str) -> Mapping[OfferIdentity, SpotRisk]:
    """The risk of types over all their regions, from what had been published by a day."""
    of_type: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows_of(newest("spot_interruptions")):
        if row["as_of"] <= day:
            of_type.setdefault((row["provider"], row["instance"]), []).append(row)
    return {
        offer.identity: _risk_anywhere(of_type[offer.provider, offer.instance])
        for offer in offers
        if offer.region == CHEAPEST_REGION and (offer.provider, offer.instance) in of_type
    }


def _risk_anywhere(rows: Sequence[Mapping[str, str]]) -> SpotRisk:
    """From the best region to the worst; likely is the middle one's."""
    ends = [
        (
            float(row["low_fraction_per_month"]),
            float(row["high_fraction_per_month"] or assumed("spot_open_bucket_end")),
        )
        for row in rows
    ]
    return SpotRisk(
        interruptions_per_month=Estimate(
            low=hazard_per_month(min(low for low, _ in ends)),
            likely=hazard_per_month(median((low + high) / 2 for low, high in ends)),
            high=hazard_per_month(max(high for _, high in ends)),
        ),
        source=f"{rows[0]['source']}, {rows[0]['as_of']}: over its regions",
        is_assumption=False,
    )


# What spot usually was of on-demand, and how long that had been known


def _past_market(
    rows: Iterable[MonthlyPrice],
    refreshed: Sequence[ProviderPrices],
    changes: Sequence[PastPrice],
) -> SpotMarket:
    """The spot market of a past day: of months, and of refreshed lists as `spot_market` has it."""
    quotes: dict[tuple[str, str, str], Sequence[ZoneQuote]] = {}
    usual: dict[tuple[str, str], UsualShare] = {}
    for row in rows:
        quote, of_type = _monthly_quote(row), _monthly_usual(row)
        if quote is not None:
            quotes[row.provider, row.instance, CHEAPEST_REGION] = (quote,)
        if of_type is not None:
            usual[row.provider, row.instance] = of_type
    kept = _continued(refreshed, changes, bundled_market().quotes) if refreshed else {}
    own = {prices.provider for prices in refreshed}
    quotes.update({key: zones for key, zones in kept.items() if key[0] in own})
    return SpotMarket(quotes, usual)


@cache
def _series() -> Mapping[tuple[str, str, str], Sequence[MonthlyPrice]]:
    """The bundled history by provider, instance and GPU, oldest first."""
    series: dict[tuple[str, str, str], list[MonthlyPrice]] = {}
    for row in bundled_history():
        series.setdefault((row.provider, row.instance, row.gpu), []).append(row)
    return {key: sorted(rows, key=lambda row: row.month) for key, rows in series.items()}


_ALIKE = 1.25
"""Times a price that still counts as about the same.

Assumes: a quarter. Of spot prices the history has the cheapest zone of each month, and not which
one it is: how long one could have had about that price somewhere stands for the past of the zone.
"""


def _monthly_quote(row: MonthlyPrice) -> ZoneQuote | None:
    """The cheapest spot price of a month, with its past as far as months tell it.

    Weeks and mean as `tools/fit_prices.py` reckons them of monthly lists; the weeks are those in
    which the cheapest price was about as low, so that one that has just fallen is not relied on.
    """
    if row.spot_usd_per_hour is None:
        return None
    series = _series()[row.provider, row.instance, row.gpu]
    known = [past for past in series if past.month <= row.month]
    shares = {past.as_of: math.log(share) for past in known if (share := _middle_share(past))}
    as_low = _lists_as_low(known, row.spot_usd_per_hour)
    price = row.price_usd_per_hour
    return ZoneQuote(
        zone="",
        usd_per_hour=None,
        share=None if price is None else min(row.spot_usd_per_hour / price, 1.0),
        weeks=weeks_listed(as_low, row.as_of),
        seen_first=min(as_low),
        mean_share=math.exp(fmean(shares.values())) if len(shares) > 1 else None,
        weekly_change=None,
    )


def _lists_as_low(known: Sequence[MonthlyPrice], usd: float) -> set[str]:
    """The days of the last lists, one after the other, whose cheapest price is about as low."""
    days = set()
    for past in reversed(known):
        if past.spot_usd_per_hour is None or past.spot_usd_per_hour > _ALIKE * usd:
            break
        days.add(past.as_of)
    return days


def _middle_share(row: MonthlyPrice) -> float | None:
    """The middle spot price as a share of the on-demand price one would pay instead, the
    cheapest: which regions either is of is not known."""
    spot, price = row.spot_median_usd_per_hour, row.price_usd_per_hour
    return None if spot is None or price is None else min(spot / price, 1.0)


def _monthly_usual(row: MonthlyPrice) -> UsualShare | None:
    """What spot was of on-demand over the regions of a type.

    Assumes: the dearest region lies as far above the middle as the cheapest lies below. Of the
    zones of 2026-08-22, nine in ten cost less than that for 70 % of AWS's types, 89 % of GCP's.
    """
    middle = _middle_share(row)
    if middle is None or row.spot_usd_per_hour is None or row.price_usd_per_hour is None:
        return None
    low = min(row.spot_usd_per_hour / row.price_usd_per_hour, middle)
    return UsualShare(low=low, middle=middle, high=min(middle**2 / low, 1.0), zones=row.regions)


WEEKS_OF_A_MONTH = 52.18 / 12


def weeks_listed(days: Iterable[str], last: str) -> int:
    """Weeks that so many monthly lists stand for: not more than have passed since the first."""
    ordered = sorted(days)
    passed = date.fromisoformat(last).toordinal() - date.fromisoformat(ordered[0]).toordinal()
    return max(min(round(len(ordered) * WEEKS_OF_A_MONTH), passed // 7 + 1), 1)


# --- the spot market of refreshed lists ---


def spot_market(current: Sequence[ProviderPrices], past: Iterable[PastPrice] = ()) -> SpotMarket:
    """The spot prices of refreshed lists with their past; bundled ones where none was refreshed.

    current: what each provider's list says now; of two lists of one provider the first counts.
    past: every change of a price that was kept (`PriceStore.past`), oldest first.

    The past is that of `data/spot_history_DATE.csv` continued by a week for each in which the
    list was refreshed: weeks, mean share and weekly change as `tools/fit_prices.py` reckons them.
    What is no longer listed is gone; a zone that was never seen before has one week.
    """
    return SpotMarket(_continued(current, past, bundled_market().quotes))


def _continued(
    current: Sequence[ProviderPrices], past: Iterable[PastPrice], before: ZoneQuotes
) -> dict[tuple[str, str, str], Sequence[ZoneQuote]]:
    lists: dict[str, ProviderPrices] = {}
    for prices in current:
        lists.setdefault(prices.provider, prices)
    quotes = {key: zones for key, zones in before.items() if key[0] not in lists}
    seen = _sightings(lists, past)
    snapshot_week = _week_of(snapshot_date())
    with_shares = {key[0] for key, zones in before.items() if any(z.share for z in zones)}
    for provider, prices in lists.items():
        has_shares = bool(prices.zones) or provider in with_shares
        last_days = seen[provider].last_days()
        grouped: dict[tuple[str, str, str], list[ZoneQuote]] = {}
        for listed in _with_spot(prices):
            key = (provider, listed.instance, listed.region)
            known = _quote_before(before, key, listed.zone)
            place = (listed.instance, listed.region, listed.zone)
            weeks = seen[provider].weeks_of(place, last_days)
            quote = _quote_of(
                listed, known, weeks, has_share=has_shares, snapshot_week=snapshot_week
            )
            grouped.setdefault(key, []).append(quote)
        quotes.update(grouped)
    return quotes


def _with_spot(prices: ProviderPrices) -> Iterator[ZonePrice]:
    """The spot prices of a list: by zone, and of regions that it does not tell the zones of."""
    told = {(zone.instance, zone.region) for zone in prices.zones}
    yield from (zone for zone in prices.zones if zone.spot_usd_per_hour is not None)
    for offer in prices.offers:
        if offer.spot_usd_per_hour is not None and (offer.instance, offer.region) not in told:
            yield ZonePrice(
                provider=offer.provider,
                instance=offer.instance,
                region=offer.region,
                zone="",
                price_usd_per_hour=offer.price_usd_per_hour,
                spot_usd_per_hour=offer.spot_usd_per_hour,
            )


def _quote_before(before: ZoneQuotes, key: tuple[str, str, str], zone: str) -> ZoneQuote | None:
    """What is bundled of a zone; of a region without zones, its zones put together."""
    zones = before.get(key) or before.get((*key[:2], "")) or ()
    if zone:
        return next((known for known in zones if known.zone == zone), None)
    return zones[0] if len(zones) == 1 else _together(zones)


def _together(zones: Sequence[ZoneQuote]) -> ZoneQuote | None:
    if not zones:
        return None
    shares = [math.log(zone.mean_share) for zone in zones if zone.mean_share]
    changes = [zone.weekly_change**2 for zone in zones if zone.weekly_change is not None]
    return ZoneQuote(
        zone="",
        usd_per_hour=None,
        share=None,
        weeks=max(zone.weeks for zone in zones),
        seen_first=min((zone.seen_first for zone in zones if zone.seen_first), default=None),
        mean_share=math.exp(fmean(shares)) if shares else None,
        weekly_change=math.sqrt(fmean(changes)) if changes else None,
    )


# Week by week

_Place = tuple[str, str, str]
"""Instance, region and zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Week:
    """A zone's last spot price in a week, Monday to Sunday."""

    number: int
    day: str
    log_share: float


@dataclass(frozen=True, slots=True)
class _Sightings:
    """What one provider's list said of its zones whenever it was refreshed."""

    days: set[str]
    changes: dict[_Place, list[tuple[str, float | None]]]
    """The logarithm of the share from a day on; None where the zone had no spot price."""

    def last_days(self) -> dict[int, str]:
        """The last day of each week on which the list was refreshed, oldest first."""
        return {_week_of(day): day for day in sorted(self.days)}

    def weeks_of(self, place: _Place, last_days: Mapping[int, str]) -> list[_Week]:
        """The weeks in which a zone's price was seen, oldest first."""
        changes, weeks = sorted(self.changes.get(place, ()), key=lambda change: change[0]), []
        place_in, share = 0, None
        for number, day in last_days.items():
            while place_in < len(changes) and changes[place_in][0] <= day:
                share = changes[place_in][1]
                place_in += 1
            if share is not None:
                weeks.append(_Week(number=number, day=day, log_share=share))
        return weeks


def _week_of(day: str) -> int:
    """The number of its week; weeks begin on Mondays."""
    return (date.fromisoformat(day).toordinal() - 1) // 7


def _sightings(
    lists: Mapping[str, ProviderPrices], past: Iterable[PastPrice]
) -> dict[str, _Sightings]:
    """What was kept of each list, and what it says now."""
    seen = {provider: _Sightings(set(), {}) for provider in lists}
    for row in past:
        if row.provider in lists and row.source == lists[row.provider].source:
            seen[row.provider].days.add(row.at[:10])
            changes = seen[row.provider].changes
            share = _log_share(row.price_usd_per_hour, row.spot_usd_per_hour)
            changes.setdefault((row.instance, row.region, row.zone), []).append(
                (row.at[:10], share)
            )
    for provider, prices in lists.items():
        today = prices.fetched_at[:10]
        seen[provider].days.add(today)
        for listed in _with_spot(prices):
            place = (listed.instance, listed.region, listed.zone)
            share = _log_share(listed.price_usd_per_hour, listed.spot_usd_per_hour)
            seen[provider].changes.setdefault(place, []).append((today, share))
    return seen


def _log_share(price_usd: float | None, spot_usd: float | None) -> float | None:
    """The logarithm of spot as a share of on-demand, at most 0."""
    return None if not price_usd or not spot_usd else min(math.log(spot_usd / price_usd), 0.0)


def _quote_of(
    listed: ZonePrice,
    before: ZoneQuote | None,
    weeks: Sequence[_Week],
    *,
    has_share: bool,
    snapshot_week: int,
) -> ZoneQuote:
    """A zone's price of now, with its past up to now."""
    log_share = _log_share(listed.price_usd_per_hour, listed.spot_usd_per_hour)
    quote = ZoneQuote(
        zone=listed.zone,
        usd_per_hour=listed.spot_usd_per_hour if listed.zone else None,
        share=None if log_share is None or not has_share else math.exp(log_share),
        weeks=1,
        seen_first=weeks[0].day if weeks else None,
        mean_share=None,
        weekly_change=None,
    )
    if before is None:
        return _with_past(quote, _NOTHING_KNOWN, weeks) if len(weeks) > 1 else quote
    new = [week for week in weeks if week.number > snapshot_week]
    quote = replace(
        quote,
        weeks=before.weeks,
        seen_first=before.seen_first,
        mean_share=before.mean_share,
        weekly_change=before.weekly_change,
    )
    return _with_past(quote, _known_before(before, snapshot_week), new) if new else quote


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownWeeks:
    """What was known of a zone's price before the weeks that are added."""

    weeks: int = 0
    log_shares: float = 0.0
    """The sum of the logarithms of its shares, over so many weeks:"""
    counted: int = 0
    mean_square: float = 0.0
    """Of its changes from week to week, over so many changes:"""
    changes: int = 0
    last: _Week | None = None


_NOTHING_KNOWN = _KnownWeeks()


def _known_before(quote: ZoneQuote, week: int) -> _KnownWeeks:
    """The past that a quote of `week` has.

    A zone with a weekly change has its mean from the weeks before its own quote, which is a week
    more; where only a region's or a month's past is known, the mean takes in all weeks.
    """
    own = None if quote.share is None else math.log(quote.share)
    counted = quote.weeks if quote.weekly_change is None else quote.weeks - 1
    log_shares = 0.0
    if quote.mean_share is None:
        counted = 0
    else:
        log_shares = counted * math.log(quote.mean_share)
    if own is not None and counted < quote.weeks:
        log_shares, counted = log_shares + own, counted + 1
    changes = min(CHANGE_WEEKS, quote.weeks - 2) if quote.weekly_change is not None else 0
    mean_square = 0.0
    if changes > 0 and quote.weekly_change is not None:
        squares = quote.weekly_change**2 * (changes + 1) - USUAL_CHANGE**2
        mean_square = max(squares / changes, 0.0)
    return _KnownWeeks(
        weeks=quote.weeks,
        log_shares=log_shares,
        counted=counted,
        mean_square=mean_square,
        changes=max(changes, 0),
        last=None if own is None else _Week(number=week, day="", log_share=own),
    )


def _with_past(quote: ZoneQuote, known: _KnownWeeks, weeks: Sequence[_Week]) -> ZoneQuote:
    """A quote with weeks added to its past.

    Of the changes before, only their mean square is known: as many as have room in the last
    `CHANGE_WEEKS` are taken to be as large as that. Changes are counted between weeks that follow
    each other.
    """
    series = weeks if known.last is None else (known.last, *weeks)
    squares = [
        (later.log_share - earlier.log_share) ** 2
        for earlier, later in pairwise(series)
        if later.number == earlier.number + 1
    ][-CHANGE_WEEKS:]
    old = min(known.changes, CHANGE_WEEKS - len(squares))
    total = sum(squares) + old * known.mean_square + USUAL_CHANGE**2
    count = old + len(squares)
    log_shares = known.log_shares + sum(week.log_share for week in weeks)
    return replace(
        quote,
        weeks=known.weeks + len(weeks),
        mean_share=math.exp(log_shares / (known.counted + len(weeks))),
        weekly_change=math.sqrt(total / (count + 1)) if count else None,
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
