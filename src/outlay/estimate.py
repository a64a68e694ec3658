"""A figure with its range, and a total made of named lines.

Every number a user is shown is an `Estimate`; totals are only ever sums of `Line`s, so that
each dollar on the screen can be followed to the line, and each line to its rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A best single figure (`likely`) between its 10th (`low`) and 90th percentile (`high`)."""

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError(f"not ordered: low {self.low}, likely {self.likely}, high {self.high}")

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        """A figure without uncertainty, such as a quoted price."""
        return cls(low=value, likely=value, high=value)

    @classmethod
    def within(cls, likely: float, *, down_fraction: float, up_fraction: float) -> Estimate:
        """`likely` with a range given as fractions of it."""
        return cls(low=likely * (1 - down_fraction), likely=likely, high=likely * (1 + up_fraction))

    def scaled(self, factor: float) -> Estimate:
        """All three figures times a factor that is known exactly and not negative."""
        return Estimate(low=self.low * factor, likely=self.likely * factor, high=self.high * factor)

    def times(self, other: Estimate) -> Estimate:
        """The product of two figures whose errors have nothing to do with each other.

        Relative deviations are combined as the root of the sum of their squares.
        """
        likely = self.likely * other.likely
        if likely == 0:
            return Estimate(low=0.0, likely=0.0, high=self.high * other.high)
        down = math.hypot(1 - self.low / self.likely, 1 - other.low / other.likely)
        up = math.hypot(self.high / self.likely - 1, other.high / other.likely - 1)
        return Estimate(low=likely * max(1 - down, 0.0), likely=likely, high=likely * (1 + up))

    def plus(self, other: Estimate) -> Estimate:
        """The sum of two figures whose errors go together (the widest honest range)."""
        return Estimate(
            low=self.low + other.low,
            likely=self.likely + other.likely,
            high=self.high + other.high,
        )


def total(parts: Iterable[Estimate]) -> Estimate:
    """The sum of figures whose errors go together."""
    low = likely = high = 0.0
    for part in parts:
        low, likely, high = low + part.low, likely + part.likely, high + part.high
    return Estimate(low=low, likely=likely, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One named part of a cost: what the bill would call it, how much, and how it came about.

    `basis` is the sum in words ("7.0 h x $1.00/h"); `source` names the rows behind it.
    """

    name: str
    usd: Estimate
    basis: str
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """A cost as named lines. The total is their sum and nothing else."""

    lines: tuple[Line, ...]
    usd: Estimate = field(init=False)
    """The total."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "usd", total(line.usd for line in self.lines))

    def line_usd(self, name: str) -> float:
        """The likely amount of the lines of that name, 0 where there is none."""
        return sum(line.usd.likely for line in self.lines if line.name == name)
