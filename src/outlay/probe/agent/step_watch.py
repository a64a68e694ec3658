"""The optimizer steps of a training process: what happened before each, and what is due after it.

`StepWatch` holds everything together: a hook after every optimizer step writes its `OptimizerStep`,
and the modules next to this one replace functions of torch by ones that count. One step costs some
15 microseconds. `LongRunWatch` only counts, for runs of days: a thread of its own writes the number
of steps once a second, and looks where the training thread is when none come.
"""

from __future__ import annotations

import atexit
import dis
import functools
import importlib
import os
import sys
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
from .protocol import (
    LONG_RUN_FILE,
    LONG_RUN_VARIABLE,
    AgentFailed,
    AgentRequest,
    OptimizerStep,
    RunProgress,
    TorchImported,
    step_values,
)
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
        self._install_steps()
        self.backward.install()
        if self.channel.is_shared:
            for name in ("execv", "execve", "_exit"):
                self.patches.wrap(os, name, self._before_end)
        patch_loaders(self)
        scaling = importlib.import_module("torch.amp.grad_scaler")
        self.patches.wrap(scaling.GradScaler, "step", self._count_skipped)
        self._pauses.install()
        self.device.install(self)
        self._allocations.install()
        self._no_grad.install()

    def _install_steps(self) -> None:
        """Begin to see steps of optimizers, in graphs as well."""
        self.channel.report(TorchImported(version=str(self.torch.__version__)))
        optim = importlib.import_module("torch.optim.optimizer")
        for handle in self._step_hooks(optim):
            self.patches.finally_do(handle.remove)
        if self.channel.is_shared and hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_after_fork)
        self.patches.once_imported(
            "torch._dynamo", lambda dynamo: self._keep_out_of_graphs(optim, dynamo)
        )
        self.graphs.install()

    def _step_hooks(self, optim: Any) -> list[Any]:
        before, after = self._before_step, self._after_step
        return [
            optim.register_optimizer_step_pre_hook(before),
            optim.register_optimizer_step_post_hook(after),
        ]

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


# A run of days

_BEAT_S = 1.0
_LOSS_BEATS = 10
"""The loss is looked at once in so many."""
_SILENT_BEATS = 10
"""Without a step for so many, the training thread is looked at ..."""
_LOOK_BEATS = 3
"""... once in so many."""
_MOST_BYTES = 2**18
"""Of the lines of one process: what was said before is no news any more."""
_MOST_FRAMES = 500


def long_run_beat_s(folder: str) -> float:
    """How often a run that is only looked at says how far it is, in seconds; 0 of other runs."""
    said = os.environ.get(LONG_RUN_VARIABLE, "")
    if not said:
        try:
            path = os.path.join(folder, LONG_RUN_FILE)  # noqa: PTH118
            with open(path, encoding="ascii") as file:  # noqa: PTH123
                said = file.read().strip() or "1"
        except OSError:
            return 0.0
    try:
        return max(float(said), 0.01)
    except ValueError:
        return _BEAT_S


class LongRunWatch(StepWatch):
    """Counts the steps, batches and checkpoints of a process; nothing is profiled or recorded.

    It never stops a script, and a script goes on where outlay is gone.
    """

    def __init__(self, torch: Any, channel: Channel, beat_s: float = _BEAT_S) -> None:
        super().__init__(torch, channel)
        self._beat_s = beat_s
        self.training_steps = 0
        self._round: set[int] = set()
        """Optimizers that have stepped since the training step began."""
        self._batches = 0
        self._loss_is_due = False
        self._thread: threading.Thread | None = None
        self._end = threading.Event()
        self._reported = RunProgress()
        self._beats = self._silent_beats = 0
        self._saving_s = 0.0
        self._stack: tuple[Any, ...] = ()
        self._stack_from_s = 0.0

    def install(self) -> None:
        """Begin to count."""
        self._install_steps()
        self.backward.install_lean()
        self._pauses.install_saves()
        iterators = importlib.import_module("torch.utils.data.dataloader")
        iterator = iterators._BaseDataLoaderIter
        self.patches.replace(iterator, "__next__", self._counted_next(iterator.__next__))

    def _step_hooks(self, optim: Any) -> list[Any]:
        """After a step alone: one within another's is of the same round."""
        return [optim.register_optimizer_step_post_hook(self._after_step)]

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if not self.graphs.captures(optimizer) and not self.backward.defers(optimizer):
            self.step_ended(optimizer)

    def _counted_next(self, original: Any) -> Any:
        @functools.wraps(original)
        def __next__(iterator: Any) -> Any:  # noqa: N807
            self._batches += 1
            try:
                return original(iterator)
            except BaseException as error:
                hide_frames(error)
                raise

        return __next__

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self._thread, self._end = None, threading.Event()
        self.training_steps = self._batches = 0
        self._round.clear()
        self._reported = RunProgress()

    def uninstall(self) -> None:
        """Leave torch as it was."""
        self._end.set()
        self.backward.leave()
        super().uninstall()

    def step_ended(self, *optimizers: Any) -> None:
        """Count a step; this is all that a step costs."""
        self.steps += 1
        key = id(optimizers[0]) if len(optimizers) == 1 else 0
        if key in self._round or not self._round:
            self._round = {key}
            self.training_steps += 1
        else:
            self._round.add(key)
        if self._thread is None:
            self._begin(optimizers[0])
        if self._loss_is_due:
            self._sample_loss()

    def _begin(self, optimizer: Any) -> None:
        """At the first step of a process."""
        self.training_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._run, name="outlay", daemon=True)
        try:
            self._report_process(optimizer)
            self._thread.start()
        except Exception as error:
            log_error(error)

    def _sample_loss(self) -> None:
        self._loss_is_due = False
        self.training_thread = threading.get_ident()
        try:
            self.device.report_copied()
            loss = self.backward.take_loss()
            if loss is not None:
                self.device.report_loss(self.training_steps, loss)
            self.backward.watch_next()
        except Exception as error:
            log_error(error)

    def _at_exit(self) -> None:
        """Write how far it came."""
        if os.getpid() == self._pid and self._thread is not None:
            self._end.set()
            self._beat()

    # The thread of its own

    def _run(self) -> None:
        while not self._end.wait(self._beat_s) and not self.is_off:
            self._beat()

    def _beat(self) -> None:
        try:
            self._beats += 1
            self._loss_is_due = self._loss_is_due or self._beats % _LOSS_BEATS == 1
            self._report_progress()
        except Exception as error:
            log_error(error)

    def _report_progress(self) -> None:
        """Write how far the process has come, where that is news."""
        progress = self._progress()
        if progress == self._reported:
            return
        if self.channel.trim(_MOST_BYTES):
            self.channel.report(process_info(self.torch, self.device))
        self._reported = progress
        self.channel.report(progress)
        self.channel.flush()

    def _progress(self) -> RunProgress:
        counters = self.counters
        self._saving_s, counters.saved_s = max(self._saving_s, counters.saved_s), 0.0
        progress = self._reported._replace(
            steps=self.training_steps,
            batches=self._batches,
            checkpoints=counters.saves,
            saving_s=round(self._saving_s, 3),
        )
        if progress.steps != self._reported.steps:
            self._silent_beats = 0
            return progress._replace(stack="", stack_s=0.0, where="")
        self._silent_beats += 1
        if self._silent_beats < _SILENT_BEATS or self._silent_beats % _LOOK_BEATS:
            return progress
        stack, where, frames = stack_of(self.torch, self.training_thread)
        now_s = time.perf_counter()
        if frames != self._stack:
            self._stack, self._stack_from_s = frames, now_s
        return progress._replace(
            stack=stack, stack_s=round(now_s - self._stack_from_s, 1), where=where
        )


# Where a thread is

_COMPILERS = (
    "/torch/_dynamo/convert_frame",
    "/torch/_dynamo/symbolic_convert",
    "/torch/_inductor/compile_fx",
    "/torch/_inductor/async_compile",
    "/triton/compiler/",
)
"""Files of which one is in the stack while something is compiled."""
_WAITING_FILES = ("/torch/distributed/distributed_c10d.py", "/torch/cuda/streams.py")
_WAITING = frozenset({"synchronize", "wait", "barrier", "backward", "_engine_run_backward"})
"""Functions of torch's that wait for a GPU or for other processes."""
_WAITING_METHODS = frozenset({"item", "cpu", "tolist", "wait", "synchronize"})
"""Such methods of tensors, events and works, which are not written in Python."""
_BEFORE_CALL = frozenset({"PRECALL", "CACHE", "NOP", "EXTENDED_ARG", "PUSH_NULL", "RESUME"})


def stack_of(torch: Any, thread: int) -> tuple[str, str, tuple[Any, ...]]:
    """Where a thread is: `blocked`, `compiling` or `other`; the innermost function; its frames."""
    frame = innermost = sys._current_frames().get(thread)
    frames: list[tuple[int, int]] = []
    files: list[str] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append((id(frame.f_code), frame.f_lasti))
        files.append(frame.f_code.co_filename.replace(os.sep, "/"))
        frame = frame.f_back
    if innermost is None:
        return "other", "", ()
    code = innermost.f_code
    where = f"{os.path.basename(code.co_filename)}:{code.co_name}"  # noqa: PTH119
    if any(part in name for name in files for part in _COMPILERS):
        return "compiling", where, tuple(frames)
    folder = os.path.dirname(str(torch.__file__)).replace(os.sep, "/") + "/"  # noqa: PTH120
    is_torch = files[0].startswith(folder)
    is_waiting = is_torch and (code.co_name in _WAITING or files[0].endswith(_WAITING_FILES))
    method = None if is_torch else _called_method(code, innermost.f_lasti)
    if method in _WAITING_METHODS:
        is_waiting, where = True, f"{where}, {method}()"
    return "blocked" if is_waiting else "other", where, tuple(frames)


def _called_method(code: Any, offset: int) -> str | None:
    """The method that is called without arguments by the instruction at an offset."""
    before = [step for step in dis.get_instructions(code) if step.offset <= offset]
    if not before or not before[-1].opname.startswith("CALL"):
        return None
    loads = (step for step in reversed(before[:-1]) if step.opname not in _BEFORE_CALL)
    load = next(loads, None)
    is_method = load is not None and load.opname in ("LOAD_METHOD", "LOAD_ATTR")
    return str(load.argval) if load is not None and is_method else None
