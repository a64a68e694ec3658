"""What joins the GPUs of an offer, and its machines: rows of `data/instance_links.csv`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache

from outlay.facts import rows_of
from outlay.offers.offer import Offer

GBIT_BYTES_PER_S = 1e9 / 8


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
    known = _links(offer.provider, offer.instance)
    if offer.network_bytes_per_s is None:
        return known
    return replace(known, network_bytes_per_s=offer.network_bytes_per_s)


@cache
def _links(provider: str, instance: str) -> KnownLinks:
    found: dict[str, str] = {}
    for row in _rows():
        if row["provider"] == provider and fnmatchcase(instance, row["instance_pattern"]):
            found.setdefault(row["parameter"], row["value"])
    network = found.get("network")
    return KnownLinks(
        gpu_link=found.get("gpu_link", ""),
        network_bytes_per_s=None if network is None else float(network) * GBIT_BYTES_PER_S,
        network_kind=found.get("network_kind", ""),
    )


@cache
def _rows() -> list[dict[str, str]]:
    return rows_of("instance_links.csv")
