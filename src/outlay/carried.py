"""Measurements that a step names: its profile, its batch size, and what they say of its time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from outlay.carried_pauses import global_batch_size, pause_lines, pause_words
from outlay.errors import InputError
from outlay.files import parsed_json, read_data
from outlay.measurement import Measurement
from outlay.measurement_file import (
    is_measurement,
    is_search,
    measurement_from_json,
    read_measurement,
    search_given,
)
from outlay.predict.experience import (
    NO_EXPERIENCE,
    NOTHING_LEARNED,
    Experience,
    OwnCalibration,
    Seen,
)
from outlay.predict.seen import experience_of, step_size
from outlay.trace.bundled import find_profile
from outlay.trace.store import MARK as PROFILE
from outlay.trace.store import content_of
from outlay.trace.trace import Profile
from outlay.workload import Step

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
    return step if measurement is None else replace(step, batch_size=step_size(measurement))


def experience_for(
    step: Step,
    profile: Profile,
    own: OwnCalibration = NOTHING_LEARNED,
    more: Sequence[str] = (),
    given: Sequence[tuple[str, Seen]] = (),
) -> Experience:
    """What the measurements say that a step names, more files of such, and times given by hand."""
    measured = [(Path(name).name, read_measurement(name)) for name in (*step.measured, *more)]
    itself = None if step.profile is None else measurement_at(step.profile)
    if itself is not None:
        measured.insert(0, (Path(step.profile or "").name, itself))
    if not measured and not given and own == NOTHING_LEARNED:
        return NO_EXPERIENCE
    return experience_of(measured, profile, own, given)
