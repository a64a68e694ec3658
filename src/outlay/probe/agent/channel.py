"""The two directions between a training process and outlay: its reports, and outlay's requests.

Reports are lines in a file of the process's own, so that nothing is lost when it is killed. A
request is a few numbers in a file that all processes map into their memory; reading it costs
nothing. Both lie in a folder that lives as long as the probe. `protocol` says what they hold.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from typing import Any

from .protocol import (
    CONTROL_FILE,
    LINES_SUFFIX,
    NO_REQUEST,
    REQUEST_BYTES,
    AgentRequest,
    StepValues,
    report_line,
    step_line,
)

_FLUSH_S = 0.1
_ALIVE_S = 2.0
_MOST_PROGRAMS = 1000
"""Programs that one process may become, one after the other."""


class Channel:
    """Keeps all lines in memory, and has a request that is set from outside."""

    folder = ""
    is_shared = False
    """Whether other processes may report from here, as those of a command do."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.request = NO_REQUEST

    def write_line(self, line: bytes, /) -> None:
        """Keep one line (without its end)."""
        self.lines.append(line)

    def write_step(self, values: StepValues, /) -> None:
        """Keep the record of a step."""
        self.write_line(step_line(values))

    def report(self, report: Any) -> None:
        """Keep one of the reports of `protocol`."""
        self.write_line(report_line(report))

    def flush(self) -> None:
        """Make sure that what was written can be read."""

    def trim(self, most_bytes: int) -> bool:  # noqa: ARG002
        """Let go of what was written, where it is more than so much; whether it was."""
        return False

    def reset_after_fork(self) -> None:
        """Go on in a process that was just forked."""

    def read_request(self) -> AgentRequest:
        """What outlay wants now."""
        return self.request

    def is_abandoned(self) -> bool:
        """Whether outlay is gone."""
        return False


class FileChannel(Channel):
    """Lines in `<folder>/<pid>.lines`, written at most ten times a second.

    A program that another becomes by `os.execv` has its number: it gets a file of its own.
    """

    is_shared = True

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self._file = -1
        self._pending: list[bytes | StepValues] = []
        self._flushed_s = 0.0
        self._checked_s = time.perf_counter()
        self._control_path = os.path.join(folder, CONTROL_FILE)  # noqa: PTH118
        self._control = _mapped(self._control_path)
        self._packed_request = NO_REQUEST.packed()

    def write_line(self, line: bytes | StepValues, /) -> None:
        """Write a line soon, or a step: formatting many at once costs a fifth of it."""
        self._pending.append(line)
        now_s = time.perf_counter()
        if now_s - self._flushed_s >= _FLUSH_S:
            self._flushed_s = now_s
            self.flush()

    write_step = write_line

    def reset_after_fork(self) -> None:
        """Begin a file of our own; what is pending is the parent's to write."""
        self._pending.clear()
        self._file, self._flushed_s = -1, 0.0

    def flush(self) -> None:
        """Write what is pending; where that fails (a full disk), the script must not notice."""
        lines = [line if isinstance(line, bytes) else step_line(line) for line in self._pending]
        data = b"\n".join([*lines, b""])
        self._pending.clear()
        try:
            if self._file < 0:
                self._file = _new_file(os.path.join(self.folder, str(os.getpid())))  # noqa: PTH118
            os.write(self._file, data)
        except OSError as error:
            log_error(error)

    def trim(self, most_bytes: int) -> bool:
        """Begin the file anew, where it has more: who reads it sees that it has become shorter."""
        try:
            if self._file < 0 or os.fstat(self._file).st_size <= most_bytes:
                return False
            os.ftruncate(self._file, 0)
        except OSError as error:
            log_error(error)
            return False
        return True

    def read_request(self) -> AgentRequest:
        """What outlay wants now; unpacked only when it has changed."""
        if self._control is not None:
            packed = self._control[:]
            if packed != self._packed_request:
                self._packed_request = packed
                self.request = AgentRequest.unpacked(packed)
        return self.request

    def is_abandoned(self) -> bool:
        """Whether outlay is gone; looked up every other second."""
        now_s = time.perf_counter()
        if now_s - self._checked_s < _ALIVE_S:
            return False
        self._checked_s = now_s
        return is_unlocked(self._control_path)


def _new_file(name: str) -> int:
    """A file of lines that was not there, by this name or by one like it."""
    for ending in ("", *(f"-{number}" for number in range(1, _MOST_PROGRAMS))):
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            return os.open(name + ending + LINES_SUFFIX, flags, 0o600)
        except FileExistsError:
            continue
    raise FileExistsError(name)


def _mapped(path: str) -> mmap.mmap | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return mmap.mmap(file.fileno(), REQUEST_BYTES, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None


def is_unlocked(path: str) -> bool:
    """Whether the lock that outlay holds as long as it lives is free.

    Its process id would not do: it may be another's by now, or mean nothing in a container.
    """
    try:
        import fcntl

        with open(path, "rb") as file:  # noqa: PTH123
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (ImportError, BlockingIOError):
        return False
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def log_error(error: BaseException) -> None:
    """Print an error of the agent's own, where `OUTLAY_DEBUG` is set."""
    if os.environ.get("OUTLAY_DEBUG"):
        import traceback

        sys.stderr.write(f"outlay: in the agent: {error!r}\n")
        traceback.print_exception(type(error), error, error.__traceback__)
