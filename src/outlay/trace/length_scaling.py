"""From steps traced at a few batch sizes and lengths to a step at any.

Traces at a grid of batch sizes and lengths are laid side by side, operation by operation and
storage by storage. Each amount, dimension and storage size becomes the polynomial, of degree 2 at
most in either, through the grid; traces beside the grid check it. A step that does something else
from some length on (another mask, chunks, another kernel) does not line up: that is
`LengthsDiffer`, which names the first difference; the lengths on each side of it are then to be
traced by themselves.

A deep model takes long to trace, and its layers are alike. So the grid may be of the same model
with few layers (one of each kind at least), and one trace of the whole model, at a point of the
grid, says what runs how often and in which order. Each operation and storage of the whole is one of
the few layers at that point; what is not (one update of all parameters) depends on depth alone, and
so does what of the few layers is not found in the whole. Where that cannot be told, `LayersDiffer`
says so, and the grid has to be of the whole model. `length_profile_of_captures` puts it together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from outlay.errors import InputError, TraceFailed
from outlay.trace.batch_scaling import (
    FREED,
    UNSTEADY_STEPS,
    aligned,
    coefficients_through,
    gradient_readiness,
    storages_align,
)
from outlay.trace.length_profile import (
    LengthHistory,
    LengthOp,
    LengthProfile,
    LengthStructure,
    Surface,
    allocator_shares,
    polynomial_at,
)
from outlay.trace.profile import BlockGroup, Op, ProfileOp, value_at
from outlay.units import KIB

if TYPE_CHECKING:
    from outlay.trace.capture import Capture
    from outlay.trace.capture.memory_tracker import MemoryTracker

Point = tuple[int, int]
"""A batch size and a length."""
Captures = Mapping[Point, "Capture"]

_TOLERANCE = 1e-9
"""How far a check may be off, as a share: amounts of several factors are rounded."""


class LengthsDiffer(TraceFailed):
    """Traces at several batch sizes and lengths do not line up."""


class LayersDiffer(TraceFailed):
    """What the whole model does is not what its few layers do, more often."""


# Surfaces


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceGrid:
    """Where a step is traced: every batch size with every length, and other points as checks."""

    batch_sizes: tuple[int, ...]
    lengths: tuple[int, ...]
    checks: tuple[Point, ...] = ()

    @property
    def points(self) -> tuple[Point, ...]:
        """All of them, the checks last."""
        return (*((b, n) for b in self.batch_sizes for n in self.lengths), *self.checks)

    @property
    def middle(self) -> Point:
        """The point where the fewest sizes coincide by chance."""
        sizes, lengths = self.batch_sizes, self.lengths
        return sizes[len(sizes) // 2], lengths[len(lengths) // 2]


class SurfaceFit:
    """Surfaces through the values at the points of a grid, and how many missed a check."""

    def __init__(self, grid: TraceGrid) -> None:
        self.missed: dict[str, float] = {}
        """Of what has missed a check: by how much at most, as a share."""
        self._grid = grid
        self._known: dict[tuple[float, ...], tuple[Surface, float]] = {}

    def surface(self, values: Sequence[float], what: str) -> Surface:
        """The surface through the values at all points of the grid, in their order."""
        key = tuple(values)
        if key not in self._known:
            self._known[key] = self._through(key)
        surface, miss = self._known[key]
        if miss > _TOLERANCE:
            self.missed[what] = max(miss, self.missed.get(what, 0.0))
        return surface

    def _through(self, values: tuple[float, ...]) -> tuple[Surface, float]:
        if all(value == values[0] for value in values):
            return ((float(values[0]),),), 0.0
        grid = self._grid
        exact = iter([Fraction(value) for value in values])
        rows = [
            coefficients_through(grid.lengths, [next(exact) for _ in grid.lengths])
            for _ in grid.batch_sizes
        ]
        columns = [
            coefficients_through(grid.batch_sizes, list(column))
            for column in zip(*rows, strict=True)
        ]
        surface = _trimmed(list(zip(*columns, strict=True)), grid, max(map(abs, values)))
        checks = zip(grid.checks, values[len(grid.points) - len(grid.checks) :], strict=True)
        misses = [
            abs(value_on(surface, point) - value) / max(abs(value), 1) for point, value in checks
        ]
        return surface, max(misses, default=0.0)


def _trimmed(rows: Sequence[Sequence[Fraction]], grid: TraceGrid, largest: float) -> Surface:
    """Coefficients by power of batch size and length, without those that rounding has made."""
    batch_size, length = grid.batch_sizes[-1], grid.lengths[-1]
    surface: list[tuple[float, ...]] = []
    for power, row in enumerate(rows):
        kept = [
            float(c) if abs(c) * batch_size**power * length**place > largest * 1e-12 else 0.0
            for place, c in enumerate(row)
        ]
        surface.append(_without_trailing_zeros(kept) or (0.0,))
    while len(surface) > 1 and surface[-1] == (0.0,):
        surface.pop()
    return tuple(surface)


def _without_trailing_zeros(values: list[float]) -> tuple[float, ...]:
    while values and values[-1] == 0:
        values.pop()
    return tuple(values)


def value_on(surface: Surface, point: Point) -> float:
    """A surface's value at a batch size and length."""
    batch_size, length = point
    return value_at(polynomial_at(surface, length), batch_size)


# Operations


def fit_ops(grid: TraceGrid, traces: Sequence[Sequence[Op]], fit: SurfaceFit) -> list[LengthOp]:
    """One operation for each of the traces', which have to line up."""
    if not aligned(traces):
        raise _first_difference(grid, traces)
    return [_fitted(ops, fit) for ops in zip(*traces, strict=True)]


def _fitted(ops: Sequence[Op], fit: SurfaceFit) -> LengthOp:
    last = ops[-1]
    return LengthOp(
        example=_example(last),
        flops=fit.surface([op.flops for op in ops], f"FLOPs of {last.name}"),
        moved_bytes=fit.surface([op.moved_bytes for op in ops], f"bytes of {last.name}"),
        shapes=tuple(
            tuple(
                fit.surface(sizes, f"shapes of {last.name}") for sizes in zip(*shapes, strict=True)
            )
            for shapes in zip(*(op.shapes for op in ops), strict=True)
        ),
    )


def _example(op: Op) -> ProfileOp:
    return ProfileOp(
        name=op.name,
        kind=op.kind,
        phase=op.phase,
        precision=op.precision,
        count=1,
        flops=(0.0,),
        moved_bytes=(0.0,),
        launches=op.launches,
        layout=op.layout,
        efficiency=op.efficiency,
    )


def _first_difference(grid: TraceGrid, traces: Sequence[Sequence[Op]]) -> LengthsDiffer:
    """Which operation is the first that is another at some point."""
    first, point = traces[0], grid.points[0]
    for other, trace in zip(grid.points, traces, strict=True):
        if aligned([first, trace]):
            continue
        place = next(
            (
                i
                for i, pair in enumerate(zip(first, trace, strict=False))
                if not aligned([[each] for each in pair])
            ),
            min(len(first), len(trace)),
        )
        names = [ops[place].name if place < len(ops) else "nothing" for ops in (first, trace)]
        return LengthsDiffer(
            f"The step does other things at batch size {other[0]}, length {other[1]} than at "
            f"{point[0]}, {point[1]}.",
            why=f"Operation {place + 1} is {names[1]} there, and {names[0]} here.",
            fix="Trace lengths on one side of where it changes, or the length that is asked for.",
        )
    raise AssertionError("all line up")


# Storages


_StorageKey = tuple[int, str, bool, str]
"""Its bytes at one point, its category, whether it is optional, and on which condition it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Storage:
    """A storage at any batch size and length."""

    size: Surface
    category: str
    is_optional: bool
    condition: str


def fit_storages(grid: TraceGrid, captures: Captures, fit: SurfaceFit) -> dict[int, _Storage]:
    """Every storage by its number; the captures have to make and free the same ones."""
    memories = [captures[point].memory for point in grid.points]
    for point, memory in zip(grid.points, memories, strict=True):
        if not storages_align(memories[0].history, memory.history):
            raise LengthsDiffer(
                f"The step allocates other things at batch size {point[0]}, length {point[1]} "
                f"than at {grid.points[0][0]}, {grid.points[0][1]}.",
                fix="Trace lengths on one side of where it changes.",
            )
    conditions = [memory.conditions for memory in memories]
    if any(each != conditions[0] for each in conditions):
        raise LengthsDiffer("Which workspaces a step takes depends on the length.")
    last = memories[-1]
    categories = last.categories()
    return {
        row[0][0]: _Storage(
            size=fit.surface([size_bytes for _, size_bytes in row], "bytes of a storage"),
            category=categories.get(row[0][0], "temporaries"),
            is_optional=row[0][0] in last.optional,
            condition=last.conditions.get(row[0][0], ""),
        )
        for row in zip(*(memory.history for memory in memories), strict=True)
        if row[0][1] != FREED
    }


def _history_of(capture: Capture, storages: Mapping[int, _Storage]) -> LengthHistory:
    """The events of a capture, with the sizes of storages at any batch size and length."""
    sizes: dict[_Storage, int] = {}
    events: list[int] = []
    order: dict[int, int] = {}
    for number, size_bytes in capture.memory.history:
        if size_bytes == FREED:
            events.append(order[number] - len(order))
            continue
        order[number] = len(order)
        events.append(sizes.setdefault(storages[number], len(sizes)))
    return LengthHistory(
        sizes=tuple(storage.size for storage in sizes),
        categories=tuple(storage.category for storage in sizes),
        events=tuple(events),
        step_start=capture.memory.step_starts[UNSTEADY_STEPS],
        optional=frozenset(i for storage, i in sizes.items() if storage.is_optional),
        conditions={i: storage.condition for storage, i in sizes.items() if storage.condition},
    )


# The whole model, of the same with few layers


def telling_point(grid: TraceGrid, captures: Captures) -> Point:
    """A point of the grid at which no two that grow with different things are of one size."""
    fit = SurfaceFit(grid)
    ops = fit_ops(grid, [captures[point].ops for point in grid.points], fit)
    storages = fit_storages(grid, captures, fit)
    untold: LayersDiffer | None = None
    for point in (grid.middle, *grid.points):
        try:
            _known_ops(ops, captures[point].ops)
            _known_storages(storages, captures[point].memory)
        except LayersDiffer as error:
            untold = untold or error
        else:
            return point
    raise untold or _not_told("the step")


def _known_ops(few: Sequence[LengthOp], few_at_point: Sequence[Op]) -> dict[Op, LengthOp]:
    """What each operation of few layers at a point is at any."""
    known: dict[Op, LengthOp] = {}
    for op, fitted in zip(few_at_point, few, strict=True):
        if known.setdefault(op, fitted) != fitted:
            raise _not_told(op.name)
    return known


def _known_storages(
    few: Mapping[int, _Storage], few_at_point: MemoryTracker
) -> dict[_StorageKey, _Storage]:
    """What each storage of few layers at a point is at any."""
    known: dict[_StorageKey, _Storage] = {}
    for key, number in _storage_keys(few_at_point):
        if known.setdefault(key, few[number]) != few[number]:
            raise _not_told(f"a storage of {key[0]} bytes")
    return known


def whole_ops(
    few: Sequence[LengthOp], few_at_point: Sequence[Op], whole: Sequence[Op]
) -> list[LengthOp]:
    """Each operation of the whole model, found among those of few layers or depth's alone."""
    known = _known_ops(few, few_at_point)
    found = set(whole)
    unlike = [(op, fitted) for op, fitted in zip(few_at_point, few, strict=True) if op not in found]
    for op, fitted in unlike:
        if not _is_constant(fitted):
            raise _not_found(op.name)
    if [op.name for op, _ in unlike] != [op.name for op in whole if op not in known]:
        raise _not_found("operations of all layers at once")
    return [known[op] if op in known else _constant_op(op) for op in whole]


def _is_constant(op: LengthOp) -> bool:
    surfaces = (op.flops, op.moved_bytes, *(size for shape in op.shapes for size in shape))
    return all(_is_number(surface) for surface in surfaces)


def _is_number(surface: Surface) -> bool:
    return len(surface) == 1 and len(surface[0]) == 1


def _constant_op(op: Op) -> LengthOp:
    return LengthOp(
        example=_example(op),
        flops=((op.flops,),),
        moved_bytes=((op.moved_bytes,),),
        shapes=tuple(tuple(((float(size),),) for size in shape) for shape in op.shapes),
    )


_NEGLIGIBLE_BYTES = 64 * KIB
"""Smaller storages have the size of others by chance, and count for nothing."""


def whole_storages(
    few: Mapping[int, _Storage], few_at_point: MemoryTracker, whole: MemoryTracker
) -> dict[int, _Storage]:
    """Each storage of the whole model, found among those of few layers or depth's alone."""
    known = _known_storages(few, few_at_point)
    found: dict[int, _Storage] = {}
    unlike: list[tuple[Hashable, ...]] = []
    keys = set()
    for key, number in _storage_keys(whole):
        keys.add(key)
        if key not in known and key[0] > _NEGLIGIBLE_BYTES:
            unlike.append(key[1:])
        found[number] = known.get(key) or _constant_storage(key)
    unlike_of_few = [
        (key, number)
        for key, number in _storage_keys(few_at_point)
        if key not in keys and key[0] > _NEGLIGIBLE_BYTES
    ]
    if not all(_is_number(few[number].size) for _, number in unlike_of_few):
        raise _not_found("a storage")
    if unlike != [key[1:] for key, _ in unlike_of_few]:
        raise _not_found("storages for all layers at once")
    return found


def _constant_storage(key: _StorageKey) -> _Storage:
    size_bytes, category, is_optional, condition = key
    return _Storage(
        size=((float(size_bytes),),),
        category=category,
        is_optional=is_optional,
        condition=condition,
    )


def _storage_keys(memory: MemoryTracker) -> list[tuple[_StorageKey, int]]:
    """What is known of each storage, and its number."""
    categories = memory.categories()
    return [
        (
            (
                size_bytes,
                categories.get(number, "temporaries"),
                number in memory.optional,
                memory.conditions.get(number, ""),
            ),
            number,
        )
        for number, size_bytes in memory.history
        if size_bytes != FREED
    ]


def _not_told(what: str) -> LayersDiffer:
    return LayersDiffer(
        f"What {what} grows with cannot be told from one trace of the whole model.",
        why="Two of its kind are equal at that point and not at others.",
        fix="Trace the whole model at every point.",
    )


def _not_found(what: str) -> LayersDiffer:
    return LayersDiffer(
        f"What the model does with few layers ({what}) is not what it does with all.",
        why="It grows with the length or the batch, and with the number of layers as well.",
        fix="Trace the whole model at every point.",
    )


# The profile


READY_BATCH_SIZE = 32
"""Of the trace that shares of backward are taken of, as in a profile of one length."""


def length_profile_of_captures(
    grid: TraceGrid,
    captures: Captures,
    *,
    whole: Capture | None = None,
    whole_at: Point | None = None,
    name: str,
    description: str,
    sample: str,
    lengths: tuple[int, int] | None = None,
    batch_sizes: tuple[int, ...] = (2, 4, 8, 32),
) -> LengthProfile:
    """One profile from captures at every point of a grid.

    `whole` is the whole model at the point `whole_at` of the grid, where the captures are of few
    of its layers (`telling_point`).
    `lengths` is the range in which the step is known to do the same; the grid's own without it.
    `batch_sizes` are those at which peak memory is kept by category.
    """
    if any(capture.period != 1 for capture in captures.values()):
        raise InputError(
            "A step that repeats only after several iterations has no profile of any length.",
            fix="Trace it at the length that is asked for.",
        )
    fit = SurfaceFit(grid)
    in_order = [captures[point] for point in grid.points]
    ops = fit_ops(grid, [capture.ops for capture in in_order], fit)
    storages = fit_storages(grid, captures, fit)
    capture = few = captures[whole_at or grid.middle]
    if whole is not None:
        ops = whole_ops(ops, few.ops, whole.ops)
        storages = whole_storages(storages, few.memory, whole.memory)
        capture = whole
    profile = LengthProfile(
        name=name,
        description=description,
        sample=sample,
        lengths=lengths or (grid.lengths[0], grid.lengths[-1]),
        batch_sizes=batch_sizes,
        parameters=capture.parameters,
        trainable_parameters=capture.trainable_parameters,
        ops=_counted(ops),
        history=_history_of(capture, storages),
        structure=_structure(grid, in_order, capture, ops, fit),
        issued_ops=len(capture.ops),
        unknown_ops=dict(capture.unknown_ops),
        notes=(*capture.notes, *_missed_notes(fit)),
    )
    return replace(profile, shares=allocator_shares(profile))


def _counted(ops: Sequence[LengthOp]) -> tuple[LengthOp, ...]:
    """Identical operations once, with how often they run, in order."""
    return tuple(
        replace(op, example=replace(op.example, count=count)) for op, count in Counter(ops).items()
    )


def _structure(
    grid: TraceGrid,
    captures: Sequence[Capture],
    capture: Capture,
    ops: Sequence[LengthOp],
    fit: SurfaceFit,
) -> LengthStructure:
    groups, outputs = [], []
    for key, blocks in capture.blocks.items():
        name, parameters, width = key
        means = [_mean_of_blocks(each, key) for each in captures]
        groups.append(
            BlockGroup(
                name=name,
                count=len(blocks),
                parameters=parameters,
                output_bytes=(0.0,),
                width=width,
            )
        )
        outputs.append(fit.surface(means, f"output of {name}"))
    return LengthStructure(
        blocks=tuple(groups),
        outputs=tuple(outputs),
        gradient_bytes=sum(size_bytes for _, size_bytes in capture.gradients),
        ready={
            length: gradient_readiness(_ops_at(ops, length), capture.gradients)
            for length in _ready_lengths(grid.lengths)
        },
    )


def _mean_of_blocks(capture: Capture, key: tuple[str, int, int]) -> float:
    """Output bytes of one block of a group."""
    blocks = capture.blocks.get(key)
    if not blocks:
        raise LayersDiffer(
            f"The blocks of class {key[0]} are not the same in all traces.",
            fix="Trace the whole model at every point, at lengths that do not change its width.",
        )
    return sum(blocks) / len(blocks)


def _ready_lengths(lengths: tuple[int, ...]) -> list[int]:
    """From the shortest to the longest by doubling, and those traced."""
    doubled = set(lengths)
    length = lengths[0]
    while length < lengths[-1]:
        doubled.add(length)
        length *= 2
    return sorted(doubled)


def _ops_at(ops: Sequence[LengthOp], length: int) -> list[Op]:
    """The operations in order, without shapes."""
    known: dict[int, Op] = {}
    for op in ops:
        if id(op) not in known:
            known[id(op)] = op.at(length).at(READY_BATCH_SIZE, shapes=False)
    return [known[id(op)] for op in ops]


def _missed_notes(fit: SurfaceFit) -> list[str]:
    """What is not exact between the lengths that were traced."""
    if not fit.missed:
        return []
    worst = max(fit.missed, key=lambda what: fit.missed[what])
    note = (
        f"{len(fit.missed)} amounts are no polynomials of degree 2 in batch size and length: "
        f"between the traced ones they are off by up to {fit.missed[worst]:.1%} ({worst})."
    )
    return [note]


# Tracing


Tracer = Callable[[int, int], "Capture"]
"""Traces a step at a batch size and a length."""

_BATCH_SIZES, _CHECKED_BATCH = (2, 5), 8
"""Of one sample, a tensor can look like one of another layout; most steps are linear in it."""
_CURVED_BATCH_SIZES, _CHECKED_CURVE = (2, 5, 8), 3
_MULTIPLES = (128, 64, 32, 16)
"""Kernels work on tiles: amounts are polynomials in the length at multiples of these."""


def length_profiles(
    trace: Tracer,
    lengths: tuple[int, int],
    *,
    trace_few: Tracer | None = None,
    hints: Collection[int] = (),
    name: str,
    description: str,
    sample: str,
) -> tuple[LengthProfile, ...]:
    """A step at any length in a range, in pieces where it does other things from some length on.

    `trace_few` traces the same model with few layers, one of each kind at least. `hints` are
    lengths near which the step may change: sizes that are in its config.
    """
    tracer = _Kept(trace if trace_few is None else trace_few)
    pieces = []
    for piece in _ranges(tracer, lengths, hints):
        grid = _grid_in(piece, hints, _BATCH_SIZES, _CHECKED_BATCH)
        if _misses(grid, tracer.at(grid)):
            grid = _grid_in(piece, hints, _CURVED_BATCH_SIZES, _CHECKED_CURVE)
        point = grid.middle if trace_few is None else telling_point(grid, tracer.at(grid))
        pieces.append(
            length_profile_of_captures(
                grid,
                tracer.at(grid),
                whole=None if trace_few is None else trace(*point),
                whole_at=point,
                name=name,
                description=description,
                sample=sample,
                lengths=piece,
            )
        )
    return tuple(pieces)


class _Kept:
    """Captures, each traced once."""

    def __init__(self, trace: Tracer) -> None:
        self._trace = trace
        self._captures: dict[Point, Capture] = {}

    def __call__(self, batch_size: int, length: int) -> Capture:
        point = batch_size, length
        if point not in self._captures:
            self._captures[point] = self._trace(batch_size, length)
        return self._captures[point]

    def at(self, grid: TraceGrid) -> dict[Point, Capture]:
        """At every point of a grid."""
        return {point: self(*point) for point in grid.points}


def _ranges(
    trace: Tracer, lengths: tuple[int, int], hints: Collection[int]
) -> list[tuple[int, int]]:
    """The lengths cut where the step changes what it does; too short a range is left out."""
    low, high = (each // _UNIT for each in (lengths[0] + _UNIT - 1, lengths[1]))
    if _do_the_same(trace, low, high):
        return [lengths]
    near = {hint // _UNIT + offset for hint in hints for offset in (0, 1)}
    same, other = low, high
    while other - same > 1:
        inside = [length for length in near if same < length < other]
        middle = min(inside, key=lambda n: abs(2 * n - same - other), default=(same + other) // 2)
        near.discard(middle)
        same, other = (middle, other) if _do_the_same(trace, low, middle) else (same, middle)
    change = other * _UNIT
    before = [(lengths[0], change - 1)] if same - low >= _SHORTEST else []
    is_long = high - other >= _SHORTEST
    following = _ranges(trace, (change, lengths[1]), hints) if is_long else []
    return [*before, *following]


_UNIT = 16
"""Masks are padded to multiples of 16 tokens, with an operation that is there for no multiple:
lengths that are none are drawn from those that are."""
_SHORTEST = 4
"""Units in a range that is worth tracing by itself."""


def _do_the_same(trace: Tracer, units: int, other: int) -> bool:
    first, second = (trace(_BATCH_SIZES[0], n * _UNIT) for n in (units, other))
    return aligned([first.ops, second.ops]) and storages_align(
        first.memory.history, second.memory.history
    )


def _grid_in(
    lengths: tuple[int, int],
    taken: Collection[int],
    batch_sizes: tuple[int, ...],
    checked_batch: int,
) -> TraceGrid:
    """Both ends, one between and one to check, at multiples that amounts are polynomials at.

    The one between must not be one of the sizes in the model, nor make one with a batch size.
    """
    low, high = lengths
    multiple = next(n for n in _MULTIPLES if high // n - -(-low // n) >= 4 or n == _UNIT)
    first, last = -(-low // multiple), high // multiple
    places = range(first + 1, last)
    wanted = first + (last - first) // 5
    middle = min(
        places,
        key=lambda n: (
            any(n * multiple * size in taken for size in (1, *batch_sizes)),
            n % 2 == 0,
            abs(n - wanted),
        ),
    )
    check = max(places, key=lambda n: (n != middle, -abs(n - (middle + last) // 2)))
    return TraceGrid(
        batch_sizes=batch_sizes,
        lengths=(first * multiple, middle * multiple, last * multiple),
        checks=((checked_batch, check * multiple),),
    )


def _misses(grid: TraceGrid, captures: Captures) -> Mapping[str, float]:
    """What misses the check, and by how much."""
    fit = SurfaceFit(grid)
    fit_ops(grid, [captures[point].ops for point in grid.points], fit)
    fit_storages(grid, captures, fit)
    return fit.missed
