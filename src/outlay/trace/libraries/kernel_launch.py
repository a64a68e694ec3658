"""Kernels launched by hand: `launch` records what one reads and writes.

A stand-in for a library's function allocates its results as the library does, and then says which
kernel runs on them. What it holds in memory, and for how long, is then the library's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from outlay.trace import traffic
from outlay.trace.formulas import Formula
from outlay.trace.libraries.fused import FusedOp, fused_op
from outlay.trace.profile import Kind

_kernels: dict[str, FusedOp] = {}


def launch(
    name: str,
    reads: Iterable[Tensor | None],
    writes: Iterable[Tensor | None],
    *,
    kind: Kind = "elementwise",
    flops: float = 0.0,
    moved_bytes: float | None = None,
    launches: float = 1,
    efficiency: float | None = None,
    is_known: bool = True,
) -> None:
    """Record that a kernel `library.kernel` ran on tensors that exist.

    Without `moved_bytes` each tensor that is read is read once, and each written one written once.
    """
    read, written = _tensors(reads), _tensors(writes)
    if moved_bytes is None:
        moved_bytes = traffic.tensor_bytes(read) + traffic.tensor_bytes(written)
    amount = moved_bytes
    cost = Formula(
        kind=kind,
        flops=flops,
        moved_bytes=lambda *_, **__: amount,
        launches=launches,
        efficiency=efficiency,
    )
    if name not in _kernels:
        _kernels[name] = fused_op(name, _nothing, kind=kind, is_known=is_known)
    with torch.no_grad():
        _kernels[name].run_with(cost, read, written)


def _tensors(values: Iterable[Tensor | None]) -> list[Tensor]:
    return [value for value in values if value is not None]


def _nothing(*_: object) -> list[Tensor]:
    """What a kernel computes is of no interest here, only what it touches."""
    return []


# What a stand-in may ask of the trace that runs


def constant_values(tensor: Tensor | None) -> list[float] | None:
    """The values of a tensor, where they do not depend on the data."""
    selection = _selection()
    values = None if selection is None or tensor is None else selection.values.of(tensor)
    if values is None:
        return None
    with torch._C._DisableTorchDispatch():
        return [float(value) for value in values.flatten().tolist()]


def note(function: str, what: str) -> None:
    """Say in the notes of the trace, with the line that runs, what was assumed."""
    selection = _selection()
    if selection is not None:
        selection.note(function, what)


def _selection() -> Any:
    modes = reversed(_get_current_dispatch_mode_stack())
    return next((mode.selection for mode in modes if hasattr(mode, "selection")), None)
