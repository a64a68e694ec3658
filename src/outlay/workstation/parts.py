"""Parts a workstation is made of, and what they cost.

A `Catalogue` holds every part of `data/parts.csv` with the prices in force; a part described by its
figures is a `Part`, too. Then prices: of cards from the tables, what the user has imported where it
is newer, and the user's own price list before all. Then cards: a GPU under any spelling, or a named
card of the table.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Literal, get_args

from outlay.currency import in_usd, usd_per_unit
from outlay.errors import InputError, NotKnown
from outlay.facts import (
    NOTHING_IMPORTED,
    CardPrice,
    Fact,
    ImportedPrices,
    PartPrice,
    card_prices,
    fact_of,
    rows_of,
)
from outlay.files import name_of, text_of_file
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu

Kind = Literal["card", "cpu", "cooler", "board", "memory", "ssd", "hdd", "psu", "case"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NOUNS: dict[Kind, str] = {
    "card": "graphics card",
    "cpu": "CPU",
    "cooler": "CPU cooler",
    "board": "board",
    "memory": "memory kit",
    "ssd": "SSD",
    "hdd": "hard disk",
    "psu": "power supply",
    "case": "case",
}
"""What people call them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one piece costs, who says so, and when."""

    usd: float
    source: str
    as_of: str
    note: str = ""
    """What to know about it: that it is of a used one, or in another currency."""

    def is_old(self, today: str) -> bool:
        """Whether it was seen more than a year before a day (YYYY-MM-DD); not, without a date."""
        return bool(today and self.as_of) and self.as_of < f"{int(today[:4]) - 1}{today[4:]}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One part: its figures as facts, and its price where one is known."""

    kind: Kind
    name: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    price: Price | None = None

    def number(self, parameter: str) -> float | None:
        """A figure of it, None where nobody knows."""
        fact = self.facts.get(parameter)
        return None if fact is None else fact.number

    def text(self, parameter: str) -> str | None:
        """What is written about it, None where nobody knows."""
        fact = self.facts.get(parameter)
        return None if fact is None else fact.text


Prices = Mapping[str, Price]
"""Prices of one's own, by the name of the part."""


def letters(name: str) -> str:
    """A name's letters and figures, whatever its case, spaces and dashes."""
    return "".join(character for character in name.lower() if character.isalnum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Every part that is known, with the prices in force."""

    parts: Sequence[Part]
    own_prices: Mapping[str, Price] = field(default_factory=dict)
    """Prices of one's own, by the letters of the part's whole name."""
    today: str = ""
    """What is older than a year by this day is an old price; empty: none is."""
    used: bool = False
    """Whether prices of used cards come first."""
    unknown_names: Sequence[str] = ()
    """Names with a price of one's own that no table has."""
    imported: ImportedPrices = NOTHING_IMPORTED
    """Prices of cards besides those of the table."""

    def of(self, kind: Kind) -> list[Part]:
        """The parts of a kind, cheapest first, those without a price last."""
        return sorted(
            (part for part in self.parts if part.kind == kind),
            key=lambda part: (part.price is None, part.price.usd if part.price else 0.0, part.name),
        )

    def find(self, kind: Kind, spelling: str) -> Part:
        """The part a spelling means: its whole name, or words of it that no other has."""
        matches = _matching(self.of(kind), spelling)
        if len(matches) == 1:
            return matches[0]
        noun = NOUNS[kind]
        if matches:
            names = ", ".join(f'"{part.name}"' for part in matches[:5])
            raise InputError(
                f"{spelling!r} may be any of {len(matches)} parts: {names}.",
                fix=f"Write more of the {noun}'s name; `outlay build --list {kind}` has all.",
            )
        raise NotKnown(
            noun,
            spelling,
            _short_names(self.of(kind)),
            fix=f"`outlay build --list {kind}` lists those that are; "
            f"any other can be given by its figures in a file ({_FIGURES[kind]}).",
        )

    def is_overtaken(self, part: Part) -> bool:
        """Whether its price is old, and a newer one of no larger a part of its like is above it.

        Of memory and drives alone, which are sold by the GB: other parts differ in more than size.
        """
        price, size = part.price, part.number("size")
        if price is None or size is None or not price.is_old(self.today):
            return False
        return any(
            other.price.usd > price.usd
            for other in self.parts
            if other.kind == part.kind and other.price and not other.price.is_old(self.today)
            if other.text("memory_type") == part.text("memory_type")
            if (other.number("size") or size) <= size
        )

    def price_of(self, name: str, otherwise: Price | None) -> Price | None:
        """The user's own price of a name, or else the one given."""
        return self.own_prices.get(letters(name), otherwise)


_FIGURES: dict[Kind, str] = {
    "card": 'gpu = {name = "RTX 3090", slots = 3, length_mm = 320}',
    "cpu": "cpu = {threads = 16, lanes = 16, watts = 125}",
    "cooler": "cooler = {watts = 150}",
    "board": 'board = {slots = "1:x8 4:x8", socket = "LGA1200"}',
    "memory": 'ram = {size = "64GB", type = "DDR4"}',
    "ssd": 'ssd = {size = "1TB"}',
    "hdd": 'hdd = {size = "4TB"}',
    "psu": "psu = {watts = 1600, eight_pin = 9}",
    "case": "case = {slots = 7, card_length_mm = 350}",
}
"""How each kind is described by its figures."""


def catalogue(
    own_prices: Prices | None = None,
    today: str = "",
    *,
    used: bool = False,
    imported: ImportedPrices = NOTHING_IMPORTED,
) -> Catalogue:
    """The bundled parts, with prices of one's own in place of the table's.

    `own_prices` go before all others; what was imported counts where it is the newest.
    """
    names = dict.fromkeys((*(own_prices or ()), *(price.part for price in imported.parts)))
    whole_names = {name: _whole_name(name) for name in names}
    own = {letters(whole_names[name] or name): price for name, price in (own_prices or {}).items()}
    seen = _imported_parts(imported.parts, whole_names)
    parts = [
        replace(part, price=own.get(letters(part.name)) or _newest(part.price, seen.get(part.name)))
        for part in bundled_parts()
    ]
    return Catalogue(
        parts=parts,
        own_prices=own,
        today=today,
        used=used,
        unknown_names=[name for name, whole in whole_names.items() if whole is None],
        imported=replace(imported, cards=(*imported.cards, *_cards_among(imported, whole_names))),
    )


def _imported_parts(
    prices: Iterable[PartPrice], whole_names: Mapping[str, str | None]
) -> dict[str, Price | None]:
    """The newest imported price of each part, by its name in the table."""
    newest: dict[str, Price | None] = {}
    for price in prices:
        name = whole_names[price.part]
        if name is not None:
            newest[name] = _newest(newest.get(name), price_in(price.fact))
    return newest


def _cards_among(
    imported: ImportedPrices, whole_names: Mapping[str, str | None]
) -> Iterator[CardPrice]:
    """Prices of parts that are cards, named for their GPU: of new ones."""
    parts = {part.name for part in bundled_parts()}
    for price in imported.parts:
        name = whole_names[price.part]
        if name is not None and name not in parts:
            yield CardPrice(gpu=name, condition="new", fact=price.fact)


def _newest(price: Price | None, other: Price | None) -> Price | None:
    """The newer of two prices; of one day, the other."""
    if price is None or other is None:
        return price or other
    return other if other.as_of >= price.as_of else price


def _whole_name(name: str) -> str | None:
    """The name in the tables that a name in a price list means."""
    matches = _matching(bundled_parts(), name)
    if len(matches) == 1:
        return matches[0].name
    try:
        return find_gpu(name).gpu.name
    except NotKnown:
        return None


@cache
def bundled_parts() -> tuple[Part, ...]:
    """Every part of `data/parts.csv`."""
    facts: dict[tuple[str, str], dict[str, Fact]] = {}
    for row in rows_of("parts.csv"):
        facts.setdefault((row["kind"], row["part"]), {})[row["parameter"]] = fact_of(row)
    return tuple(
        Part(kind=kind, name=name, facts=own, price=price_in(own.get("price")))  # type: ignore[arg-type]
        for (kind, name), own in facts.items()
    )


def price_in(fact: Fact | None, note: str = "") -> Price | None:
    """A fact that is a price, in dollars; None where it is unknown."""
    amount = None if fact is None else fact.number
    if fact is None or amount is None:
        return None
    rate, day = usd_per_unit(fact.unit)
    original = f"{amount:,.0f} {fact.unit} at the rate of {day}" if day else ""
    return Price(
        usd=amount * rate,
        source=fact.source,
        as_of=fact.as_of,
        note=", ".join(filter(None, (note, original))),
    )


def _matching(parts: Iterable[Part], spelling: str) -> list[Part]:
    """Parts of that very name, else those whose names have all its words."""
    parts = list(parts)
    exact = [part for part in parts if letters(part.name) == letters(spelling)]
    if exact:
        return exact
    words = _words(spelling)
    return [part for part in parts if words and words <= _words(part.name)]


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.lower()))


def _short_names(parts: Iterable[Part]) -> list[str]:
    """Names as people type them: whole, and from the first word with a figure on."""
    names: list[str] = []
    for part in parts:
        words = part.name.split()
        first = next((at for at, word in enumerate(words) if re.search(r"\d", word)), 0)
        names += [" ".join(words[first:]), part.name]
    return names


# --- prices of cards, and the user's own price list ---

_COLUMNS = ("part", "price", "currency", "as_of")
_OPTIONAL = ("source",)


def card_price(
    gpu: Gpu,
    today: str = "",
    *,
    used: bool = False,
    imported: ImportedPrices = NOTHING_IMPORTED,
) -> Price | None:
    """What a card with this GPU costs: the newest price of a new one, or of a used one.

    A price of a new card that is older than a year stands back for a newer one of a used card;
    with `used`, used cards come first. None where nobody knows.
    """
    order = ("used", "new") if used else ("new", "used")
    newest = (_newest_price(gpu, condition, imported) for condition in order)
    prices = [price for price in newest if price is not None]
    return next((price for price in prices if not price.is_old(today)), next(iter(prices), None))


def _newest_price(gpu: Gpu, condition: str, imported: ImportedPrices) -> Price | None:
    """The latest price of a card in a condition, from either table or what was imported."""
    facts = [*_facts_by_card(imported).get((gpu.name, condition), ())]
    facts += [fact for fact in (gpu.facts.get(f"typical_price_{condition}"),) if fact]
    prices = [price_in(fact, "used" if condition == "used" else "") for fact in facts]
    return max((price for price in prices if price), key=lambda price: price.as_of, default=None)


@cache
def _facts_by_card(imported: ImportedPrices) -> dict[tuple[str, str], list[Fact]]:
    """Prices by GPU and condition; of one day an imported one goes before a bundled one."""
    facts: dict[tuple[str, str], list[Fact]] = {}
    for price in (*imported.cards, *card_prices()):
        facts.setdefault((price.gpu, price.condition), []).append(price.fact)
    return facts


def read_prices(path: Path) -> dict[str, Price]:
    """A price list by the names in it; the first line that cannot be read is an error."""
    usual = "Give the path of a CSV file with the columns part,price,currency,as_of."
    text = text_of_file(path, "price list", absent=usual)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise InputError(
            f"The price list {name_of(path)} cannot be read.", why=f"As CSV: {error}.", fix=usual
        ) from error
    head = _price_list_head(path, rows)
    prices: dict[str, Price] = {}
    for line, row in enumerate(rows[1:], 2):
        if row:
            name, price = _price_list_row(f"{path}, line {line}", head, row)
            if letters(name) in map(letters, prices):
                raise InputError(
                    f"{path}, line {line}: {name!r} stands there twice.", fix="Remove one."
                )
            prices[name] = price
    return prices


def _price_list_head(path: Path, rows: list[list[str]]) -> list[str]:
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


def _price_list_row(where: str, head: list[str], row: list[str]) -> tuple[str, Price]:
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


# --- graphics cards ---

CARD_FORM = "PCIe"
"""The form of a GPU that goes into a desktop's slot."""
REFERENCE = "Founders Edition"
"""What the maker's own board is called."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Card:
    """A graphics card: a GPU, and the named board that carries it where that is known."""

    gpu: Gpu
    part: Part
    """Its own figures; of a card that is named for its GPU alone, the reference board's count."""

    @property
    def name(self) -> str:
        """As it is sold."""
        return self.part.name

    @property
    def price(self) -> Price | None:
        """Of one piece."""
        return self.part.price

    @property
    def memory_bytes(self) -> int:
        """Of all devices on it."""
        return self.gpu.memory_bytes * self.gpu.devices_per_board

    @property
    def shipped_w(self) -> float:
        """What it may draw as shipped."""
        return self.part.number("power_max") or self.gpu.board_tdp_w

    @property
    def slot_pitches(self) -> float | None:
        """How many slots wide it is."""
        own = self.part.number("slot_width")
        return own or (self.gpu.facts["slot_width"].number if self._is_reference else None)

    @property
    def length_mm(self) -> float | None:
        """From the bracket to its end."""
        return self.part.number("length")

    @property
    def cooling(self) -> str | None:
        """`open`, `blower`, `water`, `passive`; None where nobody knows."""
        own = self.part.text("cooling")
        return own or (self.gpu.facts["cooling"].text if self._is_reference else None)

    @property
    def connectors(self) -> str | None:
        """`2x 8-pin`, `1x 16-pin`, `none`; None where nobody knows."""
        own = self.part.text("power_connectors")
        return own or (self.gpu.facts["power_connectors"].text if self._is_reference else None)

    @property
    def _is_reference(self) -> bool:
        """Whether the GPU's own rows describe it: those are of the maker's board."""
        return self.name == self.gpu.name or REFERENCE in self.name


def card_of(catalogue: Catalogue, name: str) -> Card:
    """The card a name means."""
    try:
        match = find_gpu(name)
    except NotKnown as not_a_gpu:
        return _named_card(catalogue, name, not_a_gpu)
    gpu = next((gpu for gpu in match.candidates if gpu.form == CARD_FORM), None)
    if gpu is None or " MIG " in gpu.name:
        raise InputError(
            f"{match.gpu.name} is no card for a workstation.",
            why=f"It comes as {match.gpu.form}, in machines made for it.",
            fix="`outlay gpus` lists the forms; take one of form PCIe.",
        )
    facts = _reference_facts(catalogue, gpu)
    return Card(
        gpu=gpu,
        part=Part(kind="card", name=gpu.name, facts=facts, price=_price_of_gpu(catalogue, gpu)),
    )


def _named_card(catalogue: Catalogue, name: str, not_a_gpu: NotKnown) -> Card:
    try:
        part = catalogue.find("card", name)
    except NotKnown:
        raise not_a_gpu from None
    gpu = find_gpu(part.text("gpu") or "").gpu
    return Card(gpu=gpu, part=replace(part, price=part.price or _price_of_gpu(catalogue, gpu)))


def _price_of_gpu(catalogue: Catalogue, gpu: Gpu) -> Price | None:
    """The user's own price of a card with this GPU, or the table's."""
    today, imported = catalogue.today, catalogue.imported
    price = card_price(gpu, today, used=catalogue.used, imported=imported)
    return catalogue.price_of(gpu.name, price)


def _reference_facts(catalogue: Catalogue, gpu: Gpu) -> Mapping[str, Fact]:
    """The figures of the maker's own card with a GPU, where the table has it."""
    for part in catalogue.parts:
        if part.kind == "card" and REFERENCE in part.name and part.text("gpu") == gpu.name:
            return {name: fact for name, fact in part.facts.items() if name != "price"}
    return {}
