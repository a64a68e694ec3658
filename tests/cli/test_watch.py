"""`outlay watch` and `outlay guard`, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import jsonschema
import pytest
from tests.run.services import SOURCE

from outlay.report.schemas import schema
from outlay.report.watch_report import LineView, line, live_line, panel
from outlay.run.job import Job, JobMachine
from outlay.run.progress import RunStatus
from outlay.run.run_folder import runs_folder
from outlay.run.run_store import RunStore
from outlay.uncertainty import Estimate

OUTLAY = [sys.executable, "-m", "outlay"]


def run(*arguments, **variables):
    return subprocess.run(
        [*OUTLAY, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_command_is_watched_to_its_end_with_its_own_status(tmp_path):
    code = (
        "import time\nfor n in range(1, 8): print('step', n, '/ 8', flush=True); time.sleep(.3)\n"
    )
    ended = run(
        "watch", "--json", "--every", "0.2s", "--price", "36", "--no-agent",
        "--log", tmp_path / "l", "--step-pattern", "step ([0-9]+) / ([0-9]+)", "--",
        "sh", "-c", f'"$0" -S -u -c "{code}" > {tmp_path}/l; echo printed; exit 6', sys.executable,
    )  # fmt: skip
    assert ended.returncode == 6, ended.stderr
    lines = [json.loads(one) for one in ended.stdout.splitlines()]
    for one in lines:
        jsonschema.validate(one, schema("watch"))
    assert lines[-1]["phase"] == "ended"
    assert (lines[-1]["steps_done"], lines[-1]["total_steps"]) == (7, 8.0)
    assert lines[-1]["exit_status"] == 6
    assert "printed" in ended.stderr  # what it prints is no JSON
    # $36 an hour is a cent a second.
    assert lines[-1]["cost_usd"] == pytest.approx(0.01 * lines[-1]["elapsed_s"], abs=0.011)


def test_a_process_is_watched_to_its_end(tmp_path):
    process = subprocess.Popen(["sleep", "1.5"])
    watched = subprocess.Popen(
        [*OUTLAY, "watch", "--pid", str(process.pid), "--every", "0.2s"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.wait()
    out, err = watched.communicate(timeout=30)
    assert watched.returncode == 0
    assert f"process {process.pid} | ended" in out
    assert "It has ended." in err


def test_a_run_of_outlay_is_followed_to_its_end(tmp_path, monkeypatch):
    """One whose folder is there, as the engine local leaves it."""
    variables = {"OUTLAY_DATA": str(tmp_path / "data"), "OUTLAY_RUNS": str(tmp_path / "runs")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    machine = JobMachine(price_usd_per_hour=3.0)
    job = Job(id="mine-1", name="mine", engine="local", command="true", machine=machine)
    with RunStore() as store:
        store.add(job, "job.sh", "", at_s=time.time())
        store.change("mine-1", state="running", handle="this machine")
    folder = runs_folder() / "mine-1"
    (folder / "started").mkdir(parents=True)
    (folder / "status.json").write_text('{"time_s": 1.0, "phase": "training", "steps_done": 40}')
    (folder / "exit").write_text("0")
    ended = run("watch", "mine-1", "--json", **variables)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout.splitlines()[-1])
    jsonschema.validate(told, schema("watch"))
    assert (told["run"], told["phase"], told["steps_done"]) == ("mine-1", "ended", 40)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--idle-below", "0.1"), "Say what to look at"),
        (("--pid", "1", "--slurm", "2"), "Say what to look at"),
        (("two", "words"), "Say what to look at"),
        (("--sky", "x", "--host", "y"), "--host goes with"),
        (("--budget", "5", "--", "true"), "needs the price"),
        (("--signal", "NOPE", "--", "true"), "no signal"),
        (("--step-pattern", "step", "--", "true"), "has no group"),
        (("--loss-pattern", "(", "--", "true"), "no regular expression"),
        (("--for", "soon", "--", "true"), "not a duration"),
        (("no-such-run",), "no-such-run"),
        (("--", "no-such-program-at-all"), "cannot be started"),
        (("--slurm", "1;id"), "no number of a Slurm job"),
    ],
)
def test_what_cannot_be_used_is_said_and_ends_with_2(arguments, what, tmp_path):
    ended = run("watch", *arguments, OUTLAY_DATA=str(tmp_path))
    assert ended.returncode == 2
    assert what in " ".join(ended.stderr.split())


def test_guard_prints_what_keeps_it_running():
    unit = run("guard", "--systemd", "--for", "45m")
    loop = run("guard", "--loop", "--for", "45m")
    for ended in (unit, loop):
        assert ended.returncode == 0, ended.stderr
        assert "guard --machine --for 2700s" in ended.stdout
    assert run("guard", "--systemd", "--loop").returncode == 2


def test_guard_of_a_process_says_how_it_goes():
    process = subprocess.Popen(["sleep", "60"])
    guard = subprocess.Popen(
        [*OUTLAY, "guard", "--pid", str(process.pid), "--json"],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert json.loads(guard.stdout.readline())["phase"] == "training"
    process.kill()
    process.wait()
    out, _ = guard.communicate(timeout=30)
    assert json.loads(out.splitlines()[-1])["phase"] == "ended"


STATUS = RunStatus(
    run="mine-1",
    time_s=1.7e9,
    phase="warned",
    steps_done=1200,
    total_steps=90_000.0,
    step_time_s=0.08,
    predicted_step_time_s=Estimate(low=0.05, likely=0.064, high=0.07),
    loss=2.25,
    is_loss_finite=True,
    gpu_fraction=0.93,
    gpu_power_w=412.0,
    gpu_memory_bytes=61 * 2**30,
    cpus=3.14,
    cost_usd=1.2,
    budget_usd=5.0,
    remaining_s=Estimate(low=7000.0, likely=7200.0, high=7600.0),
    final_cost_usd=Estimate(low=3.9, likely=4.1, high=4.4),
    predicted_cost_usd=Estimate(low=3.0, likely=3.5, high=4.0),
    warning="GPUs below 5% for 10 min, and nothing else has gone on.",
)


def printed(renderable):
    from rich.console import Console

    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(renderable)
    return console.export_text()


def test_the_panel_tells_it_all():
    text = printed(panel(STATUS, ["12:00  something happened"]))
    for words in (
        "1,200 of 90,000 (1.3%), 12.5 a second",  # 1 / 0.08 s
        "GPU 93%, 412 W, 61.0 GiB; 3.1 CPUs busy",
        "$1.20 of $5.00 so far, $4.10 ($3.90 to $4.40) in the end",
        "80.0 ms, 64.0 ms were predicted (+25%, outside the range)",  # 0.08 / 0.064 = 1.25
        "$3.50 were predicted, +17%",  # 4.10 / 3.50 = 1.171
        "in 2.0 h",
        "something happened",
    ):
        assert words in " ".join(text.split()), text


def test_a_line_has_what_is_known_and_no_more(capsys):
    assert line(RunStatus(phase="queued", run="x")).startswith("x | queued")
    assert "$" not in line(RunStatus(phase="training", run="x"))
    view = LineView()
    view.status(STATUS)
    view.status(STATUS)
    assert len(capsys.readouterr().out.splitlines()) == 1  # the second is less than a minute later


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_the_live_line_fits_its_terminal_and_warns_first(width):
    text = live_line(STATUS, width)
    assert len(text) < width
    assert width < 80 or STATUS.warning in text
