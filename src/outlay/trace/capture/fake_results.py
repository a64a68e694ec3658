"""Results of operators that fake tensors cannot give, or give too small.

Where the size of a result depends on values, `SelectionSizes` says how many elements there are.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format
from torch._subclasses.fake_tensor import UnsupportedOperatorException
from torch.utils._pytree import tree_iter, tree_map

from outlay.trace.capture import cuda_sequences
from outlay.trace.capture.constant_values import written_arguments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch._ops import OpOverload

    from outlay.trace.capture.data_dependent import SelectionSizes


_aten = torch.ops.aten


# Results of operators whose shapes torch itself cannot tell without running them.


_MOST_ELEMENTS = 2**24
"""Elements up to which an operator is run on the host to see what it returns."""


def grouped_mm(
    a: Tensor,
    b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,  # noqa: ARG001
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`aten._grouped_mm` in any precision; torch's own shapes are for bf16 alone.

    Two matrices share the dimension that is cut into groups; otherwise rows or columns are cut.
    """
    dtype = out_dtype or a.dtype
    if a.dim() == 2 and b.dim() == 2:
        groups = 1 if offs is None else offs.shape[0]
        return a.new_empty((groups, a.shape[0], b.shape[1]), dtype=dtype)
    if a.dim() == 3 and b.dim() == 3:
        return a.new_empty((a.shape[0], a.shape[1], b.shape[2]), dtype=dtype)
    return a.new_empty((a.shape[-2], b.shape[-1]), dtype=dtype)


def as_on_the_host(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], selection: SelectionSizes
) -> object:
    """What an operator returns, found by running it on the host; NotImplemented if it will not.

    For operators without a fake implementation: zeros stand for values nobody knows.
    """
    tensors = [one for one in tree_iter((args, kwargs)) if isinstance(one, Tensor)]
    if sum(one.numel() for one in tensors) > _MOST_ELEMENTS or not tensors:
        return NotImplemented
    host = torch.device("cpu")

    def real(value: object) -> object:
        if isinstance(value, Tensor):
            return selection.answers(value)
        return host if isinstance(value, torch.device) else value

    def fake(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        device = next((one.device for one in tensors if one.device.type == "cuda"), host)
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    real_args, real_kwargs = tree_map(real, (args, kwargs))
    with contextlib.suppress(Exception):
        with torch._C._DisableTorchDispatch(), torch.no_grad():
            result = func(*real_args, **real_kwargs)
        return tree_map(fake, result)
    return NotImplemented


# Convolutions keep channels last, as they do with cuDNN.
#
# torch asks the backend of a convolution for the layout of its results. A CPU build has no cuDNN to
# ask and answers with the plain one, and every operator after the first convolution follows it.
# Here the rule is cuDNN's: channels last where the input or the weight is, fp64 apart.


# Source: cudnn_conv_suggest_memory_format in aten/src/ATen/native/ConvUtils.h
_WITHOUT_CHANNELS_LAST = torch.float64


def convolution(x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What `aten.convolution` returns, laid out as cuDNN lays it out."""
    out = _aten.convolution.default(x, weight, *args, **kwargs)
    return _laid_out(out, _layout(x, weight))


def convolution_backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor | None, ...]:
    """What `aten.convolution_backward` returns; the bias has no layout."""
    out = _aten.convolution_backward.default(grad_out, x, weight, *args, **kwargs)
    to_input, to_weight, to_bias = out
    layout = _layout(x, weight)
    return _gradient(to_input, layout), _gradient(to_weight, layout), to_bias


def _gradient(tensor: Tensor | None, layout: torch.memory_format) -> Tensor | None:
    return None if tensor is None else _laid_out(tensor, layout)


def _layout(x: Tensor, weight: Tensor) -> torch.memory_format:
    layouts = [suggest_memory_format(tensor) for tensor in (x, weight)]
    if _WITHOUT_CHANNELS_LAST in (x.dtype, weight.dtype) or x.dim() != weight.dim():
        return torch.contiguous_format
    return next((one for one in layouts if one != torch.contiguous_format), layouts[0])


def _laid_out(tensor: Tensor, layout: torch.memory_format) -> Tensor:
    if tensor.dim() not in (4, 5) or tensor.is_contiguous(memory_format=layout):
        return tensor
    return torch.empty_like(tensor, memory_format=layout)


# The operators themselves


_NO_FAKE = "no fake impl registered"


def run_operator(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], selection: SelectionSizes
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
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], selection: SelectionSizes
) -> object:
    """An operator that nobody told how its result looks: as it looks on the host."""
    if written_arguments(func):
        return _written(func, args)
    result = as_on_the_host(func, args, kwargs, selection)
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


def _nonzero(selection: SelectionSizes, tensor: Tensor) -> Tensor:
    count = selection.kept(tensor, "nonzero")
    out = _positions(tensor, count, tensor.dim())
    if count == tensor.numel() and tensor.dim() == 1:
        with torch._C._DisableTorchDispatch():
            everything = torch.arange(count)[:, None]
        selection.values.give(out, everything)
    return out


def _masked_select(selection: SelectionSizes, tensor: Tensor, mask: Tensor) -> Tensor:
    everything = torch.Size(torch.broadcast_shapes(tensor.shape, mask.shape)).numel()
    kept = selection.kept(mask, "masked_select")
    return tensor.new_empty((kept * everything // max(mask.numel(), 1),))


def _index(selection: SelectionSizes, tensor: Tensor, indices: list[Tensor | None]) -> Tensor:
    if not any(_is_mask(index) for index in indices):
        return NotImplemented
    return _aten.index.Tensor(tensor, list(_opened(selection, indices)))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and bool(index.dtype in (torch.bool, torch.uint8))


def _opened(selection: SelectionSizes, indices: list[Tensor | None]) -> Iterator[Tensor | None]:
    """A mask over n dimensions is n lists of positions."""
    for index in indices:
        if index is not None and _is_mask(index):
            count = selection.kept(index, "Indexing with a mask")
            for _ in range(index.dim()):
                yield _positions(index, count)
        else:
            yield index


def _unique(
    selection: SelectionSizes, tensor: Tensor, *options: bool, **named: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Options: sorted, return_inverse, return_counts."""
    chosen = dict(zip(("sorted", "return_inverse", "return_counts"), options, strict=False)) | named
    inverse, counts = chosen.get("return_inverse", False), chosen.get("return_counts", False)
    size = selection.distinct(tensor, "unique")
    places = tensor.new_empty(tensor.shape if inverse or counts else (0,), dtype=torch.int64)
    return tensor.new_empty((size,)), places, _positions(tensor, size if counts else 0)


def _unique_consecutive(
    selection: SelectionSizes,
    tensor: Tensor,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is not None:
        return _unique_dim(selection, tensor, dim)
    return _unique(selection, tensor, True, return_inverse, return_counts)


def _unique_dim(
    selection: SelectionSizes, tensor: Tensor, dim: int, *_: bool, **__: bool
) -> tuple[Tensor, Tensor, Tensor]:
    size = selection.assumed(tensor.shape[dim], "unique")
    shape = list(tensor.shape)
    shape[dim] = size
    places = _positions(tensor, tensor.shape[dim])
    return tensor.new_empty(shape), places, _positions(tensor, size)


def _repeat_interleave(
    selection: SelectionSizes, repeats: Tensor, *, output_size: int | None = None
) -> Tensor:
    """Positions, each as often as its number of repeats says."""
    total = selection.total(repeats) if output_size is None else output_size
    if total is None:
        selection.note("repeat_interleave", "each element was assumed to be repeated once")
        total = repeats.numel()
    return _positions(repeats, total)


def _bincount(
    selection: SelectionSizes, tensor: Tensor, weights: Tensor | None = None, minlength: int = 0
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


def _nms(selection: SelectionSizes, boxes: Tensor, *_: object) -> Tensor:
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
    _aten.convolution.default: convolution,
    _aten.convolution_backward.default: convolution_backward,
    _aten._ctc_loss_backward.default: cuda_sequences.ctc_loss_backward,
    _aten._ctc_loss_backward.Tensor: cuda_sequences.ctc_loss_backward,
    _aten._cudnn_rnn.default: cuda_sequences.recurrent_forward,
    _aten._cudnn_rnn_backward.default: cuda_sequences.recurrent_backward,
    _aten._thnn_fused_gru_cell.default: cuda_sequences.gru_cell,
    _aten._thnn_fused_gru_cell_backward.default: cuda_sequences.gru_cell_backward,
    _aten._thnn_fused_lstm_cell.default: cuda_sequences.lstm_cell,
    _aten._thnn_fused_lstm_cell_backward_impl.default: cuda_sequences.lstm_cell_backward,
}
_SELECTING: dict[OpOverload, Callable[..., object]] = {
    _aten._ctc_loss.default: cuda_sequences.ctc_loss,
    _aten._ctc_loss.Tensor: cuda_sequences.ctc_loss,
    _aten._pack_padded_sequence.default: cuda_sequences.pack,
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
    _SIMPLE[_aten._grouped_mm.default] = grouped_mm
_BY_NAME: dict[str, Callable[..., object]] = {
    "torchvision::nms": _nms,
    "aten::_use_cudnn_ctc_loss": _native_ctc,
    "aten::_use_cudnn_ctc_loss.Tensor": _native_ctc,
    "aten::_use_miopen_ctc_loss": _native_ctc,
    "aten::_use_miopen_ctc_loss.Tensor": _native_ctc,
}
