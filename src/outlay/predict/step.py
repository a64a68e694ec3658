"""One training step on one GPU type: time with its range, memory, what bounds it, largest batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from outlay.estimate import Estimate
from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.communicate import exposed_s
from outlay.predict.compute import device_time_s, host_time_s
from outlay.predict.memory import (
    COARSE,
    MemoryNeed,
    Room,
    largest_batch,
    memory_need,
    room_on,
)
from outlay.trace.trace import Op, Precision, Profile, Trace

Bound = Literal["device", "host", "network"]
GRADIENT_BYTES_PER_PARAMETER = 4
# Assumes: gradients are exchanged in fp32, as DistributedDataParallel does for fp32 weights.


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The GPUs a step runs on: which, how many in one machine, and what share of each."""

    gpu: Gpu
    gpus: int = 1
    gpu_share: float = 1.0
    memory_cap_bytes: float | None = None
    """What the allocator may reserve, where the user caps it."""
    expandable_segments: bool = False
    """Whether the allocator is told to use expandable segments."""

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
class StepPrediction:
    """A step at a batch size: how long, how much memory, and the largest batch that fits."""

    placement: Placement
    batch_size: int
    """Per GPU. 0 where not even one sample fits."""
    max_batch_size: int
    step_time_s: Estimate
    device_time_s: float
    host_time_s: float
    exchange_s: Estimate
    bound: Bound
    flops: float
    parameters: int
    gradient_bytes: float
    memory: MemoryNeed

    @property
    def global_batch_size(self) -> int:
        """Samples in one step over all GPUs of the machine."""
        return self.batch_size * self.placement.gpus

    @property
    def samples_per_s(self) -> float:
        """Likely training speed."""
        return self.global_batch_size / self.step_time_s.likely

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
) -> StepPrediction:
    """The step on a placement at a batch size per GPU, or at the largest that fits (None).

    `largest` is that batch size where it is known already; otherwise it is found coarsely.
    """
    alone = replace(placement, gpus=1)
    step = _step_alone(profile, alone, batch_size, calibration, precision, largest)
    return on_gpus(step, placement.gpus, calibration)


def _step_alone(
    profile: Profile,
    placement: Placement,
    batch_size: int | None,
    calibration: Calibration,
    precision: Precision | None,
    largest: int | None,
) -> StepPrediction:
    """The step on one GPU."""
    room = placement.room
    if largest is None:
        largest = largest_batch(profile, room, calibration, COARSE)
    batch = largest if batch_size is None else batch_size
    shown = max(batch, 1)
    trace = with_precision(profile.at(shown, shapes=False), precision)
    device_s = device_time_s(trace, placement.gpu, calibration) / placement.gpu_share
    host_s = host_time_s(trace, calibration)
    return StepPrediction(
        placement=placement,
        batch_size=batch,
        max_batch_size=largest,
        step_time_s=_step_time_s(device_s, host_s, calibration),
        device_time_s=device_s,
        host_time_s=host_s,
        exchange_s=Estimate.exactly(0.0),
        bound="device" if device_s >= host_s else "host",
        flops=trace.flops,
        parameters=profile.parameters,
        gradient_bytes=GRADIENT_BYTES_PER_PARAMETER * profile.trainable_parameters,
        memory=memory_need(profile, shown, room, calibration),
    )


def on_gpus(step: StepPrediction, gpus: int, calibration: Calibration) -> StepPrediction:
    """A step on one GPU as it runs on several of one machine, each with the same batch."""
    if gpus == 1:
        return step
    exchange = exposed_s(
        step.gradient_bytes, gpus, step.placement.gpu, step.device_time_s, calibration
    )
    network = exchange.likely > step.step_time_s.likely
    return replace(
        step,
        placement=replace(step.placement, gpus=gpus),
        step_time_s=step.step_time_s.plus(exchange),
        exchange_s=exchange,
        bound="network" if network else step.bound,
    )


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


def _step_time_s(device_s: float, host_s: float, calibration: Calibration) -> Estimate:
    """The slower of device and host, with the range seen on steps that were not fitted."""
    device = calibration.estimate("device_time_range").scaled(device_s)
    host = calibration.estimate("host_time_range").scaled(host_s)
    return Estimate(
        low=max(device.low, host.low),
        likely=max(device.likely, host.likely),
        high=max(device.high, host.high),
    )
