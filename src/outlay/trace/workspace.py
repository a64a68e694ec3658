"""What operators take for themselves while they run, and under which condition a GPU takes it.

Much of it depends on the GPU: tensor cores want another layout, attention has several kernels,
partial sums are as many as there are multiprocessors. A trace serves every GPU, so it notes each
taking with the condition under which it is real; `Traits` say which conditions a GPU meets. How
much each operator takes is in `takings` and `conv_takings`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outlay.units import MIB

if TYPE_CHECKING:
    from outlay.trace.trace import Precision

ALWAYS = ""
CUBLAS = "cublas"
"""Kept by a thread's handle from its first matrix product on; how much is the GPU's."""
_FROM = " from "
SUMS = "sums"
"""Partial results of a reduction: no more than the GPU's multiprocessors can work on."""


def on_tensor_cores(precision: Precision) -> str:
    """The condition that a GPU has tensor cores for an arithmetic."""
    return f"tensor {precision}"


def without_tensor_cores(precision: Precision) -> str:
    """The condition that a GPU has none for it, and computes in fp32."""
    return f"plain {precision}"


def with_attention(backend: str, precision: Precision) -> str:
    """The condition that a GPU runs attention of an arithmetic with a backend."""
    return f"{backend} {precision}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Bytes an operator takes while it runs, if the condition is met.

    `optional`: where there is no room, the library takes another algorithm that needs less.
    `from_rows`: taken if its tensors have so many in their first dimension, mostly the batch.
    """

    size_bytes: float
    condition: str = ALWAYS
    optional: bool = False
    from_rows: int = 1
    turn: int = 0
    """Those of one turn are there together, one turn after another; 0 is there all the while."""

    def condition_for(self, rows: int, batch_size: int) -> str:
        """The condition with the least batch size in it, from a trace at one batch size."""
        least = math.ceil(self.from_rows * batch_size / max(rows, 1))
        return self.condition if least <= 1 else f"{self.condition}{_FROM}{least}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What of a GPU decides which workspaces are taken, and how large they are."""

    tensor_precisions: frozenset[str]
    attention: frozenset[str]
    """`backend precision`, as `with_attention` writes it."""
    cublas_bytes: int
    sums_bytes: int
    """The most that one reduction's partial sums take."""

    def taken_bytes(self, condition: str, size_bytes: float, batch_size: int) -> float:
        """What a workspace of this size takes on the GPU; 0 where its condition is not met."""
        condition, _, least = condition.partition(_FROM)
        if least and batch_size < int(least):
            return 0.0
        if condition == ALWAYS:
            return size_bytes
        if condition == CUBLAS:
            return self.cublas_bytes
        if condition == SUMS:
            return min(size_bytes, self.sums_bytes)
        kind, _, precision = condition.partition(" ")
        if kind in ("tensor", "plain"):
            met = (precision in self.tensor_precisions) == (kind == "tensor")
        else:
            met = condition in self.attention
        return size_bytes if met else 0.0


REFERENCE = Traits(
    tensor_precisions=frozenset({"tf32", "fp16", "bf16"}),
    attention=frozenset({"cudnn fp16", "cudnn bf16"}),
    cublas_bytes=32 * MIB,
    sums_bytes=132 * MIB,
)
"""An H200, on which the sizes were found."""

Takings = Iterator[Workspace]


def partial_sums(rows: int, results: int, turn: int = 0) -> Takings:
    """Partial sums of so many rows into so many results that lie side by side.

    Source: aten/src/ATen/native/cuda/Reduce.cuh: blocks of 128 threads with four results each,
    16 values a thread at least, a float for each thread and block.
    """
    if results % 4 == 0:
        width = min(32, 1 << (results // 4).bit_length() - 1)
        size_bytes = rows * results * width**2 / 128
        yield Workspace(size_bytes=size_bytes, condition=SUMS, turn=turn)
