"""The user's command with the agent in it: started, asked, signalled, and cleared away."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from outlay.errors import InputError
from outlay.probe.agent.channel import ASKED, CONTROL, NOTHING, Asked
from outlay.probe.processes import ProcessTree, read_bytes
from outlay.probe.relay import Relay

_INJECT = Path(__file__).parent / "inject"
_FOLDER = "OUTLAY_PROBE_FOLDER"
GRACE_S = 20.0
"""What a command gets to end by itself after it was asked to, and again after each signal."""
_SUBREAPER = 36
# Source: PR_SET_CHILD_SUBREAPER in linux/prctl.h


class Command:
    """One run of the user's command."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        relay: Relay,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._control = folder / CONTROL
        self._control.write_bytes(ASKED.pack(*NOTHING))
        self._lock = _locked(self._control)
        self.signalled = False
        """Whether outlay had to end it by a signal."""
        _adopt_orphans()
        self.started_s = time.perf_counter()
        try:
            self._process = subprocess.Popen(
                list(command),
                env=_environment(folder, environment or {}),
                stdout=relay.stdout,
                stderr=relay.stderr,
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(command, error) from error
        relay.started()
        self._tree = ProcessTree(self._process.pid)

    @property
    def pid(self) -> int:
        """Of the command itself; what it starts has others."""
        return self._process.pid

    def ask(self, asked: Asked) -> None:
        """Tell every process of the command what is wanted."""
        with self._control.open("r+b") as file:
            file.write(ASKED.pack(*asked))

    def status(self) -> int | None:
        """What it ended with, as a shell would say it; None while it runs."""
        code = self._process.poll()
        if code is None:
            return None
        return 128 - code if code < 0 else code

    def killed_by(self) -> int | None:
        """The signal that ended it, if one did."""
        code = self._process.poll()
        return -code if code is not None and code < 0 else None

    def signal(self, number: int) -> None:
        """Send a signal to every process of the command."""
        self.signalled = True
        for pid in self._pids():
            with contextlib.suppress(OSError):
                os.kill(pid, number)

    def _pids(self) -> list[int]:
        seen = self._tree.read()
        known = {*(seen.pids if seen is not None else ()), *_marked(self._folder)}
        if self._process.poll() is None:
            known.add(self._process.pid)
        return sorted(known - {os.getpid()})

    def clear_away(self) -> None:
        """End whatever the command has left behind."""
        for pid in self._pids():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError, OSError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _locked(path: Path) -> int | None:
    """A lock that is held as long as we live: by it the agents know that we do."""
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return None
    return descriptor


def _marked(folder: Path) -> list[int]:
    """Processes that were given this folder: those of the command, wherever they went (Linux)."""
    mark = f"{_FOLDER}={folder}".encode()
    listed = [int(name) for name in _names("/proc") if name.isdigit()]
    return [pid for pid in listed if mark in read_bytes(f"/proc/{pid}/environ").split(b"\0")]


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    environment = dict(os.environ)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{_INJECT}{os.pathsep}{path}" if path else str(_INJECT)
    environment[_FOLDER] = str(folder)
    return {**environment, **more}


def _adopt_orphans() -> None:
    """Become the parent of what the command leaves behind, so that it can be found (Linux)."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _not_started(command: Sequence[str], error: OSError) -> InputError:
    name, fix = command[0], f"Write {_meant(command)}"
    if not name.strip():
        return InputError("The command to probe is empty.", fix=fix)
    if isinstance(error, FileNotFoundError) and shutil.which(name) is None:
        return InputError(f"There is no command {name!r}.", fix=fix)
    return InputError(f"{name!r} cannot be started: {error.strerror}.", fix=fix)


def _meant(command: Sequence[str]) -> str:
    """What was probably meant, as it is typed; an example where there is no telling."""
    name, *more = command
    words = _words(name)
    if len(words) > 1 and not Path(name).exists():
        return f"it without quotes around the whole: outlay probe -- {shlex.join([*words, *more])}"
    if Path(name).is_file() and Path(name).suffix == ".py":
        return f"what runs it before it: outlay probe -- {shlex.join(['python', *command])}"
    if Path(name).is_file() and Path(name).suffix == ".sh":
        return f"what runs it before it: outlay probe -- {shlex.join(['bash', *command])}"
    return "what you would type to train, for example: outlay probe -- python train.py"


def _words(text: str) -> list[str]:
    """As a shell would split it; one word where it would not."""
    try:
        return shlex.split(text)
    except ValueError:
        return [text]
