"""Where a probe's findings go if they cannot go where they should, or should not."""

from __future__ import annotations

import json
import sys

import pytest
from tests.measured import a_measurement
from tests.probe.probed import PYTHON, SCRIPTS, ended, start

from outlay.measurement.file import read_measurement, write_measurement

needs_torch = pytest.mark.torch
linux = pytest.mark.skipif(sys.platform != "linux", reason="writes to Linux's /dev/full")
WITHOUT_TORCH = ("--", PYTHON, "-c", "print('done')")


@linux
def test_what_is_saved_elsewhere_replaces_nothing(tmp_path):
    for _ in range(2):
        ended(start(tmp_path, "--json", "/dev/full", *WITHOUT_TORCH), tmp_path)
    folder = tmp_path / "own" / "measurements"
    assert sorted(path.name for path in folder.iterdir()) == [
        "outlay-probe-2.json",
        "outlay-probe.json",
    ]


@linux
def test_what_is_not_to_be_kept_is_saved_outside_of_the_own_data(tmp_path):
    other = tmp_path / "temporary"
    other.mkdir()
    options = ("--no-keep", "--json", "/dev/full")
    process = start(tmp_path, *options, *WITHOUT_TORCH, TMPDIR=str(other))
    probed = ended(process, tmp_path)
    assert str(other / "outlay-probe.json") in "".join(probed.err.split("\n"))
    assert not (tmp_path / "own" / "measurements").exists()


def test_a_probe_without_a_step_replaces_no_measurement_with_one(tmp_path):
    path = tmp_path / "probe.json"
    write_measurement(a_measurement(), path)
    before = path.read_bytes()
    probed = ended(start(tmp_path, "--json", path, *WITHOUT_TORCH), tmp_path)
    assert path.read_bytes() == before
    assert read_measurement(tmp_path / "probe-2.json").step is None
    output = "".join(probed.err.split("\n"))
    assert f"{path} has a step time and is kept" in output
    assert output.count("probe-2.json") == 1


@needs_torch
@linux
def test_a_search_that_cannot_be_written_is_shown_and_saved_elsewhere(tmp_path):
    command = (PYTHON, SCRIPTS / "runs_out.py", "raise", "100", "--batch-size", "{b}")
    options = ("--find-batch", "b", "--largest", "8", "--steps", "6", "--json", "/dev/full")
    other = tmp_path / "temporary"
    other.mkdir()
    process = start(tmp_path, *options, "--", *command, TMPDIR=str(other))
    probed = ended(process, tmp_path)
    assert probed.code == 1
    assert "Take batch 8" in probed.err
    assert "/dev/full cannot be written" in probed.err
    assert json.loads((other / "outlay-probe.json").read_bytes())["largest"] == 8
