"""Probes' measurements as evidence of one step: what of them a prediction can use, and how far.

In: `Measurement`s, each with the name it is called by, and the `Profile` that is predicted.
Out: the `Evidence`, with a `MeasuredStep` of each that corrects something and notes on the rest.

A measurement of another step would correct every GPU by what has nothing to do with it: one that
is clearly another is refused (`check_same_step`), one that may be is used with a note.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from outlay.errors import InputError, NotKnown
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu
from outlay.measurement.measurement import Holder, MeasuredGpu, Measurement
from outlay.predict.evidence import NOTHING_LEARNED, Evidence, LearnedCalibration, MeasuredStep
from outlay.predict.roofline import ideal_time_s, trace_at
from outlay.trace.profile import Profile, Trace

_HALF_WIDTH_95 = 1.96
"""Half a confidence interval of 95 %, in standard errors."""
_SHIPPED = 0.97
"""A limit from this share of the shipped one on is none."""
_SAME_TIME = 1.1
"""Two measurements of one step that differ by more than this contradict each other."""
_SAME_PARAMETERS = 0.01
"""Parameters of the same step may differ by this: some count those that are frozen."""
_SIMILAR_PARAMETERS = 0.2
"""What optimizers update and what a step trains may differ by this: not every one was recorded."""
_SAME_ARITHMETIC = 0.2
"""Arithmetic of the same step may differ by this, and its share in a precision or layout."""
_MOST_SPARED = 4.0
"""Of a dense peak: convolutions in plain fp32 can be done with so much less arithmetic than counted
(Winograd's transforms), nothing with less still."""
_GIVE_THE_SAME = "Give measurements of the step that is predicted"
_NO_SAMPLES = (
    "how many samples a step has was not seen, so that its time corrects nothing: probe again "
    "with --batch-size."
)


def evidence_of(
    measurements: Iterable[tuple[str, Measurement]],
    profile: Profile,
    learned: LearnedCalibration = NOTHING_LEARNED,
    stated: Iterable[tuple[str, MeasuredStep]] = (),
) -> Evidence:
    """What measurements of one step, each with its name, say of it, and times stated by hand."""
    steps: list[tuple[str, MeasuredStep]] = []
    notes: list[str] = []
    for name, measurement in measurements:
        check_same_step(name, measurement, profile)
        step, step_notes = measured_step_of(measurement)
        is_own = _is_own(measurement, profile)
        steps += [] if step is None else [(name, step)]
        notes += [
            f"{name}: {note}"
            for note in (
                *step_notes,
                *_trouble_notes(measurement),
                *_compile_notes(measurement, profile),
                *_parameter_notes(measurement, profile),
                *_arithmetic_notes(measurement, profile),
                *(() if step is None else _peak_notes(name, step, profile, is_own=is_own)),
            )
        ]
    for name, step in stated:
        notes += [f"{name}: {note}" for note in _peak_notes(name, step, profile)]
        steps.append((name, step))
    notes += _contradiction_notes(steps)
    return Evidence(measured=tuple(step for _, step in steps), learned=learned, notes=tuple(notes))


# From a measurement to a step


def measured_step_of(measurement: Measurement) -> tuple[MeasuredStep | None, tuple[str, ...]]:
    """The step a probe measured, None where no prediction can be corrected by it; and notes."""
    step, gpus = measurement.step, measurement.machine.gpus
    if step is None:
        return None, ("no step time was measured, so that it corrects nothing.",)
    if measurement.device == "cpu" or not gpus:
        return None, ("it ran on the CPU: its operations are used, its time corrects no GPU.",)
    if measurement.samples_per_step is None:
        return None, (_NO_SAMPLES,)
    gpu = _gpu_of(gpus[0])
    if gpu is None:
        note = f"no GPU is known as {gpus[0].name!r}, so that its time corrects nothing."
        return None, (note,)
    measured = MeasuredStep(
        gpu=gpu,
        batch_size=measured_batch_size(measurement),
        step_s=step.mean_s,
        error=step.precision / _HALF_WIDTH_95,
        busy_s=measurement.busy_s,
        holder=largest_share(measurement),
        gpus=max(measurement.ranks, 1),
        nodes=math.ceil(max(measurement.world_size, 1) / max(measurement.ranks, 1)),
        power_limit_w=_power_limit_w(gpus[0], gpu),
        fits=not measurement.ran_out_of_memory,
        busy_threads=_busy_threads(measurement),
        cpu_threads=measurement.machine.cpu_threads,
    )
    return measured, tuple(_step_notes(measurement, measured))


def largest_share(measurement: Measurement) -> Holder | None:
    """What has the largest share of a step; what holds it back, where shares are not known.

    A GPU that works most of the time, and waits for the rest, takes that rest elsewhere as well.
    """
    finding, shares = measurement.finding, measurement.shares
    if finding is None or finding.holder == "cpu":
        return None if finding is None else finding.holder
    if shares.compute is None:
        return None if finding.holder == "unknown" else finding.holder
    share_of: dict[Holder, float | None] = {
        "gpu": shares.compute,
        "input": shares.input,
        "host": shares.host,
        "network": shares.network,
    }
    return max(share_of, key=lambda holder: share_of[holder] or 0.0)


def measured_batch_size(measurement: Measurement) -> int:
    """Samples of one step on a GPU, all its passes; 1 where not counted: the step is a sample."""
    samples = measurement.samples_per_step
    return 1 if samples is None else max(round(samples), 1)


def _gpu_of(measured: MeasuredGpu) -> Gpu | None:
    """The GPU that a driver's name means; of several, the one whose memory is nearest."""
    try:
        candidates = find_gpu(measured.name).candidates
    except NotKnown:
        return None
    memory_bytes = measured.memory_bytes
    if memory_bytes is None:
        return candidates[0]
    return min(candidates, key=lambda gpu: abs(gpu.memory_bytes - memory_bytes))


def _power_limit_w(measured: MeasuredGpu, gpu: Gpu) -> float | None:
    limit_w = measured.power_limit_w
    return limit_w if limit_w is not None and limit_w < _SHIPPED * gpu.tdp_w else None


def _busy_threads(measurement: Measurement) -> float | None:
    """CPU threads that were busy for each GPU, once steps went steadily; None where not read."""
    steady_s = (measurement.start_up_s or 0.0) + (measurement.warm_up_s or 0.0)
    busy = [
        sample.process_cpus
        for sample in measurement.samples
        if sample.process_cpus is not None and sample.time_s >= steady_s
    ]
    return statistics.fmean(busy) / max(measurement.ranks, 1) if busy else None


def _step_notes(measurement: Measurement, measured: MeasuredStep) -> Iterator[str]:
    """What to know of a measurement that is used."""
    if measurement.step is not None and not measurement.step.is_steady:
        yield "no steady state was seen: its step time is of what there was."
    is_not_gpu_alone = measured.holder in ("input", "network") or measured.gpus * measured.nodes > 1
    if measured.busy_s is None and is_not_gpu_alone:
        yield (
            "the time of its kernels was not measured, and something beside the GPU is in its step "
            "time: other GPUs are not corrected by it."
        )


def _trouble_notes(measurement: Measurement) -> Iterator[str]:
    """What went wrong while it was measured."""
    if measurement.ending in ("failed", "killed"):
        how = "failed" if measurement.ending == "failed" else "was killed"
        yield (
            f"its command {how} (status {measurement.status}): what was measured is of the time "
            "before."
        )
    if measurement.ran_out_of_memory:
        yield (
            "its GPU ran out of memory while it was measured: its batch may not fit, and its step "
            "time may hold steps that were tried again."
        )


def _compile_notes(measurement: Measurement, profile: Profile) -> Iterator[str]:
    """Doubt where one of measurement and prediction is of compiled code, and the other is not."""
    if measurement.is_compiled and profile.compiled is None:
        yield (
            "it ran compiled code, while the step is predicted as eager code, as was asked: what "
            "compiling saves is in its own step time alone, and elsewhere as far as that is "
            "carried over."
        )
    if measurement.is_compiled is False and profile.compiled is not None:
        yield (
            "it ran eager code, while the step is predicted as compiled: elsewhere its time "
            "corrects what is not of the same code."
        )


def _is_own(measurement: Measurement, profile: Profile) -> bool:
    """Whether a profile is what the measurement recorded, or that as compiled code."""
    return measurement.profile is not None and any(
        measurement.profile is one for one in (profile, profile.eager)
    )


def _contradiction_notes(steps: Sequence[tuple[str, MeasuredStep]]) -> Iterator[str]:
    """Pairs that ran in the same configuration, and took another time."""
    for (first_name, first), (second_name, second) in combinations(steps, 2):
        ratio = max(first.step_s, second.step_s) / min(first.step_s, second.step_s)
        if first.configuration == second.configuration and ratio > _SAME_TIME:
            yield (
                f"{first_name} and {second_name} contradict each other: "
                f"{1e3 * first.step_s:.4g} ms and {1e3 * second.step_s:.4g} ms a step on "
                f"{first.gpu.name} at batch {first.batch_size}. Both count, and ranges have both: "
                "leave out the one that is not of this step."
            )


# Whether it is the step that is predicted


def check_same_step(name: str, measurement: Measurement, profile: Profile) -> None:
    """Raise where a measurement is of a step with other parameters."""
    recorded, updated = measurement.profile, _updated_parameters(measurement)
    if (
        recorded is not None
        and not _is_own(measurement, profile)
        and not _has_parameters(profile, recorded.parameters, _SAME_PARAMETERS)
    ):
        raise InputError(
            f"{name} is of another step: it has {recorded.parameters:,} parameters, {profile.name} "
            f"has {profile.parameters:,}.",
            fix=f"{_GIVE_THE_SAME}, or predict the measurement itself.",
        )
    if updated is not None and not _has_parameters(profile, updated, _SIMILAR_PARAMETERS):
        raise InputError(
            f"{name} is of another step: its optimizers hold {updated:,} parameters, "
            f"{profile.name} trains {profile.trainable_parameters:,}.",
            fix=f"{_GIVE_THE_SAME}.",
        )


def _parameter_notes(measurement: Measurement, profile: Profile) -> Iterator[str]:
    """Doubt where optimizers alone say what was measured, and they update something else."""
    updated = _updated_parameters(measurement)
    if updated is not None and not _has_parameters(profile, updated, _SAME_PARAMETERS):
        yield (
            f"its optimizers hold {updated:,} parameters, {profile.name} trains "
            f"{profile.trainable_parameters:,}: is it the same step?"
        )


def _updated_parameters(measurement: Measurement) -> int | None:
    """What optimizers update, where nothing better was recorded; of one of several processes, no
    more than a shard may be known.
    """
    updated = sum(optimizer.parameters for optimizer in measurement.optimizers)
    if measurement.profile is not None or measurement.world_size > 1 or not updated:
        return None
    return updated


def _has_parameters(profile: Profile, parameters: float, tolerance: float) -> bool:
    """Whether a profile has, or trains, so many parameters."""
    counts = (profile.parameters, profile.trainable_parameters)
    return any(abs(parameters - count) <= tolerance * max(count, 1) for count in counts)


def _arithmetic_notes(measurement: Measurement, profile: Profile) -> Iterator[str]:
    """Doubt where the operations it recorded are others than those that are predicted."""
    if measurement.profile is None or _is_own(measurement, profile):
        return
    size = measured_batch_size(measurement)
    recorded, predicted = trace_at(measurement.profile, size), trace_at(profile, size)
    if not recorded.flops or not predicted.flops:
        return
    ratio = recorded.flops / predicted.flops
    if max(ratio, 1 / ratio) > 1 + _SAME_ARITHMETIC:
        yield (
            f"its step does {ratio:.2f} times the arithmetic of {profile.name} at batch {size:,}: "
            "is it the same step?"
        )
    predicted_shares = _arithmetic_shares(predicted)
    for sort, share in _arithmetic_shares(recorded).items():
        predicted_share = predicted_shares.get(sort, 0.0)
        if share - predicted_share > _SAME_ARITHMETIC:
            yield (
                f"its step does {share:.2f} of its arithmetic {sort}, {profile.name} "
                f"{predicted_share:.2f}: is it the same step?"
            )


def _arithmetic_shares(trace: Trace) -> dict[str, float]:
    """Of a step's arithmetic, that in each precision, and that of images in each order."""
    shares: dict[str, float] = {}
    for op in trace.ops:
        sorts = [f"in {op.precision}"]
        if op.kind == "conv":
            sorts.append("channels last" if op.layout == "channels_last" else "channels first")
        for sort in sorts:
            shares[sort] = shares.get(sort, 0.0) + op.count * op.flops / trace.flops
    return shares


def _peak_notes(
    name: str, measured: MeasuredStep, profile: Profile, *, is_own: bool = False
) -> Iterator[str]:
    """Doubt where a time is less than the arithmetic takes at the GPU's peaks; raise where by far.

    Several GPUs may share a sample's arithmetic. A measurement's own operations (`is_own`) are
    taken as they are, whatever was wrong when they were recorded.
    """
    if measured.gpus * measured.nodes > 1:
        return
    trace = trace_at(profile, measured.batch_size)
    peak_share = ideal_time_s(trace, measured.gpu) / measured.step_s
    if peak_share <= 1:
        return
    claim = (
        f"{1e3 * measured.step_s:.4g} ms for the arithmetic of {profile.name} at batch "
        f"{measured.batch_size:,} would be {peak_share:.0%} of the dense peak of "
        f"{measured.gpu.name}"
    )
    if peak_share > _MOST_SPARED and not is_own:
        raise InputError(
            f"{name} cannot be this step: {claim}.",
            why="It is another step, batch or precision than the one that is predicted, or its "
            "time is not in seconds.",
            fix=f"{_GIVE_THE_SAME}: the seconds of one step, at its batch on one GPU.",
        )
    yield (
        f"{claim}, which cannot be: the step, its batch or its precision is another than the one "
        "that is predicted, and times that are carried over from it are as wrong."
    )
