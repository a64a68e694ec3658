"""Processes that train: which of them are measured, and which train by themselves."""

from __future__ import annotations

import json

from outlay.probe.messages import Listener, ProcessLog, beside


def stepping(path, first, last, after_s=0.0):
    """Lines as an agent writes them for steps of one optimizer, 10 ms each."""
    steps = [
        ["s", number, 0, after_s + 0.01 * number, 0, 1, 1, 8, 0.0, 0.0, 0, 0, 0.0, 0, 0, 0]
        for number in range(first, last + 1)
    ]
    with path.open("a") as file:
        file.writelines(json.dumps(step) + "\n" for step in steps)


def test_who_was_timed_stays_the_one(tmp_path):
    fast, slow = tmp_path / "1.lines", tmp_path / "2.lines"
    stepping(fast, 1, 60)
    stepping(slow, 1, 40)
    listener = Listener(tmp_path)
    listener.read()
    (timed,) = listener.training
    assert timed.last_step == 60
    listener.settle()
    stepping(slow, 41, 100)
    listener.read()
    assert listener.training == [timed]
    assert [one.last_step for one in beside(listener.training, listener.everyone)] == [100]


def test_a_step_or_two_is_a_test_and_no_training_beside():
    timed, tried, quiet = ProcessLog(last_step=100), ProcessLog(last_step=2), ProcessLog()
    assert beside([timed], [timed, tried, quiet]) == []


def test_of_stages_that_follow_each_other_the_last_is_measured(tmp_path):
    stepping(tmp_path / "1.lines", 1, 300)  # to 3 s
    listener = Listener(tmp_path)
    stepping(tmp_path / "2.lines", 1, 19, after_s=5.0)
    listener.read()
    assert [one.last_step for one in listener.training] == [300]  # it may be a test of some steps
    stepping(tmp_path / "2.lines", 20, 25, after_s=5.0)
    listener.read()
    assert [one.last_step for one in listener.training] == [25]
    (earlier,) = beside(listener.training, listener.everyone)
    assert earlier.is_before(listener.training[0])
    assert not listener.training[0].is_before(earlier)
