"""flash-attn: fused attention, each sequence by itself or many in one tensor.

Its attention keeps query, key, value, output and one number a row for the backward pass, nothing of
the size of the scores; backward takes the query's gradient in fp32 for a while. Sequences of
unequal lengths in one tensor (`varlen`) have those lengths where the trace knows them, and are
taken to be equally long where it does not.

Source: flash_attn 2.8 (flash_attn_interface.py, csrc/flash_attn/flash_api.cpp).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from outlay.trace.libraries.kernel_launch import constant_values, launch, note
from outlay.trace.traffic import rounded

Window = Sequence[int] | None
"""Positions to the left and to the right that a query sees; less than 0 is all of them."""
EVERYTHING = (-1, -1)
_HEAD_MULTIPLE = 8


# How many scores there are


def visible_scores(rows: float, columns: float, causal: bool, window: Window = None) -> float:
    """Scores of one head that are computed: all, half of them below a diagonal, or a band.

    Counted as torch's own attention is: of a causal mask half, without its diagonal's own half.
    """
    left, right = window or EVERYTHING
    if causal:
        right = 0
    if left < 0 and right < 0:
        return rows * columns
    if left < 0 and right == 0:
        return rows * columns / 2
    reach = min(rows, columns)
    below = reach * (reach + 1) / 2 if left < 0 else _band(reach, left)
    above = reach * (reach + 1) / 2 if right < 0 else _band(reach, right)
    return (
        (below + above - reach) * columns / max(reach, 1)
        if columns < rows
        else below + above - reach
    )


def _band(length: float, width: float) -> float:
    """Elements on the diagonal and up to `width` beside it, on one side, of a square."""
    width = min(width, length)
    return length * (width + 1) - width * (width + 1) / 2


def sequence_lengths(starts: Tensor | None, total: int, function: str) -> list[float]:
    """Lengths of the sequences in one tensor, from where each starts; equal ones if unknown."""
    values = constant_values(starts)
    if values is not None and len(values) > 1:
        return [end - start for start, end in itertools.pairwise(values)]
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
            q, k, v = tensors[0].unbind(-3)
            return q, k, v
        if self.packed == 2:
            return tensors[0], *tensors[1].unbind(-3)
        q, k, v = tensors
        return q, k, v

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
        q, k, v = (last_contiguous(tensor) for tensor in attention.split(tensors))
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
        grad = functional.pad(grad, (0, padding)) if padding else last_contiguous(grad)
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
            launch(
                f"{attention.library}.sum_heads", shared, results[1:], kind="reduction", launches=2
            )
        return None, *(result[..., : ctx.size] if padding else result for result in results)


def last_contiguous(tensor: Tensor) -> Tensor:
    """The tensor itself, or a copy whose last dimension has no gaps."""
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
    window_size: Window = EVERYTHING,
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
    window_size: Window = EVERYTHING,
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
    window_size: Window = EVERYTHING,
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
    window_size: Window = EVERYTHING,
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
    window_size: Window = EVERYTHING,
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
    window_size: Window = EVERYTHING,
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
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(
        0, (batch, seqlen)
    )


_FUNCTIONS: Mapping[str, object] = {
    "flash_attn_func": flash_attn_func,
    "flash_attn_kvpacked_func": flash_attn_kvpacked_func,
    "flash_attn_qkvpacked_func": flash_attn_qkvpacked_func,
    "flash_attn_varlen_func": flash_attn_varlen_func,
    "flash_attn_varlen_kvpacked_func": flash_attn_varlen_kvpacked_func,
    "flash_attn_varlen_qkvpacked_func": flash_attn_varlen_qkvpacked_func,
    "flash_attn_with_kvcache": _with_kvcache,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "flash_attn": {"__version__": "2.7.4", **_FUNCTIONS},
    "flash_attn.flash_attn_interface": {
        **_FUNCTIONS,
        "flash_attn_unpadded_func": flash_attn_varlen_func,
        "flash_attn_unpadded_kvpacked_func": flash_attn_varlen_kvpacked_func,
        "flash_attn_unpadded_qkvpacked_func": flash_attn_varlen_qkvpacked_func,
    },
    "flash_attn_interface": _FUNCTIONS,
    "flash_attn_2_cuda": {"__version__": "2.7.4"},
    "flash_attn.bert_padding": {
        "index_first_axis": index_first_axis,
        "index_put_first_axis": index_put_first_axis,
        "unpad_input": unpad_input,
        "pad_input": pad_input,
    },
}
