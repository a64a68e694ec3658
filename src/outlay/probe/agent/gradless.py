"""Time that a training process spends without gradients between its steps: evaluations, mostly.

Not every script puts a model into evaluation mode for them: a copy of it may be in it for good.
"""

from __future__ import annotations

import threading
import time
from typing import Any


class Gradless:
    """Adds up the time in `torch.no_grad` and `torch.inference_mode`, optimizers' own apart."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._depth = 0
        self._since_s = 0.0

    def install(self) -> None:
        """Begin to look."""
        torch, patches = self._watch.torch, self._watch.patches
        for owner in (torch.no_grad, getattr(torch, "inference_mode", None)):
            if owner is not None:
                patches.wrap(owner, "__enter__", self._enter)
                patches.wrap(owner, "__exit__", self._exit)

    def forget(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._depth = 0

    def _is_here(self) -> bool:
        watch = self._watch
        return watch.thread == threading.get_ident() and not watch.is_in_optimizer

    def _enter(self, original: Any, context: Any) -> Any:
        if self._is_here():
            self._depth += 1
            if self._depth == 1:
                self._since_s = time.perf_counter()
        return original(context)

    def _exit(self, original: Any, context: Any, *error: Any) -> Any:
        if self._depth and self._is_here():
            self._depth -= 1
            if not self._depth:
                self._watch.since.gradless_s += time.perf_counter() - self._since_s
        return original(context, *error)
