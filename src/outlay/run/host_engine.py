"""Engines `local` and `ssh`: a process of its own on a machine one can log in to.

A run is started in a session of its own, so that it goes on when we and the connection are gone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outlay.errors import LaunchFailed
from outlay.run.engine import EngineState, JobFile
from outlay.run.job import Job
from outlay.run.run_folder import (
    JOB,
    LOG,
    SCRIPT,
    RunFolder,
    engine_state,
    job_json,
    job_script,
    own_wheel,
)
from outlay.run.shell import HereShell, Shell

_POLL_S = 0.2
_STARTS_S = 10.0
_KILLED_S = 15.0
"""Within which a process that is killed is gone, even where it waits for a disk."""


@dataclass(frozen=True, slots=True)
class HostEngine:
    """Runs jobs on the machine of a shell."""

    shell: Shell
    name: Literal["local", "ssh"]

    def render(self, job: Job) -> JobFile:
        """The script that runs there."""
        if job.machine.machines > 1:
            raise LaunchFailed(
                f"The engine {self.name} starts on one machine, not {job.machine.machines}.",
                fix="Use --engine slurm or skypilot, or a plan with usage.machines = 1.",
            )
        before = ["export OUTLAY_NODE_RANK=0 OUTLAY_HEAD_ADDRESS=127.0.0.1"]
        return JobFile(name=SCRIPT, text=job_script(job, before=before))

    def check(self, job: Job) -> None:
        """Raise where the machine cannot be reached."""
        self._folder(job).state()

    def submit(self, job: Job, file: JobFile, secrets: Mapping[str, str]) -> str:
        """Send all files, then start the script: it starts nothing a second time by itself."""
        folder = self._folder(job)
        if folder.state().started_s is not None:
            return self.shell.name
        folder.write(JOB, job_json(job))
        folder.write(SCRIPT, file.text.encode())
        if not job.outlay and self._needs_outlay():
            folder.write(*own_wheel())
        if self._is_here and job.folder:
            folder.link(job)
        else:
            folder.send(job)
        here = str(Path(sys.executable).parent) if self._is_here else ""
        folder.start(["sh", SCRIPT], secrets, here)
        self._await_start(folder)
        return self.shell.name

    @property
    def _is_here(self) -> bool:
        return isinstance(self.shell, HereShell)

    def _needs_outlay(self) -> bool:
        if self._is_here:
            return False
        look = 'PATH="$PATH:$HOME/.outlay/venv/bin" command -v outlay'
        return self.shell.run(["sh", "-c", look]).status != 0

    def _await_start(self, folder: RunFolder) -> None:
        ends_s = time.monotonic() + _STARTS_S
        while folder.state().started_s is None:
            if time.monotonic() > ends_s:
                log = folder.read(LOG).decode(errors="replace")[-500:]
                raise LaunchFailed(
                    f"Run {folder.run} did not start on {self.shell.name}.",
                    why=log,
                    fix="The same again starts it, and never twice.",
                )
            time.sleep(_POLL_S)

    def find(self, job: Job) -> str | None:
        """The machine's name, if the run was started there."""
        return None if self._folder(job).state().started_s is None else self.shell.name

    def state(self, job: Job, handle: str) -> EngineState:  # noqa: ARG002
        """How it is doing, by its folder."""
        state = engine_state(self._folder(job).state())
        return state or EngineState(state="lost", reason="it was not started there")

    def logs(self, job: Job, handle: str, offset: int = 0) -> bytes:  # noqa: ARG002
        """What it has printed."""
        return self._folder(job).read(LOG, offset)

    def stop(self, job: Job, handle: str, *, grace_s: float) -> None:  # noqa: ARG002
        """Ask it to end; end it after the grace period."""
        folder = self._folder(job)
        if folder.state().exit_status is not None:
            return
        folder.write("stop", b"")
        for name, wait_s in (("TERM", grace_s), ("KILL", _KILLED_S)):
            folder.signal(name)
            if _has_ended(folder, wait_s, is_killed=name == "KILL"):
                return
        raise LaunchFailed(
            f"Run {job.id} on {self.shell.name} has not ended, though it was told to.",
            fix=f"Look at its processes there: {job.id}. It may still cost money.",
        )

    def delete(self, job: Job, handle: str) -> None:
        """Remove its folder there."""
        self.stop(job, handle, grace_s=job.watch.grace_s)
        self._folder(job).remove()

    def fetch(self, job: Job, handle: str, to: Path) -> list[Path]:  # noqa: ARG002
        """Bring back what the job says; what was written here already stays where it is."""
        return self._folder(job).fetch(() if self._is_here else job.fetch, to)

    def _folder(self, job: Job) -> RunFolder:
        return RunFolder(self.shell, job.id)


def _has_ended(folder: RunFolder, within_s: float, *, is_killed: bool) -> bool:
    """Whether a run ends in so long; one whose script is gone may have processes left."""
    ends_s = time.monotonic() + within_s
    while True:
        state = folder.state()
        if state.exit_status is not None or state.started_s is None:
            return True
        is_alive = state.is_alive or state.is_working
        if not is_alive and (state.pid is not None or is_killed):
            return is_killed
        if time.monotonic() > ends_s:
            return False
        time.sleep(_POLL_S)
