"""The offers a plan looks at: bundled, quoted, and machines of one's own; less what is left out.

`candidates` puts them together; below it how a workload's selection picks among bundled offers, and
what besides those there is: the user's quotes, machines of one's own or to be bought, and notebooks
that cost nothing. `best_hosts` leaves out the hosts of a marketplace that another one beats.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import product
from typing import Protocol

import numpy as np

from outlay.caching import ById
from outlay.errors import InputError
from outlay.facts import Fact, assumed, assumed_range, fact_of, rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import (
    OfferFilter,
    at_best_zones,
    bundled_offers,
    gpu_filter,
    known_regions,
    offer_gpus,
    search,
)
from outlay.offers.offer import (
    Commitment,
    HostQuality,
    Offer,
    OwnedMachine,
    Tenancy,
    refuse_duplicates,
)
from outlay.offers.places import HOME, route_to_anywhere
from outlay.offers.price_book import PriceBook
from outlay.offers.terms import as_known_provider, known_provider, terms_of
from outlay.uncertainty import Array, Estimate
from outlay.units import DAY_S, GIB, HOUR_S, MINUTE_S, MONTH_S, YEAR_S
from outlay.workload.workload import (
    FREE_SOURCES,
    WITH_THE_RUN,
    Dataset,
    Quote,
    Selection,
    Workload,
    Workstation,
)

SOURCE = "the workload file"
_ROUNDED = 1.001
"""What a price by the hour may be off for its rounding."""
PROVIDER = "own"
"""What machines of one's own have for a provider."""
_STRAYS = 2.0
"""How many times shorter than likely a run may be, or how much more often data be fetched."""
_TENANCIES: tuple[Tenancy, ...] = ("on-demand", "spot")
"""How hosts are had, each for itself."""
_SPOT_MOVES = 3.0
"""How many times dearer a spot price may become."""
_TOLD_APART_S = MINUTE_S
_TOLD_APART_SHARE = 0.001
"""Hosts are not told apart by less than a minute to fetch the data, or a thousandth of the time
they are held, ..."""
_RELIABILITY_TOLD_APART = 0.01
"""... nor within one percent of reliability: seven hours of a month."""


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
    free = free_offers("" if prices is None else prices.day) if notebooks else ()
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


# --- single hosts of a marketplace ---
#
# A marketplace lists thousands of hosts, each a machine of its own to predict and to bill. Most of
# them are dearer than another one with the same GPUs that is no worse in anything: these are left
# out. What makes no difference to a workload (how fast a disk reads, where its GPUs are slower)
# cannot tell hosts apart.


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNeeds:
    """What a workload asks of a single host beside its GPUs."""

    download: bool
    """Whether data comes to it, at its own speed."""
    fetched_bytes: float
    """What a machine fetches each time, ..."""
    results_bytes: float
    """... and what leaves it, at most."""
    kept_bytes: float
    """What lies on its disk, the system included, ..."""
    most_kept_bytes: float
    """... wherever one chooses to keep things."""
    region: bool
    """Whether it matters where it is."""


def host_needs(workload: Workload) -> HostNeeds:
    """What a workload asks of a single host."""
    return _host_needs(ById(workload))


@lru_cache(maxsize=64)
def _host_needs(workload: ById[Workload]) -> HostNeeds:
    asked = workload.value
    data, size_bytes = asked.data, asked.data.size_bytes or 0.0
    places = {data.at, data.kept_at}
    places |= {at for item in asked.stored for at in (item.at, *item.also_at)}
    elsewhere = places - {WITH_THE_RUN, *FREE_SOURCES}
    return HostNeeds(
        download=data.download_bytes_per_s is None and _comes_from_elsewhere(data),
        fetched_bytes=size_bytes + sum(item.pulled_bytes for item in asked.stored),
        results_bytes=data.results_bytes + (_kept_bytes(asked, anywhere=True) if elsewhere else 0),
        kept_bytes=_kept_bytes(asked, anywhere=False),
        most_kept_bytes=_kept_bytes(asked, anywhere=True),
        region=bool(asked.consider.regions or asked.leave_out.regions)
        or any(":" in place for place in elsewhere),
    )


def _comes_from_elsewhere(data: Dataset) -> bool:
    """Whether machines fetch data, or have it copied to them, from elsewhere than home."""
    route = route_to_anywhere(data)
    return route.fetched_from not in (None, HOME) or (
        bool(route.copied_by) and route.origin != HOME
    )


def _kept_bytes(workload: Workload, *, anywhere: bool) -> float:
    """What lies on the disk of a host: the system, data, checkpoints, and what else is kept there,
    or may be."""
    data, checkpoint = workload.data, workload.checkpoint
    kept = [
        item.size_bytes
        for item in workload.stored
        if item.at == WITH_THE_RUN or (anywhere and WITH_THE_RUN in item.also_at)
    ]
    if data.kept_at == WITH_THE_RUN and data.storage != "object":
        kept.append(data.size_bytes or 0.0)
    checkpoints = (checkpoint.size_bytes or 0.0) * checkpoint.kept
    return sum(kept) + checkpoints + assumed("host_system_bytes")


def host_charges(workload: Workload, offer: Offer) -> tuple[float | None, ...]:
    """What a single host charges besides its hours, as far as a workload has it to pay."""
    host, needs = offer.host, host_needs(workload)
    if host is None:
        return ()
    return (
        host.disk_usd_per_byte_month,
        host.download_usd_per_byte if needs.fetched_bytes else None,
        host.upload_usd_per_byte if needs.results_bytes else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRuns:
    """How a workload runs on hosts with the same GPUs: from the best of them to the worst."""

    shortest_s: float
    """From the day they were seen to the end, on a host that is the best in everything ..."""
    longest_s: float
    """... and on one that is the worst."""
    busy_s: float
    """How long the host is held at least."""
    starts: float
    """How often data comes to it at most."""
    storage_share: tuple[float, float]
    """How long what it keeps is paid for, as multiples of the time it is held: from the least to
    the most."""
    is_fed_evenly: bool
    """Whether a step takes as long on the worst of them."""


class HostPredictions(Protocol):
    """What is predicted of hosts, to tell what makes a difference."""

    def host_runs(self, best: Offer, worst: Offer) -> HostRuns | None:
        """The likely runs on hosts with the same GPUs, by the best host there could be of them and
        the worst; None where it does not fit or never ends."""
        ...

    def host_step_s(self, offer: Offer) -> tuple[float, ...]:
        """The time of a step on a host: low, likely and high."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class BestHosts:
    """Offers without the hosts that others beat, and what is to be said of those."""

    offers: list[Offer]
    beaten: frozenset[tuple[int, Tenancy]] = frozenset()
    """The identities of offers, with how they are not worth having."""
    notes: tuple[str, ...] = ()


def best_hosts(
    offers: Sequence[Offer], workload: Workload, predicted: HostPredictions
) -> BestHosts:
    """The offers without the hosts of a marketplace that others with the same GPUs beat, on demand
    and as spot: one that costs no more on any bill, and is no worse in anything that makes a
    difference. All of them where the workload names hosts."""
    groups: dict[object, list[Offer]] = {}
    needs = host_needs(workload)
    for offer in offers:
        if offer.host is not None and not workload.consider.instances:
            groups.setdefault(_comparable(offer, workload, needs), []).append(offer)
    beaten: set[tuple[int, Tenancy]] = set()
    for group in groups.values():
        if len(group) > 1:
            beaten.update(_beaten_of(group, needs, predicted))
    left_out = [
        offer
        for offer in offers
        if offer.host is not None and all((id(offer), how) in beaten for how in offer.tenancies)
    ]
    ids = {id(offer) for offer in left_out}
    return BestHosts(
        offers=[offer for offer in offers if id(offer) not in ids],
        beaten=frozenset(beaten),
        notes=tuple(
            f"{number:,} hosts of {terms_of(provider).name} are left out: another one with the "
            "same GPUs costs no more, and is no worse in anything that matters here."
            for provider, number in Counter(offer.provider for offer in left_out).items()
        ),
    )


def _beaten_of(
    hosts: Sequence[Offer], needs: HostNeeds, predicted: HostPredictions
) -> Iterator[tuple[int, Tenancy]]:
    """Which of hosts with the same GPUs are beaten, and how they are had then."""
    runs = predicted.host_runs(*_extremes(hosts))
    qualities = [tuple(_lacking(host, needs, runs, predicted)) for host in hosts]
    charges = _charges_usd_per_hour(hosts, needs, runs)
    doubts = list({doubt.word: doubt for host in hosts for doubt in host.doubts}.values())
    for how in _TENANCIES:
        other = "price" if how == "spot" else "spot"
        words = [doubt for doubt in doubts if doubt.about != other]
        doubted = [[float(doubt in host.doubts) for doubt in words] for host in hosts]
        rows = np.hstack((_money(hosts, how, charges), np.asarray(qualities), np.asarray(doubted)))
        for place in _beaten(rows):
            yield id(hosts[place]), how


def _comparable(offer: Offer, workload: Workload, needs: HostNeeds) -> object:
    """What hosts must share to be compared: their GPUs, and which figures are known of them."""
    memory = offer.gpu_memory_bytes if workload.limits.gpu_memory_bytes is not None else None
    return (
        offer.provider, offer.gpus, offer.gpu_share, memory, offer.as_of,
        tuple(gpu.name for gpu in offer_gpus(offer)), offer.region if needs.region else "",
        tuple(figure is None for figure in (*_figures_fed(offer), *_figures_kept(offer))),
    )  # fmt: skip


def _figures_fed(offer: Offer) -> tuple[float | None, ...]:
    """What of a host the time of a run depends on; more is better."""
    host = offer.host or HostQuality()
    return (offer.vcpus, offer.ram_bytes, host.disk_bytes_per_s, host.download_bytes_per_s)


def _figures_kept(offer: Offer) -> tuple[float | None, ...]:
    """What else is known of it, or not."""
    host = offer.host or HostQuality()
    return (
        offer.local_disk_bytes, host.available_s, host.reliability_fraction,
        host.disk_usd_per_byte_month, host.download_usd_per_byte, host.upload_usd_per_byte,
    )  # fmt: skip


def _extremes(hosts: Sequence[Offer]) -> tuple[Offer, Offer]:
    """A host with the best of what hosts have, and one with the worst, had in all their ways."""
    figures = list(zip(*map(_figures_fed, hosts), strict=True))
    first = replace(
        hosts[0],
        price_usd_per_hour=_of(min, [host.price_usd_per_hour for host in hosts]),
        spot_usd_per_hour=_of(min, [host.spot_usd_per_hour for host in hosts]),
    )
    best, worst = (
        replace(
            first,
            vcpus=_of(pick, figures[0]),
            ram_bytes=_of(pick, figures[1]),
            host=replace(
                first.host or HostQuality(),
                disk_bytes_per_s=_of(pick, figures[2]),
                download_bytes_per_s=_of(pick, figures[3]),
            ),
        )
        for pick in (max, min)
    )
    return best, worst


def _of(pick: Callable[[Sequence[float]], float], figures: Sequence[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return pick(known) if known else None


def _beaten(rows: Array) -> Iterator[int]:
    """The places of rows that another one is nowhere above; of equal ones all but the first.

    In the order of their figures a row comes after all that beat it, so that each has to be held
    against those alone that nothing beats.
    """
    order = np.lexsort(rows.T[::-1])
    best, size = np.empty_like(rows), 0
    for place in order.tolist():
        row = rows[place]
        if size and (best[:size] <= row).all(axis=1).any():
            yield place
        else:
            best[size], size = row, size + 1


def _money(hosts: Sequence[Offer], tenancy: Tenancy, charges: Array) -> Array:
    """What an hour costs, a row for each host, at every end of what comes on top: who is cheaper at
    all of them is cheaper on every bill, as bills grow in proportion to each. Not sold is dearest;
    what it may cost to keep a spot machine counts as far as such prices may go."""
    on_demand = np.asarray([_or_no_end(host.price_usd_per_hour) for host in hosts])
    if tenancy != "spot":
        return on_demand[:, None] + charges
    spot = np.asarray([_or_no_end(host.spot_usd_per_hour) for host in hosts])
    most = np.minimum(on_demand, _SPOT_MOVES * spot)
    return np.hstack((spot[:, None] + charges, most[:, None] + charges))


def _or_no_end(usd: float | None) -> float:
    return math.inf if usd is None else usd


def _charges_usd_per_hour(hosts: Sequence[Offer], needs: HostNeeds, runs: HostRuns | None) -> Array:
    """What hosts charge besides their hours, on each of them, at every end of how much that may be;
    nothing where a run does not fit."""
    if runs is None:
        return np.zeros((len(hosts), 1))
    starts_per_hour = _STRAYS * runs.starts * HOUR_S / runs.busy_s
    least, most = (share * HOUR_S / MONTH_S for share in runs.storage_share)
    amounts = (
        (needs.kept_bytes * least, needs.most_kept_bytes * most),
        (0.0, needs.fetched_bytes * starts_per_hour),
        (0.0, needs.results_bytes * starts_per_hour),
    )
    prices = [[usd or 0.0 for usd in _figures_kept(host)[3:]] for host in hosts]
    charges: Array = np.asarray(prices) @ np.asarray(list(product(*amounts))).T
    return charges


def _lacking(
    offer: Offer, needs: HostNeeds, runs: HostRuns | None, predicted: HostPredictions
) -> Iterator[float]:
    """What a host has of what makes a difference, as figures of which less is better: none where
    the run does not fit on any."""
    host = offer.host or HostQuality()
    if runs is None:
        return
    if not runs.is_fed_evenly:
        yield from predicted.host_step_s(offer)
    if needs.download and host.download_bytes_per_s:
        rate = min(host.download_bytes_per_s, _fastest_download())
        least_s = max(_TOLD_APART_S, _TOLD_APART_SHARE * runs.busy_s / runs.starts)
        yield math.floor(needs.fetched_bytes / rate / least_s)
    yield -_useful(offer.local_disk_bytes, needs.kept_bytes, needs.most_kept_bytes)
    yield -_useful(host.available_s, runs.shortest_s, runs.longest_s)
    yield -math.floor((host.reliability_fraction or 0.0) / _RELIABILITY_TOLD_APART)


def _useful(amount: float | None, least: float, enough: float) -> float:
    """How much of an amount makes a difference: nothing below the least that is of use, and no
    more than is enough."""
    return 0.0 if amount is None or amount < least else min(amount, enough)


@cache
def _fastest_download() -> float:
    """What data comes at from elsewhere at most, whatever a host's network takes."""
    return Estimate.of(assumed_range("data_download_bytes_per_s")).high


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


def free_offers(day: str = "") -> tuple[Offer, ...]:
    """What costs nothing: Kaggle's hours a week; as far as a day in the past knew of them."""
    offers = (_kaggle(subscription_facts()),)
    return tuple(offer for offer in offers if not day or offer.as_of <= day)


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
