"""A step spread over GPUs: what it sends, and its time, by strategy.

Equations and sources: docs/models/scaling.md. All times are of one update of the parameters, which
takes `micro_batches` passes over `batch_size` samples in each data-parallel group.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.caching import ById
from outlay.predict.calibration import Calibration
from outlay.predict.host import Host, host_time_s
from outlay.predict.kernel_time import device_time
from outlay.predict.network import (
    Case,
    Fabric,
    GpuLink,
    Group,
    Links,
    all_gather_s,
    all_reduce_s,
    exposed_all_reduce_s,
    send_s,
)
from outlay.predict.roofline import RooflineGpu
from outlay.predict.strategy import Strategy
from outlay.trace.profile import Op, Profile, Structure, Trace, value_at

# A step's time in its phases: forward, backward and update, on the device and on the host.


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Seconds of one micro-batch's forward and backward, and of the update, with their issuing."""

    forward_s: float
    backward_s: float
    update_s: float
    host_pass_s: float
    """To issue one forward and backward."""
    host_update_s: float

    def scaled(self, device: float, host: float) -> PhaseTimes:
        """The phases with the device's and the host's times multiplied."""
        return PhaseTimes(
            forward_s=self.forward_s * device,
            backward_s=self.backward_s * device,
            update_s=self.update_s * device,
            host_pass_s=self.host_pass_s * host,
            host_update_s=self.host_update_s * host,
        )


def phase_times(
    trace: Trace, machine: RooflineGpu, calibration: Calibration, host: Host
) -> PhaseTimes:
    """The phases of a step; what is computed again belongs to backward."""
    by_phase = device_time(trace, machine, calibration).by_phase_s
    update = _updating(ById(trace))
    host_s = host_time_s(trace, calibration, host)
    host_update_s = host_time_s(update, calibration, host)
    return PhaseTimes(
        forward_s=by_phase.get("forward", 0.0),
        backward_s=by_phase.get("backward", 0.0) + by_phase.get("recompute", 0.0),
        update_s=by_phase.get("optimizer", 0.0),
        host_pass_s=max(host_s - host_update_s, 0.0),
        host_update_s=host_update_s,
    )


@lru_cache(maxsize=256)
def _updating(trace: ById[Trace]) -> Trace:
    whole = trace.value
    return replace(whole, ops=tuple(op for op in whole.ops if op.phase == "optimizer"))


# Cut over GPUs


def tensor_shard(trace: Trace, ways: int, width: int) -> Trace:
    """One GPU's part of a step whose matrices are cut over `ways` GPUs (Shoeybi et al. 2019).

    Products and attention are shared evenly; so is whatever passes over tensors other than the
    block's own, whose last dimension is `width`. Norms and sums of that width every GPU does.
    """
    return trace if ways == 1 else _cut(ById(trace), ways, width)


@lru_cache(maxsize=256)
def _cut(trace: ById[Trace], ways: int, width: int) -> Trace:
    return replace(trace.value, ops=tuple(_op_cut(op, ways, width) for op in trace.value.ops))


def _op_cut(op: Op, ways: int, width: int) -> Op:
    if op.kind == "gemm" and op.shapes:
        return replace(
            op,
            flops=op.flops / ways,
            moved_bytes=op.moved_bytes / ways,
            shapes=_product_cut(op, ways, width),
        )
    if op.kind == "attention" and op.shapes:
        return replace(
            op,
            flops=op.flops / ways,
            moved_bytes=op.moved_bytes / ways,
            shapes=tuple(_heads_cut(shape, ways) for shape in op.shapes),
        )
    if op.phase != "optimizer" and op.shapes and op.shapes[-1] and op.shapes[-1][-1] == width:
        return op
    return replace(
        op,
        flops=op.flops / ways,
        moved_bytes=op.moved_bytes / ways,
        shapes=tuple(_largest_cut(shape, ways) for shape in op.shapes),
    )


def _product_cut(op: Op, ways: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of a product cut in a side of its result, or unchanged where the sum is cut.

    Batches (heads) are shared out. Layers that widen are cut in their columns; what comes back
    to `width` sums over the cut side, and the gradient of a weight is cut like the weight.
    """
    *others, out = op.shapes
    if len(out) > 2:
        out = (max(out[0] // ways, 1), *out[1:])
    elif len(out) == 2 and out[1] != width:
        out = (out[0], max(out[1] // ways, 1))
    elif len(out) == 2 and op.layout in ("tn", "tt"):
        out = (max(out[0] // ways, 1), out[1])
    return (*others, out)


def _heads_cut(shape: tuple[int, ...], ways: int) -> tuple[int, ...]:
    """Attention's tensors are batch, heads, positions, size of a head."""
    if len(shape) < 3:
        return shape
    return (shape[0], max(shape[1] // ways, 1), *shape[2:])


def _largest_cut(shape: tuple[int, ...], ways: int) -> tuple[int, ...]:
    if not shape:
        return shape
    place = max(range(len(shape)), key=lambda i: shape[i])
    return tuple(max(n // ways, 1) if i == place else n for i, n in enumerate(shape))


_LATE = (1.0,) * 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a step runs: how many machines of how many GPUs."""

    gpus: int
    nodes: int = 1

    @property
    def total(self) -> int:
        """All GPUs."""
        return self.gpus * self.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationLoad:
    """What of a profile's step is sent between GPUs, at a batch size, in bytes."""

    gradient_bytes: float
    """What data-parallel training sums."""
    sent_bytes: float
    """All parameters in the precision they are gathered in."""
    blocks: int
    block_bytes: float
    """Parameters of the largest block, as gathered."""
    rest_bytes: float
    """Parameters outside of blocks, as gathered."""
    handed_bytes: float
    """What a block hands to the next."""
    ready: tuple[float, ...]


def communication_load(profile: Profile, batch_size: int) -> CommunicationLoad:
    """What a step sends; without a recorded structure, as one block whose gradients come last."""
    return _load_of(ById(profile), batch_size)


@lru_cache(maxsize=4096)
def _load_of(of: ById[Profile], batch_size: int) -> CommunicationLoad:
    profile = of.value
    structure = profile.structure or Structure(
        blocks=(), gradient_bytes=4.0 * profile.trainable_parameters, ready=_LATE
    )
    width = gathered_bytes_per_parameter(profile)
    inside = sum(one.count * one.parameters for one in structure.blocks)
    count = sum(one.count for one in structure.blocks)
    handed = sum(one.count * value_at(one.output_bytes, batch_size) for one in structure.blocks)
    return CommunicationLoad(
        gradient_bytes=structure.gradient_bytes,
        sent_bytes=width * profile.parameters,
        blocks=count,
        block_bytes=width * max((one.parameters for one in structure.blocks), default=0),
        rest_bytes=width * max(profile.parameters - inside, 0),
        handed_bytes=handed / max(count, 1),
        ready=structure.ready or _LATE,
    )


def gathered_bytes_per_parameter(profile: Profile) -> float:
    """Bytes of a parameter when it is gathered: as the products take it, 2 where they are mixed.

    # Assumes: sharded training is set up with a mixed-precision policy that casts before it sends.
    """
    held = profile.memory_at(1).parameters / max(profile.parameters, 1)
    return min(held, 2.0) if computes_in_16_bits(profile) else max(held, 1.0)


def computes_in_16_bits(profile: Profile) -> bool:
    """Whether most matrix arithmetic is in fp16 or bf16."""
    return _computes_in_16_bits(ById(profile))


@lru_cache(maxsize=64)
def _computes_in_16_bits(of: ById[Profile]) -> bool:
    profile = of.value
    flops: dict[bool, float] = {True: 0.0, False: 0.0}
    for op in profile.ops:
        flops[op.precision in ("fp16", "bf16")] += op.count * value_at(op.flops, 8)
    return flops[True] > flops[False]


def block_width(profile: Profile) -> int:
    """The width of the blocks: of most parameters, the last dimension of what they hand on."""
    blocks = profile.structure.blocks if profile.structure is not None else ()
    return max(blocks, key=lambda one: one.count * one.parameters).width if blocks else 0


def attention_heads(profile: Profile) -> int | None:
    """Heads of the attention, or None where no fused attention was traced."""
    heads = [
        round(value_at(op.shapes[0][1], 1))
        for op in profile.ops
        if op.kind == "attention" and op.shapes and len(op.shapes[0]) == 4
    ]
    return math.gcd(*heads) if heads else None


# Time


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStepTime:
    """Seconds of one update on every GPU: computing, and what communication adds to it."""

    computing_s: float
    exchange_s: float
    """What sums of gradients, gathering and handing on add that nothing hides."""
    waiting_s: float
    """A pipeline's stages that stand idle, and waiting for the slowest of many GPUs."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.computing_s + self.exchange_s + self.waiting_s


def parallel_step_time(
    phases: PhaseTimes,
    load: CommunicationLoad,
    strategy: Strategy,
    site: Site,
    fabric: Fabric,
    case: Case,
    micro_batches: int,
    calibration: Calibration,
) -> ParallelStepTime:
    """The time of one update in one case; `phases` are of one GPU's part of a micro-batch."""
    links, habits = fabric.case(case), _habits(fabric.likely.within, case, calibration)
    shares = _stage_shares(load.blocks, strategy.pipeline)
    host_s = phases.host_pass_s + _wrapping_s(load, strategy, calibration)
    device_s = (phases.forward_s + phases.backward_s) * habits.sharded_work(strategy)
    pass_s = max(device_s, host_s) * shares
    forward_s = pass_s * phases.forward_s / max(phases.forward_s + phases.backward_s, 1e-12)
    backward_s = pass_s - forward_s
    update_s = _update_s(phases, strategy, site)
    tensor_s = _tensor_s(load, strategy, links) * shares
    passes = micro_batches + strategy.pipeline - 1
    bubble_s = (strategy.pipeline - 1) * (pass_s + tensor_s)
    handed_s = _handed_s(load, strategy, site, links) * passes
    one_pass = _Pass(forward_s=forward_s, backward_s=backward_s)
    data_s = _data_s(one_pass, load, strategy, site, links, micro_batches, habits)
    computing_s = micro_batches * pass_s + update_s
    straggling = habits.straggling * math.log2(site.total)
    return ParallelStepTime(
        computing_s=computing_s,
        exchange_s=data_s + micro_batches * tensor_s + handed_s,
        waiting_s=bubble_s + straggling * computing_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pass:
    forward_s: float
    backward_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Efficiency:
    """How code and machines differ: what of an exchange is hidden, what GPUs wait for others."""

    overlap: float
    straggling: float
    work: float
    """Computing beside gathering and scattering, over computing alone."""

    def sharded_work(self, strategy: Strategy) -> float:
        """What computing is multiplied by."""
        return self.work if strategy.sharding == "zero3" and strategy.data > 1 else 1.0


def _habits(within: GpuLink, case: Case, calibration: Calibration) -> _Efficiency:
    overlap = calibration.estimate(f"overlap_{within}")
    straggling, work = calibration.estimate("straggling"), calibration.estimate("sharded_work")
    if case == "slow":
        return _Efficiency(overlap=overlap.low, straggling=straggling.high, work=work.high)
    if case == "fast":
        return _Efficiency(overlap=overlap.high, straggling=straggling.low, work=work.low)
    return _Efficiency(overlap=overlap.likely, straggling=straggling.likely, work=work.likely)


def _wrapping_s(load: CommunicationLoad, strategy: Strategy, calibration: Calibration) -> float:
    """What gathering and freeing blocks costs the host in one pass."""
    if strategy.sharding != "zero3" or strategy.data == 1:
        return 0.0
    return (load.blocks + 1) * calibration.number("host_shard_s")


def _stage_shares(blocks: int, stages: int) -> float:
    """The share of a pass that the fullest stage has."""
    return 1.0 if stages == 1 else math.ceil(max(blocks, 1) / stages) / max(blocks, 1)


def _update_s(phases: PhaseTimes, strategy: Strategy, site: Site) -> float:
    """The optimizer's time; each GPU updates what it holds of the state."""
    device_s = phases.update_s / strategy.pipeline
    if strategy.sharding != "none":
        device_s /= shard_count(strategy, site)
    return max(device_s, phases.host_update_s / strategy.pipeline)


def _tensor_s(load: CommunicationLoad, strategy: Strategy, links: Links) -> float:
    """Two sums of what blocks hand on in forward and two in backward, in the way of the rest."""
    if strategy.tensor == 1:
        return 0.0
    group = Group(within=strategy.tensor)
    return 4 * load.blocks * all_reduce_s(load.handed_bytes, group, links)


def _handed_s(load: CommunicationLoad, strategy: Strategy, site: Site, links: Links) -> float:
    """What passing one micro-batch to the next stage and its gradient back takes."""
    if strategy.pipeline == 1:
        return 0.0
    between = site.nodes > 1
    sharing = site.gpus if between else 1
    # Every GPU of a machine hands on at once, each its own part of the samples or of the width.
    size_bytes = load.handed_bytes * (sharing / strategy.tensor if between else 1.0)
    return 2 * send_s(size_bytes, links, between_nodes=between)


def shard_count(strategy: Strategy, site: Site) -> int:
    """Over how many GPUs what is sharded is spread."""
    if strategy.sharding == "none":
        return 1
    if not strategy.within_node:
        return strategy.data
    return max(site.gpus // (strategy.tensor * strategy.pipeline), 1)


def data_parallel_group(strategy: Strategy, site: Site) -> Group:
    """The GPUs that sum gradients: one of each tensor-parallel set, of one stage."""
    per_model = strategy.tensor * strategy.pipeline
    if per_model >= site.gpus:
        return Group(within=1, nodes=strategy.data, sharing=site.gpus)
    within = site.gpus // per_model
    return Group(within=within, nodes=strategy.data // within, sharing=per_model)


def _data_s(
    one_pass: _Pass,
    load: CommunicationLoad,
    strategy: Strategy,
    site: Site,
    links: Links,
    micro_batches: int,
    habits: _Efficiency,
) -> float:
    """What exchanging gradients and parameters adds to one update."""
    if strategy.data == 1:
        return 0.0
    parts = strategy.tensor * strategy.pipeline
    group = data_parallel_group(strategy, site)
    hidden = habits.overlap
    if strategy.sharding == "zero3":
        late_s = _sharded_s(one_pass, load, strategy, site, links)
        whole_s = _sharded_s(_Pass(forward_s=0.0, backward_s=0.0), load, strategy, site, links)
        return micro_batches * (hidden * late_s + (1 - hidden) * whole_s)
    size_bytes = load.gradient_bytes / parts
    if strategy.sharding != "none":
        size_bytes /= 2  # gradients are scattered while backward runs ...
    late_s, whole_s = (
        exposed_all_reduce_s(size_bytes, time_s, load.ready, group, links)
        for time_s in (one_pass.backward_s, 0.0)
    )
    exposed = hidden * late_s + (1 - hidden) * whole_s
    if strategy.sharding == "none":
        return exposed
    # ... and parameters gathered after the update.
    return exposed + all_gather_s(load.sent_bytes / parts, group, links)


def _sharded_s(
    one_pass: _Pass, load: CommunicationLoad, strategy: Strategy, site: Site, links: Links
) -> float:
    """Fully sharded: a block's parameters are gathered while the one before computes.

    Forward gathers each block once, backward again, and scatters its gradients; what lies outside
    of blocks is gathered at the start and scattered at the end. Hybrid sharding gathers within a
    machine and then sums gradients between machines.
    """
    parts = strategy.tensor
    everywhere = data_parallel_group(strategy, site)
    near = Group(within=shard_count(strategy, site)) if strategy.within_node else everywhere
    blocks = max(load.blocks, 1)
    inside = load.sent_bytes - load.rest_bytes if load.blocks else load.sent_bytes
    rest_bytes = (load.rest_bytes if load.blocks else 0.0) / parts
    gather = all_gather_s(inside / blocks / parts, near, links)
    rest = all_gather_s(rest_bytes, near, links)
    across = 0.0
    if strategy.within_node and everywhere.nodes > 1:
        far = Group(within=1, nodes=everywhere.nodes, sharing=site.gpus)
        across = all_reduce_s(load.sent_bytes / parts / near.members, far, links) / blocks
    forward, backward = one_pass.forward_s / blocks, one_pass.backward_s / blocks
    ahead = (blocks - 1) * max(gather - forward, 0.0) + rest + gather
    behind = blocks * max(2 * gather + across - backward, 0.0) + rest + gather
    return ahead + behind
