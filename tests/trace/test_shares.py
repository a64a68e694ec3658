"""Routing, matching, padding and questions by values follow a share, and say which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.trace.sweep import count, flops, notes_text, report

from outlay.trace.capture.likely_values import even_counts, evenly_set, in_turn
from outlay.trace.tracing import profile_of, trace_step

pytestmark = pytest.mark.torch

FILE = Path(__file__).with_name("steps_shares.py")
LINES = FILE.read_text().splitlines()
BATCH, N, EXPERTS, ANCHORS = 8, 64, 8, 400
TOKENS = BATCH * 16
ROW_FLOPS = 2 * N * N
"""Of one row through one of the square layers."""


def rows(step: str) -> float:
    """Rows that went through the square layers in the forward pass."""
    products = [op for op in report(FILE, step).ops if op.name in ("aten.mm", "aten.bmm")]
    square = [op for op in products if op.phase == "forward" and op.shapes[1][-2:] == (N, N)]
    return sum(op.flops for op in square) / ROW_FLOPS


def line_of(code: str) -> str:
    """`steps_shares.py:31`: the first line with this code."""
    number = next(n for n, line in enumerate(LINES, start=1) if code in line)
    return f"steps_shares.py:{number}"


# Mixtures of experts

ROUTINGS = [
    "experts_if_any",
    "experts_hit",
    "experts_sorted",
    "experts_counted",
    "experts_padded",
    "experts_by_number",
]


@pytest.mark.parametrize("step", ROUTINGS)
def test_every_token_goes_through_two_of_eight_experts(step: str) -> None:
    # even routing: 128 tokens * 2 choices among 8 experts, 32 rows each; the router sees all
    assert rows(step) == TOKENS * 2
    router = 2 * TOKENS * N * EXPERTS
    assert flops(report(FILE, step), phase="forward") == router + TOKENS * 2 * ROW_FLOPS


@pytest.mark.parametrize("step", [step for step in ROUTINGS if step != "experts_padded"])
def test_experts_get_the_same_share_and_each_is_used(step: str) -> None:
    products = [op for op in report(FILE, step).ops if op.name == "aten.mm"]
    each = [op for op in products if op.phase == "forward" and op.shapes[1] == (N, N)]
    assert {op.shapes[0] for op in each} == {(TOKENS * 2 // EXPERTS, N)}
    assert sum(op.count for op in each) == EXPERTS
    # Adam keeps two averages of every expert: none of them is without a gradient
    assert report(FILE, step).peak.memory.optimizer_state >= 2 * 4 * EXPERTS * N * N


def test_shares_alone_give_the_same() -> None:
    # 8 * 2**15 tokens: twice as many choices, more than are followed one by one
    assert rows("experts_of_many_tokens") == BATCH * 2**15 * 2


def test_what_routing_was_told_is_noted_once_a_line() -> None:
    asked = notes_text(report(FILE, "experts_if_any"))
    assert "reads 8 values back from the GPU and is answered with yes." in asked
    assert asked.count("0.25 of its elements are counted, as its mask is made") == 1
    array = notes_text(report(FILE, "experts_sorted"))
    where = line_of(".bincount(minlength=EXPERTS).cpu().numpy()")
    assert f"An array that is read at {where} depends on values: likely values" in array
    # the maximum of even counts: 256 / 8
    assert "is answered with 32." in notes_text(report(FILE, "experts_padded"))
    assert "is answered with 0 ... 7." in notes_text(report(FILE, "experts_by_number"))


def test_routing_stays_in_proportion_to_the_batch() -> None:
    profile = profile_of(f"{FILE}:experts_sorted")
    forward = [op for op in profile.at(100).ops if op.phase == "forward"]
    expected = 1600 * 2 * (N * EXPERTS + 2 * N * N)
    assert sum(op.count * op.flops for op in forward) == pytest.approx(expected)


# Detection


@pytest.mark.parametrize("step", ["assigner", "assigner_drawn"])
def test_an_assigner_finds_ten_candidates_for_each_box(step: str) -> None:
    # 3 boxes an image: 30 places of its 400, and a few more where two boxes share one
    assert BATCH * 30 <= rows(step) <= BATCH * 33
    notes = notes_text(report(FILE, step))
    assert 'counts.to(torch.int32).max(), 5, device="cuda")) reads a value back' in notes
    assert f"{line_of('if foreground.max() > 1')} (if foreground.max() > 1:) reads a value" in notes
    (told,) = re.findall(r"\(if foreground\.sum\(\):\).*?answered with (\d+)", notes)
    assert int(told) == pytest.approx(rows(step), abs=BATCH)


def test_an_assigner_of_unknown_images_still_finds_candidates() -> None:
    # two boxes an image, as half of the 24 numbers are taken to be different
    assert BATCH * 20 <= rows("assigner_unknown") <= BATCH * 22
    assert "unique at steps_shares.py" in notes_text(report(FILE, "assigner_unknown"))


def test_a_number_of_candidates_nobody_knows_is_one_at_least() -> None:
    # one for each of four boxes an image, and they do not all meet in one place
    assert rows("dynamic_candidates") == BATCH * 4


def test_places_that_are_no_background_are_half_rather_than_none() -> None:
    assert rows("labelled_places") == BATCH * 20 / 2
    assert rows("skips_images_without_boxes") == BATCH * 20 / 2


def test_masks_that_have_nothing_to_do_with_each_other_do_not_empty_one_another() -> None:
    # found, background and valid: half of 20 anchors an image each
    assert rows("matched_by_overlap") == 3 * BATCH * 10


def test_a_match_made_on_the_host_has_a_query_for_each_target() -> None:
    assert rows("matched_on_the_host") == BATCH * 5
    assert "zeros were taken" in notes_text(report(FILE, "matched_on_the_host"))


# Language


@pytest.mark.parametrize(
    ("step", "length"), [("masked_labels", 100), ("masked_labels_of_a_long_batch", 50_000)]
)
def test_labels_that_were_drawn_are_those_that_are_not_ignored(step: str, length: int) -> None:
    assert rows(step) == 0.15 * BATCH * length
    assert "assumed" not in notes_text(report(FILE, step))


def test_lengths() -> None:
    # a mask of unknown padding keeps half of 40; the longest of drawn ones is the bound
    assert rows("padded_to_the_longest") == BATCH * 20
    said = notes_text(report(FILE, "padded_to_the_longest"))
    assert "answered with 20, which follows from the assumed share of 0.5" in said
    assert "--selected 0.25" in said
    assert rows("padded_to_drawn_lengths") == BATCH * 40
    # from 1 to 40: 20.5 on average, each rounded to whole tokens
    assert rows("packed") == pytest.approx(BATCH * 20.5, abs=BATCH / 2)


def test_a_packed_sequence_is_as_long_as_its_mask() -> None:
    result = report(FILE, "packed_for_a_recurrent_layer")
    # half of 40 steps of 8 sequences; four gates of a square for input and state each
    assert flops(result, "rnn", phase="forward") == BATCH * 20 * 8 * ROW_FLOPS
    assert "160 of 320 time steps are counted, which follows from the assumed share" in notes_text(
        result
    )


def test_the_share_moves_what_is_worked_out_of_it() -> None:
    # a quarter of 40
    result = trace_step(f"{FILE}:padded_to_the_longest", BATCH, selected=0.25)
    assert flops(result, phase="forward") == BATCH * 10 * ROW_FLOPS
    assert "answered with 10, which follows from the assumed share of 0.25" in notes_text(result)


# Questions and loops


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ("turns", "while not done.all()"),
        ("turns_by_number", "while error.item() > 1e-4"),
        ("turns_without_a_test", "if (y.abs().max() < 0.1)"),
    ],
)
def test_a_loop_that_values_would_end_takes_ten_turns(step: str, code: str) -> None:
    assert rows(step) == 10 * BATCH
    said = notes_text(report(FILE, step))
    assert f"The loop at {line_of(code)} depends on values: 10 turns at most were assumed." in said


def test_a_truncated_draw_is_made_once() -> None:
    result = report(FILE, "drawn_within_bounds")
    # -2 and 2 are a hundred standard deviations of 0.02 away
    assert count(result, "aten.normal_") == 1
    assert count(result, "aten.where") == 0
    assert "turns" not in notes_text(result)


def test_an_early_exit_is_not_taken() -> None:
    assert rows("early_exit") == 6 * BATCH


def test_checks_of_the_data_do_not_raise() -> None:
    assert rows("checked") == BATCH
    assert notes_text(report(FILE, "checked")).count("as it would raise otherwise") == 4


@pytest.mark.parametrize(
    ("step", "answer"), [("work_behind_a_question", "yes"), ("work_behind_a_number", "1")]
)
def test_work_behind_a_question_is_done(step: str, answer: str) -> None:
    assert rows(step) == 2 * BATCH
    assert f"is answered with {answer}, on which it does more." in notes_text(report(FILE, step))


# Examples


def test_examples_are_even() -> None:
    mask = evenly_set(100, 30)
    assert int(mask.sum()) == 30
    assert set(mask.view(10, 10).sum(1).tolist()) == {3}
    assert even_counts(4, 10).tolist() == [3, 3, 2, 2]
    assert in_turn(6, 0, 2).tolist() == [0, 1, 2, 0, 1, 2]
    assert in_turn(3, 1, 41).tolist() == [1, 21, 41]
    assert in_turn(1, 0, 10).tolist() == [5]
    # two examples of few places among many do not meet
    first, second = (set(in_turn(10, 0, 399, phase).tolist()) for phase in (1, 2))
    assert len(first) == len(second) == 10
    assert not first & second
