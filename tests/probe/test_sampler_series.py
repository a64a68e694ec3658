from __future__ import annotations

from itertools import pairwise

import pytest

from outlay.probe.gpu_driver import GpuReading
from outlay.probe.gpu_watch import GpuSample
from outlay.probe.sampler import Reading, ReadingSeries, energy_j
from outlay.probe.system import SystemReading


def moment(number, *, system=None, joules=None, **gpus):
    """GPUs as gpu0=GpuReading(...)."""
    joules = joules or {}
    return Reading(
        number=number,
        time_s=number * 0.5,
        gpus={
            int(name[3:]): GpuSample(reading=reading, joules=joules.get(int(name[3:])))
            for name, reading in gpus.items()
        },
        system=system or SystemReading(),
    )


FIRST = GpuReading(
    fraction=0.9,
    used_bytes=10.0,
    power_w=300.0,
    clock_fraction=0.8,
    temperature_c=60,
    slowed_by=("power",),
)
SECOND = GpuReading(
    fraction=0.5,
    used_bytes=30.0,
    power_w=200.0,
    clock_fraction=0.9,
    temperature_c=70,
    slowed_by=("heat",),
)


def test_a_sample_is_over_the_gpus_used():
    sample = moment(4, gpu0=FIRST, gpu1=SECOND, gpu2=GpuReading(power_w=9.0)).sample([0, 1])
    assert sample.time_s == 2.0
    assert sample.gpu_fraction == pytest.approx(0.7)  # the mean of 0.9 and 0.5
    assert sample.gpu_memory_bytes == 30.0  # the fullest
    assert sample.power_w == 500.0  # together
    assert sample.clock_fraction == 0.8  # the slowest
    assert sample.temperature_c == 70  # the hottest
    assert sample.slowed_by == ("heat", "power")


def test_a_sum_with_an_unknown_part_is_unknown():
    sample = moment(0, gpu0=FIRST, gpu1=GpuReading(used_bytes=5.0)).sample([0, 1])
    assert sample.power_w is None
    assert sample.gpu_memory_bytes == 10.0


def test_without_gpus_their_figures_are_none():
    sample = moment(0, system=SystemReading(process_cpus=1.5), gpu0=FIRST).sample([])
    assert (sample.gpu_fraction, sample.power_w, sample.slowed_by) == (None, None, ())
    assert sample.process_cpus == 1.5


def test_a_long_run_is_thinned_evenly():
    moments = ReadingSeries(most=100)
    for number in range(10_000):
        moments.add(moment(number), [])
    numbers = [reading.number for reading in moments.readings]
    assert 30 < len(numbers) <= 100
    steps = {after - before for before, after in pairwise(numbers)}
    assert len(steps) == 1
    assert numbers[0] == 0
    assert numbers[-1] > 9_700
    assert moments.latest.number == 9_999


@pytest.mark.parametrize("peak", [3, 501, 4_999, 9_999])
def test_the_most_extreme_moment_is_kept(peak):
    moments = ReadingSeries(most=100)
    for number in range(10_000):
        used_bytes = 80.0 if number == peak else 50.0
        moments.add(moment(number, gpu0=GpuReading(used_bytes=used_bytes)), [0])
    assert peak in [reading.number for reading in moments.readings]
    assert len(moments.readings) <= 100


def test_memory_that_always_grows_keeps_only_its_end():
    moments = ReadingSeries(most=100)
    for number in range(5_000):
        moments.add(moment(number, system=SystemReading(process_bytes=float(number))), [])
        assert len(moments.readings) <= 100
    assert moments.readings[-1].number == 4_999


def test_energy_between_two_times_is_interpolated():
    # 100 W until 1 s, then 300 W: 0, 50, 100, 250, 400 J at 0, 0.5, 1, 1.5, 2 s
    curve = [
        moment(number, joules={0: joules}, gpu0=GpuReading())
        for number, joules in enumerate([0.0, 50.0, 100.0, 250.0, 400.0])
    ]
    assert energy_j(curve, [0], 0.0, 2.0) == pytest.approx(400)
    assert energy_j(curve, [0], 0.75, 1.25) == pytest.approx(25 + 75)
    assert energy_j(curve, [0], 0.5, 0.5) is None


def test_a_little_time_without_readings_is_taken_as_the_rest():
    curve = [moment(number, joules={0: 50.0 * number}, gpu0=GpuReading()) for number in range(3)]
    assert energy_j(curve, [0], 0.0, 1.25) == pytest.approx(125)  # 100 W, seen for 1 s
    assert energy_j(curve, [0], 0.0, 2.5) is None


def test_energy_of_several_gpus_needs_all_of_them():
    both = [
        moment(number, joules={0: 50.0 * number, 1: 10.0 * number}, gpu0=FIRST, gpu1=SECOND)
        for number in range(3)
    ]
    assert energy_j(both, [0, 1], 0.0, 1.0) == pytest.approx(120)
    assert energy_j(both, [0, 2], 0.0, 1.0) is None
    assert energy_j(both, [], 0.0, 1.0) is None
