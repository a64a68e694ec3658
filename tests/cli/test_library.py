"""Every command prints what one function of the library gives: the same document as `--json`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.measured import a_measurement, a_step_time

import outlay
from outlay.advise.request import find_purpose
from outlay.cli.main import COMMANDS, cli
from outlay.currency import usd_per_unit
from outlay.hardware.gpu_names import single_gpu
from outlay.measurement.file import write_measurement
from outlay.measurement.measurement import Finding, MeasuredPause
from outlay.offers.catalog import gpu_filter
from outlay.report.advise import advice_document
from outlay.report.build import Currency, build_document
from outlay.report.calibrate import calibrate_document
from outlay.report.comparison import curves_document, difference_document
from outlay.report.documents import (
    dumps,
    gpus_document,
    host_document,
    offers_document,
    plan_document,
    predictions_document,
    profiles_document,
    trace_document,
)
from outlay.report.fit import fit_document
from outlay.trace.store import bundled_profiles, find_profile
from outlay.workstation.machine import MachineUse
from outlay.workstation.parts import catalogue
from outlay.workstation.speed import power_speed

TODAY = "2026-11-16"
EPOCH_S = "1794787200"  # of that day
WORKLOAD = """
name = "ResNet-50"
[step]
profile = "resnet50"
batch_size = 128
measured = ["probe.json"]
[length]
iterations = 9000
global_batch_size = 128
[consider]
gpus = ["RTX 4090"]
providers = ["runpod"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A workload file that names a measurement with evaluations, checkpoints and new epochs."""
    pauses = (
        MeasuredPause(kind="evaluation", times=4, total_s=1200.0, every_steps=90.0),
        MeasuredPause(kind="checkpoint", times=2, total_s=80.0, every_steps=150.0),
        MeasuredPause(kind="epoch start", times=3, total_s=60.0),
    )
    measurement = a_measurement(
        profile=find_profile("resnet50"),
        step=a_step_time(mean_s=0.05, low_s=0.049, high_s=0.051, median_s=0.05),
        samples_per_step=128.0,
        busy_s=0.05,
        finding=Finding(holder="gpu", evidence=(), cures=()),
        steps_seen=400,
        steps_per_epoch=100.0,
        pauses=pauses,
    )
    write_measurement(measurement, tmp_path / "probe.json")
    (tmp_path / "one.toml").write_text(WORKLOAD)
    (tmp_path / "two.toml").write_text(WORKLOAD.replace("9000", "18000"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH_S)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(*arguments):
    answer = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(answer.stdout)


def same(document, *arguments):
    assert json.loads(dumps(document)) == printed(*arguments)


def plan_of(file, **options):
    return outlay.plan_workload(outlay.load_workload(Path(file)), today=TODAY, **options)


def test_plan(folder):
    same(plan_document(plan_of("one.toml"), "ResNet-50"), "plan", "one.toml")


def test_plan_of_a_measurement(folder, few_offers):
    workload = outlay.load_workload(Path("probe.json"), outlay.Length(epochs=90))
    plan = outlay.plan_workload(workload, today=TODAY)
    document = plan_document(plan, "probe.json", 5)
    arguments = ("probe.json", "--length", "90 epochs", "--max-options", "5")
    same(document, "plan", *arguments)


def test_plan_with_more_measurements(folder):
    plan = plan_of("two.toml", measured=["probe.json"])
    same(plan_document(plan, "ResNet-50"), "plan", "two.toml", "--measured", "probe.json")


def test_plan_varied(folder):
    curves = outlay.vary_workload(Path("one.toml"), "length.iterations=9000,18000", today=TODAY)
    document = curves_document("ResNet-50", curves)
    same(document, "plan", "one.toml", "--vary", "length.iterations=9000,18000")


def test_diff(folder):
    difference = outlay.compare_workloads(Path("one.toml"), Path("two.toml"), today=TODAY)
    document = difference_document(("one.toml", "two.toml"), difference)
    same(document, "diff", "one.toml", "two.toml")


def test_a_file_costs_the_same_in_a_plan_a_curve_and_a_difference(folder):
    plan = printed("plan", "one.toml")["chosen"]["cost_usd"]["likely"]
    curve = printed("plan", "one.toml", "--vary", "length.iterations=9000,18000")["points"]
    change = printed("diff", "one.toml", "two.toml")
    option = plan_of("one.toml").chosen
    assert option.cost_usd.likely == pytest.approx(plan, rel=1e-12)
    assert curve[0]["cost_usd"] == pytest.approx(plan, rel=1e-12)
    assert change["before"]["cost_usd"]["likely"] == pytest.approx(plan, rel=1e-12)
    run = option.run
    # 100 evaluations of 300 s, 60 checkpoints of 40 s and 90 new epochs of 20 s, as measured.
    paused_s = run.evaluation_s + run.checkpoint_s + run.pauses_s
    assert paused_s == pytest.approx(100 * 300 + 60 * 40 + 90 * 20, rel=0.02)


def test_predict(folder):
    request = outlay.PredictionRequest(
        target="resnet50",
        machines=("RTX 3090", "A100-80GB:8", "RTX 3090 + RTX 2080 Ti"),
        batch_size=32,
        measured=("probe.json", "T4@32=0.2"),
    )
    document = predictions_document("resnet50", outlay.predict_on_gpus(request))
    gpus = "RTX 3090,A100-80GB:8,RTX 3090 + RTX 2080 Ti"
    measured = ("--measured", "probe.json", "--measured", "T4@32=0.2")
    same(document, "predict", "resnet50", "--gpu", gpus, "--batch-size", "32", *measured)


def test_predict_from_a_measurement(folder):
    request = outlay.PredictionRequest(target="probe.json", machines=("H100 SXM", "L4"))
    document = predictions_document("probe.json", outlay.predict_on_gpus(request))
    same(document, "predict", "probe.json", "--gpu", "H100 SXM,L4")


def test_fit(folder):
    fitted = outlay.fit_on_gpu("llama-1b", "RTX 4090", batch_size=8)
    document = fit_document("llama-1b", fitted.fit, fitted.places)
    same(document, "fit", "llama-1b", "--gpu", "RTX 4090", "--batch-size", "8")


@pytest.mark.torch
def test_trace(folder, root):
    target = f"{root / 'tests/trace/steps_changed.py'}:plain"
    request = outlay.TraceRequest(target=target, batch_size=8, gpus=(single_gpu("T4"),))
    traced = outlay.trace_on_gpus(request)
    document = json.loads(dumps(trace_document(traced.report, None, traced.gpus)))
    command = printed("trace", target, "--batch-size", "8", "--gpu", "T4")
    assert document == command


def test_offers(folder):
    query = outlay.OfferFilter(gpus=(gpu_filter("H100:8"),), spot=True)
    document = offers_document(outlay.list_offers(query, today=TODAY))
    assert document.offers
    same(document, "offers", "--gpu", "H100:8", "--spot")


def test_calibrate(folder):
    learning = outlay.learn_from_measurements([Path("probe.json")])
    document = calibrate_document(learning.folder, learning.forgotten, learning.report)
    same(document, "calibrate", "probe.json")


def test_advise(folder):
    purpose = find_purpose("kaggle")
    request = outlay.AdviceRequest(
        profile=find_profile(purpose.profile),
        purpose=purpose,
        use=outlay.monthly_use("2h/day"),
        months=12.0,
        budget_usd=2000.0,
        gpus=purpose.gpus,
        today=TODAY,
        rate_as_of=usd_per_unit("USD")[1],
    )
    arguments = ("--purpose", "kaggle", "--usage", "2h/day", "--months", "12", "--budget", "2000")
    same(advice_document(outlay.recommend(request)), "advise", *arguments)


def test_build(folder):
    parts = catalogue(None, TODAY)
    use = MachineUse(speed_at=power_speed(), country="us")
    request = outlay.build_request(parts, [("RTX 3090", 2)], {"memory": "64GB"}, use=use)
    document = build_document(outlay.build_workstation(request), Currency(name="USD"))
    arguments = ("--gpu", "RTX 3090:2", "--ram", "64GB", "--country", "us")
    same(document, "build", *arguments)


def test_gpus_and_profiles(folder):
    same(gpus_document(list(outlay.gpus().values())), "gpus")
    same(profiles_document([find_profile(name) for name in bundled_profiles()]), "profiles")


@pytest.mark.torch
def test_host(folder):
    document = json.loads(dumps(host_document(outlay.measure_host(0.2))))
    assert document.keys() == printed("host", "--seconds", "0.2").keys()


ELSEWHERE = {
    "init": "writes a file: tests/cli/test_init.py",
    "probe": "writes the measurement that `probe_command` gives: tests/probe",
    "schema": "prints schemas: tests/cli/test_schema.py",
    "prices": "a group of commands: tests/prices",
    "recipe": "a group of commands: tests/cli/test_recipe.py",
    "check": "looks at this machine: tests/cli/test_check.py",
    "launch": "starts runs: tests/run/test_launch.py has `job_for` and `launch`",
    "bench": "starts trials: tests/run/test_bench.py has `run_trials`",
    "runs": "asks engines: tests/run/test_launch.py has `updated`",
    "logs": "asks engines: tests/run/test_host_engine.py",
    "stop": "ends runs: tests/run/test_launch.py has `stop`",
    "watch": "looks on for as long as a run goes on: tests/run/test_watch.py",
    "guard": "ends with the run it guards: tests/run/test_guard.py",
}


def test_every_command_is_here_or_said_to_be_elsewhere():
    here = {
        "plan",
        "diff",
        "predict",
        "fit",
        "trace",
        "offers",
        "calibrate",
        "advise",
        "build",
        "gpus",
        "profiles",
        "host",
    }
    assert here | set(ELSEWHERE) == set(COMMANDS)
