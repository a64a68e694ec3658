"""The whole run by what a probe of it saw: hand arithmetic on round figures."""

from __future__ import annotations

import pytest
from tests.measured import a_measurement, a_step_time, without_steps

from outlay.measurement.measurement import MeasuredPause
from outlay.probe.whole_run import whole_run


def test_start_steps_and_pauses_are_summed():
    whole = whole_run(a_measurement(), 10_000)
    # two evaluations of 4 s in 200 steps: 100 of them in 10,000
    assert whole.pauses_s.likely == pytest.approx(400)
    # start-up 10 + warm-up 8 + (10,000 - 10 of warm-up) x 0.5 + 400
    assert whole.time_s.likely == pytest.approx(18 + 4995 + 400)
    # at $0.60 an hour
    assert whole.usd.likely == pytest.approx(5413 / 3600 * 0.6)


def test_range_of_pauses_is_one_more_or_less_than_were_seen():
    whole = whole_run(a_measurement(), 200)
    # two were seen in as many steps: one to three, of 4 s
    assert (whole.pauses_s.low, whole.pauses_s.high) == (4, 12)


def test_pauses_come_as_often_as_the_steps_between_them_say():
    pause = MeasuredPause(kind="evaluation", times=2, total_s=8.0, every_steps=80.0)
    whole = whole_run(a_measurement(pauses=(pause,)), 8000)
    # in 200 steps there were two, but they were 80 steps apart: 100 of 4 s in 8,000
    assert (whole.pauses_s.low, whole.pauses_s.likely, whole.pauses_s.high) == (400, 400, 400)


def test_range_of_the_steps_is_of_percentiles():
    whole = whole_run(a_measurement(pauses=()), 1010)
    # the interval is 0.01 s to each side at 95 %; 1.2816 / 1.96 of it at the 10th and 90th
    half_s = 1000 * 0.01 * 1.2816 / 1.96
    assert whole.time_s.high - whole.time_s.likely == pytest.approx(half_s)
    assert whole.time_s.likely - whole.time_s.low == pytest.approx(half_s)


def test_without_a_steady_state_the_range_is_of_single_steps():
    measurement = a_measurement(step=a_step_time(is_steady=False), pauses=())
    whole = whole_run(measurement, 1010)
    # p10 0.48 s and p90 0.53 s
    assert (whole.time_s.low, whole.time_s.high) == pytest.approx((18 + 480, 18 + 530))


def test_new_epochs_come_as_often_as_the_script_has_them():
    pause = MeasuredPause(kind="epoch start", times=1, total_s=3.0)
    whole = whole_run(a_measurement(pauses=(pause,)), 1000)
    # an epoch has 100 steps: 10 of them
    assert (whole.pauses_s.low, whole.pauses_s.likely, whole.pauses_s.high) == (30, 30, 30)


def test_unknown_stays_unknown():
    assert whole_run(without_steps(), 1000) is None
    assert whole_run(a_measurement(price_usd_per_hour=None), 1000).usd is None


def test_fewer_steps_than_the_warm_up():
    assert whole_run(a_measurement(pauses=()), 5).time_s.likely == 18
