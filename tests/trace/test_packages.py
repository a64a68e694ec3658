"""CUDA packages that are not installed, by their shapes, FLOPs, bytes and memory.

flash-attn, xformers, apex, deformable operators, Mamba, Liger and Triton, at batch size 8.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.forked import call_forked
from tests.trace.sweep import BATCH_SIZE, count, flops, notes_text, report
from tests.trace.together import Together

from outlay.trace.step_report import HeavyOp
from outlay.trace.target import UNCHANGED

pytestmark = pytest.mark.torch

FILE = Path(__file__).with_name("steps_packages.py")
# As in that file, which this process does not import: it needs torch.
ROWS, HEADS, SIZE, WIDTH, VOCABULARY = 256, 4, 64, 64, 4096
CHANNELS, STATES, POSITIONS = 32, 16, 4096
TENSOR_BYTES = 2 * BATCH_SIZE * ROWS * HEADS * SIZE
"""Query, key, value or output of attention, in bf16."""
PER_ROW_BYTES = 4 * BATCH_SIZE * ROWS * HEADS
"""A number in fp32 for each row of each head."""
NUMBERS_BYTES = 2 * 512
"""The loss and its gradient: a block of the allocator each."""
TOKENS = BATCH_SIZE * ROWS


def op(step: str, name: str, phase: str | None = None) -> HeavyOp:
    """The one row of an operator."""
    (row,) = [op for op in report(FILE, step).ops if op.name == name and phase in (None, op.phase)]
    return row


def live_bytes(step: str) -> float:
    """Everything at the peak but parameters and what libraries take for themselves."""
    memory = report(FILE, step).peak.memory
    return memory.activations + memory.temporaries


# flash-attn and xformers


def test_flash_attention_takes_two_products_and_five_in_backward() -> None:
    # (rows, size) x (size, rows) and back, for each head, half of it below the diagonal
    forward = 2 * 2 * BATCH_SIZE * HEADS * ROWS * ROWS * SIZE / 2
    assert flops(report(FILE, "flash"), "attention", phase="forward") == forward
    assert flops(report(FILE, "flash"), "attention", phase="backward") == 5 / 2 * forward
    # query, key and value read, the output and a number a row written
    assert op("flash", "flash_attn.forward").moved_bytes == 4 * TENSOR_BYTES + PER_ROW_BYTES


@pytest.mark.parametrize("step", ["flash", "flash_packed"])
def test_flash_attention_keeps_nothing_of_the_size_of_the_scores(step: str) -> None:
    # kept: three inputs, the output and a number a row; in backward the output's gradient, three
    # gradients (in one tensor where the inputs are), the query's once more in fp32, and row sums
    expected = (4 + 1 + 3 + 2) * TENSOR_BYTES + 2 * PER_ROW_BYTES + NUMBERS_BYTES
    assert live_bytes(step) == expected


def test_heads_that_share_keys_have_gradients_of_their_own_for_a_while() -> None:
    result = report(FILE, "flash_shared_heads")
    forward = 2 * 2 * BATCH_SIZE * HEADS * ROWS * ROWS * SIZE
    assert flops(result, "attention", phase="forward") == forward
    # query and output whole, key and value half; gradients of all of them, and of the output; the
    # query's in fp32; those of key and value once for each query head
    kept, gradients = 2 + 2 / 2, 1 + 1 + 2 / 2
    expected = (kept + gradients + 2 + 2) * TENSOR_BYTES + 2 * PER_ROW_BYTES + NUMBERS_BYTES
    assert live_bytes("flash_shared_heads") == expected


def test_a_window_counts_only_what_it_sees() -> None:
    # each row sees itself and the 63 before it, as far as there are any
    seen = sum(min(row, 63) + 1 for row in range(ROWS))
    expected = 2 * 2 * BATCH_SIZE * HEADS * seen * SIZE
    assert flops(report(FILE, "flash_window"), phase="forward") == expected


def test_sequences_of_known_lengths_in_one_tensor_have_them() -> None:
    quarter = BATCH_SIZE * ROWS // 4
    expected = 2 * 2 * HEADS * (quarter**2 + (3 * quarter) ** 2) * SIZE
    assert flops(report(FILE, "flash_known_lengths"), phase="forward") == expected
    assert "equally long" not in notes_text(report(FILE, "flash_known_lengths"))


def test_sequences_of_unknown_lengths_are_equally_long_with_a_note() -> None:
    result = report(FILE, "flash_unknown_lengths")
    assert flops(result, phase="forward") == 2 * 2 * BATCH_SIZE * HEADS * ROWS * ROWS * SIZE
    assert "assumed to be equally long" in notes_text(result)


def test_layers_of_flash_attn_are_one_kernel_each() -> None:
    result = report(FILE, "flash_module")
    width = HEADS * SIZE
    # the norm's weight; query, key, value and output, each with a bias
    assert result.parameters == width + 4 * (width * width + width)
    # four products in forward, each twice in backward, but not that of the norm's input
    products = 3 * 4 * 2 * TOKENS * width * width
    attention = 2 * 2 * BATCH_SIZE * HEADS * ROWS * ROWS * SIZE
    assert result.flops == products + attention * (1 + 5 / 2)
    for kernel in ("rms_norm", "rotary", "forward", "cross_entropy"):
        assert count(result, f"flash_attn.{kernel}") == 1
    # query and key are turned in place
    turned = op("flash_module", "flash_attn.rotary")
    assert turned.moved_bytes == 2 * 2 * TENSOR_BYTES + 2 * 2 * ROWS * SIZE // 2
    assert result.unknown_ops == {}


def test_attention_of_xformers_that_torch_has_too_is_torchs() -> None:
    result = report(FILE, "xformers_causal")
    assert count(result, "aten._scaled_dot_product_flash_attention") == 1
    assert flops(result, phase="forward") == 2 * 2 * BATCH_SIZE * HEADS * ROWS * ROWS * SIZE / 2


def test_sequences_side_by_side_see_their_own() -> None:
    seen = BATCH_SIZE * ((ROWS // 4) ** 2 + (3 * ROWS // 4) ** 2)
    assert flops(report(FILE, "xformers_blocks"), phase="forward") == 2 * 2 * HEADS * seen * SIZE


def test_swiglu_of_xformers_computes_its_gate_again() -> None:
    # kept: the input and both first products, each four times as wide; not what the gate put out
    kept = 2 * TOKENS * (WIDTH + 2 * 4 * WIDTH)
    assert report(FILE, "xformers_swiglu").peak.memory.activations == kept + NUMBERS_BYTES
    # three products of that width in forward, each twice in backward
    assert report(FILE, "xformers_swiglu").flops == 3 * 3 * 2 * TOKENS * WIDTH * 4 * WIDTH


# Deformable operators


def test_deformable_attention_reads_four_pixels_a_sample() -> None:
    samples = BATCH_SIZE * 100 * 8 * 2 * 4
    looked_up = 4 * samples * 32 * 2
    shapes_and_starts = 8 * (2 * 2 + 2)
    places_and_weights = 2 * samples * (2 + 1)
    out = 2 * BATCH_SIZE * 100 * 8 * 32
    value = 2 * BATCH_SIZE * (20 * 20 + 10 * 10) * 8 * 32
    forward = looked_up + shapes_and_starts + places_and_weights + out
    assert op("deformable_attention", "mmcv.ms_deform_attn").moved_bytes == forward
    # in backward read again, and read and added to; a gradient of everything written
    backward = 3 * looked_up + shapes_and_starts + 2 * places_and_weights + out + value
    assert op("deformable_attention", "mmcv.ms_deform_attn_backward").moved_bytes == backward


def test_deformable_convolution_multiplies_columns_of_one_image_at_a_time() -> None:
    result = report(FILE, "deformable_convolution")
    positions = 24 * 24
    convolution = 2 * BATCH_SIZE * positions * 32 * 16 * 9
    offsets = 2 * BATCH_SIZE * positions * 27 * 16 * 9
    # input, weight and offsets have gradients; the convolution of the offsets only a weight's
    assert result.flops == 3 * convolution + 2 * offsets
    product = op("deformable_convolution", "mmcv.deformable_product")
    assert product.shapes == ((32, 16 * 9), (16 * 9, positions), (BATCH_SIZE, 32, positions))
    # an image each: columns written and read, the output written, the weight read
    columns = 4 * 16 * 9 * positions
    out_and_weight = 4 * (32 * positions + 32 * 16 * 9)
    assert product.moved_bytes == BATCH_SIZE * (columns + out_and_weight)


# apex


def test_a_fused_optimizer_is_one_kernel() -> None:
    result = report(FILE, "apex_adam")
    elements = WIDTH * WIDTH + WIDTH
    # two states in fp32, those of the norm's weight in a block of 512 bytes each
    assert result.peak.memory.optimizer_state == 2 * 4 * WIDTH * WIDTH + 2 * 512
    update = op("apex_adam", "apex.multi_tensor_adam")
    assert (update.kind, update.phase, update.count) == ("optimizer", "optimizer", 1)
    # gradients read; weights and both states read and written
    assert update.moved_bytes == 4 * elements * (1 + 2 * 3)


def test_level_o2_trains_a_half_model_with_weights_in_fp32() -> None:
    memory = report(FILE, "apex_amp").peak.memory
    assert memory.parameters == (2 + 4) * WIDTH * WIDTH
    product = op("apex_amp", "aten.mm", "forward")
    assert product.precision == "fp16"
    # gradients of 16 bits to fp32 after backward, weights in fp32 to 16 bits after the step
    copies = [op for op in report(FILE, "apex_amp").ops if op.name == "apex.multi_tensor_scale"]
    assert [copy.moved_bytes for copy in copies] == [(2 + 4) * WIDTH * WIDTH] * 2


# Mamba


def test_the_scan_keeps_a_pair_of_states_for_2048_positions() -> None:
    elements = BATCH_SIZE * CHANNELS * POSITIONS
    # kept: input, step sizes, gate and output; B and C; A; states at two places, in fp32
    kept = (
        2 * 4 * elements
        + 2 * 2 * BATCH_SIZE * STATES * POSITIONS
        + 4 * CHANNELS * STATES
        + 4 * BATCH_SIZE * CHANNELS * 2 * 2 * STATES
    )
    result = report(FILE, "mamba_scan")
    assert result.peak.memory.activations == kept + NUMBERS_BYTES
    assert flops(result, phase="forward") == 9 * elements * STATES


def test_a_layer_of_mamba() -> None:
    result = report(FILE, "mamba_layer")
    inner, rank = 2 * WIDTH, WIDTH // 16
    weights = {
        "in": WIDTH * 2 * inner,
        "x": inner * (rank + 2 * STATES),
        "delta": rank * inner,
        "out": inner * WIDTH,
    }
    others = inner * 4 + inner + inner + inner * STATES + inner
    # the convolution and its bias, the bias of delta, A and D
    assert result.parameters == sum(weights.values()) + others
    # every product in forward and twice in backward; that of delta, and the convolution, once more
    products = 2 * TOKENS * (3 * sum(weights.values()) + weights["delta"])
    convolutions = 2 * TOKENS * inner * 4 * (1 + 1 + 2)
    scans = 9 * (1 + 2.5) * TOKENS * inner * STATES
    assert result.flops == products + convolutions + scans
    assert result.unknown_ops == {}


def test_a_layer_of_mamba_2_is_products_over_chunks() -> None:
    result = report(FILE, "mamba2_layer")
    inner, chunk = 2 * WIDTH, 64
    projected = 2 * inner + 2 * STATES + 2
    products = 3 * 2 * TOKENS * (WIDTH * projected + inner * WIDTH)
    convolutions = 2 * TOKENS * (inner + 2 * STATES) * 4 * (1 + 1 + 2)
    by_state = 2 * TOKENS * inner * STATES
    within = 2 * TOKENS * inner * chunk / 2
    pairs = 2 * TOKENS * STATES * chunk
    # forward: states, pairs, and the output from both; backward: states and pairs again, then
    # gradients of states, x (both), B, C, pairs, their two factors, and step sizes
    scans = (2 + 5) * by_state + (1 + 3) * within + (2 + 2) * pairs
    assert result.flops == products + convolutions + scans


def test_functions_of_a_package_that_is_installed_are_replaced() -> None:
    result = report(FILE, "convolution_of_an_installed_package")
    elements = BATCH_SIZE * CHANNELS * POSITIONS
    # 4 taps in forward; in backward the gradients of input and weight
    assert result.flops == 2 * 4 * elements * (1 + 2)
    assert "causal_conv1d is installed, but its operators run on a GPU alone" in notes_text(result)


def test_a_compiled_module_that_cannot_be_loaded_is_counted_by_formula() -> None:
    result = report(FILE, "scan_of_a_broken_extension")
    assert result.flops == 9 * BATCH_SIZE * CHANNELS * POSITIONS * STATES
    assert "selective_scan_cuda cannot be loaded here" in notes_text(result)


# Liger and Triton


def test_the_fused_loss_never_has_all_logits() -> None:
    result = report(FILE, "liger_loss")
    # as many rows at a time as take no more memory than the input: 2048 / (4096 / 64)
    chunk = TOKENS // (VOCABULARY // WIDTH)
    rows_bytes, weight_bytes = 2 * TOKENS * WIDTH, 2 * VOCABULARY * WIDTH
    # input and its gradient, the weight's, a chunk of logits, labels, losses and their sum
    expected = 2 * rows_bytes + weight_bytes + 2 * chunk * VOCABULARY + (8 + 4) * TOKENS + 512
    assert live_bytes("liger_loss") == expected
    assert result.flops == 3 * 2 * TOKENS * VOCABULARY * WIDTH
    # each chunk's logits read and written, its labels read and its losses written
    losses = op("liger_loss", "liger.cross_entropy")
    assert losses.count == TOKENS / chunk
    assert losses.moved_bytes == 2 * 2 * TOKENS * VOCABULARY + (8 + 4) * TOKENS


def test_gradients_of_liger_are_in_the_place_of_what_they_are_of() -> None:
    result = report(FILE, "liger_layers")
    hidden_bytes = 2 * TOKENS * 4 * WIDTH
    # three tensors read, the gradients of two written over them
    backward = op("liger_layers", "liger.swiglu_backward")
    assert backward.moved_bytes == 5 * hidden_bytes
    assert result.peak.memory.temporaries < 2 * hidden_bytes
    assert result.unknown_ops == {}


def test_a_triton_kernel_moves_what_its_source_loads_and_stores() -> None:
    tensor_bytes = 4 * TOKENS * WIDTH
    scaled = [op for op in report(FILE, "triton_kernels").ops if op.name == "triton._scaled"]
    # x read and another written; with a constant that says so, that one is read as well
    assert sorted(op.moved_bytes for op in scaled) == [2 * tensor_bytes, 3 * tensor_bytes]
    assert {op.kind for op in scaled} == {"elementwise"}


def test_a_triton_kernel_that_multiplies_matrices_is_named() -> None:
    assert report(FILE, "triton_kernels").unknown_ops == {"triton._product": 1}


def test_a_backward_function_may_make_tensors() -> None:
    # the gradient read and written, and the one number it is multiplied by
    product = op("backward_that_makes_a_tensor", "aten.mul", "backward")
    assert product.moved_bytes == 4 * (2 * BATCH_SIZE * WIDTH + 1)


def packages_named_by(message: str) -> list[str]:
    """The packages to assume after a failure, where flash-attn was looked for and not found."""
    from outlay.trace.libraries import stand_ins

    stand_ins._not_installed["flash_attn"] = False
    return stand_ins.wanted_after(message)


def test_transformers_message_about_flash_attention_names_its_package() -> None:
    message = "FlashAttention2 has been toggled on, but the package doesn't seem to be installed."
    named = call_forked("tests.trace.test_packages:packages_named_by", message)
    assert named == ["flash_attn"]


# At any batch size


SCALED = ("flash", "mamba_layer", "liger_loss")
TOGETHER = Together(FILE, [(step, (4, 8), UNCHANGED) for step in SCALED])


@pytest.mark.parametrize("step", SCALED)
def test_amounts_grow_with_the_batch(step: str) -> None:
    profile = TOGETHER.profile(step, (4, 8))
    at = {
        size: sum(
            op.at(size, shapes=False).flops * op.at(size, shapes=False).count for op in profile.ops
        )
        for size in (8, 32)
    }
    assert at[8] == pytest.approx(report(FILE, step).flops)
    assert at[32] == pytest.approx(4 * at[8])
