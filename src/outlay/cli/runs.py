"""`outlay runs`, `logs` and `stop`: what outlay started, and how it is doing."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.launch import refreshed
from outlay.cli.options import complain, json_option, print_document, tell
from outlay.errors import LaunchFailed, OutlayError

if TYPE_CHECKING:
    from outlay.run.run_store import RunRecord, RunStore

_FOLLOW_S = 1.0


@click.command("runs")
@click.argument("run", required=False)
@click.option("--all", "show_all", is_flag=True, help="Also runs that ended over a week ago.")
@click.option("--offline", is_flag=True, help="As last known: ask no engine.")
@click.option("--fetch", is_flag=True, help="With RUN: bring its results here.")
@click.option(
    "--to", type=click.Path(path_type=Path), help="With --fetch: the folder they are brought to."
)
@json_option
def command(
    run: str | None, show_all: bool, offline: bool, fetch: bool, to: Path | None, as_json: bool
) -> None:
    """List what outlay started: state, time held, money spent.

    RUN is an id, the beginning of one, or last: that run in full.

    \b
    Example:
      outlay runs
      outlay runs last
      outlay runs last --fetch              bring back what [run] fetch names
      outlay runs --json | jq '.runs[] | select(.state == "running")'
    """
    from outlay.report.run_report import RunsDocument, print_runs, run_document
    from outlay.run.run_store import RunStore

    if fetch and run is None:
        raise click.UsageError("--fetch goes with RUN.")
    with RunStore() as store:
        records = store.runs() if run is None else [store.get(run)]
        if not offline:
            records = refreshed(store, records)
        if fetch:
            records = [_fetched(store, records[0].id, to)]
        now_s = time.time()
        if as_json:
            documents = [run_document(record, store.events(record.id), now_s) for record in records]
            print_document(RunsDocument(runs=documents))
        elif run is not None:
            _print_one(store, records[0], now_s)
        else:
            from outlay.report.console import Page

            print_runs(Page(), [r for r in records if show_all or _is_recent(r, now_s)], now_s)


def _is_recent(record: RunRecord, now_s: float) -> bool:
    from outlay.units import WEEK_S

    return not record.has_ended or now_s - (record.ended_s or record.created_s) < WEEK_S


def _print_one(store: RunStore, record: RunRecord, now_s: float) -> None:
    from outlay.files import data_folder
    from outlay.report.console import Page
    from outlay.report.run_report import print_run

    file = str(data_folder() / "runs" / record.id / record.file_name)
    print_run(Page(), record, store.events(record.id), now_s, file)


def _fetched(store: RunStore, run: str, to: Path | None) -> RunRecord:
    from outlay.report.text import counted
    from outlay.run.launch import fetch

    tell("Fetching what the run left ...")
    record, came = fetch(store, run, to)
    words = f"{counted(len(came), 'file')} brought to {record.fetched}" if came else "nothing came"
    click.echo(f"outlay: {words}.", err=True)
    return record


@click.command("logs", no_args_is_help=True)
@click.argument("run")
@click.option("--follow", "-f", is_flag=True, help="Go on until it ends; Ctrl-C leaves it running.")
@click.option("--tail", type=click.IntRange(0), help="The last so many lines only.")
@json_option
def logs(run: str, follow: bool, tail: int | None, as_json: bool) -> int:
    """Show what a run has printed.

    \b
    Example:
      outlay logs last
      outlay logs stylenat-7f3a2c --follow
      outlay logs last --tail 20
    """
    from outlay.run.launch import recovered, updated
    from outlay.run.run_store import RunStore

    if follow and as_json:
        raise click.UsageError("--follow goes without --json.")
    with RunStore() as store:
        record = recovered(store, store.get(run).id)
        if record.handle is None:
            raise LaunchFailed(
                f"Run {record.id} was not started, so that it has no log.",
                fix=f"outlay launch --resume {record.id} starts it.",
            )
        if record.deleted_s is not None:
            kept = Path(record.fetched or ".") / "log"  # of a trial
            raise LaunchFailed(
                f"Run {record.id} was deleted, and its log with it.",
                fix=f"What was brought of it is in {kept}." if kept.is_file() else "",
            )
        record = updated(store, record.id)
        log = _Log(record)
        text = log.so_far(tail)
        if as_json:
            from outlay.report.run_report import LogDocument

            text += log.unfinished_line()
            print_document(LogDocument(run=record.id, state=record.state, log=text))
            return 0
        click.echo(text, nl=False)
        while follow and not record.has_ended:
            sys.stdout.flush()
            time.sleep(_FOLLOW_S)
            record = updated(store, record.id)
            click.echo(log.so_far(), nl=False)
        click.echo(log.unfinished_line(), nl=False)
    return 0


class _Log:
    """What a run has printed, read bit by bit: whole lines, without credentials."""

    def __init__(self, record: RunRecord) -> None:
        from outlay.run.engine import engine_of

        self._engine, self._record = engine_of(record.job), record
        self._offset, self._unfinished = 0, b""
        names = record.job.pass_on
        self._secrets = [os.environ[name] for name in names if name in os.environ]

    def so_far(self, tail: int | None = None) -> str:
        """All lines that came since it was last asked for; of those, the last so many."""
        from collections import deque

        lines: deque[str] = deque(maxlen=tail)
        while data := self._engine.logs(self._record.job, self._record.handle or "", self._offset):
            self._offset += len(data)
            data = self._unfinished + data
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1  # a progress bar has no other end
            self._unfinished = data[end:]
            lines.extend(self._readable(data[:end]).splitlines(keepends=True))
        return "".join(lines)

    def unfinished_line(self) -> str:
        """What has no end of line yet."""
        return self._readable(self._unfinished)

    def _readable(self, data: bytes) -> str:
        from outlay.run.redaction import redacted

        return redacted(data.decode(errors="replace"), self._secrets)


@click.command("stop", no_args_is_help=True)
@click.argument("run", nargs=-1, required=True)
@click.option("--grace", metavar="TIME", help="From the signal to the end, if not what [run] says.")
@click.option(
    "--delete", is_flag=True, help="Also remove what is left there: machine, disk, files."
)
@json_option
def stop(run: tuple[str, ...], grace: str | None, delete: bool, as_json: bool) -> int:
    """Stop a run, and give its machine back.

    It gets a signal to save a checkpoint, and is ended after a grace period.

    \b
    Example:
      outlay stop last
      outlay stop stylenat-7f3a2c --grace 5m
      outlay stop last --delete
    """
    from outlay.report.run_report import RunsDocument, run_document
    from outlay.run.launch import stop as stop_run
    from outlay.run.run_store import RunStore
    from outlay.units import duration_s

    grace_s = None if grace is None else duration_s(grace)
    failed = 0
    with RunStore() as store:
        records = []
        for name in [store.get(one).id for one in run]:
            tell(f"Stopping {name} ...")
            try:
                records.append(stop_run(store, name, grace_s=grace_s, delete=delete))
            except OutlayError as error:  # the others are to be stopped nevertheless
                complain(error.what, error.why, error.fix)
                failed = failed or error.exit_code
        if as_json:
            now_s = time.time()
            documents = [run_document(r, store.events(r.id), now_s) for r in records]
            print_document(RunsDocument(runs=documents))
            return failed
    from outlay.report.text import usd

    for record in records:
        spent = "" if record.cost_usd is None else f", {usd(record.cost_usd)} spent"
        click.echo(f"Run {record.id} is {record.state}{spent}.")
    return failed
