"""Building a training step on fake tensors, warming it up, and recording it."""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as optim

from outlay.trace.capture import cuda_ops, cuda_sequences, fake_cuda, torchvision_ops
from outlay.trace.capture.changes import (
    blocks_of,
    changed,
    first_tensor,
    living_models,
    parameters_of,
)
from outlay.trace.capture.data_dependent import SelectionSizes
from outlay.trace.capture.fake_cuda import FakeMode, patch_imported_libraries, pretended_cuda
from outlay.trace.capture.recorder import (
    CallSites,
    Recorder,
    stored,
    watched_modules,
    watched_recomputing,
)
from outlay.trace.capture.wrappers import AttributePatches, patch_decorators
from outlay.trace.target import UNCHANGED, Changes
from outlay.trace.tracing import SELECTED

if TYPE_CHECKING:
    from outlay.trace.capture.memory_tracker import MemoryTracker
    from outlay.trace.profile import Op
    from outlay.trace.step_report import CallSite


# What of a step matters for spreading it over GPUs, watched while it is recorded.


@dataclass(slots=True, kw_only=True)
class StructureRecord:
    """Gradients as they were finished, and the blocks that ran."""

    gradients: list[tuple[int, int]] = field(default_factory=list)
    """Of each gradient in order: how many operations were recorded before, and its bytes."""
    outputs: dict[int, tuple[nn.Module, Tensor]] = field(default_factory=dict)
    """The last output of each block that ran."""

    def blocks(self) -> dict[tuple[str, int, int], list[int]]:
        """Output bytes of every block, by class, parameters and width."""
        found: dict[tuple[str, int, int], list[int]] = {}
        for block, out in self.outputs.values():
            key = type(block).__name__, parameters_of(block), out.shape[-1] if out.dim() else 1
            found.setdefault(key, []).append(out.numel() * out.element_size())
        return found


@contextlib.contextmanager
def record_structure(
    parameters: Iterable[Tensor], recorded: Callable[[], int]
) -> Iterator[StructureRecord]:
    """Watch a step; `recorded` tells how many operations were recorded so far."""
    watched = StructureRecord()

    def finished(parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None:
            size = gradient.numel() * gradient.element_size()
            watched.gradients.append((recorded(), size))

    def ran(block: nn.Module, _args: object, out: object) -> None:
        tensor = first_tensor(out)
        if tensor is not None:
            watched.outputs.setdefault(id(block), (block, tensor.detach().to("meta")))

    trained = [p for p in parameters if p.requires_grad and p.is_leaf]
    handles = [p.register_post_accumulate_grad_hook(finished) for p in trained]
    for model in living_models():
        handles += [block.register_forward_hook(ran) for block in blocks_of(model)]
    try:
        yield watched
    finally:
        for handle in handles:
            handle.remove()


WARM_UP_STEPS = 2
"""The first step makes optimizer state and scales, the second is the first like all others."""

_LETTING_GO_S = 0.02
"""Autograd's thread lets go of the last graph a little after `backward` returned, and needs Python
for it; a process that ends first is aborted by it."""

_READS_NAMED = 8

Step = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The operations of `period` consecutive steps at one batch size, in order."""

    batch_size: int
    period: int
    ops: tuple[Op, ...]
    ledger: MemoryTracker
    parameters: int
    trainable_parameters: int
    unknown_ops: Mapping[str, int]
    gradients: tuple[tuple[int, int], ...]
    """Of each gradient in order: the operations before it was finished, and its bytes."""
    blocks: Mapping[tuple[str, int, int], list[int]]
    """Output bytes of every block that ran, by class, parameters and width."""
    notes: tuple[str, ...]
    sites: tuple[CallSite | None, ...] = ()
    """The user's line of each operation, where it was asked for."""


def capture_steps(
    build: Callable[[int], Step],
    batch_size: int,
    *,
    period: int | None = None,
    selected: float = SELECTED,
    own_file: str | None = None,
    with_lines: bool = False,
    changes: Changes = UNCHANGED,
) -> Capture:
    """What the step that `build(batch_size)` returns does once it runs evenly.

    `selected` is the share of elements that a selection by unknown values keeps. Notes name lines
    in `own_file`, the user's, or its folder; with `with_lines`, the line of each operation is
    found too, and the ledger is marked at each. `changes` are made to the step first.

    It is built with CUDA as the default device and run without one, as a user would run it; if
    that mixes CPU and GPU tensors it is tried once more with CUDA as the default throughout.
    """
    manner = _CaptureOptions(
        own_file=own_file, with_lines=with_lines, selected=selected, changes=changes
    )
    capture = partial(_capture, build, batch_size, period, manner)
    with contextlib.suppress(_MixedDevices):
        return capture(contextlib.nullcontext)
    try:
        return capture(lambda: torch.device("cuda"))
    except _MixedDevices as error:
        raise error.error from None


@dataclass(frozen=True, slots=True, kw_only=True)
class _CaptureOptions:
    """How a step is to be run, and what to look for."""

    own_file: str | None
    with_lines: bool
    selected: float
    changes: Changes


def _recorder(batch_size: int, manner: _CaptureOptions) -> Recorder:
    if manner.own_file is None:
        return Recorder(SelectionSizes(batch_size, manner.selected), batch_size=batch_size)
    callsites = CallSites(manner.own_file)
    selection = SelectionSizes(batch_size, manner.selected, callsites.line_now)
    return Recorder(selection, callsites, with_lines=manner.with_lines, batch_size=batch_size)


_noted_at_import: set[str] = set()


def watch_imports() -> None:
    """Prepare this process, for good, for the import of the user's file.

    What it wraps in decorators, and what torchvision lacks, is then seen to in time. What torch
    has made so far stays to the end and is left out of collecting garbage: to go through it takes
    longer than to trace a small step.
    """
    torchvision_ops.install()
    patch_decorators(AttributePatches(), _noted_at_import)
    importlib.import_module("torch._dynamo")  # the first step would do it
    gc.freeze()


class _MixedDevices(Exception):
    """The step made a tensor on the CPU where its others are on the GPU."""

    def __init__(self, error: RuntimeError) -> None:
        self.error = error
        super().__init__(str(error))


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    """Raise torch's complaint about tensors on two devices as an error of its own."""
    try:
        yield
    except RuntimeError as error:
        if "cpu" in str(error) and "cuda" in str(error):
            raise _MixedDevices(error) from error
        raise


def _capture(
    build: Callable[[int], Step],
    batch_size: int,
    period: int | None,
    manner: _CaptureOptions,
    stepping: Callable[[], contextlib.AbstractContextManager[object]],
) -> Capture:
    fake_cuda.install()
    cuda_ops.install_attention()
    cuda_ops.install_norms()
    cuda_ops.install_linear()
    cuda_sequences.install_recurrent()
    cuda_sequences.install_packing()
    cuda_sequences.install_ctc_loss()
    torchvision_ops.install()
    notes = set(_noted_at_import)
    recorder = _recorder(batch_size, manner)
    mode = FakeMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
    with (
        _no_collection_by_chance(),
        pretended_cuda(notes, recorder.selection.answers) as patches,
        eager(),
        mode,
        recorder,
        _watched_optimizers(recorder),
        watched_modules(recorder.teller),
        watched_recomputing(recorder.teller),
        changed(build, manner.changes) as changed_build,
    ):
        patch_imported_libraries(patches)
        with torch.device("cuda"):
            step = changed_build(batch_size)
        patch_imported_libraries(patches)
        period = (period or 0) * manner.changes.accumulate or _period_of(step)
        with stepping(), _told_apart():
            parameters, watched = _record(step, recorder, period)
    time.sleep(_LETTING_GO_S)
    return Capture(
        batch_size=batch_size,
        period=period,
        ops=tuple(recorder.ops),
        ledger=recorder.ledger,
        parameters=sum(p.numel() for p in parameters),
        trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        unknown_ops=dict(recorder.unknown),
        gradients=tuple(watched.gradients),
        blocks=watched.blocks(),
        notes=(*sorted(notes), *recorder.selection.notes(), *_reads(recorder.host_reads, period)),
        sites=tuple(recorder.sites),
    )


def _reads(host_reads: Mapping[tuple[str, str], int], period: int) -> list[str]:
    """Which lines read values off the GPU, and what they were told."""
    said = []
    for (line, answer), times in host_reads.items():
        where = f"{line} reads" if line else "The step reads"
        often = f"{times / period:g} values" if times != period else "a value"
        said.append(f"{where} {often} back from the GPU and is answered with {answer}.")
    more = len(said) - _READS_NAMED
    if more > 0:
        rest = sum(list(host_reads.values())[_READS_NAMED:]) / period
        return [*said[:_READS_NAMED], f"{rest:g} more values a step are read on other lines."]
    return said


@contextlib.contextmanager
def _no_collection_by_chance() -> Iterator[None]:
    """Leave collecting garbage to the recorder, which does it at the same places in each trace."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def eager() -> contextlib.AbstractContextManager[object]:
    """Run what was compiled before as it was written; before torch 2.6 there is no such stance."""
    if not hasattr(torch.compiler, "set_stance"):
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


def _period_of(step: Step) -> int:
    period = getattr(step, "period", 1)
    return period if isinstance(period, int) and period > 0 else 1


def _record(step: Step, recorder: Recorder, period: int) -> tuple[list[Tensor], StructureRecord]:
    """Run the step until it is warm, then record it; returns all parameters, and what was seen."""
    for _ in range(WARM_UP_STEPS):
        recorder.start_step()
        step()
    gc.collect()
    parameters = [p for p in _parameters() if recorder.ledger.knows(p)]
    recorder.ledger.call("parameters", parameters)
    recorder.ledger.restart()
    recorder.recording = True
    with record_structure(parameters, lambda: len(recorder.ops)) as watched:
        for _ in range(period):
            recorder.start_step()
            step()
    recorder.recording = False
    recorder.ledger.finish()
    known = {id(p) for p in parameters}
    rest = [p for key, p in recorder.optimized.items() if key not in known]
    return [*parameters, *rest], watched


def _parameters() -> Iterator[Tensor]:
    """Every parameter of a living module or optimizer, once."""
    seen: set[int] = set()
    for thing in gc.get_objects():
        for parameter in _parameters_of(thing):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter


def _parameters_of(thing: object) -> list[Tensor]:
    kind = type(thing)
    if issubclass(kind, nn.Module):
        found = list(getattr(thing, "_parameters", {}).values())
    elif issubclass(kind, Optimizer):
        found = _optimized(thing)
    else:
        return []
    return [p for p in found if p is not None and p.device.type == "cuda"]


def _optimized(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


@contextlib.contextmanager
def _watched_optimizers(recorder: Recorder) -> Iterator[None]:
    """Tell the recorder when an optimizer runs, and what its gradients and states are."""

    def before(optimizer: Optimizer, *_: object) -> None:
        parameters = _optimized(optimizer)
        recorder.optimized.update((id(p), p) for p in parameters if p.device.type == "cuda")
        recorder.ledger.call("parameters", _on_gpu(parameters))
        recorder.ledger.call("gradients", _on_gpu(p.grad for p in parameters))
        recorder.teller.enter_optimizer()

    def after(optimizer: Optimizer, *_: object) -> None:
        recorder.teller.in_optimizer = False
        states = (value for state in optimizer.state.values() for value in state.values())
        recorder.ledger.call("optimizer_state", _on_gpu(states))

    handles = [
        optim.register_optimizer_step_pre_hook(before),
        optim.register_optimizer_step_post_hook(after),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _on_gpu(values: Iterable[object]) -> Iterator[Tensor]:
    tensors = (v for v in values if isinstance(v, Tensor) and v.device.type == "cuda")
    return (part for tensor in tensors for part in stored(tensor) if isinstance(part, Tensor))
