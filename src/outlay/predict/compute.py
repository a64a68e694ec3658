"""Time on the device: for each operation the slowest of arithmetic, memory traffic and launch.

Roofline model (Williams, Waterman, Patterson 2009, doi 10.1145/1498765.1498785) with one fitted
efficiency per kind of operation. It ignores caches, tile and wave effects, and overlap between
operations: the range of a prediction is wide because of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.trace.trace import Op, Precision, Trace

_MATRIX_KINDS = frozenset({"gemm", "conv", "attention", "rnn"})
"""Kinds whose arithmetic runs on tensor cores where there are any."""


def arithmetic(precision: Precision, gpu: Gpu) -> str:
    """The arithmetic a GPU really uses for what the code asks for.

    TF32 becomes fp32 where there is no TF32; bf16 is emulated in fp32 where there is no bf16.
    """
    if precision == "int":
        return "fp32"
    return precision if precision in gpu.peak_flops_per_s else "fp32"


def op_time_s(op: Op, gpu: Gpu, calibration: Calibration) -> float:
    """Time of one operation alone on one GPU."""
    launch_s = op.launches * calibration.number("kernel_s")
    memory_share = calibration.fraction(f"{op.kind}_memory_fraction", "other_memory_fraction")
    memory_s = op.moved_bytes / (gpu.memory_bytes_per_s * memory_share)
    return max(_arithmetic_s(op, gpu, calibration), memory_s, launch_s)


def _arithmetic_s(op: Op, gpu: Gpu, calibration: Calibration) -> float:
    if op.kind not in _MATRIX_KINDS:
        return op.flops / gpu.peak("fp32")
    used = arithmetic(op.precision, gpu)
    share = calibration.fraction(f"{op.kind}_{used}_fraction", f"{op.kind}_fraction")
    return op.flops / (gpu.peak(used) * share)


def device_time_s(trace: Trace, gpu: Gpu, calibration: Calibration) -> float:
    """Time the device is busy in one step."""
    return sum(op.count * op_time_s(op, gpu, calibration) for op in trace.ops)


def device_time_by_kind_s(trace: Trace, gpu: Gpu, calibration: Calibration) -> Mapping[str, float]:
    """The same, by kind of operation, largest first."""
    times: dict[str, float] = {}
    for op in trace.ops:
        times[op.kind] = times.get(op.kind, 0.0) + op.count * op_time_s(op, gpu, calibration)
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def host_time_s(trace: Trace, calibration: Calibration) -> float:
    """Time the host needs to issue one step, operation after operation; it depends on the CPU."""
    return trace.issued_ops * calibration.number("host_op_s")
