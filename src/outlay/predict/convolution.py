"""A convolution as cuDNN runs it: layout conversions, implicit products, bias.

Tensor cores want channels last. With images in torch's usual order cuDNN converts what goes in and
what comes out (seen in profiles of an H200: every tensor is read and written once more), unless
the kernel is 1x1: that is a matrix product as it lies. Depthwise convolutions do no product at
all. Without tensor cores (fp32, or older GPUs) the product reads the images as they are, and the
gradients of 3x3 kernels go through a transform (Winograd: Lavin and Gray 2015, arXiv 1509.09308).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlay.predict.kernels import Kernel, Pass, Product, Shape, alignment, bytes_of
from outlay.trace.profile import Op

_NARROW = 4
"""Channels, up to which an image is padded before tensor cores take it: those of colours."""
_GROUPED_TOGETHER = 32
"""Channels of a group, up to which one kernel takes all groups; wider ones go one by one."""
_REGULAR = 32
"""Channels must be multiples of this for the newest kernels."""
_OUTPUT_TAPS = 12
"""Taps that an output costs beside those of its kernel, in a depthwise convolution."""
_GROWTH = 1.8
"""Positions out over positions in, above which a convolution is a transposed one, not padded."""
_MANY = 32
"""Samples and channels from which torch leaves a depthwise convolution to cuDNN."""
_LARGE_TAPS = 25
"""Taps (5x5), up to which cuDNN has a depthwise kernel of its own."""
TRANSFORMED = "direct_transformed"
"""The family of what goes through a transform; on the reference GPU gradients alone do."""
SAVED_BY_TRANSFORM = 4.0
"""Multiplications of plain convolution over those of Winograd's F(4x4, 3x3): 144 over 36 (Lavin and
Gray 2015, arXiv 1509.09308). It is the most that is spared."""
_TRANSFORMED_TAPS = 9
"""Taps (3x3) of the kernels that Winograd or Fourier transforms are used for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """A convolution by its two sides: a transposed one runs from the small side to the large."""

    samples: int
    wide: int
    """Channels of the large side (the input of a plain convolution)."""
    narrow: int
    """Channels of the small side."""
    groups: int
    taps: int
    large: int
    """Positions of the large side."""
    small: int
    transposed: bool
    strided: bool
    line: bool
    """Whether it runs along one dimension: sound, text."""
    flat: bool
    """Whether it runs over images of two dimensions."""

    @property
    def depthwise(self) -> bool:
        """Every channel by itself."""
        return self.groups > 1 and self.wide == self.groups


def geometry(x: Shape, weight: Shape, y: Shape) -> Geometry:
    """From the shapes of input, weight and output."""
    grows = math.prod(y[2:]) > _GROWTH * math.prod(x[2:])
    fits_plain = y[1] == weight[0] and x[1] % max(weight[1], 1) == 0
    transposed = x[1] == weight[0] and (grows or not fits_plain)
    big, little = (y, x) if transposed else (x, y)
    large, small = math.prod(big[2:]), math.prod(little[2:])
    return Geometry(
        samples=x[0],
        wide=big[1],
        narrow=little[1],
        groups=max(big[1] // max(weight[1], 1), 1),
        taps=math.prod(weight[2:]),
        large=large,
        small=small,
        transposed=transposed,
        strided=large > 1.8 * small,
        line=len(x) == 3,
        flat=len(x) == 4,
    )


def convolution_kernels(
    op: Op, *, tensor_cores: bool, transforms: bool = False
) -> tuple[Kernel, ...]:
    """The kernels of a convolution, forward or backward, on a GPU with or without tensor cores.

    `transforms` says whether forward goes through a transform, too, as on GPUs before Ampere.
    """
    if "backward" in op.name:
        return _backward(op, tensor_cores=tensor_cores)
    x, weight, y = op.shapes[0], op.shapes[1], op.shapes[-1]
    shape = geometry(x, weight, y)
    direction = "input" if shape.transposed else "forward"
    if transforms and not tensor_cores and not shape.depthwise:
        kernels: list[Kernel] = [_direct(op, shape, direction, transforms=True)]
    else:
        kernels = _one_direction(op, shape, direction, tensor_cores=tensor_cores)
    if len(op.shapes) > 3:
        kernels.append(_bias(op, shape, "unlike"))
    return tuple(kernels)


def _backward(op: Op, *, tensor_cores: bool) -> tuple[Kernel, ...]:
    grad, x, weight, *results = op.shapes
    shape = geometry(x, weight, grad)
    kernels: list[Kernel] = []
    if x in results:
        direction = "forward" if shape.transposed else "input"
        kernels += _one_direction(op, shape, direction, tensor_cores=tensor_cores)
        results.remove(x)
    if weight in results:
        kernels += _one_direction(op, shape, "weight", tensor_cores=tensor_cores)
        results.remove(weight)
    if results:
        kernels.append(_bias(op, shape, "reduce_rows"))
    return tuple(kernels)


def _bias(op: Op, shape: Geometry, family: str) -> Pass:
    """A bias is added, or its gradient summed, over the whole output."""
    narrow = not shape.transposed
    channels = shape.narrow if narrow else shape.wide
    elements = shape.samples * channels * (shape.small if narrow else shape.large)
    size = bytes_of(op.precision)
    if family == "unlike":  # added: read and written
        return Pass(family=family, moved_bytes=2 * elements * size, elements=elements)
    return Pass(
        family=family, moved_bytes=elements * size, elements=elements, thread_blocks=channels
    )


def _one_direction(op: Op, shape: Geometry, direction: str, *, tensor_cores: bool) -> list[Kernel]:
    """The kernels of one direction: `forward`, or the gradient of the `input` or the `weight`."""
    if shape.depthwise:
        return [_depthwise(op, shape, direction)]
    if not tensor_cores:
        return [_direct(op, shape, direction, transforms="backward" in op.name)]
    kernels: list[Kernel] = []
    if op.layout == "mixed":
        kernels.append(_copied(op, shape, direction))
    product = _matrix(op, shape, direction) if _is_matrix(op, shape) else None
    if product is None:
        product = _implicit(op, shape, direction)
        if op.layout == "plain" and shape.large > 1 and not product.family.endswith("_colours"):
            kernels += _turns(op, shape)
    return [*kernels, product]


def _is_matrix(op: Op, shape: Geometry) -> bool:
    """Whether images can be multiplied as they lie: a 1x1 kernel on rows that can be loaded."""
    if shape.taps > 1 or shape.large != shape.small or shape.groups > 1:
        return False
    lanes = 16 // bytes_of(op.precision)
    return op.layout != "plain" or shape.large == 1 or shape.large % lanes == 0


def _sides(op: Op, shape: Geometry) -> tuple[float, float, float]:
    """Bytes of the large side, the small side and the weight."""
    size = bytes_of(op.precision)
    return (
        size * shape.samples * shape.wide * shape.large,
        size * shape.samples * shape.narrow * shape.small,
        size * shape.wide // shape.groups * shape.narrow * shape.taps,
    )


def _matrix(op: Op, shape: Geometry, direction: str) -> Product:
    """A 1x1 convolution as a product: of one matrix with channels last, else one an image."""
    whole = op.layout != "plain" or shape.large == 1
    samples = 1 if whole else shape.samples
    positions = shape.samples * shape.large / samples
    m, n, k = {
        "forward": (positions, shape.narrow, shape.wide),
        "input": (positions, shape.wide, shape.narrow),
        "weight": (shape.narrow, shape.wide, positions),
    }[direction]
    return Product(
        family="gemm" if whole else "pointwise",
        batch=samples,
        m=m,
        n=n,
        k=k,
        precision=op.precision,
        moved_bytes=sum(_sides(op, shape)),
        aligned=alignment(shape.wide, shape.narrow) if whole else alignment(positions),
        turned=direction == "weight",
    )


def _copied(op: Op, shape: Geometry, direction: str) -> Pass:
    """The image that does not lie as the others do, copied into their order by torch."""
    large, small, _ = _sides(op, shape)
    moved = small if direction == "input" else large
    elements = moved / bytes_of(op.precision)
    return Pass(family="crossed", moved_bytes=2 * moved, elements=elements)


def _turns(op: Op, shape: Geometry) -> list[Kernel]:
    """Each tensor once into channels last, or back."""
    size = bytes_of(op.precision)
    kernels: list[Kernel] = [
        Pass(family="turn", moved_bytes=2 * moved, elements=moved / size)
        for moved in _sides(op, shape)
    ]
    if shape.taps == 1:  # a weight of one tap lies the same either way
        del kernels[2]
    return kernels


def _product_sizes(
    shape: Geometry, direction: str, wide: float, narrow: float
) -> tuple[float, float, float]:
    """m, n and k of one group's product, with so many channels on its two sides."""
    positions = shape.samples * shape.small
    if direction == "forward":
        return positions, narrow, wide * shape.taps
    if direction == "weight":
        return narrow, wide * shape.taps, positions
    return shape.samples * shape.large, wide, narrow * shape.taps * shape.small / shape.large


def _implicit(op: Op, shape: Geometry, direction: str) -> Product:
    """The product of a convolution whose rows are gathered as they are needed."""
    wide, narrow = shape.wide / shape.groups, shape.narrow / shape.groups
    lanes = 16 // bytes_of(op.precision)
    colours = min(wide, narrow) <= _NARROW
    padded_wide, padded_narrow = (math.ceil(size / lanes) * lanes for size in (wide, narrow))
    together = shape.groups > 1 and max(wide, narrow) <= _GROUPED_TOGETHER
    repeats = 1 if together else shape.groups
    batch = shape.groups if together else 1
    m, n, k = _product_sizes(shape, direction, padded_wide, padded_narrow)
    family = direction
    if colours:
        family = f"{direction}_colours"
    elif together:
        family = f"{direction}_grouped"
    elif shape.line:
        family = f"{direction}_line"
    elif alignment(wide, narrow) < _REGULAR:
        family = f"{direction}_irregular"
    return Product(
        family=family,
        batch=batch,
        m=m,
        n=n,
        k=k,
        precision=op.precision,
        moved_bytes=sum(_sides(op, shape)) / repeats,
        repeats=repeats,
    )


def _direct(op: Op, shape: Geometry, direction: str, *, transforms: bool) -> Product:
    """Without tensor cores: the images as they are, or 3x3 kernels by a transform that saves."""
    wide, narrow = shape.wide / shape.groups, shape.narrow / shape.groups
    m, n, k = _product_sizes(shape, direction, wide, narrow)
    transformed = shape.taps == _TRANSFORMED_TAPS and not shape.strided and min(wide, narrow) >= 32
    family = "direct_backward" if "backward" in op.name else "direct"
    return Product(
        family=TRANSFORMED if transforms and transformed else family,
        batch=shape.groups,
        m=m,
        n=n,
        k=k,
        precision=op.precision,
        moved_bytes=sum(_sides(op, shape)),
    )


def _depthwise(op: Op, shape: Geometry, direction: str) -> Pass:
    """One multiplication a tap and output: by cuDNN in fp16 or channels last, else by torch."""
    reads, writes, _ = _sides(op, shape)
    by = _depthwise_by(op, shape)
    backwards = direction == "input"  # every position of the large side looks for its outputs
    if backwards and shape.strided and by in ("library", "last"):
        by += "_strided"
    positions = shape.large if backwards else shape.small
    return Pass(
        family=f"depthwise_{direction}_{by}",
        moved_bytes=reads + writes,
        elements=shape.samples * shape.narrow * positions * (shape.taps + _OUTPUT_TAPS),
    )


def _depthwise_by(op: Op, shape: Geometry) -> str:
    if not shape.flat:
        return "other"
    if op.layout == "plain":
        many = shape.samples >= _MANY and shape.wide >= _MANY and shape.taps <= _LARGE_TAPS
        return "library" if op.precision == "fp16" and many else "torch"
    large = "_large" if shape.taps > _LARGE_TAPS else ""
    return f"last{'_32' if bytes_of(op.precision) == 4 else ''}{large}"
