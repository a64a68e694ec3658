"""Cards to avoid: another one costs no more, has as much memory and is nowhere slower."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from outlay.advise.cards import Card, cards, is_sensible
from outlay.advise.speeds import least_ratio

_SAME = 1.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """A card that nobody should buy at its price, and the one to buy instead."""

    card: Card
    by: Card
    times_as_fast: float
    """The other one, on the profile where that is least."""

    @property
    def saved_usd(self) -> float:
        """How much less the other costs."""
        return self.card.seen_usd - self.by.seen_usd


@cache
def beaten_cards(today: str) -> tuple[Beaten, ...]:
    """Cards with a price that another one beats in everything, the most money wasted first.

    Leftover stock is looked at although its price is old: that is what shops still ask for it.
    """
    listed = [card for card in cards(today) if card.in_a_desktop is None]
    rivals = [card for card in listed if is_sensible(card)]
    looked_at = [card for card in listed if not card.is_old or card.is_leftover]
    found = [_beaten(card, rivals) for card in looked_at]
    return tuple(sorted(filter(None, found), key=lambda one: -one.saved_usd))


def _beaten(card: Card, rivals: list[Card]) -> Beaten | None:
    """The best that can be had instead: the fastest of the cards that beat it."""
    better = [one for one in rivals if one.gpu is not card.gpu and _beats(one, card)]
    if not better:
        return None
    best = max(better, key=lambda one: (least_ratio(one.gpu, card.gpu), -one.seen_usd))
    return Beaten(card=card, by=best, times_as_fast=least_ratio(best.gpu, card.gpu))


def _beats(one: Card, other: Card) -> bool:
    """At least as good in everything and better in something, the price counted in.

    A used card has no warranty, so it beats a new one only where that is leftover stock.
    """
    if one.condition == "used" and other.condition == "new" and not other.is_leftover:
        return False
    if one.seen_usd > other.seen_usd or one.gpu.memory_bytes < other.gpu.memory_bytes:
        return False
    ratio = least_ratio(one.gpu, other.gpu)
    return ratio >= 1 / _SAME and (ratio > _SAME or one.seen_usd < other.seen_usd)
