"""Evaluations and checkpoints between the steps of a training process.

A module that is put into evaluation mode and is back in training when the next step is made was
evaluated. One that stays there was not: layers whose statistics are frozen are, for good.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

MOSTLY = 0.5
"""Of the time since the last step: so much without gradients is an evaluation."""
SELDOM = 0.5
"""Of the steps: evaluations and checkpoints before more of them are part of the training, as a
generator in evaluation mode is while its critic learns."""
_SWITCHED, _GRADLESS, _SAVED = range(3)
_NONE = (0, 0, 0)


def is_seldom(count: int, steps: int) -> bool:
    """Whether what came before some of the steps is no part of them; once before the first is."""
    return count < steps and count <= SELDOM * (steps + 1)


class PauseWatch:
    """Sees pauses, and keeps them out of what is profiled and recorded."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._last = -1
        """The optimizer of the last step: in a GAN, a pause may follow each of one's."""
        self._counts: dict[int, tuple[tuple[int, ...], int]] = {}
        """Pauses of each kind, and steps, by the optimizer that stepped before them."""
        self._is_switching = False

    def install(self) -> None:
        """Begin to look."""
        torch, patches = self._watch.torch, self._watch.patches
        self._see_switches(torch.nn.Module)
        # One function under both names, as ever: else it cannot be pickled.
        patches.wrap(torch.serialization, "save", self._timed_save)
        patches.replace(torch, "save", torch.serialization.save)
        for name, function in (
            ("safetensors.torch", "save_file"),
            ("torch.distributed.checkpoint", "save"),
        ):
            patches.once_imported(name, functools.partial(self._time_saves, function))

    def forget(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._counts.clear()
        self._last, self._is_switching = -1, False

    def step_ended(self, number: int, passed_s: float) -> None:
        """Tell whether there was an evaluation before a step, and keep a pause out."""
        watch = self._watch
        since = watch.since
        rest_s = max(passed_s - since.saved_s, 0.0)
        since.gradless = since.gradless_s > MOSTLY * rest_s
        since.evaluated = any(module.training for module in since.switched)
        seen = since.evaluated, since.gradless, since.saves > 0
        counts, steps = self._counts.get(self._last, (_NONE, 0))
        counts = tuple(count + one for count, one in zip(counts, seen))  # noqa: B905
        self._counts[self._last] = counts, steps + 1
        self._last = number
        if watch.phases is not None:
            often = [count for count, one in zip(counts, seen) if one]  # noqa: B905
            is_pause = any(is_seldom(count, steps + 1) for count in often)
            watch.phases.step_was(is_pause=is_pause)

    # What is seen

    def _see_switches(self, module_class: Any) -> None:
        """See a model change into evaluation mode: `eval` calls `train(False)`, as some models do.

        Called for every module of a model, mostly to train: no argument more than needed.
        """
        original = module_class.train

        @functools.wraps(original)
        def train(module: Any, mode: bool = True) -> Any:
            if mode or not module.training or self._is_switching:
                return original(module, mode)
            self._begins(_SWITCHED)
            self._watch.since.switched += (module,)
            self._is_switching = True
            try:
                return original(module, mode)
            finally:
                self._is_switching = False

        self._watch.patches.replace(module_class, "train", train)

    def _begins(self, kind: int) -> None:
        """End a profile before what may be a pause."""
        watch = self._watch
        if watch.phases is None or watch.is_off or watch.thread != threading.get_ident():
            return
        counts, steps = self._counts.get(self._last, (_NONE, 1))
        if is_seldom(counts[kind], steps):
            watch.phases.pause_begins(watch.steps)

    def _time_saves(self, name: str, owner: Any) -> None:
        self._watch.patches.wrap(owner, name, self._timed_save)

    def _timed_save(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        watch = self._watch
        if watch.thread and watch.thread != threading.get_ident():  # training does not wait for it
            return original(*args, **kwargs)
        self._begins(_SAVED)
        since = watch.since
        before_s, saved_s = time.perf_counter(), since.saved_s
        try:
            return original(*args, **kwargs)
        finally:
            since.saves += 1
            since.saved_s = saved_s + time.perf_counter() - before_s


# Time that a training process spends without gradients between its steps: evaluations, mostly.
#
# Not every script puts a model into evaluation mode for them: a copy of it may be in it for good.


class NoGradTime:
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
