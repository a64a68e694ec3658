"""A capture of one batch size, summed up as a `StepReport`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outlay.errors import InputError
from outlay.trace.step_report import (
    PHASES,
    CallSite,
    HeavyOp,
    MemoryPoint,
    MemoryTimeline,
    PhaseTotal,
    StepReport,
)

if TYPE_CHECKING:
    from outlay.trace.capture import Capture
    from outlay.trace.trace import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a step comes from."""

    name: str
    target: str
    versions: Mapping[str, str] = field(default_factory=dict)


def step_report(capture: Capture, origin: Origin) -> StepReport:
    """The report of a capture that was made with call sites."""
    if not capture.ops:
        raise InputError(
            f"{origin.name} returned a step that runs nothing on the GPU.",
            why="Its tensors were made on the CPU, or it calls no operation.",
            fix="Make model and data on torch's default device, and train in the step.",
        )
    return StepReport(
        name=origin.name,
        target=origin.target,
        batch_size=capture.batch_size,
        period=capture.period,
        parameters=capture.parameters,
        trainable_parameters=capture.trainable_parameters,
        phases=_phases(capture),
        ops=_ops(capture),
        timeline=_timeline(capture),
        versions=origin.versions,
        unknown_ops={name: n / capture.period for name, n in capture.unknown_ops.items()},
        notes=capture.notes,
    )


def _phases(capture: Capture) -> tuple[PhaseTotal, ...]:
    totals = []
    for phase in PHASES:
        ops = [op for op in capture.ops if op.phase == phase]
        if phase == "recompute" and not ops:
            continue
        totals.append(
            PhaseTotal(
                phase=phase,
                operations=len(ops) / capture.period,
                launches=sum(op.launches for op in ops) / capture.period,
                flops=sum(op.flops for op in ops) / capture.period,
                moved_bytes=sum(op.moved_bytes for op in ops) / capture.period,
            )
        )
    return tuple(totals)


def _ops(capture: Capture) -> tuple[HeavyOp, ...]:
    """Identical operations of one line together; views are left out."""
    groups: dict[tuple[Op, CallSite | None], int] = {}
    for op, site in zip(capture.ops, capture.sites, strict=True):
        if op.launches:
            groups[op, site] = groups.get((op, site), 0) + 1
    made = [
        HeavyOp(
            name=op.name,
            kind=op.kind,
            phase=op.phase,
            precision=op.precision,
            count=times / capture.period,
            flops=op.flops * times / capture.period,
            moved_bytes=op.moved_bytes * times / capture.period,
            shapes=op.shapes,
            site=site,
        )
        for (op, site), times in groups.items()
    ]
    return tuple(sorted(made, key=lambda op: (-op.flops, -op.moved_bytes)))


def _timeline(capture: Capture) -> MemoryTimeline:
    memories = capture.ledger.memory_at_marks()
    points = [
        MemoryPoint(operation=number, name=op.name, phase=op.phase, memory=memory, site=site)
        for number, (op, memory, site) in enumerate(
            zip(capture.ops, memories, capture.sites, strict=True), start=1
        )
    ]
    return MemoryTimeline(points=tuple(points), operations=len(points))
