"""The tracing process: `python -m outlay.trace.child REQUEST.json REPLY.json`.

The reply is a profile, a report of one step, the histories of what it allocates, or
`{"error", "what", "why", "fix"}`. Only a hard abort leaves none. The user's code runs in here: what
fails in it becomes an error that names their line and a way round it.
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
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay.errors import InputError, OutlayError, TraceFailed
from outlay.files import decoded_text
from outlay.trace.batch_scaling import history_of_capture, profile_of_captures
from outlay.trace.dependencies import WATCH
from outlay.trace.own_files import OwnFiles
from outlay.trace.process import FOLDER_PREFIX, write_progress
from outlay.trace.scripts import ScriptTracer, script_captures, script_profile
from outlay.trace.step_report import report_of, report_to_json
from outlay.trace.store import history_to_json, profile_to_json
from outlay.trace.target import changes_from_json, load_function, parse_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from outlay.trace.capture import Capture
    from outlay.trace.profile import Profile
    from outlay.trace.step_report import StepReport
    from outlay.trace.target import StepBuilder, StepFunction, Target

_POLL_S = 1.0


def main(arguments: Sequence[str]) -> None:
    """Answer one request."""
    WATCH.start()
    request_path, reply_path = map(Path, arguments)
    request = json.loads(request_path.read_text())
    request["folder"] = str(request_path.parent)
    warnings.simplefilter("ignore")
    watcher = threading.Thread(
        target=_end_with_parent, args=[os.getppid(), request_path.parent], daemon=True
    )
    watcher.start()
    sys.argv = [str(parse_target(request["target"]).path)]  # as if run without arguments
    os.environ["TORCH_EXTENSIONS_DIR"] = str(request_path.parent / "extensions")
    # A copy, so that code that closes its output does not close where failures are shown.
    with contextlib.redirect_stdout(os.fdopen(os.dup(2), "w", errors="replace")):
        reply = reply_to(request)
    if "error" in reply:
        reply = _tried_with_packages(reply, arguments)
    if request.get("keep"):
        reply["why_not_kept"], reply["dependencies"] = _dependencies(request["folder"])
    partial_path = reply_path.with_suffix(".part")
    partial_path.write_text(json.dumps(reply))
    partial_path.replace(reply_path)
    os._exit(0)  # threads of the user's code may never end


def _dependencies(own_folder: str) -> tuple[str, dict[str, Any] | None]:
    """Why the trace cannot be kept, if so, and what it depends on.

    It was made: whatever the user's code left behind in Python, it is not lost for this.
    """
    try:
        dependencies = asdict(WATCH.dependencies(own_folder))
    except Exception as error:
        return f"{type(error).__name__}: {error}", None
    return WATCH.why_not, dependencies


def _tried_with_packages(reply: dict[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """A failure, after the request was tried with all packages that the step looked for.

    A step may import a package only where it is installed, and fail later without it. A new
    interpreter then answers the request, with stand-ins for those; the first failure is kept.
    """
    stand_ins = sys.modules.get("outlay.trace.libraries.stand_ins")
    first_path = Path(arguments[1]).with_suffix(".first")
    packages = (
        [] if stand_ins is None else stand_ins.wanted_after(f"{reply['what']} {reply['why']}")
    )
    first: dict[str, Any] = json.loads(first_path.read_text()) if first_path.exists() else reply
    if stand_ins is None or not packages:
        return first
    first_path.write_text(json.dumps(first))  # found by the interpreter that comes next
    os.environ[stand_ins.ASSUMED_INSTALLED] = ",".join(packages)
    sys.stderr.flush()
    return os.execv(sys.executable, [sys.executable, "-m", "outlay.trace.child", *arguments])


def _end_with_parent(parent: int, folder: Path) -> None:
    """End this process, and what it has started, when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    if folder.name.startswith(FOLDER_PREFIX):
        shutil.rmtree(folder, ignore_errors=True)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


@cache
def import_torch() -> None:
    """Import what every trace needs, once; that leaves no garbage to look for."""
    gc.disable()
    try:
        from outlay.trace.capture import prepare_process

        prepare_process()
    finally:
        gc.enable()


# Requests


def reply_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a request asks for, or the error it ended with."""
    try:
        import_torch()
        if request["result"] == "report":
            return report_to_json(_report(request))
        if request["result"] == "histories":
            return {"histories": _histories(request)}
        return profile_to_json(_profile(request))
    except OutlayError as error:
        what, why, fix = error.what, error.why, error.fix
        name = "InputError" if isinstance(error, InputError) else type(error).__name__
        return {"error": name, "what": what, "why": why, "fix": fix}


def _profile(request: Mapping[str, Any]) -> Profile:
    """The step at any batch size."""
    target = parse_target(request["target"])
    if target.is_script:
        profile = script_profile(
            _script_tracer(target, request),
            request["batch_sizes"],
            name=request["name"],
            description=request["description"],
            sample=request["sample"],
        )
    else:
        build = _build(target)
        captures = list(_captures(target, build, request))
        description = request["description"] or (build.__doc__ or "").strip().partition("\n")[0]
        profile = profile_of_captures(
            captures, name=request["name"], description=description, sample=request["sample"]
        )
    return replace(
        profile,
        traced_on=_today(),
        versions=_versions(),
        notes=tuple(dict.fromkeys([*profile.notes, *_version_notes()])),
    )


def _report(request: Mapping[str, Any]) -> StepReport:
    """The step at one batch size, with the user's line of each operation."""
    target = parse_target(request["target"])
    notes: list[str] = []
    if target.is_script:
        tracer = _script_tracer(target, request)
        (size,) = request["batch_sizes"]
        capture = tracer.first(size).capture
        notes.append(tracer.batch_note)
    else:
        (capture,) = _captures(target, _build(target), request, with_lines=True)
    report = report_of(
        capture, name=request["name"], target=request["target"], versions=_versions()
    )
    all_notes = (*notes, *report.notes, *_version_notes())
    return replace(report, notes=all_notes, traced_on=_today())


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def _histories(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the step allocates at each batch size, by itself."""
    target = parse_target(request["target"])
    captures = (
        script_captures(_script_tracer(target, request), request["batch_sizes"])
        if target.is_script
        else _captures(target, _build(target), request)
    )
    return {
        str(capture.batch_size): history_to_json(history_of_capture(capture))
        for capture in captures
    }


def _script_tracer(target: Target, request: Mapping[str, Any]) -> ScriptTracer:
    if not changes_from_json(request["changes"]).is_none:
        raise InputError(
            f"{target.path.name} is traced as it is: nothing can be changed in a whole script.",
            fix="Write its step as a function (docs/tracing.md) and name FILE.py:FUNCTION.",
        )
    return ScriptTracer(
        target,
        selected=request["selected"],
        folder=request.get("folder"),
        guard=lambda when: error_naming_line(target, when or "when it was run"),
    )


def _captures(
    target: Target, build: StepBuilder, request: Mapping[str, Any], *, with_lines: bool = False
) -> Iterator[Capture]:
    """The step captured at each batch size of a request."""
    from outlay.trace.capture import capture_steps

    sizes = request["batch_sizes"]
    for place, batch_size in enumerate(sizes):
        telling = partial(_tell, request, target, batch_size, place)
        telling(0.0)
        with error_naming_line(target, f"at batch size {batch_size}"):
            capture = capture_steps(
                build,
                batch_size,
                period=request["period"],
                selected=request["selected"],
                own_file=str(target.path),
                with_lines=with_lines,
                changes=changes_from_json(request["changes"]),
                on_share=telling,
            )
        yield capture


def _tell(
    request: Mapping[str, Any], target: Target, batch_size: int, place: int, share: float
) -> None:
    """Say how far the trace is: at which of its batch sizes, and what share of that is done."""
    sizes = request["batch_sizes"]
    of = f" ({place + 1} of {len(sizes)})" if len(sizes) > 1 else ""
    what = f"Tracing {target.name} at batch size {batch_size}{of} ..."
    if "folder" in request:
        write_progress(Path(request["folder"]), what, place + share, len(sizes))


# Versions


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
_VALIDATED_TORCH = ("2.11", "2.13")
"""Versions of torch whose traces were held against real steps."""


def _versions() -> dict[str, str]:
    """Of the libraries that the step has imported."""
    versions = {}
    for name in _LIBRARIES:
        if name in sys.modules:
            with contextlib.suppress(importlib.metadata.PackageNotFoundError):
                versions[name] = importlib.metadata.version(name)
    return versions


def _version_notes() -> list[str]:
    """A line where this torch is none whose traces were held against real steps."""
    version = _versions().get("torch", "")
    if any(version == valid or version.startswith(f"{valid}.") for valid in _VALIDATED_TORCH):
        return []
    validated = ", ".join(_VALIDATED_TORCH)
    return [
        f"Traced with torch {version}; traces were held against real steps with {validated} only."
    ]


# The user's code


def _build(target: Target) -> StepBuilder:
    """The user's function, checked to return a callable."""
    with error_naming_line(target, "when it was imported"):
        function = load_function(target)

    def build(batch_size: int) -> StepFunction:
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


# Its failures: what to say of them


_LONGEST_MESSAGE = 600


@contextlib.contextmanager
def error_naming_line(target: Target, when: str) -> Iterator[None]:
    """Turn any failure of the user's code into an error that names their line."""
    try:
        yield
    except OutlayError:
        raise
    except SyntaxError as error:
        raise _no_python(error, target) from error
    except (Exception, SystemExit) as error:
        raise _failure(error, target, when) from error


def _no_python(error: SyntaxError, target: Target) -> InputError:
    """The line that is wrong; of a file that is no text, what it is instead."""
    if error.lineno is not None:
        return InputError(
            f"{error.filename or target.path.name}:{error.lineno} is not valid Python: "
            f"{error.msg}.",
            fix="Correct the file and try again.",
        )
    try:
        decoded_text(target.path.read_bytes())
        why = f"Python says: {error.msg}."
    except (OSError, ValueError) as reason:
        why = str(reason)
    return InputError(
        f"{target.path.name} is not valid Python.",
        why=why,
        fix="Name a file of Python code, saved as UTF-8.",
    )


def _failure(error: BaseException, target: Target, when: str) -> TraceFailed:
    text = " ".join(str(error).split()) or "no message"
    return TraceFailed(
        f"{target.name} failed {when}: {_own_line(error, target)}",
        why=f"{type(error).__name__}: {text[:_LONGEST_MESSAGE]}",
        fix=_advice(error, target),
    )


def _own_line(error: BaseException, target: Target) -> str:
    """The user's own line nearest to the failure: `train.py:31 (loss = model(x))`."""
    files = OwnFiles(str(target.path))
    frames = traceback.extract_tb(error.__traceback__)
    own = [(name, frame) for frame in frames if (name := files.name_of(frame.filename))]
    if not own:
        return f"{target.path.name}."
    name, frame = own[-1]
    return f"{name}:{frame.lineno} ({frame.line})."


def _advice(error: BaseException, target: Target) -> str:
    fix = getattr(error, "fix", None)
    if isinstance(fix, str):
        return fix
    specific = _advice_by_type(error, target) or _advice_by_message(error)
    return specific or (
        "Check that the step runs by itself. If it does, it may need values or devices that "
        "a trace does not have: leave that part out, or give it fixed sizes."
    )


def _advice_by_type(error: BaseException, target: Target) -> str | None:
    name = type(error).__name__
    if isinstance(error, ModuleNotFoundError) and error.name:
        name = error.name
        return (
            f"Install {name} into this Python ({sys.executable}). If it is compiled and needs a "
            "GPU, say what its functions return and cost before the import: "
            f'outlay.register_op("{name}.FUNCTION", shapes=..., flops=...).'
        )
    if isinstance(error, FileNotFoundError) and target.is_script:
        return (
            "A trace reads the files that the script reads: put it where the script looks for it. "
            "A small one of the same format will do."
        )
    if isinstance(error, TypeError) and target.function and target.function in str(error):
        return "The function gets the batch size alone: give its other arguments defaults."
    if "DataDependent" in name or "DynamicOutput" in name:
        return (
            "What this line does depends on values, and a trace has none. "
            "Keep it out of the step, or give it a fixed size there."
        )
    if name == "UnsupportedOperatorException":
        return _how_to_declare(str(error))
    if isinstance(error, SystemExit):
        return "Keep what ends the program (sys.exit) out of the step."
    if isinstance(error, EOFError):
        return "A trace has no terminal to read from: give what is asked for a default."
    if isinstance(error, RecursionError):
        return "The code calls itself without end, or needs sys.setrecursionlimit in its file."
    return None


def _advice_by_message(error: BaseException) -> str | None:
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
        return _how_to_declare(text.partition("'")[2].partition("'")[0])
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


def _how_to_declare(operator: str) -> str:
    """How to make an operator of one's own traceable."""
    parts = operator.replace("::", ".").split(".")
    plain = "::".join(parts[:2]) if len(parts) > 1 else operator
    return (
        f'Say what it returns with torch.library.register_fake("{plain}"), and what it costs with '
        f'outlay.register_op("{plain}", flops=...), in your own file.'
    )


if __name__ == "__main__":
    main(sys.argv[1:])
