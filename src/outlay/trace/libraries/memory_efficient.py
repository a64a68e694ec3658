"""xformers: memory-efficient attention with its kinds of bias, and the fused SwiGLU layer.

Without a bias, below a diagonal and with a tensor as bias, its kernels are those that torch has
since taken over, and are counted as torch's own. Sequences of known lengths side by side
(`BlockDiagonalMask`) and windows compute only the scores that are seen.

Source: xformers 0.0.30 (ops/fmha, ops/swiglu_op.py).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outlay.trace.capture.cuda_ops import efficient_attention
from outlay.trace.libraries.flash_attention import Attention, attend, visible_scores
from outlay.trace.libraries.kernel_launch import launch
from outlay.trace.libraries.row_norms import NormLayer, RowNorm

# Biases


class _AttentionBias:
    """What a query sees. By itself everything."""

    causal = False
    window: tuple[int, int] | None = None

    def __init__(self, *_: object, **__: object) -> None:
        """Nothing to keep: only the kind of bias decides what is computed."""

    def scores(self, rows: int, columns: int) -> float:
        """Scores of one head and sequence that are computed."""
        return visible_scores(rows, columns, self.causal, self.window)

    def to(self, *_: object, **__: object) -> Any:
        """Itself: it holds nothing on the GPU."""
        return self


class _LowerTriangularMask(_AttentionBias):
    causal = True

    def add_bias(self, bias: Tensor) -> _LowerTriangularMaskWithTensorBias:
        """The same with a tensor added to the scores."""
        return _LowerTriangularMaskWithTensorBias(bias)


class _LowerTriangularMaskWithTensorBias(_LowerTriangularMask):
    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.bias = bias


class _LocalAttentionFromBottomRightMask(_AttentionBias):
    def __init__(self, window_left: int, window_right: int) -> None:
        super().__init__()
        self.window = window_left, window_right


class _LowerTriangularFromBottomRightLocalAttentionMask(_LowerTriangularMask):
    def __init__(self, _window_size: int, **__: object) -> None:
        super().__init__()
        self.window = _window_size - 1, 0


class _BlockDiagonalMask(_AttentionBias):
    """Sequences side by side in one tensor, of lengths that are known."""

    def __init__(
        self, rows: Sequence[int], columns: Sequence[int], batch_sizes: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.rows, self.columns = list(map(int, rows)), list(map(int, columns))
        self.batch_sizes = list(batch_sizes)

    @classmethod
    def from_seqlens(
        cls, q_seqlen: Sequence[int], kv_seqlen: Sequence[int] | None = None, **_: object
    ) -> Any:
        """From the lengths of the sequences."""
        return cls(q_seqlen, q_seqlen if kv_seqlen is None else kv_seqlen)

    @classmethod
    def from_tensor_list(cls, tensors: Sequence[Tensor]) -> Any:
        """From tensors (batch, length, ...), which are put side by side."""
        lengths = [tensor.shape[1] for tensor in tensors for _ in range(tensor.shape[0])]
        flat = torch.cat([tensor.reshape(1, -1, *tensor.shape[2:]) for tensor in tensors], 1)
        return cls(lengths, lengths, [tensor.shape[0] for tensor in tensors]), flat

    @classmethod
    def from_tensor_lists_qkv(
        cls,
        tensors_q: Sequence[Tensor],
        tensors_k: Sequence[Tensor],
        tensors_v: Sequence[Tensor] | None = None,
    ) -> Any:
        """The same for queries, keys and values."""
        queries, q = cls.from_tensor_list(tensors_q)
        keys, k = cls.from_tensor_list(tensors_k)
        v = None if tensors_v is None else cls.from_tensor_list(tensors_v)[1]
        return cls(queries.rows, keys.rows, queries.batch_sizes), q, k, v

    def split(self, tensor: Tensor) -> list[Tensor]:
        """The tensors that were put side by side."""
        sizes = self.batch_sizes or [1] * len(self.rows)
        starts = [0, *itertools.accumulate(sizes)]
        totals = [sum(self.rows[a:b]) for a, b in itertools.pairwise(starts)]
        parts = zip(tensor.split(totals, 1), sizes, strict=True)
        return [part.reshape(size, -1, *part.shape[2:]) for part, size in parts]

    def make_causal(self) -> Any:
        """The same, with each row seeing what comes before it alone."""
        return _BlockDiagonalCausalMask(self.rows, self.columns, self.batch_sizes)

    def make_local_attention(self, window_size: int) -> Any:
        """The same within a window that ends at each row."""
        mask = self.make_causal()
        mask.window = window_size - 1, 0
        return mask

    make_causal_from_bottomright = make_causal
    make_local_attention_from_bottomright = make_local_attention

    def all_scores(self) -> float:
        """Of one head, over all sequences."""
        pairs: Iterable[tuple[int, int]] = zip(self.rows, self.columns, strict=False)
        return sum(self.scores(row, column) for row, column in pairs)


class _BlockDiagonalCausalMask(_BlockDiagonalMask):
    causal = True


# Attention


def memory_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | _AttentionBias | None = None,
    p: float = 0.0,
    scale: float | None = None,
    *,
    op: object = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Attention over (batch, rows, heads, size of a head), or (batch, rows, size)."""
    del op
    q, k, v = (_with_heads(tensor) for tensor in (query, key, value))
    if isinstance(attn_bias, _BlockDiagonalMask):
        out = _blocks(q, k, v, attn_bias)
    elif getattr(attn_bias, "window", None) is not None:
        assert isinstance(attn_bias, _AttentionBias)
        out = _windows(q, k, v, attn_bias)
    else:
        out = _as_torch(q, k, v, attn_bias, p, scale)
    out = out.reshape(*query.shape[:-1], value.shape[-1])
    return out if output_dtype is None else out.to(output_dtype)


def _with_heads(tensor: Tensor) -> Tensor:
    if tensor.dim() == 3:
        return tensor.unsqueeze(2)
    return tensor.flatten(2, 3) if tensor.dim() == 5 else tensor


def _blocks(q: Tensor, k: Tensor, v: Tensor, bias: _BlockDiagonalMask) -> Tensor:
    attention = Attention(library="xformers", scores=bias.all_scores(), sequences=len(bias.rows))
    out, _ = attend(attention, *(tensor.squeeze(0) for tensor in (q, k, v)))
    return out


def _windows(q: Tensor, k: Tensor, v: Tensor, bias: _AttentionBias) -> Tensor:
    scores = q.shape[0] * bias.scores(q.shape[1], k.shape[1])
    out, _ = attend(Attention(library="xformers", scores=scores, sequences=q.shape[0]), q, k, v)
    return out


def _as_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | _AttentionBias | None,
    p: float,
    scale: float | None,
) -> Tensor:
    """As torch runs the same kernels: flash for 16 bits without a tensor as bias."""
    causal = isinstance(bias, _AttentionBias) and bias.causal
    mask = getattr(bias, "bias", None) if isinstance(bias, _AttentionBias) else bias
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    if mask is None:
        out = functional.scaled_dot_product_attention(
            q, k, v, dropout_p=p, is_causal=causal, scale=scale
        )
    else:
        shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        mask = mask.reshape(shape) if math.prod(mask.shape) == math.prod(shape) else mask
        out = efficient_attention(q, k, v, mask, p, causal, scale or q.shape[-1] ** -0.5)
    return out.transpose(1, 2)


# SwiGLU. With 16 bits the first two products and the gate are one kernel, and the gated values are
# computed again in backward; in fp32 torch's own operators run.


class _FusedSwiGLU(torch.autograd.Function):  # type: ignore[misc]
    """Arguments: rows, both first weights in one, their biases, the last weight and its bias."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weights: Tensor,
        biases: Tensor | None,
        last: Tensor,
        last_bias: Tensor | None,
    ) -> Tensor:
        both = functional.linear(x, weights, biases)
        hidden = x.new_empty((x.shape[0], last.shape[1]))
        launch("xformers.silu_mul", [both], [hidden])
        ctx.save_for_backward(x, weights, biases, last, last_bias, both)
        return functional.linear(hidden, last, last_bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weights, biases, last, last_bias, both = ctx.saved_tensors
        grad = grad.contiguous()
        to_hidden = grad @ last
        to_both, hidden = torch.empty_like(both), torch.empty_like(to_hidden)
        launch("xformers.silu_mul_backward", [both, to_hidden], [to_both, hidden])
        del to_hidden
        to_last = grad.t() @ hidden
        del hidden
        to_x, to_weights = to_both @ weights, to_both.t() @ x
        to_biases = None if biases is None else to_both.sum(0)
        return to_x, to_weights, to_biases, to_last, None if last_bias is None else grad.sum(0)


def _gated_products(
    x: Tensor, weights: Tensor, biases: Tensor | None, last: Tensor, last_bias: Tensor | None
) -> Tensor:
    """`silu(x w1) * (x w2)`, times the last weight; both first weights lie in one."""
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        x, weights, last = x.to(dtype), weights.to(dtype), last.to(dtype)
        biases = None if biases is None else biases.to(dtype)
        last_bias = None if last_bias is None else last_bias.to(dtype)
    if x.dtype == torch.float32:
        first, second = functional.linear(x, weights, biases).chunk(2, -1)
        return functional.linear(functional.silu(first) * second, last, last_bias)
    rows = x.reshape(-1, x.shape[-1])
    out: Tensor = _FusedSwiGLU.apply(rows, weights, biases, last, last_bias)
    return out.reshape(*x.shape[:-1], -1)


def swiglu(
    x: Tensor,
    w1: Tensor,
    b1: Tensor | None,
    w2: Tensor,
    b2: Tensor | None,
    w3: Tensor,
    b3: Tensor | None,
    *,
    op: object = None,
) -> Tensor:
    """`silu(x w1 + b1) * (x w2 + b2)`, times `w3`."""
    del op
    biases = None if b1 is None or b2 is None else _together(b1, b2)
    return _gated_products(x, _together(w1, w2), biases, w3, b3)


def _together(first: Tensor, second: Tensor) -> Tensor:
    """Both in one tensor: the one they are parts of, or a new one."""
    whole = first._base
    if whole is None or whole is not second._base or whole.numel() != 2 * first.numel():
        return torch.cat([first, second])
    return whole.reshape(-1, *first.shape[1:])


class _SwiGLU(nn.Module):  # type: ignore[misc]
    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        out_features: int | None = None,
        bias: bool = True,
        *,
        _pack_weights: bool = True,
    ) -> None:
        super().__init__()
        self.w12 = nn.Linear(in_features, 2 * hidden_features, bias=bias) if _pack_weights else None
        if not _pack_weights:
            self.w1 = nn.Linear(in_features, hidden_features, bias=bias)
            self.w2 = nn.Linear(in_features, hidden_features, bias=bias)
        self.w3 = nn.Linear(hidden_features, out_features or in_features, bias=bias)
        self.hidden_features = hidden_features

    def forward(self, x: Tensor) -> Tensor:
        """The three products with the gate between them."""
        last = self.w3.weight, self.w3.bias
        if self.w12 is not None:
            return _gated_products(x, self.w12.weight, self.w12.bias, *last)
        first, second = self.w1, self.w2
        return swiglu(x, first.weight, first.bias, second.weight, second.bias, *last)


class _RMSNorm(NormLayer):
    norm = RowNorm(library="xformers", is_rms=True)

    def __init__(self, dim: int, include_weight: bool = True, eps: float = 1e-6) -> None:
        super().__init__(dim, weight=include_weight)
        self.eps = eps


def unbind(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    """As torch's; the gradients are put together without a copy there, with one here."""
    return tuple(x.unbind(dim))


_BIASES: Mapping[str, object] = {
    "AttentionBias": _AttentionBias,
    "LowerTriangularMask": _LowerTriangularMask,
    "LowerTriangularMaskWithTensorBias": _LowerTriangularMaskWithTensorBias,
    "LowerTriangularFromBottomRightMask": _LowerTriangularMask,
    "LowerTriangularFromBottomRightLocalAttentionMask": (
        _LowerTriangularFromBottomRightLocalAttentionMask
    ),
    "LocalAttentionFromBottomRightMask": _LocalAttentionFromBottomRightMask,
    "BlockDiagonalMask": _BlockDiagonalMask,
    "BlockDiagonalCausalMask": _BlockDiagonalCausalMask,
}
_ATTENTION: Mapping[str, object] = {
    "memory_efficient_attention": memory_efficient_attention,
    "memory_efficient_attention_forward": memory_efficient_attention,
    "AttentionOp": object,
    "MemoryEfficientAttentionOp": None,
    "MemoryEfficientAttentionCutlassOp": None,
    "MemoryEfficientAttentionFlashAttentionOp": None,
    "MemoryEfficientAttentionCutlassFwdFlashBwOp": None,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "xformers": {"__version__": "0.0.30"},
    "xformers.ops": {
        **_ATTENTION,
        **_BIASES,
        "AttentionMask": _AttentionBias,
        "SwiGLU": _SwiGLU,
        "swiglu": swiglu,
        "RMSNorm": _RMSNorm,
        "unbind": unbind,
    },
    "xformers.ops.fmha": {**_ATTENTION, **_BIASES},
    "xformers.ops.fmha.attn_bias": _BIASES,
    "xformers.ops.swiglu_op": {"SwiGLU": _SwiGLU, "swiglu": swiglu},
}
REPLACED_CLASSES = tuple(
    f"{module}.{name}"
    for module in ("xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias")
    for name in _BIASES
)
"""The biases: attention that is replaced has to know them."""
