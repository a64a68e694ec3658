"""Training steps of an epoch, by the DataLoader that is trained on: `epoch_of` the logs of ranks.

By the steps between two starts of it that were seen, and by its length; where the two disagree, a
note says so, and where neither can be relied on, the epoch is unknown. A loader that is begun anew
for every step (`next(iter(loader))`) has its length as epoch, not one step. Of several that are
trained on side by side the longest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from outlay.probe.agent.protocol import LoaderInfo, LoaderUse, LoaderUses
from outlay.probe.messages import ProcessLog
from outlay.probe.steps import StepStatistics

_SELDOM = 0.1
"""Of the steps that the most used loader is used for: one with fewer makes no epoch."""
_ALWAYS = 0.8
"""Of the steps in which any loader is used: one that is used from the first to the last of them."""
_WHOLE = 0.03
"""A number of batches in a step, or of steps for a batch, is whole where it is so near to it."""
_SAME = 0.02
"""Of an epoch: two counts of it that differ by less, or by one step, are the same."""
_REGULAR = 0.05
"""Of an epoch: how far each may be from their median where they are all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """How many training steps it has, and what to know of that."""

    steps: float | None = None
    notes: tuple[str, ...] = ()


UNKNOWN = Epoch()


def epoch_of(statistics: StepStatistics, logs: Sequence[ProcessLog]) -> Epoch:
    """The epoch of all ranks: it is over when the last one's is."""
    epochs = [epoch for log in logs if (epoch := _epoch_of_rank(statistics, log)) is not None]
    if not epochs:
        return Epoch(steps=_without_uses(statistics, logs))
    return max(epochs, key=lambda epoch: epoch.steps or 0.0)


def _without_uses(statistics: StepStatistics, logs: Sequence[ProcessLog]) -> float | None:
    """As it was seen; of a run that was too short, by the length of its longest loader."""
    if statistics.steps_per_epoch is not None or not logs:
        return statistics.steps_per_epoch
    batches = [info.batches for info in logs[0].all(LoaderInfo) if info.batches]
    return max(batches) / (statistics.passes_per_step or 1.0) if batches else None


def _epoch_of_rank(statistics: StepStatistics, log: ProcessLog) -> Epoch | None:
    """None where nothing is known of what loaders gave."""
    report = log.last(LoaderUses)
    uses = [use for use in _uses(report) if use.is_trained_on]
    most = max((use.steps for use in uses), default=0)
    uses = [use for use in uses if use.steps >= _SELDOM * most]
    if not uses:
        return None
    if most == 1 and len(uses) > 1:  # each was made for one step
        steps = _without_uses(statistics, [log])
        return Epoch(steps=steps, notes=(_begun_each_step(steps),))
    steps_per_record = _steps_per_record(statistics, log)
    rates = _batches_per_step(statistics, uses, steps_per_record)
    loaders = [_Loader.of(use, rates[use.number], steps_per_record) for use in uses]
    lasting = [loader for loader in loaders if not loader.is_begun_each_step]
    candidates = lasting or loaders
    longest = max(candidates, key=lambda loader: loader.longest_steps)
    epoch = longest.epoch(statistics.steps_per_epoch)
    return Epoch(steps=epoch.steps, notes=(*epoch.notes, *_notes_on_others(longest, candidates)))


def _uses(report: LoaderUses | None) -> Iterator[LoaderUse]:
    for fields in report.loaders if report else ():
        yield LoaderUse(**fields)


def _steps_per_record(statistics: StepStatistics, log: ProcessLog) -> float:
    """Training steps for each optimizer step that was made; those left out are steps as well."""
    made = len(log.table)
    skipped = float(log.table.column("skipped").sum())
    return (1 + skipped / made if made else 1.0) / (sum(statistics.per_step) or 1.0)


def _batches_per_step(
    statistics: StepStatistics, uses: Sequence[LoaderUse], steps_per_record: float
) -> dict[int, float]:
    """Batches that each loader gives in a training step.

    Of those that are used all the time: their share of the steady state's, as accumulation may grow
    at first. Of others: what they gave over the steps from their first use to their last.
    """
    first, last = min(use.first_step for use in uses), max(use.last_step for use in uses)
    always = [use for use in uses if use.last_step - use.first_step >= _ALWAYS * (last - first) > 0]
    all_batches = sum(use.batches for use in always)
    rates = {use.number: _rate(use) / steps_per_record for use in uses}
    if statistics.batches_per_step is not None:
        for use in always:
            rates[use.number] = statistics.batches_per_step * use.batches / all_batches
    return {number: _whole(rate) for number, rate in rates.items()}


def _rate(use: LoaderUse) -> float:
    """Batches for each optimizer step."""
    records = use.last_step - use.first_step
    return use.batches_before_last / records if records else float(use.batches)


def _notes_on_others(longest: _Loader, loaders: Sequence[_Loader]) -> Iterator[str]:
    """Say so where loaders of different lengths are trained on side by side."""
    used = longest.use
    others = [
        loader.use
        for loader in loaders
        if loader.use.first_step < used.last_step and used.first_step < loader.use.last_step
    ]
    lengths = sorted({use.length for use in others if use.length}, reverse=True)
    if len(lengths) > 1 and longest.by_length_steps is not None:
        *more, last = [f"{length:,}" for length in lengths]
        yield (
            f"It trains on DataLoaders of {', '.join(more)} and {last} batches side by side: an"
            " epoch is counted by the longest."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loader:
    """A loader that is trained on, in training steps."""

    use: LoaderUse
    by_length_steps: float | None
    """Of an epoch, by its length; None where it has none."""
    seen_steps: tuple[float, ...]
    """Between its starts."""

    @classmethod
    def of(cls, use: LoaderUse, batches_per_step: float, steps_per_record: float) -> _Loader:
        known = use.length and batches_per_step
        return cls(
            use=use,
            by_length_steps=(use.length or 0) / batches_per_step if known else None,
            seen_steps=tuple(
                (np.diff(np.asarray(use.started_at, float)) * steps_per_record).tolist()
            ),
        )

    @property
    def is_begun_each_step(self) -> bool:
        """Whether it is begun anew for (nearly) every step, though it has batches for more."""
        is_long = self.by_length_steps is None or self.by_length_steps > 1
        return is_long and len(self.seen_steps) > 1 and float(np.median(self.seen_steps)) <= 1

    @property
    def longest_steps(self) -> float:
        """By which loaders are compared."""
        seen = float(np.median(self.seen_steps)) if self.seen_steps else 0.0
        return seen if self.by_length_steps is None else self.by_length_steps

    def epoch(self, steps_by_marks: float | None) -> Epoch:
        """The epoch that this loader makes; `steps_by_marks` is what was seen of any loader."""
        by_length = self.by_length_steps
        if self.is_begun_each_step:
            return Epoch(steps=by_length, notes=(_begun_each_step(by_length),))
        if by_length is None:
            # The first may be a resumed one.
            seen = self.seen_steps[1:] or self.seen_steps
            return Epoch(steps=float(np.median(seen)) if seen else steps_by_marks)
        if not self.seen_steps:
            return Epoch(steps=by_length)
        seen_steps = float(np.median(self.seen_steps[1:] or self.seen_steps))
        if abs(seen_steps - by_length) <= max(1.0, _SAME * by_length):
            # What comes before the first may have been taken for an evaluation's.
            return Epoch(steps=seen_steps if len(self.seen_steps) > 1 else by_length)
        if self._is_regular(seen_steps):
            return Epoch(steps=seen_steps, notes=(_left_early(seen_steps, by_length),))
        if self.use.ends >= self.use.starts - 1:  # it was gone through each time
            return Epoch(steps=by_length)
        return Epoch(notes=(_differs(seen_steps, by_length),))

    def _is_regular(self, steps: float) -> bool:
        """Whether two or more are the same; the first of three may be a resumed one."""
        seen = np.asarray(self.seen_steps[1:] if len(self.seen_steps) > 2 else self.seen_steps)
        are_near = np.abs(seen - steps) <= max(1.0, _REGULAR * steps)
        return len(seen) > 1 and bool(are_near.all())


def _whole(amount: float) -> float:
    """Rounded, itself or one over it, where it is nearly whole: uses begin in a step's middle."""
    if amount <= 0:
        return 0.0
    large = amount if amount >= 1 else 1 / amount
    rounded = round(large)
    large = float(rounded) if abs(large - rounded) <= _WHOLE * large else large
    return large if amount >= 1 else 1 / large


def _begun_each_step(by_length: float | None) -> str:
    what = (
        "how many steps an epoch has is not known"
        if by_length is None
        else f"its length, {by_length:,.6g} steps, counts as an epoch"
    )
    return f"Its DataLoader is begun anew for every step, so that no epoch was seen: {what}."


def _left_early(seen_steps: float, by_length: float) -> str:
    return (
        f"An epoch has {seen_steps:,.6g} steps, as seen between two starts of its DataLoader, which"
        f" has batches for {by_length:,.6g}."
    )


def _differs(seen_steps: float, by_length: float) -> str:
    return (
        f"How many steps an epoch has is not known: {seen_steps:,.6g} were seen between starts of"
        f" its DataLoader, which has batches for {by_length:,.6g}. Give --length in steps."
    )
