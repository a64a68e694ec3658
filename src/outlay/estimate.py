"""A figure with its range: every number a user is shown is an `Estimate`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


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
