"""The time of a step that was measured, where something is said to be slower than it was there."""

from __future__ import annotations

from typing import Literal

from outlay.estimate import Estimate
from outlay.predict.experience import MEASURED, Correction
from outlay.predict.host import Host


def measured_time_s(
    correction: Correction, arrival: Estimate, host: Estimate | None
) -> Estimate | None:
    """The step as it was measured, unless its input or a given host takes longer than it took."""
    measured_s = correction.measured_s
    if measured_s is None or _holder(measured_s, arrival, host) is None:
        return measured_s
    said = Estimate.exactly(arrival.low)
    return said if host is None else slowest_of(measured_s, host, said)


def time_from(correction: Correction, arrival: Estimate, host: Estimate | None) -> str:
    """Where the time of a step is from."""
    measured_s = correction.measured_s
    holder = None if measured_s is None else _holder(measured_s, arrival, host)
    return correction.time_from if holder is None else f"{MEASURED}, but for the {holder}"


def _holder(
    measured_s: Estimate, arrival: Estimate, host: Estimate | None
) -> Literal["input", "host"] | None:
    """What would have held a measured step back, had it been there."""
    host_s = 0.0 if host is None else host.likely
    if max(arrival.low, host_s) <= measured_s.likely:
        return None
    return "input" if arrival.low > host_s else "host"


def given_host(host: Estimate, asked: Host, correction: Correction) -> Estimate | None:
    """What a host takes whose speed is given; None where a measured step tells what it takes."""
    return host if asked.measured and not correction.host_known else None


def slowest_of(device: Estimate, host: Estimate, arrival: Estimate) -> Estimate:
    """The slowest of device, host and input."""
    return Estimate(
        low=max(device.low, host.low, arrival.low),
        likely=max(device.likely, host.likely, arrival.likely),
        high=max(device.high, host.high, arrival.high),
    )
