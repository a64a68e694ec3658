"""What a user's own step needs on GPUs: `outlay trace`, with the largest batch of each GPU.

The largest batch is verified by tracing the step at that size (`predict.largest_batch`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from outlay.hardware.gpu_names import GpuMatch, find_gpu
from outlay.hardware.gpus import Gpu
from outlay.offers.catalog import bundled_offers, offer_gpus
from outlay.plan.placement import calibration
from outlay.predict.largest_batch import Tracer, verified_batches
from outlay.predict.memory import MemoryNeed, memory_need, search_note
from outlay.predict.step import Placement
from outlay.progress import Progress, silent
from outlay.trace.profile import Profile
from outlay.trace.step_report import StepReport
from outlay.trace.target import SELECTED
from outlay.trace.trace_cache import TraceCache
from outlay.trace.tracing import histories_of, profile_of, trace_step
from outlay.units import MIB

REFERENCE_GPU = "H200"
"""The GPU whose workspaces and context count where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """A step to trace, and what to find out of it."""

    target: str
    """`path/to/file.py:function`, or `path/to/train.py -- ARGUMENTS`."""
    batch_size: int | None = None
    """None is the usual one: 8, or a script's own."""
    at_largest: bool = False
    """Whether the largest batch that fits is wanted."""
    gpus: tuple[GpuMatch, ...] = ()
    """Where it should fit; without any, all GPUs on offer are tried for the largest batch."""
    memory_cap_mib: int | None = None
    expandable_segments: bool = False
    with_profile: bool = False
    """Whether the step at any batch size is wanted, to be saved."""
    name: str | None = None
    sample: str = ""
    selected: float = SELECTED
    """Share of elements that a selection by unknown values keeps."""
    timeout_s: float | None = None
    cache: TraceCache | bool = True
    """Where traces are kept; True is the user's own place, False nowhere."""

    @property
    def asks_for_memory(self) -> bool:
        """Whether the step's memory on GPUs is to be worked out."""
        return bool(self.gpus) or self.memory_cap_mib is not None or self.at_largest


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """One step at one batch size; at any, where that was traced; and on GPUs."""

    report: StepReport
    profile: Profile | None
    gpus: tuple[GpuMemory, ...]

    @property
    def fits(self) -> bool:
        """Whether it fits on some of the GPUs asked for, if on any was asked."""
        return not self.gpus or any(gpu.fits for gpu in self.gpus)


class _How(TypedDict):
    """How each trace is made."""

    selected: float
    timeout_s: float | None
    cache: TraceCache | bool
    progress: Progress


def trace_on_gpus(request: TraceRequest, *, progress: Progress = silent) -> TracedStep:
    """Trace a step without a GPU, and work out its memory and largest batch on GPUs."""
    target = request.target
    how = _How(
        selected=request.selected,
        timeout_s=request.timeout_s,
        cache=request.cache,
        progress=progress,
    )
    profile, gpus, batch_size = None, [], request.batch_size
    report = None
    if batch_size is None and not request.at_largest:
        progress(f"Tracing {target} ...")
        report = trace_step(target, **how)
        batch_size = report.batch_size
    if request.with_profile or request.asks_for_memory:
        progress(f"Tracing {target} at a few batch sizes ...")
        profile = profile_of(
            target,
            name=request.name,
            sample=request.sample,
            **how,
        )
    if profile is not None and request.asks_for_memory:
        progress("Looking for the largest batch ...")
        gpus = memory_on_gpus(
            profile,
            request.gpus,
            lambda sizes: histories_of(target, sizes, **how),
            batch_size=batch_size,
            memory_cap_mib=request.memory_cap_mib,
            expandable_segments=request.expandable_segments,
        )
    if report is None:
        size = batch_size or max((gpu.batch_size for gpu in gpus), default=0) or 1
        progress(f"Tracing {target} at batch size {size} ...")
        report = trace_step(target, size, **how)
    return TracedStep(report=report, profile=profile, gpus=tuple(gpus))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMemory:
    """What a step needs on one GPU: at a batch size, or at the largest that fits."""

    gpu: Gpu
    asked: str
    batch_size: int
    max_batch_size: int
    is_verified: bool
    """Whether the step was traced at the largest batch and fits."""
    memory: MemoryNeed
    notes: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether it fits at this batch size."""
        return self.batch_size > 0 and self.memory.fits


def memory_on_gpus(
    profile: Profile,
    matches: Sequence[GpuMatch],
    trace: Tracer,
    *,
    batch_size: int | None,
    memory_cap_mib: int | None = None,
    expandable_segments: bool = False,
) -> list[GpuMemory]:
    """What a user's step needs on GPUs; without any, on all that are on offer.

    A name that leaves the GPU's form open stands for its first form.
    """
    cap_bytes = None if memory_cap_mib is None else float(memory_cap_mib * MIB)
    wanted = [(match.candidates[0], match.spelling, match.note) for match in matches]
    if not wanted:
        wanted = [(gpu, gpu.name, "") for gpu in _gpus_to_try(cap_bytes)]
    placements = [
        Placement(gpu=gpu, memory_cap_bytes=cap_bytes, expandable_segments=expandable_segments)
        for gpu, _, _ in wanted
    ]
    largest = verified_batches(profile, placements, calibration(), trace)
    needs = []
    for placement, (gpu, spelling, note) in zip(placements, wanted, strict=True):
        size = largest[placement] if batch_size is None else batch_size
        need = memory_need(profile, max(size, 1), placement.memory_budget, calibration())
        needs.append(
            GpuMemory(
                gpu=gpu,
                asked=spelling,
                batch_size=size,
                max_batch_size=largest[placement],
                is_verified=largest[placement] > 0,
                memory=replace(need, fits=True) if 0 < size <= largest[placement] else need,
                notes=(*((note,) if note else ()), *search_note(largest[placement])),
            )
        )
    return needs


def reference_gpu() -> Gpu:
    """The GPU that stands for all where none is named."""
    return find_gpu(REFERENCE_GPU).candidates[0]


def _gpus_to_try(cap_bytes: float | None) -> list[Gpu]:
    """Every GPU on offer that today's PyTorch runs on, most memory first; one under a cap."""
    if cap_bytes is not None:
        return [reference_gpu()]
    offered = {gpu for offer in bundled_offers() for gpu in offer_gpus(offer)}
    runs = [gpu for gpu in offered if gpu.software.runs == "yes"]
    return sorted(runs, key=lambda gpu: (-gpu.usable_bytes, gpu.name))
