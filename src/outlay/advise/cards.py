"""Cards one can buy: the newest dated price of each, new and used, and what it sells for later.

    purchase    the price, with a range that widens with its age
    resale      a used card keeps a share of its price each year; a new one is used at once

`data/card_prices.csv` has one price per row with its source and day.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Literal

from outlay.advise.tables import taken_number, taken_range
from outlay.estimate import Estimate
from outlay.facts import rows_of
from outlay.hardware import Gpu, gpus

Condition = Literal["new", "used"]
LEFTOVER = "leftover stock"
_DAYS_IN_MONTH = 365 / 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card at a price somebody asked on some day."""

    gpu: Gpu
    condition: Condition
    seen_usd: float
    as_of: str
    source: str
    note: str
    age_months: float

    @property
    def name(self) -> str:
        """`used RTX 3090`."""
        return f"{self.condition} {self.gpu.name}"

    @property
    def is_leftover(self) -> bool:
        """Whether it is the rest of a card nobody makes any more."""
        return LEFTOVER in self.note

    @property
    def is_old(self) -> bool:
        """Whether its price is too old to go by."""
        return self.age_months > taken_number("price_old_months")

    @property
    def price_usd(self) -> Estimate:
        """What it may cost today: as seen, further apart the longer ago that is."""
        drift, years = taken_range("card_price_drift_per_year"), self.age_months / 12
        return Estimate(
            low=self.seen_usd * drift.low**years,
            likely=self.seen_usd,
            high=self.seen_usd * drift.high**years,
        )

    @property
    def in_a_desktop(self) -> str | None:
        """Why it cannot go into an ordinary desktop, None where it can."""
        if self.gpu.form != "PCIe":
            return f"needs a server board ({self.gpu.form})"
        facts = self.gpu.facts
        if facts["cooling"].text == "passive":
            return "is made for servers: no fan of its own"
        if (facts["memory_type"].text or "").startswith("HBM"):
            return "is made for servers"
        return None


@cache
def cards(today: str) -> tuple[Card, ...]:
    """The newest price of each card in each condition; leftover stock only where none else is."""
    found: dict[tuple[str, str], Card] = {}
    for card in sorted(_listed(today), key=lambda one: (not one.is_leftover, one.as_of)):
        found[card.gpu.name, card.condition] = card
    return tuple(found.values())


def _listed(today: str) -> Iterable[Card]:
    known, now = gpus(), date.fromisoformat(today)
    for row in rows_of("card_prices.csv"):
        condition, name = row["condition"], row["gpu"]
        if condition not in ("new", "used") or name not in known or row["as_of"] > today:
            continue
        days = (now - date.fromisoformat(row["as_of"])).days
        yield Card(
            gpu=known[name],
            condition=condition,  # type: ignore[arg-type]  # one of the two
            seen_usd=float(row["value"]),
            as_of=row["as_of"],
            source=row["source"],
            note=row["note"],
            age_months=days / _DAYS_IN_MONTH,
        )


def worth_buying(today: str, *, used: bool = True, amd: bool = False) -> tuple[Card, ...]:
    """The cards somebody should look at for a desktop."""
    return tuple(
        card
        for card in desktop_cards(today)
        if is_sensible(card, amd=amd) and (used or card.condition == "new")
    )


def desktop_cards(today: str) -> tuple[Card, ...]:
    """All cards with a price that go into a desktop, leftover stock left out."""
    return tuple(
        card for card in cards(today) if not card.is_leftover and card.in_a_desktop is None
    )


def is_sensible(card: Card, *, amd: bool = False) -> bool:
    """Whether one should buy it today: a price to go by, and software that goes on.

    AMD cards have to be asked for: no prediction of theirs was ever checked, and not every
    package has a build for them.
    """
    return (
        not card.is_old and card.gpu.software.runs == "yes" and (amd or card.gpu.vendor == "NVIDIA")
    )


def resale_usd(card: Card, years: float, today: str) -> Estimate:
    """What a card is sold for after some years, fees taken off."""
    keep, left = taken_range("used_card_keep_per_year"), 1 - taken_number("selling_cost")
    now = used_usd(card, today)
    return Estimate(
        low=now.low * keep.low**years * left,
        likely=now.likely * keep.likely**years * left,
        high=now.high * keep.high**years * left,
    )


def used_usd(card: Card, today: str) -> Estimate:
    """What somebody pays for it second-hand on the day it is bought."""
    if card.condition == "used":
        return Estimate.exactly(card.seen_usd)
    seconds = [
        one
        for one in cards(today)
        if one.gpu is card.gpu and one.condition == "used" and not one.is_old
    ]
    if seconds:
        return Estimate.exactly(min(seconds[0].seen_usd, card.seen_usd))
    return taken_range("used_by_new").scaled(card.seen_usd)
