"""What a convolution takes for itself: copies in another layout, transforms, parts of a gradient.

Found on an H200 with cuDNN's own choice of algorithms: around each convolution of 78 training
steps, and by a sweep of 4000 sizes (`tools/measure_memory.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlay.trace.layout import copy_bytes, is_channels_last, is_contiguous
from outlay.trace.moved import rounded, tensor_bytes
from outlay.trace.workspace import (
    ALWAYS,
    Takings,
    Workspace,
    on_tensor_cores,
    partial_sums,
    without_tensor_cores,
)
from outlay.units import MIB

if TYPE_CHECKING:
    from outlay.trace.moved import Tensor
    from outlay.trace.trace import Precision

_SMALL_KERNEL = 27
_FEW_CHANNELS = 4
_SMALL_IMAGE = 256
_MOST_SPLIT_BYTES = 8 * MIB
_TENSOR_CORES = ("bf16", "fp16", "tf32")


def conv_workspaces(
    x: Tensor, weight: Tensor, *args: object, out: Tensor, precision: Precision, **_: object
) -> Takings:
    """Copies that torch makes, and channels-last copies where cuDNN makes them for tensor cores.

    A kernel of size 1 is a matrix product and takes none, nor does a depthwise convolution, or
    one that reads few channels with a small kernel. From the third argument: bias, stride,
    padding, dilation, transposed, output_padding, groups.
    """
    conv = _Conv(x, weight, out, stride=args[1], groups=args[6])
    if is_channels_last(x) or is_channels_last(weight):
        yield Workspace(size_bytes=0 if is_channels_last(x) else tensor_bytes(x))
        return
    yield Workspace(size_bytes=copy_bytes(x))
    if precision in _TENSOR_CORES and not (
        conv.is_product or conv.is_depthwise or conv.reads_little
    ):
        yield _optional(conv.copies_bytes(precision), on_tensor_cores(precision))
    yield from conv.in_fp32(conv.fourier_bytes, precision, positions=_FOURIER_POSITIONS)


def conv_backward_workspaces(
    grad: Tensor, x: Tensor, weight: Tensor, *args: object, precision: Precision, **_: object
) -> Takings:
    """The same for either gradient, one after the other; a weight's is summed up in parts.

    In fp32 the weights' gradient of a 3 x 3 kernel runs as Winograd's algorithm.
    From the fourth argument: bias_sizes, stride, padding, dilation, transposed, output_padding,
    groups, output_mask.
    """
    conv = _Conv(x, weight, grad, stride=args[1], groups=args[6])
    last = is_channels_last(x) or is_channels_last(weight)
    right = is_channels_last if last else is_contiguous
    copied = sum(tensor_bytes(tensor) for tensor in (grad, x) if not right(tensor))
    if conv.is_depthwise:
        mixed = last or is_channels_last(grad)
        if mixed and precision != "fp16":
            copied = 2 * (tensor_bytes(x) + tensor_bytes(grad))
        yield Workspace(size_bytes=copied)
        return
    yield Workspace(size_bytes=copied)
    if is_channels_last(grad) and _wants(args[7], 2):
        samples, channels, *sides = grad.shape
        yield from partial_sums(samples * math.prod(sides), channels, turn=3)
    if precision in _TENSOR_CORES and not (conv.reads_little and precision == "tf32"):
        condition = on_tensor_cores(precision)
        if _wants(args[7], 0) and not (last or conv.is_product):
            yield _optional(conv.copies_bytes(precision), condition, turn=1)
        if _wants(args[7], 1):
            parts = conv.parts_bytes(precision) if last else conv.gradient_bytes(precision)
            yield _optional(parts, condition, turn=2)
    if not last and _wants(args[7], 0):
        yield from conv.in_fp32(
            conv.tiled_fourier_bytes, precision, positions=_FOURIER_POSITIONS, turn=1
        )
    if not last and _wants(args[7], 1):
        yield from conv.in_fp32(conv.winograd_bytes, precision, turn=2)


def _wants(mask: object, place: int) -> bool:
    return isinstance(mask, Sequence) and bool(mask[place])


def _optional(size_bytes: float, condition: str, turn: int = 0) -> Workspace:
    return Workspace(size_bytes=size_bytes, condition=condition, optional=True, turn=turn)


class _Conv:
    """The sizes of a convolution, forward or backward."""

    def __init__(
        self, x: Tensor, weight: Tensor, y: Tensor, *, stride: object, groups: object
    ) -> None:
        self.x, self.weight, self.y = x, weight, y
        self.channels = int(weight.shape[1])
        self.kernel = math.prod(weight.shape[2:])
        self.strided = isinstance(stride, Sequence) and any(step > 1 for step in stride)
        self.grouped = groups != 1
        self.is_depthwise = self.grouped and self.channels == 1
        self.is_product = self.kernel == 1 and not self.strided and not self.grouped

    @property
    def reads_little(self) -> bool:
        """Whether it reads few channels with a small kernel, as of an image."""
        return self.channels <= _FEW_CHANNELS and self.kernel <= _SMALL_KERNEL

    # Found on an H200 by a sweep of 462 sizes in fp32 (`tools/measure_memory.py layers`): where
    # one of the three is taken it is of this size; when it is taken is only nearly so.

    def in_fp32(
        self, size_bytes: float, precision: Precision, *, positions: int = 1, turn: int = 0
    ) -> Takings:
        """A workspace of the arithmetic without tensor cores, taken from so many positions on."""
        if size_bytes and precision in ("fp32", "tf32"):
            yield Workspace(
                size_bytes=size_bytes,
                condition=ALWAYS if precision == "fp32" else without_tensor_cores(precision),
                optional=True,
                from_rows=math.ceil(positions / math.prod(self.x.shape[2:])),
                turn=turn,
            )

    @property
    def _is_three_by_three(self) -> bool:
        """Whether the kernel is 3 x 3, moves one position at a time, and has many channels."""
        fits = tuple(self.weight.shape[2:]) == (3, 3) and min(self.weight.shape[:2]) >= 64
        return fits and not (self.strided or self.grouped)

    @property
    def winograd_bytes(self) -> float:
        """Tiles of 4 x 4 become 6 x 6; both tensors and the weights are transformed."""
        if not self._is_three_by_three:
            return 0.0
        samples, channels, *sides = self.x.shape
        tiled = samples * math.prod(rounded(side, 4) for side in sides)
        weights = math.prod(self.weight.shape)
        return 4 * (2.25 * tiled * (channels + self.y.shape[1]) + 4 * weights)

    @property
    def fourier_bytes(self) -> float:
        """Fourier transforms of whole images (cuDNN's FFT): of small ones, in forward."""
        side = self.x.shape[-1]
        if not self._is_three_by_three or not 14 <= side <= 30:
            return 0.0
        samples, channels = self.x.shape[:2]
        products = 2 * channels * self.weight.shape[0] + 2 * samples * channels
        return _spectrum_bytes(side + 2) * products + 4 * math.prod(self.weight.shape)

    @property
    def tiled_fourier_bytes(self) -> float:
        """Fourier transforms in tiles of 32 x 32: of the input's gradient."""
        side, (outs, channels) = self.x.shape[-1], self.weight.shape[:2]
        medium = max(outs, channels) <= 128 or side <= 64
        if not self._is_three_by_three or side < 28 or not medium or outs >= 512 > channels:
            return 0.0
        tiles = 2 if side + 2 > 32 else 1
        return _spectrum_bytes(32) * (outs * channels + tiles * self.x.shape[0] * (outs + channels))

    def parts_bytes(self, precision: Precision) -> float:
        """Parts of a weight's gradient, in fp32, summed up in the end: 13 or 14 of a small one."""
        weight_bytes = 4 * math.prod(self.weight.shape)
        return min((14.0 if precision == "tf32" else 13.0) * weight_bytes, _MOST_SPLIT_BYTES)

    def copies_bytes(self, precision: Precision) -> float:
        """Input, weight and output with channels last and padded to what tensor cores take."""
        multiple = 4 if precision == "tf32" else 8
        copies = (_padded_bytes(tensor, multiple) for tensor in (self.x, self.y, self.weight))
        return sum(copies)

    def gradient_bytes(self, precision: Precision) -> float:
        """What the weights' gradient takes on plain tensors.

        A kernel of size 1 is a matrix product per sample, whose parts of the weight's gradient
        are summed up; of small 16-bit images that are not aligned to 16 bytes copies are made.
        """
        copies = self.copies_bytes(precision)
        if not self.is_product or len(self.x.shape) == 5:
            return copies + self.parts_bytes(precision)
        positions = math.prod(self.x.shape[2:])
        if positions <= _SMALL_IMAGE and positions % 8 and precision != "tf32":
            return copies
        return min(4.0 * self.x.shape[0] * math.prod(self.weight.shape), copies)


_FOURIER_POSITIONS = 12_500
"""Positions of all samples from which Fourier transforms pay."""


def _spectrum_bytes(side: int) -> int:
    """A real transform of the next power of two, in complex fp32."""
    points = max(1 << (side - 1).bit_length(), 16)
    return points * (points // 2 + 1) * 8


def _padded_bytes(tensor: Tensor, multiple: int) -> float:
    channels = tensor.shape[1]
    return tensor_bytes(tensor) * rounded(channels, multiple) / max(channels, 1)
