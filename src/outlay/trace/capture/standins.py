"""Results of operators that fake tensors cannot give, or give too small.

Where the size of a result depends on values, `Selection` says how many elements there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import UnsupportedOperatorException

from outlay.trace.capture import layouts, recurrent, sequences, shapes, speech
from outlay.trace.capture.values import written_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch._ops import OpOverload

    from outlay.trace.capture.selection import Selection

_aten = torch.ops.aten
_NO_FAKE = "no fake impl registered"


def run_operator(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], selection: Selection
) -> object:
    """The operator's result on fake tensors; `selection` says, and learns, what is assumed."""
    if func in _SIMPLE:
        return _SIMPLE[func](*args, **kwargs)
    selecting = _SELECTING.get(func) or _BY_NAME.get(func.name())
    result = NotImplemented if selecting is None else selecting(selection, *args, **kwargs)
    if result is not NotImplemented:
        return result
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        if not isinstance(error, UnsupportedOperatorException) and _NO_FAKE not in str(error):
            raise
        result = _on_the_host(func, args, kwargs, selection)
        if result is NotImplemented:
            raise UnsupportedOperatorException(func) from error
        return result


def _on_the_host(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], selection: Selection
) -> object:
    """An operator that nobody told how its result looks: as it looks on the host."""
    if written_arguments(func):
        return _written(func, args)
    result = shapes.as_on_the_host(func, args, kwargs, selection)
    if result is not NotImplemented:
        name = str(func.overloadpacket)
        selection.note(name, "what it returns was found by running it on the host, on zeros")
    return result


def _written(func: OpOverload, args: tuple[Any, ...]) -> object:
    """What an operator that works in place returns: nothing, or its first argument."""
    if not func._schema.returns:
        return None
    in_place = len(func._schema.returns) == 1 and func._schema.returns[0].alias_info is not None
    return args[0] if in_place and isinstance(args[0], Tensor) else NotImplemented


def _positions(tensor: Tensor, count: int, *shape: int) -> Tensor:
    return tensor.new_empty((count, *shape), dtype=torch.int64)


def _nonzero(selection: Selection, tensor: Tensor) -> Tensor:
    count = selection.kept(tensor, "nonzero")
    out = _positions(tensor, count, tensor.dim())
    if count == tensor.numel() and tensor.dim() == 1:
        with torch._C._DisableTorchDispatch():
            everything = torch.arange(count)[:, None]
        selection.values.give(out, everything)
    return out


def _masked_select(selection: Selection, tensor: Tensor, mask: Tensor) -> Tensor:
    everything = torch.Size(torch.broadcast_shapes(tensor.shape, mask.shape)).numel()
    kept = selection.kept(mask, "masked_select")
    return tensor.new_empty((kept * everything // max(mask.numel(), 1),))


def _index(selection: Selection, tensor: Tensor, indices: list[Tensor | None]) -> Tensor:
    if not any(_is_mask(index) for index in indices):
        return NotImplemented
    return _aten.index.Tensor(tensor, list(_opened(selection, indices)))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and bool(index.dtype in (torch.bool, torch.uint8))


def _opened(selection: Selection, indices: list[Tensor | None]) -> Iterator[Tensor | None]:
    """A mask over n dimensions is n lists of positions."""
    for index in indices:
        if index is not None and _is_mask(index):
            count = selection.kept(index, "Indexing with a mask")
            for _ in range(index.dim()):
                yield _positions(index, count)
        else:
            yield index


def _unique(
    selection: Selection, tensor: Tensor, *options: bool, **named: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Options: sorted, return_inverse, return_counts."""
    chosen = dict(zip(("sorted", "return_inverse", "return_counts"), options, strict=False)) | named
    inverse, counts = chosen.get("return_inverse", False), chosen.get("return_counts", False)
    size = selection.distinct(tensor, "unique")
    places = tensor.new_empty(tensor.shape if inverse or counts else (0,), dtype=torch.int64)
    return tensor.new_empty((size,)), places, _positions(tensor, size if counts else 0)


def _unique_consecutive(
    selection: Selection,
    tensor: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is not None:
        return _unique_dim(selection, tensor, dim)
    return _unique(selection, tensor, True, return_inverse, return_counts)


def _unique_dim(
    selection: Selection, tensor: Tensor, dim: int, *_: bool, **__: bool
) -> tuple[Tensor, Tensor, Tensor]:
    size = selection.assumed(tensor.shape[dim], "unique")
    shape = list(tensor.shape)
    shape[dim] = size
    places = _positions(tensor, tensor.shape[dim])
    return tensor.new_empty(shape), places, _positions(tensor, size)


def _repeat_interleave(
    selection: Selection, repeats: Tensor, *, output_size: int | None = None
) -> Tensor:
    """Positions, each as often as its number of repeats says."""
    total = selection.total(repeats) if output_size is None else output_size
    if total is None:
        selection.note("repeat_interleave", "each element was assumed to be repeated once")
        total = repeats.numel()
    return _positions(repeats, total)


def _bincount(
    selection: Selection, tensor: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> Tensor:
    """As many bins as there are values, and `minlength` at least."""
    known = selection.values.of(tensor)
    choices = selection.shares.of(tensor).choices
    if known is not None:
        with torch._C._DisableTorchDispatch():
            bins = int(known.max().item()) + 1 if known.numel() else 0
    elif choices is not None or minlength:
        bins = choices or 0
    else:
        bins = selection.assumed(tensor.numel(), "bincount")
    dtype = torch.int64 if weights is None else torch.float64
    if weights is not None and weights.dtype == torch.float32:
        dtype = torch.float32
    return tensor.new_empty((max(bins, minlength),), dtype=dtype)


def _nms(selection: Selection, boxes: Tensor, *_: object) -> Tensor:
    return _positions(boxes, selection.assumed(boxes.shape[0], "nms"))


def _native_ctc(*_: object) -> bool:
    """cuDNN's CTC loss wants targets on the host in 32 bits, which few give: torch's own."""
    return False


def _equal(one: Tensor, other: Tensor) -> bool:
    return bool(one.shape == other.shape)


def _mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    """The loss; CUDA's keeps the memory of all squared differences as long as it lives."""
    loss = _aten.mse_loss.default(x, y, reduction)
    return loss if reduction == 0 else loss.new_empty(max(x.numel(), y.numel()))[0]


_SIMPLE: dict[OpOverload, Callable[..., object]] = {
    _aten.equal.default: _equal,
    _aten.mse_loss.default: _mse_loss,
    _aten.convolution.default: layouts.convolution,
    _aten.convolution_backward.default: layouts.convolution_backward,
    _aten._ctc_loss_backward.default: speech.ctc_loss_backward,
    _aten._ctc_loss_backward.Tensor: speech.ctc_loss_backward,
    _aten._cudnn_rnn.default: recurrent.forward,
    _aten._cudnn_rnn_backward.default: recurrent.backward,
    _aten._thnn_fused_gru_cell.default: recurrent.gru_cell,
    _aten._thnn_fused_gru_cell_backward.default: recurrent.gru_cell_backward,
    _aten._thnn_fused_lstm_cell.default: recurrent.lstm_cell,
    _aten._thnn_fused_lstm_cell_backward_impl.default: recurrent.lstm_cell_backward,
}
_SELECTING: dict[OpOverload, Callable[..., object]] = {
    _aten._ctc_loss.default: speech.ctc_loss,
    _aten._ctc_loss.Tensor: speech.ctc_loss,
    _aten._pack_padded_sequence.default: sequences.pack,
    _aten.nonzero.default: _nonzero,
    _aten.masked_select.default: _masked_select,
    _aten.index.Tensor: _index,
    _aten._unique2.default: _unique,
    _aten.unique_dim.default: _unique_dim,
    _aten.unique_consecutive.default: _unique_consecutive,
    _aten.repeat_interleave.Tensor: _repeat_interleave,
    _aten.bincount.default: _bincount,
}
if hasattr(_aten, "_grouped_mm"):  # since torch 2.8
    _SIMPLE[_aten._grouped_mm.default] = shapes.grouped_mm
_BY_NAME: dict[str, Callable[..., object]] = {
    "torchvision::nms": _nms,
    "aten::_use_cudnn_ctc_loss": _native_ctc,
    "aten::_use_cudnn_ctc_loss.Tensor": _native_ctc,
    "aten::_use_miopen_ctc_loss": _native_ctc,
    "aten::_use_miopen_ctc_loss.Tensor": _native_ctc,
}
