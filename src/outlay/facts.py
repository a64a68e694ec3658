"""The facts tables in `data/`: one value per row, each with a unit, a source and a date."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from outlay.errors import OutlayError
from outlay.uncertainty import Estimate, Uncertain

DATA = Path(__file__).parent / "data"
GUESS = "guess"
NONE = "none"
"""The written value of something the hardware does not have (an empty value is unknown)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One cell of knowledge. `text` is None where nobody has found it out."""

    text: str | None
    unit: str
    source: str
    as_of: str
    note: str = ""

    @property
    def known(self) -> bool:
        """Whether there is a value, `none` included."""
        return self.text is not None

    @property
    def number(self) -> float | None:
        """The value as a number, None where it is unknown or the hardware lacks it."""
        return None if self.text is None or self.text == NONE else float(self.text)

    @property
    def is_guess(self) -> bool:
        """Whether the row says of itself that it is a guess."""
        return self.note.startswith(GUESS) or self.source.startswith(GUESS)


def fact_of(row: dict[str, str]) -> Fact:
    """The fact in a row of a table with value, unit, source, as_of and note columns."""
    return Fact(
        text=row["value"] or None,
        unit=row["unit"],
        source=row["source"],
        as_of=row["as_of"],
        note=row["note"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPrice:
    """What a card with a GPU costs: a row of `data/card_prices.csv`, or of a list of one's own."""

    gpu: str
    """As the table of GPUs names it."""
    condition: str
    """`new`, `used` or at `launch`."""
    fact: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPrice:
    """What a part of a workstation costs, as a list of one's own says."""

    part: str
    """As the user names it."""
    fact: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedPrices:
    """Prices of cards and parts that the user has imported; each counts where it is the newest."""

    cards: tuple[CardPrice, ...] = ()
    parts: tuple[PartPrice, ...] = ()


NOTHING_IMPORTED = ImportedPrices()


def card_prices(imported: ImportedPrices = NOTHING_IMPORTED) -> tuple[CardPrice, ...]:
    """Every known price of a card: the bundled ones, then those that were imported."""
    return (*_bundled_card_prices(), *imported.cards)


@cache
def _bundled_card_prices() -> tuple[CardPrice, ...]:
    return tuple(
        CardPrice(gpu=row["gpu"], condition=row["condition"], fact=fact_of(row))
        for row in rows_of("card_prices.csv")
    )


def rows_of(name: str) -> list[dict[str, str]]:
    """The rows of a bundled table, by column name; of one that ends in .gz, too."""
    path = DATA / name
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
    except (gzip.BadGzipFile, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise _damaged(path, str(error)) from error
    except OSError as error:
        raise _damaged(path, f"it cannot be read ({error.strerror})") from error
    if not rows:
        raise _damaged(path, "it has no rows")
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise _damaged(path, f"line {line} has not as many cells as the head")
    return rows


def newest(table: str) -> str:
    """The name of the newest file of a dated table."""
    return max(path.name for path in DATA.glob(f"{table}_????-??-??.csv"))


def _damaged(path: Path, why: str) -> OutlayError:
    return OutlayError(f"The bundled table {path} is damaged: {why}.", fix="Install outlay again.")


@cache
def assumptions() -> dict[str, Fact]:
    """What outlay takes where the user says nothing, by name: `data/assumptions.csv`."""
    return {row["name"]: fact_of(row) for row in _assumption_rows()}


def assumed_range(name: str) -> Uncertain:
    """The number of an assumption with its range, where the table gives one."""
    row = next(row for row in _assumption_rows() if row["name"] == name)
    likely = assumed(name)
    if not row["low"]:
        return likely
    return Estimate(low=float(row["low"]), likely=likely, high=float(row["high"]))


@cache
def _assumption_rows() -> list[dict[str, str]]:
    return rows_of("assumptions.csv")


def assumed(name: str) -> float:
    """The number of an assumption; it must be known."""
    number = assumptions()[name].number
    if number is None:
        raise LookupError(f"the assumption {name} has no number")
    return number
