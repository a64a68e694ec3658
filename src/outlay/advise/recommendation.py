"""Advice: the way to take, when another would be better, and whether rules of thumb hold here.

reference_of    which GPU the hours of use are counted on              machines.py
planned         a month of its work on everything one can rent or buy  ways.py -> pipeline.py
ways_of         the best of each kind                                  ways.py
turning_points  how much use makes buying the cheaper way
rule_tests      "24/7: own, otherwise spot"; "cloud below a year"
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
from outlay.units import HOUR_S, MONTH_S, YEAR_S

# Buy a small card, sell it half-way, buy a bigger one: against the big one at once.


_MOST = 4.0
_FASTER = 1.2
"""What makes a card bigger: that many times as fast."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradePath:
    """Two ways to a big card over the same months; the desktop around it is the same."""

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


def upgrade_path(ways: Sequence[Alternative], asked: AdviceRequest) -> UpgradePath | None:
    """The cheapest card that does the work, and the fastest the purse allows.

    Without a purse, the fastest at up to four times the price of the small one.
    Assumes that half-way the big card costs what a used one of it is worth by then.
    """
    able = [way for way in ways if way.card is not None]
    if len(able) < 2:
        return None
    small = min(able, key=lambda way: way.upfront_usd)
    most_usd = asked.budget_usd or _MOST * small.upfront_usd
    big = min((one for one in able if one.upfront_usd <= most_usd), key=_hours)
    if small.card is None or big.card is None or _hours(big) > _hours(small) / _FASTER:
        return None
    half = asked.years / 2
    first_usd = small.card.seen_usd * asked.gpus
    later_usd = _worth_usd(big.card, half, asked)
    # Sold in the end for what it is worth then, fees taken off: the same as if bought at once.
    end_usd = _resale_usd(big.card, asked.years, asked)
    return UpgradePath(
        small=small.card,
        big=big.card,
        after_months=asked.months / 2,
        at_once_usd=big.card.seen_usd * asked.gpus - end_usd,
        in_steps_usd=first_usd - _resale_usd(small.card, half, asked) + later_usd - end_usd,
        first_outlay_usd=first_usd,
        speed_ratio=small.busy_hours / big.busy_hours,
    )


def _hours(way: Alternative) -> float:
    return way.busy_hours


def _resale_usd(card: CardForSale, years: float, asked: AdviceRequest) -> float:
    return resale_usd(card, years, asked.today).likely * asked.gpus


def _worth_usd(card: CardForSale, years: float, asked: AdviceRequest) -> float:
    """What a used one costs after some years."""
    kept = math.pow(assumption_number("used_card_keep_per_year"), years)
    return used_usd(card, asked.today).likely * kept * asked.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class TurningPoint:
    """How much use makes buying a machine cheaper than one way of renting."""

    buy: Alternative
    rent: Alternative
    even: BreakEven
    asked: AdviceRequest

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
        return self.asked.use.hours_per_day * self.months / self.asked.months

    @property
    def within_reach(self) -> bool:
        """Whether the bought machine has so many hours in those months."""
        return self.hours is not None and self.hours <= self.asked.months * HOURS_IN_MONTH

    @property
    def buying_wins(self) -> float:
        """The chance that a month of the bought machine costs less, both as luck has it."""
        luck, months = draws_of(DRAWS), self.asked.months
        bought = np.asarray(monthly_usd(self.buy.option, months, luck))
        rented = np.asarray(monthly_usd(self.rent.option, months, luck))
        return float(np.mean(bought < rented))

    @property
    def buying_is_cheaper(self) -> bool:
        """Whether the use asked about is beyond it."""
        return self.months is not None and self.months <= self.asked.months


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleTest:
    """A rule of thumb held against the figures at hand."""

    rule: str
    says: str
    """What it advises here."""
    holds: bool
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """Everything there is to say."""

    asked: AdviceRequest
    reference: Reference
    plan: Plan
    ways: tuple[Alternative, ...]
    chosen: Alternative | None
    buy: Alternative | None
    """The best machine to buy, whether chosen or not."""
    cards: tuple[Alternative, ...]
    """Every machine to buy within the purse, cheapest month first; slow ones say so."""
    turning_points: tuple[TurningPoint, ...]
    rules: tuple[RuleTest, ...]
    caveats: tuple[str, ...]
    beaten: tuple[DominatedCard, ...]
    upgrade: UpgradePath | None


def recommend(asked: AdviceRequest, tell: Callable[[str], None] = lambda _: None) -> Recommendation:
    """What to buy or rent for a purpose, a purse and a use."""
    cards = cards_for_sale(asked)
    tell("Predicting the cards one can buy ...")
    reference = reference_of(asked, cards)
    tell("Pricing a month of that work everywhere ...")
    plan = monthly_plan(asked, cards, reference.samples_per_month)
    ways = alternatives_of(plan, asked, cards)
    chosen = next((way for way in ways if way.why_not is None), None)
    buy = _best_buy(ways)
    points = tuple(
        point
        for machine in _looked_at(buy, plan, asked)
        for point in turning_points(machine, ways, asked)
    )
    tell("Comparing cards ...")
    bought = _buyable(plan, asked, cards)
    return Recommendation(
        asked=asked,
        reference=reference,
        plan=plan,
        ways=ways,
        chosen=chosen,
        buy=buy,
        cards=tuple(bought),
        turning_points=points,
        rules=tuple(rule_tests([one for one in points if one.buy is buy], asked)),
        caveats=tuple(caveats_of(chosen, buy, asked)),
        beaten=dominated_cards(asked.today) if cards else (),
        upgrade=upgrade_path(bought, asked),
    )


def _best_buy(ways: Sequence[Alternative]) -> Alternative | None:
    bought = [way for way in ways if way.kind in BUYING]
    return bought[0] if bought else None


def _buyable(plan: Plan, asked: AdviceRequest, cards: Sequence[CardForSale]) -> list[Alternative]:
    """Every machine to buy within the purse, cheapest month first; slow ones say so."""
    by_name = {card.name: card for card in cards}
    bought = [one for one in plan.options if one.offer.instance in by_name and one.run is not None]
    found = []
    for option in bought:
        against = list(objections(option, asked))
        if all(said.startswith(TOO_SLOW) for said in against):
            card = by_name[option.offer.instance]
            found.append(alternative_of(option, asked, card, next(iter(against), None)))
    return sorted(found, key=lambda way: way.usd_per_month.likely)


def _looked_at(buy: Alternative | None, plan: Plan, asked: AdviceRequest) -> Iterator[Alternative]:
    """The best machine to buy, and those of the workload file."""
    if buy is None:
        return
    yield buy
    machines = asked.workload.workstations if asked.workload else ()
    written = {one.name for one in machines} - {buy.option.offer.instance}
    for option in plan.options:
        if option.offer.instance in written and kind_of(option) in BUYING and option.cost:
            yield alternative_of(option, asked, None, objection(option, asked))


def turning_points(
    buy: Alternative, ways: Sequence[Alternative], asked: AdviceRequest
) -> Iterator[TurningPoint]:
    """The machine to buy against the best on demand and the best spot machine.

    (purchase - resale) / (rent of an hour's work - electricity of an hour): see `plan.BreakEven`.
    """
    for way in ways:
        if way.kind not in ("on demand", "spot") or not way.option.sound:
            continue
        yield TurningPoint(buy=buy, rent=way, even=_even(buy.option, way.option), asked=asked)


def _even(bought: Option, rented: Option) -> BreakEven:
    [even] = break_evens([rented, bought])
    return even


def rule_tests(points: Sequence[TurningPoint], asked: AdviceRequest) -> Iterator[RuleTest]:
    """Two rules people go by, and whether the figures agree."""
    by_kind = {point.rent.kind: point for point in points}
    if spot := by_kind.get("spot"):
        yield _always_rule(spot, asked)
    if points:
        yield _year_rule(min(points, key=lambda one: one.rent.usd_per_month.likely), asked)


def _always_rule(point: TurningPoint, asked: AdviceRequest) -> RuleTest:
    """24/7 -> own machine; otherwise spot."""
    owns = asked.use.is_always
    return RuleTest(
        rule="24/7: your own machine; otherwise spot",
        says="buy" if owns else "spot",
        holds=point.buying_is_cheaper == owns,
        because=_because(point, asked),
    )


def _year_rule(point: TurningPoint, asked: AdviceRequest) -> RuleTest:
    """Cloud for less than a year, own beyond."""
    owns = asked.months > YEAR_S / MONTH_S - 0.2
    return RuleTest(
        rule="cloud for less than a year, your own machine beyond",
        says="buy" if owns else "rent",
        holds=point.buying_is_cheaper == owns,
        because=_because(point, asked),
    )


def _because(point: TurningPoint, asked: AdviceRequest) -> str:
    """Both costs of a month, and how much use would turn them."""
    buy, rent = point.buy.usd_per_month.likely, point.rent.usd_per_month.likely
    costs = f"${buy:,.2f} a month bought, ${rent:,.2f} rented ({point.rent.kind})"
    if point.hours is None or point.hours_per_day is None:
        return f"{costs}; no amount of use turns that, electricity alone costs more"
    if not point.within_reach:
        return f"{costs}; not even 24/7 for {asked.months:g} months turns that"
    return f"{costs}; they meet at {point.hours_per_day:.1f} h a day"
