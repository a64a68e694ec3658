"""What measured steps say of a prediction: on the GPU they ran on, and carried over to others.

A measured step is compared with its prediction at the same batch on the same GPU. What it shows is
kept as factors: of the device by the time its kernels ran (or by the step where the GPU held it
back), of the host where that did. On another GPU the same factors hold as far as ratios between
GPUs are known, and count as much as that is better than the prediction alone: an RTX 3090 says
little of an H100, which is known better than it. What several measurements share does not average
out. Those on one GPU are pooled first (`predict.pooling`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from outlay.estimate import Estimate
from outlay.hardware import Gpu
from outlay.predict.arrival import Fed, fed_words
from outlay.predict.calibration import Calibration
from outlay.predict.compute import DeviceTime
from outlay.predict.experience import (
    MEASURED,
    PREDICTED,
    Correction,
    Experience,
    OwnCalibration,
    Seen,
    around,
)
from outlay.predict.host import REFERENCE_HOST, Host
from outlay.predict.joining import Errors, Joined
from outlay.predict.pooling import Pooled, own_variance, pooled_by_gpu
from outlay.predict.told import Told, told_by
from outlay.trace.trace import Profile

_WORTH_SAYING = math.log(1.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The step a correction is asked for: where, how many samples a GPU, and how."""

    gpu: Gpu
    batch_size: int
    gpus: int = 1
    nodes: int = 1
    power_limit_w: float | None = None
    as_measured: bool = True
    """Whether it is run as it was measured: precision, passes, whole GPUs."""
    host: Host = REFERENCE_HOST


def correction_at(
    experience: Experience,
    profile: Profile,
    asked: Asked,
    device: DeviceTime,
    calibration: Calibration,
) -> Correction:
    """The correction of one prediction, whose uncorrected device time is `device`."""
    own = experience.own
    learned, host = own.of(asked.gpu), own.host
    factor = learned.factor if learned else 1.0
    if not experience.seen:
        return Correction(
            device=factor, host=host.factor if host else 1.0, notes=_own_notes(experience, asked)
        )
    told = [(one, told_by(profile, one, own, calibration, asked.host)) for one in experience.seen]
    carried = _carried(told, asked, device, own, calibration)
    return Correction(
        device=factor * carried.device,
        idle_s=carried.idle_s,
        error=carried.error,
        host=(host.factor if host else 1.0) * _host_factor(told, asked),
        host_known=any(one.host_known and seen.gpu == asked.gpu for seen, one in told),
        fed=_fed(told, asked),
        measured_s=_measured(experience.seen, asked, calibration),
        time_from=_time_from(experience.seen, carried, asked),
        notes=(
            *_own_notes(experience, asked),
            *carried.notes,
            *_host_notes(told, asked),
            *_input_notes(told, asked, calibration),
        ),
    )


# Several measurements


@dataclass(frozen=True, slots=True, kw_only=True)
class _Carried:
    device: float = 1.0
    idle_s: float = 0.0
    error: float | None = None
    sources: tuple[Seen, ...] = ()
    notes: tuple[str, ...] = ()


def _carried(
    told: Sequence[tuple[Seen, Told]],
    asked: Asked,
    device: DeviceTime,
    own: OwnCalibration,
    calibration: Calibration,
) -> _Carried:
    """The device's factor on a GPU, from measurements on it or else on others.

    Where the very step was measured, from those of it alone, as its time is.
    """
    known = [pair for pair in told if pair[1].device_known]
    itself = [pair for pair in known if _is_asked(pair[0], asked)]
    here = itself or [pair for pair in known if pair[0].gpu.name == asked.gpu.name]
    used = pooled_by_gpu(here or known, asked.batch_size, device, calibration)
    if not used:
        bound = min((one.device for _, one in told), default=1.0)
        return _Carried(device=bound)
    joined = _joined(used, asked, Errors(device=device, own=own, calibration=calibration))
    learned = own.of(asked.gpu)
    device_s = device.total_s * (learned.factor if learned else 1.0) * math.exp(joined.log)
    return _Carried(
        device=math.exp(joined.log),
        idle_s=float(joined.shares @ np.array([one.left_idle_s(device_s) for one in used])),
        error=joined.error,
        sources=tuple(seen for one in used for seen in one.seen),
        notes=_doubt_notes(used, joined),
    )


def _joined(used: Sequence[Pooled], asked: Asked, errors: Errors) -> Joined:
    first = used[0]
    if first.gpu.name == asked.gpu.name:
        return Joined(shares=np.ones(1), log=math.log(first.device), error=first.noise)
    logs = np.log([one.device for one in used])
    noise = [one.noise for one in used]
    return errors.joined([one.gpu for one in used], logs, noise, asked.gpu)


def _host_factor(told: Sequence[tuple[Seen, Told]], asked: Asked) -> float:
    """The mean of steps that waited for their host, or the tightest bound of those that did not.

    Those say nothing of another host, whose speed is given.
    """
    logs = [math.log(one.host) for _, one in told if one.host_known]
    if logs:
        return math.exp(sum(logs) / len(logs))
    return 1.0 if asked.host.measured else min(one.host for _, one in told)


def _fed(told: Sequence[tuple[Seen, Told]], asked: Asked) -> Fed | None:
    """The fastest that a measured machine's input was, where it held a step back."""
    each = [
        Fed(
            samples_per_s=one.input_samples_per_s,
            gpus=seen.gpus,
            cpus=seen.cpus,
            cpu_threads=seen.cpu_threads,
            is_here=seen.gpu == asked.gpu,
        )
        for seen, one in told
        if one.input_samples_per_s is not None
    ]
    return max(each, key=lambda fed: fed.samples_per_s, default=None)


# The step itself


def _measured(seen: Sequence[Seen], asked: Asked, calibration: Calibration) -> Estimate | None:
    """The step that was asked for, where it is one that was measured; the mean of several."""
    same = [one for one in seen if _is_asked(one, asked)]
    if not same:
        return None
    repeats = calibration.number("error_of_repeats")
    each = [around(one.step_s, math.hypot(repeats, one.error)) for one in same]
    weights = [1 / own_variance(one, calibration) for one in same]
    return Estimate(
        low=min(one.low for one in each),
        likely=statistics.fmean([one.step_s for one in same], weights)
        if same[1:]
        else each[0].likely,
        high=max(one.high for one in each),
    )


def _is_asked(seen: Seen, asked: Asked) -> bool:
    return asked.as_measured and (
        seen.gpu.name,
        seen.batch_size,
        seen.gpus,
        seen.nodes,
        seen.power_limit_w,
    ) == (asked.gpu.name, asked.batch_size, asked.gpus, asked.nodes, asked.power_limit_w)


# Words


def _time_from(seen: Sequence[Seen], carried: _Carried, asked: Asked) -> str:
    if any(_is_asked(one, asked) for one in seen):
        return MEASURED
    if not carried.sources:
        return PREDICTED
    names = dict.fromkeys(_source(one, asked) for one in carried.sources)
    return f"carried over from {' and '.join(names)}"


def _source(seen: Seen, asked: Asked) -> str:
    """The measured GPU; of the very one that is asked for, what was different there."""
    name = seen.gpu.name
    if name != asked.gpu.name:
        return name
    batch = f"batch {seen.batch_size} on " if seen.batch_size != asked.batch_size else ""
    is_elsewhere = (seen.gpus, seen.nodes) != (asked.gpus, asked.nodes)
    other_limit = seen.power_limit_w != asked.power_limit_w
    limit = f" at {seen.power_limit_w or seen.gpu.tdp_w:.0f} W" if other_limit else ""
    if not (batch or is_elsewhere or limit):
        return f"{name} in another precision or share"
    return f"{batch}{_counted(seen) if is_elsewhere else name}{limit}"


def _counted(seen: Seen) -> str:
    """`one H200`, `8x H200`, `2 machines of 8x H200`."""
    several = seen.gpus * seen.nodes > 1
    each = f"{seen.gpus}x {seen.gpu.name}" if several else f"one {seen.gpu.name}"
    return f"{seen.nodes} machines of {each}" if seen.nodes > 1 else each


def _own_notes(experience: Experience, asked: Asked) -> tuple[str, ...]:
    learned = experience.own.of(asked.gpu)
    if learned is None:
        return ()
    several = "s" if learned.measurements > 1 else ""
    return (f"With your own {learned.measurements} measurement{several} on {learned.name}.",)


def _doubt_notes(used: Sequence[Pooled], joined: Joined) -> tuple[str, ...]:
    if joined.disagreement >= _WORTH_SAYING:
        fastest, slowest = (pick(used, key=lambda one: one.device) for pick in (min, max))
        note = (
            f"The measured GPUs do not agree: the step took {fastest.device:.2g} times what is "
            f"predicted on {fastest.gpu.name}, {slowest.device:.2g} times on {slowest.gpu.name}; "
            "the range has that."
        )
        return (note,)
    if joined.unexplained < _WORTH_SAYING:
        return ()
    slowest = max(used, key=lambda one: one.device)
    note = (
        f"The measured step took {slowest.device:.1f} times what is predicted on "
        f"{slowest.gpu.name}: "
        "work that every GPU has, or a library's bad choice there alone; the range has both."
    )
    return (note,)


def _host_notes(told: Sequence[tuple[Seen, Told]], asked: Asked) -> tuple[str, ...]:
    held = [seen for seen, one in told if one.host_known]
    if not held or any(seen.gpu == asked.gpu for seen in held):
        return ()
    note = (
        "Its host held the measured step back: that is the measured machine's CPU; others differ "
        "by up to a factor of two, and the range has that."
    )
    return (note,)


def _input_notes(
    told: Sequence[tuple[Seen, Told]], asked: Asked, calibration: Calibration
) -> tuple[str, ...]:
    held = [seen for seen, one in told if one.input_samples_per_s is not None]
    fed = _fed(told, asked)
    if fed is None or any(_is_asked(seen, asked) for seen in held):
        return ()
    is_known = any(one.device_known for _, one in told)
    unknown = "" if is_known else " What the GPU itself takes was not measured."
    return (fed_words(fed, asked.gpus, calibration) + unknown,)
