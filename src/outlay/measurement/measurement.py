"""What a probe really saw: how long a step took, on what, and what it waited for.

A `Measurement` is written by `outlay probe` and by the blocks and callbacks of `outlay.inline`; it
is kept as JSON (`measurement.file`) and carried to other GPUs by `predict` and `plan`. What was not
seen is None, never 0. What is said of a field here is its description in the JSON schema, too;
`JSON_PROPERTIES` are worked out from the fields, written and not read back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from outlay.trace.profile import Profile
from outlay.uncertainty import Estimate

Ending = Literal[
    "stopped",  # by outlay, once enough was seen
    "finished",  # by itself, with status 0
    "failed",  # by itself, with another status
    "killed",  # by a signal that was not outlay's
    "interrupted",  # by the user, at outlay's own terminal
]
StoppedFor = Literal["steps", "time", "precision", "cost"]
"""Which limit was reached."""
Holder = Literal["gpu", "input", "host", "network", "cpu", "unknown"]
"""What holds a step back: the GPU where it works nearly all the time, else what it waits for most;
`cpu` where a step computes on the CPU, `unknown` where the GPU waits and nothing tells for what."""
Verdict = Literal["ok", "look", "bad", "unknown"]
PauseKind = Literal["evaluation", "checkpoint", "epoch start", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGpu:
    """A GPU that the command ran on, as its driver names it."""

    name: str
    """As the driver has it."""
    memory_bytes: float | None = None
    """Its memory, in bytes."""
    driver: str | None = None
    """Version of the driver."""
    power_limit_w: float | None = None
    """What it may draw, in watts."""
    uuid: str | None = None
    """The driver's own identifier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMachine:
    """The machine it ran on."""

    system: str
    """The operating system."""
    cpu: str | None = None
    """Name of the CPU."""
    cpu_threads: int | None = None
    """Threads of all CPUs."""
    ram_bytes: float | None = None
    """Memory of the machine, in bytes."""
    gpus: tuple[MeasuredGpu, ...] = ()
    """Those that were used, one for each rank on this machine; empty for a run on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Steps in the steady state, on the slowest rank. A step may have several optimizer steps."""

    JSON_PROPERTIES = ("precision",)
    mean_s: float
    """Mean, in seconds."""
    low_s: float
    """Lower end of the mean's 95 % confidence interval, in seconds."""
    high_s: float
    """Upper end of it, in seconds."""
    median_s: float
    """Half the steps were faster, in seconds."""
    p10_s: float
    """A tenth was faster, in seconds."""
    p90_s: float
    """A tenth was slower, in seconds."""
    steps: int
    """Steps counted for the mean."""
    warm_up_steps: int
    """Steps left out at the beginning."""
    is_steady: bool
    """Whether a steady state was seen: without it, the mean is of what there is."""

    @property
    def precision(self) -> float:
        """Half the confidence interval over the mean, as a fraction."""
        return (self.high_s - self.low_s) / 2 / self.mean_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPause:
    """Time between steps that is no step: evaluations, checkpoints, new epochs."""

    kind: PauseKind
    """What it was."""
    times: int
    """How often."""
    total_s: float
    """All of them together, in seconds."""
    spans: tuple[tuple[float, float], ...] = ()
    """When, for pictures: seconds after the start at which one began, and its seconds; some of
    them where there are many."""
    every_steps: float | None = None
    """Steps from one to the next, on average, where two or more of those that come regularly were
    seen: their number alone says less, as a probe ends at any moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOptimizer:
    """An optimizer of the script."""

    name: str
    """Its class."""
    parameters: int
    """Parameters it updates."""
    per_step: float
    """How often it steps in one training step (a GAN's discriminator may several times)."""
    skipped: int = 0
    """Steps that a gradient scaler left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerOrder:
    """An order in which the script's optimizers step within one training step."""

    optimizers: tuple[int, ...]
    """One for each of their steps, in order: the optimizer's place in `optimizers`, from 0."""
    fraction: float
    """Share of training steps that had this order, 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModes:
    """Two lengths that training steps have, with nothing in between."""

    fast_s: float
    """The shorter ones, their median, in seconds."""
    slow_s: float
    """The longer ones, their median, in seconds."""
    slow_fraction: float
    """Share of steps that are longer, 0 to 1."""
    period: int | None = None
    """Steps after which short and long ones repeat; None where they come in no such order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Memory of the fullest GPU: torch's own figures, and the driver's."""

    allocated_bytes: float | None = None
    """The most that tensors took at once, in bytes, as `torch.cuda.max_memory_allocated`; cuDNN's
    search apart, where there was one."""
    reserved_bytes: float | None = None
    """The most that torch's allocator reserved, in bytes; cuDNN's search apart."""
    search_bytes: float | None = None
    """What the allocator had reserved while cuDNN tried its algorithms (`cudnn.benchmark`), in
    bytes, where that was more, and given back: cuDNN does with less where there is less."""
    used_bytes: float | None = None
    """The most in use as the driver has it, with the context and others' use, in bytes."""
    limit_bytes: float | None = None
    """What the allocator may take, in bytes, where the script or `--memory-cap-mib` limits it."""
    available_bytes: float | None = None
    """What the allocator could have taken in all, its own and what was free, in bytes."""
    parameters_bytes: float | None = None
    """Parameters, in bytes."""
    gradients_bytes: float | None = None
    """Gradients, in bytes."""
    optimizer_bytes: float | None = None
    """State of the optimizers, in bytes."""
    frozen_bytes: float | None = None
    """Parameters and buffers of modules that no optimizer updates (a base model, a teacher), in
    bytes."""
    host_bytes: float | None = None
    """Resident memory of the command and all it started, at its highest, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPower:
    """Power and energy of the GPUs together, in the steady state."""

    mean_w: float
    """Mean, in watts."""
    max_w: float
    """Highest, in watts."""
    energy_per_step_j: float
    """Energy of a step, in joules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Where the time of a step goes, as fractions of it that sum to 1; None where not known."""

    compute: float | None = None
    """The GPU (or the CPU, in a run on it) works on the step."""
    network: float | None = None
    """Exchange between GPUs that nothing hides."""
    input: float | None = None
    """Waiting for the next batch while nothing is left to compute."""
    host: float | None = None
    """The GPU waits for Python, for launches and for values read back; on a CPU, asleep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What holds a run back, why we think so, and what usually helps."""

    holder: Holder
    """What holds it back: the GPU where it works nearly all the time, else what it waits for
    most."""
    evidence: tuple[str, ...]
    """Why we think so."""
    cures: tuple[str, ...]
    """What usually helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the list "is it training properly?"."""

    name: str
    """What is asked."""
    verdict: Verdict
    """The answer."""
    why: str
    """By what."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was read at one moment, seconds after the command was started."""

    time_s: float
    """Seconds after the start."""
    gpu_fraction: float | None = None
    """Share of the last moment in which some kernel ran, 0 to 1; a mean over the GPUs used."""
    gpu_memory_bytes: float | None = None
    """In use on the fullest of them, in bytes."""
    power_w: float | None = None
    """Of all of them together, in watts."""
    clock_fraction: float | None = None
    """The clock over its maximum, of the slowest."""
    temperature_c: float | None = None
    """Of the hottest, in degrees Celsius."""
    slowed_by: tuple[str, ...] = ()
    """Why the driver holds a clock down: `power`, `heat`, `hardware`."""
    cpu_fraction: float | None = None
    """Busy CPU threads of the machine, 0 to 1."""
    process_cpus: float | None = None
    """CPU threads that the command and all it started kept busy."""
    process_bytes: float | None = None
    """Resident memory of those, in bytes."""
    swapped_bytes_per_s: float | None = None
    """Swapped in and out, in bytes a second."""
    disk_fraction: float | None = None
    """Time in which the busiest disk had work, 0 to 1."""
    read_bytes_per_s: float | None = None
    """Read from disks by the machine, in bytes a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One probe of one command."""

    JSON_PROPERTIES = ("batch_size", "samples_per_s", "usd")
    command: tuple[str, ...]
    """What was run, word by word."""
    measured_on: str
    """The day, YYYY-MM-DD."""
    ending: Ending
    """How the command ended; `stopped` is by outlay."""
    status: int
    """The command's exit status; a signal is negative."""
    machine: MeasuredMachine
    """The machine it ran on."""
    device: Literal["cuda", "rocm", "mps", "cpu"] | None
    """What the steps computed on; None where no step was seen."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of python, torch, cuda, and the libraries the script had imported, by name."""
    stopped_for: StoppedFor | None = None
    """The limit at which outlay stopped it; None where it ended otherwise, or where older versions
    did not write it."""
    is_compiled: bool | None = None
    """Whether torch.compile compiled any of its functions; None where that is not known, as of
    measurements by older versions."""
    ranks: int = 0
    """Processes that trained on this machine."""
    world_size: int = 0
    """Processes that trained on all machines."""
    step: StepTime | None = None
    """Step time in the steady state, on the slowest rank; None where no steps, or too few, were
    seen."""
    steps_seen: int = 0
    """Training steps in all, warm-up included."""
    ran_out_of_memory: bool = False
    """Whether torch could not get GPU memory once or more, whatever the script made of it."""
    samples_per_step: float | None = None
    """Samples of one rank in the usual step; None where nothing told."""
    mean_samples_per_step: float | None = None
    """The mean of all steps that count, the last of an epoch included that may have fewer; None
    where only the usual one is known."""
    passes_per_step: float | None = None
    """Batches that one optimizer step is made of (gradient accumulation)."""
    optimizers: tuple[MeasuredOptimizer, ...] = ()
    """The script's optimizers, as first seen."""
    optimizer_orders: tuple[OptimizerOrder, ...] = ()
    """What was counted as one training step where several optimizers step: their orders, the most
    frequent first, rare ones left out. Empty with one optimizer, where each of their steps counts
    by itself, and in measurements by older versions."""
    step_modes: StepModes | None = None
    """Where steps are of two clearly different lengths: which. What was counted as one training
    step may then be a part of one, or of two kinds."""
    start_up_s: float | None = None
    """From the start of the command to the end of its first step, in seconds."""
    warm_up_s: float | None = None
    """From there to the steady state, in seconds."""
    elapsed_s: float = 0.0
    """How long the command ran, in seconds."""
    step_times: tuple[tuple[float, float], ...] = ()
    """For pictures: when a step ended, in seconds after the start of the command, and how long it
    took; at most some 2000, thinned where there were more."""
    pauses: tuple[MeasuredPause, ...] = ()
    """Time between steps that is no step, by kind."""
    steps_per_epoch: float | None = None
    """Training steps between two starts of the DataLoader."""
    total_steps: int | None = None
    """Training steps of the whole run, where the script says so."""
    memory: MeasuredMemory = MeasuredMemory()
    """Memory of the fullest GPU, and of the host."""
    power: MeasuredPower | None = None
    """The GPUs together, in the steady state."""
    gpu_fraction: float | None = None
    """Time in the steady state in which some kernel ran, by the driver's samples, 0 to 1."""
    busy_s: float | None = None
    """Time of one step in which kernels other than exchanges ran, by a profile of a few steps, in
    seconds."""
    arithmetic: Mapping[str, float] | None = None
    """How matrix products and convolutions were computed: shares of their FLOPs by precision (fp32,
    tf32, fp16, bf16, fp64), with TF32 only where the GPU has it; None where no operations were
    recorded, or none of those."""
    shares: TimeShares = TimeShares()
    """Where the time of a step goes, as fractions that sum to 1."""
    finding: Finding | None = None
    """What holds it back."""
    checks: tuple[Check, ...] = ()
    """Is it training properly? One line a question."""
    samples: tuple[Sample, ...] = ()
    """What was read while it ran."""
    losses: tuple[tuple[int, float | None], ...] = ()
    """Some of the losses: optimizer step, value; None where that was no finite number.

    Of one backward pass, before a gradient scaler; where a step has several passes, scripts may
    divide each by their number, or not."""
    price_usd_per_hour: float | None = None
    """The price given for the machine, in US dollars an hour."""
    profile: Profile | None = None
    """The operations of one step on one rank; None where they were not recorded."""
    notes: tuple[str, ...] = ()
    """What was not seen and why, and what was taken for granted."""

    @property
    def batch_size(self) -> int | None:
        """Samples of one pass on a GPU; worked out."""
        if self.samples_per_step is None:
            return None
        return round(self.samples_per_step / (self.passes_per_step or 1))

    @property
    def samples_per_s(self) -> float | None:
        """Of all ranks together, pauses apart; worked out."""
        samples = self.mean_samples_per_step or self.samples_per_step
        if self.step is None or samples is None:
            return None
        return samples * max(self.world_size, 1) / self.step.mean_s

    def pauses_per_step(self, pause: MeasuredPause) -> Estimate:
        """How often pauses of one kind come, for each step.

        By the steps between them; new epochs, by the steps that one has; else by their number: seen
        n times in N steps, they come n - 1 to n + 1 times in so many.
        """
        every = pause.every_steps
        if every is None and pause.kind == "epoch start":
            every = self.steps_per_epoch
        if every:
            return Estimate.exactly(1 / every)
        steps = max(self.steps_seen, 1)
        return Estimate(
            low=max(pause.times - 1, 0) / steps,
            likely=pause.times / steps,
            high=(pause.times + 1) / steps if pause.times else 0.0,
        )

    @property
    def usd(self) -> float | None:
        """What the probe itself cost, in US dollars; worked out."""
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour * self.elapsed_s / 3600
