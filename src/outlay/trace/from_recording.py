"""A profile from the operations of one real step, as a probe records them.

A trace looks at a step at several batch sizes; a probe measures the one that the script runs. At
that size the profile is exact. At others, dimensions that grow with the batch are guessed from the
shapes (`growth_of`), and memory beside parameters, gradients, optimizer state and what modules keep
without an optimizer is taken to grow with the batch. Steps recorded at several sizes are fitted as
traces are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from outlay.errors import InputError
from outlay.trace.batch_scaling import aligned, fit_aligned
from outlay.trace.profile import AllocatorUse, Memory, Op, Polynomial, Profile, ProfileOp, value_at

Shape = tuple[int, ...]

_ITEM_BYTES = {"fp64": 8.0, "fp16": 2.0, "bf16": 2.0}
_MOST_OF_FLOPS = 0.5
_NEEDED_OVER_ALLOCATED = 1.11
# Assumes: at its limit the allocator cannot use a tenth of what it has. BERT on an H200 (24 GB) was
# so, 12 other steps between 0 and 3 %; with room to spare it reserves a quarter more than is used.
_MOST_OPS = 100_000
"""Operations of one step, one by one, up to which two sizes are laid side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """The operations of one optimizer step on one GPU, with the memory it took."""

    name: str
    batch_size: int
    """Samples of the whole step: of all its passes where gradients are accumulated."""
    passes: int = 1
    """Passes before each update; shapes are those of one."""
    pass_size: int | None = None
    """Samples of one pass, where they were counted; else as many as all have in the mean."""
    ops: tuple[Op, ...]
    """Identical ones once, with how often they run in a step."""
    parameter_shapes: frozenset[Shape]
    parameters: int
    trainable_parameters: int
    issued_ops: float
    """Operations the host issues one after another, views included."""
    parameter_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    frozen_bytes: float = 0.0
    """What modules keep that no optimizer updates."""
    peak_allocated_bytes: float | None = None
    """None where it was not measured: on a CPU, for one."""
    peak_reserved_bytes: float | None = None
    sample: str = ""
    recorded_on: str = ""
    """YYYY-MM-DD."""
    versions: Mapping[str, str] = field(default_factory=dict)
    unknown_ops: Mapping[str, float] = field(default_factory=dict)
    """Operators without a formula, and how often each runs in a step."""
    notes: tuple[str, ...] = ()

    @property
    def fixed_bytes(self) -> float:
        """What no batch size changes."""
        updated = self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes
        return updated + self.frozen_bytes


def profile_of_step(step: RecordedStep) -> Profile:
    """The step at any batch size: exact at its own, scaled at others."""
    _check(step)
    sizes = sizes_of(step.ops, _pass_size(step), step.parameter_shapes)
    ops = tuple(_scaled_op(op, step, sizes) for op in step.ops)
    notes = (_scaled_note(step), *_growth_notes(step, ops), *_memory_notes(step))
    return _profile([step], ops, notes)


def profile_of_steps(steps: Sequence[RecordedStep]) -> Profile:
    """The step at any batch size from records at several: fitted where they line up.

    Where they do not, operations are those of the largest, scaled; memory is that of each.
    """
    ordered = sorted({step.batch_size: step for step in steps}.values(), key=_size)
    if not ordered:
        raise InputError("No recorded step was given.", fix="Probe again, with operations.")
    for step in ordered:
        _check(step)
    largest = ordered[-1]
    if len(ordered) == 1:
        return profile_of_step(largest)
    traces = [ops for step in ordered if (ops := _single_ops(step)) is not None]
    if len(traces) < len(ordered) or not aligned(traces):
        scaled = profile_of_step(largest)
        note = (
            "The records at several batch sizes run different operations; those of the largest "
            "are used."
        )
        return _profile(ordered, scaled.ops, (note, *scaled.notes))
    fitted, notes = fit_aligned(tuple(map(_size, ordered)), traces, 1)
    return _profile(ordered, fitted, (*notes, *_memory_notes(largest)))


def _size(step: RecordedStep) -> int:
    return step.batch_size


def _check(step: RecordedStep) -> None:
    if step.batch_size < 1 or not step.ops:
        raise InputError(
            f"A step of {step.batch_size} samples with {len(step.ops)} operations is no record.",
            fix="Probe again, with operations.",
        )


def _pass_size(step: RecordedStep) -> int:
    """Samples of one pass, about, where passes differ."""
    return step.pass_size or max(round(step.batch_size / max(step.passes, 1)), 1)


def _profile(
    steps: Sequence[RecordedStep], ops: tuple[ProfileOp, ...], notes: tuple[str, ...]
) -> Profile:
    """One profile of what was recorded at ascending sizes; all but memory is the largest's."""
    step = steps[-1]
    measured = [recorded for recorded in steps if recorded.peak_allocated_bytes is not None]
    points = sorted((*_halved(steps[0]), *(measured or [step]), _doubled(step)), key=_size)
    return Profile(
        name=step.name,
        description="recorded by a probe",
        sample=step.sample,
        parameters=step.parameters,
        trainable_parameters=step.trainable_parameters,
        ops=ops,
        memory={point.batch_size: _memory(point) for point in points},
        allocator_use={point.batch_size: _allocator_use(point) for point in points}
        if measured
        else {},
        issued_ops=step.issued_ops,
        traced_on=step.recorded_on,
        versions=step.versions,
        unknown_ops=step.unknown_ops,
        notes=(*step.notes, *notes),
    )


# Operations at any batch size


def _scaled_op(op: Op, step: RecordedStep, sizes: StepSizes) -> ProfileOp:
    """An operation at any batch size, from one."""
    growth = growth_of(op, sizes)
    whole = not op.shapes and op.phase != "optimizer" and op.kind != "optimizer"
    share = 1.0 if whole else growing_share(op, growth)
    degree = 1 if whole else growing_degree(op, growth)
    return ProfileOp(
        name=op.name,
        kind=op.kind,
        phase=op.phase,
        precision=op.precision,
        count=op.count,
        flops=_scaled_flops(op.flops, degree, step.batch_size),
        moved_bytes=_scaled_bytes(op.moved_bytes, share, step.batch_size),
        launches=op.launches,
        layout=op.layout,
        shapes=tuple(map(_scaled_shape, op.shapes, growth, [step.batch_size] * len(growth))),
    )


def _scaled_shape(shape: Shape, grows: Grows, batch_size: int) -> tuple[Polynomial, ...]:
    return tuple(
        (0.0, size / batch_size) if grown else (float(size),)
        for size, grown in zip(shape, grows, strict=True)
    )


def _scaled_flops(amount: float, degree: int, batch_size: int) -> Polynomial:
    """An amount that goes with a power of the batch size."""
    return (0.0,) * degree + (amount / batch_size**degree,)


def _scaled_bytes(amount: float, share: float, batch_size: int) -> Polynomial:
    """An amount of which a share grows."""
    return (amount * (1 - share), amount * share / batch_size) if share else (amount,)


def _single_ops(step: RecordedStep) -> list[Op] | None:
    """Every operation by itself; None where counts are fractions or there are too many."""
    if any(op.count != int(op.count) for op in step.ops):
        return None
    if sum(op.count for op in step.ops) > _MOST_OPS:
        return None
    return [replace(op, count=1) for op in step.ops for _ in range(int(op.count))]


# Memory


def _memory(step: RecordedStep) -> Memory:
    """The categories that a record has: activations are all that is beside the fixed parts."""
    return Memory(
        parameters=step.parameter_bytes,
        gradients=step.gradient_bytes,
        optimizer_state=step.optimizer_bytes,
        inputs=step.frozen_bytes,
        activations=_activation_bytes(step),
        temporaries=0.0,
    )


def _allocator_use(step: RecordedStep) -> AllocatorUse:
    """What it reserved with room to spare, and what it would need to get through."""
    allocated = step.fixed_bytes + _activation_bytes(step)
    reserved = max(step.peak_reserved_bytes or allocated, allocated)
    return AllocatorUse(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        needed_bytes=min(reserved, allocated * _NEEDED_OVER_ALLOCATED),
    )


def _activation_bytes(step: RecordedStep) -> float:
    """What a step allocates beside the fixed parts; not measured, what forward writes in a pass."""
    if step.peak_allocated_bytes is not None:
        return max(step.peak_allocated_bytes - step.fixed_bytes, 0.0)
    return sum(map(_written_bytes, step.ops)) / max(step.passes, 1)


def _written_bytes(op: Op) -> float:
    if op.phase != "forward" or op.launches <= 0 or not op.shapes:
        return 0.0
    return op.count * math.prod(op.shapes[-1]) * _ITEM_BYTES.get(op.precision, 4.0)


def _doubled(step: RecordedStep) -> RecordedStep:
    """The same step at twice the batch, on the careful side: gradients were not there at the peak.

    They are made while activations go, so that mostly none of them is when those are all there.
    """
    return _resized(step, 2 * step.batch_size, step.fixed_bytes - step.gradient_bytes)


def _halved(step: RecordedStep) -> tuple[RecordedStep, ...]:
    """The same step at half the batch, on the careful side: gradients were there at the peak."""
    return (_resized(step, step.batch_size // 2, step.fixed_bytes),) if step.batch_size > 1 else ()


def _resized(step: RecordedStep, batch_size: int, fixed_bytes: float) -> RecordedStep:
    """What is beside the fixed parts and copies of weights in 16 bits goes with the batch."""
    fixed_bytes += min(_autocast_copies_bytes(step), _activation_bytes(step))
    grown = batch_size / step.batch_size
    allocated = step.fixed_bytes + _activation_bytes(step)
    reserved = max(step.peak_reserved_bytes or allocated, allocated)
    return replace(
        step,
        batch_size=batch_size,
        peak_allocated_bytes=fixed_bytes + grown * max(allocated - fixed_bytes, 0.0),
        peak_reserved_bytes=fixed_bytes + grown * max(reserved - fixed_bytes, 0.0),
    )


def _autocast_copies_bytes(step: RecordedStep) -> float:
    """Copies that autocast makes of parameters and keeps for the pass."""
    return sum(
        2.0 * math.prod(op.shapes[-1]) * op.count / max(step.passes, 1)
        for op in step.ops
        if op.name.endswith("_to_copy")
        and op.phase == "forward"
        and op.shapes
        and op.shapes[-1] in step.parameter_shapes
    )


# Notes


def _scaled_note(step: RecordedStep) -> str:
    passes = "" if step.passes == 1 else f" ({step.passes} passes of {_pass_size(step)})"
    careful = ""
    if step.peak_allocated_bytes is not None:
        careful = (
            " The largest batch is on the careful side: a tenth of the memory is left for what the "
            "allocator may waste."
        )
    return (
        f"Recorded at batch size {step.batch_size}{passes}; at others amounts are scaled by what "
        f"grows with the batch, as far as shapes tell.{careful}"
    )


def _growth_notes(step: RecordedStep, ops: Sequence[ProfileOp]) -> tuple[str, ...]:
    """A word where the batch size does not seem to be that of the shapes."""
    total = sum(op.count * op.flops for op in step.ops)
    growing = sum(op.count * value_at(op.flops, step.batch_size) for op in ops if len(op.flops) > 1)
    if not total or growing >= _MOST_OF_FLOPS * total:
        return ()
    note = (
        f"{growing / total:.0%} of the step's arithmetic grows with a batch of {step.batch_size}: "
        "its shapes are of another batch size, and sizes other than the measured mean little."
    )
    return (note,)


def _memory_notes(step: RecordedStep) -> tuple[str, ...]:
    if step.peak_allocated_bytes is not None:
        return ()
    note = (
        "Memory was not measured: activations are what the operations of forward write, which is "
        "more than is kept."
    )
    return (note,)


# Which dimensions of an operation grow with the batch, from its shapes at one batch size.
#
# A tensor of a parameter's shape stays; of any other, the outermost dimension that is a multiple of
# the batch size grows. In a matrix product where one of the three matrices is a weight (or its
# gradient), the dimension that it does not have is the batch's. Nothing here is certain: a width
# can be a multiple of the batch size by chance. Records at two sizes decide (`fit_aligned`).


Grows = tuple[bool, ...]
"""Of each dimension of a tensor, whether it grows with the batch."""

_BETWEEN_LAYERS = frozenset({"reduction", "elementwise", "norm", "softmax"})
"""Kinds that work on what layers hand on, hardly ever on a weight, even one of the same shape."""


@dataclass(frozen=True, kw_only=True)  # no slots: it remembers what it has worked out
class StepSizes:
    """The batch size of one pass, and which sizes and shapes of the step are what."""

    batch_size: int
    parameter_shapes: frozenset[Shape]
    leading: frozenset[int]
    """Multiples of the batch size that tensors other than parameters have outermost."""

    @cached_property
    def widths(self) -> frozenset[int]:
        """Every dimension that some parameter has."""
        return frozenset(size for shape in self.parameter_shapes for size in shape)

    def is_parameter(self, shape: Shape) -> bool:
        """Whether a tensor has a parameter's shape; of a matrix, that turned round as well."""
        shapes = self.parameter_shapes
        return shape in shapes or (len(shape) == 2 and shape[::-1] in shapes)

    def divides(self, size: int) -> bool:
        """Whether a dimension is a multiple of the batch size."""
        return size > 0 and size % self.batch_size == 0

    def is_merged(self, shape: Shape) -> bool:
        """Whether a matrix may have samples and positions together outermost."""
        return len(shape) == 2 and shape[0] in self.leading


def sizes_of(ops: Iterable[Op], batch_size: int, parameter_shapes: frozenset[Shape]) -> StepSizes:
    """What the shapes of a step say of its batch size."""
    sizes = StepSizes(batch_size=batch_size, parameter_shapes=parameter_shapes, leading=frozenset())
    leading = {
        shape[0]
        for op in ops
        if op.kind != "optimizer"
        for shape in op.shapes
        if len(shape) > 1 and sizes.divides(shape[0]) and not sizes.is_parameter(shape)
    }
    return replace(sizes, leading=frozenset(leading))


def growth_of(op: Op, sizes: StepSizes) -> tuple[Grows, ...]:
    """Of each of its tensors, which dimensions grow with the batch."""
    if op.kind == "optimizer" or op.phase == "optimizer":
        return tuple((False,) * len(shape) for shape in op.shapes)
    if op.kind == "conv" and "convolution" in op.name and len(op.shapes) > 2:
        return _conv_growth(op, sizes)
    if op.kind == "gemm":
        return _product_growth(op, sizes)
    if op.kind == "norm" and op.shapes and len(op.shapes[0]) > 1 and op.shapes[0][0] == 1:
        return _instance_norm_growth(op, sizes)
    between = op.kind in _BETWEEN_LAYERS
    return tuple(_tensor_growth(shape, sizes, between=between) for shape in op.shapes)


def _tensor_growth(shape: Shape, sizes: StepSizes, *, between: bool = False) -> Grows:
    fixed = sizes.is_parameter(shape) and not (between and sizes.is_merged(shape))
    batch_dim = None if fixed else _batch_dim(shape, sizes)
    return tuple(dim == batch_dim for dim in range(len(shape)))


def _batch_dim(shape: Shape, sizes: StepSizes) -> int | None:
    """The dimension of the batch in a tensor that is no parameter."""
    batch_size = sizes.batch_size
    if not shape:
        return None
    if shape[0] == batch_size:
        return 0
    if len(shape) > 2 and shape[1] == batch_size and shape[0] not in sizes.leading:
        return 1  # positions first, as recurrent layers have it
    if sizes.divides(shape[0]) and (shape[0] in sizes.leading or not _are_widths(shape, sizes)):
        return 0
    # Further in, only what is the batch for certain: positions are multiples of it as well.
    for dim, size in enumerate(shape[1:], 1):
        if size == batch_size or (size in sizes.leading and size not in sizes.widths):
            return dim
    return None


def _are_widths(shape: Shape, sizes: StepSizes) -> bool:
    """Whether a tensor has only sizes that parameters have: a part of a weight, or several."""
    return all(size in sizes.widths for size in shape)


def _instance_norm_growth(op: Op, sizes: StepSizes) -> tuple[Grows, ...]:
    """Instance norm: a batch norm over the channels of every sample, side by side in one image."""
    channels = op.shapes[0][1]
    grows = sizes.batch_size > 1 and sizes.divides(channels)

    def channels_grow(shape: Shape) -> Grows:
        dim = 1 if len(shape) > 1 else 0
        return tuple(i == dim and grows and size == channels for i, size in enumerate(shape))

    return tuple(map(channels_grow, op.shapes))


# Convolutions


def _conv_growth(op: Op, sizes: StepSizes) -> tuple[Grows, ...]:
    """Images grow, kernels stay; samples may be taken for groups of one wide image."""
    backward = "backward" in op.name
    images = {op.shapes[0], op.shapes[1]} if backward else {op.shapes[0], op.shapes[-1]}
    kernel = op.shapes[2] if backward else op.shapes[1]
    if op.shapes[0][0] == 1 < sizes.batch_size:
        return tuple(_grouped_growth(shape, kernel, sizes) for shape in op.shapes)
    return tuple(
        tuple(i == 0 and shape in images and sizes.divides(shape[0]) for i in range(len(shape)))
        for shape in op.shapes
    )


def _grouped_growth(shape: Shape, kernel: Shape, sizes: StepSizes) -> Grows:
    """Every sample has a kernel of its own, side by side in one image."""
    dim = 0 if shape == kernel else 1
    own = not sizes.is_parameter(kernel)
    return tuple(i == dim and own and sizes.divides(size) for i, size in enumerate(shape))


# Products


def _product_growth(op: Op, sizes: StepSizes) -> tuple[Grows, ...]:
    """Of (..., m, k) x (..., k, n): which of m, n and k grow, then every tensor by its sizes."""
    ordinary = tuple(_tensor_growth(shape, sizes) for shape in op.shapes)
    positions = _matrix_positions(op)
    if positions is None:
        return ordinary
    matrices = tuple(op.shapes[position] for position in positions)
    if len(matrices[0]) > 2 and not any(map(sizes.is_parameter, matrices)):
        return ordinary
    m, n, k = _product_dims_grow(op, sizes, matrices)
    growing = dict(zip(positions, ((m, k), (k, n), (m, n)), strict=True))
    return tuple(
        _last_dims(shape, growing[position]) if position in growing else ordinary[position]
        for position, shape in enumerate(op.shapes)
    )


def _matrix_positions(op: Op) -> tuple[int, int, int] | None:
    """Which of the shapes are two matrices and their product; None where none are."""
    positions = [i for i, shape in enumerate(op.shapes) if len(shape) >= 2][-3:]
    if len(positions) < 3:
        return None
    first, second, result = (op.shapes[position] for position in positions)
    alike = len(first) == len(second) == len(result)
    fits = first[-1] == second[-2] and result[-2:] == (first[-2], second[-1])
    return (positions[0], positions[1], positions[2]) if fits and alike else None


def _last_dims(shape: Shape, last: tuple[bool, bool]) -> Grows:
    return (False,) * (len(shape) - 2) + last


def _product_dims_grow(
    op: Op, sizes: StepSizes, matrices: Sequence[Shape]
) -> tuple[bool, bool, bool]:
    """Whether m, n and k grow."""
    first, second, _ = matrices
    m, n, k = first[-2], second[-1], first[-1]
    weight = _weight_position(op, sizes, matrices)
    exact = (m == sizes.batch_size, n == sizes.batch_size, k == sizes.batch_size)
    if weight is None and any(exact):
        return exact
    if weight is None:
        weight = _usual_weight_position(op)
    return (
        weight == 1 and sizes.divides(m),
        weight == 0 and sizes.divides(n),
        weight == 2 and sizes.divides(k),
    )


def _weight_position(op: Op, sizes: StepSizes, matrices: Sequence[Shape]) -> int | None:
    """Which of first, second and product is a weight or the gradient of one, None for none."""
    weights = [i for i, shape in enumerate(matrices) if sizes.is_parameter(shape)]
    if len(weights) == 1:
        return weights[0]
    usual = _usual_weight_position(op)
    return usual if usual in weights else (weights[0] if weights else None)


def _usual_weight_position(op: Op) -> int:
    """x @ weight forward, gradient @ weight backward, x.t() @ gradient for the weight's own."""
    return 2 if op.phase == "backward" and op.layout in ("tn", "tt") else 1


# Amounts


def growing_degree(op: Op, growth: Sequence[Grows]) -> int:
    """How many times the batch is in an operation's arithmetic: mostly once, or not at all."""
    positions = _matrix_positions(op) if op.kind == "gemm" else None
    if positions is None:
        return int(any(map(any, growth)))
    first, second = growth[positions[0]], growth[positions[1]]
    m_k_n = (first[-2], first[-1], second[-1])
    return max(sum(m_k_n), int(any(map(any, growth))))


def growing_share(op: Op, growth: Sequence[Grows]) -> float:
    """The share of an operation's traffic that grows, by the elements of its tensors."""
    pairs = [(math.prod(s), any(g)) for s, g in zip(op.shapes, growth, strict=True)]
    if op.kind == "embedding" and pairs:
        pairs = _embedding_pairs(op, pairs)
    total = sum(elements for elements, _ in pairs)
    if not total:
        return float(any(grows for _, grows in pairs))
    return sum(elements for elements, grows in pairs if grows) / total


def _embedding_pairs(op: Op, pairs: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Of a table only the rows picked are read; its gradient is written whole, rows added thrice.

    As `outlay.trace.traffic` counts them.
    """
    if op.name.endswith("embedding_dense_backward"):
        return [(3 * pairs[0][0], pairs[0][1]), *pairs[1:]]
    table = op.shapes[0]
    return [pair for pair, s in zip(pairs[1:], op.shapes[1:], strict=True) if s != table] or pairs
