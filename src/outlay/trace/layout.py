"""How a tensor lies in memory: row after row, with channels last, or with gaps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from outlay.trace.moved import tensor_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from outlay.trace.moved import Tensor


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


def copy_bytes(tensor: Tensor) -> float:
    """What `.contiguous()` takes: nothing for a tensor that is."""
    return 0.0 if is_contiguous(tensor) else tensor_bytes(tensor)
