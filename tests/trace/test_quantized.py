"""Weights of 4 bits: their bytes, what unpacking them moves, and the products."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.trace.apart import capture_apart

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]

STEPS = Path(__file__).parent / "steps_quantized.py"
VALUES = 512 * 256  # 131,072


def named(capture, name):
    return [op for op in capture.ops if op.name == name]


def test_many_rows_write_the_weight_out_and_multiply():
    capture = capture_apart(f"{STEPS}:many_rows", 2)
    assert capture.unknown_ops == {}
    # Both ways: 2 x 1024 rows x 512 x 256 multiply-adds of 2 FLOPs.
    products = [op for op in capture.ops if op.kind == "gemm"]
    assert [op.flops for op in products] == [2 * 2048 * VALUES] * 2
    unpacked = named(capture, "bitsandbytes.dequantize_4bit")
    # Half a byte a value is read, and 4 bytes of scale for 64 values. Forward writes the 2 bytes of
    # the input's precision, backward the 4 of what the weight was packed from.
    read = VALUES / 2 + VALUES / 64 * 4
    assert [op.moved_bytes for op in unpacked] == [read + 2 * VALUES, read + 4 * VALUES]
    scales = named(capture, "bitsandbytes.dequantize_blockwise")
    # 2,048 scales of a byte become fp32, with a code of 256 and a scale for each 256 of them.
    assert [op.moved_bytes for op in scales] == [2048 + 8 * 4 + 256 * 4 + 2048 * 4] * 2


def test_packed_weights_take_half_a_byte_a_value_and_count_as_they_were():
    capture = capture_apart(f"{STEPS}:many_rows", 2)
    peak = capture.memory.peak()
    # The layer's half byte a value is a parameter; the input, 2 x 1024 x 512 in bf16, is none.
    assert peak.parameters == VALUES / 2
    assert capture.parameters == VALUES
    assert capture.trainable_parameters == 0


def test_few_rows_are_one_operator():
    capture = capture_apart(f"{STEPS}:few_rows", 2)
    (product,) = named(capture, "bitsandbytes.gemm_4bit")
    assert product.kind == "gemm"
    assert product.flops == 2 * 8 * VALUES  # 2 x 4 rows
    assert capture.unknown_ops == {}


def test_paged_state_is_not_torch_s_memory():
    capture = capture_apart(f"{STEPS}:paged_state", 2)
    # The trained values and their gradient in fp32; two states of a byte each are paged. What is
    # left of state on the GPU: its two codes of 256 fp32 values, and two scales for each 256.
    peak = capture.memory.peak()
    assert peak.parameters == VALUES * 4
    assert peak.optimizer_state < VALUES / 10
