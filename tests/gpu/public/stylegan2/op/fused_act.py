"""Bias, leaky ReLU and gain, in plain PyTorch."""

import torch
from torch import nn
from torch.nn import functional as F


class FusedLeakyReLU(nn.Module):
    def __init__(self, channel, negative_slope=0.2, scale=2 ** 0.5):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channel))
        self.negative_slope = negative_slope
        self.scale = scale

    def forward(self, x):
        return fused_leaky_relu(x, self.bias, self.negative_slope, self.scale)


def fused_leaky_relu(x, bias, negative_slope=0.2, scale=2 ** 0.5):
    shape = (1, bias.shape[0]) + (1,) * (x.ndim - 2)
    return F.leaky_relu(x + bias.view(shape), negative_slope=negative_slope) * scale
