"""Profiles of several steps of a file from one process, which imports the file once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests.forked import call_forked

from outlay.trace.process import error_from_reply
from outlay.trace.profile import Profile
from outlay.trace.store import profile_from_json
from outlay.trace.target import UNCHANGED, Changes
from outlay.trace.tracing import BATCH_SIZES, profile_request

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
    replies: list[dict[str, Any]] = call_forked("tests.trace.together:reply_to_all", requests)
    return replies


def reply_to_all(requests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reply to each request, as the tracing process gives it."""
    from outlay.trace import child, target

    # An operator that a file registers cannot be registered twice.
    target.load_module = cache(target.load_module)
    return [child.reply_to(request) for request in requests]
