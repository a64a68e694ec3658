"""Bias, leaky ReLU and gain in one kernel, built when this is imported."""

import os
import warnings

import torch
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.utils.cpp_extension import load

module_path = os.path.dirname(__file__)
try:
    fused = load(
        'fused_act_plugin',
        sources=[
            os.path.join(module_path, 'csrc', 'fused_act.cpp'),
            os.path.join(module_path, 'csrc', 'fused_act_kernel.cu'),
        ],
    )
except Exception as error:
    warnings.warn(f'fused_act was not built ({type(error).__name__}); the slower plain version is used')
    fused = None


class FusedLeakyReLUFunctionBackward(Function):
    @staticmethod
    def forward(ctx, grad_output, out, negative_slope, scale):
        ctx.save_for_backward(out)
        ctx.negative_slope, ctx.scale = negative_slope, scale
        empty = grad_output.new_empty(0)
        return fused.fused_bias_act(grad_output.contiguous(), empty, out, 1, negative_slope, scale)

    @staticmethod
    def backward(ctx, gradgrad_input):
        out, = ctx.saved_tensors
        empty = gradgrad_input.new_empty(0)
        gradgrad_out = fused.fused_bias_act(
            gradgrad_input.contiguous(), empty, out, 1, ctx.negative_slope, ctx.scale)
        return gradgrad_out, None, None, None


class FusedLeakyReLUFunction(Function):
    @staticmethod
    def forward(ctx, x, bias, negative_slope, scale):
        empty = x.new_empty(0)
        out = fused.fused_bias_act(x.contiguous(), bias, empty, 0, negative_slope, scale)
        ctx.save_for_backward(out)
        ctx.negative_slope, ctx.scale = negative_slope, scale
        return out

    @staticmethod
    def backward(ctx, grad_output):
        out, = ctx.saved_tensors
        grad = FusedLeakyReLUFunctionBackward.apply(grad_output, out, ctx.negative_slope, ctx.scale)
        dims = [0, *range(2, grad.ndim)]
        return grad, grad.sum(dims), None, None


class FusedLeakyReLU(nn.Module):
    def __init__(self, channel, negative_slope=0.2, scale=2 ** 0.5):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(channel))
        self.negative_slope = negative_slope
        self.scale = scale

    def forward(self, x):
        return fused_leaky_relu(x, self.bias, self.negative_slope, self.scale)


def fused_leaky_relu(x, bias, negative_slope=0.2, scale=2 ** 0.5):
    if fused is None or x.device.type == 'cpu':
        shape = (1, bias.shape[0]) + (1,) * (x.ndim - 2)
        return F.leaky_relu(x + bias.view(shape), negative_slope=negative_slope) * scale
    return FusedLeakyReLUFunction.apply(x, bias, negative_slope, scale)
