"""Rhythms of training runs, as readings every few seconds; a clock that nobody waits for."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from outlay.run.rules import (
    Activity,
    Escalation,
    RuleLimits,
    RuleVerdict,
    RunRules,
    StopTimes,
    ThreadStack,
)

PERIOD_S = 2.0
HOUR_S = 3600.0
Rhythm = Callable[[float], Activity]
"""What a run does at a time, in the seconds up to it."""


def quiet(now_s: float, **values) -> Activity:
    """A reading in which nothing goes on, but for what is given."""
    nothing = {
        "gpu_fraction": 0.0,
        "gpu_memory_bytes": 20e9,
        "cpu_s": 0.0,
        "disk_bytes": 0.0,
        "network_bytes": 0.0,
        "log_bytes": 0.0,
        "steps": 0,
        "batches": 0,
        "checkpoints": 0,
    }
    return Activity(time_s=now_s, **{**nothing, **values})


@dataclass
class Outcome:
    """What the rules made of a run."""

    stopped_s: float | None = None
    warned: list[RuleVerdict] = field(default_factory=list)
    taken_back: int = 0
    stopped_by: RuleVerdict | None = None


def follow(
    rhythm: Rhythm,
    hours: float,
    limits: RuleLimits | None = None,
    times: StopTimes | None = None,
    period_s: float = PERIOD_S,
) -> Outcome:
    """Look at a run as the guard does, until it would be ended or so much time is over."""
    limits, times = limits or RuleLimits(), times or StopTimes()
    rules, escalation, outcome = RunRules(limits, started_s=0.0), Escalation(), Outcome()
    now_s = 0.0
    while now_s < hours * HOUR_S:
        now_s += period_s
        verdicts = rules.take(rhythm(now_s))
        outcome.warned += [one for one in verdicts if not one.is_stop][:1]
        action = escalation.due(now_s, verdicts, times)
        if action == "take back":
            outcome.taken_back += 1
        if action == "terminate":
            outcome.stopped_s, outcome.stopped_by = now_s, escalation.verdict
            return outcome
    return outcome


def noise(seed: int = 0) -> Rhythm:
    """What a run that waits does all the same: watchdogs, monitors, heartbeats."""
    dice = random.Random(seed)

    def rhythm(now_s: float) -> Activity:
        beat = int(now_s) % 16 < PERIOD_S  # a monitor's sample every 16 s
        return quiet(
            now_s,
            gpu_fraction=0.0 if dice.random() < 0.9 else 0.01,
            cpu_s=0.2 if beat else 0.01 * dice.random(),  # 0.2 / 16 s: 1.3 % of a CPU
            disk_bytes=100_000.0 if beat else 0.0,  # 6 kB/s
            network_bytes=8_000.0 * dice.random(),  # 4 kB/s at most
        )

    return rhythm


def steps_every(seconds: float, *, until_s: float = float("inf"), first_s: float = 0.0) -> Rhythm:
    """A plain run: a step, a batch and a busy GPU, one after the other, until it is over."""

    def rhythm(now_s: float) -> Activity:
        steps = max(int((min(now_s, until_s) - first_s) / seconds), 0)
        is_on = first_s <= now_s < until_s
        return quiet(
            now_s,
            steps=steps,
            batches=steps,
            gpu_fraction=0.9 if is_on else 0.0,
            cpu_s=PERIOD_S if is_on else 0.0,
        )

    return rhythm


def after(first: Rhythm, at_s: float, then: Rhythm) -> Rhythm:
    """One thing, and then another; what was counted stays counted."""
    last = first(at_s)

    def rhythm(now_s: float) -> Activity:
        if now_s <= at_s:
            return first(now_s)
        reading = then(now_s)
        counts = {
            name: max(getattr(reading, name) or 0, getattr(last, name) or 0)
            for name in ("steps", "batches", "checkpoints")
        }
        return replace(reading, **counts)

    return rhythm


def pausing(every_s: float, pause_s: float, **values) -> Rhythm:
    """Steps for a while, then a pause in which something else goes on, again and again."""

    def rhythm(now_s: float) -> Activity:
        rounds, within_s = divmod(now_s, every_s + pause_s)
        trained_s = rounds * every_s + min(within_s, every_s)
        if within_s <= every_s:
            return quiet(
                now_s, steps=int(trained_s), batches=int(trained_s), gpu_fraction=0.9, cpu_s=2.0
            )
        given = {name: value(now_s) if callable(value) else value for name, value in values.items()}
        return quiet(now_s, **{"steps": int(trained_s), "batches": int(trained_s), **given})

    return rhythm


def blocked(now_s: float, since_s: float, **values) -> ThreadStack:
    """A training thread that waits in a collective."""
    stack = ThreadStack(state="blocked", same_s=now_s - since_s, where="all_reduce")
    return replace(stack, **values)


def readings(rhythm: Rhythm, seconds: float) -> Iterator[Activity]:
    """All readings of so long."""
    for number in range(1, int(seconds / PERIOD_S) + 1):
        yield rhythm(number * PERIOD_S)
