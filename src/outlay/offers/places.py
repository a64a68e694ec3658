"""Places: where data lies and where machines are, what lies between them, and how data gets there.

A place is a provider, or a provider and one of its regions: `aws`, `aws:us-east-1`. A bare
provider is the region the machine is in, where the machine is the same provider's. Besides there
are `home`, `internet` and `run`, which is wherever the machine is.

`with_known_places` checks what a workload file says, `transfer_price` has what moving a byte costs
by the provider's rules (`data/region_transfers.csv`, `data/regions.csv`), `data_route` says what is
copied before a machine is rented and by whom, and `data_distance` how near the data is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from statistics import median
from typing import Literal

from outlay.caching import ById
from outlay.errors import NotKnown
from outlay.facts import Fact, fact_of, rows_of
from outlay.offers.catalog import bundled_offers
from outlay.offers.offer import CHEAPEST_REGION, Offer
from outlay.offers.terms import Terms, known_provider, quoted_providers
from outlay.units import GB, GIB
from outlay.workload.workload import FREE_SOURCES, WITH_THE_RUN, Dataset, Workload

_ANYWHERE = frozenset({"", "any", "unknown", "default", CHEAPEST_REGION})
"""Regions of offers that do not say where the machine is."""
_INTERNET = "internet"
_ANY = "any"
_LASTING = ("volume", "object")
"""Storage that outlives a machine, and can be filled before one is rented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A provider, or one of its regions; or `home`, `internet`, `run`."""

    provider: str
    region: str | None = None
    """None where it is not said: then it may be any of the provider's."""

    @property
    def is_free(self) -> bool:
        """Whether nobody charges for keeping things there or fetching them."""
        return self.provider in FREE_SOURCES

    def is_same_as(self, other: Place) -> bool:
        """Whether one is in the other: the same provider, and no two different regions."""
        if self.provider != other.provider:
            return False
        return self.region is None or other.region is None or self.region == other.region

    def __str__(self) -> str:
        return self.provider if self.region is None else f"{self.provider}:{self.region}"


HOME = Place(provider="home")


@lru_cache(maxsize=1024)
def read_place(text: str) -> Place:
    """The place a text such as `aws:us-east-1` names; whether there is one is not checked."""
    provider, _, region = (part.strip() for part in text.partition(":"))
    return Place(provider=provider, region=_whole_region(provider, region) or None)


def place_of_offer(offer: Offer) -> Place:
    """Where an offer's machine is: at home where it is one's own."""
    return HOME if offer.owned is not None else _place_in(offer.provider, offer.region)


@lru_cache(maxsize=4096)
def _place_in(provider: str, region: str) -> Place:
    """A provider's region as offers name it."""
    if region.lower() in _ANYWHERE:
        return Place(provider=provider)
    return Place(provider=provider, region=_whole_region(provider, region))


def place_for(text: str, machine: Place) -> Place:
    """The place a text names for a run on a machine: `run` is the machine's own, and a bare
    provider is the machine's region where it is the same provider."""
    place = machine if text == WITH_THE_RUN else read_place(text)
    if place.region is None and place.provider == machine.provider:
        return machine
    return place


# --- which places there are ---


def with_known_places(workload: Workload) -> Workload:
    """The workload with every place something lies at checked and spelled as in the tables."""

    def known(text: str) -> str:
        return _known_place(text, workload)

    data = replace(workload.data, at=known(workload.data.at), kept_at=known(workload.data.kept_at))
    stored = tuple(
        replace(item, at=known(item.at), also_at=tuple(map(known, item.also_at)))
        for item in workload.stored
    )
    return replace(workload, data=data, stored=stored)


def _known_place(text: str, workload: Workload) -> str:
    """A place as the tables spell it, or an error with the nearest names."""
    if text in (WITH_THE_RUN, *FREE_SOURCES):
        return text
    name, colon, region = (part.strip() for part in text.partition(":"))
    provider = known_provider(name, quoted_providers(workload))
    if not colon:
        return provider
    regions = _regions_of(provider, workload)
    if regions is None and region:
        return f"{provider}:{region}"
    by_name = {one.lower(): one for one in regions or ()}
    if region.lower() not in by_name:
        raise NotKnown(
            f"region of {provider}",
            region,
            sorted(by_name.values()),
            fix=f'Written as "{provider}" alone, it is the region the machine is in.',
        )
    return f"{provider}:{by_name[region.lower()]}"


def _regions_of(provider: str, workload: Workload) -> set[str] | None:
    """The regions a provider is known to have; None where its offers do not tell them apart."""
    listed = {region for name, region in _regions() if name == provider}
    offered = {offer.region for offer in bundled_offers() if offer.provider == provider}
    offered |= {quote.region for quote in workload.quotes if quote.provider == provider}
    if not listed and (not offered or any(region.lower() in _ANYWHERE for region in offered)):
        return None
    return listed | {region for region in offered if region.lower() not in _ANYWHERE}


@cache
def _regions() -> Mapping[tuple[str, str], dict[str, str]]:
    """The regions of the providers that tell them apart, by provider and name."""
    return {(row["provider"], row["region"]): row for row in rows_of("regions.csv")}


def _whole_region(provider: str, region: str) -> str:
    """The region itself, or the one that a local zone belongs to."""
    row = _regions().get((provider, region))
    return row["within"] or region if row else region


def _continent(place: Place) -> str | None:
    row = _regions().get((place.provider, place.region or ""))
    return row["continent"] if row else None


# --- what moving something costs ---


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferPrice:
    """What a provider charges for what leaves one of its places."""

    usd_per_byte: float | None
    """None where nobody found it out."""
    usual_usd_per_byte: float | None
    """What others charge for the same."""
    source: str
    way: str
    """`out of Amazon Web Services`, `from us-east-1 to eu-west-1 of Amazon Web Services`."""
    to_internet: bool
    """Whether the free allowance of what leaves the provider counts for it."""


def transfer_price(
    origin: Place, destination: Place, terms: Terms, usual_usd_per_byte: float | None = None
) -> TransferPrice | None:
    """The price of a byte from one place to another; None where nobody charges for it.

    terms: of the provider it leaves. usual_usd_per_byte: what leaving a provider usually costs.
    Within a region object stores and registries give to machines for nothing; zones are not told
    apart.
    """
    if origin.is_free or origin.is_same_as(destination):
        return None
    if origin.provider == destination.provider:
        return _between_regions(origin, destination, terms)
    fact = _rule(origin, Place(provider=_INTERNET)) if "egress" in terms.facts else None
    where = "" if origin.region is None or fact is None else f" in {origin.region}"
    return TransferPrice(
        usd_per_byte=terms.egress_usd_per_byte if fact is None else _per_byte(fact),
        usual_usd_per_byte=usual_usd_per_byte,
        source=terms.source_of("egress") if fact is None else f"{fact.source}, {fact.as_of}",
        way=f"out of {terms.name}{where}",
        to_internet=True,
    )


def _between_regions(origin: Place, destination: Place, terms: Terms) -> TransferPrice:
    """What another region of the same provider costs: as the user says, by its rule, or nothing
    where it charges for nothing that leaves it; else nobody knows."""
    usd_per_byte, source = terms.between_regions_usd_per_byte, "the workload file"
    fact = _rule(origin, destination)
    if usd_per_byte is None and fact is not None:
        usd_per_byte, source = _per_byte(fact), f"{fact.source}, {fact.as_of}"
    elif usd_per_byte is None and terms.egress_usd_per_byte == 0:
        usd_per_byte, source = 0.0, terms.source_of("egress")
    return TransferPrice(
        usd_per_byte=usd_per_byte,
        usual_usd_per_byte=_usual_between_regions(),
        source=source,
        way=f"from {origin.region} to {destination.region} of {terms.name}",
        to_internet=False,
    )


def _rule(origin: Place, destination: Place) -> Fact | None:
    """The rule that says most about where it comes from and goes to."""
    rules = _rules().get(origin.provider, {})
    if destination.provider == _INTERNET:
        ends: tuple[str | None, ...] = (_INTERNET,)
    else:
        ends = (destination.region, _continent(destination), _ANY)
    starts = (origin.region, _continent(origin), _ANY)
    return next(
        (rules[key] for key in ((s, e) for s in starts for e in ends) if key in rules), None
    )


@cache
def _rules() -> Mapping[str, Mapping[tuple[str | None, str | None], Fact]]:
    """Prices by provider, then by origin and destination: a region, a continent or any."""
    rules: dict[str, dict[tuple[str | None, str | None], Fact]] = {}
    for row in rows_of("region_transfers.csv"):
        rules.setdefault(row["provider"], {})[row["origin"], row["destination"]] = fact_of(row)
    return rules


@cache
def _usual_between_regions() -> float:
    """The middle of what providers charge between two of their regions."""
    return median(
        median(_per_byte(fact) for (_, end), fact in rules.items() if end != _INTERNET)
        for rules in _rules().values()
    )


def _per_byte(fact: Fact) -> float:
    return (fact.number or 0.0) / (GIB if "GiB" in fact.unit else GB)


# --- how data gets to the machine ---

CopiedBy = Literal["", "no machine", "copying machine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRoute:
    """How a dataset gets from where it lies to where it is kept, and from there to the machine."""

    size_bytes: float = 0.0
    origin: Place
    kept: Place
    """Where it is kept meanwhile."""
    machine: Place
    storage: str = "volume"
    copied_by: CopiedBy = ""
    """What brings it to where it is kept before a machine is rented; empty: nothing has to."""
    fetched_from: Place | None = None
    """Where the rented machine itself gets it from; None where it finds it on its volume, or
    reads it in the object store beside it."""
    fetched_each_session: bool = False

    @property
    def timing(self) -> tuple[object, ...]:
        """What the time of a run depends on."""
        from_home = self.fetched_from == HOME
        copied_from_home = bool(self.copied_by) and self.origin == HOME
        return (
            bool(self.copied_by), copied_from_home,
            self.fetched_from is not None, from_home, self.fetched_each_session,
        )  # fmt: skip


def data_route(workload: Workload, offer: Offer, terms: Callable[[str], Terms]) -> DataRoute:
    """How a workload's dataset gets to an offer's machine."""
    return _route(ById(workload.data), place_of_offer(offer), terms)


def route_to_anywhere(data: Dataset) -> DataRoute:
    """How a dataset gets to a rented machine of which nothing is known."""
    return _route(ById(data), Place(provider=""), _unknown_terms)


def _unknown_terms(provider: str) -> Terms:
    return Terms(provider=provider, name=provider)


@lru_cache(maxsize=4096)
def _route(data: ById[Dataset], machine: Place, terms: Callable[[str], Terms]) -> DataRoute:
    value = data.value
    origin, kept = place_for(value.at, machine), place_for(value.kept_at, machine)
    route = DataRoute(
        size_bytes=value.size_bytes or 0.0,
        origin=origin,
        kept=kept,
        machine=machine,
        storage=value.storage,
    )
    if not route.size_bytes:
        return route
    if not kept.is_same_as(machine):
        copied = "" if origin.is_same_as(kept) else _copied_by(route, terms)
        return replace(route, copied_by=copied, fetched_from=kept, fetched_each_session=True)
    if value.at == _INTERNET and value.preparation_s != 0.0:
        return route  # Assumes: a stated preparation time includes fetching from outside.
    if _outlives_machines(route, terms):
        is_there = value.at == WITH_THE_RUN or (
            origin.is_same_as(kept) and (value.storage != "volume" or value.kept_at != WITH_THE_RUN)
        )
        return replace(route, copied_by="" if is_there else _copied_by(route, terms))
    if value.at == WITH_THE_RUN or (origin == HOME and machine == HOME):
        return route
    return replace(route, fetched_from=origin, fetched_each_session=value.prepared_each_session)


def _outlives_machines(route: DataRoute, terms: Callable[[str], Terms]) -> bool:
    """Whether what lies beside the machine is there before it, so that others can fill it."""
    if route.machine == HOME or route.storage not in _LASTING:
        return False
    return terms(route.machine.provider).quality("access") != "notebook"


def _copied_by(route: DataRoute, terms: Callable[[str], Terms]) -> CopiedBy:
    """What copies the data: object stores take uploads and copy among themselves; a volume needs
    a machine to write to it, unless its provider takes uploads to volumes as well."""
    if route.kept.is_free:
        return "no machine"
    from_home, is_volume = route.origin == HOME, route.storage == "volume"
    if is_volume:
        direct = terms(route.kept.provider).quality("volume_uploads") == "direct"
        return "no machine" if from_home and direct else "copying machine"
    same_provider = route.origin.provider == route.kept.provider
    return "no machine" if from_home or same_provider else "copying machine"


# --- how near the data is ---


def distance(origin: Place, destination: Place) -> int:
    """0: the same region, or nobody has to move anything; 1: another region of the same provider;
    2: another provider, or home. What is fetched from the internet is as near to everyone."""
    if origin.provider == _INTERNET or origin.is_same_as(destination):
        return 0
    return 1 if origin.provider == destination.provider else 2


def data_distance(workload: Workload, offer: Offer) -> int:
    """How far the farthest of a workload's data has to go to an offer's machine, as `distance`."""
    machine, data = place_of_offer(offer), workload.data
    origins = [item.at for item in workload.stored if item.pulled_bytes]
    if data.size_bytes:
        origins.append(data.at if data.kept_at == WITH_THE_RUN else data.kept_at)
    return max((distance(place_for(at, machine), machine) for at in origins), default=0)
