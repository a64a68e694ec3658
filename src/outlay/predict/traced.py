"""A step at a batch size and a GPU as the model of time sees it, each worked out once."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.machine import Machine, machine_of
from outlay.predict.remember import Same
from outlay.trace.trace import Op, Precision, Profile, Trace


def trace_at(profile: Profile, batch_size: int, precision: Precision | None = None) -> Trace:
    """The step at a batch size; asked again for another GPU, the same."""
    return _trace_at(Same(profile), batch_size, precision)


@lru_cache(maxsize=256)
def _trace_at(profile: Same[Profile], batch_size: int, precision: Precision | None) -> Trace:
    return with_precision(profile.value.at(batch_size), precision)


def machine_at(gpu: Gpu, calibration: Calibration) -> Machine:
    """A GPU as the model of time sees it; asked again, the same."""
    return _machine_of(Same(gpu), Same(calibration))


@lru_cache(maxsize=512)
def _machine_of(gpu: Same[Gpu], calibration: Same[Calibration]) -> Machine:
    return machine_of(gpu.value, calibration.value)


def with_precision(trace: Trace, precision: Precision | None) -> Trace:
    """The step with its matrix arithmetic in another precision; traffic stays as traced."""
    if precision is None:
        return trace
    return replace(trace, ops=tuple(_op_in(op, precision) for op in trace.ops))


def _op_in(op: Op, precision: Precision) -> Op:
    matrix = op.kind in ("gemm", "conv", "attention", "rnn")
    return replace(op, precision=precision) if matrix else op
