"""Every step of a file traced in one process, which imports the file once."""

from __future__ import annotations

import traceback
from functools import cache
from pathlib import Path
from typing import Any

from tests.forked import call_forked

from outlay.trace.step_report import StepReport, report_from_json, report_to_json

BATCH_SIZE = 8


@cache
def reports(file: Path) -> dict[str, StepReport | str]:
    """The report of every step in a file at batch size 8; the error's text where it has none."""
    replies = call_forked("tests.trace.sweep:trace_all", str(file))
    return {
        name: value if isinstance(value, str) else report_from_json(value)
        for name, value in replies.items()
    }


def report(file: Path, name: str) -> StepReport:
    """The report of one step; its error, if it has one, fails the test."""
    result = reports(file)[name]
    assert isinstance(result, StepReport), result
    return result


def flops(report: StepReport, *kinds: str, phase: str | None = None) -> float:
    """FLOPs of the operations of some kinds (of all without any)."""
    chosen = [op for op in report.ops if not kinds or op.kind in kinds]
    return sum(op.flops for op in chosen if phase in (None, op.phase))


def count(report: StepReport, name: str, phase: str | None = None) -> float:
    """How often an operator runs in a step."""
    return sum(op.count for op in report.ops if op.name == name and phase in (None, op.phase))


def notes_text(report: StepReport) -> str:
    """All notes."""
    return " ".join(report.notes)


def trace_all(file: str) -> dict[str, Any]:
    """The report of each public function of a file, or the error it ended with."""
    from outlay.trace.capture import prepare_process
    from outlay.trace.target import Target, load_module
    from outlay.trace.tracing import trace_step

    prepare_process()
    module = load_module(Target(path=Path(file), function="step").path)
    steps = {
        name: value
        for name, value in vars(module).items()
        if callable(value)
        and getattr(value, "__module__", "") == module.__name__
        and name[0] != "_"
    }
    replies: dict[str, Any] = {}
    for name, build in steps.items():
        try:
            replies[name] = report_to_json(trace_step(build, BATCH_SIZE))
        except (Exception, SystemExit):
            replies[name] = traceback.format_exc()
    return replies
