"""Curves as a person reads them: where the choice turns, a table, and a drawing in characters."""

from __future__ import annotations

from collections.abc import Iterator

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outlay.report.console import Page, muted, table
from outlay.report.json import SCHEMA, Document
from outlay.report.text import usd
from outlay.vary import Curves, Point

HEIGHT, WIDTH = 12, 64
LETTERS = "ABCDEFGH"


def print_curves(page: Page, name: str, curves: Curves) -> None:
    """Print where the choice turns, the table, and the drawing."""
    page.print(Text(f"{name}: {curves.path} from {_ends(curves)}; {curves.unit}"))
    for line in turns(curves):
        page.print(Text(line))
    page.print()
    page.print(Padding(_table(curves, page.width - 2), (0, 0, 0, 2)))
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


def turns(curves: Curves) -> Iterator[str]:
    """The choice from value to value, in words."""
    last: str | None = ""
    for point in curves.points:
        if point.chosen != last:
            said = point.chosen or "nothing satisfies the limits"
            cost = "" if point.usd is None else f", {usd(point.usd)}"
            yield f"From {_shown(point)}: {said}{cost}."
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


def curves_document(name: str, curves: Curves) -> Document:
    """`outlay plan --vary --json`."""
    return {
        "schema": SCHEMA,
        "workload": name,
        "vary": curves.path,
        "unit": curves.unit,
        "points": [
            {
                "value": point.value,
                "chosen": point.chosen,
                "cost_usd": point.usd,
                "costs_usd": {kind: point.costs.get(kind) for kind in curves.named},
            }
            for point in curves.points
        ],
        "turns": [
            {"before": turn.before, "after": turn.after, "at": turn.at, "unit": turn.unit}
            for turn in curves.turns
        ],
    }
