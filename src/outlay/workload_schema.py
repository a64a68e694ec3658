"""The tables of a workload file as pydantic models: what may be written, and its bounds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from outlay.errors import InputError
from outlay.units import YEAR_S, duration_s, size_bytes

_LONGEST_S = 100 * YEAR_S
_LARGEST_BYTES = 10**18


def _as_duration(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError('a duration needs a unit in quotes, for example "35m", "6h" or "14d"')
    return _within(_read(duration_s, value), _LONGEST_S, "a hundred years")


def _as_size(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError('a size needs a unit in quotes, for example "13.8GB" or "600MB"')
    return int(_within(_read(size_bytes, value), _LARGEST_BYTES, "an exabyte"))


def _read(reader: Callable[[str], float], text: str) -> float:
    """The quantity in a text; what is wrong with it becomes part of the message about its key."""
    try:
        return reader(text)
    except InputError as error:
        raise ValueError(f"{error.why} {error.fix}") from None


def _within(amount: float, most: float, name: str) -> float:
    if not 0 < amount <= most:
        raise ValueError(f"it must be above zero and at most {name}")
    return amount


def _as_date(value: object) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise ValueError("it is not a date such as 2026-11-01") from None


Duration = Annotated[
    float,
    BeforeValidator(_as_duration, json_schema_input_type=str),
    Field(description='A duration such as "35m", "1h30m" or "14d".'),
]
Size = Annotated[
    int,
    BeforeValidator(_as_size, json_schema_input_type=str),
    Field(description='A size such as "13.8GB" (10^9) or "512MiB" (2^20).'),
]
Day = Annotated[str, BeforeValidator(_as_date, json_schema_input_type=str)]
Money = Annotated[float, Field(strict=True, gt=0, le=1e9)]
MoneyOrZero = Annotated[float, Field(strict=True, ge=0, le=1e9)]
HourlyPrice = Annotated[float, Field(strict=True, gt=0, le=1e7)]
Rate = Annotated[float, Field(strict=True, ge=0, le=1e6)]
Count = Annotated[int, Field(strict=True, ge=1, le=100_000)]
Amount = Annotated[float, Field(strict=True, gt=0, le=1e15)]
Name = Annotated[str, Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class StepTable(_Table):
    """The training step: exactly one of `profile` and `target`."""

    profile: Name | None = Field(None, description="A bundled profile or the path of a saved one.")
    target: Name | None = Field(None, description="path/to/file.py:function (needs torch).")
    batch_size: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | Literal["max"] = Field(
        "max", description="Samples per GPU and step, or max: the largest that fits."
    )
    precision: Literal["as traced", "fp32", "tf32", "fp16", "bf16"] = "as traced"
    global_batch_size: Annotated[int, Field(strict=True, ge=1, le=10**9)] | None = Field(
        None,
        description="Samples of one update over all GPUs, kept on every machine (in several passes "
        "where they do not fit); without it the batch grows with the GPUs.",
    )
    strategy: Name | None = Field(
        None,
        description="How several GPUs share the step: auto, ddp, zero1, zero2, fsdp, hybrid, and "
        "tensor=N or pipeline=N, joined by commas.",
    )

    @model_validator(mode="after")
    def _one_step(self) -> Self:
        if (self.profile is None) == (self.target is None):
            raise ValueError("give exactly one of profile and target")
        return self


class LengthTable(_Table):
    """How long to train: exactly one of samples, epochs, iterations and time."""

    samples: Amount | None = None
    epochs: Annotated[float, Field(strict=True, gt=0, le=1e9)] | None = Field(
        None, description="Passes over the dataset; needs data.samples."
    )
    iterations: Annotated[int, Field(strict=True, ge=1, le=10**12)] | None = None
    global_batch_size: Annotated[int, Field(strict=True, ge=1, le=10**9)] | None = Field(
        None, description="The batch the iterations refer to; without it each machine's own."
    )
    time: Duration | None = Field(None, description="Train for this long, whatever gets done.")

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        given = [self.samples, self.epochs, self.iterations, self.time]
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of samples, epochs, iterations and time")
        if self.global_batch_size is not None and self.iterations is None:
            raise ValueError("global_batch_size goes with iterations")
        return self


class DataTable(_Table):
    """The dataset."""

    samples: Annotated[int, Field(strict=True, ge=1, le=10**13)] | None = None
    size: Size | None = Field(None, description="On disk; or give samples and sample_size.")
    sample_size: Size | None = None
    preparation: Duration | None = Field(
        None, description="Time to prepare it on the machine, billed like training."
    )
    prepared: Literal["each session", "once"] = "each session"
    at: Name = Field("internet", description="Where it lies: home, internet, or a provider.")
    kept_at: Name = Field("run", description="Where it is kept meanwhile: run, or a provider.")
    storage: Literal["volume", "object", "none"] = "volume"

    @model_validator(mode="after")
    def _of_one_piece(self) -> Self:
        if self.sample_size is not None and self.samples is None:
            raise ValueError("sample_size needs samples: how many there are")
        if (self.samples or 0) * (self.sample_size or 0) > _LARGEST_BYTES:
            raise ValueError("samples times sample_size is more than an exabyte")
        return self


class StoredTable(_Table):
    """Something kept by the GB-month besides the dataset, such as container images."""

    name: Name
    size: Size
    at: Name = "run"
    kind: Literal["volume", "object", "registry"] = "volume"
    pulled: Size | None = Field(None, description="Pulled by each machine in each session.")


class CheckpointTable(_Table):
    """Checkpoints."""

    size: Size | None = None
    interval: Duration | None = None
    kept: Count = 1


class UsageTable(_Table):
    """One run (nothing given), or sessions a month, or hours a day."""

    sessions_per_month: Annotated[float, Field(strict=True, gt=0, le=10_000)] | None = None
    hours_per_day: Annotated[float, Field(strict=True, gt=0, le=24)] | None = None
    machines: Count | tuple[Count, ...] = Field(
        1, description="Machines that train together, or a list of numbers to try."
    )
    setup: Duration | None = Field(None, description="Environment set-up in each session.")
    keep_data: Duration | None = Field(None, description="How long data is kept and paid for.")

    @model_validator(mode="after")
    def _one_pattern(self) -> Self:
        if self.sessions_per_month is not None and self.hours_per_day is not None:
            raise ValueError("give sessions_per_month or hours_per_day, not both")
        return self


class LimitsTable(_Table):
    """Limits every option must satisfy."""

    budget: Money | None = None
    deadline: Duration | None = None


class SelectionTable(_Table):
    """Names to consider, or to leave out."""

    gpus: tuple[Name, ...] = ()
    providers: tuple[Name, ...] = ()
    regions: tuple[Name, ...] = ()
    instances: tuple[Name, ...] = ()
    tenancies: tuple[Literal["on-demand", "spot", "reserved", "owned"], ...] = ()


class ConsiderTable(SelectionTable):
    """Names to consider; an empty list means all."""

    max_gpus: Count | None = Field(None, description="GPUs in one machine at most.")
    bundled: bool = Field(True, description="Whether bundled offers rank beside your own.")


class OfferTable(_Table):
    """A quote of your own, in your currency."""

    provider: Name
    gpu: Name
    gpus: Count = 1
    instance: Name | None = None
    price_per_hour: HourlyPrice | None = Field(None, description="The whole machine, on demand.")
    spot_per_hour: HourlyPrice | None = None
    region: Name = "any"
    vcpus: Amount | None = None
    ram: Size | None = None
    local_disk: Size | None = None
    network_gbit: Amount | None = Field(
        None, description="Gbit/s of the machine, between several of them."
    )
    as_of: Day | None = None
    note: str = ""


class MachineTable(_Table):
    """A machine of your own; with `purchase`, one to be bought."""

    name: Name
    gpu: Name | tuple[Name, ...] = Field(description="One name, or a list where its GPUs differ.")
    gpus: Count = 1
    power_limit_watts: Annotated[float, Field(strict=True, gt=0, le=5000)] | None = Field(
        None, description="What each GPU is held to (nvidia-smi -pl)."
    )
    vcpus: Amount | None = None
    ram: Size | None = None
    network_gbit: Amount | None = Field(
        None, description="Gbit/s of the machine, between several of them."
    )
    host_watts: Annotated[float, Field(strict=True, ge=0, le=20_000)] | None = None
    electricity_per_kwh: Annotated[float, Field(strict=True, ge=0, le=1e5)] | None = None
    purchase: Money | None = None
    resale: MoneyOrZero = 0.0
    use: Duration | None = Field(
        None, description="Hours it will be used before it is sold; needed with purchase."
    )
    wear_per_hour: MoneyOrZero = 0.0
    pue: Annotated[float, Field(strict=True, ge=1, le=3)] = 1.0

    @model_validator(mode="after")
    def _bought(self) -> Self:
        if isinstance(self.gpu, tuple) and not self.gpu:
            raise ValueError("gpu is an empty list")
        if isinstance(self.gpu, tuple) and self.gpus not in (1, len(self.gpu)):
            raise ValueError("gpus and the list of gpu do not agree; leave gpus out")
        if self.purchase is not None and self.use is None:
            raise ValueError("a machine to be bought needs use: the hours it will be used")
        if self.purchase is not None and self.resale > self.purchase:
            raise ValueError("resale is above purchase")
        return self


class ProviderTable(_Table):
    """What you pay a provider where it differs from the table, in your currency."""

    name: Name
    billing_step: Duration | None = None
    billing_minimum: Duration | None = None
    volume_per_gb_month: Rate | None = None
    object_per_gb_month: Rate | None = None
    registry_per_gb_month: Rate | None = None
    egress_per_gb: Rate | None = None
    egress_free_gb_per_month: Rate | None = None


class WorkloadFile(_Table):
    """An outlay workload file: what to train, for how long, on what data, within which limits."""

    name: Name = "training run"
    currency: Name = Field("USD", description="Currency of every amount in this file.")
    step: StepTable
    length: LengthTable
    data: DataTable = DataTable()
    checkpoint: CheckpointTable = CheckpointTable()
    usage: UsageTable = UsageTable()
    limits: LimitsTable = LimitsTable()
    consider: ConsiderTable = ConsiderTable()
    leave_out: SelectionTable = SelectionTable()
    stored: tuple[StoredTable, ...] = ()
    offer: tuple[OfferTable, ...] = ()
    machine: tuple[MachineTable, ...] = ()
    provider: tuple[ProviderTable, ...] = ()

    @model_validator(mode="after")
    def _epochs_need_a_dataset(self) -> Self:
        if self.length.epochs is not None and self.data.samples is None:
            raise ValueError("length.epochs needs data.samples: how many samples an epoch has")
        return self
