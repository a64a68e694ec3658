"""The optimizer steps of a training process: what happened before each, and what is due after it.

`StepWatch` holds everything together: a hook after every optimizer step writes its `OptimizerStep`,
and the modules next to this one replace functions of torch by ones that count. One step costs some
15 microseconds.
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
from .batch import FIRST_STEPS, BatchWatch
from .channel import Channel, log_error
from .device import RECORDED_STEPS, AllocationRecorder, CpuQueue, Device, process_info
from .evaluations import NoGradTime, PauseWatch
from .loaders import Epochs, loader_info, patch_loaders
from .optimizers import MOST_OBJECTS, Optimizers, parameters_of
from .patches import FunctionPatches, hide_frames
from .protocol import AgentFailed, AgentRequest, OptimizerStep, TorchImported, step_values
from .recording import CudaGraphs

_REPORT_S = 1.0
"""Memory and the loss are reported once in so long."""
_CPU_S = 0.005
"""CPU time is read once in so long: the kernel adds it up over all threads."""
_FLUSHED_STEPS = 3
"""Steps that are written at once: a process that dies in its fourth is known to train."""
_MEMORY_STEP = 2
"""The step at which persistent memory is reported first, within the warm-up: at the end it may be
gone."""


class StepCounters(OptimizerStep):
    """The record of the step to come, and what is counted besides to fill it in."""

    def reset(self) -> None:
        """Begin anew, after a step."""
        OptimizerStep.reset(self)  # `super` takes longer, and this is called in every step
        self.last_loader = 0
        """The number of the loader that gave the last batch to train on; 0 is none."""
        self.loaders: set[int] = set()
        """All whose batches are counted."""
        self.loads: list[Any] = []
        """What came from loaders, a `Load` for each row of batches."""
        self.eval_modules: tuple[Any, ...] = ()
        """Modules that the script put into evaluation mode."""
        self.no_grad_s = 0.0
        self.eval_mode_from_s = self.set_aside_from_s = self.evaluated_until_s = 0.0
        """When a module was first put into evaluation mode, when the first batch was asked for
        that was set aside, and when it was last seen that such a thing ended; 0 is never."""


class RequestDelay:
    """How many steps later than requested a process acts, where it is alone.

    Several processes must be at the same step, and act without a delay. Steps that come in bursts,
    with long pauses between, are reported only when the next one is made: outlay asks for what is
    past by then.
    """

    def __init__(self) -> None:
        self.is_alone = False
        self._steps: int | None = None
        """None until something is requested."""

    def reset(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._steps = None

    def delayed(self, request: AgentRequest, step: int) -> AgentRequest:
        """The request, after a step, with the delay."""
        if not request.profile_from:
            return request
        if self._steps is None:
            self._steps = max(step - request.profile_from, 0) if self.is_alone else 0
        return request.delayed(self._steps)

    def postpone(self, steps: int) -> bool:
        """Act so many steps later from now on; False where that cannot be."""
        if self._steps is None or not self.is_alone:
            return False
        self._steps += steps
        return True


class StepWatch:
    """Watches one process from the import of torch to its end."""

    def __init__(self, torch: Any, channel: Channel) -> None:
        self.torch = torch
        self.channel = channel
        self.counters = StepCounters()
        self.steps = 0
        self.recent_samples = 0, 0
        """Those that loaders gave for the last step but one, and for the last."""
        self.skipped = 0
        """Steps that a gradient scaler left out, in all."""
        self.training_thread = 0
        """The one that made the last step."""
        self.training_loaders: set[int] = set()
        """Those whose batches are trained on, by their numbers."""
        self.optimizers = Optimizers(self)
        self.backward = Backward(self)
        self.device = Device(torch, channel)
        self._allocations = AllocationRecorder(torch, channel)
        self.graphs = CudaGraphs(self)
        self._no_grad = NoGradTime(self)
        self._ended_s = 0.0
        self.is_off = False
        self.has_sent_final_reports = False
        self.on_stop: Callable[[], None] | None = None
        """Called instead of leaving the process, where it is not ours to leave."""
        self._pid = os.getpid()
        self._running: list[int] = []
        """Optimizers that are in their step, by identity, the outermost first."""
        self._cpu_s = 0.0
        self._cpu_read_s = 0.0
        self._reported_s = 0.0
        self._pauses = PauseWatch(self)
        self.request_delay = RequestDelay()
        self.patches = FunctionPatches()
        self.batch = BatchWatch(self)
        self._cpu_queue = CpuQueue(self)
        self._epochs = Epochs(self, loader_info)
        self.recorder: Any = None
        """Records operations just now, if any does."""
        self.early: Any = None
        """The `EarlyRecording`, while the first steps are recorded."""
        self.is_disturbed = False
        """Whether we have taken time from the step that goes on."""
        self.recording: Any = None
        """The `Recording`, once a profile or the operations are requested."""
        self._shutdown: Any = None

    # Getting in and out

    def install(self) -> None:
        """Begin to watch."""
        torch = self.torch
        self.channel.report(TorchImported(version=str(torch.__version__)))
        optim = importlib.import_module("torch.optim.optimizer")
        before, after = self._before_step, self._after_step
        handles = [
            optim.register_optimizer_step_pre_hook(before),
            optim.register_optimizer_step_post_hook(after),
        ]
        for handle in handles:
            self.patches.finally_do(handle.remove)
        if self.channel.is_shared and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_after_fork)
        if self.channel.is_shared:
            for name in ("execv", "execve", "_exit"):
                self.patches.wrap(os, name, self._before_end)
        self.patches.once_imported(
            "torch._dynamo", lambda dynamo: self._keep_out_of_graphs(optim, dynamo)
        )
        patch_loaders(self)
        self.backward.install()
        scaling = importlib.import_module("torch.amp.grad_scaler")
        self.patches.wrap(scaling.GradScaler, "step", self._count_skipped)
        self._pauses.install()
        self.device.install(self)
        self._allocations.install()
        self.graphs.install()
        self._no_grad.install()

    def _reset_after_fork(self) -> None:
        """Begin anew in a forked process: a loader's worker, or one that trains itself."""
        self._pid = os.getpid()
        self.channel.reset_after_fork()
        self.counters.reset()
        self.steps = 0
        self._no_grad.reset()
        self._pauses.reset()
        self.optimizers.reset()
        self.backward.reset()
        self._running.clear()
        self.batch.stop()
        self._epochs.reset()
        self.recording = self._shutdown = self.recorder = self.early = None
        self.has_sent_final_reports = False
        self.request_delay.reset()

    def uninstall(self) -> None:
        """Leave torch as it was."""
        self.is_off = True
        for recording in (self.early, self.recording):
            if recording is not None:
                recording.abandon()
        self.batch.stop()
        self.patches.undo()

    def _keep_out_of_graphs(self, optim: Any, dynamo: Any) -> None:
        """Where a step is compiled, it is compiled around us."""
        for hooks in (optim._global_optimizer_pre_hooks, optim._global_optimizer_post_hooks):
            for key, hook in list(hooks.items()):
                if getattr(hook, "__self__", None) is self:
                    hooks[key] = dynamo.disable(hook)
        # Our wrappers run as written: else they would be compiled along, once they are called.
        importlib.import_module("torch._dynamo.trace_rules").add(__package__)

    # Steps

    def _count_skipped(
        self, original: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """A gradient scaler's `step`, which may leave the optimizer's out."""
        before = self.steps
        result = original(scaler, optimizer, *args, **kwargs)
        if self.steps == before and not self._running:
            self.counters.skipped += 1
            self.skipped += 1
        return result

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
        if not self.backward.defers(optimizer):
            try:
                self.step_ended(optimizer)
            except BaseException as error:  # the way out, where it is time to stop
                hide_frames(error)
                raise

    def step_ended(self, *optimizers: Any) -> None:
        """Write the record of a step, by one optimizer or several at once; stop where it is due."""
        if self.is_off:
            return
        is_last = False
        recorder = self.recorder
        if recorder is not None:
            recorder.paused += 1  # what we do ourselves is not the script's
        try:
            is_last = self._record_step(optimizers)
        except Exception as error:
            self._disable(error)
        finally:
            if recorder is not None:
                recorder.paused -= 1
        if is_last:
            self._stop_training()

    def _record_step(self, optimizers: tuple[Any, ...]) -> bool:
        """Write the record of a step that has just returned; True when it is time to stop."""
        now_s = time.perf_counter()
        self.steps += 1
        self.training_thread = threading.get_ident()
        if self.steps == 1:
            self._report_process(optimizers[0])
        counters = self.counters
        counters.number = self.steps
        counters.optimizer = self.optimizers.number(optimizers)
        counters.host_s = now_s
        counters.new_epoch = self._epochs.begin()
        passed_s, self._ended_s = now_s - self._ended_s, now_s
        self._pauses.step_ended(counters.optimizer, passed_s)
        counters.cpu_s = self._used_cpu_s(now_s)
        counters.recorded = self.recorder is not None or self.is_disturbed
        self.is_disturbed = False
        self.channel.write_step(step_values(counters))
        self.device.mark(self.steps)
        if self.batch.is_on:
            self.batch.step_ended()
        if now_s - self._reported_s > _REPORT_S:
            self._reported_s = now_s
            self._report_state()
            self.report_loaders()
            self.batch.start()
        elif self.steps < FIRST_STEPS:
            self.batch.start()
        if self.steps == _MEMORY_STEP:
            self.optimizers.report_memory(MOST_OBJECTS)
            self.device.report_math()
            self._ended_s = time.perf_counter()
        if self.steps == RECORDED_STEPS:
            self._allocations.report(self.device.index)
        if self.steps <= _FLUSHED_STEPS:
            self.channel.flush()
        self.recent_samples = self.recent_samples[1], counters.samples
        if self.steps == 1:
            self._begin_early()
        if self.early is not None:
            self.early.after_step(optimizers)
            self._cpu_queue.restart()
            self._ended_s = time.perf_counter()
        counters.reset()
        return self._handle_request()

    def _begin_early(self) -> None:
        """Record the first steps, where outlay wants that."""
        most_steps = self.channel.read_request().early_steps
        if most_steps:
            from .early_recording import EarlyRecording

            self.early = EarlyRecording(self, most_steps)

    def _used_cpu_s(self, now_s: float) -> float:
        """CPU time since it was last read; of short steps, a later one has that of several."""
        if now_s - self._cpu_read_s < _CPU_S:
            return 0.0
        before_s, self._cpu_s = self._cpu_s, time.process_time()
        self._cpu_read_s = now_s
        return self._cpu_s - before_s

    def _handle_request(self) -> bool:
        """Do what outlay wants after this step; True when that is to stop."""
        request = self.request_delay.delayed(self.channel.read_request(), self.steps)
        if request.profile_from or request.record_from:
            if self.recording is None:
                from .recording import Recording

                self.recording = Recording(self)
            self.recording.after_step(self.steps, request)
            request = self.request_delay.delayed(self.channel.read_request(), self.steps)
            self._ended_s = time.perf_counter()
        is_last = bool(request.stop_at and self.steps >= request.stop_at)
        return is_last or self.channel.is_abandoned()

    def _stop_training(self) -> None:
        if self.on_stop is not None:
            self.on_stop()
            return
        if self._shutdown is None:
            from .shutdown import Shutdown

            self._shutdown = Shutdown(self)
        self._shutdown.leave()

    def _disable(self, error: Exception) -> None:
        """Stop watching after an error of our own; the script goes on."""
        log_error(error)
        self.is_off = True
        try:
            self.channel.report(AgentFailed(error=repr(error)))
            self.channel.flush()
        except Exception as second_error:
            log_error(second_error)

    # Reports

    def _report_process(self, optimizer: Any) -> None:
        self._cpu_s, self._cpu_read_s = time.process_time(), time.perf_counter()
        if self.channel.is_shared:
            atexit.register(self._at_exit)
        self.device.identify(next(iter(parameters_of(optimizer)), None))
        info = process_info(self.torch, self.device)
        self.request_delay.is_alone = info.world_size == 1
        self.channel.report(info)

    def report_rest(self) -> None:
        """Report what has been since the last step, where the process ends without another one."""
        if self.steps:
            self.channel.report(self._pauses.after_last_step(time.perf_counter() - self._ended_s))

    def _at_exit(self) -> None:
        """Send the final reports where the script ends by itself, and log figures to trackers."""
        from .shutdown import log_at_exit, send_final_reports

        if os.getpid() != self._pid or not self.steps:
            return
        send_final_reports(self)
        if self._shutdown is None:  # else they were logged when it was stopped
            log_at_exit(self.channel)

    def _before_end(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """`os.execv`, `os._exit`: the program ends, and exit handlers are not called."""
        try:
            if self.steps:
                is_failure = original.__name__ == "_exit" and args != (0,)
                # One that is left in distress may never get what it waits for.
                if is_failure or self.training_thread != threading.get_ident():
                    self.channel.flush()
                else:
                    self._at_exit()
        except Exception as error:
            log_error(error)
        try:
            return original(*args, **kwargs)
        finally:  # it could not become another program, and goes on
            self.has_sent_final_reports = False

    def loader_ended(self, number: int, start: int) -> None:
        """Take in that a loader is at its end."""
        self._epochs.ended(number, start)

    def report_loaders(self) -> None:
        """Report what loaders have given so far."""
        self._epochs.report()

    def _report_state(self) -> None:
        """Report memory, waiting for CPUs, and the loss of a while ago."""
        self.device.report_memory()
        self._cpu_queue.report()
        loss = self.backward.take_loss()
        if loss is not None:
            self.device.report_loss(self.steps, loss)
