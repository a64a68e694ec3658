"""Shapes that depend on values: what is assumed, what is known all the same, and what is noted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trace.sweep import notes_text, report

from outlay.errors import InputError
from outlay.trace.tracing import profile_of, trace_step

pytestmark = pytest.mark.torch

FILE = Path(__file__).with_name("steps_selecting.py")


def rows_of(step: str) -> int:
    """Rows of the first matrix product of a step at batch size 8."""
    products = [op for op in report(FILE, step).ops if op.name in ("aten.mm", "aten.addmm")]
    return next(op.shapes[0][0] for op in products if op.phase == "forward")


@pytest.mark.parametrize("step", ["nonzero", "masked", "where"])
def test_half_is_selected_where_nothing_is_known(step: str) -> None:
    # 8 samples of 10 rows
    assert rows_of(step) == 40
    assert "at steps_selecting.py:" in notes_text(report(FILE, step))
    assert "0.5 of its elements were assumed to be kept" in notes_text(report(FILE, step))
    assert "--selected 0.25" in notes_text(report(FILE, step))


def test_single_elements() -> None:
    (picked,) = [op for op in report(FILE, "masked_select").ops if op.name == "aten.masked_select"]
    assert picked.shapes[-1] == (8 * 64 // 2,)


def test_a_random_mask_tells_its_share() -> None:
    # 15 % of 8 * 100
    assert rows_of("masked_language") == 120
    assert "0.15 of its elements are counted, as its mask is made" in notes_text(
        report(FILE, "masked_language")
    )


def test_a_mask_of_constants_is_known() -> None:
    # the step views the result as 8 x 7: any other number of elements would fail
    assert report(FILE, "off_diagonal").notes == ()


def test_different_values_among_ten_kinds() -> None:
    (looked_up,) = [op for op in report(FILE, "uniques").ops if op.name == "aten.embedding"]
    # 800 draws of ten kinds: each is drawn
    assert looked_up.shapes[-1] == (10, 64)


def test_rows_repeated_by_known_lengths() -> None:
    # 1 + 2 + ... + 8 = 36 rows
    shapes = [op.shapes for op in report(FILE, "repeated").ops if op.name == "aten.index_select"]
    assert shapes[0][-1] == (36, 64)


def test_counts_are_even() -> None:
    result = report(FILE, "counted")
    # 80 rows among four kinds
    parts = [op for op in result.ops if op.name == "aten.mm" and op.phase == "forward"]
    assert [(op.count, op.shapes[0]) for op in parts] == [(4, (20, 64))]


def test_as_many_as_a_mask_has() -> None:
    # a quarter of 800: 200, of which 3 rows of 64 are used
    assert rows_of("top_by_value") == 3


@pytest.mark.parametrize("step", ["experts", "experts_one_hot"])
def test_experts_share_the_tokens(step: str) -> None:
    result = report(FILE, step)
    # 128 tokens, two choices each, among eight experts: 32 rows; not the 256 there are in all
    rows = {op.shapes[0] for op in result.ops if op.name == "aten.mm" and op.count == 8}
    assert (32, 64) in rows
    forward = next(total for total in result.phases if total.phase == "forward")
    assert forward.flops == 2 * 128 * 64 * 8 + 2 * (2 * 128) * 64 * 64


@pytest.mark.parametrize("step", ["ctc", "ctc_lists"])
def test_ctc_keeps_its_alignments(step: str) -> None:
    (loss,) = [op for op in report(FILE, step).ops if op.name == "aten._ctc_loss"]
    # a number for each of 2 * 10 + 1 states at 50 positions of 8 sequences
    assert loss.shapes[-1] == (8, 50, 21)
    assert report(FILE, step).notes == ()


def test_random_numbers_on_the_host() -> None:
    result = report(FILE, "choices_on_the_host")
    assert result.flops == 2 * (2 * 8 * 64 * 64)
    (rolled,) = [op for op in result.ops if op.name == "aten.roll"]
    assert rolled.count == 1


def test_the_share_can_be_given() -> None:
    result = trace_step(f"{FILE}:masked", 8, selected=0.25)
    products = [op for op in result.ops if op.name == "aten.mm" and op.phase == "forward"]
    assert products[0].shapes[0] == (20, 64)
    assert "0.25 of its elements were assumed to be kept" in notes_text(result)


def test_shapes_stay_in_proportion_to_the_batch() -> None:
    profile = profile_of(f"{FILE}:experts", selected=0.3)
    assert not any(
        "polynomials" in note or "different operations" in note for note in profile.notes
    )
    # 100 samples of 16 tokens, two of eight experts: 400 rows each
    step = profile.at(100)
    expected = 2 * 1600 * 64 * 8 + 2 * 3200 * 64 * 64
    forward = [op for op in step.ops if op.phase == "forward"]
    assert sum(op.count * op.flops for op in forward) == pytest.approx(expected)


@pytest.mark.parametrize("selected", [0, -0.5, 1.5, True])
def test_what_is_no_share(selected: float) -> None:
    with pytest.raises(InputError, match="is not a share"):
        trace_step(f"{FILE}:masked", 8, selected=selected)
