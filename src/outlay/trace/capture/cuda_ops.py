"""Operators as CUDA runs them, where a CPU build of torch runs something else on fake tensors.

Attention takes the kernel that a GPU would, RMS norm is one kernel each way, a bias is added in
place, and an optimizer update with 8-bit state is one operator. Layers that work on sequences are
in `cuda_sequences`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

_libraries: list[torch.library.Library] = []


def install() -> None:
    """Route these operators on CUDA tensors through here. Does nothing the second time."""
    if _libraries:
        return
    own = torch.library.Library("outlay", "DEF")
    own.define("rms_norm(Tensor input, Tensor? weight) -> (Tensor, Tensor)")
    own.define(
        "rms_norm_backward(Tensor grad, Tensor input, Tensor rstd, Tensor? weight)"
        " -> (Tensor, Tensor)"
    )
    own.impl("rms_norm", _rms_norm_result, "Meta")
    own.impl("rms_norm_backward", _rms_norm_gradients, "Meta")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("scaled_dot_product_attention", attend, "AutogradCUDA")
    aten.impl("rms_norm", _rms_norm, "AutogradCUDA")
    aten.impl("linear", _linear, "AutogradCUDA")
    _libraries.extend((own, aten))


# Attention. torch picks a backend of `scaled_dot_product_attention` by asking the GPU; for fake
# tensors it falls back to separate matrix products. Here the choice follows torch's own rules for a
# GPU of compute capability 8.0 or later: flash for 16-bit tensors without a mask, memory-efficient
# otherwise, separate products where neither applies. Older GPUs have no flash kernel; what that
# means for time is decided when predicting.


Backend = Literal["flash", "efficient", "math"]

# Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp
_FLASH_MAX_HEAD_DIM = 256
_FLASH_ALIGNMENT = 8
_MASK_ALIGNMENT = 16


def attention_backend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> Backend:
    """The backend torch would take, honouring `torch.nn.attention.sdpa_kernel`."""
    if not query.dim() == key.dim() == value.dim() == 4:
        return "math"
    switches = torch.backends.cuda
    if switches.flash_sdp_enabled() and _flash_can(query, key, value, mask, causal):
        return "flash"
    dtypes = (torch.float16, torch.bfloat16, torch.float32)
    efficient = switches.mem_efficient_sdp_enabled() and query.dtype in dtypes
    if efficient and _efficient_can(query, key, mask):
        return "efficient"
    return "math"


def _flash_can(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> bool:
    return (
        mask is None
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[-1] == key.shape[-1] == value.shape[-1] <= _FLASH_MAX_HEAD_DIM
        and not (causal and query.shape[-2] != key.shape[-2])
    )


def _efficient_can(query: Tensor, key: Tensor, mask: Tensor | None) -> bool:
    """No shared key heads, and no mask that is learned (as on an H200 with torch 2.11)."""
    return query.shape[-3] == key.shape[-3] and not (mask is not None and mask.requires_grad)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` as CUDA would run it."""
    backend = attention_backend(query, key, value, attn_mask, is_causal)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa and backend != "flash":
        key, value = _repeated_heads(query, key), _repeated_heads(query, value)
    if backend == "flash":
        return _flash(query, key, value, dropout_p, is_causal, scale)
    mask = _additive_mask(attn_mask, query)
    if backend == "efficient":
        return efficient_attention(query, key, value, mask, dropout_p, is_causal, scale)
    return torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, mask, dropout_p, is_causal, scale=scale
    )[0]


def _flash(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, causal: bool, scale: float) -> Tensor:
    head_dim = q.shape[-1]
    padding = -head_dim % _FLASH_ALIGNMENT
    if padding:
        q, k, v = (functional.pad(tensor, (0, padding)) for tensor in (q, k, v))
    flash = torch.ops.aten._scaled_dot_product_flash_attention
    out = flash(q, k, v, dropout_p, causal, False, scale=scale)[0]
    return out[..., :head_dim] if padding else out


def efficient_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    causal: bool,
    scale: float,
) -> Tensor:
    """torch's memory-efficient kernel, with the mask in the layout it wants."""
    if mask is not None:
        mask = _aligned(mask).expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    needs_grad = any(tensor.requires_grad for tensor in (q, k, v))
    efficient = torch.ops.aten._scaled_dot_product_efficient_attention
    return efficient(q, k, v, mask, needs_grad, dropout_p, causal, scale=scale)[0]


def _repeated_heads(query: Tensor, tensor: Tensor) -> Tensor:
    return tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3)


def _additive_mask(mask: Tensor | None, query: Tensor) -> Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    zero = torch.zeros((), dtype=query.dtype, device=query.device)
    return torch.where(mask, zero, float("-inf"))


def _aligned(mask: Tensor) -> Tensor:
    """The mask in a buffer whose rows are a multiple of 16 long, as the kernel wants them."""
    columns = mask.shape[-1]
    padding = -columns % _MASK_ALIGNMENT
    return functional.pad(mask, (0, padding))[..., :columns] if padding else mask


# RMS norm: one kernel forward and one backward. A CPU build of torch has no kernel of its own for
# it and takes it apart into element-wise operations, which would show traffic and memory that no
# GPU has. Here it becomes two operators of outlay's own that save what CUDA saves: the input and
# one number a row.


def _rms_norm(
    tensor: Tensor,
    normalized_shape: Sequence[int],  # noqa: ARG001
    weight: Tensor | None = None,
    eps: float | None = None,  # noqa: ARG001
) -> Tensor:
    result: Tensor = _RmsNorm.apply(tensor, weight)
    return result


class _RmsNorm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, weight: Tensor | None) -> Tensor:
        out, rstd = torch.ops.outlay.rms_norm(tensor, weight)
        ctx.save_for_backward(tensor, rstd, weight)
        result: Tensor = out
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        tensor, rstd, weight = ctx.saved_tensors
        to_input, to_weight = torch.ops.outlay.rms_norm_backward(grad, tensor, rstd, weight)
        return to_input, None if weight is None else to_weight


def _rms_norm_result(tensor: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    rows = (*tensor.shape[:-1], 1)
    return torch.empty_like(tensor), tensor.new_empty(rows, dtype=torch.float32)


def _rms_norm_gradients(
    grad: Tensor,  # noqa: ARG001
    tensor: Tensor,
    rstd: Tensor,  # noqa: ARG001
    weight: Tensor | None,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(tensor), torch.empty_like(tensor[0] if weight is None else weight)


# `linear`: a bias is added in place, as it is to real tensors. torch adds it out of place where a
# tensor is not plain, as fake ones are not, and that takes memory for a second result. It only does
# so for inputs with gaps and more than two dimensions; all others are one matrix product with the
# bias in it.


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if bias is None or x.dim() <= 2 or x.is_contiguous():
        result: Tensor = torch.ops.aten.linear.default.decompose(x, weight, bias)
        return result
    return torch.matmul(x, weight.t()).add_(bias)


# An optimizer update with 8-bit state: one operator, as its libraries run one kernel for it. State
# is kept as blocks of 256 values of a byte each with one fp32 scale (Dettmers et al. 2022, arXiv
# 2110.02861); parameters of fewer than 4096 values keep theirs in fp32, as bitsandbytes does.


_BLOCK_VALUES = 256
_FEWEST_VALUES = 4096


@torch.library.custom_op("outlay::update_8bit", mutates_args=("parameter", "states"))  # type: ignore[untyped-decorator]
def _update(
    name: str,
    gradient: Tensor,
    parameter: Tensor,
    states: list[Tensor],
) -> None:
    """What the update computes is of no interest here, only what it touches."""


@_update.register_fake  # type: ignore[untyped-decorator]
def _(name: str, gradient: Tensor, parameter: Tensor, states: list[Tensor]) -> None:  # noqa: ARG001
    return None


def update_8bit(parameter: Tensor, state: dict[str, Any], moments: int) -> None:
    """Update one parameter from its gradient, making its state the first time."""
    if not state:
        tensors = _new_state(parameter, moments)
        state.update({f"state{i}": tensor for i, tensor in enumerate(tensors)})
    _update("8-bit", parameter.grad, parameter.detach(), list(state.values()))


def _new_state(parameter: Tensor, moments: int) -> list[Tensor]:
    size = parameter.numel()
    if size < _FEWEST_VALUES:
        return [torch.zeros_like(parameter, dtype=torch.float32) for _ in range(moments)]
    blocks = -(-size // _BLOCK_VALUES)
    tensors: list[Tensor] = []
    for _ in range(moments):
        tensors.append(torch.zeros(size, dtype=torch.uint8, device=parameter.device))
        tensors.append(torch.zeros(blocks, dtype=torch.float32, device=parameter.device))
    return tensors
