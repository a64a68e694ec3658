"""The tables of a machine file as pydantic models: what may be written, and its bounds."""

from __future__ import annotations

import re
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from outlay.errors import InputError
from outlay.units import GB, size_bytes
from outlay.workload_values import Count, Day, Money, Name
from outlay.workstation.machine import slots_in

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


class DescribedMachine(BaseModel):
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


class DescribedFile(BaseModel):
    """A machine file: one table, [machine]."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: DescribedMachine
