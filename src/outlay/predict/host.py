"""Time on the host: Python and torch issue operators one after another, whatever the GPU.

An operator of the forward pass costs its way through Python, autocast, autograd and the
dispatcher, and the node that its backward needs; one of the backward pass costs little more, as
no Python runs in between. Convolutions and normalisations cost more: their libraries choose an
algorithm each time. All of it depends on the CPU: `speed` is that of the host at hand over that of
the one the costs were measured on.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlay.predict.calibration import Calibration
from outlay.trace.trace import Op, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The CPU that issues the step: how fast it is, and whether somebody measured that."""

    speed: float = 1.0
    measured: bool = False


REFERENCE_HOST = Host()


def host_time_s(trace: Trace, calibration: Calibration, host: Host = REFERENCE_HOST) -> float:
    """Time the host needs to issue one step."""
    issued_s = sum(op.count * calibration.number(f"host_{_sort(op)}_s") for op in trace.ops)
    return issued_s / host.speed


def _sort(op: Op) -> str:
    if op.launches == 0:
        return "view"
    if op.phase == "optimizer":
        return "update"
    if op.kind == "conv":
        return "conv_backward" if op.phase == "backward" else "conv"
    if op.kind == "norm":
        return "norm"
    return "backward" if op.phase == "backward" else "forward"
