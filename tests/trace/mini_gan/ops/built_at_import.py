"""Ops of a GAN repository whose extensions are built when this file is imported."""

from __future__ import annotations

import os

import torch
from torch.utils.cpp_extension import CUDA_HOME, load

assert CUDA_HOME is not None, "CUDA_HOME environment variable is not set"

HERE = os.path.dirname(__file__)
resampler = load(
    "upfirdn2d",
    sources=[os.path.join(HERE, name) for name in ("upfirdn2d.cpp", "upfirdn2d_kernel.cu")],
)
activations = load(
    "fused", sources=[os.path.join(HERE, "fused_bias_act.cpp"), os.path.join(HERE, "kernel.cu")]
)


def _resampled(x, taps, up, down, pad):
    """Images as the kernel wants them: one column of channels."""
    n, c, h, w = x.shape
    flat = x.reshape(-1, h, w, 1)
    out = resampler.upfirdn2d(flat, taps, up, up, down, down, *pad)
    return out.view(n, c, out.shape[1], out.shape[2])


class Resample(torch.autograd.Function):
    """Its gradient is itself, the other way round, and can be differentiated again."""

    @staticmethod
    def forward(ctx, x, taps, up, down, pad):
        out = _resampled(x, taps, up, down, pad)
        ctx.save_for_backward(taps)
        ctx.up, ctx.down = up, down
        height, width = taps.shape
        ctx.back = (
            width - pad[0] - 1,
            x.shape[3] * up - out.shape[3] * down + pad[0] - up + 1,
            height - pad[2] - 1,
            x.shape[2] * up - out.shape[2] * down + pad[2] - up + 1,
        )
        return out

    @staticmethod
    def backward(ctx, grad):
        (taps,) = ctx.saved_tensors
        return Resample.apply(grad, taps.flip([0, 1]), ctx.down, ctx.up, ctx.back), *[None] * 4


class LeakyGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad, out):
        ctx.save_for_backward(out)
        empty = grad.new_empty(0)
        to_input = activations.fused_bias_act(grad, empty, out, 3, 1, 0.2, 2**0.5)
        return to_input, to_input.sum((0, 2, 3)).detach()

    @staticmethod
    def backward(ctx, grad, grad_bias):
        (out,) = ctx.saved_tensors
        return activations.fused_bias_act(grad, grad_bias, out, 3, 1, 0.2, 2**0.5), None


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        out = activations.fused_bias_act(x, bias, x.new_empty(0), 3, 0, 0.2, 2**0.5)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return LeakyGradient.apply(grad, *ctx.saved_tensors)
