"""`outlay plan probe.json`: a measurement in the place of a workload file."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.builders import an_offer
from tests.measured import a_measurement, a_step_time

from outlay.cli.main import cli
from outlay.cli.options import parse_length
from outlay.errors import InputError
from outlay.measurement.file import write_measurement
from outlay.measurement.measurement import Finding, MeasuredPause, TimeShares
from outlay.plan.from_measurement import with_measured_pauses, workload_from_measurement
from outlay.plan.pipeline import rank_offers
from outlay.trace.store import find_profile
from outlay.workload.workload import Cadence, Length

pytestmark = pytest.mark.usefixtures("few_offers")


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
    by_steps = planned(
        measured, "--length", f"{2 * each:.0f} steps", "--max-options", "1", "--json"
    )
    assert by_epochs.output == by_steps.output


def test_what_was_measured_is_what_is_assumed(tmp_path):
    path = tmp_path / "probe.json"
    held = Finding(holder="input", evidence=(), cures=())
    # 10 samples in a step of 0.5 s are 20 a second.
    shares = TimeShares(compute=0.3, input=0.6, host=0.1)
    starved = a_measurement(profile=find_profile("resnet50"), finding=held, shares=shares)
    write_measurement(starved, path)
    done = planned(path, "--length", "1000 steps", "--max-options", "1", "--json")
    assumed = " ".join(json.loads(done.output)["assumptions"])
    assert "Step times: measured on RTX 4090 at batch 10" in assumed
    assert "limited the measured step to 20 samples/s" in assumed
    assert "input pipeline is taken to keep up" not in assumed
    assert "Speed up the input pipeline first" in assumed
    page = planned(path, "--length", "1000 steps", "--full").output
    # What to cure stands beside the answer, before what is assumed.
    assert (
        page.index("Take: ")
        < page.index("Speed up the input pipeline first")
        < page.index("\nBest ")
    )
    assert "Speed up the input pipeline first" not in page[page.index("Assumed") :]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "does not say how long the whole run is"),
        (("--length", "3 moons"), "no length of a run"),
        (("--length", "-3"), "no length of a run"),
        (("--length", "0 steps"), "no length of a run"),
        (("--length", "nan steps"), "no length of a run"),
        (("--length", "100 months"), "no length of a run"),
        (("--length", "90"), '--length "90 epochs" or --length "90 steps"'),
        (("--length", "90k"), '--length "90k epochs" or --length "90k steps"'),
        (("--length", "90 hours"), r"go into a workload file: \[length\]"),
        (("--length", "1e6 samples"), r"go into a workload file: \[length\]"),
        (("--length", "1e30 steps"), "'1e30 steps' is longer than any run"),
        (("--length", "1e400 epochs"), "'1e400 epochs' is longer than any run"),
    ],
)
def test_a_length_is_needed(measured, arguments, words):
    with pytest.raises(InputError, match=words):
        CliRunner().invoke(cli, ["plan", str(measured), *arguments], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("100k steps", Length(iterations=100_000)),
        ("1.5M steps", Length(iterations=1_500_000)),
        ("1000steps", Length(iterations=1000)),
        ("1e5 steps", Length(iterations=100_000)),
        ("1,000 Steps", Length(iterations=1000)),
        ("0.2 steps", Length(iterations=1)),
        ("1 step", Length(iterations=1)),
        ("90epochs", Length(epochs=90)),
        ("2.5 epochs", Length(epochs=2.5)),
        (None, None),
    ],
)
def test_a_length_may_be_written_in_many_ways(text, length):
    assert parse_length(text) == length


def test_a_workload_file_says_its_length_itself(root):
    file = root / "examples" / "stylenat.toml"
    with pytest.raises(InputError, match="says itself how long"):
        CliRunner().invoke(cli, ["plan", str(file), "--length", "9 steps"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "There is no measurement"),
        ('{"schema": 1,', "cannot be read as a measurement"),
        ('{"kind": "outlay profile"}', "cannot be read as a measurement"),
    ],
)
@pytest.mark.parametrize("length", [(), ("--length", "9 steps")])
def test_what_is_no_measurement_is_no_workload_file_either(tmp_path, text, words, length):
    file = tmp_path / "probe.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=words):
        CliRunner().invoke(cli, ["plan", str(file), *length], catch_exceptions=False)


def test_evaluations_and_checkpoints_go_on_as_they_were_seen(tmp_path):
    # In 400 steps 4 evaluations of 3 s, one each 100 steps; 2 checkpoints, one each 200.
    pauses = (
        MeasuredPause(kind="evaluation", times=4, total_s=12.0),
        MeasuredPause(kind="checkpoint", times=2, total_s=1.0),
    )
    seen = a_measurement(profile=find_profile("resnet50"), steps_seen=400, pauses=pauses)
    write_measurement(seen, tmp_path / "probe.json")
    workload = workload_from_measurement(tmp_path / "probe.json", Length(iterations=10_000))
    assert workload is not None
    workload, _ = with_measured_pauses(workload)
    assert workload.evaluation is not None
    # Of 10 samples each, so that there are as many on any number of GPUs.
    assert workload.evaluation.every == Cadence(samples=1000)
    assert workload.evaluation.time_s is None
    assert workload.checkpoint.interval == Cadence(samples=2000)


def evaluated(tmp_path, **changes):
    """What a measurement with an evaluation of 3 s each 100 steps becomes."""
    pauses = (MeasuredPause(kind="evaluation", times=4, total_s=12.0),)
    seen = a_measurement(
        **{"profile": find_profile("resnet50"), "steps_seen": 400, "pauses": pauses, **changes}
    )
    write_measurement(seen, tmp_path / "probe.json")
    workload = workload_from_measurement(tmp_path / "probe.json", Length(iterations=1_000))
    assert workload is not None
    return with_measured_pauses(workload)[0]


def test_an_evaluation_takes_what_was_measured_there_and_longer_on_a_slower_gpu(tmp_path):
    busy = {
        "step": a_step_time(mean_s=0.05, low_s=0.049, high_s=0.051, median_s=0.05),
        "samples_per_step": 128.0,
        "busy_s": 0.05,
        "finding": Finding(holder="gpu", evidence=(), cures=()),
    }
    workload = evaluated(tmp_path, **busy)
    only = ("RTX 4090", "T4")
    offers = tuple(an_offer(name, gpu=name) for name in only)
    plan = rank_offers(workload, offers)
    took = {one.offer.gpu: (one.run.evaluation_s, one.run.training_s) for one in plan.options}
    # 1,000 steps have ten evaluations of 3 s where it was measured.
    assert took["RTX 4090"][0] == pytest.approx(30, rel=0.01)
    longer, slower = (took["T4"][part] / took["RTX 4090"][part] for part in (0, 1))
    # A T4 trains several times as long; an evaluation's share of that is about the same.
    assert slower > 2
    assert longer == pytest.approx(slower, rel=0.3)


@pytest.mark.parametrize("measured_on", [1, 8])
def test_a_run_has_as_many_evaluations_on_any_number_of_gpus(tmp_path, measured_on):
    # Of one profile on 1 or 8 GPUs: 3 s each 100 steps, ten of them in 1,000 steps.
    world = {"ranks": measured_on, "world_size": measured_on, "samples_per_step": 128.0}
    workload = evaluated(tmp_path, **world)
    offers = tuple(an_offer(f"{gpus}x", gpu="RTX 4090", gpus=gpus) for gpus in (1, 8))
    plan = rank_offers(workload, offers)
    took = {one.offer.gpus: (one.run.evaluation_s, one.run.training_s) for one in plan.options}
    fewer, shorter = (took[8][part] / took[1][part] for part in (0, 1))
    # As many samples are evaluated: with eight GPUs as much sooner as they are trained on.
    assert fewer == pytest.approx(shorter, rel=0.01)
    assert fewer > 1 / 10  # an eighth and what exchanging costs; not an eighth as often besides


@pytest.mark.parametrize("changes", [{"samples_per_step": None}, {"step": None}])
def test_an_evaluation_whose_samples_cannot_be_told_keeps_its_time(tmp_path, changes):
    workload = evaluated(tmp_path, **changes)
    assert workload.evaluation is not None
    assert (workload.evaluation.samples, workload.evaluation.time_s) == (None, 3)


def test_of_a_step_without_operations_a_third_goes_forward(tmp_path):
    workload = evaluated(tmp_path, profile=None)
    assert workload.evaluation is not None
    # 10 samples go forward in a third of 0.5 s: in 3 s, 3 / (0.5 / 3) x 10 = 180.
    assert workload.evaluation.samples == 180


def test_where_evaluations_and_checkpoints_come_from_is_said(tmp_path):
    pauses = (
        MeasuredPause(kind="evaluation", times=4, total_s=12.0, every_steps=90.0),
        MeasuredPause(kind="checkpoint", times=2, total_s=1.0),
    )
    seen = a_measurement(profile=find_profile("resnet50"), steps_seen=400, pauses=pauses)
    write_measurement(seen, tmp_path / "probe.json")
    done = planned(
        tmp_path / "probe.json", "--length", "1000 steps", "--max-options", "1", "--json"
    )
    assumed = " ".join(json.loads(done.output)["assumptions"])
    assert "Evaluations: every 90 steps, 3 s each on the measured RTX 4090" in assumed
    assert "Checkpoints: about every 200 steps (2 seen in 400" in assumed


@pytest.mark.parametrize("named", [True, False])
def test_a_workload_file_has_what_it_does_not_say_from_the_measurement(tmp_path, named):
    """The step of a measurement, in a file or by itself: the same run, with the same pauses."""
    path = tmp_path / "probe.json"
    pauses = (
        MeasuredPause(kind="evaluation", times=4, total_s=12.0),
        MeasuredPause(kind="checkpoint", times=2, total_s=1.0),
    )
    seen = a_measurement(profile=find_profile("resnet50"), steps_seen=400, pauses=pauses)
    write_measurement(seen, path)
    measured = 'measured = ["probe.json"]' if named else ""
    text = f"""[step]
profile = "resnet50"
batch_size = 10
{measured}
[length]
iterations = 10_000
global_batch_size = 10
"""
    options = () if named else ("--measured", path)

    def plan(file, *more):
        done = planned(file, *more, "--max-options", "1", "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.output)

    (tmp_path / "run.toml").write_text(text)
    whole, alone = plan(tmp_path / "run.toml", *options), plan(path, "--length", "10,000 steps")
    assert whole["options"][0]["run_time_s"] == alone["options"][0]["run_time_s"]
    said = [one for one in whole["assumptions"] if one.startswith(("Evaluations", "Checkpoints"))]
    assert len(said) == 2
    (tmp_path / "run.toml").write_text(f'{text}[evaluation]\nevery = "500 steps"\ntime = "1s"\n')
    assert not [
        one
        for one in plan(tmp_path / "run.toml", *options)["assumptions"]
        if one.startswith("Evaluations")
    ]
