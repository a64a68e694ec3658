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
    if len(curves.points) > 2:
        page.print()
        for line in _drawing(curves):
            page.print(muted(line))


def _ends(curves: Curves) -> str:
    return f"{_shown(curves.points[0])} to {_shown(curves.points[-1])}"


def _shown(point: Point) -> str:
    return f"{point.value:g}" if isinstance(point.value, int | float) else str(point.value)


def turns(curves: Curves) -> Iterator[str]:
    """The choice from value to value, in words."""
    last: str | None = None
    for point in curves.points:
        if point.chosen != last:
            said = point.chosen or "nothing satisfies the limits"
            cost = "" if point.usd is None else f", {usd(point.usd)}"
            yield f"From {_shown(point)}: {said}{cost}."
            last = point.chosen
    for turn in curves.turns:
        yield f"{turn.before} and {turn.after} cost the same at about {turn.at:.3g}."


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
    """The costs over the values, a letter for each machine; the lowest hides the others."""
    points = curves.points
    known = [point.costs.get(kind) for point in points for kind in curves.named]
    amounts = [amount for amount in known if amount is not None]
    if not amounts:
        return
    most = max(amounts)
    low, high = points[0].number, points[-1].number
    span = (high - low) or 1.0
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for place, kind in reversed(list(enumerate(curves.named))):
        for point in points:
            if kind in point.costs:
                across = round((point.number - low) / span * (WIDTH - 1))
                down = HEIGHT - 1 - round(point.costs[kind] / most * (HEIGHT - 1))
                grid[down][across] = LETTERS[place]
    for down, row in enumerate(grid):
        marked = down % 3 == 0 or down == HEIGHT - 1
        scale = usd(most * (HEIGHT - 1 - down) / (HEIGHT - 1)) if marked else ""
        yield f"{scale:>9} |{''.join(row).rstrip()}"
    yield f"{'':>9} +{'-' * WIDTH}"
    yield f"{'':>11}{_shown(points[0])}{_shown(points[-1]):>{WIDTH - len(_shown(points[0]))}}"


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
            {"before": turn.before, "after": turn.after, "at": turn.at} for turn in curves.turns
        ],
    }
