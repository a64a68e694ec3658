"""What is read of a run: GPUs, processes, log, steps, loss.

    processes  a process and all it started: CPU, disk and network traffic, who holds it
    log        how much was written to it, and steps and losses by patterns
    agent      what outlay's agent counts in the run's own processes
    machine    the same of a whole machine, with what is typed at its terminals

Each signal that cannot be read is None, which `rules` takes for activity. Nothing here raises: a
run must not end because something about it could not be read.

# Source: man 5 proc_pid_io, proc_pid_status, proc_pid_syscall, proc_pid_net
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from outlay.probe.agent.protocol import LINES_SUFFIX, Loss, ProcessInfo, RunProgress
from outlay.probe.gpu_driver import Driver, NoDriver
from outlay.probe.gpu_watch import GpuSample, GpuWatch
from outlay.probe.processes import ProcessTree, read_bytes
from outlay.run.rules import Activity, HeldBy, StackState, ThreadStack

PROC = "/proc"

# Processes


def started_ticks(pid: int, proc: str = PROC) -> int | None:
    """When a process was started, in ticks since the machine was: another of the same number has
    another time. None where there is no such process, or it is dead and only waits to be read."""
    text = read_bytes(f"{proc}/{pid}/stat")
    fields = text[text.rfind(b")") + 2 :].split(None, 20)
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return int(fields[19])


def age_s(pid: int, proc: str = PROC) -> float | None:
    """For how long a process has run."""
    started, uptime = started_ticks(pid, proc), read_bytes(f"{proc}/uptime").split()
    if started is None or not uptime:
        return None
    return max(float(uptime[0]) - started / os.sysconf("SC_CLK_TCK"), 0.0)


def handles(pid: int, number: int, proc: str = PROC) -> bool:
    """Whether a process has a handler of its own for a signal."""
    match = re.search(rb"^SigCgt:\s*([0-9a-f]+)", read_bytes(f"{proc}/{pid}/status"), re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> (number - 1) & 1)


_TRAFFIC = (b"rchar", b"read_bytes", b"wchar", b"write_bytes")
"""What a process asked to read, had from disks, asked to write, had written to disks."""
_READ, _SELECT, _POLL = {
    "aarch64": ({63}, {72}, {73, 22}),
    "arm64": ({63}, {72}, {73, 22}),
}.get(platform.machine(), ({0}, {23, 270}, {7, 271, 232, 281}))
"""System calls that read, or wait for one of several things, by their numbers.
# Source: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h"""


def held_by(pid: int, proc: str = PROC) -> HeldBy | None:
    """Whether a person has a process: by a debugger, at a terminal, or because it was stopped."""
    status = read_bytes(f"{proc}/{pid}/status")
    tracer = re.search(rb"^TracerPid:\s*([0-9]+)", status, re.MULTILINE)
    if tracer is not None and int(tracer[1]):
        return "debugger"
    state = re.search(rb"^State:\s*(\S)", status, re.MULTILINE)
    if state is not None and state[1] == b"T":
        return "stopped"
    is_sleeping = state is not None and state[1] == b"S"
    return "terminal" if is_sleeping and _waits_for_typing(pid, proc) else None


def _waits_for_typing(pid: int, proc: str) -> bool:
    """Whether it sleeps until something is typed: in a read, or in a wait for its terminal alone.

    Where the system does not say in what call it sleeps, one with a terminal may do so.
    """
    terminal = _terminal(pid, 0, proc)
    if terminal is None:
        return False
    words = read_bytes(f"{proc}/{pid}/syscall").split()
    if not words:
        return True
    if not words[0].isdigit():  # running
        return False
    number, first = int(words[0]), int(words[1], 16) if len(words) > 1 else -1
    if number in _READ:
        return first <= 2**20 and _terminal(pid, first, proc) is not None
    if number in _SELECT and first == 1:
        return True
    is_here = proc == PROC  # else the terminal of that name is another one
    return number in _POLL | _SELECT and (not is_here or _takes_keys(terminal))


def _terminal(pid: int, descriptor: int, proc: str) -> str | None:
    """The terminal that a descriptor of a process is of, if it is one."""
    try:
        target = os.readlink(f"{proc}/{pid}/fd/{descriptor}")  # noqa: PTH115
    except OSError:
        return None
    return target if target.startswith(("/dev/pts/", "/dev/tty")) else None


def _takes_keys(terminal: str) -> bool:
    """Whether a terminal hands on single keys, as under an editor or a prompt with a history."""
    try:
        import termios

        descriptor = os.open(terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            return not termios.tcgetattr(descriptor)[3] & termios.ICANON
        finally:
            os.close(descriptor)
    except (ImportError, OSError):
        return True
    except Exception:  # termios has an error of its own
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReading:
    """What processes did since the reading before."""

    pids: frozenset[int] = frozenset()
    cpu_s: float | None = None
    disk_bytes: float | None = None
    network_bytes: float | None = None
    written_bytes: float | None = None
    """To anything: files, pipes, terminals."""
    held_by: HeldBy | None = None


class RunProcesses:
    """A process and all it started, also what was left behind by its parents."""

    def __init__(
        self,
        pid: int,
        *,
        own: frozenset[int] | None = None,
        proc: Path = Path(PROC),
        has_sockets: bool = True,
    ) -> None:
        """`own`: children of ours that are no part of it, where what is left behind becomes a child
        of ours; None where it does not. `has_sockets`: whether `proc` shows to whom they are
        connected; where it does not, all traffic of the machine may be theirs."""
        self._has_sockets = has_sockets
        self.pid = pid
        self._proc = str(proc)
        self._trees = {pid: ProcessTree(pid, proc=proc)}
        self._own = own
        self._traffic: dict[int, tuple[int, ...]] = {}
        self._network_bytes: int | None = None
        self._is_first = True

    def read(self) -> ProcessReading:
        """What they did since the last call; at the first, nothing is known."""
        if self._own is not None:
            self._adopt(self._own)
        readings = [tree.read() for tree in self._trees.values()]
        known = [reading for reading in readings if reading is not None]
        pids = frozenset(pid for reading in known for pid in reading.pids)
        disk_bytes, written_bytes = self._moved(pids)
        network_bytes = self._network(pids)
        is_first, self._is_first = self._is_first, False
        reading = ProcessReading(
            pids=pids,
            cpu_s=sum(reading.cpu_s for reading in known) if known else None,
            disk_bytes=disk_bytes,
            network_bytes=network_bytes,
            written_bytes=written_bytes,
            held_by=self._held(pids),
        )
        if is_first:
            return replace(
                reading, cpu_s=None, disk_bytes=None, network_bytes=None, written_bytes=None
            )
        return reading

    def _held(self, pids: Iterable[int]) -> HeldBy | None:
        return next((held for pid in sorted(pids) if (held := held_by(pid, self._proc))), None)

    def _adopt(self, own: frozenset[int]) -> None:
        """Take in what has become our own child since: its parents have ended."""
        for path in Path(self._proc).glob(f"{os.getpid()}/task/*/children"):
            for pid in map(int, read_bytes(str(path)).split()):
                if pid not in self._trees and pid not in own:
                    self._trees[pid] = ProcessTree(pid, proc=Path(self._proc))
        for pid in [pid for pid in self._trees if pid != self.pid]:
            if started_ticks(pid, self._proc) is None:
                with contextlib.suppress(OSError):
                    os.waitpid(pid, os.WNOHANG)
                reading = self._trees[pid].read()
                if reading is None or not reading.pids:
                    del self._trees[pid]

    def _moved(self, pids: Iterable[int]) -> tuple[float | None, float | None]:
        """Bytes to and from disks, and written to anything; None where one of them is not told.

        Larger of what was asked for and what went to disks: caches hide the one, mapped files the
        other. A child that ended is in its parent's figures, once more.
        """
        moved = written = 0
        is_known = False
        before, self._traffic = self._traffic, {}
        for pid in pids:
            rows = dict(
                line.split(b":", 1)
                for line in read_bytes(f"{self._proc}/{pid}/io").splitlines()
                if b":" in line
            )
            if b"rchar" not in rows:
                if started_ticks(pid, self._proc) is None:
                    continue
                return None, None
            is_known = True
            now = tuple(int(rows[name]) for name in _TRAFFIC)
            since = zip(now, before.get(pid, (0,) * len(_TRAFFIC)), strict=True)
            read, read_disk, write, write_disk = (max(new - old, 0) for new, old in since)
            moved += max(read, read_disk) + max(write, write_disk)
            written += write
            self._traffic[pid] = now
        return (float(moved), float(written)) if is_known else (None, None)

    def _network(self, pids: Iterable[int]) -> float | None:
        """Bytes over the network, of the whole machine, where any of them may be theirs."""
        now = network_bytes(f"{self._proc}/{self.pid}/net/dev")
        if now is None:
            now = network_bytes(f"{self._proc}/self/net/dev")
        before, self._network_bytes = self._network_bytes, now
        if now is None or before is None:
            return None
        moved = float(max(now - before, 0))
        if not moved or not self._has_sockets:
            return moved
        return 0.0 if is_connected(pids, self._proc) is False else moved


def is_connected(pids: Iterable[int], proc: str = PROC) -> bool | None:
    """Whether processes are connected to another machine; None where that is not told.

    Traffic of a machine where they are not is that of others: agents, logins, what looks at them.
    """
    pids = list(pids)
    sockets: set[bytes] = set()
    for pid in pids:
        try:
            for name in os.listdir(f"{proc}/{pid}/fd"):  # noqa: PTH208
                target = os.readlink(f"{proc}/{pid}/fd/{name}")  # noqa: PTH115
                if target.startswith("socket:["):
                    sockets.add(target[8:-1].encode())
        except PermissionError:
            return None
        except OSError:  # a process or a file that has gone meanwhile
            continue
    if not sockets:
        return False
    tables = [f"{proc}/{pid}/net/{kind}" for pid in pids for kind in ("tcp", "tcp6", "udp", "udp6")]
    return any(_reaches_out(line, sockets) for path in tables for line in _lines(path))


def _lines(path: str) -> list[bytes]:
    return read_bytes(path).splitlines()[1:]


def _reaches_out(line: bytes, sockets: set[bytes]) -> bool:
    """Whether a line of the kernel's table is one of these sockets, with a peer elsewhere."""
    fields = line.split()
    if len(fields) < 10 or fields[9] not in sockets:
        return False
    address, _, port = fields[2].partition(b":")
    is_here = address.endswith(b"7F") or address == b"00000000000000000000000001000000"
    return port != b"0000" and not is_here


def network_bytes(path: str) -> int | None:
    """Bytes in and out over all links of a machine but its own; None where that is not told."""
    total, is_known = 0, False
    for line in read_bytes(path).splitlines():
        name, colon, values = line.partition(b":")
        fields = values.split()
        if colon and len(fields) > 8 and fields[0].isdigit():
            is_known = True
            if name.strip() != b"lo":
                total += int(fields[0]) + int(fields[8])
    return total if is_known else None


# The log

MOST_READ_BYTES = 2**20
_NUMBER = r"[-+]?(?:nan|inf(?:inity)?|[0-9][0-9_,]*\.?[0-9]*(?:e[-+]?[0-9]+)?|\.[0-9]+)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """What was written to a log since the reading before."""

    new_bytes: float | None = None
    steps: int | None = None
    """The last that the pattern found so far."""
    total_steps: float | None = None
    losses: tuple[float | None, ...] = ()


class Log(Protocol):
    """What a run prints."""

    def read(self) -> LogReading:
        """What was added since the last call."""
        ...


class LogReader:
    """Reads what is added to a log; it may be replaced, cut, or not be there yet."""

    def __init__(
        self,
        path: Path,
        step_pattern: str = "",
        loss_pattern: str = "",
        *,
        own: Callable[[Path], int] = lambda _: 0,
    ) -> None:
        """`own`: how much of the log we have written ourselves, which is no activity of the run."""
        self._path = path
        self._own = own
        self._own_bytes = 0
        self._patterns = LogPatterns(step_pattern, loss_pattern)
        self._offset: int | None = None
        self._inode = 0

    def read(self) -> LogReading:
        """What was added since the last call."""
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._offset = 0 if self._offset is None else self._offset
            return self._patterns.reading(0.0)
        except OSError:
            return self._patterns.reading(None)
        if not stat.S_ISREG(status.st_mode):
            return self._patterns.reading(None)
        if self._offset is None:
            self._offset = max(status.st_size - MOST_READ_BYTES, 0)
            self._inode = status.st_ino
        if status.st_ino != self._inode or status.st_size < self._offset:  # rotated, or cut
            self._inode, self._offset = status.st_ino, 0
        new_bytes = status.st_size - self._offset
        if new_bytes:
            self._take(status.st_size)
        before, self._own_bytes = self._own_bytes, self._own(self._path)
        return self._patterns.reading(float(max(new_bytes - (self._own_bytes - before), 0)))

    def _take(self, size: int) -> None:
        offset, self._offset = max(self._offset or 0, size - MOST_READ_BYTES), size
        if not self._patterns.is_used:
            return
        try:
            with self._path.open("rb") as file:
                file.seek(offset)
                self._patterns.take(file.read(size - offset))
        except OSError:
            return


class LogPatterns:
    """Steps and losses in the text of a log, by regular expressions whose first group they are.

    A second group of the one for steps is how many there are in all: `step ([0-9]+)/([0-9]+)`.
    """

    def __init__(self, step_pattern: str = "", loss_pattern: str = "") -> None:
        self._step = re.compile(step_pattern) if step_pattern else None
        self._loss = re.compile(loss_pattern) if loss_pattern else None
        self._rest = ""
        self._steps: int | None = None
        self._total: float | None = None
        self._losses: list[float | None] = []

    @property
    def is_used(self) -> bool:
        """Whether anything is looked for."""
        return self._step is not None or self._loss is not None

    def take(self, data: bytes) -> None:
        """Look through what was added; a line whose end is still to come is kept."""
        text = self._rest + data.decode(errors="replace")
        *lines, self._rest = re.split(r"[\r\n]", text)
        self._rest = self._rest[-4096:]
        for line in lines:
            self._look(line)

    def _look(self, line: str) -> None:
        if self._step is not None and (match := self._step.search(line)):
            groups = [number_in(group) for group in match.groups()]
            if groups and groups[0] is not None:
                self._steps = int(groups[0])
            if len(groups) > 1 and groups[1]:
                self._total = groups[1]
        if self._loss is not None and (match := self._loss.search(line)):
            said = (match.groups() or (match.group(),))[0]
            if said is not None and re.fullmatch(_NUMBER, said.strip(), re.IGNORECASE):
                self._losses.append(number_in(said))

    def reading(self, new_bytes: float | None) -> LogReading:
        """What was found since the last call."""
        losses, self._losses = tuple(self._losses), []
        return LogReading(
            new_bytes=new_bytes, steps=self._steps, total_steps=self._total, losses=losses
        )


def number_in(text: str | None) -> float | None:
    """A finite number as logs have it (`1,200`, `3e-4`); None for what is none."""
    try:
        value = float((text or "").replace(",", "").replace("_", ""))
    except ValueError:
        return None
    return value if value - value == 0 else None


def log_of(pid: int, proc: str = PROC) -> Path | None:
    """The file that a process prints to; None where that is no plain file."""
    for descriptor in (1, 2):
        path = Path(f"{proc}/{pid}/fd/{descriptor}")
        with contextlib.suppress(OSError):
            if stat.S_ISREG(path.stat().st_mode):
                return path.resolve()
    return None


# The agent


@dataclass(slots=True)
class _AgentProcess:
    """The last of what the agent of one process said."""

    info: ProcessInfo = field(default_factory=ProcessInfo)
    progress: RunProgress = field(default_factory=RunProgress)
    losses: list[float | None] = field(default_factory=list)
    read_bytes: int = 0
    pid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentReading:
    """What the agents of a run's processes have counted so far."""

    steps: int | None = None
    batches: int | None = None
    checkpoints: int | None = None
    saving_s: float | None = None
    """The longest that writing a checkpoint has taken."""
    losses: tuple[float | None, ...] = ()
    stack: ThreadStack | None = None
    gpu_names: tuple[str, ...] = ()
    is_on_cpu: bool = False
    """Whether all that train do so on the CPU."""
    new_bytes: int = 0
    """What the agents have written."""


class AgentReader:
    """Reads the files that agents write into a folder; keeps the last of each process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: dict[str, _AgentProcess] = {}

    def read(self, pids: frozenset[int] | None = None) -> AgentReading:
        """What they say now; `pids`: the processes that are alive."""
        new_bytes = 0
        for path in sorted(self._folder.glob(f"*{LINES_SUFFIX}")):
            process = self._processes.setdefault(path.name, _AgentProcess())
            with contextlib.suppress(ValueError):
                process.pid = int(path.name.split(".")[0].split("-")[0])
            new_bytes += _take_lines(process, path)
        return self._reading(pids, new_bytes)

    def _reading(self, pids: frozenset[int] | None, new_bytes: int) -> AgentReading:
        stepping = [one for one in self._processes.values() if one.progress.steps]
        if not stepping:
            return AgentReading(new_bytes=new_bytes)
        alive = [one for one in stepping if pids is None or one.pid in pids]
        names = dict.fromkeys(one.info.uuid or one.info.bus or "" for one in alive)
        losses = min(stepping, key=lambda one: (one not in alive, one.info.rank)).losses
        taken = tuple(losses)
        for one in stepping:
            one.losses.clear()
        return AgentReading(
            steps=_steps(stepping),
            batches=sum(one.progress.batches for one in stepping),
            checkpoints=sum(one.progress.checkpoints for one in stepping),
            saving_s=max(one.progress.saving_s for one in stepping) or None,
            losses=taken,
            stack=_stack(alive),
            gpu_names=tuple(name for name in names if name),
            is_on_cpu=bool(alive) and all(one.info.device == "cpu" for one in alive),
            new_bytes=new_bytes,
        )


def _take_lines(process: _AgentProcess, path: Path) -> int:
    """Take in what was added to a file, or all of one that was begun anew; the bytes."""
    try:
        size = path.stat().st_size
        if size < process.read_bytes:
            process.read_bytes = 0
        if size == process.read_bytes:
            return 0
        with path.open("rb") as file:
            file.seek(process.read_bytes)
            whole, _, _ = file.read(MOST_READ_BYTES).rpartition(b"\n")
    except OSError:
        return 0
    taken = len(whole) + 1 if whole else 0
    process.read_bytes += taken
    for line in whole.split(b"\n"):
        _take_line(process, line)
    return taken


def _take_line(process: _AgentProcess, line: bytes) -> None:
    try:
        kind, values = json.loads(line)
        if kind == RunProgress.__name__:
            process.progress = RunProgress(**values)
        elif kind == ProcessInfo.__name__:
            process.info = ProcessInfo(**values)
        elif kind == Loss.__name__:
            process.losses.append(Loss(**values).value)
            del process.losses[:-1000]
    except (ValueError, TypeError):  # cut off by the death of its process
        return


def _steps(processes: Iterable[_AgentProcess]) -> int:
    """Of the rank with most: its processes one after the other, as after a restart."""
    by_rank: dict[int, int] = {}
    for one in processes:
        by_rank[one.info.rank] = by_rank.get(one.info.rank, 0) + one.progress.steps
    return max(by_rank.values())


def _stack(alive: list[_AgentProcess]) -> ThreadStack | None:
    """Where the processes that train are, all together."""
    states = [one.progress.stack for one in alive]
    if not any(states):
        return None
    state: StackState = "other"
    if "compiling" in states:
        state = "compiling"
    elif all(each == "blocked" for each in states):
        state = "blocked"
    first = min(alive, key=lambda one: one.info.rank)
    expected = max(one.info.world_size for one in alive)
    return ThreadStack(
        state=state,
        same_s=min(one.progress.stack_s for one in alive),
        where=first.progress.where,
        is_complete=len({one.info.rank for one in alive}) >= expected,
    )


# GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuState:
    """The GPUs of a run at one moment."""

    fraction: float | None = None
    power_w: float | None = None
    memory_bytes: float | None = None


class RunGpus:
    """The GPUs that a run uses; all of the machine, as long as it is not known which those are.

    Their use is that of the device, whoever computes on it: a run that waits for another one on
    the same GPU is not idle.
    """

    def __init__(self, driver: Driver | NoDriver) -> None:
        self._driver = driver
        self._watch = GpuWatch(driver)
        self._names: tuple[str, ...] = ()

    def read(self, now_s: float, pids: frozenset[int], agent: AgentReading) -> GpuState:
        """What they do now; nothing of it is known where no driver answers."""
        if isinstance(self._driver, NoDriver):
            has_none = agent.is_on_cpu and not any(part.is_likely for part in self._driver.missing)
            return GpuState(fraction=0.0 if has_none else None)
        if agent.gpu_names and agent.gpu_names != self._names:
            self._names = agent.gpu_names
            self._watch.use(agent.gpu_names)
        samples = self._watch.read(now_s, pids)
        used = [device.index for device in self._watch.used] or list(samples)
        return _gpu_state([samples[index] for index in used if index in samples])


def _gpu_state(samples: list[GpuSample]) -> GpuState:
    """The busiest; unknown where one of them is."""
    fractions = [sample.reading.fraction for sample in samples]
    powers = [sample.reading.power_w for sample in samples]
    memories = [sample.reading.used_bytes for sample in samples]
    return GpuState(
        fraction=_known(max, fractions),
        power_w=_known(sum, powers),
        memory_bytes=_known(sum, memories),
    )


def _known(combine: Any, values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(combine(known)) if known and len(known) == len(values) else None


# All together


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReading:
    """One reading of a run: what the rules go by, and what else is told of it."""

    activity: Activity
    pids: frozenset[int] = frozenset()
    saving_s: float | None = None
    total_steps: float | None = None


class RunReader:
    """Readings of a run on this machine."""

    def __init__(
        self,
        processes: RunProcesses,
        driver: Driver | NoDriver,
        *,
        log: Log | None = None,
        agent: AgentReader | None = None,
        machine: MachineReader | None = None,
    ) -> None:
        """`machine`: of a machine that somebody works at, what goes on there counts instead."""
        self._machine = machine
        self._processes = processes
        self._gpus = RunGpus(driver)
        self._log = log
        self._agent = agent

    def read(self, now_s: float) -> RunReading:
        """What the run did since the last call."""
        processes = self._processes.read()
        if self._machine is not None:
            return replace(self._machine.read(now_s), pids=processes.pids)
        agent = AgentReading() if self._agent is None else self._agent.read(processes.pids)
        log = LogReading() if self._log is None else self._log.read()
        gpus = self._gpus.read(now_s, processes.pids, agent)
        activity = Activity(
            time_s=now_s,
            gpu_fraction=gpus.fraction,
            gpu_power_w=gpus.power_w,
            gpu_memory_bytes=gpus.memory_bytes,
            cpu_s=processes.cpu_s,
            disk_bytes=processes.disk_bytes,
            network_bytes=processes.network_bytes,
            log_bytes=_log_bytes(log, processes, agent, has_log=self._log is not None),
            steps=agent.steps if log.steps is None else log.steps,
            batches=agent.batches,
            checkpoints=agent.checkpoints,
            losses=log.losses or agent.losses,
            held_by=processes.held_by,
            stack=agent.stack,
        )
        return RunReading(
            activity=activity,
            pids=processes.pids,
            saving_s=agent.saving_s,
            total_steps=log.total_steps,
        )


def _log_bytes(
    log: LogReading, processes: ProcessReading, agent: AgentReading, *, has_log: bool
) -> float | None:
    """What was printed; where that is no file, whatever was written, but for the agent's lines."""
    if has_log:
        return log.new_bytes
    if processes.written_bytes is None:
        return None
    return max(processes.written_bytes - agent.new_bytes, 0.0)


# A whole machine

TERMINALS = Path("/dev/pts")
_DISK = re.compile(rb"[a-z]+|nvme\d+n\d+")
"""Whole disks: no partitions."""


class MachineReader:
    """Readings of a machine: all GPUs, all CPUs, disks, network, and what is typed."""

    def __init__(
        self, driver: Driver | NoDriver, *, proc: str = PROC, terminals: Path = TERMINALS
    ) -> None:
        self._gpus = RunGpus(driver)
        self._proc = proc
        self._terminals = terminals
        self._before: Mapping[str, float] = {}
        self._typed_s: float | None = None

    def read(self, now_s: float) -> RunReading:
        """What went on since the last call."""
        before, self._before = self._before, self._counters()
        gpus = self._gpus.read(now_s, frozenset(), AgentReading())
        activity = Activity(
            time_s=now_s,
            gpu_fraction=gpus.fraction,
            gpu_power_w=gpus.power_w,
            gpu_memory_bytes=gpus.memory_bytes,
            cpu_s=self._since(before, "cpu"),
            disk_bytes=self._since(before, "disk"),
            network_bytes=self._since(before, "network"),
            log_bytes=0.0,
            held_by="terminal" if self._has_typed() else None,
        )
        return RunReading(activity=activity)

    def _since(self, before: Mapping[str, float], name: str) -> float | None:
        if name not in before or name not in self._before:
            return None
        return max(self._before[name] - before[name], 0.0)

    def _counters(self) -> dict[str, float]:
        counters: dict[str, float] = {}
        fields = read_bytes(f"{self._proc}/stat").split(b"\n", 1)[0].split()
        if len(fields) > 8 and fields[0] == b"cpu":
            ticks = [int(word) for word in fields[1:9]]
            counters["cpu"] = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
        rows = [line.split() for line in read_bytes(f"{self._proc}/diskstats").splitlines()]
        disks = [row for row in rows if len(row) > 9 and _DISK.fullmatch(row[2])]
        counters["disk"] = 512.0 * sum(int(row[5]) + int(row[9]) for row in disks)
        network = network_bytes(f"{self._proc}/self/net/dev")
        if network is not None:
            counters["network"] = float(network)
        return counters

    def _has_typed(self) -> bool:
        """Whether something was typed at any terminal: the kernel notes when it was last read."""
        times = []
        with contextlib.suppress(OSError):
            for path in self._terminals.iterdir():
                if path.name.isdigit():
                    with contextlib.suppress(OSError):
                        times.append(path.stat().st_atime)
        newest = max(times, default=None)
        before, self._typed_s = self._typed_s, newest
        return newest is not None and before is not None and newest > before
