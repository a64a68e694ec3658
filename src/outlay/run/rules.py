"""When a run is idle, stalled, over budget or late: readings in, verdicts out.

    rules = RunRules(RuleLimits(), started_s=0.0)
    verdicts = rules.take(Activity(time_s=2.0, gpu_fraction=0.0, ...))

Nothing here reads a clock or a disk. What is not known counts as activity: a run is idle only
where every signal is known and quiet, over the whole window. `Escalation` says what follows from a
verdict, and when: a warning, the signal to save, and the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from outlay.units import HOUR_S, MIB, MINUTE_S

# Readings

StackState = Literal["blocked", "compiling", "other"]
"""Where the training thread is: in a call of torch's that waits, in a compiler, or elsewhere."""
HeldBy = Literal["debugger", "terminal", "stopped"]
"""A person has it: a debugger is attached, it waits for what is typed, or it was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStack:
    """The stacks of the threads that train, one for each process of the run."""

    state: StackState
    same_s: float
    """For how long none of them has changed."""
    where: str = ""
    is_complete: bool = True
    """Whether it is known of every process of the run, those on other machines included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a run did since the reading before; None is unknown, which counts as activity."""

    time_s: float
    """On the monotonic clock."""
    gpu_fraction: float | None = None
    """Of the busiest of its GPUs."""
    gpu_power_w: float | None = None
    gpu_memory_bytes: float | None = None
    cpu_s: float | None = None
    """CPU time of all its processes."""
    disk_bytes: float | None = None
    network_bytes: float | None = None
    log_bytes: float | None = None
    steps: int | None = None
    """Training steps so far; None where they cannot be counted."""
    batches: int | None = None
    """Batches that loaders gave so far, to train on or to evaluate; None: nobody counts."""
    checkpoints: int | None = None
    """Written so far; None: nobody counts."""
    losses: tuple[float | None, ...] = ()
    """New ones; None is one that is not finite."""
    held_by: HeldBy | None = None
    stack: ThreadStack | None = None
    """None where the agent has not looked: steps come, or it is not there."""


# Limits

CPUS_QUIET = 0.05
"""Of one CPU, over all processes: monitors and watchdogs of a run that waits take less."""
BYTES_PER_S_QUIET = 20_000.0
"""To and from disks, and over the network: heartbeats and metrics take less."""
MEMORY_QUIET_BYTES = 1.0 * MIB
BLOCK_SHARE = 0.1
"""Rates are means over this share of a window ..."""
LONGEST_BLOCK_S = MINUTE_S
"""... and at most over so long."""
UNREAD_SHARE = 0.5
"""Of a window: without a reading for longer, nobody knows what went on."""
STEPS_TO_KNOW = 3
GAPS = 4.0
"""A run is stalled after so many times the longest it has ever been without a step."""
BAD_LOSSES = 5
"""In a row: a gradient scaler leaves single ones out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HourlyBilling:
    """What holding the machines costs."""

    usd_per_hour: float
    billing_step_s: float = 1.0
    billing_minimum_s: float = 0.0

    def usd(self, held_s: float) -> float:
        """Of machines that were held so long: started steps are paid."""
        steps = math.ceil(held_s / self.billing_step_s - 1e-9)
        billed_s = max(steps * self.billing_step_s, self.billing_minimum_s)
        return self.usd_per_hour / HOUR_S * billed_s

    def longest_s(self, budget_usd: float) -> float:
        """How long machines can be held for a budget; what is paid for in any case is used up."""
        if self.usd_per_hour <= 0:
            return math.inf
        step_usd = self.usd_per_hour / HOUR_S * self.billing_step_s
        whole_s = math.floor(budget_usd / step_usd + 1e-9) * self.billing_step_s
        return max(whole_s, self.billing_minimum_s, self.billing_step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleLimits:
    """What a run is held to; a rule whose figure is None is off."""

    idle_below_fraction: float = 0.05
    idle_s: float | None = 600.0
    stall_s: float | None = 1800.0
    bad_losses: int | None = BAD_LOSSES
    cpus_quiet: float = CPUS_QUIET
    bytes_per_s_quiet: float = BYTES_PER_S_QUIET
    budget_ends_s: float | None = None
    """When the budget is spent, on the clock of the readings."""
    deadline_ends_s: float | None = None
    longest_ends_s: float | None = None
    """When the time on the machine is over, whatever happens."""


# Verdicts

RuleName = Literal["idle", "stall", "loss", "budget", "deadline", "longest"]
ENDS: dict[RuleName, str] = {
    "budget": "The budget is spent.",
    "deadline": "The deadline is reached.",
    "longest": "The time limit is reached.",
}
"""Rules that hold at a time, and what is said once it has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleVerdict:
    """What a rule says of a run now."""

    rule: RuleName
    why: str
    """In words, with the figures."""
    is_stop: bool = True
    """Else it is a warning, and stays one."""
    ends_s: float | None = None
    """By when the run must have ended; None: after the grace period."""

    @property
    def reason(self) -> str:
        """Why a run was ended for it."""
        if self.rule in ENDS:
            return ENDS[self.rule]
        return self.why

    @property
    def can_pass(self) -> bool:
        """Whether it is taken back where the run does something."""
        return self.ends_s is None


class RunRules:
    """The rules of one run, and what they must remember; no more for a run of weeks."""

    def __init__(self, limits: RuleLimits, *, started_s: float) -> None:
        self.limits = limits
        self._signals = _Signals(limits, started_s)
        self._steps = _StepGaps()
        self._bad_losses = 0

    def take(self, reading: Activity) -> tuple[RuleVerdict, ...]:
        """What the rules say after one more reading."""
        self._signals.take(reading)
        self._steps.take(reading)
        self._count_losses(reading.losses)
        verdicts = (self._idle(reading), self._stall(reading), self._loss())
        return tuple(verdict for verdict in verdicts if verdict is not None) + self._ends(reading)

    def quiet_s(self, now_s: float) -> float:
        """For how long every signal has been known and quiet."""
        return self._signals.quiet_s(now_s)

    def _count_losses(self, losses: Iterable[float | None]) -> None:
        for loss in losses:
            is_bad = loss is None or not math.isfinite(loss)
            self._bad_losses = self._bad_losses + 1 if is_bad else 0

    def _idle(self, reading: Activity) -> RuleVerdict | None:
        window_s = self.limits.idle_s
        if window_s is None:
            return None
        quiet_s = self._signals.quiet_s(reading.time_s, PERSON)
        if quiet_s < window_s:
            return None
        held_s = self._signals.quiet_s(reading.time_s)
        if held_s < window_s:
            why = f"It has done nothing for {span(quiet_s)}: {_held_words(reading.held_by)}."
            return RuleVerdict(rule="idle", why=why, is_stop=False)
        share = f"{self.limits.idle_below_fraction:.0%}"
        return RuleVerdict(
            rule="idle",
            why=f"GPUs below {share} for {span(quiet_s)}, and nothing else has gone on.",
        )

    def _stall(self, reading: Activity) -> RuleVerdict | None:
        window_s, steps = self.limits.stall_s, self._steps
        if window_s is None or steps.count < STEPS_TO_KNOW:
            return None
        allowed_s = max(window_s, GAPS * steps.longest_s)
        without_s = reading.time_s - steps.last_s
        if without_s < allowed_s:
            return None
        said = f"No step for {span(without_s)} (the longest so far: {span(steps.longest_s)})"
        quiet_s = self._signals.quiet_s(reading.time_s)
        if quiet_s >= window_s:
            return RuleVerdict(rule="stall", why=f"{said}, and nothing else has gone on.")
        if self._signals.quiet_s(reading.time_s, *COMPUTE) < window_s:
            return None
        stack = reading.stack
        if stack is not None and stack.state == "compiling":
            return None
        if stack is None or stack.state == "other":
            why = f"{said}, while CPU or GPU are busy: it may hang."
            return RuleVerdict(rule="stall", why=why, is_stop=False)
        if stack.same_s < window_s:
            return None
        why = f"{said}: it waits in {stack.where or 'torch'}, and nothing else has gone on"
        if not stack.is_complete:
            why = f"{why} here; processes on other machines are not seen."
            return RuleVerdict(rule="stall", why=why, is_stop=False)
        return RuleVerdict(rule="stall", why=f"{why}.")

    def _loss(self) -> RuleVerdict | None:
        most = self.limits.bad_losses
        if most is None or self._bad_losses < most:
            return None
        return RuleVerdict(rule="loss", why=f"The last {self._bad_losses} losses are not finite.")

    def _ends(self, reading: Activity) -> tuple[RuleVerdict, ...]:
        """Verdicts of what ends at a time; they hold from the beginning."""
        limits = self.limits
        ends: tuple[tuple[RuleName, float | None, str], ...] = (
            ("budget", limits.budget_ends_s, "The budget is spent"),
            ("deadline", limits.deadline_ends_s, "The deadline is reached"),
            ("longest", limits.longest_ends_s, "The time limit is reached"),
        )
        return tuple(
            RuleVerdict(rule=rule, why=f"{what} in {span(at_s - reading.time_s)}.", ends_s=at_s)
            for rule, at_s, what in ends
            if at_s is not None and math.isfinite(at_s)
        )


GPU, MEMORY, CPU, PERSON = "GPU", "GPU memory", "CPU", "a person"
COMPUTE = (GPU, MEMORY, CPU)
"""Signals that a process which hangs may show all the same: it waits by spinning."""


class _Signals:
    """When each signal of activity was last seen, or not known."""

    def __init__(self, limits: RuleLimits, started_s: float) -> None:
        windows_s = [window for window in (limits.idle_s, limits.stall_s) if window is not None]
        window_s = min(windows_s, default=math.inf)
        block_s = min(BLOCK_SHARE * window_s, LONGEST_BLOCK_S)
        self._unread_s = UNREAD_SHARE * window_s
        self._share = limits.idle_below_fraction
        self._cpu = _Rate(limits.cpus_quiet, block_s, started_s)
        self._disk = _Rate(limits.bytes_per_s_quiet, block_s, started_s)
        self._network = _Rate(limits.bytes_per_s_quiet, block_s, started_s)
        self._counts: dict[str, float | None] = {}
        self._read_s = started_s
        self._last_s = dict.fromkeys(
            (GPU, MEMORY, CPU, PERSON, "disk", "network", "log", "steps", "batches"), started_s
        )

    def take(self, reading: Activity) -> None:
        """Note which signals were active, or unknown."""
        now_s = reading.time_s
        is_unread = now_s - self._read_s > self._unread_s
        self._read_s = now_s
        active = {
            GPU: reading.gpu_fraction is None or reading.gpu_fraction >= self._share,
            MEMORY: self._has_changed(MEMORY, reading.gpu_memory_bytes, MEMORY_QUIET_BYTES),
            CPU: self._cpu.is_active(reading.cpu_s, now_s),
            "disk": self._disk.is_active(reading.disk_bytes, now_s),
            "network": self._network.is_active(reading.network_bytes, now_s),
            "log": reading.log_bytes is None or reading.log_bytes > 0,
            "steps": self._has_changed("steps", reading.steps),
            "batches": self._has_changed("batches", reading.batches)
            | self._has_changed("checkpoints", reading.checkpoints),
            PERSON: reading.held_by is not None,
        }
        for name, is_active in active.items():
            if is_active or is_unread:
                self._last_s[name] = now_s

    def quiet_s(self, now_s: float, *ignored: str) -> float:
        """For how long every signal has been known and quiet, but for those that do not count."""
        return now_s - max(at_s for name, at_s in self._last_s.items() if name not in ignored)

    def _has_changed(self, name: str, value: float | None, by: float = 0.5) -> bool:
        """Whether a count has moved. One that nobody counts has not: what it would count shows in
        other signals, all of which must be known."""
        before = self._counts.get(name)
        if value is not None and (before is None or abs(value - before) >= by):
            self._counts[name] = value
        return value is not None and before is not None and abs(value - before) >= by


class _Rate:
    """A signal that is quiet while its mean over a block of time is small."""

    def __init__(self, quiet_per_s: float, block_s: float, started_s: float) -> None:
        self._quiet_per_s = quiet_per_s
        self._block_s = block_s
        self._from_s = self._read_s = started_s
        self._sum = 0.0

    def is_active(self, amount: float | None, now_s: float) -> bool:
        """Whether it is, with one more amount since the last call."""
        before_s, self._read_s = self._read_s, now_s
        if now_s - self._from_s > self._block_s:
            self._from_s, self._sum = before_s, 0.0
        if amount is None:
            return True
        self._sum += amount
        over_s = max(self._block_s, now_s - self._from_s)
        return self._sum >= self._quiet_per_s * over_s


class _StepGaps:
    """The longest time between steps so far."""

    def __init__(self) -> None:
        self.count = 0
        """Readings with new steps: a log that is written in blocks has many at once."""
        self.last_s = 0.0
        self.longest_s = 0.0
        self._steps = 0

    def take(self, reading: Activity) -> None:
        """Note new steps. The time before the first is no step's."""
        steps = reading.steps
        if not steps or steps == self._steps:
            return
        if self._steps:
            self.longest_s = max(self.longest_s, reading.time_s - self.last_s)
        self._steps, self.last_s = steps, reading.time_s
        self.count += 1


def _held_words(held_by: HeldBy | None) -> str:
    return {
        "debugger": "a debugger is attached",
        "terminal": "it waits for what is typed at a terminal",
        "stopped": "it was stopped by a signal",
        None: "somebody had it a while ago",
    }[held_by]


def span(seconds: float) -> str:
    """A time in plain words for messages: `40 s`, `12 min`, `3.5 h`."""
    seconds = max(seconds, 0.0)
    if seconds < 2 * MINUTE_S:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < 2 * HOUR_S else f"{seconds / HOUR_S:.1f} h"


# What follows

Action = Literal["warn", "take back", "save", "terminate", "kill"]
_STAGES: tuple[Action, ...] = ("warn", "save", "terminate", "kill")


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTimes:
    """How long the stages of a stop take at most."""

    grace_s: float = 120.0
    """From the warning to the signal to save."""
    save_s: float = 0.0
    """For saving; 0 where the run does not take a signal for it."""
    terminate_s: float = 20.0
    """From SIGTERM to SIGKILL."""
    end_s: float = 2.0
    """From SIGKILL until it is gone, and the machine with it where that is to be."""


class Escalation:
    """From a verdict to the end of a run: what is due now."""

    def __init__(self, *, is_warning_only: bool = False) -> None:
        self._is_warning_only = is_warning_only
        self._stage = 0
        """How many of the stages were begun."""
        self._begun_s = 0.0
        self.verdict: RuleVerdict | None = None
        """What it is about, from the warning on."""

    @property
    def is_ending(self) -> bool:
        """Whether the run was asked to end."""
        return self._stage > 1

    def due(
        self,
        now_s: float,
        verdicts: Sequence[RuleVerdict],
        times: StopTimes,
        *,
        has_saved: bool = False,
        has_stepped: bool = False,
    ) -> Action | None:
        """The next stage, once its time has come; a warning is taken back where it has passed.

        `has_saved`, `has_stepped`: since the signal to save. What the signal itself causes is no
        reason to go on; a step is.
        """
        stops = [verdict for verdict in verdicts if verdict.is_stop]
        if self._has_passed(stops, now_s, times, has_stepped=has_stepped):
            self._stage, self.verdict = 0, None
            return "take back"
        if self._stage == len(_STAGES) or (self._stage == 1 and self._is_warning_only):
            return None
        found = self._next(now_s, stops, times, has_saved=has_saved)
        if found is None:
            return None
        self.verdict = self.verdict or found
        self._begun_s = now_s
        self._stage += 1
        if _STAGES[self._stage - 1] == "save" and not times.save_s:
            self._stage += 1  # nothing takes the signal: it is asked to end at once
        return _STAGES[self._stage - 1]

    def next_s(self, now_s: float, verdicts: Sequence[RuleVerdict], times: StopTimes) -> float:
        """When the next stage of a stop begins that must be over at a time."""
        begins = (
            _begins_s(verdict, stage, times)
            for verdict in verdicts
            if verdict.ends_s is not None and verdict.is_stop
            for stage in range(len(_STAGES))
        )
        return min((at_s for at_s in begins if at_s > now_s), default=math.inf)

    def _has_passed(
        self, stops: Sequence[RuleVerdict], now_s: float, times: StopTimes, *, has_stepped: bool
    ) -> bool:
        verdict = self.verdict
        if verdict is None or self._stage > 2:
            return False
        if self._stage == 2:
            return has_stepped and verdict.rule in ("idle", "stall")
        same = [stop for stop in stops if stop.rule == verdict.rule]
        return not any(stop.can_pass or now_s >= _begins_s(stop, 0, times) for stop in same)

    def _next(
        self, now_s: float, stops: Sequence[RuleVerdict], times: StopTimes, *, has_saved: bool
    ) -> RuleVerdict | None:
        """The verdict by which the next stage is due, if any is."""
        for stop in stops:
            if stop.ends_s is not None and now_s >= _begins_s(stop, self._stage, times):
                return stop
        if self._stage == 0:
            return next((stop for stop in stops if stop.can_pass), None)
        if self.verdict is None or not self.verdict.can_pass:
            return None
        waits_s = (times.grace_s, times.save_s, times.terminate_s)[self._stage - 1]
        is_over = now_s - self._begun_s >= waits_s or (self._stage == 2 and has_saved)
        return self.verdict if is_over else None


def _begins_s(stop: RuleVerdict, stage: int, times: StopTimes) -> float:
    """When a stage begins of a stop that must be over at a time."""
    lasts_s = (times.grace_s, times.save_s, times.terminate_s, times.end_s)
    return (stop.ends_s or 0.0) - sum(lasts_s[stage:])
