"""What a training process tells outlay, and what outlay asks of it.

Told: lines of JSON in a file of the process's own, so that nothing is lost when it is killed.
Asked: a few numbers in a file that all processes map into their memory; reading them costs
nothing. Both lie in a folder that lives as long as the probe.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
import sys
import time
from typing import Any, NamedTuple

CONTROL = "control"
ASKED = struct.Struct("=5q")
_FLUSH_S = 0.1
_ALIVE_S = 2.0


StepTold = tuple[
    int, int, float, int, int, int, int, float, float, bool, int, float, bool, int, bool
]
_STEP = b'["s",%d,%d,%.7f,%d,%d,%d,%d,%.7f,%.6f,%d,%d,%.6f,%d,%d,%d]'
"""A step as a line; `probe.listen` reads it."""


class AgentRequest(NamedTuple):
    """What outlay wants, as numbers of optimizer steps of each process; 0 is nothing."""

    profile_from: int = 0
    profile_until: int = 0
    record_from: int = 0
    record_until: int = 0
    stop_at: int = 0


NOTHING = AgentRequest()


class Channel:
    """The two ways between the agent and outlay; this one keeps everything in memory."""

    folder = ""
    is_shared = False
    """Whether other processes may be told from here, as those of a command are."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.asked = NOTHING

    def tell(self, line: bytes) -> None:
        """Keep one line (without its end)."""
        self.lines.append(line)

    def tell_step(self, told: StepTold) -> None:
        """Keep what is told of a step."""
        self.tell(_STEP % told)

    def tell_values(self, kind: str, values: dict[str, Any]) -> None:
        """Tell a named set of values."""
        self.tell(json.dumps([kind, values], default=str).encode())

    def flush(self) -> None:
        """Make sure that what was told is there."""

    def forked(self) -> None:
        """Go on in a process that was just forked."""

    def reads(self) -> AgentRequest:
        """What is asked for now."""
        return self.asked

    def is_deserted(self) -> bool:
        """Whether nobody listens any more."""
        return False


class FileChannel(Channel):
    """Lines in `<folder>/<pid>.lines`, written at most ten times a second."""

    is_shared = True

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self._file = -1
        self._pending: list[bytes | StepTold] = []
        self._flushed_s = 0.0
        self._looked_s = time.perf_counter()
        self._path = os.path.join(folder, CONTROL)  # noqa: PTH118
        self._control = _mapped(self._path)

    def tell(self, line: bytes) -> None:
        """Write one line soon."""
        self._keep(line)

    def tell_step(self, told: StepTold) -> None:
        """Write a step soon; that many are put into words at once costs a fifth of it."""
        self._keep(told)

    def _keep(self, told: bytes | StepTold) -> None:
        self._pending.append(told)
        now_s = time.perf_counter()
        if now_s - self._flushed_s >= _FLUSH_S:
            self._flushed_s = now_s
            self.flush()

    def forked(self) -> None:
        """Begin a file of our own; what is pending is the parent's to tell."""
        self._pending.clear()
        self._file, self._flushed_s = -1, 0.0

    def flush(self) -> None:
        """Write what is pending; where that fails (a full disk), the script must not notice."""
        lines = [told if isinstance(told, bytes) else _STEP % told for told in self._pending]
        data = b"\n".join([*lines, b""])
        self._pending.clear()
        try:
            if self._file < 0:
                path = os.path.join(self.folder, f"{os.getpid()}.lines")  # noqa: PTH118
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(self._file, data)
        except OSError as error:
            complain(error)

    def reads(self) -> AgentRequest:
        """What is asked for now."""
        if self._control is None:
            return NOTHING
        return AgentRequest(*ASKED.unpack_from(self._control))

    def is_deserted(self) -> bool:
        """Whether outlay is gone; looked up every other second."""
        now_s = time.perf_counter()
        if now_s - self._looked_s < _ALIVE_S:
            return False
        self._looked_s = now_s
        return is_unlocked(self._path)


def _mapped(path: str) -> mmap.mmap | None:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return mmap.mmap(file.fileno(), ASKED.size, access=mmap.ACCESS_READ)
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


def complain(error: BaseException) -> None:
    """Say what went wrong in the agent, to those who look for it."""
    if os.environ.get("OUTLAY_DEBUG"):
        import traceback

        sys.stderr.write(f"outlay: in the agent: {error!r}\n")
        traceback.print_exception(type(error), error, error.__traceback__)


# What happened since the last optimizer step of a process.


class StepCounters:
    """What happened since the last optimizer step."""

    __slots__ = (
        "aside",
        "aside_last",
        "aside_loader",
        "asked",
        "batches",
        "evaluated",
        "gradless",
        "gradless_s",
        "loader",
        "new_epoch",
        "passes",
        "samples",
        "saved_s",
        "saves",
        "skipped",
        "started",
        "switched",
        "wait_s",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.aside = 0
        self.aside_loader = 0
        """The last one whose batch was set aside."""
        self.aside_last = 0, 0, 0
        """Which iterator gave those that came last, how many, and their samples."""
        self.asked: set[int] = set()
        """Loaders whose batches are counted."""
        self.batches = 0
        self.evaluated = False
        self.gradless = False
        self.gradless_s = 0.0
        self.loader = 0
        self.new_epoch = False
        self.passes = 0
        self.samples = 0
        self.saved_s = 0.0
        self.saves = 0
        self.skipped = 0
        self.started: tuple[int, ...] = ()
        self.switched: tuple[Any, ...] = ()
        """Modules that the script put into evaluation mode."""
        self.wait_s = 0.0

    def told(self, step: int, optimizer: int, now_s: float, cpu_s: float) -> StepTold:
        """What is told of a step."""
        return (
            step,
            optimizer,
            now_s,
            self.skipped,
            self.passes,
            self.batches,
            self.samples,
            self.wait_s,
            cpu_s,
            self.evaluated,
            self.saves,
            self.saved_s,
            self.new_epoch,
            self.aside,
            self.gradless,
        )


# When a process does what outlay asks for: at the step it names, or later.


class RequestDelay:
    """How many steps later than asked; several processes must be at the same step, and do without.

    Steps that come in bursts, with long pauses between, are told only when the next one is made:
    outlay asks for what is past by then.
    """

    def __init__(self) -> None:
        self.is_alone = False
        self._steps: int | None = None
        """Known from when it is first asked for something."""

    def forget(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._steps = None

    def of(self, asked: AgentRequest, step: int) -> AgentRequest:
        """What is asked for, after a step, with the delay."""
        if not asked.profile_from:
            return asked
        if self._steps is None:
            self._steps = max(step - asked.profile_from, 0) if self.is_alone else 0
        late = self._steps
        return AgentRequest(*(one + late if one else 0 for one in asked))

    def put_off(self, steps: int) -> bool:
        """Do all that is left so many steps later; False where that cannot be."""
        if self._steps is None or not self.is_alone:
            return False
        self._steps += steps
        return True
