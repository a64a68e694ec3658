"""Which dimensions of an operation grow with the batch, told at one batch size."""

from __future__ import annotations

import pytest
from tests.builders import an_op

from outlay.trace.from_recording import growing_degree, growing_share, growth_of, sizes_of

WIDTHS = frozenset({(768, 3072), (3072,), (768,), (64, 3, 7, 7), (50000, 768)})


def grown(kind, shapes, *, batch_size=8, parameters=WIDTHS, **changes):
    """The shapes with growing dimensions as text."""
    op = an_op(kind, shapes=shapes, **changes)
    growth = growth_of(op, sizes_of([op], batch_size, parameters))
    return [
        tuple(f"{size}+" if grows else size for size, grows in zip(shape, dims, strict=True))
        for shape, dims in zip(shapes, growth, strict=True)
    ]


def test_a_tensor_grows_in_its_outermost_multiple_of_the_batch():
    assert grown("elementwise", ((8, 128, 768), (8, 128, 768))) == [
        ("8+", 128, 768),
        ("8+", 128, 768),
    ]
    # samples and positions together; heads of all samples
    assert grown("elementwise", ((1024, 768),)) == [("1024+", 768)]
    assert grown("softmax", ((96, 128, 128),)) == [("96+", 128, 128)]


def test_a_parameter_does_not_even_where_its_size_is_a_multiple():
    assert grown("copy", ((768, 3072), (3072, 768))) == [(768, 3072), (3072, 768)]
    assert grown("norm", ((8, 128, 768), (768,), (768,))) == [("8+", 128, 768), (768,), (768,)]


def test_positions_first_and_lists_of_tensors_first():
    assert grown("elementwise", ((35, 8, 768),)) == [(35, "8+", 768)]
    assert grown("copy", ((3, 8, 12, 128, 64),)) == [(3, "8+", 12, 128, 64)]


def test_masks_and_positions_stay():
    assert grown("elementwise", ((1, 1, 128, 128), (1, 128, 768), ())) == [
        (1, 1, 128, 128),
        (1, 128, 768),
        (),
    ]


def test_a_product_grows_where_its_weight_is_not():
    # x (1024, 768) @ weight (768, 3072)
    assert grown("gemm", ((1024, 768), (768, 3072), (1024, 3072)), layout="nt") == [
        ("1024+", 768),
        (768, 3072),
        ("1024+", 3072),
    ]
    # the weight's own gradient: what is summed grows
    assert grown(
        "gemm", ((768, 1024), (1024, 3072), (768, 3072)), phase="backward", layout="tn"
    ) == [(768, "1024+"), ("1024+", 3072), (768, 3072)]


def test_products_of_square_matrices_are_told_by_their_layout():
    # 8 x 96 rows are as many as the width: everything is 768 x 768
    square = ((768, 768), (768, 768), (768, 768))
    parameters = frozenset({(768, 768)})
    assert grown("gemm", square, parameters=parameters, layout="nt") == [
        ("768+", 768),
        (768, 768),
        ("768+", 768),
    ]
    assert grown("gemm", square, parameters=parameters, phase="backward", layout="tn") == [
        (768, "768+"),
        ("768+", 768),
        (768, 768),
    ]


def test_batches_of_products_grow_by_their_number():
    shapes = ((96, 128, 64), (96, 64, 128), (96, 128, 128))
    assert [shape[0] for shape in grown("gemm", shapes)] == ["96+", "96+", "96+"]


def test_samples_against_samples_grow_twice():
    # logits of a contrastive loss: (8, 768) @ (768, 8)
    op = an_op("gemm", shapes=((8, 512), (512, 8), (8, 8)))
    growth = growth_of(op, sizes_of([op], 8, WIDTHS))
    assert growing_degree(op, growth) == 2


def test_images_grow_and_kernels_stay():
    shapes = ((8, 3, 224, 224), (64, 3, 7, 7), (8, 64, 112, 112))
    assert grown("conv", shapes, name="aten.convolution") == [
        ("8+", 3, 224, 224),
        (64, 3, 7, 7),
        ("8+", 64, 112, 112),
    ]
    back = ((8, 64, 112, 112), (8, 3, 224, 224), (64, 3, 7, 7), (64, 3, 7, 7))
    result = grown("conv", back, name="aten.convolution_backward", phase="backward")
    assert [shape[0] for shape in result] == ["8+", "8+", 64, 64]


def test_a_kernel_for_every_sample_grows_with_its_groups():
    shapes = ((1, 8 * 32, 64, 64), (8 * 16, 32, 3, 3), (1, 8 * 16, 64, 64))
    result = grown("conv", shapes, name="aten.convolution")
    assert result == [(1, "256+", 64, 64), ("128+", 32, 3, 3), (1, "128+", 64, 64)]


def test_instance_norm_grows_in_its_channels():
    shapes = ((1, 8 * 32, 64), (1, 8 * 32, 64), (8 * 32,))
    result = grown("norm", shapes, name="aten.native_batch_norm")
    assert result == [(1, "256+", 64), (1, "256+", 64), ("256+",)]


@pytest.mark.parametrize("kind", ["optimizer", "elementwise"])
def test_updates_stay(kind):
    assert grown(kind, ((80_000,),), phase="optimizer") == [(80_000,)]


def test_traffic_grows_by_the_elements_that_do():
    # a bias of 768 is added to 8 x 768: 12288 of 13056 elements grow
    op = an_op("elementwise", shapes=((8, 768), (768,), (8, 768)))
    growth = growth_of(op, sizes_of([op], 8, WIDTHS))
    assert growing_share(op, growth) == pytest.approx(12288 / 13056)


def test_of_a_table_only_the_rows_picked_are_read():
    op = an_op("embedding", name="aten.embedding", shapes=((50000, 768), (8, 16), (8, 16, 768)))
    growth = growth_of(op, sizes_of([op], 8, WIDTHS))
    assert growing_share(op, growth) == 1
    # its gradient is written whole, and 3 times the rows are read or written
    back = an_op(
        "embedding",
        name="aten.embedding_dense_backward",
        phase="backward",
        shapes=((8, 16, 768), (8, 16), (50000, 768)),
    )
    rows, table = 3 * 8 * 16 * 768 + 8 * 16, 50000 * 768
    growth = growth_of(back, sizes_of([back], 8, WIDTHS))
    assert growing_share(back, growth) == pytest.approx(rows / (rows + table))
