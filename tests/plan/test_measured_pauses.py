"""What lies between a measured run's steps goes on in a plan of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import an_offer
from tests.measured import a_measurement, a_step_time

from outlay.measurement.file import measurement_from_json, measurement_to_json, write_measurement
from outlay.measurement.measurement import Finding, MeasuredPause
from outlay.plan.from_measurement import with_measured_pauses, workload_from_measurement
from outlay.plan.pipeline import rank_offers
from outlay.probe.whole_run import whole_run
from outlay.trace.store import find_profile
from outlay.uncertainty import Estimate
from outlay.workload.workload import Cadence, Length

# In 400 steps of 0.05 s (batch 128).
EVALUATION = MeasuredPause(kind="evaluation", times=4, total_s=12.0, every_steps=90.0)
CHECKPOINT = MeasuredPause(kind="checkpoint", times=2, total_s=8.0, every_steps=150.0)
NEW_EPOCH = MeasuredPause(kind="epoch start", times=3, total_s=6.0)
STALL = MeasuredPause(kind="other", times=2, total_s=5.0)
ALL = (EVALUATION, CHECKPOINT, NEW_EPOCH, STALL)


def measured(pauses, **changes):
    busy = {
        "profile": find_profile("resnet50"),
        "step": a_step_time(mean_s=0.05, low_s=0.049, high_s=0.051, median_s=0.05),
        "samples_per_step": 128.0,
        "busy_s": 0.05,
        "finding": Finding(holder="gpu", evidence=(), cures=()),
        "steps_seen": 400,
        "steps_per_epoch": 100.0,
    }
    return a_measurement(**{**busy, "pauses": pauses, **changes})


def workload_of(tmp_path, measurement, steps=9_000):
    write_measurement(measurement, tmp_path / "probe.json")
    workload = workload_from_measurement(tmp_path / "probe.json", Length(iterations=steps))
    assert workload is not None
    return with_measured_pauses(workload)[0]


def planned(tmp_path, measurement, *, gpus=1):
    workload = workload_of(tmp_path, measurement)
    (option,) = rank_offers(workload, (an_offer("here", gpu="RTX 4090", gpus=gpus),)).options
    return option


@pytest.mark.parametrize("pauses", [(), *((one,) for one in ALL), ALL])
def test_a_plan_takes_as_long_as_the_probe_says_where_it_was_measured(tmp_path, pauses):
    measurement = measured(pauses)
    run = planned(tmp_path, measurement).run
    held_s = run.training_s + run.evaluation_s + run.checkpoint_s + run.pauses_s
    whole = whole_run(measurement, 9_000)
    start_s = measurement.start_up_s + measurement.warm_up_s
    assert held_s == pytest.approx(whole.time_s.likely - start_s, rel=0.02)


def test_each_kind_goes_on_as_it_was_seen(tmp_path):
    run = planned(tmp_path, measured(ALL)).run
    assert run.evaluation_s == pytest.approx(9_000 / 90 * 3, rel=0.01)
    assert run.checkpoint_s == pytest.approx(9_000 / 150 * 4, rel=0.01)
    # Epochs of 100 steps, 2 s each; two stalls in 400 steps, 2.5 s each.
    assert run.pauses_s == pytest.approx(9_000 / 100 * 2 + 9_000 / 200 * 2.5, rel=0.01)


def test_on_several_gpus_there_are_as_many(tmp_path):
    measurement = measured((CHECKPOINT, NEW_EPOCH))
    one, eight = (planned(tmp_path, measurement, gpus=gpus).run for gpus in (1, 8))
    assert eight.training_s < one.training_s / 4
    # Neither writing a file nor starting a loader is shared by GPUs.
    assert eight.checkpoint_s == pytest.approx(one.checkpoint_s, rel=0.01)
    assert eight.pauses_s == pytest.approx(one.pauses_s, rel=0.02)


def test_only_their_number_leaves_a_range(tmp_path):
    seen = workload_of(tmp_path, measured((replace(EVALUATION, every_steps=None),)))
    assert seen.evaluation is not None
    # Four in 400 steps of 128: one each 12,800 samples; three to five in as many.
    assert seen.evaluation.every == Cadence(samples=12_800)
    assert seen.evaluation.times == Estimate(low=0.75, likely=1.0, high=1.25)
    spaced = workload_of(tmp_path, measured((EVALUATION,)))
    assert spaced.evaluation is not None
    assert (spaced.evaluation.every, spaced.evaluation.times) == (Cadence(samples=90 * 128), 1.0)


def test_the_range_of_a_plan_has_what_was_seen_once(tmp_path):
    once = MeasuredPause(kind="evaluation", times=1, total_s=100.0)
    sure = replace(once, every_steps=400.0)
    counted, spaced = (planned(tmp_path, measured((one,))).cost_usd for one in (once, sure))
    assert counted.likely == pytest.approx(spaced.likely)
    assert counted.high - counted.low > 1.5 * (spaced.high - spaced.low)


def test_other_machines_disks_and_hosts_are_in_the_range(tmp_path):
    workload = workload_of(tmp_path, measured((CHECKPOINT, NEW_EPOCH)))
    assert workload.checkpoint.time_s == 4
    (pause,) = workload.pauses
    # Hosts take up to 1.3 times as long; 2 s each.
    time_s = pause.time_s
    assert (time_s.low, time_s.likely, time_s.high) == pytest.approx((1.4, 2.0, 2.6))


def test_without_samples_intervals_are_steps(tmp_path):
    workload = workload_of(tmp_path, measured(ALL, samples_per_step=None))
    assert workload.evaluation is not None
    assert workload.evaluation.every == Cadence(steps=90)
    assert workload.evaluation.time_s == 3
    assert workload.checkpoint.interval == Cadence(steps=150)


def test_a_pause_of_hardly_any_time_makes_a_workload(tmp_path):
    short = tuple(replace(one, total_s=1e-12) for one in ALL)
    workload = workload_of(tmp_path, measured(short, step=None))
    assert workload.checkpoint.time_s == pytest.approx(1e-6)


def test_everything_that_is_taken_over_is_said(tmp_path):
    write_measurement(measured(ALL), tmp_path / "probe.json")
    workload = workload_from_measurement(tmp_path / "probe.json", Length(iterations=9_000))
    _, said = with_measured_pauses(workload)
    words = [
        "Evaluations: every 90 steps, 3 s each on the measured RTX 4090, shared by all GPUs",
        "Checkpoints: every 150 steps, 4 s each on the measured RTX 4090 and likely elsewhere",
        "New epochs: every 100 steps, 2 s each",
        "Other pauses: about every 200 steps (2 seen in 400: the range has one more and one less)",
    ]
    assert len(said) == len(words)
    assert all(one.startswith(start) for one, start in zip(said, words, strict=True))
    assert "storing them is not counted" in said[1]


def test_a_measurement_without_the_steps_between_pauses_is_read():
    plain = measurement_to_json(a_measurement(pauses=(EVALUATION,), profile=None))
    assert measurement_from_json(plain).pauses == (EVALUATION,)
    del plain["pauses"][0]["every_steps"]
    assert measurement_from_json(plain).pauses == (replace(EVALUATION, every_steps=None),)
