"""Shell completion: the script each shell is given, and what it completes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import outlay as package
from outlay.cli.main import COMMANDS

SOURCE = Path(package.__file__).parents[1]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def shell(tmp_path):
    """Run a line in bash, where `outlay` is a program like any other."""
    program = tmp_path / "outlay"
    program.write_text(f"#!{sys.executable}\nfrom outlay.cli.main import main\nmain()\n")
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            env={**os.environ, "PATH": path, "PYTHONPATH": str(SOURCE)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run


def completed(shell, words: str) -> list[str]:
    number = len(words.split(" ")) - 1
    answer = shell(
        f"COMP_WORDS='{words}' COMP_CWORD={number} _OUTLAY_COMPLETE=bash_complete outlay"
    )
    return [line.partition(",")[2] for line in answer.splitlines()]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_is_given_a_script(shell, name):
    script = shell(f"_OUTLAY_COMPLETE={name}_source outlay")
    assert f"_OUTLAY_COMPLETE={name}_complete" in script
    assert "_outlay_completion" in script


def test_bash_takes_the_script(shell):
    answer = shell('eval "$(_OUTLAY_COMPLETE=bash_source outlay)"; complete -p outlay')
    assert answer.split()[-3:] == ["-F", "_outlay_completion", "outlay"]


def test_command_names_are_completed(shell):
    assert completed(shell, "outlay ") == list(COMMANDS)
    assert completed(shell, "outlay pl") == ["plan"]


def test_options_are_completed(shell):
    assert completed(shell, "outlay plan --ex") == ["--explain"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_docs_say_how(name):
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert f"_OUTLAY_COMPLETE={name}_source outlay" in text
