"""Ways into a training process that go around what outlay puts into a command's environment."""

from __future__ import annotations

import os

import pytest
from tests.measured import a_measurement
from tests.probe.made import steps
from tests.probe.probed import PYTHON, SCRIPTS, probe
from tests.probe.proc_tree import FakeKernel

from outlay.probe.agent.channel import FileChannel
from outlay.probe.agent.children import Environment
from outlay.probe.agent.protocol import FOLDER_VARIABLE, TorchImported
from outlay.probe.messages import Listener, other_training
from outlay.probe.processes import unwatched_process
from outlay.probe.summary import notes_on_missing

INJECT = "/somewhere/inject"


@pytest.mark.torch
def test_a_script_that_starts_itself_in_another_folder_with_an_environment_of_its_own(tmp_path):
    command = ("--", PYTHON, SCRIPTS / "respawns.py", "clock.json")
    probed = probe(tmp_path, "--steps", 40, "--no-operations", *command)
    measurement = probed.measurement
    assert (probed.code, measurement.ending, measurement.status) == (0, "stopped", 0)
    assert (measurement.samples_per_step, measurement.steps_per_epoch) == (8, 80)  # of 640
    assert probed.step.mean_s == pytest.approx(probed.own_mean_s(), rel=0.02)


@pytest.mark.torch
def test_a_script_that_becomes_another_program_keeps_its_last_steps(tmp_path):
    command = ("--", PYTHON, SCRIPTS / "becomes.py", "clock.json")
    probed = probe(tmp_path, "--to-end", *command)
    measurement = probed.measurement
    assert (probed.code, measurement.ending, measurement.status) == (3, "failed", 3)
    assert probed.out == "exported\n"
    # 40 steps, then 30 by the program that took its place: those are what is measured.
    assert measurement.steps_seen == 30
    assert any("40 optimizer steps" in note for note in measurement.notes)


@pytest.mark.torch
def test_a_shell_script_with_a_path_of_its_own_is_told_at_once_what_to_write(tmp_path):
    (tmp_path / "train.sh").write_text(
        f"PYTHONPATH={SCRIPTS} {PYTHON} {SCRIPTS / 'lean.py'} clock.json 0 - 250\n"
    )
    probed = probe(tmp_path, "--", "bash", "train.sh")
    assert (probed.code, probed.measurement.steps_seen) == (0, 0)
    assert probed.out == "trained to the end\n"
    told = " ".join(probed.err.split("No training step")[0].split())
    assert "outlay: Process " in told
    assert "is not watched" in told
    assert f"write PYTHONPATH={SCRIPTS}:$PYTHONPATH" in told
    assert any(f"write PYTHONPATH={SCRIPTS}:$PYTHONPATH" in n for n in probed.measurement.notes)


# Processes that cannot be watched


@pytest.fixture
def kernel(tmp_path):
    return FakeKernel(tmp_path)


def unwatched(kernel, *command, libraries="/lib/libtorch_cpu.so", **environment):
    kernel.write("7/cmdline", "".join(f"{word}\0" for word in command))
    kernel.write("7/environ", "".join(f"{name}={v}\0" for name, v in environment.items()))
    kernel.write("7/maps", f"7f00-7f01 r-xp 00000000 00:00 0 {libraries}\n")
    return unwatched_process(7, INJECT, proc=str(kernel.roots.proc))


WATCHED = {FOLDER_VARIABLE: "/tmp/p", "PYTHONPATH": f"{INJECT}:/lib"}


@pytest.mark.parametrize("options", [("-I",), ("-B", "-E"), ("-W", "error", "-sS"), ("-uIm", "x")])
def test_options_of_python_that_keep_outlay_out_are_named(kernel, options):
    process = unwatched(kernel, "python", *options, "train.py", **WATCHED)
    assert process is not None
    assert options[-2 if "x" in options else -1] in process.reason
    assert process.name.startswith("Process 7 (python -")


@pytest.mark.parametrize(
    "command", [("-u", "train.py", "-I"), ("-m", "train", "-S"), ("-X", "importtime", "t.py")]
)
def test_options_of_the_script_itself_keep_nothing_out(kernel, command):
    assert unwatched(kernel, "python", *command, **WATCHED) is None


def test_environments_without_ours_are_named(kernel):
    assert "environment of its own" in unwatched(kernel, "python", "t.py", HOME="/").reason
    own = unwatched(kernel, "python", "t.py", **{**WATCHED, "PYTHONPATH": ".:src"})
    assert "PYTHONPATH=.:src:$PYTHONPATH" in own.reason


def test_programs_without_torch_are_none_of_ours(kernel):
    assert unwatched(kernel, "bash", "train.sh", libraries="/lib/libc.so", HOME="/") is None


# Environments that launchers make


def test_an_environment_gets_what_it_lacks_and_nothing_else():
    environment = Environment(INJECT, "/tmp/p")
    own = {"PATH": "/bin", "PYTHONPATH": "src:lib"}
    assert environment.completed(own) == {
        "PATH": "/bin",
        "PYTHONPATH": f"{INJECT}:src:lib",
        FOLDER_VARIABLE: "/tmp/p",
    }
    assert own == {"PATH": "/bin", "PYTHONPATH": "src:lib"}
    assert environment.completed({})["PYTHONPATH"] == INJECT
    assert environment.completed(WATCHED) is WATCHED
    # That of a probe within this one stays as it is.
    within = {**WATCHED, FOLDER_VARIABLE: "/tmp/other", "PYTHONPATH": ""}
    assert environment.completed(within)[FOLDER_VARIABLE] == "/tmp/other"


# Programs that follow each other in one process


def test_programs_that_follow_each_other_in_one_process_are_told_apart(tmp_path):
    listener = Listener(tmp_path)
    for count, each_s in ((60, 0.1), (30, 0.2)):
        channel = FileChannel(str(tmp_path))
        channel.report(TorchImported(version="2"))
        for values in steps([0] * count, each_s, cpu_s=0.0):
            later_s = 0.0 if count == 60 else 1000.0
            channel.write_step((*values[:2], values[2] + later_s, *values[3:]))
        channel.flush()
    listener.read()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{os.getpid()}-1.lines",
        f"{os.getpid()}.lines",
    ]
    (last,) = listener.training_logs
    assert last.last_step == len(last.table) == 30
    (before,) = other_training([last], listener.all_logs)
    assert before.last_step == 60
    for timed, words in ((last, "Before it"), (before, "After it")):
        (note,) = notes_on_missing(a_measurement(), [timed], listener.all_logs, None)
        assert note.startswith(f"{words} another process of the command trained (")


def test_an_environment_that_is_given_without_its_name_is_left_alone(monkeypatch):
    import subprocess

    class Started(Exception):
        pass

    def __init__(popen, *args, **kwargs):  # noqa: N807
        raise Started(args, kwargs)

    monkeypatch.setattr(subprocess.Popen, "__init__", __init__)
    monkeypatch.setattr(os, "execve", os.execve)
    Environment(INJECT, "/tmp/p").install()
    with pytest.raises(Started) as started:
        subprocess.Popen(["x"], env={"PATH": "/bin"})
    assert started.value.args[1]["env"]["PYTHONPATH"] == INJECT
    ten = (["x"], -1, None, None, None, None, None, True, False, None)
    with pytest.raises(Started) as started:
        subprocess.Popen(*ten, {"PATH": "/bin"})
    assert started.value.args == ((*ten, {"PATH": "/bin"}), {})
