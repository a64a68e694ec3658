"""The stories of `examples/stories`, word for word: what their commands print.

The commands are those in the first comment lines of a story: the plan and its curves. Curves
through every bundled offer take long: they are run with OUTLAY_TEST_STORIES=all alone.
UPDATE_GOLDEN=1 writes the expected files anew: read the difference.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from outlay.cli.main import main

ROOT = Path(__file__).parents[2]
EXPECTED = Path(__file__).parent / "stories"
STORIES = sorted((ROOT / "examples" / "stories").glob("*.toml"))
SLOW = {"2_thesis_today", "4_two_hours_today", "5_desks_today", "6_lab_today"}
"""Stories that look at all bundled offers."""
ALL = os.environ.get("OUTLAY_TEST_STORIES") == "all"


def commands(story: Path) -> list[list[str]]:
    """The plan of a story and the curves that its first lines name."""
    told = [
        shlex.split(line.removeprefix("#"))[1:]
        for line in story.read_text(encoding="utf-8").splitlines()
        if line.startswith("#   outlay ")
    ]
    plan = ["plan", story.relative_to(ROOT).as_posix()]
    return [plan, *(command for command in told if "--vary" in command)]


CASES = {
    f"{story.stem}{'_curves' * (place > 0)}{place if place > 1 else ''}": command
    for story in STORIES
    for place, command in enumerate(commands(story))
}
RUN = {
    name: one
    for name, one in CASES.items()
    if ALL or "--vary" not in one or Path(one[1]).stem not in SLOW
}


@pytest.mark.parametrize("name", RUN)
def test_story_is_told_word_for_word(name, monkeypatch, capsys):
    said = printed(CASES[name], monkeypatch, capsys)
    path = EXPECTED / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(said, encoding="utf-8")
    assert said == path.read_text(encoding="utf-8")


def printed(arguments, monkeypatch, capsys) -> str:
    """What a command prints, after the command itself; it must answer and not complain."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["outlay", *arguments])
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1793491200")  # 2026-11-01
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert (ended.value.code, said.err) == (0, "")
    return f"$ outlay {shlex.join(arguments)}\n{said.out}"


def test_every_story_has_its_golden_files_and_no_other():
    assert {path.stem for path in EXPECTED.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.stem)
def test_the_commands_a_story_names_are_about_itself(story):
    told = re.findall(r"^#   (outlay .*)$", story.read_text(encoding="utf-8"), re.MULTILINE)
    assert told
    for command in told:
        assert shlex.split(command)[1:3] == ["plan", story.relative_to(ROOT).as_posix()]


@pytest.mark.parametrize("path", sorted(EXPECTED.glob("*.txt")), ids=lambda path: path.stem)
def test_golden_text_is_plain_and_within_its_width(path):
    # 120 columns where nobody watches; the first line is the command
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    assert max(map(len, lines)) <= 120
    assert not [line for line in lines if line != line.rstrip()]
    assert not [line for line in lines if "\x1b" in line or "nan" in line.split() or "inf" in line]
