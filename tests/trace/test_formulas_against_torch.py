"""Our FLOPs against torch.utils.flop_counter of the installed torch, on real (small) tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outlay.trace.formulas import attention_backward_flop, attention_flop, cost_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

pytestmark = pytest.mark.torch


def _our_flops(run: Callable[[], object]) -> float:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counter(TorchDispatchMode):
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

    with Counter() as counter:
        run()
    return counter.flops


def _their_flops(run: Callable[[], object]) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


def _both(run: Callable[..., Tensor], *tensors: Tensor) -> tuple[float, float]:
    """FLOPs of a forward and backward as torch counts them, and as we do."""

    def there_and_back() -> None:
        run(*tensors).sum().backward()

    return _their_flops(there_and_back), _our_flops(there_and_back)


def _tensor(*shape: int) -> Tensor:
    import torch

    return torch.randn(*shape, requires_grad=True)


def test_mm() -> None:
    theirs, ours = _both(lambda a, b: a @ b, _tensor(4, 6), _tensor(6, 5))
    assert ours == theirs == 3 * 240  # forward 2 * 4 * 6 * 5, and two gradients


def test_bmm() -> None:
    theirs, ours = _both(lambda a, b: a @ b, _tensor(3, 4, 6), _tensor(3, 6, 5))
    assert ours == theirs == 3 * 720


def test_linear_with_bias() -> None:
    from torch.nn import functional

    theirs, ours = _both(functional.linear, _tensor(4, 6), _tensor(5, 6), _tensor(5))
    assert ours == theirs == 3 * 240


@pytest.mark.parametrize("transposed", [False, True])
def test_conv(transposed: bool) -> None:
    from torch.nn import functional

    conv = functional.conv_transpose2d if transposed else functional.conv2d
    theirs, ours = _both(
        lambda x, w: conv(x, w, stride=2), _tensor(2, 8, 9, 9), _tensor(8, 8, 3, 3)
    )
    # 576 weights; 4x4 output positions, or 9x9 input positions when transposed
    assert ours == theirs == 3 * 2 * 2 * (81 if transposed else 16) * 576


@pytest.mark.parametrize("groups", [2, 4, 8])
def test_conv_grouped(groups: int) -> None:
    from torch.nn import functional

    x, weight = _tensor(2, 8, 9, 9).detach(), _tensor(8, 8 // groups, 3, 3)
    forward = _their_flops(lambda: functional.conv2d(x, weight, groups=groups))
    both = _our_flops(lambda: functional.conv2d(x, weight, groups=groups).sum().backward())
    # 576 / groups weights at 7x7 positions; the gradient of the weight takes as much again
    # (torch 2.13 leaves the groups out of it and counts `groups` times as much).
    assert forward == 2 * 2 * 49 * 576 // groups
    assert both == 2 * forward


def test_conv_of_data_has_no_input_gradient() -> None:
    from torch.nn import functional

    x = _tensor(2, 3, 6, 6).detach()
    theirs, ours = _both(lambda w: functional.conv2d(x, w), _tensor(8, 3, 3, 3))
    assert ours == theirs == 2 * 13_824


@pytest.mark.parametrize(("query_length", "key_length"), [(8, 8), (8, 12)])
def test_attention_matches_and_causal_is_half(query_length: int, key_length: int) -> None:
    from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

    q, k = _tensor(2, 3, query_length, 16), _tensor(2, 3, key_length, 16)
    forward = sdpa_flop_count(q.shape, k.shape, k.shape)
    backward = sdpa_backward_flop_count(q.shape, q.shape, k.shape, k.shape)
    assert attention_flop(q, k, k, causal=False) == forward
    assert attention_backward_flop(q, k, k, causal=False) == backward
    assert attention_flop(q, k, k, causal=True) == forward / 2
