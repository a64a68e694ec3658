"""What one GPU of several holds of a step, by strategy.

It is that of one GPU alone less what need not be held, at the highest of several moments, with the
buffers that exchanging takes. docs/models/scaling.md has it against PyTorch's own FSDP and DDP.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

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


def saved_bytes(
    profile: Profile, batch_size: int, strategy: Strategy, site: Site, *, passes: int = 1
) -> float:
    """What one GPU need not hold compared with one that does it all, less what exchanging takes.

    The highest of several moments counts: the traced peak, and those that may be higher once
    state is spread. Where several passes come before an update, gradients stay between them.
    """
    alone = profile.memory_at(batch_size)
    load = communication_load(profile, batch_size)
    held = max(
        _held_bytes(moment, load, strategy, site)
        for moment in _moments(profile, alone, batch_size, strategy)
    )
    return alone.peak_bytes - held - (passes > 1) * _kept_bytes(profile, batch_size, strategy, site)


def _kept_bytes(profile: Profile, batch_size: int, strategy: Strategy, site: Site) -> float:
    """What gradients that stay between passes take of one GPU."""
    parts = strategy.tensor * strategy.pipeline
    ways = shard_count(strategy, site) if strategy.sharding in ("zero2", "zero3") else 1
    return accumulated_gradients_bytes(profile, batch_size) / parts / ways


def accumulated_gradients_bytes(profile: Profile, batch_size: int) -> float:
    """What gradients that stay while the next pass runs add to the peak.

    The highest of several moments counts: the peak as it was, and those that are the peak at
    other batch sizes and have fewer gradients, each followed along its line.
    """
    gradients = communication_load(profile, batch_size).gradient_bytes
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    """What one GPU alone has at one moment of the step, and the buffers it takes when spread."""

    memory: Memory
    buffers_bytes: float


def _moments(profile: Profile, alone: Memory, batch_size: int, strategy: Strategy) -> list[_Moment]:
    """The traced peak and the loss; of a fully sharded step also backward at each block."""
    load = communication_load(profile, batch_size)
    loss = _at_the_loss(profile, alone, batch_size)
    if strategy.sharding != "zero3" or strategy.data == 1:
        buffers = _buffers_bytes(load, strategy)
        return [_Moment(memory=one, buffers_bytes=buffers) for one in (alone, loss)]
    casts = _casts_bytes(profile)
    alone, loss = (
        replace(one, activations=max(one.activations - casts, 0.0)) for one in (alone, loss)
    )
    moments = [(alone, _gathered_bytes(load, alone)), (loss, load.rest_bytes)]
    moments += [
        (_in_backward(loss, load, done), _in_backward_bytes(load, done))
        for done in range(load.blocks)
    ]
    moments.append((_in_backward(loss, load, load.blocks), _at_the_end_bytes(load)))
    parts = strategy.tensor * strategy.pipeline
    return [_Moment(memory=one, buffers_bytes=size / parts) for one, size in moments]


def _at_the_loss(profile: Profile, alone: Memory, batch_size: int) -> Memory:
    """Memory when backward starts: activations as they grow with the batch, no gradients.

    # Assumes: at the largest batch sizes of the profile, this is where the peak is.
    """
    return Memory(
        parameters=alone.parameters,
        gradients=0.0,
        optimizer_state=alone.optimizer_state,
        inputs=alone.inputs,
        activations=_on_last_line(profile, "activations", batch_size),
        temporaries=_on_last_line(profile, "temporaries", batch_size),
        workspace=alone.workspace,
    )


def _on_last_line(profile: Profile, name: str, batch_size: int) -> float:
    """A part of memory at a batch size, on the line of the largest: one moment, no other's bend."""
    high = max(profile.memory)
    low = max((size for size in profile.memory if size < high), default=0)
    most = float(getattr(profile.memory[high], name))
    least = float(getattr(profile.memory[low], name)) if low else 0.0
    return max(least + (most - least) * (batch_size - low) / (high - low), 0.0)


def _in_backward(loss: Memory, load: CommunicationLoad, done: int) -> Memory:
    """Memory when `done` blocks have their gradients and have let go of their activations.

    # Assumes: blocks have equal parts, and what backward of a block makes for itself takes no
    more than what the loss had kept, which is gone by then.
    """
    share = done / load.blocks if load.blocks else 1.0
    inside = load.gradient_bytes * (1 - load.rest_bytes / load.sent_bytes)
    return replace(
        loss,
        gradients=inside * share,
        activations=loss.activations * (1 - share),
        temporaries=0.0,
    )


def _held_bytes(moment: _Moment, load: CommunicationLoad, strategy: Strategy, site: Site) -> float:
    """What one GPU holds at one moment, with the buffers that exchanging takes.

    Ignores that stages of a pipeline differ: embeddings are taken to be spread like the rest.
    A stage has 1/p of the blocks, and the first of p holds p micro-batches at once.
    """
    one = moment.memory
    parts, ways = strategy.tensor * strategy.pipeline, shard_count(strategy, site)
    of_parameters = ways if strategy.sharding == "zero3" else 1
    of_gradients = ways if strategy.sharding in ("zero2", "zero3") else 1
    temporaries = one.temporaries / (parts * ways if _updates(one, load) else strategy.tensor)
    shared = 1 - _SHARED_ACTIVATIONS + _SHARED_ACTIVATIONS / strategy.tensor
    return (
        one.parameters / parts / of_parameters
        + one.gradients / parts / of_gradients
        + one.optimizer_state / parts / ways
        + one.inputs
        + one.activations * shared
        + temporaries
        + one.workspace
        + moment.buffers_bytes
    )


def _updates(one: Memory, load: CommunicationLoad) -> bool:
    """Whether a moment is that of the update: nearly all gradients are there."""
    return one.gradients > _MOST * load.gradient_bytes > 0


_MOST = 0.9
"""A moment with more of the gradients than this is that of the update."""
_ZERO_BUCKET_BYTES = 5e8
# Source: DeepSpeed, configuration of ZeRO: reduce_bucket_size.


def _buffers_bytes(load: CommunicationLoad, strategy: Strategy) -> float:
    """What exchanging takes beside the model where parameters are whole: buckets of gradients."""
    if strategy.data == 1:
        return 0.0
    parts = strategy.tensor * strategy.pipeline
    if strategy.sharding == "none":
        return load.gradient_bytes / parts
    return min(load.gradient_bytes, 2 * _ZERO_BUCKET_BYTES) / parts


def _gathered_bytes(load: CommunicationLoad, traced: Memory) -> float:
    """Buffers of fully sharded training at the traced peak."""
    if _updates(traced, load):
        return 0.0  # everything is sharded again
    if not traced.gradients:
        return load.rest_bytes  # the loss: blocks are let go of after their forward
    return _in_backward_bytes(load, min(1, load.blocks - 1))


def _in_backward_bytes(load: CommunicationLoad, done: int) -> float:
    """Buffers of fully sharded training in backward of a block, when `done` have had theirs.

    The block's parameters and gradients, the parameters of the next, and the gradients of the
    last on their way, in the precision they are summed in. What lies outside of blocks stays
    gathered from forward on, and its gradients are whole until the end.

    # Source: torch.distributed.fsdp.fully_shard of each block and the model (torch 2.13), measured.
    # Assumes: all outside of blocks may have gradients by then, as tied embeddings do.
    """
    if not load.blocks:
        return 2 * load.sent_bytes
    summed = load.gradient_bytes / max(load.sent_bytes, 1.0)
    made = min(summed, 1.0)  # gradients as backward makes them, over parameters as gathered
    has_next, has_last = done < load.blocks - 1, done > 0
    of_block = load.block_bytes * (1 + made + has_next + has_last * summed)
    return of_block + load.rest_bytes * (1 + made)


def _at_the_end_bytes(load: CommunicationLoad) -> float:
    """Buffers at the end of backward: what lies outside of blocks whole, and its gradients.

    Then its parameters are let go of, and its gradients copied to be sent.
    """
    summed = load.gradient_bytes / max(load.sent_bytes, 1.0)
    made = min(summed, 1.0)
    outside = load.rest_bytes if load.blocks else load.sent_bytes
    return outside * made + max(outside + summed * load.block_bytes, outside * summed)


def _casts_bytes(profile: Profile) -> float:
    """Copies of the weights that autocast keeps and a sharded model's own casting does not.

    They are what of activations does not grow with the batch; embeddings and norms have none.
    """
    held = profile.memory_at(1).parameters / max(profile.parameters, 1)
    if held < 3 or not computes_in_16_bits(profile):
        return 0.0
    return min(_on_last_line(profile, "activations", 0), 2.0 * profile.parameters)
