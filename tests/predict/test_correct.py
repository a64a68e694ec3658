"""Measured steps on the GPU they ran on and carried over to others.

`a_profile` at 4 samples takes 80 ms on `a_gpu`, and 10 ms on the host.
"""

from __future__ import annotations

import itertools
import math

import pytest
from tests.builders import a_calibration, a_gpu, a_profile

from outlay.predict.correct import CorrectionRequest, correction_at
from outlay.predict.evidence import (
    Evidence,
    LearnedCalibration,
    LearnedFactor,
    MeasuredStep,
    gpu_error,
)
from outlay.predict.host_time import Host
from outlay.predict.kernel_time import DeviceTime, device_time
from outlay.predict.parallel import parallel_step
from outlay.predict.roofline import roofline_of, trace_at
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.predict.strategy import Strategy
from outlay.uncertainty import Estimate

CARD, OTHER = a_gpu(), a_gpu("Other", architecture="Ada")
CALIBRATION = a_calibration(error_on_Hopper=0.3, error_on_Ada=0.4)
# The step's 0.3^2 and 0.875 of the smaller GPU's error 0.3^2 are shared; the card's variance is
# 0.3^2 + 0.3^2 + 0.1^2 with how steps repeat, the other's 0.3^2 + 0.4^2.
SHARED = 0.09 + 0.875 * 0.09
GAIN = SHARED / 0.19
LEFT = math.sqrt(0.25 - SHARED**2 / 0.19)


def a_seen(step_s=0.2, *, gpu=CARD, batch_size=4, **changes):
    return MeasuredStep(gpu=gpu, batch_size=batch_size, step_s=step_s, **changes)


def corrected(*measured, gpu=OTHER, batch_size=4, own=None, calibration=CALIBRATION, **request):
    trace = trace_at(a_profile(), batch_size)
    device = device_time(trace, roofline_of(gpu, calibration), calibration)
    evidence = Evidence(measured=measured, learned=own or LearnedCalibration())
    where = CorrectionRequest(gpu=gpu, batch_size=batch_size, **request)
    return correction_at(evidence, a_profile(), where, device, calibration)


def predicted_s(gpu, calibration, batch_size=4):
    trace = trace_at(a_profile(), batch_size)
    return device_time(trace, roofline_of(gpu, calibration), calibration).total_s


def step_on(gpu, *measured, batch_size=4, calibration=CALIBRATION, own=None, **placement):
    conditions = Conditions(
        evidence=Evidence(measured=measured, learned=own or LearnedCalibration())
    )
    where = Placement(gpu=gpu, **placement)
    return predict_step(a_profile(), where, batch_size, calibration, conditions=conditions)


# --- one measurement ---


def test_the_measured_step_is_the_measured_time_exactly():
    step = step_on(CARD, a_seen(0.2137, error=0.05, holder="gpu"))
    assert step.step_time_s.likely == 0.2137
    # how steps repeat (0.1), and how well the mean is known (0.05)
    assert step.step_time_s == Estimate.log_normal(0.2137, math.hypot(0.1, 0.05))
    assert (step.time_from, step.fits) == ("measured", True)


@pytest.mark.parametrize("holder", ["gpu", "host", "input", None])
def test_whatever_held_it_back(holder):
    step = step_on(CARD, a_seen(0.2, holder=holder, busy_s=0.05))
    assert step.step_time_s.likely == 0.2
    assert step.max_batch_size >= 4


def test_another_gpu_gets_what_the_kernels_took_and_the_pauses_between():
    # kernels: 0.16 over 0.08 predicted; 40 ms beside them stay what they are
    correction = corrected(a_seen(0.2, busy_s=0.16, holder="gpu"))
    assert correction.device_factor == pytest.approx(2**GAIN)
    assert correction.gap_s == pytest.approx(0.04)
    assert correction.error == pytest.approx(LEFT)
    assert correction.time_from == "carried over from Card"
    step = step_on(OTHER, a_seen(0.2, busy_s=0.16, holder="gpu"))
    # the other is as fast as the card
    assert step.step_time_s.likely == pytest.approx(0.08 * 2**GAIN + 0.04)
    assert step.device_time_s == pytest.approx(0.08 * 2**GAIN + 0.04)


def test_kernels_that_take_longer_fill_the_pauses():
    # half the peak: 0.3 s of kernels hide 40 ms of pauses; on one a tenth slower 37 ms are left
    measured = a_seen(0.2, busy_s=0.16, holder="gpu")
    slow = a_gpu("Slow", architecture="Ada", peaks={"fp32": 5e12, "fp16": 50e12})
    assert step_on(slow, measured).device_time_s == pytest.approx(0.16 * 2**GAIN)
    tenth = a_gpu("Tenth", architecture="Ada", peaks={"fp32": 1e13, "fp16": 100e12 / 1.1})
    assert step_on(tenth, measured).device_time_s == pytest.approx(0.2)
    # faster ones leave them as they are
    fast = a_gpu("Fast", architecture="Ada", peaks={"fp32": 20e12, "fp16": 200e12})
    assert step_on(fast, measured).device_time_s == pytest.approx(0.04 * 2**GAIN + 0.04)


def test_ranges_are_narrower_than_without():
    def width(step):
        return step.step_time_s.high / step.step_time_s.low

    measured = a_seen(0.09, holder="gpu")
    for gpu in (CARD, OTHER):
        assert width(step_on(gpu, measured)) < width(step_on(gpu))
    assert width(step_on(CARD, measured)) < width(step_on(OTHER, measured))


def test_a_step_that_waited_for_its_host_corrects_the_host_and_its_kernels_the_device():
    correction = corrected(a_seen(0.2, holder="host", busy_s=0.06))
    assert correction.host_factor == pytest.approx(20)  # 0.2 over 10 ms
    assert not correction.host_known  # that was another machine's
    assert "held the measured step back" in correction.notes[0]
    assert corrected(a_seen(0.2, holder="host", busy_s=0.06), gpu=CARD, batch_size=8).host_known
    assert correction.device_factor == pytest.approx(0.75**GAIN)
    assert correction.gap_s == 0
    # without the kernels' time, the device cannot have taken longer than the step
    bound = corrected(a_seen(0.04, holder="host"))
    assert (bound.device_factor, bound.error) == (pytest.approx(0.5), None)


def test_a_step_that_waited_for_its_input_is_a_limit_only_at_the_high_end():
    measured = a_seen(0.5, holder="input", busy_s=0.08)
    step = step_on(OTHER, measured)
    assert step.bound == "input"
    # 4 samples in 0.5 s: 8 samples/s
    assert step.step_time_s.likely == pytest.approx(0.5)
    assert step.step_time_s.low == pytest.approx(Estimate.log_normal(0.08, LEFT).low)
    assert any("8 samples/s" in note for note in step.notes)
    # on the measured GPU it is what was measured, without a word
    assert not step_on(CARD, measured).notes
    # somebody who says what their input delivers knows better
    stated = Conditions(evidence=Evidence(measured=(measured,)), input_samples_per_s=1000)
    known = predict_step(a_profile(), Placement(gpu=OTHER), 4, CALIBRATION, conditions=stated)
    assert known.step_time_s.likely == pytest.approx(0.08)


def test_without_the_kernels_time_an_input_s_step_says_nothing_of_the_gpu():
    correction = corrected(a_seen(0.5, holder="input"))
    assert (correction.device_factor, correction.error) == (1.0, None)
    assert any("was not measured" in note for note in correction.notes)


def test_several_gpus_are_corrected_by_their_kernels():
    measured = a_seen(0.3, gpus=4, holder="network", busy_s=0.16)
    assert corrected(measured).device_factor == pytest.approx(2**GAIN)
    # the very machine that was measured takes what it took
    strategy, placement = Strategy(data=4), Placement(gpu=CARD, gpus=4)
    conditions = Conditions(evidence=Evidence(measured=(measured,)))
    step = parallel_step(a_profile(), placement, strategy, 4, CALIBRATION, conditions=conditions)
    assert (step.step_time_s.likely, step.time_from) == (0.3, "measured")
    # one GPU of it is carried over
    alone = step_on(CARD, measured)
    assert alone.device_time_s == pytest.approx(0.16)
    assert alone.time_from == "carried over from 4x Card"
    # without the kernels' time nothing is said but that they took no longer
    assert corrected(a_seen(0.3, gpus=4, holder="gpu")).error is None


def test_a_power_limit_counts():
    # at half of 300 W: 1 - 2 (1 - 0.5)^2 = half the speed, so that 0.16 s is as predicted
    measured = a_seen(0.16, holder="gpu", power_limit_w=150)
    assert corrected(measured).device_factor == pytest.approx(1.0)
    # the card without a limit is another step; with it, the measured one
    assert step_on(CARD, measured).time_from == "carried over from Card at 150 W"
    assert step_on(CARD, measured).step_time_s.likely == pytest.approx(0.08)
    limited = step_on(CARD, measured, power_limit_w=150)
    assert (limited.step_time_s.likely, limited.time_from) == (0.16, "measured")


@pytest.mark.parametrize(
    ("there", "here", "words"),
    [
        ({}, {"gpus": 8}, "one Card"),
        ({}, {"power_limit_w": 150}, "Card at 300 W"),  # as it was shipped
        ({"batch_size": 8}, {"gpus": 8}, "batch 8 on one Card"),
        ({"gpus": 8, "nodes": 2, "busy_s": 0.1}, {}, "2 machines of 8x Card"),
        ({"gpus": 8}, {"gpu": OTHER}, "Card"),
    ],
)
def test_what_was_different_is_named(there, here, words):
    measured = a_seen(0.16, **{"holder": "gpu", "busy_s": 0.1, **there})
    correction = corrected(measured, **{"gpu": CARD, **here})
    assert correction.time_from == f"carried over from {words}"


def test_in_another_precision_it_is_carried_over():
    conditions = Conditions(evidence=Evidence(measured=(a_seen(0.16, holder="gpu"),)))
    where = Placement(gpu=CARD)
    step = predict_step(a_profile(), where, 4, CALIBRATION, "fp32", conditions=conditions)
    # 0.8 s in fp32, twice as long as predicted
    assert step.step_time_s.likely == pytest.approx(1.6)
    assert step.time_from == "carried over from Card in another precision or share"


# --- several ---


def test_of_one_gpu_the_nearer_batch_counts_more():
    near, far = a_seen(0.32, batch_size=8, holder="gpu"), a_seen(0.02, batch_size=1, holder="gpu")
    # 0.32 over 0.16 at 8 samples; 0.02 over 0.02 at one: weights by the squares of log 8/6 and
    # log 6, and of log 1.1 beside both
    same, step, other = (math.log(apart) ** 2 for apart in (1.1, 8 / 6, 6))
    share = (same + other) / (2 * same + step + other)
    correction = corrected(near, far, gpu=CARD, batch_size=6)
    assert share > 0.95
    assert correction.device_factor == pytest.approx(2.0 * share + 1.0 * (1 - share))
    assert correction.time_from == "carried over from batch 8 on Card"
    # at a measured batch the measured step alone counts
    assert corrected(near, far, gpu=CARD, batch_size=8).device_factor == pytest.approx(2.0)


def test_between_two_batches_nothing_jumps():
    small, large = a_seen(0.32, batch_size=16, holder="gpu"), a_seen(10.24, batch_size=256)
    # 1 and 2 times what is predicted (20 ms a sample); 64 is in the middle: 3/2
    corrections = [corrected(small, large, gpu=CARD, batch_size=size) for size in (63, 64, 65)]
    below, middle, above = (correction.device_factor for correction in corrections)
    assert middle == pytest.approx(1.5)
    assert 1.45 < below < middle < above < 1.55
    assert corrections[1].time_from == "carried over from batch 16 on Card and batch 256 on Card"
    # log(3/2) below and log(4/3) above
    scatter = math.sqrt((math.log(1.5) ** 2 + math.log(2 / 1.5) ** 2) / 2)
    assert corrections[1].error == pytest.approx(scatter)


CONTRADICTING = (a_seen(0.08, holder="gpu"), a_seen(0.16, holder="gpu"))


@pytest.mark.parametrize("gpu", [CARD, OTHER])
@pytest.mark.parametrize("batch_size", [4, 8])
def test_no_order_of_measurements_matters(gpu, batch_size):
    measured = (*CONTRADICTING, a_seen(0.5, batch_size=16, holder="gpu", busy_s=0.4))
    first, *others = (
        step_on(gpu, *order, batch_size=batch_size) for order in itertools.permutations(measured)
    )
    assert all(step == first for step in others)


def test_the_device_and_the_step_agree_where_measurements_do_not():
    step = step_on(CARD, *CONTRADICTING)
    assert (step.step_time_s.likely, step.device_time_s) == pytest.approx((0.12, 0.12))
    # 80 ms of kernels in 100, and 160 without a pause: 120 and 10 in the mean
    paused = step_on(CARD, a_seen(0.1, holder="gpu", busy_s=0.08), CONTRADICTING[1])
    assert (paused.step_time_s.likely, paused.device_time_s) == pytest.approx((0.13, 0.13))


def test_what_contradicts_itself_is_known_less_on_every_gpu():
    # 1 and 2 times what is predicted, 3/2 in the mean: log(3/2) below and log(4/3) above
    scatter = math.sqrt((math.log(1.5) ** 2 + math.log(2 / 1.5) ** 2) / 2)
    agreeing = a_seen(0.12, holder="gpu")
    for gpu, batch_size in ((CARD, 8), (OTHER, 4), (OTHER, 8)):
        apart = corrected(*CONTRADICTING, gpu=gpu, batch_size=batch_size)
        once = corrected(agreeing, gpu=gpu, batch_size=batch_size)
        twice = corrected(agreeing, agreeing, gpu=gpu, batch_size=batch_size)
        assert apart.error > 1.2 * once.error
        assert twice.error == pytest.approx(once.error)
    assert corrected(*CONTRADICTING, gpu=CARD, batch_size=8).error == pytest.approx(scatter)


def test_the_further_its_batch_the_less_it_says():
    doubtful = a_calibration(kernel_errors={"gemm_16": 0.4}, step_error_between_batches=0.5)
    measured = a_seen(0.08, holder="gpu")
    errors = [
        corrected(measured, gpu=CARD, batch_size=size, calibration=doubtful).error
        for size in (4, 8, 16, 256)
    ]
    # steps repeat within 0.1; at four times the batch half of (0.3^2 + 0.4^2)^(1/2) is left beside
    assert errors[0] == pytest.approx(0.1)
    assert errors[0] < errors[1] < errors[2] == errors[3]
    assert errors[2] == pytest.approx(math.hypot(0.1, 0.25))


def test_the_asked_gpu_s_own_measurement_goes_before_others():
    mine, other = a_seen(0.16, gpu=OTHER, holder="gpu"), a_seen(0.08, holder="gpu")
    assert corrected(mine, other, batch_size=8).device_factor == pytest.approx(2.0)


def test_a_gpu_that_is_known_less_says_less_of_one_that_is_known_better():
    vague = a_gpu("Vague", architecture="Blackwell")
    calibration = a_calibration(error_on_Hopper=0.0, error_on_Blackwell=0.6)
    correction = corrected(a_seen(0.16, gpu=vague, holder="gpu"), gpu=CARD, calibration=calibration)
    # variances 0.3^2 + 0.6^2 = 0.45 and 0.09: they share 0.3^2
    gain = 0.09 / (0.45 + 0.1**2)
    assert correction.device_factor == pytest.approx(2**gain)
    assert correction.error == pytest.approx(math.sqrt(0.09 - gain * 0.09))
    # the other way round all but how steps repeat
    back = corrected(a_seen(0.16, holder="gpu"), gpu=vague, calibration=calibration)
    assert back.device_factor == pytest.approx(2 ** (0.09 / (0.09 + 0.1**2)))


@pytest.mark.parametrize("error", [0.4, 0.8, 1.6])
def test_a_gpu_that_is_known_badly_moves_another_by_no_more_than_that_one_is_off_by(error):
    """However far off such GPUs are: 0.875 of the other's own 0.3 is all they can share."""
    calibration = a_calibration(error_on_Blackwell=error, error_on_Hopper=0.3)
    vague = a_gpu("Vague", architecture="Blackwell")
    correction = corrected(a_seen(0.16, gpu=vague, holder="gpu"), gpu=CARD, calibration=calibration)
    gain = SHARED / (0.09 + error**2 + 0.1**2)
    assert correction.device_factor == pytest.approx(2**gain)


def test_kernels_that_run_on_one_of_two_gpus_carry_nothing_to_the_other():
    """Plain fp32 before TF32: products off by 0.5 there say nothing of the tensor cores'."""
    old = a_gpu("Old", architecture="Hopper", peaks={"fp32": 1e13})
    numbers = {"error_on_Hopper": 0.0, "error_on_Ada": 0.0}
    errors = {"gemm_16": 0.5, "gemm_fp32": 0.5}
    calibration = a_calibration(**numbers, kernel_errors=errors)
    measured = predicted_s(old, calibration) * 2
    alike, unlike = (
        corrected(a_seen(measured, gpu=old, holder="gpu"), gpu=gpu, calibration=calibration)
        for gpu in (a_gpu("Older", architecture="Ada", peaks={"fp32": 5e12}), OTHER)
    )
    # 0.3^2 of every step, 0.5^2 of the products, 0.875 of it shared by those that run them
    assert alike.device_factor == pytest.approx(2 ** ((0.09 + 0.875 * 0.25) / 0.35))
    assert unlike.device_factor == pytest.approx(2 ** (0.09 / 0.35))


def test_of_the_best_gain_a_part_is_used():
    calibration = a_calibration(error_on_Hopper=0.3, error_on_Ada=0.4, transfer_gain=0.5)
    correction = corrected(a_seen(0.16, holder="gpu"), calibration=calibration)
    assert correction.device_factor == pytest.approx(2 ** (GAIN / 2))
    # three quarters of what the best gain takes off the variance
    assert correction.error == pytest.approx(math.sqrt(0.25 - 0.75 * SHARED**2 / 0.19))


# All errors are the step's (0.3) and of repeats (0.1), none a GPU's own.
_SIGMA = math.hypot(0.3, 0.1)


@pytest.mark.parametrize(("sigmas", "beyond"), [(-8, -5), (-2.9, 0), (2.9, 0), (4.5, 1.5), (7, 4)])
def test_what_no_error_explains_may_be_the_measured_gpus_alone(sigmas, beyond):
    """A library that chose badly there, or work that every GPU has: the range has both."""
    calibration = a_calibration(error_on_Hopper=0.0, error_on_Ada=0.0)
    measured = a_seen(0.08 * math.exp(sigmas * _SIGMA), holder="gpu")
    correction = corrected(measured, calibration=calibration)
    explained, more = 0.9 * (sigmas - beyond) * _SIGMA, beyond * _SIGMA
    assert math.log(correction.device_factor) == pytest.approx(explained + more / 2)
    # from the lower end of none to the upper end of all of it
    low, high = (math.log(end) for end in ends(Estimate.log_normal(1.0, correction.error)))
    known = Estimate.log_normal(1.0, math.sqrt(0.09 - 0.9 * 0.09))
    plain_low, plain_high = (math.log(end) for end in ends(known))
    assert low - plain_low == pytest.approx(-abs(more) / 2)
    assert high - plain_high == pytest.approx(abs(more) / 2)
    assert bool(correction.notes) == (beyond != 0)


def test_what_all_measured_gpus_have_beyond_every_error_is_the_steps():
    calibration = a_calibration(error_on_Hopper=0.0, error_on_Ada=0.0)
    step_s = 0.08 * math.exp(5 * _SIGMA)
    both = [a_seen(step_s, gpu=gpu, holder="gpu") for gpu in (CARD, a_gpu("Second"))]
    # each 0.1 and 0.09 shared: 0.09 / 0.19 of each one's 3 standard errors, and all of the 2 beyond
    expected = 2 * 0.09 / 0.19 * 3 * _SIGMA + 2 * _SIGMA
    correction = corrected(*both, calibration=calibration)
    assert math.log(correction.device_factor) == pytest.approx(expected)
    assert not correction.notes


def test_a_step_that_did_not_wait_for_its_host_says_nothing_of_a_host_whose_speed_is_given():
    measured = a_seen(0.08, holder="gpu")
    slow = Host(speed=0.01, measured=True)  # 10 ms take a second there
    assert corrected(measured, host=slow).host_factor == 1.0
    assert corrected(a_seen(0.008, holder="gpu")).host_factor == pytest.approx(0.8)


def test_several_measurements_of_the_very_step_are_averaged():
    # the weights are 1 / (0.1^2 + 0) and 1 / (0.1^2 + 0.1^2): 2 to 1
    step = step_on(CARD, a_seen(0.20, holder="gpu"), a_seen(0.23, holder="gpu", error=0.1))
    assert step.step_time_s.likely == pytest.approx(0.21)
    assert step.step_time_s.low == Estimate.log_normal(0.20, 0.1).low
    assert step.step_time_s.high == Estimate.log_normal(0.23, math.hypot(0.1, 0.1)).high


def test_a_cap_that_was_not_there_when_it_was_measured_counts():
    measured = a_seen(0.2, holder="gpu")
    assert step_on(CARD, measured).fits
    assert not step_on(CARD, measured, memory_cap_bytes=1e6).fits


@pytest.mark.parametrize("batch_size", [None, 4, 999, 1000])
def test_the_largest_batch_is_at_least_the_largest_that_ran(batch_size):
    # half a gigabyte a sample: a thousand are not taken to fit
    assert step_on(CARD, batch_size=None).max_batch_size < 999
    measured = a_seen(50, batch_size=1000, holder="gpu")
    step = step_on(CARD, measured, batch_size=batch_size)
    assert (step.max_batch_size, step.fits) == (1000, True)
    assert step.batch_size == (batch_size or 1000)
    assert not step_on(CARD, measured, batch_size=1001).fits
    # on another GPU, on several, and where it ran out of memory, nothing was seen to fit
    alone = step_on(CARD, batch_size=batch_size)
    for other in ({"gpu": OTHER}, {"gpus": 2, "busy_s": 1.0}, {"fits": False}):
        none = step_on(CARD, a_seen(50, batch_size=1000, **other), batch_size=batch_size)
        assert (none.max_batch_size, none.fits) == (alone.max_batch_size, alone.fits)


def test_an_input_that_is_said_to_be_slower_holds_the_measured_step_back():
    measured = a_seen(0.2, holder="gpu")
    slow = Conditions(evidence=Evidence(measured=(measured,)), input_samples_per_s=10.0)
    step = predict_step(a_profile(), Placement(gpu=CARD), 4, CALIBRATION, conditions=slow)
    assert step.step_time_s.likely == pytest.approx(0.4)  # 4 samples at 10 a second
    assert (step.bound, step.time_from) == ("input", "measured, but for the input")
    fast = Conditions(evidence=Evidence(measured=(measured,)), input_samples_per_s=1000.0)
    step = predict_step(a_profile(), Placement(gpu=CARD), 4, CALIBRATION, conditions=fast)
    assert (step.step_time_s.likely, step.time_from) == (0.2, "measured")


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_given_host_that_is_slower_holds_the_measured_step_back(gpus):
    timed = a_seen(0.2, holder="gpu", busy_s=0.16, gpus=gpus)

    def step_with(host, *measured):
        conditions = Conditions(host=host, evidence=Evidence(measured=measured))
        where = Placement(gpu=CARD, gpus=gpus)
        if gpus == 1:
            return predict_step(a_profile(), where, 4, CALIBRATION, conditions=conditions)
        strategy = Strategy(data=gpus)
        return parallel_step(a_profile(), where, strategy, 4, CALIBRATION, conditions=conditions)

    # 10 ms on the host: a second at a hundredth of the speed
    step = step_with(Host(speed=0.01, measured=True), timed)
    assert step.host_time_s == pytest.approx(1.0)
    assert step.step_time_s.likely == pytest.approx(1.0)
    assert (step.bound, step.time_from) == ("host", "measured, but for the host")
    # one that is fast enough, or that nobody spoke of, leaves it as it is
    for host in (Host(speed=0.1, measured=True), Host()):
        step = step_with(host, timed)
        assert (step.step_time_s.likely, step.time_from) == (0.2, "measured")
    # where the step waited for its host, that was measured
    waiting = a_seen(0.2, holder="host", busy_s=0.05, gpus=gpus)
    step = step_with(Host(speed=0.01, measured=True), waiting)
    assert (step.step_time_s.likely, step.time_from) == (0.2, "measured")


def ends(estimate):
    return estimate.low, estimate.high


def test_two_gpus_are_joined_by_what_they_share_with_the_third():
    second = a_gpu("Second")
    calibration = a_calibration(error_on_Hopper=0.3, error_on_Ada=0.3)
    correction = corrected(
        a_seen(0.08, holder="gpu"),
        a_seen(0.16, gpu=second, holder="gpu"),
        calibration=calibration,
    )
    # each 0.18, and 0.18 - (0.5 x 0.3)^2 / 2 = 0.16875 with any other; 0.01 is each one's own:
    # both count alike, g x (0.19 + 0.16875) = 0.16875
    gain = 0.16875 / (0.19 + 0.16875)
    assert correction.device_factor == pytest.approx(2**gain)
    # 0.18 - 2 x 0.16875 g; and they are log 2 apart, where 0.01 + 0.01125 of each is its own
    beyond = (math.log(2) / 2) ** 2 - (0.19 - 0.16875) / 2
    assert correction.error == pytest.approx(math.sqrt(0.18 - 2 * 0.16875 * gain + beyond))
    [note] = correction.notes
    assert (
        "do not agree: the step took 1 times what is predicted on Card, 2 times on Second" in note
    )
    assert correction.time_from == "carried over from Card and Second"


def test_gpus_that_agree_leave_less_doubt_than_those_that_do_not():
    """Both far slower than predicted: work that every GPU has. One alone: who knows?"""
    second = a_gpu("Second")
    calibration = a_calibration(error_on_Hopper=0.1, error_on_Ada=0.1)

    def error(*times):
        measured = [
            a_seen(0.08 * times_s, gpu=gpu, holder="gpu")
            for times_s, gpu in zip(times, (CARD, second), strict=False)
        ]
        return corrected(*measured, calibration=calibration).error

    assert error(8.0, 8.0) < error(8.0)
    assert error(8.0, 8.0) < error(8.0, 6.0) < error(8.0, 1.0)
    assert error(1.0, 1.0) <= error(1.0)


def test_many_measurements_never_tell_what_they_share():
    many = [
        a_seen(0.08, gpu=a_gpu(f"Card {i}", architecture="Ada"), holder="gpu") for i in range(100)
    ]
    # 0.25 of each, shared 0.25 - 0.04 / 2 = 0.23: no number of them leaves less than
    assert corrected(*many).error > math.sqrt(0.25 - 0.23)


# --- what was learned from other steps ---


def learned(name, factor, error=0.1, count=3):
    return LearnedFactor(
        name=name,
        measurements=count,
        mean_ratio=factor,
        factor=factor,
        error_before=0.4,
        error=error,
    )


def test_what_was_learned_of_a_gpu_corrects_it():
    own = LearnedCalibration(gpus=(learned("Other", 1.5),))
    assert gpu_error(OTHER, own, CALIBRATION) == 0.1
    step = step_on(OTHER, own=own)
    assert step.device_time_s == pytest.approx(0.12)
    # 0.3 of every step, 0.1 instead of 0.4 of the GPU
    expected = Estimate.log_normal(0.12, math.hypot(0.3, 0.1))
    assert step.step_time_s.low == pytest.approx(expected.low)
    assert step.step_time_s.high == pytest.approx(expected.high)
    assert (step.time_from, step.notes) == (
        "predicted",
        ("With your own 3 measurements on Other.",),
    )
    assert step_on(CARD, own=own) == step_on(CARD)


def test_a_measurement_on_one_learned_gpu_carries_to_another():
    own = LearnedCalibration(gpus=(learned("Card", 2.0), learned("Other", 1.5)))
    # twice as long is what the card is known for: nothing is left to correct but the other's 1.5
    assert corrected(a_seen(0.16, holder="gpu"), own=own).device_factor == pytest.approx(1.5)


def test_what_was_learned_of_hosts():
    own = LearnedCalibration(host=learned("host", 0.5, error=0.1))
    step = step_on(OTHER, own=own)
    assert step.host_time_s == pytest.approx(0.005)


def test_nothing_to_go_on_changes_nothing():
    nothing = DeviceTime(
        total_s=0.0, by_kind_s={}, by_phase_s={}, arithmetic_s=0.0, kernel_error=0.0
    )
    where = CorrectionRequest(gpu=CARD, batch_size=1)
    correction = correction_at(Evidence(), a_profile(), where, nothing, CALIBRATION)
    assert (correction.device_factor, correction.host_factor, correction.error) == (1.0, 1.0, None)
    assert correction.measured_s is None
    assert step_on(CARD).time_from == "predicted"


def test_software_that_is_less_known_makes_no_other_gpu_surer():
    card, other = a_gpu(), a_gpu("Other", architecture="Ada")
    seen = MeasuredStep(gpu=card, batch_size=4, step_s=0.09, holder="gpu")
    conditions = Conditions(evidence=Evidence(measured=(seen,)))

    def carried_s(**errors):
        calibration = a_calibration(error_on_Ada=0.16, **errors)
        step = predict_step(
            a_profile(), Placement(gpu=other), 4, calibration, conditions=conditions
        )
        assert "carried over" in step.time_from
        return step.step_time_s

    # ranges to another GPU are as if only the hardware's error were there
    known = carried_s(error_on_Hopper=0.02)
    assert carried_s(error_on_Hopper=0.12, error_of_hardware_Hopper=0.02) == known
    # without a word of the hardware, a GPU that is as little known as the other tells more of it
    assert carried_s(error_on_Hopper=0.12).log_deviation < known.log_deviation
