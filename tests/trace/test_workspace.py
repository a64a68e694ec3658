from __future__ import annotations

import pytest
from tests.trace.test_formulas import T

from outlay.trace.traffic import is_channels_last, is_contiguous
from outlay.trace.workspace import CUBLAS, REFERENCE, SUMS, Traits, Workspace, workspaces_of
from outlay.units import MIB

PLAIN = Traits(
    tensor_precisions=frozenset(),
    attention=frozenset({"efficient fp16", "math bf16"}),
    cublas_bytes=8 * MIB,
    sums_bytes=40 * MIB,
)
"""A GPU without tensor cores."""


def workspace_mib(name, args, out=None, *, precision="bf16", traits=REFERENCE):
    workspaces = workspaces_of(f"aten.{name}", args, {}, out, precision)
    rows = args[0].shape[0]
    stages = {workspace.stage for workspace in workspaces if workspace.stage} or {1}
    return (
        max(
            sum(size_bytes(w, rows, traits) for w in workspaces if w.stage in (0, stage))
            for stage in stages
        )
        / MIB
    )


def size_bytes(workspace, rows, traits):
    condition = workspace.condition_for(rows, rows)
    return traits.workspace_bytes(condition, workspace.size_bytes, rows)


def conv(x, w, y, *, stride=1, groups=1, precision="bf16", traits=REFERENCE):
    size = 4 if precision in ("tf32", "fp32") else 2
    args = (T(x, size), T(w, size), None, [stride] * 2, [0] * 2, [1] * 2, False, [0] * 2, groups)
    return workspace_mib("convolution", args, T(y, size), precision=precision, traits=traits)


def conv_backward(x, w, y, *, stride=1, groups=1, precision="bf16", traits=REFERENCE):
    size = 4 if precision in ("tf32", "fp32") else 2
    args = (T(y, size), T(x, size), T(w, size), None, [stride] * 2, [0] * 2, [1] * 2)
    args = (*args, False, [0] * 2, groups, [True, True, False])
    return workspace_mib("convolution_backward", args, None, precision=precision, traits=traits)


# Measured on an H200 with torch 2.11: bytes allocated at the most while an operator ran, less what
# was allocated when it was done. Blocks of the allocator may be up to 2 MiB larger than asked for.


@pytest.mark.parametrize(
    ("x", "w", "y", "stride", "measured_mib"),
    [
        # input 16, weights 1.125 and output 16 MiB in another layout
        ((8, 256, 64, 64), (256, 256, 3, 3), (8, 256, 64, 64), 1, 34.0),
        ((8, 128, 128, 128), (128, 128, 3, 3), (8, 128, 64, 64), 2, 40.28),
        # three channels are padded to eight: 36.75 * 8 / 3 + 196
        ((128, 3, 224, 224), (64, 3, 7, 7), (128, 64, 112, 112), 2, 294.05),
        # a matrix product takes none, nor does a small kernel over three channels
        ((8, 1024, 64, 64), (2048, 1024, 1, 1), (8, 2048, 64, 64), 1, 0.0),
        ((64, 3, 224, 224), (32, 3, 3, 3), (64, 32, 112, 112), 2, 0.0),
    ],
)
def test_conv_forward(x, w, y, stride, measured_mib):
    assert conv(x, w, y, stride=stride) == pytest.approx(measured_mib, abs=2)


def test_conv_depthwise_takes_none():
    shape = (64, 96, 112, 112)
    assert conv(shape, (96, 1, 3, 3), shape, groups=96) == 0
    assert conv_backward(shape, (96, 1, 3, 3), shape, groups=96) == 0


@pytest.mark.parametrize(
    ("x", "w", "y", "measured_mib"),
    [
        # copies, and parts of the weights' gradient
        ((32, 64, 224, 224), (64, 64, 3, 3), (32, 64, 224, 224), 394.0),
        # a part of the weights' gradient for each sample, in fp32: 8 * 512 * 1024 * 4 bytes
        ((8, 1024, 64, 64), (512, 1024, 1, 1), (8, 512, 64, 64), 16.0),
        ((128, 256, 28, 28), (64, 256, 1, 1), (128, 64, 28, 28), 8.0),
        # 14 x 14 positions are no multiple of eight: copies
        ((24, 1024, 14, 14), (256, 1024, 1, 1), (24, 256, 14, 14), 11.48),
    ],
)
def test_conv_backward(x, w, y, measured_mib):
    assert conv_backward(x, w, y) == pytest.approx(measured_mib, abs=2)


def test_conv_backward_in_fp32_is_winograd():
    # 2.25 * (784 + 784) + 4 * 0.28 MiB
    shape = (16, 256, 224, 224)
    measured_mib = 3538
    result = conv_backward(shape, (256, 256, 3, 3), shape, precision="fp32")
    assert result == pytest.approx(measured_mib, rel=1e-3)
    # and where a GPU has no tensor cores for TF32, which has copies where it has
    plain = conv_backward(shape, (256, 256, 3, 3), shape, precision="tf32", traits=PLAIN)
    assert plain == result
    on_h200 = conv_backward(shape, (256, 256, 3, 3), shape, precision="tf32")
    assert on_h200 == pytest.approx(1568, rel=0.01)


@pytest.mark.parametrize(
    ("samples", "channels", "side", "measured_mib"),
    [(64, 128, 28, 204.6), (64, 256, 28, 682.2), (64, 256, 14, 182.2), (4, 256, 28, 0.0)],
)
def test_conv_forward_in_fp32_is_a_fourier_transform_of_many_small_images(
    samples, channels, side, measured_mib
):
    shape = (samples, channels, side, side)
    result = conv(shape, (channels, channels, 3, 3), shape, precision="fp32")
    assert result == pytest.approx(measured_mib, rel=0.01)


def test_attention_backward_by_backend():
    q = T((64, 12, 256, 64))
    name = "_scaled_dot_product_flash_attention_backward"
    # 64 * 12 * 256 * 64 in fp32, and a number a row
    assert workspace_mib(name, (q, q, q, q)) == pytest.approx(48.75)
    # 8 key heads for 24: 48.375, and both gradients for 24 heads in bf16
    q, k = T((2, 24, 2048, 128)), T((2, 8, 2048, 128))
    assert workspace_mib(name, (q, q, k, k)) == pytest.approx(96.375)
    # flash rounds rows up to 128
    q = T((1, 1, 100, 64))
    flash = Traits(
        tensor_precisions=REFERENCE.tensor_precisions,
        attention=frozenset({"flash bf16"}),
        cublas_bytes=0,
        sums_bytes=0,
    )
    assert workspace_mib(name, (q, q, q, q), traits=flash) == 4 * 128 * 65 / MIB
    assert workspace_mib(name, (q, q, q, q), traits=PLAIN) == 0


@pytest.mark.parametrize(
    ("shape", "measured_mib"),
    [((1024, 768), 6.0), ((4096, 3072), 96.0), ((25088, 768), 132.0), ((100352, 384), 132.0)],
)
def test_partial_sums_of_a_bias_gradient(shape, measured_mib):
    assert workspace_mib("sum", (T(shape), [0], True)) == pytest.approx(measured_mib)


def test_partial_sums_are_fewer_on_a_smaller_gpu_and_none_along_rows():
    assert workspace_mib("sum", (T((25088, 768)), [0], True), traits=PLAIN) == 40
    assert workspace_mib("sum", (T((25088, 768)), [1], True)) == 0
    # 8 values are summed at once
    assert workspace_mib("sum", (T((4, 8, 4096)), [1], True)) == 0
    # of a map of one channel, rows are summed
    assert workspace_mib("sum", (T((8, 4096, 1)), [1], True)) == 0


def test_softmax_backward_multiplies_first():
    # measured: 2048 MiB
    assert workspace_mib("_softmax_backward_data", (T((2, 16, 4096, 4096), 4),)) == 2048


def test_conditions():
    assert REFERENCE.workspace_bytes(CUBLAS, 1, 8) == 32 * MIB
    assert PLAIN.workspace_bytes(CUBLAS, 1, 8) == 8 * MIB
    assert PLAIN.workspace_bytes(SUMS, 100 * MIB, 8) == 40 * MIB
    assert PLAIN.workspace_bytes("math bf16", 5, 8) == 5
    assert REFERENCE.workspace_bytes("math bf16", 5, 8) == 0
    assert Workspace(size_bytes=1).condition == ""


def test_a_condition_can_begin_at_a_batch_size():
    workspace = Workspace(size_bytes=5, condition="tensor fp16", from_rows=64)
    # traced at batch 8 with 4 rows a sample: from 16 samples on
    condition = workspace.condition_for(32, 8)
    assert REFERENCE.workspace_bytes(condition, 5, 15) == 0
    assert REFERENCE.workspace_bytes(condition, 5, 16) == 5
    assert PLAIN.workspace_bytes(condition, 5, 16) == 0
    always = Workspace(size_bytes=5, from_rows=64).condition_for(64, 64)
    assert REFERENCE.workspace_bytes(always, 5, 63) == 0
    assert REFERENCE.workspace_bytes(always, 5, 64) == 5


def strided(shape, strides):
    return T(shape, 2, strides)


def test_layouts():
    # 8 x 3 x 4 x 5 with channels together
    assert is_channels_last(strided((8, 3, 4, 5), (60, 1, 15, 3)))
    assert not is_contiguous(strided((8, 3, 4, 5), (60, 1, 15, 3)))
    assert is_contiguous(strided((8, 3, 4, 5), (60, 20, 5, 1)))
    assert not is_channels_last(strided((8, 3, 4, 5), (60, 20, 5, 1)))
    # one channel lies the same either way: not told apart
    assert not is_channels_last(strided((8, 1, 4, 5), (20, 1, 5, 1)))
    # every other row
    assert not is_contiguous(strided((8, 4), (8, 1)))


def test_a_mixed_layout_is_copied():
    x = strided((8, 16, 32, 32), (16384, 1024, 32, 1))
    w = strided((16, 16, 3, 3), (144, 1, 48, 16))
    args = (x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    # the weight has channels last, so the input is brought into that layout: 8 * 16 * 1024 * 2
    assert workspace_mib("convolution", args, x) == 0.25


@pytest.mark.parametrize(
    ("hidden", "layers", "both", "measured_mib"),
    [(1024, 1, False, 436), (1024, 4, False, 584), (1024, 1, True, 1064), (1024, 4, True, 1472)],
)
def test_recurrent_layers(hidden, layers, both, measured_mib):
    # an LSTM in fp32 over 64 times 256 samples of width 1024
    directions = 2 if both else 1
    widths = [hidden, *[directions * hidden] * (layers - 1)]
    weights = [T((4 * hidden, width + hidden), 4) for width in widths for _ in range(directions)]
    x, out = T((64, 256, hidden), 4), T((64, 256, directions * hidden), 4)
    options = (layers, False, 0.0, True, both)
    args = (x, weights, 4, None, None, None, 2, hidden, 0, *options)
    assert workspace_mib("_cudnn_rnn", args, [out]) == pytest.approx(measured_mib, rel=0.03)
    grads = (out, out, None, None)
    args = (x, weights, 4, None, None, None, *grads, 2, hidden, 0, *options)
    assert workspace_mib("_cudnn_rnn_backward", args) == pytest.approx(measured_mib, rel=0.03)
