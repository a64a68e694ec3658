"""The bundled offers: the price snapshot, searched by GPU, memory, provider, region and price.

`bundled_offers` reads them, `gpu_filter` what people write of GPUs (`A100-80GB:8`, `24GB..80GB`),
`search` picks, and `reserved_offers` gives an offer once more for each term it can be taken for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache, lru_cache

from outlay.caching import ById
from outlay.errors import InputError, NotKnown
from outlay.facts import assumed, newest, rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu
from outlay.offers.expected_price import SpotMarket, at_best_zone
from outlay.offers.offer import CHEAPEST_REGION, AgreedDiscount, Commitment, Doubt, Offer, Tenancy
from outlay.offers.terms import known_provider
from outlay.uncertainty import Estimate
from outlay.units import GB, GIB, days_between, duration_s, size_bytes

_SAME_PRICE = 0.02
"""Two prices closer than this are one price, rounded twice."""
_SAME_MEMORY = 0.05
"""Nominal sizes closer than this are one size, counted differently."""
STALE_DAYS = 90
"""Days after which a price is doubted that fell behind the snapshot."""
_BEHIND_DAYS = 30
_IN_EVERY_REGION = ("any", CHEAPEST_REGION)
"""What is looked at whichever region is asked for: sold in all, or nobody noted where."""
_SIZE = r"\d[\d.]*? *[GgMmTt]i?[Bb]"
_MEMORY_RANGE = re.compile(
    rf"(?P<low>{_SIZE})(?P<plus>\+)?|(?P<from>{_SIZE})\.\.(?P<to>{_SIZE})?|\.\.(?P<most>{_SIZE})"
)
_COUNT = re.compile(r"(?P<low>\d+)(?:\.\.(?P<high>\d+)?)?")


@cache
def bundled_offers(today: str = "") -> tuple[Offer, ...]:
    """Every bundled offer: the newest snapshot, corrected by newer list prices.

    `today` (YYYY-MM-DD) turns announced withdrawals that have happened into withdrawn offers, and
    is what freshness is judged by.
    """
    return offers_on(snapshot_offers(), today, snapshot_date())


@cache
def snapshot_offers() -> tuple[Offer, ...]:
    """The offers of the bundled snapshot as it is."""
    return tuple(_offer(row) for row in rows_of(newest("offers")))


def offers_on(listed_offers: Sequence[Offer], today: str, as_of: str) -> tuple[Offer, ...]:
    """Offers as they are to be seen on a day: what list prices, moves and announced ends say of
    them since, and which of them fell behind the rest, whose day is `as_of`.

    What one was promised oneself stands as it is; a discount comes off list prices at the end.
    """
    agreed = {offer.identity: offer.discount for offer in listed_offers if offer.discount}
    promised = tuple(offer for offer in listed_offers if offer.in_own_list)
    listed_offers = [offer.at_list_price() for offer in listed_offers if not offer.in_own_list]
    listed = _newest_first(rows_of(newest("list_prices")))
    moves = rows_of("outdated_prices.csv")
    known = {offer.identity: offer for offer in listed_offers}
    listed_by, sold_by = _by_provider(listed), _by_provider_of(listed_offers)
    current = (
        doubted_by_age(_withdrawn_if_ended(offer, today), today, as_of) for offer in listed_offers
    )  # before a list price makes an offer new again: its spot price stays as old as it was
    compared = (
        _doubted_by_list_price(offer, listed_by.get(offer.provider, ()), known) for offer in current
    )
    besides = (
        _offer(row)
        for row in listed
        if not _is_in_snapshot(row, sold := sold_by.get(row["provider"], ()))
        and not _is_overtaken(row, sold)
    )
    moved = (_doubted_by_moves(offer, moves) for offer in (*compared, *besides))
    seen = (doubted_by_age(offer, today, as_of) for offer in moved)
    return (*promised, *(_agreed(offer, agreed.get(offer.identity)) for offer in seen))


def _agreed(offer: Offer, discount: AgreedDiscount | None) -> Offer:
    return offer if discount is None else offer.less(discount)


def at_best_zones(
    offers: tuple[Offer, ...],
    today: str = "",
    market: SpotMarket | None = None,
    kinds: Mapping[str, Doubt] | None = None,
) -> tuple[Offer, ...]:
    """Offers, each at the zone where its spot price is expected to be lowest.

    `kinds`: how grave the doubts about a zone are, where that is not as the table has it.
    """
    return _at_best_zones(ById(offers), today, ById(market), ById(kinds or doubt_kinds()))


@lru_cache(maxsize=4)
def _at_best_zones(
    offers: ById[tuple[Offer, ...]],
    today: str,
    market: ById[SpotMarket | None],
    kinds: ById[Mapping[str, Doubt]],
) -> tuple[Offer, ...]:
    return tuple(at_best_zone(offer, kinds.value, today, market.value) for offer in offers.value)


def _by_provider(rows: Iterable[Mapping[str, str]]) -> dict[str, list[Mapping[str, str]]]:
    grouped: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        grouped.setdefault(row["provider"], []).append(row)
    return grouped


def _by_provider_of(offers: Iterable[Offer]) -> dict[str, list[Offer]]:
    grouped: dict[str, list[Offer]] = {}
    for offer in offers:
        grouped.setdefault(offer.provider, []).append(offer)
    return grouped


def snapshot_date() -> str:
    """The day of the bundled price snapshot, YYYY-MM-DD."""
    return newest("offers").removeprefix("offers_").removesuffix(".csv")


def _offer(row: Mapping[str, str]) -> Offer:
    return Offer(
        provider=row["provider"],
        instance=row["instance"],
        gpu=row["gpu"],
        gpus=int(row["gpus"]),
        gpu_share=float(row.get("gpu_share") or 1),
        gpu_memory_bytes=_number(row.get("gpu_memory_gib"), GIB),
        vcpus=_number(row.get("vcpus")),
        ram_bytes=_number(row.get("ram_gib"), GIB),
        local_disk_bytes=_number(row.get("local_disk_gb"), GB),
        region=row["region"],
        zones=int(row.get("zones") or 1),
        price_usd_per_hour=_number(row["price_usd_hour"]),
        spot_usd_per_hour=_number(row["spot_usd_hour"]),
        spot_high_usd_per_hour=_number(row.get("spot_usd_hour_max")),
        as_of=row["as_of"],
        source=row["source"],
        doubts=tuple(doubt_kinds()[word] for word in row["doubts"].split(";") if word),
    )


@cache
def doubt_kinds() -> Mapping[str, Doubt]:
    """Every word that may be said against an offer."""
    return {
        row["doubt"]: Doubt(word=row["doubt"], kind=row["kind"], about=row["about"])  # type: ignore[arg-type]
        for row in rows_of("offer_doubts.csv")
    }


@cache
def doubt_meanings() -> Mapping[str, str]:
    """What every word that may be said against an offer means, in a sentence."""
    return {row["doubt"]: row["meaning"] for row in rows_of("offer_doubts.csv")}


def _withdrawn_if_ended(offer: Offer, today: str) -> Offer:
    """An offer whose announced end has come is withdrawn."""
    announced = doubt_kinds()["withdrawal announced"]
    if announced not in offer.doubts or not today:
        return offer
    has_ended = any(
        row["provider"] == offer.provider
        and fnmatchcase(offer.instance, row["instance_pattern"])
        and row["withdrawn"] <= today
        for row in rows_of("instance_ends.csv")
    )
    if not has_ended:
        return offer
    rest = tuple(doubt for doubt in offer.doubts if doubt != announced)
    return replace(offer, doubts=(*rest, doubt_kinds()["withdrawn"]))


def doubted_by_age(offer: Offer, today: str, as_of: str) -> Offer:
    """An offer that nobody has confirmed for long while others were: its list stands still.

    The age of a price widens its range, whatever others' is; only one that fell behind the rest
    is doubted, so that a catalogue that is old as a whole still has an answer. A spot price that
    is older than the other has its own age.
    """
    if not today:
        return offer
    words = {doubt.word for doubt in offer.doubts}
    if _is_behind(offer.as_of, today, as_of):
        word, said = "stale", {"stale"}
    elif offer.spot_as_of is not None and _is_behind(offer.spot_as_of, today, as_of):
        word, said = "stale spot", {"stale spot", "superseded spot"}
    else:
        return offer
    if words & said:
        return offer
    order = list(doubt_kinds())
    doubts = sorted((*offer.doubts, doubt_kinds()[word]), key=lambda doubt: order.index(doubt.word))
    return replace(offer, doubts=tuple(doubts))


def _is_behind(day: str, today: str, as_of: str) -> bool:
    """Whether a price of a day is old, and older than the rest."""
    return days_between(day, today) > STALE_DAYS and days_between(day, as_of) > _BEHIND_DAYS


# List prices and moves: what is known to be newer than the snapshot


def _newest_first(listed: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """List prices in the order they are asked: newest first, of a day the longest pattern."""
    return sorted(listed, key=lambda row: (row["as_of"], len(row["supersedes"])), reverse=True)


def _doubted_by_list_price(
    offer: Offer,
    listed: Iterable[Mapping[str, str]],
    known: Mapping[tuple[str, str, str], Offer],
) -> Offer:
    """An offer that a newer list price confirms is not stale; one that differs is doubted.

    A list price of one region speaks of the others by what has become of the price there: where
    it moved, theirs are doubted too; where it stands, so do those that were the same.
    """
    for row in listed:
        if not _is_newer_list_price(row, offer):
            continue
        there = offer if _covers(row["region"], offer.region) else known.get(_there(row, offer))
        if there is None or there.price_usd_per_hour is None:
            continue
        listed_usd = float(row["price_usd_hour"]) / int(row["gpus"])
        has_moved = not _is_same(listed_usd, there.price_usd_per_hour / there.gpus)
        if has_moved:
            words = ("superseded", *_spot_words(row, offer, has_moved))
            return replace(offer, doubts=(*offer.doubts, *(doubt_kinds()[word] for word in words)))
        if _is_same(offer.price_usd_per_hour or 0.0, there.price_usd_per_hour):
            return _confirmed(row, offer)
    return offer


def _confirmed(row: Mapping[str, str], offer: Offer) -> Offer:
    """An offer at a list price's date; its spot price keeps its own unless that is listed too."""
    words = _spot_words(row, offer, has_moved=False)
    fresh = tuple(doubt for doubt in offer.doubts if doubt.word != "stale")
    confirmed = replace(
        offer,
        doubts=(*fresh, *(doubt_kinds()[word] for word in words)),
        as_of=row["as_of"],
        source=row["source"],
    )
    if offer.spot_usd_per_hour is None or row["spot_usd_hour"]:
        return confirmed
    source = f"{row['source']}; spot: {offer.source}, {offer.as_of}"
    return replace(confirmed, source=source, spot_as_of=offer.as_of)


def _spot_words(row: Mapping[str, str], offer: Offer, has_moved: bool) -> tuple[str, ...]:
    """What a list price says against an offer's spot price."""
    if offer.spot_usd_per_hour is None:
        return ()
    if row["spot_usd_hour"]:
        listed_usd = float(row["spot_usd_hour"]) / int(row["gpus"])
        same = _is_same(listed_usd, offer.spot_usd_per_hour / offer.gpus)
        return () if same else ("superseded spot",)
    if has_moved:
        return ("superseded spot",)
    return ("stale spot",) if doubt_kinds()["stale"] in offer.doubts else ()


def _is_newer_list_price(row: Mapping[str, str], offer: Offer) -> bool:
    return (
        bool(row["supersedes"])
        and bool(row["price_usd_hour"])
        and offer.price_usd_per_hour is not None
        and row["provider"] == offer.provider
        and fnmatchcase(offer.instance, row["supersedes"])
        and row["as_of"] > offer.as_of
    )


def _is_in_snapshot(row: Mapping[str, str], snapshot: Iterable[Offer]) -> bool:
    """Whether a list price only repeats an offer of the snapshot, which then has its date."""
    return any(
        _is_newer_list_price(row, offer)
        and offer.gpus == int(row["gpus"])
        and offer.region in ("any", row["region"])
        and _is_same(float(row["price_usd_hour"]), offer.price_usd_per_hour or 0.0)
        for offer in snapshot
    )


def _is_overtaken(row: Mapping[str, str], offers: Iterable[Offer]) -> bool:
    """Whether prices that were refreshed since have what a list price was a correction of, by its
    name or, from a source with names of its own, by its GPUs."""
    return bool(row["supersedes"]) and any(
        offer.price_usd_per_hour is not None
        and offer.as_of >= row["as_of"]
        and _covers(row["region"], offer.region)
        and (
            fnmatchcase(offer.instance, row["supersedes"])
            or (offer.gpu, offer.gpus) == (row["gpu"], int(row["gpus"]))
        )
        for offer in offers
    )


def _covers(listed_region: str, region: str) -> bool:
    return "any" in (listed_region, region) or listed_region == region


def _there(row: Mapping[str, str], offer: Offer) -> tuple[str, str, str]:
    """The same instance type in the region of a list price."""
    return (offer.provider, offer.instance, row["region"])


def _is_same(listed_usd: float, usd: float) -> bool:
    return usd > 0 and abs(listed_usd / usd - 1) <= _SAME_PRICE


def _doubted_by_moves(offer: Offer, moves: Iterable[Mapping[str, str]]) -> Offer:
    """An offer with what is said of prices that have moved since, where no new figure is known."""
    words = {
        word: None
        for row in moves
        if row["provider"] == offer.provider
        and fnmatchcase(offer.instance, row["instance_pattern"])
        for word in row["doubts"].split(";")
        if _is_older(offer, doubt_kinds()[word], row["as_of"])
    }
    new = [doubt_kinds()[word] for word in words]
    added = tuple(doubt for doubt in new if doubt not in offer.doubts)
    return replace(offer, doubts=(*offer.doubts, *added)) if added else offer


def _is_older(offer: Offer, doubt: Doubt, as_of: str) -> bool:
    """Whether the price that a doubt is about is there, and from before a day."""
    if doubt.about == "spot":
        return offer.spot_usd_per_hour is not None and (offer.spot_as_of or offer.as_of) < as_of
    return offer.price_usd_per_hour is not None and offer.as_of < as_of


def _number(text: str | None, unit: float = 1.0) -> float | None:
    return float(text) * unit if text else None


# --- which GPUs: names, numbers, memory ---


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFilter:
    """Which GPUs and how many: `A100-80GB:8`, `H100:1..8`, `24GB..80GB`."""

    names: frozenset[str] = frozenset()
    """Facts names; empty means any."""
    low_bytes: float = 0.0
    high_bytes: float = float("inf")
    low_gpus: int = 1
    high_gpus: int | None = None

    def accepts(self, offer: Offer) -> bool:
        """Whether an offer is one of those."""
        if not self.low_gpus <= offer.gpus <= (self.high_gpus or offer.gpus):
            return False
        gpus = offer_gpus(offer)
        memory_bytes = offer.gpu_memory_bytes or min(gpu.memory_bytes for gpu in gpus)
        if not self.low_bytes <= memory_bytes <= self.high_bytes:
            return False
        return not self.names or any(gpu.name in self.names for gpu in gpus)


def gpu_filter(text: str) -> GpuFilter:
    """The filter a user wrote; memory in GB is read as cards are sold (24GB is 24 GiB)."""
    spelling, colon, count = text.partition(":")
    low_gpus, high_gpus = _count_range(text, count) if colon else (1, None)
    memory = _MEMORY_RANGE.fullmatch(spelling.strip())
    if memory is not None:
        low_bytes, high_bytes = _memory_range(text, memory)
        return GpuFilter(
            low_bytes=low_bytes, high_bytes=high_bytes, low_gpus=low_gpus, high_gpus=high_gpus
        )
    names = frozenset(gpu.name for gpu in find_gpu(spelling).candidates)
    return GpuFilter(names=names, low_gpus=low_gpus, high_gpus=high_gpus)


def _memory_range(text: str, memory: re.Match[str]) -> tuple[float, float]:
    """`24GB..80GB`, `24GB..`, `..80GB`; `24GB+` is at least, `24GB` just that."""
    if memory["low"] and not memory["plus"]:
        only = _nominal_bytes(memory["low"])
        return (0.97 * only, 1.03 * only)
    least, most = memory["low"] or memory["from"], memory["to"] or memory["most"]
    low = _nominal_bytes(least) if least else 0.0
    high = _nominal_bytes(most) if most else float("inf")
    if high < low:
        raise InputError(
            f"{text!r} is a memory range that ends before it begins.",
            fix="Write the smaller size first, for example 24GB..80GB.",
        )
    return low, high


def _nominal_bytes(text: str) -> float:
    """Cards are sold in GB and hold GiB."""
    return size_bytes(re.sub(r"(?i)\b([\d.]+ *[gmt])b", r"\1iB", text))


def _count_range(text: str, count: str) -> tuple[int, int | None]:
    match = _COUNT.fullmatch(count.strip())
    high = int(match["high"]) if match and match["high"] else None
    if match is None or int(match["low"]) == 0 or (high is not None and high < int(match["low"])):
        raise InputError(
            f"{text!r} has no usable number of GPUs after the colon.",
            fix="Write a number or a range, for example A100-80GB:8 or H100:1..8.",
        )
    low = int(match["low"])
    if ".." not in count:
        return low, low
    return low, high


@cache
def _gpus_named(name: str) -> tuple[Gpu, ...]:
    return find_gpu(name).candidates


def offer_gpus(offer: Offer) -> tuple[Gpu, ...]:
    """The GPUs an offer may have, slowest first: those of its name that have its memory."""
    named, memory_bytes = _gpus_named(offer.gpu), offer.gpu_memory_bytes
    if len(named) == 1 or memory_bytes is None or offer.gpu_share != 1:
        return named
    fitting = [gpu for gpu in named if abs(gpu.memory_bytes / memory_bytes - 1) < _SAME_MEMORY]
    return tuple(fitting) or named


# --- searching ---


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFilter:
    """A search: empty fields do not filter."""

    gpus: tuple[GpuFilter, ...] = ()
    providers: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    max_usd_per_hour: float | None = None
    spot: bool | None = None
    """True: only what is sold as spot, by spot price. False: only on demand."""
    trusted: bool = False
    """Whether only what a plan may choose is left: what has a price without a caution."""


def search(offers: Iterable[Offer], query: OfferFilter) -> list[Offer]:
    """The offers that satisfy a search, in the order they came."""
    everything = list(offers)
    sellers = tuple({offer.provider for offer in everything})
    providers = {known_provider(name, sellers) for name in query.providers}
    regions = known_regions(query.regions, everything)
    return [
        offer
        for offer in everything
        if (not query.gpus or any(gpus.accepts(offer) for gpus in query.gpus))
        and (not providers or offer.provider in providers)
        and (not regions or offer.region in _IN_EVERY_REGION or offer.region in regions)
        and _is_affordable(offer, query)
    ]


def known_regions(names: Collection[str], offers: Iterable[Offer]) -> set[str]:
    """The regions meant by names or their beginnings (`us-east` is every US east region)."""
    known = {offer.region for offer in offers}
    if names and CHEAPEST_REGION in known:
        known |= {offer.region for offer in snapshot_offers()}
    known.discard(CHEAPEST_REGION)
    regions: set[str] = set()
    for name in names:
        if not name:
            raise InputError("An empty text is not a region.", fix="Leave it out, or name one.")
        matching = {region for region in known if region.lower().startswith(name.lower())}
        if not matching:
            raise NotKnown("region", name, sorted(known))
        regions |= matching
    return regions


def _is_affordable(offer: Offer, query: OfferFilter) -> bool:
    """Whether it is sold as asked for, at no more than the price asked for."""
    tenancies: tuple[Tenancy, ...] = ("on-demand", "spot")
    if query.spot is not None:
        tenancies = ("spot",) if query.spot else ("on-demand",)
    if query.trusted:
        tenancies = tuple(tenancy for tenancy in tenancies if offer.is_trusted(tenancy))
    prices = [usd for tenancy in tenancies if (usd := offer.hourly_usd(tenancy)) is not None]
    if query.max_usd_per_hour is None:
        return bool(prices) or (query.spot is None and not query.trusted)
    return any(price <= query.max_usd_per_hour for price in prices)


# --- machines taken for a term at a discount ---


def reserved_offers(offer: Offer, day: str = "") -> Iterator[Offer]:
    """An offer once more for each term it can be taken for, at its price then.

    `day`: of prices of the past: discounts that were seen later are not known.
    """
    price_usd = offer.at_list_price().price_usd_per_hour
    if price_usd is None or offer.commitment is not None or offer.owned is not None:
        return
    if offer.discount is not None:
        price_usd *= 1 - offer.discount.reserved_fraction
    for row in _commitment_rows():
        is_known = not day or row["as_of"] <= day
        fits = row["provider"] == offer.provider and fnmatchcase(
            offer.instance, row["instance_pattern"]
        )
        if fits and is_known:
            yield replace(
                offer,
                commitment=Commitment(
                    name=f"{row['term']}, {row['payment']}",
                    term_s=duration_s(row["term"]),
                    price_usd_per_hour=_discounted_usd(price_usd, float(row["discount"])),
                    upfront_fraction=_upfront_fraction(row["payment"]),
                    source=f"{row['source']}, {row['as_of']}",
                ),
            )


def _discounted_usd(price_usd: float, discount: float) -> Estimate:
    """The price of an hour of a term.

    The discounts were seen in one region on one day: they are some points off elsewhere and later.
    Never above the price on demand.
    """
    error = assumed("commitment_discount_error")
    return Estimate(
        low=price_usd * max(1 - discount - error, 0.0),
        likely=price_usd * (1 - discount),
        high=price_usd * min(1 - discount + error, 1.0),
    )


def _upfront_fraction(payment: str) -> float:
    """The share of a term's price that is paid on its first day."""
    partial = assumed("partial_upfront_fraction")
    return {"all upfront": 1.0, "partial upfront": partial, "no upfront": 0.0}[payment]


@cache
def _commitment_rows() -> tuple[dict[str, str], ...]:
    return tuple(rows_of("commitments.csv"))
