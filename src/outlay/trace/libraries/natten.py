"""NATTEN: neighborhood attention over lines, maps and volumes, fused and in two kernels.

Each of n-d positions meets the K = k ** n positions around it, whatever the dilation (Hassani et
al., arXiv 2204.07143). Fused (`na2d`, arXiv 2403.04690) it is two products forward and five
backward, and the weights stay in the kernel. In two kernels (`na2d_qk`, `na2d_av`, in older
versions `natten2dqkrpb` and `natten2dav`) all weights, positions x heads x K of them, are written
to memory, and softmax and dropout between them are torch's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from outlay.trace.libraries.fused import fused_op

Sizes = int | Sequence[int]


def _window(sizes: Sizes, dimensions: int) -> int:
    """Positions that each position attends to."""
    return sizes**dimensions if isinstance(sizes, int) else math.prod(sizes)


# Fused


def _attended(
    query: Tensor, _key: Tensor, value: Tensor, _window: int, *_more: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The result, and one number a row for backward."""
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


def _fused_flops(
    query: Tensor, _key: Tensor, value: Tensor, window: int, *_: object, **__: object
) -> float:
    """Scores and weighted values: two products."""
    rows = math.prod(query.shape[:-1])
    return float(2 * rows * window * (query.shape[-1] + value.shape[-1]))


def _fused_backward_flops(*args: Any, **kwargs: Any) -> float:
    """Five products where forward has two: the scores are computed again."""
    return 2.5 * _fused_flops(*args, **kwargs)


def _fused(dimensions: int) -> Callable[..., object]:
    op = fused_op(
        f"natten.na{dimensions}d",
        _attended,
        kind="attention",
        flops=_fused_flops,
        backward_flops=_fused_backward_flops,
        backward_launches=3,
        saved=lambda query, key, value, *_, out: (query, key, value, *out),
    )

    def attend(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kernel_size: Sizes,
        *_positional: object,
        rpb: Tensor | None = None,
        additional_keys: Tensor | None = None,
        additional_values: Tensor | None = None,
        return_lse: bool = False,
        **_options: object,
    ) -> object:
        """`na1d`, `na2d`, `na3d`: tensors are (batch, positions ..., heads, channels)."""
        window = _window(kernel_size, dimensions)
        if additional_keys is not None:
            window += additional_keys.shape[1]
        more = [
            tensor for tensor in (rpb, additional_keys, additional_values) if tensor is not None
        ]
        q, k, v = (tensor.contiguous() for tensor in (query, key, value))
        out, log_sum = op(q, k, v, window, *more)
        return (out, log_sum) if return_lse else out

    attend.__name__ = f"na{dimensions}d"
    return attend


def _dense(
    query: Tensor, key: Tensor, value: Tensor, *_: object, return_lse: bool = False, **__: object
) -> object:
    """`natten.attention`: every position with every other; (batch, positions, heads, channels)."""
    out, log_sum = _dense_op(*(tensor.contiguous() for tensor in (query, key, value)), key.shape[1])
    return (out, log_sum) if return_lse else out


_dense_op = fused_op(
    "natten.attention",
    _attended,
    kind="attention",
    flops=_fused_flops,
    backward_flops=_fused_backward_flops,
    backward_launches=3,
    saved=lambda query, key, value, *_, out: (query, key, value, *out),
)


# In two kernels

# Assumes: a tenth of what the GPU could do (a guess). Fused kernels are on average 3.6 times as
# fast in 2-d as the best unfused ones (958 % against 193 % above the first ones in half precision,
# arXiv 2403.04690), and reach a third to a half themselves.
_UNFUSED_EFFICIENCY = 0.1


def _scores(query: Tensor, _key: Tensor, window: int, *_more: Tensor) -> Tensor:
    return query.new_empty((*query.shape[:-1], window))


def _scores_flops(query: Tensor, _key: Tensor, window: int, *_: object, **__: object) -> float:
    return float(2 * math.prod(query.shape) * window)


def _weighted(_weights: Tensor, value: Tensor, *_more: Tensor) -> Tensor:
    return torch.empty_like(value)


def _weighted_flops(weights: Tensor, value: Tensor, *_: object, **__: object) -> float:
    return float(2 * math.prod(value.shape) * weights.shape[-1])


def _cast(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """As these kernels get them: dense, and in fp16 under autocast, whatever its dtype."""
    half = torch.is_autocast_enabled("cuda")
    return tuple(
        None if tensor is None else (tensor.half() if half else tensor).contiguous()
        for tensor in tensors
    )


def _unfused(dimensions: int) -> dict[str, Callable[..., Tensor]]:
    """Both kernels for one number of dimensions, under the names of every version."""
    name = f"na{dimensions}d"
    scores_op = fused_op(
        f"natten.{name}_qk",
        _scores,
        kind="attention",
        flops=_scores_flops,
        efficiency=_UNFUSED_EFFICIENCY,
        backward_launches=3,
        saved=lambda query, key, *_, out: (query, key),  # noqa: ARG005
    )
    weighted_op = fused_op(
        f"natten.{name}_av",
        _weighted,
        kind="attention",
        flops=_weighted_flops,
        efficiency=_UNFUSED_EFFICIENCY,
        backward_launches=2,
    )

    def scores(query: Tensor, key: Tensor, window: int, *more: Tensor | None) -> Tensor:
        q, k, *rest = _cast(query, key, *more)
        result: Tensor = scores_op(q, k, window, *(t for t in rest if t is not None))
        return result

    def qk(
        query: Tensor,
        key: Tensor,
        kernel_size: Sizes,
        dilation: Sizes = 1,  # noqa: ARG001
        additional_keys: Tensor | None = None,
        is_causal: object = False,  # noqa: ARG001
        rpb: Tensor | None = None,
    ) -> Tensor:
        window = _window(kernel_size, dimensions)
        window += 0 if additional_keys is None else additional_keys.shape[-2]
        return scores(query, key, window, rpb, additional_keys)

    def qk_with_bias(
        query: Tensor, key: Tensor, bias: Tensor | None, kernel_size: Sizes, *_: object, **__: Any
    ) -> Tensor:
        return scores(query, key, _window(kernel_size, dimensions), bias)

    def old_qk(query: Tensor, key: Tensor, *sizes: Any, **named: Any) -> Tensor:
        return scores(query, key, _old_window(dimensions, sizes, named))

    def old_qkrpb(
        query: Tensor, key: Tensor, rpb: Tensor | None, *sizes: Any, **named: Any
    ) -> Tensor:
        """Until version 0.14 the table alone told the size of the window."""
        if rpb is None:
            return old_qk(query, key, *sizes, **named)
        window = math.prod((size + 1) // 2 for size in rpb.shape[1:])
        return scores(query, key, window, rpb)

    def av(attn: Tensor, value: Tensor, *_: object, **named: Any) -> Tensor:
        more = named.get("additional_values")
        weights, v, *rest = _cast(attn, value, more)
        result: Tensor = weighted_op(weights, v, *(t for t in rest if t is not None))
        return result

    return {
        f"{name}_qk": qk,
        f"{name}_qk_with_bias": qk_with_bias,
        f"{name}_av": av,
        f"natten{dimensions}dqkrpb": old_qkrpb,
        f"natten{dimensions}dqk": old_qk,
        f"natten{dimensions}dav": av,
    }


def _old_window(dimensions: int, sizes: Sequence[int], named: Mapping[str, int]) -> int:
    """In 3-d the depth of the window had a size of its own."""
    if dimensions == 3:
        depth, size = (*sizes, *(named[n] for n in ("kernel_size_d", "kernel_size") if n in named))[
            :2
        ]
        return int(depth * size**2)
    return int((sizes[0] if sizes else named["kernel_size"]) ** dimensions)


# Modules


_fused_is_on = False


def _use_fused(mode: bool = True, *_: object, **__: object) -> None:
    """`use_fused_na`: modules of versions that had both take the fused kernel."""
    global _fused_is_on
    _fused_is_on = bool(mode)


class _NeighborhoodAttention(nn.Module):  # type: ignore[misc]
    """A layer with its linear parts. Versions before 0.20 had a table of positional biases
    (`rel_pos_bias`, before 0.15 `bias`) and dropout of the weights, and two kernels by default."""

    dimensions = 2

    def __init__(
        self,
        dim: int | None = None,
        num_heads: int = 1,
        kernel_size: Sizes = 7,
        *_positional: object,
        embed_dim: int | None = None,
        qkv_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__()
        width = dim or embed_dim or num_heads
        self.num_heads, self.head_dim = num_heads, width // num_heads
        self.scale = options.get("qk_scale") or self.head_dim**-0.5
        sizes = (kernel_size,) * self.dimensions if isinstance(kernel_size, int) else kernel_size
        self.kernel_size = tuple(sizes)
        self.is_old = {"rel_pos_bias", "bias", "attn_drop"} & {*options} or attn_drop > 0
        self.qkv = nn.Linear(width, 3 * width, bias=qkv_bias)
        self.rpb: nn.Parameter | None = None
        if options.get("rel_pos_bias") or options.get("bias"):
            table = torch.zeros(num_heads, *(2 * size - 1 for size in self.kernel_size))
            self.rpb = nn.Parameter(nn.init.trunc_normal_(table, std=0.02))
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(width, width)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: Tensor) -> Tensor:
        """A tensor of the same shape, (batch, positions ..., channels)."""
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim))
        q, k, v = qkv.unbind(-3)
        attended = (
            self._in_two(q, k, v) if self.is_old and not _fused_is_on else self._fused(q, k, v)
        )
        return self.proj_drop(self.proj(attended.flatten(-2)))

    def _fused(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        functions = STAND_INS["natten.functional"]
        attend: Any = functions[f"na{self.dimensions}d"]
        result: Tensor = attend(q, k, v, self.kernel_size, rpb=self.rpb)
        return result

    def _in_two(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        functions: Any = STAND_INS["natten.functional"]
        q, k, v = (tensor.movedim(-2, 1) for tensor in (q * self.scale, k, v))
        name = f"na{self.dimensions}d"
        weights = functions[f"{name}_qk"](q, k, self.kernel_size, rpb=self.rpb).softmax(-1)
        weights = self.attn_drop(weights)
        result: Tensor = functions[f"{name}_av"](weights, v, self.kernel_size)
        return result.movedim(1, -2)


_MODULES = {
    f"NeighborhoodAttention{n}D": type(
        f"NeighborhoodAttention{n}D", (_NeighborhoodAttention,), {"dimensions": n}
    )
    for n in (1, 2, 3)
}


# What the package has


def _yes(*_: object, **__: object) -> bool:
    return True


def _no_setting(*_: object, **__: object) -> None:
    """Settings of the kernels change nothing of what is counted."""


_FUNCTIONS: dict[str, object] = {
    "attention": _dense,
    **{f"na{n}d": _fused(n) for n in (1, 2, 3)},
    **{name: function for n in (1, 2, 3) for name, function in _unfused(n).items()},
}


def _generic(query: Tensor, *args: Any, **kwargs: Any) -> object:
    """`neighborhood_attention_generic`: as many dimensions as the tensors have."""
    attend: Any = _FUNCTIONS[f"na{query.dim() - 3}d"]
    return attend(query, *args, **kwargs)


_FUNCTIONS["neighborhood_attention_generic"] = _generic
_SETTINGS: dict[str, object] = {
    "use_fused_na": _use_fused,
    "disable_fused_na": partial(_use_fused, False),
    "is_fused_na_enabled": lambda: _fused_is_on,
    **dict.fromkeys(("has_cuda", "has_gemm", "has_fna", "has_fused_na", "has_half"), _yes),
    **dict.fromkeys(("has_bfloat", "has_fp64_gemm", "has_tf32_gemm", "has_full_gemm"), _yes),
    **dict.fromkeys(
        (
            "use_autotuner",
            "disable_autotuner",
            "use_kv_parallelism_in_fused_na",
            "disable_kv_parallelism_in_fused_na",
            "set_memory_usage_preference",
            "use_deterministic_algorithms",
            "use_gemm_na",
            "disable_gemm_na",
            "use_tiled_na",
            "disable_tiled_na",
            "use_tf32_in_gemm_na",
            "disable_tf32_in_gemm_na",
            "enable_gemm_na",
            "enable_tiled_na",
            "enable_tf32",
            "disable_tf32",
        ),
        _no_setting,
    ),
}
# Source: github.com/SHI-Labs/NATTEN, src/natten/__init__.py, functional.py and modules.py of
# versions 0.14, 0.17 and 0.21.
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "natten": {"__version__": "0.21.0", **_FUNCTIONS, **_SETTINGS, **_MODULES},
    "natten.functional": _FUNCTIONS,
    "natten.context": _SETTINGS,
    "natten.modules": _MODULES,
    **{
        f"natten.{module}{n}d": {
            f"NeighborhoodAttention{n}D": _MODULES[f"NeighborhoodAttention{n}D"]
        }
        for n in (1, 2, 3)
        for module in ("na", "natten")
    },
}
