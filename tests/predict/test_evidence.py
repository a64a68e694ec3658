"""Which GPUs were ever checked, and input that held a measured step back, on other machines.

4 samples in 0.5 s are 8 a second.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import a_calibration, a_gpu, a_profile
from tests.measured import a_measurement

from outlay.measurement.measurement import Sample
from outlay.predict.evidence import (
    NO_EVIDENCE,
    Evidence,
    InputLimit,
    LearnedCalibration,
    LearnedFactor,
    MeasuredStep,
    input_limit_note,
    input_limit_s,
    is_checked,
    never_measured,
)
from outlay.predict.from_probe import measured_step_of
from outlay.predict.parallel import parallel_step, slowest_step
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.predict.strategy import Strategy

CARD, OTHER = a_gpu(), a_gpu("Other", architecture="Ada")
# Hosts take up to twice as long as likely, measured ones up to 1.25 times.
CALIBRATION = a_calibration(error_on_Hopper=0.3, error_on_Ada=0.4)
SEEN = MeasuredStep(
    gpu=CARD, batch_size=4, step_s=0.5, busy_s=0.01, holder="input", busy_threads=3, cpu_threads=16
)
FED = InputLimit(samples_per_s=8.0, busy_threads=3, cpu_threads=16)


def ends(estimate):
    return estimate.low, estimate.likely, estimate.high


@pytest.mark.parametrize(
    ("gpu", "batch_size", "likely_s", "high_s"),
    [
        (OTHER, 4, 0.5, 1.0),  # another machine's host: twice as long
        (CARD, 8, 1.0, 1.25),  # another batch on the measured GPU: 1.25 times
    ],
)
def test_the_range_has_slower_hosts(gpu, batch_size, likely_s, high_s):
    conditions = Conditions(evidence=Evidence(measured=(SEEN,)))
    step = predict_step(
        a_profile(), Placement(gpu=gpu), batch_size, CALIBRATION, conditions=conditions
    )
    assert (step.step_time_s.likely, step.step_time_s.high) == pytest.approx((likely_s, high_s))


def test_several_gpus_share_their_machines_threads():
    # Eight loaders of 3 threads need 24.
    assert ends(input_limit_s(4, 8, 48, FED, CALIBRATION)) == (0, 0.5, 1.0)
    # 12 are half of that: each takes twice as long.
    assert ends(input_limit_s(4, 8, 12, FED, CALIBRATION)) == (0, 1.0, 2.0)
    # Not known, they may be the measured machine's 16: 1.5 times as long, and twice that.
    assert ends(input_limit_s(4, 8, None, FED, CALIBRATION)) == (0, 0.5, 1.5)


def test_one_gpu_of_a_small_machine_waits_for_its_threads():
    # 3 threads on 2
    assert ends(input_limit_s(4, 1, 2, FED, CALIBRATION)) == (0, 0.75, 1.5)


@pytest.mark.parametrize("unknown", [{"busy_threads": None}, {"cpu_threads": None}])
def test_where_no_threads_are_known_all_may_share_what_one_machine_delivered(unknown):
    limit = replace(FED, **unknown)
    # eight times as long, and twice that
    assert ends(input_limit_s(4, 8, None, limit, CALIBRATION)) == (0, 0.5, 8.0)
    # two GPUs were fed so: four times
    assert ends(input_limit_s(4, 8, None, replace(limit, gpus=2), CALIBRATION)) == (0, 0.5, 4.0)


def test_a_step_on_several_gpus_has_it_in_its_range():
    conditions = Conditions(evidence=Evidence(measured=(SEEN,)))
    placement, strategy = Placement(gpu=OTHER, gpus=8), Strategy(data=8)
    step = parallel_step(a_profile(), placement, strategy, 4, CALIBRATION, conditions=conditions)
    # 0.5 s, and as above 1.5
    assert (step.step_time_s.likely, step.step_time_s.high) == pytest.approx((0.5, 1.5))
    (note,) = (note for note in step.notes if "loader" in note)
    assert "8 GPUs of a machine have a loader each, and keep 24.0 of its CPU threads busy" in note


def test_what_is_taken_for_granted_is_said():
    assert input_limit_note(FED, 1, CALIBRATION).endswith("to one that is 2 times as slow.")
    assert "1.2 times as slow" in input_limit_note(replace(FED, is_same_gpu=True), 1, CALIBRATION)
    unknown = input_limit_note(replace(FED, busy_threads=None), 8, CALIBRATION)
    assert "was not measured, and the range goes to all sharing what one delivered" in unknown


def test_threads_are_those_of_the_steady_state_for_each_gpu():
    # Start-up and warm-up end after 18 s; then 4 and 8 threads, on two GPUs: 3 each.
    busy = ((5.0, 1.0), (20.0, 4.0), (30.0, 8.0), (40.0, None))
    samples = tuple(Sample(time_s=at_s, process_cpus=cpus) for at_s, cpus in busy)
    step, _ = measured_step_of(a_measurement(samples=samples, ranks=2, world_size=2))
    assert (step.busy_threads, step.cpu_threads) == (3, 16)
    step, _ = measured_step_of(a_measurement(samples=()))
    assert step.busy_threads is None


# Which GPUs were ever checked

GUESSED = a_calibration(error_on_Hopper=0.1, error_on_Ada=0.2)
GUESSED = replace(GUESSED, sources=GUESSED.sources | {"error_on_Ada": "guess, 2026-01-01"})


def test_an_architecture_whose_error_is_a_guess_was_never_measured():
    assert not never_measured(CARD, GUESSED)
    assert never_measured(OTHER, GUESSED)
    assert never_measured(a_gpu("Without a row", architecture="CDNA9"), GUESSED)


def test_a_step_says_whether_its_gpu_was_ever_checked():
    for placement, expected in ((Placement(gpu=CARD), True), (Placement(gpu=OTHER), False)):
        assert predict_step(a_profile(), placement, 4, GUESSED).is_checked is expected
        spread = parallel_step(
            a_profile(), replace(placement, gpus=2), Strategy(data=2), 4, GUESSED
        )
        assert spread.is_checked is expected


def test_own_measurements_on_a_gpu_check_it():
    learned = LearnedFactor(
        name=OTHER.name, measurements=1, mean_ratio=1, factor=1, error_before=0.2, error=0.1
    )
    assert not is_checked(OTHER, NO_EVIDENCE, GUESSED)
    assert is_checked(OTHER, Evidence(measured=(replace(SEEN, gpu=OTHER),)), GUESSED)
    assert is_checked(OTHER, Evidence(learned=LearnedCalibration(gpus=(learned,))), GUESSED)
    # the same step on another GPU says nothing of this one's speed
    assert not is_checked(OTHER, Evidence(measured=(SEEN,)), GUESSED)


def test_a_machine_with_one_unchecked_gpu_is_unchecked():
    steps = [predict_step(a_profile(), Placement(gpu=gpu), 4, GUESSED) for gpu in (CARD, OTHER)]
    assert not slowest_step(steps).is_checked
