"""Whole traces: each test's numbers are worked out by hand from the step in steps.py."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.trace.together import Together

from outlay.errors import InputError, TraceFailed
from outlay.trace import allocator
from outlay.trace.process import torch_can_be_traced
from outlay.trace.profile import Compilable, value_at
from outlay.trace.target import UNCHANGED
from outlay.trace.tracing import BATCH_SIZES, profile_of

if TYPE_CHECKING:
    from outlay.trace.profile import Profile, Trace

pytestmark = pytest.mark.torch

STEPS = Path(__file__).with_name("steps.py")
MIB = 1024**2


THREE = (2, 4, 8)
AT_THREE_SIZES = (
    "channels_last_tf32",
    "masked_attention",
    "every_fourth",
    "per_sample_loop",
    "boolean_mask",
    "asks_the_gpu",
    "compiled_in_part",
    "lstm",
    "noise_in_step",
    "tied_and_moved",
    "own_operator",
    "linear_of_a_turned_input",
    "built_from_values",
)
AT_FOUR_SIZES = (
    "linear_sgd",
    "linear_adam",
    "resnet50",
    "transformer",
    "gan",
    "fp16_scaled",
    "pairwise",
    "rms_norm",
)
TOGETHER = Together(
    STEPS,
    [
        *((name, THREE, UNCHANGED) for name in AT_THREE_SIZES),
        *((name, BATCH_SIZES, UNCHANGED) for name in AT_FOUR_SIZES),
    ],
)


@cache
def traced(function: str, batch_sizes: tuple[int, ...] = BATCH_SIZES) -> Profile:
    return TOGETHER.profile(function, batch_sizes)


def traced_alone(function: str) -> Profile:
    return profile_of(f"{STEPS}:{function}")


def flops_of(trace: Trace, kind: str, phase: str) -> float:
    return sum(op.count * op.flops for op in trace.ops if op.kind == kind and op.phase == phase)


def counts(profile: Profile) -> Counter[str]:
    result: Counter[str] = Counter()
    for op in profile.ops:
        result[op.name] += op.count
    return result


def test_linear_amounts_at_a_batch_size_never_traced() -> None:
    profile = traced("linear_sgd")
    step = profile.at(100)
    assert profile.parameters == profile.trainable_parameters == 1024 * 512
    # forward 2 * 100 * 1024 * 512; backward the weight's gradient alone: the input has none
    assert flops_of(step, "gemm", "forward") == 104_857_600
    assert flops_of(step, "gemm", "backward") == 104_857_600
    assert step.flops == 209_715_200
    assert profile.unknown_ops == {}
    assert profile.notes == ()


def test_linear_memory_peak_is_the_weight_its_gradient_and_the_batch() -> None:
    # weight 1024 * 512 * 4 = 2 MiB, as much gradient, 64 rows of 4 KiB, and two scalars of 512 B
    memory = traced("linear_sgd").memory_at(64)
    assert memory.parameters == 2 * MIB
    assert memory.gradients == 2 * MIB
    assert memory.inputs == 64 * 4096
    assert memory.optimizer_state == 0
    assert memory.workspace == 64 * MIB  # cuBLAS, forward and backward
    rest = memory.peak_bytes - 4 * MIB - 64 * 4096 - memory.workspace
    assert rest in (512, 1024)


def test_adam_holds_five_times_the_parameters_in_its_step() -> None:
    # parameters, gradients, two states, and the square root of the second as a temporary
    memory = traced("linear_adam").memory_at(2)
    assert memory.parameters == memory.gradients == 4 * MIB
    assert memory.optimizer_state == 8 * MIB
    assert 4 * MIB <= memory.temporaries < 4.1 * MIB


def test_memory_bends_where_the_forward_takes_over() -> None:
    # The traced sizes stay in the optimizer (5 x 4 MiB); from some size on activations win.
    profile = traced("linear_adam")
    peaks = {n: profile.memory_at(n).peak_bytes for n in (1, 8, 100_000)}
    # and 64 MiB of cuBLAS
    assert peaks[1] < peaks[8] < 85 * MIB
    # 100 000 rows of 4 KiB as input and as output, beside the parameters and the state
    assert peaks[100_000] == pytest.approx(2 * 100_000 * 4096 + 76 * MIB, rel=0.001)


def test_resnet50_against_the_published_4_09_gigamacs() -> None:
    profile = traced("resnet50")
    assert profile.parameters == 25_557_032
    step = profile.at(64)
    forward = flops_of(step, "conv", "forward") + flops_of(step, "gemm", "forward")
    assert forward / 64 / 2 == 4_089_184_256  # 4.09 G multiply-adds an image
    # Backward is twice the forward, less the gradient of the images:
    # 2 * 64 * 112 * 112 * 64 * 3 * 7 * 7
    backward = flops_of(step, "conv", "backward") + flops_of(step, "gemm", "backward")
    assert backward == 2 * forward - 2 * 64 * 112 * 112 * 64 * 147
    assert counts(profile)["aten.convolution"] == 53
    assert counts(profile)["aten.native_batch_norm_backward"] == 53
    assert {op.precision for op in profile.ops if op.kind == "conv"} == {"bf16"}
    assert profile.history is not None
    # Convolutions in bf16 take copies in another layout on GPUs with tensor cores for it.
    conditions = set(profile.history.conditions.values())
    assert conditions >= {"cublas", "tensor bf16"}
    assert all(
        profile.history.conditions[place].startswith(("tensor", "plain"))
        for place in profile.history.optional
    )


def test_resnet50_memory_against_a_measured_step() -> None:
    # max_memory_allocated of this model, batch 64, bf16 autocast, on an H200 with torch 2.11:
    # 3066.7 MiB, of which 64 MiB are cuBLAS workspace.
    memory = traced("resnet50").memory_at(64)
    assert memory.peak_bytes / MIB == pytest.approx(3066.7, rel=0.015)
    assert memory.workspace >= 64 * MIB


def test_precision_follows_both_tf32_switches_and_layout_the_memory_format() -> None:
    profile = traced("channels_last_tf32", THREE)
    assert {op.precision for op in profile.ops if op.kind == "conv"} == {"tf32"}
    assert {op.precision for op in profile.ops if op.kind == "gemm"} == {"fp32"}
    layouts = {op.phase: op.layout for op in profile.ops if op.kind == "conv"}
    # the gradient of a mean over the image lies row after row
    assert layouts == {"forward": "channels_last", "backward": "mixed"}
    assert profile.history is not None
    # no copies in another layout, but parts of the weights' gradient
    assert len(profile.history.optional) == 1
    assert profile.notes[-1].startswith("Traced at 3 batch sizes only")


def test_transformer_uses_flash_attention_in_16_bit() -> None:
    profile = traced("transformer")
    assert counts(profile)["aten._scaled_dot_product_flash_attention"] == 2
    assert counts(profile)["aten._scaled_dot_product_flash_attention_backward"] == 2
    step = profile.at(10)
    # two layers, causal half of 2 * 10 * 4 heads * 64 * 64 * (8 + 8)
    assert flops_of(step, "attention", "forward") == 2 * 2_621_440
    assert flops_of(step, "attention", "backward") == 2.5 * 2 * 2_621_440
    assert {op.precision for op in profile.ops if op.kind == "gemm"} == {"bf16"}


def test_clipping_and_update_are_the_optimizer_phase() -> None:
    profile = traced("transformer")
    update = {op.name for op in profile.ops if op.phase == "optimizer"}
    assert "aten._foreach_norm" in update
    assert "aten._foreach_lerp_" in update
    assert not any(
        op.name.startswith("aten._foreach") for op in profile.ops if op.phase != "optimizer"
    )
    assert any("(loss.item()) reads a value back" in note for note in profile.notes)


def test_masked_fp32_attention_uses_the_memory_efficient_kernel() -> None:
    names = counts(traced("masked_attention", THREE))
    assert names["aten._scaled_dot_product_efficient_attention"] == 1
    assert names["aten._scaled_dot_product_efficient_attention_backward"] == 1


def test_gan_has_two_optimizers_and_two_backward_passes() -> None:
    profile = traced("gan")
    # generator 16 * 64 + 64, critic 64 + 1
    assert profile.parameters == 1024 + 64 + 65
    assert counts(profile)["aten._foreach_addcdiv_"] == 2
    step = profile.at(10)
    # 2 * 10 * (16 * 64 generator + 3 * 64 critic)
    assert flops_of(step, "gemm", "forward") == 20 * (1024 + 3 * 64)
    phases = [op.phase for op in profile.ops]
    assert {"forward", "backward", "optimizer"} == set(phases)
    # Adam's two states for both networks, in blocks of 512 bytes: weights 4096 and 512,
    # biases 512 and 512.
    assert profile.memory_at(4).optimizer_state == 2 * (4096 + 3 * 512)


def test_gradscaler_steps_the_optimizer() -> None:
    profile = traced("fp16_scaled")
    names = counts(profile)
    assert names["aten._amp_foreach_non_finite_check_and_unscale_"] == 1
    assert names["aten._foreach_addcdiv_"] == 1
    assert {op.precision for op in profile.ops if op.kind == "gemm"} == {"fp16"}
    # 256 * 256 * 4 and a bias of 1024 bytes, twice
    assert profile.memory_at(4).optimizer_state == 2 * (262_144 + 1024)


def test_a_period_is_averaged() -> None:
    profile = traced("every_fourth", THREE)
    assert profile.period == 4
    assert counts(profile)["aten.exp"] == 0.25
    # mm forward once every step and once more every fourth; backward likewise
    assert counts(profile)["aten.mm"] == 2.5


def test_a_quadratic_step_is_exact_at_an_unseen_size() -> None:
    step = traced("pairwise").at(50)
    # z = x W: 2 * 50 * 32 * 16; z z': 2 * 50 * 50 * 16
    assert flops_of(step, "gemm", "forward") == 51_200 + 80_000


def test_a_loop_over_samples_falls_back_and_says_so() -> None:
    profile = traced("per_sample_loop", THREE)
    assert any("different operations at different batch sizes" in note for note in profile.notes)
    # forward 2 * 8 * 8 a sample, backward as much
    assert profile.at(16).flops == pytest.approx(16 * 256)


def test_selection_by_values_counts_half_and_says_so() -> None:
    profile = traced("boolean_mask", THREE)
    # x of 100 x 8: half of its elements are summed, 400 floats read and one written
    picked = next(op for op in profile.at(100).ops if op.name == "aten.index")
    assert picked.shapes[-1] == (400,)
    (note,) = [note for note in profile.notes if "Indexing with a mask" in note]
    assert "at steps.py:" in note
    assert "0.5 of its elements were assumed to be kept" in note


def test_code_that_asks_the_gpu_is_answered() -> None:
    profile = traced("asks_the_gpu", THREE)
    assert any("torch.compile was left out" in note for note in profile.notes)
    assert profile.compilable == Compilable(mode="default")
    assert profile.parameters == 72


def test_what_the_code_compiles_is_known_with_its_backward() -> None:
    profile = traced("compiled_in_part", THREE)
    assert profile.compilable == Compilable(mode="reduce-overhead", calls=2)
    fused = {(op.name, op.phase): op.fused for op in profile.ops if op.launches}
    gelu, tanh = fused["aten.gelu", "forward"], fused["aten.tanh", "forward"]
    assert fused["aten.gelu_backward", "backward"] is not None
    assert fused["aten.tanh_backward", "backward"] is not None
    assert fused["aten.exp", "forward"] is None
    assert fused["aten.sum", "forward"] is None
    # GELU and tanh in one kernel: 8 floats of a sample in, and 8 out
    assert gelu is not None
    assert tanh is not None
    assert gelu.launches + tanh.launches == 1
    assert value_at(gelu.moved_bytes, 10) + value_at(tanh.moved_bytes, 10) == 10 * 8 * 4 * 2
    # and of a step that compiles nothing, all but its optimizer
    plain = traced("lstm", THREE)
    assert plain.compilable == Compilable()
    assert all((op.fused is None) == (op.phase == "optimizer") for op in plain.ops)


def test_lstm_is_one_call_each_way() -> None:
    profile = traced("lstm", THREE)
    names = counts(profile)
    assert (names["aten._cudnn_rnn"], names["aten._cudnn_rnn_backward"]) == (1, 1)
    # 4 gates of 64: 256 * (32 + 64) and 256 * (64 + 64) weights, 20 positions a sample
    weights = 256 * 96 + 256 * 128
    assert flops_of(profile.at(10), "rnn", "forward") == 2 * 200 * weights
    assert flops_of(profile.at(10), "rnn", "backward") == 4 * 200 * weights


def test_a_step_may_use_the_default_device() -> None:
    assert traced("noise_in_step", THREE).parameters == 72


def test_a_mix_of_devices_is_the_users_error() -> None:
    with pytest.raises(TraceFailed, match="DeviceMismatch.*cuda:0 and cpu"):
        traced_alone("cpu_and_gpu")


def test_tied_weights_stay_tied_when_moved() -> None:
    profile = traced("tied_and_moved", THREE)
    assert profile.parameters == 50 * 16
    memory = profile.memory_at(4)
    # 800 elements of 2 bytes in blocks of 512: 2048; Adam's two states likewise
    assert memory.parameters == 2048
    assert memory.optimizer_state == 4096


def test_what_the_allocator_holds() -> None:
    profile = traced("linear_adam")
    use = profile.allocator_use_at(8)
    assert use is not None
    # Five blocks of 4 MiB (20 MiB segments hold five each), a small segment of 2 MiB, and a
    # workspace of 32 MiB for each of cuBLAS's handles; blocks are of the size asked for.
    assert use.reserved_bytes in (86 * MIB, 106 * MIB)
    allocated_bytes = profile.memory_at(8).peak_bytes
    assert use.allocated_bytes == pytest.approx(allocated_bytes, rel=0.01)
    assert use.allocated_bytes <= use.needed_bytes <= use.reserved_bytes
    assert profile.allocator_use_at(300).reserved_bytes >= profile.memory_at(300).peak_bytes


def test_the_history_is_kept() -> None:
    history = traced("linear_adam").history
    assert history is not None
    assert (
        allocator.peak_use(history, 8).reserved_bytes
        == traced("linear_adam").allocator_use[8].reserved_bytes
    )
    assert (32.0 * MIB,) in history.sizes


def test_an_operator_without_formula_is_listed() -> None:
    assert traced("own_operator", THREE).unknown_ops == {"outlay_tests.twice": 1}


def test_the_profile_says_where_it_came_from() -> None:
    profile = traced("linear_sgd")
    assert profile.name == "linear_sgd"
    assert profile.description == "One matrix, no bias."
    assert "torch" in profile.versions
    assert len(profile.traced_on) == len("2026-11-15")


def test_a_failing_step_names_the_line() -> None:
    with pytest.raises(
        TraceFailed, match=r"raises_in_step failed at batch size 2: steps.py:\d+"
    ) as error:
        traced_alone("raises_in_step")
    assert "x @ x" in error.value.what
    assert "RuntimeError" in error.value.why
    assert "runs by itself" in error.value.fix


def test_a_failing_function_names_the_line() -> None:
    with pytest.raises(TraceFailed, match="ValueError: no data for 2"):
        traced_alone("raises_in_build")


def test_not_returning_a_callable() -> None:
    with pytest.raises(InputError, match="returned a int, not a training step"):
        traced_alone("returns_a_number")


def test_a_function_that_wants_more_arguments() -> None:
    with pytest.raises(TraceFailed, match="give its other arguments defaults"):
        traced_alone("wants_more")


def test_a_hard_abort_is_reported_as_such() -> None:
    with pytest.raises(TraceFailed, match="killed by SIGABRT"):
        traced_alone("aborts")


def test_a_syntax_error_names_the_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def build(n):\n    return lambda: (\n")
    with pytest.raises(InputError, match=r"bad\.py:2 is not valid Python"):
        profile_of(f"{tmp_path / 'bad.py'}:build")


def test_a_missing_module_names_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import no_such_library\n")
    with pytest.raises(TraceFailed, match="Install no_such_library into this Python"):
        profile_of(f"{tmp_path / 'bad.py'}:build")


def test_no_such_function(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text("def training_step(n): ...\n")
    with pytest.raises(InputError, match='Did you mean "training_step"'):
        profile_of(f"{tmp_path / 'steps.py'}:trainig_step")


@pytest.mark.parametrize("sizes", [(), (0, 2, 4), (-1,)])
def test_batch_sizes_must_be_positive(sizes: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="are not batch sizes"):
        profile_of(f"{STEPS}:linear_sgd", sizes)


def test_this_torch_can_be_traced() -> None:
    assert torch_can_be_traced()


def test_a_torch_that_cannot_be_traced_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outlay.trace.process.torch_can_be_traced", lambda: False)
    with pytest.raises(TraceFailed, match="The torch in this Python cannot be traced"):
        profile_of(f"{STEPS}:aborts")


def test_rms_norm_is_one_kernel_each_way():
    profile = traced("rms_norm")
    result = counts(profile)
    assert result["outlay.rms_norm"] == result["outlay.rms_norm_backward"] == 1
    forward = next(op for op in profile.at(8).ops if op.name == "outlay.rms_norm")
    # reads 8 x 256 and the weight of 256, writes 8 x 256 and 8 roots, all in fp32
    assert forward.moved_bytes == 4 * (8 * 256 + 256 + 8 * 256 + 8)


def test_a_bias_is_added_in_place_where_there_is_no_single_product() -> None:
    # On real tensors: the input is copied into rows, multiplied, and the bias added to the result.
    result = counts(traced("linear_of_a_turned_input", THREE))
    assert result["aten.add_"] == 1
    assert "aten.add" not in result
    assert "aten.addmm" not in result


def test_a_model_built_from_computed_values_is_the_users() -> None:
    # round(0 + 8), round(8 + 8.5), round(16 + 9): half to even, 8, 16 and 25 wide
    assert traced("built_from_values", THREE).parameters == 8 * 16 + 16 + 16 * 25 + 25
