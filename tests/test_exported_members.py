from __future__ import annotations

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

import outlay
from tests.rows import for_every

PUBLIC = [
    "AdviceRequest",
    "AffordableRun",
    "BenchRequest",
    "BlockProbe",
    "Breakdown",
    "BuildReport",
    "BuildRequest",
    "Curves",
    "DataSurvey",
    "Difference",
    "Estimate",
    "FittedStep",
    "GoodTime",
    "Gpu",
    "GpuPrediction",
    "Job",
    "LaunchRequest",
    "Length",
    "Line",
    "Measurement",
    "MethodPlan",
    "Model",
    "Offer",
    "OfferFilter",
    "Option",
    "OutlayError",
    "Plan",
    "PredictionRequest",
    "PriceBook",
    "PriceChanges",
    "PriceHistory",
    "ProbeLimits",
    "ProbeRequest",
    "RecipeSettings",
    "Recommendation",
    "RunRecord",
    "RunStore",
    "StepReport",
    "TraceRequest",
    "TracedStep",
    "TrainingQuestion",
    "Workload",
    "affordable_run",
    "best_offers",
    "build_request",
    "build_workstation",
    "bundled_book",
    "bundled_models",
    "bundled_offers",
    "compare_methods",
    "compare_workloads",
    "current_prices",
    "find_gpu",
    "find_model",
    "find_profile",
    "fit_on_gpu",
    "good_time",
    "gpus",
    "job_for",
    "judge_workstation",
    "launch",
    "learn_from_measurements",
    "learned_calibration",
    "list_offers",
    "load_workload",
    "measure_host",
    "methods_for",
    "monthly_use",
    "parse_workload",
    "past_prices",
    "plan_workload",
    "predict_on_gpus",
    "price_changes",
    "price_history",
    "probe_command",
    "probing",
    "profile_of",
    "rank_offers",
    "read_measurement",
    "read_workload",
    "recommend",
    "register_op",
    "rendered_step",
    "run_trials",
    "survey_data",
    "swings",
    "target_of",
    "trace_on_gpus",
    "trace_step",
    "trial_value",
    "upgrade_workstation",
    "vary_workload",
    "workload_of_question",
    "workload_text",
]


def test_all_is_exact():
    assert sorted(outlay.__all__) == sorted(PUBLIC)
    assert len(set(outlay.__all__)) == len(outlay.__all__)
    assert dir(outlay) == sorted(PUBLIC)


@for_every("name", PUBLIC)
def test_every_name_is_the_one_its_module_defines(name):
    member = getattr(outlay, name)
    home = importlib.import_module(member.__module__)
    assert getattr(home, name) is member
    assert home.__name__.startswith("outlay.")
    assert member.__doc__


PACKAGES = sorted(
    path.stem
    for path in Path(outlay.__file__).parent.iterdir()
    if path.suffix == ".py" or (path / "__init__.py").is_file()
)
"""Packages and modules at the root."""


def test_no_public_name_is_that_of_a_package_or_module():
    assert "plan" in PACKAGES
    assert not set(PUBLIC) & set(PACKAGES)


IN_ORDER = """
import importlib, outlay
packages = "{packages}".split()
for package in packages[::{step}]:
    importlib.import_module("outlay." + package)
assert all(callable(getattr(outlay, name)) for name in outlay.__all__)
for package in packages:
    assert getattr(outlay, package).__name__ == "outlay." + package, package
"""


@pytest.mark.parametrize("step", [1, -1])
def test_public_names_are_functions_and_classes_in_any_order_of_imports(step):
    packages = [name for name in PACKAGES if not name.startswith("_")]
    code = IN_ORDER.format(packages=" ".join(packages), step=step)
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_needs_a_library_of_its_own_comes_only_when_asked_for():
    asked_for = {"LightningProbe", "TrainerProbe", "load_ipython_extension"}
    assert not asked_for & {*outlay.__all__, *dir(outlay)}
    assert outlay.load_ipython_extension.__module__ == "outlay.inline.notebook"
    assert not loaded_after("from outlay import *") & {"torch", "transformers", "lightning"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'plan_everything'"):
        getattr(outlay, "plan_everything")  # noqa: B009


def test_star_import_brings_the_public_names():
    space = types.ModuleType("space")
    exec("from outlay import *", vars(space))
    assert set(PUBLIC) <= set(vars(space))


def loaded_after(code):
    """The packages that are loaded after some code in a fresh Python."""
    code += "; import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(answer.stdout.split())


def test_import_loads_nothing_heavy():
    loaded = loaded_after("import outlay")
    assert "outlay" in loaded
    assert not loaded & {"torch", "numpy", "rich", "click", "pydantic"}


def test_planning_needs_neither_torch_nor_a_terminal():
    loaded = loaded_after("import outlay; outlay.plan_workload, outlay.parse_workload")
    assert {"pydantic", "numpy"} <= loaded
    assert not loaded & {"torch", "rich", "click", "currency_converter"}
