"""Simulated runs: what options are compared by, worked out once for all offers of a kind.

Offers of a kind (same step, provider and tenancy) differ in the price of an hour alone, so that
their simulated runs are the same, and their bills are what comes without a price and what each
dollar an hour adds. Ten thousand offers cost as many multiplications, instead of bills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.cost.lines import Cost
from outlay.predict.run_time import Run
from outlay.predict.step import StepPrediction
from outlay.uncertainty import Array, Number, share_up_to
from outlay.workload.workload import Limits

TRAINING_LINES = (
    "compute",
    "evaluation",
    "checkpoints",
    "pauses",
    "spot repetition",
    "spot restarts",
)
"""The lines of a bill that grow with the training itself."""
CURVE_POINTS = 17
"""Prices at which offers of a kind are judged; between them on a straight line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What options are compared by, in simulated runs: one figure, or one for each draw."""

    usd: Number
    """The bill."""
    training_usd: Number
    """Its lines that grow with the training itself; of one's own machine their share."""
    unpriced_usd: float
    """What has no known price, at what others charge for it."""
    calendar_s: Number
    completion_s: Number
    """What a deadline is held against."""
    interruptions: Number
    sessions: Number
    samples: Number
    """Trained on."""

    @property
    def means(self) -> Simulation:
        """The means of its figures."""
        return Simulation(
            usd=mean(self.usd),
            training_usd=mean(self.training_usd),
            unpriced_usd=self.unpriced_usd,
            calendar_s=mean(self.calendar_s),
            completion_s=mean(self.completion_s),
            interruptions=mean(self.interruptions),
            sessions=mean(self.sessions),
            samples=mean(self.samples),
        )

    def billed(self, usd: Number, training_usd: Number) -> Simulation:
        """The same runs at other bills."""
        return Simulation(
            usd=usd,
            training_usd=training_usd,
            unpriced_usd=self.unpriced_usd,
            calendar_s=self.calendar_s,
            completion_s=self.completion_s,
            interruptions=self.interruptions,
            sessions=self.sessions,
            samples=self.samples,
        )


def mean(draws: Number) -> float:
    """The mean of draws, or the one figure there is."""
    if isinstance(draws, np.ndarray):
        return float(np.add.reduce(draws)) / len(draws)
    return float(draws)


def simulation_of(run: Run, cost: Cost | None, samples: Number, *, is_owned: bool) -> Simulation:
    """What options are compared by, of a run and its bill; no bill costs without end."""
    usd: Number = float("inf")
    training_usd, unpriced_usd = usd, 0.0
    if cost is not None:
        usd, unpriced_usd = cost.usd, cost.usual_usd
        training_usd = cost.breakdown.line_usd(*TRAINING_LINES)
        if is_owned:
            training_usd = usd * run.training_s / run.busy_s
    return Simulation(
        usd=usd,
        training_usd=training_usd,
        unpriced_usd=unpriced_usd,
        calendar_s=run.calendar_s,
        completion_s=run.completion_s,
        interruptions=run.interruptions,
        sessions=run.sessions,
        samples=samples,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Simulated runs in short: their means, and the chances to keep the limits."""

    means: Simulation
    within_budget: float | None = None
    """The chance to stay within the budget; None without a budget."""
    meets_deadline: float | None = None


def forecast_of(runs: Simulation, limits: Limits) -> Forecast:
    """Simulated runs in short."""
    return Forecast(
        means=runs.means,
        within_budget=_chance(limits.budget_usd, runs.usd),
        meets_deadline=_chance(limits.deadline_s, runs.completion_s),
    )


def _chance(limit: float | None, draws: Number) -> float | None:
    return None if limit is None else share_up_to(limit, draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedKind:
    """Simulated runs and bills of offers that differ in the price of an hour alone."""

    step: StepPrediction
    """Kept as long as the kind is known by it."""
    limits: Limits
    billed: Callable[[Number], Simulation]
    """At a price of an hour."""
    slope: Slope | None = None
    """Where bills grow in proportion to the price."""

    def at(self, usd_per_hour: Number) -> Simulation:
        """At a price of an hour, or one for each draw."""
        slope = self.slope
        if slope is None:
            return self.billed(usd_per_hour)
        return slope.free.billed(
            slope.free.usd + slope.usd * usd_per_hour,
            slope.free.training_usd + slope.training_usd * usd_per_hour,
        )

    def forecast(self, usd_per_hour: Number) -> Forecast:
        """The same in short."""
        slope = self.slope
        if slope is None:
            return forecast_of(self.at(usd_per_hour), self.limits)
        means = slope.means.free  # of all but the bills, which alone change with the price
        if isinstance(usd_per_hour, np.ndarray):
            usd = slope.free.usd + slope.usd * usd_per_hour
            training_usd = slope.free.training_usd + slope.training_usd * usd_per_hour
            return Forecast(
                means=means.billed(mean(usd), mean(training_usd)),
                within_budget=_chance(self.limits.budget_usd, usd),
                meets_deadline=slope.meets_deadline,
            )
        return Forecast(
            means=means.billed(
                means.usd + slope.means.usd * usd_per_hour,
                means.training_usd + slope.means.training_usd * usd_per_hour,
            ),
            within_budget=slope.chance_within_budget(usd_per_hour),
            meets_deadline=slope.meets_deadline,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SlopeMeans:
    """The means of a slope."""

    free: Simulation
    usd: float
    training_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """Bills that grow in proportion to the price of an hour."""

    free: Simulation
    """At no price."""
    usd: Array
    """What each dollar an hour adds to the bill ..."""
    training_usd: Array
    """... and to its lines of training."""
    means: SlopeMeans
    affordable_usd_per_hour: Array | None
    """The prices at which each simulated bill is the budget, lowest first; None without one."""
    meets_deadline: float | None

    def affordable_with(self, confidence: float) -> float:
        """The highest price at which so many of the simulated bills are within the budget."""
        prices = self.affordable_usd_per_hour
        if prices is None:
            return float("inf")
        return float(prices[min(int((1 - confidence) * len(prices) + 1e-9), len(prices) - 1)])

    def chance_within_budget(self, usd_per_hour: float) -> float | None:
        """The share of simulated bills within the budget at a price."""
        prices = self.affordable_usd_per_hour
        if prices is None:
            return None
        return 1 - int(prices.searchsorted(usd_per_hour)) / len(prices)


def in_proportion(kind: SimulatedKind, size: int) -> SimulatedKind:
    """A kind whose bills grow in proportion to the price, from two bills of so many draws."""
    both = kind.billed(np.asarray([[0.0], [1.0]]))
    (free_usd, usd), (free_training_usd, training_usd) = (
        np.broadcast_to(np.asarray(amount, float), (2, size))
        for amount in (both.usd, both.training_usd)
    )
    free = both.billed(free_usd, free_training_usd)
    slope = Slope(
        free=free,
        usd=usd - free_usd,
        training_usd=training_usd - free_training_usd,
        means=SlopeMeans(
            free=free.means,
            usd=mean(usd - free_usd),
            training_usd=mean(training_usd - free_training_usd),
        ),
        affordable_usd_per_hour=_affordable(kind.limits.budget_usd, free_usd, usd - free_usd),
        meets_deadline=_chance(kind.limits.deadline_s, free.completion_s),
    )
    return replace(kind, slope=slope)


def _affordable(budget_usd: float | None, free_usd: Array, added_usd: Array) -> Array | None:
    """The prices at which each simulated bill is the budget, lowest first."""
    if budget_usd is None:
        return None
    left_usd = budget_usd - free_usd
    nothing = np.where(left_usd >= 0, np.inf, -np.inf)  # where the price adds nothing to the bill
    prices = np.divide(left_usd, added_usd, out=nothing, where=added_usd > 0)
    return np.sort(prices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What an offer is ranked by at a price."""

    merit_usd: float
    paid_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceCurve:
    """What offers of one kind are ranked by, by their price: exact for means of bills that grow
    in proportion to it."""

    usd_per_hour: Array
    merit_usd: Array
    paid_usd: Array
    most_usd_per_hour: float
    """The highest price at which the budget is kept, where that can be told of a price."""

    def merits_usd(self, usd_per_hour: Sequence[float]) -> list[float]:
        """What offers are ranked by, at their prices."""
        merits: list[float] = np.interp(usd_per_hour, self.usd_per_hour, self.merit_usd).tolist()
        return merits

    def all_paid_usd(self, usd_per_hour: Sequence[float]) -> list[float]:
        """What offers cost in money alone, at their prices."""
        paid: list[float] = np.interp(usd_per_hour, self.usd_per_hour, self.paid_usd).tolist()
        return paid


def price_curve(
    judge: Callable[[float], Judgement], highest_usd_per_hour: float, most_usd_per_hour: float
) -> PriceCurve:
    """What `judge` says of prices from none to the highest."""
    prices = np.linspace(0.0, highest_usd_per_hour, CURVE_POINTS)
    points = [judge(float(price)) for price in prices]
    return PriceCurve(
        usd_per_hour=prices,
        merit_usd=np.asarray([point.merit_usd for point in points]),
        paid_usd=np.asarray([point.paid_usd for point in points]),
        most_usd_per_hour=most_usd_per_hour,
    )
