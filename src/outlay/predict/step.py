"""One training step on one GPU type: time with its range, memory, what bounds it, largest batch.

The device's time comes from `predict.compute`, the host's from `predict.host`; a step takes the
longer of the two, or what its input takes to arrive. A measured step time corrects whichever of
them it shows, on every GPU, and narrows the range to what differs between GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from outlay.estimate import Estimate
from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.compute import DeviceTime, device_time
from outlay.predict.host import REFERENCE_HOST, Host, host_time_s
from outlay.predict.links import CASES, UNKNOWN_WIRING, Case, Fabric, Wiring, fabric_of
from outlay.predict.machine import Machine, machine_of, speed_at
from outlay.predict.memory import (
    COARSE,
    LARGEST_BATCH,
    MemoryNeed,
    Room,
    largest_batch,
    memory_need,
    room_on,
    table_need,
)
from outlay.predict.phases import cut, phases_of
from outlay.predict.remember import Same
from outlay.predict.spread import Site, Spent, load_of, relief_bytes, spent, width_of
from outlay.predict.strategy import ALONE, Strategy
from outlay.trace.trace import Kind, Op, Precision, Profile, Trace

Bound = Literal["arithmetic", "memory", "host", "input", "network"]
PERCENTILE_90 = 1.2816
"""Standard deviations from the middle to the 10th and the 90th percentile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The GPUs a step runs on: which, how many in how many machines, and what share of each."""

    gpu: Gpu
    gpus: int = 1
    """In each machine."""
    nodes: int = 1
    wiring: Wiring = UNKNOWN_WIRING
    vcpus: float | None = None
    """Of each machine, where that is known."""
    power_limit_w: float | None = None
    """What each GPU is held to, where that is less than it was shipped with."""
    gpu_share: float = 1.0
    memory_cap_bytes: float | None = None
    """What the allocator may reserve, where the user caps it."""
    expandable_segments: bool = False
    """Whether the allocator is told to use expandable segments."""

    @property
    def site(self) -> Site:
        """How many GPUs in how many machines."""
        return Site(gpus=self.gpus, nodes=self.nodes)

    @property
    def room(self) -> Room:
        """What the allocator finds on one of them."""
        return room_on(
            self.gpu,
            share=self.gpu_share,
            cap_bytes=self.memory_cap_bytes,
            expandable_segments=self.expandable_segments,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What a measured step says about the prediction: measured over predicted, and where."""

    gpu: Gpu
    device: float = 1.0
    host: float = 1.0
    of_host: bool = False
    """Whether it was the host that the measured step waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a step's time depends on beside the GPU."""

    host: Host = REFERENCE_HOST
    input_samples_per_s: float | None = None
    """What the input pipeline delivers to each GPU, where somebody knows."""
    node_samples_per_s: float | None = None
    """What it delivers to all GPUs of a machine together."""
    correction: Correction | None = None


ORDINARY = Conditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """A step at a batch size: how long, how much memory, and the largest batch that fits."""

    placement: Placement
    strategy: Strategy = ALONE
    micro_batches: int = 1
    """Passes over `batch_size` samples before each update (gradient accumulation)."""
    batch_size: int
    """Of one pass on a GPU (on the GPUs that share a model). 0 where not one sample fits."""
    max_batch_size: int
    step_time_s: Estimate
    device_time_s: float
    host_time_s: float
    by_kind_s: Mapping[Kind, float]
    """The device's time by kind of operation, largest first."""
    input_s: float
    """What the input of one step takes to arrive; 0 where nothing was said of it."""
    exchange_s: Estimate
    """What communication adds that nothing hides."""
    waiting_s: float = 0.0
    """For the slowest of many GPUs, or for other stages of a pipeline."""
    bound: Bound
    flops: float
    ideal_s: float
    """What its arithmetic would take at the GPU's peaks."""
    parameters: int
    gradient_bytes: float
    memory: MemoryNeed
    notes: tuple[str, ...] = ()
    """What was taken for granted of the GPUs' links and power."""

    @property
    def global_batch_size(self) -> int:
        """Samples in one update over all GPUs of all machines."""
        return self.batch_size * self.strategy.data * self.micro_batches

    @property
    def samples_per_s(self) -> float:
        """Likely training speed."""
        return self.global_batch_size / self.step_time_s.likely

    @property
    def mfu(self) -> float:
        """Achieved share of peak (model FLOPs utilisation)."""
        return self.ideal_s / self.step_time_s.likely

    @property
    def fits(self) -> bool:
        """Whether the step fits into memory at this batch size."""
        return self.batch_size > 0 and self.memory.fits


def correction_from(
    profile: Profile,
    gpu: Gpu,
    batch_size: int,
    measured_s: float,
    calibration: Calibration,
    conditions: Conditions = ORDINARY,
    precision: Precision | None = None,
) -> Correction:
    """What one measured step time says: it corrects the device or the host, the slower one.

    The other cannot have taken longer than the step did, and is held to that.
    """
    trace = trace_at(profile, batch_size, precision)
    device_s = device_time(trace, _machine(gpu, calibration), calibration).total_s
    host_s = host_time_s(trace, calibration, conditions.host)
    device, host = measured_s / device_s, measured_s / host_s
    if host_s > device_s:
        return Correction(gpu=gpu, device=min(device, 1.0), host=host, of_host=True)
    return Correction(gpu=gpu, device=device, host=min(host, 1.0))


def predict_step(
    profile: Profile,
    placement: Placement,
    batch_size: int | None,
    calibration: Calibration,
    precision: Precision | None = None,
    *,
    largest: int | None = None,
    conditions: Conditions = ORDINARY,
) -> StepPrediction:
    """The step on one GPU of a placement at a batch size, or at the largest that fits (None).

    `largest` is that batch size where it is known already; otherwise it is found coarsely.
    """
    placement = replace(placement, gpus=1, nodes=1)
    room = placement.room
    if largest is None:
        largest = largest_batch(profile, room, calibration, COARSE)
    batch = largest if batch_size is None else batch_size
    shown = max(batch, 1)
    trace = trace_at(profile, shown, precision)
    machine = _machine(placement.gpu, calibration)
    device = device_time(trace, machine, calibration)
    scale, host_scale = _scales(placement, conditions, calibration)
    device_s = device.total_s * scale
    host_s = host_time_s(trace, calibration, conditions.host) * host_scale
    input_s = _input_s(shown, 1, conditions)
    return StepPrediction(
        placement=placement,
        batch_size=batch,
        max_batch_size=largest,
        step_time_s=_step_time_s(
            _device_range(device_s, device, placement, conditions.correction, calibration),
            _host_range(host_s, conditions, calibration),
            input_s,
        ),
        device_time_s=device_s,
        host_time_s=host_s,
        by_kind_s={kind: time_s * scale for kind, time_s in device.by_kind_s.items()},
        input_s=input_s,
        exchange_s=Estimate.exactly(0.0),
        bound=_bound(device, device_s, host_s, input_s),
        flops=trace.flops,
        ideal_s=_ideal_s(trace, placement.gpu, machine) / placement.gpu_share,
        parameters=profile.parameters,
        gradient_bytes=load_of(profile, shown).gradient_bytes,
        memory=memory_need(profile, shown, room, calibration),
    )


def _scales(
    placement: Placement, conditions: Conditions, calibration: Calibration
) -> tuple[float, float]:
    """What the device's and the host's times are multiplied by: shares, limits, measurements."""
    correction = conditions.correction or Correction(gpu=placement.gpu)
    device = correction.device / placement.gpu_share
    if placement.power_limit_w is not None:
        device /= speed_at(placement.power_limit_w / placement.gpu.tdp_w, calibration)
    return device, correction.host * _crowding(placement, calibration)


def _crowding(placement: Placement, calibration: Calibration) -> float:
    """How much longer the host takes where its GPUs' processes have too few CPU threads."""
    if placement.vcpus is None:
        return 1.0
    return max(placement.gpus * calibration.number("host_threads") / placement.vcpus, 1.0)


def _input_s(samples: int, gpus: int, conditions: Conditions) -> float:
    """How long the samples of one pass take to arrive at each of a machine's GPUs."""
    each, all_of_them = conditions.input_samples_per_s, conditions.node_samples_per_s
    return max(
        0.0 if each is None else samples / each,
        0.0 if all_of_them is None else samples * gpus / all_of_them,
    )


# On several GPUs


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
    machine = _machine(placement.gpu, calibration)
    device = device_time(trace, machine, calibration)
    phases = phases_of(trace, machine, calibration, conditions.host).scaled(
        *_scales(placement, conditions, calibration)
    )
    load = load_of(profile, shown)
    fabric = fabric_of(
        placement.gpu, placement.gpus, placement.wiring, calibration, nodes=placement.nodes
    )
    stages = strategy.pipeline
    device_s = micro_batches * (phases.forward_s + phases.backward_s) / stages + phases.update_s
    host_s = micro_batches * phases.host_pass_s / stages + phases.host_update_s
    feeding = min(site.gpus // min(strategy.tensor * stages, site.gpus), strategy.data)
    input_s = micro_batches * _input_s(shown, max(feeding, 1), conditions)
    errors = {
        "device": _device_range(1.0, device, placement, conditions.correction, calibration),
        "host": _host_range(1.0, conditions, calibration),
    }
    taken: dict[Case, Spent] = {}
    for case in CASES:
        scaled = phases.scaled(_of(errors["device"], case), _of(errors["host"], case))
        taken[case] = spent(scaled, load, strategy, site, fabric, case, micro_batches, calibration)
    likely = taken["likely"]
    return StepPrediction(
        placement=placement,
        strategy=strategy,
        micro_batches=micro_batches,
        batch_size=batch_size,
        max_batch_size=largest,
        step_time_s=_ordered(*(max(taken[case].total_s, input_s) for case in CASES)),
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
        else _bound(device, device_s, host_s, input_s),
        flops=micro_batches * trace.flops / stages,
        ideal_s=micro_batches
        * _ideal_s(trace, placement.gpu, machine)
        / stages
        / placement.gpu_share,
        parameters=profile.parameters,
        gradient_bytes=load.gradient_bytes,
        memory=spread_memory(profile, shown, strategy, placement, calibration),
        notes=_link_notes(placement, fabric, calibration),
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
) -> MemoryNeed:
    """What one GPU needs: as alone, less what it need not hold, and more for exchanging.

    Alone it is as the profile's table has it, which is of the reference GPU.
    """
    relief = relief_bytes(profile, batch_size, strategy, placement.site)
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
    while high <= LARGEST_BATCH and fits(high):
        low, high = high, 2 * high
    while high - low > max(low // COARSE, 1):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _bound(device: DeviceTime, device_s: float, host_s: float, input_s: float) -> Bound:
    if input_s > max(device_s, host_s):
        return "input"
    if host_s > device_s:
        return "host"
    return "arithmetic" if device.arithmetic_s > device.total_s / 2 else "memory"


def _ideal_s(trace: Trace, gpu: Gpu, machine: Machine) -> float:
    """The time of its FLOPs at the dense peaks of the arithmetic it runs in."""
    flops: dict[str, float] = {}
    for op in trace.ops:
        if op.flops:
            kind = machine.arithmetic(op.precision)
            flops[kind] = flops.get(kind, 0.0) + op.count * op.flops
    return sum(amount / gpu.peak(kind) for kind, amount in flops.items())


def trace_at(profile: Profile, batch_size: int, precision: Precision | None = None) -> Trace:
    """The step at a batch size; asked again for another GPU, the same."""
    return _trace_at(Same(profile), batch_size, precision)


@lru_cache(maxsize=256)
def _trace_at(profile: Same[Profile], batch_size: int, precision: Precision | None) -> Trace:
    return with_precision(profile.value.at(batch_size), precision)


def _machine(gpu: Gpu, calibration: Calibration) -> Machine:
    return _machine_of(Same(gpu), Same(calibration))


@lru_cache(maxsize=512)
def _machine_of(gpu: Same[Gpu], calibration: Same[Calibration]) -> Machine:
    return machine_of(gpu.value, calibration.value)


def spanning(steps: Sequence[StepPrediction]) -> StepPrediction:
    """The step where the GPU's form is open: the slowest's (first) figures, a range over all."""
    first, *others = steps
    if not others:
        return first
    batch = max(first.batch_size, 1)
    lows = [one.step_time_s.low / max(one.batch_size, 1) * batch for one in others]
    low = min(first.step_time_s.low, *lows)
    return replace(first, step_time_s=replace(first.step_time_s, low=low))


def with_precision(trace: Trace, precision: Precision | None) -> Trace:
    """The step with its matrix arithmetic in another precision; traffic stays as traced."""
    if precision is None:
        return trace
    return replace(trace, ops=tuple(_op_in(op, precision) for op in trace.ops))


def _op_in(op: Op, precision: Precision) -> Op:
    matrix = op.kind in ("gemm", "conv", "attention", "rnn")
    return replace(op, precision=precision) if matrix else op


# Ranges


def _step_time_s(device: Estimate, host: Estimate, input_s: float) -> Estimate:
    """The slowest of device, host and input."""
    return Estimate(
        low=max(device.low, host.low, input_s),
        likely=max(device.likely, host.likely, input_s),
        high=max(device.high, host.high, input_s),
    )


def _device_range(
    device_s: float,
    device: DeviceTime,
    placement: Placement,
    correction: Correction | None,
    calibration: Calibration,
) -> Estimate:
    """By the errors of the kernels it runs, how well this kind of GPU is known, and its limit."""
    gpu = placement.gpu
    error = math.hypot(calibration.number("error_base"), device.doubt, _error_of(gpu, calibration))
    if correction is not None and not correction.of_host:
        error = _error_after(correction, device, gpu, calibration)
    if placement.power_limit_w is not None:
        lost = 1 - speed_at(placement.power_limit_w / gpu.tdp_w, calibration)
        error = math.hypot(error, calibration.number("power_loss_error") * lost)
    return _around(device_s, error)


def _error_of(gpu: Gpu, calibration: Calibration) -> float:
    """Relative error of a GPU's own figures: rates under load, bandwidth, its library."""
    return calibration.first(f"error_on_{gpu.architecture}", "error_on_others")


def _error_after(
    correction: Correction, device: DeviceTime, gpu: Gpu, calibration: Calibration
) -> float:
    """What is left once a step was measured: on the same GPU how steps repeat, else the ratio."""
    repeat = calibration.number("error_of_repeats")
    if gpu is correction.gpu:
        return repeat
    between = max(_error_of(gpu, calibration), _error_of(correction.gpu, calibration))
    return math.hypot(
        repeat,
        calibration.number("doubt_kept") * device.doubt,
        calibration.number("ratio_kept") * between,
    )


def _host_range(host_s: float, conditions: Conditions, calibration: Calibration) -> Estimate:
    """Hosts differ; one that was measured, by a test or by a step, much less."""
    corrected = conditions.correction is not None and conditions.correction.of_host
    known = conditions.host.measured or corrected
    return calibration.estimate("host_range_measured" if known else "host_range").scaled(host_s)


def _around(time_s: float, error: float) -> Estimate:
    spread = math.exp(PERCENTILE_90 * error)
    return Estimate(low=time_s / spread, likely=time_s, high=time_s * spread)
