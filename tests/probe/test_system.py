from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.probe.proc_tree import PAGE_BYTES, TICKS_PER_S, FakeKernel

from outlay.probe.system import Roots, SystemReading, SystemWatch, this_machine


@pytest.fixture
def kernel(tmp_path):
    return FakeKernel(tmp_path)


def test_rates_are_what_happened_in_between(kernel):
    kernel.disk("nvme0n1")
    kernel.disk("sda")
    kernel.disk("loop0", is_real=False)
    kernel.disk("dm-0", is_real=False)
    kernel.process(100, session=100, group=100, cpu=10, pages=50)
    kernel.counters(
        cpu="100 0 50 800 50 0 0 0 90 0",
        swapped=(10, 20),
        disks=[("nvme0n1", 1000, 500), ("nvme0n1p1", 1000, 500), ("sda", 0, 0), ("dm-0", 0, 0)],
    )
    watch = SystemWatch(100, roots=kernel.roots)
    first = watch.read(7.0)
    assert first == SystemReading(pids=frozenset({100}), process_bytes=50 * PAGE_BYTES)
    kernel.process(100, session=100, group=100, cpu=10 + 3 * TICKS_PER_S, pages=70)
    kernel.counters(
        cpu="250 0 90 1000 60 0 0 0 90 0",
        swapped=(40, 70),
        disks=[
            ("nvme0n1", 9000, 2000),
            ("nvme0n1p1", 9000, 2400),
            ("sda", 1000, 300),
            ("dm-0", 80000, 9999),
        ],
    )
    reading = watch.read(9.0)
    # of 400 ticks (150 user, 40 system, 200 idle, 10 waiting) 190 were work
    assert reading.cpu_fraction == pytest.approx(190 / 400)
    assert reading.process_cpus == pytest.approx(1.5)  # 3 s of CPU time in 2 s
    assert reading.process_bytes == 70 * PAGE_BYTES
    assert reading.swapped_bytes_per_s == pytest.approx((30 + 50) * PAGE_BYTES / 2)
    assert reading.disk_fraction == pytest.approx(0.75)  # 1.5 s of 2 s, the busier disk
    assert reading.read_bytes_per_s == pytest.approx((8000 + 1000) * 512 / 2)


def test_without_proc_all_is_none(tmp_path):
    watch = SystemWatch(1, roots=Roots(proc=tmp_path / "no", sys=tmp_path / "no"))
    assert watch.read(1.0) == SystemReading()
    assert watch.read(2.0) == SystemReading()


def test_the_machine(kernel):
    kernel.write("cpuinfo", "processor\t: 0\nmodel name\t: AMD  EPYC 9654\nflags: a\n")
    kernel.write("meminfo", "MemFree:   5 kB\nMemTotal:   2000 kB\n")
    machine = this_machine(roots=kernel.roots)
    assert machine.cpu == "AMD EPYC 9654"
    assert machine.ram_bytes == 2000 * 1024
    assert machine.cpu_threads == len(os.sched_getaffinity(0))


def test_a_container_of_version_2_has_less(kernel):
    kernel.write("self/cgroup", "0::/outer/inner\n")
    kernel.write("meminfo", "MemTotal:   2000 kB\n")
    outer = kernel.roots.sys / "fs" / "cgroup" / "outer"
    (outer / "inner").mkdir(parents=True)
    (outer / "cpu.max").write_text("100000 100000\n")
    (outer / "inner" / "cpu.max").write_text("max 100000\n")
    (outer / "inner" / "memory.max").write_text("1048576\n")
    machine = this_machine(roots=kernel.roots)
    assert (machine.cpu_threads, machine.ram_bytes) == (1, 1048576)


def test_a_container_of_version_1_seen_from_inside(kernel):
    kernel.write("self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n")
    kernel.write("meminfo", "MemTotal:   2000 kB\n")
    groups = kernel.roots.sys / "fs" / "cgroup"
    for name in ("cpu", "memory"):
        (groups / name).mkdir(parents=True)
    (groups / "cpu" / "cpu.cfs_quota_us").write_text("40000\n")
    (groups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    (groups / "memory" / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # none
    machine = this_machine(roots=kernel.roots)
    assert (machine.cpu_threads, machine.ram_bytes) == (1, 2000 * 1024)  # 0.4 CPUs, but one thread


def test_where_nothing_is_known_nothing_is_raised(tmp_path):
    machine = this_machine(roots=Roots(proc=tmp_path / "no", sys=tmp_path / "no"))
    assert machine.system
    assert machine.ram_bytes is None or machine.ram_bytes > 0


BURN = "import time\nwhile time.process_time() < 0.6: pass\ntime.sleep(60)\n"
LEAVE = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {BURN!r}])"
COMMAND = (
    "import subprocess, sys\n"
    f"subprocess.run([sys.executable, '-c', {LEAVE!r}])\n"  # its own child is left behind
    f"big = bytearray(64 * 2**20)\n{BURN}"
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")
def test_a_command_and_a_grandchild_that_was_left_behind():
    process = subprocess.Popen([sys.executable, "-c", COMMAND], start_new_session=True)
    watch = SystemWatch(process.pid)
    try:
        cpu_s, readings = read_until(watch, cpu_s=1.15)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    reading = readings[-1]
    assert len(reading.pids) == 2
    # Twice 0.6 s however busy the machine is; up to 0.3 s to start each of three Pythons.
    assert 1.15 <= cpu_s < 2.1
    assert 64 * 2**20 < reading.process_bytes < 200 * 2**20
    assert 0 < max(each.cpu_fraction for each in readings) <= 1
    assert reading.swapped_bytes_per_s >= 0


def read_until(watch, cpu_s):
    """CPU time that the readings add up to, and those, until some time after that much."""
    total_s, before_s, readings = 0.0, time.monotonic(), []
    watch.read(before_s)
    deadline_s = before_s + 60
    while time.monotonic() < deadline_s:
        time.sleep(0.2)
        readings.append(watch.read(now_s := time.monotonic()))
        total_s += (readings[-1].process_cpus or 0.0) * (now_s - before_s)
        before_s = now_s
        if total_s >= cpu_s:
            deadline_s = min(deadline_s, now_s + 1)
    return total_s, readings
