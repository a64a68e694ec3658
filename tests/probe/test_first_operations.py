"""A probe of any length has the operations of a step: those of the first ones make a whole."""

from __future__ import annotations

import signal
import time

import pytest
from tests.measured import a_measurement
from tests.probe.made import a_log, table
from tests.probe.probed import PYTHON, ended, probe, start, wait_for

import outlay
from outlay.measurement.measurement import MeasuredOptimizer
from outlay.probe.agent.protocol import AgentRequest, RecordedOperations, StepOperations
from outlay.probe.recorded_step import recorded_profile, recorded_step
from outlay.probe.stages import ProbeLimits, ProbeStages

needs_torch = pytest.mark.torch


def an_op(name, count=1):
    return {
        "name": name,
        "kind": "gemm",
        "phase": "forward",
        "precision": "fp32",
        "count": count,
        "flops": 8.0,
        "moved_bytes": 8.0,
        "launches": 1,
        "layout": "",
        "shapes": [[2, 4]],
    }


def first(step, *names, parameters=10):
    """What was recorded of an optimizer step."""
    recording = {
        "ops": [an_op(name) for name in names],
        "unknown_ops": {},
        "rows": 2,
        "parameter_shapes": [],
        "parameters": parameters,
        "trainable_parameters": parameters,
    }
    return StepOperations(step=step, recording=recording)


def a_gan(*per_step):
    return a_measurement(
        optimizers=tuple(
            MeasuredOptimizer(name="Adam", parameters=10, per_step=each) for each in per_step
        )
    )


def ops_of(measurement, *reports, order, **fields):
    log = a_log(*reports, table=table(order, passes=1, **fields))
    return {op.name: op.count for op in recorded_step(measurement, log).ops}


def test_the_steps_of_a_round_are_one_training_step():
    """Recorded are G and D, and a training step has D and G: the same in another order."""
    reports = first(2, "mm", "sum"), first(3, "mm", parameters=20)
    log = a_log(*reports, table=table([0, 1, 0, 1], passes=1))
    step = recorded_step(a_gan(1.0, 1.0), log)
    assert {op.name: op.count for op in step.ops} == {"mm": 2, "sum": 1}
    assert step.parameters == 20


def test_less_than_a_training_step_is_none():
    reports = [first(step, "mm") for step in (2, 3)]
    log = a_log(*reports, table=table([0, 0, 0, 0, 1], passes=1))
    profile, notes = recorded_profile(a_gan(4.0, 1.0), [log])
    assert profile is None
    assert len(notes) == 1
    assert "not recorded" in notes[0]


def test_steps_of_one_optimizer_alone_are_no_round_of_two():
    reports = [first(step, "mm") for step in (2, 3)]
    log = a_log(*reports, table=table([0, 0, 0, 1, 0, 1], passes=1))
    assert recorded_profile(a_gan(1.0, 1.0), [log])[0] is None


def test_of_several_the_last_without_an_evaluation_counts():
    reports = first(2, "early"), first(3, "quiet"), first(4, "evaluation", "late")
    one = a_gan(1.0)
    marks = {3: {"mostly_no_grad": True}}
    assert ops_of(one, *reports, order=[0] * 5, marks=marks) == {"quiet": 1}
    assert ops_of(one, *reports, order=[0] * 5) == {"evaluation": 1, "late": 1}
    always = {place: {"mostly_no_grad": True} for place in range(5)}  # a teacher
    assert set(ops_of(one, *reports, order=[0] * 5, marks=always)) == {"evaluation", "late"}


def test_what_is_recorded_after_the_timing_counts_before():
    late = RecordedOperations(recording=first(9, "late").recording, optimizer_steps=1)
    assert ops_of(a_gan(1.0), first(2, "early"), late, order=[0] * 5) == {"late": 1}


def test_one_step_alone_has_none_and_it_is_said_what_to_do():
    log = a_log(table=table([0]), last_step=1)
    profile, (note,) = recorded_profile(a_measurement(step=None), [log])
    assert profile is None
    assert "Let it make at least two steps." in note


@pytest.mark.parametrize(("limits", "early"), [({}, 16), ({"steps": 5}, 2), ({"steps": 200}, 16)])
def test_first_steps_are_asked_for_and_half_of_few_are_left_to_time(limits, early):
    assert ProbeStages(ProbeLimits(**limits)).request == AgentRequest(early_steps=early)
    none = ProbeStages(ProbeLimits(**limits, operations=False)).request
    assert none == AgentRequest()


# Probes that end soon, carried to another GPU


def carried(path):
    """Seconds of a step on another GPU, as `outlay predict` has them."""
    request = outlay.PredictionRequest(target=str(path), machines=("RTX 4090",))
    (prediction,) = outlay.predict_on_gpus(request)
    return prediction.step.step_time_s.likely


SHORT = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(32, 16)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(int(sys.argv[1])):
    model(torch.ones(8, 32)).sum().backward()
    optimizer.step()
    open("steps", "a").write("x")
    time.sleep(float(sys.argv[2]))
"""


@needs_torch
def test_a_script_of_three_steps_can_be_carried_over(tmp_path):
    (tmp_path / "short.py").write_text(SHORT)
    probed = probe(tmp_path, "--", PYTHON, "short.py", 3, 0)
    assert (probed.code, probed.measurement.steps_seen) == (0, 3)
    assert probed.measurement.profile.parameters == 32 * 16 + 16
    assert carried(tmp_path / "probe.json") > 0
    assert "outlay predict probe.json" in " ".join(probed.err.split())


@needs_torch
def test_one_that_is_stopped_soon_can_be_carried_over(tmp_path):
    (tmp_path / "short.py").write_text(SHORT)
    process = start(tmp_path, "--json", "probe.json", "--", PYTHON, "short.py", 10**6, 0.05)
    steps = tmp_path / "steps"
    wait_for(lambda: steps.exists() and len(steps.read_text()) > 3)
    process.send_signal(signal.SIGINT)
    probed = ended(process, tmp_path)
    assert (probed.code, probed.measurement.ending) == (128 + signal.SIGINT, "interrupted")
    assert carried(tmp_path / "probe.json") > 0


@needs_torch
@pytest.mark.parametrize("limits", [{"steps": 5}, {"seconds": 0.2}])
def test_few_steps_or_a_short_time_can_be_carried_over(tmp_path, limits):
    from tests.probe import training

    with outlay.probing(**limits, stop=True) as probe:
        training.train(10_000, pause_s=0.01)
    probe.save(tmp_path / "probe.json")
    assert carried(tmp_path / "probe.json") > 0


@needs_torch
def test_a_step_time_that_never_settles_can_be_carried_over(tmp_path):
    from tests.probe import training

    with outlay.probing() as probe:
        training.train(12, each=lambda step: time.sleep(0.001 * 1.5**step))
    assert probe.measurement.step.precision > 0.02  # what it would have to be known by
    probe.save(tmp_path / "probe.json")
    assert carried(tmp_path / "probe.json") > 0


@needs_torch
def test_the_step_that_is_recorded_is_not_timed(tmp_path):
    """Each step sleeps for 10 ms; the second and the one after it are left out."""
    from tests.probe import training

    with outlay.probing(steps=12, stop=True) as probe:
        training.train(10_000, pause_s=0.01)
    seen = probe.measurement.step_times
    assert len(seen) == 12 - 1 - 2
