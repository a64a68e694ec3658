"""The figures of a probe as rows: what, what was seen, and how it is meant."""

from __future__ import annotations

from collections.abc import Iterator

from outlay.measurement import Measurement, OptimizerSeen, Pause
from outlay.report.probe_words import gpu_memory_bytes
from outlay.report.text import (
    count,
    counted,
    duration,
    energy,
    figure,
    gib,
    magnitude,
    percent,
    size,
    step_time,
)

Row = tuple[str, str, str]
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
    yield from map(_optimizer, measurement.optimizers)
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


def _pause(pause: Pause) -> Row:
    each = f", {step_time(pause.total_s / pause.times)} each" if pause.times else ""
    return _PAUSES[pause.kind], duration(pause.total_s), f"{counted(pause.times, 'time')}{each}"


def _waits(measurement: Measurement) -> Iterator[Row]:
    step, shares = measurement.step, measurement.shares
    if step is None:
        return
    for name, fraction in (
        ("waits for data", shares.input),
        ("asleep" if measurement.device == "cpu" else "waits for Python", shares.host),
        ("waits for network", shares.network),
    ):
        if fraction is not None:
            yield name, step_time(fraction * step.mean_s), f"{percent(fraction)} of a step"


def _optimizer(optimizer: OptimizerSeen) -> Row:
    skipped = (
        f", {counted(optimizer.skipped, 'step')} left out by the gradient scaler"
        if optimizer.skipped
        else ""
    )
    often = f"{figure(optimizer.per_step)} a step{skipped}"
    how = f"{magnitude(optimizer.parameters)} parameters, {often}"
    return "optimizer", optimizer.name, how


def _work(measurement: Measurement) -> Iterator[Row]:
    if measurement.batch_size is not None:
        passes = measurement.passes_per_step or 1
        ranks = max(measurement.world_size, 1)
        shown = figure(passes)
        times = f", {shown} passes a step" if shown != "1" else ""
        split = f", on {ranks} processes" if ranks > 1 else ""
        yield "batch", count(measurement.batch_size), f"samples of a pass{times}{split}"
    if measurement.steps_per_epoch is not None:
        yield "epoch", counted(round(measurement.steps_per_epoch), "step"), ""
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
        ("memory used", memory.used_bytes, f"{has}context and others' use included"),
        ("host memory", memory.host_bytes, "of the command and all it started, at most"),
    ):
        if amount_bytes is not None:
            yield name, gib(amount_bytes), how


def _parts_words(measurement: Measurement) -> str:
    memory = measurement.memory
    known = [
        f"{name} {size(amount_bytes)}"
        for name, amount_bytes in (
            ("parameters", memory.parameters_bytes),
            ("gradients", memory.gradients_bytes),
            ("optimizer", memory.optimizer_bytes),
            ("frozen", memory.frozen_bytes or None),
        )
        if amount_bytes is not None
    ]
    return f"by tensors, at most{': ' if known else ''}{', '.join(known)}"


def _power(measurement: Measurement) -> Iterator[Row]:
    power = measurement.power
    if power is None:
        return
    limits = [gpu.power_limit_w for gpu in measurement.machine.gpus]
    known = [limit for limit in limits if limit is not None]
    limit = f"; limit {sum(known):,.0f} W" if known and len(known) == len(limits) else ""
    yield "power", f"{power.mean_w:,.0f} W", f"at most {power.max_w:,.0f} W{limit}; GPUs alone"
    yield "energy", energy(power.energy_per_step_j), f"a step{_per_thousand(measurement)}"


def _per_thousand(measurement: Measurement) -> str:
    """Energy of 1000 samples on this machine's GPUs, where the samples of a step are known."""
    power, samples = measurement.power, measurement.samples_per_step
    if power is None or not samples:
        return ""
    here = samples * max(measurement.ranks, 1)
    return f"; {energy(1000 * power.energy_per_step_j / here)} for 1,000 samples"
