from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.probe.fakes import GIB, amd_gpu, fake_amdsmi, fake_pynvml, nvml_gpu

import outlay
from outlay.measurement.measurement import MeasuredGpu
from outlay.probe.gpu_driver import Missing, NoDriver
from outlay.probe.gpu_watch import open_driver
from outlay.probe.nvidia import open_nvidia
from outlay.probe.sampler import SystemSampler

NO_DRIVER = NoDriver(missing=(Missing(vendor="NVIDIA", part="module", why="", fix=""),))


@pytest.fixture
def busy():
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    yield process
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def nvml(monkeypatch):
    """Opens a driver with these GPUs."""

    def open_with(*gpus):
        monkeypatch.setitem(sys.modules, "pynvml", fake_pynvml(*gpus))
        return open_nvidia()

    return open_with


def sampled(sampler, readings=6):
    sampler.start()
    deadline_s = time.monotonic() + 20
    while len(sampler.samples) < readings and time.monotonic() < deadline_s:
        time.sleep(0.02)
    sampler.stop()
    return sampler.samples


def test_samples_of_a_command_on_a_gpu(nvml, busy):
    process = SimpleNamespace(pid=busy.pid, usedGpuMemory=None)
    driver = nvml(nvml_gpu(0), nvml_gpu(1, ComputeRunningProcesses=[process]))
    sampler = SystemSampler(busy.pid, driver, period_s=0.05)
    samples = sampled(sampler)
    assert sampler.error is None
    assert [device.index for device in sampler.gpus] == [1]
    assert samples[-1] == sampler.latest()
    assert samples[-1].power_w == 412.5
    assert samples[-1].gpu_memory_bytes == 20 * GIB
    assert samples[0].process_cpus is None
    assert max(sample.process_cpus for sample in samples[1:]) > 0
    times_s = [sample.time_s for sample in samples]
    assert times_s == sorted(times_s)
    assert times_s[0] < 0.2


def test_the_ranks_word_counts_for_earlier_samples_too(nvml, busy):
    sampler = SystemSampler(
        busy.pid, nvml(nvml_gpu(0, PowerUsage=100_000), nvml_gpu(1)), period_s=0.05
    )
    samples = sampled(sampler, 2)
    assert samples[0].power_w is None
    assert sampler.use(["00000000-aaaa-bbbb-cccc-dddddddddddd"]) == ()
    assert sampler.samples[0].power_w == 100
    assert sampler.describe_gpus() == (
        MeasuredGpu(
            name="NVIDIA H200",
            memory_bytes=140 * GIB,
            driver="580.82.07",
            power_limit_w=700,
            uuid="GPU-00000000-aaaa-bbbb-cccc-dddddddddddd",
        ),
    )


def test_energy_of_two_gpus_by_their_counters(nvml, busy):
    begun_s = time.monotonic()

    def millijoules():  # 250 W
        return (time.monotonic() - begun_s) * 250_000

    gpus = [nvml_gpu(number, TotalEnergyConsumption=millijoules) for number in (0, 1)]
    sampler = SystemSampler(busy.pid, nvml(*gpus), [0, 1], period_s=0.1)
    samples = sampled(sampler, 10)
    start_s, end_s = samples[1].time_s, samples[-2].time_s
    # The counter is read after the clock, how much depends on who else uses the machine.
    assert sampler.energy_j(start_s, end_s) == pytest.approx(500 * (end_s - start_s), rel=0.2)


def test_times_are_since_the_command_was_started(busy):
    sampler = SystemSampler(busy.pid, NO_DRIVER, period_s=0.05, started_s=time.monotonic() - 100)
    assert sampled(sampler, 2)[0].time_s == pytest.approx(100, abs=2)


def test_without_a_gpu_the_rest_is_read(busy):
    sampler = SystemSampler(busy.pid, NO_DRIVER, period_s=0.05)
    samples = sampled(sampler, 3)
    assert sampler.describe_gpus() == ()
    assert samples[-1].gpu_fraction is None
    assert samples[-1].process_bytes > 2**20
    assert sampler.energy_j(0.0, samples[-1].time_s) is None


def test_a_driver_that_breaks_its_word_does_not_end_the_thread(nvml, busy):
    driver = nvml(nvml_gpu(0))
    driver.read = lambda _: 1 / 0
    sampler = SystemSampler(busy.pid, driver, period_s=0.02)
    sampler.start()
    time.sleep(0.2)
    assert sampler._thread.is_alive()
    sampler.stop()
    assert sampler.error.startswith("ZeroDivisionError")
    assert sampler.samples == ()
    assert sampler.latest() is None


def test_a_command_that_has_ended_gives_samples_without_it():
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    samples = sampled(SystemSampler(process.pid, NO_DRIVER, period_s=0.02), 3)
    assert (samples[-1].process_cpus, samples[-1].process_bytes) == (None, None)


def test_stopping_without_or_after_the_end_does_nothing(busy):
    sampler = SystemSampler(busy.pid, NO_DRIVER, period_s=0.02)
    sampler.stop()
    assert sampler.samples == ()
    other = SystemSampler(busy.pid, NO_DRIVER, period_s=0.02)
    sampled(other, 2)
    count = len(other.samples)
    other.stop()
    assert len(other.samples) == count
    assert not any(thread.name == "outlay-sampler" for thread in threading.enumerate())


def test_a_hanging_driver_keeps_no_process_alive():
    code = (
        "import os, time\n"
        "from outlay.probe.gpu_driver import GpuDevice\n"
        "from outlay.probe import sampler\n"
        "class Hangs:\n"
        "    devices = (GpuDevice(index=0, name='x'),)\n"
        "    def processes(self, device): return None\n"
        "    def read(self, device): time.sleep(600)\n"
        "sampler.STOP_S = 0.2\n"
        "watching = sampler.SystemSampler(os.getpid(), Hangs())\n"
        "watching.start()\n"
        "watching.stop()\n"
    )
    source = str(Path(outlay.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, check=False, env={"PYTHONPATH": source}
    )
    assert done.returncode == 0


def test_an_amd_gpu_is_sampled_alike(monkeypatch, busy):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", fake_amdsmi(amd_gpu(0)))
    sampler = SystemSampler(busy.pid, open_driver(), [0], period_s=0.05)
    assert sampled(sampler, 2)[-1].power_w == 412


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_it_takes_less_than_a_hundredth_of_a_cpu_among_500_processes(nvml, busy):
    others = [subprocess.Popen(["sleep", "60"]) for _ in range(450)]
    try:
        sampler = SystemSampler(busy.pid, nvml(*(nvml_gpu(number) for number in range(8))))
        sampler.start()
        time.sleep(1.5)  # the first reading looks at every process once
        before_s = time.process_time()
        time.sleep(3)
        share = (time.process_time() - before_s) / 3
        sampler.stop()
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert share < 0.01
