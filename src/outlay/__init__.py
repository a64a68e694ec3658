"""What will this training run cost, and where should it run?

    from pathlib import Path
    import outlay

    workload = outlay.read_workload(Path("outlay.toml"))
    plan = outlay.plan_workload(workload)
    print(plan.chosen)

    report = outlay.trace(step_of, 32)  # step_of(32) returns a training step; needs torch
    print(report.flops, report.peak.memory.peak_bytes, report.peak.site)

Names are imported when first used, so that `import outlay` is quick.
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
    "Offer": "offers.offer",
    "Option": "option",
    "OutlayError": "errors",
    "Plan": "plan",
    "StepReport": "trace.step_report",
    "Workload": "workload",
    "best_offers": "pipeline",
    "bundled_offers": "offers.catalog",
    "find_gpu": "gpu_names",
    "find_profile": "trace.bundled",
    "gpus": "hardware",
    "parse_workload": "workload_file",
    "plan_workload": "pipeline",
    "profile_of": "trace.profile",
    "rank_offers": "pipeline",
    "read_workload": "workload_file",
    "register_op": "trace.formulas",
    "swings": "decide",
    "trace_step": "trace.one_step",
    "trial": "decide",
}

__all__ = [
    "Breakdown",
    "Estimate",
    "Gpu",
    "Line",
    "Offer",
    "Option",
    "OutlayError",
    "Plan",
    "StepReport",
    "Workload",
    "best_offers",
    "bundled_offers",
    "find_gpu",
    "find_profile",
    "gpus",
    "parse_workload",
    "plan_workload",
    "profile_of",
    "rank_offers",
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
    if name not in _HOMES:
        raise AttributeError(f"module 'outlay' has no attribute {name!r}")
    return getattr(importlib.import_module(f"outlay.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
