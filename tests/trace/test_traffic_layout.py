"""Which layout an operator is recorded with: made-up tensors by shape, width and strides."""

from __future__ import annotations

import pytest
from tests.trace.test_formulas import T

from outlay.trace.traffic import layout_of


def layout(kind, name, *tensors, results=1):
    return layout_of(kind, f"aten.{name}", tensors, results)


def plain(*shape, size=2):
    return T(shape, size)


def turned(rows, columns, *batch):
    """A matrix whose columns lie in memory one after another."""
    strides = (rows * columns, 1, rows) if batch else (1, rows)
    return T((*batch, rows, columns), 2, strides)


def last(samples, channels, height, width, size=2):
    """An image with channels last."""
    strides = (channels * height * width, 1, width * channels, channels)
    return T((samples, channels, height, width), size, strides)


# --- products ---


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (plain(4, 6), plain(6, 5), "plain"),
        (plain(4, 6), turned(6, 5), "nt"),
        (turned(4, 6), plain(6, 5), "tn"),
        (turned(4, 6), turned(6, 5), "tt"),
    ],
)
def test_a_product_is_by_which_matrix_is_transposed(first, second, expected):
    assert layout("gemm", "mm", first, second, plain(4, 5)) == expected


def test_a_product_with_a_bias_is_by_its_last_two():
    bias, x, weight, y = plain(5), plain(4, 6), turned(6, 5), plain(4, 5)
    assert layout("gemm", "addmm", bias, x, weight, y) == "nt"
    wide_bias = turned(4, 5)
    assert layout("gemm", "addmm", wide_bias, x, weight, y) == "nt"


def test_a_batch_of_products():
    x, weight, y = plain(3, 4, 6), turned(6, 5, 3), plain(3, 4, 5)
    assert layout("gemm", "bmm", x, weight, y) == "nt"


def test_a_matrix_of_one_row_or_column_is_never_transposed():
    row, column = T((1, 6), 2, (1, 1)), T((6, 1), 2, (1, 6))
    assert layout("gemm", "mm", row, column, plain(1, 1)) == "plain"


def test_a_product_with_a_vector_is_plain():
    assert layout("gemm", "mv", turned(4, 6), plain(6), plain(4)) == "plain"


# --- images ---


def test_a_convolution_of_images_in_the_usual_order():
    x, weight = plain(2, 16, 8, 8), plain(32, 16, 3, 3)
    assert layout("conv", "convolution", x, weight, plain(2, 32, 8, 8)) == "plain"


def test_a_convolution_of_channels_last():
    x, weight, y = last(2, 16, 8, 8), last(32, 16, 3, 3), last(2, 32, 8, 8)
    assert layout("conv", "convolution", x, weight, y) == "channels_last"


@pytest.mark.parametrize("weight", [plain(32, 16, 1, 1), plain(16, 1, 3, 3)])
def test_a_weight_that_lies_the_same_either_way_has_no_say(weight):
    assert layout("conv", "convolution", last(2, 16, 8, 8), weight, last(2, 32, 8, 8)) == (
        "channels_last"
    )
    x = plain(2, 16, 8, 8)
    assert layout("conv", "convolution", x, weight, plain(2, 32, 8, 8)) == "plain"


@pytest.mark.parametrize(
    ("x", "weight"),
    [
        (last(2, 16, 8, 8), plain(32, 16, 3, 3)),
        (plain(2, 16, 8, 8), last(32, 16, 3, 3)),
    ],
)
def test_a_convolution_of_both_orders_is_mixed(x, weight):
    assert layout("conv", "convolution", x, weight, last(2, 32, 8, 8)) == "mixed"


def test_a_gradient_in_the_other_order_makes_it_mixed():
    grad, x, weight = plain(2, 32, 8, 8), last(2, 16, 8, 8), last(32, 16, 3, 3)
    result = layout("conv", "convolution_backward", grad, x, weight, x, weight, results=2)
    assert result == "mixed"


@pytest.mark.parametrize("kind", ["norm", "reduction"])
def test_a_norm_of_channels_last(kind):
    x = last(2, 16, 8, 8)
    assert layout(kind, "native_batch_norm", x, plain(16), x) == "channels_last"
    x = plain(2, 16, 8, 8)
    assert layout(kind, "native_batch_norm", x, plain(16), x) == "plain"


# --- rows ---


def test_rows_out_of_order_are_told_apart_from_rows_far_apart():
    out = plain(4, 6)
    assert layout("norm", "native_layer_norm", plain(4, 6), plain(6), out) == "plain"
    # every other row of a matrix
    assert layout("norm", "native_layer_norm", T((4, 6), 2, (12, 1)), plain(6), out) == "unlike"
    assert layout("norm", "native_layer_norm", turned(4, 6), plain(6), out) == "crossed"


# --- elements ---


def test_tensors_that_lie_alike_are_plain():
    x = plain(4, 6)
    assert layout("elementwise", "add", x, x, x) == "plain"
    image = last(2, 16, 8, 8)
    assert layout("elementwise", "add", image, image, image) == "plain"


def test_a_tensor_that_is_repeated_is_unlike():
    assert layout("elementwise", "add", plain(4, 6), plain(6), plain(4, 6)) == "unlike"


def test_a_number_counts_as_none():
    assert layout("elementwise", "mul", plain(4, 6), plain(size=4), plain(4, 6)) == "plain"
    assert layout("elementwise", "mul", plain(4, 6), plain(1, size=4), plain(4, 6)) == "plain"


def test_what_lies_side_by_side_in_one_and_apart_in_another_is_crossed():
    assert layout("copy", "clone", turned(4, 6), plain(4, 6)) == "crossed"
    assert layout("copy", "clone", last(2, 16, 8, 8), plain(2, 16, 8, 8)) == "crossed"


def test_every_other_row_is_unlike():
    assert layout("copy", "clone", T((4, 6), 2, (12, 1)), plain(4, 6)) == "unlike"


def test_widening_is_unlike_and_narrowing_is_not():
    narrow, wide = plain(4, 6, size=2), plain(4, 6, size=4)
    assert layout("copy", "_to_copy", narrow, wide) == "unlike"
    assert layout("copy", "_to_copy", wide, narrow) == "plain"


def test_masks_do_not_widen():
    mask, x = plain(4, 6, size=1), plain(4, 6)
    assert layout("elementwise", "where", mask, x, x, x) == "plain"
    assert layout("copy", "_to_copy", mask, x) == "plain"


def test_a_fill_has_nothing_to_differ_from():
    assert layout("copy", "zeros", plain(4, 6)) == "plain"


@pytest.mark.parametrize("name", ["cat", "stack"])
def test_joining_is_by_whether_its_parts_lie_in_order(name):
    joined = plain(8, 6)
    assert layout("copy", name, plain(4, 6), plain(4, 6), joined) == "plain"
    assert layout("copy", name, plain(4, 6), turned(4, 6), joined) == "unlike"


@pytest.mark.parametrize("kind", ["softmax", "attention", "embedding", "optimizer", "other"])
def test_other_kinds_are_plain(kind):
    assert layout(kind, "anything", turned(4, 6), plain(4, 6)) == "plain"
