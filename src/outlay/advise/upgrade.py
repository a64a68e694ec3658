"""Buy a small card, sell it half-way, buy a bigger one: against the big one at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outlay.advise.asked import Asked
from outlay.advise.cards import Card, resale_usd, used_usd
from outlay.advise.tables import taken_number
from outlay.advise.ways import Way

_MOST = 4.0
_FASTER = 1.2
"""What makes a card bigger: that many times as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """Two ways to a big card over the same months; the desktop around it is the same."""

    small: Card
    big: Card
    after_months: float
    at_once_usd: float
    """Bought now, less what it is sold for in the end."""
    in_steps_usd: float
    first_outlay_usd: float
    """What the small one costs now."""
    speed_ratio: float
    """Of the big card over the small one, on the profile asked about."""

    @property
    def saved_usd(self) -> float:
        """What going in steps saves; below zero where it costs more."""
        return self.at_once_usd - self.in_steps_usd


def upgrade_path(ways: Sequence[Way], asked: Asked) -> Upgrade | None:
    """The cheapest card that does the work, and the fastest the purse allows.

    Without a purse, the fastest at up to four times the price of the small one.
    Assumes that half-way the big card costs what a used one of it is worth by then.
    """
    able = [way for way in ways if way.card is not None]
    if len(able) < 2:
        return None
    small = min(able, key=lambda way: way.upfront_usd)
    most_usd = asked.budget_usd or _MOST * small.upfront_usd
    big = min((one for one in able if one.upfront_usd <= most_usd), key=_hours)
    if small.card is None or big.card is None or _hours(big) > _hours(small) / _FASTER:
        return None
    half = asked.years / 2
    first_usd = small.card.seen_usd * asked.gpus
    later_usd = _worth_usd(big.card, half, asked)
    # Sold in the end for what it is worth then, fees taken off: the same as if bought at once.
    end_usd = _resale_usd(big.card, asked.years, asked)
    return Upgrade(
        small=small.card,
        big=big.card,
        after_months=asked.months / 2,
        at_once_usd=big.card.seen_usd * asked.gpus - end_usd,
        in_steps_usd=first_usd - _resale_usd(small.card, half, asked) + later_usd - end_usd,
        first_outlay_usd=first_usd,
        speed_ratio=small.busy_hours / big.busy_hours,
    )


def _hours(way: Way) -> float:
    return way.busy_hours


def _resale_usd(card: Card, years: float, asked: Asked) -> float:
    return resale_usd(card, years, asked.today).likely * asked.gpus


def _worth_usd(card: Card, years: float, asked: Asked) -> float:
    """What a used one costs after some years."""
    kept = math.pow(taken_number("used_card_keep_per_year"), years)
    return used_usd(card, asked.today).likely * kept * asked.gpus
