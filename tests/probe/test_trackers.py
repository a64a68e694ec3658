from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.measured import a_measurement, without_steps
from tests.probe.apart import QUIET, run_script

from outlay.probe.agent import shutdown
from outlay.probe.agent.protocol import FIGURES_FILE, FINAL_FIGURES_FILE, AwaitingFigures
from outlay.probe.agent.shutdown import log_at_exit
from outlay.probe.runner import ProbeRequest, probe_command
from outlay.probe.stages import ProbeLimits
from outlay.probe.steps import StepStatistics
from outlay.probe.summary import tracker_figures
from outlay.units import GIB


def test_figures_have_what_is_known():
    figures = tracker_figures(a_measurement(), StepStatistics(wait_s=0.02))
    assert figures["outlay/step_s"] == 0.5
    assert (figures["outlay/step_s_low"], figures["outlay/step_s_high"]) == (0.49, 0.51)
    assert figures["outlay/steps_per_s"] == 2.0  # 1 / 0.5 s
    assert figures["outlay/samples_per_s"] == 20.0  # 10 samples / 0.5 s
    assert figures["outlay/input_wait_s"] == 0.02
    assert figures["outlay/memory_used_bytes"] == 18.0 * GIB
    assert figures["outlay/power_w"] == 100.0
    assert figures["outlay/gpu_fraction"] == 0.62
    assert figures["outlay/held_back_by"] == "input"


def test_what_is_not_known_is_no_figure():
    figures = tracker_figures(
        a_measurement(power=None, gpu_fraction=None, finding=None), StepStatistics()
    )
    assert not {"outlay/power_w", "outlay/gpu_fraction", "outlay/held_back_by"} & figures.keys()
    assert None not in figures.values()
    assert tracker_figures(without_steps(), StepStatistics()) == {}


SCRIPT = """
import json, sys
import mlflow, wandb
import outlay, training
from outlay.probe.agent.shutdown import log_to_trackers

mlflow.set_tracking_uri("file:mlruns")
run = wandb.init(project="probe", settings=wandb.Settings(console="off"))
mine = mlflow.start_run()
told = {}
try:
    TRAIN
finally:
    told["wandb"] = {name: run.summary[name] for name in run.summary.keys()}
    data = mlflow.get_run(mine.info.run_id).data
    told["mlflow"] = data.metrics
    told["tags"] = {name: x for name, x in data.tags.items() if name.startswith("outlay")}
    run.finish()
    mlflow.end_run()
    with open(sys.argv[1], "w") as file:
        json.dump(told, file)
"""
INSIDE = SCRIPT.replace(
    "TRAIN",
    """with outlay.probing(steps=12, operations=False) as probe:
        training.train(20)
    log_to_trackers({"outlay/held_back_by": "input"})
    told["step_s"] = probe.measurement.step.mean_s""",
)
ALONE = SCRIPT.replace("TRAIN", "training.train(100_000, pause_s=0.002)")
ALWAYS_KNOWN = {"outlay/step_s", "outlay/samples_per_s", "outlay/host_memory_bytes"}


@pytest.mark.torch
@pytest.mark.frameworks
def test_a_block_logs_to_the_runs_that_are_open(tmp_path):
    logged, _ = run_script(INSIDE, tmp_path)
    for figures in (logged["wandb"], logged["mlflow"]):
        assert figures.keys() >= ALWAYS_KNOWN
        assert figures["outlay/step_s"] == pytest.approx(logged["step_s"])
    assert logged["wandb"]["outlay/held_back_by"] == "input"
    assert logged["tags"] == {"outlay/held_back_by": "input"}


@pytest.mark.torch
@pytest.mark.frameworks
def test_a_probed_command_logs_before_it_is_stopped(tmp_path, monkeypatch):
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(ALONE)
    measurement = probe_command(
        ProbeRequest(
            command=(sys.executable, "script.py", "told.json"), limits=ProbeLimits(steps=40)
        )
    )
    assert (measurement.ending, measurement.status) == ("stopped", 0)
    logged = json.loads((tmp_path / "told.json").read_text())
    for figures in (logged["wandb"], logged["mlflow"]):
        assert figures.keys() >= ALWAYS_KNOWN
        assert figures["outlay/step_s"] == pytest.approx(measurement.step.mean_s)
    assert logged["tags"] == {"outlay/held_back_by": logged["wandb"]["outlay/held_back_by"]}


OPEN = """
import atexit, json, sys
import mlflow, wandb

mlflow.set_tracking_uri("file:mlruns")
run = wandb.init(project="probe", settings=wandb.Settings(console="off"))
mine = mlflow.start_run()


def tell():
    data = mlflow.get_run(mine.info.run_id).data
    told = {"wandb": {name: run.summary[name] for name in run.summary.keys()}}
    told["mlflow"] = data.metrics
    with open(sys.argv[1], "w") as file:
        json.dump(told, file)


atexit.register(tell)  # before the first step: it runs after the agent's
import training

training.train(int(sys.argv[2]), pause_s=0.002)
"""


@pytest.mark.torch
@pytest.mark.frameworks
@pytest.mark.parametrize(
    ("steps", "limits"),
    [
        (60, ProbeLimits(steps=1000)),  # ends before it has what was asked for
        (1500, ProbeLimits(steps=60, to_end=True, operations=False)),
    ],
)
def test_a_command_that_ends_by_itself_logs_to_runs_still_open(
    tmp_path, monkeypatch, steps, limits
):
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(OPEN)
    command = (sys.executable, "script.py", "told.json", str(steps))
    measurement = probe_command(ProbeRequest(command=command, limits=limits))
    assert (measurement.ending, measurement.status) == ("finished", 0)
    logged = json.loads((tmp_path / "told.json").read_text())
    for figures in (logged["wandb"], logged["mlflow"]):
        assert figures.keys() >= ALWAYS_KNOWN
        assert figures["outlay/step_s"] == pytest.approx(measurement.step.mean_s)


class Telling:
    """A channel to an outlay that may answer with figures."""

    def __init__(self, folder, answer=None):
        self.folder, self.answer, self.reports, self.is_gone = str(folder), answer, [], False

    def report(self, report):
        self.reports.append(report)

    def flush(self):
        if self.answer is not None:
            (Path(self.folder) / FINAL_FIGURES_FILE).write_text(json.dumps(self.answer))

    def is_abandoned(self):
        return self.is_gone


@pytest.fixture
def wandb(monkeypatch):
    """A tracker with a run, whose summary is a dict."""
    run = SimpleNamespace(summary={})
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(active_run=lambda: None))
    return run


def test_figures_that_come_at_the_end_are_logged(tmp_path, wandb):
    channel = Telling(tmp_path, {"outlay/step_s": 0.5})
    log_at_exit(channel)
    assert [type(report) for report in channel.reports] == [AwaitingFigures]
    assert wandb.summary == {"outlay/step_s": 0.5}


def test_figures_are_waited_for_only_where_a_run_is_open(tmp_path, wandb, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=None))
    channel = Telling(tmp_path)
    log_at_exit(channel)
    assert channel.reports == []


def test_without_an_answer_the_earlier_figures_are_logged(tmp_path, wandb, monkeypatch):
    monkeypatch.setattr(shutdown, "FIGURES_WAIT_S", 0.1)
    (tmp_path / FIGURES_FILE).write_text('{"outlay/step_s": 0.25}')
    log_at_exit(Telling(tmp_path))
    assert wandb.summary == {"outlay/step_s": 0.25}


def test_where_outlay_is_gone_nothing_is_waited_for(tmp_path, wandb, monkeypatch):
    monkeypatch.setattr(shutdown, "FIGURES_WAIT_S", 3600.0)
    channel = Telling(tmp_path)
    channel.is_gone = True
    log_at_exit(channel)
    assert wandb.summary == {}
