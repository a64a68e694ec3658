"""A probe's measurement as a prediction can use it, and what of it cannot be used."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import combinations

from outlay.errors import InputError, NotKnown
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu
from outlay.measurement.measurement import MeasuredGpu, Measurement
from outlay.predict.evidence import NOTHING_LEARNED, Evidence, LearnedCalibration, MeasuredStep
from outlay.predict.roofline import ideal_time_s, trace_at
from outlay.trace.profile import Profile, Trace

# Whether what was measured can be the step that is predicted.
#
# A measurement of another step would correct every GPU by what has nothing to do with it: one that
# is clearly another is refused, one that may be is used with a word.


_SAME_STEP = 0.01
"""Parameters of the same step may differ by this: some count those that are frozen."""
_CLEARLY = 0.2
"""What optimizers hold and what a step trains may differ by this: not every one was seen."""
_SAME_WORK = 0.2
"""Arithmetic of the same step may differ by this, and its share done in some way."""
_SPARED = 4.0
"""Of a dense peak: convolutions in plain fp32 can be done with so much less arithmetic than counted
(Winograd's transforms), nothing with less still."""
_GIVE_THE_SAME = "Give measurements of the step that is predicted"


def other_parameters(measurement: Measurement, profile: Profile) -> Iterable[str]:
    """Doubt where only the optimizers tell what was measured, and they hold something else."""
    held = _held(measurement)
    if held is not None and not _is_same(held, profile, _SAME_STEP):
        yield (
            f"its optimizers hold {held:,} parameters, {profile.name} trains "
            f"{profile.trainable_parameters:,}: is it the same step?"
        )


def _held(measurement: Measurement) -> int | None:
    """What optimizers hold, where nothing better tells: shards of several processes do not."""
    held = sum(one.parameters for one in measurement.optimizers)
    if measurement.profile is not None or measurement.world_size > 1 or not held:
        return None
    return held


def other_arithmetic(measurement: Measurement, profile: Profile, size: int) -> Iterable[str]:
    """Doubt where the operations it recorded are others than those that are predicted."""
    if measurement.profile is None or measurement.profile is profile:
        return
    seen, taken = trace_at(measurement.profile, size), trace_at(profile, size)
    if not seen.flops or not taken.flops:
        return
    ratio = seen.flops / taken.flops
    if max(ratio, 1 / ratio) > 1 + _SAME_WORK:
        yield (
            f"its step does {ratio:.2f} times the arithmetic of {profile.name} at batch {size:,}: "
            "is it the same step?"
        )
    theirs = _shares(taken)
    for way, share in _shares(seen).items():
        if share - theirs.get(way, 0.0) > _SAME_WORK:
            yield (
                f"its step does {share:.2f} of its arithmetic {way}, {profile.name} "
                f"{theirs.get(way, 0.0):.2f}: is it the same step?"
            )


def _shares(trace: Trace) -> dict[str, float]:
    """Of a step's arithmetic, that in each precision, and that of images in each order."""
    shares: dict[str, float] = {}
    for op in trace.ops:
        ways = [f"in {op.precision}"]
        if op.kind == "conv":
            ways.append("channels last" if op.layout == "channels_last" else "channels first")
        for way in ways:
            shares[way] = shares.get(way, 0.0) + op.count * op.flops / trace.flops
    return shares


def _is_same(parameters: float, profile: Profile, apart: float) -> bool:
    known = (profile.parameters, profile.trainable_parameters)
    return any(abs(parameters - one) <= apart * max(one, 1) for one in known)


def check_same_step(name: str, measurement: Measurement, profile: Profile) -> None:
    """Raise where a measurement is of a step with other parameters."""
    other, held = measurement.profile, _held(measurement)
    if (
        other is not None
        and other is not profile
        and not _is_same(other.parameters, profile, _SAME_STEP)
    ):
        raise InputError(
            f"{name} is of another step: it has {other.parameters:,} parameters, {profile.name} "
            f"has {profile.parameters:,}.",
            fix=f"{_GIVE_THE_SAME}, or predict the measurement itself.",
        )
    if held is not None and not _is_same(held, profile, _CLEARLY):
        raise InputError(
            f"{name} is of another step: its optimizers hold {held:,} parameters, {profile.name} "
            f"trains {profile.trainable_parameters:,}.",
            fix=f"{_GIVE_THE_SAME}.",
        )


def too_fast(
    name: str, seen: MeasuredStep, profile: Profile, *, is_own: bool = False
) -> tuple[str, ...]:
    """Doubt where a time is less than the arithmetic takes at the GPU's peaks; raise where by far.

    Several GPUs may share a sample's arithmetic. A measurement's own operations are taken as they
    are, whatever was wrong when they were recorded.
    """
    if seen.gpus * seen.nodes > 1:
        return ()
    share = ideal_time_s(trace_at(profile, seen.batch_size), seen.gpu) / seen.step_s
    if share <= 1:
        return ()
    what = (
        f"{1e3 * seen.step_s:.4g} ms for the arithmetic of {profile.name} at batch "
        f"{seen.batch_size:,} would be {share:.0%} of the dense peak of {seen.gpu.name}"
    )
    if share > _SPARED and not is_own:
        raise InputError(
            f"{name} cannot be this step: {what}.",
            why="It is another step, batch or precision than the one that is predicted, or its "
            "time is not in seconds.",
            fix=f"{_GIVE_THE_SAME}: the seconds of one step, at its batch on one GPU.",
        )
    note = (
        f"{what}, which cannot be: the step, its batch or its precision is another than the one "
        "that is predicted, and times that are carried over from it are as wrong."
    )
    return (note,)


_WITHIN_95 = 1.96
"""Half a confidence interval of 95 %, in standard errors."""
_SHIPPED = 0.97
"""A limit from this share of the shipped one on is none."""
_NO_SAMPLES = (
    "how many samples a step has was not seen, so that its time corrects nothing: probe again "
    "with --batch-size."
)
_SAME_TIME = 1.1
"""Two measurements of one step that differ by more than this contradict each other."""


def measured_batch_size(measurement: Measurement) -> int:
    """Samples of one step on a GPU, all its passes; 1 where nothing told: the step is a sample."""
    samples = measurement.samples_per_step
    return 1 if samples is None else max(round(samples), 1)


def evidence_of(
    measurements: Iterable[tuple[str, Measurement]],
    profile: Profile,
    own: LearnedCalibration = NOTHING_LEARNED,
    given: Iterable[tuple[str, MeasuredStep]] = (),
) -> Evidence:
    """What measurements of one step, each with its name, say of it, and times given by hand."""
    found: list[tuple[str, MeasuredStep]] = []
    notes: list[str] = []
    for name, measurement in measurements:
        check_same_step(name, measurement, profile)
        seen, said = measured_step_of(measurement)
        found += [] if seen is None else [(name, seen)]
        own_step = measurement.profile is profile
        notes += [
            f"{name}: {note}"
            for note in (
                *said,
                *_troubles(measurement),
                *other_parameters(measurement, profile),
                *other_arithmetic(measurement, profile, measured_batch_size(measurement)),
                *(too_fast(name, seen, profile, is_own=own_step) if seen is not None else ()),
            )
        ]
    for name, seen in given:
        notes += [f"{name}: {note}" for note in too_fast(name, seen, profile)]
        found.append((name, seen))
    notes += _contradictions(found)
    return Evidence(seen=tuple(seen for _, seen in found), own=own, notes=tuple(notes))


def measured_step_of(measurement: Measurement) -> tuple[MeasuredStep | None, tuple[str, ...]]:
    """The step a probe measured, None where no prediction can be corrected by it; and why."""
    step, gpus = measurement.step, measurement.machine.gpus
    if step is None:
        return None, ("no step time was measured, so that it corrects nothing.",)
    if measurement.device == "cpu" or not gpus:
        return None, ("it ran on the CPU: its operations are used, its time corrects no GPU.",)
    if measurement.samples_per_step is None:
        return None, (_NO_SAMPLES,)
    gpu = _gpu_of(gpus[0])
    if gpu is None:
        said = f"no GPU is known as {gpus[0].name!r}, so that its time corrects nothing."
        return None, (said,)
    seen = MeasuredStep(
        gpu=gpu,
        batch_size=measured_batch_size(measurement),
        step_s=step.mean_s,
        error=step.precision / _WITHIN_95,
        busy_s=measurement.busy_s,
        holder=None if measurement.finding is None else measurement.finding.holder,
        gpus=max(measurement.ranks, 1),
        nodes=math.ceil(max(measurement.world_size, 1) / max(measurement.ranks, 1)),
        power_limit_w=_limit_w(gpus[0], gpu),
        fits=not measurement.ran_out_of_memory,
        cpus=_cpus(measurement),
        cpu_threads=measurement.machine.cpu_threads,
    )
    return seen, tuple(_doubts(measurement, seen))


def _cpus(measurement: Measurement) -> float | None:
    """CPU threads that were busy for each GPU, once steps went steadily; None where not read."""
    steady_s = (measurement.start_up_s or 0.0) + (measurement.warm_up_s or 0.0)
    busy = [
        one.process_cpus
        for one in measurement.samples
        if one.process_cpus is not None and one.time_s >= steady_s
    ]
    return statistics.fmean(busy) / max(measurement.ranks, 1) if busy else None


def _gpu_of(seen: MeasuredGpu) -> Gpu | None:
    """The GPU that a driver's name means; of several, the one whose memory is nearest."""
    try:
        candidates = find_gpu(seen.name).candidates
    except NotKnown:
        return None
    memory_bytes = seen.memory_bytes
    if memory_bytes is None:
        return candidates[0]
    return min(candidates, key=lambda gpu: abs(gpu.memory_bytes - memory_bytes))


def _limit_w(seen: MeasuredGpu, gpu: Gpu) -> float | None:
    limit_w = seen.power_limit_w
    return limit_w if limit_w is not None and limit_w < _SHIPPED * gpu.tdp_w else None


def _doubts(measurement: Measurement, seen: MeasuredStep) -> Iterable[str]:
    """What to know of a measurement that is used."""
    if measurement.step is not None and not measurement.step.is_steady:
        yield "no steady state was seen: its step time is of what there was."
    if seen.busy_s is None and (seen.holder in ("input", "network") or seen.gpus * seen.nodes > 1):
        yield (
            "the time of its kernels was not measured, and something beside the GPU is in its step "
            "time: other GPUs are not corrected by it."
        )


def _troubles(measurement: Measurement) -> Iterable[str]:
    """What went wrong while it was measured."""
    if measurement.ending in ("failed", "killed"):
        how = "failed" if measurement.ending == "failed" else "was killed"
        yield (
            f"its command {how} (status {measurement.status}): what was measured is of the time "
            "before."
        )
    if measurement.is_compiled:
        yield (
            "it ran compiled code, while operations and the host's time are predicted as those of "
            "uncompiled code: what compiling saves is in its own step time alone, and elsewhere as "
            "far as that is carried over."
        )
    if measurement.ran_out_of_memory:
        yield (
            "its GPU ran out of memory while it was measured: its batch may not fit, and its step "
            "time may hold steps that were tried again."
        )


def _contradictions(found: Sequence[tuple[str, MeasuredStep]]) -> Iterable[str]:
    """Pairs that measured the very same step, and found another time."""
    for (first, one), (second, other) in combinations(found, 2):
        apart = max(one.step_s, other.step_s) / min(one.step_s, other.step_s)
        if _place(one) == _place(other) and apart > _SAME_TIME:
            yield (
                f"{first} and {second} contradict each other: {1e3 * one.step_s:.4g} ms and "
                f"{1e3 * other.step_s:.4g} ms a step on {one.gpu.name} at batch {one.batch_size}. "
                "Both count, and ranges have both: leave out the one that is not of this step."
            )


def _place(seen: MeasuredStep) -> tuple[str, int, int, int, float | None]:
    return seen.gpu.name, seen.batch_size, seen.gpus, seen.nodes, seen.power_limit_w
