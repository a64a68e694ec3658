"""`outlay launch`: start the run of a workload file, on an engine that exists."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    cache_option,
    json_option,
    learned_calibration,
    prices_of,
    prices_option,
    print_document,
    progress_option,
    tell,
    today,
    trust_option,
    warn,
)
from outlay.errors import InputError, OutlayError

if TYPE_CHECKING:
    from outlay.plan.ranking import Plan
    from outlay.run.engine import JobFile
    from outlay.run.job import Job
    from outlay.run.launch import LaunchRequest
    from outlay.run.run_store import RunRecord, RunStore
    from outlay.workload.workload import EngineName, Workload

ENGINES = ("local", "ssh", "slurm", "skypilot")


@click.command("launch", no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--on",
    metavar="OFFER",
    default="best",
    show_default=True,
    help="An option of the plan: its rank, words of it, or best.",
)
@click.option("--engine", type=click.Choice(ENGINES), help="Where: without it, what [run] says.")
@click.option("--host", default="", metavar="USER@HOST", help="With --engine ssh: the machine.")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="USD/H",
    help="What the machine costs an hour, if not what the option does.",
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="What the run may cost, if not what the file says; it is stopped before.",
)
@click.option("--batch-size", type=click.IntRange(1), help="Per GPU, if not the plan's.")
@click.option(
    "--measured", multiple=True, metavar="FILE", help="A measurement of the step (outlay probe)."
)
@click.option("--interactive", is_flag=True, help="A machine to work on; it stops when idle.")
@click.option("--jupyter", is_flag=True, help="With --interactive: a Jupyter server on it.")
@click.option(
    "--dry-run", is_flag=True, help="Show the job, its file and its price; start nothing."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before spending.")
@click.option("--save", metavar="PATH", help="Write the engine's own file there, too.")
@click.option(
    "--file",
    "own_file",
    type=click.Path(path_type=Path),
    help="Submit this file, written by --save and edited, instead.",
)
@click.option("--resume", metavar="RUN", help="Go on with a submission that was cut short.")
@prices_option
@trust_option
@cache_option
@progress_option
@json_option
def command(
    file: Path | None,
    on: str,
    engine: EngineName | None,
    host: str,
    price: float | None,
    budget: float | None,
    batch_size: int | None,
    measured: tuple[str, ...],
    interactive: bool,
    jupyter: bool,
    dry_run: bool,
    yes: bool,
    save: str | None,
    own_file: Path | None,
    resume: str | None,
    prices: str,
    trust: str | None,
    as_json: bool,
) -> int:
    """Start the run of a workload file: here, over SSH, on Slurm or a cloud.

    It goes where the plan says, or where you say.

    Shows the exact job and its price, and asks before spending. The [run] table of FILE names the
    command, set-up lines, what to send and what to bring back. The run goes on with the laptop
    closed: `outlay runs`, `outlay logs`, `outlay watch`, `outlay stop`.

    \b
    Example:
      outlay launch outlay.toml --dry-run                     the job, its file and its price
      outlay launch outlay.toml                               on the plan's choice
      outlay launch outlay.toml --on "lambda a10" --yes
      outlay launch outlay.toml --engine local --price 0.5    on this machine
      outlay launch outlay.toml --engine ssh --host me@box
      outlay launch outlay.toml --engine slurm --save job.sh
      outlay launch outlay.toml --interactive --on "gcp t4"   a machine for an afternoon

    Ctrl-C leaves a run that was submitted alone.
    """
    from outlay.run.run_store import RunStore

    with RunStore() as store:
        if resume is not None:
            return _resume(store, resume, as_json=as_json)
        if file is None:
            raise click.UsageError("There is no FILE: a workload file with a [run] table.")
        from outlay.run.launch import LaunchRequest, settings_of, with_addresses

        request = LaunchRequest(
            on=on,
            engine=engine,
            host=host,
            price_usd_per_hour=price,
            budget_usd=budget,
            batch_size=batch_size,
        )
        workload, plan = planned(file, measured, prices, trust, engine)
        job, notes = job_of(workload, plan, request, file, interactive=interactive, jupyter=jupyter)
        rendered = _rendered(job, own_file)
        cut_short = None if dry_run else _cut_short(store, file, job, rendered)
        if cut_short is not None:
            warn(f"Going on with run {cut_short.id}, whose submission was cut short.")
            return _resume(store, cut_short.id, as_json=as_json)
        environment = with_addresses(os.environ, settings_of(workload, str(file)))
        return _launch(
            store, job, rendered, notes, str(file.resolve()), environment,
            dry_run=dry_run, yes=yes, save=save, as_json=as_json,
        )  # fmt: skip


def planned(
    file: Path,
    measured: tuple[str, ...],
    prices: str,
    trust: str | None,
    engine: EngineName | None = None,
) -> tuple[Workload, Plan]:
    """The workload of a file, and its plan; `engine`: where it is launched, if that is said."""
    from outlay.files import STDIN
    from outlay.plan.from_measurement import load_workload
    from outlay.plan.pipeline import plan_workload
    from outlay.run.launch import as_run_there, settings_of
    from outlay.workload.file import naming_line_of

    if file == STDIN:
        raise InputError(
            "A run cannot be started from standard input.",
            why="Its workload file is read again while it runs.",
            fix="Write it into a file, and name that.",
        )
    workload = load_workload(file, None)
    settings = settings_of(workload, str(file))  # said before a minute of planning
    workload = as_run_there(workload, engine or settings.engine)
    book = prices_of(prices, None, trust)
    learned = learned_calibration()
    with naming_line_of(file):
        plan = plan_workload(
            workload, measured=measured, learned=learned, today=today(), prices=book, progress=tell
        )
    return workload, plan


def gpus_here() -> tuple[str, ...]:
    """The GPUs of this machine, by their drivers' names."""
    from outlay.probe.gpu_driver import NoDriver
    from outlay.probe.gpu_watch import open_driver

    driver = open_driver()
    return () if isinstance(driver, NoDriver) else tuple(gpu.name for gpu in driver.devices)


def job_of(
    workload: Workload,
    plan: Plan,
    request: LaunchRequest,
    file: Path,
    *,
    interactive: bool = False,
    jupyter: bool = False,
) -> tuple[Job, list[str]]:
    """The job of a request, and what to know of it."""
    from dataclasses import replace

    from outlay.run.launch import check_interactive, interactive_command, job_for, launch_notes

    if jupyter and not interactive:
        raise click.UsageError("--jupyter goes with --interactive.")
    request = replace(request, gpus_here=gpus_here())
    if interactive:
        line = interactive_command(jupyter=jupyter)
        request = replace(request, kind="interactive", command=line)
    job = job_for(workload, plan, request, str(file))
    if interactive:
        check_interactive(job)
    return job, launch_notes(job, workload, plan, request)


def _cut_short(store: RunStore, file: Path, job: Job, rendered: JobFile) -> RunRecord | None:
    """The run to go on with instead: the same work, begun before; others are given up."""
    from outlay.run.launch import given_up, is_same_work, unfinished

    for record in unfinished(store, str(file.resolve()), job.engine):
        same_file = record.file_text.replace(record.id, job.id) == rendered.text
        if same_file and is_same_work(record.job, job):
            return record
        try:
            record = given_up(store, record.id)
        except OutlayError as error:
            warn(f"Run {record.id}, cut short before, could not be asked for: {error.what}")
        if not record.has_ended:
            warn(f"Run {record.id} of this file is {record.state}; this is another one.")
    return None


def _rendered(job: Job, own_file: Path | None) -> JobFile:
    """The engine's own file, or what the user made of it."""
    from outlay.run.engine import JobFile, engine_of

    file = engine_of(job).render(job)
    if own_file is None:
        return file
    from outlay.files import read_data
    from outlay.run.launch import with_id

    try:
        text = read_data(own_file).decode()
    except FileNotFoundError as error:
        raise InputError(f"{own_file} of --file is not there.") from error
    except ValueError as error:  # of decoding, too
        raise InputError(f"{own_file} of --file cannot be read.", why=str(error)) from error
    return JobFile(name=file.name, text=with_id(text, job))


def _launch(
    store: RunStore,
    job: Job,
    file: JobFile,
    notes: list[str],
    workload: str,
    environment: Mapping[str, str],
    *,
    dry_run: bool,
    yes: bool,
    save: str | None,
    as_json: bool,
) -> int:
    from outlay.files import write_whole
    from outlay.report.console import Page
    from outlay.report.run_report import launch_document, print_launch, question
    from outlay.run.launch import kept_path, launch, secrets_of, write_draft

    is_draft = dry_run and save is None
    path = str(write_draft(job, file, now_s=time.time()) if is_draft else kept_path(job, file.name))
    if save is not None:
        write_whole(Path(save), file.text.encode())
        path = save
    if not as_json:
        print_launch(Page(), job, path, file.text if dry_run else None, notes)
    if dry_run:
        if as_json:
            print_document(launch_document(job, "planned", path, file.text, notes))
        return 0
    secrets = secrets_of(job, environment)
    if not yes:
        ask(question(job))
    tell(f"Submitting to {job.engine} ...")
    try:
        record = launch(job, file, store, secrets=secrets, workload=workload)
    except KeyboardInterrupt:
        warn(f"Run {job.id} may have been submitted: `outlay runs` looks, `outlay stop` stops it.")
        raise
    if as_json:
        print_document(launch_document(job, record.state, path, file.text, notes))
    else:
        _say_next(record)
    return 0


def ask(text: str) -> None:
    """Ask before money is spent; without anybody to ask, --yes is needed."""
    if not sys.stdin.isatty():
        raise InputError(
            "Nothing was launched: there is nobody to ask.",
            why="Standard input is no terminal.",
            fix="Add --yes if it is to be launched, or --dry-run to look at it.",
        )
    try:
        is_wanted = click.confirm(text, err=True)
    except click.Abort:
        click.echo(err=True)  # the next message on a line of its own
        raise
    if not is_wanted:
        raise InputError("Nothing was launched.", why="You said no.")


def _resume(store: RunStore, run: str, *, as_json: bool) -> int:
    from outlay.report.run_report import launch_document
    from outlay.run.launch import kept_path, secrets_of, submitted

    record = store.get(run)
    if record.state not in ("planned", "submitting"):
        warn(f"Run {record.id} was submitted already.")
    record = submitted(store, record.id, secrets=secrets_of(record.job, os.environ))
    if as_json:
        path = str(kept_path(record.job, record.file_name))
        print_document(launch_document(record.job, record.state, path, record.file_text, ()))
    else:
        _say_next(record)
    return 0


def _say_next(record: RunRecord) -> None:
    why = f": {record.reason}" if record.reason else ""
    click.echo(f"Run {record.id} is {record.state} on {record.handle}{why}.")
    if record.has_ended:
        click.echo(f"  outlay logs {record.id}      what it printed")
        return
    click.echo(f"  outlay watch {record.id}     how it is doing, its end and its cost")
    click.echo(f"  outlay logs {record.id} -f   what it prints")
    click.echo(f"  outlay stop {record.id}")


def refreshed(store: RunStore, records: list[RunRecord]) -> list[RunRecord]:
    """Runs as their engines say they are; one that cannot be asked stays as it was, with a word."""
    from outlay.run.launch import recovered, updated

    current = []
    started_s = time.monotonic()
    for record in records:
        if time.monotonic() - started_s > 1:
            tell(f"Asking for run {record.id} ...")
        try:
            found = record if record.has_ended else recovered(store, record.id)
            current.append(updated(store, found.id))
        except OutlayError as error:
            warn(f"Run {record.id} could not be asked for: {error.what} {error.why}".strip())
            current.append(record)
    return current
