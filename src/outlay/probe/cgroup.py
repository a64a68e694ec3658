"""Limits of the container this process is in, from Linux's control groups, both versions.

# Source: https://docs.kernel.org/admin-guide/cgroup-v2.html,
# https://docs.kernel.org/scheduler/sched-bwc.html
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

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
    words = _text(folder / "cpu.max").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period else None


def _folders(proc: Path, sys: Path, controller: str) -> Iterator[Path]:
    """The group of this process and those it is in, where they can be seen."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mounted = sys / "fs" / "cgroup" / (controller if controllers else "")
        # In a container its own group is often shown as the root, under the host's path.
        path = PurePosixPath(group.lstrip("/"))
        yield from (mounted / part for part in (path, *path.parents) if (mounted / part).is_dir())


def _number(path: Path) -> float | None:
    text = _text(path).strip()
    return float(text) if text.isdigit() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
