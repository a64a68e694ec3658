"""A step on several GPUs: the best strategy, batch and number of passes, or one that is given.

In: a `StepRequest`: a `Profile`, a `Placement`, and what of the rest is fixed. Out: the best
`StepPrediction` (`best_step`). Each strategy's time is put together from `predict.parallel_time`,
its memory from `predict.parallel_memory` (`parallel_step`). At the end, unlike GPUs in one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.caching import ById
from outlay.predict.calibration import Calibration
from outlay.predict.correct import correction_at
from outlay.predict.evidence import is_checked
from outlay.predict.kernel_time import device_time
from outlay.predict.memory import (
    COARSE,
    MemoryBudget,
    MemoryNeed,
    largest_that_fits,
    safe_bytes,
    table_need,
    within_available,
)
from outlay.predict.network import CASES, Case, Fabric, fabric_of
from outlay.predict.parallel_memory import bytes_spared_per_gpu
from outlay.predict.parallel_time import (
    ParallelStepTime,
    Site,
    attention_heads,
    block_width,
    communication_load,
    parallel_step_time,
    phase_times,
    tensor_shard,
)
from outlay.predict.roofline import flops_of, ideal_time_s, roofline_of, trace_at
from outlay.predict.step import (
    DEFAULT_CONDITIONS,
    Conditions,
    Placement,
    StepPrediction,
    correction_request,
    custom_ops_of,
    device_range,
    forward_fraction,
    hidden_notes,
    host_range,
    input_range,
    measured_time_s,
    predict_step,
    predicted_bottleneck,
    stated_host_range,
    time_factors,
    time_from,
    unchecked_notes,
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

# The search: which strategy, which batch, how many passes
#
# Every strategy is tried with the largest batch of one pass that fits; with a global batch, with
# every divisor of a group's share instead, and pipelines among them. The best trains most samples
# a second, less something for the effort a strategy takes, which has to earn its keep.

_EFFORT_COST = 0.02
_WRAPPING_EFFORT = 12
_REWRITING_EFFORT = 20
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
    batch_limit: int | None = None
    """Of one pass at most, where it is chosen; None: as much as fits."""
    global_batch_size: int | None = None
    """Samples of one update over all GPUs, where that is to be kept."""
    precision: Precision | None = None
    strategy: StrategyRequest = ANY_STRATEGY
    conditions: Conditions = DEFAULT_CONDITIONS


def best_step(
    request: StepRequest,
    calibration: Calibration,
    *,
    largest: int | None = None,
    thorough: bool = True,
) -> StepPrediction:
    """The best strategy that fits; where none does, the one that comes nearest.

    `largest` is the largest batch on one GPU alone, where it is known already. Without
    `thorough`, plain data parallel is taken where no other strategy could be worth its effort,
    and those that ask for another model are tried only where no other fits.
    """
    if request.placement.site.total == 1:
        return _best_alone(request, calibration, largest)
    strategies = _strategies(request)
    best: StepPrediction | None = None
    for number, group in enumerate(_search_order(request, strategies, thorough=thorough)):
        for step in _fitting_steps(request, group, calibration):
            if best is None or effective_samples_per_s(step) > effective_samples_per_s(best):
                best = step
        if best is not None and (thorough or number > 0 or _is_good_enough(best)):
            return best
    if best is not None:
        return best
    nearest = _nearest(request, strategies, calibration) or _impossible(request, calibration)
    return replace(nearest, notes=(*nearest.notes, *_reasons(request, strategies)))


def effective_samples_per_s(step: StepPrediction) -> float:
    """What is maximised: samples a second, less for the effort of the strategy."""
    return step.samples_per_s / (1 + _EFFORT_COST * strategy_effort(step.strategy))


def strategy_effort(strategy: Strategy) -> int:
    """How much more than one process a strategy asks of the user."""
    return (
        _WRAPPING_EFFORT * (strategy.sharding != "none")
        + strategy.within_node
        + _REWRITING_EFFORT * (strategy.tensor > 1)
        + _REWRITING_EFFORT * (strategy.pipeline > 1)
    )


def _is_good_enough(step: StepPrediction) -> bool:
    """Whether communication costs so little that no effort could win it back."""
    lost = step.exchange_s.likely / step.step_time_s.likely
    return lost < _EFFORT_COST * _WRAPPING_EFFORT


def _best_alone(
    request: StepRequest, calibration: Calibration, largest: int | None
) -> StepPrediction:
    step = predict_step(
        request.profile,
        request.placement,
        request.batch_size,
        calibration,
        request.precision,
        largest=largest,
        batch_limit=request.batch_limit,
        conditions=request.conditions,
    )
    if request.global_batch_size is None:
        return step
    steps = _fitting_steps(request, [ONE_GPU], calibration) if step.fits else iter(())
    not_fitting = replace(step, memory=replace(step.memory, fits=False))
    return max(steps, key=effective_samples_per_s, default=not_fitting)


def _strategies(request: StepRequest) -> list[Strategy]:
    """All that go with the GPUs, the model and what is asked for."""
    profile, placement = request.profile, request.placement
    structure = profile.structure
    strategies = possible_strategies(
        placement.gpus,
        placement.nodes,
        blocks=sum(kind.count for kind in structure.blocks) if structure is not None else 0,
        heads=attention_heads(profile),
    )
    return [strategy for strategy in strategies if request.strategy.allows(strategy)]


def _search_order(
    request: StepRequest, strategies: Sequence[Strategy], *, thorough: bool
) -> list[list[Strategy]]:
    """Strategies in the order they are tried; a group is only tried where none before it fits.

    A pipeline takes several passes an update, so that it is compared with others only at a given
    global batch, or where it is asked for.
    """
    compare_all = request.global_batch_size is not None or request.strategy.pipeline is not None
    direct = [each for each in strategies if each.pipeline == 1 or compare_all]
    staged = [each for each in strategies if each not in direct]
    if thorough:
        return [direct, staged]
    simple = [each for each in direct if each.tensor == each.pipeline == 1]
    plain = [each for each in simple if each.sharding == "none"]
    sharded = [each for each in simple if each not in plain]
    rewritten = [each for each in direct if each not in simple]
    return [plain, sharded, rewritten, staged]


def _fitting_steps(
    request: StepRequest, strategies: Sequence[Strategy], calibration: Calibration
) -> Iterator[StepPrediction]:
    """Every strategy that fits, at every batch worth a try."""
    for strategy in strategies:
        largest = largest_parallel_batch(request.profile, strategy, request.placement, calibration)
        if request.batch_size is not None and request.batch_size > largest:
            if not _takes(request.batch_size, strategy, request, calibration):
                continue
            largest = request.batch_size  # the largest is found coarsely
        for size, passes in _batches(request, strategy, largest):
            step = parallel_step(
                request.profile,
                request.placement,
                strategy,
                size,
                calibration,
                request.precision,
                micro_batches=passes,
                largest=largest,
                conditions=request.conditions,
            )
            if step.fits:  # gradients that stay between passes may not
                yield step


def _takes(
    batch_size: int, strategy: Strategy, request: StepRequest, calibration: Calibration
) -> bool:
    """Whether a batch fits by a strategy."""
    profile, placement = request.profile, request.placement
    return parallel_memory_need(profile, batch_size, strategy, placement, calibration).fits


def _batches(request: StepRequest, strategy: Strategy, largest: int) -> Iterator[tuple[int, int]]:
    """Batches of one pass to try, each with the number of passes in one update."""
    if largest == 0:
        return
    most = min(largest, request.batch_limit or largest)
    if request.global_batch_size is None:
        yield request.batch_size or most, _usual_passes(strategy)
        return
    share, rest = divmod(request.global_batch_size, strategy.data)
    if rest or not share:
        return
    sizes = [request.batch_size] if request.batch_size else range(1, min(share, most) + 1)
    for size in sizes:
        if share % size == 0 and share // size <= _MOST_MICRO_BATCHES:
            yield size, share // size


def _usual_passes(strategy: Strategy) -> int:
    """One, or as many as keep a pipeline three quarters full."""
    return 1 if strategy.pipeline == 1 else 4 * strategy.pipeline


def _nearest(
    request: StepRequest, strategies: Sequence[Strategy], calibration: Calibration
) -> StepPrediction | None:
    """Of strategies that do not fit, the one that needs least memory."""
    size = request.batch_size or 1
    needs = [
        (parallel_memory_need(request.profile, size, each, request.placement, calibration), each)
        for each in strategies
    ]
    if not needs:
        return None
    _, least = min(needs, key=lambda pair: pair[0].reserved_bytes.likely)
    step = parallel_step(
        request.profile,
        request.placement,
        least,
        request.batch_size or 0,
        calibration,
        request.precision,
        conditions=request.conditions,
    )
    return replace(step, memory=replace(step.memory, fits=False))


def _impossible(request: StepRequest, calibration: Calibration) -> StepPrediction:
    """What is shown where no strategy that was asked for goes with the GPUs."""
    step = predict_step(request.profile, request.placement, None, calibration, largest=0)
    memory = replace(step.memory, fits=False)
    return replace(step, placement=request.placement, memory=memory)


def _reasons(request: StepRequest, strategies: Sequence[Strategy]) -> list[str]:
    """Why no strategy was even tried."""
    total, batch = request.placement.site.total, request.global_batch_size
    if not strategies:
        return [f"The strategy asked for does not go with {total} GPUs and this model."]
    if batch is not None and all(batch % strategy.data for strategy in strategies):
        return [f"A global batch of {batch:,} cannot be shared evenly by {total} GPUs."]
    return []


# One strategy


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
    site, samples = placement.site, max(batch_size, 1)
    whole_trace = trace_at(profile, samples, precision)
    trace = tensor_shard(whole_trace, strategy.tensor, block_width(profile))
    gpu = roofline_of(placement.gpu, calibration)
    device = device_time(trace, gpu, calibration)
    is_data_parallel = strategy.data == site.total and micro_batches == 1
    request = correction_request(
        placement, samples, conditions, as_traced=precision is None and is_data_parallel
    )
    correction = correction_at(conditions.evidence, profile, request, device, calibration)
    phases = phase_times(trace, gpu, calibration, conditions.host).scaled(
        *time_factors(placement, correction, device, calibration)
    )
    load = communication_load(profile, samples)
    fabric = fabric_of(
        placement.gpu, placement.gpus, placement.wiring, calibration, nodes=placement.nodes
    )
    stages = strategy.pipeline
    loading = min(site.gpus // min(strategy.tensor * stages, site.gpus), strategy.data)
    arrival = input_range(
        samples, placement, conditions, correction, calibration, gpus=max(loading, 1)
    ).scaled(micro_batches)
    device_error = device_range(1.0, device, placement, conditions, correction, calibration)
    host_error = host_range(
        1.0,
        conditions,
        correction,
        calibration,
        is_compiled=profile.compiled is not None,
    )
    times: dict[Case, ParallelStepTime] = {}
    for case in CASES:
        case_phases = phases.scaled(_in_case(device_error, case), _in_case(host_error, case))
        times[case] = parallel_step_time(
            case_phases, load, strategy, site, fabric, case, micro_batches, calibration
        )
    likely = times["likely"]
    device_s, host_s = likely.device_s, likely.host_s
    stated_host = stated_host_range(host_error.scaled(host_s), conditions.host, correction)
    return StepPrediction(
        placement=placement,
        strategy=strategy,
        micro_batches=micro_batches,
        batch_size=batch_size,
        max_batch_size=largest,
        step_time_s=measured_time_s(correction, arrival, stated_host)
        or _over_cases(*(max(times[case].total_s, _in_case(arrival, case)) for case in CASES)),
        time_from=time_from(correction, arrival, stated_host),
        is_checked=is_checked(placement.gpu, conditions.evidence, calibration),
        compiled=profile.compiled,
        custom_ops=custom_ops_of(profile),
        device_time_s=device_s,
        host_time_s=host_s,
        by_kind_s={
            kind: time_s * device_s / max(device.total_s, 1e-12)
            for kind, time_s in device.by_kind_s.items()
        },
        input_s=arrival.likely,
        exchange_s=_over_cases(*(times[case].exchange_s for case in CASES)),
        waiting_s=likely.waiting_s,
        bound="network"
        if likely.exchange_s > max(likely.compute_s, arrival.likely)
        else predicted_bottleneck(device, device_s, host_s, arrival.likely),
        flops=micro_batches * flops_of(trace) / stages,
        ideal_s=micro_batches * ideal_time_s(trace, placement.gpu) / stages / placement.gpu_share,
        parameters=profile.parameters,
        gradient_bytes=load.gradient_bytes,
        forward_fraction=forward_fraction(device),
        memory=parallel_memory_need(
            profile, samples, strategy, placement, calibration, passes=micro_batches
        ),
        notes=(
            *unchecked_notes(placement.gpu, conditions, calibration),
            *hidden_notes(profile, device, correction),
            *_link_notes(placement, fabric, calibration),
            *correction.notes,
        ),
    )


def _in_case(time_s: Estimate, case: Case) -> float:
    return {"fast": time_s.low, "likely": time_s.likely, "slow": time_s.high}[case]


def _over_cases(fast: float, likely: float, slow: float) -> Estimate:
    return Estimate(low=min(fast, likely), likely=likely, high=max(slow, likely))


def _link_notes(placement: Placement, fabric: Fabric, calibration: Calibration) -> tuple[str, ...]:
    """What was taken for granted of the links."""
    notes = []
    if placement.gpus > 1 and fabric.likely.gpu_link == "host":
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
    return _memory_need(
        ById(profile),
        batch_size,
        strategy,
        placement.site,
        placement.memory_budget,
        ById(calibration),
        passes,
    )


@lru_cache(maxsize=16_384)
def _memory_need(
    of_profile: ById[Profile],
    batch_size: int,
    strategy: Strategy,
    site: Site,
    budget: MemoryBudget,
    of_calibration: ById[Calibration],
    passes: int,
) -> MemoryNeed:
    """The same by what it depends on, worked out once: links and CPU threads change nothing."""
    profile, calibration = of_profile.value, of_calibration.value
    saved = bytes_spared_per_gpu(profile, batch_size, strategy, site, passes=passes)
    alone = table_need(profile, batch_size, calibration)
    need = MemoryNeed(
        allocated_bytes=_less(alone.allocated_bytes, saved),
        reserved_bytes=_less(alone.reserved_bytes, saved),
        available_bytes=budget.available_bytes,
        context_bytes=budget.context_bytes,
        fits=alone.needed_bytes - saved <= safe_bytes(budget, calibration),
    )
    return within_available(need) if need.fits else need


def _less(size_bytes: Estimate, saved: float) -> Estimate:
    return Estimate(
        low=max(size_bytes.low - saved, 0.0),
        likely=max(size_bytes.likely - saved, 0.0),
        high=max(size_bytes.high - saved, 0.0),
    )


def largest_parallel_batch(
    profile: Profile, strategy: Strategy, placement: Placement, calibration: Calibration
) -> int:
    """The largest batch of one pass that fits by a strategy, 0 where not even one sample does."""

    return _largest_batch(
        ById(profile), strategy, placement.site, placement.memory_budget, ById(calibration)
    )


@lru_cache(maxsize=4096)
def _largest_batch(
    profile: ById[Profile],
    strategy: Strategy,
    site: Site,
    budget: MemoryBudget,
    calibration: ById[Calibration],
) -> int:
    def fits(size: int) -> bool:
        return _memory_need(profile, size, strategy, site, budget, calibration, 1).fits

    return largest_that_fits(fits, 0, 1, COARSE)


# Unlike GPUs in one machine


def mixed_gpus_step(
    steps_at: Callable[[int | None], Sequence[StepPrediction]], batch_size: int | None
) -> StepPrediction:
    """The step on unlike GPUs, all at the batch that the smallest of them takes."""
    steps = steps_at(batch_size)
    common = min(step.batch_size for step in steps)
    return slowest_step(steps_at(common) if common else steps)


def slowest_step(steps: Sequence[StepPrediction]) -> StepPrediction:
    """The step of unlike GPUs in one machine: all wait for the slowest, and the fullest fits."""
    slowest = max(steps, key=lambda step: step.step_time_s.likely)
    tightest = min(steps, key=lambda step: (step.fits, step.max_batch_size))
    return replace(
        slowest,
        max_batch_size=tightest.max_batch_size,
        memory=tightest.memory,
        is_checked=all(step.is_checked for step in steps),
    )


def mixed_gpus_note(names: Sequence[str], slowest_name: str) -> str:
    """A warning about unlike GPUs in one machine."""
    return (
        f"{' and '.join(dict.fromkeys(names))} in one machine: every step waits for the "
        f"{slowest_name}, and the smallest memory sets the batch. Two jobs, one on each kind, use "
        "them better."
    )
