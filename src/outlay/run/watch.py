"""Looking on from elsewhere: a run of outlay, a process over ssh, a Slurm job, a SkyPilot cluster.

    RunFollower     a run that outlay started: what its engine and its own guard say of it
    RemoteProcesses processes of another machine, read by a small script and judged here
    SlurmJob        the processes of a Slurm job
    SkyCluster      the machine of a SkyPilot cluster

The script prints what /proc, nvidia-smi and the log say; here it is laid out as files again, and
read by the same code as on this machine (`activity`).
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from outlay.errors import InputError, LaunchFailed, OutlayError
from outlay.probe.gpu_driver import Driver, GpuDevice, GpuReading, Vendor
from outlay.run.activity import (
    LogPatterns,
    LogReading,
    MachineReader,
    RunProcesses,
    RunReader,
    RunReading,
    handles,
    started_ticks,
)
from outlay.run.engine import ENDED, Engine, EngineState
from outlay.run.job import Job
from outlay.run.progress import RunStatus
from outlay.run.redaction import redacted
from outlay.run.rules import Activity, HourlyBilling, span
from outlay.run.shell import Shell, ShellFailed
from outlay.run.supervisor import Told
from outlay.units import MIB
from outlay.workload.workload import WatchSettings

# The script that reads another machine

_MARK = "@outlay "
_SCRIPT = r"""
# $1: a process, `machine`, or `slurm ID`; $2: the log, if it is named; $3: how much of it is known
mark() { echo "@outlay $1"; }
target=$1; log=$2; offset=$3
roots=$target
case $target in
machine) roots= ;;
slurm-*)
  roots=
  own=${SLURM_STEP_ID:-none}
  for of in $(grep -lszxF "SLURM_JOB_ID=${target#slurm-}" /proc/[0-9]*/environ 2>/dev/null); do
    grep -qszxF "SLURM_STEP_ID=$own" "$of" && continue
    of=${of#/proc/}; roots="$roots ${of%/environ}"
  done ;;
esac
if [ -n "$roots" ]; then
  members=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v roots="$roots" '
    { pid = $1; sub(/.*\) /, ""); split($0, f, " "); parent[pid] = f[2]; session[pid] = f[4] }
    END {
      n = split(roots, r, " ")
      for (i = 1; i <= n; i++) if (r[i] in parent) { in_it[r[i]] = 1; is_root[r[i]] = 1 }
      do {
        more = 0
        for (p in parent) if (!(p in in_it) && ((parent[p] in in_it) || (session[p] in is_root)))
          { in_it[p] = 1; more = 1 }
      } while (more)
      for (p in in_it) print p
    }')
  for pid in $members; do
    for name in stat io syscall; do
      [ -r "/proc/$pid/$name" ] && mark "file $pid/$name" && cat "/proc/$pid/$name" 2>/dev/null
    done
    mark "file $pid/status"
    grep -E '^(State|TracerPid|SigCgt):' "/proc/$pid/status" 2>/dev/null
    mark "link $pid/fd/0 $(readlink "/proc/$pid/fd/0" 2>/dev/null)"
    [ -z "$log" ] && [ -f "/proc/$pid/fd/1" ] && log="/proc/$pid/fd/1"
  done
else
  mark "file stat"; head -n 1 /proc/stat
  mark "file diskstats"; cat /proc/diskstats 2>/dev/null
  for path in /dev/pts/[0-9]*; do
    mark "typed ${path##*/} $(stat -c %X "$path" 2>/dev/null)"
  done
fi
mark "file self/net/dev"; cat /proc/self/net/dev 2>/dev/null
if command -v nvidia-smi >/dev/null 2>&1; then
  mark gpus
  nvidia-smi --query-gpu=uuid,utilization.gpu,power.draw,memory.used \
    --format=csv,noheader,nounits 2>/dev/null
  mark apps
  nvidia-smi --query-compute-apps=gpu_uuid,pid --format=csv,noheader 2>/dev/null
fi
if [ -n "$log" ] && [ -f "$log" ]; then
  size=$(wc -c < "$log")
  mark "log $size"
  [ "$offset" -lt 0 ] || [ "$size" -le "$offset" ] ||
    tail -c "+$((offset + 1))" "$log" | head -c 200000
fi
exit 0
"""


@dataclass(slots=True)
class _Answer:
    """What the script said, in parts."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    typed: dict[str, float] = field(default_factory=dict)
    gpus: bytes | None = None
    apps: bytes = b""
    log_size: int | None = None
    log: bytes = b""


def parse_answer(data: bytes) -> _Answer:
    """The parts of what the script printed; the log is the last."""
    answer = _Answer()
    head, _, log = data.partition(f"\n{_MARK}log ".encode())
    if log:
        size, _, answer.log = log.partition(b"\n")
        answer.log_size = int(size) if size.strip().isdigit() else None
    for part in (b"\n" + head).split(f"\n{_MARK}".encode())[1:]:
        title, _, text = part.partition(b"\n")
        kind, _, rest = title.decode(errors="replace").partition(" ")
        if kind == "file":
            answer.files[rest] = text + b"\n"
        elif kind == "link":
            name, _, target = rest.partition(" ")
            answer.links[name] = target
        elif kind == "typed":
            name, _, at_s = rest.partition(" ")
            if at_s.strip().isdigit():
                answer.typed[name] = float(at_s)
        elif kind == "gpus":
            answer.gpus = text
        elif kind == "apps":
            answer.apps = text
    return answer


class SmiDriver:
    """The GPUs of another machine, by what nvidia-smi printed there."""

    vendor: Vendor = "NVIDIA"

    def __init__(self) -> None:
        self.devices: tuple[GpuDevice, ...] = ()
        self._readings: dict[str, GpuReading] = {}
        self._processes: dict[str, dict[int, float | None]] = {}

    def take(self, gpus: bytes | None, apps: bytes) -> bool:
        """Take in an answer; whether it has GPUs."""
        self._readings = {}
        for line in (gpus or b"").decode(errors="replace").splitlines():
            words = [word.strip() for word in line.split(",")]
            if len(words) == 4:
                self._readings[words[0]] = GpuReading(
                    fraction=_scaled(words[1], 0.01),
                    power_w=_scaled(words[2], 1.0),
                    used_bytes=_scaled(words[3], MIB),
                )
        if not self.devices:
            self.devices = tuple(
                GpuDevice(index=index, name="NVIDIA GPU", uuid=uuid)
                for index, uuid in enumerate(self._readings)
            )
        self._processes = {}
        for line in apps.decode(errors="replace").splitlines():
            uuid, _, pid = line.partition(",")
            if pid.strip().isdigit():
                self._processes.setdefault(uuid.strip(), {})[int(pid)] = None
        return bool(self._readings)

    def read(self, device: GpuDevice) -> GpuReading:
        """What it said of one."""
        return self._readings.get(device.uuid or "", GpuReading())

    def processes(self, device: GpuDevice) -> Mapping[int, float | None] | None:
        """Those that compute on it."""
        return self._processes.get(device.uuid or "", {})

    def close(self) -> None:
        """Nothing is open."""


def _scaled(text: str, factor: float) -> float | None:
    try:
        return float(text) * factor
    except ValueError:
        return None


class _RemoteLog:
    """The log of another machine, by what the script said of it."""

    def __init__(self, patterns: LogPatterns) -> None:
        self._patterns = patterns
        self._size: int | None = None
        self._new: float | None = None

    @property
    def offset(self) -> int:
        """From where on it is wanted; -1 where only its size is."""
        return (self._size or 0) if self._patterns.is_used else -1

    def take(self, answer: _Answer) -> None:
        """Take in an answer."""
        before, now = self._size, answer.log_size
        self._new = None if now is None or before is None else float(abs(now - before))
        self._size = now if now is None or now >= (before or 0) else 0
        if answer.log:
            self._patterns.take(answer.log)

    def read(self) -> LogReading:
        """What was added."""
        return self._patterns.reading(self._new)


# Processes of another machine

_ROOT = 1
"""The number that stands for the parent of all that is looked at."""


class RemoteProcesses:
    """Processes of another machine: one and all it started, or what a job has there."""

    pid: int | None = None

    def check(self) -> None:
        """Raise where it cannot be read at all, or is not there: once it is looked at, what cannot
        be read counts as activity, and a mistake would be looked at forever."""
        self.read(time.monotonic())
        if not self._is_alive:
            raise InputError(
                f"There is no {self._noun} on {self._shell.name} that goes on.",
                fix="Look at its number; of one that has ended nothing is left to watch.",
            )

    @property
    def _noun(self) -> str:
        return f"process {self._target}"

    def __init__(self, shell: Shell, target: str, settings: WatchSettings, log: str = "") -> None:
        """`target`: a process number, `machine`, or `slurm-ID`."""
        self._shell = shell
        self._target = target
        self._log_path = log
        folder = tempfile.mkdtemp(prefix="outlay-watch-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._proc = Path(folder) / "proc"
        self._terminals = Path(folder) / "pts"
        self._driver = SmiDriver()
        self._log = _RemoteLog(LogPatterns(settings.step_pattern, settings.loss_pattern))
        self._reader: RunReader | MachineReader | None = None
        self._is_alive = True
        self._started: int | None = None
        self.pid = int(target) if target.isdigit() else None

    def is_alive(self) -> bool:
        """Whether it was there when it was last asked for; not being able to ask is no end."""
        return self._is_alive

    def read(self, now_s: float) -> RunReading:
        """Ask the machine, and read what it says as if it were here."""
        arguments = self._arguments()
        done = self._shell.run(arguments)
        if done.status != 0 or not done.output.startswith(_MARK.encode()):
            raise ShellFailed(
                f"{self._shell.name} did not say what its processes do.", why=done.error[-300:]
            )
        answer = parse_answer(done.output)
        self._lay_out(answer)
        self._note_end()
        self._log.take(answer)
        has_gpus = self._driver.take(answer.gpus, answer.apps)
        if self._reader is None:
            self._reader = self._new_reader()
        reading = self._reader.read(now_s)
        if has_gpus:
            return reading
        return replace(reading, activity=replace(reading.activity, gpu_fraction=None))

    def _arguments(self) -> list[str]:
        offset = str(self._log.offset)
        return ["sh", "-c", _SCRIPT, "outlay", self._target, self._log_path, offset]

    def _new_reader(self) -> RunReader | MachineReader:
        driver: Driver = self._driver
        if self._target == "machine":
            return MachineReader(driver, proc=str(self._proc), terminals=self._terminals)
        return RunReader(
            RunProcesses(_ROOT, proc=self._proc, has_sockets=False), driver, log=self._log
        )

    def _lay_out(self, answer: _Answer) -> None:
        """Write what was said as files, below a process that stands for the parent of all."""
        shutil.rmtree(self._proc, ignore_errors=True)
        for name, data in answer.files.items():
            path = self._proc / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_below_root(data) if name.endswith("/stat") else data)
        (self._proc / str(_ROOT)).mkdir(parents=True, exist_ok=True)
        (self._proc / str(_ROOT) / "stat").write_bytes(_ROOT_STAT)
        (self._proc / str(_ROOT) / "io").write_bytes(_ROOT_IO)
        for name, target in answer.links.items():
            if target:
                path = self._proc / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.symlink_to(target)
        self._terminals.mkdir(exist_ok=True)
        for name, at_s in answer.typed.items():
            (self._terminals / name).touch()
            os.utime(self._terminals / name, (at_s, at_s))

    def _note_end(self) -> None:
        if self.pid is None:
            return
        started = started_ticks(self.pid, str(self._proc))
        if self._started is None:
            self._started = started
        self._is_alive = started is not None and started == self._started

    @property
    def _pids(self) -> list[int]:
        found = [int(path.name) for path in self._proc.glob("[0-9]*")]
        return sorted(pid for pid in found if pid != _ROOT)

    def handles(self, number: int) -> bool:
        """As `WatchTarget.handles`."""
        return any(handles(pid, number, str(self._proc)) for pid in self._pids)

    def send(self, number: int, *, only_handlers: bool = False) -> None:
        """As `WatchTarget.send`."""
        proc = str(self._proc)
        pids = [pid for pid in self._pids if not only_handlers or handles(pid, number, proc)]
        if pids:
            script = 'name=$1; shift; kill -s "$name" "$@" 2>/dev/null; exit 0'
            name = signal.Signals(number).name.removeprefix("SIG")
            self._shell.run(["sh", "-c", script, "outlay", name, *map(str, pids)])

    def exit_status(self) -> int | None:
        """Not known: it is nobody's child here."""
        return None


_ROOT_STAT = b"1 (outlay) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
_ROOT_IO = b"rchar: 0\nwchar: 0\nread_bytes: 0\nwrite_bytes: 0\n"


def _below_root(stat: bytes) -> bytes:
    """A line of /proc/PID/stat, as if our root were its parent: roots have others, or none."""
    head, bracket, rest = stat.rpartition(b") ")
    fields = rest.split(b" ")
    if len(fields) > 2:
        fields[1] = str(_ROOT).encode()
    return head + bracket + b" ".join(fields)


# Slurm and SkyPilot

_SLURM_ALIVE = (
    *("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "RESIZING"),
)
# Source: man squeue, JOB STATE CODES


class SlurmJob(RemoteProcesses):
    """A Slurm job, read by a step of its own on its first machine."""

    def __init__(self, shell: Shell, job: str, settings: WatchSettings, log: str = "") -> None:
        if not job.replace("_", "").isdigit():
            raise InputError(f"{job!r} is no number of a Slurm job.", fix="See `squeue --me`.")
        super().__init__(shell, f"slurm-{job}", settings, log)
        self._job = job
        self._state = ""

    @property
    def _noun(self) -> str:
        return f"Slurm job {self._job}"

    @property
    def _step(self) -> list[str]:
        """What runs a command beside the job, on its first machine."""
        of_job = ["srun", "--quiet", f"--jobid={self._job}", "--overlap"]
        return [*of_job, "--nodes=1", "--ntasks=1", "--mem=0", "--input=none"]

    def _arguments(self) -> list[str]:
        return [*self._step, *super()._arguments()]

    def read(self, now_s: float) -> RunReading:
        """Ask the cluster, and the job's machine where it runs."""
        done = self._shell.run(["squeue", "--noheader", f"--jobs={self._job}", "--format=%T"])
        words = done.output.decode(errors="replace").split()
        if done.status != 0 and "invalid job id" not in done.error.lower():
            raise ShellFailed(f"squeue on {self._shell.name} failed.", why=done.error[-300:])
        self._state = words[0] if words else ""
        self._is_alive = self._state in _SLURM_ALIVE
        if self._state != "RUNNING":
            return RunReading(activity=Activity(time_s=now_s))
        return super().read(now_s)

    def send(self, number: int, *, only_handlers: bool = False) -> None:
        """As `WatchTarget.send`: to end it is Slurm's to do, which ends all its steps."""
        name = signal.Signals(number).name.removeprefix("SIG")
        if number == signal.SIGTERM:
            self._shell.run(["scancel", self._job])
        elif number == signal.SIGKILL:
            self._shell.run(["scancel", "--full", f"--signal={name}", self._job])
        elif only_handlers:
            proc = str(self._proc)
            pids = [str(pid) for pid in self._pids if handles(pid, number, proc)]
            if pids:
                self._shell.run([*self._step, "kill", "-s", name, *pids])


class SkyCluster(RemoteProcesses):
    """The machine of a SkyPilot cluster, which `sky` can be asked to stop."""

    def __init__(
        self, ssh: Shell, sky: Shell, cluster: str, settings: WatchSettings, log: str = ""
    ) -> None:
        super().__init__(ssh, "machine", settings, log)
        self._sky = sky
        self._cluster = cluster
        self._settings = settings

    def handles(self, number: int) -> bool:  # noqa: ARG002
        """The jobs there are SkyPilot's to end."""
        return False

    def send(self, number: int, *, only_handlers: bool = False) -> None:  # noqa: ARG002
        """Stop the machine, or only its jobs, as the settings say."""
        if self._settings.then == "shut down":
            arguments = ["sky", "stop", "--yes", self._cluster]
        else:
            arguments = ["sky", "cancel", "--all", "--yes", self._cluster]
        done = self._sky.run(arguments, timeout_s=600.0)
        if done.status != 0:
            raise LaunchFailed(
                f"sky could not stop {self._cluster}.",
                why=redacted(done.error[-300:]),
                fix="It still costs money: see `sky status`.",
            )
        self._is_alive = False

    def delete(self) -> None:
        """Delete the machine, its disk included."""
        done = self._sky.run(["sky", "down", "--yes", self._cluster], timeout_s=600.0)
        if done.status != 0:
            raise LaunchFailed(
                f"sky could not delete {self._cluster}.",
                why=redacted(done.error[-300:]),
                fix="Its disk still costs money: see `sky status`.",
            )


# A run of outlay

_STATUS = TypeAdapter(RunStatus)
GUARD_SILENT_S = 120.0
"""Without a new status for so long, a run's own guard is taken to be gone."""
ASK_S = 10.0
LONGEST_ASK_S = 300.0


def status_in(content: Mapping[str, Any]) -> RunStatus | None:
    """What a run's own guard wrote; None where that is nothing, or of another version."""
    if not content:
        return None
    try:
        known = {name: value for name, value in content.items() if name in RunStatus.__slots__}
        return _STATUS.validate_python(known)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """How a run that was followed has ended."""

    state: EngineState
    is_deleted: bool = False


class RunFollower:
    """Follows a run to its end, by what its engine says.

    Its own guard ends it. Where there is none, or where it is gone, the budget, the deadline and
    the time limit are kept from here; after a stop, the machine is deleted in time.
    """

    def __init__(
        self,
        engine: Engine,
        job: Job,
        handle: str,
        told: Sequence[Told] = (),
        *,
        clock: Callable[[], float] = time.time,
        wait: Callable[[float], None] = time.sleep,
        ask_s: float = ASK_S,
        budget_usd: float | None = None,
        idle_s: float | None = None,
    ) -> None:
        """`budget_usd`, `idle_s`: kept from here as well, whatever its own guard goes by."""
        self._own_budget_usd = budget_usd
        self._own_idle_s = idle_s
        self._engine = engine
        self._job = job
        self._handle = handle
        self._told = list(told)
        self._clock = clock
        self._wait = wait
        self._ask_s = ask_s
        self._failed = 0
        self._last_status: tuple[float, float] | None = None
        """The guard's last time, and ours when it was new."""
        self._warned: set[str] = set()

    def follow(self) -> Followed:
        """Until it has ended, and was deleted where that is to be."""
        while True:
            state = self._asked()
            if state is not None:
                self._tell_status(state)
                if state.state in ENDED:
                    return self._ended(state)
                self._keep_limits(state)
            self._wait(min(self._ask_s * 2 ** min(self._failed, 6), LONGEST_ASK_S))

    def _asked(self) -> EngineState | None:
        """What the engine says; None where it cannot be asked just now."""
        try:
            state = self._engine.state(self._job, self._handle)
        except ShellFailed as error:
            if error.is_lasting:
                raise
            self._fail(error)
        except LaunchFailed as error:
            self._fail(error)
        else:
            self._failed = 0
            return state
        return None

    def _fail(self, error: OutlayError) -> None:
        self._failed += 1
        if self._failed == 1:
            self._event("note", f"{error} The run goes on; it is asked for again.")

    def _tell_status(self, state: EngineState) -> None:
        status = status_in(state.status) or RunStatus(run=self._job.id)
        now_s = self._clock()
        if self._last_status is None or self._last_status[0] != status.time_s:
            self._last_status = status.time_s, now_s
        phase = state.phase if state.phase and state.phase != "training" else status.phase
        if state.state in ENDED:
            phase = "ended"
        elif state.state != "running":
            phase = state.state
        cost_usd = status.cost_usd
        bill = bill_of(self._job, state)
        if bill is not None and state.held_since_s is not None:
            ended_s = state.ended_s if state.ended_s is not None else now_s
            cost_usd = bill.usd(max(ended_s - state.held_since_s, 0.0))
        told = replace(
            status,
            run=self._job.id,
            time_s=now_s,
            phase=phase or state.state,
            cost_usd=cost_usd,
            budget_usd=self._job.budget_usd,
            exit_status=state.exit_status,
            predicted_cost_usd=self._job.cost_usd,
            price_usd_per_hour=None if bill is None else bill.usd_per_hour,
            total_steps=status.total_steps or self._job.steps,
        )
        for one in self._told:
            one.status(told)
        if status.warning and status.warning not in self._warned:
            self._warned.add(status.warning)
            self._event("warning", status.warning)

    @property
    def _is_guarded(self) -> bool:
        """Whether its own guard is there: it has written something of late."""
        if self._last_status is None or not self._last_status[0]:
            return False
        return self._clock() - self._last_status[1] < GUARD_SILENT_S

    def _keep_limits(self, state: EngineState) -> None:
        """Stop a run without a guard before its budget or time limit passes; and any run for what
        is to be kept from here."""
        why = self._own_reason(state)
        if why is None and not self._is_guarded and self._job.watch.then != "warn":
            why = self._passed(state, self._job.budget_usd)
            why = why and f"{why} Its own guard does not answer."
        if why is None:
            return
        self._event("stopped", f"{why} It is stopped from here.")
        self._engine.stop(self._job, self._handle, grace_s=self._job.watch.grace_s)

    def _own_reason(self, state: EngineState) -> str | None:
        """Why a run is to be stopped for what is kept from here, if it is."""
        if self._own_budget_usd is not None:
            why = self._passed(state, self._own_budget_usd)
            if why is not None:
                return why
        status, idle_s = status_in(state.status), self._own_idle_s
        if idle_s is None or status is None or status.quiet_s is None or not self._is_guarded:
            return None
        if status.quiet_s < idle_s + self._job.watch.grace_s:
            return None
        return f"Nothing has gone on for {span(status.quiet_s)}."

    def _passed(self, state: EngineState, budget_usd: float | None) -> str | None:
        """Which limit would be passed before a stop is over, if any would."""
        job, now_s, held_since_s = self._job, self._clock(), state.held_since_s
        if held_since_s is None:
            return None
        soon_s = now_s + job.watch.grace_s + 2 * self._ask_s
        bill = bill_of(job, state)
        budget_s = None
        if bill is not None and budget_usd is not None:
            budget_s = bill.longest_s(budget_usd)
        if budget_s is not None and soon_s >= held_since_s + budget_s:
            return "The budget is spent."
        if job.longest_s is not None and soon_s >= held_since_s + job.longest_s:
            return "The time limit is reached."
        return None

    def _ended(self, state: EngineState) -> Followed:
        words = f"It has ended: {state.state}"
        reason = state.reason.removesuffix(".")
        self._event("ended", f"{words}. {reason}." if reason else f"{words}.")
        after_s = self._job.watch.delete_after_s
        if after_s is None:
            return Followed(state=state)
        ended_s = state.ended_s if state.ended_s is not None else self._clock()
        left_s = max(ended_s + after_s - self._clock(), 0.0)
        self._event("note", f"What is left of it there is deleted in {span(left_s)}.")
        while (left_s := ended_s + after_s - self._clock()) > 0:
            self._wait(min(left_s, 60.0))
        self._engine.delete(self._job, self._handle)
        self._event("deleted", "What was left of it there is deleted, its disk included.")
        return Followed(state=state, is_deleted=True)

    def _event(self, event: str, text: str) -> None:
        said = {
            "time_s": self._clock(),
            "event": event,
            "rule": None,
            "text": redacted(text),
            "run": self._job.id,
        }
        for one in self._told:
            one.event(said)


def bill_of(job: Job, state: EngineState | None = None) -> HourlyBilling | None:
    """What its machines cost, where that is known; the engine may have gone elsewhere."""
    if state is None or state.price_usd_per_hour is None:
        return job.machine.billing
    return replace(job.machine, price_usd_per_hour=state.price_usd_per_hour).billing
