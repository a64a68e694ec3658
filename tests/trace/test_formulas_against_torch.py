"""Our FLOPs against torch.utils.flop_counter of the installed torch, on real (small) tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import (
    FlopCounterMode,
    sdpa_backward_flop_count,
    sdpa_flop_count,
)

from outlay.trace.formulas import attention_backward_flop, attention_flop, cost_of

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.torch


class _Ours(TorchDispatchMode):
    flops = 0.0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        out = func(*args, **(kwargs or {}))
        self.flops += cost_of(str(func), args, kwargs or {}, out).flops
        return out


def _both(run: Callable[..., torch.Tensor], *tensors: torch.Tensor) -> tuple[float, float]:
    """FLOPs of a forward and backward as torch counts them, and as we do."""
    theirs, ours = FlopCounterMode(display=False), _Ours()
    with theirs:
        run(*tensors).sum().backward()
    with ours:
        run(*tensors).sum().backward()
    return theirs.get_total_flops(), ours.flops


def _tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def test_mm() -> None:
    theirs, ours = _both(lambda a, b: a @ b, _tensor(4, 6), _tensor(6, 5))
    assert ours == theirs == 3 * 240  # forward 2 * 4 * 6 * 5, and two gradients


def test_bmm() -> None:
    theirs, ours = _both(lambda a, b: a @ b, _tensor(3, 4, 6), _tensor(3, 6, 5))
    assert ours == theirs == 3 * 720


def test_linear_with_bias() -> None:

    theirs, ours = _both(functional.linear, _tensor(4, 6), _tensor(5, 6), _tensor(5))
    assert ours == theirs == 3 * 240


@pytest.mark.parametrize("transposed", [False, True])
def test_conv(transposed: bool) -> None:
    conv = functional.conv_transpose2d if transposed else functional.conv2d
    theirs, ours = _both(
        lambda x, w: conv(x, w, stride=2), _tensor(2, 8, 9, 9), _tensor(8, 8, 3, 3)
    )
    # 576 weights; 4x4 output positions, or 9x9 input positions when transposed
    assert ours == theirs == 3 * 2 * 2 * (81 if transposed else 16) * 576


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_conv_grouped(groups: int) -> None:
    x, weight = torch.randn(2, 8, 9, 9), _tensor(8, 8 // groups, 3, 3)
    with FlopCounterMode(display=False) as theirs:
        functional.conv2d(x, weight, groups=groups)
    _, ours = _both(lambda w: functional.conv2d(x, w, groups=groups), weight)
    # 576 / groups weights at 7x7 positions; the gradient of the weight takes as much again
    # (torch 2.13 leaves the groups out of it and counts `groups` times as much).
    assert theirs.get_total_flops() == 2 * 2 * 49 * 576 // groups
    assert ours == 2 * theirs.get_total_flops()


def test_conv_of_data_has_no_input_gradient() -> None:

    x = torch.randn(2, 3, 6, 6)
    theirs, ours = _both(lambda w: functional.conv2d(x, w), _tensor(8, 3, 3, 3))
    assert ours == theirs == 2 * 13_824


@pytest.mark.parametrize(("query_length", "key_length"), [(8, 8), (8, 12)])
def test_attention_formulas_match_and_causal_is_half(query_length: int, key_length: int) -> None:

    q, k = torch.empty(2, 3, query_length, 16), torch.empty(2, 3, key_length, 16)
    forward = sdpa_flop_count(q.shape, k.shape, k.shape)
    backward = sdpa_backward_flop_count(q.shape, q.shape, k.shape, k.shape)
    assert attention_flop(q, k, k, causal=False) == forward
    assert attention_backward_flop(q, k, k, causal=False) == backward
    assert attention_flop(q, k, k, causal=True) == forward / 2
