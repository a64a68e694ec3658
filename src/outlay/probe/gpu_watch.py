"""The GPU driver of this machine, which GPUs a command uses, and their readings while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outlay.probe.amd import open_amd
from outlay.probe.gpu_driver import Driver, GpuDevice, GpuReading, Missing, NoDriver
from outlay.probe.nvidia import open_nvidia
from outlay.units import MIB

GROWN_BYTES = 128 * MIB
"""A GPU whose memory grew by as much since the first reading is used; a context takes more."""
READINGS_PER_SEARCH = 4
"""After so many readings processes are listed, while it is not known which GPUs are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSample:
    """One GPU at one moment."""

    reading: GpuReading
    joules: float | None
    """Energy since the first reading, by the GPU's counter, or by its power where it has none."""


class GpuWatch:
    """Readings of the GPUs a command uses; of all, as long as it is not known which those are."""

    def __init__(self, driver: Driver | NoDriver, indices: Iterable[int] | None = None) -> None:
        self._driver = None if isinstance(driver, NoDriver) else driver
        self._devices = () if self._driver is None else self._driver.devices
        self._named = None if indices is None else self._at(indices)
        self._with_processes: set[int] = set()
        self._grown: set[int] = set()
        self._lowest_bytes: dict[int, float] = {}
        self._energy = {device.index: _Energy() for device in self._devices}
        self._readings = 0

    @property
    def used(self) -> tuple[GpuDevice, ...]:
        """As named; else those with processes of the command, else those whose memory grew."""
        if self._named is not None:
            return self._named
        return self._at(sorted(self._with_processes or self._grown))

    def use(self, names: Iterable[str]) -> tuple[str, ...]:
        """Read only these GPUs from now on, by UUID or PCI bus id; gives the names not found.

        Where none is found, everything stays as it is.
        """
        named: dict[int, GpuDevice] = {}
        unknown = []
        for name in names:
            matches = [device for device in self._devices if device.answers_to(name)]
            named.update({device.index: device for device in matches})
            unknown += [] if matches else [name]
        if named:
            self._named = tuple(named.values())
        return tuple(unknown)

    def read(self, now_s: float, pids: frozenset[int]) -> Mapping[int, GpuSample]:
        """All that is of interest, by the device's index; `pids` are the command's."""
        if self._driver is None:
            return {}
        if self._named is None and self._readings % READINGS_PER_SEARCH == 0:
            self._find_processes(pids)
        self._readings += 1
        devices = self._devices if self._named is None else self._named
        return {device.index: self._sample(self._driver, device, now_s) for device in devices}

    def _sample(self, driver: Driver, device: GpuDevice, now_s: float) -> GpuSample:
        reading = driver.read(device)
        if reading.used_bytes is not None:
            lowest = min(reading.used_bytes, self._lowest_bytes.get(device.index, float("inf")))
            self._lowest_bytes[device.index] = lowest
            if reading.used_bytes - lowest >= GROWN_BYTES:
                self._grown.add(device.index)
        joules = self._energy[device.index].joules_at(now_s, reading)
        return GpuSample(reading=reading, joules=joules)

    def _find_processes(self, pids: frozenset[int]) -> None:
        """Note the GPUs on which one of these processes computes."""
        for device in self._devices:
            processes = self._driver.processes(device) if self._driver else None
            if processes and not pids.isdisjoint(processes):
                self._with_processes.add(device.index)

    def _at(self, indices: Iterable[int]) -> tuple[GpuDevice, ...]:
        wanted = set(indices)
        return tuple(device for device in self._devices if device.index in wanted)


class _Energy:
    """The energy of one GPU since its first reading."""

    def __init__(self) -> None:
        self._joules = 0.0
        self._counter_j: float | None = None
        self._before: tuple[float, float] | None = None

    def joules_at(self, now_s: float, reading: GpuReading) -> float | None:
        """By its counter, where it ever had one; else by its power; None where neither is read."""
        if reading.energy_j is not None:
            before_j = reading.energy_j if self._counter_j is None else self._counter_j
            self._joules += max(reading.energy_j - before_j, 0.0)  # back to 0 with a new driver
            self._counter_j = reading.energy_j
        elif self._counter_j is None and reading.power_w is not None:
            if self._before is not None:
                time_s, power_w = self._before
                self._joules += (now_s - time_s) * (power_w + reading.power_w) / 2
            self._before = now_s, reading.power_w
        else:
            return None
        return self._joules


def open_driver() -> Driver | NoDriver:
    """The first driver that has GPUs, or why none has."""
    missing = []
    for open_vendor in (open_nvidia, open_amd):
        driver = open_vendor()
        if not isinstance(driver, Missing):
            return driver
        missing.append(driver)
    return NoDriver(missing=tuple(missing))
