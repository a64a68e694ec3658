from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import HABITS, a_step, a_workload, span

from outlay.errors import InputError
from outlay.predict.run_time import NeverEnds, Pace, interval_s, optimizer_steps, pace_of, run_of
from outlay.uncertainty import LIKELY, Draws
from outlay.units import DAY_S, HOUR_S, MONTH_S
from outlay.workload.workload import Cadence, Checkpoint, Dataset, Evaluation, Length, Pause, Usage


def a_pace(training_s=10_000.0, *, epoch_s=2_000.0, step_s=0.5, sample_forward_s=0.01):
    return Pace(
        training_s=training_s,
        epoch_s=epoch_s,
        step_s=step_s,
        sample_s=step_s / 20,  # steps of 20 samples
        sample_forward_s=sample_forward_s,
    )


def a_run_of(training_s=10_000.0, rate=None, *, habits=HABITS, sampler=LIKELY, **workload):
    return run_of(a_workload(**workload), a_pace(training_s), habits, rate, sampler)


# --- steps and training time ---


def test_steps_of_samples_are_rounded_up():
    # 1000 / 30 = 33.3
    assert optimizer_steps(a_workload(length=Length(samples=1000)), a_step(batch_size=30)) == 34


def test_steps_share_samples_between_gpus_and_machines():
    workload = a_workload(length=Length(samples=1000), usage=Usage(machines=2))
    # 1000 / (30 x 4 x 2) = 4.2
    assert optimizer_steps(workload, a_step(batch_size=30, gpus=4, nodes=2)) == 5


def test_steps_of_epochs():
    workload = a_workload(length=Length(epochs=3), data=Dataset(samples=100))
    # 3 x 100 / 10
    assert optimizer_steps(workload, a_step(batch_size=10)) == 30


def test_steps_of_iterations_are_those_at_any_batch():
    workload = a_workload(length=Length(iterations=500))
    assert optimizer_steps(workload, a_step(batch_size=10)) == 500
    assert optimizer_steps(workload, a_step(batch_size=1000, gpus=8)) == 500


def test_steps_of_iterations_at_a_global_batch_are_that_many_samples():
    workload = a_workload(length=Length(iterations=500, global_batch_size=64))
    # 500 x 64 / (10 x 4) = 800
    assert optimizer_steps(workload, a_step(batch_size=10, gpus=4)) == 800


def test_steps_of_a_time_are_as_many_as_go_into_it():
    workload = a_workload(length=Length(training_s=3600))
    # 3600 s / 0.5 s
    assert optimizer_steps(workload, a_step(step_time_s=0.5)) == 7200


def test_training_time_is_steps_times_step_time():
    # 1000 / 10 = 100 steps
    step = a_step(step_time_s=span(1, 2, 4), batch_size=10)
    assert pace_of(a_workload(), step).training_s == 200


def test_training_time_that_is_given_is_exact():
    workload = a_workload(length=Length(training_s=3600))
    assert pace_of(workload, a_step(step_time_s=span(1, 2, 4))).training_s == 3600


# --- how fast it trains ---


def test_pace_is_of_the_likely_step():
    workload = a_workload(data=Dataset(samples=500))
    pace = pace_of(workload, a_step(step_time_s=span(1, 2, 4), batch_size=10))
    # 1000 / 10 = 100 steps of 2 s; an epoch has 500 / 10 = 50 of them
    assert (pace.training_s, pace.epoch_s, pace.step_s) == (200, 100, 2)
    # a third of a step goes forward: 2 s / 3 / 10 samples
    assert pace.sample_forward_s == pytest.approx(2 / 30)


def test_pace_as_luck_has_it_is_that_of_the_drawn_step():
    sampler, time_s = Draws(1000), span(1, 2, 4)
    pace = pace_of(a_workload(), a_step(step_time_s=time_s), sampler)
    # 100 steps of whatever a card's step takes
    assert np.array_equal(pace.training_s, 100 * sampler.of("speed: Card", time_s))


def test_pace_of_a_given_time_is_that_time_at_any_speed():
    workload = a_workload(length=Length(training_s=3600))
    assert pace_of(workload, a_step(step_time_s=span(1, 2, 4)), Draws(1000)).training_s == 3600


def test_pace_without_a_dataset_knows_no_epoch():
    assert pace_of(a_workload(), a_step()).epoch_s is None


# --- sessions and set-up ---


def test_one_run_is_set_up_once():
    run = a_run_of()
    assert run.sessions == 1
    # 100 s to get a machine, 200 s for the environment, 50 s until steps have their speed
    assert (run.provisioning_s, run.setup_s, run.warmup_s) == (100, 200, 50)
    assert run.busy_s == run.calendar_s == 10_350
    assert run.completion_s == run.calendar_s


def test_set_up_that_is_given_takes_the_place_of_the_assumptions():
    run = a_run_of(usage=Usage(setup_s=60))
    assert (run.provisioning_s, run.setup_s, run.warmup_s) == (0, 60, 0)
    assert run.busy_s == 10_060


def test_sessions_a_month():
    run = a_run_of(3_600.0, usage=Usage(sessions_per_month=10))
    # 10 x 3600 s of training, 10 x 350 s of set-up
    assert run.sessions == 10
    assert run.training_s == 36_000
    assert run.busy_s == 39_500
    assert run.calendar_s == 30 * DAY_S
    assert run.recurring
    # a deadline is one session's
    assert run.completion_s == 3_950


def test_hours_a_day():
    run = a_run_of(43_000.0, usage=Usage(hours_per_day=4))
    # a day has 14400 - 350 = 14050 s of training: 43000 / 14050 = 3.06 days
    assert run.sessions == 4
    assert run.training_s == 43_000
    # 43000 + 4 x 350, spread over days of which a sixth is used
    assert run.busy_s == 44_400
    assert run.calendar_s == pytest.approx(44_400 * 6)
    assert not run.recurring


def test_hours_a_day_for_less_than_a_day():
    assert a_run_of(60.0, usage=Usage(hours_per_day=4)).sessions == 1


def test_hours_a_day_that_set_up_eats_are_refused():
    # 350 s of set-up and 900 s of preparation do not go into 20 minutes
    data = Dataset(preparation_s=900)
    with pytest.raises(InputError, match="leave no time to train"):
        a_run_of(usage=Usage(hours_per_day=1 / 3), data=data)
    kept = Dataset(preparation_s=900, prepared_each_session=False)
    # prepared once, 1200 - 350 = 850 s a day are left: 10,000 / 850 = 11.8
    assert a_run_of(usage=Usage(hours_per_day=1 / 3), data=kept).sessions == 12


def test_a_provider_that_ends_sessions():
    habits = replace(HABITS, longest_session_s=HOUR_S)
    # 3600 - 350 = 3250 s in a session: 10,000 / 3250 = 3.08
    run = a_run_of(habits=habits)
    assert run.sessions == 4
    # 10,000 + 4 x 350, in one stretch
    assert run.calendar_s == run.busy_s == 11_400


def test_idle_time_is_held_in_each_session():
    run = a_run_of(3_600.0, usage=Usage(sessions_per_month=10, idle_s=600.0))
    assert run.idle_s == 6_000
    # 39,500 as above
    assert run.busy_s == 45_500


def test_data_is_kept_as_long_as_the_user_says():
    run = a_run_of(usage=Usage(storage_s=14 * DAY_S))
    assert run.storage_s == 14 * DAY_S
    # ... which is not how long the run takes
    assert run.calendar_s == run.busy_s == 10_350


def test_data_is_kept_as_long_as_the_run_takes_where_nothing_is_said():
    run = a_run_of(usage=Usage(hours_per_day=4))
    assert run.storage_s == run.calendar_s


# --- data ---


@pytest.mark.parametrize(("each_session", "times"), [(True, 10), (False, 1)])
def test_data_is_prepared_once_or_in_each_session(each_session, times):
    data = Dataset(preparation_s=500, prepared_each_session=each_session)
    run = a_run_of(3_600.0, data=data, usage=Usage(sessions_per_month=10))
    assert run.preparation_s == times * 500
    # 36000 of training, 3500 of set-up
    assert run.busy_s == 39_500 + times * 500


@pytest.mark.parametrize(("each_session", "times"), [(True, 10), (False, 1)])
def test_data_is_downloaded_once_or_in_each_session(each_session, times):
    data = Dataset(size_bytes=10e9, prepared_each_session=each_session, storage="disk")
    run = a_run_of(3_600.0, data=data, usage=Usage(sessions_per_month=10))
    # 10 GB / 100 MB/s = 100 s
    assert run.download_s == times * 100


@pytest.mark.parametrize(
    ("data", "time_s"),
    [
        (Dataset(size_bytes=10e9, at="home", storage="none"), 1000),  # 10 GB / 10 MB/s
        (Dataset(size_bytes=10e9, at="home", storage="none", upload_bytes_per_s=2e7), 500),
        (Dataset(size_bytes=10e9, at="aws", storage="none", download_bytes_per_s=5e7), 200),
        (Dataset(at="aws"), 0),
    ],
)
def test_data_comes_as_fast_as_the_line_is(data, time_s):
    assert a_run_of(data=data).download_s == time_s


def test_data_goes_from_home_to_a_volume_before_a_machine_is_rented():
    run = a_run_of(data=Dataset(size_bytes=10e9, at="home", storage="volume"))
    # 10 GB / 10 MB/s
    assert (run.download_s, run.upload_s) == (0, 1000)
    assert run.calendar_s == run.busy_s + 1000


@pytest.mark.parametrize("at", ["aws", "aws:us-east-1", "internet"])
@pytest.mark.parametrize("storage", ["volume", "object"])
def test_data_is_copied_to_lasting_storage_before_a_machine_is_rented(at, storage):
    run = a_run_of(data=Dataset(size_bytes=10e9, at=at, storage=storage))
    # 10 GB / 100 MB/s, in the calendar and not in what is billed
    assert (run.download_s, run.upload_s, run.copy_s) == (0, 0, 100)
    assert run.busy_s == 10_000 + 350
    assert run.calendar_s == run.busy_s + 100


@pytest.mark.parametrize(
    ("at", "before_s", "session_s"),
    [
        ("home", 1000, 100),  # 10 GB / 10 MB/s up, then 10 GB / 100 MB/s in each session
        ("aws", 0, 100),  # it is there already
        ("gcp", 100, 100),
    ],
)
def test_data_kept_elsewhere_is_pulled_across_in_each_session(at, before_s, session_s):
    data = Dataset(size_bytes=10e9, at=at, kept_at="aws", storage="object")
    run = a_run_of(3_600.0, data=data, usage=Usage(sessions_per_month=10))
    assert run.before_s == before_s
    assert run.download_s == 10 * session_s


def test_data_kept_at_home_leaves_it_at_the_speed_of_home():
    data = Dataset(size_bytes=10e9, at="home", kept_at="home")
    # 10 GB / 10 MB/s while the machine waits
    assert (a_run_of(data=data).download_s, a_run_of(data=data).before_s) == (1000, 0)


def test_a_month_of_sessions_does_not_wait_for_a_copy_that_is_made_once():
    data = Dataset(size_bytes=10e9, at="aws")
    run = a_run_of(3_600.0, data=data, usage=Usage(sessions_per_month=10))
    assert (run.copy_s, run.calendar_s) == (100, 30 * 86_400)


def test_a_machine_that_replaces_another_finds_what_was_copied_before():
    data = Dataset(size_bytes=10e9, at="aws")
    run = a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S, data=data)
    # 350 s of set-up beside 491.67 s of work, as without any data
    assert run.restart_s / run.lost_s == pytest.approx(350 / 491.668, rel=1e-5)


def test_a_stated_preparation_includes_fetching_from_outside():
    data = Dataset(size_bytes=10e9, preparation_s=500)
    assert a_run_of(data=data).download_s == 0
    data = Dataset(size_bytes=10e9, preparation_s=500, at="aws", storage="disk")
    run = a_run_of(data=data)
    assert run.download_s == 100
    # 10,000 of training, 350 of set-up
    assert run.busy_s == 10_000 + 350 + 500 + 100


# --- evaluation and checkpoints ---


@pytest.mark.parametrize(
    ("evaluation", "time_s"),
    [
        # 10,000 s of training hold 5 epochs of 2000 s; 300 samples of 0.01 s
        (Evaluation(every=Cadence(epochs=1), samples=300), 5 * 3),
        (Evaluation(every=Cadence(epochs=2), samples=300), 2 * 3),
        # steps of 0.5 s: one each 4000 s
        (Evaluation(every=Cadence(steps=8000), samples=300), 2 * 3),
        # samples of 0.025 s: one each 4000 s
        (Evaluation(every=Cadence(samples=160_000), samples=300), 2 * 3),
        (Evaluation(every=Cadence(epochs=1), time_s=60.0), 5 * 60),
        (Evaluation(every=Cadence(time_s=1800.0), time_s=60.0), 5 * 60),
        (Evaluation(every=Cadence(time_s=20_000.0), time_s=60.0), 0),
    ],
)
def test_evaluation_is_how_often_times_how_long(evaluation, time_s):
    run = a_run_of(evaluation=evaluation)
    assert run.evaluation_s == pytest.approx(time_s)
    assert run.busy_s == pytest.approx(10_350 + time_s)


def test_evaluation_in_each_session():
    evaluation = Evaluation(every=Cadence(time_s=1000.0), time_s=60.0)
    run = a_run_of(3_600.0, evaluation=evaluation, usage=Usage(sessions_per_month=10))
    # 3 in 3600 s, ten times
    assert run.evaluation_s == 10 * 3 * 60


def test_an_interval_in_epochs_needs_to_know_how_long_one_is():
    with pytest.raises(InputError, match="not how many samples an epoch has") as caught:
        interval_s(Cadence(epochs=1), a_pace(epoch_s=None))
    assert "data.samples" in caught.value.fix


def test_checkpoints_each_epoch():
    # 5 epochs of 2000 s, 50 s each
    checkpoint = Checkpoint(size_bytes=5e9, interval=Cadence(epochs=1))
    assert a_run_of(checkpoint=checkpoint).checkpoint_s == pytest.approx(250)


@pytest.mark.parametrize(
    "interval", [Cadence(epochs=1), Cadence(steps=4000), Cadence(samples=80_000)]
)
def test_evaluations_make_no_more_checkpoints_where_those_are_counted_in_steps(interval):
    checkpoint = Checkpoint(size_bytes=5e9, interval=interval)
    evaluation = Evaluation(every=Cadence(epochs=1), time_s=200.0)
    run = a_run_of(checkpoint=checkpoint, evaluation=evaluation)
    # 10,000 s hold 5 of 2000 s, 50 s each, whatever lies between them
    assert run.checkpoint_s == pytest.approx(250)
    # but from one to the next it is 2000 s and an evaluation
    assert run.checkpoint_interval_s == pytest.approx(2200)


@pytest.mark.parametrize("every", [Cadence(steps=200), Cadence(samples=25_600)])
@pytest.mark.parametrize("gpus", [1, 8])
def test_a_length_in_steps_of_a_batch_has_as_many_intervals_on_any_number_of_gpus(every, gpus):
    workload = a_workload(
        length=Length(iterations=1000, global_batch_size=128),
        evaluation=Evaluation(every=every, samples=1280),
        checkpoint=Checkpoint(size_bytes=5e9, interval=every),
    )
    step = a_step(batch_size=128, gpus=gpus, step_time_s=span(1, 1, 1))
    run = run_of(workload, pace_of(workload, step), HABITS)
    # 1000 / 200 = 5 evaluations of 10 batches, a third of 1 s each, shared by the GPUs
    assert run.evaluation_s == pytest.approx(5 * 10 / 3 / gpus)
    assert run.checkpoint_s == pytest.approx(5 * 50)


def test_steps_of_an_interval_are_each_machines_own_where_the_length_is_no_number_of_steps():
    workload = a_workload(
        length=Length(samples=128_000), evaluation=Evaluation(every=Cadence(steps=50), time_s=1.0)
    )
    # 1000 steps of 128 are 20 times 50, 125 of 1024 twice
    for gpus, times in ((1, 20), (8, 2)):
        step = a_step(batch_size=128, gpus=gpus)
        assert run_of(workload, pace_of(workload, step), HABITS).evaluation_s == times


def test_evaluation_time_is_saved_too():
    checkpoint = Checkpoint(size_bytes=5e9, interval=Cadence(time_s=1000.0))
    evaluation = Evaluation(every=Cadence(epochs=1), time_s=200.0)
    # (10,000 + 5 x 200) / 1000 = 11 of 50 s
    assert a_run_of(checkpoint=checkpoint, evaluation=evaluation).checkpoint_s == pytest.approx(550)


def test_a_checkpoint_takes_the_stated_time():
    interval = Cadence(epochs=1)
    # 5 epochs of 30 s, whatever the size
    for size_bytes in (None, 5e9):
        checkpoint = Checkpoint(size_bytes=size_bytes, interval=interval, time_s=30.0)
        assert a_run_of(checkpoint=checkpoint).checkpoint_s == pytest.approx(150)


def test_a_stated_time_of_a_checkpoint_is_as_uncertain_as_disks_are():
    habits = replace(HABITS, checkpoint_bytes_per_s=span(50e6, 100e6, 400e6))
    checkpoint = Checkpoint(interval=Cadence(epochs=1), time_s=30.0)
    drawn = a_run_of(habits=habits, sampler=Draws(), checkpoint=checkpoint).checkpoint_s
    # 5 of 30 s: on a disk four times as fast a quarter of it, on one half as fast twice that
    assert np.percentile(drawn, [10, 90]) == pytest.approx([37.5, 300], rel=0.02)


def test_other_pauses_are_a_part_of_their_own():
    pauses = (
        Pause(name="new epochs", every=Cadence(epochs=1), time_s=span(10, 20, 30)),
        Pause(name="stalls", every=Cadence(steps=1000), time_s=1.0),
    )
    run = a_run_of(pauses=pauses)
    # 5 epochs of 20 s; 20,000 steps have 20 stalls of 1 s
    assert run.pauses_s == pytest.approx(120)
    assert run.busy_s == pytest.approx(10_350 + 120)
    assert dict(run.time_parts_s)["pauses"] == run.pauses_s
    # a month of sessions has them all in each
    monthly = a_run_of(pauses=pauses, usage=Usage(sessions_per_month=10))
    assert monthly.pauses_s == pytest.approx(1200)


def test_pauses_are_done_again_after_an_interruption():
    # 9,500 s of training and of pauses: as much as of training alone
    pause = Pause(name="stalls", every=Cadence(time_s=950.0), time_s=950.0)
    paused = a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S, pauses=(pause,))
    plain = a_run_of(19_000.0, RATE, checkpoint=EVERY_950_S)
    assert paused.lost_s == pytest.approx(plain.lost_s)


@pytest.mark.parametrize("part", ["evaluation_s", "checkpoint_s", "pauses_s"])
def test_how_often_may_be_a_range(part):
    often = {"every": Cadence(epochs=1), "time_s": 40.0, "times": span(0.5, 1.0, 1.5)}
    saved = {"interval": Cadence(epochs=1), "time_s": 40.0, "times": span(0.5, 1.0, 1.5)}
    workload = {
        "evaluation_s": {"evaluation": Evaluation(**often)},
        "checkpoint_s": {"checkpoint": Checkpoint(**saved)},
        "pauses_s": {"pauses": (Pause(name="stalls", **often),)},
    }[part]
    habits = replace(HABITS, checkpoint_bytes_per_s=100e6)
    # 5 epochs, 40 s each; half as often to half as often again
    assert getattr(a_run_of(habits=habits, **workload), part) == pytest.approx(200)
    drawn = getattr(a_run_of(habits=habits, sampler=Draws(), **workload), part)
    assert np.percentile(drawn, [10, 90]) == pytest.approx([100, 300], rel=0.02)


def test_what_may_never_come_leaves_no_nonsense():
    checkpoint = Checkpoint(interval=Cadence(epochs=1), time_s=40.0, times=span(0, 1, 2))
    run = a_run_of(rate=RATE, sampler=Draws(), checkpoint=checkpoint)
    assert np.isfinite(run.busy_s).all()
    assert np.min(run.checkpoint_s) == pytest.approx(0, abs=0.01)


# --- interruptions ---

# 259.2 a month of 2,592,000 s is one in 10,000 s
RATE = 259.2
CHECKPOINT = Checkpoint(size_bytes=5e9)  # 5 GB / 100 MB/s = 50 s to write
EVERY_950_S = Checkpoint(size_bytes=5e9, interval=Cadence(time_s=950.0))


def test_interruptions_follow_dalys_closed_form():
    run = a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S)
    # ten stretches of 950 s and 50 s to write
    assert run.checkpoint_s == pytest.approx(500)
    # each takes (e^0.1 - 1) x e^0.035 x 10,000 s = 0.1051709 x 1.0356197 x 10,000 = 1089.171 s
    # so the machine is held 10,891.71 s: 1.089171 interruptions in it
    assert run.interruptions == pytest.approx(1.089171, rel=1e-6)
    # 891.71 s in all, for work that is lost 10,000 - 1000 / (e^0.1 - 1) = 491.67 s into a stretch
    # and for restarts of 350 s: 350 / 841.67 of it
    assert run.restart_s == pytest.approx(891.71 * 350 / 841.668, abs=0.01)
    assert run.lost_s == pytest.approx(891.71 * 491.668 / 841.668, abs=0.01)
    assert run.busy_s == pytest.approx(350 + 10_891.71, abs=0.01)


def test_waiting_for_another_machine_takes_time_and_no_money():
    run = a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S)
    # 1.089 times 30 s
    assert run.waiting_s == pytest.approx(1.089171 * 30, rel=1e-6)
    assert run.calendar_s == pytest.approx(run.busy_s + run.waiting_s)


def test_the_interval_that_wastes_least_is_taken_where_none_is_given():
    run = a_run_of(rate=RATE, checkpoint=CHECKPOINT)
    # Daly: 1000 s x (1 + 0.05 / 3 + 0.0025 / 9) - 50 s
    assert run.checkpoint_interval_s == pytest.approx(966.9444, abs=1e-4)
    assert run.checkpoint_s == pytest.approx(10_000 / 966.9444 * 50, abs=1e-3)


def test_spot_repeats_preparation_and_download():
    data = Dataset(size_bytes=10e9, preparation_s=500, at="aws", storage="disk")
    run = a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S, data=data)
    # 350 s as above, 500 s of preparation and 100 s of download, beside 491.67 s of work
    assert run.restart_s / run.lost_s == pytest.approx(950 / 491.668, rel=1e-5)
    once = replace(data, prepared_each_session=False)
    run = a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S, data=once)
    assert run.restart_s / run.lost_s == pytest.approx(350 / 491.668, rel=1e-5)


def test_spot_without_a_checkpoints_size_takes_the_usual_interval():
    run = a_run_of(18_000.0, RATE)
    assert run.checkpoint_interval_s == 1800
    assert run.checkpoint_s == 0
    # ten stretches of (e^0.18 - 1) x e^0.035 x 10,000 s = 0.1972174 x 1.0356197 x 10,000 s
    assert run.lost_s + run.restart_s == pytest.approx(20_424.22 - 18_000, abs=0.01)


def test_saved_on_notice_a_minute_is_lost_at_most():
    habits = replace(HABITS, notice_s=60.0)
    warned = replace(EVERY_950_S, on_notice=True)
    run = a_run_of(9_500.0, RATE, habits=habits, checkpoint=warned)
    # 10,000 s in stretches of 60 s: each (e^0.006 - 1) x e^0.035 x 10,000 s = 62.32397 s
    assert run.lost_s + run.restart_s == pytest.approx(10_387.33 - 10_000, abs=0.01)
    # writing takes 50 s: a notice of 30 s is too short
    hasty = replace(HABITS, notice_s=30.0)
    short = a_run_of(9_500.0, RATE, habits=hasty, checkpoint=warned)
    assert short.lost_s == a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S).lost_s


def test_any_of_several_machines_takes_the_run_down():
    single = a_run_of(9_500.0, 2 * RATE, checkpoint=EVERY_950_S)
    two = a_run_of(9_500.0, RATE, checkpoint=EVERY_950_S, usage=Usage(machines=2))
    assert two.interruptions == pytest.approx(single.interruptions)
    assert two.lost_s == pytest.approx(single.lost_s)


def test_on_demand_writes_checkpoints_and_repeats_nothing():
    run = a_run_of(18_000.0, checkpoint=CHECKPOINT)
    # one in 1800 s: 10 x 50 s
    assert run.checkpoint_s == pytest.approx(500)
    assert run.interruptions == run.lost_s == run.restart_s == run.waiting_s == 0


def test_a_rate_of_zero_is_on_demand():
    spot, kept = (a_run_of(rate=rate, checkpoint=CHECKPOINT) for rate in (0.0, None))
    assert spot == kept


def test_a_run_that_never_gets_to_a_save_never_ends():
    # interrupted each hour, saved each 12 hours: 12 expected in one stretch
    checkpoint = Checkpoint(interval=Cadence(time_s=12 * HOUR_S))
    with pytest.raises(NeverEnds, match=r"interrupted every 1\.0 h, saved every 12\.0 h"):
        a_run_of(100 * HOUR_S, 720.0, checkpoint=checkpoint)


def test_a_month_of_sessions_is_interrupted_over_all_its_training():
    usage = Usage(sessions_per_month=10)
    month = a_run_of(950.0, RATE, checkpoint=EVERY_950_S, usage=usage)
    # ten stretches, as in one run of 9500 s
    assert month.interruptions == pytest.approx(1.089171, rel=1e-6)
    assert month.calendar_s == MONTH_S


rates = st.floats(0.01, 200)
sizes = st.none() | st.floats(1e6, 1e10)


@given(rates, st.floats(1.01, 10), st.floats(1e3, 1e7), sizes)
@settings(deadline=None)
def test_more_interruptions_take_more_time(rate, factor, training_s, size_bytes):
    checkpoint = Checkpoint(size_bytes=size_bytes)
    few = a_run_of(training_s, rate, checkpoint=checkpoint)
    many = a_run_of(training_s, rate * factor, checkpoint=checkpoint)
    assert few.busy_s < many.busy_s


@given(st.floats(1, 1e8), st.none() | rates, st.none() | st.floats(0.5, 24))
@settings(deadline=None)
def test_busy_time_is_its_parts_and_within_the_period(training_s, rate, hours_per_day):
    usage = Usage(hours_per_day=hours_per_day)
    run = a_run_of(training_s, rate, checkpoint=CHECKPOINT, usage=usage)
    start_s = run.provisioning_s + run.setup_s + run.warmup_s
    work_s = run.training_s + run.checkpoint_s + run.lost_s + run.restart_s
    assert run.busy_s == pytest.approx(start_s + work_s)
    assert run.calendar_s >= run.busy_s * (1 - 1e-12)


# --- as luck has it ---

UNSURE = replace(HABITS, provisioning_s=span(50, 100, 400), environment_s=span(150, 200, 250))


def test_draws_move_what_is_uncertain_and_nothing_else():
    run = a_run_of(habits=UNSURE, sampler=Draws(2000))
    assert np.percentile(run.provisioning_s, [10, 50, 90]) == pytest.approx(
        [50, 100, 400], rel=0.01
    )
    assert np.percentile(run.setup_s, [10, 50, 90]) == pytest.approx([150, 200, 250], rel=0.01)
    assert run.training_s == 10_000
    assert run.warmup_s == 50
    assert np.allclose(run.busy_s, run.provisioning_s + run.setup_s + 10_050, rtol=1e-12)


def test_draws_of_exact_inputs_are_the_likely_run():
    likely, drawn = (
        a_run_of(sampler=sampler, checkpoint=CHECKPOINT) for sampler in (LIKELY, Draws(100))
    )
    assert drawn == likely


def test_interruptions_are_drawn_around_their_mean():
    likely = a_run_of(95_000.0, RATE, checkpoint=EVERY_950_S)
    drawn = a_run_of(95_000.0, RATE, checkpoint=EVERY_950_S, sampler=Draws())
    # 10.9 on average, in whole numbers
    assert likely.interruptions == pytest.approx(10.89171, rel=1e-6)
    assert np.mean(drawn.interruptions) == pytest.approx(10.89171, rel=0.01)
    assert np.array_equal(drawn.interruptions, np.rint(drawn.interruptions))
    assert np.mean(drawn.busy_s) == pytest.approx(likely.busy_s, rel=0.01)


def test_days_a_week():
    # as above, but on five days of seven
    every_day = a_run_of(43_000.0, usage=Usage(hours_per_day=4))
    run = a_run_of(43_000.0, usage=Usage(hours_per_day=4, days_per_week=5))
    assert run.busy_s == every_day.busy_s
    assert run.calendar_s == pytest.approx(every_day.calendar_s * 7 / 5)


def test_what_cannot_be_is_said_of_the_likely_run_alone():
    # 9.9 interruptions in a stretch and restart are let through; draws of it may be more
    rate = span(100, 9.9 * MONTH_S / 10_000, 10_000)
    checkpoint = Checkpoint(size_bytes=5e9, interval=Cadence(time_s=9_600))
    run = run_of(a_workload(checkpoint=checkpoint), a_pace(19_200.0), HABITS, rate, Draws(1000))
    assert np.isfinite(run.busy_s).all()
