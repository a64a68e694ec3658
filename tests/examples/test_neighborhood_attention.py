"""The operator against dense attention under a mask written straight from the definition."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from torch import Tensor

torch = pytest.importorskip("torch")

import neighborhood_attention as example  # noqa: E402

pytestmark = pytest.mark.torch

CASES = [  # height, width, kernel_size, dilation
    (7, 7, 7, 1),
    (8, 9, 7, 1),
    (6, 8, 3, 2),
    (15, 14, 7, 2),
    (10, 13, 3, 3),
]


def neighbours_of(position: int, length: int, kernel_size: int, dilation: int) -> list[int]:
    """Of all runs of `kernel_size` positions `dilation` apart, the one best centred."""
    line = range(position % dilation, length, dilation)
    runs = [line[start : start + kernel_size] for start in range(len(line) - kernel_size + 1)]
    return list(min(runs, key=lambda run: abs(run[kernel_size // 2] - position)))


def dense_bias(bias: Tensor, height: int, width: int, kernel_size: int, dilation: int) -> Tensor:
    """[heads, positions, positions]: the relative bias within a window, minus infinity outside."""
    dense = torch.full((bias.shape[0], height, width, height, width), -torch.inf, dtype=bias.dtype)
    for row in range(height):
        for column in range(width):
            for near_row in neighbours_of(row, height, kernel_size, dilation):
                for near_column in neighbours_of(column, width, kernel_size, dilation):
                    down = (near_row - row) // dilation + kernel_size - 1
                    across = (near_column - column) // dilation + kernel_size - 1
                    dense[:, row, column, near_row, near_column] = bias[:, down, across]
    return dense.reshape(bias.shape[0], height * width, height * width)


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, kernel_size: int, dilation: int
) -> Tensor:
    height, width = q.shape[1:3]
    query, key, value = (x.flatten(1, 2).transpose(1, 2) for x in (q, k, v))
    scores = query @ key.transpose(-1, -2) / q.shape[-1] ** 0.5
    weights = (scores + dense_bias(bias, height, width, kernel_size, dilation)).softmax(-1)
    return (weights @ value).transpose(1, 2).reshape(q.shape)


def arguments(height: int, width: int, kernel_size: int) -> list[Tensor]:
    heads, span = 2, 2 * kernel_size - 1
    shapes = [(2, height, width, heads, 4)] * 3 + [(heads, span, span)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize(("height", "width", "kernel_size", "dilation"), CASES)
def test_forward_and_backward_against_dense(
    height: int, width: int, kernel_size: int, dilation: int
) -> None:
    inputs = arguments(height, width, kernel_size)
    result, _ = example.neighborhood_attention(*inputs, kernel_size, dilation)
    expected = dense_attention(*inputs, kernel_size, dilation)
    torch.testing.assert_close(result, expected)

    weight = torch.randn_like(expected)
    gradients = torch.autograd.grad((result * weight).sum(), inputs)
    expected_gradients = torch.autograd.grad((expected * weight).sum(), inputs)
    for gradient, expected_gradient in zip(gradients, expected_gradients, strict=True):
        # The weights are recomputed from a float32 denominator, as in a fused kernel.
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-5, atol=1e-6)


def test_registration_agrees_with_what_runs() -> None:
    inputs = [x.float().detach().requires_grad_() for x in arguments(6, 8, 3)]
    torch.library.opcheck(
        example.neighborhood_attention,
        (*inputs, 3, 2),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


def test_fake_backward_has_the_shapes_of_the_real_one() -> None:
    q, k, v, bias = (x.detach() for x in arguments(6, 8, 3))
    out, log_sum = example.neighborhood_attention(q, k, v, bias, 3, 2)
    torch.library.opcheck(
        example.neighborhood_attention_backward,
        (torch.ones_like(out), q, k, v, bias, out, log_sum, 3, 2),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_flops_and_bytes_are_a_fused_kernels() -> None:
    q = k = v = torch.empty(2, 16, 16, 4, 32, device="meta")
    bias = torch.empty(4, 13, 13, device="meta")
    out = example.neighborhood_attention(q, k, v, bias, 7, 2)
    forward = (q, k, v, bias, 7, 2)
    # 2 products * 2 FLOPs * 2 images * 16 * 16 * 4 heads * 49 neighbours * 32 = 12,845,056
    assert example.forward_flops(*forward, out=out) == 12_845_056
    # q, k, v, out: 65,536 numbers each; bias 4 * 169; log sum 2,048; 4 bytes each
    assert example.tensor_bytes(*forward, out=out) == 4 * (4 * 65_536 + 676 + 2_048)

    backward = (out[0], q, k, v, bias, *out, 7, 2)
    grads = example.neighborhood_attention_backward(*backward)
    assert example.backward_flops(*backward, out=grads) == 12_845_056 * 5 // 2
    # read: grad, q, k, v, bias, out, log sum; written: three gradients of q's size, and bias's
    assert example.tensor_bytes(*backward, out=grads) == 4 * (8 * 65_536 + 2 * 676 + 2_048)


def test_window_wider_than_the_map_is_refused() -> None:
    with pytest.raises(ValueError, match="spans 14 positions, more than the 8"):
        example.windows_1d(8, 7, 2)
