"""`outlay bench` on a real sshd and a real Slurm: two GPU types, one of which fails; killed and
gone on with; every script really trains, on the CPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.run.services import SOURCE, processes_with, wait_for

pytestmark = pytest.mark.torch

TRAIN = """\
import json, os, pathlib, sys
gpu = json.loads(pathlib.Path(os.environ["OUTLAY_RUN"], "job.json").read_text())["machine"]["gpu"]
with open(sys.argv[2], "a") as file:
    file.write(gpu + "\\n")
if gpu == os.environ.get("FAILS_ON"):
    raise SystemExit("RuntimeError: this card is broken")
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(32, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(512, 32), torch.randn(512, 8))
while True:
    for inputs, targets in torch.utils.data.DataLoader(data, batch_size=int(sys.argv[1])):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""
WORKLOAD = """\
name = "two cards"
[step]
profile = "resnet50"
[length]
samples = 1_000_000
[limits]
budget = 20
[consider]
bundled = false
[[offer]]
provider = "a"
gpu = "RTX 3090"
price_per_hour = 1.0
[[offer]]
provider = "b"
gpu = "A100-80GB"
price_per_hour = 3.0
[run]
command = "{python} train.py {{batch}} {started}"
environment = {{FAILS_ON = "{fails_on}", PYTHONPATH = "{source}", MARK = "{started}"}}
"""
SLURM = '[run.slurm]\ngpu_types = {"RTX 3090" = "rtx3090", "A100-80GB" = "a100"}\n'
HOSTS = """\
[[run.host]]
address = "machine"
gpu = "RTX 3090:1"
[[run.host]]
address = "machine"
gpu = "A100-80GB:1"
"""


class Bench:
    """A folder with a workload, and `outlay bench` in it as a user calls it."""

    def __init__(self, folder: Path, settings: str, fails_on: str, environment: dict[str, str]):
        self.folder = folder
        self.started = folder / "started"
        (folder / "train.py").write_text(TRAIN)
        text = WORKLOAD.format(
            python=sys.executable, started=self.started, fails_on=fails_on, source=SOURCE
        )
        self.file = folder / "outlay.toml"
        self.file.write_text(text + settings)
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(SOURCE),
            "OUTLAY_DATA": str(folder / "data"),
            **environment,
        }

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "outlay", "bench", str(self.file)]
        command += ["--on", "RTX 3090:1,A100-80GB:1", "--batch-size", "8", "--steps", "30"]
        command += ["--cap-usd", "2", "--yes", "--json", "--max-options", "2", *options]
        return subprocess.Popen(
            command,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self) -> dict:
        process = self.start()
        out, err = process.communicate(timeout=180)
        assert out, err
        document = json.loads(out)
        assert process.returncode == 0, (err, document["trials"])
        return document

    def outlay(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "outlay", *arguments],
            env=self._environment, capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout


def check_two(bench: Bench) -> None:
    """One trial trained, the other failed, and neither was started twice."""
    document = bench.run()
    failed, trained = document["trials"]
    assert (failed["gpu"], failed["state"]) == ("RTX 3090", "failed")
    assert "this card is broken" in failed["reason"]
    assert (trained["gpu"], trained["state"]) == ("A100-80GB", "done")
    assert trained["batch_size"] == 8
    assert trained["samples_per_s"] == pytest.approx(8 / trained["step_time_s"], rel=0.05)
    # A thousand steps at $3 an hour.
    cost_usd = 1000 * trained["step_time_s"] / 3600 * 3.0
    assert trained["usd_per_1000_iterations"] == pytest.approx(cost_usd)
    assert 0 < document["trial_cost_usd"] < 2
    assert document["plan"]["options"][0]["provider"] in ("a", "b")
    assert "measured on a CPU" in " ".join(document["notes"])
    assert sorted(bench.started.read_text().split("\n")) == ["", "A100-80GB", "RTX 3090"]
    runs = json.loads(bench.outlay("runs", "--json"))["runs"]
    assert sorted(run["state"] for run in runs) == ["done", "failed"]


@pytest.mark.service("slurm")
def test_two_cards_on_slurm(slurm, tmp_path):
    check_two(Bench(tmp_path, SLURM, "RTX 3090", slurm.environment))


@pytest.mark.service("sshd")
def test_two_cards_over_ssh(sshd, tmp_path):
    environment = {"OUTLAY_SSH_CONFIG": str(sshd.config)}
    check_two(Bench(tmp_path, HOSTS, "RTX 3090", environment))
    assert list(sshd.runs.iterdir()) == []  # given back: nothing is left there


@pytest.mark.service("sshd")
def test_ctrl_c_says_what_goes_on_and_costs_money(sshd, tmp_path):
    bench = Bench(tmp_path, HOSTS, "", {"OUTLAY_SSH_CONFIG": str(sshd.config)})
    process = bench.start()
    wait_for(bench.started.exists, within_s=60, what="the first trial")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    (run,) = json.loads(bench.outlay("runs", "--json"))["runs"]
    assert f"Trials go on to their caps: {run['run']}." in said
    bench.outlay("stop", run["run"], "--grace", "1s")


@pytest.mark.service("slurm")
@pytest.mark.service("sshd")
@pytest.mark.parametrize("engine", ["slurm", "ssh"])
def test_killed_again_and_again_it_goes_on_without_paying_twice(engine, request, tmp_path):
    if engine == "slurm":
        environment = request.getfixturevalue("slurm").environment
        bench = Bench(tmp_path, SLURM, "", environment)
    else:
        environment = {"OUTLAY_SSH_CONFIG": str(request.getfixturevalue("sshd").config)}
        bench = Bench(tmp_path, HOSTS, "", environment)
    for after_s in (1.5, 3.0):
        process = bench.start()
        time.sleep(after_s)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    document = bench.run()
    assert [trial["state"] for trial in document["trials"]] == ["done", "done"]
    assert sorted(bench.started.read_text().splitlines()) == ["A100-80GB", "RTX 3090"]
    assert len(json.loads(bench.outlay("runs", "--json"))["runs"]) == 2
    assert list(processes_with(f"MARK={bench.started}")) == []
