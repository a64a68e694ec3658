"""Measurements that are damaged, of something else, or of a run that failed, in every command."""

from __future__ import annotations

import json
import warnings

import pytest
from tests.measured import a_bare_measurement, a_search

from outlay.measurement.file import measurement_to_json
from outlay.report.batches import batches_document
from outlay.report.documents import dumps
from outlay.trace.store import find_profile

pytestmark = pytest.mark.usefixtures("few_offers")

COMMANDS = {
    "predict": ("predict", "FILE", "--gpu", "RTX 3090"),
    "plan": ("plan", "FILE", "--length", "9 steps", "--max-options", "1"),
    "measured": ("predict", "resnet50", "--gpu", "T4", "--batch-size", 8, "--measured", "FILE"),
    "calibrate": ("calibrate", "FILE"),
}


@pytest.fixture(params=COMMANDS)
def ended(request, outlay):
    """What a command says of a file."""

    def run(path):
        given = [str(path) if one == "FILE" else one for one in COMMANDS[request.param]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return outlay(*given)

    return run


@pytest.fixture
def file(tmp_path):
    """A measurement of resnet50 in a file, changed as asked."""

    def write(change):
        content = measurement_to_json(a_bare_measurement(profile=find_profile("resnet50")))
        change(content)
        path = tmp_path / "probe.json"
        path.write_text(json.dumps(content))
        return path

    return write


def complaint(ended, path):
    assert ended.code == 2
    assert ended.out == ""
    assert str(path) in ended.err
    for word in ("Traceback", "Errno", "Error(", "sys.", "went wrong", "Warning"):
        assert word not in ended.err
    return ended.err


@pytest.mark.parametrize(
    ("key", "value"), [("busy_s", 0), ("busy_s", -1), ("samples_per_step", 1e18)]
)
def test_figures_that_cannot_be(ended, file, key, value):
    path = file(lambda content: content.update({key: value}))
    assert f"{key} is {value:g}, and should be" in complaint(ended(path), path)


@pytest.mark.parametrize("mean_s", [1e-300, 1e300])
def test_steps_that_cannot_be(ended, file, mean_s):
    path = file(lambda content: content["step"].update(mean_s=mean_s))
    said = complaint(ended(path), path)
    assert f"step.mean_s is {mean_s:g}" in said
    assert "between 1 microsecond and 10 days" in said


def test_nested_too_deeply(ended, tmp_path):
    path = tmp_path / "probe.json"
    path.write_text("[" * 100_000)
    assert "nested too deeply" in complaint(ended(path), path)


def test_no_file(ended, tmp_path):
    path = tmp_path / "none.json"
    said = complaint(ended(path), path)
    assert "There is no" in said
    assert f"measurement {path}" in said


def test_a_folder(ended, tmp_path):
    path = tmp_path / "probe.json"
    path.mkdir()
    assert "It is a directory." in complaint(ended(path), path)


def test_odd_operations(ended, file):
    path = file(lambda content: content["profile"].update(ops=["aten.mm"]))
    said = complaint(ended(path), path)
    assert "cannot be read as a measurement" in said
    assert "probe again" in said


def test_a_search_for_the_largest_batch(ended, tmp_path):
    path = tmp_path / "batches.json"
    search = a_search()
    path.write_text(dumps(batches_document(search)))
    said = complaint(ended(path), path)
    assert "is what a search for the largest batch found" in said
    assert f"Probe the command at batch {search.recommended}" in said


def test_broken_files_may_have_been_either(outlay, tmp_path):
    path = tmp_path / "probe.json"
    path.write_text('{"schema": 1,')
    said = complaint(outlay("predict", path, "--gpu", "T4"), path)
    assert "cannot be read as a profile or a measurement" in said
    assert "probe or trace the step again" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ending": "failed", "status": 1}, "its command failed (status 1)"),
        ({"ran_out_of_memory": True}, "its GPU ran out of memory"),
    ],
)
def test_a_run_that_failed_is_used_with_a_word(outlay, file, change, words):
    path = file(lambda content: content.update(change))
    predicted = outlay("predict", path, "--gpu", "RTX 3090", "--json").document["predictions"][0]
    assert predicted["step_time_s"]["likely"] == 0.2
    assert any(words in note for note in predicted["notes"])
    planned = outlay("plan", path, "--length", "9 steps", "--max-options", 1, "--json").document
    assert any(words in note for note in planned["assumptions"])


@pytest.mark.parametrize("text", ["T4@8=1e-300", "T4@8=1e300", "T4@8=inf", f"T4@{10**18}=0.1"])
def test_times_given_by_hand_that_cannot_be(outlay, text):
    ended = outlay("predict", "resnet50", "--gpu", "T4", "--batch-size", 8, "--measured", text)
    assert ended.code == 2
    assert text in ended.err
    assert "plausible" in ended.err
