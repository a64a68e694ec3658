"""The fitted numbers of the prediction, as values: what share of its peaks a GPU reaches.

They are rows of `data/calibration.csv`, each saying which measurements it was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outlay.estimate import Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiencies and constants by name; a special row goes before a general one."""

    values: Mapping[str, Estimate]
    sources: Mapping[str, str]

    def number(self, name: str) -> float:
        """The best figure of one row."""
        return self.values[name].likely

    def estimate(self, name: str) -> Estimate:
        """One row with its range."""
        return self.values[name]

    def first(self, *names: str) -> float:
        """The best figure of the first of these rows that exists, most special first."""
        for name in names:
            if name in self.values:
                return self.values[name].likely
        raise LookupError(f"no calibration row is called {' or '.join(names)}")


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
