"""Where words and tables go: a terminal with its own width, or plain text when piped.

A table keeps what its reader cannot do without: where the width does not do, columns that may be
left out are left out and named below it, and what still does not fit is folded into more lines a
row. Nothing is cut.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import click
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from outlay.report.encoding import encoding_of, shown
from outlay.report.text import in_own_currency, own_symbol

PIPED_WIDTH = 120
"""Columns in which sentences are folded where no terminal says how wide it is."""
INDENT = 2
"""Columns by which what is below a title is moved to the right."""
NARROWEST_TEXT = 24
"""Characters a column of free text keeps before other columns are left out for it."""
_NARROWEST = 4
"""Columns of the narrowest page."""
_PIPED_TEXT = 40
"""As many where nobody says how wide the page is."""
_ANY_HEIGHT = 25
"""Lines of a page; without any, a terminal that is "dumb" is taken to be 80 columns wide."""
_UNBOUNDED = 1_000_000
"""Columns of a page that takes every table as wide as it is."""
_GAP = 2
"""Blanks between columns, and before what is folded."""


class Page:
    """Standard output: what is printed keeps the terminal's width and never reads as markup.

    Or standard error, where the output belongs to somebody else. COLUMNS says how wide it is, and
    without it the terminal does; piped, tables are as wide as they need.
    """

    def __init__(self, width: int | None = None, *, to_stderr: bool = False) -> None:
        self._to_stderr = to_stderr
        self.is_terminal = (sys.stderr if to_stderr else sys.stdout).isatty()
        stated = width or stated_columns() or (Console().width if self.is_terminal else None)
        self.width = stated or PIPED_WIDTH
        self._table_width = stated or _UNBOUNDED

    def print(self, item: RenderableType = "", *, indent: int = 0) -> None:
        """Print one text or table; without colour and trailing blanks where nobody watches."""
        if isinstance(item, Group):
            for part in item.renderables:
                self.print(part, indent=indent)
            return
        whole = self._table_width if isinstance(item, Table) else self.width
        buffer = _Buffer()
        buffer.encoding = encoding_of(sys.stderr if self._to_stderr else sys.stdout)
        console = Console(
            file=buffer,
            width=max(whole - indent, _NARROWEST),
            height=_ANY_HEIGHT,
            force_terminal=self.is_terminal,
            markup=False,
            highlight=False,
            no_color=None if self.is_terminal else True,
        )
        console.print(_written(item, console))
        lines = buffer.getvalue().splitlines()
        if not self.is_terminal:
            lines = [line.rstrip() for line in lines]
        text = "".join(f"{' ' * indent if line else ''}{line}\n" for line in lines)
        click.echo(shown(text, buffer.encoding), nl=False, err=self._to_stderr)

    def print_section(self, title: str, body: RenderableType) -> None:
        """Print a part of the page below its title, with a line before it."""
        self.print()
        self.print(Text(title, style="bold"))
        self.print(body, indent=INDENT)


class _Buffer(io.StringIO):
    """Text that is on its way to a stream with an encoding."""

    encoding = "utf-8"


def stated_columns() -> int | None:
    """The width of the page as COLUMNS says it; None where it says none."""
    stated = os.environ.get("COLUMNS", "")
    is_number = stated.isascii() and stated.isdigit() and len(stated) < len(str(_UNBOUNDED))
    return int(stated) or None if is_number else None


def _written(item: RenderableType, console: Console) -> RenderableType:
    """A text in the user's own currency and in what the encoding has; anything else as it is."""
    if not isinstance(item, (str, Text)):
        return item
    text = Text(item) if isinstance(item, str) else item
    if _as_written(text.plain, console.encoding) == text.plain:
        return text
    parts = list(text.render(console))  # one for each style
    return Text.assemble(
        *((_as_written(part.text, console.encoding), part.style or "") for part in parts),
        overflow=text.overflow,
    )


def _as_written(text: str, encoding: str) -> str:
    return shown(in_own_currency(text), encoding)


# --- tables ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """One column as it is laid out."""

    name: str
    """By which it is left out."""
    head: str
    cells: tuple[str, ...]
    is_right: bool
    is_text: bool
    """Whether it is folded by words, in the room that is left."""

    @property
    def width(self) -> int:
        """Of the widest cell."""
        return max(cell_len(cell) for cell in (self.head, *self.cells))

    @property
    def least(self) -> int:
        """Of what it needs at least."""
        return min(self.width, NARROWEST_TEXT) if self.is_text else self.width


class Table:
    """A table in the manner of command lines: upper-case heads, no boxes, numbers to the right."""

    def __init__(
        self, columns: Sequence[_Column], width: int, drop: Sequence[str], fold: Sequence[str]
    ) -> None:
        self._columns, self._width, self._drop, self._fold = columns, width, drop, fold

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines of the table, at the width it was made for or the console's."""
        is_bounded = options.max_width < _UNBOUNDED // 2
        width = min(self._width, options.max_width) if is_bounded else options.max_width
        columns = [self._as_written(column, options.encoding) for column in self._columns]
        kept = _kept(columns, width, self._drop)
        places = _places(_folded(kept, width, self._fold), width)
        for number in range(-1, len(self._columns[0].cells)):
            style = "bold" if number < 0 else ""
            for line in _row_lines(places, number, console):
                yield Text(line, style=style, no_wrap=True, overflow="ignore")
        for note in _left_out(columns, kept):
            yield from map(muted, _lines(shown(note, options.encoding), width, console))

    def _as_written(self, column: _Column, encoding: str) -> _Column:
        symbol = shown(own_symbol(), encoding).strip()
        return replace(
            column,
            head=shown(column.head.replace("$", symbol), encoding),
            cells=tuple(_as_written(cell, encoding) for cell in column.cells),
        )


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
    fold: Sequence[str] = (),
    wrap: str | None = None,
) -> Table:
    """A table; the column `wrap` holds free text, folded into the room that is left.

    `drop` are the columns that one can do without, the least needed first: where the width does
    not do they are left out in that order, and named below the table. What says which row it is,
    what it is ranked by and what speaks against it is none of them. If the rest is still too wide,
    those of `fold` go into a second line of each row, in that order; then the last ones do.
    """
    columns = [
        _Column(
            name=head,
            head=head.upper(),
            cells=tuple(str(row[place]) for row in rows),
            is_right=head in right,
            is_text=head == wrap,
        )
        for place, head in enumerate(heads)
    ]
    return Table(columns, width, drop, fold)


def _kept(columns: Sequence[_Column], width: int, drop: Sequence[str]) -> list[_Column]:
    """The columns there is room for, or that cannot be done without."""
    kept = list(columns)
    for name in drop:
        if _needed(kept) <= width:
            break
        kept = [column for column in kept if column.name != name]
    return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a column stands: in which line of a row, and how wide."""

    column: _Column
    line: int
    width: int


def _needed(columns: Sequence[_Column]) -> int:
    """The width of a line of columns, each as narrow as it can be."""
    return sum(column.least + _GAP for column in columns) - _GAP


def _folded(columns: Sequence[_Column], width: int, fold: Sequence[str]) -> list[list[_Column]]:
    """The columns in as many lines a row as they need."""
    first, second = list(columns), list[_Column]()
    for name in fold:
        if _needed(first) <= width:
            break
        second += [column for column in first if column.name == name]
        first = [column for column in first if column.name != name]
    lines = list(_filled(first, width, width - _GAP))
    if second:
        in_order = [column for column in columns if column in second]
        lines += _filled(in_order, width - _GAP, width - _GAP)
    return lines


def _filled(columns: Sequence[_Column], width: int, further: int) -> Iterator[list[_Column]]:
    """The columns in their order, as many in a line as there is room for."""
    line: list[_Column] = []
    for column in columns:
        if line and _needed([*line, column]) > width:
            yield line
            line, width = [], further
        line.append(column)
    yield line


def _places(lines: Sequence[Sequence[_Column]], width: int) -> list[_Place]:
    """Where the columns stand; what is folded is a little indented."""
    places = []
    for number, line in enumerate(lines):
        room = width - (_GAP if number else 0)
        free = room - _needed(line)
        for column in line:
            wide = min(column.width, _text_width(column, free, room), room)
            places.append(_Place(column=column, line=number, width=max(wide, 1)))
    return places


def _text_width(column: _Column, free: int, room: int) -> int:
    """The most a column of free text gets; another gets what it needs."""
    if not column.is_text:
        return column.width
    if room < _UNBOUNDED // 2:
        return column.least + max(free, 0)
    others = room - free - column.least
    return max(PIPED_WIDTH - (_UNBOUNDED - room) - others, _PIPED_TEXT)


def _row_lines(places: Sequence[_Place], number: int, console: Console) -> Iterator[str]:
    """The lines of one row, -1 for the heads; none for what is blank from the second on."""
    for line in range(places[-1].line + 1):
        here = [place for place in places if place.line == line]
        cells = [_lines(_text_of(place.column, number), place.width, console) for place in here]
        if line and not any(cell != [""] for cell in cells):
            continue
        for deep in range(max(map(len, cells))):
            parts = [
                _aligned(cell[deep] if deep < len(cell) else "", place)
                for cell, place in zip(cells, here, strict=True)
            ]
            yield (" " * (_GAP if line else 0) + (" " * _GAP).join(parts)).rstrip()


def _text_of(column: _Column, number: int) -> str:
    return column.head if number < 0 else column.cells[number]


def _aligned(text: str, place: _Place) -> str:
    blanks = " " * (place.width - cell_len(text))
    return blanks + text if place.column.is_right else text + blanks


def _lines(text: str, width: int, console: Console) -> list[str]:
    """A cell in lines of a width: between words where there are any."""
    if cell_len(text) <= width and "\n" not in text:
        return [text]
    return [line.plain.rstrip() for line in Text(text).wrap(console, width, overflow="fold")]


def _left_out(columns: Sequence[_Column], kept: Sequence[_Column]) -> Iterator[str]:
    """Which columns there was no room for, and how to see them; a bar without a head is no loss."""
    names = ", ".join(column.head for column in columns if column.head and column not in kept)
    if names:
        wide = f"A page {_needed(columns)} wide shows all, as `| less -S` does."
        yield f"Left out here: {names}. {wide}"


def muted(text: str) -> Text:
    """Text of the second rank."""
    return Text(text, style="dim")


class _Bullets:
    """A list of remarks; what is folded stands under its words, not under the dash."""

    def __init__(self, lines: Iterable[str], style: str) -> None:
        self._lines, self._style = list(lines), style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width - 2, 1)
        for line in self._lines:
            folded = _lines(_as_written(line, options.encoding), width, console)
            for number, part in enumerate(folded):
                yield Text(f"{'  ' if number else '- '}{part}", style=self._style)


def bullets(lines: Iterable[str], style: str = "dim") -> RenderableType:
    """A list of remarks."""
    return _Bullets(lines, style)
