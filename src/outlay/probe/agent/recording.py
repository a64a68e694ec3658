"""A profile of a few steps and the operations of one, after the timing; steps in CUDA graphs.

Profile and recording slow the script down and are therefore requested when its speed is known. A
failure here is reported and costs nothing but itself. Steps that are captured in a CUDA graph
(`CudaGraphs`) run when it is replayed, not when they are called.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import sys
import weakref
from collections.abc import Iterable
from typing import Any

from .channel import log_error
from .patches import module_calls
from .protocol import AgentRequest, KernelTimes, PhaseFailed, RecordedOperations

_EXCHANGES = ("nccl", "rccl", "oneccl")
"""What kernels that exchange data between GPUs have in their names."""

# The profile and the recording


class Recording:
    """Begins and ends each phase at the optimizer steps that outlay requests."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._profiler: Any = None
        self._profiled_from = 0
        self._profiled_until = 0
        self._recorder: Any = None
        self._skipped_before = 0
        self._recorded_from = 0
        self._done: set[str] = set()
        self._is_postponed = False

    def after_step(self, step: int, request: AgentRequest) -> None:
        """Do what is due after a step."""
        try:
            self._profile(step, request)
        except Exception as error:
            self._report_failure("profile", error)
        try:
            self._record(step, request)
        except Exception as error:
            self._report_failure("record", error)

    def _report_failure(self, phase: str, error: Exception) -> None:
        self._profiler = self._watch.recorder = None
        self._done.add(phase)
        report_failure(self._watch.channel, phase, error)

    def pause_begins(self, step: int) -> None:
        """Keep out an evaluation or a checkpoint, whose kernels are no step's.

        A profile ends here; one that has no whole step yet begins anew after the next.
        """
        try:
            self._cut_profile(step)
        except Exception as error:
            self._report_failure("profile", error)

    def step_was(self, *, is_pause: bool) -> None:
        """Take in whether there was a pause before the step that has just ended.

        A pause whose beginning was not noted has spoiled a profile: another one is begun.
        """
        if self._watch.recorder is not None:
            self._watch.recorder.step_was(is_pause=is_pause)
        if is_pause and self._profiler is not None:
            profiler, self._profiler = self._profiler, None
            try:
                profiler.stop()
            except Exception as error:
                self._report_failure("profile", error)

    def abandon(self) -> None:
        """End what is going on, without a result."""
        for part in (self._profiler, self._watch.recorder):
            if part is not None:
                try:
                    part.stop()
                except Exception as error:
                    log_error(error)
        self._profiler = self._watch.recorder = None
        self._done |= {"profile", "record"}

    # Kernels

    def _profile(self, step: int, request: AgentRequest) -> None:
        if "profile" in self._done or not request.profile_from or step < request.profile_from:
            return
        if self._profiler is None:
            length = request.profile_until - request.profile_from
            latest = max(request.profile_until, request.record_from)
            self._profiled_until = min(step + length, latest)
            if step < self._profiled_until:
                self._start_profiler(step)
            return
        if step >= self._profiled_until:
            self._done.add("profile")
            self._stop_profiler(step)

    def _cut_profile(self, step: int) -> None:
        if self._profiler is None:
            return
        if step > self._profiled_from:
            self._done.add("profile")
            self._stop_profiler(step)
        else:
            profiler, self._profiler = self._profiler, None
            profiler.stop()

    def _start_profiler(self, step: int) -> None:
        torch = self._watch.torch
        activity = torch.profiler.ProfilerActivity.CUDA
        if self._watch.device.index is None:
            self._done.add("profile")
            return
        torch.cuda.synchronize()
        self._profiler = torch.profiler.profile(activities=[activity], **_profile_options(torch))
        self._profiler.start()
        self._profiled_from = step

    def _stop_profiler(self, step: int) -> None:
        self._watch.torch.cuda.synchronize()
        profiler, self._profiler = self._profiler, None
        profiler.stop()
        spans: list[tuple[int, int]] = []
        exchanges: list[tuple[int, int]] = []
        names: dict[str, float] = {}
        for event in profiler.profiler.kineto_results.events():
            if "CUDA" not in str(event.device_type()) and "HIP" not in str(event.device_type()):
                continue
            name, duration = event.name(), event.duration_ns()
            if not duration or name.startswith(("Optimizer.", "ProfilerStep")):
                continue
            span = (event.start_ns(), event.start_ns() + duration)
            is_exchange = any(word in name.lower() for word in _EXCHANGES)
            (exchanges if is_exchange else spans).append(span)
            names[name] = names.get(name, 0.0) + duration
        busy_ns, covered_ns = union_length(spans), union_length(spans + exchanges)
        longest = sorted(names.items(), key=lambda item: -item[1])[:20]
        self._watch.channel.report(
            KernelTimes(
                optimizer_steps=step - self._profiled_from,
                busy_s=busy_ns / 1e9,
                exchange_s=(covered_ns - busy_ns) / 1e9,
                kernels=len(spans) + len(exchanges),
                longest=[[name, duration / 1e9] for name, duration in longest],
            )
        )
        self._watch.channel.flush()

    # Operations

    def _record(self, step: int, request: AgentRequest) -> None:
        if "record" in self._done or not request.record_from or step < request.record_from:
            return
        if self._recorder is None:
            if self._watch.graphs.are_replayed:
                raise RuntimeError("what a CUDA graph runs is not seen when it is replayed")
            goes_on = not (request.stop_at and self._watch.channel.folder)
            if goes_on and is_in_compiled_call():
                raise RuntimeError("its optimizer steps in compiled code, which goes on")
            if step < request.record_until:
                self._start_recorder(step)
            return
        if step >= request.record_until:
            if self._is_cut_short(step):
                self._recorder.stop()
                self._start_recorder(step)
                return
            self._done.add("record")
            self._watch.recorder = None
            self._report_operations(step, request.record_until - request.record_from)
            if not request.stop_at and self._watch.channel.folder:  # the script goes on to its end
                from .shutdown import log_figures

                log_figures(self._watch.channel.folder)

    def _report_operations(self, step: int, optimizer_steps: int) -> None:
        first_step, inputs = self._recorded_from + 1, self._watch.batch.last_inputs
        # A step that a gradient scaler left out was computed and recorded all the same.
        skipped = self._watch.skipped - self._skipped_before
        self._watch.channel.report(
            RecordedOperations(
                recording=self._recorder.stop(),
                optimizer_steps=optimizer_steps + skipped,
                first_step=first_step,
                last_step=step,
                inputs=inputs._asdict() if inputs.step == first_step else None,
            )
        )
        self._watch.channel.flush()

    def _start_recorder(self, step: int) -> None:
        self._recorder = new_recorder(self._watch)
        self._recorder.start()
        self._watch.recorder = self._recorder
        self._skipped_before = self._watch.skipped
        self._recorded_from = step
        self._watch.batch.start()

    def _is_cut_short(self, step: int) -> bool:
        """Whether the recorded step had the rest of an epoch: then the next one is recorded.

        Once: where sizes vary, one step is as good as another.
        """
        before, last = self._watch.recent_samples
        is_rest = step - self._recorded_from == 1 and 0 < 2 * last < before
        if not is_rest or self._is_postponed:
            return False
        self._is_postponed = True
        return bool(self._watch.request_delay.postpone(1))


def report_failure(channel: Any, phase: str, error: Exception) -> None:
    """Say that a phase has failed, and why."""
    log_error(error)
    why = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    channel.report(PhaseFailed(phase=phase, why=why))


def new_recorder(watch: Any) -> Any:
    """A recorder of what runs on the device of the steps."""
    live_recorder = outlay_module("trace.capture.live_recorder")
    calls = functools.partial(module_calls, watch.torch)
    return live_recorder.LiveRecorder(watch.device.torch_kind, calls)


def is_in_compiled_call() -> bool:
    """Whether we are called from within a compiled function of the script's.

    When that returns, torch's dispatcher is as it was before: a recorder that was begun in it is
    off, and one that was ended in it is half on, which the script would not survive.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if getattr(code, "co_qualname", "").startswith("_TorchDynamoContext."):
            return True
        frame = frame.f_back
    return False


def _profile_options(torch: Any) -> dict[str, bool]:
    """An option of newer versions of torch, without which they warn."""
    parameters = inspect.signature(torch.profiler.profile.__init__).parameters
    return {"acc_events": True} if "acc_events" in parameters else {}


def union_length(spans: Iterable[tuple[int, int]]) -> int:
    """The length of what several spans cover together."""
    covered, end = 0, -1
    for start, stop in sorted(spans):
        if stop > end:
            covered += stop - max(start, end)
            end = stop
    return covered


def outlay_module(name: str) -> Any:
    """A module of the outlay that watches, in whatever Python the script runs."""
    if sys.version_info < (3, 11):  # noqa: UP036
        raise RuntimeError(
            "operations are recorded by Python 3.11 or newer; "
            f"the script runs in {sys.version_info[0]}.{sys.version_info[1]}"
        )
    if "outlay" not in sys.modules:
        folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
        spec = importlib.util.spec_from_file_location(
            "outlay",
            os.path.join(folder, "__init__.py"),  # noqa: PTH118
            submodule_search_locations=[folder],
        )
        if spec is None or spec.loader is None:
            raise RuntimeError("outlay's own folder is not to be read")
        module = importlib.util.module_from_spec(spec)
        sys.modules["outlay"] = module
        spec.loader.exec_module(module)
    return importlib.import_module("outlay." + name)


# Steps in CUDA graphs


class CudaGraphs:
    """Which optimizer steps each graph of the process holds."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._captured: list[tuple[Any, int]] = []
        self._steps: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, int], ...]] = (
            weakref.WeakKeyDictionary()
        )
        """Optimizers in the order they step, with the backward passes before each."""
        self._is_on = False
        self.are_replayed = False
        """Whether a graph with a step in it was replayed."""

    def install(self) -> None:
        """Begin to watch graphs, where torch has them."""
        torch, patches = self._watch.torch, self._watch.patches
        if (torch.version.cuda or torch.version.hip) and hasattr(torch.cuda, "CUDAGraph"):
            self._is_on = True
            patches.wrap(torch.cuda.CUDAGraph, "capture_end", self._capture_end)
            patches.wrap(torch.cuda.CUDAGraph, "replay", self._replay)

    def captures(self, optimizer: Any) -> bool:
        """Whether a step that has just returned was captured; it is kept for the replays."""
        cuda = self._watch.torch.cuda
        if not (self._is_on and cuda.is_initialized() and cuda.is_current_stream_capturing()):
            return False
        counters = self._watch.counters
        self._captured.append((optimizer, counters.passes))
        counters.passes = 0
        return True

    def _capture_end(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        steps, self._captured = tuple(self._captured), []
        result = original(graph, *args, **kwargs)
        if steps:
            self._steps[graph] = steps
        return result

    def _replay(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(graph, *args, **kwargs)
        for optimizer, passes in self._steps.get(graph, ()):
            self.are_replayed = True
            self._watch.counters.passes += passes
            self._watch.step_ended(optimizer)
        return result
