"""`outlay plan probe.json`: a measurement in the place of a workload file."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.measured import a_measurement

from outlay.carried import text_of_workload
from outlay.cli.main import cli
from outlay.errors import InputError
from outlay.measurement import Finding, Pause
from outlay.measurement_file import write_measurement
from outlay.trace.bundled import find_profile
from outlay.workload_file import parse_workload


@pytest.fixture
def measured(tmp_path):
    path = tmp_path / "probe.json"
    # 10 samples on one GPU.
    write_measurement(a_measurement(profile=find_profile("resnet50"), total_steps=None), path)
    return path


def planned(*arguments):
    return CliRunner().invoke(cli, ["plan", *map(str, arguments)])


def test_steps_and_their_batch_are_the_length(measured):
    seen = json.loads(measured.read_text())
    done = planned(measured, "--length", "10,000 steps", "--max-options", "1", "--json")
    assert done.exit_code == 0, done.output
    (option,) = json.loads(done.output)["options"]
    samples = 10_000 * seen["samples_per_step"] * max(seen["world_size"], 1)
    # Equal work everywhere: dollars for a million samples times their number are its cost.
    cost = option["usd_per_million_samples"] * samples / 1e6
    assert cost == pytest.approx(option["cost_usd"]["likely"], rel=0.2)
    assert option["step_time_from"]


def test_epochs_are_counted_by_their_steps(measured):
    each = json.loads(measured.read_text())["steps_per_epoch"]
    by_epochs = planned(measured, "--length", "2 epochs", "--max-options", "1", "--json")
    by_steps = planned(measured, "--length", f"{2 * each:.0f}", "--max-options", "1", "--json")
    assert by_epochs.output == by_steps.output


def test_what_was_measured_is_what_is_assumed(tmp_path):
    path = tmp_path / "probe.json"
    held = Finding(holder="input", evidence=(), cures=())
    # 10 samples in a step of 0.5 s are 20 a second.
    starved = a_measurement(profile=find_profile("resnet50"), finding=held)
    write_measurement(starved, path)
    done = planned(path, "--length", "1000", "--max-options", "1", "--json")
    assumed = " ".join(json.loads(done.output)["assumptions"])
    assert "Step times: measured on RTX 4090 at batch 10" in assumed
    assert "held the measured step back, at 20 samples/s" in assumed
    assert "input pipeline keeps up" not in assumed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "does not say how long the whole run is"),
        (("--length", "3 moons"), "no length of a run"),
        (("--length", "-3"), "no length of a run"),
    ],
)
def test_a_length_is_needed(measured, arguments, words):
    with pytest.raises(InputError, match=words):
        CliRunner().invoke(cli, ["plan", str(measured), *arguments], catch_exceptions=False)


def test_a_workload_file_says_its_length_itself(root):
    file = root / "examples" / "stylenat.toml"
    with pytest.raises(InputError, match="says itself how long"):
        CliRunner().invoke(cli, ["plan", str(file), "--length", "9"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "There is no measurement"),
        ('{"schema": 1,', "cannot be read as a measurement"),
        ('{"kind": "outlay profile"}', "cannot be read as a measurement"),
    ],
)
@pytest.mark.parametrize("length", [(), ("--length", "9")])
def test_what_is_no_measurement_is_no_workload_file_either(tmp_path, text, words, length):
    file = tmp_path / "probe.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=words):
        CliRunner().invoke(cli, ["plan", str(file), *length], catch_exceptions=False)


def test_evaluations_and_checkpoints_go_on_as_they_were_seen(tmp_path):
    # In 400 steps 4 evaluations of 3 s, one each 100 steps; 2 checkpoints, one each 200.
    pauses = (
        Pause(kind="evaluation", times=4, total_s=12.0),
        Pause(kind="checkpoint", times=2, total_s=1.0),
    )
    seen = a_measurement(profile=find_profile("resnet50"), steps_seen=400, pauses=pauses)
    write_measurement(seen, tmp_path / "probe.json")
    text = text_of_workload(tmp_path / "probe.json", total_steps=10_000)
    assert text is not None
    workload = parse_workload(text)
    assert workload.evaluation is not None
    assert workload.evaluation.every.steps == 100
    assert workload.evaluation.time_s == 3
    assert workload.checkpoint.interval is not None
    assert workload.checkpoint.interval.steps == 200
