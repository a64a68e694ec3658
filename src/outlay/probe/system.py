"""The machine and what it is busy with, from Linux's /proc; elsewhere most of it is None.

Container  limits of the control group this process is in
Machine    CPU and memory, as far as this process may use them
Load       CPUs, swap and disks between two readings

# Source: man 5 proc_stat, proc_meminfo, proc_vmstat;
# https://docs.kernel.org/admin-guide/iostats.html
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from outlay.measurement.measurement import MeasuredGpu, MeasuredMachine
from outlay.probe.processes import ProcessTree, ProcessTreeReading, read_bytes

# Container: control groups of both versions
# Source: https://docs.kernel.org/admin-guide/cgroup-v2.html,
# https://docs.kernel.org/scheduler/sched-bwc.html

NO_LIMIT_BYTES = 2**60
"""Version 1 has a number near 2**63 for no limit."""


def cpu_limit(proc: Path, sys: Path) -> float | None:
    """CPUs that may be kept busy at once, by the tightest limit; None without one."""
    limits = [_quota(folder) for folder in _folders(proc, sys, "cpu")]
    return min((limit for limit in limits if limit is not None), default=None)


def memory_limit_bytes(proc: Path, sys: Path) -> float | None:
    """Memory by the tightest limit; None without one."""
    limits = [
        _number(folder / name)
        for folder in _folders(proc, sys, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
    ]
    real = (limit for limit in limits if limit is not None and limit < NO_LIMIT_BYTES)
    return min(real, default=None)


def _quota(folder: Path) -> float | None:
    """Of one group: version 2 has "200000 100000" in one file, version 1 two files."""
    words = _cgroup_text(folder / "cpu.max").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _folders(proc: Path, sys: Path, controller: str) -> Iterator[Path]:
    """The group of this process and those it is in, where they can be seen."""
    for line in _cgroup_text(proc / "self" / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounted = sys / "fs" / "cgroup" / (controller if controllers else "")
        # In a container its own group is often shown as the root, under the host's path.
        path = PurePosixPath(group.lstrip("/"))
        yield from (mounted / part for part in (path, *path.parents) if (mounted / part).is_dir())


def _number(path: Path) -> float | None:
    text = _cgroup_text(path).strip()
    return float(text) if text.isdigit() else None


def _cgroup_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


# Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the kernel shows itself; tests have folders of their own."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


def this_machine(
    gpus: tuple[MeasuredGpu, ...] = (), *, roots: Roots | None = None
) -> MeasuredMachine:
    """This machine, as far as this process may use it."""
    roots = roots or Roots()
    return MeasuredMachine(
        system=f"{platform.system()} {platform.release()}".strip() or "unknown",
        cpu=_cpu_name(roots),
        cpu_threads=_cpu_threads(roots),
        ram_bytes=_ram_bytes(roots),
        gpus=gpus,
    )


def _cpu_name(roots: Roots) -> str | None:
    for line in _text(roots.proc / "cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or None


def _cpu_threads(roots: Roots) -> int | None:
    """Those this process may run on; no more than its container may keep busy."""
    allowed = _allowed_cpus() or os.cpu_count()
    limit = cpu_limit(roots.proc, roots.sys)
    if limit is None or allowed is None:
        return allowed
    return max(1, min(allowed, round(limit)))


def _allowed_cpus() -> int | None:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return None


def _ram_bytes(roots: Roots) -> float | None:
    match = re.search(r"^MemTotal:\s+(\d+) kB", _text(roots.proc / "meminfo"), re.MULTILINE)
    total = int(match[1]) * 1024.0 if match else _physical_bytes()
    limit = memory_limit_bytes(roots.proc, roots.sys)
    return min((value for value in (total, limit) if value is not None), default=None)


def _physical_bytes() -> float | None:
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return None


# Load

SECTOR_BYTES = 512
"""Of /proc/diskstats, whatever the disk's own sectors are."""
_NO_DISK = re.compile(r"(loop|ram|zram|dm-|md|sr|fd|nbd)\d+")
_SWAP_COUNTERS = (b"pswpin", b"pswpout")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemReading:
    """What the machine did since the reading before; None where that is not known."""

    pids: frozenset[int] = frozenset()
    """Of the command and all it started."""
    cpu_fraction: float | None = None
    process_cpus: float | None = None
    process_bytes: float | None = None
    swapped_bytes_per_s: float | None = None
    disk_fraction: float | None = None
    read_bytes_per_s: float | None = None


class SystemWatch:
    """Readings of the machine, each with what happened since the one before."""

    def __init__(self, pid: int, *, roots: Roots | None = None) -> None:
        self._roots = roots or Roots()
        self._tree = ProcessTree(pid, proc=self._roots.proc)
        self._disks = _disks(self._roots)
        self._before: _Counters | None = None

    def read(self, now_s: float) -> SystemReading:
        """What happened since the last call; the first has no rates."""
        tree = self._tree.read()
        before, now = self._before, self._counters(now_s)
        self._before = now
        return SystemReading(
            pids=tree.pids if tree else frozenset(),
            process_bytes=tree.resident_bytes if tree else None,
            **(_rates(before, now, tree) if before and now_s > before.time_s else {}),
        )

    def _counters(self, now_s: float) -> _Counters:
        proc = self._roots.proc
        return _Counters(
            time_s=now_s,
            cpu=_cpu_ticks(read_bytes(f"{proc}/stat")),
            swapped_pages=_swapped_pages(read_bytes(f"{proc}/vmstat")),
            disks=_disk_counters(read_bytes(f"{proc}/diskstats"), self._disks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counters:
    """The kernel's own counters, since the machine was started."""

    time_s: float
    cpu: tuple[int, int] | None
    """Ticks in which CPUs worked, and all ticks."""
    swapped_pages: int | None
    disks: dict[bytes, tuple[int, int]]
    """For each disk: milliseconds in which it had work, bytes read."""


def _rates(
    before: _Counters, now: _Counters, tree: ProcessTreeReading | None
) -> dict[str, float | None]:
    duration_s = now.time_s - before.time_s
    has_tree = tree is not None and bool(tree.pids)
    return {
        "cpu_fraction": _busy_fraction(before.cpu, now.cpu),
        "process_cpus": tree.cpu_s / duration_s if tree and has_tree else None,
        "swapped_bytes_per_s": _swapped_bytes_per_s(before, now, duration_s),
        "disk_fraction": _disk_fraction(before, now, duration_s),
        "read_bytes_per_s": _read_bytes_per_s(before, now, duration_s),
    }


def _busy_fraction(before: tuple[int, int] | None, now: tuple[int, int] | None) -> float | None:
    if before is None or now is None or now[1] <= before[1]:
        return None
    # Waiting for disks is counted loosely and may go back.
    return min(max((now[0] - before[0]) / (now[1] - before[1]), 0.0), 1.0)


def _swapped_bytes_per_s(before: _Counters, now: _Counters, duration_s: float) -> float | None:
    if before.swapped_pages is None or now.swapped_pages is None:
        return None
    pages = now.swapped_pages - before.swapped_pages
    return max(pages, 0) * os.sysconf("SC_PAGE_SIZE") / duration_s


def _disk_fraction(before: _Counters, now: _Counters, duration_s: float) -> float | None:
    busy_ms = [now.disks[name][0] - before.disks[name][0] for name in _disks_in_both(before, now)]
    return min(max(0, *busy_ms) / 1000 / duration_s, 1.0) if busy_ms else None


def _read_bytes_per_s(before: _Counters, now: _Counters, duration_s: float) -> float | None:
    read = [now.disks[name][1] - before.disks[name][1] for name in _disks_in_both(before, now)]
    return max(sum(read), 0) / duration_s if read else None


def _disks_in_both(before: _Counters, now: _Counters) -> set[bytes]:
    return before.disks.keys() & now.disks.keys()


def _cpu_ticks(text: bytes) -> tuple[int, int] | None:
    """From the line of all CPUs: user, nice, system, idle, iowait, irq, softirq, steal.

    A guest's time is in user's already.
    """
    fields = text[: text.find(b"\n")].split()
    if len(fields) < 6 or fields[0] != b"cpu":
        return None
    ticks = [int(field) for field in fields[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _swapped_pages(text: bytes) -> int | None:
    patterns = (rb"^" + name + rb" (\d+)" for name in _SWAP_COUNTERS)
    matches = [re.search(pattern, text, re.MULTILINE) for pattern in patterns]
    return sum(int(match[1]) for match in matches if match) if any(matches) else None


def _disk_counters(text: bytes, disks: frozenset[str]) -> dict[bytes, tuple[int, int]]:
    """Fields after the name: [2] sectors read, [9] milliseconds with work."""
    rows = (line.split() for line in text.splitlines())
    return {
        row[2]: (int(row[12]), int(row[5]) * SECTOR_BYTES)
        for row in rows
        if len(row) > 12 and row[2].decode() in disks
    }


def _disks(roots: Roots) -> frozenset[str]:
    """Whole disks with hardware behind them: no partitions, loops, or disks made of others."""
    try:
        names = [path.name for path in (roots.sys / "block").iterdir()]
    except OSError:
        return frozenset()
    return frozenset(
        name
        for name in names
        if not _NO_DISK.fullmatch(name) and (roots.sys / "block" / name / "device").exists()
    )


def _text(path: Path) -> str:
    return read_bytes(str(path)).decode(errors="replace")
