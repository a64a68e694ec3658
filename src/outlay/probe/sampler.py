"""What the GPU driver and the system say while a command runs, read by a thread of outlay's own.

    sampler = Sampler(process.pid, open_driver())
    sampler.start()
    sampler.use(["GPU-8c9c..."])
    sampler.stop()
    sampler.samples, sampler.energy_j(10.0, 60.0), sampler.describe_gpus()

`use` once the ranks have said where they compute; until then the GPUs used are found by guess.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from outlay.measurement import GpuSeen, Sample
from outlay.probe.gpu_driver import Driver, GpuDevice, NoDriver
from outlay.probe.gpu_watch import GpuWatch
from outlay.probe.moments import KEPT, Moment, Moments, energy_j
from outlay.probe.system import Roots, SystemWatch

PERIOD_S = 0.5
CPU_SHARE = 0.01
"""Of one CPU thread; where a reading takes more, the next one waits longer."""
LONGEST_WAIT = 4
"""In periods."""
STOP_S = 5.0
"""A driver may hang; the thread is left behind then, and ends with the process."""


class Sampler:
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
        most_samples: int = KEPT,
        roots: Roots | None = None,
    ) -> None:
        self.started_s = started_s
        self.trouble: str | None = None
        """The last thing that went wrong in the thread, if any."""
        self._period_s = period_s
        self._gpus = GpuWatch(driver, gpu_indices)
        self._system = SystemWatch(pid, roots=roots)
        self._moments = Moments(most=most_samples)
        self._readings = 0
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

    def describe_gpus(self) -> tuple[GpuSeen, ...]:
        """Those GPUs as a measurement keeps them."""
        return tuple(device.seen for device in self.gpus)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """All that are kept, in order of time."""
        moments, used = self._kept()
        return tuple(moment.sample(used) for moment in moments)

    def latest(self) -> Sample | None:
        """The newest one; None before the first."""
        with self._lock:
            newest, used = self._moments.latest, self._used_indices()
        return None if newest is None else newest.sample(used)

    def energy_j(self, start_s: float, end_s: float) -> float | None:
        """Energy of the GPUs used between two times; None where that is not known."""
        moments, used = self._kept()
        return energy_j(moments, used, start_s, end_s)

    def _kept(self) -> tuple[list[Moment], tuple[int, ...]]:
        """With the newest, so that the end of a thinned run is not cut off."""
        with self._lock:
            moments, newest = list(self._moments.kept), self._moments.latest
            if newest is not None and moments[-1:] != [newest]:
                moments.append(newest)
            return moments, self._used_indices()

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
            self._take()
        except Exception as error:  # a probe goes on without samples rather than not at all
            self.trouble = f"{type(error).__name__}: {error}"

    def _take(self) -> None:
        now_s = time.monotonic()
        time_s = now_s - (self.started_s or 0.0)
        system = self._system.read(now_s)
        gpus = self._gpus.read(now_s, system.pids)
        moment = Moment(number=self._readings, time_s=time_s, gpus=gpus, system=system)
        self._readings += 1
        with self._lock:
            self._moments.add(moment, self._used_indices())
