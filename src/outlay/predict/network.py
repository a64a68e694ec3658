"""What joins the GPUs of a step: links within a machine, and the network between machines.

Rates are what a large collective operation reaches ("bus bandwidth" of nccl-tests), which is a
share of what is printed on the link. Hosts differ, so that every rate is a range; the arithmetic of
`predict.communicate` takes one set of `Links` at a time: slow, likely or fast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outlay.hardware.gpus import Gpu
from outlay.predict.calibration import Calibration
from outlay.uncertainty import Estimate

GpuLink = Literal[
    "nvlink",  # NVLink between all GPUs of the machine, by switches
    "mesh",  # NVLink or Infinity Fabric by direct links
    "bridge",  # NVLink between pairs
    "pcie",  # PCIe, from GPU to GPU
    "host",  # PCIe, through the memory of the host: no peer-to-peer, as with GeForce drivers
]
Case = Literal["slow", "likely", "fast"]
CASES: tuple[Case, ...] = ("fast", "likely", "slow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What is known of a machine's links; None is what its GPUs usually come with."""

    within: GpuLink | None = None
    network_bytes_per_s: float | None = None
    """Of one machine, in one direction, as it is sold."""
    network_kind: str = ""


UNKNOWN_WIRING = Wiring()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """One case of what the GPUs of a step send over: bytes a second, and what a start costs."""

    within: GpuLink
    bytes_per_s: float
    """What one GPU sends within its machine in a large collective."""
    start_s: float
    half_bytes: float
    """Messages of this size take twice their time at full rate."""
    network_bytes_per_s: float
    """What one machine sends to others."""
    network_start_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The links of a step's GPUs in three cases, and whether the network is a guess."""

    slow: Links
    likely: Links
    fast: Links
    network_is_assumed: bool = False

    def case(self, case: Case) -> Links:
        """The links in one case."""
        return {"slow": self.slow, "likely": self.likely, "fast": self.fast}[case]


def usual_gpu_link(gpu: Gpu, gpus: int) -> GpuLink:
    """What machines with so many of this GPU usually join them with."""
    if gpu.nvlink_bytes_per_s is not None and gpu.nvlink_reach in ("all", "mesh"):
        return "mesh" if gpu.nvlink_reach == "mesh" else "nvlink"
    return "pcie" if gpu.peer_to_peer is not False or gpus == 1 else "host"


def fabric_of(
    gpu: Gpu, gpus: int, wiring: Wiring, calibration: Calibration, *, nodes: int = 1
) -> Fabric:
    """The links of `nodes` machines with `gpus` GPUs each."""
    within = wiring.within or usual_gpu_link(gpu, gpus)
    if within == "bridge" and gpus > 2:
        within = _without_nvlink(gpu)
    rate = gpu_link_bytes_per_s(gpu, gpus, within, calibration)
    network = _network_bytes_per_s(wiring, calibration)

    def case(rate_bytes_per_s: float, network_bytes_per_s: float) -> Links:
        return Links(
            within=within,
            bytes_per_s=rate_bytes_per_s,
            start_s=calibration.number(f"link_start_{within}_s"),
            half_bytes=calibration.number(f"link_half_{within}_bytes"),
            network_bytes_per_s=network_bytes_per_s,
            network_start_s=calibration.number("network_start_s"),
        )

    return Fabric(
        slow=case(rate.low, network.low),
        likely=case(rate.likely, network.likely),
        fast=case(rate.high, network.high),
        network_is_assumed=nodes > 1 and wiring.network_bytes_per_s is None,
    )


def gpu_link_bytes_per_s(
    gpu: Gpu, gpus: int, within: GpuLink, calibration: Calibration
) -> Estimate:
    """Bytes a second one of so many GPUs sends in a large collective within a machine.

    Over PCIe the rate falls with the number of GPUs, which share switches, sockets and memory.
    """
    if within in ("nvlink", "mesh", "bridge"):
        both_ways = gpu.nvlink_bytes_per_s
        if both_ways is None or (within == "bridge" and gpus > 2):
            return gpu_link_bytes_per_s(gpu, gpus, _without_nvlink(gpu), calibration)
        return calibration.estimate(f"link_{within}").scaled(both_ways / 2)
    raw = gpu.pcie_bytes_per_s or calibration.number("pcie_unknown_bytes_per_s")
    falloff = calibration.number(f"link_{within}_falloff")
    shared = max(gpus / 2, 1.0) ** -falloff
    share = calibration.estimate(f"link_{within}").scaled(shared)
    wider = max(gpus / 2, 1.0) ** calibration.number("link_spread")
    return Estimate(
        low=share.low / wider * raw,
        likely=share.likely * raw,
        high=max(min(share.high * wider, 0.9), share.likely) * raw,
    )


def _without_nvlink(gpu: Gpu) -> GpuLink:
    return "host" if gpu.peer_to_peer is False else "pcie"


def _network_bytes_per_s(wiring: Wiring, calibration: Calibration) -> Estimate:
    raw = wiring.network_bytes_per_s
    if raw is None:
        return calibration.estimate("network_unknown_bytes_per_s")
    kind = "tcp" if wiring.network_kind.lower() in ("tcp", "ethernet") else "rdma"
    return calibration.estimate(f"network_{kind}").scaled(raw)


def sequential_sends(members: int) -> float:
    """Steps of a collective that are paid for one after another: NCCL takes rings or trees."""
    return min(members - 1, 2 * math.log2(members)) if members > 1 else 0.0


# Time of collective operations between GPUs, and how much of it a step cannot hide.
#
# A ring moves 2 (n - 1) / n of the bytes of an all-reduce over the slowest link of each GPU, and
# half of that for gathering or scattering (Patarasuk and Yuan 2009, doi
# 10.1016/j.jpdc.2008.09.002). Between machines the slowest link is a machine's network, shared by
# the groups that cross it.


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


def ring_bytes_per_s(group: Group, links: Links) -> float:
    """The slowest link on the group's ring."""
    network = links.network_bytes_per_s / group.sharing
    if group.nodes == 1:
        return links.bytes_per_s
    return network if group.within == 1 else min(links.bytes_per_s, network)


def all_gather_s(size_bytes: float, group: Group, links: Links) -> float:
    """Every member gets (or sums) all parts of `size_bytes`: an all-gather or reduce-scatter."""
    n = group.members
    if n == 1 or size_bytes <= 0:
        return 0.0
    moving_s = (n - 1) / n * size_bytes / ring_bytes_per_s(group, links)
    short = 1 + math.sqrt(links.half_bytes / size_bytes)
    return moving_s * short + _start_s(group, links)


def all_reduce_s(size_bytes: float, group: Group, links: Links) -> float:
    """Every member gets the sum of all members' `size_bytes`."""
    return 2 * all_gather_s(size_bytes, group, links)


def send_s(size_bytes: float, links: Links, *, between_nodes: bool) -> float:
    """One GPU hands `size_bytes` to the next."""
    if between_nodes:
        return size_bytes / links.network_bytes_per_s + links.network_start_s
    return size_bytes / links.bytes_per_s + links.start_s


def _start_s(group: Group, links: Links) -> float:
    inside = sequential_sends(group.within) * links.start_s
    return inside + sequential_sends(group.nodes) * links.network_start_s


def exposed_all_reduce_s(
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
