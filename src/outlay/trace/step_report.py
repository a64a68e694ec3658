"""One training step at one batch size, explained: `StepReport` and its parts. Plain data.

What a step computes and moves by phase, its heaviest operations, and its memory operation by
operation, each with the line of the user's own code it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from outlay.trace.trace import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outlay.trace.trace import Kind, Phase, Precision

PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute", "optimizer")
CATEGORIES = tuple(one.name for one in fields(Memory))
"""The categories of memory, in the order of `Memory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """A line of the user's own code; the file is relative to the folder of the step's file."""

    file: str
    line: int
    function: str
    code: str = ""
    """The text of the line, where it could be read."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTotal:
    """What one phase takes in a step: operations the host issues, and the kernels they start."""

    phase: Phase
    operations: float
    launches: float
    flops: float
    moved_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HeavyOp:
    """Identical operations from one line of code; amounts are of all of them in a step.

    `site` is the innermost line of the user's own code; for a backward operation, the line of
    the forward operation it belongs to. None where there is none.
    """

    name: str
    kind: Kind
    phase: Phase
    precision: Precision
    count: float
    flops: float
    moved_bytes: float
    shapes: tuple[tuple[int, ...], ...] = ()
    site: CallSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPoint:
    """What is allocated while one operation runs; operations are counted from 1."""

    operation: int
    name: str
    phase: Phase
    memory: Memory
    site: CallSite | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTimeline:
    """Memory over a step, one point per operation (or fewer, see `report.memory_plot`)."""

    points: tuple[MemoryPoint, ...]
    operations: int
    """Operations of the step, views included."""

    @property
    def peak(self) -> MemoryPoint:
        """The first point at which most is allocated."""
        return max(self.points, key=lambda point: point.memory.peak_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one training step does at one batch size.

    Amounts are of one step; where `period` steps were traced, of their mean. `peak` is one of
    the points of `timeline`, which runs over all traced steps.
    """

    name: str
    target: str
    batch_size: int
    period: int
    parameters: int
    trainable_parameters: int
    phases: tuple[PhaseTotal, ...]
    ops: tuple[HeavyOp, ...]
    """All operations that start a kernel, those with the most FLOPs first."""
    timeline: MemoryTimeline
    versions: Mapping[str, str] = field(default_factory=dict)
    unknown_ops: Mapping[str, float] = field(default_factory=dict)
    """Operators without a formula, and how often each runs in a step."""
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        """FLOPs of one step; a multiply-add counts as two."""
        return sum(total.flops for total in self.phases)

    @property
    def moved_bytes(self) -> float:
        """Bytes read and written by one step if every operation goes to memory."""
        return sum(total.moved_bytes for total in self.phases)

    def moved_by(self, operator: str) -> float:
        """Bytes that all runs of an operator move in a step."""
        return sum(op.moved_bytes for op in self.ops if op.name == operator)

    @property
    def unknown_moved_fraction(self) -> float:
        """The share of moved bytes that operators without a formula move, each tensor once."""
        unknown = sum(self.moved_by(name) for name in self.unknown_ops)
        return unknown / self.moved_bytes if self.moved_bytes else 0.0

    @property
    def peak(self) -> MemoryPoint:
        """The moment at which most memory is allocated, before workspaces of libraries."""
        return self.timeline.peak

    def heaviest_by_flops(self, most: int = 12) -> tuple[HeavyOp, ...]:
        """The operations with the most FLOPs; those without any are left out."""
        ranked = sorted(self.ops, key=lambda op: -op.flops)
        return tuple(op for op in ranked[:most] if op.flops)

    def heaviest_by_bytes(self, most: int = 12) -> tuple[HeavyOp, ...]:
        """The operations that move the most bytes."""
        ranked = sorted(self.ops, key=lambda op: -op.moved_bytes)
        return tuple(op for op in ranked[:most] if op.moved_bytes)
