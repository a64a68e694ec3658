"""Pauses between the steps of a training process: evaluations and checkpoints.

A module that is put into evaluation mode and is back in training when the next step is made was
evaluated. One that stays there was not: layers whose statistics are frozen are, for good. Not every
script changes modes: a copy of the model may be in evaluation mode for good. So an evaluation is
also known by time that is spent without gradients.
"""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

from .patches import hide_frames
from .protocol import AfterLastStep

MOSTLY = 0.5
"""Of the time since the last step: so much without gradients is an evaluation."""
OCCASIONAL = 0.5
"""Of the steps: evaluations and checkpoints before more of them are part of the training, as a
generator in evaluation mode is while its critic learns."""
_EVAL_MODE, _NO_GRAD, _SAVE = range(3)
_NONE = (0, 0, 0)


def is_occasional(count: int, steps: int) -> bool:
    """Whether what came before `count` of so many steps is no part of them, but a pause.

    count < steps and count <= 0.5 (steps + 1); once before the first step is part of it.
    """
    return count < steps and count <= OCCASIONAL * (steps + 1)


class PauseWatch:
    """Notes pauses, and keeps them out of what is profiled and recorded."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._last_optimizer = -1
        """That of the last step: in a GAN, a pause may follow each step of one of them."""
        self._counts: dict[int, tuple[tuple[int, ...], int]] = {}
        """Pauses of each kind, and steps, by the optimizer that stepped before them."""
        self._is_switching = False

    def install(self) -> None:
        """Begin to watch."""
        self._watch_modes(self._watch.torch.nn.Module)
        self.install_saves()

    def install_saves(self) -> None:
        """Count and time checkpoints alone."""
        torch, patches = self._watch.torch, self._watch.patches
        # One function under both names, as ever: else it cannot be pickled.
        patches.wrap(torch.serialization, "save", self._timed_save)
        patches.replace(torch, "save", torch.serialization.save)
        for name, function in (
            ("safetensors.torch", "save_file"),
            ("torch.distributed.checkpoint", "save"),
        ):
            patches.once_imported(name, functools.partial(self._time_saves, function))

    def reset(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._counts.clear()
        self._last_optimizer, self._is_switching = -1, False

    def step_ended(self, optimizer: int, passed_s: float) -> None:
        """Note whether there was an evaluation before a step, and keep a pause out."""
        watch = self._watch
        counters = watch.counters
        rest_s = max(passed_s - counters.saved_s, 0.0)
        counters.mostly_no_grad = counters.no_grad_s > MOSTLY * rest_s
        counters.evaluated = any(module.training for module in counters.eval_modules)
        counters.evaluation_s = self._evaluation_s()
        flags = counters.evaluated, counters.mostly_no_grad, counters.saves > 0
        counts, steps = self._counts.get(self._last_optimizer, (_NONE, 0))
        counts = tuple(count + flag for count, flag in zip(counts, flags))  # noqa: B905
        self._counts[self._last_optimizer] = counts, steps + 1
        self._last_optimizer = optimizer
        if watch.recording is not None:
            present = [count for count, flag in zip(counts, flags) if flag]  # noqa: B905
            is_pause = any(is_occasional(count, steps + 1) for count in present)
            watch.recording.step_was(is_pause=is_pause)

    def after_last_step(self, passed_s: float) -> AfterLastStep:
        """What there was since the last step; a model may stay in evaluation mode for good now."""
        counters = self._watch.counters
        rest_s = max(passed_s - counters.saved_s, 0.0)
        is_no_grad = counters.no_grad_s > MOSTLY * rest_s
        return AfterLastStep(
            passed_s=passed_s,
            evaluation_s=self._evaluation_s(),
            has_evaluated=bool(counters.eval_modules) or is_no_grad,
        )

    def _evaluation_s(self) -> float:
        """How long was evaluated since the last step, as far as its end was seen.

        Before the first one, models are made without gradients, and loaded in evaluation mode:
        there an evaluation has batches of its own, or both at once.
        """
        counters = self._watch.counters
        from_s = counters.set_aside_from_s
        if not from_s and self._watch.steps > 1:
            from_s = counters.eval_mode_from_s
        span_s = counters.evaluated_until_s - from_s if from_s else 0.0
        return float(max(span_s, counters.no_grad_s, 0.0))

    # Changes of mode, and checkpoints

    def _watch_modes(self, module_class: Any) -> None:
        """Note a model's change into evaluation mode: `eval` calls `train(False)`, as some do.

        Called for every module of a model, mostly to train: no argument more than needed.
        """
        original = module_class.train

        @functools.wraps(original)
        def train(module: Any, mode: bool = True) -> Any:
            counters = self._watch.counters
            if mode or not module.training or self._is_switching:
                if mode and counters.eval_modules:
                    counters.evaluated_until_s = time.perf_counter()
                try:
                    return original(module, mode)
                except BaseException as error:
                    hide_frames(error)
                    raise
            self._pause_begins(_EVAL_MODE)
            if not counters.eval_mode_from_s:
                counters.eval_mode_from_s = time.perf_counter()
            counters.eval_modules += (module,)
            self._is_switching = True
            try:
                return original(module, mode)
            except BaseException as error:
                hide_frames(error)
                raise
            finally:
                self._is_switching = False

        self._watch.patches.replace(module_class, "train", train)

    def _pause_begins(self, kind: int) -> None:
        """End a profile before what may be a pause."""
        watch = self._watch
        if watch.is_off or watch.training_thread != threading.get_ident():
            return
        if watch.early is not None:
            watch.early.pause_begins()
        if watch.recording is None:
            return
        counts, steps = self._counts.get(self._last_optimizer, (_NONE, 1))
        if is_occasional(counts[kind], steps):
            watch.recording.pause_begins(watch.steps)

    def _time_saves(self, name: str, owner: Any) -> None:
        self._watch.patches.wrap(owner, name, self._timed_save)

    def _timed_save(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        watch = self._watch
        if watch.training_thread and watch.training_thread != threading.get_ident():
            return original(*args, **kwargs)  # training does not wait for it
        self._pause_begins(_SAVE)
        counters = watch.counters
        before_s, saved_s = time.perf_counter(), counters.saved_s
        try:
            return original(*args, **kwargs)
        finally:
            counters.saves += 1
            counters.saved_s = saved_s + time.perf_counter() - before_s


# Time without gradients


class NoGradTime:
    """Adds up the time between steps in which gradients are off, optimizers' own apart.

    Measured where `torch.no_grad`, `inference_mode` or `set_grad_enabled` turns them off or on.
    """

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._off_since_s: float | None = None

    def install(self) -> None:
        """Begin to watch."""
        torch, patches = self._watch.torch, self._watch.patches
        for name in ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled"):
            owner = getattr(torch, name, None)
            if owner is not None:
                patches.wrap(owner, "__enter__", self._on_change)
                patches.wrap(owner, "__exit__", self._on_change)
        patches.wrap(torch.set_grad_enabled, "__init__", self._on_change)  # it does so by itself

    def reset(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._off_since_s = None

    def _is_between_steps(self) -> bool:
        watch = self._watch
        if not watch.steps:
            # Which thread trains is not known yet; weights are made without gradients.
            return bool(watch.counters.eval_modules) and not watch.is_in_optimizer
        return watch.training_thread == threading.get_ident() and not watch.is_in_optimizer

    def _on_change(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if self._is_between_steps():
            is_off = not self._watch.torch.is_grad_enabled()
            if is_off and self._off_since_s is None:
                self._off_since_s = time.perf_counter()
            elif not is_off and self._off_since_s is not None:
                counters, now_s = self._watch.counters, time.perf_counter()
                counters.no_grad_s += now_s - self._off_since_s
                if counters.eval_modules or counters.evaluation_batches:
                    counters.evaluated_until_s = now_s
                self._off_since_s = None
        return result
