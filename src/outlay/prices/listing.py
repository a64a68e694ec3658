"""A listing: one machine type in one place, as one source lists it on one day.

What a source's reader makes of its reply, before anything is looked up, merged or doubted:

    reply -> Listing (here) -> Offer (price_list.py) -> doubts (checks.py) -> ProviderPrices (here)
"""

from __future__ import annotations

from dataclasses import dataclass

from outlay.offers.offer import HostQuality, Offer


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One machine type in one zone (or region, where the source has no zones).

    A figure is None where the source does not give it; nothing is guessed here.
    """

    provider: str
    """As outlay names it (`lambda`, `vast`, `do`); as the source does where it is new to outlay."""
    instance: str
    gpu: str
    """The source's own spelling."""
    gpus: float
    """Below 1 for a share of one GPU."""
    region: str
    """As the source names it; empty where it names none."""
    zone: str = ""
    price_usd_per_hour: float | None
    """Of the whole machine, on demand."""
    spot_usd_per_hour: float | None = None
    gpu_memory_bytes: float | None = None
    """Of one GPU, as the source says: often wrong, so it is compared and not believed."""
    vcpus: float | None = None
    ram_bytes: float | None = None
    local_disk_bytes: float | None = None
    host: HostQuality | None = None
    """Of a single host of a marketplace."""
    doubts: tuple[str, ...] = ()
    """Words of `data/offer_doubts.csv` that the source's own way of listing calls for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonePrice:
    """What a machine type costs in one zone on one day; USD an hour of the whole machine."""

    provider: str
    instance: str
    region: str
    zone: str
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPrices:
    """What one source says of one provider: offers of one day, looked up and checked."""

    source: str
    """`skypilot`, `gpuhunt`, `vast`, `own` ..."""
    provider: str
    as_of: str
    """The day the prices are of (YYYY-MM-DD): when what the source says last changed, as far as
    that is known; else the day it was asked."""
    fetched_at: str
    """When the source was asked: UTC, `2026-11-16T20:15:00Z`."""
    offers: tuple[Offer, ...]
    zones: tuple[ZonePrice, ...] = ()
    """Of providers whose prices differ from zone to zone."""
    unknown: tuple[Offer, ...] = ()
    """Offers of GPUs that outlay does not know, by the source's spelling: kept and named."""
    notes: tuple[str, ...] = ()
    """What to say of them: rows that could not be read, names that are new."""
