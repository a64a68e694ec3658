"""What prices did: the bundled months and every refresh since, of one GPU or machine.

`price_history` puts both together as points in time; `good_time` says where today's price lies
in the last year and what waiting gained in the past; `price_changes` lists what became dearer,
cheaper, new or gone since a day.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, zip_longest
from statistics import median
from typing import Literal, Protocol

from outlay.errors import NotKnown
from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.catalog import STALE_DAYS, doubt_kinds, snapshot_date
from outlay.offers.terms import known_provider
from outlay.prices.price_store import PastPrice
from outlay.units import days_after, days_between


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyPrice:
    """What one machine type cost at the end of a month: a row of `data/price_history.csv.gz`.

    Prices are of the whole machine. The lowest and the middle one over its regions are given.
    """

    provider: str
    instance: str
    gpu: str
    """As the facts table names it, or a family (`A100 80GB`) where the form is not stated."""
    gpus: float
    """Below 1 for a share of one GPU."""
    month: str
    """YYYY-MM."""
    price_usd_per_hour: float | None
    price_median_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    """None, too, where the list had one that saved nothing."""
    spot_median_usd_per_hour: float | None
    regions: int
    """That list it; zones at AWS and GCP are counted by their region."""
    as_of: str
    """The day the provider's list became what it is in that month (YYYY-MM-DD)."""
    repeated: bool
    """Whether the list is the one of the month before: then it tells nothing new."""
    doubts: tuple[str, ...]
    """Words of `data/offer_doubts.csv`."""
    source: str

    @property
    def day(self) -> str:
        """The day it was read: the last of the month, or the snapshot's."""
        return month_end(self.month)


@cache
def month_end(month: str) -> str:
    """The last day of a month (YYYY-MM), but none after the bundled snapshot's."""
    days = monthrange(int(month[:4]), int(month[5:7]))[1]
    return min(f"{month}-{days:02}", snapshot_date())


@cache
def bundled_history() -> tuple[MonthlyPrice, ...]:
    """Every bundled monthly price, by provider, instance, GPU and month.

    2022-07 to 2026-08. Rows that only repeat the month before are there, and say so.
    """
    return tuple(_monthly_price(row) for row in rows_of("price_history.csv.gz"))


def _monthly_price(row: dict[str, str]) -> MonthlyPrice:
    return MonthlyPrice(
        provider=row["provider"],
        instance=row["instance"],
        gpu=row["gpu"],
        gpus=float(row["gpus"]),
        month=row["month"],
        price_usd_per_hour=_usd(row["price_usd_hour"]),
        price_median_usd_per_hour=_usd(row["price_usd_hour_median"]),
        spot_usd_per_hour=_usd(row["spot_usd_hour"]),
        spot_median_usd_per_hour=_usd(row["spot_usd_hour_median"]),
        regions=int(row["regions"]),
        as_of=row["as_of"],
        repeated=row["repeated"] == "yes",
        doubts=tuple(row["doubts"].split(";")) if row["doubts"] else (),
        source=row["source"],
    )


def _usd(text: str) -> float | None:
    return float(text) if text else None


# --- series: what a GPU-hour cost, by provider and tenancy ---

RentTenancy = Literal["on-demand", "spot"]
TENANCIES: tuple[RentTenancy, ...] = ("on-demand", "spot")
_Place = tuple[str, str, str, str, str]
MachineKey = tuple[str, str, str, str]
CURRENT_DAYS = STALE_DAYS
"""How long a price is taken to stand after it was seen, where nothing newer is known."""
BRIDGED_DAYS = 365
"""How far two lists may be apart for the on-demand price of the first to stand until the second.

Assumes: a year. Providers whose list was renewed after half a year had mostly kept their prices;
without them the cheapest price would leap whenever a list is not renewed for a season. Spot prices
are not bridged.
"""
SAVES_NOTHING = 0.999
"""Spot from this share of on-demand upwards is none, as in `tools/build_offers.py`."""
_LEFT_OUT = ("suspiciously cheap", "spot suspiciously cheap", "maybe EUR")
"""Doubts that keep a price out of a series, besides those that say nobody pays it."""


class PastPrices(Protocol):
    """What a history asks of a `PriceStore`."""

    def past(
        self, gpus: Sequence[str] = (), *, provider: str = "", since: str = "", until: str = ""
    ) -> Iterable[PastPrice]:
        """Every change of a price, oldest first."""
        ...

    def refresh_days(self, source: str, provider: str) -> list[str]:
        """The days on which the prices of a provider were confirmed or changed."""
        ...

    def confirmations(self, source: str, provider: str) -> Mapping[str, str]:
        """The days on which the prices of a provider were confirmed or changed, oldest first, each
        with the day that the list was of then."""
        ...

    def prices_at(self, at: str) -> Iterable[PastPrice]:
        """Every price as it stood at a time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePoint:
    """What a GPU-hour cost at one time: the price of a machine over its GPUs."""

    at: str
    """A day (YYYY-MM-DD) of the bundled months; the time of a refresh, UTC."""
    cheapest_usd_per_gpu_hour: float
    """Of all machine types and regions."""
    median_usd_per_gpu_hour: float
    """The middle over machine types, each at the middle of its regions; over several providers,
    the middle of theirs."""
    cheapest_provider: str
    providers: int
    machine_types: int
    """Behind both figures."""
    current_until: str
    """The last day on which it is taken to stand (YYYY-MM-DD)."""
    source: str
    """`skypilot`, `gpuhunt` ...; of the cheapest, where there are several providers."""

    @property
    def day(self) -> str:
        """YYYY-MM-DD."""
        return self.at[:10]

    @property
    def month(self) -> str:
        """YYYY-MM."""
        return self.at[:7]


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSeries:
    """The points of one provider in one tenancy, oldest first."""

    provider: str
    """Empty: the cheapest over all providers."""
    tenancy: RentTenancy
    points: tuple[PricePoint, ...]

    def current(self, at: str) -> PricePoint | None:
        """The point that stands at a time or day; None where none does."""
        number = bisect_right(self.points, _end_of(at), key=lambda point: point.at)
        if not number:
            return None
        last = self.points[number - 1]
        return last if at[:10] <= last.current_until or at == last.at else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Prices that are in the history but in no series, and why."""

    provider: str
    tenancy: RentTenancy
    doubt: str
    first: str
    """Months, YYYY-MM."""
    last: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceHistory:
    """What a GPU cost over time."""

    gpu: str
    """As it was asked for, by outlay's name."""
    names: tuple[str, ...]
    """The GPUs that count: several where the name leaves memory or form open."""
    provider: str
    """The only one that counts; empty: all."""
    machine_gpus: int | None
    """Only machines of so many GPUs; None: of any number."""
    series: tuple[PriceSeries, ...]
    """Of each tenancy: all providers together, then one by one. Those without points are not
    there."""
    left_out: tuple[LeftOut, ...] = ()

    def of(self, tenancy: RentTenancy, provider: str = "") -> PriceSeries:
        """The series of a provider, or of all together; without points where there is none."""
        for series in self.series:
            if series.tenancy == tenancy and series.provider == provider:
                return series
        return PriceSeries(provider=provider, tenancy=tenancy, points=())

    def providers(self, tenancy: RentTenancy) -> tuple[PriceSeries, ...]:
        """The series of single providers."""
        return tuple(one for one in self.series if one.tenancy == tenancy and one.provider)

    def between(self, since: str, until: str) -> PriceHistory:
        """Only what lies between two days or months, both included; empty: no end."""
        series = [_between(one, since, until) for one in self.series]
        return replace(self, series=tuple(one for one in series if one.points))


def price_history(
    gpu: str,
    *,
    provider: str = "",
    gpus: int | None = None,
    since: str = "",
    until: str = "",
    tenancies: Sequence[RentTenancy] = TENANCIES,
    store: PastPrices | None = None,
) -> PriceHistory:
    """What a GPU cost: the bundled months and, after them, every refresh that the store has.

    `provider` and `gpus` keep to one provider and to machines of so many GPUs; `since` and `until`
    are days or months (YYYY-MM-DD, YYYY-MM). A list that only repeats the one before is no point,
    nor is a doubted price; a price stands until the next list, but for at most 90 days where none
    comes. Raises `NotKnown` for a GPU or provider that nobody knows; one without any history has
    no series.
    """
    match = find_gpu(gpu)
    names = history_names(frozenset(each.name for each in match.candidates))
    asked = _Asked(names=names, provider=seller_named(provider, store), gpus=gpus)
    seen = [*_monthly_sightings(asked)]
    if store is not None:
        seen += _refreshed_sightings(asked, store)
    whole = PriceHistory(
        gpu=match.meaning,
        names=tuple(each.name for each in match.candidates),
        provider=asked.provider,
        machine_gpus=gpus,
        series=tuple(one for tenancy in tenancies for one in _series_of(seen, tenancy)),
        left_out=tuple(left for left in _left_out(asked) if left.tenancy in tenancies),
    )
    return whole.between(since, until)


def seller_named(name: str, store: PastPrices | None) -> str:
    """A provider by its usual name; one that is new is known from its prices in the store."""
    if not name:
        return ""
    try:
        return known_provider(name, tuple(_lists()))
    except NotKnown:
        if store is None or not any(True for _ in store.past(provider=name)):
            raise
        return name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """Which prices count."""

    names: frozenset[str]
    provider: str
    gpus: int | None

    def has(self, price: MonthlyPrice | PastPrice) -> bool:
        """Whether a price is of the GPU, of whole ones, and of the machines asked for."""
        return (
            price.gpu in self.names
            and price.gpus >= 1
            and self.gpus in (None, price.gpus)
            and self.provider in ("", price.provider)
        )


@cache
def history_names(names: frozenset[str]) -> frozenset[str]:
    """Names in price lists that mean nothing but these GPUs, families included."""
    listed = {row.gpu for row in bundled_history()}
    families = {name for name in listed if {gpu.name for gpu in find_gpu(name).candidates} <= names}
    return names | families


@dataclass(frozen=True, slots=True, kw_only=True)
class _TypePrice:
    """What one machine type costs per GPU-hour: the lowest of its regions and the middle one."""

    low: float
    middle: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sighting:
    """The list of one provider as it was seen at one time: its machines with the GPU."""

    provider: str
    source: str
    at: str
    current_until: str
    types: Mapping[RentTenancy, Sequence[_TypePrice]]
    """Empty where none is sold so, or none at a price to go by."""


@cache
def _is_usable(doubts: tuple[str, ...], tenancy: RentTenancy) -> bool:
    """Whether a price with such doubts belongs into a series."""
    known = [kinds[word] for word in doubts if word in (kinds := doubt_kinds())]
    return not any(
        doubt.concerns(tenancy) and (doubt.kind == "no price" or doubt.word in _LEFT_OUT)
        for doubt in known
    )


# The bundled months


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    """The price list of a provider that was new in a month."""

    month: str
    current_until: str
    is_stale: bool


@cache
def _lists() -> Mapping[str, tuple[_List, ...]]:
    """The lists of every provider in the bundled months, repeated ones left out."""
    months: dict[str, dict[str, MonthlyPrice]] = defaultdict(dict)
    for row in bundled_history():
        months[row.provider].setdefault(row.month, row)
    return {name: tuple(_lists_of(rows)) for name, rows in months.items()}


def _lists_of(rows: Mapping[str, MonthlyPrice]) -> Iterator[_List]:
    """Each list with the last day it is taken to stand: 90 days, or until it is known to be stale,
    or the day before the next."""
    ordered = [rows[month] for month in sorted(rows)]
    for number, row in enumerate(ordered):
        if row.repeated:
            continue
        until = days_after(row.as_of, CURRENT_DAYS)
        for later in ordered[number + 1 :]:
            if "stale" in later.doubts and later.repeated:
                until = min(until, days_after(f"{later.month}-01", -1))
            if not later.repeated:
                until = min(until, days_after(later.day, -1))
                break
        yield _List(month=row.month, current_until=until, is_stale="stale" in row.doubts)


def _monthly_sightings(asked: _Asked) -> Iterator[_Sighting]:
    rows: dict[tuple[str, str], list[MonthlyPrice]] = defaultdict(list)
    for row in bundled_history():
        if not row.repeated and asked.has(row):
            rows[(row.provider, row.month)].append(row)
    for provider in dict.fromkeys(name for name, _ in rows):
        for made in _lists()[provider]:
            own = [] if made.is_stale else rows.get((provider, made.month), [])
            yield _Sighting(
                provider=provider,
                source="skypilot",
                at=month_end(made.month),
                current_until=made.current_until,
                types={tenancy: _monthly_types(own, tenancy) for tenancy in TENANCIES},
            )


def _monthly_types(rows: Iterable[MonthlyPrice], tenancy: RentTenancy) -> list[_TypePrice]:
    types = []
    for row in rows:
        low, middle = _monthly_usd(row, tenancy)
        if low is not None and middle is not None and _is_usable(row.doubts, tenancy):
            types.append(_TypePrice(low=low / row.gpus, middle=middle / row.gpus))
    return types


def _monthly_usd(row: MonthlyPrice, tenancy: RentTenancy) -> tuple[float | None, float | None]:
    if tenancy == "spot":
        return row.spot_usd_per_hour, row.spot_median_usd_per_hour
    return row.price_usd_per_hour, row.price_median_usd_per_hour


def _left_out(asked: _Asked) -> Iterator[LeftOut]:
    """Doubted prices of the bundled months, by provider, tenancy and doubt."""
    months: dict[tuple[str, RentTenancy, str], list[str]] = defaultdict(list)
    for row in bundled_history():
        if row.repeated or not asked.has(row):
            continue
        for tenancy in TENANCIES:
            for word in row.doubts if _monthly_usd(row, tenancy)[0] is not None else ():
                if not _is_usable((word,), tenancy):
                    months[(row.provider, tenancy, word)].append(row.month)
    for (provider, tenancy, word), found in sorted(months.items()):
        yield LeftOut(
            provider=provider, tenancy=tenancy, doubt=word, first=min(found), last=max(found)
        )


# Refreshes that were kept


def _refreshed_sightings(asked: _Asked, store: PastPrices) -> list[_Sighting]:
    """What refreshes found, of the one source for each provider that has looked most often.

    Two sources that differ by a little would look like a price that goes up and down.
    """
    events: dict[tuple[str, str], list[PastPrice]] = defaultdict(list)
    for price in store.past(sorted(asked.names), provider=asked.provider):
        if asked.has(price):
            events[(price.provider, price.source)].append(price)
    found: dict[str, dict[str, list[_Sighting]]] = defaultdict(dict)
    for (provider, source), prices in events.items():
        confirmed = store.confirmations(source, provider)
        found[provider][source] = list(_sightings_of(prices, confirmed))
    return [one for by_source in found.values() for one in _steadiest(by_source)]


def _steadiest(by_source: Mapping[str, list[_Sighting]]) -> list[_Sighting]:
    def order(source: str) -> tuple[int, bool, str]:
        seen = [one for one in by_source[source] if any(one.types.values())]
        return len(seen), source == "skypilot", source  # the months are SkyPilot's, too

    return by_source[max(by_source, key=order)]


def _sightings_of(prices: list[PastPrice], confirmed: Mapping[str, str]) -> Iterator[_Sighting]:
    """The list of one source and provider after each of its changes, and as it was last seen.

    `confirmed`: the days on which it was refreshed, changed or not, each with the day of the list:
    one that is fetched again and again and never renewed stands no longer than any other.
    """
    days = [day for day, of in confirmed.items() if days_between(of, day) <= CURRENT_DAYS]
    zones: dict[tuple[str, str], dict[str, PastPrice]] = defaultdict(dict)
    regions: dict[str, dict[str, _Asks]] = defaultdict(dict)
    types: dict[RentTenancy, dict[str, _TypePrice]] = {tenancy: {} for tenancy in TENANCIES}
    groups = [(at, list(group)) for at, group in groupby(prices, key=lambda price: price.at)]
    for number, (at, group) in enumerate(groups):
        for price in group:
            zones[(price.instance, price.region)][price.zone] = price
        for instance, region in {(price.instance, price.region) for price in group}:
            regions[instance][region] = _asks(_in_region(zones[(instance, region)].values()))
        for instance in {price.instance for price in group}:
            _update(types, instance, list(regions[instance].values()))
        is_last = number + 1 == len(groups)
        next_day = "9999-12-31" if is_last else groups[number + 1][0][:10]
        before_next = bisect_left(days, next_day)
        last_seen = max(at[:10], days[before_next - 1] if before_next else "")
        stands_until = days_after(confirmed.get(last_seen, last_seen), CURRENT_DAYS)
        sighting = _Sighting(
            provider=group[0].provider,
            source=group[0].source,
            at=at,
            current_until=min(stands_until, days_after(next_day, -1)),
            types={tenancy: tuple(types[tenancy].values()) for tenancy in TENANCIES},
        )
        yield sighting
        if is_last and last_seen > at[:10]:
            yield replace(sighting, at=last_seen)


_Asks = tuple[float | None, ...]
"""Dollars for a GPU-hour in each of `TENANCIES`, None where it is not sold so."""


def _asks(price: PastPrice | None) -> _Asks:
    """What a machine costs per GPU-hour, where that is a price to go by."""
    if price is None or _was_old(price):
        return (None,) * len(TENANCIES)
    doubts = _lasting_doubts(price)
    usds = [past_usd(price, one) if _is_usable(doubts, one) else None for one in TENANCIES]
    return tuple(None if usd is None else usd / price.gpus for usd in usds)


def _update(
    types: Mapping[RentTenancy, dict[str, _TypePrice]], instance: str, regions: Sequence[_Asks]
) -> None:
    """Put what a machine type costs now in the place of what it did."""
    for place, tenancy in enumerate(TENANCIES):
        usds = [usd for asks in regions if (usd := asks[place]) is not None]
        types[tenancy].pop(instance, None)
        if usds:
            types[tenancy][instance] = _TypePrice(low=min(usds), middle=median(usds))


def _was_old(price: PastPrice) -> bool:
    """Whether its list was old already when it was read."""
    return bool(price.as_of) and days_between(price.as_of, price.at[:10]) > CURRENT_DAYS


def _lasting_doubts(price: PastPrice) -> tuple[str, ...]:
    """The doubts of a price; those that the months had of all of its provider, too."""
    return (*price.doubts, *_provider_doubts().get(price.provider, ()))


@cache
def _provider_doubts() -> Mapping[str, frozenset[str]]:
    """Doubts that every bundled monthly price of a provider has."""
    common: dict[str, frozenset[str]] = {}
    for row in bundled_history():
        words = frozenset(row.doubts)
        common[row.provider] = common.get(row.provider, words) & words
    return common


def place_of(price: PastPrice) -> _Place:
    """What a price is of."""
    return (price.source, price.provider, price.instance, price.region, price.zone)


def folded(prices: Iterable[PastPrice]) -> dict[MachineKey, PastPrice]:
    """One price for each source, provider, instance and region; what is not listed is not there."""
    zones: dict[MachineKey, list[PastPrice]] = defaultdict(list)
    for price in prices:
        zones[(price.source, price.provider, price.instance, price.region)].append(price)
    found = {machine: _in_region(listed) for machine, listed in zones.items()}
    return {machine: price for machine, price in found.items() if price is not None}


def _in_region(zones: Iterable[PastPrice]) -> PastPrice | None:
    """The price of a region: its own, or the cheapest zone's; None where it is not listed."""
    listed = [
        price
        for price in zones
        if price.price_usd_per_hour is not None or price.spot_usd_per_hour is not None
    ]
    for price in listed:
        if not price.zone:
            return price
    if len(listed) < 2:
        return listed[0] if listed else None
    return replace(
        listed[0],
        price_usd_per_hour=_lowest(price.price_usd_per_hour for price in listed),
        spot_usd_per_hour=_lowest(price.spot_usd_per_hour for price in listed),
    )


def _lowest(usds: Iterable[float | None]) -> float | None:
    return min((usd for usd in usds if usd is not None), default=None)


def past_usd(price: PastPrice, tenancy: RentTenancy) -> float | None:
    """The price in a tenancy; spot that saves nothing is none."""
    on_demand, spot = price.price_usd_per_hour, price.spot_usd_per_hour
    if tenancy == "on-demand" or spot is None or on_demand is None:
        return spot if tenancy == "spot" else on_demand
    return spot if spot < SAVES_NOTHING * on_demand else None


# Points


def _series_of(seen: Iterable[_Sighting], tenancy: RentTenancy) -> Iterator[PriceSeries]:
    """All providers together, then one by one."""
    by_provider: dict[str, list[_Sighting]] = defaultdict(list)
    for sighting in seen:
        by_provider[sighting.provider].append(sighting)
    single = [
        PriceSeries(provider=name, tenancy=tenancy, points=tuple(_points(found, tenancy)))
        for name, found in sorted(by_provider.items())
    ]
    together = tuple(_points_together(single))
    yield PriceSeries(provider="", tenancy=tenancy, points=together)
    yield from single


def _points(seen: Iterable[_Sighting], tenancy: RentTenancy) -> Iterator[PricePoint]:
    ordered = sorted(seen, key=lambda sighting: sighting.at)
    for sighting, later in zip_longest(ordered, ordered[1:]):
        types = sighting.types[tenancy]
        if types:
            yield PricePoint(
                at=sighting.at,
                cheapest_usd_per_gpu_hour=min(price.low for price in types),
                median_usd_per_gpu_hour=median(price.middle for price in types),
                cheapest_provider=sighting.provider,
                providers=1,
                machine_types=len(types),
                current_until=_stands_until(sighting, later, tenancy),
                source=sighting.source,
            )


def _stands_until(sighting: _Sighting, later: _Sighting | None, tenancy: RentTenancy) -> str:
    """The last day on which a list's prices are taken to stand."""
    if later is None:
        return sighting.current_until
    replaced = days_after(later.at[:10], -1)
    is_near = days_between(sighting.at[:10], later.at[:10]) <= BRIDGED_DAYS
    if tenancy == "on-demand" and is_near:
        return replaced
    return min(sighting.current_until, replaced)


def _points_together(single: Sequence[PriceSeries]) -> Iterator[PricePoint]:
    """A point for every time at which a provider's list was seen: of all that stood then.

    Who resells counts for the cheapest price, but not for the middle one.
    """
    times = sorted({point.at for series in single for point in series.points})
    for at, later in zip_longest(times, times[1:], fillvalue="9999-12-31"):
        standing = [point for series in single if (point := series.current(at)) is not None]
        sellers = [point for point in standing if not _resells(point.cheapest_provider)]
        cheapest = min(standing, key=lambda point: point.cheapest_usd_per_gpu_hour)
        yield replace(
            cheapest,
            at=at,
            median_usd_per_gpu_hour=median(
                point.median_usd_per_gpu_hour for point in sellers or standing
            ),
            providers=len(standing),
            machine_types=sum(point.machine_types for point in standing),
            current_until=min(
                max(point.current_until for point in standing), days_after(later[:10], -1)
            ),
        )


def _resells(provider: str) -> bool:
    return "aggregator" in _provider_doubts().get(provider, ())


def _between(series: PriceSeries, since: str, until: str) -> PriceSeries:
    points = [
        point
        for point in series.points
        if since <= point.at and (not until or point.at <= _end_of(until))
    ]
    return replace(series, points=tuple(points))


def last_second(time: str) -> str:
    """The end of a day; a time as it is."""
    return time if "T" in time else f"{time}T23:59:59Z"


def _end_of(time: str) -> str:
    """A text that is above every time of a month, a day or a second, and below all later ones."""
    return f"{time}~"


# --- is now a good time? ---

WAITS = (1, 3, 6)
"""Months of waiting that are looked at."""
LEAST_MONTHS = 6
"""Months of the last year that must be known before it is said where today's price lies.

Assumes: half of them; of fewer, one odd month decides.
"""
LEAST_CASES = 12
"""Cases from which it is said what waiting gained.

Assumes: a year of months. They overlap, so that they tell less than so many separate ones would.
"""
SAME_PRICE = 0.01
"""Prices closer than this share of each other are the same.

Assumes: rounding and exchange rates move prices by less.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What waiting so many months did to the price in the past, of the same providers.

    A case is a month of the history and the one so many months after it, on providers whose prices
    are known in both, at least one of them seen anew: so that a provider that joined the lists does
    not look like a fall in price, nor a list that nobody renewed like a price that stands.
    """

    months: int
    cases: int
    cheaper: int
    """Cases in which the cheapest price was lower after, by more than 1 %."""
    dearer: int
    median_ratio: float | None
    """The price after over the price before; None where there are too few cases to say."""
    best_ratio: float | None
    worst_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodTime:
    """Where the cheapest price lies in the year before it, and what waiting gained in the past."""

    tenancy: RentTenancy
    now: PricePoint
    """The newest there is, which may be old."""
    is_current: bool
    """Whether it is taken to stand today."""
    lowest: PricePoint | None
    """Of the year before; None, as the others, where too little of it is known."""
    highest: PricePoint | None
    months: int
    """Of the year before, with a price: its last of each counts."""
    cheaper_months: int
    """Of those, in which it was lower than now, by more than 1 %."""
    dearer_months: int
    percentile: float | None
    """The share of those months that were cheaper, those of the same price counted half (0 to 1):
    low is a good time. None where fewer than 6 are known."""
    waiting: tuple[Waiting, ...]


def good_time(history: PriceHistory, tenancy: RentTenancy, today: str) -> GoodTime | None:
    """Whether a GPU is cheap today, by its own past; None where no price is known.

    What prices did is no forecast: the same machine may cost anything next month.
    """
    together = history.of(tenancy)
    if not together.points:
        return None
    now = together.points[-1]
    monthly = _last_of_months(together.points)
    first = _months_after(now.month, -12)
    year = [point for month, point in monthly.items() if first <= month < now.month]
    cheaper = sum(_is_lower(point, now) for point in year)
    dearer = sum(_is_lower(now, point) for point in year)
    enough = len(year) >= LEAST_MONTHS
    same = len(year) - cheaper - dearer
    return GoodTime(
        tenancy=tenancy,
        now=now,
        is_current=today <= now.current_until,
        lowest=min(year, key=_cheapest) if enough else None,
        highest=max(year, key=_cheapest) if enough else None,
        months=len(year),
        cheaper_months=cheaper,
        dearer_months=dearer,
        percentile=(cheaper + same / 2) / len(year) if enough else None,
        waiting=tuple(_waiting(history, tenancy, months) for months in WAITS),
    )


def _cheapest(point: PricePoint) -> float:
    return point.cheapest_usd_per_gpu_hour


def _is_lower(one: PricePoint, other: PricePoint) -> bool:
    return _cheapest(one) < (1 - SAME_PRICE) * _cheapest(other)


def _last_of_months(points: Iterable[PricePoint]) -> dict[str, PricePoint]:
    """The last point of each month that has any."""
    return {point.month: point for point in points}


def _months_after(month: str, months: int) -> str:
    number = int(month[:4]) * 12 + int(month[5:7]) - 1 + months
    return f"{number // 12:04}-{number % 12 + 1:02}"


def _waiting(history: PriceHistory, tenancy: RentTenancy, months: int) -> Waiting:
    monthly = _last_of_months(history.of(tenancy).points)
    ratios = []
    for month, before in monthly.items():
        after = monthly.get(_months_after(month, months))
        if after is not None:
            ratio = _ratio(history.providers(tenancy), before.at, after.at)
            ratios += [ratio] if ratio is not None else []
    enough = len(ratios) >= LEAST_CASES
    return Waiting(
        months=months,
        cases=len(ratios),
        cheaper=sum(ratio < 1 - SAME_PRICE for ratio in ratios),
        dearer=sum(ratio > 1 + SAME_PRICE for ratio in ratios),
        median_ratio=median(ratios) if enough else None,
        best_ratio=min(ratios) if enough else None,
        worst_ratio=max(ratios) if enough else None,
    )


def _ratio(providers: Iterable[PriceSeries], before: str, after: str) -> float | None:
    """The cheapest price after over that before, of providers known at both times."""
    pairs = [(series.current(before), series.current(after)) for series in providers]
    known = [(one, other) for one, other in pairs if one is not None and other is not None]
    if all(one is other for one, other in known):
        return None  # nobody's list was seen anew, or nobody's is known at both times
    then = min(_cheapest(one) for one, _ in known)
    return min(_cheapest(other) for _, other in known) / then
