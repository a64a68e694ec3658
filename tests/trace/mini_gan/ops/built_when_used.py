"""Ops of a GAN repository that build their extension when they are first used."""

from __future__ import annotations

import hashlib
import importlib
import os
import shutil

import torch
import torch.utils.cpp_extension

_nothing = torch.empty([0])
_plugins = {}


def plugin(name, sources):
    """Copies the sources to a build folder of their own, builds them there, and imports them."""
    if name not in _plugins:
        paths = [os.path.join(os.path.dirname(__file__), source) for source in sources]
        digest = hashlib.md5()
        for path in paths:
            with open(path, "rb") as file:
                digest.update(file.read())
        top = torch.utils.cpp_extension._get_build_directory(name, verbose=False)
        folder = os.path.join(top, f"{digest.hexdigest()}-{torch.cuda.get_device_name()}")
        os.makedirs(folder, exist_ok=True)
        copies = [shutil.copy(path, folder) for path in paths]
        torch.utils.cpp_extension.load(name=name, build_directory=folder, sources=copies)
        _plugins[name] = importlib.import_module(name)
    return _plugins[name]


class BiasAct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        call = plugin("bias_act_plugin", ["bias_act.cpp", "bias_act.cu"]).bias_act
        y = call(x, bias, _nothing, _nothing, _nothing, 0, 1, 3, 0.2, 2**0.5, -1)
        ctx.save_for_backward(y, bias)
        return y

    @staticmethod
    def backward(ctx, grad):
        y, bias = ctx.saved_tensors
        to_input = BiasActGradient.apply(grad, bias, y)
        return to_input, to_input.sum([0, 2, 3])


class BiasActGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, grad, bias, y):
        call = plugin("bias_act_plugin", []).bias_act
        ctx.save_for_backward(bias, y)
        return call(grad, bias, _nothing, y, _nothing, 1, 1, 3, 0.2, 2**0.5, -1)

    @staticmethod
    def backward(ctx, grad):
        return BiasActGradient.apply(grad, *ctx.saved_tensors), None, None


class FilteredLeaky(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, up_taps, down_taps, bias, signs, up, down, pad):
        kernels = plugin("filtered_lrelu_plugin", ["filtered_lrelu.cpp", "filtered_lrelu.cu"])
        signs = torch.empty([0]) if signs is None else signs
        if bias is None:
            bias = torch.zeros([x.shape[1]], dtype=x.dtype, device=x.device)
        writes = signs.numel() == 0 and (x.requires_grad or bias.requires_grad)
        call = (x, up_taps, down_taps, bias, signs, up, down, *pad, 0, 0, 1.4, 0.2, 256.0, False)
        y, written, code = kernels.filtered_lrelu(*call, writes)
        assert code >= 0
        ctx.save_for_backward(up_taps, down_taps, signs if signs.numel() else written)
        ctx.up, ctx.down, ctx.pad, ctx.x, ctx.y = up, down, pad, x.shape, y.shape
        return y

    @staticmethod
    def backward(ctx, grad):
        up_taps, down_taps, signs = ctx.saved_tensors
        taps = up_taps.shape[-1] - 1 + down_taps.shape[-1] - 1
        before = taps - ctx.pad[0]
        after = ctx.x[3] * ctx.up - ctx.y[3] * ctx.down + ctx.pad[0] - (ctx.up - 1)
        pad = (before, after, before, after)
        to_input = FilteredLeaky.apply(grad, down_taps, up_taps, None, signs, ctx.down, ctx.up, pad)
        return to_input, None, None, to_input.sum([0, 2, 3]), None, None, None, None
