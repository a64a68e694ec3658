"""What a user's own measurements say of their GPUs and hosts, whatever they trained.

In: measurements, each with its name. Out: a `CalibrationReport`: a factor for each GPU and CPU with
the error that is left, and how each measurement was used. On the way there:

    MeasurementRatios   measured over predicted of each measurement, or why it says nothing;
                        one that no error explains is left out
    StepRatio           the median over repeats and batch sizes of one step, which counts once
    LearnedFactor       the weighted mean over the steps of a GPU or CPU, shrunk towards 1
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from outlay.measurement.measurement import Holder, Measurement
from outlay.predict.calibration import Calibration
from outlay.predict.correct import (
    Ratios,
    measured_device_time,
    normalized,
    ratios_of,
    weighted_mean,
)
from outlay.predict.evidence import (
    NOTHING_LEARNED,
    LearnedCalibration,
    LearnedFactor,
    MeasuredStep,
    gpu_error,
)
from outlay.predict.from_probe import measured_step_of
from outlay.predict.roofline import power_limit_error

Subject = Literal["gpu", "host"]
"""What a ratio says something of."""

_SAME_MODEL = 0.01
"""Parameters of one model may differ by this."""
_SAME_STEP = 0.05
"""Predicted times of one step at the same batch may differ by this: recorded at another batch, and
some operations that run now and then."""
_LEAST_BUSY = 0.5
"""Of a step: where kernels ran for less, the GPU was not what it waited for."""
_MOST_BUSY = 1.1
"""Of a step: kernels that took longer were not those of the timed steps."""
_PRIOR_STEPS = 2
# Assumes: until there are more, the scatter of a user's steps counts as if two had been measured
# with the errors that the calibration expects of them (a guess).
MOST_DEVIATIONS = 3.0
"""Standard deviations: what is further off has a reason that no error explains."""
_UNNAMED_CPU = "unnamed CPU"
_HOLDERS: dict[Holder, str] = {
    "input": "its input",
    "host": "its host",
    "network": "exchange between GPUs",
    "cpu": "its CPU",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """What was learned, from which measurements, and which say nothing."""

    calibration: LearnedCalibration
    entries: tuple[MeasurementRatios, ...] = ()
    """One for each measurement."""
    notes: tuple[str, ...] = ()


def calibration_report(
    measurements: Iterable[tuple[str, Measurement]], calibration: Calibration
) -> CalibrationReport:
    """What measurements, each with its name, say of the GPUs and hosts they were taken on."""
    entries = _with_step_numbers(_measurement_ratios(measurements, calibration), calibration)
    entries, gpus = _factors(entries, "gpu", calibration)
    entries, hosts = _factors(entries, "host", calibration)
    left_out = [f"{entry.name}: {entry.left_out}" for entry in entries if entry.left_out]
    bounded = [_bounded_note(factor) for factor in (*gpus, *hosts) if factor.is_bounded]
    return CalibrationReport(
        calibration=LearnedCalibration(gpus=gpus, host=mean_over_hosts(hosts), hosts=hosts),
        entries=tuple(entries),
        notes=(*left_out, *bounded),
    )


def _factors(
    entries: Sequence[MeasurementRatios], subject: Subject, calibration: Calibration
) -> tuple[list[MeasurementRatios], tuple[LearnedFactor, ...]]:
    """A factor for each GPU or CPU by name, and the entries without those that are too far off.

    Each is tested by itself, so that one spoiled repeat neither bends nor silences the others.
    """
    explained = [_if_explained(entry, subject, calibration) for entry in entries]
    steps: dict[str, list[StepRatio]] = {}
    priors: dict[str, float] = {}
    for (name, _), same in _by_step(explained, subject).items():
        steps.setdefault(name, []).append(_step_ratio(same, subject, calibration))
        priors[name] = _prior_error(same[0], subject, calibration)
    factors = tuple(shrunken_factor(name, steps[name], priors[name]) for name in sorted(steps))
    return explained, factors


def _if_explained(
    entry: MeasurementRatios, subject: Subject, calibration: Calibration
) -> MeasurementRatios:
    """The entry; without its use for a subject where no error explains its ratio."""
    if subject not in entry.used_for:
        return entry
    prior = _prior_error(entry.known, subject, calibration)
    step = _step_ratio([entry.known], subject, calibration)
    if is_explained(step, prior):
        return entry
    return entry.without(subject, _unexplained_text(step, subject, prior))


def _by_step(
    entries: Sequence[MeasurementRatios], subject: Subject
) -> dict[tuple[str, int | None], list[Ratios]]:
    """The ratios that are used for a subject, by its name and by step."""
    steps: dict[tuple[str, int | None], list[Ratios]] = {}
    for entry in entries:
        if subject in entry.used_for:
            name = entry.known.step.gpu.name if subject == "gpu" else entry.cpu
            steps.setdefault((name, entry.step), []).append(entry.known)
    return steps


# Measured over predicted, of each measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementRatios:
    """What one measurement says of its GPU and host, as measured over predicted."""

    name: str
    measurement: Measurement
    measured: MeasuredStep | None = None
    ratios: Ratios | None = None
    used_for: tuple[Subject, ...] = ()
    step: int | None = None
    """The number of its step: repeats and other batch sizes have the same one."""
    left_out: str | None = None
    """Why it says nothing, or nothing of its GPU."""

    @property
    def known(self) -> Ratios:
        """The ratios of one that is used for something."""
        assert self.ratios is not None
        return self.ratios

    @property
    def gpu_ratio(self) -> float | None:
        """Of its GPU, where it is known."""
        return self.ratios.device if self.ratios is not None and self.ratios.device_known else None

    @property
    def host_ratio(self) -> float | None:
        """Of its host, where it is known."""
        return self.ratios.host if self.ratios is not None and self.ratios.host_known else None

    @property
    def cpu(self) -> str:
        """The CPU that it ran on, by name."""
        return self.measurement.machine.cpu or _UNNAMED_CPU

    def without(self, subject: Subject, why: str) -> MeasurementRatios:
        """The entry without its use for one subject."""
        left_out = f"{self.left_out} {why}" if self.left_out else why
        used_for = tuple(other for other in self.used_for if other != subject)
        return replace(self, used_for=used_for, left_out=left_out)


def _measurement_ratios(
    measurements: Iterable[tuple[str, Measurement]], calibration: Calibration
) -> list[MeasurementRatios]:
    """An entry for each; one that was kept under two names is read once."""
    entries: list[MeasurementRatios] = []
    for name, measurement in measurements:
        twin = next((entry for entry in entries if entry.measurement == measurement), None)
        if twin is None:
            entries.append(_entry(name, measurement, calibration))
        else:
            why = f"the same measurement as {twin.name}, which counts."
            entries.append(MeasurementRatios(name=name, measurement=measurement, left_out=why))
    return entries


def _entry(name: str, measurement: Measurement, calibration: Calibration) -> MeasurementRatios:
    measured, notes = measured_step_of(measurement)
    entry = MeasurementRatios(name=name, measurement=measurement, measured=measured)
    if measured is None:
        return replace(entry, left_out=notes[0])
    if measurement.profile is None:
        return replace(entry, left_out="the step was recorded without operations.")
    ratios = ratios_of(measurement.profile, measured, NOTHING_LEARNED, calibration)
    if measurement.is_compiled:
        why = "its code was compiled, and predictions are of code that is not."
        return replace(entry, ratios=ratios, left_out=why)
    why_not_gpu = _why_not_gpu(ratios)
    used_for: list[Subject] = [] if why_not_gpu else ["gpu"]
    used_for += ["host"] if ratios.host_known else []
    return replace(entry, ratios=ratios, used_for=tuple(used_for), left_out=why_not_gpu)


def _why_not_gpu(ratios: Ratios) -> str | None:
    """Why a step says nothing of its GPU's own speed; None where it does."""
    step = ratios.step
    if step.busy_s is not None and step.busy_s > _MOST_BUSY * step.step_s:
        return (
            f"kernels took {1e3 * step.busy_s:.3g} ms in the profile, a step "
            f"{1e3 * step.step_s:.3g} ms: the profiled steps are not like the timed ones."
        )
    share = ratios.busy_s / step.step_s
    if step.holder not in (None, "gpu"):
        worked = f", the GPU worked {share:.0%} of the time" if ratios.device_known else ""
        return f"the step waited for {_HOLDERS[step.holder]}{worked}: it says little of the GPU."
    if not ratios.device_known:
        return "the time of its kernels was not measured."
    if share < _LEAST_BUSY:
        return f"the GPU worked {share:.0%} of a step: it says little of the GPU."
    return None


def _with_step_numbers(
    entries: Sequence[MeasurementRatios], calibration: Calibration
) -> list[MeasurementRatios]:
    """The entries, those that are used for something with the number of their step, from 1."""
    firsts: list[Ratios] = []
    numbered = []
    for entry in entries:
        if not entry.used_for:
            numbered.append(entry)
            continue
        same = [
            number
            for number, first in enumerate(firsts, 1)
            if _is_same_step(first, entry.known, calibration)
        ]
        firsts += [] if same else [entry.known]
        numbered.append(replace(entry, step=same[0] if same else len(firsts)))
    return numbered


def _is_same_step(first: Ratios, second: Ratios, calibration: Calibration) -> bool:
    """By parameters, and by the time predicted at the same batch on the same GPU."""
    parameters = first.profile.parameters
    if abs(parameters - second.profile.parameters) > _SAME_MODEL * parameters:
        return False
    times_s = [
        measured_device_time(ratios.profile, first.step, calibration).total_s
        for ratios in (first, second)
    ]
    return max(times_s) <= (1 + _SAME_STEP) * min(times_s)


# One ratio for each step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRatio:
    """Measured over predicted of one distinct step, and how far such a step is expected to be off.

    In logarithms; of repeats and other batch sizes of the step it is the median.
    """

    log_ratio: float
    base_error: float
    """What any step is off by; steps of one model share it."""
    kernel_errors: Mapping[str, float] = field(default_factory=dict)
    """What its kernels are off by, by family; steps share what they have of a family."""
    noise: float = 0.0
    """What the measurement itself may be off by."""
    parameters: int = 0
    """Of its model, by which models are told apart."""
    measurements: int = 1

    @property
    def error(self) -> float:
        """All of these together."""
        return math.hypot(self.base_error, self.noise, *self.kernel_errors.values())


def _step_ratio(same: Sequence[Ratios], subject: Subject, calibration: Calibration) -> StepRatio:
    """The ratio of one step: the median of what was measured of it."""
    profile, step = same[0].profile, same[0].step
    noise = [_noise(ratios.step, calibration) ** 2 for ratios in same]
    if subject == "gpu":
        logs = [math.log(ratios.device) for ratios in same]
        base_error = calibration.number("error_base")
        kernel_errors = measured_device_time(profile, step, calibration).kernel_errors
    else:
        logs = [math.log(ratios.host) for ratios in same]
        base_error = calibration.estimate("host_range_measured").log_deviation
        kernel_errors = {}
    return StepRatio(
        log_ratio=statistics.median(logs),
        base_error=base_error,
        kernel_errors=kernel_errors,
        noise=math.sqrt(sum(noise)) / len(noise),
        parameters=profile.parameters,
        measurements=len(same),
    )


def _noise(step: MeasuredStep, calibration: Calibration) -> float:
    """What a measurement itself may be off by: its mean, and what its power limit takes."""
    limit_error = power_limit_error(step.gpu, step.power_limit_w, calibration)
    return math.hypot(step.error, limit_error)


def _prior_error(ratios: Ratios, subject: Subject, calibration: Calibration) -> float:
    """What all steps on a GPU, or with a host, are expected to be off by."""
    if subject == "gpu":
        return gpu_error(ratios.step.gpu, NOTHING_LEARNED, calibration)
    return calibration.estimate("host_range").log_deviation


# The factor: a weighted mean, shrunk towards 1
#
# All steps on a GPU share what its figures are off by, expected to be as large as the calibration
# says (`prior`); every step is off by something of its own besides. In logarithms, with one ratio y
# for each distinct step, weights w = 1 / error² (adding up to 1), and C the covariances of what
# steps are off by:
#
#     mean      = Σ w y
#     variance  = scatter · Σ Σ w w C       scatter: as measured, never less than expected
#     shrinkage = prior² / (prior² + variance)
#     factor    = exp( shrinkage · mean ), at most 3 prior away from 1
#     error     = prior · √(1 − shrinkage)


def shrunken_factor(name: str, steps: Sequence[StepRatio], prior: float) -> LearnedFactor:
    """The factor that some steps make of a prior error, and the error that is left."""
    weights = normalized([step.error**-2 for step in steps])
    mean = weighted_mean(weights, [step.log_ratio for step in steps])
    variance = _scatter(steps, mean) * _variance_of_mean(steps, weights)
    shrinkage = prior**2 / (prior**2 + variance)
    shrunken, most = shrinkage * mean, MOST_DEVIATIONS * prior
    is_bounded = abs(shrunken) > most
    return LearnedFactor(
        name=name,
        measurements=sum(step.measurements for step in steps),
        steps=len(steps),
        mean_ratio=math.exp(mean),
        factor=math.exp(math.copysign(most, shrunken) if is_bounded else shrunken),
        error_before=prior,
        error=prior if is_bounded else prior * math.sqrt(1 - shrinkage),
        is_bounded=is_bounded,
    )


def is_explained(step: StepRatio, prior: float) -> bool:
    """Whether the errors of a GPU (or host) and of the step explain what is measured."""
    return abs(step.log_ratio) <= MOST_DEVIATIONS * math.hypot(prior, step.error)


def _scatter(steps: Sequence[StepRatio], mean: float) -> float:
    """How much more steps scatter than expected; 1 where a few agree by chance."""
    squares = sum(((step.log_ratio - mean) / step.error) ** 2 for step in steps)
    return max((_PRIOR_STEPS + squares) / (_PRIOR_STEPS + len(steps) - 1), 1.0)


def _variance_of_mean(steps: Sequence[StepRatio], weights: Sequence[float]) -> float:
    """Of the weighted mean; what steps share does not average out."""
    pairs = list(zip(steps, weights, strict=True))
    return sum(
        weight * other_weight * _covariance(step, other)
        for step, weight in pairs
        for other, other_weight in pairs
    )


def _covariance(step: StepRatio, other: StepRatio) -> float:
    if step is other:
        return step.error**2
    of_kernels = sum(
        error * other.kernel_errors.get(family, 0.0) for family, error in step.kernel_errors.items()
    )
    is_one_model = step.parameters == other.parameters
    return of_kernels + (step.base_error * other.base_error if is_one_model else 0.0)


def mean_over_hosts(hosts: Sequence[LearnedFactor]) -> LearnedFactor | None:
    """The host of a user's machines: the geometric mean over CPUs, each of them counted once.

    Its error is that of one of these machines, not knowing which: what is left of each, and how
    they differ.
    """
    if not hosts:
        return None
    logs = [math.log(host.factor) for host in hosts]
    mean = sum(logs) / len(logs)
    variances = [host.error**2 + (log - mean) ** 2 for host, log in zip(hosts, logs, strict=True)]
    return LearnedFactor(
        name="host",
        measurements=sum(host.measurements for host in hosts),
        steps=sum(host.steps for host in hosts),
        mean_ratio=math.exp(sum(math.log(host.mean_ratio) for host in hosts) / len(hosts)),
        factor=math.exp(mean),
        error_before=hosts[0].error_before,
        error=math.sqrt(sum(variances) / len(variances)),
    )


# Words


def _unexplained_text(step: StepRatio, subject: Subject, prior: float) -> str:
    most = MOST_DEVIATIONS * math.hypot(prior, step.error)
    whose = "the GPU's" if subject == "gpu" else "the host's"
    return (
        f"it took {math.exp(step.log_ratio):.2f} of what is predicted, and errors of {whose} "
        f"figures and of such a step explain {math.exp(-most):.2f} to {math.exp(most):.2f}: the "
        "reason is another (compiled code, a step that differs from its recording, a GPU that was "
        "shared)."
    )


def _bounded_note(factor: LearnedFactor) -> str:
    return (
        f"{factor.name}: your steps took {factor.mean_ratio:.2f} of what is predicted; beyond "
        f"{factor.factor:.2f} ({MOST_DEVIATIONS:.0f} times the error of "
        f"{factor.error_before:.0%}) it is not put down to it, and its error stays."
    )
