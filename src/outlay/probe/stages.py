"""The stages of a probe: measure until enough is known, profile, record, stop.

Live state  one moment of a probe, for the live line
Limits      when a probe ends, and the options that say so
Stages      `ProbeStages` gets the statistics so far, and gives what to request of the processes
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outlay.errors import InputError
from outlay.measurement.file import HIGHEST_PRICE_USD
from outlay.probe.agent.protocol import NO_REQUEST, AgentRequest
from outlay.probe.steps import StepStatistics, is_enough
from outlay.units import HOUR_S, duration_s

# Live state

Phase = Literal["starting", "warming up", "measuring", "profiling", "stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """One moment of a probe; None for what is not known yet, or never will be."""

    phase: Phase
    elapsed_s: float
    """Since the command was started."""
    step: int = 0
    """Training steps so far."""
    wanted_steps: int | None = None
    """Where a number of steps was asked for."""
    total_steps: int | None = None
    """What the whole run would do."""
    step_s: float | None = None
    """Of the latest steps."""
    samples_per_s: float | None = None
    """Of all ranks together."""
    gpu_fraction: float | None = None
    memory_bytes: float | None = None
    """In use on the fullest GPU."""
    memory_limit_bytes: float | None = None
    """What it has."""
    power_w: float | None = None
    """Of all GPUs used."""
    price_usd_per_hour: float | None = None
    precision: float | None = None
    """Half the confidence interval over the mean, as far as it is known."""
    wanted_precision: float | None = None

    @property
    def usd(self) -> float | None:
        """What it cost so far."""
        return self._priced(self.elapsed_s)

    @property
    def left_s(self) -> float | None:
        """Until the whole run would be done, at the pace of the latest steps; no pauses counted."""
        if self.total_steps is None or self.step_s is None:
            return None
        return max(self.total_steps - self.step, 0) * self.step_s

    @property
    def left_usd(self) -> float | None:
        """What that costs."""
        return None if self.left_s is None else self._priced(self.left_s)

    def _priced(self, time_s: float) -> float | None:
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour * time_s / HOUR_S


# Limits

PRECISION = 0.02
LONGEST_S = 600.0
# Assumes: who gives no limit does not want to pay for more than ten minutes of training.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeLimits:
    """When to stop. What is None is no limit; without any, `PRECISION` within `LONGEST_S`."""

    steps: int | None = None
    """Training steps, warm-up included."""
    duration_s: float | None = None
    """Since the first step, for which there is `start_s` beside it."""
    start_s: float = LONGEST_S
    precision: float | None = None
    """Half the confidence interval over the mean."""
    max_usd: float | None = None
    price_usd_per_hour: float | None = None
    to_end: bool = False
    """Never stop the command, only measure it."""
    operations: bool = True
    """Whether to profile and record a step once the timing is done."""

    @property
    def wanted_precision(self) -> float | None:
        """What precision ends the timing: as asked, or the usual where nothing was."""
        if self.precision is not None or self.steps or self.duration_s:
            return self.precision
        return PRECISION

    @property
    def longest_s(self) -> float | None:
        """How long the timing may take."""
        if self.duration_s is not None or self.steps is not None:
            return self.duration_s
        return LONGEST_S

    @property
    def first_step_s(self) -> float | None:
        """How long the first step is waited for; None: for ever."""
        return None if self.duration_s is None else self.duration_s + self.start_s

    def is_spent(self, elapsed_s: float) -> bool:
        """Whether the money for this probe is gone."""
        if self.max_usd is None or self.price_usd_per_hour is None:
            return False
        return self.price_usd_per_hour * elapsed_s / HOUR_S >= self.max_usd


UNLIMITED = ProbeLimits()
"""What a user who gives no limits gets."""


def parse_limits(
    steps: int | None,
    duration: str | None,
    until: str | None,
    price: str | None,
    max_cost: str | None = None,
    to_end: bool = False,
    no_operations: bool = False,
) -> ProbeLimits:
    """The limits that the options of `outlay probe` give; notebooks have the same."""
    price_usd = None if price is None else _dollars("--price", price)
    max_usd = None if max_cost is None else _dollars("--max-cost", max_cost)
    if max_usd is not None and price_usd is None:
        raise InputError(
            f"--max-cost {max_cost} needs the price of this machine.",
            fix="Give it, for example --price 1.10 (dollars an hour).",
        )
    return ProbeLimits(
        steps=steps,
        duration_s=None if duration is None else _time_s(duration),
        precision=None if until is None else _fraction(until),
        max_usd=max_usd,
        price_usd_per_hour=price_usd,
        to_end=to_end,
        operations=not no_operations,
    )


def _time_s(text: str) -> float:
    time_s = duration_s(text)
    if not 0 < time_s < math.inf:
        raise InputError(f"--for {text!r} is no time.", fix="Write for example --for 5m.")
    return time_s


def _dollars(option: str, text: str) -> float:
    plain = text.strip().removeprefix("$").removesuffix("USD").removesuffix("$").strip()
    try:
        value = float(plain)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(
            f"{option} {text!r} is no amount of dollars.", fix=f"Write for example {option} 1.50."
        )
    if value > HIGHEST_PRICE_USD:
        raise InputError(
            f"{option} {text!r} is more than any machine costs: at most {HIGHEST_PRICE_USD:,.0f}.",
            fix=f"Write for example {option} 1.50.",
        )
    return value


def _fraction(text: str) -> float:
    """`2%` and `0.02` are the same."""
    is_percent = text.strip().endswith("%")
    try:
        value = float(text.strip().removesuffix("%")) / (100 if is_percent else 1)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise InputError(f"--until {text!r} is no precision.", fix="Write for example --until 2%.")
    return value


# Stages

_AHEAD_S = 1.5
_ALONE_S = 0.3
"""What is requested lies so far ahead that all processes read it in time; one alone has none to
agree with, but its last steps may not have been reported yet."""
_PROFILED_STEPS = 3
_LONG_STEP_S = 2.0
"""Of steps longer than this, one is profiled."""
_MOST_PROFILED_STEPS = 16
_MOST_PROFILED_S = 5.0
"""Where every 16th step is longer, say, as many as that are profiled: up to these limits."""
_EARLY_STEPS = 16
"""Optimizer steps at the beginning within which one whole training step is recorded."""


class ProbeStages:
    """Which stage a probe is in."""

    def __init__(self, limits: ProbeLimits, *, ahead_s: float | None = None) -> None:
        self.limits = limits
        self.phase: Phase = "starting"
        self.request = _first_request(limits)
        self.stopped_for: str | None = None
        """Why the timing was ended."""
        self.ahead_s = ahead_s
        """How far ahead requests lie, where the caller knows how soon they are read."""
        self._before: StepStatistics | None = None
        self._first_step_s: float | None = None
        """When an optimizer first stepped, whether or not that made a training step."""

    def advance(
        self, statistics: StepStatistics, last_steps: Sequence[int], elapsed_s: float
    ) -> AgentRequest:
        """What to request, given the statistics and the newest optimizer step of each process."""
        if self._first_step_s is None and any(last_steps):
            start_up_s = statistics.start_up_s
            self._first_step_s = elapsed_s if start_up_s is None else start_up_s
        if self.limits.is_spent(elapsed_s):
            self.stopped_for = "cost"
            self._stop_soon(statistics, last_steps)
        elif self.phase in ("starting", "warming up", "measuring"):
            self._measure(statistics, last_steps, elapsed_s)
        elif self.phase == "profiling" and min(last_steps) >= self.request.record_until:
            self._stop_at(self.request.record_until)
        self._before = statistics
        return self.request

    def _measure(
        self, statistics: StepStatistics, last_steps: Sequence[int], elapsed_s: float
    ) -> None:
        if statistics.steps_seen:
            step = statistics.step
            is_steady = step is not None and step.steps > 0 and step.is_steady
            self.phase = "measuring" if is_steady else "warming up"
        reason = self._stop_reason(statistics, elapsed_s)
        if reason is not None:
            self.stopped_for = reason
            self._end_timing(statistics, last_steps)

    def _stop_reason(self, statistics: StepStatistics, elapsed_s: float) -> str | None:
        """Why the timing is done, or None."""
        limits = self.limits
        if self._first_step_s is None and limits.first_step_s is not None:
            return "time" if elapsed_s >= limits.first_step_s else None
        trained_s = 0.0 if self._first_step_s is None else elapsed_s - self._first_step_s
        if limits.steps is not None and statistics.steps_seen >= limits.steps:
            return "steps"
        precision = limits.wanted_precision
        if precision is not None and is_enough(statistics, self._before, precision):
            return "precision"
        if limits.longest_s is not None and trained_s >= limits.longest_s:
            return "time"
        return None

    def _end_timing(self, statistics: StepStatistics, last_steps: Sequence[int]) -> None:
        """Profile and record next, or stop."""
        step = statistics.step
        if not self.limits.operations or step is None:
            self._stop_soon(statistics, last_steps)
            return
        newest, each = max(last_steps, default=0), _optimizer_steps(statistics)
        ahead = math.ceil(self._ahead_s(last_steps) / step.mean_s * each) + 1
        profiled = 1 if step.mean_s > _LONG_STEP_S else _PROFILED_STEPS
        profile_from = newest + ahead
        whole = max(profiled, statistics.pattern, _period_to_profile(statistics, step.mean_s))
        profile_until = profile_from + round(whole * each)
        record_from = profile_until + max(round(each), 1)
        record_until = record_from + max(round(statistics.pattern * each), 1)
        self.phase = "profiling"
        self.request = self.request._replace(
            profile_from=profile_from,
            profile_until=profile_until,
            record_from=record_from,
            record_until=record_until,
        )
        if not self.limits.to_end:
            self.request = self.request._replace(stop_at=record_until)

    def _stop_soon(self, statistics: StepStatistics, last_steps: Sequence[int]) -> None:
        """At the next step; of several processes, at one that none has reached yet."""
        ahead = 1
        if len(last_steps) > 1:
            step_s = statistics.step.mean_s if statistics.step else _AHEAD_S
            ahead += math.ceil(_AHEAD_S / step_s * _optimizer_steps(statistics))
        self._stop_at(max(last_steps, default=0) + ahead)

    def _ahead_s(self, last_steps: Sequence[int]) -> float:
        if self.ahead_s is not None:
            return self.ahead_s
        return _AHEAD_S if len(last_steps) > 1 else _ALONE_S

    def _stop_at(self, step: int) -> None:
        self.phase = "stopping"
        if not self.limits.to_end or self.stopped_for == "cost":
            self.request = self.request._replace(stop_at=min(self.request.stop_at or step, step))


def _period_to_profile(statistics: StepStatistics, step_s: float) -> int:
    """Steps after which their times repeat; 1 where that is too long to profile.

    Kernels of the short ones alone over the mean of all would make a busy GPU idle.
    """
    period = statistics.period
    is_short = period <= _MOST_PROFILED_STEPS and period * step_s <= _MOST_PROFILED_S
    return period if is_short else 1


def _first_request(limits: ProbeLimits) -> AgentRequest:
    """To record at the beginning, so that a probe which ends soon has the operations of a step; of
    few steps, half are left to be timed.
    """
    if not limits.operations:
        return NO_REQUEST
    few = _EARLY_STEPS if limits.steps is None else max(limits.steps // 2, 2)
    return AgentRequest(early_steps=min(few, _EARLY_STEPS))


def _optimizer_steps(statistics: StepStatistics) -> float:
    """Optimizer steps in a training step."""
    return max(sum(statistics.per_step), 1.0)
