"""Workspaces: what operators allocate for themselves while they run, beyond their results.

Much of it depends on the GPU: tensor cores want another layout, attention has several kernels,
partial sums are as many as there are multiprocessors. A trace serves every GPU, so it notes each
workspace with the condition under which it is real; `Traits` say which conditions a GPU meets.

`workspaces_of` gives those of one call of an operator, by a formula for each operator. A formula is
called with the operator's own arguments, `out`, its result, and the precision of its arithmetic.
The sizes were found on an H200 by asking the allocator around each operator of 78 training steps
(`tools/measure_memory.py events`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlay.trace.traffic import copy_bytes, is_channels_last, is_contiguous, rounded, tensor_bytes
from outlay.units import MIB

if TYPE_CHECKING:
    from outlay.trace.profile import Precision
    from outlay.trace.traffic import Tensor


# Conditions, and which of them a GPU meets


ALWAYS = ""
CUBLAS = "cublas"
"""Kept by a thread's handle from its first matrix product on; how much is the GPU's."""
_FROM = " from "
SUMS = "sums"
"""Partial results of a reduction: no more than the GPU's multiprocessors can work on."""


def on_tensor_cores(precision: Precision) -> str:
    """The condition that a GPU has tensor cores for an arithmetic."""
    return f"tensor {precision}"


def without_tensor_cores(precision: Precision) -> str:
    """The condition that a GPU has none for it, and computes in fp32."""
    return f"plain {precision}"


def with_attention(backend: str, precision: Precision) -> str:
    """The condition that a GPU runs attention of an arithmetic with a backend."""
    return f"{backend} {precision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Bytes an operator allocates while it runs, if the condition is met.

    `optional`: where there is no room, the library takes another algorithm that needs less.
    `from_rows`: taken if its tensors have so many in their first dimension, mostly the batch.
    """

    size_bytes: float
    condition: str = ALWAYS
    optional: bool = False
    from_rows: int = 1
    stage: int = 0
    """Those of one stage are there together, one stage after another; 0 is there all the while."""

    def condition_for(self, rows: int, batch_size: int) -> str:
        """The condition with the least batch size in it, from a trace at one batch size."""
        if self.from_rows <= 1:
            return self.condition
        least = math.ceil(self.from_rows * batch_size / max(rows, 1))
        return self.condition if least <= 1 else f"{self.condition}{_FROM}{least}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What of a GPU decides which workspaces are taken, and how large they are."""

    tensor_precisions: frozenset[str]
    attention: frozenset[str]
    """`backend precision`, as `with_attention` writes it."""
    cublas_bytes: int
    sums_bytes: int
    """The most that one reduction's partial sums take."""

    def workspace_bytes(self, condition: str, size_bytes: float, batch_size: int) -> float:
        """What a workspace of this size takes on the GPU; 0 where its condition is not met."""
        condition, _, least = condition.partition(_FROM)
        if least and batch_size < int(least):
            return 0.0
        if condition == ALWAYS:
            return size_bytes
        if condition == CUBLAS:
            return self.cublas_bytes
        if condition == SUMS:
            return min(size_bytes, self.sums_bytes)
        kind, _, precision = condition.partition(" ")
        if kind in ("tensor", "plain"):
            met = (precision in self.tensor_precisions) == (kind == "tensor")
        else:
            met = condition in self.attention
        return size_bytes if met else 0.0


REFERENCE = Traits(
    tensor_precisions=frozenset({"tf32", "fp16", "bf16"}),
    attention=frozenset({"cudnn fp16", "cudnn bf16"}),
    cublas_bytes=32 * MIB,
    sums_bytes=132 * MIB,
)
"""An H200, on which the sizes were found."""

Workspaces = Iterator[Workspace]


# Workspaces of an operator


_Formula = Callable[..., Workspaces]


def workspaces_of(
    name: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    out: object,
    precision: Precision,
) -> list[Workspace]:
    """What one call of an operator allocates for itself, most of the time nothing."""
    formula = _FORMULAS.get(name)
    if formula is None:
        return []
    rest = {key: value for key, value in kwargs.items() if key != "out"}
    workspaces = formula(*args, **rest, out=out, precision=precision)
    return [workspace for workspace in workspaces if workspace.size_bytes]


def has_workspace_formula(name: str) -> bool:
    """Whether an operator may take a workspace."""
    return name in _FORMULAS


# Convolutions: copies in another layout, transforms, parts of a gradient. Found with cuDNN's own
# choice of algorithms: in the training steps, and by a sweep of 4000 sizes.


_SMALL_KERNEL = 27
_FEW_CHANNELS = 4
_SMALL_IMAGE = 256
_MOST_PARTS_BYTES = 8 * MIB
_FOURIER_POSITIONS = 12_500
"""Positions of all samples from which Fourier transforms pay."""
_TENSOR_CORE_PRECISIONS = ("bf16", "fp16", "tf32")


def conv_workspaces(
    x: Tensor, weight: Tensor, *args: object, out: Tensor, precision: Precision, **_: object
) -> Workspaces:
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
    if precision in _TENSOR_CORE_PRECISIONS and not (
        conv.is_matrix_product or conv.is_depthwise or conv.reads_few_channels
    ):
        yield _optional(conv.copies_bytes(precision), on_tensor_cores(precision))
    yield from conv.fp32_workspaces(conv.fourier_bytes, precision, positions=_FOURIER_POSITIONS)


def conv_backward_workspaces(
    grad: Tensor, x: Tensor, weight: Tensor, *args: object, precision: Precision, **_: object
) -> Workspaces:
    """The same for either gradient, one after the other; a weight's is summed up in parts.

    In fp32 the weights' gradient of a 3 x 3 kernel runs as Winograd's algorithm.
    From the fourth argument: bias_sizes, stride, padding, dilation, transposed, output_padding,
    groups, output_mask.
    """
    conv = _Conv(x, weight, grad, stride=args[1], groups=args[6])
    last = is_channels_last(x) or is_channels_last(weight)
    is_laid_out = is_channels_last if last else is_contiguous
    copied_bytes = sum(tensor_bytes(tensor) for tensor in (grad, x) if not is_laid_out(tensor))
    if conv.is_depthwise:
        mixed = last or is_channels_last(grad)
        if mixed and precision != "fp16":
            copied_bytes = 2 * (tensor_bytes(x) + tensor_bytes(grad))
        yield Workspace(size_bytes=copied_bytes)
        return
    yield Workspace(size_bytes=copied_bytes)
    if is_channels_last(grad) and _needs(args[7], 2):
        samples, channels, *sides = grad.shape
        yield from partial_sums(samples * math.prod(sides), channels, stage=3)
    if precision in _TENSOR_CORE_PRECISIONS and not (
        conv.reads_few_channels and precision == "tf32"
    ):
        condition = on_tensor_cores(precision)
        if _needs(args[7], 0) and not (last or conv.is_matrix_product):
            yield _optional(conv.copies_bytes(precision), condition, stage=1)
        if _needs(args[7], 1):
            size_bytes = conv.parts_bytes(precision) if last else conv.gradient_bytes(precision)
            yield _optional(size_bytes, condition, stage=2)
    if not last and _needs(args[7], 0):
        yield from conv.fp32_workspaces(
            conv.tiled_fourier_bytes, precision, positions=_FOURIER_POSITIONS, stage=1
        )
    if not last and _needs(args[7], 1):
        yield from conv.fp32_workspaces(conv.winograd_bytes, precision, stage=2)


def _needs(output_mask: object, index: int) -> bool:
    return isinstance(output_mask, Sequence) and bool(output_mask[index])


def _optional(size_bytes: float, condition: str, stage: int = 0) -> Workspace:
    return Workspace(size_bytes=size_bytes, condition=condition, optional=True, stage=stage)


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
        self.is_matrix_product = self.kernel == 1 and not self.strided and not self.grouped

    @property
    def reads_few_channels(self) -> bool:
        """Whether it reads few channels with a small kernel, as of an image."""
        return self.channels <= _FEW_CHANNELS and self.kernel <= _SMALL_KERNEL

    # Found by a sweep of 462 sizes in fp32 (`tools/measure_memory.py layers`): where one of the
    # three is taken it is of this size; when it is taken is only nearly so.

    def fp32_workspaces(
        self, size_bytes: float, precision: Precision, *, positions: int = 1, stage: int = 0
    ) -> Workspaces:
        """A workspace of the arithmetic without tensor cores, taken from so many positions on."""
        if size_bytes and precision in ("fp32", "tf32"):
            yield Workspace(
                size_bytes=size_bytes,
                condition=ALWAYS if precision == "fp32" else without_tensor_cores(precision),
                optional=True,
                from_rows=math.ceil(positions / math.prod(self.x.shape[2:])),
                stage=stage,
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
        return min((14.0 if precision == "tf32" else 13.0) * weight_bytes, _MOST_PARTS_BYTES)

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
        if not self.is_matrix_product or len(self.x.shape) == 5:
            return copies + self.parts_bytes(precision)
        positions = math.prod(self.x.shape[2:])
        if positions <= _SMALL_IMAGE and positions % 8 and precision != "tf32":
            return copies
        return min(4.0 * self.x.shape[0] * math.prod(self.weight.shape), copies)


def _spectrum_bytes(side: int) -> int:
    """A real transform of the next power of two, in complex fp32."""
    points = max(1 << (side - 1).bit_length(), 16)
    return points * (points // 2 + 1) * 8


def _padded_bytes(tensor: Tensor, multiple: int) -> float:
    channels = tensor.shape[1]
    return tensor_bytes(tensor) * rounded(channels, multiple) / max(channels, 1)


# Attention


def flash_backward_workspaces(
    _grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *_: object,
    precision: Precision,
    **__: object,
) -> Workspaces:
    """The query's gradient in fp32, and for shared key heads both gradients once per query head.

    Source: aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (mha_bwd): rows in
    blocks of 128, columns of 32; the row sums are in it too. cuDNN takes the same without
    rounding, the memory-efficient kernel a product of gradient and output in fp32.
    """
    batch, heads, rows, columns = query.shape
    shared = 0.0
    if key.shape[1] != heads:
        shared = (tensor_bytes(key) + tensor_bytes(value)) * heads / key.shape[1]
    flash = 4 * batch * heads * rounded(rows, 128) * (rounded(columns, 32) + 1) + shared
    exact = 4 * batch * heads * rows * (columns + 1)
    for backend, size_bytes in (
        ("flash", flash),
        ("cudnn", exact + shared),
        ("efficient", exact + shared),
    ):
        condition = with_attention(backend, precision)
        yield Workspace(size_bytes=size_bytes, condition=condition)


def efficient_backward_workspaces(
    grad: Tensor, query: Tensor, _key: Tensor, value: Tensor, *_: object, **__: object
) -> Workspaces:
    """The product of gradient and output in fp32, and its sums."""
    batch, heads, rows, _columns = query.shape
    product = 4 * batch * heads * rows * (value.shape[-1] + 2)
    transposed = getattr(grad, "transpose", None)
    strided = transposed is not None and not is_contiguous(transposed(1, 2))
    yield Workspace(size_bytes=product + (tensor_bytes(grad) if strided else 0))


# Reductions, norms, indexing


_FEW_ROWS = 64
"""A reduction of so few is done at once. (One over samples is not left out: its rows grow with
the batch, and a trace at a small batch must show the same workspaces as one at a large.)"""


def partial_sums(rows: int, results: int, stage: int = 0) -> Workspaces:
    """Partial sums of so many rows into so many results that lie side by side.

    Source: aten/src/ATen/native/cuda/Reduce.cuh: blocks of 128 threads with four results each,
    16 values a thread at least, a float for each thread and block.
    """
    if results % 4 == 0:
        width = min(32, 1 << (results // 4).bit_length() - 1)
        size_bytes = rows * results * width**2 / 128
        yield Workspace(size_bytes=size_bytes, condition=SUMS, stage=stage)


def outer_sum_workspaces(x: Tensor, *args: object, **kwargs: object) -> Workspaces:
    """Partial sums of a reduction over leading dimensions, as of a bias's gradient."""
    dims = kwargs.get("dim") or next((a for a in args if isinstance(a, list | tuple)), None)
    if not isinstance(dims, list | tuple) or not x.shape or not is_contiguous(x):
        return
    reduced = {int(dim) % len(x.shape) for dim in dims}
    if not reduced or math.prod(x.shape[max(reduced) + 1 :]) == 1:
        return  # what is summed lies side by side
    rows = math.prod(x.shape[dim] for dim in reduced)
    results = math.prod(x.shape) // max(rows, 1)
    if rows > _FEW_ROWS or 0 in reduced:
        yield from partial_sums(rows, results)


def softmax_backward_workspaces(grad: Tensor, *_: object, **__: object) -> Workspaces:
    """The product of gradient and output, before it is summed over rows."""
    yield Workspace(size_bytes=tensor_bytes(grad))


def mse_loss_workspaces(x: Tensor, _y: Tensor, reduction: int = 1, **_: object) -> Workspaces:
    """The squared differences, before they are averaged."""
    yield Workspace(size_bytes=tensor_bytes(x) if reduction else 0)


def safe_softmax_workspaces(x: Tensor, *_: object, **__: object) -> Workspaces:
    """Which elements are minus infinity: a byte each."""
    yield Workspace(size_bytes=math.prod(x.shape))


def contiguous_input_workspaces(x: Tensor, *_: object, **__: object) -> Workspaces:
    """A copy of the first argument, if it has gaps or another order."""
    yield Workspace(size_bytes=copy_bytes(x))


def contiguous_image_workspaces(x: Tensor, *_: object, **__: object) -> Workspaces:
    """A copy of the first argument, unless it is dense in either order of an image."""
    yield Workspace(size_bytes=0 if is_channels_last(x) else copy_bytes(x))


def layer_norm_backward_workspaces(grad: Tensor, x: Tensor, *_: object, **__: object) -> Workspaces:
    """Copies of gradient and input, where they have gaps."""
    yield Workspace(size_bytes=copy_bytes(grad) + copy_bytes(x))


def roll_workspaces(x: Tensor, shifts: object, *_: object, **__: object) -> Workspaces:
    """Each further dimension is rolled on a copy."""
    several = isinstance(shifts, Sequence) and len(shifts) > 1
    yield Workspace(size_bytes=tensor_bytes(x) if several else 0)


def embedding_backward_workspaces(
    grad: Tensor, indices: Tensor, *_: object, **__: object
) -> Workspaces:
    """Indices sorted, and in fp32 one row for each that occurs.

    Source: aten/src/ATen/native/cuda/Embedding.cu (embedding_backward_cuda_kernel). Assumes:
    hardly any index occurs twice. Ignores that up to 3072 indices take nothing.
    """
    sorted_bytes = math.prod(indices.shape) * (4 * grad.shape[-1] + 40)
    yield Workspace(size_bytes=copy_bytes(grad) + sorted_bytes)


def index_put_workspaces(
    _target: Tensor, indices: Sequence[Tensor | None], *args: object, **__: object
) -> Workspaces:
    """Indices sorted where values are added up."""
    adds_up = len(args) > 1 and bool(args[1])
    count = max((math.prod(index.shape) for index in indices if index is not None), default=0)
    yield Workspace(size_bytes=46 * count if adds_up else 0)


# Recurrent layers


def rnn_workspaces(
    x: Tensor, weights: Sequence[Tensor], *args: object, out: Sequence[Tensor], **_: object
) -> Workspaces:
    """cuDNN's workspace, and a copy of the input with time first.

    Found on an H200 within a few percent: six times the output, one and a half times the weights,
    a quarter more for two directions. From the third argument: weights per layer, buffer, state,
    cell, mode, hidden, projection, layers, batch_first, dropout, train, bidirectional.
    """
    yield Workspace(size_bytes=_recurrent_bytes(x, weights, out[0], args[7:]))


def rnn_backward_workspaces(
    x: Tensor, weights: Sequence[Tensor], *args: object, **_: object
) -> Workspaces:
    """The same for the gradients of input and weights, one after the other.

    With samples first, output and its gradient are turned round too.

    From the third argument: weights per layer, buffer, state, cell, output, three gradients, mode,
    hidden, projection, layers, batch_first, dropout, train, bidirectional.
    """
    options = args[11:]
    size_bytes = _recurrent_bytes(x, weights, args[4], options)
    yield Workspace(size_bytes=2 * tensor_bytes(args[4]) if _is_batch_first(options) else 0)
    yield Workspace(size_bytes=size_bytes, stage=1)
    yield Workspace(size_bytes=size_bytes, stage=2)


def _is_batch_first(options: Sequence[object]) -> bool:
    return tuple(options[1:2]) == (True,)


def _recurrent_bytes(
    x: Tensor, weights: Sequence[Tensor], output: object, options: Sequence[object]
) -> float:
    """Options: layers, batch_first, dropout, train, bidirectional."""
    transposed_bytes = tensor_bytes(x) if _is_batch_first(options) else 0
    directions = 1.25 if options[4:5] == (True,) else 1.0
    return (
        6.2 * directions * tensor_bytes(output) + 1.45 * tensor_bytes(*weights) + transposed_bytes
    )


_BY_NAME: Mapping[str, _Formula] = {
    "convolution _convolution": conv_workspaces,
    "convolution_backward": conv_backward_workspaces,
    "_scaled_dot_product_flash_attention_backward": flash_backward_workspaces,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward_workspaces,
    "sum mean linalg_vector_norm": outer_sum_workspaces,
    "_softmax_backward_data": softmax_backward_workspaces,
    "_safe_softmax": safe_softmax_workspaces,
    "mse_loss": mse_loss_workspaces,
    "_softmax _log_softmax native_layer_norm native_group_norm": contiguous_input_workspaces,
    "native_layer_norm_backward native_group_norm_backward": layer_norm_backward_workspaces,
    "upsample_nearest2d_backward upsample_bilinear2d_backward "
    "max_pool2d_with_indices_backward": contiguous_image_workspaces,
    "roll": roll_workspaces,
    "embedding_dense_backward _embedding_bag_backward": embedding_backward_workspaces,
    "index_put index_put_ _index_put_impl_": index_put_workspaces,
    "_cudnn_rnn": rnn_workspaces,
    "_cudnn_rnn_backward": rnn_backward_workspaces,
}
_FORMULAS = {
    f"aten.{name}": formula for names, formula in _BY_NAME.items() for name in names.split()
}
