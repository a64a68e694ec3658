"""The tables of a workload file: what may be written, its bounds, and the dataclass it becomes.

First quantities as people write them (durations, sizes, ranges, days), then a pydantic model of
each table. A model's fields are those of its dataclass in `workload.workload`, and the key in the
file is a field's name without its unit, or its alias: a new key is a field there and a field here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from outlay.errors import InputError, NotKnown
from outlay.facts import assumptions, rows_of
from outlay.uncertainty import Estimate, Uncertain
from outlay.units import MB, YEAR_S, duration_s, size_bytes
from outlay.workload.workload import (
    WITH_THE_RUN,
    Cadence,
    Checkpoint,
    Dataset,
    Evaluation,
    Feed,
    Length,
    Limits,
    OwnTime,
    Pause,
    Preferences,
    Quote,
    RunHost,
    RunSettings,
    Selection,
    SkyPilotSettings,
    SlurmSettings,
    Step,
    StoredData,
    TermsOverride,
    Usage,
    WatchSettings,
    Workload,
    Workstation,
    WorthSwitching,
)

# --- quantities as people write them, and their bounds ---

_LONGEST_S = 100 * YEAR_S
_LARGEST_BYTES = 10**18
_HIGHEST_COUNT = 1e15


def _as_duration(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError('a duration needs a unit in quotes, for example "35m", "6h" or "14d"')
    return _bounded(_parse(duration_s, value), _LONGEST_S, "a hundred years")


def _as_size(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError('a size needs a unit in quotes, for example "13.8GB" or "600MB"')
    return int(_bounded(_parse(size_bytes, value), _LARGEST_BYTES, "an exabyte"))


def _parse(parser: Callable[[str], float], text: str) -> float:
    """The quantity in a text; what is wrong with it becomes part of the message about its key."""
    try:
        return parser(text)
    except InputError as error:
        raise ValueError(f"{error.why} {error.fix}") from None


def _bounded(amount: float, most: float, most_name: str) -> float:
    if not 0 < amount <= most:
        raise ValueError(f"it must be above zero and at most {most_name}")
    return amount


def _range_of(text: str, parser: Callable[[str], float]) -> Uncertain:
    """`30m..40m`: from its 10th to its 90th percentile, the middle being the likely one."""
    first, dots, last = text.partition("..")
    if not dots:
        return parser(first)
    low, high = parser(first.strip()), parser(last.strip())
    if low > high:
        raise ValueError("a range goes from the smaller to the larger, for example 30m..40m")
    return Estimate(low=low, likely=(low + high) / 2, high=high)


def _as_durations(value: object) -> Uncertain:
    """A duration or a range of them; here none at all (0m) is one, too."""
    if not isinstance(value, str):
        return _as_duration(value)
    return _range_of(
        value, lambda text: 0.0 if _parse(duration_s, text) == 0 else _as_duration(text)
    )


def _as_amounts(value: object) -> Uncertain:
    """A number, or a range of them in quotes."""
    if isinstance(value, str) and ".." in value:
        return _range_of(value, _as_amount)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError('it is a number, or a range in quotes such as "1000..1500"')
    return _as_amount(value)


def _as_amount(value: object) -> float:
    try:
        amount = _number(str(value))
    except ValueError:
        amount = -1.0
    if not 0 <= amount <= 1e9:
        raise ValueError(f"{value!r} is not an amount from 0 to 1e9")
    return amount


def _number(text: str) -> float:
    return float(text.replace("_", "").replace(",", ""))


def _above_zero(value: Uncertain) -> Uncertain:
    if (value.low if isinstance(value, Estimate) else value) <= 0:
        raise ValueError("it must be above zero")
    return value


def _at_most_one(value: Uncertain) -> Uncertain:
    if (value.high if isinstance(value, Estimate) else value) > 1:
        raise ValueError("it is a share, from 0 to 1")
    return value


_EVERY = re.compile(r"(?:every )?(?:([0-9][0-9_,.]*) ?)?(epoch|step|iteration|sample)s?")
_COUNTED = {"epoch": "epochs", "step": "steps", "iteration": "steps", "sample": "samples"}


def _as_cadence(value: object) -> Cadence:
    """`epoch`, `5 epochs`, `1000 steps`, `64_000 samples`, or a duration."""
    if not isinstance(value, str):
        raise ValueError('an interval is "epoch", "1000 steps" or a duration such as "30m"')
    match = _EVERY.fullmatch(value.strip().lower())
    if match is None:
        return Cadence(time_s=_as_duration(value))
    count = _number(match[1] or "1")
    if not 0 < count <= _HIGHEST_COUNT:
        raise ValueError("an interval must be above zero, and a count that a run can reach")
    return Cadence(**{_COUNTED[match[2]]: count})


def _as_date(value: object) -> str:
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError:
        raise ValueError("it is not a date such as 2026-11-01") from None


def _as_trust(value: object) -> str:
    """`usual`, `strict`, `all`, or doubts: a text with commas between them, or a list."""
    words = value if isinstance(value, list | tuple) else [value]
    texts = [word for word in words if isinstance(word, str)]
    if len(texts) < len(words):
        raise ValueError('it is "usual", "strict", "all" or doubts such as ["stale"]')
    return ",".join(texts)


def _scaled(amount: Uncertain, factor: float) -> Uncertain:
    """An amount that may be a range, times a factor."""
    return amount.scaled(factor) if isinstance(amount, Estimate) else amount * factor


def _likely(value: Uncertain | None) -> float:
    """The likely value, 0 where none is given."""
    return value.likely if isinstance(value, Estimate) else value or 0.0


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
Durations = Annotated[
    Uncertain,
    BeforeValidator(_as_durations, json_schema_input_type=str),
    Field(description='A duration, or a range of them such as "30m..40m".'),
]
Amounts = Annotated[
    Uncertain,
    BeforeValidator(_as_amounts, json_schema_input_type=float | str),
    Field(description='An amount, or a range of them in quotes such as "1000..1500".'),
]
Times = Annotated[
    Uncertain,
    BeforeValidator(_as_amounts, json_schema_input_type=float | str),
    Field(description='How often in each such interval: 1, or a range such as "0.5..1.5".'),
]
Rates = Annotated[Amounts, AfterValidator(_above_zero)]
MbitRates = Annotated[Rates, AfterValidator(lambda mbit: _scaled(mbit, 1e6 / 8))]
"""Mbit/s, in bytes per second from here on."""
MegabyteRates = Annotated[Rates, AfterValidator(lambda mb: _scaled(mb, MB))]
"""MB/s, in bytes per second from here on."""
Shares = Annotated[Amounts, AfterValidator(_at_most_one)]
Interval = Annotated[
    Cadence,
    BeforeValidator(_as_cadence, json_schema_input_type=str),
    Field(
        description='"epoch", "5 epochs", "1000 steps", "64_000 samples", or a duration ("30m").'
    ),
]
Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
Money = Annotated[float, Field(strict=True, gt=0, le=1e9)]
MoneyOrZero = Annotated[float, Field(strict=True, ge=0, le=1e9)]
HourlyPrice = Annotated[float, Field(strict=True, gt=0, le=1e7)]
Rate = Annotated[float, Field(strict=True, ge=0, le=1e6)]
Count = Annotated[int, Field(strict=True, ge=1, le=100_000)]
Amount = Annotated[float, Field(strict=True, gt=0, le=1e15)]
Gigabits = Annotated[Amount, AfterValidator(lambda gbit: gbit * 1e9 / 8)]
"""Gbit/s, in bytes per second from here on."""
Watts = Annotated[float, Field(strict=True, ge=0, le=20_000)]
BatchSize = Annotated[int, Field(strict=True, ge=1, le=10**9)]
Name = Annotated[str, Field(min_length=1)]
_OFF = -1.0


def _as_duration_or_off(value: object) -> float:
    return _OFF if value == "off" else _as_duration(value)


def _as_pattern(value: str) -> str:
    try:
        groups = re.compile(value).groups
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from None
    if groups < 1:
        raise ValueError('it needs a group in brackets for the number: "loss: ([0-9.]+)"')
    return value


def _as_command(value: object) -> str | tuple[str, ...]:
    """A line of shell, or a list of arguments."""
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(part, str) for part in value):
        return tuple(value)
    raise ValueError('it is a line of shell, or a list of arguments: ["python", "train.py"]')


SecondsOrOff = Annotated[
    float,
    BeforeValidator(_as_duration_or_off, json_schema_input_type=str),
    Field(description='A duration such as "10m", or "off".'),
]
Pattern = Annotated[Name, AfterValidator(_as_pattern)]
CommandLine = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_as_command, json_schema_input_type=str | tuple[str, ...]),
]
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_PLAIN_PATH = r"^[A-Za-z0-9_./][A-Za-z0-9_.@%+:,/=-]*$"
_ADDRESS = r"^[A-Za-z0-9_][A-Za-z0-9_.@:\-\[\]]*$"
_NO_ZERO = r"^[^\x00]*$"
_SLURM_WORD = r"^[A-Za-z0-9_.:,\-]+$"
_SLURM_OPTION = r"^--?[A-Za-z][^\n\r]*$"
_SIGNAL = r"^(SIG)?[A-Z0-9]{2,10}$"
_BUCKET = r"^[a-z0-9]+://[^\s]+$"
PATTERNS = {
    _VARIABLE: "a name of letters, digits and _, not beginning with a digit",
    _PLAIN_PATH: "a path of letters, digits and . _ / - @ % + : , = without spaces and quotes",
    _ADDRESS: "a host as for ssh: user@host, or a name of your ssh configuration",
    _NO_ZERO: "a text without zero bytes",
    _SLURM_WORD: "a word of letters, digits and _ . : , -",
    _SLURM_OPTION: 'an option of sbatch, such as "--constraint=nvlink"',
    _SIGNAL: "the name of a signal in capitals, such as USR1",
    _BUCKET: "an address of a bucket, such as s3://mine/run",
}
"""What a text should be that must match a pattern."""
VariableName = Annotated[str, Field(pattern=_VARIABLE)]
PlainPath = Annotated[str, Field(pattern=_PLAIN_PATH)]
"""A path that is the same word in any line of shell."""
Address = Annotated[str, Field(pattern=_ADDRESS)]
"""As for ssh; never an option of it."""
VariableValue = Annotated[str, Field(pattern=_NO_ZERO)]
SlurmWord = Annotated[str, Field(pattern=_SLURM_WORD)]


# --- the tables ---

D = TypeVar("D")


def _key_of(field: str) -> str:
    """The key a field has in the file: `deadline` of `deadline_s`, `per_hour` of `usd_per_hour`.

    The unit stands with the value there, and money is in the file's currency.
    """
    return re.sub(r"_(?:s|bytes|fraction)$|^usd_|_usd(?=_|$)", "", field)


class Table(BaseModel, Generic[D]):
    """A table of the file; its fields are those of the dataclass D that it becomes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, alias_generator=_key_of
    )
    one_of: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Groups of keys of which a file has one at most."""
    goes_with: ClassVar[Mapping[str, str]] = {}
    """Keys that say something of another one alone."""

    def value(self, usd: float) -> D:
        """The dataclass; `usd` is what one unit of the file's currency is worth."""
        return self.dataclass()(**self.arguments(usd))

    def arguments(self, usd: float) -> dict[str, Any]:
        """What is given, by field of the dataclass; money in dollars."""
        given = {name: getattr(self, name) for name in type(self).model_fields}
        return {
            name: _field_value(name, value, usd)
            for name, value in given.items()
            if value is not None
        }

    @classmethod
    def dataclass(cls) -> type[D]:
        """The D of `Table[D]`, which a table is derived from."""
        bases = (base for base in cls.__mro__ if issubclass(base, Table))
        parameters = (base.__pydantic_generic_metadata__["args"] for base in bases)
        dataclass: type[D] = next(types[0] for types in parameters if types)
        return dataclass


def _field_value(name: str, value: Any, usd: float) -> Any:
    """Tables as dataclasses, and money in dollars: a field with `usd` in its name is money."""
    if isinstance(value, Table):
        return value.value(usd)
    if isinstance(value, tuple):
        return tuple(_field_value(name, item, usd) for item in value)
    return _scaled(value, usd) if "usd" in name.split("_") else value


class StepTable(Table[Step]):
    """The training step: exactly one of `profile`, `target` and `model`."""

    one_of = (("profile", "target"),)

    profile: Name | None = Field(
        None, description="A bundled profile, or the path of a saved one or of a measurement."
    )
    target: Name | None = Field(
        None,
        description="path/to/file.py:function, or path/to/train.py -- ARGUMENTS (needs torch).",
    )
    model: Name | None = Field(
        None, description="A model by its name (llama-3.1-8b, hf:ID), trained by a recipe."
    )
    method: Name | None = Field(
        None, description="The recipe: full, lora, qlora ...; without it the model's usual one."
    )
    tokens: Annotated[int, Field(strict=True, ge=1, le=10**8)] | None = Field(
        None, description="Tokens of a sample, which is padded or cut to so many."
    )
    settings: dict[Name, bool | int | float | str | tuple[Name, ...]] = Field(
        {}, description='Of the recipe: {precision = "bf16", lora_rank = 16}.'
    )
    trust_remote_code: bool = Field(
        False, description="Let a model of the hub run its repository's own code on this machine."
    )
    batch_size: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | Literal["max"] | None = (
        Field(
            None,
            description="Samples per GPU and step, or max: the largest that fits. Without it max, "
            "of a measurement its own, of a bundled profile at most the published one.",
        )
    )
    max_batch_size: Annotated[int, Field(strict=True, ge=1, le=1_000_000)] | None = Field(
        None,
        description="Samples per GPU and step at most, where the largest that fits is taken: a far "
        "larger batch than a recipe was made for is another training.",
    )
    measured: tuple[Name, ...] = Field(
        (),
        description="Files of measurements of this step (outlay probe): the GPUs they were taken "
        "on get the measured time, others what that says of them.",
    )
    precision: Literal["as traced", "fp32", "tf32", "fp16", "bf16"] = "as traced"
    compiled: bool | Literal["default", "reduce-overhead", "max-autotune"] | None = Field(
        None,
        description="Whether it runs under torch.compile, or in which mode (true: default); "
        "without it as its own code says, or its measurement.",
    )
    global_batch_size: BatchSize | None = Field(
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
        if sum(named is not None for named in (self.profile, self.target, self.model)) != 1:
            raise ValueError("give exactly one of profile, target and model")
        its = self.method or self.tokens or self.settings or self.trust_remote_code
        if self.model is None and its:
            raise ValueError("method, tokens, settings and trust_remote_code go with model")
        if isinstance(self.batch_size, int) and self.batch_size > (
            self.max_batch_size or self.batch_size
        ):
            raise ValueError("batch_size is above max_batch_size")
        return self

    def arguments(self, usd: float) -> dict[str, Any]:
        """`max` and `as traced` are what None stands for."""
        return super().arguments(usd) | {
            "batch_size": None if self.batch_size == "max" else self.batch_size,
            "batch_left_open": self.batch_size is None,
            "precision": None if self.precision == "as traced" else self.precision,
            "compiled": _compiling(self.compiled),
            "settings": tuple(sorted(self.settings.items())),
        }


def _compiling(said: bool | str | None) -> str | None:
    """What a workload file says of torch.compile, as a mode."""
    if isinstance(said, bool):
        return "default" if said else "eager"
    return said


class LengthTable(Table[Length]):
    """How long to train: exactly one of samples, epochs, iterations and time."""

    one_of = (("samples", "epochs", "iterations", "time"),)
    goes_with = {"global_batch_size": "iterations", "hours_are_equal": "time"}

    samples: Amount | None = None
    epochs: Annotated[float, Field(strict=True, gt=0, le=1e9)] | None = Field(
        None, description="Passes over the dataset; needs data.samples."
    )
    iterations: Annotated[int, Field(strict=True, ge=1, le=10**12)] | None = None
    global_batch_size: BatchSize | None = Field(
        None, description="The batch the iterations refer to; without it each machine's own."
    )
    training_s: Duration | None = Field(
        None, alias="time", description="Train for this long, whatever gets done."
    )
    hours_are_equal: bool | None = Field(
        None,
        description="With time: true (as without it), an hour is an hour on every machine, and the "
        "cheapest is taken; false, it counts by the work done in it, and the cheapest sample is.",
    )

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        lengths = (self.samples, self.epochs, self.iterations, self.training_s)
        if sum(length is not None for length in lengths) != 1:
            raise ValueError("give exactly one of samples, epochs, iterations and time")
        if self.global_batch_size is not None and self.iterations is None:
            raise ValueError("global_batch_size goes with iterations")
        if self.hours_are_equal is not None and self.training_s is None:
            raise ValueError("hours_are_equal goes with time")
        return self


class DataTable(Table[Dataset]):
    """The dataset."""

    samples: Annotated[int, Field(strict=True, ge=1, le=10**13)] | None = None
    size_bytes: Size | None = Field(None, description="On disk; or give samples and sample_size.")
    sample_size: Size | None = None
    preparation_s: Durations | None = Field(
        None, description='Time to prepare it on the machine, billed like training: "30m..40m".'
    )
    prepared: Literal["each session", "once"] = "each session"
    at: Name = Field(
        "internet",
        description='Where it lies: home, internet, or a provider, "aws" or "aws:us-east-1".',
    )
    kept_at: Name = Field(
        "run", description="Where it is kept meanwhile: run, or a place as above."
    )
    storage: Literal["volume", "object", "disk", "none"] = Field(
        "volume", description="disk is the machine's own, which costs while it is stopped, too."
    )
    results_bytes: Size | None = Field(None, description="Fetched home at the end.")
    upload_bytes_per_s: MbitRates | None = Field(
        None, alias="upload_mbit", description="Mbit/s from home, for at = home."
    )
    download_bytes_per_s: MbitRates | None = Field(
        None, alias="download_mbit", description="Mbit/s to the machine."
    )
    kind: Name | None = Field(
        None,
        description='What a sample is to the CPU, such as "jpeg 256": see docs/models/feed.md.',
    )
    samples_per_s_per_vcpu: Rates | None = Field(
        None,
        alias="decode_per_vcpu",
        description="Samples a second that one CPU thread decodes and augments.",
    )
    sample_bytes: Size | None = Field(
        None, alias="read_size", description="Bytes read for a sample, if not the average."
    )
    disk: Literal["nvme", "sata", "hdd", "volume", "object", "network"] | None = Field(
        None, description="Where it is read from while training; without it what the offer has."
    )
    disk_bytes_per_s: MegabyteRates | None = Field(
        None, alias="disk_mb_per_s", description="MB/s read from there."
    )
    cached: bool | None = Field(
        None, description="Read from RAM after the first epoch; without it, where it fits."
    )

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if self.sample_size is not None and self.samples is None:
            raise ValueError("sample_size needs samples: how many there are")
        if (self.samples or 0) * (self.sample_size or 0) > _LARGEST_BYTES:
            raise ValueError("samples times sample_size is more than an exabyte")
        return self

    def arguments(self, usd: float) -> dict[str, Any]:
        """The size by its samples where only theirs is given; the keys of the feed in one value."""
        given = super().arguments(usd)
        feed = {field.name: given.pop(field.name, None) for field in fields(Feed)}
        is_fed = any(value is not None for value in feed.values())
        sample_bytes = given.pop("sample_size", None)
        if sample_bytes is not None:
            given.setdefault("size_bytes", given["samples"] * sample_bytes)
        prepared_each_session = given.pop("prepared") == "each session"
        return given | {
            "feed": Feed(**feed) if is_fed else None,
            "prepared_each_session": prepared_each_session,
        }


class StoredTable(Table[StoredData]):
    """Something kept by the GB-month besides the dataset, such as container images."""

    name: Name
    size_bytes: Size
    at: Name | tuple[Name, ...] = Field(
        "run", description="run, a provider, a region of one, or a list of places to compare."
    )
    kind: Literal["volume", "object", "registry", "disk"] = "volume"
    pulled_bytes: Size | None = Field(None, description="Pulled by each machine in each session.")

    def arguments(self, usd: float) -> dict[str, Any]:
        """The first of several places, and the others to compare."""
        first, *others = (self.at,) if isinstance(self.at, str) else self.at or (WITH_THE_RUN,)
        return super().arguments(usd) | {"at": first, "also_at": tuple(others)}


class CheckpointTable(Table[Checkpoint]):
    """Checkpoints."""

    size_bytes: Size | None = None
    interval: Interval | None = None
    time_s: Duration | None = Field(
        None, description="What writing one took somewhere, instead of by its size."
    )
    times: Times = 1.0
    kept: Count = 1
    on_notice: bool = Field(
        False, description="Whether the script saves when told that its machine will be taken."
    )


class EvaluationTable(Table[Evaluation]):
    """What is evaluated while training: so many samples, or for so long."""

    one_of = (("samples", "time"),)

    every: Interval
    samples: Amount | None = None
    time_s: Duration | None = None
    times: Times = 1.0

    @model_validator(mode="after")
    def _one_amount(self) -> Self:
        if (self.samples is None) == (self.time_s is None):
            raise ValueError("give exactly one of samples and time")
        return self


class PauseTable(Table[Pause]):
    """Other time between steps, now and then: starts of epochs, stalls."""

    name: Name = "pauses"
    every: Interval
    time_s: Durations
    times: Times = 1.0


class UsageTable(Table[Usage]):
    """One run (nothing given), or sessions a month, or hours a day."""

    one_of = (("sessions_per_month", "hours_per_day"),)
    goes_with = {"days_per_week": "hours_per_day"}

    sessions_per_month: Annotated[float, Field(strict=True, gt=0, le=10_000)] | None = None
    hours_per_day: Annotated[float, Field(strict=True, gt=0, le=24)] | None = None
    days_per_week: Annotated[float, Field(strict=True, gt=0, le=7)] = Field(
        7.0, description="Of the hours a day."
    )
    machines: Count | tuple[Count, ...] = Field(
        1, description="Machines that train together, or a list of numbers to try."
    )
    setup_s: Durations | None = Field(
        None, description="From asking for a machine to the first step, in each session."
    )
    idle_s: Durations | None = Field(
        None, description="Billed in each session while nothing trains, until it is stopped."
    )
    storage_s: Duration | None = Field(
        None, alias="keep_data", description="How long data is kept and paid for."
    )
    horizon_s: Duration | None = Field(
        None, description="How long this use goes on, for commitments; without it this run."
    )
    interest_per_year: Fraction | None = Field(
        None,
        description="What money paid upfront would bring elsewhere, or what a loan costs: 0.05. "
        "For commitments, and for machines to be bought that do not say their own.",
    )

    @model_validator(mode="after")
    def _one_pattern(self) -> Self:
        if self.sessions_per_month is not None and self.hours_per_day is not None:
            raise ValueError("give sessions_per_month or hours_per_day, not both")
        if self.days_per_week != 7 and self.hours_per_day is None:
            raise ValueError("days_per_week goes with hours_per_day")
        return self

    def arguments(self, usd: float) -> dict[str, Any]:
        """The first of several numbers of machines, and all of them to compare."""
        tried = (self.machines,) if isinstance(self.machines, int) else self.machines
        numbers = tuple(dict.fromkeys(tried)) or (1,)
        return super().arguments(usd) | {
            "machines": numbers[0],
            "machines_tried": numbers if len(numbers) > 1 else (),
        }


class LimitsTable(Table[Limits]):
    """Limits every option must satisfy."""

    budget_usd: Money | None = Field(
        None, description="Of the run, or of a month of sessions; no more may be due on day one."
    )
    cash_upfront_usd: MoneyOrZero | None = Field(
        None, description="What may be paid on the first day, if not the budget."
    )
    deadline_s: Duration | None = None
    gpu_memory_bytes: Size | None = Field(None, description="At least so much on each GPU.")
    interruptions: Annotated[float, Field(strict=True, ge=0, le=1e6)] | None = Field(
        None, description="At most so many to be expected on spot machines."
    )
    confidence: Annotated[float, Field(strict=True, gt=0, le=1)] = Field(
        0.8, description="The chance with which budget and deadline must be kept."
    )


class WorthSwitchingTable(Table[WorthSwitching]):
    """From when on one option is better than another, rather than as good."""

    usd: MoneyOrZero | None = Field(
        None, alias="amount", description="What saves less than this (default: 5 dollars), and ..."
    )
    fraction: Fraction | None = Field(
        None, description="... less than this share of the cost (0.05), is not worth it."
    )
    wins: Fraction | None = Field(
        None, description="Nor is what is cheaper in less than this share (0.6) of simulated runs."
    )


def _as_worth_switching(value: object) -> object:
    """A table, or an amount alone: then its share of the cost does not matter; 0: always."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if value == 0:
        return {"amount": 0.0, "fraction": 0.0, "wins": 0.0}
    return {"amount": float(value), "fraction": 1.0}


class PreferTable(Table[Preferences]):
    """What is worth money besides money, and how much certainty is."""

    risk: Literal["expected", "p90", "likely"] = Field(
        "expected",
        description="Ranked by the mean of the simulated costs, by their 90th percentile, or by "
        "the likely cost.",
    )
    worth_switching: Annotated[
        WorthSwitchingTable,
        BeforeValidator(_as_worth_switching, json_schema_input_type=WorthSwitchingTable | float),
    ] = Field(
        WorthSwitchingTable(),
        description="Options that differ by less are a tie, and the one that is less trouble is "
        "taken. An amount of money, or {amount = 5, fraction = 0.05, wins = 0.6}; 0: no ties.",
    )
    usd_per_interruption: MoneyOrZero | None = Field(
        None, description="What a spot machine that is taken away asks of you; 0: nothing."
    )
    usd_per_start: MoneyOrZero | None = Field(
        None, description="What getting a spot machine asks of you, in each session."
    )

    waiting_usd_per_hour: MoneyOrZero = Field(
        0.0, description="What an hour until the end is worth."
    )
    providers: tuple[Name, ...] = Field((), description="Preferred, even if they cost more ...")
    premium_fraction: Fraction = Field(0.0, description="... by this fraction.")
    access: Literal["full machine", "container", "notebook"] | None = Field(
        None, description="At least this: a notebook is less than a container or a machine."
    )
    quota: Literal["none"] | None = Field(None, description="none: without applying for quota.")
    trust: Annotated[
        str, BeforeValidator(_as_trust, json_schema_input_type=str | tuple[str, ...])
    ] = Field(
        "",
        description="Which doubts about prices may be ranked: usual, strict (none), all, or the "
        'doubts themselves, ["stale", "marketplace"]; data/offer_doubts.csv has them all.',
    )
    persistent_disk: Literal["yes"] | None = None
    driver_image: Literal["yes"] | None = None

    def arguments(self, usd: float) -> dict[str, Any]:
        """The facts a provider must have in one value."""
        given = super().arguments(usd)
        qualities = given.keys() - {field.name for field in fields(Preferences)}
        return {name: value for name, value in given.items() if name not in qualities} | {
            "qualities": tuple((name, given[name]) for name in given if name in qualities)
        }


class OwnTimeTable(Table[OwnTime]):
    """Your own hours, as a line of the bill."""

    usd_per_hour: Money
    session_s: Durations | None = Field(None, alias="each_session")
    once_s: Durations | None = None


class SelectionTable(Table[Selection]):
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


class OfferTable(Table[Quote]):
    """A quote of your own, in your currency."""

    provider: Name
    gpu: Name
    gpus: Count = 1
    instance: Name | None = None
    price_usd_per_hour: HourlyPrice | None = Field(
        None, description="The whole machine, on demand."
    )
    spot_usd_per_hour: HourlyPrice | None = None
    region: Name = "any"
    vcpus: Amount | None = None
    ram_bytes: Size | None = None
    local_disk_bytes: Size | None = None
    network_bytes_per_s: Gigabits | None = Field(
        None, alias="network_gbit", description="Gbit/s of the machine, between several of them."
    )
    setup_s: Durations | None = Field(None, description="Of a session there, if not usage.setup.")
    setup_cost_usd: Amounts | None = Field(
        None, description="A set-up fee: charged once for each machine."
    )
    disk: Literal["nvme", "sata", "hdd", "volume", "network"] | None = None
    disk_bytes_per_s: MegabyteRates | None = Field(
        None, alias="disk_mb_per_s", description="MB/s read from its disk."
    )
    interruptions_per_month: Amounts | None = Field(None, description="Of its spot machines.")
    term_s: Duration | None = Field(
        None, description="Taken and paid for that long, used or not: price_per_hour is its price."
    )
    upfront_usd: MoneyOrZero = Field(
        0.0, description="With term: what of its price is paid on the first day, for each machine."
    )
    as_of: Day | None = None
    note: str = ""

    @model_validator(mode="after")
    def _paid_upfront(self) -> Self:
        if self.upfront_usd and self.term_s is None:
            raise ValueError("upfront goes with term: what of the term's price is paid at once")
        return self


def _numbered(tables: tuple[OfferTable, ...]) -> tuple[OfferTable, ...]:
    """Quotes, each with its number for a name where it has none."""
    return tuple(
        table.model_copy(update={"instance": table.instance or f"quote {number}"})
        for number, table in enumerate(tables, 1)
    )


class MachineTable(Table[Workstation]):
    """A machine of your own; with `purchase`, one to be bought."""

    one_of = (("purchase", "parts"), ("resale", "resale_fraction"))

    name: Name
    gpu: Name | tuple[Name, ...] = Field(description="One name, or a list where its GPUs differ.")
    gpus: Count = 1
    power_limit_w: Annotated[float, Field(strict=True, gt=0, le=5000)] | None = Field(
        None, alias="power_limit_watts", description="What each GPU is held to (nvidia-smi -pl)."
    )
    vcpus: Amount | None = None
    ram_bytes: Size | None = None
    network_bytes_per_s: Gigabits | None = Field(
        None, alias="network_gbit", description="Gbit/s of the machine, between several of them."
    )
    host_w: Watts | None = Field(None, alias="host_watts")
    idle_w: Watts | None = Field(
        None,
        alias="idle_watts",
        description="Of the whole machine while it is on and nothing runs; else it is off.",
    )
    electricity_usd_per_kwh: Amounts | None = None
    disk: Literal["nvme", "sata", "hdd", "network"] | None = None
    disk_bytes_per_s: MegabyteRates | None = Field(
        None, alias="disk_mb_per_s", description="MB/s read from its disk."
    )
    purchase_usd: Amounts | None = Field(None, description="The whole; or give parts.")
    parts: dict[str, MoneyOrZero] = Field({}, description="What it is made of, and their prices.")
    resale_usd: Amounts | None = None
    resale_fraction: Shares | None = Field(
        None, alias="resale_fraction", description="Of the purchase."
    )
    lifetime_use_s: Duration | None = Field(
        None,
        alias="use",
        description="Hours it will be used before it is sold; or years and utilisation.",
    )
    years: Annotated[float, Field(strict=True, gt=0, le=30)] | None = Field(
        None, description="From purchase to resale."
    )
    utilisation: Annotated[float, Field(strict=True, gt=0, le=1)] | Name | None = Field(
        None,
        description="Share of all hours it is used, or: student desktop, usual desktop, student "
        "cluster, company cluster. Without it, with years: nothing else runs on it.",
    )
    others_use_s: Duration | None = Field(None, description="Hours others use it in its life.")
    maintenance_usd_per_year: MoneyOrZero = 0.0
    interest_per_year: Fraction | None = Field(
        None,
        description="What the money would bring elsewhere, or what a loan costs: 0.05. Without it "
        "usage.interest_per_year, or none.",
    )
    wear_usd_per_hour: MoneyOrZero = 0.0
    pue: Annotated[float, Field(strict=True, ge=1, le=3)] = 1.0

    @model_validator(mode="after")
    def _bought(self) -> Self:
        if isinstance(self.gpu, tuple) and not self.gpu:
            raise ValueError("gpu is an empty list")
        if isinstance(self.gpu, tuple) and self.gpus not in (1, len(self.gpu)):
            raise ValueError("gpus and the list of gpu do not agree; leave gpus out")
        bought = self.purchase_usd is not None or self.parts
        if self.purchase_usd is not None and self.parts:
            raise ValueError("give purchase or parts, not both")
        if bought and self.lifetime_use_s is None and self.years is None:
            raise ValueError(
                "a machine to be bought needs use, the hours it will be used; or years, with or "
                "without utilisation"
            )
        if self.resale_usd is not None and self.resale_fraction is not None:
            raise ValueError("give resale or resale_fraction, not both")
        price = _likely(self.purchase_usd) or sum(self.parts.values())
        if bought and _likely(self.resale_usd) > price:
            raise ValueError("resale is above purchase")
        return self

    def arguments(self, usd: float) -> dict[str, Any]:
        """GPUs of one kind and the others; the whole's price of its parts; presets of use."""
        names = (self.gpu,) if isinstance(self.gpu, str) else self.gpu
        whole = self.purchase_usd or sum(self.parts.values())
        return super().arguments(usd) | {
            "gpu": names[0],
            "gpus": self.gpus if isinstance(self.gpu, str) else len(names),
            "other_gpus": tuple(name for name in names if name != names[0]),
            "parts": tuple((name, price * usd) for name, price in self.parts.items()),
            "purchase_usd": _scaled(whole, usd) if whole else None,
            "utilisation": _utilisation(self.utilisation),
        }


def _utilisation(written: float | str | None) -> float | None:
    """A share of all hours, or that of a preset: a row `utilisation_*` of the assumptions."""
    if not isinstance(written, str):
        return written
    presets = {
        name.removeprefix("utilisation_").replace("_", " "): fact.number
        for name, fact in assumptions().items()
        if name.startswith("utilisation_")
    }
    if written.lower() not in presets:
        raise NotKnown("utilisation", written, sorted(presets), fix="Or give a share such as 0.15.")
    return presets[written.lower()]


class ProviderTable(Table[TermsOverride]):
    """What you pay a provider where it differs from the table, in your currency."""

    provider: Name = Field(alias="name")
    billing_step_s: Duration | None = None
    billing_minimum_s: Duration | None = None
    volume_usd_per_gb_month: Rate | None = None
    object_usd_per_gb_month: Rate | None = None
    registry_usd_per_gb_month: Rate | None = None
    egress_usd_per_gb: Rate | None = None
    egress_free_gb_per_month: Rate | None = None
    between_regions_usd_per_gb: Rate | None = Field(
        None, description="For what goes from one of its regions to another."
    )
    copying_machine_usd_per_hour: Rate | None = Field(
        None, description="A small machine without GPU that fills a volume before one is rented."
    )
    block_usd: Money | None = Field(
        None, description="Machine time is bought beforehand in amounts of this."
    )
    fee_usd_per_month: MoneyOrZero = Field(
        0.0, description="A subscription, a static address: what is paid each month besides."
    )
    discount_fraction: Fraction = Field(
        0.0, description="Off machine time, as agreed: 0.1 is a tenth."
    )
    credit_usd: MoneyOrZero = Field(0.0, description="Free money you have there.")


class WatchTable(Table[WatchSettings]):
    """When a run is stopped before its end, and how."""

    idle_below_fraction: Fraction | None = Field(
        None, description="A GPU that does less is idle, where nothing else goes on (0.05)."
    )
    idle_s: SecondsOrOff | None = Field(None, description='Idle for so long: stop ("10m"; "off").')
    stall_s: SecondsOrOff | None = Field(
        None, description='No step for so long, while nothing moves: stop ("30m"; "off").'
    )
    stop_on_bad_loss: bool | None = None
    grace_s: Duration | None = Field(None, description='From the warning to the stop ("2m").')
    signal: Annotated[str, Field(pattern=_SIGNAL)] | None = Field(
        None, description="Sent halfway to the stop, so that the script saves a checkpoint: USR1."
    )
    loss_pattern: Pattern | None = None
    step_pattern: Pattern | None = None
    then: Literal["stop", "shut down", "warn"] | None = None
    delete_after_s: Duration | None = None
    notify: tuple[Name, ...] = Field((), description="Addresses, as apprise has them.")
    agent: bool | None = None

    def arguments(self, usd: float) -> dict[str, Any]:
        """`off` is what None stands for."""
        given = super().arguments(usd)
        return {
            name: None if value == _OFF and name in ("idle_s", "stall_s") else value
            for name, value in given.items()
        }


class RunHostTable(Table[RunHost]):
    """A machine you can log in to."""

    address: Address = Field(
        description="As for ssh: user@host, or a name of your ssh configuration."
    )
    gpu: str | None = Field(None, description='What it has: "RTX 3090:2".')
    price_usd_per_hour: HourlyPrice | None = None


class SlurmTable(Table[SlurmSettings]):
    """How jobs are handed to a Slurm cluster."""

    login: Address | None = Field(None, description="Where sbatch is, as for ssh; without it here.")
    partition: SlurmWord | None = None
    account: SlurmWord | None = None
    qos: SlurmWord | None = None
    time_s: Duration | None = None
    gpu_types: dict[str, SlurmWord] = Field(
        {}, description='The cluster\'s own names: {"A100 80GB" = "a100"}.'
    )
    options: tuple[Annotated[str, Field(pattern=_SLURM_OPTION)], ...] = Field(
        (), description='Further lines for sbatch: "--constraint=nvlink".'
    )
    price_usd_per_gpu_hour: HourlyPrice | None = None

    def arguments(self, usd: float) -> dict[str, Any]:
        """The names of GPUs as pairs."""
        return super().arguments(usd) | {"gpu_types": tuple(self.gpu_types.items())}


class SkyPilotTable(Table[SkyPilotSettings]):
    """How tasks are handed to SkyPilot."""

    bucket: Annotated[str, Field(pattern=_BUCKET)] | None = Field(
        None, description="Where checkpoints are kept while a spot machine is replaced: s3://..."
    )
    disk_bytes: Size | None = None
    idle_minutes: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None


class RunTable(Table[RunSettings]):
    """What `outlay launch` and `outlay bench` start."""

    command: CommandLine
    resume: CommandLine | None = Field(
        None, description="Instead of command where there are checkpoints already."
    )
    setup: tuple[Name, ...] | Name = Field((), description="Lines of shell before the command.")
    folder: Name = Field(".", description="What is sent, and where the command runs.")
    exclude: tuple[Name, ...] = Field((), description="Of the folder, what is not sent.")
    send: tuple[Name, ...] = Field((), description="Further files and folders.")
    fetch: tuple[Name, ...] = Field((), description="Brought back at the end.")
    checkpoints: PlainPath | None = Field(
        None, description="The folder they are written to: a path without spaces and quotes."
    )
    environment: dict[VariableName, VariableValue] = {}
    pass_on: tuple[VariableName, ...] = Field(
        (), alias="pass", description="Variables handed over from here, values written nowhere."
    )
    engine: Literal["local", "ssh", "slurm", "skypilot"] | None = None
    image: Name | None = None
    processes: Literal["auto", "one", "torchrun"] = "auto"
    outlay: Name | None = Field(
        None, description='What pip installs on the machine, or "none"; without it this outlay.'
    )
    hosts: tuple[RunHostTable, ...] = Field((), alias="host")
    slurm: SlurmTable = SlurmTable()
    skypilot: SkyPilotTable = SkyPilotTable()
    watch: WatchTable = WatchTable()

    def arguments(self, usd: float) -> dict[str, Any]:
        """One line of set-up as a list, the environment as pairs."""
        setup = (self.setup,) if isinstance(self.setup, str) else self.setup
        return super().arguments(usd) | {
            "setup": setup,
            "environment": tuple(self.environment.items()),
        }


class WorkloadFile(Table[Workload]):
    """An outlay workload file: what to train, for how long, on what data, within which limits."""

    name: Name = "training run"
    currency: Name = Field("USD", description="Currency of every amount in this file.")
    currency_day: Day | None = Field(
        None, description="Day of the exchange rate; without it the newest known."
    )
    usd_per_unit: Annotated[float, Field(strict=True, gt=0, le=1e6)] | None = Field(
        None,
        alias="usd_per_unit",
        description="An exchange rate of your own: dollars for one unit of the currency.",
    )
    tax_fraction: Fraction | Name = Field(
        0.0, description='Added to what providers charge without it: 0.19, or a place ("DE").'
    )
    step: StepTable
    length: LengthTable
    data: DataTable = DataTable()
    checkpoint: CheckpointTable = CheckpointTable()
    evaluation: EvaluationTable | None = None
    pauses: tuple[PauseTable, ...] = Field((), alias="pause")
    usage: UsageTable = UsageTable()
    limits: LimitsTable = LimitsTable()
    prefer: PreferTable = PreferTable()
    own_time: OwnTimeTable | None = None
    consider: ConsiderTable = ConsiderTable()
    leave_out: SelectionTable = SelectionTable()
    stored: tuple[StoredTable, ...] = ()
    quotes: Annotated[tuple[OfferTable, ...], AfterValidator(_numbered)] = Field((), alias="offer")
    workstations: tuple[MachineTable, ...] = Field((), alias="machine")
    terms: tuple[ProviderTable, ...] = Field((), alias="provider")
    run: RunTable | None = None

    @model_validator(mode="after")
    def _epochs_need_a_dataset(self) -> Self:
        if self.length.epochs is not None and self.data.samples is None:
            raise ValueError("length.epochs needs data.samples: how many samples an epoch has")
        for name, every in (
            ("checkpoint.interval", self.checkpoint.interval),
            ("evaluation.every", self.evaluation and self.evaluation.every),
            *(("pause.every", pause.every) for pause in self.pauses),
        ):
            if every and every.epochs is not None and self.data.samples is None:
                raise ValueError(f"{name} in epochs needs data.samples")
        return self

    def arguments(self, usd: float) -> dict[str, Any]:
        """The rate of a place for its name."""
        tax_fraction = _tax_fraction(self.tax_fraction)
        given = super().arguments(usd)
        return given | {
            "currency": self.currency.upper(),
            "usd_per_unit": usd,
            "tax_fraction": tax_fraction,
        }


def _tax_fraction(written: float | str) -> float:
    """The rate itself, or that of a place."""
    if not isinstance(written, str):
        return float(written)
    rates = {row["place"]: row["rate"] for row in rows_of("taxes.csv") if row["rate"]}
    if written.upper() not in rates:
        raise NotKnown(
            "place with a tax rate", written, sorted(rates), fix="Give the rate: tax = 0.19."
        )
    return float(rates[written.upper()])
