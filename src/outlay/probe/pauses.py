"""Evaluations that no timed step shows: after the timing, after the last step, before the first.

The timing of a probe ends while the script goes on: an evaluation at the end of an epoch may come
right after it, and a script may end with one. How long they take is what the process itself has
measured; how often they come is told by the steps between all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from outlay.measurement.measurement import MeasuredPause
from outlay.probe.agent.protocol import AfterLastStep
from outlay.probe.cycles import cycles_of
from outlay.probe.messages import ProcessLog
from outlay.probe.steps import LEAST_PAUSE, StepStatistics, classify_intervals

_BEYOND = 1.5
"""Of the timed steps: an only evaluation after more than so many is as rare as they say."""
_NOTED_S = 0.1
"""An evaluation before the first step that takes less is not worth a word."""
_LEAST_STEPS = 4
"""Steps that last as long as what may be the making of a model, not its evaluation."""


def pauses_with_late(
    statistics: StepStatistics, logs: Sequence[ProcessLog], optimizer_steps: int | None = None
) -> tuple[MeasuredPause, ...]:
    """The pauses of the timing, and evaluations that came after it."""
    late = [_late_evaluations(statistics, log, optimizer_steps) for log in logs]
    at, times_s = max(late, key=lambda found: sum(found[1]), default=((), ()))
    if not times_s:
        return statistics.pauses
    timed = next((p for p in statistics.pauses if p.kind == "evaluation"), None)
    evaluation = timed or MeasuredPause(kind="evaluation", times=0, total_s=0.0)
    evaluation = replace(
        evaluation,
        times=evaluation.times + len(times_s),
        total_s=evaluation.total_s + sum(times_s),
        every_steps=_every_steps(at, statistics.steps_seen),
    )
    others = [pause for pause in statistics.pauses if pause.kind != "evaluation"]
    return (evaluation, *others)


def _late_evaluations(
    statistics: StepStatistics, log: ProcessLog, optimizer_steps: int | None
) -> tuple[list[int], list[float]]:
    """After how many steps there was an evaluation, and the seconds of those after the timing."""
    cycles = cycles_of(log.table, optimizer_steps)
    if not len(cycles):
        return [], []
    least_s = LEAST_PAUSE * statistics.step.mean_s if statistics.step else 0.0
    reached = np.cumsum(cycles.steps)
    found = np.isfinite(classify_intervals(cycles).pause_s["evaluation"])
    is_late = found & (reached > statistics.steps_seen) & (cycles.evaluation_s > least_s)
    is_timed = found & (reached <= statistics.steps_seen)
    at, times_s = reached[is_timed | is_late].tolist(), cycles.evaluation_s[is_late].tolist()
    last = log.last(AfterLastStep)
    if last is not None and last.has_evaluated and last.evaluation_s > least_s:
        # Seen at the next step, were there one
        at, times_s = [*at, int(reached[-1]) + 1], [*times_s, last.evaluation_s]
    return at, times_s


def _every_steps(at: Sequence[int], timed_steps: int) -> float | None:
    """Steps from one to the next; of one alone those before it, where they are many more than were
    timed; None where the number of evaluations tells.
    """
    if len(at) > 1:
        return (at[-1] - at[0]) / (len(at) - 1)
    return float(at[0] - 1) if at[0] > _BEYOND * timed_steps else None


def _first_evaluation_s(log: ProcessLog) -> float:
    """Of what came before the first step of a process; 0 where it is no evaluation.

    Models are made and loaded without gradients and in evaluation mode, too: what has no batches of
    a loader and takes no longer than a few steps is that. Where no others came, the batches may be
    those of the first step, loaded before the model was put into training mode.
    """
    evaluation_s = float(log.table.column("evaluation_s")[0])
    ended_s = log.table.column("host_s")
    step_s = float(np.median(np.diff(ended_s))) if len(ended_s) > 1 else 0.0
    has_batches = log.table.column("evaluation_batches")[0] and log.table.column("batches")[0]
    return evaluation_s if has_batches or evaluation_s > _LEAST_STEPS * step_s else 0.0


def notes_on_first_evaluation(
    pauses: Sequence[MeasuredPause], logs: Sequence[ProcessLog]
) -> Iterator[str]:
    """Say that the script evaluates before its first step, and whether it did so later."""
    evaluation_s = max((_first_evaluation_s(log) for log in logs if len(log.table)), default=0.0)
    if evaluation_s < _NOTED_S:
        return
    words = f"It evaluates for {evaluation_s:.2g} s before its first step, which the start-up has."
    if any(pause.kind == "evaluation" for pause in pauses):
        yield words
    else:
        yield (
            f"{words} No other evaluation was seen, and a plan has none: probe until there is one,"
            " or say in a workload file how often it evaluates ([evaluation])."
        )
