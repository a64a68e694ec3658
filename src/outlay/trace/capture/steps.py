"""Building a training step on fake tensors, warming it up, and recording it."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as optim

from outlay.trace.capture import attention, fakecuda, norms, recurrent
from outlay.trace.capture.callsites import CallSites
from outlay.trace.capture.pretend import FakeMode, patch_imported_libraries, pretended_cuda
from outlay.trace.capture.recorder import Recorder

if TYPE_CHECKING:
    from outlay.trace.capture.ledger import Ledger
    from outlay.trace.step_report import CallSite
    from outlay.trace.trace import Op

WARM_UP_STEPS = 2
"""The first step makes optimizer state and scales, the second is the first like all others."""

_LETTING_GO_S = 0.02
"""Autograd's thread lets go of the last graph a little after `backward` returned, and needs Python
for it; a process that ends first is aborted by it."""

Step = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """The operations of `period` consecutive steps at one batch size, in order."""

    batch_size: int
    period: int
    ops: tuple[Op, ...]
    ledger: Ledger
    parameters: int
    trainable_parameters: int
    unknown_ops: Mapping[str, int]
    notes: tuple[str, ...]
    sites: tuple[CallSite | None, ...] = ()
    """The user's line of each operation, where it was asked for."""


def capture_steps(
    build: Callable[[int], Step],
    batch_size: int,
    *,
    period: int | None = None,
    own_file: str | None = None,
) -> Capture:
    """What the step that `build(batch_size)` returns does once it runs evenly.

    With `own_file`, the user's file, each operation's line in it or its folder is found too, and
    the ledger is marked at each operation.

    It is built with CUDA as the default device and run without one, as a user would run it; if
    that mixes CPU and GPU tensors it is tried once more with CUDA as the default throughout.
    """
    capture = partial(_capture, build, batch_size, period, own_file)
    with contextlib.suppress(_MixedDevices):
        return capture(contextlib.nullcontext)
    try:
        return capture(lambda: torch.device("cuda"))
    except _MixedDevices as error:
        raise error.error from None


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
    own_file: str | None,
    stepping: Callable[[], contextlib.AbstractContextManager[object]],
) -> Capture:
    fakecuda.install()
    attention.install()
    norms.install()
    recurrent.install()
    notes: set[str] = set()
    callsites = None if own_file is None else CallSites(own_file)
    recorder = Recorder(notes, callsites, batch_size=batch_size)
    mode = FakeMode(allow_non_fake_inputs=True)
    with (
        _no_collection_by_chance(),
        pretended_cuda(notes) as patches,
        mode,
        recorder,
        _watched_optimizers(recorder),
    ):
        patch_imported_libraries(patches)
        with torch.device("cuda"):
            step = build(batch_size)
        patch_imported_libraries(patches)
        period = period or _period_of(step)
        with stepping(), _told_apart():
            parameters = _record(step, recorder, period)
    time.sleep(_LETTING_GO_S)
    if recorder.host_reads:
        reads = recorder.host_reads / period
        notes.add(f"{reads:g} values a step were read back from the GPU and answered with 0.")
    return Capture(
        batch_size=batch_size,
        period=period,
        ops=tuple(recorder.ops),
        ledger=recorder.ledger,
        parameters=sum(p.numel() for p in parameters),
        trainable_parameters=sum(p.numel() for p in parameters if p.requires_grad),
        unknown_ops=dict(recorder.unknown),
        notes=tuple(sorted(notes)),
        sites=tuple(recorder.sites),
    )


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


def _period_of(step: Step) -> int:
    period = getattr(step, "period", 1)
    return period if isinstance(period, int) and period > 0 else 1


def _record(step: Step, recorder: Recorder, period: int) -> list[Tensor]:
    """Run the step until it is warm, then record it; returns all parameters."""
    for _ in range(WARM_UP_STEPS):
        recorder.start_step()
        step()
    gc.collect()
    parameters = [p for p in _parameters() if recorder.ledger.knows(p)]
    recorder.ledger.call("parameters", parameters)
    recorder.ledger.restart()
    recorder.recording = True
    for _ in range(period):
        recorder.start_step()
        step()
    recorder.recording = False
    return parameters


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
        recorder.ledger.call("parameters", _on_gpu(parameters))
        recorder.ledger.call("gradients", _on_gpu(p.grad for p in parameters))
        recorder.in_optimizer = True

    def after(optimizer: Optimizer, *_: object) -> None:
        recorder.in_optimizer = False
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
    return (v for v in values if isinstance(v, Tensor) and v.device.type == "cuda")


def define_operators(namespace: str, schemas: Sequence[str]) -> object:
    """Declare operators that a library could not register; they last as long as the result."""
    library = torch.library.Library(namespace, "FRAGMENT")
    for schema in schemas:
        library.define(schema)
    return library
