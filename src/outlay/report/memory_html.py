"""Memory over a training step as one HTML file: an SVG with hover text, and a few rules of CSS."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from outlay.report.memory_plot import (
    COLOURS,
    Layer,
    edges,
    label,
    layers,
    peak_lines,
    place_lines,
    stretches,
    thinned,
)
from outlay.report.picture import byte_unit, ticks
from outlay.report.svg import drawing, line, page, rect, text
from outlay.report.text import size

if TYPE_CHECKING:
    from outlay.trace.step_report import MemoryPoint, MemoryTimeline

WIDTH, HEIGHT = 1120, 600
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 104, 52
MOST_HOVERS = 280
_HEADROOM = 1.26
"""How far the axis goes beyond the peak: the note above it needs the room."""
_NARROWEST_PHASE = 56
_LINE = 17
_NOTE_WIDTH = 7.2
"""About the width of a letter of the note at the peak."""

_STYLE = """\
.peak line { stroke: var(--ink); } .peak circle { fill: var(--back); stroke: var(--ink);
  stroke-width: 2; } .peak rect { fill: var(--note); stroke: var(--line); }
.peak { pointer-events: none; }
"""


def memory_html(timeline: MemoryTimeline, title: str) -> str:
    """The whole page."""
    return page(title, memory_svg(timeline, title), _STYLE)


def memory_svg(timeline: MemoryTimeline, title: str) -> str:
    """The picture alone, as XML."""
    made = _Drawing(thinned(timeline), timeline)
    parts = [
        text(LEFT, 26, title, "title"),
        *made.legend(),
        *made.phases(),
        *made.grid(),
        *(made.area(layer) for layer in layers(made.timeline)),
        *made.phase_marks(),
        *made.hovers(),
        *made.peak(),
    ]
    return drawing(WIDTH, HEIGHT, ", ".join(peak_lines(timeline)), parts)


class _Drawing:
    """A timeline and its scales; each method draws one part."""

    def __init__(self, timeline: MemoryTimeline, whole: MemoryTimeline) -> None:
        self.timeline = timeline
        self.whole = whole
        self.edges = edges(timeline)
        self.highest_bytes = max(whole.peak.memory.peak_bytes, 1.0)
        self.unit_bytes, self.unit = byte_unit(self.highest_bytes)
        self.top_bytes = self.highest_bytes * _HEADROOM

    def x(self, operation: float) -> float:
        """Across: 0 at the start of the first operation."""
        return LEFT + operation / max(self.whole.operations, 1) * (WIDTH - LEFT - RIGHT)

    def y(self, amount_bytes: float) -> float:
        """Down: 0 bytes at the foot."""
        return HEIGHT - BOTTOM - amount_bytes / self.top_bytes * (HEIGHT - TOP - BOTTOM)

    def legend(self) -> list[str]:
        """A square and a word for each category, with what it has at the peak."""
        parts, x = [], float(LEFT)
        for category, colour in COLOURS.items():
            amount = getattr(self.whole.peak.memory, category)
            words = f"{label(category)} {size(amount)}"
            parts.append(f'<rect x="{x:.1f}" y="41" width="11" height="11" fill="{colour}"/>')
            parts.append(text(x + 16, 51, words, "soft"))
            x += 34 + 6.4 * len(words)
        return [*parts, text(x - 4, 51, "at the peak", "soft")]

    def phases(self) -> list[str]:
        """Every other stretch of the step on a darker ground, named where there is room.

        The last is named in any case, above its place: it mostly is the short optimizer.
        """
        parts = []
        for index, (phase, begin, end) in enumerate(stretches(self.timeline)):
            left, right = self.x(begin), self.x(end)
            if index % 2:
                parts.append(rect(left, TOP - 24, right - left, HEIGHT - BOTTOM - TOP + 24, "band"))
            if right - left >= _NARROWEST_PHASE:
                middle = (left + right) / 2
                parts.append(text(middle, TOP - 8, phase, "soft middle"))
            elif end == self.whole.operations:
                parts.append(text(right, TOP - 30, phase, "soft end"))
        return parts

    def phase_marks(self) -> list[str]:
        """A dashed line where a phase begins."""
        begins = [begin for _, begin, _ in stretches(self.timeline)][1:]
        return [line(x, TOP - 24, x, HEIGHT - BOTTOM, "mark") for x in map(self.x, begins)]

    def grid(self) -> list[str]:
        """Lines and numbers of both axes."""
        parts = []
        foot = HEIGHT - BOTTOM
        for value in ticks(self.top_bytes / self.unit_bytes, 6):
            y = self.y(value * self.unit_bytes)
            parts.append(line(LEFT, y, WIDTH - RIGHT, y, "grid"))
            parts.append(text(LEFT - 8, y + 4, f"{value:g}", "soft end"))
        parts += [
            text(self.x(value), foot + 18, f"{value:,.0f}", "soft middle")
            for value in ticks(self.whole.operations, 10)
        ]
        parts.append(text(LEFT - 8, TOP - 8, self.unit, "soft end"))
        parts.append(text((LEFT + WIDTH - RIGHT) / 2, foot + 38, "operation", "soft middle"))
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
        length = -(-len(points) // MOST_HOVERS)
        parts = ['<g class="hover">']
        for start in range(0, len(points), length):
            stretch = points[start : start + length]
            highest = max(stretch, key=lambda point: point.memory.peak_bytes)
            left, right = self.x(self.edges[start]), self.x(self.edges[start + len(stretch)])
            tip = "\n".join(_tip(highest, self.whole.operations))
            parts.append(rect(left, TOP, right - left, HEIGHT - BOTTOM - TOP, "", tip))
        return [*parts, "</g>"]

    def peak(self) -> list[str]:
        """A ring at the peak, and above it how much it is and where."""
        point = self.whole.peak
        x, y = self.x(point.operation - 0.5), self.y(point.memory.peak_bytes)
        lines = peak_lines(self.whole)
        width, height = 20 + _NOTE_WIDTH * max(map(len, lines)), 10 + _LINE * len(lines)
        left = min(max(x - width / 2, LEFT + 4), WIDTH - RIGHT - 4 - width)
        top = y - 18 - height
        texts = [
            text(left + 10, top + 18 + _LINE * index, said, "" if index else "strong")
            for index, said in enumerate(lines)
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
