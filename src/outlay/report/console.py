"""Where tables go: a terminal with its own width, or plain text of a fixed width when piped."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 120


def console() -> Console:
    """The console of standard output; NO_COLOR and pipes are respected."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(width=PIPED_WIDTH, highlight=False, no_color=True)


def table(*heads: str, right: tuple[str, ...] = ()) -> Table:
    """A table in the manner of command lines: upper-case heads, no boxes, numbers to the right."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for head in heads:
        made.add_column(
            head.upper(),
            justify="right" if head in right else "left",
            no_wrap=True,
            overflow="ellipsis",
        )
    return made


def fitted(made: Table, width: int, least: tuple[str, ...]) -> Table:
    """The table without as many of its `least` important columns as the width demands."""
    for head in least:
        if _width(made) <= width:
            break
        keep = [column for column in made.columns if column.header != head.upper()]
        made.columns = keep
    return made


def _width(made: Table) -> int:
    """Characters of the widest row, two after each column."""
    widths = [
        max(len(str(cell)) for cell in (column.header, *column.cells)) for column in made.columns
    ]
    return sum(widths) + 2 * len(widths)


def muted(text: str) -> Text:
    """Text of the second rank."""
    return Text(text, style="dim")
