"""The loop that looks at a run until it ends, and ends it where the rules say so.

`outlay guard` and `outlay watch` are this loop with different targets. What cannot be read counts
as activity, what cannot be written is noted. All times are of the monotonic clock, so that a clock
that is set does not matter.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from outlay.files import json_bytes, json_text, to_json, write_whole
from outlay.probe.guard import Guard
from outlay.run.activity import (
    MachineReader,
    RunReader,
    RunReading,
    handles,
    started_ticks,
)
from outlay.run.job import NOTIFY_VARIABLE
from outlay.run.progress import RunStatus, Spending, StepProgress
from outlay.run.redaction import redacted
from outlay.run.rules import (
    Action,
    Activity,
    Escalation,
    HourlyBilling,
    RuleLimits,
    RuleVerdict,
    RunRules,
    StopTimes,
    span,
)
from outlay.run.run_folder import EVENTS, STATUS
from outlay.uncertainty import Estimate
from outlay.units import HOUR_S
from outlay.workload.workload import WatchSettings

LEFT_S = 30.0
"""What a command has left behind may work so long without being seen to; then it is ended."""
MACHINE_CPUS_QUIET = 0.2
MACHINE_BYTES_PER_S_QUIET = 200_000.0
"""What a machine does by itself, nobody being there, is less."""
WARN_AGAIN_S = HOUR_S / 2
"""A warning that was told of is not told of again for so long."""
FORECAST_SHARE = 0.05
"""Of the steps: from there on a forecast that passes the budget is worth a warning."""
SAME_REQUEST_S = 1.0
"""A machine that is shut down asks us, and those who pass it on to us: that is one request."""
KILLED = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How often things are done, and how long they may take; tests have shorter ones."""

    period_s: float = 2.0
    status_s: float = 5.0
    terminate_s: float = 20.0
    """From SIGTERM to SIGKILL, for a run that has a handler for the first."""
    end_s: float = 0.5
    """Until a process that cannot refuse is gone."""
    shut_down_s: float = 60.0
    """Until a machine is off."""
    left_s: float = LEFT_S
    agent_s: float = 1.0
    """How often the agent says how far it is."""


USUAL = Timing()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPlan:
    """What a run is held to, besides `WatchSettings`, and what is told of it."""

    settings: WatchSettings = field(default_factory=WatchSettings)
    run: str | None = None
    bill: HourlyBilling | None = None
    held_before_s: float = 0.0
    budget_usd: float | None = None
    deadline_in_s: float | None = None
    longest_in_s: float | None = None
    total_steps: float | None = None
    predicted_step_time_s: Estimate | None = None
    predicted_cost_usd: Estimate | None = None
    is_machine: bool = False

    def limits(self, started_s: float, spending: Spending) -> RuleLimits:
        """The limits on the clock that began at `started_s`."""
        settings = self.settings

        def ends_s(in_s: float | None) -> float | None:
            return None if in_s is None else started_s + in_s

        quiet = {
            "cpus_quiet": MACHINE_CPUS_QUIET,
            "bytes_per_s_quiet": MACHINE_BYTES_PER_S_QUIET,
        }
        return RuleLimits(
            idle_below_fraction=settings.idle_below_fraction,
            idle_s=settings.idle_s,
            stall_s=settings.stall_s,
            bad_losses=RuleLimits().bad_losses if settings.stop_on_bad_loss else None,
            budget_ends_s=spending.budget_ends_s(),
            deadline_ends_s=ends_s(self.deadline_in_s),
            longest_ends_s=ends_s(self.longest_in_s),
            **(quiet if self.is_machine else {}),
        )


# What is looked at


class WatchTarget(Protocol):
    """A run that can be read, and ended."""

    @property
    def pid(self) -> int | None:
        """Of its first process, where it has one."""
        ...

    def is_alive(self) -> bool:
        """Whether it goes on."""
        ...

    def read(self, now_s: float) -> RunReading:
        """What it did since the last call."""
        ...

    def handles(self, number: int) -> bool:
        """Whether any of its processes has a handler for a signal."""
        ...

    def send(self, number: int, *, only_handlers: bool = False) -> None:
        """Send a signal to all its processes, or to those alone that have a handler."""
        ...

    def exit_status(self) -> int | None:
        """How it ended, where that can be known."""
        ...


class LocalProcess:
    """A process of this machine and all it started."""

    def __init__(
        self, pid: int, reader: RunReader, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.pid: int | None = pid
        self._own = pid
        self._reader = reader
        self._process = process
        self._started = started_ticks(pid)
        self._pids: frozenset[int] = frozenset({pid})
        self.counts_left = False
        """Whether it goes on while anything does that its first process has left behind."""

    def is_alive(self) -> bool:
        """Whether it goes on: its first process is still there, and still the same."""
        return self._is_first_alive() or (self.counts_left and bool(self.left))

    def _is_first_alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return self._started is not None and started_ticks(self._own) == self._started

    def read(self, now_s: float) -> RunReading:
        """As `WatchTarget.read`."""
        reading = self._reader.read(now_s)
        self._pids = reading.pids
        return reading

    @property
    def left(self) -> frozenset[int]:
        """Its processes that were there at the last reading, and still are."""
        return frozenset(pid for pid in self._pids if started_ticks(pid) is not None)

    def handles(self, number: int) -> bool:
        """As `WatchTarget.handles`."""
        return any(handles(pid, number) for pid in self._targets())

    def send(self, number: int, *, only_handlers: bool = False) -> None:
        """As `WatchTarget.send`; what was stopped goes on, so that it can end."""
        for pid in self._targets():
            if not only_handlers or handles(pid, number):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    if number == signal.SIGTERM:
                        os.kill(pid, signal.SIGCONT)

    def _targets(self) -> list[int]:
        first = {self._own} if self._is_first_alive() else set()
        return sorted((self.left | first) - {os.getpid(), os.getppid()})

    def exit_status(self) -> int | None:
        """As a shell says it; None of a process that is not ours."""
        code = None if self._process is None else self._process.poll()
        return KILLED - code if code is not None and code < 0 else code


class WholeMachine:
    """A machine that somebody works at."""

    pid: int | None = None

    def __init__(self, reader: MachineReader) -> None:
        self._reader = reader
        self._is_ended = False

    def is_alive(self) -> bool:
        """Until it was to be ended."""
        return not self._is_ended

    def read(self, now_s: float) -> RunReading:
        """As `WatchTarget.read`."""
        return self._reader.read(now_s)

    def handles(self, number: int) -> bool:  # noqa: ARG002
        """Nothing is asked to save: nothing runs."""
        return False

    def send(self, number: int, *, only_handlers: bool = False) -> None:  # noqa: ARG002
        """Nothing runs that a signal could be sent to; the machine is shut down."""
        self._is_ended = True

    def exit_status(self) -> int | None:
        """It has none."""
        return 0 if self._is_ended else None


# What is told, and to whom


class Told(Protocol):
    """Who is told of a run."""

    def status(self, status: RunStatus) -> None:
        """How it is doing."""
        ...

    def event(self, event: Mapping[str, Any]) -> None:
        """What has happened."""
        ...


class FolderFiles:
    """`status.json` and `events.jsonl` of a run's folder; of further machines with their number."""

    def __init__(self, folder: Path, machine: str = "0") -> None:
        self._status = folder / of_machine(STATUS, machine)
        self._events = folder / of_machine(EVENTS, machine)

    def status(self, status: RunStatus) -> None:
        """Replace the status as a whole."""
        write_whole(self._status, json_bytes(json_text(status) + "\n"))

    def event(self, event: Mapping[str, Any]) -> None:
        """Add a line."""
        with self._events.open("a", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(to_json(event), ensure_ascii=False) + "\n")


def of_machine(name: str, machine: str) -> str:
    """The name of a file that each machine of a run has, in a folder that they may share."""
    stem, dot, suffix = name.partition(".")
    return name if machine == "0" else f"{stem}-{machine}{dot}{suffix}"


class OwnOutput:
    """Standard error, and how much of what is there is ours: a run's log is often the same file."""

    def __init__(self) -> None:
        self._bytes = 0

    def say(self, text: str) -> None:
        """Write a line."""
        line = f"outlay: {text}\n"
        self._bytes += len(line.encode(errors="replace"))
        sys.stderr.write(line)
        sys.stderr.flush()

    def bytes_in(self, log: Path) -> int:
        """How much of a log we have written ourselves, so far."""
        try:
            return self._bytes if os.path.samestat(os.fstat(2), log.stat()) else 0
        except OSError:
            return 0


OWN_OUTPUT = OwnOutput()


class Messages:
    """Warnings on standard error."""

    def status(self, status: RunStatus) -> None:
        """Nothing: a log is not for that."""

    def event(self, event: Mapping[str, Any]) -> None:
        """One line."""
        OWN_OUTPUT.say(str(event["text"]))


def addresses_of(settings: WatchSettings) -> tuple[str, ...]:
    """Where warnings go: what was said, else what was handed over with the run."""
    return settings.notify or tuple(os.environ.get(NOTIFY_VARIABLE, "").split())


class Notifications:
    """Messages to a person, by apprise; sent by a thread, so that no network keeps us waiting."""

    def __init__(self, addresses: Sequence[str], title: str) -> None:
        self._addresses = tuple(addresses)
        self._title = title
        self._threads: list[threading.Thread] = []

    def status(self, status: RunStatus) -> None:
        """Nothing."""

    def event(self, event: Mapping[str, Any]) -> None:
        """Send what a person should know of."""
        if self._addresses and event["event"] not in ("started", "left"):
            thread = threading.Thread(target=self._send, args=(str(event["text"]),), daemon=True)
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _send(self, text: str) -> None:
        from outlay.prices.alerts import send

        try:
            send(self._addresses, self._title, text)
        except Exception as error:
            said = redacted(str(error), self._addresses)
            OWN_OUTPUT.say(f"a message could not be sent: {said}")

    def finish(self, longest_s: float = 10.0) -> None:
        """Wait for what is being sent."""
        for thread in self._threads:
            thread.join(longest_s)


# The loop


class Supervisor:
    """Looks at a run until it ends, and ends it where the rules say so."""

    def __init__(
        self,
        target: WatchTarget,
        plan: WatchPlan,
        told: Sequence[Told] = (),
        *,
        timing: Timing = USUAL,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        self.target = target
        self.plan = plan
        self.signals: list[int] = []
        """Sent to us, to be passed on."""
        self.stopped_for: str | None = None
        self.guard = Guard()
        self._told = list(told)
        self._timing = timing
        self._clock = clock
        self._wait = wait
        self._started_s = clock()
        self._spending = Spending(
            bill=plan.bill,
            held_before_s=plan.held_before_s,
            started_s=self._started_s,
            budget_usd=plan.budget_usd,
        )
        self._rules = RunRules(
            plan.limits(self._started_s, self._spending), started_s=self._started_s
        )
        self._escalation = Escalation(is_warning_only=plan.settings.then == "warn")
        self._progress = StepProgress(plan.total_steps)
        self._reading = RunReading(activity=Activity(time_s=self._started_s))
        self._read_s = self._started_s
        self._loss: tuple[float | None, bool] | None = None
        self._warning: str | None = None
        self._warned: dict[str, str] = {}
        """Warnings that stay warnings, by rule, while they hold."""
        self._warned_s: dict[str, float] = {}
        """When each was last told of."""
        self._saved_at: tuple[int, int] = (0, 0)
        """Checkpoints and steps when the signal to save was sent."""
        self._asked_s: float | None = None
        self._asked = 0
        self._status_s = float("-inf")
        self._next_s = float("inf")
        """When a stop begins, to the moment: the next reading does not wait longer."""
        self._is_ended = False

    def run(self) -> int | None:
        """Until the run has ended; its own exit status, where it can be known."""
        self.begin()
        while self.target.is_alive():
            self.tick()
            self.pause(self.signals)
        return self.finish()

    @property
    def activity(self) -> Activity:
        """What was read last."""
        return self._reading.activity

    @property
    def is_asked(self) -> bool:
        """Whether we were asked to end it."""
        return self._asked > 0

    def begin(self) -> None:
        """Tell that it is looked at."""
        self._tell("started", "Looking at it from now on.")

    def leave(self) -> None:
        """Tell that it is not looked at any more."""
        self._tell("left", "It is no longer looked at, and goes on.")

    def finish(self) -> int | None:
        """Tell that it has ended."""
        self._is_ended = True
        last = self.guard.value("the last reading", lambda: self.target.read(self._clock()), None)
        if last is not None:
            self._reading = last
            self.guard.do("its progress", lambda: self._take(last))
        status = self.target.exit_status()
        said = "It has ended." if status is None else f"It has ended with status {status}."
        self._tell("ended", " ".join(part for part in (said, self.stopped_for) if part))
        self._status_s = float("-inf")
        self._write_status(self._clock())
        return status

    def tick(self) -> None:
        """One reading, and what follows from it."""
        now_s = self._clock()
        self.guard.do("a signal", lambda: self._pass_on_signals(now_s))
        unread = RunReading(activity=Activity(time_s=now_s))
        before_s, self._read_s = self._read_s, now_s
        reading = self.guard.value("a reading", lambda: self.target.read(now_s), unread)
        self._reading = reading
        self.guard.do("its progress", lambda: self._take(reading))
        if not self.target.is_alive():
            return
        verdicts = self.guard.value("the rules", lambda: self._rules.take(reading.activity), ())
        verdicts = (*verdicts, *self.guard.value("a forecast", lambda: self._forecast(now_s), ()))
        self._warn_of([verdict for verdict in verdicts if not verdict.is_stop])
        self.guard.do("what follows", functools.partial(self._follow, now_s, verdicts))
        self._write_status(now_s, now_s - before_s)

    def pause(self, signals: Sequence[int]) -> None:
        """Wait for the next reading; the end of the run, or a signal, is seen soon."""
        ends_s = min(self._clock() + self._timing.period_s, self._next_s)
        while self.target.is_alive() and not signals:
            left_s = ends_s - self._clock()
            if left_s <= 0:
                return
            self._wait(min(left_s, 0.1))

    # What is taken from a reading

    def _take(self, reading: RunReading) -> None:
        activity = reading.activity
        if self.plan.total_steps is None and reading.total_steps:
            self._progress.total_steps = reading.total_steps
        self._progress.take(activity.time_s, activity.steps)
        if activity.losses:
            last = activity.losses[-1]
            self._loss = last, last is not None

    def _forecast(self, now_s: float) -> tuple[RuleVerdict, ...]:
        """Warnings that the budget or the deadline will not do."""
        total, remaining = self._progress.total_steps, self._progress.remaining(now_s)
        if not total or remaining is None or self._progress.steps < FORECAST_SHARE * total:
            return ()
        found = []
        final, budget = self._spending.final_usd(now_s, remaining), self.plan.budget_usd
        if final is not None and budget is not None and final.likely > 1.02 * budget:
            why = f"At this rate it will cost {_usd(final.likely)}; the budget is {_usd(budget)}."
            found.append(RuleVerdict(rule="budget", why=why, is_stop=False))
        deadline_s = self._rules.limits.deadline_ends_s
        late_s = None if deadline_s is None else now_s + remaining.likely - deadline_s
        if late_s is not None and late_s > 0.02 * remaining.likely:
            why = f"At this rate it will end {span(late_s)} after the deadline."
            found.append(RuleVerdict(rule="deadline", why=why, is_stop=False))
        return tuple(found)

    def _warn_of(self, verdicts: Sequence[RuleVerdict]) -> None:
        """Tell of warnings once, as long as they hold; one that comes and goes, now and then."""
        now: dict[str, str] = {verdict.rule: verdict.why for verdict in verdicts}
        now_s = self._clock()
        for rule, why in now.items():
            is_old = now_s - self._warned_s.get(rule, -math.inf) >= WARN_AGAIN_S
            if rule not in self._warned and is_old:
                self._warned_s[rule] = now_s
                self._tell("warning", why, rule=rule)
        self._warned = now

    # What follows

    def _follow(self, now_s: float, verdicts: Sequence[RuleVerdict]) -> None:
        if self._asked:
            self._end_when_asked(now_s)
            return
        activity, times = self._reading.activity, self._times()
        saved, steps = self._saved_at
        self._next_s = self._escalation.next_s(now_s, verdicts, times)
        action = self._escalation.due(
            now_s,
            verdicts,
            times,
            has_saved=(activity.checkpoints or 0) > saved,
            has_stepped=(activity.steps or 0) > steps,
        )
        if action is not None:
            self._act(action)

    def _times(self) -> StopTimes:
        """How long a stop takes: less where nobody handles the signals it is made of."""
        settings, timing = self.plan.settings, self._timing
        number = self._save_signal()
        takes_save = number is not None and self.target.handles(number)
        half_s = settings.grace_s / 2
        saving_s = self._reading.saving_s
        save_s = half_s if saving_s is None else min(2 * saving_s + 5.0, half_s)
        takes_end = self.target.handles(signal.SIGTERM)
        off_s = timing.shut_down_s if settings.then == "shut down" else 0.0
        takes_any = takes_save or takes_end
        # A run may save on SIGTERM: it gets the time for it, unless it has saved before.
        ending_s = timing.terminate_s if takes_save else max(timing.terminate_s, half_s)
        return StopTimes(
            grace_s=half_s if takes_any else settings.grace_s,
            save_s=save_s if takes_save else 0.0,
            terminate_s=ending_s if takes_end else timing.end_s,
            end_s=timing.end_s + off_s,
        )

    def _save_signal(self) -> int | None:
        name = self.plan.settings.signal or "USR1"
        return signal_number(name)

    def _act(self, action: Action) -> None:
        verdict = self._escalation.verdict
        why = verdict.why if verdict is not None else ""
        rule = verdict.rule if verdict is not None else None
        if action == "take back":
            self._warning = self.stopped_for = None
            self._tell("taken back", "It goes on: the warning is taken back.")
            return
        if action == "warn":
            self._warning = why
            after = "" if self.plan.settings.then == "warn" else f" {self._threat(verdict)}"
            self._tell("warning", f"{why}{after}", rule=rule)
            return
        self.stopped_for = verdict.reason if verdict is not None else why
        if action == "save":
            activity = self._reading.activity
            self._saved_at = activity.checkpoints or 0, activity.steps or 0
            number = self._save_signal()
            if number is not None:
                self._tell("signal", f"{signal.Signals(number).name} is sent, so that it saves.")
                self._send(number, only_handlers=True)
        elif action == "terminate":
            self._tell("stopped", f"It is ended. {self.stopped_for}", rule=rule)
            self._send(signal.SIGTERM)
        else:
            self._tell("signal", "It did not end by itself: SIGKILL is sent.")
            self._send(signal.SIGKILL)

    def _threat(self, verdict: RuleVerdict | None) -> str:
        if verdict is None or verdict.ends_s is not None:
            return "It will be stopped by then."
        what = "The machine is shut down" if self.plan.is_machine else "It is stopped"
        return f"{what} in {span(self.plan.settings.grace_s)}, unless it goes on."

    def _send(self, number: int, *, only_handlers: bool = False) -> None:
        try:
            self.target.send(number, only_handlers=only_handlers)
        except PermissionError:
            self.guard.notes.append("It may not be ended by this user: it belongs to another.")

    # Signals that we get ourselves

    def _pass_on_signals(self, now_s: float) -> None:
        while self.signals:
            number = self.signals.pop(0)
            if number not in ENDING:
                self._send(number, only_handlers=True)
                continue
            if self._asked_s is not None and now_s - self._asked_s < SAME_REQUEST_S:
                continue
            self._asked += 1
            self._asked_s = now_s if self._asked_s is None else self._asked_s
            if self._asked > 1:
                self._send(signal.SIGKILL)
                continue
            self._tell("signal", f"{signal.Signals(number).name} was sent to outlay.")
            self._ask_to_end(number)

    def _ask_to_end(self, number: int) -> None:
        """Pass a signal on; where only the one to save has a handler, that one first."""
        save = self._save_signal()
        if save is not None and self.target.handles(save) and not self.target.handles(number):
            activity = self._reading.activity
            self._saved_at = activity.checkpoints or 0, activity.steps or 0
            self._pending = number
            self._send(save, only_handlers=True)
        else:
            self._pending = 0
            self._send(number)

    _pending = 0
    """The signal that follows once it has saved."""

    def _end_when_asked(self, now_s: float) -> None:
        """What is due after a signal was passed on."""
        times, asked_s = self._times(), self._asked_s or now_s
        has_saved = (self._reading.activity.checkpoints or 0) > self._saved_at[0]
        if self._pending and (has_saved or now_s - asked_s >= times.save_s):
            number, self._pending, self._asked_s = self._pending, 0, now_s
            self._send(number)
            return
        longest_s = max(self._timing.terminate_s, self.plan.settings.grace_s)
        if not self._pending and now_s - asked_s >= longest_s:
            self._send(signal.SIGKILL)

    # Telling

    def _tell(self, event: str, text: str, *, rule: str | None = None) -> None:
        said = {
            "time_s": time.time(),
            "event": event,
            "rule": rule,
            "text": redacted(text),
            "run": self.plan.run,
        }
        for one in self._told:
            self.guard.do("an event", functools.partial(one.event, said))

    def status(self, now_s: float, over_s: float = 0.0) -> RunStatus:
        """How the run is doing."""
        activity, plan, progress = self._reading.activity, self.plan, self._progress
        remaining = progress.remaining(now_s)
        deadline_s = self._rules.limits.deadline_ends_s
        cpus = None if activity.cpu_s is None or over_s <= 0 else activity.cpu_s / over_s
        warning = self._warning or next(iter(self._warned.values()), None)
        return RunStatus(
            run=plan.run,
            time_s=time.time(),
            phase=self._phase(),
            pid=self.target.pid,
            elapsed_s=now_s - self._started_s,
            steps_done=activity.steps,
            total_steps=progress.total_steps,
            step_time_s=progress.step_time_s(),
            predicted_step_time_s=plan.predicted_step_time_s,
            loss=None if self._loss is None else self._loss[0],
            is_loss_finite=None if self._loss is None else self._loss[1],
            gpu_fraction=activity.gpu_fraction,
            gpu_power_w=activity.gpu_power_w,
            gpu_memory_bytes=activity.gpu_memory_bytes,
            cpus=cpus,
            quiet_s=self._rules.quiet_s(now_s),
            price_usd_per_hour=None if plan.bill is None else plan.bill.usd_per_hour,
            cost_usd=self._spending.cost_usd(now_s),
            budget_usd=plan.budget_usd,
            remaining_s=remaining,
            final_cost_usd=self._spending.final_usd(now_s, remaining),
            predicted_cost_usd=plan.predicted_cost_usd,
            deadline_in_s=None if deadline_s is None else deadline_s - now_s,
            warning=None if self._is_ended else warning,
            stopped_for=self.stopped_for,
            exit_status=self.target.exit_status() if self._is_ended else None,
            notes=tuple(self.guard.notes[:8]),
        )

    def _phase(self) -> str:
        if self._is_ended:
            return "ended"
        if self._escalation.is_ending or self._asked:
            return "stopping"
        return "warned" if self._warning else "training"

    def _write_status(self, now_s: float, over_s: float = 0.0) -> None:
        if now_s - self._status_s < self._timing.status_s:
            return
        self._status_s = now_s
        status = self.guard.value("the status", lambda: self.status(now_s, over_s), None)
        if status is None:
            return
        for one in self._told:
            self.guard.do("the status", functools.partial(one.status, status))


def _usd(amount: float) -> str:
    return f"${amount:,.2f}"


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2)


def signal_number(name: str) -> int | None:
    """The number of a signal by its name (`USR1`, `SIGUSR1`) or number; None where there is none.

    An empty name is no signal.
    """
    text = name.strip().upper()
    if text.isdigit():
        return int(text) if 0 < int(text) < 65 else None
    found = signal.Signals.__members__.get(text if text.startswith("SIG") else f"SIG{text}")
    return None if found is None else int(found)
