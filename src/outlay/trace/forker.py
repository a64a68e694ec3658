"""A process that has imported torch and does nothing but fork.

`python -m outlay.trace.forker FD IDLE_S`: FD is a socket. Each message on it is a folder with a
request, beside three descriptors: a socket to tell how it goes (`pid N`, then `status N`), the log,
and a file with the folder and the environment of whoever asks. The process ends when that one is
gone, or asks for nothing for IDLE_S seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

from outlay.trace import child

PATH_BYTES = 4096
_DESCRIPTORS = 3
_LOOK_EVERY_S = 1.0


def main(arguments: list[str]) -> None:
    """Fork for each request; in a fork, answer it."""
    with contextlib.suppress(Exception):  # a fork meets the same error, and tells it
        child.import_torch()
    descriptor, idle_s = arguments
    with socket.socket(fileno=int(descriptor)) as asked:
        folder = _Forker(asked).serve(float(idle_s))
    if folder is not None:
        child.main([str(folder / "request.json"), str(folder / "reply.json")])


class _Forker:
    """Who is asking, and whom to tell of each fork."""

    def __init__(self, asked: socket.socket) -> None:
        self._asked = asked
        self._told: dict[int, socket.socket] = {}
        self._parent = os.getppid()
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever asks may have blocked it

    def serve(self, idle_s: float) -> Path | None:
        """The folder of a request, in the fork that is to answer it; None when all are done."""
        idle_from_s = time.monotonic()
        while os.getppid() == self._parent:  # its end may not show: others may hold its socket
            asked = self._asked.fileno()
            longest_s = min(_LOOK_EVERY_S, idle_s)
            ready, _, _ = select.select([asked, self._wake], [], [], longest_s)
            if ready or self._told:
                idle_from_s = time.monotonic()
            elif time.monotonic() - idle_from_s >= idle_s:
                return None
            if self._wake in ready:
                self._tell_ends()
            if asked in ready:
                message, descriptors, *_ = socket.recv_fds(self._asked, PATH_BYTES, _DESCRIPTORS)
                if not message:
                    return None
                if self._fork(*descriptors):
                    return Path(os.fsdecode(message))
        return None

    def _tell_ends(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, select.PIPE_BUF)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                with self._told.pop(pid) as told, contextlib.suppress(OSError):
                    told.send(b"status %d" % os.waitstatus_to_exitcode(status))

    def _fork(self, telling: int, log: int, place: int) -> bool:
        """Whether this is the fork; the other one goes on."""
        told = socket.socket(fileno=telling)
        pid = os.fork()
        if pid == 0:
            told.close()
            self._leave(log)
            _take(place)
            return True
        os.close(log)
        os.close(place)
        self._told[pid] = told
        try:
            told.send(b"pid %d" % pid)
        except OSError:  # nobody waits for it any more
            os.kill(pid, signal.SIGKILL)
        return False

    def _leave(self, log: int) -> None:
        """Be a process of its own, with its output in the log, which reads nothing."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for told in self._told.values():
            told.close()
        for end in (self._wake, self._waker):
            os.close(end)
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)


def _take(place: int) -> None:
    """Be where the asking process is, with its environment."""
    with os.fdopen(place, "rb") as file:
        file.seek(0)
        taken = json.load(file)
    os.environ.clear()
    os.environ.update(taken["environment"])
    os.chdir(taken["folder"])
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, taken["folder"])  # as `python -m` does


if __name__ == "__main__":
    main(sys.argv[1:])
