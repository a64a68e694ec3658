"""The largest batch of a user's own step on a GPU, verified by tracing it at that size.

In: a `Profile`, the `MemoryBudget` of each GPU, and a function that traces the step. Out: the
`LargestBatch` in each. A profile says at which batch size memory is full, as long as the step does
the same at every size. Here the answer is checked: the step is traced at it, and what that trace
allocates is played through the allocator. Where the check fails, the next size is read off the
sizes traced so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outlay.predict.calibration import Calibration
from outlay.predict.memory import LARGEST_BATCH, MemoryBudget, largest_batch, safe_bytes
from outlay.predict.step import Placement
from outlay.trace import allocator
from outlay.trace.profile import History, Profile

Tracer = Callable[[Sequence[int]], Mapping[int, History]]
"""Traces the step at batch sizes: what it allocates at each."""

_MOST_ROUNDS = 6
_FINENESS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestBatch:
    """The largest batch that fits into a memory budget."""

    batch_size: int
    """0 where not even one sample fits."""
    is_verified: bool
    """Whether the step was traced at this size and fits."""
    needed_bytes: float | None = None
    """The least the allocator must be allowed to reserve at this size, from that trace."""


def verified_largest(
    profile: Profile, budgets: Sequence[MemoryBudget], calibration: Calibration, trace: Tracer
) -> list[LargestBatch]:
    """The largest batch in each budget; the sizes of a round are traced together."""
    searches = [_Search(profile, budget, calibration) for budget in budgets]
    histories: dict[int, History] = {}
    for _ in range(_MOST_ROUNDS):
        guesses = {search.guess for search in searches if not search.is_done}
        if not guesses:
            break
        missing = sorted(guesses - set(histories))
        if missing:
            histories.update(trace(missing))
        for search in searches:
            if not search.is_done:
                search.learn(histories[search.guess])
    return [search.answer() for search in searches]


class _Search:
    """The search in one budget: what was traced, and which size to trace next."""

    def __init__(self, profile: Profile, budget: MemoryBudget, calibration: Calibration) -> None:
        self._budget = budget
        self._limit_bytes = safe_bytes(budget, calibration)
        self._needed: dict[int, float] = {}
        self._fits_up_to, self._fails_at = 0, LARGEST_BATCH + 1
        self._trusts_profile = profile.history is not None
        self.guess = largest_batch(profile, budget, calibration)
        self.is_done = self.guess == 0

    def learn(self, history: History) -> None:
        """Take in the trace at the guess, and make the next one."""
        traits, size = self._budget.traits, self.guess
        expandable = self._budget.expandable_segments
        fits = allocator.fits(
            history, size, self._limit_bytes, traits, expandable_segments=expandable
        )
        self._needed[size] = allocator.needed_bytes(history, size, traits)
        if fits:
            self._fits_up_to = max(self._fits_up_to, size)
        else:
            self._fails_at = min(self._fails_at, size)
        exact = self._trusts_profile and fits and len(self._needed) == 1
        near = self._fails_at - self._fits_up_to <= max(self._fits_up_to // _FINENESS, 1)
        self.is_done = exact or near
        self.guess = self._next()

    def _next(self) -> int:
        """Where the line through the traced sizes meets the limit, between fits and fails."""
        sizes = sorted(self._needed)[-2:]
        low, high = sizes[0], sizes[-1]
        rise = self._needed[high] - self._needed[low]
        if low == high or rise <= 0:
            size = high * self._limit_bytes / self._needed[high]
        else:
            size = low + (self._limit_bytes - self._needed[low]) * (high - low) / rise
        return max(min(int(size), self._fails_at - 1), self._fits_up_to + 1, 1)

    def answer(self) -> LargestBatch:
        """The largest size that was traced and fits."""
        return LargestBatch(
            batch_size=self._fits_up_to,
            is_verified=self._fits_up_to > 0,
            needed_bytes=self._needed.get(self._fits_up_to),
        )


def verified_batches(
    profile: Profile, placements: Sequence[Placement], calibration: Calibration, trace: Tracer
) -> dict[Placement, int]:
    """The largest batch of a user's step on each placement, verified by a trace at that size."""
    budgets = [placement.memory_budget for placement in placements]
    batches = verified_largest(profile, budgets, calibration, trace)
    return {
        placement: batch.batch_size for placement, batch in zip(placements, batches, strict=True)
    }
