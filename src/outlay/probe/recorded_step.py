"""The operations of a step, as the agent recorded them, as a `Profile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outlay.errors import OutlayError
from outlay.measurement.measurement import Measurement
from outlay.probe.messages import ProcessLog
from outlay.probe.steps import StepStatistics
from outlay.trace.from_recording import RecordedStep, profile_of_step
from outlay.trace.profile import Op, Profile

# Samples and passes of a training step: as the user says, as loaders tell, by what modules got.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizeOverride:
    """What the user says of it; None where that is left to what is seen."""

    batch_size: int | None = None
    """Samples of one pass."""
    samples_per_step: int | None = None
    """Samples of a whole training step."""


NOTHING = StepSizeOverride()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """Samples of a training step, and in how many passes they are."""

    samples: float | None = None
    passes: float | None = None

    @property
    def a_pass(self) -> float | None:
        """Samples of one pass."""
        return None if self.samples is None else self.samples / (self.passes or 1.0)


def step_size(seen: StepStatistics, told: ProcessLog, given: StepSizeOverride) -> StepSize:
    """What counts for a step, the user's word first."""
    found = _seen_size(seen, told)
    if given.samples_per_step is not None:
        return StepSize(samples=float(given.samples_per_step), passes=found.passes)
    if given.batch_size is not None:
        return StepSize(samples=given.batch_size * (found.passes or 1.0), passes=found.passes)
    return found


def _seen_size(seen: StepStatistics, told: ProcessLog) -> StepSize:
    look = told.facts.get("batch", {})
    if seen.samples_per_step is not None:
        return StepSize(samples=seen.samples_per_step, passes=_loaded_passes(seen, look))
    if look.get("inputs") and has_one_optimizer(seen):
        return _size_looked_for(seen, look)
    rows = look.get("samples") or told.facts.get("operations", {}).get("rows")
    passes = seen.passes_per_step
    return StepSize(samples=float(rows) * (passes or 1.0) if rows else None, passes=passes)


def has_one_optimizer(seen: StepStatistics) -> bool:
    """Whether one optimizer makes a training step; else each may have batches of its own."""
    return sum(often > 0 for often in seen.per_step) < 2


def _loaded_passes(seen: StepStatistics, look: Mapping[str, Any]) -> float | None:
    """Batches of loaders; the parts of them where modules got each of them in several."""
    passes = seen.passes_per_step
    if passes is None or not has_one_optimizer(seen) or not is_cut_up(look):
        return passes
    return passes * float(look["inputs"]) / float(look["batches"])


def is_cut_up(look: Mapping[str, Any]) -> bool:
    """Whether the batches of a step went through the model in more parts, all of their samples."""
    batches = look.get("batches", 0)
    return bool(batches) and look["inputs"] > batches and look["rows"] == look["loaded"]


def _size_looked_for(seen: StepStatistics, look: Mapping[str, Any]) -> StepSize:
    """By the inputs of one step of one optimizer.

    Where each pass had one of its own, as many as a step has passes; else (SAM, L-BFGS, several
    losses of one forward pass) as many as were seen, however many passes a step makes of them.
    """
    inputs, passes = float(look["inputs"]), seen.passes_per_step
    if look["passes"] > inputs and passes is not None:
        passes = inputs * max(round(passes / look["passes"]), 1)
    return StepSize(samples=look["rows"] / inputs * (passes or 1.0) or None, passes=passes)


def profile_from(
    measurement: Measurement, told: Sequence[ProcessLog], given: StepSizeOverride = NOTHING
) -> tuple[Profile | None, list[str]]:
    """The profile of a step, and what is to be said about it."""
    found = next((one for one in told if "operations" in one.facts), None)
    if found is None:
        return None, _why_not(measurement, told)
    if measurement.samples_per_step is None:
        why = "How many samples a step has was not seen: give --batch-size to carry it elsewhere."
        return None, [why]
    try:
        return profile_of_step(recorded_step(measurement, found, given)), []
    except (OutlayError, ValueError) as error:
        return None, [f"The operations of the step could not be used: {error}"]


def _why_not(measurement: Measurement, told: Sequence[ProcessLog]) -> list[str]:
    if not told or measurement.step is None or any(one.lists.get("failed") for one in told):
        return []
    return [f"The operations of a step were not recorded: {_before(measurement)}"]


def _before(measurement: Measurement) -> str:
    """What came before the step to record, and what helps."""
    if measurement.ending == "interrupted":
        return "you stopped the command before."
    if measurement.ending != "stopped":
        return "the command ended before."
    if measurement.stopped_for == "cost":
        return "the money for the probe was spent before. Give a larger --max-cost."
    # What is told and asked takes its time, while a burst is over: a longer probe does not help.
    return (
        "the step to record was over before the command heard of it, or never came. Where steps "
        "come in bursts (updates after a rollout), say how many one has: --optimizer-steps 32."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Size:
    """Samples and passes of the steps that were recorded, for one of them."""

    samples: float
    passes: float
    a_pass: int | None = None
    """Rows of the first pass, where they are its samples."""
    a_batch: float | None = None
    """Samples of one batch of a loader."""


def recorded_step(
    measurement: Measurement, told: ProcessLog, given: StepSizeOverride = NOTHING
) -> RecordedStep:
    """What one rank recorded."""
    found = told.facts["operations"]
    held = told.facts.get("held", {})
    each = sum(one.per_step for one in measurement.optimizers) or 1.0
    steps = max(found["optimizer_steps"] / each, 1.0)
    ops = tuple(_op(row, steps) for row in found["ops"])
    size = _recorded_size(measurement, told, steps, given)
    return RecordedStep(
        name=" ".join(measurement.command),
        batch_size=round(size.samples),
        passes=max(round(size.passes), 1),
        pass_size=size.a_pass,
        ops=ops,
        parameter_shapes=frozenset(tuple(shape) for shape in found["parameter_shapes"]),
        parameters=found["parameters"],
        trainable_parameters=found["trainable_parameters"],
        issued_ops=sum(op.count for op in ops),
        parameter_bytes=float(held.get("parameters", 0)),
        gradient_bytes=float(held.get("gradients", 0)),
        optimizer_bytes=float(held.get("states", 0)),
        frozen_bytes=float(held.get("frozen") or 0),
        peak_allocated_bytes=measurement.memory.allocated_bytes,
        peak_reserved_bytes=measurement.memory.reserved_bytes,
        recorded_on=measurement.measured_on,
        versions=measurement.versions,
        unknown_ops={name: count / steps for name, count in found["unknown_ops"].items()},
    )


def _recorded_size(
    measurement: Measurement, told: ProcessLog, steps: float, given: StepSizeOverride
) -> _Size:
    """Of the recorded step itself, where that was seen: the mean of all is no step's own size."""
    usual = _Size(
        samples=measurement.samples_per_step or 1.0, passes=measurement.passes_per_step or 1.0
    )
    if given != NOTHING or "numbers" not in told.facts["operations"]:
        return usual
    loaded = _loaded_size(measurement, told, steps)
    return _looked_size(measurement, told, loaded or usual) or loaded or usual


def _loaded_size(measurement: Measurement, told: ProcessLog, steps: float) -> _Size | None:
    """By its DataLoaders."""
    first, last = told.facts["operations"]["numbers"]
    number = told.table.column("number")
    within = (number >= first) & (number <= last)
    has_batch = within & (told.table.column("batches") > 0)
    samples = float(told.table.column("samples")[has_batch].sum())
    batches, passes = (
        float(told.table.column(name)[within].sum()) for name in ("batches", "passes")
    )
    if not batches or not np.isfinite(samples):
        return None
    made_of = min(batches, passes or batches) if _has_one_optimizer(measurement) else batches
    return _Size(
        samples=samples / steps, passes=max(made_of / steps, 1.0), a_batch=samples / batches
    )


def _looked_size(measurement: Measurement, told: ProcessLog, known: _Size) -> _Size | None:
    """By what its modules got, where that agrees with its loaders, or where there are none.

    A loader that loads ahead gives a batch more or less than the step has.
    """
    found = told.facts["operations"]
    look = found.get("look")
    if not look or found["optimizer_steps"] != 1 or not _has_one_optimizer(measurement):
        return None
    rows, a_pass = float(look["rows"]), float(look["rows"]) / look["inputs"]
    a_batch = known.a_batch or known.samples / known.passes
    is_known = rows == known.samples or a_pass == a_batch
    if told.table.column("batches").any() and not is_known:
        return None
    return _Size(samples=rows, passes=float(look["inputs"]), a_pass=int(look["samples"]))


def _has_one_optimizer(measurement: Measurement) -> bool:
    return sum(one.per_step > 0 for one in measurement.optimizers) < 2


def _op(row: Mapping[str, Any], steps: float) -> Op:
    shapes = tuple(tuple(shape) for shape in row["shapes"])
    return Op(**{**row, "shapes": shapes, "count": row["count"] / steps})
