from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import HABITS, a_step, a_workload, exactly, span

from outlay.predict.run import checkpoint_interval_s, run_of, steps, training_time_s
from outlay.units import DAY_S, MONTH_S
from outlay.workload import Checkpoint, Dataset, Length, Usage


def a_run_of(training_s=10_000.0, rate=None, **said):
    training = training_s if not isinstance(training_s, float) else exactly(training_s)
    return run_of(a_workload(**said), training, HABITS, rate)


# --- steps and training time ---


def test_steps_of_samples_are_rounded_up():
    # 1000 / 30 = 33.3
    assert steps(a_workload(length=Length(samples=1000)), a_step(batch_size=30)) == 34


def test_steps_share_samples_between_gpus_and_machines():
    workload = a_workload(length=Length(samples=1000), usage=Usage(machines=2))
    # 1000 / (30 x 4 x 2) = 4.2
    assert steps(workload, a_step(batch_size=30, gpus=4, nodes=2)) == 5


def test_steps_of_epochs():
    workload = a_workload(length=Length(epochs=3), data=Dataset(samples=100))
    # 3 x 100 / 10
    assert steps(workload, a_step(batch_size=10)) == 30


def test_steps_of_iterations_are_those_at_any_batch():
    workload = a_workload(length=Length(iterations=500))
    assert steps(workload, a_step(batch_size=10)) == 500
    assert steps(workload, a_step(batch_size=1000, gpus=8)) == 500


def test_steps_of_iterations_at_a_global_batch_are_that_many_samples():
    workload = a_workload(length=Length(iterations=500, global_batch_size=64))
    # 500 x 64 / (10 x 4) = 800
    assert steps(workload, a_step(batch_size=10, gpus=4)) == 800


def test_steps_of_a_time_are_as_many_as_go_into_it():
    workload = a_workload(length=Length(training_s=3600))
    # 3600 s / 0.5 s
    assert steps(workload, a_step(step_time_s=0.5)) == 7200


def test_training_time_is_steps_times_step_time():
    # 1000 / 10 = 100 steps
    step = a_step(step_time_s=span(1, 2, 4), batch_size=10)
    assert training_time_s(a_workload(), step) == span(100, 200, 400)


def test_training_time_that_is_given_is_exact():
    workload = a_workload(length=Length(training_s=3600))
    assert training_time_s(workload, a_step(step_time_s=span(1, 2, 4))) == exactly(3600)


# --- sessions and set-up ---


def test_one_run_is_set_up_once():
    run = a_run_of(span(9_000, 10_000, 20_000))
    assert run.sessions == 1
    # 100 s to get a machine, 200 s for the environment
    assert run.setup_s == 300
    assert run.busy_s == span(9_300, 10_300, 20_300)
    assert run.period_s == run.busy_s


def test_set_up_that_is_given_takes_the_place_of_the_assumptions():
    run = a_run_of(usage=Usage(setup_s=60))
    assert run.setup_s == 60
    assert run.busy_s == exactly(10_060)


def test_sessions_a_month():
    run = a_run_of(3_600.0, usage=Usage(sessions_per_month=10))
    # 10 x 3600 s of training, 10 x 300 s of set-up
    assert run.sessions == 10
    assert run.training_s == exactly(36_000)
    assert run.busy_s == exactly(39_000)
    assert run.period_s == exactly(30 * DAY_S)


def test_hours_a_day():
    run = a_run_of(43_000.0, usage=Usage(hours_per_day=4))
    # a day has 14400 - 300 = 14100 s of training: 43000 / 14100 = 3.05 days
    assert run.sessions == 4
    assert run.training_s == exactly(43_000)
    # 43000 + 4 x 300, spread over days of which a sixth is used
    assert run.busy_s == exactly(44_200)
    assert run.period_s == pytest.approx(44_200 * 6)


def test_hours_a_day_for_less_than_a_day():
    assert a_run_of(60.0, usage=Usage(hours_per_day=4)).sessions == 1


def test_data_is_kept_as_long_as_the_user_says():
    run = a_run_of(usage=Usage(storage_s=14 * DAY_S))
    assert run.kept_s == exactly(14 * DAY_S)
    # ... which is not how long the run takes
    assert run.period_s == run.busy_s == exactly(10_300)


def test_data_is_kept_as_long_as_the_run_takes_where_nothing_is_said():
    run = a_run_of(usage=Usage(hours_per_day=4))
    assert run.kept_s == run.period_s


# --- data ---


@pytest.mark.parametrize(("each_session", "times"), [(True, 10), (False, 1)])
def test_data_is_prepared_once_or_in_each_session(each_session, times):
    data = Dataset(preparation_s=500, prepared_each_session=each_session)
    run = a_run_of(3_600.0, data=data, usage=Usage(sessions_per_month=10))
    assert run.preparation_s == times * 500
    # 36000 of training, 3000 of set-up
    assert run.busy_s == exactly(39_000 + times * 500)


@pytest.mark.parametrize(("each_session", "times"), [(True, 10), (False, 1)])
def test_data_is_downloaded_once_or_in_each_session(each_session, times):
    data = Dataset(size_bytes=10e9, prepared_each_session=each_session)
    run = a_run_of(3_600.0, data=data, usage=Usage(sessions_per_month=10))
    # 10 GB / 100 MB/s = 100 s
    assert run.download_s == times * 100


def test_a_stated_preparation_includes_fetching_from_outside():
    data = Dataset(size_bytes=10e9, preparation_s=500)
    assert a_run_of(data=data).download_s == 0
    data = Dataset(size_bytes=10e9, preparation_s=500, at="aws")
    run = a_run_of(data=data)
    assert run.download_s == 100
    # 10,000 of training, 300 of set-up
    assert run.busy_s == exactly(10_000 + 300 + 500 + 100)


# --- interruptions ---

# 259.2 a month of 2,592,000 s is one in 10,000 s
RATE = exactly(259.2)
CHECKPOINT = Checkpoint(size_bytes=5e9)  # 5 GB / 100 MB/s = 50 s to write


@pytest.mark.parametrize(
    ("write_s", "between_s", "interval_s"),
    [
        (50, 10_000, 1000),  # sqrt(2 x 50 x 10,000)
        (2, 100, 20),  # sqrt(2 x 2 x 100)
    ],
)
def test_youngs_interval(write_s, between_s, interval_s):
    assert checkpoint_interval_s(write_s, 1 / between_s) == pytest.approx(interval_s)


@given(st.floats(1, 100), st.floats(1e4, 1e7), st.floats(0.5, 2))
@settings(deadline=None)
def test_youngs_interval_wastes_least(write_s, between_s, off):
    # writing costs write / interval of the time, repeating half an interval per interruption
    def wasted(interval_s):
        return write_s / interval_s + interval_s / 2 / between_s

    best_s = checkpoint_interval_s(write_s, 1 / between_s)
    assert wasted(best_s) <= wasted(best_s * off) * (1 + 1e-9)


def test_spot_repetition():
    run = a_run_of(10_000.0, RATE, checkpoint=CHECKPOINT)
    # one interruption in 10,000 s; a checkpoint each 1000 s: 10 x 50 s to write
    assert run.checkpoint_s.likely == pytest.approx(500)
    # half an interval, set-up 300 s and 50 s until there is another machine
    assert run.repeated_s.likely == pytest.approx(500 + 300 + 50)
    assert run.busy_s == pytest.approx(10_000 + 300 + 500 + 850)


def test_spot_repetition_has_the_range_of_a_chance():
    rate = span(129.6, 259.2, 518.4)
    run = a_run_of(10_000.0, rate, checkpoint=CHECKPOINT)
    # half an interruption at 850 s
    assert run.repeated_s.low == pytest.approx(425)
    # two interruptions and 1.28 x sqrt(2) more, at 850 s each
    assert run.repeated_s.high == pytest.approx((2 + 1.28 * math.sqrt(2)) * 850)


def test_spot_repeats_preparation_and_download():
    data = Dataset(size_bytes=10e9, preparation_s=500, at="aws")
    run = a_run_of(10_000.0, RATE, checkpoint=CHECKPOINT, data=data)
    # 850 s as above, 500 s of preparation and 100 s of download
    assert run.repeated_s.likely == pytest.approx(1450)


def test_spot_without_a_checkpoints_size_takes_the_usual_interval():
    run = a_run_of(10_000.0, RATE)
    assert run.checkpoint_s.likely == 0
    # half of 1800 s, 300 s and 50 s
    assert run.repeated_s.likely == pytest.approx(1250)


def test_a_given_interval_goes_before_youngs():
    checkpoint = Checkpoint(size_bytes=5e9, interval_s=500)
    run = a_run_of(10_000.0, RATE, checkpoint=checkpoint)
    # 20 x 50 s to write; half of 500 s, 300 s and 50 s
    assert run.checkpoint_s.likely == pytest.approx(1000)
    assert run.repeated_s.likely == pytest.approx(600)


def test_on_demand_writes_checkpoints_and_repeats_nothing():
    run = a_run_of(18_000.0, checkpoint=CHECKPOINT)
    # one in 1800 s: 10 x 50 s
    assert run.checkpoint_s.likely == pytest.approx(500)
    assert run.repeated_s == exactly(0.0)


rates = st.floats(0.01, 200)


@given(rates, st.floats(1.01, 10), st.floats(1e3, 1e7), st.none() | st.floats(1e6, 1e11))
@settings(deadline=None)
def test_more_interruptions_take_more_time(rate, factor, training_s, size_bytes):
    checkpoint = Checkpoint(size_bytes=size_bytes)
    few = a_run_of(exactly(training_s), exactly(rate), checkpoint=checkpoint)
    many = a_run_of(exactly(training_s), exactly(rate * factor), checkpoint=checkpoint)
    assert few.busy_s.likely < many.busy_s.likely
    assert few.busy_s.high < many.busy_s.high


@given(st.floats(1, 1e8), st.none() | rates, st.none() | st.floats(0.5, 24))
@settings(deadline=None)
def test_busy_time_is_its_parts_and_within_the_period(training_s, rate, hours_per_day):
    run = a_run_of(
        exactly(training_s),
        None if rate is None else exactly(rate),
        checkpoint=CHECKPOINT,
        usage=Usage(hours_per_day=hours_per_day),
    )
    parts = run.training_s + run.checkpoint_s.likely + run.repeated_s.likely
    fixed = run.sessions * run.setup_s + run.preparation_s + run.download_s
    assert run.busy_s == pytest.approx(parts + fixed)
    assert run.period_s >= run.busy_s * (1 - 1e-12)


def test_a_month_of_sessions_is_interrupted_over_all_its_training():
    usage = Usage(sessions_per_month=10)
    month = a_run_of(3_600.0, RATE, usage=usage)
    # 36,000 s of training at one in 10,000 s: 3.6 times 1250 s
    assert month.repeated_s.likely == pytest.approx(3.6 * 1250)
    assert month.period_s == exactly(MONTH_S)
