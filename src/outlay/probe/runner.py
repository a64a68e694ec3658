"""A probe of a command: start it, watch it, stop it, and say what was seen.

The command runs as it would without us, but for the agent in its Python processes. Everything
else (driver, system, arithmetic, output) happens in this process.
"""

from __future__ import annotations

import contextlib
import json
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from outlay.errors import OutlayError
from outlay.files import write_whole
from outlay.measurement.measurement import Ending, Measurement
from outlay.probe.agent.channel import AgentRequest
from outlay.probe.agent.shutdown import FIGURES, LAST_FIGURES
from outlay.probe.command import GRACE_S, Command, Relay
from outlay.probe.gpu_watch import open_driver
from outlay.probe.messages import Listener, ProcessLog
from outlay.probe.recorded_step import StepSizeOverride
from outlay.probe.sampler import SystemSampler
from outlay.probe.stages import UNLIMITED, LiveState, ProbeLimits, ProbeStages
from outlay.probe.steps import StepStatistics, steps_of
from outlay.probe.summary import ProbeContext, figures, measurement_of, steps_in, steps_per_epoch

_POLL_S = 0.1
_LOOK_S = 0.5
STUCK_S = 60.0
STUCK_STEPS = 10
"""Without a step for so long, a command that is to stop is ended; an evaluation may last."""
_HIGHEST_SIGNAL = 64
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MEMORY_CAP = "OUTLAY_PROBE_MEMORY_CAP_MIB"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """What to probe, and how."""

    command: tuple[str, ...]
    limits: ProbeLimits = UNLIMITED
    batch_size: int | None = None
    """Samples of one pass on a GPU, where the user knows better than what is seen."""
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
    def given(self) -> StepSizeOverride:
        """What the user says of a step's samples."""
        return StepSizeOverride(batch_size=self.batch_size, samples_per_step=self.samples_per_step)

    @property
    def settings(self) -> dict[str, str]:
        """The environment the command gets beside our own."""
        cap = {} if self.memory_cap_mib is None else {MEMORY_CAP: str(self.memory_cap_mib)}
        return {**self.environment, **cap}


Show = Callable[[LiveState], str]


def probe_command(asking: ProbeRequest, show: Show | None = None) -> Measurement:
    """Run a command for a while and return what was seen, whatever became of it.

    `show` writes the live line; it is only asked where there is a terminal to show it on.
    """
    return probe_with_logs(asking, show)[0]


def probe_with_logs(
    asking: ProbeRequest, show: Show | None = None
) -> tuple[Measurement, list[ProcessLog]]:
    """The same, and everything that the processes told."""
    with _own_folder() as folder:
        probing = _Probe(asking, Path(folder), show)
        return probing.run(), probing.told


def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """What processes tell goes in there."""
    try:
        return tempfile.TemporaryDirectory(prefix="outlay-probe-", ignore_cleanup_errors=True)
    except OSError as error:
        raise OutlayError(
            f"The probe's own files cannot be written: {error.strerror or error}.",
            fix="Make room there, or name another folder: TMPDIR=/path outlay probe ...",
        ) from error


class _Probe:
    """One probe, from start to end."""

    def __init__(self, asking: ProbeRequest, folder: Path, show: Show | None) -> None:
        self._asking = asking
        self._folder = folder
        self._show = show
        self._course = ProbeStages(asking.limits)
        self._listener = Listener(folder)
        self._relay = Relay(asking.log)
        self._driver = open_driver()
        self._seen = StepStatistics()
        self._timed: StepStatistics | None = None
        """What was seen when the timing was over: what comes after is slower."""
        self._asked: AgentRequest | None = None
        self._offered_last = False
        self._offered = (False, False)
        """Whether figures for trackers were written, and whether with a profile."""
        self._signals: list[int] = []
        self._interrupted: int | None = None
        """The signal that was sent to us, if one was."""
        self._leaving_s: float | None = None
        self._escalated = 0
        self._last_steps: list[int] = []
        self._stepped_s = 0.0

    def run(self) -> Measurement:
        """The whole of it."""
        try:
            command = Command(
                self._asking.command, self._folder, self._relay, self._asking.settings
            )
        except BaseException:
            self._relay.close()
            raise
        sampler = SystemSampler(command.pid, self._driver, started_s=command.started_s)
        sampler.start()
        try:
            with self._noted_signals():
                self._follow(command, sampler)
        finally:
            if command.status() is None:
                command.signal(signal.SIGKILL)
            self._relay.drain()
            sampler.stop()
            command.clear_away()
            self._relay.close()
        elapsed_s = time.perf_counter() - command.started_s
        self._look(command)
        return self._measurement(command, sampler, elapsed_s)

    @property
    def told(self) -> list[ProcessLog]:
        """What the processes that train told."""
        return self._listener.training

    @contextlib.contextmanager
    def _noted_signals(self) -> Iterator[None]:
        """Signals sent to us are passed on to the command, not obeyed."""

        def note(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
            self._signals.append(number)

        before = {}
        with contextlib.suppress(ValueError):  # not in the main thread
            for number in _SIGNALS:
                if signal.getsignal(number) != signal.SIG_IGN:  # as after nohup
                    before[number] = signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _follow(self, command: Command, sampler: SystemSampler) -> None:
        looked_s = 0.0
        while command.status() is None:
            self._relay.pass_on(_POLL_S)
            self._pass_on_signals(command)
            now_s = time.perf_counter()
            if now_s - looked_s < _LOOK_S:
                continue
            looked_s = now_s
            self._look(command)
            self._use_gpus(sampler)
            self._guide(command, sampler, now_s)
            if self._show is not None and self._relay.has_line:
                self._relay.show(self._show(self._state(sampler, now_s - command.started_s)))

    def _pass_on_signals(self, command: Command) -> None:
        while self._signals:
            number = self._signals.pop(0)
            again = self._escalated > 0
            self._escalated += 1
            self._leaving_s = time.perf_counter()
            self._interrupted = number
            command.signal(signal.SIGKILL if again else number)

    def _look(self, command: Command) -> None:
        """Take in what the processes told, and work out the steps."""
        self._listener.read()
        if self._timed is not None:
            return
        tables = [told.table for told in self._listener.training]
        if tables:
            self._seen = steps_of(
                tables,
                started_s=command.started_s,
                optimizer_steps_per_step=self._asking.optimizer_steps,
            )

    def _use_gpus(self, sampler: SystemSampler) -> None:
        names = [told.gpu_name for told in self._listener.training]
        sampler.use([name for name in names if name])

    def _guide(self, command: Command, sampler: SystemSampler, now_s: float) -> None:
        """Ask for what is due, and end a command that should have ended."""
        last_steps = [told.last_step for told in self._listener.training]
        course = self._course
        asked = course.go_on(self._seen, last_steps, now_s - command.started_s)
        if course.stopped_for is not None and self._timed is None:
            self._timed = self._seen
            self._listener.settle()
        self._offer_figures(command, sampler, now_s)
        if asked != self._asked:
            self._asked = asked
            command.ask(asked)
        reached = asked.stop_at and last_steps and min(last_steps) >= asked.stop_at
        spent = course.stopped_for == "cost"
        stuck = asked.stop_at and self._without_step_s(last_steps, now_s) > self._patience_s
        if (reached or spent or stuck) and self._leaving_s is None:
            self._leaving_s = now_s
        self._hurry(command, now_s)

    def _without_step_s(self, last_steps: list[int], now_s: float) -> float:
        """How long no process has made a step."""
        if last_steps != self._last_steps:
            self._last_steps, self._stepped_s = last_steps, now_s
        return now_s - self._stepped_s

    @property
    def _patience_s(self) -> float:
        """How long the step at which to stop is waited for: a loader may hang, a rank be gone."""
        step = self._seen.step
        return max(STUCK_S, STUCK_STEPS * step.mean_s if step else 0.0)

    def _hurry(self, command: Command, now_s: float) -> None:
        """Signals of growing firmness to a command that does not end by itself."""
        if self._leaving_s is None or now_s - self._leaving_s < GRACE_S:
            return
        firmness = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        command.signal(firmness[min(self._escalated, 2)])
        self._escalated += 1
        self._leaving_s = now_s

    def _offer_figures(self, command: Command, sampler: SystemSampler, now_s: float) -> None:
        """What the processes may log to a tracker when they stop: after the timing, again once a
        profile says more of what holds them back, and when one that ends by itself asks for it.
        """
        asked = any("awaits" in told.facts for told in self._listener.everyone)
        if asked and not self._offered_last:
            self._offered_last = True
            self._write_figures(LAST_FIGURES, command, sampler, now_s)
        profiled = any("kernels" in told.facts for told in self._listener.training)
        if self._timed is None or self._offered == (True, profiled):
            return
        self._offered = (True, profiled)
        self._write_figures(FIGURES, command, sampler, now_s)

    def _write_figures(
        self, name: str, command: Command, sampler: SystemSampler, now_s: float
    ) -> None:
        found = self._measurement(command, sampler, now_s - command.started_s)
        with contextlib.suppress(OutlayError):
            known = figures(found, self._timed or self._seen)
            write_whole(self._folder / name, json.dumps(known).encode())

    def _state(self, sampler: SystemSampler, elapsed_s: float) -> LiveState:
        seen, limits, latest = self._seen, self._asking.limits, sampler.latest()
        step = seen.step
        ranks = max(len(self._listener.training), 1)
        gpus = sampler.describe_gpus()
        samples = seen.mean_samples_per_step
        return LiveState(
            phase=self._course.phase,
            elapsed_s=elapsed_s,
            step=seen.steps_seen,
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
        asking = self._asking
        each = steps_per_epoch(self._seen, self._listener.training)
        return asking.total_steps or steps_in(asking.epochs, each)

    def _measurement(
        self, command: Command, sampler: SystemSampler, elapsed_s: float
    ) -> Measurement:
        status = command.status()
        status = 1 if status is None else status
        told = self._listener.training
        stopped = any("stopping" in one.facts for one in self._listener.everyone)
        # Ended by our signal, or with whatever status it has for being asked to leave; also where
        # it made something else of the user's signal and trained on.
        if stopped or (self._interrupted is None and command.signalled):
            stopped, status = True, 0
        circumstances = ProbeContext(
            command=self._asking.command,
            ending=self._ending(command, status, stopped=stopped),
            status=status,
            elapsed_s=elapsed_s,
            started_s=command.started_s,
            limits=self._asking.limits,
            stopped_for=self._course.stopped_for,
            given=self._asking.given,
            optimizer_steps=self._asking.optimizer_steps,
            total_steps=self._asking.total_steps,
            epochs=self._asking.epochs,
            driver=self._driver,
        )
        return measurement_of(
            self._timed or self._seen, told, self._listener.everyone, sampler, circumstances
        )

    def _ending(self, command: Command, status: int, *, stopped: bool) -> Ending:
        if stopped:
            return "stopped"
        if self._interrupted is not None:
            return "interrupted"
        # A shell in between says 128 and the signal's number; what is above is a status like -1.
        if command.killed_by() is not None or 128 < status <= 128 + _HIGHEST_SIGNAL:
            return "killed"
        return "finished" if status == 0 else "failed"
