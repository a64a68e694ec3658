"""One way to do the run: an offer as it is had, with its step, its time, its bill and its luck."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from outlay.cost.cash import NO_CASH, Cash
from outlay.cost.lines import Cost
from outlay.facts import assumed
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.places import DataRoute
from outlay.plan.simulation import Forecast, Simulation, forecast_of, mean, simulation_of
from outlay.predict.run_time import Run
from outlay.predict.step import StepPrediction
from outlay.uncertainty import (
    DRAWS,
    LIKELY,
    Draws,
    Estimate,
    Number,
    Sampler,
    percentile_90,
    range_of,
    share_up_to,
)
from outlay.units import HOUR_S
from outlay.workload.workload import Limits, Preferences

FIRST = 25
"""Options by rank whose bills are drawn in full number; of the others a fifth is drawn."""

RANKED = DRAWS // 5
"""Draws behind what options are compared by: as many for each, so that they can be."""
FAR_OFF = 2.0
# Assumes: what is likely to take twice a limit keeps it in less than half of all cases.

Outcome = tuple[Run, Cost | None]
"""A run and its bill, as luck has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospects:
    """What an option is judged by: figures of its simulated runs."""

    expected_usd: float
    """The mean of its bills."""
    merit_usd: float
    """What it is ranked by: the cost as the user's `risk` says, and what else is worth money."""
    paid_usd: float
    """The same in money alone."""
    within_budget: float | None
    """The chance to stay within the budget; None without a budget."""
    meets_deadline: float | None


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
    price_usd_per_hour: Estimate | None = None
    """What an hour is expected to cost while the run runs; None where no price is known."""
    cost: Cost | None
    limits: Limits
    prefer: Preferences = field(default_factory=Preferences)
    blocked: str | None = None
    """Why it cannot be taken, beside memory, price, budget and deadline."""
    outcome: Callable[[Sampler], Outcome] | None = field(default=None, repr=False)
    """The run and its bill under other luck."""
    cash_of: Callable[[Sampler], Cash] | None = field(default=None, repr=False)
    """What must be paid on the first day; None: nothing."""
    simulate: Callable[[Draws], Simulation] | None = field(default=None, repr=False, compare=False)
    """What `outcome` draws, found faster where options share it ..."""
    foresee: Callable[[Draws], Forecast] | None = field(default=None, repr=False, compare=False)
    """... and that in short."""
    keeping: str = ""
    """Where things are kept, where several places are compared."""
    data_distance: int = 0
    """How far its data lies: 0 is here or wherever it is the same, 1 in another region of the
    provider, 2 elsewhere."""
    needs_quota: bool = False
    """Whether its provider gives such machines only to who has applied for them."""
    notes: tuple[str, ...] = ()
    route: DataRoute | None = None
    """How the data gets to the machine."""
    scarcity: str | None = None
    """Why there may not be so many of them at once, in words."""
    rank: int = 0
    on_frontier: bool = False
    is_chosen: bool = False
    reason: Callable[[], str | None] | None = field(default=None, repr=False, compare=False)
    """Says why it is not the one to take, when somebody asks."""
    proviso: Callable[[], str | None] | None = field(default=None, repr=False, compare=False)
    """Says what must still be true when one acts, when somebody asks."""
    _ranges: dict[int, Ranges] = field(default_factory=dict, repr=False, compare=False)
    _prospects: list[Prospects] = field(default_factory=list, repr=False, compare=False)
    _cash: list[Cash] = field(default_factory=list, repr=False, compare=False)
    _training: list[float] = field(default_factory=list, repr=False, compare=False)

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
    def price_doubts(self) -> tuple[str, ...]:
        """All that is doubtful about it, also what the range of its price takes in."""
        return self.offer.price_doubts(self.tenancy) + self.step.software_doubts

    @property
    def for_sale(self) -> bool:
        """Whether somebody really sells it at its price."""
        return not self.offer.not_for_sale(self.tenancy)

    @property
    def usd(self) -> float:
        """The sum of its lines; without end where it has no price."""
        return float("inf") if self.cost is None else float(self.cost.usd)

    @property
    def usd_with_unpriced(self) -> float:
        """The sum of its lines, and what is not priced at what others charge for it."""
        return self.usd + (0.0 if self.cost is None else self.cost.usual_usd)

    @property
    def expected_cost_usd(self) -> float | None:
        """The mean of its simulated bills; None where it has no price."""
        return None if self.run is None or self.cost is None else self.prospects.expected_usd

    @property
    def condition(self) -> str | None:
        """What must still be true when one acts, in words; None where nothing need be."""
        return None if self.proviso is None else self.proviso()

    @property
    def hourly_usd(self) -> float | None:
        """What the bill is computed with: the likely price of an hour; the quote of an option
        whose run was not looked at; None where no price is known."""
        if self.price_usd_per_hour is None:
            return self.offer.hourly_usd(self.tenancy)
        return self.price_usd_per_hour.likely

    @property
    def busy_s(self) -> float:
        """Time the machine is held; without end where it does not run."""
        return float("inf") if self.run is None else float(self.run.busy_s)

    @property
    def within_budget(self) -> bool:
        """Whether cost and cash are within the budget, with the chance that is asked for; not,
        where the cost is unknown."""
        budget_usd = self.limits.budget_usd
        if self.cost is None:
            return False
        if not self.cash_within_budget:
            return False
        if budget_usd is None:
            return True
        if self._is_far_off(self.usd, budget_usd):
            return False
        return (self.prospects.within_budget or 0.0) >= self.limits.confidence

    @property
    def cash(self) -> Cash:
        """What must be paid on the first day, and what remains due if one stops early."""
        if not self._cash:
            self._cash.append(NO_CASH if self.cash_of is None else self.cash_of(LIKELY))
        return self._cash[0]

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
        """Whether the time is within the deadline, with the chance that is asked for."""
        deadline_s = self.limits.deadline_s
        if self.run is None or deadline_s is None:
            return self.run is not None
        if self._is_far_off(float(self.run.completion_s), deadline_s):
            return False
        return (self.prospects.meets_deadline or 0.0) >= self.limits.confidence

    def _is_far_off(self, likely: float, limit: float | None) -> bool:
        """Whether no draws are needed to see that a limit is not kept."""
        return limit is not None and likely > FAR_OFF * limit and self.limits.confidence >= 0.5

    @property
    def _is_hopeless(self) -> bool:
        """Whether that is so of any of its limits."""
        limits, run = self.limits, self.run
        return self._is_far_off(self.usd, limits.budget_usd) or (
            run is not None and self._is_far_off(float(run.completion_s), limits.deadline_s)
        )

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
            and not self._is_hopeless
            and self.within_budget
            and self.meets_deadline
        )

    @property
    def sound(self) -> bool:
        """Feasible, with nothing to doubt."""
        return self.feasible and not self.doubts

    @property
    def merit_usd(self) -> float:
        """What options are ranked by: the cost as `prefer.risk` says, what is not priced at what
        others charge for it, and what waiting, trouble and a preference are worth."""
        return float("inf") if self.run is None or self.cost is None else self.prospects.merit_usd

    @property
    def paid_usd(self) -> float:
        """The cost as `prefer.risk` says, with what is not priced, whatever else is worth money."""
        return float("inf") if self.run is None or self.cost is None else self.prospects.paid_usd

    @property
    def likely_merit_usd(self) -> float:
        """What it would be ranked by if everything were likely."""
        if self.run is None or self.cost is None:
            return float("inf")
        return float(self.merit_of(self.likely_simulation))

    @property
    def trouble_usd(self) -> float:
        """What it asks of a person, in money: in no bill, but in the ranking."""
        return 0.0 if self.run is None else float(self._trouble_usd(self.run))

    def _trouble_usd(self, run: Run | Simulation, *, starts: bool = True) -> Number:
        """Spot machines that are taken away, and starts of them."""
        if self.tenancy != "spot":
            return 0.0
        each, start = self.prefer.usd_per_interruption, self.prefer.usd_per_start
        each_usd = assumed("spot_interruption_trouble_usd") if each is None else each
        start_usd = assumed("spot_start_trouble_usd") if start is None else start
        return run.interruptions * each_usd + (run.sessions * start_usd if starts else 0.0)

    def merit_of(self, simulated: Simulation) -> Number:
        """What simulated runs are worth, in dollars: less is better."""
        preferred = self.offer.provider in self.prefer.providers
        billed_usd = (simulated.usd + simulated.unpriced_usd) / (
            1 + self.prefer.premium_fraction * preferred
        )
        if self.prefer.waiting_usd_per_hour:
            waiting_h = simulated.calendar_s / HOUR_S
            billed_usd = billed_usd + self.prefer.waiting_usd_per_hour * waiting_h
        return billed_usd + self._trouble_usd(simulated)

    def training_of(self, simulated: Simulation) -> Number:
        """What training a million samples costs in simulated runs, interruptions' trouble too."""
        trouble_usd = self._trouble_usd(simulated, starts=False)
        return (simulated.training_usd + trouble_usd) / simulated.samples * 1e6

    @property
    def training_merit_usd(self) -> float:
        """What options that do unequal work are ranked by: training a million samples, as
        `prefer.risk` says."""
        if self.run is None or self.cost is None or not self.samples:
            return float("inf")
        if not self._training:
            is_likely = self.prefer.risk == "likely"
            runs = self.likely_simulation if is_likely else self.simulated()
            self._training.append(self.measured(self.training_of(runs)))
        return self._training[0]

    @property
    def prospects(self) -> Prospects:
        """What it is judged by; worked out when first asked for."""
        if not self._prospects:
            self._prospects.append(self._judged())
        return self._prospects[0]

    def _judged(self) -> Prospects:
        risk = self.prefer.risk
        if self.foresee is not None and risk != "p90":
            forecast = self.foresee(draws_of(RANKED))
            return self.judged(forecast, self.likely_simulation if risk == "likely" else None)
        runs = self.simulated()
        return self.judged(
            forecast_of(runs, self.limits), self.likely_simulation if risk == "likely" else runs
        )

    def judged(self, forecast: Forecast, runs: Simulation | None = None) -> Prospects:
        """What a forecast says of it; `runs` is what it is ranked by, if not by the means."""
        runs = runs or forecast.means
        return Prospects(
            expected_usd=float(forecast.means.usd),
            merit_usd=self.measured(self.merit_of(runs)),
            paid_usd=self.measured(runs.usd) + runs.unpriced_usd,
            within_budget=self._with_cash(forecast.within_budget),
            meets_deadline=forecast.meets_deadline,
        )

    def _with_cash(self, chance: float | None) -> float | None:
        """The chance to stay within the budget, with what is paid on the first day where any is."""
        budget_usd, limit_usd = self.limits.budget_usd, self.cash_limit_usd
        if chance is None or budget_usd is None or limit_usd is None:
            return chance
        if self.cash_of is None or not self.cash_upfront_usd:
            return chance
        upfront_usd = self.cash_of(draws_of(RANKED)).upfront_usd
        over_usd = np.maximum(self.simulated().usd - budget_usd, upfront_usd - limit_usd)
        return share_up_to(0.0, over_usd)

    def measured(self, draws: Number) -> float:
        """One figure for an uncertain one, as `prefer.risk` says."""
        return percentile_90(draws) if self.prefer.risk == "p90" else mean(draws)

    def simulated(self) -> Simulation:
        """What it is compared by, in as many simulated runs as of every other option."""
        draws = draws_of(RANKED)
        if self.simulate is not None:
            return self.simulate(draws)
        return self.simulation_of(*self.drawn(draws))

    @property
    def likely_simulation(self) -> Simulation:
        """What it is compared by if everything is likely."""
        assert self.run is not None
        return self.simulation_of(self.run, self.cost)

    def simulation_of(self, run: Run, cost: Cost | None) -> Simulation:
        """What it is compared by, of a run and its bill."""
        return simulation_of(run, cost, self.samples or 1.0, is_owned=self.tenancy == "owned")

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
        return float(self.likely_simulation.training_usd) / self.samples * 1e6

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
        return self.rank <= FIRST or self.on_frontier or self.is_chosen or self.offer.quoted

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
            within_budget=None if cost is None else self._budget_chance,
            meets_deadline=self._deadline_chance,
            lines=_line_ranges(self.cost, cost) if in_full else (),  # type: ignore[arg-type]
        )

    # The chances are those that limits are judged by, whatever the number of draws of a range.

    @property
    def _budget_chance(self) -> float | None:
        return None if self.limits.budget_usd is None else self.prospects.within_budget

    @property
    def _deadline_chance(self) -> float | None:
        return None if self.limits.deadline_s is None else self.prospects.meets_deadline


@cache
def draws_of(size: int) -> Draws:
    """The luck all options share."""
    return Draws(size)


def _ranged(likely: Number, draws: Number) -> Estimate:
    return range_of(float(likely), draws)


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
