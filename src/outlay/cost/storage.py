"""What keeping and moving data costs: storage by the GB-month, transfer out of each place, and
the machine that fills a volume before the one with the GPU is rented."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from outlay.caching import ById
from outlay.cost.lines import Line, UnpricedItem
from outlay.facts import assumed, assumed_range, assumptions
from outlay.offers.offer import Offer
from outlay.offers.places import (
    HOME,
    DataRoute,
    Place,
    TransferPrice,
    data_route,
    place_for,
    transfer_price,
)
from outlay.offers.terms import (
    StorageKind,
    Terms,
    terms_on,
    usual_egress_usd_per_byte,
    usual_usd_per_byte_month,
)
from outlay.predict.run_time import Run
from outlay.uncertainty import LIKELY, Number, Sampler, is_nonzero
from outlay.units import DAY_S, GB, HOUR_S, MONTH_S
from outlay.workload.workload import WITH_THE_RUN, StoredData, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """Where a run is: the offer, where its machine is, the run, and everybody's terms."""

    offer: Offer
    machine: Place
    run: Run
    route: DataRoute
    terms: Callable[[str], Terms]


def storage_and_transfer_lines(
    workload: Workload,
    offer: Offer,
    run: Run,
    terms: Callable[[str], Terms],
    sampler: Sampler = LIKELY,
) -> tuple[list[Line], tuple[UnpricedItem, ...]]:
    """The lines of storage, transfer and copying, and what of them has no known price."""
    route = data_route(workload, offer, terms)
    on_offer = terms if offer.host is None else _terms_with_host(offer, terms)
    site = _Site(offer=offer, machine=route.machine, run=run, route=route, terms=on_offer)
    items = [
        *_storage_lines(workload, site),
        *_transfer_lines(workload, site),
        *_host_traffic(workload, site),
        *_host_disk_lines(workload, site),
        *_copying_lines(site, sampler),
    ]
    lines = [item for item in items if isinstance(item, Line)]
    return lines, tuple(item for item in items if isinstance(item, UnpricedItem))


def _terms_with_host(offer: Offer, terms: Callable[[str], Terms]) -> Callable[[str], Terms]:
    """Everybody's terms, those of a host's marketplace as they are on that host."""
    its = terms_on(offer, terms(offer.provider))
    return lambda provider: its if provider == offer.provider else terms(provider)


@lru_cache(maxsize=64)
def _stored_items(workload: ById[Workload]) -> tuple[StoredData, ...]:
    """Everything that lies somewhere and is paid for by the month."""
    return tuple(_each_stored(workload.value))


def _each_stored(workload: Workload) -> Iterator[StoredData]:
    yield from workload.stored
    data, checkpoint = workload.data, workload.checkpoint
    if data.size_bytes is not None and data.storage != "none":
        yield StoredData(
            name="dataset", size_bytes=data.size_bytes, at=data.kept_at, kind=data.storage
        )
    if checkpoint.size_bytes is not None:
        yield StoredData(name="checkpoints", size_bytes=checkpoint.size_bytes * checkpoint.kept)


def _storage_lines(workload: Workload, site: _Site) -> Iterator[Line | UnpricedItem]:
    """What keeping things costs; a provider charges the same in all its regions, as far as the
    tables know."""
    for item in _stored_items(ById(workload)):
        place = place_for(item.at, site.machine)
        if place.is_free:
            continue
        terms = site.terms(place.provider)
        if item.kind == "disk":
            yield from _disk(item, terms, site.run)
            continue
        kind: StorageKind = item.kind  # type: ignore[assignment]  # checked when read
        rate = terms.storage_usd_per_byte_month.get(kind)
        if rate is None:
            what = f"{kind} storage of the {item.name} at {terms.name}"
            yield _unpriced(
                what, usual_usd_per_byte_month(kind), item.size_bytes, site.run.storage_s
            )
        else:
            source = terms.source_of(f"{kind}_storage")
            yield _storage_line(item, terms, rate, site.run.storage_s, source)


def _unpriced(what: str, usual: float | None, size_bytes: float, storage_s: Number) -> UnpricedItem:
    return UnpricedItem(
        what=f"{what}: no price known",
        usual_usd=None if usual is None else storage_s * (size_bytes * usual / MONTH_S),
    )


def _storage_line(
    item: StoredData, terms: Terms, rate: float, storage_s: Number, source: str, when: str = ""
) -> Line:
    return Line(
        name="storage",
        usd=storage_s * (item.size_bytes * rate / MONTH_S),
        how=lambda: (
            f"{item.name}: {item.size_bytes / GB:,.4g} GB x ${rate * GB:.4g}/GB-month x "
            f"{storage_s / DAY_S:,.1f} days at {terms.name}{when}"
        ),
        source=source,
        payee=terms.provider,
    )


def _disk(item: StoredData, terms: Terms, run: Run) -> Iterator[Line | UnpricedItem]:
    """The machine's own disk: one price while it runs, another while it is stopped."""
    stopped_s = np.maximum(run.storage_s - run.busy_s, 0.0)
    running = ("running_disk", terms.running_disk_usd_per_byte_month)
    if running[1] is None:
        running = ("volume", terms.storage_usd_per_byte_month.get("volume"))
    spans = (
        (*running, run.busy_s, " while running"),
        ("stopped_disk", terms.stopped_disk_usd_per_byte_month, stopped_s, " while stopped"),
    )
    for kind, rate, time_s, when in spans:
        if not is_nonzero(time_s):
            continue
        if rate is None:
            what = f"disk of the {item.name} at {terms.name}{when}"
            yield _unpriced(what, usual_usd_per_byte_month("volume"), item.size_bytes, time_s)
        else:
            source = terms.source_of(f"{kind}_storage")
            yield _storage_line(item, terms, rate, time_s, source, when)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pull:
    """Bytes moved from one place to another over the whole period."""

    origin: Place
    destination: Place
    name: str
    moved_bytes: Number


def _pulls(workload: Workload, site: _Site) -> Iterator[_Pull]:
    """Everything that is moved out of where it lies."""
    machine, data = site.machine, workload.data
    # Machines that replace those taken away pull once more.
    every = workload.usage.machines * site.run.sessions + site.run.interruptions
    for item in workload.stored:
        if item.pulled_bytes:
            at = place_for(item.at, machine)
            yield _pull(at, machine, item.name, item.pulled_bytes * every)
    if data.results_bytes:
        runs = workload.usage.sessions_per_month or 1.0
        yield _pull(machine, HOME, "results", data.results_bytes * runs)
    if data.size_bytes is None:
        return
    route = site.route
    if route.copied_by:
        yield _pull(route.origin, route.kept, "dataset", data.size_bytes)
    if route.fetched_from is not None:
        # A disk is kept between sessions, but goes with a machine that is taken away.
        on_disk = data.storage != "none" and route.kept == machine
        again = site.run.interruptions if route.fetched_each_session else 0.0
        times = 1.0 + again if on_disk else every
        yield _pull(route.fetched_from, machine, "dataset", data.size_bytes * times)


def _pull(origin: Place, destination: Place, name: str, moved_bytes: Number) -> _Pull:
    return _Pull(origin=origin, destination=destination, name=name, moved_bytes=moved_bytes)


def _transfer_lines(workload: Workload, site: _Site) -> Iterator[Line | UnpricedItem]:
    """What leaving each place costs; all that leaves a provider shares its free allowance."""
    months = np.maximum(site.run.calendar_s / MONTH_S, 1.0)
    free_left: dict[str, Number] = {}
    for pull in _pulls(workload, site):
        terms = site.terms(pull.origin.provider)
        price = transfer_price(pull.origin, pull.destination, terms, usual_egress_usd_per_byte())
        if price is None:
            continue
        if price.usd_per_byte is None:
            usual = price.usual_usd_per_byte
            yield UnpricedItem(
                what=f"transfer of the {pull.name} {price.way}: no price known",
                usual_usd=None if usual is None else pull.moved_bytes * usual,
            )
            continue
        free_bytes: Number = 0.0
        if price.to_internet:
            free = (terms.egress_free_bytes_per_month or 0.0) * months
            allowance = free_left.get(terms.provider, free)
            free_bytes = np.minimum(allowance, pull.moved_bytes)
            free_left[terms.provider] = allowance - free_bytes
        yield _transfer_line(pull, free_bytes, terms, price, price.usd_per_byte)


def _transfer_line(
    pull: _Pull, free_bytes: Number, terms: Terms, price: TransferPrice, rate: float
) -> Line:
    def how() -> str:
        free = f" less {free_bytes / GB:,.4g} GB free" if free_bytes else ""
        return (
            f"{pull.name}: {pull.moved_bytes / GB:,.4g} GB{free} x ${rate * GB:.4g}/GB {price.way}"
        )

    return Line(
        name="transfer",
        usd=(pull.moved_bytes - free_bytes) * rate,
        how=how,
        source=price.source,
        payee=terms.provider,
    )


def _host_traffic(workload: Workload, site: _Site) -> Iterator[Line | UnpricedItem]:
    """What a single host charges for what comes to it; what leaves it is in its terms."""
    host, name = site.offer.host, site.terms(site.offer.provider).name
    if host is None:
        return
    for pull in (*_pulls(workload, site), *_prepared_from_outside(workload, site)):
        if pull.destination == site.machine and pull.origin != site.machine:
            yield _into_host(pull, host.download_usd_per_byte, site.offer, name)


def _prepared_from_outside(workload: Workload, site: _Site) -> Iterator[_Pull]:
    """Data whose time to fetch is in the time to prepare it: it comes in all the same."""
    data, route = workload.data, site.route
    fetched = route.fetched_from is not None or route.copied_by
    if data.at != "internet" or not data.size_bytes or fetched:
        return
    times = site.run.sessions + site.run.interruptions if data.prepared_each_session else 1.0
    yield _pull(route.origin, site.machine, "dataset", data.size_bytes * times)


def _host_disk_lines(workload: Workload, site: _Site) -> Iterator[Line | UnpricedItem]:
    """The disk of a single host, of which one rents what one needs: the system on it, and the data
    where nothing else is paid for it."""
    data, offer = workload.data, site.offer
    if offer.host is None:
        return
    system = StoredData(name="system", size_bytes=assumed("host_system_bytes"), kind="disk")
    items = [system]
    if data.storage == "none" and data.size_bytes and data.kept_at == WITH_THE_RUN:
        items.append(StoredData(name="dataset", size_bytes=data.size_bytes, kind="disk"))
    terms = site.terms(offer.provider)
    for item in items:
        rate = offer.host.disk_usd_per_byte_month
        what = f"disk of the {item.name} at {terms.name} while running"
        if rate is None:
            usual = usual_usd_per_byte_month("volume")
            yield _unpriced(what, usual, item.size_bytes, site.run.busy_s)
        else:
            source = f"{offer.source}, {offer.as_of}"
            yield _storage_line(item, terms, rate, site.run.busy_s, source, " while running")


def _into_host(pull: _Pull, rate: float | None, offer: Offer, name: str) -> Line | UnpricedItem:
    if rate is None:
        what = f"transfer of the {pull.name} into the host at {name}: no price known"
        return UnpricedItem(what=what)
    return Line(
        name="transfer",
        usd=pull.moved_bytes * rate,
        how=lambda: (
            f"{pull.name}: {pull.moved_bytes / GB:,.4g} GB x ${rate * GB:.4g}/GB into the host"
        ),
        source=f"{offer.source}, {offer.as_of}",
        payee=offer.provider,
    )


def _copying_lines(site: _Site, sampler: Sampler) -> Iterator[Line]:
    """The machine that fills a volume, or copies from another cloud, while none is rented that
    trains."""
    route = site.route
    if route.copied_by != "copying machine" or not is_nonzero(site.run.before_s):
        return
    terms, copying_s = site.terms(route.kept.provider), site.run.before_s
    price: Number | None = terms.copying_machine_usd_per_hour
    source = terms.source_of("copying_machine")
    if price is None:
        row = assumptions()["copying_machine_usd_per_hour"]
        price = sampler.of("copying machine", assumed_range("copying_machine_usd_per_hour"))
        source = f"{row.source}, {row.as_of}"
    yield Line(
        name="copying machine",
        usd=copying_s * (price / HOUR_S),
        how=lambda: (
            f"{route.size_bytes / GB:,.4g} GB from {route.origin} to {route.kept}: "
            f"{copying_s / HOUR_S:,.2f} h x ${price:,.4g}/h"
        ),
        source=source,
        payee=terms.provider,
    )
