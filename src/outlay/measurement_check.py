"""Figures of a measurement that no probe can have seen.

Files are edited, cut off and made by others; a figure that is plainly wrong would go into every
prediction made of it. The ranges are wide: they keep out what cannot be, not what is unusual.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from outlay.measurement import Measurement, StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What a figure may be, both ends included; `above` is an end that is not."""

    low: float | None = None
    above: float | None = None
    high: float
    words: str

    def holds(self, value: float) -> bool:
        """Whether a value is within it; what is no number is not."""
        low = -math.inf if self.low is None else self.low
        above = -math.inf if self.above is None else self.above
        return low <= value <= self.high and value > above and math.isfinite(value)


STEP_S = Range(low=1e-6, high=10 * 86_400.0, words="between 1 microsecond and 10 days")
"""An optimizer's step takes microseconds to issue; one of days would never be probed."""
SAMPLES = Range(above=0, high=1e9, words="above 0 and at most 1,000,000,000")
"""A mean over batches that differ, so that it need not be whole; as many as a workload may have."""
PASSES = Range(above=0, high=1e6, words="above 0 and at most 1,000,000")
POWER_LIMIT_W = Range(above=0, high=1e5, words="above 0 and at most 100,000 W")
COUNTED = Range(low=1, high=1e15, words="1 or more")
MOST_IN_A_PASS = 1_000_000
"""What an option may give: a thousand such passes are within `SAMPLES`."""
MOST_STEPS = 10**12
HIGHEST_PRICE_USD = 1e6
"""An hour, of all machines a run has; what such a run costs in years is still within range."""
_BUSY_S = Range(above=0, high=STEP_S.high, words="above 0 and at most 10 days")
_WITHIN_STEP_S = Range(low=0, high=STEP_S.high, words="between 0 and 10 days")
_AMOUNT = Range(low=0, high=1e18, words="0 or more, and no more than 1e18")
_ANY = Range(high=math.inf, words="a finite number")
_RANGES = {
    "step.mean_s": STEP_S,
    "step.median_s": STEP_S,
    "step.low_s": _WITHIN_STEP_S,
    "step.high_s": _WITHIN_STEP_S,
    "step.p10_s": _WITHIN_STEP_S,
    "step.p90_s": _WITHIN_STEP_S,
    "step.steps": COUNTED,
    "samples_per_step": SAMPLES,
    "mean_samples_per_step": SAMPLES,
    "passes_per_step": PASSES,
    "busy_s": _BUSY_S,
    "machine.gpus.power_limit_w": POWER_LIMIT_W,
    # below zero where that is nothing odd: a signal, a loss, frost, a clock just before the start
    "status": _ANY,
    "losses": _ANY,
    "step_times": _ANY,
    "pauses.spans": _ANY,
    "samples.time_s": _ANY,
    "samples.temperature_c": _ANY,
}


def what_is_odd(measurement: Measurement) -> str | None:
    """The first figure that cannot be, by its key and with its value; None where all can be."""
    plain = asdict(replace(measurement, profile=None))
    for key, value in _numbers(plain):
        allowed = _RANGES.get(_without_places(key), _AMOUNT)
        if not allowed.holds(value):
            return f"{key} is {value:g}, and should be {allowed.words}."
    return None if measurement.step is None else _disorder(measurement.step)


def _disorder(step: StepTime) -> str | None:
    """What is wrong with a mean outside of its own interval."""
    if step.low_s <= step.mean_s <= step.high_s:
        return None
    return (
        f"step.mean_s is {step.mean_s:g}, and should be between step.low_s, {step.low_s:g}, and "
        f"step.high_s, {step.high_s:g}."
    )


def _numbers(part: object, key: str = "") -> Iterator[tuple[str, float]]:
    """Every number in plain values, by its key: `machine.gpus.0.memory_bytes`."""
    if isinstance(part, Mapping):
        for name, inner in part.items():
            yield from _numbers(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(part, Sequence) and not isinstance(part, str):
        for place, inner in enumerate(part):
            yield from _numbers(inner, f"{key}.{place}")
    elif isinstance(part, int | float) and not isinstance(part, bool):
        yield key, part


def _without_places(key: str) -> str:
    return ".".join(name for name in key.split(".") if not name.isdecimal())
