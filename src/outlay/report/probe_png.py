"""A probe over time as a PNG, drawn by matplotlib."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from outlay.report.picture import DPI, INK, LINE, SOFT, ticks
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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from outlay.measurement import Measurement


def probe_png(measurement: Measurement) -> bytes:
    """The picture as the bytes of a file."""
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
