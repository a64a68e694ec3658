"""A launch that is killed at any step loses nothing and starts nothing twice.

`outlay launch` runs in a process of its own that ends itself by SIGKILL at its n-th step: before
and after every commit to the list of runs, every file that is renamed, and before, within and after
every command of a shell. Then it is gone on with. The training script writes a line when it starts.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlay.cli.main import main

WORKLOAD = """\
name = "tiny"
[step]
profile = "resnet50"
batch_size = 32
[length]
iterations = 10
[consider]
bundled = false
[[offer]]
provider = "a friend"
gpu = "RTX 3090"
price_per_hour = 0.6
[run]
command = "echo started >> lines"
engine = "local"
outlay = "none"
"""
GOES_ON_S = 20.0


class Steps:
    """Counts the steps of this process, and kills it at one."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function):
        def stepped(*arguments, **named):
            self.step()
            result = function(*arguments, **named)
            self.step()
            return result

        return stepped

    def install(self) -> None:
        connect, communicate = sqlite3.connect, subprocess.Popen.communicate
        steps = self

        class Connection(sqlite3.Connection):
            def execute(self, statement, *arguments):
                if statement != "COMMIT":
                    return super().execute(statement, *arguments)
                return steps.around(super().execute)(statement)

        sqlite3.connect = lambda *given, **named: connect(*given, factory=Connection, **named)
        Path.replace = self.around(Path.replace)
        subprocess.Popen.communicate = self.around(communicate)
        subprocess.Popen.__init__ = self._before(subprocess.Popen.__init__)

    def _before(self, function):
        def stepped(*arguments, **named):
            self.step()
            return function(*arguments, **named)

        return stepped


def launched_in_a_fork(file: Path, last: int) -> int | None:
    """The exit status of `outlay launch` in a process that dies at a step; None where it died."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            silent = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(silent, number)
            Steps(last).install()
            sys.argv = ["outlay", "launch", str(file), "--yes"]
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
        finally:
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended):
        assert os.WTERMSIG(ended) == signal.SIGKILL
        return None
    return os.waitstatus_to_exitcode(ended)


@pytest.fixture
def place(tmp_path, own_folder, monkeypatch):
    """A workload file, and folders of their own for runs here and there."""
    monkeypatch.setenv("OUTLAY_RUNS", str(tmp_path / "there"))
    monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "tiny.toml").write_text(WORKLOAD)
    return tmp_path


def said(capsys, monkeypatch, *arguments: str) -> str:
    """What a command of this process prints; it ends well."""
    monkeypatch.setattr(sys, "argv", ["outlay", *arguments])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert not ended.value.code, printed.err
    return printed.out


def clean(place: Path) -> None:
    for path in (place / "there", place / "data"):
        subprocess.run(["rm", "-rf", "--", str(path)], check=True)
    (place / "work" / "lines").unlink(missing_ok=True)


def test_killed_at_every_step_then_gone_on_with(place, capsys, monkeypatch):
    file = place / "work" / "tiny.toml"
    last = died = 0
    while True:
        last += 1
        clean(place)
        if launched_in_a_fork(file, last) == 0:
            break
        died += 1
        rows = []
        if last % 2:  # going on at once, or after a look
            rows = json.loads(said(capsys, monkeypatch, "runs", "--json"))["runs"]
        if rows and (last % 4 == 1 or rows[0]["state"] not in ("planned", "submitting")):
            said(capsys, monkeypatch, "launch", "--resume", "last", "--json")
        elif _is_known(place):
            said(capsys, monkeypatch, "runs")
        else:
            said(capsys, monkeypatch, "launch", str(file), "--yes", "--json")
        check_one_run(place, capsys, monkeypatch)
    # A row, a file, seven shells or more: fewer steps would mean that the hook is not in place.
    assert died > 30
    check_one_run(place, capsys, monkeypatch)


def _is_known(place: Path) -> bool:
    """Whether the submission was written down as done: to launch again means another run then."""
    path = place / "data" / "runs.sqlite"
    if not path.exists() or not path.stat().st_size:
        return False
    connection = sqlite3.connect(path)
    try:
        states = connection.execute("SELECT state FROM runs").fetchall()
    except sqlite3.OperationalError:  # killed before its tables were there
        states = []
    finally:
        connection.close()
    return any(state not in ("planned", "submitting") for (state,) in states)


def check_one_run(place: Path, capsys, monkeypatch) -> None:
    """One row, one folder here and there, one start, and nothing half-written."""
    ends_s = time.monotonic() + GOES_ON_S
    while True:
        rows = json.loads(said(capsys, monkeypatch, "runs", "--json"))["runs"]
        assert len(rows) == 1
        if rows[0]["state"] == "done" or time.monotonic() > ends_s:
            break
        time.sleep(0.02)
    assert rows[0]["state"] == "done"
    assert (place / "work" / "lines").read_text() == "started\n"
    assert [path.name for path in (place / "there").iterdir()] == [rows[0]["run"]]
    assert [path.name for path in (place / "data" / "runs").iterdir()] == [rows[0]["run"]]
    assert not list((place / "there").rglob("*.part"))
    assert not list((place / "data").rglob("*.part"))


SITE = """\
import os
from tests.run.test_killed_launch import Steps
Steps(int(os.environ["OUTLAY_TEST_LAST_STEP"])).install()
"""


def test_the_program_itself_killed_once_the_run_has_started(place, root, capsys, monkeypatch):
    site = place / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    path = os.pathsep.join((str(site), str(root), str(root / "src")))
    command = [sys.executable, "-m", "outlay.cli.main", "launch", "work/tiny.toml", "--yes"]
    last = 24
    while not (place / "work" / "lines").exists():  # the last step before is found by trying
        last += 3
        clean(place)
        variables = {**os.environ, "PYTHONPATH": path, "OUTLAY_TEST_LAST_STEP": str(last)}
        done = subprocess.run(
            command, cwd=place, env=variables, capture_output=True, timeout=60, check=False
        )
        time.sleep(0.2)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    said(capsys, monkeypatch, "runs")
    said(capsys, monkeypatch, "launch", "--resume", "last", "--json")
    check_one_run(place, capsys, monkeypatch)
