"""What joins the GPUs of a step, and how long collective operations take over it.

In: a `Gpu`, how many of it in how many machines, and what is known of their `Wiring`. Out: the
`Fabric`: the `Links` in three cases, slow, likely and fast, because hosts differ. Over the links of
one case, the time of collectives between a `Group` of GPUs, and how much of an exchange of
gradients a step cannot hide.

Rates are what a large collective reaches ("bus bandwidth" of nccl-tests), which is a share of what
is printed on the link. Equations and sources: docs/models/scaling.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from outlay.hardware.gpus import Gpu
from outlay.predict.calibration import Calibration
from outlay.uncertainty import Estimate

# Links

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

    gpu_link: GpuLink | None = None
    """Between the GPUs of a machine."""
    network_bytes_per_s: float | None = None
    """Of one machine, in one direction, as it is sold."""
    network_kind: str = ""


UNKNOWN_WIRING = Wiring()


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """One case of what the GPUs of a step send over: bytes a second, and what a start costs."""

    gpu_link: GpuLink
    bytes_per_s: float
    """What one GPU sends within its machine in a large collective."""
    latency_s: float
    half_rate_bytes: float
    """Messages of this size take twice their time at full rate."""
    network_bytes_per_s: float
    """What one machine sends to others."""
    network_latency_s: float


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


def fabric_of(
    gpu: Gpu, gpus: int, wiring: Wiring, calibration: Calibration, *, nodes: int = 1
) -> Fabric:
    """The links of `nodes` machines with `gpus` GPUs each."""
    gpu_link = wiring.gpu_link or usual_gpu_link(gpu, gpus)
    if gpu_link == "bridge" and gpus > 2:
        gpu_link = _link_without_nvlink(gpu)
    rate = gpu_link_bytes_per_s(gpu, gpus, gpu_link, calibration)
    network = _network_bytes_per_s(wiring, calibration)

    def links(bytes_per_s: float, network_bytes_per_s: float) -> Links:
        return Links(
            gpu_link=gpu_link,
            bytes_per_s=bytes_per_s,
            latency_s=calibration.number(f"link_start_{gpu_link}_s"),
            half_rate_bytes=calibration.number(f"link_half_{gpu_link}_bytes"),
            network_bytes_per_s=network_bytes_per_s,
            network_latency_s=calibration.number("network_start_s"),
        )

    return Fabric(
        slow=links(rate.low, network.low),
        likely=links(rate.likely, network.likely),
        fast=links(rate.high, network.high),
        network_is_assumed=nodes > 1 and wiring.network_bytes_per_s is None,
    )


def usual_gpu_link(gpu: Gpu, gpus: int) -> GpuLink:
    """What machines with so many of this GPU usually join them with."""
    if gpu.nvlink_bytes_per_s is not None and gpu.nvlink_reach in ("all", "mesh"):
        return "mesh" if gpu.nvlink_reach == "mesh" else "nvlink"
    return "pcie" if gpu.peer_to_peer is not False or gpus == 1 else "host"


def _link_without_nvlink(gpu: Gpu) -> GpuLink:
    return "host" if gpu.peer_to_peer is False else "pcie"


def gpu_link_bytes_per_s(
    gpu: Gpu, gpus: int, gpu_link: GpuLink, calibration: Calibration
) -> Estimate:
    """Bytes a second one of so many GPUs sends in a large collective within a machine.

    Over PCIe the rate falls with the number of GPUs, which share switches, sockets and memory.
    """
    if gpu_link in ("nvlink", "mesh", "bridge"):
        both_ways = gpu.nvlink_bytes_per_s
        if both_ways is None or (gpu_link == "bridge" and gpus > 2):
            return gpu_link_bytes_per_s(gpu, gpus, _link_without_nvlink(gpu), calibration)
        return calibration.estimate(f"link_{gpu_link}").scaled(both_ways / 2)
    raw = gpu.pcie_bytes_per_s or calibration.number("pcie_unknown_bytes_per_s")
    falloff = calibration.number(f"link_{gpu_link}_falloff")
    shared = max(gpus / 2, 1.0) ** -falloff
    share = calibration.estimate(f"link_{gpu_link}").scaled(shared)
    wider = max(gpus / 2, 1.0) ** calibration.number("link_spread")
    return Estimate(
        low=share.low / wider * raw,
        likely=share.likely * raw,
        high=max(min(share.high * wider, 0.9), share.likely) * raw,
    )


def _network_bytes_per_s(wiring: Wiring, calibration: Calibration) -> Estimate:
    raw = wiring.network_bytes_per_s
    if raw is None:
        return calibration.estimate("network_unknown_bytes_per_s")
    kind = "tcp" if wiring.network_kind.lower() in ("tcp", "ethernet") else "rdma"
    return calibration.estimate(f"network_{kind}").scaled(raw)


# Collectives
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
    """GPUs that communicate: how many of each machine, on how many machines."""

    gpus_per_node: int
    nodes: int = 1
    groups_per_node: int = 1
    """How many such groups of one machine send over its network at the same time."""

    @property
    def members(self) -> int:
        """All of them."""
        return self.gpus_per_node * self.nodes


def exposed_all_reduce_s(
    size_bytes: float, backward_s: float, ready: Sequence[float], group: Group, links: Links
) -> float:
    """What an exchange of gradients adds after backward, piece by piece as they are finished.

    Pieces wait for each other; `ready` says at which share of backward each part of the bytes is
    finished (see `trace.profile.Structure`).
    """
    if group.members == 1 or size_bytes <= 0:
        return 0.0
    part_bytes = size_bytes / len(ready)
    pieces = max(part_bytes / BUCKET_BYTES, 1.0)
    part_s = pieces * all_reduce_s(part_bytes / pieces, group, links)
    end_s = 0.0
    for share in ready:
        end_s = max(end_s, share * backward_s) + part_s
    return max(end_s - backward_s, 0.0)


def all_reduce_s(size_bytes: float, group: Group, links: Links) -> float:
    """Every member gets the sum of all members' `size_bytes`."""
    return 2 * all_gather_s(size_bytes, group, links)


def all_gather_s(size_bytes: float, group: Group, links: Links) -> float:
    """Every member gets all parts of `size_bytes`; a reduce-scatter, which sums, takes as long."""
    n = group.members
    if n == 1 or size_bytes <= 0:
        return 0.0
    moving_s = (n - 1) / n * size_bytes / ring_bytes_per_s(group, links)
    short_messages = 1 + math.sqrt(links.half_rate_bytes / size_bytes)
    return moving_s * short_messages + _latency_s(group, links)


def send_s(size_bytes: float, links: Links, *, between_nodes: bool) -> float:
    """One GPU sends `size_bytes` to another."""
    if between_nodes:
        return size_bytes / links.network_bytes_per_s + links.network_latency_s
    return size_bytes / links.bytes_per_s + links.latency_s


def ring_bytes_per_s(group: Group, links: Links) -> float:
    """The slowest link on the group's ring."""
    network = links.network_bytes_per_s / group.groups_per_node
    if group.nodes == 1:
        return links.bytes_per_s
    return network if group.gpus_per_node == 1 else min(links.bytes_per_s, network)


def _latency_s(group: Group, links: Links) -> float:
    within_s = sequential_sends(group.gpus_per_node) * links.latency_s
    return within_s + sequential_sends(group.nodes) * links.network_latency_s


def sequential_sends(members: int) -> float:
    """Sends of a collective that wait for one another: NCCL takes rings or trees."""
    return min(members - 1, 2 * math.log2(members)) if members > 1 else 0.0
