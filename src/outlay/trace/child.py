"""The tracing process: `python -m outlay.trace.child REQUEST.json REPLY.json`.

The reply is a profile, a report of one step, or `{"error", "what", "why", "fix"}`. Only a hard
abort leaves none.
"""

from __future__ import annotations

import contextlib
import datetime
import gc
import importlib.metadata
import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import InputError, OutlayError, TraceFailed
from outlay.trace.allocator import held_and_needed
from outlay.trace.batch_scaling import (
    aligned,
    bends,
    blended,
    fit_aligned,
    fit_by_kind,
    history_of,
    kept_places,
    lines_through,
    polynomial_through,
    readiness,
    storages_align,
    upper_envelope,
)
from outlay.trace.process import FOLDER
from outlay.trace.profile import AllocatorUse, Blocks, History, Memory, Profile, Structure
from outlay.trace.step_report import (
    PHASES,
    CallSite,
    HeavyOp,
    MemoryPoint,
    MemoryTimeline,
    PhaseTotal,
    StepReport,
    report_to_json,
)
from outlay.trace.store import history_to_json, profile_to_json
from outlay.trace.target import Target, changes_from_json, load_function, parse_target
from outlay.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from outlay.trace.capture import Capture
    from outlay.trace.profile import Op
    from outlay.trace.step_report import StepReport
    from outlay.trace.target import Target


# A failure of the user's code as an error that names their line and a way round it.


_INSTALLED = ("site-packages", "dist-packages")
_MESSAGE_AT_MOST = 600


@contextlib.contextmanager
def error_naming_line(target: Target, when: str) -> Iterator[None]:
    """Turn any failure of the user's code into an error that names their line."""
    try:
        yield
    except OutlayError:
        raise
    except SyntaxError as error:
        raise InputError(
            f"{error.filename}:{error.lineno} is not valid Python: {error.msg}.",
            fix="Correct the file and try again.",
        ) from error
    except (Exception, SystemExit) as error:
        raise _failure(error, target, when) from error


def _failure(error: BaseException, target: Target, when: str) -> TraceFailed:
    text = " ".join(str(error).split()) or "no message"
    return TraceFailed(
        f"{target.function} failed {when}: {_place(error, target)}",
        why=f"{type(error).__name__}: {text[:_MESSAGE_AT_MOST]}",
        fix=_advice(error, target),
    )


def _place(error: BaseException, target: Target) -> str:
    """The user's own line nearest to the failure: `train.py:31 (loss = model(x))`."""
    frames = traceback.extract_tb(error.__traceback__)
    folder = str(target.path.parent)
    own = [
        frame
        for frame in frames
        if frame.filename.startswith(folder)
        and not any(part in frame.filename for part in _INSTALLED)
    ]
    if not own:
        return f"{target.path.name}."
    frame = own[-1]
    return f"{Path(frame.filename).name}:{frame.lineno} ({frame.line})."


def _advice(error: BaseException, target: Target) -> str:
    fix = getattr(error, "fix", None)
    if isinstance(fix, str):
        return fix
    by_kind = _by_kind(error, target) or _by_text(error)
    return by_kind or (
        "Check that the step runs by itself. If it does, it may need values or devices that "
        "a trace does not have: leave that part out, or give it fixed sizes."
    )


def _by_kind(error: BaseException, target: Target) -> str | None:
    name = type(error).__name__
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"Install {error.name} into this Python ({sys.executable})."
    if isinstance(error, TypeError) and target.function in str(error):
        return "The function gets the batch size alone: give its other arguments defaults."
    if "DataDependent" in name or "DynamicOutput" in name:
        return (
            "What this line does depends on values, and a trace has none. "
            "Keep it out of the step, or give it a fixed size there."
        )
    if name == "UnsupportedOperatorException":
        return _declare(str(error))
    if isinstance(error, SystemExit):
        return "Keep what ends the program (sys.exit) out of the step."
    if isinstance(error, EOFError):
        return "A trace has no terminal to read from: give what is asked for a default."
    if isinstance(error, RecursionError):
        return "The code calls itself without end, or needs sys.setrecursionlimit in its file."
    return None


def _by_text(error: BaseException) -> str | None:
    text = str(error)
    frames = traceback.extract_tb(error.__traceback__)
    if any("triton" in Path(frame.filename).parts for frame in frames) or "triton" in text:
        return (
            "A Triton kernel runs on a GPU alone. Wrap its launch as an operator "
            "(torch.library.triton_op or custom_op), give that a register_fake, and tell its "
            "cost with outlay.register_op."
        )
    if any("torch/nested" in frame.filename.replace(os.sep, "/") for frame in frames):
        return "Nested tensors cannot be traced: pad the sequences to one length when tracing."
    if "from the 'CUDA' backend" in text:
        return _declare(text.partition("'")[2].partition("'")[0])
    if isinstance(error, MemoryError) or "can't allocate memory" in text:
        return (
            "Tensors made while the file is imported are real. Make them inside the function, "
            "where they take no memory."
        )
    if isinstance(error, ImportError | OSError) and ".so" in text:
        return (
            "A compiled extension could not be loaded. Build it for this torch, or import it only "
            "where it is there and declare its operators with torch.library."
        )
    if "not compiled with CUDA" in text or "NVIDIA driver" in text:
        return "This line asks the driver of a real GPU: skip it when tracing."
    return None


def _declare(operator: str) -> str:
    """How to make an operator of one's own traceable."""
    name = operator.replace("::", ".").split(".")
    plain = "::".join(name[:2]) if len(name) > 1 else operator
    return (
        f'Say what it returns with torch.library.register_fake("{plain}"), and what it costs with '
        f'outlay.register_op("{plain}", flops=...), in your own file.'
    )


# A capture of one batch size, summed up as a `StepReport`.


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a step comes from."""

    name: str
    target: str
    versions: Mapping[str, str] = field(default_factory=dict)


def step_report(capture: Capture, origin: Origin) -> StepReport:
    """The report of a capture that was made with call sites."""
    if not capture.ops:
        raise InputError(
            f"{origin.name} returned a step that runs nothing on the GPU.",
            why="Its tensors were made on the CPU, or it calls no operation.",
            fix="Make model and data on torch's default device, and train in the step.",
        )
    return StepReport(
        name=origin.name,
        target=origin.target,
        batch_size=capture.batch_size,
        period=capture.period,
        parameters=capture.parameters,
        trainable_parameters=capture.trainable_parameters,
        phases=_phases(capture),
        ops=_ops(capture),
        timeline=_timeline(capture),
        versions=origin.versions,
        unknown_ops={name: n / capture.period for name, n in capture.unknown_ops.items()},
        notes=capture.notes,
    )


def _phases(capture: Capture) -> tuple[PhaseTotal, ...]:
    totals = []
    for phase in PHASES:
        ops = [op for op in capture.ops if op.phase == phase]
        if phase == "recompute" and not ops:
            continue
        totals.append(
            PhaseTotal(
                phase=phase,
                operations=len(ops) / capture.period,
                launches=sum(op.launches for op in ops) / capture.period,
                flops=sum(op.flops for op in ops) / capture.period,
                moved_bytes=sum(op.moved_bytes for op in ops) / capture.period,
            )
        )
    return tuple(totals)


def _ops(capture: Capture) -> tuple[HeavyOp, ...]:
    """Identical operations of one line together; views are left out."""
    groups: dict[tuple[Op, CallSite | None], int] = {}
    for op, site in zip(capture.ops, capture.sites, strict=True):
        if op.launches:
            groups[op, site] = groups.get((op, site), 0) + 1
    made = [
        HeavyOp(
            name=op.name,
            kind=op.kind,
            phase=op.phase,
            precision=op.precision,
            count=times / capture.period,
            flops=op.flops * times / capture.period,
            moved_bytes=op.moved_bytes * times / capture.period,
            shapes=op.shapes,
            site=site,
        )
        for (op, site), times in groups.items()
    ]
    return tuple(sorted(made, key=lambda op: (-op.flops, -op.moved_bytes)))


def _timeline(capture: Capture) -> MemoryTimeline:
    memories = capture.ledger.memory_at_marks()
    points = [
        MemoryPoint(operation=number, name=op.name, phase=op.phase, memory=memory, site=site)
        for number, (op, memory, site) in enumerate(
            zip(capture.ops, memories, capture.sites, strict=True), start=1
        )
    ]
    return MemoryTimeline(points=tuple(points), operations=len(points))


_GRID = (*range(1, 8), *(n * 2**power for power in range(1, 16) for n in range(4, 8)))
"""Batch sizes at which the allocator is modelled: each up to 8, then four to each doubling."""
_MOST_GROWN_BYTES = 512 * GIB
"""Beyond what one sample takes: models too large for any one GPU are spread over many."""
_LIBRARIES = (
    "torch",
    "torchvision",
    "torchaudio",
    "transformers",
    "timm",
    "diffusers",
    "lightning",
    "pytorch_lightning",
    "accelerate",
    "bitsandbytes",
    "torchao",
    "peft",
    "deepspeed",
    "flash_attn",
    "xformers",
    "triton",
)
_TRIED_TORCH = ("2.11", "2.13")
"""Versions of torch whose traces were held against real steps."""
_LOOK_EVERY_S = 1.0


def main(arguments: Sequence[str]) -> None:
    """Answer one request."""
    question, reply = map(Path, arguments)
    request = json.loads(question.read_text())
    warnings.simplefilter("ignore")
    asking = threading.Thread(target=_end_with, args=[os.getppid(), question.parent], daemon=True)
    asking.start()
    sys.argv = [request["target"].rpartition(":")[0]]  # the file, as if run without arguments
    # A copy, so that code that closes its output does not close where failures are told.
    with contextlib.redirect_stdout(os.fdopen(os.dup(2), "w")):
        found = answer(request)
    written = reply.with_suffix(".part")
    written.write_text(json.dumps(found))
    written.replace(reply)
    os._exit(0)  # threads of the user's code may never end


def _end_with(parent: int, folder: Path) -> None:
    """End this process, and what it has started, when the one that asked is gone."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY_S)
    if folder.name.startswith(FOLDER):
        shutil.rmtree(folder, ignore_errors=True)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


@cache
def import_torch() -> None:
    """Import what every trace needs, once; that leaves no garbage to look for."""
    gc.disable()
    try:
        from outlay.trace.capture import watch_imports

        watch_imports()
    finally:
        gc.enable()


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request asks for, or the error it ended with."""
    try:
        import_torch()
        if request.get("wanted") == "report":
            return report_to_json(_report(request))
        if request.get("wanted") == "histories":
            return {"histories": _histories(request)}
        return profile_to_json(_profile(request))
    except OutlayError as error:
        what, why, fix = error.what, error.why, error.fix
        name = "InputError" if isinstance(error, InputError) else type(error).__name__
        return {"error": name, "what": what, "why": why, "fix": fix}


def _profile(request: Mapping[str, Any]) -> Profile:
    from outlay.trace.capture import capture_steps

    target = parse_target(request["target"])
    build = _build(target)
    captures = []
    for batch_size in request["batch_sizes"]:
        with error_naming_line(target, f"at batch size {batch_size}"):
            captures.append(
                capture_steps(
                    build,
                    batch_size,
                    period=request["period"],
                    selected=request["selected"],
                    own_file=str(target.path),
                    changes=changes_from_json(request.get("changes")),
                )
            )
    description = request["description"] or (build.__doc__ or "").strip().partition("\n")[0]
    return _profile_from(
        captures, name=request["name"], description=description, sample=request["sample"]
    )


def _report(request: Mapping[str, Any]) -> StepReport:
    """The step at one batch size, with the user's line of each operation."""
    from outlay.trace.capture import capture_steps

    target = parse_target(request["target"])
    build = _build(target)
    (batch_size,) = request["batch_sizes"]
    with error_naming_line(target, f"at batch size {batch_size}"):
        capture = capture_steps(
            build,
            batch_size,
            period=request["period"],
            selected=request["selected"],
            own_file=str(target.path),
            with_lines=True,
        )
    origin = Origin(name=request["name"], target=request["target"], versions=_versions())
    report = step_report(capture, origin)
    return replace(report, notes=(*report.notes, *_untried()))


def _histories(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the step allocates at each batch size, by itself."""
    from outlay.trace.capture import capture_steps

    target = parse_target(request["target"])
    build = _build(target)
    histories = {}
    for batch_size in request["batch_sizes"]:
        with error_naming_line(target, f"at batch size {batch_size}"):
            capture = capture_steps(
                build,
                batch_size,
                period=request["period"],
                selected=request["selected"],
                own_file=str(target.path),
                changes=changes_from_json(request.get("changes")),
            )
        histories[str(batch_size)] = history_to_json(_own_history(capture))
    return histories


def _own_history(capture: Capture) -> History:
    """What one trace allocated, at its batch size alone."""
    ledger = capture.ledger
    places = kept_places(ledger.history, ledger.step_starts)
    storages = [ledger.history[place] for place in places]
    return history_of([capture.batch_size], [storages], ledger.optional, ledger.conditions)


def _profile_from(
    captures: Sequence[Capture], *, name: str, description: str, sample: str
) -> Profile:
    """One profile from the captures at several batch sizes, ascending."""
    last = captures[-1]
    sizes = tuple(capture.batch_size for capture in captures)
    traces = [capture.ops for capture in captures]
    history = _history(captures)
    fit = fit_aligned if aligned(traces) else fit_by_kind
    ops, notes = fit(sizes, traces, last.period)
    return Profile(
        name=name,
        description=description,
        sample=sample,
        parameters=last.parameters,
        trainable_parameters=last.trainable_parameters,
        ops=ops,
        memory=_memory(captures),
        held=_held(captures, history),
        history=history,
        issued_ops=len(last.ops) / last.period,
        structure=_structure(captures),
        period=last.period,
        traced_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
        versions=_versions(),
        unknown_ops={name: n / last.period for name, n in last.unknown_ops.items()},
        notes=tuple(dict.fromkeys([*last.notes, *notes, *_too_few(sizes), *_untried()])),
    )


def _structure(captures: Sequence[Capture]) -> Structure:
    """Blocks and gradients; what blocks hand on at any batch size."""
    last = captures[-1]
    sizes = tuple(capture.batch_size for capture in captures)
    alike = all(capture.blocks.keys() == last.blocks.keys() for capture in captures)
    blocks = []
    for key, outputs in last.blocks.items():
        name, parameters, width = key
        taken = captures if alike else captures[-1:]
        means = tuple(sum(one.blocks[key]) / len(one.blocks[key]) for one in taken)
        polynomial, _ = polynomial_through(sizes[-len(taken) :], means)
        blocks.append(
            Blocks(
                name=name,
                count=len(outputs),
                parameters=parameters,
                output_bytes=polynomial,
                width=width,
            )
        )
    return Structure(
        blocks=tuple(blocks),
        gradient_bytes=sum(size for _, size in last.gradients) / last.period,
        ready=readiness(last.ops, last.gradients),
    )


def _memory(captures: Sequence[Capture]) -> dict[int, Memory]:
    """Peak memory where it was traced, and where another moment of the step becomes the peak."""
    points = {capture.batch_size: capture.ledger.peak() for capture in captures}
    if len(captures) < 2:
        return points
    low, high = captures[-2:]
    sizes = low.batch_size, high.batch_size
    live_bytes = low.ledger.live_bytes(), high.ledger.live_bytes()
    if len(live_bytes[0]) == len(live_bytes[1]):
        envelope = upper_envelope(lines_through(sizes, live_bytes))
        for batch_size, line in bends(envelope).items():
            ends = low.ledger.memory_at(line.event), high.ledger.memory_at(line.event)
            points.setdefault(batch_size, blended(sizes, ends, batch_size))
    return dict(sorted(points.items()))


def _history(captures: Sequence[Capture]) -> History | None:
    """What is allocated and freed at any batch size, or None where no two traces line up."""
    last = captures[-1].ledger
    alike = [one for one in captures if storages_align(one.ledger.history, last.history)]
    if len(alike) < 2:
        return None
    places = kept_places(last.history, last.step_starts)
    traces = [[one.ledger.history[place] for place in places] for one in alike]
    sizes = [one.batch_size for one in alike]
    return history_of(sizes, traces, last.optional, last.conditions)


def _held(captures: Sequence[Capture], history: History | None) -> dict[int, AllocatorUse]:
    """What the allocator would hold and the least it needs, on a grid of batch sizes.

    Without a common history, each trace's own at the batch size of that trace.
    """
    if history is None:
        return {
            one.batch_size: held_and_needed(_own_history(one), one.batch_size) for one in captures
        }
    points: dict[int, AllocatorUse] = {}
    for batch_size in _GRID:
        points[batch_size] = held_and_needed(history, batch_size)
        grown_bytes = points[batch_size].reserved_bytes - points[_GRID[0]].reserved_bytes
        if grown_bytes > _MOST_GROWN_BYTES:
            break
    return points


def _too_few(sizes: tuple[int, ...]) -> list[str]:
    if len(sizes) > 3:
        return []
    return [f"Traced at {len(sizes)} batch sizes only: other sizes are extrapolated unchecked."]


def _versions() -> dict[str, str]:
    imported = [name for name in _LIBRARIES if name in sys.modules]
    versions = {}
    for name in imported:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def _untried() -> list[str]:
    """A line where this torch is none whose traces were held against real steps."""
    version = _versions().get("torch", "")
    if any(version == tried or version.startswith(f"{tried}.") for tried in _TRIED_TORCH):
        return []
    tried = ", ".join(_TRIED_TORCH)
    return [f"Traced with torch {version}; traces were held against real steps with {tried} only."]


# The user's code


def _build(target: Target) -> Callable[[int], Callable[[], object]]:
    """The user's function, checked to return a callable."""
    with error_naming_line(target, "when it was imported"):
        function = load_function(target)

    def build(batch_size: int) -> Callable[[], object]:
        step = function(batch_size)
        if not callable(step):
            raise InputError(
                f"{target.function} in {target.path.name} returned a {type(step).__name__}, "
                "not a training step.",
                fix="Return a function without arguments that runs one training step.",
            )
        return step

    build.__doc__ = function.__doc__
    return build


if __name__ == "__main__":
    main(sys.argv[1:])
