"""A `Measurement` put together from what the processes told, what the driver and system said."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np

from outlay.measurement.measurement import (
    Ending,
    MeasuredGpu,
    MeasuredMemory,
    MeasuredOptimizer,
    MeasuredPower,
    Measurement,
    Sample,
    StoppedFor,
)
from outlay.probe.agent.backward import PASSES_ALONE, UnknownOptimizer
from outlay.probe.cycles import cycles_of
from outlay.probe.gpu_driver import Driver, NoDriver
from outlay.probe.health import judged
from outlay.probe.messages import ProcessLog, beside
from outlay.probe.recorded_step import NOTHING, StepSize, StepSizeOverride, profile_from, step_size
from outlay.probe.sampler import SystemSampler
from outlay.probe.stages import ProbeLimits
from outlay.probe.steps import StepStatistics
from outlay.probe.system import machine_seen

# What to know beside the figures of a probe: what was not seen, and what is a guess.


OWN_S = 20e-6
"""What the agent takes of a step, about (tests/probe/test_agent_cost.py holds it below 60)."""
_WORTH_SAYING = 0.01
_MOSTLY = 0.5
_SAME_BATCH = 0.05
"""Batches that are cut short at the end of an epoch make so much of a difference."""


def not_seen(
    measurement: Measurement,
    told: Sequence[ProcessLog],
    everyone: Sequence[ProcessLog],
    driver: Driver | NoDriver | None,
) -> list[str]:
    """What of the command was not seen, and why."""
    notes = []
    if isinstance(driver, NoDriver) and measurement.device != "cpu":
        notes.append(str(driver))
    if not everyone:
        notes.append(
            "No Python of the command imported torch where outlay could see it: another "
            "interpreter option (-I, -E, -S), a PYTHONPATH of its own without what outlay put "
            "there, a container or another machine hides it."
        )
    elif not told:
        notes.append(
            "torch was imported, but no optimizer made a step. One that is no "
            f"torch.optim.Optimizer is not seen, but after {PASSES_ALONE} backward passes."
        )
    if measurement.world_size > measurement.ranks > 0:
        notes.append(
            f"{measurement.ranks} of {measurement.world_size} ranks were watched; of the others "
            "nothing was seen."
        )
    notes += _others(told, everyone)
    for one in told:
        failed = one.lists.get("failed", [])
        notes += [f"The {part['phase']} of a step failed: {part['why']}." for part in failed]
        if "broken" in one.facts:
            notes.append(f"The agent stopped watching: {one.facts['broken']['error']}.")
    return list(dict.fromkeys(notes))


def _others(told: Sequence[ProcessLog], everyone: Sequence[ProcessLog]) -> Iterator[str]:
    """Say that other processes of the command trained, before or beside."""
    others = beside(told, everyone)
    earlier = [one for one in others if all(one.is_before(now) for now in told)]
    if earlier:
        steps = " and ".join(f"{one.last_step:,}" for one in earlier)
        yield (
            f"Before it another process of the command trained ({steps} optimizer steps): the "
            "figures are of the last alone."
        )
    elif others:
        steps = " and ".join(f"{one.last_step:,}" for one in others)
        yield (
            f"Another process of the command trained by itself ({steps} optimizer steps): the "
            "figures are of one of them alone, and slower by what they share."
        )


def _steps_evaluated(told: ProcessLog) -> int:
    return int((told.table.column("aside") > 0).sum())


def doubts(
    measurement: Measurement, seen: StepStatistics, told: Sequence[ProcessLog]
) -> Iterator[str]:
    """What to know of the step time."""
    if any(one.name == UnknownOptimizer.__name__ for one in measurement.optimizers):
        yield (
            "No optimizer of torch's made a step: each backward pass counts as a training step"
            " (--optimizer-steps 4 makes one of four). The start-up has"
            f" {PASSES_ALONE - 1} of them in it."
        )
    if not seen.is_regular:
        yield (
            "Its optimizers step in no order that repeats: what counts as one training step is a"
            " guess. --optimizer-steps 1 counts each of their steps."
        )
    if seen.are_blocks:
        yield (
            "Its optimizers step many times in a row, one after the other: each of their steps"
            " counts as a training step. --optimizer-steps 60 makes one of sixty."
        )
    if told and _steps_evaluated(told[0]) > _MOSTLY * seen.steps_seen:
        yield (
            "Nearly every step comes with an evaluation, on a DataLoader of its own: its time is in"
            " that of the step, its samples are not."
        )
    step = measurement.step
    if step is not None and step.mean_s * _WORTH_SAYING < OWN_S:
        yield (
            f"outlay itself takes some {OWN_S * 1e6:.0f} µs of a step, {OWN_S / step.mean_s:.0%} of"
            " this one; they are in its time."
        )


def other_batch(given: StepSizeOverride, seen: StepStatistics, found: StepSize) -> Iterator[str]:
    """Say so where samples that were given are others than were seen."""
    teller = "a module's input" if seen.samples_per_step is None else "its DataLoader"
    if given.samples_per_step is not None:
        what, of = f"The given {given.samples_per_step:,} samples of a step are", "a step"
        said, has = given.samples_per_step, found.samples
    elif given.batch_size is not None:
        what, of = f"The given batch size of {given.batch_size:,} is", "a pass"
        said, has = given.batch_size, found.a_pass
    else:
        return
    if has is not None and abs(has - said) > _SAME_BATCH * has:
        yield f"{what} what is counted; {teller} has {has:,.4g} samples {of}."


_TIMES_KEPT = 2000
_SAMPLES_KEPT = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeContext:
    """What is known of a probe beside what the processes told."""

    command: tuple[str, ...]
    ending: Ending
    status: int
    elapsed_s: float
    started_s: float
    """On the machine's clock."""
    limits: ProbeLimits
    stopped_for: str | None = None
    """The limit that ended the timing."""
    given: StepSizeOverride = NOTHING
    optimizer_steps: int | None = None
    """In one training step, as the user says."""
    total_steps: int | None = None
    epochs: float | None = None
    """How long the whole run is, where that was said in epochs."""
    driver: Driver | NoDriver | None = None


def measurement_of(
    seen: StepStatistics,
    told: Sequence[ProcessLog],
    everyone: Sequence[ProcessLog],
    sampler: SystemSampler,
    circumstances: ProbeContext,
) -> Measurement:
    """Everything that was seen, with a verdict on it."""
    first = told[0] if told else ProcessLog()
    samples = sampler.samples
    gpus = _gpus(told, sampler)
    size = step_size(seen, first, circumstances.given)
    epoch_steps = steps_per_epoch(seen, told)
    plain = Measurement(
        command=circumstances.command,
        measured_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
        ending=circumstances.ending,
        status=circumstances.status,
        stopped_for=_stopped_for(circumstances),
        machine=machine_seen(gpus),
        device=first.process.get("device"),
        versions=_versions(first),
        is_compiled=_is_compiled(told),
        ranks=len(told),
        world_size=int(first.process.get("world_size", 0)),
        step=seen.step,
        steps_seen=seen.steps_seen,
        ran_out_of_memory=any("oom" in one.facts for one in everyone),
        samples_per_step=size.samples,
        mean_samples_per_step=seen.mean_samples_per_step
        if size.samples == seen.samples_per_step
        else None,
        passes_per_step=size.passes,
        optimizers=_optimizers(first, seen),
        start_up_s=seen.start_up_s,
        warm_up_s=seen.warm_up_s,
        elapsed_s=circumstances.elapsed_s,
        step_times=_step_times(told, circumstances, seen.steps_seen),
        pauses=seen.pauses,
        steps_per_epoch=epoch_steps,
        total_steps=circumstances.total_steps or steps_in(circumstances.epochs, epoch_steps),
        memory=_memory(told, samples),
        power=_power(seen, sampler, circumstances.started_s),
        gpu_fraction=_gpu_fraction(seen, samples, circumstances.started_s),
        busy_s=_busy_s(told, seen),
        samples=_thinned(samples, _SAMPLES_KEPT),
        losses=tuple(first.losses),
        price_usd_per_hour=circumstances.limits.price_usd_per_hour,
    )
    profile, why = profile_from(plain, told, circumstances.given)
    if not circumstances.limits.operations:
        why = ["The operations of a step were not recorded: they were not asked for."]
    plain = replace(plain, profile=profile)
    notes = [
        *not_seen(plain, told, everyone, circumstances.driver),
        *doubts(plain, seen, told),
        *other_batch(circumstances.given, seen, step_size(seen, first, NOTHING)),
        *why,
    ]
    window = _window(seen, circumstances.started_s)
    steady = samples if window is None else _within(samples, window)
    verdict = judged(plain, seen, told, steady, of_a_step(told, seen, "exchange_s"))
    return replace(verdict, notes=tuple(notes))


# Parts


def _stopped_for(circumstances: ProbeContext) -> StoppedFor | None:
    """The limit, where it ended the command and not only the timing."""
    reasons: tuple[StoppedFor, ...] = get_args(StoppedFor)
    if circumstances.ending != "stopped":
        return None
    return next((reason for reason in reasons if reason == circumstances.stopped_for), None)


def _gpus(told: Sequence[ProcessLog], sampler: SystemSampler) -> tuple[MeasuredGpu, ...]:
    """As the driver has them; without one, as torch does."""
    found = sampler.describe_gpus()
    if found:
        return found
    named = [one.process for one in told if one.process.get("gpu")]
    return tuple(
        MeasuredGpu(name=one["gpu"], memory_bytes=float(one["gpu_bytes"]), uuid=one.get("uuid"))
        for one in named
    )


def _versions(told: ProcessLog) -> dict[str, str]:
    process = told.process
    known = {name: process.get(name) for name in ("python", "torch", "cuda", "cudnn")}
    plain = {name: str(value) for name, value in known.items() if value is not None}
    return {**plain, **told.facts.get("versions", {})}


def _is_compiled(told: Sequence[ProcessLog]) -> bool | None:
    known = [one.facts["compiled"]["frames"] for one in told if "compiled" in one.facts]
    return any(known) if known else None


def _optimizers(told: ProcessLog, seen: StepStatistics) -> tuple[MeasuredOptimizer, ...]:
    last_told = {int(one["number"]): one for one in told.lists.get("optimizer", [])}
    met = [last_told[number] for number in sorted(last_told)]
    return tuple(
        MeasuredOptimizer(
            name=one["name"],
            parameters=one["parameters"],
            per_step=often,
            skipped=skipped,
        )
        for one, often, skipped in zip(met, seen.per_step, seen.skipped, strict=False)
        if often or one["name"] != UnknownOptimizer.__name__
    )


def _step_times(
    told: Sequence[ProcessLog], circumstances: ProbeContext, steps: int
) -> tuple[tuple[float, float], ...]:
    """When steps ended and how long they took, up to the end of the timing."""
    if not told:
        return ()
    cycles = cycles_of(told[0].table, circumstances.optimizer_steps)
    timed = np.isfinite(cycles.length_s) & (np.cumsum(cycles.steps) <= steps)
    known = np.flatnonzero(timed)
    every = max(len(known) // _TIMES_KEPT, 1)
    ends_s = cycles.end_s - circumstances.started_s
    return tuple(
        (round(float(ends_s[place]), 4), float(cycles.length_s[place])) for place in known[::every]
    )


def steps_per_epoch(seen: StepStatistics, told: Sequence[ProcessLog]) -> float | None:
    """As seen; of a run that was too short, by the length of its longest loader."""
    if seen.steps_per_epoch is not None or not told:
        return seen.steps_per_epoch
    batches = [one["batches"] for one in told[0].lists.get("loader", []) if one.get("batches")]
    return max(batches) / (seen.passes_per_step or 1.0) if batches else None


def steps_in(epochs: float | None, each: float | None) -> int | None:
    """Steps in so many epochs, where both are known."""
    return None if epochs is None or each is None else round(epochs * each)


def _memory(told: Sequence[ProcessLog], samples: Sequence[Sample]) -> MeasuredMemory:
    held = [one.facts["held"] for one in told if "held" in one.facts]
    limits = [
        one.facts["limit"]["fraction"] * one.process["gpu_bytes"]
        for one in told
        if "limit" in one.facts and one.process.get("gpu_bytes")
    ]
    available = [float(one.process["available"]) for one in told if one.process.get("available")]
    return MeasuredMemory(
        allocated_bytes=_most(one.peak_allocated_bytes for one in told),
        reserved_bytes=_most(one.peak_reserved_bytes for one in told),
        used_bytes=_most(sample.gpu_memory_bytes for sample in samples),
        limit_bytes=min(limits, default=None),
        available_bytes=min(available, default=None),
        parameters_bytes=_most(one["parameters"] for one in held),
        gradients_bytes=_most(one["gradients"] for one in held),
        optimizer_bytes=_most(one["states"] for one in held),
        frozen_bytes=_most(one.get("frozen") for one in held),
        host_bytes=_most(sample.process_bytes for sample in samples),
    )


def _most(values: Any) -> float | None:
    return max((float(value) for value in values if value is not None), default=None)


def _power(seen: StepStatistics, sampler: SystemSampler, started_s: float) -> MeasuredPower | None:
    window = _window(seen, started_s)
    if window is None or seen.step is None:
        return None
    energy_j = sampler.energy_j(*window)
    if energy_j is None:
        return None
    mean_w = energy_j / (window[1] - window[0])
    highest = _most(sample.power_w for sample in _within(sampler.samples, window))
    return MeasuredPower(
        mean_w=mean_w,
        max_w=max(highest or 0.0, mean_w),
        energy_per_step_j=mean_w * seen.step.mean_s,
    )


def _gpu_fraction(
    seen: StepStatistics, samples: Sequence[Sample], started_s: float
) -> float | None:
    window = _window(seen, started_s)
    if window is None:
        return None
    known = [s.gpu_fraction for s in _within(samples, window) if s.gpu_fraction is not None]
    return sum(known) / len(known) if known else None


def _window(seen: StepStatistics, started_s: float) -> tuple[float, float] | None:
    """The steady state, in seconds after the start."""
    if seen.steady_from_s is None or seen.steady_until_s is None:
        return None
    window = seen.steady_from_s - started_s, seen.steady_until_s - started_s
    return window if window[1] > window[0] else None


def _within(samples: Sequence[Sample], window: tuple[float, float]) -> list[Sample]:
    return [sample for sample in samples if window[0] <= sample.time_s <= window[1]]


def _thinned(samples: Sequence[Sample], most: int) -> tuple[Sample, ...]:
    every = max(-(-len(samples) // most), 1)
    return tuple(samples[::every])


def _busy_s(told: Sequence[ProcessLog], seen: StepStatistics) -> float | None:
    return of_a_step(told, seen, "busy_s") or None  # a profile without kernels saw nothing


def of_a_step(told: Sequence[ProcessLog], seen: StepStatistics, name: str) -> float | None:
    """A time in the profile for each training step, of the rank that has most of it."""
    each = sum(seen.per_step) or 1.0
    found = [one.facts["kernels"] for one in told if "kernels" in one.facts]
    whole = [one for one in found if one["optimizer_steps"] >= round(seen.pattern * each)]
    return _most(one[name] / one["optimizer_steps"] * each for one in whole)


def figures(measurement: Measurement, seen: StepStatistics) -> dict[str, float | str]:
    """What trackers get of a measurement, by name; nothing without a step time."""
    step, power = measurement.step, measurement.power
    if step is None:
        return {}
    memory, finding = measurement.memory, measurement.finding
    known = {
        "step_s": step.mean_s,
        "step_s_low": step.low_s,
        "step_s_high": step.high_s,
        "steps_per_s": 1 / step.mean_s,
        "samples_per_s": measurement.samples_per_s,
        "input_wait_s": seen.wait_s,
        "gpu_fraction": measurement.gpu_fraction,
        "memory_allocated_bytes": memory.allocated_bytes,
        "memory_reserved_bytes": memory.reserved_bytes,
        "memory_used_bytes": memory.used_bytes,
        "host_memory_bytes": memory.host_bytes,
        "power_w": None if power is None else power.mean_w,
        "energy_per_step_j": None if power is None else power.energy_per_step_j,
        "held_back_by": None if finding is None else finding.holder,
    }
    return {f"outlay/{name}": value for name, value in known.items() if value is not None}
