"""The layers that come with flash-attn: rotary embedding, cross entropy, norms, attention modules.

Each is one kernel forward and one backward, where it is not made of torch's own operators. The
Triton norms are the ones Mamba brings too.

Source: flash_attn 2.8 (layers/rotary.py, ops/triton, ops/layer_norm.py, modules).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outlay.trace.libraries.flash_attention import (
    EVERYTHING,
    Window,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    last_contiguous,
)
from outlay.trace.libraries.kernel_launch import launch
from outlay.trace.libraries.row_norms import NormLayer, RowNorm, gated, row_norm

# Rotary position embedding: one kernel each way, in place where asked


class _Rotary(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, part: Any, in_place: bool) -> Tensor:
        out = x if in_place else torch.empty_like(x)
        ctx.save_for_backward(cos, sin)
        ctx.part, ctx.in_place = part, in_place
        launch("flash_attn.rotary", [part(x), cos, sin], [part(out)])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        out = grad if ctx.in_place else torch.empty_like(grad)
        launch("flash_attn.rotary_backward", [ctx.part(grad), cos, sin], [ctx.part(out)])
        return out, None, None, None, None


def _whole(x: Tensor) -> Tensor:
    return x


def apply_rotary_emb(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    *_: object,
    **__: object,
) -> Tensor:
    """`x` with the positions turned into it."""
    del interleaved
    result: Tensor = _Rotary.apply(x, cos, sin, _whole, inplace)
    return result


def apply_rotary_emb_qkv_(
    qkv: Tensor, cos: Tensor, sin: Tensor, *_: object, **options: Any
) -> Tensor:
    """Query and key of a packed tensor turned in place."""
    heads = options.get("num_heads_q")
    part: Callable[[Tensor], Tensor]
    if qkv.dim() == 5:
        part = partial(_narrowed, size=2)
    else:
        keys = (qkv.shape[2] - heads) // 2 if heads else 0
        part = partial(_narrowed, size=(heads or 0) + keys)
    result: Tensor = _Rotary.apply(qkv, cos, sin, part, True)
    return result


def apply_rotary_emb_kv_(kv: Tensor, cos: Tensor, sin: Tensor, *_: object, **__: object) -> Tensor:
    """The key of a packed tensor turned in place."""
    result: Tensor = _Rotary.apply(kv, cos, sin, partial(_narrowed, size=1), True)
    return result


def _narrowed(x: Tensor, size: int) -> Tensor:
    return x[:, :, :size]


class _RotaryEmbedding(nn.Module):  # type: ignore[misc]
    """Sines and cosines of positions, and their use on packed tensors."""

    def __init__(
        self,
        dim: int,
        base: float = 10000.0,
        interleaved: bool = False,
        scale_base: float | None = None,
        *_: object,
        device: Any = None,
        **__: object,
    ) -> None:
        super().__init__()
        del base, scale_base
        self.dim, self.interleaved = dim, interleaved
        inverse = 1.0 / (torch.arange(0, dim, 2, device=device, dtype=torch.float32) / dim + 1)
        self.register_buffer("inv_freq", inverse, persistent=False)
        self._cached: tuple[Tensor, Tensor] | None = None

    def _tables(self, length: int, like: Tensor) -> tuple[Tensor, Tensor]:
        if self._cached is None or self._cached[0].shape[0] < length:
            position = torch.arange(length, device=like.device, dtype=torch.float32)
            angles = torch.outer(position, self.inv_freq)
            self._cached = torch.cos(angles).to(like.dtype), torch.sin(angles).to(like.dtype)
        return self._cached

    def forward(
        self,
        qkv: Tensor,
        kv: Tensor | None = None,
        seqlen_offset: int = 0,
        max_seqlen: int | None = None,
        **options: Any,
    ) -> Any:
        """Query and key with their positions, in place but for a query of its own."""
        del seqlen_offset
        cos, sin = self._tables(max_seqlen or qkv.shape[1], qkv)
        if kv is None:
            return apply_rotary_emb_qkv_(qkv, cos, sin, **options)
        return apply_rotary_emb(qkv, cos, sin, inplace=True), apply_rotary_emb_kv_(kv, cos, sin)


# Cross entropy: one kernel each way, in the place of the logits where asked


class _CrossEntropy(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, in_place: bool) -> tuple[Tensor, Tensor]:
        logits = last_contiguous(logits)
        rows = logits.shape[0]
        losses, log_sums, z_losses = (
            logits.new_empty((rows,), dtype=torch.float32) for _ in range(3)
        )
        launch(
            "flash_attn.cross_entropy",
            [logits, labels],
            [losses, log_sums, z_losses],
            kind="softmax",
        )
        ctx.save_for_backward(logits, log_sums, labels)
        ctx.mark_non_differentiable(z_losses)
        ctx.in_place = in_place
        return losses, z_losses

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor | None, ...]:
        logits, log_sums, labels = ctx.saved_tensors
        to_logits = logits if ctx.in_place else torch.empty_like(logits)
        launch(
            "flash_attn.cross_entropy_backward",
            [logits, grad, log_sums, labels],
            [to_logits],
            kind="softmax",
        )
        return to_logits, None, None


def cross_entropy_loss(
    logits: Tensor,
    labels: Tensor,
    *_: object,
    inplace_backward: bool = False,
    **__: object,
) -> tuple[Tensor, Tensor]:
    """The loss of each row, and its part that holds the logits small."""
    losses, z_losses = _CrossEntropy.apply(logits, labels, inplace_backward)
    return losses, z_losses


class _CrossEntropyLoss(nn.Module):  # type: ignore[misc]
    def __init__(
        self,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        logit_scale: float = 1.0,
        lse_square_scale: float = 0.0,
        inplace_backward: bool = False,
        process_group: object = None,
        return_z_loss: bool = False,
    ) -> None:
        super().__init__()
        del label_smoothing, logit_scale, lse_square_scale, process_group
        self.ignore_index, self.reduction = ignore_index, reduction
        self.inplace_backward, self.return_z_loss = inplace_backward, return_z_loss

    def forward(self, logits: Tensor, target: Tensor, *_: object) -> Any:
        """The loss of all rows, as the reduction says."""
        results = cross_entropy_loss(logits, target, inplace_backward=self.inplace_backward)
        losses, z_losses = (self._reduced(result, target) for result in results)
        return (losses, z_losses) if self.return_z_loss else losses

    def _reduced(self, losses: Tensor, target: Tensor) -> Tensor:
        if self.reduction == "mean":
            return losses.sum() / (target != self.ignore_index).sum()
        return losses.sum() if self.reduction == "sum" else losses


# Modules


class _FlashSelfAttention(nn.Module):  # type: ignore[misc]
    def __init__(
        self,
        causal: bool = False,
        softmax_scale: float | None = None,
        attention_dropout: float = 0.0,
        window_size: Window = EVERYTHING,
        *_: object,
        **__: object,
    ) -> None:
        super().__init__()
        self.causal, self.softmax_scale, self.window_size = causal, softmax_scale, window_size
        self.drop = nn.Dropout(attention_dropout)

    def forward(
        self,
        qkv: Tensor,
        causal: bool | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
    ) -> Any:
        """Attention of a packed tensor."""
        options: dict[str, Any] = {
            "causal": self.causal if causal is None else causal,
            "window_size": self.window_size,
        }
        if cu_seqlens is not None:
            return flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, **options)
        return flash_attn_qkvpacked_func(qkv, **options)


class _FlashCrossAttention(_FlashSelfAttention):
    def forward(  # type: ignore[override]
        self,
        q: Tensor,
        kv: Tensor,
        causal: bool | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
        cu_seqlens_k: Tensor | None = None,
        max_seqlen_k: int | None = None,
    ) -> Any:
        """Attention of a query to a packed key and value."""
        options: dict[str, Any] = {
            "causal": self.causal if causal is None else causal,
            "window_size": self.window_size,
        }
        if cu_seqlens is not None and cu_seqlens_k is not None:
            return flash_attn_varlen_kvpacked_func(
                q, kv, cu_seqlens, cu_seqlens_k, max_seqlen, max_seqlen_k, **options
            )
        return flash_attn_kvpacked_func(q, kv, **options)


class _MHA(nn.Module):  # type: ignore[misc]
    """Projections around attention; without `use_flash_attn` as separate products."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        num_heads_kv: int | None = None,
        cross_attn: bool = False,
        qkv_proj_bias: bool = True,
        out_proj_bias: bool = True,
        dropout: float = 0.0,
        softmax_scale: float | None = None,
        causal: bool = False,
        layer_idx: int | None = None,
        dwconv: bool = False,
        rotary_emb_dim: int = 0,
        rotary_emb_base: float = 10000.0,
        rotary_emb_scale_base: float | None = None,
        rotary_emb_interleaved: bool = False,
        use_alibi: bool = False,
        window_size: Window = EVERYTHING,
        fused_bias_fc: bool = False,
        use_flash_attn: bool = False,
        return_residual: bool = False,
        checkpointing: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        del softmax_scale, layer_idx, use_alibi, fused_bias_fc, checkpointing
        del rotary_emb_base, rotary_emb_scale_base, rotary_emb_interleaved
        if dwconv:
            raise NotImplementedError("MHA with dwconv=True has no formula")
        options = {"device": device, "dtype": dtype}
        self.num_heads, self.num_heads_kv = num_heads, num_heads_kv or num_heads
        self.head_dim = embed_dim // num_heads
        self.cross_attn, self.return_residual = cross_attn, return_residual
        self.use_flash_attn, self.causal, self.dropout = use_flash_attn, causal, dropout
        key_dim = 2 * self.head_dim * self.num_heads_kv
        if cross_attn:
            self.Wq = nn.Linear(embed_dim, embed_dim, bias=qkv_proj_bias, **options)
            self.Wkv = nn.Linear(embed_dim, key_dim, bias=qkv_proj_bias, **options)
        else:
            self.Wqkv = nn.Linear(embed_dim, embed_dim + key_dim, bias=qkv_proj_bias, **options)
        if rotary_emb_dim:
            self.rotary_emb = _RotaryEmbedding(rotary_emb_dim, device=device)
        self.rotary_emb_dim = rotary_emb_dim
        self.inner_attn = _FlashSelfAttention(causal, None, dropout, window_size)
        self.inner_cross_attn = _FlashCrossAttention(causal, None, dropout, window_size)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=out_proj_bias, **options)

    def forward(
        self,
        x: Tensor,
        x_kv: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        cu_seqlens: Tensor | None = None,
        max_seqlen: int | None = None,
        **_: object,
    ) -> Any:
        """The attended values, projected; with the input where that is asked for."""
        del key_padding_mask
        heads, keys, size = self.num_heads, self.num_heads_kv, self.head_dim
        if not self.cross_attn and keys == heads:
            qkv = self.Wqkv(x).unflatten(-1, (3, heads, size))
            if self.rotary_emb_dim:
                qkv = self.rotary_emb(qkv, max_seqlen=max_seqlen)
            if self.use_flash_attn:
                out = self.inner_attn(qkv, cu_seqlens=cu_seqlens, max_seqlen=max_seqlen)
            else:
                out = self._separate(*qkv.unbind(-3))
        else:
            q, kv = self._apart(x, x if x_kv is None else x_kv)
            if self.rotary_emb_dim:
                q, kv = self.rotary_emb(q, kv)
            out = (
                self.inner_cross_attn(q, kv)
                if self.use_flash_attn
                else self._separate(q, *kv.unbind(-3))
            )
        out = self.out_proj(out.flatten(-2))
        return (out, x) if self.return_residual else out

    def _apart(self, x: Tensor, x_kv: Tensor) -> tuple[Tensor, Tensor]:
        heads, keys, size = self.num_heads, self.num_heads_kv, self.head_dim
        if self.cross_attn:
            q, kv = self.Wq(x), self.Wkv(x_kv)
        else:
            q, kv = self.Wqkv(x).split([heads * size, 2 * keys * size], -1)
        return q.unflatten(-1, (heads, size)), kv.unflatten(-1, (2, keys, size))

    def _separate(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("bthd,bshd->bhts", q, k * self.head_dim**-0.5)
        weights = functional.dropout(scores.softmax(-1).to(v.dtype), self.dropout, self.training)
        return torch.einsum("bhts,bshd->bthd", weights, v)


class _Mlp(nn.Module):  # type: ignore[misc]
    """Two products with an activation between them."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        activation: Any = functional.gelu,
        bias1: bool = True,
        bias2: bool = True,
        return_residual: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        **_: object,
    ) -> None:
        super().__init__()
        hidden = hidden_features or 4 * in_features
        options = {"device": device, "dtype": dtype}
        self.return_residual = return_residual
        self.activation = activation if callable(activation) else functional.gelu
        self.fc1 = nn.Linear(in_features, hidden, bias=bias1, **options)
        self.fc2 = nn.Linear(hidden, out_features or in_features, bias=bias2, **options)

    def forward(self, x: Tensor) -> Any:
        """The second product; with the input where that is asked for."""
        y = self.fc2(self.activation(self.fc1(x)))
        return (y, x) if self.return_residual else y


class _FusedDense(nn.Linear):  # type: ignore[misc]
    """A product with its bias; returns the input too where asked."""

    def __init__(self, *args: Any, return_residual: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self.return_residual = return_residual

    def forward(self, x: Tensor, process_group: object = None) -> Any:
        """The product; with the input where that is asked for."""
        del process_group
        y = super().forward(x)
        return (y, x) if self.return_residual else y


# Norms, with dropout and a residual in the same kernel


def _dropout_add_norm(
    x0: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    dropout_p: float,
    *_: object,
    is_rms: bool,
    prenorm: bool = False,
    residual_in_fp32: bool = False,
    **__: object,
) -> Any:
    norm = RowNorm(
        library="flash_attn",
        is_rms=is_rms,
        prenorm=prenorm,
        dropout_p=dropout_p,
        residual_dtype=torch.float32 if residual_in_fp32 else None,
    )
    return row_norm(norm, x0, weight, bias, residual)


def norm_fn(library: str, is_rms: bool) -> Callable[..., Any]:
    """`rms_norm_fn` or `layer_norm_fn` of the Triton norms that flash-attn and Mamba share."""

    def norm(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        residual: Tensor | None = None,
        *_: object,
        dropout_p: float = 0.0,
        prenorm: bool = False,
        residual_in_fp32: bool = False,
        out_dtype: torch.dtype | None = None,
        is_rms_norm: bool = False,
        **__: object,
    ) -> Any:
        kind = RowNorm(
            library=library,
            sums_by_multiprocessor=True,
            is_rms=is_rms or is_rms_norm,
            prenorm=prenorm,
            dropout_p=dropout_p,
            residual_dtype=torch.float32 if residual_in_fp32 else None,
            out_dtype=out_dtype,
        )
        return row_norm(kind, x, weight, bias, residual)

    return norm


def norm_module(library: str, *, is_rms: bool) -> type[NormLayer]:
    """The module around it: `forward(x, residual=None, prenorm=False, ...)`."""

    class _Norm(NormLayer):
        def __init__(
            self,
            hidden_size: int,
            eps: float = 1e-5,
            dropout_p: float = 0.0,
            *_: object,
            device: Any = None,
            dtype: torch.dtype | None = None,
            **__: object,
        ) -> None:
            super().__init__(hidden_size, bias=not is_rms, device=device, dtype=dtype)
            self.eps, self.dropout_p = eps, dropout_p

        def forward(
            self,
            x: Tensor,
            residual: Tensor | None = None,
            prenorm: bool = False,
            residual_in_fp32: bool = False,
        ) -> Any:
            dropout_p = self.dropout_p if self.training else 0.0
            return norm_fn(library, is_rms)(
                x,
                self.weight,
                self.bias,
                residual,
                dropout_p=dropout_p,
                prenorm=prenorm,
                residual_in_fp32=residual_in_fp32,
            )

    return _Norm


class _DropoutAddNorm(NormLayer):
    """Dropout, addition and norm of a block, as one kernel."""

    is_rms = False

    def __init__(
        self,
        hidden_size: int,
        prenorm: bool = False,
        p: float = 0.0,
        eps: float = 1e-5,
        residual_in_fp32: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(hidden_size, bias=not self.is_rms, device=device, dtype=dtype)
        self.prenorm, self.p, self.eps, self.residual_in_fp32 = prenorm, p, eps, residual_in_fp32

    def forward(self, x0: Tensor, residual: Tensor | None = None) -> Any:
        """The normalised sum, and the sum where that is asked for."""
        return _dropout_add_norm(
            x0,
            residual,
            self.weight,
            self.bias,
            self.p if self.training else 0.0,
            is_rms=self.is_rms,
            prenorm=self.prenorm,
            residual_in_fp32=self.residual_in_fp32,
        )


class _DropoutAddRMSNorm(_DropoutAddNorm):
    is_rms = True


def _swiglu(x: Tensor, y: Tensor) -> Tensor:
    """`silu(x) * y` as one kernel, which is computed again for the backward pass."""
    result: Tensor = gated("flash_attn.swiglu", x, y)
    return result


_TRITON_NORMS: Mapping[str, object] = {
    "layer_norm_fn": norm_fn("flash_attn", is_rms=False),
    "rms_norm_fn": norm_fn("flash_attn", is_rms=True),
    "RMSNorm": norm_module("flash_attn", is_rms=True),
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "flash_attn.layers.rotary": {
        "apply_rotary_emb": apply_rotary_emb,
        "apply_rotary_emb_func": apply_rotary_emb,
        "apply_rotary_emb_qkv_": apply_rotary_emb_qkv_,
        "apply_rotary_emb_kv_": apply_rotary_emb_kv_,
        "RotaryEmbedding": _RotaryEmbedding,
    },
    "flash_attn.losses.cross_entropy": {"CrossEntropyLoss": _CrossEntropyLoss},
    "flash_attn.ops.triton.cross_entropy": {"cross_entropy_loss": cross_entropy_loss},
    "flash_attn.ops.triton.layer_norm": _TRITON_NORMS,
    "flash_attn.ops.rms_norm": {
        "rms_norm": lambda x, weight, _eps: norm_fn("flash_attn", is_rms=True)(x, weight, None),
        "RMSNorm": norm_module("flash_attn", is_rms=True),
        "DropoutAddRMSNorm": _DropoutAddRMSNorm,
        "dropout_add_rms_norm": partial(_dropout_add_norm, is_rms=True),
    },
    "flash_attn.ops.layer_norm": {
        "layer_norm": lambda x, weight, bias, _eps: norm_fn("flash_attn", is_rms=False)(
            x, weight, bias
        ),
        "DropoutAddLayerNorm": _DropoutAddNorm,
        "dropout_add_layer_norm": partial(_dropout_add_norm, is_rms=False),
    },
    "flash_attn.ops.activations": {"swiglu": _swiglu},
    "flash_attn.ops.fused_dense": {"FusedDense": _FusedDense, "FusedMLP": _Mlp},
    "flash_attn.modules.mlp": {"Mlp": _Mlp, "FusedMLP": _Mlp},
    "flash_attn.modules.mha": {
        "FlashSelfAttention": _FlashSelfAttention,
        "FlashCrossAttention": _FlashCrossAttention,
        "MHA": _MHA,
    },
}
