"""Trace a user's training step: at any batch size (`profile_of`) or at one (`trace_step`).

    profile = profile_of("train.py:training_step", sample="image 224x224")
    write_profile(profile, "mine.json.gz")

    report = trace_step("train.py:training_step", 32)
    print(report.flops, report.peak.memory.peak_bytes, report.peak.site)

A step of a file is traced in a process of its own (`outlay.trace.process`), a callable in this one.
"""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from outlay.errors import InputError, OutlayError
from outlay.progress import Progress, silent
from outlay.trace.process import run_request
from outlay.trace.step_report import report_from_json, report_of
from outlay.trace.store import history_from_json, profile_from_json
from outlay.trace.target import (
    BATCH_SIZE,
    SELECTED,
    UNCHANGED,
    Changes,
    Target,
    changes_to_json,
    parse_target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from outlay.trace.profile import History, Profile
    from outlay.trace.step_report import StepReport
    from outlay.trace.target import StepBuilder
    from outlay.trace.trace_cache import TraceCache

BATCH_SIZES = (2, 4, 8, 32)
"""Three sizes determine the polynomials, the last checks them. A large batch costs no more
time to trace than a small one: nothing is computed."""


def profile_of(
    target: str,
    batch_sizes: Sequence[int] | None = None,
    *,
    name: str | None = None,
    description: str = "",
    sample: str = "",
    period: int | None = None,
    selected: float = SELECTED,
    changes: Changes = UNCHANGED,
    timeout_s: float | None = None,
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> Profile:
    """Trace `path/to/file.py:function`, or the script in `train.py -- ARGUMENTS`.

    Needs torch in this Python, but no GPU. `period` is how many consecutive steps to trace and
    average; the step may carry it as an attribute. `selected` is the share of elements that a
    selection by unknown values keeps (docs/tracing.md); `changes` are made to the step. A crash of
    the step, of the whole tracing process, or a trace of over `timeout_s` seconds becomes a
    `TraceFailed`. A trace of before is taken from the `cache` where all that it depends on is as it
    was (True is the user's own; the profile says so); `progress` hears how far it is.
    """
    request = profile_request(
        target,
        batch_sizes,
        name=name,
        description=description,
        sample=sample,
        period=period,
        selected=selected,
        changes=changes,
    )

    def read(reply: dict[str, Any]) -> Profile:
        profile = profile_from_json(reply, source=target)
        return replace(profile, from_cache="kept_on" in reply)

    return _answer(request, read, timeout_s, cache, progress)


def histories_of(
    target: str,
    batch_sizes: Sequence[int],
    *,
    period: int | None = None,
    selected: float = SELECTED,
    changes: Changes = UNCHANGED,
    timeout_s: float | None = None,
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> dict[int, History]:
    """What a step allocates and frees at each batch size, from a trace at that very size."""
    request = _request("histories", target, batch_sizes, period, selected, changes)

    def read(reply: dict[str, Any]) -> dict[int, History]:
        histories = reply["histories"].items()
        return {int(size): history_from_json(history) for size, history in histories}

    return _answer(request, read, timeout_s, cache, progress)


def trace_step(
    step: str | StepBuilder,
    batch_size: int | None = None,
    *,
    period: int | None = None,
    selected: float = SELECTED,
    timeout_s: float | None = None,
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> StepReport:
    """What a training step does: FLOPs, bytes, heaviest operations, memory, and where its peak is.

    `step` is `path/to/file.py:function`, traced in a process of its own, or a callable: both are
    called with the batch size (8 without one) and return a function that runs one step. Or it is
    `path/to/train.py -- ARGUMENTS`: a script, run unchanged up to its first steps, at a batch size
    of its own without one (`script_target` writes it). Needs torch, no GPU.
    `period` is how many consecutive steps to trace; the step may carry it as an attribute.
    `selected` is the share of elements that a selection by unknown values keeps. A target that
    takes over `timeout_s` seconds is given up; `cache` and `progress` are as for `profile_of`.

    A callable is traced in this process: torch is changed while it runs, and says from then on
    that it was built with CUDA; with an untried torch build the process may abort. Its errors
    pass through unchanged, where a target's become `TraceFailed` or `InputError`. Models that
    are alive elsewhere in the process are not counted.
    """
    is_size = isinstance(batch_size, int) and not isinstance(batch_size, bool) and batch_size > 0
    if batch_size is not None and not is_size:
        raise InputError(
            f"{batch_size!r} is not a batch size.", fix="Give a whole number from 1 upwards."
        )
    if isinstance(step, str):
        request = _request("report", step, [batch_size], period, selected)

        def read(reply: dict[str, Any]) -> StepReport:
            return replace(report_from_json(reply), from_cache="kept_on" in reply)

        return _answer(request, read, timeout_s, cache, progress)
    return _trace_callable(step, batch_size or BATCH_SIZE, period, _checked_share(selected))


def _trace_callable(
    build: StepBuilder, batch_size: int, period: int | None, selected: float
) -> StepReport:
    from outlay.trace.capture import capture_steps

    function = inspect.unwrap(build)
    code = getattr(function, "__code__", None) or type(function).__call__.__code__
    own_file: str = code.co_filename
    capture = capture_steps(
        build, batch_size, period=period, selected=selected, own_file=own_file, with_lines=True
    )
    name = getattr(build, "__name__", type(build).__name__)
    report = report_of(capture, name=name, target=f"{own_file}:{name}")
    return replace(report, traced_on=datetime.now(UTC).date().isoformat())


# Requests


_Answer = TypeVar("_Answer")


def _answer(
    request: dict[str, object],
    read: Callable[[dict[str, Any]], _Answer],
    timeout_s: float | None,
    cache: TraceCache | bool,
    progress: Progress,
) -> _Answer:
    """What a request asks for, made of its reply; one that was kept and is odd is made anew."""
    reply = run_request(request, timeout_s=timeout_s, cache=cache, progress=progress)
    if "kept_on" not in reply:
        return read(reply)
    try:
        return read(reply)
    except (OutlayError, KeyError, TypeError, ValueError, AttributeError):
        return read(run_request(request, timeout_s=timeout_s, cache=False, progress=progress))


def profile_request(
    target: str,
    batch_sizes: Sequence[int] | None = None,
    *,
    name: str | None = None,
    description: str = "",
    sample: str = "",
    period: int | None = None,
    selected: float = SELECTED,
    changes: Changes = UNCHANGED,
) -> dict[str, object]:
    """The request for a profile, as the tracing process reads it."""
    request = _request("profile", target, batch_sizes, period, selected, changes)
    return {
        **request,
        "name": name or request["name"],
        "description": description,
        "sample": sample,
    }


def _request(
    result: Literal["profile", "report", "histories"],
    target: str,
    batch_sizes: Sequence[int | None] | None,
    period: int | None,
    selected: float,
    changes: Changes = UNCHANGED,
) -> dict[str, object]:
    """What every request says: what is to come back, which step to trace, and how."""
    step = parse_target(target)
    return {
        "result": result,
        "target": step.text,
        "name": step.name,
        "batch_sizes": _sizes(step, batch_sizes),
        "period": period,
        "selected": _checked_share(selected),
        "changes": changes_to_json(changes),
    }


def _sizes(step: Target, batch_sizes: Sequence[int | None] | None) -> list[int] | list[None] | None:
    """The batch sizes to trace at; None leaves a script its own, or sizes around it."""
    if step.is_script and (batch_sizes is None or None in batch_sizes):
        return None if batch_sizes is None else [None]
    if batch_sizes == [None]:
        return [BATCH_SIZE]
    given = BATCH_SIZES if batch_sizes is None else batch_sizes
    return _checked_sizes([size for size in given if size is not None])


def _checked_sizes(batch_sizes: Sequence[int]) -> list[int]:
    sizes = sorted(set(batch_sizes))
    if not sizes or sizes[0] < 1:
        raise InputError(
            f"{list(batch_sizes)} are not batch sizes to trace.",
            fix="Give at least three positive sizes, for example 2, 4, 8 and 32.",
        )
    return sizes


def _checked_share(selected: float) -> float:
    """The share of elements that a selection keeps, checked to be one."""
    if isinstance(selected, bool) or not 0 < selected <= 1:
        raise InputError(
            f"{selected!r} is not a share of elements that a selection keeps.",
            fix="Give a number above 0 and up to 1, for example 0.25.",
        )
    return float(selected)
