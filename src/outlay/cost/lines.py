"""A cost as named lines: the total is their sum and nothing else.

Each dollar on the screen can be followed to its line, and each line to its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from outlay.uncertainty import Number


class Line(NamedTuple):
    """One named part of a cost: what the bill would call it, how much, and how it came about."""

    name: str
    usd: Number
    """One amount, or one for each draw; below zero for what is taken off."""
    how: str | Callable[[], str] = ""
    source: str = ""
    """The rows behind it."""
    payee: str = ""
    """Who charges it, where that is not who rents out the machine."""

    @property
    def basis(self) -> str:
        """The sum in words ("7.0 h x $1.00/h"), put together when somebody reads it."""
        return self.how if isinstance(self.how, str) else self.how()


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """A cost as named lines. The total is their sum and nothing else."""

    lines: tuple[Line, ...]
    usd: Number = field(init=False)
    """The total."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "usd", sum((line.usd for line in self.lines), 0.0))

    def line_usd(self, *names: str) -> Number:
        """The amount of the lines of those names, 0 where there is none."""
        return sum((line.usd for line in self.lines if line.name in names), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpricedItem:
    """Something that will be charged at a price nobody found out."""

    what: str
    usual_usd: Number | None = None
    """What it would cost at what others usually charge; None where nobody is known to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """A run's cost in lines, and what could not be priced."""

    breakdown: Breakdown
    unpriced: tuple[UnpricedItem, ...] = ()

    @property
    def unknown(self) -> tuple[str, ...]:
        """What could not be priced, in words."""
        return tuple(item.what for item in self.unpriced)

    @property
    def usual_usd(self) -> float:
        """What all that would usually cost: in no total, but no advantage either."""
        return sum(
            float(np.mean(item.usual_usd)) for item in self.unpriced if item.usual_usd is not None
        )

    @property
    def usd(self) -> Number:
        """The total of what could be priced."""
        return self.breakdown.usd
