"""One training step on one GPU: time with its range, memory, what bounds it, largest batch.

In: a `Profile`, a `Placement`, a batch size, the `Conditions` it runs under. Out: a
`StepPrediction`. The device's time comes from `predict.kernel_time`, the host's from
`predict.host_time`; a step takes the longer of the two, or what its input takes to arrive. What was
measured corrects them (`predict.correct`) and narrows the range to what differs between GPUs.
`predict.parallel` puts steps on several GPUs together from the same parts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from outlay.caching import ById
from outlay.hardware.gpus import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.correct import CorrectionRequest, correction_at
from outlay.predict.evidence import (
    MEASURED,
    NO_EVIDENCE,
    PREDICTED,
    Correction,
    Evidence,
    gpu_error,
    input_limit_s,
    is_checked,
)
from outlay.predict.host_time import REFERENCE_HOST, Host, elapsed_s, host_time_s
from outlay.predict.kernel_time import DeviceTime, device_time
from outlay.predict.memory import (
    COARSE,
    MemoryBudget,
    MemoryNeed,
    largest_batch,
    memory_budget,
    memory_need,
    within_available,
)
from outlay.predict.network import UNKNOWN_WIRING, Wiring
from outlay.predict.parallel_time import Site, communication_load
from outlay.predict.roofline import (
    flops_of,
    ideal_time_s,
    power_limit_error,
    power_limit_speed,
    roofline_of,
    trace_at,
)
from outlay.predict.strategy import ONE_GPU, Strategy
from outlay.trace.profile import CompileMode, Kind, Precision, Profile
from outlay.uncertainty import Estimate

Bound = Literal["arithmetic", "memory", "host", "input", "network"]
FORWARD_FRACTION = 1 / 3
# Assumes: backward costs twice what forward does.


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
    def memory_budget(self) -> MemoryBudget:
        """What the allocator finds on one of them."""
        return memory_budget(
            self.gpu,
            share=self.gpu_share,
            cap_bytes=self.memory_cap_bytes,
            expandable_segments=self.expandable_segments,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a step's time depends on beside the GPU."""

    host: Host = REFERENCE_HOST
    input_samples_per_s: float | None = None
    """What the input pipeline delivers to each GPU, where somebody knows."""
    node_samples_per_s: float | None = None
    """What it delivers to all GPUs of a machine together."""
    evidence: Evidence = NO_EVIDENCE
    """What was measured, of this step or of others."""


DEFAULT_CONDITIONS = Conditions()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPrediction:
    """A step at a batch size: how long, how much memory, and the largest batch that fits."""

    placement: Placement
    strategy: Strategy = ONE_GPU
    micro_batches: int = 1
    """Passes over `batch_size` samples before each update (gradient accumulation)."""
    batch_size: int
    """Of one pass on a GPU (on the GPUs that share a model). 0 where not one sample fits."""
    max_batch_size: int
    step_time_s: Estimate
    time_from: str = PREDICTED
    """`predicted`, `measured`, or `carried over from` somewhere."""
    is_checked: bool = True
    """Whether predictions for such a GPU were ever held against a measurement; otherwise its time
    rests on its datasheet alone, and has the wide range of that."""
    compiled: CompileMode | None = None
    """The mode of torch.compile it is predicted in; None: eager code."""
    custom_ops: tuple[str, ...] = ()
    """Its operators of extensions, which need a build for the GPU."""
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
    forward_fraction: float = FORWARD_FRACTION
    """Share of its time that goes forward: what a sample costs that is only evaluated."""
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
    def software_doubts(self) -> tuple[str, ...]:
        """Why the step may not run on such a GPU as it is."""
        gpu, doubts = self.placement.gpu, []
        if gpu.software.runs == "special build":
            doubts.append("needs a special build of PyTorch")
        if gpu.vendor != "NVIDIA" and self.custom_ops:
            doubts.append(f"{self.custom_ops[0]} may have no build for {gpu.vendor}")
        return tuple(doubts)

    @property
    def fits(self) -> bool:
        """Whether the step fits into memory at this batch size."""
        return self.batch_size > 0 and self.memory.fits


def predict_step(
    profile: Profile,
    placement: Placement,
    batch_size: int | None,
    calibration: Calibration,
    precision: Precision | None = None,
    *,
    largest: int | None = None,
    batch_limit: int | None = None,
    conditions: Conditions = DEFAULT_CONDITIONS,
) -> StepPrediction:
    """The step on one GPU of a placement at a batch size, or at the largest that fits (None).

    `largest` is that batch size where it is known already; otherwise it is found coarsely. No
    more than `batch_limit` of it is taken.
    """
    placement = replace(placement, gpus=1, nodes=1)
    budget = placement.memory_budget
    if largest is None:
        largest = largest_batch(profile, budget, calibration, COARSE)
    largest_measured = _largest_measured(placement, conditions, as_traced=precision is None)
    largest = max(largest, largest_measured)
    batch = min(largest, batch_limit or largest) if batch_size is None else batch_size
    samples = max(batch, 1)
    trace = trace_at(profile, samples, precision)
    device = device_time(trace, roofline_of(placement.gpu, calibration), calibration)
    correction = correction_at(
        conditions.evidence,
        profile,
        correction_request(placement, samples, conditions, as_traced=precision is None),
        device,
        calibration,
    )
    device_factor, host_factor = time_factors(placement, correction, device, calibration)
    device_s = device.total_s * device_factor
    host_s = host_time_s(trace, calibration, conditions.host) * host_factor
    arrival = input_range(samples, placement, conditions, correction, calibration)
    is_compiled = profile.compiled is not None
    host = host_range(host_s, conditions, correction, calibration, is_compiled=is_compiled)
    stated_host = stated_host_range(host, conditions.host, correction)
    memory = memory_need(profile, samples, budget, calibration)
    if samples <= largest_measured:
        memory = within_available(memory)
    return StepPrediction(
        placement=placement,
        batch_size=batch,
        max_batch_size=largest,
        step_time_s=measured_time_s(correction, arrival, stated_host)
        or _slowest(
            device_range(device_s, device, placement, conditions, correction, calibration),
            host,
            arrival,
        ),
        time_from=time_from(correction, arrival, stated_host),
        is_checked=is_checked(placement.gpu, conditions.evidence, calibration),
        compiled=profile.compiled,
        custom_ops=custom_ops_of(profile),
        device_time_s=device_s,
        host_time_s=host_s,
        by_kind_s={kind: time_s * device_factor for kind, time_s in device.by_kind_s.items()},
        input_s=arrival.likely,
        exchange_s=Estimate.exactly(0.0),
        bound=predicted_bottleneck(device, device_s, host_s, arrival.likely),
        flops=flops_of(trace),
        ideal_s=ideal_time_s(trace, placement.gpu) / placement.gpu_share,
        parameters=profile.parameters,
        gradient_bytes=communication_load(profile, samples).gradient_bytes,
        forward_fraction=forward_fraction(device),
        memory=memory,
        notes=(
            *unchecked_notes(placement.gpu, conditions, calibration),
            *hidden_notes(profile, device, correction),
            *correction.notes,
        ),
    )


def unchecked_notes(gpu: Gpu, conditions: Conditions, calibration: Calibration) -> tuple[str, ...]:
    """A word on a GPU whose predictions nothing was ever held against."""
    if is_checked(gpu, conditions.evidence, calibration):
        return ()
    return (f"{gpu.name}: never measured; predicted from its datasheet, with the range of that.",)


def hidden_notes(profile: Profile, device: DeviceTime, correction: Correction) -> tuple[str, ...]:
    """A word on operators without a formula, which may hide a part of the step."""
    if correction.error is not None or not device.unknown_s:
        return ()
    share = device.unknown_s / device.total_s
    names = ", ".join(sorted(profile.unknown_ops))
    note = (
        f"No formula for {names}: moving the tensors takes {100 * share:.1f} % of the step, and "
        "the range allows ten times that. outlay.register_op tells the rest."
    )
    return (note,)


def custom_ops_of(profile: Profile) -> tuple[str, ...]:
    """The operators of extensions in a step, looked for once."""
    return _custom_ops(ById(profile))


@lru_cache(maxsize=64)
def _custom_ops(profile: ById[Profile]) -> tuple[str, ...]:
    return profile.value.custom_ops


def _largest_measured(placement: Placement, conditions: Conditions, *, as_traced: bool) -> int:
    """The largest batch that was measured to fit, as traced and with all of the GPU's memory."""
    if not as_traced or placement.gpu_share != 1 or placement.memory_cap_bytes is not None:
        return 0
    return conditions.evidence.largest_batch_on(placement.gpu)


def correction_request(
    placement: Placement, batch_size: int, conditions: Conditions, *, as_traced: bool
) -> CorrectionRequest:
    """The step on a placement, as the evidence is asked about it."""
    return CorrectionRequest(
        gpu=placement.gpu,
        batch_size=batch_size,
        gpus=placement.gpus,
        nodes=placement.nodes,
        power_limit_w=placement.power_limit_w,
        as_measured=as_traced and placement.gpu_share == 1,
        host=conditions.host,
    )


def predicted_bottleneck(
    device: DeviceTime, device_s: float, host_s: float, input_s: float
) -> Bound:
    """What a step waits for."""
    if input_s > max(device_s, host_s):
        return "input"
    if host_s > device_s:
        return "host"
    return "arithmetic" if device.arithmetic_s > device.total_s / 2 else "memory"


def forward_fraction(device: DeviceTime) -> float:
    """The share of a device's time that goes forward; a third where phases are not known."""
    forward_s = device.by_phase_s.get("forward", 0.0)
    return forward_s / device.total_s if forward_s and device.total_s else FORWARD_FRACTION


def range_over_forms(steps: Sequence[StepPrediction]) -> StepPrediction:
    """The step where the GPU's form is open: the slowest's (first) figures, a range over all."""
    first, *others = steps
    if not others:
        return first
    batch = max(first.batch_size, 1)
    lows = [step.step_time_s.low / max(step.batch_size, 1) * batch for step in others]
    low = min(first.step_time_s.low, *lows)
    return replace(first, step_time_s=replace(first.step_time_s, low=low))


# Times of device, host and input, with their ranges


def time_factors(
    placement: Placement, correction: Correction, device: DeviceTime, calibration: Calibration
) -> tuple[float, float]:
    """What the device's and the host's times are multiplied by: shares, limits, measurements."""
    device_factor = correction.device_factor / placement.gpu_share
    device_factor /= power_limit_speed(placement.gpu, placement.power_limit_w, calibration)
    gap = correction.gap_s / device.total_s if device.total_s else 0.0
    return device_factor + gap, correction.host_factor * _thread_contention(placement, calibration)


def _thread_contention(placement: Placement, calibration: Calibration) -> float:
    """How much longer the host takes where its GPUs' processes have too few CPU threads."""
    if placement.vcpus is None:
        return 1.0
    return max(placement.gpus * calibration.number("host_threads") / placement.vcpus, 1.0)


def device_range(
    device_s: float,
    device: DeviceTime,
    placement: Placement,
    conditions: Conditions,
    correction: Correction,
    calibration: Calibration,
) -> Estimate:
    """By the errors of the kernels it runs, how well this kind of GPU is known, and its limit."""
    gpu, error = placement.gpu, correction.error
    if error is None:
        of_gpu = gpu_error(gpu, conditions.evidence.learned, calibration)
        error = math.hypot(calibration.number("error_base"), device.kernel_error, of_gpu)
    limit_error = power_limit_error(gpu, placement.power_limit_w, calibration)
    known = Estimate.log_normal(device_s, math.hypot(error, limit_error))
    if correction.error is not None or not device.unknown_s:
        return known
    hidden_s = device_s * device.unknown_s / device.total_s
    slowdown = calibration.estimate("unknown_op_slowdown")
    return replace(known, high=known.high + (slowdown.high - 1) * hidden_s)


def host_range(
    host_s: float,
    conditions: Conditions,
    correction: Correction,
    calibration: Calibration,
    *,
    is_compiled: bool = False,
) -> Estimate:
    """Hosts differ; one that was measured, by a test or by a step on this GPU, much less.

    What compiled code costs a host is a guess, unless such a step was measured.
    """
    is_known = conditions.host.measured or correction.host_known
    name = "host_range_measured" if is_known else "host_range"
    if is_compiled and not correction.host_known:
        name = "host_range_compiled"
    return calibration.estimate(name).scaled(host_s)


def stated_host_range(host: Estimate, stated: Host, correction: Correction) -> Estimate | None:
    """What a host takes whose speed is given; None where a measured step tells what it takes."""
    return host if stated.measured and not correction.host_known else None


def input_range(
    samples: int,
    placement: Placement,
    conditions: Conditions,
    correction: Correction,
    calibration: Calibration,
    *,
    gpus: int = 1,
) -> Estimate:
    """How long input takes to arrive at each of so many GPUs of a machine: as is stated, or as a
    measured machine's loader took.
    """
    stated = conditions.input_samples_per_s is not None or conditions.node_samples_per_s is not None
    if correction.input_limit is None or stated:
        return Estimate.exactly(_stated_input_s(samples, gpus, conditions))
    return input_limit_s(samples, gpus, placement.vcpus, correction.input_limit, calibration)


def _stated_input_s(samples: int, gpus: int, conditions: Conditions) -> float:
    """How long the samples of one pass take to arrive at each of a machine's GPUs."""
    per_gpu, per_node = conditions.input_samples_per_s, conditions.node_samples_per_s
    return max(
        0.0 if per_gpu is None else samples / per_gpu,
        0.0 if per_node is None else samples * gpus / per_node,
    )


def _slowest(device: Estimate, host: Estimate, arrival: Estimate) -> Estimate:
    """The slowest of device, host and input, at each end of their ranges."""
    return Estimate(
        low=max(elapsed_s(device.low, host.low), arrival.low),
        likely=max(elapsed_s(device.likely, host.likely), arrival.likely),
        high=max(elapsed_s(device.high, host.high), arrival.high),
    )


# A step that was measured, where something is stated to be slower than it was there


def measured_time_s(
    correction: Correction, arrival: Estimate, stated_host: Estimate | None
) -> Estimate | None:
    """The step as it was measured, unless its input or a stated host takes longer than it took."""
    measured_s = correction.measured_s
    if measured_s is None or _slower_part(measured_s, arrival, stated_host) is None:
        return measured_s
    arrival = Estimate.exactly(arrival.low)
    return arrival if stated_host is None else _slowest(measured_s, stated_host, arrival)


def time_from(correction: Correction, arrival: Estimate, stated_host: Estimate | None) -> str:
    """Where the time of a step is from."""
    measured_s = correction.measured_s
    slower = None if measured_s is None else _slower_part(measured_s, arrival, stated_host)
    return correction.time_from if slower is None else f"{MEASURED}, but for the {slower}"


def _slower_part(
    measured_s: Estimate, arrival: Estimate, stated_host: Estimate | None
) -> Literal["input", "host"] | None:
    """What would have held a measured step back, had it been there."""
    host_s = 0.0 if stated_host is None else stated_host.likely
    if max(arrival.low, host_s) <= measured_s.likely:
        return None
    return "input" if arrival.low > host_s else "host"
