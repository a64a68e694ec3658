"""What is doubtful about prices: rows one by one, and when a whole reply is refused.

Three times prices are looked at:

    refusal             as a reply comes in: is it what the source gives, and no less than before?
    doubted_by_past     as a reply comes in: does a price fit what it was, and the list's others?
    doubted_by_others   as a price book is made: does it fit what others ask for the same GPU, and
                        what other sources say of the same machine?

A doubt is a word of `data/offer_doubts.csv`; no offer is dropped or moved for one. docs/prices.md
has every threshold. `compare_sources` shows what several sources say of the same machines.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from statistics import median
from typing import TypeVar

from outlay.hardware.gpu_names import gpu_match
from outlay.offers.catalog import GpuFilter, doubt_kinds
from outlay.offers.offer import BEFORE, Offer, OtherPrice
from outlay.prices.price_list import PriceList
from outlay.prices.sources import ProviderPrices, ReadListings
from outlay.units import days_between

K = TypeVar("K", bound=Hashable)
Price = Callable[[Offer], float | None]

BUNDLED = "bundled"
"""What the snapshot that comes with outlay is called beside other sources."""
OWN = "own"
"""What lists of one's own are called beside other sources."""
_MOST_FAILING = Fraction(1, 10)
"""Of what a reply lists: where more fails, it is refused whole."""
_MOST_GONE = Fraction(1, 3)
"""Of what was there before: where so much is gone, the reply is refused whole."""
MOVED_FACTOR = 4.0
"""Times or a part of the last good price from which a price is no change but a mistake.

Source: monthly on-demand prices from 2022-07 to 2026-08 (docs/prices.md): of 9,576 pairs a month
apart, in lists renewed in between, 5 moved so far, four auction floors and a mistake; of 6,429 a
year apart none.
"""
_FAR_FROM_LAST = "more than 4 times or less than a quarter of the last good ones"
_LONGEST_REASON = 120
"""Characters of what is wrong with a row."""
_SAME_PRICE = 0.02
"""Two prices closer than this are one price, rounded twice."""


def _groups(offers: Iterable[Offer], key: Callable[[Offer], K]) -> dict[K, list[Offer]]:
    """Offers by key, keys and offers in the order met."""
    groups: dict[K, list[Offer]] = {}
    for offer in offers:
        groups.setdefault(key(offer), []).append(offer)
    return groups


def _words(offer: Offer) -> set[str]:
    return {doubt.word for doubt in offer.doubts}


def _with_words(offer: Offer, words: Iterable[str]) -> Offer:
    """The offer with doubts added, all in the order of the table; itself where none is new."""
    new = set(words) - _words(offer)
    if not new:
        return offer
    order = {word: place for place, word in enumerate(doubt_kinds())}
    doubts = (*offer.doubts, *(doubt_kinds()[word] for word in new))
    in_order = sorted(doubts, key=lambda doubt: order.get(doubt.word, len(order)))
    return replace(offer, doubts=tuple(in_order))


def _has_moved(usd: float, last_usd: float) -> bool:
    return not 1 / MOVED_FACTOR <= usd / last_usd <= MOVED_FACTOR


# --- a whole reply ---


def refusal(
    read: ReadListings,
    prices: PriceList,
    before: Sequence[Offer],
    *,
    is_market: bool = False,
    is_first: bool = False,
) -> str | None:
    """Why a reply is refused whole, in plain words with figures; None where it is taken.

    More than a tenth of its rows fail (cannot be read, or cost many times what they did; spot by
    its share of on-demand), or a third of the machine types that were there have vanished.
    `before`: the last good offers of the same source and provider, else the bundled ones; none of
    them where the user takes what shrank or moved (`--accept`), and then only a reply that cannot
    be read or is empty is refused. `is_market`: hosts come and go, so that GPUs are counted in
    their place. `is_first`: nothing of the source was kept before, and what the bundled snapshot
    had may have gone long since.

    One row never condemns a list of several: of three rows with one that fails the other two are
    kept, and likewise one machine type that is gone. A list without any machine is always refused.
    """
    listed = (*prices.offers, *prices.unknown)
    if not listed:
        return _nothing_listed(read, before)
    return (
        _too_many_fail(read, prices.offers, before)
        or _too_many_spots_moved(prices.offers, before)
        or _too_much_gone(prices, () if is_first else before, is_market)
    )


def _nothing_listed(read: ReadListings, before: Sequence[Offer]) -> str:
    failed = f", and {len(read.failed):,} rows cannot be read{_first(read)}" * bool(read.failed)
    there = f" where {len(before):,} offers were" * bool(before)
    return f"The reply lists no machine with a GPU and a price{there}{failed}: ask again later."


def _first(read: ReadListings) -> str:
    """What is wrong with the first row that cannot be read, in brackets."""
    return f" ({read.failed[0][:_LONGEST_REASON]})" if read.failed else ""


def _too_many_fail(
    read: ReadListings, offers: Sequence[Offer], before: Sequence[Offer]
) -> str | None:
    """Rows that cannot be read, and of the others as many as there are prices that moved."""
    rows, unread = max(read.rows, len(read.failed), 1), len(read.failed)
    known = list(_with_last_usd(offers, _LastOffers(before)))
    moved = [offer for offer, last_usd in known if _is_lost(offer, last_usd)]
    unread_share, moved_share = Fraction(unread, rows), Fraction(len(moved), max(len(known), 1))
    is_one_of_several = unread + len(moved) < 2 and rows > 1
    if unread_share + (1 - unread_share) * moved_share <= _MOST_FAILING or is_one_of_several:
        return None
    provider = _provider(offers, before)
    gone = sum(offer.price_usd_per_hour is None for offer in moved)
    counts = [
        (unread, f"of {rows:,} rows cannot be read{_first(read)}"),
        (gone, f"of {len(known):,} prices are gone"),
        (len(moved) - gone, f"of {len(known):,} prices are {_FAR_FROM_LAST}"),
    ]
    found = " and ".join(f"{count:,} {what}" for count, what in counts if count)
    is_readable = unread_share <= _MOST_FAILING
    fix = _accepting(provider, "these are its prices") if is_readable else "ask again later."
    return f"More than a tenth of what {provider} lists fails: {found}; {fix}"


def _with_last_usd(offers: Iterable[Offer], before: _LastOffers) -> Iterator[tuple[Offer, float]]:
    """Offers that had an on-demand price before, with the last good one."""
    for offer in offers:
        last = before.of(offer)
        usd = None if last is None else _last_good(last).price_usd_per_hour
        if usd:
            yield offer, usd


def _is_lost(offer: Offer, last_usd: float) -> bool:
    """Whether an on-demand price is gone, or is many times or a small part of the last one."""
    return offer.price_usd_per_hour is None or _has_moved(offer.price_usd_per_hour, last_usd)


def _too_many_spots_moved(offers: Sequence[Offer], before: Sequence[Offer]) -> str | None:
    """Spot prices that are not what they were; one that is gone is no mistake: RunPod's all went.

    Source: SkyPilot's lists of AWS of 2026-03-31 and 2026-08-22: 3 of 707 moved so far.
    """
    last = _LastOffers(before)
    pairs = [(offer, _last_good(found)) for offer in offers if (found := last.of(offer))]
    known = [pair for pair in pairs if pair[0].spot_usd_per_hour and pair[1].spot_usd_per_hour]
    moved = sum(_has_spot_moved(offer, good) for offer, good in known)
    if moved < 2 or moved <= _MOST_FAILING * len(known):
        return None
    provider = _provider(offers, before)
    fix = _accepting(provider, "these are its prices")
    words = f"{moved:,} of {len(known):,} spot prices are, beside on-demand, {_FAR_FROM_LAST}"
    return f"More than a tenth of what {provider} lists fails: {words}; {fix}"


def _too_much_gone(prices: PriceList, before: Sequence[Offer], is_market: bool) -> str | None:
    """Machine types, or rows of the list; of a marketplace kinds of GPU.

    A type whose GPU is now called what nobody knows is gone, too: no plan could use its price.
    """
    if not before:
        return None
    listed = (*prices.offers, *prices.unknown)
    provider, noun = _provider(listed, before), "kinds of GPU" if is_market else "machine types"
    name = (lambda offer: gpu_kind(offer.gpu)) if is_market else (lambda offer: offer.instance)
    were = {name(offer) for offer in before}
    gone = were - {name(offer) for offer in prices.offers}
    fix = _accepting(provider, "it really sells so much less")
    if len(gone) >= _MOST_GONE * len(were) and (len(gone) > 1 or len(gone) == len(were)):
        strange = [offer.gpu for offer in prices.unknown if name(offer) in gone]
        now = f", {len(strange):,} with a GPU that nobody knows ({strange[0]})" if strange else ""
        return (
            f"{len(gone):,} of {len(were):,} {noun} of {provider} are gone{now}, a third or more; "
            f"{fix}"
        )
    rows, rows_before = (sum(offer.zones for offer in some) for some in (listed, before))
    if is_market or rows_before - rows < max(_MOST_GONE * rows_before, Fraction(2)):
        return None
    return (
        f"{provider} lists {rows:,} rows where {rows_before:,} were: a third or more is gone; {fix}"
    )


def _provider(listed: Sequence[Offer], before: Sequence[Offer]) -> str:
    return next((offer.provider for offer in (*listed, *before)), "the provider")


def _accepting(provider: str, condition: str) -> str:
    return f"if {condition}, `outlay prices refresh --provider {provider} --accept` takes it."


# --- against the past, and by themselves ---


def doubted_by_past(offers: Sequence[Offer], before: Sequence[Offer]) -> tuple[Offer, ...]:
    """Offers with what speaks against them by themselves and by their own last prices.

    `outlier`, `spot outlier`: many times or a small part of the last good price, which is kept
    with the offer (`other_prices`, source `before`). `price gone`: no on-demand price any more.
    `count differs`, `GPU differs`: the machine had another number of GPUs, or another GPU. `listed
    twice`: at different prices. `per GPU or per machine`: beside the provider's other sizes the
    price is that of one GPU, or was multiplied twice.
    """
    last = _LastOffers(before)
    twice, sizes = _listed_twice(offers), _odd_sizes(offers)
    return tuple(
        _with_words(
            _held_against(offer, last.of(offer)),
            [
                *last.other_machine(offer),
                *(["listed twice"] if offer.identity in twice else []),
                *(["per GPU or per machine"] if id(offer) in sizes else []),
            ],
        )
        for offer in offers
    )


class _LastOffers:
    """The last good offers, to be found by those of a new list.

    What costs the same in every region of its provider is one offer for `any` of them, and one for
    each as soon as one of them differs: neither makes its prices new.
    """

    def __init__(self, offers: Sequence[Offer]) -> None:
        self._by_identity = {offer.identity: offer for offer in offers}
        self._by_instance = _groups(offers, _instance_of)
        self._by_price: dict[tuple[str, str], list[tuple[float, Offer]]] = {}
        self._figures: dict[tuple[str, str, str], tuple[set[object], set[object]]] = {}

    def of(self, offer: Offer) -> Offer | None:
        """What an offer was: the same, or that for all regions; else the same machine in the
        region whose price is nearest, without its spot price, which every place has its own of."""
        same = self._by_identity.get(offer.identity) or self._by_identity.get(
            (offer.provider, offer.instance, "any")
        )
        if same is not None or not offer.price_usd_per_hour:
            return same
        elsewhere = self._priced(_instance_of(offer))
        place = bisect_left(elsewhere, offer.price_usd_per_hour, key=lambda pair: pair[0])
        around = [other for _, other in elsewhere[max(place - 1, 0) : place + 1]]
        nearest = min(around, key=lambda other: _moved_by(offer, other), default=None)
        return None if nearest is None else _without_spot(nearest)

    def _priced(self, instance: tuple[str, str]) -> list[tuple[float, Offer]]:
        """The last good prices of a machine in all regions, cheapest first."""
        if instance not in self._by_price:
            found = [
                (usd, other)
                for other in self._by_instance.get(instance, ())
                if (usd := _last_good(other).price_usd_per_hour)
            ]
            self._by_price[instance] = sorted(found, key=lambda pair: pair[0])
        return self._by_price[instance]

    def other_machine(self, offer: Offer) -> list[str]:
        """Whether a machine had another number of GPUs before, or another GPU; what was doubted
        for that then is doubted as long as it stands there."""
        figures: dict[str, Callable[[Offer], object]] = {
            "count differs": _whole_gpus,
            "GPU differs": lambda other: gpu_kind(other.gpu),
        }
        return [word for word, figure in figures.items() if self._differs(offer, word, figure)]

    def _differs(self, offer: Offer, word: str, figure: Callable[[Offer], object]) -> bool:
        key = (*_instance_of(offer), word)
        if key not in self._figures:
            before = self._by_instance.get(_instance_of(offer), ())
            self._figures[key] = (
                {figure(other) for other in before if word not in _words(other)},
                {figure(other) for other in before if word in _words(other)},
            )
        sound, doubted = self._figures[key]
        return figure(offer) not in sound if sound else figure(offer) in doubted


def _instance_of(offer: Offer) -> tuple[str, str]:
    return (offer.provider, offer.instance)


def _moved_by(offer: Offer, last: Offer) -> float:
    """How far an on-demand price is from a last good one, as a factor above 1."""
    usd, last_usd = offer.price_usd_per_hour or 0.0, _last_good(last).price_usd_per_hour or 1.0
    return max(usd / last_usd, last_usd / usd)


def _without_spot(offer: Offer) -> Offer:
    kept = tuple(replace(price, spot_usd_per_hour=None) for price in offer.other_prices)
    return replace(offer, spot_usd_per_hour=None, other_prices=kept)


def _held_against(offer: Offer, last: Offer | None) -> Offer:
    """An offer with what its own last good price says of it."""
    if last is None:
        return offer
    good = _last_good(last)
    usd, last_usd = offer.price_usd_per_hour, good.price_usd_per_hour
    words = ["price gone"] if usd is None and last_usd is not None else []
    if usd is not None and last_usd and _has_moved(usd, last_usd):
        words.append("outlier")
    if _has_spot_moved(offer, good):
        words.append("spot outlier")
    if not words:
        return offer
    return replace(_with_words(offer, words), other_prices=(*offer.other_prices, good))


def _last_good(last: Offer) -> OtherPrice:
    """What an offer last cost; where that was doubted or gone, what it had cost before that."""
    words = _words(last)
    kept = next((price for price in last.other_prices if price.source == BEFORE), None)
    price_from = kept if words & {"outlier", "price gone"} else last
    spot_from = kept if "spot outlier" in words else last
    return OtherPrice(
        source=BEFORE,
        as_of=(price_from or last).as_of,
        price_usd_per_hour=None if price_from is None else price_from.price_usd_per_hour,
        spot_usd_per_hour=None if spot_from is None else spot_from.spot_usd_per_hour,
    )


def _has_spot_moved(offer: Offer, last: OtherPrice) -> bool:
    """By its share of on-demand; in dollars where on-demand is not known, or moved itself."""
    spot_usd, last_spot_usd = offer.spot_usd_per_hour, last.spot_usd_per_hour
    if not spot_usd or not last_spot_usd:
        return False
    usd, last_usd = offer.price_usd_per_hour, last.price_usd_per_hour
    if usd and last_usd and not _has_moved(usd, last_usd):
        return _has_moved(spot_usd / usd, last_spot_usd / last_usd)
    return _has_moved(spot_usd, last_spot_usd)


def _listed_twice(offers: Sequence[Offer]) -> set[tuple[str, str, str]]:
    """What a list has more than once, at prices that are not the same."""
    groups = _groups(offers, lambda offer: offer.identity)
    return {identity for identity, rows in groups.items() if len(rows) > 1 and _differ(rows)}


def _differ(offers: Sequence[Offer]) -> bool:
    prices = [offer.price_usd_per_hour or offer.spot_usd_per_hour for offer in offers]
    known = [usd for usd in prices if usd]
    return bool(known) and (len(known) < len(prices) or max(known) > (1 + _SAME_PRICE) * min(known))


def _odd_sizes(offers: Sequence[Offer]) -> set[int]:
    """The machines (by `id`) whose price does not grow with their GPUs as the provider's does.

    The cheapest machine with the fewest of the same GPU in the same region is what they are held
    against: one that costs the same is probably listed by the GPU, one that costs the square of
    its size was probably multiplied twice. Where that machine has several GPUs itself, it may as
    well be the one that is wrong.
    """
    odd: set[int] = set()
    whole = [offer for offer in offers if offer.gpu_share == 1 and offer.price_usd_per_hour]
    for rows in _groups(whole, lambda o: (o.provider, o.gpu, o.region)).values():
        fewest = min(offer.gpus for offer in rows)
        least = min((o for o in rows if o.gpus == fewest), key=lambda o: o.price_usd_per_hour or 0)
        larger = [o for o in rows if o.gpus > fewest and _is_odd_size(o, least)]
        odd |= {id(offer) for offer in larger}
        if larger and fewest > 1:
            odd.add(id(least))
    return odd


def _is_odd_size(offer: Offer, smaller: Offer) -> bool:
    times = (offer.price_usd_per_hour or 0.0) / (smaller.price_usd_per_hour or 1.0)
    size = offer.gpus / smaller.gpus
    return abs(times - 1) <= _SAME_PRICE or abs(times / size**2 - 1) <= _SAME_PRICE


# --- beside what others ask ---

_CHEAP_FRACTION = 0.40
_DEAR_FACTOR = 4.0
_HOST_USD_PER_VCPU_HOUR = 0.10
"""What a vCPU with its memory adds to the price of a machine.

Assumes: twice the $0.04 to $0.05 of general-purpose machines, for dear regions and much RAM. Used
only so that one GPU on a 64-vCPU host is not called suspiciously dear.
"""
_SPOT_FLOOR_FRACTION = 0.15
_JUDGES = 2
"""Providers without serious doubts that must sell a GPU before a price for it is called unusual."""
_JUDGED = frozenset(
    ("suspiciously cheap", "suspiciously dear", "spot suspiciously cheap", "spot suspiciously dear")
)
_FORM = re.compile(r" (?:PCIe|SXM\d?|NVL|OAM)\b")
_ALIKE = 1.25
"""Times the memory bandwidth up to which two forms of a GPU are sold as one: A100s are (1.05
times), an H100 SXM (1.68 times that of the PCIe card) is not."""


def doubted_by_others(
    offers: Sequence[Offer], second: Mapping[str, Sequence[ProviderPrices]] | None = None
) -> tuple[Offer, ...]:
    """Offers of all providers with what speaks against them beside each other.

    `second`: what further sources say of each provider. `suspiciously cheap` and `dear`, on demand
    and as spot, are given anew; `sources disagree` where another source's on-demand price of the
    same machine differs by more than 5 %, `sources far apart` besides where it does by more than
    25 % at about the same time, or by more than 4 times at any. Where sources agree the later day
    counts, and nothing is `stale`. What another source says is kept with the offer
    (`other_prices`).
    """
    judged = _judged(offers)
    return _beside_sources(judged, second) if second else judged


@cache
def gpu_kind(name: str) -> str:
    """The GPU that a price is compared by: forms that cost alike are one, an open form is the
    slowest; the name itself where nobody knows it."""
    own, whole = gpu_match(name), gpu_match(_FORM.sub("", name))
    if own is None or whole is None:
        return name
    alike = own.gpu.memory_bytes_per_s <= _ALIKE * whole.gpu.memory_bytes_per_s
    return whole.gpu.name if alike else own.gpu.name


@cache
def _set_aside() -> frozenset[str]:
    """Doubts that keep an offer out of the comparison others are judged by."""
    grave = {word for word, doubt in doubt_kinds().items() if doubt.kind != "note"}
    return frozenset(grave - {"form not stated", "zones differ"} | {"aggregator"})


def _judged(offers: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers with doubts about prices far from what others ask."""
    fresh = [_without(offer, _JUDGED) for offer in offers]
    usual = _usual_usd_per_gpu(fresh, lambda offer: offer.price_usd_per_hour)
    usual_spot = _usual_usd_per_gpu(fresh, lambda offer: offer.spot_usd_per_hour)
    priced = (offer for offer in fresh if offer.price_usd_per_hour)
    own = {
        key: median((offer.price_usd_per_hour or 0.0) / _whole_gpus(offer) for offer in rows)
        for key, rows in _groups(priced, lambda o: (o.provider, gpu_kind(o.gpu))).items()
    }

    def judge(offer: Offer) -> Offer:
        kind = gpu_kind(offer.gpu)
        words = _price_words(offer, usual.get(kind))
        words |= _spot_words(offer, usual_spot.get(kind), own.get((offer.provider, kind)))
        return _with_words(offer, words)

    return tuple(judge(offer) for offer in fresh)


def _without(offer: Offer, words: frozenset[str] | set[str]) -> Offer:
    if not _words(offer) & words:
        return offer
    return replace(offer, doubts=tuple(d for d in offer.doubts if d.word not in words))


def _whole_gpus(offer: Offer) -> float:
    """GPUs paid for, shares counted as shares."""
    return offer.gpus * offer.gpu_share


def _usual_usd_per_gpu(offers: Sequence[Offer], price: Price) -> dict[str, float]:
    """What one GPU-hour usually costs, by kind of GPU: the median over providers.

    A provider's figure is the median over its regions of its cheapest machine there, per GPU. So a
    provider counts once however many regions it has, and large hosts do not raise the figure.
    Shares of a GPU and what is doubtful are left out; a GPU with fewer than two providers left is
    not judged.
    """
    usual: dict[str, float] = {}
    aside = _set_aside()
    sound = [o for o in offers if price(o) and o.gpu_share == 1 and not _words(o) & aside]
    for kind, rows in _groups(sound, lambda o: gpu_kind(o.gpu)).items():
        figures = [
            median(
                min((price(o) or 0.0) / o.gpus for o in there)
                for there in _groups(own, lambda o: o.region).values()
            )
            for own in _groups(rows, lambda o: o.provider).values()
        ]
        if len(figures) >= _JUDGES:
            usual[kind] = median(figures)
    return usual


def _price_words(offer: Offer, usual_usd_per_gpu: float | None) -> set[str]:
    """`suspiciously cheap` below 40 % of what is usual for the GPU, `dear` above four times.

    The price of the host is taken off before calling anything dear.
    """
    usd = offer.price_usd_per_hour
    if usd is None or usual_usd_per_gpu is None:
        return set()
    usual_usd = usual_usd_per_gpu * _whole_gpus(offer)
    if usd < _CHEAP_FRACTION * usual_usd:
        return {"suspiciously cheap"}
    host_usd = _HOST_USD_PER_VCPU_HOUR * (offer.vcpus or 0.0)
    return {"suspiciously dear"} if usd - host_usd > _DEAR_FACTOR * usual_usd else set()


def _spot_words(
    offer: Offer, usual_usd_per_gpu: float | None, own_usd_per_gpu: float | None
) -> set[str]:
    """The same for spot, which is judged by its own on-demand price too.

    Cheap: below 40 % of usual spot and below 15 % of the offer's on-demand price. Dear: only with
    no on-demand price to be below, if above four times usual spot or above what the provider
    usually asks on demand (`own_usd_per_gpu`).
    """
    spot_usd, usd = offer.spot_usd_per_hour, offer.price_usd_per_hour
    if spot_usd is None or usual_usd_per_gpu is None:
        return set()
    usual_usd = usual_usd_per_gpu * _whole_gpus(offer)
    floor_usd = _SPOT_FLOOR_FRACTION * usd if usd else usual_usd
    if spot_usd < min(_CHEAP_FRACTION * usual_usd, floor_usd):
        return {"spot suspiciously cheap"}
    if usd is not None:
        return set()
    ceiling_usd = min(_DEAR_FACTOR * usual_usd_per_gpu, own_usd_per_gpu or math.inf)
    return {"spot suspiciously dear"} if spot_usd > ceiling_usd * _whole_gpus(offer) else set()


# --- beside what other sources say of the same machine ---

DISAGREE_FRACTION = 0.05
"""By which two sources may differ and still confirm each other: rounding, taxes, a host's size."""
FAR_APART_FRACTION = 0.25
_SAME_TIME_DAYS = 30
"""By which another source's price may be older and still speak against one as a caution."""


class _Machines:
    """The offers of one list, to be found as another source would list them."""

    def __init__(self, offers: Iterable[Offer]) -> None:
        shown = [offer for offer in offers if not _is_host(offer)]
        self._by_instance = _by_place(shown, _instance_of)
        self._by_gpu = _by_place(shown, _gpu_key)

    def like(self, offer: Offer, own: _Machines) -> list[Offer]:
        """What is the same machine as an offer of the list `own`, in the same place.

        The same instance, where both name machines alike; else the same number of the same GPU,
        where each list has just one machine of that kind there and they do not differ in vCPUs.
        """
        if _is_host(offer):
            return []
        if named := self._by_instance.get(_instance_of(offer)):
            return _in_place(named, offer.region)
        here = _in_place(self._by_gpu.get(_gpu_key(offer), {}), offer.region)
        there = _in_place(own._by_gpu.get(_gpu_key(offer), {}), offer.region)
        if len(here) != 1 or len(there) != 1:
            return []
        if _instance_of(here[0]) in own._by_instance:
            return []
        vcpus = {one.vcpus for one in (here[0], offer) if one.vcpus}
        return here if len(vcpus) < 2 else []


def _gpu_key(offer: Offer) -> tuple[str, str, int, float]:
    return (offer.provider, gpu_kind(offer.gpu), offer.gpus, offer.gpu_share)


def _by_place(
    offers: Iterable[Offer], key: Callable[[Offer], K]
) -> dict[K, dict[str, list[Offer]]]:
    """Offers by key, and those of a key by region."""
    return {
        name: _groups(found, lambda offer: offer.region)
        for name, found in _groups(offers, key).items()
    }


def _in_place(offers: Mapping[str, Sequence[Offer]], region: str) -> list[Offer]:
    """Those in a region, `any` of which is every one."""
    if region == "any":
        return [offer for found in offers.values() for offer in found]
    return [*offers.get(region, ()), *offers.get("any", ())]


def _is_host(offer: Offer) -> bool:
    """Whether an offer is of a market, where no two are the same machine."""
    return offer.host is not None or "marketplace" in _words(offer)


def same_machines(offers: Sequence[Offer], others: Sequence[Offer]) -> tuple[Offer, ...]:
    """What another source has of the same machines, by the names of these; of one in several
    regions the price that is nearest."""
    own, there = _Machines(offers), _Machines(others)
    pairs = [(offer, there.like(offer, own)) for offer in offers]
    return tuple(
        replace(
            min(found, key=lambda other: apart(offer, other) or 0.0),
            instance=offer.instance,
            region=offer.region,
        )
        for offer, found in pairs
        if found
    )


def _beside_sources(
    offers: Sequence[Offer], second: Mapping[str, Sequence[ProviderPrices]]
) -> tuple[Offer, ...]:
    """Offers with what other sources say of the same machines."""
    own = _Machines(offer for offer in offers if offer.provider in second)
    others = {
        provider: [(prices.source, _Machines(prices.offers)) for prices in lists]
        for provider, lists in second.items()
    }

    def beside(offer: Offer) -> Offer:
        for source, machines in others.get(offer.provider, ()):
            found = machines.like(offer, own)
            if found:
                offer = _beside(offer, _farthest(offer, found), source)
        return offer

    return tuple(beside(offer) for offer in offers)


def _farthest(offer: Offer, others: Sequence[Offer]) -> Offer:
    """Of one machine in several regions, the one whose price differs most from the offer's."""
    return max(others, key=lambda other: apart(offer, other) or 0.0)


def apart(one: Offer, other: Offer) -> float | None:
    """By what fraction the dearer of two costs more on demand; None where one has no price."""
    usd, other_usd = one.price_usd_per_hour, other.price_usd_per_hour
    return max(usd / other_usd, other_usd / usd) - 1 if usd and other_usd else None


def disagreement(offer: Offer, other: Offer) -> list[str]:
    """The doubts that another source's price of the same machine casts on an offer's."""
    fraction = apart(offer, other)
    if fraction is None or fraction <= DISAGREE_FRACTION:
        return []
    both_days = bool(other.as_of and offer.as_of)
    is_outdated = both_days and days_between(other.as_of, offer.as_of) > _SAME_TIME_DAYS
    is_far = fraction > FAR_APART_FRACTION and not is_outdated
    is_far |= fraction > MOVED_FACTOR - 1  # which no price does in a year
    return ["sources disagree", *(["sources far apart"] if is_far else [])]


def _beside(offer: Offer, other: Offer, source: str) -> Offer:
    """An offer with another source's price of it, and what that says for or against its own."""
    kept = OtherPrice(
        source=source,
        as_of=other.as_of,
        price_usd_per_hour=other.price_usd_per_hour,
        spot_usd_per_hour=other.spot_usd_per_hour,
    )
    beside = replace(offer, other_prices=(*offer.other_prices, kept))
    words = disagreement(offer, other)
    if words or apart(offer, other) is None:
        return _with_words(beside, words)
    return _confirmed(beside, other.as_of)


def _confirmed(offer: Offer, as_of: str) -> Offer:
    """An offer whose on-demand price was seen on a later day, too; its spot price keeps its own."""
    if as_of <= offer.as_of:
        return offer
    has_spot = offer.spot_usd_per_hour is not None
    was_stale = "stale" in _words(offer) and has_spot
    spot_as_of = offer.seen_on("spot") if has_spot else None
    later = replace(_without(offer, {"stale"}), as_of=as_of, spot_as_of=spot_as_of)
    return _with_words(later, ["stale spot"] if was_stale else [])


# --- sources side by side ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePrice:
    """What one source says of a machine."""

    source: str
    offer: Offer
    is_used: bool
    """Whether a plan takes this price."""
    more_fraction: float | None
    """How much more it is on demand than the price a plan takes (the first, where it takes none);
    None for that price itself, and where one of them is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedMachine:
    """One machine as two or more sources list it, the price that a plan takes first."""

    prices: tuple[SourcePrice, ...]
    doubts: tuple[str, ...]
    """What they say against the first, in words of `data/offer_doubts.csv`; what was true on the
    day of the bundled snapshot says nothing against it."""
    why: str
    """Why a plan takes the first, or none."""

    @property
    def offer(self) -> Offer:
        """The machine as the first of them lists it."""
        return self.prices[0].offer

    @property
    def apart_fraction(self) -> float | None:
        """By how much the dearest is above the cheapest on demand; None with fewer than two."""
        known = [usd for price in self.prices if (usd := price.offer.price_usd_per_hour)]
        return max(known) / min(known) - 1 if len(known) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceComparison:
    """What sources say of the same machines."""

    machines: tuple[ComparedMachine, ...]
    """Those that two or more list, the farthest apart first."""
    only_one: Mapping[str, int]
    """How many machines a source alone lists, by source."""


def compare_sources(
    prices: Sequence[ProviderPrices],
    used: Iterable[Offer],
    gpus: GpuFilter | None = None,
    providers: Sequence[str] = (),
) -> SourceComparison:
    """What every source says of the same machines, side by side.

    `used`: the offers of the price book that plans are made with; `gpus`, `providers`: only those.
    """
    book = {offer.identity: offer.at_list_price() for offer in used}
    wanted = [one for one in prices if not providers or one.provider in providers]
    lists: dict[str, list[ProviderPrices]] = {}
    for one in sorted(wanted, key=_preference, reverse=True):
        offers = tuple(o for o in one.offers if gpus is None or gpus.accepts(o))
        lists.setdefault(one.provider, []).append(replace(one, offers=offers))
    rows = [row for of_one in lists.values() for row in _side_by_side(of_one)]
    shared = [_compared(row, book) for row in rows if len(row) > 1]
    alone = Counter(row[0][0].source for row in rows if len(row) == 1)
    shared.sort(key=lambda m: (-(m.apart_fraction or 0.0), m.offer.identity))
    return SourceComparison(machines=tuple(shared), only_one=dict(sorted(alone.items())))


def as_lists(source: str, offers: Iterable[Offer], as_of: str) -> list[ProviderPrices]:
    """Offers of many providers as what one source says of each."""
    return [
        ProviderPrices(
            source=source, provider=provider, as_of=as_of, fetched_at="", offers=tuple(rows)
        )
        for provider, rows in _groups(offers, lambda offer: offer.provider).items()
    ]


def _preference(prices: ProviderPrices) -> tuple[bool, bool, str]:
    """Lists of one's own first, the bundled one last, the newest first between them."""
    return (prices.source == OWN, prices.source != BUNDLED, prices.as_of)


_Row = list[tuple[ProviderPrices, Offer]]
"""One machine as the lists of one provider have it."""


def _side_by_side(lists: Sequence[ProviderPrices]) -> list[_Row]:
    """The machines of one provider, each with what every list says of it."""
    rows: list[_Row] = []
    machines = {id(prices): _Machines(prices.offers) for prices in lists}
    for prices in lists:
        met: set[int] = set()
        for row in rows:
            first, offer = row[0]
            found = machines[id(prices)].like(offer, machines[id(first)])
            if found:
                row.append((prices, _farthest(offer, found)))
                met |= {id(one) for one in found}
        rows += [[(prices, offer)] for offer in prices.offers if id(offer) not in met]
    return rows


def _compared(row: _Row, book: Mapping[tuple[str, str, str], Offer]) -> ComparedMachine:
    """One machine, the price that a plan takes first."""
    used = _used(row, book)
    ordered = sorted(row, key=lambda item: item[1] is not used)
    first = ordered[0][1]
    others = [other for listed, other in ordered[1:] if listed.source != BUNDLED]
    if ordered[0][0].source == OWN:  # what one was promised is held against nobody's price
        others = []
    words = {word: None for other in others for word in disagreement(first, other)}
    prices = tuple(
        SourcePrice(
            source=listed.source,
            offer=offer,
            is_used=offer is used,
            more_fraction=None if offer is first else _more(first, offer),
        )
        for listed, offer in ordered
    )
    return ComparedMachine(prices=prices, doubts=tuple(words), why=_why(ordered, used is not None))


def _used(row: _Row, book: Mapping[tuple[str, str, str], Offer]) -> Offer | None:
    """What of a row is in a price book, by what it cites or else by its price; None: nothing."""
    there = [(offer, book[offer.identity]) for _, offer in row if offer.identity in book]
    cited = [offer for offer, taken in there if offer.source == taken.source]
    same = [o for o, taken in there if o.price_usd_per_hour == taken.price_usd_per_hour]
    return next(iter((*cited, *same, *(offer for offer, _ in there))), None)


def _more(offer: Offer, other: Offer) -> float | None:
    usd, other_usd = offer.price_usd_per_hour, other.price_usd_per_hour
    return other_usd / usd - 1 if usd and other_usd else None


def _why(row: _Row, is_used: bool) -> str:
    """Why a plan takes the first price of a row, in words."""
    first, others = row[0][0], [prices for prices, _ in row[1:]]
    if not is_used:
        return f"no plan takes it: the newest list of {first.provider} does not have it"
    if first.source == OWN:
        return "your own list goes first"
    if first.source == BUNDLED:
        return "nothing newer was refreshed"
    rivals = [prices for prices in others if prices.source not in (BUNDLED, OWN)]
    if not rivals:
        return "refreshed"
    as_new = [prices.source for prices in rivals if prices.as_of >= first.as_of]
    return f"preferred to {', '.join(as_new)}, which is as new" if as_new else "the newest"
