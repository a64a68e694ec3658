"""A figure with its range: every number a user is shown is an `Estimate`."""

from __future__ import annotations

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

    def scaled(self, factor: float) -> Estimate:
        """All three figures times a factor that is known exactly and not negative."""
        return Estimate(low=self.low * factor, likely=self.likely * factor, high=self.high * factor)

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
