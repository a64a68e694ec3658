"""`tools/measured.py` on recorded rows: the operations that a trace would have."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

TOOL = Path(__file__).parents[2] / "tools" / "measured.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("measured", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["measured"] = module
    spec.loader.exec_module(module)
    return module


def one(tool, op, *, workload="vision:resnet50_bf16amp"):
    row = {"op": op, "count": 3, "us": 50.0, "kernels": [["some_kernel", 50.0]]}
    (found,) = tool.operations_of({"workload": workload, "batch_size": 8, "rows": [row]})
    return found


def tensor(*shape, dtype="bfloat16", strides=None):
    rows, size = [], 1
    for length in reversed(shape):
        rows.insert(0, size)
        size *= length
    return [list(shape), dtype, strides or rows]


def test_a_row_keeps_how_often_and_how_long(tool):
    x, weight, y = tensor(8, 1000), tensor(1000, 2048), tensor(8, 2048)
    found = one(tool, ["aten.mm.default", [x, weight], [y], "[]"])
    assert (found.workload, found.batch_size, found.count) == ("vision:resnet50_bf16amp", 8, 3)
    assert found.time_s == pytest.approx(50e-6)
    assert found.kernels == (("some_kernel", 50.0),)


def test_mm(tool):
    x, weight, y = tensor(8, 1000), tensor(1000, 2048, strides=[1, 1000]), tensor(8, 2048)
    op = one(tool, ["aten.mm.default", [x, weight], [y], "[]"]).op
    assert (op.name, op.kind, op.precision, op.layout) == ("aten.mm", "gemm", "bf16", "nt")
    assert op.flops == 2 * 8 * 1000 * 2048
    # 2 B for each of 8 x 1000, 1000 x 2048 and 8 x 2048
    assert op.moved_bytes == 2 * (8_000 + 2_048_000 + 16_384)
    assert op.shapes == ((8, 1000), (1000, 2048), (8, 2048))
    assert op.launches == 1


@pytest.mark.parametrize(("workload", "precision"), [("plain:mlp", "tf32"), ("mlp_fp32", "fp32")])
def test_fp32_products_use_tf32_unless_the_workload_says_fp32(tool, workload, precision):
    tensors = [tensor(8, 16, dtype="float32"), tensor(16, 32, dtype="float32")]
    result = [tensor(8, 32, dtype="float32")]
    op = one(tool, ["aten.mm.default", tensors, result, "[]"], workload=workload).op
    assert op.precision == precision


REST = "[{}[1, 1], [1, 1], [1, 1], false, [0, 0], 1, [{}]]"
"""Bias sizes where there are any, stride, padding, dilation, whether transposed ..., and which."""


@pytest.mark.parametrize(
    ("bias", "wanted", "results", "products"),
    [
        ("[32], ", "true, true, true", [(2, 16, 8, 8), (32, 16, 3, 3), (32,)], 2),
        ("", "true, true, false", [(2, 16, 8, 8), (32, 16, 3, 3)], 2),
        ("", "false, true, false", [(32, 16, 3, 3)], 1),
    ],
)
def test_convolution_backward(tool, bias, wanted, results, products):
    given = [(2, 32, 8, 8), (2, 16, 8, 8), (32, 16, 3, 3)]
    row = [
        "aten.convolution_backward.default",
        [tensor(*shape) for shape in given],
        [tensor(*shape) for shape in results],
        REST.format(bias, wanted),
    ]
    op = one(tool, row).op
    assert (op.kind, op.layout) == ("conv", "plain")
    # 2 samples, 64 positions, 32 x 16 x 3 x 3 weights for each gradient
    assert op.flops == products * 2 * 2 * 64 * 32 * 16 * 9
    assert op.shapes == (*given, *results)


def test_cudnn_s_batch_norm_is_traced_as_torch_s_with_the_gradient_first(tool):
    x, grad = tensor(8, 16, 4, 4), tensor(8, 16, 4, 4, dtype="float32")
    row = ["aten.cudnn_batch_norm_backward.default", [x, grad, tensor(16)], [x], "[1e-05]"]
    op = one(tool, row).op
    assert (op.name, op.kind) == ("aten.native_batch_norm_backward", "norm")
    assert op.precision == "fp32"


def foreach(tool, name, tensors, elements):
    return one(tool, [f"aten.{name}", [["list", tensors, elements, ["float32"]]], [], "[[null"]).op


@pytest.mark.parametrize(
    ("name", "lists"),
    [
        ("_foreach_mul_.Scalar", 1),
        ("_foreach_add_.List", 2),
        ("_foreach_lerp_.Scalar", 2),
        ("_foreach_addcdiv_.ScalarList", 3),
    ],
)
def test_a_foreach_update_reads_every_list_and_writes_one(tool, name, lists):
    op = foreach(tool, name, 10 * lists, 1_000_000 * lists)
    assert (op.kind, op.phase, op.flops) == ("optimizer", "optimizer", 0)
    assert op.moved_bytes == 4 * 1_000_000 * (lists + 1)
    assert op.launches == 1


def test_a_foreach_update_of_many_tensors_takes_several_launches(tool):
    # 64 tensors a launch
    assert foreach(tool, "_foreach_mul_.Scalar", 161, 1000).launches == 3


def test_a_fused_update_reads_four_lists_and_writes_three(tool):
    op = foreach(tool, "_fused_adamw_.default", 40, 4_000_000)
    assert op.moved_bytes == 4 * 1_000_000 * (4 + 3)


def test_what_started_no_kernel_by_an_operator_is_left_out(tool):
    row = {"op": ["none", [], [], ""], "count": 1, "us": 1.0, "kernels": []}
    assert tool.operations_of({"workload": "x", "batch_size": 1, "rows": [row]}) == []
