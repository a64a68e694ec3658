"""What an offer's machine has: what joins its GPUs and its machines, and how fast its disk reads.

Links are rows of `data/instance_links.csv`, disks of `data/disk_rates.csv`; what the user says of
either goes first, then what a marketplace measured of a single host, and what disks of a kind
usually read (`data/feed_rates.csv`) last.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache

from outlay.facts import assumed, rows_of
from outlay.offers.offer import Offer
from outlay.uncertainty import Estimate, Uncertain
from outlay.units import MB
from outlay.workload.workload import Dataset

GBIT_BYTES_PER_S = 1e9 / 8
_IN_A_HOST = frozenset({"nvme", "sata", "hdd", "volume"})
"""Kinds that are the disk of a single host: its volumes lie on it, too."""

# --- links ---


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownLinks:
    """What a provider says of an instance type's links; None and empty are unknown."""

    gpu_link: str = ""
    """`nvswitch`, `nvlink mesh`, `nvlink bridge` or `pcie`."""
    network_bytes_per_s: float | None = None
    """Between machines, of one machine in one direction."""
    network_kind: str = ""


def links_of(offer: Offer) -> KnownLinks:
    """What is known of an offer's links: the user's word, then the first row that fits."""
    links = _links(offer.provider, offer.instance)
    if offer.network_bytes_per_s is None:
        return links
    return replace(links, network_bytes_per_s=offer.network_bytes_per_s)


@cache
def _links(provider: str, instance: str) -> KnownLinks:
    values: dict[str, str] = {}
    for row in _link_rows():
        if row["provider"] == provider and fnmatchcase(instance, row["instance_pattern"]):
            values.setdefault(row["parameter"], row["value"])
    network = values.get("network")
    return KnownLinks(
        gpu_link=values.get("gpu_link", ""),
        network_bytes_per_s=None if network is None else float(network) * GBIT_BYTES_PER_S,
        network_kind=values.get("network_kind", ""),
    )


@cache
def _link_rows() -> list[dict[str, str]]:
    return rows_of("instance_links.csv")


# --- disks ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """Where training data is read from, and how fast."""

    name: str
    bytes_per_s: Uncertain


def disk_of(offer: Offer, data: Dataset) -> Disk:
    """The disk that training on an offer reads its data from."""
    feed = data.feed
    if offer.disk_bytes_per_s is not None:
        return Disk(name=offer.disk or "its disk", bytes_per_s=offer.disk_bytes_per_s)
    if feed is not None and feed.disk_bytes_per_s is not None:
        return Disk(name=feed.disk or "the disk", bytes_per_s=feed.disk_bytes_per_s)
    kind = offer.disk or (feed.disk if feed is not None else None) or _usual_disk(offer, data)
    measured = offer.host.disk_bytes_per_s if offer.host is not None else None
    if measured is not None and kind in _IN_A_HOST:
        return Disk(name="the host's disk", bytes_per_s=_measured_bytes_per_s(measured))
    if kind == "volume":
        return Disk(name="a network volume", bytes_per_s=_volume_bytes_per_s(offer))
    return Disk(name=kind, bytes_per_s=feed_rates()[f"disk_{kind}"])


def _measured_bytes_per_s(measured: float) -> Estimate:
    """What a run gets of a host's disk: all of it, and less where others read, too."""
    low = assumed("host_disk_low_share") * measured
    return Estimate(low=low, likely=measured, high=measured)


def _usual_disk(offer: Offer, data: Dataset) -> str:
    """What data is read from where nobody said: a volume unless it lies in the machine."""
    if offer.owned is not None:
        return "nvme"
    if data.storage == "object":
        return "object"
    inside = data.storage in ("disk", "none") and (offer.local_disk_bytes or 0) > 0
    return "nvme" if inside else "volume"


def _volume_bytes_per_s(offer: Offer) -> Uncertain:
    """The provider's usual volume, held to what the instance type can take."""
    rates = [
        (row["parameter"], float(row["value"]) * MB)
        for row in _disk_rows(offer.provider)
        if fnmatchcase(offer.instance, row["instance_pattern"])
    ]
    volume = [rate for parameter, rate in rates if parameter == "volume_bandwidth"]
    limit = [rate for parameter, rate in rates if parameter == "instance_limit"]
    if not volume:
        return feed_rates()["disk_volume"]
    likely = min(volume[0], *limit) if limit else volume[0]
    # More can be bought, up to what the instance takes; the usual is what one gets unasked.
    high = max(likely, min(limit)) if limit else 2 * likely
    return Estimate(low=0.8 * likely, likely=likely, high=high)


@cache
def _disk_rows(provider: str) -> tuple[dict[str, str], ...]:
    return tuple(row for row in rows_of("disk_rates.csv") if row["provider"] == provider)


@cache
def feed_rates() -> dict[str, Estimate]:
    """What disks and CPU threads deliver, by name."""
    return {
        row["name"]: Estimate(
            low=float(row["low"]), likely=float(row["value"]), high=float(row["high"])
        )
        for row in rows_of("feed_rates.csv")
    }
