"""When gradients are finished in backward: what an exchange over GPUs can hide behind."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from outlay.trace.trace import Op

POINTS = 16
"""The gradients' bytes are cut into so many equal parts."""

# Assumes: for shares of backward, rates of one large GPU do: what counts is which layers are slow.
_TENSOR_FLOPS_PER_S = 4e14
_PLAIN_FLOPS_PER_S = 4e13
_BYTES_PER_S = 4e12
_LAUNCH_S = 2e-6


def readiness(ops: Sequence[Op], finished: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """The share of backward that has passed when 1/16, 2/16 ... of all gradients are finished.

    `finished` has, for each gradient in order, how many operations ran before it was, and its
    bytes. Without any, or without a backward pass, gradients count as finished at the end.
    """
    times_s = list(accumulate((_time_s(op) for op in ops), initial=0.0))
    total_s, total_bytes = times_s[-1], sum(size for _, size in finished)
    if total_s <= 0 or total_bytes <= 0:
        return (1.0,) * POINTS
    shares, sums = [], 0
    wanted = [total_bytes * (i + 1) / POINTS for i in range(POINTS)]
    for place, size in finished:
        sums += size
        while wanted and sums >= wanted[0]:
            wanted.pop(0)
            shares.append(round(times_s[min(place, len(ops))] / total_s, 4))
    return tuple(shares)


def _time_s(op: Op) -> float:
    """A rough time of an operation of backward; none for others."""
    if op.phase not in ("backward", "recompute"):
        return 0.0
    rate = _PLAIN_FLOPS_PER_S if op.precision in ("fp32", "fp64") else _TENSOR_FLOPS_PER_S
    return max(op.flops / rate, op.moved_bytes / _BYTES_PER_S) + _LAUNCH_S * (op.launches > 0)
