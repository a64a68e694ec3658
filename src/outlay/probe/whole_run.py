"""How long the whole run takes and what it costs, by what a probe of it saw."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.measurement.measurement import MeasuredPause, Measurement, StepTime
from outlay.uncertainty import Estimate, total
from outlay.units import HOUR_S

_TENTH_OF_INTERVAL = 1.2816 / 1.9600
"""From a 95 % interval to the 10th and 90th percentile of a normal distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """The whole run from its beginning, start-up, warm-up and pauses included."""

    steps: int
    time_s: Estimate
    usd: Estimate | None
    """None without a price."""
    pauses_s: Estimate
    """Of that time, pauses, as often as they were seen."""


def whole_run(measurement: Measurement, steps: int) -> WholeRun | None:
    """The run of so many steps; None where the probe has no step time."""
    if measurement.step is None:
        return None
    pauses_s = total(_pauses_s(measurement, pause, steps) for pause in measurement.pauses)
    time_s = total((_start_s(measurement), _steps_s(measurement, steps), pauses_s))
    price = measurement.price_usd_per_hour
    return WholeRun(
        steps=steps,
        time_s=time_s,
        usd=None if price is None else time_s.scaled(price / HOUR_S),
        pauses_s=pauses_s,
    )


def _start_s(measurement: Measurement) -> Estimate:
    """Start-up and warm-up: what they took here; steps of the warm-up are counted as such."""
    return Estimate.exactly((measurement.start_up_s or 0.0) + (measurement.warm_up_s or 0.0))


def _steps_s(measurement: Measurement, steps: int) -> Estimate:
    step = measurement.step
    assert step is not None
    return _mean_s(step).scaled(max(steps - step.warm_up_steps, 0))


def _mean_s(step: StepTime) -> Estimate:
    """The mean between its percentiles; without a steady state, between those of single steps."""
    if not step.is_steady:
        low_s, high_s = min(step.p10_s, step.mean_s), max(step.p90_s, step.mean_s)
        return Estimate(low=low_s, likely=step.mean_s, high=high_s)
    return Estimate(
        low=step.mean_s - (step.mean_s - step.low_s) * _TENTH_OF_INTERVAL,
        likely=step.mean_s,
        high=step.mean_s + (step.high_s - step.mean_s) * _TENTH_OF_INTERVAL,
    )


def _pauses_s(measurement: Measurement, pause: MeasuredPause, steps: int) -> Estimate:
    """Pauses of one kind in so many steps, as often as they were seen."""
    if not pause.times or not measurement.steps_seen:
        return Estimate.exactly(0.0)
    each_s = pause.total_s / pause.times
    return measurement.pauses_per_step(pause).scaled(each_s * steps)
