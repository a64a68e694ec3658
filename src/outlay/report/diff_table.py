"""Two plans side by side: inputs that differ, both answers, and the lines that changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, time

from rich.padding import Padding
from rich.text import Text

from outlay.difference import Difference, InputChange, LineChange
from outlay.option import Option
from outlay.report.console import Page, table
from outlay.report.json import SCHEMA, Document, option_document
from outlay.report.plan_words import machine_of, place_of
from outlay.report.text import duration, usd


def print_difference(page: Page, names: tuple[str, str], found: Difference) -> None:
    """Print what changes from the first file to the second."""
    for line in difference_words(names, found):
        page.print(Text(line))
    for title, heads, rows in (
        ("Inputs", ("key", "first", "second"), list(map(_input_row, found.inputs))),
        ("Lines", ("", "line", "first", "second", "change"), list(map(_line_row, found.lines))),
    ):
        if rows:
            page.print()
            page.print(Text(title, style="bold"))
            right = heads[1:] if title == "Lines" else ()
            page.print(Padding(table(heads, rows, page.width - 2, right=right[1:]), (0, 0, 0, 2)))


def difference_words(names: tuple[str, str], found: Difference) -> Iterator[str]:
    """Both answers, the amount between them, and what became of the first."""
    pairs = zip(("First", "Second"), names, (found.before, found.after), strict=True)
    for place, name, option in pairs:
        yield f"{place}, {name}: {_answer(option)}"
    if found.before is None or found.after is None:
        return
    change = found.after.usd - found.before.usd
    sign = "+" if change >= 0 else ""
    yield (
        f"Amount: {sign}{usd(change)} ({usd(found.before.usd)} -> {usd(found.after.usd)}), "
        f"time {duration(found.before.busy_s)} -> {duration(found.after.busy_s)}."
    )
    stayed = found.stayed
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
    return change.key, _said(change.before), _said(change.after)


def _said(value: object) -> str:
    return "-" if value is None else str(value)


def _line_row(change: LineChange) -> tuple[str, ...]:
    sign = "+" if change.usd >= 0 else ""
    moved = "" if change.mark == "=" else f"{sign}{usd(change.usd)}"
    amounts = (change.before_usd, change.after_usd)
    return change.mark, change.name, *(usd(amount) if amount else "-" for amount in amounts), moved


def _plain(value: object) -> object:
    """A value of TOML as JSON can have it: a date as its text."""
    return value.isoformat() if isinstance(value, date | time) else value


def difference_document(names: tuple[str, str], found: Difference) -> Document:
    """`outlay diff --json`."""
    return {
        "schema": SCHEMA,
        "files": list(names),
        "inputs": [
            {"key": one.key, "before": _plain(one.before), "after": _plain(one.after)}
            for one in found.inputs
        ],
        "before": None if found.before is None else option_document(found.before),
        "after": None if found.after is None else option_document(found.after),
        "change_usd": None
        if found.before is None or found.after is None
        else found.after.usd - found.before.usd,
        "lines": [
            {
                "mark": one.mark,
                "name": one.name,
                "before_usd": one.before_usd,
                "after_usd": one.after_usd,
            }
            for one in found.lines
        ],
    }
