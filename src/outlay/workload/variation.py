"""What to vary in a workload file, and the values to give it.

`sessions=1..12`, `data.size=100GB..2TB`, `length.time=1h30m..12h`, `limits.budget=$50..$100`,
`currency_day=2026-01-01..2026-06-01`, `machine.desktop.purchase=1500,2000,2500`,
`machine.*.utilisation=0.05..0.6`, `usage.idle=0m..10m,0m..20m`.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from string import ascii_letters
from typing import Any

from outlay.errors import InputError
from outlay.units import duration_s, size_bytes
from outlay.workload.tables import Table, WorkloadFile
from outlay.workload.toml import model_of_key

SHORT = {
    "sessions": "usage.sessions_per_month",
    "hours": "usage.hours_per_day",
    "machines": "usage.machines",
    "setup": "usage.setup",
    "idle": "usage.idle",
    "budget": "limits.budget",
    "deadline": "limits.deadline",
    "epochs": "length.epochs",
    "samples": "length.samples",
    "batch": "step.batch_size",
    "size": "data.size",
    "preparation": "data.preparation",
    "checkpoint": "checkpoint.size",
    "interval": "checkpoint.interval",
}
"""Inputs that people vary, and where they stand in the file."""
_MOST_WHOLE = 24
"""Whole numbers in a range that are all tried; of wider ranges a dozen values is."""
_POINTS = 12

_NAMED = {"machine": "name", "provider": "name", "stored": "name", "offer": "instance"}
"""Tables that stand in a file more than once, and the key that tells them apart."""
_LISTS = frozenset({"gpus", "providers", "regions", "instances", "tenancies"})
"""Keys of [consider], [leave_out] and [prefer] that hold a list: one value becomes one of one."""
_QUANTITY = re.compile(
    r"(?P<sign>[$€£¥₩]?) ?(?P<number>[-+]?[0-9][0-9_]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?) *"
    r"(?P<unit>[^0-9]*)"
)
_GROUPED = re.compile(r"(?<![0-9,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
"""A number with commas between its thousands."""
_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₩": "KRW"}
_CURRENCY = re.compile(r"[A-Z]{3}")
_COUNTS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
"""Units of counts, where one of two ends is in thousands; else an M is a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What to vary, and the values to give it."""

    path: str
    """Where it stands in the file."""
    values: tuple[Any, ...]
    """As they would be written there."""
    numbers: tuple[float | None, ...]
    """The same as plain numbers in one unit, for curves; None for words."""
    unit: str = ""
    is_whole: bool = False
    """Whether only whole numbers make sense."""
    currency: str = ""
    """Of amounts of money that were written with one."""

    def written(self, number: float) -> Any:
        """A number between the values, as it would be written."""
        return f"{number:.6g}{self.unit}" if self.unit else number


def variation_of(text: str) -> Variation:
    """`sessions=1..12` as what to vary and the values to give it."""
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not name or not values:
        raise InputError(
            f"--vary {text!r} says not what to vary and how.",
            fix="Write for example --vary sessions=1..12 or --vary data.size=100GB,500GB.",
        )
    path = SHORT.get(name, name)
    if ".." in values:
        plain = _GROUPED.sub(lambda match: match[0].replace(",", ""), values)
        if "," not in plain:
            return _over_range(path, plain, text)
    return _over_list(path, [part.strip() for part in values.split(",")])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Quantity:
    """A number in a unit; an amount of money has its currency, a day is a number of days."""

    number: float
    unit: str = ""
    currency: str = ""
    is_day: bool = False


def _quantity(text: str) -> _Quantity | None:
    """A number, a duration, a size, an amount of money or a day; None for other words."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return _day(text) or _compound(text)
    number, unit = _number(match["number"]), match["unit"].strip()
    if not math.isfinite(number):
        return None
    if match["sign"]:
        return None if unit else _Quantity(number=number, currency=_SIGNS[match["sign"]])
    if _CURRENCY.fullmatch(unit):
        return _Quantity(number=number, currency=unit)
    return _Quantity(number=number, unit=unit)


def _day(text: str) -> _Quantity | None:
    try:
        return _Quantity(number=float(date.fromisoformat(text).toordinal()), is_day=True)
    except ValueError:
        return None


def _compound(text: str) -> _Quantity | None:
    """A duration of several parts, such as 1h30m, in the unit of its last part."""
    unit = text.rstrip()[len(text.rstrip().rstrip(ascii_letters)) :]
    try:
        return _Quantity(number=duration_s(text) / duration_s(f"1{unit}"), unit=unit)
    except InputError:
        return None


def _over_range(path: str, values: str, text: str) -> Variation:
    first, _, last = (part.strip() for part in values.partition(".."))
    low, high = _quantity(first), _quantity(last)
    if low is None or high is None:
        raise InputError(
            f"--vary {text!r} has a range that is not of numbers.",
            fix="Write for example 1..12, 100GB..900GB, 30m..2h, 0.5..2 or 2026-01-01..2026-06-01.",
        )
    unit = low.unit or high.unit
    if _compound(first) and not _QUANTITY.fullmatch(last):
        unit = high.unit
    ratios = [_ratio(end.unit or unit, unit, thousands=low.unit in "kK") for end in (low, high)]
    currencies = {end.currency for end in (low, high) if end.currency}
    if None in ratios or len(currencies) > 1 or low.is_day != high.is_day:
        raise InputError(
            f"--vary {text!r} has a range in two units.",
            fix=f"Write both ends in {unit or first}, or list the values with commas between.",
        )
    numbers = [end.number * (ratio or 1.0) for end, ratio in zip((low, high), ratios, strict=True)]
    if unit in ("k", "K"):
        numbers, unit = [1000 * number for number in numbers], ""
    return _between_ends(path, sorted(numbers), unit, next(iter(currencies), ""), low.is_day)


def _between_ends(
    path: str, ends: Sequence[float], unit: str, currency: str, is_day: bool
) -> Variation:
    whole = all(end == int(end) for end in ends)
    numbers = _between(ends[0], ends[1], whole=whole)
    if is_day:
        days = tuple(date.fromordinal(int(number)).isoformat() for number in numbers)
        return Variation(path=path, values=days, numbers=(None,) * len(days))
    return Variation(
        path=path,
        values=tuple(f"{number:.10g}{unit}" if unit else number for number in numbers),
        numbers=tuple(map(float, numbers)),
        unit=unit,
        is_whole=whole and not unit,
        currency=currency,
    )


def _over_list(path: str, parts: Sequence[str]) -> Variation:
    found = [_quantity(part) for part in parts]
    unit = next((one.unit for one in found if one), "")
    ratios = [None if one is None or one.is_day else _ratio(one.unit, unit) for one in found]
    numbers = [
        one.number * ratio
        for one, ratio in zip(found, ratios, strict=True)
        if one is not None and ratio is not None
    ]
    comparable = len(numbers) == len(parts)
    currencies = {one.currency for one in found if one and one.currency}
    if len(currencies) > 1:
        raise InputError(
            f"--vary {path} has amounts in {' and '.join(sorted(currencies))}.",
            fix="Write all in the currency of the file.",
        )
    values = tuple(
        one.number if one and one.currency else _toml_value(part)
        for one, part in zip(found, parts, strict=True)
    )
    return Variation(
        path=path,
        values=values,
        numbers=tuple(numbers) if comparable else (None,) * len(parts),
        unit=unit if comparable else "",
        is_whole=all(isinstance(value, int) for value in values),
        currency=next(iter(currencies), ""),
    )


def _ratio(unit: str, other: str, *, thousands: bool = False) -> float | None:
    """One unit in another; None where they measure different things."""
    if unit.rstrip("s") == other.rstrip("s"):
        return 1.0
    if thousands and other and unit in _COUNTS and other in _COUNTS:
        return _COUNTS[unit] / _COUNTS[other]
    for read in (size_bytes, duration_s):
        try:
            return read(f"1{unit}") / read(f"1{other}")
        except InputError:
            continue
    return None


def _number(text: str) -> float:
    return float(text.replace("_", ""))


def _between(low: float, high: float, *, whole: bool) -> list[float]:
    """Every whole number of a short range; else a dozen, by ratio where it spans decades."""
    if low == high:
        return [int(low) if whole else low]
    if whole and high - low <= _MOST_WHOLE:
        return [*range(int(low), int(high) + 1)]
    steps = [step / (_POINTS - 1) for step in range(1, _POINTS - 1)]
    if low > 0 and high / low > 20:
        inner = [_rounded(low * (high / low) ** step, high - low) for step in steps]
    else:
        inner = [_rounded(low + (high - low) * step, high - low) for step in steps]
    numbers = [low, *(value for value in inner if low < value < high), high]
    return sorted({int(number) for number in numbers}) if whole else numbers


def _rounded(value: float, span: float) -> float:
    """Three figures are enough to vary by; of a narrow range, three of its width."""
    step = 10.0 ** (len(str(int(abs(span)))) - 3) if span >= 1 else 0.0
    coarse = float(f"{value:.3g}")
    return coarse if abs(coarse - value) < span / 100 or not step else round(value / step) * step


def _toml_value(text: str) -> Any:
    """A value as TOML would have it: a number, yes or no, or a text."""
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float):
        try:
            return read(text.replace("_", ""))
        except ValueError:
            continue
    return text


def with_value(table: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The tables of a workload file with one value put in its place.

    What the file may not say besides goes: with length.time, length.samples.
    """
    changed = copy.deepcopy(table)
    _put(changed, path.split("."), 0, path, value)
    return changed


def _drop_rivals(inner: dict[str, Any], path: str) -> None:
    """Remove the keys that exclude the last key of a path, and those that go with these alone."""
    *tables, key = path.split(".")
    model: type[Table[Any]] = WorkloadFile
    for name in tables:  # the name of one of several tables is no key
        found = model_of_key(model, name)
        model = found if found is not None and issubclass(found, Table) else model
    rivals = {other for group in model.one_of if key in group for other in group if other != key}
    for other in [name for name in inner if {name, model.goes_with.get(name)} & rivals]:
        del inner[other]


def _put(inner: Any, keys: Sequence[str], depth: int, path: str, value: Any) -> None:
    """Put the value where the keys from `depth` on lead; `*` is every one of a repeated table."""
    key = keys[depth]
    if isinstance(inner, list) and key == "*" and depth + 1 < len(keys):
        for table in inner:
            _put(table, keys, depth + 1, path, value)
    elif depth + 1 < len(keys):
        _put(_inner_table(inner, key, keys[: depth + 1], path), keys, depth + 1, path, value)
    elif isinstance(inner, dict):
        inner[key] = [value] if key in _LISTS and not isinstance(value, int) else value
        _drop_rivals(inner, path)
    elif isinstance(inner, list):
        raise _no_such(path, "it is a list: say which by its name, or * for all of them")
    else:
        raise _no_such(path, f"{keys[depth - 1]!r} is no table")


def _inner_table(inner: Any, key: str, so_far: Sequence[str], path: str) -> Any:
    """The table under a key, or the one of a repeated table that has that name or number."""
    if isinstance(inner, list):
        name = _NAMED.get(so_far[0], "name")
        for table in inner:
            if str(table.get(name, "")).lower() == key.lower():
                return table
        if key.isdecimal() and 1 <= int(key) <= len(inner):
            return inner[int(key) - 1]
        names = ", ".join(repr(table.get(name, place)) for place, table in enumerate(inner, 1))
        raise _no_such(path, f"there is no [[{so_far[0]}]] {key!r}; there are {names}")
    if not isinstance(inner, dict):
        raise _no_such(path, f"{so_far[-2]!r} is no table")
    if key in _NAMED and key not in inner:
        raise _no_such(path, f"the file has no [[{key}]]")
    return inner.setdefault(key, {})


def _no_such(path: str, why: str) -> InputError:
    return InputError(
        f"--vary cannot find {path!r} in the file.",
        why=f"{why[0].upper()}{why[1:]}.",
        fix=f"Write the table and the key, as in data.size, or one of: {', '.join(SHORT)}.",
    )
