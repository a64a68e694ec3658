"""Batch sizes that were really tried, each in a process of its own, and what they tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["fits", "out of memory", "not taken", "failed"]
"""Not taken: the script ran, but with fewer samples than it was asked to take."""
KNEE_FRACTION = 0.95
"""Of the best throughput: from there on, more batch is hardly more speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One batch size, run for a few steps."""

    batch_size: int
    outcome: Outcome
    why: str = ""
    """What the script said where it did not fit or failed; what is odd where it fits."""
    peak_allocated_bytes: float | None = None
    """On the fullest GPU."""
    peak_reserved_bytes: float | None = None
    step_mean_s: float | None = None
    samples_per_s: float | None = None
    """Of all ranks together."""
    elapsed_s: float = 0.0
    """What the trial took, start-up included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSearch:
    """The search for the largest batch: what was tried, and what came out."""

    trials: tuple[Trial, ...]
    """In the order they were run."""
    largest: int | None = None
    """The largest that ran; None where none did."""
    recommended: int | None = None
    """What to train with: a margin below the largest."""
    margin_fraction: float = 0.0
    """Of the limit, kept free at the recommended size."""
    fails_at: int | None = None
    """The smallest that ran out of memory; None where none did."""
    limit_bytes: float | None = None
    """What the allocator could take."""
    is_interrupted: bool = False
    """Whether the user ended it before it had an answer."""
    notes: tuple[str, ...] = ()

    @property
    def knee(self) -> int | None:
        """The smallest batch that is about as fast as any."""
        return knee_of(self.trials)

    @property
    def is_recommended_tried(self) -> bool:
        """Whether the recommended size is one that ran."""
        fits = [trial for trial in self.trials if trial.outcome == "fits"]
        return any(trial.batch_size == self.recommended for trial in fits)

    @property
    def fails_otherwise_at(self) -> int | None:
        """The smallest above the largest that failed, but not for want of memory."""
        if self.is_interrupted:  # what was not run to its end did not fail
            return None
        return self._smallest_above("failed")

    @property
    def not_taken_at(self) -> int | None:
        """The smallest above the largest that the script did not take."""
        return self._smallest_above("not taken")

    def _smallest_above(self, outcome: Outcome) -> int | None:
        sizes = (trial.batch_size for trial in self.trials if trial.outcome == outcome)
        return min((size for size in sizes if size > (self.largest or 0)), default=None)

    @property
    def elapsed_s(self) -> float:
        """What all trials took together."""
        return sum(trial.elapsed_s for trial in self.trials)


def knee_of(trials: Iterable[Trial]) -> int | None:
    """The smallest batch with 95 % or more of the best samples/s; None where none was measured."""
    paces = {
        trial.batch_size: trial.samples_per_s
        for trial in trials
        if trial.outcome == "fits" and trial.samples_per_s is not None
    }
    enough = KNEE_FRACTION * max(paces.values(), default=0.0)
    return min((size for size, pace in paces.items() if pace >= enough), default=None)
