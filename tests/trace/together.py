"""Profiles of several steps of a file from one process: importing torch takes longer than a step.

`python together.py REQUESTS.json REPLIES.json` writes the reply to each request, as the tracing
process gives it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from outlay.trace.process import error_from_reply
from outlay.trace.profile import Profile
from outlay.trace.store import profile_from_json
from outlay.trace.target import UNCHANGED, Changes
from outlay.trace.tracing import BATCH_SIZES, profile_request

ROOT = Path(__file__).parents[2]

Variant = tuple[str, tuple[int, ...], Changes]
"""A function of the file, the batch sizes it is traced at, and what is changed."""


class Together:
    """The profiles of a file's steps: the first that is read brings all of them."""

    def __init__(self, file: Path, variants: Sequence[Variant]) -> None:
        self._file = file
        self._variants = list(variants)

    def profile(
        self,
        function: str,
        batch_sizes: tuple[int, ...] = BATCH_SIZES,
        changes: Changes = UNCHANGED,
    ) -> Profile:
        """The profile of one step, or the error it ended with, raised."""
        index = self._variants.index((function, batch_sizes, changes))
        reply = _replies(self._file, tuple(self._variants))[index]
        if "error" in reply:
            raise error_from_reply(reply)
        return profile_from_json(reply)


@cache
def _replies(file: Path, variants: tuple[Variant, ...]) -> list[dict[str, Any]]:
    requests = [
        profile_request(f"{file}:{function}", sizes, changes=changes)
        for function, sizes, changes in variants
    ]
    with tempfile.TemporaryDirectory() as folder:
        question, reply = Path(folder) / "wanted.json", Path(folder) / "reply.json"
        question.write_text(json.dumps(requests))
        done = subprocess.run(
            [sys.executable, __file__, str(question), str(reply)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert reply.exists(), done.stderr[-3000:]
        replies: list[dict[str, Any]] = json.loads(reply.read_text())
    return replies


def _main(question: str, reply: str) -> None:
    import warnings

    from outlay.trace import child, target

    warnings.simplefilter("ignore")
    # An operator that a file registers cannot be registered twice.
    target.load_module = cache(target.load_module)
    with contextlib.redirect_stdout(sys.stderr):
        replies = [child.reply_to(request) for request in json.loads(Path(question).read_text())]
    Path(reply).write_text(json.dumps(replies))


if __name__ == "__main__":
    _main(*sys.argv[1:])
