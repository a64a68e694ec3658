"""What a user's own measurements say of their GPUs and hosts, whatever they trained.

Each measurement is a lesson (`predict.lesson`): measured over predicted of the GPU's own time, or
of the host's, or a reason why it says nothing of them; one that no error explains is left out.
Lessons of one step (repeats, other batch sizes) make one vote, and the votes of a GPU or of a CPU
make its factor (`predict.own_factor`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outlay.measurement.measurement import Holder, Measurement
from outlay.predict.calibration import Calibration
from outlay.predict.correct import Ratios, ratios_of
from outlay.predict.evidence import (
    NOTHING_LEARNED,
    LearnedCalibration,
    LearnedFactor,
    MeasuredStep,
    gpu_error,
)
from outlay.predict.from_probe import measured_step_of
from outlay.predict.kernel_time import DeviceTime, device_time
from outlay.predict.roofline import roofline_at, speed_at_power_share, trace_at
from outlay.trace.profile import Profile
from outlay.uncertainty import PERCENTILE_90

# What one measurement says of its GPU and host, and which measurements are of one step.


Subject = Literal["gpu", "host"]
"""What a lesson is of."""

_SAME_STEP = 0.05
"""Predicted times of one step at the same batch may differ by this: recorded at another batch, and
some operations that run now and then."""
_SAME_MODEL = 0.01
_BUSY = 0.5
"""Of a step: where kernels ran for less, the GPU was not what it waited for."""
_TOO_BUSY = 1.1
"""Of a step: kernels that took longer were not those of the timed steps."""
_UNNAMED_CPU = "unnamed CPU"
_HELD_BY: dict[Holder, str] = {
    "input": "its input",
    "host": "its host",
    "network": "exchange between GPUs",
    "cpu": "its CPU",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRatios:
    """What one measurement says of its GPU and host, as measured over predicted."""

    name: str
    measurement: Measurement
    seen: MeasuredStep | None = None
    gpu_ratio: float | None = None
    host_ratio: float | None = None
    taught: tuple[Subject, ...] = ()
    """What its ratios are used for."""
    step: int | None = None
    """The number of its step: repeats and other batch sizes have the same one."""
    left_out: str | None = None
    """Why it says nothing, or nothing of its GPU."""

    @property
    def cpu(self) -> str:
        """The CPU that it ran on, by name."""
        return self.measurement.machine.cpu or _UNNAMED_CPU

    def without(self, subject: Subject, why: str) -> MeasurementRatios:
        """The lesson without one of the things it could have taught."""
        said = f"{self.left_out} {why}" if self.left_out else why
        left = tuple(one for one in self.taught if one != subject)
        return replace(self, taught=left, left_out=said)


def measurement_ratios(
    measurements: Iterable[tuple[str, Measurement]], calibration: Calibration
) -> list[MeasurementRatios]:
    """A lesson of each; one that was kept under two names is read once."""
    lessons: list[MeasurementRatios] = []
    for name, measurement in measurements:
        twin = next((one for one in lessons if one.measurement == measurement), None)
        if twin is None:
            lessons.append(_lesson(name, measurement, calibration))
        else:
            why = f"the same measurement as {twin.name}, which counts."
            lessons.append(MeasurementRatios(name=name, measurement=measurement, left_out=why))
    return lessons


def _lesson(name: str, measurement: Measurement, calibration: Calibration) -> MeasurementRatios:
    plain = MeasurementRatios(name=name, measurement=measurement)
    seen, said = measured_step_of(measurement)
    profile = measurement.profile
    if seen is None:
        return replace(plain, left_out=said[0])
    if profile is None:
        return replace(plain, seen=seen, left_out="the step was recorded without operations.")
    told = ratios_of(profile, seen, NOTHING_LEARNED, calibration)
    of_gpu = _why_not_gpu(told, seen)
    found = replace(
        plain,
        seen=seen,
        gpu_ratio=told.device if told.device_known else None,
        host_ratio=told.host if told.host_known else None,
        taught=(*_if(of_gpu is None, "gpu"), *_if(told.host_known, "host")),
        left_out=of_gpu,
    )
    if measurement.is_compiled:
        why = "its code was compiled, and predictions are of code that is not."
        return replace(found, taught=(), left_out=why)
    return found


def _if(holds: bool, subject: Subject) -> tuple[Subject, ...]:
    return (subject,) if holds else ()


def _why_not_gpu(told: Ratios, seen: MeasuredStep) -> str | None:
    """Why a step says nothing of its GPU's own speed; None where it does."""
    if seen.busy_s is not None and seen.busy_s > _TOO_BUSY * seen.step_s:
        return (
            f"kernels took {_ms(seen.busy_s)} in the profile, a step {_ms(seen.step_s)}: the "
            "profiled steps are not like the timed ones."
        )
    share = told.busy_s / seen.step_s
    if seen.holder not in (None, "gpu"):
        worked = f", the GPU worked {share:.0%} of the time" if told.device_known else ""
        return f"the step waited for {_HELD_BY[seen.holder]}{worked}: it says little of the GPU."
    if not told.device_known:
        return "the time of its kernels was not measured."
    if share < _BUSY:
        return f"the GPU worked {share:.0%} of a step: it says little of the GPU."
    return None


def _ms(time_s: float) -> str:
    return f"{1e3 * time_s:.3g} ms"


# Which of them are of one step


def numbered(
    lessons: Sequence[MeasurementRatios], calibration: Calibration
) -> list[MeasurementRatios]:
    """The lessons that teach something, each with the number of its step, from 1."""
    firsts: list[MeasurementRatios] = []
    found = []
    for lesson in lessons:
        if not lesson.taught:
            found.append(lesson)
            continue
        same = [n for n, one in enumerate(firsts, 1) if _is_same_step(one, lesson, calibration)]
        firsts += [] if same else [lesson]
        found.append(replace(lesson, step=same[0] if same else len(firsts)))
    return found


def _is_same_step(
    one: MeasurementRatios, other: MeasurementRatios, calibration: Calibration
) -> bool:
    """By parameters, and by the time predicted at the same batch on the same GPU."""
    first, second = profile_of(one), profile_of(other)
    if abs(first.parameters - second.parameters) > _SAME_MODEL * first.parameters:
        return False
    times_s = [device_of(profile, seen_of(one), calibration).total_s for profile in (first, second)]
    return max(times_s) <= (1 + _SAME_STEP) * min(times_s)


def profile_of(lesson: MeasurementRatios) -> Profile:
    """The operations of a lesson that teaches something."""
    profile = lesson.measurement.profile
    assert profile is not None
    return profile


def seen_of(lesson: MeasurementRatios) -> MeasuredStep:
    """The step of a lesson that teaches something."""
    assert lesson.seen is not None
    return lesson.seen


def device_of(profile: Profile, seen: MeasuredStep, calibration: Calibration) -> DeviceTime:
    """A step's time on the device, as predicted at the batch and on the GPU of a measurement."""
    trace = trace_at(profile, seen.batch_size)
    return device_time(trace, roofline_at(seen.gpu, calibration), calibration)


# The factor that measured steps make of what is taken for one GPU, or for one host.
#
# All steps on a GPU share what its figures are off by, expected to be as large as the calibration
# says (`prior`); every step is off by something of its own besides. In logarithms, with a vote for
# each distinct step, weights w by the steps' own errors, and C their covariances:
#
#     mean     = Σ w · log(measured / predicted)
#     variance = scatter · Σ Σ w w C       scatter: as seen, never less than expected
#     shrink   = prior² / (prior² + variance)
#     factor   = exp( shrink · mean ), at most 3 prior away from 1
#     error    = prior · √(1 − shrink)


_PRIOR_SPREADS = 2
# Assumes: until there are more, the scatter of a user's steps counts as if two had been seen with
# the errors that the calibration expects of them (a guess).
BOUND = 3.0
"""Standard deviations: what is further off has a reason that no error explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRatio:
    """Measured over predicted of one distinct step, and how far such a step is expected to be off.

    In logarithms; of repeats and other batch sizes of the step it is the median.
    """

    log: float
    base: float
    """What any step is off by; steps of one model share it."""
    doubts: Mapping[str, float] = field(default_factory=dict)
    """What its kernels are off by, by family; steps share what they have of a family."""
    noise: float = 0.0
    """What the measurement itself may be off by."""
    model: int = 0
    """Its parameters, by which models are told apart."""
    measurements: int = 1

    @property
    def error(self) -> float:
        """All of these together."""
        return math.hypot(self.base, self.noise, *self.doubts.values())


def is_explained(vote: StepRatio, prior: float) -> bool:
    """Whether the errors of a GPU (or host) and of the step explain what is measured."""
    return abs(vote.log) <= BOUND * math.hypot(prior, vote.error)


def shrunken_factor(name: str, votes: Sequence[StepRatio], prior: float) -> LearnedFactor:
    """The factor that some steps make of a prior error, and the error that is left."""
    weights = _weights(votes)
    mean = sum(weight * vote.log for weight, vote in zip(weights, votes, strict=True))
    variance = _scatter(votes, mean) * _variance(votes, weights)
    shrink = prior**2 / (prior**2 + variance)
    drawn, most = shrink * mean, BOUND * prior
    is_bounded = abs(drawn) > most
    return LearnedFactor(
        name=name,
        measurements=sum(vote.measurements for vote in votes),
        steps=len(votes),
        mean_ratio=math.exp(mean),
        factor=math.exp(math.copysign(most, drawn) if is_bounded else drawn),
        error_before=prior,
        error=prior if is_bounded else prior * math.sqrt(1 - shrink),
        is_bounded=is_bounded,
    )


def _weights(votes: Sequence[StepRatio]) -> list[float]:
    each = [vote.error**-2 for vote in votes]
    return [one / sum(each) for one in each]


def _scatter(votes: Sequence[StepRatio], mean: float) -> float:
    """How much more steps scatter than expected; 1 where a few agree by chance."""
    seen = sum(((vote.log - mean) / vote.error) ** 2 for vote in votes)
    return max((_PRIOR_SPREADS + seen) / (_PRIOR_SPREADS + len(votes) - 1), 1.0)


def _variance(votes: Sequence[StepRatio], weights: Sequence[float]) -> float:
    """Of the weighted mean; what steps share does not average out."""
    pairs = list(zip(votes, weights, strict=True))
    return sum(
        one_weight * other_weight * _covariance(one, other)
        for one, one_weight in pairs
        for other, other_weight in pairs
    )


def _covariance(one: StepRatio, other: StepRatio) -> float:
    if one is other:
        return one.error**2
    kernels = sum(doubt * other.doubts.get(family, 0.0) for family, doubt in one.doubts.items())
    return kernels + (one.base * other.base if one.model == other.model else 0.0)


def mean_over_hosts(hosts: Sequence[LearnedFactor]) -> LearnedFactor | None:
    """The host of a user's machines: the geometric mean over CPUs, each of them one vote.

    Its error is that of one of these machines, not knowing which: what is left of each, and how
    they differ.
    """
    if not hosts:
        return None
    logs = [math.log(one.factor) for one in hosts]
    mean = sum(logs) / len(logs)
    left = [one.error**2 + (log - mean) ** 2 for one, log in zip(hosts, logs, strict=True)]
    return LearnedFactor(
        name="host",
        measurements=sum(one.measurements for one in hosts),
        steps=sum(one.steps for one in hosts),
        mean_ratio=math.exp(sum(math.log(one.mean_ratio) for one in hosts) / len(hosts)),
        factor=math.exp(mean),
        error_before=hosts[0].error_before,
        error=math.sqrt(sum(left) / len(left)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """What was learned, from which measurements, and which say nothing."""

    calibration: LearnedCalibration
    lessons: tuple[MeasurementRatios, ...] = ()
    notes: tuple[str, ...] = ()


def calibration_report(
    measurements: Iterable[tuple[str, Measurement]], calibration: Calibration
) -> CalibrationReport:
    """What measurements, each with its name, say of the GPUs and hosts they were taken on."""
    lessons = numbered(measurement_ratios(measurements, calibration), calibration)
    lessons, gpus = _factors(lessons, "gpu", calibration)
    lessons, hosts = _factors(lessons, "host", calibration)
    left_out = [f"{one.name}: {one.left_out}" for one in lessons if one.left_out is not None]
    return CalibrationReport(
        calibration=LearnedCalibration(gpus=gpus, host=mean_over_hosts(hosts), hosts=hosts),
        lessons=tuple(lessons),
        notes=(*left_out, *(_bounded(one) for one in (*gpus, *hosts) if one.is_bounded)),
    )


# What they say together


def _factors(
    lessons: Sequence[MeasurementRatios], subject: Subject, calibration: Calibration
) -> tuple[list[MeasurementRatios], tuple[LearnedFactor, ...]]:
    """A factor for each GPU or CPU by name, and the lessons without those that are too far off.

    Each is tested by itself, so that one spoiled repeat neither bends nor silences the others.
    """
    kept = [_if_explained(one, subject, calibration) for one in lessons]
    votes: dict[str, list[StepRatio]] = {}
    priors: dict[str, float] = {}
    for (name, _), same in _by_step(kept, subject).items():
        votes.setdefault(name, []).append(_vote(same, subject, calibration))
        priors[name] = _prior(same[0], subject, calibration)
    return kept, tuple(shrunken_factor(name, votes[name], priors[name]) for name in sorted(votes))


def _if_explained(
    lesson: MeasurementRatios, subject: Subject, calibration: Calibration
) -> MeasurementRatios:
    """The lesson; without what it teaches of the subject where no error explains that."""
    if subject not in lesson.taught:
        return lesson
    vote, prior = _vote([lesson], subject, calibration), _prior(lesson, subject, calibration)
    if is_explained(vote, prior):
        return lesson
    return lesson.without(subject, _too_far(vote, subject, prior))


def _by_step(
    lessons: Sequence[MeasurementRatios], subject: Subject
) -> dict[tuple[str, int | None], list[MeasurementRatios]]:
    """The lessons that teach of something, by the name of that and by step."""
    found: dict[tuple[str, int | None], list[MeasurementRatios]] = {}
    for lesson in lessons:
        if subject in lesson.taught:
            found.setdefault(_place(lesson, subject), []).append(lesson)
    return found


def _place(lesson: MeasurementRatios, subject: Subject) -> tuple[str, int | None]:
    return (seen_of(lesson).gpu.name if subject == "gpu" else lesson.cpu), lesson.step


def _vote(
    same: Sequence[MeasurementRatios], subject: Subject, calibration: Calibration
) -> StepRatio:
    """The vote of one step: the median of what was measured of it."""
    of_gpu = subject == "gpu"
    first, seen = same[0], seen_of(same[0])
    ratios = [one.gpu_ratio if of_gpu else one.host_ratio for one in same]
    logs = [math.log(ratio) for ratio in ratios if ratio is not None]
    noise = [_noise(seen_of(one), calibration) ** 2 for one in same]
    return StepRatio(
        log=statistics.median(logs),
        base=calibration.number("error_base")
        if of_gpu
        else _log_spread(calibration, "host_range_measured"),
        doubts=device_of(profile_of(first), seen, calibration).doubts if of_gpu else {},
        noise=math.sqrt(sum(noise)) / len(noise),
        model=profile_of(first).parameters,
        measurements=len(same),
    )


def _noise(seen: MeasuredStep, calibration: Calibration) -> float:
    """What a measurement itself may be off by: its mean, and what its power limit takes."""
    if seen.power_limit_w is None:
        return seen.error
    lost = 1 - speed_at_power_share(seen.power_limit_w / seen.gpu.tdp_w, calibration)
    return math.hypot(seen.error, calibration.number("power_loss_error") * lost)


def _prior(lesson: MeasurementRatios, subject: Subject, calibration: Calibration) -> float:
    if subject == "gpu":
        return gpu_error(seen_of(lesson).gpu, NOTHING_LEARNED, calibration)
    return _log_spread(calibration, "host_range")


def _log_spread(calibration: Calibration, name: str) -> float:
    """The standard deviation, in logarithms, of a range from the 10th to the 90th percentile."""
    found = calibration.estimate(name)
    return math.log(found.high / found.low) / (2 * PERCENTILE_90)


# Words


def _too_far(vote: StepRatio, subject: Subject, prior: float) -> str:
    off = BOUND * math.hypot(prior, vote.error)
    whose = "the GPU's" if subject == "gpu" else "the host's"
    return (
        f"it took {math.exp(vote.log):.2f} of what is predicted, and errors of {whose} figures and "
        f"of such a step explain {math.exp(-off):.2f} to {math.exp(off):.2f}: the reason is "
        "another (compiled code, a step that differs from its recording, a GPU that was shared)."
    )


def _bounded(one: LearnedFactor) -> str:
    return (
        f"{one.name}: your steps took {one.mean_ratio:.2f} of what is predicted; beyond "
        f"{one.factor:.2f} ({BOUND:.0f} times the error of {one.error_before:.0%}) it is not put "
        "down to it, and its error stays."
    )
