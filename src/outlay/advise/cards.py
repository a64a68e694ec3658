"""Cards one can buy: the newest dated price of each, new and used, and what it sells for later.

    purchase    the price, with a range that widens with its age
    resale      a used card keeps a share of its price each year; a new one is used at once

`data/card_prices.csv` has one price per row with its source and day, and so have lists that the
user has imported: the newest price counts, whoever says it. Besides: what advice assumes
(`data/advise_assumptions.csv`), how fast cards are on bundled profiles, and cards to avoid, which
another one beats in everything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Literal

from outlay.currency import in_usd, usd_per_unit
from outlay.errors import NotKnown
from outlay.facts import (
    NOTHING_IMPORTED,
    Fact,
    ImportedPrices,
    assumptions,
    card_prices,
    fact_of,
    rows_of,
)
from outlay.hardware.gpus import Gpu, gpus
from outlay.plan.placement import calibration
from outlay.predict.kernel_time import device_time
from outlay.predict.memory import fits_budget
from outlay.predict.network import GpuLink, Wiring
from outlay.predict.parallel import StepRequest, best_step
from outlay.predict.roofline import roofline_of, trace_at
from outlay.predict.step import Placement, StepPrediction
from outlay.trace.profile import Profile
from outlay.trace.store import bundled_profiles, find_profile
from outlay.uncertainty import Estimate, Uncertain

# --- what advice assumes ---

_ELECTRICITY = {
    "us": "electricity_usd_per_kwh",
    "us commercial": "electricity_usd_per_kwh_us_commercial",
    "eu": "electricity_eur_per_kwh_eu_household",
    "eu commercial": "electricity_eur_per_kwh_eu_non_household",
    "kr": "electricity_krw_per_kwh_kr_household",
}
"""Places whose price of electricity is in the assumptions table."""


@cache
def advise_assumptions() -> dict[str, dict[str, str]]:
    """The rows of `data/advise_assumptions.csv` by name."""
    return {row["name"]: row for row in rows_of("advise_assumptions.csv")}


def assumption_fact(name: str) -> Fact:
    """One row as a fact, with its source."""
    return fact_of(advise_assumptions()[name])


def assumption_number(name: str) -> float:
    """The number of a row."""
    return float(advise_assumptions()[name]["value"])


def assumption_range(name: str) -> Estimate:
    """The number of a row with its range; without one, exactly."""
    row = advise_assumptions()[name]
    if not row["low"]:
        return Estimate.exactly(float(row["value"]))
    return Estimate(low=float(row["low"]), likely=float(row["value"]), high=float(row["high"]))


def electricity_usd_per_kwh(country: str) -> tuple[Uncertain, Fact]:
    """What a kilowatt-hour costs in a country, and the row behind it."""
    name = _ELECTRICITY.get(country.lower())
    if name is None:
        raise NotKnown(
            "country's electricity price",
            country,
            _ELECTRICITY,
            fix=f"Known: {', '.join(_ELECTRICITY)}; a workload file takes your own price.",
        )
    fact = assumptions()[name]
    rate, _ = usd_per_unit(fact.unit.partition("/")[0])
    return (fact.number or 0.0) * rate, fact


# --- cards and their prices ---

Condition = Literal["new", "used"]
LEFTOVER = "leftover stock"
ASKED = {
    "asking price of one listing": "asking_price_least",
    "asking prices of three listings": "asking_prices_least",
}
"""How the note of a price says that sellers ask it, and nobody is known to have paid it; by the
assumption that says how much less such cards were to be had for."""
_DAYS_IN_MONTH = 365 / 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CardForSale:
    """A card at a price somebody asked on some day."""

    gpu: Gpu
    condition: Condition
    listed_usd: float
    as_of: str
    source: str
    note: str
    age_months: float

    @property
    def name(self) -> str:
        """`used RTX 3090`."""
        return f"{self.condition} {self.gpu.name}"

    @property
    def is_leftover(self) -> bool:
        """Whether it is the rest of a card nobody makes any more."""
        return LEFTOVER in self.note

    @property
    def is_old(self) -> bool:
        """Whether its price is too old to go by."""
        return self.age_months > assumption_number("price_old_months")

    @property
    def price_usd(self) -> Estimate:
        """What it may cost today: as listed, further apart the longer ago that is; where only
        asking prices are known, down to what such cards were to be had for."""
        drift, years = assumption_range("card_price_drift_per_year"), self.age_months / 12
        return Estimate(
            low=self.listed_usd * self._least_asked * drift.low**years,
            likely=self.listed_usd,
            high=self.listed_usd * drift.high**years,
        )

    @property
    def _least_asked(self) -> float:
        """What is paid of a price at least, by how far its note says that it is only asked."""
        least = (assumption_number(name) for words, name in ASKED.items() if words in self.note)
        return next(least, 1.0)

    @property
    def in_a_desktop(self) -> str | None:
        """Why it cannot go into an ordinary desktop, None where it can."""
        if self.gpu.form != "PCIe":
            return f"needs a server board ({self.gpu.form})"
        facts = self.gpu.facts
        if facts["cooling"].text == "passive":
            return "is made for servers: no fan of its own"
        if (facts["memory_type"].text or "").startswith("HBM"):
            return "is made for servers"
        return None


@cache
def cards(today: str, imported: ImportedPrices = NOTHING_IMPORTED) -> tuple[CardForSale, ...]:
    """The newest price of each card in each condition; leftover stock only where none else is.

    Of one day an imported price goes before a bundled one.
    """
    newest: dict[tuple[str, str], CardForSale] = {}
    listed = sorted(_listed(today, imported), key=lambda card: (not card.is_leftover, card.as_of))
    for card in listed:
        newest[card.gpu.name, card.condition] = card
    return tuple(newest.values())


def _listed(today: str, imported: ImportedPrices) -> Iterable[CardForSale]:
    by_name, now = gpus(), date.fromisoformat(today)
    for price in card_prices(imported):
        amount, fact = price.fact.number, price.fact
        if price.condition not in ("new", "used") or price.gpu not in by_name or amount is None:
            continue
        if fact.as_of > today:
            continue
        yield CardForSale(
            gpu=by_name[price.gpu],
            condition=price.condition,  # type: ignore[arg-type]  # one of the two
            listed_usd=amount * in_usd(fact.unit),
            as_of=fact.as_of,
            source=fact.source,
            note=fact.note,
            age_months=(now - date.fromisoformat(fact.as_of)).days / _DAYS_IN_MONTH,
        )


def worth_buying(
    today: str,
    *,
    used: bool = True,
    amd: bool = True,
    imported: ImportedPrices = NOTHING_IMPORTED,
) -> tuple[CardForSale, ...]:
    """The cards somebody should look at for a desktop."""
    return tuple(
        card
        for card in desktop_cards(today, imported)
        if is_sensible(card, amd=amd) and (used or card.condition == "new")
    )


def desktop_cards(
    today: str, imported: ImportedPrices = NOTHING_IMPORTED
) -> tuple[CardForSale, ...]:
    """All cards with a price that go into a desktop, leftover stock left out."""
    return tuple(
        card
        for card in cards(today, imported)
        if not card.is_leftover and card.in_a_desktop is None
    )


def is_sensible(card: CardForSale, *, amd: bool = True) -> bool:
    """Whether one should buy it today: a price to go by, and software that goes on.

    AMD cards are looked at as others are: that no prediction of theirs was ever checked is in
    their range, by which they are ranked.
    """
    return not card.is_old and card.gpu.software.runs == "yes" and (amd or card.gpu.vendor != "AMD")


def resale_usd(
    card: CardForSale, years: float, today: str, imported: ImportedPrices = NOTHING_IMPORTED
) -> Estimate:
    """What a card is sold for after some years, fees taken off."""
    keep, left = assumption_range("used_card_keep_per_year"), 1 - assumption_number("selling_cost")
    now = used_usd(card, today, imported)
    return Estimate(
        low=now.low * keep.low**years * left,
        likely=now.likely * keep.likely**years * left,
        high=now.high * keep.high**years * left,
    )


def used_usd(
    card: CardForSale, today: str, imported: ImportedPrices = NOTHING_IMPORTED
) -> Estimate:
    """What somebody pays for it second-hand on the day it is bought."""
    if card.condition == "used":
        return Estimate.exactly(card.listed_usd)
    second_hand = [
        other
        for other in cards(today, imported)
        if other.gpu is card.gpu and other.condition == "used" and not other.is_old
    ]
    if second_hand:
        return Estimate.exactly(min(second_hand[0].listed_usd, card.listed_usd))
    return assumption_range("used_by_new").scaled(card.listed_usd)


# --- how fast they are on bundled profiles ---

_BATCH = 8
"""Cards are compared at a batch that keeps any of them busy, whether it fits there or not."""


@cache
def bundled_profile(name: str) -> Profile:
    """A bundled profile, read once."""
    return find_profile(name)


def step_on(
    gpu: Gpu,
    profile: Profile,
    batch_size: int | None = None,
    *,
    count: int = 1,
    gpu_link: GpuLink | None = None,
) -> StepPrediction:
    """One step on so many GPUs of one kind; without a batch size, at the largest that fits."""
    placement = Placement(gpu=gpu, gpus=count, wiring=Wiring(gpu_link=gpu_link))
    request = StepRequest(profile=profile, placement=placement, batch_size=batch_size)
    return best_step(request, calibration(), thorough=False)


@cache
def device_times_s(name: str) -> tuple[float, ...]:
    """A GPU's own time for a step of each bundled profile, the host left out."""
    return tuple(_device_s(name, profile) for profile in bundled_profiles())


def _device_s(name: str, profile: str) -> float:
    trace = trace_at(bundled_profile(profile), _BATCH)
    return device_time(trace, roofline_of(gpus()[name], calibration()), calibration()).total_s


def least_ratio(gpu: Gpu, other: Gpu) -> float:
    """How many times as fast one GPU is as another, on the profile where that is least."""
    pairs = zip(device_times_s(other.name), device_times_s(gpu.name), strict=True)
    return min(slow_s / fast_s for slow_s, fast_s in pairs)


@cache
def fitting_profiles(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The bundled profiles that fit a GPU with one sample, and those that do not."""
    budget = Placement(gpu=gpus()[name]).memory_budget
    fits = {
        profile: fits_budget(bundled_profile(profile), 1, budget, calibration())
        for profile in bundled_profiles()
    }
    return (
        tuple(profile for profile, does in fits.items() if does),
        tuple(profile for profile, does in fits.items() if not does),
    )


# --- cards to avoid: another costs no more, has as much memory and is nowhere slower ---

_SAME_SPEED = 1.001


@dataclass(frozen=True, slots=True, kw_only=True)
class DominatedCard:
    """A card that nobody should buy at its price, and the one to buy instead."""

    card: CardForSale
    better: CardForSale
    times_as_fast: float
    """The better one, on the profile where that is least."""

    @property
    def saved_usd(self) -> float:
        """How much less the other costs."""
        return self.card.listed_usd - self.better.listed_usd


@cache
def dominated_cards(
    today: str, imported: ImportedPrices = NOTHING_IMPORTED
) -> tuple[DominatedCard, ...]:
    """Cards with a price that another one beats in everything, the most money wasted first.

    Leftover stock is looked at although its price is old: that is what shops still ask for it.
    """
    listed = [card for card in cards(today, imported) if card.in_a_desktop is None]
    # not every package has a build for AMD: such a card is not as good in everything
    rivals = [card for card in listed if is_sensible(card, amd=False)]
    compared = [card for card in listed if not card.is_old or card.is_leftover]
    dominated = [_dominated(card, rivals) for card in compared]
    return tuple(sorted(filter(None, dominated), key=lambda item: -item.saved_usd))


def _dominated(card: CardForSale, rivals: list[CardForSale]) -> DominatedCard | None:
    """The best that can be had instead: the fastest of the cards that beat it."""
    better = [rival for rival in rivals if rival.gpu is not card.gpu and _beats(rival, card)]
    if not better:
        return None
    best = max(better, key=lambda rival: (least_ratio(rival.gpu, card.gpu), -rival.listed_usd))
    return DominatedCard(card=card, better=best, times_as_fast=least_ratio(best.gpu, card.gpu))


def _beats(card: CardForSale, other: CardForSale) -> bool:
    """At least as good in everything and better in something, the price counted in.

    A used card has no warranty, so it beats a new one only where that is leftover stock.
    """
    if card.condition == "used" and other.condition == "new" and not other.is_leftover:
        return False
    if card.listed_usd > other.listed_usd or card.gpu.memory_bytes < other.gpu.memory_bytes:
        return False
    ratio = least_ratio(card.gpu, other.gpu)
    return ratio >= 1 / _SAME_SPEED and (ratio > _SAME_SPEED or card.listed_usd < other.listed_usd)
