"""Prices of graphics cards, and the user's own price list."""

from __future__ import annotations

import csv
import math
from datetime import date
from functools import cache
from pathlib import Path

from outlay.currency import in_usd
from outlay.errors import InputError
from outlay.facts import Fact, fact_of, rows_of
from outlay.hardware import Gpu
from outlay.workstation.parts import Price, letters, price_in

_COLUMNS = ("part", "price", "currency", "as_of")
_OPTIONAL = ("source",)


def card_price(gpu: Gpu, today: str = "", *, used: bool = False) -> Price | None:
    """What a card with this GPU costs: the newest price of a new one, or of a used one.

    A price of a new card that is older than a year stands back for a newer one of a used card;
    with `used`, used cards come first. None where nobody knows.
    """
    known = {condition: _newest(gpu, condition) for condition in ("new", "used")}
    order = [known["used"], known["new"]] if used else [known["new"], known["used"]]
    found = [price for price in order if price is not None]
    return next((price for price in found if not price.is_old(today)), next(iter(found), None))


def _newest(gpu: Gpu, condition: str) -> Price | None:
    """The latest price of a card in a condition, from either table."""
    facts = [*_card_prices().get((gpu.name, condition), ())]
    facts += [fact for fact in (gpu.facts.get(f"typical_price_{condition}"),) if fact]
    prices = [price_in(fact, "used" if condition == "used" else "") for fact in facts]
    return max((price for price in prices if price), key=lambda price: price.as_of, default=None)


@cache
def _card_prices() -> dict[tuple[str, str], list[Fact]]:
    prices: dict[tuple[str, str], list[Fact]] = {}
    for row in rows_of("card_prices.csv"):
        prices.setdefault((row["gpu"], row["condition"]), []).append(fact_of(row))
    return prices


def read_prices(path: Path) -> dict[str, Price]:
    """A price list by the names in it; the first line that cannot be read is told of."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file, strict=True))
    except FileNotFoundError:
        raise InputError(
            f"There is no price list {path}.",
            fix="Give the path of a CSV file with the columns part,price,currency,as_of.",
        ) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"The price list {path} cannot be read: {error}.") from error
    head = _head(path, rows)
    prices: dict[str, Price] = {}
    for line, row in enumerate(rows[1:], 2):
        if row:
            name, price = _priced(f"{path}, line {line}", head, row)
            if letters(name) in map(letters, prices):
                raise InputError(
                    f"{path}, line {line}: {name!r} stands there twice.", fix="Remove one."
                )
            prices[name] = price
    return prices


def _head(path: Path, rows: list[list[str]]) -> list[str]:
    head = [cell.strip() for cell in rows[0]] if rows else []
    missing = [name for name in _COLUMNS if name not in head]
    foreign = [name for name in head if name not in (*_COLUMNS, *_OPTIONAL)]
    if missing or foreign:
        what = f"has no column {missing[0]!r}" if missing else f"has a column {foreign[0]!r}"
        raise InputError(
            f"{path}, line 1: the price list {what}.",
            fix=f"Its first line is {','.join(_COLUMNS)} with {_OPTIONAL[0]} if you like.",
        )
    return head


def _priced(where: str, head: list[str], row: list[str]) -> tuple[str, Price]:
    if len(row) != len(head):
        raise InputError(
            f"{where}: {len(row)} cells where the first line has {len(head)}.",
            why="The line is cut short, or a comma stands in a cell without quotes.",
            fix='Put such a cell in quotes: "1,299.00".',
        )
    cells = dict(zip(head, (cell.strip() for cell in row), strict=True))
    if not cells["part"]:
        raise InputError(f"{where}: the part has no name.")
    return cells["part"], Price(
        usd=_amount(where, cells["price"]) * _rate(where, cells["currency"]),
        source=cells.get("source") or "your price list",
        as_of=_day(where, cells["as_of"]),
    )


def _amount(where: str, text: str) -> float:
    try:
        amount = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        amount = math.nan
    if not 0 < amount <= 1e12:
        raise InputError(
            f"{where}: the price {text!r} is not a number above zero.", fix="Write 1299 or 1299.50."
        )
    return amount


def _rate(where: str, currency: str) -> float:
    try:
        return in_usd(currency)
    except InputError as error:
        raise InputError(f"{where}: {error.what}", why=error.why, fix=error.fix) from None


def _day(where: str, text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise InputError(
            f"{where}: the date {text!r} is not one.", fix="Write the day it was seen: 2026-11-01."
        ) from None
