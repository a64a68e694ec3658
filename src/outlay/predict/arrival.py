"""How long the input of a step takes to arrive elsewhere, where it held the measured step back."""

from __future__ import annotations

from dataclasses import dataclass

from outlay.estimate import Estimate
from outlay.predict.calibration import Calibration


@dataclass(frozen=True, slots=True, kw_only=True)
class Fed:
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


def fed_s(
    samples: int, gpus: int, vcpus: float | None, fed: Fed, calibration: Calibration
) -> Estimate:
    """The samples of one pass, at each of a machine's GPUs that load.

    Another machine's loader may be any faster, so that there is no limit at the low end; it may be
    as much slower as hosts are.
    """
    slower = _slower(fed, calibration)
    likely, worst = _crowding(fed, gpus, vcpus)
    alone_s = samples / fed.samples_per_s
    return Estimate(low=0.0, likely=alone_s * likely, high=alone_s * worst * slower)


def _slower(fed: Fed, calibration: Calibration) -> float:
    """How many times as slow as the measured machine's another's loader may be."""
    return calibration.estimate("host_range_measured" if fed.is_here else "host_range").high


def _crowding(fed: Fed, gpus: int, vcpus: float | None) -> tuple[float, float]:
    """How much longer input takes to GPUs that share a machine's CPU threads: likely, and at worst.

    Each has a loader as the measured one had. A machine whose threads are not known may have no
    more than the measured one; and nothing at all told, all may have to share what that delivered.
    """
    threads = fed.cpu_threads if vcpus is None else vcpus
    if fed.cpus is None or not threads:
        return 1.0, max(gpus / fed.gpus, 1.0)
    needed = max(gpus * fed.cpus / threads, 1.0)
    return (1.0 if vcpus is None else needed), needed


def fed_words(fed: Fed, gpus: int, calibration: Calibration) -> str:
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
