"""From a step to a whole run: training, evaluation, sessions, set-up, what interruptions add.

In: a `Workload`, the pace of a step on some machine (`pace_of`), what a session is like there
(`SessionOverheads`), and how often such machines are taken away. Out: a `Run`: the time of the
whole in parts, which are the lines of a bill. Inputs that are not known for certain come from a
`Sampler`, so that every figure is one number, or one for each draw. docs/models/cost.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from outlay.errors import InputError
from outlay.offers.places import HOME, DataRoute, Place, route_to_anywhere
from outlay.predict.interruptions import (
    NO_INTERRUPTIONS,
    InterruptionOverhead,
    interruption_overhead,
    is_hopeless,
    optimal_interval_s,
)
from outlay.predict.step import StepPrediction
from outlay.uncertainty import LIKELY, Number, Sampler, Uncertain, is_nonzero, middle
from outlay.units import HOUR_S, MONTH_S, WEEK_S
from outlay.workload.workload import Cadence, Checkpoint, Dataset, Pause, Usage, Workload

_WARNED_S = 60.0
# Assumes: warned in time to save, a run loses the work of a minute at most.
_RAREST_PER_S = 1e-12
_RAREST_TIMES = 1e-6
"""Of a cadence: what may never come still has an interval."""
_LEAST_USEFUL = 0.05
"""Of a session: what is left for work at least, whatever a draw takes for set-up."""


TIME_PARTS = {
    "provisioning": "provisioning_s",
    "set-up": "setup_s",
    "data download": "download_s",
    "data preparation": "preparation_s",
    "warm-up": "warmup_s",
    "compute": "training_s",
    "evaluation": "evaluation_s",
    "checkpoints": "checkpoint_s",
    "pauses": "pauses_s",
    "spot repetition": "lost_s",
    "spot restarts": "restart_s",
    "idle": "idle_s",
}
"""What a machine is held for: the lines of a bill, and the part of the run each of them is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The time of a whole run on one machine, or of a month of sessions, in parts.

    All over the whole run. Each figure is one number, or one for each draw.
    """

    sessions: Number
    provisioning_s: Number = 0.0
    setup_s: Number = 0.0
    download_s: Number = 0.0
    """Waiting for the dataset and images."""
    preparation_s: Number = 0.0
    warmup_s: Number = 0.0
    training_s: Number = 0.0
    """Without interruptions."""
    evaluation_s: Number = 0.0
    checkpoint_s: Number = 0.0
    """Writing checkpoints."""
    pauses_s: Number = 0.0
    """Other time between steps: new epochs, stalls."""
    lost_s: Number = 0.0
    """Work lost to interruptions and done again."""
    restart_s: Number = 0.0
    """Set-up and data once more, on the machines that replace those taken away."""
    idle_s: Number = 0.0
    """Held while nothing trains, as the user says."""
    interruptions: Number = 0.0
    waiting_s: Number = 0.0
    """For machines to replace those taken away; not billed."""
    upload_s: Number = 0.0
    """From home to where the data is kept, before a machine is rented; not billed."""
    copy_s: Number = 0.0
    """From elsewhere to where the data is kept, before a machine is rented; not billed, but for a
    copying machine where one is needed."""
    calendar_s: Number = 0.0
    """From the first session's start to the last one's end."""
    storage_s: Number = 0.0
    """How long data is stored and paid for."""
    checkpoint_interval_s: Number = 0.0
    recurring: bool = False
    """Whether it is a month of sessions rather than one run."""

    time_parts_s: tuple[tuple[str, Number], ...] = field(init=False)
    """What the machine is held for, by the name a bill gives it; without what takes no time."""
    busy_s: Number = field(init=False)
    """Time the machine is held, which is what is billed."""

    def __post_init__(self) -> None:
        parts = ((name, getattr(self, part)) for name, part in TIME_PARTS.items())
        time_parts_s = tuple((name, time_s) for name, time_s in parts if is_nonzero(time_s))
        object.__setattr__(self, "time_parts_s", time_parts_s)
        object.__setattr__(self, "busy_s", sum(time_s for _, time_s in time_parts_s))

    @property
    def completion_s(self) -> Number:
        """What a deadline is held against: calendar time, or one session where they recur."""
        return self.busy_s / self.sessions if self.recurring else self.calendar_s

    @property
    def before_s(self) -> Number:
        """What bringing the data takes before a machine is rented."""
        return self.upload_s + self.copy_s


class NeverEnds(Exception):
    """A run that interruptions keep from finishing: says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOverheads:
    """What a session is like where the workload does not say: rows of the tables, with ranges."""

    provisioning_s: Uncertain
    environment_s: Uncertain
    warmup_s: Uncertain
    """Before steps have their usual speed, in each session."""
    download_bytes_per_s: Uncertain
    upload_bytes_per_s: Uncertain
    """From home."""
    checkpoint_bytes_per_s: Uncertain
    checkpoint_interval_s: float
    requeue_s: Uncertain
    """Waiting for another machine after an interruption; not billed."""
    notice_s: float = 0.0
    """Warning before a machine is taken away."""
    longest_session_s: float | None = None
    """Where the provider ends sessions."""
    weekly_s: float | None = None
    """Where the provider gives only so much machine time a week."""


def run_of(
    workload: Workload,
    pace: Pace,
    overheads: SessionOverheads,
    interruptions_per_month: Uncertain | None = None,
    sampler: Sampler = LIKELY,
    route: DataRoute | None = None,
) -> Run:
    """The run in parts; with an interruption rate (of one machine), as on spot machines.

    route: how the data gets to the machine; without it, as to any rented machine.

    Raises `NeverEnds` where interruptions come faster than work can be saved.
    """
    usage = workload.usage
    route = route or route_to_anywhere(workload.data)
    start = _session_start(workload, overheads, route, sampler)
    rate_per_s = _rate_per_s(interruptions_per_month, usage, sampler)
    work = work_of(workload, pace, overheads, rate_per_s, sampler)
    idle_s = sampler.of("idle time", usage.idle_s)
    sessions = _sessions(usage, overheads, work.total_s, start.session_s + idle_s)
    preparations = sessions if workload.data.prepared_each_session else 1.0
    spot = _interruption_overhead(workload, overheads, work, start, sampler)
    copied_from = route.origin if route.copied_by else None
    before_s = _transfer_s(workload.data, copied_from, overheads, sampler)
    parts: dict[str, Number] = {
        "provisioning_s": start.provisioning_s * sessions,
        "setup_s": start.setup_s * sessions,
        "download_s": start.download_s * (sessions if route.fetched_each_session else 1.0),
        "preparation_s": start.preparation_s * preparations,
        "warmup_s": start.warmup_s * sessions,
        "training_s": work.training_s,
        "evaluation_s": work.evaluation_s,
        "checkpoint_s": work.checkpoint_s,
        "pauses_s": work.pauses_s,
        "lost_s": spot.lost_s,
        "restart_s": spot.restart_s,
        "idle_s": idle_s * sessions,
    }
    busy_s = sum(parts.values(), 0.0)
    waiting_s = spot.count * sampler.of("waiting for a machine", overheads.requeue_s)
    recurring = usage.sessions_per_month is not None
    calendar_s = _calendar_s(busy_s + waiting_s, usage)
    if not recurring:
        calendar_s = calendar_s + before_s
    if overheads.weekly_s is not None and not recurring:
        calendar_s = np.maximum(calendar_s, busy_s * (WEEK_S / overheads.weekly_s) - WEEK_S)
    return Run(
        sessions=sessions,
        **parts,
        interruptions=spot.count,
        waiting_s=waiting_s,
        upload_s=before_s if route.origin == HOME else 0.0,
        copy_s=0.0 if route.origin == HOME else before_s,
        calendar_s=calendar_s,
        storage_s=calendar_s if usage.storage_s is None else usage.storage_s,
        checkpoint_interval_s=work.interval_s,
        recurring=recurring,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionStart:
    """What passes before training, in parts."""

    provisioning_s: Number
    setup_s: Number
    warmup_s: Number
    download_s: Number
    preparation_s: Number
    fetched_each_session: bool
    prepared_each_session: bool

    @property
    def session_s(self) -> Number:
        """In every session, data included where it is fetched or prepared in each."""
        fetch_s = self.download_s if self.fetched_each_session else 0.0
        prepare_s = self.preparation_s if self.prepared_each_session else 0.0
        return self.provisioning_s + self.setup_s + self.warmup_s + fetch_s + prepare_s


def _session_start(
    workload: Workload, overheads: SessionOverheads, route: DataRoute, sampler: Sampler
) -> _SessionStart:
    usage, data = workload.usage, workload.data
    stated = usage.setup_s is not None
    return _SessionStart(
        provisioning_s=0.0 if stated else sampler.of("provisioning", overheads.provisioning_s),
        setup_s=sampler.of(
            "set-up", overheads.environment_s if usage.setup_s is None else usage.setup_s
        ),
        warmup_s=0.0 if stated else sampler.of("warm-up", overheads.warmup_s),
        download_s=_transfer_s(data, route.fetched_from, overheads, sampler),
        preparation_s=sampler.of("data preparation", data.preparation_s),
        fetched_each_session=route.fetched_each_session,
        prepared_each_session=data.prepared_each_session,
    )


def _transfer_s(
    data: Dataset, origin: Place | None, overheads: SessionOverheads, sampler: Sampler
) -> Number:
    """Time to bring the data from where it lies, once: at home's upload speed, or as machines
    download. None: it has not to be brought."""
    if origin is None:
        return 0.0
    if origin == HOME:
        name, rate = "upload from home", data.upload_bytes_per_s or overheads.upload_bytes_per_s
    else:
        name, rate = "download", data.download_bytes_per_s or overheads.download_bytes_per_s
    return (data.size_bytes or 0.0) / sampler.of(name, rate)


def _sessions(usage: Usage, overheads: SessionOverheads, work_s: Number, start_s: Number) -> Number:
    """How often the machine is set up: once, as often as stated, or once each day of use."""
    longest_s = overheads.longest_session_s or math.inf
    if usage.sessions_per_month is not None:
        each_s = work_s / usage.sessions_per_month
        pieces = _pieces(each_s, longest_s, start_s) if longest_s < math.inf else 1.0
        return usage.sessions_per_month * pieces
    if usage.hours_per_day is not None:
        longest_s = min(longest_s, usage.hours_per_day * HOUR_S)
    if longest_s == math.inf:
        return 1.0
    return _pieces(work_s, longest_s, start_s)


def _pieces(work_s: Number, longest_s: float, start_s: Number) -> Number:
    """In how many sessions of some length work gets done, each with its start."""
    if _is_single(start_s) and start_s >= longest_s:
        raise InputError(
            f"{longest_s / HOUR_S:g} hours a session leave no time to train.",
            why=f"Set-up and data preparation take {start_s / HOUR_S:.1f} h each time.",
            fix='Give more hours, a shorter usage.setup, or data.prepared = "once".',
        )
    # On a day that is all set-up a little gets done all the same, so that every draw ends.
    useful_s = np.maximum(longest_s - start_s, _LEAST_USEFUL * longest_s)
    sessions: Number = np.maximum(np.ceil(work_s / useful_s - 1e-9), 1.0)
    return sessions


def _is_single(number: Number) -> bool:
    """Whether it is one figure: what cannot be is said of the likely run, never of single draws."""
    return np.ndim(number) == 0


def _calendar_s(busy_s: Number, usage: Usage) -> Number:
    """Calendar time: a month of sessions, days of some hours, or one stretch."""
    if usage.sessions_per_month is not None:
        return MONTH_S
    if usage.hours_per_day is not None:
        weekly_s = usage.hours_per_day * HOUR_S * usage.days_per_week
        return busy_s * (WEEK_S / weekly_s)
    return busy_s


def _rate_per_s(per_month: Uncertain | None, usage: Usage, sampler: Sampler) -> Number:
    """Interruptions a second; any machine of several that goes takes the whole run down."""
    if per_month is None:
        return 0.0
    return sampler.of("interruption rate", per_month) * usage.machines / MONTH_S


def _interruption_overhead(
    workload: Workload,
    overheads: SessionOverheads,
    work: Work,
    start: _SessionStart,
    sampler: Sampler,
) -> InterruptionOverhead:
    """What interruptions add: work lost and machines set up again."""
    if np.max(work.rate_per_s) <= 0:
        return NO_INTERRUPTIONS
    stretch_s = np.minimum(work.interval_s + work.write_s, work.total_s)
    if workload.checkpoint.on_notice and overheads.notice_s >= middle(work.write_s):
        stretch_s = np.minimum(stretch_s, _WARNED_S)
    rate_per_s = np.maximum(work.rate_per_s, _RAREST_PER_S)
    if _is_single(rate_per_s) and is_hopeless(stretch_s, start.session_s, rate_per_s):
        raise NeverEnds(
            f"would hardly ever finish: interrupted every {1 / middle(rate_per_s) / HOUR_S:,.1f}"
            f" h, saved every {middle(stretch_s) / HOUR_S:,.1f} h"
        )
    return interruption_overhead(work.total_s, stretch_s, start.session_s, rate_per_s, sampler)


# The work: training, evaluations, other pauses and checkpoints, whatever happens


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What has to be done whatever happens, in parts, and how often it is saved."""

    training_s: Number
    evaluation_s: Number
    pauses_s: Number
    interval_s: Number
    """From one checkpoint to the next, evaluations and pauses in between included."""
    write_s: Number
    rate_per_s: Number
    """Of interruptions."""

    @property
    def useful_s(self) -> Number:
        """All but writing checkpoints."""
        return self.training_s + self.evaluation_s + self.pauses_s

    @property
    def checkpoint_s(self) -> Number:
        """Writing checkpoints."""
        return self.useful_s / self.interval_s * self.write_s

    @property
    def total_s(self) -> Number:
        """All of it."""
        return self.useful_s + self.checkpoint_s


def work_of(
    workload: Workload,
    pace: Pace,
    overheads: SessionOverheads,
    rate_per_s: Number,
    sampler: Sampler,
) -> Work:
    """The work of a run, or of a month of sessions, with interruptions at a rate."""
    runs = workload.usage.sessions_per_month or 1.0
    evaluation_s = _evaluation_s(workload, pace, sampler)
    pauses_s = sum((_pause_s(pause, pace, sampler) for pause in workload.pauses), 0.0)
    stretch = (pace.training_s + evaluation_s + pauses_s) / pace.training_s
    write_s = _write_s(workload.checkpoint, overheads, sampler)
    times = sampler.of("checkpoints, how often", workload.checkpoint.times)
    return Work(
        training_s=pace.training_s * runs,
        evaluation_s=evaluation_s * runs,
        pauses_s=pauses_s * runs,
        interval_s=_checkpoint_interval_s(workload, pace, stretch, overheads, write_s, rate_per_s)
        / np.maximum(times, _RAREST_TIMES),
        write_s=write_s,
        rate_per_s=rate_per_s,
    )


def _evaluation_s(workload: Workload, pace: Pace, sampler: Sampler) -> Number:
    """Evaluations of one run or session: how many, times how long each takes."""
    evaluation = workload.evaluation
    if evaluation is None:
        return 0.0
    each_s: Number = (evaluation.samples or 0.0) * pace.sample_forward_s
    if evaluation.time_s is not None:
        each_s = evaluation.time_s
    times = sampler.of("evaluation, how often", evaluation.times)
    return _intervals(evaluation.every, pace) * times * each_s


def _pause_s(pause: Pause, pace: Pace, sampler: Sampler) -> Number:
    """All pauses of one kind in one run or session."""
    times = sampler.of(f"{pause.name}, how often", pause.times)
    each_s = sampler.of(f"{pause.name}, how long", pause.time_s)
    return _intervals(pause.every, pace) * times * each_s


def _write_s(checkpoint: Checkpoint, overheads: SessionOverheads, sampler: Sampler) -> Number:
    """Writing one checkpoint: its size by a disk's speed, or the time it took on a usual disk."""
    speed = sampler.of("checkpoint writing", overheads.checkpoint_bytes_per_s)
    if checkpoint.time_s is None:
        return (checkpoint.size_bytes or 0.0) / speed
    usual = LIKELY.of("checkpoint writing", overheads.checkpoint_bytes_per_s)
    return checkpoint.time_s * (usual / speed)


def _checkpoint_interval_s(
    workload: Workload,
    pace: Pace,
    stretch: Number,
    overheads: SessionOverheads,
    write_s: Number,
    rate_per_s: Number,
) -> Number:
    """As stated, the one that wastes least on spot machines, or the usual one.

    Counted in steps, it is as much longer as what lies between them stretches training.
    """
    interval = workload.checkpoint.interval
    if interval is not None:
        return interval_s(interval, pace) * (1.0 if interval.time_s is not None else stretch)
    likely_per_s, likely_write_s = float(np.median(rate_per_s)), float(np.median(write_s))
    if likely_per_s > 0 and likely_write_s > 0:
        return optimal_interval_s(likely_write_s, likely_per_s)
    return overheads.checkpoint_interval_s


def _intervals(every: Cadence, pace: Pace) -> Number:
    """How often an interval is over in one run or session."""
    count: Number = np.floor(pace.training_s / interval_s(every, pace) + 1e-9)
    return count


def interval_s(every: Cadence, pace: Pace) -> Number:
    """An interval that may be counted in epochs, steps or samples, in seconds of training."""
    if every.epochs is not None:
        if pace.epoch_s is None:
            raise InputError(
                "An interval is given in epochs, but not how many samples an epoch has.",
                fix="Give data.samples, or the interval in steps or as a duration.",
            )
        return every.epochs * pace.epoch_s
    if every.steps is not None:
        return every.steps * pace.step_s
    if every.samples is not None:
        return every.samples * pace.sample_s
    return every.time_s or math.inf


# The pace: how fast an option trains


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast an option trains: what a run needs to know of a step."""

    training_s: Number
    """Of one run or one session."""
    epoch_s: Number | None
    step_s: Number
    """A step as intervals count them: of the batch that the length's steps are of, where it says,
    so that there are as many intervals in a run everywhere; else of the machine's own."""
    sample_s: Number
    """Training on one sample."""
    sample_forward_s: Number
    """One sample of an evaluation."""


def pace_of(workload: Workload, step: StepPrediction, sampler: Sampler = LIKELY) -> Pace:
    """How fast a workload trains with a step."""
    step_s = drawn_step_s(step, sampler)
    sample_s = step_s / max(step.global_batch_size, 1)
    stated_s = workload.length.training_s
    epoch_samples = workload.data.samples
    counted_batch = workload.length.global_batch_size
    return Pace(
        training_s=step_s * optimizer_steps(workload, step) if stated_s is None else stated_s,
        epoch_s=None if epoch_samples is None else sample_s * epoch_samples,
        step_s=step_s if counted_batch is None else sample_s * counted_batch,
        sample_s=sample_s,
        # Assumes: an evaluation is shared by all GPUs as a step is.
        sample_forward_s=sample_s * step.forward_fraction,
    )


def drawn_step_s(step: StepPrediction, sampler: Sampler) -> Number:
    """The time of a step as the sampler draws it."""
    return sampler.of(f"speed: {step.placement.gpu.name}", step.step_time_s)


def optimizer_steps(workload: Workload, step: StepPrediction) -> float:
    """Optimizer steps of the run at a machine's own batch."""
    samples = workload.samples()
    if samples is not None:
        return math.ceil(samples / max(step.global_batch_size, 1))
    if workload.length.iterations is not None:
        return workload.length.iterations
    return (workload.length.training_s or 0.0) / step.step_time_s.likely
