from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.builders import an_op

from outlay.predict.convolution import geometry
from outlay.predict.kernel_time import kernels_of
from outlay.predict.kernels import Pass

# --- geometry ---


def test_geometry_of_a_plain_convolution():
    shape = geometry((2, 16, 8, 8), (32, 16, 3, 3), (2, 32, 8, 8))
    assert (shape.samples, shape.wide, shape.narrow) == (2, 16, 32)
    assert (shape.groups, shape.taps) == (1, 9)
    assert (shape.large, shape.small) == (64, 64)
    fields = (shape.transposed, shape.strided, shape.depthwise, shape.line, shape.flat)
    assert fields == (False, False, False, False, True)


def test_geometry_of_a_strided_convolution():
    shape = geometry((2, 16, 8, 8), (32, 16, 3, 3), (2, 32, 4, 4))
    assert shape.strided
    assert (shape.large, shape.small) == (64, 16)
    assert not shape.transposed


def test_a_convolution_without_padding_is_not_strided():
    assert not geometry((2, 16, 16, 16), (32, 16, 5, 5), (2, 32, 12, 12)).strided


@pytest.mark.parametrize("channels", [(32, 16), (16, 32), (16, 16)])
def test_a_transposed_convolution_runs_from_the_small_side_to_the_large(channels):
    given_, made = channels
    shape = geometry((2, given_, 4, 4), (given_, made, 4, 4), (2, made, 8, 8))
    assert shape.transposed
    assert shape.strided
    assert (shape.wide, shape.narrow) == (made, given_)
    assert (shape.large, shape.small) == (64, 16)
    assert shape.groups == 1


def test_padding_alone_does_not_make_a_transposed_convolution():
    shape = geometry((2, 64, 8, 8), (64, 64, 3, 3), (2, 64, 10, 10))
    assert not shape.transposed
    assert (shape.large, shape.small) == (64, 100)


def test_geometry_of_a_grouped_convolution():
    shape = geometry((2, 64, 8, 8), (128, 16, 3, 3), (2, 128, 8, 8))
    assert shape.groups == 4
    assert not shape.depthwise


@pytest.mark.parametrize("outputs", [64, 128])
def test_geometry_of_a_depthwise_convolution(outputs):
    shape = geometry((2, 64, 8, 8), (outputs, 1, 3, 3), (2, outputs, 8, 8))
    assert shape.groups == 64
    assert shape.depthwise


def test_an_image_of_one_channel_is_not_depthwise():
    assert not geometry((2, 1, 28, 28), (32, 1, 3, 3), (2, 32, 26, 26)).depthwise


def test_geometry_along_one_dimension():
    shape = geometry((2, 16, 100), (32, 16, 5), (2, 32, 96))
    assert (shape.taps, shape.large, shape.small) == (5, 100, 96)
    assert shape.line
    assert not shape.flat


def test_geometry_in_three_dimensions():
    shape = geometry((2, 16, 4, 8, 8), (32, 16, 3, 3, 3), (2, 32, 4, 8, 8))
    assert (shape.taps, shape.large) == (27, 256)
    assert not shape.line
    assert not shape.flat


# --- forward ---


def forward(x, weight, y, *, bias=False, tensor_cores=True, **changes):
    shapes = (x, weight, *([(y[1],)] if bias else []), y)
    op = an_op("conv", name="aten.convolution", shapes=shapes, **changes)
    return kernels_of(op, tensor_cores=tensor_cores)


X, WEIGHT, Y = (8, 64, 16, 16), (128, 64, 3, 3), (8, 128, 16, 16)
# In fp16: 8 x 64 x 256 x 2 B, 8 x 128 x 256 x 2 B, 128 x 64 x 9 x 2 B.
X_BYTES, Y_BYTES, WEIGHT_BYTES = 262_144, 524_288, 147_456
FLOPS = 2 * 8 * 256 * 128 * 64 * 9


def test_tensor_cores_turn_every_tensor_and_multiply():
    *turns, product = forward(X, WEIGHT, Y)
    # each tensor is read and written once more
    assert [turn.family for turn in turns] == ["turn"] * 3
    assert [turn.moved_bytes for turn in turns] == [2 * X_BYTES, 2 * Y_BYTES, 2 * WEIGHT_BYTES]
    assert [turn.elements for turn in turns] == [131_072, 262_144, 73_728]
    assert product.family == "forward"
    assert (product.m, product.n, product.k) == (8 * 256, 128, 64 * 9)
    assert product.moved_bytes == X_BYTES + Y_BYTES + WEIGHT_BYTES
    assert product.flops == FLOPS


def test_channels_last_is_multiplied_as_it_lies():
    (product,) = forward(X, WEIGHT, Y, layout="channels_last")
    assert product.family == "forward"
    assert product.flops == FLOPS


def test_without_tensor_cores_nothing_is_turned():
    (product,) = forward(X, WEIGHT, Y, tensor_cores=False, precision="fp32")
    assert product.family == "direct"
    assert (product.m, product.n, product.k) == (8 * 256, 128, 64 * 9)
    assert product.flops == FLOPS


def test_images_of_both_orders_are_copied_into_one_first():
    copy, product = forward(X, WEIGHT, Y, layout="mixed")
    assert copy == Pass(family="crossed", moved_bytes=2 * X_BYTES, elements=131_072)
    assert product.family == "forward"


def test_a_bias_is_added_over_the_whole_output():
    *_, product, bias = forward(X, WEIGHT, Y, bias=True)
    assert product.family == "forward"
    assert bias == Pass(family="unlike", moved_bytes=2 * Y_BYTES, elements=262_144)


def test_a_1x1_kernel_is_a_product_for_each_image():
    (product,) = forward(X, (128, 64, 1, 1), Y)
    assert (product.family, product.batch) == ("pointwise", 8)
    assert (product.m, product.n, product.k) == (256, 128, 64)
    assert product.aligned == 64
    assert product.flops == FLOPS / 9


def test_a_1x1_kernel_on_channels_last_is_one_product():
    (product,) = forward(X, (128, 64, 1, 1), Y, layout="channels_last")
    assert (product.family, product.batch) == ("gemm", 1)
    assert (product.m, product.n, product.k) == (8 * 256, 128, 64)


def test_a_1x1_kernel_on_rows_that_cannot_be_loaded_is_turned():
    # 7 x 7 = 49 positions are no multiple of 8; a weight of one tap lies the same either way
    *turns, product = forward((8, 64, 7, 7), (128, 64, 1, 1), (8, 128, 7, 7))
    assert [turn.family for turn in turns] == ["turn"] * 2
    assert product.family == "forward"
    # in fp32 rows of 4 are enough, but 49 are none of those either; 10 x 10 are
    (product,) = forward((8, 64, 10, 10), (128, 64, 1, 1), (8, 128, 10, 10), precision="tf32")
    assert product.family == "pointwise"


def test_a_strided_1x1_kernel_is_no_product_as_it_lies():
    *turns, product = forward(X, (128, 64, 1, 1), (8, 128, 8, 8))
    assert len(turns) == 2
    assert (product.family, product.m) == ("forward", 8 * 64)


@pytest.mark.parametrize(
    ("precision", "padded"), [("fp16", 8), ("tf32", 4)]
)  # 16 B are loaded at once
def test_colours_are_padded_and_not_turned(precision, padded):
    (product,) = forward((8, 3, 224, 224), (64, 3, 7, 7), (8, 64, 112, 112), precision=precision)
    assert product.family == "forward_colours"
    assert (product.m, product.n, product.k) == (8 * 112 * 112, 64, padded * 49)


@pytest.mark.parametrize(
    ("channels", "family"), [(64, "forward"), (96, "forward"), (48, "forward_irregular")]
)
def test_channels_that_are_no_multiples_of_32_are_irregular(channels, family):
    x, y = (8, channels, 16, 16), (8, 64, 16, 16)
    (product,) = forward(x, (64, channels, 3, 3), y, layout="channels_last")
    assert product.family == family


def test_narrow_groups_go_together():
    # 4 groups of 16 channels to 32
    *_, product = forward((2, 64, 8, 8), (128, 16, 3, 3), (2, 128, 8, 8))
    assert product.family == "forward_grouped"
    assert (product.batch, product.repeats) == (4, 1)
    assert (product.m, product.n, product.k) == (128, 32, 16 * 9)
    # 2 x 2 x 64 positions x 128 outputs x 16 inputs x 9
    assert product.flops == 2 * 2 * 64 * 128 * 16 * 9


def test_wide_groups_go_one_by_one():
    # 2 groups of 64 channels to 64
    (product,) = forward((2, 128, 8, 8), (128, 64, 3, 3), (2, 128, 8, 8), layout="channels_last")
    assert product.family == "forward"
    assert (product.batch, product.repeats) == (1, 2)
    assert (product.m, product.n, product.k) == (128, 64, 64 * 9)
    # each its half of 2 x 128 x 64 x 2 B, twice, and of 128 x 64 x 9 x 2 B
    assert product.moved_bytes == (2 * 32_768 + 147_456) / 2
    assert product.flops == 2 * 2 * 64 * 128 * 64 * 9


def test_along_one_dimension():
    *turns, product = forward((2, 64, 100), (64, 64, 5), (2, 64, 96))
    assert len(turns) == 3
    assert product.family == "forward_line"
    assert (product.m, product.n, product.k) == (2 * 96, 64, 64 * 5)


def test_in_three_dimensions():
    *_, product = forward((2, 32, 4, 8, 8), (64, 32, 3, 3, 3), (2, 64, 4, 8, 8))
    assert product.family == "forward"
    assert (product.m, product.n, product.k) == (2 * 256, 64, 32 * 27)


def test_a_transposed_convolution_is_the_gradient_of_a_plain_one():
    # 64 channels of 8 x 8 to 32 of 16 x 16 by 4 x 4 taps: 4 of them meet each output
    *_, product = forward((2, 64, 8, 8), (64, 32, 4, 4), (2, 32, 16, 16))
    assert product.family == "input"
    assert (product.m, product.n, product.k) == (2 * 256, 32, 64 * 4)
    assert product.flops == 2 * 2 * 64 * 64 * 32 * 16


# --- depthwise ---


@pytest.mark.parametrize(
    ("samples", "taps", "changes", "by"),
    [
        (8, 3, {}, "torch"),
        (32, 3, {}, "library"),
        (32, 7, {}, "torch"),
        (32, 3, {"precision": "fp32"}, "torch"),
        (32, 3, {"precision": "bf16"}, "torch"),
        (8, 3, {"layout": "channels_last"}, "last"),
        (8, 7, {"layout": "channels_last"}, "last_large"),
        (8, 3, {"layout": "channels_last", "precision": "tf32"}, "last_32"),
        (8, 7, {"layout": "channels_last", "precision": "fp32"}, "last_32_large"),
    ],
)
def test_depthwise_is_a_pass_by_torch_or_the_library(samples, taps, changes, by):
    x = (samples, 64, 16, 16)
    (kernel,) = forward(x, (64, 1, taps, taps), x, **changes)
    assert kernel.family == f"depthwise_forward_{by}"
    # its taps for each output, and 12 more
    assert kernel.elements == math.prod(x) * (taps * taps + 12)


def test_depthwise_moves_both_images():
    (kernel,) = forward((8, 64, 16, 16), (64, 1, 3, 3), (8, 64, 8, 8))
    # 8 x 64 x (256 + 64) x 2 B
    assert kernel.moved_bytes == 327_680


def test_depthwise_along_one_dimension():
    (kernel,) = forward((8, 64, 100), (64, 1, 3), (8, 64, 100))
    assert kernel.family == "depthwise_forward_other"


# --- backward ---


def backward(x, weight, y, gradients, *, tensor_cores=True, **changes):
    results = {"x": x, "weight": weight, "bias": (y[1],)}
    shapes = (y, x, weight, *(results[name] for name in gradients))
    op = an_op("conv", name="aten.convolution_backward", shapes=shapes, **changes)
    return kernels_of(op, tensor_cores=tensor_cores)


def families(kernels):
    return [kernel.family for kernel in kernels]


def test_backward_computes_both_gradients():
    kernels = backward(X, WEIGHT, Y, ["x", "weight"])
    assert families(kernels) == [*["turn"] * 3, "input", *["turn"] * 3, "weight"]
    of_input, of_weight = kernels[3], kernels[7]
    assert (of_input.m, of_input.n, of_input.k) == (8 * 256, 64, 128 * 9)
    assert (of_weight.m, of_weight.n, of_weight.k) == (128, 64 * 9, 8 * 256)
    assert of_input.flops == of_weight.flops == FLOPS


def test_backward_of_the_first_layer_computes_the_weight_s_gradient_only():
    kernels = backward(X, WEIGHT, Y, ["weight"], layout="channels_last")
    assert families(kernels) == ["weight"]


def test_backward_of_a_frozen_weight_computes_the_input_s_gradient_only():
    kernels = backward(X, WEIGHT, Y, ["x"], layout="channels_last")
    assert families(kernels) == ["input"]


def test_backward_sums_the_gradient_of_a_bias():
    *_, bias = backward(X, WEIGHT, Y, ["x", "weight", "bias"])
    assert bias == Pass(
        family="reduce_rows", moved_bytes=Y_BYTES, elements=262_144, thread_blocks=128
    )


def test_backward_of_a_1x1_kernel():
    kernels = backward(X, (128, 64, 1, 1), Y, ["x", "weight"])
    assert families(kernels) == ["pointwise", "pointwise"]
    of_input, of_weight = kernels
    assert (of_input.m, of_input.n, of_input.k) == (256, 64, 128)
    assert (of_weight.m, of_weight.n, of_weight.k) == (128, 64, 256)
    assert (of_input.turned, of_weight.turned) == (False, True)


def test_backward_of_a_transposed_convolution_runs_forward():
    x, weight, y = (2, 64, 8, 8), (64, 32, 4, 4), (2, 32, 16, 16)
    kernels = backward(x, weight, y, ["x", "weight", "bias"], layout="channels_last")
    assert families(kernels) == ["forward", "weight", "reduce_rows"]
    assert (kernels[0].m, kernels[0].n, kernels[0].k) == (2 * 64, 64, 32 * 16)
    # its output has 32 channels of 256 positions
    assert (kernels[2].elements, kernels[2].thread_blocks) == (2 * 32 * 256, 32)


@pytest.mark.parametrize(
    ("weight", "y", "family"),
    [
        ((128, 64, 3, 3), Y, "direct_transformed"),
        ((128, 64, 1, 1), Y, "direct_backward"),
        ((128, 64, 3, 3), (8, 128, 8, 8), "direct_backward"),
        ((16, 64, 3, 3), (8, 16, 16, 16), "direct_backward"),
    ],
)
def test_backward_of_3x3_kernels_without_tensor_cores_goes_through_a_transform(weight, y, family):
    kernels = backward(X, weight, y, ["x"], tensor_cores=False, precision="fp32")
    assert families(kernels) == [family]


def test_forward_of_3x3_kernels_goes_through_a_transform_before_ampere():
    op = an_op("conv", name="aten.convolution", shapes=(X, (128, 64, 3, 3), Y), precision="fp32")
    (plain,) = kernels_of(op, tensor_cores=False)
    (transformed,) = kernels_of(op, tensor_cores=False, transforms=True)
    assert plain.family == "direct"
    assert transformed == replace(plain, family="direct_transformed")
    (pixels,) = kernels_of(
        replace(op, shapes=(X, (128, 64, 1, 1), Y)), tensor_cores=False, transforms=True
    )
    assert pixels.family == "direct"


@pytest.mark.parametrize(
    ("y", "layout", "family"),
    [
        ((32, 64, 16, 16), "channels_last", "depthwise_input_last"),
        ((32, 64, 8, 8), "channels_last", "depthwise_input_last_strided"),
        ((32, 64, 8, 8), "plain", "depthwise_input_library_strided"),
    ],
)
def test_backward_of_depthwise(y, layout, family):
    x, weight = (32, 64, 16, 16), (64, 1, 3, 3)
    of_input, of_weight = backward(x, weight, y, ["x", "weight"], layout=layout)
    assert of_input.family == family
    # every position of the input looks for its outputs; every output for its weights
    assert of_input.elements == math.prod(x) * 21
    assert of_weight.elements == math.prod(y) * 21
    assert of_weight.family.startswith("depthwise_weight")


regular = st.integers(1, 8).map(lambda times: 32 * times)


@given(
    samples=st.integers(1, 16),
    wide=regular,
    narrow=regular,
    size=st.integers(2, 32),
    taps=st.sampled_from([3, 5]),
    stride=st.integers(1, 2),
    layout=st.sampled_from(["plain", "channels_last", "mixed"]),
    tensor_cores=st.booleans(),
)
def test_products_do_the_flops_of_the_convolution(
    samples, wide, narrow, size, taps, stride, layout, tensor_cores
):
    x, weight = (samples, wide, size, size), (narrow, wide, taps, taps)
    small = math.ceil(size / stride)
    y = (samples, narrow, small, small)
    assume(x != weight)
    # a multiply-add for each output position, channels on both sides, and tap
    flops = 2 * samples * small * small * narrow * wide * taps * taps
    fields = {"layout": layout, "tensor_cores": tensor_cores}
    kernels = [*forward(x, weight, y, **fields), *backward(x, weight, y, ["x", "weight"], **fields)]
    products = [kernel for kernel in kernels if not isinstance(kernel, Pass)]
    assert [product.flops for product in products] == pytest.approx([flops] * 3)
