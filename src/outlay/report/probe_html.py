"""A probe over time as one HTML file: an SVG with hover text, and a few rules of CSS."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from outlay.measurement import Measurement
from outlay.report.picture import ticks
from outlay.report.probe_plot import (
    SHADES,
    Panel,
    end_s,
    legend,
    panels,
    spans,
    subtitle,
    time_unit,
    title,
)
from outlay.report.probe_words import answer
from outlay.report.svg import drawing, line, page, rect, text
from outlay.report.text import clock, rate

WIDTH = 1120
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 112, 52
_TALL, _LOW, _GAP = 200, 92, 46
MOST_HOVERS = 280
_STYLE = """\
.level { stroke: var(--ink); stroke-dasharray: 5 4; stroke-opacity: .7; }
.interval { fill: var(--ink); fill-opacity: .12; }
.shade { fill-opacity: .15; } .dots { fill-opacity: .75; } .curve { fill: none; stroke-width: 1.6; }
.under { fill-opacity: .22; }
"""


def probe_html(measurement: Measurement) -> str:
    """The whole page."""
    return page(title(measurement), probe_svg(measurement), _STYLE)


def probe_svg(measurement: Measurement) -> str:
    """The picture alone, as XML."""
    made = _Drawing(measurement)
    parts = [text(LEFT, 26, title(measurement), "title"), *made.legend(), *made.shades()]
    for panel, (top, height) in zip(made.panels, made.places, strict=True):
        parts += [*made.frame(panel, top, height), *made.curve(panel, top, height)]
    if not made.panels:
        parts.append(text(LEFT, TOP + 20, "Nothing was seen that could be drawn.", "soft"))
    return drawing(
        WIDTH, made.height, answer(measurement), [*parts, *made.time_axis(), *made.hovers()]
    )


class _Drawing:
    """A measurement and its scales; each method draws one part."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement = measurement
        self.panels = panels(measurement)
        self.end_s = end_s(measurement)
        self.places: list[tuple[float, float]] = []
        top = float(TOP)
        for panel in self.panels:
            tall = _TALL if panel.are_dots else _LOW
            self.places.append((top, tall))
            top += tall + _GAP
        self.foot = top - _GAP if self.panels else top
        self.height = round(self.foot + BOTTOM)

    def x(self, time_s: float) -> float:
        """Across: 0 s at the left."""
        return LEFT + min(time_s / self.end_s, 1.0) * (WIDTH - LEFT - RIGHT)

    def legend(self) -> list[str]:
        """When it ran, and a square and words for each kind of shaded time."""
        said = subtitle(self.measurement)
        parts, x = [text(LEFT, 51, said, "soft")], LEFT + 28 + 6.4 * len(said)
        for kind, words in legend(self.measurement):
            box = f'x="{x:.1f}" y="41" width="11" height="11" fill="{SHADES[kind]}"'
            parts.append(f'<rect {box} fill-opacity=".45"/>')
            parts.append(text(x + 16, 51, words, "soft"))
            x += 38 + 6.4 * len(words)
        return parts

    def shades(self) -> list[str]:
        """The ground of time that is not counted, through all panels."""
        return [
            f'<rect class="shade" x="{self.x(span.begin_s):.1f}" y="{top:.1f}" '
            f'width="{max(self.x(span.end_s) - self.x(span.begin_s), 1):.1f}" '
            f'height="{height:.1f}" fill="{SHADES[span.kind]}"/>'
            for span in spans(self.measurement)
            for top, height in self.places
        ]

    def frame(self, panel: Panel, top: float, height: float) -> list[str]:
        """The name of a panel, what it says, and the lines and numbers of its axis."""
        name = f'<tspan class="strong">{escape(panel.name)}</tspan>'
        says = f'<tspan class="soft" dx="10">{escape(panel.says)}</tspan>'
        parts = [
            f'<text x="{LEFT}" y="{top - 12:.1f}">{name}{says}</text>',
            text(LEFT - 8, top - 12, panel.unit, "soft end"),
        ]
        for value in ticks(panel.top, 5 if panel.are_dots else 3):
            y = _y(panel, value, top, height)
            parts.append(line(LEFT, y, WIDTH - RIGHT, y, "grid"))
            parts.append(text(LEFT - 8, y + 4, f"{value:g}", "soft end"))
        return parts

    def curve(self, panel: Panel, top: float, height: float) -> list[str]:
        """The values, and over them a mean or a limit."""
        at = [(self.x(time_s), _y(panel, value, top, height)) for time_s, value in panel.points]
        parts, begin, end = [], self.x(panel.level_from_s), WIDTH - RIGHT
        if panel.band is not None:
            high, low = (_y(panel, value, top, height) for value in reversed(panel.band))
            parts.append(rect(begin, high, end - begin, max(low - high, 1.0), "interval"))
        parts += _dots(panel, at) if panel.are_dots else _line(panel, at, top + height)
        if panel.level is not None:
            y = _y(panel, panel.level, top, height)
            parts.append(line(begin, y, end, y, "level"))
        return parts

    def time_axis(self) -> list[str]:
        """Numbers below the last panel; none where there is no panel."""
        if not self.panels:
            return []
        unit_s, unit = time_unit(self.end_s)
        middle, words = (LEFT + WIDTH - RIGHT) / 2, f"{unit} after the start"
        numbers = [
            text(self.x(value * unit_s), self.foot + 18, f"{value:g}", "soft middle")
            for value in ticks(self.end_s / unit_s, 10)
        ]
        return [*numbers, text(middle, self.foot + 38, words, "soft middle")]

    def hovers(self) -> list[str]:
        """Strips through all panels that tell what was there at their time."""
        edges = [self.end_s * index / MOST_HOVERS for index in range(MOST_HOVERS + 1)]
        tips = ((begin, end, self._tip(begin, end)) for begin, end in pairwise(edges))
        strips = [
            rect(self.x(begin), TOP, self.x(end) - self.x(begin), self.foot - TOP, "", tip)
            for begin, end, tip in tips
            if tip
        ]
        return ['<g class="hover">', *strips, "</g>"]

    def _tip(self, begin_s: float, end_s: float) -> str:
        """What each panel has within a stretch of time: its highest value."""
        said = []
        for panel in self.panels:
            within = [value for at, value in panel.points if begin_s <= at < end_s]
            if within:
                said.append(f"{panel.name}: {rate(max(within))} {panel.unit}")
        kinds = [
            one.kind
            for one in spans(self.measurement)
            if one.begin_s < end_s and begin_s < one.end_s
        ]
        head = [f"{clock(begin_s)} after the start", *dict.fromkeys(kinds)]
        return "\n".join([*head, *said]) if said or kinds else ""


def _y(panel: Panel, value: float, top: float, height: float) -> float:
    """Down: 0 at the foot; what lies beyond the axis is at its top."""
    return top + height * (1 - min(value / panel.top, 1.0))


def _dots(panel: Panel, at: list[tuple[float, float]]) -> list[str]:
    radius = 2.2 if len(at) < 600 else 1.5
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in at)
    return [f'<g class="dots" fill="{panel.colour}">{marks}</g>']


def _line(panel: Panel, at: list[tuple[float, float]], foot: float) -> list[str]:
    there = "L".join(f"{x:.1f} {y:.1f}" for x, y in at)
    ends = f"L{at[-1][0]:.1f} {foot:.1f}L{at[0][0]:.1f} {foot:.1f}Z"
    return [
        f'<path class="under" fill="{panel.colour}" d="M{there}{ends}"/>',
        f'<path class="curve" stroke="{panel.colour}" d="M{there}"/>',
    ]
