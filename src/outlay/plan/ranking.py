"""Every option ranked under the limits, the choice, the frontier, and why each loser lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import nsmallest
from typing import Literal

from outlay.cost.ownership import PURCHASE_LINES, break_even_s, life_share, resale_usd_of
from outlay.offers.offer import Offer, OwnedMachine, Tenancy
from outlay.plan.option import Option
from outlay.predict.evidence import MeasuredStep
from outlay.trace.profile import Profile
from outlay.uncertainty import LIKELY
from outlay.units import DAY_S, GIB, HOUR_S
from outlay.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """When buying a machine has cost less than renting the same work."""

    buy: str
    rent: str
    use_s: float | None
    """Hours of use of the bought machine after which it is the cheaper one; None: never."""
    life_use_s: float | None
    """Hours it will be used in its life."""
    calendar_s: float | None
    """How long that takes at the use it is put to; None where its years are not given."""
    owned_usd_per_hour: float
    rented_usd_per_hour: float
    """What renting the work of one hour of the owned machine costs."""
    purchase_usd: float
    resale_usd: float
    over_budget: str | None = None
    """Why the purchase cannot be paid on the first day, where the budget is below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All options in rank order, and the one to take."""

    options: tuple[Option, ...]
    chosen: Option | None
    break_even: tuple[BreakEven, ...] = ()
    assumptions: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    """What to do before the choice is taken."""
    profile: Profile | None = None
    """The step that was planned, operation by operation."""
    workload: Workload | None = None
    """What was planned, with what measurements say of it."""
    measured: tuple[MeasuredStep, ...] = ()
    """The steps that were measured of it."""
    today: str = ""
    """The day it was made, YYYY-MM-DD; empty where nobody said."""

    @property
    def frontier(self) -> tuple[Option, ...]:
        """The options nothing beats in both time and cost, fastest first."""
        best = [option for option in self.options if option.on_frontier]
        return tuple(sorted(best, key=self._speed))

    def _speed(self, option: Option) -> tuple[float, float]:
        """By time, the cheaper of equals first."""
        usd, time_s = (_paid if self.ranked_by == "cost" else _per_sample)(option)
        return time_s, usd

    @property
    def ranked_by(self) -> Literal["cost", "training cost per million samples"]:
        """What the order follows: the whole cost, or that of training a million samples."""
        return "cost" if equal_work(self.options) else "training cost per million samples"


def equal_work(options: Sequence[Option]) -> bool:
    """Whether all options do the same work."""
    amounts = {round(option.work) for option in options if option.work}
    return len(amounts) <= 1


def rank_options(options: Sequence[Option]) -> tuple[Option, ...]:
    """The options in order: sound by cost, doubtful by cost, then what cannot be taken.

    Where they train on different amounts (iterations at each machine's own batch, or a fixed
    time), the cost of training a million samples takes the place of the cost.
    """
    scale = _whole if equal_work(options) else _per_sample
    placed = sorted((_order(option, scale), place) for place, option in enumerate(options))
    ordered = [options[place] for _, place in placed]
    sound = [options[place] for (group, *_), place in placed if group == 0]
    chosen = sound[0] if sound else None
    frontier = _frontier(sound, scale)
    return tuple(
        replace(
            option,
            rank=rank,
            on_frontier=id(option) in frontier,
            reason=partial(
                _why_not_chosen, option, chosen, scale, on_frontier=id(option) in frontier
            ),
        )
        for rank, option in enumerate(ordered, 1)
    )


@dataclass(frozen=True, slots=True)
class Total:
    """Cost and time of an offer, before it is worth an option of its own."""

    merit_usd: float
    usd: float
    time_s: float
    offer: Offer
    tenancy: Tenancy


def shortlist(totals: Iterable[Total], keep: int) -> list[Total]:
    """The cheapest, and what is faster than all that is cheaper."""
    everything = list(totals)
    best = nsmallest(keep, everything, key=lambda total: (total.merit_usd, total.time_s))
    kept = {id(total): total for total in best}
    fastest_s = float("inf")
    for total in sorted(everything, key=lambda total: (total.usd, total.time_s)):
        if total.time_s < fastest_s:
            kept[id(total)] = total
            fastest_s = total.time_s
    return list(kept.values())


def choose(options: Sequence[Option]) -> Option | None:
    """The first sound option of a ranked list; a doubtful price is never chosen."""
    return next((option for option in options if option.sound), None)


def break_evens(options: Sequence[Option]) -> tuple[BreakEven, ...]:
    """For each machine to be bought: after how much use it beats the cheapest sound rental."""
    rented = next((best for best in options if best.sound and best.tenancy != "owned"), None)
    if rented is None or rented.cost is None:
        return ()
    return tuple(
        _break_even(option, rented)
        for option in options
        if option.offer.owned is not None
        and option.offer.owned.purchase_usd is not None
        and option.cost is not None
    )


def _break_even(option: Option, rented: Option) -> BreakEven:
    owned, cost = option.offer.owned, option.cost
    assert owned is not None
    assert cost is not None
    hours = option.busy_s / HOUR_S
    running = option.usd - float(cost.breakdown.line_usd(*PURCHASE_LINES))
    work_ratio = (option.work or 1.0) / (rented.work or 1.0)
    purchase_usd = float(LIKELY.of("", owned.purchase_usd or 0.0))
    resale_usd = float(resale_usd_of(owned, purchase_usd, LIKELY))
    assert option.run is not None
    # All that buying brings, over the whole life: purchase less resale, interest, upkeep.
    share = float(life_share(owned, option.run, option.step.placement.nodes))
    spread_usd = float(cost.breakdown.line_usd(*PURCHASE_LINES)) / share
    life_use_s = option.busy_s / share
    # A set-up fee is paid once, however long one rents.
    fee_usd = float(rented.cost.breakdown.line_usd("set-up fee")) if rented.cost else 0.0
    rented_usd_per_hour = (rented.usd - fee_usd) * work_ratio / hours
    use_s = break_even_s(
        max(spread_usd - fee_usd, 0.0),
        rented_usd_per_hour=rented_usd_per_hour,
        owned_usd_per_hour=running / hours,
    )
    return BreakEven(
        buy=option.offer.instance,
        rent=_rented(rented),
        use_s=use_s,
        life_use_s=life_use_s,
        calendar_s=_calendar_s(use_s, life_use_s, owned),
        owned_usd_per_hour=running / hours,
        rented_usd_per_hour=rented_usd_per_hour,
        purchase_usd=purchase_usd,
        resale_usd=resale_usd,
        over_budget=None if option.cash_within_budget else cash_reason(option),
    )


def _rented(option: Option) -> str:
    """`aws p3.2xlarge spot`; not twice spot where the user named it so."""
    named = f"{option.offer.provider} {option.offer.instance}"
    return named if named.endswith(option.tenancy) else f"{named} {option.tenancy}"


def _calendar_s(use_s: float | None, life_use_s: float, owned: OwnedMachine) -> float | None:
    """How long it takes to use a machine so much, where its years are known."""
    return None if use_s is None or not owned.life_s else use_s * owned.life_s / life_use_s


Scale = Callable[[Option], tuple[float, float]]
"""Dollars and seconds by which options are compared; without end where unknown."""


def _whole(option: Option) -> tuple[float, float]:
    """The whole run: for options that do the same work."""
    return option.merit_usd, option.busy_s


def _paid(option: Option) -> tuple[float, float]:
    """The whole run in money alone, whatever waiting is worth."""
    return option.expected_usd, option.busy_s


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
        could = option.fits and option.runs and option.for_sale and option.blocked is None
        group = 2 if could and option.cost is not None else 3
    return (group, *scale(option), "/".join(option.offer.identity))


def _frontier(options: Sequence[Option], scale: Scale) -> set[int]:
    """The identities of the options nothing beats in both time and cost."""
    best, fastest_s = set(), float("inf")
    paid = _paid if scale is _whole else scale
    for option in sorted(options, key=paid):
        _, time_s = paid(option)
        if time_s < fastest_s:
            best.add(id(option))
            fastest_s = time_s
    return best


def _why_not_chosen(
    option: Option, chosen: Option | None, scale: Scale, *, on_frontier: bool
) -> str | None:
    """Why an option is not the one to take, in words; None for the choice itself."""
    if not option.fits:
        return _too_big(option)
    if option.blocked is not None:
        return option.blocked
    if not option.runs:
        capability = option.step.placement.gpu.compute_capability
        return f"today's PyTorch does not run on it ({capability})"
    if not option.for_sale:
        return f"not for sale at this price: {', '.join(option.offer.not_for_sale(option.tenancy))}"
    if option.cost is None or option.run is None:
        return _unpriced(option, chosen)
    if not option.cash_within_budget:
        return cash_reason(option)
    if not option.within_budget:
        over_usd = option.usd - (option.limits.budget_usd or 0.0)
        return f"over budget by ${over_usd:,.2f}"
    if not option.meets_deadline:
        late_s = float(option.run.completion_s) - (option.limits.deadline_s or 0.0)
        late = f"{late_s / DAY_S:,.1f} days" if late_s >= DAY_S else f"{late_s / HOUR_S:,.1f} h"
        return f"misses the deadline by {late}{_for_its_data(option)}"
    if option.doubts:
        seen = option.offer.seen_on(option.tenancy)
        return f"doubtful: {', '.join(option.doubts)} (price seen {seen})"
    if chosen is None or chosen is option or chosen.cost is None:
        return None
    paid = _paid if scale is _whole else scale
    reasons = _compared(paid(option), paid(chosen), scale, on_frontier=on_frontier)
    if scale is _whole and (option.cost.usual_usd or chosen.cost.usual_usd):
        reasons += ", what is not priced counted as usual"
    return reasons


def _for_its_data(option: Option) -> str:
    """Whether bringing the data is what makes it late."""
    run, deadline_s = option.run, option.limits.deadline_s
    if run is None or deadline_s is None or option.route is None or run.recurring:
        return ""
    before_s = float(run.before_s)
    if not before_s or float(run.completion_s) - before_s > deadline_s:
        return ""
    what = "upload from home" if run.upload_s else f"copying from {option.route.origin}"
    alone = " alone" if before_s > deadline_s else ""
    return f": {before_s / HOUR_S:,.1f} h of {what}{alone}, without which it would be in time"


def cash_reason(option: Option) -> str:
    """`needs $2,200 on the first day, over the budget of $100`."""
    stated, limit_usd = option.limits.cash_upfront_usd, option.cash_limit_usd or 0.0
    limit = "the budget of" if stated is None else "what may be paid then,"
    needs = f"needs {_dollars(option.cash_upfront_usd)} on the first day"
    return f"{needs}, over {limit} {_dollars(limit_usd)}"


def _dollars(amount_usd: float) -> str:
    whole = amount_usd >= 1000 or amount_usd == round(amount_usd)
    return f"${amount_usd:,.0f}" if whole else f"${amount_usd:,.2f}"


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
    if own[0] < least[0]:
        return (
            f"costs ${least[0] - own[0]:,.2f} less{unit} and {pace}: what waiting, preferences or "
            "things without a price are worth decides"
        )
    more = f"costs ${own[0] - least[0]:,.2f} more{unit}"
    if own[0] - least[0] < 0.005:
        more = "costs the same"
    return f"{more}{', but' if on_frontier else ' and'} {pace}"
