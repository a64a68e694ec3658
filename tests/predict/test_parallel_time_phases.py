from __future__ import annotations

import pytest
from tests.builders import a_calibration, a_gpu, a_transformer

from outlay.predict.host_time import REFERENCE_HOST
from outlay.predict.parallel_time import phase_times, tensor_shard
from outlay.predict.roofline import roofline_of, speed_at_power_share
from outlay.trace.profile import Op, Trace

WIDTH = 1024


def product(out, *, layout="nt", name="aten.mm", inner=WIDTH):
    flops = 2.0 * inner
    for size in out:
        flops *= size
    return Op(
        name=name,
        kind="gemm",
        phase="forward",
        precision="bf16",
        count=1,
        flops=flops,
        moved_bytes=1e6,
        layout=layout,
        shapes=((8, inner), (inner, 8), out),
    )


def cut_op(op, parts=4):
    base = a_transformer().at(1)
    trace = Trace(batch_size=1, ops=(op,), memory=base.memory, parameters=1, issued_ops=1)
    return tensor_shard(trace, parts, WIDTH).ops[0]


@pytest.mark.parametrize(
    ("out", "layout", "expected"),
    [
        ((512, 4096), "nt", (512, 1024)),  # a layer that widens: its columns
        ((512, WIDTH), "nt", (512, WIDTH)),  # one that comes back: the sum is shorter
        ((4096, WIDTH), "tn", (1024, WIDTH)),  # the gradient of a weight, as the weight
        ((16, 64, 64), "plain", (4, 64, 64)),  # batches are heads
    ],
)
def test_products_are_cut_where_the_layer_is(out, layout, expected):
    shard = cut_op(product(out, layout=layout))
    assert shard.shapes[-1] == expected
    assert shard.flops == pytest.approx(product(out, layout=layout).flops / 4)


def test_passes_over_the_width_are_done_by_all():
    norm = Op(
        name="aten.native_layer_norm",
        kind="norm",
        phase="forward",
        precision="bf16",
        count=1,
        flops=0.0,
        moved_bytes=1e6,
        shapes=((8, 128, WIDTH), (8, 128, WIDTH)),
    )
    assert cut_op(norm) == norm


def test_other_passes_are_shared():
    gelu = Op(
        name="aten.gelu",
        kind="elementwise",
        phase="forward",
        precision="bf16",
        count=1,
        flops=0.0,
        moved_bytes=1e6,
        shapes=((8, 128, 4096), (8, 128, 4096)),
    )
    shard = cut_op(gelu)
    assert shard.shapes == ((8, 128, 1024), (8, 128, 1024))
    assert shard.moved_bytes == 0.25e6


def test_the_phases_of_a_step_add_up():
    trace = a_transformer().at(4)
    machine = roofline_of(a_gpu(), a_calibration())
    phases = phase_times(trace, machine, a_calibration(), REFERENCE_HOST)
    # a product of 4 TFLOP at 100 TFLOP/s x 0.5 = 80 ms in forward, two in backward
    assert phases.forward_s == pytest.approx(0.08, rel=1e-2)
    assert phases.backward_s == pytest.approx(0.16, rel=1e-2)
    assert phases.update_s == 0


@pytest.mark.parametrize(("limit", "speed"), [(1.2, 1.0), (1.0, 1.0), (0.8, 0.92), (0.5, 0.5)])
def test_speed_under_a_power_limit(limit, speed):
    assert speed_at_power_share(limit, a_calibration()) == pytest.approx(speed)  # 1 - 2 (1 - p) ^ 2
