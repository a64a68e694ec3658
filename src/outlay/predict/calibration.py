"""The fitted numbers of the prediction, as values: what share of its peaks a GPU reaches.

They are rows of `data/calibration.csv`, each saying which measurements it was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outlay.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiencies and constants by name; a kind of operation without its own row takes `other`."""

    values: Mapping[str, Estimate]
    sources: Mapping[str, str]

    def number(self, name: str) -> float:
        """The best figure of one row."""
        return self.values[name].likely

    def estimate(self, name: str) -> Estimate:
        """One row with its range."""
        return self.values[name]

    def fraction(self, name: str, fallback: str) -> float:
        """An efficiency, or that of `fallback` where there is no row of that name."""
        return self.values.get(name, self.values[fallback]).likely


def calibration_of(rows: Iterable[Mapping[str, str]]) -> Calibration:
    """The calibration in the rows of a table with name, low, likely, high, source and as_of."""
    values: dict[str, Estimate] = {}
    sources: dict[str, str] = {}
    for row in rows:
        values[row["name"]] = Estimate(
            low=float(row["low"]), likely=float(row["likely"]), high=float(row["high"])
        )
        sources[row["name"]] = f"{row['source']}, {row['as_of']}"
    return Calibration(values=values, sources=sources)
