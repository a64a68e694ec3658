"""What will this training run cost, and where should it run?

    from pathlib import Path
    import outlay

    workload = outlay.load_workload(Path("outlay.toml"))
    plan = outlay.plan_workload(workload)
    print(plan.chosen)

    request = outlay.PredictionRequest(target="resnet50", machines=("RTX 3090", "A100:8"))
    for gpu, step, notes in outlay.predict_on_gpus(request):
        print(gpu, step.step_time_s.likely, step.max_batch_size)

    report = outlay.trace_step(step_of, 32)  # step_of(32) returns a training step; needs torch
    print(report.flops, report.peak.memory.peak_bytes, report.peak.site)

    step = outlay.target_of(outlay.find_model("llama-3.1-8b"), "qlora")  # a file: a step to trace

    with outlay.probing(steps=200) as probe:  # what really training says; needs torch
        train()
    probe.report()

There is one function for each command, which gives what its `--json` prints: `plan_workload`,
`vary_workload`, `compare_workloads`, `predict_on_gpus`, `trace_on_gpus`, `fit_on_gpu`,
`probe_command`, `learn_from_measurements`, `list_offers`, `price_history` (with `good_time`),
`price_changes`, `recommend`, `build_workstation`, `judge_workstation`, `upgrade_workstation`,
`measure_host`. A question in one line is a `TrainingQuestion`: `workload_of_question` makes the
workload of it, `compare_methods` and `affordable_run` answer it by methods and by money. What acts
on machines is a step each: `job_for` makes the job of a plan's option, `launch` starts it, a
`RunStore` keeps it, and `run_trials` tries several machines.

Names are imported when first used, so that `import outlay` is quick. `LightningProbe` and
`TrainerProbe`, the callbacks, need a library of their own and come with no star;
`%load_ext outlay` gives notebooks `%%probe`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlay.advise.recommendation import Recommendation, recommend
    from outlay.advise.request import AdviceRequest, monthly_use
    from outlay.cost.lines import Breakdown, Line
    from outlay.errors import OutlayError
    from outlay.fit.gpu_memory import TracedStep, TraceRequest, trace_on_gpus
    from outlay.fit.search import FittedStep, fit_on_gpu
    from outlay.hardware.gpu_names import find_gpu
    from outlay.hardware.gpus import Gpu, gpus
    from outlay.inline.block import BlockProbe, probing
    from outlay.inline.lightning import LightningProbe as LightningProbe
    from outlay.inline.notebook import load_ipython_extension as load_ipython_extension
    from outlay.inline.notebook import unload_ipython_extension as unload_ipython_extension
    from outlay.inline.transformers import TrainerProbe as TrainerProbe
    from outlay.ledger.kept_measurements import learn_from_measurements, learned_calibration
    from outlay.measurement.file import read_measurement
    from outlay.measurement.measurement import Measurement
    from outlay.models.model import Model, bundled_models, find_model
    from outlay.models.recipe import RecipeSettings, methods_for, rendered_step, target_of
    from outlay.offers.catalog import OfferFilter, bundled_offers
    from outlay.offers.offer import Offer
    from outlay.offers.price_book import PriceBook, bundled_book, list_offers
    from outlay.plan.affordable import AffordableRun, affordable_run
    from outlay.plan.difference import Difference, compare_workloads
    from outlay.plan.from_measurement import load_workload
    from outlay.plan.methods import MethodPlan, compare_methods
    from outlay.plan.option import Option
    from outlay.plan.pipeline import best_offers, plan_workload, rank_offers
    from outlay.plan.prediction import (
        GpuPrediction,
        PredictionRequest,
        measure_host,
        predict_on_gpus,
    )
    from outlay.plan.question import TrainingQuestion, workload_of_question, workload_text
    from outlay.plan.ranking import Plan
    from outlay.plan.sensitivity import swings, trial_value
    from outlay.plan.vary import Curves, vary_workload
    from outlay.prices.books import current_prices
    from outlay.prices.history import GoodTime, PriceHistory, good_time, price_history
    from outlay.prices.past_books import past_prices
    from outlay.prices.price_changes import PriceChanges, price_changes
    from outlay.probe.runner import ProbeRequest, probe_command
    from outlay.probe.stages import ProbeLimits
    from outlay.run.bench import BenchRequest, run_trials
    from outlay.run.job import Job
    from outlay.run.launch import LaunchRequest, job_for, launch
    from outlay.run.run_store import RunRecord, RunStore
    from outlay.trace.formulas import register_op
    from outlay.trace.step_report import StepReport
    from outlay.trace.store import find_profile
    from outlay.trace.tracing import profile_of, trace_step
    from outlay.uncertainty import Estimate
    from outlay.workload.file import parse_workload, read_workload
    from outlay.workload.survey import DataSurvey, survey_data
    from outlay.workload.workload import Length, Workload
    from outlay.workstation.assembly import BuildRequest, build_request
    from outlay.workstation.build import (
        BuildReport,
        build_workstation,
        judge_workstation,
        upgrade_workstation,
    )

__version__ = "0.1.0"
"""The one place that has it: the build and `outlay --version` read it here."""

_MODULES = {
    "advise.recommendation": "Recommendation recommend",
    "advise.request": "AdviceRequest monthly_use",
    "cost.lines": "Breakdown Line",
    "errors": "OutlayError",
    "fit.gpu_memory": "TraceRequest TracedStep trace_on_gpus",
    "fit.search": "FittedStep fit_on_gpu",
    "hardware.gpu_names": "find_gpu",
    "hardware.gpus": "Gpu gpus",
    "inline.block": "BlockProbe probing",
    "ledger.kept_measurements": "learn_from_measurements learned_calibration",
    "measurement.file": "read_measurement",
    "measurement.measurement": "Measurement",
    "models.model": "Model bundled_models find_model",
    "models.recipe": "RecipeSettings methods_for rendered_step target_of",
    "offers.catalog": "OfferFilter bundled_offers",
    "offers.offer": "Offer",
    "offers.price_book": "PriceBook bundled_book list_offers",
    "plan.affordable": "AffordableRun affordable_run",
    "plan.difference": "Difference compare_workloads",
    "plan.from_measurement": "load_workload",
    "plan.methods": "MethodPlan compare_methods",
    "plan.option": "Option",
    "plan.pipeline": "best_offers plan_workload rank_offers",
    "plan.prediction": "GpuPrediction PredictionRequest measure_host predict_on_gpus",
    "plan.question": "TrainingQuestion workload_of_question workload_text",
    "plan.ranking": "Plan",
    "plan.sensitivity": "swings trial_value",
    "plan.vary": "Curves vary_workload",
    "prices.books": "current_prices",
    "prices.past_books": "past_prices",
    "prices.history": "GoodTime PriceHistory good_time price_history",
    "prices.price_changes": "PriceChanges price_changes",
    "probe.runner": "ProbeRequest probe_command",
    "probe.stages": "ProbeLimits",
    "run.bench": "BenchRequest run_trials",
    "run.job": "Job",
    "run.launch": "LaunchRequest job_for launch",
    "run.run_store": "RunRecord RunStore",
    "trace.formulas": "register_op",
    "trace.step_report": "StepReport",
    "trace.store": "find_profile",
    "trace.tracing": "profile_of trace_step",
    "uncertainty": "Estimate",
    "workload.file": "parse_workload read_workload",
    "workload.survey": "DataSurvey survey_data",
    "workload.workload": "Length Workload",
    "workstation.assembly": "BuildRequest build_request",
    "workstation.build": "BuildReport build_workstation judge_workstation upgrade_workstation",
    # Classes of a library's own kind, and what IPython looks for: not in __all__.
    "inline.lightning": "LightningProbe",
    "inline.notebook": "load_ipython_extension unload_ipython_extension",
    "inline.transformers": "TrainerProbe",
}
"""Where each public name is defined."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = [
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'outlay' has no attribute {name!r}")
    return getattr(importlib.import_module(f"outlay.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
