"""Machines to buy and the one that is there as the planner knows them, and the work of a month.

`reference_of` says on which GPU hours of use are counted and what it trains in them; below, which
GPUs are worth a look when renting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from outlay.advise.cards import (
    CardForSale,
    assumption_number,
    assumption_range,
    electricity_usd_per_kwh,
    resale_usd,
    worth_buying,
)
from outlay.advise.request import AdviceRequest, workload_for
from outlay.errors import NoOption
from outlay.offers.catalog import offer_gpus
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.price_book import offers_of
from outlay.plan.option import Option, draws_of
from outlay.plan.pipeline import plan_workload
from outlay.plan.placement import calibration
from outlay.predict.evidence import never_measured
from outlay.predict.kernel_time import device_time
from outlay.predict.roofline import roofline_of, trace_at
from outlay.trace.profile import Profile
from outlay.uncertainty import DRAWS, Estimate, total
from outlay.units import HOUR_S
from outlay.workload.workload import Selection, Workstation

OWNED = "the machine you have"
_TRIED_SAMPLES = 1e9
"""Many, so that the last step of a session, which is not full, does not count."""
_FALLBACK = "A100 80GB"
# Assumes: where no card can be bought, hours of use are meant on what data centres have most of.


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The GPU that hours of use are counted on, and what it does in them."""

    gpu: str
    why: str
    samples_per_month: float


def cards_for_sale(request: AdviceRequest) -> tuple[CardForSale, ...]:
    """The cards to look at: none where one machine cannot take that many."""
    if request.gpus > assumption_number("workstation_gpus_most"):
        return ()
    return worth_buying(
        request.today, used=request.used, amd=request.amd, imported=request.imported
    )


def machine_of(card: CardForSale, request: AdviceRequest, use_s: float) -> Workstation:
    """A machine with that card, bought for as long as asked and used for `use_s` in all."""
    price, rest = card.price_usd.scaled(request.gpus), rest_usd(request)
    purchase = price.plus(rest)
    sold = resale_usd(card, request.years, request.today, request.imported).scaled(request.gpus)
    keep = assumption_range("desktop_keep_per_year")
    rest_sold = Estimate(
        low=rest.likely * keep.low**request.years,
        likely=rest.likely * keep.likely**request.years,
        high=rest.likely * keep.high**request.years,
    )
    return Workstation(
        name=card.name,
        gpu=card.gpu.name,
        gpus=request.gpus,
        electricity_usd_per_kwh=electricity_usd_per_kwh(request.country)[0],
        purchase_usd=purchase,
        resale_fraction=sold.plus(rest_sold).scaled(1 / purchase.likely),
        years=request.years,
        lifetime_use_s=use_s,
    )


def rest_usd(request: AdviceRequest) -> Estimate:
    """What a desktop costs besides its cards; nothing where one is there."""
    if request.own_gpu is not None:
        return Estimate.exactly(0.0)
    more = assumption_range("desktop_more_per_gpu").scaled(request.gpus - 1)
    return total([assumption_range("desktop_rest"), more])


def owned_machine(request: AdviceRequest) -> Workstation | None:
    """The machine that is there, charged for its electricity."""
    if request.own_gpu is None:
        return None
    return Workstation(
        name=OWNED,
        gpu=request.own_gpu,
        gpus=request.gpus,
        electricity_usd_per_kwh=electricity_usd_per_kwh(request.country)[0],
    )


def own_options(
    request: AdviceRequest, machines: Sequence[Workstation], samples: float
) -> dict[str, Option]:
    """The machines planned by themselves, without anything rented, by name."""
    if not machines:
        return {}
    workload = replace(
        workload_for(request, samples),
        consider=Selection(bundled=False),
        quotes=(),
        workstations=tuple(machines),
    )
    plan = plan_workload(workload, request.profile, today=request.today, prices=request.prices)
    return {option.offer.instance: option for option in plan.options}


def bought_machines(
    request: AdviceRequest, cards: Iterable[CardForSale], samples: float
) -> list[Workstation]:
    """Machines to buy, each used in its life for as long as the work of all months takes it."""
    listed = [
        *(machine_of(card, request, HOUR_S) for card in cards),
        *_machines_of_file(request, bought=True),
    ]
    tried = own_options(request, listed, samples)
    return [
        replace(
            machine, years=request.years, lifetime_use_s=request.months * tried[machine.name].busy_s
        )
        for machine in listed
        if tried[machine.name].run is not None
    ]


def owned_machines(request: AdviceRequest) -> list[Workstation]:
    """The machines that are there: named with --own, or in the workload file."""
    present = owned_machine(request)
    return [*([present] if present else []), *_machines_of_file(request, bought=False)]


def _machines_of_file(request: AdviceRequest, *, bought: bool) -> list[Workstation]:
    """Machines of the workload file, to be bought or there already."""
    machines = request.workload.workstations if request.workload else ()
    return [machine for machine in machines if (machine.purchase_usd is not None) == bought]


def reference_of(request: AdviceRequest, cards: Sequence[CardForSale]) -> Reference:
    """What hours of use are counted on: as requested, what is there, or the card to buy.

    The card to buy is the one whose work costs least at that many hours, within the purse.
    """
    if request.hours_on is not None:
        return _reference_on(request, request.hours_on, "as you say")
    present = owned_machine(request)
    if present is not None:
        option = own_options(request, [present], _TRIED_SAMPLES)[OWNED]
        if option.fits:
            return _reference_on(request, present.gpu, "which you have")
    best = _best_buy(request, cards)
    if best is None:
        return _reference_on(request, _FALLBACK, "as no card can be bought for it")
    known = "" if never_measured(best.gpu, calibration()) else ", of those whose kind was measured"
    return _reference_on(
        request, best.gpu.name, f"whose work costs least to buy at that use{known}"
    )


def _reference_on(request: AdviceRequest, gpu: str, why: str) -> Reference:
    """What so many hours a month on a GPU train."""
    machine = Workstation(name=gpu, gpu=gpu, gpus=request.gpus)
    option = own_options(request, [machine], _TRIED_SAMPLES)[gpu]
    if not option.fits:
        raise NoOption(
            f"{request.profile.name} does not fit the {gpu}, on which the hours are counted.",
            why=option.why_not or "",
            fix="Name another one with --hours-on, or a smaller step with --profile.",
        )
    samples = request.use.hours_per_month * HOUR_S / option.training_s_per_sample
    return Reference(gpu=option.offer.gpu, why=why, samples_per_month=samples)


def _best_buy(request: AdviceRequest, cards: Sequence[CardForSale]) -> CardForSale | None:
    """The card whose samples are expected to cost least when it is used as much as asked.

    Hours are counted on it, so it is one whose speed was checked, where any such is there.
    """
    machines = [machine_of(card, request, HOUR_S) for card in cards]
    tried = own_options(request, machines, _TRIED_SAMPLES)
    fitting = [card for card in cards if _fits(tried[card.name])]
    checked = [card for card in fitting if tried[card.name].step.is_checked]
    within = [card for card in fitting if _affordable(card, request)]
    both = [card for card in checked if card in within]
    return min(
        both or within or checked or fitting,
        key=lambda card: _usd_per_sample(card, tried[card.name], request),
        default=None,
    )


def _fits(option: Option) -> bool:
    return option.fits and option.blocked is None


def _affordable(card: CardForSale, request: AdviceRequest) -> bool:
    paid_usd = card.listed_usd * request.gpus + rest_usd(request).likely
    return request.budget_usd is None or paid_usd <= request.budget_usd


def _usd_per_sample(card: CardForSale, option: Option, request: AdviceRequest) -> float:
    machine = machine_of(card, request, HOUR_S)
    assert isinstance(machine.purchase_usd, Estimate)
    assert isinstance(machine.resale_fraction, Estimate)
    lost_usd = machine.purchase_usd.likely * (1 - machine.resale_fraction.likely)
    assert option.cost is not None
    running = float(option.cost.breakdown.line_usd("electricity")) / option.busy_s * HOUR_S
    hours = request.use.hours_per_month * request.months
    return (lost_usd / hours + running) * option.training_s_per_sample * _mean_slowness(option)


def _mean_slowness(option: Option) -> float:
    """How many times as long as is likely a step takes on average: what is little known, longer."""
    step_s = option.step.step_time_s
    return float(np.mean(draws_of(DRAWS).of("speed", step_s))) / step_s.likely


# --- GPUs worth renting: those whose hour buys enough arithmetic ---

_BATCH = 8
_MOST_COST_RATIO = 1.7
# Assumes: a GPU whose step costs 1.7 times the cheapest one's, by its device's time alone, does not
# become the cheapest by a larger batch or a faster host.


def gpus_worth_renting(request: AdviceRequest) -> tuple[str, ...]:
    """The names of those GPUs, on demand or as spot, as a selection takes them."""
    names: set[str] = set()
    for tenancy in ("on-demand", "spot"):
        cheapest = dict(_cheapest(request, tenancy))
        costs = {
            gpu: usd * _step_s(request.profile, offer) for gpu, (usd, offer) in cheapest.items()
        }
        least = min(costs.values(), default=0.0)
        names |= {gpu for gpu, cost in costs.items() if cost <= _MOST_COST_RATIO * least}
    return tuple(sorted(names))


def _cheapest(
    request: AdviceRequest, tenancy: Tenancy
) -> Iterator[tuple[str, tuple[float, Offer]]]:
    """Each GPU's lowest price in a tenancy, per GPU and hour, of offers nobody doubts."""
    prices: dict[str, tuple[float, Offer]] = {}
    for offer in offers_of(request.prices, request.today):
        usd = offer.hourly_usd(tenancy)
        spoiled = offer.cautions(tenancy) or offer.not_for_sale(tenancy)
        if not usd or spoiled or offer.gpus > request.gpus or not _is_usable(offer, request):
            continue
        each = usd / offer.gpus / offer.gpu_share
        if offer.gpu not in prices or each < prices[offer.gpu][0]:
            prices[offer.gpu] = (each, offer)
    yield from prices.items()


def _is_usable(offer: Offer, request: AdviceRequest) -> bool:
    """Whether today's PyTorch runs on it, as in a plan, and nobody wants AMD left out."""
    gpu = offer_gpus(offer)[0]
    return gpu.runs_pytorch and (request.amd or gpu.vendor != "AMD")


def _step_s(profile: Profile, offer: Offer) -> float:
    machine = roofline_of(offer_gpus(offer)[0], calibration())
    return device_time(trace_at(profile, _BATCH), machine, calibration()).total_s
