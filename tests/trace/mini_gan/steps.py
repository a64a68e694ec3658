"""Steps of a small GAN repository: 8 images of 3 x 16 x 16, kernels in extensions.

Its ops are of the shape of StyleGAN's, which are built when they are imported or first used.
"""

from __future__ import annotations

import importlib.util

import swirl_cuda
import torch
from kept_with_source import checked
from launches import Swirl, swirl
from ops.built_at_import import Leaky, Resample
from ops.built_when_used import BiasAct, FilteredLeaky
from ops.compiled import activated, folded
from torch import nn

import outlay

try:
    import natten
except ImportError:
    natten = None

outlay.register_op(
    "swirl_cuda.twist",
    shapes=lambda x, turns: [(x.shape[0], turns, *x.shape[2:]), (x.shape[0],)],
    flops=lambda x, turns, out: 2 * out[0].numel() * turns,
    kind="gemm",
)
outlay.register_op("launches.swirl", flops=lambda x, out: 3 * out.numel(), efficiency=0.5)
outlay.register_op("launches.Swirl.forward", shapes=lambda layer, x: x.shape[:2])


def resampled_with_a_penalty(n):
    """Twice as large, then the squared gradient of its sum: the gradient of a gradient."""
    x = torch.randn(n, 3, 16, 16, requires_grad=True)
    taps = torch.ones(4, 4)
    scale = nn.Parameter(torch.ones(()))

    def step():
        out = Resample.apply(x * scale, taps, 2, 1, (2, 1, 2, 1))
        (gradient,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        gradient.square().sum().backward()

    return step


def activated_with_a_penalty(n):
    x = torch.randn(n, 3, 16, 16, requires_grad=True)
    bias = nn.Parameter(torch.zeros(3))

    def step():
        (gradient,) = torch.autograd.grad(Leaky.apply(x, bias).sum(), x, create_graph=True)
        gradient.square().sum().backward()

    return step


def built_when_used(n):
    x = torch.randn(n, 3, 16, 16, requires_grad=True)
    bias = nn.Parameter(torch.zeros(3))

    def step():
        (gradient,) = torch.autograd.grad(BiasAct.apply(x, bias).sum(), x, create_graph=True)
        gradient.square().sum().backward()

    return step


def filtered(n):
    """Up and down by two with twelve taps along rows and columns, as between two layers."""
    x = torch.randn(n, 3, 16, 16, requires_grad=True)
    bias = nn.Parameter(torch.zeros(3))
    taps = torch.ones(12)

    def step():
        pad = (11, 11, 11, 11)
        FilteredLeaky.apply(x, taps, taps, bias, None, 2, 2, pad).sum().backward()

    return step


def compiled_beside_its_file_and_built_from_text(n):
    x, bias = torch.randn(n, 3, 16, 16), torch.zeros(3)
    return lambda: activated(folded(x, bias), bias)


@checked
class Kept(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.randn(width, width))
        self.register_buffer("taps", torch.ones(4))


def kept_with_its_source(n):
    kept = Kept(16)
    x = torch.randn(n, 16)
    return lambda: (x @ kept.weight).sum().backward()


def told_in_three_lines(n):
    x = torch.randn(n, 3, 16, 16, requires_grad=True)

    def step():
        twisted, angles = swirl_cuda.twist(x, 5)
        (twisted.sum() + angles.sum()).backward()

    return step


def launched_from_python(n):
    """Functions of one's own that launch kernels: what they launch is not run."""
    x = torch.randn(n, 3, 16, 16, requires_grad=True)
    layer = Swirl()
    return lambda: layer(swirl(x)).sum().backward()


def not_known(n):
    x = torch.randn(n, 3, 16, 16)
    return lambda: swirl_cuda.fold(x, 2).mul_(2)


def asks_what_is_there(n):
    """A GPU machine may have these; this Python has not, and a trace says no less."""
    assert natten is None
    assert importlib.util.find_spec("natten") is None
    x = torch.randn(n, 16)
    return lambda: x.mul_(2)
