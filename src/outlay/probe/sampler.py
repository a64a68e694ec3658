"""Readings of the GPU driver and the system while a command runs, by a thread of outlay's own.

    sampler = SystemSampler(process.pid, open_driver())
    sampler.start()
    sampler.use(["GPU-8c9c..."])
    sampler.stop()
    sampler.samples, sampler.energy_j(10.0, 60.0), sampler.describe_gpus()

`use` once the ranks have reported where they compute; until then the GPUs used are a guess. A
`ReadingSeries` thins what was read where a run is long.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from outlay.measurement.measurement import MeasuredGpu, Sample
from outlay.probe.gpu_driver import Driver, GpuDevice, GpuReading, NoDriver
from outlay.probe.gpu_watch import GpuSample, GpuWatch
from outlay.probe.system import Roots, SystemReading, SystemWatch

# Readings over time

MOST_READINGS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Everything read at one moment, GPU by GPU."""

    number: int
    time_s: float
    gpus: Mapping[int, GpuSample]
    system: SystemReading

    def sample(self, used: Iterable[int]) -> Sample:
        """The same over the GPUs used, as a measurement keeps it."""
        gpus = [self.gpus[index].reading for index in used if index in self.gpus]
        system = self.system
        return Sample(
            time_s=self.time_s,
            gpu_fraction=_over(_mean, [gpu.fraction for gpu in gpus]),
            gpu_memory_bytes=_over(max, [gpu.used_bytes for gpu in gpus]),
            power_w=_power_w(gpus),
            clock_fraction=_over(min, [gpu.clock_fraction for gpu in gpus]),
            temperature_c=_over(max, [gpu.temperature_c for gpu in gpus]),
            slowed_by=tuple(sorted({why for gpu in gpus for why in gpu.slowed_by})),
            cpu_fraction=system.cpu_fraction,
            process_cpus=system.process_cpus,
            process_bytes=system.process_bytes,
            swapped_bytes_per_s=system.swapped_bytes_per_s,
            disk_fraction=system.disk_fraction,
            read_bytes_per_s=system.read_bytes_per_s,
        )


class ReadingSeries:
    """Readings of a run, at most so many, evenly over it; the most extreme ones are all kept.

    Once there are too many, only each second is kept from then on, then each fourth, and so on.
    """

    def __init__(self, *, most: int = MOST_READINGS) -> None:
        self.readings: list[Reading] = []
        self.latest: Reading | None = None
        self._most = most
        self._stride = 1
        self._extremes: dict[str, tuple[float, int]] = {}

    def add(self, reading: Reading, used: Iterable[int]) -> None:
        """Keep it, or not; `used` are the GPUs of the command."""
        self.latest = reading
        is_extreme = self._note_extremes(reading, used)
        if is_extreme or reading.number % self._stride == 0:
            self.readings.append(reading)
        if len(self.readings) > self._most:
            self._thin()

    def _note_extremes(self, reading: Reading, used: Iterable[int]) -> bool:
        sample = reading.sample(used)
        new = {
            name: (value, reading.number)
            for name, extreme in _EXTREMES.items()
            if (value := extreme(sample)) is not None
            and (name not in self._extremes or value > self._extremes[name][0])
        }
        self._extremes.update(new)
        return bool(new)

    def _thin(self) -> None:
        """Former extremes first; then, as long as much is left, each second."""
        extreme = {number for _, number in self._extremes.values()}
        while True:
            self.readings = [
                reading
                for reading in self.readings
                if reading.number % self._stride == 0 or reading.number in extreme
            ]
            if len(self.readings) <= max(self._most * 3 // 4, len(_EXTREMES) + 1):
                return
            self._stride *= 2


_EXTREMES: dict[str, Callable[[Sample], float | None]] = {
    "gpu memory": lambda sample: sample.gpu_memory_bytes,
    "power": lambda sample: sample.power_w,
    "temperature": lambda sample: sample.temperature_c,
    "slow clock": lambda sample: None if sample.clock_fraction is None else -sample.clock_fraction,
    "memory": lambda sample: sample.process_bytes,
    "swap": lambda sample: sample.swapped_bytes_per_s,
    "disk": lambda sample: sample.disk_fraction,
}
"""What must not get lost between readings that are kept: the larger, the more extreme."""


def energy_j(
    readings: Sequence[Reading], used: Iterable[int], start_s: float, end_s: float
) -> float | None:
    """Energy of those GPUs from one time to the other; None where that is not known of all.

    Where the readings leave out a part of the time (up to half of it), that part is taken to need
    as much power as the rest.
    """
    parts = [_gpu_energy_j(readings, index, start_s, end_s) for index in used]
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _gpu_energy_j(
    readings: Sequence[Reading], index: int, start_s: float, end_s: float
) -> float | None:
    curve = [
        (reading.time_s, joules)
        for reading in readings
        if index in reading.gpus and (joules := reading.gpus[index].joules) is not None
    ]
    if len(curve) < 2:
        return None
    first_s, last_s = max(start_s, curve[0][0]), min(end_s, curve[-1][0])
    if end_s <= start_s or last_s - first_s < (end_s - start_s) / 2:
        return None
    joules = _interpolated(curve, last_s) - _interpolated(curve, first_s)
    return joules * (end_s - start_s) / (last_s - first_s)


def _interpolated(curve: Sequence[tuple[float, float]], time_s: float) -> float:
    """The curve's value at a time inside it, on straight lines between its points."""
    right = max(bisect_left(curve, (time_s,)), 1)
    (left_s, left), (right_s, above) = curve[right - 1], curve[right]
    return left + (above - left) * (time_s - left_s) / (right_s - left_s)


def _over(combine: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """Over those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return combine(known) if known else None


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _power_w(gpus: Sequence[GpuReading]) -> float | None:
    """Of all together: a sum without some of them would look like less."""
    powers = [gpu.power_w for gpu in gpus]
    known = [power for power in powers if power is not None]
    return sum(known) if known and len(known) == len(powers) else None


# The sampler

PERIOD_S = 0.5
CPU_SHARE = 0.01
"""Of one CPU thread; where a reading takes more, the next one waits longer."""
LONGEST_WAIT = 4
"""In periods."""
STOP_S = 5.0
"""A driver may hang; the thread is left behind then, and ends with the process."""


class SystemSampler:
    """Samples of a command, from `start` to `stop`. Its thread never raises, nor keeps us alive.

    Times are seconds since `started_s`, which is on the monotonic clock (`time.monotonic`): that
    of `start`, unless the caller gives the time the command was started.
    """

    def __init__(
        self,
        pid: int,
        driver: Driver | NoDriver,
        gpu_indices: Iterable[int] | None = None,
        *,
        period_s: float = PERIOD_S,
        started_s: float | None = None,
        most_samples: int = MOST_READINGS,
        roots: Roots | None = None,
    ) -> None:
        self.started_s = started_s
        self.error: str | None = None
        """The last thing that went wrong in the thread, if any."""
        self._period_s = period_s
        self._gpus = GpuWatch(driver, gpu_indices)
        self._system = SystemWatch(pid, roots=roots)
        self._series = ReadingSeries(most=most_samples)
        self._count = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outlay-sampler", daemon=True)

    def start(self) -> None:
        """Begin to read; the first reading is taken at once."""
        if self.started_s is None:
            self.started_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Read once more and end; what was read stays. May be called again, or without a start."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def use(self, names: Iterable[str]) -> tuple[str, ...]:
        """Count only these GPUs, by UUID or PCI bus id, also in samples taken before.

        Gives the names that no GPU of the driver answers to.
        """
        with self._lock:
            return self._gpus.use(names)

    @property
    def gpus(self) -> tuple[GpuDevice, ...]:
        """The GPUs the command uses, as far as is known now."""
        with self._lock:
            return self._gpus.used

    def describe_gpus(self) -> tuple[MeasuredGpu, ...]:
        """Those GPUs as a measurement keeps them."""
        return tuple(device.measured for device in self.gpus)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that are kept, in order of time."""
        readings, used = self._readings_and_used()
        return tuple(reading.sample(used) for reading in readings)

    def latest(self) -> Sample | None:
        """The newest one; None before the first."""
        with self._lock:
            newest, used = self._series.latest, self._used_indices()
        return None if newest is None else newest.sample(used)

    def energy_j(self, start_s: float, end_s: float) -> float | None:
        """Energy of the GPUs used between two times; None where that is not known."""
        readings, used = self._readings_and_used()
        return energy_j(readings, used, start_s, end_s)

    def _readings_and_used(self) -> tuple[list[Reading], tuple[int, ...]]:
        """With the newest reading, so that the end of a thinned run is not cut off."""
        with self._lock:
            readings, newest = list(self._series.readings), self._series.latest
            if newest is not None and readings[-1:] != [newest]:
                readings.append(newest)
            return readings, self._used_indices()

    def _used_indices(self) -> tuple[int, ...]:
        return tuple(device.index for device in self._gpus.used)

    def _run(self) -> None:
        while not self._stopping.is_set():
            begun_s, cpu_s = time.monotonic(), time.thread_time()
            self._read()
            cpu_s = time.thread_time() - cpu_s
            pause_s = min(max(self._period_s, cpu_s / CPU_SHARE), LONGEST_WAIT * self._period_s)
            self._stopping.wait(max(begun_s + pause_s - time.monotonic(), 0.0))
        self._read()

    def _read(self) -> None:
        try:
            self._add_reading()
        except Exception as error:  # a probe goes on without samples rather than not at all
            self.error = f"{type(error).__name__}: {error}"

    def _add_reading(self) -> None:
        now_s = time.monotonic()
        time_s = now_s - (self.started_s or 0.0)
        system = self._system.read(now_s)
        gpus = self._gpus.read(now_s, system.pids)
        reading = Reading(number=self._count, time_s=time_s, gpus=gpus, system=system)
        self._count += 1
        with self._lock:
            self._series.add(reading, self._used_indices())
