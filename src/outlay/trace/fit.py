"""From steps traced at a few batch sizes to a step at any batch size.

Operations of the traces are laid side by side; each amount and each dimension becomes the
polynomial of lowest degree (at most 2) through every traced size. Three sizes determine it, the
others check it. Where the traces do not line up, amounts are summed by kind and drawn as straight
lines, and the profile says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from outlay.trace.trace import Op, Polynomial, ProfileOp

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
