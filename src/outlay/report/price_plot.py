"""What prices did as a picture: characters in a terminal, or a file.

`terminal_chart` draws the cheapest price as a line and the middle of all providers as dots, in
braille characters or plain ASCII. `write_history_plot` takes the form from the file's ending:
`.html` is one file without scripts or anything from elsewhere (light and dark, wide and narrow),
`.svg` the picture alone, `.png` needs matplotlib. All draw the same: all providers together, and
each by itself.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.prices.history import GoodTime, PriceHistory, PricePoint, PriceSeries, RentTenancy
from outlay.report.encoding import encoding_of, is_unicode
from outlay.report.price_report import (
    TENANCY_WORDS,
    ProviderYear,
    drawn_tenancies,
    good_time_words,
    history_cells,
    history_notes,
    history_title,
    line_words,
    provider_years,
)
from outlay.report.svg import (
    DPI,
    INK,
    LINE,
    SOFT,
    STYLE,
    Layout,
    check_plot_path,
    drawing,
    for_widths,
    line,
    page,
    text,
    ticks,
    write_picture,
)
from outlay.report.text import counted, usd

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_HEADROOM = 1.08


def day_number(time: str) -> int:
    """The number of a day, so that days lie evenly on an axis."""
    return date.fromisoformat(time[:10]).toordinal()


def span(history: PriceHistory, tenancies: Iterable[RentTenancy]) -> tuple[int, int]:
    """The first and the last day of all series, by number."""
    days = [day_number(point.at) for each in tenancies for point in history.of(each).points]
    first, last = min(days), max(days)
    return first, max(last, first + 1)


def stretches(series: PriceSeries) -> Iterator[list[PricePoint]]:
    """Points that follow each other without a gap in what is known."""
    run: list[PricePoint] = []
    for point in series.points:
        if run and day_number(point.at) - day_number(run[-1].current_until) > 1:
            yield run
            run = []
        run.append(point)
    if run:
        yield run


# In a terminal


_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by row and column (Unicode 15, chapter 21.1)."""
_BRAILLE = 0x2800
CHART_ROWS = 9
WIDEST_CHART = 110
_LABEL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Glyphs:
    """What a chart is drawn with."""

    across: int
    """Dots of a character from left to right, and from top to bottom."""
    down: int
    middle: str
    side: str
    foot: str
    mark: str
    corner: str

    def cell(self, bits: int) -> str:
        """The character of a cell with dots."""
        return chr(_BRAILLE + bits) if self.across > 1 else "*"


_UNICODE = _Glyphs(across=2, down=4, middle="·", side="│", foot="─", mark="┬", corner="└")
_ASCII = _Glyphs(across=1, down=1, middle=".", side="|", foot="-", mark="+", corner="+")


def terminal_chart(
    series: PriceSeries, days: tuple[int, int], width: int, *, ascii_only: bool = False
) -> list[str]:
    """A chart of one series as lines of text: the cheapest as a line, the middle as dots."""
    glyphs = _ASCII if ascii_only else _UNICODE
    columns = max(min(width, WIDEST_CHART) - _LABEL - 2, 10)
    top = _top(point.median_usd_per_gpu_hour for point in series.points)
    cheapest = _heights(series, days, columns * glyphs.across, top, CHART_ROWS * glyphs.down)
    bits = _cells(cheapest, glyphs)
    middle = _middle_cells(series, days, columns, top)
    rows = []
    for row in range(CHART_ROWS):
        label = _row_labels(top).get(row, "")
        cells = (
            glyphs.cell(bits[(row, column)])
            if (row, column) in bits
            else (glyphs.middle if (row, column) in middle else " ")
            for column in range(columns)
        )
        rows.append(f"{label:>{_LABEL}} {glyphs.side}{''.join(cells)}".rstrip())
    return [*rows, *_foot(days, columns, glyphs)]


def _top(values: Iterable[float]) -> float:
    return max(values) * _HEADROOM


def _row_labels(top: float) -> dict[int, str]:
    """Round prices at the rows they lie in."""
    return {
        min(int((1 - value / top) * CHART_ROWS), CHART_ROWS - 1): f"${value:g}"
        for value in ticks(top, 4)[1:]
    }


def _value_at(series: PriceSeries, number: float) -> PricePoint | None:
    return series.current(date.fromordinal(int(number)).isoformat())


def _heights(
    series: PriceSeries, days: tuple[int, int], columns: int, top: float, rows: int
) -> list[int | None]:
    """The row of the cheapest price in each column of dots, from the top; None where unknown."""
    first, last = days
    heights: list[int | None] = []
    for column in range(columns):
        point = _value_at(series, first + (last - first) * column / max(columns - 1, 1))
        share = None if point is None else point.cheapest_usd_per_gpu_hour / top
        heights.append(None if share is None else min(int((1 - share) * rows), rows - 1))
    return heights


def _cells(heights: Sequence[int | None], glyphs: _Glyphs) -> dict[tuple[int, int], int]:
    """The dots of each cell: a line that goes up and down where the price does."""
    bits: dict[tuple[int, int], int] = {}
    before: int | None = None
    for column, height in enumerate(heights):
        if height is not None:
            low, high = sorted((height, height if before is None else before))
            for row in range(low, high + 1):
                cell = (row // glyphs.down, column // glyphs.across)
                dot = _DOTS[row % glyphs.down][column % glyphs.across]
                bits[cell] = bits.get(cell, 0) | dot
        before = height
    return bits


def _middle_cells(
    series: PriceSeries, days: tuple[int, int], columns: int, top: float
) -> set[tuple[int, int]]:
    first, last = days
    cells = set()
    for column in range(columns):
        point = _value_at(series, first + (last - first) * column / max(columns - 1, 1))
        if point is not None:
            share = point.median_usd_per_gpu_hour / top
            cells.add((min(int((1 - share) * CHART_ROWS), CHART_ROWS - 1), column))
    return cells


def _foot(days: tuple[int, int], columns: int, glyphs: _Glyphs) -> list[str]:
    """The axis of time, with a mark at the start of each year, and names where there is room."""
    first, last = days
    marks, names = [glyphs.foot] * columns, [" "] * columns
    for number, name in time_names(first, last):
        column = round((number - first) / (last - first) * (columns - 1))
        marks[column] = glyphs.mark
        begin = min(column, columns - len(name))
        if not "".join(names[max(begin - 1, 0) : begin + len(name) + 1]).strip():
            names[begin : begin + len(name)] = name
    rule = f"{'$0':>{_LABEL}} {glyphs.corner}{''.join(marks)}"
    return [rule, f"{'':>{_LABEL}}  {''.join(names)}".rstrip()]


def time_names(first: int, last: int) -> list[tuple[int, str]]:
    """Days to name on an axis: the last by its month, each new year, then the first."""
    begin, end = date.fromordinal(first), date.fromordinal(last)
    years = [
        (date(year, 1, 1).toordinal(), str(year)) for year in range(begin.year + 1, end.year + 1)
    ]
    return [(last, end.isoformat()[:7]), *years, (first, begin.isoformat()[:7])]


def needs_ascii() -> bool:
    """Whether standard output cannot show braille: not Unicode, or a console without the font."""
    return not is_unicode(encoding_of(sys.stdout)) or os.environ.get("TERM") in ("linux", "dumb")


# As a file: the same lines in SVG and by matplotlib


COLOURS = (
    "#4269d0", "#ff725c", "#4fb8a0", "#efb118", "#a463f2", "#9c6b4e", "#e45fa5", "#3ca951",
    "#7a8ca5", "#c05f2e",
)  # fmt: skip
"""Of providers that sell it now, the cheapest first; the others are grey."""
GREY = "#b9c0ca"


WIDE = Layout(width=1080, height=380, left=52, right=150)
NARROW = Layout(width=360, height=300, left=40, right=10, are_named=False)
_LINE_HEIGHT = 15
_LETTER = 7.2
"""About the width of a figure on an axis."""

_PLOT_STYLE = """
.all { fill: none; stroke: var(--ink); stroke-width: 2.6; stroke-linejoin: round; }
.mid { fill: none; stroke: var(--ink); stroke-width: 1.6; stroke-dasharray: 2 4; }
.one { fill: none; stroke-width: 1.7; stroke-linejoin: round; }
.old { fill: none; stroke: var(--soft); stroke-width: 1; stroke-opacity: .38; }
.grey { fill: var(--soft); fill-opacity: .45; }
.dot:hover { stroke: var(--ink); stroke-width: 2; }
"""
_PAGE_STYLE = """
h1 { font-size: 20px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 6px; }
p { margin: 4px 0; max-width: 76ch; } .note { color: var(--soft); }
.key { display: inline-block; margin-right: 18px; color: var(--soft); }
.key svg { display: inline-block; width: 30px; height: 10px; vertical-align: middle; }
@media (max-width: 700px) { body { font-size: 15px; } .less { display: none; } }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin-top: 10px; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 4px 12px 4px 0; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 500; }
td { white-space: nowrap; }
@media (max-width: 700px) { td.wrap { white-space: normal; } th, td { padding-right: 9px; } }
td i { display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin-right: 7px; }
"""


def check_history_path(path: Path) -> None:
    """Refuse at once what could not be written."""
    check_plot_path(path, with_svg=True)


def write_history_plot(
    path: Path, history: PriceHistory, times: Sequence[GoodTime], today: str, since: str = ""
) -> None:
    """Write the picture in the form the file's ending names, drawn from a day or month on."""
    shown = history.between(since, "")
    write_picture(
        path,
        partial(history_html, history, shown, times, today),
        partial(history_png, shown),
        partial(history_svg, shown),
    )


def colours_of(history: PriceHistory) -> dict[str, str]:
    """A colour for each provider that sells it now, as long as there are any: the same in all."""
    sellers = dict.fromkeys(
        year.provider
        for tenancy in drawn_tenancies(history)
        for year in provider_years(history, tenancy)
        if year.is_current and year.provider
    )
    return dict(zip(sellers, COLOURS, strict=False))


def current_series(history: PriceHistory, tenancy: RentTenancy) -> list[PriceSeries]:
    """The series that have a colour and a name: of those who sell it now, the dearest first."""
    years = provider_years(history, tenancy)
    sellers = {year.provider for year in years if year.is_current} & set(colours_of(history))
    series = [one for one in history.providers(tenancy) if one.provider in sellers]
    return sorted(series, key=lambda one: -one.points[-1].cheapest_usd_per_gpu_hour)


def history_html(
    history: PriceHistory, shown: PriceHistory, times: Sequence[GoodTime], today: str
) -> str:
    """The whole page: a chart and a table for each tenancy, and whether now is a good time.

    `shown` is the part of the history that is drawn.
    """
    title = history_title(shown)
    parts = [f"<h1>{escape(title)}</h1>", _key(shown)]
    for tenancy in drawn_tenancies(shown):
        years = provider_years(history, tenancy)
        parts += [
            f"<h2>{TENANCY_WORDS[tenancy]}</h2>",
            for_widths(partial(tenancy_svg, shown, tenancy), WIDE, NARROW),
            _table(years, colours_of(shown)),
        ]
    if times:
        parts.append("<h2>Is now a good time?</h2>")
    for time in times:
        parts += [f"<p>{escape(words)}</p>" for words in good_time_words(time)]
        parts.append("<br/>")
    parts += [f'<p class="note">{escape(note)}</p>' for note in history_notes(history, today)]
    return page(title, "\n".join(parts), _PLOT_STYLE + _PAGE_STYLE)


def _key(history: PriceHistory) -> str:
    """What the lines are."""
    samples = zip(("all", "mid"), line_words(history), strict=True)
    lines = "".join(
        f'<span class="key"><svg viewBox="0 0 30 10"><path class="{name}" d="M0 5H30"/></svg> '
        f"{words}</span>"
        for name, words in samples
    )
    rest = "" if history.provider else f'<span class="key">{_ONE_PROVIDER}</span>'
    return f"<p>{lines}{rest}</p>"


def _table(years: Sequence[ProviderYear], colours: dict[str, str]) -> str:
    heads = ("cheapest at", "year ago", "lowest", "highest", "now", "change", "middle", "as of")
    head = "".join(f'<th class="{_cell_class(name)}">{name}</th>' for name in heads)
    rows = []
    for year in years:
        if year.is_current:
            colour = colours.get(year.provider)
            spot = f'<i style="background:{colour}"></i>' if colour else ""
            cells = history_cells(year)[:8]
            rest = "".join(
                f'<td class="{_cell_class(name)}">{escape(cell)}</td>'
                for name, cell in list(zip(heads, cells, strict=True))[1:]
            )
            rows.append(f"<tr><td>{spot}{escape(cells[0])}</td>{rest}</tr>")
    return f'<div class="scroll"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _cell_class(head: str) -> str:
    """What a narrow page leaves out, and where it breaks a line."""
    if head in ("middle", "as of"):
        return "less"
    return "wrap" if head in ("lowest", "highest") else ""


def history_svg(history: PriceHistory) -> str:
    """The picture alone, as XML: one chart below another, with its own style."""
    drawn = drawn_tenancies(history)
    height = WIDE.height + 26
    parts = [
        f"<style>{STYLE}{_PLOT_STYLE}</style>",
        text(WIDE.left, 24, history_title(history), "title"),
    ]
    for number, tenancy in enumerate(drawn):
        top = 44 + number * height
        parts.append(text(WIDE.left, top + 10, TENANCY_WORDS[tenancy], "strong"))
        body = "\n".join(_PriceDrawing(history, tenancy, WIDE).parts())
        parts.append(f'<g transform="translate(0 {top + 6})">{body}</g>')
    whole = 44 + len(drawn) * height + 24
    parts.append(text(WIDE.left, whole - 8, _legend_words(history), "soft"))
    return drawing(WIDE.width, whole, history_title(history), parts)


_ONE_PROVIDER = "thin: the cheapest of one provider, grey where no current price is known"


def _legend_words(history: PriceHistory) -> str:
    cheapest, middle = line_words(history)
    rest = "" if history.provider else f"; {_ONE_PROVIDER}"
    return f"thick: {cheapest}; dotted: {middle}{rest}"


def tenancy_svg(history: PriceHistory, tenancy: RentTenancy, layout: Layout) -> str:
    """The chart of one tenancy."""
    about = f"{TENANCY_WORDS[tenancy]}: {history_title(history)}"
    made = _PriceDrawing(history, tenancy, layout)
    return drawing(layout.width, layout.height, about, made.parts())


def highest_usd(history: PriceHistory, tenancy: RentTenancy) -> float:
    """The highest price that is drawn."""
    return max(
        max(point.cheapest_usd_per_gpu_hour, point.median_usd_per_gpu_hour)
        if not series.provider
        else point.cheapest_usd_per_gpu_hour
        for series in (history.of(tenancy), *history.providers(tenancy))
        for point in series.points
    )


class _PriceDrawing:
    """A history and its scales; each method draws one part."""

    def __init__(self, history: PriceHistory, tenancy: RentTenancy, layout: Layout) -> None:
        self.history, self.tenancy, self.layout = history, tenancy, layout
        self.first, self.last = span(history, drawn_tenancies(history))
        self.end = end_of_axis(self.first, self.last)
        self.top_usd = highest_usd(history, tenancy) * _HEADROOM
        self.colours = colours_of(history)
        self.current = current_series(history, tenancy)

    def parts(self) -> list[str]:
        """From the back to the front."""
        together = self.history.of(self.tenancy)
        return [
            *self.grid(),
            *(part for one in self.history.providers(self.tenancy) for part in self.provider(one)),
            *self.middle(together),
            *(f'<path class="all" d="{path}"/>' for path in self.paths(together)),
            *self.dots(together, "var(--ink)"),
            *self.names(),
        ]

    def x(self, number: int) -> float:
        """Across, by the number of a day."""
        layout = self.layout
        share = (min(number, self.end) - self.first) / (self.end - self.first)
        return layout.left + share * (layout.width - layout.left - layout.right)

    def y(self, price_usd: float) -> float:
        """Down: $0 at the foot."""
        layout = self.layout
        height = layout.height - layout.top - layout.bottom
        return layout.height - layout.bottom - price_usd / self.top_usd * height

    def grid(self) -> list[str]:
        """Lines and numbers of both axes."""
        layout, parts = self.layout, []
        foot = layout.height - layout.bottom
        for value in ticks(self.top_usd, 6):
            y = self.y(value)
            parts.append(line(layout.left, y, layout.width - layout.right, y, "grid"))
            parts.append(text(layout.left - 6, y + 4, f"${value:g}", "soft end"))
        free_to = float(layout.width)
        for number, name in sorted(time_names(self.first, self.last), reverse=True):
            x, width = self.x(number), _LETTER * len(name)
            left = max(min(x - width / 2, layout.width - layout.right - width), 2)
            parts.append(line(x, foot, x, foot + 4, "grid"))
            if left + width < free_to - 6:
                parts.append(text(left, foot + 18, name, "soft"))
                free_to = left
        return parts

    def paths(self, series: PriceSeries) -> list[str]:
        """The cheapest price as steps, one path for each stretch that is known."""
        return [self._steps(run, "cheapest_usd_per_gpu_hour") for run in stretches(series)]

    def _steps(self, run: Sequence[PricePoint], field: str) -> str:
        words: list[str] = []
        for point in run:
            y = self.y(getattr(point, field))
            x = self.x(day_number(point.at))
            words.append(f"H{x:.1f}V{y:.1f}" if words else f"M{x:.1f} {y:.1f}")
        return "".join([*words, f"H{self.x(day_number(run[-1].current_until)):.1f}"])

    def middle(self, series: PriceSeries) -> list[str]:
        """The middle of all providers, dotted."""
        return [
            f'<path class="mid" d="{self._steps(run, "median_usd_per_gpu_hour")}"/>'
            for run in stretches(series)
        ]

    def provider(self, series: PriceSeries) -> list[str]:
        """One provider's line, and a dot for each time its list was seen."""
        colour = self.colours[series.provider] if series in self.current else None
        style = f'class="one" stroke="{colour}"' if colour else 'class="old"'
        paths = [f'<path {style} d="{path}"/>' for path in self.paths(series)]
        return [*paths, *self.dots(series, colour)]

    def dots(self, series: PriceSeries, colour: str | None) -> list[str]:
        """Points that tell of themselves; without a colour, grey."""
        style = f'class="dot" fill="{colour}"' if colour else 'class="dot grey"'
        return [
            f'<circle {style} cx="{self.x(day_number(point.at)):.1f}" '
            f'cy="{self.y(point.cheapest_usd_per_gpu_hour):.1f}" r="2.4">'
            f"<title>{escape(point_words(point))}</title></circle>"
            for point in series.points
        ]

    def names(self) -> list[str]:
        """Providers' names at the end of their lines, moved apart where they would overlap."""
        if not self.layout.are_named:
            return []
        wanted = [self.y(one.points[-1].cheapest_usd_per_gpu_hour) for one in self.current]
        heights = apart(wanted, _LINE_HEIGHT, self.layout.height - 8)
        x = self.layout.width - self.layout.right + 8
        return [
            f'<text x="{x}" y="{height + 4:.1f}" style="fill:{self.colours[one.provider]}">'
            f"{escape(one.provider)} {usd(one.points[-1].cheapest_usd_per_gpu_hour)}</text>"
            for height, one in zip(heights, self.current, strict=True)
        ]


def end_of_axis(first: int, last: int) -> int:
    """A little after the last day, so that its prices can be seen."""
    return last + max((last - first) // 50, 1)


def apart(heights: Sequence[float], least: float, lowest: float) -> list[float]:
    """Heights in order, moved so that they are so far apart and none lies below the lowest."""
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + least) if placed else height)
    for number in range(len(placed) - 1, -1, -1):
        limit = lowest if number == len(placed) - 1 else placed[number + 1] - least
        placed[number] = min(placed[number], limit)
    return placed


def point_words(point: PricePoint) -> str:
    """What a point tells: the price, whose, when, and of how many machine types."""
    return (
        f"{usd(point.cheapest_usd_per_gpu_hour)} at {point.cheapest_provider}, {point.day}\n"
        f"middle {usd(point.median_usd_per_gpu_hour)}, {counted(point.machine_types, 'type')}"
    )


# As a PNG, drawn by matplotlib: imported where it draws, as the others need none.


def history_png(history: PriceHistory) -> bytes:
    """The picture as the bytes of a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = drawn_tenancies(history)
    figure = Figure(figsize=(11, 1 + 3.6 * len(drawn)), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    figure.suptitle(
        history_title(history), x=0.02, ha="left", fontsize=13, fontweight="bold", color=INK
    )
    for number, tenancy in enumerate(drawn):
        axes = figure.add_subplot(len(drawn), 1, number + 1)
        _draw_tenancy(axes, history, tenancy)
    figure.supxlabel(_legend_words(history), fontsize=8.5, color=SOFT)
    out = io.BytesIO()
    canvas.print_png(out)
    return out.getvalue()


def _draw_tenancy(axes: Axes, history: PriceHistory, tenancy: RentTenancy) -> None:
    first, last = span(history, drawn_tenancies(history))
    end, together, current = end_of_axis(first, last), history.of(tenancy), {}
    for one in current_series(history, tenancy):
        current[one.provider] = colours_of(history)[one.provider]
    for series in history.providers(tenancy):
        colour = current.get(series.provider)
        _draw_steps(axes, series, color=colour or GREY, linewidth=1.3 if colour else 0.8, last=end)
    _draw_steps(axes, together, color=INK, linewidth=2.2, last=end)
    _draw_steps(axes, together, color=INK, linewidth=1.2, last=end, is_middle=True)
    axes.set(xlim=(first, end), ylim=(0, highest_usd(history, tenancy) * _HEADROOM))
    axes.set_title(TENANCY_WORDS[tenancy], loc="left", fontsize=10.5, color=INK)
    names = sorted(dict(time_names(first, last)[1:-1] or time_names(first, last)).items())
    axes.set_xticks([number for number, _ in names], [name for _, name in names])
    axes.yaxis.set_major_formatter(lambda value, _: f"${value:g}")
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=SOFT, length=0)
    _name_lines(axes, history, tenancy)


def _draw_steps(
    axes: Axes,
    series: PriceSeries,
    *,
    color: str,
    linewidth: float,
    last: int,
    is_middle: bool = False,
) -> None:
    for run in stretches(series):
        days = [day_number(point.at) for point in run]
        values = [
            point.median_usd_per_gpu_hour if is_middle else point.cheapest_usd_per_gpu_hour
            for point in run
        ]
        end = min(day_number(run[-1].current_until), last)
        axes.step(
            [*days, end],
            [*values, values[-1]],
            where="post",
            color=color,
            linewidth=linewidth,
            linestyle=(0, (1, 2)) if is_middle else "-",
        )


def _name_lines(axes: Axes, history: PriceHistory, tenancy: RentTenancy) -> None:
    """Names at the right, moved apart; heights are shares of the axis, from the top."""
    top, colours = axes.get_ylim()[1], colours_of(history)
    current = current_series(history, tenancy)
    wanted = [1 - one.points[-1].cheapest_usd_per_gpu_hour / top for one in current]
    for height, one in zip(apart(wanted, 0.05, 0.98), current, strict=True):
        axes.text(
            1.01,
            1 - height,
            f"{one.provider} {usd(one.points[-1].cheapest_usd_per_gpu_hour)}",
            transform=axes.transAxes,
            va="center",
            fontsize=8.5,
            color=colours[one.provider],
        )
