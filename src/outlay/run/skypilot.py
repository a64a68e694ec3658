"""Engine `skypilot`: a task of SkyPilot's, on a cloud, by the `sky` command.

A run or a trial is a cluster of its own, `outlay-ID`, that SkyPilot gives back when it is idle. A
run on spot machines is a managed job: SkyPilot replaces a machine that was taken away. The task
file is written without SkyPilot; only what is asked of the `sky` command needs it.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from outlay.errors import ExtraMissing, InputError, LaunchFailed, OutlayError, pip_command
from outlay.files import Yaml, data_folder, write_whole, yaml_text
from outlay.hardware.gpu_names import gpu_match
from outlay.offers.catalog import snapshot_offers
from outlay.plan.option import Option
from outlay.plan.ranking import Plan
from outlay.prices.price_list import spelling_of
from outlay.prices.skypilot import host_of
from outlay.run.engine import ENDED, EngineState, JobFile, RunState
from outlay.run.host_engine import HostEngine
from outlay.run.job import RESULTS, Job, JobMachine
from outlay.run.redaction import redacted
from outlay.run.run_folder import (
    JOB,
    LOG,
    RUNS_VARIABLE,
    SCRIPT,
    SEND_S,
    STATUS,
    RunFolder,
    engine_state,
    job_json,
    job_script,
    own_wheel,
    packed,
)
from outlay.run.shell import Completed, HereShell, Shell, SshShell
from outlay.units import GIB, HOUR_S

FILE = "task.yaml"
TELEMETRY_OFF = {"SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
_STOPPED = "stopped"
"""A file that says that we gave the machine back."""
_SENT = ".outlay-run"
"""In the folder that is sent: what outlay needs of its own on the machine."""
_MOUNT = "~/outlay-bucket"
"""Where a bucket is on the machine; `checkpoints/` and `results/` are in it."""

ASK_S = 180.0
"""How long a question may take: the first one starts SkyPilot's own server."""
LAUNCH_S = 3 * HOUR_S
"""How long finding a machine may take: SkyPilot goes through regions and offers."""
CHANGE_S = 1200.0
_POLL_S = 2.0

# What SkyPilot can do on a cloud

Feature = Literal["stop", "timer", "spot", "nodes", "buckets", "images"]

# Source: `_unsupported_features_for_resources` of sky/clouds/*.py in skypilot 0.14.1, 2026-11-17;
# tests/run/test_skypilot_contract.py holds it against the installed one.
_LACKS: Mapping[str, frozenset[Feature]] = {
    "aws": frozenset(),
    "azure": frozenset(),
    "cudo": frozenset({"stop", "spot", "images"}),
    "do": frozenset({"spot"}),
    "fluidstack": frozenset({"stop", "spot"}),
    "gcp": frozenset(),
    "hyperbolic": frozenset({"stop", "timer", "spot", "nodes", "buckets", "images"}),
    "ibm": frozenset({"images"}),
    "lambda": frozenset({"stop", "spot"}),
    "mithril": frozenset(),
    "nebius": frozenset(),
    "oci": frozenset({"images"}),
    "paperspace": frozenset({"spot"}),
    "primeintellect": frozenset({"stop", "timer", "nodes", "images"}),
    "runpod": frozenset({"stop", "nodes", "buckets"}),
    "scp": frozenset({"spot", "images"}),
    "seeweb": frozenset({"spot", "nodes", "buckets"}),
    "shadeform": frozenset({"stop", "spot", "nodes", "buckets", "images"}),
    "vast": frozenset({"nodes", "buckets"}),
    "verda": frozenset({"stop", "timer", "nodes", "buckets", "images"}),
    "yotta": frozenset({"stop", "timer", "spot", "nodes", "buckets"}),
}
_IN_WORDS: Mapping[Feature, str] = {
    "stop": "stop a machine and keep its disk",
    "timer": "delete a machine that is idle",
    "spot": "rent spot machines",
    "nodes": "start several machines together",
    "buckets": "mount a bucket",
    "images": "run a container image",
}
# Source: sky/clouds/shadeform.py of skypilot 0.14.1 does not say what its catalogue is called, so
# that types and regions cannot be looked up; the contract test notices when that is mended.
_BY_GPU_ALONE = frozenset({"shadeform"})
_AWS_REGION = re.compile(r"[a-z]+(?:-[a-z]+)+-[0-9]+")
"""A whole region: local zones (`us-west-2-lax-1`) are not in SkyPilot's list."""
_ANYWHERE = frozenset({"", "any", "unknown", "cheapest region"})
_ZONE_ID = re.compile(r"[a-z0-9]+-az[0-9]+")
"""A zone as AWS numbers it, which is no name that can be asked for."""
# Assumes: a price that moved by less than a fourth is still worth taking.
_PRICE_ROOM = 1.25


def clouds() -> tuple[str, ...]:
    """Providers, by our names, that SkyPilot rents machines of."""
    return tuple(_LACKS)


def is_managed(job: Job) -> bool:
    """Whether it is a managed job: a run whose machine may be taken away and is replaced."""
    return job.kind == "run" and job.machine.tenancy == "spot"


def has_bucket(job: Job) -> bool:
    """Whether a bucket holds what must outlive the machine."""
    is_wanted = bool(job.skypilot.bucket) or (is_managed(job) and bool(job.checkpoints))
    return job.kind == "run" and is_wanted and "buckets" not in _lacks(job.machine)


def keeps_disk(job: Job) -> bool:
    """Whether an idle machine is stopped with its disk kept, rather than deleted: where something
    on it is still wanted, as a stopped disk is billed until somebody deletes it."""
    if job.machine.tenancy == "spot" or "stop" in _lacks(job.machine):
        return False
    is_wanted = bool(job.fetch or job.checkpoints) and not has_bucket(job)
    return job.kind == "interactive" or (job.kind == "run" and is_wanted)


def cautions(job: Job) -> tuple[str, ...]:
    """What to know before such a job is started: sentences for who pays."""
    machine, lacks = job.machine, _lacks(job.machine)
    found = []
    if "timer" in lacks and not is_managed(job):
        found.append(
            f"SkyPilot cannot delete an idle machine at {machine.provider} by itself: it costs"
            " until outlay stop is called."
        )
    elif job.kind == "run" and job.fetch and not is_managed(job) and not _outlives(job):
        found.append(
            f"The machine is deleted {job.skypilot.idle_minutes} minutes after the run ends, and"
            " run.fetch with it unless outlay is there to fetch it; run.skypilot.bucket keeps it."
        )
    if is_managed(job) and not has_bucket(job):
        found.append(
            f"Checkpoints are lost with a machine that is taken away: {machine.provider} cannot"
            " mount a bucket, and the run starts from its beginning."
            if job.checkpoints
            else "run.checkpoints is not given: after an interruption it starts from its beginning."
        )
    if is_managed(job):
        found.append("SkyPilot's controller, a small machine, runs beside managed jobs and costs.")
    return tuple(found)


def _outlives(job: Job) -> bool:
    return keeps_disk(job) or has_bucket(job)


def _lacks(machine: JobMachine) -> frozenset[Feature]:
    return _LACKS.get(machine.provider, frozenset())


def _needs(job: Job) -> set[Feature]:
    """What the cloud must be able to do."""
    needs: set[Feature] = set()
    if job.machine.machines > 1:
        needs.add("nodes")
    if job.image:
        needs.add("images")
    if job.kind == "interactive":
        needs.add("stop")
    return needs


def _unusable(machine: JobMachine, needs: Collection[Feature]) -> str:
    """Why SkyPilot cannot take a machine, in words; empty where it can."""
    if machine.provider not in _LACKS:
        return f"SkyPilot does not rent machines of {machine.provider or 'no provider'}."
    is_aws_zone = machine.provider == "aws" and machine.region not in _ANYWHERE
    if is_aws_zone and not _AWS_REGION.fullmatch(machine.region):
        return f"SkyPilot does not rent in {machine.region}, a local zone of aws."
    if machine.tenancy not in ("on-demand", "spot"):
        return f"SkyPilot rents on demand or spot, not {machine.tenancy}."
    if machine.tenancy == "spot" and "stop" in needs:
        return "A spot machine cannot be stopped with its disk kept."
    wanted = [*needs, "spot"] if machine.tenancy == "spot" else needs
    lacks = [_IN_WORDS[one] for one in _IN_WORDS if one in _lacks(machine) and one in wanted]
    return f"SkyPilot cannot {lacks[0]} at {machine.provider}." if lacks else ""


def is_rentable(machine: JobMachine) -> bool:
    """Whether SkyPilot can rent it at all."""
    return not _unusable(machine, ())


def candidates(job: Job) -> tuple[JobMachine, ...]:
    """The job's machine, then those of its alternatives that can take its place, in their order.

    `LaunchFailed` where SkyPilot cannot rent the machine itself.
    """
    needs = _needs(job)
    if why := _unusable(job.machine, needs):
        others = [other for other in job.alternatives if not _unusable(other, needs)]
        raise LaunchFailed(
            f"{job.machine.name} cannot be launched with SkyPilot.",
            why=why,
            fix=(f"The next in the plan that can: {others[0].name} (--on). " if others else "")
            + "A machine you have rented yourself: --engine ssh, or local on the machine itself.",
        )
    return (job.machine, *(other for other in job.alternatives if can_take_over(job, other)))


def can_take_over(job: Job, other: JobMachine) -> bool:
    """Whether a job's task can go to another machine where its own cannot be had."""
    needs = _needs(job)
    if has_bucket(job):
        needs.add("buckets")
    if "timer" not in _lacks(job.machine):
        needs.add("stop" if keeps_disk(job) else "timer")
    return _replaces(job, other, needs)


def can_replace(own: JobMachine, other: JobMachine) -> bool:
    """Whether a machine can take the place of another: the command, and the batch in it, are for as
    many GPUs with as much memory; only a spot machine may be taken away."""
    same = (other.gpus, other.machines) == (own.gpus, own.machines)
    lasts = other.tenancy == "on-demand" or own.tenancy == "spot"
    return same and lasts and _memory_bytes(other.gpu) >= _memory_bytes(own.gpu)


def _replaces(job: Job, other: JobMachine, needs: Collection[Feature]) -> bool:
    """Whether a machine is one to go to. With a budget its price is known: the guard counts by the
    price of the machine that it is on (`job.machine_got`)."""
    is_priced = job.budget_usd is None or other.price_usd_per_hour is not None
    return is_priced and can_replace(job.machine, other) and not _unusable(other, needs)


def _memory_bytes(gpu: str) -> float:
    """Of the smallest GPU that goes by the name; 0 where nobody knows it."""
    found = gpu_match(gpu) if gpu else None
    return 0.0 if found is None else min(one.memory_bytes for one in found.candidates)


# The task file


def resources(machine: JobMachine) -> dict[str, Yaml]:
    """A machine as SkyPilot asks for it: the very type where its catalogue has it by that name,
    else the GPUs, and what they may cost at most."""
    asked: dict[str, Yaml] = {"infra": infra(machine)}
    host = host_of(machine.provider, machine.instance)
    if host is not None:
        asked["instance_type"] = host[0]
        asked["accelerators"] = f"{host[1]}:{machine.gpus}"
    elif _is_listed(machine.provider, machine.instance) and machine.provider not in _BY_GPU_ALONE:
        asked["instance_type"] = machine.instance
    else:
        asked["accelerators"] = f"{_accelerator(machine)}:{machine.gpus}"
        if machine.price_usd_per_hour is not None:
            most_usd = machine.price_usd_per_hour / machine.machines * _PRICE_ROOM
            asked["max_hourly_cost"] = max(round(most_usd, 2), 0.01)
    if machine.tenancy == "spot":
        asked["use_spot"] = True
    return asked


def infra(machine: JobMachine) -> str:
    """Where it is, as SkyPilot writes it: `gcp/us-central1/us-central1-a`."""
    region = machine.region
    known = () if machine.provider in _BY_GPU_ALONE else _regions(machine.provider)
    if region in _ANYWHERE or region not in known:
        return machine.provider
    if not machine.zone or _ZONE_ID.fullmatch(machine.zone):
        return f"{machine.provider}/{region}"
    return f"{machine.provider}/{region}/{machine.zone}"


def _accelerator(machine: JobMachine) -> str:
    name = spelling_of(machine.provider, machine.gpu, machine.instance)
    if name is None:
        raise LaunchFailed(
            f"{machine.name} cannot be launched with SkyPilot.",
            why=f"Its catalogue has no {machine.gpu} at {machine.provider}.",
            fix="Choose another offer (--on), or rent it yourself and use --engine ssh.",
        )
    return name


@cache
def _snapshot() -> frozenset[tuple[str, str]]:
    return frozenset((offer.provider, offer.instance) for offer in snapshot_offers())


def _is_listed(provider: str, instance: str) -> bool:
    """Whether SkyPilot's catalogue has a type by that name: the bundled snapshot was made of it."""
    return (provider, instance) in _snapshot()


@cache
def _regions(provider: str) -> frozenset[str]:
    """Regions by SkyPilot's own names; Vast's are whole addresses, of which ours may lack parts."""
    named = {offer.region for offer in snapshot_offers() if offer.provider == provider}
    return frozenset(one for one in named if provider != "vast" or one.count(",") == 2)


def task_yaml(job: Job) -> str:
    """A job as a task of SkyPilot's that can be read, kept and edited."""
    machines = candidates(job)
    task: dict[str, Yaml] = {"name": job.engine_name}
    if job.folder:
        task["workdir"] = str(Path(job.folder).absolute())
    if job.machine.machines > 1:
        task["num_nodes"] = job.machine.machines
    task["resources"] = _task_resources(job, machines)
    if has_bucket(job):
        task["file_mounts"] = {_MOUNT: _bucket(job)}
    if job.environment:
        task["envs"] = dict(job.environment)
    if job.pass_on:
        task["secrets"] = dict.fromkeys(job.pass_on)
    if job.kind != "interactive":
        task["run"] = _run_text(job)
    else:
        task.update(_interactive(job))
    comments = [f"# {' '.join(line.split())}" for line in _comments(job, machines)]
    return "\n".join([*comments, yaml_text(task)])


def _interactive(job: Job) -> dict[str, Yaml]:
    """Set-up, and what is to be there for who logs in: no job, as one would keep it from idling."""
    from outlay.run.launch import interactive_command

    lines: dict[str, Yaml] = {}
    if job.setup:
        lines["setup"] = "\n".join(["set -e", *job.setup, ""])
    if job.command and job.command != interactive_command(jupyter=False):
        start = f"setsid nohup sh -c {shlex.quote(job.command)}"
        lines["run"] = "\n".join(
            [
                f'run="${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/{job.id}"',
                'mkdir -p "$run"',
                f'{start} > "$run/{LOG}" 2>&1 < /dev/null &',
                "",
            ]
        )
    return lines


def _task_resources(job: Job, machines: Sequence[JobMachine]) -> dict[str, Yaml]:
    asked: dict[str, Yaml] = {}
    if len(machines) == 1:
        asked.update(resources(machines[0]))
    else:
        asked["ordered"] = [resources(machine) for machine in machines]
    if job.skypilot.disk_bytes is not None:
        asked["disk_size"] = max(1, math.ceil(job.skypilot.disk_bytes / GIB))
    if job.image:
        image = job.image
        asked["image_id"] = image if image.startswith("docker:") else f"docker:{image}"
    if is_managed(job):
        asked["job_recovery"] = {"max_restarts_on_errors": 0}
    elif "timer" not in _lacks(job.machine):
        asked["autostop"] = {
            "idle_minutes": job.skypilot.idle_minutes,
            "down": not keeps_disk(job),
            "wait_for": "jobs_and_ssh" if job.kind == "interactive" else "jobs",
        }
    return asked


def _bucket(job: Job) -> dict[str, Yaml]:
    """The bucket of a run: a place in the user's own, else one that SkyPilot makes."""
    if job.skypilot.bucket:
        return {"source": f"{job.skypilot.bucket.rstrip('/')}/{job.id}", "mode": "MOUNT_CACHED"}
    return {"name": job.engine_name, "mode": "MOUNT_CACHED"}


def _comments(job: Job, machines: Sequence[JobMachine]) -> Iterator[str]:
    verb = "sky jobs launch -n" if is_managed(job) else "sky launch -c"
    yield f"{job.name}: run {job.id}, written by outlay. Edit it as you like; it is submitted as"
    yield f"it is. By hand: {verb} {job.engine_name} {FILE}" + "".join(
        f" --secret {name}" for name in job.pass_on
    )
    for number, machine in enumerate(machines):
        usd = machine.price_usd_per_hour
        price = "at a price that is not known" if usd is None else f"at ${usd:,.2f}/h"
        yield f"{'Else' if number else 'Wanted'}: {machine.name}, {price}"
    if not is_managed(job) and "timer" not in _lacks(job.machine):
        end = "stopped, its disk kept (and billed)" if keeps_disk(job) else "deleted"
        yield f"After {job.skypilot.idle_minutes} idle minutes the machine is {end}."
    yield from cautions(job)


def _run_text(job: Job) -> str:
    """The job's script, written and run in the folder that was sent, which is the run's own.

    What is printed goes to the run's log as well as to SkyPilot.
    """
    script = job_script(replace(job, environment=()), before=_before(job))
    end = "OUTLAY_JOB"
    while end in script.splitlines():
        end += "_"
    lines = [
        f'run="${{{RUNS_VARIABLE}:-$HOME/.outlay/runs}}/{job.id}"',
        'mkdir -p "$run"',
        '[ -e "$run/work" ] || ln -s "$PWD" "$run/work"',
        f'if [ -d {_SENT} ]; then cp -R {_SENT}/. "$run/"; fi',
        # a new file: bash may be reading the old one
        f'cat > "$run/{SCRIPT}.part" <<\'{end}\' && mv "$run/{SCRIPT}.part" "$run/{SCRIPT}"',
        script.rstrip("\n"),
        end,
        f'exec bash "$run/{SCRIPT}" > >(trap "" INT TERM USR1; exec tee -a "$run/{LOG}") 2>&1',
    ]
    return "\n".join([*lines, ""])


def _before(job: Job) -> list[str]:
    """Where among the machines this one is; the bucket."""
    return [
        'OUTLAY_NODE_RANK="${SKYPILOT_NODE_RANK:-0}"',
        'OUTLAY_HEAD_ADDRESS="$(echo "${SKYPILOT_NODE_IPS:-127.0.0.1}" | head -n 1)"',
        "export OUTLAY_NODE_RANK OUTLAY_HEAD_ADDRESS",
        *(_kept_in_bucket(job) if has_bucket(job) else ()),
    ]


def _kept_in_bucket(job: Job) -> list[str]:
    """Checkpoints are written to the bucket; results and log are put there at the end."""
    lines = []
    if job.checkpoints:
        folder = shlex.quote(job.checkpoints.rstrip("/"))
        lines += [
            "# Checkpoints are in the bucket, where the next machine finds them.",
            f"mkdir -p {_MOUNT}/checkpoints",
            f"if [ ! -L {folder} ]; then",
            f"  if [ -d {folder} ]; then cp -Rn -- {folder}/. {_MOUNT}/checkpoints/; fi",
            f'  rm -rf -- {folder}; mkdir -p -- "$(dirname -- {folder})"',
            f"  ln -s {_MOUNT}/checkpoints ./{folder}",
            "fi",
        ]
    patterns = " ".join(_pattern(one) for one in job.fetch)
    return [
        *lines,
        "outlay_results() {",
        f'  [ "$OUTLAY_NODE_RANK" = 0 ] || return 0; mkdir -p {_MOUNT}/results',
        f'  (cd "$RUN/work" && for one in {patterns}; do',
        f'    if [ -e "$one" ]; then cp -R --parents -- "$one" {_MOUNT}/results/; fi; done)',
        f'  if [ -d "$RUN/{RESULTS}" ]; then cp -R "$RUN/{RESULTS}" {_MOUNT}/results/; fi',
        f'  cp "$RUN/{LOG}" "$RUN/{STATUS}" "$RUN/exit" {_MOUNT}/ 2>/dev/null',
        "}",
        _TRAP,
    ]


_TRAP = (
    'trap \'status=$?; echo "$status" > "$RUN/exit.part"; mv "$RUN/exit.part" "$RUN/exit";'
    " outlay_results' EXIT"
)


def _pattern(pattern: str) -> str:
    """A pattern of names as a word of shell: nothing in it but * and ? means anything."""
    return "".join(
        part if part in ("*", "?") else shlex.quote(part)
        for part in re.split(r"([*?])", pattern)
        if part
    )


# The engine


@dataclass(frozen=True, slots=True)
class SkyPilotEngine:
    """Runs jobs on clouds, by the `sky` command."""

    reach: Callable[[str], Shell] = SshShell
    """A shell on a cluster's head: SkyPilot keeps the ssh configuration up to date."""
    pause: Callable[[float], None] = time.sleep

    @property
    def name(self) -> Literal["skypilot"]:
        """Which engine it is."""
        return "skypilot"

    def render(self, job: Job) -> JobFile:
        """The task file."""
        return JobFile(name=FILE, text=task_yaml(job))

    def check(self, job: Job) -> None:
        """Raise where `sky` is missing, or where the machine's cloud is not set up in it."""
        candidates(job)
        provider = job.machine.provider
        done = self._sky("check", provider, "-o", "json", timeout_s=ASK_S)
        try:
            enabled = _enabled_clouds(_json_in(done))
        except ValueError:
            enabled = None
        if done.status != 0 or (enabled is not None and provider not in enabled):
            raise LaunchFailed(
                f"SkyPilot has no access to {provider}.",
                why=_last_words(done),
                fix=f"sky check {provider} says what is missing; outlay keeps no credentials.",
            )

    # Submitting

    def submit(self, job: Job, file: JobFile, secrets: Mapping[str, str]) -> str:
        """Launch it, unless SkyPilot has it: a machine that was got in vain is given back."""
        if self._is_submitted(job):
            return job.engine_name
        folder = _stage(job, file)
        arguments = [
            *(("jobs", "launch", "-n") if is_managed(job) else ("launch", "-c")),
            job.engine_name,
            *("--yes", "--detach-run", "--workdir", str(folder / "sent")),
            *(part for name in job.pass_on for part in ("--secret", name)),
            str(folder / FILE),
        ]
        done = self._sky(*arguments, timeout_s=LAUNCH_S, secrets=secrets)
        if done.status != 0 and not self._came_through(job):
            raise _failure(job, "was not launched", done, secrets.values())
        return job.engine_name

    def _is_submitted(self, job: Job) -> bool:
        """Whether nothing is left to submit; also while somebody else is at it."""
        if is_managed(job):
            return self._managed(job) is not None
        record = self._record(job)
        return self._has_job(job, record) or bool(self._requests(job))

    def _has_job(self, job: Job, record: Mapping[str, Any] | None) -> bool:
        """Whether a cluster has got what it was made for."""
        if record is None:
            return False
        if job.kind == "interactive" or record.get("status") == "STOPPED":
            return record.get("status") != "INIT"
        return self._queued_job(job) is not None

    def _came_through(self, job: Job) -> bool:
        """Whether a launch that failed started the job all the same. A machine on which nothing was
        started is given back: its idle timer may not be set yet."""
        if is_managed(job):
            return self._managed(job) is not None
        record = self._record(job)
        if record is not None and not self._has_job(job, record):
            self._changed(job, "down", "--yes", job.engine_name)
            return False
        return record is not None

    def find(self, job: Job) -> str | None:
        """The name of the cluster or managed job, if SkyPilot has it and nothing is left to do; a
        machine on which nothing was started is no job, and the next submission takes it."""
        return job.engine_name if self._is_submitted(job) else None

    # How it is doing

    def state(self, job: Job, handle: str) -> EngineState:  # noqa: ARG002
        """How it is doing: by the run's folder where that can be reached, else by SkyPilot."""
        if is_managed(job):
            row = self._managed(job, restart_controller=True)
            return EngineState(state="lost", reason=_GONE) if row is None else managed_state(row)
        record = self._record(job, refresh=True)
        if record is None:
            if self._requests(job):
                return EngineState(state="queued", reason="SkyPilot looks for a machine")
            if (_folder(job) / _STOPPED).exists():
                return EngineState(state="stopped", reason="its machine was given back")
            return EngineState(state="lost", reason=_GONE)
        is_new = record.get("status") == "INIT"
        known = cluster_state(job, record, is_launching=is_new and bool(self._requests(job)))
        if record.get("status") not in ("UP", "AUTOSTOPPING") or job.kind == "interactive":
            return known
        return self._running_state(job, known)

    def _running_state(self, job: Job, known: EngineState) -> EngineState:
        found = None
        with contextlib.suppress(OutlayError):  # then SkyPilot's own word has to do
            found = engine_state(RunFolder(self.reach(job.engine_name), job.id).state())
        if found is None:
            row = self._queued_job(job)
            if row is None:
                return replace(known, state="lost", reason="SkyPilot has its machine, and no job")
            found = job_state(row)
        return replace(
            found,
            held_since_s=known.held_since_s,
            place=known.place,
            price_usd_per_hour=known.price_usd_per_hour,
        )

    def logs(self, job: Job, handle: str, offset: int = 0) -> bytes:  # noqa: ARG002
        """What it has printed; of a managed job the lines that SkyPilot has of it."""
        kept = _folder(job) / LOG
        if kept.is_file():
            return kept.read_bytes()[offset:]
        if not is_managed(job):
            return RunFolder(self.reach(job.engine_name), job.id).read(LOG, offset)
        arguments = ("jobs", "logs", "--name", job.engine_name, "--no-follow", "--tail", "0")
        done = self._sky(*arguments, timeout_s=CHANGE_S)
        # its status is that of the job: one that failed has a log, too
        return job_lines(done.output)[offset:]

    # Ending

    def stop(self, job: Job, handle: str, *, grace_s: float) -> None:  # noqa: ARG002
        """End it, keep what is to be fetched, and give the machine back."""
        if is_managed(job):
            row = self._managed(job)
            if row is not None and managed_state(row).state not in ENDED:
                self._changed(job, "jobs", "cancel", "--yes", str(row["job_id"]))
            return
        record = self._record(job, refresh=True)
        if record is None or record.get("status") == "INIT":
            for request in self._requests(job):
                self._changed(job, "api", "cancel", "--yes", request)
            record = self._record(job)
        if record is None or record.get("status") == "STOPPED":
            return
        if job.kind == "interactive" and keeps_disk(job):
            self._changed(job, "stop", "--yes", job.engine_name)
            return
        self._end_and_keep(job, grace_s)
        self._changed(job, "down", "--yes", job.engine_name)
        _folder(job).mkdir(parents=True, exist_ok=True)
        (_folder(job) / _STOPPED).touch()

    def _end_and_keep(self, job: Job, grace_s: float) -> None:
        """End the processes and bring log and results here, as far as the machine can be reached:
        it is given back whatever happens."""
        shell = self.reach(job.engine_name)
        run, folder = RunFolder(shell, job.id), _folder(job)
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OutlayError):
            HostEngine(shell, name="ssh").stop(job, "", grace_s=grace_s)
        with contextlib.suppress(OutlayError):
            run.fetch(job.fetch, folder / "fetched")
        with contextlib.suppress(OutlayError, OSError):
            if log := run.read(LOG):
                write_whole(folder / LOG, log)

    def delete(self, job: Job, handle: str) -> None:
        """Remove the machine and its disk, the bucket that was made for it, and what was staged."""
        self.stop(job, handle, grace_s=job.watch.grace_s)
        if not is_managed(job) and self._record(job) is not None:
            self._changed(job, "down", "--yes", job.engine_name)
        if has_bucket(job) and not job.skypilot.bucket:
            done = self._sky("storage", "delete", "--yes", job.engine_name, timeout_s=CHANGE_S)
            if done.status != 0 and "not found" not in _last_words(done):
                raise _failure(job, "has a bucket that was not deleted", done)
        shutil.rmtree(_folder(job), ignore_errors=True)

    def fetch(self, job: Job, handle: str, to: Path) -> list[Path]:  # noqa: ARG002
        """Bring back what the job says: from the machine, or from the bucket that outlived it."""
        kept = _folder(job) / "fetched"
        if kept.is_dir():
            shutil.copytree(kept, to, dirs_exist_ok=True)
            return [to / path.relative_to(kept) for path in kept.rglob("*") if path.is_file()]
        if is_managed(job):
            return self._fetched_from_bucket(job, to)
        record = self._record(job, refresh=True)
        if record is None:
            return self._fetched_from_bucket(job, to)
        if record.get("status") == "STOPPED":
            idle = ("--idle-minutes-to-autostop", str(job.skypilot.idle_minutes))
            self._changed(job, "start", "--yes", *idle, job.engine_name)
        return RunFolder(self.reach(job.engine_name), job.id).fetch(job.fetch, to)

    def _fetched_from_bucket(self, job: Job, to: Path) -> list[Path]:
        if not has_bucket(job):
            raise LaunchFailed(
                f"Nothing can be fetched of run {job.id}.",
                why="Its machine is gone, and it had no bucket.",
                fix="Give run.skypilot.bucket for the next one.",
            )
        bucket = job.skypilot.bucket or f"the bucket {job.engine_name}"
        place = f"{bucket.rstrip('/')}/{job.id}/results"
        copy = _COPY.get(bucket.partition("://")[0])
        if copy is None or shutil.which(copy[0]) is None:
            raise LaunchFailed(
                f"What run {job.id} left is in {place if copy else bucket}.",
                why="outlay copies from s3:// with aws, from gs:// with gcloud.",
                fix="Copy it with the provider's own program.",
            )
        to.mkdir(parents=True, exist_ok=True)
        done = HereShell().run([*copy, place, str(to)], timeout_s=SEND_S)
        if done.status != 0:
            raise _failure(job, f"could not be fetched from {place}", done)
        return [path for path in to.rglob("*") if path.is_file()]

    # Asking SkyPilot

    def _record(self, job: Job, *, refresh: bool = False) -> Mapping[str, Any] | None:
        """What SkyPilot knows of the cluster."""
        fresh = ("--refresh",) if refresh else ()
        rows = self._rows("status", job.engine_name, *fresh, "-o", "json")
        return next((row for row in rows if row.get("name") == job.engine_name), None)

    def _queued_job(self, job: Job) -> Mapping[str, Any] | None:
        """The job in the cluster's own queue: the first that was put into it."""
        answer = self._answer("queue", job.engine_name, "-o", "json")
        rows = answer.get(job.engine_name) if isinstance(answer, dict) else None
        return min(_rows_in(rows), key=_job_number, default=None)

    def _requests(self, job: Job) -> list[str]:
        """Launches of the cluster that SkyPilot's server is still at."""
        rows = self._rows("api", "status", "--verbose", "-o", "json")
        return [
            str(row.get("request_id"))
            for row in rows
            if row.get("cluster_name") == job.engine_name
            and str(row.get("name")).endswith("launch")
            and row.get("status") in ("PENDING", "RUNNING")
        ]

    def _managed(self, job: Job, *, restart_controller: bool = False) -> Mapping[str, Any] | None:
        """The managed job of that name; waits while some managed job is being submitted."""
        for _ in range(_MOST_POLLS):
            rows = self._managed_rows(job, restart_controller)
            if rows:
                return max(rows, key=_job_number)
            if not self._is_submitting():
                rows = self._managed_rows(job, restart_controller)
                return max(rows, key=_job_number, default=None)
            self.pause(_POLL_S)
        raise LaunchFailed(
            f"SkyPilot is still submitting a managed job, and run {job.id} may be it.",
            fix="Look at sky api status; then the same again: nothing is started twice.",
        )

    def _managed_rows(self, job: Job, restart_controller: bool) -> list[Mapping[str, Any]]:
        arguments = ("jobs", "queue", "--all", "--verbose", "-o", "json")
        done = self._sky(*arguments, timeout_s=ASK_S)
        if done.status != 0 and _NO_CONTROLLER.search(_last_words(done)) and restart_controller:
            done = self._sky(*arguments, "--refresh", timeout_s=CHANGE_S)
        if done.status != 0 and _NO_CONTROLLER.search(_last_words(done)):
            return []
        rows = self._parsed(done, arguments)
        return [row for row in _rows_in(rows) if row.get("job_name") == job.engine_name]

    def _is_submitting(self) -> bool:
        rows = self._rows("api", "status", "-o", "json")
        return any(
            str(row.get("name")).endswith("jobs.launch")
            and row.get("status") in ("PENDING", "RUNNING")
            for row in rows
        )

    def _rows(self, *arguments: str) -> list[Mapping[str, Any]]:
        return _rows_in(self._answer(*arguments))

    def _answer(self, *arguments: str) -> Any:
        """What SkyPilot answers to a question; asked a second time where it gives none."""
        try:
            return self._parsed(self._sky(*arguments, timeout_s=ASK_S), arguments)
        except LaunchFailed:
            self.pause(_POLL_S)
            return self._parsed(self._sky(*arguments, timeout_s=ASK_S), arguments)

    def _parsed(self, done: Completed, arguments: Sequence[str]) -> Any:
        if done.status == 0:
            try:
                return _json_in(done)
            except ValueError:
                pass
        raise LaunchFailed(
            f"SkyPilot could not be asked: sky {' '.join(arguments[:2])} "
            + (f"ended with {done.status}." if done.status else "gave half an answer."),
            why=_last_words(done),
            fix="sky api status shows whether its server runs; then the same again.",
        )

    def _changed(self, job: Job, *arguments: str) -> None:
        """Have SkyPilot do something that must not be lost: it costs money."""
        done = self._sky(*arguments, timeout_s=CHANGE_S)
        words = _last_words(done)
        if done.status != 0 and not re.search(r"(?i)not found|does not exist", words):
            raise LaunchFailed(
                f"sky {arguments[0]} of run {job.id} ended with {done.status}.",
                why=words,
                fix=f"It may still cost money: sky status {job.engine_name}, and the provider's"
                " own console.",
            )

    def _sky(
        self, *arguments: str, timeout_s: float, secrets: Mapping[str, str] | None = None
    ) -> Completed:
        if shutil.which("sky") is None:
            raise ExtraMissing(f"SkyPilot is not installed: {pip_command('skypilot')}.")
        shell = HereShell({**TELEMETRY_OFF, **(secrets or {})})
        return shell.run(["sky", *arguments], timeout_s=timeout_s)


def _folder(job: Job) -> Path:
    """What is kept here of a job: what is sent, what was brought back when it was stopped."""
    return data_folder() / "runs" / job.id / "skypilot"


def _stage(job: Job, file: JobFile) -> Path:
    """Lay ready what is sent: SkyPilot reads it when the machine is there, whoever waits."""
    folder = _folder(job)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE).write_text(file.text, encoding="utf-8")
    if (folder / "sent").is_dir():
        return folder
    part = folder / "sent.part"
    shutil.rmtree(part, ignore_errors=True)
    (part / _SENT).mkdir(parents=True)
    if job.folder:
        extra = [Path(job.folder) / name for name in job.send]
        for path in extra:
            if not path.exists():
                raise InputError(f"{path} of run.send is not there.")
        with tempfile.TemporaryFile(dir=folder) as archive:
            packed(Path(job.folder), job.exclude, extra, archive)
            archive.seek(0)
            with tarfile.open(fileobj=archive) as tar:
                tar.extractall(part, filter="tar")
    (part / _SENT / JOB).write_bytes(job_json(job))
    if not job.outlay:
        name, wheel = own_wheel()
        (part / _SENT / name).write_bytes(wheel)
    ignored = part / ".skyignore"
    if not ignored.exists():  # else SkyPilot leaves out what .gitignore names
        ignored.write_text("# outlay has left out what run.exclude names\n", encoding="utf-8")
    part.rename(folder / "sent")
    return folder


# What SkyPilot says

_GONE = "SkyPilot has it no more: it was deleted when it was idle, taken away, or ended by hand"
_MOST_POLLS = 300
_COPY = {
    "s3": ("aws", "s3", "cp", "--recursive"),
    "gs": ("gcloud", "storage", "cp", "--recursive"),
}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_NO_CONTROLLER = re.compile(r"(?i)ClusterNotUpError|No in-progress managed jobs")
_PREFIX = re.compile(rb"\([^()\n]*pid=\d+[^()\n]*\) ?")
_JOB_STATES: Mapping[str, RunState] = {
    "INIT": "queued",
    "PENDING": "queued",
    "SETTING_UP": "queued",
    "RUNNING": "running",
    "SUCCEEDED": "done",
    "FAILED": "failed",
    "FAILED_SETUP": "failed",
    "FAILED_DRIVER": "failed",
    "CANCELLED": "stopped",
}
_MANAGED_STATES: Mapping[str, RunState] = {
    "PENDING": "queued",
    "SUBMITTED": "queued",
    "STARTING": "queued",
    "RUNNING": "running",
    "WINDING_DOWN": "running",
    "RECOVERING": "queued",
    "CANCELLING": "running",
    "SUCCEEDED": "done",
    "CANCELLED": "stopped",
    "FAILED": "failed",
    "FAILED_SETUP": "failed",
    "FAILED_PRECHECKS": "failed",
    "FAILED_NO_RESOURCE": "failed",
    "FAILED_CONTROLLER": "failed",
}


def cluster_state(job: Job, record: Mapping[str, Any], *, is_launching: bool) -> EngineState:
    """How a job is doing by its cluster alone."""
    status = str(record.get("status"))
    place, usd = _place(job, record)
    known = EngineState(
        state="running",
        held_since_s=_seconds(record.get("launched_at")),
        place=place,
        price_usd_per_hour=usd,
    )
    words = redacted(str(record.get("init_status_reason") or record.get("last_event") or ""))
    if status == "STOPPED":
        if job.kind == "interactive":
            return replace(known, state="stopped", reason="the machine is stopped, its disk kept")
        reason = (
            f"it ended, and how is on the disk of the stopped machine: sky start {job.engine_name}"
        )
        return replace(known, state="lost", reason=reason)
    if status in ("INIT", "PENDING"):
        if is_launching or status == "PENDING" or record.get("init_kind") == "launching":
            return replace(known, state="queued", reason=words)
        reason = f"its machine is not well, and may still cost money: {words or status}"
        return replace(known, state="lost", reason=reason)
    return known


def job_state(row: Mapping[str, Any]) -> EngineState:
    """How a job of a cluster is doing."""
    status = str(row.get("status"))
    state = _JOB_STATES.get(status, "running")
    return EngineState(
        state=state,
        reason="" if state in ("running", "done") else status.lower().replace("_", " "),
        phase="set-up" if status == "SETTING_UP" else "",
        exit_status=0 if state == "done" else None,
        ended_s=_seconds(row.get("end_at")),
    )


def managed_state(row: Mapping[str, Any]) -> EngineState:
    """How a managed job is doing; one that is being moved to another machine is queued."""
    status = str(row.get("status"))
    state = _MANAGED_STATES.get(status, "running")
    words = str(row.get("failure_reason") or row.get("details") or "")
    if status == "RECOVERING":
        words = f"its machine was taken away, SkyPilot looks for another; {words}".rstrip("; ")
    elif not words and status not in ("RUNNING", "SUCCEEDED"):
        words = status.lower().replace("_", " ")
    parts = (row.get("cloud"), row.get("region"), row.get("zone"))
    return EngineState(
        state=state,
        reason=redacted(words),
        phase="recovering" if status == "RECOVERING" else "",
        exit_status=0 if state == "done" else None,
        held_since_s=_seconds(row.get("start_at")),
        ended_s=_seconds(row.get("end_at")) if state in ENDED else None,
        place="/".join(str(part).lower() for part in parts if part and part != "-"),
    )


def _place(job: Job, record: Mapping[str, Any]) -> tuple[str, float | None]:
    """Where a cluster is, if that is not what was asked for first, and its price."""
    cloud, region = str(record.get("cloud") or "").lower(), str(record.get("region") or "")
    if not cloud:
        return "", None
    fitting = [
        machine
        for machine in (job.machine, *job.alternatives)
        if machine.provider == cloud and (machine.region in _ANYWHERE or machine.region == region)
    ]
    if fitting and fitting[0] == job.machine:
        return "", None
    usd = fitting[0].price_usd_per_hour if len(fitting) == 1 else None
    return f"{cloud}/{region}".rstrip("/"), usd


def job_lines(output: bytes) -> bytes:
    """What a job printed, of all that `sky logs` prints: lines that name their process."""
    lines = [line for line in output.split(b"\n") if _PREFIX.match(_plain(line))]
    return b"".join(_PREFIX.sub(b"", _plain(line), count=1) + b"\n" for line in lines)


def _plain(line: bytes) -> bytes:
    """A line without colours in front of its text."""
    return re.sub(rb"^(?:\x1b\[[0-9;]*m)*(\([^()\n]*\))(?:\x1b\[[0-9;]*m)*", rb"\1", line)


def _enabled_clouds(answer: Any) -> set[str] | None:
    """The clouds that `sky check` found access to; None where the answer has another shape."""
    if not isinstance(answer, Mapping):
        return None
    workspaces = answer.get("workspaces", answer)
    names: set[str] = set()
    for one in workspaces.values() if isinstance(workspaces, Mapping) else ():
        names |= {str(name).split("[")[0].strip().lower() for name in one or ()}
    return names


def _json_in(done: Completed) -> Any:
    """The JSON that a command printed, below whatever it says before it."""
    text = _ANSI.sub("", done.output.decode(errors="replace"))
    start = re.search(r"^[\[{]", text, re.MULTILINE)
    if start is None:
        raise ValueError("no JSON")
    return json.loads(text[start.start() :])


def _rows_in(answer: Any) -> list[Mapping[str, Any]]:
    return [row for row in answer if isinstance(row, dict)] if isinstance(answer, list) else []


def _job_number(row: Mapping[str, Any]) -> int:
    number = row.get("job_id")
    return number if isinstance(number, int) else 0


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _last_words(done: Completed, secrets: Iterable[str] = ()) -> str:
    """The end of what a command said, without colours and credentials."""
    text = done.error.strip() or done.output.decode(errors="replace").strip()
    return redacted(_ANSI.sub("", text), secrets)[-600:].strip()


_KNOWN_FAILURES = (
    (
        r"NoCloudAccessError|cloud access is not set up|no cloud is enabled|not enabled",
        "sky check says which clouds SkyPilot has access to, and what the others miss.",
    ),
    (
        r"does not contain any instances",
        "Its catalogue may be newer than the prices: outlay prices refresh, or edit the file.",
    ),
    (
        r"ResourcesUnavailableError|failed to provision|no resource satisfying",
        "Nobody had such a machine just now: try again later, or another offer (--on).",
    ),
    (r"quota", "Ask the provider for a larger quota, or choose another offer (--on)."),
    (r"rsync", "SkyPilot sends files with rsync: install it here."),
)


def _failure(job: Job, what: str, done: Completed, secrets: Iterable[str] = ()) -> LaunchFailed:
    words = _last_words(done, secrets)
    fixes = (fix for pattern, fix in _KNOWN_FAILURES if re.search(pattern, words, re.IGNORECASE))
    return LaunchFailed(
        f"Run {job.id} {what}: sky ended with {done.status}.",
        why=words,
        fix=next(fixes, "Mend that, then the same again: nothing is started twice."),
    )


# SkyPilot's own choice

_NEVER_S = 100.0 * 365 * 24 * HOUR_S
"""Of machines that are not in the plan: nobody takes them."""


def time_estimator(plan: Plan, machines: int = 1) -> Callable[[Any], float]:
    """For `Task.set_time_estimator`: how long the run takes on SkyPilot's `Resources`, in a task of
    so many machines.

    With it SkyPilot's optimizer compares whole jobs, as the plan does, and not hours. Its prices
    are those of its own catalogue; what the plan adds to them (storage, transfers, the trouble of
    an interruption) it does not know.
    """
    runs = [
        option
        for option in plan.options
        if option.runs and option.run is not None and option.step.placement.nodes == machines
    ]

    def run_time_s(asked: Any) -> float:
        fitting = [option for option in runs if _is_asked(option, asked)]
        return min((option.busy_s for option in fitting), default=_NEVER_S)

    return run_time_s


def _is_asked(option: Option, asked: Any) -> bool:
    """Whether an option is one of the machines that SkyPilot was asked for."""
    offer, instance = option.offer, asked.instance_type
    if asked.cloud is not None and str(asked.cloud).lower() != offer.provider:
        return False
    if bool(asked.use_spot) != (option.tenancy == "spot"):
        return False
    if asked.region is not None and offer.region not in (*_ANYWHERE, asked.region):
        return False
    host = host_of(offer.provider, offer.instance) or (offer.instance, None)
    if instance is not None and instance != host[0]:
        return False
    spelling = host[1] or spelling_of(offer.provider, offer.gpu, offer.instance)
    wanted = asked.accelerators
    return (
        not wanted or (instance is not None and host[1] is None) or wanted == {spelling: offer.gpus}
    )
