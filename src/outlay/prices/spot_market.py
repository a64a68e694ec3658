"""The spot market of refreshed zones: today's quotes, each with its past.

The past of a zone is that of the bundled history, continued with every refresh that was kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from statistics import fmean

from outlay.offers.catalog import (
    snapshot_date,
)
from outlay.offers.expected_price import (
    CHANGE_WEEKS,
    USUAL_CHANGE,
    SpotMarket,
    ZoneQuotes,
    bundled_market,
)
from outlay.offers.offer import ZoneQuote
from outlay.prices.price_store import (
    PastPrice,
)
from outlay.prices.sources import ProviderPrices, ZonePrice


def spot_market(current: Sequence[ProviderPrices], past: Iterable[PastPrice] = ()) -> SpotMarket:
    """The spot prices of refreshed lists with their past; bundled ones where none was refreshed.

    current: what each provider's list says now; of two lists of one provider the first counts.
    past: every change of a price that was kept, or the last one of each week
    (`PriceStore.past_weeks`).

    The past is that of `data/spot_history_DATE.csv` continued by a week for each in which the
    list was refreshed: weeks, mean share and weekly change as `tools/fit_prices.py` reckons them.
    What is no longer listed is gone; a zone that was never seen before has one week.
    """
    return SpotMarket(continued_quotes(current, past, bundled_market().quotes))


def continued_quotes(
    current: Sequence[ProviderPrices], past: Iterable[PastPrice], before: ZoneQuotes
) -> dict[tuple[str, str, str], Sequence[ZoneQuote]]:
    """The quotes of each machine and region: `before`, continued with what was kept since."""
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
