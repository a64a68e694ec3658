"""How fast an offer's disk reads: as the user said, as its provider says, or as such disks do."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache

from outlay.chance import Uncertain
from outlay.estimate import Estimate
from outlay.facts import rows_of
from outlay.offers.offer import Offer
from outlay.units import MB
from outlay.workload import Dataset


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
    kind = offer.disk or (feed.disk if feed is not None else None) or _usual(offer, data)
    if kind == "volume":
        return Disk(name="a network volume", bytes_per_s=_volume_bytes_per_s(offer))
    return Disk(name=kind, bytes_per_s=feed_rates()[f"disk_{kind}"])


def _usual(offer: Offer, data: Dataset) -> str:
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
        for row in _rows(offer.provider)
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
def _rows(provider: str) -> tuple[dict[str, str], ...]:
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
