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
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from outlay.caching import ById
from outlay.hardware.gpus import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.evidence import (
    MEASURED,
    PREDICTED,
    Correction,
    Evidence,
    InputLimit,
    LearnedCalibration,
    MeasuredStep,
    around,
    gpu_error,
    input_limit_note,
)
from outlay.predict.host import REFERENCE_HOST, Host, host_time_s
from outlay.predict.kernel_time import DeviceTime, device_time
from outlay.predict.roofline import roofline_at, speed_at_power_share, trace_at
from outlay.trace.profile import Profile
from outlay.uncertainty import PERCENTILE_90, Estimate

# What one measured step tells: measured over predicted, of the device and of the host.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Measured over predicted, of the device and of the host, and which of them was really seen."""

    device: float
    device_known: bool
    busy_s: float
    """What kernels took, or at most the whole step."""
    idle_s: float
    """What a step takes beside its kernels, where the GPU held it back."""
    host: float
    host_known: bool
    input_samples_per_s: float | None


def ratios_of(
    profile: Profile,
    seen: MeasuredStep,
    own: LearnedCalibration,
    calibration: Calibration,
    host: Host = REFERENCE_HOST,
) -> Ratios:
    """What one measurement tells; asked again for another GPU, the same."""
    return _told_once(ById(profile), seen, ById(own), ById(calibration), host)


@lru_cache(maxsize=4096)
def _told_once(
    profile: ById[Profile],
    seen: MeasuredStep,
    learned: ById[LearnedCalibration],
    numbers: ById[Calibration],
    host: Host,
) -> Ratios:
    """What did not hold the step back cannot have taken longer than it, and is held to that."""
    own, calibration = learned.value, numbers.value
    device_s = _device_s(profile.value, seen, own, calibration)
    trace = trace_at(profile.value, seen.batch_size)
    host_s = host_time_s(trace, calibration, host) * (own.host.factor if own.host else 1.0)
    holder = seen.holder or ("host" if host_s > device_s else "gpu")
    busy_s = None if seen.busy_s is None else min(seen.busy_s, seen.step_s)
    of_gpu = holder == "gpu" and seen.gpus * seen.nodes == 1
    if busy_s is None and of_gpu:
        busy_s = seen.step_s
    within = min(seen.step_s / device_s, 1.0)
    of_host = holder == "host"
    return Ratios(
        device=within if busy_s is None else busy_s / device_s,
        device_known=busy_s is not None,
        busy_s=seen.step_s if busy_s is None else busy_s,
        idle_s=seen.step_s - busy_s if of_gpu and busy_s is not None else 0.0,
        host=seen.step_s / host_s if of_host else min(seen.step_s / host_s, 1.0),
        host_known=of_host,
        input_samples_per_s=seen.batch_size / seen.step_s if holder == "input" else None,
    )


def _device_s(
    profile: Profile, seen: MeasuredStep, own: LearnedCalibration, calibration: Calibration
) -> float:
    """The device's time as predicted where it was measured."""
    trace = trace_at(profile, seen.batch_size)
    time_s = device_time(trace, roofline_at(seen.gpu, calibration), calibration).total_s
    learned = own.of(seen.gpu)
    return time_s * (learned.factor if learned else 1.0) / power_speed(seen, calibration)


def power_speed(seen: MeasuredStep, calibration: Calibration) -> float:
    """A measured GPU's speed under its power limit, over that at the shipped one."""
    if seen.power_limit_w is None:
        return 1.0
    return speed_at_power_share(seen.power_limit_w / seen.gpu.tdp_w, calibration)


# How far predictions of one step are off on different GPUs, and what one of them says of another.
#
# Some of it is the step's own and the same everywhere, some is each GPU's; measurements on some
# GPUs are joined to the best linear estimate for another.


Array = NDArray[np.float64]
_LEAST = 1e-9
_EXPLAINED = 3.0
"""Standard errors: what is slower by more has a reason that the model does not know; at twice that
nothing is left of the other explanation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredError:
    """What measurements on some GPUs say of another, in logarithms."""

    shares: Array
    """Of each measurement in it."""
    log: float
    error: float
    """What is left of the prediction's."""
    unexplained: float = 0.0
    """How much of what was slower no error of the predictions explains."""
    disagreement: float = 0.0
    """Standard deviation of the GPUs' own parts, beyond what their errors let expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCovariance:
    """Variances and covariances of the errors of one step, in logarithms.

    Variances are those of a prediction alone. Of the kernels' errors and of the GPUs' own, two GPUs
    share so much that the ratio of two equally known ones is off by `doubt_kept` and `ratio_kept`
    of them: a correlation of 1 - kept^2 / 2.
    """

    device: DeviceTime
    own: LearnedCalibration
    calibration: Calibration

    def joined(
        self, gpus: Sequence[Gpu], logs: Array, noise: Sequence[float], target: Gpu
    ) -> TransferredError:
        """The best linear estimate (no gain below 0, their sum at most 1) of a correction.

        What is off on one GPU is off on another as far as both share it. What is put down to the
        measured GPUs alone is at most their own error: a step that is off by more is another than
        was traced, everywhere. But one that is much slower may also have met a library that chose
        badly on that GPU alone: of what no error explains half is taken, and the range goes from
        none to all of it; of several measured GPUs only what they do not all have. Where they
        differ by more than their errors, another one may as well.
        """
        joint = np.array([[self._covariance(one, other) for other in gpus] for one in gpus])
        joint += np.diag(np.square(noise))
        shared = np.array([self._covariance(one, target) for one in gpus])
        gains = _gains(joint, shared)
        shares = gains / gains.sum()
        whole = float(shares @ logs)
        held_back = whole - float(gains @ logs)
        most = float(shares @ np.array([self._own_error(gpu) for gpu in gpus]))
        if abs(held_back) > most:
            held_back = math.copysign(most, held_back)
            gains = shares * (1 - held_back / whole)
        spread = float(shares @ np.square(logs - whole))
        expected = float(shares @ np.diag(joint) - shares @ joint @ shares)
        beyond = max(spread - expected, 0.0)
        variance = self._variance(target) - 2 * gains @ shared + gains @ joint @ gains
        corrected, error = whole - held_back, math.sqrt(max(float(variance), _LEAST) + beyond)
        explained = _EXPLAINED * float(shares @ np.sqrt(np.diag(joint)))
        unexplained = corrected * min(max(whole / explained - 1, 0.0), 1.0)
        if len(logs) > 1:
            unexplained = min(unexplained, float(np.ptp(logs)))
        return TransferredError(
            shares=shares,
            log=corrected - unexplained / 2,
            error=error + unexplained / 2 / PERCENTILE_90,
            unexplained=unexplained,
            disagreement=math.sqrt(beyond),
        )

    def _own_error(self, gpu: Gpu) -> float:
        return gpu_error(gpu, self.own, self.calibration)

    def _variance(self, gpu: Gpu) -> float:
        own = self._own_error(gpu)
        return step_error(self.device, self.calibration) ** 2 + own**2

    def _covariance(self, one: Gpu, other: Gpu) -> float:
        if one.name == other.name:
            return self._variance(one)
        number = self.calibration.number
        shared = 1 - number("doubt_kept") ** 2 / 2, 1 - number("ratio_kept") ** 2 / 2
        step = number("error_base") ** 2 + shared[0] * self.device.doubt**2
        return step + shared[1] * self._own_error(one) * self._own_error(other)


def _gains(joint: Array, shared: Array) -> Array:
    """The gains of the best linear estimate; what would count against itself is left out."""
    kept = list(range(len(shared)))
    while True:
        found = np.linalg.solve(joint[np.ix_(kept, kept)], shared[kept])
        if found.min() >= 0:
            break
        del kept[int(found.argmin())]
    gains = np.zeros(len(shared))
    gains[kept] = found / max(float(found.sum()), 1.0)
    return gains


def step_error(device: DeviceTime, calibration: Calibration) -> float:
    """What a step is expected to be off by on any GPU: what all have, and its own kernels' part."""
    return math.hypot(calibration.number("error_base"), device.doubt)


# All that was measured on one GPU as one measurement, for the batch that is asked for.
#
# Each counts by how near its batch is and by how well it is known itself. Nothing averages out of
# what each may be off by, and where they scatter by more than that, so much is open:
#
#     weight = 1 / ( (log 1.1)² + log(batch / asked batch)² ) / own error²
#     ratio  = Σ weight · measured / predicted                  weights add up to 1
#     error² = max( Σ weight · error², Σ weight · log(one ratio / ratio)² )


_SAME_BATCH = math.log(1.1)
"""Batch sizes this near say about as much of each other as the same one."""
_FAR = math.log(4)
"""Batch sizes this far apart, or further, say equally little of each other."""
_WORTH_NAMING = 0.1

Pair = tuple[MeasuredStep, Ratios]


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRatios:
    """What all measurements on one GPU tell together of its kernels."""

    seen: tuple[MeasuredStep, ...]
    """Those that count for something, by batch size."""
    device: float
    """Measured over predicted."""
    busy_s: float
    idle_s: float
    noise: float
    """What `device` may be off by, relative: each one's own error, or their scatter."""

    @property
    def gpu(self) -> Gpu:
        """Where they were taken."""
        return self.seen[0].gpu

    def left_idle_s(self, device_s: float) -> float:
        """What is left of pauses: kernels that take longer fill them, since the host goes on."""
        return max(self.idle_s - max(device_s - self.busy_s, 0.0), 0.0)


def pooled_ratios(
    told: Sequence[Pair], batch_size: int, device: DeviceTime, calibration: Calibration
) -> list[PooledRatios]:
    """One for each GPU, in the order they were given in; within a GPU no order matters."""
    by_gpu: dict[str, list[Pair]] = {}
    for pair in told:
        by_gpu.setdefault(pair[0].gpu.name, []).append(pair)
    return [
        _pooled(sorted(same, key=_rank), batch_size, device, calibration)
        for same in by_gpu.values()
    ]


def own_variance(seen: MeasuredStep, calibration: Calibration) -> float:
    """What a measurement itself is off by at its own batch: how steps repeat, and its limit."""
    lost = 1 - power_speed(seen, calibration)
    limit = calibration.number("power_loss_error") * lost
    return calibration.number("error_of_repeats") ** 2 + seen.error**2 + limit**2 + _LEAST**2


def _pooled(
    told: Sequence[Pair], batch_size: int, device: DeviceTime, calibration: Calibration
) -> PooledRatios:
    weights = _weights([seen for seen, _ in told], batch_size, calibration)
    ratio = _mean(weights, [one.device for _, one in told])
    known = [_variance(seen, batch_size, device, calibration) for seen, _ in told]
    scatter = [math.log(one.device / ratio) ** 2 for _, one in told]
    return PooledRatios(
        seen=tuple(
            seen
            for weight, (seen, _) in zip(weights, told, strict=True)
            if weight >= _WORTH_NAMING * max(weights)
        ),
        device=ratio,
        busy_s=_mean(weights, [one.busy_s for _, one in told]),
        idle_s=_mean(weights, [one.idle_s for _, one in told]),
        noise=math.sqrt(max(_mean(weights, known), _mean(weights, scatter))),
    )


def _weights(
    seen: Sequence[MeasuredStep], batch_size: int, calibration: Calibration
) -> list[float]:
    """How much each counts: no jump in the middle of two, and the nearest by far where it is."""
    each = [
        1 / (_SAME_BATCH**2 + _apart(one, batch_size) ** 2) / own_variance(one, calibration)
        for one in seen
    ]
    return [one / sum(each) for one in each]


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _variance(
    seen: MeasuredStep, batch_size: int, device: DeviceTime, calibration: Calibration
) -> float:
    """What a measurement may be off by at another batch: so much more of the step's own error."""
    far = min(_apart(seen, batch_size) / _FAR, 1.0)
    kept = calibration.number("batch_kept") * far * step_error(device, calibration)
    return own_variance(seen, calibration) + float(kept) ** 2


def _apart(seen: MeasuredStep, batch_size: int) -> float:
    return abs(math.log(max(batch_size, 1) / seen.batch_size))


def _rank(pair: Pair) -> tuple[float, ...]:
    seen, told = pair
    return seen.batch_size, seen.gpus * seen.nodes, seen.step_s, told.busy_s, seen.error


_WORTH_SAYING = math.log(1.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionRequest:
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
    experience: Evidence,
    profile: Profile,
    asked: CorrectionRequest,
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
    told = [(one, ratios_of(profile, one, own, calibration, asked.host)) for one in experience.seen]
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
class _Transfer:
    device: float = 1.0
    idle_s: float = 0.0
    error: float | None = None
    sources: tuple[MeasuredStep, ...] = ()
    notes: tuple[str, ...] = ()


def _carried(
    told: Sequence[tuple[MeasuredStep, Ratios]],
    asked: CorrectionRequest,
    device: DeviceTime,
    own: LearnedCalibration,
    calibration: Calibration,
) -> _Transfer:
    """The device's factor on a GPU, from measurements on it or else on others.

    Where the very step was measured, from those of it alone, as its time is.
    """
    known = [pair for pair in told if pair[1].device_known]
    itself = [pair for pair in known if _is_asked(pair[0], asked)]
    here = itself or [pair for pair in known if pair[0].gpu.name == asked.gpu.name]
    used = pooled_ratios(here or known, asked.batch_size, device, calibration)
    if not used:
        bound = min((one.device for _, one in told), default=1.0)
        return _Transfer(device=bound)
    joined = _joined(used, asked, ErrorCovariance(device=device, own=own, calibration=calibration))
    learned = own.of(asked.gpu)
    device_s = device.total_s * (learned.factor if learned else 1.0) * math.exp(joined.log)
    return _Transfer(
        device=math.exp(joined.log),
        idle_s=float(joined.shares @ np.array([one.left_idle_s(device_s) for one in used])),
        error=joined.error,
        sources=tuple(seen for one in used for seen in one.seen),
        notes=_doubt_notes(used, joined),
    )


def _joined(
    used: Sequence[PooledRatios], asked: CorrectionRequest, errors: ErrorCovariance
) -> TransferredError:
    first = used[0]
    if first.gpu.name == asked.gpu.name:
        return TransferredError(shares=np.ones(1), log=math.log(first.device), error=first.noise)
    logs = np.log([one.device for one in used])
    noise = [one.noise for one in used]
    return errors.joined([one.gpu for one in used], logs, noise, asked.gpu)


def _host_factor(told: Sequence[tuple[MeasuredStep, Ratios]], asked: CorrectionRequest) -> float:
    """The mean of steps that waited for their host, or the tightest bound of those that did not.

    Those say nothing of another host, whose speed is given.
    """
    logs = [math.log(one.host) for _, one in told if one.host_known]
    if logs:
        return math.exp(sum(logs) / len(logs))
    return 1.0 if asked.host.measured else min(one.host for _, one in told)


def _fed(
    told: Sequence[tuple[MeasuredStep, Ratios]], asked: CorrectionRequest
) -> InputLimit | None:
    """The fastest that a measured machine's input was, where it held a step back."""
    each = [
        InputLimit(
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


def _measured(
    seen: Sequence[MeasuredStep], asked: CorrectionRequest, calibration: Calibration
) -> Estimate | None:
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


def _is_asked(seen: MeasuredStep, asked: CorrectionRequest) -> bool:
    return asked.as_measured and (
        seen.gpu.name,
        seen.batch_size,
        seen.gpus,
        seen.nodes,
        seen.power_limit_w,
    ) == (asked.gpu.name, asked.batch_size, asked.gpus, asked.nodes, asked.power_limit_w)


# Words


def _time_from(seen: Sequence[MeasuredStep], carried: _Transfer, asked: CorrectionRequest) -> str:
    if any(_is_asked(one, asked) for one in seen):
        return MEASURED
    if not carried.sources:
        return PREDICTED
    names = dict.fromkeys(_source(one, asked) for one in carried.sources)
    return f"carried over from {' and '.join(names)}"


def _source(seen: MeasuredStep, asked: CorrectionRequest) -> str:
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


def _counted(seen: MeasuredStep) -> str:
    """`one H200`, `8x H200`, `2 machines of 8x H200`."""
    several = seen.gpus * seen.nodes > 1
    each = f"{seen.gpus}x {seen.gpu.name}" if several else f"one {seen.gpu.name}"
    return f"{seen.nodes} machines of {each}" if seen.nodes > 1 else each


def _own_notes(experience: Evidence, asked: CorrectionRequest) -> tuple[str, ...]:
    learned = experience.own.of(asked.gpu)
    if learned is None:
        return ()
    several = "s" if learned.measurements > 1 else ""
    return (f"With your own {learned.measurements} measurement{several} on {learned.name}.",)


def _doubt_notes(used: Sequence[PooledRatios], joined: TransferredError) -> tuple[str, ...]:
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


def _host_notes(
    told: Sequence[tuple[MeasuredStep, Ratios]], asked: CorrectionRequest
) -> tuple[str, ...]:
    held = [seen for seen, one in told if one.host_known]
    if not held or any(seen.gpu == asked.gpu for seen in held):
        return ()
    note = (
        "Its host held the measured step back: that is the measured machine's CPU; others differ "
        "by up to a factor of two, and the range has that."
    )
    return (note,)


def _input_notes(
    told: Sequence[tuple[MeasuredStep, Ratios]], asked: CorrectionRequest, calibration: Calibration
) -> tuple[str, ...]:
    held = [seen for seen, one in told if one.input_samples_per_s is not None]
    fed = _fed(told, asked)
    if fed is None or any(_is_asked(seen, asked) for seen in held):
        return ()
    is_known = any(one.device_known for _, one in told)
    unknown = "" if is_known else " What the GPU itself takes was not measured."
    return (input_limit_note(fed, asked.gpus, calibration) + unknown,)
