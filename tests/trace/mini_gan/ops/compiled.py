"""Ops whose compiled part would lie beside this file, and one that is built from text."""

from __future__ import annotations

from torch.utils.cpp_extension import load_inline

from . import fold_ext

inline = load_inline("inline", cpp_sources="", cuda_sources="", functions=["bias_act"])


def folded(x, bias):
    return fold_ext.fused_bias_act(x, bias, x.new_empty(0), 3, 0, 0.2, 1.4)


def activated(x, bias):
    return inline.bias_act(x, bias, *[x.new_empty(0)] * 3, 0, 1, 3, 0.2, 1.4, -1)
