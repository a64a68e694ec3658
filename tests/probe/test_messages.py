"""Processes that train: which of them are measured, and which train by themselves."""

from __future__ import annotations

from outlay.probe.agent.protocol import OptimizerStep, step_line, step_values
from outlay.probe.messages import Listener, ProcessLog, other_training


def stepping(path, first, last, after_s=0.0):
    """Lines as an agent writes them for steps of one optimizer, 10 ms each."""
    steps = [
        OptimizerStep(number=number, host_s=after_s + 0.01 * number, passes=1, batches=1, samples=8)
        for number in range(first, last + 1)
    ]
    with path.open("ab") as file:
        file.writelines(step_line(step_values(step)) + b"\n" for step in steps)


def test_who_was_timed_stays_the_one(tmp_path):
    fast, slow = tmp_path / "1.lines", tmp_path / "2.lines"
    stepping(fast, 1, 60)
    stepping(slow, 1, 40)
    listener = Listener(tmp_path)
    listener.read()
    (timed,) = listener.training_logs
    assert timed.last_step == 60
    listener.freeze_ranks()
    stepping(slow, 41, 100)
    listener.read()
    assert listener.training_logs == [timed]
    (other,) = other_training(listener.training_logs, listener.all_logs)
    assert other.last_step == 100


def test_a_step_or_two_is_a_test_and_no_training_beside():
    timed, tried, quiet = ProcessLog(last_step=100), ProcessLog(last_step=2), ProcessLog()
    assert other_training([timed], [timed, tried, quiet]) == []


def test_of_stages_that_follow_each_other_the_last_is_measured(tmp_path):
    stepping(tmp_path / "1.lines", 1, 300)  # to 3 s
    listener = Listener(tmp_path)
    stepping(tmp_path / "2.lines", 1, 19, after_s=5.0)
    listener.read()
    assert [log.last_step for log in listener.training_logs] == [
        300
    ]  # it may be a test of some steps
    stepping(tmp_path / "2.lines", 20, 25, after_s=5.0)
    listener.read()
    assert [log.last_step for log in listener.training_logs] == [25]
    (earlier,) = other_training(listener.training_logs, listener.all_logs)
    assert earlier.ended_before(listener.training_logs[0])
    assert not listener.training_logs[0].ended_before(earlier)
