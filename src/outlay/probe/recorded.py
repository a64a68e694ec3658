"""The operations of a step, as the agent recorded them, as a `Profile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from outlay.errors import OutlayError
from outlay.measurement import Measurement
from outlay.probe.listen import Told
from outlay.trace.one_size import RecordedStep, profile_of_step
from outlay.trace.trace import Op, Profile


def profile_from(
    measurement: Measurement, told: Sequence[Told]
) -> tuple[Profile | None, list[str]]:
    """The profile of a step, and what is to be said about it."""
    found = next((one for one in told if "operations" in one.facts), None)
    if found is None:
        return None, _why_not(measurement, told)
    if measurement.samples_per_step is None:
        why = "How many samples a step has was not seen: give --batch-size to carry it elsewhere."
        return None, [why]
    try:
        return profile_of_step(recorded_step(measurement, found)), []
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


def recorded_step(measurement: Measurement, told: Told) -> RecordedStep:
    """What one rank recorded."""
    found = told.facts["operations"]
    held = told.facts.get("held", {})
    each = sum(one.per_step for one in measurement.optimizers) or 1.0
    steps = max(found["optimizer_steps"] / each, 1.0)
    ops = tuple(_op(row, steps) for row in found["ops"])
    return RecordedStep(
        name=" ".join(measurement.command),
        batch_size=round(measurement.samples_per_step or 1),
        passes=max(round(measurement.passes_per_step or 1), 1),
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


def _op(row: Mapping[str, Any], steps: float) -> Op:
    shapes = tuple(tuple(shape) for shape in row["shapes"])
    return Op(**{**row, "shapes": shapes, "count": row["count"] / steps})
