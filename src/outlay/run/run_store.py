"""What outlay started: one SQLite file in the data folder, `runs.sqlite`.

    runs     a run a row: its job as JSON, the engine's file, and how far it has come
    events   what happened to it, in order

A row is written before anything is asked of an engine, and every step after that as soon as it is
done: whoever is killed in between leaves a row that says what to look for (`launch.recovered`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from outlay.errors import InputError, LaunchFailed, NotKnown
from outlay.files import data_folder
from outlay.run.engine import ENDED, RunState
from outlay.run.job import Job, job_from_json
from outlay.run.run_folder import job_json

VERSION = 1
"""Of the tables, the file's `user_version`."""
_POLL_S = 0.1
_WAIT_S = 20.0
"""How long one command waits for another that writes."""
_TABLES = """
CREATE TABLE runs (
  id TEXT PRIMARY KEY,
  created_s REAL NOT NULL,
  engine TEXT NOT NULL,
  state TEXT NOT NULL,
  job TEXT NOT NULL,
  file_name TEXT NOT NULL,
  file_text TEXT NOT NULL,
  workload TEXT NOT NULL,
  bench TEXT NOT NULL,
  bench_gpu TEXT NOT NULL DEFAULT '',
  bench_gpus INTEGER NOT NULL DEFAULT 0,
  handle TEXT,
  submitted_s REAL,
  held_since_s REAL,
  ended_s REAL,
  exit_status INTEGER,
  reason TEXT NOT NULL DEFAULT '',
  cost_usd REAL,
  steps_done REAL,
  fetched TEXT NOT NULL DEFAULT '',
  deleted_s REAL
);
CREATE TABLE events (
  run TEXT NOT NULL REFERENCES runs (id),
  at_s REAL NOT NULL,
  text TEXT NOT NULL
);
CREATE INDEX events_of_runs ON events (run, at_s);
CREATE INDEX runs_of_benches ON runs (bench);
"""
_CHANGING = (
    "state", "handle", "submitted_s", "held_since_s", "ended_s", "exit_status", "reason",
    "cost_usd", "steps_done", "fetched", "deleted_s", "file_text",
)  # fmt: skip
"""What of a row may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run that outlay started, or was about to."""

    id: str
    created_s: float
    """Seconds since 1970, as all times here."""
    state: RunState
    job: Job
    file_name: str
    file_text: str
    """The engine's own file, as it was submitted."""
    workload: str = ""
    """The workload file."""
    bench: str = ""
    """The bench that it is a trial of; empty for a run of its own."""
    bench_gpu: str = ""
    bench_gpus: int = 0
    """The GPU and how many of it the trial is of, as the user named them."""
    handle: str | None = None
    """What the engine knows it by, once that is known."""
    submitted_s: float | None = None
    held_since_s: float | None = None
    ended_s: float | None = None
    exit_status: int | None = None
    reason: str = ""
    cost_usd: float | None = None
    """What it has cost so far, or in all; None where no price is known."""
    steps_done: float | None = None
    fetched: str = ""
    """The folder that its results were brought to; empty where none were."""
    deleted_s: float | None = None
    """When all that was left of it there was removed."""

    @property
    def has_ended(self) -> bool:
        """Whether it is over."""
        return self.state in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something that happened to a run."""

    at_s: float
    text: str


class RunStore:
    """The file of runs; a context manager. The first write makes it."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: None for `runs.sqlite` in the data folder."""
        self.path = path or data_folder() / "runs.sqlite"
        self._connection: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def add(
        self,
        job: Job,
        file_name: str,
        file_text: str,
        *,
        at_s: float,
        workload: str = "",
        bench: str = "",
        bench_gpu: str = "",
        bench_gpus: int = 0,
    ) -> RunRecord:
        """Write a run down before anything is done about it; it is `planned`."""
        values = {
            "id": job.id,
            "created_s": at_s,
            "engine": job.engine,
            "state": "planned",
            "job": job_json(job).decode(),
            "file_name": file_name,
            "file_text": file_text,
            "workload": workload,
            "bench": bench,
            "bench_gpu": bench_gpu,
            "bench_gpus": bench_gpus,
        }
        with self._writing() as connection:
            names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
            connection.execute(f"INSERT INTO runs ({names}) VALUES ({marks})", values)
        return self.get(job.id)

    def change(self, run: str, *, event: str = "", at_s: float = 0.0, **values: Any) -> RunRecord:
        """Change some of a row, and note an event, both or neither."""
        unknown = set(values) - set(_CHANGING)
        assert not unknown, unknown
        with self._writing() as connection:
            for name, value in values.items():
                connection.execute(f"UPDATE runs SET {name} = ? WHERE id = ?", (value, run))
            if event:
                connection.execute("INSERT INTO events VALUES (?, ?, ?)", (run, at_s, event))
        return self.get(run)

    @contextlib.contextmanager
    def submission(self, run: str, *, wait_s: float = 0.0) -> Iterator[bool]:
        """Hold a run's submission, so that one process at a time does it; whether it is held.

        Who holds it and is killed lets it go.
        """
        import fcntl

        folder = self.path.parent / "runs" / run
        with self._explained():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (folder / "lock").open("w")
        ends_s = time.monotonic() + wait_s
        with lock:
            is_held = False
            while not is_held:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_held = True
                except BlockingIOError:
                    if time.monotonic() > ends_s:
                        break
                    time.sleep(_POLL_S)
                except OSError:  # a file system without locks
                    is_held = True
            yield is_held

    def get(self, name: str) -> RunRecord:
        """A run by its id, the beginning of one that no other has, or `last`."""
        found = self._select("WHERE id = ?", (name,))
        if not found and name == "last":
            found = self._select("ORDER BY created_s DESC LIMIT 1")
        if not found and name:
            found = self._select("WHERE substr(id, 1, ?) = ?", (len(name), name))
        if len(found) > 1:
            ids = ", ".join(record.id for record in found[:5])
            raise InputError(f"{name!r} may be any of {ids}.", fix="Give more of it.")
        if not found:
            known = [record.id for record in self.runs()]
            raise NotKnown("run", name, known, fix="`outlay runs` lists them.")
        return found[0]

    def runs(self, *, bench: str | None = None) -> list[RunRecord]:
        """All runs, newest first; or those of one bench, oldest first."""
        if bench is not None:
            return self._select("WHERE bench = ? ORDER BY created_s, rowid", (bench,))
        return self._select("ORDER BY created_s DESC, rowid DESC")

    def events(self, run: str) -> list[RunEvent]:
        """What happened to a run."""
        query = "SELECT at_s, text FROM events WHERE run = ? ORDER BY at_s, rowid"
        with self._reading() as connection:
            rows = [] if connection is None else connection.execute(query, (run,)).fetchall()
        return [RunEvent(at_s=row["at_s"], text=row["text"]) for row in rows]

    def _select(self, rest: str = "", arguments: tuple[Any, ...] = ()) -> list[RunRecord]:
        with self._reading() as connection:
            if connection is None:
                return []
            rows = connection.execute(f"SELECT * FROM runs {rest}", arguments).fetchall()
        return [_record(row) for row in rows]

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        if self._connection is None and not self.path.exists():
            yield None
            return
        with self._explained():
            yield self._open()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise LaunchFailed(
                f"The list of runs cannot be used: {self.path}.",
                why=f"{str(error)[:1].upper()}{str(error)[1:]}.",
                fix="Make room, or move a damaged file away; then the same again goes on where it "
                "was. OUTLAY_DATA names another folder.",
            ) from error

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            if not self.path.exists():  # what jobs run is nobody else's business
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            connection = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
            try:
                connection.row_factory = sqlite3.Row
                self._make_tables(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _make_tables(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version == VERSION:
            return
        if version > VERSION:
            raise LaunchFailed(
                f"{self.path} was written by a newer outlay.",
                fix="Update outlay, or name another folder by OUTLAY_DATA.",
            )
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # nobody was faster
            for statement in _TABLES.strip().split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")


def _record(row: sqlite3.Row) -> RunRecord:
    values = dict(row)
    values.pop("engine")
    try:
        job = job_from_json(json.loads(values["job"]))
    except ValueError as error:
        raise LaunchFailed(
            f"The job of run {values['id']} cannot be read.",
            why="It was written by another version of outlay, or is damaged.",
            fix="Use that version, or name another folder by OUTLAY_DATA.",
        ) from error
    return RunRecord(**{**values, "job": job})
