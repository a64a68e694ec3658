"""Which batch size to try next: a line through what the trials took, between fits and fails.

Memory grows along a line in the batch size, nearly. The first trial and what parameters, gradients
and optimizer states take give one, two trials that fit a better one. Where the line meets the
limit is tried, then a size just within the wanted accuracy above or below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlay.probe.batches import Trial

ACCURACY = 0.02
"""How far below the true largest batch the answer may be; or one sample."""
MOST_TRIALS = 6
MOST_TRIALS_BLIND = 16
"""Where nothing tells how much memory a trial took."""
LARGEST = 1_048_576
_FIRST_REACH = 0.6
"""Of what one trial predicts: far enough for a good line, near enough to fit."""
_CLOSE = 0.99
"""Of what two trials predict: the allocator loses a little to pieces too small to use."""
_FAR = 4
"""A second trial at so many times the first or more makes a line that is to be trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beside the trials."""

    limit_bytes: float | None = None
    """What the allocator may take."""
    fixed_bytes: float | None = None
    """What no batch size changes."""
    predicted: int | None = None
    """The largest batch by a trace."""
    largest: int = LARGEST
    """Not to be passed."""


def next_size(trials: Sequence[Trial], known: Known, start: int) -> int | None:
    """The batch size to try, or None when the answer is near enough or not to be had."""
    if not trials:
        return min(known.predicted or start, known.largest)
    low, high = bracket(trials)
    blind = known.limit_bytes is None or not any(t.peak_allocated_bytes for t in trials)
    if len(trials) >= (MOST_TRIALS_BLIND if blind else MOST_TRIALS):
        return None
    if low == 0:
        return None if high <= 1 else _first_that_fits(high, known)
    if low >= known.largest or (high and high - low <= _tolerance(low)):
        return None
    if blind:
        return _blindly(low, high, known)
    return _along_the_line(trials, low, high, known)


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
    return max(int(high * 0.9) if known.predicted else high // 4, 1)


def _blindly(low: int, high: int, known: Known) -> int:
    if not high:
        return min(low * 2, known.largest)
    return (low + high) // 2


def _along_the_line(trials: Sequence[Trial], low: int, high: int, known: Known) -> int:
    guess, is_close = _predicted(trials, known)
    if guess is None:
        return _blindly(low, high, known)
    misses = _misses(trials, low, high)
    step = _tolerance(low) * 2**misses
    if not high:
        # Beyond the guess by no more than the accuracy: if that fails, this is the answer.
        wanted = guess if guess > low + _tolerance(low) else low + step
        return min(max(wanted, low + 1), known.largest)
    if is_close and guess >= high:
        guess = high - min(step, (high - low) // 2)
    elif guess <= low:
        guess = low + min(step, (high - low) // 2)
    return min(max(guess, low + 1), high - 1)


def _misses(trials: Sequence[Trial], low: int, high: int) -> int:
    """How many trials near the limit went the same way as the last: steps double with each."""
    last = trials[-1].outcome == "fits"
    near = [t for t in trials if t.batch_size >= 0.8 * (low or high)]
    return max(sum((trial.outcome == "fits") == last for trial in near) - 1, 0)


def _predicted(trials: Sequence[Trial], known: Known) -> tuple[int | None, bool]:
    """Where the line meets the limit, and whether it is to be trusted."""
    line = memory_line(trials, known.fixed_bytes)
    if line is None or known.limit_bytes is None:
        return None, False
    start_bytes, slope_bytes, is_close = line
    reach = _CLOSE if is_close else _FIRST_REACH
    found = (known.limit_bytes * (_CLOSE if is_close else 1.0) - start_bytes) / slope_bytes
    if not is_close:
        found *= reach
    return max(int(found), 1), is_close


def memory_line(
    trials: Sequence[Trial], fixed_bytes: float | None
) -> tuple[float, float, bool] | None:
    """Bytes at no samples, bytes for each, and whether that is good enough for the last steps."""
    points = sorted(
        {
            t.batch_size: t.peak_allocated_bytes
            for t in trials
            if t.peak_allocated_bytes and t.outcome == "fits"
        }.items()
    )
    if not points:
        return None
    size, taken = points[-1]
    others = [(s, b) for s, b in points[:-1] if b < taken]
    if others:
        first, first_bytes = max(others, key=lambda point: size / point[0] >= 1.5)
        slope = (taken - first_bytes) / (size - first)
        return taken - slope * size, slope, True
    slope = (taken - (fixed_bytes or 0.0)) / size
    return (fixed_bytes or 0.0, slope, False) if slope > 0 else None
