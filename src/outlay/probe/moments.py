"""What was read over time: thinned where a run is long, put together over the GPUs used."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from outlay.measurement import Sample
from outlay.probe.gpu_driver import GpuReading
from outlay.probe.gpu_watch import GpuMoment
from outlay.probe.system import SystemReading

KEPT = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Everything read at one moment, GPU by GPU."""

    number: int
    time_s: float
    gpus: Mapping[int, GpuMoment]
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


class Moments:
    """Readings of a run, at most so many, evenly over it; the most extreme ones are all kept.

    Once there are too many, only each second is kept from then on, then each fourth, and so on.
    """

    def __init__(self, *, most: int = KEPT) -> None:
        self.kept: list[Moment] = []
        self.latest: Moment | None = None
        self._most = most
        self._stride = 1
        self._extremes: dict[str, tuple[float, int]] = {}

    def add(self, moment: Moment, used: Iterable[int]) -> None:
        """Keep it, or not."""
        self.latest = moment
        is_extreme = self._note_extremes(moment, used)
        if is_extreme or moment.number % self._stride == 0:
            self.kept.append(moment)
        if len(self.kept) > self._most:
            self._thin()

    def _note_extremes(self, moment: Moment, used: Iterable[int]) -> bool:
        sample = moment.sample(used)
        new = {
            name: (value, moment.number)
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
            self.kept = [
                moment
                for moment in self.kept
                if moment.number % self._stride == 0 or moment.number in extreme
            ]
            if len(self.kept) <= max(self._most * 3 // 4, len(_EXTREMES) + 1):
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
    moments: Sequence[Moment], used: Iterable[int], start_s: float, end_s: float
) -> float | None:
    """Energy of those GPUs from one time to the other; None where that is not known of all.

    Where the readings leave out a part of the time (up to half of it), that part is taken to need
    as much power as the rest.
    """
    parts = [_energy_of_one_j(moments, index, start_s, end_s) for index in used]
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _energy_of_one_j(
    moments: Sequence[Moment], index: int, start_s: float, end_s: float
) -> float | None:
    curve = [
        (moment.time_s, joules)
        for moment in moments
        if index in moment.gpus and (joules := moment.gpus[index].joules) is not None
    ]
    if len(curve) < 2:
        return None
    first_s, last_s = max(start_s, curve[0][0]), min(end_s, curve[-1][0])
    if end_s <= start_s or last_s - first_s < (end_s - start_s) / 2:
        return None
    joules = _at(curve, last_s) - _at(curve, first_s)
    return joules * (end_s - start_s) / (last_s - first_s)


def _at(curve: Sequence[tuple[float, float]], time_s: float) -> float:
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
