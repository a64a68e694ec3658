"""Measurements that a step names: its profile, its batch size, and what they say of its time."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from outlay.errors import InputError
from outlay.files import parsed_json, read_data
from outlay.measurement.file import (
    is_measurement,
    is_search,
    measurement_from_json,
    read_measurement,
    search_given,
)
from outlay.measurement.measurement import MeasuredPause, Measurement, PauseKind
from outlay.plan.placement import calibration
from outlay.predict.evidence import (
    NO_EVIDENCE,
    NOTHING_LEARNED,
    Evidence,
    LearnedCalibration,
    MeasuredStep,
)
from outlay.predict.from_probe import evidence_of, measured_batch_size, measured_step_of
from outlay.predict.kernel_time import device_time
from outlay.predict.roofline import roofline_of, trace_at
from outlay.predict.step import FORWARD_FRACTION, forward_fraction
from outlay.trace.profile import Profile
from outlay.trace.store import MARK as PROFILE
from outlay.trace.store import content_of, find_profile
from outlay.uncertainty import Estimate
from outlay.workload.workload import Step

# What lies between the steps of a measured run, as a plan of it takes it over, and in words.
#
# Evaluations       forward samples, so that they take longer on a slower GPU
# checkpoints       the measured time, and a disk's range around it
# new epochs, stalls    the measured time, and a host's range around it


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

    pause: MeasuredPause
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
    seen, _ = measured_step_of(measurement)
    if seen is None or measurement.profile is None:
        return FORWARD_FRACTION
    numbers = calibration()
    trace = trace_at(measurement.profile, seen.batch_size)
    return forward_fraction(device_time(trace, roofline_of(seen.gpu, numbers), numbers))


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
    seen, _ = measured_step_of(measurement)
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


_AGAIN = "Check the path and that the file is complete, or probe or trace the step again."


def measurement_at(name: str) -> Measurement | None:
    """The measurement in a file; None for a profile's name, a saved profile, or no file at all."""
    path = Path(name)
    if path.suffix != ".json" or not path.is_file():
        return None
    state = path.stat()
    return _measurement_at(name, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=32)
def _measurement_at(name: str, _changed_ns: int, _size_bytes: int) -> Measurement | None:
    """Read once while it stays the same: what is predicted from it is predicted once, too."""
    try:
        content = parsed_json(read_data(Path(name)))
    except ValueError:
        return None
    return measurement_from_json(content, source=name) if is_measurement(content) else None


def named_profile(name: str) -> Profile:
    """A bundled profile, a saved one, or the operations that a measurement recorded."""
    measurement = measurement_at(name)
    if measurement is None:
        if Path(name).suffix == ".json":
            _check_profile(name)
        return find_profile(name)
    if measurement.profile is None:
        raise InputError(
            f"{name} has no operations of a step, so that nothing can be carried to other GPUs.",
            why=" ".join(measurement.notes) or "They were not recorded.",
            fix="Probe again with operations, or trace the step and give this as --measured.",
        )
    return measurement.profile


def _check_profile(name: str) -> None:
    """Raise where a JSON file is neither a profile nor a measurement, and say what it is."""
    try:
        content = content_of(Path(name))
    except FileNotFoundError:
        raise InputError(f"There is no profile or measurement {name}.", fix=_AGAIN) from None
    except ValueError as error:
        raise _neither(name, str(error)) from error
    if is_search(content):
        raise search_given(content, name)
    if not isinstance(content, Mapping) or content.get("kind") != PROFILE:
        raise _neither(name, "It is JSON, but no profile written by outlay, and no measurement.")


def _neither(name: str, why: str) -> InputError:
    return InputError(f"{name} cannot be read as a profile or a measurement.", why=why, fix=_AGAIN)


def text_of_workload(
    path: Path, *, total_steps: int | None = None, epochs: float | None = None
) -> str | None:
    """A workload file for what a measurement's command does; None where the file is none.

    As long as is said, or as the command itself said it would go on.
    """
    measurement = measurement_at(str(path))
    if measurement is None:
        return None
    each = measurement.steps_per_epoch
    steps = total_steps or (round(epochs * each) if epochs and each else measurement.total_steps)
    if not steps:
        raise InputError(
            f"{path} does not say how long the whole run is.",
            why="A probe sees a part of it; what the whole costs depends on its length."
            if each or not epochs
            else "How many steps an epoch has was not seen.",
            fix='Give it: --length "100000 steps"' + (' or --length "90 epochs".' if each else "."),
        )
    lines = [f"name = {json.dumps(path.name)}", "[step]", f"profile = {json.dumps(str(path))}"]
    lines += ["[length]", f"iterations = {steps}"]
    batch = global_batch_size(measurement)
    if batch is not None:
        lines.append(f"global_batch_size = {batch}")
    return "\n".join([*lines, *pause_lines(measurement)]) + "\n"


def pauses_said(path: Path) -> tuple[str, ...]:
    """What a plan of a measurement takes over from it beside the step, in words."""
    measurement = measurement_at(str(path))
    return () if measurement is None else tuple(pause_words(measurement))


def pauses_unsaid(
    tables: Mapping[str, object], folder: Path, more: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """What a step's measurements saw between its steps and a workload file says nothing of.

    As tables to add to the file, and in words. Of several measurements, that counts which saw most
    steps. The file names them from its folder on; `more` are others.
    """
    step = tables.get("step")
    named = step.get("measured") if isinstance(step, Mapping) else None
    names = [*more, *(str(folder / str(one)) for one in (named if isinstance(named, list) else []))]
    found = [one for one in map(measurement_at, names) if one is not None and one.pauses]
    if not found:
        return "", ()
    most = max(found, key=lambda one: one.steps_seen)
    lines = "".join(f"{line}\n" for line in pause_lines(most, tables))
    return (f"\n{lines}" if lines else ""), tuple(pause_words(most, tables))


def as_measured(step: Step) -> Step:
    """The step at its measurement's batch size, where it has one and says nothing else."""
    if step.batch_size is not None or not step.batch_as_measured or step.profile is None:
        return step
    measurement = measurement_at(step.profile)
    return (
        step if measurement is None else replace(step, batch_size=measured_batch_size(measurement))
    )


def evidence_for(
    step: Step,
    profile: Profile,
    own: LearnedCalibration = NOTHING_LEARNED,
    more: Sequence[str] = (),
    given: Sequence[tuple[str, MeasuredStep]] = (),
) -> Evidence:
    """What the measurements say that a step names, more files of such, and times given by hand."""
    measured = [(Path(name).name, read_measurement(name)) for name in (*step.measured, *more)]
    itself = None if step.profile is None else measurement_at(step.profile)
    if itself is not None:
        measured.insert(0, (Path(step.profile or "").name, itself))
    if not measured and not given and own == NOTHING_LEARNED:
        return NO_EVIDENCE
    return evidence_of(measured, profile, own, given)
