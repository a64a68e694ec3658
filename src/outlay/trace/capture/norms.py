"""RMS norm as CUDA runs it: one kernel forward and one backward.

A CPU build of torch has no kernel of its own for it and takes it apart into element-wise
operations, which would show traffic and memory that no GPU has. Here `rms_norm` of CUDA tensors
becomes two operators of outlay's own that keep what CUDA keeps: the input and one number a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

_registered: list[torch.library.Library] = []


def install() -> None:
    """Route RMS norm on CUDA tensors through `_RmsNorm`. Does nothing the second time."""
    if _registered:
        return
    own = torch.library.Library("outlay", "DEF")
    own.define("rms_norm(Tensor input, Tensor? weight) -> (Tensor, Tensor)")
    own.define(
        "rms_norm_backward(Tensor grad, Tensor input, Tensor rstd, Tensor? weight)"
        " -> (Tensor, Tensor)"
    )
    own.impl("rms_norm", _forward, "Meta")
    own.impl("rms_norm_backward", _backward, "Meta")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("rms_norm", _rms_norm, "AutogradCUDA")
    _registered.extend((own, aten))


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


def _forward(tensor: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor]:  # noqa: ARG001
    rows = (*tensor.shape[:-1], 1)
    return torch.empty_like(tensor), tensor.new_empty(rows, dtype=torch.float32)


def _backward(
    grad: Tensor,  # noqa: ARG001
    tensor: Tensor,
    rstd: Tensor,  # noqa: ARG001
    weight: Tensor | None,
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(tensor), torch.empty_like(tensor[0] if weight is None else weight)
