"""A probe as a picture: step times, use of the GPU, memory and power over time, one below another.

`write_probe_plot` takes the form from the file's ending: `.html` is one file without scripts or
anything from elsewhere (SVG with hover text, light and dark), `.png` needs matplotlib.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlay.measurement import Measurement
from outlay.report.picture import MOST_POINTS, byte_unit, extremes, write_picture
from outlay.report.probe_words import gpu_memory_bytes
from outlay.report.text import clock, duration, percent, step_time
from outlay.units import HOUR_S, MINUTE_S

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
    """A mean or a limit, as a dashed line."""
    band: tuple[float, float] | None = None
    """The confidence interval of a mean."""
    level_from_s: float = 0.0
    """Where the level and the band begin: a mean is of the steady state."""


def write_probe_plot(path: Path, measurement: Measurement) -> None:
    """Write the picture in the form the file's ending names."""

    def html() -> str:
        from outlay.report.probe_html import probe_html

        return probe_html(measurement)

    def png() -> bytes:
        from outlay.report.probe_png import probe_png

        return probe_png(measurement)

    write_picture(path, html, png)


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
    )


def _power_panel(measurement: Measurement) -> Panel | None:
    points = _read(measurement, "power_w", 1.0)
    if not points:
        return None
    limits = [gpu.power_limit_w for gpu in measurement.machine.gpus]
    known = [limit for limit in limits if limit is not None]
    limit_w = sum(known) if known and len(known) == len(limits) else None
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
    wanted = ["step time", "memory"]
    wanted += ["CPU use"] if measurement.device == "cpu" else ["use", "power"]
    missing = [("GPU use" if name == "use" else name) for name in wanted if name not in drawn]
    ran = f"{clock(measurement.elapsed_s)} on {measurement.measured_on}"
    return f"{ran}; not seen: {', '.join(missing)}" if missing else ran
