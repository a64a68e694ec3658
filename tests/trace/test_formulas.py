from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from outlay.errors import InputError
from outlay.trace import formulas, traffic
from outlay.trace.formulas import cost_of, register_op


@dataclass(frozen=True)
class T:
    """As much of a tensor as a formula may ask for."""

    shape: tuple[int, ...]
    itemsize: int = 2
    strides: tuple[int, ...] | None = None

    @property
    def dtype(self) -> SimpleNamespace:
        return SimpleNamespace(itemsize=self.itemsize)

    def stride(self) -> tuple[int, ...]:
        rows = (math.prod(self.shape[place + 1 :]) for place in range(len(self.shape)))
        return self.strides or tuple(rows)


def test_mm_counts_two_per_multiply_add_and_each_tensor_once() -> None:
    cost = cost_of("aten.mm", [T((4, 6)), T((6, 5))], {}, T((4, 5)))
    assert cost.kind == "gemm"
    assert cost.flops == 240  # 4 * 6 * 2 * 5
    assert cost.moved_bytes == 148  # 2 * (24 + 30 + 20)
    assert cost.launches == 1


def test_addmm_ignores_the_bias_but_reads_it() -> None:
    cost = cost_of("aten.addmm", [T((5,)), T((4, 6)), T((6, 5))], {}, T((4, 5)))
    assert cost.flops == 240
    assert cost.moved_bytes == 158  # as mm, and 5 * 2


def test_bmm_and_baddbmm() -> None:
    a, b = T((3, 4, 6)), T((3, 6, 5))
    assert cost_of("aten.bmm", [a, b], {}, T((3, 4, 5))).flops == 720  # 3 * 240
    assert cost_of("aten.baddbmm", [T((3, 4, 5)), a, b], {}, T((3, 4, 5))).flops == 720


def test_linear_and_matrix_vector() -> None:
    assert cost_of("aten.linear", [T((2, 3, 6)), T((5, 6))], {}, T((2, 3, 5))).flops == 360
    assert cost_of("aten.mv", [T((4, 6)), T((6,))], {}, T((4,))).flops == 48
    assert cost_of("aten.addmv", [T((4,)), T((4, 6)), T((6,))], {}, T((4,))).flops == 48


def test_mismatched_shapes_are_refused() -> None:
    with pytest.raises(AssertionError):
        formulas.mm_flop(T((4, 6)), T((7, 5)))


def _conv(x: T, w: T, out: T, *, transposed: bool = False, groups: int = 1) -> formulas.OpCost:
    args = [x, w, None, [1, 1], [0, 0], [1, 1], transposed, [0, 0], groups]
    return cost_of("aten.convolution", args, {}, out)


def test_conv_forward() -> None:
    # 2 samples, 4x4 positions, 8 x 3 x 3 x 3 weights: 2 * 2 * 16 * 216
    assert _conv(T((2, 3, 6, 6)), T((8, 3, 3, 3)), T((2, 8, 4, 4))).flops == 13_824


def test_conv_grouped_has_fewer_weights() -> None:
    # depthwise: 8 x 1 x 3 x 3 weights: 2 * 2 * 16 * 72
    assert _conv(T((2, 8, 6, 6)), T((8, 1, 3, 3)), T((2, 8, 4, 4)), groups=8).flops == 4_608


def test_conv_transposed_counts_input_positions() -> None:
    # 4x4 inputs to 6x6 outputs, 8 x 3 x 3 x 3 weights: 2 * 2 * 16 * 216
    cost = _conv(T((2, 8, 4, 4)), T((8, 3, 3, 3)), T((2, 3, 6, 6)), transposed=True)
    assert cost.flops == 13_824


@pytest.mark.parametrize(
    ("output_mask", "flops", "launches"),
    [
        ((True, True, True), 27_648, 3),
        ((False, True, False), 13_824, 1),
        ((True, False, False), 13_824, 1),
    ],
)
def test_conv_backward_follows_the_output_mask(
    output_mask: tuple[bool, ...], flops: float, launches: float
) -> None:
    x, w, grad = T((2, 3, 6, 6)), T((8, 3, 3, 3)), T((2, 8, 4, 4))
    args = [grad, x, w, [8], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, list(output_mask)]
    out = [t if use else None for t, use in zip((x, w, T((8,))), output_mask, strict=True)]
    cost = cost_of("aten.convolution_backward", args, {}, out)
    assert cost.flops == flops
    assert cost.launches == launches


def test_flash_attention_and_its_causal_half() -> None:
    q = T((2, 3, 8, 4))
    out = (q, T((2, 3, 8), 4))
    full = cost_of("aten._scaled_dot_product_flash_attention", [q, q, q, 0.0, False], {}, out)
    causal = cost_of("aten._scaled_dot_product_flash_attention", [q, q, q, 0.0, True], {}, out)
    assert full.flops == 6_144  # 2 * 2 * 3 * 8 * 8 * (4 + 4)
    assert causal.flops == 3_072
    assert full.moved_bytes == 2 * 2 * 192 + 4 * 48  # q once (it is the same tensor), out, lse


def test_flash_attention_backward_is_five_products() -> None:
    q = T((2, 3, 8, 4))
    rest = [q, T((2, 3, 8), 4), None, None, 8, 8, 0.0, False]
    name = "aten._scaled_dot_product_flash_attention_backward"
    cost = cost_of(name, [q, q, q, q, *rest], {}, (q, q, q))
    assert cost.flops == 15_360  # 6144 / 2 * 5


def test_efficient_attention_reads_its_causal_flag() -> None:
    q = T((2, 3, 8, 4), 4)
    name = "aten._scaled_dot_product_efficient_attention"
    assert cost_of(name, [q, q, q, None, True], {}, (q,)).flops == 6_144
    assert cost_of(name, [q, q, q, None, True, 0.0, True], {}, (q,)).flops == 3_072
    back = [q, q, q, q, None, q, T((2, 3, 8), 4), None, None, 0.0, [True] * 4, True]
    assert cost_of(f"{name}_backward", back, {}, (q, q, q, None)).flops == 7_680


def test_rnn_counts_matrices_once_per_position() -> None:
    weights = [T((16, 4)), T((16, 4)), T((16,)), T((16,))]
    # 2 * (5 * 3) positions * (64 + 64) weights
    assert cost_of("aten._cudnn_rnn", [T((5, 3, 4)), weights, 4], {}, T((5, 3, 4))).flops == 3_840


def test_elementwise_has_bytes_and_no_flops() -> None:
    cost = cost_of("aten.add.Tensor", [T((10, 10)), T((10, 10))], {}, T((10, 10)))
    assert (cost.kind, cost.flops, cost.moved_bytes) == ("elementwise", 0, 600)


def test_an_expanded_tensor_is_read_once() -> None:
    bias = T((64, 10), 2, strides=(0, 1))
    cost = cost_of("aten.add", [T((64, 10)), bias], {}, T((64, 10)))
    assert cost.moved_bytes == 2 * (640 + 10 + 640)


def test_in_place_is_one_read_and_one_write() -> None:
    x = T((100,))
    assert cost_of("aten.relu_", [x], {}, x).moved_bytes == 400
    assert cost_of("aten.relu_", [x], {}, x).kind == "elementwise"


def test_fills_and_copies_do_not_read_their_target() -> None:
    x = T((100,))
    assert cost_of("aten.zero_", [x], {}, x).moved_bytes == 200
    assert cost_of("aten.copy_", [x, T((100,), 4)], {}, x).moved_bytes == 600


def test_views_start_no_kernel() -> None:
    for name in ("aten.view", "aten.t", "aten.detach", "aten.empty_like", "aten.unsqueeze_"):
        cost = cost_of(name, [T((4, 4))], {}, T((4, 4)))
        assert (cost.launches, cost.moved_bytes, cost.is_known) == (0, 0, True)


def test_embedding_reads_rows_not_the_table() -> None:
    table, ids, out = T((50_000, 8)), T((3, 4), 8), T((3, 4, 8))
    # 12 indices of 8 bytes, 96 elements read and written
    assert cost_of("aten.embedding", [table, ids], {}, out).moved_bytes == 96 + 2 * 192


def test_embedding_backward_zeroes_the_table() -> None:
    grad, ids, table = T((3, 4, 8)), T((3, 4), 8), T((1000, 8))
    cost = cost_of("aten.embedding_dense_backward", [grad, ids, 1000, -1, False], {}, table)
    assert cost.moved_bytes == 16_000 + 96 + 3 * 192


def test_batch_norm_reads_its_input_twice() -> None:
    x, w = T((2, 4, 8, 8)), T((4,), 4)
    cost = cost_of("aten.native_batch_norm", [x, w, w, w, w, True, 0.1, 1e-5], {}, (x, w, w))
    # twice 1024 in, 1024 out, four-channel fp32: one tensor in, two the same out (once)
    assert cost.moved_bytes == 3 * 1024 + 16 + 16


def test_nll_loss_picks_one_score_per_target() -> None:
    scores, target = T((4, 1000), 4), T((4,), 8)
    out = (T((), 4), T((), 4))
    cost = cost_of("aten.nll_loss_forward", [scores, target, None, 1, -100], {}, out)
    assert cost.moved_bytes == 32 + 16 + 8


def test_index_and_scatter_count_what_they_touch() -> None:
    table, ids = T((1000, 8)), T((5,), 8)
    assert cost_of("aten.index", [table, [ids]], {}, T((5, 8))).moved_bytes == 40 + 160
    put = cost_of("aten.index_put_", [table, [ids], T((5, 8)), True], {}, table)
    assert put.moved_bytes == 2 * (40 + 80)


def test_foreach_in_place_reads_all_and_writes_the_first_list() -> None:
    p, g = [T((1000,), 4), T((10,), 4)], [T((1000,), 4), T((10,), 4)]
    cost = cost_of("aten._foreach_add_", [p, g], {"alpha": -0.1}, None)
    assert cost.kind == "optimizer"
    assert cost.moved_bytes == 3 * 4040
    assert cost.launches == 1


def test_foreach_launches_by_tensors_and_by_chunks() -> None:
    many = [T((10,), 4) for _ in range(161)]
    assert traffic.foreach_launches(many) == 2  # 110 tensors a launch
    assert traffic.foreach_launches(many, list(many)) == 3  # 64 tensors a launch
    large = [T((65_536 * 321,), 4)]
    assert traffic.foreach_launches(large) == 2  # 320 chunks a launch


def test_fused_adam_writes_everything_but_the_gradients() -> None:
    def lists() -> list[T]:
        return [T((100,), 4)]

    cost = cost_of("aten._fused_adamw_", [lists(), lists(), lists(), lists()], {}, None)
    assert cost.moved_bytes == 4 * 400 + 3 * 400


def test_unknown_operator_is_other_and_says_so() -> None:
    cost = cost_of("mine.magic", [T((10,))], {}, T((10,)))
    assert (cost.kind, cost.is_known, cost.moved_bytes, cost.launches) == ("other", False, 40, 1)


def test_hints_classify_what_has_no_formula() -> None:
    assert cost_of("aten.some_new_math", [T((10,))], {}, T((10,)), hint="pointwise").is_known
    assert cost_of("aten.some_new_view", [T((10,))], {}, T((10,)), hint="view").launches == 0


def test_register_op_teaches_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulas, "_FORMULAS", dict(formulas._FORMULAS))
    register_op(
        "mine::magic",
        kind="gemm",
        flops=lambda _x, scale, out: scale * out.shape[0],
        moved_bytes=lambda *_, **__: 7,
    )
    cost = cost_of("mine.magic.default", [T((10,)), 3], {}, T((10,)))
    assert (cost.kind, cost.flops, cost.moved_bytes, cost.is_known) == ("gemm", 30, 7, True)


def test_register_op_refuses_an_unknown_kind() -> None:
    with pytest.raises(InputError, match="'matmul' is not a kind"):
        register_op("mine::magic", flops=lambda **_: 0, kind="matmul")  # type: ignore[arg-type]


def test_every_table_entry_has_a_kind_and_no_operator_is_listed_twice() -> None:
    names = [name for table in formulas._TABLES for row in table for name in row.split()]
    assert len(names) == len(set(names))
