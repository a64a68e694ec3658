"""The guard on the machine that trains: it looks at a run, and ends what only costs money.

    guard_run(Path("~/.outlay/runs/ID"))   what job.sh calls: starts the command, exits as it does
    guard_process(1234, settings)          a process that runs already
    guard_machine(settings)                the whole machine: shut down once nobody uses it

Whatever goes wrong in it, the user's run goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from outlay.errors import InputError, OutlayError
from outlay.probe.agent.protocol import FOLDER_VARIABLE, LONG_RUN_FILE, LONG_RUN_VARIABLE
from outlay.probe.command import INJECT, adopt_orphans
from outlay.probe.gpu_driver import Driver, NoDriver
from outlay.probe.gpu_watch import open_driver
from outlay.probe.runner import noted_signals
from outlay.run.activity import (
    AgentReader,
    LogReader,
    MachineReader,
    RunProcesses,
    RunReader,
    age_s,
    log_of,
    started_ticks,
)
from outlay.run.job import Job, job_from_json, machine_got
from outlay.run.progress import RunStatus
from outlay.run.run_folder import COMMAND, JOB, LOG, RESUMED_VARIABLE, WORK
from outlay.run.supervisor import (
    ENDING,
    KILLED,
    OWN_OUTPUT,
    PASSED_ON,
    USUAL,
    FolderFiles,
    LocalProcess,
    Messages,
    Notifications,
    Supervisor,
    Timing,
    Told,
    WatchPlan,
    WatchTarget,
    WholeMachine,
    addresses_of,
    of_machine,
)
from outlay.units import DAY_S
from outlay.workload.workload import WatchSettings

AGENT = "agent"
"""The folder, in a run's, that agents write to."""
MACHINE_VARIABLE = "OUTLAY_NODE_RANK"
"""Which of a run's machines this is, as its script says."""
SHUTDOWN_VARIABLE = "OUTLAY_SHUTDOWN"
"""The command that shuts a machine down, where it is not the usual one."""
SHUTDOWN = "shutdown -h now"
CPUS_LEFT = 0.05
"""What a command left behind works while it uses more than that."""

# A run of outlay


def guard_run(
    folder: Path, *, timing: Timing = USUAL, driver: Driver | NoDriver | None = None
) -> int:
    """Start the command of a run's folder, look at it to its end, and give its exit status."""
    folder = folder.absolute()
    if not (folder / COMMAND).is_file():
        raise InputError(
            f"{folder} is no run's folder: it has no {COMMAND}.",
            fix="job.sh writes it before it calls outlay guard; see ~/.outlay/runs.",
        )
    job = _job(folder)
    plan = WatchPlan() if job is None else _plan_of(job, folder)
    machine = os.environ.get(MACHINE_VARIABLE) or "0"
    agent = folder / of_machine(AGENT, machine) if plan.settings.agent else None
    told: list[Told] = [FolderFiles(folder, machine), Messages()]
    return guard_command(
        ["sh", str(folder / COMMAND)],
        plan,
        told=told,
        agent=agent,
        log=folder / LOG if (folder / LOG).exists() else None,
        where=folder / WORK if (folder / WORK).is_dir() else folder,
        timing=timing,
        driver=driver,
    )


def _job(folder: Path) -> Job | None:
    """The job; where it cannot be read, the command runs all the same, by the usual rules."""
    try:
        return job_from_json(json.loads((folder / JOB).read_bytes()))
    except (OSError, ValueError) as error:
        OWN_OUTPUT.say(f"{folder / JOB} cannot be read ({error}): usual rules apply.")
        return None


def _plan_of(job: Job, folder: Path) -> WatchPlan:
    """What a job is held to, from now on."""
    machine = machine_got(job, os.environ)
    held_s, since_submitted_s = held_before_s(job, folder), _age_s(folder / JOB)
    return WatchPlan(
        settings=job.watch,
        run=job.id,
        bill=machine.billing,
        held_before_s=held_s,
        budget_usd=job.budget_usd,
        deadline_in_s=None if job.deadline_s is None else job.deadline_s - since_submitted_s,
        longest_in_s=None if job.longest_s is None else job.longest_s - held_s,
        total_steps=_steps_to_come(job),
        predicted_step_time_s=job.step_time_s,
        predicted_cost_usd=job.cost_usd,
        is_machine=job.kind == "interactive" and job.engine not in ("local", "ssh"),
    )


def _steps_to_come(job: Job) -> float | None:
    """The job's steps; None of a run that goes on from a checkpoint, as nobody knows its steps."""
    if not os.environ.get(RESUMED_VARIABLE):
        return job.steps
    OWN_OUTPUT.say(
        "it goes on from a checkpoint: when it will end is not known, unless its log says"
        " (step_pattern of [run.watch])."
    )
    return None


def held_before_s(job: Job, folder: Path) -> float:
    """For how long the machine has been paid for: since the run started on it, or, of a machine
    that was rented for this run alone, since it came up."""
    started_s = _age_s(folder / "started")
    if job.engine != "skypilot":
        return started_s
    # Of a virtual machine its first process is as old as its start, of a container as its own.
    return max(started_s, age_s(1) or 0.0)


def _age_s(path: Path) -> float:
    """How long ago something was made; 0 where that is not to be believed."""
    try:
        age_s = time.time() - path.stat().st_mtime
    except OSError:
        return 0.0
    return age_s if 0 <= age_s < 60 * DAY_S else 0.0


def guard_command(
    command: Sequence[str],
    plan: WatchPlan,
    *,
    told: Sequence[Told] = (),
    agent: Path | None = None,
    log: Path | None = None,
    where: Path | None = None,
    timing: Timing = USUAL,
    driver: Driver | NoDriver | None = None,
    output: tuple[int | None, int | None] = (None, None),
    started: Callable[[Supervisor], None] | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> int:
    """Start a command, look at it to its end, and give its exit status.

    `agent`: the folder for outlay's agent; None: it is left out. `output`: descriptors for
    what it prints. `started` gets the supervisor, before the first reading.
    """
    notifications = Notifications(addresses_of(plan.settings), _title(plan))
    with contextlib.suppress(OSError):
        if agent is not None:
            agent.mkdir(parents=True, exist_ok=True)
            (agent / LONG_RUN_FILE).write_text(f"{timing.agent_s:g}")
    noted: list[int] = []
    supervisor: Supervisor | None = None
    with noted_signals(noted, PASSED_ON):
        adopt_orphans()
        process = _started(command, _agent_variables(agent, timing), where, output)
        try:
            target = _command_target(process, plan, agent, log, driver)
            supervisor = Supervisor(target, plan, [*told, notifications], timing=timing, wait=wait)
            supervisor.signals = noted
            if started is not None:
                started(supervisor)
            status = _watched(supervisor, target, timing)
        except Exception as error:
            OWN_OUTPUT.say(f"the guard has failed ({error!r}); the run goes on without it.")
            status = _unguarded(process, noted)
    notifications.finish()
    if supervisor is not None:
        _shut_down_if_due(supervisor)
    return status


def _command_target(
    process: subprocess.Popen[bytes],
    plan: WatchPlan,
    agent: Path | None,
    log: Path | None,
    driver: Driver | NoDriver | None,
) -> LocalProcess:
    """A command that was just started, with all that can be read of it."""
    patterns = plan.settings.step_pattern, plan.settings.loss_pattern
    found = open_driver() if driver is None else driver
    reader = RunReader(
        RunProcesses(process.pid, own=frozenset({process.pid})),
        found,
        log=None if log is None else LogReader(log, *patterns, own=OWN_OUTPUT.bytes_in),
        agent=None if agent is None else AgentReader(agent),
        machine=MachineReader(found) if plan.is_machine else None,
    )
    return LocalProcess(process.pid, reader, process)


def _unguarded(process: subprocess.Popen[bytes], noted: list[int]) -> int:
    """Wait for a command that nobody guards any more, and pass signals on to it."""
    while process.poll() is None:
        while noted:
            process.send_signal(noted.pop(0))
        time.sleep(0.1)
    code = process.returncode
    return KILLED - code if code < 0 else code


def _watched(supervisor: Supervisor, target: LocalProcess, timing: Timing) -> int:
    """Look at a command to its end, and at what it leaves behind as long as that works."""
    supervisor.begin()
    while target.is_alive():
        supervisor.tick()
        supervisor.pause(supervisor.signals)
    supervisor.guard.do("what it left behind", lambda: _await_left(supervisor, target, timing))
    for pid in target.left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    status = supervisor.finish()
    return 1 if status is None else status


def _await_left(supervisor: Supervisor, target: LocalProcess, timing: Timing) -> None:
    """A script may end and leave a process that goes on to train: look at it while it works.

    It is held to the same rules; what does next to nothing was only forgotten. A shell that was
    asked to end does so at once, and leaves behind the program that still saves.
    """
    target.counts_left = True
    worked_s, used_s, steps = time.monotonic(), 0.0, 0
    supervisor.tick()  # what was left behind has become a child of ours by now
    while target.left:
        supervisor.pause(supervisor.signals)
        supervisor.tick()
        activity, now_s = supervisor.activity, time.monotonic()
        used_s += activity.cpu_s or 0.0
        if (activity.steps or 0) != steps or used_s >= CPUS_LEFT * timing.left_s:
            worked_s, used_s, steps = now_s, 0.0, activity.steps or 0
        is_ending = supervisor.is_asked or supervisor.stopped_for is not None
        if not is_ending and now_s - worked_s >= timing.left_s:
            return


def _title(plan: WatchPlan) -> str:
    return f"outlay: run {plan.run}" if plan.run else "outlay"


def _agent_variables(agent: Path | None, timing: Timing) -> dict[str, str]:
    """What puts the agent into a command's Python processes."""
    if agent is None or not agent.is_dir():
        return {}
    path = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{INJECT}{os.pathsep}{path}" if path else str(INJECT),
        FOLDER_VARIABLE: str(agent),
        LONG_RUN_VARIABLE: f"{timing.agent_s:g}",
    }


def _started(
    command: Sequence[str],
    variables: Mapping[str, str],
    where: Path | None,
    output: tuple[int | None, int | None],
) -> subprocess.Popen[bytes]:
    """The command as a process, in a session of its own."""
    try:
        return subprocess.Popen(
            list(command),
            cwd=where,
            env={**os.environ, **variables},
            stdout=output[0],
            stderr=output[1],
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(
            f"{command[0]!r} cannot be started: {error.strerror}.",
            fix="Write what you would type to train: outlay watch -- python train.py",
        ) from error


# A process that runs already, and a machine


def process_target(
    pid: int, settings: WatchSettings, log: Path | None, driver: Driver | NoDriver | None = None
) -> LocalProcess:
    """A process of this machine that outlay did not start."""
    if started_ticks(pid) is None:
        raise InputError(f"There is no process {pid} on this machine.", fix="See `ps aux`.")
    path = log or log_of(pid)
    patterns = settings.step_pattern, settings.loss_pattern
    reader = RunReader(
        RunProcesses(pid),
        open_driver() if driver is None else driver,
        log=None if path is None else LogReader(path, *patterns),
    )
    return LocalProcess(pid, reader)


def guard_process(
    pid: int,
    plan: WatchPlan,
    *,
    told: Sequence[Told] = (),
    log: Path | None = None,
    timing: Timing = USUAL,
    driver: Driver | NoDriver | None = None,
) -> Supervisor:
    """Look at a process to its end; what was seen of it. Its cost counts from its start."""
    target = process_target(pid, plan.settings, log, driver)
    plan = replace(plan, held_before_s=plan.held_before_s or age_s(pid) or 0.0)
    return supervised(target, plan, told, timing=timing)


def guard_machine(
    plan: WatchPlan,
    *,
    told: Sequence[Told] = (),
    timing: Timing = USUAL,
    driver: Driver | NoDriver | None = None,
) -> int:
    """Look at this machine until nobody has used it for the window; then it is shut down."""
    found = open_driver() if driver is None else driver
    if isinstance(found, NoDriver):
        OWN_OUTPUT.say(f"{found} Without them, this machine is never taken for idle.")
    supervisor = supervised(
        WholeMachine(MachineReader(found)),
        replace(plan, is_machine=True, settings=replace(plan.settings, stall_s=None)),
        [*told, WallMessages()],
        timing=timing,
    )
    return 0 if supervisor.stopped_for else KILLED + signal.SIGTERM


class WallMessages:
    """Warnings on every terminal of the machine."""

    def status(self, status: RunStatus) -> None:
        """Nothing."""

    def event(self, event: Mapping[str, Any]) -> None:
        """By the program `wall`, where it is there."""
        wall = shutil.which("wall")
        if wall is not None and event["event"] in ("warning", "stopped"):
            text = f"outlay: {event['text']}"
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run([wall, text], timeout=5, check=False, capture_output=True)


def supervised(
    target: WatchTarget,
    plan: WatchPlan,
    told: Sequence[Told],
    *,
    timing: Timing = USUAL,
    is_here: bool = True,
) -> Supervisor:
    """Look at what runs already, to its end or until we are to end; the run goes on then.

    `is_here`: whether it runs on this machine, which is shut down where that is to be.
    """
    notifications = Notifications(addresses_of(plan.settings), _title(plan))
    supervisor = Supervisor(target, plan, [*told, notifications], timing=timing)
    ended: list[int] = []
    with noted_signals(ended, PASSED_ON):
        supervisor.begin()
        while target.is_alive() and not any(number in ENDING for number in ended):
            supervisor.tick()
            supervisor.pause(ended)
        if target.is_alive():
            supervisor.leave()
        else:
            supervisor.finish()
    notifications.finish()
    if is_here and not any(number in ENDING for number in ended):
        _shut_down_if_due(supervisor)
    return supervisor


def _shut_down_if_due(supervisor: Supervisor) -> None:
    """Shut the machine down, where it was stopped for a rule that says so."""
    settings = supervisor.plan.settings
    if supervisor.stopped_for is None or settings.then != "shut down":
        return
    shut_down()


def shut_down() -> None:
    """Shut this machine down, by the command of `OUTLAY_SHUTDOWN` or the usual one."""
    words = shlex.split(os.environ.get(SHUTDOWN_VARIABLE) or SHUTDOWN)
    for command in (words, ["sudo", "-n", *words]):
        try:
            done = subprocess.run(command, timeout=60, check=False, capture_output=True)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return
    raise OutlayError(
        f"This machine could not be shut down: {shlex.join(words)} failed.",
        why="That needs root, or sudo without a password.",
        fix=f"Run the guard as root, or name another command in {SHUTDOWN_VARIABLE}.",
    )


# How a machine keeps it running

_UNIT = """\
[Unit]
Description=outlay guard: shuts this machine down when nobody uses its GPUs
After=network.target

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
"""
_LOOP = """\
#!/bin/sh
# Shuts this machine down when nobody uses its GPUs. Start it with
#   nohup sh outlay-guard.sh > outlay-guard.log 2>&1 &
# It begins again where it fails, and ends when the machine is shut down.
until {command}; do
  sleep 10
done
"""


def systemd_unit(arguments: Sequence[str]) -> str:
    """A unit that guards this machine from its start on."""
    return _UNIT.format(command=" ".join(_unit_word(word) for word in arguments))


def _unit_word(word: str) -> str:
    """A word of a command as systemd reads it: % and $ have a meaning there."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if escaped != word or any(part.isspace() for part in word) else word


def loop_script(arguments: Sequence[str]) -> str:
    """A plain loop that does the same, where there is no systemd."""
    return _LOOP.format(command=shlex.join(arguments))
