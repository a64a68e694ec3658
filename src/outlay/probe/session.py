"""The same measurement in the process at hand: for notebooks, blocks of code and callbacks.

    session = Session(Limits(steps=200, to_end=True))
    session.start()
    train()
    session.end()
    session.measurement

The agent's `StepWatch` tells a channel in memory, and the `ProbeStages` is asked from the
training thread itself, after a step: at most twice a second, and less often where that takes long.
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

from outlay.errors import ExtraMissing, ProbeFailed
from outlay.measurement.measurement import Ending, Measurement
from outlay.probe.agent.channel import ASKED, NOTHING, AgentRequest, Channel, complain
from outlay.probe.agent.shutdown import last_words, log_to_trackers
from outlay.probe.agent.step_watch import StepWatch
from outlay.probe.gpu_watch import open_driver
from outlay.probe.messages import ProcessLog
from outlay.probe.recorded_step import StepSizeOverride
from outlay.probe.sampler import SystemSampler
from outlay.probe.stages import UNLIMITED, ProbeLimits, ProbeStages
from outlay.probe.steps import StepStatistics, steps_of
from outlay.probe.summary import ProbeContext, figures, measurement_of
from outlay.probe.system import machine_seen

# Ranks of one run that are each watched from inside: what the first asks for, all do.
#
# Told through the store that torch's process group keeps anyway: no exchange between GPUs, no
# waiting. Every rank looks there as often as it looks at its own steps.


class RankGroup:
    """The ranks of this process's group; by itself where there is none."""

    def __init__(self, torch: Any, number: int) -> None:
        group = torch.distributed
        has_group = group.is_available() and group.is_initialized()
        self.ranks: int = group.get_world_size() if has_group else 1
        self.leads: bool = not has_group or group.get_rank() == 0
        """Whether this rank decides."""
        self._key = f"outlay/asked/{number}"
        self._store: Any = None
        if self.ranks > 1:
            self._store = group.distributed_c10d._get_default_store()

    def tell(self, asked: AgentRequest) -> None:
        """Tell the others what is asked for."""
        if self._store is not None:
            self._store.set(self._key, ASKED.pack(*asked))

    def heard(self) -> AgentRequest | None:
        """What the first rank asks for; None as long as it asks for nothing."""
        if self._store is None or not self._store.check([self._key]):
            return None
        return AgentRequest(*ASKED.unpack(self._store.get(self._key)))


LOOK_S = 0.5
SHARE = 0.004
"""Of the training thread's time, for looking at its steps."""
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
        self._given = StepSizeOverride(batch_size=batch_size, samples_per_step=samples_per_step)
        self.total_steps = total_steps
        self.is_done = False
        """Whether enough was seen; without `to_end` in the limits, training may stop."""
        self.figures: dict[str, float | str] = {}
        """What trackers were given at the end."""
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
            self._measurement = _nothing(self._command)
            return
        limits = self.limits
        if Session._running:  # recording would slow down what the session around this one times
            limits = replace(limits, operations=False)
        Session._started += 1
        watcher = _Watcher(limits, Session._started, self._enough)
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
            self._measurement = self._measured(watcher, ending, status)
            self.figures = figures(self._measurement, watcher.timed or watcher.seen)
        except Exception as error:  # not the fault of what was measured
            complain(error)
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
        """What was seen, once it has ended."""
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

    def _enough(self) -> None:
        self.is_done = True
        if self._on_enough is not None and not self.limits.to_end:
            self._on_enough()

    def _measured(self, watcher: _Watcher, ending: Ending, status: int) -> Measurement:
        seen, told = watcher.timed or watcher.seen, watcher.told
        circumstances = ProbeContext(
            command=self._command,
            ending=ending,
            status=status,
            elapsed_s=watcher.elapsed_s,
            started_s=watcher.started_s,
            limits=watcher.course.limits,
            stopped_for=watcher.course.stopped_for,
            given=self._given,
            total_steps=self.total_steps,
            driver=watcher.driver,
        )
        training = [told] if told.last_step else []
        return measurement_of(seen, training, [told], watcher.sampler, circumstances)


class _SessionChannel(Channel):
    """A channel in memory that looks at what was told whenever it is asked."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__()
        self._look = look

    def reads(self) -> AgentRequest:
        self._look()
        return self.asked

    def take(self) -> list[bytes]:
        """What was told since the last time."""
        lines, self.lines = self.lines, []
        return lines


class _Watcher:
    """What watches while a session runs."""

    def __init__(self, limits: ProbeLimits, number: int, on_done: Callable[[], None]) -> None:
        self._torch = _torch()
        self._number = number
        self._on_done = on_done
        self._channel = _SessionChannel(self._look)
        self._watch = StepWatch(self._torch, self._channel)
        self._watch.on_stop = on_done
        self._together: RankGroup | None = None
        self._next_s = 0.0
        self._soon_s = 0.0
        self._next_step = limits.steps or 0
        self.course = ProbeStages(limits, ahead_s=0.0)
        self.told = ProcessLog()
        self.seen = StepStatistics()
        self.timed: StepStatistics | None = None
        """What was seen when the timing was over: what comes after is slower."""
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
        """End, and take in the rest."""
        self.elapsed_s = time.perf_counter() - self.started_s
        last_words(self._watch)
        self._watch.uninstall()
        self.sampler.stop()
        self._take_in()

    # From the training thread, after a step

    def _look(self) -> None:
        """Look at the steps, if it is time to."""
        now_s, step = time.perf_counter(), self._watch.steps
        is_due = now_s >= self._next_s
        if not is_due and not (step >= self._next_step > 0 and now_s >= self._soon_s):
            return
        self._take_in()
        self._guide(now_s - self.started_s)
        self._plan_next(now_s)

    def _take_in(self) -> None:
        self.told.hear(self._channel.take())
        if self.timed is None and self.told.last_step:
            self.seen = steps_of([self.told.table], started_s=self.started_s)
        if self.told.gpu_name:
            self.sampler.use([self.told.gpu_name])

    def _guide(self, elapsed_s: float) -> None:
        if self._together is None:
            self._together = RankGroup(self._torch, self._number)
            self.course.ahead_s = 0.0 if self._together.ranks == 1 else 3 * LOOK_S
        asked = self._asked(self._together, elapsed_s)
        if self.timed is None and (self.course.stopped_for is not None or asked != NOTHING):
            self.timed = self.seen
        self._channel.asked = asked
        if self.course.phase == "stopping" and not asked.stop_at:
            self._watch.is_off = True
            self._on_done()

    def _asked(self, together: RankGroup, elapsed_s: float) -> AgentRequest:
        before = self._channel.asked
        if not together.leads:
            return together.heard() or before
        last_steps = [self._watch.steps] * together.ranks
        asked = self.course.go_on(self.seen, last_steps, elapsed_s)
        if asked != before:
            together.tell(asked)
        return asked

    def _plan_next(self, now_s: float) -> None:
        """When to look again: by the time, and where the wanted steps should be there."""
        took_s = time.perf_counter() - now_s
        longest_s = LOOK_S if self._together and self._together.ranks > 1 else 10 * LOOK_S
        self._next_s = now_s + max(LOOK_S, min(took_s / SHARE, longest_s))
        asked, wanted = self._channel.asked, self.course.limits.steps
        if asked.record_until:
            self._next_step = asked.record_until
        elif wanted:
            each = max(sum(self.seen.per_step), 1.0)
            missing = max(round((wanted - self.seen.steps_seen) * each), 1)
            self._next_step = self._watch.steps + missing
            # A GPU may be behind: then the last steps are not to be looked for after every one.
            self._soon_s = now_s + 2 * took_s if self._watch.steps >= wanted else 0.0


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ExtraMissing('Probing needs torch: pip install "outlay[torch]".') from error


def _is_probed() -> bool:
    folder = os.environ.get("OUTLAY_PROBE_FOLDER")
    return bool(folder) and "_outlay_agent" in sys.modules


def _nothing(command: tuple[str, ...]) -> Measurement:
    """The measurement of a block that another probe measures."""
    return Measurement(
        command=command,
        measured_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
        ending="finished",
        status=0,
        machine=machine_seen(),
        device=None,
        notes=(PROBED_BY,),
    )
