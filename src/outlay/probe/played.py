"""The largest batch by what trials really allocated, played through the model of the allocator.

Two trials that ask for the same storages in the same order give every size as a line in the batch
size; `trace.simulate` then says up to which batch the allocator gets through. Where they do not
line up (cuDNN chose other algorithms), there is no answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from outlay.trace import simulate
from outlay.trace.history import FREED, history_of, storages_align
from outlay.trace.trace import History

Events = Sequence[int]
"""Sizes in bytes in the order they were asked for; minus n where the n-th ended, from 1 on."""
_REACH = 64
"""Times the largest trial, beyond which nothing is said."""


def simulated_largest(trials: Mapping[int, Events], limit_bytes: float | None) -> int | None:
    """The largest batch that gets through; None where the trials do not tell."""
    history = _history(trials)
    if history is None or limit_bytes is None:
        return None
    low, high = max(trials), _REACH * max(trials)
    if not simulate.fits(history, low, limit_bytes) or simulate.fits(history, high, limit_bytes):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if simulate.fits(history, middle, limit_bytes) else (low, middle)
    return low


def _history(trials: Mapping[int, Events]) -> History | None:
    """From the two largest trials, where they line up."""
    sizes = sorted(trials)[-2:]
    if len(sizes) < 2:
        return None
    first, second = ([*_storages(trials[size])] for size in sizes)
    if not first or not storages_align(first, second):
        return None
    return history_of(sizes, [first, second])


def _storages(events: Events) -> Iterator[tuple[int, int]]:
    made = 0
    for event in events:
        if event < 0:
            yield -event, FREED
        else:
            made += 1
            yield made, event
