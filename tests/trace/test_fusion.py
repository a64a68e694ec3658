"""What torch.compile fuses, by hand: chains of operators as their tensors flow.

Sizes are in bytes: a tensor here is 1000 elements of 2 bytes, unless its name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from outlay.trace.fusion import Flow, FusedShare, fused_ops, sorts_of
from outlay.trace.profile import Kind, Op, Phase

N = 1000
SHAPE = (10, 100)
KINDS: dict[str, Kind] = {
    "mm": "gemm",
    "gelu": "elementwise",
    "add": "elementwise",
    "mul": "elementwise",
    "native_dropout": "elementwise",
    "gelu_backward": "elementwise",
    "native_dropout_backward": "elementwise",
    "threshold_backward": "elementwise",
    "relu": "elementwise",
    "_softmax": "softmax",
    "_log_softmax": "softmax",
    "nll_loss_forward": "reduction",
    "native_layer_norm": "norm",
    "native_batch_norm": "norm",
    "sum": "reduction",
    "_foreach_add_": "optimizer",
    "view": "copy",
    "sort": "reduction",
}


@dataclass
class Steps:
    """A step written down operator by operator; values are named, bytes by name."""

    sizes: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)

    def run(
        self,
        name: str,
        reads: str,
        writes: str,
        *,
        phase: Phase = "forward",
        elements: int = N,
        moved: int | None = None,
        shapes: tuple[tuple[int, ...], ...] = (SHAPE, SHAPE),
        is_compiled: bool = True,
        few: int | None = None,
    ) -> None:
        """Run one operator; `few` is what it picks of the first thing it reads."""
        read, written = reads.split(), writes.split()
        sizes = [self.sizes.get(value, 2 * N) for value in (*read, *written)]
        sizes[0] = few or sizes[0]
        self.ops.append(
            Op(
                name=f"aten.{name}",
                kind=KINDS[name],
                phase=phase,
                precision="fp16",
                count=1,
                flops=1e6 if name == "mm" else 0.0,
                moved_bytes=float(sum(sizes) if moved is None else moved),
                shapes=shapes,
            )
        )
        self.flows.append(
            Flow(
                reads=tuple(((self._number(value), 0), 0) for value in read),
                writes=tuple((self._number(value), 0) for value in written),
                sizes_bytes=tuple(sizes),
                elements=elements,
                is_compiled=is_compiled,
            )
        )

    def _number(self, value: str) -> int:
        return self.numbers.setdefault(value, len(self.numbers))

    def fused(self) -> list[FusedShare]:
        """What is left of each operator."""
        left = fused_ops(self.ops, self.flows)
        assert all(one is not None for one in left)
        return [one for one in left if one is not None]

    def moved_bytes(self) -> list[float]:
        """What each still moves."""
        pairs = zip(self.fused(), self.ops, strict=True)
        return [fused.moved_bytes(op, self.flows) for fused, op in pairs]

    def launches(self) -> list[float]:
        """The kernels of each."""
        return [fused.launches for fused in self.fused()]


def a_feed_forward() -> Steps:
    """mm, bias, GELU, dropout, mm; and its backward."""
    steps = Steps(sizes={"bias": 200, "mask": N})
    steps.run("mm", "x w", "h")
    steps.run("add", "h bias", "hb")
    steps.run("gelu", "hb", "g")
    steps.run("native_dropout", "g", "d mask")
    steps.run("mm", "d w2", "y")
    steps.run("mm", "dy w2", "dd", phase="backward")
    steps.run("native_dropout_backward", "dd mask", "dg", phase="backward")
    steps.run("gelu_backward", "dg hb", "dhb", phase="backward")
    steps.run("mm", "dhb w", "dx", phase="backward")
    return steps


def test_a_chain_reads_its_inputs_once_and_writes_its_results_once() -> None:
    steps = a_feed_forward()
    moved = steps.moved_bytes()
    # bias + GELU + dropout: reads h (2000) and bias (200); hb and g stay in registers; writes the
    # result d (2000) and the mask (1000), which random numbers cannot be drawn for again.
    assert sum(moved[1:4]) == 2000 + 200 + 2000 + 1000
    assert sum(op.moved_bytes for op in steps.ops[1:4]) == 4200 + 4000 + 5000
    assert steps.launches()[1:4] == [1, 0, 0]


def test_backward_computes_again_what_follows_from_what_is_there_anyway() -> None:
    moved = a_feed_forward().moved_bytes()
    # hb was not kept: it follows from h, which takes as much, and the bias, which is there anyway.
    # So backward reads dd, the mask, h and the bias, and writes dhb.
    assert sum(moved[6:8]) == 2000 + 1000 + 2000 + 200 + 2000


def test_what_follows_from_as_many_bytes_is_not_kept() -> None:
    steps = Steps()
    steps.run("mm", "x w", "h")
    steps.run("gelu", "h", "g")
    steps.run("relu", "g", "r")
    steps.run("mm", "r w2", "y")
    steps.run("mm", "dy w2", "dr", phase="backward")
    steps.run("gelu_backward", "dr g", "dg", phase="backward")
    steps.run("mm", "dg w", "dx", phase="backward")
    moved = steps.moved_bytes()
    assert sum(moved[1:3]) == 2000 + 2000  # h in, r out; g is not kept
    assert moved[5] == 3 * 2000  # dr, and h instead of g; dg out


def test_products_stay_as_they_are() -> None:
    steps = a_feed_forward()
    pairs = list(zip(steps.fused(), steps.ops, strict=True))
    assert all(fused.slots is None for fused, op in pairs if op.kind == "gemm")
    assert all(fused.launches == op.launches for fused, op in pairs if op.kind == "gemm")


def test_nothing_moves_more_than_before() -> None:
    steps = a_feed_forward()
    pairs = zip(steps.moved_bytes(), steps.ops, strict=True)
    assert all(moved <= op.moved_bytes for moved, op in pairs)


def test_a_result_that_others_read_is_written() -> None:
    steps = Steps()
    steps.run("mm", "x w", "h")
    steps.run("gelu", "h", "g")
    steps.run("add", "g h", "s")
    steps.run("mm", "g w2", "y")
    steps.run("mm", "s w2", "z")
    assert sum(steps.moved_bytes()[1:3]) == 2000 + 2000 + 2000  # h once, g and s


def test_what_goes_by_way_of_a_product_is_not_one_kernel() -> None:
    steps = Steps()
    steps.run("gelu", "x", "g")
    steps.run("mm", "g w", "h")
    steps.run("add", "h g", "s")  # shares g with the first, but needs the product of it
    assert steps.launches() == [1, 1, 1]
    assert steps.moved_bytes()[2] == 3 * 2000


def test_a_residual_stream_is_added_where_it_is_normed() -> None:
    steps = Steps()
    steps.run("mm", "a w", "h")
    steps.run("add", "h stream", "sum")
    steps.run("native_layer_norm", "sum", "n")
    steps.run("mm", "n w2", "y")
    steps.run("add", "y sum", "next")
    # one kernel: h and the stream in, the sum (read later) and its norm out
    assert sum(steps.moved_bytes()[1:3]) == 4 * 2000
    assert steps.launches()[1:3] == [1, 0]


def test_batch_norm_reduces_and_then_goes_on_with_what_follows() -> None:
    steps = Steps(sizes={"mean": 4, "deviation": 4})
    steps.run("native_batch_norm", "x", "b mean deviation", moved=3 * 2000 + 8)
    steps.run("relu", "b", "r")
    steps.run("mm", "r w", "y")
    # x for the statistics, x again to normalise; the result of relu alone is written
    assert sum(steps.moved_bytes()[:2]) == 3 * 2000 + 8
    assert sum(op.moved_bytes for op in steps.ops[:2]) == 5 * 2000 + 8
    assert steps.launches()[:2] == [2, 0]


def test_a_loss_picks_from_scores_that_are_never_written() -> None:
    steps = Steps(sizes={"loss": 4})
    steps.run("mm", "x w", "scores")
    steps.run("_log_softmax", "scores", "logs")
    steps.run("nll_loss_forward", "logs", "loss", elements=10, few=20, shapes=(SHAPE, ()))
    moved = steps.moved_bytes()
    assert moved[1:] == [2000, 24]


def test_a_sum_over_everything_ends_its_kernel() -> None:
    steps = Steps(sizes={"total": 2})
    steps.run("mul", "x y", "p")
    steps.run("sum", "p", "total", shapes=(SHAPE, ()))
    steps.run("mul", "p total", "q")
    assert steps.launches() == [1, 0, 1]


def test_code_that_is_not_compiled_is_left_alone() -> None:
    steps = Steps()
    steps.run("gelu", "x", "g")
    steps.run("relu", "g", "r", is_compiled=False)
    steps.run("mul", "r x", "m")
    left = fused_ops(steps.ops, steps.flows)
    assert left[1] is None
    assert [one.launches for one in left if one is not None] == [1, 1]


def test_amounts_follow_the_flows_of_another_batch() -> None:
    steps = a_feed_forward()
    twice = [
        replace(flow, sizes_bytes=tuple(2 * size for size in flow.sizes_bytes))
        for flow in steps.flows
    ]
    ops = [replace(op, moved_bytes=2 * op.moved_bytes) for op in steps.ops]
    at_twice = [one.moved_bytes(op, twice) for one, op in zip(steps.fused(), ops, strict=True)]
    assert at_twice == [2 * moved for moved in steps.moved_bytes()]


@pytest.mark.parametrize("length", [200, 3000])
def test_kernels_have_so_many_operators_at_most(length: int) -> None:
    steps = Steps()
    for place in range(length):
        steps.run("gelu", f"v{place}", f"v{place + 1}")
    # 64 in a kernel: as many kernels as that takes
    assert sum(steps.launches()) == -(-length // 64)


@pytest.mark.parametrize(
    ("name", "kind", "sorts"),
    [
        ("aten.relu_", "elementwise", ("pointwise",)),
        ("aten.native_batch_norm", "norm", ("reduction", "pointwise")),
        ("aten.native_layer_norm_backward", "norm", ("rows", "reduction")),
        ("aten.sort", "reduction", ()),
        ("aten.convolution", "conv", ()),
        ("aten.embedding", "embedding", ("pointwise",)),
        ("aten.embedding_dense_backward", "embedding", ()),
        ("mine.gelu", "elementwise", ()),
    ],
)
def test_what_an_operator_is_to_the_compiler(name: str, kind: Kind, sorts: object) -> None:
    op = Op(
        name=name,
        kind=kind,
        phase="forward",
        precision="fp16",
        count=1,
        flops=0,
        moved_bytes=1,
        shapes=(SHAPE, SHAPE),
    )
    assert sorts_of(op) == sorts
