"""A `StepReport` as JSON and back: how the tracing process hands it over.

Lines of code and points of the timeline are many: a line is written once and named by its place
in a list, a point is a short list.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from outlay.trace.step_report import (
    CATEGORIES,
    CallSite,
    HeavyOp,
    MemoryPoint,
    MemoryTimeline,
    PhaseTotal,
    StepReport,
)
from outlay.trace.trace import Memory

_HEAD = ("name", "target", "batch_size", "period", "parameters", "trainable_parameters")


def report_to_json(report: StepReport) -> dict[str, Any]:
    """The report as plain lists and dictionaries."""
    sites: dict[CallSite | None, int] = {}

    def place(site: CallSite | None) -> int:
        return sites.setdefault(site, len(sites))

    ops = [{**asdict(op), "site": place(op.site)} for op in report.ops]
    points = [
        [point.name, point.phase, place(point.site), *_amounts(point.memory)]
        for point in report.timeline.points
    ]
    return {
        **{name: getattr(report, name) for name in _HEAD},
        "phases": [asdict(total) for total in report.phases],
        "ops": ops,
        "points": points,
        "sites": [None if site is None else asdict(site) for site in sites],
        "versions": dict(report.versions),
        "unknown_ops": dict(report.unknown_ops),
        "notes": list(report.notes),
    }


def _amounts(memory: Memory) -> list[float]:
    return [getattr(memory, category) for category in CATEGORIES]


def report_from_json(document: dict[str, Any]) -> StepReport:
    """The report that `report_to_json` wrote."""
    sites = [None if site is None else CallSite(**site) for site in document["sites"]]
    points = [
        MemoryPoint(
            operation=number,
            name=name,
            phase=phase,
            memory=Memory(**dict(zip(CATEGORIES, amounts, strict=True))),
            site=sites[place],
        )
        for number, (name, phase, place, *amounts) in enumerate(document["points"], start=1)
    ]
    return StepReport(
        **{name: document[name] for name in _HEAD},
        phases=tuple(PhaseTotal(**total) for total in document["phases"]),
        ops=tuple(_op(op, sites) for op in document["ops"]),
        timeline=MemoryTimeline(points=tuple(points), operations=len(points)),
        versions=document["versions"],
        unknown_ops=document["unknown_ops"],
        notes=tuple(document["notes"]),
    )


def _op(document: dict[str, Any], sites: list[CallSite | None]) -> HeavyOp:
    shapes = tuple(tuple(shape) for shape in document["shapes"])
    return HeavyOp(**{**document, "shapes": shapes, "site": sites[document["site"]]})
