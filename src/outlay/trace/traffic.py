"""What an operator's tensors mean for memory: bytes read and written, kernels, and layout.

A formula of bytes or kernels is called with the operator's own arguments and `out`, its result.
Each tensor counts once, read or written, unless a formula says otherwise; what caches save and what
layout conversions add is left to the prediction, to which `layout_of` tells how the tensors lie in
memory: row after row, channels last, transposed, or unlike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlay.trace.profile import Kind, Layout


# Tensors


class Dtype(Protocol):
    """An element type, as torch has it."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        ...


class Tensor(Protocol):
    """What a formula may ask of a tensor. torch's have it; so has a small class in a test."""

    @property
    def shape(self) -> Sequence[int]:
        """Sizes, outermost first."""
        ...

    @property
    def dtype(self) -> Dtype:
        """Element type."""
        ...


def is_tensor(value: object) -> TypeGuard[Tensor]:
    """Whether a value has a shape and an element type."""
    return hasattr(value, "shape") and hasattr(value, "dtype")


def tensors_in(*values: object) -> Iterator[Tensor]:
    """Every tensor among the values, lists and tuples opened."""
    for value in values:
        if is_tensor(value):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(*value)


def elements(tensor: Tensor) -> int:
    """Elements that exist in memory: an expanded dimension (stride 0) is there once."""
    stride = getattr(tensor, "stride", None)
    if stride is None:
        return math.prod(tensor.shape)
    sizes = zip(tensor.shape, stride(), strict=True)
    return math.prod(size for size, step in sizes if step or not size)


def tensor_bytes(*values: object) -> int:
    """Bytes of every tensor among the values, the same tensor once."""
    distinct = {id(tensor): tensor for tensor in tensors_in(*values)}
    return sum(elements(tensor) * tensor.dtype.itemsize for tensor in distinct.values())


def rounded(number: int, multiple: int) -> int:
    """The next multiple from a number on."""
    return -(-number // multiple) * multiple


# Bytes of most operators


def read_and_written_bytes(*args: object, out: object, **kwargs: object) -> float:
    """Bytes of the tensors read plus those written. An in-place result is read and written."""
    return tensor_bytes(*args, *kwargs.values()) + tensor_bytes(out)


def written_bytes(*_: object, out: object, **__: object) -> float:
    """Bytes written only: fills and random numbers."""
    return tensor_bytes(out)


def no_bytes(*_: object, **__: object) -> float:
    """Nothing: a view is a new description of the same memory."""
    return 0.0


# Copies and indexing


def copy_into_bytes(target: Tensor, source: Tensor, *_: object, **__: object) -> float:
    """The target is overwritten, not read."""
    return tensor_bytes(source) + tensor_bytes(target)


def embedding_bytes(
    _table: Tensor, indices: Tensor, *_: object, out: Tensor, **__: object
) -> float:
    """Only the rows looked up are read."""
    return tensor_bytes(indices) + 2 * tensor_bytes(out)


def embedding_backward_bytes(
    grad: Tensor, indices: Tensor, *_: object, out: Tensor, **__: object
) -> float:
    """A zeroed table, and the gradient rows read and added into it."""
    return tensor_bytes(out) + tensor_bytes(indices) + 3 * tensor_bytes(grad)


def gather_bytes(_source: Tensor, *args: object, out: object, **kwargs: object) -> float:
    """The indices, and each picked element read and written."""
    return tensor_bytes(*args, *kwargs.values()) + 2 * tensor_bytes(out)


def scatter_bytes(_target: Tensor, *args: object, out: object, **kwargs: object) -> float:
    """The indices and values, and each value's place read and written."""
    values = tensor_bytes(*args, *kwargs.values())
    return min(2 * values, values + 2 * tensor_bytes(out))


def scatter_copy_bytes(target: Tensor, *args: object, out: object, **kwargs: object) -> float:
    """A scatter into a fresh copy."""
    return 2 * tensor_bytes(out) + scatter_bytes(target, *args, out=out, **kwargs)


# Norms, losses, sorting


def norm_bytes(x: Tensor, *args: object, out: object, **kwargs: object) -> float:
    """The input is read twice: once for the statistics, once to normalise."""
    return tensor_bytes(x) + read_and_written_bytes(x, *args, out=out, **kwargs)


def norm_backward_bytes(
    grad: Tensor, x: Tensor, *args: object, out: object, **kwargs: object
) -> float:
    """Gradient and input are read twice: once for the sums, once for the result."""
    return tensor_bytes(grad, x) + read_and_written_bytes(grad, x, *args, out=out, **kwargs)


def nll_loss_bytes(scores: Tensor, target: Tensor, *_: object, out: object, **__: object) -> float:
    """One score per target."""
    return tensor_bytes(target) + elements(target) * scores.dtype.itemsize + tensor_bytes(out)


def nll_loss_backward_bytes(
    _grad: Tensor, _scores: Tensor, target: Tensor, *_: object, out: object, **__: object
) -> float:
    """A zeroed gradient of the scores; one element per target is set."""
    return tensor_bytes(target) + tensor_bytes(out)


def sort_bytes(x: Tensor, *_: object, out: object, **__: object) -> float:
    """Assumes a radix sort in four passes over keys and values."""
    return 4 * (tensor_bytes(x) + tensor_bytes(out))


# Multi-tensor updates


def foreach_in_place_bytes(targets: object, *args: object, **kwargs: object) -> float:
    """Everything read once, the first list written as well."""
    return tensor_bytes(targets, *args, *kwargs.values()) + tensor_bytes(targets)


def fused_bytes(parameters: object, grads: object, *states: object, **_: object) -> float:
    """Everything read once; parameters and states written as well."""
    return tensor_bytes(parameters, grads, *states) + tensor_bytes(parameters, *states)


# Source: aten/src/ATen/native/cuda/MultiTensorApply.cuh: chunks of 65536 elements, at most 320
# chunks a launch, and as many tensors as the kernel's arguments hold (by number of lists).
_CHUNK_ELEMENTS = 65_536
_CHUNKS_PER_LAUNCH = 320
_TENSORS_PER_LAUNCH = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}


def foreach_launches(*args: object, out: object = None, **_: object) -> float:
    """Kernels one multi-tensor operator starts."""
    given = (list(tensors_in(arg)) for arg in (*args, out) if isinstance(arg, list | tuple))
    lists = [tensors for tensors in given if tensors]
    if not lists:
        return 1
    chunks = sum(math.ceil(elements(tensor) / _CHUNK_ELEMENTS) for tensor in lists[0])
    per_launch = _TENSORS_PER_LAUNCH.get(len(lists), _TENSORS_PER_LAUNCH[5])
    return max(math.ceil(chunks / _CHUNKS_PER_LAUNCH), math.ceil(len(lists[0]) / per_launch), 1)


def conv_backward_launches(*_: object, out: Sequence[object], **__: object) -> float:
    """One kernel per gradient asked for; layout conversions are left to the prediction."""
    return sum(1 for gradient in out if gradient is not None)


# Layout


_IMAGE_KINDS = frozenset({"norm", "reduction"})
_ELEMENT_KINDS = frozenset({"elementwise", "copy"})
_CONCATENATIONS = frozenset({"aten.cat", "aten.stack"})


def layout_of(kind: Kind, name: str, tensors: Sequence[Tensor], results: int) -> Layout:
    """The layout that decides how fast an operator runs.

    `tensors` are its arguments and then its results, of which there are `results`.
    """
    arguments = tensors[: len(tensors) - results]
    if kind == "conv":
        return _image_layout(arguments)
    if kind in _IMAGE_KINDS:
        return "channels_last" if any(map(is_channels_last, tensors)) else _row_layout(arguments)
    if kind == "gemm":
        return _product_layout(name, arguments)
    if name in _CONCATENATIONS:
        return "plain" if all(map(is_contiguous, arguments)) else "unlike"
    if kind in _ELEMENT_KINDS:
        return _element_layout(tensors)
    return "plain"


def is_channels_last(tensor: Tensor) -> bool:
    """Whether an image tensor (4 or 5 dimensions) lies in memory with its channels together."""
    shape, strides = tensor.shape, _strides(tensor)
    if len(shape) not in (4, 5) or shape[1] == 1 or math.prod(shape[2:]) == 1:
        return False
    order = [1, *range(len(shape) - 1, 1, -1), 0]
    return _is_dense(shape, strides, order)


def is_contiguous(tensor: Tensor) -> bool:
    """Whether a tensor lies in memory row after row without gaps."""
    shape = tensor.shape
    return _is_dense(shape, _strides(tensor), range(len(shape) - 1, -1, -1))


def copy_bytes(tensor: Tensor) -> float:
    """What `.contiguous()` takes: nothing for a tensor that is."""
    return 0.0 if is_contiguous(tensor) else tensor_bytes(tensor)


def _image_layout(arguments: Sequence[Tensor]) -> Layout:
    """`mixed` where a convolution has images of both orders, one of which is converted first."""
    images = [
        tensor for tensor in arguments if len(tensor.shape) > 3 and math.prod(tensor.shape[2:]) > 1
    ]
    if not any(map(is_channels_last, images)):
        return "plain"
    channels_first = any(
        image.shape[1] > 1 and is_contiguous(image) and not is_channels_last(image)
        for image in images
    )
    return "mixed" if channels_first else "channels_last"


def _row_layout(arguments: Sequence[Tensor]) -> Layout:
    """Of what works on rows: whether they must be put in order, and how far apart they lie."""
    matrices = [tensor for tensor in arguments if len(tensor.shape) > 1]
    if all(map(is_contiguous, matrices)):
        return "plain"
    apart = any(_innermost(matrix) not in (None, len(matrix.shape) - 1) for matrix in matrices)
    return "crossed" if apart else "unlike"


def _product_layout(name: str, arguments: Sequence[Tensor]) -> Layout:
    """Which of the two matrices is transposed: of `mm(x, weight.t())`, the second."""
    matrices = [tensor for tensor in arguments if len(tensor.shape) >= 2]
    if len(matrices) < 2:
        return "plain"
    first, second = matrices[-2:] if "addmm" in name or "baddbmm" in name else matrices[:2]
    if _is_transposed(first):
        return "tt" if _is_transposed(second) else "tn"
    return "nt" if _is_transposed(second) else "plain"


def _is_transposed(matrix: Tensor) -> bool:
    rows, columns = matrix.shape[-2:]
    by_row, by_column = _strides(matrix)[-2:]
    return rows > 1 and columns > 1 and by_column != 1 and by_row == 1


def _element_layout(tensors: Sequence[Tensor]) -> Layout:
    """Whether elements are handled one by one: tensors differ in shape or order, or are widened.

    `crossed` where what lies side by side in one tensor lies apart in another. Tensors of one
    element are left out: they are mostly numbers.
    """
    large = [tensor for tensor in tensors if math.prod(tensor.shape) > 1]
    if len(large) < 2:
        return "plain"
    *arguments, result = large
    if any(_is_crossed(argument, result) for argument in arguments):
        return "crossed"
    widths = [argument.dtype.itemsize for argument in arguments]
    widened = min((n for n in widths if n > 1), default=8) < result.dtype.itemsize  # without masks
    order = _order(result)
    reordered = any(_order(argument) != order for argument in arguments)
    return "unlike" if widened or reordered else "plain"


def _is_crossed(first: Tensor, second: Tensor) -> bool:
    if len(first.shape) != len(second.shape):
        return False
    inner, other = _innermost(first), _innermost(second)
    if inner is None or other is None or inner == other:
        return False
    return first.shape[other] > 1 and second.shape[inner] > 1


def _innermost(tensor: Tensor) -> int | None:
    """The dimension whose elements lie side by side."""
    sizes = zip(tensor.shape, _strides(tensor), strict=True)
    dims = [dim for dim, (size, stride) in enumerate(sizes) if stride == 1 and size > 1]
    return dims[-1] if dims else None


def _order(tensor: Tensor) -> tuple[tuple[int, int], ...]:
    """Sizes and strides of the dimensions that have any extent."""
    pairs = zip(tensor.shape, _strides(tensor), strict=True)
    return tuple((size, stride) for size, stride in pairs if size != 1)


def _is_dense(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    expected = 1
    for dim in order:
        if shape[dim] != 1 and strides[dim] != expected:
            return False
        expected *= shape[dim]
    return True


def _strides(tensor: Tensor) -> Sequence[int]:
    stride = getattr(tensor, "stride", None)
    if stride is not None:
        strides: Sequence[int] = stride()
        return strides
    shape = tensor.shape
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
