"""Every option ranked under the limits, the choice, the frontier, and why each loser lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import nsmallest
from itertools import islice, takewhile
from typing import Literal

import numpy as np

from outlay.cost.ownership import PURCHASE_LINES, break_even_s, life_share, resale_usd_of
from outlay.facts import assumed
from outlay.offers.offer import CHEAPEST_REGION, Offer, OwnedMachine, Tenancy
from outlay.offers.price_book import PriceBook, bundled_book
from outlay.offers.terms import terms_of
from outlay.plan.option import RANKED, Option, draws_of
from outlay.predict.evidence import MeasuredStep
from outlay.trace.profile import Profile
from outlay.uncertainty import LIKELY, Number, Sampler, Uncertain
from outlay.units import DAY_S, GIB, HOUR_S, days_between
from outlay.workload.workload import Risk, Workload


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


RankedBy = Literal["cost", "training cost per million samples"]
NEAR = 1.25
"""How much dearer than the best an option may be to be as good."""
# Assumes: a quarter more is worth seeing, however little is certain.
MOST_TIED = 200
"""Options beside the best that are looked at."""


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
    prices: PriceBook = field(default_factory=bundled_book)
    """The prices it was made with."""
    _ties: list[tuple[Option, ...]] = field(
        default_factory=list, init=False, repr=False, compare=False
    )
    _ranked_by: list[RankedBy] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def frontier(self) -> tuple[Option, ...]:
        """The options nothing beats in both time and cost, fastest first."""
        best = [option for option in self.options if option.on_frontier]
        return tuple(sorted(best, key=self._speed))

    @property
    def currency(self) -> tuple[str, float]:
        """What the workload's amounts are in, and a unit of it in dollars."""
        workload = self.workload
        return ("USD", 1.0) if workload is None else (workload.currency, workload.usd_per_unit)

    def _speed(self, option: Option) -> tuple[float, float]:
        """By time, the cheaper of equals first."""
        usd, time_s = (_paid if self.ranked_by == "cost" else _per_sample)(option)
        return time_s, usd

    @property
    def ranked_by(self) -> RankedBy:
        """What the order follows: the whole cost, or that of training a million samples."""
        if not self._ranked_by:
            whole = equal_work(self.options)
            self._ranked_by.append("cost" if whole else "training cost per million samples")
        return self._ranked_by[0]

    @property
    def hours_are_equal(self) -> bool | None:
        """Of a length in hours: whether an hour counts the same on every machine, so that the
        cheapest is best, or by the work done in it; None for other lengths."""
        if self.workload is None or self.workload.length.training_s is None:
            return None
        return self.workload.length.is_equal_hours

    @property
    def best_otherwise(self) -> Option | None:
        """Of a length in hours, the sound option that is likely to be best if they counted the
        other way: by the work done in them, or as equal."""
        whole = [option for option in self.options if option.sound and option.offer.gpu_share == 1]
        if self.hours_are_equal is None:
            return None
        other = _per_sample if self.hours_are_equal else _whole
        return min(whole, key=lambda option: _likely(option, other), default=None)

    @property
    def tie(self) -> tuple[int, ...]:
        """The ranks that cannot be told apart from the choice, its own included."""
        return tuple(option.rank for option in self.tied)

    @property
    def tied(self) -> tuple[Option, ...]:
        """The options that cannot be told apart from the choice, by rank, itself included."""
        if self.chosen is None:
            return ()
        if not self._ties:
            self._ties.append(tied_with_best(self.options))
        return self._ties[0]

    def measure_usd(self, option: Option) -> float:
        """The dollars a plan is ranked by."""
        return option.merit_usd if self.ranked_by == "cost" else option.training_merit_usd

    @property
    def risk(self) -> Risk:
        """What of an uncertain cost the order follows."""
        return self.options[0].prefer.risk if self.options else "expected"

    @property
    def nearest(self) -> Option | None:
        """Where nothing satisfies the limits: the sound option that comes nearest to it."""
        return nearest_option(self.options) if self.chosen is None else None


def equal_work(options: Sequence[Option]) -> bool:
    """Whether all options do the same work."""
    amounts = {round(option.work) for option in options if option.work}
    return len(amounts) <= 1


def best_of_each_kind(options: Iterable[Option]) -> list[Option]:
    """The first option of each provider, GPU and tenancy, in their order; every quote."""
    kinds: set[tuple[str, str, str]] = set()
    best = []
    for option in options:
        kind = kind_of(option)
        if kind not in kinds or option.offer.quoted:
            kinds.add(kind)
            best.append(option)
    return best


def kind_of(option: Option) -> tuple[str, str, str]:
    """What options have in common of which the best stands for all."""
    return option.offer.provider, option.offer.gpu, option.tenancy


def rank_options(options: Sequence[Option], today: str = "") -> tuple[Option, ...]:
    """The options in order: sound by cost, doubtful by cost, then what cannot be taken.

    The cost is the mean of simulated runs, or what `prefer.risk` says. Where they train on
    different amounts (iterations at each machine's own batch, or a fixed time), the cost of
    training a million samples takes its place.
    today: YYYY-MM-DD, to say which prices are to be looked at again.
    """
    equal = equal_work(options)
    scale = _whole if equal else _per_sample
    placed = sorted((_order(options[place], scale), place) for place in _by_kind(options))
    ordered = [options[place] for _, place in placed]
    sound = [options[place] for (group, *_), place in placed if group == 0]
    tied = _tied(sound, equal=equal)
    chosen = min(tied, key=trouble_of, default=None)
    frontier = _frontier(sound, scale)
    names = {id(option) for option in tied}
    alternative = _alternative(sound, chosen, names, scale)
    return tuple(
        replace(
            option,
            rank=rank,
            on_frontier=id(option) in frontier,
            is_chosen=option is chosen,
            reason=partial(
                _why_not_chosen,
                option,
                chosen,
                scale,
                on_frontier=id(option) in frontier,
                is_tied=id(option) in names,
            ),
            proviso=partial(
                _condition,
                option,
                alternative if id(option) in names else None,
                scale,
                today,
            ),
        )
        for rank, option in enumerate(ordered, 1)
    )


def _by_kind(options: Sequence[Option]) -> list[int]:
    """The places of options, those of a kind one after another: they share simulated runs."""

    def kind(place: int) -> tuple[str, int, str, str, str]:
        option = options[place]
        offer = option.offer
        return offer.gpu, offer.gpus, option.tenancy, offer.provider, offer.instance

    return sorted(range(len(options)), key=kind)


# Ties: who cannot be told apart from the best, and who of them is the least trouble


def tied_with_best(ranked: Sequence[Option]) -> tuple[Option, ...]:
    """The sound options of a ranked list that cannot be told apart from the best, by rank."""
    best = list(islice(takewhile(lambda option: option.sound, ranked), MOST_TIED + 1))
    return tuple(_tied(best, equal=equal_work(ranked)))


def _tied(sound: Sequence[Option], *, equal: bool) -> list[Option]:
    """The best of sound options in order, and who is as good.

    Who is the cheaper one in too few of the simulated runs, which all options share, is no better;
    nor is who saves too little (`prefer.worth_switching`).
    """
    if not sound:
        return []
    best, worth = sound[0], sound[0].prefer.worth_switching
    scale = _whole if equal else _per_sample
    least_usd, _ = scale(best)
    to_run = 1.0 if equal else (best.samples or 0.0) / 1e6
    rivals = []
    for option in sound[1 : MOST_TIED + 1]:
        usd, _ = scale(option)
        if usd > NEAR * least_usd:
            break
        saved_usd = usd - least_usd
        too_little = saved_usd * to_run < worth.usd and saved_usd < worth.fraction * usd
        if too_little or _wins(best, option, equal=equal) < worth.wins:
            rivals.append(option)
    return [best, *rivals]


def _wins(best: Option, other: Option, *, equal: bool) -> float:
    """In what share of simulated runs the best is the cheaper one; half of those that are equal.

    All of them where it is not the mean of simulated runs that options are ranked by.
    """
    if best.prefer.risk != "expected":
        return 1.0
    own, rival = (
        option.merit_of(option.simulated()) if equal else option.training_of(option.simulated())
        for option in (best, other)
    )
    return float(np.mean(np.less(own, rival)) + np.mean(np.equal(own, rival)) / 2)


_MAYBE = frozenset({"region not verified", "no stock seen", "marketplace", "single host"})
"""Doubts that say that it may not be there."""


def trouble_of(option: Option) -> tuple[int, ...]:
    """How much trouble an option is, the gravest first: less is better.

    On demand or one's own before spot, and that before what binds for long; without quota; near to
    its data; on a GPU that predictions were checked on; in stock.
    """
    owned = option.offer.owned
    bound = option.tenancy == "reserved" or (owned is not None and owned.purchase_usd is not None)
    return (
        2 if bound else int(option.tenancy == "spot"),
        int(option.needs_quota),
        option.data_distance,
        int(not option.step.is_checked),
        int(any(doubt.word in _MAYBE for doubt in option.offer.doubts)),
    )


def advantage_of(option: Option, other: Option) -> str | None:
    """Why an option is less trouble than another, in words; None where it is not."""
    own, others = trouble_of(option), trouble_of(other)
    differ = [
        place for place, (mine, its) in enumerate(zip(own, others, strict=True)) if mine != its
    ]
    if not differ or own[differ[0]] > others[differ[0]]:
        return None
    held = "it binds you to nothing" if own[0] else "it is on demand"
    return (
        "it is yours" if option.tenancy == "owned" else held,
        "it needs no quota",
        "its data is nearer",
        "its GPU was checked against measurements",
        "it is known to be there",
    )[differ[0]]


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


def choose(ranked: Sequence[Option]) -> Option | None:
    """The one to take of a ranked list: of the best and who is as good, the least trouble.

    A doubtful price is never chosen.
    """
    return min(tied_with_best(ranked), key=trouble_of, default=None)


def nearest_option(ranked: Sequence[Option]) -> Option | None:
    """The option that comes nearest to the limits: one with nothing to doubt, where there is one.

    How far it is from them is how much more it takes than the limit, of the budget or of the
    deadline whichever is more, in the share of simulated runs that must keep it.
    """
    priced = [option for option in ranked if option.cost is not None and option.run is not None]
    could = [option for option in priced if _could_run(option)]
    sound = [option for option in could if not option.doubts]
    near = nsmallest(MOST_TIED, sound or could or priced, key=lambda o: _excess(o, drawn=False))
    return min(near, key=lambda option: (_excess(option, drawn=True), option.rank), default=None)


def _could_run(option: Option) -> bool:
    """Whether nothing but its limits keeps an option from being taken."""
    return option.fits and option.runs and option.for_sale and option.blocked is None


def _excess(option: Option, *, drawn: bool) -> float:
    """What an option takes of its limits, as a multiple: above 1 it does not keep them."""
    limits, runs = option.limits, option.simulated() if drawn else option.likely_simulation
    needed = ((runs.usd, limits.budget_usd), (runs.completion_s, limits.deadline_s))
    shares = [
        float(np.quantile(amount, limits.confidence)) / limit for amount, limit in needed if limit
    ]
    return max(shares, default=0.0)


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
    return option.paid_usd, option.busy_s


def _per_sample(option: Option) -> tuple[float, float]:
    """Training a million samples: for options that do different amounts of work."""
    return option.training_merit_usd, option.training_s_per_sample * 1e6


def _likely(option: Option, scale: Scale) -> tuple[float, float]:
    """The same if everything is likely: for what cannot be taken, and needs no simulation."""
    if scale is _whole:
        return option.likely_merit_usd, option.busy_s
    usd = option.training_usd_per_million_samples
    return float("inf") if usd is None else usd, option.training_s_per_sample * 1e6


def _order(option: Option, scale: Scale) -> tuple[int, float, float, str]:
    name = "/".join(option.offer.identity)
    if option.feasible:
        return (int(bool(option.doubts)), *scale(option), name)
    group = 2 if _could_run(option) and option.cost is not None else 3
    return (group, *_likely(option, scale), name)


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
    option: Option, chosen: Option | None, scale: Scale, *, on_frontier: bool, is_tied: bool
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
        late = "" if option.meets_deadline else f", and {_too_late(option)}"
        return f"{_over_budget(option)}{late}"
    if not option.meets_deadline:
        return _too_late(option)
    if option.doubts:
        seen = option.offer.seen_on(option.tenancy)
        return f"doubtful: {', '.join(option.doubts)} (price seen {seen})"
    if chosen is None or chosen is option or chosen.cost is None:
        return None
    paid = _paid if scale is _whole else scale
    reasons = _compared(paid(option), paid(chosen), scale, on_frontier=on_frontier, is_tied=is_tied)
    if scale is _whole and (option.cost.usual_usd or chosen.cost.usual_usd):
        reasons += ", what is not priced counted as usual"
    if not is_tied:
        return reasons
    advantage = advantage_of(chosen, option)
    taken = f"; the choice was taken because {advantage}" if advantage else ""
    return f"a tie, as good as the choice within the error: {reasons}{taken}"


def _over_budget(option: Option) -> str:
    over_usd = option.usd - (option.limits.budget_usd or 0.0)
    if over_usd > 0:
        return f"over budget by ${over_usd:,.2f}"
    chance = option.prospects.within_budget or 0.0
    return f"{_percent(1 - chance)} likely to go over budget{_allowed(option)}"


def _too_late(option: Option) -> str:
    assert option.run is not None
    late_s = float(option.run.completion_s) - (option.limits.deadline_s or 0.0)
    if late_s > 0:
        late = f"{late_s / DAY_S:,.1f} days" if late_s >= DAY_S else f"{late_s / HOUR_S:,.1f} h"
        return f"misses the deadline by {late}{_for_its_data(option)}"
    chance = option.prospects.meets_deadline or 0.0
    return f"{_percent(1 - chance)} likely to miss the deadline{_allowed(option)}"


def _allowed(option: Option) -> str:
    return f", where {_percent(1 - option.limits.confidence)} is allowed"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


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
    """The hourly price at which the work (a sample, or an hour where hours are equal) costs as
    much as with the choice."""
    if chosen is None or chosen.run is None or chosen.cost is None or option.run is None:
        return None
    training_usd = float(chosen.likely_simulation.training_usd)
    own_work, work = option.work or option.samples, chosen.work or chosen.samples
    if not own_work or not work:
        return None
    return training_usd / work * own_work / (float(option.run.training_s) / HOUR_S)


def _compared(
    own: tuple[float, float],
    least: tuple[float, float],
    scale: Scale,
    *,
    on_frontier: bool,
    is_tied: bool,
) -> str:
    """How much more an option costs than the choice, and how fast it is."""
    unit = "" if scale is _whole else " a million samples"
    ratio = own[1] / least[1]
    pace = f"is {1 / ratio:.1f}x as fast" if ratio < 1 else f"takes {ratio:.1f}x as long"
    if 0.95 < ratio < 1.05:
        pace = "takes as long"
    if own[0] < least[0]:
        why = ", but waiting, preferences, interruptions and what has no price count as well"
        return f"costs ${least[0] - own[0]:,.2f} less{unit} and {pace}{'' if is_tied else why}"
    more = f"costs ${own[0] - least[0]:,.2f} more{unit}"
    if own[0] - least[0] < 0.005:
        more = "costs the same"
    return f"{more}{', but' if on_frontier else ' and'} {pace}"


# The condition of taking an option: what must still be true when one acts


def _alternative(
    sound: Sequence[Option], chosen: Option | None, tied: Collection[int], scale: Scale
) -> Option | None:
    """The best sound option that is not as good as the choice: what it is held against."""
    if chosen is None:
        return None
    least_usd, _ = scale(chosen)
    others = (option for option in sound if id(option) not in tied)
    return next((option for option in others if scale(option)[0] > least_usd), None)


def _condition(option: Option, alternative: Option | None, scale: Scale, today: str) -> str | None:
    """What must still be true of the price of an option when one takes it, in words."""
    if option.cost is None or option.offer.owned is not None or option.offer.quoted:
        return None
    if option.tenancy == "spot":
        then = _spot_condition(option, alternative, scale)
        host = _host_condition(option)
        return f"{host}, and {then}" if host else f"{then}{_checked_with(option)}"
    if option.offer.host is not None:
        return _host_condition(option)
    seen = option.offer.seen_on(option.tenancy)
    if not today or not seen or option.tenancy == "reserved":
        return None
    age = days_between(seen, today)
    price = option.offer.hourly_usd(option.tenancy)
    if age <= assumed("price_age_to_check_days") or not price:
        return None
    return f"if it is still {_hourly(price)} an hour, as on {seen}"


def _host_condition(option: Option) -> str:
    """That a single host must still be free, and how it is rented; empty for other offers."""
    offer = option.offer
    if offer.host is None:
        return ""
    how = terms_of(offer.provider).quality("host_rent")
    rent = "" if how is None else f" (`{how.replace('{instance}', offer.instance)}`)"
    return f"if host {offer.instance} is still free{rent}"


def _spot_condition(option: Option, alternative: Option | None, scale: Scale) -> str:
    below = None
    if alternative is not None:
        below = tie_spot_usd_per_hour(option, scale(alternative)[0], scale)
    if below is not None:
        quote = option.offer.hourly_usd("spot")
        still = "still " if quote is not None and quote < below else ""
        return f"if the spot price is {still}below {_hourly(below)} an hour"
    price = option.offer.hourly_usd(option.tenancy) or 0.0
    return f"if the spot price is still {_hourly(price)} an hour or less"


def _hourly(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 0.1 else f"${usd:,.3f}"


def _checked_with(option: Option) -> str:
    """Where the provider says what its spot machines cost now."""
    offer, terms = option.offer, terms_of(option.offer.provider)
    if offer.region == CHEAPEST_REGION:  # a price of the past
        return ""
    how = terms.quality("spot_check") or terms.quality("homepage")
    if how is None:
        return ""
    how = how.replace("{instance}", offer.instance).replace("{region}", offer.region)
    return f"; check it {'at' if how.startswith('https://') else 'with'} {how}"


def tie_spot_usd_per_hour(option: Option, other_usd: float, scale: Scale = _whole) -> float | None:
    """The spot price at which an option costs as much as another one, as it is ranked.

    On the line through two prices below its own, where no draw meets the on-demand price. None
    where it would have to be below zero.
    """
    draws: Sampler = LIKELY if option.prefer.risk == "likely" else draws_of(RANKED)
    low, high = _SpotPrice(draws=draws, factor=0.25), _SpotPrice(draws=draws, factor=0.5)
    low_usd, high_usd = (_ranked_usd(option, price, scale) for price in (low, high))
    if not low.seen or high_usd <= low_usd:
        return None
    slope = (high_usd - low_usd) / (high.seen[0] - low.seen[0])
    tie_usd = low.seen[0] + (other_usd - low_usd) / slope
    return tie_usd if tie_usd > 0 else None


def _ranked_usd(option: Option, sampler: Sampler, scale: Scale) -> float:
    """What an option would be ranked by under other luck."""
    runs = option.simulation_of(*option.drawn(sampler))
    return option.measured(option.merit_of(runs) if scale is _whole else option.training_of(runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SpotPrice:
    """Draws at one spot price: a multiple of the likely one."""

    draws: Sampler
    factor: float
    seen: list[float] = field(default_factory=list)

    def of(self, name: str, value: Uncertain) -> Number:
        """What is drawn, or the price."""
        if not name.startswith("spot price"):
            return self.draws.of(name, value)
        self.seen.append(self.factor * float(LIKELY.of(name, value)))
        return self.seen[0]

    def times(self, name: str, mean: Number, spread: Number = 0.0) -> Number:
        """As it is drawn."""
        return self.draws.times(name, mean, spread)

    def around(self, name: str, mean: Number, deviation: Number) -> Number:
        """As it is drawn."""
        return self.draws.around(name, mean, deviation)
