"""Two plans side by side: which inputs differ, what is chosen, and every line that changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from outlay.currency import DOLLAR
from outlay.errors import InputError
from outlay.files import name_of
from outlay.offers.price_book import PriceBook
from outlay.plan.from_measurement import measurement_at, profile_for
from outlay.plan.option import Option
from outlay.plan.pipeline import plan_workload
from outlay.plan.ranking import Plan
from outlay.predict.evidence import NOTHING_LEARNED, LearnedCalibration
from outlay.progress import Progress, silent
from outlay.workload.file import KIND, workload_of
from outlay.workload.toml import naming_line, parse_table, read_text

Mark = Literal["+", "-", "~", "="]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputChange:
    """A key of the files whose value differs; None where one has it not."""

    key: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChange:
    """A line of the two bills: new (+), gone (-), changed (~) or the same (=)."""

    name: str
    before_usd: float
    after_usd: float

    @property
    def mark(self) -> Mark:
        """How it changed, as in the diffs people know."""
        if self.before_usd == self.after_usd:
            return "="
        if not self.before_usd:
            return "+"
        if not self.after_usd:
            return "-"
        same = abs(self.after_usd - self.before_usd) < 0.005
        return "=" if same else "~"

    @property
    def usd(self) -> float:
        """By how much."""
        return self.after_usd - self.before_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What another workload file changes."""

    inputs: tuple[InputChange, ...]
    before: Option | None
    after: Option | None
    lines: tuple[LineChange, ...]
    stayed: Option | None
    """The first file's choice under the second file, where it is still there."""
    currency: str = DOLLAR
    """What the amounts of both files are in; dollars where they are not in the same."""
    usd_per_unit: float = 1.0


def compare_workloads(
    first: Path,
    second: Path,
    *,
    learned: LearnedCalibration = NOTHING_LEARNED,
    today: str = "",
    prices: PriceBook | None = None,
    progress: Progress = silent,
) -> Difference:
    """The plans of two workload files, and what the second changes.

    learned, today, prices: as of `plan_workload`.
    """
    tables, plans, profile = [], [], cache(profile_for)
    for path in (first, second):
        _check_is_workload(path)
        text = read_text(path, KIND)
        table = parse_table(text, name_of(path))
        workload = workload_of(table, text, name_of(path), path.parent)
        progress(f"Planning {name_of(path)} ...")
        with naming_line(text, name_of(path)):
            plan = plan_workload(
                workload, profile(workload.step), learned=learned, today=today, prices=prices
            )
        plans.append(plan)
        tables.append(table)
    return difference((tables[0], tables[1]), (plans[0], plans[1]))


def _check_is_workload(path: Path) -> None:
    """Raise where a measurement is given in the place of a workload file."""
    if measurement_at(str(path)) is not None:
        raise InputError(
            f"{path} is a measurement; diff compares workload files.",
            fix=f'Write one that names it, with [step] profile = "{path}", and compare that.',
        )


def difference(
    tables: tuple[Mapping[str, Any], Mapping[str, Any]], plans: tuple[Plan, Plan]
) -> Difference:
    """What changes from the first file to the second."""
    before, after = plans[0].chosen, plans[1].chosen
    (first, _), (currency, rate) = (plan.currency for plan in plans)
    if first != currency:
        currency, rate = DOLLAR, 1.0
    return Difference(
        currency=currency,
        usd_per_unit=rate,
        inputs=tuple(_changed(*tables)),
        before=before,
        after=after,
        lines=tuple(_lines(before, after)),
        stayed=None if before is None else _same_offer(before, plans[1]),
    )


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[InputChange]:
    left, right = dict(_flat(before)), dict(_flat(after))
    for key in dict.fromkeys((*left, *right)):
        if left.get(key) != right.get(key):
            yield InputChange(key=key, before=left.get(key), after=right.get(key))


def _flat(table: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of nested tables by its dotted key; repeated tables by their names."""
    if isinstance(table, Mapping):
        for key, value in table.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else key)
    elif isinstance(table, list) and table and isinstance(table[0], Mapping):
        for place, entry in enumerate(table, 1):
            title = entry.get("name") or entry.get("instance")
            words = (entry.get("provider"), title, entry.get("region"))
            name = " ".join(str(word) for word in words if word) or place
            yield from _flat(entry, f"{prefix}.{name}")
    else:
        yield prefix, table


def _lines(before: Option | None, after: Option | None) -> Iterator[LineChange]:
    left, right = _amounts(before), _amounts(after)
    for name in dict.fromkeys((*left, *right)):
        yield LineChange(name=name, before_usd=left.get(name, 0.0), after_usd=right.get(name, 0.0))


def _amounts(option: Option | None) -> dict[str, float]:
    if option is None or option.cost is None:
        return {}
    amounts: dict[str, float] = {}
    for line in option.cost.breakdown.lines:
        amounts[line.name] = amounts.get(line.name, 0.0) + float(line.usd)
    return amounts


def _same_offer(wanted: Option, plan: Plan) -> Option | None:
    return next(
        (
            option
            for option in plan.options
            if option.offer.identity == wanted.offer.identity
            and option.tenancy == wanted.tenancy
            and option.keeping == wanted.keeping
            and option.offer.commitment == wanted.offer.commitment
        ),
        None,
    )
