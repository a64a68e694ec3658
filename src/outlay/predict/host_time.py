"""Time on the host: Python and torch issue operators one after another, whatever the GPU.

An operator of the forward pass costs its way through Python, autocast, autograd and the
dispatcher, and the node that its backward needs; one of the backward pass costs little more, as
no Python runs in between. Convolutions and normalisations cost more: their libraries choose an
algorithm each time. Compiled code issues kernels, by a function that was generated for them,
after it has checked its guards; CUDA graphs issue theirs. All of it depends on the CPU: `speed` is
that of the host at hand over that of the one the costs were measured on.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from outlay.caching import ById
from outlay.predict.calibration import Calibration
from outlay.predict.kernels import recurrent_turns
from outlay.trace.profile import CompiledOp, Op, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The CPU that issues the step: how fast it is, and whether somebody measured that."""

    speed: float = 1.0
    measured: bool = False


REFERENCE_HOST = Host()


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTest:
    """What a test of a host found: a tiny step's time, and the speed against the reference."""

    step_s: float
    spread: float
    """Half the distance between the 10th and the 90th percentile, over the median."""
    speed: float
    samples: int


def host_test_of(step_times_s: Sequence[float], calibration: Calibration) -> HostTest:
    """What the times of a tiny step say of the host they were taken on."""
    times_s = sorted(step_times_s)
    median_s = statistics.median(times_s)
    low_s, high_s = times_s[len(times_s) // 10], times_s[len(times_s) * 9 // 10]
    return HostTest(
        step_s=median_s,
        spread=(high_s - low_s) / 2 / median_s,
        speed=calibration.number("host_test_step_s") / median_s,
        samples=len(times_s),
    )


def host_time_s(trace: Trace, calibration: Calibration, host: Host = REFERENCE_HOST) -> float:
    """Time the host needs to issue one step."""
    return _reference_host_s(ById(trace), ById(calibration)) / host.speed


def elapsed_s(device_s: float, host_s: float) -> float:
    """What a step, or several passes and their update, takes: the longer of device and host.

    The host runs ahead of the device, across phases and from one step into the next, so that what
    it issues slowly in one phase is made up for in another: only the sums count.

    # Assumes: nothing in the step reads a value back from the GPU, where the host waits for it.
    """
    return max(device_s, host_s)


@lru_cache(maxsize=1024)
def _reference_host_s(trace: ById[Trace], calibration: ById[Calibration]) -> float:
    number = calibration.value.number
    trace_ops = trace.value.ops
    eager = [op for op in trace_ops if not isinstance(op, CompiledOp)]
    issuing_s = sum(op.count * _calls(op) * number(f"host_{_call_kind(op)}_s") for op in eager)
    if not trace.value.compiled_calls:
        return issuing_s
    started = [op for op in trace_ops if isinstance(op, CompiledOp) and not op.in_graph]
    kernels = sum(op.count * _calls(op) * op.launches for op in started)
    calls_s = trace.value.compiled_calls * number("host_compiled_call_s")
    return issuing_s + kernels * number("host_compiled_kernel_s") + calls_s


def _calls(op: Op) -> float:
    """Recurrent layers issue a product for each position and layer; other operators are one."""
    if op.kind != "rnn" or op.flops <= 0 or len(op.shapes) < 2:
        return 1.0
    return float(recurrent_turns(op))


def _call_kind(op: Op) -> str:
    """What kind of call an operator is to the host, as calibration rows name them."""
    if op.launches == 0:
        return "view"
    if op.phase == "optimizer":
        return "update"
    if op.kind == "conv":
        return "conv_backward" if op.phase == "backward" else "conv"
    if op.kind in ("norm", "rnn"):
        return op.kind
    return "backward" if op.phase == "backward" else "forward"
