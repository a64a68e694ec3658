"""Steps with NATTEN, which is not installed: 2 heads of 16 channels, windows of 7."""

from __future__ import annotations

import natten
import torch
from natten import NeighborhoodAttention2D, na4d
from natten.functional import (
    na1d,
    na2d,
    na2d_av,
    na2d_qk,
    na3d,
    natten2dav,
    natten2dqkrpb,
)
from torch import nn

natten.use_autotuner(True)


def _fused(n, attend, *positions):
    q, k, v = (torch.randn(n, *positions, 2, 16, requires_grad=True) for _ in range(3))
    return lambda: attend(q, k, v, 7, dilation=1).sum().backward()


def fused_1d(n):
    return _fused(n, na1d, 64)


def fused_2d(n):
    return _fused(n, na2d, 16, 16)


def fused_3d(n):
    return _fused(n, na3d, 8, 8, 8)


def _unfused(n, scores, weighted):
    q, k, v = (torch.randn(n, 2, 16, 16, 16, requires_grad=True) for _ in range(3))
    bias = nn.Parameter(torch.zeros(2, 13, 13))
    return lambda: weighted(scores(q, k, bias).softmax(-1), v).sum().backward()


def unfused(n):
    return _unfused(
        n,
        lambda q, k, bias: na2d_qk(q, k, kernel_size=7, dilation=2, rpb=bias),
        lambda weights, v: na2d_av(weights, v, kernel_size=7, dilation=2),
    )


def unfused_by_its_old_name(n):
    return _unfused(
        n,
        lambda q, k, bias: natten2dqkrpb(q, k, bias, 7, 2),
        lambda weights, v: natten2dav(weights, v, 7, 2),
    )


def layer(n):
    attention = NeighborhoodAttention2D(embed_dim=32, num_heads=2, kernel_size=7, stride=2)
    x = torch.randn(n, 16, 16, 32)
    return lambda: attention(x).sum().backward()


def layer_with_a_table_of_biases(n):
    attention = NeighborhoodAttention2D(dim=32, num_heads=2, kernel_size=7, rel_pos_bias=True)
    x = torch.randn(n, 16, 16, 32)
    return lambda: attention(x).sum().backward()


def no_such_kernel(n):
    x = torch.randn(n, 16)
    return lambda: na4d(x, x, x, 7)
