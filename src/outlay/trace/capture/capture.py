"""A training step built on fake tensors, warmed up, and recorded: `capture_steps`.

A `Capture` has the step's operations and memory (`Recorder`), its parameters, and what matters for
spreading it over GPUs: when gradients are finished, and what its blocks return.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as optim

from outlay.trace.capture import cuda_ops, cuda_sequences, fake_cuda, torchvision_ops
from outlay.trace.capture.changes import (
    blocks_of,
    first_tensor,
    living_models,
    parameters_of,
    with_changes,
)
from outlay.trace.capture.data_dependent import SelectionSizes
from outlay.trace.capture.fake_cuda import FakeMode, patch_imported_libraries, patched_cuda
from outlay.trace.capture.quantized import values_of
from outlay.trace.capture.recorder import (
    CallSites,
    Recorder,
    track_modules,
    track_recomputation,
    with_storage,
)
from outlay.trace.capture.wrappers import (
    AttributePatches,
    compiled_code,
    patch_decorators,
    remove_at_end,
)
from outlay.trace.libraries import stand_ins
from outlay.trace.profile import NOT_COMPILED, Compilable
from outlay.trace.target import SELECTED, UNCHANGED, Changes, StepBuilder, StepFunction

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from outlay.trace.capture.memory_tracker import MemoryTracker
    from outlay.trace.fusion import Flow
    from outlay.trace.profile import Op
    from outlay.trace.step_report import CallSite


WARM_UP_STEPS = 2
"""The first step makes optimizer state and scales, the second is the first like all others."""

_GRAPH_RELEASE_S = 0.02
"""Autograd's thread releases the last graph a little after `backward` returned, and needs Python
for it; a process that ends first is aborted by it."""
_MOST_READS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The operations of `period` consecutive steps at one batch size, in order."""

    batch_size: int
    period: int
    ops: tuple[Op, ...]
    memory: MemoryTracker
    parameters: int
    trainable_parameters: int
    unknown_ops: Mapping[str, int]
    gradients: tuple[tuple[int, int], ...]
    """Of each gradient in order: the operations before it was finished, and its bytes."""
    blocks: Mapping[tuple[str, int, int], list[int]]
    """Output bytes of every block that ran, by class, parameters and width."""
    notes: tuple[str, ...]
    sites: tuple[CallSite | None, ...] = ()
    """The user's line of each operation; empty without `with_lines`."""
    flows: tuple[Flow, ...] = ()
    """What each operation read and wrote."""
    compilable: Compilable = NOT_COMPILED
    """How the step calls torch.compile."""
    library_sites: tuple[CallSite | None, ...] = ()
    """The line of an installed library that the user's line led to, if any; empty likewise."""


def capture_steps(
    build: StepBuilder,
    batch_size: int,
    *,
    period: int | None = None,
    selected: float = SELECTED,
    own_file: str | None = None,
    with_lines: bool = False,
    changes: Changes = UNCHANGED,
    on_share: Callable[[float], None] = lambda _: None,
) -> Capture:
    """What the step that `build(batch_size)` returns does once it runs evenly.

    `selected` is the share of elements that a selection by unknown values keeps. Notes name lines
    in `own_file`, the user's, or its folder; with `with_lines`, the line of each operation is
    found too, and the memory after each is noted. `changes` are made to the step first.
    `on_share` hears what share of all iterations has run.

    It is built with CUDA as the default device and run without one, as a user would run it; if
    that mixes CPU and GPU tensors it is tried once more with CUDA as the default throughout.
    """
    options = CaptureOptions(
        own_file=own_file,
        with_lines=with_lines,
        selected=selected,
        changes=changes,
        on_share=on_share,
    )
    capture = partial(_capture, build, batch_size, period, options)
    with contextlib.suppress(_MixedDevices):
        return capture(contextlib.nullcontext)
    try:
        return capture(lambda: torch.device("cuda"))
    except _MixedDevices as error:
        raise error.error from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """How a step is captured; see `capture_steps`."""

    own_file: str | None
    with_lines: bool
    selected: float
    changes: Changes
    on_share: Callable[[float], None] = lambda _: None


def recorder_for(batch_size: int, options: CaptureOptions) -> Recorder:
    """A recorder of a step at a batch size."""
    if options.own_file is None:
        return Recorder(SelectionSizes(batch_size, options.selected), batch_size=batch_size)
    callsites = CallSites(options.own_file)
    selection = SelectionSizes(batch_size, options.selected, callsites.current_line)
    return Recorder(selection, callsites, with_lines=options.with_lines, batch_size=batch_size)


def _capture(
    build: StepBuilder,
    batch_size: int,
    period: int | None,
    options: CaptureOptions,
    default_device: Callable[[], contextlib.AbstractContextManager[object]],
) -> Capture:
    notes = notes_of_imports()
    recorder = recorder_for(batch_size, options)
    with (
        recording_on_fake_tensors(recorder, notes) as patches,
        with_changes(build, options.changes) as changed_build,
    ):
        patch_imported_libraries(patches)
        with torch.device("cuda"):
            step = changed_build(batch_size)
        patch_imported_libraries(patches)
        period = (period or 0) * options.changes.accumulate or _period_of(step)
        with default_device(), _detect_mixed_devices():
            parameters, structure = _record(step, recorder, period, options.on_share)
    time.sleep(_GRAPH_RELEASE_S)
    return capture_of(recorder, parameters, structure, period, notes, batch_size)


@contextlib.contextmanager
def recording_on_fake_tensors(recorder: Recorder, notes: set[str]) -> Iterator[AttributePatches]:
    """Run the user's code on fake tensors, as on a GPU, and let the recorder see what it does."""
    # Once in each process, before autograd starts its threads: of a fork they would each replace
    # the pool of threads that torch lost in it, at once, and abort.
    torch.set_num_threads(1)
    fake_cuda.install()
    cuda_ops.install()
    cuda_sequences.install()
    torchvision_ops.install()
    mode = FakeMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
    with (
        _without_automatic_gc(),
        stand_ins.installed(),
        compiled_code.scope(),
        patched_cuda(notes, recorder.selection.array_values) as patches,
        force_eager(),
        mode,
        recorder,
        _track_optimizers(recorder),
        track_modules(recorder.phases),
        track_recomputation(recorder.phases),
    ):
        yield patches


def capture_of(
    recorder: Recorder,
    parameters: Sequence[Tensor],
    structure: StructureRecord,
    period: int,
    notes: set[str],
    batch_size: int,
) -> Capture:
    """What was recorded of `period` steps."""
    return Capture(
        batch_size=batch_size,
        period=period,
        ops=tuple(recorder.ops),
        memory=recorder.memory,
        parameters=sum(map(values_of, parameters)),
        trainable_parameters=sum(
            values_of(p) for p in parameters if p.requires_grad or id(p) in structure.trained
        ),
        unknown_ops=dict(recorder.unknown),
        gradients=tuple(structure.gradients),
        blocks=structure.blocks(),
        notes=(
            *sorted(notes),
            *stand_ins.notes(),
            *recorder.selection.notes(),
            *_host_read_notes(recorder.host_reads, period),
        ),
        sites=tuple(recorder.sites),
        library_sites=tuple(recorder.library_sites),
        flows=tuple(recorder.flows),
        compilable=recorder.compilable(period),
    )


def _alike_ahead(kinds: Sequence[object], iteration: int, end: int) -> int:
    """How many iterations after this one are of its kind in a row, if the one before it was."""
    if not kinds or kinds[iteration % len(kinds)] != kinds[(iteration - 1) % len(kinds)]:
        return 0
    ahead = range(iteration + 1, end)
    kind = kinds[iteration % len(kinds)]
    return sum(1 for _ in takewhile(lambda place: kinds[place % len(kinds)] == kind, ahead))


def _kinds_of(step: StepFunction, period: int) -> tuple[object, ...]:
    """What kind each iteration of a period is, where the step tells: then some may be left out."""
    kinds = getattr(step, "kinds", ())
    is_told = isinstance(kinds, tuple | list) and len(kinds) == period > 1
    return tuple(kinds) if is_told and callable(getattr(step, "skip", None)) else ()


def _period_of(step: StepFunction) -> int:
    period = getattr(step, "period", 1)
    return period if isinstance(period, int) and period > 0 else 1


def _record(
    step: StepFunction, recorder: Recorder, period: int, on_share: Callable[[float], None]
) -> tuple[list[Tensor], StructureRecord]:
    """Run the step until it is warm, then record it; returns all parameters, and the structure.

    Where the step tells which iterations are of a kind, and two in a row were alike in what they
    allocate, those of that kind that follow are not run, but noted as the last one was.
    """
    kinds = _kinds_of(step, period)
    iterations = WARM_UP_STEPS + period
    for iteration in range(WARM_UP_STEPS):
        on_share(iteration / iterations)
        recorder.start_step()
        step()
    parameters = start_recording(recorder)
    with record_structure(parameters, recorder.ops) as structure:
        iteration = WARM_UP_STEPS
        while iteration < iterations:
            on_share(iteration / iterations)
            recorder.start_step()
            gradients = len(structure.gradients)
            operations = len(recorder.ops)
            step()
            alike = _alike_ahead(kinds, iteration, iterations)
            if alike and recorder.memory.repeats_step():
                structure.repeat(gradients, len(recorder.ops) - operations, alike)
                recorder.repeat_step(alike)
                step.skip(alike)  # type: ignore[attr-defined]
                iteration += alike
            iteration += 1
    return stop_recording(recorder, parameters), structure


def start_recording(recorder: Recorder) -> list[Tensor]:
    """Record from now on; returns the parameters of all models there are."""
    gc.collect()
    parameters = [p for p in _living_parameters() if recorder.memory.is_live(p)]
    recorder.memory.set_role("parameters", parameters)
    recorder.memory.restart()
    recorder.recording = True
    recorder.calls_before = compiled_code.calls
    return parameters


def stop_recording(recorder: Recorder, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Record no longer; returns the parameters with those that optimizers alone have."""
    recorder.recording = False
    recorder.compile_mode = compiled_code.mode
    recorder.compiled_calls = compiled_code.calls - recorder.calls_before
    recorder.memory.finish()
    ids = {id(p) for p in parameters}
    rest = [p for key, p in recorder.optimized.items() if key not in ids]
    return [*parameters, *rest]


def _host_read_notes(host_reads: Mapping[tuple[str, str], int], period: int) -> list[str]:
    """Which lines read values off the GPU, and which values they got."""
    by_line: dict[str, dict[str, int]] = {}
    for (line, value), times in host_reads.items():
        by_line.setdefault(line, {})[value] = times
    notes = []
    for line, answers in by_line.items():
        where = f"{line} reads" if line else "The step reads"
        times = sum(answers.values())
        often = f"{times / period:g} values" if times != period else "a value"
        notes.append(f"{where} {often} back from the GPU and is answered with {_listed(answers)}.")
    if len(notes) > _MOST_READS:
        rest = sum(sum(answers.values()) for answers in list(by_line.values())[_MOST_READS:])
        rest_per_step = f"{rest / period:g} more values a step are read on other lines."
        return [*notes[:_MOST_READS], rest_per_step]
    return notes


def _listed(answers: Iterable[str]) -> str:
    """`32`, `yes or no`; of more than two the first and the last: `0 ... 128`."""
    shown = list(answers)
    return " or ".join(shown) if len(shown) < 3 else f"{shown[0]} ... {shown[-1]}"


# The process while it captures


_import_notes: set[str] = set()


def notes_of_imports() -> set[str]:
    """What was left out while the user's file was imported."""
    return set(_import_notes)


def prepare_process() -> None:
    """Prepare this process, for good, for the import of the user's file.

    What it wraps in decorators, and what torchvision lacks, is then replaced in time. What torch
    has made so far stays to the end and is left out of collecting garbage: to go through it takes
    longer than to trace a small step. What a trace computes is small: with several threads for it,
    these would mostly wait for one another.
    """
    torch.set_num_threads(1)
    torchvision_ops.install()
    stand_ins.install()
    patch_decorators(AttributePatches(), _import_notes)
    importlib.import_module("torch._dynamo")  # the first step would do it
    gc.freeze()


@contextlib.contextmanager
def _without_automatic_gc() -> Iterator[None]:
    """Leave collecting garbage to the recorder, which does it at the same places in each trace."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def force_eager() -> contextlib.AbstractContextManager[object]:
    """Run what was compiled before as it was written; before torch 2.6 there is no such stance."""
    if not hasattr(torch.compiler, "set_stance"):
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance


class _MixedDevices(Exception):
    """The step made a tensor on the CPU where its others are on the GPU."""

    def __init__(self, error: RuntimeError) -> None:
        self.error = error
        super().__init__(str(error))


@contextlib.contextmanager
def _detect_mixed_devices() -> Iterator[None]:
    """Raise torch's complaint about tensors on two devices as `_MixedDevices`."""
    try:
        yield
    except RuntimeError as error:
        if "cpu" in str(error) and "cuda" in str(error):
            raise _MixedDevices(error) from error
        raise


# Parameters, optimizers, and the structure of the step


def _living_parameters() -> Iterator[Tensor]:
    """Every parameter of a living module or optimizer, once."""
    ids: set[int] = set()
    for thing in gc.get_objects():
        for parameter in _own_parameters(thing):
            if id(parameter) not in ids:
                ids.add(id(parameter))
                yield parameter


def _own_parameters(thing: object) -> list[Tensor]:
    kind = type(thing)
    if issubclass(kind, nn.Module):
        parameters = list(getattr(thing, "_parameters", {}).values())
    elif issubclass(kind, Optimizer):
        parameters = _optimized(thing)
    else:
        return []
    return [p for p in parameters if p is not None and p.device.type == "cuda"]


def _optimized(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


@contextlib.contextmanager
def _track_optimizers(recorder: Recorder) -> Iterator[None]:
    """Let the recorder know when an optimizer runs, and what its gradients and states are."""

    def before(optimizer: Optimizer, *_: object) -> None:
        parameters = _optimized(optimizer)
        recorder.optimized.update((id(p), p) for p in parameters if p.device.type == "cuda")
        recorder.memory.set_role("parameters", _on_gpu(parameters))
        recorder.memory.set_role("gradients", _on_gpu(p.grad for p in parameters))
        recorder.phases.enter_optimizer()

    def after(optimizer: Optimizer, *_: object) -> None:
        recorder.phases.exit_optimizer()
        states = (value for state in optimizer.state.values() for value in state.values())
        recorder.memory.set_role("optimizer_state", _on_gpu(states))

    hooks = [
        optim.register_optimizer_step_pre_hook(before),
        optim.register_optimizer_step_post_hook(after),
    ]
    with remove_at_end(hooks):
        yield


def _on_gpu(values: Iterable[object]) -> Iterator[Tensor]:
    tensors = (v for v in values if isinstance(v, Tensor) and v.device.type == "cuda")
    return (part for tensor in tensors for part in with_storage(tensor) if isinstance(part, Tensor))


@dataclass(slots=True, kw_only=True)
class StructureRecord:
    """Gradients as they were finished, and the blocks that ran."""

    gradients: list[tuple[int, int]] = field(default_factory=list)
    """Of each gradient in order: how many operations were recorded before, and its bytes."""
    trained: set[int] = field(default_factory=set)
    """The identities of the parameters that got one."""
    outputs: dict[int, tuple[nn.Module, Tensor]] = field(default_factory=dict)
    """The first output of each block that ran."""

    def repeat(self, start: int, operations: int, times: int) -> None:
        """Note the gradients from a place on so many times more, each time so many later."""
        step = self.gradients[start:]
        for turn in range(1, times + 1):
            self.gradients += [(before + turn * operations, size) for before, size in step]

    def blocks(self) -> dict[tuple[str, int, int], list[int]]:
        """Output bytes of every block, by class, parameters and width."""
        sizes: dict[tuple[str, int, int], list[int]] = {}
        for block, out in self.outputs.values():
            key = type(block).__name__, parameters_of(block), out.shape[-1] if out.dim() else 1
            sizes.setdefault(key, []).append(out.numel() * out.element_size())
        return sizes


@contextlib.contextmanager
def record_structure(parameters: Iterable[Tensor], ops: Sequence[Op]) -> Iterator[StructureRecord]:
    """Note when gradients are finished and what blocks return, while `ops` are recorded."""
    record = StructureRecord()

    def on_gradient(parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None:
            size_bytes = gradient.numel() * gradient.element_size()
            record.gradients.append((len(ops), size_bytes))
            record.trained.add(id(parameter))

    def on_forward(block: nn.Module, _args: object, out: object) -> None:
        tensor = first_tensor(out)
        if tensor is not None:
            record.outputs.setdefault(id(block), (block, tensor.detach().to("meta")))

    hooks = [_call_with_gradient(p, on_gradient) for p in parameters if _can_be_trained(p)]
    for model in living_models():
        hooks += [block.register_forward_hook(on_forward) for block in blocks_of(model)]
    with remove_at_end(hooks):
        yield record


def _can_be_trained(parameter: Tensor) -> bool:
    """Whether it may get a gradient: also one that is frozen now, as the step may unfreeze it."""
    is_number = parameter.is_floating_point() or parameter.is_complex()
    return is_number and parameter.is_leaf and not parameter.is_inference()


def _call_with_gradient(parameter: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Have the hook called when the parameter's gradient is there, whenever it may get one."""
    requires_grad = parameter.requires_grad
    parameter.requires_grad = True  # torch refuses hooks of frozen parameters, but keeps them
    handle = parameter.register_post_accumulate_grad_hook(hook)
    parameter.requires_grad = requires_grad
    return handle
