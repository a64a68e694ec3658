"""What goes wrong under `outlay probe`: what was seen is told, and the status passed on.

Where the script dies, its steps of the last tenth of a second may not have been told: of 31 steps
of 8 ms at least 12 have been.
"""

from __future__ import annotations

import ast
import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest
from tests.probe.probed import (
    PYTHON,
    ROOT,
    SCRIPTS,
    end,
    ended,
    environment,
    is_alive,
    probe,
    probe_script,
    start,
    wait_for,
)

import outlay.probe.runner
from outlay.measurement.file import read_measurement
from outlay.probe.runner import ProbeRequest
from outlay.probe.stages import ProbeLimits, ProbeStages
from outlay.probe.steps import StepStatistics

needs_torch = pytest.mark.torch
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
TRAIN = (PYTHON, SCRIPTS / "faulty.py", "clock.json")
WITHOUT_TORCH = ("--", PYTHON, "-c", "print('done')")
PLAINLY = ("--steps", 10**6, "--no-operations")


# Scripts that end in a bad way


@needs_torch
@pytest.mark.parametrize(
    ("fault", "status", "ending"),
    [
        ("raises", 1, "failed"),
        ("exits", 7, "failed"),
        ("vanishes", 5, "failed"),
        ("killed", 128 + 9, "killed"),
    ],
)
def test_its_status_is_passed_on(tmp_path, fault, status, ending):
    probed = probe_script(tmp_path, "faulty.py", fault, options=PLAINLY)
    measurement = probed.measurement
    assert (probed.code, measurement.status, measurement.ending) == (status, status, ending)
    assert 12 <= measurement.steps_seen <= 31
    assert probed.step.mean_s > 0.008
    assert ("the loss went through the roof" in probed.err) is (fault == "raises")
    if fault in ("raises", "exits"):  # Python ended it: all was told
        assert measurement.steps_seen == 31 == len(probed.own_s())


@needs_torch
@linux
def test_what_a_script_leaves_behind_is_cleared_away(tmp_path):
    probed = probe_script(tmp_path, "faulty.py", "leaves", options=PLAINLY)
    assert (probed.code, probed.measurement.ending) == (0, "finished")
    left = [int(line) for line in (tmp_path / "left").read_text().split()]
    assert len(left) == 2
    wait_for(lambda: not any(map(is_alive, left)), 10)


@needs_torch
def test_a_script_that_catches_everything_and_trains_on(tmp_path):
    options = ("--steps", 30, "--no-operations")
    probed = probe_script(tmp_path, "faulty.py", "catches", options=options)
    assert (probed.code, probed.measurement.ending) == (0, "stopped")
    # It is asked to leave at its next five steps, and then has to.
    assert (tmp_path / "caught").read_text() == "x" * 5


@needs_torch
@pytest.mark.parametrize(
    ("fault", "output"),
    [
        pytest.param("thread", "the thread has ended\n", id="the main one waits"),
        pytest.param("thread alone", "", id="the main one is done"),
    ],
)
def test_training_in_a_thread(tmp_path, fault, output):
    """The main thread ends with it, by way of its `finally`: it must not keep half a model."""
    options = ("--steps", 30, "--no-operations")
    probed = probe_script(tmp_path, "faulty.py", fault, options=options)
    assert (probed.code, probed.measurement.ending) == (0, "stopped")
    assert probed.out == output
    assert "SystemExit" not in probed.err
    assert "Traceback" not in probed.err
    assert probed.step.mean_s == pytest.approx(probed.own_mean_s(), rel=0.02)


@needs_torch
def test_torch_without_a_step(tmp_path):
    probed = probe_script(tmp_path, "faulty.py", "no steps", options=PLAINLY)
    assert (probed.code, probed.measurement.ending) == (0, "finished")
    assert probed.measurement.steps_seen == 0
    assert any("no optimizer made a step" in note for note in probed.measurement.notes)
    assert "No training step seen" in probed.err


@needs_torch
@linux
def test_a_loader_that_hangs(tmp_path, monkeypatch):
    """After the time asked for it is given a while to make its next step, and then ended."""
    monkeypatch.setattr(outlay.probe.runner, "STUCK_S", 1.0)
    monkeypatch.setattr(outlay.probe.runner, "GRACE_S", 0.5)
    monkeypatch.chdir(tmp_path)
    measurement = outlay.probe.runner.probe_command(
        ProbeRequest(
            command=tuple(map(str, (*TRAIN, "hangs"))),
            limits=ProbeLimits(duration_s=1.0, operations=False),
            log=tmp_path / "log",
        )
    )
    assert (measurement.ending, measurement.status) == ("stopped", 0)
    assert 12 <= measurement.steps_seen <= 30  # the last ones are told when there is one more
    assert measurement.batch_size == 1
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_command_that_never_steps_has_its_time_and_ten_minutes_more():
    stages = ProbeStages(ProbeLimits(duration_s=3.0))
    assert stages.advance(StepStatistics(), [], 602.0).stop_at == 0
    assert (
        stages.advance(StepStatistics(), [], 603.5).stop_at == 1
    )  # its first step would be its last


# Signals


@pytest.fixture
def training(tmp_path):
    """A probe whose script has made a few steps, and the script's process."""
    process = start(tmp_path, "--json", "probe.json", *PLAINLY, "--", *TRAIN, "goes on")
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    pid = int((tmp_path / "pid").read_text())
    time.sleep(0.7)  # some 80 steps
    yield process, pid
    end(pid)
    if process.poll() is None:
        process.kill()
        process.wait()


@needs_torch
@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_outlay_are_passed_on(tmp_path, training, number):
    process, pid = training
    process.send_signal(number)
    probed = ended(process, tmp_path, 30)
    measurement = probed.measurement
    # SIGINT becomes a KeyboardInterrupt, after which Python ends itself by the same signal.
    assert (probed.code, measurement.status, measurement.ending) == (
        128 + number,
        128 + number,
        "interrupted",
    )
    assert measurement.steps_seen > 10
    assert ("KeyboardInterrupt" in probed.err) is (number == signal.SIGINT)
    assert not is_alive(pid)


@needs_torch
@linux
def test_a_script_that_makes_something_else_of_the_signal_and_is_stopped_later(tmp_path):
    """It was outlay that ended it, not the user."""
    script = tmp_path / "shrugs.py"
    script.write_text(
        "import signal, sys, runpy\n"
        "signal.signal(signal.SIGINT, lambda *_: print('caught', flush=True))\n"
        f"sys.argv = ['faulty.py', 'clock.json', 'goes on']; sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "runpy.run_path(sys.path[0] + '/faulty.py', run_name='__main__')\n"
    )
    options = ("--json", "probe.json", "--for", "3s", "--no-operations")
    process = start(tmp_path, *options, "--", PYTHON, script)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    probed = ended(process, tmp_path, 60)
    measurement = probed.measurement
    assert probed.out == "caught\n"
    assert (probed.code, measurement.ending, measurement.stopped_for) == (0, "stopped", "time")


@needs_torch
@linux
def test_a_script_that_is_terminated_from_outside(tmp_path, training):
    process, pid = training
    os.kill(pid, signal.SIGTERM)
    probed = ended(process, tmp_path, 30)
    assert (probed.code, probed.measurement.ending) == (128 + signal.SIGTERM, "killed")
    assert probed.measurement.steps_seen > 10


@needs_torch
@linux
def test_when_outlay_is_killed_the_script_ends_by_itself(tmp_path, training):
    process, pid = training
    process.kill()
    # Not waited for: a process that is dead but still has its number is gone all the same.
    wait_for(lambda: not is_alive(pid), 15)
    assert json.loads((tmp_path / "clock.json").read_text())  # through its exit handlers
    process.wait()


# Commands that cannot be started, or are none of Python's


def test_a_high_status_is_no_signal(tmp_path):
    probed = probe(tmp_path, "--", "sh", "-c", "exit 255")
    assert (probed.code, probed.measurement.ending) == (255, "failed")


def test_a_shell_tells_of_a_signal_by_its_status(tmp_path):
    probed = probe(tmp_path, "--", "sh", "-c", "exit 137")
    assert (probed.code, probed.measurement.ending) == (137, "killed")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("no-such-command", "There is no command 'no-such-command'"),
        ("./plain", "cannot be started"),
    ],
)
def test_what_cannot_be_started(tmp_path, command, words):
    (tmp_path / "plain").write_text("not executable")
    probed = ended(start(tmp_path, "--json", "probe.json", "--", command), tmp_path)
    assert probed.code == 2
    assert words in probed.err
    assert not (tmp_path / "probe.json").exists()


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        (("python train.py --epochs 3",), "outlay probe -- python train.py --epochs 3"),
        (("train.py", "--name", "a b"), "outlay probe -- python train.py --name 'a b'"),
        (("./train.py",), "outlay probe -- python ./train.py"),
        (("./train.sh", "-x"), "outlay probe -- bash ./train.sh -x"),
        (("it's",), "for example: outlay probe -- python train.py"),
    ],
)
def test_what_was_probably_meant(tmp_path, command, meant):
    for name in ("train.py", "train.sh"):
        (tmp_path / name).write_text("")
    probed = ended(start(tmp_path, "--", *command), tmp_path)
    assert probed.code == 2
    assert probed.err.endswith(f"{meant}\n")


# Standard error


@linux
@pytest.mark.parametrize("closed", ["2>&-", "2>&- >&-", "2>&- <&-"])
def test_without_standard_error(tmp_path, closed):
    """Ours is lost, the script runs to its end, and its status is passed on."""
    script = "import sys; sys.stderr.write('x'); open('done', 'w').close(); sys.exit(3)"
    command = [PYTHON, "-m", "outlay", "probe", "--json", "probe.json", "--", PYTHON, "-c", script]
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        cwd=tmp_path,
        env=environment(OUTLAY_DATA=str(tmp_path / "own")),
        check=False,
    )
    assert done.returncode == 3
    assert (tmp_path / "done").read_bytes() == b""  # nothing else got its number
    assert read_measurement(tmp_path / "probe.json").status == 3


def test_the_report_begins_a_line_of_its_own(tmp_path):
    script = "import sys; sys.stderr.write('no end of line')"
    probed = probe(tmp_path, "--", PYTHON, "-c", script)
    assert probed.err.startswith("no end of line\nNo training step seen")


@pytest.mark.parametrize("option", ["-I", "-S", "-E"])
def test_where_the_agent_is_not_loaded(tmp_path, option):
    script = "import sys; print(sorted(name for name in sys.modules if 'outlay' in name))"
    probed = probe(tmp_path, "--", PYTHON, option, "-c", script)
    assert (probed.code, probed.out) == (0, "[]\n")
    assert any(option in note for note in probed.measurement.notes)


# Disks


@pytest.mark.parametrize(
    ("place", "why"),
    [("/dev/full", "No space left on device"), ("/proc/probe.json", "No such file or directory")],
)
@linux
def test_a_file_that_cannot_be_written_in_the_end(tmp_path, place, why):
    """It is saved elsewhere, and that is said."""
    probed = ended(start(tmp_path, "--json", place, *WITHOUT_TORCH), tmp_path)
    assert probed.code == 1
    assert f"{place} cannot be written: {why}" in probed.err
    saved = tmp_path / "own" / "measurements" / "outlay-probe.json"
    assert str(saved) in "".join(probed.err.split("\n"))
    assert read_measurement(saved).ending == "finished"


@needs_torch
@linux
def test_the_report_names_the_file_that_was_written(tmp_path):
    command = (PYTHON, SCRIPTS / "faulty.py", "clock.json", "exits")
    probed = ended(start(tmp_path, "--json", "/dev/full", *PLAINLY, "--", *command), tmp_path)
    output = "".join(probed.err.split())
    saved = tmp_path / "own" / "measurements" / "outlay-probe.json"
    assert f"--measured{saved}" in output
    assert "--measured/dev/full" not in output


@needs_torch
@linux
def test_a_copy_that_cannot_be_kept(tmp_path):
    own = tmp_path / "file"
    own.write_text("no folder")
    command = (PYTHON, SCRIPTS / "faulty.py", "clock.json", "exits")
    process = subprocess.run(
        [*map(str, (PYTHON, "-m", "outlay", "probe", *PLAINLY, "--", *command))],
        cwd=tmp_path,
        env=environment(OUTLAY_DATA=str(own)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 7
    (line,) = (line for line in process.stderr.splitlines() if line.startswith("outlay: "))
    assert line.startswith("outlay: No copy of the measurement was kept to learn from: ")
    assert str(own) in line


def test_no_room_in_the_folder_for_temporary_files(tmp_path):
    def nothing_may_be_written():
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(
        [PYTHON, "-m", "outlay", "probe", "--", PYTHON, "-c", "open('started', 'w')"],
        cwd=tmp_path,
        env=environment(OUTLAY_DATA=str(tmp_path / "own")),
        capture_output=True,
        text=True,
        preexec_fn=nothing_may_be_written,
        check=False,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "TMPDIR" in done.stderr
    assert not (tmp_path / "started").exists()


def test_a_folder_for_temporary_files_that_is_not_there(tmp_path):
    probed = probe(tmp_path, *WITHOUT_TORCH, TMPDIR=str(tmp_path / "missing"))
    assert (probed.code, probed.out) == (0, "done\n")


@needs_torch
def test_a_disk_that_fills_up_meanwhile(tmp_path):
    """The script does not notice; what could not be told is not there."""
    script = tmp_path / "fills.py"
    script.write_text(
        "import resource, signal, sys, os\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        f"sys.argv = ['faulty.py', os.devnull, 'exits']; sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import runpy; runpy.run_path(sys.path[0] + '/faulty.py', run_name='__main__')\n"
    )
    probed = probe(tmp_path, *PLAINLY, "--", PYTHON, script)
    assert probed.code == 7
    assert 1 <= probed.measurement.steps_seen < 31


# Several at once, and other Pythons


def test_two_probes_at_the_same_time(tmp_path):
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    both = [start(folder, "--json", "probe.json", *WITHOUT_TORCH) for folder in folders]
    for process, folder in zip(both, folders, strict=True):
        probed = ended(process, folder)
        assert (probed.code, probed.out) == (0, "done\n")
        assert probed.measurement.ending == "finished"


AGENT = sorted(
    path for part in ("agent", "inject") for path in (ROOT / "src/outlay/probe" / part).glob("*.py")
)


@pytest.mark.parametrize("path", AGENT, ids=lambda path: path.name)
def test_the_agent_runs_in_older_pythons(path):
    """In the grammar of Python 3.9, and with nothing that the script's Python may lack."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert not any(isinstance(node, ast.Match) for node in ast.walk(tree))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    assert imported <= set(sys.stdlib_module_names)
    assert "slots=True" not in path.read_text()  # dataclasses learnt it in 3.10
