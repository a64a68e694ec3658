"""What is started: command, set-up, files, machines, price, limits, and the rules it is under.

A `Job` is made of the workload's `[run]` table and an option of the plan. It is plain data:
`job.json` beside a run is one, and so is what the run store keeps.
"""

from __future__ import annotations

import difflib
import json
import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import TypeAdapter

from outlay.errors import InputError
from outlay.offers.offer import Tenancy
from outlay.run.rules import HourlyBilling
from outlay.uncertainty import Estimate
from outlay.workload.workload import (
    EngineName,
    SkyPilotSettings,
    SlurmSettings,
    WatchSettings,
)

JobKind = Literal["run", "trial", "interactive"]
NOTIFY_VARIABLE = "OUTLAY_NOTIFY"
"""Addresses for warnings, with blanks between: they hold passwords, and are in no job's file."""
RESULTS = "results"
"""The folder of a run that trials write to (OUTLAY_RESULTS), and that is always fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobMachine:
    """The machines a job gets: an offer in one tenancy, so many of it."""

    provider: str = ""
    instance: str = ""
    gpu: str = ""
    gpus: int = 1
    """In one machine."""
    machines: int = 1
    tenancy: Tenancy = "on-demand"
    region: str = ""
    zone: str = ""
    price_usd_per_hour: float | None = None
    """Of all machines together; None where it is not known."""
    billing_step_s: float = 1.0
    """Time is billed in steps of this ..."""
    billing_minimum_s: float = 0.0
    """... and at least so much of it."""
    host: str = ""
    """Of the engine `ssh`: where to log in."""

    @property
    def billing(self) -> HourlyBilling | None:
        """What holding them costs; None where the price is not known."""
        if self.price_usd_per_hour is None:
            return None
        return HourlyBilling(
            usd_per_hour=self.price_usd_per_hour,
            billing_step_s=self.billing_step_s,
            billing_minimum_s=self.billing_minimum_s,
        )

    @property
    def name(self) -> str:
        """`8x RTX 3090 at vast, spot`."""
        count = f"{self.machines} machines of " if self.machines > 1 else ""
        gpus = f"{self.gpus}x {self.gpu}" if self.gpu else "this machine"
        region = "" if self.region == "any" else self.region
        where = " ".join(part for part in (self.provider, region) if part)
        return f"{count}{gpus}" + (f" at {where}, {self.tenancy}" if where else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One thing to run on an engine."""

    id: str
    """`stylenat-7f3a2c`: in every name that the engine sees."""
    name: str
    kind: JobKind = "run"
    engine: EngineName
    command: str
    """A line of shell, ready to run; empty for an interactive machine."""
    resume: str | None = None
    """Instead, where the checkpoints' folder has something in it."""
    setup: tuple[str, ...] = ()
    folder: str = ""
    """Here: what is sent; empty: nothing is."""
    exclude: tuple[str, ...] = ()
    send: tuple[str, ...] = ()
    fetch: tuple[str, ...] = ()
    checkpoints: str = ""
    """Within the folder; empty: none is known."""
    environment: tuple[tuple[str, str], ...] = ()
    pass_on: tuple[str, ...] = ()
    """Names of variables whose values are handed over when it is submitted, and kept nowhere."""
    image: str = ""
    outlay: str = ""
    """As in `RunSettings`."""
    machine: JobMachine = field(default_factory=JobMachine)
    alternatives: tuple[JobMachine, ...] = ()
    """Where to go if the machine cannot be had: the next offers of the plan."""
    batch_size: int | None = None
    """Per GPU."""
    steps: float | None = None
    """Training steps in all; None where it is not known."""
    step_time_s: Estimate | None = None
    """As predicted, or measured, before the run."""
    run_time_s: Estimate | None = None
    """Expected, from asking for the machine to its release."""
    cost_usd: Estimate | None = None
    budget_usd: float | None = None
    """What it may cost in all; it is stopped before."""
    deadline_s: float | None = None
    """From its submission."""
    longest_s: float | None = None
    """On the machine at most, whatever happens: also where no guard can be installed."""
    watch: WatchSettings = field(default_factory=WatchSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    skypilot: SkyPilotSettings = field(default_factory=SkyPilotSettings)

    @property
    def engine_name(self) -> str:
        """What the engine knows it by: `outlay-stylenat-7f3a2c`."""
        return f"outlay-{self.id}"


_JOB = TypeAdapter(Job)
_CLUSTER_VARIABLE = "SKYPILOT_CLUSTER_INFO"
# Source: skypilot 0.14.1, `_skypilot_predefined_env_vars`: JSON with cloud, region and zone.


def machine_got(job: Job, environment: Mapping[str, str]) -> JobMachine:
    """The machine that a job runs on after a fail-over, by what SkyPilot tells it.

    Where that fits several of those it may have got, or none, the dearest stands for it: a budget
    is kept in any case.
    """
    machines = (job.machine, *job.alternatives)
    try:
        told = json.loads(environment.get(_CLUSTER_VARIABLE) or "{}")
    except ValueError:
        told = {}
    told = told if isinstance(told, dict) else {}
    cloud, region = str(told.get("cloud", "")).lower(), told.get("region")
    there = [machine for machine in machines if machine.provider == cloud]
    in_region = [machine for machine in there if machine.region == region]
    return max(in_region or there or machines, key=lambda one: one.price_usd_per_hour or 0.0)


def job_from_json(content: Mapping[str, Any]) -> Job:
    """The job in a `job.json`; a ValueError where it is none."""
    return _JOB.validate_python(dict(content))


def new_id(name: str) -> str:
    """An id that no other run has: letters, digits and dashes, at most 31 of them."""
    word = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:24].strip("-") or "run"
    word = word if word[0].isalpha() else f"r{word}"
    return f"{word}-{secrets.token_hex(3)}"


# Commands

_PLACES = ("batch", "gpus", "machines", "checkpoints", "python")
_PLACE = re.compile(rf"(?<!\$)\{{({'|'.join(_PLACES)})\}}")
_WORD_IN_BRACES = re.compile(r"(?<!\$)\{([A-Za-z_]+)\}")
_SAID_ELSEWHERE = {"batch_size": "batch", "bs": "batch", "num_gpus": "gpus", "nodes": "machines"}
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_.@%+:,/=-]+")
_WORD = r"(?:[^\s'\"\\]|'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.)+"
_ASSIGNMENT = r"[A-Za-z_][A-Za-z0-9_]*="
_PYTHON_LINE = re.compile(
    rf"(?s)(?P<before>\s*(?:{_ASSIGNMENT}(?:{_WORD})?\s+)*)(?P<python>(?:[\w./~+-]*/)?python[0-9.]*)"
    r"(?P<rest>\s.*)"
)
_QUOTED = re.compile(r"(?s)'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.")
_SEVERAL_PROGRAMS = re.compile(r"[;&()`\n]|\|\||\$\(")
_REDIRECTION = re.compile(r"[0-9]*[<>]&[0-9-]|&>>?")
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed")
_HEAD_PORT = 29_500


def command_line(
    command: str | tuple[str, ...],
    machine: JobMachine,
    *,
    batch_size: int | None,
    checkpoints: str = "",
    processes: str = "auto",
    keep_batch: bool = False,
) -> str:
    """A command of the `[run]` table as a line of shell: figures filled in, torchrun where needed.

    With several GPUs or machines, a line that is one program and starts with python is started by
    torchrun, a process for each GPU; `{python}` says where, in any other line. `keep_batch` leaves
    `{batch}` as it is, for a search. Other braces, as of a shell's `${HOME}` or of JSON, stay.
    """
    several = machine.gpus * machine.machines > 1
    spread = processes == "torchrun" or (processes == "auto" and several)
    python = _launcher(["python"], machine) if spread else "python"
    figures = {
        "batch": "{batch}" if keep_batch else None if batch_size is None else str(batch_size),
        "gpus": str(machine.gpus),
        "machines": str(machine.machines),
        "checkpoints": checkpoints or None,
    }
    if isinstance(command, str):
        has_python = _names_python(command)
        text = _filled(command, {**figures, "python": python})
    else:
        has_python = "{python}" in command
        words = [_filled(word, {**figures, "python": "{python}"}) for word in command]
        text = " ".join(python if word == "{python}" else shlex.quote(word) for word in words)
    if spread and not has_python:
        return _spread(text, machine, is_asked=processes == "torchrun")
    return text


def has_batch(command: str | tuple[str, ...]) -> bool:
    """Whether a command says where its batch size goes."""
    return any(match[1] == "batch" for match in _PLACE.finditer(_joined(command)))


def is_one_process(command: str) -> bool:
    """Whether a line, ready to run, starts one process whatever the number of GPUs."""
    launchers = r"torchrun|torch\.distributed|accelerate|deepspeed|mpirun|mpiexec|srun|horovodrun"
    return re.search(rf"\b(?:{launchers})\b", command) is None


def _joined(command: str | tuple[str, ...]) -> str:
    return command if isinstance(command, str) else " ".join(command)


def _names_python(text: str) -> bool:
    return any(match[1] == "python" for match in _PLACE.finditer(text))


def _filled(text: str, figures: Mapping[str, str | None]) -> str:
    """A text with the figures of the plan in the places that name them."""
    check_places(text)

    def figure(match: re.Match[str]) -> str:
        value = figures[match[1]]
        if value is None:
            raise InputError(
                f"{{{match[1]}}} of the command {text!r} is not known.",
                fix="Give run.checkpoints."
                if match[1] == "checkpoints"
                else "Give step.batch_size, or write the batch into the command.",
            )
        if match[1] == "checkpoints" and not _PLAIN_PATH.fullmatch(value):
            raise InputError(
                f"run.checkpoints is {value!r}, which cannot be put into a command.",
                fix="Use letters, digits and . _ - / alone.",
            )
        return value

    return _PLACE.sub(figure, text)


def check_places(command: str | tuple[str, ...]) -> None:
    """Refuse names in braces that are nearly one of ours; others are the command's own."""
    text = _joined(command)
    for match in _WORD_IN_BRACES.finditer(text):
        _check_place(match[1], text)


def _check_place(word: str, text: str) -> None:
    if word in _PLACES:
        return
    near = difflib.get_close_matches(word.lower(), _PLACES, n=1, cutoff=0.75)
    meant = _SAID_ELSEWHERE.get(word.lower(), near[0] if near else None)
    if meant is not None:
        raise InputError(
            f"{{{word}}} in the command {text!r} stands for nothing.",
            why=f"Did you mean {{{meant}}}?",
            fix="There are " + ", ".join(f"{{{place}}}" for place in _PLACES) + ".",
        )


def _spread(text: str, machine: JobMachine, *, is_asked: bool) -> str:
    """A python command as torchrun starts it; as it is where it is another launcher's."""
    match = _PYTHON_LINE.fullmatch(text)
    outside = _REDIRECTION.sub(" ", _QUOTED.sub("q", text))
    if match is not None and not _SEVERAL_PROGRAMS.search(outside):
        flags, rest = _own_flags(match["rest"])
        script = rest.split(maxsplit=2)
        is_module = script[:1] == ["-m"]
        if is_module and script[1:] and script[1].startswith(_LAUNCHERS):
            return text
        if script and (is_module or not script[0].startswith("-")):
            return f"{match['before']}{_launcher([match['python'], *flags], machine)}{rest}"
    if is_asked:
        raise InputError(
            f"torchrun cannot be put into the command {text!r}.",
            why="It is not one program that starts with python and a script.",
            fix="Write {python} where python stands, or name the launcher yourself.",
        )
    return text


def _own_flags(text: str) -> tuple[list[str], str]:
    """The options of python itself before the script, and the rest of the line."""
    flags: list[str] = []
    while match := re.match(rf"\s+(-(?:{_WORD}))", text):
        if match[1] in ("-m", "-c"):
            break
        flags.append(match[1])
        text = text[match.end() :]
        if match[1] in _WITH_VALUE and (value := re.match(rf"\s+({_WORD})", text)):
            flags.append(value[1])
            text = text[value.end() :]
    return flags, text


def _launcher(python: list[str], machine: JobMachine) -> str:
    """torchrun for the GPUs of all machines; as a module where python is a special one."""
    program = "torchrun" if python == ["python"] else f"{' '.join(python)} -m torch.distributed.run"
    if machine.machines == 1:
        return f"{program} --standalone --nproc-per-node {machine.gpus}"
    return (
        f"{program} --nnodes {machine.machines} --nproc-per-node {machine.gpus}"
        f' --node-rank "$OUTLAY_NODE_RANK" --master-addr "$OUTLAY_HEAD_ADDRESS"'
        f' --master-port "${{OUTLAY_HEAD_PORT:-{_HEAD_PORT}}}"'
    )
