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
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import InputError, OutlayError
from outlay.trace.blame import blamed
from outlay.trace.changes import changes_from_json
from outlay.trace.envelope import bends, blended, lines_through, upper_envelope
from outlay.trace.fit import aligned, fit_aligned, fit_by_kind, polynomial_through
from outlay.trace.history import history_of, kept_places, storages_align
from outlay.trace.prepared import FOLDER
from outlay.trace.simulate import held_and_needed
from outlay.trace.step_store import report_to_json
from outlay.trace.step_summary import Origin, step_report
from outlay.trace.store import history_to_json, profile_to_json
from outlay.trace.structure import readiness
from outlay.trace.target import Target, load_function, parse_target
from outlay.trace.trace import Blocks, Held, History, Memory, Profile, Structure
from outlay.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from outlay.trace.capture import Capture
    from outlay.trace.step_report import StepReport

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
        with blamed(target, f"at batch size {batch_size}"):
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
    with blamed(target, f"at batch size {batch_size}"):
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
        with blamed(target, f"at batch size {batch_size}"):
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


def _held(captures: Sequence[Capture], history: History | None) -> dict[int, Held]:
    """What the allocator would hold and the least it needs, on a grid of batch sizes.

    Without a common history, each trace's own at the batch size of that trace.
    """
    if history is None:
        return {
            one.batch_size: held_and_needed(_own_history(one), one.batch_size) for one in captures
        }
    points: dict[int, Held] = {}
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
    with blamed(target, "when it was imported"):
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
