"""Which GPUs are worth a look when renting: those whose hour buys enough arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

from outlay.advise.asked import Asked
from outlay.offers.catalog import bundled_offers, offer_gpus
from outlay.offers.offer import Offer, Tenancy
from outlay.placing import calibration
from outlay.predict.compute import device_time
from outlay.predict.traced import machine_at, trace_at
from outlay.trace.trace import Profile

_BATCH = 8
_WITHIN = 1.7
# Assumes: a GPU whose step costs 1.7 times the cheapest one's, by its device's time alone, does not
# become the cheapest by a larger batch or a faster host.


def gpus_worth_a_look(asked: Asked) -> tuple[str, ...]:
    """The names of those GPUs, on demand or as spot, as a selection takes them."""
    found: set[str] = set()
    for tenancy in ("on-demand", "spot"):
        cheapest = dict(_cheapest(asked, tenancy))
        costs = {gpu: usd * _step_s(asked.profile, offer) for gpu, (usd, offer) in cheapest.items()}
        least = min(costs.values(), default=0.0)
        found |= {gpu for gpu, cost in costs.items() if cost <= _WITHIN * least}
    return tuple(sorted(found))


def _cheapest(asked: Asked, tenancy: Tenancy) -> Iterator[tuple[str, tuple[float, Offer]]]:
    """Each GPU's lowest price in a tenancy, per GPU and hour, of offers nobody doubts."""
    prices: dict[str, tuple[float, Offer]] = {}
    for offer in bundled_offers(asked.today):
        usd = offer.hourly_usd(tenancy)
        spoiled = offer.cautions(tenancy) or offer.not_for_sale(tenancy)
        if not usd or spoiled or offer.gpus > asked.gpus or not _is_usable(offer, asked):
            continue
        each = usd / offer.gpus / offer.gpu_share
        if offer.gpu not in prices or each < prices[offer.gpu][0]:
            prices[offer.gpu] = (each, offer)
    yield from prices.items()


def _is_usable(offer: Offer, asked: Asked) -> bool:
    """Whether its software does, and AMD is asked for where it is AMD."""
    gpu = offer_gpus(offer)[0]
    return gpu.software.runs != "no" and (asked.amd or gpu.vendor == "NVIDIA")


def _step_s(profile: Profile, offer: Offer) -> float:
    machine = machine_at(offer_gpus(offer)[0], calibration())
    return device_time(trace_at(profile, _BATCH), machine, calibration()).total_s
