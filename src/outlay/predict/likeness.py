"""Whether what was measured can be the step that is predicted.

A measurement of another step would correct every GPU by what has nothing to do with it: one that is
clearly another is refused, one that may be is used with a word.
"""

from __future__ import annotations

from collections.abc import Iterable

from outlay.errors import InputError
from outlay.measurement import Measurement
from outlay.predict.experience import Seen
from outlay.predict.machine import ideal_time_s
from outlay.predict.traced import trace_at
from outlay.trace.trace import Profile, Trace

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


def too_fast(name: str, seen: Seen, profile: Profile, *, is_own: bool = False) -> tuple[str, ...]:
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
