"""Deformable convolution and attention: mmcv, Deformable-DETR's extension, DCNv2, DCNv3 and DCNv4.

All of them look values up between four pixels each. Deformable convolutions write what they looked
up into columns and multiply those with the weight, one or a few images at a time; the others add
it up at once, and keep nothing but their arguments.

Looking up is counted as moving data: four pixels read for each value, and in backward read again,
read and added to. Assumes: the four are fetched each time, as neighbouring queries look elsewhere.

Source: mmcv 2.2 (ops/csrc/pytorch/deform_conv.cpp, modulated_deform_conv.cpp,
ops/csrc/common/cuda/ms_deform_attn_cuda_kernel.cuh), DCNv4 1.0.0 (functions/dcnv4_func.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

from outlay.trace.libraries.kernel_launch import launch
from outlay.trace.traffic import tensor_bytes

_CORNERS = 4
_IM2COL_STEP = 32


def _looked_up_bytes(samples: int, channels: int, itemsize: int) -> float:
    """Bytes of the pixels around every sample, in all channels that it is taken of."""
    return _CORNERS * samples * channels * itemsize


def _sample(name: str, reads: Sequence[Tensor], writes: Sequence[Tensor], looked_up: float) -> None:
    """A kernel that looks values of its first tensor up, and passes over the others once."""
    moved = looked_up + tensor_bytes(*reads[1:]) + tensor_bytes(*writes)
    launch(name, reads, writes, kind="embedding", moved_bytes=moved)


# Convolutions: columns of looked-up values, times the weight


class _Columns:
    """The columns of a deformable convolution, for so many images at a time."""

    def __init__(self, x: Tensor, weight: Tensor, out: Tensor, images: int) -> None:
        self.x, self.weight, self.out = x, weight, out
        self.images = min(images, x.shape[0])
        self.times = -(-x.shape[0] // self.images)
        self.positions = math.prod(out.shape[2:])
        self.rows = x.shape[1] * math.prod(weight.shape[2:])
        self.looked_up = _looked_up_bytes(
            x.shape[0] * self.positions * self.rows, 1, x.dtype.itemsize
        )

    def empty(self) -> Tensor:
        """The buffer that all images share."""
        return self.x.new_empty((self.rows, self.images * self.positions))

    @property
    def all_bytes(self) -> float:
        """Of the columns of all images."""
        return float(self.rows * self.x.shape[0] * self.positions * self.x.dtype.itemsize)

    def look_up(self, columns: Tensor, *others: Tensor | None) -> None:
        """Fill the columns of all images."""
        moved = self.looked_up + tensor_bytes(*_present(others)) + self.all_bytes
        launch(
            "mmcv.deformable_im2col",
            [self.x, *others],
            [columns],
            kind="embedding",
            moved_bytes=moved,
            launches=self.times,
        )

    def multiply(self, name: str, reads: Sequence[Tensor], write: Tensor) -> None:
        """A product with as many FLOPs as the convolution, in as many parts as there are."""
        flops = 2 * self.x.shape[0] * self.positions * math.prod(self.weight.shape)
        moved = self.all_bytes + tensor_bytes(self.out) + self.times * tensor_bytes(self.weight)
        launch(
            name, reads, [write], kind="gemm", flops=flops, moved_bytes=moved, launches=self.times
        )


def _present(tensors: Sequence[Tensor | None]) -> list[Tensor]:
    return [tensor for tensor in tensors if tensor is not None]


def _convolve(
    x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None, out: Tensor, images: int
) -> None:
    """Fill the output of a deformable convolution."""
    parts = _Columns(x, weight, out, images)
    columns = parts.empty()
    parts.look_up(columns, offset, mask)
    parts.multiply("mmcv.deformable_product", [weight.flatten(1), columns], out.flatten(2))


def _input_gradients(
    parts: _Columns, grad: Tensor, others: Sequence[Tensor | None], results: Sequence[Tensor | None]
) -> None:
    """Fill the gradients of the input, the offsets and the mask."""
    columns = parts.empty()
    weight = parts.weight.flatten(1)
    each = columns.expand(parts.times, -1, -1)  # one after another in the same place
    parts.multiply("mmcv.deformable_input_backward", [weight, grad.flatten(2)], each)
    moved = 3 * parts.looked_up + parts.all_bytes + tensor_bytes(*_present(results))
    launch(
        "mmcv.deformable_col2im",
        [columns, parts.x, *others],
        results,
        kind="embedding",
        moved_bytes=moved,
        launches=2 * parts.times,
    )


def _weight_gradient(
    parts: _Columns, grad: Tensor, others: Sequence[Tensor | None], result: Tensor
) -> None:
    """Fill the gradient of the weight, which looks the columns up again."""
    columns = parts.empty()
    parts.look_up(columns, *others)
    parts.multiply("mmcv.deformable_weight_backward", [grad.flatten(2), columns], result.flatten(1))


class _DeformableConvolution(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        offset: Tensor,
        mask: Tensor | None,
        weight: Tensor,
        bias: Tensor | None,
        shape: Sequence[int],
        images: int,
    ) -> Tensor:
        out = x.new_empty(shape)
        _convolve(x, weight, offset, mask, out, images)
        if bias is not None:
            launch("mmcv.add_bias", [out, bias], [out])
        ctx.save_for_backward(x, offset, mask, weight, bias)
        ctx.images = images
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, offset, mask, weight, bias = ctx.saved_tensors
        grad = grad.contiguous()
        parts = _Columns(x, weight, grad, ctx.images)
        to_x, to_offset, to_weight = (torch.zeros_like(t) for t in (x, offset, weight))
        to_mask = None if mask is None else torch.zeros_like(mask)
        _input_gradients(parts, grad, [offset, mask], [to_x, to_offset, to_mask])
        _weight_gradient(parts, grad, [offset, mask], to_weight)
        to_bias = None if bias is None else grad.sum((0, 2, 3))
        return to_x, to_offset, to_mask, to_weight, to_bias, None, None


def _out_shape(
    x: Tensor, weight: Tensor, stride: object, padding: object, dilation: object
) -> tuple[int, ...]:
    sides = [
        (side + 2 * pad - gap * (kernel - 1) - 1) // step + 1
        for side, kernel, step, pad, gap in zip(
            x.shape[2:],
            weight.shape[2:],
            _pair(stride),
            _pair(padding),
            _pair(dilation),
            strict=True,
        )
    ]
    return (x.shape[0], weight.shape[0], *sides)


def deform_conv2d(
    x: Tensor,
    offset: Tensor,
    weight: Tensor,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
    deform_groups: int = 1,
    bias: bool = False,
    im2col_step: int = _IM2COL_STEP,
) -> Tensor:
    """A convolution whose positions are moved by the offsets."""
    del groups, deform_groups, bias
    shape = _out_shape(x, weight, stride, padding, dilation)
    result: Tensor = _DeformableConvolution.apply(
        x, offset.type_as(x), None, weight.type_as(x), None, shape, im2col_step
    )
    return result


def modulated_deform_conv2d(
    x: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: object = 1,
    padding: object = 0,
    dilation: object = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> Tensor:
    """The same with a factor for each looked-up value; one image at a time."""
    del groups, deform_groups
    shape = _out_shape(x, weight, stride, padding, dilation)
    result: Tensor = _DeformableConvolution.apply(
        x, offset.type_as(x), mask.type_as(x), weight.type_as(x), bias, shape, 1
    )
    return result


class _DeformConv2d(nn.Module):  # type: ignore[misc]
    is_modulated = False
    has_offsets = False
    """Whether it computes the offsets, and factors, itself."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool | str | None = None,
        im2col_step: int = _IM2COL_STEP,
        **renamed: Any,
    ) -> None:
        super().__init__()
        deform_groups = renamed.get("deformable_groups", deform_groups)
        self.kernel_size = _pair(kernel_size)
        self.stride, self.padding, self.dilation = _pair(stride), _pair(padding), _pair(dilation)
        self.groups, self.deform_groups, self.im2col_step = groups, deform_groups, im2col_step
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = nn.Parameter(torch.zeros(shape))
        has_bias = self.is_modulated if bias is None else bool(bias)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if has_bias else None
        if self.has_offsets:
            per_position = (3 if self.is_modulated else 2) * math.prod(self.kernel_size)
            self.conv_offset = nn.Conv2d(
                in_channels,
                deform_groups * per_position,
                self.kernel_size,
                self.stride,
                self.padding,
                self.dilation,
            )

    def forward(
        self, x: Tensor, offset: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """The convolved images."""
        if self.has_offsets:
            offset, mask = self._offsets(x)
        sides = (self.stride, self.padding, self.dilation)
        if mask is None:
            return deform_conv2d(x, offset, self.weight, *sides, im2col_step=self.im2col_step)
        return modulated_deform_conv2d(x, offset, mask, self.weight, self.bias, *sides)

    def _offsets(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        out = self.conv_offset(x)
        if not self.is_modulated:
            return out, None
        first, second, mask = out.chunk(3, 1)
        return torch.cat((first, second), 1), mask.sigmoid()


class _DeformConv2dPack(_DeformConv2d):
    has_offsets = True


class _ModulatedDeformConv2d(_DeformConv2d):
    is_modulated = True


class _ModulatedDeformConv2dPack(_ModulatedDeformConv2d):
    has_offsets = True


# Functions of compiled modules, which fill tensors they are given


def _deform_conv_forward(
    x: Tensor, weight: Tensor, offset: Tensor, out: Tensor, *others: Any, **options: Any
) -> int:
    images = int(options.get("im2col_step", others[-1] if len(others) > 2 else _IM2COL_STEP))
    _convolve(x, weight, offset, None, out, images)
    return 1


def _deform_conv_backward_input(
    x: Tensor,
    offset: Tensor,
    grad: Tensor,
    to_x: Tensor,
    to_offset: Tensor,
    weight: Tensor,
    *_: object,
    **options: Any,
) -> int:
    parts = _Columns(x, weight, grad, int(options.get("im2col_step", _IM2COL_STEP)))
    _input_gradients(parts, grad, [offset], [to_x, to_offset])
    return 1


def _deform_conv_backward_parameters(
    x: Tensor, offset: Tensor, grad: Tensor, to_weight: Tensor, *_: object, **options: Any
) -> int:
    parts = _Columns(x, to_weight, grad, int(options.get("im2col_step", _IM2COL_STEP)))
    _weight_gradient(parts, grad, [offset], to_weight)
    return 1


def _modulated_deform_conv_forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    _ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    out: Tensor,
    *_: object,
    **__: object,
) -> None:
    _convolve(x, weight, offset, mask, out, 1)
    launch("mmcv.add_bias", [out, bias], [out])


def _modulated_deform_conv_backward(
    x: Tensor,
    weight: Tensor,
    _bias: Tensor,
    _ones: Tensor,
    offset: Tensor,
    mask: Tensor,
    _columns: Tensor,
    to_x: Tensor,
    to_weight: Tensor,
    to_bias: Tensor,
    to_offset: Tensor,
    to_mask: Tensor,
    grad: Tensor,
    *_: object,
    **__: object,
) -> None:
    parts = _Columns(x, weight, grad, 1)
    _input_gradients(parts, grad, [offset, mask], [to_x, to_offset, to_mask])
    _weight_gradient(parts, grad, [offset, mask], to_weight)
    launch("mmcv.sum_bias", [grad], [to_bias], kind="reduction")


def _dcn_v2_forward(
    x: Tensor, weight: Tensor, bias: Tensor, offset: Tensor, mask: Tensor, *sizes: int
) -> Tensor:
    """Sizes: kernel, stride, padding, dilation (height and width of each), groups."""
    shape = _out_shape(x, weight, sizes[2:4], sizes[4:6], sizes[6:8])
    out = x.new_empty(shape)
    _modulated_deform_conv_forward(x, weight, bias, bias, offset, mask, out)
    return out


def _dcn_v2_backward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    offset: Tensor,
    mask: Tensor,
    grad: Tensor,
    *_: int,
) -> tuple[Tensor, ...]:
    grads = [torch.zeros_like(tensor) for tensor in (x, weight, bias, offset, mask)]
    to_x, to_weight, to_bias, to_offset, to_mask = grads
    _modulated_deform_conv_backward(
        x, weight, bias, bias, offset, mask, bias,
        to_x, to_weight, to_bias, to_offset, to_mask, grad,
    )  # fmt: skip
    return to_x, to_offset, to_mask, to_weight, to_bias


# Multi-scale deformable attention


def _attended_bytes(value: Tensor, locations: Tensor) -> float:
    samples = math.prod(locations.shape[:-1])
    return _looked_up_bytes(samples, value.shape[-1], value.dtype.itemsize)


def ms_deform_attn_forward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    *_: object,
    **__: object,
) -> Tensor:
    """Values (batch, queries, heads * size) from value (batch, positions, heads, size)."""
    batch, queries = sampling_locations.shape[:2]
    out = value.new_empty((batch, queries, value.shape[2] * value.shape[3]))
    reads = [value, spatial_shapes, level_start_index, sampling_locations, attention_weights]
    _sample("mmcv.ms_deform_attn", reads, [out], _attended_bytes(value, sampling_locations))
    return out


def ms_deform_attn_backward(
    value: Tensor,
    spatial_shapes: Tensor,
    level_start_index: Tensor,
    sampling_locations: Tensor,
    attention_weights: Tensor,
    grad: Tensor,
    *given: Any,
    **__: object,
) -> list[Tensor]:
    """Gradients of value, locations and weights: new, or in the tensors it is given for them."""
    results = [tensor for tensor in given if isinstance(tensor, Tensor)]
    if not results:
        results = [
            torch.zeros_like(tensor) for tensor in (value, sampling_locations, attention_weights)
        ]
    reads = [value, spatial_shapes, level_start_index, sampling_locations, attention_weights, grad]
    looked_up = 3 * _attended_bytes(value, sampling_locations)
    _sample("mmcv.ms_deform_attn_backward", reads, results, looked_up)
    return results


class _MultiScaleFunction(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> Tensor:
        value, shapes, starts, locations, weights, *_ = arguments
        locations, weights = locations.type_as(value), weights.type_as(value)
        ctx.save_for_backward(value, shapes, starts, locations, weights)
        return ms_deform_attn_forward(value, shapes, starts, locations, weights)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        to_value, to_locations, to_weights = ms_deform_attn_backward(*ctx.saved_tensors, grad)
        return to_value, None, None, to_locations, to_weights, None


class _MultiScaleAttention(nn.Module):  # type: ignore[misc]
    """Offsets and weights from the query, values looked up at several scales."""

    def __init__(
        self,
        embed_dims: int = 256,
        num_heads: int = 8,
        num_levels: int = 4,
        num_points: int = 4,
        im2col_step: int = 64,
        dropout: float = 0.1,
        batch_first: bool = False,
        norm_cfg: object = None,
        init_cfg: object = None,
        value_proj_ratio: float = 1.0,
    ) -> None:
        super().__init__()
        del norm_cfg, init_cfg
        self.sizes = (num_heads, num_levels, num_points)
        self.batch_first, self.im2col_step = batch_first, im2col_step
        samples = math.prod(self.sizes)
        width = int(embed_dims * value_proj_ratio)
        self.dropout = nn.Dropout(dropout)
        self.sampling_offsets = nn.Linear(embed_dims, 2 * samples)
        self.attention_weights = nn.Linear(embed_dims, samples)
        self.value_proj = nn.Linear(embed_dims, width)
        self.output_proj = nn.Linear(width, embed_dims)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        identity: Tensor | None = None,
        query_pos: Tensor | None = None,
        key_padding_mask: Tensor | None = None,
        reference_points: Tensor | None = None,
        spatial_shapes: Tensor | None = None,
        level_start_index: Tensor | None = None,
        **_: object,
    ) -> Tensor:
        """The query with what it looked up added to it."""
        del key
        assert reference_points is not None
        assert spatial_shapes is not None
        value = query if value is None else value
        identity = query if identity is None else identity
        query = query if query_pos is None else query + query_pos
        if not self.batch_first:
            query, value = query.transpose(0, 1), value.transpose(0, 1)
        heads, levels, points = self.sizes
        value = self.value_proj(value)
        if key_padding_mask is not None:
            value = value.masked_fill(key_padding_mask[..., None], 0.0)
        offsets = self.sampling_offsets(query).unflatten(-1, (heads, levels, points, 2))
        weights = self.attention_weights(query).unflatten(-1, (heads, levels * points)).softmax(-1)
        places = self._places(reference_points, offsets, spatial_shapes)
        out = _MultiScaleFunction.apply(
            value.unflatten(-1, (heads, -1)),
            spatial_shapes,
            level_start_index,
            places,
            weights.unflatten(-1, (levels, points)),
            self.im2col_step,
        )
        out = self.output_proj(out)
        out = out if self.batch_first else out.transpose(0, 1)
        return self.dropout(out) + identity

    def _places(self, points: Tensor, offsets: Tensor, shapes: Tensor) -> Tensor:
        if points.shape[-1] == 2:
            return points[:, :, None, :, None, :] + offsets / shapes.flip(-1)[:, None, :]
        boxes = points[:, :, None, :, None, :]
        return boxes[..., :2] + offsets / self.sizes[2] * boxes[..., 2:] * 0.5


# DCNv3 and DCNv4: images with their channels last, in groups


def _side(length: int, kernel: int, step: int, pad: int, gap: int) -> int:
    return (length + 2 * pad - (gap * (kernel - 1) + 1)) // step + 1


def _dcn_shape(x: Tensor, sizes: Sequence[int], groups: int, channels: int) -> tuple[int, ...]:
    """Sizes: kernel, stride, padding, dilation, height and width of each."""
    sides = [_side(x.shape[1 + i], *(sizes[2 * part + i] for part in range(4))) for i in (0, 1)]
    return (x.shape[0], *sides, groups * channels)


def _dcn_bytes(
    x: Tensor, positions: int, sizes: Sequence[int], groups: int, channels: int
) -> float:
    samples = x.shape[0] * positions * groups * sizes[0] * sizes[1]
    return _looked_up_bytes(samples, channels, x.dtype.itemsize)


def dcnv3_forward(x: Tensor, offset: Tensor, mask: Tensor, *options: Any) -> Tensor:
    """Options: kernel, stride, padding, dilation (two each), groups, channels of a group ..."""
    sizes, groups, channels = options[:8], options[8], options[9]
    out = x.new_empty(_dcn_shape(x, sizes, groups, channels))
    looked_up = _dcn_bytes(x, math.prod(out.shape[1:3]), sizes, groups, channels)
    _sample("dcnv3.forward", [x, offset, mask], [out], looked_up)
    return out


def dcnv3_backward(x: Tensor, offset: Tensor, mask: Tensor, *options: Any) -> list[Tensor]:
    """The same options, the scale of offsets and, among the rest, the gradient."""
    sizes, groups, channels = options[:8], options[8], options[9]
    grad = next(option for option in options if isinstance(option, Tensor))
    results = [torch.zeros_like(tensor) for tensor in (x, offset, mask)]
    looked_up = 3 * _dcn_bytes(x, math.prod(grad.shape[1:3]), sizes, groups, channels)
    _sample("dcnv3.backward", [x, offset, mask, grad], results, looked_up)
    return results


def dcnv4_forward(x: Tensor, offset_mask: Tensor, *options: Any) -> Tensor:
    """As DCNv3, with offsets and factors in one tensor."""
    sizes, groups, channels = options[:8], options[8], options[9]
    out = x.new_empty(_dcn_shape(x, sizes, groups, channels))
    looked_up = _dcn_bytes(x, math.prod(out.shape[1:3]), sizes, groups, channels)
    _sample("dcnv4.forward", [x, offset_mask], [out], looked_up)
    return out


def dcnv4_backward(x: Tensor, offset_mask: Tensor, *options: Any) -> list[Tensor]:
    """Gradients of both."""
    sizes, groups, channels = options[:8], options[8], options[9]
    grad = next(option for option in options if isinstance(option, Tensor))
    results = [torch.zeros_like(tensor) for tensor in (x, offset_mask)]
    looked_up = 3 * _dcn_bytes(x, math.prod(grad.shape[1:3]), sizes, groups, channels)
    _sample("dcnv4.backward", [x, offset_mask, grad], results, looked_up)
    return results


_DEFORMABLE_CONVOLUTIONS: Mapping[str, object] = {
    "deform_conv_forward": _deform_conv_forward,
    "deform_conv_backward_input": _deform_conv_backward_input,
    "deform_conv_backward_parameters": _deform_conv_backward_parameters,
    "modulated_deform_conv_forward": _modulated_deform_conv_forward,
    "modulated_deform_conv_backward": _modulated_deform_conv_backward,
}
_ATTENTION: Mapping[str, object] = {
    "ms_deform_attn_forward": ms_deform_attn_forward,
    "ms_deform_attn_backward": ms_deform_attn_backward,
}
_DCN: Mapping[str, Mapping[str, object]] = {
    "DCNv3": {"dcnv3_forward": dcnv3_forward, "dcnv3_backward": dcnv3_backward},
    "DCNv4.ext": {"dcnv4_forward": dcnv4_forward, "dcnv4_backward": dcnv4_backward},
    "DCNv2": {"dcn_v2_forward": _dcn_v2_forward, "dcn_v2_backward": _dcn_v2_backward},
}
_LAYERS: Mapping[str, object] = {
    "DeformConv2d": _DeformConv2d,
    "DeformConv2dPack": _DeformConv2dPack,
    "deform_conv2d": deform_conv2d,
    "ModulatedDeformConv2d": _ModulatedDeformConv2d,
    "ModulatedDeformConv2dPack": _ModulatedDeformConv2dPack,
    "modulated_deform_conv2d": modulated_deform_conv2d,
    "MultiScaleDeformableAttention": _MultiScaleAttention,
}
STAND_INS: Mapping[str, Mapping[str, object]] = {
    "mmcv.ops": _LAYERS,
    "mmcv.ops.deform_conv": {name: _LAYERS[name] for name in list(_LAYERS)[:3]},
    "mmcv.ops.modulated_deform_conv": {name: _LAYERS[name] for name in list(_LAYERS)[3:6]},
    "mmcv.ops.multi_scale_deform_attn": {
        "MultiScaleDeformableAttention": _MultiScaleAttention,
        "MultiScaleDeformableAttnFunction": _MultiScaleFunction,
    },
    "mmcv._ext": {**_DEFORMABLE_CONVOLUTIONS, **_ATTENTION},
    "MultiScaleDeformableAttention": _ATTENTION,
    "DCNv3": _DCN["DCNv3"],
    "DCNv4.ext": _DCN["DCNv4.ext"],
}
EXTENSIONS: Mapping[str, object] = {
    **_DEFORMABLE_CONVOLUTIONS,
    **_ATTENTION,
    **{name: function for functions in _DCN.values() for name, function in functions.items()},
}
