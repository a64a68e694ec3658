"""The operations of a step, as the agent recorded them, as a `Profile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outlay.errors import OutlayError
from outlay.measurement import Measurement
from outlay.probe.listen import Told
from outlay.probe.samples import NOTHING, Given
from outlay.trace.one_size import RecordedStep, profile_of_step
from outlay.trace.trace import Op, Profile


def profile_from(
    measurement: Measurement, told: Sequence[Told], given: Given = NOTHING
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


def _why_not(measurement: Measurement, told: Sequence[Told]) -> list[str]:
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


def recorded_step(measurement: Measurement, told: Told, given: Given = NOTHING) -> RecordedStep:
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


def _recorded_size(measurement: Measurement, told: Told, steps: float, given: Given) -> _Size:
    """Of the recorded step itself, where that was seen: the mean of all is no step's own size."""
    usual = _Size(
        samples=measurement.samples_per_step or 1.0, passes=measurement.passes_per_step or 1.0
    )
    if given != NOTHING or "numbers" not in told.facts["operations"]:
        return usual
    loaded = _loaded_size(measurement, told, steps)
    return _looked_size(measurement, told, loaded or usual) or loaded or usual


def _loaded_size(measurement: Measurement, told: Told, steps: float) -> _Size | None:
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


def _looked_size(measurement: Measurement, told: Told, known: _Size) -> _Size | None:
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
