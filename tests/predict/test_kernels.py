from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import an_op

from outlay.predict.kernel_time import kernels_of
from outlay.predict.kernels import Pass, Product, alignment, bytes_of


def one_kernel(kind, name, shapes, **changes):
    (kernel,) = kernels_of(an_op(kind, name=name, shapes=shapes, **changes), tensor_cores=True)
    return kernel


# --- sizes ---


@pytest.mark.parametrize(
    ("precision", "size"),
    [("fp64", 8), ("fp32", 4), ("tf32", 4), ("fp16", 2), ("bf16", 2), ("int", 4)],
)
def test_bytes_of_an_element(precision, size):
    assert bytes_of(precision) == size


@pytest.mark.parametrize(
    ("lengths", "aligned"),
    [((128,), 64), ((96,), 32), ((96, 40), 8), ((33, 64), 1), ((50257,), 1), ((10, 6), 2)],
)
def test_alignment_is_the_largest_power_of_two_in_all(lengths, aligned):
    assert alignment(*lengths) == aligned


# --- matrix products ---


def matmul_kernel(m, n, k, batch=(), *, name="aten.mm", bias=(), **changes):
    shapes = (*bias, (*batch, m, k), (*batch, k, n), (*batch, m, n))
    flops = 2 * math.prod(batch) * m * n * k
    return one_kernel("gemm", name, shapes, **({"flops": flops, "moved_bytes": 100.0} | changes))


def test_mm_is_one_product():
    product = matmul_kernel(64, 96, 32)
    assert (product.family, product.batch) == ("gemm", 1)
    assert (product.m, product.n, product.k) == (64, 96, 32)
    assert product.moved_bytes == 100
    assert product.precision == "fp16"
    assert product.flops == 2 * 64 * 96 * 32


def test_addmm_is_that_of_its_matrices():
    product = matmul_kernel(64, 96, 32, name="aten.addmm", bias=((96,),))
    assert (product.family, product.m, product.n, product.k) == ("gemm", 64, 96, 32)


def test_bmm_is_a_batch_of_products():
    product = matmul_kernel(64, 96, 32, batch=(8,), name="aten.bmm")
    assert (product.family, product.batch) == ("batched", 8)
    assert (product.m, product.n, product.k) == (64, 96, 32)


def test_baddbmm_is_a_batch_of_products():
    product = matmul_kernel(64, 96, 32, batch=(8,), name="aten.baddbmm", bias=((8, 64, 96),))
    assert (product.batch, product.m, product.n, product.k) == (8, 64, 96, 32)


@pytest.mark.parametrize(
    ("layout", "aligned", "turned"),
    [
        ("plain", 4, False),  # rows of 20 and 96
        ("nt", 4, False),  # rows of 20 and 20
        ("tn", 32, True),  # rows of 64 and 96
        ("tt", 4, True),  # rows of 64 and 20
    ],
)
def test_alignment_is_of_rows_as_they_lie(layout, aligned, turned):
    product = matmul_kernel(64, 96, 20, layout=layout)
    assert (product.aligned, product.turned) == (aligned, turned)


def test_the_result_s_rows_count_as_well():
    # rows of 32 and 32, and of 7 in the result
    assert matmul_kernel(64, 7, 32, layout="nt").aligned == 1


def test_a_matrix_and_a_vector_are_a_pass_over_rows():
    kernel = one_kernel("gemm", "aten.mv", ((64, 32), (32,), (64,)), flops=4096, moved_bytes=4288.0)
    assert kernel == Pass(family="row", moved_bytes=4288.0, elements=2048)


@given(*[st.integers(1, 5000)] * 3, st.integers(1, 50))
def test_a_product_does_the_flops_of_its_operator(m, n, k, batch):
    assert matmul_kernel(m, n, k, batch=(batch,)).flops == pytest.approx(2 * batch * m * n * k)


# --- attention and recurrent layers ---

QUERY = (2, 8, 128, 64)
ONE_PRODUCT_FLOPS = 2 * 2 * 8 * 128 * 128 * 64


def test_attention_is_two_products():
    kernel = one_kernel(
        "attention",
        "aten._scaled_dot_product_flash_attention",
        (QUERY, QUERY, QUERY, QUERY),
        flops=2 * ONE_PRODUCT_FLOPS,
    )
    assert (kernel.family, kernel.batch) == ("attention", 16)
    assert (kernel.m, kernel.k) == (128, 128)
    assert kernel.flops == 2 * ONE_PRODUCT_FLOPS


def test_causal_attention_looks_at_half_the_columns():
    kernel = one_kernel(
        "attention", "aten._flash_attention", (QUERY, QUERY, QUERY), flops=ONE_PRODUCT_FLOPS
    )
    assert (kernel.m, kernel.k) == (128, 64)


def test_attention_backward_is_five_products_and_a_sum_for_each_row():
    op = an_op(
        "attention",
        name="aten._scaled_dot_product_flash_attention_backward",
        shapes=(QUERY,) * 5,
        flops=5 * ONE_PRODUCT_FLOPS,
    )
    product, rows = kernels_of(op, tensor_cores=True)
    assert product.family == "attention_backward"
    assert product.flops == 5 * ONE_PRODUCT_FLOPS
    # the gradient and the output are read, the sum's place written: 3 x 2 x 8 x 128 x 64 x 2 B
    assert rows == Pass(family="row", moved_bytes=786_432, elements=131_072)


def test_a_recurrent_layer_takes_inputs_at_once_and_states_in_turn():
    # an LSTM of 2 layers, 10 positions of 4 samples, 32 numbers and 4 x 32 gates:
    # 2 x 40 x 2 x (32 + 32) x 128
    op = an_op(
        "rnn",
        name="aten._cudnn_rnn",
        shapes=((10, 4, 32), (2, 4, 32), (2, 4, 32)),
        flops=1_310_720,
    )
    inputs, states, cells = kernels_of(op, tensor_cores=True)
    assert (inputs.family, inputs.batch) == ("gemm", 2)
    assert (inputs.m, inputs.n, inputs.k) == (40, 128, 32)
    assert (states.family, states.repeats) == ("recurrent", 20)
    assert (states.m, states.n, states.k) == (4, 128, 32)
    # the weights 32 x 128, the states 4 x 32 and the gates 4 x 128, in fp16
    assert states.moved_bytes == 2 * (4096 + 128 + 512)
    assert inputs.flops + states.flops == op.flops
    # of 80 positions: both products of 128 gates read, the gates kept; three states of 32
    assert cells.moved_bytes == 2 * 80 * (3 * 128 + 3 * 32)
    assert cells.launches == 20


def test_a_recurrent_layer_goes_back_in_turn_and_multiplies_weights_at_once():
    op = an_op(
        "rnn",
        name="aten._cudnn_rnn_backward",
        shapes=((10, 4, 32), (2, 4, 32), (2, 4, 32)),
        flops=2_621_440,
    )
    of_inputs, of_weights, of_states, states, cells = kernels_of(op, tensor_cores=True)
    assert (of_inputs.m, of_inputs.n, of_inputs.k) == (40, 32, 128)
    assert of_weights == of_states  # as many inputs as states
    assert (of_weights.m, of_weights.n, of_weights.k) == (128, 32, 40)
    assert (states.family, states.repeats) == ("recurrent_backward", 20)
    assert (states.m, states.n, states.k) == (4, 32, 128)
    products = (of_inputs, of_weights, of_states, states)
    assert sum(product.flops for product in products) == op.flops
    assert cells.launches == 20


# --- passes ---

IMAGE = (8, 16, 32, 32)


@pytest.mark.parametrize(
    ("kind", "name", "family"),
    [
        ("elementwise", "aten.add", "alike"),
        ("elementwise", "aten.relu_", "alike"),
        ("copy", "aten._to_copy", "alike"),
        ("copy", "aten.zeros_like", "alike"),
        ("copy", "aten.zero_", "alike"),
        ("elementwise", "aten.gelu", "math"),
        ("elementwise", "aten.silu_", "math"),
        ("elementwise", "aten.gelu_backward", "math"),
        ("elementwise", "aten.native_dropout", "random"),
        ("elementwise", "aten.bernoulli_", "random"),
        ("reduction", "aten.max_pool2d_with_indices", "max_pool"),
        ("reduction", "aten.max_pool2d_with_indices_backward", "max_pool_backward"),
        ("reduction", "aten.avg_pool2d", "mean_pool"),
        ("reduction", "aten._adaptive_avg_pool2d", "adaptive_pool"),
        ("copy", "aten.roll", "remap"),
        ("copy", "aten.reflection_pad2d_backward", "remap_backward"),
        ("copy", "aten.constant_pad_nd", "alike"),
        ("reduction", "aten.cumsum", "scan"),
        ("other", "aten.sort", "sort"),
        ("softmax", "aten._safe_softmax", "safe_softmax"),
        ("embedding", "aten.embedding", "gather"),
        ("embedding", "aten.index_put_", "scatter"),
        ("embedding", "aten.scatter_add", "scatter"),
        ("embedding", "aten.embedding_dense_backward", "scatter"),
        ("elementwise", "aten.upsample_nearest2d", "upsample_nearest"),
        ("elementwise", "aten.upsample_nearest2d_backward", "upsample_nearest_backward"),
        ("elementwise", "aten.upsample_bilinear2d", "upsample_linear"),
        ("elementwise", "aten._upsample_bilinear2d_aa_backward", "upsample_linear_backward"),
        ("optimizer", "aten._foreach_add_", "update"),
        ("other", "natten.na2d", "other"),
    ],
)
def test_family_by_kind_and_name(kind, name, family):
    assert one_kernel(kind, name, (IMAGE, IMAGE)).family == family


@pytest.mark.parametrize("layout", ["unlike", "crossed"])
@pytest.mark.parametrize("name", ["aten.add", "aten.gelu", "aten.clone"])
def test_tensors_that_lie_differently_decide_before_the_name(name, layout):
    assert one_kernel("elementwise", name, (IMAGE, IMAGE), layout=layout).family == layout


@pytest.mark.parametrize("backward", ["", "_backward"])
def test_max_pool_of_channels_last_has_its_own_kernels(backward):
    name = f"aten.max_pool2d_with_indices{backward}"
    kernel = one_kernel("reduction", name, (IMAGE, IMAGE), layout="channels_last")
    assert kernel.family == f"max_pool{backward}_last"


def test_a_pass_is_over_its_largest_tensor():
    kernel = one_kernel(
        "elementwise", "aten.add", ((8, 64), (64,), (8, 64)), moved_bytes=2176.0, launches=3
    )
    assert kernel == Pass(family="alike", moved_bytes=2176.0, elements=512, launches=3)


def test_an_operation_without_shapes_is_a_pass_over_its_bytes():
    # 4e9 B read and as many written, 2 B an element
    kernel = one_kernel("elementwise", "aten.add", (), moved_bytes=8e9)
    assert kernel == Pass(family="alike", moved_bytes=8e9, elements=2e9)


@pytest.mark.parametrize(
    ("kind", "family"),
    [
        ("gemm", "gemm"),
        ("conv", "forward"),
        ("attention", "attention"),
        ("rnn", "recurrent"),
        ("other", "gemm"),
    ],
)
def test_flops_without_shapes_are_an_ordinary_product(kind, family):
    kernel = one_kernel(kind, "mine.layer", (), flops=1e12, moved_bytes=1e9)
    assert kernel.family == family
    assert kernel.m == kernel.n
    assert kernel.flops == pytest.approx(1e12)
    assert kernel.moved_bytes == 1e9


def test_a_view_starts_no_kernel():
    view = an_op("other", name="aten.view", launches=0, shapes=(IMAGE, IMAGE))
    assert kernels_of(view, tensor_cores=True) == ()


@pytest.mark.parametrize("kind", ["gather", "scatter"])
def test_rows_of_an_embedding_count_as_moved_not_as_the_table(kind):
    name = {"gather": "aten.embedding", "scatter": "aten.embedding_dense_backward"}[kind]
    # 10 rows of 100 numbers of 2 B, read and written, of a table of 50,000
    kernel = one_kernel("embedding", name, ((50_000, 100), (10,)), moved_bytes=4000.0)
    assert (kernel.family, kernel.elements, kernel.thread_blocks) == (kind, 1000, 10)


def test_elements_picked_one_by_one_have_no_rows():
    kernel = one_kernel("embedding", "aten.gather", ((64, 100), (64, 1)), moved_bytes=400.0)
    assert (kernel.family, kernel.thread_blocks) == ("gather", math.inf)


@pytest.mark.parametrize(
    ("columns", "name", "family"),
    [
        (2048, "aten._softmax", "softmax_short"),
        (2049, "aten._softmax", "softmax_long"),
        (2048, "aten._log_softmax_backward_data", "softmax_short_backward"),
        (50_257, "aten._softmax_backward_data", "softmax_long_backward"),
    ],
)
def test_softmax_keeps_short_rows_at_hand(columns, name, family):
    kernel = one_kernel("softmax", name, ((4, 8, columns), (4, 8, columns)))
    assert (kernel.family, kernel.thread_blocks) == (family, 32)


@pytest.mark.parametrize(
    ("out", "family", "thread_blocks"),
    [
        ((64,), "reduce_columns", 64),
        ((1, 64), "reduce_columns", 64),
        ((1000,), "reduce_rows", 1000),
        ((1000, 1), "reduce_rows", 1000),
        ((), "reduce_rows", 1),
    ],
)
def test_a_reduction_runs_over_rows_or_columns(out, family, thread_blocks):
    kernel = one_kernel("reduction", "aten.sum", ((1000, 64), out))
    assert (kernel.family, kernel.thread_blocks, kernel.elements) == (family, thread_blocks, 64_000)


def test_upsampling_shares_positions_and_its_gradient_crowds_into_few_places():
    small, large = (8, 16, 32, 32), (8, 16, 64, 64)
    forward = one_kernel("elementwise", "aten.upsample_bilinear2d", (small, large))
    assert forward.thread_blocks == 64 * 64
    name = "aten.upsample_bilinear2d_backward"
    backward = one_kernel("elementwise", name, (large, small))
    assert backward.family == "upsample_linear_backward"
    # 64 x 64 additions into each of the places
    crowded = one_kernel("elementwise", name, (large, (8, 16, 1, 1)))
    assert crowded.family == "upsample_linear_backward_crowded"


# --- normalisation ---


@pytest.mark.parametrize(
    ("layout", "precision", "family"),
    [
        ("plain", "fp16", "batch_norm_first"),
        ("plain", "fp32", "batch_norm_first"),
        ("plain", "bf16", "batch_norm_first_torch"),
        ("channels_last", "fp16", "batch_norm_last"),
        ("channels_last", "bf16", "batch_norm_last_torch"),
    ],
)
def test_batch_norm_gives_each_channel_to_one_block(layout, precision, family):
    shapes = (IMAGE, (16,), (16,), IMAGE)
    kernel = one_kernel(
        "norm", "aten.native_batch_norm", shapes, layout=layout, precision=precision
    )
    assert (kernel.family, kernel.thread_blocks) == (family, 16)
    # 8 x 16 x 1024; where a channel lies in pieces, the start of each costs something
    elements = 131_072
    assert kernel.elements == elements if layout == "channels_last" else kernel.elements > elements


def batch_norm_elements(side):
    image = (8, 16, side, side)
    return one_kernel("norm", "aten.native_batch_norm", (image, (16,), image)).elements


def test_batch_norm_goes_over_small_images_by_whole_blocks():
    # 49 and 64 positions take 64 threads, 65 to 128 take 128
    assert batch_norm_elements(7) == batch_norm_elements(8)
    assert batch_norm_elements(9) - batch_norm_elements(8) == 8 * 16 * 64


def test_batch_norm_backward_is_of_its_input():
    shapes = ((1,), IMAGE, (16,))
    kernel = one_kernel("norm", "aten.native_batch_norm_backward", shapes)
    assert (kernel.family, kernel.thread_blocks) == ("batch_norm_first_backward", 16)
    assert kernel.elements == batch_norm_elements(32)


def test_batch_norm_of_rows_has_its_channels_last():
    kernel = one_kernel("norm", "aten.native_batch_norm", ((100, 16), (16,), (100, 16)))
    assert (kernel.family, kernel.thread_blocks, kernel.elements) == ("batch_norm_last", 16, 1600)


@pytest.mark.parametrize("backward", [False, True])
def test_group_norm_gives_each_group_of_a_sample_to_one_block(backward):
    # 8 samples of 4 groups
    statistics = ((8, 4), (8, 4))
    if backward:
        shapes = (IMAGE, IMAGE, *statistics, (16,), IMAGE)
        kernel = one_kernel("norm", "aten.native_group_norm_backward", shapes)
    else:
        shapes = (IMAGE, (16,), (16,), IMAGE, *statistics)
        kernel = one_kernel("norm", "aten.native_group_norm", shapes)
    assert kernel.family == ("group_norm_backward" if backward else "group_norm")
    assert kernel.thread_blocks == 32


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("aten.native_layer_norm", "layer_norm"),
        ("aten.native_layer_norm_backward", "layer_norm_backward"),
        ("aten._fused_rms_norm", "rms_norm"),
        ("aten._fused_rms_norm_backward", "rms_norm_backward"),
    ],
)
def test_layer_norm_gives_each_row_to_one_block(name, family):
    x = (32, 100, 64)
    kernel = one_kernel("norm", name, (x, x, (64,)))
    assert (kernel.family, kernel.thread_blocks, kernel.elements) == (family, 3200, 204_800)


@pytest.mark.parametrize("layout", ["unlike", "crossed"])
def test_layer_norm_of_rows_out_of_order_first_copies_them(layout):
    op = an_op("norm", name="aten.native_layer_norm", shapes=((10, 64), (64,)), layout=layout)
    copy, norm = kernels_of(op, tensor_cores=True)
    # 640 elements of 2 B, read and written
    assert copy == Pass(family=layout, moved_bytes=2560, elements=640)
    assert norm.family == "layer_norm"


def test_kernels_are_products_or_passes():
    assert isinstance(matmul_kernel(8, 8, 8), Product)
    assert isinstance(one_kernel("copy", "aten.clone", (IMAGE, IMAGE)), Pass)
