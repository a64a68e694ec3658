"""From steps traced at a few batch sizes to a step at any batch size.

Operations: those of the traces are laid side by side; each amount and each dimension becomes the
polynomial of lowest degree (at most 2) through every traced size. Three sizes determine it, the
others check it. Where the traces do not line up, amounts are summed by kind and drawn as straight
lines, and the profile says so. Peak memory: the upper envelope of the lines that live bytes follow.
Allocations: each storage's size becomes a polynomial, too. Gradients: when they are finished in
backward, from the largest trace. `profile_of_captures` puts these together.
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

from outlay.trace.allocator import peak_use_and_need
from outlay.trace.fusion import Flow, fused_ops
from outlay.trace.profile import (
    AllocatorUse,
    BlockGroup,
    Fused,
    History,
    Memory,
    Op,
    Polynomial,
    Profile,
    ProfileOp,
    Structure,
)
from outlay.units import GIB

if TYPE_CHECKING:
    from outlay.trace.capture import Capture

# Polynomials in the batch size


_MAX_DEGREE = 2


@lru_cache(maxsize=65_536)
def polynomial_through(
    sizes: tuple[int, ...], values: tuple[float, ...]
) -> tuple[Polynomial, bool]:
    """The polynomial of lowest degree through all points, and whether there is one.

    Without one (degree over 2), the straight line through the first and the last point.
    """
    exact = tuple(Fraction(value) for value in values)
    for degree in range(min(_MAX_DEGREE, len(sizes) - 1) + 1):
        coefficients = coefficients_through(sizes[: degree + 1], exact[: degree + 1])
        if all(_exact_at(coefficients, n) == value for n, value in zip(sizes, exact, strict=True)):
            return tuple(map(float, coefficients)), True
    line = coefficients_through((sizes[0], sizes[-1]), (exact[0], exact[-1]))
    return tuple(map(float, line)), False


def coefficients_through(sizes: Sequence[int], values: Sequence[Fraction]) -> list[Fraction]:
    """Coefficients of the polynomial through all points, constant first.

    By Newton's divided differences.
    """
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


def _exact_at(coefficients: Sequence[Fraction], size: int) -> Fraction:
    return sum((c * size**power for power, c in enumerate(coefficients)), Fraction(0))


def _line(sizes: Sequence[int], values: Sequence[float]) -> Polynomial:
    """The straight line through the first and the last point."""
    slope = (values[-1] - values[0]) / (sizes[-1] - sizes[0]) if len(sizes) > 1 else 0.0
    return (values[0] - slope * sizes[0], slope)


# Operations


_Fit = Callable[[Iterable[float]], Polynomial]


def aligned(traces: Sequence[Sequence[Op]]) -> bool:
    """Whether all traces run the same operators on tensors of the same ranks, in order."""
    first = traces[0]
    return all(
        len(trace) == len(first)
        and all(_identity(op) == _identity(other) for op, other in zip(first, trace, strict=True))
        for trace in traces[1:]
    )


def _identity(op: Op) -> tuple[object, ...]:
    ranks = tuple(len(shape) for shape in op.shapes)
    return op.name, op.kind, op.phase, op.precision, op.launches, ranks


def fit_aligned(
    sizes: tuple[int, ...],
    traces: Sequence[Sequence[Op]],
    period: int,
    flows: Sequence[Sequence[Flow]] = (),
) -> tuple[tuple[ProfileOp, ...], list[str]]:
    """One operation per group of identical ones, and what could not be fitted.

    `flows` are those of the operations of each trace, where they were noted.
    """
    inexact = 0

    def fit(values: Iterable[float]) -> Polynomial:
        nonlocal inexact
        polynomial, exact = polynomial_through(sizes, tuple(values))
        inexact += not exact
        return polynomial

    fitted = (_fitted(ops, fit) for ops in zip(*traces, strict=True))
    fused = fit_fused(sizes, traces, flows)
    merged = _merged(
        (replace(op, fused=left) for op, left in zip(fitted, fused, strict=True)), period
    )
    if not inexact:
        return merged, []
    note = (
        f"{inexact} amounts are not polynomials of degree 2 in the batch size; they are drawn as "
        f"straight lines from batch size {sizes[0]} to {sizes[-1]}."
    )
    return merged, [note]


def _fitted(ops: Sequence[Op], fit: _Fit) -> ProfileOp:
    """One operation at any batch size, from what it is at each of the traced."""
    first = ops[0]
    return ProfileOp(
        name=first.name,
        kind=first.kind,
        phase=first.phase,
        precision=first.precision,
        count=1,
        flops=fit(op.flops for op in ops),
        moved_bytes=fit(op.moved_bytes for op in ops),
        launches=first.launches,
        layout=ops[-1].layout,  # a batch of one sample can look like another layout
        shapes=tuple(
            tuple(fit(sizes) for sizes in zip(*shapes, strict=True))
            for shapes in zip(*(op.shapes for op in ops), strict=True)
        ),
        efficiency=ops[-1].efficiency,
    )


def fit_fused(
    sizes: tuple[int, ...], traces: Sequence[Sequence[Op]], flows: Sequence[Sequence[Flow]]
) -> list[Fused | None]:
    """What torch.compile leaves of each operation, by what the largest trace shares.

    None of each where the flows do not line up, or were not noted.
    """
    if not flows or not _flows_align(traces, flows):
        return [None] * len(traces[0])
    places = _distinct(flows[-1])
    distinct = [[of_trace[place] for place in places] for of_trace in flows]
    last_ops = [traces[-1][place] for place in places]
    left = fused_ops(last_ops, distinct[-1])
    numbers = {id(flow): number for number, flow in enumerate(distinct[-1])}
    fitted: list[Fused | None] = []
    for row, flow in zip(zip(*traces, strict=True), flows[-1], strict=True):
        fused = left[numbers[id(flow)]]
        if fused is None or fused.slots is None:
            fitted.append(None if fused is None else Fused(launches=fused.launches))
            continue
        amounts = tuple(
            fused.moved_bytes(op, of_trace) for op, of_trace in zip(row, distinct, strict=True)
        )
        moved = polynomial_through(sizes, amounts)[0]
        fitted.append(Fused(moved_bytes=moved, launches=fused.launches))
    return fitted


def _distinct(flows: Sequence[Flow]) -> list[int]:
    """The places of flows that are not those of a step that was noted once more."""
    first: dict[int, int] = {}
    for place, flow in enumerate(flows):
        first.setdefault(id(flow), place)
    return list(first.values())


def _flows_align(traces: Sequence[Sequence[Op]], flows: Sequence[Sequence[Flow]]) -> bool:
    """Whether all traces read and write as many tensors in each operation."""
    if any(len(ops) != len(of_trace) for ops, of_trace in zip(traces, flows, strict=True)):
        return False
    return all(
        len({(len(flow.reads), len(flow.sizes_bytes)) for flow in row}) == 1
        for row in zip(*flows, strict=True)
    )


def _merged(ops: Iterable[ProfileOp], period: int) -> tuple[ProfileOp, ...]:
    """Identical operations once, with how often they run in a step, in order."""
    counts = Counter(ops)
    return tuple(replace(op, count=count / period) for op, count in counts.items())


def fit_by_kind(
    sizes: tuple[int, ...], traces: Sequence[Sequence[Op]], period: int
) -> tuple[tuple[ProfileOp, ...], list[str]]:
    """One operation per kind, phase and precision, its amounts straight lines; and a note."""
    groups = dict.fromkeys(_group(op) for trace in traces for op in trace)
    ops = tuple(_summed(group, sizes, traces, period) for group in groups)
    lengths = ", ".join(f"{len(t) / period:g} at {n}" for n, t in zip(sizes, traces, strict=True))
    note = (
        f"The step runs different operations at different batch sizes ({lengths}). Amounts are "
        f"summed by kind and drawn as straight lines; the number of operations is that at batch "
        f"size {sizes[-1]}."
    )
    return ops, [note]


def _group(op: Op) -> tuple[object, ...]:
    return op.kind, op.phase, op.precision, op.layout, op.launches > 0, op.efficiency


def _summed(
    group: tuple[object, ...],
    sizes: tuple[int, ...],
    traces: Sequence[Sequence[Op]],
    period: int,
) -> ProfileOp:
    """One operation with the amounts of a whole group."""
    members = [[op for op in trace if _group(op) == group] for trace in traces]
    example = next(op for ops in members for op in ops)
    count = max(len(members[-1]), 1)
    launches = sum(op.launches for op in members[-1]) / count
    return ProfileOp(
        name=f"{example.kind} (summed)",
        kind=example.kind,
        phase=example.phase,
        precision=example.precision,
        count=count / period,
        flops=_line(sizes, [sum(op.flops for op in ops) / count for ops in members]),
        moved_bytes=_line(sizes, [sum(op.moved_bytes for op in ops) / count for ops in members]),
        launches=launches,
        layout=example.layout,
        efficiency=example.efficiency,
    )


# Peak memory. At each event of a step (a storage made or freed) the live bytes of every category
# grow with the batch size along a line, which two traces give. The peak is the upper envelope of
# those lines: piecewise linear, with a breakpoint where another moment of the step becomes the
# highest. A profile keeps the envelope's ends and breakpoints: reading between them is exact.


LARGEST_BATCH_SIZE = 65_536
"""Up to which breakpoints are looked for."""


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
        if first > LARGEST_BATCH_SIZE:
            return result
    return [*result, (first, current)]


def _crossing(flat: MemoryLine, steep: MemoryLine) -> float:
    rise = steep.slope_bytes - flat.slope_bytes
    return max((flat.start_bytes - steep.start_bytes) / rise, 1.0)


def breakpoints(envelope: Sequence[tuple[int, MemoryLine]]) -> dict[int, MemoryLine]:
    """The batch sizes to keep: both ends of every piece, and two of the last."""
    points: dict[int, MemoryLine] = {}
    following = [first for first, _ in envelope[1:]]
    for (first, line), after in zip(envelope, [*following, 0], strict=True):
        points[first] = line
        last = after - 1 if after else 2 * first + 1
        if last > first:
            points[last] = line
    return points


def memory_on_line(
    sizes: tuple[int, int], memories: tuple[Memory, Memory], batch_size: int
) -> Memory:
    """Memory by category on the line through two batch sizes, in whole bytes."""
    fraction = (batch_size - sizes[0]) / (sizes[1] - sizes[0])
    amounts: Mapping[str, float] = {
        category.name: _bytes_on_line(category.name, memories, fraction)
        for category in fields(Memory)
    }
    return Memory(**amounts)


def _bytes_on_line(category: str, memories: tuple[Memory, Memory], fraction: float) -> float:
    low, high = (getattr(memory, category) for memory in memories)
    return max(float(round(low + (high - low) * fraction)), 0.0)


# Allocations. A trace notes every storage from the building of the model on. Traces at several
# batch sizes are laid side by side, so that each size becomes a polynomial. Of a long period only
# some steps are kept: the first, the one with the highest peak, and the one before that.


FREED = -1
"""In a list of storages, the size that says that one ends."""

Storages = Sequence[tuple[int, int]]
"""Every storage's number with its size in bytes where it is made, and with `FREED` at its end."""

UNSTEADY_STEPS = 2
"""The first step makes optimizer state, and the second finds memory as the first left it."""
_FEWEST_TO_CHECK = 4
"""Traces needed to trust a curve: three determine it, one checks it."""


def storages_align(first: Storages, second: Storages) -> bool:
    """Whether two traces make and free the same storages in the same order."""
    return len(first) == len(second) and all(
        number == other and (size_bytes == FREED) == (other_bytes == FREED)
        for (number, size_bytes), (other, other_bytes) in zip(first, second, strict=True)
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
    conditions = conditions or {}
    sizes: dict[tuple[Polynomial, bool, str], int] = {}
    events: list[int] = []
    order: dict[int, int] = {}
    for row in zip(*traces, strict=True):
        number = row[0][0]
        if row[0][1] == FREED:
            events.append(order[number] - len(order))
            continue
        polynomial = _polynomial(tuple(batch_sizes), tuple(size_bytes for _, size_bytes in row))
        size = polynomial, number in optional, conditions.get(number, "")
        order[number] = len(order)
        events.append(sizes.setdefault(size, len(sizes)))
    return History(
        sizes=tuple(polynomial for polynomial, _, _ in sizes),
        events=tuple(events),
        optional=frozenset(index for (_, is_optional, _), index in sizes.items() if is_optional),
        conditions={index: condition for (_, _, condition), index in sizes.items() if condition},
    )


def _polynomial(batch_sizes: tuple[int, ...], sizes_bytes: tuple[int, ...]) -> Polynomial:
    """Through all traces if that can be checked, else a line through the largest two."""
    polynomial, exact = polynomial_through(batch_sizes, sizes_bytes)
    if exact and (len(polynomial) <= 2 or len(batch_sizes) >= _FEWEST_TO_CHECK):
        return polynomial
    return polynomial_through(batch_sizes[-2:], sizes_bytes[-2:])[0]


def relevant_events(storages: Storages, step_starts: Sequence[int]) -> list[int]:
    """The indices of what matters for the peak, once all steps are known.

    Building, the first step, the steady step with the highest peak and the one before it; of the
    steps between, only what outlives them.
    """
    peaks_bytes = _peaks_bytes(storages, step_starts)
    steady = range(min(UNSTEADY_STEPS, len(peaks_bytes) - 1), len(peaks_bytes))
    highest = max(steady, key=lambda step: (peaks_bytes[step], step))
    starts = [*step_starts, len(storages)]
    first_end, last_start, last_end = starts[1], starts[max(highest - 1, 1)], starts[highest + 1]
    between = _outliving(storages, first_end, last_start)
    return [*range(first_end), *between, *range(last_start, last_end)]


def _peaks_bytes(storages: Storages, step_starts: Sequence[int]) -> list[int]:
    """The most bytes live at once in each step."""
    live: dict[int, int] = {}
    live_bytes, step = 0, -1
    peaks_bytes = [0] * len(step_starts)
    starts = iter([*step_starts, len(storages) + 1])
    next_start = next(starts)
    for index, (number, size_bytes) in enumerate(storages):
        while index >= next_start:
            next_start, step = next(starts), step + 1
        if size_bytes == FREED:
            live_bytes -= live.pop(number)
            continue
        live[number] = size_bytes
        live_bytes += size_bytes
        if step >= 0:
            peaks_bytes[step] = max(peaks_bytes[step], live_bytes)
    return peaks_bytes


def _outliving(storages: Storages, start: int, end: int) -> Iterator[int]:
    """The indices at which a storage from before is freed, or one is made that lives on."""
    made = {number for number, size_bytes in storages[start:end] if size_bytes != FREED}
    freed = {number for number, size_bytes in storages[start:end] if size_bytes == FREED}
    short_lived = made & freed
    return (index for index in range(start, end) if storages[index][0] not in short_lived)


# Gradients: when they are finished in backward, which is what an exchange over GPUs hides behind.


READY_POINTS = 16
"""The gradients' bytes are cut into so many equal parts."""

# Assumes: for shares of backward, rates of one large GPU do: what counts is which layers are slow.
_TENSOR_FLOPS_PER_S = 4e14
_PLAIN_FLOPS_PER_S = 4e13
_BYTES_PER_S = 4e12
_LAUNCH_S = 2e-6


def gradient_readiness(
    ops: Sequence[Op], gradients: Sequence[tuple[int, int]]
) -> tuple[float, ...]:
    """The share of backward that has passed when 1/16, 2/16 ... of all gradients are finished.

    `gradients` has, for each in order, how many operations ran before it was finished, and its
    bytes. Without any, or without a backward pass, gradients count as finished at the end.
    """
    times_s = list(accumulate((_time_s(op) for op in ops), initial=0.0))
    total_s, total_bytes = times_s[-1], sum(size_bytes for _, size_bytes in gradients)
    if total_s <= 0 or total_bytes <= 0:
        return (1.0,) * READY_POINTS
    shares: list[float] = []
    finished_bytes = 0
    thresholds = [total_bytes * (i + 1) / READY_POINTS for i in range(READY_POINTS)]
    for ops_before, size_bytes in gradients:
        finished_bytes += size_bytes
        while thresholds and finished_bytes >= thresholds[0]:
            thresholds.pop(0)
            shares.append(round(times_s[min(ops_before, len(ops))] / total_s, 4))
    return tuple(shares)


def _time_s(op: Op) -> float:
    """A rough time of an operation of backward; none for others."""
    if op.phase not in ("backward", "recompute"):
        return 0.0
    rate = _PLAIN_FLOPS_PER_S if op.precision in ("fp32", "fp64") else _TENSOR_FLOPS_PER_S
    return max(op.flops / rate, op.moved_bytes / _BYTES_PER_S) + _LAUNCH_S * (op.launches > 0)


# The profile


ALLOCATOR_GRID = (*range(1, 8), *(n * 2**power for power in range(1, 16) for n in range(4, 8)))
"""Batch sizes at which the allocator is modelled: each up to 8, then four to each doubling."""
MOST_GROWN_BYTES = 512 * GIB
"""Beyond what one sample takes: models too large for any one GPU are spread over many."""


def profile_of_captures(
    captures: Sequence[Capture], *, name: str, description: str, sample: str
) -> Profile:
    """One profile from the captures at several batch sizes, ascending."""
    last = captures[-1]
    sizes = tuple(capture.batch_size for capture in captures)
    traces = [capture.ops for capture in captures]
    history = _common_history(captures)
    if aligned(traces):
        flows = [capture.flows for capture in captures]
        ops, notes = fit_aligned(sizes, traces, last.period, flows)
    else:
        ops, notes = fit_by_kind(sizes, traces, last.period)
    return Profile(
        name=name,
        description=description,
        sample=sample,
        parameters=last.parameters,
        trainable_parameters=last.trainable_parameters,
        ops=ops,
        memory=_memory(captures),
        allocator_use=_allocator_use(captures, history),
        history=history,
        issued_ops=len(last.ops) / last.period,
        structure=_structure(captures),
        compilable=last.compilable,
        period=last.period,
        unknown_ops={op: count / last.period for op, count in last.unknown_ops.items()},
        notes=(*last.notes, *notes, *_size_notes(sizes)),
    )


def history_of_capture(capture: Capture) -> History:
    """What one trace allocated, at its batch size alone."""
    memory = capture.memory
    storages = [memory.history[i] for i in relevant_events(memory.history, memory.step_starts)]
    return history_of([capture.batch_size], [storages], memory.optional, memory.conditions)


def _common_history(captures: Sequence[Capture]) -> History | None:
    """What is allocated and freed at any batch size, or None where no two traces line up."""
    last = captures[-1].memory
    alike = [
        capture for capture in captures if storages_align(capture.memory.history, last.history)
    ]
    if len(alike) < 2:
        return None
    events = relevant_events(last.history, last.step_starts)
    traces = [[capture.memory.history[event] for event in events] for capture in alike]
    sizes = [capture.batch_size for capture in alike]
    return history_of(sizes, traces, last.optional, last.conditions)


def _memory(captures: Sequence[Capture]) -> dict[int, Memory]:
    """Peak memory where it was traced, and where another moment of the step becomes the peak."""
    points = {capture.batch_size: capture.memory.peak() for capture in captures}
    if len(captures) < 2:
        return points
    low, high = captures[-2:]
    sizes = low.batch_size, high.batch_size
    live_bytes = low.memory.live_bytes(), high.memory.live_bytes()
    if len(live_bytes[0]) == len(live_bytes[1]):
        envelope = upper_envelope(lines_through(sizes, live_bytes))
        for batch_size, line in breakpoints(envelope).items():
            ends = low.memory.at(line.event), high.memory.at(line.event)
            points.setdefault(batch_size, memory_on_line(sizes, ends, batch_size))
    return dict(sorted(points.items()))


def _allocator_use(captures: Sequence[Capture], history: History | None) -> dict[int, AllocatorUse]:
    """What the allocator would use and the least it needs, on a grid of batch sizes.

    Without a common history, each trace's own at the batch size of that trace.
    """
    if history is None:
        return {
            capture.batch_size: peak_use_and_need(history_of_capture(capture), capture.batch_size)
            for capture in captures
        }
    points: dict[int, AllocatorUse] = {}
    for batch_size in ALLOCATOR_GRID:
        points[batch_size] = peak_use_and_need(history, batch_size)
        grown_bytes = points[batch_size].reserved_bytes - points[ALLOCATOR_GRID[0]].reserved_bytes
        if grown_bytes > MOST_GROWN_BYTES:
            break
    return points


def _structure(captures: Sequence[Capture]) -> Structure:
    """Blocks, what one hands to the next at any batch size, and gradients."""
    last = captures[-1]
    alike = all(capture.blocks.keys() == last.blocks.keys() for capture in captures)
    fitted = captures if alike else captures[-1:]
    sizes = tuple(capture.batch_size for capture in fitted)
    blocks = []
    for key, outputs in last.blocks.items():
        name, parameters, width = key
        means = tuple(sum(capture.blocks[key]) / len(capture.blocks[key]) for capture in fitted)
        polynomial, _ = polynomial_through(sizes, means)
        blocks.append(
            BlockGroup(
                name=name,
                count=len(outputs),
                parameters=parameters,
                output_bytes=polynomial,
                width=width,
            )
        )
    return Structure(
        blocks=tuple(blocks),
        gradient_bytes=sum(size_bytes for _, size_bytes in last.gradients) / last.period,
        ready=gradient_readiness(last.ops, last.gradients),
    )


def _size_notes(sizes: tuple[int, ...]) -> list[str]:
    if len(sizes) >= _FEWEST_TO_CHECK:
        return []
    return [f"Traced at {len(sizes)} batch sizes only: other sizes are extrapolated unchecked."]
