"""What a prediction has to go on beside its model, as values: measured steps, and what was learned.

`predict.carry` makes a `Correction` of it for one GPU and batch size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlay.hardware.gpus import Gpu
from outlay.measurement.measurement import Holder
from outlay.predict.calibration import Calibration
from outlay.uncertainty import PERCENTILE_90, Estimate

# How long the input of a step takes to arrive elsewhere, where it held the measured step back.


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLimit:
    """What the measured machine's input delivered, where a step waited for it."""

    samples_per_s: float
    """To each GPU."""
    gpus: int = 1
    """That it fed, in one machine."""
    cpus: float | None = None
    """CPU threads that were busy for each of them."""
    cpu_threads: float | None = None
    """Of that machine."""
    is_here: bool = False
    """Whether the GPU is the one that is asked about: then the host may well be, too."""


def input_limit_s(
    samples: int, gpus: int, vcpus: float | None, fed: InputLimit, calibration: Calibration
) -> Estimate:
    """The samples of one pass, at each of a machine's GPUs that load.

    Another machine's loader may be any faster, so that there is no limit at the low end; it may be
    as much slower as hosts are.
    """
    slower = _slower(fed, calibration)
    likely, worst = _crowding(fed, gpus, vcpus)
    alone_s = samples / fed.samples_per_s
    return Estimate(low=0.0, likely=alone_s * likely, high=alone_s * worst * slower)


def _slower(fed: InputLimit, calibration: Calibration) -> float:
    """How many times as slow as the measured machine's another's loader may be."""
    return calibration.estimate("host_range_measured" if fed.is_here else "host_range").high


def _crowding(fed: InputLimit, gpus: int, vcpus: float | None) -> tuple[float, float]:
    """How much longer input takes to GPUs that share a machine's CPU threads: likely, and at worst.

    Each has a loader as the measured one had. A machine whose threads are not known may have no
    more than the measured one; and nothing at all told, all may have to share what that delivered.
    """
    threads = fed.cpu_threads if vcpus is None else vcpus
    if fed.cpus is None or not threads:
        return 1.0, max(gpus / fed.gpus, 1.0)
    needed = max(gpus * fed.cpus / threads, 1.0)
    return (1.0 if vcpus is None else needed), needed


def input_limit_note(fed: InputLimit, gpus: int, calibration: Calibration) -> str:
    """What was taken for granted of another machine's loader."""
    slower = _slower(fed, calibration)
    said = (
        f"Its input held the measured step back, at {fed.samples_per_s:,.0f} samples/s to a GPU: "
        "that is the measured machine's loader; the range goes from no such limit to one that is "
        f"{slower:.2g} times as slow."
    )
    if gpus <= fed.gpus:
        return said
    if fed.cpus is None:
        return (
            f"{said} {gpus} GPUs of a machine have a loader each; what CPU threads one takes was "
            "not measured, and the range goes to all sharing what one delivered."
        )
    return (
        f"{said} {gpus} GPUs of a machine have a loader each, and keep {gpus * fed.cpus:,.1f} of "
        "its CPU threads busy; a disk or network that they share may be slower still."
    )


PREDICTED, MEASURED = "predicted", "measured"


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
    cpus: float | None = None
    """CPU threads that its processes kept busy, for each GPU of a machine."""
    cpu_threads: float | None = None
    """Of the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFactor:
    """What the user's own measurements say of one GPU, or of one host."""

    name: str
    """Of a host, its CPU's."""
    measurements: int
    mean_ratio: float
    """Measured over predicted."""
    factor: float
    """That, drawn towards 1 by how well the prediction was known before."""
    error_before: float
    error: float
    steps: int = 1
    """Distinct ones among the measurements: each has one vote."""
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
        """What is known of one GPU."""
        return next((one for one in self.gpus if one.name == gpu.name), None)


NOTHING_LEARNED = LearnedCalibration()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a prediction has to go on beside its model: this step measured, and others."""

    seen: tuple[MeasuredStep, ...] = ()
    own: LearnedCalibration = NOTHING_LEARNED
    notes: tuple[str, ...] = ()
    """What of the measurements could not be used, and why."""

    def largest_batch_on(self, gpu: Gpu) -> int:
        """The largest batch that was seen to fit on one such GPU; 0 where none was."""
        return max(
            (
                one.batch_size
                for one in self.seen
                if one.fits and one.gpu.name == gpu.name and one.gpus * one.nodes == 1
            ),
            default=0,
        )


NO_EVIDENCE = Evidence()


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """What experience makes of a prediction on one GPU at one batch size."""

    device: float = 1.0
    """What the device's time is multiplied by."""
    idle_s: float = 0.0
    """What a step takes beside its kernels while the GPU holds it back."""
    error: float | None = None
    """Relative error of the device's time that is left; None: nothing was learned of this step."""
    host: float = 1.0
    host_known: bool = False
    """Whether a step that waited for its host was measured."""
    fed: InputLimit | None = None
    """What the measured machine's input delivered, where that held it back."""
    measured_s: Estimate | None = None
    """The very step that was asked for, measured."""
    time_from: str = PREDICTED
    notes: tuple[str, ...] = ()


def gpu_error(gpu: Gpu, own: LearnedCalibration, calibration: Calibration) -> float:
    """Relative error of a GPU's own figures: rates under load, bandwidth, its library."""
    learned = own.of(gpu)
    if learned is not None:
        return learned.error
    return calibration.first(f"error_on_{gpu.architecture}", "error_on_others")


def around(time_s: float, error: float) -> Estimate:
    """A time with a relative error, as its 10th and 90th percentile."""
    spread = math.exp(PERCENTILE_90 * error)
    return Estimate(low=time_s / spread, likely=time_s, high=time_s * spread)
