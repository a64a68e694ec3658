"""From steps traced at a few batch sizes to a step at any batch size.

Operations of the traces are laid side by side; each amount and each dimension becomes the
polynomial of lowest degree (at most 2) through every traced size. Three sizes determine it, the
others check it. Where the traces do not line up, amounts are summed by kind and drawn as straight
lines, and the profile says so.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING

from outlay.trace.profile import History, Memory, Op, Polynomial, ProfileOp

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_MAX_DEGREE = 2

_Fit = Callable[[Iterable[float]], Polynomial]


@lru_cache(maxsize=65_536)
def polynomial_through(
    sizes: tuple[int, ...], values: tuple[float, ...]
) -> tuple[Polynomial, bool]:
    """The polynomial of lowest degree through all points, and whether there is one.

    Without one (degree over 2), the straight line through the first and the last point.
    """
    exact = tuple(Fraction(value) for value in values)
    for degree in range(min(_MAX_DEGREE, len(sizes) - 1) + 1):
        coefficients = _interpolated(sizes[: degree + 1], exact[: degree + 1])
        if all(_at(coefficients, n) == value for n, value in zip(sizes, exact, strict=True)):
            return tuple(map(float, coefficients)), True
    line = _interpolated((sizes[0], sizes[-1]), (exact[0], exact[-1]))
    return tuple(map(float, line)), False


def _interpolated(sizes: Sequence[int], values: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients, constant first, by Newton's divided differences."""
    differences = list(values)
    for order in range(1, len(sizes)):
        for i in range(len(sizes) - 1, order - 1, -1):
            step = sizes[i] - sizes[i - order]
            differences[i] = (differences[i] - differences[i - 1]) / step
    coefficients = [Fraction(0)]
    for size, difference in zip(reversed(sizes), reversed(differences), strict=True):
        shifted = [Fraction(0), *coefficients]
        scaled = [*(-size * c for c in coefficients), Fraction(0)]
        coefficients = [a + b for a, b in zip(shifted, scaled, strict=True)]
        coefficients[0] += difference
    return coefficients[: len(sizes)]


def _at(coefficients: Sequence[Fraction], size: int) -> Fraction:
    return sum((c * size**power for power, c in enumerate(coefficients)), Fraction(0))


def aligned(traces: Sequence[Sequence[Op]]) -> bool:
    """Whether all traces run the same operators on tensors of the same ranks, in order."""
    first = traces[0]
    return all(
        len(trace) == len(first) and all(map(_same_operator, first, trace)) for trace in traces[1:]
    )


def _same_operator(one: Op, other: Op) -> bool:
    return _identity(one) == _identity(other)


def _identity(op: Op) -> tuple[object, ...]:
    ranks = tuple(len(shape) for shape in op.shapes)
    return op.name, op.kind, op.phase, op.precision, op.launches, ranks


def fit_aligned(
    sizes: tuple[int, ...], traces: Sequence[Sequence[Op]], period: int
) -> tuple[tuple[ProfileOp, ...], list[str]]:
    """One operation per group of identical ones, and what could not be fitted."""
    off = 0

    def fitted(values: Iterable[float]) -> Polynomial:
        nonlocal off
        polynomial, exact = polynomial_through(sizes, tuple(values))
        off += not exact
        return polynomial

    rows = (_row(ops, fitted) for ops in zip(*traces, strict=True))
    merged = _merged(rows, period)
    if not off:
        return merged, []
    note = (
        f"{off} amounts are not polynomials of degree 2 in the batch size; they are drawn as "
        f"straight lines from batch size {sizes[0]} to {sizes[-1]}."
    )
    return merged, [note]


def _row(ops: Sequence[Op], fitted: _Fit) -> ProfileOp:
    first = ops[0]
    return ProfileOp(
        name=first.name,
        kind=first.kind,
        phase=first.phase,
        precision=first.precision,
        count=1,
        flops=fitted(op.flops for op in ops),
        moved_bytes=fitted(op.moved_bytes for op in ops),
        launches=first.launches,
        layout=ops[-1].layout,  # a batch of one sample can look like another layout
        shapes=tuple(
            tuple(fitted(sizes) for sizes in zip(*shapes, strict=True))
            for shapes in zip(*(op.shapes for op in ops), strict=True)
        ),
    )


def _merged(rows: Iterable[ProfileOp], period: int) -> tuple[ProfileOp, ...]:
    """Identical operations once, with how often they run in a step, in order."""
    counts = Counter(rows)
    return tuple(replace(row, count=count / period) for row, count in counts.items())


def fit_by_kind(
    sizes: tuple[int, ...], traces: Sequence[Sequence[Op]], period: int
) -> tuple[tuple[ProfileOp, ...], list[str]]:
    """One operation per kind, phase and precision, its amounts straight lines; and a note."""
    groups = dict.fromkeys(_group(op) for trace in traces for op in trace)
    rows = tuple(_group_row(group, sizes, traces, period) for group in groups)
    lengths = ", ".join(f"{len(t) / period:g} at {n}" for n, t in zip(sizes, traces, strict=True))
    note = (
        f"The step runs different operations at different batch sizes ({lengths}). Amounts are "
        f"summed by kind and drawn as straight lines; the number of operations is that at batch "
        f"size {sizes[-1]}."
    )
    return rows, [note]


def _group(op: Op) -> tuple[object, ...]:
    return op.kind, op.phase, op.precision, op.layout, op.launches > 0


def _group_row(
    group: tuple[object, ...],
    sizes: tuple[int, ...],
    traces: Sequence[Sequence[Op]],
    period: int,
) -> ProfileOp:
    members = [[op for op in trace if _group(op) == group] for trace in traces]
    model = next(op for ops in members for op in ops)
    count = max(len(members[-1]), 1)
    launches = sum(op.launches for op in members[-1]) / count
    return ProfileOp(
        name=f"{model.kind} (summed)",
        kind=model.kind,
        phase=model.phase,
        precision=model.precision,
        count=count / period,
        flops=_line(sizes, [sum(op.flops for op in ops) / count for ops in members]),
        moved_bytes=_line(sizes, [sum(op.moved_bytes for op in ops) / count for ops in members]),
        launches=launches,
        layout=model.layout,
    )


def _line(sizes: Sequence[int], values: Sequence[float]) -> Polynomial:
    """The straight line through the first and the last point."""
    slope = (values[-1] - values[0]) / (sizes[-1] - sizes[0]) if len(sizes) > 1 else 0.0
    return (values[0] - slope * sizes[0], slope)


# Peak memory at any batch size: the highest of the straight lines that live memory follows.
#
# At each event of a step (a storage made or freed) the live bytes of every category grow with the
# batch size along a line, which two traces give. The peak is the upper envelope of those lines:
# piecewise linear, with a bend where another moment of the step becomes the highest. A profile
# keeps the envelope's ends and bends, so that reading between them is exact.


LARGEST = 65_536
"""The batch size up to which bends are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """Live bytes at one event of the step: `start_bytes + slope_bytes * batch size`."""

    event: int
    start_bytes: float
    slope_bytes: float

    def at(self, batch_size: float) -> float:
        """Live bytes at a batch size."""
        return self.start_bytes + self.slope_bytes * batch_size


def lines_through(
    sizes: tuple[int, int], live_bytes: tuple[Sequence[float], Sequence[float]]
) -> list[MemoryLine]:
    """The line of each event, from the live bytes after it at two batch sizes."""
    lines = []
    for event, (low, high) in enumerate(zip(*live_bytes, strict=True)):
        slope = (high - low) / (sizes[1] - sizes[0])
        lines.append(MemoryLine(event=event, start_bytes=low - slope * sizes[0], slope_bytes=slope))
    return lines


def upper_envelope(lines: Sequence[MemoryLine]) -> list[tuple[int, MemoryLine]]:
    """The highest line from batch size 1 on: (first batch size, line), ascending."""
    result: list[tuple[int, MemoryLine]] = []
    first = 1
    current = max(lines, key=lambda line: (line.at(1), line.slope_bytes))
    steeper = [line for line in lines if line.slope_bytes > current.slope_bytes]
    while steeper:
        result.append((first, current))
        crossing, current = min(
            ((_crossing(current, line), line) for line in steeper),
            key=lambda pair: (pair[0], -pair[1].slope_bytes),
        )
        first = math.ceil(crossing)
        steeper = [line for line in steeper if line.slope_bytes > current.slope_bytes]
        if first > LARGEST:
            return result
    return [*result, (first, current)]


def _crossing(flat: MemoryLine, steep: MemoryLine) -> float:
    rise = steep.slope_bytes - flat.slope_bytes
    return max((flat.start_bytes - steep.start_bytes) / rise, 1.0)


def bends(envelope: Sequence[tuple[int, MemoryLine]]) -> dict[int, MemoryLine]:
    """The batch sizes to keep: both ends of every piece, and two of the last."""
    points: dict[int, MemoryLine] = {}
    following = [first for first, _ in envelope[1:]]
    for (first, line), after in zip(envelope, [*following, 0], strict=True):
        points[first] = line
        last = after - 1 if after else 2 * first + 1
        if last > first:
            points[last] = line
    return points


def blended(sizes: tuple[int, int], memories: tuple[Memory, Memory], batch_size: int) -> Memory:
    """Memory by category on the line through two batch sizes."""
    share = (batch_size - sizes[0]) / (sizes[1] - sizes[0])
    amounts: Mapping[str, float] = {
        field.name: _blend(field.name, memories, share) for field in fields(Memory)
    }
    return Memory(**amounts)


def _blend(name: str, memories: tuple[Memory, Memory], share: float) -> float:
    low, high = (getattr(memory, name) for memory in memories)
    return max(float(round(low + (high - low) * share)), 0.0)


# A step's allocations at any batch size, from what a few traces noted.
#
# A trace notes every storage from the building of the model on. Traces at several batch sizes are
# laid side by side, so that each size becomes a polynomial in the batch size. Of a long period only
# some steps are kept: the first, the one with the highest peak, and the one before that.


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


# When gradients are finished in backward: what an exchange over GPUs can hide behind.


POINTS = 16
"""The gradients' bytes are cut into so many equal parts."""

# Assumes: for shares of backward, rates of one large GPU do: what counts is which layers are slow.
_TENSOR_FLOPS_PER_S = 4e14
_PLAIN_FLOPS_PER_S = 4e13
_BYTES_PER_S = 4e12
_LAUNCH_S = 2e-6


def readiness(ops: Sequence[Op], finished: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """The share of backward that has passed when 1/16, 2/16 ... of all gradients are finished.

    `finished` has, for each gradient in order, how many operations ran before it was, and its
    bytes. Without any, or without a backward pass, gradients count as finished at the end.
    """
    times_s = list(accumulate((_time_s(op) for op in ops), initial=0.0))
    total_s, total_bytes = times_s[-1], sum(size for _, size in finished)
    if total_s <= 0 or total_bytes <= 0:
        return (1.0,) * POINTS
    shares, sums = [], 0
    wanted = [total_bytes * (i + 1) / POINTS for i in range(POINTS)]
    for place, size in finished:
        sums += size
        while wanted and sums >= wanted[0]:
            wanted.pop(0)
            shares.append(round(times_s[min(place, len(ops))] / total_s, 4))
    return tuple(shares)


def _time_s(op: Op) -> float:
    """A rough time of an operation of backward; none for others."""
    if op.phase not in ("backward", "recompute"):
        return 0.0
    rate = _PLAIN_FLOPS_PER_S if op.precision in ("fp32", "fp64") else _TENSOR_FLOPS_PER_S
    return max(op.flops / rate, op.moved_bytes / _BYTES_PER_S) + _LAUNCH_S * (op.launches > 0)
