"""Which dimensions of an operation grow with the batch, told from its shapes at one batch size.

A tensor of a parameter's shape stays; of any other, the outermost dimension that is a multiple of
the batch size grows. Matrix products are told by what they join: where one of the three matrices is
a weight (or its gradient), the dimension that it does not have is the batch's. Nothing here is
certain: a width can be a multiple of the batch size by chance. Two sizes decide (`trace.fit`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from outlay.trace.trace import Op

Shape = tuple[int, ...]
Grows = tuple[bool, ...]
"""Of each dimension of a tensor, whether it grows with the batch."""

_BETWEEN_LAYERS = frozenset({"reduction", "elementwise", "norm", "softmax"})
"""Kinds that work on what layers hand on, hardly ever on a weight, even one of the same shape."""


@dataclass(frozen=True, kw_only=True)  # no slots: it remembers what it has worked out
class Sizes:
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
        known = self.parameter_shapes
        return shape in known or (len(shape) == 2 and shape[::-1] in known)

    def divides(self, size: int) -> bool:
        """Whether a dimension is a multiple of the batch size."""
        return size > 0 and size % self.batch_size == 0

    def is_merged(self, shape: Shape) -> bool:
        """Whether a matrix may have samples and positions together outermost."""
        return len(shape) == 2 and shape[0] in self.leading


def sizes_of(ops: Iterable[Op], batch_size: int, parameter_shapes: frozenset[Shape]) -> Sizes:
    """What the shapes of a step say of its batch size."""
    known = Sizes(batch_size=batch_size, parameter_shapes=parameter_shapes, leading=frozenset())
    leading = {
        shape[0]
        for op in ops
        if op.kind != "optimizer"
        for shape in op.shapes
        if len(shape) > 1 and known.divides(shape[0]) and not known.is_parameter(shape)
    }
    return Sizes(
        batch_size=batch_size, parameter_shapes=parameter_shapes, leading=frozenset(leading)
    )


def growth_of(op: Op, sizes: Sizes) -> tuple[Grows, ...]:
    """Of each of its tensors, which dimensions grow with the batch."""
    if op.kind == "optimizer" or op.phase == "optimizer":
        return tuple((False,) * len(shape) for shape in op.shapes)
    if op.kind == "conv" and "convolution" in op.name and len(op.shapes) > 2:
        return _of_convolution(op, sizes)
    if op.kind == "gemm":
        return _of_product(op, sizes)
    if op.kind == "norm" and op.shapes and len(op.shapes[0]) > 1 and op.shapes[0][0] == 1:
        return _of_instances(op, sizes)
    between = op.kind in _BETWEEN_LAYERS
    return tuple(_of_tensor(shape, sizes, between=between) for shape in op.shapes)


def _of_tensor(shape: Shape, sizes: Sizes, *, between: bool = False) -> Grows:
    fixed = sizes.is_parameter(shape) and not (between and sizes.is_merged(shape))
    place = None if fixed else _batch_place(shape, sizes)
    return tuple(i == place for i in range(len(shape)))


def _batch_place(shape: Shape, sizes: Sizes) -> int | None:
    """Where the batch lies in a tensor that is no parameter."""
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
    for place, size in enumerate(shape[1:], 1):
        if size == batch_size or (size in sizes.leading and size not in sizes.widths):
            return place
    return None


def _are_widths(shape: Shape, sizes: Sizes) -> bool:
    """Whether a tensor has only sizes that parameters have: a part of a weight, or several."""
    return all(size in sizes.widths for size in shape)


def _of_instances(op: Op, sizes: Sizes) -> tuple[Grows, ...]:
    """Instance norm: a batch norm over the channels of every sample, side by side in one image."""
    channels = op.shapes[0][1]
    grows = sizes.batch_size > 1 and sizes.divides(channels)

    def one(shape: Shape) -> Grows:
        place = 1 if len(shape) > 1 else 0
        return tuple(i == place and grows and size == channels for i, size in enumerate(shape))

    return tuple(map(one, op.shapes))


# Convolutions


def _of_convolution(op: Op, sizes: Sizes) -> tuple[Grows, ...]:
    """Images grow, kernels stay; samples may be taken for groups of one wide image."""
    backward = "backward" in op.name
    images = {op.shapes[0], op.shapes[1]} if backward else {op.shapes[0], op.shapes[-1]}
    kernel = op.shapes[2] if backward else op.shapes[1]
    if op.shapes[0][0] == 1 < sizes.batch_size:
        return tuple(_as_groups(shape, kernel, sizes) for shape in op.shapes)
    return tuple(
        tuple(i == 0 and shape in images and sizes.divides(shape[0]) for i in range(len(shape)))
        for shape in op.shapes
    )


def _as_groups(shape: Shape, kernel: Shape, sizes: Sizes) -> Grows:
    """Every sample has a kernel of its own, side by side in one image."""
    place = 0 if shape == kernel else 1
    own = not sizes.is_parameter(kernel)
    return tuple(i == place and own and sizes.divides(size) for i, size in enumerate(shape))


# Products


def _of_product(op: Op, sizes: Sizes) -> tuple[Grows, ...]:
    """Of (..., m, k) x (..., k, n): which of m, n and k grow, then every tensor by its sizes."""
    ordinary = tuple(_of_tensor(shape, sizes) for shape in op.shapes)
    places = _factors(op)
    if places is None:
        return ordinary
    parts = tuple(op.shapes[place] for place in places)
    if len(parts[0]) > 2 and not any(map(sizes.is_parameter, parts)):
        return ordinary
    m, n, k = _growing(op, sizes, parts)
    growing = dict(zip(places, ((m, k), (k, n), (m, n)), strict=True))
    return tuple(
        _last_two(shape, growing[place]) if place in growing else ordinary[place]
        for place, shape in enumerate(op.shapes)
    )


def _factors(op: Op) -> tuple[int, int, int] | None:
    """Where the two matrices and their product stand, where the shapes are those of one."""
    places = [place for place, shape in enumerate(op.shapes) if len(shape) >= 2][-3:]
    if len(places) < 3:
        return None
    first, second, result = (op.shapes[place] for place in places)
    alike = len(first) == len(second) == len(result)
    fits = first[-1] == second[-2] and result[-2:] == (first[-2], second[-1])
    return (places[0], places[1], places[2]) if fits and alike else None


def _last_two(shape: Shape, last: tuple[bool, bool]) -> Grows:
    return (False,) * (len(shape) - 2) + last


def _growing(op: Op, sizes: Sizes, parts: Sequence[Shape]) -> tuple[bool, bool, bool]:
    """Whether m, n and k grow."""
    first, second, _ = parts
    m, n, k = first[-2], second[-1], first[-1]
    weight = _weight_of(op, sizes, parts)
    exact = (m == sizes.batch_size, n == sizes.batch_size, k == sizes.batch_size)
    if weight is None and any(exact):
        return exact
    if weight is None:
        weight = _usual_weight(op)
    return (
        weight == 1 and sizes.divides(m),
        weight == 0 and sizes.divides(n),
        weight == 2 and sizes.divides(k),
    )


def _weight_of(op: Op, sizes: Sizes, parts: Sequence[Shape]) -> int | None:
    """Which of first, second and product is a weight or the gradient of one, None for none."""
    found = [place for place, shape in enumerate(parts) if sizes.is_parameter(shape)]
    if len(found) == 1:
        return found[0]
    usual = _usual_weight(op)
    return usual if usual in found else (found[0] if found else None)


def _usual_weight(op: Op) -> int:
    """x @ weight forward, gradient @ weight backward, x.t() @ gradient for the weight's own."""
    return 2 if op.phase == "backward" and op.layout in ("tn", "tt") else 1


# Amounts


def growing_degree(op: Op, growth: Sequence[Grows]) -> int:
    """How many times the batch is in an operation's arithmetic: mostly once, or not at all."""
    places = _factors(op) if op.kind == "gemm" else None
    if places is None:
        return int(any(map(any, growth)))
    first, second = growth[places[0]], growth[places[1]]
    inside = (first[-2], first[-1], second[-1])
    return max(sum(inside), int(any(map(any, growth))))


def growing_share(op: Op, growth: Sequence[Grows]) -> float:
    """The share of an operation's traffic that grows, by the elements of its tensors."""
    pairs = [(math.prod(s), any(g)) for s, g in zip(op.shapes, growth, strict=True)]
    if op.kind == "embedding" and pairs:
        pairs = _picked(op, pairs)
    total = sum(elements for elements, _ in pairs)
    if not total:
        return float(any(grows for _, grows in pairs))
    return sum(elements for elements, grows in pairs if grows) / total


def _picked(op: Op, pairs: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Of a table only the rows picked are read; its gradient is written whole, rows added thrice.

    As `trace.moved` counts them.
    """
    if op.name.endswith("embedding_dense_backward"):
        return [(3 * pairs[0][0], pairs[0][1]), *pairs[1:]]
    table = op.shapes[0]
    return [pair for pair, s in zip(pairs[1:], op.shapes[1:], strict=True) if s != table] or pairs
