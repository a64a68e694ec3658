"""The command and all it started, from Linux's /proc: who they are, CPU time, resident memory.

# Source: man 5 proc_pid_stat, man 5 proc_pid_smaps
"""

from __future__ import annotations

import os
import shlex
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
    that is the tree's own (the command should be started in a session of its own). One that was
    found not to be in it is not read again, so that reading costs little on a busy machine.
    Ignores a process that leaves its session and loses its parent between two readings.
    """

    def __init__(self, pid: int, *, proc: Path = Path("/proc")) -> None:
        self._pid = pid
        self._proc = str(proc)
        self._members: dict[int, ProcessStat] = {}
        self._others: set[int] = set()
        self._foreign_groups: frozenset[int] = frozenset()
        self._shared = _SharedMemory(self._proc)

    def read(self) -> ProcessTreeReading | None:
        """What there is now; None where there is no /proc."""
        pids = _process_ids(self._proc)
        if pids is None:
            return None
        before, self._members = self._members, self._current_members(pids)
        return ProcessTreeReading(
            pids=frozenset(self._members),
            cpu_s=_ticks_between(before, self._members) / _ticks_per_s(),
            resident_bytes=self._shared.resident_bytes(self._members),
        )

    def _current_members(self, pids: set[int]) -> dict[int, ProcessStat]:
        members = {}
        for pid, before in self._members.items():
            if (now := _process(self._proc, pid)) and now.started == before.started:
                members[pid] = now
        self._others &= pids  # those that ended: their numbers may come back as ours
        self._add_new(members, sorted(pids - self._others - members.keys()))
        return members

    def _add_new(self, members: dict[int, ProcessStat], pids: Iterable[int]) -> None:
        """Sort new processes; a parent usually has the lower number, but numbers wrap around."""
        new = {pid: process for pid in pids if (process := _process(self._proc, pid))}
        if self._pid in new and not self._members:
            members[self._pid] = command = new.pop(self._pid)
            # Without a session of its own, the command shares outlay's: others have that, too.
            self._foreign_groups = frozenset({command.session, command.group} - {self._pid})
        while ours := [process for process in new.values() if self._is_ours(process, members)]:
            for process in ours:
                members[process.pid] = new.pop(process.pid)
        self._others |= new.keys()

    def _is_ours(self, process: ProcessStat, members: dict[int, ProcessStat]) -> bool:
        sessions = {member.session for member in members.values()}
        groups = {member.group for member in members.values()}
        ours = (sessions | groups | {self._pid}) - self._foreign_groups
        return process.parent in members or process.session in ours or process.group in ours


class _SharedMemory:
    """How much resident memory is counted more than once, looked up now and then.

    Forked workers have their parent's pages too. The kernel can divide them up (proportional set
    size, PSS), but has to walk through all of them for it, so that is done now and then.
    """

    def __init__(self, proc: str) -> None:
        self._proc = proc
        self._shared_bytes = 0.0
        self._next_s = float("-inf")

    def resident_bytes(self, members: dict[int, ProcessStat]) -> float | None:
        if not members:
            return None
        sizes = [member.resident_pages * _page_bytes() for member in members.values()]
        if len(sizes) > 1 and time.monotonic() >= self._next_s:
            self._measure(members)
        # Those that shared may have ended since: the largest alone is there in any case.
        return max(sum(sizes) - self._shared_bytes, float(max(sizes)))

    def _measure(self, members: dict[int, ProcessStat]) -> None:
        begun_s = time.monotonic()
        sizes = (_pss_and_rss_bytes(self._proc, pid) for pid in members)
        self._shared_bytes = sum(rss - pss for pss, rss in filter(None, sizes))
        took_s = time.monotonic() - begun_s
        self._next_s = begun_s + max(PSS_PAUSE_S, took_s / PSS_SHARE)


def _ticks_between(before: dict[int, ProcessStat], now: dict[int, ProcessStat]) -> int:
    """CPU time since the reading before, those that ended meanwhile included.

    What ended is in its parent's figure for dead children, with all that it took before.
    """
    living = sum(
        process.cpu_ticks - (before[pid].cpu_ticks if pid in before else 0)
        for pid, process in now.items()
    )
    dead = sum(
        process.dead_children_ticks - (before[pid].dead_children_ticks if pid in before else 0)
        for pid, process in now.items()
    )
    counted = sum(
        process.cpu_ticks + process.dead_children_ticks
        for pid, process in before.items()
        if pid not in now
    )
    return max(living, 0) + max(dead - counted, 0)


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


# Processes that the agent cannot be in

_TORCH = b"libtorch"
_NAME_SHOWN = 100
_IGNORING_OPTIONS = frozenset("IES")
"""Options of Python that let it ignore PYTHONPATH or what is run at its start.
# Source: docs.python.org/3/using/cmdline.html"""
_OPTIONS_WITH_VALUE = frozenset("WX")
_LAST_OPTIONS = frozenset("cm")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnwatchedProcess:
    """A process that has loaded torch, of a Python that did not load the agent at its start."""

    pid: int
    command: tuple[str, ...]
    reason: str
    """Why, and what to do about it."""

    @property
    def name(self) -> str:
        """Its number and the beginning of its command, without the folder of its program."""
        program, *arguments = self.command
        command = shlex.join([Path(program).name, *arguments])
        short = command if len(command) <= _NAME_SHOWN else f"{command[: _NAME_SHOWN - 1]}…"
        return f"Process {self.pid} ({short})"


def unwatched_process(pid: int, inject: str, *, proc: str = "/proc") -> UnwatchedProcess | None:
    """The process, where it has torch and cannot have the agent that lies in folder `inject`."""
    environment = _environment_of(pid, proc)
    words = [os.fsdecode(word) for word in read_bytes(f"{proc}/{pid}/cmdline").split(b"\0")[:-1]]
    reason = _reason_unwatched(words, environment, inject) if environment and words else None
    if reason is None or _TORCH not in read_bytes(f"{proc}/{pid}/maps"):
        return None
    return UnwatchedProcess(pid=pid, command=tuple(words), reason=reason)


def _environment_of(pid: int, proc: str) -> dict[str, str]:
    """As it was when its program was started; empty where it is not ours to read."""
    entries = os.fsdecode(read_bytes(f"{proc}/{pid}/environ")).split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _reason_unwatched(words: list[str], environment: dict[str, str], inject: str) -> str | None:
    option = _ignoring_option(words)
    if option is not None:
        return f"Python's option {option} keeps outlay out of it: leave that out while probing"
    path = environment.get("PYTHONPATH")
    if path is None:
        return (
            "it was started with an environment of its own, without what outlay put there: "
            "hand on PYTHONPATH and OUTLAY_PROBE_FOLDER"
        )
    if inject not in path.split(os.pathsep):
        return (
            f"it has a PYTHONPATH of its own, without what outlay put there: "
            f"write PYTHONPATH={path}{os.pathsep}$PYTHONPATH"
        )
    return None


def _ignoring_option(words: list[str]) -> str | None:
    """The first option of a Python command that hides us, as it is written."""
    following = iter(words[1:])
    for word in following:
        if not word.startswith("-") or word.startswith("--") or word == "-":
            return None
        letters = word[1:]
        if _IGNORING_OPTIONS & set(_flags(letters)):
            return word
        if _LAST_OPTIONS & set(letters):
            return None
        if letters in _OPTIONS_WITH_VALUE:
            next(following, None)
    return None


def _flags(letters: str) -> str:
    """Those of one word that stand for themselves, before one that takes the rest as its value."""
    taking = [letters.find(each) for each in _OPTIONS_WITH_VALUE | _LAST_OPTIONS if each in letters]
    return letters[: min(taking, default=len(letters))]


def _ticks_per_s() -> int:
    return os.sysconf("SC_CLK_TCK")


def _page_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE")
