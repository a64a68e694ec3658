from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from tests.builders import a_calibration, a_gpu, a_profile, a_step, exactly, span

from outlay.predict.evidence import Evidence, MeasuredStep
from outlay.predict.host_time import Host
from outlay.predict.roofline import with_precision
from outlay.predict.step import Conditions, Placement, predict_step, range_over_forms
from outlay.trace.profile import ProfileOp
from outlay.uncertainty import Draws
from outlay.units import GIB

PERCENTILE_90 = NormalDist().inv_cdf(0.9)


def predicted(
    batch_size=4,
    *,
    profile=None,
    gpu=None,
    precision=None,
    calibration=None,
    conditions=None,
    **placement,
):
    return predict_step(
        profile or a_profile(),
        Placement(gpu=gpu or a_gpu(), **placement),
        batch_size,
        calibration or a_calibration(),
        precision,
        conditions=conditions or Conditions(),
    )


def a_profiled_copy(moved_bytes):
    """A pass over so many bytes at 800 GB/s."""
    return ProfileOp(
        name="aten.clone",
        kind="copy",
        phase="forward",
        precision="fp16",
        count=1,
        flops=(0.0,),
        moved_bytes=(moved_bytes,),
    )


def around(time_s, error):
    """The 10th and the 90th percentile lie `PERCENTILE_90` standard deviations from the middle."""
    spread = math.exp(PERCENTILE_90 * error)
    return pytest.approx((time_s / spread, time_s, time_s * spread))


def bounds(estimate):
    return (estimate.low, estimate.likely, estimate.high)


# --- what bounds a step ---


def test_a_step_bound_by_arithmetic():
    step = predicted()
    # 4 x 1 TFLOP / (100 TFLOP/s x 0.5) = 80 ms; the host needs 1000 x 10 us = 10 ms
    assert step.device_time_s == pytest.approx(0.08)
    assert step.host_time_s == pytest.approx(0.01)
    assert step.bound == "arithmetic"
    # (0.3^2 + 0.4^2)^(1/2): that of any prediction, and of a GPU nobody measured
    assert bounds(step.step_time_s) == around(0.08, 0.5)
    assert step.flops == pytest.approx(4e12)
    assert step.exchange_s == exactly(0.0)
    assert step.input_s == 0


def test_a_step_bound_by_memory():
    # 0.1 s of copies beside 0.08 s of products
    step = predicted(profile=a_profile(ops=(a_profiled_copy(80e9), *a_profile().ops)))
    assert step.bound == "memory"
    assert step.device_time_s == pytest.approx(0.18)
    assert list(step.by_kind_s) == ["copy", "gemm"]
    assert step.by_kind_s["copy"] == pytest.approx(0.1)
    assert step.by_kind_s["gemm"] == pytest.approx(0.08)


def test_a_step_bound_by_the_host():
    step = predicted(profile=a_profile(issued_ops=100_000))
    # 100,000 x 10 us = 1 s, on a host of half or of twice the speed
    assert step.bound == "host"
    assert bounds(step.step_time_s) == pytest.approx((0.5, 1.0, 2.0))


def test_a_step_bound_by_its_input():
    step = predicted(conditions=Conditions(input_samples_per_s=10))
    # 4 samples at 10 a second; the device's 80 ms lie below it even at their highest
    assert step.bound == "input"
    assert step.input_s == pytest.approx(0.4)
    assert bounds(step.step_time_s) == pytest.approx((0.4, 0.4, 0.4))


def test_input_that_comes_in_time_changes_nothing_but_is_shown():
    step = predicted(conditions=Conditions(input_samples_per_s=1000))
    assert step.bound == "arithmetic"
    assert step.input_s == pytest.approx(0.004)
    assert step.step_time_s == predicted().step_time_s


def test_mfu_is_the_peak_s_time_over_the_step_s():
    step = predicted()
    # 4 TFLOP at 100 TFLOP/s are 40 ms of 80
    assert step.ideal_s == pytest.approx(0.04)
    assert step.mfu == pytest.approx(0.5)
    # with the host's 1 s
    assert predicted(profile=a_profile(issued_ops=100_000)).mfu == pytest.approx(0.04)


def test_mfu_is_of_the_arithmetic_that_is_used():
    # no bf16 units: 4 TFLOP at 10 TFLOP/s in fp32
    assert predicted(precision="bf16").ideal_s == pytest.approx(0.4)


# --- ranges ---


def width(step):
    return step.step_time_s.high / step.step_time_s.low


def test_the_range_is_wider_for_kernels_nobody_measured():
    profile = a_profile(ops=(a_profiled_copy(80e9),))
    known = predicted(profile=profile, calibration=a_calibration(kernel_errors={"alike": 0.0}))
    unknown = predicted(profile=profile, calibration=a_calibration(kernel_error_unknown=1.2))
    assert bounds(known.step_time_s) == around(0.1, 0.5)
    # (0.5^2 + 1.2^2)^(1/2)
    assert bounds(unknown.step_time_s) == around(0.1, 1.3)


def test_an_operator_without_a_formula_may_take_ten_times_what_moving_its_tensors_takes():
    copies = (
        a_profiled_copy(72e9),
        replace(a_profiled_copy(8e9), name="my_ext.swirl", kind="other"),
    )
    calibration = a_calibration(kernel_errors={"alike": 0.0, "other": 0.0})
    profile = a_profile(ops=copies)
    known = predicted(profile=profile, calibration=calibration)
    hiding = replace(profile, unknown_ops={"my_ext.swirl": 1})
    unknown = predicted(profile=hiding, calibration=calibration)
    assert bounds(known.step_time_s) == around(0.1, 0.5)
    low, likely, high = bounds(known.step_time_s)
    # a tenth of the bytes, 10 ms of the 100: 90 ms more at the high end, and only there
    assert bounds(unknown.step_time_s) == pytest.approx((low, likely, high + 0.09))
    assert "No formula for my_ext.swirl: moving the tensors takes 10.0 %" in " ".join(unknown.notes)


def test_the_more_an_operator_without_a_formula_touches_the_wider_is_the_range():
    calibration = a_calibration(kernel_errors={"alike": 0.0, "other": 0.0})

    def widened_by(share):
        swirl = replace(a_profiled_copy(80e9 * share), name="my_ext.swirl", kind="other")
        profile = a_profile(ops=(a_profiled_copy(80e9 * (1 - share)), swirl))
        known = predicted(profile=profile, calibration=calibration)
        unknown = predicted(
            profile=replace(profile, unknown_ops={"my_ext.swirl": 1}), calibration=calibration
        )
        return unknown.step_time_s.high - known.step_time_s.high

    assert widened_by(0.4) == pytest.approx(2 * widened_by(0.2)) == pytest.approx(9 * 0.04)


def test_the_range_is_wider_for_a_kind_of_gpu_nobody_measured():
    calibration = a_calibration(error_on_Hopper=0.0)
    known = predicted(calibration=calibration)
    unknown = predicted(calibration=calibration, gpu=a_gpu(architecture="Ada"))
    assert bounds(known.step_time_s) == around(0.08, 0.3)
    assert bounds(unknown.step_time_s) == around(0.08, 0.5)


def test_the_range_is_narrower_for_a_host_that_was_measured():
    slow = a_profile(issued_ops=100_000)
    measured = Conditions(host=Host(speed=2.0, measured=True))
    step = predicted(profile=slow, conditions=measured)
    # 1 s at twice the speed, times 0.8, 1 and 1.25
    assert bounds(step.step_time_s) == pytest.approx((0.4, 0.5, 0.625))


def test_the_slower_of_device_and_host_is_so_at_each_end():
    # the device's 80 ms, 42 to 152; the host's 79 ms, 39 to 158
    step = predicted(profile=a_profile(issued_ops=7900))
    assert step.step_time_s.low == pytest.approx(0.08 / math.exp(PERCENTILE_90 * 0.5))
    assert step.step_time_s.likely == pytest.approx(0.08)
    assert step.step_time_s.high == pytest.approx(2 * 0.079)


# --- a measured step ---


def corrected(measured_s, *, gpu, host=None, **changes):
    measured = MeasuredStep(gpu=gpu, batch_size=4, step_s=measured_s, **changes)
    return Conditions(host=host or Host(), evidence=Evidence(measured=(measured,)))


def test_on_the_measured_gpu_a_step_takes_what_was_measured():
    gpu = a_gpu()
    step = predicted(gpu=gpu, conditions=corrected(0.2, gpu=gpu))
    # and steps repeat within 0.1
    assert bounds(step.step_time_s) == around(0.2, 0.1)
    assert step.device_time_s == pytest.approx(0.2)
    assert sum(step.by_kind_s.values()) == pytest.approx(0.2)
    # at twice the batch it takes twice that
    twice = predicted(8, gpu=gpu, conditions=corrected(0.2, gpu=gpu))
    assert twice.step_time_s.likely == pytest.approx(0.4)


def test_another_gpu_is_corrected_by_as_much_and_its_range_is_narrower():
    gpu = a_gpu()
    calibration = a_calibration(
        error_on_Hopper=0.0, error_on_Ada=0.0, kernel_errors={"gemm_16": 1.2}
    )
    fast = a_gpu("Fast", architecture="Ada", peaks={"fp32": 20e12, "fp16": 200e12})
    conditions = corrected(0.2, gpu=gpu)
    step = predicted(gpu=fast, conditions=conditions, calibration=calibration)
    # on each GPU 0.3^2 + 1.2^2 = 1.53, between two half of 1.2: shared is (2 x 1.53 - 0.36) / 2
    gain = 1.35 / (1.53 + 0.1**2)
    # 40 ms, and so much of 0.2 / 0.08
    assert bounds(step.step_time_s) == around(0.04 * 2.5**gain, math.sqrt(1.53 - 1.35 * gain))
    assert width(step) < width(predicted(gpu=fast, calibration=calibration))


def test_what_two_gpus_share_is_known_from_one():
    gpu = a_gpu()
    calibration = a_calibration(error_of_repeats=0.0, error_on_Hopper=0.3, error_on_Ada=0.4)
    conditions = corrected(0.08, gpu=gpu)
    other = a_gpu("Other", architecture="Ada")
    step = predicted(gpu=other, conditions=conditions, calibration=calibration)
    # 0.3^2 of every step and 0.875 of the smaller GPU's 0.3^2 are shared; the measured one has
    # 0.3^2 + 0.3^2, this one 0.3^2 + 0.4^2
    shared = 0.09 + 0.875 * 0.09
    assert bounds(step.step_time_s) == around(0.08, math.sqrt(0.25 - shared**2 / 0.18))


def test_a_step_that_waited_for_the_host_corrects_only_the_host():
    gpu, slow = a_gpu(), a_profile(issued_ops=100_000)
    conditions = corrected(1.5, gpu=gpu)
    step = predicted(gpu=gpu, profile=slow, conditions=conditions)
    assert bounds(step.step_time_s) == around(1.5, 0.1)
    assert step.host_time_s == pytest.approx(1.5)
    assert step.device_time_s == pytest.approx(0.08)
    # with another GPU the host is likely as slow, but another machine's: known like any other
    other = predicted(gpu=a_gpu("Other"), profile=slow, conditions=conditions)
    assert bounds(other.step_time_s) == pytest.approx((0.75, 1.5, 3.0))
    assert other.time_from == "predicted"


@pytest.mark.parametrize("issued_ops", [7_900, 100_000])
def test_nothing_takes_longer_than_the_step_that_was_measured(issued_ops):
    # 80 ms on the device, and as much or more on the host
    gpu, profile = a_gpu(), a_profile(issued_ops=issued_ops)
    step = predicted(gpu=gpu, profile=profile, conditions=corrected(0.05, gpu=gpu))
    assert step.step_time_s.likely == pytest.approx(0.05)
    assert max(step.device_time_s, step.host_time_s) == pytest.approx(0.05)


def test_a_measured_step_is_compared_at_the_speed_of_its_host():
    gpu, slow = a_gpu(), a_profile(issued_ops=100_000)
    twice = Host(speed=2.0, measured=True)
    # 1 s at twice the speed is 0.5 s, as measured: on another GPU it stays
    conditions = corrected(0.5, gpu=gpu, host=twice)
    step = predicted(gpu=a_gpu("Other"), profile=slow, conditions=conditions)
    assert step.host_time_s == pytest.approx(0.5)


# --- batches, shares, precision ---


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
    assert step.by_kind_s["gemm"] == pytest.approx(0.16)
    assert step.mfu == pytest.approx(0.5)
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
    assert {op.name: op.precision for op in trace.ops} == {
        "norm": "fp16",
        "aten.mm": "fp32",
        "aten.view": "fp16",
    }
    assert trace.moved_bytes == 8e9
    assert with_precision(profile.at(4), None) == profile.at(4)


def test_a_power_limit_slows_the_device_and_widens_the_range():
    step = predicted(power_limit_w=240)
    # 80 % of 300 W: 1 - 2 x 0.2 ^ 2 = 0.92 of the speed
    assert step.device_time_s == pytest.approx(0.08 / 0.92)
    full = predicted().step_time_s
    assert step.step_time_s.high / step.step_time_s.likely > full.high / full.likely


def test_spanning_one_form_is_that_form():
    step = a_step()
    assert range_over_forms([step]) is step


def test_spanning_takes_the_first_with_a_range_down_to_the_fastest():
    slow = a_step(step_time_s=span(2, 3, 4))
    fast = a_step(step_time_s=span(1, 1.5, 2))
    step = range_over_forms([slow, fast])
    assert step.step_time_s == span(1, 3, 4)
    assert step.placement is slow.placement


def test_spanning_compares_at_equal_batches():
    slow = a_step(step_time_s=span(2, 3, 4), batch_size=10)
    fast = a_step(step_time_s=span(2, 3, 4), batch_size=20)
    # 2 s for 20 samples is 1 s for 10
    assert range_over_forms([slow, fast]).step_time_s.low == pytest.approx(1.0)


# GPUs that nothing was ever held against

CHECKED = a_calibration(error_base=0.0, error_on_Hopper=0.16, error_on_others=0.3)


def on(architecture, calibration=CHECKED):
    return predicted(gpu=a_gpu(architecture=architecture), calibration=calibration)


def test_what_was_never_checked_pays_for_it_in_the_mean():
    known, unknown = on("Hopper"), on("CDNA3")
    assert (known.is_checked, unknown.is_checked) == (True, False)
    assert unknown.step_time_s.likely == known.step_time_s.likely
    means = [np.mean(Draws().of("speed", step.step_time_s)) for step in (known, unknown)]
    assert means[1] > means[0] > known.step_time_s.likely
    # of a log-normal: exp(0.16^2 / 2) = 1.013 and exp(0.3^2 / 2) = 1.046 times what is likely
    factors = [mean / known.step_time_s.likely for mean in means]
    assert factors == pytest.approx([1.0129, 1.0460], abs=0.001)


def test_a_step_that_was_never_checked_says_so():
    assert on("CDNA3").notes == (
        "Card: never measured; predicted from its datasheet, with the range of that.",
    )
    assert on("Hopper").notes == ()


def test_kernels_of_an_extension_may_have_no_build_for_amd():
    step = a_step(gpu=a_gpu())
    other = replace(step.placement.gpu, vendor="AMD")
    amd = replace(step, placement=Placement(gpu=other))
    assert amd.software_doubts == ()  # plain PyTorch
    own = {"custom_ops": ("natten.na2d",)}
    assert replace(step, **own).software_doubts == ()
    assert replace(amd, **own).software_doubts == ("natten.na2d may have no build for AMD",)


def test_a_measured_batch_that_fits_reserves_no_more_than_there_is():
    seen = MeasuredStep(gpu=a_gpu(), batch_size=100_000, step_s=1.0)
    conditions = Conditions(evidence=Evidence(measured=(seen,)))
    memory = predicted(100_000, conditions=conditions).memory
    assert memory.fits
    assert memory.reserved_bytes.high <= memory.available_bytes
    assert not predicted(100_000).memory.fits
