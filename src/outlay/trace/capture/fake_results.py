"""Results of operators that fake tensors cannot give, or give too small.

`run_operator` runs one operator: by a function of its own here, as torch runs it on fake tensors,
or on the host, to see what it returns. Where the shape of a result depends on values,
`SelectionSizes` says how many elements there are.
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
from outlay.trace.capture.constant_values import (
    Args,
    Kwargs,
    without_dispatch,
    written_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch._ops import OpOverload

    from outlay.trace.capture.data_dependent import SelectionSizes


_aten = torch.ops.aten
_NO_FAKE = "no fake impl registered"
_MOST_ELEMENTS = 2**24
"""Elements up to which an operator is run on the host to see what it returns."""


def run_operator(func: OpOverload, args: Args, kwargs: Kwargs, selection: SelectionSizes) -> object:
    """The operator's result on fake tensors; `selection` says, and notes, what is assumed."""
    if func in _OVERRIDES:
        return _OVERRIDES[func](*args, **kwargs)
    data_dependent = _DATA_DEPENDENT.get(func) or _DATA_DEPENDENT_BY_NAME.get(func.name())
    result: object = NotImplemented
    if data_dependent is not None:
        result = data_dependent(selection, *args, **kwargs)
    if result is not NotImplemented:
        return result
    try:
        return func(*args, **kwargs)
    except RuntimeError as error:
        if not isinstance(error, UnsupportedOperatorException) and _NO_FAKE not in str(error):
            raise
        result = _without_fake(func, args, kwargs, selection)
        if result is NotImplemented:
            raise UnsupportedOperatorException(func) from error
        return result


def _without_fake(
    func: OpOverload, args: Args, kwargs: Kwargs, selection: SelectionSizes
) -> object:
    """The result of an operator without a fake implementation: as it looks on the host."""
    if written_arguments(func):
        return _in_place(func, args)
    result = _on_the_host(func, args, kwargs, selection)
    if result is not NotImplemented:
        name = str(func.overloadpacket)
        selection.note(name, "what it returns was found by running it on the host, on zeros")
    return result


def _in_place(func: OpOverload, args: Args) -> object:
    """What an operator that works in place returns: nothing, or its first argument."""
    if not func._schema.returns:
        return None
    in_place = len(func._schema.returns) == 1 and func._schema.returns[0].alias_info is not None
    return args[0] if in_place and isinstance(args[0], Tensor) else NotImplemented


def _on_the_host(func: OpOverload, args: Args, kwargs: Kwargs, selection: SelectionSizes) -> object:
    """What an operator returns, found by running it on the host; NotImplemented if it will not.

    Zeros stand for values nobody knows.
    """
    tensors = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, Tensor)]
    if sum(tensor.numel() for tensor in tensors) > _MOST_ELEMENTS or not tensors:
        return NotImplemented
    host = torch.device("cpu")
    device = next((tensor.device for tensor in tensors if tensor.device.type == "cuda"), host)

    def real(value: object) -> object:
        if isinstance(value, Tensor):
            return selection.likely_values(value)
        return host if isinstance(value, torch.device) else value

    def fake(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    real_args, real_kwargs = tree_map(real, (args, kwargs))
    with contextlib.suppress(Exception):
        with without_dispatch(), torch.no_grad():
            result = func(*real_args, **real_kwargs)
        return tree_map(fake, result)
    return NotImplemented


# Shapes that depend on values


def _positions(tensor: Tensor, count: int, *shape: int) -> Tensor:
    return tensor.new_empty((count, *shape), dtype=torch.int64)


def _nonzero(selection: SelectionSizes, tensor: Tensor) -> Tensor:
    count = selection.nonzero_count(tensor, "nonzero")
    out = _positions(tensor, count, tensor.dim())
    if count == tensor.numel() and tensor.dim() == 1:
        with without_dispatch():
            positions = torch.arange(count)[:, None]
        selection.values.give(out, positions)
    return out


def _masked_select(selection: SelectionSizes, tensor: Tensor, mask: Tensor) -> Tensor:
    elements = torch.Size(torch.broadcast_shapes(tensor.shape, mask.shape)).numel()
    count = selection.nonzero_count(mask, "masked_select")
    return tensor.new_empty((count * elements // max(mask.numel(), 1),))


def _index(selection: SelectionSizes, tensor: Tensor, indices: list[Tensor | None]) -> Tensor:
    if not any(_is_mask(index) for index in indices):
        return NotImplemented
    return _aten.index.Tensor(tensor, list(_without_masks(selection, indices)))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and bool(index.dtype in (torch.bool, torch.uint8))


def _without_masks(
    selection: SelectionSizes, indices: list[Tensor | None]
) -> Iterator[Tensor | None]:
    """A mask over n dimensions is n lists of positions."""
    for index in indices:
        if index is not None and _is_mask(index):
            count = selection.nonzero_count(index, "Indexing with a mask")
            for _ in range(index.dim()):
                yield _positions(index, count)
        else:
            yield index


def _unique(
    selection: SelectionSizes, tensor: Tensor, *options: bool, **named: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Options: sorted, return_inverse, return_counts."""
    given = dict(zip(("sorted", "return_inverse", "return_counts"), options, strict=False)) | named
    has_inverse, has_counts = given.get("return_inverse", False), given.get("return_counts", False)
    size = selection.distinct_count(tensor, "unique")
    shape = tensor.shape if has_inverse or has_counts else (0,)
    inverse = tensor.new_empty(shape, dtype=torch.int64)
    counts = _positions(tensor, size if has_counts else 0)
    values = tensor.new_empty((size,))
    selection.describe_distinct(tensor, values, inverse, counts)
    return values, inverse, counts


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
    size = selection.assumed_count(tensor.shape[dim], "unique")
    shape = list(tensor.shape)
    shape[dim] = size
    inverse = _positions(tensor, tensor.shape[dim])
    return tensor.new_empty(shape), inverse, _positions(tensor, size)


def _repeat_interleave(
    selection: SelectionSizes, repeats: Tensor, *, output_size: int | None = None
) -> Tensor:
    """Positions, each as often as its number of repeats says."""
    total = selection.total(repeats) if output_size is None else output_size
    if total is None:
        selection.note("repeat_interleave", "each element was assumed to be repeated once")
        total = repeats.numel()
    elif output_size is None:
        selection.note_example("repeat_interleave", repeats, f"{total} elements are counted")
    return _positions(repeats, total)


def _bincount(
    selection: SelectionSizes, tensor: Tensor, weights: Tensor | None = None, minlength: int = 0
) -> Tensor:
    """As many bins as there are values, and `minlength` at least."""
    choices = selection.statistics.of(tensor).choices
    constant = selection.values.of(tensor) if choices else selection.likely.of(tensor)
    if constant is not None:
        with without_dispatch():
            bins = int(constant.max().item()) + 1 if constant.numel() else 0
    elif choices is not None or minlength:
        bins = choices or 0
    else:
        bins = selection.assumed_count(tensor.numel(), "bincount")
    dtype = torch.int64 if weights is None else torch.float64
    if weights is not None and weights.dtype == torch.float32:
        dtype = torch.float32
    return tensor.new_empty((max(bins, minlength),), dtype=dtype)


def _nms(selection: SelectionSizes, boxes: Tensor, *_: object) -> Tensor:
    return _positions(boxes, selection.assumed_count(boxes.shape[0], "nms"))


def _no_cudnn_ctc(*_: object) -> bool:
    """cuDNN's CTC loss wants targets on the host in 32 bits, which few give: torch's own."""
    return False


# Shapes that torch gives otherwise than CUDA would


def _equal(x: Tensor, y: Tensor) -> bool:
    """Tensors of one shape are taken to be equal: values are not known."""
    return bool(x.shape == y.shape)


def _mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    """The loss; CUDA's keeps the memory of all squared differences as long as it lives."""
    loss = _aten.mse_loss.default(x, y, reduction)
    return loss if reduction == 0 else loss.new_empty(max(x.numel(), y.numel()))[0]


def _grouped_mm(
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


# Convolutions keep channels last, as they do with cuDNN. torch asks the backend of a convolution
# for the layout of its results. A CPU build has no cuDNN to ask and takes the plain one, and every
# operator after the first convolution follows it. Here the rule is cuDNN's: channels last where the
# input or the weight is, fp64 apart.


# Source: cudnn_conv_suggest_memory_format in aten/src/ATen/native/ConvUtils.h
_WITHOUT_CHANNELS_LAST = torch.float64


def _convolution(x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What `aten.convolution` returns, laid out as cuDNN lays it out."""
    out = _aten.convolution.default(x, weight, *args, **kwargs)
    return _laid_out(out, _layout(x, weight))


def _convolution_backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor | None, ...]:
    """What `aten.convolution_backward` returns; the bias has no layout."""
    out = _aten.convolution_backward.default(grad_out, x, weight, *args, **kwargs)
    to_input, to_weight, to_bias = out
    layout = _layout(x, weight)
    return _laid_out_gradient(to_input, layout), _laid_out_gradient(to_weight, layout), to_bias


def _laid_out_gradient(tensor: Tensor | None, layout: torch.memory_format) -> Tensor | None:
    return None if tensor is None else _laid_out(tensor, layout)


def _layout(x: Tensor, weight: Tensor) -> torch.memory_format:
    layouts = [suggest_memory_format(tensor) for tensor in (x, weight)]
    if _WITHOUT_CHANNELS_LAST in (x.dtype, weight.dtype) or x.dim() != weight.dim():
        return torch.contiguous_format
    return next((layout for layout in layouts if layout != torch.contiguous_format), layouts[0])


def _laid_out(tensor: Tensor, layout: torch.memory_format) -> Tensor:
    if tensor.dim() not in (4, 5) or tensor.is_contiguous(memory_format=layout):
        return tensor
    return torch.empty_like(tensor, memory_format=layout)


_OVERRIDES: dict[OpOverload, Callable[..., object]] = {
    _aten.equal.default: _equal,
    _aten.mse_loss.default: _mse_loss,
    _aten.convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution_backward,
    _aten._ctc_loss_backward.default: cuda_sequences.ctc_loss_backward,
    _aten._ctc_loss_backward.Tensor: cuda_sequences.ctc_loss_backward,
    _aten._cudnn_rnn.default: cuda_sequences.recurrent_forward,
    _aten._cudnn_rnn_backward.default: cuda_sequences.recurrent_backward,
    _aten._thnn_fused_gru_cell.default: cuda_sequences.gru_cell,
    _aten._thnn_fused_gru_cell_backward.default: cuda_sequences.gru_cell_backward,
    _aten._thnn_fused_lstm_cell.default: cuda_sequences.lstm_cell,
    _aten._thnn_fused_lstm_cell_backward_impl.default: cuda_sequences.lstm_cell_backward,
}
_DATA_DEPENDENT: dict[OpOverload, Callable[..., object]] = {
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
    _OVERRIDES[_aten._grouped_mm.default] = _grouped_mm
_DATA_DEPENDENT_BY_NAME: dict[str, Callable[..., object]] = {
    "torchvision::nms": _nms,
    "aten::_use_cudnn_ctc_loss": _no_cudnn_ctc,
    "aten::_use_cudnn_ctc_loss.Tensor": _no_cudnn_ctc,
    "aten::_use_miopen_ctc_loss": _no_cudnn_ctc,
    "aten::_use_miopen_ctc_loss.Tensor": _no_cudnn_ctc,
}
