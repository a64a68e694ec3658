"""Lightning, bitsandbytes and torchao: a 128 x 128 matrix at batch size 8."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trace.sweep import notes_text, report

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

FILE = Path(__file__).with_name("steps_libraries.py")
ELEMENTS = 128 * 128


@pytest.mark.parametrize("step", ["lightning_by_hand", "lightning_trainer"])
def test_lightning(step: str) -> None:
    result = report(FILE, step)
    assert result.parameters == ELEMENTS
    # forward and the weight's gradient
    assert result.flops == 2 * 2 * 8 * ELEMENTS
    phases = {total.phase: total.launches for total in result.phases}
    assert phases["optimizer"] > 0
    # Adam's two states
    assert result.peak.memory.optimizer_state == 2 * 4 * ELEMENTS


@pytest.mark.parametrize(
    ("step", "state_bytes"),
    [
        # two states of a byte an element, each with the largest value of every 256 (64 floats,
        # in a block of 512 bytes) and a code book of 256 floats
        ("bitsandbytes_adam8bit", 2 * (ELEMENTS + 512 + 1024)),
        ("bitsandbytes_lion8bit", ELEMENTS + 512 + 1024),
        ("bitsandbytes_paged", 2 * 4 * ELEMENTS),
        ("torchao_adam8bit", 2 * (ELEMENTS + 512 + 1024)),
    ],
)
def test_states_of_8_bit_optimizers(step: str, state_bytes: int) -> None:
    result = report(FILE, step)
    assert result.peak.memory.optimizer_state == state_bytes
    assert result.unknown_ops == {}


def test_an_update_of_8_bits_moves_a_byte_a_state() -> None:
    (update,) = [
        op
        for op in report(FILE, "bitsandbytes_adam8bit").ops
        if op.name == "bitsandbytes.optimizer_update_8bit_blockwise"
    ]
    assert (update.kind, update.phase) == ("optimizer", "optimizer")
    # the gradient read; weights, two states, their scales and code books read and written
    assert update.moved_bytes == 4 * ELEMENTS + 2 * (4 * ELEMENTS + 2 * (ELEMENTS + 256 + 1024))


def test_a_compiled_update_is_named() -> None:
    assert "torch.compile was left out" in notes_text(report(FILE, "torchao_adam8bit"))
