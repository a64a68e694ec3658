"""The profile of a user's training step: traced in a process of its own, at several batch sizes.

profile = profile_of("train.py:step", sample="image 224x224")
write_profile(profile, "mine.json.gz")
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay import errors
from outlay.errors import InputError, OutlayError, TraceFailed
from outlay.trace.store import profile_from_json
from outlay.trace.target import parse_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outlay.trace.trace import Profile

BATCH_SIZES = (2, 4, 8, 32)
"""Three sizes determine the polynomials, the last checks them. A large batch costs no more
time to trace than a small one: nothing is computed."""
SELECTED = 0.5
# Assumes: a selection whose mask only the data could tell keeps half of the elements (a guess:
# padding masks keep more, masked-language labels 0.15). `--selected` gives another share.


def profile_of(
    target: str,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    name: str | None = None,
    description: str = "",
    sample: str = "",
    period: int | None = None,
    selected: float = SELECTED,
) -> Profile:
    """Trace `path/to/file.py:function` and return its profile.

    Needs torch in this Python, but no GPU. `period` is how many consecutive steps to trace and
    average; the step may carry it as an attribute. `selected` is the share of elements that a
    selection by unknown values keeps (docs/tracing.md). A crash of the step, or of the whole
    tracing process, becomes a `TraceFailed`.
    """
    found = parse_target(target)
    request = {
        "target": f"{found.path}:{found.function}",
        "batch_sizes": _checked_sizes(batch_sizes),
        "name": name or found.function,
        "description": description,
        "sample": sample,
        "period": period,
        "selected": checked_share(selected),
    }
    return profile_from_json(answer_of(request), source=target)


def answer_of(request: Mapping[str, object]) -> dict[str, Any]:
    """What the tracing process answers to a request; its errors are raised here."""
    with tempfile.TemporaryDirectory(prefix="outlay-trace-") as folder:
        answer = _ask_child(request, Path(folder))
    if "error" in answer:
        raise _error_from(answer)
    return answer


def _checked_sizes(batch_sizes: Sequence[int]) -> list[int]:
    sizes = sorted(set(batch_sizes))
    if not sizes or sizes[0] < 1:
        raise InputError(
            f"{list(batch_sizes)} are not batch sizes to trace.",
            fix="Give at least three positive sizes, for example 2, 4, 8 and 32.",
        )
    return sizes


def checked_share(selected: float) -> float:
    """The share of elements that a selection keeps, checked to be one."""
    if isinstance(selected, bool) or not 0 < selected <= 1:
        raise InputError(
            f"{selected!r} is not a share of elements that a selection keeps.",
            fix="Give a number above 0 and up to 1, for example 0.25.",
        )
    return float(selected)


def _ask_child(request: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Run the request in a fresh process; what it prints is shown only if it dies."""
    question, reply = folder / "request.json", folder / "reply.json"
    question.write_text(json.dumps(request))
    command = [sys.executable, "-m", "outlay.trace.child", str(question), str(reply)]
    done = subprocess.run(
        command, env=_child_environment(), capture_output=True, text=True, check=False
    )
    if not reply.exists():
        raise _died(done.returncode, done.stderr)
    answer: dict[str, object] = json.loads(reply.read_text())
    return answer


def _child_environment() -> dict[str, str]:
    """The same outlay, and no real GPU: a trace must not take memory from a running job."""
    package_folder = str(Path(__file__).parents[2])
    paths = [package_folder, os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUDA_VISIBLE_DEVICES": "",
    }


def _died(returncode: int, stderr: str) -> TraceFailed:
    """The error for a tracing process that left no answer: is it torch's fault or the step's?"""
    if not torch_can_be_traced():
        return TraceFailed(
            "The torch in this Python cannot be traced.",
            why="Not even a small training step of outlay's own survived on fake CUDA tensors.",
            fix="Install torch 2.13 (the CPU wheel will do): pip install torch==2.13.0.",
        )
    tail = " ".join(stderr.strip().splitlines()[-3:])
    if returncode >= 0:
        what = f"The tracing process ended with status {returncode} and no result."
    else:
        what = f"The tracing process was killed by {_signal_name(-returncode)}."
    return TraceFailed(
        what,
        why=f"Its last words: {tail}" if tail else "It said nothing.",
        fix="Check that the step runs by itself; then try a smaller part of it.",
    )


def torch_can_be_traced() -> bool:
    """Whether a small step survives with this torch, tried in a process of its own."""
    command = [sys.executable, "-m", "outlay.trace.capture.selftest"]
    done = subprocess.run(command, env=_child_environment(), capture_output=True, check=False)
    return done.returncode == 0


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _error_from(answer: Mapping[str, object]) -> OutlayError:
    """The child's error, raised again here."""
    kind = getattr(errors, str(answer["error"]), TraceFailed)
    error: OutlayError = kind(str(answer["what"]), why=str(answer["why"]), fix=str(answer["fix"]))
    return error
