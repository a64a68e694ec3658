"""Places: where data lies and where machines are, and how far it is from one to the other.

A place is a provider, or a provider and one of its regions: `aws`, `aws:us-east-1`. A bare
provider is the region the machine is in, where the machine is the same provider's. Besides there
are `home`, `internet` and `run`, which is wherever the machine is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from outlay.offers.offer import Offer
from outlay.workload.workload import FREE_SOURCES, WITH_THE_RUN, Workload

_ANYWHERE = frozenset({"", "any", "unknown", "default"})
"""Regions of offers that do not say where the machine is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A provider, or one of its regions; or `home`, `internet`, `run`."""

    provider: str
    region: str | None = None
    """None where it is not said: then it may be any of the provider's."""

    @property
    def is_free(self) -> bool:
        """Whether nobody charges for fetching from there."""
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
def place_of(text: str) -> Place:
    """The place a text such as `aws:us-east-1` names; names are not checked."""
    provider, _, region = text.partition(":")
    return Place(provider=provider.strip(), region=region.strip() or None)


def place_of_offer(offer: Offer) -> Place:
    """Where an offer's machine is: at home where it is one's own."""
    if offer.owned is not None:
        return HOME
    region = None if offer.region.lower() in _ANYWHERE else offer.region
    return Place(provider=offer.provider, region=region)


def place_for(text: str, machine: Place) -> Place:
    """The place a text names for a run on a machine: `run` is the machine's own, and a bare
    provider is the machine's region where it is the same provider."""
    place = machine if text == WITH_THE_RUN else place_of(text)
    if place.region is None and place.provider == machine.provider:
        return machine
    return place


def distance(origin: Place, destination: Place) -> int:
    """0: the same region, or nobody has to move anything; 1: another region of the same provider;
    2: another provider, or home. What is fetched from the internet is as near to everyone."""
    if origin.provider == "internet" or origin.is_same_as(destination):
        return 0
    return 1 if origin.provider == destination.provider else 2


def data_distance(workload: Workload, offer: Offer) -> int:
    """How far the farthest of a workload's data has to go to an offer's machine, as `distance`."""
    machine, data = place_of_offer(offer), workload.data
    origins = [item.at for item in workload.stored if item.pulled_bytes]
    if data.size_bytes:
        origins.append(data.at if data.kept_at == WITH_THE_RUN else data.kept_at)
    return max((distance(place_for(at, machine), machine) for at in origins), default=0)
