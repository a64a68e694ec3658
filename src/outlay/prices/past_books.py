"""The prices of a day in the past, as a price book: what was sold then, at the prices of then.

Of each provider the newest prices from up to that day: those of a refresh that was kept, or the
bundled history, which has the end of each month.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from statistics import fmean, median

from outlay.errors import InputError, PriceStoreFailed
from outlay.facts import assumed, newest, rows_of
from outlay.hardware.gpu_names import gpu_match
from outlay.offers.catalog import (
    doubt_kinds,
    doubted_by_age,
    snapshot_offers,
)
from outlay.offers.expected_price import (
    PROVEN_WEEKS,
    SpotMarket,
    bundled_market,
)
from outlay.offers.offer import CHEAPEST_REGION, Offer, SpotRisk, UsualShare, ZoneQuote
from outlay.offers.price_book import OfferIdentity, PriceBook
from outlay.offers.spot import hazard_per_month
from outlay.prices.books import Warn, most_preferred
from outlay.prices.checks import (
    doubted_by_others,
)
from outlay.prices.history import MonthlyPrice, bundled_history, month_end
from outlay.prices.price_store import (
    PastPrice,
    PriceStore,
)
from outlay.prices.sources import ProviderPrices, ZonePrice
from outlay.prices.spot_market import continued_quotes
from outlay.uncertainty import Estimate


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
    return [most_preferred(lists) for lists in found.values()]


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
    return gpu_match(gpu) is not None


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
    kept = continued_quotes(refreshed, changes, bundled_market().quotes) if refreshed else {}
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
