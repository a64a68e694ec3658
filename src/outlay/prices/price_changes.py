"""What refreshes changed: what became dearer, cheaper, new or gone since a day."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import snapshot_date, snapshot_offers
from outlay.offers.offer import Offer
from outlay.prices.history import (
    TENANCIES,
    MachineKey,
    PastPrices,
    RentTenancy,
    folded,
    history_names,
    last_second,
    past_usd,
    place_of,
    seller_named,
)
from outlay.prices.price_store import PastPrice

ChangeKind = Literal["dearer", "cheaper", "new", "gone"]
LEAST_CHANGE = 0.01
"""Smaller changes are not listed unless asked for: spot prices are never quite the same.

Assumes: 1 %; exchange rates move converted prices by about as much.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChange:
    """What became of the price of one machine type in one region, in one tenancy."""

    source: str
    provider: str
    instance: str
    region: str
    gpu: str
    gpus: float
    tenancy: RentTenancy
    kind: ChangeKind
    before_usd_per_hour: float | None
    """Of the whole machine; None where it was not sold so."""
    after_usd_per_hour: float | None

    JSON_PROPERTIES = ("change_fraction",)

    @property
    def change_fraction(self) -> float | None:
        """Of the price before: 0.2 is a fifth dearer; None for what is new or gone."""
        if self.before_usd_per_hour is None or self.after_usd_per_hour is None:
            return None
        return self.after_usd_per_hour / self.before_usd_per_hour - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTotal:
    """How many prices of a provider changed, by one source: machine types, regions, tenancies."""

    source: str
    provider: str
    begins: str
    """The day (YYYY-MM-DD) of the prices that are compared: the last known at the day asked for,
    else the first known after it."""
    ends: str
    """The day of the newest; equal to `begins` where there is nothing to compare with."""
    from_snapshot: bool
    """Whether the first of the two are those of the bundled snapshot."""
    dearer: int
    cheaper: int
    new: int
    gone: int
    same: int
    """Those that changed by less than what is listed included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceChanges:
    """What became dearer, cheaper, new or gone since a day."""

    since: str
    changes: tuple[PriceChange, ...]
    """By provider, the largest first; what is new and gone after them."""
    totals: tuple[ChangeTotal, ...]
    """For every source and provider with any price, by provider."""


def price_changes(
    since: str,
    *,
    until: str = "",
    provider: str = "",
    gpu: str = "",
    min_change: float = LEAST_CHANGE,
    store: PastPrices,
) -> PriceChanges:
    """What a refresh since a day changed: for every source, provider, machine type and region.

    `since` is a day, or a time (2026-11-16T20:15:00Z) where there were several refreshes on it. The
    comparison begins with the last prices known at that time; of a day with refreshes, with its
    first. Where none were, it begins with the oldest there are: the first refresh's, or the bundled
    snapshot's where those are of an earlier day. Zones count as their region. Changes of less than
    `min_change` (a fraction) are not listed.
    """
    names: frozenset[str] = frozenset()
    provider = seller_named(provider, store)
    if gpu:
        names = history_names(frozenset(each.name for each in find_gpu(gpu).candidates))
    start = since if "T" in since else f"{since}T00:00:00Z"
    then = _by_list(store.prices_at(start), provider, names)
    end = last_second(until or "9999-12-31")
    now = _by_list(store.prices_at(end), provider, names)
    changes: list[PriceChange] = []
    totals: list[ChangeTotal] = []
    for key in sorted({*then, *now}):
        refreshes = store.refresh_days(*key)
        before = _baseline(key, since, then.get(key), refreshes, store)
        found, same = _differences(before.prices, now.get(key, []), names, min_change)
        changes += found
        days = [day for day in refreshes if day <= end]
        totals.append(_total(key, before, max([before.day, *days]), found, same))
    changes.sort(key=_change_order)
    totals.sort(key=lambda total: (total.provider, total.source))
    return PriceChanges(since=since, changes=tuple(changes), totals=tuple(totals))


_ListKey = tuple[str, str]
"""A source and a provider."""


def _by_list(
    prices: Iterable[PastPrice], provider: str, names: frozenset[str]
) -> dict[_ListKey, list[PastPrice]]:
    """The prices of each list, of GPUs by `names` or all; a list without any of them is empty."""
    grouped: dict[_ListKey, list[PastPrice]] = defaultdict(list)
    for price in prices:
        if provider in ("", price.provider):
            own = grouped[(price.source, price.provider)]
            if not names or price.gpu in names:
                own.append(price)
    return grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Baseline:
    """The prices that a comparison begins with, and their day."""

    day: str
    prices: Sequence[PastPrice]
    from_snapshot: bool = False


def _baseline(
    key: _ListKey,
    since: str,
    earlier: Sequence[PastPrice] | None,
    days: Sequence[str],
    store: PastPrices,
) -> _Baseline:
    """The prices that stood when the comparison begins: `earlier`, or what was first kept after.

    days: those on which the list was refreshed.
    """
    source, provider = key
    day = since[:10]
    if day in days and "T" not in since:
        changed = {place_of(price): price for price in _first_of_day(key, day, store)}
        standing = {place_of(price): price for price in earlier or ()} | changed
        return _Baseline(day=day, prices=list(standing.values()))
    if earlier is not None:
        return _Baseline(day=max((one for one in days if one <= day), default=day), prices=earlier)
    first = _first_of_day(key, min(days), store) if days else []
    snapshot = _snapshot_prices(provider) if source == "skypilot" else []
    if snapshot and (not first or _day_of(snapshot) < _day_of(first)):
        return _Baseline(day=snapshot_date(), prices=snapshot, from_snapshot=True)
    return _Baseline(day=_day_of(first) if first else day, prices=first)


def _day_of(prices: Sequence[PastPrice]) -> str:
    """The day that a list's prices are of."""
    return max(price.as_of or price.at[:10] for price in prices)


def _first_of_day(key: _ListKey, day: str, store: PastPrices) -> list[PastPrice]:
    """What the first refresh of a day changed."""
    source, provider = key
    events = store.past(provider=provider, since=day, until=last_second(day))
    own = [price for price in events if price.source == source and price.at[:10] == day]
    return [price for price in own if price.at == own[0].at]


def _snapshot_prices(provider: str) -> list[PastPrice]:
    """The bundled snapshot, as it would be kept."""
    return [
        PastPrice(
            at=snapshot_date(),
            source="skypilot",
            provider=offer.provider,
            instance=offer.instance,
            region=offer.region,
            zone="",
            gpu=offer.gpu,
            gpus=offer.gpus * offer.gpu_share,
            price_usd_per_hour=offer.price_usd_per_hour,
            spot_usd_per_hour=offer.spot_usd_per_hour,
            as_of=offer.as_of,
        )
        for offer in _snapshot_offers()
        if offer.provider == provider
    ]


@cache
def _snapshot_offers() -> tuple[Offer, ...]:
    return snapshot_offers()


def _differences(
    before: Iterable[PastPrice],
    after: Iterable[PastPrice],
    names: frozenset[str],
    min_change: float,
) -> tuple[list[PriceChange], int]:
    """The changes that are listed, and how many prices are as they were."""
    whole_first, whole_last = folded(before), folded(after)
    first, last = _in_regions(whole_first, whole_last), _in_regions(whole_last, whole_first)
    changes, same = [], 0
    for machine in {**first, **last}:
        old, new = first.get(machine), last.get(machine)
        one = new or old
        if one is None or (names and one.gpu not in names):
            continue
        for tenancy in TENANCIES:
            old_usd = None if old is None else past_usd(old, tenancy)
            new_usd = None if new is None else past_usd(new, tenancy)
            kind = _change_kind(old_usd, new_usd, min_change)
            if kind is not None:
                changes.append(_change(one, tenancy, kind, old_usd, new_usd))
            elif new_usd is not None:
                same += 1
    return changes, same


def _in_regions(
    prices: Mapping[MachineKey, PastPrice], others: Mapping[MachineKey, PastPrice]
) -> dict[MachineKey, PastPrice]:
    """Prices, with one for `any` region as one for each region that the others have of its type."""
    regions: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for *kind, region in others:
        regions[tuple(kind)].append(region)
    made: dict[MachineKey, PastPrice] = {}
    for (source, provider, instance, region), price in prices.items():
        listed = regions[(source, provider, instance)]
        single = listed if region == "any" and listed and "any" not in listed else [region]
        for place in single:
            there = price if place == region else replace(price, region=place)
            made[(source, provider, instance, place)] = there
    return made


def _change(
    price: PastPrice,
    tenancy: RentTenancy,
    kind: ChangeKind,
    before: float | None,
    after: float | None,
) -> PriceChange:
    return PriceChange(
        source=price.source,
        provider=price.provider,
        instance=price.instance,
        region=price.region,
        gpu=price.gpu,
        gpus=price.gpus,
        tenancy=tenancy,
        kind=kind,
        before_usd_per_hour=before,
        after_usd_per_hour=after,
    )


def _change_kind(before: float | None, after: float | None, min_change: float) -> ChangeKind | None:
    """None where the price is as it was, or nearly, and where there is none."""
    if before is None or after is None:
        return "new" if after is not None else "gone" if before is not None else None
    change = after / before - 1
    if abs(change) < max(min_change, _ROUNDING):
        return None
    return "dearer" if change > 0 else "cheaper"


_ROUNDING = 1e-4
"""Prices are kept to five digits: a smaller change is none."""


def _total(
    key: _ListKey, before: _Baseline, ends: str, changes: Iterable[PriceChange], same: int
) -> ChangeTotal:
    kinds = Counter(change.kind for change in changes)
    return ChangeTotal(
        source=key[0],
        provider=key[1],
        begins=before.day,
        ends=ends,
        from_snapshot=before.from_snapshot,
        dearer=kinds["dearer"],
        cheaper=kinds["cheaper"],
        new=kinds["new"],
        gone=kinds["gone"],
        same=same,
    )


def _change_order(change: PriceChange) -> tuple[object, ...]:
    """By provider; the largest change first, up or down alike, then what is new, then gone."""
    fraction = change.change_fraction
    size = 0.0 if fraction is None else abs(math.log1p(fraction))
    place = (change.source, change.instance, change.region, change.tenancy)
    return (change.provider, change.kind == "gone", change.kind == "new", -size, *place)
