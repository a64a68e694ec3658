"""What keeping and moving data costs: storage by the GB-month, transfer out of each place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from outlay.caching import ById
from outlay.cost.lines import Line, UnpricedItem
from outlay.offers.offer import Offer
from outlay.offers.terms import (
    StorageKind,
    Terms,
    usual_egress_usd_per_byte,
    usual_usd_per_byte_month,
)
from outlay.predict.run_time import Run
from outlay.uncertainty import Number, is_nonzero
from outlay.units import DAY_S, GB, MONTH_S
from outlay.workload.workload import FREE_SOURCES, WITH_THE_RUN, StoredData, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where things lie and move: the offer, its run, and everybody's terms."""

    offer: Offer
    run: Run
    terms: Callable[[str], Terms]

    def named(self, at: str) -> str:
        """The provider something lies at."""
        return self.offer.provider if at == WITH_THE_RUN else at

    def is_free(self, place: str) -> bool:
        """Whether nobody charges for keeping things there."""
        return place in FREE_SOURCES or (
            place == self.offer.provider and self.offer.owned is not None
        )


def storage_and_transfer_lines(
    workload: Workload, offer: Offer, run: Run, terms: Callable[[str], Terms]
) -> tuple[list[Line], tuple[UnpricedItem, ...]]:
    """The lines of storage and transfer, and what of them has no known price."""
    place = _Place(offer=offer, run=run, terms=terms)
    items = [*_storage_lines(workload, place), *_transfer_lines(workload, place)]
    lines = [item for item in items if isinstance(item, Line)]
    return lines, tuple(item for item in items if isinstance(item, UnpricedItem))


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


def _storage_lines(workload: Workload, place: _Place) -> Iterator[Line | UnpricedItem]:
    for item in _stored_items(ById(workload)):
        at = place.named(item.at)
        if place.is_free(at):
            continue
        terms = place.terms(at)
        if item.kind == "disk":
            yield from _disk(item, terms, place.run)
            continue
        kind: StorageKind = item.kind  # type: ignore[assignment]  # checked when read
        rate = terms.storage_usd_per_byte_month.get(kind)
        if rate is None:
            what = f"{kind} storage of the {item.name} at {terms.name}"
            yield _unpriced(
                what, usual_usd_per_byte_month(kind), item.size_bytes, place.run.storage_s
            )
        else:
            source = terms.source_of(f"{kind}_storage")
            yield _storage_line(item, terms, rate, place.run.storage_s, source)


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
    """Bytes moved out of a place over the whole period."""

    place: str
    name: str
    moved_bytes: Number


def _pulls(workload: Workload, place: _Place) -> Iterator[_Pull]:
    """Everything that is moved out of where it lies."""
    every = workload.usage.machines * place.run.sessions
    for item in workload.stored:
        if item.pulled_bytes:
            yield _Pull(place=item.at, name=item.name, moved_bytes=item.pulled_bytes * every)
    data = workload.data
    if data.results_bytes:
        runs = workload.usage.sessions_per_month or 1.0
        yield _Pull(place="results", name="results", moved_bytes=data.results_bytes * runs)
    if data.size_bytes is None:
        return
    if data.kept_at == WITH_THE_RUN:
        times = 1.0 if data.storage != "none" else every
        yield _Pull(place=data.at, name="dataset", moved_bytes=data.size_bytes * times)
    else:
        if data.at != data.kept_at:
            yield _Pull(place=data.at, name="dataset", moved_bytes=data.size_bytes)
        yield _Pull(place=data.kept_at, name="dataset", moved_bytes=data.size_bytes * every)


def _transfer_lines(workload: Workload, place: _Place) -> Iterator[Line | UnpricedItem]:
    """What leaving each place costs; all that leaves a provider shares its free allowance."""
    months = np.maximum(place.run.calendar_s / MONTH_S, 1.0)
    free_left: dict[str, Number] = {}
    for pull in _pulls(workload, place):
        home = pull.place == "results"  # what is fetched home leaves the machine's own provider
        if not home and pull.place in (place.offer.provider, WITH_THE_RUN, *FREE_SOURCES):
            continue
        at = place.offer.provider if home else pull.place
        if home and place.offer.owned is not None:
            continue
        terms = place.terms(at)
        if terms.egress_usd_per_byte is None:
            usual = usual_egress_usd_per_byte()
            yield UnpricedItem(
                what=f"transfer of the {pull.name} out of {terms.name}: no price known",
                usual_usd=None if usual is None else pull.moved_bytes * usual,
            )
            continue
        allowance = free_left.get(at, (terms.egress_free_bytes_per_month or 0.0) * months)
        free_bytes = np.minimum(allowance, pull.moved_bytes)
        free_left[at] = allowance - free_bytes
        yield _transfer_line(pull, free_bytes, terms, terms.egress_usd_per_byte)


def _transfer_line(pull: _Pull, free_bytes: Number, terms: Terms, rate: float) -> Line:
    def how() -> str:
        free = f" less {free_bytes / GB:,.4g} GB free" if free_bytes else ""
        return (
            f"{pull.name}: {pull.moved_bytes / GB:,.4g} GB{free} x "
            f"${rate * GB:.4g}/GB out of {terms.name}"
        )

    return Line(
        name="transfer",
        usd=(pull.moved_bytes - free_bytes) * rate,
        how=how,
        source=terms.source_of("egress"),
        payee=terms.provider,
    )
