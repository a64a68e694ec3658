"""Commands on this machine or over ssh, as argument lists with a time limit.

Everything that is done on another machine goes through `Shell.run`: there is one place where
arguments are quoted, one where a connection can fail, and one where it is tried again.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Protocol

from outlay.errors import ExtraMissing, InputError, LaunchFailed
from outlay.run.redaction import redacted

USUAL_S = 60.0
"""How long a command may take that is to answer at once."""
_KILLED_AFTER_S = 5.0


class ShellFailed(LaunchFailed):
    """A machine could not be asked, or did not answer."""

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        fix: str = "",
        is_lasting: bool = False,
        is_slow: bool = False,
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.is_lasting = is_lasting
        """Whether asking again is of no use: a wrong host key, a refused login."""
        self.is_slow = is_slow
        """Whether the time was up: what was asked for may still be going on there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that has ended."""

    status: int
    output: bytes
    error: str


class Shell(Protocol):
    """Where commands run."""

    @property
    def name(self) -> str:
        """`this machine`, or the address."""
        ...

    def run(
        self,
        arguments: Sequence[str],
        *,
        input: bytes | IO[bytes] = b"",  # noqa: A002
        output: IO[bytes] | None = None,
        timeout_s: float = USUAL_S,
    ) -> Completed:
        """Run a command to its end, whatever its status; `ShellFailed` where that cannot be known.

        `output`: a file that takes what it prints, instead of `Completed.output`.
        """
        ...


@dataclass(frozen=True, slots=True)
class HereShell:
    """Commands on this machine."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside our own."""

    @property
    def name(self) -> str:
        """What it is called."""
        return "this machine"

    def run(
        self,
        arguments: Sequence[str],
        *,
        input: bytes | IO[bytes] = b"",  # noqa: A002
        output: IO[bytes] | None = None,
        timeout_s: float = USUAL_S,
    ) -> Completed:
        """As `Shell.run`."""
        return completed(
            arguments,
            input=input,
            output=output,
            timeout_s=timeout_s,
            environment={**os.environ, **self.environment},
            where=self.name,
        )


def completed(
    arguments: Sequence[str],
    *,
    input: bytes | IO[bytes],  # noqa: A002
    output: IO[bytes] | None,
    timeout_s: float,
    environment: Mapping[str, str],
    where: str,
) -> Completed:
    """A process of this machine, run to its end; it and its children are ended at the limit."""
    if shutil.which(arguments[0], path=environment.get("PATH")) is None:
        raise ExtraMissing(
            f"There is no {arguments[0]} on this machine.",
            fix=f"Install it, or put it on PATH: {arguments[0]}.",
        )
    given = input if isinstance(input, bytes) else None
    # Errors go to a file: a connection that ssh keeps may hold on to a pipe.
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE if isinstance(input, bytes) else input,
            stdout=subprocess.PIPE if output is None else output,
            stderr=errors,
            env=dict(environment),
            start_new_session=True,
        ) as process,
    ):
        try:
            printed, _ = process.communicate(given, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _end(process)
            raise ShellFailed(
                f"{where} has not answered {arguments[0]} in {timeout_s:.0f} s.",
                fix="Try again; what was started there goes on.",
                is_slow=True,
            ) from None
        except BaseException:
            _end(process)
            raise
        errors.seek(0)
        error = errors.read().decode(errors="replace").strip()
    return Completed(status=process.returncode, output=printed or b"", error=error)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            # Not for its output: a connection that is kept has that, too.
            process.wait(_KILLED_AFTER_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
        return


# Over ssh

CONFIG_VARIABLE = "OUTLAY_SSH_CONFIG"
"""A file that ssh reads instead of the user's own configuration."""
_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
    "LogLevel=ERROR",
    # What a user wants of a login by hand is no use here, and may fail.
    "ClearAllForwardings=yes",
    "RequestTTY=no",
    "RemoteCommand=none",
    "PermitLocalCommand=no",
)
_PERSIST_S = 30
"""How long a connection is kept for the next command."""
_LONGEST_SOCKET = 90
"""Letters of the path of a connection's socket. # Source: sun_path of unix(7) has 108 bytes, and
ssh adds 17 while it makes the socket."""
_BEGIN, _END = "outlay-begin", "outlay-status "
_SAY_BEGIN = f"printf '{_BEGIN}\\n' >&2; "
_CAPTURED = f"printf '{_BEGIN}\\n'; "
_WRAPPED = f'"$@"; status=$?; printf "\\n{_END}%d\\n" "$status" >&2; exit "$status"'
"""Around every command: what the login shell prints before it is told apart, and an answer is
whole only with its last line. A connection that breaks is never mistaken for a status."""
_NOT_FOUND = 127


@dataclass(frozen=True, slots=True)
class SshShell:
    """Commands on another machine, through the ssh program and the user's own configuration.

    A connection that fails is tried again, and so is an answer that did not come whole: whatever
    is run here may run twice, and does the same the second time.
    """

    address: str
    """`user@host`, `host:port`, or a name of the ssh configuration."""
    waits_s: tuple[float, ...] = (1.0, 4.0)
    """Before each further attempt."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Of the ssh program, beside our own."""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.address

    def run(
        self,
        arguments: Sequence[str],
        *,
        input: bytes | IO[bytes] = b"",  # noqa: A002
        output: IO[bytes] | None = None,
        timeout_s: float = USUAL_S,
    ) -> Completed:
        """As `Shell.run`."""
        streams = [stream for stream in (input, output) if not isinstance(stream, bytes | None)]
        starts = [stream.tell() for stream in streams]
        for wait_s in self.waits_s:
            try:
                return self._once(arguments, input, output, timeout_s)
            except ShellFailed as error:
                if error.is_lasting or error.is_slow:
                    raise
            time.sleep(wait_s)
            for stream, start in zip(streams, starts, strict=True):
                stream.seek(start)
            if output is not None:
                output.truncate()
        return self._once(arguments, input, output, timeout_s)

    def _once(
        self,
        arguments: Sequence[str],
        input: bytes | IO[bytes],  # noqa: A002
        output: IO[bytes] | None,
        timeout_s: float,
    ) -> Completed:
        script = _SAY_BEGIN + (_CAPTURED if output is None else "") + _WRAPPED
        # The only place where arguments become a line for a shell.
        line = shlex.join(["sh", "-c", script, "outlay", *arguments])
        answer = completed(
            [*self.command(), line],
            input=input,
            output=output,
            timeout_s=timeout_s,
            environment={**os.environ, **self.environment},
            where=self.address,
        )
        whole = _whole_answer(answer, is_captured=output is None)
        if whole is None:
            raise _connection_failed(self._target(), answer.error)
        if whole.status == _NOT_FOUND and arguments[0] != "sh":
            raise ExtraMissing(
                f"There is no {arguments[0]} on {self.address}.",
                fix=f"Install it there, or put it on PATH: ssh {self.address} {arguments[0]}.",
            )
        return whole

    def command(self) -> list[str]:
        """ssh with its options and the address, without anything to run."""
        variables = {**os.environ, **self.environment}
        config = variables.get(CONFIG_VARIABLE, "")
        ssh = ["ssh", *(["-F", config] if config else [])]
        options = (*_OPTIONS, *_kept_connection(self.address, config))
        return [*ssh, *(part for one in options for part in ("-o", one)), "--", self._target()]

    def _target(self) -> str:
        """The address as ssh takes it."""
        if not re.fullmatch(r"[A-Za-z0-9_\[][^\s\x00-\x1f]*", self.address):
            raise InputError(
                f"{self.address!r} is no address to log in to.",
                fix="Write it as for ssh: user@host, host:port, or a name of your ssh config.",
            )
        has_port = re.fullmatch(r"[^:\[\]]+:[0-9]+|.*\]:[0-9]+", self.address)
        return f"ssh://{self.address}" if has_port else self.address


def _whole_answer(answer: Completed, *, is_captured: bool) -> Completed | None:
    """What a command answered, if all of it came."""
    error, mark, status = answer.error.rpartition(_END)
    if not mark or status.strip() != str(answer.status):
        return None
    output, begin = answer.output, b""
    if is_captured:
        _, begin, output = output.partition(f"{_BEGIN}\n".encode())
    if is_captured and not begin:
        return None
    error = error.partition(_BEGIN)[2].strip()
    return Completed(status=answer.status, output=output, error=error)


def _kept_connection(address: str, config: str) -> tuple[str, ...]:
    """Options by which commands share a connection, unless the user's configuration does that."""
    folder = Path(tempfile.gettempdir()) / f"outlay-ssh-{os.getuid()}"
    name = hashlib.sha256(f"{address}\n{config}".encode()).hexdigest()[:16]
    if len(str(folder / name)) > _LONGEST_SOCKET or _has_own_socket(address, config):
        return ()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
    except OSError:
        return ()
    # Nobody else may put a socket there.
    is_ours = about.st_uid == os.getuid() and stat.S_IMODE(about.st_mode) == 0o700
    if not is_ours or not stat.S_ISDIR(about.st_mode):
        return ()
    return ("ControlMaster=auto", f"ControlPath={folder / name}", f"ControlPersist={_PERSIST_S}")


@lru_cache(maxsize=64)
def _has_own_socket(address: str, config: str) -> bool:
    """Whether the user's configuration shares connections to a machine already."""
    option = ["-F", config] if config else []
    try:
        answer = subprocess.run(
            ["ssh", *option, "-G", "--", address], capture_output=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return True
    lines = answer.stdout.decode(errors="replace").lower().splitlines()
    return any(line.startswith("controlpath ") and line != "controlpath none" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """What ssh says of a connection that failed, and what to do."""

    words: str
    """A pattern of its message."""
    why: str
    fix: str
    is_lasting: bool = True


_FAILURES = (
    _Failure(
        words=r"IDENTIFICATION HAS CHANGED|host key .* has changed|Offending .* key",
        why="Its host key is not the one that is known: it was set up anew, or it is another one.",
        fix="If you know that it was set up anew: ssh-keygen -R {host}, then log in once by hand.",
    ),
    _Failure(
        words=r"Host key verification failed|host key is known|authenticity of host",
        why="Its host key is not known here.",
        fix="Log in once by hand and compare the key: ssh {host}.",
    ),
    _Failure(
        words=r"Permission denied|Too many authentication failures|No supported authentication",
        why="It does not accept the login.",
        fix="Make 'ssh {host} true' work without a password: ssh-add, ssh-copy-id, or User and "
        "IdentityFile in your ssh configuration. Where a second factor is asked for, set "
        "ControlMaster and ControlPath there, and log in by hand first.",
    ),
    _Failure(
        words=r"Bad owner or permissions|Bad configuration option|Can't open user config"
        r"|keyword .* extra arguments|terminating, \d+ bad",
        why="The ssh configuration cannot be read.",
        fix="Mend it until 'ssh -G {host}' works.",
    ),
    _Failure(
        words=r"Could not resolve hostname",
        why="Its name is not known, or there is no network.",
        fix="Look at the name and the network: ssh {host}.",
        is_lasting=False,
    ),
    _Failure(
        words=r"refused|timed out|unreachable|No route to host|Connection (?:reset|closed)"
        r"|closed by remote host|Broken pipe|kex_exchange|not responding",
        why="The connection failed.",
        fix="Look whether it runs and can be reached (ssh {host}), then the same again: nothing is "
        "started twice.",
        is_lasting=False,
    ),
)
_HALF = _Failure(
    words="",
    why="Only a part of its answer came.",
    fix="The same again: nothing is started twice. If it stays so, try 'ssh {host} true'.",
    is_lasting=False,
)


def _connection_failed(address: str, message: str) -> ShellFailed:
    """What to tell of a connection by which no whole answer came."""
    known = () if _BEGIN in message else _FAILURES
    found = next((one for one in known if re.search(one.words, message, re.IGNORECASE)), _HALF)
    lines = message.replace(_BEGIN, "").strip().splitlines() or [""]
    last = redacted(lines[-1].strip()[-300:])
    return ShellFailed(
        f"{address} cannot be reached by ssh." if found is not _HALF else f"{address} was cut off.",
        why=f"{found.why} ({last})" if last else found.why,
        fix=found.fix.format(host=address),
        is_lasting=found.is_lasting,
    )
