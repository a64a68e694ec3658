"""What makes a training step of a script, from the order in which its optimizers step."""

from __future__ import annotations

import pytest

from outlay.trace.step_order import MOST_LOOKED_AT, OptimizerTurn, StepOrder, StepWindow


def seen(iteration: list[str], seconds: float = 1.0, made: int | None = None) -> StepWindow:
    """The window found for iterations of turns such as `Da`: optimizer D, what it runs is a."""
    order = StepOrder()
    optimizers = len({turn[0] for turn in iteration}) if made is None else made
    numbers = {name: number for number, name in enumerate("DGMSC")}
    for place in range(MOST_LOOKED_AT):
        name = iteration[place % len(iteration)]
        turn = OptimizerTurn(optimizer=numbers[name[0]], forward=hash(name), elements=len(name))
        window = order.add(turn, place * seconds, optimizers)
        if window is not None:
            return window
    raise AssertionError("no order was found")


@pytest.mark.parametrize(
    ("iteration", "turns", "steps"),
    [
        (["D"], 1, 1),
        (["D", "G"], 2, 1),
        (["D"] * 5 + ["G"], 6, 1),
        (["D1", "D2", "G1", "M", "S", "G2"], 6, 1),
        (["C", "C", "G"], 3, 1),
        # A penalty in the place of a usual step, in every sixteenth iteration.
        (["D_penalty", "G", *["D", "G"] * 15], 32, 16),
        ([*["D", "G"] * 15, "D_penalty", "G"], 32, 16),
        # Two as steps of their own: one in sixteen, one in four.
        (
            ["D", "D_penalty", "G", "G_path"]
            + ["D", "G"] * 3
            + (["D", "G", "G_path"] + ["D", "G"] * 3) * 3,
            37,
            16,
        ),
    ],
)
def test_the_order_is_that_of_an_iteration(iteration: list[str], turns: int, steps: int) -> None:
    window = seen(iteration, seconds=0.2)
    assert (window.turns, window.steps, window.is_regular) == (turns, steps, True)


def test_slow_steps_are_looked_at_until_what_was_seen_once_comes_again() -> None:
    """Also where other steps are added in between."""
    iterations = ["D", "D_penalty", "G", "G_path", *["D", "G"] * 3]
    iterations += ["D", "G", "G_path", *["D", "G"] * 3] * 3
    window = seen(iterations, seconds=1.0)
    assert (window.turns, window.steps) == (37, 16)


def test_what_the_first_step_alone_does_is_not_waited_for_without_an_end() -> None:
    order = StepOrder()
    for place in range(MOST_LOOKED_AT):
        forward, elements = (2, 3_000) if place == 0 else (1, 1_000)
        turn = OptimizerTurn(optimizer=0, forward=forward, elements=elements)
        window = order.add(turn, place * 1.0)
        if window is not None:
            break
    assert window.turns == 1
    assert 17 <= place <= 20


def test_an_optimizer_that_was_made_is_waited_for() -> None:
    """Thirty steps of one alone are no step where another has yet to come."""
    assert seen([*["D"] * 30, "G"], made=2).turns == 31


def test_quick_steps_are_looked_at_for_longer() -> None:
    """What is rare shows only then."""
    assert seen([*["D"] * 19, "D_penalty"], seconds=0.01).turns == 20


def test_what_hardly_differs_is_not_waited_for() -> None:
    order = StepOrder()
    for place in range(MOST_LOOKED_AT):
        forward, elements = (2, 1_010) if place == 0 else (1, 1_000)
        turn = OptimizerTurn(optimizer=0, forward=forward, elements=elements)
        window = order.add(turn, place * 1.0)
        if window is not None:
            break
    assert (window.turns, place < 20) == (1, True)
