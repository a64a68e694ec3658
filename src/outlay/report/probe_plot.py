"""A probe as a picture: step times, use of the GPU, memory and power over time, one below another.

`write_probe_plot` takes the form from the file's ending: `.html` is one file without scripts or
anything from elsewhere (SVG with hover text, light and dark), `.png` needs matplotlib. Both draw
the same parts: the quantities of `panels`, on the shaded time of `spans`.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.measurement.measurement import Measurement
from outlay.report.probe_words import answer, gpu_memory_bytes, power_limit_w
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
from outlay.report.text import clock, duration, percent, rate, step_time
from outlay.units import HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TITLE_SHOWN = 80
_HEADROOM = 1.12
_FARTHEST = 2.5
"""Times the 90th percentile, from which a step is drawn at the upper edge: the first one often
takes as long as hundreds of others."""
SHADES = {
    "start-up": "#9498a0",
    "warm-up": "#efb118",
    "evaluation": "#4269d0",
    "checkpoint": "#a463f2",
    "epoch start": "#4fb8a0",
    "other": "#9c6b4e",
}
"""Time that is not counted for the mean, each kind on a ground of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time that is shaded."""

    kind: str
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One quantity over time, in the unit of its axis."""

    name: str
    says: str
    """What is said beside the name: a mean, a highest value."""
    unit: str
    colour: str
    points: tuple[tuple[float, float], ...]
    top: float
    """Where the axis ends; what lies beyond is drawn there."""
    are_dots: bool = False
    level: float | None = None
    """A mean or a limit, as a dashed line ..."""
    level_name: str = ""
    """... and what it is, where that stands beside the line."""
    band: tuple[float, float] | None = None
    """The confidence interval of a mean."""
    level_from_s: float = 0.0
    """Where the level and the band begin: a mean is of the steady state."""


def write_probe_plot(path: Path, measurement: Measurement) -> None:
    """Write the picture in the form the file's ending names."""
    write_picture(path, partial(probe_html, measurement), partial(probe_png, measurement))


def title(measurement: Measurement) -> str:
    """The command, cut where it is long, and where it ran."""
    command = shlex.join(measurement.command)
    short = command if len(command) <= TITLE_SHOWN else f"{command[: TITLE_SHOWN - 1]}…"
    names = dict.fromkeys(gpu.name for gpu in measurement.machine.gpus)
    place = " + ".join(names) or measurement.machine.cpu or measurement.machine.system
    return f"{short} on {place}"


def end_s(measurement: Measurement) -> float:
    """Where the axis of time ends."""
    times = [measurement.elapsed_s, *(at for at, _ in measurement.step_times[-1:])]
    return max([*times, *(sample.time_s for sample in measurement.samples[-1:]), 1e-3])


def time_unit(highest_s: float) -> tuple[float, str]:
    """The unit that makes an axis of time readable."""
    if highest_s >= 3 * HOUR_S:
        return HOUR_S, "hours"
    return (MINUTE_S, "minutes") if highest_s >= 5 * MINUTE_S else (1.0, "seconds")


def spans(measurement: Measurement) -> list[Span]:
    """Start-up, warm-up and pauses, where it is known when they were."""
    return list(_spans(measurement))


def _spans(measurement: Measurement) -> Iterator[Span]:
    start_s, warm_s = measurement.start_up_s, measurement.warm_up_s
    if start_s is not None:
        yield Span(kind="start-up", begin_s=0.0, end_s=start_s)
        if warm_s:
            yield Span(kind="warm-up", begin_s=start_s, end_s=start_s + warm_s)
    for pause in measurement.pauses:
        for begin_s, length_s in pause.spans:
            yield Span(kind=pause.kind, begin_s=begin_s, end_s=begin_s + length_s)


def panels(measurement: Measurement) -> list[Panel]:
    """The quantities that were seen, from the top down."""
    made = (
        _step_panel(measurement),
        *_use_panels(measurement),
        _memory_panel(measurement),
        _power_panel(measurement),
    )
    return [panel for panel in made if panel is not None]


def _step_panel(measurement: Measurement) -> Panel | None:
    times, step = measurement.step_times, measurement.step
    if not times:
        return None
    slowest_s = max(length_s for _, length_s in times)
    top_s = slowest_s if step is None else min(slowest_s, _FARTHEST * step.p90_s)
    unit_s, unit = (1.0, "s") if top_s >= 1 else (1e-3, "ms")
    is_steady = step is not None and step.is_steady
    return Panel(
        name="step time",
        says=_step_says(measurement, top_s),
        unit=unit,
        colour="#4269d0",
        points=_thin([(at, length_s / unit_s) for at, length_s in times]),
        top=max(top_s, 1e-9) * _HEADROOM / unit_s,
        are_dots=True,
        level=None if step is None else step.mean_s / unit_s,
        band=(step.low_s / unit_s, step.high_s / unit_s) if step and is_steady else None,
        level_from_s=(measurement.start_up_s or 0.0) + (measurement.warm_up_s or 0.0),
    )


def _step_says(measurement: Measurement, top_s: float) -> str:
    step = measurement.step
    if step is None:
        return "too few for a mean"
    slowest_s = max(length_s for _, length_s in measurement.step_times)
    beyond = f"; slowest {step_time(slowest_s)}, beyond the axis" if slowest_s > top_s else ""
    if not step.is_steady:
        return f"mean {step_time(step.mean_s)}, not steady yet{beyond}"
    between = f"{step_time(step.low_s)} to {step_time(step.high_s)}"
    return f"mean {step_time(step.mean_s)} ({between} at 95 % confidence){beyond}"


def _use_panels(measurement: Measurement) -> Iterator[Panel]:
    for name, field, colour in (
        ("GPU use", "gpu_fraction", "#4fb8a0"),
        ("CPU use", "cpu_fraction", "#ff725c"),
    ):
        points = _read(measurement, field, 0.01)
        if points and (name == "GPU use" or measurement.device == "cpu"):
            says = f"{percent(_mean(points) / 100)} on average"
            yield Panel(name=name, says=says, unit="%", colour=colour, points=points, top=100.0)


def _memory_panel(measurement: Measurement) -> Panel | None:
    """Memory of the fullest GPU up to what it has; the command's own for a run on the CPU."""
    on_cpu = measurement.device == "cpu"
    field = "process_bytes" if on_cpu else "gpu_memory_bytes"
    read = _read(measurement, field, 1.0)
    if not read:
        return None
    limit_bytes = None if on_cpu else gpu_memory_bytes(measurement)
    highest_bytes = max(amount for _, amount in read)
    unit_bytes, unit = byte_unit(limit_bytes or highest_bytes)
    top = max(limit_bytes or 0.0, highest_bytes) * _HEADROOM / unit_bytes
    of = "" if limit_bytes is None else f" of {limit_bytes / unit_bytes:.1f}"
    return Panel(
        name="host memory" if on_cpu else "GPU memory",
        says=f"{highest_bytes / unit_bytes:.1f}{of} {unit} at most",
        unit=unit,
        colour="#a463f2",
        points=tuple((at, amount / unit_bytes) for at, amount in read),
        top=max(top, 1e-9),
        level=None if limit_bytes is None else limit_bytes / unit_bytes,
        level_name=""
        if limit_bytes is None
        else f"the GPU has {limit_bytes / unit_bytes:.1f} {unit}",
    )


def _power_panel(measurement: Measurement) -> Panel | None:
    points = _read(measurement, "power_w", 1.0)
    if not points:
        return None
    limit_w = power_limit_w(measurement)
    highest_w = max(value for _, value in points)
    of = "" if limit_w is None else f" of {limit_w:,.0f}"
    mean = "" if measurement.power is None else f"{measurement.power.mean_w:,.0f} W in steps, "
    return Panel(
        name="power",
        says=f"{mean}{highest_w:,.0f}{of} W at most",
        unit="W",
        colour="#efb118",
        points=points,
        top=max(limit_w or 0.0, highest_w, 1e-9) * _HEADROOM,
        level=limit_w,
        level_name="" if limit_w is None else f"power limit {limit_w:,.0f} W",
    )


def _read(measurement: Measurement, field: str, unit: float) -> tuple[tuple[float, float], ...]:
    """One reading over time, without the moments that have none."""
    return _thin(
        [
            (sample.time_s, value / unit)
            for sample in measurement.samples
            if (value := getattr(sample, field)) is not None
        ]
    )


def _thin(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    return tuple(extremes(points, MOST_POINTS, lambda point: point[1]))


def _mean(points: tuple[tuple[float, float], ...]) -> float:
    return sum(value for _, value in points) / len(points)


def legend(measurement: Measurement) -> list[tuple[str, str]]:
    """Each kind of shaded time, with how long it is in all."""
    totals: dict[str, float] = {}
    for span in spans(measurement):
        totals[span.kind] = totals.get(span.kind, 0.0) + span.end_s - span.begin_s
    return [(kind, f"{kind} {duration(length_s)}") for kind, length_s in totals.items()]


def subtitle(measurement: Measurement) -> str:
    """How long it ran, when, and what could not be drawn."""
    drawn = {panel.name.removeprefix("host ").removeprefix("GPU ") for panel in panels(measurement)}
    expected = ["step time", "memory"]
    expected += ["CPU use"] if measurement.device == "cpu" else ["use", "power"]
    missing = [("GPU use" if name == "use" else name) for name in expected if name not in drawn]
    ran = f"{clock(measurement.elapsed_s)} on {measurement.measured_on}"
    return f"{ran}; not seen: {', '.join(missing)}" if missing else ran


# As one HTML file: an SVG with hover text, and a few rules of CSS.


WIDE = Layout(width=1120, height=0, left=72, right=20, top=112, bottom=52)
NARROW = Layout(width=360, height=0, left=40, right=10, top=60, bottom=44, are_named=False)
"""As high as their panels; a narrow one's top is below its words."""
_TALL, _LOW, _GAP = 200, 92, 46
MOST_HOVERS = 280
_STYLE = """\
.interval { fill: var(--ink); fill-opacity: .12; }
.shade { fill-opacity: .15; } .dots { fill-opacity: .75; } .curve { fill: none; stroke-width: 1.6; }
.under { fill-opacity: .22; }
"""


def probe_html(measurement: Measurement) -> str:
    """The whole page."""
    return page(
        title(measurement), for_widths(partial(probe_svg, measurement), WIDE, NARROW), _STYLE
    )


def probe_svg(measurement: Measurement, layout: Layout = WIDE) -> str:
    """The picture alone, as XML."""
    made = _ProbeDrawing(measurement, layout)
    parts = [*made.head, *made.shades()]
    for panel, (top, height) in zip(made.panels, made.places, strict=True):
        parts += [*made.frame(panel, top, height), *made.curve(panel, top, height)]
    if not made.panels:
        words = "Nothing was seen that could be drawn."
        parts.append(text(layout.left, made.top + 20, words, "soft"))
    return drawing(
        layout.width, made.height, answer(measurement), [*parts, *made.time_axis(), *made.hovers()]
    )


class _ProbeDrawing:
    """A measurement and its scales; each method draws one part."""

    def __init__(self, measurement: Measurement, layout: Layout) -> None:
        self.measurement = measurement
        self.layout = layout
        self.left, self.right = layout.left, layout.width - layout.right
        self.head, self.top = self._narrow_head() if layout.is_narrow else self._wide_head()
        self.panels = panels(measurement)
        self.end_s = end_s(measurement)
        self.places: list[tuple[float, float]] = []
        top = float(self.top)
        for panel in self.panels:
            tall = _TALL if panel.are_dots else _LOW
            self.places.append((top, tall))
            top += tall + _GAP
        self.foot = top - _GAP if self.panels else top
        self.height = round(self.foot + layout.bottom)

    def x(self, time_s: float) -> float:
        """Across: 0 s at the left."""
        return self.left + min(time_s / self.end_s, 1.0) * (self.right - self.left)

    def _wide_head(self) -> tuple[list[str], int]:
        """The title, when it ran, a square and words for each kind of shaded time; and where the
        panels begin."""
        words_of_run, left = subtitle(self.measurement), self.layout.left
        parts = [
            text(left, 26, title(self.measurement), "title"),
            text(left, 51, words_of_run, "soft"),
        ]
        x = left + 28 + 6.4 * len(words_of_run)
        for kind, words in legend(self.measurement):
            parts += _key(x, 41, kind, words)
            x += 38 + 6.4 * len(words)
        return parts, self.layout.top

    def _narrow_head(self) -> tuple[list[str], int]:
        """The same line below line."""
        room, y, parts = self.layout.width - 12, 18, []
        for words, style, letter in (
            (title(self.measurement), "strong", 8.2),
            (subtitle(self.measurement), "soft", 6.6),
        ):
            for one in folded(words, room, letter)[:4]:
                parts.append(text(6, y, one, style))
                y += 18
        for place, (kind, words) in enumerate(legend(self.measurement)):
            parts += _key((6.0, 184.0)[place % 2], y - 10, kind, words)
            y += 18 * (place % 2)
        return parts, max(y + 40, self.layout.top)

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
        says = f'<tspan class="soft" dx="10">{escape(self._said(panel))}</tspan>'
        parts = [
            f'<text x="{self.left}" y="{top - 12:.1f}">{name}{says}</text>',
            text(self.left - 8, top - 12, panel.unit, "soft end"),
        ]
        for value in ticks(panel.top, 5 if panel.are_dots else 3):
            y = _y(panel, value, top, height)
            parts.append(line(self.left, y, self.right, y, "grid"))
            parts.append(text(self.left - 8, y + 4, f"{value:g}", "soft end"))
        return parts

    def _said(self, panel: Panel) -> str:
        """What a panel says, as much of it as there is room for."""
        room = self.right - self.left - 8.2 * len(panel.name) - 10
        return panel.says if not self.layout.is_narrow else folded(panel.says, room, 6.2)[0]

    def curve(self, panel: Panel, top: float, height: float) -> list[str]:
        """The values, and over them a mean or a limit."""
        at = [(self.x(time_s), _y(panel, value, top, height)) for time_s, value in panel.points]
        parts, begin, end = [], self.x(panel.level_from_s), self.right
        if panel.band is not None:
            high, low = (_y(panel, value, top, height) for value in reversed(panel.band))
            parts.append(rect(begin, high, end - begin, max(low - high, 1.0), "interval"))
        parts += _dots(panel, at) if panel.are_dots else _line(panel, at, top + height)
        if panel.level is not None:
            y = _y(panel, panel.level, top, height)
            parts.append(line(begin, y, end, y, "level"))
            if panel.level_name:
                parts.append(text(begin + 6, y + 14, panel.level_name, "soft over"))
        return parts

    def time_axis(self) -> list[str]:
        """Numbers below the last panel; none where there is no panel."""
        if not self.panels:
            return []
        unit_s, unit = time_unit(self.end_s)
        middle, words = (self.left + self.right) / 2, f"{unit} after the start"
        most = 4 if self.layout.is_narrow else 10
        numbers = [
            text(self.x(value * unit_s), self.foot + 18, f"{value:g}", "soft middle")
            for value in ticks(self.end_s / unit_s, most)
        ]
        return [*numbers, text(middle, self.foot + 38, words, "soft middle")]

    def hovers(self) -> list[str]:
        """Strips through all panels that tell what was there at their time."""
        most = MOST_HOVERS // 4 if self.layout.is_narrow else MOST_HOVERS
        edges = [self.end_s * index / most for index in range(most + 1)]
        tips = ((begin, end, self._tip(begin, end)) for begin, end in pairwise(edges))
        strips = [
            rect(
                self.x(begin), self.top, self.x(end) - self.x(begin), self.foot - self.top, "", tip
            )
            for begin, end, tip in tips
            if tip
        ]
        return ['<g class="hover">', *strips, "</g>"]

    def _tip(self, begin_s: float, end_s: float) -> str:
        """What each panel has within a stretch of time: its highest value."""
        highest = []
        for panel in self.panels:
            within = [value for at, value in panel.points if begin_s <= at < end_s]
            if within:
                highest.append(f"{panel.name}: {rate(max(within))} {panel.unit}")
        kinds = [
            span.kind
            for span in spans(self.measurement)
            if span.begin_s < end_s and begin_s < span.end_s
        ]
        head = [f"{clock(begin_s)} after the start", *dict.fromkeys(kinds)]
        return "\n".join([*head, *highest]) if highest or kinds else ""


def _key(x: float, y: float, kind: str, words: str) -> list[str]:
    """A square of the ground of a kind of time, and words."""
    box = f'x="{x:.1f}" y="{y:.0f}" width="11" height="11" fill="{SHADES[kind]}"'
    return [f'<rect {box} fill-opacity=".45"/>', text(x + 16, y + 10, words, "soft")]


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


# As a PNG, drawn by matplotlib: imported where it draws, as an .html needs none.


def probe_png(measurement: Measurement) -> bytes:
    """The picture as the bytes of a file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = panels(measurement)
    heights = [2.0 if panel.are_dots else 1.0 for panel in shown] or [1.0]
    figure = Figure(figsize=(11, 1.5 + 1.5 * sum(heights)), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    rows = figure.subplots(len(heights), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    unit_s, unit = time_unit(end_s(measurement))
    rows[-1].set_xlim(0, end_s(measurement) / unit_s)
    for axes, panel in zip(rows, shown, strict=False):
        _draw_spans(axes, measurement, unit_s)
        _draw_panel(axes, panel, unit_s)
    if not shown:
        rows[0].text(0, 0.5, "Nothing was seen that could be drawn.", color=SOFT)
        rows[0].set_axis_off()
    rows[-1].set_xlabel(f"{unit} after the start", color=SOFT)
    figure.suptitle(title(measurement), x=0.02, ha="left", fontsize=13, fontweight="bold")
    _draw_legend(figure, measurement)
    out = io.BytesIO()
    canvas.print_png(out)
    return out.getvalue()


def _draw_spans(axes: Axes, measurement: Measurement, unit_s: float) -> None:
    for span in spans(measurement):
        begin, end = span.begin_s / unit_s, span.end_s / unit_s
        axes.axvspan(begin, end, color=SHADES[span.kind], alpha=0.15, linewidth=0)


def _draw_panel(axes: Axes, panel: Panel, unit_s: float) -> None:
    across = [time_s / unit_s for time_s, _ in panel.points]
    values = [min(value, panel.top) for _, value in panel.points]
    ends = [panel.level_from_s / unit_s, axes.get_xlim()[1]]
    if panel.band is not None:
        axes.fill_between(ends, *panel.band, color=INK, alpha=0.12, linewidth=0)
    if panel.are_dots:
        axes.plot(across, values, ".", color=panel.colour, markersize=3.5, alpha=0.75)
    else:
        axes.plot(across, values, color=panel.colour, linewidth=1.3)
        axes.fill_between(across, values, color=panel.colour, alpha=0.22, linewidth=0)
    if panel.level is not None:
        dashes = (0, (5, 4))
        axes.hlines(panel.level, *ends, color=INK, linewidth=0.9, linestyle=dashes, alpha=0.7)
    axes.set_ylim(0, panel.top)
    axes.set_yticks(ticks(panel.top, 5 if panel.are_dots else 3))
    axes.set_title(f"{panel.name}: {panel.says}", loc="left", fontsize=9.5, color=INK)
    axes.set_ylabel(panel.unit, color=SOFT)
    axes.grid(axis="y", color=LINE, linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    axes.tick_params(colors=SOFT, length=0)


def _draw_legend(figure: Figure, measurement: Measurement) -> None:
    from matplotlib.patches import Patch

    squares = [
        Patch(color=SHADES[kind], alpha=0.45, label=words) for kind, words in legend(measurement)
    ]
    key = figure.legend(
        handles=squares,
        loc="outside lower center",
        ncols=6,
        frameon=False,
        fontsize=8.5,
        title=subtitle(measurement),
    )
    key.get_title().set(color=SOFT, fontsize=8.5)
