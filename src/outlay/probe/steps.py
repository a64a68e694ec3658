"""From the step tables of processes to the step time of a `Measurement`, and if that is enough.

Intervals   evaluations, checkpoints, new epochs and stalls told apart from ordinary steps
Statistics  `steps_of` all processes: the step time with its confidence, samples, waits, pauses
Size        samples and passes of a step: as the user says, by loaders, by the inputs of modules
Enough      whether the step time is known as well as it should be

`messages` has the tables, `cycles` makes training steps of optimizer steps, `steady_state` says
where warm-up ends and how well the mean of the rest is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.measurement.measurement import MeasuredPause, PauseKind, StepModes, StepTime
from outlay.probe.agent.evaluations import is_occasional
from outlay.probe.agent.protocol import ModuleInputs, RecordedOperations, StepOperations
from outlay.probe.cycles import Cycles, Order, cycles_of, share_pauses
from outlay.probe.messages import Flags, Floats, Indices, OptimizerStepTable, ProcessLog
from outlay.probe.steady_state import (
    DRIFT,
    LEAST_BATCHES,
    MeanInterval,
    drift_of,
    mean_interval,
    period_of,
    warm_up_of,
)

# Intervals

LEAST_PAUSE = 0.05
"""Of a usual step: a checkpoint or an evaluation that takes less leaves it an ordinary one."""
LEAST_EPOCH_PAUSE = 0.25
"""Of a usual step, by which the first of an epoch must be longer, to count as a pause."""
FEW_EPOCHS = 3
"""So many starts of an epoch are pauses; of more, only those that are as long as a stall: short
epochs begin again and again, and that is how the script steps."""
STALL_STEPS = 5.0
STALL_S = 1.0
"""A stall is longer than five usual steps and than a second. Batches of different lengths and
loaders that deliver in bursts stay below the first; what is below the second is noise that a step
has to live with, and the confidence interval shows it."""
STALL_FRACTION = 0.02
"""Of all intervals: what is long more often than one in fifty is how this script steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalKinds:
    """What each cycle's interval is, and how much of it is a pause."""

    usual_s: float
    """One step, by the median of the later half; NaN where there is none."""
    is_ordinary: Flags
    pause_s: dict[PauseKind, Floats]
    """Seconds of a pause in each cycle, beyond the step itself; NaN where there was none."""


def classify_intervals(cycles: Cycles) -> IntervalKinds:
    """Ordinary steps and pauses."""
    known = np.isfinite(cycles.length_s)
    evaluated, saved = evaluations(cycles), _if_occasional(cycles.saves > 0)
    begun = _if_occasional(cycles.new_epoch)
    usual_s, spread_s = _usual_and_spread(cycles.length_s, known, ~(evaluated | saved | begun))
    excess_s = np.maximum((cycles.length_s - usual_s) * cycles.steps, 0.0)
    evaluation = known & evaluated & (excess_s > LEAST_PAUSE * usual_s)
    long_save = (cycles.saved_s >= LEAST_PAUSE * usual_s) | (excess_s > usual_s / 2)
    checkpoint = known & saved & long_save
    epoch = known & begun & ~evaluation & ~checkpoint
    epoch &= excess_s > max(LEAST_EPOCH_PAUSE * usual_s, 4 * spread_s)
    if begun.sum() > FEW_EPOCHS:
        epoch &= _is_stall(cycles.length_s, usual_s)
    # In an interval with both, what was not spent on writing went into the evaluation.
    writing_s = np.where(evaluation, np.minimum(cycles.saved_s, excess_s), excess_s)
    evaluating_s = np.where(checkpoint, excess_s - writing_s, excess_s)
    # Of an interval whose length says nothing, as while operations are recorded, the process's own.
    own = ~known & (np.arange(len(known)) > 0)
    own_evaluation = own & evaluated & (cycles.evaluation_s > LEAST_PAUSE * usual_s)
    own_checkpoint = own & saved & (cycles.saved_s >= LEAST_PAUSE * usual_s)
    evaluating_s = np.where(own_evaluation, cycles.evaluation_s, evaluating_s)
    writing_s = np.where(own_checkpoint, cycles.saved_s, writing_s)
    return IntervalKinds(
        usual_s=usual_s,
        is_ordinary=known & ~evaluation & ~checkpoint & ~epoch,
        pause_s={
            "evaluation": np.where(evaluation | own_evaluation, evaluating_s, np.nan),
            "checkpoint": np.where(checkpoint | own_checkpoint, writing_s, np.nan),
            "epoch start": np.where(epoch, excess_s, np.nan),
        },
    )


def evaluations(cycles: Cycles) -> Flags:
    """Which intervals had one: a model in evaluation mode, most of the time no gradients, or
    batches of a loader that is not trained on.

    Each by itself: a teacher may compute without gradients in every step. A copy of the model that
    is in evaluation mode for good may be evaluated in less time than a step takes.
    """
    in_modes = _if_occasional(cycles.evaluated) | _if_occasional(cycles.mostly_no_grad)
    return in_modes | _if_occasional(cycles.evaluation_batches > 0)


def _if_occasional(flags: Flags) -> Flags:
    """The flags; none where most are set: then what they mean is part of every step."""
    return flags if is_occasional(int(flags.sum()), len(flags)) else np.zeros_like(flags)


def _usual_and_spread(length_s: Floats, known: Flags, plain: Flags) -> tuple[float, float]:
    """Median and spread of plain intervals in the later half; of any, where none is plain."""
    candidates = length_s[known & plain] if (known & plain).any() else length_s[known]
    later = candidates[len(candidates) // 2 :]
    if not len(later):
        return float("nan"), float("nan")
    return _median_and_spread(later)


def are_stalls(intervals_s: Floats) -> Flags:
    """Which intervals of a steady state are unexplained outliers, where those are rare."""
    usual_s = float(np.median(intervals_s)) if len(intervals_s) else 0.0
    is_long = _is_stall(intervals_s, usual_s)
    is_rare = is_long.sum() <= max(1, STALL_FRACTION * len(intervals_s))
    return is_long if is_rare else np.zeros_like(is_long)


def _is_stall(intervals_s: Floats, usual_s: float) -> Flags:
    return (intervals_s > STALL_STEPS * usual_s) & (intervals_s - usual_s > STALL_S)


def pauses_of(
    kinds: IntervalKinds, stalls_s: Iterable[float], reached: Indices
) -> tuple[MeasuredPause, ...]:
    """Pauses by kind, those that occurred; `stalls_s` are whole intervals.

    `reached` are the steps made by the end of each cycle.
    """
    pause_s: dict[PauseKind, Floats] = {
        **{kind: values[np.isfinite(values)] for kind, values in kinds.pause_s.items()},
        "other": np.asarray([stall_s - kinds.usual_s for stall_s in stalls_s]),
    }
    return tuple(
        MeasuredPause(
            kind=kind,
            times=len(values),
            total_s=float(values.sum()),
            every_steps=_every_steps(kinds.pause_s.get(kind), reached),
        )
        for kind, values in pause_s.items()
        if len(values)
    )


def _every_steps(pause_s: Floats | None, reached: Indices) -> float | None:
    """Steps from one pause to the next, on average; None for fewer than two, and for stalls, which
    come by chance.
    """
    at = reached[:0] if pause_s is None else reached[np.isfinite(pause_s)]
    return float(at[-1] - at[0]) / (len(at) - 1) if len(at) > 1 else None


# Statistics

STEPS_ENOUGH = 20
_MOSTLY = 0.75
_RECENT = 4096
"""Steps at the end in which two lengths are looked for."""
_REPEATING = 0.95
# Assumes: of steps that take turns, one in twenty may be slow for another reason.


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStatistics:
    """The steps of all processes together; of the slowest one where only one can count."""

    step: StepTime | None = None
    """None where there were fewer than two ordinary intervals."""
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
    orders: tuple[tuple[Order, float], ...] = ()
    """Orders in which optimizers step within a training step, with the share of each."""
    modes: StepModes | None = None
    """The two lengths of steps, where there are two clear groups of them."""
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
    batches_per_step: float | None = None
    """Of all loaders, a mean; None where there are none. Below 1 where steps share a batch."""
    steps_per_epoch: float | None = None
    start_up_s: float | None = None
    warm_up_s: float | None = None
    wait_s: float | None = None
    """Waiting for DataLoaders in a step, on the rank that waits most; None where there are none."""
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
    kinds: IntervalKinds
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
    """The statistics so far; `started_s` is when the command was started, on the machine's clock.

    `ranks` are the tables of the processes that train together.
    """
    all_cycles = share_pauses([cycles_of(table, optimizer_steps_per_step) for table in ranks])
    timed = [_rank_of(cycles) for cycles in all_cycles if len(cycles)]
    if not timed:
        return StepStatistics()
    times_s = [rank.step.mean_s if rank.step else 0.0 for rank in timed]
    slowest = times_s.index(max(times_s))
    step = timed[slowest].step
    if step is not None:
        settled = all(rank.step is None or rank.step.is_steady for rank in timed)
        step = replace(step, is_steady=step.is_steady and settled)
    each_rank = [_rank_statistics(rank, started_s) for rank in timed]
    waits_s = [wait for wait in map(_wait_s, timed) if wait is not None]
    epochs = [rank.steps_per_epoch for rank in each_rank if rank.steps_per_epoch]
    return replace(
        each_rank[slowest],
        step=step,
        mean_samples_per_step=_mean_of_all(rank.mean_samples_per_step for rank in each_rank),
        # Where they have more or less data each, an epoch is over when the last one's is.
        steps_per_epoch=max(epochs, default=None),
        rank_cpus=tuple(_cpus(rank.cycles, rank.steady) for rank in timed),
        wait_s=max(waits_s, default=None),
    )


def _mean_of_all(values: Iterable[float | None]) -> float | None:
    """Their mean; None where one is not known."""
    known = list(values)
    return None if None in known else sum(filter(None, known)) / len(known)


def _rank_of(cycles: Cycles) -> _Rank:
    kinds = classify_intervals(cycles)
    ordinary = _of_last_stage(np.flatnonzero(kinds.is_ordinary), cycles)
    dropped, settled = warm_up_of(cycles.length_s[ordinary])
    rest = ordinary[dropped:]
    is_stall = are_stalls(cycles.length_s[rest])
    steady = rest[~is_stall]
    rank = _Rank(cycles=cycles, kinds=kinds, steady=steady, stalls=rest[is_stall])
    # A cycle in which steps were left out stands for all of them.
    values_s = np.repeat(cycles.length_s[steady], cycles.steps[steady])
    if len(ordinary) < 2 or not values_s.any():
        return rank
    period = period_of(values_s, cycles.period)
    mean = mean_interval(values_s, period)
    drift = drift_of(values_s, period)
    is_steady = settled and mean.steps >= 3 and drift <= DRIFT
    return replace(
        rank,
        period=max(period, cycles.period),
        batches=mean.batches,
        drift=drift,
        step=_step_time(mean, values_s, int(cycles.steps[: steady[0]].sum()), is_steady),
        earlier_precision=mean_interval(_three_quarters(values_s), period).precision,
    )


def _three_quarters(values: Floats) -> Floats:
    """The first ones; one at least."""
    return values[: len(values) * 3 // 4 or 1]


def _of_last_stage(ordinary: Indices, cycles: Cycles) -> Indices:
    """Those of the stage that goes on, once it has steps enough."""
    last = ordinary[ordinary >= cycles.stage_from]
    return last if len(last) >= STEPS_ENOUGH else ordinary


def _step_time(
    mean: MeanInterval, values_s: Floats, warm_up_steps: int, is_steady: bool
) -> StepTime:
    p10, median, p90 = np.percentile(values_s[-mean.steps :], [10, 50, 90])
    return StepTime(
        mean_s=mean.mean_s,
        low_s=mean.low_s,
        high_s=mean.high_s,
        median_s=float(median),
        p10_s=float(p10),
        p90_s=float(p90),
        steps=mean.steps,
        warm_up_steps=warm_up_steps,
        is_steady=is_steady,
    )


def _rank_statistics(rank: _Rank, started_s: float | None) -> StepStatistics:
    """The statistics of one process."""
    cycles, steady = rank.cycles, rank.steady
    first_s = float(cycles.end_s[0])
    from_s = float(cycles.end_s[steady[0] - 1]) if len(steady) else None
    ordinary = np.flatnonzero(rank.kinds.is_ordinary)
    # With pauses: what a step has more of after one, another has less of (a batch loaded ahead).
    usual = np.arange(steady[0], steady[-1] + 1) if len(steady) else ordinary
    return StepStatistics(
        steps_seen=int(cycles.steps.sum()),
        per_step=cycles.per_step,
        skipped=cycles.skipped,
        period=rank.period,
        pattern=cycles.period,
        is_regular=cycles.is_regular,
        are_blocks=cycles.are_blocks,
        orders=cycles.orders,
        modes=step_modes(cycles.length_s, steady, cycles.wait_s / cycles.steps),
        batches=rank.batches,
        earlier_precision=rank.earlier_precision,
        drift=rank.drift,
        samples_per_step=_typical(cycles.samples[usual] / cycles.steps[usual]),
        mean_samples_per_step=_mean(cycles.samples[usual], cycles.steps[usual]),
        passes_per_step=_passes(cycles, usual),
        batches_per_step=_mean(cycles.batches[usual], cycles.steps[usual]),
        steps_per_epoch=_steps_per_epoch(cycles),
        start_up_s=None if started_s is None else first_s - started_s,
        warm_up_s=None if from_s is None or rank.step is None else from_s - first_s,
        cpus=_cpus(cycles, steady),
        steady_from_s=from_s,
        steady_until_s=float(cycles.end_s[steady[-1]]) if len(steady) else None,
        pauses=pauses_of(rank.kinds, cycles.length_s[rank.stalls], np.cumsum(cycles.steps)),
    )


LEAST_OF_A_MODE = 0.2
"""Of all steps: fewer are a penalty now and then or a step that was held up, no second kind."""
_LEAST_RATIO = 1.4
"""Of the two lengths: what differs by less may be noise, and changes no bill by much."""
_APART = 5.0
# Assumes: of the two halves of one normal distribution D is 2.2, of a uniform one 2.9.
_LONGEST_TURN = 8


def step_modes(length_s: Floats, steady: Indices, wait_s: Floats) -> StepModes | None:
    """The two lengths that steady steps have; None where there are no two clear groups.

    None also where the longer ones wait for loaders, as workers that deliver in bursts make them.

    Parted where the variance between the groups is largest (Otsu 1979, IEEE Transactions on
    Systems, Man, and Cybernetics 9, 62-66). They are apart by Ashman's D = |m1 - m2| / sqrt((s1^2 +
    s2^2) / 2) (Ashman, Bird and Zepf 1994, Astronomical Journal 108, 2348), with medians, and half
    the range of the middle 68 % as spread.
    """
    values_s = np.sort(length_s[steady[-_RECENT:]])
    count = len(values_s)
    if count < STEPS_ENOUGH:
        return None
    least = math.ceil(LEAST_OF_A_MODE * count)
    places = np.arange(least, count - least + 1)
    total_s = np.cumsum(values_s)
    difference_s = (total_s[-1] - total_s[places - 1]) / (count - places) - (
        total_s[places - 1] / places
    )
    place = int(places[np.argmax(places * (count - places) * difference_s**2)])
    (fast_s, fast_spread_s), (slow_s, slow_spread_s) = map(
        _median_and_spread, (values_s[:place], values_s[place:])
    )
    spread_s = math.sqrt((fast_spread_s**2 + slow_spread_s**2) / 2)
    if slow_s < _LEAST_RATIO * fast_s or slow_s - fast_s < _APART * spread_s:
        return None
    is_long = length_s[steady] >= values_s[place]
    longer_wait_s = wait_s[steady][is_long].mean() - wait_s[steady][~is_long].mean()
    if longer_wait_s > (slow_s - fast_s) / 2:
        return None
    is_slow = np.full(len(length_s), np.nan)
    is_slow[steady] = is_long
    return StepModes(
        fast_s=fast_s,
        slow_s=slow_s,
        slow_fraction=(count - place) / count,
        period=_turn_of(is_slow[-_RECENT:]),
    )


def _median_and_spread(values: Floats) -> tuple[float, float]:
    low, median, high = np.percentile(values, [16, 50, 84])
    return float(median), float(high - low) / 2


def _turn_of(is_slow: Floats) -> int | None:
    """Steps after which the same kind comes again, pauses apart; None where it does not."""
    for period in range(2, _LONGEST_TURN + 1):
        before, after = is_slow[:-period], is_slow[period:]
        known = np.isfinite(before) & np.isfinite(after)
        if known.sum() >= STEPS_ENOUGH / 2 and (before == after)[known].mean() >= _REPEATING:
            return period
    return None


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
    median = float(np.median(known))
    # What comes in one of many steps (a large batch that is cut up) is nothing in most of them.
    is_usual = median > 0 and (known == median).mean() >= _MOSTLY
    return median if is_usual else float(known.mean())


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
    if sum(times > 0 for times in cycles.per_step) > 1:
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
    lengths = np.diff(reached[chosen])
    # The first may be a resumed one.
    return float(np.median(lengths[1:] if len(lengths) > 1 else lengths))


# Size


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSizeOverride:
    """What the user says of a step's size; None where what is measured counts."""

    batch_size: int | None = None
    """Samples of one pass."""
    samples_per_step: int | None = None
    """Samples of a whole training step."""


NO_OVERRIDE = StepSizeOverride()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """Samples of a training step, and in how many passes they are."""

    samples: float | None = None
    passes: float | None = None

    @property
    def samples_per_pass(self) -> float | None:
        """Samples of one pass."""
        return None if self.samples is None else self.samples / (self.passes or 1.0)


def step_size(statistics: StepStatistics, log: ProcessLog, override: StepSizeOverride) -> StepSize:
    """What counts for a step, the user's word first."""
    size = _measured_size(statistics, log)
    if override.samples_per_step is not None:
        return StepSize(samples=float(override.samples_per_step), passes=size.passes)
    if override.batch_size is not None:
        return StepSize(samples=override.batch_size * (size.passes or 1.0), passes=size.passes)
    return size


def _measured_size(statistics: StepStatistics, log: ProcessLog) -> StepSize:
    inputs, operations = log.last(ModuleInputs) or ModuleInputs(), log.last(RecordedOperations)
    if statistics.samples_per_step is not None:
        passes = _loaded_passes(statistics, inputs)
        return StepSize(samples=statistics.samples_per_step, passes=passes)
    if inputs.singles:
        counts = one_by_one(log)
        return StepSize(samples=sum(counts) / len(counts), passes=1.0)
    if inputs.inputs and has_one_optimizer(statistics):
        return _size_by_inputs(statistics, inputs)
    recordings = [operations] if operations else log.all(StepOperations)
    recorded = [each.recording["rows"] for each in recordings if each.recording.get("rows")]
    rows = inputs.samples or (recorded[0] if recorded else None)
    passes = statistics.passes_per_step
    return StepSize(samples=float(rows) * (passes or 1.0) if rows else None, passes=passes)


def one_by_one(log: ProcessLog) -> list[int]:
    """Samples that a model got one at a time, in each of the steps looked at."""
    return [inputs.rows for inputs in log.all(ModuleInputs) if inputs.singles]


def has_one_optimizer(statistics: StepStatistics) -> bool:
    """Whether one optimizer makes a training step; else each may have batches of its own."""
    return sum(times > 0 for times in statistics.per_step) < 2


def _loaded_passes(statistics: StepStatistics, inputs: ModuleInputs) -> float | None:
    """Batches of loaders; the parts of them where modules got each of them in several."""
    passes = statistics.passes_per_step
    if passes is None or not has_one_optimizer(statistics) or not is_cut_up(inputs):
        return passes
    return passes * float(inputs.inputs) / float(inputs.batches)


def is_cut_up(inputs: ModuleInputs) -> bool:
    """Whether the batches of a step went through the model in more parts, all of their samples."""
    has_more = bool(inputs.batches) and inputs.inputs > inputs.batches
    return has_more and inputs.rows == inputs.loaded


def _size_by_inputs(statistics: StepStatistics, inputs: ModuleInputs) -> StepSize:
    """By the inputs of one step of one optimizer.

    Where each pass had one of its own, as many as a step has passes; else (SAM, L-BFGS, several
    losses of one forward pass) as many as there were, however many passes a step makes of them.
    """
    count, passes = float(inputs.inputs), statistics.passes_per_step
    if inputs.passes > count and passes is not None:
        passes = count * max(round(passes / inputs.passes), 1)
    return StepSize(samples=inputs.rows / count * (passes or 1.0) or None, passes=passes)


# Enough

SECONDS_ENOUGH = 3.0
"""A clock that boosts or a neighbour that bothers shows only after a while."""
FEWER_STEPS_ENOUGH = 10
LONG_S = 60.0
"""From so many seconds of steady state on, fewer steps are enough: each is an average itself."""
PERIODS_ENOUGH = 4
REMAINING_DRIFT = 0.003
"""Of the mean: what still drifts by more, and by more than a quarter of the wanted precision, has
about as much to come, as with a GPU that gets warm."""


def is_enough(
    statistics: StepStatistics,
    before: StepStatistics | None,
    precision: float,
    *,
    seconds: float = SECONDS_ENOUGH,
) -> bool:
    """Whether the mean is as well known as wanted, now and when it was worked out before.

    Once alone stops too early too often: at the first time that chance makes the variance small.
    The second time must have more steps, and both rest on ten batches and on whole periods.
    """
    if before is None or before.step is None or statistics.step is None:
        return False
    if statistics.step.steps <= before.step.steps:
        return False
    return all(_is_precise(each, precision, seconds) for each in (before, statistics))


def _is_precise(statistics: StepStatistics, precision: float, seconds: float) -> bool:
    step = statistics.step
    earlier = statistics.earlier_precision
    if step is None or earlier is None or not step.is_steady:
        return False
    if statistics.drift > max(precision / 4, REMAINING_DRIFT):
        return False
    if max(step.precision, earlier) > precision:
        return False
    counted_s = step.mean_s * step.steps
    is_many = step.steps >= STEPS_ENOUGH and counted_s >= seconds
    is_long = step.steps >= FEWER_STEPS_ENOUGH and counted_s >= LONG_S
    has_periods = step.steps >= PERIODS_ENOUGH * statistics.period
    return (is_many or is_long) and has_periods and statistics.batches >= LEAST_BATCHES
