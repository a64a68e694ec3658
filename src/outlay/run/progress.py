"""Steps done, when a run will end and what it will have cost; predicted against actual.

    progress = StepProgress(total_steps=90_000)
    progress.take(now_s, steps)
    progress.remaining(now_s)    # seconds, with a range; None while nothing can be said

The rate is that of the steps as they really come, pauses included: evaluations and checkpoints that
come again after so many steps are expected to go on coming. What is kept does not grow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, stdev
from typing import Literal

from outlay.run.rules import HourlyBilling
from outlay.uncertainty import PERCENTILE_90, Estimate

MOST_POINTS = 1024
FEWEST_POINTS = 4
"""Until there are so many, the prediction made before the run is what there is."""
BLOCKS = 10
"""Parts of equal length by whose differences the range is told."""
PAUSE_STEPS = 4.0
"""A gap that is longer than its steps by so many usual ones is a pause ..."""
PAUSE_READINGS = 1.5
"""... and than the time between readings by so many of those."""
SLOW = 1.4
"""Times the usual step: what takes longer may be part of a pause ..."""
MUCH_SLOWER = 3.0
"""... that is beside it."""
REGULAR = 0.15
"""Of their mean: distances between pauses that differ by less come again."""
FLOOR = 0.01
"""The least that a forecast is uncertain by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPause:
    """Time between steps that is no step's."""

    step: int
    """After which."""
    seconds: float


class StepProgress:
    """The steps of one run, and what is still to come."""

    def __init__(self, total_steps: float | None = None) -> None:
        self.total_steps = total_steps
        self.steps = 0
        self._points: list[tuple[float, int]] = []
        """When so many steps were done; thinned where there are many."""
        self._stride = 1
        self._taken = 0

    def take(self, now_s: float, steps: int | None) -> None:
        """Note how many steps are done now."""
        if not steps or steps == self.steps:
            return
        if steps < self.steps:  # another count than before
            self._points.clear()
            self._stride = 1
        self.steps = steps
        self._taken += 1
        if self._points and self._taken % self._stride and len(self._points) > 1:
            self._points[-1] = now_s, steps  # the newest is always kept
            return
        self._points.append((now_s, steps))
        if len(self._points) > MOST_POINTS:
            del self._points[1:-1:2]
            self._stride *= 2

    @property
    def last_s(self) -> float | None:
        """When the last step was seen."""
        return self._points[-1][0] if self._points else None

    def step_time_s(self) -> float | None:
        """Of a step by itself, pauses apart, as of late; None while it is not known."""
        if len(self._points) < FEWEST_POINTS:
            return None
        return self._pauses_and_step()[1]

    def seconds_per_step(self) -> float | None:
        """Of all steps but the first that were seen, pauses included."""
        if len(self._points) < 2:
            return None
        (first_s, first), (last_s, last) = self._points[0], self._points[-1]
        return (last_s - first_s) / (last - first)

    def remaining(self, now_s: float) -> Estimate | None:
        """Seconds until the last step, and the pauses with it; None where that is not known."""
        if self.total_steps is None or len(self._points) < FEWEST_POINTS:
            return None
        last_s, done = self._points[-1]
        left = max(self.total_steps - done, 0.0)
        pauses, step_s = self._pauses_and_step()
        is_paused = now_s - last_s > (PAUSE_STEPS + 1) * step_s
        at = [pause.step for pause in pauses] + ([done] if is_paused else [])
        count, doubt = _count_to_come(at, self._points[0][1], done, self.total_steps)
        pause_s, pause_error_s = _pause_time([pause.seconds for pause in pauses], count, doubt)
        likely_s = max(last_s + left * step_s + pause_s - now_s, left * step_s, 0.0)
        steps_error_s = self._step_error(pauses, left) * left * step_s
        error_s = max(math.hypot(steps_error_s, pause_error_s), FLOOR * likely_s)
        return Estimate(
            low=max(likely_s - PERCENTILE_90 * error_s, 0.0),
            likely=likely_s,
            high=likely_s + PERCENTILE_90 * error_s,
        )

    def _pauses_and_step(self) -> tuple[list[StepPause], float]:
        """The pauses so far, and the usual step time in the later half of the steps."""
        spans = _spans(self._points)
        usual_s = _weighted_median([(seconds / steps, steps) for seconds, steps, _ in spans])
        # A shorter one cannot be told from steps that a reading came between.
        least_s = max(PAUSE_STEPS * usual_s, PAUSE_READINGS * median(span[0] for span in spans))
        half = (self._points[0][1] + self._points[-1][1]) / 2
        pauses: list[StepPause] = []
        own_s = own = 0.0
        for seconds, steps, after in _with_whole_pauses(spans, usual_s):
            more_s = seconds - steps * usual_s
            if more_s > least_s:
                pauses.append(StepPause(step=after, seconds=more_s))
            elif after >= half:
                own_s, own = own_s + seconds, own + steps
        return pauses, own_s / own if own else usual_s

    def _step_error(self, pauses: Sequence[StepPause], left: float) -> float:
        """The relative standard deviation of what the steps that are left take, pauses apart.

        By how parts of equal length differ; of means over k parts, and over m that are still to
        come: s * sqrt(1/k + 1/m).
        """
        rates = _block_rates(_without(self._points, pauses))
        if len(rates) < 2:
            return 0.5
        done = self._points[-1][1] - self._points[0][1]
        spread = stdev(rates) / (sum(rates) / len(rates))
        parts_left = max(left / (done / len(rates)), 0.2)
        return spread * math.sqrt(1 / len(rates) + 1 / parts_left)


def _spans(points: Sequence[tuple[float, int]]) -> list[tuple[float, int, int]]:
    """Between two points each: seconds, steps, and the number of steps before."""
    return [
        (late_s - early_s, late - early, early)
        for (early_s, early), (late_s, late) in pairwise(points)
    ]


def _with_whole_pauses(
    spans: Sequence[tuple[float, int, int]], usual_s: float
) -> list[tuple[float, int, int]]:
    """The spans, each that is much too long made one with slow ones beside it.

    Readings fall into a pause: it begins in one span and ends in another.
    """
    merged: list[tuple[float, int, int]] = []
    slow = [seconds / (steps * usual_s) for seconds, steps, _ in spans]
    for number, (seconds, steps, after) in enumerate(spans):
        pair = slow[number - 1 : number + 1] if number else []
        if pair and min(pair) > SLOW and max(pair) > MUCH_SLOWER:
            before_s, before, _ = merged.pop()
            merged.append((before_s + seconds, before + steps, after))
        else:
            merged.append((seconds, steps, after))
    return merged


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(values)
    half, weight = sum(weight for _, weight in ordered) / 2, 0.0
    for value, own in ordered:
        weight += own
        if weight >= half:
            return value
    return ordered[-1][0]


def _count_to_come(at: Sequence[int], first: int, done: int, total: float) -> tuple[float, float]:
    """How many pauses are still to come, that which goes on included, and how far that is known.

    They come after every so many steps where they came so, else as often as they did.
    """
    goes_on = 1 if at and at[-1] == done else 0
    every = _usual_distance(at)
    if every is not None:
        return max(math.floor((total - at[-1]) / every + 0.02), 0) + goes_on, 0.0
    rate = len(at) / max(done - first, 1)
    return (total - done) * rate + goes_on, 1.0 if at else 0.0


def _usual_distance(at: Sequence[int]) -> float | None:
    """Steps from one pause to the next, where they hardly differ; None where they do."""
    gaps = [late - early for early, late in pairwise(at)]
    if len(gaps) < 2:
        return None
    usual = median(gaps)
    is_regular = all(abs(gap - usual) <= max(REGULAR * usual, 1.5) for gap in gaps)
    return sum(gaps) / len(gaps) if usual > 0 and is_regular else None


def _pause_time(lengths_s: Sequence[float], count: float, doubt: float) -> tuple[float, float]:
    """Seconds that so many pauses take, as long as those that were, and the standard deviation."""
    if not lengths_s:
        return 0.0, 0.0
    mean_s = sum(lengths_s) / len(lengths_s)
    spread_s = stdev(lengths_s) if len(lengths_s) > 1 else mean_s / 2
    of_mean_s = count * spread_s / math.sqrt(len(lengths_s))
    error_s = math.hypot(doubt * mean_s, of_mean_s, math.sqrt(count) * spread_s)
    return count * mean_s, error_s


def _without(
    points: Sequence[tuple[float, int]], pauses: Sequence[StepPause]
) -> list[tuple[float, int]]:
    """The points as they would be without pauses."""
    left, paused_s, moved = list(pauses), 0.0, []
    for time_s, steps in points:
        while left and left[0].step < steps:
            paused_s += left.pop(0).seconds
        moved.append((time_s - paused_s, steps))
    return moved


def _block_rates(points: Sequence[tuple[float, int]]) -> list[float]:
    """Seconds a step in parts of about equal numbers of steps."""
    if len(points) < 3:
        return []
    (first_s, first), (_, last) = points[0], points[-1]
    each = (last - first) / BLOCKS
    rates, begun_s, begun = [], first_s, first
    for time_s, steps in points[1:]:
        if steps - begun >= each:
            rates.append((time_s - begun_s) / (steps - begun))
            begun_s, begun = time_s, steps
    return rates


# What is told of a run


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run at one moment: what `status.json` holds, and each line of `outlay watch --json`."""

    schema: Literal[1] = 1
    run: str | None = None
    time_s: float = 0.0
    """Seconds since 1970."""
    phase: str = ""
    """`set-up`, `training`, `warned`, `stopping`, `ended`."""
    pid: int | None = None
    elapsed_s: float = 0.0
    """Since it was first looked at."""
    steps_done: int | None = None
    total_steps: float | None = None
    step_time_s: float | None = None
    """As of late, pauses apart."""
    predicted_step_time_s: Estimate | None = None
    loss: float | None = None
    is_loss_finite: bool | None = None
    gpu_fraction: float | None = None
    gpu_power_w: float | None = None
    gpu_memory_bytes: float | None = None
    cpus: float | None = None
    """CPUs that its processes keep busy."""
    quiet_s: float | None = None
    """For how long nothing has gone on."""
    price_usd_per_hour: float | None = None
    cost_usd: float | None = None
    """So far, started billing steps included."""
    budget_usd: float | None = None
    remaining_s: Estimate | None = None
    final_cost_usd: Estimate | None = None
    predicted_cost_usd: Estimate | None = None
    deadline_in_s: float | None = None
    warning: str | None = None
    """What it is warned of now; None where all is well."""
    stopped_for: str | None = None
    """Why outlay ended it; None where it did not."""
    exit_status: int | None = None
    notes: tuple[str, ...] = ()
    """What could not be read or done, for errors of outlay's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a run costs while it is looked at."""

    bill: HourlyBilling | None
    """None where the price is not known."""
    held_before_s: float = 0.0
    """For how long the machines were held before."""
    started_s: float = 0.0
    budget_usd: float | None = None

    def held_s(self, now_s: float) -> float:
        """For how long the machines are held by now."""
        return self.held_before_s + now_s - self.started_s

    def cost_usd(self, now_s: float) -> float | None:
        """What they have cost by now."""
        return None if self.bill is None else self.bill.usd(self.held_s(now_s))

    def final_usd(self, now_s: float, remaining: Estimate | None) -> Estimate | None:
        """What they will have cost when the run is done."""
        if self.bill is None or remaining is None:
            return None
        held_s = self.held_s(now_s)
        return Estimate(
            low=self.bill.usd(held_s + remaining.low),
            likely=self.bill.usd(held_s + remaining.likely),
            high=self.bill.usd(held_s + remaining.high),
        )

    def budget_ends_s(self) -> float | None:
        """When the budget is spent, on the clock of `started_s`; None without one."""
        if self.bill is None or self.budget_usd is None:
            return None
        return self.started_s + self.bill.longest_s(self.budget_usd) - self.held_before_s
