"""Fused norms over rows, and gated activations: what several libraries bring.

RMS norm and layer norm, with an addition or a dropout in the same kernel, and an activation times a
second tensor. Libraries (apex, flash-attn, Mamba, Liger) differ in their arguments and in what they
keep for the backward pass; the kernels are one forward and one backward, which sums the gradients
of weight and bias in parts and adds those up in a second launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from outlay.trace.libraries.kernel_launch import launch


@dataclass(frozen=True, slots=True, kw_only=True)
class RowNorm:
    """One kind of fused norm: what it computes, and what it keeps."""

    library: str
    is_rms: bool
    keeps_output: bool = False
    """Whether the backward pass starts from the output, so that the input is not kept."""
    prenorm: bool = False
    """Whether the sum that is normalised is a result too."""
    residual_dtype: torch.dtype | None = None
    """Of the sum, where there is no residual to take it from."""
    out_dtype: torch.dtype | None = None
    dropout_p: float = 0.0
    sums_by_multiprocessor: bool = False
    """Whether each multiprocessor sums the gradients of weight and bias in fp32 for itself."""
    in_place: bool = False
    """Whether the gradient takes the place of the output's."""
    dims: int = 1
    """Trailing dimensions that are normalised together."""

    @property
    def name(self) -> str:
        """Of its kernel."""
        return f"{self.library}.{'rms_norm' if self.is_rms else 'layer_norm'}"


def row_norm(
    norm: RowNorm,
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
) -> Any:
    """The normalised rows; with `prenorm`, also the sum of `x` and `residual`."""
    out, total = _RowNorm.apply(norm, x, weight, bias, residual)
    return (out, total) if norm.prenorm else out


class _RowNorm(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        norm: RowNorm,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        residual: Tensor | None,
    ) -> tuple[Tensor, Tensor | None]:
        x = x.contiguous()
        out = torch.empty_like(x, dtype=norm.out_dtype or x.dtype)
        total_dtype = norm.residual_dtype or x.dtype if residual is None else residual.dtype
        has_total = residual is not None or total_dtype != x.dtype or norm.dropout_p > 0
        total = torch.empty_like(x, dtype=total_dtype) if has_total else x
        mask = torch.empty_like(x, dtype=torch.uint8) if norm.dropout_p > 0 else None
        rows = (math.prod(x.shape[: x.dim() - norm.dims]),)
        rstd = x.new_empty(rows, dtype=torch.float32)
        mean = None if norm.is_rms or norm.keeps_output else torch.empty_like(rstd)
        written = [out, total if has_total else None, mask, mean, rstd]
        launch(norm.name, [x, residual, weight, bias], written, kind="norm")
        kept = out if norm.keeps_output else total
        ctx.save_for_backward(kept, weight, bias, mean, rstd, mask)
        ctx.set_materialize_grads(False)
        ctx.norm, ctx.dtype = norm, x.dtype
        ctx.has_residual = residual is not None
        if norm.prenorm and not has_total:
            total = x.detach()
        return out, total if norm.prenorm else None

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_total: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        kept, weight, bias, mean, rstd, mask = ctx.saved_tensors
        norm = ctx.norm
        if grad is None:
            return None, grad_total, None, None, grad_total if ctx.has_residual else None
        grad = grad.contiguous()
        to_total = grad if norm.in_place else torch.empty_like(kept)
        to_x = torch.empty_like(kept, dtype=ctx.dtype) if _differs(ctx, to_total) else to_total
        to_weight = None if weight is None else torch.empty_like(weight)
        to_bias = None if bias is None else torch.empty_like(bias)
        reads = [grad, kept, weight, mean, rstd, mask, grad_total]
        writes = [to_total, None if to_x is to_total else to_x, to_weight, to_bias]
        parts = _partial_sums(weight, bias) if norm.sums_by_multiprocessor else []
        launch(f"{norm.name}_backward", reads, [*writes, *parts], kind="norm", launches=2)
        del parts
        return None, to_x, to_weight, to_bias, to_total if ctx.has_residual else None


def _partial_sums(*parameters: Tensor | None) -> list[Tensor]:
    """Of weight and bias, one in fp32 for each multiprocessor."""
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    return [
        parameter.new_empty((multiprocessors, parameter.numel()), dtype=torch.float32)
        for parameter in parameters
        if parameter is not None
    ]


def _differs(ctx: Any, to_total: Tensor) -> bool:
    """Whether the gradient of the input is a tensor of its own beside that of the sum."""
    return bool(to_total.dtype != ctx.dtype or ctx.norm.dropout_p > 0)


class NormLayer(nn.Module):  # type: ignore[misc]
    """A module with a weight, and a bias where it has one, over its last dimensions."""

    norm = RowNorm(library="outlay", is_rms=True)

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        *,
        weight: bool = True,
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        shape = (
            (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        )
        self.normalized_shape = torch.Size(shape)
        options = {"device": device, "dtype": dtype}
        self.weight = nn.Parameter(torch.ones(shape, **options)) if weight else None
        self.bias = nn.Parameter(torch.zeros(shape, **options)) if bias else None

    def forward(self, x: Tensor) -> Any:
        """The rows of `x`, normalised."""
        return row_norm(self.norm, x, self.weight, self.bias)


# Gated activations


class _Gated(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, name: str, in_place: bool, x: Tensor, y: Tensor) -> Tensor:
        out = torch.empty_like(x)
        launch(name, [x, y], [out])
        ctx.save_for_backward(x, y)
        ctx.kernel, ctx.in_place = name, in_place
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, y = ctx.saved_tensors
        to_x, to_y = (x, y) if ctx.in_place else (torch.empty_like(x), torch.empty_like(y))
        launch(f"{ctx.kernel}_backward", [grad, x, y], [to_x, to_y])
        return None, None, to_x, to_y


def gated(name: str, x: Tensor, y: Tensor, *, in_place: bool = False) -> Any:
    """An activation of `x` times `y`; `in_place` puts the gradients where the inputs were."""
    return _Gated.apply(name, in_place, x, y)
