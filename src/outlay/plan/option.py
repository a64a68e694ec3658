"""One way to do the run: an offer as it is had, with its step, its time, its bill and its luck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from outlay.cost.cash import NO_CASH, Cash
from outlay.cost.lines import Cost
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.places import DataRoute
from outlay.predict.run_time import Run
from outlay.predict.step import StepPrediction
from outlay.uncertainty import (
    DRAWS,
    LIKELY,
    Draws,
    Estimate,
    Number,
    Sampler,
    range_of,
    share_up_to,
)
from outlay.units import HOUR_S
from outlay.workload.workload import Limits, Preferences

TRAINING_LINES = (
    "compute",
    "evaluation",
    "checkpoints",
    "pauses",
    "spot repetition",
    "spot restarts",
)
"""The lines of a bill that grow with the training itself."""
FIRST = 25
"""Options by rank whose bills are drawn in full number; of the others a fifth is drawn."""

Outcome = tuple[Run, Cost | None]
"""A run and its bill, as luck has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranges:
    """What ten thousand simulated runs of an option took and cost."""

    run_time_s: Estimate
    calendar_s: Estimate
    cost_usd: Estimate | None
    within_budget: float | None
    """The chance to stay within the budget; None without a budget or a price."""
    meets_deadline: float | None
    lines: tuple[Estimate, ...]
    """One for each line of the bill, of options that are drawn in full number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to do the run: an offer in one tenancy, with its step, time and cost.

    `cost` is None where the offer has no price; `run` is None where the step does not fit, or
    where the run would never end (then `blocked` says why).
    """

    offer: Offer
    tenancy: Tenancy
    step: StepPrediction
    samples: float | None
    """Samples the run trains on here."""
    work: float | None = None
    """What options are compared by: samples, or hours where those are said to be equal."""
    run: Run | None
    cost: Cost | None
    limits: Limits
    prefer: Preferences = field(default_factory=Preferences)
    blocked: str | None = None
    """Why it cannot be taken, beside memory, price, budget and deadline."""
    outcome: Callable[[Sampler], Outcome] | None = None
    """The run and its bill under other luck."""
    cash_of: Callable[[Sampler], Cash] | None = None
    """What must be paid on the first day; None: nothing."""
    keeping: str = ""
    """Where things are kept, where several places are compared."""
    notes: tuple[str, ...] = ()
    route: DataRoute | None = None
    """How the data gets to the machine."""
    rank: int = 0
    on_frontier: bool = False
    reason: Callable[[], str | None] | None = field(default=None, repr=False, compare=False)
    """Says why it is not the one to take, when somebody asks."""
    _ranges: dict[int, Ranges] = field(default_factory=dict, repr=False, compare=False)

    @property
    def why_not(self) -> str | None:
        """Why it is not the one to take, in words; None for the choice itself."""
        return None if self.reason is None else self.reason()

    @property
    def fits(self) -> bool:
        """Whether the step fits into the GPU's memory."""
        return self.step.fits

    @property
    def doubts(self) -> tuple[str, ...]:
        """The reasons why its price may be off, or why it may not run as it is."""
        return self.offer.cautions(self.tenancy) + self.step.software_doubts

    @property
    def for_sale(self) -> bool:
        """Whether somebody really sells it at its price."""
        return not self.offer.not_for_sale(self.tenancy)

    @property
    def usd(self) -> float:
        """The sum of its lines; without end where it has no price."""
        return float("inf") if self.cost is None else float(self.cost.usd)

    @property
    def expected_usd(self) -> float:
        """The sum of its lines, and what is not priced at what others charge for it."""
        return self.usd + (0.0 if self.cost is None else self.cost.usual_usd)

    @property
    def busy_s(self) -> float:
        """Time the machine is held; without end where it does not run."""
        return float("inf") if self.run is None else float(self.run.busy_s)

    @property
    def within_budget(self) -> bool:
        """Whether likely cost and cash are within the budget; not, where the cost is unknown."""
        if self.cost is None:
            return False
        budget_usd = self.limits.budget_usd
        return (budget_usd is None or self.usd <= budget_usd) and self.cash_within_budget

    @property
    def cash(self) -> Cash:
        """What must be paid on the first day, and what remains due if one stops early."""
        return NO_CASH if self.cash_of is None else self.cash_of(LIKELY)

    @property
    def cash_upfront_usd(self) -> float:
        """What must be paid on the first day; 0 where nothing."""
        return float(self.cash.upfront_usd)

    @property
    def cash_limit_usd(self) -> float | None:
        """What may be paid on the first day: as stated, or the budget."""
        stated_usd = self.limits.cash_upfront_usd
        return self.limits.budget_usd if stated_usd is None else stated_usd

    @property
    def cash_within_budget(self) -> bool:
        """Whether what must be paid on the first day may be."""
        limit_usd = self.cash_limit_usd
        return limit_usd is None or self.cash_upfront_usd <= limit_usd

    @property
    def meets_deadline(self) -> bool:
        """Whether the likely time is within the deadline."""
        if self.run is None:
            return False
        deadline_s = self.limits.deadline_s
        return deadline_s is None or bool(self.run.completion_s <= deadline_s)

    @property
    def runs(self) -> bool:
        """Whether today's PyTorch runs on its GPU, as far as is known."""
        return self.step.placement.gpu.runs_pytorch

    @property
    def feasible(self) -> bool:
        """Whether it satisfies every limit."""
        return (
            self.fits
            and self.blocked is None
            and self.runs
            and self.for_sale
            and self.within_budget
            and self.meets_deadline
        )

    @property
    def sound(self) -> bool:
        """Feasible, with nothing to doubt."""
        return self.feasible and not self.doubts

    @property
    def merit_usd(self) -> float:
        """What options are ranked by: the cost, what waiting and a preference are worth, and what
        is not priced at what others charge for it."""
        return self.merit_at(self.usd)

    def merit_at(self, usd: float) -> float:
        """What it would be ranked by if its bill came to that."""
        if self.run is None or self.cost is None:
            return float("inf")
        waiting_usd = self.prefer.waiting_usd_per_hour * float(self.run.calendar_s) / HOUR_S
        preferred = self.offer.provider in self.prefer.providers
        billed_usd = (usd + self.cost.usual_usd) / (1 + self.prefer.premium_fraction * preferred)
        return billed_usd + waiting_usd

    @property
    def usd_per_million_samples(self) -> float | None:
        """The whole cost by the samples trained on, None where either is unknown."""
        if self.cost is None or not self.samples:
            return None
        return self.usd / self.samples * 1e6

    @property
    def training_usd_per_million_samples(self) -> float | None:
        """What a million samples cost once the machine is set up: its training time alone."""
        if self.cost is None or self.run is None or not self.samples:
            return None
        if self.tenancy == "owned":
            usd = self.usd * float(self.run.training_s) / self.busy_s
        else:
            usd = float(self.cost.breakdown.line_usd(*TRAINING_LINES))
        return usd / self.samples * 1e6

    @property
    def training_s_per_sample(self) -> float:
        """Training time of one sample; without end where it does not run."""
        if self.run is None or not self.samples:
            return float("inf")
        return float(self.run.training_s) / self.samples

    @property
    def ranges(self) -> Ranges | None:
        """Its simulated ranges, None where it does not run; worked out when first asked for."""
        if self.run is None:
            return None
        size = DRAWS if self._is_looked_at else DRAWS // 5
        if size not in self._ranges:
            self._ranges[size] = self._simulated(size)
        return self._ranges[size]

    @property
    def _is_looked_at(self) -> bool:
        return self.rank <= FIRST or self.on_frontier or self.offer.quoted

    @property
    def cost_usd(self) -> Estimate | None:
        """Its cost with its range."""
        return None if self.ranges is None else self.ranges.cost_usd

    @property
    def run_time_s(self) -> Estimate | None:
        """The time its machine is held, with its range."""
        return None if self.ranges is None else self.ranges.run_time_s

    @property
    def calendar_s(self) -> Estimate | None:
        """Time from start to end, nights and pauses included, with its range."""
        return None if self.ranges is None else self.ranges.calendar_s

    def drawn(self, sampler: Sampler) -> Outcome:
        """The run and its bill under other luck; as they are where nothing is uncertain."""
        assert self.run is not None
        return (self.run, self.cost) if self.outcome is None else self.outcome(sampler)

    def _simulated(self, size: int) -> Ranges:
        run, cost = self.drawn(draws_of(size))
        assert self.run is not None
        in_full = size == DRAWS and self.cost is not None and cost is not None
        return Ranges(
            run_time_s=_ranged(self.run.busy_s, run.busy_s),
            calendar_s=_ranged(self.run.calendar_s, run.calendar_s),
            cost_usd=None if cost is None else _ranged(self.usd, cost.usd),
            within_budget=self._budget_chance(cost, draws_of(size)),
            meets_deadline=_chance(self.limits.deadline_s, run.completion_s),
            lines=_line_ranges(self.cost, cost) if in_full else (),  # type: ignore[arg-type]
        )

    def _budget_chance(self, cost: Cost | None, sampler: Sampler) -> float | None:
        """The chance that cost and cash both stay within; None without a budget or a price."""
        budget_usd = self.limits.budget_usd
        if budget_usd is None or cost is None:
            return None
        cash = NO_CASH if self.cash_of is None else self.cash_of(sampler)
        limit_usd = budget_usd if self.cash_limit_usd is None else self.cash_limit_usd
        over_usd = np.maximum(cost.usd - budget_usd, cash.upfront_usd - limit_usd)
        return share_up_to(0.0, over_usd)


@cache
def draws_of(size: int) -> Draws:
    """The luck all options share."""
    return Draws(size)


def _ranged(likely: Number, draws: Number) -> Estimate:
    return range_of(float(likely), draws)


def _chance(limit: float | None, draws: Number | None) -> float | None:
    return None if limit is None or draws is None else share_up_to(limit, draws)


def _line_ranges(likely: Cost, drawn: Cost) -> tuple[Estimate, ...]:
    """The range of each line; lines of one name are taken in their order."""
    ranges: dict[tuple[str, int], Number] = {}
    for line, key in zip(drawn.breakdown.lines, _numbered(drawn), strict=True):
        ranges[key] = line.usd
    return tuple(
        _ranged(line.usd, ranges.get(key, line.usd))
        for line, key in zip(likely.breakdown.lines, _numbered(likely), strict=True)
    )


def _numbered(cost: Cost) -> list[tuple[str, int]]:
    names = [line.name for line in cost.breakdown.lines]
    return [(name, names[:place].count(name)) for place, name in enumerate(names)]
