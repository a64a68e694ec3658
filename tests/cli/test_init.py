"""`outlay init`: a workload file to start from, which never replaces one by itself."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from outlay.workload.file import parse_workload, read_workload
from outlay.workload.tables import WorkloadFile

ROOT = Path(__file__).parents[2]


def test_template_parses(outlay, tmp_path):
    path = tmp_path / "new.toml"
    ended = outlay("init", path)
    assert (ended.code, ended.err) == (0, "")
    assert f"outlay plan {path}" in ended.out
    assert read_workload(path).step.profile == "resnet50"


def test_template_plans(outlay, tmp_path):
    path = tmp_path / "new.toml"
    outlay("init", path)
    ended = outlay("plan", path, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert ended.document["chosen"] is not None
    # 90 epochs of 1,281,167 images
    assert ended.document["chosen"]["samples"] == 90 * 1_281_167


def test_every_commented_key_is_one_outlay_knows(tmp_path, outlay):
    """Each example of the template is TOML by itself, and its key is one of its table."""
    path = tmp_path / "new.toml"
    outlay("init", path)
    schema = WorkloadFile.model_json_schema()
    table, keys = schema["properties"], 0
    for line in path.read_text().splitlines():
        shown = line.removeprefix("# ")
        if header := re.match(r"\[+([\w.]+)\]", shown):
            table = schema["properties"]
            for part in header[1].split("."):
                [name] = re.findall(r"\$defs/(\w+)", json.dumps(table[part]))
                table = schema["$defs"][name]["properties"]
        elif re.match(r"\w+ = ", shown):
            [key] = tomllib.loads(shown)
            assert key in table, shown
            keys += line != shown
    assert keys > 60


@pytest.mark.parametrize("header", ["[evaluation]", "[[pause]]", "[[stored]]", "[own_time]"])
def test_a_table_can_be_uncommented_as_a_whole(header, tmp_path, outlay):
    path = tmp_path / "new.toml"
    outlay("init", path)
    before, after = path.read_text().split(f"# {header}")
    block, rest = after.split("\n\n", 1)
    path.write_text(before + header + block.replace("\n# ", "\n") + "\n\n" + rest)
    assert read_workload(path) != parse_workload(before + f"# {header}" + after)


def test_refuses_to_replace_a_file(outlay, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("precious")
    ended = outlay("init", path)
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("outlay: ")
    assert "already there" in ended.err
    assert "--force" in ended.err
    assert path.read_text() == "precious"


def test_force_replaces_it(outlay, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text("not TOML at all")
    assert outlay("init", path, "--force").code == 0
    assert read_workload(path).name == "my training run"


def test_json_names_what_was_written(outlay, tmp_path):
    path = tmp_path / "new.toml"
    ended = outlay("init", path, "--json")
    assert ended.document == {"schema": 1, "written": str(path)}


def test_real_program_writes_outlay_toml(program, tmp_path):
    ended = program("init")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "Wrote outlay.toml. Edit it, then: outlay plan outlay.toml\n"
    assert read_workload(tmp_path / "outlay.toml").limits.budget_usd == 500
    assert program("init").code == 2


# With --model: the file of a question (its plan is in test_question.py)


def test_a_question_becomes_a_file(outlay, tmp_path):
    path = tmp_path / "mine.toml"
    line = ["--method", "qlora", "--samples", "50k", "--tokens", "1024", "--epochs", "3"]
    ended = outlay("init", path, "--model", "llama-3.2-1b", *line, "--budget", "100")
    assert (ended.code, ended.err) == (0, "")
    table = tomllib.loads(path.read_text())
    assert table["step"] == {"model": "llama-3.2-1b", "method": "qlora", "tokens": 1024}
    assert table["length"] == {"epochs": 3}
    assert table["data"]["samples"] == 50_000
    assert table["limits"] == {"budget": 100}


def test_paths_start_from_the_files_own_folder(outlay, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    outlay("init", "deep/mine.toml", "--model", "code/train.py:step", "--samples", "1k")
    read = read_workload(Path("deep/mine.toml"))
    assert Path(read.step.target).resolve() == Path("code/train.py:step").resolve()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--samples", "5k"], "--samples goes with --model"),
        (["--length", "3 epochs"], "--length goes with --model"),
        (["--model", "resnet50", "--template"], "exclude each other"),
        (["--model", "resnet50"], "How long is resnet50 to be trained"),
        (["--model", "llama-3.2-1b", "--method", "all", "--samples", "1k"], "one method"),
    ],
)
def test_half_a_question_is_refused_and_nothing_written(line, words, outlay, tmp_path):
    path = tmp_path / "mine.toml"
    ended = outlay("init", path, *line)
    assert ended.code == 2
    assert words in ended.err
    assert not path.exists()


# On a terminal it asks


class Conversation:
    """`outlay init` on a terminal of its own."""

    def __init__(self, folder, *arguments):
        self.controller, terminal = pty.openpty()
        self.said = ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "outlay.cli.main", "init", *arguments],
            cwd=folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb"},
            start_new_session=True,
            preexec_fn=_take_terminal,
        )
        os.close(terminal)

    def answer(self, question, reply):
        """Wait for a question, and type a reply to it."""
        self.wait_for(question)
        os.write(self.controller, reply.encode())

    def wait_for(self, words, limit_s=30.0):
        end = time.monotonic() + limit_s
        while words not in self.said:
            assert time.monotonic() < end, f"{words!r} was not said, but:\n{self.said}"
            assert self._read(), f"{words!r} was not said, but:\n{self.said}"
        self.said = self.said.partition(words)[2]

    def interrupt(self, words):
        """Press Ctrl-C until it is heard: Python misses one between a prompt and reading."""
        for _ in range(10):
            os.write(self.controller, b"\x03")
            pressed_s = time.monotonic()
            while words not in self.said and time.monotonic() - pressed_s < 3:
                if select.select([self.controller], [], [], 0.1)[0] and not self._read():
                    return
            if words in self.said:
                return

    def ended(self):
        while self._read():
            pass
        os.close(self.controller)
        return self.process.wait(timeout=30)

    def _read(self):
        ready, _, _ = select.select([self.controller], [], [], 30)
        try:
            data = os.read(self.controller, 4096) if ready else b""
        except OSError:  # the other end is closed
            data = b""
        self.said += data.decode(errors="replace").replace("\r\n", "\n")
        return bool(data)


def _take_terminal():
    """Make the terminal the process's own, so that Ctrl-C in it is a signal."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def test_on_a_terminal_it_asks_and_every_question_has_a_default(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"text": "a text to train on"}\n' * 30)
    asked = Conversation(tmp_path)
    asked.answer("What do you want to train?", "llama-3.2-1bb\n")
    asked.answer('Did you mean "llama-3.2-1b"', "llama-3.2-1b\n")
    asked.answer("How is it trained?", "magic\n")
    asked.answer("it is one of full, lora, qlora", "lora\n")
    asked.answer("Where is the training data?", "train.jsonl\n")
    asked.answer("How many passes", "3\n")
    asked.answer("in dollars?", "fifty\n")
    asked.answer("it is a number above zero", "$50\n")
    asked.answer("When must it be done?", "2d\n")
    asked.answer("Where does the data lie?", "home\n")
    asked.wait_for("30 samples")
    asked.wait_for("Wrote outlay.toml")
    assert asked.ended() == 0
    table = tomllib.loads((tmp_path / "outlay.toml").read_text())
    assert table["step"] == {"model": "llama-3.2-1b", "method": "lora", "tokens": 128}
    assert table["data"]["samples"] == 30
    assert table["data"]["at"] == "home"
    assert table["length"] == {"epochs": 3}
    assert table["limits"] == {"budget": 50, "deadline": "2d"}


def test_enter_alone_takes_every_default(tmp_path):
    asked = Conversation(tmp_path, "mine.toml")
    asked.answer("What do you want to train?", "resnet50\n")
    for question in (
        "Where is the training data?", "How many samples", "How many passes", "in dollars?",
        "When must it be done?", "Where does the data lie?",
    ):  # fmt: skip
        asked.answer(question, "\n")
    asked.wait_for("Wrote mine.toml")
    assert asked.ended() == 0
    table = tomllib.loads((tmp_path / "mine.toml").read_text())
    assert table["step"] == {"profile": "resnet50"}
    assert table["data"]["samples"] == 10_000
    assert table["limits"] == {}
    assert read_workload(tmp_path / "mine.toml").samples() == 10_000


def test_interrupted_it_leaves_nothing(tmp_path):
    asked = Conversation(tmp_path)
    asked.answer("What do you want to train?", "resnet50\n")
    asked.wait_for("Where is the training data?")
    asked.interrupt("Interrupted")
    assert "Interrupted" in asked.said
    assert asked.ended() == 130
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_told_before_any_question(tmp_path):
    (tmp_path / "outlay.toml").write_text("precious")
    asked = Conversation(tmp_path)
    asked.wait_for("already there")
    assert asked.ended() == 2
