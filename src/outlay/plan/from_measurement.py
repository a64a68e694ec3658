"""What a plan takes from measurements of `outlay probe`.

    profile_for                the operations of the step that a workload names
    at_measured_batch          its batch size, where the workload leaves that to the measurement
    evidence_for               what was measured of its time, to correct the prediction by
    load_workload              a workload from its file, or from a measurement of the command
    with_measured_pauses       evaluations, checkpoints, new epochs and stalls between its steps

Pauses are values of the workload, as if its file had said them: of evaluations the samples that go
forward, so that they take longer on a slower GPU; of checkpoints the measured time, with a disk's
range around it; of new epochs and stalls the measured time, with a host's range around it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
from outlay.models.model import names_model
from outlay.plan.model_step import profile_of_model
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
from outlay.predict.kernels import compiled_profile
from outlay.predict.roofline import roofline_of, trace_at
from outlay.predict.step import FORWARD_FRACTION, forward_fraction
from outlay.progress import Progress, silent
from outlay.trace.profile import CompileMode, Profile
from outlay.trace.store import MARK as PROFILE
from outlay.trace.store import bundled_profiles, content_of, find_profile
from outlay.trace.target import SELECTED
from outlay.trace.trace_cache import TraceCache
from outlay.uncertainty import Estimate, Uncertain
from outlay.workload.file import read_workload
from outlay.workload.workload import (
    Cadence,
    Checkpoint,
    Evaluation,
    Length,
    Pause,
    Step,
    Workload,
)

_AGAIN = "Check the path and that the file is complete, or probe or trace the step again."


# Files


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


def profile_for(
    step: Step,
    selected: float = SELECTED,
    *,
    measured: Sequence[str] = (),
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> Profile:
    """The profile a workload's step names, a measurement's, or a trace of its code or its model.

    As compiled code where the step is said to be, or its own code compiles itself, or a measurement
    of it (those it names, and `measured`) ran compiled code. `selected` is the share of elements
    that a selection by unknown values keeps in a trace; for `cache` and `progress` see
    `profile_of`.
    """
    profile = _traced_profile(step, selected, cache=cache, progress=progress)
    mode = compile_mode(step, profile, measured)
    return profile if mode is None else compiled_profile(profile, mode, calibration())


def compile_mode(step: Step, profile: Profile, measured: Sequence[str] = ()) -> CompileMode | None:
    """The mode of torch.compile that a step is predicted in; None: as eager code."""
    if step.compiled is not None:
        return None if step.compiled == "eager" else step.compiled
    if profile.compilable is not None and profile.compilable.mode is not None:
        return profile.compilable.mode
    names = (*((step.profile,) if step.profile else ()), *step.measured, *measured)
    found = (measurement_at(name) for name in names)
    return "default" if any(one is not None and one.is_compiled for one in found) else None


def _traced_profile(
    step: Step, selected: float, *, cache: TraceCache | bool, progress: Progress
) -> Profile:
    """The operations as they are written."""
    if step.target is not None:
        from outlay.trace.tracing import profile_of  # what traces takes a while to import

        return profile_of(step.target, selected=selected, cache=cache, progress=progress)
    if step.model is not None:
        return profile_of_model(step, selected, cache=cache, progress=progress)
    return named_profile(step.profile or "")


def named_profile(name: str) -> Profile:
    """A bundled profile, a saved one, what a measurement recorded, or a model by its name."""
    measurement = measurement_at(name)
    if measurement is None:
        if Path(name).suffix == ".json":
            _check_profile(name)
        return _profile_called(name)
    if measurement.profile is None:
        raise InputError(
            f"{name} has no operations of a step, so that nothing can be carried to other GPUs.",
            why=" ".join(measurement.notes) or "They were not recorded.",
            fix="Probe again with operations, or trace the step and give this as --measured.",
        )
    return measurement.profile


def _profile_called(name: str) -> Profile:
    """A bundled or saved profile; the usual step of a model by its name, bundled or traced."""
    if name not in bundled_profiles() and names_model(name):
        return profile_of_model(Step(model=name))
    return find_profile(name)


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


# The step


def at_measured_batch(step: Step) -> Step:
    """The step at its measurement's batch size, where it has one and says nothing else but what
    is the most."""
    if step.batch_size is not None or not step.batch_left_open or step.profile is None:
        return step
    measurement = measurement_at(step.profile)
    measured = None if measurement is None else measured_batch_size(measurement)
    if measured is None:
        return step
    return replace(step, batch_size=min(measured, step.max_batch_size or measured))


def evidence_for(
    step: Step,
    profile: Profile,
    learned: LearnedCalibration = NOTHING_LEARNED,
    measured: Sequence[str] = (),
    times: Sequence[tuple[str, MeasuredStep]] = (),
) -> Evidence:
    """What the measurements say that a step names, more files of such, and times given by hand."""
    names = (*step.measured, *measured)
    measurements = [(Path(name).name, read_measurement(name)) for name in names]
    itself = None if step.profile is None else measurement_at(step.profile)
    if itself is not None:
        measurements.insert(0, (Path(step.profile or "").name, itself))
    if not measurements and not times and learned == NOTHING_LEARNED:
        return NO_EVIDENCE
    return evidence_of(measurements, profile, learned, times)


# The whole run


def workload_from_measurement(path: Path, length: Length | None = None) -> Workload | None:
    """The workload of what a measurement's command does; None where the file is none.

    `length` is in iterations or epochs; without it, as long as the command itself said it would
    go on.
    """
    measurement = measurement_at(str(path))
    if measurement is None:
        return None
    return Workload(
        name=path.name,
        step=Step(profile=str(path), batch_left_open=True),
        length=Length(
            iterations=_steps(path, measurement, length or Length()),
            global_batch_size=global_batch_size(measurement),
        ),
    )


def load_workload(path: Path, length: Length | None = None) -> Workload:
    """The workload of a TOML file, or of a measurement; `length` is for the latter alone."""
    workload = workload_from_measurement(path.absolute(), length)
    if workload is not None:
        return workload
    if path.suffix == ".json":  # no workload file: say what is wrong with it as a measurement
        read_measurement(path)
    if length is not None:
        raise InputError(
            f"--length is for a measurement; {path} says itself how long its run is.",
            fix="Change [length] there, or vary it: --vary epochs=10,30,90.",
        )
    return read_workload(path)


def _steps(path: Path, measurement: Measurement, length: Length) -> int:
    """Training steps of the whole run."""
    each, epochs = measurement.steps_per_epoch, length.epochs
    counted = round(epochs * each) if epochs and each else measurement.total_steps
    steps = length.iterations or counted
    if steps:
        return steps
    raise InputError(
        f"{path} does not say how long the whole run is.",
        why="A probe sees a part of it; what the whole costs depends on its length."
        if each or not epochs
        else "How many steps an epoch has was not seen.",
        fix='Give it: --length "100000 steps"' + (' or --length "90 epochs".' if each else "."),
    )


def global_batch_size(measurement: Measurement) -> int | None:
    """Samples of one measured step, on all GPUs of all machines."""
    if measurement.samples_per_step is None:
        return None
    return max(round(measurement.samples_per_step * max(measurement.world_size, 1)), 1)


# Pauses

_NAMES: dict[PauseKind, str] = {
    "evaluation": "Evaluations",
    "checkpoint": "Checkpoints",
    "epoch start": "New epochs",
    "other": "Other pauses",
}
_SHORTEST_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRate:
    """Pauses of one kind in a measured run: how often they come, and how long each took."""

    pause: MeasuredPause
    per_step: Estimate

    @property
    def every_steps(self) -> float:
        """From one to the next."""
        return max(1 / self.per_step.likely, 1.0)

    @property
    def each_s(self) -> float:
        """Time of one pause."""
        return max(self.pause.total_s / self.pause.times, _SHORTEST_S)

    @property
    def is_counted(self) -> bool:
        """Whether only their number tells how often they come."""
        return self.per_step.low < self.per_step.high

    @property
    def times(self) -> Uncertain:
        """How often in each interval: once, with the range of a count."""
        if not self.is_counted:
            return 1.0
        likely = self.per_step.likely
        return Estimate(
            low=self.per_step.low / likely, likely=1.0, high=self.per_step.high / likely
        )


def with_measured_pauses(
    workload: Workload, measured: Iterable[str] = ()
) -> tuple[Workload, tuple[str, ...]]:
    """The workload with the pauses its measurements saw and it says nothing of; and in words.

    Its measurements are the files that its step names and those of `measured`; of several, the one
    that saw most steps counts.
    """
    step = workload.step
    names = [*measured, *step.measured, *((step.profile,) if step.profile else ())]
    measurements = [measurement_at(name) for name in names]
    paused = [measurement for measurement in measurements if measurement and measurement.pauses]
    if not paused:
        return workload, ()
    longest = max(paused, key=lambda measurement: measurement.steps_seen)
    rates = [rate for rate in pause_rates(longest) if not _is_stated(workload, rate.pause.kind)]
    notes = tuple(_note(longest, rate) for rate in rates)
    for rate in rates:
        workload = _with_pause(workload, longest, rate)
    return workload, notes


def pause_rates(measurement: Measurement) -> list[PauseRate]:
    """The pauses of a measured run that go on in the whole of it."""
    rates = [
        PauseRate(pause=pause, per_step=measurement.pauses_per_step(pause))
        for pause in measurement.pauses
    ]
    return [rate for rate in rates if rate.pause.times and rate.per_step.likely > 0]


def _is_stated(workload: Workload, kind: PauseKind) -> bool:
    """Whether the workload itself says something of such pauses."""
    if kind == "evaluation":
        return workload.evaluation is not None
    if kind == "checkpoint":
        return workload.checkpoint != Checkpoint()
    return bool(workload.pauses)


def _with_pause(workload: Workload, measurement: Measurement, rate: PauseRate) -> Workload:
    every = _cadence(measurement, rate.every_steps)
    if rate.pause.kind == "evaluation":
        samples = samples_in(measurement, rate.each_s)
        evaluation = Evaluation(
            every=every,
            samples=samples,
            time_s=rate.each_s if samples is None else None,
            times=rate.times,
        )
        return replace(workload, evaluation=evaluation)
    if rate.pause.kind == "checkpoint":
        checkpoint = Checkpoint(interval=every, time_s=rate.each_s, times=rate.times)
        return replace(workload, checkpoint=checkpoint)
    pause = Pause(
        name=_NAMES[rate.pause.kind].lower(),
        every=every,
        time_s=_on_any_host_s(rate.each_s),
        times=rate.times,
    )
    return replace(workload, pauses=(*workload.pauses, pause))


def _cadence(measurement: Measurement, steps: float) -> Cadence:
    """An interval in samples, as often on any number of GPUs; in steps where nothing told them."""
    batch = global_batch_size(measurement)
    return Cadence(steps=steps) if batch is None else Cadence(samples=max(round(steps * batch), 1))


def _on_any_host_s(time_s: float) -> Estimate:
    """Loaders start and stalls end as fast as the host is: hosts differ, to either side."""
    spread = calibration().estimate("host_range").high - 1
    return Estimate(low=time_s * (1 - spread), likely=time_s, high=time_s * (1 + spread))


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
    step, _ = measured_step_of(measurement)
    if step is None or measurement.profile is None:
        return FORWARD_FRACTION
    numbers = calibration()
    trace = trace_at(measurement.profile, step.batch_size)
    return forward_fraction(device_time(trace, roofline_of(step.gpu, numbers), numbers))


def _note(measurement: Measurement, rate: PauseRate) -> str:
    """What a plan takes over of one kind of pause, and how far to trust it."""
    often, where = _often(measurement, rate), _where(measurement, rate)
    return f"{_NAMES[rate.pause.kind]}: {often}, {rate.each_s:.2g} s each {where}"


def _often(measurement: Measurement, rate: PauseRate) -> str:
    every = round(rate.every_steps)
    often = f"every {every:,} steps" if every > 1 else "every step"
    if not rate.is_counted:
        return often
    count = f"{rate.pause.times:,} seen in {measurement.steps_seen:,}"
    return f"about {often} ({count}: the range has one more and one less)"


def _where(measurement: Measurement, rate: PauseRate) -> str:
    """On which machines they take as long, as the end of a sentence."""
    kind = rate.pause.kind
    step, _ = measured_step_of(measurement)
    place = "where it was measured" if step is None else f"on the measured {step.gpu.name}"
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
    if samples_in(measurement, rate.each_s) is None:
        return f"{place}, and as long on every other, as the probe saw them."
    return f"{place}, shared by all GPUs of a run, as the probe saw them."
