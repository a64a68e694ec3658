"""The offers a plan looks at: bundled, quoted, and machines of one's own; less what is left out.

`candidates` puts them together; below it how a workload's selection picks among bundled offers, and
what besides those there is: the user's quotes, machines of one's own or to be bought, and notebooks
that cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache

from outlay.errors import InputError
from outlay.facts import Fact, assumed, fact_of, rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import (
    OfferFilter,
    at_best_zones,
    bundled_offers,
    gpu_filter,
    known_regions,
    search,
)
from outlay.offers.offer import Commitment, Offer, OwnedMachine, refuse_duplicates
from outlay.offers.price_book import PriceBook
from outlay.offers.terms import as_known_provider, known_provider
from outlay.units import DAY_S, GIB, HOUR_S, YEAR_S
from outlay.workload.workload import Quote, Selection, Workload, Workstation

SOURCE = "the workload file"
_ROUNDED = 1.001
"""What a price by the hour may be off for its rounding."""
PROVIDER = "own"
"""What machines of one's own have for a provider."""


def candidates(workload: Workload, today: str = "", prices: PriceBook | None = None) -> list[Offer]:
    """The offers to consider: of a price book, quoted, and machines of one's own; less what is
    left out. Without a book, the bundled ones."""
    own = [
        replace(offer, as_of=offer.as_of or today)
        for offer in (
            *quoted_offers(workload.quotes),
            *workstation_offers(workload.workstations, workload.usage.interest_per_year),
        )
    ]
    consider, leave_out = workload.consider, workload.leave_out
    notebooks = ("access", "notebook") in workload.prefer.qualities
    if prices is None:
        listed = at_best_zones(bundled_offers(today), today)
    else:
        listed = _without_discounts(prices.offers_on(today), workload)
    day = "" if prices is None else prices.day
    free = [offer for offer in free_offers() if not day or offer.as_of <= day] if notebooks else []
    everything = (*listed, *free)
    selected = _selected(everything, consider)  # also checks the names
    bundled = [offer for offer in selected if consider.bundled or offer.in_own_list]
    left_out = _named(bundled, leave_out, everything) if _restricts(leave_out) else []
    left_out_ids = {id(offer) for offer in left_out}
    return own + [
        offer
        for offer in bundled
        if id(offer) not in left_out_ids
        and (consider.max_gpus is None or offer.gpus <= consider.max_gpus)
    ]


def _without_discounts(offers: tuple[Offer, ...], workload: Workload) -> tuple[Offer, ...]:
    """Offers at list price where the workload file has a discount of its own for their provider:
    that one counts then, in the bill, and a price list's does not come off as well."""
    own = {as_known_provider(terms.provider) for terms in workload.terms if terms.discount_fraction}
    if not own:
        return offers
    return tuple(offer.at_list_price() if offer.provider in own else offer for offer in offers)


# --- what a selection picks ---


def _selected(offers: Iterable[Offer], selection: Selection) -> list[Offer]:
    """The offers that satisfy every restriction of a selection."""
    matches = search(
        offers,
        OfferFilter(
            gpus=tuple(gpu_filter(text) for text in selection.gpus),
            providers=selection.providers,
            regions=selection.regions,
        ),
    )
    return [offer for offer in matches if _instance_matches(offer, selection)]


def _named(
    offers: Iterable[Offer], selection: Selection, everything: Iterable[Offer]
) -> list[Offer]:
    """The offers that any restriction of a selection names; a region is one of any offer's."""
    filters = [gpu_filter(text) for text in selection.gpus]
    providers = {known_provider(name) for name in selection.providers}
    regions = known_regions(selection.regions, everything)
    return [
        offer
        for offer in offers
        if any(gpus.accepts(offer) for gpus in filters)
        or offer.provider in providers
        or offer.region in regions
        or (selection.instances and _instance_matches(offer, selection))
    ]


def _restricts(selection: Selection) -> bool:
    """Whether a selection names anything."""
    return bool(selection.gpus or selection.providers or selection.regions or selection.instances)


def _instance_matches(offer: Offer, selection: Selection) -> bool:
    patterns = selection.instances
    return not patterns or any(fnmatchcase(offer.instance, pattern) for pattern in patterns)


# --- quotes of the workload file ---


def quoted_offers(quotes: Iterable[Quote]) -> tuple[Offer, ...]:
    """The quotes as offers. Two with the same provider, instance and region are an error."""
    offers = tuple(map(quoted_offer, quotes))
    refuse_duplicates(offers, "[[offer]]", "Give each its own `instance`, or remove one.")
    return offers


def quoted_offer(quote: Quote, gpu: str = "") -> Offer:
    """A quote as an offer; `gpu` is what to call its GPU, else what the table calls it."""
    provider = as_known_provider(quote.provider)
    return Offer(
        provider=provider,
        instance=quote.instance,
        gpu=gpu or find_gpu(quote.gpu, provider).meaning,
        gpus=quote.gpus,
        region=quote.region,
        price_usd_per_hour=quote.price_usd_per_hour,
        spot_usd_per_hour=quote.spot_usd_per_hour,
        spot_high_usd_per_hour=quote.spot_usd_per_hour,
        vcpus=quote.vcpus,
        ram_bytes=quote.ram_bytes,
        local_disk_bytes=quote.local_disk_bytes,
        network_bytes_per_s=quote.network_bytes_per_s,
        disk=quote.disk,
        disk_bytes_per_s=quote.disk_bytes_per_s,
        setup_s=quote.setup_s,
        setup_cost_usd=quote.setup_cost_usd,
        interruptions_per_month=quote.interruptions_per_month,
        commitment=_commitment(quote),
        as_of=quote.as_of,
        source=SOURCE + (f": {quote.note}" if quote.note else ""),
        quoted=True,
    )


def _commitment(quote: Quote) -> Commitment | None:
    if quote.term_s is None:
        return None
    if quote.price_usd_per_hour is None:
        raise InputError(
            f"The offer {quote.instance!r} has a term but no price.",
            fix="Give its price_per_hour, what is paid upfront spread over the term.",
        )
    days = f"{quote.term_s / DAY_S:,.0f} days"
    upfront_fraction = _upfront_fraction(quote, quote.price_usd_per_hour * quote.term_s / HOUR_S)
    payment = {0.0: "no upfront", 1.0: "all upfront"}.get(upfront_fraction, "partial upfront")
    return Commitment(
        name=f"{days}, {payment}" if quote.upfront_usd else days,
        term_s=quote.term_s,
        price_usd_per_hour=quote.price_usd_per_hour,
        upfront_fraction=upfront_fraction,
        source=SOURCE,
    )


def _upfront_fraction(quote: Quote, term_usd: float) -> float:
    """The share of the term's price that is paid on the first day."""
    if quote.upfront_usd > term_usd * _ROUNDED:
        raise InputError(
            f"The offer {quote.instance!r} has more to pay upfront than its term costs.",
            why=f"Its hours cost {term_usd / quote.upfront_usd:.0%} of that together.",
            fix="price_per_hour is the whole price of the term by its hours, upfront included.",
        )
    return min(quote.upfront_usd / term_usd, 1.0)


# --- machines of one's own, or to be bought ---


def workstation_offers(
    machines: Iterable[Workstation], interest_per_year: float | None = None
) -> tuple[Offer, ...]:
    """The machines as offers. Two of one name are an error.

    `interest_per_year` is what the user's money costs where a machine does not say.
    """
    offers = tuple(workstation_offer(machine, interest_per_year) for machine in machines)
    refuse_duplicates(offers, "[[machine]]", "Give each its own `name`, or remove one.")
    return offers


def workstation_offer(machine: Workstation, interest_per_year: float | None = None) -> Offer:
    """The machine as an offer without an hourly price."""
    own_interest = machine.interest_per_year
    host_w, kwh_usd = machine.host_w, machine.electricity_usd_per_kwh
    return Offer(
        provider=PROVIDER,
        instance=machine.name,
        gpu=find_gpu(machine.gpu).meaning,
        gpus=machine.gpus,
        region="here",
        price_usd_per_hour=None,
        vcpus=machine.vcpus,
        ram_bytes=machine.ram_bytes,
        as_of="",
        source=SOURCE,
        quoted=True,
        other_gpus=tuple(find_gpu(name).meaning for name in machine.other_gpus),
        power_limit_w=machine.power_limit_w,
        network_bytes_per_s=machine.network_bytes_per_s,
        disk=machine.disk,
        disk_bytes_per_s=machine.disk_bytes_per_s,
        owned=OwnedMachine(
            electricity_usd_per_kwh=(
                assumed("electricity_usd_per_kwh") if kwh_usd is None else kwh_usd
            ),
            host_w=assumed("desktop_host_power_w") if host_w is None else host_w,
            purchase_usd=machine.purchase_usd,
            resale_usd=0.0 if machine.resale_usd is None else machine.resale_usd,
            resale_fraction=machine.resale_fraction,
            lifetime_use_s=_lifetime_use_s(machine),
            life_s=None if machine.years is None else machine.years * YEAR_S,
            idle_w=machine.idle_w,
            maintenance_usd_per_year=machine.maintenance_usd_per_year,
            interest_per_year=(interest_per_year or 0.0) if own_interest is None else own_interest,
            wear_usd_per_hour=machine.wear_usd_per_hour,
            pue=machine.pue,
        ),
    )


def _lifetime_use_s(machine: Workstation) -> float | None:
    """Hours of use in a machine's life, by everybody: as stated, or years times utilisation."""
    own_s = machine.lifetime_use_s
    if own_s is None and machine.years is not None and machine.utilisation is not None:
        own_s = machine.years * YEAR_S * machine.utilisation
    return None if own_s is None else own_s + machine.others_use_s


# --- notebooks that cost nothing: `data/subscriptions.csv` ---


@cache
def subscription_facts() -> dict[tuple[str, str], Fact]:
    """The facts of all plans by provider and parameter."""
    rows = rows_of("subscriptions.csv")
    return {(row["provider"], row["parameter"]): fact_of(row) for row in rows}


def free_offers() -> tuple[Offer, ...]:
    """What costs nothing: Kaggle's hours a week."""
    return (_kaggle(subscription_facts()),)


def _kaggle(facts: dict[tuple[str, str], Fact]) -> Offer:
    hours = facts["kaggle", "gpu_hours"]
    return Offer(
        provider="kaggle",
        instance="free notebook",
        gpu="T4",
        gpus=int(facts["kaggle", "gpus"].number or 1),
        region="any",
        price_usd_per_hour=0.0,
        vcpus=facts["kaggle", "vcpus"].number,
        ram_bytes=(facts["kaggle", "ram_gb"].number or 0.0) * GIB,
        as_of=hours.as_of,
        source=hours.source,
    )
