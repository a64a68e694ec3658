"""Kernels that no machine without a GPU can build: NATTEN, StyleGAN's, and a user's own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.forked import call_forked
from tests.trace.sweep import count, notes_text, report

from outlay.errors import InputError, OutlayError
from outlay.trace.formulas import OpCost, register_op
from outlay.trace.step_report import HeavyOp, StepReport
from outlay.trace.tracing import trace_step

pytestmark = pytest.mark.torch

GAN = Path(__file__).with_name("mini_gan") / "steps.py"
NEIGHBORHOODS = Path(__file__).with_name("steps_neighborhoods.py")
IMAGES, PIXELS = 8 * 3, 16 * 16


@pytest.fixture(autouse=True)
def _own_folder_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts run with their own folder on the path."""
    monkeypatch.syspath_prepend(str(GAN.parent))


def ops(result: StepReport, name: str) -> list[HeavyOp]:
    """All rows of one operator, forward first."""
    rows = [op for op in result.ops if op.name == name]
    return sorted(rows, key=lambda op: op.phase != "forward")


# Extensions that are built when a file is imported


def test_an_extension_built_at_import_is_replaced_with_a_note() -> None:
    notes = notes_text(report(GAN, "resampled_with_a_penalty"))
    assert 'The extension "upfirdn2d" (ops/built_at_import.py:' in notes
    assert 'The extension "fused" (ops/built_at_import.py:' in notes


def test_the_gradient_of_a_gradient_of_upfirdn2d_is_upfirdn2d() -> None:
    result = report(GAN, "resampled_with_a_penalty")
    # forward; its gradient; the gradient of that, which is forward's shape; its gradient once more
    assert count(result, "stylegan.upfirdn2d") == 4
    assert result.unknown_ops == {}
    (forward,) = [op for op in ops(result, "stylegan.upfirdn2d") if op.phase == "forward"]
    # 16 x 16 to 32 x 32, 4 x 4 taps of which every second one of a row and of a column meets a
    # pixel: 4 multiply-adds a result; the image read, the larger one written, and the taps
    assert forward.flops == 2 * IMAGES * 4 * PIXELS * 4
    assert forward.moved_bytes == 4 * (IMAGES * PIXELS * (1 + 4) + 16)
    down = [op for op in ops(result, "stylegan.upfirdn2d") if op.shapes[0] == (24, 32, 32, 1)]
    # back from 32 x 32 to 16 x 16 all 16 taps meet a pixel
    assert sum(op.flops for op in down) == 2 * (2 * IMAGES * PIXELS * 16)


def test_an_activation_with_its_bias_reads_and_writes_each_image_once() -> None:
    result = report(GAN, "activated_with_a_penalty")
    (forward, *_) = ops(result, "stylegan.fused_bias_act")
    assert forward.moved_bytes == 4 * (2 * IMAGES * PIXELS + 3)
    # forward, backward, and both directions of the penalty
    assert count(result, "stylegan.fused_bias_act") == 4


def test_an_extension_built_when_it_is_used_is_imported_by_its_name() -> None:
    result = report(GAN, "built_when_used")
    assert count(result, "stylegan.bias_act", "forward") == 1
    assert count(result, "stylegan.bias_act", "backward") == 3
    assert 'The extension "bias_act_plugin"' in notes_text(result)


def test_a_compiled_part_of_a_package_and_one_built_from_text() -> None:
    result = report(GAN, "compiled_beside_its_file_and_built_from_text")
    assert count(result, "stylegan.fused_bias_act") == count(result, "stylegan.bias_act") == 1
    assert "ops.fold_ext is not built here (ops/compiled.py:" in notes_text(result)
    assert 'The extension "inline" (ops/compiled.py:' in notes_text(result)


def test_filtered_lrelu_counts_both_filters_and_keeps_signs_of_two_bits() -> None:
    result = report(GAN, "filtered")
    forward, backward = ops(result, "stylegan.filtered_lrelu")
    # 16 up by 2, padded by 11 on both sides, less 11 of the filter: 43; less 11 and down by 2: 16
    between, out = 16 * 2 + 22 - 11, 16
    # up: along rows (16 x 43), then columns (43 x 43), 6 of 12 taps meet a pixel;
    # down: along rows (43 x 16), then columns (16 x 16), 12 taps each
    taps = 6 * (16 * between + between**2) + 12 * (between * out + out**2)
    assert forward.flops == 2 * IMAGES * taps
    # signs of the 2 x 16 - 1 + 11 = 42 rows and columns that matter, 48 columns in 12 bytes
    signs_bytes = IMAGES * 42 * 12
    # both filters are the same 12 taps
    assert forward.moved_bytes == 4 * (2 * IMAGES * PIXELS + 12 + 3) + signs_bytes
    assert backward.flops > 0.9 * forward.flops
    assert signs_bytes in [tensor_bytes(shape) for shape in backward.shapes]


def tensor_bytes(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def test_a_class_that_checks_that_it_can_be_pickled() -> None:
    result = report(GAN, "kept_with_its_source")
    assert result.parameters == 16 * 16
    assert result.flops == 2 * (2 * 8 * 16 * 16)


# A user's own


def test_a_function_told_in_three_lines() -> None:
    result = report(GAN, "told_in_three_lines")
    (forward,) = ops(result, "swirl_cuda.twist")
    assert forward.flops == 2 * (8 * 5 * PIXELS) * 5
    assert forward.moved_bytes == 4 * (8 * 3 * PIXELS + 8 * 5 * PIXELS + 8)
    (backward,) = ops(result, "swirl_cuda.twist_backward")
    assert backward.flops == 2 * forward.flops
    assert result.unknown_ops == {}


def test_functions_and_methods_of_ones_own_that_launch_kernels_are_not_run() -> None:
    result = report(GAN, "launched_from_python")
    (function,) = ops(result, "launches.swirl")
    assert function.flops == 3 * IMAGES * PIXELS
    (method,) = ops(result, "launches.Swirl_forward")
    assert method.shapes == ((8, 3, 16, 16), (8, 3))
    assert result.unknown_ops == {}


def test_a_function_nobody_knows_is_named_with_its_line() -> None:
    result = report(GAN, "not_known")
    assert result.unknown_ops == {"swirl_cuda.fold": 1}
    (fold,) = ops(result, "swirl_cuda.fold")
    assert (fold.flops, fold.moved_bytes) == (0, 2 * 4 * IMAGES * PIXELS)
    line = 1 + GAN.read_text().splitlines().index(
        "    return lambda: swirl_cuda.fold(x, 2).mul_(2)"
    )
    assert f"swirl_cuda.fold (mini_gan/steps.py:{line})" in notes_text(result)
    assert "outlay.register_op('swirl_cuda.fold'" in notes_text(result)


def test_what_only_looks_whether_a_package_is_there_is_told_the_truth() -> None:
    notes = notes_text(report(GAN, "asks_what_is_there"))
    assert "imports natten only where it is installed" in notes
    assert "OUTLAY_ASSUME_INSTALLED=natten" in notes


def test_a_compiled_module_nobody_knows_says_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import swirls_of_mine\n\ndef build(n): ...\n")
    with pytest.raises(OutlayError) as raised:
        trace_step(f"{tmp_path / 'train.py'}:build", 4)
    assert 'outlay.register_op("swirls_of_mine.FUNCTION", shapes=' in raised.value.fix


NEEDED_AFTER_ALL = """
import torch
try:
    import natten
except ImportError:
    natten = None

def build(n):
    if natten is None:
        raise ModuleNotFoundError("natten is needed for this model")
    q = torch.randn(n, 8, 8, 2, 16, requires_grad=True)
    return lambda: natten.functional.na2d(q, q, q, 7).sum().backward()
"""


def test_a_package_that_a_step_fails_without_is_taken_to_be_installed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NEEDED_AFTER_ALL)
    result = trace_step(f"{tmp_path / 'train.py'}:build", 4)
    assert count(result, "natten.na2d") == 1
    assert "natten is not installed, and taken to be" in notes_text(result)


# NATTEN: 8 samples, 2 heads of 16 channels, windows of 7


@pytest.mark.parametrize(
    ("step", "name", "positions", "window"),
    [
        ("fused_1d", "natten.na1d", 64, 7),
        ("fused_2d", "natten.na2d", 16 * 16, 49),
        ("fused_3d", "natten.na3d", 8 * 8 * 8, 343),
    ],
)
def test_fused_neighborhoods(step: str, name: str, positions: int, window: int) -> None:
    result = report(NEIGHBORHOODS, step)
    (forward,) = ops(result, name)
    # each position meets its window in two products: with the keys, and with the values
    assert forward.flops == 2 * 2 * (8 * positions * 2 * 16) * window
    # queries, keys, values and the result, and a number in fp32 for each row
    assert forward.moved_bytes == 4 * (4 * 8 * positions * 2 * 16 + 8 * positions * 2)
    (backward,) = ops(result, f"{name}_backward")
    assert backward.flops == 5 / 2 * forward.flops


def test_neighborhoods_in_two_kernels_keep_their_weights_in_memory() -> None:
    result = report(NEIGHBORHOODS, "unfused")
    rows, window = 8 * 2 * 16 * 16, 49
    (scores,), (weighted,) = ops(result, "natten.na2d_qk"), ops(result, "natten.na2d_av")
    assert scores.flops == weighted.flops == 2 * rows * 16 * window
    # the positional bias has an entry for each offset from -6 to 6 and head
    assert scores.moved_bytes == 4 * (2 * rows * 16 + rows * window + 2 * 13 * 13)
    weights_bytes = 4 * rows * window
    assert result.peak.memory.activations >= weights_bytes
    fused = report(NEIGHBORHOODS, "fused_2d")
    assert fused.peak.memory.activations < weights_bytes


def test_old_names_and_new_ones_count_the_same() -> None:
    new, old = report(NEIGHBORHOODS, "unfused"), report(NEIGHBORHOODS, "unfused_by_its_old_name")
    assert new.flops == old.flops
    assert new.moved_bytes == old.moved_bytes


def test_layers_have_the_parameters_of_their_version() -> None:
    # queries, keys and values in one matrix, the result in another, with biases
    linear = 32 * 3 * 32 + 3 * 32 + 32 * 32 + 32
    assert report(NEIGHBORHOODS, "layer").parameters == linear
    old = report(NEIGHBORHOODS, "layer_with_a_table_of_biases")
    assert old.parameters == linear + 2 * 13 * 13
    assert count(old, "natten.na2d_qk") == 1


def test_a_name_that_natten_has_not_can_be_imported_and_says_so_when_called() -> None:
    with pytest.raises(AssertionError, match=r"natten\.na4d runs on a GPU alone"):
        report(NEIGHBORHOODS, "no_such_kernel")


# How fast: a share of what the GPU can do, or a time on one


def test_a_measured_time_is_held_as_an_efficiency() -> None:
    # RTX 3090: 936 GB/s; 9.36 MB take 10 us at least
    cost = OpCost(
        kind="other", flops=0, moved_bytes=9.36e6, launches=1, seconds=40e-6, measured_on="RTX 3090"
    )
    assert cost.efficiency_in("fp32") == pytest.approx(10 / 40, rel=2e-3)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"efficiency": 1.5}, "cannot be"),
        ({"efficiency": 0}, "cannot be"),
        ({"seconds": 0.1}, "needs the GPU it was measured on"),
        ({"seconds": 0.1, "on": "RTX 9999"}, "RTX 9999"),
    ],
)
def test_a_speed_that_says_nothing_is_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        register_op("mine.kernel", **options)  # type: ignore[arg-type]


# Nothing of it outside of a trace


def test_stand_ins_are_gone_after_a_trace_in_ones_own_process() -> None:
    assert call_forked("tests.trace.test_custom_operators:left_behind") == []


def left_behind() -> list[str]:
    """What a trace of a function leaves in a process that goes on."""
    from torch.utils import cpp_extension

    before = (cpp_extension.load, cpp_extension.CUDA_HOME)
    trace_step(_imports_natten, 2)
    after = (cpp_extension.load, cpp_extension.CUDA_HOME)
    modules = [name for name in sys.modules if name.partition(".")[0] == "natten"]
    finders = [str(finder) for finder in sys.meta_path if "stand_ins" in str(finder)]
    changed = [str(new) for old, new in zip(before, after, strict=True) if old != new]
    return modules + finders + changed


def _imports_natten(batch_size: int) -> object:
    import torch
    from natten.functional import na1d

    q = torch.randn(batch_size, 8, 1, 4)
    return lambda: na1d(q, q, q, 3)


def test_a_profile_keeps_an_efficiency() -> None:
    from outlay.trace.profile import ProfileOp
    from outlay.trace.store import _op_from_json, _op_to_json

    op = ProfileOp(
        name="mine.kernel",
        kind="other",
        phase="forward",
        precision="fp32",
        count=1,
        flops=(1.0,),
        moved_bytes=(0.0, 8.0),
        efficiency=0.25,
    )
    assert _op_from_json(json.loads(json.dumps(_op_to_json(op)))) == op
