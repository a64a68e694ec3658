"""Time on the device: for each operation the slowest of arithmetic, memory traffic and launch.

Roofline model (Williams, Waterman, Patterson 2009, doi 10.1145/1498765.1498785) with one fitted
efficiency per kind of operation. The efficiency is that on the reference GPU (an H200); a GPU with
a lower peak reaches a larger share of it, by a fitted power of the ratio of the peaks. Caches,
tile and wave effects, and overlap between operations are ignored: the range is wide because of it.
"""

from __future__ import annotations

import math
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
    return max(_arithmetic_s(op, gpu, calibration), _traffic_s(op, gpu, calibration), launch_s)


def _traffic_s(op: Op, gpu: Gpu, calibration: Calibration) -> float:
    """Time to read and write its tensors at the share of bandwidth such operations reach."""
    share = calibration.first(
        f"{_family(op.name)}_{op.precision}_memory_fraction",
        f"{op.kind}_memory_fraction",
        "other_memory_fraction",
    )
    reference = calibration.number("reference_bytes_per_s")
    exponent = calibration.first(f"{_family(op.name)}_bandwidth_exponent", "bandwidth_exponent")
    reached = share * math.pow(reference / gpu.memory_bytes_per_s, exponent)
    most = calibration.number("highest_memory_fraction")
    return op.moved_bytes / (gpu.memory_bytes_per_s * min(reached, most))


def _family(name: str) -> str:
    """`batch_norm` for `aten.native_batch_norm_backward`: forward and backward share a row."""
    plain = name.rpartition(".")[2].removesuffix("_backward")
    return plain.removeprefix("native_").removeprefix("cudnn_")


def _arithmetic_s(op: Op, gpu: Gpu, calibration: Calibration) -> float:
    if op.kind not in _MATRIX_KINDS:
        return op.flops / gpu.peak("fp32")
    used = arithmetic(op.precision, gpu)
    share = calibration.first(
        f"{op.kind}_{used}_{op.layout}_fraction",
        f"{op.kind}_{used}_fraction",
        f"{op.kind}_fraction",
    )
    reference = calibration.number(f"reference_{used}_flops_per_s")
    exponent = calibration.first(f"{op.kind}_peak_exponent", "peak_exponent")
    reached = share * math.pow(reference / gpu.peak(used), exponent)
    return op.flops / (gpu.peak(used) * min(reached, calibration.number("highest_fraction")))


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
