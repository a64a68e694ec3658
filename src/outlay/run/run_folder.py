"""A run's files on the machine that trains, the same for every engine.

`~/.outlay/runs/ID/` (OUTLAY_RUNS moves its parent):

    job.json       the job: what to run, its price, its limits and rules
    job.sh         what runs, readable: set-up, then the command (of Slurm with its own lines)
    train.sh       the command alone, written by job.sh; what the guard starts
    work/          what was sent, and where the command runs; of the engine local, the folder itself
    results/       what trials write (OUTLAY_RESULTS), always fetched
    log            what it prints
    started/       made when it starts: who finds it there starts nothing
    pid            of job.sh
    phase          set-up, training
    status.json    the guard's figures, replaced as a whole
    events.jsonl   warnings and stops, a line each
    exit           the exit status, when all is over
    stop, limit    there if it was told to stop, and if it was ended at its time limit
    asked          there if a signal asked it to end, ours or another's

`job_script` writes job.sh; `RunFolder` reaches the files through a shell, wherever they are, by
small fixed scripts that get the run's id and a file's name as arguments.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import shlex
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from outlay.errors import InputError, LaunchFailed
from outlay.files import json_bytes, json_text
from outlay.run.engine import EngineState
from outlay.run.job import RESULTS, Job
from outlay.run.shell import Completed, Shell, ShellFailed

JOB, SCRIPT, COMMAND = "job.json", "job.sh", "train.sh"
LOG, STATUS, EVENTS = "log", "status.json", "events.jsonl"
WORK = "work"
RUNS_VARIABLE = "OUTLAY_RUNS"
"""Where runs' folders are, on the machine that trains."""
RESUMED_VARIABLE = "OUTLAY_RESUMED"
"""Set where a run goes on from its checkpoints."""
FETCHED = "outlay-runs"
"""The folder beside a workload file that results are brought to: no later run needs them."""
ALWAYS_EXCLUDED = (
    *(".git", "__pycache__", ".venv", "venv", ".outlay", ".mypy_cache", "*.pyc", FETCHED),
)
SEND_S = 3600.0
"""How long sending or fetching may take."""
STARTS_S = 60.0
"""Within which a script that has begun writes its process number."""
CLOCK_OFF_S = 30.0
"""From which difference on the clock of a machine is held to be wrong."""
READ_BYTES = 16 * 2**20
"""What is read of a log at once."""
LARGEST_SENT_BYTES = 20 * 10**9


def runs_folder() -> Path:
    """Where runs' folders are on this machine."""
    given = os.environ.get(RUNS_VARIABLE)
    return Path(given) if given else Path.home() / ".outlay" / "runs"


# What runs

_END = "OUTLAY_END"
_PROGRAM = re.compile(
    r"(?:\S*/)?(?:python[0-9.]*|torchrun|accelerate|deepspeed|outlay|bash|sh)"
    r"(?:\s(?:[^;&|<>`\n$()]|\$(?!\())*)?"
)
"""A line that is one program with plain arguments, and no more."""


def job_script(
    job: Job,
    head: Sequence[str] = (),
    before: Sequence[str] = (),
    main: Sequence[str] | None = None,
) -> str:
    """A job as a POSIX shell script that can be read, kept and edited.

    `head`: lines for the engine, right below the first. `before`: lines that say where in a group
    of machines this one is (OUTLAY_NODE_RANK, OUTLAY_HEAD_ADDRESS). `main`: instead of `body`,
    where that is to run on several machines.
    """
    return "\n".join(
        [
            "#!/bin/sh",
            *head,
            f"# {_comment(job.name)}: run {job.id}, written by outlay. Edit it as you like; it is",
            "# submitted as it is. Set-up and command are below.",
            "# In bash, where there is one: set-up lines are often written for it.",
            'if [ -z "${BASH_VERSION:-}" ] && command -v bash >/dev/null 2>&1; then',
            '  exec bash "$0" "$@"',
            "fi",
            "set -u",
            f'RUN="${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/{job.id}"',
            *_start(job),
            *before,
            *(body(job) if main is None else main),
            "",
        ]
    )


def _start(job: Job) -> list[str]:
    """Lines that let one start through, and write the exit status down whatever happens."""
    again = ' && [ -z "${SLURM_RESTART_COUNT:-}" ]' if job.engine == "slurm" else ""
    return [
        'mkdir -p "$RUN/work" && cd "$RUN/work" || exit 1',
        "# A second start does nothing; a job that Slurm put back into the queue goes on."
        if again
        else "# A second start does nothing.",
        f'if ! mkdir "$RUN/started" 2>/dev/null{again}; then',
        '  [ -d "$RUN/started" ] || exit 1  # it cannot be written',
        '  echo "outlay: this run was started before." >&2',
        "  exit 0",
        "fi",
        'rm -f "$RUN/exit" "$RUN/asked" "$RUN/limit"',
        'echo $$ > "$RUN/pid"',
        'trap \'echo $? > "$RUN/exit.part"; mv "$RUN/exit.part" "$RUN/exit"\' EXIT',
        "trap 'exit 143' TERM USR1",
        "trap 'exit 130' INT",
        '[ ! -e "$RUN/stop" ] || exit 143  # it was stopped before it began',
    ]


def body(job: Job) -> list[str]:
    """The part of a job's script that is the same on every engine: `$RUN` is the run's folder."""
    return [
        f'export OUTLAY_RUN="$RUN" OUTLAY_RESULTS="$RUN/{RESULTS}"',
        'mkdir -p "$OUTLAY_RESULTS"',
        *_environment(job),
        *_checkpoints(job),
        *own_outlay(job),
        "# --- set-up",
        'echo set-up > "$RUN/phase"',
        *_setup(job),
        "# --- training",
        *_command(job),
        'echo training > "$RUN/phase"',
        *_guarded(job),
    ]


def _environment(job: Job) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in job.environment]


def _checkpoints(job: Job) -> list[str]:
    if not job.checkpoints:
        return []
    folder = shlex.quote(job.checkpoints)
    inside = "" if job.checkpoints.startswith("/") else '"$PWD/"'
    return [f"export OUTLAY_CHECKPOINTS={inside}{folder}", 'mkdir -p "$OUTLAY_CHECKPOINTS"']


def own_outlay(job: Job) -> list[str]:
    """Install outlay for guard and trials, where it is missing; a run goes on without it."""
    if job.outlay == "none":
        return []
    what = shlex.quote(job.outlay) if job.outlay else '"$RUN"/outlay-*.whl'
    return [
        "# outlay itself, for the guard",
        'PATH="$PATH:$HOME/.outlay/venv/bin"',
        "if ! command -v outlay >/dev/null 2>&1; then",
        '  { python3 -m venv --system-site-packages "$HOME/.outlay/venv" &&',
        f'    "$HOME/.outlay/venv/bin/pip" install --quiet {what}; }} ||',
        '    echo "outlay: it could not be installed here." >&2',
        "fi",
    ]


def _setup(job: Job) -> list[str]:
    """The user's own lines, ended at the first that fails; what they export is there after."""
    if not job.setup:
        return []
    return ["set +u -e", *job.setup, "set +e -u", 'cd "$RUN/work" || exit 1']


def _command(job: Job) -> list[str]:
    """The command in a file of its own, that of a resumed run where there are checkpoints."""
    first = _written(job.command)
    if job.resume is None or not job.checkpoints:
        return first
    return [
        'if [ -n "$(ls -A "$OUTLAY_CHECKPOINTS" 2>/dev/null)" ]; then',
        f"export {RESUMED_VARIABLE}=1",
        *_written(job.resume),
        "else",
        *first,
        "fi",
    ]


def _written(command: str) -> list[str]:
    end = _END
    while end in command.splitlines():
        end += "_"
    # In place of the shell: a signal to end then reaches the program that saves, and nobody
    # takes the end of a shell for its end.
    line = f"exec {command}" if _PROGRAM.fullmatch(command.strip()) else command
    return [f"cat > \"$RUN/{COMMAND}\" <<'{end}'", line, end]


def _guarded(job: Job) -> list[str]:
    """The command under the guard, or under its time limit alone; asked to end, it is told so."""
    if job.outlay == "none":
        return [*_limited(job), *waited('"$@"')]
    return [
        "if outlay guard --help >/dev/null 2>&1; then",
        '  set -- outlay guard --run "$RUN"',
        "else",
        '  echo "outlay: no guard starts here; its time limit alone guards this run." >&2',
        *(f"  {line}" for line in _limited(job)),
        "fi",
        *waited('"$@"'),
    ]


def _limited(job: Job) -> list[str]:
    """Lines that make the command, under its time limit, the arguments of the script."""
    limit_s = 0 if job.longest_s is None else max(math.ceil(job.longest_s), 1)  # 0 is none
    grace_s = max(math.ceil(job.watch.grace_s), 1)
    # The shell stays while its program saves, and does not go on with the next. timeout sends a
    # signal to its child and to all: a program that is not its child gets it once.
    run = 'case $first in "exec "*) sh "$1" ;; *) . "$1" ;; esac'
    shell = f'trap "exit 143" TERM; read -r first < "$1"; {run}'
    return [
        f'set -- sh -c {shlex.quote(shell)} outlay "$RUN/{COMMAND}"',
        f'if command -v timeout >/dev/null; then set -- timeout -k {grace_s} {limit_s} "$@"; fi',
        *([f"ends=$(($(date +%s) + {limit_s}))"] if limit_s else []),
    ]


def waited(command: str, forward: str = 'kill -TERM "$child" 2>/dev/null') -> list[str]:
    """Run a command to its end, and end with its status; pass on a request to end meanwhile.

    Once only: to a guard a second request means at once. The request is SIGTERM, or what
    OUTLAY_ASK says where SIGTERM reaches every process by itself, as Slurm's does.
    """
    return [
        "child=",
        "ask_to_end() {",
        '  [ -n "$child" ] || exit 143',
        "  trap : TERM USR1",
        '  : > "$RUN/asked"',
        f"  {forward}",
        "}",
        "trap : TERM USR1",
        'trap ask_to_end "${OUTLAY_ASK:-TERM}"',
        f"{command} &",
        "child=$!",
        "while :; do",
        '  wait "$child"; status=$?',
        '  kill -0 "$child" 2>/dev/null || break',
        "done",
        'if [ -n "${ends:-}" ] && [ "$(date +%s)" -ge "$ends" ]; then',
        '  : > "$RUN/limit"; echo "outlay: its time limit is reached." >&2',
        "fi",
        "# Killed from outside it leaves what it has started, which nobody would look at any more.",
        'if [ "$status" -eq 137 ]; then',
        '  for of in $(grep -lszxF "OUTLAY_RUN=$RUN" /proc/[0-9]*/environ 2>/dev/null); do',
        '    of=${of#/proc/}; kill -s KILL "${of%/environ}" 2>/dev/null',
        "  done",
        "fi",
        'exit "$status"',
    ]


def _comment(text: str) -> str:
    """A text as part of a comment: one line, no control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


# What is sent


def packed(folder: Path, exclude: Sequence[str], extra: Sequence[Path], to: IO[bytes]) -> int:
    """Write a folder and further files as a tar; gives its bytes. Links are kept as links."""
    patterns = (*ALWAYS_EXCLUDED, *exclude)
    try:
        with tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in _wanted(folder, patterns):
                name = f"./{path.relative_to(folder).as_posix()}"
                archive.add(path, arcname=name, recursive=False, filter=_nobodys)
                _check_size(folder, to.tell())
            for path in extra:
                archive.add(path, arcname=f"./{path.name}", filter=_nobodys)
                _check_size(folder, to.tell())
    except OSError as error:
        raise InputError(
            f"{error.filename or folder} cannot be sent: {error.strerror or error}.",
            fix="Leave it out by run.exclude, or make it readable; a copy needs room in "
            f"{tempfile.gettempdir()}.",
        ) from error
    return to.tell()


def _nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """A file without its owner: there it is that of who unpacks it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _check_size(folder: Path, size_bytes: int) -> None:
    if size_bytes > LARGEST_SENT_BYTES:
        raise InputError(
            f"{folder} has over {LARGEST_SENT_BYTES / 1e9:,.0f} GB to send.",
            why="That takes long, and is sent for every run.",
            fix="Name what need not go in run.exclude, and fetch data by a line of run.setup.",
        )


def _wanted(folder: Path, patterns: Iterable[str]) -> Iterable[Path]:
    """What of a folder is sent; a pattern is one of a name, or of a path within the folder."""
    for parent, names, files in os.walk(folder):
        here = Path(parent)
        names[:] = sorted(name for name in names if not _is_excluded(here / name, folder, patterns))
        for name in (*names, *sorted(files)):
            if not _is_excluded(here / name, folder, patterns):
                yield here / name


def _is_excluded(path: Path, folder: Path, patterns: Iterable[str]) -> bool:
    inner = path.relative_to(folder).as_posix()
    return any(
        fnmatch(path.name, pattern.rstrip("/")) or fnmatch(inner, pattern.rstrip("/"))
        for pattern in patterns
    )


# Reaching it

_ROOT = f'LC_ALL=C; export LC_ALL; cd "${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/$1" || exit 66\n'
_MAKE = f'(umask 077; mkdir -p "${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/$1")'
_WRITE = (
    f'{_MAKE} && {_ROOT}part="$2.part.$$"\n'
    'cat > "$part" && mv "$part" "$2" || { rm -f "$part"; exit 1; }'
)
_UNPACK = (
    f"{_ROOT}[ -d work ] && exit 0\n"
    "part=work.part.$$; mkdir $part && tar -xof - -C $part || { rm -rf $part; exit 1; }\n"
    "mv -T $part work 2>/dev/null || [ -d work ] || mv $part work || exit 1\n"
    "rm -rf $part"  # somebody else was faster
)
_OWN_PROCESSES = (
    f'grep -lszxF "OUTLAY_RUN=${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/$1" /proc/[0-9]*/environ'
)
"""All that job.sh has started, by its environment: workers of torchrun have sessions of their own.
The shell of job.sh itself is none of them."""
# Another process may have the number after a restart; one that is over may still have it.
_IS_ALIVE = (
    "[ ! -f pid ] || pid=$(cat pid)\n"
    "is_alive() { if [ -r /proc/self/cmdline ]; then grep -qs job.sh /proc/$pid/cmdline\n"
    "  else kill -0 $pid 2>/dev/null; fi; }\n"
)
_READ = f'{_ROOT}tail -c "+$3" "$2" 2>/dev/null | head -c {READ_BYTES}'
_ALL_SAID = "all said"
_STATE = (
    f"{_ROOT}echo now $(date +%s)\n"
    "[ -d started ] && echo started $(date -r started +%s)\n"
    "[ -f phase ] && echo phase $(cat phase)\n"
    f"{_IS_ALIVE}"
    "if [ -f pid ]; then echo pid $pid\n"
    "  if is_alive; then echo alive 1\n"
    f"  elif [ ! -f exit ] && {_OWN_PROCESSES} | grep -q .; then echo working 1; fi; fi\n"
    "[ -f exit ] && echo exit $(cat exit) && echo ended $(date -r exit +%s)\n"
    "[ -f stop ] && echo stop 1\n[ -f limit ] && echo limit 1\n[ -f asked ] && echo asked 1\n"
    f"echo {_ALL_SAID}\n"
    "[ -f status.json ] && echo status && cat status.json\n"
    "exit 0"
)
_LINK = f'{_MAKE} && {_ROOT}[ -e work ] || ln -s -- "$2" work'
_PACK = (
    f"{_ROOT}tar -cf - --null -T -\n"
    "status=$?; [ $status -le 1 ] || exit $status"  # 1: a file has changed while it was read
)
_LIST = f'{_ROOT}find work/ results/ "(" -type f -o -type l ")" -print0 2>/dev/null; exit 0'
_SIGNAL = (
    f"{_ROOT}[ -f pid ] || exit 0\n{_IS_ALIVE}"
    # To all of it; also where nobody is left who would pass a request on.
    'if [ "$2" = KILL ] || ! is_alive; then\n'
    f"  for of in $({_OWN_PROCESSES}); do\n"
    '    of=${of#/proc/}; kill -s "$2" ${of%/environ} 2>/dev/null\n'
    '  done; [ "$2" != KILL ] || sleep 1\n'
    "fi\n"
    "is_alive || exit 0\n"
    # The script passes it on to the guard, and to nobody else; before that there is no guard.
    'if [ "$2" = TERM ] && [ "$(cat phase 2>/dev/null)" = training ]; then\n'
    "  kill -s TERM $pid 2>/dev/null && exit 0\n"
    "fi\n"
    'kill -s "$2" -- "-$pid" 2>/dev/null || kill -s "$2" "$pid" 2>/dev/null\nexit 0'
)
_REMOVE = f'{_ROOT}cd .. && rm -rf -- "./$1"'
_NO_FOLDER = 66
_DISK_FULL = ("no space left", "disk quota exceeded", "cannot write")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderState:
    """What a run's folder says."""

    exists: bool = False
    now_s: float = 0.0
    """By the machine's own clock, as all times here."""
    started_s: float | None = None
    ended_s: float | None = None
    phase: str = ""
    pid: int | None = None
    is_alive: bool = False
    """Whether its script is."""
    is_working: bool = False
    """Whether any process that it has started is, where it has left no exit status."""
    exit_status: int | None = None
    stop_was_asked: bool = False
    limit_was_reached: bool = False
    was_asked: bool = False
    """A signal asked it to end: by us, by Slurm at its limit, or by whoever could."""
    status: Mapping[str, Any] = field(default_factory=dict)


class RunFolder:
    """A run's folder on the machine of a shell."""

    def __init__(self, shell: Shell, run: str) -> None:
        self.shell = shell
        self.run = run

    def write(self, name: str, data: bytes) -> None:
        """Write a file of it, whole or not at all."""
        self._checked(self._script(_WRITE, name, input=data, timeout_s=SEND_S), f"write {name}")

    def send(self, job: Job) -> None:
        """Send the job's folder as `work/`, unless it is there already."""
        with tempfile.TemporaryFile() as archive:
            folder = Path(job.folder) if job.folder else None
            extra = [] if folder is None else [folder / name for name in job.send]
            for path in extra:
                if not path.exists():
                    raise InputError(f"{path} of run.send is not there.")
            if folder is None:
                tarfile.open(fileobj=archive, mode="w").close()
            else:
                packed(folder, job.exclude, extra, archive)
            archive.seek(0)
            done = self._script(_UNPACK, input=archive, timeout_s=SEND_S)
        self._checked(done, "unpack what was sent")

    def link(self, job: Job) -> None:
        """Let `work/` be the job's folder itself, on the machine where that is."""
        self._checked(self._script(_LINK, job.folder), "name its folder")

    def read(self, name: str, offset: int = 0) -> bytes:
        """A file of it from an offset on, so much at once; nothing where there is no more."""
        return self._script(_READ, name, str(offset + 1)).output

    def state(self) -> FolderState:
        """What it says now."""
        done = self._script(_STATE)
        if done.status == _NO_FOLDER:
            return FolderState()
        self._checked(done, "look at the run's folder")
        text = done.output.decode(errors="replace")
        if f"\n{_ALL_SAID}\n" not in text:
            raise ShellFailed(
                f"{self.shell.name} gave half a reply about run {self.run}.", fix="Ask again."
            )
        return by_this_clock(parse_state(text), time.time())

    def start(self, arguments: Sequence[str], secrets: Mapping[str, str], path: str = "") -> None:
        """Start a program in the folder, in a session of its own, printing to the log.

        What it gets through its standard input are the variables' values: they are in no file and
        in no list of processes. `path`: folders to be searched after those of PATH.
        """
        lines = [f"export {name}={shlex.quote(value)}" for name, value in secrets.items()]
        if path:
            lines.append(f'PATH="$PATH:"{shlex.quote(path)}; export PATH')
        lines += [
            f'cd "${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/{self.run}" || exit 66',
            "# A session of its own, or at least a group of processes.",
            "if command -v setsid >/dev/null 2>&1; then start='setsid nohup'",
            "else start=nohup; set -m; fi",
            f"$start {shlex.join(arguments)} >> {LOG} 2>&1 < /dev/null &",
        ]
        done = self.shell.run(["sh", "-s"], input=whole_script(lines))
        self._checked(done, "start it")

    def signal(self, name: str) -> None:
        """Send a signal to all processes of the run."""
        self._checked(self._script(_SIGNAL, name), f"send it {name}")

    def fetch(self, patterns: Sequence[str], to: Path) -> list[Path]:
        """Bring files of `work/` that patterns name into a folder here, and all of `results/`."""
        listed = os.fsdecode(self._script(_LIST).output).split("\0")
        names = [
            name
            for name in listed
            if name.startswith(f"{RESULTS}/")
            or (name and _is_wanted(name.removeprefix(f"{WORK}/"), patterns))
        ]
        if not names:
            return []
        with tempfile.TemporaryFile() as archive:
            wanted = os.fsencode("\0".join(names) + "\0")
            done = self._script(_PACK, input=wanted, output=archive, timeout_s=SEND_S)
            self._checked(done, "pack what is fetched")
            archive.seek(0)
            return unpacked(archive, to)

    def remove(self) -> None:
        """Remove it."""
        done = self._script(_REMOVE)
        if done.status != _NO_FOLDER:
            self._checked(done, "remove the run's folder")

    def _script(
        self,
        script: str,
        *arguments: str,
        input: bytes | IO[bytes] = b"",  # noqa: A002
        output: IO[bytes] | None = None,
        timeout_s: float = 60.0,
    ) -> Completed:
        command = ["sh", "-c", script, "outlay", self.run, *arguments]
        return self.shell.run(command, input=input, output=output, timeout_s=timeout_s)

    def _checked(self, done: Completed, action: str) -> None:
        if done.status == 0:
            return
        is_full = is_disk_full(done.error)
        raise LaunchFailed(
            f"{self.shell.name} could not {action} of run {self.run}.",
            why="Its disk is full." if is_full else done.error[-500:] or f"Status {done.status}.",
            fix="Make room there, then the same again: nothing is started twice."
            if is_full
            else "Mend that, then the same again: nothing is started twice.",
        )


def is_disk_full(error: str) -> bool:
    """Whether a command says that it could not write."""
    return any(words in error.lower() for words in _DISK_FULL)


def whole_script(lines: Sequence[str]) -> bytes:
    """Lines for the standard input of `sh -s`: nothing of them is done unless all have come."""
    return "\n".join(["{", *lines, "exit", "}", ""]).encode()


def parse_state(text: str) -> FolderState:
    """What the state script printed."""
    head, _, status = text.partition("\nstatus\n")
    values = dict(line.split(" ", 1) for line in head.splitlines() if " " in line)
    try:
        content = json.loads(status) if status.strip() else {}
    except ValueError:  # half a reply, or a full disk there
        content = {}
    return FolderState(
        exists=True,
        now_s=_number(values.get("now")) or 0.0,
        started_s=_number(values.get("started")),
        ended_s=_number(values.get("ended")),
        phase=values.get("phase", ""),
        pid=_whole(values.get("pid")),
        is_alive="alive" in values,
        is_working="working" in values,
        limit_was_reached="limit" in values,
        exit_status=_whole(values.get("exit")),
        stop_was_asked="stop" in values,
        was_asked="asked" in values,
        status=content if isinstance(content, dict) else {},
    )


def by_this_clock(folder: FolderState, now_s: float) -> FolderState:
    """The state with its times by the clock here, where the machine's own goes wrong.

    Costs are time held: a clock that is an hour fast would be an hour's money.
    """
    off_s = now_s - folder.now_s
    if not folder.now_s or abs(off_s) < CLOCK_OFF_S:
        return folder
    started_s, ended_s = folder.started_s, folder.ended_s
    return replace(
        folder,
        now_s=now_s,
        started_s=None if started_s is None else started_s + off_s,
        ended_s=None if ended_s is None else ended_s + off_s,
    )


def engine_state(folder: FolderState) -> EngineState | None:
    """How a run is doing by its folder alone; None where nothing was started there."""
    if folder.started_s is None:
        return None
    known = EngineState(
        state="running",
        phase=folder.phase,
        exit_status=folder.exit_status,
        held_since_s=folder.started_s,
        ended_s=folder.ended_s,
        status=folder.status,
    )
    if folder.exit_status is None:
        is_starting = folder.pid is None and folder.now_s - folder.started_s < STARTS_S
        if folder.is_alive or is_starting:
            return known
        if folder.is_working:
            return replace(known, reason="its script was killed, what it has started goes on")
        if folder.stop_was_asked:
            return replace(known, state="stopped", reason="ended after the grace period")
        if folder.limit_was_reached:
            return replace(known, state="stopped", reason="its time limit was reached")
        return replace(known, state="lost", reason="its processes are gone without a status")
    stopped_for = str(folder.status.get("stopped_for") or "")
    if folder.limit_was_reached:
        stopped_for = "its time limit was reached"
    if folder.stop_was_asked or stopped_for:
        return replace(known, state="stopped", reason=stopped_for)
    if folder.was_asked:
        return replace(known, state="stopped", reason="a signal asked it to end")
    if folder.exit_status == 0:
        return replace(known, state="done")
    return replace(known, state="failed", reason=f"exit status {folder.exit_status}")


def _is_wanted(name: str, patterns: Sequence[str]) -> bool:
    """Whether a path is one of the patterns, or lies in a folder that is."""
    parts = name.split("/")
    heads = ["/".join(parts[: number + 1]) for number in range(len(parts))]
    return any(
        fnmatch(head, pattern.rstrip("/").removeprefix("./"))
        for pattern in patterns
        for head in heads
    )


def unpacked(archive: IO[bytes], to: Path) -> list[Path]:
    """Unpack a tar from elsewhere into a folder; nothing of it leaves the folder.

    A file is there whole or not at all. Links that lead out of the folder are left out.
    """
    try:
        to.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".outlay-", dir=to) as draft:
            _unpack_draft(archive, Path(draft))
            return sorted(_moved(Path(draft), to))
    except (tarfile.TarError, OSError) as error:
        raise LaunchFailed(
            f"What was fetched cannot be written to {to}.",
            why=str(error),
            fix="Make room or rights for it, then fetch it again.",
        ) from error


def _unpack_draft(archive: IO[bytes], draft: Path) -> None:
    leads_out = (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for member in tar:
            member.name = member.name.removeprefix(f"{WORK}/")
            if member.islnk():
                member.linkname = member.linkname.removeprefix(f"{WORK}/")
            with contextlib.suppress(*leads_out):
                tar.extract(member, draft, filter="data")


def _moved(draft: Path, to: Path) -> Iterable[Path]:
    """Move all files of a draft to their place; the paths of those that are no links."""
    for parent, folders, files in os.walk(draft):
        place = to / Path(parent).relative_to(draft)
        place.mkdir(parents=True, exist_ok=True)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in (*links, *files):
            path = Path(parent) / name
            path.replace(place / name)
            if not (place / name).is_symlink():
                yield place / name


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    number = _number(text)
    return None if number is None else int(number)


def job_json(job: Job) -> bytes:
    """A job as the bytes of its `job.json`."""
    return json_bytes(json_text(job) + "\n")


def own_wheel() -> tuple[str, bytes]:
    """This very outlay as a wheel, for machines that have none: its name and bytes."""
    import zipfile
    from importlib import metadata

    try:
        found = metadata.distribution("outlay")
    except metadata.PackageNotFoundError as error:
        raise LaunchFailed(
            "This outlay is not installed, so that it cannot be sent.",
            fix='Install it (pip install .), or set run.outlay = "none" or what pip is to install.',
        ) from error
    root = Path(__file__).parents[1]
    about = f"outlay-{found.version}.dist-info"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                wheel.write(path, f"outlay/{path.relative_to(root).as_posix()}")
        wheel.writestr(f"{about}/METADATA", found.read_text("METADATA") or "")
        wheel.writestr(
            f"{about}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: outlay\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(
            f"{about}/entry_points.txt", "[console_scripts]\noutlay = outlay.cli.main:main\n"
        )
        wheel.writestr(f"{about}/RECORD", "")
    return f"outlay-{found.version}-py3-none-any.whl", buffer.getvalue()
