"""A user's script, run unchanged on fake tensors until its first whole steps are recorded.

`capture_script` runs the file as `python train.py ARGUMENTS` would, without a GPU. It watches the
script from one optimizer step to the next (`StepOrder`), records as many as make a whole training
step, and ends there: `ScriptDone` has the capture, and no line of the script runs after it.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as optim

from outlay.trace.capture.capture import (
    WARM_UP_STEPS,
    Capture,
    CaptureOptions,
    StructureRecord,
    capture_of,
    notes_of_imports,
    record_structure,
    recorder_for,
    recording_on_fake_tensors,
    start_recording,
    stop_recording,
)
from outlay.trace.capture.fake_cuda import patch_imported_libraries
from outlay.trace.capture.missing_data import patch_datasets
from outlay.trace.capture.recorder import Recorder
from outlay.trace.capture.surroundings import ScriptSurroundings, as_first_rank
from outlay.trace.capture.wrappers import AttributePatches, remove_at_end
from outlay.trace.libraries.triton_kernels import patch_triton
from outlay.trace.step_order import OptimizerTurn, StepOrder, StepWindow
from outlay.trace.target import UNCHANGED, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """How to run a script."""

    target: Target
    """Its arguments are as they are to be: no batch size is marked in them."""
    selected: float
    folder: str
    """Where what it writes goes."""
    batch_size: int | None = None
    """The one to run at, where no argument says it; None leaves the script's own."""
    resizes_loaders: bool = False
    """Whether its loaders are given that batch size, as it has no option for it."""
    window: StepWindow | None = None
    """What to record, where that is known."""
    skip: int | None = None
    """Optimizer steps before it, where that is known."""
    as_rank: bool = False
    """Whether it finds the variables that a launcher sets."""
    packages: tuple[str, ...] = ()
    """Packages that are not installed and that it is to find all the same."""
    without_data: bool = False
    """Whether public data sets that are not on this machine are stood in for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptCapture:
    """What was recorded of a script."""

    capture: Capture
    window: StepWindow
    skipped: int
    """Optimizer steps before it."""
    batch_size: int
    """Of one pass: what the script's own option says, its loader has, or its model gets."""
    option: str | None
    """The option of its parser that is the batch size."""
    has_loaders: bool
    parameter_shapes: frozenset[tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnded:
    """A script that came to its end, or failed, before its steps were recorded."""

    turns: int
    """Optimizer steps it made."""
    window: StepWindow | None
    """What those show."""
    started: tuple[str, ...]
    """Programs and processes that it started."""
    made_gpu_tensors: bool


class ScriptDone(BaseException):
    """The steps are recorded. Not an `Exception`: a script must not catch it and go on."""

    def __init__(self, result: ScriptCapture) -> None:
        self.result = result
        super().__init__("the steps are recorded")


def capture_script(run: ScriptRun) -> ScriptCapture | ScriptEnded:
    """Run the script until its steps are recorded, or to its end. Its errors pass through."""
    notes = notes_of_imports()
    options = CaptureOptions(
        own_file=str(run.target.path), with_lines=True, selected=run.selected, changes=UNCHANGED
    )
    recorder = recorder_for(run.batch_size or 1, options)
    recorder.selection.values.draws_on_host = True
    around = ScriptSurroundings(notes, run.folder, run.batch_size)
    around.resizes_loaders = run.resizes_loaders
    if run.as_rank:
        as_first_rank()
        notes.add("RANK, WORLD_SIZE and the like were set as for one process.")
    with recording_on_fake_tensors(recorder, notes) as patches:
        around.install(patches)
        if run.without_data:
            patch_datasets(patches, notes)
        watch = _ScriptWatch(run, recorder, around, notes, patches)
        with watch.watching():
            try:
                _run(run.target)
            except ScriptDone as finished:
                return finished.result
            except SystemExit as leaving:
                if leaving.code not in (None, 0):
                    raise
    return watch.ended()


def _run(target: Target) -> None:
    sys.argv = [str(target.path), *target.arguments]
    sys.path.insert(0, str(target.path.parent))
    runpy.run_path(str(target.path), run_name="__main__")


class _ScriptWatch:
    """One script from its start to the end of the recording."""

    def __init__(
        self,
        run: ScriptRun,
        recorder: Recorder,
        around: ScriptSurroundings,
        notes: set[str],
        patches: AttributePatches,
    ) -> None:
        self._run = run
        self._recorder = recorder
        self._around = around
        self._notes = notes
        self._patches = patches
        self._order = StepOrder()
        self._optimizers: dict[int, int] = {}
        """The number of each optimizer, by its identity."""
        self._known: list[Optimizer] = []
        """All that were made and that have stepped: kept, so that identities stay theirs."""
        self._window = run.window
        self._first_s: float | None = None
        self._turns = 0
        self._has_run = False
        """Whether a module has."""
        self._evaluations = 0
        """Turns in which a model was put into evaluation mode."""
        self._begun_at: int | None = None
        """The optimizer step after which recording began."""
        self._parameters: list[Tensor] = []
        self._structure: StructureRecord | None = None
        self._stack = contextlib.ExitStack()
        self._rows = 0
        """Of the first input of a model with gradients, in the turn."""
        self._passes = 0
        self._recorded_passes = 0

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch optimizers, backward passes and what models are given."""
        patches = self._patches
        self._patch_new_optimizers(patches)
        self._patch_backward(patches)
        hooks = [
            optim.register_optimizer_step_post_hook(self._after_step),
            nn.modules.module.register_module_forward_pre_hook(self._before_forward),
        ]
        with remove_at_end(hooks), self._stack:
            yield

    def ended(self) -> ScriptEnded:
        """What to say of a script that came to its end."""
        return ScriptEnded(
            turns=self._turns,
            window=self._order.window(),
            started=tuple(self._around.started),
            made_gpu_tensors=bool(self._recorder.memory.history),
        )

    # What the script does

    def _patch_new_optimizers(self, patches: AttributePatches) -> None:
        original = Optimizer.__init__

        def initialise(optimizer: Optimizer, *args: object, **kwargs: object) -> None:
            original(optimizer, *args, **kwargs)
            self._known.append(optimizer)
            self._patch_imports()

        patches.set(Optimizer, "__init__", initialise)

    def _patch_imports(self) -> None:
        """Patch what the script has imported, once models and optimizers are made of it."""
        patch_imported_libraries(self._patches)
        patch_triton(self._patches)

    def _patch_backward(self, patches: AttributePatches) -> None:
        original = torch.autograd.backward

        def backward(*args: object, **kwargs: object) -> None:
            self._passes += 1
            original(*args, **kwargs)

        patches.set(torch.autograd, "backward", backward)

    def _before_forward(self, _: nn.Module, inputs: tuple[object, ...]) -> None:
        around = self._around
        if not self._turns and not self._has_run:
            self._has_run = True
            self._patch_imports()
        self._recorder.in_evaluation = around.in_evaluation and self._evaluates_seldom()
        first = inputs[0] if inputs else None
        if self._rows or not torch.is_grad_enabled() or not isinstance(first, Tensor):
            return
        if first.dim() and first.device.type == "cuda":
            self._rows = int(first.shape[0])

    def _evaluates_seldom(self) -> bool:
        """Whether models are put into evaluation mode between some steps only."""
        return 2 * self._evaluations <= self._turns or self._turns < 2

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        self._turns += 1
        if self._first_s is None:
            self._first_s = time.monotonic()
        self._evaluations += self._around.has_evaluated
        self._around.after_step()
        self._recorder.in_evaluation = False
        number = self._number(optimizer)
        if self._begun_at is not None:
            self._recorded_passes += self._passes
            if self._turns - self._begun_at >= self._needed().turns:
                self._finish()
        else:
            self._look(number)
        self._passes = 0
        self._recorder.forward_hash = self._recorder.forward_elements = 0
        self._recorder.start_step()

    def _number(self, optimizer: Optimizer) -> int:
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = len(self._optimizers)
            if not any(known is optimizer for known in self._known):
                self._known.append(optimizer)
        return self._optimizers[id(optimizer)]

    def _look(self, number: int) -> None:
        """Find out what makes a step, or wait until recording is to begin."""
        turn = OptimizerTurn(
            optimizer=number,
            forward=self._recorder.forward_hash,
            elements=self._recorder.forward_elements,
        )
        if self._run.window is not None:
            skip = self._run.skip if self._run.skip is not None else self._warm_up()
            if self._turns >= skip:
                self._begin()
            return
        assert self._first_s is not None
        passed_s = time.monotonic() - self._first_s
        self._window = self._order.add(turn, passed_s, len(self._known))
        if self._window is not None:
            self._begin()

    def _warm_up(self) -> int:
        return WARM_UP_STEPS * len(self._needed().order)

    def _needed(self) -> StepWindow:
        assert self._window is not None
        return self._window

    # Recording

    def _begin(self) -> None:
        self._begun_at = self._turns
        self._around.samples.clear()
        self._rows = 0
        self._parameters = start_recording(self._recorder)
        recording = record_structure(self._parameters, self._recorder.ops)
        self._structure = self._stack.enter_context(recording)

    def _finish(self) -> NoReturn:
        parameters = stop_recording(self._recorder, self._parameters)
        window = self._needed()
        pass_size, samples = self._sizes(window.steps)
        assert self._structure is not None
        if not window.is_regular:
            self._notes.add(
                "The optimizers of the script step in no order that repeats: "
                f"what is shown is the mean of {window.steps} steps."
            )
        capture = capture_of(
            self._recorder, parameters, self._structure, window.steps, self._notes, samples
        )
        assert self._begun_at is not None
        result = ScriptCapture(
            capture=capture,
            window=window,
            skipped=self._begun_at,
            batch_size=pass_size,
            option=self._around.option,
            has_loaders=bool(self._around.loader_sizes),
            parameter_shapes=frozenset(tuple(p.shape) for p in parameters),
        )
        raise ScriptDone(result)

    def _sizes(self, steps: int) -> tuple[int, int]:
        """The batch size, and the samples of a training step: of all passes that add up to one."""
        around = self._around
        given = around.batch_size or around.own_batch_size
        if around.samples:
            most = max(around.samples, key=lambda number: around.samples[number])
            batch_size = around.loader_sizes[most]
            if given is not None and around.samples[most] % given == 0:
                batch_size = given
            return batch_size, max(round(around.samples.total() / steps), 1)
        batch_size = given or self._rows or 1
        is_one = len(self._needed().order) == 1 or len(set(self._needed().order)) == 1
        passes = max(round(self._recorded_passes / steps), 1) if is_one else 1
        return batch_size, batch_size * passes
