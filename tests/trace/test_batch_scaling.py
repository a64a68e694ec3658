from __future__ import annotations

import pytest

from outlay.trace.batch_scaling import aligned, fit_aligned, fit_by_kind, polynomial_through
from outlay.trace.profile import Op, value_at


def _op(
    name: str = "aten.mm",
    flops: float = 0.0,
    moved_bytes: float = 0.0,
    shapes: tuple[tuple[int, ...], ...] = (),
) -> Op:
    return Op(
        name=name,
        kind="gemm",
        phase="forward",
        precision="bf16",
        count=1,
        flops=flops,
        moved_bytes=moved_bytes,
        shapes=shapes,
    )


@pytest.mark.parametrize(
    "polynomial", [(7.0,), (0.0, 3.0), (5.0, 3.0), (1.0, 0.0, 2.0), (-4.0, 0.5, 0.25)]
)
def test_polynomial_through_finds_the_lowest_degree(polynomial: tuple[float, ...]) -> None:
    sizes = (2, 4, 8, 32)
    values = tuple(value_at(polynomial, n) for n in sizes)
    assert polynomial_through(sizes, values) == (polynomial, True)


def test_a_cubic_is_drawn_as_a_line_and_said_so() -> None:
    line, exact = polynomial_through((2, 4, 8, 32), (8.0, 64.0, 512.0, 32_768.0))
    assert not exact
    assert value_at(line, 2) == 8
    assert value_at(line, 32) == 32_768


def test_large_amounts_stay_exact() -> None:
    slope = 3_141_592_653_589.0
    assert polynomial_through((2, 4, 8), (2 * slope, 4 * slope, 8 * slope))[0] == (0.0, slope)


def test_one_size_gives_a_constant() -> None:
    assert polynomial_through((4,), (9.0,)) == ((9.0,), True)


def test_identical_operations_are_merged_with_a_count() -> None:
    traces = [[_op(flops=10.0 * n, shapes=((n, 5),)) for _ in range(3)] for n in (2, 4, 8, 32)]
    ops, notes = fit_aligned((2, 4, 8, 32), traces, period=2)
    assert notes == []
    assert len(ops) == 1
    assert ops[0].count == 1.5  # three operations in two steps
    assert ops[0].at(100).flops == 1000
    assert ops[0].at(100).shapes == ((100, 5),)


def test_operations_equal_at_one_size_but_not_at_another_stay_apart() -> None:
    traces = [[_op(flops=8.0), _op(flops=4.0 * n)] for n in (2, 4, 8)]
    ops, _ = fit_aligned((2, 4, 8), traces, period=1)
    assert len(ops) == 2


def test_amounts_off_the_polynomial_are_noted() -> None:
    traces = [[_op(flops=float(n**3))] for n in (2, 4, 8, 32)]
    ops, notes = fit_aligned((2, 4, 8, 32), traces, period=1)
    assert ops[0].at(32).flops == 32_768
    assert notes[0].startswith("1 amounts are not polynomials")


def test_aligned_looks_at_operators_and_ranks() -> None:
    op = [_op(shapes=((2, 3),))]
    assert aligned([op, [_op(shapes=((4, 3),))]])
    assert not aligned([op, [_op(shapes=((4, 3, 1),))]])
    assert not aligned([op, [_op("aten.bmm", shapes=((4, 3),))]])
    assert not aligned([op, op + op])


def test_fit_by_kind_keeps_the_totals_at_both_ends() -> None:
    traces = [[_op(flops=5.0, moved_bytes=8.0) for _ in range(n)] for n in (2, 4, 8)]
    ops, notes = fit_by_kind((2, 4, 8), traces, period=1)
    assert len(ops) == 1
    assert ops[0].count == 8
    for n in (2, 4, 8):
        op = ops[0].at(n)
        assert op.count * op.flops == pytest.approx(5 * n)
        assert op.count * op.moved_bytes == pytest.approx(8 * n)
    assert "2 at 2, 4 at 4, 8 at 8" in notes[0]
