"""One input of a workload file after another value: the choice, its cost, and where it turns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from outlay.currency import DOLLAR
from outlay.errors import InputError
from outlay.files import name_of
from outlay.offers.price_book import PriceBook
from outlay.plan.from_measurement import (
    evidence_for,
    load_workload,
    profile_for,
    workload_from_measurement,
)
from outlay.plan.option import Option
from outlay.plan.pipeline import plan_workload
from outlay.plan.ranking import Plan
from outlay.predict.evidence import NOTHING_LEARNED, Evidence, LearnedCalibration
from outlay.progress import Progress, silent
from outlay.workload.file import KIND, naming_line_of, workload_of
from outlay.workload.toml import parse_table, read_text
from outlay.workload.variation import Variation, variation_of, with_value
from outlay.workload.workload import Length, Step, Workload

CURVES = 8
CostUnit = Literal["dollars", "dollars for training a million samples"]
WHOLE: CostUnit = "dollars"
PER_MILLION: CostUnit = "dollars for training a million samples"
HALVINGS = 6
"""How often the interval in which a choice turns is halved before a straight line is drawn."""

PlanAt = Callable[[Any], Plan]
"""The plan with a value in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The plan at one value."""

    value: Any
    number: float | None
    """None for words."""
    chosen: str | None
    """The machine, in words; None where nothing satisfies the limits."""
    usd: float | None
    costs: dict[str, float]
    """What each kind of machine costs there, the best of its kind."""
    ranked: dict[str, float] = field(default_factory=dict)
    """What each kind is ranked by there: its cost on average, or as `prefer.risk` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Where one choice gives way to another."""

    before: str
    after: str
    at: float | None
    """Where their costs meet; None where a limit decides, or where values are words."""
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Costs over the values of one input."""

    path: str
    unit: CostUnit
    """What costs are of."""
    points: tuple[Point, ...]
    turns: tuple[Turn, ...]
    named: tuple[str, ...]
    """The machines whose costs are worth a curve."""
    workload: str = "training run"
    """Its name."""
    currency: str = DOLLAR
    """What the file's amounts are in."""
    usd_per_unit: float = 1.0


def vary_workload(
    path: Path,
    inputs: str,
    *,
    length: Length | None = None,
    measured: Sequence[str] = (),
    learned: LearnedCalibration = NOTHING_LEARNED,
    today: str = "",
    prices: PriceBook | None = None,
    progress: Progress = silent,
) -> Curves:
    """The plan of a workload file again and again with other values of one input.

    inputs: `sessions=1..12`, `data.size=1TB,2TB`: a key of the file and its values.
    length, measured, learned, today, prices: as of `load_workload` and `plan_workload`.
    """
    table = _table(path, length)
    variation = variation_of(inputs)
    _check_currency(variation, table, path)
    profile = cache(profile_for)  # one profile, one prediction of it

    @cache
    def evidence(step: Step) -> Evidence:
        return evidence_for(step, profile(step), learned, measured)

    def workload_at(value: Any) -> Workload:
        changed = with_value(table, variation.path, value)
        return workload_of(changed, "", f"{name_of(path)}, varied", path.parent)

    def plan_at(value: Any) -> Plan:
        workload = workload_at(value)
        step = workload.step
        with naming_line_of(path):
            return plan_workload(
                workload,
                profile(step),
                measured=measured,
                evidence=evidence(step),
                today=today,
                prices=prices,
            )

    for value in variation.values:  # what is wrong is said before anything is planned
        workload_at(value)
    curves = curves_of(variation, plan_at, progress=progress)
    return replace(curves, workload=str(table.get("name", curves.workload)))


def _check_currency(variation: Variation, table: dict[str, Any], path: Path) -> None:
    """Raise where amounts are in another currency than the file's."""
    currency = str(table.get("currency", "USD")).upper()
    if variation.currency not in ("", currency):
        raise InputError(
            f"--vary {variation.path} is in {variation.currency}, but {name_of(path)} counts in "
            f"{currency}.",
            fix=f"Give amounts in {currency}: --vary {variation.path}=50..100.",
        )


def _table(path: Path, length: Length | None) -> dict[str, Any]:
    """The tables of a workload file; of a measurement, those of its workload."""
    workload = load_workload(path, length)
    if workload_from_measurement(path.absolute(), length) is None:
        return parse_table(read_text(path, KIND), name_of(path))
    run = {
        "iterations": workload.length.iterations,
        "global_batch_size": workload.length.global_batch_size,
    }
    stated = {key: value for key, value in run.items() if value is not None}
    return {"name": workload.name, "step": {"profile": workload.step.profile}, "length": stated}


def curves_of(
    variation: Variation,
    plan_at: PlanAt,
    *,
    progress: Progress = silent,
) -> Curves:
    """The plan at every value, the machines worth a curve, and where the choice turns."""
    points, units, currencies = [], set(), set()
    total = len(variation.values)
    for place, value in enumerate(variation.values):
        number = variation.numbers[place]
        progress(f"{variation.path} = {value} ...", place, total)
        plan = plan_at(value)
        points.append(_point(value, number, plan))
        units.add(WHOLE if plan.ranked_by == "cost" else PER_MILLION)
        currencies.add(plan.currency)
    currency, rate = currencies.pop() if len(currencies) == 1 else (DOLLAR, 1.0)
    return Curves(
        currency=currency,
        usd_per_unit=rate,
        path=variation.path,
        unit=WHOLE if units == {WHOLE} else PER_MILLION,
        points=tuple(points),
        turns=tuple(_find_turns(points, variation, plan_at)),
        named=_worth_a_curve(points),
    )


def _point(value: Any, number: float | None, plan: Plan) -> Point:
    costs: dict[str, float] = {}
    ranked: dict[str, float] = {}
    for option in plan.options:
        if option.cost is not None and (option.sound or option.offer.quoted):
            kind = kind_of(option)
            costs[kind] = min(_usd(option, plan), costs.get(kind, math.inf))
            ranked[kind] = min(plan.measure_usd(option), ranked.get(kind, math.inf))
    chosen = plan.chosen
    return Point(
        value=value,
        number=number,
        chosen=None if chosen is None else kind_of(chosen),
        usd=None if chosen is None else _usd(chosen, plan),
        costs=costs,
        ranked=ranked,
    )


def _usd(option: Option, plan: Plan) -> float:
    """What an option costs: the run, or where runs do unequal work training a million samples."""
    if plan.ranked_by == "cost":
        return option.usd
    return option.training_usd_per_million_samples or math.inf


def kind_of(option: Option) -> str:
    """A machine at a provider, wherever it stands; the user's own by their names."""
    offer = option.offer
    kept = f", {option.keeping}" if option.keeping else ""
    if offer.owned is not None:
        return f"{offer.instance}{kept}"
    text = offer.instance if offer.quoted else f"{offer.gpus}x {offer.gpu}"
    tenancy = "" if text.endswith(option.tenancy) else f" {option.tenancy}"
    return f"{text} at {offer.provider}{tenancy}{kept}"


def _find_turns(points: Sequence[Point], variation: Variation, plan_at: PlanAt) -> Iterator[Turn]:
    for left, right in pairwise(points):
        before, after = left.chosen, right.chosen
        if before is None or after is None or before == after:
            continue
        at = _cost_crossing(left, right)
        if at is not None and not variation.is_whole:
            at = _cost_crossing(*_bisected(left, right, variation, plan_at))
        yield Turn(before=before, after=after, at=at, unit=variation.unit)


def _bisected(
    left: Point, right: Point, variation: Variation, plan_at: PlanAt
) -> tuple[Point, Point]:
    """The same two choices on both sides of a narrower interval."""
    for _ in range(HALVINGS):
        assert left.number is not None
        assert right.number is not None
        number = (left.number + right.number) / 2
        value = variation.written(number)
        middle = _point(value, number, plan_at(value))
        if middle.chosen == left.chosen:
            left = middle
        elif middle.chosen == right.chosen:
            right = middle
        else:
            break
    return left, right


def _cost_crossing(left: Point, right: Point) -> float | None:
    """Where the costs of two choices meet, on a straight line; None where they do not."""
    before, after = left.chosen or "", right.chosen or ""
    if left.number is None or right.number is None:
        return None
    ahead = left.ranked.get(after, math.inf) - left.ranked.get(before, math.inf)
    behind = right.ranked.get(before, math.inf) - right.ranked.get(after, math.inf)
    if not math.isfinite(ahead + behind) or ahead < 0 or behind < 0 or ahead + behind <= 0:
        return None
    return left.number + (right.number - left.number) * ahead / (ahead + behind)


def _worth_a_curve(points: Sequence[Point]) -> tuple[str, ...]:
    """What is chosen anywhere, the user's own, and the nearest others."""
    chosen = list(dict.fromkeys(point.chosen for point in points if point.chosen))
    middle = points[len(points) // 2].costs
    near = sorted(middle, key=lambda kind: middle[kind])
    return tuple(dict.fromkeys((*chosen, *near)))[:CURVES]
