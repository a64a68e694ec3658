"""Memory over a training step as one HTML file: an SVG with hover text, and a few rules of CSS."""

from __future__ import annotations

from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from outlay.report.memory_plot import (
    COLOURS,
    Layer,
    byte_unit,
    edges,
    label,
    layers,
    peak_lines,
    place_lines,
    stretches,
    thinned,
    ticks,
)
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

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1e23; --soft: #667080; --line: #d9dde3;
  --back: #ffffff; --note: #ffffffe6; --band: #0000000a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e9ecf1; --soft: #97a1b0;
  --line: #343a44; --back: #14171c; --note: #14171ce6; --band: #ffffff0d; } }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 13px/1.4 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 24px 16px; }
svg { width: 100%; height: auto; display: block; }
text { fill: var(--ink); font-size: 13px; }
.title { font-size: 18px; font-weight: 600; }
.soft { fill: var(--soft); font-size: 12px; }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.grid { stroke: var(--line); } .mark { stroke: var(--soft); stroke-dasharray: 3 4; }
.band { fill: var(--band); }
.hover rect { fill: transparent; } .hover rect:hover { fill: var(--ink); fill-opacity: .16; }
.peak line { stroke: var(--ink); } .peak circle { fill: var(--back); stroke: var(--ink);
  stroke-width: 2; } .peak rect { fill: var(--note); stroke: var(--line); }
.peak { pointer-events: none; } .strong { font-weight: 600; }
"""


def memory_html(timeline: MemoryTimeline, title: str) -> str:
    """The whole page."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width"/>\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body><main>\n{memory_svg(timeline, title)}\n</main></body>\n</html>\n"
    )


def memory_svg(timeline: MemoryTimeline, title: str) -> str:
    """The picture alone, as XML."""
    drawing = _Drawing(thinned(timeline), timeline)
    parts = [
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>',
        *drawing.legend(),
        *drawing.phases(),
        *drawing.grid(),
        *(drawing.area(layer) for layer in layers(drawing.timeline)),
        *drawing.phase_marks(),
        *drawing.hovers(),
        *drawing.peak(),
    ]
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">\n'
        f"<desc>{escape(', '.join(peak_lines(timeline)))}</desc>\n{body}\n</svg>"
    )


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
            text = f"{label(category)} {size(amount)}"
            parts.append(f'<rect x="{x:.1f}" y="41" width="11" height="11" fill="{colour}"/>')
            parts.append(f'<text class="soft" x="{x + 16:.1f}" y="51">{text}</text>')
            x += 34 + 6.4 * len(text)
        return [*parts, _text(x - 4, 51, "at the peak", "soft")]

    def phases(self) -> list[str]:
        """Every other stretch of the step on a darker ground, named where there is room.

        The last is named in any case, above its place: it mostly is the short optimizer.
        """
        parts = []
        for index, (phase, begin, end) in enumerate(stretches(self.timeline)):
            left, right = self.x(begin), self.x(end)
            if index % 2:
                parts.append(
                    _rect(left, TOP - 24, right - left, HEIGHT - BOTTOM - TOP + 24, "band")
                )
            if right - left >= _NARROWEST_PHASE:
                middle = (left + right) / 2
                parts.append(_text(middle, TOP - 8, phase, "soft middle"))
            elif end == self.whole.operations:
                parts.append(_text(right, TOP - 30, phase, "soft end"))
        return parts

    def phase_marks(self) -> list[str]:
        """A dashed line where a phase begins."""
        begins = [begin for _, begin, _ in stretches(self.timeline)][1:]
        return [
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 24}" y2="{HEIGHT - BOTTOM}"/>'
            for x in map(self.x, begins)
        ]

    def grid(self) -> list[str]:
        """Lines and numbers of both axes."""
        parts = []
        foot = HEIGHT - BOTTOM
        for value in ticks(self.top_bytes / self.unit_bytes, 6):
            y = self.y(value * self.unit_bytes)
            parts.append(
                f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            )
            parts.append(_text(LEFT - 8, y + 4, f"{value:g}", "soft end"))
        parts += [
            _text(self.x(value), foot + 18, f"{value:,.0f}", "soft middle")
            for value in ticks(self.whole.operations, 10)
        ]
        parts.append(_text(LEFT - 8, TOP - 8, self.unit, "soft end"))
        parts.append(_text((LEFT + WIDTH - RIGHT) / 2, foot + 38, "operation", "soft middle"))
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
            tip = escape("\n".join(_tip(highest, self.whole.operations)))
            box = f'x="{left:.1f}" y="{TOP}" width="{right - left:.1f}"'
            parts.append(
                f'<rect {box} height="{HEIGHT - BOTTOM - TOP}"><title>{tip}</title></rect>'
            )
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
            _text(left + 10, top + 18 + _LINE * index, line, "" if index else "strong")
            for index, line in enumerate(lines)
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


def _text(x: float, y: float, text: str, classes: str) -> str:
    return f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _rect(x: float, y: float, width: float, height: float, classes: str) -> str:
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{classes}" {box}/>'
