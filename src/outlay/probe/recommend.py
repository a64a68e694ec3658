"""Which batch size to train with: one that leaves memory free, and that ran."""

from __future__ import annotations

from collections.abc import Sequence

from outlay.probe.batches import Trial
from outlay.probe.hunt import ACCURACY, Known, allocated, memory_line

MARGIN = 0.03
"""Of the limit, left free at the recommended size: longer runs meet longer samples."""
_NEAR_BELOW = MARGIN + ACCURACY
_NEAR_ABOVE = 0.01
"""Of the size that leaves just the margin: one that ran so near is recommended in its place."""


def recommended(trials: Sequence[Trial], largest: int, fails_at: int, known: Known) -> int | None:
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


def _with_margin(trials: Sequence[Trial], largest: int, known: Known) -> int:
    line = memory_line(allocated(trials), known.fixed_bytes)
    if line is None or known.limit_bytes is None:
        return max(int(largest * (1 - MARGIN)), 1)
    start_bytes, slope_bytes, _ = line
    by_line = int((known.limit_bytes * (1 - MARGIN) - start_bytes) / slope_bytes)
    return max(min(by_line, largest - (largest > 1)), 1)
