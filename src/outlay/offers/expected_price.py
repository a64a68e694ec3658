"""What an hour will cost when the run runs: the quote, and how such prices moved in the past.

A quote is of one day, and the run comes later. `expected_price` gives the price to reckon with and
its range, from four things: the quote; how long ago it was seen; the price's own past and that of
the other zones of its type (`SpotMarket`); and how its provider's prices move (`PriceMoves`, fitted
by `tools/fit_prices.py`). `at_best_zone` says which zone of a region that is, and what is to be
doubted about it. docs/models/prices.md.

    log(price then / quote) = growth(weeks) · (constant + below·b + above·a + change·c + low·l)

once for each of the 10th, 50th and 90th percentile, where b and a are how far the quote lies below
or above its usual level, c is how much it changed in a week of late, and l is how far it lies below
a quarter of on-demand (all in logarithms). growth(weeks) is
weeks / (weeks + half_weeks) where prices come back to a level (AWS's spot prices), and the square
root of weeks / 13 where they wander off (all others), so that there the constant is of a quarter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from outlay.facts import newest, rows_of
from outlay.offers.offer import Doubt, Offer, Tenancy, UsualShare, ZoneQuote
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, WEEK_S, days_between

TYPE_WEEKS = 8.0
"""Weeks of a zone's own past that weigh as much as what its type costs elsewhere."""
USUAL_CHANGE = 0.1
"""How much the logarithm of a spot price changes in a week: one week of it is added to its own."""
CHANGE_WEEKS = 8
"""Weeks whose changes are looked at."""
LOW_SHARE = 0.25
"""Of on-demand: what costs less than that tends to cost more later."""
QUARTER_WEEKS = 13.0
_KNOWN_WEEKS = 4
"""Weeks of past below which a price's range takes in what its type costs elsewhere; where that is
not known either, it is no narrower than after a quarter."""
PROVEN_WEEKS = 13
"""Weeks of past from which a price that is far below others is believed."""
_NEW_DAYS = 30
_FLOORS = (0.09, 0.10)
"""Shares of on-demand below which AWS and GCP never go: a price there says nothing of demand."""
_FLOOR_HAIR = 5e-4
"""Share of on-demand by which a price at the floor may miss it: prices are rounded, and some are
the sum of two."""
_SAVES_NOTHING = 0.999
"""Of on-demand: a spot price from there on is none."""
_FAR_BELOW = 0.5
"""Share of what its type usually costs from which a price is doubted."""
LEAST_SHARE = 0.09
"""Of on-demand: no spot price has been seen below."""


# --- how prices move ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """A coefficient for the 10th, the 50th and the 90th percentile."""

    low: float = 0.0
    middle: float = 0.0
    high: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceMoves:
    """How the logarithm of a provider's prices moves after a quote."""

    constant: Percentiles
    below: Percentiles = Percentiles()
    """For each unit that a quote lies below its usual level."""
    above: Percentiles = Percentiles()
    change: Percentiles = Percentiles()
    """For each unit that a price changed in a week of late."""
    low: Percentiles = Percentiles()
    """For each unit that a quote lies below a quarter of on-demand."""
    half_weeks: float | None = None
    """After so many weeks half of all that ever moves has moved; None: prices wander off."""

    def growth(self, weeks: float) -> float:
        """How far prices have moved after so long, as a multiple of the coefficients."""
        if weeks <= 0:
            return 0.0
        if self.half_weeks is None:
            return math.sqrt(weeks / QUARTER_WEEKS)
        return weeks / (weeks + self.half_weeks)


Movements = Mapping[tuple[str, str], PriceMoves]
"""By provider and tenancy; `*` for providers without a row."""


def movements_of(rows: Iterable[Mapping[str, str]]) -> Movements:
    """The rows of `data/price_moves.csv`, one for each term, put together."""
    terms: dict[tuple[str, str], dict[str, Percentiles]] = {}
    half_weeks: dict[tuple[str, str], float | None] = {}
    for row in rows:
        key = (row["provider"], row["tenancy"])
        terms.setdefault(key, {})[row["term"]] = Percentiles(
            low=float(row["low"]), middle=float(row["middle"]), high=float(row["high"])
        )
        half_weeks[key] = float(row["half_weeks"]) if row["half_weeks"] else None
    return {key: PriceMoves(**terms[key], half_weeks=half_weeks[key]) for key in terms}


@cache
def bundled_movements() -> Movements:
    """How prices moved in the years up to the snapshot."""
    return movements_of(rows_of("price_moves.csv"))


# --- one day's spot prices with their past ---


ZoneQuotes = Mapping[tuple[str, str, str], Sequence[ZoneQuote]]
"""By provider, instance and region; region `` is anywhere."""


class SpotMarket:
    """The spot prices of one day, zone by zone, with their past."""

    def __init__(
        self,
        quotes: ZoneQuotes,
        usual: Mapping[tuple[str, str], UsualShare] | None = None,
    ) -> None:
        """`quotes`: the zones of each provider, instance and region; region `` is anywhere.

        `usual`: what the spot price of a type was in all its zones, where the zones themselves are
        not known, by provider and instance.
        """
        self.quotes = quotes
        usual = usual or {}
        by_type: dict[tuple[str, str], list[float]] = {}
        by_provider: dict[str, list[float]] = {}
        for (provider, instance, _), zones in quotes.items():
            for zone in zones:
                if zone.share is not None and (provider, instance) not in usual:
                    by_type.setdefault((provider, instance), []).append(zone.share)
                    by_provider.setdefault(provider, []).append(zone.share)
        for (provider, _), known in usual.items():
            by_provider.setdefault(provider, []).append(known.middle)
        self._by_type = {**{key: _usual(shares) for key, shares in by_type.items()}, **usual}
        self._by_provider = {key: _usual(shares) for key, shares in by_provider.items()}

    def zones(self, offer: Offer) -> Sequence[ZoneQuote]:
        """The zones an offer may be had in, with their quotes; empty where none is recorded."""
        key = (offer.provider, offer.instance)
        return self.quotes.get((*key, offer.region)) or self.quotes.get((*key, "")) or ()

    def usual_share(self, offer: Offer) -> UsualShare | None:
        """What spot usually is of on-demand: of its type, or of its provider for a lone zone."""
        of_type = self._by_type.get((offer.provider, offer.instance))
        if of_type is not None and of_type.zones > 1:
            return of_type
        return self._by_provider.get(offer.provider)


def _usual(shares: Sequence[float]) -> UsualShare:
    ordered = sorted(shares)
    last = len(ordered) - 1
    return UsualShare(
        low=ordered[round(0.1 * last)],
        middle=median(ordered),
        high=ordered[round(0.9 * last)],
        zones=len(ordered),
    )


@cache
def bundled_market() -> SpotMarket:
    """The spot prices of the snapshot."""
    quotes: dict[tuple[str, str, str], list[ZoneQuote]] = {}
    for row in rows_of(newest("spot_history")):
        key = (row["provider"], row["instance"], row["region"])
        quotes.setdefault(key, []).append(_zone_quote(row))
    return SpotMarket(quotes)


def _zone_quote(row: Mapping[str, str]) -> ZoneQuote:
    def number(name: str) -> float | None:
        return float(row[name]) if row[name] else None

    return ZoneQuote(
        zone=row["zone"],
        usd_per_hour=number("spot_usd_hour"),
        share=number("share"),
        weeks=int(row["weeks"]),
        seen_first=row["seen_first"] or None,
        mean_share=number("mean_share"),
        weekly_change=number("weekly_change"),
    )


# --- the price to reckon with ---


def expected_price(
    offer: Offer,
    tenancy: Tenancy,
    weeks: float,
    market: SpotMarket | None = None,
    movements: Movements | None = None,
) -> Estimate | None:
    """An hour's price so many weeks after its quote, None where there is no quote.

    A user's own quote and an on-demand price are likely to stay what they are; a spot price is
    likely to be what such prices became. The range is 80 % of what they became.
    """
    quote_usd = offer.hourly_usd(tenancy)
    if quote_usd is None or quote_usd == 0:
        return None if quote_usd is None else Estimate.exactly(0.0)
    moves = _moves_of(offer.provider, tenancy, movements or bundled_movements())
    if tenancy == "spot" and offer.discount is not None:  # shares are of list prices
        listed = expected_price(offer.at_list_price(), tenancy, weeks, market, movements)
        most_usd = highest_price(offer, tenancy)
        assert listed is not None
        price = listed.scaled(1 - offer.discount.spot_fraction)
        return price if most_usd is None else price.at_most(most_usd)
    if tenancy != "spot" or offer.is_promised:
        price, most = _around(quote_usd, moves, weeks), highest_price(offer, tenancy)
        price = _with_other_sources(offer, tenancy, price)
        return price if most is None else price.at_most(most)
    usual = offer.usual_share
    if market is not None or (usual is None and offer.price_usd_per_hour is not None):
        usual = (market or bundled_market()).usual_share(offer)
    return _spot_price(offer, quote_usd, moves, usual, weeks)


def _with_other_sources(offer: Offer, tenancy: Tenancy, price: Estimate) -> Estimate:
    """An on-demand price whose range takes in what other sources say, where they disagree."""
    doubts = {doubt.word for doubt in offer.doubts} & {"sources disagree", "outlier"}
    if tenancy != "on-demand" or not doubts:
        return price
    paid = 1.0 if offer.discount is None else 1 - offer.discount.on_demand_fraction
    others = [paid * usd for other in offer.other_prices if (usd := other.price_usd_per_hour)]
    low, high = min([price.low, *others]), max([price.high, *others])
    return Estimate(low=low, likely=price.likely, high=high)


def highest_price(offer: Offer, tenancy: Tenancy) -> float | None:
    """What an hour costs at most: nobody pays more for spot than on demand. None: no end."""
    if tenancy != "spot" or offer.price_usd_per_hour is None:
        return None
    return max(offer.price_usd_per_hour, offer.spot_usd_per_hour or 0.0)


def _moves_of(provider: str, tenancy: Tenancy, movements: Movements) -> PriceMoves:
    kind = "spot" if tenancy == "spot" else "on-demand"
    return movements.get((provider, kind)) or movements["*", kind]


def _around(quote_usd: float, moves: PriceMoves, weeks: float) -> Estimate:
    """A price that is likely to stay what it is."""
    growth, usual, change = moves.growth(weeks), moves.constant, moves.change
    low = growth * (usual.low - usual.middle + (change.low - change.middle) * USUAL_CHANGE)
    high = growth * (usual.high - usual.middle + (change.high - change.middle) * USUAL_CHANGE)
    return Estimate(
        low=quote_usd * math.exp(min(low, 0.0)),
        likely=quote_usd,
        high=quote_usd * math.exp(max(high, 0.0)),
    )


def _spot_price(
    offer: Offer, quote_usd: float, moves: PriceMoves, usual: UsualShare | None, weeks: float
) -> Estimate:
    on_demand_usd, past = offer.price_usd_per_hour, offer.zone
    level = None if on_demand_usd is None else _usual_level_usd(on_demand_usd, past, usual)
    gap = 0.0 if level is None else math.log(level / quote_usd)
    change = past.weekly_change if past is not None else None
    change = USUAL_CHANGE if change is None else change
    low_gap = 0.0
    if on_demand_usd is not None:
        low_gap = max(math.log(LOW_SHARE * on_demand_usd / quote_usd), 0.0)
    is_known = past is not None and past.weeks >= _KNOWN_WEEKS
    has_type = usual is not None and on_demand_usd is not None
    growth = moves.growth(weeks if is_known or has_type else max(weeks, QUARTER_WEEKS))

    def then_usd(percentile: Callable[[Percentiles], float]) -> float:
        move = (
            percentile(moves.constant)
            + percentile(moves.below) * max(gap, 0.0)
            + percentile(moves.above) * max(-gap, 0.0)
            + percentile(moves.change) * change
            + percentile(moves.low) * low_gap
        )
        return quote_usd * math.exp(growth * move)

    low, likely, high = (
        then_usd(lambda term: term.low),
        then_usd(lambda term: term.middle),
        then_usd(lambda term: term.high),
    )
    if on_demand_usd is not None:
        if not is_known and usual is not None:
            low = min(low, usual.low * on_demand_usd)
            high = max(high, usual.high * on_demand_usd)
        most, least = max(on_demand_usd, quote_usd), min(LEAST_SHARE * on_demand_usd, quote_usd)
        low, likely, high = (min(max(usd, least), most) for usd in (low, likely, high))
    return Estimate(low=min(low, likely), likely=likely, high=max(likely, high))


def _usual_level_usd(
    on_demand_usd: float, past: ZoneQuote | None, usual: UsualShare | None
) -> float | None:
    """What a price tends back to: its own mean and its type's, by the weeks each is known for."""
    own = past.mean_share if past is not None else None
    if usual is None:
        return None if own is None else on_demand_usd * own
    if own is None or past is None:
        return on_demand_usd * usual.middle
    weight = past.weeks / (past.weeks + TYPE_WEEKS)
    return on_demand_usd * math.exp(weight * math.log(own) + (1 - weight) * math.log(usual.middle))


def weeks_since(as_of: str, today: str) -> float:
    """Weeks from the day a price was seen to today, 0 where either day is not known."""
    if not as_of or not today:
        return 0.0
    return max(days_between(as_of, today) * DAY_S / WEEK_S, 0.0)


# --- which zone, and what is doubtful about it ---


def at_best_zone(
    offer: Offer,
    doubts: Mapping[str, Doubt],
    today: str = "",
    market: SpotMarket | None = None,
    movements: Movements | None = None,
) -> Offer:
    """The offer at the zone whose spot price is expected to be lowest, with what is doubtful.

    A zone that nothing is doubtful about goes before a cheaper one. Zones where spot saves nothing
    are left out, as they are of the offer's own price.
    """
    if offer.spot_usd_per_hour is None or offer.is_promised:
        return offer
    if offer.discount is not None:
        listed = at_best_zone(offer.at_list_price(), doubts, today, market, movements)
        return listed.less(offer.discount)
    market = market or bundled_market()
    weeks = weeks_since(offer.seen_on("spot"), today)
    quotes = [zone for zone in market.zones(offer) if (zone.share or 0.0) < _SAVES_NOTHING]
    zones = [_in_zone(offer, zone, doubts, market) for zone in quotes]
    if not zones:
        return _in_zone(offer, None, doubts, market)
    if len(zones) == 1:
        return zones[0]

    def order(candidate: Offer) -> tuple[bool, float]:
        price = expected_price(candidate, "spot", weeks, market, movements)
        assert price is not None
        return bool(candidate.cautions("spot")), price.likely + price.high

    return min(zones, key=order)


def _in_zone(
    offer: Offer, zone: ZoneQuote | None, doubts: Mapping[str, Doubt], market: SpotMarket
) -> Offer:
    usd = offer.spot_usd_per_hour
    if zone is not None and zone.usd_per_hour is not None:
        usd = zone.usd_per_hour
    there = replace(offer, zone=zone, spot_usd_per_hour=usd, usual_share=market.usual_share(offer))
    added = tuple(doubts[word] for word in _spot_doubts(there, market))
    return replace(there, doubts=(*offer.doubts, *added)) if added else there


def _spot_doubts(offer: Offer, market: SpotMarket) -> list[str]:
    """What is doubtful about a spot price, in the words of `data/offer_doubts.csv`."""
    usd, on_demand_usd, past = offer.spot_usd_per_hour, offer.price_usd_per_hour, offer.zone
    if usd is None:
        return []
    words, seen = [], offer.seen_on("spot")
    if on_demand_usd is not None:
        if any(abs(usd / on_demand_usd - floor) <= _FLOOR_HAIR for floor in _FLOORS):
            words.append("floor")
        usual = market.usual_share(offer)
        if usual is not None and usd < _FAR_BELOW * usual.middle * on_demand_usd:
            words.append("far below usual")
    if past is None or past.weeks <= 1:
        words.append("no history")
    elif past.seen_first is not None and days_between(past.seen_first, seen) < _NEW_DAYS:
        words.append("new")
    is_low = "floor" in words or "far below usual" in words
    is_recent = past is None or past.weeks <= 1 or past.seen_first is not None
    if is_low and is_recent and (past is None or past.weeks < PROVEN_WEEKS):
        words.append("unproven low")
    return words
