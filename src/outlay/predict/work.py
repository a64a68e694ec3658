"""What a run has to do whatever happens: training, evaluations, other pauses, checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outlay.chance import LIKELY, Luck, Number, Uncertain
from outlay.errors import InputError
from outlay.predict.spot import optimal_interval_s
from outlay.predict.step import StepPrediction
from outlay.workload import Checkpoint, Every, Pause, Workload

_SELDOM = 1e-6
"""Of an interval: what may never come still has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
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


def steps(workload: Workload, step: StepPrediction) -> float:
    """Optimizer steps of the run at a machine's own batch."""
    samples = workload.samples()
    if samples is not None:
        return math.ceil(samples / max(step.global_batch_size, 1))
    if workload.length.iterations is not None:
        return workload.length.iterations
    return (workload.length.training_s or 0.0) / step.step_time_s.likely


def pace_of(workload: Workload, step: StepPrediction, luck: Luck = LIKELY) -> Pace:
    """How fast a workload trains with a step, as luck has it."""
    step_s = luck.of(f"speed: {step.placement.gpu.name}", step.step_time_s)
    sample_s = step_s / max(step.global_batch_size, 1)
    given_s = workload.length.training_s
    in_epoch = workload.data.samples
    counted = workload.length.global_batch_size
    return Pace(
        training_s=step_s * steps(workload, step) if given_s is None else given_s,
        epoch_s=None if in_epoch is None else sample_s * in_epoch,
        step_s=step_s if counted is None else sample_s * counted,
        sample_s=sample_s,
        # Assumes: an evaluation is shared by all GPUs as a step is.
        sample_forward_s=sample_s * step.forward_fraction,
    )


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


def work_of(workload: Workload, pace: Pace, habits: Habits, rate: Number, luck: Luck) -> Work:
    """The work of a run, or of a month of sessions, with interruptions at a rate."""
    runs = workload.usage.sessions_per_month or 1.0
    evaluation_s = _evaluation_s(workload, pace, luck)
    pauses_s = sum((_pause_s(pause, pace, luck) for pause in workload.pauses), 0.0)
    stretched = (pace.training_s + evaluation_s + pauses_s) / pace.training_s
    write_s = _write_s(workload.checkpoint, habits, luck)
    often = luck.of("checkpoints, how often", workload.checkpoint.times)
    return Work(
        training_s=pace.training_s * runs,
        evaluation_s=evaluation_s * runs,
        pauses_s=pauses_s * runs,
        interval_s=_interval_s(workload, pace, stretched, habits, write_s, rate)
        / np.maximum(often, _SELDOM),
        write_s=write_s,
        rate_per_s=rate,
    )


def _evaluation_s(workload: Workload, pace: Pace, luck: Luck) -> Number:
    """Evaluations of one run or session: how many, times how long each takes."""
    evaluation = workload.evaluation
    if evaluation is None:
        return 0.0
    each_s: Number = (evaluation.samples or 0.0) * pace.sample_forward_s
    if evaluation.time_s is not None:
        each_s = evaluation.time_s
    often = luck.of("evaluation, how often", evaluation.times)
    return _times(evaluation.every, pace) * often * each_s


def _pause_s(pause: Pause, pace: Pace, luck: Luck) -> Number:
    """All pauses of one kind in one run or session."""
    often = luck.of(f"{pause.name}, how often", pause.times)
    each_s = luck.of(f"{pause.name}, how long", pause.time_s)
    return _times(pause.every, pace) * often * each_s


def _write_s(checkpoint: Checkpoint, habits: Habits, luck: Luck) -> Number:
    """Writing one checkpoint: its size by a disk's speed, or the time it took on a usual disk."""
    speed = luck.of("checkpoint writing", habits.checkpoint_bytes_per_s)
    if checkpoint.time_s is None:
        return (checkpoint.size_bytes or 0.0) / speed
    usual = LIKELY.of("checkpoint writing", habits.checkpoint_bytes_per_s)
    return checkpoint.time_s * (usual / speed)


def _times(every: Every, pace: Pace) -> Number:
    """How often an interval is over in one run or session."""
    times: Number = np.floor(pace.training_s / every_s(every, pace) + 1e-9)
    return times


def every_s(every: Every, pace: Pace) -> Number:
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


def _interval_s(
    workload: Workload,
    pace: Pace,
    stretched: Number,
    habits: Habits,
    write_s: Number,
    rate: Number,
) -> Number:
    """As stated, the one that wastes least on spot machines, or the usual one.

    Counted in steps, it is as much longer as what lies between them stretches training.
    """
    interval = workload.checkpoint.interval
    if interval is not None:
        return every_s(interval, pace) * (1.0 if interval.time_s is not None else stretched)
    likely_rate, likely_s = float(np.median(rate)), float(np.median(write_s))
    if likely_rate > 0 and likely_s > 0:
        return optimal_interval_s(likely_s, likely_rate)
    return habits.checkpoint_interval_s
