"""Results of operators that fake tensors cannot give, or give too small.

Where the size of a result depends on values, it is the largest it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outlay.trace.capture import recurrent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch._ops import OpOverload

_aten = torch.ops.aten


def run_operator(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], notes: set[str]
) -> object:
    """The operator's result on fake tensors; `notes` learns what was assumed."""
    if func in _SIMPLE:
        return _SIMPLE[func](*args, **kwargs)
    result = _SELECTING[func](*args, **kwargs) if func in _SELECTING else NotImplemented
    if result is NotImplemented:
        return func(*args, **kwargs)
    notes.add(f"{func.overloadpacket} was counted as if it selected every element.")
    return result


def _nonzero(tensor: Tensor) -> Tensor:
    return tensor.new_empty((tensor.numel(), tensor.dim()), dtype=torch.int64)


def _masked_select(tensor: Tensor, mask: Tensor) -> Tensor:
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    return tensor.new_empty((torch.Size(shape).numel(),))


def _index(tensor: Tensor, indices: list[Tensor | None]) -> Tensor:
    if not any(_is_mask(index) for index in indices):
        return NotImplemented
    return _aten.index.Tensor(tensor, list(_opened(indices)))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and bool(index.dtype in (torch.bool, torch.uint8))


def _opened(indices: list[Tensor | None]) -> Iterator[Tensor | None]:
    """A mask over n dimensions is n lists of positions."""
    for index in indices:
        if index is not None and _is_mask(index):
            for _ in range(index.dim()):
                yield index.new_empty((index.numel(),), dtype=torch.int64)
        else:
            yield index


def _unique(tensor: Tensor, *options: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Options: sorted, return_inverse, return_counts."""
    inverse, counts = (*options, False, False, False)[1:3]
    size = tensor.numel()
    places = tensor.new_empty(tensor.shape if inverse or counts else (0,), dtype=torch.int64)
    numbers = tensor.new_empty((size if counts else 0,), dtype=torch.int64)
    return tensor.new_empty((size,)), places, numbers


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(one.shape == other.shape)


def _mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    """The loss; CUDA's keeps the memory of all squared differences as long as it lives."""
    loss = _aten.mse_loss.default(x, y, reduction)
    return loss if reduction == 0 else loss.new_empty(max(x.numel(), y.numel()))[0]


_SIMPLE: dict[OpOverload, Callable[..., object]] = {
    _aten.equal.default: _equal,
    _aten.mse_loss.default: _mse_loss,
    _aten._cudnn_rnn.default: recurrent.forward,
    _aten._cudnn_rnn_backward.default: recurrent.backward,
}
_SELECTING: dict[OpOverload, Callable[..., object]] = {
    _aten.nonzero.default: _nonzero,
    _aten.masked_select.default: _masked_select,
    _aten.index.Tensor: _index,
    _aten._unique2.default: _unique,
}
