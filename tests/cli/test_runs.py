"""`outlay runs`, `logs` and `stop`: what was started, what it prints, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from jsonschema import validate
from tests.run.services import wait_for

from outlay.report.schemas import schema
from outlay.run.job import Job, JobMachine
from outlay.run.run_folder import RunFolder
from outlay.run.run_store import RunStore
from outlay.run.shell import HereShell

ROOT = Path(__file__).parents[2]
WORKLOAD = """\
name = "tiny"
[step]
profile = "resnet50"
batch_size = 32
[length]
iterations = 1_000
[consider]
bundled = false
[[offer]]
provider = "friend"
gpu = "RTX 3090"
price_per_hour = 3600
[run]
engine = "local"
outlay = "none"
"""


@pytest.fixture
def launched(outlay, tmp_path, monkeypatch):
    """Launch a command here: the id of its run."""
    monkeypatch.setenv("OUTLAY_RUNS", str(tmp_path / "there"))

    def launch(command: str, more: str = "") -> str:
        (tmp_path / "work").mkdir(exist_ok=True)
        path = tmp_path / "work" / "tiny.toml"
        path.write_text(f"{WORKLOAD}command = '''{command}'''\n{more}")
        ended = outlay("launch", path, "--yes", "--json")
        assert ended.code == 0, ended.err
        return ended.document["run"]

    return launch


def over(outlay, run: str) -> dict:
    for _ in range(200):
        (row,) = outlay("runs", run, "--json").document["runs"]
        if row["ended"]:
            return row
        time.sleep(0.05)
    raise AssertionError(row)


def test_nothing_was_launched(outlay):
    ended = outlay("runs")
    assert (ended.code, ended.err) == (0, "")
    assert "outlay launch" in ended.out
    assert outlay("runs", "--json").document == {"schema": 1, "runs": []}
    for command in (("runs", "last"), ("logs", "last"), ("stop", "last")):
        said = outlay(*command)
        assert said.code == 2
        assert "outlay runs" in said.err


def test_a_run_in_the_list_and_in_full(outlay, launched):
    run = launched("echo hello")
    row = over(outlay, run)
    assert (row["state"], row["exit_status"], row["engine"]) == ("done", 0, "local")
    # A dollar a second.
    assert row["spent_usd"] == pytest.approx(row["held_s"], abs=1.01)
    listed = outlay("runs")
    assert run in listed.out
    assert "done" in listed.out
    assert max(map(len, listed.out.splitlines())) <= 120
    full = outlay("runs", run[:6])
    for words in (run, "this machine, priced as", "echo hello", "Submitted to local", "job.sh"):
        assert words in full.out
    assert "0.0 ms" not in listed.out + full.out


def test_documents_follow_their_schemas(outlay, launched):
    run = launched("echo hello")
    over(outlay, run)
    validate(outlay("runs", "--json").document, schema("runs"))
    validate(outlay("logs", run, "--json").document, schema("logs"))
    validate(outlay("stop", run, "--json").document, schema("runs"))


def test_runs_that_are_not_over_are_counted_with_their_price(outlay, launched):
    run = launched("sleep 60")
    said = outlay("runs").out
    assert "1 run not over: $3,600" in said
    stopped = outlay("stop", run, "--grace", "1s")
    assert stopped.code == 0
    assert f"Run {run} is stopped, $" in stopped.out
    assert over(outlay, run)["state"] == "stopped"
    assert outlay("stop", run).code == 0  # again: nothing to do
    assert "not over" not in outlay("runs").out


def test_logs_are_shown_whole_or_their_end(outlay, launched):
    run = launched("for i in 1 2 3 4 5; do echo line $i; done; printf unfinished")
    over(outlay, run)
    assert outlay("logs", "last").out.splitlines()[-2:] == ["line 5", "unfinished"]
    assert outlay("logs", run, "--tail", "2").out == "line 4\nline 5\nunfinished"
    assert outlay("logs", run, "--tail", "0").out == "unfinished"
    assert outlay("logs", run, "--json").document["log"].startswith("line 1\n")
    assert outlay("logs", run, "--json", "--follow").code == 2


def test_logs_hide_credentials_also_where_a_read_ends_within(outlay, launched, monkeypatch):
    from outlay.cli import runs
    from outlay.run import run_folder

    key = "hf_" + "a1" * 17
    monkeypatch.setenv("MY_OWN", "plainword-secret")
    run = launched(f"echo {key}; echo $MY_OWN; echo tokens/s: 3500", 'pass = ["MY_OWN"]\n')
    over(outlay, run)
    whole = run_folder.RunFolder.read
    monkeypatch.setattr(
        run_folder.RunFolder, "read", lambda self, name, offset=0: whole(self, name, offset)[:7]
    )
    said = outlay("logs", run).out
    assert said == "[hidden]\n[hidden]\ntokens/s: 3500\n"
    assert runs._FOLLOW_S > 0


def test_following_goes_on_to_the_end(outlay, launched, tmp_path, monkeypatch):
    from outlay.cli import runs

    monkeypatch.setattr(runs, "_FOLLOW_S", 0.05)
    run = launched("echo first; while [ ! -e go ]; do sleep 0.1; done; echo last; printf end")
    timer = threading.Timer(0.5, (tmp_path / "work" / "go").touch)
    timer.start()
    said = outlay("logs", run, "-f")
    timer.join()
    assert said.code == 0
    assert said.out.splitlines() == ["first", "last", "end"]


def test_ctrl_c_while_following_leaves_it_running(launched, outlay, tmp_path):
    run = launched("echo first; while [ ! -e go ]; do sleep 0.1; done; echo last > made")
    following = subprocess.Popen(
        [sys.executable, "-m", "outlay.cli.main", "logs", run, "-f"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert following.stdout.readline() == "first\n"
    following.send_signal(2)
    _, error = following.communicate(timeout=20)
    assert following.returncode == 130
    assert "Interrupted" in error
    (tmp_path / "work" / "go").touch()
    assert over(outlay, run)["state"] == "done"
    assert (tmp_path / "work" / "made").exists()


def test_results_are_fetched(outlay, launched, tmp_path):
    run = launched('echo 1 > "$OUTLAY_RESULTS/probe.json"')
    over(outlay, run)
    ended = outlay("runs", run, "--fetch", "--json")
    assert ended.code == 0
    assert "1 file brought to" in ended.err
    (row,) = ended.document["runs"]
    assert Path(row["fetched"]) == tmp_path / "work" / "outlay-runs" / run
    assert (Path(row["fetched"]) / "results" / "probe.json").exists()
    assert outlay("runs", "--fetch").code == 2


def test_delete_removes_what_is_left_there(outlay, launched, tmp_path):
    run = launched("echo hello > made")
    over(outlay, run)
    assert outlay("stop", run, "--delete").code == 0
    assert list((tmp_path / "there").iterdir()) == []
    assert (tmp_path / "work" / "made").exists()
    assert [row["run"] for row in outlay("runs", "--json").document["runs"]] == [run]
    said = outlay("logs", run)
    assert said.code == 1
    assert "deleted" in said.err


def added(run: str, **changes) -> None:
    """A row of a run that was not launched by this test."""
    machine = JobMachine(gpu="T4", provider="lab", price_usd_per_hour=1.0, host="192.0.2.1")
    job = Job(id=run, name="old", engine="local", command="x", machine=machine)
    with RunStore() as store:
        store.add(job, "job.sh", "", at_s=time.time() - 30 * 86_400)
        store.change(run, **changes)


def test_one_that_was_never_started_has_no_log_and_is_stopped(outlay):
    added("old-111111")
    said = outlay("logs", "old-111111")
    assert said.code == 1
    assert "outlay launch --resume old-111111" in said.err
    assert outlay("stop", "old-111111").code == 0
    assert "stopped" in outlay("runs", "--all").out


def test_old_runs_are_left_out_unless_all_are_wanted(outlay):
    added("old-111111", state="done", ended_s=time.time() - 10 * 86_400)
    assert "old-111111" not in outlay("runs").out
    assert "old-111111" in outlay("runs", "--all").out


def test_an_engine_that_cannot_be_asked_does_not_hide_the_others(outlay, launched, monkeypatch):
    from outlay.errors import LaunchFailed

    run = launched("echo hello")
    over(outlay, run)
    added("old-111111", state="running", handle="this machine", held_since_s=time.time() - 60)

    def fails(self):
        raise LaunchFailed("No route to host.")

    monkeypatch.setattr(RunFolder, "state", fails)
    ended = outlay("runs")
    assert ended.code == 0
    assert "No route to host" in ended.err
    assert run in ended.out
    assert "old-111111" in ended.out
    assert outlay("runs", "--offline").err == ""


def test_stopping_goes_on_where_one_cannot_be_stopped(outlay, launched, monkeypatch):
    from outlay.errors import LaunchFailed

    added("old-111111", state="running", handle="this machine")
    run = launched("sleep 60")
    state = RunFolder.state

    def fails_for_one(self):
        if self.run == "old-111111":
            raise LaunchFailed("No route to host.")
        return state(self)

    monkeypatch.setattr(RunFolder, "state", fails_for_one)
    ended = outlay("stop", "old-111111", run, "--grace", "1s")
    assert ended.code == 1
    assert "No route to host" in ended.err
    assert f"Run {run} is stopped" in ended.out


def test_a_run_that_was_lost_says_why(outlay, launched):
    run = launched("sleep 60")
    folder = RunFolder(HereShell(), run)
    wait_for(lambda: folder.state().phase == "training")
    os.killpg(folder.state().pid, 9)
    (row,) = outlay("runs", run, "--json").document["runs"]
    if row["state"] == "running":  # the command has a group of its own
        assert "its script was killed" in row["reason"]
    folder.signal("KILL")
    row = over(outlay, run)
    assert row["state"] == "lost"
    assert "processes are gone" in row["reason"]
    ended = outlay("stop", run)
    assert (ended.code, ended.err) == (0, "")
    assert "is stopped" in ended.out
