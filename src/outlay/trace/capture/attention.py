"""Which attention kernel CUDA would run, without CUDA to ask.

torch picks a backend of `scaled_dot_product_attention` by asking the GPU; for fake tensors it
falls back to separate matrix products. Here the choice follows torch's own rules for a GPU of
compute capability 8.0 or later: flash for 16-bit tensors without a mask, memory-efficient
otherwise, separate products where neither applies. Older GPUs have no flash kernel; what that
means for time is decided when predicting.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Backend = Literal["flash", "efficient", "math"]

# Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp
_FLASH_MAX_HEAD_DIM = 256
_FLASH_ALIGNMENT = 8
_MASK_ALIGNMENT = 16

_registered: list[torch.library.Library] = []


def install() -> None:
    """Route attention on CUDA tensors through `attend`. Does nothing the second time."""
    if not _registered:
        library = torch.library.Library("aten", "IMPL")
        library.impl("scaled_dot_product_attention", attend, "AutogradCUDA")
        _registered.append(library)


def backend_for(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool
) -> Backend:
    """The backend torch would take, honouring `torch.nn.attention.sdpa_kernel`."""
    four_dimensional = query.dim() == key.dim() == value.dim() == 4
    if not four_dimensional:
        return "math"
    enabled = torch.backends.cuda
    if enabled.flash_sdp_enabled() and _flash_can(query, key, value, mask, causal):
        return "flash"
    dtypes = (torch.float16, torch.bfloat16, torch.float32)
    efficient = enabled.mem_efficient_sdp_enabled() and query.dtype in dtypes
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
    """No shared key heads, and no mask that is learned (seen on an H200 with torch 2.11)."""
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
    backend = backend_for(query, key, value, attn_mask, is_causal)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    if enable_gqa and backend != "flash":
        key, value = _repeated_heads(query, key), _repeated_heads(query, value)
    if backend == "flash":
        return _flash(query, key, value, dropout_p, is_causal, scale)
    mask = _additive_mask(attn_mask, query)
    if backend == "efficient":
        return _efficient(query, key, value, mask, dropout_p, is_causal, scale)
    return torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, mask, dropout_p, is_causal, scale=scale
    )[0]


def _flash(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, causal: bool, scale: float) -> Tensor:
    head_dim = q.shape[-1]
    padding = -head_dim % _FLASH_ALIGNMENT
    if padding:
        q, k, v = (functional.pad(tensor, (0, padding)) for tensor in (q, k, v))
    run = torch.ops.aten._scaled_dot_product_flash_attention
    out = run(q, k, v, dropout_p, causal, False, scale=scale)[0]
    return out[..., :head_dim] if padding else out


def _efficient(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    causal: bool,
    scale: float,
) -> Tensor:
    if mask is not None:
        mask = _aligned(mask).expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    needs_grad = any(tensor.requires_grad for tensor in (q, k, v))
    run = torch.ops.aten._scaled_dot_product_efficient_attention
    return run(q, k, v, mask, needs_grad, dropout_p, causal, scale=scale)[0]


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
