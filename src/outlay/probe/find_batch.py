"""The largest batch for real: trials in fresh processes, each a short probe.

A trial fits if it makes a few steps. `BatchSlot` says where in the command the batch size goes,
`trial_of` what came of a run, `next_size` what to try next.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.measurement.measurement import Measurement
from outlay.probe.agent.device import WANTED
from outlay.probe.messages import ProcessLog
from outlay.probe.runner import ProbeRequest, Show, probe_with_logs
from outlay.probe.stages import LONGEST_S, ProbeLimits
from outlay.probe.trial import (
    BatchSearch,
    BatchSlot,
    Events,
    Trial,
    is_taken,
    simulated_largest,
    trial_of,
    usual_pass,
)
from outlay.units import HOUR_S

# Which batch size to try next: a line through what the trials took, between fits and fails.
#
# Memory grows along a line in the batch size, nearly. The first trial and what parameters,
# gradients and optimizer states take give one, two trials that fit a better one. Where the line
# meets the limit is tried; if it fits, a size just beyond the wanted accuracy. If it fails, the
# allocator could not use all it had: a little less is tried, then more so, then what lies between.
# Where the allocations of two trials were recorded, a model of the allocator says instead where it
# fails (`played`).


ACCURACY = 0.02
"""How far below the true largest batch the answer may be; or one sample."""
MOST_TRIALS = 6
MOST_TRIALS_FAR = 8
"""Where a size that fits and one that fails are still further apart than `_FAR_APART`."""
MOST_TRIALS_BLIND = 16
"""Where nothing tells how much memory a trial took."""
_FAR_APART = 1.1
LARGEST = 1_048_576
_FIRST_REACH = 0.6
"""Of what a line that is not to be trusted predicts: far enough for a better one, and it fits."""
_CLOSE = 0.985
"""Of what a good line predicts: the allocator loses a little to pieces too small to use."""
_FAR = 4
"""A line is not trusted beyond so many times its last point."""
_TRACED = 0.9
"""Of what a trace predicted and did not fit: it is seldom further off."""
_NEAR = 0.8
"""Of a guess: trials from there on are near the limit."""
_DROP = 0.05
_DROP_GROWS = 1.5
"""Of a size that failed and should not have: how far below it the next one lies, and how much
further after each that fails as well."""
_APART = 1.25
"""Two trials make a line if the larger is so many times the smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStart:
    """What is known beside the trials."""

    limit_bytes: float | None = None
    """What the allocator may take."""
    fixed_bytes: float | None = None
    """What no batch size changes."""
    predicted: int | None = None
    """The largest batch by a trace."""
    simulated: int | None = None
    """The largest batch by playing what two trials allocated through a model of the allocator."""
    largest: int = LARGEST
    """Not to be passed."""


def next_size(trials: Sequence[Trial], known: SearchStart, start: int) -> int | None:
    """The batch size to try, or None when the answer is near enough or not to be had."""
    if not trials:
        return min(known.predicted or start, known.largest)
    low, high = bracket(trials)
    blind = _is_blind(trials, known)
    if len(trials) >= _most_trials(low, high, is_blind=blind):
        return None
    if low == 0:
        return None if high <= 1 else _first_that_fits(high, known)
    if low >= known.largest or (high and high - low <= _tolerance(low)):
        return None
    if blind:
        return _blindly(low, high, known)
    return _along_the_line(trials, low, high, known)


def trials_left(trials: Sequence[Trial], known: SearchStart) -> bool:
    """Whether one more trial than the answer needs is within what a search usually takes."""
    return len(trials) < (MOST_TRIALS_BLIND if _is_blind(trials, known) else MOST_TRIALS)


def _is_blind(trials: Sequence[Trial], known: SearchStart) -> bool:
    return known.limit_bytes is None or not any(t.peak_allocated_bytes for t in trials)


def _most_trials(low: int, high: int, *, is_blind: bool) -> int:
    if is_blind:
        return MOST_TRIALS_BLIND
    return MOST_TRIALS_FAR if high > _FAR_APART * low + 1 else MOST_TRIALS


def bracket(trials: Sequence[Trial]) -> tuple[int, int]:
    """The largest size that fits (0 where none does), and the smallest that does not (0: none)."""
    fits = [trial.batch_size for trial in trials if trial.outcome == "fits"]
    low = max(fits, default=0)
    fails = [t.batch_size for t in trials if t.outcome != "fits" and t.batch_size > low]
    return low, min(fails, default=0)


def _tolerance(size: int) -> int:
    return max(int(size * ACCURACY), 1)


def _first_that_fits(high: int, known: SearchStart) -> int:
    """After a first trial that failed: nearly the same where a trace was close, else far below."""
    return max(int(high * _TRACED) if known.predicted else high // 4, 1)


def _blindly(low: int, high: int, known: SearchStart) -> int:
    if not high:
        return min(low * 2, known.largest)
    return (low + high) // 2


def _along_the_line(trials: Sequence[Trial], low: int, high: int, known: SearchStart) -> int:
    guess = _predicted(trials, low, known)
    if guess is None:
        return _blindly(low, high, known)
    if not high:
        # Beyond the guess by no more than the accuracy: if that fails, this is the answer.
        beyond = low + (_tolerance(low) << _surprises(trials, near=guess))
        return min(max(guess, beyond), known.largest)
    if guess > high - 2 * _tolerance(high):
        guess = _below(trials, low, high)
    # No nearer to what is known than the accuracy: that would tell next to nothing.
    near, far = low + _tolerance(low), high - _tolerance(high)
    return min(max(guess, near), far) if near <= far else (low + high) // 2


def _below(trials: Sequence[Trial], low: int, high: int) -> int:
    """Below a size that should have fitted: the allocator wastes what a line does not tell."""
    failed = sum(trial.outcome != "fits" for trial in trials)
    drop = _DROP * _DROP_GROWS ** (failed - 1)
    return max((low + high) // 2, int(high * (1 - drop)))


def _surprises(trials: Sequence[Trial], near: int) -> int:
    """How often a size beyond the guess fitted, too, but for the first: steps double with each."""
    return max(sum(t.outcome == "fits" and t.batch_size >= _NEAR * near for t in trials) - 2, 0)


def _predicted(trials: Sequence[Trial], low: int, known: SearchStart) -> int | None:
    """Where the line meets the limit; nearer where it is not to be trusted so far."""
    if known.simulated is not None and known.simulated <= _FAR * low:
        return known.simulated
    line = memory_line(allocated(trials), known.fixed_bytes)
    if line is None or known.limit_bytes is None:
        return None
    start_bytes, slope_bytes, is_measured = line
    found = (known.limit_bytes * _CLOSE - start_bytes) / slope_bytes
    if not is_measured or found > _FAR * low:
        found = max(found * _FIRST_REACH, low + 1)
    return max(int(found), 1)


Point = tuple[int, float]
"""A batch size, and what it took in bytes."""


def memory_line(
    points: Sequence[Point], fixed_bytes: float | None
) -> tuple[float, float, bool] | None:
    """Bytes at no samples, bytes for each, and whether two trials gave it or one and a guess."""
    if not points:
        return None
    size, taken = points[-1]
    others = [point for point in points[:-1] if point[1] < taken]
    if others:
        far = [point for point in others if size >= _APART * point[0]]
        first, first_bytes = far[-1] if far else others[0]
        slope = (taken - first_bytes) / (size - first)
        return taken - slope * size, slope, True
    slope = (taken - (fixed_bytes or 0.0)) / size
    return (fixed_bytes or 0.0, slope, False) if slope > 0 else None


def allocated(trials: Sequence[Trial]) -> list[Point]:
    """What tensors took at most in the trials that fit, by size."""
    taken = {
        trial.batch_size: trial.peak_allocated_bytes
        for trial in trials
        if trial.outcome == "fits" and trial.peak_allocated_bytes
    }
    return sorted(taken.items())


# Which batch size to train with: one that leaves memory free, and that ran.


MARGIN = 0.03
"""Of the limit, left free at the recommended size: longer runs meet longer samples."""
_NEAR_BELOW = MARGIN + ACCURACY
_NEAR_ABOVE = 0.01
"""Of the size that leaves just the margin: one that ran so near is recommended in its place."""


def recommended_batch(
    trials: Sequence[Trial], largest: int, fails_at: int, known: SearchStart
) -> int | None:
    """The largest size that leaves the margin free; all of it where none ran out of memory.

    A size near it that ran is better than one that nobody tried: some scripts take only even ones.
    """
    if not largest or not fails_at:
        return largest or None
    wanted = _with_margin(trials, largest, known)
    ran = {trial.batch_size for trial in trials if trial.outcome == "fits"}
    tried = {trial.batch_size for trial in trials}
    below = [size for size in ran if size <= wanted * (1 + _NEAR_ABOVE) and size < largest]
    best = max(below, default=0)
    is_near = best >= wanted * (1 - _NEAR_BELOW)
    if best and (is_near or wanted in tried - ran):
        return best
    return largest if wanted in tried - ran else wanted


def _with_margin(trials: Sequence[Trial], largest: int, known: SearchStart) -> int:
    line = memory_line(allocated(trials), known.fixed_bytes)
    if line is None or known.limit_bytes is None:
        return max(int(largest * (1 - MARGIN)), 1)
    start_bytes, slope_bytes, _ = line
    by_line = int((known.limit_bytes * (1 - MARGIN) - start_bytes) / slope_bytes)
    return max(min(by_line, largest - (largest > 1)), 1)


TRIAL_STEPS = 20
TRIAL_S = 15.0
LEAST_START_S = 105.0
START_TIMES = 10
"""How long a first step is waited for, beside `TRIAL_S`: as many times the longest trial so far."""
START = 8
_LAST_WORDS_BYTES = 65_536
Tell = Callable[[str], None]


def find_batch(
    asking: ProbeRequest,
    argument: str,
    *,
    known: SearchStart,
    show: Show | None = None,
    tell: Tell = lambda _: None,
) -> BatchSearch:
    """Trials until the largest batch is known well enough, or something ends them."""
    slot = BatchSlot(command=asking.command, argument=argument)
    slot.check()
    hunt = _Search(asking, slot, known, show, tell)
    while (size := hunt.next_size()) is not None:
        hunt.try_size(size)
    return hunt.found()


class _Search:
    """Where a search stands."""

    def __init__(
        self,
        asking: ProbeRequest,
        slot: BatchSlot,
        known: SearchStart,
        show: Show | None,
        tell: Tell,
    ) -> None:
        self._asking = asking
        self._slot = slot
        self._known = known
        self._show = show
        self._tell = tell
        self._trials: list[Trial] = []
        self._notes: list[str] = []
        self._played: dict[int, Events] = {}
        """What trials that fit asked their allocator for."""
        self._samples: dict[int, int | None] = {}
        """What the passes of trials that fit really had."""
        self._is_over = self._is_interrupted = False

    def next_size(self) -> int | None:
        """The size to try, or None when that is all."""
        if self._is_over:
            return None
        size = next_size(self._trials, self._known, self._slot.present or START)
        if size is None:
            size = self._untried()
        left_usd = self._left_usd()
        if size is not None and left_usd is not None and left_usd <= 0:
            self._notes.append("The money for this search is spent: a larger batch may fit.")
            return None
        return size

    def _untried(self) -> int | None:
        """The size to recommend, where it is still to be tried and trials are left."""
        found = self.found()
        if found.fails_at is None or found.is_recommended_tried:
            return None
        return found.recommended if trials_left(self._trials, self._known) else None

    def try_size(self, size: int) -> None:
        """Run the command at a batch size, and learn from it."""
        self._tell(f"Trial {len(self._trials) + 1}: batch {size} ...")
        command = self._slot.filled(size)
        limits = self._limits()
        measurement, told, words = _run(self._asking, command, limits, self._show)
        samples = usual_pass(told) or measurement.batch_size
        trial = trial_of(size, measurement, words, limits=limits, samples=samples)
        self._trials.append(trial)
        self._tell(_said(trial))
        self._learn(trial, measurement, told)
        if self._asking.memory_cap_mib is not None and measurement.device == "cpu":
            self._notes.append("The cap did nothing: it is a GPU's, and this trained on the CPU.")
        if trial.outcome == "failed":
            self._notes.append(f"Batch {size} {_failed_words(measurement)}: {trial.why}")
            self._is_interrupted = measurement.ending == "interrupted"
            self._is_over = True
        elif trial.outcome == "fits":
            self._check_samples(size, samples)

    def _limits(self) -> ProbeLimits:
        """Of the next trial: a first step that is far later than earlier ones does not come."""
        given = self._asking.limits
        longest_s = max((trial.elapsed_s for trial in self._trials), default=math.inf)
        start_s = max(START_TIMES * longest_s, LEAST_START_S)
        return ProbeLimits(
            steps=given.steps or TRIAL_STEPS,
            duration_s=given.duration_s or TRIAL_S,
            start_s=min(start_s, LONGEST_S),
            price_usd_per_hour=given.price_usd_per_hour,
            max_usd=self._left_usd(),
            operations=False,
        )

    def _learn(self, trial: Trial, measurement: Measurement, told: Sequence[ProcessLog]) -> None:
        known = _learned(self._known, measurement, self._asking.memory_cap_mib)
        self._played.update(_allocations(trial, told))
        simulated = simulated_largest(self._played, known.limit_bytes)
        self._known = replace(known, simulated=simulated)

    def _check_samples(self, size: int, samples: int | None) -> None:
        """End it where the script goes by another batch size than it is given."""
        self._samples[size] = samples
        if samples is None or samples == size:
            return
        alike = sorted(one for one, found in self._samples.items() if found == samples)
        others = [one for one in alike if not _is_near(one, samples)]
        if not others:
            return
        if len(alike) == 1:
            self._notes.append(
                f"Batch {size:,} was asked for, but the script's passes had {samples:,} samples on "
                "a GPU."
            )
            return
        self._trials = [
            _not_taken(one, samples) if one.batch_size in others else one for one in self._trials
        ]
        self._notes.append(_alike_words(alike, others, samples))
        self._is_over = True

    def _left_usd(self) -> float | None:
        """What is left of the money for all trials together; None without a limit."""
        limits = self._asking.limits
        if limits.max_usd is None or limits.price_usd_per_hour is None:
            return None
        spent_s = sum(trial.elapsed_s for trial in self._trials)
        return limits.max_usd - limits.price_usd_per_hour * spent_s / HOUR_S

    def found(self) -> BatchSearch:
        """What came out."""
        search = _search(self._trials, self._known, self._notes)
        return replace(search, is_interrupted=self._is_interrupted)


def _failed_words(measurement: Measurement) -> str:
    if measurement.ending == "interrupted":
        return "was not tried to its end"
    return "failed for another reason"


def _is_near(size: int, samples: int) -> bool:
    """Whether passes of so many samples are those of a batch of that size, the data's end apart."""
    return is_taken(size, samples) and is_taken(samples, size)


def _not_taken(trial: Trial, samples: int) -> Trial:
    why = f"its passes had {samples:,} samples"
    return replace(trial, outcome="not taken", why=why, step_mean_s=None, samples_per_s=None)


def _alike_words(alike: Sequence[int], others: Sequence[int], samples: int) -> str:
    """What it means that passes are the same at several sizes."""
    sizes = " and ".join(f"{one:,}" for one in alike)
    same = f"The script's passes had {samples:,} samples at batch {sizes} alike: "
    if min(others) > samples:
        return f"{same}it takes no larger batches from there, or its data have no more."
    return f"{same}it does not take its batch size from there."


def _run(
    asking: ProbeRequest, command: tuple[str, ...], limits: ProbeLimits, show: Show | None
) -> tuple[Measurement, list[ProcessLog], bytes]:
    """A short probe, what its processes told, and the end of what the command printed."""
    with tempfile.TemporaryDirectory(prefix="outlay-trial-") as folder:
        log = Path(folder) / "log"
        given = {**asking.environment, WANTED: "1"}
        asking = replace(asking, command=command, limits=limits, log=log, environment=given)
        measurement, told = probe_with_logs(asking, show)
        return measurement, told, log.read_bytes()[-_LAST_WORDS_BYTES:]


def _allocations(trial: Trial, told: Sequence[ProcessLog]) -> dict[int, Events]:
    """What the first rank of a trial that fits asked its allocator for."""
    found = [one.facts["allocations"]["events"] for one in told if "allocations" in one.facts]
    return {trial.batch_size: found[0]} if found and trial.outcome == "fits" else {}


def _learned(known: SearchStart, measurement: Measurement, cap_mib: int | None) -> SearchStart:
    """The limit and what is fixed, as the last trial showed them."""
    memory = measurement.memory
    parts = (
        memory.parameters_bytes,
        memory.gradients_bytes,
        memory.optimizer_bytes,
        memory.frozen_bytes,
    )
    fixed = sum(part for part in parts if part is not None) if any(parts) else known.fixed_bytes
    limit = known.limit_bytes
    if cap_mib is not None and measurement.device != "cpu":
        limit = float(cap_mib * 2**20)
    if memory.limit_bytes is not None:
        limit = memory.limit_bytes
    elif limit is None:
        limit = memory.available_bytes
    return replace(known, fixed_bytes=fixed, limit_bytes=limit)


def _search(trials: Sequence[Trial], known: SearchStart, notes: Sequence[str]) -> BatchSearch:
    low, _ = bracket(trials)
    full = [one.batch_size for one in trials if one.outcome == "out of memory"]
    high = min((size for size in full if size > low), default=0)
    larger_failed = any(
        one.outcome in ("failed", "not taken") and one.batch_size > low for one in trials
    )
    if low and not high and not larger_failed and known.limit_bytes is not None:
        notes = [*notes, "No larger size was seen to fail."]
    return BatchSearch(
        trials=tuple(trials),
        largest=low or None,
        recommended=recommended_batch(trials, low, high, known),
        margin_fraction=MARGIN if high else 0.0,
        fails_at=high or None,
        limit_bytes=known.limit_bytes,
        notes=tuple(dict.fromkeys(notes)),
    )


def _said(trial: Trial) -> str:
    pace = "" if trial.samples_per_s is None else f", {trial.samples_per_s:,.0f} samples/s"
    why = f" ({trial.why})" if trial.why else ""
    return f"  {trial.outcome}{pace}{why}"
