"""A step's allocations at any batch size, from what a few traces noted.

A trace notes every storage from the building of the model on. Traces at several batch sizes are
laid side by side, so that each size becomes a polynomial in the batch size. Of a long period only
some steps are kept: the first, the one with the highest peak, and the one before that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from outlay.trace.fit import polynomial_through
from outlay.trace.trace import History, Polynomial

FREED = -1
"""In a list of storages, the size that says that one ends."""

Storages = Sequence[tuple[int, int]]
"""Every storage's number with its size in bytes where it is made, and with `FREED` at its end."""

_UNSTEADY_STEPS = 2
"""The first step makes optimizer state, and the second finds memory as the first left it."""
_FEWEST_TO_CHECK = 4
"""Traces needed to trust a curve: three determine it, one checks it."""


def storages_align(one: Storages, other: Storages) -> bool:
    """Whether two traces make and free the same storages in the same order."""
    return len(one) == len(other) and all(
        a == b and (size_a == FREED) == (size_b == FREED)
        for (a, size_a), (b, size_b) in zip(one, other, strict=True)
    )


def history_of(
    batch_sizes: Sequence[int],
    traces: Sequence[Storages],
    optional: Collection[int] = (),
    conditions: Mapping[int, str] | None = None,
) -> History:
    """One history from aligned traces.

    `optional` are the storages that may be left out, `conditions` those that some GPUs leave out.
    """
    wanted = conditions or {}
    table: dict[tuple[Polynomial, bool, str], int] = {}
    events: list[int] = []
    order: dict[int, int] = {}
    for row in zip(*traces, strict=True):
        number = row[0][0]
        if row[0][1] == FREED:
            events.append(order[number] - len(order))
            continue
        sizes_bytes = tuple(size_bytes for _, size_bytes in row)
        polynomial = _polynomial(tuple(batch_sizes), sizes_bytes)
        size = polynomial, number in optional, wanted.get(number, "")
        order[number] = len(order)
        events.append(table.setdefault(size, len(table)))
    return History(
        sizes=tuple(polynomial for polynomial, _, _ in table),
        events=tuple(events),
        optional=frozenset(place for (_, can_fail, _), place in table.items() if can_fail),
        conditions={place: condition for (_, _, condition), place in table.items() if condition},
    )


def _polynomial(batch_sizes: tuple[int, ...], sizes_bytes: tuple[int, ...]) -> Polynomial:
    """Through all traces if that can be checked, else a line through the largest two."""
    polynomial, exact = polynomial_through(batch_sizes, sizes_bytes)
    if exact and (len(polynomial) <= 2 or len(batch_sizes) >= _FEWEST_TO_CHECK):
        return polynomial
    return polynomial_through(batch_sizes[-2:], sizes_bytes[-2:])[0]


def kept_places(storages: Storages, step_starts: Sequence[int]) -> list[int]:
    """Places in the list that matter for the peak, once all steps are known.

    Building, the first step, the steady step with the highest peak and the one before it; of the
    steps between, only what outlives them.
    """
    peaks = _peaks(storages, step_starts)
    steady = range(min(_UNSTEADY_STEPS, len(peaks) - 1), len(peaks))
    highest = max(steady, key=lambda step: (peaks[step], step))
    starts = [*step_starts, len(storages)]
    first_end, last_start, last_end = starts[1], starts[max(highest - 1, 1)], starts[highest + 1]
    between = _outliving(storages, first_end, last_start)
    return [*range(first_end), *between, *range(last_start, last_end)]


def _peaks(storages: Storages, step_starts: Sequence[int]) -> list[int]:
    """The most bytes live at once in each step."""
    live: dict[int, int] = {}
    now_bytes, step = 0, -1
    peaks = [0] * len(step_starts)
    starts = iter([*step_starts, len(storages) + 1])
    following = next(starts)
    for place, (number, size_bytes) in enumerate(storages):
        while place >= following:
            following, step = next(starts), step + 1
        if size_bytes == FREED:
            now_bytes -= live.pop(number)
            continue
        live[number] = size_bytes
        now_bytes += size_bytes
        if step >= 0:
            peaks[step] = max(peaks[step], now_bytes)
    return peaks


def _outliving(storages: Storages, start: int, end: int) -> Iterator[int]:
    """Places where a storage from before is freed, or one is made that lives on."""
    made = {number for number, size_bytes in storages[start:end] if size_bytes != FREED}
    freed = {number for number, size_bytes in storages[start:end] if size_bytes == FREED}
    passing = made & freed
    return (place for place in range(start, end) if storages[place][0] not in passing)
