"""Engine `slurm`: sbatch, here or on a login host.

Slurm's own commands are run by small fixed scripts, here or over ssh. The run's folder is on a
disk that login host and nodes share, as homes usually are; `slurm-id` in it is the job's number,
written when it is submitted, and once more by the job itself. A job is looked for by that and by
its name before anything is submitted, and while somebody submits it nobody else does.

sacct is asked where a job is no longer in the queue and accounting is on; without it the run's
folder says how it ended.
"""

from __future__ import annotations

import math
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from outlay.errors import ExtraMissing, InputError, LaunchFailed
from outlay.hardware.gpu_names import gpu_match
from outlay.run.engine import ENDED, EngineState, JobFile, RunState
from outlay.run.job import Job
from outlay.run.redaction import redacted
from outlay.run.run_folder import (
    JOB,
    LOG,
    RUNS_VARIABLE,
    SCRIPT,
    FolderState,
    RunFolder,
    body,
    engine_state,
    is_disk_full,
    job_json,
    job_script,
    own_outlay,
    own_wheel,
    waited,
    whole_script,
)
from outlay.run.shell import Completed, HereShell, Shell, ShellFailed
from outlay.units import MINUTE_S

BIN_VARIABLE = "OUTLAY_BIN"
"""Where outlay is, for a job that is submitted on the machine where it is installed."""
_SIGNAL_SPREAD_S = 60.0
"""Slurm sends a signal up to so much earlier. # Source: sbatch(1), --signal."""
_EXPECTED_TIMES = 2.0
"""A job whose limit nobody gave may take so many times what is expected."""
_OTHERS = "# CPUs and memory are what the cluster gives; options of [run.slurm] ask for others."
_NODE_END = "OUTLAY_NODE"
_POLL_S = 1.0
_CANCELLED_S = 90.0
"""Within which a cancelled job is gone: Slurm waits 30 s before it kills."""

# Rendering


def sbatch_lines(job: Job) -> list[str]:
    """The lines for sbatch at the head of a job's script."""
    options = [
        f"--job-name={job.engine_name}",
        f"--output={LOG}",
        "--open-mode=append",
        f"--nodes={job.machine.machines}",
        "--ntasks-per-node=1",
        *_gpu_options(job),
        *_time_options(job),
        "--requeue",
        f"--export={','.join((RUNS_VARIABLE, BIN_VARIABLE, *job.pass_on))}",
        *(
            f"--{name}={value}"
            for name, value in (
                ("partition", job.slurm.partition),
                ("account", job.slurm.account),
                ("qos", job.slurm.qos),
            )
            if value
        ),
        *job.slurm.options,
    ]
    for option in options:
        if not re.fullmatch(r"--?[A-Za-z][^\x00-\x1f\x7f]*", option):
            raise InputError(f"{option!r} of run.slurm is no option of sbatch.")
    return [*(f"#SBATCH {option}" for option in options), _OTHERS]


def _gpu_options(job: Job) -> list[str]:
    if job.machine.gpus < 1:
        return []
    kind = gpu_type(job)
    return [f"--gres=gpu:{kind}:{job.machine.gpus}" if kind else f"--gres=gpu:{job.machine.gpus}"]


def gpu_type(job: Job) -> str:
    """The cluster's own name of a job's GPU; empty where the file has none."""
    wanted = _gpu_names(job.machine.gpu)
    return next((kind for gpu, kind in job.slurm.gpu_types if _gpu_names(gpu) & wanted), "")


def _gpu_names(spelling: str) -> set[str]:
    found = gpu_match(spelling) if spelling else None
    return {spelling} if found is None else {gpu.name for gpu in found.candidates}


def time_limit_s(job: Job) -> float | None:
    """How long Slurm lets a job run: what the file says, else a little more than its own limit."""
    if job.slurm.time_s is not None:
        return job.slurm.time_s
    if job.longest_s is not None:
        # The job ends itself at its limit; Slurm is there in case that fails.
        return job.longest_s + job.watch.grace_s + _SIGNAL_SPREAD_S
    if job.run_time_s is not None:
        return job.run_time_s.likely * _EXPECTED_TIMES
    return None


def _time_options(job: Job) -> list[str]:
    limit_s = time_limit_s(job)
    grace_s = job.watch.grace_s
    if limit_s is None:
        return [f"--signal=B:USR1@{math.ceil(grace_s)}"]
    minutes = max(math.ceil(limit_s / MINUTE_S), 1)
    days, minutes_left = divmod(minutes, 24 * 60)
    hours, minutes_left = divmod(minutes_left, 60)
    signal_s = min(math.ceil(grace_s), minutes * 60 // 2)
    return [
        f"--time={f'{days}-' if days else ''}{hours:02d}:{minutes_left:02d}:00",
        f"--signal=B:USR1@{signal_s}",
    ]


_IN_JOB = (
    f'PATH="$PATH${{{BIN_VARIABLE}:+:${BIN_VARIABLE}}}"; export PATH',
    "export OUTLAY_ASK=USR1  # Slurm's own SIGTERM reaches every process",
    'echo "$SLURM_JOB_ID" > "$RUN/slurm-id.job" && mv "$RUN/slurm-id.job" "$RUN/slurm-id"',
)
_HEAD = (
    "# The first of the machines, and a port that other jobs do not use.",
    'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
    'address=$(scontrol show node "$head" | sed -n "s/.*NodeAddr=\\([^ ]*\\).*/\\1/p" | head -n 1)',
    'export OUTLAY_HEAD_ADDRESS="${address:-$head}"',
    "export OUTLAY_HEAD_PORT=$((20000 + SLURM_JOB_ID % 10000))",
)
_NODE = (
    'export OUTLAY_NODE_RANK="$SLURM_NODEID"',
    "# Each machine but the first has a folder of its own for what is written of it.",
    'if [ "$SLURM_NODEID" -gt 0 ]; then',
    f'  mkdir -p "$RUN/node-$SLURM_NODEID" && cp "$RUN/{JOB}" "$RUN/node-$SLURM_NODEID/"',
    '  ln -sfn ../work "$RUN/node-$SLURM_NODEID/work"',
    '  HEAD="$RUN" RUN="$RUN/node-$SLURM_NODEID"',
    "fi",
    'echo $$ > "$RUN/node-pid"',
    'cd "$RUN/work" || exit 1',
    "trap 'exit 143' TERM USR1",
    "# Set-up is done on the first machine, then on the others: they share the folder.",
    'while [ "$SLURM_NODEID" -gt 0 ] && [ "$(cat "$HEAD/phase")" != training ]; do sleep 1; done',
)
_NODE_FOLDER = 'of="$RUN"; [ "$SLURM_NODEID" -eq 0 ] || of="$RUN/node-$SLURM_NODEID"'


def _spread_over_nodes(job: Job) -> list[str]:
    """The part of a script that runs the job's body on every machine it gets."""
    lines = ["set -u", *_NODE, *body(job)]
    end = _NODE_END
    while end in (line for one in lines for line in one.splitlines()):
        end += "_"
    count = job.machine.machines
    step = f"srun --export=ALL --nodes={count} --ntasks={count} --ntasks-per-node=1"
    # A signal to srun itself would reach every process there; the scripts alone pass it on.
    ask = f'{_NODE_FOLDER}; kill -USR1 "$(cat "$of/node-pid")"'
    return [
        *own_outlay(job),
        "# --- on every machine",
        "export RUN",
        f"cat > \"$RUN/node.sh\" <<'{end}'",
        *lines,
        end,
        'echo set-up > "$RUN/phase"',
        'export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-}"  # srun does not take it over',
        '[ -n "$SRUN_CPUS_PER_TASK" ] || unset SRUN_CPUS_PER_TASK',
        *waited(
            f'{step} --kill-on-bad-exit=1 "${{BASH:-sh}}" "$RUN/node.sh"',
            forward=f"{step} --overlap sh -c {shlex.quote(ask)}",
        ),
    ]


# Asking Slurm

_ROOT = f'"${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/$1"'
_FIRST = (
    "LC_ALL=C; export LC_ALL\n"
    # Many sites put Slurm on PATH for logins only.
    "command -v sbatch >/dev/null 2>&1 || { [ ! -r /etc/profile ] || . /etc/profile; } "
    ">/dev/null 2>&1\n"
    "command -v sbatch >/dev/null 2>&1 || { echo 'There is no sbatch.' >&2; exit 127; }\n"
)
_QUEUED = (
    'squeue --noheader --user="$(id -un)" --states=all --name="$2" --format=%i',
    "sort -n | head -n 1",
)
_FIND = (
    f"if cd {_ROOT} 2>/dev/null && [ -s slurm-id ]; then cat slurm-id; exit 0; fi\n"
    f'found=$({_QUEUED[0]}) || exit 75\nprintf "%s\\n" "$found" | {_QUEUED[1]}'
)
_SUBMIT = (
    _FIRST.rstrip("\n"),
    f"cd {_ROOT} || exit 66",
    "if [ -s slurm-id ]; then cat slurm-id; exit 0; fi",
    "tries=0",
    "until mkdir submitting 2>/dev/null; do",
    "  if [ ! -d submitting ]; then",
    "    mkdir submitting && break",
    "    [ -d submitting ] || exit 73",
    "  fi",
    "  if [ -s slurm-id ]; then cat slurm-id; exit 0; fi",
    "  host=; pid=; read -r host pid < submitting/holder 2>/dev/null",
    '  if [ "$host" = "$(uname -n)" ] && ! kill -0 "$pid" 2>/dev/null; then',
    "    rm -rf submitting",
    '  elif [ -n "$(find submitting -maxdepth 0 -mmin +5 2>/dev/null)" ]; then',
    "    rm -rf submitting",
    "  else",
    "    tries=$((tries + 1))",
    '    [ "$tries" -lt 20 ] || { echo "Somebody else submits it right now." >&2; exit 75; }',
    "    sleep 1",
    "  fi",
    "done",
    "trap 'rm -rf submitting' EXIT",
    'echo "$(uname -n) $$" > submitting/holder',
    f"found=$({_QUEUED[0]}) || exit 75",
    f'found=$(printf "%s\\n" "$found" | {_QUEUED[1]})',
    'if [ -z "$found" ]; then',
    f"  {RUNS_VARIABLE}=$(cd .. && pwd); export {RUNS_VARIABLE}",
    f'  found=$(sbatch --parsable --job-name="$2" {SCRIPT} < /dev/null) || exit 74',
    "  found=${found%%;*}",
    "  case $found in '' | *[!0-9]*)",
    '    echo "sbatch has answered $found instead of a number." >&2',
    "    exit 75 ;;",
    "  esac",
    "fi",
    # It is submitted, whether or not there is room to write that down.
    '{ echo "$found" > slurm-id.part && mv slurm-id.part slurm-id; } 2>/dev/null',
    'echo "$found"',
)
_SHOW = (
    "export TZ=UTC0 SLURM_TIME_FORMAT=standard\n"
    'if shown=$(scontrol show job --oneliner "$1" 2>&1); then echo "job $shown"; exit 0; fi\n'
    'case $shown in *"nvalid job id"*) ;; *) echo "$shown" >&2; exit 75;; esac\n'
    'sacct --noheader --parsable2 --allocations --jobs="$1"'
    " --format=JobName%200,State%40,ExitCode,Start,End,NodeList%200 2>/dev/null | tail -n 1"
    " | sed 's/^/account /'\nexit 0"
)
_ASK_TO_END = (
    'scancel --quiet --state=PENDING "$1" 2>&1\n'
    'scancel --quiet --state=RUNNING --batch --signal=USR1 "$1" 2>&1'
)
_CANCEL = 'scancel --quiet "$1" 2>&1'
_TEST = "sbatch --test-only"
_GPU_TYPES = "sinfo --noheader --format=%G"

_MISSING, _TEMPORARY = 127, 75
_UNREACHABLE = re.compile(
    r"unable to contact slurm controller|timed out|connection refused|zero bytes were transmitted"
    r"|connect failure|could not establish a configuration|unexpected message received",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class SlurmEngine:
    """Runs jobs on a cluster that has its own queue."""

    shell: Shell
    waits_s: tuple[float, ...] = (2.0, 8.0)
    """Before each further attempt, where Slurm does not answer."""
    timeout_s: float = 90.0
    """How long a command of Slurm's may take: it waits for a controller that is busy."""

    @property
    def name(self) -> Literal["slurm"]:
        """Which engine it is."""
        return "slurm"

    def render(self, job: Job) -> JobFile:
        """The script for sbatch."""
        if job.machine.machines > 1:
            text = job_script(
                job, sbatch_lines(job), [*_IN_JOB, *_HEAD], main=_spread_over_nodes(job)
            )
        else:
            one = "export OUTLAY_NODE_RANK=0 OUTLAY_HEAD_ADDRESS=127.0.0.1"
            text = job_script(job, sbatch_lines(job), [*_IN_JOB, one])
        return JobFile(name=SCRIPT, text=text)

    def check(self, job: Job) -> None:
        """Raise where Slurm would not take the job, or would give it any GPU."""
        self._check_gpus(job)
        done = self._script(_TEST, input=self.render(job).text.encode())
        if done.status != 0:
            raise self._refused(job, done.error)

    def _check_gpus(self, job: Job) -> None:
        """A cluster of several types is told which, so that the plan's figures hold."""
        if job.machine.gpus < 1 or gpu_type(job) or not job.machine.gpu:
            return
        listed = self._script(_GPU_TYPES).output.decode(errors="replace")
        types = sorted(set(re.findall(r"gpu:([A-Za-z_][^:,()\s]*)", listed)))
        if len(types) > 1:
            raise InputError(
                f"{self.shell.name} has GPUs of several types, and none is called "
                f"{job.machine.gpu} in run.slurm.gpu_types.",
                why=f"Slurm calls them {', '.join(types)}; without a name it gives any.",
                fix=f'Say which it is: [run.slurm] gpu_types = {{"{job.machine.gpu}" = '
                f'"{types[0]}"}}.',
            )

    def submit(self, job: Job, file: JobFile, secrets: Mapping[str, str]) -> str:
        """Send all files, then submit the script, unless Slurm has it already."""
        found = self.find(job)
        if found is not None:
            return found
        folder = self._folder(job)
        folder.write(JOB, job_json(job))
        folder.write(SCRIPT, file.text.encode())
        if not job.outlay:
            folder.write(*own_wheel())
        folder.send(job)
        lines = [f"export {name}={shlex.quote(value)}" for name, value in secrets.items()]
        if isinstance(self.shell, HereShell):
            lines.append(f"export {BIN_VARIABLE}={shlex.quote(str(Path(sys.executable).parent))}")
        done = self._asked(["sh", "-s", job.id, job.engine_name], whole_script([*lines, *_SUBMIT]))
        if done.status != 0:
            raise self._refused(job, redacted(done.error, secrets.values()))
        return self._number(done)

    def find(self, job: Job) -> str | None:
        """The job's number, if Slurm has it or had it."""
        done = self._script(_FIND, job.id, job.engine_name)
        if done.status != 0:
            raise self._refused(job, done.error)
        return self._number(done) if done.output.strip() else None

    def _number(self, done: Completed) -> str:
        number = done.output.decode(errors="replace").strip()
        if not re.fullmatch(r"[0-9]+", number):
            raise ShellFailed(
                f"Slurm on {self.shell.name} has answered {number[:100]!r} instead of a number.",
                fix="The same again: nothing is started twice.",
            )
        return number

    def state(self, job: Job, handle: str) -> EngineState:
        """How it is doing: what Slurm says, and the run's folder besides."""
        done = self._script(_SHOW, handle)
        folder = self._folder(job).state()
        shown = shown_job(done.output.decode(errors="replace"), job.engine_name)
        return slurm_state(shown, folder)

    def logs(self, job: Job, handle: str, offset: int = 0) -> bytes:  # noqa: ARG002
        """What it has printed."""
        return self._folder(job).read(LOG, offset)

    def stop(self, job: Job, handle: str, *, grace_s: float) -> None:
        """Ask it to end, and cancel it after the grace period."""
        if self.state(job, handle).state in ENDED:
            return
        self._folder(job).write("stop", b"")
        for script, wait_s in ((_ASK_TO_END, grace_s), (_CANCEL, _CANCELLED_S)):
            # Whatever scancel says of a job that just ended: its state is what counts.
            done = self._script(script, handle)
            if self._has_ended(job, handle, wait_s):
                return
        raise LaunchFailed(
            f"Slurm's job {handle} of run {job.id} has not ended, though it was cancelled.",
            why=redacted(_last_words(done.output.decode(errors="replace"))),
            fix=f"Look at it: squeue --jobs={handle}. It may still hold a machine.",
        )

    def _has_ended(self, job: Job, handle: str, within_s: float) -> bool:
        ends_s = time.monotonic() + within_s
        while self.state(job, handle).state not in ENDED:
            if time.monotonic() > ends_s:
                return False
            time.sleep(min(_POLL_S, max(within_s, 0.05)))
        return True

    def delete(self, job: Job, handle: str) -> None:
        """Cancel it if it is not over, and remove its folder."""
        self.stop(job, handle, grace_s=job.watch.grace_s)
        self._folder(job).remove()

    def fetch(self, job: Job, handle: str, to: Path) -> list[Path]:  # noqa: ARG002
        """Bring back what the job says."""
        return self._folder(job).fetch(job.fetch, to)

    def _folder(self, job: Job) -> RunFolder:
        return RunFolder(self.shell, job.id)

    def _script(self, script: str, *arguments: str, input: bytes = b"") -> Completed:  # noqa: A002
        return self._asked(["sh", "-c", _FIRST + script, "outlay", *arguments], input)

    def _asked(self, arguments: Sequence[str], given: bytes) -> Completed:
        """What Slurm's commands say, asked again where it does not answer."""
        for wait_s in (*self.waits_s, None):
            done = self.shell.run(arguments, input=given, timeout_s=self.timeout_s)
            if done.status == _MISSING:
                raise ExtraMissing(
                    f"There is no sbatch on {self.shell.name}.",
                    fix="Name the cluster's login host in run.slurm.login, or use another engine.",
                )
            is_down = done.status != 0 and _UNREACHABLE.search(
                done.error + done.output.decode(errors="replace")
            )
            if done.status != _TEMPORARY and not is_down:
                return done
            if wait_s is not None:
                time.sleep(wait_s)
        raise ShellFailed(
            f"Slurm on {self.shell.name} does not answer.",
            why=redacted(_last_words(done.error or done.output.decode(errors="replace"))),
            fix="Look whether it does (sinfo), then the same again: nothing is submitted twice.",
        )

    def _refused(self, job: Job, words: str) -> LaunchFailed:
        if is_disk_full(words):
            return LaunchFailed(
                f"Run {job.id} cannot be submitted on {self.shell.name}.",
                why="Its disk is full.",
                fix="Make room there, then the same again: nothing is submitted twice.",
            )
        return LaunchFailed(
            f"Slurm on {self.shell.name} does not take run {job.id}.",
            why=redacted(_last_words(words)),
            fix="Look at partition, time, gpu_types and options of [run.slurm]; "
            "sinfo --format='%P %l %G' lists what there is.",
        )


def _last_words(text: str) -> str:
    """What a command of Slurm's says went wrong, without its prefix."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [re.sub(r"^(?:\w+: )?(?:error|fatal): ", "", line) for line in lines]
    return " ".join(dict.fromkeys(told))[-500:]


# What it says


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownJob:
    """What scontrol or sacct says of a job."""

    state: str
    reason: str = ""
    exit_status: int | None = None
    signal: int = 0
    start_s: float | None = None
    end_s: float | None = None
    nodes: str = ""
    restarts: int = 0


def shown_job(text: str, name: str) -> ShownJob | None:
    """The job in an answer of the script that shows one; None where it is another's, or gone."""
    kind, _, rest = text.strip().partition(" ")
    if kind == "job":
        fields = dict(re.findall(r"(?:^|\s)(\w+)=(\S*)", rest))
        return None if fields.get("JobName") != name else _from_scontrol(fields)
    parts = rest.split("|")
    if kind != "account" or len(parts) < 6 or parts[0] != name:
        return None
    status, signal = _exit_code(parts[2])
    return ShownJob(
        state=parts[1].split(" ")[0],
        exit_status=status,
        signal=signal,
        start_s=_time_s(parts[3]),
        end_s=_time_s(parts[4]),
        nodes=parts[5],
    )


def _from_scontrol(fields: Mapping[str, str]) -> ShownJob:
    status, signal = _exit_code(fields.get("ExitCode", ""))
    return ShownJob(
        state=fields.get("JobState", ""),
        reason=fields.get("Reason", "").replace("None", ""),
        exit_status=status,
        signal=signal,
        start_s=_time_s(fields.get("StartTime", "")),
        end_s=_time_s(fields.get("EndTime", "")),
        nodes=fields.get("NodeList", "").replace("(null)", ""),
        restarts=int(fields.get("Restarts", "0") or 0),
    )


def _exit_code(text: str) -> tuple[int | None, int]:
    """Status and signal of `0:9`."""
    found = re.fullmatch(r"(\d+):(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (None, 0)


def _time_s(text: str) -> float | None:
    """A time that Slurm wrote in UTC; None where it has none."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


_WAITING = {"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
_ENDS: dict[str, tuple[RunState, str]] = {
    "COMPLETED": ("done", ""),
    "FAILED": ("failed", ""),
    "CANCELLED": ("stopped", "cancelled"),
    "TIMEOUT": ("stopped", "Slurm's time limit was reached"),
    "DEADLINE": ("stopped", "Slurm's deadline was reached"),
    "PREEMPTED": ("failed", "another job took its place"),
    "NODE_FAIL": ("failed", "its machine failed"),
    "BOOT_FAIL": ("failed", "its machine did not start"),
    "OUT_OF_MEMORY": ("failed", "it took more main memory than it was given"),
    "LAUNCH_FAILED": ("failed", "Slurm could not start it"),
    "REVOKED": ("failed", "another cluster took it"),
}
_REASONS = {
    "Resources": "waits for free machines",
    "Priority": "others are before it",
    "Dependency": "waits for another job",
    "BeginTime": "waits for its time to begin",
    "JobHeldUser": "held by you: scontrol release",
    "JobHeldAdmin": "held by the cluster's people",
    "PartitionTimeLimit": "its time limit is longer than the partition's; it will never start",
    "PartitionNodeLimit": "the partition has too few machines; it will never start",
    "BadConstraints": "no machine is as it asks; it will never start",
    "ReqNodeNotAvail": "the machines it asks for are not available",
}


def slurm_state(shown: ShownJob | None, folder: FolderState) -> EngineState:
    """How a run is doing, by what Slurm shows and what its folder says."""
    if shown is None:
        return _forgotten(folder)
    known = EngineState(
        state="running",
        phase=folder.phase,
        held_since_s=shown.start_s,
        status=folder.status,
        reason=f"on {shown.nodes}" if shown.nodes else "",
    )
    if shown.state in _WAITING:
        reason = _REASONS.get(shown.reason, shown.reason)
        again = "put back into the queue" if shown.restarts else ""
        words = "; ".join(part for part in (again, reason) if part)
        return replace(known, state="queued", reason=words, held_since_s=None)
    if shown.state not in _ENDS:
        return known if shown.state == "RUNNING" else replace(known, reason=shown.state.lower())
    return _ended(shown, folder, known)


def _ended(shown: ShownJob, folder: FolderState, known: EngineState) -> EngineState:
    state, reason = _ENDS[shown.state]
    status = shown.exit_status if not shown.signal else 128 + shown.signal
    stopped_for = str(folder.status.get("stopped_for") or "")
    if folder.limit_was_reached:
        stopped_for = "its time limit was reached"
    elif folder.was_asked and not folder.stop_was_asked and not reason:
        stopped_for = "Slurm asked it to end, at its time limit"
    if folder.stop_was_asked or stopped_for:
        state, reason = "stopped", stopped_for or reason
    elif state == "failed" and not reason:
        reason = f"signal {shown.signal}" if shown.signal else f"exit status {status}"
    # A job that was cancelled while it waited has an end, but never held a machine.
    has_run = folder.started_s is not None or bool(shown.nodes)
    return replace(
        known,
        state=state,
        reason=reason,
        exit_status=folder.exit_status if folder.exit_status is not None else status,
        held_since_s=known.held_since_s if has_run else None,
        ended_s=shown.end_s,
    )


def _forgotten(folder: FolderState) -> EngineState:
    """A job that Slurm does not know any more, by its folder alone."""
    if folder.exit_status is not None:
        return engine_state(folder) or EngineState(state="lost")
    if folder.stop_was_asked:
        return EngineState(state="stopped", held_since_s=folder.started_s, status=folder.status)
    return EngineState(
        state="lost",
        reason="Slurm does not know it any more, and it has left no status",
        held_since_s=folder.started_s,
        status=folder.status,
    )
