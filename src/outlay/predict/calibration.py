"""The fitted numbers of the prediction, as values.

`data/calibration.csv` has single numbers, `data/kernel_passes.csv` and `data/kernel_products.csv`
the numbers of each family of kernels, every row with the measurements it was fitted on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from outlay.uncertainty import Estimate

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassNumbers:
    """What a pass over memory takes: a row of `data/kernel_passes.csv`."""

    start_s: float
    share: float
    """Of the bandwidth."""
    cycles: float
    """Of an element."""
    unit_cycles: float
    """Of a block of threads."""
    serial_cycles: float
    """Of an element among those of its block, one after another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductNumbers:
    """What a matrix product takes: a row of `data/kernel_products.csv`."""

    start_s: float
    share: float
    """Of the peak."""
    narrow: float
    """What narrow tiles cost, which fetch more operands for a multiply-add."""
    lead: float
    """Elements of the summed dimension that filling and draining a tile costs."""
    memory_share: float
    """Of the bandwidth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Efficiencies and constants by name; a special row goes before a general one."""

    values: Mapping[str, Estimate]
    sources: Mapping[str, str]
    passes: Mapping[str, PassNumbers] = field(default_factory=dict)
    products: Mapping[str, ProductNumbers] = field(default_factory=dict)
    kernel_errors: Mapping[str, float] = field(default_factory=dict)
    """By family of kernels: the mean error it was fitted with."""

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

    def is_guess(self, name: str) -> bool:
        """Whether a row has no measurement behind it, or is not there at all."""
        return name not in self.sources or self.sources[name].startswith("guess")

    def of_pass(self, family: str) -> PassNumbers:
        """The numbers of a family of passes; of one nobody measured, the general ones."""
        return self.passes.get(family) or self.passes["other"]

    def of_product(self, *families: str) -> ProductNumbers:
        """The numbers of the first of these families that was fitted, most special first."""
        for family in families:
            if family in self.products:
                return self.products[family]
        raise LookupError(f"no products are called {' or '.join(families)}")


def calibration_of(
    rows: Iterable[Row], passes: Iterable[Row] = (), products: Iterable[Row] = ()
) -> Calibration:
    """The calibration in the rows of the three tables."""
    values: dict[str, Estimate] = {}
    sources: dict[str, str] = {}
    kernel_errors: dict[str, float] = {}
    for row in rows:
        values[row["name"]] = Estimate(
            low=float(row["low"]), likely=float(row["likely"]), high=float(row["high"])
        )
        sources[row["name"]] = f"{row['source']}, {row['as_of']}"
    of_passes: dict[str, PassNumbers] = {}
    of_products: dict[str, ProductNumbers] = {}
    for row in passes:
        of_passes[row["family"]] = PassNumbers(**_numbers(row, PassNumbers))
        kernel_errors[row["family"]] = float(row["mean_error"])
    for row in products:
        of_products[row["family"]] = ProductNumbers(**_numbers(row, ProductNumbers))
        kernel_errors[row["family"]] = float(row["mean_error"])
    return Calibration(
        values=values,
        sources=sources,
        passes=of_passes,
        products=of_products,
        kernel_errors=kernel_errors,
    )


def _numbers(row: Row, kind: type[PassNumbers | ProductNumbers]) -> dict[str, float]:
    """The columns that a kind of kernel has numbers in."""
    return {column.name: float(row[column.name]) for column in fields(kind)}
