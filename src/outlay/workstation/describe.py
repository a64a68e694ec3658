"""A machine described in a TOML file: parts by name or by their figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.currency import in_usd
from outlay.errors import InputError, NotKnown
from outlay.facts import Fact
from outlay.toml_text import Kind as FileKind
from outlay.toml_text import read_model
from outlay.workstation.card import Card, card_of
from outlay.workstation.describe_schema import (
    BoardTable,
    CardTable,
    CaseTable,
    CoolerTable,
    CpuTable,
    DescribedFile,
    DescribedMachine,
    DriveTable,
    MemoryTable,
    PartTable,
    SupplyTable,
)
from outlay.workstation.machine import Build
from outlay.workstation.parts import NOUNS, Catalogue, Kind, Part, Price

SOURCE = "your file"

_PARAMETERS: dict[type[PartTable], dict[str, tuple[str, str]]] = {
    CpuTable: {
        "threads": ("threads", "count"),
        "lanes": ("pcie_lanes", "count"),
        "watts": ("power_max", "W"),
        "socket": ("socket", "text"),
        "memory_type": ("memory_type", "text"),
        "memory_max_gb": ("memory_max", "GB"),
    },
    CoolerTable: {"watts": ("rated_power", "W")},
    BoardTable: {
        "socket": ("socket", "text"),
        "slots": ("slots", "text"),
        "form": ("form", "text"),
        "memory_type": ("memory_type", "text"),
        "memory_slots": ("memory_slots", "count"),
        "memory_max_gb": ("memory_max", "GB"),
        "m2_slots": ("m2_slots", "count"),
    },
    MemoryTable: {
        "size": ("size", "GB"),
        "type": ("memory_type", "text"),
        "modules": ("modules", "count"),
    },
    DriveTable: {
        "size": ("size", "GB"),
        "interface": ("interface", "text"),
        "read_mb_per_s": ("read_bandwidth", "MB/s"),
    },
    SupplyTable: {
        "watts": ("power", "W"),
        "eight_pin": ("pcie_8pin", "count"),
        "sixteen_pin": ("pcie_16pin", "count"),
        "efficiency": ("efficiency", "text"),
    },
    CaseTable: {
        "slots": ("expansion_slots", "count"),
        "card_length_mm": ("gpu_length_max", "mm"),
        "form": ("form", "text"),
    },
    CardTable: {
        "slots": ("slot_width", "slots"),
        "length_mm": ("length", "mm"),
        "cooling": ("cooling", "text"),
        "connectors": ("power_connectors", "text"),
        "watts": ("power_max", "W"),
    },
}
"""For each table: its keys, and the parameter and unit each one is a fact of."""


KIND = FileKind(
    noun="machine file",
    absent="Give the path of yours; `outlay build --help` says what it holds.",
    missing="`outlay build --help` shows one.",
    table="it should be a name in quotes, or figures in braces: {{watts = 1600}}",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A machine as a file describes it, and what to know about the description."""

    build: Build
    currency: str
    currency_day: str | None
    notes: tuple[str, ...]


def read_machine(path: Path, catalogue: Catalogue) -> Described:
    """The machine in a TOML file."""
    machine = read_model(path, DescribedFile, KIND).machine
    notes: list[str] = []
    usd = in_usd(machine.currency, machine.currency_day)

    def part(kind: Kind, table: PartTable | None) -> Part | None:
        return None if table is None else _part(kind, table, catalogue, usd, notes)

    def drives(kind: Kind, tables: tuple[DriveTable, ...]) -> tuple[Part, ...]:
        return tuple(_part(kind, table, catalogue, usd, notes) for table in tables)

    build = Build(
        name=machine.name,
        cards=_cards(machine, catalogue, usd),
        cpu=part("cpu", machine.cpu),
        cooler=part("cooler", machine.cooler),
        board=part("board", machine.board),
        memory=part("memory", machine.ram),
        kits=machine.ram.kits if machine.ram else 1,
        ssds=drives("ssd", machine.ssd),
        hdds=drives("hdd", machine.hdd),
        psu=part("psu", machine.psu),
        case=part("case", machine.case),
        power_limit_w=machine.power_limit_watts,
        paid_usd=None if machine.price is None else machine.price * usd,
    )
    return Described(
        build=build,
        currency=machine.currency.upper(),
        currency_day=machine.currency_day,
        notes=tuple(notes),
    )


def _cards(machine: DescribedMachine, catalogue: Catalogue, usd: float) -> tuple[Card, ...]:
    cards: list[Card] = []
    for table in machine.gpu:
        if table.name is None:
            raise InputError(
                "A gpu of the machine has no name.",
                fix='Write gpu = {name = "RTX 3090", slots = 3}.',
            )
        card = card_of(catalogue, table.name)
        facts = {**card.part.facts, **_facts(table)}
        price = _price(table, usd) or card.part.price
        cards += [replace(card, part=replace(card.part, facts=facts, price=price))] * (
            machine.gpus if len(machine.gpu) == 1 else 1
        )
    return tuple(cards)


def _part(kind: Kind, table: PartTable, catalogue: Catalogue, usd: float, notes: list[str]) -> Part:
    """The known part of that name with the figures given, or one made of the figures alone."""
    facts = _facts(table)
    if table.name is None:
        known = Part(kind=kind, name=_described(kind, table))
    else:
        try:
            known = catalogue.find(kind, table.name)
        except NotKnown as error:
            known = Part(kind=kind, name=table.name, price=catalogue.price_of(table.name, None))
            if not facts:
                notes.append(
                    f"{error.what} {error.why} Rules on it are not checked.".replace("  ", " ")
                )
    price = _price(table, usd) or known.price
    return replace(known, facts={**known.facts, **facts}, price=price)


def _described(kind: Kind, table: PartTable) -> str:
    """A name for a part that has none: what it is, and its first figure."""
    figures = [
        f"{fact.text} {fact.unit}" if fact.unit not in ("text", "count") else str(fact.text)
        for fact in _facts(table).values()
    ]
    return f"{NOUNS[kind]}, {figures[0]}" if figures else NOUNS[kind]


def _facts(table: PartTable) -> Mapping[str, Fact]:
    names = _PARAMETERS[type(table)]
    given = table.model_dump(exclude_none=True)
    return {
        names[key][0]: Fact(
            text=f"{value:g}" if isinstance(value, float | int) else value,
            unit=names[key][1],
            source=SOURCE,
            as_of="",
        )
        for key, value in given.items()
        if key in names
    }


def _price(table: PartTable, usd: float) -> Price | None:
    if table.price is None:
        return None
    return Price(usd=table.price * usd, source=SOURCE, as_of="")
