"""A process that has imported torch and does nothing but fork: the fork server.

`python -m outlay.trace.forker FD IDLE_S`: FD is a socket. Each message on it is a folder with a
request, beside three descriptors: a socket for the fork's status (`pid N`, then `status N`), the
log, and a file with the folder and the environment of the client. The server ends when the client
is gone, or sends nothing for IDLE_S seconds.
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
from outlay.trace.dependencies import WATCH

_PATH_BYTES = 4096
_DESCRIPTORS = 3
_POLL_S = 1.0


def main(arguments: list[str]) -> None:
    """Fork for each request; in a fork, answer it."""
    WATCH.start()
    with contextlib.suppress(Exception):  # a fork meets the same error, and replies with it
        child.import_torch()
    descriptor, idle_s = arguments
    with socket.socket(fileno=int(descriptor)) as requests:
        folder = _ForkServer(requests).serve(float(idle_s))
    if folder is not None:
        child.main([str(folder / "request.json"), str(folder / "reply.json")])


class _ForkServer:
    """The client's requests, and a socket for the status of each fork."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._statuses: dict[int, socket.socket] = {}
        self._parent = os.getppid()
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the client may have blocked it

    def serve(self, idle_s: float) -> Path | None:
        """The folder of a request, in the fork that is to answer it; None when all are done."""
        idle_from_s = time.monotonic()
        while os.getppid() == self._parent:  # its end may not show: others may hold its socket
            requests = self._requests.fileno()
            ready, _, _ = select.select([requests, self._wake], [], [], min(_POLL_S, idle_s))
            if ready or self._statuses:
                idle_from_s = time.monotonic()
            elif time.monotonic() - idle_from_s >= idle_s:
                return None
            if self._wake in ready:
                self._send_exits()
            if requests in ready:
                message, descriptors, *_ = socket.recv_fds(
                    self._requests, _PATH_BYTES, _DESCRIPTORS
                )
                if not message:
                    return None
                if self._fork(*descriptors):
                    return Path(os.fsdecode(message))
        return None

    def _send_exits(self) -> None:
        """Send the exit status of every fork that has ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, select.PIPE_BUF)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, exit_status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                with self._statuses.pop(pid) as status, contextlib.suppress(OSError):
                    status.send(b"status %d" % os.waitstatus_to_exitcode(exit_status))

    def _fork(self, status_fd: int, log_fd: int, context_fd: int) -> bool:
        """Whether this is the fork; the server goes on."""
        status = socket.socket(fileno=status_fd)
        pid = os.fork()
        if pid == 0:
            status.close()
            self._detach(log_fd)
            with WATCH.paused():
                _enter_context(context_fd)
            return True
        os.close(log_fd)
        os.close(context_fd)
        self._statuses[pid] = status
        try:
            status.send(b"pid %d" % pid)
        except OSError:  # nobody waits for it any more
            os.kill(pid, signal.SIGKILL)
        return False

    def _detach(self, log_fd: int) -> None:
        """Be a process of its own, with its output in the log, which reads nothing."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for status in self._statuses.values():
            status.close()
        for end in (self._wake, self._waker):
            os.close(end)
        os.setsid()
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        os.close(log_fd)


def _enter_context(context_fd: int) -> None:
    """Be where the client is, with its environment."""
    with os.fdopen(context_fd, "rb") as file:
        file.seek(0)
        context = json.load(file)
    os.environ.clear()
    os.environ.update(context["environment"])
    os.chdir(context["folder"])
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, context["folder"])  # as `python -m` does


if __name__ == "__main__":
    main(sys.argv[1:])
