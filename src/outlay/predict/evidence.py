"""What a prediction has to go on beside its model, and the correction that is made of it.

In: `MeasuredStep`s of the step that is predicted (`predict.from_probe` reads them from probes), and
a `LearnedCalibration` of the user's GPUs and hosts (`predict.learn`); together the `Evidence`.
Out: the `Correction` of one prediction (`predict.correct` works it out; `predict.step` and
`predict.parallel` apply it). Here are these values, and how long the input of a step that waited
for it takes to arrive on another machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from outlay.hardware.gpus import Gpu
from outlay.measurement.measurement import Holder
from outlay.predict.calibration import Calibration
from outlay.uncertainty import Estimate

# Evidence

PREDICTED, MEASURED = "predicted", "measured"
Configuration = tuple[str, int, int, int, float | None]
"""Where a step runs: GPU, batch size of one GPU, GPUs, machines, power limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """One measured step, as far as a prediction can use it."""

    gpu: Gpu
    batch_size: int
    """Of one GPU."""
    step_s: float
    error: float = 0.0
    """Relative standard error of that mean."""
    busy_s: float | None = None
    """Of that, kernels ran, exchanges apart."""
    holder: Holder | None = None
    """What it waited for; None: whichever of GPU and host is predicted to be slower."""
    gpus: int = 1
    nodes: int = 1
    power_limit_w: float | None = None
    """Where the GPU was held to less than it was shipped with."""
    fits: bool = True
    """Whether it ran without running out of memory."""
    busy_threads: float | None = None
    """CPU threads that its processes kept busy, for each GPU of a machine."""
    cpu_threads: float | None = None
    """Of the machine."""

    @property
    def configuration(self) -> Configuration:
        """Where it ran: steps of one configuration should take the same time."""
        return self.gpu.name, self.batch_size, self.gpus, self.nodes, self.power_limit_w


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFactor:
    """What the user's own measurements say of one GPU, or of one host."""

    name: str
    """Of a host, its CPU's."""
    measurements: int
    mean_ratio: float
    """Measured over predicted."""
    factor: float
    """That, shrunk towards 1 by how well the prediction was known before."""
    error_before: float
    error: float
    steps: int = 1
    """Distinct ones among the measurements: each counts once."""
    is_bounded: bool = False
    """Whether the factor would be further from 1 than what is known of such a GPU allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedCalibration:
    """What was learned from the user's own measurements, whatever they trained."""

    gpus: tuple[LearnedFactor, ...] = ()
    host: LearnedFactor | None = None
    """What predictions use: the mean over `hosts`."""
    hosts: tuple[LearnedFactor, ...] = ()
    """By CPU."""

    def of(self, gpu: Gpu) -> LearnedFactor | None:
        """What was learned of one GPU."""
        return next((factor for factor in self.gpus if factor.name == gpu.name), None)

    def gpu_factor(self, gpu: Gpu) -> float:
        """What a GPU's predicted time is multiplied by."""
        learned = self.of(gpu)
        return 1.0 if learned is None else learned.factor

    @property
    def host_factor(self) -> float:
        """What the host's predicted time is multiplied by."""
        return 1.0 if self.host is None else self.host.factor


NOTHING_LEARNED = LearnedCalibration()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a prediction has to go on beside its model: this step measured, and others."""

    measured: tuple[MeasuredStep, ...] = ()
    learned: LearnedCalibration = NOTHING_LEARNED
    notes: tuple[str, ...] = ()
    """What of the measurements could not be used, and why."""

    def largest_batch_on(self, gpu: Gpu) -> int:
        """The largest batch that was measured to fit on one such GPU; 0 where none was."""
        return max(
            (
                step.batch_size
                for step in self.measured
                if step.fits and step.gpu.name == gpu.name and step.gpus * step.nodes == 1
            ),
            default=0,
        )


NO_EVIDENCE = Evidence()


def never_measured(gpu: Gpu, calibration: Calibration) -> bool:
    """Whether no prediction for a GPU of its architecture was ever held against a measurement.

    Its times rest on its datasheet alone. The error of a checked architecture has the measurements
    behind it as its source; that of any other is a guess and says so.
    """
    return calibration.is_guess(f"error_on_{gpu.architecture}")


def is_checked(gpu: Gpu, evidence: Evidence, calibration: Calibration) -> bool:
    """Whether predictions for such a GPU were held against a measurement, published or the user's.

    The user's are of this step on that GPU, or of other steps that it was calibrated with.
    """
    return (
        not never_measured(gpu, calibration)
        or evidence.learned.of(gpu) is not None
        or any(step.gpu.name == gpu.name for step in evidence.measured)
    )


def gpu_error(gpu: Gpu, learned: LearnedCalibration, calibration: Calibration) -> float:
    """Relative error of a GPU's own figures: rates under load, bandwidth, its library."""
    factor = learned.of(gpu)
    if factor is not None:
        return factor.error
    return calibration.first(f"error_on_{gpu.architecture}", "error_on_others")


# The correction


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What the evidence makes of a prediction on one GPU at one batch size."""

    device_factor: float = 1.0
    """What the device's time is multiplied by."""
    gap_s: float = 0.0
    """What a step takes beside its kernels while the GPU holds it back."""
    error: float | None = None
    """Relative error of the device's time that is left; None: nothing was measured of this step."""
    host_factor: float = 1.0
    host_known: bool = False
    """Whether a step that waited for its host was measured."""
    input_limit: InputLimit | None = None
    """What the measured machine's input delivered, where that held it back."""
    measured_s: Estimate | None = None
    """The very step that is predicted, measured."""
    time_from: str = PREDICTED
    notes: tuple[str, ...] = ()


# Input that held a measured step back, on another machine


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLimit:
    """What the measured machine's input delivered, where a step waited for it."""

    samples_per_s: float
    """To each GPU."""
    gpus: int = 1
    """That it delivered to, in one machine."""
    busy_threads: float | None = None
    """CPU threads that were busy for each of them."""
    cpu_threads: float | None = None
    """Of that machine."""
    is_same_gpu: bool = False
    """Whether the prediction is for the measured GPU: then the host may well be the same, too."""


def input_limit_s(
    samples: int, gpus: int, vcpus: float | None, limit: InputLimit, calibration: Calibration
) -> Estimate:
    """How long the samples of one pass take to arrive at each of a machine's GPUs that load.

    Another machine's loader may be any faster, so that there is no limit at the low end; it may be
    as much slower as hosts are.
    """
    likely, worst = _thread_contention(limit, gpus, vcpus)
    alone_s = samples / limit.samples_per_s
    return Estimate(
        low=0.0,
        likely=alone_s * likely,
        high=alone_s * worst * _slowest_host(limit, calibration),
    )


def _slowest_host(limit: InputLimit, calibration: Calibration) -> float:
    """How many times as slow as the measured machine's another's loader may be."""
    return calibration.estimate("host_range_measured" if limit.is_same_gpu else "host_range").high


def _thread_contention(limit: InputLimit, gpus: int, vcpus: float | None) -> tuple[float, float]:
    """How much longer input takes to GPUs that share a machine's CPU threads: likely, and at worst.

    Each has a loader as the measured one had. A machine whose threads are not known may have no
    more than the measured one; where nothing is known, all may have to share what that delivered.
    """
    threads = limit.cpu_threads if vcpus is None else vcpus
    if limit.busy_threads is None or not threads:
        return 1.0, max(gpus / limit.gpus, 1.0)
    needed = max(gpus * limit.busy_threads / threads, 1.0)
    return (1.0 if vcpus is None else needed), needed


def input_limit_note(limit: InputLimit, gpus: int, calibration: Calibration) -> str:
    """What was taken for granted of another machine's loader."""
    note = (
        f"Its input held the measured step back, at {limit.samples_per_s:,.0f} samples/s to a GPU: "
        "that is the measured machine's loader; the range goes from no such limit to one that is "
        f"{_slowest_host(limit, calibration):.2g} times as slow."
    )
    if gpus <= limit.gpus:
        return note
    if limit.busy_threads is None:
        return (
            f"{note} {gpus} GPUs of a machine have a loader each; what CPU threads one takes was "
            "not measured, and the range goes to all sharing what one delivered."
        )
    return (
        f"{note} {gpus} GPUs of a machine have a loader each, and keep "
        f"{gpus * limit.busy_threads:,.1f} of its CPU threads busy; a disk or network that they "
        "share may be slower still."
    )
