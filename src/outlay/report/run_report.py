"""Runs for people and programs: what is about to be launched, what was, and how it is doing.

Documents first (`outlay launch`, `runs`, `stop`), then the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.text import Text

from outlay.report.console import Page, bullets, muted, table
from outlay.report.documents import Document
from outlay.report.text import UNKNOWN, counted, duration, duration_range, usd, usd_range
from outlay.run.engine import RunState
from outlay.run.job import Job
from outlay.run.launch import held_cost_usd
from outlay.run.redaction import redacted
from outlay.run.run_store import RunEvent, RunRecord
from outlay.uncertainty import Estimate
from outlay.workload.workload import EngineName

# --- documents ---


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDocument(Document):
    """A run that was launched, or with --dry-run would be."""

    run: str
    """Its id; of a dry run one that is not kept."""
    engine: EngineName
    state: RunState
    """`planned` of a dry run."""
    file: str
    """The path of the engine's own file: a script, a task in YAML."""
    file_text: str
    """What is in it."""
    price_usd_per_hour: float | None
    """Of all its machines together; null where it is not known."""
    cost_usd: Estimate | None
    """What the whole run is expected to cost."""
    priced_as: str
    """The machines that price is of."""
    run_time_s: Estimate | None
    """From asking for the machine to its release."""
    budget_usd: float | None
    """What it may cost; it is stopped before."""
    longest_s: float | None
    """How long it may run at most."""
    command: str
    batch_size: int | None
    """Per GPU."""
    steps: float | None
    alternatives: Sequence[str]
    """Where it goes where the machine cannot be had."""
    notes: Sequence[str]


def launch_document(
    job: Job, state: RunState, file: str, file_text: str, notes: Sequence[str]
) -> LaunchDocument:
    """The document of a job."""
    return LaunchDocument(
        run=job.id,
        engine=job.engine,
        state=state,
        file=file,
        file_text=redacted(file_text),
        price_usd_per_hour=job.machine.price_usd_per_hour,
        cost_usd=job.cost_usd,
        priced_as=job.machine.name,
        run_time_s=job.run_time_s,
        budget_usd=job.budget_usd,
        longest_s=job.longest_s,
        command=redacted(job.command),
        batch_size=job.batch_size,
        steps=job.steps,
        alternatives=[machine.name for machine in job.alternatives],
        notes=notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EventDocument:
    """Something that happened to a run."""

    at: str
    """UTC, `2026-11-16T20:15:00Z`."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDocument:
    """A run that outlay started."""

    run: str
    name: str
    engine: EngineName
    machine: str
    state: RunState
    reason: str
    """Why it is so, where there is something to say."""
    handle: str | None
    """What the engine knows it by."""
    bench: str | None
    """The bench that it is a trial of."""
    created: str
    held_since: str | None
    """Since when machines are held."""
    ended: str | None
    exit_status: int | None
    held_s: float | None
    price_usd_per_hour: float | None
    spent_usd: float | None
    """So far, or in all; null where no price is known."""
    cost_usd: Estimate | None
    """What it was expected to cost."""
    budget_usd: float | None
    steps_done: float | None
    steps: float | None
    fetched: str | None
    """The folder that its results are in."""
    events: Sequence[EventDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsDocument(Document):
    """What outlay started, newest first."""

    runs: Sequence[RunDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDocument(Document):
    """What a run has printed."""

    run: str
    state: RunState
    log: str


def run_document(record: RunRecord, events: Sequence[RunEvent], now_s: float) -> RunDocument:
    """The document of a run."""
    job = record.job
    return RunDocument(
        run=record.id,
        name=job.name,
        engine=job.engine,
        machine=job.machine.name,
        state=record.state,
        reason=record.reason,
        handle=record.handle,
        bench=record.bench or None,
        created=moment(record.created_s),
        held_since=_moment(record.held_since_s),
        ended=_moment(record.ended_s),
        exit_status=record.exit_status,
        held_s=held_s(record, now_s),
        price_usd_per_hour=job.machine.price_usd_per_hour,
        spent_usd=record.cost_usd,
        cost_usd=job.cost_usd,
        budget_usd=job.budget_usd,
        steps_done=record.steps_done,
        steps=job.steps,
        fetched=record.fetched or None,
        events=[EventDocument(at=moment(event.at_s), text=event.text) for event in events],
    )


def held_s(record: RunRecord, now_s: float) -> float | None:
    """How long machines were held for a run."""
    if record.held_since_s is None:
        return None
    return max((record.ended_s or now_s) - record.held_since_s, 0.0)


def moment(at_s: float) -> str:
    """A time in UTC, `2026-11-16T20:15:00Z`."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _moment(at_s: float | None) -> str | None:
    return None if at_s is None else moment(at_s)


# --- words ---


def print_launch(
    page: Page, job: Job, file: str, file_text: str | None, notes: Sequence[str]
) -> None:
    """What is about to be launched, and what it costs; `file_text`: the engine's file, to show."""
    page.print(Text(f"{job.name}: run {job.id} on {_engine_words(job)}", style="bold"))
    rows = [
        ("priced as" if job.engine == "local" else "machine", job.machine.name),
        ("price", _price_words(job)),
        ("expected", _expected_words(job)),
        ("at most", _limit_words(job)),
        ("command", redacted(job.command) or "none: a machine to work on"),
        ("set-up", "; ".join(job.setup) or "none"),
        *_files_words(job),
        ("watched", _watch_words(job)),
        ("file", file if file_text is not None else f"{file} (--dry-run shows it)"),
    ]
    if job.checkpoints:
        again = "resumes from it" if job.resume else "the command starts anew: there is no resume"
        rows.insert(7, ("checkpoints", f"{job.checkpoints}; after an interruption {again}"))
    if job.alternatives:
        rows.insert(2, ("else", "; ".join(machine.name for machine in job.alternatives)))
    page.print(table(("", " "), rows, page.width, wrap=" "))
    if notes:
        page.print()
        page.print(bullets(notes, style=""))
    if file_text is not None:
        page.print_section(f"{file.rsplit('/', 1)[-1]}:", muted(redacted(file_text).rstrip()))


def _files_words(job: Job) -> list[tuple[str, str]]:
    if job.engine == "local":
        return [("runs in", job.folder)]
    sent = ", ".join((job.folder, *job.send)) if job.folder else "nothing"
    return [("sent", sent), ("brought back", ", ".join(job.fetch) or "nothing")]


def _engine_words(job: Job) -> str:
    words = {
        "local": "this machine",
        "ssh": f"{job.machine.host} over ssh",
        "slurm": f"Slurm{' at ' + job.slurm.login if job.slurm.login else ''}",
        "skypilot": "SkyPilot",
    }
    return words[job.engine]


def _price_words(job: Job) -> str:
    price_usd = job.machine.price_usd_per_hour
    if price_usd is None:
        return f"{UNKNOWN}: --price USD says it, and lets a budget be kept"
    step_s = job.machine.billing_step_s
    billed = f", billed in steps of {duration(step_s)}" if step_s > 1 else ""
    return f"{usd(price_usd)} an hour{billed}"


def _expected_words(job: Job) -> str:
    if job.kind == "interactive" or job.run_time_s is None:
        return UNKNOWN
    time = f"{duration(job.run_time_s.likely)} ({duration_range(job.run_time_s)})"
    if job.cost_usd is None:
        return f"{time}; cost {UNKNOWN}"
    cost_range = usd_range(job.cost_usd)
    cost = usd(job.cost_usd.likely) + (f" ({cost_range})" if cost_range else "")
    return f"{cost} in {time}"


def _limit_words(job: Job) -> str:
    limits = [] if job.budget_usd is None else [usd(job.budget_usd)]
    limits += [] if job.longest_s is None else [duration(job.longest_s)]
    return " or ".join(limits) + ": it is stopped before" if limits else "no limit: give a budget"


def _watch_words(job: Job) -> str:
    watch, rules = job.watch, []
    if job.outlay == "none":
        return "by its time limit alone" if job.longest_s else "by nothing: give a budget"
    if watch.idle_s is not None:
        rules.append(f"idle for {duration(watch.idle_s)}")
    if watch.stall_s is not None:
        rules.append(f"no step for {duration(watch.stall_s)}")
    if watch.stop_on_bad_loss:
        rules.append("a loss that is not finite")
    return f"{watch.then} after {', '.join(rules)}" if rules else "no rules"


def question(job: Job) -> str:
    """What is asked before money is spent."""
    price_usd = job.machine.price_usd_per_hour
    if price_usd is None:
        return f"Launch it on {_engine_words(job)}, at a price that is not known?"
    if job.cost_usd is None or job.kind == "interactive":
        return f"Launch it at {usd(price_usd)} an hour?"
    limit = "" if job.budget_usd is None else f", never more than {usd(job.budget_usd)}"
    return f"Launch it for about {usd(job.cost_usd.likely)} ({usd(price_usd)} an hour{limit})?"


def print_runs(page: Page, records: Sequence[RunRecord], now_s: float) -> None:
    """All runs, a row each."""
    if not records:
        page.print("No run was launched yet: `outlay launch outlay.toml`.")
        return
    rows = [
        (
            record.id,
            record.job.engine,
            "this machine" if record.job.engine == "local" else record.job.machine.name,
            record.state,
            _held_words(held_s(record, now_s)),
            usd(record.cost_usd) if record.held_since_s else "",
            _of_steps(record),
            record.reason,
        )
        for record in records
    ]
    heads = ("run", "engine", "machine", "state", "held", "spent", "steps", "why")
    page.print(
        table(
            heads, rows, page.width, right=("held", "spent"), drop=("engine", "steps"), wrap="why"
        )
    )
    going = [record for record in records if not record.has_ended]
    hourly = [record.job.machine.price_usd_per_hour for record in going if record.held_since_s]
    known = [price for price in hourly if price is not None]
    if going:
        unknown = counted(len(hourly) - len(known), "price") + " not known"
        more = f", {unknown}" if len(known) < len(hourly) else ""
        page.print()
        cost = f"{usd(sum(known))} an hour{more}" if hourly else "no machine is held"
        page.print(f"{counted(len(going), 'run')} not over: {cost}. `outlay stop RUN` stops one.")


def _where_words(record: RunRecord) -> str:
    job = record.job
    if job.engine == "local":
        return f"this machine, priced as {job.machine.name}"
    handle = "" if record.handle in (None, job.machine.host) else f" ({record.handle})"
    return f"{job.machine.name}, on {_engine_words(job)}{handle}"


def _held_words(held: float | None) -> str:
    if held is None:
        return ""
    return "<1 s" if held < 1 else duration(held)


def _of_steps(record: RunRecord) -> str:
    if record.steps_done is None:
        return ""
    total = "" if record.job.steps is None else f" of {record.job.steps:,.0f}"
    return f"{record.steps_done:,.0f}{total}"


def print_run(
    page: Page, record: RunRecord, events: Sequence[RunEvent], now_s: float, file: str
) -> None:
    """One run in full."""
    job = record.job
    page.print(Text(f"{job.name}: run {record.id}, {record.state}", style="bold"))
    held, since = held_s(record, now_s), _moment(record.held_since_s)
    rows = [
        ("why", record.reason),
        ("where", _where_words(record)),
        ("held", "" if held is None else f"{_held_words(held)}, since {since}"),
        ("spent", _spent_words(record, held)),
        ("expected", _expected_words(job)),
        ("steps", _of_steps(record)),
        ("command", redacted(job.command)),
        ("results", record.fetched),
        ("file", file),
    ]
    page.print(table(("", " "), [row for row in rows if row[1]], page.width, wrap=" "))
    if events:
        lines = [f"{moment(event.at_s)}  {event.text}" for event in events]
        page.print_section("What happened:", "\n".join(lines))


def _spent_words(record: RunRecord, held: float | None) -> str:
    if held is None:
        return ""
    if record.job.machine.price_usd_per_hour is None:
        return f"{UNKNOWN}: its price is not known"
    spent_usd = record.cost_usd
    if spent_usd is None:
        spent_usd = held_cost_usd(record.job.machine, held)
    return usd(spent_usd)
