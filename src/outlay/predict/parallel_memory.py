"""What one GPU of several holds of a step, by strategy.

In: a `Profile`, a batch size, a `Strategy`, a `Site`. Out: the bytes it saves compared with one GPU
that does it all. It holds most at one of several moments: the traced peak, the loss, and backward
of each block, where buffers for the exchange come on top. docs/models/scaling.md has it against
PyTorch's own FSDP and DDP.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from outlay.caching import ById
from outlay.predict.parallel_time import (
    CommunicationLoad,
    Site,
    communication_load,
    computes_in_16_bits,
    shard_count,
)
from outlay.predict.strategy import Strategy
from outlay.trace.profile import Memory, Profile

_SHARED_ACTIVATIONS = 24 / 34
# Source: Korthikanti et al. 2022 (arXiv 2205.05198), equation 2: of 34 bytes a position and
# width, 24 are cut by tensor parallelism; attention that keeps no scores.
_NEARLY_ALL = 0.9
"""A moment with more of the gradients than this is that of the update."""
_ZERO_BUCKET_BYTES = 5e8
# Source: DeepSpeed, configuration of ZeRO: reduce_bucket_size.


def bytes_spared_per_gpu(
    profile: Profile, batch_size: int, strategy: Strategy, site: Site, *, passes: int = 1
) -> float:
    """What one GPU need not hold compared with one that does it all, less what exchanging takes.

    The highest of several moments counts: the traced peak, and those that may be higher once
    state is spread. Where several passes come before an update, gradients stay between them.
    """
    alone = profile.memory_at(batch_size)
    load = _memory_load(profile, batch_size)
    highest = max(
        _bytes_at(moment, load, strategy, site)
        for moment in _moments(profile, alone, batch_size, strategy)
    )
    accumulated = 0.0
    if passes > 1:
        is_sharded = strategy.sharding in ("zero2", "zero3")
        accumulated = (
            accumulated_gradients_bytes(profile, batch_size)
            / (strategy.tensor * strategy.pipeline)
            / (shard_count(strategy, site) if is_sharded else 1)
        )
    return alone.peak_bytes - highest - accumulated


def _memory_load(profile: Profile, batch_size: int) -> CommunicationLoad:
    """What a step sends, with one gradient of each parameter: so many there are at once."""
    return _cached_memory_load(ById(profile), batch_size)


@lru_cache(maxsize=4096)
def _cached_memory_load(profile: ById[Profile], batch_size: int) -> CommunicationLoad:
    load = communication_load(profile.value, batch_size)
    return replace(load, gradient_bytes=profile.value.gradient_bytes)


# Gradients that stay between passes


def accumulated_gradients_bytes(profile: Profile, batch_size: int) -> float:
    """What gradients that stay while the next pass runs add to the peak.

    The highest of several moments counts: the peak as it was, and those that are the peak at
    other batch sizes and have fewer gradients, each followed along its line.
    """
    gradients = profile.gradient_bytes
    peak = profile.memory_at(batch_size)
    highest = peak.peak_bytes + max(gradients - peak.gradients, 0.0)
    for low, high in pairwise(sorted(profile.memory)):
        first, second = profile.memory[low], profile.memory[high]
        if _is_one_moment(first, second):
            slope = (second.peak_bytes - first.peak_bytes) / (high - low)
            there = first.peak_bytes + slope * (batch_size - low)
            highest = max(highest, there + max(gradients - second.gradients, 0.0))
    return highest - peak.peak_bytes


def _is_one_moment(first: Memory, second: Memory) -> bool:
    """Whether two peaks are the same moment of a step at two batch sizes."""
    same_gradients = abs(first.gradients - second.gradients) <= 0.01 * first.parameters
    return same_gradients and (first.temporaries > 0) == (second.temporaries > 0)


# Moments of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What one GPU alone holds at one moment of the step, and the buffers it takes when spread."""

    memory: Memory
    buffers_bytes: float


def _bytes_at(moment: _Moment, load: CommunicationLoad, strategy: Strategy, site: Site) -> float:
    """What one GPU holds at one moment, with the buffers that exchanging takes.

    Ignores that stages of a pipeline differ: embeddings are taken to be spread like the rest.
    A stage has 1/p of the blocks, and the first of p holds p micro-batches at once.
    """
    alone = moment.memory
    parts, shards = strategy.tensor * strategy.pipeline, shard_count(strategy, site)
    parameter_shards = shards if strategy.sharding == "zero3" else 1
    gradient_shards = shards if strategy.sharding in ("zero2", "zero3") else 1
    temporaries = alone.temporaries / (
        parts * shards if _is_update(alone, load) else strategy.tensor
    )
    activation_share = 1 - _SHARED_ACTIVATIONS + _SHARED_ACTIVATIONS / strategy.tensor
    return (
        alone.parameters / parts / parameter_shards
        + alone.gradients / parts / gradient_shards
        + alone.optimizer_state / parts / shards
        + alone.inputs
        + alone.activations * activation_share
        + temporaries
        + alone.workspace
        + moment.buffers_bytes
    )


def _moments(
    profile: Profile, peak: Memory, batch_size: int, strategy: Strategy
) -> Iterator[_Moment]:
    """The traced peak and the loss; of a fully sharded step also backward at each block."""
    load = _memory_load(profile, batch_size)
    loss = _at_the_loss(profile, peak, batch_size)
    parts = strategy.tensor * strategy.pipeline
    if strategy.sharding != "zero3" or strategy.data == 1:
        buffers_bytes = _bucket_bytes(load, strategy)
        yield _Moment(memory=peak, buffers_bytes=buffers_bytes)
        yield _Moment(memory=loss, buffers_bytes=buffers_bytes)
        return
    copies = _autocast_copies_bytes(profile)
    peak, loss = (
        replace(memory, activations=max(memory.activations - copies, 0.0))
        for memory in (peak, loss)
    )
    yield _Moment(memory=peak, buffers_bytes=_peak_buffers_bytes(load, peak) / parts)
    yield _Moment(memory=loss, buffers_bytes=load.rest_bytes / parts)
    for done in range(load.blocks):
        buffers_bytes = _block_buffers_bytes(load, done)
        yield _Moment(memory=_in_backward(loss, load, done), buffers_bytes=buffers_bytes / parts)
    memory = _in_backward(loss, load, load.blocks)
    yield _Moment(memory=memory, buffers_bytes=_end_buffers_bytes(load) / parts)


def _at_the_loss(profile: Profile, peak: Memory, batch_size: int) -> Memory:
    """Memory when backward starts: activations as they grow with the batch, no gradients.

    # Assumes: at the largest batch sizes of the profile, this is where the peak is.
    """
    return Memory(
        parameters=peak.parameters,
        gradients=0.0,
        optimizer_state=peak.optimizer_state,
        inputs=peak.inputs,
        activations=_extrapolated(profile, "activations", batch_size),
        temporaries=_extrapolated(profile, "temporaries", batch_size),
        workspace=peak.workspace,
    )


def _extrapolated(profile: Profile, category: str, batch_size: int) -> float:
    """A category of memory at a batch size, on the line through the two largest ones traced: one
    moment, no other's bend.
    """
    high = max(profile.memory)
    low = max((size for size in profile.memory if size < high), default=0)
    most = float(getattr(profile.memory[high], category))
    least = float(getattr(profile.memory[low], category)) if low else 0.0
    return max(least + (most - least) * (batch_size - low) / (high - low), 0.0)


def _in_backward(loss: Memory, load: CommunicationLoad, done: int) -> Memory:
    """Memory when `done` blocks have their gradients and have let go of their activations.

    # Assumes: blocks have equal parts, and what backward of a block makes for itself takes no
    more than what the loss had kept, which is gone by then.
    """
    share = done / load.blocks if load.blocks else 1.0
    inside = load.gradient_bytes * (1 - load.rest_bytes / load.gathered_bytes)
    return replace(
        loss,
        gradients=inside * share,
        activations=loss.activations * (1 - share),
        temporaries=0.0,
    )


def _is_update(memory: Memory, load: CommunicationLoad) -> bool:
    """Whether a moment is that of the update: nearly all gradients are there."""
    return memory.gradients > _NEARLY_ALL * load.gradient_bytes > 0


def _autocast_copies_bytes(profile: Profile) -> float:
    """Copies of the weights that autocast keeps and a sharded model's own casting does not.

    They are what of activations does not grow with the batch; embeddings and norms have none.
    """
    bytes_per_parameter = profile.memory_at(1).parameters / max(profile.parameters, 1)
    if bytes_per_parameter < 3 or not computes_in_16_bits(profile):
        return 0.0
    return min(_extrapolated(profile, "activations", 0), 2.0 * profile.parameters)


# Buffers of the exchange


def _bucket_bytes(load: CommunicationLoad, strategy: Strategy) -> float:
    """What exchanging takes beside the model where parameters are whole: buckets of gradients."""
    if strategy.data == 1:
        return 0.0
    parts = strategy.tensor * strategy.pipeline
    if strategy.sharding == "none":
        return load.gradient_bytes / parts
    return min(load.gradient_bytes, 2 * _ZERO_BUCKET_BYTES) / parts


def _peak_buffers_bytes(load: CommunicationLoad, peak: Memory) -> float:
    """Buffers of fully sharded training at the traced peak."""
    if _is_update(peak, load):
        return 0.0  # everything is sharded again
    if not peak.gradients:
        return load.rest_bytes  # the loss: blocks are let go of after their forward
    return _block_buffers_bytes(load, min(1, load.blocks - 1))


def _block_buffers_bytes(load: CommunicationLoad, done: int) -> float:
    """Buffers of fully sharded training in backward of a block, when `done` have had theirs.

    The block's parameters and gradients, the parameters of the next, and the gradients of the
    last on their way, in the precision they are summed in. What lies outside of blocks stays
    gathered from forward on, and its gradients are whole until the end.

    # Source: torch.distributed.fsdp.fully_shard of each block and the model (torch 2.13), measured.
    # Assumes: all outside of blocks may have gradients by then, as tied embeddings do.
    """
    if not load.blocks:
        return 2 * load.gathered_bytes
    summed, made = _gradient_ratios(load)
    has_next, has_last = done < load.blocks - 1, done > 0
    of_block = load.block_bytes * (1 + made + has_next + has_last * summed)
    return of_block + load.rest_bytes * (1 + made)


def _end_buffers_bytes(load: CommunicationLoad) -> float:
    """Buffers at the end of backward: what lies outside of blocks whole, and its gradients.

    Then its parameters are let go of, and its gradients copied to be sent.
    """
    summed, made = _gradient_ratios(load)
    outside = load.rest_bytes if load.blocks else load.gathered_bytes
    return outside * made + max(outside + summed * load.block_bytes, outside * summed)


def _gradient_ratios(load: CommunicationLoad) -> tuple[float, float]:
    """Bytes of gradients over those of parameters as gathered: as summed, and as backward makes
    them.
    """
    summed = load.gradient_bytes / max(load.gathered_bytes, 1.0)
    return summed, min(summed, 1.0)
