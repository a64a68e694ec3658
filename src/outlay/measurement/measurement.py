"""What a probe really saw: how long a step took, on what, and what it waited for.

A `Measurement` is written by `outlay probe` and by the blocks and callbacks of `outlay.inline`; it
is kept as JSON (`measurement_file`) and carried to other GPUs by `predict` and `plan`. What was not
seen is None, never 0.
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
Holder = Literal["gpu", "input", "host", "network", "cpu"]
"""What a step waits for most; `cpu` where it computes on the CPU."""
Verdict = Literal["ok", "look", "bad", "unknown"]
PauseKind = Literal["evaluation", "checkpoint", "epoch start", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGpu:
    """A GPU that the command ran on, as its driver names it."""

    name: str
    memory_bytes: float | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    uuid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMachine:
    """The machine it ran on."""

    system: str
    cpu: str | None = None
    cpu_threads: int | None = None
    ram_bytes: float | None = None
    gpus: tuple[MeasuredGpu, ...] = ()
    """Those that were used, one for each rank on this machine; empty for a run on the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Steps in the steady state, on the slowest rank. A step may have several optimizer steps."""

    mean_s: float
    low_s: float
    high_s: float
    """The 95 % confidence interval of the mean is low_s to high_s."""
    median_s: float
    p10_s: float
    p90_s: float
    steps: int
    """Counted for the mean."""
    warm_up_steps: int
    """Left out at the beginning."""
    is_steady: bool
    """Whether a steady state was seen: without it, the mean is of what there is."""

    @property
    def precision(self) -> float:
        """Half the confidence interval over the mean."""
        return (self.high_s - self.low_s) / 2 / self.mean_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPause:
    """Time between steps that is no step: evaluations, checkpoints, new epochs."""

    kind: PauseKind
    times: int
    total_s: float
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
    parameters: int
    per_step: float
    """How often it steps in one training step (a GAN's discriminator may several times)."""
    skipped: int = 0
    """Steps that a gradient scaler left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredMemory:
    """Memory of the fullest GPU: torch's own figures, and the driver's."""

    allocated_bytes: float | None = None
    """The most at once, as `torch.cuda.max_memory_allocated`."""
    reserved_bytes: float | None = None
    used_bytes: float | None = None
    """As the driver has it, with the context and others' use."""
    limit_bytes: float | None = None
    """What the allocator may take, where the script or `--memory-cap-mib` limits it."""
    available_bytes: float | None = None
    """What the allocator could have taken in all: its own and what was free."""
    parameters_bytes: float | None = None
    gradients_bytes: float | None = None
    optimizer_bytes: float | None = None
    frozen_bytes: float | None = None
    """Parameters and buffers of modules that no optimizer updates: a base model, a teacher."""
    host_bytes: float | None = None
    """Resident memory of the command and all it started, at its highest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPower:
    """Power and energy of the GPUs together, in the steady state."""

    mean_w: float
    max_w: float
    energy_per_step_j: float


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
    evidence: tuple[str, ...]
    cures: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the list "is it training properly?"."""

    name: str
    verdict: Verdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What was read at one moment, seconds after the command was started."""

    time_s: float
    gpu_fraction: float | None = None
    """Of the last moment in which some kernel ran; a mean over the GPUs used."""
    gpu_memory_bytes: float | None = None
    """In use on the fullest of them."""
    power_w: float | None = None
    """Of all of them together."""
    clock_fraction: float | None = None
    """The clock over its maximum, of the slowest."""
    temperature_c: float | None = None
    slowed_by: tuple[str, ...] = ()
    """Why the driver holds a clock down: `power`, `heat`, `hardware`."""
    cpu_fraction: float | None = None
    """Of all CPU threads of the machine."""
    process_cpus: float | None = None
    """CPU threads that the command and all it started kept busy."""
    process_bytes: float | None = None
    swapped_bytes_per_s: float | None = None
    """Swapped in and out."""
    disk_fraction: float | None = None
    """Time in which the busiest disk had work."""
    read_bytes_per_s: float | None = None
    """Read from disks by the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One probe of one command."""

    command: tuple[str, ...]
    measured_on: str
    """YYYY-MM-DD."""
    ending: Ending
    status: int
    machine: MeasuredMachine
    device: Literal["cuda", "rocm", "mps", "cpu"] | None
    """What the steps computed on; None where no step was seen."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """python, torch, cuda, and the libraries the script had imported."""
    stopped_for: StoppedFor | None = None
    """The limit at which outlay stopped it; None where it ended otherwise, or was not told."""
    is_compiled: bool | None = None
    """Whether torch compiled any of its functions; None where that was not told."""
    ranks: int = 0
    """Processes that trained on this machine."""
    world_size: int = 0
    """Processes that trained on all machines."""
    step: StepTime | None = None
    """None where no steps, or too few, were seen."""
    steps_seen: int = 0
    """Training steps in all, warm-up included."""
    ran_out_of_memory: bool = False
    """Whether torch could not get GPU memory once or more, whatever the script made of it."""
    samples_per_step: float | None = None
    """Of the usual step of one rank; None where nothing told."""
    mean_samples_per_step: float | None = None
    """Of all steps that count, the last of an epoch included that may have fewer; None where only
    the usual one is known."""
    passes_per_step: float | None = None
    """Batches that one optimizer step is made of (gradient accumulation)."""
    optimizers: tuple[MeasuredOptimizer, ...] = ()
    start_up_s: float | None = None
    """From the start of the command to the end of its first step."""
    warm_up_s: float | None = None
    """From there to the steady state."""
    elapsed_s: float = 0.0
    step_times: tuple[tuple[float, float], ...] = ()
    """For pictures: when a step ended, in seconds after the start of the command, and how long it
    took; at most some 2000, thinned where there were more."""
    pauses: tuple[MeasuredPause, ...] = ()
    steps_per_epoch: float | None = None
    total_steps: int | None = None
    """What the script is about to do, where it says so."""
    memory: MeasuredMemory = MeasuredMemory()
    power: MeasuredPower | None = None
    gpu_fraction: float | None = None
    """Time in the steady state in which some kernel ran, by the driver's samples."""
    busy_s: float | None = None
    """Time of one step in which kernels other than exchanges ran, by a profile of a few steps."""
    shares: TimeShares = TimeShares()
    finding: Finding | None = None
    checks: tuple[Check, ...] = ()
    samples: tuple[Sample, ...] = ()
    losses: tuple[tuple[int, float | None], ...] = ()
    """Some of the losses: optimizer step, value; None where that was no finite number.

    Of one backward pass, before a gradient scaler; where a step has several passes, scripts may
    divide each by their number, or not."""
    price_usd_per_hour: float | None = None
    profile: Profile | None = None
    """The operations of one step on one rank; None where they were not recorded."""
    notes: tuple[str, ...] = ()
    """What was not seen and why, and what was taken for granted."""

    @property
    def batch_size(self) -> int | None:
        """Samples of one pass on a GPU."""
        if self.samples_per_step is None:
            return None
        return round(self.samples_per_step / (self.passes_per_step or 1))

    @property
    def samples_per_s(self) -> float | None:
        """Of all ranks together, pauses apart."""
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
        seen = max(self.steps_seen, 1)
        return Estimate(
            low=max(pause.times - 1, 0) / seen,
            likely=pause.times / seen,
            high=(pause.times + 1) / seen if pause.times else 0.0,
        )

    @property
    def usd(self) -> float | None:
        """What the probe itself cost."""
        if self.price_usd_per_hour is None:
            return None
        return self.price_usd_per_hour * self.elapsed_s / 3600
