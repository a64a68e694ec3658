"""What an engine must do, and which there are.

An engine runs jobs: this machine, one over ssh, a Slurm cluster, a cloud through SkyPilot. It keeps
nothing itself: a job's id finds its run again, so that what was submitted once is not submitted
twice, whatever happened to the process that did it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from outlay.run.job import Job
from outlay.workload.workload import EngineName

RunState = Literal[
    "planned", "submitting", "queued", "running", "done", "failed", "stopped", "lost"
]
"""`planned`: recorded, nothing was asked of the engine. `submitting`: it may have been. `queued`:
the engine has it, nothing runs yet. `lost`: the engine does not know it any more, and how it ended
is not known."""
ENDED: frozenset[RunState] = frozenset({"done", "failed", "stopped", "lost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFile:
    """The engine's own file of a job: kept beside the run, and submitted as it is."""

    name: str
    """`job.sh`, `task.yaml`."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineState:
    """What an engine says of a job."""

    state: RunState
    reason: str = ""
    """In words: what it waits for, how it ended."""
    exit_status: int | None = None
    phase: str = ""
    """`set-up`, `training`; empty where not known."""
    held_since_s: float | None = None
    """Since when machines are held, which is what is billed; seconds since 1970."""
    ended_s: float | None = None
    status: Mapping[str, Any] = field(default_factory=dict)
    """What the guard on the machine last wrote of it (`status.json`); empty where there is none."""
    place: str = ""
    """Where it runs, if that is not what was asked for: after a fail-over."""
    price_usd_per_hour: float | None = None
    """Of that place, where the engine says it."""


class Engine(Protocol):
    """A way to run jobs."""

    @property
    def name(self) -> EngineName:
        """Which one it is."""
        ...

    def render(self, job: Job) -> JobFile:
        """The engine's own file; nothing need be installed or reachable."""
        ...

    def check(self, job: Job) -> None:
        """Raise where a job could not be submitted: a program or a login is missing."""
        ...

    def submit(self, job: Job, file: JobFile, secrets: Mapping[str, str]) -> str:
        """Start a job, or find that it was started before; what the engine knows it by.

        `file` may have been edited by the user. `secrets`: values of the job's `pass_on`.
        Submitting the same job again, at any point of another submission, starts nothing twice.
        """
        ...

    def find(self, job: Job) -> str | None:
        """What the engine knows a job by, if it has it."""
        ...

    def state(self, job: Job, handle: str) -> EngineState:
        """How a job is doing."""
        ...

    def logs(self, job: Job, handle: str, offset: int = 0) -> bytes:
        """What it has printed, from so many bytes on."""
        ...

    def stop(self, job: Job, handle: str, *, grace_s: float) -> None:
        """Ask it to end, and end it after the grace period; a machine that was rented for it is
        given back, its disk kept only where the job is interactive."""
        ...

    def delete(self, job: Job, handle: str) -> None:
        """Remove all that is left of it there, the machine and its disk included."""
        ...

    def fetch(self, job: Job, handle: str, to: Path) -> list[Path]:
        """Bring what the job says back into a folder here; what came."""
        ...


def engine_of(job: Job) -> Engine:
    """The engine of a job."""
    from outlay.run.host_engine import HostEngine
    from outlay.run.shell import HereShell, SshShell
    from outlay.run.skypilot import SkyPilotEngine
    from outlay.run.slurm import SlurmEngine

    if job.engine == "local":
        return HostEngine(HereShell(), name="local")
    if job.engine == "ssh":
        return HostEngine(SshShell(job.machine.host), name="ssh")
    if job.engine == "slurm":
        return SlurmEngine(SshShell(job.slurm.login) if job.slurm.login else HereShell())
    return SkyPilotEngine()
