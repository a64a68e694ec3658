"""What crosses between a training process and outlay, each record defined once for both sides.

To outlay, each process appends lines of JSON to a file of its own. A line is a list that begins
with its kind:

    ["step", 1, 0, ...]       an optimizer step: the fields of `OptimizerStep` in order
    ["device time", 1, 0.02]  when the GPU had finished it: `GpuFinishTime`
    ["KernelTimes", {...}]    any other report, by the name of its class; `REPORTS` has them all

From outlay, all processes map a small file into their memory that holds an `AgentRequest`.

The agent writes and `outlay.probe.messages` reads what is defined here. Both are of one version:
nothing has to stay as it is for older files.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

# Names of files and environment variables that both sides go by

FOLDER_VARIABLE = "OUTLAY_PROBE_FOLDER"
"""Where a probe's files are; `inject/sitecustomize.py` reads it before the agent is loaded."""
MEMORY_CAP_VARIABLE = "OUTLAY_PROBE_MEMORY_CAP_MIB"
"""What torch may take of a GPU."""
ALLOCATIONS_VARIABLE = "OUTLAY_PROBE_ALLOCATIONS"
"""Whether the allocations of the first steps are reported."""
AGENT_MODULE = "_outlay_agent"
"""The name under which `inject/sitecustomize.py` loads the agent."""
LONG_RUN_VARIABLE = "OUTLAY_PROBE_LONG_RUN"
"""Set where a run is only looked at, for days: steps are counted, none is written by itself. Its
value: after how many seconds their number is written at the earliest."""
LONG_RUN_FILE = "long_run"
"""The same, in the folder: a program with an environment of its own has lost the variable."""
CONTROL_FILE = "control"
LINES_SUFFIX = ".lines"
FIGURES_FILE = "figures.json"
"""Figures for trackers, written when the timing is over."""
FINAL_FIGURES_FILE = "last_figures.json"
"""Those of a script that ends by itself, which asks for them."""


# One optimizer step


class OptimizerStep:
    """One call of an optimizer's `step` that has ended, and what happened since the last one.

    The attributes in the order of `reset` are the fields of the line, and the columns of outlay's
    table of steps; their values there are the defaults, and say how a field is written.
    """

    def __init__(self, **values: float) -> None:
        self.reset()
        for name, value in values.items():
            setattr(self, name, value)

    def reset(self) -> None:
        """Set every field to what it is when nothing has happened."""
        self.number = 0
        """Optimizer steps of this process so far, from 1."""
        self.optimizer = 0
        """Which of the script's optimizers, numbered in the order of their first steps."""
        self.host_s = 0.0
        """When it returned, on the machine's monotonic clock, which all its processes share."""
        self.skipped = 0
        """Steps that a gradient scaler left out since the last one."""
        self.passes = 0
        """Backward passes."""
        self.batches = 0
        """Batches that came from DataLoaders, those of evaluations apart."""
        self.samples = 0
        """Samples in those; 0 where they could not be counted."""
        self.wait_s = 0.0
        """Waiting for those."""
        self.cpu_s = 0.0
        """CPU time of the process, all its threads."""
        self.evaluated = False
        """Whether a model was put into evaluation mode."""
        self.saves = 0
        """Checkpoints written."""
        self.saved_s = 0.0
        """Writing them."""
        self.new_epoch = False
        """Whether a DataLoader was started anew."""
        self.evaluation_batches = 0
        """Batches of DataLoaders that are not trained on."""
        self.mostly_no_grad = False
        """Whether most of the time was spent without gradients."""
        self.evaluation_s = 0.0
        """With a model in evaluation mode, or without gradients, whichever was longer."""
        self.recorded = False
        """Whether operations were recorded meanwhile: its time is no step's."""


STEP = "step"
STEP_FIELDS = tuple(vars(OptimizerStep()))
StepValues = tuple[float, ...]
"""A value for each of the fields."""
step_values = attrgetter(*STEP_FIELDS)
"""The values of a record, in order."""


class GpuFinishTime(NamedTuple):
    """When the GPU had finished a step, on a clock of its own."""

    step: int = 0
    device_s: float = 0.0


DEVICE_TIME = "device time"


def _row_format(kind: str, defaults: Any) -> bytes:
    formats = {bool: b"%d", int: b"%d", float: b"%.7f"}
    return b'["%s",%s]' % (kind.encode(), b",".join(formats[type(value)] for value in defaults))


_STEP_FORMAT = _row_format(STEP, step_values(OptimizerStep()))
_DEVICE_TIME_FORMAT = _row_format(DEVICE_TIME, GpuFinishTime())


def step_line(values: StepValues) -> bytes:
    """A step as a line, without its end."""
    return _STEP_FORMAT % values


def device_time_line(time: GpuFinishTime) -> bytes:
    """When a step was finished, as a line."""
    return _DEVICE_TIME_FORMAT % time


# Reports, of what comes more seldom than every step


class TorchImported(NamedTuple):
    """The process has imported torch."""

    version: str


class ProcessInfo(NamedTuple):
    """What a process says of itself at its first step."""

    pid: int = 0
    argv: Sequence[str] = ()
    rank: int = 0
    local_rank: int = 0
    world_size: int = 0
    python: str | None = None
    torch: str | None = None
    device: Any = None
    """What it trains on: cpu, cuda, rocm or mps; the fields below are of GPUs."""
    gpu: str | None = None
    gpu_bytes: int | None = None
    uuid: str | None = None
    bus: str | None = None
    available_bytes: int | None = None
    """What torch's allocator has, and what is free on the GPU."""
    cuda: str | None = None
    cudnn: int | None = None


UNKNOWN_OPTIMIZER = "Unseen"
"""The name of an optimizer that is none of torch's."""


class OptimizerInfo(NamedTuple):
    """An optimizer at its first step, and again when it has got more parameters."""

    number: int
    name: str
    parameters: int


class LoaderInfo(NamedTuple):
    """A DataLoader that is trained on."""

    batch_size: int | None
    batches: int | None
    """Of an epoch; None where it has no length."""
    workers: int
    pin_memory: bool
    persistent_workers: bool


class LoaderUse(NamedTuple):
    """What a DataLoader has given to train on so far; steps are of optimizers, by their numbers."""

    number: int
    length: int | None
    """Batches of an epoch; None where it has no length."""
    is_trained_on: bool = False
    steps: int = 0
    """For which it was used."""
    batches: int = 0
    batches_before_last: int = 0
    """Without those of the last step it was used for."""
    first_step: int = 0
    last_step: int = 0
    """The first and the last step it was used for."""
    starts: int = 0
    """How often it was begun anew."""
    ends: int = 0
    """How often it was at its end."""
    started_at: Sequence[int] = ()
    """The last steps for which it was."""


class LoaderUses(NamedTuple):
    """The DataLoaders that have given batches, each as a dictionary of `LoaderUse`."""

    loaders: Sequence[Any] = ()


class ModuleInputs(NamedTuple):
    """What modules were given in one step, each new input counted once."""

    samples: int = 0
    """Rows of the first."""
    inputs: int = 0
    rows: int = 0
    """Of all of them."""
    module: str = ""
    """The class of the module that got the first."""
    step: int = 0
    passes: int = 0
    batches: int = 0
    """Of DataLoaders in the same step."""
    loaded: int = 0
    """Samples in those."""
    singles: int = 0
    """Samples that the model got one at a time for one backward pass, as when it acts in an
    environment; 0 where it got batches."""
    alike: int = 1
    """Inputs of as many rows that the same module got for the first pass: views, or batches."""


class MathSettings(NamedTuple):
    """How torch computes products on a GPU, by its switches, as they are in the first steps."""

    has_tf32: bool | None = None
    """Whether the GPU has TF32 at all; without, products of fp32 are computed in fp32."""
    matmul_tf32: bool | None = None
    """Whether matrix products of fp32 may be computed in TF32."""
    conv_tf32: bool | None = None
    """Whether convolutions of fp32 may be; torch allows that unless a script forbids it."""
    cudnn_benchmark: bool | None = None
    """Whether cuDNN tries its algorithms for each new shape of a convolution."""


class MemoryPeaks(NamedTuple):
    """The most that torch's allocator has had of a GPU."""

    allocated_bytes: int
    reserved_bytes: int
    given_back_allocated_bytes: int = 0
    """The most that tensors had while cuDNN tried algorithms, which was given back since; what it
    is more than `allocated_bytes` no step needs."""
    given_back_reserved_bytes: int = 0
    """What the allocator had reserved then."""


class PersistentMemory(NamedTuple):
    """Bytes that stay from one step to the next."""

    parameters: int = 0
    gradients: int = 0
    optimizer_states: int = 0
    frozen: int | None = None
    """Parameters and buffers of modules that no optimizer updates."""


class MemoryLimit(NamedTuple):
    """The script, or outlay, has limited what torch may take of a GPU."""

    fraction: float


class MemoryExhausted(NamedTuple):
    """Torch could not get memory; the script may go on nevertheless."""

    requested_bytes: int | None = None


class AllocationEvents(NamedTuple):
    """What the allocator was asked for in the first steps.

    Sizes in bytes in the order they were asked for; minus n where the n-th of them ended, from 1.
    """

    events: list[int]


class Loss(NamedTuple):
    """The loss of a step; None where it is no finite number."""

    step: int
    value: float | None


class CpuQueueTime(NamedTuple):
    """The share of the time that the training thread waited for a CPU."""

    fraction: float = 0.0


class KernelTimes(NamedTuple):
    """What a profile of a few steps has seen of the GPU's kernels."""

    optimizer_steps: int
    busy_s: float = 0.0
    """In which any kernel ran that does not exchange data between GPUs."""
    exchange_s: float = 0.0
    """In which only kernels ran that do."""
    kernels: int = 0
    longest: Sequence[Any] = ()
    """The names of some, and the seconds that each took in all."""


class RecordedOperations(NamedTuple):
    """The operations of one training step, or of one repeating pattern of them."""

    recording: dict[str, Any]
    """As `outlay.trace.capture.live_recorder` gives it."""
    optimizer_steps: int
    first_step: int = 0
    last_step: int = 0
    """Numbers of the optimizer steps that were recorded."""
    inputs: dict[str, Any] | None = None
    """The fields of `ModuleInputs` of the first of them, where that was seen."""


class StepOperations(NamedTuple):
    """The operations of one of the first optimizer steps: some make a training step together."""

    step: int
    """The number of the optimizer step."""
    recording: dict[str, Any]
    """As `outlay.trace.capture.live_recorder` gives it; parameters are those of all optimizers
    that stepped while it recorded."""
    inputs: dict[str, Any] | None = None
    """The fields of `ModuleInputs` of this step, where that was seen."""


class AfterLastStep(NamedTuple):
    """What there was between the last step and the end of the script."""

    passed_s: float = 0.0
    evaluation_s: float = 0.0
    """As in `OptimizerStep`."""
    has_evaluated: bool = False
    """Whether a model was put into evaluation mode, or most of the time had no gradients."""


class PhaseFailed(NamedTuple):
    """Profiling or recording has failed."""

    phase: str
    why: str


class StepsDiscarded(NamedTuple):
    """What were taken for steps so far were backward passes: an optimizer has come."""


class LibraryVersions(NamedTuple):
    """The libraries that the script has imported, by name."""

    versions: dict[str, str]


class CompiledFrames(NamedTuple):
    """Functions of the script that torch has compiled."""

    frames: int


class AgentFailed(NamedTuple):
    """The agent has stopped watching, for an error of its own."""

    error: str


class Stopping(NamedTuple):
    """The process is about to end, as outlay asked it to."""

    step: int


class RunProgress(NamedTuple):
    """How far a process has come, of a run that is only looked at; at most once a second."""

    steps: int = 0
    """Training steps: several optimizers that step by turns make one together."""
    batches: int = 0
    """Of all DataLoaders, to train on or to evaluate."""
    checkpoints: int = 0
    saving_s: float = 0.0
    """The longest that writing one has taken."""
    stack: str = ""
    """Where the training thread is, after a while without a step: `blocked` in a call of torch's
    that waits, `compiling`, or `other`; empty while steps come."""
    stack_s: float = 0.0
    """For how long its stack has been the same."""
    where: str = ""
    """The innermost function of it."""


class AwaitingFigures(NamedTuple):
    """The script has ended by itself, and waits for figures to log to a tracker."""


REPORTS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(TorchImported, ProcessInfo, OptimizerInfo, LoaderInfo, LoaderUses, ModuleInputs),
        *(MathSettings, MemoryPeaks, PersistentMemory, MemoryLimit, MemoryExhausted),
        *(AllocationEvents, Loss, CpuQueueTime, KernelTimes, RecordedOperations, StepOperations),
        *(PhaseFailed, StepsDiscarded, AfterLastStep),
        *(LibraryVersions, CompiledFrames, AgentFailed, Stopping, AwaitingFigures, RunProgress),
    )
}


def report_line(report: Any) -> bytes:
    """A report as a line, without its end."""
    return json.dumps([type(report).__name__, report._asdict()], default=str).encode()


def parse_report(kind: str, values: dict[str, Any]) -> Any:
    """The report in a line."""
    return REPORTS[kind](**values)


# What outlay asks for


class AgentRequest(NamedTuple):
    """What outlay wants, as numbers of optimizer steps of each process; 0 is nothing."""

    profile_from: int = 0
    profile_until: int = 0
    record_from: int = 0
    record_until: int = 0
    stop_at: int = 0
    early_steps: int = 0
    """How many of the first may be recorded, until they make a whole training step."""

    @property
    def is_for_later(self) -> bool:
        """Whether something is requested that comes after the timing."""
        return bool(self.profile_from or self.record_from or self.stop_at)

    def delayed(self, steps: int) -> AgentRequest:
        """The same, so many steps later."""
        numbers = (number + steps if number else 0 for number in self)
        return AgentRequest(*numbers)._replace(early_steps=self.early_steps)

    def packed(self) -> bytes:
        """As the control file holds it."""
        return _REQUEST.pack(*self)

    @classmethod
    def unpacked(cls, data: bytes) -> AgentRequest:
        """The request in those bytes."""
        return cls(*_REQUEST.unpack(data))


_REQUEST = struct.Struct(f"={len(AgentRequest._fields)}q")
NO_REQUEST = AgentRequest()
REQUEST_BYTES = _REQUEST.size
