"""One training step at one batch size, traced without a GPU and explained.

report = trace_step("train.py:training_step", 32)
print(report.flops, report.peak.memory.peak_bytes, report.peak.site)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from outlay.errors import InputError
from outlay.trace.process import answer_of
from outlay.trace.profile import SELECTED, checked_share
from outlay.trace.step_store import report_from_json
from outlay.trace.step_summary import Origin, step_report
from outlay.trace.target import parse_target

if TYPE_CHECKING:
    from outlay.trace.step_report import StepReport

BATCH_SIZE = 8

Build = Callable[[int], Callable[[], object]]
"""Called with a batch size, returns a function that runs one training step."""


def trace_step(
    step: str | Build,
    batch_size: int = BATCH_SIZE,
    *,
    period: int | None = None,
    selected: float = SELECTED,
    timeout_s: float | None = None,
) -> StepReport:
    """What a training step does: FLOPs, bytes, heaviest operations, memory, and where its peak is.

    `step` is `path/to/file.py:function`, traced in a process of its own, or a callable: both are
    called with the batch size and return a function that runs one step. Needs torch, no GPU.
    `period` is how many consecutive steps to trace; the step may carry it as an attribute.
    `selected` is the share of elements that a selection by unknown values keeps. A target that
    takes over `timeout_s` seconds is given up.

    A callable is traced in this process: torch is changed while it runs, and tells from then on
    that it was built with CUDA; with an untried torch build the process may abort. Its errors
    pass through unchanged, where a target's become `TraceFailed` or `InputError`. Models that
    are alive elsewhere in the process are not counted.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise InputError(
            f"{batch_size!r} is not a batch size.", fix="Give a whole number from 1 upwards."
        )
    if isinstance(step, str):
        request = _request(step, batch_size, period, checked_share(selected))
        return report_from_json(answer_of(request, timeout_s=timeout_s))
    return _trace_callable(step, batch_size, period, checked_share(selected))


def _request(text: str, batch_size: int, period: int | None, selected: float) -> dict[str, object]:
    target = parse_target(text)
    return {
        "wanted": "report",
        "target": f"{target.path}:{target.function}",
        "batch_sizes": [batch_size],
        "name": target.function,
        "period": period,
        "selected": selected,
    }


def _trace_callable(
    build: Build, batch_size: int, period: int | None, selected: float
) -> StepReport:
    from outlay.trace.capture import capture_steps

    function = inspect.unwrap(build)
    code = getattr(function, "__code__", None) or type(function).__call__.__code__
    own_file: str = code.co_filename
    capture = capture_steps(
        build, batch_size, period=period, selected=selected, own_file=own_file, with_lines=True
    )
    name = getattr(build, "__name__", type(build).__name__)
    return step_report(capture, Origin(name=name, target=f"{own_file}:{name}"))
