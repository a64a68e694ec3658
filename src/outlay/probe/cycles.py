"""Training steps from optimizer steps: `cycles_of` the table of a process.

A script with one optimizer makes a training step of each of its steps. With several (a GAN) a
training step is a cycle: it ends when its leader steps again after another has stepped, so that
D G D G are two cycles, D D D D D G is one, and D D G G is one like D G (a penalty now and then).
The leader is the optimizer that takes most turns and whose cycles are alike: the shortest is in all
of them (P Q and P Q A: an actor that steps every other time). G does not lead D D G M S G, which
would be cut into G M S and G D D; D does, with the whole of it as one cycle. Where loaders give a
batch to one of several cycles that differ, those that share it are one. An optimizer that steps
more seldom than one in 32 of the most frequent one leads no cycle. Where each steps many times in a
row (folds and stages one after the other, or blocks by turns), every step of theirs is a training
step. Where one optimizer steps again with no backward pass in between, it updates the rest of its
parameters (group by group, as ZeRO does) and the step goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from outlay.probe.messages import Flags, Floats, Indices, OptimizerStepTable

RARE = 32
"""An optimizer that steps less often than one in so many defines no cycles."""
LONGEST_PERIOD = 32
"""Cycles after which a pattern of optimizer steps and passes is looked for to repeat."""
MOST_UPDATES = 64
"""Of one optimizer in one step: groups of parameters, one for each layer with a rate of its own."""
IN_A_ROW = 8
"""Steps of each optimizer, more than which in a row are no cycle with the others."""
_REPEATING = 0.97
# Assumes: up to 3 % of cycles stray from a pattern (the end of an epoch, a skipped step).
_TAIL = 64
"""Records at the end that are used at least, to find out which optimizer leads."""
_LEAST_IRREGULAR = 16
"""Cycles from which on an order that does not repeat is called irregular."""
_RECENT = 4096
"""Cycles at the end in which a pattern is looked for, and records by which a leader is found."""
_SHARING_A_BATCH = 8
"""Cycles, no more than which are made one because they have one batch of a loader together."""
_LONGEST_ORDER = 64
"""Optimizer steps after which their order is looked for to repeat, where nobody leads."""
_MOST_ORDERS = 4
_MOSTLY = 0.9
"""Of cycles: where so many have one order, it repeats, whatever some do otherwise."""

Order = tuple[int, ...]
"""Optimizers by their numbers, as they step one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cycles:
    """Training steps of one process in order, a value each; the first has no length."""

    end_s: Floats
    """When each ended, on the machine's clock."""
    length_s: Floats
    """Since the one before had ended, for one step of it; NaN where that is not known."""
    host_length_s: Floats
    """The same by the machine's clock and for all steps of it, even where the GPU's is known."""
    steps: Indices
    """Training steps in it: 1, and one more for each that a gradient scaler left out."""
    passes: Floats
    batches: Floats
    samples: Floats
    """NaN where they were not counted."""
    wait_s: Floats
    cpu_s: Floats
    evaluated: Flags
    mostly_no_grad: Flags
    evaluation_batches: Floats
    """Of loaders that are not trained on."""
    evaluation_s: Floats
    """In evaluation mode or without gradients, as the process itself has measured it."""
    saves: Floats
    saved_s: Floats
    new_epoch: Flags
    own_epoch: Flags
    """Of this rank; `new_epoch` is of any."""
    per_step: tuple[float, ...] = ()
    """How often each optimizer of the script steps in one training step."""
    skipped: tuple[int, ...] = ()
    """Steps that a gradient scaler left out before a step of each optimizer."""
    period: int = 1
    """Cycles after which the pattern of optimizer steps and passes repeats."""
    is_regular: bool = True
    """Whether optimizers take their turns in an order that repeats."""
    are_blocks: bool = False
    """Whether each optimizer steps many times in a row, and each of its steps is one of these."""
    orders: tuple[tuple[Order, float], ...] = ()
    """The orders in which optimizers stepped in a cycle, and the share of cycles that had each, the
    most frequent first; not of blocks."""
    stage_from: int = 0
    """The first of the last stage, where optimizers follow each other and none comes back."""

    def __len__(self) -> int:
        return len(self.end_s)


def cycles_of(table: OptimizerStepTable, optimizer_steps_per_step: int | None = None) -> Cycles:
    """The training steps in a process's records, as far as their times are known."""
    count = _timed_records(table)
    optimizer = table.column("optimizer")[:count].astype(np.int64)
    if optimizer_steps_per_step is None:
        # Those of stages that are over step no more, but their steps were made.
        is_defining = np.ones(count, bool) if _are_blocks(optimizer) else _is_defining(optimizer)
        ends = _ends(table, optimizer, is_defining)
        if _are_blocks(optimizer[is_defining]):
            return _in_blocks(_summed(table, ends, is_defining), optimizer[ends])
    else:
        is_defining = np.ones(count, bool)
        ends = np.arange(optimizer_steps_per_step - 1, count, optimizer_steps_per_step)
    return _summed(table, ends, is_defining)


def share_pauses(ranks: list[Cycles]) -> list[Cycles]:
    """All ranks with each other's evaluations and checkpoints, for which all of them wait."""
    count = min(map(len, ranks), default=0)
    if len(ranks) < 2 or not count:
        return ranks
    evaluated = np.any([rank.evaluated[:count] for rank in ranks], axis=0)
    no_grad = np.any([rank.mostly_no_grad[:count] for rank in ranks], axis=0)
    loaded = np.max([rank.evaluation_batches[:count] for rank in ranks], axis=0)
    new_epoch = np.any([rank.new_epoch[:count] for rank in ranks], axis=0)
    evaluation_s = np.max([rank.evaluation_s[:count] for rank in ranks], axis=0)
    saves = np.max([rank.saves[:count] for rank in ranks], axis=0)
    saved_s = np.max([rank.saved_s[:count] for rank in ranks], axis=0)
    return [
        replace(
            rank,
            evaluated=np.concatenate([evaluated, rank.evaluated[count:]]),
            mostly_no_grad=np.concatenate([no_grad, rank.mostly_no_grad[count:]]),
            evaluation_batches=np.concatenate([loaded, rank.evaluation_batches[count:]]),
            new_epoch=np.concatenate([new_epoch, rank.new_epoch[count:]]),
            evaluation_s=np.concatenate([evaluation_s, rank.evaluation_s[count:]]),
            saves=np.concatenate([saves, rank.saves[count:]]),
            saved_s=np.concatenate([saved_s, rank.saved_s[count:]]),
        )
        for rank in ranks
    ]


def _timed_records(table: OptimizerStepTable) -> int:
    """Leading records whose time is known: on a GPU it comes later than the record."""
    timed = np.flatnonzero(np.isfinite(table.column("device_s")))
    return int(timed[-1]) + 1 if len(timed) else len(table)


def _is_defining(optimizer: Indices) -> Flags:
    """Which records are of an optimizer that steps often enough to define cycles.

    By the later half alone: in a first phase there may be one optimizer that trains by itself.
    """
    if not len(optimizer):
        return np.zeros(0, bool)
    times = np.bincount(_tail(optimizer), minlength=int(optimizer.max()) + 1)
    is_frequent: Flags = times * RARE >= times.max()
    return is_frequent[optimizer]


def _tail(values: Indices) -> Indices:
    return values[max(0, min(len(values) // 2, len(values) - _TAIL)) :]


def _ends(table: OptimizerStepTable, optimizer: Indices, is_defining: Flags) -> Indices:
    """The last record of every cycle that is over."""
    place = np.flatnonzero(is_defining)
    order = optimizer[place]
    if len(order) == 0 or (order == order[0]).all():
        return _last_updates(table, place)
    if _are_blocks(order):
        return place
    starts = _starts(order, table.column("batches")[place], table.column("passes")[place])
    return place[starts[starts > 0] - 1]


def _starts(order: Indices, batches: Floats, passes: Floats) -> Indices:
    """Where cycles of several optimizers begin: with the first leader whose cycles are alike."""
    starts_run = _starts_run(order)
    for leader in _leaders(order, starts_run, batches):
        starts = np.flatnonzero(starts_run & (order == leader))
        if _are_alike(order, starts) or _are_symmetric(starts, batches, passes):
            return _aligned(order, _with_batch(order, starts, batches), batches)
    period = _order_period(order)
    if period is not None:
        return _every(period, order, batches)
    return np.flatnonzero(starts_run & (order == next(_leaders(order, starts_run, batches))))


def _starts_run(order: Indices) -> Flags:
    """Which records begin a run of one optimizer."""
    return np.concatenate([[True], order[1:] != order[:-1]])[: len(order)]


def _are_blocks(order: Indices) -> bool:
    """Whether several optimizers step many times in a row each; the run that goes on is left out.

    A first phase of one alone (a critic that trains ahead) is one run among its later ones.
    """
    starts = np.flatnonzero(_starts_run(order))
    lengths, owners = np.diff(starts), order[starts[:-1]]
    return len(lengths) > 0 and all(
        np.median(lengths[owners == owner]) > IN_A_ROW for owner in np.unique(owners)
    )


def _in_blocks(cycles: Cycles, order: Indices) -> Cycles:
    """Steps of optimizers that follow each other, each for a while."""
    starts = np.flatnonzero(_starts_run(order))
    has_returned = len(np.unique(order)) < len(starts)
    stage_from = 0 if has_returned else int(starts[-1])
    counts = np.bincount(order[stage_from:], minlength=len(cycles.per_step))
    per_step = tuple((counts / counts.sum()).tolist())
    return replace(
        cycles,
        are_blocks=True,
        is_regular=True,
        stage_from=stage_from,
        per_step=per_step,
        orders=(),
    )


def _last_updates(table: OptimizerStepTable, place: Indices) -> Indices:
    """The last update of every step of one optimizer, which may make several, always as many."""
    begins = np.flatnonzero(table.column("passes")[place] + table.column("skipped")[place])
    if len(begins) < 2:
        return place
    sizes = _tail(np.diff(begins))
    usual = int(np.median(sizes))
    goes_on = len(place) - begins[-1] <= usual
    # Else gradients come by other ways than `backward`, now and then or always: each is a step.
    if 1 < usual <= MOST_UPDATES and goes_on and (sizes == usual).mean() >= _REPEATING:
        return place[begins[1:] - 1]
    return place


def _leaders(order: Indices, starts_run: Flags, batches: Floats) -> Iterator[int]:
    """Optimizers that may begin cycles: those with most runs first, of them those with batches."""
    later = slice(len(order) - len(_tail(order)), None)
    runs = np.bincount(order[later][starts_run[later]], minlength=int(order.max()) + 1)
    with_batch = np.bincount(order[later], weights=batches[later] > 0, minlength=len(runs))
    left = np.flatnonzero(runs)
    while len(left):
        # One less for those whose turn had not come where the later half was cut.
        is_next = runs[left] >= runs[left].max() - 1
        yield from left[is_next][np.argsort(-with_batch[left[is_next]], kind="stable")].tolist()
        left = left[~is_next]


def _cycles_between(order: Indices, starts: Indices) -> list[Order]:
    """The whole cycles at the end, each as the optimizers that step in it."""
    first = len(order) - min(len(_tail(order)), _RECENT)
    recent, begins = order[first:].tolist(), (starts[starts >= first] - first).tolist()
    return [tuple(recent[begin:end]) for begin, end in pairwise(begins)]


def _are_alike(order: Indices, starts: Indices) -> bool:
    """Whether the shortest cycle, but for those that are rare, is in nearly all of them.

    As turns that optimizers take, however often each steps in its own.
    """
    turns = Counter(_turns_in(cycle) for cycle in _cycles_between(order, starts))
    total = turns.total()
    usual = [cycle for cycle, times in turns.items() if times > (1 - _REPEATING) * total]
    if total < 2 or not usual:
        return total < 2
    shortest = min(usual, key=len)
    alike = sum(times for cycle, times in turns.items() if _is_within(shortest, cycle))
    return alike >= _REPEATING * total


def _turns_in(cycle: Order) -> Order:
    """The same without what follows itself."""
    return (*cycle[:1], *(after for before, after in pairwise(cycle) if after != before))


def _is_within(part: Order, whole: Order) -> bool:
    """Whether a part is in the whole in its order, and others in between take one turn at most."""
    rest, others = iter(whole), [optimizer for optimizer in whole if optimizer not in part]
    return len(others) == len(set(others)) and all(optimizer in rest for optimizer in part)


def _are_symmetric(starts: Indices, batches: Floats, passes: Floats) -> bool:
    """Whether each cycle has as many records and passes, and its batches before its first.

    Tasks by turns, each with an optimizer of its own beside the one they share: each is a step.
    """
    begins = starts[-_RECENT:]
    if len(begins) < 2:
        return False
    used = slice(int(begins[0]), int(begins[-1]))
    places, loaded = begins[:-1] - begins[0], batches[begins[:-1]]
    # What is loaded is loaded before the first, and nowhere else.
    if not loaded.all() or batches[used].sum() != loaded.sum():
        return False
    sizes, totals = np.diff(begins), np.add.reduceat(passes[used], places)
    return all((of == np.median(of)).mean() >= _REPEATING for of in (sizes, totals, loaded))


def _with_batch(order: Indices, starts: Indices, batches: Floats) -> Indices:
    """Those starts before which a batch was loaded, where cycles that differ share one.

    D G D D G with one batch is a training step. Cycles that are the same stay apart, as steps of
    one optimizer do that share a batch; and so do those that all have one.
    """
    if len(starts) < 2 or not batches.any():
        return starts
    has_batch = np.add.reduceat(batches[: len(order)], starts) > 0
    with_batch = starts[has_batch]
    each, shared = Counter(_cycles_between(order, starts)), _cycles_between(order, with_batch)
    if _most_frequent(each) >= _REPEATING or not shared:
        return starts
    cycles_in = np.diff(np.flatnonzero(has_batch))[-len(shared) :]
    is_shared = (cycles_in == np.median(cycles_in)).mean() >= _REPEATING
    is_few = 1 < np.median(cycles_in) <= _SHARING_A_BATCH
    is_one = is_shared and is_few and _most_frequent(Counter(shared)) >= _REPEATING
    return with_batch if is_one else starts


def _aligned(order: Indices, starts: Indices, batches: Floats) -> Indices:
    """The same cycles, begun where each has its batch, or else as the first of all began.

    For G D G E, which D leads: it has one turn. Only where cycles are equally long.
    """
    first = len(order) - min(len(_tail(order)), _RECENT)
    recent = starts[starts >= first]
    sizes = np.diff(recent)
    size = int(np.median(sizes)) if len(sizes) else 0
    if size < 2 or (sizes == size).mean() < _REPEATING:
        return starts
    before = recent[1:, None] - np.arange(1, size)
    has_batch = (batches[before] > 0).mean(axis=0) >= _REPEATING
    if has_batch.sum() == 1 and not batches[recent].any():
        shift = int(np.argmax(has_batch)) + 1
    else:
        shift = int(starts[0])
        is_same = 0 < shift < size and (order[before[:, :shift]] == order[shift - 1 :: -1]).all(1)
        if has_batch.any() or np.mean(is_same) < _REPEATING:
            return starts
    return starts[starts >= shift] - shift


def _most_frequent(counts: Counter[Order]) -> float:
    """The share of the most frequent; 1 of nothing."""
    return counts.most_common(1)[0][1] / counts.total() if counts else 1.0


def _order_period(order: Indices) -> int | None:
    """Optimizer steps after which nearly all of them repeat; None where they do not."""
    recent = _tail(order)[-_RECENT:]
    for period in range(2, min(_LONGEST_ORDER, len(recent) // 3) + 1):
        if (recent[period:] == recent[:-period]).mean() >= _REPEATING:
            return period
    return None


def _every(period: int, order: Indices, batches: Floats) -> Indices:
    """Starts so many records apart, where most batches come, or where the first optimizer steps."""
    recent = np.arange(max(0, len(order) - _RECENT), len(order))
    weights = batches[recent] if batches[recent].any() else order[recent] == order[0]
    phase = int(np.argmax(np.bincount(recent % period, weights=weights, minlength=period)))
    return np.arange(phase, len(order), period)


def _summed(table: OptimizerStepTable, ends: Indices, is_defining: Flags) -> Cycles:
    """Cycles with the sums of all the records of each."""
    count = len(ends)
    used = int(ends[-1]) + 1 if count else 0
    starts = np.concatenate([[0], ends[:-1] + 1]) if count else ends

    def total(values: Floats) -> Floats:
        return values[:used] if used == count else np.add.reduceat(values[:used], starts)

    turns = _turns(table.column("optimizer")[:used], starts)
    sizes = total(is_defining.astype(float))
    skipped = total(table.column("skipped"))
    steps = _training_steps(sizes, skipped)
    number = table.column("number")[ends]
    length_s = _lengths(_clock(table, ends)[ends], number, ends) / steps
    # What was skipped by some optimizers alone is no whole number of steps; recording takes time.
    length_s[_is_uneven(sizes, skipped) | (total(table.column("recorded")) > 0)] = np.nan
    passes = total(table.column("passes"))
    orders = _orders(table.column("optimizer")[:used].astype(np.int64), starts)
    return Cycles(
        end_s=table.column("host_s")[ends],
        length_s=length_s,
        host_length_s=_lengths(table.column("host_s")[ends], number, ends),
        steps=steps,
        passes=passes,
        batches=total(table.column("batches")),
        samples=total(_samples(table)),
        wait_s=total(table.column("wait_s")),
        cpu_s=total(table.column("cpu_s")),
        evaluated=total(table.column("evaluated")) > 0,
        mostly_no_grad=total(table.column("mostly_no_grad")) > 0,
        evaluation_batches=total(table.column("evaluation_batches")),
        evaluation_s=total(table.column("evaluation_s")),
        saves=total(table.column("saves")),
        saved_s=total(table.column("saved_s")),
        new_epoch=total(table.column("new_epoch")) > 0,
        own_epoch=total(table.column("new_epoch")) > 0,
        per_step=tuple((turns[count // 2 :].mean(axis=0) if count else turns.sum(axis=0)).tolist()),
        skipped=_skipped(table),
        period=(_period(np.column_stack([turns, passes / np.maximum(steps, 1)])) or 1)
        if count
        else 1,
        is_regular=len(turns) < _LEAST_IRREGULAR
        or _period(turns) is not None
        or any(share >= _MOSTLY for _, share in orders),
        orders=orders,
    )


def _orders(optimizer: Indices, starts: Indices) -> tuple[tuple[Order, float], ...]:
    """The orders of cycles in the later half with their shares, those that are rare apart."""
    later = np.append(starts[len(starts) // 2 :][-_RECENT:], len(optimizer))
    if not optimizer.any():
        return (((0,) * int(np.median(np.diff(later))), 1.0),) if len(starts) else ()
    numbers, begins = optimizer[later[0] :].tolist(), (later - later[0]).tolist()
    counts = Counter(tuple(numbers[begin:end]) for begin, end in pairwise(begins))
    shares = [(order, times / counts.total()) for order, times in counts.most_common(_MOST_ORDERS)]
    return tuple((order, share) for order, share in shares if share > 1 - _REPEATING)


def _samples(table: OptimizerStepTable) -> Floats:
    """Samples of each record; none where no batch was loaded."""
    values = table.column("samples")
    return np.where((table.column("batches") == 0) & np.isnan(values), 0.0, values)


def _clock(table: OptimizerStepTable, ends: Indices) -> Floats:
    """The clock to measure by: the GPU's own, which no queue delays, where cycles have it."""
    device_s = table.column("device_s")
    timed = np.isfinite(device_s[ends])
    return device_s if len(ends) and timed.mean() > 0.5 else table.column("host_s")


def _lengths(end_s: Floats, number: Floats, ends: Indices) -> Floats:
    """From one end to the next; NaN for the first, and where records are missing in between."""
    length_s = np.diff(end_s, prepend=np.nan)
    has_hole = np.diff(number, prepend=np.nan) != np.diff(ends, prepend=-1)
    length_s[(length_s < 0) | has_hole] = np.nan
    return length_s


def _turns(optimizer: Floats, starts: Indices) -> Floats:
    """How often each optimizer stepped in each cycle."""
    if not len(starts):
        return np.zeros((0, 0))
    numbers = range(int(optimizer.max()) + 1)
    turns = [np.add.reduceat(optimizer == number, starts) for number in numbers]
    return np.column_stack(turns).astype(float)


def _training_steps(sizes: Floats, skipped: Floats) -> Indices:
    """Training steps in each cycle: a step that was left out took its time all the same."""
    usual = max(float(np.median(sizes)), 1.0) if len(sizes) else 1.0
    return 1 + (skipped // usual).astype(np.int64)


def _is_uneven(sizes: Floats, skipped: Floats) -> Flags:
    """Whether a cycle had steps left out, but not by all of its optimizers."""
    usual = max(float(np.median(sizes)), 1.0) if len(sizes) else 1.0
    uneven: Flags = (skipped > 0) & ((skipped % usual != 0) | (sizes != usual))
    return uneven


def _skipped(table: OptimizerStepTable) -> tuple[int, ...]:
    optimizer = table.column("optimizer").astype(np.int64)
    if not len(optimizer):
        return ()
    return tuple(int(n) for n in np.bincount(optimizer, weights=table.column("skipped")))


def _period(patterns: Floats) -> int | None:
    """The least number of cycles after which nearly all patterns repeat; None where none do."""
    recent = patterns[len(patterns) // 2 :][-_RECENT:]
    for period in range(1, min(LONGEST_PERIOD, len(recent) // 2) + 1):
        is_repeated = (recent[period:] == recent[:-period]).all(axis=1)
        if is_repeated.mean() >= _REPEATING:
            return period
    return None
