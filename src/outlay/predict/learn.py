"""What a user's own measurements say of their GPUs and hosts, whatever they trained.

A GPU's figures are off by something that all steps share, expected to be as large as the
calibration says (`error_on_*`), and every step by something of its own. Measured over predicted of
n steps, with a spread s around their mean, tells the shared part (normal prior, normal likelihood):

    shrink = prior² / (prior² + s² / n)
    factor = exp( mean · shrink )
    error  = prior · √(1 − shrink)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outlay.chance import PERCENTILE_90
from outlay.hardware import Gpu
from outlay.measurement import Measurement
from outlay.predict.calibration import Calibration
from outlay.predict.carry import told_by
from outlay.predict.compute import device_time
from outlay.predict.experience import (
    NOTHING_LEARNED,
    OwnCalibration,
    OwnFactor,
    Seen,
    gpu_error,
)
from outlay.predict.joining import step_error
from outlay.predict.seen import seen_in
from outlay.predict.traced import machine_at, trace_at
from outlay.trace.trace import Profile

_WITHOUT_OPERATIONS = "the step was recorded without operations."
_PRIOR_SPREADS = 2
# Assumes: until there are more, the spread of a user's ratios counts as if two had been seen with
# the errors that the calibration expects of single steps (a guess).


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Measured over predicted of one step, and how far single steps are expected to be off."""

    measured_over_predicted: float
    expected_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What was learned, and which measurements say nothing."""

    calibration: OwnCalibration
    notes: tuple[str, ...]


def learned_from(
    measurements: Iterable[tuple[str, Measurement]], calibration: Calibration
) -> Learned:
    """What measurements, each with its name, say of the GPUs and hosts they were taken on."""
    by_gpu: dict[str, tuple[Gpu, list[Ratio]]] = {}
    hosts: list[Ratio] = []
    notes: list[str] = []
    for name, measurement in measurements:
        seen, said = seen_in(measurement)
        profile = measurement.profile
        if seen is None or profile is None:
            notes.append(f"{name}: {said[0] if seen is None else _WITHOUT_OPERATIONS}")
            continue
        told = told_by(profile, seen, NOTHING_LEARNED, calibration)
        if told.device_known:
            known = by_gpu.setdefault(seen.gpu.name, (seen.gpu, []))
            known[1].append(_ratio(told.device, _step_error(profile, seen, calibration)))
        if told.host_known:
            hosts.append(_ratio(told.host, _log_spread(calibration, "host_range_measured")))
        if not (told.device_known or told.host_known):
            notes.append(f"{name}: neither its GPU's nor its host's own time was measured.")
    return Learned(
        calibration=OwnCalibration(
            gpus=tuple(
                own_factor(name, ratios, gpu_error(gpu, NOTHING_LEARNED, calibration))
                for name, (gpu, ratios) in sorted(by_gpu.items())
            ),
            host=own_factor("host", hosts, _log_spread(calibration, "host_range"))
            if hosts
            else None,
        ),
        notes=tuple(notes),
    )


def _ratio(measured_over_predicted: float, expected_error: float) -> Ratio:
    return Ratio(measured_over_predicted=measured_over_predicted, expected_error=expected_error)


def _step_error(profile: Profile, seen: Seen, calibration: Calibration) -> float:
    trace = trace_at(profile, seen.batch_size)
    return step_error(
        device_time(trace, machine_at(seen.gpu, calibration), calibration), calibration
    )


def own_factor(name: str, ratios: Sequence[Ratio], prior: float) -> OwnFactor:
    """The factor that some ratios make of a prior error, and the error that is left."""
    logs = [math.log(ratio.measured_over_predicted) for ratio in ratios]
    mean = statistics.fmean(logs)
    variance = _spread(logs, [ratio.expected_error for ratio in ratios]) ** 2 / len(logs)
    shrink = prior**2 / (prior**2 + variance)
    return OwnFactor(
        name=name,
        measurements=len(logs),
        mean_ratio=math.exp(mean),
        factor=math.exp(mean * shrink),
        error_before=prior,
        error=prior * math.sqrt(1 - shrink),
    )


def _spread(logs: Sequence[float], expected: Sequence[float]) -> float:
    """How single steps scatter: as expected at first, then as seen."""
    mean = statistics.fmean(logs)
    seen = sum((one - mean) ** 2 for one in logs)
    before = _PRIOR_SPREADS * statistics.fmean(error**2 for error in expected)
    return math.sqrt((before + seen) / (_PRIOR_SPREADS + len(logs) - 1))


def _log_spread(calibration: Calibration, name: str) -> float:
    """The standard deviation, in logarithms, of a range from the 10th to the 90th percentile."""
    found = calibration.estimate(name)
    return math.log(found.high / found.low) / (2 * PERCENTILE_90)
