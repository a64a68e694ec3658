"""Every option ranked under the limits, the choice, the frontier, and why each loser lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outlay.cost import Cost, break_even_s
from outlay.estimate import Estimate
from outlay.offers.offer import Offer, Tenancy
from outlay.predict.run import Run
from outlay.predict.step import StepPrediction
from outlay.units import DAY_S, GIB, HOUR_S
from outlay.workload import Limits

TRAINING_LINES = ("compute", "checkpoints", "spot repetition")
"""The lines of a bill that grow with the training itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One way to do the run: an offer in one tenancy, with its step, time and cost.

    `cost` is None where the offer has no price; `run` is None where the step does not fit.
    """

    offer: Offer
    tenancy: Tenancy
    step: StepPrediction
    samples: float | None
    """Samples the run trains on here."""
    run: Run | None
    cost: Cost | None
    limits: Limits
    notes: tuple[str, ...] = ()
    rank: int = 0
    on_frontier: bool = False
    why_not: str | None = None

    @property
    def fits(self) -> bool:
        """Whether the step fits into the GPU's memory."""
        return self.step.fits

    @property
    def doubts(self) -> tuple[str, ...]:
        """The reasons why its price may be off, or why it may not run as it is."""
        special = self.step.placement.gpu.software.runs == "special build"
        software = ("needs a special build of PyTorch",) if special else ()
        return self.offer.cautions(self.tenancy) + software

    @property
    def for_sale(self) -> bool:
        """Whether somebody really sells it at its price."""
        return not self.offer.not_for_sale(self.tenancy)

    @property
    def calendar_s(self) -> Estimate | None:
        """Time from start to end, nights and pauses included."""
        return None if self.run is None else self.run.period_s

    @property
    def within_budget(self) -> bool:
        """Whether the likely cost is within the budget; not, where the cost is unknown."""
        if self.cost is None:
            return False
        budget_usd = self.limits.budget_usd
        return budget_usd is None or self.cost.usd.likely <= budget_usd

    @property
    def meets_deadline(self) -> bool:
        """Whether the likely time is within the deadline."""
        if self.run is None:
            return False
        deadline_s = self.limits.deadline_s
        return deadline_s is None or self.run.due_s <= deadline_s

    @property
    def runs(self) -> bool:
        """Whether today's PyTorch runs on its GPU, as far as is known."""
        return self.step.placement.gpu.software.runs != "no"

    @property
    def feasible(self) -> bool:
        """Whether it satisfies every limit."""
        return (
            self.fits and self.runs and self.for_sale and self.within_budget and self.meets_deadline
        )

    @property
    def sound(self) -> bool:
        """Feasible, with nothing to doubt."""
        return self.feasible and not self.doubts

    @property
    def usd_per_million_samples(self) -> float | None:
        """The whole cost by the samples trained on, None where either is unknown."""
        if self.cost is None or not self.samples:
            return None
        return self.cost.usd.likely / self.samples * 1e6

    @property
    def training_usd_per_million_samples(self) -> float | None:
        """What a million samples cost once the machine is set up: its training time alone."""
        if self.cost is None or self.run is None or not self.samples:
            return None
        if self.tenancy == "owned":
            share = self.run.training_s.likely / self.run.busy_s.likely
            usd = self.cost.usd.likely * share
        else:
            usd = sum(self.cost.breakdown.line_usd(name) for name in TRAINING_LINES)
        return usd / self.samples * 1e6

    @property
    def training_s_per_sample(self) -> float:
        """Training time of one sample; without end where it does not run."""
        if self.run is None or not self.samples:
            return float("inf")
        return self.run.training_s.likely / self.samples


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """When buying a machine has cost less than renting the same work."""

    buy: str
    rent: str
    use_s: float | None
    """Hours of use of the bought machine after which it is the cheaper one; None: never."""
    owned_usd_per_hour: float
    rented_usd_per_hour: float
    """What renting the work of one hour of the owned machine costs."""
    purchase_usd: float
    resale_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All options in rank order, and the one to take."""

    options: tuple[Option, ...]
    chosen: Option | None
    break_even: tuple[BreakEven, ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def frontier(self) -> tuple[Option, ...]:
        """The options nothing beats in both time and cost, fastest first."""
        best = [option for option in self.options if option.on_frontier]
        return tuple(sorted(best, key=lambda option: option.training_s_per_sample))

    @property
    def ranked_by(self) -> str:
        """What the order follows: the whole cost, or that of training a million samples."""
        return "cost" if equal_work(self.options) else "training cost per million samples"


def equal_work(options: Sequence[Option]) -> bool:
    """Whether all options train on the same number of samples."""
    amounts = {round(option.samples) for option in options if option.samples}
    return len(amounts) <= 1


def rank_options(options: Sequence[Option]) -> tuple[Option, ...]:
    """The options in order: sound by cost, doubtful by cost, then what cannot be taken.

    Where they train on different amounts (iterations at each machine's own batch, or a fixed
    time), the cost of training a million samples takes the place of the cost.
    """
    scale = _whole if equal_work(options) else _per_sample
    ordered = sorted(options, key=lambda option: _order(option, scale))
    chosen = choose(ordered)
    frontier = _frontier([option for option in ordered if option.sound], scale)
    return tuple(
        replace(
            option,
            rank=rank,
            on_frontier=id(option) in frontier,
            why_not=_why_not(option, chosen, scale, on_frontier=id(option) in frontier),
        )
        for rank, option in enumerate(ordered, 1)
    )


def choose(options: Sequence[Option]) -> Option | None:
    """The first sound option of a ranked list; a doubtful price is never chosen."""
    return next((option for option in options if option.sound), None)


def break_evens(options: Sequence[Option]) -> tuple[BreakEven, ...]:
    """For each machine to be bought: after how much use it beats the cheapest sound rental."""
    rented = next((one for one in options if one.sound and one.tenancy != "owned"), None)
    if rented is None or rented.cost is None:
        return ()
    found = []
    for option in options:
        owned = option.offer.owned
        if owned is None or owned.purchase_usd is None or option.run is None or not option.cost:
            continue
        hours = option.run.busy_s.likely / HOUR_S
        work_ratio = (option.samples or 1.0) / (rented.samples or 1.0)
        running = sum(
            line.usd.likely
            for line in option.cost.breakdown.lines
            if line.name != "purchase less resale"
        )
        rented_usd_per_hour = rented.cost.usd.likely * work_ratio / hours
        spread_usd = owned.purchase_usd - owned.resale_usd
        found.append(
            BreakEven(
                buy=option.offer.instance,
                rent=f"{rented.offer.provider} {rented.offer.instance} {rented.tenancy}",
                use_s=break_even_s(
                    spread_usd,
                    rented_usd_per_hour=rented_usd_per_hour,
                    owned_usd_per_hour=running / hours,
                ),
                owned_usd_per_hour=running / hours,
                rented_usd_per_hour=rented_usd_per_hour,
                purchase_usd=owned.purchase_usd,
                resale_usd=owned.resale_usd,
            )
        )
    return tuple(found)


Scale = Callable[[Option], tuple[float, float]]
"""Dollars and seconds by which options are compared; without end where unknown."""


def _whole(option: Option) -> tuple[float, float]:
    """The whole run: for options that do the same work."""
    usd = option.cost.usd.likely if option.cost else float("inf")
    return usd, option.run.busy_s.likely if option.run else float("inf")


def _per_sample(option: Option) -> tuple[float, float]:
    """Training a million samples: for options that do different amounts of work."""
    usd = option.training_usd_per_million_samples
    return float("inf") if usd is None else usd, option.training_s_per_sample * 1e6


def _order(option: Option, scale: Scale) -> tuple[int, float, float, str]:
    if option.sound:
        group = 0
    elif option.feasible:
        group = 1
    else:
        group = (
            2 if option.fits and option.runs and option.for_sale and option.cost is not None else 3
        )
    return (group, *scale(option), "/".join(option.offer.identity))


def _frontier(options: Sequence[Option], scale: Scale) -> set[int]:
    """The identities of the options nothing beats in both time and cost; they come by cost."""
    best, fastest_s = set(), float("inf")
    for option in options:
        _, time_s = scale(option)
        if time_s < fastest_s:
            best.add(id(option))
            fastest_s = time_s
    return best


def _why_not(
    option: Option, chosen: Option | None, scale: Scale, *, on_frontier: bool
) -> str | None:
    """Why an option is not the one to take, in words; None for the choice itself."""
    if not option.fits:
        return _too_big(option)
    if not option.runs:
        capability = option.step.placement.gpu.compute_capability
        return f"today's PyTorch does not run on it ({capability})"
    if not option.for_sale:
        return f"not for sale at this price: {', '.join(option.offer.not_for_sale(option.tenancy))}"
    if option.cost is None or option.run is None:
        return _unpriced(option, chosen)
    if not option.within_budget:
        over_usd = option.cost.usd.likely - (option.limits.budget_usd or 0.0)
        return f"over budget by ${over_usd:,.2f}"
    if not option.meets_deadline:
        late_s = option.run.due_s - (option.limits.deadline_s or 0.0)
        late = f"{late_s / DAY_S:,.1f} days" if late_s >= DAY_S else f"{late_s / HOUR_S:,.1f} h"
        return f"misses the deadline by {late}"
    if option.doubts:
        return f"doubtful: {', '.join(option.doubts)} (price seen {option.offer.as_of})"
    if chosen is None or chosen is option or chosen.cost is None:
        return None
    return _compared(scale(option), scale(chosen), scale, on_frontier=on_frontier)


def _too_big(option: Option) -> str:
    memory = option.step.memory
    need = memory.reserved_bytes.high / GIB
    have = max(memory.available_bytes, 0.0) / GIB
    batch = max(option.step.batch_size, 1)
    return f"does not fit: batch {batch} may need {need:,.1f} GiB, it has {have:,.1f} GiB"


def _unpriced(option: Option, chosen: Option | None) -> str:
    """No price, and the price below which it would be the choice."""
    below_usd = tie_usd_per_hour(option, chosen)
    if below_usd is None:
        return "no price known"
    return f"no price known; would be the cheapest below ${below_usd:,.2f}/h"


def tie_usd_per_hour(option: Option, chosen: Option | None) -> float | None:
    """The hourly price at which training a sample costs as much as with the choice."""
    usd = None if chosen is None else chosen.training_usd_per_million_samples
    if usd is None or option.training_s_per_sample == float("inf"):
        return None
    return usd / 1e6 / (option.training_s_per_sample / HOUR_S)


def _compared(
    own: tuple[float, float], least: tuple[float, float], scale: Scale, *, on_frontier: bool
) -> str:
    """How much more an option costs than the choice, and how fast it is."""
    unit = "" if scale is _whole else " a million samples"
    ratio = own[1] / least[1]
    pace = f"is {1 / ratio:.1f}x as fast" if ratio < 1 else f"takes {ratio:.1f}x as long"
    if 0.95 < ratio < 1.05:
        pace = "takes as long"
    more = f"costs ${own[0] - least[0]:,.2f} more{unit}"
    return f"{more}{', but' if on_frontier else ' and'} {pace}"
