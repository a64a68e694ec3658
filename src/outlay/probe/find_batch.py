"""The largest batch for real: trials in fresh processes, each a short probe.

Result          `BatchSearch`: what was tried, the largest and the recommended size, the knee
Next size       a line through the memory of the trials, between what fits and what fails
Simulation      what two trials allocated, run through the model of the allocator
Recommendation  a size that leaves memory free, and that ran
Search          `find_batch`: trials until the largest is known well enough

A trial fits if it makes a few steps. `trial` says where in the command the batch size goes and what
came of a run.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from outlay.errors import NotKnown
from outlay.hardware.gpu_names import find_gpu
from outlay.measurement.measurement import Measurement
from outlay.plan.placement import calibration
from outlay.predict.memory import largest_batch
from outlay.predict.step import Placement
from outlay.probe.agent.protocol import ALLOCATIONS_VARIABLE, AllocationEvents
from outlay.probe.gpu_driver import NoDriver
from outlay.probe.gpu_watch import open_driver
from outlay.probe.messages import ProcessLog
from outlay.probe.runner import ProbeRequest, ShowLine, probe_with_logs
from outlay.probe.stages import LONGEST_S, ProbeLimits
from outlay.probe.trial import (
    BatchSlot,
    Outcome,
    Trial,
    is_applied,
    trial_of,
    usual_batch_size,
)
from outlay.progress import Progress, silent
from outlay.trace import allocator
from outlay.trace.batch_scaling import FREED, history_of, storages_align
from outlay.trace.profile import History
from outlay.trace.target import parse_target
from outlay.trace.tracing import profile_of
from outlay.units import HOUR_S, MIB

# Result

GaveUpFor = Literal["trials", "cost", "failure", "not taken", "interrupted"]
"""The limit of trials, the money for them, a trial that failed for another reason than memory, a
size that the script did not take, or the user."""
KNEE_FRACTION = 0.95
"""Of the best throughput: from there on, more batch is hardly more speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSearch:
    """The search for the largest batch: what was tried, and what came out."""

    JSON_PROPERTIES = ("knee", "elapsed_s")
    trials: tuple[Trial, ...]
    """In the order they were run."""
    largest: int | None = None
    """The largest that ran; None where none did."""
    recommended: int | None = None
    """What to train with: a margin below the largest."""
    margin_fraction: float = 0.0
    """Of the limit, kept free at the recommended size."""
    fails_at: int | None = None
    """The smallest that ran out of memory; None where none did."""
    limit_bytes: float | None = None
    """What the allocator could take, in bytes."""
    is_interrupted: bool = False
    """Whether the user ended it before it had an answer."""
    is_finished: bool = False
    """Whether the largest is known to 2 %, or to one sample; or is the largest that was wanted."""
    gave_up_for: GaveUpFor | None = None
    """What ended it before; None where it is finished, or where nothing could be tried."""
    notes: tuple[str, ...] = ()
    """What to know."""

    @property
    def knee(self) -> int | None:
        """The smallest batch with 95 % or more of the best samples/s."""
        return knee_of(self.trials)

    @property
    def is_recommended_tried(self) -> bool:
        """Whether the recommended size is one that ran."""
        fits = [trial for trial in self.trials if trial.outcome == "fits"]
        return any(trial.batch_size == self.recommended for trial in fits)

    @property
    def fails_otherwise_at(self) -> int | None:
        """The smallest above the largest that failed, but not for want of memory."""
        if self.is_interrupted:  # what was not run to its end did not fail
            return None
        return self._smallest_above("failed")

    @property
    def not_taken_at(self) -> int | None:
        """The smallest above the largest that the script did not take."""
        return self._smallest_above("not taken")

    def _smallest_above(self, outcome: Outcome) -> int | None:
        sizes = (trial.batch_size for trial in self.trials if trial.outcome == outcome)
        return min((size for size in sizes if size > (self.largest or 0)), default=None)

    @property
    def elapsed_s(self) -> float:
        """What all trials took together."""
        return sum(trial.elapsed_s for trial in self.trials)


def knee_of(trials: Iterable[Trial]) -> int | None:
    """The smallest batch with 95 % or more of the best samples/s; None where none was measured."""
    throughputs = {
        trial.batch_size: trial.samples_per_s
        for trial in trials
        if trial.outcome == "fits" and trial.samples_per_s is not None
    }
    least = KNEE_FRACTION * max(throughputs.values(), default=0.0)
    return min((size for size, pace in throughputs.items() if pace >= least), default=None)


# Next size: memory grows along a line in the batch size, nearly. The first trial and what
# parameters, gradients and optimizer states take give one, two trials that fit a better one. Where
# the line meets the limit is tried; if it fits, a size just beyond the wanted accuracy. If it
# fails, the allocator could not use all it had: a little less is tried, then more so, then what
# lies between, until the two are as near as promised. Where the allocations of two trials were
# recorded, `simulated_largest` says instead where it fails.

ACCURACY = 0.02
"""How far below the true largest batch the answer may be; or one sample."""
USUAL_TRIALS = 6
"""What a search takes where memory grows along a line, or nearly."""
MOST_TRIALS = 12
"""After which it gives up, and says how far it came."""
MOST_TRIALS_BLIND = 16
"""Where nothing tells how much memory a trial took."""
LARGEST = 1_048_576
_UNTRUSTED_REACH = 0.6
"""Of what a line that is not to be trusted predicts: far enough for a better one, and it fits."""
_USABLE_FRACTION = 0.985
"""Of the limit: the allocator loses a little to pieces too small to use."""
_MOST_EXTRAPOLATION = 4
"""A line is not trusted beyond so many times its last point."""
_BELOW_TRACE = 0.9
"""Of what a trace predicted and did not fit: it is seldom further off."""
_NEAR_GUESS = 0.8
"""Of a guess: trials from there on are near the limit."""
_DROP = 0.05
_DROP_GROWTH = 1.5
"""Of a size that failed and should not have: how far below it the next one lies, and how much
further after each that fails as well."""
_FEW = 3
"""Samples that are not worth a trial each, where the line says that as many more fit."""
_LEAST_RATIO = 1.25
"""Two trials make a good line if the larger is so many times the smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBounds:
    """What bounds the answer, beside the trials."""

    limit_bytes: float | None = None
    """What the allocator may take."""
    fixed_bytes: float | None = None
    """What no batch size changes."""
    predicted: int | None = None
    """The largest batch by a trace."""
    simulated: int | None = None
    """The largest batch by a simulation of the allocator, from the allocations of two trials."""
    largest: int = LARGEST
    """Not to be passed."""
    trials: int | None = None
    """At most so many, where the user says so."""


def next_size(trials: Sequence[Trial], bounds: SearchBounds, first: int) -> int | None:
    """The batch size to try, or None when the answer is near enough or not to be had."""
    if not trials:
        return min(bounds.predicted or first, bounds.largest)
    low, high = bracket(trials)
    if len(trials) >= most_trials(trials, bounds) or is_known(trials, bounds):
        return None
    if low == 0:
        return _smaller_first_size(high, bounds)
    if _is_blind(trials, bounds):
        return _bisected_size(low, high, bounds)
    return _size_on_line(trials, low, high, bounds)


def is_known(trials: Sequence[Trial], bounds: SearchBounds) -> bool:
    """Whether the answer is as near as promised: to 2 %, to one sample, or to what is wanted."""
    low, high = bracket(trials)
    if low == 0:
        return high == 1
    return low >= bounds.largest or (high > 0 and high - low <= _tolerance(low))


def trials_left(trials: Sequence[Trial], bounds: SearchBounds) -> bool:
    """Whether one more trial than the answer needs is within what a search usually takes."""
    usual = MOST_TRIALS_BLIND if _is_blind(trials, bounds) else USUAL_TRIALS
    return len(trials) < min(usual, most_trials(trials, bounds))


def most_trials(trials: Sequence[Trial], bounds: SearchBounds) -> int:
    """After so many it gives up: the user's word, or what memory that is seen or not seen takes."""
    if bounds.trials is not None:
        return bounds.trials
    return MOST_TRIALS_BLIND if _is_blind(trials, bounds) else MOST_TRIALS


def _is_blind(trials: Sequence[Trial], bounds: SearchBounds) -> bool:
    """Whether no trial shows how much memory it took, of a limit that is known."""
    return bounds.limit_bytes is None or not any(t.peak_allocated_bytes for t in trials)


def bracket(trials: Sequence[Trial]) -> tuple[int, int]:
    """The largest size that fits (0 where none does), and the smallest that does not (0: none)."""
    fits = [trial.batch_size for trial in trials if trial.outcome == "fits"]
    low = max(fits, default=0)
    fails = [t.batch_size for t in trials if t.outcome != "fits" and t.batch_size > low]
    return low, min(fails, default=0)


def _tolerance(size: int) -> int:
    return max(int(size * ACCURACY), 1)


def _smaller_first_size(high: int, bounds: SearchBounds) -> int:
    """After a first trial that failed: nearly the same where a trace was close, else far below."""
    return max(int(high * _BELOW_TRACE) if bounds.predicted else high // 4, 1)


def _bisected_size(low: int, high: int, bounds: SearchBounds) -> int:
    if not high:
        return min(low * 2, bounds.largest)
    return (low + high) // 2


def _size_on_line(trials: Sequence[Trial], low: int, high: int, bounds: SearchBounds) -> int:
    guess = _predicted_largest(trials, low, bounds)
    if guess is None:
        return _bisected_size(low, high, bounds)
    if not high:
        # Beyond the guess by no more than the accuracy: if that fails, this is the answer.
        beyond = low + (_tolerance(low) << _fits_beyond_guess(trials, guess))
        if low >= guess and low + _tolerance(low) < _full_size(trials, bounds) <= low + _FEW:
            beyond = _full_size(trials, bounds)
        return min(max(guess, beyond), bounds.largest)
    if guess > high - 2 * _tolerance(high):
        guess = _size_below_failure(trials, low, high)
    # No nearer to what is known than the accuracy: that would add next to nothing.
    near, far = low + _tolerance(low), high - _tolerance(high)
    return min(max(guess, near), far) if near <= far else (low + high) // 2


def _size_below_failure(trials: Sequence[Trial], low: int, high: int) -> int:
    """Below a size that should have fitted: the allocator wastes what a line does not show."""
    failed = sum(trial.outcome != "fits" for trial in trials)
    drop = _DROP * _DROP_GROWTH ** (failed - 1)
    return max((low + high) // 2, int(high * (1 - drop)))


def _fits_beyond_guess(trials: Sequence[Trial], guess: int) -> int:
    """How often a size beyond the guess fitted, too, but for the first: steps double with each."""
    fits = [trial.batch_size for trial in trials if trial.outcome == "fits"]
    return max(sum(size >= _NEAR_GUESS * guess for size in fits) - 2, 0)


def _predicted_largest(trials: Sequence[Trial], low: int, bounds: SearchBounds) -> int | None:
    """Where the line meets the limit; nearer where it is not to be trusted so far."""
    if bounds.simulated is not None and bounds.simulated <= _MOST_EXTRAPOLATION * low:
        return bounds.simulated
    line = memory_line(allocated(trials), bounds.fixed_bytes)
    if line is None or bounds.limit_bytes is None:
        return None
    start_bytes, slope_bytes, is_measured = line
    size = (bounds.limit_bytes * _USABLE_FRACTION - start_bytes) / slope_bytes
    if not is_measured or size > _MOST_EXTRAPOLATION * low:
        size = max(size * _UNTRUSTED_REACH, low + 1)
    return max(int(size), 1)


def _full_size(trials: Sequence[Trial], bounds: SearchBounds) -> int:
    """The size at which tensors alone would fill the limit, by the line; 0 where none is known."""
    line = memory_line(allocated(trials), bounds.fixed_bytes)
    if line is None or bounds.limit_bytes is None or not line[2]:
        return 0
    return int((bounds.limit_bytes - line[0]) / line[1])


Point = tuple[int, float]
"""A batch size, and what it took in bytes."""


def memory_line(
    points: Sequence[Point], fixed_bytes: float | None
) -> tuple[float, float, bool] | None:
    """Bytes at no samples, bytes for each, and whether two trials gave it or one and a guess."""
    if not points:
        return None
    size, size_bytes = points[-1]
    others = [point for point in points[:-1] if point[1] < size_bytes]
    if others:
        distant = [point for point in others if size >= _LEAST_RATIO * point[0]]
        first, first_bytes = distant[-1] if distant else others[0]
        slope = (size_bytes - first_bytes) / (size - first)
        return size_bytes - slope * size, slope, True
    slope = (size_bytes - (fixed_bytes or 0.0)) / size
    return (fixed_bytes or 0.0, slope, False) if slope > 0 else None


def allocated(trials: Sequence[Trial]) -> list[Point]:
    """What tensors took at most in the trials that fit, by size."""
    peaks = {
        trial.batch_size: trial.peak_allocated_bytes
        for trial in trials
        if trial.outcome == "fits" and trial.peak_allocated_bytes
    }
    return sorted(peaks.items())


# Simulation: two trials that ask for the same storages in the same order give every size as a line
# in the batch size; `trace.allocator` then says up to which batch the allocator gets through. Where
# they do not line up (cuDNN chose other algorithms), there is no answer.

Events = Sequence[int]
"""As in `AllocationEvents`: sizes in bytes in order; minus n where the n-th ended, from 1 on."""
_MOST_TIMES_LARGER = 64
"""Than the largest trial: beyond, nothing is said."""


def simulated_largest(trials: Mapping[int, Events], limit_bytes: float | None) -> int | None:
    """The largest batch that gets through; None where the trials do not say."""
    history = _history(trials)
    if history is None or limit_bytes is None:
        return None
    low, high = max(trials), _MOST_TIMES_LARGER * max(trials)
    if not allocator.fits(history, low, limit_bytes) or allocator.fits(history, high, limit_bytes):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if allocator.fits(history, middle, limit_bytes) else (low, middle)
        )
    return low


def _history(trials: Mapping[int, Events]) -> History | None:
    """From the two largest trials, where they line up."""
    sizes = sorted(trials)[-2:]
    if len(sizes) < 2:
        return None
    first, second = ([*_storages(trials[size])] for size in sizes)
    if not first or not storages_align(first, second):
        return None
    return history_of(sizes, [first, second])


def _storages(events: Events) -> Iterator[tuple[int, int]]:
    allocated = 0
    for event in events:
        if event < 0:
            yield -event, FREED
        else:
            allocated += 1
            yield allocated, event


# Recommendation

MARGIN = 0.03
"""Of the limit, left free at the recommended size: longer runs meet longer samples."""
_NEAR_BELOW = MARGIN + ACCURACY
_NEAR_ABOVE = 0.01
"""Of the size that leaves just the margin: one that ran so near is recommended in its place."""


def recommended_batch(
    trials: Sequence[Trial], largest: int, fails_at: int, bounds: SearchBounds
) -> int | None:
    """The largest size that leaves the margin free; all of it where none ran out of memory.

    A size near it that ran is better than one that nobody tried: some scripts take only even ones.
    """
    if not largest or not fails_at:
        return largest or None
    ideal = _size_with_margin(trials, largest, bounds)
    ran = {trial.batch_size for trial in trials if trial.outcome == "fits"}
    failed = {trial.batch_size for trial in trials} - ran
    below = [size for size in ran if size <= ideal * (1 + _NEAR_ABOVE) and size < largest]
    best = max(below, default=0)
    is_near = best >= ideal * (1 - _NEAR_BELOW)
    if best and (is_near or ideal in failed):
        return best
    return largest if ideal in failed else ideal


def _size_with_margin(trials: Sequence[Trial], largest: int, bounds: SearchBounds) -> int:
    line = memory_line(allocated(trials), bounds.fixed_bytes)
    if line is None or bounds.limit_bytes is None:
        return max(int(largest * (1 - MARGIN)), 1)
    start_bytes, slope_bytes, _ = line
    by_line = int((bounds.limit_bytes * (1 - MARGIN) - start_bytes) / slope_bytes)
    return max(min(by_line, largest - (largest > 1)), 1)


# Search

TRIAL_STEPS = 20
TRIAL_S = 15.0
LEAST_START_S = 105.0
START_TIMES = 10
"""How long a first step is waited for, beside `TRIAL_S`: as many times the longest trial so far."""
FIRST_SIZE = 8
_OUTPUT_BYTES = 65_536
"""Of the end of a trial's output, in which its failure is looked for."""


def traced_bounds(
    target: str | None,
    *,
    largest: int | None = None,
    trials: int | None = None,
    memory_cap_mib: int | None = None,
    progress: Progress = silent,
) -> SearchBounds:
    """Where a search begins: with a `target` to trace, at its largest batch on the GPU at hand."""
    bounds = SearchBounds(largest=largest or LARGEST, trials=trials)
    if target is None:
        return bounds
    parse_target(target)  # a typo is an error before anything runs
    driver = open_driver()
    if isinstance(driver, NoDriver):
        progress(f"The trace is not used: {driver}")
        return bounds
    progress(f"Tracing {target} ...")
    try:
        gpu = find_gpu(driver.devices[0].name).gpu
    except NotKnown as error:
        progress(f"The trace is not used: {error.what}")
        return bounds
    cap_bytes = None if memory_cap_mib is None else float(memory_cap_mib * MIB)
    budget = Placement(gpu=gpu, memory_cap_bytes=cap_bytes).memory_budget
    predicted = largest_batch(profile_of(target, progress=progress), budget, calibration())
    progress(f"By its trace the largest batch is {predicted}.")
    return replace(bounds, predicted=predicted or None)


def find_batch(
    request: ProbeRequest,
    argument: str,
    *,
    bounds: SearchBounds,
    show: ShowLine | None = None,
    progress: Progress = silent,
) -> BatchSearch:
    """Trials until the largest batch is known well enough, or something ends them."""
    slot = BatchSlot(command=request.command, argument=argument)
    slot.check()
    search = _Search(request, slot, bounds, show, progress)
    while (size := search.next_size()) is not None:
        search.try_size(size)
    return search.result()


class _Search:
    """The trials so far, and what they have shown."""

    def __init__(
        self,
        request: ProbeRequest,
        slot: BatchSlot,
        bounds: SearchBounds,
        show: ShowLine | None,
        progress: Progress,
    ) -> None:
        self._request = request
        self._slot = slot
        self._bounds = bounds
        self._show = show
        self._progress = progress
        self._trials: list[Trial] = []
        self._notes: list[str] = []
        self._events: dict[int, Events] = {}
        """What trials that fit asked their allocator for."""
        self._samples: dict[int, int | None] = {}
        """What the passes of trials that fit really had."""
        self._ended_by: GaveUpFor | None = None

    def next_size(self) -> int | None:
        """The size to try, or None when that is all."""
        if self._ended_by is not None:
            return None
        size = next_size(self._trials, self._bounds, self._slot.current or FIRST_SIZE)
        if size is None:
            size = self._untried_recommendation()
        left_usd = self._left_usd()
        if size is not None and left_usd is not None and left_usd <= 0:
            if not is_known(self._trials, self._bounds):
                self._notes.append("The money for this search is spent: a larger batch may fit.")
            self._ended_by = "cost"
            return None
        return size

    def _untried_recommendation(self) -> int | None:
        """The size to recommend, where it is still to be tried and trials are left."""
        result = self.result()
        if result.fails_at is None or result.is_recommended_tried:
            return None
        return result.recommended if trials_left(self._trials, self._bounds) else None

    def try_size(self, size: int) -> None:
        """Run the command at a batch size, and learn from it."""
        self._progress(f"Trial {len(self._trials) + 1}: batch {size} ...")
        command = self._slot.command_at(size)
        limits = self._trial_limits()
        measurement, logs, output = _run_trial(self._request, command, limits, self._show)
        samples = usual_batch_size(logs) or measurement.batch_size
        trial = trial_of(size, measurement, output, limits=limits, samples=samples)
        self._trials.append(trial)
        self._progress(_trial_text(trial))
        self._learn(trial, measurement, logs)
        if self._request.memory_cap_mib is not None and measurement.device == "cpu":
            self._notes.append("The cap did nothing: it is a GPU's, and this trained on the CPU.")
        if trial.outcome == "failed":
            self._notes.append(f"Batch {size} {_failure_text(measurement)}: {trial.why}")
            is_interrupted = measurement.ending == "interrupted"
            self._ended_by = "interrupted" if is_interrupted else "failure"
        elif trial.outcome == "fits":
            self._check_samples(size, samples)

    def _trial_limits(self) -> ProbeLimits:
        """Of the next trial: a first step that is far later than earlier ones does not come."""
        limits = self._request.limits
        longest_s = max((trial.elapsed_s for trial in self._trials), default=math.inf)
        start_s = max(START_TIMES * longest_s, LEAST_START_S)
        return ProbeLimits(
            steps=limits.steps or TRIAL_STEPS,
            duration_s=limits.duration_s or TRIAL_S,
            start_s=min(start_s, LONGEST_S),
            price_usd_per_hour=limits.price_usd_per_hour,
            max_usd=self._left_usd(),
            operations=False,
        )

    def _learn(self, trial: Trial, measurement: Measurement, logs: Sequence[ProcessLog]) -> None:
        bounds = _with_memory(self._bounds, measurement, self._request.memory_cap_mib)
        events = _allocation_events(logs)
        if events is not None and trial.outcome == "fits":
            self._events[trial.batch_size] = events
        simulated = simulated_largest(self._events, bounds.limit_bytes)
        self._bounds = replace(bounds, simulated=simulated)

    def _check_samples(self, size: int, samples: int | None) -> None:
        """End it where the script goes by another batch size than it is given."""
        self._samples[size] = samples
        if samples is None or samples == size:
            return
        same = sorted(tried for tried, passes in self._samples.items() if passes == samples)
        others = [tried for tried in same if not _is_near(tried, samples)]
        if not others:
            return
        if len(same) == 1:
            self._notes.append(
                f"Batch {size:,} was asked for, but the script's passes had {samples:,} samples on "
                "a GPU."
            )
            return
        self._trials = [
            _as_not_taken(trial, samples) if trial.batch_size in others else trial
            for trial in self._trials
        ]
        self._notes.append(_same_samples_text(same, others, samples))
        self._ended_by = "not taken"

    def _left_usd(self) -> float | None:
        """What is left of the money for all trials together; None without a limit."""
        limits = self._request.limits
        if limits.max_usd is None or limits.price_usd_per_hour is None:
            return None
        spent_s = sum(trial.elapsed_s for trial in self._trials)
        return limits.max_usd - limits.price_usd_per_hour * spent_s / HOUR_S

    def result(self) -> BatchSearch:
        """The search as far as it has come."""
        search = _search_of(self._trials, self._bounds, self._notes)
        # A size that failed for another reason than memory says nothing of the largest.
        by_memory = [t for t in self._trials if t.outcome in ("fits", "out of memory")]
        is_finished = is_known(by_memory, self._bounds)
        return replace(
            search,
            is_interrupted=self._ended_by == "interrupted",
            is_finished=is_finished,
            gave_up_for=None if is_finished else self._ended_by or "trials",
        )


def _failure_text(measurement: Measurement) -> str:
    if measurement.ending == "interrupted":
        return "was not tried to its end"
    return "failed for another reason"


def _is_near(size: int, samples: int) -> bool:
    """Whether passes of so many samples are those of a batch of that size, the data's end apart."""
    return is_applied(size, samples) and is_applied(samples, size)


def _as_not_taken(trial: Trial, samples: int) -> Trial:
    why = f"its passes had {samples:,} samples"
    return replace(trial, outcome="not taken", why=why, step_mean_s=None, samples_per_s=None)


def _same_samples_text(same: Sequence[int], others: Sequence[int], samples: int) -> str:
    """What it means that passes are the same at several sizes."""
    sizes = " and ".join(f"{size:,}" for size in same)
    fact = f"The script's passes had {samples:,} samples at batch {sizes} alike: "
    if min(others) > samples:
        return f"{fact}it takes no larger batches from there, or its data have no more."
    return f"{fact}it does not take its batch size from there."


def _run_trial(
    request: ProbeRequest, command: tuple[str, ...], limits: ProbeLimits, show: ShowLine | None
) -> tuple[Measurement, list[ProcessLog], bytes]:
    """A short probe, the logs of its processes, and the end of what the command printed."""
    with tempfile.TemporaryDirectory(prefix="outlay-trial-") as folder:
        log = Path(folder) / "log"
        variables = {**request.environment, ALLOCATIONS_VARIABLE: "1"}
        trial = replace(request, command=command, limits=limits, log=log, environment=variables)
        measurement, logs = probe_with_logs(trial, show)
        return measurement, logs, log.read_bytes()[-_OUTPUT_BYTES:]


def _allocation_events(logs: Sequence[ProcessLog]) -> Events | None:
    """What the first rank that reports it asked its allocator for."""
    reports = (log.last(AllocationEvents) for log in logs)
    return next((report.events for report in reports if report is not None), None)


def _with_memory(
    bounds: SearchBounds, measurement: Measurement, cap_mib: int | None
) -> SearchBounds:
    """With the limit and what is fixed, as the last trial showed them."""
    memory = measurement.memory
    parts = (
        memory.parameters_bytes,
        memory.gradients_bytes,
        memory.optimizer_bytes,
        memory.frozen_bytes,
    )
    fixed = sum(part for part in parts if part is not None) if any(parts) else bounds.fixed_bytes
    limit = bounds.limit_bytes
    if cap_mib is not None and measurement.device != "cpu":
        limit = float(cap_mib * MIB)
    if memory.limit_bytes is not None:
        limit = memory.limit_bytes
    elif limit is None:
        limit = memory.available_bytes
    return replace(bounds, fixed_bytes=fixed, limit_bytes=limit)


def _search_of(trials: Sequence[Trial], bounds: SearchBounds, notes: Sequence[str]) -> BatchSearch:
    low, _ = bracket(trials)
    too_large = [trial.batch_size for trial in trials if trial.outcome == "out of memory"]
    high = min((size for size in too_large if size > low), default=0)
    larger = [trial for trial in trials if trial.batch_size > low]
    has_failed = any(trial.outcome in ("failed", "not taken") for trial in larger)
    if low and not high and not has_failed and bounds.limit_bytes is not None:
        notes = [*notes, "No larger size was seen to fail."]
    return BatchSearch(
        trials=tuple(trials),
        largest=low or None,
        recommended=recommended_batch(trials, low, high, bounds),
        margin_fraction=MARGIN if high else 0.0,
        fails_at=high or None,
        limit_bytes=bounds.limit_bytes,
        notes=tuple(dict.fromkeys(notes)),
    )


def _trial_text(trial: Trial) -> str:
    pace = "" if trial.samples_per_s is None else f", {trial.samples_per_s:,.0f} samples/s"
    why = f" ({trial.why})" if trial.why else ""
    return f"  {trial.outcome}{pace}{why}"
