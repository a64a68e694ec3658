"""Parameters that are frozen while the model is built count where the step trains them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from tests.trace.together import Together

from outlay.hardware.gpu_names import find_gpu
from outlay.plan.placement import calibration
from outlay.predict.parallel import parallel_step
from outlay.predict.step import Placement
from outlay.predict.strategy import Strategy
from outlay.trace.target import UNCHANGED

pytestmark = pytest.mark.torch

SIZES = (4, 16)
MATRIX = 256 * 256
STEPS = ("unfrozen_in_turn", "never_frozen", "one_stays_frozen", "two_passes")
TOGETHER = Together(
    Path(__file__).with_name("steps_frozen.py"), [(step, SIZES, UNCHANGED) for step in STEPS]
)


@cache
def traced(step):
    return TOGETHER.profile(step, SIZES, UNCHANGED)


@pytest.mark.parametrize("step", ["unfrozen_in_turn", "never_frozen"])
def test_what_is_unfrozen_in_turn_is_trained(step):
    profile = traced(step)
    assert profile.parameters == profile.trainable_parameters == 2 * MATRIX
    # a gradient of each, in fp32; the last of them at the end of its backward pass
    assert profile.structure.gradient_bytes == 2 * MATRIX * 4
    assert profile.structure.ready[-1] == 1.0


def test_their_memory_is_as_if_they_had_never_been_frozen():
    frozen, never = traced("unfrozen_in_turn"), traced("never_frozen")
    assert frozen.memory == never.memory
    memory = frozen.memory_at(4)
    # two moments of each; of the gradients only one is there at a time
    assert memory.optimizer_state == 2 * 2 * MATRIX * 4
    assert memory.gradients == MATRIX * 4


def test_what_stays_frozen_is_not_trained():
    profile = traced("one_stays_frozen")
    assert (profile.parameters, profile.trainable_parameters) == (2 * MATRIX, MATRIX)
    assert profile.structure.gradient_bytes == MATRIX * 4
    assert profile.memory_at(4).optimizer_state == 2 * MATRIX * 4


def test_two_passes_finish_each_gradient_twice_and_keep_it_once():
    profile = traced("two_passes")
    assert profile.structure.gradient_bytes == 2 * MATRIX * 4
    assert profile.gradient_bytes == MATRIX * 4


def test_they_are_exchanged_between_gpus():
    gpu = find_gpu("RTX 4090").gpu
    times = [
        parallel_step(traced(step), Placement(gpu=gpu, gpus=2), Strategy(data=2), 4, calibration())
        for step in ("unfrozen_in_turn", "never_frozen")
    ]
    assert times[0].gradient_bytes == times[1].gradient_bytes == 2 * MATRIX * 4
    assert times[0].exchange_s == times[1].exchange_s
