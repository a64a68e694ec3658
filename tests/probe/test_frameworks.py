"""Lightning, transformers' Trainer and accelerate under `outlay probe`, unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.probe.probed import PYTHON, SCRIPTS, Probed, probe, probe_script
from tests.probe.scripts.own_clock import STEP_S

pytestmark = [pytest.mark.torch, pytest.mark.frameworks]
TOGETHER = 0.03
"""The script's clock is read in a callback, somewhat before or after the step returns."""


def seen_as_is(probed: Probed, optimizer: str) -> None:
    """What all the scripts here have in common: two batches of 8 make a step."""
    measurement = probed.measurement
    assert (probed.code, measurement.ending, measurement.status) == (0, "stopped", 0)
    assert [(each.name, each.parameters, each.per_step) for each in measurement.optimizers] == [
        (optimizer, 528, 1.0)
    ]
    assert (measurement.batch_size, measurement.passes_per_step, measurement.samples_per_step) == (
        8,
        2,
        16,
    )
    assert measurement.steps_per_epoch == 250  # 4000 samples
    assert probed.step.mean_s > STEP_S
    assert measurement.profile is not None
    # Two passes of 8 samples through 32 to 16.
    forward = [op for op in measurement.profile.ops if op.name == "aten.addmm"]
    assert sum(op.at(16).flops * op.count for op in forward) == 2 * 2 * 8 * 32 * 16


def test_lightning(tmp_path):
    probed = probe_script(tmp_path, "lightning_fit.py", "logs", options=("--steps", 50))
    seen_as_is(probed, "AdamW")
    measurement = probed.measurement
    pauses = {pause.kind: pause.times for pause in measurement.pauses}
    # An evaluation after each 30 steps, those after the timing included; the last step ends it. The
    # one before the first step is no pause between steps.
    assert pauses["evaluation"] == (len(probed.own_s()) - 1) // 30
    assert probed.step.mean_s == pytest.approx(probed.own_usual_mean_s(30), rel=TOGETHER)
    assert measurement.versions["lightning"]


def test_trainer(tmp_path):
    probed = probe_script(tmp_path, "trainer.py", "runs", options=("--steps", 40))
    seen_as_is(probed, "AdamW")
    assert probed.step.mean_s == pytest.approx(probed.own_mean_s(), rel=TOGETHER)
    assert probed.measurement.versions["transformers"]


def test_evaluations_of_the_trainer_are_no_steps(tmp_path):
    """Models of transformers go into evaluation mode by `train(False)`."""
    probed = probe_script(tmp_path, "trainer.py", "runs", 10, options=("--steps", 45))
    measurement = probed.measurement
    (pause,) = measurement.pauses
    # Those after the timing included; it ends within the step after the last of its own.
    assert (pause.kind, pause.times) == ("evaluation", len(probed.own_s()) // 10)
    # Ten batches of half a sleep each, five times a step's two.
    assert pause.total_s / pause.times > 5 * STEP_S
    assert probed.step.mean_s == pytest.approx(probed.own_usual_mean_s(10), rel=TOGETHER)
    assert measurement.profile is not None


@pytest.mark.parametrize("launcher", [(), ("launch", "--cpu", "--num_processes", "1")])
def test_accelerate(tmp_path, launcher):
    starter = (Path(PYTHON).parent / "accelerate", *launcher) if launcher else (PYTHON,)
    command = ("--", *starter, SCRIPTS / "accelerated.py", "clock.json")
    probed = probe(tmp_path, "--steps", 40, *command)
    seen_as_is(probed, "SGD")
    assert probed.step.mean_s == pytest.approx(probed.own_mean_s(), rel=TOGETHER)
    assert probed.measurement.versions["accelerate"]
