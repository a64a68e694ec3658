"""What will this training run cost, and where should it run?

    from pathlib import Path
    import outlay

    workload = outlay.read_workload(Path("outlay.toml"))
    plan = outlay.plan_workload(workload)
    print(plan.chosen)

    report = outlay.trace(step_of, 32)  # step_of(32) returns a training step; needs torch
    print(report.flops, report.peak.memory.peak_bytes, report.peak.site)

    with outlay.probing(steps=200) as probe:  # what really training says; needs torch
        train()
    probe.report()

Names are imported when first used, so that `import outlay` is quick. `LightningProbe` and
`TrainerProbe`, the callbacks, need a library of their own and come with no star;
`%load_ext outlay` gives notebooks `%%probe`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outlay.cost.lines import Breakdown, Line
    from outlay.decide import swings, trial
    from outlay.errors import OutlayError
    from outlay.estimate import Estimate
    from outlay.gpu_names import find_gpu
    from outlay.hardware import Gpu, gpus
    from outlay.inside.block import Probing, probing
    from outlay.inside.lightning import LightningProbe as LightningProbe
    from outlay.inside.notebook import load_ipython_extension as load_ipython_extension
    from outlay.inside.notebook import unload_ipython_extension as unload_ipython_extension
    from outlay.inside.transformers import TrainerProbe as TrainerProbe
    from outlay.measurement import Measurement
    from outlay.measurement_file import read_measurement
    from outlay.offers.catalog import bundled_offers
    from outlay.offers.offer import Offer
    from outlay.option import Option
    from outlay.pipeline import best_offers, plan_workload, rank_offers
    from outlay.plan import Plan
    from outlay.trace.bundled import find_profile
    from outlay.trace.formulas import register_op
    from outlay.trace.one_step import trace_step
    from outlay.trace.one_step import trace_step as trace
    from outlay.trace.profile import profile_of
    from outlay.trace.step_report import StepReport
    from outlay.workload import Workload
    from outlay.workload_file import parse_workload, read_workload

_HOMES = {
    "Breakdown": "cost.lines",
    "Estimate": "estimate",
    "Gpu": "hardware",
    "Line": "cost.lines",
    "Measurement": "measurement",
    "Offer": "offers.offer",
    "Option": "option",
    "OutlayError": "errors",
    "Plan": "plan",
    "Probing": "inside.block",
    "StepReport": "trace.step_report",
    "Workload": "workload",
    "best_offers": "pipeline",
    "bundled_offers": "offers.catalog",
    "find_gpu": "gpu_names",
    "find_profile": "trace.bundled",
    "gpus": "hardware",
    "parse_workload": "workload_file",
    "plan_workload": "pipeline",
    "probing": "inside.block",
    "profile_of": "trace.profile",
    "rank_offers": "pipeline",
    "read_measurement": "measurement_file",
    "read_workload": "workload_file",
    "register_op": "trace.formulas",
    "swings": "decide",
    "trace_step": "trace.one_step",
    "trial": "decide",
}
_ON_DEMAND = {
    # Classes of a library's own kind, and what IPython looks for.
    "LightningProbe": "inside.lightning",
    "TrainerProbe": "inside.transformers",
    "load_ipython_extension": "inside.notebook",
    "unload_ipython_extension": "inside.notebook",
}

__all__ = [
    "Breakdown",
    "Estimate",
    "Gpu",
    "Line",
    "Measurement",
    "Offer",
    "Option",
    "OutlayError",
    "Plan",
    "Probing",
    "StepReport",
    "Workload",
    "best_offers",
    "bundled_offers",
    "find_gpu",
    "find_profile",
    "gpus",
    "parse_workload",
    "plan_workload",
    "probing",
    "profile_of",
    "rank_offers",
    "read_measurement",
    "read_workload",
    "register_op",
    "swings",
    "trace",
    "trace_step",
    "trial",
]


def __getattr__(name: str) -> Any:
    if name == "trace":  # a package that can be called
        return importlib.import_module("outlay.trace")
    home = _HOMES.get(name) or _ON_DEMAND.get(name)
    if home is None:
        raise AttributeError(f"module 'outlay' has no attribute {name!r}")
    return getattr(importlib.import_module(f"outlay.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
