"""How an operator's tensors lie in memory: row after row, channels last, transposed, or unlike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outlay.trace.moved import Tensor, tensor_bytes

if TYPE_CHECKING:
    from outlay.trace.trace import Kind, Layout

_IMAGE_KINDS = frozenset({"norm", "reduction"})
_ELEMENT_KINDS = frozenset({"elementwise", "copy"})
_JOINING = frozenset({"aten.cat", "aten.stack"})


def layout_of(kind: Kind, name: str, tensors: Sequence[Tensor], results: int) -> Layout:
    """The layout that decides how fast an operator runs.

    `tensors` are its arguments and then its results, of which there are `results`.
    """
    given = tensors[: len(tensors) - results]
    if kind == "conv":
        return _image_layout(given)
    if kind in _IMAGE_KINDS:
        return "channels_last" if any(map(is_channels_last, tensors)) else _row_layout(given)
    if kind == "gemm":
        return _product_layout(name, given)
    if name in _JOINING:
        return "plain" if all(map(is_contiguous, given)) else "unlike"
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


def _image_layout(given: Sequence[Tensor]) -> Layout:
    """`mixed` where a convolution has images of both orders, one of which must be turned."""
    images = [one for one in given if len(one.shape) > 3 and math.prod(one.shape[2:]) > 1]
    last = [is_channels_last(one) for one in images]
    if not any(last):
        return "plain"
    first = [is_contiguous(one) and not is_channels_last(one) for one in images if one.shape[1] > 1]
    return "mixed" if any(first) else "channels_last"


def _row_layout(given: Sequence[Tensor]) -> Layout:
    """Of what works on rows: whether they must be put in order, and how far apart they lie."""
    large = [one for one in given if len(one.shape) > 1]
    if all(map(is_contiguous, large)):
        return "plain"
    apart = any(_innermost(one) not in (None, len(one.shape) - 1) for one in large)
    return "crossed" if apart else "unlike"


def _product_layout(name: str, arguments: Sequence[Tensor]) -> Layout:
    """Which of the two matrices is transposed: of `mm(x, weight.t())`, the second."""
    matrices = [one for one in arguments if len(one.shape) >= 2]
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
    large = [one for one in tensors if math.prod(one.shape) > 1]
    if len(large) < 2:
        return "plain"
    *given, result = large
    if any(_is_crossed(one, result) for one in given):
        return "crossed"
    sizes = [one.dtype.itemsize for one in given if one.dtype.itemsize > 1]  # masks do not count
    widened = min(sizes, default=8) < result.dtype.itemsize
    expected = _order(result)
    return "unlike" if widened or any(_order(one) != expected for one in given) else "plain"


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
    found = [place for place, (size, stride) in enumerate(sizes) if stride == 1 and size > 1]
    return found[-1] if found else None


def _order(tensor: Tensor) -> tuple[tuple[int, int], ...]:
    """Sizes and strides of the dimensions that have any extent."""
    pairs = zip(tensor.shape, _strides(tensor), strict=True)
    return tuple((size, stride) for size, stride in pairs if size != 1)


def _is_dense(shape: Sequence[int], strides: Sequence[int], order: Sequence[int]) -> bool:
    expected = 1
    for place in order:
        if shape[place] != 1 and strides[place] != expected:
            return False
        expected *= shape[place]
    return True


def _strides(tensor: Tensor) -> Sequence[int]:
    stride = getattr(tensor, "stride", None)
    if stride is not None:
        found: Sequence[int] = stride()
        return found
    shape = tensor.shape
    return [math.prod(shape[place + 1 :]) for place in range(len(shape))]
