"""Kernels of StyleGAN: resampling filters, biases with an activation, and both in one.

They live in people's repositories as sources that are built when a file is imported (or first
used), by `torch.utils.cpp_extension`; repositories copy them from NVlabs' stylegan2-ada-pytorch and
stylegan3 (`upfirdn2d_plugin`, `bias_act_plugin`, `filtered_lrelu_plugin`) or from rosinality's
stylegan2-pytorch (`upfirdn2d`, `fused`). So the stand-ins are for functions of the built modules.
The autograd functions around them are the repository's own, and their gradients of any order call
the same kernels again.

FIR filters run on the plain fp32 units, whatever the tensors' dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from outlay.trace import traffic
from outlay.trace.libraries.fused import fused_op

# Assumes: filters of a few taps reach half of the bandwidth or of the plain fp32 peak, whichever is
# reached first, and those that hold their tiles in shared memory a quarter (guesses: every
# multiply-add loads from shared memory).
_FILTER_EFFICIENCY = 0.5
_TILED_EFFICIENCY = 0.25


# upfirdn2d: zeros put in between, padded, filtered, every n-th kept


def _resampled_size(size: int, up: int, down: int, before: int, after: int, taps: int) -> int:
    return (size * up + before + after - taps + down) // down


def _upfirdn2d(
    x: Tensor,
    f: Tensor,
    upx: int,
    upy: int,
    downx: int,
    downy: int,
    padx0: int,
    padx1: int,
    pady0: int,
    pady1: int,
    *_flip_and_gain: object,
) -> Tensor:
    """NVlabs: images (batch, channels, height, width). rosinality: (n, height, width, 1), in some
    copies (n, 1, height, width)."""
    taps_y, taps_x = f.shape
    batch, second, third, fourth = x.shape
    rows_second = not _flip_and_gain and second != 1
    height, width = (second, third) if rows_second else (third, fourth)
    out_y = _resampled_size(height, upy, downy, pady0, pady1, taps_y)
    out_x = _resampled_size(width, upx, downx, padx0, padx1, taps_x)
    if rows_second:
        return x.new_empty((batch, out_y, out_x, fourth))
    layout = torch.channels_last if _is_channels_last(x) else torch.contiguous_format
    return torch.empty(
        (batch, second, out_y, out_x), dtype=x.dtype, device=x.device, memory_format=layout
    )


def _is_channels_last(x: Tensor) -> bool:
    return bool(
        x.dim() == 4
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _upfirdn2d_flops(
    _x: Tensor, f: Tensor, upx: int, upy: int, *_: object, out: Tensor, **__: object
) -> float:
    """A multiply-add for each tap that meets no inserted zero."""
    return float(2 * math.prod(out.shape) * math.prod(f.shape) / (upx * upy))


_upfirdn2d_op = fused_op(
    "stylegan.upfirdn2d",
    _upfirdn2d,
    kind="elementwise",
    flops=_upfirdn2d_flops,
    efficiency=_FILTER_EFFICIENCY,
)


# bias_act: a bias is added, an activation taken, the result scaled and clamped


def _like_first(x: Tensor, *_: object) -> Tensor:
    return torch.empty_like(x)


_bias_act_op = fused_op("stylegan.bias_act", _like_first, kind="elementwise")
_fused_bias_act_op = fused_op("stylegan.fused_bias_act", _like_first, kind="elementwise")


# filtered_lrelu: bias, up by a filter, leaky ReLU, down by a filter, all in one kernel. What lies
# between is held in shared memory; the signs are kept for backward, two bits each.


def _filter_taps(f: Tensor) -> tuple[int, int]:
    return int(f.shape[0]), int(f.shape[-1])


def _upsampled(
    x: Tensor, fu: Tensor, up: int, padding: tuple[int, int, int, int]
) -> tuple[int, int]:
    """Height and width between the two filters."""
    taps_y, taps_x = _filter_taps(fu)
    px0, px1, py0, py1 = padding
    return x.shape[2] * up + py0 + py1 - (taps_y - 1), x.shape[3] * up + px0 + px1 - (taps_x - 1)


def _filtered_lrelu(
    x: Tensor,
    fu: Tensor,
    fd: Tensor,
    _b: Tensor,
    _si: Tensor,
    up: int,
    down: int,
    px0: int,
    px1: int,
    py0: int,
    py1: int,
    *others: Any,
) -> tuple[Tensor, Tensor, int]:
    """The result, the signs where they are to be written, and 0: there is a kernel."""
    height, width = _upsampled(x, fu, up, (px0, px1, py0, py1))
    taps_y, taps_x = _filter_taps(fd)
    out_y = (height - (taps_y - 1) + down - 1) // down
    out_x = (width - (taps_x - 1) + down - 1) // down
    writes_signs = bool(others[-1])
    y = x.new_empty((*x.shape[:2], out_y, out_x))
    signs = x.new_empty((0,), dtype=torch.uint8)
    if writes_signs:
        sign_y, sign_x = (
            out_y * down - (down - 1) + taps_y - 1,
            out_x * down - (down - 1) + taps_x - 1,
        )
        packed = traffic.rounded(sign_x, 16) // 4
        signs = x.new_empty((*x.shape[:2], sign_y, packed), dtype=torch.uint8)
    return y, signs, 0


def _filtered_lrelu_flops(
    x: Tensor,
    fu: Tensor,
    fd: Tensor,
    _b: Tensor,
    _si: Tensor,
    up: int,
    _down: int,
    px0: int,
    px1: int,
    py0: int,
    py1: int,
    *_: object,
    out: tuple[Tensor, Tensor, int],
) -> float:
    """A separable filter runs along rows, then along columns; any other over both at once.

    Of the filter that goes up only every `up`-th tap meets a value.
    """
    height, width = _upsampled(x, fu, up, (px0, px1, py0, py1))
    out_y, out_x = out[0].shape[2:]
    images = x.shape[0] * x.shape[1]
    up_y, up_x = (taps / up for taps in _filter_taps(fu))
    down_y, down_x = _filter_taps(fd)
    if fu.dim() == 1:
        going_up = x.shape[2] * width * up_x + height * width * up_x
    else:
        going_up = height * width * up_y * up_x
    if fd.dim() == 1:
        going_down = height * out_x * down_x + out_y * out_x * down_x
    else:
        going_down = out_y * out_x * down_y * down_x
    return float(2 * images * (going_up + going_down))


_filtered_lrelu_op = fused_op(
    "stylegan.filtered_lrelu",
    _filtered_lrelu,
    kind="elementwise",
    flops=_filtered_lrelu_flops,
    efficiency=_TILED_EFFICIENCY,
    launches=3,  # the filters are set up and copied to constant memory before
)


def _filtered_lrelu_act(
    x: Tensor, _si: Tensor, _sx: int, _sy: int, *others: Any
) -> tuple[Tensor, Tensor]:
    """The signs; the images are changed in place."""
    if not others[-1]:
        return x, x.new_empty((0,), dtype=torch.uint8)
    packed = traffic.rounded(x.shape[3], 16) // 4
    return x, x.new_empty((*x.shape[:3], packed), dtype=torch.uint8)


_filtered_lrelu_act_op = fused_op(
    "stylegan.filtered_lrelu_act", _filtered_lrelu_act, kind="elementwise"
)


def _act_in_place(*args: Any) -> Tensor:
    signs: Tensor = _filtered_lrelu_act_op(*args)[1]
    return signs


STAND_INS: Mapping[str, Mapping[str, object]] = {}
# Source: github.com/NVlabs/stylegan3, torch_utils/ops/*.cpp;
# github.com/rosinality/stylegan2-pytorch, op/fused_act.py and op/upfirdn2d.py
EXTENSIONS: Mapping[str, object] = {
    "upfirdn2d": _upfirdn2d_op,
    "bias_act": _bias_act_op,
    "fused_bias_act": _fused_bias_act_op,
    "filtered_lrelu": _filtered_lrelu_op,
    "filtered_lrelu_act_": _act_in_place,
}
