"""The list of runs: written whole, by several at once, and explained where it cannot be used."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from outlay.errors import InputError, LaunchFailed, NotKnown
from outlay.run.job import Job
from outlay.run.run_store import VERSION, RunStore

ROOT = Path(__file__).parents[2]


def a_job(run: str = "tiny-123456", **given) -> Job:
    return Job(**{"id": run, "name": "tiny", "engine": "local", "command": "true", **given})


@pytest.fixture
def store(tmp_path):
    with RunStore(tmp_path / "data" / "runs.sqlite") as store:
        yield store


def test_reading_makes_no_file(store):
    assert store.runs() == []
    assert store.events("x") == []
    with pytest.raises(NotKnown, match="outlay runs"):
        store.get("last")
    assert not store.path.parent.exists()


def test_a_run_is_planned_first_and_changes_with_an_event(store):
    job = a_job(environment=(("A", "x'\n"),))
    record = store.add(job, "job.sh", "text", at_s=5.0, workload="/w.toml")
    assert (record.state, record.job, record.handle) == ("planned", job, None)
    assert not record.has_ended
    record = store.change(job.id, state="queued", handle="7", event="Submitted", at_s=6.0)
    assert (record.state, record.handle, record.file_text) == ("queued", "7", "text")
    assert [(event.at_s, event.text) for event in store.events(job.id)] == [(6.0, "Submitted")]
    assert store.change(job.id, state="lost").has_ended


def test_the_same_id_is_not_written_twice(store):
    store.add(a_job(), "job.sh", "first", at_s=1.0)
    with pytest.raises(LaunchFailed):
        store.add(a_job(), "job.sh", "second", at_s=2.0)
    assert store.get("tiny-123456").file_text == "first"


def test_runs_are_found_by_id_beginning_or_as_the_last(store):
    for number, run in enumerate(("tiny-aaaaaa", "tiny-aabbbb", "other-cccccc")):
        store.add(a_job(run), "job.sh", "", at_s=float(number))
    assert store.get("tiny-aaaaaa").id == "tiny-aaaaaa"
    assert store.get("oth").id == "other-cccccc"
    assert store.get("last").id == "other-cccccc"
    assert next(record.id for record in store.runs()) == "other-cccccc"
    with pytest.raises(InputError, match="tiny-aabbbb, tiny-aaaaaa|tiny-aaaaaa, tiny-aabbbb"):
        store.get("tiny")
    with pytest.raises(NotKnown, match="tiny-aaaaaa"):
        store.get("tiny-aaaaax")
    for odd in ("", "%", "' OR 1=1 --", "\0"):
        with pytest.raises(NotKnown):
            store.get(odd)


def test_trials_are_listed_by_bench(store):
    store.add(a_job("a-111111"), "job.sh", "", at_s=1.0, bench="b1", bench_gpu="T4", bench_gpus=2)
    store.add(a_job("a-222222"), "job.sh", "", at_s=2.0, bench="b2")
    (record,) = store.runs(bench="b1")
    assert (record.id, record.bench_gpu, record.bench_gpus) == ("a-111111", "T4", 2)


def test_the_file_is_nobody_else_s(store):
    store.add(a_job(), "job.sh", "", at_s=1.0)
    assert store.path.stat().st_mode & 0o077 == 0


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )


WRITES = """
    import sys
    from pathlib import Path
    from outlay.run.job import Job
    from outlay.run.run_store import RunStore
    with RunStore(Path(sys.argv[1])) as store:
        for number in range(10):
            job = Job(id=f"{sys.argv[2]}-{number:06x}", name="x", engine="local", command="true")
            store.add(job, "job.sh", "", at_s=float(number))
            store.change(job.id, state="queued", event="e", at_s=1.0)
"""


def test_several_write_at_once_from_the_first_moment(store):
    writers = [run_python(WRITES, store.path, f"w{number}") for number in range(4)]
    for writer in writers:
        with writer:
            assert writer.wait(timeout=60) == 0
    records = store.runs()
    assert len(records) == 40  # 4 writers * 10 runs
    assert {record.state for record in records} == {"queued"}
    assert all(len(store.events(record.id)) == 1 for record in records)


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from outlay.run.run_store import RunStore
    with RunStore(Path(sys.argv[1])) as store, store._writing() as connection:
        connection.execute("UPDATE runs SET state = 'lost'")
        connection.execute("INSERT INTO events VALUES ('tiny-123456', 1.0, 'half')")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_who_is_killed_within_a_change_leaves_it_as_it_was(store):
    store.add(a_job(), "job.sh", "", at_s=1.0)
    with run_python(KILLED, store.path) as killed:
        assert killed.wait(timeout=60) == -signal.SIGKILL
    assert store.get("tiny-123456").state == "planned"
    assert store.events("tiny-123456") == []
    assert store.change("tiny-123456", state="queued").state == "queued"


HOLDS = """
    import sys, time
    from pathlib import Path
    from outlay.run.run_store import RunStore
    with RunStore(Path(sys.argv[1])).submission("tiny-123456") as is_held:
        print(is_held, flush=True)
        time.sleep(60)
"""


def test_one_process_at_a_time_submits_a_run(store):
    with store.submission("tiny-123456") as is_held:
        assert is_held
    with run_python(HOLDS, store.path) as other:
        assert other.stdout.readline() == "True\n"
        with store.submission("tiny-123456") as is_held:
            assert not is_held
        with store.submission("other-123456") as is_held:
            assert is_held
        other.kill()  # who is killed lets it go
        other.wait(timeout=10)
    with store.submission("tiny-123456", wait_s=5.0) as is_held:
        assert is_held


def test_a_file_of_a_newer_outlay_is_left_alone(store):
    store.add(a_job(), "job.sh", "", at_s=1.0)
    connection = sqlite3.connect(store.path)
    connection.execute(f"PRAGMA user_version = {VERSION + 1}")
    connection.close()
    with RunStore(store.path) as newer, pytest.raises(LaunchFailed, match="newer outlay"):
        newer.runs()


def test_a_damaged_file_is_named(store):
    store.path.parent.mkdir(parents=True)
    store.path.write_bytes(b"no database " * 1000)
    for action in (store.runs, lambda: store.add(a_job(), "job.sh", "", at_s=1.0)):
        with pytest.raises(LaunchFailed) as caught:
            action()
        assert str(store.path) in caught.value.what
        assert "OUTLAY_DATA" in caught.value.fix
        assert "nothing was started" not in str(caught.value)  # it may have been


def test_a_damaged_row_is_named(store):
    store.add(a_job(), "job.sh", "", at_s=1.0)
    store._open().execute("UPDATE runs SET job = '{}'")
    with pytest.raises(LaunchFailed, match="tiny-123456"):
        store.runs()


def test_a_full_disk_is_said_and_leaves_the_rows(store):
    store.add(a_job(), "job.sh", "", at_s=1.0)
    store._open().execute("PRAGMA max_page_count = 12")
    with pytest.raises(LaunchFailed, match="full"):
        store.add(a_job("big-123456"), "job.sh", "x" * 10**6, at_s=1.0)
    assert [record.id for record in store.runs()] == ["tiny-123456"]
    assert store.change("tiny-123456", state="queued").state == "queued"


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "data").write_text("in the way")
    with RunStore(tmp_path / "data" / "runs.sqlite") as store:
        with pytest.raises(LaunchFailed, match="cannot be used"):
            store.add(a_job(), "job.sh", "", at_s=1.0)
        with pytest.raises(LaunchFailed, match="cannot be used"), store.submission("x"):
            pass


def test_one_that_waits_gets_its_turn(store):
    store.add(a_job(), "job.sh", "", at_s=1.0)
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    code = WRITES.replace("range(10)", "range(1)")
    with run_python(code, store.path, "late") as waiting:
        time.sleep(1.0)
        other.execute("COMMIT")
        other.close()
        assert waiting.wait(timeout=30) == 0
    assert len(store.runs()) == 2
