"""From a plan's option to a run that goes on with the laptop closed, and what becomes of it.

`job_for` makes the job, `launch` submits it, `updated` asks its engine how it is doing.

A submission is a few steps, each written down as soon as it is done:

    planned      the row is there; nothing was asked of the engine
    submitting   the engine is being asked; whoever dies here leaves it to `recovered`, which asks
                 the engine whether it has the run before anything is submitted again
    queued, running ...   what the engine says

Engines start the same run only once, so that every step can be done again.
"""

from __future__ import annotations

import math
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outlay.errors import InputError, LaunchFailed, NoOption, OutlayError
from outlay.files import data_folder, write_whole
from outlay.hardware.gpu_names import find_gpu
from outlay.offers.terms import Terms, terms_for, terms_on
from outlay.plan.option import Option
from outlay.plan.ranking import Plan
from outlay.plan.sensitivity import find_option
from outlay.predict.run_time import optimizer_steps
from outlay.run.engine import ENDED, Engine, EngineState, JobFile, engine_of
from outlay.run.job import (
    NOTIFY_VARIABLE,
    Job,
    JobKind,
    JobMachine,
    check_places,
    command_line,
    is_one_process,
    new_id,
)
from outlay.run.redaction import redacted
from outlay.run.run_folder import FETCHED
from outlay.run.run_store import RunRecord, RunStore
from outlay.uncertainty import Estimate
from outlay.units import GB, HOUR_S, WEEK_S
from outlay.workload.workload import EngineName, RunHost, RunSettings, Workload

BEST = "best"
"""The plan's choice, where an offer is named."""
ALTERNATIVES = 4
"""Offers to go on to where a machine cannot be had."""
STOPS_S = 30.0
"""Within which an engine says that what it stopped is over."""
_OTHERS_S = 120.0
"""How long one process waits for another that submits the same run."""
Clock = Callable[[], float]
_ADDRESS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """What to launch of a workload, as the user asks for it."""

    on: str = BEST
    """An option of the plan: its rank, words of it, or `best`."""
    engine: EngineName | None = None
    host: str = ""
    """Of the engine ssh; empty: a host of the workload file."""
    price_usd_per_hour: float | None = None
    """What the machine really costs, where that is not the option's price."""
    budget_usd: float | None = None
    """Instead of the workload's."""
    kind: JobKind = "run"
    command: str | None = None
    """Instead of the workload's, as it is: what a trial or an interactive machine runs."""
    batch_size: int | None = None
    """Instead of the plan's."""
    gpus_here: tuple[str, ...] = ()
    """The GPUs of this machine, by name: what the engine local is priced by."""


# From an option to a job


def settings_of(workload: Workload, where: str) -> RunSettings:
    """The `[run]` table; an error where there is none, or it names what is not there."""
    if workload.run is None:
        raise InputError(
            f"{where} does not say what to run.",
            why="There is no [run] table.",
            fix='Add one: [run] and below it command = "python train.py --batch-size {batch}".',
        )
    settings = workload.run
    _check_folder(settings)
    for command in (settings.command, settings.resume or ""):
        check_places(command)
    return settings


def as_run_there(workload: Workload, engine: EngineName | None) -> Workload:
    """The workload as it is on machines that are there already: nobody waits for one, and without
    set-up lines the command starts at once."""
    run = workload.run
    is_there = engine in ("local", "ssh") or (engine is None and run is not None and run.hosts)
    if run is None or not is_there or run.setup or workload.usage.setup_s is not None:
        return workload
    return replace(workload, usage=replace(workload.usage, setup_s=0.0))


def job_for(workload: Workload, plan: Plan, request: LaunchRequest, where: str = "") -> Job:
    """The job that does a workload's run on an option of its plan."""
    settings = settings_of(workload, where)
    engine = request.engine or settings.engine or _engine_for(settings, plan)
    host = _host(settings, request) if engine == "ssh" else None
    option = option_for(plan, request, settings, engine, host)
    if engine == "skypilot" and request.on == BEST:
        option = _rentable(plan, option, workload)
    machine = _priced(machine_of(option, workload), engine, settings, host, request)
    trains_on = machine
    if engine == "local":  # whatever was chosen, this machine has the GPUs that it has
        machine = _of_one(machine)
        trains_on = replace(machine, gpus=max(len(request.gpus_here), 1))
    batch_size = request.batch_size or option.step.batch_size or None
    command = request.command
    if command is None:
        command = _line(settings.command, settings, trains_on, batch_size)
    resume = None if settings.resume is None or request.kind != "run" else settings.resume
    run_time_s, cost_usd = _expected(option, machine, workload)
    budget_usd = request.budget_usd or workload.limits.budget_usd
    if budget_usd is not None and request.kind == "run":
        budget_usd -= besides_usd(machine, run_time_s, cost_usd)
    is_counted = option.fits and workload.length.training_s is None
    longest = longest_s(machine, budget_usd, workload.limits.deadline_s)
    _check_limit(longest, budget_usd, machine)
    job = Job(
        id=new_id(workload.name),
        name=workload.name,
        kind=request.kind,
        engine=engine,
        command=command,
        resume=None if resume is None else _line(resume, settings, trains_on, batch_size),
        setup=settings.setup,
        folder=str(Path(settings.folder).resolve()),
        exclude=settings.exclude,
        send=settings.send,
        fetch=settings.fetch,
        checkpoints=settings.checkpoints,
        environment=settings.environment,
        pass_on=(*settings.pass_on, *([NOTIFY_VARIABLE] if settings.watch.notify else ())),
        image=settings.image,
        outlay=settings.outlay,
        machine=machine,
        batch_size=batch_size,
        steps=optimizer_steps(workload, option.step) if is_counted else None,
        step_time_s=option.step.step_time_s if option.fits else None,
        run_time_s=run_time_s,
        cost_usd=cost_usd,
        budget_usd=budget_usd,
        deadline_s=workload.limits.deadline_s,
        longest_s=longest,
        watch=replace(settings.watch, notify=()),
        slurm=settings.slurm,
        skypilot=settings.skypilot,
    )
    if engine != "skypilot":
        return job
    return replace(job, alternatives=_alternatives(plan, option, job, workload))


def _of_one(machine: JobMachine) -> JobMachine:
    """One of several machines, at its share of the price."""
    price_usd = machine.price_usd_per_hour
    each_usd = None if price_usd is None else price_usd / machine.machines
    return replace(machine, machines=1, price_usd_per_hour=each_usd)


def _check_folder(settings: RunSettings) -> None:
    """Refuse what would be missing on the machine, before anything is paid for."""
    folder = Path(settings.folder)
    if not folder.is_dir():
        raise InputError(
            f"There is no folder {folder}, which run.folder names.",
            fix="It is looked for beside the workload file.",
        )
    for name in settings.send:
        if not (folder / name).exists():
            raise InputError(
                f"{folder / name} of run.send is not there.", fix="It is looked for in run.folder."
            )


def _check_limit(longest: float | None, budget_usd: float | None, machine: JobMachine) -> None:
    """Refuse a budget that pays for no time at all."""
    if longest is None or longest >= 1:
        return
    price_usd, step_s = machine.price_usd_per_hour or 0.0, machine.billing_step_s
    raise NoOption(
        f"The budget of ${budget_usd:,.4g} pays for no time on {machine.name}.",
        why=f"It costs ${price_usd:,.2f} an hour, billed in steps of {step_s:,.0f} s.",
        fix="Raise the budget, or choose a cheaper machine by --on.",
    )


def _line(
    command: str | tuple[str, ...],
    settings: RunSettings,
    machine: JobMachine,
    batch_size: int | None,
) -> str:
    return command_line(
        command,
        machine,
        batch_size=batch_size,
        checkpoints=settings.checkpoints,
        processes=settings.processes,
    )


def _engine_for(settings: RunSettings, plan: Plan) -> EngineName:
    """The engine that nobody named: what the file has settings of, or what the choice is."""
    if settings.hosts:
        return "ssh"
    if settings.slurm.login or settings.slurm.partition or settings.slurm.gpu_types:
        return "slurm"
    if plan.chosen is not None and plan.chosen.tenancy == "owned":
        return "local"
    return "skypilot"


def option_for(
    plan: Plan,
    request: LaunchRequest,
    settings: RunSettings,
    engine: EngineName,
    host: RunHost | None = None,
) -> Option:
    """The option that is launched: the one named, else the plan's best of the GPUs there are."""
    if request.on != BEST:
        option = find_option(plan.options, request.on)
        if option is None:
            raise InputError(
                f"No option is called {request.on!r}.",
                why=f"The plan has {len(plan.options):,} of them, called by rank, provider, "
                "instance, region and GPU.",
                fix="Give a rank from the table, or words such as --on 'lambda a10'.",
            )
        return option
    machines = _machines_there(request, settings, engine, host)
    for gpu, gpus in machines:
        found = best_of_gpu(plan.options, gpu, gpus)
        if found is not None:
            return found
    if plan.chosen is None:
        raise NoOption(
            "No option satisfies the limits, so that there is none to launch.",
            fix="`outlay plan` says why; --on RANK launches one nevertheless.",
        )
    return plan.chosen


def _rentable(plan: Plan, chosen: Option, workload: Workload) -> Option:
    """The plan's choice, or the next sound option that SkyPilot rents; the choice if none is."""
    from outlay.run.skypilot import is_rentable

    sound = (option for option in plan.options if option.sound)
    options = (chosen, *sound)
    return next((one for one in options if is_rentable(machine_of(one, workload))), chosen)


def _machines_there(
    request: LaunchRequest, settings: RunSettings, engine: EngineName, host: RunHost | None
) -> list[tuple[str, int | None]]:
    """GPUs, and how many, that an engine is known to have; none for a cloud."""
    if engine == "local" and request.gpus_here:
        return [(request.gpus_here[0], len(request.gpus_here))]
    if engine == "ssh" and host is not None and host.gpu:
        return [parse_machine(host.gpu)]
    if engine == "slurm":
        return [(gpu, None) for gpu, _ in settings.slurm.gpu_types]
    return []


def parse_machine(text: str) -> tuple[str, int]:
    """`RTX 3090:2` as a GPU's name and how many; one where no number is given."""
    name, colon, count = text.rpartition(":")
    if not colon:
        return text.strip(), 1
    if not count.strip().isdecimal() or int(count) < 1 or not name.strip():
        raise InputError(
            f"{text!r} is no GPU with a number.", fix='Write it like "RTX 3090:8", or "RTX 3090".'
        )
    return name.strip(), int(count)


def best_of_gpu(options: Sequence[Option], gpu: str, gpus: int | None) -> Option | None:
    """The best option with a GPU, sound ones first; None where there is none."""
    names = {found.name for found in find_gpu(gpu).candidates} | {gpu}
    fitting = [
        option
        for option in options
        if (option.step.placement.gpu.name in names or option.offer.gpu in names)
        and (gpus is None or option.offer.gpus == gpus)
        and option.fits
    ]
    return next((option for option in fitting if option.sound), next(iter(fitting), None))


def machine_of(option: Option, workload: Workload) -> JobMachine:
    """The machines of an option."""
    offer, machines = option.offer, option.step.placement.nodes
    terms = terms_on(offer, terms_for(workload)(offer.provider))
    each_usd = option.hourly_usd
    return JobMachine(
        provider=offer.provider,
        instance=offer.instance,
        gpu=offer.gpu,
        gpus=offer.gpus,
        machines=machines,
        tenancy=option.tenancy,
        region=offer.region,
        zone=offer.zone.zone if offer.zone is not None and option.tenancy == "spot" else "",
        price_usd_per_hour=None if each_usd is None else each_usd * machines,
        billing_step_s=terms.billing_step_s or 1.0,
        billing_minimum_s=terms.billing_minimum_s or 0.0,
    )


def _host(settings: RunSettings, request: LaunchRequest) -> RunHost:
    """The machine to log in to."""
    if request.host:
        if not _ADDRESS.fullmatch(request.host):
            raise InputError(
                f"{request.host!r} is no address of a machine.",
                fix="Write it as for ssh: user@host, or a name of your ssh configuration.",
            )
        known = [host for host in settings.hosts if host.address == request.host]
        return known[0] if known else RunHost(address=request.host)
    if not settings.hosts:
        raise InputError(
            "The engine ssh needs a host.",
            fix='Give --host user@address, or [[run.host]] with address = "user@address".',
        )
    if request.on != BEST:
        words = request.on.lower()
        named = [host for host in settings.hosts if host.gpu and words in host.gpu.lower()]
        return (named or list(settings.hosts))[0]
    return settings.hosts[0]


def _priced(
    machine: JobMachine,
    engine: EngineName,
    settings: RunSettings,
    host: RunHost | None,
    request: LaunchRequest,
) -> JobMachine:
    """The machine at what it really costs, where that is said."""
    price_usd = request.price_usd_per_hour
    if price_usd is None:
        price_usd = said_usd_per_hour(settings, engine, host, machine.gpus * machine.machines)
    machine = replace(machine, host=host.address if host is not None else "")
    if price_usd is None:
        return machine
    return replace(machine, price_usd_per_hour=price_usd, billing_step_s=1.0, billing_minimum_s=0.0)


def said_usd_per_hour(
    settings: RunSettings, engine: EngineName, host: RunHost | None, gpus: int
) -> float | None:
    """What `[run]` says that machines with so many GPUs cost; None where it says nothing."""
    if host is not None:
        return host.price_usd_per_hour
    per_gpu_usd = settings.slurm.price_usd_per_gpu_hour
    return per_gpu_usd * gpus if engine == "slurm" and per_gpu_usd is not None else None


def _expected(
    option: Option, machine: JobMachine, workload: Workload
) -> tuple[Estimate | None, Estimate | None]:
    """Time and cost of what is launched: the whole run, or one of a month's sessions.

    The cost is the option's bill, or its hours at the price that was said instead.
    """
    ranges, nodes = option.ranges, option.step.placement.nodes
    if ranges is None:
        return None, None
    share = 1 / (workload.usage.sessions_per_month or 1)
    run_time_s = ranges.run_time_s.scaled(share)
    own_usd = None if option.hourly_usd is None else option.hourly_usd * nodes
    if machine.price_usd_per_hour is None:
        return run_time_s, None
    if machine.price_usd_per_hour == own_usd:
        return run_time_s, None if ranges.cost_usd is None else ranges.cost_usd.scaled(share)
    return run_time_s, run_time_s.scaled(machine.price_usd_per_hour / HOUR_S)


def besides_usd(
    machine: JobMachine, run_time_s: Estimate | None, cost_usd: Estimate | None
) -> float:
    """What of a run's likely cost is not machine time: storage, transfer, tax."""
    if run_time_s is None or cost_usd is None:
        return 0.0
    held_usd = held_cost_usd(machine, run_time_s.likely)
    return 0.0 if held_usd is None else max(cost_usd.likely - held_usd, 0.0)


def _alternatives(
    plan: Plan, option: Option, job: Job, workload: Workload
) -> tuple[JobMachine, ...]:
    """The next sound offers of the plan that the job can go to, each another machine or place."""
    from outlay.run.skypilot import can_take_over

    found: dict[tuple[str, ...], JobMachine] = {}
    for other in plan.options:
        if other is option or not other.sound or other.tenancy not in ("on-demand", "spot"):
            continue
        machine = machine_of(other, workload)
        if not can_take_over(job, machine):
            continue
        found.setdefault((machine.provider, machine.gpu, machine.region, machine.tenancy), machine)
        if len(found) == ALTERNATIVES:
            break
    return tuple(found.values())


def longest_s(
    machine: JobMachine, budget_usd: float | None, deadline_s: float | None
) -> float | None:
    """How long machines may be held at most: what the budget pays for, and the deadline."""
    price_usd = machine.price_usd_per_hour
    limits = [] if deadline_s is None else [deadline_s]
    if budget_usd is not None and price_usd:
        step_s = machine.billing_step_s
        paid_s = budget_usd / price_usd * HOUR_S
        limits.append(math.floor(paid_s / step_s) * step_s)
    return min(limits, default=None)


def held_cost_usd(machine: JobMachine, held_s: float) -> float | None:
    """What holding machines for a while costs, in the provider's billing steps."""
    billing = machine.billing
    if billing is None:
        return None
    return billing.usd(held_s) if held_s > 0 else 0.0


# Submitting


def kept_path(job: Job, file_name: str) -> Path:
    """Where the engine's own file of a run is kept."""
    return data_folder() / "runs" / job.id / file_name


def write_draft(job: Job, file: JobFile, *, now_s: float) -> Path:
    """Write the file of a job that is only looked at; its path. Drafts of a week ago go."""
    drafts = data_folder() / "drafts"
    folder = drafts / job.id
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in drafts.iterdir():
            if old != folder and old.stat().st_mtime < now_s - WEEK_S:
                shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be written: {error.strerror or error}.",
            fix="Make room, or name another folder by OUTLAY_DATA.",
        ) from error
    write_whole(folder / file.name, file.text.encode())
    return folder / file.name


def with_id(text: str, job: Job) -> str:
    """An engine's file of another run of the same workload, as one of this run.

    Its id is in the names of its folder and of the job: without this, what an edited file starts
    would not be found again.
    """
    stem = job.id.rpartition("-")[0]
    found = re.search(rf"\b{re.escape(stem)}-[0-9a-f]{{6}}\b", text)
    if found is None:
        raise InputError(
            "The file of --file has no run of this workload in it.",
            why=f"It should name one, such as {job.id}.",
            fix="Write it by --dry-run --save PATH, and edit that.",
        )
    return text.replace(found[0], job.id)


def with_addresses(environment: Mapping[str, str], settings: RunSettings) -> dict[str, str]:
    """Variables, and among them the addresses for warnings that the file names."""
    addresses = " ".join(settings.watch.notify)
    return {**environment, **({NOTIFY_VARIABLE: addresses} if addresses else {})}


def secrets_of(job: Job, environment: Mapping[str, str]) -> dict[str, str]:
    """The values of the variables that a job hands over; an error for one that is not set."""
    return passed_values(job.pass_on, {NOTIFY_VARIABLE: "", **environment})


def passed_values(names: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The values of variables of `run.pass`; an error for one that is not set."""
    missing = [name for name in names if name not in environment]
    if missing:
        raise InputError(
            f"{missing[0]} of run.pass is not set here.",
            fix=f"Set it (export {missing[0]}=...), or take it out of run.pass.",
        )
    return {name: environment[name] for name in names}


def launch(
    job: Job,
    file: JobFile,
    store: RunStore,
    *,
    secrets: Mapping[str, str],
    clock: Clock = time.time,
    engine: Engine | None = None,
    workload: str = "",
    bench: str = "",
    bench_gpu: str = "",
    bench_gpus: int = 0,
) -> RunRecord:
    """Submit a job and write down every step; what fails leaves a row that says so.

    The row comes first: a process that is killed here leaves nothing that has none.
    """
    engine = engine or engine_of(job)
    engine.check(job)
    store.add(
        job, file.name, file.text, at_s=clock(), workload=workload, bench=bench,
        bench_gpu=bench_gpu, bench_gpus=bench_gpus,
    )  # fmt: skip
    return submitted(store, job.id, secrets=secrets, clock=clock, engine=engine)


def submitted(
    store: RunStore,
    run: str,
    *,
    secrets: Mapping[str, str],
    clock: Clock = time.time,
    engine: Engine | None = None,
) -> RunRecord:
    """Bring a run that is planned, or whose submission was cut short, to its engine."""
    run = store.get(run).id
    with store.submission(run, wait_s=_OTHERS_S) as is_held:
        if not is_held:
            raise LaunchFailed(
                f"Run {run} is being submitted by another process.",
                fix="`outlay runs` shows how that ends.",
            )
        record = store.get(run)
        engine = engine or engine_of(record.job)
        if record.state not in ("planned", "submitting"):
            return record
        handle = None if record.submitted_s is None else engine.find(record.job)
        if handle is None:
            handle = _submit(store, record, engine, secrets, clock)
        where = f"Submitted to {engine.name}: {handle}"
        store.change(run, state="queued", handle=handle, reason="", event=where, at_s=clock())
    return updated(store, run, clock=clock, engine=engine)


def _submit(
    store: RunStore, record: RunRecord, engine: Engine, secrets: Mapping[str, str], clock: Clock
) -> str:
    """Hand a run to its engine; what the engine knows it by."""
    file = JobFile(name=record.file_name, text=record.file_text)
    path = kept_path(record.job, file.name)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, file.text.encode())
    store.change(record.id, state="submitting", submitted_s=clock())
    try:
        return engine.submit(record.job, file, secrets)
    except OutlayError as error:
        words = redacted(str(error), secrets.values())
        event = f"Not submitted: {words}"
        store.change(record.id, event=event, at_s=clock(), reason=words)
        raise


def unfinished(store: RunStore, workload: str, engine: EngineName) -> list[RunRecord]:
    """Runs of a file and engine whose submission was cut short, newest first.

    One that another process is submitting at this moment is none of them.
    """
    found = []
    for record in store.runs():
        is_open = record.state in ("planned", "submitting") and not record.bench
        if is_open and (record.workload, record.job.engine) == (workload, engine):
            with store.submission(record.id) as is_free:
                found += [record] if is_free else []
    return found


def is_same_work(job: Job, other: Job) -> bool:
    """Whether two jobs do the same on the same machines, whatever they are expected to cost."""
    kept = ("kind", "engine", "command", "resume", "setup", "folder", "exclude", "send", "fetch",
            "checkpoints", "environment", "pass_on", "image", "outlay", "budget_usd")  # fmt: skip
    where = ("provider", "instance", "gpu", "gpus", "machines", "tenancy", "region", "host")
    return all(getattr(job, name) == getattr(other, name) for name in kept) and all(
        getattr(job.machine, name) == getattr(other.machine, name) for name in where
    )


def given_up(store: RunStore, run: str, *, clock: Clock = time.time) -> RunRecord:
    """A run that was cut short and is not to go on; one that its engine has goes on."""
    record = recovered(store, run, clock=clock)
    run = record.id
    if record.state != "planned":
        return record
    words = "never started: the workload file has changed since"
    return store.change(
        run, state="failed", ended_s=clock(), reason=words, event=f"failed: {words}", at_s=clock()
    )


# What becomes of it


def updated(
    store: RunStore, run: str, *, clock: Clock = time.time, engine: Engine | None = None
) -> RunRecord:
    """A run as its engine says it is now; one that has ended, or was never submitted, stays.

    One that is lost is asked for again: its machine may have been out of reach.
    """
    record = store.get(run)
    is_over = record.has_ended and record.state != "lost"
    if is_over or record.handle is None or record.deleted_s is not None:
        return record
    engine = engine or engine_of(record.job)
    state = engine.state(record.job, record.handle)
    return _noted(store, record, state, clock)


def _noted(store: RunStore, record: RunRecord, state: EngineState, clock: Clock) -> RunRecord:
    held_since_s = state.held_since_s or record.held_since_s
    is_over = state.state in ENDED
    ended_s = (state.ended_s or record.ended_s or clock()) if is_over else None
    cost_usd = record.cost_usd
    if held_since_s is not None:
        held_s = max((ended_s if ended_s is not None else clock()) - held_since_s, 0.0)
        machine = record.job.machine
        if state.price_usd_per_hour is not None:
            machine = replace(machine, price_usd_per_hour=state.price_usd_per_hour)
        cost_usd = held_cost_usd(machine, held_s)
    changed = state.state != record.state
    words = f"{state.state}: {state.reason}" if state.reason else state.state
    return store.change(
        record.id,
        state=state.state,
        held_since_s=held_since_s,
        ended_s=ended_s,
        exit_status=state.exit_status,
        reason=redacted(state.reason),
        cost_usd=cost_usd,
        steps_done=state.status.get("steps_done", record.steps_done),
        event=redacted(words) if changed else "",
        at_s=clock(),
    )


def recovered(store: RunStore, run: str, *, clock: Clock = time.time) -> RunRecord:
    """A run whose submission was cut short, as its engine has it; nothing is submitted.

    One that the engine does not have is `planned` again.
    """
    record = store.get(run)
    run = record.id
    if record.state != "submitting":
        return record
    with store.submission(run) as is_free:
        record = store.get(run)
        if not is_free or record.state != "submitting":
            return record
        engine = engine_of(record.job)
        handle = engine.find(record.job)
        if handle is None:
            words = "its submission was cut short"
            return store.change(
                run, state="planned", reason=record.reason or words, event=f"planned: {words}",
                at_s=clock(),
            )  # fmt: skip
        where = f"Found at {engine.name}: {handle}"
        store.change(run, state="queued", handle=handle, reason="", event=where, at_s=clock())
    return updated(store, run, clock=clock, engine=engine)


def stop(
    store: RunStore, run: str, *, grace_s: float | None = None, delete: bool = False,
    clock: Clock = time.time,
) -> RunRecord:  # fmt: skip
    """Stop a run; with `delete`, remove all that is left of it on the machine as well.

    One that goes on nevertheless is an error: it costs money.
    """
    record = recovered(store, run, clock=clock)
    run = record.id
    if record.handle is None:
        return record if record.has_ended else _stopped_before(store, record, clock)
    engine, handle = engine_of(record.job), record.handle
    # Of one that is lost nobody knows whether its machine or its processes are still there.
    if not record.has_ended or (record.state == "lost" and record.deleted_s is None):
        usual_s = record.job.watch.grace_s
        store.change(run, event="Told to stop", at_s=clock())
        engine.stop(record.job, handle, grace_s=usual_s if grace_s is None else grace_s)
        record = _ended(store, record, engine, clock)
    if delete and record.deleted_s is None:
        engine.delete(record.job, handle)
        record = store.change(run, deleted_s=clock(), event="Deleted there", at_s=clock())
    return record


def _stopped_before(store: RunStore, record: RunRecord, clock: Clock) -> RunRecord:
    """A run that never began, stopped; not while somebody submits it."""
    with store.submission(record.id) as is_free:
        if not is_free:
            raise LaunchFailed(
                f"Run {record.id} is being submitted by another process.",
                fix="Stop it when that is done.",
            )
        event = "Stopped before it began"
        return store.change(
            record.id, state="stopped", ended_s=clock(), reason="", event=event, at_s=clock()
        )


def _ended(store: RunStore, record: RunRecord, engine: Engine, clock: Clock) -> RunRecord:
    """A run that was told to stop, as soon as its engine says that it is over."""
    ends_s = time.monotonic() + STOPS_S
    while not (record := updated(store, record.id, clock=clock, engine=engine)).has_ended:
        if time.monotonic() > ends_s:
            raise LaunchFailed(
                f"Run {record.id} was told to stop, and is still {record.state}.",
                why="Its machine may still cost money.",
                fix=f"Look again (outlay runs {record.id}), or stop it by the engine's own tools.",
            )
        time.sleep(0.5)
    return record


def fetch(store: RunStore, run: str, to: Path | None = None) -> tuple[RunRecord, list[Path]]:
    """Bring a run's results here: into a folder beside its workload file, unless one is named."""
    record = store.get(run)
    if record.handle is None:
        raise LaunchFailed(f"Run {record.id} was not started, so that it has no results.")
    base = Path(record.workload).parent if record.workload else Path.cwd()
    folder = to or base / FETCHED / record.id
    came = engine_of(record.job).fetch(record.job, record.handle, folder)
    if came:
        record = store.change(record.id, fetched=str(folder))
    return record, came


# A machine to work on

JUPYTER_PORT = 8_888
USUAL_DISK_BYTES = 256 * GB
# Source: SkyPilot 0.14, sky/resources.py: the disk that a machine gets where nothing is said.


def interactive_command(*, jupyter: bool) -> str:
    """What an interactive machine runs: a Jupyter server, or nothing but waiting to be used."""
    if jupyter:
        return f"jupyter lab --no-browser --ip 127.0.0.1 --port {JUPYTER_PORT}"
    return "while :; do sleep 60; done"


def check_interactive(job: Job) -> None:
    """Raise where an interactive machine would be none: it is there already."""
    if job.engine in ("local", "ssh") and job.command == interactive_command(jupyter=False):
        where = "You are on it" if job.engine == "local" else f"ssh {job.machine.host}"
        raise InputError(
            f"There is no machine to start on the engine {job.engine}.",
            why=f"It runs already: {where}.",
            fix="--jupyter starts a server there that stops when idle; --engine skypilot or slurm "
            "gets a machine.",
        )


def interactive_words(job: Job, terms: Terms) -> list[str]:
    """How to work on an interactive machine, when it stops, and what its stopped disk costs."""
    jupyter = "jupyter" in job.command
    port = f"-L {JUPYTER_PORT}:localhost:{JUPYTER_PORT}"
    logins = {
        "local": "",
        "ssh": f"ssh {port} {job.machine.host}" if jupyter else f"ssh {job.machine.host}",
        "slurm": "srun --overlap --pty --jobid JOB bash (JOB: `outlay runs last`)",
        "skypilot": f"ssh {port} {job.engine_name}" if jupyter else f"ssh {job.engine_name}",
    }
    notes = [f"Log in: {logins[job.engine]}"] if logins[job.engine] else []
    if jupyter:
        notes.append(f"Jupyter: http://localhost:{JUPYTER_PORT}; `outlay logs last` has its token.")
    if job.engine != "skypilot":
        return notes
    minutes = job.skypilot.idle_minutes
    notes.append(f"It stops by itself after {minutes} minutes without a login or a job.")
    disk_bytes = job.skypilot.disk_bytes or USUAL_DISK_BYTES
    per_month_usd = terms.stopped_disk_usd_per_byte_month
    size = f"{disk_bytes / GB:,.0f} GB"
    if per_month_usd is None:
        fact = terms.facts.get("stopped_disk_storage")
        why = f": {fact.note}" if fact is not None and fact.note else ""
        notes.append(f"What its disk of {size} costs while it is stopped is not known{why}.")
    else:
        usd = per_month_usd * disk_bytes
        notes.append(
            f"Stopped, its disk of {size} costs about ${usd:,.2f} a month (${usd / 30:,.2f} a day) "
            f"until `outlay stop {job.id} --delete`."
        )
    return notes


def launch_notes(job: Job, workload: Workload, plan: Plan, request: LaunchRequest) -> list[str]:
    """What to know before launching, in words."""
    notes = []
    if job.kind == "interactive":
        notes += interactive_words(job, terms_for(workload)(job.machine.provider))
    notes += _pricing_notes(job, workload, plan, request)
    if workload.usage.sessions_per_month not in (None, 1):
        notes.append(f"This is one of {workload.usage.sessions_per_month:g} sessions a month.")
    kept_usd = besides_usd(job.machine, job.run_time_s, job.cost_usd)
    if kept_usd >= 0.01 and job.budget_usd is not None and job.kind == "run":
        notes.append(
            f"${kept_usd:,.2f} of the budget is for storage, transfer and the like: machine time "
            f"may cost ${job.budget_usd:,.2f}."
        )
    if job.machine.price_usd_per_hour is None and job.budget_usd is not None:
        notes.append("No price is known, so that the budget cannot be kept: give --price.")
    is_taken = job.machine.tenancy == "spot" and job.engine in ("local", "ssh", "slurm")
    if job.kind == "run" and is_taken and not job.checkpoints:
        notes.append("A spot machine without run.checkpoints begins anew when it is taken away.")
    is_here = job.engine == "local"
    gpus = len(request.gpus_here) if is_here else job.machine.gpus * job.machine.machines
    several = job.kind == "run" and gpus > 1
    wants_one = workload.run is not None and workload.run.processes == "one"
    if several and not wants_one and is_one_process(job.command):
        notes.append(
            "The command is one process on each machine: torchrun is not put in, as it does not "
            "start with python. {python} in run.command says where it goes."
        )
    if job.engine == "local" and job.send:
        notes.append("Here it runs in the folder itself: what run.send names is not copied.")
    if job.kind == "run" and job.engine != "local" and not job.fetch:
        notes.append("Nothing is brought back: name it in run.fetch.")
    if job.engine == "skypilot":
        from outlay.run.skypilot import cautions

        notes += cautions(job)
    chosen = plan.chosen
    if (
        chosen is not None
        and job.engine == "skypilot"
        and machine_of(chosen, workload) != job.machine
    ):
        notes.append(_other_choice(machine_of(chosen, workload)))
    return notes


def _pricing_notes(job: Job, workload: Workload, plan: Plan, request: LaunchRequest) -> list[str]:
    """What to know where a machine that is there already is priced as another."""
    machine, here = job.machine, request.gpus_here
    is_priced, words = request.price_usd_per_hour is not None, ""
    if job.engine == "local" and not is_priced:
        same = best_of_gpu(plan.options, here[0], len(here)) if here else None
        if same is None or (same.offer.gpu, same.offer.gpus) != (machine.gpu, machine.gpus):
            has = f"{len(here)}x {here[0]}" if here else "no GPU that can be seen"
            words = (
                f"This machine has {has}: price and time are those of {machine.name}. "
                "--price says what this one costs."
            )
    elif job.engine == "ssh":
        hosts = () if workload.run is None else workload.run.hosts
        known = next((host for host in hosts if host.address == machine.host), None)
        if known is None or not known.gpu:
            words = (
                f"Which GPUs {machine.host} has is not said: the figures are those of "
                f"{machine.name}. gpu and price_per_hour of its [[run.host]] say it."
            )
        elif not is_priced and known.price_usd_per_hour is None:
            words = (
                f"What {machine.host} costs is not said: the price is that of {machine.name}. "
                "--price says it."
            )
    return [words] if words else []


def _other_choice(chosen: JobMachine) -> str:
    from outlay.run.skypilot import is_rentable

    if is_rentable(chosen):
        return f"The plan's choice is another: {chosen.name}."
    return (
        f"The plan's choice is {chosen.name}, which SkyPilot does not rent: this is the next. Rent "
        "that yourself, and --engine ssh runs it there."
    )
