"""Memory over a training step as a PNG, drawn by matplotlib."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from outlay.report.memory_plot import (
    COLOURS,
    edges,
    label,
    layers,
    peak_lines,
    stretches,
    thinned,
)
from outlay.report.picture import DPI, INK, LINE, SOFT, byte_unit
from outlay.report.text import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from outlay.trace.step_report import MemoryTimeline

_NARROWEST_PHASE = 0.05
"""The share of the width from which a phase is named."""


def memory_png(timeline: MemoryTimeline, title: str) -> bytes:
    """The picture as the bytes of a file."""
    figure = Figure(figsize=(11, 5.6), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    unit_bytes, unit = byte_unit(timeline.peak.memory.peak_bytes)
    top = max(timeline.peak.memory.peak_bytes, 1.0) * 1.26 / unit_bytes
    _draw_layers(axes, thinned(timeline), unit_bytes)
    _draw_phases(axes, timeline)
    _draw_peak(axes, timeline, unit_bytes)
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
        if end - begin >= _NARROWEST_PHASE * timeline.operations:
            middle = (begin + end) / 2
            axes.text(middle, 1.01, phase, transform=place, ha="center", color=SOFT)
        elif end == timeline.operations:
            axes.text(end, 1.01, phase, transform=place, ha="right", color=SOFT)


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
