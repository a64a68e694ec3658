"""The user's command with the agent in it, and where its output goes.

Relay    passes the output on as it comes, with a line of our own kept below it
Command  starts the command, sends requests and signals to its processes, ends what remains
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from outlay.errors import InputError
from outlay.probe.agent.protocol import CONTROL_FILE, FOLDER_VARIABLE, NO_REQUEST, AgentRequest
from outlay.probe.processes import ProcessTree, UnwatchedProcess, read_bytes, unwatched_process

# Output: a command whose output goes to a terminal gets a terminal of its own (so that progress
# bars and colours stay), and what it writes there is passed on; a command whose output goes
# elsewhere writes there directly.

_CLEAR = b"\r\x1b[K"
_BELOW = b"\x1bD\x1b[A\x1b7\x1b[B" + _CLEAR + b"%s\x1b8"
"""On the row below, with the cursor back where it was: down first, so that there is such a row.
# Source: ECMA-48, and IND, DECSC and DECRC of the VT100."""
_ROW_CHANGES = frozenset(b"\n\x1b")
"""What may take the cursor to another row."""
_OTHER_ROWS = re.compile(
    rb"\x1b\[\d*(?:;\d*)?[ABEFHLMSTdfrsu]|\x1b[78DEMc]|\x1b\[\?(?:47|1047|1048|1049)h"
)
"""Output that goes to other rows than the next: several bars, tables drawn anew, full screens.
# Source: ECMA-48 (CUU, CUD, CNL, CPL, CUP, IL, DL, SU, SD, VPA, HVP), the VT100's DECSC, DECRC,
IND, NEL, RI, RIS and DECSTBM, and xterm's alternate screens."""
_INCOMPLETE = re.compile(rb"\x1b(?:\[[0-?]*)?$")
"""A sequence whose end is still to come."""
_READ_BYTES = 65_536
_USUAL_WIDTH = 80


class Relay:
    """Where a command's output goes, and a live line under it."""

    def __init__(self, log: Path | None = None) -> None:
        """With `log`, everything goes into that file instead, and there is no line."""
        self._log: IO[bytes] | None = None if log is None else log.open("wb")
        self._masters: dict[int, int] = {}
        self._slaves: list[int] = []
        self._line = b""
        self._shown = False
        self._at_line_start = True
        self._incomplete: dict[int, bytes] = {}
        """What each end has written of a sequence that is not complete."""
        self.stdout = self._end_for(1)
        # One terminal for both, as without us: what goes here and what goes there keeps its order.
        is_same = bool(self._masters) and _is_same_terminal(1, 2)
        self.stderr = self.stdout if is_same else self._end_for(2)
        self._is_terminal = self._log is None and os.isatty(2)
        self.has_line = self._is_terminal
        """Whether there is room for a line of ours: under a command that goes back to rows above,
        or draws below, there is none."""

    def _end_for(self, descriptor: int) -> int:
        """What the command gets as its stdout or stderr."""
        if self._log is not None:
            return self._log.fileno()
        if not os.isatty(descriptor):
            return descriptor
        import pty

        master, slave = pty.openpty()
        _copy_size(descriptor, slave)
        _leave_line_ends(slave)
        self._masters[master] = descriptor
        self._slaves.append(slave)
        return slave

    def release_ends(self) -> None:
        """Let go of the ends that are the command's own, once it is started."""
        for slave in self._slaves:
            os.close(slave)
        self._slaves.clear()

    def pass_on(self, timeout_s: float) -> None:
        """Wait for output up to so long, and pass on what comes."""
        if not self._masters:
            select.select([], [], [], timeout_s)
            return
        ready, _, _ = select.select(list(self._masters), [], [], timeout_s)
        for master in ready:
            self._pass_on_output(master)

    def _pass_on_output(self, master: int) -> None:
        try:
            data = os.read(master, _READ_BYTES)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            del self._masters[master]
            os.close(master)
            return
        self._yield_rows(master, data)
        # Ours is below a bar that is drawn anew in its row: that leaves it alone.
        stays_in_row = not self._at_line_start and not _ROW_CHANGES.intersection(data)
        if self._shown and stays_in_row:
            _write_all(self._target(master), data)
            return
        self._hide_line()
        _write_all(self._target(master), data)
        self._at_line_start = data.endswith(b"\n")
        self._show_line()

    def _yield_rows(self, master: int, data: bytes) -> None:
        """Take our line away for good where the command uses the rows around it itself."""
        whole = self._incomplete.get(master, b"") + data
        incomplete = _INCOMPLETE.search(whole)
        self._incomplete[master] = incomplete.group() if incomplete else b""
        if self.has_line and _OTHER_ROWS.search(whole):
            self._hide_line()
            self._line, self.has_line = b"", False

    def _target(self, master: int) -> int:
        return self._masters.get(master, 2)

    def drain(self) -> None:
        """Pass on what is left once the command has ended."""
        for master in list(self._masters):
            while master in self._masters and select.select([master], [], [], 0)[0]:
                self._pass_on_output(master)

    def show(self, text: str) -> None:
        """Replace our own line."""
        if self.has_line and not any(self._incomplete.values()):
            self._hide_line()
            self._line = _as_bytes(text)
            self._show_line()

    def say(self, text: str) -> None:
        """Say something at once, on a line of its own among the command's output."""
        if self._log is not None:
            return
        self._hide_line()
        begin = b"" if self._at_line_start else b"\n"
        _write_all(2, begin + _as_bytes(text) + b"\n")
        self._at_line_start = True
        self._show_line()

    def close(self) -> None:
        """Take our line away and let everything go."""
        self._hide_line()
        if self._is_terminal and not self._at_line_start:
            _write_all(2, b"\n")  # what we say next begins a line of its own
        self._line = b""
        for master in list(self._masters):
            os.close(master)
        self._masters.clear()
        if self._log is not None:
            self._log.close()

    def _hide_line(self) -> None:
        if self._shown:
            _write_all(2, _CLEAR if self._at_line_start else _BELOW % b"")
        self._shown = False

    def _show_line(self) -> None:
        """Where a line of the script's is half written (a progress bar), below it."""
        if self._line and not any(self._incomplete.values()):
            _write_all(2, _CLEAR + self._line if self._at_line_start else _BELOW % self._line)
            self._shown = True


def _is_same_terminal(first: int, second: int) -> bool:
    """Whether two descriptors are of the same terminal."""
    return os.isatty(second) and os.fstat(first).st_rdev == os.fstat(second).st_rdev


def _as_bytes(text: str) -> bytes:
    """As standard error is written: in its encoding, whatever that lacks."""
    encoding = getattr(sys.stderr, "shown_encoding", None) or getattr(sys.stderr, "encoding", None)
    return text.encode(encoding or "utf-8", getattr(sys.stderr, "errors", None) or "replace")


def _write_all(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


def _copy_size(terminal: int, slave: int) -> None:
    with contextlib.suppress(Exception):
        import fcntl
        import termios

        size = fcntl.ioctl(terminal, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, size)


def _leave_line_ends(slave: int) -> None:
    """Let our own terminal alone make \\r\\n of \\n."""
    with contextlib.suppress(Exception):
        import termios

        settings = termios.tcgetattr(slave)
        settings[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, settings)


def width_of_terminal() -> int:
    """Columns of the terminal that our line is written to; some do not say, and some say none."""
    try:
        return os.get_terminal_size(2).columns or _USUAL_WIDTH
    except OSError:
        return _USUAL_WIDTH


# The command

INJECT = Path(__file__).parent / "inject"
"""Put in front of PYTHONPATH, it loads the agent into every Python process."""
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
        *,
        request: AgentRequest = NO_REQUEST,
    ) -> None:
        self._folder = folder
        self._control = folder / CONTROL_FILE
        self._control.write_bytes(request.packed())
        self._lock = _locked(self._control)
        self.signalled = False
        """Whether outlay had to end it by a signal."""
        adopt_orphans()
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
        relay.release_ends()
        self._tree = ProcessTree(self._process.pid)

    @property
    def pid(self) -> int:
        """Of the command itself; what it starts has others."""
        return self._process.pid

    def send_request(self, request: AgentRequest) -> None:
        """Let every process of the command read a request."""
        with self._control.open("r+b") as file:
            file.write(request.packed())

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
        reading = self._tree.read()
        in_tree = reading.pids if reading is not None else ()
        pids = {*in_tree, *_pids_with_folder(self._folder)}
        if self._process.poll() is None:
            pids.add(self._process.pid)
        return sorted(pids - {os.getpid()})

    def unwatched(self) -> list[UnwatchedProcess]:
        """Processes of the command that have torch, but cannot have the agent."""
        reading = self._tree.read()
        pids = sorted(reading.pids) if reading is not None else []
        found = [unwatched_process(pid, str(INJECT)) for pid in pids]
        return [process for process in found if process is not None]

    def kill_remaining(self) -> None:
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


def _pids_with_folder(folder: Path) -> list[int]:
    """Processes that have this folder in their environment: the command's, wherever they went."""
    variable = f"{FOLDER_VARIABLE}={folder}".encode()
    pids = [int(name) for name in _names_in("/proc") if name.isdigit()]
    return [pid for pid in pids if variable in read_bytes(f"/proc/{pid}/environ").split(b"\0")]


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208
    except OSError:
        return []


def _environment(folder: Path, more: Mapping[str, str]) -> dict[str, str]:
    environment = dict(os.environ)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{INJECT}{os.pathsep}{path}" if path else str(INJECT)
    environment[FOLDER_VARIABLE] = str(folder)
    return {**environment, **more}


def adopt_orphans() -> None:
    """Become the parent of what the command leaves behind, so that it can be found (Linux)."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_SUBREAPER, 1, 0, 0, 0)


def _not_started(command: Sequence[str], error: OSError) -> InputError:
    name, fix = command[0], f"Write {_suggestion(command)}"
    if not name.strip():
        return InputError("The command to probe is empty.", fix=fix)
    if isinstance(error, FileNotFoundError) and shutil.which(name) is None:
        return InputError(f"There is no command {name!r}.", fix=fix)
    return InputError(f"{name!r} cannot be started: {error.strerror}.", fix=fix)


def _suggestion(command: Sequence[str]) -> str:
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
