"""What one's own machine costs: electricity, and its share of what buying and keeping it takes.

A machine the user has is charged what running it adds. One to be bought is charged purchase less
resale, interest, maintenance and idling, spread over the hours it will be used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from outlay.cost.lines import Line
from outlay.offers.offer import Offer, OwnedMachine
from outlay.predict.run_time import Run
from outlay.uncertainty import Number, Sampler, is_nonzero
from outlay.units import DAY_S, HOUR_S, YEAR_S

PURCHASE = "purchase less resale"
PURCHASE_LINES = (PURCHASE, "interest", "maintenance", "idle electricity")
"""The lines that buying brings, whatever runs on the machine."""


def owned_lines(
    offer: Offer, run: Run, machines: int, gpu_w: float, sampler: Sampler
) -> Iterator[Line]:
    """The lines of a run on one's own machine."""
    owned = offer.owned
    assert owned is not None
    busy_s = run.busy_s * machines
    kwh_usd = sampler.of("electricity price", owned.electricity_usd_per_kwh)
    watts = load_w(owned, gpu_w)
    yield Line(
        name="electricity",
        usd=busy_s / HOUR_S * (watts / 1000 * kwh_usd),
        how=lambda: f"{busy_s / HOUR_S:,.1f} h x {watts:,.0f} W x ${kwh_usd:.3f}/kWh",
        source=offer.source,
    )
    if owned.wear_usd_per_hour:
        yield Line(
            name="wear",
            usd=busy_s / HOUR_S * owned.wear_usd_per_hour,
            how=lambda: f"{busy_s / HOUR_S:,.1f} h x ${owned.wear_usd_per_hour:.3f}/h",
            source=offer.source,
        )
    if owned.purchase_usd is not None:
        share = life_share(owned, run, machines)
        yield from _bought(owned, share, run, kwh_usd, offer.source, sampler)


def life_share(owned: OwnedMachine, run: Run, machines: int = 1) -> Number:
    """The share of a machine's life that a run, or a month of sessions, takes up.

    Of its hours of use; of its years where nothing else is said to run on it.
    """
    if owned.lifetime_use_s is not None:
        return run.busy_s * machines / owned.lifetime_use_s
    return run.calendar_s * machines / (owned.life_s or run.calendar_s)


def _bought(
    owned: OwnedMachine, share: Number, run: Run, kwh_usd: Number, source: str, sampler: Sampler
) -> Iterator[Line]:
    """A run's share of what buying and keeping a machine costs over its life."""
    purchase_usd = sampler.of("purchase price", owned.purchase_usd or 0.0)
    resale_usd = resale_usd_of(owned, purchase_usd, sampler)
    use_s = owned.lifetime_use_s

    def of_life(name: str, usd: Number, what: Callable[[], str]) -> Line:
        def how() -> str:
            if use_s is None:
                life_s = owned.life_s or 0.0
                return (
                    f"{what()} over {life_s / YEAR_S:g} years, {share * life_s / DAY_S:,.1f} "
                    "days of them"
                )
            return (
                f"{what()} over {use_s / HOUR_S:,.0f} h of use, "
                f"{share * use_s / HOUR_S:,.1f} h of them"
            )

        return Line(name=name, usd=usd * share, how=how, source=source)

    spread_usd = purchase_usd - resale_usd
    yield of_life(PURCHASE, spread_usd, lambda: f"${spread_usd:,.0f}")
    used_s = run.busy_s / share if use_s is None else use_s
    years = (owned.life_s or used_s) / YEAR_S
    if owned.interest_per_year:
        # What is tied up falls from the purchase to the resale.
        tied_usd = (purchase_usd + resale_usd) / 2
        yield of_life(
            "interest",
            tied_usd * owned.interest_per_year * years,
            lambda: f"${tied_usd:,.0f} tied up x {owned.interest_per_year:.1%} x {years:g} y",
        )
    if owned.maintenance_usd_per_year:
        yield of_life(
            "maintenance",
            owned.maintenance_usd_per_year * years,
            lambda: f"${owned.maintenance_usd_per_year:,.0f} a year x {years:g} y",
        )
    idle_s = np.maximum((owned.life_s or used_s) - used_s, 0.0)
    idle_w = (owned.idle_w or 0.0) * owned.pue
    if idle_w and is_nonzero(idle_s):
        yield of_life(
            "idle electricity",
            idle_s / HOUR_S * idle_w / 1000 * kwh_usd,
            lambda: f"{idle_s / HOUR_S:,.0f} h x {idle_w:,.0f} W while nothing runs",
        )


def resale_usd_of(owned: OwnedMachine, purchase_usd: Number, sampler: Sampler) -> Number:
    """What it is sold for in the end: as stated, or a share of the purchase."""
    if owned.resale_fraction is not None:
        return purchase_usd * sampler.of("resale value", owned.resale_fraction)
    return sampler.of("resale value", owned.resale_usd)


def load_w(owned: OwnedMachine, gpu_w: float) -> float:
    """What a machine draws from the wall under load."""
    return (gpu_w + owned.host_w) * owned.pue


def owned_usd_per_hour(owned: OwnedMachine, gpu_w: float) -> float:
    """What running one's own machine adds each hour: its electricity."""
    price = owned.electricity_usd_per_kwh
    likely = price if isinstance(price, float | int) else price.likely
    return load_w(owned, gpu_w) / 1000 * likely


def break_even_s(
    purchase_usd: float,
    *,
    rented_usd_per_hour: float,
    owned_usd_per_hour: float,
    use_fraction: float = 1.0,
) -> float | None:
    """Time after which buying has cost less than renting, None where it never does.

    purchase / ((rented - owned) x share of the time the machine is used).
    """
    saved_usd_per_s = (rented_usd_per_hour - owned_usd_per_hour) / HOUR_S * use_fraction
    return purchase_usd / saved_usd_per_s if saved_usd_per_s > 0 else None
