"""Parts a workstation is made of, as `data/parts.csv` knows them, and prices from price lists.

A part somebody describes by its figures is a `Part`, too: its facts come from that description.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, get_args

from outlay.currency import in_usd
from outlay.errors import InputError, NotKnown
from outlay.facts import Fact, fact_of, rows_of
from outlay.gpu_names import find_gpu

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
    strangers: Sequence[str] = ()
    """Names with a price of one's own that no table has."""

    def of(self, kind: Kind) -> list[Part]:
        """The parts of a kind, cheapest first, those without a price last."""
        return sorted(
            (part for part in self.parts if part.kind == kind),
            key=lambda part: (part.price is None, part.price.usd if part.price else 0.0, part.name),
        )

    def find(self, kind: Kind, spelling: str) -> Part:
        """The part a spelling means: its whole name, or words of it that no other has."""
        found = _matching(self.of(kind), spelling)
        if len(found) == 1:
            return found[0]
        noun = NOUNS[kind]
        if found:
            names = ", ".join(f'"{part.name}"' for part in found[:5])
            raise InputError(
                f"{spelling!r} may be any of {len(found)} parts: {names}.",
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
    own_prices: Prices | None = None, today: str = "", *, used: bool = False
) -> Catalogue:
    """The bundled parts, with prices of one's own in place of the table's."""
    meant = {name: _whole_name(name) for name in own_prices or {}}
    own = {letters(meant[name] or name): price for name, price in (own_prices or {}).items()}
    parts = [
        replace(part, price=own.get(letters(part.name), part.price)) for part in bundled_parts()
    ]
    return Catalogue(
        parts=parts,
        own_prices=own,
        today=today,
        used=used,
        strangers=[name for name in meant if meant[name] is None],
    )


def _whole_name(name: str) -> str | None:
    """The name in the tables that a name in a price list means."""
    found = _matching(bundled_parts(), name)
    if len(found) == 1:
        return found[0].name
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
        Part(kind=kind, name=name, facts=of_part, price=price_in(of_part.get("price")))  # type: ignore[arg-type]
        for (kind, name), of_part in facts.items()
    )


def price_in(fact: Fact | None, note: str = "") -> Price | None:
    """A fact that is a price, in dollars; None where it is unknown."""
    amount = None if fact is None else fact.number
    if fact is None or amount is None:
        return None
    own = "" if fact.unit == "USD" else f"{amount:,.0f} {fact.unit}"
    return Price(
        usd=amount * in_usd(fact.unit),
        source=fact.source,
        as_of=fact.as_of,
        note=", ".join(filter(None, (note, own))),
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
