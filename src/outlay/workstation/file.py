"""A machine described in a TOML file: parts by name or by their figures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from outlay.currency import in_usd
from outlay.errors import InputError, NotKnown
from outlay.facts import Fact
from outlay.units import GB, size_bytes
from outlay.workload.schema import Count, Day, Money, Name
from outlay.workload.toml import Kind as FileKind
from outlay.workload.toml import read_model
from outlay.workstation.machine import Build, slots_in
from outlay.workstation.parts import NOUNS, Card, Catalogue, Kind, Part, Price, card_of

# The tables of a machine file as pydantic models: what may be written, and its bounds.


Watts = Annotated[float, Field(strict=True, gt=0, le=20_000)]
Millimetres = Annotated[float, Field(strict=True, gt=0, le=2_000)]
Few = Annotated[int, Field(strict=True, ge=0, le=64)]


def _as_gb(value: object) -> float:
    """GB of a drive or of memory; memory is sold in GB of 2^30, which is left as it is written."""
    if not isinstance(value, str):
        raise ValueError('a size needs a unit in quotes, for example "64GB" or "1TB"')
    try:
        amount = size_bytes(value.replace("iB", "B")) / GB
    except InputError as error:
        raise ValueError(f"{error.why} {error.fix}") from None
    if not 0 < amount <= 1e6:
        raise ValueError("it must be above zero and at most a petabyte")
    return amount


def _as_slots(value: object) -> str:
    slots_in(str(value))
    return str(value)


Gigabytes = Annotated[float, BeforeValidator(_as_gb, json_schema_input_type=str)]
Slots = Annotated[str, BeforeValidator(_as_slots, json_schema_input_type=str)]


def _as_table(value: object, key: str = "name") -> object:
    """A bare name as the table that holds it."""
    return {key: value} if isinstance(value, str) else value


_SIZE = re.compile(r"[0-9][0-9.,_]*\s*[GTM]i?B", re.IGNORECASE)
_WATTS = re.compile(r"([0-9]+)\s*W", re.IGNORECASE)


def is_size(value: object) -> bool:
    """Whether a text is a size such as `64GB` rather than a name."""
    return isinstance(value, str) and _SIZE.fullmatch(value.strip()) is not None


def watts_in(value: object) -> float | None:
    """The watts of a text such as `1600W`; None where it is something else."""
    match = _WATTS.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if match is None else float(match[1])


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


class PartTable(BaseModel):
    """A part: its name where it is known, figures where it is not or where they differ."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name | None = None
    price: Money | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return _as_table(value)


class CardTable(PartTable):
    """A graphics card."""

    slots: Annotated[float, Field(strict=True, gt=0, le=6)] | None = None
    length_mm: Millimetres | None = None
    cooling: Name | None = Field(None, description="open, blower, water or passive.")
    connectors: Name | None = Field(None, description="2x 8-pin, 1x 16-pin, none.")
    watts: Watts | None = None


class CpuTable(PartTable):
    """The CPU."""

    threads: Count | None = None
    lanes: Few | None = None
    watts: Watts | None = None
    socket: Name | None = None
    memory_type: Name | None = None
    memory_max_gb: Count | None = None


class CoolerTable(PartTable):
    """The CPU's cooler."""

    watts: Watts | None = None


class BoardTable(PartTable):
    """The board."""

    socket: Name | None = None
    slots: Slots | None = Field(None, description="Position and lanes of each: 1:x8 4:x8.")
    form: Name | None = None
    memory_type: Name | None = None
    memory_slots: Few | None = None
    memory_max_gb: Count | None = None
    m2_slots: Few | None = None


class MemoryTable(PartTable):
    """The memory; a bare size such as "64GB" will do."""

    size: Gigabytes | None = None
    type: Name | None = None
    modules: Few | None = None
    kits: Annotated[int, Field(strict=True, ge=1, le=16)] = 1

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return _as_table(value, "size" if is_size(value) else "name")


class DriveTable(PartTable):
    """An SSD or a hard disk; a bare size such as "1TB" will do."""

    size: Gigabytes | None = None
    interface: Name | None = None
    read_mb_per_s: Watts | None = None

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        return _as_table(value, "size" if is_size(value) else "name")


class SupplyTable(PartTable):
    """The power supply; bare watts such as "1600W" will do."""

    watts: Watts | None = None
    eight_pin: Few | None = None
    sixteen_pin: Few | None = None
    efficiency: Name | None = Field(None, description="Gold, Platinum, Titanium ...")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        watts = watts_in(value)
        return _as_table(value) if watts is None else {"watts": watts}


class CaseTable(PartTable):
    """The case."""

    slots: Few | None = None
    card_length_mm: Millimetres | None = None
    form: Name | None = None


class WorkstationTable(BaseModel):
    """A workstation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name = "this machine"
    gpu: Annotated[tuple[CardTable, ...], BeforeValidator(_as_list)] = Field(min_length=1)
    gpus: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    power_limit_watts: Watts | None = None
    cpu: CpuTable | None = None
    cooler: CoolerTable | None = None
    board: BoardTable | None = None
    ram: MemoryTable | None = None
    ssd: Annotated[tuple[DriveTable, ...], BeforeValidator(_as_list)] = ()
    hdd: Annotated[tuple[DriveTable, ...], BeforeValidator(_as_list)] = ()
    psu: SupplyTable | None = None
    case: CaseTable | None = None
    price: Money | None = Field(None, description="Of the whole machine.")
    currency: Name = "USD"
    currency_day: Day | None = Field(
        None, description="Day of the exchange rate; without it the newest known."
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if len(self.gpu) > 1 and self.gpus not in (1, len(self.gpu)):
            raise ValueError("gpus and the list of gpu do not agree; leave gpus out")
        return self


class WorkstationFile(BaseModel):
    """A machine file: one table, [machine]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: WorkstationTable


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
class MachineDescription:
    """A machine as a file describes it, and what to know about the description."""

    build: Build
    currency: str
    currency_day: str | None
    notes: tuple[str, ...]


def read_machine(path: Path, catalogue: Catalogue) -> MachineDescription:
    """The machine in a TOML file."""
    machine = read_model(path, WorkstationFile, KIND).machine
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
    return MachineDescription(
        build=build,
        currency=machine.currency.upper(),
        currency_day=machine.currency_day,
        notes=tuple(notes),
    )


def _cards(machine: WorkstationTable, catalogue: Catalogue, usd: float) -> tuple[Card, ...]:
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
