"""The command's output, passed on as it comes, with a line of our own kept below it.

A command whose output goes to a terminal gets a terminal of its own (so that progress bars and
colours stay), and what it writes there is passed on; a command whose output goes elsewhere writes
there directly.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
from pathlib import Path
from typing import IO

_CLEAR = b"\r\x1b[K"
_BELOW = b"\x1bD\x1b[A\x1b7\x1b[B" + _CLEAR + b"%s\x1b8"
"""On the row below, with the cursor back where it was: down first, so that there is such a row.
# Source: ECMA-48, and IND, DECSC and DECRC of the VT100."""
_MOVES = frozenset(b"\n\x1b")
"""What may take the cursor to another row."""
_WANDERS = re.compile(
    rb"\x1b\[\d*(?:;\d*)?[ABEFHLMSTdfrsu]|\x1b[78DEMc]|\x1b\[\?(?:47|1047|1048|1049)h"
)
"""Output that goes to other rows than the next: several bars, tables drawn anew, full screens.
# Source: ECMA-48 (CUU, CUD, CNL, CPL, CUP, IL, DL, SU, SD, VPA, HVP), the VT100's DECSC, DECRC,
IND, NEL, RI, RIS and DECSTBM, and xterm's alternate screens."""
_HALF = re.compile(rb"\x1b(?:\[[0-?]*)?$")
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
        self._half: dict[int, bytes] = {}
        """What each end has written of a sequence that is not complete."""
        self.stdout = self._end_for(1)
        # One terminal for both, as without us: what goes here and what goes there keeps its order.
        self.stderr = self.stdout if self._masters and _is_same(1, 2) else self._end_for(2)
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

    def started(self) -> None:
        """Let go of the ends that are the command's own now."""
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
            self._pass_on_one(master)

    def _pass_on_one(self, master: int) -> None:
        try:
            data = os.read(master, _READ_BYTES)
        except OSError:  # the other end is closed
            data = b""
        if not data:
            del self._masters[master]
            os.close(master)
            return
        self._make_way(master, data)
        # Ours is below a bar that is drawn anew in its row: that leaves it alone.
        is_apart = self._shown and not self._at_line_start and not _MOVES.intersection(data)
        if is_apart:
            _write_all(self._target(master), data)
            return
        self._hide_line()
        _write_all(self._target(master), data)
        self._at_line_start = data.endswith(b"\n")
        self._show_line()

    def _make_way(self, master: int, data: bytes) -> None:
        """Take our line away for good where the command uses the rows around it itself."""
        whole = self._half.get(master, b"") + data
        half = _HALF.search(whole)
        self._half[master] = half.group() if half else b""
        if self.has_line and _WANDERS.search(whole):
            self._hide_line()
            self._line, self.has_line = b"", False

    def _target(self, master: int) -> int:
        return self._masters.get(master, 2)

    def drain(self) -> None:
        """Pass on what is left once the command has ended."""
        for master in list(self._masters):
            while master in self._masters and select.select([master], [], [], 0)[0]:
                self._pass_on_one(master)

    def show(self, text: str) -> None:
        """Replace our own line."""
        if self.has_line and not any(self._half.values()):
            self._hide_line()
            self._line = text.encode(errors="replace")
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
        if self._line and not any(self._half.values()):
            _write_all(2, _CLEAR + self._line if self._at_line_start else _BELOW % self._line)
            self._shown = True


def _is_same(one: int, other: int) -> bool:
    """Whether two descriptors are of the same terminal."""
    return os.isatty(other) and os.fstat(one).st_rdev == os.fstat(other).st_rdev


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
