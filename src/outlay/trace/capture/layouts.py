"""Convolutions keep channels last, as they do with cuDNN.

torch asks the backend of a convolution for the layout of its results. A CPU build has no cuDNN to
ask and answers with the plain one, and every operator after the first convolution follows it.
Here the rule is cuDNN's: channels last where the input or the weight is, fp64 apart.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._prims_common import suggest_memory_format

# Source: cudnn_conv_suggest_memory_format in aten/src/ATen/native/ConvUtils.h
_WITHOUT_CHANNELS_LAST = torch.float64
_aten = torch.ops.aten


def convolution(x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """What `aten.convolution` returns, laid out as cuDNN lays it out."""
    out = _aten.convolution.default(x, weight, *args, **kwargs)
    return _laid_out(out, _layout(x, weight))


def convolution_backward(
    grad_out: Tensor, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor | None, ...]:
    """What `aten.convolution_backward` returns; the bias has no layout."""
    out = _aten.convolution_backward.default(grad_out, x, weight, *args, **kwargs)
    to_input, to_weight, to_bias = out
    layout = _layout(x, weight)
    return _gradient(to_input, layout), _gradient(to_weight, layout), to_bias


def _gradient(tensor: Tensor | None, layout: torch.memory_format) -> Tensor | None:
    return None if tensor is None else _laid_out(tensor, layout)


def _layout(x: Tensor, weight: Tensor) -> torch.memory_format:
    layouts = [suggest_memory_format(tensor) for tensor in (x, weight)]
    if _WITHOUT_CHANNELS_LAST in (x.dtype, weight.dtype) or x.dim() != weight.dim():
        return torch.contiguous_format
    return next((one for one in layouts if one != torch.contiguous_format), layouts[0])


def _laid_out(tensor: Tensor, layout: torch.memory_format) -> Tensor:
    if tensor.dim() not in (4, 5) or tensor.is_contiguous(memory_format=layout):
        return tensor
    return torch.empty_like(tensor, memory_format=layout)
