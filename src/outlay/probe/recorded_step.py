"""The operations of a step, as the agent recorded them, as a `Profile`.

Operations are those that were recorded after the timing, or else those of the first steps. The size
of the recorded step is its own where that is known: the mean of all is no step's size.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from outlay.errors import OutlayError
from outlay.measurement.measurement import Measurement
from outlay.probe.agent.protocol import (
    ModuleInputs,
    PersistentMemory,
    PhaseFailed,
    RecordedOperations,
    StepOperations,
)
from outlay.probe.messages import Floats, ProcessLog
from outlay.probe.steps import NO_OVERRIDE, StepSizeOverride
from outlay.trace.from_recording import RecordedStep, profile_of_step
from outlay.trace.profile import Op, Profile

_UNEVEN = 0.02
"""How far a number of optimizer steps may be from a whole one: the first may differ."""


def recorded_profile(
    measurement: Measurement, logs: Sequence[ProcessLog], override: StepSizeOverride = NO_OVERRIDE
) -> tuple[Profile | None, list[str]]:
    """The profile of a step, and notes where there is none or where it is of a first step."""
    log, _ = _operations_of(measurement, logs)
    if log is None:
        return None, _notes_without(measurement, logs)
    if measurement.samples_per_step is None:
        why = "How many samples a step has was not seen: give --batch-size to carry it elsewhere."
        return None, [why]
    try:
        step = recorded_step(measurement, log, override)
        return profile_of_step(step), list(_notes_on_early(measurement, log))
    except (OutlayError, ValueError) as error:
        return None, [f"The operations of the step could not be used: {error}"]


def _notes_without(measurement: Measurement, logs: Sequence[ProcessLog]) -> list[str]:
    if not logs or any(log.all(PhaseFailed) for log in logs):
        return []
    why = _why_not_recorded(measurement, logs[0])
    return [f"The operations of a step were not recorded: {why}"]


def _why_not_recorded(measurement: Measurement, log: ProcessLog) -> str:
    """What came before the step to record, and what helps."""
    if log.last_step == 1:
        return "they are recorded from the second on. Let it make at least two steps."
    if measurement.ending == "interrupted":
        return "you stopped the command before."
    if measurement.ending != "stopped":
        return "the command ended before."
    if measurement.stopped_for == "cost":
        return "the money for the probe was spent before. Give a larger --max-cost."
    # Reports and requests take their time, while a burst is over: a longer probe does not help.
    return (
        "the step to record was over before the command heard of it, or never came. Where steps "
        "come in bursts (updates after a rollout), say how many one has: --optimizer-steps 32."
    )


# Operations of the first steps


def _operations_of(
    measurement: Measurement, logs: Sequence[ProcessLog]
) -> tuple[ProcessLog | None, RecordedOperations | None]:
    """A rank that has the operations of a whole step, and these; after the timing, if any."""
    for log in logs:
        operations = log.last(RecordedOperations)
        if operations is not None:
            return log, operations
    for log in logs:
        operations = _early_operations(measurement, log)
        if operations is not None:
            return log, operations
    return None, None


def _early_operations(measurement: Measurement, log: ProcessLog) -> RecordedOperations | None:
    """Those of the first optimizer steps that make a whole training step; None where none do.

    As many steps in a row as a training step has, wherever in it they begin. Of several such, the
    last one without an evaluation before any of its steps, if there is one.
    """
    recorded = {operations.step: operations for operations in log.all(StepOperations)}
    length = max(round(sum(optimizer.per_step for optimizer in measurement.optimizers)), 1)
    wholes = [
        whole
        for last in sorted(recorded)
        if (whole := range(last - length + 1, last + 1))
        and all(step in recorded for step in whole)
        and _is_whole(measurement, log, whole)
    ]
    if not wholes:
        return None
    chosen = max(wholes, key=lambda whole: (_has_no_pause(log, whole), whole.start))
    parts = [recorded[step] for step in chosen]
    return RecordedOperations(
        recording=_joined([part.recording for part in parts]),
        optimizer_steps=length,
        first_step=chosen.start,
        last_step=chosen[-1],
        inputs=parts[0].inputs,
    )


def _is_whole(measurement: Measurement, log: ProcessLog, steps: range) -> bool:
    """Whether each optimizer steps as often in them as in a training step."""
    turns = _column(log, "optimizer", steps).astype(int)
    usual = [optimizer.per_step for optimizer in measurement.optimizers]
    times = np.bincount(turns, minlength=len(usual))
    if len(times) > len(usual):
        return False
    return all(abs(count - per_step) < 1 for count, per_step in zip(times, usual, strict=True))


def _has_no_pause(log: ProcessLog, steps: range) -> bool:
    names = ("evaluated", "mostly_no_grad", "skipped")
    return not any(_column(log, name, steps).any() for name in names)


def _column(log: ProcessLog, name: str, steps: range) -> Floats:
    number = log.table.column("number")
    return log.table.column(name)[(number >= steps.start) & (number < steps.stop)]


def _joined(recordings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The recordings of several optimizer steps as one."""
    counts: dict[str, float] = {}
    rows: dict[str, Mapping[str, Any]] = {}
    unknown: Counter[str] = Counter()
    for recording in recordings:
        unknown.update(recording["unknown_ops"])
        for row in recording["ops"]:
            key = json.dumps({**row, "count": None}, sort_keys=True)
            rows[key] = row
            counts[key] = counts.get(key, 0) + row["count"]
    # Parameters are of all optimizers that stepped since recording began.
    last = max(recordings, key=lambda recording: recording["parameters"])
    first_rows = [recording["rows"] for recording in recordings if recording["rows"]]
    return {
        **last,
        "ops": [{**row, "count": counts[key]} for key, row in rows.items()],
        "unknown_ops": dict(unknown),
        "rows": first_rows[0] if first_rows else None,
    }


def _notes_on_early(measurement: Measurement, log: ProcessLog) -> Iterator[str]:
    """Say so where the operations of a first step may not be those of all."""
    if log.last(RecordedOperations) is not None:
        return
    per_step = [optimizer.per_step for optimizer in measurement.optimizers]
    if any(abs(times - round(times)) > _UNEVEN for times in per_step):
        yield (
            "Its optimizers do not step equally often in every training step: the operations "
            "recorded are those of one of its first steps. A longer probe records a whole pattern."
        )


# The step that was recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedSize:
    """Samples and passes of the steps that were recorded, for one of them."""

    samples: float
    passes: float
    samples_per_pass: int | None = None
    """Rows of the first pass, where they are its samples."""
    samples_per_batch: float | None = None
    """Samples of one batch of a loader."""


def recorded_step(
    measurement: Measurement, log: ProcessLog, override: StepSizeOverride = NO_OVERRIDE
) -> RecordedStep:
    """The step that one rank has recorded."""
    _, operations = _operations_of(measurement, [log])
    assert operations is not None
    recording = operations.recording
    memory = log.last(PersistentMemory) or PersistentMemory()
    each = sum(optimizer.per_step for optimizer in measurement.optimizers) or 1.0
    steps = max(operations.optimizer_steps / each, 1.0)
    ops = tuple(_op(row, steps) for row in recording["ops"])
    size = _recorded_size(measurement, log, operations, steps, override)
    return RecordedStep(
        name=" ".join(measurement.command),
        batch_size=round(size.samples),
        passes=max(round(size.passes), 1),
        pass_size=size.samples_per_pass,
        ops=ops,
        parameter_shapes=frozenset(tuple(shape) for shape in recording["parameter_shapes"]),
        parameters=recording["parameters"],
        trainable_parameters=recording["trainable_parameters"],
        issued_ops=sum(op.count for op in ops),
        parameter_bytes=float(memory.parameters),
        gradient_bytes=float(memory.gradients),
        optimizer_bytes=float(memory.optimizer_states),
        frozen_bytes=float(memory.frozen or 0),
        peak_allocated_bytes=measurement.memory.allocated_bytes,
        peak_reserved_bytes=measurement.memory.reserved_bytes,
        recorded_on=measurement.measured_on,
        versions=measurement.versions,
        unknown_ops={name: count / steps for name, count in recording["unknown_ops"].items()},
    )


def _recorded_size(
    measurement: Measurement,
    log: ProcessLog,
    operations: RecordedOperations,
    steps: float,
    override: StepSizeOverride,
) -> _RecordedSize:
    """Of the recorded step itself, where that is known; else the mean of all."""
    usual = _RecordedSize(
        samples=measurement.samples_per_step or 1.0, passes=measurement.passes_per_step or 1.0
    )
    if override != NO_OVERRIDE or not operations.first_step:
        return usual
    loaded = _loaded_size(measurement, log, operations, steps)
    return _size_by_inputs(measurement, log, operations, loaded or usual) or loaded or usual


def _loaded_size(
    measurement: Measurement, log: ProcessLog, operations: RecordedOperations, steps: float
) -> _RecordedSize | None:
    """By its DataLoaders."""
    number = log.table.column("number")
    is_recorded = (number >= operations.first_step) & (number <= operations.last_step)
    has_batch = is_recorded & (log.table.column("batches") > 0)
    samples = float(log.table.column("samples")[has_batch].sum())
    batches, passes = (
        float(log.table.column(name)[is_recorded].sum()) for name in ("batches", "passes")
    )
    if not batches or not np.isfinite(samples):
        return None
    parts = min(batches, passes or batches) if _has_one_optimizer(measurement) else batches
    return _RecordedSize(
        samples=samples / steps,
        passes=max(parts / steps, 1.0),
        samples_per_batch=samples / batches,
    )


def _size_by_inputs(
    measurement: Measurement,
    log: ProcessLog,
    operations: RecordedOperations,
    expected: _RecordedSize,
) -> _RecordedSize | None:
    """By the inputs of its modules, where they agree with its loaders, or where there are none.

    A loader that loads ahead gives a batch more or less than the step has.
    """
    is_one_step = operations.optimizer_steps == 1 and _has_one_optimizer(measurement)
    if not operations.inputs or not is_one_step:
        return None
    inputs = ModuleInputs(**operations.inputs)
    rows, rows_per_pass = float(inputs.rows), float(inputs.rows) / inputs.inputs
    samples_per_batch = expected.samples_per_batch or expected.samples / expected.passes
    agrees = rows == expected.samples or rows_per_pass == samples_per_batch
    if log.table.column("batches").any() and not agrees:
        return None
    if inputs.singles:  # each of them is an operation's first dimension
        return _RecordedSize(samples=rows, passes=rows, samples_per_pass=1)
    return _RecordedSize(
        samples=rows, passes=float(inputs.inputs), samples_per_pass=int(inputs.samples)
    )


def _has_one_optimizer(measurement: Measurement) -> bool:
    return sum(optimizer.per_step > 0 for optimizer in measurement.optimizers) < 2


def _op(row: Mapping[str, Any], steps: float) -> Op:
    shapes = tuple(tuple(shape) for shape in row["shapes"])
    return Op(**{**row, "shapes": shapes, "count": row["count"] / steps})
