"""The hooks before a commit are the checks of the Makefile."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
CONFIG = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
HOOKS = [hook for repository in CONFIG["repos"] for hook in repository["hooks"]]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TOOLS = {"ruff": "ruff", "mypy": "mypy", "lint-imports": "import-linter"}
"""The package each tool comes with."""


def test_hooks_are_the_commands_of_make_check():
    recipes = re.findall(r"^(?:lint|types|imports):.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    commands = [line.strip() for recipe in recipes for line in recipe.splitlines()]
    entries = [hook["entry"].replace(".venv/bin", "$(BIN)") for hook in HOOKS]
    assert entries == commands


def test_hooks_need_nothing_but_the_project_s_own_tools():
    assert [repository["repo"] for repository in CONFIG["repos"]] == ["local"]
    installed = " ".join(PROJECT["dependency-groups"]["check"])
    for hook in HOOKS:
        assert hook["language"] == "system"
        assert hook["pass_filenames"] is False
        folder, tool = shlex.split(hook["entry"])[0].rsplit("/", 1)
        assert folder == ".venv/bin"
        assert TOOLS[tool] in installed
