"""From what the processes tell to the step time of a `Measurement`, and whether that is enough.

table       records as columns, for each process
cycles      training steps from optimizer steps
pauses      evaluations, checkpoints, new epochs and stalls told apart from steps
steady      where warm-up ends, and the mean of the rest with its confidence
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.measurement.measurement import MeasuredPause, PauseKind, StepTime
from outlay.probe.agent.evaluations import is_seldom
from outlay.probe.cycles import Cycles, cycles_of, shared
from outlay.probe.messages import Flags, Floats, Indices, OptimizerStepTable
from outlay.probe.steady_state import (
    DRIFT,
    LEAST_BATCHES,
    Mean,
    drift_of,
    mean_of,
    period_of,
    warm_up_of,
)

# Intervals that are no ordinary step: evaluations, checkpoints, new epochs, stalls.


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
class IntervalKinds:
    """What each cycle's interval is, and how much of it is a pause."""

    usual_s: float
    """One step, by the median of the later half; NaN where there is none."""
    is_ordinary: Flags
    own_s: dict[PauseKind, Floats]
    """Seconds of a pause in each cycle, beyond the step itself; NaN where there was none."""


def classify_intervals(cycles: Cycles) -> IntervalKinds:
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
    return IntervalKinds(
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


def pauses_of(
    told: IntervalKinds, stalls_s: Iterable[float], reached: Indices
) -> tuple[MeasuredPause, ...]:
    """Pauses by kind, those that occurred; of stalls the whole intervals are given.

    `reached` are the steps made by the end of each cycle.
    """
    own_s: dict[PauseKind, Floats] = {
        **{kind: values[np.isfinite(values)] for kind, values in told.own_s.items()},
        "other": np.asarray([stall_s - told.usual_s for stall_s in stalls_s]),
    }
    return tuple(
        MeasuredPause(
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


STEPS_ENOUGH = 20
SECONDS_ENOUGH = 3.0
"""A clock that boosts or a neighbour that bothers shows only after a while."""
FEWER_STEPS_ENOUGH = 10
LONG_S = 60.0
"""From so many seconds of steady state on, fewer steps are enough: each is an average itself."""
PERIODS_ENOUGH = 4
DRIFT_LEFT = 0.003
"""Of the mean: what still drifts by more, and by more than a quarter of the wanted precision, has
about as much to come, as with a GPU that gets warm."""
_MOSTLY = 0.75


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """What the records of all processes say together; of the slowest one where only one can."""

    step: StepTime | None = None
    """None where fewer than two ordinary intervals were seen."""
    steps_seen: int = 0
    per_step: tuple[float, ...] = ()
    """How often each optimizer steps in a training step, by its number."""
    skipped: tuple[int, ...] = ()
    """Steps that a gradient scaler left out, by the optimizer that stepped next."""
    period: int = 1
    """Steps after which the pattern repeats, in optimizers or in time."""
    pattern: int = 1
    """Steps after which the order of optimizers and passes repeats."""
    is_regular: bool = True
    """Whether several optimizers take their turns in an order that repeats."""
    are_blocks: bool = False
    """Whether they step many times in a row each, so that each of their steps counts."""
    rank_cpus: tuple[float | None, ...] = ()
    """CPU seconds of each process for each second of its steady state."""
    batches: int = 0
    """Independent means that the confidence interval rests on."""
    earlier_precision: float | None = None
    """Of the mean of the first three quarters of the same steady state."""
    drift: float = 0.0
    """How far its later half is from its earlier, over the mean; 0 where that may be noise."""
    samples_per_step: float | None = None
    """Of the usual step, by its loaders."""
    mean_samples_per_step: float | None = None
    """Of all, those at the end of an epoch included that are cut short."""
    passes_per_step: float | None = None
    steps_per_epoch: float | None = None
    start_up_s: float | None = None
    warm_up_s: float | None = None
    wait_s: float | None = None
    """Waiting for DataLoaders in a step, on the rank that waits most; None where none were seen."""
    cpus: float | None = None
    """CPU seconds of one process for each second of the steady state."""
    steady_from_s: float | None = None
    steady_until_s: float | None = None
    """The steady state on the machine's clock, pauses in between included."""
    pauses: tuple[MeasuredPause, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rank:
    """One process: its cycles, and those of the steady state."""

    cycles: Cycles
    told: IntervalKinds
    steady: Indices
    """Cycles whose intervals count."""
    stalls: Indices
    """Cycles that were left out of it as outliers."""
    period: int = 1
    batches: int = 0
    drift: float = 0.0
    step: StepTime | None = None
    earlier_precision: float | None = None


def steps_of(
    ranks: Sequence[OptimizerStepTable],
    *,
    started_s: float | None = None,
    optimizer_steps_per_step: int | None = None,
) -> StepStatistics:
    """What was seen so far; `started_s` is when the command was, on the machine's clock."""
    cycles = shared([cycles_of(table, optimizer_steps_per_step) for table in ranks])
    seen = [_rank_of(one) for one in cycles if len(one)]
    if not seen:
        return StepStatistics()
    times_s = [rank.step.mean_s if rank.step else 0.0 for rank in seen]
    slowest = times_s.index(max(times_s))
    step = seen[slowest].step
    if step is not None:
        settled = all(rank.step is None or rank.step.is_steady for rank in seen)
        step = replace(step, is_steady=step.is_steady and settled)
    ranks_seen = [_alone(rank, started_s) for rank in seen]
    waits_s = [wait for wait in map(_wait_s, seen) if wait is not None]
    return replace(
        ranks_seen[slowest],
        step=step,
        mean_samples_per_step=_of_all(one.mean_samples_per_step for one in ranks_seen),
        # Where they have more or less data each, an epoch is over when the last one's is.
        steps_per_epoch=max(
            filter(None, (one.steps_per_epoch for one in ranks_seen)), default=None
        ),
        rank_cpus=tuple(_cpus(rank.cycles, rank.steady) for rank in seen),
        wait_s=max(waits_s, default=None),
    )


def _of_all(values: Iterable[float | None]) -> float | None:
    """Their mean; None where one is not known."""
    known = list(values)
    return None if None in known else sum(filter(None, known)) / len(known)


def _rank_of(cycles: Cycles) -> _Rank:
    told = classify_intervals(cycles)
    plain = _of_last_stage(np.flatnonzero(told.is_ordinary), cycles)
    dropped, settled = warm_up_of(cycles.length_s[plain])
    kept = plain[dropped:]
    stalled = are_stalls(cycles.length_s[kept])
    steady = kept[~stalled]
    rank = _Rank(cycles=cycles, told=told, steady=steady, stalls=kept[stalled])
    # A cycle in which steps were left out stands for all of them.
    values_s = np.repeat(cycles.length_s[steady], cycles.steps[steady])
    if len(plain) < 2 or not values_s.any():
        return rank
    period = period_of(values_s, cycles.period)
    mean = mean_of(values_s, period)
    drift = drift_of(values_s, period)
    is_steady = settled and mean.steps >= 3 and drift <= DRIFT
    return replace(
        rank,
        period=max(period, cycles.period),
        batches=mean.batches,
        drift=drift,
        step=_step_time(mean, values_s, int(cycles.steps[: steady[0]].sum()), is_steady),
        earlier_precision=mean_of(values_s[: len(values_s) * 3 // 4 or 1], period).precision,
    )


def _of_last_stage(plain: Indices, cycles: Cycles) -> Indices:
    """Those of the stage that goes on, once it has steps enough to tell."""
    last = plain[plain >= cycles.stage_from]
    return last if len(last) >= STEPS_ENOUGH else plain


def _step_time(mean: Mean, values_s: Floats, warm_up_steps: int, is_steady: bool) -> StepTime:
    low, middle, high = np.percentile(values_s[-mean.steps :], [10, 50, 90])
    return StepTime(
        mean_s=mean.mean_s,
        low_s=mean.low_s,
        high_s=mean.high_s,
        median_s=float(middle),
        p10_s=float(low),
        p90_s=float(high),
        steps=mean.steps,
        warm_up_steps=warm_up_steps,
        is_steady=is_steady,
    )


def _alone(rank: _Rank, started_s: float | None) -> StepStatistics:
    """What one process says."""
    cycles, steady = rank.cycles, rank.steady
    first_s = float(cycles.end_s[0])
    from_s = float(cycles.end_s[steady[0] - 1]) if len(steady) else None
    plain = np.flatnonzero(rank.told.is_ordinary)
    # With pauses: what a step has more of after one, another has less of (a batch loaded ahead).
    usual = np.arange(steady[0], steady[-1] + 1) if len(steady) else plain
    return StepStatistics(
        steps_seen=int(cycles.steps.sum()),
        per_step=cycles.per_step,
        skipped=cycles.skipped,
        period=rank.period,
        pattern=cycles.period,
        is_regular=cycles.is_regular,
        are_blocks=cycles.are_blocks,
        batches=rank.batches,
        earlier_precision=rank.earlier_precision,
        drift=rank.drift,
        samples_per_step=_typical(cycles.samples[usual] / cycles.steps[usual]),
        mean_samples_per_step=_mean(cycles.samples[usual], cycles.steps[usual]),
        passes_per_step=_passes(cycles, usual),
        steps_per_epoch=_steps_per_epoch(cycles),
        start_up_s=None if started_s is None else first_s - started_s,
        warm_up_s=None if from_s is None or rank.step is None else from_s - first_s,
        cpus=_cpus(cycles, steady),
        steady_from_s=from_s,
        steady_until_s=float(cycles.end_s[steady[-1]]) if len(steady) else None,
        pauses=pauses_of(rank.told, cycles.length_s[rank.stalls], np.cumsum(cycles.steps)),
    )


def _wait_s(rank: _Rank) -> float | None:
    cycles, steady = rank.cycles, rank.steady
    if not len(steady) or not cycles.batches.any():
        return None
    return float(cycles.wait_s[steady].sum() / cycles.steps[steady].sum())


def _cpus(cycles: Cycles, steady: Indices) -> float | None:
    used_s, wall_s = cycles.cpu_s[steady], cycles.host_length_s[steady]
    known = np.isfinite(used_s) & np.isfinite(wall_s)
    total_s = float(wall_s[known].sum())
    return float(used_s[known].sum()) / total_s if total_s > 0 else None


def _typical(values: Floats) -> float | None:
    """The value most have, or the mean of values that vary; None where not known."""
    known = values[np.isfinite(values)]
    if not known.any():
        return None
    middle = float(np.median(known))
    # What comes in one of many steps (a large batch that is cut up) is nothing in most of them.
    is_usual = middle > 0 and (known == middle).mean() >= _MOSTLY
    return middle if is_usual else float(known.mean())


def _mean(amounts: Floats, steps: Indices) -> float | None:
    total = float(amounts.sum())
    return total / float(steps.sum()) if np.isfinite(total) and total > 0 else None


def _passes(cycles: Cycles, usual: Indices) -> float | None:
    """Batches in a step by its loaders, or backward passes; None where that may be losses of a GAN.

    With one optimizer, fewer backward passes than batches mean loaders side by side.
    """
    batches = _typical(cycles.batches[usual] / cycles.steps[usual])
    passes = _typical(cycles.passes[usual] / cycles.steps[usual])
    if batches is not None and batches < 1:  # one for several steps, which cut it up
        batches = None
    if sum(often > 0 for often in cycles.per_step) > 1:
        return batches
    known = [value for value in (batches, passes) if value is not None]
    return min(known, default=None)


def _steps_per_epoch(cycles: Cycles) -> float | None:
    """Steps between starts of a DataLoader, those with an evaluation only where no others are.

    In an evaluation a loader of its own is started, too, and may be in the middle of an epoch.
    """
    reached = np.cumsum(cycles.steps)
    starts = np.flatnonzero(cycles.own_epoch)
    training = starts[~evaluations(cycles)[starts] | (starts == 0)]
    chosen = training if len(training) > 1 else starts
    # A script that starts a loader anew in every step has no epochs to speak of.
    if len(chosen) < 2 or cycles.own_epoch.mean() > 0.5:
        return None
    each = np.diff(reached[chosen])
    return float(np.median(each[1:] if len(each) > 1 else each))  # the first may be a resumed one


def enough(
    seen: StepStatistics,
    before: StepStatistics | None,
    precision: float,
    *,
    seconds: float = SECONDS_ENOUGH,
) -> bool:
    """Whether two looks in a row show the mean as well known as wanted, after some seconds of it.

    One look alone stops too early too often: it takes the first time that chance makes the
    variance small. The second must have seen more, and both rest on ten batches and on whole
    periods.
    """
    if before is None or before.step is None or seen.step is None:
        return False
    if seen.step.steps <= before.step.steps:
        return False
    return all(_is_precise(look, precision, seconds) for look in (before, seen))


def _is_precise(seen: StepStatistics, precision: float, seconds: float) -> bool:
    step = seen.step
    earlier = seen.earlier_precision
    if step is None or earlier is None or not step.is_steady:
        return False
    if max(step.precision, earlier) > precision or seen.drift > max(precision / 4, DRIFT_LEFT):
        return False
    counted_s = step.mean_s * step.steps
    many = step.steps >= STEPS_ENOUGH and counted_s >= seconds
    long = step.steps >= FEWER_STEPS_ENOUGH and counted_s >= LONG_S
    pattern = step.steps >= PERIODS_ENOUGH * seen.period
    return (many or long) and pattern and seen.batches >= LEAST_BATCHES
