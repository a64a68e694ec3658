"""A probe of a command: start it, watch it, stop it, and give the measurement.

The command runs as it would without us, but for the agent in its Python processes. Everything
else (driver, system, arithmetic, output) happens in this process.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from outlay.errors import OutlayError
from outlay.files import write_whole
from outlay.measurement.measurement import Ending, MeasuredMachine, Measurement
from outlay.probe.agent.protocol import (
    FIGURES_FILE,
    FINAL_FIGURES_FILE,
    MEMORY_CAP_VARIABLE,
    AwaitingFigures,
    KernelTimes,
    Stopping,
)
from outlay.probe.command import GRACE_S, Command, Relay
from outlay.probe.epochs import epoch_of
from outlay.probe.gpu_watch import open_driver
from outlay.probe.guard import Guard
from outlay.probe.messages import Listener, ProcessLog
from outlay.probe.sampler import SystemSampler
from outlay.probe.stages import UNLIMITED, LiveState, ProbeLimits, ProbeStages
from outlay.probe.steps import StepSizeOverride, StepStatistics, steps_of
from outlay.probe.summary import (
    ProbeContext,
    measurement_of,
    steps_in,
    tracker_figures,
)

_POLL_S = 0.1
_UPDATE_S = 0.5
STUCK_S = 60.0
STUCK_STEPS = 10
"""Without a step for so long, a command that is to stop is ended; an evaluation may last."""
_HIGHEST_SIGNAL = 64
_LOOK_S = 1.0
_MOST_UNWATCHED = 8
"""Processes of a command that are named for not being watched."""
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """What to probe, and how."""

    command: tuple[str, ...]
    limits: ProbeLimits = UNLIMITED
    batch_size: int | None = None
    """Samples of one pass on a GPU, where the user knows better than what is measured."""
    samples_per_step: int | None = None
    """Samples of a whole training step on a GPU, likewise."""
    optimizer_steps: int | None = None
    """Optimizer steps in one training step, likewise."""
    total_steps: int | None = None
    epochs: float | None = None
    """Of the whole run, in the one or the other."""
    memory_cap_mib: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    log: Path | None = None
    """Where the command's output goes; None: where ours goes."""

    @property
    def override(self) -> StepSizeOverride:
        """What the user says of a step's samples."""
        return StepSizeOverride(batch_size=self.batch_size, samples_per_step=self.samples_per_step)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that the command gets beside our own."""
        cap_mib = self.memory_cap_mib
        cap = {} if cap_mib is None else {MEMORY_CAP_VARIABLE: str(cap_mib)}
        return {**self.environment, **cap}


ShowLine = Callable[[LiveState], str]
"""The text of the live line."""


def probe_command(request: ProbeRequest, show: ShowLine | None = None) -> Measurement:
    """Run a command for a while and return its measurement, whatever became of it.

    `show` gives the live line; it is only called where there is a terminal to show it on.
    """
    return probe_with_logs(request, show)[0]


def probe_with_logs(
    request: ProbeRequest, show: ShowLine | None = None
) -> tuple[Measurement, list[ProcessLog]]:
    """The same, and the logs of the processes that trained, by rank."""
    with _probe_folder() as folder:
        probe = _Probe(request, Path(folder), show)
        return probe.run(), probe.logs


def _probe_folder() -> tempfile.TemporaryDirectory[str]:
    """Where processes write their reports."""
    try:
        return tempfile.TemporaryDirectory(prefix="outlay-probe-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OutlayError(
            f"The probe's own files cannot be written: {error.strerror or error}.",
            fix="Make room there, or name another folder: TMPDIR=/path outlay probe ...",
        ) from error


@contextlib.contextmanager
def noted_signals(noted: list[int], numbers: Sequence[int] = ENDING_SIGNALS) -> Iterator[None]:
    """Signals are noted, not obeyed: what was measured is written first, and they are passed on."""

    def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        noted.append(number)

    before = {}
    with contextlib.suppress(ValueError):  # not in the main thread
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:  # as after nohup
                before[number] = signal.signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Probe:
    """One probe, from start to end."""

    def __init__(self, request: ProbeRequest, folder: Path, show: ShowLine | None) -> None:
        self._request = request
        self._folder = folder
        self._show = show
        self._stages = ProbeStages(request.limits)
        self._listener = Listener(folder)
        self._relay = Relay(request.log)
        self._driver = open_driver()
        self._statistics = StepStatistics()
        self._timed_statistics: StepStatistics | None = None
        """Those when the timing was over: what comes after is slower."""
        self._sent_request = self._stages.request
        self._has_final_figures = False
        self._has_figures = (False, False)
        """Whether figures for trackers were written, and whether with a profile."""
        self._signals: list[int] = []
        self._interrupted: int | None = None
        """The signal that was sent to us, if one was."""
        self._stopping_s: float | None = None
        """When the command was last asked to end, by a request or a signal."""
        self._escalations = 0
        self._last_steps: list[int] = []
        self._last_step_s = 0.0
        self._unwatched: dict[int, str] = {}
        """Processes with torch that the agent is not in, and why, by their numbers."""
        self._looked_s = 0.0
        self._guard = Guard()
        """Of what is worked out while the command runs: an error of ours must not end it."""

    def run(self) -> Measurement:
        """The whole of it; once the command has started, there is a measurement in the end."""
        try:
            command = Command(
                self._request.command,
                self._folder,
                self._relay,
                self._request.variables,
                request=self._sent_request,
            )
        except BaseException:
            self._relay.close()
            raise
        sampler = SystemSampler(command.pid, self._driver, started_s=command.started_s)
        sampler.start()
        with noted_signals(self._signals):  # passed on to the command
            try:
                self._watch(command, sampler)
            finally:
                self._end(command, sampler)
            elapsed_s = time.perf_counter() - command.started_s
            self._guard.do("its last reports", lambda: self._update(command))
            measurement = self._guarded_measurement(command, sampler, elapsed_s)
        notes = dict.fromkeys((*measurement.notes, *self._guard.notes))
        return replace(measurement, notes=tuple(notes))

    def _end(self, command: Command, sampler: SystemSampler) -> None:
        """End what is left of the command and of ours, each part whatever becomes of the others."""
        if command.status() is None:
            command.signal(signal.SIGKILL)
        for part, action in (
            ("the last of its output", self._relay.drain),
            ("the last reading", sampler.stop),
            ("ending what it left behind", command.kill_remaining),
            ("the end of its output", self._relay.close),
        ):
            self._guard.do(part, action)

    def _guarded_measurement(
        self, command: Command, sampler: SystemSampler, elapsed_s: float
    ) -> Measurement:
        """The measurement; where even that fails, what is known without it."""
        return self._guard.value(
            "most of what was measured",
            lambda: self._measurement(command, sampler, elapsed_s),
            Measurement(
                command=self._request.command,
                measured_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
                ending="finished" if command.status() == 0 else "failed",
                status=command.status() or 0,
                machine=MeasuredMachine(system=sys.platform),
                device=None,
                step=self._statistics.step,
                steps_seen=self._statistics.steps_seen,
                elapsed_s=elapsed_s,
            ),
        )

    @property
    def logs(self) -> list[ProcessLog]:
        """The logs of the processes that train, by rank."""
        return self._listener.training_logs

    def _watch(self, command: Command, sampler: SystemSampler) -> None:
        """Follow the command to its end."""
        updated_s = 0.0
        while command.status() is None:
            if not self._guard.do("some of its output", lambda: self._relay.pass_on(_POLL_S)):
                time.sleep(_POLL_S)
            self._pass_on_signals(command)
            now_s = time.perf_counter()
            if now_s - updated_s < _UPDATE_S:
                continue
            updated_s = now_s
            self._guard.do("some of its reports", lambda: self._update(command))
            self._guard.do("which GPUs it uses", lambda: self._select_gpus(sampler))
            self._advance(command, sampler, now_s)
            self._guard.do(
                "which processes are not watched",
                functools.partial(self._look_for_unwatched, command, now_s),
            )
            self._guard.do("the live line", lambda: self._show_line(command, sampler))

    def _show_line(self, command: Command, sampler: SystemSampler) -> None:
        if self._show is not None and self._relay.has_line:
            elapsed_s = time.perf_counter() - command.started_s
            self._relay.show(self._show(self._live_state(sampler, elapsed_s)))

    def _look_for_unwatched(self, command: Command, now_s: float) -> None:
        """Say it at once where a process may train for days without being watched."""
        if self._statistics.steps_seen or now_s - self._looked_s < _LOOK_S:
            return
        self._looked_s = now_s
        for process in command.unwatched():
            if process.pid not in self._unwatched and len(self._unwatched) < _MOST_UNWATCHED:
                text = f"{process.name} is not watched: {process.reason}."
                self._unwatched[process.pid] = text
                self._relay.say(f"outlay: {text}")

    def _pass_on_signals(self, command: Command) -> None:
        while self._signals:
            number = self._signals.pop(0)
            is_second = self._escalations > 0
            self._escalations += 1
            self._stopping_s = time.perf_counter()
            self._interrupted = number
            command.signal(signal.SIGKILL if is_second else number)

    def _update(self, command: Command) -> None:
        """Read new reports, and work out the statistics until the timing is over."""
        self._listener.read()
        if self._timed_statistics is not None:
            return
        tables = [log.table for log in self.logs]
        if tables:
            self._statistics = steps_of(
                tables,
                started_s=command.started_s,
                optimizer_steps_per_step=self._request.optimizer_steps,
            )

    def _select_gpus(self, sampler: SystemSampler) -> None:
        names = [log.gpu_name for log in self.logs]
        sampler.use([name for name in names if name])

    def _advance(self, command: Command, sampler: SystemSampler, now_s: float) -> None:
        """Request what is due, and end a command that should have ended."""
        last_steps = [log.last_step for log in self.logs]
        stages = self._stages
        request = self._guard.value(
            "when to stop",
            lambda: stages.advance(self._statistics, last_steps, now_s - command.started_s),
            self._sent_request,
        )
        if stages.stopped_for is not None and self._timed_statistics is None:
            self._timed_statistics = self._statistics
            self._listener.freeze_ranks()
        self._guard.do(
            "figures for trackers", lambda: self._publish_figures(command, sampler, now_s)
        )
        if request != self._sent_request:
            self._sent_request = request
            self._guard.do("a request", functools.partial(command.send_request, request))
        is_reached = request.stop_at and last_steps and min(last_steps) >= request.stop_at
        is_spent = stages.stopped_for == "cost"
        without_step_s = self._without_step_s(last_steps, now_s) if request.stop_at else 0.0
        is_stuck = without_step_s > self._stuck_after_s
        if (is_reached or is_spent or is_stuck) and self._stopping_s is None:
            self._stopping_s = now_s
        self._escalate(command, now_s)

    def _without_step_s(self, last_steps: list[int], now_s: float) -> float:
        """How long no process has made a step."""
        if last_steps != self._last_steps:
            self._last_steps, self._last_step_s = last_steps, now_s
        return now_s - self._last_step_s

    @property
    def _stuck_after_s(self) -> float:
        """How long the step at which to stop is waited for: a loader may hang, a rank be gone."""
        step = self._statistics.step
        return max(STUCK_S, STUCK_STEPS * step.mean_s if step else 0.0)

    def _escalate(self, command: Command, now_s: float) -> None:
        """Send signals of growing firmness to a command that does not end by itself."""
        if self._stopping_s is None or now_s - self._stopping_s < GRACE_S:
            return
        firmness = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        command.signal(firmness[min(self._escalations, 2)])
        self._escalations += 1
        self._stopping_s = now_s

    def _publish_figures(self, command: Command, sampler: SystemSampler, now_s: float) -> None:
        """Write what the processes may log to a tracker when they stop: after the timing, again
        once a profile says more of what holds them back, and when one that ends by itself waits.
        """
        all_logs = self._listener.all_logs
        is_awaited = any(log.last(AwaitingFigures) is not None for log in all_logs)
        if is_awaited and not self._has_final_figures:
            self._has_final_figures = True
            self._write_figures(FINAL_FIGURES_FILE, command, sampler, now_s)
        is_profiled = any(log.last(KernelTimes) is not None for log in self.logs)
        if self._timed_statistics is None or self._has_figures == (True, is_profiled):
            return
        self._has_figures = (True, is_profiled)
        self._write_figures(FIGURES_FILE, command, sampler, now_s)

    def _write_figures(
        self, name: str, command: Command, sampler: SystemSampler, now_s: float
    ) -> None:
        measurement = self._measurement(command, sampler, now_s - command.started_s)
        with contextlib.suppress(OutlayError):
            figures = tracker_figures(measurement, self._timed_statistics or self._statistics)
            write_whole(self._folder / name, json.dumps(figures).encode())

    def _live_state(self, sampler: SystemSampler, elapsed_s: float) -> LiveState:
        limits, latest = self._request.limits, sampler.latest()
        step = self._statistics.step
        ranks = max(len(self.logs), 1)
        gpus = sampler.describe_gpus()
        samples = self._statistics.mean_samples_per_step
        return LiveState(
            phase=self._stages.phase,
            elapsed_s=elapsed_s,
            step=self._statistics.steps_seen,
            wanted_steps=limits.steps,
            total_steps=self._total_steps(),
            step_s=None if step is None else step.mean_s,
            samples_per_s=samples * ranks / step.mean_s if step and samples else None,
            gpu_fraction=latest.gpu_fraction if latest else None,
            memory_bytes=latest.gpu_memory_bytes if latest else None,
            memory_limit_bytes=max((gpu.memory_bytes or 0.0 for gpu in gpus), default=0.0) or None,
            power_w=latest.power_w if latest else None,
            price_usd_per_hour=limits.price_usd_per_hour,
            precision=step.precision if step else None,
            wanted_precision=limits.wanted_precision,
        )

    def _total_steps(self) -> int | None:
        request = self._request
        each = epoch_of(self._statistics, self.logs).steps
        return request.total_steps or steps_in(request.epochs, each)

    def _measurement(
        self, command: Command, sampler: SystemSampler, elapsed_s: float
    ) -> Measurement:
        status = command.status()
        status = 1 if status is None else status
        request, all_logs = self._request, self._listener.all_logs
        stopped = any(log.last(Stopping) is not None for log in all_logs)
        # Ended by our signal, or with whatever status it has for being asked to leave; also where
        # it made something else of the user's signal and trained on.
        if stopped or (self._interrupted is None and command.signalled):
            stopped, status = True, 0
        context = ProbeContext(
            command=request.command,
            ending=self._ending(command, status, stopped=stopped),
            status=status,
            elapsed_s=elapsed_s,
            started_s=command.started_s,
            limits=request.limits,
            stopped_for=self._stages.stopped_for,
            override=request.override,
            optimizer_steps=request.optimizer_steps,
            total_steps=request.total_steps,
            epochs=request.epochs,
            driver=self._driver,
            unwatched=tuple(self._unwatched.values()),
        )
        statistics = self._timed_statistics or self._statistics
        return measurement_of(statistics, self.logs, all_logs, sampler, context)

    def _ending(self, command: Command, status: int, *, stopped: bool) -> Ending:
        if stopped:
            return "stopped"
        if self._interrupted is not None:
            return "interrupted"
        # A shell in between says 128 and the signal's number; what is above is a status like -1.
        if command.killed_by() is not None or 128 < status <= 128 + _HIGHEST_SIGNAL:
            return "killed"
        return "finished" if status == 0 else "failed"
