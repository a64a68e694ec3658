"""The same measurement in the process at hand: for notebooks, blocks of code and callbacks.

    session = Session(ProbeLimits(steps=200, to_end=True))
    session.start()
    train()
    session.end()
    session.measurement

The agent's `StepWatch` writes to a channel in memory, and the `ProbeStages` advance in the training
thread itself, after a step: at most twice a second, and less often where that takes long. Where
the process is one of several ranks, a `RankGroup` passes on what the first one requests.
"""

from __future__ import annotations

import datetime
import importlib
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlay.errors import ExtraMissing, ProbeFailed, pip_command
from outlay.measurement.measurement import Ending, Measurement
from outlay.probe.agent.channel import Channel, log_error
from outlay.probe.agent.protocol import AGENT_MODULE, FOLDER_VARIABLE, AgentRequest
from outlay.probe.agent.shutdown import log_to_trackers, send_final_reports
from outlay.probe.agent.step_watch import StepWatch
from outlay.probe.gpu_watch import open_driver
from outlay.probe.messages import ProcessLog
from outlay.probe.sampler import SystemSampler
from outlay.probe.stages import UNLIMITED, ProbeLimits, ProbeStages
from outlay.probe.steps import StepSizeOverride, StepStatistics, steps_of
from outlay.probe.summary import ProbeContext, measurement_of, tracker_figures
from outlay.probe.system import this_machine

# Ranks


class RankGroup:
    """The ranks of this process's group, each watched from inside; alone where there is none.

    Requests go through the store that torch's process group keeps anyway: no exchange between GPUs,
    no waiting. Every rank reads it as often as it works out its own steps.
    """

    def __init__(self, torch: Any, number: int) -> None:
        group = torch.distributed
        has_group = group.is_available() and group.is_initialized()
        self.ranks: int = group.get_world_size() if has_group else 1
        self.leads: bool = not has_group or group.get_rank() == 0
        """Whether this rank decides."""
        self._key = f"outlay/request/{number}"
        self._store: Any = None
        if self.ranks > 1:
            self._store = group.distributed_c10d._get_default_store()

    def send(self, request: AgentRequest) -> None:
        """Pass a request on to the others."""
        if self._store is not None:
            self._store.set(self._key, request.packed())

    def receive(self) -> AgentRequest | None:
        """What the first rank requests; None as long as that is nothing."""
        if self._store is None or not self._store.check([self._key]):
            return None
        return AgentRequest.unpacked(self._store.get(self._key))


# The session

UPDATE_S = 0.5
UPDATE_FRACTION = 0.004
"""Of the training thread's time, for working out its steps."""
SAMPLE_S = 1.0
"""Half as often as beside a command: the thread that reads shares Python with the training."""
PROBED_BY = (
    "This process is probed as a whole by `outlay probe`: what runs inside it is measured there, "
    "not here."
)


class Session:
    """One measurement of what this process trains, from `start` to `end`."""

    _running: list[Session] = []  # noqa: RUF012
    _started = 0

    def __init__(
        self,
        limits: ProbeLimits = UNLIMITED,
        *,
        batch_size: int | None = None,
        samples_per_step: int | None = None,
        total_steps: int | None = None,
        command: tuple[str, ...] | None = None,
        on_enough: Callable[[], None] | None = None,
    ) -> None:
        self.limits = limits
        self._override = StepSizeOverride(batch_size=batch_size, samples_per_step=samples_per_step)
        self.total_steps = total_steps
        self.is_done = False
        """Whether enough is known; without `to_end` in the limits, training may stop."""
        self.figures: dict[str, float | str] = {}
        """What trackers got at the end."""
        self._command = command or (Path(sys.executable).name, *sys.argv)
        self._on_enough = on_enough
        self._measurement: Measurement | None = None
        self._watcher: _Watcher | None = None
        self._has_started = False

    def start(self) -> None:
        """Begin to watch; where `outlay probe` watches already, say so and do nothing."""
        self._has_started = True
        self.is_done, self._measurement = False, None
        if _is_probed():
            sys.stderr.write(f"outlay: {PROBED_BY}\n")
            self._measurement = _empty_measurement(self._command)
            return
        limits = self.limits
        if Session._running:  # recording would slow down what the session around this one times
            limits = replace(limits, operations=False)
        Session._started += 1
        watcher = _Watcher(limits, Session._started, self._on_done)
        watcher.start()
        self._watcher = watcher
        Session._running.append(self)

    def end(self, ending: Ending = "finished", status: int = 0) -> None:
        """Stop watching and leave torch as it was; again, it does nothing."""
        watcher, self._watcher = self._watcher, None
        if watcher is None:
            return
        Session._running.remove(self)
        try:
            watcher.stop()
            self._measurement = self._measure(watcher, ending, status)
            self.figures = tracker_figures(self._measurement, watcher.final_statistics)
        except Exception as error:  # not the fault of what was measured
            log_error(error)
        log_to_trackers(self.figures)

    @property
    def is_running(self) -> bool:
        """Whether something is being watched."""
        return self._watcher is not None

    @property
    def is_probed(self) -> bool:
        """Whether `outlay probe` watches this process, so that the session does not."""
        return self._measurement is not None and PROBED_BY in self._measurement.notes

    @property
    def measurement(self) -> Measurement:
        """The measurement, once the session has ended."""
        if self._measurement is not None:
            return self._measurement
        if self.is_running or not self._has_started:
            raise ProbeFailed(
                "There is no measurement yet.",
                why="It is put together when the probed code has ended.",
                fix="Ask for it after the block, or after training.",
            )
        raise ProbeFailed(
            "What was seen could not be put together.",
            fix="Set OUTLAY_DEBUG=1 and try again: it prints what went wrong.",
        )

    def _on_done(self) -> None:
        self.is_done = True
        if self._on_enough is not None and not self.limits.to_end:
            self._on_enough()

    def _measure(self, watcher: _Watcher, ending: Ending, status: int) -> Measurement:
        context = ProbeContext(
            command=self._command,
            ending=ending,
            status=status,
            elapsed_s=watcher.elapsed_s,
            started_s=watcher.started_s,
            limits=watcher.stages.limits,
            stopped_for=watcher.stages.stopped_for,
            override=self._override,
            total_steps=self.total_steps,
            driver=watcher.driver,
        )
        log = watcher.log
        logs = [log] if log.last_step else []
        return measurement_of(watcher.final_statistics, logs, [log], watcher.sampler, context)


class _SessionChannel(Channel):
    """A channel in memory that lets the session update whenever its request is read."""

    def __init__(self, update: Callable[[], None]) -> None:
        super().__init__()
        self._update = update

    def read_request(self) -> AgentRequest:
        self._update()
        return self.request

    def take_lines(self) -> list[bytes]:
        """What was written since the last time."""
        lines, self.lines = self.lines, []
        return lines


class _Watcher:
    """What watches the process while a session runs."""

    def __init__(self, limits: ProbeLimits, number: int, on_done: Callable[[], None]) -> None:
        self._torch = _torch()
        self._number = number
        self._on_done = on_done
        self._channel = _SessionChannel(self._update)
        self._watch = StepWatch(self._torch, self._channel)
        self._watch.on_stop = on_done
        self._group: RankGroup | None = None
        self._next_s = 0.0
        """When to update next."""
        self._next_step = limits.steps or 0
        self._next_step_from_s = 0.0
        """The step at which to update before that, but not before this time."""
        self.stages = ProbeStages(limits, ahead_s=0.0)
        self._channel.request = self.stages.request
        self.log = ProcessLog()
        self._statistics = StepStatistics()
        self._timed_statistics: StepStatistics | None = None
        """Those when the timing was over: what comes after is slower."""
        self.started_s = time.perf_counter()
        self.elapsed_s = 0.0
        self.driver = open_driver()
        self.sampler = SystemSampler(
            os.getpid(), self.driver, period_s=SAMPLE_S, started_s=self.started_s
        )

    def start(self) -> None:
        """Begin."""
        try:
            self._watch.install()
        except BaseException:
            self._watch.uninstall()
            raise
        self.sampler.start()

    def stop(self) -> None:
        """End, and read the last reports."""
        self.elapsed_s = time.perf_counter() - self.started_s
        send_final_reports(self._watch)
        self._watch.uninstall()
        self.sampler.stop()
        self._read_reports()

    @property
    def final_statistics(self) -> StepStatistics:
        """Those of the timing."""
        return self._timed_statistics or self._statistics

    # From the training thread, after a step

    def _update(self) -> None:
        """Work out the steps and what to request, if it is time to."""
        now_s, step = time.perf_counter(), self._watch.steps
        is_step_due = step >= self._next_step > 0 and now_s >= self._next_step_from_s
        if now_s < self._next_s and not is_step_due:
            return
        self._read_reports()
        self._advance(now_s - self.started_s)
        self._plan_next(now_s)

    def _read_reports(self) -> None:
        self.log.read_lines(self._channel.take_lines())
        if self._timed_statistics is None and self.log.last_step:
            self._statistics = steps_of([self.log.table], started_s=self.started_s)
        if self.log.gpu_name:
            self.sampler.use([self.log.gpu_name])

    def _advance(self, elapsed_s: float) -> None:
        if self._group is None:
            self._group = RankGroup(self._torch, self._number)
            self.stages.ahead_s = 0.0 if self._group.ranks == 1 else 3 * UPDATE_S
        request = self._next_request(self._group, elapsed_s)
        is_timed = self.stages.stopped_for is not None or request.is_for_later
        if self._timed_statistics is None and is_timed:
            self._timed_statistics = self._statistics
        self._channel.request = request
        if self.stages.phase == "stopping" and not request.stop_at:
            self._watch.is_off = True
            self._on_done()

    def _next_request(self, group: RankGroup, elapsed_s: float) -> AgentRequest:
        before = self._channel.request
        if not group.leads:
            return group.receive() or before
        last_steps = [self._watch.steps] * group.ranks
        request = self.stages.advance(self._statistics, last_steps, elapsed_s)
        if request != before:
            group.send(request)
        return request

    def _plan_next(self, now_s: float) -> None:
        """When to update again: by the time, and where the wanted steps should be there."""
        took_s = time.perf_counter() - now_s
        longest_s = UPDATE_S if self._group and self._group.ranks > 1 else 10 * UPDATE_S
        self._next_s = now_s + max(UPDATE_S, min(took_s / UPDATE_FRACTION, longest_s))
        request, wanted = self._channel.request, self.stages.limits.steps
        if request.record_until:
            self._next_step = request.record_until
        elif wanted:
            each = max(sum(self._statistics.per_step), 1.0)
            missing = max(round((wanted - self._statistics.steps_seen) * each), 1)
            self._next_step = self._watch.steps + missing
            # A GPU may be behind: then an update after every step would find nothing new.
            is_behind = self._watch.steps >= wanted
            self._next_step_from_s = now_s + 2 * took_s if is_behind else 0.0


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ExtraMissing(f"Probing needs torch: {pip_command('torch')}.") from error


def _is_probed() -> bool:
    return bool(os.environ.get(FOLDER_VARIABLE)) and AGENT_MODULE in sys.modules


def _empty_measurement(command: tuple[str, ...]) -> Measurement:
    """The measurement of a block that another probe measures."""
    return Measurement(
        command=command,
        measured_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
        ending="finished",
        status=0,
        machine=this_machine(),
        device=None,
        notes=(PROBED_BY,),
    )
