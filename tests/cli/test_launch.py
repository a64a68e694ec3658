"""`outlay launch`: the job and its price are shown, nothing starts unasked, mistakes are named."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKLOAD = """\
name = "tiny"
[step]
profile = "resnet50"
batch_size = 32
[length]
iterations = 1_000
[limits]
budget = 5
[consider]
bundled = false
[[offer]]
provider = "friend"
gpu = "RTX 3090"
price_per_hour = 0.6
[run]
engine = "local"
outlay = "none"
"""


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Where runs' folders are."""
    monkeypatch.setenv("OUTLAY_RUNS", str(tmp_path / "there"))
    return tmp_path / "there"


@pytest.fixture
def file(tmp_path, there):
    """Write a workload file with keys of `[run]`."""

    def write(more: str = 'command = "echo started >> lines"', name: str = "tiny.toml") -> Path:
        (tmp_path / "work").mkdir(exist_ok=True)
        path = tmp_path / "work" / name
        path.write_text(WORKLOAD + more + "\n", encoding="utf-8")
        return path

    return write


def rows(outlay) -> list[dict]:
    ended = outlay("runs", "--json")
    assert ended.code == 0
    return ended.document["runs"]


def over(outlay, run: str) -> dict:
    """A run when it has ended."""
    for _ in range(200):
        (row,) = outlay("runs", run, "--json").document["runs"]
        if row["ended"]:
            return row
        time.sleep(0.05)
    raise AssertionError(row)


def test_dry_run_shows_job_file_and_price_and_starts_nothing(outlay, file, there, own_folder):
    ended = outlay("launch", file(), "--dry-run")
    assert ended.code == 0
    assert ended.err == ""
    for words in ("$0.60 an hour", "echo started >> lines", "$5.00", "job.sh", "mkdir"):
        assert words in ended.out
    assert not there.exists()
    assert not (own_folder / "runs.sqlite").exists()
    assert rows(outlay) == []


def test_dry_run_as_json_names_a_file_that_is_there(outlay, file):
    document = outlay("launch", file(), "--dry-run", "--json").document
    assert set(document) >= {"schema", "run", "engine", "state", "file", "price_usd_per_hour",
                             "cost_usd"}  # fmt: skip
    assert (document["engine"], document["state"]) == ("local", "planned")
    assert document["price_usd_per_hour"] == 0.6
    assert set(document["cost_usd"]) == {"low", "likely", "high"}
    assert Path(document["file"]).read_text() == document["file_text"]


def test_a_run_is_launched_listed_and_over(outlay, file, there):
    path = file()
    document = outlay("launch", path, "--yes", "--json").document
    row = over(outlay, document["run"])
    assert (row["state"], row["exit_status"]) == ("done", 0)
    assert row["price_usd_per_hour"] == 0.6
    assert (path.parent / "lines").read_text() == "started\n"
    assert Path(document["file"]).read_text() == (there / document["run"] / "job.sh").read_text()
    said = outlay("launch", path, "--yes")
    assert "outlay logs" in said.out
    assert len(rows(outlay)) == 2  # what was launched before is another run


def test_without_a_terminal_nothing_is_launched_unasked(outlay, file, there, monkeypatch):
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115, PTH123
    ended = outlay("launch", file())
    sys.stdin.close()
    assert ended.code == 2
    assert "--yes" in ended.err
    assert "$0.60 an hour" in ended.out
    assert rows(outlay) == []
    assert not there.exists()


MISTAKES = {
    "a place that is none": ('command = "x {bath}"', (), ["{bath}", "{batch}"]),
    "an empty command": ('command = ""', (), ["tiny.toml, line", "run.command"]),
    "an unknown key": ('comand = "x"', (), ["run.comand", "'command'"]),
    "no folder": ('command = "x"\nfolder = "gone"', (), ["gone", "run.folder"]),
    "a variable that is not set": (
        'command = "x"\npass = ["NOT_SET_1"]',
        ("--yes",),
        ["NOT_SET_1"],
    ),
    "a rank too high": ('command = "x"', ("--on", "77"), ["'77'"]),
    "no such offer": ('command = "x"', ("--on", "mars h100"), ["'mars h100'"]),
    "no host": ('command = "x"', ("--engine", "ssh"), ["--host"]),
    "a host like an option": (
        'command = "x"',
        ("--engine", "ssh", "--host=-oProxyCommand=touch PWNED", "--yes"),
        ["no address"],
    ),
    "a file that is not there": ('command = "x"', ("--file", "gone.sh"), ["gone.sh"]),
    "a run that is not known": ('command = "x"', ("--resume", "gone"), ["'gone'"]),
    "Jupyter alone": ('command = "x"', ("--jupyter",), ["--interactive"]),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named_and_start_nothing(outlay, file, there, case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table, options, fragments = MISTAKES[case]
    ended = outlay("launch", file(table), *options)
    assert ended.code == 2
    assert "Traceback" not in ended.err
    for fragment in fragments:
        assert fragment in ended.err
    assert rows(outlay) == []
    assert not there.exists()
    assert not list(tmp_path.rglob("PWNED"))


def test_no_table_and_no_file(outlay, tmp_path):
    path = tmp_path / "w.toml"
    path.write_text(WORKLOAD.partition("[run]")[0])
    ended = outlay("launch", path)
    assert ended.code == 2
    assert "[run]" in ended.err
    assert outlay("launch", tmp_path / "gone.toml").code == 2
    assert outlay("launch").code == 2


def test_a_budget_that_pays_for_nothing_is_no_option(outlay, file):
    ended = outlay("launch", file('command = "x"'), "--budget", "0.0001", "--yes")
    assert ended.code == 3
    assert "pays for no time" in ended.err


def test_an_edited_file_is_submitted_as_it_is_and_found_again(outlay, file, tmp_path):
    path, own = file(), tmp_path / "mine.sh"
    assert outlay("launch", path, "--dry-run", "--save", own).code == 0
    own.write_text(own.read_text().replace("echo started", "echo edited"))
    for _ in range(2):
        document = outlay("launch", path, "--file", own, "--yes", "--json").document
        assert over(outlay, document["run"])["state"] == "done"
    assert (path.parent / "lines").read_text() == "edited\nedited\n"
    other = tmp_path / "other.sh"
    other.write_text("echo nothing of ours")
    ended = outlay("launch", path, "--file", other, "--yes")
    assert ended.code == 2
    assert "--save" in ended.err


def test_credentials_are_not_shown(outlay, file):
    key = "hf_" + "a1" * 17
    table = f'command = "x --token {key}"\nenvironment = {{WANDB_API_KEY = "s3cr3t-value"}}'
    for options in (("--dry-run",), ("--dry-run", "--json")):
        ended = outlay("launch", file(table), *options)
        assert ended.code == 0
        assert key not in ended.out
        assert "s3cr3t-value" not in ended.out
        assert "[hidden]" in ended.out


ODD = [
    "$(touch PWNED)",
    "`touch PWNED`",
    "a'; touch PWNED; '",
    'a"; touch PWNED; "',
    "a\ntouch PWNED",
    "-oProxyCommand=touch PWNED",
    "a && touch PWNED",
    "[bold]x[/nothing]",
]


@pytest.mark.parametrize("odd", ODD)
def test_no_value_of_a_file_runs_but_the_users_own_lines(outlay, file, tmp_path, monkeypatch, odd):
    monkeypatch.chdir(tmp_path)
    text = json.dumps(odd)  # a string of TOML, too
    table = (
        f"command = ['sh', '-c', 'printf %s \"$1\" > got', 'sh', {text}]\n"
        f"environment = {{A = {text}}}\nfetch = [{text}]\nexclude = [{text}]\nimage = {text}\n"
    )
    path = file(table)
    given = path.read_text().replace('"friend"', f"{text}\ninstance = {text}\nregion = {text}")
    path.write_text(given.replace('"tiny"', text))
    shown = outlay("launch", path, "--dry-run")
    assert shown.code == 0, shown.err
    ended = outlay("launch", path, "--yes", "--json")
    assert ended.code == 0, ended.err
    assert over(outlay, ended.document["run"])["state"] == "done"
    assert (path.parent / "got").read_text() == odd
    for command in (("runs",), ("runs", "last"), ("logs", "last"), ("runs", "last", "--fetch")):
        assert outlay(*command).code == 0
    assert not list(tmp_path.rglob("PWNED"))


def test_a_submission_that_failed_is_gone_on_with_or_given_up(outlay, file, there, monkeypatch):
    path = file()
    there.write_text("in the way")
    failed = outlay("launch", path, "--yes")
    assert failed.code == 1
    assert "could not" in failed.err or "cannot" in failed.err
    there.unlink()
    (row,) = rows(outlay)
    assert row["state"] == "planned"
    assert row["reason"]
    done = outlay("launch", path, "--yes", "--json")
    assert f"Going on with run {row['run']}" in done.err
    assert done.document["run"] == row["run"]
    assert over(outlay, row["run"])["state"] == "done"
    assert (path.parent / "lines").read_text() == "started\n"


def test_a_file_that_was_changed_since_is_launched_anew(outlay, file, there):
    there.write_text("in the way")
    assert outlay("launch", file('command = "exit 1"'), "--yes").code == 1
    there.unlink()
    document = outlay("launch", file('command = "exit 0"'), "--yes", "--json").document
    assert over(outlay, document["run"])["state"] == "done"
    first, second = rows(outlay)
    assert first["run"] == document["run"]
    assert second["state"] == "failed"
    assert "never started" in second["reason"]


def test_two_launches_at_once_are_two_runs(file, tmp_path, there, own_folder, outlay):
    path = file()
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "outlay.cli.main", "launch", str(path), "--yes", "--json"]
    both = [
        subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    documents = [json.loads(process.communicate(timeout=60)[0]) for process in both]
    runs = {document["run"] for document in documents}
    for run in runs:
        assert over(outlay, run)["state"] == "done"
    assert {row["run"] for row in rows(outlay)} == runs
    assert (path.parent / "lines").read_text() == "started\n" * len(runs)


@pytest.mark.parametrize("damage", ["corrupt", "in the way"])
def test_a_list_of_runs_that_cannot_be_used_is_said(outlay, file, there, own_folder, damage):
    path = own_folder / "runs.sqlite"
    if damage == "corrupt":
        path.write_bytes(b"no database" * 1000)
    else:
        path.mkdir()
    ended = outlay("launch", file(), "--yes")
    assert ended.code == 1
    assert "runs.sqlite" in ended.err
    assert "Traceback" not in ended.err
    assert not list(there.glob("*/started"))
    assert outlay("runs").code == 1


def test_a_data_folder_that_may_not_be_written_is_said(outlay, file, there, monkeypatch):
    monkeypatch.setenv("OUTLAY_DATA", "/proc/outlay")  # where root may not write, either
    for options in (("--yes",), ("--dry-run",)):
        ended = outlay("launch", file(), *options)
        assert ended.code in (1, 2)
        assert "/proc/outlay" in ended.err
        assert "Traceback" not in ended.err
    assert not list(there.glob("*/started"))


class Terminal:
    """The program in a terminal of so many columns."""

    def __init__(self, *arguments: str, columns: int = 80, **variables: str) -> None:
        self.master, slave = pty.openpty()
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": str(columns),
            "TERM": "xterm-256color", **variables,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "outlay.cli.main", *arguments],
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=lambda: __import__("fcntl").ioctl(0, __import__("termios").TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.said = ""

    def until(self, words: str, within_s: float = 30.0) -> str:
        ends_s = time.monotonic() + within_s
        while words not in self.said:
            assert time.monotonic() < ends_s, self.said
            if select.select([self.master], [], [], 0.2)[0]:
                self.said += os.read(self.master, 65536).decode()
        return self.said

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self) -> int:
        """Press Ctrl-C, and again as a person would where that came between two of its moments:
        a signal that comes just before a line is waited for is seen with the next key."""
        for _ in range(10):
            if self.process.poll() is None:
                with contextlib.suppress(OSError):  # it ends at this moment
                    self.type("\x03")
                time.sleep(0.5)
        return self.end()

    def end(self) -> int:
        ends_s = time.monotonic() + 30
        while time.monotonic() < ends_s:
            try:
                if select.select([self.master], [], [], 0.2)[0]:
                    self.said += os.read(self.master, 65536).decode()
            except OSError:  # its other end is closed
                break
        os.close(self.master)
        return self.process.wait(timeout=30)


def test_the_question_names_price_and_cap_and_no_is_no(file, there, outlay):
    terminal = Terminal("launch", str(file()))
    said = terminal.until("[y/N]")
    question = said.splitlines()[-1]
    assert "$0.60 an hour" in question
    assert "never more than $5.00" in question
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said)
    assert max(len(line) for line in plain.splitlines()) <= 100  # paths are as long as they are
    terminal.type("n\n")
    assert terminal.end() == 2
    assert "Nothing was launched" in terminal.said
    assert rows(outlay) == []


def test_yes_is_yes(file, there, outlay):
    terminal = Terminal("launch", str(file()))
    terminal.until("[y/N]")
    terminal.type("y\n")
    assert terminal.end() == 0
    (row,) = rows(outlay)
    assert over(outlay, row["run"])["state"] == "done"


def test_ctrl_c_at_the_question_launches_nothing(file, there, outlay, own_folder):
    terminal = Terminal("launch", str(file()), NO_COLOR="1")
    said = terminal.until("[y/N]")
    assert "\x1b[3" not in said
    assert terminal.interrupt() == 130
    assert "\noutlay: Interrupted." in terminal.said.replace("\r", "")
    assert rows(outlay) == []
    assert not there.exists()


def test_ctrl_c_while_it_is_submitted_says_where_to_look(file, there, outlay, tmp_path):
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "sh").write_text(f'#!{shutil.which("bash")}\nsleep 0.7\nexec /bin/sh "$@"\n')
    (slow / "sh").chmod(0o755)
    terminal = Terminal("launch", str(file()), "--yes", PATH=f"{slow}:{os.environ['PATH']}")
    terminal.until("Submitting")
    time.sleep(1.2)
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "outlay runs" in terminal.said
    assert outlay("launch", file(), "--yes").code == 0
    (row,) = rows(outlay)
    assert over(outlay, row["run"])["state"] == "done"
    assert (tmp_path / "work" / "lines").read_text() == "started\n"
