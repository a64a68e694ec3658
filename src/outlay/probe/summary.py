"""A `Measurement` put together from the logs of processes and the samples of driver and system.

Notes    what to know beside the figures: what was not seen, and what is a guess
Parts    `measurement_of` everything, and the functions for its fields
Figures  what trackers get of it
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, get_args

import numpy as np

from outlay.measurement.measurement import (
    Ending,
    MeasuredGpu,
    MeasuredMachine,
    MeasuredMemory,
    MeasuredOptimizer,
    MeasuredPower,
    Measurement,
    OptimizerOrder,
    Sample,
    StoppedFor,
)
from outlay.probe.agent.backward import PASSES_ALONE
from outlay.probe.agent.batch import VIEWS
from outlay.probe.agent.protocol import (
    UNKNOWN_OPTIMIZER,
    AgentFailed,
    CompiledFrames,
    KernelTimes,
    LibraryVersions,
    MemoryExhausted,
    MemoryLimit,
    MemoryPeaks,
    ModuleInputs,
    OptimizerInfo,
    PersistentMemory,
    PhaseFailed,
)
from outlay.probe.bottleneck import arithmetic_by_precision, product_shares
from outlay.probe.cycles import cycles_of
from outlay.probe.epochs import epoch_of
from outlay.probe.gpu_driver import Driver, NoDriver
from outlay.probe.guard import Guard
from outlay.probe.health import add_diagnosis, has_tf32
from outlay.probe.messages import ProcessLog, other_training
from outlay.probe.pauses import notes_on_first_evaluation, pauses_with_late
from outlay.probe.recorded_step import recorded_profile
from outlay.probe.sampler import SystemSampler
from outlay.probe.stages import ProbeLimits
from outlay.probe.steps import (
    NO_OVERRIDE,
    StepSize,
    StepSizeOverride,
    StepStatistics,
    one_by_one,
    step_size,
)
from outlay.probe.system import this_machine

# Notes

AGENT_S = 20e-6
"""What the agent takes of a step, about (tests/probe/test_agent_cost.py holds it below 60)."""
_NOTED_FRACTION = 0.01
_MOSTLY = 0.5
_SAME_BATCH = 0.05
"""Batches that are cut short at the end of an epoch make so much of a difference."""


def notes_on_missing(
    measurement: Measurement,
    logs: Sequence[ProcessLog],
    all_logs: Sequence[ProcessLog],
    driver: Driver | NoDriver | None,
    unwatched: Sequence[str] = (),
) -> list[str]:
    """What of the command was not seen, and why."""
    notes = []
    if isinstance(driver, NoDriver) and measurement.device != "cpu":
        notes.append(str(driver))
    if unwatched and not logs:
        notes += unwatched
    elif not all_logs:
        notes.append(
            "No Python of the command imported torch where outlay could see it: another "
            "interpreter option (-I, -E, -S), a PYTHONPATH of its own without what outlay put "
            "there, a container or another machine hides it."
        )
    elif not logs:
        notes.append(
            "torch was imported, but no optimizer made a step. One that is no "
            f"torch.optim.Optimizer is not seen, but after {PASSES_ALONE} backward passes."
        )
    if measurement.world_size > measurement.ranks > 0:
        notes.append(
            f"{measurement.ranks} of {measurement.world_size} ranks were watched; of the others "
            "nothing was seen."
        )
    notes += _notes_on_others(logs, all_logs)
    for log in logs:
        failures = log.all(PhaseFailed)
        notes += [f"The {failed.phase} of a step failed: {failed.why}." for failed in failures]
        agent = log.last(AgentFailed)
        if agent is not None:
            notes.append(f"The agent stopped watching: {agent.error}.")
    return list(dict.fromkeys(notes))


def _notes_on_others(logs: Sequence[ProcessLog], all_logs: Sequence[ProcessLog]) -> Iterator[str]:
    """Say that other programs of the command trained, before, after or beside."""
    others = other_training(logs, all_logs) if logs else []
    earlier = [other for other in others if all(other.ended_before(log) for log in logs)]
    later = [other for other in others if all(log.ended_before(other) for log in logs)]
    apart = {id(other) for other in (*earlier, *later)}
    beside = [other for other in others if id(other) not in apart]
    if earlier:
        yield (
            f"Before it another process of the command trained ({_steps_of_each(earlier)}): the "
            "figures are of the last alone."
        )
    if later:
        yield (
            f"After it another process of the command trained ({_steps_of_each(later)}): the "
            "figures are of the first alone."
        )
    if beside:
        yield (
            f"Another process of the command trained by itself ({_steps_of_each(beside)}): the "
            "figures are of one of them alone, and slower by what they share."
        )


def _steps_of_each(logs: Sequence[ProcessLog]) -> str:
    return f"{' and '.join(f'{log.last_step:,}' for log in logs)} optimizer steps"


_TIMES = {1: "", 2: " twice"}
_FEW = 4
"""Training steps that are rather one iteration than more of them are."""
_MOST_SHARING = 64
"""Steps that share a batch, more than which are no iteration."""


def order_words(measurement: Measurement, order: OptimizerOrder) -> str:
    """`Adam (53.2 M) twice, SGD (43.5 M)`: optimizers with their parameters, as they step."""
    optimizers = measurement.optimizers
    labels = [f"{each.name} ({_short(each.parameters)})" for each in optimizers]
    labels = [
        f"{label} #{place}" if labels.count(label) > 1 else label
        for place, label in enumerate(labels, 1)
    ]
    runs = [(labels[number], len(list(run))) for number, run in groupby(order.optimizers)]
    return ", ".join(f"{label}{_TIMES.get(times, f' {times} times')}" for label, times in runs)


def _short(amount: float) -> str:
    """`53.2 M`."""
    for unit, name in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if amount >= 0.9995 * unit:
            return f"{amount / unit:.3g}{name}"
    return f"{amount:,.0f}"


def notes_on_modes(measurement: Measurement, statistics: StepStatistics) -> Iterator[str]:
    """Say that steps are of two lengths, what was counted as one, and how to say otherwise."""
    modes = measurement.step_modes
    if modes is None:
        yield from _notes_on_orders(measurement, statistics)
        return
    each = max(round(sum(statistics.per_step)), 1)
    if modes.period is None:
        how = f"in no order that repeats, {100 * modes.slow_fraction:.0f} % of them the longer"
    elif modes.period == 2:
        how = "by turns"
    else:
        how = f"in an order that repeats after {modes.period}"
    if modes.period is None and not measurement.optimizer_orders:
        return  # one optimizer: batches of two sizes, or a busy machine, but a step each
    yield (
        f"Steps take about {_time(modes.fast_s)} or about {_time(modes.slow_s)}, {how}. Counted as"
        f" one: {_counted_as_one(measurement, each)}. If an iteration of the script has more"
        f" optimizer steps than that, say how many: --optimizer-steps {each * (modes.period or 2)}."
    )


def _notes_on_orders(measurement: Measurement, statistics: StepStatistics) -> Iterator[str]:
    """Say that steps of different orders may be one iteration, where no loader tells."""
    orders, pattern = measurement.optimizer_orders, statistics.pattern
    if len(orders) < 2 or not 1 < pattern <= _FEW or statistics.batches_per_step is not None:
        return
    each = round(pattern * sum(statistics.per_step))
    yield (
        f"Its optimizers step in an order that repeats after {each} of their steps, counted as"
        f" {pattern} training steps: {_counted_as_one(measurement, 1)}. If they are one iteration"
        f" of the script: --optimizer-steps {each}."
    )


def notes_on_shared_batches(statistics: StepStatistics) -> Iterator[str]:
    """Say that several steps share a batch: they may be one iteration of the script."""
    batches = statistics.batches_per_step
    sharing = round(1 / batches) if batches else 1
    if not 1 < sharing <= _MOST_SHARING or abs(sharing * (batches or 0.0) - 1) > _SAME_BATCH:
        return
    more = sharing * max(round(sum(statistics.per_step)), 1)
    yield (
        f"Each batch of its DataLoader is trained on in {sharing} steps, as they are counted:"
        f" --optimizer-steps {more} makes one of them."
    )


def _counted_as_one(measurement: Measurement, each: int) -> str:
    orders = measurement.optimizer_orders
    if orders:
        return "; or ".join(order_words(measurement, order) for order in orders)
    return "one step of an optimizer" if each == 1 else f"{each} steps of an optimizer"


def _time(time_s: float) -> str:
    return f"{time_s * 1e3:.3g} ms" if time_s < 0.9995 else f"{time_s:.3g} s"


def _steps_with_evaluation(log: ProcessLog) -> int:
    return int((log.table.column("evaluation_batches") > 0).sum())


def notes_on_step_time(
    measurement: Measurement, statistics: StepStatistics, logs: Sequence[ProcessLog]
) -> Iterator[str]:
    """What to know of the step time."""
    names = [optimizer.name for optimizer in measurement.optimizers]
    if UNKNOWN_OPTIMIZER in names:
        yield (
            "No optimizer of torch's made a step: each backward pass counts as a training step"
            " (--optimizer-steps 4 makes one of four). The start-up has"
            f" {PASSES_ALONE - 1} of them in it."
        )
    if not statistics.is_regular:
        yield (
            "Its optimizers step in no order that repeats: what counts as one training step is a"
            " guess. --optimizer-steps 1 counts each of their steps."
        )
    if statistics.are_blocks:
        yield (
            "Its optimizers step many times in a row, one after the other: each of their steps"
            " counts as a training step. --optimizer-steps 60 makes one of sixty."
        )
    if logs and _steps_with_evaluation(logs[0]) > _MOSTLY * statistics.steps_seen:
        yield (
            "Nearly every step comes with an evaluation, on a DataLoader of its own: its time is in"
            " that of the step, its samples are not."
        )
    yield from notes_on_modes(measurement, statistics)
    yield from notes_on_shared_batches(statistics)
    step = measurement.step
    if step is not None and step.mean_s * _NOTED_FRACTION < AGENT_S:
        yield (
            f"outlay itself takes some {AGENT_S * 1e6:.0f} µs of a step,"
            f" {AGENT_S / step.mean_s:.0%} of this one; they are in its time."
        )


def notes_on_samples(override: StepSizeOverride, measured: StepSize, log: ProcessLog) -> list[str]:
    """Say so where a model got its samples one at a time, or many inputs for one backward pass."""
    counts = one_by_one(log)
    if override != NO_OVERRIDE or measured.samples is None:
        return []
    inputs = log.last(ModuleInputs) or ModuleInputs()
    if not counts and inputs.alike > VIEWS and not log.table.column("batches").any():
        fact = f"The model gets {inputs.alike:,} inputs of {inputs.samples:,} samples each for a"
        counted = f"{inputs.samples:,} samples are counted, as if they were views of them"
        given = f"--samples-per-step {inputs.alike * inputs.samples} counts each"
        return [f"{fact} backward pass: {counted}. {given}."]
    if not counts:
        return []
    least, most = min(counts), max(counts)
    how_many = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    mean = "" if least == most else f", {measured.samples:,.3g} on average"
    fact = f"The model gets its samples one at a time: {how_many} of them made a training step"
    seen = f"in the {len(counts):,} that were looked at{mean}"
    return [f"{fact}, {seen}. --samples-per-step 64 says how many count."]


def notes_on_override(
    override: StepSizeOverride, statistics: StepStatistics, measured: StepSize
) -> Iterator[str]:
    """Say so where samples that the user gave are others than were measured."""
    source = "a module's input" if statistics.samples_per_step is None else "its DataLoader"
    if override.samples_per_step is not None:
        what, of = f"The given {override.samples_per_step:,} samples of a step are", "a step"
        given, samples = override.samples_per_step, measured.samples
    elif override.batch_size is not None:
        what, of = f"The given batch size of {override.batch_size:,} is", "a pass"
        given, samples = override.batch_size, measured.samples_per_pass
    else:
        return
    if samples is not None and abs(samples - given) > _SAME_BATCH * samples:
        yield f"{what} what is counted; {source} has {samples:,.4g} samples {of}."


# Parts

_MOST_TIMES = 2000
_MOST_SAMPLES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """What is known of a probe beside the logs of its processes."""

    command: tuple[str, ...]
    ending: Ending
    status: int
    elapsed_s: float
    started_s: float
    """On the machine's clock."""
    limits: ProbeLimits
    stopped_for: str | None = None
    """The limit that ended the timing."""
    override: StepSizeOverride = NO_OVERRIDE
    optimizer_steps: int | None = None
    """In one training step, as the user says."""
    total_steps: int | None = None
    epochs: float | None = None
    """How long the whole run is, where that was said in epochs."""
    driver: Driver | NoDriver | None = None
    unwatched: tuple[str, ...] = ()
    """Processes with torch that the agent is not in, and why."""


def measurement_of(
    statistics: StepStatistics,
    logs: Sequence[ProcessLog],
    all_logs: Sequence[ProcessLog],
    sampler: SystemSampler,
    context: ProbeContext,
) -> Measurement:
    """The measurement with its diagnosis; `logs` are those of the ranks that were timed.

    Each part of it fails alone: what goes wrong is in the notes, and costs nothing but itself.
    """
    guard = Guard()
    first = logs[0] if logs else ProcessLog()
    samples = guard.value("what was read while it ran", lambda: sampler.samples, ())
    gpus = guard.value("its GPUs", lambda: _gpus(logs, sampler), ())
    machine = guard.value(
        "the machine", lambda: this_machine(gpus), MeasuredMachine(system=sys.platform, gpus=gpus)
    )
    measurement = Measurement(
        command=context.command,
        measured_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
        ending=context.ending,
        status=context.status,
        stopped_for=_stopped_for(context),
        machine=machine,
        device=first.process.device,
        ranks=len(logs),
        world_size=first.process.world_size,
        step=statistics.step,
        steps_seen=statistics.steps_seen,
        start_up_s=statistics.start_up_s,
        warm_up_s=statistics.warm_up_s,
        elapsed_s=context.elapsed_s,
        pauses=statistics.pauses,
        total_steps=context.total_steps,
        samples=_thinned(samples, _MOST_SAMPLES),
        losses=tuple(first.losses),
        price_usd_per_hour=context.limits.price_usd_per_hour,
    )
    more = _derived(statistics, logs, all_logs, sampler, samples, context)
    measurement = replace(measurement, **guard.values(more))
    measurement, notes = _with_operations(measurement, logs, context, guard)
    notes = [*_notes(measurement, statistics, logs, all_logs, context, guard), *notes]
    measurement = guard.value(
        "what holds it back, and the checks",
        lambda: _diagnosed(measurement, statistics, logs, samples, context),
        measurement,
    )
    return replace(measurement, notes=(*notes, *guard.notes))


def _derived(
    statistics: StepStatistics,
    logs: Sequence[ProcessLog],
    all_logs: Sequence[ProcessLog],
    sampler: SystemSampler,
    samples: Sequence[Sample],
    context: ProbeContext,
) -> dict[str, tuple[str, Callable[[], Any]]]:
    """The fields that are worked out, each with its name and how."""
    first, started_s = logs[0] if logs else ProcessLog(), context.started_s

    def size() -> StepSize:
        return step_size(statistics, first, context.override)

    def mean_samples() -> float | None:
        is_measured = size().samples == statistics.samples_per_step
        return statistics.mean_samples_per_step if is_measured else None

    def epoch_steps() -> float | None:
        return epoch_of(statistics, logs).steps

    return {
        "versions": ("versions of libraries", lambda: _versions(first)),
        "is_compiled": ("whether it was compiled", lambda: _is_compiled(logs)),
        "ran_out_of_memory": (
            "whether memory ran out",
            lambda: any(log.last(MemoryExhausted) is not None for log in all_logs),
        ),
        "samples_per_step": ("samples of a step", lambda: size().samples),
        "mean_samples_per_step": ("mean samples of a step", mean_samples),
        "passes_per_step": ("passes of a step", lambda: size().passes),
        "optimizers": ("its optimizers", lambda: _optimizers(first, statistics)),
        "optimizer_orders": (
            "the order of its optimizers",
            lambda: _optimizer_orders(first, statistics),
        ),
        "step_modes": ("times of two kinds of steps", lambda: statistics.modes),
        "step_times": (
            "the times of single steps",
            lambda: _step_times(logs, context, statistics.steps_seen),
        ),
        "pauses": (
            "evaluations after the timing",
            lambda: pauses_with_late(statistics, logs, context.optimizer_steps),
        ),
        "steps_per_epoch": ("steps of an epoch", epoch_steps),
        "total_steps": (
            "steps of the whole run",
            lambda: context.total_steps or steps_in(context.epochs, epoch_steps()),
        ),
        "memory": (
            "memory",
            lambda: measured_memory(logs, samples, _steady_samples(statistics, samples, context)),
        ),
        "power": ("power", lambda: _power(statistics, sampler, started_s)),
        "gpu_fraction": ("GPU use", lambda: _gpu_fraction(statistics, samples, started_s)),
        "busy_s": ("the time of kernels", lambda: _busy_s(logs, statistics)),
    }


def _with_operations(
    measurement: Measurement, logs: Sequence[ProcessLog], context: ProbeContext, guard: Guard
) -> tuple[Measurement, list[str]]:
    """The measurement with the operations of a step, and what to know of these."""
    if not context.limits.operations:
        return measurement, ["The operations of a step were not recorded: they were not asked for."]
    profile, notes = guard.value(
        "the operations of a step",
        lambda: recorded_profile(measurement, logs, context.override),
        (None, []),
    )
    arithmetic = guard.value(
        "in which precision it computes",
        lambda: arithmetic_by_precision(
            product_shares(profile, has_tf32=has_tf32(logs, measurement))
        ),
        {},
    )
    return replace(measurement, profile=profile, arithmetic=arithmetic), notes


def _notes(
    measurement: Measurement,
    statistics: StepStatistics,
    logs: Sequence[ProcessLog],
    all_logs: Sequence[ProcessLog],
    context: ProbeContext,
    guard: Guard,
) -> list[str]:
    """What to know beside the figures."""
    first, override = logs[0] if logs else ProcessLog(), context.override

    def on_override() -> Iterator[str]:
        measured_size = step_size(statistics, first, NO_OVERRIDE)
        return notes_on_override(override, statistics, measured_size)

    parts: list[Callable[[], Iterable[str]]] = [
        lambda: notes_on_missing(measurement, logs, all_logs, context.driver, context.unwatched),
        lambda: notes_on_step_time(measurement, statistics, logs),
        lambda: notes_on_first_evaluation(measurement.pauses, logs),
        lambda: epoch_of(statistics, logs).notes,
        lambda: notes_on_samples(override, step_size(statistics, first, override), first),
        on_override,
    ]
    notes = [guard.value("a note", lambda part=part: list(part()), []) for part in parts]  # type: ignore[misc]
    return [note for part in notes for note in part]


def _steady_samples(
    statistics: StepStatistics, samples: Sequence[Sample], context: ProbeContext
) -> Sequence[Sample]:
    """Those of the steady state; all where there is none."""
    window = _steady_window(statistics, context.started_s)
    return samples if window is None else _within(samples, window)


def _diagnosed(
    measurement: Measurement,
    statistics: StepStatistics,
    logs: Sequence[ProcessLog],
    samples: Sequence[Sample],
    context: ProbeContext,
) -> Measurement:
    steady = _steady_samples(statistics, samples, context)
    return add_diagnosis(measurement, statistics, logs, steady, _exchange_s(logs, statistics))


def _stopped_for(context: ProbeContext) -> StoppedFor | None:
    """The limit, where it ended the command and not only the timing."""
    reasons: tuple[StoppedFor, ...] = get_args(StoppedFor)
    if context.ending != "stopped":
        return None
    return next((reason for reason in reasons if reason == context.stopped_for), None)


def _gpus(logs: Sequence[ProcessLog], sampler: SystemSampler) -> tuple[MeasuredGpu, ...]:
    """As the driver has them; without one, as torch does."""
    by_driver = sampler.describe_gpus()
    if by_driver:
        return by_driver
    processes = [log.process for log in logs]
    return tuple(
        MeasuredGpu(name=info.gpu, memory_bytes=float(info.gpu_bytes or 0), uuid=info.uuid)
        for info in processes
        if info.gpu
    )


def _versions(log: ProcessLog) -> dict[str, str]:
    info, libraries = log.process, log.last(LibraryVersions)
    own = {"python": info.python, "torch": info.torch, "cuda": info.cuda, "cudnn": info.cudnn}
    known = {name: str(version) for name, version in own.items() if version is not None}
    return {**known, **(libraries.versions if libraries else {})}


def _is_compiled(logs: Sequence[ProcessLog]) -> bool | None:
    compiled = [report.frames for log in logs if (report := log.last(CompiledFrames))]
    return any(compiled) if compiled else None


def _optimizers(log: ProcessLog, statistics: StepStatistics) -> tuple[MeasuredOptimizer, ...]:
    return tuple(optimizer for _, optimizer in _numbered_optimizers(log, statistics))


def _optimizer_orders(log: ProcessLog, statistics: StepStatistics) -> tuple[OptimizerOrder, ...]:
    """Orders by the places of optimizers; none where a training step has but one of them."""
    numbers = [number for number, _ in _numbered_optimizers(log, statistics)]
    used = {number for order, _ in statistics.orders for number in order}
    if len(used) < 2 or not used <= set(numbers):
        return ()
    return tuple(
        OptimizerOrder(optimizers=tuple(map(numbers.index, order)), fraction=share)
        for order, share in statistics.orders
    )


def _numbered_optimizers(
    log: ProcessLog, statistics: StepStatistics
) -> tuple[tuple[int, MeasuredOptimizer], ...]:
    latest = {info.number: info for info in log.all(OptimizerInfo)}
    infos = [latest[number] for number in sorted(latest)]
    return tuple(
        (
            info.number,
            MeasuredOptimizer(
                name=info.name,
                parameters=info.parameters,
                per_step=per_step,
                skipped=skipped,
            ),
        )
        for info, per_step, skipped in zip(
            infos, statistics.per_step, statistics.skipped, strict=False
        )
        if per_step or info.name != UNKNOWN_OPTIMIZER
    )


def _step_times(
    logs: Sequence[ProcessLog], context: ProbeContext, steps: int
) -> tuple[tuple[float, float], ...]:
    """When steps ended and how long they took, up to the end of the timing."""
    if not logs:
        return ()
    cycles = cycles_of(logs[0].table, context.optimizer_steps)
    is_timed = np.isfinite(cycles.length_s) & (np.cumsum(cycles.steps) <= steps)
    timed = np.flatnonzero(is_timed)
    every = max(len(timed) // _MOST_TIMES, 1)
    ends_s = cycles.end_s - context.started_s
    return tuple(
        (round(float(ends_s[place]), 4), float(cycles.length_s[place])) for place in timed[::every]
    )


def steps_in(epochs: float | None, steps_per_epoch: float | None) -> int | None:
    """Steps in so many epochs, where both are known."""
    if epochs is None or steps_per_epoch is None:
        return None
    return round(epochs * steps_per_epoch)


def measured_memory(
    logs: Sequence[ProcessLog], samples: Sequence[Sample], steady: Sequence[Sample]
) -> MeasuredMemory:
    """`steady` are the samples of the steady state, in which cuDNN's search is over."""
    reserved_bytes = _most(log.peak_reserved_bytes for log in logs)
    search_bytes = _search_bytes(logs, reserved_bytes)
    persistent = [report for log in logs if (report := log.last(PersistentMemory))]
    limits = [
        limit.fraction * log.process.gpu_bytes
        for log in logs
        if (limit := log.last(MemoryLimit)) and log.process.gpu_bytes
    ]
    processes = [log.process for log in logs]
    available = [float(info.available_bytes) for info in processes if info.available_bytes]
    return MeasuredMemory(
        allocated_bytes=_most(log.peak_allocated_bytes for log in logs),
        reserved_bytes=reserved_bytes,
        search_bytes=search_bytes,
        used_bytes=_most(
            sample.gpu_memory_bytes for sample in (steady if search_bytes and steady else samples)
        ),
        limit_bytes=min(limits, default=None),
        available_bytes=min(available, default=None),
        parameters_bytes=_most(memory.parameters for memory in persistent),
        gradients_bytes=_most(memory.gradients for memory in persistent),
        optimizer_bytes=_most(memory.optimizer_states for memory in persistent),
        frozen_bytes=_most(memory.frozen for memory in persistent),
        host_bytes=_most(sample.process_bytes for sample in samples),
    )


def _search_bytes(logs: Sequence[ProcessLog], reserved_bytes: float | None) -> float | None:
    """What was reserved while cuDNN tried algorithms, where that is more than steps need."""
    peaks = [report for log in logs if (report := log.last(MemoryPeaks))]
    most = _most(report.given_back_reserved_bytes for report in peaks)
    return most if most and most > (reserved_bytes or 0.0) else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((float(value) for value in values if value is not None), default=None)


def _power(
    statistics: StepStatistics, sampler: SystemSampler, started_s: float
) -> MeasuredPower | None:
    window = _steady_window(statistics, started_s)
    if window is None or statistics.step is None:
        return None
    energy_j = sampler.energy_j(*window)
    if energy_j is None:
        return None
    mean_w = energy_j / (window[1] - window[0])
    highest = _most(sample.power_w for sample in _within(sampler.samples, window))
    return MeasuredPower(
        mean_w=mean_w,
        max_w=max(highest or 0.0, mean_w),
        energy_per_step_j=mean_w * statistics.step.mean_s,
    )


def _gpu_fraction(
    statistics: StepStatistics, samples: Sequence[Sample], started_s: float
) -> float | None:
    window = _steady_window(statistics, started_s)
    if window is None:
        return None
    known = [s.gpu_fraction for s in _within(samples, window) if s.gpu_fraction is not None]
    return sum(known) / len(known) if known else None


def _steady_window(statistics: StepStatistics, started_s: float) -> tuple[float, float] | None:
    """The steady state, in seconds after the start."""
    if statistics.steady_from_s is None or statistics.steady_until_s is None:
        return None
    window = statistics.steady_from_s - started_s, statistics.steady_until_s - started_s
    return window if window[1] > window[0] else None


def _within(samples: Sequence[Sample], window: tuple[float, float]) -> list[Sample]:
    return [sample for sample in samples if window[0] <= sample.time_s <= window[1]]


def _thinned(samples: Sequence[Sample], most: int) -> tuple[Sample, ...]:
    every = max(-(-len(samples) // most), 1)
    return tuple(samples[::every])


def _busy_s(logs: Sequence[ProcessLog], statistics: StepStatistics) -> float | None:
    """Kernels of a training step, on the busiest rank; None also where a profile has none."""
    return _kernel_time_s(logs, statistics, lambda kernels: kernels.busy_s) or None


def _exchange_s(logs: Sequence[ProcessLog], statistics: StepStatistics) -> float | None:
    """Exchanges of a training step that nothing hides, on the rank with most of them."""
    return _kernel_time_s(logs, statistics, lambda kernels: kernels.exchange_s)


def _kernel_time_s(
    logs: Sequence[ProcessLog],
    statistics: StepStatistics,
    time_s: Callable[[KernelTimes], float],
) -> float | None:
    """A time in the profile for each training step, of the rank that has most of it.

    Only profiles count that have a whole pattern of optimizer steps in them.
    """
    each = sum(statistics.per_step) or 1.0
    least = round(statistics.pattern * each)
    profiles = [report for log in logs if (report := log.last(KernelTimes))]
    whole = [kernels for kernels in profiles if kernels.optimizer_steps >= least]
    return _most(time_s(kernels) / kernels.optimizer_steps * each for kernels in whole)


# Figures


def tracker_figures(measurement: Measurement, statistics: StepStatistics) -> dict[str, float | str]:
    """What trackers get of a measurement, by name; nothing without a step time."""
    step, power = measurement.step, measurement.power
    if step is None:
        return {}
    memory, finding = measurement.memory, measurement.finding
    figures = {
        "step_s": step.mean_s,
        "step_s_low": step.low_s,
        "step_s_high": step.high_s,
        "steps_per_s": 1 / step.mean_s,
        "samples_per_s": measurement.samples_per_s,
        "input_wait_s": statistics.wait_s,
        "gpu_fraction": measurement.gpu_fraction,
        "memory_allocated_bytes": memory.allocated_bytes,
        "memory_reserved_bytes": memory.reserved_bytes,
        "memory_used_bytes": memory.used_bytes,
        "host_memory_bytes": memory.host_bytes,
        "power_w": None if power is None else power.mean_w,
        "energy_per_step_j": None if power is None else power.energy_per_step_j,
        "held_back_by": None if finding is None else finding.holder,
    }
    return {f"outlay/{name}": value for name, value in figures.items() if value is not None}
