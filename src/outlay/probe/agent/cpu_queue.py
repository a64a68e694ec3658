"""How long the thread that trains waited for a CPU that others used, by Linux's own count.

# Source: https://docs.kernel.org/scheduler/sched-stats.html, /proc/PID/schedstat
"""

from __future__ import annotations

import time
from typing import Any


class CpuQueue:
    """Tells now and then what part of the time went by waiting for a turn."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._thread = 0
        self._from: tuple[float, float] | None = None

    def look(self) -> None:
        """Tell of the time since the first look of this thread; nothing where it is not counted."""
        queued_s, now_s = _queued_s(), time.perf_counter()
        if queued_s is None:
            return
        if self._from is None or self._thread != self._watch.thread:
            self._thread, self._from = self._watch.thread, (now_s, queued_s)
            return
        fraction = (queued_s - self._from[1]) / (now_s - self._from[0])
        self._watch.channel.tell_values("queue", {"fraction": min(max(fraction, 0.0), 1.0)})


def _queued_s() -> float | None:
    """Nanoseconds on a CPU, waiting for one, and turns: the second."""
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:  # noqa: PTH123
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
