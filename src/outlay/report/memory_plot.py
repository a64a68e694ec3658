"""Memory over a training step as a picture: stacked categories against the operation's number.

`write_plot` takes the form from the file's ending: `.html` is one file without scripts or
anything from elsewhere (SVG with hover text, light and dark), `.png` needs matplotlib. Both draw
the same parts: the layers of `layers`, the phases of `stretches`, the note of `peak_lines`.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from outlay.report.svg import (
    DPI,
    INK,
    LINE,
    MOST_POINTS,
    SOFT,
    Layout,
    byte_unit,
    drawing,
    extremes,
    folded,
    for_widths,
    line,
    page,
    rect,
    text,
    ticks,
    write_picture,
)
from outlay.report.text import count, size
from outlay.trace.profile import Phase
from outlay.trace.step_report import MemoryPoint, MemoryTimeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes


COLOURS = {
    "parameters": "#4269d0",
    "optimizer_state": "#a463f2",
    "inputs": "#9498a0",
    "gradients": "#efb118",
    "activations": "#4fb8a0",
    "temporaries": "#ff725c",
    "workspace": "#9c6b4e",
}
"""The categories from the bottom up: what stays all through the step lies lowest."""


Limits = Sequence[tuple[str, float]]
"""GPUs by name, with the bytes each has for tensors."""
FAR = 2.5
"""Times the peak, up to which the axis is made longer for what a GPU has."""


def write_plot(path: Path, timeline: MemoryTimeline, title: str, limits: Limits = ()) -> None:
    """Write the picture in the form the file's ending names; with a line for what GPUs have."""
    write_picture(
        path,
        partial(memory_html, timeline, title, limits),
        partial(memory_png, timeline, title, limits),
    )


def _top_bytes(peak_bytes: float, limits: Limits) -> float:
    """Where the axis ends: above the peak's note, and above what a GPU has where that is near."""
    near = [limit for _, limit in limits if limit <= FAR * peak_bytes]
    return max([peak_bytes * _HEADROOM, *(1.08 * limit for limit in near)])


def limit_words(name: str, limit_bytes: float) -> str:
    """`RTX 3090: 23.2 GiB`: what a GPU has for tensors."""
    return f"{name}: {size(limit_bytes)}"


def thinned(timeline: MemoryTimeline, most: int = MOST_POINTS) -> MemoryTimeline:
    """At most that many points: of every stretch the highest and the lowest."""
    if len(timeline.points) <= most:
        return timeline
    kept = extremes(timeline.points, most, _total)
    return MemoryTimeline(points=tuple(kept), operations=timeline.operations)


def _total(point: MemoryPoint) -> float:
    return point.memory.peak_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One category: bytes below it, and bytes up to its top, at each point."""

    category: str
    lower_bytes: tuple[float, ...]
    upper_bytes: tuple[float, ...]


def layers(timeline: MemoryTimeline) -> list[Layer]:
    """The categories stacked in the order of `COLOURS`; the last top is all that is allocated."""
    lower = (0.0,) * len(timeline.points)
    made = []
    for category in COLOURS:
        amounts = [getattr(point.memory, category) for point in timeline.points]
        upper = tuple(map(sum, zip(lower, amounts, strict=True)))
        made.append(Layer(category=category, lower_bytes=lower, upper_bytes=upper))
        lower = upper
    return made


def edges(timeline: MemoryTimeline) -> list[float]:
    """Where each point begins on the axis, and where the last ends: operation n is n - 1 to n."""
    numbers = [point.operation for point in timeline.points]
    return [0.0, *(float(number) for number in numbers[:-1]), float(timeline.operations)]


def _drawn_phase(phase: Phase) -> Phase:
    """Recomputing alternates with backward block by block, and is drawn as a part of it."""
    return "backward" if phase == "recompute" else phase


def stretches(timeline: MemoryTimeline) -> Iterator[tuple[Phase, float, float]]:
    """Consecutive operations of one phase: the phase, and where it begins and ends."""
    marks = list(pairwise(edges(timeline)))
    pairs = zip(timeline.points, marks, strict=True)
    for phase, group in groupby(pairs, key=lambda pair: _drawn_phase(pair[0].phase)):
        spans = [span for _, span in group]
        yield phase, spans[0][0], spans[-1][1]


def label(category: str) -> str:
    """A category as people read it."""
    return category.replace("_", " ")


def peak_lines(timeline: MemoryTimeline) -> list[str]:
    """What is said beside the peak: how much, and where in the step and in the code."""
    point = timeline.peak
    return [f"peak {size(point.memory.peak_bytes)}", *place_lines(point, timeline.operations)]


def place_lines(point: MemoryPoint, operations: int) -> list[str]:
    """An operation: its number, phase, operator, and the user's line if it has one."""
    first = f"operation {count(point.operation)} of {count(operations)}, {point.phase}"
    name = point.name.removeprefix("aten.")
    return [first, name if point.site is None else f"{name} · {point.site}"]


# As one HTML file: an SVG with hover text, and a few rules of CSS.


WIDE = Layout(width=1120, height=600, left=72, right=20, top=104, bottom=52)
NARROW = Layout(width=360, height=470, left=38, right=10, top=170, bottom=44, are_named=False)
MOST_HOVERS = 280
_HEADROOM = 1.26
"""How far the axis goes beyond the peak: the note above it needs the room."""
_LINE = 17
_NOTE_WIDTH = 7.2
"""About the width of a letter of the note at the peak."""

_STYLE = """\
.peak line { stroke: var(--ink); } .peak circle { fill: var(--back); stroke: var(--ink);
  stroke-width: 2; } .peak rect { fill: var(--note); stroke: var(--line); }
.peak { pointer-events: none; }
"""


def memory_html(timeline: MemoryTimeline, title: str, limits: Limits = ()) -> str:
    """The whole page."""

    def drawn(layout: Layout) -> str:
        return memory_svg(timeline, title, limits, layout)

    return page(title, for_widths(drawn, WIDE, NARROW), _STYLE)


def memory_svg(
    timeline: MemoryTimeline, title: str, limits: Limits = (), layout: Layout = WIDE
) -> str:
    """The picture alone, as XML."""
    points = MOST_POINTS // 4 if layout.is_narrow else MOST_POINTS
    made = _MemoryDrawing(thinned(timeline, points), timeline, limits, layout)
    parts = [
        *made.title(title),
        *made.legend(),
        *made.phases(),
        *made.grid(),
        *(made.area(layer) for layer in layers(made.timeline)),
        *made.phase_marks(),
        *made.limit_lines(),
        *made.hovers(),
        *made.peak(),
    ]
    about = [*peak_lines(timeline), *(limit_words(*limit) for limit in limits)]
    return drawing(layout.width, layout.height, ", ".join(about), parts)


class _MemoryDrawing:
    """A timeline and its scales; each method draws one part."""

    def __init__(
        self, timeline: MemoryTimeline, whole: MemoryTimeline, limits: Limits, layout: Layout
    ) -> None:
        self.timeline = timeline
        self.whole = whole
        self.limits = limits
        self.layout = layout
        self.right = layout.width - layout.right
        self.foot = layout.height - layout.bottom
        self.edges = edges(timeline)
        self.highest_bytes = max(whole.peak.memory.peak_bytes, 1.0)
        self.unit_bytes, self.unit = byte_unit(self.highest_bytes)
        self.top_bytes = _top_bytes(self.highest_bytes, limits)

    def x(self, operation: float) -> float:
        """Across: 0 at the start of the first operation."""
        left = self.layout.left
        return left + operation / max(self.whole.operations, 1) * (self.right - left)

    def y(self, amount_bytes: float) -> float:
        """Down: 0 bytes at the foot."""
        return self.foot - amount_bytes / self.top_bytes * (self.foot - self.layout.top)

    def title(self, words: str) -> list[str]:
        """In one line, or on a narrow page in as many as it takes, up to three."""
        if not self.layout.is_narrow:
            return [text(self.layout.left, 26, words, "title")]
        lines = folded(words, self.layout.width - 12, 8.2)[:3]
        return [text(6, 18 + 19 * place, one, "strong") for place, one in enumerate(lines)]

    def legend(self) -> list[str]:
        """A square and a word for each category, with what it has at the peak."""
        parts: list[str] = []
        if self.layout.is_narrow:
            for place, (category, colour) in enumerate(self._shown()):
                x, y = (6.0, 184.0)[place % 2], 62 + 19 * (place // 2)
                parts += self._key(x, y, category, colour)
            return [*parts, text(184, 62 + 19 * 3 + 10, "(at the peak)", "soft")]
        x = float(self.layout.left)
        for category, colour in self._shown():
            parts += self._key(x, 41, category, colour)
            x += 32 + 6.2 * len(self._key_words(category))
        return [*parts, text(x - 4, 51, "at the peak", "soft")]

    def _shown(self) -> list[tuple[str, str]]:
        """The categories that there are, with their colours."""
        return [
            (category, colour)
            for category, colour in COLOURS.items()
            if any(getattr(point.memory, category) for point in self.whole.points)
        ]

    def _key_words(self, category: str) -> str:
        return f"{label(category)} {size(getattr(self.whole.peak.memory, category))}"

    def _key(self, x: float, y: float, category: str, colour: str) -> list[str]:
        return [
            f'<rect x="{x:.1f}" y="{y:.0f}" width="11" height="11" fill="{colour}"/>',
            text(x + 16, y + 10, self._key_words(category), "soft"),
        ]

    def phases(self) -> list[str]:
        """Every other stretch of the step on a darker ground, named where there is room.

        The last is named in any case, above its place: it mostly is the short optimizer.
        """
        parts, top = [], self.layout.top
        for index, (phase, begin, end) in enumerate(stretches(self.timeline)):
            left, right = self.x(begin), self.x(end)
            if index % 2:
                parts.append(rect(left, top - 24, right - left, self.foot - top + 24, "band"))
            if right - left >= _NOTE_WIDTH * len(phase):
                middle = (left + right) / 2
                parts.append(text(middle, top - 8, phase, "soft middle"))
            elif end == self.whole.operations:
                parts.append(text(right, top - 30, phase, "soft end"))
        return parts

    def phase_marks(self) -> list[str]:
        """A dashed line where a phase begins."""
        begins = [begin for _, begin, _ in stretches(self.timeline)][1:]
        return [line(x, self.layout.top - 24, x, self.foot, "mark") for x in map(self.x, begins)]

    def limit_lines(self) -> list[str]:
        """A dashed line at what each GPU has for tensors, with its name; in words alone where
        that is far beyond the axis."""
        left, parts = self.layout.left, []
        for name, limit_bytes in self.limits:
            if limit_bytes <= self.top_bytes:
                y = self.y(limit_bytes)
                parts.append(line(left, y, self.right, y, "level"))
                parts.append(text(left + 6, y - 5, limit_words(name, limit_bytes), "soft over"))
        beyond = [limit_words(*limit) for limit in self.limits if limit[1] > self.top_bytes]
        if beyond:
            words = f"beyond the axis: {', '.join(beyond)}"
            parts.append(text(self.right, self.foot + 38, words, "soft end"))
        return parts

    def grid(self) -> list[str]:
        """Lines and numbers of both axes."""
        parts, layout = [], self.layout
        for value in ticks(self.top_bytes / self.unit_bytes, 6):
            y = self.y(value * self.unit_bytes)
            parts.append(line(layout.left, y, self.right, y, "grid"))
            parts.append(text(layout.left - 8, y + 4, f"{value:g}", "soft end"))
        for value in ticks(self.whole.operations, 4 if layout.is_narrow else 10):
            x = self.x(value)
            place = "end" if x > self.right - 12 else "middle"
            parts.append(text(x, self.foot + 18, f"{value:,.0f}", f"soft {place}"))
        parts.append(text(layout.left - 8, layout.top - 8, self.unit, "soft end"))
        parts.append(text(layout.left, self.foot + 38, "operation", "soft"))
        return parts

    def area(self, layer: Layer) -> str:
        """One category as a closed shape of steps."""
        there = self._steps(layer.upper_bytes, list(pairwise(self.edges)))
        back = self._steps(layer.lower_bytes[::-1], [(b, a) for a, b in pairwise(self.edges)][::-1])
        path = f"M{self.x(0):.1f} {self.y(0):.1f}{there}{back}Z"
        colour = COLOURS[layer.category]
        return f'<path class="{layer.category}" fill="{colour}" fill-opacity=".88" d="{path}"/>'

    def _steps(self, amounts: tuple[float, ...], spans: list[tuple[float, float]]) -> str:
        """Up or down to each amount, then across; amounts that follow their like are one."""
        words: list[str] = []
        level = ""
        for amount_bytes, (_, end) in zip(amounts, spans, strict=True):
            height, across = f"V{self.y(amount_bytes):.1f}", f"H{self.x(end):.1f}"
            if height == level:
                words[-1] = across
            else:
                words += [height, across]
            level = height
        return "".join(words)

    def hovers(self) -> list[str]:
        """Strips that tell of the highest operation below them."""
        points = self.timeline.points
        most = MOST_HOVERS // 4 if self.layout.is_narrow else MOST_HOVERS
        length = -(-len(points) // most)
        parts = ['<g class="hover">']
        for start in range(0, len(points), length):
            stretch = points[start : start + length]
            highest = max(stretch, key=lambda point: point.memory.peak_bytes)
            left, right = self.x(self.edges[start]), self.x(self.edges[start + len(stretch)])
            tip = "\n".join(_tip(highest, self.whole.operations))
            parts.append(
                rect(left, self.layout.top, right - left, self.foot - self.layout.top, "", tip)
            )
        return [*parts, "</g>"]

    def peak(self) -> list[str]:
        """A ring at the peak, and above it how much it is and where."""
        point = self.whole.peak
        x, y = self.x(point.operation - 0.5), self.y(point.memory.peak_bytes)
        room = self.right - self.layout.left - 8
        lines = [
            one
            for words in peak_lines(self.whole)
            for one in (folded(words, room - 20, _NOTE_WIDTH) if self.layout.is_narrow else [words])
        ]
        width, height = 20 + _NOTE_WIDTH * max(map(len, lines)), 10 + _LINE * len(lines)
        left = min(max(x - width / 2, self.layout.left + 4), self.right - 4 - width)
        top = max(y - 18 - height, self.layout.top + 2)
        texts = [
            text(left + 10, top + 18 + _LINE * index, note, "" if index else "strong")
            for index, note in enumerate(lines)
        ]
        return [
            '<g class="peak">',
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + height:.1f}" y2="{y:.1f}"/>',
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" rx="5"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
            *texts,
            "</g>",
        ]


def _tip(point: MemoryPoint, operations: int) -> list[str]:
    amounts = [
        f"{label(category)}: {size(getattr(point.memory, category))}"
        for category in reversed(COLOURS)
        if getattr(point.memory, category)
    ]
    code = [point.site.code] if point.site is not None and point.site.code else []
    return [
        f"{size(point.memory.peak_bytes)} allocated",
        *place_lines(point, operations),
        *code,
        *amounts,
    ]


# As a PNG, drawn by matplotlib: imported where it draws, as an .html needs none.


_NARROWEST_PHASE_PNG = 0.05
"""The share of the width from which a phase is named."""


def memory_png(timeline: MemoryTimeline, title: str, limits: Limits = ()) -> bytes:
    """The picture as the bytes of a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5.6), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    unit_bytes, unit = byte_unit(timeline.peak.memory.peak_bytes)
    top = _top_bytes(max(timeline.peak.memory.peak_bytes, 1.0), limits) / unit_bytes
    _draw_layers(axes, thinned(timeline), unit_bytes)
    _draw_phases(axes, timeline)
    _draw_peak(axes, timeline, unit_bytes)
    _draw_limits(axes, limits, unit_bytes, top)
    figure.suptitle(title, x=0.02, ha="left", fontsize=13, fontweight="bold", color=INK)
    axes.set(xlim=(0, max(timeline.operations, 1)), ylim=(0, top), xlabel="operation")
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=SOFT, length=0)
    axes.xaxis.label.set_color(SOFT)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g} {unit}")
    key = figure.legend(
        loc="outside lower center", ncols=6, frameon=False, fontsize=8.5, title="at the peak"
    )
    key.get_title().set(color=SOFT, fontsize=8.5)
    out = io.BytesIO()
    canvas.print_png(out)
    return out.getvalue()


def _draw_layers(axes: Axes, timeline: MemoryTimeline, unit_bytes: float) -> None:
    marks = edges(timeline)
    for layer in layers(timeline):
        lower = [amount / unit_bytes for amount in layer.lower_bytes]
        upper = [amount / unit_bytes for amount in layer.upper_bytes]
        amount = getattr(timeline.peak.memory, layer.category)
        axes.fill_between(
            marks,
            [*lower, lower[-1]],
            [*upper, upper[-1]],
            step="post",
            color=COLOURS[layer.category],
            alpha=0.88,
            linewidth=0,
            label=f"{label(layer.category)} {size(amount)}",
        )


def _draw_phases(axes: Axes, timeline: MemoryTimeline) -> None:
    """A dashed line between phases, and their names above; the last is named in any case."""
    place = axes.get_xaxis_transform()
    for index, (phase, begin, end) in enumerate(stretches(timeline)):
        if index:
            axes.axvline(begin, color=SOFT, linewidth=0.8, linestyle=(0, (3, 4)))
        if end - begin >= _NARROWEST_PHASE_PNG * timeline.operations:
            middle = (begin + end) / 2
            axes.text(middle, 1.01, phase, transform=place, ha="center", color=SOFT)
        elif end == timeline.operations:
            axes.text(end, 1.01, phase, transform=place, ha="right", color=SOFT)


def _draw_limits(axes: Axes, limits: Limits, unit_bytes: float, top: float) -> None:
    for name, limit_bytes in limits:
        height, words = limit_bytes / unit_bytes, limit_words(name, limit_bytes)
        if height <= top:
            axes.axhline(height, color=INK, linewidth=0.9, linestyle=(0, (5, 4)), alpha=0.7)
        else:
            height, words = top, f"beyond the axis: {words}"
        axes.annotate(
            words, (0, height), xytext=(4, 4 if height < top else -12),
            textcoords="offset points", fontsize=8.5, color=SOFT,
        )  # fmt: skip


def _draw_peak(axes: Axes, timeline: MemoryTimeline, unit_bytes: float) -> None:
    point = timeline.peak
    x, y = point.operation - 0.5, point.memory.peak_bytes / unit_bytes
    across = x / max(timeline.operations, 1)
    axes.plot([x], [y], "o", markersize=6, color="white", markeredgecolor=INK)
    axes.annotate(
        "\n".join(peak_lines(timeline)),
        (x, y),
        xytext=(0, 20),
        textcoords="offset points",
        ha="left" if across < 0.15 else "right" if across > 0.85 else "center",
        fontsize=9,
        color=INK,
        arrowprops={"arrowstyle": "-", "color": INK, "linewidth": 0.8},
        bbox={"boxstyle": "round,pad=0.5", "facecolor": "#ffffffe6", "edgecolor": LINE},
    )
