"""From listings to offers: GPUs looked up, hosts and zones put together, known mistakes mended.

    listings of a source -> one offer for each machine type and region, with the doubts that the
    source's own way of listing calls for

The bundled snapshot is made by the same functions (`tools/build_offers.py`). What is known of
providers and catalogues is in tables: `gpu_spellings.csv`, `instance_forms.csv`,
`instance_disks.csv`, `instance_ends.csv`, `catalogue_quirks.csv`.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from outlay.facts import rows_of
from outlay.hardware.gpu_names import gpu_match
from outlay.hardware.gpus import Gpu
from outlay.offers.catalog import doubt_kinds
from outlay.offers.offer import Doubt, Offer
from outlay.prices.sources import Listing, ZonePrice
from outlay.units import GB, GIB

ANY_CATALOGUE = "*"
"""In `catalogue_quirks.csv`: what holds whoever lists it."""
NO_SAVING_FRACTION = 0.999
"""Spot from this share of on-demand upwards saves nothing; the lists round the two differently."""
# Assumes: no GPU costs as much; the dearest of 2026 was $26 an hour (AWS, B300 in Seoul).
ABSURD_USD_PER_GPU_HOUR = 10_000.0
_SIGNIFICANT_DIGITS = 5
_NAMED = 3
"""Examples in a note."""
_COUNTED = 9
_REMEMBERED = 2**14
"""Names of GPUs and machines whose meaning is kept: more than a provider has types."""
_FORM = re.compile(r"(?i)pcie|sxm|nvl(?!ink)")
# Assumes: what a driver reports is up to 7 % below the nominal size (22888 MiB of an A10G's 24 GiB,
# where error correction takes its part), and sizes that are sold differ by more than 15 %.
_SAME_MEMORY = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What one source sells of one provider, before anything is compared with other prices."""

    offers: tuple[Offer, ...]
    zones: tuple[ZonePrice, ...] = ()
    """Of providers whose prices differ from zone to zone."""
    unknown: tuple[Offer, ...] = ()
    """Offers of GPUs that outlay does not know, by the source's spelling."""
    notes: tuple[str, ...] = ()


def price_list(
    listings: Sequence[Listing], *, source: str, as_of: str, today: str = ""
) -> PriceList:
    """The offers in listings of one provider. `source` is where they were read, to be cited.

    `today` (YYYY-MM-DD) is the day by which announced ends have come; `as_of` where it is not
    given. Machines without any price are no offers, and named in a note; GPUs that nobody knows
    are kept apart, priced or not.
    """
    others = Counter(one.gpu for one in listings if is_no_gpu(one.gpu))
    machines = _machines([one for one in listings if one.gpu not in others and _has_gpus(one)])
    made = [_offer(group, source=source, as_of=as_of) for group in machines]
    dated = [_with_end(offer, today or as_of) for offer in made]
    known = [offer for offer, group in zip(dated, machines, strict=True) if group.gpu.is_known]
    unknown = [
        offer for offer, group in zip(dated, machines, strict=True) if not group.gpu.is_known
    ]
    priced = [offer for offer in known if _has_price(offer)]
    return PriceList(
        offers=tuple(sorted(_anywhere(priced), key=_order)),
        zones=tuple(zone for group in machines if group.gpu.is_known for zone in group.zones()),
        unknown=tuple(sorted(_anywhere(unknown), key=_order)),
        notes=(*_left_out(others), *_unpriced(known), *_named_unknown(unknown)),
    )


MOST_GPUS = 1024.0
"""In one machine; a row with more is damaged."""


def _has_gpus(listing: Listing) -> bool:
    return bool(listing.gpu) and 0 < listing.gpus <= MOST_GPUS


def _order(offer: Offer) -> tuple[str, str]:
    return (offer.instance, offer.region)


def _has_price(offer: Offer) -> bool:
    return offer.price_usd_per_hour is not None or offer.spot_usd_per_hour is not None


# --- notes ---


def _left_out(others: Counter[str]) -> Iterator[str]:
    if others:
        yield not_gpus_note(others)


def not_gpus_note(others: Counter[str]) -> str:
    """What to say of accelerators that are no GPUs."""
    return f"Not GPUs, so left out ({others.total():,} in all): {_counted(others)}."


def _unpriced(offers: Sequence[Offer]) -> Iterator[str]:
    without = [f"{o.instance} in {o.region}" for o in offers if not _has_price(o)]
    if without:
        more = f" and {len(without) - _NAMED} more" if len(without) > _NAMED else ""
        yield f"Listed without any price, so left out: {', '.join(without[:_NAMED])}{more}."


def _named_unknown(offers: Sequence[Offer]) -> Iterator[str]:
    if offers:
        yield f"GPUs that outlay does not know: {_counted(Counter(o.gpu for o in offers))}."


def _counted(names: Counter[str]) -> str:
    """The commonest names with their numbers."""
    first = ", ".join(f"{name} ({count})" for name, count in names.most_common(_COUNTED))
    return f"{first} and {len(names) - _COUNTED:,} more" if len(names) > _COUNTED else first


# --- what is known of catalogues ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Quirk:
    """What one catalogue does its own way, or a provider in all of them: a row of
    `catalogue_quirks.csv`."""

    instance_pattern: str
    kind: str
    """`doubt`, `gpus`, `memory`, `ram`, `currency`, `price`, `host`, `region`, `zones`, `end`."""
    value: str


@cache
def quirks(catalogue: str, provider: str) -> tuple[Quirk, ...]:
    """What is known of a provider in a catalogue, `ANY_CATALOGUE` for what holds in all."""
    return tuple(
        Quirk(instance_pattern=row["instance_pattern"], kind=row["quirk"], value=row["value"])
        for row in rows_of("catalogue_quirks.csv")
        if row["catalogue"] == catalogue and row["provider"] == provider
    )


@lru_cache(_REMEMBERED)
def quirk_values(catalogue: str, provider: str, kind: str, instance: str = "") -> tuple[str, ...]:
    """The values of one kind of quirk that hold for an instance type, or for all of a provider."""
    return tuple(
        quirk.value
        for quirk in quirks(catalogue, provider)
        if quirk.kind == kind and fnmatchcase(instance, quirk.instance_pattern)
    )


@lru_cache(_REMEMBERED)
def is_no_gpu(spelling: str) -> bool:
    """Whether an accelerator is known to be no GPU (TPU, Trainium, Gaudi ...)."""
    name = spelling.lower()
    rows = (row for row in _spelling_rows() if not row["gpu"])
    return any(fnmatchcase(name, row["spelling"].lower()) for row in rows)


# --- which GPU it is ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _ListedGpu:
    """The GPU of a listing by outlay's names, or by the source's where nobody knows it."""

    name: str
    is_known: bool
    memory_bytes: float | None
    """Nominal, of a whole GPU."""
    doubts: tuple[str, ...] = ()


@lru_cache(_REMEMBERED)
def _listed_gpu(
    provider: str, spelling: str, instance: str, gpus: float, stated_bytes: float | None
) -> _ListedGpu:
    """What a source means by a GPU of an instance type, of which it says so much memory."""
    candidates = _candidates(provider, spelling, instance)
    fitting = candidates
    if stated_bytes is not None:
        fitting = (
            _of_memory(candidates, stated_bytes)
            or (_of_size(provider, spelling, instance, stated_bytes) if candidates else ())
            or _in_another_unit(candidates, gpus, stated_bytes)
        )
    meant = _of_form(fitting or candidates, instance)
    name = _family(meant)
    if not name:
        return _ListedGpu(name=spelling, is_known=False, memory_bytes=stated_bytes)
    words = {
        "memory differs": not fitting,
        "form not stated": len(meant) > 1,
        "fraction of a GPU": gpus < 1 or " MIG " in name,
    }
    return _ListedGpu(
        name=name,
        is_known=True,
        # Most GPUs of a name have one size: of three P100 one has 12 GB.
        memory_bytes=statistics.mode(gpu.memory_bytes for gpu in meant),
        doubts=tuple(word for word, holds in words.items() if holds),
    )


def _candidates(provider: str, spelling: str, instance: str) -> tuple[Gpu, ...]:
    """The GPUs that a spelling may mean for an instance type, slowest first; none if unknown."""
    meant = _meanings(provider, spelling, instance)
    if meant:
        return _all_named(_formed(provider, instance, name) for name in meant)
    meaning, candidates = _found(spelling, provider)
    formed = _formed(provider, instance, meaning)
    return candidates if formed == meaning else _named(formed)


def _meanings(provider: str, spelling: str, instance: str) -> tuple[str, ...]:
    """Our names for a provider's spelling; of those that are of an instance type, the ones with
    the longest pattern that fits, and all of them for one that fits none."""
    rows = _spellings().get((provider, spelling), ())
    fits = [(_fit(row, instance), row["gpu"]) for row in rows]
    best = max((fit for fit, _ in fits), default=-1)
    return tuple(dict.fromkeys(gpu for fit, gpu in fits if fit == best))


def spelling_of(provider: str, gpu: str, instance: str = "") -> str | None:
    """How a provider spells one of our names, of several the one that fits the instance type, then
    the shortest; None where no list of it has that GPU."""
    meant = set(_named(gpu))
    fits = [
        (_fit(row, instance), row["gpu"] == gpu, -len(row["spelling"]), row["spelling"])
        for row in _spelling_rows()
        if row["provider"] == provider and meant.intersection(_named(row["gpu"]))
    ]
    return max(fits)[3] if fits else None


def _fit(row: dict[str, str], instance: str) -> int:
    """The length of the pattern in a row's note that fits; -1 where none does."""
    _, _, patterns = row["note"].partition("for instances ")
    if not patterns:
        return 0
    lengths = (len(one) for one in patterns.split() if fnmatchcase(instance, one))
    return max(lengths, default=-1)


def _formed(provider: str, instance: str, gpu: str) -> str:
    """A GPU with its form (PCIe, SXM), from the first row of `instance_forms.csv` that fits."""
    for row in _forms().get((provider, gpu), ()):
        if fnmatchcase(instance, row["instance_pattern"]):
            return row["gpu"]
    return gpu


def _all_named(names: Iterable[str]) -> tuple[Gpu, ...]:
    return tuple({gpu.name: gpu for name in names for gpu in _named(name)}.values())


def _named(name: str) -> tuple[Gpu, ...]:
    return _found(name)[1] if name else ()


@lru_cache(_REMEMBERED)
def _found(spelling: str, provider: str | None = None) -> tuple[str, tuple[Gpu, ...]]:
    """What a spelling means, and the GPUs that may be it; none where nobody knows it."""
    match = gpu_match(spelling, provider)
    return (spelling, ()) if match is None else (match.meaning, match.candidates)


def _of_memory(candidates: Sequence[Gpu], stated_bytes: float) -> tuple[Gpu, ...]:
    """Those of the candidates that have the memory stated."""
    return tuple(gpu for gpu in candidates if _is_same(gpu.memory_bytes, stated_bytes))


def _of_size(provider: str, spelling: str, instance: str, stated_bytes: float) -> tuple[Gpu, ...]:
    """GPUs of a spelling with another memory than the provider usually means by it."""
    if stated_bytes < GIB / 2:  # claims MiB and means GiB
        return ()
    _, named = _found(f"{spelling} {round(stated_bytes / GIB)}GB")
    return _named(_formed(provider, instance, _family(_of_memory(named, stated_bytes))))


def _of_form(gpus: tuple[Gpu, ...], instance: str) -> tuple[Gpu, ...]:
    """Those of the GPUs whose form the name of the instance type has (`gpu_1x_h100_sxm5`)."""
    forms = {form.lower() for form in _FORM.findall(instance)} if len(gpus) > 1 else set()
    fitting = tuple(gpu for gpu in gpus if any(form in gpu.name.lower() for form in forms))
    return fitting or gpus


def _in_another_unit(
    candidates: Sequence[Gpu], gpus: float, stated_bytes: float
) -> tuple[Gpu, ...]:
    """Those of the candidates that have the memory stated in the unit that explains it first.

    Lists give a share's memory for the whole, GiB where they claim MiB, or all GPUs' for one.
    """
    share, whole = min(gpus, 1.0), max(gpus, 1.0)
    for slip in (1 / share, 1024.0, 1 / whole, 1024.0 / whole):
        if fitting := _of_memory(candidates, stated_bytes * slip):
            return fitting
    return ()


def _is_same(nominal_bytes: float, stated_bytes: float) -> bool:
    return abs(stated_bytes / nominal_bytes - 1) <= _SAME_MEMORY


def _family(gpus: Sequence[Gpu]) -> str:
    """The name of one GPU, or what the names of several have in common (`A100 80GB`); nothing
    where that names no GPU."""
    names = [gpu.name.split() for gpu in gpus]
    common = [word for word in (names or [[]])[0] if all(word in name for name in names)]
    return " ".join(common) if _named(" ".join(common)) else ""


@cache
def _spelling_rows() -> tuple[dict[str, str], ...]:
    return tuple(rows_of("gpu_spellings.csv"))


@cache
def _spellings() -> dict[tuple[str, str], tuple[dict[str, str], ...]]:
    return _by(_spelling_rows(), "provider", "spelling")


@cache
def _forms() -> dict[tuple[str, str], tuple[dict[str, str], ...]]:
    return _by(rows_of("instance_forms.csv"), "provider", "raw_gpu")


def _by(
    rows: Iterable[dict[str, str]], first: str, second: str
) -> dict[tuple[str, str], tuple[dict[str, str], ...]]:
    grouped: dict[tuple[str, str], tuple[dict[str, str], ...]] = {}
    for row in rows:
        key = (row[first], row[second])
        grouped[key] = (*grouped.get(key, ()), row)
    return grouped


# --- machines: the listings of one type in one region ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """A machine type in a region, with the listings of it."""

    instance: str
    region: str
    gpu: _ListedGpu
    doubts: frozenset[str]
    """Of its GPU."""
    is_by_zone: bool
    zone_prices: Mapping[str, tuple[float | None, float | None]]
    """What each zone asks, on demand and as spot; one zone where they are not told apart."""
    listings: tuple[Listing, ...]

    @property
    def provider(self) -> str:
        return self.listings[0].provider

    def zones(self) -> Iterator[ZonePrice]:
        """The prices of its zones, where the provider has some that it prices apart."""
        if self.is_by_zone and any(one.zone for one in self.listings):
            for zone, (price, spot) in self.zone_prices.items():
                yield ZonePrice(
                    provider=self.provider,
                    instance=self.instance,
                    region=self.region,
                    zone=zone,
                    price_usd_per_hour=_shortened(price),
                    spot_usd_per_hour=_shortened(spot),
                )


def _zone_prices(
    listings: Iterable[Listing], *, is_by_zone: bool
) -> dict[str, tuple[float | None, float | None]]:
    """What each zone asks; the least of what it is listed at."""
    prices: dict[str, tuple[float | None, float | None]] = {}
    for one in listings:
        zone = one.zone if is_by_zone else ""
        pair = (_usable(one.price_usd_per_hour, one), _usable(one.spot_usd_per_hour, one))
        if zone in prices:
            before = prices[zone]
            pair = (_least((before[0], pair[0])), _least((before[1], pair[1])))
        prices[zone] = pair
    return {zone: pair for zone, pair in prices.items() if pair != (None, None)}


def _usable(usd: float | None, listing: Listing) -> float | None:
    """A price that can be one: above zero, and not absurd for so many GPUs."""
    highest_usd = ABSURD_USD_PER_GPU_HOUR * listing.gpus
    return usd if usd is not None and 0 < usd <= highest_usd else None


def _machines(listings: Sequence[Listing]) -> list[_Machine]:
    """The machine types in listings by region, in the order met.

    A name that stands for several machines of one region is told apart by its GPUs.
    """
    groups: dict[tuple[str, str], dict[str, list[tuple[_ListedGpu, Listing]]]] = {}
    for one in listings:
        stated_bytes = one.gpu_memory_bytes
        if stated_bytes is not None and not 0 < stated_bytes < math.inf:
            stated_bytes = None
        gpu = _listed_gpu(one.provider, one.gpu, one.instance, one.gpus, stated_bytes)
        named = groups.setdefault((one.instance, _region(one)), {})
        named.setdefault(f"{one.gpus:g}x {gpu.name}", []).append((gpu, one))
    return [
        _machine(instance if number == 0 else f"{instance} ({gpus})", region, own)
        for (instance, region), named in groups.items()
        for number, (gpus, own) in enumerate(named.items())
    ]


def _machine(instance: str, region: str, own: Sequence[tuple[_ListedGpu, Listing]]) -> _Machine:
    listings = tuple(listing for _, listing in own)
    is_by_zone = "apart" in quirk_values(ANY_CATALOGUE, listings[0].provider, "zones")
    return _Machine(
        instance=instance,
        region=region,
        gpu=own[0][0],
        doubts=frozenset(word for gpu, _ in own for word in gpu.doubts),
        is_by_zone=is_by_zone,
        zone_prices=_zone_prices(listings, is_by_zone=is_by_zone),
        listings=listings,
    )


# Source: the scheme of AWS zone ids, https://docs.aws.amazon.com/ram/latest/userguide/
# working-with-az-ids.html: `usw2-lax1-az1` is in the zone group `us-west-2-lax-1`,
# `use1-wl1-bos-wlz1` in the wavelength group `us-east-1-wl1`, `use1-az6` in the region itself.
_AWS_LOCAL = re.compile(r"[a-z]+\d-([a-z]{3})(\d)-az\d")
_AWS_WAVELENGTH = re.compile(r"[a-z]+\d-(wl\d)-[a-z]{3}-wlz\d")


def _region(listing: Listing) -> str:
    """The region of a listing; an AWS Local Zone is one of its own, because it is billed so."""
    region = listing.region.strip(" ,") or "unknown"
    if group := _aws_zone_group(listing):
        return f"{region}-{group}"
    return region


def _aws_zone_group(listing: Listing) -> str:
    """`lax-1` or `wl1` of a zone that is apart from its region, else nothing."""
    if listing.provider != "aws" or not listing.zone:
        return ""
    if local := _AWS_LOCAL.fullmatch(listing.zone):
        return f"{local[1]}-{local[2]}"
    wavelength = _AWS_WAVELENGTH.fullmatch(listing.zone)
    return wavelength[1] if wavelength else ""


# --- offers ---


def _offer(machine: _Machine, *, source: str, as_of: str) -> Offer:
    """A machine type in a region: lowest on-demand price, cheapest and dearest zone with real
    spot."""
    first = machine.listings[0]
    price, spots, words = _regional_prices(machine)
    memory_bytes, share = machine.gpu.memory_bytes, min(first.gpus, 1.0)
    return Offer(
        provider=first.provider,
        instance=machine.instance,
        gpu=machine.gpu.name,
        gpus=max(1, round(first.gpus)),
        gpu_share=share,
        gpu_memory_bytes=None if memory_bytes is None else memory_bytes * share,
        vcpus=_least(one.vcpus for one in machine.listings),
        ram_bytes=_least(one.ram_bytes for one in machine.listings),
        local_disk_bytes=_local_disk_bytes(machine),
        region=machine.region,
        zones=max(1, len(machine.zone_prices)),
        price_usd_per_hour=_shortened(price),
        spot_usd_per_hour=_shortened(min(spots, default=None)),
        spot_high_usd_per_hour=_shortened(max(spots, default=None)),
        as_of=as_of,
        source=f"{source}: {first.note}" if first.note else source,
        doubts=_doubts({*words, *machine.doubts, *_machine_words(machine)}),
        host=first.host if len(machine.listings) == 1 else None,
    )


def _regional_prices(machine: _Machine) -> tuple[float | None, list[float], set[str]]:
    """The price of a region, the spot prices of its zones that save something, and doubts."""
    zones = machine.zone_prices.values()
    asked = {_usable(one.price_usd_per_hour, one) for one in machine.listings} - {None}
    price = min((usd for usd, _ in zones if usd is not None), default=None)
    listed = [spot for _, spot in zones if spot is not None]
    spots = [spot for spot in listed if price is None or spot < NO_SAVING_FRACTION * price]
    words = {
        "zones differ": len(asked) > 1,
        "spot only": price is None and bool(listed),
        "spot not below on-demand": bool(listed) and not spots,
        "spot in some zones": bool(spots) and len(spots) < len(zones),
    }
    return price, spots, {word for word, holds in words.items() if holds}


def _machine_words(machine: _Machine) -> Iterator[str]:
    """What the listings, the provider and the machine's own name say against it."""
    for one in machine.listings:
        yield from one.doubts
    own_name = machine.listings[0].instance
    yield from quirk_values(ANY_CATALOGUE, machine.provider, "doubt", own_name)
    if _counts_otherwise(machine.listings[0]):
        yield "count differs"
    if any(_aws_zone_group(one) for one in machine.listings):
        yield "local zone"
    if len({(one.vcpus, one.ram_bytes) for one in machine.listings}) > 1:
        yield "machines differ"


# Source: names of instance types such as `8x_H100-SXM`, `gpu_8x_a100`, `H100x8`, `gpu-h200_8gpu`
# and `h200.8x`, which the machines of eleven clouds in SkyPilot's catalogue of 2026-08-22 have.
_COUNT = re.compile(
    r"(?:^|_)(\d{1,2})x(?=[-_A-Za-z])|x(\d{1,2})$|_(\d{1,2})gpu(?=[-_]|$)|\.(\d{1,2})x$"
)


def _counts_otherwise(listing: Listing) -> bool:
    """Whether the name of an instance type has another number of GPUs than its listing."""
    named = {int(n) for found in _COUNT.findall(listing.instance) for n in found if n}
    return bool(named) and listing.gpus >= 1 and listing.gpus not in named


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _shortened(usd: float | None) -> float | None:
    """A price to five significant digits, as lists round theirs."""
    return None if usd is None else float(f"{usd:.{_SIGNIFICANT_DIGITS}g}")


def _doubts(words: set[str]) -> tuple[Doubt, ...]:
    """Doubts in the order of their table."""
    return tuple(doubt for word, doubt in doubt_kinds().items() if word in words)


def _local_disk_bytes(machine: _Machine) -> float | None:
    known = _disks().get((machine.provider, machine.instance), "")
    return float(known) * GB if known else _least(o.local_disk_bytes for o in machine.listings)


@cache
def _disks() -> dict[tuple[str, str], str]:
    rows = rows_of("instance_disks.csv")
    return {(row["provider"], row["instance"]): row["local_disk_gb"] for row in rows}


def _with_end(offer: Offer, today: str) -> Offer:
    """The offer, doubted if `instance_ends.csv` has a day on which it is withdrawn."""
    end = _end(offer.provider, offer.instance)
    if not end:
        return offer
    word = "withdrawn" if end <= today else "withdrawal announced"
    return replace(offer, doubts=_doubts({word, *(doubt.word for doubt in offer.doubts)}))


@lru_cache(_REMEMBERED)
def _end(provider: str, instance: str) -> str:
    for pattern, withdrawn in _ends().get(provider, ()):
        if fnmatchcase(instance, pattern):
            return withdrawn
    return ""


@cache
def _ends() -> dict[str, tuple[tuple[str, str], ...]]:
    """Patterns of instance types with the day they are withdrawn, by provider."""
    ends: dict[str, tuple[tuple[str, str], ...]] = {}
    for row in rows_of("instance_ends.csv"):
        known = ends.get(row["provider"], ())
        ends[row["provider"]] = (*known, (row["instance_pattern"], row["withdrawn"]))
    return ends


def _anywhere(offers: Sequence[Offer]) -> Iterator[Offer]:
    """One offer `any` for an instance that costs the same in every region of its provider.

    Several regions, all regions the provider has, and equal in everything but the region; else
    the offers stay as they are, because `any` would claim places where it is not sold.
    """
    regions = {offer.region for offer in offers}
    groups: dict[str, list[Offer]] = {}
    for offer in offers:
        groups.setdefault(offer.instance, []).append(offer)
    for group in groups.values():
        if 1 < len(group) == len(regions) and len({_besides_region(o) for o in group}) == 1:
            yield replace(group[0], region="any", zones=len(group))
        else:
            yield from group


def _besides_region(offer: Offer) -> tuple[object, ...]:
    return (
        (offer.gpu, offer.gpus, offer.gpu_share, offer.vcpus, offer.ram_bytes, offer.zones),
        (offer.price_usd_per_hour, offer.spot_usd_per_hour, offer.spot_high_usd_per_hour),
        (offer.doubts, offer.gpu_memory_bytes, offer.local_disk_bytes, offer.host),
    )
