"""Plans against each other, in words, tables and JSON.

`outlay diff`: two plans side by side, the inputs that differ, both answers, the lines that changed.
`outlay plan --vary`: costs over the values of one input, and where the choice turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from outlay.currency import DOLLAR
from outlay.plan.difference import Difference, InputChange, LineChange, Mark
from outlay.plan.option import Option
from outlay.plan.vary import CostUnit, Curves, Point, Turn
from outlay.report.console import INDENT, Page, Table, muted, table
from outlay.report.documents import Document, OptionDocument, copied, option_document
from outlay.report.plan import machine_of, place_of
from outlay.report.text import duration, usd


def print_difference(page: Page, names: tuple[str, str], difference: Difference) -> None:
    """Print what changes from the first file to the second."""
    for line in difference_words(names, difference):
        page.print(Text(line))
    for title, heads, rows in (
        ("Inputs", ("key", "first", "second"), list(map(_input_row, difference.inputs))),
        (
            "Lines",
            ("", "line", "first", "second", "change"),
            list(map(_line_row, difference.lines)),
        ),
    ):
        if rows:
            right = heads[2:] if title == "Lines" else ()
            page.print_section(title, table(heads, rows, page.width - INDENT, right=right))


def difference_words(names: tuple[str, str], difference: Difference) -> Iterator[str]:
    """Both answers, the amount between them, and what became of the first."""
    pairs = zip(("First", "Second"), names, (difference.before, difference.after), strict=True)
    for place, name, option in pairs:
        yield f"{place}, {name}: {_answer(option)}"
    before, after = difference.before, difference.after
    if before is None or after is None:
        return
    change = after.usd - before.usd
    sign = "+" if change >= 0 else ""
    yield (
        f"Amount: {sign}{usd(change)} ({usd(before.usd)} -> {usd(after.usd)}), "
        f"time {duration(before.busy_s)} -> {duration(after.busy_s)}."
    )
    stayed = difference.stayed
    if stayed is not None and stayed.why_not is not None:
        yield f"The first choice, in the second file: {_answer(stayed)} ({stayed.why_not})"


def _answer(option: Option | None) -> str:
    if option is None:
        return "no option satisfies the limits."
    cost = "no price known" if option.cost is None else usd(option.usd)
    return (
        f"{machine_of(option)} at {place_of(option)}, {option.tenancy}: {cost} in "
        f"{duration(option.busy_s)}."
    )


def _input_row(change: InputChange) -> tuple[str, str, str]:
    return change.key, _value_text(change.before), _value_text(change.after)


def _value_text(value: object) -> str:
    return "-" if value is None else str(value)


def _line_row(change: LineChange) -> tuple[str, ...]:
    sign = "+" if change.usd >= 0 else ""
    moved = "" if change.mark == "=" else f"{sign}{usd(change.usd)}"
    amounts = (change.before_usd, change.after_usd)
    return change.mark, change.name, *(usd(amount) if amount else "-" for amount in amounts), moved


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChangeDocument:
    """A line of the two bills: new (+), gone (-), changed (~) or the same (=)."""

    mark: Mark
    name: str
    before_usd: float
    after_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceDocument(Document):
    """What another workload file changes."""

    files: Sequence[str]
    inputs: Sequence[InputChange]
    before: OptionDocument | None
    after: OptionDocument | None
    change_usd: float | None
    lines: Sequence[LineChangeDocument]


def difference_document(names: tuple[str, str], difference: Difference) -> DifferenceDocument:
    """`outlay diff --json`."""
    before, after = difference.before, difference.after
    return DifferenceDocument(
        files=names,
        inputs=difference.inputs,
        before=None if before is None else option_document(before),
        after=None if after is None else option_document(after),
        change_usd=None if before is None or after is None else after.usd - before.usd,
        lines=[copied(LineChangeDocument, line) for line in difference.lines],
    )


# Curves: where the choice turns, a table, and a drawing in characters.


HEIGHT, WIDTH = 12, 64
LETTERS = "ABCDEFGH"


def _unit(curves: Curves) -> str:
    """What the costs are in and of: `EUR for training a million samples`."""
    is_own = curves.currency != DOLLAR
    return curves.unit.replace("dollars", curves.currency) if is_own else curves.unit


def print_curves(page: Page, name: str, curves: Curves) -> None:
    """Print where the choice turns, the table, and the drawing."""
    page.print(Text(f"{name}: {curves.path} from {_ends(curves)}; {_unit(curves)}"))
    for line in turn_sentences(curves):
        page.print(Text(line))
    page.print()
    page.print(_table(curves, page.width - INDENT), indent=INDENT)
    page.print()
    for letter, kind in zip(LETTERS, curves.named, strict=False):
        page.print(Text(f"  {letter}  {kind}"))
    drawn = list(_drawing(curves))
    if drawn:
        page.print()
    for line in drawn:
        page.print(muted(line))


def _ends(curves: Curves) -> str:
    return f"{_shown(curves.points[0])} to {_shown(curves.points[-1])}"


def _shown(point: Point) -> str:
    return f"{point.value:g}" if isinstance(point.value, int | float) else str(point.value)


def turn_sentences(curves: Curves) -> Iterator[str]:
    """The choice from value to value, in words."""
    last: str | None = ""
    for point in curves.points:
        if point.chosen != last:
            choice = point.chosen or "nothing satisfies the limits"
            cost = "" if point.usd is None else f", {usd(point.usd)}"
            yield f"From {_shown(point)}: {choice}{cost}."
            last = point.chosen
    for turn in curves.turns:
        if turn.at is not None:
            at = f"{turn.at:,.0f}" if turn.at >= 1000 else f"{turn.at:.3g}"
            yield f"{turn.before} and {turn.after} cost the same at about {at}{turn.unit}."


def _table(curves: Curves, width: int) -> Table:
    heads = [curves.path.rpartition(".")[2], "chosen", *LETTERS[: len(curves.named)]]
    rows = []
    for point in curves.points:
        letter = "-"
        if point.chosen in curves.named:
            letter = LETTERS[curves.named.index(point.chosen)]
        costs = [_cost(point, kind) for kind in curves.named]
        rows.append((_shown(point), letter, *costs))
    return table(heads, rows, width, right=(heads[0], *heads[2:]), drop=tuple(reversed(heads[4:])))


def _cost(point: Point, kind: str) -> str:
    return usd(point.costs.get(kind))


def _drawing(curves: Curves) -> Iterator[str]:
    """The costs over the values, a letter for each machine; the first letter hides the others.

    What costs many times more than the rest is left out, so that the rest can be told apart.
    """
    points = [point for point in curves.points if point.number is not None]
    most = _tallest(curves)
    if len(points) < 3 or most <= 0:
        return
    numbers = [point.number or 0.0 for point in points]
    low, span = min(numbers), (max(numbers) - min(numbers)) or 1.0
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for place, kind in reversed(list(enumerate(curves.named))):
        for point, number in zip(points, numbers, strict=True):
            usd_there = point.costs.get(kind)
            if usd_there is not None and usd_there <= most:
                across = round((number - low) / span * (WIDTH - 1))
                grid[HEIGHT - 1 - round(usd_there / most * (HEIGHT - 1))][across] = LETTERS[place]
    for down, row in enumerate(grid):
        marked = down % 3 == 0 or down == HEIGHT - 1
        scale = usd(most * (HEIGHT - 1 - down) / (HEIGHT - 1)) if marked else ""
        yield f"{scale:>9} |{''.join(row).rstrip()}"
    yield f"{'':>9} +{'-' * WIDTH}"
    first, last = (_shown(min(points, key=_at)), _shown(max(points, key=_at)))
    yield f"{'':>11}{first}{last:>{WIDTH - len(first)}}"


def _at(point: Point) -> float:
    return point.number or 0.0


def _tallest(curves: Curves) -> float:
    """The dearest cost worth drawing: no more than eight times what is chosen anywhere."""
    chosen = [point.usd for point in curves.points if point.usd is not None]
    costs = [cost for point in curves.points for kind, cost in point.costs.items()
             if kind in curves.named]  # fmt: skip
    limit = 8 * max(chosen, default=0.0)
    return max((cost for cost in costs if cost <= limit), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointDocument:
    """The plan at one value: the choice, and what each machine worth a curve costs there."""

    value: Any
    chosen: str | None
    cost_usd: float | None
    costs_usd: Mapping[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvesDocument(Document):
    """Costs over the values of one input."""

    workload: str
    vary: str
    unit: CostUnit
    points: Sequence[PointDocument]
    turns: Sequence[Turn]


def curves_document(name: str, curves: Curves) -> CurvesDocument:
    """`outlay plan --vary --json`."""
    points = [
        PointDocument(
            value=point.value,
            chosen=point.chosen,
            cost_usd=point.usd,
            costs_usd={kind: point.costs.get(kind) for kind in curves.named},
        )
        for point in curves.points
    ]
    return CurvesDocument(
        workload=name, vary=curves.path, unit=curves.unit, points=points, turns=curves.turns
    )
