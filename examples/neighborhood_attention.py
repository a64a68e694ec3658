"""Neighborhood attention as one operator, the way a fused kernel runs it.

Every position of a feature map attends to the `kernel_size` x `kernel_size` positions around it
that lie `dilation` apart; at a border the window is moved inwards, so that it keeps its size
(Hassani et al., arXiv 2204.07143; dilated: arXiv 2209.15001; fused: arXiv 2403.04690).

It is an operator of its own to torch, and so is its backward: a tracer meets these two and
nothing below them. What runs here gathers the windows, which takes `kernel_size`**2 times the
memory of a fused kernel: right, and good for small maps only. The FLOPs and bytes told to outlay
are those of the fused kernel.
"""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

try:
    from outlay import register_op
except ImportError:  # the example also runs where outlay is not installed
    register_op = None

FORWARD = "outlay_examples::neighborhood_attention"
BACKWARD = "outlay_examples::neighborhood_attention_backward"


def windows_1d(
    length: int, kernel_size: int, dilation: int, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """For each position of a line: its neighbours, and their offsets from 0 to 2 k - 2.

    Positions `dilation` apart form a line of their own; both results are [length, kernel_size].
    """
    if kernel_size * dilation > length:
        raise ValueError(
            f"a kernel of {kernel_size} at dilation {dilation} spans {kernel_size * dilation} "
            f"positions, more than the {length} there are"
        )
    position = torch.arange(length, device=device)
    phase, place = position % dilation, position // dilation
    places = (length - phase + dilation - 1) // dilation
    start = torch.minimum((place - kernel_size // 2).clamp(min=0), places - kernel_size)
    neighbour = start[:, None] + torch.arange(kernel_size, device=device)
    return phase[:, None] + dilation * neighbour, neighbour - place[:, None] + kernel_size - 1


def windows_2d(
    height: int, width: int, kernel_size: int, dilation: int, device: torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """For each position of a map, row by row: its neighbours, and their entries in a bias table.

    Both are [height * width, kernel_size**2]; the table has (2 k - 1)**2 entries.
    """
    rows, row_offsets = windows_1d(height, kernel_size, dilation, device)
    columns, column_offsets = windows_1d(width, kernel_size, dilation, device)
    size = (height * width, kernel_size**2)
    neighbours = rows[:, None, :, None] * width + columns[None, :, None, :]
    offsets = row_offsets[:, None, :, None] * (2 * kernel_size - 1) + column_offsets[:, None]
    return neighbours.reshape(size), offsets.reshape(size)


def _scores(q: Tensor, k: Tensor, bias: Tensor, neighbours: Tensor, offsets: Tensor) -> Tensor:
    """Scaled products with the neighbours' keys, plus bias: [B, positions, k * k, heads]."""
    near = k[:, neighbours]
    products = torch.einsum("bphd,bpnhd->bpnh", q, near) * q.shape[-1] ** -0.5
    return products + bias.flatten(1).t()[offsets]


@torch.library.custom_op(FORWARD, mutates_args=())
def neighborhood_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, kernel_size: int, dilation: int
) -> tuple[Tensor, Tensor]:
    """Attention within each position's window, and the log of each softmax's denominator.

    q, k, v and the result are [B, H, W, heads, d]; bias is [heads, 2 k - 1, 2 k - 1]; the second
    result is [B, H, W, heads] and is what backward needs to recompute the weights.
    """
    neighbours, offsets = windows_2d(*q.shape[1:3], kernel_size, dilation, q.device)
    query, key, value = (tensor.flatten(1, 2) for tensor in (q, k, v))
    scores = _scores(query, key, bias, neighbours, offsets)
    log_sum = scores.logsumexp(2)
    weights = (scores - log_sum[:, :, None]).exp()
    out = torch.einsum("bpnh,bpnhd->bphd", weights, value[:, neighbours])
    return out.reshape(q.shape).contiguous(), log_sum.reshape(q.shape[:-1]).float()


@torch.library.custom_op(BACKWARD, mutates_args=())
def neighborhood_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, attended: Tensor, log_sum: Tensor,
    kernel_size: int, dilation: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of q, k, v and bias; the weights are computed again, not stored."""
    neighbours, offsets = windows_2d(*q.shape[1:3], kernel_size, dilation, q.device)
    grad, query, key, value, attended = (x.flatten(1, 2) for x in (grad, q, k, v, attended))
    scores = _scores(query, key, bias, neighbours, offsets)
    weights = (scores - log_sum.flatten(1, 2)[:, :, None].to(q.dtype)).exp()
    along = torch.einsum("bphd,bpnhd->bpnh", grad, value[:, neighbours])
    grad_scores = weights * (along - (grad * attended).sum(-1)[:, :, None])

    def to_neighbours(amount: Tensor, vector: Tensor) -> Tensor:
        spread = (amount[..., None] * vector[:, :, None]).flatten(1, 2)
        total = torch.zeros_like(vector).index_add_(1, neighbours.flatten(), spread)
        return total.reshape(q.shape)

    scaled = grad_scores * q.shape[-1] ** -0.5
    grad_q = torch.einsum("bpnh,bpnhd->bphd", scaled, key[:, neighbours]).reshape(q.shape)
    grad_bias = torch.zeros_like(bias.flatten(1)).index_add_(
        1, offsets.flatten(), grad_scores.sum(0).flatten(0, 1).t().to(bias.dtype)
    )
    return (
        grad_q.contiguous(),
        to_neighbours(scaled, query),
        to_neighbours(weights, grad),
        grad_bias.reshape(bias.shape),
    )


@neighborhood_attention.register_fake
def _(q: Tensor, *_rest: object) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


@neighborhood_attention_backward.register_fake
def _(
    _grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, *_rest: object
) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in (q, k, v, bias))


def _keep_for_backward(
    ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: tuple[Tensor, Tensor]
) -> None:
    ctx.set_materialize_grads(False)
    *tensors, ctx.kernel_size, ctx.dilation = inputs
    ctx.save_for_backward(*tensors, *output)


def _backward(
    ctx: torch.autograd.function.FunctionCtx, grad: Tensor, grad_log_sum: None
) -> tuple[Tensor | None, ...]:
    del grad_log_sum  # None: nothing is computed from that output
    grads = neighborhood_attention_backward(
        grad.contiguous(), *ctx.saved_tensors, ctx.kernel_size, ctx.dilation
    )
    return *grads, None, None


neighborhood_attention.register_autograd(_backward, setup_context=_keep_for_backward)


def forward_flops(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, kernel_size: int, dilation: int, *, out: object
) -> int:
    """FLOPs of a fused forward: the products with the keys and with the values."""
    del k, v, bias, dilation, out
    return 2 * 2 * prod(q.shape) * kernel_size**2


def backward_flops(_grad: Tensor, *args: object, out: object) -> int:
    """FLOPs of a fused backward: five products where forward has two."""
    q, k, v, bias, _attended, _log_sum, kernel_size, dilation = args
    return forward_flops(q, k, v, bias, kernel_size, dilation, out=out) * 5 // 2


def tensor_bytes(*args: object, out: object) -> int:
    """Bytes of the tensors read and written once each: nothing unfolded reaches memory."""
    results = out if isinstance(out, (tuple, list)) else (out,)
    tensors = [x for x in (*args, *results) if isinstance(x, Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


if register_op is not None:
    register_op(FORWARD, flops=forward_flops, moved_bytes=tensor_bytes, kind="attention")
    register_op(BACKWARD, flops=backward_flops, moved_bytes=tensor_bytes, kind="attention")
