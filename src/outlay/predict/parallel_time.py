"""The time of one update of the parameters on several GPUs, by strategy.

In: the `PhaseTimes` of one GPU's part of a pass, what it sends (`CommunicationLoad`), a `Strategy`,
a `Site`, and one case of the `Fabric`. Out: a `ParallelStepTime`: computing, what communication
adds that nothing hides, and waiting. An update takes `micro_batches` passes over `batch_size`
samples in each data-parallel group. Equations and sources: docs/models/scaling.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.caching import ById
from outlay.predict.calibration import Calibration
from outlay.predict.host_time import Host, elapsed_s, host_time_s
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

_ALL_AT_THE_END = (1.0,) * 16


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
class ParallelStepTime:
    """Seconds of one update on every GPU: computing, and what communication adds to it."""

    device_s: float
    """What the device of the fullest stage computes."""
    host_s: float
    """What its host takes to issue that."""
    compute_s: float
    """What both take together."""
    exchange_s: float
    """What sums of gradients, gathering and handing on add that nothing hides."""
    waiting_s: float
    """A pipeline's stages that stand idle, and waiting for the slowest of many GPUs."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return self.compute_s + self.exchange_s + self.waiting_s


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
    """The time of one update in one case; `phases` are of one GPU's part of a micro-batch.

    What idles and what sends keeps the device alone busy: the host goes on issuing, so that a step
    which waits for its host hides them.
    """
    links, efficiency = fabric.case(case), _efficiency(fabric.likely.gpu_link, case, calibration)
    stage_share = _stage_share(load.blocks, strategy.pipeline)
    pass_factor = efficiency.compute_factor(strategy) * stage_share
    stage = _StageTime(
        forward_s=phases.forward_s * pass_factor, backward_s=phases.backward_s * pass_factor
    )
    host_pass_s = (phases.host_pass_s + _sharding_host_s(load, strategy, calibration)) * stage_share
    host_s = micro_batches * host_pass_s + phases.host_update_s / strategy.pipeline
    device_s = micro_batches * stage.pass_s + _device_update_s(phases, strategy, site)
    tensor_s = _tensor_exchange_s(load, strategy, links) * stage_share
    bubble_s = (strategy.pipeline - 1) * (stage.pass_s + tensor_s)
    passes = micro_batches + strategy.pipeline - 1
    sending_s = _pipeline_send_s(load, strategy, site, links) * passes
    data_s = _data_exchange_s(stage, load, strategy, site, links, micro_batches, efficiency.overlap)
    exchange_s = data_s + micro_batches * tensor_s + sending_s
    compute_s = elapsed_s(device_s, host_s)
    with_bubble_s = elapsed_s(device_s + bubble_s, host_s)
    straggling = efficiency.straggling * math.log2(site.total)
    return ParallelStepTime(
        device_s=device_s,
        host_s=host_s,
        compute_s=compute_s,
        exchange_s=elapsed_s(device_s + bubble_s + exchange_s, host_s) - with_bubble_s,
        waiting_s=with_bubble_s - compute_s + straggling * compute_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StageTime:
    """One pass of the fullest stage, on the device."""

    forward_s: float
    backward_s: float

    @property
    def pass_s(self) -> float:
        """Both."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Efficiency:
    """How code and machines differ: what of an exchange is hidden, what GPUs wait for others."""

    overlap: float
    straggling: float
    sharded_compute: float
    """Computing beside gathering and scattering, over computing alone."""

    def compute_factor(self, strategy: Strategy) -> float:
        """What computing is multiplied by."""
        return self.sharded_compute if strategy.sharding == "zero3" and strategy.data > 1 else 1.0


def _efficiency(gpu_link: GpuLink, case: Case, calibration: Calibration) -> _Efficiency:
    overlap = calibration.estimate(f"overlap_{gpu_link}")
    straggling, sharded = calibration.estimate("straggling"), calibration.estimate("sharded_work")
    if case == "slow":
        return _Efficiency(
            overlap=overlap.low, straggling=straggling.high, sharded_compute=sharded.high
        )
    if case == "fast":
        return _Efficiency(
            overlap=overlap.high, straggling=straggling.low, sharded_compute=sharded.low
        )
    return _Efficiency(
        overlap=overlap.likely, straggling=straggling.likely, sharded_compute=sharded.likely
    )


def _sharding_host_s(
    load: CommunicationLoad, strategy: Strategy, calibration: Calibration
) -> float:
    """What gathering and freeing blocks costs the host in one pass."""
    if strategy.sharding != "zero3" or strategy.data == 1:
        return 0.0
    return (load.blocks + 1) * calibration.number("host_shard_s")


def _stage_share(blocks: int, stages: int) -> float:
    """The share of a pass that the fullest stage has."""
    return 1.0 if stages == 1 else math.ceil(max(blocks, 1) / stages) / max(blocks, 1)


def _device_update_s(phases: PhaseTimes, strategy: Strategy, site: Site) -> float:
    """The optimizer's time on a device; each GPU updates what it holds of the state."""
    return phases.update_s / strategy.pipeline / shard_count(strategy, site)


def _tensor_exchange_s(load: CommunicationLoad, strategy: Strategy, links: Links) -> float:
    """Two sums of blocks' outputs in forward and two in backward, which the rest waits for."""
    if strategy.tensor == 1:
        return 0.0
    group = Group(gpus_per_node=strategy.tensor)
    return 4 * load.blocks * all_reduce_s(load.block_output_bytes, group, links)


def _pipeline_send_s(
    load: CommunicationLoad, strategy: Strategy, site: Site, links: Links
) -> float:
    """What sending one micro-batch to the next stage and its gradient back takes."""
    if strategy.pipeline == 1:
        return 0.0
    between_nodes = site.nodes > 1
    # Every GPU of a machine sends at once, each its own part of the samples or of the width.
    sending = site.gpus / strategy.tensor if between_nodes else 1.0
    return 2 * send_s(load.block_output_bytes * sending, links, between_nodes=between_nodes)


def _data_exchange_s(
    stage: _StageTime,
    load: CommunicationLoad,
    strategy: Strategy,
    site: Site,
    links: Links,
    micro_batches: int,
    overlap: float,
) -> float:
    """What exchanging gradients and parameters adds to one update.

    Of the exchange a share `overlap` runs beside computing as far as it can, the rest after it.
    """
    if strategy.data == 1:
        return 0.0
    parts = strategy.tensor * strategy.pipeline
    group = data_parallel_group(strategy, site)
    if strategy.sharding == "zero3":
        overlapped_s, serial_s = (
            _fully_sharded_s(computing, load, strategy, site, links)
            for computing in (stage, _StageTime(forward_s=0.0, backward_s=0.0))
        )
        return micro_batches * (overlap * overlapped_s + (1 - overlap) * serial_s)
    size_bytes = load.gradient_bytes / parts
    if strategy.sharding != "none":
        size_bytes /= 2  # gradients are scattered while backward runs ...
    overlapped_s, serial_s = (
        exposed_all_reduce_s(size_bytes, backward_s, load.ready, group, links)
        for backward_s in (stage.backward_s, 0.0)
    )
    exposed_s = overlap * overlapped_s + (1 - overlap) * serial_s
    if strategy.sharding == "none":
        return exposed_s
    # ... and parameters gathered after the update.
    return exposed_s + all_gather_s(load.gathered_bytes / parts, group, links)


def _fully_sharded_s(
    stage: _StageTime, load: CommunicationLoad, strategy: Strategy, site: Site, links: Links
) -> float:
    """Fully sharded: a block's parameters are gathered while the one before computes.

    Forward gathers each block once, backward again, and scatters its gradients; what lies outside
    of blocks is gathered at the start and scattered at the end. Hybrid sharding gathers within a
    machine and then sums gradients between machines.
    """
    parts = strategy.tensor
    whole_group = data_parallel_group(strategy, site)
    shard_group = whole_group
    if strategy.within_node:
        shard_group = Group(gpus_per_node=shard_count(strategy, site))
    blocks = max(load.blocks, 1)
    inside_bytes = load.gathered_bytes - load.rest_bytes if load.blocks else load.gathered_bytes
    rest_bytes = (load.rest_bytes if load.blocks else 0.0) / parts
    gather_s = all_gather_s(inside_bytes / blocks / parts, shard_group, links)
    rest_s = all_gather_s(rest_bytes, shard_group, links)
    across_s = 0.0
    if strategy.within_node and whole_group.nodes > 1:
        across_group = Group(gpus_per_node=1, nodes=whole_group.nodes, groups_per_node=site.gpus)
        shard_bytes = load.gathered_bytes / parts / shard_group.members
        across_s = all_reduce_s(shard_bytes, across_group, links) / blocks
    forward_s, backward_s = stage.forward_s / blocks, stage.backward_s / blocks
    in_forward_s = (blocks - 1) * max(gather_s - forward_s, 0.0) + rest_s + gather_s
    in_backward_s = blocks * max(2 * gather_s + across_s - backward_s, 0.0) + rest_s + gather_s
    return in_forward_s + in_backward_s


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
        return Group(gpus_per_node=1, nodes=strategy.data, groups_per_node=site.gpus)
    gpus_per_node = site.gpus // per_model
    nodes = strategy.data // gpus_per_node
    return Group(gpus_per_node=gpus_per_node, nodes=nodes, groups_per_node=per_model)


# One pass on one GPU, in its phases


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTimes:
    """Seconds of one micro-batch's forward and backward, and of the update, with their issuing."""

    forward_s: float
    backward_s: float
    update_s: float
    host_pass_s: float
    """To issue one forward and backward."""
    host_update_s: float

    def scaled(self, device_factor: float, host_factor: float) -> PhaseTimes:
        """The phases with the device's and the host's times multiplied."""
        return PhaseTimes(
            forward_s=self.forward_s * device_factor,
            backward_s=self.backward_s * device_factor,
            update_s=self.update_s * device_factor,
            host_pass_s=self.host_pass_s * host_factor,
            host_update_s=self.host_update_s * host_factor,
        )


def phase_times(trace: Trace, gpu: RooflineGpu, calibration: Calibration, host: Host) -> PhaseTimes:
    """The phases of a step; what is computed again belongs to backward."""
    by_phase_s = device_time(trace, gpu, calibration).by_phase_s
    host_s = host_time_s(trace, calibration, host)
    host_update_s = host_time_s(_update_trace(ById(trace)), calibration, host)
    return PhaseTimes(
        forward_s=by_phase_s.get("forward", 0.0),
        backward_s=by_phase_s.get("backward", 0.0) + by_phase_s.get("recompute", 0.0),
        update_s=by_phase_s.get("optimizer", 0.0),
        host_pass_s=max(host_s - host_update_s, 0.0),
        host_update_s=host_update_s,
    )


@lru_cache(maxsize=256)
def _update_trace(trace: ById[Trace]) -> Trace:
    whole = trace.value
    return replace(whole, ops=tuple(op for op in whole.ops if op.phase == "optimizer"))


# One GPU's part of a step whose matrices are split over several (Shoeybi et al. 2019)


def tensor_shard(trace: Trace, parts: int, width: int) -> Trace:
    """One GPU's part of a step whose matrices are split over `parts` GPUs.

    Products and attention are shared evenly; so is whatever passes over tensors other than the
    block's own, whose last dimension is `width`. Norms and sums of that width every GPU does.
    """
    return trace if parts == 1 else _tensor_shard(ById(trace), parts, width)


@lru_cache(maxsize=256)
def _tensor_shard(trace: ById[Trace], parts: int, width: int) -> Trace:
    return replace(trace.value, ops=tuple(_op_shard(op, parts, width) for op in trace.value.ops))


def _op_shard(op: Op, parts: int, width: int) -> Op:
    if op.kind == "gemm" and op.shapes:
        shapes = _product_shapes(op, parts, width)
    elif op.kind == "attention" and op.shapes:
        shapes = tuple(_split_heads(shape, parts) for shape in op.shapes)
    elif op.phase != "optimizer" and op.shapes and op.shapes[-1] and op.shapes[-1][-1] == width:
        return op
    else:
        shapes = tuple(_split_largest(shape, parts) for shape in op.shapes)
    return replace(op, flops=op.flops / parts, moved_bytes=op.moved_bytes / parts, shapes=shapes)


def _product_shapes(op: Op, parts: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of a product split in a side of its result, or unchanged where the sum is split.

    Batches (heads) are shared out. Layers that widen are split in their columns; what comes back
    to `width` sums over the split side, and the gradient of a weight is split like the weight.
    """
    *others, out = op.shapes
    if len(out) > 2:
        out = (max(out[0] // parts, 1), *out[1:])
    elif len(out) == 2 and out[1] != width:
        out = (out[0], max(out[1] // parts, 1))
    elif len(out) == 2 and op.layout in ("tn", "tt"):
        out = (max(out[0] // parts, 1), out[1])
    return (*others, out)


def _split_heads(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    """Attention's tensors are batch, heads, positions, size of a head."""
    if len(shape) < 3:
        return shape
    return (shape[0], max(shape[1] // parts, 1), *shape[2:])


def _split_largest(shape: tuple[int, ...], parts: int) -> tuple[int, ...]:
    if not shape:
        return shape
    largest = max(range(len(shape)), key=lambda i: shape[i])
    return tuple(max(n // parts, 1) if i == largest else n for i, n in enumerate(shape))


def block_width(profile: Profile) -> int:
    """The width of the blocks: of most parameters, the last dimension of what they put out."""
    blocks = profile.structure.blocks if profile.structure is not None else ()
    return max(blocks, key=lambda kind: kind.count * kind.parameters).width if blocks else 0


def attention_heads(profile: Profile) -> int | None:
    """Heads of the attention, or None where no fused attention was traced."""
    return _attention_heads(ById(profile))


@lru_cache(maxsize=64)
def _attention_heads(profile: ById[Profile]) -> int | None:
    heads = [
        round(value_at(op.shapes[0][1], 1))
        for op in profile.value.ops
        if op.kind == "attention" and op.shapes and len(op.shapes[0]) == 4
    ]
    return math.gcd(*heads) if heads else None


# What a step sends


@dataclass(frozen=True, slots=True, kw_only=True)
class CommunicationLoad:
    """What of a profile's step is sent between GPUs, at a batch size, in bytes."""

    gradient_bytes: float
    """What data-parallel training sums."""
    gathered_bytes: float
    """All parameters in the precision they are gathered in."""
    blocks: int
    block_bytes: float
    """Parameters of the largest block, as gathered."""
    rest_bytes: float
    """Parameters outside of blocks, as gathered."""
    block_output_bytes: float
    """What a block puts out to the next."""
    ready: tuple[float, ...]
    """At which share of backward each part of the gradients is finished."""


def communication_load(profile: Profile, batch_size: int) -> CommunicationLoad:
    """What a step sends; without a recorded structure, as one block whose gradients come last."""
    return _communication_load(ById(profile), batch_size)


@lru_cache(maxsize=4096)
def _communication_load(of_profile: ById[Profile], batch_size: int) -> CommunicationLoad:
    profile = of_profile.value
    structure = profile.structure or Structure(
        blocks=(), gradient_bytes=4.0 * profile.trainable_parameters, ready=_ALL_AT_THE_END
    )
    kinds = structure.blocks
    width = gathered_bytes_per_parameter(profile)
    inside = sum(kind.count * kind.parameters for kind in kinds)
    count = sum(kind.count for kind in kinds)
    output_bytes = sum(kind.count * value_at(kind.output_bytes, batch_size) for kind in kinds)
    return CommunicationLoad(
        gradient_bytes=structure.gradient_bytes,
        gathered_bytes=width * profile.parameters,
        blocks=count,
        block_bytes=width * max((kind.parameters for kind in kinds), default=0),
        rest_bytes=width * max(profile.parameters - inside, 0),
        block_output_bytes=output_bytes / max(count, 1),
        ready=structure.ready or _ALL_AT_THE_END,
    )


def gathered_bytes_per_parameter(profile: Profile) -> float:
    """Bytes of a parameter when it is gathered: as the products take it, 2 where they are mixed.

    # Assumes: sharded training is set up with a mixed-precision policy that casts before it sends.
    """
    traced = profile.memory_at(1).parameters / max(profile.parameters, 1)
    return min(traced, 2.0) if computes_in_16_bits(profile) else max(traced, 1.0)


def computes_in_16_bits(profile: Profile) -> bool:
    """Whether most matrix arithmetic is in fp16 or bf16."""
    return _computes_in_16_bits(ById(profile))


@lru_cache(maxsize=64)
def _computes_in_16_bits(profile: ById[Profile]) -> bool:
    flops: dict[bool, float] = {True: 0.0, False: 0.0}
    for op in profile.value.ops:
        flops[op.precision in ("fp16", "bf16")] += op.count * value_at(op.flops, 8)
    return flops[True] > flops[False]
