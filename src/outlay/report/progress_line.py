"""What a computation tells of itself (`outlay.progress`), shown on standard error while it runs.

On a terminal one line that moves: what is being done, how far, and how long still. It goes when
anything else is printed, and comes back with the next news. Elsewhere one line a stage.
"""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from outlay.units import HOUR_S, MINUTE_S

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import Task

DELAY_S = 1.0
"""What is over sooner needs no line."""
_SURE_FRACTION = 0.05
"""Of a stage that must have passed before its rest is told."""


class RemainingTime:
    """How long a count of things done still takes, at the pace so far."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._total = 0.0
        self._first = self._last = (0.0, 0.0)

    def take(self, done: float, total: float) -> None:
        """Take news; a total that changes, or less done than before, begins anew."""
        if total != self._total or done < self._last[1]:
            self._total, self._first = total, (self._clock(), done)
        self._last = (self._clock(), done)

    @property
    def seconds(self) -> float | None:
        """Seconds that are left; None as long as they cannot be told."""
        (start_s, before), (told_s, done) = self._first, self._last
        if not self._total or done - before < _SURE_FRACTION * self._total:
            return None
        ends_s = told_s + (told_s - start_s) / (done - before) * (self._total - done)
        return max(ends_s - self._clock(), 0.0)


class ProgressLines:
    """One line a stage, as it begins, and one for each thing to know."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = ""

    def __call__(self, what: str, _done: float = 0.0, _total: float = 0.0, /) -> None:
        """Say what is being done, once."""
        if what != self._last:
            self._last = what
            self._stream.write(f"{what}\n")
            self._stream.flush()

    def finish(self) -> None:
        """Nothing is left to take away."""


class ProgressLine:
    """A line at the bottom of a terminal that moves, from `DELAY_S` after the first news on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.RLock()
        self._remaining = RemainingTime()
        self._began_s = time.monotonic()
        self._noted = ""
        self._news: tuple[str, float, float] | None = None
        self._timer: threading.Timer | None = None
        self._bar: Bar | None = None
        self._before: tuple[TextIO, TextIO] | None = None

    def __call__(self, what: str, done: float = 0.0, total: float = 0.0, /) -> None:
        """Show a stage, or print what is to be known."""
        with self._lock:
            if not what.endswith("..."):
                if what != self._noted:
                    self._noted = what
                    self.finish()
                    self._stream.write(f"{what}\n")
                    self._stream.flush()
                return
            if self._news is None or (self._news[0] != what and not total):
                self._began_s = time.monotonic()
            self._news = (what, done, total)
            self._remaining.take(done, total)
            if self._bar is not None:
                self._show()
            elif self._timer is None:
                self._timer = threading.Timer(DELAY_S, self._start)
                self._timer.daemon = True
                self._timer.start()

    def finish(self) -> None:
        """Take the line away; it comes back with the next news."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._before is not None:
                sys.stdout, sys.stderr = self._before
                self._before = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _start(self) -> None:
        with self._lock:
            if self._timer is None:  # it was over in the meantime
                return
            self._timer = None
            self._bar = _bar(self._stream, self._times)
            self._show()
            self._bar.start()
            self._before = (sys.stdout, sys.stderr)
            sys.stdout = _ClearingFirst(sys.stdout, self)
            sys.stderr = _ClearingFirst(sys.stderr, self)

    def _show(self) -> None:
        if self._bar is not None and self._news is not None:
            what, done, total = self._news
            task = self._bar.tasks[0]
            self._bar.update(
                task.id, description=what, completed=done, total=total or None, refresh=False
            )

    def _times(self) -> str:
        passed = _rounded(time.monotonic() - self._began_s)
        seconds = self._remaining.seconds
        return passed if seconds is None else f"{passed}, about {_rounded(seconds)} left"


def _bar(stream: TextIO, times: Callable[[], str]) -> Bar:
    """A line of rich's: what is done, how much of it, and the times, drawn anew all the time."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
    from rich.text import Text

    class Times(ProgressColumn):
        def render(self, task: Task) -> Text:  # noqa: ARG002
            return Text(times())

    bar = Progress(
        SpinnerColumn("line"),  # any terminal can show it
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        Times(),
        console=Console(file=stream),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("", total=None)
    return bar


def _rounded(seconds: float) -> str:
    """`34 s`, `5 min` or `1.2 h`."""
    if seconds < MINUTE_S:
        return f"{seconds:.0f} s"
    return f"{seconds / MINUTE_S:.0f} min" if seconds < HOUR_S else f"{seconds / HOUR_S:.1f} h"


class _ClearingFirst(io.TextIOBase):
    """A stream that takes the line away before anything else is written."""

    def __init__(self, stream: TextIO, line: ProgressLine) -> None:
        self._through = stream
        self._line = line

    def write(self, text: str) -> int:
        self._line.finish()
        return self._through.write(text)

    def flush(self) -> None:
        self._through.flush()

    def fileno(self) -> int:
        return self._through.fileno()

    def isatty(self) -> bool:
        return self._through.isatty()

    @property
    def buffer(self) -> object:
        self._line.finish()
        return self._through.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._through.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._through.errors
