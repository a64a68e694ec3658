"""One input of a workload file after another value: what is chosen, what it costs, where it turns.

--vary sessions=1..12
--vary data.size=100GB..2TB
--vary machine.desktop.purchase=1500,2000,2500
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from outlay.errors import InputError
from outlay.option import Option
from outlay.plan import Plan
from outlay.workload import Workload

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
_NAMED = {"machine": "name", "provider": "name", "stored": "name", "offer": "instance"}
"""Tables that stand in a file more than once, and the key that tells them apart."""
MOST = 24
"""Whole numbers in a range that are all tried; of wider ranges a dozen values is."""
POINTS = 12
CURVES = 8
WHOLE, PER_MILLION = "dollars", "dollars for training a million samples"

_QUANTITY = re.compile(r"(?P<number>[-+]?[0-9][0-9_]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)(?P<unit>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variation:
    """What to vary, and the values to give it."""

    path: str
    """Where it stands in the file."""
    values: tuple[Any, ...]
    """As they would be written there."""
    numbers: tuple[float, ...]
    """The same as plain numbers, for curves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The plan at one value."""

    value: Any
    number: float
    chosen: str | None
    """The machine, in words; None where nothing satisfies the limits."""
    usd: float | None
    costs: dict[str, float]
    """What each kind of machine costs there, the best of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Where one choice gives way to another."""

    before: str
    after: str
    at: float
    """Where their costs meet, on a straight line between the two values tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Costs over the values of one input."""

    path: str
    unit: str
    """What costs are of."""
    points: tuple[Point, ...]
    turns: tuple[Turn, ...]
    named: tuple[str, ...]
    """The machines whose costs are worth a curve."""


def variation_of(text: str) -> Variation:
    """`sessions=1..12` as what to vary and the values to give it."""
    name, equals, said = (part.strip() for part in text.partition("="))
    if not equals or not name or not said:
        raise InputError(
            f"--vary {text!r} says not what to vary and how.",
            fix="Write for example --vary sessions=1..12 or --vary data.size=100GB,500GB.",
        )
    values = tuple(_values(said, text))
    return Variation(
        path=SHORT.get(name, name),
        values=values,
        numbers=tuple(_as_number(value, place) for place, value in enumerate(values)),
    )


def _values(said: str, text: str) -> Iterator[Any]:
    first, dots, last = said.partition("..")
    if not dots:
        yield from (_written(part.strip()) for part in said.split(","))
        return
    low, high = _QUANTITY.fullmatch(first.strip()), _QUANTITY.fullmatch(last.strip())
    if low is None or high is None:
        raise InputError(
            f"--vary {text!r} has a range that is not of numbers.",
            fix="Write for example 1..12, 100GB..900GB or 0.5..2.",
        )
    unit = high["unit"].strip() or low["unit"].strip()
    if low["unit"].strip() not in ("", unit):
        raise InputError(
            f"--vary {text!r} has a range in two units.",
            fix=f"Write both ends in {unit}, or list the values with commas between.",
        )
    for number in _between(float(low["number"]), float(high["number"])):
        yield f"{number:g}{unit}" if unit else number


def _between(low: float, high: float) -> list[float]:
    """Every whole number of a short range; else a dozen, by ratio where it spans decades."""
    if high < low:
        low, high = high, low
    whole = low == int(low) and high == int(high)
    if whole and high - low <= MOST:
        return [*range(int(low), int(high) + 1)]
    steps = [step / (POINTS - 1) for step in range(POINTS)]
    if low > 0 and high / low > 20:
        found = [low * (high / low) ** step for step in steps]
    else:
        found = [low + (high - low) * step for step in steps]
    if whole:
        return sorted({int(_rounded(value)) for value in found})
    return [_rounded(value) for value in found]


def _rounded(value: float) -> float:
    """Three figures are enough to vary by."""
    return float(f"{value:.3g}")


def _written(text: str) -> Any:
    """A value as TOML would have it: a number, yes or no, or a text."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text.replace("_", ""))
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _as_number(value: Any, place: int) -> float:
    if isinstance(value, int | float):
        return float(value)
    match = _QUANTITY.fullmatch(str(value))
    return float(match["number"].replace("_", "")) if match else float(place)


def with_value(table: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The tables of a workload file with one value put in its place."""
    changed = copy.deepcopy(table)
    keys = path.split(".")
    inner: Any = changed
    for depth, key in enumerate(keys[:-1]):
        inner = _entered(inner, key, keys[: depth + 1], path)
    if not isinstance(inner, dict):
        raise _no_such(path, "it is a list: say which by its name")
    inner[keys[-1]] = value
    return changed


def _entered(inner: Any, key: str, so_far: Sequence[str], path: str) -> Any:
    if isinstance(inner, list):
        name = _NAMED.get(so_far[0], "name")
        for one in inner:
            if str(one.get(name, "")).lower() == key.lower():
                return one
        if key.isdecimal() and 1 <= int(key) <= len(inner):
            return inner[int(key) - 1]
        known = ", ".join(repr(one.get(name, place)) for place, one in enumerate(inner, 1))
        raise _no_such(path, f"there is no [[{so_far[0]}]] {key!r}; there are {known}")
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


def curves_of(
    variation: Variation,
    plan_at: Callable[[Any], tuple[Workload, Plan]],
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Curves:
    """The plan at every value, the machines worth a curve, and where the choice turns."""
    points, units = [], set()
    for value, number in zip(variation.values, variation.numbers, strict=True):
        tell(f"{variation.path} = {value} ...")
        _, plan = plan_at(value)
        points.append(_point(value, number, plan))
        units.add(WHOLE if plan.ranked_by == "cost" else PER_MILLION)
    return Curves(
        path=variation.path,
        unit=WHOLE if units == {WHOLE} else PER_MILLION,
        points=tuple(points),
        turns=tuple(_turns(points)),
        named=_worth_a_curve(points),
    )


def _point(value: Any, number: float, plan: Plan) -> Point:
    costs: dict[str, float] = {}
    for option in plan.options:
        if option.cost is not None and (option.sound or option.offer.quoted):
            kind = kind_of(option)
            costs[kind] = min(_usd(option, plan), costs.get(kind, math.inf))
    chosen = plan.chosen
    return Point(
        value=value,
        number=number,
        chosen=None if chosen is None else kind_of(chosen),
        usd=None if chosen is None else _usd(chosen, plan),
        costs=costs,
    )


def _usd(option: Option, plan: Plan) -> float:
    """What a plan is ranked by, in dollars."""
    if plan.ranked_by == "cost":
        return option.usd
    return option.training_usd_per_million_samples or math.inf


def kind_of(option: Option) -> str:
    """A machine at a provider, wherever it stands; the user's own by their names."""
    offer = option.offer
    kept = f", {option.keeping}" if option.keeping else ""
    if offer.quoted:
        return f"{offer.provider} {offer.instance} {option.tenancy}{kept}"
    return f"{offer.gpus}x {offer.gpu} {offer.provider} {option.tenancy}{kept}"


def _turns(points: Sequence[Point]) -> Iterator[Turn]:
    for left, right in pairwise(points):
        before, after = left.chosen, right.chosen
        if before is None or after is None or before == after:
            continue
        yield Turn(before=before, after=after, at=_crossing(left, right, before, after))


def _crossing(left: Point, right: Point, before: str, after: str) -> float:
    ahead = left.costs.get(after, math.inf) - left.costs.get(before, math.inf)
    behind = right.costs.get(before, math.inf) - right.costs.get(after, math.inf)
    if not math.isfinite(ahead + behind) or ahead + behind <= 0:
        return right.number
    return left.number + (right.number - left.number) * ahead / (ahead + behind)


def _worth_a_curve(points: Sequence[Point]) -> tuple[str, ...]:
    """What is chosen anywhere, the user's own, and the nearest others."""
    chosen = list(dict.fromkeys(point.chosen for point in points if point.chosen))
    middle = points[len(points) // 2].costs
    near = sorted(middle, key=lambda kind: middle[kind])
    return tuple(dict.fromkeys((*chosen, *near)))[:CURVES]
