"""`outlay launch`, `logs`, `stop` and `runs` as a user types them, on a real sshd and Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.run.services import SOURCE, PrivateSshd

pytestmark = [pytest.mark.service("slurm"), pytest.mark.service("sshd")]

WORKLOAD = """\
name = "tiny"
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
[run]
command = "python3 train.py"
fetch = ["out"]
pass = ["SECRET_TOKEN"]
"""
TRAIN = """\
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path("out").mkdir()
    pathlib.Path("out", "checkpoint").write_text("saved")
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("up", flush=True)
while True:
    time.sleep(0.05)
"""
GPUS = 'gpu_types = {"RTX 3090" = "rtx3090"}\n'
WAYS = {
    "ssh": ("ssh", '[[run.host]]\naddress = "machine"\ngpu = "RTX 3090:1"\n'),
    "slurm": ("slurm", f'[run.slurm]\nlogin = "machine"\n{GPUS}'),
}


class Terminal:
    """Where a user types."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        own = {"PYTHONPATH": str(SOURCE), "OUTLAY_DATA": str(folder / "data")}
        self.environment = {**os.environ, **own, **environment}

    def outlay(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "outlay", *arguments],
            env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def document(self, *arguments: str) -> dict[str, Any]:
        document = json.loads(self.outlay(*arguments, "--json"))
        assert isinstance(document, dict)
        return document


@pytest.mark.parametrize("way", WAYS)
def test_a_run_is_launched_read_and_stopped_with_time_to_save(way, slurm, tmp_path):
    engine, settings = WAYS[way]
    login = PrivateSshd(tmp_path / "login", slurm.environment)
    environment = {"OUTLAY_SSH_CONFIG": str(login.config), "SECRET_TOKEN": "s3cr3t-value"}
    terminal = Terminal(tmp_path, {**slurm.environment, **environment})
    (tmp_path / "outlay.toml").write_text(WORKLOAD + settings)
    (tmp_path / "train.py").write_text(TRAIN)
    try:
        launched = terminal.document("launch", "outlay.toml", "--engine", engine, "--yes")
        run = launched["run"]
        ends_s = time.monotonic() + 30
        while "up" not in (log := terminal.outlay("logs", run)):
            assert time.monotonic() < ends_s, log
        terminal.outlay("stop", run)
        (record,) = terminal.document("runs")["runs"]
        terminal.outlay("runs", run, "--fetch", "--to", "here")
    finally:
        login.stop()

    assert (launched["engine"], launched["state"]) in {(engine, "queued"), (engine, "running")}
    assert launched["price_usd_per_hour"] == 1.0
    assert (record["run"], record["state"]) == (run, "stopped")
    # At $1 an hour, by the second.
    assert record["spent_usd"] == pytest.approx(record["held_s"] / 3600, abs=1 / 3600)
    assert (tmp_path / "here/out/checkpoint").read_text() == "saved"
    kept = [slurm.runs / run, tmp_path / "data"]
    found = subprocess.run(["grep", "-rl", "s3cr3t-value", *kept], capture_output=True, text=True)
    assert found.stdout == ""
