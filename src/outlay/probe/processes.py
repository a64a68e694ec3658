"""The command and all it started, from Linux's /proc: who they are, CPU time, resident memory.

# Source: man 5 proc_pid_stat, man 5 proc_pid_smaps
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PSS_SHARE = 0.003
"""Of the time, for reading what processes share: that walks through all their memory."""
PSS_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStat:
    """One line of /proc/PID/stat, as far as it is used."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    cpu_ticks: int
    dead_children_ticks: int
    """Of children that have ended and were waited for, and theirs."""
    resident_pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTreeReading:
    """The processes alive at one moment."""

    pids: frozenset[int]
    cpu_s: float
    """CPU time of the tree since the reading before, or since its start."""
    resident_bytes: float | None
    """Memory shared between them counted once, where that can be told; None without any."""


class ProcessTree:
    """A process and its descendants, also those that were left behind by their parents.

    Once in the tree, always in it. A new process is in it by its parent, or by a session or group
    that is the tree's own (the command should be started in a session of its own). What was seen
    not to be in it is not looked at again, so that reading costs little on a busy machine.
    Ignores a process that leaves its session and loses its parent between two readings.
    """

    def __init__(self, pid: int, *, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = str(proc)
        self._members: dict[int, ProcessStat] = {}
        self._others: set[int] = set()
        self._not_ours: frozenset[int] = frozenset()
        self._shared = _SharedMemory(self._proc)

    def read(self) -> ProcessTreeReading | None:
        """What there is now; None where there is no /proc."""
        listed = _process_ids(self._proc)
        if listed is None:
            return None
        before, self._members = self._members, self._now(listed)
        return ProcessTreeReading(
            pids=frozenset(self._members),
            cpu_s=_ticks_between(before, self._members) / _ticks_per_s(),
            resident_bytes=self._shared.resident_bytes(self._members),
        )

    def _now(self, listed: set[int]) -> dict[int, ProcessStat]:
        members = {}
        for pid, seen in self._members.items():
            if (now := _process(self._proc, pid)) and now.started == seen.started:
                members[pid] = now
        self._others &= listed  # those that ended: their numbers may come back as ours
        self._take_new(members, sorted(listed - self._others - members.keys()))
        return members

    def _take_new(self, members: dict[int, ProcessStat], pids: Iterable[int]) -> None:
        """Sort new processes; a parent usually has the lower number, but numbers wrap around."""
        found = {pid: now for pid in pids if (now := _process(self._proc, pid))}
        if self._pid in found and not self._members:
            members[self._pid] = command = found.pop(self._pid)
            # Without a session of its own, the command shares outlay's: that tells nothing.
            self._not_ours = frozenset({command.session, command.group} - {self._pid})
        while taken := [now for now in found.values() if self._is_ours(now, members)]:
            for now in taken:
                members[now.pid] = found.pop(now.pid)
        self._others |= found.keys()

    def _is_ours(self, now: ProcessStat, members: dict[int, ProcessStat]) -> bool:
        groups = {one.session for one in members.values()} | {one.group for one in members.values()}
        ours = (groups | {self._pid}) - self._not_ours
        return now.parent in members or now.session in ours or now.group in ours


class _SharedMemory:
    """How much resident memory is counted more than once, looked up now and then.

    Forked workers have their parent's pages too. The kernel can divide them up (PSS), but has to
    walk through all of them for it, so that is done seldom, and what was found kept in between.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._twice_bytes = 0.0
        self._next_s = float("-inf")

    def resident_bytes(self, members: dict[int, ProcessStat]) -> float | None:
        if not members:
            return None
        each = [one.resident_pages * _page_bytes() for one in members.values()]
        if len(each) > 1 and time.monotonic() >= self._next_s:
            self._look(members)
        # Those that shared may have ended since: the largest alone is there in any case.
        return max(sum(each) - self._twice_bytes, float(max(each)))

    def _look(self, members: dict[int, ProcessStat]) -> None:
        begun_s = time.monotonic()
        found = (_pss_and_rss_bytes(self._proc, pid) for pid in members)
        self._twice_bytes = sum(rss - pss for pss, rss in filter(None, found))
        took_s = time.monotonic() - begun_s
        self._next_s = begun_s + max(PSS_PAUSE_S, took_s / PSS_SHARE)


def _ticks_between(before: dict[int, ProcessStat], now: dict[int, ProcessStat]) -> int:
    """CPU time since the reading before, those that ended meanwhile included.

    What ended is in its parent's figure for dead children, with all that it took before.
    """
    living = sum(
        one.cpu_ticks - (before[pid].cpu_ticks if pid in before else 0) for pid, one in now.items()
    )
    dead = sum(
        one.dead_children_ticks - (before[pid].dead_children_ticks if pid in before else 0)
        for pid, one in now.items()
    )
    known = sum(
        one.cpu_ticks + one.dead_children_ticks for pid, one in before.items() if pid not in now
    )
    return max(living, 0) + max(dead - known, 0)


def _process_ids(proc: str) -> set[int] | None:
    try:
        return {int(name) for name in os.listdir(proc) if name.isdigit()}  # noqa: PTH208
    except OSError:
        return None


def _process(proc: str, pid: int) -> ProcessStat | None:
    """None where it has ended."""
    text = read_bytes(f"{proc}/{pid}/stat")
    # The name stands in brackets and may have brackets and spaces itself.
    fields = text[text.rfind(b")") + 2 :].split(None, 22)
    if len(fields) < 22:
        return None
    return ProcessStat(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        dead_children_ticks=int(fields[13]) + int(fields[14]),
        started=int(fields[19]),
        resident_pages=int(fields[21]),
    )


def _pss_and_rss_bytes(proc: str, pid: int) -> tuple[float, float] | None:
    """None where the process has ended, or is not ours to look into."""
    text = read_bytes(f"{proc}/{pid}/smaps_rollup")
    rows = {row[0]: row[1] for line in text.splitlines() if len(row := line.split()) == 3}
    if b"Pss:" not in rows or b"Rss:" not in rows:
        return None
    return int(rows[b"Pss:"]) * 1024.0, int(rows[b"Rss:"]) * 1024.0


def read_bytes(path: str) -> bytes:
    """The file, empty where it cannot be read; in plain system calls, as many are read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return b"".join(iter(lambda: os.read(file, 65536), b""))
    except OSError:
        return b""
    finally:
        os.close(file)


def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK")


def _page_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE")
