"""What `outlay probe` saw, printed for people: while it runs, and once it has ended.

figures      step times, pauses, work, memory and power as rows of a table
live_line    the one line that is shown while it runs
sparkline    a curve in one line of text
print_probe  the page: the answer, what holds it back, the figures, the checks, time and cost

The sentences of the page are in `outlay.report.probe_words`, its pictures in `probe_plot`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outlay.measurement.measurement import (
    Check,
    Finding,
    MeasuredOptimizer,
    MeasuredPause,
    Measurement,
    Verdict,
)
from outlay.probe.stages import LiveState
from outlay.probe.summary import order_words
from outlay.report.console import INDENT, Page, bullets, muted, table
from outlay.report.probe_words import (
    answer,
    cost,
    gpu_memory_bytes,
    holds_back,
    next_step,
    power_limit_w,
    ran,
    to_finish,
    why_incomplete,
)
from outlay.report.text import (
    clock,
    count,
    counted,
    duration,
    energy,
    figure,
    gib,
    magnitude,
    percent,
    rate,
    size,
    step_time,
    usd,
)
from outlay.units import GIB

# The figures as rows: what, what was seen, and how it is meant.


Row = tuple[str, str, str]
_NEARLY_ALL = 0.97
_PAUSES = {
    "evaluation": "evaluations",
    "checkpoint": "checkpoints",
    "epoch start": "new epochs",
    "other": "other pauses",
}


def figures(measurement: Measurement) -> Iterator[Row]:
    """All rows, in the order of a run: time, work, memory, power; unknown ones are left out."""
    yield from _times(measurement)
    yield from map(_pause, measurement.pauses)
    yield from _waits(measurement)
    yield from _optimizers(measurement.optimizers)
    yield from _orders(measurement)
    yield from _work(measurement)
    yield from _memory(measurement)
    yield from _power(measurement)


def _times(measurement: Measurement) -> Iterator[Row]:
    step = measurement.step
    if step is not None:
        spread = f"a tenth under {step_time(step.p10_s)}, a tenth over {step_time(step.p90_s)}"
        yield "step, mean", step_time(step.mean_s), _interval(measurement)
        yield "step, median", step_time(step.median_s), spread
    if measurement.busy_s is not None:
        yield "kernels busy", step_time(measurement.busy_s), "of a step, by a profile of a few"
    if measurement.start_up_s is not None:
        yield "start-up", duration(measurement.start_up_s), "until the end of the first step"
    if measurement.warm_up_s is not None:
        after = "" if step is None else f"{counted(step.warm_up_steps, 'step')}, not counted"
        yield "warm-up", duration(measurement.warm_up_s), after


def _interval(measurement: Measurement) -> str:
    step = measurement.step
    assert step is not None
    slowest = ", of the slowest process" if measurement.world_size > 1 else ""
    if not step.is_steady:
        return f"not steady yet: no interval to rely on{slowest}"
    return f"{step_time(step.low_s)} to {step_time(step.high_s)} at 95 % confidence{slowest}"


def _pause(pause: MeasuredPause) -> Row:
    each = f", {step_time(pause.total_s / pause.times)} each" if pause.times else ""
    return _PAUSES[pause.kind], duration(pause.total_s), f"{counted(pause.times, 'time')}{each}"


def _waits(measurement: Measurement) -> Iterator[Row]:
    step, shares = measurement.step, measurement.shares
    if step is None:
        return
    for name, fraction in (
        ("waits for data", shares.input),
        ("asleep" if measurement.device == "cpu" else "waits for Python", shares.host),
        ("waits for network", _network_share(measurement)),
    ):
        if fraction is not None:
            yield name, step_time(fraction * step.mean_s), f"{percent(fraction)} of a step"


def _network_share(measurement: Measurement) -> float | None:
    """What exchanges take of a step; None for one process, which has none."""
    is_alone = max(measurement.world_size, measurement.ranks) <= 1
    return (measurement.shares.network or None) if is_alone else measurement.shares.network


def _optimizers(optimizers: Sequence[MeasuredOptimizer]) -> Iterator[Row]:
    """A row for each, those that are alike in one."""
    for (what, name, how), alike in Counter(map(_optimizer, optimizers)).items():
        yield what, name, how if alike == 1 else f"{how}; {alike} such"


def _optimizer(optimizer: MeasuredOptimizer) -> Row:
    skipped = (
        f", {counted(optimizer.skipped, 'step')} left out by the gradient scaler"
        if optimizer.skipped
        else ""
    )
    often = f"{figure(optimizer.per_step)} a step{skipped}"
    how = f"{magnitude(optimizer.parameters)} parameters, {often}"
    return "optimizer", optimizer.name, how


def _orders(measurement: Measurement) -> Iterator[Row]:
    """What was counted as one step, where several optimizers step in it."""
    for order in measurement.optimizer_orders:
        share = "" if order.fraction > _NEARLY_ALL else f"{percent(order.fraction)} of steps: "
        number = counted(len(order.optimizers), "optimizer step")
        yield "one step", number, f"{share}{order_words(measurement, order)}"


def _epoch(steps: float) -> str:
    """Its steps; a part of one where gradients are accumulated over several epochs."""
    return counted(round(steps), "step") if steps >= 1 else f"{figure(steps)} of a step"


def _work(measurement: Measurement) -> Iterator[Row]:
    if measurement.batch_size is not None:
        passes = measurement.passes_per_step or 1
        ranks = max(measurement.world_size, 1)
        shown = figure(passes)
        times = f", {shown} passes a step" if shown != "1" else ""
        split = f", on {ranks} processes" if ranks > 1 else ""
        yield "batch", count(measurement.batch_size), f"samples of a pass{times}{split}"
    if measurement.arithmetic:
        shares = ((name, percent(share)) for name, share in measurement.arithmetic.items())
        words = ", ".join(f"{name.replace('tf32', 'TF32')} {share}" for name, share in shares)
        yield "arithmetic", words, "of matrix products and convolutions, by their FLOPs"
    if measurement.steps_per_epoch is not None:
        yield "epoch", _epoch(measurement.steps_per_epoch), ""
    finite = [(number, loss) for number, loss in measurement.losses if loss is not None]
    if finite:
        (first, begin), (last, end) = finite[0], finite[-1]
        before = f"; {begin:.4g} at step {count(first)}" if first != last else ""
        whose = "of a backward pass, " if (measurement.passes_per_step or 1) > 1 else ""
        yield "loss", f"{end:.4g}", f"{whose}at {_loss_step(measurement)} {count(last)}{before}"


def _loss_step(measurement: Measurement) -> str:
    """What losses are counted by: where a step has several optimizer steps, it says so."""
    each = sum(optimizer.per_step for optimizer in measurement.optimizers)
    return "optimizer step" if each > 1 else "step"


def _memory(measurement: Measurement) -> Iterator[Row]:
    memory, has_bytes = measurement.memory, gpu_memory_bytes(measurement)
    limit = "" if memory.limit_bytes is None else f"; it may take {gib(memory.limit_bytes)}"
    has = "" if has_bytes is None else f"the GPU has {gib(has_bytes)}; "
    for name, amount_bytes, how in (
        ("memory allocated", memory.allocated_bytes, _parts_words(measurement)),
        ("memory reserved", memory.reserved_bytes, f"by torch's allocator{limit}"),
        ("taken once", memory.search_bytes, _SEARCH),
        ("memory used", memory.used_bytes, f"{has}context and others' use included"),
        ("host memory", memory.host_bytes, "of the command and all it started, at most"),
    ):
        if amount_bytes is not None:
            yield name, gib(amount_bytes), how


_SEARCH = (
    "while cuDNN tried algorithms (cudnn.benchmark), and given back: a smaller GPU does without"
)


def _parts_words(measurement: Measurement) -> str:
    memory = measurement.memory
    parts = [
        f"{name} {size(amount_bytes)}"
        for name, amount_bytes in (
            ("parameters", memory.parameters_bytes),
            ("gradients", memory.gradients_bytes),
            ("optimizer", memory.optimizer_bytes),
            ("frozen", memory.frozen_bytes or None),
        )
        if amount_bytes is not None
    ]
    return f"by tensors, at most{': ' if parts else ''}{', '.join(parts)}"


def _power(measurement: Measurement) -> Iterator[Row]:
    power = measurement.power
    if power is None:
        return
    limit_w = power_limit_w(measurement)
    limit = "" if limit_w is None else f"; limit {limit_w:,.0f} W"
    yield "power", f"{power.mean_w:,.0f} W", f"at most {power.max_w:,.0f} W{limit}; GPUs alone"
    yield "energy", energy(power.energy_per_step_j), f"a step{_per_thousand(measurement)}"


def _per_thousand(measurement: Measurement) -> str:
    """Energy of 1000 samples on this machine's GPUs, where the samples of a step are known."""
    power, samples = measurement.power, measurement.samples_per_step
    if power is None or not samples:
        return ""
    here = samples * max(measurement.ranks, 1)
    return f"; {energy(1000 * power.energy_per_step_j / here)} for 1,000 samples"


# The live line: one line of text, with the least important left out when narrow.


_BETWEEN = " · "


def live_line(state: LiveState, width: int) -> str:
    """The line, no longer than the width; the phase stays to the last, and is cut if need be."""
    parts = list(_parts(state))
    while len(parts) > 1 and len(_joined(parts)) > width:
        parts.remove(max(parts))
    return _joined(parts)[: max(width, 0)]


def _joined(parts: list[tuple[int, int, str]]) -> str:
    return _BETWEEN.join(text for _, _, text in parts)


def _parts(state: LiveState) -> Iterator[tuple[int, int, str]]:
    """Rank, where 0 is left out last; place on the line; text."""
    texts = (
        (0, _phase(state)),
        (1, _step(state)),
        (8, _pace(state)),
        (3, _with("{} samples/s", state.samples_per_s, rate)),
        (4, _with("GPU {}", state.gpu_fraction, percent)),
        (7, _live_memory(state)),
        (9, _with("{} W", state.power_w, count)),
        (2, _precision(state)),
        (6, _with("{} so far", state.usd, usd)),
        (5, _left(state)),
    )
    for place, (rank, text) in enumerate(texts):
        if text:
            yield rank, place, text


def _with(words: str, value: float | None, written: Callable[[float], str]) -> str:
    """The value within its words; nothing where it is not known."""
    return "" if value is None else words.format(written(value))


def _phase(state: LiveState) -> str:
    return f"{state.phase} {clock(state.elapsed_s)}"


def _step(state: LiveState) -> str:
    if not state.step:
        return "no step yet"
    of = "" if state.wanted_steps is None else f" of {count(state.wanted_steps)}"
    return f"step {count(state.step)}{of}"


def _pace(state: LiveState) -> str:
    """Iterations a second, or seconds each where they are slow."""
    if not state.step_s:
        return ""
    slow = state.step_s > 1
    return f"{rate(state.step_s)} s/it" if slow else f"{rate(1 / state.step_s)} it/s"


def _live_memory(state: LiveState) -> str:
    if state.memory_bytes is None:
        return ""
    has = state.memory_limit_bytes
    of = "" if has is None else f" of {has / GIB:.1f}"
    return f"{state.memory_bytes / GIB:.1f}{of} GiB"


def _precision(state: LiveState) -> str:
    """How well the mean is known, and how well it should be."""
    if state.precision is None:
        return ""
    target = state.wanted_precision
    goal = "" if target is None else f" (want {100 * target:.3g} %)"
    return f"± {100 * state.precision:.1f} %{goal}"


def _left(state: LiveState) -> str:
    if state.left_s is None:
        return ""
    price = "" if state.left_usd is None else f", {usd(state.left_usd)}"
    return f"{duration(state.left_s)}{price} left"


# A curve in one line of text.


_BARS = "▁▂▃▄▅▆▇█"


def buckets(points: Sequence[tuple[float, float]], end: float, number: int) -> list[float | None]:
    """Means of the values in equal stretches from 0 to the end; None where none falls."""
    stretches: list[list[float]] = [[] for _ in range(number)]
    for at, value in points:
        place = min(int(at / end * number), number - 1) if end > 0 else 0
        stretches[max(place, 0)].append(value)
    return [sum(values) / len(values) if values else None for values in stretches]


def sparkline(values: Sequence[float | None], top: float = 1.0) -> str:
    """A bar for each value from 0 to the top; a dot where there is none."""
    return "".join("·" if value is None else _bar(value / top) for value in values)


def _bar(fraction: float) -> str:
    return _BARS[min(max(int(fraction * len(_BARS)), 0), len(_BARS) - 1)]


# The page.


_MOST_BARS = 60
_SHARE_BARS = 40
_MARKS: dict[Verdict, tuple[str, str]] = {
    "ok": ("✔ ok", "green"),
    "look": ("! look", "yellow"),
    "bad": ("✘ bad", "bold red"),
    "unknown": ("? unknown", "dim"),
}
_WAITS = {
    "compute": "computing",
    "network": "waiting for other GPUs",
    "input": "waiting for data",
    "host": "waiting for Python",
}


def print_probe(
    page: Page,
    measurement: Measurement,
    *,
    total_steps: int | None = None,
    saved_as: str | None = None,
    saved_by: str = "--json OUT.json",
) -> None:
    """Print the answer, what holds it back, the figures, the checklist, and what to do next.

    `total_steps` is how long the whole run is, where the user knows better than the script;
    `saved_as` is the file the measurement was written to; without one, `saved_by` is what would.
    """
    page.print(Text(answer(measurement), style="bold"))
    page.print(ran(measurement))
    for line in why_incomplete(measurement):
        page.print(Text(line, style="yellow"))
    for title, body in _sections(measurement, total_steps, page.width - INDENT):
        page.print_section(title, body)
    further = next_step(measurement, saved_as, saved_by)
    if further is not None:
        page.print()
        page.print(muted(further))


def _sections(
    measurement: Measurement, total_steps: int | None, width: int
) -> Iterator[tuple[str, RenderableType]]:
    if measurement.finding is not None:
        yield (
            holds_back(measurement.finding, measurement.device),
            _finding(measurement.finding, measurement, width),
        )
    rows = list(figures(measurement))
    if rows:
        yield "Figures", table(("what", "seen", "how"), rows, width, wrap="how")
    curve = _use_over_time(measurement, width)
    if curve is not None:
        yield curve
    if measurement.checks:
        yield "Is it training properly?", _checks(measurement.checks)
    money = [*cost(measurement), *to_finish(measurement, total_steps)]
    if money:
        yield "Time and cost", Group(*money)
    if measurement.notes:
        yield "Not seen, or taken for granted", bullets(measurement.notes)


def _finding(finding: Finding, measurement: Measurement, width: int) -> Group:
    parts: list[RenderableType] = [bullets(finding.evidence, "")] if finding.evidence else []
    parted = _shares(measurement, width)
    if parted is not None:
        parts.append(parted)
    if finding.cures:
        parts += [Text("What usually helps:"), bullets(finding.cures, "")]
    return Group(*parts)


def _shares(measurement: Measurement, width: int) -> Table | None:
    """Where the time of a step goes, a bar for each part that is known."""
    waits = _WAITS | ({"host": "asleep"} if measurement.device == "cpu" else {})
    shares = replace(measurement.shares, network=_network_share(measurement))
    fractions = [(name, getattr(shares, field)) for field, name in waits.items()]
    bars = min(_SHARE_BARS, width - 34)
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(no_wrap=True, justify="right")
    made.add_column(no_wrap=True)
    for name, fraction in fractions:
        if fraction is not None:
            made.add_row(name, percent(fraction), "█" * round(fraction * bars))
    return made if made.row_count else None


def _use_over_time(measurement: Measurement, width: int) -> tuple[str, RenderableType] | None:
    """The GPU's use as one line, or the CPU's for a run on it; None where nothing was read."""
    field, name = (
        ("cpu_fraction", "CPU use of the whole machine")
        if measurement.device == "cpu"
        else ("gpu_fraction", "GPU use")
    )
    points = [
        (sample.time_s, value)
        for sample in measurement.samples
        if (value := getattr(sample, field)) is not None
    ]
    if not points:
        return None
    end_s = max(measurement.elapsed_s, points[-1][0])
    values = buckets(points, end_s, min(_MOST_BARS, width, len(points)))
    begun_s = measurement.start_up_s
    trained = [value for time_s, value in points if begun_s is not None and time_s > begun_s]
    counted = trained or [value for _, value in points]
    after = f"after its start ({clock(begun_s)}) " if trained and begun_s else ""
    mean = sum(counted) / len(counted)
    title = (
        f"{name} over {clock(end_s)}: {after}{percent(mean)} on average, "
        f"{percent(min(counted))} at least"
    )
    return title, Text(sparkline(values))


def _checks(checks: Sequence[Check]) -> Table:
    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(no_wrap=True)
    made.add_column(overflow="fold", max_width=28)
    made.add_column(overflow="fold")
    for check in checks:
        mark, style = _MARKS[check.verdict]
        made.add_row(Text(mark, style=style), check.name, Text(check.why))
    return made
