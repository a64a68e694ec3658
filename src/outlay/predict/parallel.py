"""A step on several GPUs by one strategy: time with its range, memory, largest batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from outlay.predict.calibration import Calibration
from outlay.predict.correct import correction_at
from outlay.predict.kernel_time import device_time
from outlay.predict.memory import COARSE, LARGEST_BATCH, MemoryNeed, table_need
from outlay.predict.network import CASES, Case, Fabric, fabric_of
from outlay.predict.parallel_memory import saved_bytes
from outlay.predict.parallel_time import (
    ParallelStepTime,
    attention_heads,
    block_width,
    communication_load,
    parallel_step_time,
    phase_times,
    tensor_shard,
)
from outlay.predict.roofline import ideal_time_s, roofline_at, trace_at
from outlay.predict.step import (
    DEFAULT_CONDITIONS,
    Conditions,
    Placement,
    StepPrediction,
    bound_of,
    correction_request,
    device_range,
    forward_fraction,
    host_range,
    input_range,
    measured_time_s,
    predict_step,
    stated_host_range,
    time_factors,
    time_from,
)
from outlay.predict.strategy import (
    ANY_STRATEGY,
    ONE_GPU,
    Strategy,
    StrategyRequest,
    possible_strategies,
)
from outlay.trace.profile import Precision, Profile
from outlay.uncertainty import Estimate


def parallel_step(
    profile: Profile,
    placement: Placement,
    strategy: Strategy,
    batch_size: int,
    calibration: Calibration,
    precision: Precision | None = None,
    *,
    micro_batches: int = 1,
    largest: int = 0,
    conditions: Conditions = DEFAULT_CONDITIONS,
) -> StepPrediction:
    """The step on all GPUs of a placement by one strategy, at a batch size of one pass."""
    site, shown = placement.site, max(batch_size, 1)
    whole = trace_at(profile, shown, precision)
    trace = tensor_shard(whole, strategy.tensor, block_width(profile))
    machine = roofline_at(placement.gpu, calibration)
    device = device_time(trace, machine, calibration)
    whole_step = strategy.data == site.total and micro_batches == 1
    asked = correction_request(
        placement, shown, conditions, as_traced=precision is None and whole_step
    )
    correction = correction_at(conditions.experience, profile, asked, device, calibration)
    phases = phase_times(trace, machine, calibration, conditions.host).scaled(
        *time_factors(placement, correction, device, calibration)
    )
    load = communication_load(profile, shown)
    fabric = fabric_of(
        placement.gpu, placement.gpus, placement.wiring, calibration, nodes=placement.nodes
    )
    stages = strategy.pipeline
    device_s = micro_batches * (phases.forward_s + phases.backward_s) / stages + phases.update_s
    host_s = micro_batches * phases.host_pass_s / stages + phases.host_update_s
    feeding = min(site.gpus // min(strategy.tensor * stages, site.gpus), strategy.data)
    arrival = input_range(
        shown, placement, conditions, correction, calibration, gpus=max(feeding, 1)
    ).scaled(micro_batches)
    input_s = arrival.likely
    errors = {
        "device": device_range(1.0, device, placement, conditions, correction, calibration),
        "host": host_range(1.0, conditions, correction, calibration),
    }
    taken: dict[Case, ParallelStepTime] = {}
    for case in CASES:
        scaled = phases.scaled(_of(errors["device"], case), _of(errors["host"], case))
        taken[case] = parallel_step_time(
            scaled, load, strategy, site, fabric, case, micro_batches, calibration
        )
    likely = taken["likely"]
    given = stated_host_range(errors["host"].scaled(host_s), conditions.host, correction)
    return StepPrediction(
        placement=placement,
        strategy=strategy,
        micro_batches=micro_batches,
        batch_size=batch_size,
        max_batch_size=largest,
        step_time_s=measured_time_s(correction, arrival, given)
        or _ordered(*(max(taken[case].total_s, _of(arrival, case)) for case in CASES)),
        time_from=time_from(correction, arrival, given),
        device_time_s=device_s,
        host_time_s=host_s,
        by_kind_s={
            kind: time_s * device_s / max(device.total_s, 1e-12)
            for kind, time_s in device.by_kind_s.items()
        },
        input_s=input_s,
        exchange_s=_ordered(*(taken[case].exchange_s for case in CASES)),
        waiting_s=likely.waiting_s,
        bound="network"
        if likely.exchange_s > max(likely.computing_s, input_s)
        else bound_of(device, device_s, host_s, input_s),
        flops=micro_batches * trace.flops / stages,
        ideal_s=micro_batches * ideal_time_s(trace, placement.gpu) / stages / placement.gpu_share,
        parameters=profile.parameters,
        gradient_bytes=load.gradient_bytes,
        forward_fraction=forward_fraction(device),
        memory=parallel_memory_need(
            profile, shown, strategy, placement, calibration, passes=micro_batches
        ),
        notes=(*_link_notes(placement, fabric, calibration), *correction.notes),
    )


def _ordered(fast: float, likely: float, slow: float) -> Estimate:
    return Estimate(low=min(fast, likely), likely=likely, high=max(slow, likely))


def _of(estimate: Estimate, case: Case) -> float:
    return {"fast": estimate.low, "likely": estimate.likely, "slow": estimate.high}[case]


def _link_notes(placement: Placement, fabric: Fabric, calibration: Calibration) -> tuple[str, ...]:
    """What was taken for granted of the links."""
    within = fabric.likely.within
    notes = []
    if placement.gpus > 1 and within == "host":
        notes.append(
            f"{placement.gpu.name}: no peer-to-peer between cards, so gradients pass through the "
            "host's memory; hosts differ several times over."
        )
    if fabric.network_is_assumed:
        rate = calibration.number("network_unknown_bytes_per_s") * 8 / 1e9
        notes.append(
            f"The network between machines is not known: {rate:.0f} Gbit/s were assumed (state it: "
            "--network, or network_gbit of an offer)."
        )
    return tuple(notes)


def parallel_memory_need(
    profile: Profile,
    batch_size: int,
    strategy: Strategy,
    placement: Placement,
    calibration: Calibration,
    *,
    passes: int = 1,
) -> MemoryNeed:
    """What one GPU needs: as alone, less what it need not hold, and more for exchanging.

    Alone it is as the profile's table has it, which is of the reference GPU.
    """
    relief = saved_bytes(profile, batch_size, strategy, placement.site, passes=passes)
    alone = table_need(profile, batch_size, calibration)
    room = placement.room
    margin = calibration.number("memory_margin_fraction")
    return MemoryNeed(
        allocated_bytes=_less(alone.allocated_bytes, relief),
        reserved_bytes=_less(alone.reserved_bytes, relief),
        available_bytes=room.available_bytes,
        context_bytes=room.context_bytes,
        fits=alone.needed_bytes - relief <= room.available_bytes * (1 - margin),
    )


def _less(estimate: Estimate, relief: float) -> Estimate:
    return Estimate(
        low=max(estimate.low - relief, 0.0),
        likely=max(estimate.likely - relief, 0.0),
        high=max(estimate.high - relief, 0.0),
    )


def largest_parallel_batch(
    profile: Profile, strategy: Strategy, placement: Placement, calibration: Calibration
) -> int:
    """The largest batch of one pass that fits by a strategy, 0 where not even one sample does."""

    def fits(size: int) -> bool:
        return parallel_memory_need(profile, size, strategy, placement, calibration).fits

    low, high = 0, 1
    while fits(high):
        if high == LARGEST_BATCH:
            return high
        low, high = high, min(2 * high, LARGEST_BATCH)
    while high - low > max(low // COARSE, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


# The best way to run a step on given GPUs: which strategy, which batch, how many passes.
#
# Every strategy of `predict.strategy` is tried with the largest batch of one pass that fits; with a
# global batch, with every divisor of a group's share instead, and pipelines among them. The best
# trains most samples a second, less something for each complication, which has to earn its keep.


_COMPLICATION = 0.02
_WRAPPING = 12
_REWRITING = 20
# Assumes: people stay with plain data parallel until sharding is a quarter faster, and rewrite
# their model for tensors or a pipeline for 40 % (guesses).
_MOST_MICRO_BATCHES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """What to run where, and what of it is fixed."""

    profile: Profile
    placement: Placement
    batch_size: int | None = None
    """Of one pass; None is chosen."""
    global_batch_size: int | None = None
    """Samples of one update over all GPUs, where that is to be kept."""
    precision: Precision | None = None
    wanted: StrategyRequest = ANY_STRATEGY
    conditions: Conditions = DEFAULT_CONDITIONS


def strategy_effort(strategy: Strategy) -> int:
    """How much more than one process a strategy asks of the user."""
    return (
        _WRAPPING * (strategy.sharding != "none")
        + strategy.within_node
        + _REWRITING * (strategy.tensor > 1)
        + _REWRITING * (strategy.pipeline > 1)
    )


def effective_samples_per_s(step: StepPrediction) -> float:
    """What is maximised: samples a second, less for complications."""
    return step.samples_per_s / (1 + _COMPLICATION * strategy_effort(step.strategy))


def best_step(
    question: StepRequest,
    calibration: Calibration,
    *,
    largest: int | None = None,
    thorough: bool = True,
) -> StepPrediction:
    """The best way that fits; where none does, the one that comes nearest.

    `largest` is the largest batch on one GPU alone, where it is known already. Without
    `thorough`, plain data parallel is taken where no other way could be worth its complication,
    and ways that ask for another model are tried only where no other fits.
    """
    placement = question.placement
    if placement.site.total == 1:
        return _alone(question, calibration, largest)
    ways = _strategies(question)
    groups = _groups(question, ways, thorough=thorough)
    best: StepPrediction | None = None
    for number, group in enumerate(groups):
        for step in _tried(question, group, calibration):
            if best is None or effective_samples_per_s(step) > effective_samples_per_s(best):
                best = step
        if best is not None and (thorough or number > 0 or _is_good_enough(best)):
            return best
    if best is not None:
        return best
    nearest = _nearest(question, ways, calibration) or _impossible(question, calibration)
    return replace(nearest, notes=(*nearest.notes, *_reasons(question, ways)))


def _impossible(question: StepRequest, calibration: Calibration) -> StepPrediction:
    """What is shown where no strategy that was asked for goes with the GPUs."""
    step = predict_step(question.profile, question.placement, None, calibration, largest=0)
    memory = replace(step.memory, fits=False)
    return replace(step, placement=question.placement, memory=memory)


def _reasons(question: StepRequest, ways: Sequence[Strategy]) -> list[str]:
    """Why no way was even tried."""
    total, batch = question.placement.site.total, question.global_batch_size
    if not ways:
        return [f"The strategy asked for does not go with {total} GPUs and this model."]
    if batch is not None and all(batch % one.data for one in ways):
        return [f"A global batch of {batch:,} cannot be shared evenly by {total} GPUs."]
    return []


def _groups(
    question: StepRequest, ways: Sequence[Strategy], *, thorough: bool
) -> list[list[Strategy]]:
    """Ways in the order they are tried; a group is only looked at where none before it fits.

    A pipeline takes several passes an update, so that it is compared with others only at a given
    global batch, or where it is asked for.
    """
    compared = question.global_batch_size is not None or question.wanted.pipeline is not None
    direct = [one for one in ways if one.pipeline == 1 or compared]
    staged = [one for one in ways if one not in direct]
    if thorough:
        return [direct, staged]
    simple = [one for one in direct if one.tensor == one.pipeline == 1]
    plain = [one for one in simple if one.sharding == "none"]
    sharded = [one for one in simple if one not in plain]
    return [plain, sharded, [one for one in direct if one not in simple], staged]


def _tried(
    question: StepRequest, ways: Sequence[Strategy], calibration: Calibration
) -> Iterator[StepPrediction]:
    """Every way that fits, at every batch worth a try."""
    for strategy in ways:
        limit = largest_parallel_batch(question.profile, strategy, question.placement, calibration)
        if question.batch_size is not None and question.batch_size > limit:
            continue
        for size, passes in _batches(question, strategy, limit):
            step = parallel_step(
                question.profile,
                question.placement,
                strategy,
                size,
                calibration,
                question.precision,
                micro_batches=passes,
                largest=limit,
                conditions=question.conditions,
            )
            if step.fits:  # gradients that stay between passes may not
                yield step


def _is_good_enough(step: StepPrediction) -> bool:
    """Whether communication costs so little that no complication could win it back."""
    lost = step.exchange_s.likely / step.step_time_s.likely
    return lost < _COMPLICATION * _WRAPPING


def slowest_step(steps: Sequence[StepPrediction]) -> StepPrediction:
    """The step of unlike GPUs in one machine: all wait for the slowest, and the fullest fits."""
    last = max(steps, key=lambda step: step.step_time_s.likely)
    tightest = min(steps, key=lambda step: (step.fits, step.max_batch_size))
    return replace(last, max_batch_size=tightest.max_batch_size, memory=tightest.memory)


def mixed_gpus_note(names: Sequence[str], slowest_name: str) -> str:
    """A warning about unlike GPUs in one machine."""
    return (
        f"{' and '.join(dict.fromkeys(names))} in one machine: every step waits for the "
        f"{slowest_name}, and the smallest memory sets the batch. Two jobs, one on each kind, use "
        "them better."
    )


def mixed_gpus_step(
    steps_at: Callable[[int | None], Sequence[StepPrediction]], batch_size: int | None
) -> StepPrediction:
    """The step on unlike GPUs, all at the batch that the smallest of them takes."""
    steps = steps_at(batch_size)
    common = min(step.batch_size for step in steps)
    return slowest_step(steps_at(common) if common else steps)


def _alone(question: StepRequest, calibration: Calibration, largest: int | None) -> StepPrediction:
    step = predict_step(
        question.profile,
        question.placement,
        question.batch_size,
        calibration,
        question.precision,
        largest=largest,
        conditions=question.conditions,
    )
    if question.global_batch_size is None:
        return step
    found = _tried(question, [ONE_GPU], calibration) if step.fits else iter(())
    return max(
        found,
        key=effective_samples_per_s,
        default=replace(step, memory=replace(step.memory, fits=False)),
    )


def _strategies(question: StepRequest) -> list[Strategy]:
    profile, placement = question.profile, question.placement
    structure = profile.structure
    found = possible_strategies(
        placement.gpus,
        placement.nodes,
        blocks=sum(one.count for one in structure.blocks) if structure is not None else 0,
        heads=attention_heads(profile),
    )
    return [one for one in found if question.wanted.allows(one)]


def _batches(question: StepRequest, strategy: Strategy, limit: int) -> Iterator[tuple[int, int]]:
    """Batches of one pass to try, each with the number of passes in one update."""
    if limit == 0:
        return
    if question.global_batch_size is not None:
        share, rest = divmod(question.global_batch_size, strategy.data)
        if rest or not share:
            return
        sizes = [question.batch_size] if question.batch_size else range(1, min(share, limit) + 1)
        for size in sizes:
            if share % size == 0 and share // size <= _MOST_MICRO_BATCHES:
                yield size, share // size
        return
    passes = _usual_passes(strategy)
    yield question.batch_size or limit, passes


def _usual_passes(strategy: Strategy) -> int:
    """One, or as many as keep a pipeline three quarters full."""
    return 1 if strategy.pipeline == 1 else 4 * strategy.pipeline


def _nearest(
    question: StepRequest, ways: Sequence[Strategy], calibration: Calibration
) -> StepPrediction | None:
    """Of ways that do not fit, the one that needs least memory."""
    size = question.batch_size or 1
    needs = [
        (parallel_memory_need(question.profile, size, one, question.placement, calibration), one)
        for one in ways
    ]
    if not needs:
        return None
    _, least = min(needs, key=lambda pair: pair[0].reserved_bytes.likely)
    step = parallel_step(
        question.profile,
        question.placement,
        least,
        question.batch_size or 0,
        calibration,
        question.precision,
        conditions=question.conditions,
    )
    return replace(step, memory=replace(step.memory, fits=False))
