"""What each operator takes for itself while it runs, beyond its results.

A formula is called with the operator's own arguments, `out`, its result, and the precision of its
arithmetic. The sizes were found on an H200 by asking the allocator around each operator of 78
training steps (`tools/measure_memory.py events`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from outlay.trace.conv_takings import conv_backward_workspaces, conv_workspaces
from outlay.trace.layout import copy_bytes, is_channels_last, is_contiguous
from outlay.trace.moved import rounded, tensor_bytes
from outlay.trace.workspace import Takings, Workspace, partial_sums, with_attention

if TYPE_CHECKING:
    from outlay.trace.moved import Tensor
    from outlay.trace.trace import Precision

_Formula = Callable[..., Takings]


def workspaces_of(
    name: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    out: object,
    precision: Precision,
) -> list[Workspace]:
    """What one call of an operator takes for itself, most of the time nothing."""
    formula = _FORMULAS.get(name)
    if formula is None:
        return []
    rest = {key: value for key, value in kwargs.items() if key != "out"}
    found = formula(*args, **rest, out=out, precision=precision)
    return [workspace for workspace in found if workspace.size_bytes]


def takes_workspace(name: str) -> bool:
    """Whether an operator may take something for itself."""
    return name in _FORMULAS


# Attention


def flash_backward_workspaces(
    _grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *_: object,
    precision: Precision,
    **__: object,
) -> Takings:
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
) -> Takings:
    """The product of gradient and output in fp32, and its sums."""
    batch, heads, rows, _columns = query.shape
    product = 4 * batch * heads * rows * (value.shape[-1] + 2)
    transposed = getattr(grad, "transpose", None)
    strided = transposed is not None and not is_contiguous(transposed(1, 2))
    yield Workspace(size_bytes=product + (tensor_bytes(grad) if strided else 0))


# Reductions, norms, indexing


_FEW_ROWS = 64
"""A reduction of so few is done at once. (One over samples is not left out: its rows grow with
the batch, and a trace at a small batch must show the same takings as one at a large.)"""


def outer_sum_workspaces(x: Tensor, *args: object, **kwargs: object) -> Takings:
    """Partial sums of a reduction over leading dimensions, as of a bias's gradient."""
    dims = kwargs.get("dim") or next((a for a in args if isinstance(a, list | tuple)), None)
    if not isinstance(dims, list | tuple) or not x.shape or not is_contiguous(x):
        return
    reduced = {int(dim) % len(x.shape) for dim in dims}
    if not reduced or len(x.shape) - 1 in reduced:
        return
    rows = math.prod(x.shape[dim] for dim in reduced)
    results = math.prod(x.shape) // max(rows, 1)
    if rows > _FEW_ROWS or 0 in reduced:
        yield from partial_sums(rows, results)


def softmax_backward_workspaces(grad: Tensor, *_: object, **__: object) -> Takings:
    """The product of gradient and output, before it is summed over rows."""
    yield Workspace(size_bytes=tensor_bytes(grad))


def mse_loss_workspaces(x: Tensor, _y: Tensor, reduction: int = 1, **_: object) -> Takings:
    """The squared differences, before they are averaged."""
    yield Workspace(size_bytes=tensor_bytes(x) if reduction else 0)


def safe_softmax_workspaces(x: Tensor, *_: object, **__: object) -> Takings:
    """Which elements are minus infinity: a byte each."""
    yield Workspace(size_bytes=math.prod(x.shape))


def contiguous_input_workspaces(x: Tensor, *_: object, **__: object) -> Takings:
    """A copy of the first argument, if it has gaps or another order."""
    yield Workspace(size_bytes=copy_bytes(x))


def contiguous_image_workspaces(x: Tensor, *_: object, **__: object) -> Takings:
    """A copy of the first argument, unless it is dense in either order of an image."""
    yield Workspace(size_bytes=0 if is_channels_last(x) else copy_bytes(x))


def layer_norm_backward_workspaces(grad: Tensor, x: Tensor, *_: object, **__: object) -> Takings:
    """Copies of gradient and input, where they have gaps."""
    yield Workspace(size_bytes=copy_bytes(grad) + copy_bytes(x))


def roll_workspaces(x: Tensor, shifts: object, *_: object, **__: object) -> Takings:
    """Each further dimension is rolled on a copy."""
    several = isinstance(shifts, Sequence) and len(shifts) > 1
    yield Workspace(size_bytes=tensor_bytes(x) if several else 0)


def embedding_backward_workspaces(
    grad: Tensor, indices: Tensor, *_: object, **__: object
) -> Takings:
    """Indices sorted, and in fp32 one row for each that occurs.

    Source: aten/src/ATen/native/cuda/Embedding.cu (embedding_backward_cuda_kernel). Assumes:
    hardly any index occurs twice. Ignores that up to 3072 indices take nothing.
    """
    sorted_bytes = math.prod(indices.shape) * (4 * grad.shape[-1] + 40)
    yield Workspace(size_bytes=copy_bytes(grad) + sorted_bytes)


def index_put_workspaces(
    _target: Tensor, indices: Sequence[Tensor | None], *args: object, **__: object
) -> Takings:
    """Indices sorted where values are added up."""
    adds_up = len(args) > 1 and bool(args[1])
    count = max((math.prod(index.shape) for index in indices if index is not None), default=0)
    yield Workspace(size_bytes=46 * count if adds_up else 0)


# Recurrent layers


def rnn_workspaces(
    x: Tensor, weights: Sequence[Tensor], *args: object, out: Sequence[Tensor], **_: object
) -> Takings:
    """cuDNN's workspace, and a copy of the input with time first.

    Found on an H200 within a few percent: six times the output, one and a half times the weights,
    a quarter more for two directions. From the third argument: weights per layer, buffer, state,
    cell, mode, hidden, projection, layers, batch_first, dropout, train, bidirectional.
    """
    yield Workspace(size_bytes=_recurrent_bytes(x, weights, out[0], args[7:]))


def rnn_backward_workspaces(
    x: Tensor, weights: Sequence[Tensor], *args: object, **_: object
) -> Takings:
    """The same for the gradients of input and weights, one after the other.

    With samples first, output and its gradient are turned round too.

    From the third argument: weights per layer, buffer, state, cell, output, three gradients, mode,
    hidden, projection, layers, batch_first, dropout, train, bidirectional.
    """
    options = args[11:]
    size_bytes = _recurrent_bytes(x, weights, args[4], options)
    yield Workspace(size_bytes=2 * tensor_bytes(args[4]) if _is_batch_first(options) else 0)
    yield Workspace(size_bytes=size_bytes, turn=1)
    yield Workspace(size_bytes=size_bytes, turn=2)


def _is_batch_first(options: Sequence[object]) -> bool:
    return tuple(options[1:2]) == (True,)


def _recurrent_bytes(
    x: Tensor, weights: Sequence[Tensor], output: object, options: Sequence[object]
) -> float:
    """Options: layers, batch_first, dropout, train, bidirectional."""
    turned_bytes = tensor_bytes(x) if _is_batch_first(options) else 0
    directions = 1.25 if options[4:5] == (True,) else 1.0
    return 6.2 * directions * tensor_bytes(output) + 1.45 * tensor_bytes(*weights) + turned_bytes


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
