"""Nothing that can fail stands between a run that was paid for and its file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.measured import STEP, a_measurement
from tests.probe.made import a_log, table
from tests.probe.probed import PYTHON, environment
from tests.probe.test_summary import NoSampler, a_context

import outlay.cli.probe
import outlay.probe.runner
import outlay.probe.saving
import outlay.probe.summary
from outlay.cli.main import main
from outlay.errors import OutlayError
from outlay.measurement.file import read_measurement
from outlay.probe.guard import Guard
from outlay.probe.runner import ProbeRequest, noted_signals, probe_command
from outlay.probe.saving import save_measurement
from outlay.probe.steps import StepStatistics
from outlay.probe.summary import measurement_of

linux = pytest.mark.skipif(sys.platform != "linux", reason="has Linux's signals and files")
EXITS = (PYTHON, "-c", "import sys; sys.exit(3)")


def fail(*_, **__):
    raise KeyError("of ours")


def test_a_part_that_fails_is_noted_once_and_costs_nothing_else():
    guard = Guard()
    assert guard.value("power", lambda: 3, None) == 3
    assert [guard.value("memory", fail, 0) for _ in range(2)] == [0, 0]
    assert guard.values({"a": ("one", lambda: 1), "b": ("two", fail)}) == {"a": 1}
    assert (guard.do("three", list), guard.do("four", fail)) == (True, False)
    assert guard.notes == [
        f"Left out, for an error of outlay's own (KeyError: 'of ours'): {part}."
        for part in ("memory", "two", "four")
    ]


# A measurement put together

PARTS = (
    *("this_machine", "_gpus", "_versions", "_is_compiled", "_optimizers", "_step_times"),
    *("pauses_with_late", "epoch_of", "measured_memory", "_power", "_gpu_fraction", "_busy_s"),
    *("step_size", "recorded_profile", "notes_on_missing", "notes_on_step_time", "add_diagnosis"),
    "notes_on_first_evaluation",
)


@pytest.mark.parametrize("part", PARTS)
def test_each_part_of_a_measurement_fails_alone(monkeypatch, part):
    monkeypatch.setattr(outlay.probe.summary, part, fail)
    logs = [a_log(table=table([0] * 20))]
    statistics = StepStatistics(step=STEP, steps_seen=100, per_step=(1.0,), skipped=(0,))
    measurement = measurement_of(statistics, logs, logs, NoSampler(), a_context())
    assert (measurement.step, measurement.steps_seen) == (STEP, 100)
    assert any("for an error of outlay's own" in note for note in measurement.notes)


def test_a_sampler_that_fails_costs_its_samples(tmp_path):
    class Broken(NoSampler):
        samples = property(fail)
        describe_gpus = energy_j = fail

    statistics = StepStatistics(step=STEP, steps_seen=100, per_step=(1.0,), skipped=(0,))
    measurement = measurement_of(statistics, [], [], Broken(), a_context())
    assert (measurement.step, measurement.samples) == (STEP, ())
    saved = save_measurement(measurement, tmp_path / "probe.json", keep=False)
    assert read_measurement(saved.path) == measurement


# A command that runs


@pytest.mark.parametrize("part", ["steps_of", "measurement_of", "tracker_figures"])
def test_an_error_of_ours_neither_ends_the_command_nor_hides_its_status(
    monkeypatch, tmp_path, part
):
    monkeypatch.setattr(outlay.probe.runner, part, fail)
    monkeypatch.setattr(outlay.probe.runner.Listener, "training_logs", [a_log()])
    command = (PYTHON, "-c", "import sys, time; time.sleep(1); sys.exit(3)")
    measurement = probe_command(ProbeRequest(command=command, log=tmp_path / "log"))
    assert (measurement.status, measurement.ending) == (3, "failed")
    assert measurement.elapsed_s > 1
    is_noted = any("for an error of outlay's own" in note for note in measurement.notes)
    assert is_noted is (part != "tracker_figures")


def test_output_that_cannot_be_passed_on_ends_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(outlay.probe.runner.Relay, "pass_on", fail)
    measurement = probe_command(ProbeRequest(command=EXITS, log=tmp_path / "log"))
    assert measurement.status == 3
    assert any("some of its output" in note for note in measurement.notes)


# Its file


@pytest.fixture
def probed(tmp_path, monkeypatch, capfd):
    """`outlay probe` in this process: its status, and what was said."""

    def run(*command):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("OUTLAY_DATA", str(tmp_path / "own"))
        arguments = ["outlay", "probe", "--json", "out/probe.json", "--", *command]
        monkeypatch.setattr(sys, "argv", arguments)
        (tmp_path / "out").mkdir()
        with pytest.raises(SystemExit) as gone:
            main()
        return gone.value.code, capfd.readouterr().err

    return run


@pytest.mark.parametrize(
    ("owner", "part"),
    [("outlay.report.probe", "print_probe"), ("outlay.cli.probe", "_say_before")],
)
def test_the_file_is_written_before_anything_is_shown(probed, tmp_path, monkeypatch, owner, part):
    monkeypatch.setattr(f"{owner}.{part}", fail)
    status, words = probed(*EXITS)
    assert status == 3
    assert read_measurement(tmp_path / "out/probe.json").status == 3
    assert "for an error of outlay's own (KeyError: 'of ours')" in words


def test_a_folder_that_vanished_meanwhile(probed, tmp_path):
    """The measurement is kept elsewhere, and that is said; the command's status stays its own."""
    status, words = probed("sh", "-c", "rm -r out; exit 3")
    assert status == 3
    saved = tmp_path / "own/measurements/outlay-probe.json"
    assert read_measurement(saved).status == 3
    assert str(saved) in "".join(words.split("\n"))


def test_where_nothing_can_be_written_it_is_printed(probed, tmp_path, monkeypatch):
    def full(path, _):
        raise OutlayError(f"{path} cannot be written: No space left on device.")

    monkeypatch.setattr(outlay.probe.saving, "write_whole", full)
    status, words = probed(PYTHON, "-c", "")
    assert status == 1
    assert "It could not be saved elsewhere either." in " ".join(words.split())
    assert '"kind": "outlay measurement"' in words
    assert not (tmp_path / "out/probe.json").exists()


def test_without_a_home_there_are_other_places(tmp_path, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(outlay.probe.saving, "measurements_folder", no_home)
    monkeypatch.setattr(outlay.probe.saving.tempfile, "gettempdir", lambda: str(tmp_path))
    saved = save_measurement(a_measurement(), tmp_path / "gone/probe.json", keep=True)
    assert saved.path == str(tmp_path / "outlay-probe.json")
    assert read_measurement(saved.path).step == STEP


def test_operations_that_cannot_be_written_are_left_out(tmp_path, monkeypatch):
    original = outlay.probe.saving.text_of
    monkeypatch.setattr(
        outlay.probe.saving, "text_of", lambda m: fail() if m.profile is not None else original(m)
    )
    saved = save_measurement(a_measurement(), tmp_path / "probe.json", keep=False)
    measurement = read_measurement(saved.path)
    assert (measurement.step, measurement.profile) == (STEP, None)
    assert "the operations of a step" in measurement.notes[-1]


@linux
def test_signals_wait_until_it_is_written():
    noted = []
    with noted_signals(noted):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
    assert noted == [signal.SIGINT]


WITHOUT_METADATA = """
import importlib.metadata, sys
def missing(name, *_):
    raise importlib.metadata.PackageNotFoundError(name)
importlib.metadata.version = importlib.metadata.distribution = missing
importlib.metadata.metadata = missing
from outlay.cli.main import main
main()
"""


@linux
def test_a_checkout_without_metadata_whose_terminal_is_gone(tmp_path):
    """Nobody reads what is said; the file is there, and the status is the command's."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [PYTHON, "-c", WITHOUT_METADATA, "probe", "--json", "probe.json", "--", *EXITS],
        cwd=tmp_path,
        env=environment(OUTLAY_DATA=str(tmp_path / "own")),
        stdout=write_end,
        stderr=write_end,
        check=False,
    )
    os.close(write_end)
    assert done.returncode == 3
    assert read_measurement(tmp_path / "probe.json").status == 3
