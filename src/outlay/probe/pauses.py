"""Intervals that are no ordinary step: evaluations, checkpoints, new epochs, stalls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from outlay.measurement import Pause, PauseKind
from outlay.probe.agent.pausing import is_seldom
from outlay.probe.cycles import Cycles
from outlay.probe.table import Flags, Floats, Indices

SMALL = 0.05
"""Of a usual step: a checkpoint or an evaluation that takes less leaves it an ordinary one."""
LONGER = 0.25
"""Of a usual step, by which the first of an epoch must be longer, to count as a pause."""
FEW_EPOCHS = 3
"""So many starts of an epoch are pauses; of more, only those that are as long as a stall: short
epochs begin again and again, and that is how the script steps."""
STALL_STEPS = 5.0
STALL_S = 1.0
"""A stall is longer than five usual steps and than a second. Batches of different lengths and
loaders that deliver in bursts stay below the first; what is below the second is noise that a step
has to live with, and the confidence interval shows it."""
STALLS = 0.02
"""Of all intervals: what is long more often than one in fifty is how this script steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What each cycle's interval is, and how much of it is a pause."""

    usual_s: float
    """One step, by the median of the later half; NaN where there is none."""
    is_ordinary: Flags
    own_s: dict[PauseKind, Floats]
    """Seconds of a pause in each cycle, beyond the step itself; NaN where there was none."""


def told_apart(cycles: Cycles) -> Told:
    """Ordinary steps and pauses."""
    known = np.isfinite(cycles.length_s)
    evaluated, saved = evaluations(cycles), _if_seldom(cycles.saves > 0)
    begun = _if_seldom(cycles.new_epoch)
    usual_s, spread_s = _usual(cycles.length_s, known, ~(evaluated | saved | begun))
    own_s = np.maximum((cycles.length_s - usual_s) * cycles.steps, 0.0)
    evaluation = known & evaluated & (own_s > SMALL * usual_s)
    long_save = (cycles.saved_s >= SMALL * usual_s) | (own_s > usual_s / 2)
    checkpoint = known & saved & long_save
    epoch = known & begun & ~evaluation & ~checkpoint
    epoch &= own_s > max(LONGER * usual_s, 4 * spread_s)
    if begun.sum() > FEW_EPOCHS:
        epoch &= _is_stall(cycles.length_s, usual_s)
    # In an interval with both, what was not spent on writing went into the evaluation.
    writing_s = np.where(evaluation, np.minimum(cycles.saved_s, own_s), own_s)
    evaluating_s = np.where(checkpoint, own_s - writing_s, own_s)
    return Told(
        usual_s=usual_s,
        is_ordinary=known & ~evaluation & ~checkpoint & ~epoch,
        own_s={
            "evaluation": np.where(evaluation, evaluating_s, np.nan),
            "checkpoint": np.where(checkpoint, writing_s, np.nan),
            "epoch start": np.where(epoch, own_s, np.nan),
        },
    )


def evaluations(cycles: Cycles) -> Flags:
    """Which intervals had one: a model in evaluation mode, or most of the time no gradients.

    Each by itself: a teacher may compute without gradients in every step.
    """
    return _if_seldom(cycles.evaluated) | _if_seldom(cycles.gradless)


def _if_seldom(flags: Flags) -> Flags:
    """The flags; none where most have it: then it is part of every step."""
    return flags if is_seldom(int(flags.sum()), len(flags)) else np.zeros_like(flags)


def _usual(length_s: Floats, known: Flags, plain: Flags) -> tuple[float, float]:
    """Median and spread of plain intervals in the later half; of any, where none is plain."""
    candidates = length_s[known & plain] if (known & plain).any() else length_s[known]
    later = candidates[len(candidates) // 2 :]
    if not len(later):
        return float("nan"), float("nan")
    low, middle, high = np.percentile(later, [16, 50, 84])
    return float(middle), float(high - low) / 2


def are_stalls(intervals_s: Floats) -> Flags:
    """Which intervals of a steady state are unexplained outliers, where those are rare."""
    usual_s = float(np.median(intervals_s)) if len(intervals_s) else 0.0
    long = _is_stall(intervals_s, usual_s)
    is_rare = long.sum() <= max(1, STALLS * len(intervals_s))
    return long if is_rare else np.zeros_like(long)


def _is_stall(intervals_s: Floats, usual_s: float) -> Flags:
    return (intervals_s > STALL_STEPS * usual_s) & (intervals_s - usual_s > STALL_S)


def pauses_of(told: Told, stalls_s: Iterable[float], reached: Indices) -> tuple[Pause, ...]:
    """Pauses by kind, those that occurred; of stalls the whole intervals are given.

    `reached` are the steps made by the end of each cycle.
    """
    own_s: dict[PauseKind, Floats] = {
        **{kind: values[np.isfinite(values)] for kind, values in told.own_s.items()},
        "other": np.asarray([stall_s - told.usual_s for stall_s in stalls_s]),
    }
    return tuple(
        Pause(
            kind=kind,
            times=len(values),
            total_s=float(values.sum()),
            every_steps=_every_steps(told.own_s.get(kind), reached),
        )
        for kind, values in own_s.items()
        if len(values)
    )


def _every_steps(own_s: Floats | None, reached: Indices) -> float | None:
    """Steps from one pause to the next, on average; None for fewer than two, and for stalls, which
    come by chance.
    """
    at = reached[:0] if own_s is None else reached[np.isfinite(own_s)]
    return float(at[-1] - at[0]) / (len(at) - 1) if len(at) > 1 else None
