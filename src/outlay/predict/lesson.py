"""What one measurement says of its GPU and host, and which measurements are of one step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from outlay.measurement import Holder, Measurement
from outlay.predict.calibration import Calibration
from outlay.predict.compute import DeviceTime, device_time
from outlay.predict.experience import NOTHING_LEARNED, Seen
from outlay.predict.seen import seen_in
from outlay.predict.told import Told, told_by
from outlay.predict.traced import machine_at, trace_at
from outlay.trace.trace import Profile

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
class Lesson:
    """What one measurement says of its GPU and host, as measured over predicted."""

    name: str
    measurement: Measurement
    seen: Seen | None = None
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

    def without(self, subject: Subject, why: str) -> Lesson:
        """The lesson without one of the things it could have taught."""
        said = f"{self.left_out} {why}" if self.left_out else why
        left = tuple(one for one in self.taught if one != subject)
        return replace(self, taught=left, left_out=said)


def lessons_of(
    measurements: Iterable[tuple[str, Measurement]], calibration: Calibration
) -> list[Lesson]:
    """A lesson of each; one that was kept under two names is read once."""
    lessons: list[Lesson] = []
    for name, measurement in measurements:
        twin = next((one for one in lessons if one.measurement == measurement), None)
        if twin is None:
            lessons.append(_lesson(name, measurement, calibration))
        else:
            why = f"the same measurement as {twin.name}, which counts."
            lessons.append(Lesson(name=name, measurement=measurement, left_out=why))
    return lessons


def _lesson(name: str, measurement: Measurement, calibration: Calibration) -> Lesson:
    plain = Lesson(name=name, measurement=measurement)
    seen, said = seen_in(measurement)
    profile = measurement.profile
    if seen is None:
        return replace(plain, left_out=said[0])
    if profile is None:
        return replace(plain, seen=seen, left_out="the step was recorded without operations.")
    told = told_by(profile, seen, NOTHING_LEARNED, calibration)
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


def _why_not_gpu(told: Told, seen: Seen) -> str | None:
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


def numbered(lessons: Sequence[Lesson], calibration: Calibration) -> list[Lesson]:
    """The lessons that teach something, each with the number of its step, from 1."""
    firsts: list[Lesson] = []
    found = []
    for lesson in lessons:
        if not lesson.taught:
            found.append(lesson)
            continue
        same = [n for n, one in enumerate(firsts, 1) if _is_same_step(one, lesson, calibration)]
        firsts += [] if same else [lesson]
        found.append(replace(lesson, step=same[0] if same else len(firsts)))
    return found


def _is_same_step(one: Lesson, other: Lesson, calibration: Calibration) -> bool:
    """By parameters, and by the time predicted at the same batch on the same GPU."""
    first, second = profile_of(one), profile_of(other)
    if abs(first.parameters - second.parameters) > _SAME_MODEL * first.parameters:
        return False
    times_s = [device_of(profile, seen_of(one), calibration).total_s for profile in (first, second)]
    return max(times_s) <= (1 + _SAME_STEP) * min(times_s)


def profile_of(lesson: Lesson) -> Profile:
    """The operations of a lesson that teaches something."""
    profile = lesson.measurement.profile
    assert profile is not None
    return profile


def seen_of(lesson: Lesson) -> Seen:
    """The step of a lesson that teaches something."""
    assert lesson.seen is not None
    return lesson.seen


def device_of(profile: Profile, seen: Seen, calibration: Calibration) -> DeviceTime:
    """A step's time on the device, as predicted at the batch and on the GPU of a measurement."""
    trace = trace_at(profile, seen.batch_size)
    return device_time(trace, machine_at(seen.gpu, calibration), calibration)
