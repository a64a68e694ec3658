"""The prices that a command works with, as one value: offers, spot quotes, interruptions.

A plan is handed a price book and reads no prices from anywhere else; without one it takes the
snapshot that comes with outlay (`bundled_book`). `outlay.prices.books` makes one of refreshed
prices, or of those of a day in the past.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from outlay.errors import InputError, NotKnown
from outlay.offers.catalog import (
    OfferFilter,
    at_best_zones,
    bundled_offers,
    doubt_kinds,
    offers_on,
    search,
    snapshot_date,
)
from outlay.offers.expected_price import SpotMarket
from outlay.offers.offer import Doubt, Offer, SpotRisk

OfferIdentity = tuple[str, str, str]
"""Provider, instance and region."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PriceBook:
    """Prices of one day, or the newest good ones of each provider."""

    name: str
    """In words, for a sentence: `the bundled snapshot of 2026-08-22`."""
    kind: Literal["bundled", "refreshed", "past"]
    as_of: str
    """The day of the newest prices in it."""
    listed: tuple[Offer, ...]
    """As they were listed; `offers_on` says what is to be thought of them on a day."""
    market: SpotMarket | None = None
    """The spot prices of its zones with their past; None: the snapshot's."""
    risks: Mapping[OfferIdentity, SpotRisk] = field(default_factory=dict)
    """How often spot machines are taken away, where newer figures than the bundled are known."""
    freshness: Mapping[str, str] = field(default_factory=dict)
    """The day of each provider's prices."""
    confirmed: Mapping[str, str] = field(default_factory=dict)
    """The day on which each provider's prices were last asked for, changed or not."""
    unknown: tuple[Offer, ...] = ()
    """Offers of GPUs that outlay does not know: named, and in no plan."""
    day: str = ""
    """Of prices of the past: the day that a plan with them is made for."""
    trust: str = ""
    """Which doubts keep an offer from being chosen (`trusted_book`); empty: as usual."""
    notes: tuple[str, ...] = ()
    """What a plan with them should say, in sentences."""
    _seen: dict[str, tuple[Offer, ...]] = field(default_factory=dict)

    def day_of_plan(self, today: str) -> str:
        """The day that a plan with these prices is made for: of the past, theirs; else today."""
        return self.day or today

    def offers_on(self, today: str) -> tuple[Offer, ...]:
        """The offers as they are to be seen on a day, each at its best zone.

        Those of the past are seen on their own day, whatever day it is.
        """
        today = self.day_of_plan(today)
        if self.kind == "bundled" and not (self.trust or self.risks):
            return at_best_zones(bundled_offers(today), today)
        if today not in self._seen:
            offers, kinds = self._doubted(today), trusted_kinds(self.trust)
            if self.trust:
                offers = tuple(_at_kinds(offer, kinds) for offer in offers)
            if self.risks:
                offers = tuple(
                    replace(offer, spot_risk=self.risks.get(offer.identity)) for offer in offers
                )
            self._seen[today] = at_best_zones(offers, today, self.market, kinds)
        return self._seen[today]

    def _doubted(self, today: str) -> tuple[Offer, ...]:
        if self.kind == "bundled":
            return bundled_offers(today)
        if self.kind == "past":  # what became known later is not known then
            return self.listed
        return offers_on(self.listed, today, day_of_the_rest(self.confirmed, self.as_of))


def day_of_the_rest(confirmed: Mapping[str, str], as_of: str) -> str:
    """The day that prices are stale behind: when the middle one of all providers was last asked
    about (`confirmed`), so that one provider's new prices make no other stale; no later than the
    newest, which are of `as_of`."""
    asked = sorted(confirmed.values())
    return min(asked[len(asked) // 2], as_of) if asked else as_of


def offers_of(prices: PriceBook | None, today: str) -> tuple[Offer, ...]:
    """The offers of a price book on a day; without a book, the bundled ones."""
    return (prices or bundled_book()).offers_on(today)


@cache
def bundled_book() -> PriceBook:
    """The snapshot that comes with outlay."""
    as_of = snapshot_date()
    return PriceBook(
        name=f"the bundled snapshot of {as_of}", kind="bundled", as_of=as_of, listed=()
    )


# Trust: which doubts keep an offer from being chosen

_LEVELS: Mapping[str, Mapping[str, Literal["weighed", "caution"]]] = {
    "usual": {},
    "strict": {"weighed": "caution"},
    "all": {"caution": "weighed"},
}
"""What becomes of a kind of doubt at each level of trust."""


def trusted_book(book: PriceBook, trust: str) -> PriceBook:
    """A price book whose doubts are as grave as the user takes them.

    `trust`: `usual`; `strict`, where what is only weighed is a caution, too; `all`, where no
    caution is left; or doubts that are only weighed, `stale,marketplace`, also after a level.
    What nobody sells at its price stays so. Raises `InputError` for a word that is no doubt.
    """
    trusted_kinds(trust)
    return replace(book, trust=trust, _seen={})


@cache
def trusted_kinds(trust: str) -> Mapping[str, Doubt]:
    """How grave every doubt is at a trust, by word; as the table has it where none is given."""
    named = [word.strip().lower() for word in trust.split(",") if word.strip()]
    levels = [word for word in named if word in _LEVELS]
    if len(levels) > 1:
        raise InputError(
            f"Prices cannot be trusted in two ways: {' and '.join(levels)}.",
            fix="Give one of usual, strict and all; doubts may follow it: strict,stale.",
        )
    changes = _LEVELS[levels[0]] if levels else {}
    words = [_doubt_word(word) for word in named if word not in _LEVELS]
    return {
        word: replace(doubt, kind=changes.get(doubt.kind, doubt.kind))
        if word not in words or doubt.kind == "note"
        else replace(doubt, kind="weighed")
        for word, doubt in doubt_kinds().items()
    }


def _doubt_word(name: str) -> str:
    """The doubt that a name means, in any case. Raises where it is none, or no matter of trust."""
    words = {word.lower(): word for word in doubt_kinds()}
    if name not in words:
        fix = "Write usual, strict, all, or doubts with commas between: stale,marketplace."
        raise NotKnown("doubt", name, [*_LEVELS, *words.values()], fix=fix)
    if doubt_kinds()[words[name]].kind == "no price":
        raise InputError(
            f"{words[name]!r} is no matter of trust.",
            why="It says that nobody sells the machine at that price.",
            fix="Leave it out.",
        )
    return words[name]


def _at_kinds(offer: Offer, kinds: Mapping[str, Doubt]) -> Offer:
    if not offer.doubts:
        return offer
    return replace(offer, doubts=tuple(kinds.get(doubt.word, doubt) for doubt in offer.doubts))


# Listing

Sort = Literal["price", "spot", "gpu-price", "gpu", "provider", "memory", "age"]


def list_offers(
    query: OfferFilter | None = None,
    sort: Sort | None = None,
    *,
    today: str = "",
    prices: PriceBook | None = None,
) -> list[Offer]:
    """The offers of a price book that a filter leaves, cheapest first or in another order.

    A spot price is that of the zone a plan would take, with what is doubtful about it. `today`
    (YYYY-MM-DD) leaves out what providers have stopped selling by then. Without a book, the
    bundled offers.
    """
    query = query or OfferFilter()
    offers = search((prices or bundled_book()).offers_on(today), query)
    return _sorted(offers, sort or ("spot" if query.spot else "price"))


def _sorted(offers: list[Offer], key: Sort) -> list[Offer]:
    unknown = float("inf")

    def order(offer: Offer) -> tuple[object, ...]:
        price = offer.price_usd_per_hour or unknown
        spot = offer.spot_usd_per_hour or unknown
        cheapest = min(price, spot)
        first: object = {
            "price": min(unknown, price),
            "spot": spot,
            "gpu-price": cheapest / (offer.gpus * offer.gpu_share),
            "gpu": offer.gpu,
            "provider": offer.provider,
            "memory": -(offer.gpu_memory_bytes or 0.0),
            "age": offer.as_of,
        }[key]
        return (first, cheapest, offer.identity)

    return sorted(offers, key=order)
