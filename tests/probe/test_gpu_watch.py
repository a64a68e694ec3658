from __future__ import annotations

import pytest

from outlay.probe.gpu_driver import GpuDevice, GpuReading, Missing, NoDriver
from outlay.probe.gpu_watch import GROWN_BYTES, GpuWatch
from outlay.units import GIB

NOBODY: frozenset[int] = frozenset()


class FakeDriver:
    """Two GPUs that answer what a test has put into `readings` and `pids`."""

    vendor = "NVIDIA"

    def __init__(self) -> None:
        self.devices = tuple(
            GpuDevice(
                index=index, name=f"GPU {index}", uuid=f"GPU-{index}", bus_id=f"0000:0{index}:00.0"
            )
            for index in range(2)
        )
        self.readings = [GpuReading(used_bytes=GIB), GpuReading(used_bytes=GIB)]
        self.pids = [{}, {}]
        self.asked = []

    def read(self, device):
        self.asked.append(device.index)
        return self.readings[device.index]

    def processes(self, device):
        return self.pids[device.index]

    def close(self):
        pass


def used(watch):
    return [device.index for device in watch.used]


def test_at_first_all_are_read_and_none_is_used():
    driver = FakeDriver()
    watch = GpuWatch(driver)
    assert set(watch.read(0.0, NOBODY)) == {0, 1}
    assert used(watch) == []


def test_a_gpu_with_a_process_of_the_command_is_used():
    driver = FakeDriver()
    watch = GpuWatch(driver)
    driver.pids = [{5: None}, {7: GIB}]
    watch.read(0.0, frozenset({7, 8}))
    assert used(watch) == [1]


def test_where_processes_tell_nothing_memory_that_grew_does():
    driver = FakeDriver()
    watch = GpuWatch(driver)
    driver.pids = [None, None]
    watch.read(0.0, NOBODY)
    driver.readings[0] = GpuReading(used_bytes=GIB + GROWN_BYTES - 1)
    watch.read(0.5, NOBODY)
    assert used(watch) == []
    driver.readings[0] = GpuReading(used_bytes=GIB + GROWN_BYTES)
    watch.read(1.0, NOBODY)
    assert used(watch) == [0]


def test_memory_that_was_there_before_is_somebody_elses():
    driver = FakeDriver()
    driver.readings[1] = GpuReading(used_bytes=70 * GIB)
    watch = GpuWatch(driver)
    watch.read(0.0, NOBODY)
    driver.readings[1] = GpuReading(used_bytes=2 * GIB)
    watch.read(0.5, NOBODY)
    assert used(watch) == []


@pytest.mark.parametrize("name", ["GPU-1", "1", "00000000:01:00.0", "01:00"])
def test_what_the_ranks_say_counts(name):
    driver = FakeDriver()
    driver.pids = [{7: None}, {}]
    watch = GpuWatch(driver)
    watch.read(0.0, frozenset({7}))
    assert watch.use([name, "GPU-of-another-machine"]) == ("GPU-of-another-machine",)
    assert used(watch) == [1]
    driver.asked.clear()
    assert set(watch.read(0.5, frozenset({7}))) == {1}
    assert driver.asked == [1]


def test_names_nobody_knows_change_nothing():
    watch = GpuWatch(FakeDriver(), [0])
    assert watch.use(["GPU-x"]) == ("GPU-x",)
    assert used(watch) == [0]


def test_energy_comes_from_the_counter():
    driver = FakeDriver()
    watch = GpuWatch(driver, [0])
    driver.readings[0] = GpuReading(energy_j=900.0, power_w=1.0)
    assert watch.read(10.0, NOBODY)[0].joules == 0.0
    driver.readings[0] = GpuReading(energy_j=1250.0, power_w=1.0)
    assert watch.read(11.0, NOBODY)[0].joules == 350.0
    driver.readings[0] = GpuReading(power_w=1.0)  # for once it does not tell
    assert watch.read(12.0, NOBODY)[0].joules is None
    driver.readings[0] = GpuReading(energy_j=3.0)  # a new driver counts from 0
    assert watch.read(13.0, NOBODY)[0].joules == 350.0


def test_without_a_counter_energy_comes_from_power():
    driver = FakeDriver()
    watch = GpuWatch(driver, [0])
    joules = []
    for time_s, power_w in ((0.0, 100.0), (1.0, 300.0), (3.0, 300.0)):
        driver.readings[0] = GpuReading(power_w=power_w)
        joules.append(watch.read(time_s, NOBODY)[0].joules)
    assert joules == [0.0, 200.0, 800.0]  # 1 s at 200 W in the mean, then 2 s at 300 W


def test_without_a_driver_there_is_nothing():
    missing = Missing(vendor="NVIDIA", part="module", why="", fix="")
    watch = GpuWatch(NoDriver(missing=(missing,)))
    assert watch.read(0.0, NOBODY) == {}
    assert watch.used == ()
    assert watch.use(["GPU-1"]) == ("GPU-1",)
