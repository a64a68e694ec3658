"""What real training code does, one thing a step, against hand arithmetic at batch size 8.

Most steps have one matrix of 64 x 64: forward 2 * 8 * 64 * 64 FLOPs, its gradient as many.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trace.sweep import count, flops, notes_text, report, reports

from outlay.trace.step_report import StepReport
from outlay.trace.tracing import profile_of

pytestmark = pytest.mark.torch

FILE = Path(__file__).with_name("steps_wide.py")
MATRIX_BYTES = 64 * 64 * 4
FORWARD = 2 * 8 * 64 * 64


def traced(step: str) -> StepReport:
    return report(FILE, step)


def by_phase(result: StepReport) -> tuple[float, ...]:
    return tuple(total.flops for total in result.phases)


def test_everything_is_traced_but_captured_graphs() -> None:
    failed = {name: result for name, result in reports(FILE).items() if isinstance(result, str)}
    assert set(failed) == {"graphed"}, "\n".join(failed.values())
    assert "NotTraceable" in failed["graphed"]


def test_every_operator_has_a_formula() -> None:
    unknown = {
        name: dict(result.unknown_ops)
        for name, result in reports(FILE).items()
        if isinstance(result, StepReport) and result.unknown_ops
    }
    assert unknown == {}


@pytest.mark.parametrize(
    ("step", "state_bytes"),
    [
        ("sgd", 0),
        ("sgd_momentum", MATRIX_BYTES),
        ("sgd_fused", MATRIX_BYTES),
        ("adam_loop", 2 * MATRIX_BYTES),
        ("adam_foreach", 2 * MATRIX_BYTES),
        ("adam_fused", 2 * MATRIX_BYTES + 512),  # and a count of steps on the GPU
        ("adam_capturable", 2 * MATRIX_BYTES + 512),
        ("amsgrad", 3 * MATRIX_BYTES),
        ("adafactor", 2 * 512),  # a row and a column of 64 floats, in blocks of 512 bytes
        ("rmsprop", MATRIX_BYTES),
        ("adagrad", MATRIX_BYTES + 512),  # its count is made where the optimizer is
        ("adadelta", 2 * MATRIX_BYTES),
        ("nadam", 2 * MATRIX_BYTES),
        ("radam", 2 * MATRIX_BYTES),
        ("lion", MATRIX_BYTES),
        ("muon", MATRIX_BYTES),
        ("sparse_adam", 2 * 1000 * 16 * 4),
        ("pure_bf16", 2 * MATRIX_BYTES // 2),
        ("fp16_unscaled_and_clipped", 2 * MATRIX_BYTES),
        ("adapters", 2 * 2 * 4 * 64 * 4),  # of 4 x 64 and 64 x 4 alone
        ("spectra", 2 * 512),  # 33 complex numbers of 8 bytes
    ],
)
def test_optimizer_state(step: str, state_bytes: int) -> None:
    memory = traced(step).timeline.points[-1].memory
    assert memory.optimizer_state == state_bytes


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # Newton and Schulz: five rounds of three products of 64 x 64 x 64
        ("muon", 2 * FORWARD + 5 * 3 * 2 * 64**3),
        ("accumulated", 4 * 2 * FORWARD),
        # four layers forward, again, and two gradients each
        ("checkpointed", 4 * 4 * FORWARD),
        ("checkpointed_reentrant", 4 * 4 * FORWARD),
        ("checkpointed_in_two", 4 * 3 * FORWARD + 2 * FORWARD),  # the first half again
        # a frozen matrix forward; both adapters forward; both their gradients and that between
        ("adapters", FORWARD + 2 * 8 * 256 * (2 + 3)),
        ("conv1d", 2 * (2 * 8 * 32 * 8 * 4 * 3)),
        ("conv3d", 2 * (2 * 8 * 6**3 * 4 * 2 * 27)),
        ("conv_transposed", 2 * (2 * 8 * 8 * 8 * 4 * 8 * 4)),  # by positions of the input
        # 10 + 7 * 5 positions, three gates of 32, two ways; backward twice that
        ("gru_packed", 3 * 2 * 45 * 2 * 96 * (16 + 32)),
        # 80 positions of four gates of 32 by 16 inputs and 8 projected, and the projection
        ("lstm_projected", 3 * 2 * 80 * (128 * (16 + 8) + 8 * 32)),
        ("rnn_plain", 3 * 2 * 80 * 32 * (16 + 32)),
        # 80 tokens; three matrices in, one out; the input has no gradient; attention 2 and 5
        ("multihead", 2 * 80 * 1024 * (4 + 5) + 3.5 * 2 * 8 * 100 * 64),
        # four matrices of the encoder in one operator, its attention; the head and its gradient
        ("encoder_evaluated", 2 * 80 * 8192 + 2 * 8 * 100 * 64 + 2 * (2 * 80 * 32)),
        # shared key heads in fp32: no fused kernel, two products forward and four backward
        ("grouped_heads", 3 * 2 * 8 * 8 * 16 * 16 * 32),
        ("per_sample_gradients", 2 * FORWARD),  # an outer product a sample
        ("own_function", 2 * FORWARD),
        ("compiled", (3 + 3 + 2) * FORWARD),  # the first layer's input has no gradient
        ("flex", 3.5 * 2 * 8 * 2 * 128 * 128 * 32),
        ("graphed_callable", 3 * FORWARD),
        ("distributed", 2 * FORWARD),
        ("fully_sharded", 2 * FORWARD),
        ("fully_shard", 2 * FORWARD),
        ("data_on_the_host", 2 * FORWARD),
        ("streams", 2 * FORWARD),
        ("scripted", 2 * FORWARD),
    ],
)
def test_flops(step: str, expected: float) -> None:
    assert traced(step).flops == expected


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        # two networks of 64 x 256 forward, one of them without gradients
        ("teacher", (2 * 4 * FORWARD, 4 * FORWARD, 0)),
        # the gradient of the points, then that of the weights through it
        ("gradient_penalty", (FORWARD, 2 * FORWARD, 0)),
        ("accumulated", (4 * FORWARD, 4 * FORWARD, 0)),
        # a forward after the update is a forward
        ("evaluates_after", (2 * FORWARD, FORWARD, 0)),
        ("copied", (2 * FORWARD, FORWARD, 0)),
        # generator and critic, the generator again, the critic twice; backward through both to
        # the generator's weights and the critic's (3 products), then the critic's twice
        ("critic_then_generator", (5 * FORWARD, 5 * FORWARD, 0)),
        ("asks_questions", (FORWARD, FORWARD, 0)),
        # the closure runs twice in an optimizer's step
        ("lbfgs", (2 * FORWARD, 2 * FORWARD, traced)),
    ],
)
def test_phases(step: str, expected: tuple[object, ...]) -> None:
    result = by_phase(traced(step))
    assert result[:2] == expected[:2]
    if step != "lbfgs":
        assert result[2] == expected[2]


def test_averaging_weights_is_an_update() -> None:
    result = traced("averaged_weights")
    assert result.parameters == 2 * 64 * 64
    assert count(result, "aten._foreach_lerp_", "optimizer") == 1


def test_an_update_in_a_hook_is_the_optimizer() -> None:
    result = traced("updates_in_backward")
    assert result.timeline.points[-1].memory.optimizer_state == 2 * MATRIX_BYTES
    updated = {op.phase for op in result.ops if op.name == "aten._foreach_addcdiv_"}
    assert updated == {"optimizer"}


def test_gradients_live_throughout_accumulation() -> None:
    points = traced("accumulated").timeline.points
    assert {point.memory.gradients for point in points} == {MATRIX_BYTES}


def test_checkpoints_keep_fewer_activations() -> None:
    plain = 4 * 2 * 8 * 64 * 4  # four layers and their activations of 8 x 64 floats
    for step in ("checkpointed", "checkpointed_reentrant"):
        assert traced(step).peak.memory.activations < plain


def test_adapters_alone_have_gradients() -> None:
    result = traced("adapters")
    assert (result.parameters, result.trainable_parameters) == (64 * 64 + 512, 512)
    updated = [p.memory for p in result.timeline.points if p.phase == "optimizer"]
    assert {memory.gradients for memory in updated} == {2 * 1024}


def test_sparse_gradients_are_small() -> None:
    # the table and two states of 64,000 bytes; a dense gradient would be as large again
    peak = traced("sparse_adam").peak.memory
    assert peak.parameters == 1000 * 16 * 4
    assert peak.peak_bytes - 3 * peak.parameters < 32_000


@pytest.mark.parametrize(
    ("step", "precisions"),
    [("pure_bf16", {"bf16"}), ("tf32", {"tf32"}), ("fp16_unscaled_and_clipped", {"fp16"})],
)
def test_precision_of_products(step: str, precisions: set[str]) -> None:
    result = traced(step)
    assert {op.precision for op in result.ops if op.kind == "gemm"} == precisions


def test_unscaling_and_clipping_come_before_the_update() -> None:
    result = traced("fp16_unscaled_and_clipped")
    names = [p.name for p in result.timeline.points if p.phase == "optimizer"]
    unscale = names.index("aten._amp_foreach_non_finite_check_and_unscale_")
    assert unscale < names.index("aten._foreach_norm") < names.index("aten._foreach_addcdiv_")


@pytest.mark.parametrize(
    ("step", "note"),
    [
        ("compiled", "torch.compile was left out"),
        ("flex", "flex_attention is counted as fused attention over all blocks"),
        ("graphed_callable", "CUDA graphs were left out"),
        ("distributed", "torch.distributed was left out"),
        ("fully_sharded", "torch.distributed was left out"),
        ("fully_shard", "torch.distributed was left out"),
        ("saves_itself", "torch.save was left out"),
        ("data_on_the_host", "(log.append(loss.item())) reads a value back from the GPU and is"),
        ("data_on_the_host", "(if torch.isnan(loss):) reads a value back"),
    ],
)
def test_what_was_left_out_or_answered_is_said(step: str, note: str) -> None:
    assert note in notes_text(traced(step))


def test_recurrent_layers_are_cudnn_calls() -> None:
    for step in ("gru_packed", "lstm_projected", "rnn_plain"):
        result = traced(step)
        assert count(result, "aten._cudnn_rnn") == count(result, "aten._cudnn_rnn_backward") == 1


def test_embedding_bags() -> None:
    result = traced("bags")
    assert result.parameters == 3 * 50 * 16
    assert count(result, "aten._embedding_bag") == 3


def test_parameters_of_whole_transformers() -> None:
    # encoder layer 3168 + 1056 + 4192 and two norms; decoder layer twice the attention and three
    # norms; a norm after either
    attention, feed_forward, norm = 3168 + 1056, 4192, 64
    expected = attention + feed_forward + 2 * norm
    expected += 2 * attention + feed_forward + 3 * norm + 2 * norm
    assert traced("whole_transformer").parameters == expected


def test_kinds_of_flops_that_are_no_products() -> None:
    assert flops(traced("spectra")) == 0
    assert traced("normalised_weights").parameters == 3 * 64 * 64 + 64


def test_channels_last_stays_in_every_convolution() -> None:
    profile = profile_of(f"{FILE}:channels_last_stack", (2, 4))
    convolutions = [op for op in profile.ops if op.kind == "conv"]
    assert sum(op.count for op in convolutions) == 5 + 5
    # the gradient of the last one's mean over the image lies row after row
    assert sum(op.count for op in convolutions if op.layout == "mixed") == 1
    assert {op.layout for op in convolutions} == {"channels_last", "mixed"}
    assert {op.layout for op in profile.ops if op.kind == "norm"} == {"channels_last"}
    copies = {op.name for op in profile.ops if op.kind == "copy" and op.launches}
    assert "aten.clone" not in copies
