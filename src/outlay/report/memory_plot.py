"""Memory over a training step as a picture: stacked categories against the operation's number.

`write_plot` takes the form from the file's ending: `.html` is one file without scripts or
anything from elsewhere (SVG with hover text, light and dark), `.png` needs matplotlib.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

from outlay.report.picture import MOST_POINTS, extremes, write_picture
from outlay.report.text import count, size
from outlay.trace.step_report import MemoryPoint, MemoryTimeline
from outlay.trace.trace import Phase

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from outlay.trace.trace import Phase

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


def write_plot(path: Path, timeline: MemoryTimeline, title: str) -> None:
    """Write the picture in the form the file's ending names."""

    def html() -> str:
        from outlay.report.memory_html import memory_html

        return memory_html(timeline, title)

    def png() -> bytes:
        from outlay.report.memory_png import memory_png

        return memory_png(timeline, title)

    write_picture(path, html, png)


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


def _drawn(phase: Phase) -> Phase:
    """Recomputing alternates with backward block by block, and is drawn as a part of it."""
    return "backward" if phase == "recompute" else phase


def stretches(timeline: MemoryTimeline) -> Iterator[tuple[Phase, float, float]]:
    """Consecutive operations of one phase: the phase, and where it begins and ends."""
    marks = list(pairwise(edges(timeline)))
    pairs = zip(timeline.points, marks, strict=True)
    for phase, group in groupby(pairs, key=lambda pair: _drawn(pair[0].phase)):
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
