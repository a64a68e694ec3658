"""What one measured step tells: measured over predicted, of the device and of the host."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from outlay.predict.calibration import Calibration
from outlay.predict.compute import device_time
from outlay.predict.experience import OwnCalibration, Seen
from outlay.predict.host import REFERENCE_HOST, Host, host_time_s
from outlay.predict.machine import speed_at
from outlay.predict.remember import Same
from outlay.predict.traced import machine_at, trace_at
from outlay.trace.trace import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Measured over predicted, of the device and of the host, and which of them was really seen."""

    device: float
    device_known: bool
    busy_s: float
    """What kernels took, or at most the whole step."""
    idle_s: float
    """What a step takes beside its kernels, where the GPU held it back."""
    host: float
    host_known: bool
    input_samples_per_s: float | None


def told_by(
    profile: Profile,
    seen: Seen,
    own: OwnCalibration,
    calibration: Calibration,
    host: Host = REFERENCE_HOST,
) -> Told:
    """What one measurement tells; asked again for another GPU, the same."""
    return _told_once(Same(profile), seen, Same(own), Same(calibration), host)


@lru_cache(maxsize=4096)
def _told_once(
    profile: Same[Profile],
    seen: Seen,
    learned: Same[OwnCalibration],
    numbers: Same[Calibration],
    host: Host,
) -> Told:
    """What did not hold the step back cannot have taken longer than it, and is held to that."""
    own, calibration = learned.value, numbers.value
    device_s = _device_s(profile.value, seen, own, calibration)
    trace = trace_at(profile.value, seen.batch_size)
    host_s = host_time_s(trace, calibration, host) * (own.host.factor if own.host else 1.0)
    holder = seen.holder or ("host" if host_s > device_s else "gpu")
    busy_s = None if seen.busy_s is None else min(seen.busy_s, seen.step_s)
    of_gpu = holder == "gpu" and seen.gpus * seen.nodes == 1
    if busy_s is None and of_gpu:
        busy_s = seen.step_s
    within = min(seen.step_s / device_s, 1.0)
    of_host = holder == "host"
    return Told(
        device=within if busy_s is None else busy_s / device_s,
        device_known=busy_s is not None,
        busy_s=seen.step_s if busy_s is None else busy_s,
        idle_s=seen.step_s - busy_s if of_gpu and busy_s is not None else 0.0,
        host=seen.step_s / host_s if of_host else min(seen.step_s / host_s, 1.0),
        host_known=of_host,
        input_samples_per_s=seen.batch_size / seen.step_s if holder == "input" else None,
    )


def _device_s(profile: Profile, seen: Seen, own: OwnCalibration, calibration: Calibration) -> float:
    """The device's time as predicted where it was measured."""
    trace = trace_at(profile, seen.batch_size)
    time_s = device_time(trace, machine_at(seen.gpu, calibration), calibration).total_s
    learned = own.of(seen.gpu)
    return time_s * (learned.factor if learned else 1.0) / power_speed(seen, calibration)


def power_speed(seen: Seen, calibration: Calibration) -> float:
    """A measured GPU's speed under its power limit, over that at the shipped one."""
    if seen.power_limit_w is None:
        return 1.0
    return speed_at(seen.power_limit_w / seen.gpu.tdp_w, calibration)
