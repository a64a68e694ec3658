"""Time that a training process spends without gradients between its steps: evaluations, mostly.

Not every script puts a model into evaluation mode for them: a copy of it may be in it for good.
"""

from __future__ import annotations

import threading
import time
from typing import Any


class Gradless:
    """Adds up the time in which gradients are off, optimizers' own apart.

    Seen when `torch.no_grad`, `inference_mode` or `set_grad_enabled` turns them off or on.
    """

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._since_s: float | None = None

    def install(self) -> None:
        """Begin to look."""
        torch, patches = self._watch.torch, self._watch.patches
        for name in ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled"):
            owner = getattr(torch, name, None)
            if owner is not None:
                patches.wrap(owner, "__enter__", self._turned)
                patches.wrap(owner, "__exit__", self._turned)
        patches.wrap(torch.set_grad_enabled, "__init__", self._turned)  # it does so by itself

    def forget(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._since_s = None

    def _is_here(self) -> bool:
        watch = self._watch
        return watch.thread == threading.get_ident() and not watch.is_in_optimizer

    def _turned(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        answer = original(*args, **kwargs)
        if self._is_here():
            is_off = not self._watch.torch.is_grad_enabled()
            if is_off and self._since_s is None:
                self._since_s = time.perf_counter()
            elif not is_off and self._since_s is not None:
                self._watch.since.gradless_s += time.perf_counter() - self._since_s
                self._since_s = None
        return answer
