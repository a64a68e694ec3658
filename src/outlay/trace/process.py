"""The tracing process: asked, waited for, and cleared away with everything it started.

What it prints is shown only if it dies; it reads nothing from the terminal.
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
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlay import errors
from outlay.errors import InputError, OutlayError, TraceFailed

if TYPE_CHECKING:
    from collections.abc import Mapping


# Tracing processes that start with torch imported, which takes longer than most traces.
#
# One process imports it and is forked for each trace (`trace.forker`); on Linux alone. Elsewhere,
# and where that process cannot be had, each trace is a process that imports torch itself.


FOLDER = "outlay-trace-"
"""What the names of folders with a request begin with."""
IDLE_S = 20.0
"""How long it waits for the next request: it holds some 300 MB."""
_AT_START = ("PYTHON", "TORCH", "PYTORCH", "LD_", "OMP_", "MKL_", "CUDA", "HIP_", "ROCR_")
"""Beginnings of the names of what Python and torch read when they start: others reach a fork."""
_MESSAGE_BYTES = 64


class ForkUnavailable(Exception):
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
                raise ForkUnavailable

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
    """A process that answers the request in the folder; raises `ForkUnavailable` where none can."""
    if sys.platform != "linux":
        raise ForkUnavailable
    try:
        with _choosing:
            forker = _chosen(environment)
        return forker.fork(folder, log, environment)
    except OSError as error:
        raise ForkUnavailable from error


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


_LAST_WORDS_BYTES = 4096


def answer_of(request: Mapping[str, object], *, timeout_s: float | None = None) -> dict[str, Any]:
    """What the tracing process answers to a request; its errors are raised here.

    Without an answer after `timeout_s` seconds it is ended, as it is when this one is interrupted.
    """
    _check_place()
    with tempfile.TemporaryDirectory(prefix=FOLDER) as folder:
        answer = _ask(request, Path(folder), timeout_s)
    if "error" in answer:
        raise error_from(answer)
    return answer


def _check_place() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            "The current folder cannot be read, or is gone.",
            why="A trace runs in it, as the step would.",
            fix="cd into a folder that is there.",
        ) from error


def _ask(request: Mapping[str, object], folder: Path, timeout_s: float | None) -> dict[str, object]:
    question, reply, log = (folder / name for name in ("request.json", "reply.json", "log"))
    question.write_text(json.dumps(request))
    with log.open("wb") as out:
        try:
            returncode = _waited(forked(folder, out.fileno(), _environment()), timeout_s)
        except ForkUnavailable:
            returncode = _waited(_Alone(question, reply, out.fileno()), timeout_s)
    if not reply.exists():
        raise _died(returncode, _last_words(log))
    answer: dict[str, object] = json.loads(reply.read_text())
    return answer


class _Alone:
    """A tracing process that imports torch itself."""

    def __init__(self, question: Path, reply: Path, log: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outlay.trace.child", str(question), str(reply)],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def wait(self, timeout_s: float | None = None) -> int:
        """The status it ends with; `TimeoutError` where it does not."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error

    def end(self) -> None:
        """End it, if it has not, and what it left behind."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def close(self) -> None:
        """Take note of its end."""
        self._process.wait()


def _waited(child: Fork | _Alone, timeout_s: float | None) -> int:
    """The status a process ends with; whatever it has started ends with it."""
    _running.add(child)
    try:
        return child.wait(timeout_s)
    except TimeoutError as error:
        raise TraceFailed(
            f"The trace was ended after {timeout_s:g} s.",
            why="The step, or the building of it, had not come to an end.",
            fix="Give it longer (--timeout), or trace a step that runs one iteration alone.",
        ) from error
    finally:
        _running.discard(child)
        child.end()
        child.close()


_running: set[Fork | _Alone] = set()


def end_running() -> None:
    """End every trace that other threads of this process are waiting for."""
    for child in list(_running):
        child.end()


def _environment() -> dict[str, str]:
    """The same outlay, and no real GPU: a trace must not take memory from a running job."""
    package_folder = str(Path(__file__).parents[2])
    paths = [package_folder, os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUDA_VISIBLE_DEVICES": "",
    }


def _last_words(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _LAST_WORDS_BYTES, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return " ".join(lines[-3:])


def _died(returncode: int, last_words: str) -> TraceFailed:
    """The error for a tracing process that left no answer: is it torch's fault or the step's?"""
    if not torch_can_be_traced():
        return TraceFailed(
            "The torch in this Python cannot be traced.",
            why="Not even a small training step of outlay's own survived on fake CUDA tensors.",
            fix="Install torch 2.13 (the CPU wheel will do): pip install torch==2.13.0.",
        )
    if returncode >= 0:
        what = f"The tracing process ended with status {returncode} and no result."
    else:
        what = f"The tracing process was killed by {_signal_name(-returncode)}."
    why = f"Its last words: {last_words}" if last_words else "It said nothing."
    return TraceFailed(what, why=why, fix=_advice(returncode))


def _advice(returncode: int) -> str:
    if returncode == -signal.SIGKILL:
        return (
            "The machine may have run out of memory: tensors made while the file is imported are "
            "real. Make them inside the function, where they take none."
        )
    if returncode >= 0:
        return "Keep what ends the program (os._exit) out of the step."
    return "Check that the step runs by itself; then try a smaller part of it."


def torch_can_be_traced() -> bool:
    """Whether a small step survives with this torch, tried in a process of its own."""
    return self_test()[0]


def self_test() -> tuple[bool, str]:
    """Whether a small step survives with this torch, and what the test says of torch."""
    command = [sys.executable, "-m", "outlay.trace.capture.self_test"]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    said = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
    return done.returncode == 0, said


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def error_from(answer: Mapping[str, object]) -> OutlayError:
    """The child's error, raised again here."""
    kind = getattr(errors, str(answer["error"]), TraceFailed)
    error: OutlayError = kind(str(answer["what"]), why=str(answer["why"]), fix=str(answer["fix"]))
    return error
