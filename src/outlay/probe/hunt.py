"""Which batch size to try next: a line through what the trials took, between fits and fails.

Memory grows along a line in the batch size, nearly. The first trial and what parameters, gradients
and optimizer states take give one, two trials that fit a better one. Where the line meets the
limit is tried; if it fits, a size just beyond the wanted accuracy. If it fails, the allocator
could not use all it had: a little less is tried, then more so, then what lies between. Where the
allocations of two trials were recorded, a model of the allocator says instead where it fails
(`played`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlay.probe.batches import Trial

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
class Known:
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


def next_size(trials: Sequence[Trial], known: Known, start: int) -> int | None:
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


def trials_left(trials: Sequence[Trial], known: Known) -> bool:
    """Whether one more trial than the answer needs is within what a search usually takes."""
    return len(trials) < (MOST_TRIALS_BLIND if _is_blind(trials, known) else MOST_TRIALS)


def _is_blind(trials: Sequence[Trial], known: Known) -> bool:
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


def _first_that_fits(high: int, known: Known) -> int:
    """After a first trial that failed: nearly the same where a trace was close, else far below."""
    return max(int(high * _TRACED) if known.predicted else high // 4, 1)


def _blindly(low: int, high: int, known: Known) -> int:
    if not high:
        return min(low * 2, known.largest)
    return (low + high) // 2


def _along_the_line(trials: Sequence[Trial], low: int, high: int, known: Known) -> int:
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


def _predicted(trials: Sequence[Trial], low: int, known: Known) -> int | None:
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
