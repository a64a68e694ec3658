"""An optimizer update with 8-bit state as one operator, as its libraries run one kernel for it.

State is kept as blocks of 256 values of a byte each with one fp32 scale (Dettmers et al. 2022,
arXiv 2110.02861); parameters of fewer than 4096 values keep theirs in fp32, as bitsandbytes does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_BLOCK = 256
_SMALLEST = 4096


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
        made = _states(parameter, moments)
        state.update({f"state{i}": one for i, one in enumerate(made)})
    _update("8-bit", parameter.grad, parameter.detach(), list(state.values()))


def _states(parameter: Tensor, moments: int) -> list[Tensor]:
    size = parameter.numel()
    if size < _SMALLEST:
        return [torch.zeros_like(parameter, dtype=torch.float32) for _ in range(moments)]
    made: list[Tensor] = []
    for _ in range(moments):
        made.append(torch.zeros(size, dtype=torch.uint8, device=parameter.device))
        scales = -(-size // _BLOCK)
        made.append(torch.zeros(scales, dtype=torch.float32, device=parameter.device))
    return made
