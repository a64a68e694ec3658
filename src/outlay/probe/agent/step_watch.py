"""The optimizers of a training process: each of their steps, and what happened since the last one.

Everything that changes torch is here and in the modules next to it: a hook after every optimizer
step, and thin wrappers around functions that count. One step costs some 15 microseconds.
"""

from __future__ import annotations

import atexit
import importlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

from .backward import Backward
from .batch import BATCH_LOOKED_FOR, BatchLook
from .channel import Channel, RequestDelay, StepCounters, complain
from .device import STEPS, Allocations, CpuQueue, Device, process_values
from .evaluations import NoGradTime, PauseWatch
from .loaders import Epochs, count_batches, known_facts
from .optimizers import MOST_OBJECTS, Optimizers, parameters_of
from .patches import FunctionPatches
from .recording import Graphs

_LOOK_S = 1.0
"""Memory and the loss are looked at once in so long."""
_CPU_S = 0.005
"""CPU time is asked for once in so long: the kernel adds it up over all threads."""
_TOLD_AT_ONCE = 3
"""Steps that are told at once: a process that dies in its fourth has been seen to train."""
_HELD_AT = 2
"""The step at which what stays is told first, within the warm-up: at the end it may be gone."""


class StepWatch:
    """Watches one process from the import of torch to its end."""

    def __init__(self, torch: Any, channel: Channel) -> None:
        self.torch = torch
        self.channel = channel
        self.since = StepCounters()
        self.steps = 0
        self.samples = 0, 0
        """Those that loaders gave for the last step but one, and for the last."""
        self.skipped = 0
        """Steps that a gradient scaler left out, in all."""
        self.thread = 0
        """The one that made the last step."""
        self.loaders: set[int] = set()
        """Those whose batches are trained on, by their numbers."""
        self.optimizers = Optimizers(self)
        self.backward = Backward(self)
        self.device = Device(torch, channel)
        self._allocations = Allocations(torch, channel)
        self.graphs = Graphs(self)
        self._gradless = NoGradTime(self)
        self._ended_s = 0.0
        self.is_off = False
        self.has_said_last = False
        self.on_stop: Callable[[], None] | None = None
        """Called instead of leaving the process, where it is not ours to leave."""
        self._pid = os.getpid()
        self._running: list[int] = []
        self._cpu_s = 0.0
        self._cpu_read_s = 0.0
        self._looked_s = 0.0
        self._pausing = PauseWatch(self)
        self.delay = RequestDelay()
        self.patches = FunctionPatches()
        self.batch = BatchLook(self)
        self._queue = CpuQueue(self)
        self._epochs = Epochs(self, known_facts)
        self.recorder: Any = None
        """Records operations just now, if any does."""
        self.phases: Any = None
        """What is profiled and recorded, once that is asked for."""
        self._leaving: Any = None

    # Getting in and out

    def install(self) -> None:
        """Begin to watch."""
        torch = self.torch
        self.channel.tell_values("torch", {"version": str(torch.__version__)})
        optim = importlib.import_module("torch.optim.optimizer")
        before, after = self._before_step, self._after_step
        handles = [
            optim.register_optimizer_step_pre_hook(before),
            optim.register_optimizer_step_post_hook(after),
        ]
        for handle in handles:
            self.patches.finally_do(handle.remove)
        if self.channel.is_shared and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)
        self.patches.once_imported(
            "torch._dynamo", lambda dynamo: self._keep_out_of_graphs(optim, dynamo)
        )
        count_batches(self)
        self.backward.install()
        scaling = importlib.import_module("torch.amp.grad_scaler")
        self.patches.wrap(scaling.GradScaler, "step", self._counted_scaler)
        self._pausing.install()
        self.device.install(self)
        self._allocations.install()
        self.graphs.install()
        self._gradless.install()

    def _forked(self) -> None:
        """Begin anew in a forked process: a loader's worker, or one that trains itself."""
        self._pid = os.getpid()
        self.channel.forked()
        self.since.clear()
        self.steps = 0
        self._gradless.forget()
        self._pausing.forget()
        self.optimizers.forget()
        self.backward.forget()
        self._running.clear()
        self.batch.forget()
        self._epochs.forget()
        self.phases = self._leaving = self.recorder = None
        self.has_said_last = False
        self.delay.forget()

    def uninstall(self) -> None:
        """Leave torch as it was."""
        self.is_off = True
        if self.phases is not None:
            self.phases.abandon()
        self.batch.forget()
        self.patches.undo()

    def _keep_out_of_graphs(self, optim: Any, dynamo: Any) -> None:
        """Where a step is compiled, it is compiled around us."""
        for hooks in (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks):
            for key, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    hooks[key] = dynamo.disable(hook)
        # Our wrappers run as written: else they would be compiled along, once they are called.
        importlib.import_module("torch._dynamo.trace_rules").add(__package__)

    # What is counted

    def _counted_scaler(
        self, original: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        before = self.steps
        result = original(scaler, optimizer, *args, **kwargs)
        if self.steps == before and not self._running:
            self.since.skipped += 1
            self.skipped += 1
        return result

    # Steps

    @property
    def is_in_optimizer(self) -> bool:
        """Whether an optimizer is in its step just now."""
        return bool(self._running)

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        key = id(optimizer)
        if key in self._running:  # its last step was left by an exception
            del self._running[self._running.index(key) :]
        self._running.append(key)
        if self.recorder is not None:
            self.recorder.before_update(optimizer)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        key = id(optimizer)
        if key in self._running:
            del self._running[self._running.index(key) :]
        if self.recorder is not None:
            self.recorder.after_update()
        # An optimizer within another is no step of its own; one that is captured runs later.
        if self._running or self.is_off or self.graphs.captures(optimizer):
            return
        if not self.backward.holds(optimizer):
            self.step_ended(optimizer)

    def step_ended(self, *optimizers: Any) -> None:
        """Tell of a step, by one optimizer or several at once; leave, where it is time to."""
        if self.is_off:
            return
        leave = False
        try:
            leave = self._note_step(optimizers)
        except Exception as error:
            self._give_up(error)
        if leave:
            self._leave()

    def _note_step(self, optimizers: tuple[Any, ...]) -> bool:
        """Tell of a step that has just returned; True when it is time to stop."""
        now_s = time.perf_counter()
        self.steps += 1
        self.thread = threading.get_ident()
        if self.steps == 1:
            self._introduce(optimizers[0])
        number = self.optimizers.number(optimizers)
        self.since.new_epoch = self._epochs.begin()
        passed_s, self._ended_s = now_s - self._ended_s, now_s
        self._pausing.step_ended(number, passed_s)
        cpu_s = self._used_cpu_s(now_s)
        self.channel.tell_step(self.since.told(self.steps, number, now_s, cpu_s))
        self.device.mark(self.steps)
        if self.batch.is_on:
            self.batch.step_ended()
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            self._look()
            self.batch.look()
        elif self.steps < BATCH_LOOKED_FOR:
            self.batch.look()
        if self.steps == _HELD_AT:
            self.optimizers.tell_held(MOST_OBJECTS)
            self._ended_s = time.perf_counter()
        if self.steps == STEPS:
            self._allocations.tell(self.device.index)
        if self.steps <= _TOLD_AT_ONCE:
            self.channel.flush()
        self.samples = self.samples[1], self.since.samples
        self.since.clear()
        return self._obey()

    def _used_cpu_s(self, now_s: float) -> float:
        """CPU time since it was last asked for; of short steps, a later one has that of several."""
        if now_s - self._cpu_read_s < _CPU_S:
            return 0.0
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        self._cpu_read_s = now_s
        return self._cpu_s - before_s

    def _obey(self) -> bool:
        asked = self.delay.of(self.channel.reads(), self.steps)
        if asked.profile_from or asked.record_from:
            if self.phases is None:
                from .recording import Recording

                self.phases = Recording(self)
            self.phases.at(self.steps, asked)
            asked = self.delay.of(self.channel.reads(), self.steps)
            self._ended_s = time.perf_counter()
        return bool(asked.stop_at and self.steps >= asked.stop_at) or self.channel.is_deserted()

    def _leave(self) -> None:
        if self.on_stop is not None:
            self.on_stop()
            return
        if self._leaving is None:
            from .shutdown import Shutdown

            self._leaving = Shutdown(self)
        self._leaving.leave()

    def _give_up(self, error: Exception) -> None:
        """Stop watching; the script goes on."""
        complain(error)
        self.is_off = True
        try:
            self.channel.tell_values("broken", {"error": repr(error)})
            self.channel.flush()
        except Exception as second:
            complain(second)

    # What is told of the process

    def _introduce(self, optimizer: Any) -> None:
        self._cpu_s, self._cpu_read_s = time.process_time(), time.perf_counter()
        if self.channel.is_shared:
            atexit.register(self._at_exit)
        found = self.device.introduced(next(iter(parameters_of(optimizer)), None))
        values = process_values(self.torch)
        self.delay.is_alone = values["world_size"] == 1
        self.channel.tell_values("process", {**values, **found})

    def _at_exit(self) -> None:
        """Tell the rest, where the script ends by itself, and log to trackers what came of it."""
        from .shutdown import last_words, log_at_exit

        if os.getpid() != self._pid or not self.steps:
            return
        last_words(self)
        if self._leaving is None:  # else they were logged when it was stopped
            log_at_exit(self.channel)

    def _look(self) -> None:
        """Memory, and the loss of a while ago."""
        self.device.look()
        self._queue.look()
        loss = self.backward.loss()
        if loss is not None:
            self.device.keep_value(self.steps, loss)
