"""A failure of the user's code as an error that names their line and a way round it."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.errors import InputError, OutlayError, TraceFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from outlay.trace.target import Target

_INSTALLED = ("site-packages", "dist-packages")
_MESSAGE_AT_MOST = 600


@contextlib.contextmanager
def blamed(target: Target, when: str) -> Iterator[None]:
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
