"""One training step at one batch size, explained: `StepReport` and its parts. Plain data.

What a step computes and moves by phase, its heaviest operations, and its memory operation by
operation, each with the line of the user's own code it comes from. `report_of` makes a report of
what was captured; `report_to_json` and `report_from_json` take it from process to process.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

from outlay.errors import InputError
from outlay.trace.profile import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outlay.trace.capture import Capture
    from outlay.trace.profile import Kind, Op, Phase, Precision


PHASES: tuple[Phase, ...] = ("forward", "backward", "recompute", "optimizer")
CATEGORIES = tuple(category.name for category in fields(Memory))
"""The categories of memory, in the order of `Memory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSite:
    """A line of the user's own code, or of a library's model (see `report_of`).

    The file is relative to the folder of the step's file, else to where it is imported from.
    """

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

    `site` is the innermost line of the user's own code, or of a library's model that one line
    calls; for a backward operation, the line of the forward operation it belongs to. None where
    there is none.
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
    traced_on: str = ""
    """Date of the trace, YYYY-MM-DD."""
    from_cache: bool = field(default=False, compare=False)
    """Whether the trace was made earlier, and kept (`outlay.trace.trace_cache`)."""

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


# From a capture


def report_of(
    capture: Capture, *, name: str, target: str, versions: Mapping[str, str] | None = None
) -> StepReport:
    """The report of a capture that was made with call sites; `target` is where its step is.

    Where one line calls a library's model and holds nearly all of the step, the lines of the
    library stand for it.
    """
    if not capture.ops:
        raise InputError(
            f"{name} returned a step that runs nothing on the GPU.",
            why="Its tensors were made on the CPU, or it calls no operation.",
            fix="Make model and data on torch's default device, and train in the step.",
        )
    sites, site_notes = _sites(capture)
    return StepReport(
        name=name,
        target=target,
        batch_size=capture.batch_size,
        period=capture.period,
        parameters=capture.parameters,
        trainable_parameters=capture.trainable_parameters,
        phases=_phase_totals(capture),
        ops=_heavy_ops(capture, sites),
        timeline=_timeline(capture, sites),
        versions=versions or {},
        unknown_ops={op: count / capture.period for op, count in capture.unknown_ops.items()},
        notes=(*capture.notes, *site_notes),
    )


_ONE_LINE = 0.8
"""The share of a step's work from which on a single line says nothing about it."""
_LEAST_LINES = 3


def _sites(capture: Capture) -> tuple[Sequence[CallSite | None], list[str]]:
    """The line of each operation, and a note where they are a library's."""
    has_flops = any(op.flops for op in capture.ops)
    work: dict[CallSite | None, float] = {}
    for op, site in zip(capture.ops, capture.sites, strict=True):
        work[site] = work.get(site, 0.0) + (op.flops if has_flops else op.moved_bytes)
    line = max(work, key=lambda site: work[site])
    pairs = list(zip(capture.sites, capture.library_sites, strict=False))
    within = {library for site, library in pairs if site == line and library is not None}
    if line is None or work[line] < _ONE_LINE * sum(work.values()) or len(within) < _LEAST_LINES:
        return capture.sites, []
    code = f" ({line.code})" if line.code else ""
    note = f"Lines of the library that {line}{code} calls stand for that one line."
    return [library or site if site == line else site for site, library in pairs], [note]


def _phase_totals(capture: Capture) -> tuple[PhaseTotal, ...]:
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


def _heavy_ops(capture: Capture, sites: Sequence[CallSite | None]) -> tuple[HeavyOp, ...]:
    """Identical operations of one line together; views are left out."""
    groups: dict[tuple[Op, CallSite | None], int] = {}
    for op, site in zip(capture.ops, sites, strict=True):
        if op.launches:
            groups[op, site] = groups.get((op, site), 0) + 1
    ops = [
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
    return tuple(sorted(ops, key=lambda op: (-op.flops, -op.moved_bytes)))


def _timeline(capture: Capture, sites: Sequence[CallSite | None]) -> MemoryTimeline:
    memories = capture.memory.by_operation()
    points = [
        MemoryPoint(operation=number, name=op.name, phase=op.phase, memory=memory, site=site)
        for number, (op, memory, site) in enumerate(
            zip(capture.ops, memories, sites, strict=True), start=1
        )
    ]
    return MemoryTimeline(points=tuple(points), operations=len(points))


# As JSON. Lines of code and points of the timeline are many: a line is written once and named by
# its place in a list, a point is a short list.

_HEAD = (
    "name",
    "target",
    "batch_size",
    "period",
    "parameters",
    "trainable_parameters",
    "traced_on",
)


def report_to_json(report: StepReport) -> dict[str, Any]:
    """The report as plain lists and dictionaries."""
    sites: dict[CallSite | None, int] = {}

    def place(site: CallSite | None) -> int:
        return sites.setdefault(site, len(sites))

    ops = [{**asdict(op), "site": place(op.site)} for op in report.ops]
    points = [
        [point.name, point.phase, place(point.site), *_amounts(point.memory)]
        for point in report.timeline.points
    ]
    return {
        **{name: getattr(report, name) for name in _HEAD},
        "phases": [asdict(total) for total in report.phases],
        "ops": ops,
        "points": points,
        "sites": [None if site is None else asdict(site) for site in sites],
        "versions": dict(report.versions),
        "unknown_ops": dict(report.unknown_ops),
        "notes": list(report.notes),
    }


def _amounts(memory: Memory) -> list[float]:
    return [getattr(memory, category) for category in CATEGORIES]


def report_from_json(document: dict[str, Any]) -> StepReport:
    """The report that `report_to_json` wrote."""
    sites = [None if site is None else CallSite(**site) for site in document["sites"]]
    points = [
        MemoryPoint(
            operation=number,
            name=name,
            phase=phase,
            memory=Memory(**dict(zip(CATEGORIES, amounts, strict=True))),
            site=sites[place],
        )
        for number, (name, phase, place, *amounts) in enumerate(document["points"], start=1)
    ]
    return StepReport(
        **{name: document[name] for name in _HEAD},
        phases=tuple(PhaseTotal(**total) for total in document["phases"]),
        ops=tuple(_heavy_op(op, sites) for op in document["ops"]),
        timeline=MemoryTimeline(points=tuple(points), operations=len(points)),
        versions=document["versions"],
        unknown_ops=document["unknown_ops"],
        notes=tuple(document["notes"]),
    )


def _heavy_op(document: dict[str, Any], sites: list[CallSite | None]) -> HeavyOp:
    shapes = tuple(tuple(shape) for shape in document["shapes"])
    return HeavyOp(**{**document, "shapes": shapes, "site": sites[document["site"]]})
