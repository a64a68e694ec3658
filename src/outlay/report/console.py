"""Where tables go: a terminal with its own width, or plain text of a fixed width when piped."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 120
INDENT = 2
"""Columns by which what is below a title is moved to the right."""
NARROWEST_TEXT = 24
"""Characters a column of free text keeps before other columns are left out for it."""


class Page:
    """Standard output: what is printed keeps the terminal's width and never reads as markup.

    Or standard error, where the output belongs to somebody else.
    """

    def __init__(self, width: int | None = None, *, to_stderr: bool = False) -> None:
        self._to_stderr = to_stderr
        self.is_terminal = (sys.stderr if to_stderr else sys.stdout).isatty()
        self.width = width or (Console().width if self.is_terminal else PIPED_WIDTH)

    def print(self, item: RenderableType = "") -> None:
        """Print one text or table; without colour and trailing blanks where nobody watches."""
        buffer = io.StringIO()
        console = Console(
            file=buffer,
            width=self.width,
            force_terminal=self.is_terminal,
            markup=False,
            highlight=False,
            no_color=None if self.is_terminal else True,
        )
        console.print(item)
        lines = buffer.getvalue().splitlines()
        text = buffer.getvalue() if self.is_terminal else "".join(f"{x.rstrip()}\n" for x in lines)
        click.echo(text, nl=False, err=self._to_stderr)

    def print_section(self, title: str, body: RenderableType) -> None:
        """Print a part of the page below its title, with a line before it."""
        self.print()
        self.print(Text(title, style="bold"))
        self.print(Padding(body, (0, 0, 0, INDENT)))


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
    wrap: str | None = None,
) -> Table:
    """A table in the manner of command lines: upper-case heads, no boxes, numbers to the right.

    Where the width does not do, the columns of `drop` are left out in that order; figures are
    never cut. The column `wrap` holds free text and is folded into the room that is left.
    """
    columns = _fitting_columns(heads, rows, width, drop, wrap)
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index in columns:
        folded = heads[index] == wrap
        made.add_column(
            heads[index].upper(),
            justify="right" if heads[index] in right else "left",
            no_wrap=not folded,
            overflow="fold",
            min_width=None if folded else _widths(heads, rows)[index],
        )
    for row in rows:
        made.add_row(*(row[index] for index in columns))
    return made


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [
        max(Text(str(cell)).cell_len for cell in column)
        for column in zip(heads, *rows, strict=True)
    ]


def _fitting_columns(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    drop: Sequence[str],
    wrap: str | None,
) -> list[int]:
    """The columns that fit, by index."""
    widths = _widths(heads, rows)
    if wrap is not None:
        folded = heads.index(wrap)
        widths[folded] = min(widths[folded], NARROWEST_TEXT)
    columns = list(range(len(heads)))
    for head in drop:
        if sum(widths[index] + 2 for index in columns) - 2 <= width:
            break
        columns = [index for index in columns if heads[index] != head]
    return columns


def muted(text: str) -> Text:
    """Text of the second rank."""
    return Text(text, style="dim")


def bullets(lines: Iterable[str], style: str = "dim") -> Table:
    """A list of remarks; what is folded stands under its words, not under the dash."""
    made = Table.grid(padding=(0, 1, 0, 0))
    made.add_column(width=1)
    made.add_column(overflow="fold")
    for line in lines:
        made.add_row(Text("-", style=style), Text(line, style=style))
    return made
