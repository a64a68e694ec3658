"""The tracing process as seen by who asks for a trace: started, waited for, cleared away.

`run_request` hands a request to a tracing process and returns its reply. What that process prints
is shown only if it dies; it reads nothing from the terminal, and all it started ends with it.

Importing torch takes longer than most traces. On Linux one process imports it and is forked for
each trace (`outlay.trace.forker`); elsewhere, and where that process cannot be had, each trace is a
process that imports torch itself (`outlay.trace.child`).
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
from outlay.progress import Progress, silent
from outlay.trace.target import changes_from_json
from outlay.trace.trace_cache import Question, TraceCache, trace_cache

if TYPE_CHECKING:
    from collections.abc import Mapping


FOLDER_PREFIX = "outlay-trace-"
"""What the names of folders with a request begin with."""
_LOG_TAIL_BYTES = 4096
_POLL_S = 0.25
"""How often a tracing process is asked how far it is."""


def run_request(
    request: Mapping[str, object],
    *,
    timeout_s: float | None = None,
    cache: TraceCache | bool = True,
    progress: Progress = silent,
) -> dict[str, Any]:
    """What the tracing process replies to a request; its errors are raised here.

    Without a reply after `timeout_s` seconds it is ended, as it is when this one is interrupted.
    A reply of before, in the `cache`, does as well where all that it depends on is as it was; then
    it says under `kept_on` of which day it is. True is the user's own cache.
    """
    _check_working_folder()
    kept_traces = trace_cache() if cache is True else cache or None
    question = None
    if kept_traces is not None:
        environment = _environment()
        question = Question(
            request=request, environment=environment, startup=_startup_key(environment)
        )
        kept = kept_traces.find(question)
        if kept is not None:
            progress(f"Traced on {kept.kept_on} and unchanged since; --no-cache traces anew.")
            return _checked_reply({**kept.reply, "kept_on": kept.kept_on})
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as folder:
        asked = {**request, "keep": question is not None}
        reply = _reply_to(asked, Path(folder), timeout_s, progress)
    dependencies, why_not = reply.pop("dependencies", None), reply.pop("why_not_kept", "")
    is_final = "error" not in reply or _is_attempt(request)
    if kept_traces is not None and question is not None and is_final:
        if dependencies is not None and not why_not:
            why_not = kept_traces.keep(question, reply, dependencies)
        if why_not:
            _say_once(f"The trace is not kept: {why_not}.", progress)
    return _checked_reply(reply)


def _checked_reply(reply: dict[str, Any]) -> dict[str, Any]:
    if "error" in reply:
        raise error_from_reply(reply)
    return reply


def _is_attempt(request: Mapping[str, object]) -> bool:
    """Whether a step is changed to see whether it can be: that it cannot is an answer, too."""
    return not changes_from_json(request.get("changes")).is_none  # type: ignore[arg-type]


_said: set[str] = set()


def _say_once(message: str, progress: Progress) -> None:
    if message not in _said:
        _said.add(message)
        progress(message)


def _check_working_folder() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise InputError(
            "The current folder cannot be read, or is gone.",
            why="A trace runs in it, as the step would.",
            fix="cd into a folder that is there.",
        ) from error


def _reply_to(
    request: Mapping[str, object], folder: Path, timeout_s: float | None, progress: Progress
) -> dict[str, Any]:
    request_path, reply_path, log_path = (
        folder / name for name in ("request.json", "reply.json", "log")
    )
    request_path.write_text(json.dumps(request))
    with log_path.open("wb") as log:
        try:
            forked = _forked(folder, log.fileno(), _environment())
            status = _exit_status(forked, timeout_s, folder, progress)
        except ForkUnavailable:
            alone = _StandaloneTrace(request_path, reply_path, log.fileno())
            status = _exit_status(alone, timeout_s, folder, progress)
    if not reply_path.exists():
        raise _no_reply(status, _log_tail(log_path))
    reply: dict[str, Any] = json.loads(reply_path.read_text())
    return reply


_running: set[_ForkedTrace | _StandaloneTrace] = set()


def _exit_status(
    trace: _ForkedTrace | _StandaloneTrace,
    timeout_s: float | None,
    folder: Path,
    progress: Progress,
) -> int:
    """The status a process ends with; whatever it has started ends with it."""
    _running.add(trace)
    try:
        return _waited_for(trace, timeout_s, folder, progress)
    except TimeoutError as error:
        raise TraceFailed(
            f"The trace was ended after {timeout_s:g} s.",
            why="The step, or the building of it, had not come to an end.",
            fix="Give it longer (--timeout), or trace a step that runs one iteration alone.",
        ) from error
    finally:
        _running.discard(trace)
        trace.end()
        trace.close()


def _waited_for(
    trace: _ForkedTrace | _StandaloneTrace,
    timeout_s: float | None,
    folder: Path,
    progress: Progress,
) -> int:
    """The status a process ends with; what it tells of itself meanwhile is passed on."""
    if progress is silent:
        return trace.wait(timeout_s)
    until_s = None if timeout_s is None else time.monotonic() + timeout_s
    told = None
    while True:
        wait_s = _POLL_S if until_s is None else min(_POLL_S, until_s - time.monotonic())
        try:
            return trace.wait(max(wait_s, 1e-3))
        except TimeoutError:
            if until_s is not None and time.monotonic() >= until_s:
                raise
        now = read_progress(folder)
        if now is not None and now != told:
            told = now
            progress(*now)


def write_progress(folder: Path, what: str, done: float, total: float) -> None:
    """Tell whoever waits for this tracing process how far it is."""
    draft = folder / "progress.part"
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps([what, done, total]))
        draft.replace(folder / "progress")


def read_progress(folder: Path) -> tuple[str, float, float] | None:
    """What a tracing process has told last, if anything."""
    try:
        what, done, total = json.loads((folder / "progress").read_text())
    except (OSError, ValueError):
        return None
    return str(what), float(done), float(total)


def end_running() -> None:
    """End every trace that other threads of this process are waiting for."""
    for trace in list(_running):
        trace.end()


def _environment() -> dict[str, str]:
    """The same outlay, and no real GPU: a trace must not take memory from a running job."""
    package_folder = str(Path(__file__).parents[2])
    paths = [package_folder, os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUDA_VISIBLE_DEVICES": "",
    }


# Where there is no reply, or an error


def error_from_reply(reply: Mapping[str, object]) -> OutlayError:
    """The tracing process's error, to be raised again here."""
    kind = getattr(errors, str(reply["error"]), TraceFailed)
    error: OutlayError = kind(str(reply["what"]), why=str(reply["why"]), fix=str(reply["fix"]))
    return error


def _log_tail(log: Path) -> str:
    """The last lines of a log, in one."""
    with log.open("rb") as file:
        file.seek(max(log.stat().st_size - _LOG_TAIL_BYTES, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return " ".join(lines[-3:])


def _no_reply(status: int, log_tail: str) -> TraceFailed:
    """The error for a tracing process that left no reply: is it torch's fault or the step's?"""
    if not torch_can_be_traced():
        return TraceFailed(
            "The torch in this Python cannot be traced.",
            why="Not even a small training step of outlay's own survived on fake CUDA tensors.",
            fix="Install torch 2.13 (the CPU wheel will do): pip install torch==2.13.0.",
        )
    if status >= 0:
        what = f"The tracing process ended with status {status} and no result."
    else:
        what = f"The tracing process was killed by {_signal_name(-status)}."
    why = f"Its last words: {log_tail}" if log_tail else "It said nothing."
    return TraceFailed(what, why=why, fix=_advice(status))


def _advice(status: int) -> str:
    if status == -signal.SIGKILL:
        return (
            "The machine may have run out of memory: tensors made while the file is imported are "
            "real. Make them inside the function, where they take none."
        )
    if status >= 0:
        return "Keep what ends the program (os._exit) out of the step."
    return "Check that the step runs by itself; then try a smaller part of it."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def torch_can_be_traced() -> bool:
    """Whether a small step survives with this torch, tried in a process of its own."""
    return self_test()[0]


def self_test() -> tuple[bool, str]:
    """Whether a small step survives with this torch, and what the test says of torch."""
    command = [sys.executable, "-m", "outlay.trace.capture.self_test"]
    done = subprocess.run(command, env=_environment(), capture_output=True, text=True, check=False)
    message = done.stdout.strip() or done.stderr.strip().rpartition("\n")[2]
    return done.returncode == 0, message


# Without a fork


class _StandaloneTrace:
    """A tracing process that imports torch itself."""

    def __init__(self, request_path: Path, reply_path: Path, log: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "outlay.trace.child", str(request_path), str(reply_path)],
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


# Forks of a process that has imported torch


IDLE_S = 20.0
"""How long that process waits for the next request: it holds some 300 MB."""
_STARTUP_VARIABLES = ("PYTHON", "TORCH", "PYTORCH", "LD_", "OMP_", "MKL_", "CUDA", "HIP_", "ROCR_")
"""Beginnings of the names of what Python and torch read when they start: others reach a fork."""
_MESSAGE_BYTES = 64


class ForkUnavailable(Exception):
    """There is no process to fork, or it was gone before it did."""


class _ForkedTrace:
    """A tracing process that another one has forked."""

    def __init__(self, status: socket.socket) -> None:
        self._status = status
        self._pid: int | None = None
        self._has_ended = False

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
            elif self._has_ended or self._pid is not None:
                return -signal.SIGKILL  # where the fork server was killed, it ends with that
            else:
                raise ForkUnavailable

    def end(self) -> None:
        """End it, if it has not, and what it left behind; from any thread."""
        self._has_ended = True
        with contextlib.suppress(OSError):
            if self._pid is not None:
                os.killpg(self._pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            self._status.shutdown(socket.SHUT_RDWR)  # ends a fork that is yet to come

    def close(self) -> None:
        """Let go of what is needed to wait."""
        self._status.close()


class _ForkClient:
    """A fork server (`outlay.trace.forker`) as seen from this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._requests, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-P", "-m", "outlay.trace.forker"]
        with server_end:
            self._process = subprocess.Popen(
                [*command, str(server_end.fileno()), str(IDLE_S)],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[server_end.fileno()],
                start_new_session=True,
            )

    @property
    def is_running(self) -> bool:
        """Whether the server runs."""
        return self._process.poll() is None

    def fork(self, folder: Path, log: int, environment: Mapping[str, str]) -> _ForkedTrace:
        """A fork that answers the request in the folder, where this process is."""
        context = {"folder": str(Path.cwd()), "environment": dict(environment)}
        status, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # The environment may have secrets: they stay in memory.
        with server_end, os.fdopen(os.memfd_create("context"), "wb") as file:
            file.write(json.dumps(context).encode())
            file.flush()
            descriptors = [server_end.fileno(), log, file.fileno()]
            try:
                socket.send_fds(self._requests, [os.fsencode(folder)], descriptors)
            except OSError:
                status.close()
                raise
        return _ForkedTrace(status)

    def abandon(self) -> None:
        """Have nothing to do with the server any more."""
        self._requests.close()
        self._process.returncode = 0  # it is not this process's to wait for

    def close(self) -> None:
        """End the server, and whatever it has forked."""
        self._requests.close()
        self._process.kill()
        self._process.wait()


_clients: dict[frozenset[tuple[str, str]], _ForkClient] = {}
_clients_lock = threading.Lock()


def _forget_clients() -> None:
    """Begin anew, in a process that was just forked: the servers are its parent's."""
    global _clients_lock
    _clients_lock = threading.Lock()
    while _clients:
        _clients.popitem()[1].abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_clients)


def _forked(folder: Path, log: int, environment: Mapping[str, str]) -> _ForkedTrace:
    """A process that answers the request in the folder; raises `ForkUnavailable` where none can."""
    if sys.platform != "linux":
        raise ForkUnavailable
    try:
        with _clients_lock:
            client = _client_for(environment)
        return client.fork(folder, log, environment)
    except OSError as error:
        raise ForkUnavailable from error


def _client_for(environment: Mapping[str, str]) -> _ForkClient:
    """The server that started as one with this environment would."""
    for key in [key for key, client in _clients.items() if not client.is_running]:
        _clients.pop(key).close()
    key = _startup_key(environment)
    if key not in _clients:
        _clients[key] = _ForkClient(environment)
    return _clients[key]


def _startup_key(environment: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """What decides how a process starts."""
    variables = {
        name: value for name, value in environment.items() if name.startswith(_STARTUP_VARIABLES)
    }
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    if not all(map(os.path.isabs, filter(None, paths))):
        variables["PWD"] = str(Path.cwd())
    return frozenset(variables.items())


@atexit.register
def close() -> None:
    """End all fork servers."""
    while _clients:
        _clients.popitem()[1].close()
