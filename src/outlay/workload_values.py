"""Values as people write them into TOML files: durations, sizes, ranges, dates; their bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from outlay.chance import Uncertain
from outlay.errors import InputError
from outlay.estimate import Estimate
from outlay.units import YEAR_S, duration_s, size_bytes
from outlay.workload import Every

_LONGEST_S = 100 * YEAR_S
_MOST_COUNTED = 1e15
LARGEST_BYTES = 10**18


def _as_duration(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError('a duration needs a unit in quotes, for example "35m", "6h" or "14d"')
    return _within(_read(duration_s, value), _LONGEST_S, "a hundred years")


def _as_size(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError('a size needs a unit in quotes, for example "13.8GB" or "600MB"')
    return int(_within(_read(size_bytes, value), LARGEST_BYTES, "an exabyte"))


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


def _in_range(text: str, read: Callable[[str], float]) -> Uncertain:
    """`30m..40m`: from its 10th to its 90th percentile, the middle being the likely one."""
    first, dots, last = text.partition("..")
    if not dots:
        return read(first)
    low, high = read(first.strip()), read(last.strip())
    if low > high:
        raise ValueError("a range goes from the smaller to the larger, for example 30m..40m")
    return Estimate(low=low, likely=(low + high) / 2, high=high)


def _as_durations(value: object) -> Uncertain:
    """A duration or a range of them; here none at all (0m) is one, too."""
    if not isinstance(value, str):
        return _as_duration(value)
    return _in_range(value, lambda text: 0.0 if _is_none(text) else _as_duration(text))


def _is_none(text: str) -> bool:
    return _read(duration_s, text) == 0


def _as_amounts(value: object) -> Uncertain:
    """A number, or a range of them in quotes."""
    if isinstance(value, str) and ".." in value:
        return _in_range(value, _as_amount)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError('it is a number, or a range in quotes such as "1000..1500"')
    return _as_amount(value)


def _as_amount(value: object) -> float:
    try:
        return _from_zero(_number(str(value)))
    except ValueError:
        raise ValueError(f"{value!r} is not an amount from 0 to 1e9") from None


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


def _from_zero(amount: float) -> float:
    if not 0 <= amount <= 1e9:
        raise ValueError
    return amount


_EVERY = re.compile(r"(?:every )?(?:([0-9][0-9_,.]*) ?)?(epoch|step|iteration|sample)s?")
_COUNTED = {"epoch": "epochs", "step": "steps", "iteration": "steps", "sample": "samples"}


def _as_every(value: object) -> Every:
    """`epoch`, `5 epochs`, `1000 steps`, `64_000 samples`, or a duration."""
    if not isinstance(value, str):
        raise ValueError('an interval is "epoch", "1000 steps" or a duration such as "30m"')
    match = _EVERY.fullmatch(value.strip().lower())
    if match is None:
        return Every(time_s=_as_duration(value))
    count = _number(match[1] or "1")
    if not 0 < count <= _MOST_COUNTED:
        raise ValueError("an interval must be above zero, and a count that a run can reach")
    return Every(**{_COUNTED[match[2]]: count})


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
Shares = Annotated[Amounts, AfterValidator(_at_most_one)]
Interval = Annotated[
    Every,
    BeforeValidator(_as_every, json_schema_input_type=str),
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
Name = Annotated[str, Field(min_length=1)]


def likely_of(value: Uncertain | None) -> float:
    """The likely value, 0 where none is given."""
    return value.likely if isinstance(value, Estimate) else value or 0.0
