"""Alternatives: what gets the work of a month done, the best of each kind, within the purse or not.

keep        the machine one has, for its electricity
buy used    a second-hand card in a desktop; purchase less resale over the months
buy new     the same with a new one
on demand   rented by the hour; `reserved` for a term; `spot` may be taken away
notebook    in the browser, units bought beforehand; `free notebook` some hours a week
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import numpy as np

from outlay.advise.cards import CardForSale, assumption_number
from outlay.advise.machines import bought_machines, gpus_worth_renting, owned_machines
from outlay.advise.request import AdviceRequest, workload_for
from outlay.cost.ownership import PURCHASE_LINES
from outlay.offers.candidates import free_offers
from outlay.offers.terms import terms_of
from outlay.plan.option import Option, draws_of
from outlay.plan.pipeline import plan_workload
from outlay.plan.ranking import Plan, rank_options
from outlay.uncertainty import LIKELY, Estimate, Number, Sampler, range_of
from outlay.units import HOUR_S, MONTH_S, WEEK_S
from outlay.workload.workload import Selection

Kind = Literal[
    "keep", "buy used", "buy new", "on demand", "reserved", "spot", "free notebook", "notebook"
]
RENTED: tuple[Kind, ...] = ("on demand", "reserved", "spot")
BUYING: tuple[Kind, ...] = ("buy used", "buy new")
_OF_TENANCY: dict[str, Kind] = {"on-demand": "on demand", "reserved": "reserved", "spot": "spot"}
TOO_SLOW = "too slow"
DRAWS = 2000
"""Simulated months behind a range here: fewer than a plan draws, as there are many machines."""
LEAST_MEAN = 0.8
# Assumes: no mean over simulated months is less than this share of the likely month.


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A machine bought, kept or rented that does the work of a month."""

    kind: Kind
    option: Option
    usd_per_month: Estimate
    expected_usd_per_month: float
    """The mean over simulated months, by which alternatives are compared: what is little known
    pays for that."""
    upfront_usd: float
    """Paid at once."""
    card: CardForSale | None = None
    why_not: str | None = None
    """Why it is not to be taken; None where nothing speaks against it."""
    drawn_usd_per_month: Number = field(default=0.0, repr=False, compare=False)
    """Simulated months."""

    @property
    def is_checked(self) -> bool:
        """Whether predictions for its GPU were ever held against a measurement."""
        return self.option.step.is_checked

    @property
    def busy_hours(self) -> float:
        """Hours a month its machine works."""
        return self.option.busy_s / HOUR_S

    @property
    def is_bought(self) -> bool:
        """Whether it is paid at once."""
        return self.kind in BUYING


def monthly_plan(
    request: AdviceRequest, cards: Sequence[CardForSale], samples_per_month: float
) -> Plan:
    """The plan of a month of work: everything rented, machines to buy, and the one there is."""
    workload = workload_for(request, samples_per_month)
    machines = bought_machines(request, cards, samples_per_month)
    if not workload.consider.gpus:
        looked_at = replace(workload.consider, gpus=gpus_worth_renting(request))
        workload = replace(workload, consider=looked_at)
    workload = replace(
        workload,
        workstations=(*machines, *owned_machines(request)),
    )
    today, prices = request.today, request.prices
    plan = plan_workload(workload, request.profile, today=today, prices=prices)
    if not free_offers("" if prices is None else prices.day):
        return plan
    free = replace(
        workload,
        consider=Selection(providers=("kaggle",)),
        workstations=(),
        quotes=(),
    )
    free_options = plan_workload(free, request.profile, today=today, prices=prices).options
    identities = {option.offer.identity for option in plan.options}
    added = [option for option in free_options if option.offer.identity not in identities]
    return replace(plan, options=rank_options([*plan.options, *added]))


def alternatives_of(
    plan: Plan, request: AdviceRequest, cards: Sequence[CardForSale]
) -> tuple[Alternative, ...]:
    """The best of each kind, and why it is not taken; cheapest first, what cannot be last.

    Cheapest by what is to be expected: the mean of the draws.
    """
    by_name = {card.name: card for card in cards}
    best: dict[Kind, Alternative] = {}
    for option in sorted(plan.options, key=lambda option: option.usd):
        kind = kind_of(option)
        if option.run is None or option.cost is None or (kind in RENTED and not option.sound):
            continue
        why_not = objection(option, request)
        found = best.get(kind)
        if found is not None and not _may_be_cheaper(option, why_not, found):
            continue
        card = by_name.get(option.offer.instance)
        alternative = alternative_of(option, request, card, why_not)
        if found is None or _goes_before(alternative, found):
            best[kind] = alternative
    return _measured_first(
        sorted((best[kind] for kind in get_args(Kind) if kind in best), key=_order)
    )


def _goes_before(alternative: Alternative, found: Alternative) -> bool:
    """Whether one is to be taken rather than another of its kind."""
    is_against = alternative.why_not is not None
    if is_against != (found.why_not is not None) or alternative.is_checked == found.is_checked:
        return _order(alternative) < _order(found)
    if alternative.is_checked:
        return not _is_clearly_cheaper(found, alternative)
    return _is_clearly_cheaper(alternative, found)


def _is_clearly_cheaper(alternative: Alternative, other: Alternative) -> bool:
    """Whether it can be told apart from another as plans tell options apart."""
    worth = alternative.option.prefer.worth_switching
    wins = np.mean(alternative.drawn_usd_per_month < other.drawn_usd_per_month)
    saved_usd = other.expected_usd_per_month - alternative.expected_usd_per_month
    is_much = saved_usd >= min(worth.usd, worth.fraction * other.expected_usd_per_month)
    return bool(wins >= worth.wins) and is_much


def _measured_first(alternatives: Sequence[Alternative]) -> tuple[Alternative, ...]:
    """In their order, but what was never measured leads only where it is clearly cheaper."""
    first = next(iter(alternatives), None)
    if first is None or first.is_checked or first.why_not is not None:
        return tuple(alternatives)
    checked = [other for other in alternatives if other.is_checked and other.why_not is None]
    if not checked or _is_clearly_cheaper(first, checked[0]):
        return tuple(alternatives)
    rest = [other for other in alternatives if other is not checked[0]]
    return (checked[0], *rest)


def _order(alternative: Alternative) -> tuple[bool, float]:
    """What nothing speaks against goes first, then what is expected to cost least."""
    return alternative.why_not is not None, alternative.expected_usd_per_month


def _may_be_cheaper(option: Option, why_not: str | None, found: Alternative) -> bool:
    """Whether an option is worth drawing: by its likely cost, which its mean is hardly below."""
    if (why_not is None) != (found.why_not is None):
        return why_not is None
    return option.usd * LEAST_MEAN <= found.expected_usd_per_month


def kind_of(option: Option) -> Kind:
    """How one would get it."""
    offer = option.offer
    if offer.owned is not None:
        if offer.owned.purchase_usd is None:
            return "keep"
        return "buy used" if offer.instance.startswith("used ") else "buy new"
    if terms_of(offer.provider).quality("access") == "notebook":
        return "notebook" if offer.price_usd_per_hour else "free notebook"
    return _OF_TENANCY[option.tenancy]


def alternative_of(
    option: Option, request: AdviceRequest, card: CardForSale | None, why_not: str | None
) -> Alternative:
    """An option with its cost of a month and what it asks for at once."""
    drawn = monthly_usd(option, request.months, draws_of(DRAWS))
    return Alternative(
        kind=kind_of(option),
        option=option,
        usd_per_month=range_of(float(monthly_usd(option, request.months, LIKELY)), drawn),
        expected_usd_per_month=float(np.mean(drawn)),
        upfront_usd=upfront_usd(option),
        card=card,
        why_not=why_not,
        drawn_usd_per_month=drawn,
    )


def monthly_usd(option: Option, months: float, sampler: Sampler) -> Number:
    """What a month costs: of a purchase just its share of the months.

    A slow machine works longer for the same samples, but it is bought once all the same.
    """
    run, cost = option.drawn(sampler)
    assert cost is not None
    owned = option.offer.owned
    if owned is None or owned.purchase_usd is None or not owned.lifetime_use_s:
        return cost.usd
    bought = cost.breakdown.line_usd(*PURCHASE_LINES)
    share = run.busy_s / owned.lifetime_use_s
    return cost.usd - bought + bought / (share * months)


def upfront_usd(option: Option) -> float:
    """What is paid before the first step: a purchase, or a term upfront.

    What is put on an account is used up by the rent, and fees are small beside them.
    """
    offer = option.offer
    return 0.0 if offer.owned is None and offer.commitment is None else option.cash_upfront_usd


def objection(option: Option, request: AdviceRequest) -> str | None:
    """The first thing that speaks against an option."""
    return next(objections(option, request), None)


def objections(option: Option, request: AdviceRequest) -> Iterator[str]:
    """Why not to take an option: its speed, what the plan says, the purse, notebooks' limits."""
    if option.run is not None and option.fits and not option.meets_deadline:
        hours = option.busy_s / HOUR_S / float(option.run.sessions)
        hours_asked = request.use.hours_per_month / request.use.sessions_per_month
        yield f"{TOO_SLOW}: a session takes {hours:,.1f} h instead of {hours_asked:,.1f}"
    elif not option.sound and option.why_not is not None:
        yield option.why_not
    budget_usd, monthly = request.budget_usd, request.monthly_usd
    paid = upfront_usd(option)
    if budget_usd is not None and paid > budget_usd:
        yield f"${paid:,.0f} at once is over the budget of ${budget_usd:,.0f}"
    is_bought = paid and option.offer.owned is not None
    if monthly is not None and not is_bought and option.usd > monthly:
        yield f"${option.usd:,.2f} is over the ${monthly:,.2f} a month of the budget"
    yield from _limits_of_notebooks(option, request)


def _limits_of_notebooks(option: Option, request: AdviceRequest) -> Iterator[str]:
    """What a notebook does not allow: hours a week, the length of a session, the purpose."""
    terms, run = terms_of(option.offer.provider), option.run
    assert run is not None
    if terms.weekly_s is not None and option.busy_s > terms.weekly_s * MONTH_S / WEEK_S:
        yield (
            f"gives {terms.weekly_s / HOUR_S:.0f} h a week; the work takes it "
            f"{option.busy_s / HOUR_S * WEEK_S / MONTH_S:,.0f}"
        )
    session_s = option.busy_s / float(run.sessions)
    if terms.longest_session_s is not None and session_s > terms.longest_session_s:
        yield (
            f"ends sessions after {terms.longest_session_s / HOUR_S:.0f} h; one takes "
            f"{session_s / HOUR_S:,.1f}"
        )
    if "notebook" in kind_of(option) and not request.notebook_will_do:
        yield "a notebook in the browser only"


def many_gpus(request: AdviceRequest) -> bool:
    """Whether more GPUs are asked for than an office machine takes."""
    return request.gpus > assumption_number("workstation_gpus_most")
