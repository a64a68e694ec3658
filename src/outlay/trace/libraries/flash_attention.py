"""flash-attn: fused attention, and the layers that come with it.

Its attention keeps query, key, value, output and one number a row for the backward pass, nothing of
the size of the scores; backward takes the query's gradient in fp32 for a while. Sequences of
unequal lengths in one tensor (`varlen`) have those lengths where the trace knows them, and are
taken to be equally long where it does not.

Source: flash_attn 2.8 (flash_attn_interface.py, csrc/flash_attn/flash_api.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from outlay.trace.libraries.kernel_launch import constant_values, launch, note
from outlay.trace.libraries.row_norms import NormLayer, RowNorm, row_norm
from outlay.trace.traffic import rounded

Window = Sequence[int] | None
"""Positions to the left and to the right that a query sees; less than 0 is all of them."""
_EVERYTHING = (-1, -1)
_HEAD_MULTIPLE = 8


# How many scores there are


def visible_scores(rows: float, columns: float, causal: bool, window: Window = None) -> float:
    """Scores of one head that are computed: all, half of them below a diagonal, or a band.

    Counted as torch's own attention is: of a causal mask half, without its diagonal's own half.
    """
    left, right = window or _EVERYTHING
    if causal:
        right = 0
    if left < 0 and right < 0:
        return rows * columns
    if left < 0 and right == 0:
        return rows * columns / 2
    reach = min(rows, columns)
    below = reach * (reach + 1) / 2 if left < 0 else _band(reach, left)
    above = reach * (reach + 1) / 2 if right < 0 else _band(reach, right)
    return (below + above - reach) * columns / max(reach, 1) if columns < rows else below + above - reach


def _band(length: float, width: float) -> float:
    """Elements on the diagonal and up to `width` beside it, on one side, of a square."""
    width = min(width, length)
    return length * (width + 1) - width * (width + 1) / 2


def sequence_lengths(
    starts: Tensor | None, total: int, function: str
) -> list[float]:
    """Lengths of the sequences in one tensor, from where each starts; equal ones if unknown."""
    values = constant_values(starts)
    if values is not None and len(values) > 1:
        return [end - start for start, end in zip(values, values[1:], strict=False)]
    sequences = max((starts.numel() if starts is not None else 2) - 1, 1)
    note(function, "sequences packed into one tensor were assumed to be equally long")
    return [total / sequences] * sequences


# Attention as one kernel each way


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One call: how many scores each head has, and how its tensors lie."""

    library: str
    scores: float
    """Of one head, over all sequences."""
    sequences: int
    packed: int = 0
    """Of query, key and value, how many lie in one tensor: 3, the last 2, or none."""
    padded_rows: int = 0
    """Rows of the query's gradient in fp32, over all sequences."""

    def split(self, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each (..., heads, size of a head)."""
        if self.packed == 3:
            return tensors[0].unbind(-3)
        if self.packed == 2:
            return (tensors[0], *tensors[1].unbind(-3))
        return tuple(tensors)

    def by_head(self, tensor: Tensor) -> Tensor:
        """As (sequences, heads, rows, size of a head), where the rows can be shared out evenly."""
        if tensor.dim() == 3:
            even = tensor.shape[0] % self.sequences == 0
            tensor = tensor.unflatten(0, (self.sequences if even else 1, -1))
        return tensor.transpose(1, 2)


def attend(attention: Attention, *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """The attended values, and the log of each row's sum."""
    out, log_sums = _FusedAttention.apply(attention, *tensors)
    return out, log_sums


class _FusedAttention(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, attention: Attention, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (_last_contiguous(tensor) for tensor in attention.split(tensors))
        if q.dtype not in (torch.float16, torch.bfloat16) and attention.library == "flash_attn":
            raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
        size = q.shape[-1]
        padding = -size % _HEAD_MULTIPLE
        if padding:
            q, k, v = (functional.pad(tensor, (0, padding)) for tensor in (q, k, v))
        out = q.new_empty((*q.shape[:-1], v.shape[-1]))
        log_sums = q.new_empty((q.shape[-2], math.prod(q.shape[:-2])), dtype=torch.float32)
        heads = attention.by_head
        launch(
            f"{attention.library}.forward",
            [heads(q), heads(k), heads(v)],
            [out, log_sums],
            kind="attention",
            flops=2 * q.shape[-2] * attention.scores * (q.shape[-1] + v.shape[-1]),
        )
        ctx.save_for_backward(q, k, v, out, log_sums)
        ctx.attention, ctx.size = attention, size
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(log_sums)
        return (out[..., :size] if padding else out), log_sums

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: object) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sums = ctx.saved_tensors
        attention, padding = ctx.attention, q.shape[-1] - ctx.size
        grad = functional.pad(grad, (0, padding)) if padding else _last_contiguous(grad)
        results = _gradients(attention, q, k, v)
        q_heads, k_heads = q.shape[-2], k.shape[-2]
        rows = attention.padded_rows or math.prod(q.shape[:-2])
        in_fp32 = q.new_empty(rows, q_heads, rounded(q.shape[-1], 32), dtype=torch.float32)
        row_sums = q.new_empty(rows, q_heads, dtype=torch.float32)
        shared = [
            tensor.new_empty((*tensor.shape[:-2], q_heads, tensor.shape[-1]))
            for tensor in (k, v)
            if k_heads != q_heads
        ]
        by_head = attention.by_head
        launch(
            f"{attention.library}.backward",
            [by_head(grad), by_head(q), by_head(k), by_head(v), out, log_sums],
            results,
            kind="attention",
            flops=2 * q_heads * attention.scores * (3 * q.shape[-1] + 2 * v.shape[-1]),
            launches=3,
        )
        del in_fp32, row_sums
        if shared:
            launch(f"{attention.library}.sum_heads", shared, results[-2:], kind="reduction", launches=2)
        return None, *(result[..., : ctx.size] if padding else result for result in results)


def _last_contiguous(tensor: Tensor) -> Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _gradients(attention: Attention, q: Tensor, k: Tensor, v: Tensor) -> list[Tensor]:
    """Empty gradients of what the function was given: packed as that was."""
    if attention.packed == 3:
        return [q.new_empty((*q.shape[:-2], 3, *q.shape[-2:]))]
    if attention.packed == 2:
        return [torch.empty_like(q), k.new_empty((*k.shape[:-2], 2, *k.shape[-2:]))]
    return [torch.empty_like(tensor) for tensor in (q, k, v)]


# The functions of flash_attn


def _dense(
    *tensors: Tensor,
    packed: int,
    causal: bool = False,
    window_size: Window = None,
    return_attn_probs: bool = False,
    **_: object,
) -> Any:
    """Attention over (batch, rows, heads, size); other options change no amount."""
    last = tensors[-1]
    rows, columns, batch = tensors[0].shape[1], last.shape[1], tensors[0].shape[0]
    attention = Attention(
        library="flash_attn",
        scores=batch * visible_scores(rows, columns, causal, window_size),
        sequences=batch,
        packed=packed,
        padded_rows=batch * rounded(rows, 128),
    )
    out, log_sums = attend(attention, *tensors)
    return (out, log_sums, None) if return_attn_probs else out


def flash_attn_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYTHING,
    *_: object,
    **options: Any,
) -> Any:
    """Attention of q, k, v, each (batch, rows, heads, size of a head)."""
    del dropout_p, softmax_scale
    return _dense(q, k, v, packed=0, causal=causal, window_size=window_size, **options)


def flash_attn_qkvpacked_func(
    qkv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYTHING,
    *_: object,
    **options: Any,
) -> Any:
    """The same of one tensor (batch, rows, 3, heads, size of a head)."""
    del dropout_p, softmax_scale
    return _dense(qkv, packed=3, causal=causal, window_size=window_size, **options)


def flash_attn_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYTHING,
    *_: object,
    **options: Any,
) -> Any:
    """The same of q and one tensor (batch, columns, 2, heads, size of a head)."""
    del dropout_p, softmax_scale
    return _dense(q, kv, packed=2, causal=causal, window_size=window_size, **options)


def _packed_sequences(
    function: str,
    *tensors: Tensor,
    starts: tuple[Tensor, Tensor],
    packed: int,
    causal: bool = False,
    window_size: Window = None,
    return_attn_probs: bool = False,
    **_: object,
) -> Any:
    """Attention over (total rows, heads, size), each sequence by itself."""
    q, last = tensors[0], tensors[-1]
    rows = sequence_lengths(starts[0], q.shape[0], function)
    columns = rows if packed == 3 else sequence_lengths(starts[1], last.shape[0], function)
    scores = sum(
        visible_scores(row, column, causal, window_size)
        for row, column in zip(rows, columns, strict=False)
    )
    attention = Attention(
        library="flash_attn",
        scores=scores,
        sequences=len(rows),
        packed=packed,
        padded_rows=q.shape[0] + 128 * len(rows),
    )
    out, log_sums = attend(attention, *tensors)
    return (out, log_sums, None) if return_attn_probs else out


def flash_attn_varlen_func(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYTHING,
    *_: object,
    **options: Any,
) -> Any:
    """Attention of sequences one after another, each (total rows, heads, size of a head)."""
    del max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale
    return _packed_sequences(
        "flash_attn_varlen_func",
        q,
        k,
        v,
        starts=(cu_seqlens_q, cu_seqlens_k),
        packed=0,
        causal=causal,
        window_size=window_size,
        **options,
    )


def flash_attn_varlen_qkvpacked_func(
    qkv: Tensor,
    cu_seqlens: Tensor,
    max_seqlen: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYTHING,
    *_: object,
    **options: Any,
) -> Any:
    """The same of one tensor (total rows, 3, heads, size of a head)."""
    del max_seqlen, dropout_p, softmax_scale
    return _packed_sequences(
        "flash_attn_varlen_qkvpacked_func",
        qkv,
        starts=(cu_seqlens, cu_seqlens),
        packed=3,
        causal=causal,
        window_size=window_size,
        **options,
    )


def flash_attn_varlen_kvpacked_func(
    q: Tensor,
    kv: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = _EVERYTHING,
    *_: object,
    **options: Any,
) -> Any:
    """The same of q and one tensor (total columns, 2, heads, size of a head)."""
    del max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale
    return _packed_sequences(
        "flash_attn_varlen_kvpacked_func",
        q,
        kv,
        starts=(cu_seqlens_q, cu_seqlens_k),
        packed=2,
        causal=causal,
        window_size=window_size,
        **options,
    )


def _with_kvcache(
    q: Tensor, k_cache: Tensor, v_cache: Tensor, *_: object, causal: bool = False, **__: object
) -> Tensor:
    """Attention to everything in the cache; what is written into it is left out."""
    result: Tensor = _dense(q, k_cache, v_cache, packed=0, causal=causal and q.shape[1] > 1)
    return result


# Padding (flash_attn.bert_padding)


def index_first_axis(x: Tensor, indices: Tensor) -> Tensor:
    """The rows of `x` that the indices name."""
    flat = x.flatten(1)
    picked = torch.gather(flat, 0, indices[:, None].expand(-1, flat.shape[1]))
    return picked.reshape(-1, *x.shape[1:])


def index_put_first_axis(values: Tensor, indices: Tensor, rows: int) -> Tensor:
    """Zeros with the values in the rows that the indices name."""
    out = values.new_zeros((rows, *values.shape[1:]))
    return out.index_put((indices,), values)


def unpad_input(
    hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
    """The rows that a mask keeps, where they are, where each sequence starts, the longest."""
    mask = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = mask.sum(-1, dtype=torch.int32)
    indices = torch.nonzero(mask.flatten()).flatten()
    starts = functional.pad(torch.cumsum(lengths, 0, dtype=torch.int32), (1, 0))
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, starts, mask.shape[1], attention_mask.sum(-1, dtype=torch.int32)


def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor:
    """The rows back in their places of (batch, seqlen, ...)."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))


# Rotary position embedding: one kernel each way, in place where asked


class _Rotary(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, part: Any, in_place: bool) -> Tensor:
        out = x if in_place else torch.empty_like(x)
        ctx.save_for_backward(cos, sin)
        ctx.part, ctx.in_place = part, in_place
        launch("flash_attn.rotary", [part(x), cos, sin], [part(out)])
        if in_place:
            ctx.mark_dirty(x)
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


def apply_rotary_emb_qkv_(qkv: Tensor, cos: Tensor, sin: Tensor, *_: object, **options: Any) -> Tensor:
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
        logits = _last_contiguous(logits)
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
        window_size: Window = _EVERYTHING,
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
        options = {
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
        options = {
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
        window_size: Window = _EVERYTHING,
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
            out = self.inner_cross_attn(q, kv) if self.use_flash_attn else self._separate(q, *kv.unbind(-3))
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


class _Gated(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, name: str, in_place: bool, x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        launch(name, [x, y], [out])
        ctx.save_for_backward(x, y)
        ctx.name, ctx.in_place = name, in_place
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        to_x, to_y = (x, y) if ctx.in_place else (torch.empty_like(x), torch.empty_like(y))
        launch(f"{ctx.name}_backward", [grad, x, y], [to_x, to_y])
        return None, None, to_x, to_y


def gated(name: str, x: Tensor, y: Tensor, *, in_place: bool = False) -> Any:
    """An activation of `x` times `y`; `in_place` puts the gradients where the inputs were."""
    return _Gated.apply(name, in_place, x, y)


_FUNCTIONS: Mapping[str, object] = {
    "flash_attn_func": flash_attn_func,
    "flash_attn_kvpacked_func": flash_attn_kvpacked_func,
    "flash_attn_qkvpacked_func": flash_attn_qkvpacked_func,
    "flash_attn_varlen_func": flash_attn_varlen_func,
    "flash_attn_varlen_kvpacked_func": flash_attn_varlen_kvpacked_func,
    "flash_attn_varlen_qkvpacked_func": flash_attn_varlen_qkvpacked_func,
    "flash_attn_with_kvcache": _with_kvcache,
}
_TRITON_NORMS: Mapping[str, object] = {
    "layer_norm_fn": norm_fn("flash_attn", is_rms=False),
    "rms_norm_fn": norm_fn("flash_attn", is_rms=True),
    "RMSNorm": norm_module("flash_attn", is_rms=True),
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "flash_attn": {"__version__": "2.8.3", **_FUNCTIONS},
    "flash_attn.flash_attn_interface": {
        **_FUNCTIONS,
        "flash_attn_unpadded_func": flash_attn_varlen_func,
        "flash_attn_unpadded_kvpacked_func": flash_attn_varlen_kvpacked_func,
        "flash_attn_unpadded_qkvpacked_func": flash_attn_varlen_qkvpacked_func,
    },
    "flash_attn_interface": _FUNCTIONS,
    "flash_attn.bert_padding": {
        "index_first_axis": index_first_axis,
        "index_put_first_axis": index_put_first_axis,
        "unpad_input": unpad_input,
        "pad_input": pad_input,
    },
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
        "rms_norm": lambda x, weight, eps: norm_fn("flash_attn", is_rms=True)(x, weight, None),
        "RMSNorm": norm_module("flash_attn", is_rms=True),
        "DropoutAddRMSNorm": _DropoutAddRMSNorm,
        "dropout_add_rms_norm": partial(_dropout_add_norm, is_rms=True),
    },
    "flash_attn.ops.layer_norm": {
        "layer_norm": lambda x, weight, bias, eps: norm_fn("flash_attn", is_rms=False)(
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
