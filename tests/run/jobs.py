"""Jobs for tests of engines, and commands put in front of real ones that misbehave."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

from outlay.run.engine import ENDED, Engine, EngineState
from outlay.run.job import Job, new_id


def job(**given: Any) -> Job:
    """A job that prints one line, without a guard."""
    usual = {
        "id": new_id("trial"),
        "name": "trial",
        "engine": "ssh",
        "command": "echo hello",
        "outlay": "none",
    }
    return Job(**{**usual, **given})


def submitted(engine: Engine, of: Job, **secrets: str) -> str:
    """Submit a job as it is rendered."""
    return engine.submit(of, engine.render(of), secrets)


def ended(engine: Engine, of: Job, handle: str, *, within_s: float = 30.0) -> EngineState:
    """How a job ends."""
    end_s = time.monotonic() + within_s
    while (state := engine.state(of, handle)).state not in ENDED:
        assert time.monotonic() < end_s, f"it still is {state}"
        time.sleep(0.1)
    return state


def printed(engine: Engine, of: Job, handle: str, text: bytes, *, within_s: float = 20.0) -> None:
    """Wait until a job has printed something."""
    end_s = time.monotonic() + within_s
    while text not in (log := engine.logs(of, handle)):
        assert time.monotonic() < end_s, f"it has printed {log!r}"
        time.sleep(0.05)


def submitted_until_killed(engine: Engine, of: Job) -> bool:
    """Whether a process of its own that submits a job comes to its end; it may be killed."""
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            submitted(engine, of)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0


class Wrapper:
    """A program of that name put before the real one on PATH; it does what its script says.

    The script is of shell: `real "$@"` is the real program, `$calls` how often it was called
    before.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.path = folder / name
        self.calls = folder / f"{name}.calls"
        self._head = (
            "#!/bin/sh\n"
            f"real() {{ '{shutil.which(name)}' \"$@\"; }}\n"
            f"calls=0; while read -r _; do calls=$((calls + 1)); done < '{self.calls}'\n"
            f"echo >> '{self.calls}'\n"
        )
        self.does("")

    def does(self, script: str, *, when: str = "true") -> None:
        """From now on it does this, and what the real one does where `when` is not true."""
        self.calls.write_text("")
        self.path.unlink(missing_ok=True)  # one that runs at this moment is left alone
        instead = f"if {when}; then\n:\n{script}\nfi\n" if script else ""
        self.path.write_text(f'{self._head}{instead}real "$@"\n')
        self.path.chmod(0o755)

    @property
    def count(self) -> int:
        """How often it was called."""
        return len(self.calls.read_text().splitlines())


FAULTS = {
    "refused": "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255",
    "reset": "echo 'kex_exchange_identification: Connection reset by peer' >&2; exit 255",
    "name": "echo 'ssh: Could not resolve hostname x: Temporary failure' >&2; exit 255",
    "reply lost": 'real "$@" > /dev/null 2>&1; exit 255',
    "half a reply": 'real "$@" 2>/dev/null; exit 0',
    "cut": "printf outlay-be; exit 0",
    "broken at the end": 'real "$@"; echo "client_loop: Broken pipe" >&2; exit 255',
}
"""What goes wrong with a connection, as the ssh program shows it."""
