"""From a step to a whole run: training time, sessions, set-up, what interruptions repeat."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from outlay.errors import InputError
from outlay.estimate import Estimate, total
from outlay.predict.step import StepPrediction
from outlay.units import DAY_S, HOUR_S, MONTH_S
from outlay.workload import FREE_SOURCES, Dataset, Usage, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """What is assumed of a session where the workload does not say; rows of `assumptions.csv`."""

    provisioning_s: float
    environment_s: float
    download_bytes_per_s: float
    checkpoint_bytes_per_s: float
    checkpoint_interval_s: float
    spot_restart_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The time of a whole run on one machine, or of a month of sessions, in parts."""

    training_s: Estimate
    """All sessions together, without interruptions."""
    sessions: float
    setup_s: float
    """Each session: provisioning and environment."""
    preparation_s: float
    """Over all sessions."""
    download_s: float
    """Over all sessions: waiting for the dataset."""
    checkpoint_s: Estimate
    """Over the run: writing checkpoints."""
    repeated_s: Estimate
    """Work lost to interruptions and done again, with the set-up of the replacement."""
    period_s: Estimate
    """From the first session's start to the last one's end."""
    kept_s: Estimate
    """How long data is stored and paid for."""
    recurring: bool = False
    """Whether it is a month of sessions rather than one run."""

    busy_s: Estimate = field(init=False)
    """Time the machine is held, which is what is billed."""

    def __post_init__(self) -> None:
        fixed_s = self.sessions * self.setup_s + self.preparation_s + self.download_s
        parts = (self.training_s, self.checkpoint_s, self.repeated_s, Estimate.exactly(fixed_s))
        object.__setattr__(self, "busy_s", total(parts))

    @property
    def due_s(self) -> float:
        """What a deadline is held against: calendar time, or one session where they recur."""
        return self.busy_s.likely / self.sessions if self.recurring else self.period_s.likely


def training_time_s(workload: Workload, step: StepPrediction) -> Estimate:
    """Time spent training: steps times step time, or the time the user gave."""
    length = workload.length
    if length.training_s is not None:
        return Estimate.exactly(length.training_s)
    return step.step_time_s.scaled(steps(workload, step))


def steps(workload: Workload, step: StepPrediction) -> float:
    """Optimizer steps of the run at a machine's own batch."""
    samples = workload.samples()
    if samples is not None:
        return math.ceil(samples / max(step.global_batch_size, 1))
    if workload.length.iterations is not None:
        return workload.length.iterations
    return (workload.length.training_s or 0.0) / step.step_time_s.likely


def run_of(
    workload: Workload,
    training_s: Estimate,
    habits: Habits,
    interruptions_per_month: Estimate | None = None,
) -> Run:
    """The run in parts; with an interruption rate (of one machine), as on spot machines."""
    usage, data = workload.usage, workload.data
    setup_s = _setup_s(usage, habits)
    fetched_s = _fetched_s(data, habits)
    daily_s = setup_s + (data.preparation_s + fetched_s) * data.prepared_each_session
    sessions = _sessions(usage, training_s.likely, daily_s)
    total_training_s = training_s.scaled(usage.sessions_per_month or 1.0)
    prepared = sessions if data.prepared_each_session else 1.0
    rebuild_s = setup_s + data.preparation_s + fetched_s + habits.spot_restart_s
    if interruptions_per_month is not None:
        # Any machine of several that goes takes the whole run down.
        interruptions_per_month = interruptions_per_month.scaled(usage.machines)
    checkpoint_s, repeated_s = _spot_parts(
        workload, total_training_s, habits, interruptions_per_month, rebuild_s
    )
    run = Run(
        training_s=total_training_s,
        sessions=sessions,
        setup_s=setup_s,
        preparation_s=prepared * data.preparation_s,
        download_s=prepared * fetched_s,
        checkpoint_s=checkpoint_s,
        repeated_s=repeated_s,
        period_s=Estimate.exactly(0.0),
        kept_s=Estimate.exactly(0.0),
    )
    period = _period_s(run, usage)
    kept = period if usage.storage_s is None else Estimate.exactly(usage.storage_s)
    recurring = usage.sessions_per_month is not None
    return replace(run, period_s=period, kept_s=kept, recurring=recurring)


def _fetched_s(data: Dataset, habits: Habits) -> float:
    """Time a machine waits for its data, once."""
    if data.at in FREE_SOURCES and data.preparation_s > 0:
        return 0.0  # Assumes: a stated preparation time includes fetching from outside.
    return (data.size_bytes or 0.0) / habits.download_bytes_per_s


def _setup_s(usage: Usage, habits: Habits) -> float:
    if usage.setup_s is not None:
        return usage.setup_s
    return habits.provisioning_s + habits.environment_s


def _sessions(usage: Usage, training_s: float, daily_s: float) -> float:
    """How often the machine is set up: once, as often as stated, or once each day of use."""
    if usage.sessions_per_month is not None:
        return usage.sessions_per_month
    if usage.hours_per_day is None:
        return 1.0
    useful_s = usage.hours_per_day * HOUR_S - daily_s
    if useful_s <= 0:
        raise InputError(
            f"{usage.hours_per_day:g} hours a day leave no time to train.",
            why=f"Set-up and data preparation take {daily_s / HOUR_S:.1f} h each day.",
            fix='Give more hours, a shorter usage.setup, or data.prepared = "once".',
        )
    return float(max(math.ceil(training_s / useful_s - 1e-9), 1))


def _period_s(run: Run, usage: Usage) -> Estimate:
    """Calendar time: a month of sessions, days of some hours, or one stretch."""
    if usage.sessions_per_month is not None:
        return Estimate.exactly(MONTH_S)
    if usage.hours_per_day is not None:
        return run.busy_s.scaled(DAY_S / (usage.hours_per_day * HOUR_S))
    return run.busy_s


def checkpoint_interval_s(write_s: float, interruptions_per_s: float) -> float:
    """The interval that wastes least: sqrt(2 x write time x mean time between interruptions).

    J. W. Young 1974, doi 10.1145/361147.361115. Good where writing is much shorter than the
    time between interruptions.
    """
    return math.sqrt(2 * write_s / interruptions_per_s)


def _spot_parts(
    workload: Workload,
    training_s: Estimate,
    habits: Habits,
    interruptions_per_month: Estimate | None,
    rebuild_s: float,
) -> tuple[Estimate, Estimate]:
    """Time to write checkpoints, and time repeated after interruptions."""
    rate = interruptions_per_month.likely / MONTH_S if interruptions_per_month else 0.0
    write_s = (workload.checkpoint.size_bytes or 0.0) / habits.checkpoint_bytes_per_s
    interval_s = _interval_s(workload, habits, write_s, rate)
    writing = training_s.scaled(write_s / interval_s)
    if interruptions_per_month is None:
        return writing, Estimate.exactly(0.0)
    lost_s = interval_s / 2 + rebuild_s
    low, likely, high = (
        per_month / MONTH_S * time_s
        for per_month, time_s in (
            (interruptions_per_month.low, training_s.low),
            (interruptions_per_month.likely, training_s.likely),
            (interruptions_per_month.high, training_s.high),
        )
    )
    # Interruptions are Poisson: the 90th percentile is about 1.28 standard deviations up.
    repeated = Estimate(
        low=low * lost_s, likely=likely * lost_s, high=(high + 1.28 * math.sqrt(high)) * lost_s
    )
    return writing, repeated


def _interval_s(workload: Workload, habits: Habits, write_s: float, rate: float) -> float:
    if workload.checkpoint.interval_s is not None:
        return workload.checkpoint.interval_s
    if rate > 0 and write_s > 0:
        return checkpoint_interval_s(write_s, rate)
    return habits.checkpoint_interval_s
