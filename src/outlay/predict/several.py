"""A step on several GPUs by one strategy: time with its range, memory, largest batch."""

from __future__ import annotations

from outlay.estimate import Estimate
from outlay.predict.calibration import Calibration
from outlay.predict.carry import correction_at
from outlay.predict.compute import device_time
from outlay.predict.holding import relief_bytes
from outlay.predict.links import CASES, Case, Fabric, fabric_of
from outlay.predict.machine import ideal_time_s
from outlay.predict.measured_step import given_host, measured_time_s, time_from
from outlay.predict.memory import COARSE, LARGEST_BATCH, MemoryNeed, table_need
from outlay.predict.phases import cut, phases_of
from outlay.predict.spread import Spent, load_of, spent, width_of
from outlay.predict.step import (
    ORDINARY,
    Conditions,
    Placement,
    StepPrediction,
    arrival_s,
    asked_on,
    bound_of,
    device_range,
    forward_fraction,
    host_range,
    scales,
)
from outlay.predict.strategy import Strategy
from outlay.predict.traced import machine_at, trace_at
from outlay.trace.trace import Precision, Profile


def spread_step(
    profile: Profile,
    placement: Placement,
    strategy: Strategy,
    batch_size: int,
    calibration: Calibration,
    precision: Precision | None = None,
    *,
    micro_batches: int = 1,
    largest: int = 0,
    conditions: Conditions = ORDINARY,
) -> StepPrediction:
    """The step on all GPUs of a placement by one strategy, at a batch size of one pass."""
    site, shown = placement.site, max(batch_size, 1)
    whole = trace_at(profile, shown, precision)
    trace = cut(whole, strategy.tensor, width_of(profile))
    machine = machine_at(placement.gpu, calibration)
    device = device_time(trace, machine, calibration)
    whole_step = strategy.data == site.total and micro_batches == 1
    asked = asked_on(placement, shown, conditions, as_traced=precision is None and whole_step)
    correction = correction_at(conditions.experience, profile, asked, device, calibration)
    phases = phases_of(trace, machine, calibration, conditions.host).scaled(
        *scales(placement, correction, device, calibration)
    )
    load = load_of(profile, shown)
    fabric = fabric_of(
        placement.gpu, placement.gpus, placement.wiring, calibration, nodes=placement.nodes
    )
    stages = strategy.pipeline
    device_s = micro_batches * (phases.forward_s + phases.backward_s) / stages + phases.update_s
    host_s = micro_batches * phases.host_pass_s / stages + phases.host_update_s
    feeding = min(site.gpus // min(strategy.tensor * stages, site.gpus), strategy.data)
    arrival = arrival_s(
        shown, placement, conditions, correction, calibration, gpus=max(feeding, 1)
    ).scaled(micro_batches)
    input_s = arrival.likely
    errors = {
        "device": device_range(1.0, device, placement, conditions, correction, calibration),
        "host": host_range(1.0, conditions, correction, calibration),
    }
    taken: dict[Case, Spent] = {}
    for case in CASES:
        scaled = phases.scaled(_of(errors["device"], case), _of(errors["host"], case))
        taken[case] = spent(scaled, load, strategy, site, fabric, case, micro_batches, calibration)
    likely = taken["likely"]
    given = given_host(errors["host"].scaled(host_s), conditions.host, correction)
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
        memory=spread_memory(
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


def spread_memory(
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
    relief = relief_bytes(profile, batch_size, strategy, placement.site, passes=passes)
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


def largest_spread(
    profile: Profile, strategy: Strategy, placement: Placement, calibration: Calibration
) -> int:
    """The largest batch of one pass that fits by a strategy, 0 where not even one sample does."""

    def fits(size: int) -> bool:
        return spread_memory(profile, size, strategy, placement, calibration).fits

    low, high = 0, 1
    while fits(high):
        if high == LARGEST_BATCH:
            return high
        low, high = high, min(2 * high, LARGEST_BATCH)
    while high - low > max(low // COARSE, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
