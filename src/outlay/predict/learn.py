"""What a user's own measurements say of their GPUs and hosts, whatever they trained.

Each measurement is a lesson (`predict.lesson`): measured over predicted of the GPU's own time, or
of the host's, or a reason why it says nothing of them; one that no error explains is left out.
Lessons of one step (repeats, other batch sizes) make one vote, and the votes of a GPU or of a CPU
make its factor (`predict.own_factor`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outlay.chance import PERCENTILE_90
from outlay.measurement import Measurement
from outlay.predict.calibration import Calibration
from outlay.predict.experience import (
    NOTHING_LEARNED,
    OwnCalibration,
    OwnFactor,
    Seen,
    gpu_error,
)
from outlay.predict.lesson import (
    Lesson,
    Subject,
    device_of,
    lessons_of,
    numbered,
    profile_of,
    seen_of,
)
from outlay.predict.machine import speed_at
from outlay.predict.own_factor import BOUND, Vote, is_explained, over_hosts, own_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What was learned, from which measurements, and which say nothing."""

    calibration: OwnCalibration
    lessons: tuple[Lesson, ...] = ()
    notes: tuple[str, ...] = ()


def learned_from(
    measurements: Iterable[tuple[str, Measurement]], calibration: Calibration
) -> Learned:
    """What measurements, each with its name, say of the GPUs and hosts they were taken on."""
    lessons = numbered(lessons_of(measurements, calibration), calibration)
    lessons, gpus = _factors(lessons, "gpu", calibration)
    lessons, hosts = _factors(lessons, "host", calibration)
    left_out = [f"{one.name}: {one.left_out}" for one in lessons if one.left_out is not None]
    return Learned(
        calibration=OwnCalibration(gpus=gpus, host=over_hosts(hosts), hosts=hosts),
        lessons=tuple(lessons),
        notes=(*left_out, *(_bounded(one) for one in (*gpus, *hosts) if one.is_bounded)),
    )


# What they say together


def _factors(
    lessons: Sequence[Lesson], subject: Subject, calibration: Calibration
) -> tuple[list[Lesson], tuple[OwnFactor, ...]]:
    """A factor for each GPU or CPU by name, and the lessons without those that are too far off.

    Each is tested by itself, so that one spoiled repeat neither bends nor silences the others.
    """
    kept = [_if_explained(one, subject, calibration) for one in lessons]
    votes: dict[str, list[Vote]] = {}
    priors: dict[str, float] = {}
    for (name, _), same in _by_step(kept, subject).items():
        votes.setdefault(name, []).append(_vote(same, subject, calibration))
        priors[name] = _prior(same[0], subject, calibration)
    return kept, tuple(own_factor(name, votes[name], priors[name]) for name in sorted(votes))


def _if_explained(lesson: Lesson, subject: Subject, calibration: Calibration) -> Lesson:
    """The lesson; without what it teaches of the subject where no error explains that."""
    if subject not in lesson.taught:
        return lesson
    vote, prior = _vote([lesson], subject, calibration), _prior(lesson, subject, calibration)
    if is_explained(vote, prior):
        return lesson
    return lesson.without(subject, _too_far(vote, subject, prior))


def _by_step(
    lessons: Sequence[Lesson], subject: Subject
) -> dict[tuple[str, int | None], list[Lesson]]:
    """The lessons that teach of something, by the name of that and by step."""
    found: dict[tuple[str, int | None], list[Lesson]] = {}
    for lesson in lessons:
        if subject in lesson.taught:
            found.setdefault(_place(lesson, subject), []).append(lesson)
    return found


def _place(lesson: Lesson, subject: Subject) -> tuple[str, int | None]:
    return (seen_of(lesson).gpu.name if subject == "gpu" else lesson.cpu), lesson.step


def _vote(same: Sequence[Lesson], subject: Subject, calibration: Calibration) -> Vote:
    """The vote of one step: the median of what was measured of it."""
    of_gpu = subject == "gpu"
    first, seen = same[0], seen_of(same[0])
    ratios = [one.gpu_ratio if of_gpu else one.host_ratio for one in same]
    logs = [math.log(ratio) for ratio in ratios if ratio is not None]
    noise = [_noise(seen_of(one), calibration) ** 2 for one in same]
    return Vote(
        log=statistics.median(logs),
        base=calibration.number("error_base")
        if of_gpu
        else _log_spread(calibration, "host_range_measured"),
        doubts=device_of(profile_of(first), seen, calibration).doubts if of_gpu else {},
        noise=math.sqrt(sum(noise)) / len(noise),
        model=profile_of(first).parameters,
        measurements=len(same),
    )


def _noise(seen: Seen, calibration: Calibration) -> float:
    """What a measurement itself may be off by: its mean, and what its power limit takes."""
    if seen.power_limit_w is None:
        return seen.error
    lost = 1 - speed_at(seen.power_limit_w / seen.gpu.tdp_w, calibration)
    return math.hypot(seen.error, calibration.number("power_loss_error") * lost)


def _prior(lesson: Lesson, subject: Subject, calibration: Calibration) -> float:
    if subject == "gpu":
        return gpu_error(seen_of(lesson).gpu, NOTHING_LEARNED, calibration)
    return _log_spread(calibration, "host_range")


def _log_spread(calibration: Calibration, name: str) -> float:
    """The standard deviation, in logarithms, of a range from the 10th to the 90th percentile."""
    found = calibration.estimate(name)
    return math.log(found.high / found.low) / (2 * PERCENTILE_90)


# Words


def _too_far(vote: Vote, subject: Subject, prior: float) -> str:
    off = BOUND * math.hypot(prior, vote.error)
    whose = "the GPU's" if subject == "gpu" else "the host's"
    return (
        f"it took {math.exp(vote.log):.2f} of what is predicted, and errors of {whose} figures and "
        f"of such a step explain {math.exp(-off):.2f} to {math.exp(off):.2f}: the reason is "
        "another (compiled code, a step that differs from its recording, a GPU that was shared)."
    )


def _bounded(one: OwnFactor) -> str:
    return (
        f"{one.name}: your steps took {one.mean_ratio:.2f} of what is predicted; beyond "
        f"{one.factor:.2f} ({BOUND:.0f} times the error of {one.error_before:.0%}) it is not put "
        "down to it, and its error stays."
    )
