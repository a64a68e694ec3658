"""A step's time in its phases: forward, backward and update, on the device and on the host."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from outlay.predict.calibration import Calibration
from outlay.predict.compute import device_time
from outlay.predict.host import Host, host_time_s
from outlay.predict.machine import Machine
from outlay.predict.remember import Same
from outlay.trace.trace import Op, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Seconds of one micro-batch's forward and backward, and of the update, with their issuing."""

    forward_s: float
    backward_s: float
    update_s: float
    host_pass_s: float
    """To issue one forward and backward."""
    host_update_s: float

    def scaled(self, device: float, host: float) -> Phases:
        """The phases with the device's and the host's times multiplied."""
        return Phases(
            forward_s=self.forward_s * device,
            backward_s=self.backward_s * device,
            update_s=self.update_s * device,
            host_pass_s=self.host_pass_s * host,
            host_update_s=self.host_update_s * host,
        )


def phases_of(trace: Trace, machine: Machine, calibration: Calibration, host: Host) -> Phases:
    """The phases of a step; what is computed again belongs to backward."""
    by_phase = device_time(trace, machine, calibration).by_phase_s
    update = _updating(Same(trace))
    host_s = host_time_s(trace, calibration, host)
    host_update_s = host_time_s(update, calibration, host)
    return Phases(
        forward_s=by_phase.get("forward", 0.0),
        backward_s=by_phase.get("backward", 0.0) + by_phase.get("recompute", 0.0),
        update_s=by_phase.get("optimizer", 0.0),
        host_pass_s=max(host_s - host_update_s, 0.0),
        host_update_s=host_update_s,
    )


@lru_cache(maxsize=256)
def _updating(trace: Same[Trace]) -> Trace:
    whole = trace.value
    return replace(whole, ops=tuple(op for op in whole.ops if op.phase == "optimizer"))


# Cut over GPUs


def cut(trace: Trace, ways: int, width: int) -> Trace:
    """One GPU's part of a step whose matrices are cut over `ways` GPUs (Shoeybi et al. 2019).

    Products and attention are shared evenly; so is whatever passes over tensors other than the
    block's own, whose last dimension is `width`. Norms and sums of that width every GPU does.
    """
    return trace if ways == 1 else _cut(Same(trace), ways, width)


@lru_cache(maxsize=256)
def _cut(trace: Same[Trace], ways: int, width: int) -> Trace:
    return replace(trace.value, ops=tuple(_op_cut(op, ways, width) for op in trace.value.ops))


def _op_cut(op: Op, ways: int, width: int) -> Op:
    if op.kind == "gemm" and op.shapes:
        return replace(
            op,
            flops=op.flops / ways,
            moved_bytes=op.moved_bytes / ways,
            shapes=_product_cut(op, ways, width),
        )
    if op.kind == "attention" and op.shapes:
        return replace(
            op,
            flops=op.flops / ways,
            moved_bytes=op.moved_bytes / ways,
            shapes=tuple(_heads_cut(shape, ways) for shape in op.shapes),
        )
    if op.phase != "optimizer" and op.shapes and op.shapes[-1] and op.shapes[-1][-1] == width:
        return op
    return replace(
        op,
        flops=op.flops / ways,
        moved_bytes=op.moved_bytes / ways,
        shapes=tuple(_largest_cut(shape, ways) for shape in op.shapes),
    )


def _product_cut(op: Op, ways: int, width: int) -> tuple[tuple[int, ...], ...]:
    """The shapes of a product cut in a side of its result, or unchanged where the sum is cut.

    Batches (heads) are shared out. Layers that widen are cut in their columns; what comes back
    to `width` sums over the cut side, and the gradient of a weight is cut like the weight.
    """
    *others, out = op.shapes
    if len(out) > 2:
        out = (max(out[0] // ways, 1), *out[1:])
    elif len(out) == 2 and out[1] != width:
        out = (out[0], max(out[1] // ways, 1))
    elif len(out) == 2 and op.layout in ("tn", "tt"):
        out = (max(out[0] // ways, 1), out[1])
    return (*others, out)


def _heads_cut(shape: tuple[int, ...], ways: int) -> tuple[int, ...]:
    """Attention's tensors are batch, heads, positions, size of a head."""
    if len(shape) < 3:
        return shape
    return (shape[0], max(shape[1] // ways, 1), *shape[2:])


def _largest_cut(shape: tuple[int, ...], ways: int) -> tuple[int, ...]:
    if not shape:
        return shape
    place = max(range(len(shape)), key=lambda i: shape[i])
    return tuple(max(n // ways, 1) if i == place else n for i, n in enumerate(shape))
