"""Tracing processes that start with torch imported, which takes longer than most traces.

One process imports it and is forked for each trace (`trace.forker`); on Linux alone. Elsewhere,
and where that process cannot be had, each trace is a process that imports torch itself.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "outlay-trace-"
"""What the names of folders with a request begin with."""
IDLE_S = 20.0
"""How long it waits for the next request: it holds some 300 MB."""
_AT_START = ("PYTHON", "TORCH", "PYTORCH", "LD_", "OMP_", "MKL_", "CUDA", "HIP_", "ROCR_")
"""Beginnings of the names of what Python and torch read when they start: others reach a fork."""
_MESSAGE_BYTES = 64


class NotForked(Exception):
    """There is no process to fork, or it was gone before it did."""


class Fork:
    """One tracing process, for whoever waits for it."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self._pid: int | None = None
        self._is_ended = False

    def wait(self, timeout_s: float | None = None) -> int:
        """The status it ends with; `TimeoutError` where it does not."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if until is not None:
                self._status.settimeout(max(until - time.monotonic(), 1e-3))
            try:
                kind, _, number = self._status.recv(_MESSAGE_BYTES).partition(b" ")
            except ConnectionError:
                kind = b""
            if kind == b"pid":
                self._pid = int(number)
            elif kind == b"status":
                return int(number)
            elif self._is_ended or self._pid is not None:
                return -signal.SIGKILL  # where whoever forked it was killed, it ends with that one
            else:
                raise NotForked

    def end(self) -> None:
        """End it, if it has not, and what it left behind; from any thread."""
        self._is_ended = True
        with contextlib.suppress(OSError):
            if self._pid is not None:
                os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._status.shutdown(socket.SHUT_RDWR)  # ends a fork that is yet to come

    def close(self) -> None:
        """Let go of what is needed to wait."""
        self._status.close()


class _Forker:
    """The process that forks."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._asked, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "outlay.trace.forker"]
        with theirs:
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(IDLE_S)],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )

    @property
    def is_there(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def fork(self, folder: Path, log: int, environment: Mapping[str, str]) -> Fork:
        """A fork that answers the request in the folder, where this process is."""
        place = {"folder": str(Path.cwd()), "environment": dict(environment)}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, os.fdopen(os.memfd_create("place"), "wb") as file:  # secrets stay in memory
            file.write(json.dumps(place).encode())
            file.flush()
            descriptors = [theirs.fileno(), log, file.fileno()]
            try:
                socket.send_fds(self._asked, [os.fsencode(folder)], descriptors)
            except OSError:
                ours.close()
                raise
        return Fork(ours)

    def leave(self) -> None:
        """Have nothing to do with it any more."""
        self._asked.close()
        self._process.returncode = 0  # it is not this process's to wait for

    def close(self) -> None:
        """End it, and whatever it has forked."""
        self._asked.close()
        self._process.kill()
        self._process.wait()


_forkers: dict[frozenset[tuple[str, str]], _Forker] = {}
_choosing = threading.Lock()


def _forget() -> None:
    """Begin anew, in a process that was just forked: those are of the other one."""
    global _choosing
    _choosing = threading.Lock()
    while _forkers:
        _forkers.popitem()[1].leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def forked(folder: Path, log: int, environment: Mapping[str, str]) -> Fork:
    """A process that answers the request in the folder, with this environment; or `NotForked`."""
    if sys.platform != "linux":
        raise NotForked
    try:
        with _choosing:
            forker = _chosen(environment)
        return forker.fork(folder, log, environment)
    except OSError as error:
        raise NotForked from error


def _chosen(environment: Mapping[str, str]) -> _Forker:
    """The process that started as one with this environment would."""
    for key in [key for key, forker in _forkers.items() if not forker.is_there]:
        _forkers.pop(key).close()
    key = _start(environment)
    if key not in _forkers:
        _forkers[key] = _Forker(environment)
    return _forkers[key]


def _start(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """What decides how a process starts."""
    read = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    if not all(map(os.path.isabs, filter(None, paths))):
        read["PWD"] = str(Path.cwd())
    return frozenset(read.items())


@atexit.register
def close() -> None:
    """End all of them."""
    while _forkers:
        _forkers.popitem()[1].close()
