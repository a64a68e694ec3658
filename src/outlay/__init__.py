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
    from outlay.errors import OutlayError
    from outlay.hardware.gpu_names import find_gpu
    from outlay.hardware.gpus import Gpu, gpus
    from outlay.inline.block import BlockProbe, probing
    from outlay.inline.lightning import LightningProbe as LightningProbe
    from outlay.inline.notebook import load_ipython_extension as load_ipython_extension
    from outlay.inline.notebook import unload_ipython_extension as unload_ipython_extension
    from outlay.inline.transformers import TrainerProbe as TrainerProbe
    from outlay.measurement.file import read_measurement
    from outlay.measurement.measurement import Measurement
    from outlay.offers.catalog import bundled_offers
    from outlay.offers.offer import Offer
    from outlay.plan.option import Option
    from outlay.plan.pipeline import best_offers, plan_workload, rank_offers
    from outlay.plan.ranking import Plan
    from outlay.plan.sensitivity import swings, trial_value
    from outlay.trace.formulas import register_op
    from outlay.trace.step_report import StepReport
    from outlay.trace.store import find_profile
    from outlay.trace.tracing import profile_of, trace_step
    from outlay.trace.tracing import trace_step as trace
    from outlay.uncertainty import Estimate
    from outlay.workload.file import parse_workload, read_workload
    from outlay.workload.workload import Workload

__version__ = "0.1.0"
"""The one place that has it: the build and `outlay --version` read it here."""

_HOMES = {
    "Breakdown": "cost.lines",
    "Estimate": "uncertainty",
    "Gpu": "hardware.gpus",
    "Line": "cost.lines",
    "Measurement": "measurement.measurement",
    "Offer": "offers.offer",
    "Option": "plan.option",
    "OutlayError": "errors",
    "Plan": "plan.ranking",
    "BlockProbe": "inline.block",
    "StepReport": "trace.step_report",
    "Workload": "workload.workload",
    "best_offers": "plan.pipeline",
    "bundled_offers": "offers.catalog",
    "find_gpu": "hardware.gpu_names",
    "find_profile": "trace.store",
    "gpus": "hardware.gpus",
    "parse_workload": "workload.file",
    "plan_workload": "plan.pipeline",
    "probing": "inline.block",
    "profile_of": "trace.tracing",
    "rank_offers": "plan.pipeline",
    "read_measurement": "measurement.file",
    "read_workload": "workload.file",
    "register_op": "trace.formulas",
    "swings": "plan.sensitivity",
    "trace_step": "trace.tracing",
    "trial_value": "plan.sensitivity",
}
_ON_DEMAND = {
    # Classes of a library's own kind, and what IPython looks for.
    "LightningProbe": "inline.lightning",
    "TrainerProbe": "inline.transformers",
    "load_ipython_extension": "inline.notebook",
    "unload_ipython_extension": "inline.notebook",
}

__all__ = [
    "BlockProbe",
    "Breakdown",
    "Estimate",
    "Gpu",
    "Line",
    "Measurement",
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
    "probing",
    "profile_of",
    "rank_offers",
    "read_measurement",
    "read_workload",
    "register_op",
    "swings",
    "trace",
    "trace_step",
    "trial_value",
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
