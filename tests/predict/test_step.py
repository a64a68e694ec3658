from __future__ import annotations

import pytest
from tests.builders import a_calibration, a_gpu, a_profile, a_step, exactly, span

from outlay.predict.step import Placement, on_gpus, predict_step, spanning, with_precision
from outlay.trace.trace import ProfileOp
from outlay.units import GIB


def predicted(batch_size=4, *, profile=None, gpu=None, precision=None, **placement):
    return predict_step(
        profile or a_profile(),
        Placement(gpu=gpu or a_gpu(), **placement),
        batch_size,
        a_calibration(),
        precision,
    )


def test_a_step_bound_by_the_device():
    step = predicted()
    # 4 x 1 TFLOP / (100 TFLOP/s x 0.5) = 80 ms; the host needs 1000 x 10 us = 10 ms
    assert step.device_time_s == pytest.approx(0.08)
    assert step.host_time_s == pytest.approx(0.01)
    assert step.bound == "device"
    # 0.5, 1 and 2 times the device's
    assert step.step_time_s.low == pytest.approx(0.04)
    assert step.step_time_s.likely == pytest.approx(0.08)
    assert step.step_time_s.high == pytest.approx(0.16)
    assert step.flops == pytest.approx(4e12)
    assert step.exchange_s == exactly(0.0)


def test_a_step_bound_by_the_host():
    step = predicted(profile=a_profile(issued_ops=100_000))
    # 100,000 x 10 us = 1 s x 0.8, 1, 1.25
    assert step.bound == "host"
    assert step.step_time_s.low == pytest.approx(0.8)
    assert step.step_time_s.likely == pytest.approx(1.0)
    assert step.step_time_s.high == pytest.approx(1.25)


def test_samples_per_second_over_all_gpus():
    step = a_step(step_time_s=0.5, batch_size=10, gpus=4)
    # 4 x 10 samples in half a second
    assert step.global_batch_size == 40
    assert step.samples_per_s == 80


def test_a_batch_not_given_is_the_largest_that_fits():
    step = predicted(None)
    # 10 GiB - 100 MB = 10.637 GB; 1.25 x (0.5 + 0.5 b) <= 10.637: b <= 16.02
    assert step.batch_size == step.max_batch_size == 16
    assert step.fits


def test_a_batch_that_does_not_fit():
    step = predicted(17)
    assert step.batch_size == 17
    assert step.max_batch_size == 16
    assert not step.fits


def test_not_even_one_sample_fits():
    step = predicted(None, gpu=a_gpu(memory_gib=1))
    assert step.batch_size == step.max_batch_size == 0
    assert not step.fits
    assert step.samples_per_s == 0
    # what is shown is of one sample: 1 TFLOP / 50 TFLOP/s
    assert step.device_time_s == pytest.approx(0.02)
    # 1.25 x (0.5 + 0.5) GB
    assert step.memory.reserved_bytes.high == pytest.approx(1.25e9)


def test_a_memory_cap_replaces_what_the_gpu_has():
    step = predicted(None, memory_cap_bytes=5e9)
    # 1.25 x (0.5 + 0.5 b) <= 5: b <= 7
    assert step.batch_size == 7
    assert step.memory.available_bytes == 5e9


def test_half_a_gpu_is_half_as_fast_and_half_as_large():
    step = predicted(gpu_share=0.5)
    # 80 ms / 0.5
    assert step.device_time_s == pytest.approx(0.16)
    assert step.memory.available_bytes == 5 * GIB - 100e6


def test_precision_changes_matrix_arithmetic():
    # 4 TFLOP / (10 TFLOP/s x 0.5)
    assert predicted(precision="fp32").device_time_s == pytest.approx(0.8)
    # no bf16 units on this GPU: as fp32
    assert predicted(precision="bf16").device_time_s == pytest.approx(0.8)


def test_precision_leaves_everything_else_as_traced():
    norm = ProfileOp(
        name="norm",
        kind="norm",
        phase="forward",
        precision="fp16",
        count=1,
        flops=(0.0,),
        moved_bytes=(8e9,),
    )
    profile = a_profile(ops=(norm, *a_profile().ops))
    trace = with_precision(profile.at(4), "fp32")
    assert [op.precision for op in trace.ops] == ["fp16", "fp32"]
    assert trace.moved_bytes == 8e9
    assert with_precision(profile.at(4), None) == profile.at(4)


def test_several_gpus_exchange_gradients():
    step = predicted(gpus=2)
    # 1e8 parameters x 4 B = 0.4 GB, all of it moved between two: / 7.88 GB/s = 50.8 ms,
    # of which 0.5 x 80 ms = 40 ms are hidden
    assert step.gradient_bytes == 4e8
    assert step.exchange_s.likely == pytest.approx(0.0507614 - 0.04, rel=1e-3)
    assert step.step_time_s.likely == pytest.approx(0.0907614, rel=1e-3)
    assert step.global_batch_size == 8
    assert step.bound == "device"


def test_a_step_bound_by_the_network():
    step = predicted(gpus=2, profile=a_profile(trainable_parameters=10_000_000_000))
    # 40 GB / 7.88 GB/s = 5.08 s against 80 ms
    assert step.bound == "network"


def test_on_one_gpu_a_step_is_itself():
    step = predicted()
    assert on_gpus(step, 1, a_calibration()) is step


def test_several_gpus_are_never_faster_a_step_and_need_no_other_memory():
    one, eight = predicted(gpus=1), predicted(gpus=8)
    assert eight.step_time_s.likely > one.step_time_s.likely
    assert eight.memory == one.memory
    assert eight.batch_size == one.batch_size
    assert eight.global_batch_size == 8 * one.global_batch_size


def test_spanning_one_form_is_that_form():
    step = a_step()
    assert spanning([step]) is step


def test_spanning_takes_the_first_with_a_range_down_to_the_fastest():
    slow = a_step(step_time_s=span(2, 3, 4))
    fast = a_step(step_time_s=span(1, 1.5, 2))
    step = spanning([slow, fast])
    assert step.step_time_s == span(1, 3, 4)
    assert step.placement is slow.placement


def test_spanning_compares_at_equal_batches():
    slow = a_step(step_time_s=span(2, 3, 4), batch_size=10)
    fast = a_step(step_time_s=span(2, 3, 4), batch_size=20)
    # 2 s for 20 samples is 1 s for 10
    assert spanning([slow, fast]).step_time_s.low == pytest.approx(1.0)
