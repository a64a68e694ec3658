"""What lies between the steps of a measured run, as a plan of it takes it over, and in words.

Evaluations       forward samples, so that they take longer on a slower GPU
checkpoints       the measured time, and a disk's range around it
new epochs, stalls    the measured time, and a host's range around it
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass

from outlay.estimate import Estimate
from outlay.measurement import Measurement, Pause, PauseKind
from outlay.placing import calibration
from outlay.predict.compute import device_time
from outlay.predict.seen import seen_in
from outlay.predict.step import FORWARD_FRACTION, forward_fraction
from outlay.predict.traced import machine_at, trace_at

_NAMES: dict[PauseKind, str] = {
    "evaluation": "Evaluations",
    "checkpoint": "Checkpoints",
    "epoch start": "New epochs",
    "other": "Other pauses",
}
_TABLES: dict[PauseKind, str] = {"evaluation": "evaluation", "checkpoint": "checkpoint"}
"""Of a workload file; `[[pause]]` for all others."""
_LEAST_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """A kind of pause: how often it comes, and how long each took."""

    pause: Pause
    per_step: Estimate

    @property
    def every_steps(self) -> float:
        """From one to the next."""
        return max(1 / self.per_step.likely, 1.0)

    @property
    def each_s(self) -> float:
        """One of them."""
        return max(self.pause.total_s / self.pause.times, _LEAST_S)

    @property
    def is_counted(self) -> bool:
        """Whether only their number tells how often they come."""
        return self.per_step.low < self.per_step.high


def global_batch_size(measurement: Measurement) -> int | None:
    """Samples of one measured step, on all GPUs of all machines."""
    if measurement.samples_per_step is None:
        return None
    return max(round(measurement.samples_per_step * max(measurement.world_size, 1)), 1)


def carried_pauses(measurement: Measurement, said: Container[str] = ()) -> Iterator[Carried]:
    """The pauses of a run that a plan takes over; those apart whose tables are `said` already."""
    for pause in measurement.pauses:
        per_step = measurement.pauses_per_step(pause)
        if pause.times and per_step.likely > 0 and _TABLES.get(pause.kind, "pause") not in said:
            yield Carried(pause=pause, per_step=per_step)


# As tables of a workload file


def pause_lines(measurement: Measurement, said: Container[str] = ()) -> Iterator[str]:
    """The tables of a workload file for all of them that it has not."""
    for carried in carried_pauses(measurement, said):
        every = f'"{_counted(measurement, carried.every_steps)}"'
        if carried.pause.kind == "evaluation":
            samples = samples_in(measurement, carried.each_s)
            yield from ("[evaluation]", f"every = {every}")
            yield f'time = "{carried.each_s:.6f}s"' if samples is None else f"samples = {samples}"
        elif carried.pause.kind == "checkpoint":
            yield from ("[checkpoint]", f"interval = {every}", f'time = "{carried.each_s:.6f}s"')
        else:
            low_s, high_s = _on_any_host_s(carried)
            name = json.dumps(_NAMES[carried.pause.kind].lower())
            yield from ("[[pause]]", f"name = {name}", f"every = {every}")
            yield f'time = "{low_s:.6f}s..{high_s:.6f}s"'
        if carried.is_counted:
            low, likely, high = carried.per_step.low, carried.per_step.likely, carried.per_step.high
            yield f'times = "{low / likely:.6f}..{high / likely:.6f}"'


def _counted(measurement: Measurement, steps: float) -> str:
    """An interval in samples, as often on any number of GPUs; in steps where nothing told them."""
    batch = global_batch_size(measurement)
    return f"{steps:.3f} steps" if batch is None else f"{max(round(steps * batch), 1)} samples"


def _on_any_host_s(carried: Carried) -> tuple[float, float]:
    """Loaders start and stalls end as fast as the host is: hosts differ, to either side."""
    spread = calibration().estimate("host_range").high - 1
    return carried.each_s * (1 - spread), carried.each_s * (1 + spread)


def samples_in(measurement: Measurement, time_s: float) -> int | None:
    """Samples that go forward in such a time as a plan counts it, so that a slower GPU takes
    longer; None where no step tells.
    """
    step, samples = measurement.step, measurement.samples_per_step
    if step is None or samples is None:
        return None
    sample_s = step.mean_s / (samples * max(measurement.world_size, 1))
    return max(round(time_s / (sample_s * _forward_share(measurement))), 1)


def _forward_share(measurement: Measurement) -> float:
    """Of a step's time, as the plan has it on the measured GPU."""
    seen, _ = seen_in(measurement)
    if seen is None or measurement.profile is None:
        return FORWARD_FRACTION
    numbers = calibration()
    trace = trace_at(measurement.profile, seen.batch_size)
    return forward_fraction(device_time(trace, machine_at(seen.gpu, numbers), numbers))


# In words


def pause_words(measurement: Measurement, said: Container[str] = ()) -> Iterator[str]:
    """What a plan takes over of each kind, and how far to trust it."""
    for carried in carried_pauses(measurement, said):
        often, where = _often(measurement, carried), _where(measurement, carried)
        yield f"{_NAMES[carried.pause.kind]}: {often}, {carried.each_s:.2g} s each {where}"


def _often(measurement: Measurement, carried: Carried) -> str:
    every = round(carried.every_steps)
    often = f"every {every:,} steps" if every > 1 else "every step"
    if not carried.is_counted:
        return often
    seen = f"{carried.pause.times:,} seen in {measurement.steps_seen:,}"
    return f"about {often} ({seen}: the range has one more and one less)"


def _where(measurement: Measurement, carried: Carried) -> str:
    """On which machines they take as long, as the end of a sentence."""
    kind = carried.pause.kind
    seen, _ = seen_in(measurement)
    place = "where it was measured" if seen is None else f"on the measured {seen.gpu.name}"
    if kind == "checkpoint":
        return (
            f"{place} and likely elsewhere, as the probe saw them; disks differ, and the range has "
            "that. Their size was not seen: storing them is not counted."
        )
    if kind != "evaluation":
        return (
            f"{place} and likely elsewhere, as the probe saw them; hosts differ, and the range has "
            "that."
        )
    if samples_in(measurement, carried.each_s) is None:
        return f"{place}, and as long on every other, as the probe saw them."
    return f"{place}, shared by all GPUs of a run, as the probe saw them."
