"""`outlay` itself: its help, its version, and what all commands have in common."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import pytest

import outlay.cli
from outlay import __version__
from outlay.cli import prices, recipe
from outlay.cli.main import COMMANDS, cli

NOT_COMMANDS = {"__init__", "main", "options", "question"}
ELSEWHERE = {"logs", "stop"}  # in the module of `runs`
GROUPS = {"prices": prices.command, "recipe": recipe.command}
ALL_COMMANDS = [
    *COMMANDS,
    *(f"{group} {name}" for group, command in GROUPS.items() for name in command.commands),
]
TALKS_JSON = sorted(set(ALL_COMMANDS) - {"schema", *GROUPS, "guard"})  # it writes status.json


def test_every_module_is_a_listed_command():
    folder = Path(outlay.cli.__path__[0])
    modules = {path.stem for path in folder.glob("*.py")} - NOT_COMMANDS
    assert modules == set(COMMANDS) - ELSEWHERE


def test_help_lists_every_command_and_the_exit_codes(outlay):
    ended = outlay("--help")
    assert ended.code == 0
    assert ended.err == ""
    for name in COMMANDS:
        assert f"\n  {name} " in ended.out
    for code in ("0 done", "2 bad input", "3 no option", "4 a needed extra", "5 a provider"):
        assert code in ended.out


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_help_of_a_command_has_an_example(outlay, name):
    ended = outlay(*name.split(), "--help")
    assert ended.code == 0
    assert ended.err == ""
    assert "Example:" in ended.out
    assert f"outlay {name}" in ended.out.split("Example:")[1]


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_short_help_option(outlay, name):
    assert outlay(*name.split(), "-h") == outlay(*name.split(), "--help")


@pytest.mark.parametrize("name", COMMANDS)
def test_line_in_the_list_is_the_first_of_the_command_s_help(name):
    command = cli.get_command(click.Context(cli), name)
    assert command.name == name
    assert command.help.splitlines()[0] == COMMANDS[name]


@pytest.mark.parametrize("name", TALKS_JSON)
def test_every_command_has_json(outlay, name):
    assert "--json" in outlay(*name.split(), "--help").out


def test_version_is_the_package_s(outlay):
    ended = outlay("--version")
    assert ended.code == 0
    assert ended.out == f"outlay {__version__}\n"


def test_help_imports_no_command(tmp_path):
    script = (
        "import sys\n"
        "sys.argv = ['outlay', '--help']\n"
        "from outlay.cli.main import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit:\n"
        "    heavy = {'rich', 'pydantic', 'outlay.cli.plan', 'outlay.plan.pipeline'}\n"
        "    print('loaded:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_real_program_shows_its_help(program):
    ended = program("--help")
    assert ended.code == 0
    assert ended.err == ""
    assert "Start here:" in ended.out


@pytest.mark.parametrize("arguments", [["gpus", "T4"], ["profiles"], ["offers", "--gpu", "T4"]])
def test_real_program_piped_has_no_colours_and_a_quiet_stderr(program, arguments):
    ended = program(*arguments, FORCE_COLOR="", TERM="xterm-256color", COLUMNS="120")
    assert ended.code == 0
    assert ended.err == ""
    assert "\x1b" not in ended.out
    assert max(map(len, ended.out.splitlines())) <= 120
