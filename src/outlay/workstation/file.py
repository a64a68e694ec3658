"""A machine described in a TOML file: parts by name or by their figures.

One pydantic model for each part: its fields are the parameters of the part's facts, with their
units, and an alias is the key in the file where that is another word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from outlay.currency import in_usd
from outlay.errors import InputError, NotKnown
from outlay.facts import Fact
from outlay.units import GB, size_bytes
from outlay.workload.tables import Count, Day, Money, Name
from outlay.workload.toml import FileKind, read_model
from outlay.workstation.machine import Build, slots_in
from outlay.workstation.parts import NOUNS, Card, Catalogue, Kind, Part, Price, card_of

SOURCE = "your file"

# --- figures as people write them, and their bounds ---

_SIZE = re.compile(r"[0-9][0-9.,_]*\s*[GTM]i?B", re.IGNORECASE)
_WATTS = re.compile(r"([0-9]+)\s*W", re.IGNORECASE)


def is_size(text: str) -> bool:
    """Whether a text is a size such as `64GB` rather than a name."""
    return _SIZE.fullmatch(text.strip()) is not None


def watts_in(text: str) -> float | None:
    """The watts of a text such as `1600W`; None where it is something else."""
    match = _WATTS.fullmatch(text.strip())
    return None if match is None else float(match[1])


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


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a field that is a fact of the part."""

    name: str


_UpTo64 = Annotated[int, Field(strict=True, ge=0, le=64)]
_UpTo2000 = Annotated[float, Field(strict=True, gt=0, le=2_000)]
_UpTo20000 = Annotated[float, Field(strict=True, gt=0, le=20_000)]

Text = Annotated[Name | None, Unit("text")]
Threads = Annotated[Count | None, Unit("count")]
Few = Annotated[_UpTo64 | None, Unit("count")]
Watts = Annotated[_UpTo20000 | None, Unit("W")]
Megabytes = Annotated[_UpTo20000 | None, Unit("MB/s")]
Millimetres = Annotated[_UpTo2000 | None, Unit("mm")]
Pitches = Annotated[Annotated[float, Field(strict=True, gt=0, le=6)] | None, Unit("slots")]
WholeGigabytes = Annotated[Count | None, Unit("GB")]
Gigabytes = Annotated[Annotated[float, BeforeValidator(_as_gb)] | None, Unit("GB")]
Slots = Annotated[Annotated[str, BeforeValidator(_as_slots)] | None, Unit("text")]

# --- the tables ---


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PartTable(_Table):
    """A part: its name where it is known, figures where it is not or where they differ."""

    name: Name | None = None
    price: Money | None = None

    @model_validator(mode="before")
    @classmethod
    def _text_or_table(cls, value: Any) -> Any:
        return cls.table_of(value) if isinstance(value, str) else value

    @classmethod
    def table_of(cls, text: str) -> dict[str, Any]:
        """The table that a bare text stands for: its name."""
        return {"name": text}


class CardTable(PartTable):
    """A graphics card."""

    slot_width: Pitches = Field(None, alias="slots")
    length: Millimetres = Field(None, alias="length_mm")
    cooling: Text = Field(None, description="open, blower, water or passive.")
    power_connectors: Text = Field(
        None, alias="connectors", description="2x 8-pin, 1x 16-pin, none."
    )
    power_max: Watts = Field(None, alias="watts")


class CpuTable(PartTable):
    """The CPU."""

    threads: Threads = None
    pcie_lanes: Few = Field(None, alias="lanes")
    power_max: Watts = Field(None, alias="watts")
    socket: Text = None
    memory_type: Text = None
    memory_max: WholeGigabytes = Field(None, alias="memory_max_gb")


class CoolerTable(PartTable):
    """The CPU's cooler."""

    rated_power: Watts = Field(None, alias="watts")


class BoardTable(PartTable):
    """The board."""

    socket: Text = None
    slots: Slots = Field(None, description="Position and lanes of each: 1:x8 4:x8.")
    form: Text = None
    memory_type: Text = None
    memory_slots: Few = None
    memory_max: WholeGigabytes = Field(None, alias="memory_max_gb")
    m2_slots: Few = None


class _SizedTable(PartTable):
    """A part that is sold by its size; a bare size will do."""

    size: Gigabytes = None

    @classmethod
    def table_of(cls, text: str) -> dict[str, Any]:
        """Its size, or its name."""
        return {"size" if is_size(text) else "name": text}


class MemoryTable(_SizedTable):
    """The memory; a bare size such as "64GB" will do."""

    memory_type: Text = Field(None, alias="type")
    modules: Few = None
    kits: Annotated[int, Field(strict=True, ge=1, le=16)] = 1


class DriveTable(_SizedTable):
    """An SSD or a hard disk; a bare size such as "1TB" will do."""

    interface: Text = None
    read_bandwidth: Megabytes = Field(None, alias="read_mb_per_s")


class SupplyTable(PartTable):
    """The power supply; bare watts such as "1600W" will do."""

    power: Watts = Field(None, alias="watts")
    pcie_8pin: Few = Field(None, alias="eight_pin")
    pcie_16pin: Few = Field(None, alias="sixteen_pin")
    efficiency: Text = Field(None, description="Gold, Platinum, Titanium ...")

    @classmethod
    def table_of(cls, text: str) -> dict[str, Any]:
        """Its watts, or its name."""
        watts = watts_in(text)
        return {"name": text} if watts is None else {"watts": watts}


class CaseTable(PartTable):
    """The case."""

    expansion_slots: Few = Field(None, alias="slots")
    gpu_length_max: Millimetres = Field(None, alias="card_length_mm")
    form: Text = None


class WorkstationTable(_Table):
    """A workstation."""

    name: Name = "this machine"
    gpu: Annotated[tuple[CardTable, ...], BeforeValidator(_as_list)] = Field(min_length=1)
    gpus: Annotated[int, Field(strict=True, ge=1, le=16)] = 1
    power_limit_watts: _UpTo20000 | None = None
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
    def _gpus_agree(self) -> Self:
        if len(self.gpu) > 1 and self.gpus not in (1, len(self.gpu)):
            raise ValueError("gpus and the list of gpu do not agree; leave gpus out")
        return self


class WorkstationFile(_Table):
    """A machine file: one table, [machine]."""

    machine: WorkstationTable


# --- the machine ---

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

    def parts(kind: Kind, tables: Iterable[PartTable]) -> tuple[Part, ...]:
        return tuple(_part(kind, table, catalogue, usd, notes) for table in tables)

    def part(kind: Kind, table: PartTable | None) -> Part | None:
        return None if table is None else parts(kind, (table,))[0]

    build = Build(
        name=machine.name,
        cards=_cards(machine, catalogue, usd),
        cpu=part("cpu", machine.cpu),
        cooler=part("cooler", machine.cooler),
        board=part("board", machine.board),
        memory=part("memory", machine.ram),
        kits=machine.ram.kits if machine.ram else 1,
        ssds=parts("ssd", machine.ssd),
        hdds=parts("hdd", machine.hdd),
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
        part = Part(kind=kind, name=_name_of(kind, facts))
    else:
        try:
            part = catalogue.find(kind, table.name)
        except NotKnown as error:
            part = Part(kind=kind, name=table.name, price=catalogue.price_of(table.name, None))
            if not facts:
                notes.append(
                    f"{error.what} {error.why} Rules on it are not checked.".replace("  ", " ")
                )
    price = _price(table, usd) or part.price
    return replace(part, facts={**part.facts, **facts}, price=price)


def _name_of(kind: Kind, facts: Mapping[str, Fact]) -> str:
    """A name for a part that has none: what it is, and its first figure."""
    figures = [
        f"{fact.text} {fact.unit}" if fact.unit not in ("text", "count") else str(fact.text)
        for fact in facts.values()
    ]
    return f"{NOUNS[kind]}, {figures[0]}" if figures else NOUNS[kind]


def _facts(table: PartTable) -> Mapping[str, Fact]:
    """The figures that are given."""
    return {
        parameter: Fact(
            text=f"{value:g}" if isinstance(value, float | int) else value,
            unit=unit.name,
            source=SOURCE,
            as_of="",
        )
        for parameter, field in type(table).model_fields.items()
        for unit in field.metadata
        if isinstance(unit, Unit) and (value := getattr(table, parameter)) is not None
    }


def _price(table: PartTable, usd: float) -> Price | None:
    if table.price is None:
        return None
    return Price(usd=table.price * usd, source=SOURCE, as_of="")
