"""Time of collective operations between GPUs, and how much of it a step cannot hide.

A ring moves 2 (n - 1) / n of the bytes of an all-reduce over the slowest link of each GPU, and
half of that for gathering or scattering (Patarasuk and Yuan 2009, doi 10.1016/j.jpdc.2008.09.002).
Between machines the slowest link is a machine's network, shared by the groups that cross it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outlay.predict.links import Links, rounds

BUCKET_BYTES = 25 * 2**20
"""DistributedDataParallel exchanges gradients in pieces of this size.
# Source: torch 2.13, DistributedDataParallel, bucket_cap_mb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """GPUs that communicate: how many of each machine, on how many machines.

    `sharing` is how many such groups of one machine send over its network at the same time.
    """

    within: int
    nodes: int = 1
    sharing: int = 1

    @property
    def members(self) -> int:
        """All of them."""
        return self.within * self.nodes


def bytes_per_s(group: Group, links: Links) -> float:
    """The slowest link on the group's ring."""
    network = links.network_bytes_per_s / group.sharing
    if group.nodes == 1:
        return links.bytes_per_s
    return network if group.within == 1 else min(links.bytes_per_s, network)


def gather_s(size_bytes: float, group: Group, links: Links) -> float:
    """Every member gets (or sums) all parts of `size_bytes`: an all-gather or reduce-scatter."""
    n = group.members
    if n == 1 or size_bytes <= 0:
        return 0.0
    moving_s = (n - 1) / n * size_bytes / bytes_per_s(group, links)
    short = 1 + math.sqrt(links.half_bytes / size_bytes)
    return moving_s * short + _start_s(group, links)


def all_reduce_s(size_bytes: float, group: Group, links: Links) -> float:
    """Every member gets the sum of all members' `size_bytes`."""
    return 2 * gather_s(size_bytes, group, links)


def pass_on_s(size_bytes: float, links: Links, *, between_nodes: bool) -> float:
    """One GPU hands `size_bytes` to the next."""
    if between_nodes:
        return size_bytes / links.network_bytes_per_s + links.network_start_s
    return size_bytes / links.bytes_per_s + links.start_s


def _start_s(group: Group, links: Links) -> float:
    inside = rounds(group.within) * links.start_s
    return inside + rounds(group.nodes) * links.network_start_s


def exposed_s(
    size_bytes: float, backward_s: float, ready: Sequence[float], group: Group, links: Links
) -> float:
    """What an exchange of gradients adds after backward, piece by piece as they are finished.

    Pieces wait for each other; `ready` says at which share of backward each part of the bytes is
    finished (see `trace.structure`).
    """
    if group.members == 1 or size_bytes <= 0:
        return 0.0
    part_bytes = size_bytes / len(ready)
    pieces = max(part_bytes / BUCKET_BYTES, 1.0)
    part_s = pieces * all_reduce_s(part_bytes / pieces, group, links)
    ended_s = 0.0
    for share in ready:
        ended_s = max(ended_s, share * backward_s) + part_s
    return max(ended_s - backward_s, 0.0)
