"""Evaluations after the timing, after the last step and before the first are known."""

from __future__ import annotations

import time

import pytest
from tests.measured import STEP
from tests.probe.made import a_log, table

import outlay
from outlay.measurement.measurement import MeasuredPause
from outlay.plan.from_measurement import with_measured_pauses, workload_from_measurement
from outlay.probe.agent.protocol import AfterLastStep
from outlay.probe.pauses import notes_on_first_evaluation, pauses_with_late
from outlay.probe.steps import StepStatistics, steps_of
from outlay.workload.workload import Length

EVALUATION = {"evaluated": True, "evaluation_s": 4.0}
CHECKPOINT = MeasuredPause(kind="checkpoint", times=1, total_s=2.0)


def timed(steps, *pauses):
    """Statistics of so many timed steps of half a second."""
    return StepStatistics(step=STEP, steps_seen=steps, per_step=(1.0,), pauses=pauses)


def steps_with(evaluations, steps=40):
    """A table with an evaluation of 4 s before the steps of these places."""
    each_s = [4.5 if place in evaluations else 0.5 for place in range(steps)]
    return table([0] * steps, each_s, marks=dict.fromkeys(evaluations, EVALUATION))


def test_an_evaluation_right_after_the_timing_counts():
    log = a_log(table=steps_with([20]))
    (pause,) = pauses_with_late(timed(20), [log])
    assert (pause.kind, pause.times, pause.total_s) == ("evaluation", 1, 4.0)
    assert pause.every_steps is None  # one in 20 steps, by its number


def test_those_of_the_timing_and_after_it_tell_how_often_they_come():
    log = a_log(table=steps_with([10, 25]))
    before = MeasuredPause(kind="evaluation", times=1, total_s=4.0)
    evaluation, checkpoint = pauses_with_late(timed(20, before, CHECKPOINT), [log])
    assert (evaluation.times, evaluation.total_s, evaluation.every_steps) == (2, 8.0, 15)
    assert checkpoint == CHECKPOINT


def test_an_evaluation_at_the_end_of_the_script_counts():
    last = AfterLastStep(passed_s=6.0, evaluation_s=5.0, has_evaluated=True)
    log = a_log(last, table=steps_with([]))
    (pause,) = pauses_with_late(timed(40), [log])
    assert (pause.kind, pause.times, pause.total_s) == ("evaluation", 1, 5.0)
    # As the one before it did, after 20 more steps
    log = a_log(last, table=steps_with([20]))
    (pause,) = pauses_with_late(timed(40, *steps_of([log.table]).pauses), [log])
    assert (pause.times, pause.every_steps) == (2, 20)


def test_of_a_long_run_that_was_timed_shortly_an_only_evaluation_is_rare():
    last = AfterLastStep(passed_s=6.0, evaluation_s=5.0, has_evaluated=True)
    log = a_log(last, table=steps_with([], steps=400))
    (pause,) = pauses_with_late(timed(20), [log])
    assert pause.every_steps == 400


@pytest.mark.parametrize(
    "last",
    [
        AfterLastStep(passed_s=6.0, evaluation_s=5.0, has_evaluated=False),
        AfterLastStep(passed_s=6.0, evaluation_s=0.001, has_evaluated=True),
    ],
)
def test_what_is_no_evaluation_is_none(last):
    assert pauses_with_late(timed(40), [a_log(last, table=steps_with([]))]) == ()


def test_an_evaluation_while_operations_are_recorded_counts():
    """The length of that step says nothing; the process has timed the evaluation itself."""
    marks = {1: {"recorded": True, **EVALUATION}, 2: {"recorded": True}}
    each_s = [0.5, 30.0, *[0.5] * 38]
    statistics = steps_of([table([0] * 40, each_s, marks=marks)])
    (pause,) = statistics.pauses
    assert (pause.kind, pause.times, pause.total_s) == ("evaluation", 1, 4.0)
    assert statistics.step.mean_s == pytest.approx(0.5)


def test_an_evaluation_before_the_first_step_is_said():
    log = a_log(table=table([0] * 5, marks={0: {"evaluation_s": 3.0}}))
    (note,) = notes_on_first_evaluation((), [log])
    assert "evaluates for 3 s before its first step" in note
    assert "[evaluation]" in note
    seen = MeasuredPause(kind="evaluation", times=1, total_s=4.0)
    (note,) = notes_on_first_evaluation((seen,), [log])
    assert "[evaluation]" not in note
    assert not list(notes_on_first_evaluation((), [a_log(table=table([0] * 5))]))


def test_a_model_that_is_loaded_in_evaluation_mode_is_not_evaluated():
    """Steps of 0.1 s: as long as two of them is the making of a model, unless batches were used."""
    made = a_log(table=table([0] * 9, 0.1, marks={0: {"evaluation_s": 0.2}}))
    assert not list(notes_on_first_evaluation((), [made]))
    marks = {0: {"evaluation_s": 0.2, "evaluation_batches": 2}}
    # Those of the first step, loaded before `train`, as the Trainer of transformers does.
    own = a_log(table=table([0] * 9, 0.1, marks=marks))
    assert not list(notes_on_first_evaluation((), [own]))
    evaluated = a_log(table=table([0] * 9, 0.1, marks=marks, batches=1))
    assert list(notes_on_first_evaluation((), [evaluated]))


# In a process


def evaluate(model, each_s=0.1):
    import torch

    loader = torch.utils.data.DataLoader(torch.ones(4, 16), batch_size=2)
    model.eval()
    with torch.no_grad():
        for batch in loader:
            time.sleep(each_s)
            model(batch)
    model.train()


@pytest.mark.torch
@pytest.mark.parametrize("when", ["before", "after"])
def test_evaluations_at_both_ends_of_a_run(tmp_path, when):
    import torch
    from tests.probe import training

    model = torch.nn.Linear(16, 1)
    with outlay.probing() as probe:
        if when == "before":
            evaluate(model)
        training.train(30, pause_s=0.005)
        if when == "after":
            evaluate(model)
    measurement = probe.measurement
    evaluations = [pause for pause in measurement.pauses if pause.kind == "evaluation"]
    if when == "before":
        assert not evaluations
        assert any("before its first step" in note for note in measurement.notes)
        return
    (pause,) = evaluations
    assert pause.times == 1
    assert pause.total_s == pytest.approx(0.2, rel=0.5)  # two batches of 0.1 s
    probe.save(tmp_path / "probe.json")
    workload = workload_from_measurement(tmp_path / "probe.json", Length(iterations=300))
    planned, (note,) = with_measured_pauses(workload)
    assert planned.evaluation is not None
    assert "Evaluations: about every 30 steps" in note
