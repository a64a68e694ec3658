"""The user's own folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.measured import a_bare_measurement

from outlay.errors import InputError, OutlayError
from outlay.ledger.kept_measurements import (
    calibration_file,
    data_folder,
    forget_calibration,
    forget_measurements,
    keep_measurement,
    learned_calibration,
    measurements_folder,
    own_measurements,
    write_calibration,
)
from outlay.predict.evidence import NOTHING_LEARNED, LearnedCalibration, LearnedFactor

FACTOR = LearnedFactor(
    name="T4", measurements=2, mean_ratio=1.2, factor=1.1, error_before=0.2, error=0.1
)


@pytest.mark.parametrize(
    ("environment", "system", "folder"),
    [
        ({"OUTLAY_DATA": "/x", "XDG_DATA_HOME": "/y", "HOME": "/h"}, "linux", "/x"),
        ({"XDG_DATA_HOME": "/y", "HOME": "/h"}, "linux", "/y/outlay"),
        ({"HOME": "/h"}, "linux", "/h/.local/share/outlay"),
        ({"HOME": "/h"}, "darwin", "/h/Library/Application Support/outlay"),
        ({"HOME": "/h", "LOCALAPPDATA": "/l"}, "win32", "/l/outlay"),
        ({"HOME": "/h"}, "win32", "/h/AppData/Local/outlay"),
    ],
)
def test_where_it_is(environment, system, folder):
    assert data_folder(environment, system) == Path(folder)


def test_tests_have_one_of_their_own(own_folder):
    assert data_folder() == own_folder


def test_measurements_are_kept_and_found():
    first, second = a_bare_measurement(0.2), a_bare_measurement(0.3)
    assert own_measurements(pytest.fail) == []
    keep_measurement(first, "probe")
    assert keep_measurement(first, "probe").name == "probe.json"  # the same one again
    assert keep_measurement(first, "other").name == "probe.json"  # under another name, too
    assert keep_measurement(second, "probe").name == "probe-2.json"
    found = own_measurements(pytest.fail)
    assert [name for name, _ in found] == ["probe-2.json", "probe.json"]
    assert {one.step.mean_s for _, one in found} == {0.2, 0.3}


def test_a_measurement_that_cannot_be_read_is_named_and_left_out():
    keep_measurement(a_bare_measurement(), "good")
    (measurements_folder() / "bad.json").write_text("{")
    said = []
    assert [name for name, _ in own_measurements(said.append)] == ["good.json"]
    assert len(said) == 1
    assert "bad.json" in said[0]


def test_what_was_learned_is_read_as_written():
    learned = LearnedCalibration(gpus=(FACTOR,), host=FACTOR, hosts=(FACTOR,))
    assert learned_calibration(pytest.fail) == NOTHING_LEARNED
    assert write_calibration(learned) == calibration_file()
    assert learned_calibration(pytest.fail) == learned


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        json.dumps({"kind": "outlay calibration", "schema": 9}),
        json.dumps({"kind": "outlay calibration", "schema": 1, "gpus": [], "host": None}),
        json.dumps({"kind": "outlay calibration", "schema": 2, "gpus": [{"name": 3}]}),
    ],
)
def test_a_calibration_that_cannot_be_used_is_warned_of_once(text):
    calibration_file().write_text(text)
    said = []
    assert learned_calibration(said.append) == NOTHING_LEARNED
    assert len(said) == 1
    assert str(calibration_file()) in said[0]


def test_only_files_are_measurements():
    keep_measurement(a_bare_measurement(0.2), "b")
    for name in ("a.json", "c.json"):
        (measurements_folder() / name).mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(measurements_folder() / "pipe.json")
    assert [name for name, _ in own_measurements(pytest.fail)] == ["b.json"]
    assert [path.name for path in forget_measurements(["all"])] == ["b.json"]
    assert (measurements_folder() / "a.json").is_dir()


def test_a_link_that_leads_nowhere_is_told_of_and_can_be_forgotten():
    folder = measurements_folder()
    folder.mkdir(parents=True)
    (folder / "gone.json").symlink_to(folder / "nothing.json")
    told = []
    assert own_measurements(told.append) == []
    assert told == [f"There is no measurement {folder / 'gone.json'}. It is left out."]
    assert len(forget_measurements(["all"])) == 1
    assert not (folder / "gone.json").is_symlink()


def test_what_cannot_be_removed_is_named(monkeypatch):
    kept = keep_measurement(a_bare_measurement(0.2), "b")

    def refuse(self, missing_ok=False):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(OutlayError, match="cannot be removed: Permission denied") as raised:
        forget_measurements(["all"])
    assert str(kept) in raised.value.what
    assert "outlay calibrate" in raised.value.fix


def test_forgetting_leaves_other_files_alone():
    for number, name in enumerate("abc"):
        keep_measurement(a_bare_measurement(elapsed_s=number), name)
    (data_folder() / "notes.txt").write_text("mine")
    assert [path.name for path in forget_measurements(["b.json"])] == ["b.json"]
    assert [path.name for path in forget_measurements(["c"])] == ["c.json"]
    assert [path.name for path in forget_measurements(["all"])] == ["a.json"]
    assert forget_measurements(["all"]) == []
    assert (data_folder() / "notes.txt").exists()


def test_a_name_that_nothing_has_removes_nothing():
    keep_measurement(a_bare_measurement(), "probe")
    with pytest.raises(InputError, match="'prob'") as raised:
        forget_measurements(["probe", "prob"])
    assert "There is probe in" in raised.value.why
    assert len(own_measurements(pytest.fail)) == 1


def test_what_was_learned_can_be_forgotten():
    write_calibration(LearnedCalibration(gpus=(FACTOR,)))
    forget_calibration()
    forget_calibration()
    assert learned_calibration(pytest.fail) == NOTHING_LEARNED
