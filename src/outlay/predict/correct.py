"""The correction that measured steps make of a prediction: on their own GPU, and on others.

In: the `Evidence`, the step that is predicted (`CorrectionRequest`), and its uncorrected time on
the device. Out: its `Correction`, with notes. On the way there:

    Ratios              each measured step over its prediction, of the device and of the host
    PooledRatio         all of one GPU: their weighted mean at the batch that is predicted
    TransferredRatio    all GPUs: the best linear unbiased estimate for the predicted one (kriging)

On another GPU a measured ratio holds as far as both predictions are wrong together: in the step, in
kernels that run on both, and in what all GPUs share. An RTX 3090 says little of an H100, which is
known better than it, and plain fp32 on a V100 little of TF32. What several measurements share does
not average out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from outlay.caching import ById
from outlay.hardware.gpus import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.evidence import (
    MEASURED,
    PREDICTED,
    Configuration,
    Correction,
    Evidence,
    InputLimit,
    LearnedCalibration,
    MeasuredStep,
    gpu_error,
    input_limit_note,
)
from outlay.predict.host_time import REFERENCE_HOST, Host, host_time_s
from outlay.predict.kernel_time import DeviceTime, device_time
from outlay.predict.roofline import (
    power_limit_error,
    power_limit_speed,
    roofline_of,
    trace_at,
)
from outlay.trace.profile import Profile
from outlay.uncertainty import PERCENTILE_90, Array, Estimate

_SAME_BATCH = math.log(1.1)
"""Batch sizes this near say about as much of each other as the same ratio."""
_FAR_BATCH = math.log(4)
"""Batch sizes this far apart, or further, say equally little of each other."""
_WORTH_NAMING = 0.1
"""Of the largest weight: measurements with less are not named as a source."""
_WORTH_SAYING = math.log(1.1)
_EXPLAINED = 3.0
"""Standard errors: what is off by more has a reason that the model does not know."""
_LEAST = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionRequest:
    """The step a correction is for: where, how many samples a GPU, and how."""

    gpu: Gpu
    batch_size: int
    gpus: int = 1
    nodes: int = 1
    power_limit_w: float | None = None
    as_measured: bool = True
    """Whether it is run as it was measured: precision, passes, whole GPUs."""
    host: Host = REFERENCE_HOST

    @property
    def configuration(self) -> Configuration:
        """Where it runs."""
        return self.gpu.name, self.batch_size, self.gpus, self.nodes, self.power_limit_w

    def is_measured_by(self, step: MeasuredStep) -> bool:
        """Whether it is the very step that was measured."""
        return self.as_measured and step.configuration == self.configuration


def correction_at(
    evidence: Evidence,
    profile: Profile,
    request: CorrectionRequest,
    device: DeviceTime,
    calibration: Calibration,
) -> Correction:
    """The correction of one prediction, whose uncorrected device time is `device`."""
    learned = evidence.learned
    gpu_factor, learned_notes = learned.gpu_factor(request.gpu), _learned_notes(learned, request)
    if not evidence.measured:
        return Correction(
            device_factor=gpu_factor, host_factor=learned.host_factor, notes=learned_notes
        )
    ratios = [
        ratios_of(profile, step, learned, calibration, request.host) for step in evidence.measured
    ]
    errors = ErrorCovariance(device=device, learned=learned, calibration=calibration)
    of_device = _device_correction(ratios, request, errors)
    return Correction(
        device_factor=gpu_factor * of_device.factor,
        gap_s=of_device.gap_s,
        error=of_device.error,
        host_factor=learned.host_factor * _host_factor(ratios, request),
        host_known=any(ratio.host_known and ratio.step.gpu == request.gpu for ratio in ratios),
        input_limit=_input_limit(ratios, request),
        measured_s=_measured_s(evidence.measured, request, calibration),
        time_from=_time_from(evidence.measured, of_device.sources, request),
        notes=(
            *learned_notes,
            *of_device.notes,
            *_host_notes(ratios, request),
            *_input_notes(ratios, request, calibration),
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _DeviceCorrection:
    factor: float
    gap_s: float = 0.0
    error: float | None = None
    sources: tuple[MeasuredStep, ...] = ()
    notes: tuple[str, ...] = ()


def _device_correction(
    ratios: Sequence[Ratios], request: CorrectionRequest, errors: ErrorCovariance
) -> _DeviceCorrection:
    """The device's factor on a GPU, from measurements on it or else on others.

    Where the very step was measured, from those of it alone, as its time is.
    """
    known = [ratio for ratio in ratios if ratio.device_known]
    itself = [ratio for ratio in known if request.is_measured_by(ratio.step)]
    here = itself or [ratio for ratio in known if ratio.step.gpu.name == request.gpu.name]
    pooled = pooled_ratios(here or known, request.batch_size, errors.device, errors.calibration)
    if not pooled:
        return _DeviceCorrection(factor=min((ratio.device for ratio in ratios), default=1.0))
    estimate = errors.transferred(pooled, request.gpu)
    factor = math.exp(estimate.log_ratio)
    device_s = errors.device.total_s * errors.learned.gpu_factor(request.gpu) * factor
    return _DeviceCorrection(
        factor=factor,
        gap_s=float(estimate.shares @ np.array([pool.left_gap_s(device_s) for pool in pooled])),
        error=estimate.error,
        sources=tuple(step for pool in pooled for step in pool.steps),
        notes=_transfer_notes(pooled, estimate),
    )


def _host_factor(ratios: Sequence[Ratios], request: CorrectionRequest) -> float:
    """The geometric mean of steps that waited for their host, or the tightest bound of others.

    A bound says nothing of another host, whose speed is given.
    """
    logs = [math.log(ratio.host) for ratio in ratios if ratio.host_known]
    if logs:
        return math.exp(sum(logs) / len(logs))
    return 1.0 if request.host.measured else min(ratio.host for ratio in ratios)


def _input_limit(ratios: Sequence[Ratios], request: CorrectionRequest) -> InputLimit | None:
    """The fastest that a measured machine's input was, where it held a step back."""
    limits = [
        InputLimit(
            samples_per_s=ratio.input_samples_per_s,
            gpus=ratio.step.gpus,
            busy_threads=ratio.step.busy_threads,
            cpu_threads=ratio.step.cpu_threads,
            is_same_gpu=ratio.step.gpu == request.gpu,
        )
        for ratio in ratios
        if ratio.input_samples_per_s is not None
    ]
    return max(limits, key=lambda limit: limit.samples_per_s, default=None)


def _measured_s(
    steps: Sequence[MeasuredStep], request: CorrectionRequest, calibration: Calibration
) -> Estimate | None:
    """The step that is predicted, where it was measured; the weighted mean of several."""
    same = [step for step in steps if request.is_measured_by(step)]
    if not same:
        return None
    repeats = calibration.number("error_of_repeats")
    ranges = [Estimate.log_normal(step.step_s, math.hypot(repeats, step.error)) for step in same]
    weights = [1 / measurement_variance(step, calibration) for step in same]
    return Estimate(
        low=min(each.low for each in ranges),
        likely=statistics.fmean([step.step_s for step in same], weights)
        if same[1:]
        else ranges[0].likely,
        high=max(each.high for each in ranges),
    )


# Ratios: one measured step over its prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Measured over predicted, of the device and of the host, and which of them is known.

    What did not hold the step back cannot have taken longer than it: its ratio is an upper bound.
    """

    profile: Profile
    """What was predicted."""
    step: MeasuredStep
    device: float
    device_known: bool
    busy_s: float
    """What kernels took, or at most the whole step."""
    gap_s: float
    """What a step takes beside its kernels, where the GPU held it back."""
    host: float
    host_known: bool
    input_samples_per_s: float | None
    """What its input delivered to each GPU, where that held it back."""
    kernel_errors: Mapping[str, float] = field(default_factory=dict)
    """Of the prediction on the measured GPU, by family of kernels."""


def ratios_of(
    profile: Profile,
    step: MeasuredStep,
    learned: LearnedCalibration,
    calibration: Calibration,
    host: Host = REFERENCE_HOST,
) -> Ratios:
    """A measured step over its prediction at the same batch on the same GPU; worked out once."""
    return _ratios_of(ById(profile), step, ById(learned), ById(calibration), host)


@lru_cache(maxsize=4096)
def _ratios_of(
    profile: ById[Profile],
    step: MeasuredStep,
    learned: ById[LearnedCalibration],
    calibration: ById[Calibration],
    host: Host,
) -> Ratios:
    predicted = measured_device_time(profile.value, step, calibration.value)
    device_s = (
        predicted.total_s
        * learned.value.gpu_factor(step.gpu)
        / power_limit_speed(step.gpu, step.power_limit_w, calibration.value)
    )
    trace = trace_at(profile.value, step.batch_size)
    host_s = host_time_s(trace, calibration.value, host) * learned.value.host_factor
    holder = step.holder or ("host" if host_s > device_s else "gpu")
    busy_s = None if step.busy_s is None else min(step.busy_s, step.step_s)
    by_gpu = holder == "gpu" and step.gpus * step.nodes == 1
    if busy_s is None and by_gpu:
        busy_s = step.step_s
    by_host = holder == "host"
    return Ratios(
        profile=profile.value,
        step=step,
        device=min(step.step_s / device_s, 1.0) if busy_s is None else busy_s / device_s,
        device_known=busy_s is not None,
        busy_s=step.step_s if busy_s is None else busy_s,
        gap_s=step.step_s - busy_s if by_gpu and busy_s is not None else 0.0,
        host=step.step_s / host_s if by_host else min(step.step_s / host_s, 1.0),
        host_known=by_host,
        input_samples_per_s=step.batch_size / step.step_s if holder == "input" else None,
        kernel_errors=predicted.kernel_errors,
    )


def measured_device_time(
    profile: Profile, step: MeasuredStep, calibration: Calibration
) -> DeviceTime:
    """The device's time as predicted at a measurement's batch on its GPU, without a limit."""
    trace = trace_at(profile, step.batch_size)
    return device_time(trace, roofline_of(step.gpu, calibration), calibration)


# The pooled mean: all ratios of one GPU as one, at the batch that is predicted
#
# Each counts by how near its batch is and by how well it is known itself:
#
#     weight = 1 / ( (log 1.1)² + log(batch / predicted batch)² ) / its own variance
#     ratio  = Σ weight · measured / predicted                  weights add up to 1
#     error² = max( Σ weight · variance, Σ weight · log(one ratio / ratio)² )
#
# Nothing averages out of what each may be off by, and where they scatter by more than that, so
# much is open.


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledRatio:
    """What all measurements on one GPU say together of its kernels."""

    steps: tuple[MeasuredStep, ...]
    """Those that count for something, by batch size."""
    ratio: float
    """Measured over predicted."""
    busy_s: float
    gap_s: float
    error: float
    """What `ratio` may be off by, relative: each one's own error, or their scatter."""
    kernel_errors: Mapping[str, float]
    """Of the prediction that counts most, by family of kernels."""

    @property
    def gpu(self) -> Gpu:
        """Where they were taken."""
        return self.steps[0].gpu

    def left_gap_s(self, device_s: float) -> float:
        """What is left of pauses: kernels that take longer fill them, since the host goes on."""
        return max(self.gap_s - max(device_s - self.busy_s, 0.0), 0.0)


def pooled_ratios(
    ratios: Sequence[Ratios], batch_size: int, device: DeviceTime, calibration: Calibration
) -> list[PooledRatio]:
    """One for each GPU, in the order they were given in; within a GPU no order matters."""
    by_gpu: dict[str, list[Ratios]] = {}
    for ratio in ratios:
        by_gpu.setdefault(ratio.step.gpu.name, []).append(ratio)
    return [
        _pooled(sorted(same, key=_order), batch_size, device, calibration)
        for same in by_gpu.values()
    ]


def _pooled(
    ratios: Sequence[Ratios], batch_size: int, device: DeviceTime, calibration: Calibration
) -> PooledRatio:
    weights = normalized([_batch_weight(ratio.step, batch_size, calibration) for ratio in ratios])
    mean = weighted_mean(weights, [ratio.device for ratio in ratios])
    variances = [_variance_at(ratio.step, batch_size, device, calibration) for ratio in ratios]
    squares = [math.log(ratio.device / mean) ** 2 for ratio in ratios]
    return PooledRatio(
        steps=tuple(
            ratio.step
            for weight, ratio in zip(weights, ratios, strict=True)
            if weight >= _WORTH_NAMING * max(weights)
        ),
        ratio=mean,
        busy_s=weighted_mean(weights, [ratio.busy_s for ratio in ratios]),
        gap_s=weighted_mean(weights, [ratio.gap_s for ratio in ratios]),
        error=math.sqrt(max(weighted_mean(weights, variances), weighted_mean(weights, squares))),
        kernel_errors=ratios[weights.index(max(weights))].kernel_errors,
    )


def _order(ratios: Ratios) -> tuple[float, ...]:
    step = ratios.step
    return step.batch_size, step.gpus * step.nodes, step.step_s, ratios.busy_s, step.error


def _batch_weight(step: MeasuredStep, batch_size: int, calibration: Calibration) -> float:
    """How much one counts: no jump in the middle of two, and the nearest by far where it is."""
    nearness = 1 / (_SAME_BATCH**2 + _batch_distance(step, batch_size) ** 2)
    return nearness / measurement_variance(step, calibration)


def _batch_distance(step: MeasuredStep, batch_size: int) -> float:
    return abs(math.log(max(batch_size, 1) / step.batch_size))


def measurement_variance(step: MeasuredStep, calibration: Calibration) -> float:
    """What a measurement itself is off by at its own batch: how steps repeat, and its limit."""
    limit_error = power_limit_error(step.gpu, step.power_limit_w, calibration)
    repeats = calibration.number("error_of_repeats")
    return repeats**2 + step.error**2 + limit_error**2 + _LEAST**2


def _variance_at(
    step: MeasuredStep, batch_size: int, device: DeviceTime, calibration: Calibration
) -> float:
    """What a measurement may be off by at another batch: so much more of the step's own error."""
    distance = min(_batch_distance(step, batch_size) / _FAR_BATCH, 1.0)
    of_batch = (
        calibration.number("step_error_between_batches")
        * distance
        * step_error(device, calibration)
    )
    return measurement_variance(step, calibration) + float(of_batch) ** 2


def normalized(weights: Sequence[float]) -> list[float]:
    """Weights as shares, which add up to 1."""
    return [weight / sum(weights) for weight in weights]


def weighted_mean(weights: Sequence[float], values: Sequence[float]) -> float:
    """The mean of values by weights that add up to 1."""
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


# The transfer: what ratios on some GPUs say of another (simple kriging)
#
# How far predictions of one step are off on different GPUs is partly the step's own and the same
# everywhere, partly its kernels', partly each GPU's. With the logarithms y of the ratios on the
# measured GPUs, C their covariances, c those with the predicted GPU and σ² its variance, the best
# linear unbiased estimate (errors have mean 0) and its variance are
#
#     y₀ = Σ λ y      λ = C⁻¹ c, none below 0, their sum at most 1
#     s² = σ² − 2 λ·c + λᵀ C λ
#
# Two errors go together in three parts (e: error of a family of kernels, h: of the hardware):
#
#     covariance = step² + (1 − between²/2) Σ e e' + correlation · min(h, h')²
#
# The error of a family that runs on one of them alone is not shared, and of a GPU that is known
# badly only as much as the other one is off by: what it has beyond that is its own.


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredRatio:
    """What measurements on some GPUs say of the ratio on another, in logarithms."""

    shares: Array
    """Of each measured GPU in it."""
    log_ratio: float
    error: float
    """What is left of the prediction's."""
    unexplained: float = 0.0
    """How much of what was measured no error of the predictions explains, as an amount."""
    disagreement: float = 0.0
    """Standard deviation of the GPUs' own parts, beyond what their errors let expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCovariance:
    """Variances and covariances of the errors of one step on different GPUs, in logarithms.

    Variances are those of a prediction alone. Of the error of a measured GPU only that of the
    hardware counts (`error_of_hardware_...`, where a row says so): the software it was measured
    with is the user's own.
    """

    device: DeviceTime
    """What is predicted, on its own GPU."""
    learned: LearnedCalibration
    calibration: Calibration

    def transferred(self, pooled: Sequence[PooledRatio], target: Gpu) -> TransferredRatio:
        """The best linear unbiased estimate of a GPU's ratio; its own, where that was measured.

        A ratio further off than its errors let expect is another step than was traced, everywhere,
        or a library that chose badly (or other kernels) on that GPU alone: of what no error
        explains half is taken, and the range goes from none to all of it. What all of several
        measured GPUs have of it is taken as it is. Where they differ by more than their errors,
        another one may as well.
        """
        if pooled[0].gpu.name == target.name:
            log_ratio, error = math.log(pooled[0].ratio), pooled[0].error
            return TransferredRatio(shares=np.ones(1), log_ratio=log_ratio, error=error)
        logs: Array = np.log([pool.ratio for pool in pooled])
        joint = np.array([[self._covariance(pool, other) for other in pooled] for pool in pooled])
        joint += np.diag(np.square([pool.error for pool in pooled]))
        shared = np.array([self._shared(pool, target) for pool in pooled])
        weights = kriging_weights(joint, shared) * self.calibration.number("transfer_gain")
        shares = weights / weights.sum()
        scatter = float(shares @ np.square(logs - shares @ logs))
        expected = float(shares @ np.diag(joint) - shares @ joint @ shares)
        excess = max(scatter - expected, 0.0)
        variance = self._variance(target) - 2 * weights @ shared + weights @ joint @ weights
        most = _EXPLAINED * np.sqrt(np.diag(joint))
        explained: Array = np.clip(logs, -most, most)
        beyond = logs - explained
        common = _common(beyond)
        unexplained = float(shares @ beyond) - common
        return TransferredRatio(
            shares=shares,
            log_ratio=float(weights @ explained) + common + unexplained / 2,
            error=math.sqrt(max(float(variance), _LEAST) + excess)
            + abs(unexplained) / 2 / PERCENTILE_90,
            unexplained=abs(unexplained),
            disagreement=math.sqrt(excess),
        )

    def _covariance(self, pool: PooledRatio, other: PooledRatio) -> float:
        if pool is other:
            of_kernels = sum(error**2 for error in pool.kernel_errors.values())
            return self._of_step() + of_kernels + self._hardware_error(pool.gpu) ** 2
        return self._between(pool.gpu, pool.kernel_errors, other.gpu, other.kernel_errors)

    def _shared(self, pool: PooledRatio, target: Gpu) -> float:
        return self._between(pool.gpu, pool.kernel_errors, target, self.device.kernel_errors)

    def _between(
        self, gpu: Gpu, errors: Mapping[str, float], other: Gpu, other_errors: Mapping[str, float]
    ) -> float:
        of_kernels = 1 - self.calibration.number("kernel_error_between_gpus") ** 2 / 2
        kernels = sum(error * other_errors.get(name, 0.0) for name, error in errors.items())
        of_gpus = min(self._hardware_error(gpu), self._hardware_error(other)) ** 2
        alike = gpu.architecture == other.architecture
        row = "gpu_error_correlation" + ("_within_architecture" if alike else "")
        return self._of_step() + of_kernels * kernels + self.calibration.number(row) * of_gpus

    def _of_step(self) -> float:
        return self.calibration.number("error_base") ** 2

    def _variance(self, gpu: Gpu) -> float:
        of_gpu = gpu_error(gpu, self.learned, self.calibration)
        return step_error(self.device, self.calibration) ** 2 + of_gpu**2

    def _hardware_error(self, gpu: Gpu) -> float:
        row = f"error_of_hardware_{gpu.architecture}"
        return min(
            gpu_error(gpu, self.learned, self.calibration),
            self.calibration.first(row, f"error_on_{gpu.architecture}", "error_on_others"),
        )


def _common(amounts: Array) -> float:
    """What all of several amounts have; nothing where they differ in sign, or of one alone."""
    if len(amounts) == 1:
        return 0.0
    least, most = float(amounts.min()), float(amounts.max())
    return max(least, 0.0) + min(most, 0.0)


def kriging_weights(joint: Array, shared: Array) -> Array:
    """λ = C⁻¹ c, their sum at most 1; what would count against itself (below 0) is left out."""
    kept = list(range(len(shared)))
    while True:
        solution = np.linalg.solve(joint[np.ix_(kept, kept)], shared[kept])
        if solution.min() >= 0:
            break
        del kept[int(solution.argmin())]
    weights = np.zeros(len(shared))
    weights[kept] = solution / max(float(solution.sum()), 1.0)
    return weights


def step_error(device: DeviceTime, calibration: Calibration) -> float:
    """What a step is expected to be off by on any GPU: what all have, and its own kernels' part."""
    return math.hypot(calibration.number("error_base"), device.kernel_error)


# Words


def _time_from(
    steps: Sequence[MeasuredStep], sources: Sequence[MeasuredStep], request: CorrectionRequest
) -> str:
    if any(request.is_measured_by(step) for step in steps):
        return MEASURED
    if not sources:
        return PREDICTED
    names = dict.fromkeys(_source_name(step, request) for step in sources)
    return f"carried over from {' and '.join(names)}"


def _source_name(step: MeasuredStep, request: CorrectionRequest) -> str:
    """The measured GPU; of the very one that is predicted, what was different there."""
    name = step.gpu.name
    if name != request.gpu.name:
        return name
    batch = f"batch {step.batch_size} on " if step.batch_size != request.batch_size else ""
    is_elsewhere = (step.gpus, step.nodes) != (request.gpus, request.nodes)
    is_other_limit = step.power_limit_w != request.power_limit_w
    limit = f" at {step.power_limit_w or step.gpu.tdp_w:.0f} W" if is_other_limit else ""
    if not (batch or is_elsewhere or limit):
        return f"{name} in another precision or share"
    return f"{batch}{_gpus_text(step) if is_elsewhere else name}{limit}"


def _gpus_text(step: MeasuredStep) -> str:
    """`one H200`, `8x H200`, `2 machines of 8x H200`."""
    several = step.gpus * step.nodes > 1
    each = f"{step.gpus}x {step.gpu.name}" if several else f"one {step.gpu.name}"
    return f"{step.nodes} machines of {each}" if step.nodes > 1 else each


def _learned_notes(learned: LearnedCalibration, request: CorrectionRequest) -> tuple[str, ...]:
    factor = learned.of(request.gpu)
    if factor is None:
        return ()
    plural = "s" if factor.measurements > 1 else ""
    return (f"With your own {factor.measurements} measurement{plural} on {factor.name}.",)


def _transfer_notes(pooled: Sequence[PooledRatio], estimate: TransferredRatio) -> tuple[str, ...]:
    slowest = max(pooled, key=lambda pool: pool.ratio)
    furthest = max(pooled, key=lambda pool: abs(math.log(pool.ratio)))
    if estimate.disagreement >= _WORTH_SAYING:
        fastest = min(pooled, key=lambda pool: pool.ratio)
        note = (
            f"The measured GPUs do not agree: the step took {fastest.ratio:.2g} times what is "
            f"predicted on {fastest.gpu.name}, {slowest.ratio:.2g} times on {slowest.gpu.name}; "
            "the range has that."
        )
        return (note,)
    if estimate.unexplained < _WORTH_SAYING:
        return ()
    note = (
        f"The measured step took {furthest.ratio:.2g} times what is predicted on "
        f"{furthest.gpu.name}: "
        "either it does so on every GPU, or a library's choice there alone is the reason; the "
        "range has both."
    )
    return (note,)


def _host_notes(ratios: Sequence[Ratios], request: CorrectionRequest) -> tuple[str, ...]:
    waited = [ratio.step for ratio in ratios if ratio.host_known]
    if not waited or any(step.gpu == request.gpu for step in waited):
        return ()
    note = (
        "Its host held the measured step back: that is the measured machine's CPU; others differ "
        "by up to a factor of two, and the range has that."
    )
    return (note,)


def _input_notes(
    ratios: Sequence[Ratios], request: CorrectionRequest, calibration: Calibration
) -> tuple[str, ...]:
    waited = [ratio.step for ratio in ratios if ratio.input_samples_per_s is not None]
    limit = _input_limit(ratios, request)
    if limit is None or any(request.is_measured_by(step) for step in waited):
        return ()
    is_known = any(ratio.device_known for ratio in ratios)
    unknown = "" if is_known else " What the GPU itself takes was not measured."
    return (input_limit_note(limit, request.gpus, calibration) + unknown,)
