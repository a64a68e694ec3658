"""The report of one training step, printed for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from rich.text import Text

from outlay.fit.gpu_memory import REFERENCE_GPU, reference_gpu
from outlay.report.console import Page, Table, muted, table
from outlay.report.text import count, counted, flops, or_more, share, size
from outlay.trace.profile import Memory

if TYPE_CHECKING:
    from outlay.fit.gpu_memory import GpuMemory
    from outlay.trace.step_report import HeavyOp, MemoryPoint, StepReport


_SHAPES_SHOWN = 2
_CODE_SHOWN = 60


def print_step(out: Page, report: StepReport) -> None:
    """The whole report: totals, memory at the peak, heaviest operations, what to know."""
    out.print(Text(title(report), style="bold"))
    out.print(_parameters(report))
    out.print()
    out.print(_phases_table(report, out.width))
    out.print()
    out.print(Text(_peak_head(report), style="bold"))
    for line in _peak_place(report.peak):
        out.print(line)
    out.print(_memory_table(report.peak.memory, out.width))
    out.print(muted(f"Workspace and context are an {REFERENCE_GPU}'s; --gpu tells of others."))
    if report.flops:
        by_flops = [
            (op, flops(op.flops), share(op.flops, report.flops))
            for op in report.heaviest_by_flops()
        ]
        _print_heaviest(out, "FLOPs", by_flops)
    by_bytes = [
        (op, size(op.moved_bytes), share(op.moved_bytes, report.moved_bytes))
        for op in report.heaviest_by_bytes()
    ]
    _print_heaviest(out, "bytes moved", by_bytes)
    _print_notes(out, report)


def print_gpus(out: Page, on_gpus: Sequence[GpuMemory]) -> None:
    """What the step needs on each GPU, and the largest batch there."""
    rows = [
        (
            on_gpu.gpu.name,
            count(on_gpu.batch_size),
            size(on_gpu.memory.allocated_bytes.likely),
            size(on_gpu.memory.reserved_bytes.likely),
            size(on_gpu.memory.context_bytes),
            size(on_gpu.memory.available_bytes),
            "yes" if on_gpu.fits else "no",
            f"{count(on_gpu.max_batch_size)}{or_more(on_gpu.max_batch_size)}",
        )
        for on_gpu in on_gpus
    ]
    heads = ("gpu", "batch", "allocates", "reserves", "context", "has", "fits", "max batch")
    out.print()
    out.print(Text("On GPUs", style="bold"))
    drop = ("context", "allocates", "has")
    out.print(table(heads, rows, out.width, right=(*heads[1:6], "max batch"), drop=drop))
    out.print(muted("Largest batches were verified by a trace at that size."))
    for note in dict.fromkeys(note for on_gpu in on_gpus for note in on_gpu.notes):
        out.print(muted(note))


def title(report: StepReport) -> str:
    """`training_step (train.py) at batch size 8`."""
    path = report.target.partition(" --")[0].removesuffix(f":{report.name}")
    file = path.replace("\\", "/").rpartition("/")[2]
    return f"{report.name} ({file}) at batch size {count(report.batch_size)}"


def _parameters(report: StepReport) -> str:
    if report.trainable_parameters == report.parameters:
        return f"{count(report.parameters)} parameters, all trainable"
    trainable = count(report.trainable_parameters)
    return f"{count(report.parameters)} parameters, {trainable} trainable"


def _phases_table(report: StepReport, width: int) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            total.phase,
            count(total.operations),
            count(total.launches),
            flops(total.flops),
            share(total.flops, report.flops),
            size(total.moved_bytes),
            share(total.moved_bytes, report.moved_bytes),
        )
        for total in report.phases
    ]
    operations = sum(total.operations for total in report.phases)
    launches = sum(total.launches for total in report.phases)
    all_of_it = (flops(report.flops), "", size(report.moved_bytes), "")
    rows.append(("total", count(operations), count(launches), *all_of_it))
    heads = ("phase", "operations", "kernels", "flops", "share", "bytes moved", "of them")
    return table(heads, rows, width, right=heads[1:], drop=("kernels", "operations"))


def _peak_head(report: StepReport) -> str:
    peak = report.peak
    steps = "" if report.period == 1 else f" in {counted(report.period, 'step')}"
    return (
        f"Memory peak: {size(peak.memory.peak_bytes)} at operation {count(peak.operation)} "
        f"of {count(report.timeline.operations)}{steps}, {peak.phase}"
    )


def _peak_place(peak: MemoryPoint) -> list[Text]:
    """The operator and the user's line; in words where there is none."""
    if peak.site is None:
        return [muted(f"{peak.name}, which no line of your own files called")]
    belongs = "in the backward pass of" if peak.phase in ("backward", "recompute") else "called at"
    code = f": {_cut(peak.site.code, _CODE_SHOWN)}" if peak.site.code else ""
    return [Text(f"{peak.name} {belongs} {peak.site}{code}")]


def _memory_table(memory: Memory, width: int) -> Table:
    amounts = [
        (category.name.replace("_", " "), getattr(memory, category.name))
        for category in fields(Memory)
    ]
    rows = [(name, size(amount), share(amount, memory.peak_bytes)) for name, amount in amounts]
    rows.append(("CUDA context", size(reference_gpu().libraries.context_bytes), "beside it"))
    heads = ("memory at the peak", "size", "share")
    return table(heads, rows, width, right=("size", "share"))


def _print_heaviest(out: Page, what: str, ops: Sequence[tuple[HeavyOp, str, str]]) -> None:
    """Operations with their amount and share of what they are heaviest in."""
    rows = [
        (
            op.name.removeprefix("aten."),
            op.kind,
            op.phase,
            op.precision,
            f"{op.count:g}",
            amount,
            part,
            "-" if op.site is None else str(op.site),
            short_shapes(op),
        )
        for op, amount, part in ops
    ]
    heads = ("operation", "kind", "phase", "in", "times", what, "share", "line", "shapes")
    out.print()
    out.print(Text(f"Heaviest operations by {what}", style="bold"))
    made = table(
        heads,
        rows,
        out.width,
        right=("times", what, "share"),
        drop=("kind", "shapes", "in", "times", "share", "phase"),
        wrap="shapes",
    )
    out.print(made)


def short_shapes(op: HeavyOp) -> str:
    """`8x64x56x56 64x64x1x1 ..`: the first two; of a multi-tensor update its elements."""
    if op.kind == "optimizer":
        return f"{count(sum(sum(shape) for shape in op.shapes))} elements"
    shown = ["x".join(map(str, shape)) or "1" for shape in op.shapes[:_SHAPES_SHOWN]]
    return " ".join([*shown, ".."] if len(op.shapes) > _SHAPES_SHOWN else shown)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3].rstrip() + "..."


def _print_notes(out: Page, report: StepReport) -> None:
    notes = [
        f"{operator}: no formula; it runs {runs:g} times a step and moves "
        f"{share(report.moved_by(operator), report.moved_bytes)} of the bytes, each tensor counted "
        "once. Its FLOPs are not counted: outlay.register_op tells them."
        for operator, runs in report.unknown_ops.items()
    ]
    notes += report.notes
    if notes:
        out.print()
    for note in notes:
        out.print(muted(note))
