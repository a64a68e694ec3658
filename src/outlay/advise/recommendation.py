"""Advice: what to buy or rent, when the other would be better, whether rules of thumb hold here.

`recommend` puts it together:

reference_of     which GPU the hours of use are counted on                machines.py
monthly_plan     a month of its work on everything one can rent or buy    alternatives.py
alternatives_of  the best of each kind                                    alternatives.py
turning_points   how much use makes buying the cheaper one
rule_tests       "24/7: own, otherwise spot"; "cloud below a year"
upgrade_path     a small card first and a bigger one later
caveats_of       what to know before taking it                            caveats.py
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.advise.alternatives import (
    BUYING,
    DRAWS,
    TOO_SLOW,
    Alternative,
    alternative_of,
    alternatives_of,
    kind_of,
    monthly_plan,
    monthly_usd,
    objection,
    objections,
)
from outlay.advise.cards import (
    CardForSale,
    DominatedCard,
    assumption_number,
    dominated_cards,
    resale_usd,
    used_usd,
)
from outlay.advise.caveats import caveats_of
from outlay.advise.machines import Reference, cards_for_sale, reference_of
from outlay.advise.request import HOURS_IN_MONTH, AdviceRequest
from outlay.plan.option import Option, draws_of
from outlay.plan.ranking import BreakEven, Plan, break_evens
from outlay.progress import Progress, silent
from outlay.units import HOUR_S, MONTH_S, YEAR_S

_BIG_PRICE_RATIO = 4.0
"""What a big card may cost over a small one where no budget says."""
_BIG_SPEED_RATIO = 1.2
"""What makes a card bigger: that many times as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPoint:
    """How much use makes buying a machine cheaper than renting another."""

    buy: Alternative
    rent: Alternative
    even: BreakEven
    request: AdviceRequest

    @property
    def hours(self) -> float | None:
        """Of the bought machine, in all; None where buying never pays."""
        return None if self.even.use_s is None else self.even.use_s / HOUR_S

    @property
    def months(self) -> float | None:
        """At the use asked about."""
        return None if self.hours is None else self.hours / self.buy.busy_hours

    @property
    def hours_per_day(self) -> float | None:
        """Of use as asked about (on the reference), on every day of the months asked about."""
        if self.months is None:
            return None
        return self.request.use.hours_per_day * self.months / self.request.months

    @property
    def within_reach(self) -> bool:
        """Whether the bought machine has so many hours in those months."""
        return self.hours is not None and self.hours <= self.request.months * HOURS_IN_MONTH

    @property
    def buying_wins(self) -> float:
        """The chance that a month of the bought machine costs less, over the same draws."""
        sampler, months = draws_of(DRAWS), self.request.months
        bought = np.asarray(monthly_usd(self.buy.option, months, sampler))
        rented = np.asarray(monthly_usd(self.rent.option, months, sampler))
        return float(np.mean(bought < rented))

    @property
    def buying_is_cheaper(self) -> bool:
        """Whether the use asked about is beyond it."""
        return self.months is not None and self.months <= self.request.months


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTest:
    """A rule of thumb held against the figures at hand."""

    rule: str
    says: str
    """What it advises here."""
    holds: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePath:
    """A big card at once or in two steps, over the same months, in the same desktop."""

    small: CardForSale
    big: CardForSale
    after_months: float
    at_once_usd: float
    """Bought now, less what it is sold for in the end."""
    in_steps_usd: float
    first_outlay_usd: float
    """What the small one costs now."""
    speed_ratio: float
    """Of the big card over the small one, on the profile asked about."""

    @property
    def saved_usd(self) -> float:
        """What going in steps saves; below zero where it costs more."""
        return self.at_once_usd - self.in_steps_usd


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Everything there is to say."""

    request: AdviceRequest
    reference: Reference
    plan: Plan
    alternatives: tuple[Alternative, ...]
    chosen: Alternative | None
    buy: Alternative | None
    """The best machine to buy, whether chosen or not."""
    cards: tuple[Alternative, ...]
    """Every machine to buy within the purse, cheapest month first; slow ones say so."""
    turning_points: tuple[TurningPoint, ...]
    rules: tuple[RuleTest, ...]
    caveats: tuple[str, ...]
    dominated: tuple[DominatedCard, ...]
    """Cards to avoid."""
    upgrade: UpgradePath | None


def recommend(request: AdviceRequest, progress: Progress = silent) -> Recommendation:
    """What to buy or rent for a purpose, a purse and a use; `progress` hears of each stage.

    With prices of the past it is advice of their day: cards, too, at what was asked by then.
    """
    if request.prices is not None:
        request = replace(request, today=request.prices.day_of_plan(request.today))
    cards = cards_for_sale(request)
    progress("Predicting the cards one can buy ...")
    reference = reference_of(request, cards)
    progress("Pricing a month of that work everywhere ...")
    plan = monthly_plan(request, cards, reference.samples_per_month)
    alternatives = alternatives_of(plan, request, cards)
    chosen = next(
        (alternative for alternative in alternatives if alternative.why_not is None), None
    )
    buy = _best_buy(alternatives)
    points = tuple(
        point
        for machine in _purchases_compared(buy, plan, request)
        for point in turning_points(machine, alternatives, request)
    )
    progress("Comparing cards ...")
    purchases = _affordable_cards(plan, request, cards)
    return Recommendation(
        request=request,
        reference=reference,
        plan=plan,
        alternatives=alternatives,
        chosen=chosen,
        buy=buy,
        cards=tuple(purchases),
        turning_points=points,
        rules=tuple(rule_tests([point for point in points if point.buy is buy], request)),
        caveats=tuple(caveats_of(chosen, buy, request)),
        dominated=dominated_cards(request.today, request.imported) if cards else (),
        upgrade=upgrade_path(purchases, request),
    )


def _best_buy(alternatives: Sequence[Alternative]) -> Alternative | None:
    bought = [alternative for alternative in alternatives if alternative.kind in BUYING]
    return bought[0] if bought else None


def _affordable_cards(
    plan: Plan, request: AdviceRequest, cards: Sequence[CardForSale]
) -> list[Alternative]:
    """Every machine to buy within the purse, cheapest expected month first; slow ones say so."""
    by_name = {card.name: card for card in cards}
    bought = [
        option
        for option in plan.options
        if option.offer.instance in by_name and option.run is not None
    ]
    purchases = []
    for option in bought:
        against = list(objections(option, request))
        if all(reason.startswith(TOO_SLOW) for reason in against):
            card = by_name[option.offer.instance]
            purchases.append(alternative_of(option, request, card, next(iter(against), None)))
    return sorted(purchases, key=lambda alternative: alternative.expected_usd_per_month)


def _purchases_compared(
    buy: Alternative | None, plan: Plan, request: AdviceRequest
) -> Iterator[Alternative]:
    """The best machine to buy, and those of the workload file."""
    if buy is None:
        return
    yield buy
    machines = request.workload.workstations if request.workload else ()
    in_file = {machine.name for machine in machines} - {buy.option.offer.instance}
    for option in plan.options:
        if option.offer.instance in in_file and kind_of(option) in BUYING and option.cost:
            yield alternative_of(option, request, None, objection(option, request))


# --- buying against renting ---


def turning_points(
    buy: Alternative, alternatives: Sequence[Alternative], request: AdviceRequest
) -> Iterator[TurningPoint]:
    """The machine to buy against the best on demand and the best spot machine.

    (purchase - resale) / (rent of an hour's work - electricity of an hour): see `plan.BreakEven`.
    """
    for rent in alternatives:
        if rent.kind not in ("on demand", "spot") or not rent.option.sound:
            continue
        yield TurningPoint(
            buy=buy, rent=rent, even=_break_even(buy.option, rent.option), request=request
        )


def _break_even(bought: Option, rented: Option) -> BreakEven:
    [even] = break_evens([rented, bought])
    return even


# --- rules of thumb ---


def rule_tests(points: Sequence[TurningPoint], request: AdviceRequest) -> Iterator[RuleTest]:
    """Two rules people go by, and whether the figures agree."""
    by_kind = {point.rent.kind: point for point in points}
    if spot := by_kind.get("spot"):
        yield _always_rule(spot, request)
    if points:
        cheapest_rent = min(points, key=lambda point: point.rent.usd_per_month.likely)
        yield _year_rule(cheapest_rent, request)


def _always_rule(point: TurningPoint, request: AdviceRequest) -> RuleTest:
    """24/7 -> own machine; otherwise spot."""
    owns = request.use.is_always
    return RuleTest(
        rule="24/7: your own machine; otherwise spot",
        says="buy" if owns else "spot",
        holds=point.buying_is_cheaper == owns,
        because=_because(point, request),
    )


def _year_rule(point: TurningPoint, request: AdviceRequest) -> RuleTest:
    """Cloud for less than a year, own beyond."""
    owns = request.months > YEAR_S / MONTH_S - 0.2
    return RuleTest(
        rule="cloud for less than a year, your own machine beyond",
        says="buy" if owns else "rent",
        holds=point.buying_is_cheaper == owns,
        because=_because(point, request),
    )


def _because(point: TurningPoint, request: AdviceRequest) -> str:
    """Both costs of a month, and how much use would turn them."""
    buy, rent = point.buy.usd_per_month.likely, point.rent.usd_per_month.likely
    costs = f"${buy:,.2f} a month bought, ${rent:,.2f} rented ({point.rent.kind})"
    if point.hours is None or point.hours_per_day is None:
        return f"{costs}; no amount of use changes that: electricity alone costs more"
    if not point.within_reach:
        return f"{costs}; not even 24/7 for {request.months:g} months changes that"
    return f"{costs}; they meet at {point.hours_per_day:.1f} h a day"


# --- a small card first, a bigger one later ---


def upgrade_path(alternatives: Sequence[Alternative], request: AdviceRequest) -> UpgradePath | None:
    """The cheapest card that does the work, and the fastest the purse allows.

    Without a purse, the fastest at up to four times the price of the small one.
    Assumes that half-way the big card costs what a used one of it is worth by then.
    """
    purchases = [alternative for alternative in alternatives if alternative.card is not None]
    if len(purchases) < 2:
        return None
    small = min(purchases, key=lambda alternative: alternative.upfront_usd)
    most_usd = request.budget_usd or _BIG_PRICE_RATIO * small.upfront_usd
    within = [purchase for purchase in purchases if purchase.upfront_usd <= most_usd]
    big = min(within, key=lambda purchase: purchase.busy_hours)
    if small.card is None or big.card is None:
        return None
    if big.busy_hours > small.busy_hours / _BIG_SPEED_RATIO:
        return None
    half = request.years / 2
    first_usd = small.card.listed_usd * request.gpus
    later_usd = _worth_usd(big.card, half, request)
    # Sold in the end for what it is worth then, fees taken off: the same as if bought at once.
    end_usd = _resale_usd(big.card, request.years, request)
    return UpgradePath(
        small=small.card,
        big=big.card,
        after_months=request.months / 2,
        at_once_usd=big.card.listed_usd * request.gpus - end_usd,
        in_steps_usd=first_usd - _resale_usd(small.card, half, request) + later_usd - end_usd,
        first_outlay_usd=first_usd,
        speed_ratio=small.busy_hours / big.busy_hours,
    )


def _resale_usd(card: CardForSale, years: float, request: AdviceRequest) -> float:
    return resale_usd(card, years, request.today, request.imported).likely * request.gpus


def _worth_usd(card: CardForSale, years: float, request: AdviceRequest) -> float:
    """What a used one costs after some years."""
    keep_fraction = math.pow(assumption_number("used_card_keep_per_year"), years)
    return used_usd(card, request.today, request.imported).likely * keep_fraction * request.gpus
