"""Time on the device, kernel by kernel.

An operator becomes the kernels a GPU runs for it (`predict.kernels`, `predict.convolution`); each
is a matrix product (`predict.product`) or a pass over memory (`predict.passing`). Between kernels
the device pauses about a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from outlay.predict.calibration import Calibration
from outlay.predict.convolution import convolution_of
from outlay.predict.kernels import (
    Kernel,
    Product,
    attention_of,
    norms_of,
    pass_of,
    products_of,
    recurrent_of,
    shapeless_of,
)
from outlay.predict.machine import Machine
from outlay.predict.passing import pass_s
from outlay.predict.product import product_s, recipe_of
from outlay.predict.remember import Same
from outlay.trace.trace import Kind, Op, Phase, Trace


@lru_cache(maxsize=65_536)
def kernels_of(op: Op, *, tensor_cores: bool) -> tuple[Kernel, ...]:
    """The kernels one operator starts; none for a view."""
    if op.launches <= 0 and op.moved_bytes <= 0 and op.flops <= 0:
        return ()
    if not op.shapes:
        return shapeless_of(op)
    if op.kind == "conv" and "convolution" in op.name and len(op.shapes) > 2:
        return convolution_of(op, tensor_cores=tensor_cores)
    if op.kind == "gemm":
        return products_of(op)
    if op.kind == "attention":
        return attention_of(op)
    if op.kind == "rnn" and op.flops > 0:
        return recurrent_of(op)
    if op.kind == "norm":
        return norms_of(op)
    return shapeless_of(op) if op.flops > 0 else pass_of(op)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """What the device needs for one step, and on what."""

    total_s: float
    by_kind_s: Mapping[Kind, float]
    """By kind of operation, largest first."""
    by_phase_s: Mapping[Phase, float]
    arithmetic_s: float
    """In matrix products that wait for arithmetic rather than for memory."""
    doubt: float
    """Relative error to expect from the kernels' own errors when they were fitted."""
    doubts: Mapping[str, float] = field(default_factory=dict)
    """The same by family of kernels: errors of one family go together, in other steps, too."""


def kernel_s(kernel: Kernel, machine: Machine, calibration: Calibration) -> float:
    """Seconds of one kernel, with the pause before it."""
    pause_s = calibration.number("kernel_pause_s")
    if isinstance(kernel, Product):
        return kernel.repeats * pause_s + product_s(kernel, machine, calibration)
    return kernel.launches * pause_s + pass_s(kernel, machine, calibration)


def op_time_s(op: Op, machine: Machine, calibration: Calibration) -> float:
    """Time of one operation on one GPU."""
    kernels = kernels_of(op, tensor_cores=op.precision in machine.tensor_types)
    return sum(kernel_s(kernel, machine, calibration) for kernel in kernels)


def device_time(trace: Trace, machine: Machine, calibration: Calibration) -> DeviceTime:
    """The time the device is busy in one step."""
    return _device_time(Same(trace), Same(machine), Same(calibration))


@lru_cache(maxsize=1024)
def _device_time(trace: Same[Trace], gpu: Same[Machine], numbers: Same[Calibration]) -> DeviceTime:
    machine, calibration = gpu.value, numbers.value
    kinds: dict[Kind, float] = {}
    phases: dict[Phase, float] = {}
    families: dict[str, float] = {}
    arithmetic_s = 0.0
    for kind, kernel, counts in _work(trace, machine.tensor_types):
        once_s = kernel_s(kernel, machine, calibration)
        for phase, count in counts:
            phases[phase] = phases.get(phase, 0.0) + count * once_s
        time_s = sum(count for _, count in counts) * once_s
        kinds[kind] = kinds.get(kind, 0.0) + time_s
        family = kernel.family
        if isinstance(kernel, Product):
            arithmetic = machine.arithmetic(kernel.precision)
            family = recipe_of(kernel, arithmetic)
            if _is_bound_by_arithmetic(kernel, machine, arithmetic):
                arithmetic_s += time_s
        families[family] = families.get(family, 0.0) + time_s
    total_s = sum(kinds.values())
    doubts = _doubts(families, total_s, calibration)
    return DeviceTime(
        total_s=total_s,
        by_kind_s=dict(sorted(kinds.items(), key=lambda item: -item[1])),
        by_phase_s=phases,
        arithmetic_s=arithmetic_s,
        doubt=math.hypot(*doubts.values()),
        doubts=doubts,
    )


@lru_cache(maxsize=64)
def _work(
    trace: Same[Trace], tensor_types: frozenset[str]
) -> tuple[tuple[Kind, Kernel, tuple[tuple[Phase, float], ...]], ...]:
    """Every kernel of a step once, with how often it runs in each phase, by tensor types."""
    counts: dict[tuple[Kind, Kernel], dict[Phase, float]] = {}
    for op in trace.value.ops:
        for kernel in kernels_of(op, tensor_cores=op.precision in tensor_types):
            phases = counts.setdefault((op.kind, kernel), {})
            phases[op.phase] = phases.get(op.phase, 0.0) + op.count
    return tuple((kind, kernel, tuple(phases.items())) for (kind, kernel), phases in counts.items())


def _is_bound_by_arithmetic(kernel: Product, machine: Machine, arithmetic: str) -> bool:
    """By the roofline: whether its arithmetic takes longer than its bytes."""
    needed_s = kernel.flops / machine.rates[arithmetic]
    return needed_s > kernel.repeats * kernel.moved_bytes / machine.bytes_per_s


def _doubts(
    families: Mapping[str, float], total_s: float, calibration: Calibration
) -> dict[str, float]:
    """Errors of one kind of kernel go together, those of different kinds do not."""
    if total_s <= 0:
        return {}
    unknown = calibration.number("doubt_unknown")
    return {
        family: time_s / total_s * calibration.doubts.get(family, unknown)
        for family, time_s in families.items()
    }
