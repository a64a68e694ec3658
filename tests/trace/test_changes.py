"""Steps traced with changes made to them, against the same changes written out by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from tests.trace.together import Together

from outlay.errors import TraceFailed
from outlay.trace.profile import value_at
from outlay.trace.target import UNCHANGED, Changes

pytestmark = pytest.mark.torch

FILE = Path(__file__).with_name("steps_changed.py")
SIZES = (4, 16)
BATCH = 16
PARAMETERS = 32 * 64 + 64 + 4 * (2 * 64 + 64 * 256 + 256 + 256 * 64 + 64) + 64 * 10 + 10


BY_HAND = {
    "bf16_autocast": Changes(arithmetic="bf16 autocast"),
    "bf16": Changes(arithmetic="bf16"),
    "blocks": Changes(recompute="blocks"),
    "fused": Changes(update="fused"),
    "accumulated": Changes(accumulate=2),
}
AUTOCAST, FP16 = (Changes(arithmetic=f"{name} autocast") for name in ("bf16", "fp16"))
SELECTIVE = Changes(recompute="selective")
SMALL_STATE, HOST_STATE = (Changes(update=name) for name in ("8-bit", "offloaded"))
LORA = Changes(lora_rank=4)
SEVERAL = Changes(arithmetic="bf16", recompute="blocks", update="8-bit")
MADE = [UNCHANGED, *BY_HAND.values(), FP16, SELECTIVE, SMALL_STATE, HOST_STATE, LORA, SEVERAL]
TOGETHER = Together(
    FILE,
    [
        *(("plain", SIZES, changes) for changes in MADE),
        *((step, SIZES, UNCHANGED) for step in BY_HAND),
        ("switched_off", SIZES, AUTOCAST),
        ("no_blocks", SIZES, BY_HAND["blocks"]),
        ("no_blocks", SIZES, LORA),
    ],
)


@cache
def traced(step="plain", changes=UNCHANGED):
    return TOGETHER.profile(step, SIZES, changes)


def kernels(profile):
    """How often each operator that starts a kernel runs, by phase."""
    counts = {}
    for op in profile.ops:
        if op.launches:
            key = op.name, op.phase, op.precision
            counts[key] = counts.get(key, 0) + op.count
    return counts


@pytest.mark.parametrize(("by_hand", "changes"), BY_HAND.items())
def test_a_change_is_the_same_as_one_written_by_hand(by_hand, changes):
    hand, made = traced(by_hand), traced("plain", changes)
    assert kernels(made) == kernels(hand)
    for size in (4, 16, 64):
        assert made.memory_at(size).peak_bytes == hand.memory_at(size).peak_bytes
        assert made.allocator_use_at(size) == hand.allocator_use_at(size)


def test_autocast_that_is_switched_off_is_switched_on():
    made = traced("switched_off", AUTOCAST)
    assert kernels(made) == kernels(traced("bf16_autocast"))


def test_fp16_comes_with_a_scaler():
    profile = traced("plain", FP16)
    names = {op.name for op in profile.ops}
    assert "aten._amp_foreach_non_finite_check_and_unscale_" in names
    assert any(op.precision == "fp16" and op.kind == "gemm" for op in profile.ops)


def test_recomputing_costs_a_forward_of_the_blocks_and_saves_their_activations():
    plain, again = traced(), traced("plain", Changes(recompute="blocks"))
    # two products of each of 4 blocks, but for the last product, which backward does not need
    block = 2 * (2 * 128 * 64 * 256)
    flops = sum(op.count * value_at(op.flops, 1) for op in again.ops if op.phase == "recompute")
    assert flops == pytest.approx(4 * block, rel=0.51)
    assert flops >= 4 * block / 2
    assert again.memory_at(BATCH).activations < 0.5 * plain.memory_at(BATCH).activations


def test_selective_recomputing_keeps_the_products():
    blocks, selective = (traced("plain", Changes(recompute=how)) for how in ("blocks", "selective"))
    again = [op for op in selective.ops if op.phase == "recompute"]
    assert again
    assert not any(op.kind == "gemm" for op in again)
    assert blocks.memory_at(BATCH).activations < selective.memory_at(BATCH).activations
    assert selective.memory_at(BATCH).activations < traced().memory_at(BATCH).activations


def test_8_bit_state_takes_a_byte_and_a_scale():
    memory = traced("plain", SMALL_STATE).memory_at(BATCH)
    # weights of 64 x 256: a byte twice and 4 bytes for each 256 twice; smaller ones in fp32
    large = 8 * 64 * 256
    least = large * (2 + 8 / 256)
    most = least + (PARAMETERS - large) * 8 + 40 * 512
    assert least <= memory.optimizer_state <= most


def test_an_update_on_the_host_leaves_no_state_on_the_gpu():
    memory = traced("plain", HOST_STATE).memory_at(BATCH)
    assert memory.optimizer_state == 0


def test_lora_trains_two_small_matrices_beside_each_linear_layer():
    profile = traced("plain", LORA)
    # in each of 4 blocks 64 -> 256 and 256 -> 64, rank 4
    adapters = 4 * 2 * 4 * (64 + 256)
    assert profile.trainable_parameters == adapters
    assert profile.parameters == PARAMETERS + adapters
    assert profile.structure.gradient_bytes == 4 * adapters


def test_changes_go_together():
    memory, plain = traced("plain", SEVERAL).memory_at(64), traced().memory_at(64)
    assert memory.peak_bytes - memory.workspace < 0.2 * (plain.peak_bytes - plain.workspace)
    assert memory.parameters == pytest.approx(plain.parameters / 2, rel=0.05)


@pytest.mark.parametrize("changes", [BY_HAND["blocks"], LORA])
def test_a_model_without_blocks_says_so(changes):
    with pytest.raises(TraceFailed, match="were found"):
        traced("no_blocks", changes)


def test_the_structure_of_a_step():
    structure = traced().structure
    (blocks,) = structure.blocks
    assert (blocks.name, blocks.count) == ("Block", 4)
    assert blocks.parameters == 2 * 64 + 64 * 256 + 256 + 256 * 64 + 64
    assert blocks.width == 64
    assert value_at(blocks.output_bytes, 3) == 3 * 128 * 64 * 4
    assert structure.gradient_bytes == 4 * PARAMETERS
    assert list(structure.ready) == sorted(structure.ready)
    assert structure.ready[0] < 0.3
    assert structure.ready[-1] == 1.0


def test_nothing_of_a_change_is_left_behind():
    import torch
    from torch.optim import AdamW, Optimizer

    from outlay.trace.capture.changes import with_changes

    def now():
        return (
            torch.get_default_dtype(),
            Optimizer.__init__,
            AdamW.__init__,
            torch.Tensor.backward,
            torch.amp.autocast_mode.autocast.__enter__,
        )

    made = []

    def build(batch_size):
        model = torch.nn.Linear(8, 8)
        optimizer = AdamW(model.parameters(), lr=1e-3)
        made.append((model, optimizer))

        def step():
            model(torch.randn(batch_size, 8)).sum().backward()
            optimizer.step()

        return step

    before = now()
    for changes in (
        Changes(arithmetic="bf16", update="fused", accumulate=2),
        Changes(arithmetic="bf16 autocast"),
    ):
        with with_changes(build, changes) as changed_build:
            step = changed_build(2)
            if changes.arithmetic == "bf16":  # autocast wants a GPU to run
                step()
            assert now() != before
        assert now() == before
    (model, optimizer), _ = made
    assert model.weight.dtype == torch.bfloat16
    assert not optimizer.state  # the first of two passes does not update
