from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from outlay.errors import InputError, NotKnown
from outlay.trace.target import load_function, parse_target

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def step_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with a neighbour it imports; loaded modules are forgotten afterwards."""
    (tmp_path / "outlay_neighbour.py").write_text("VALUE = 3\n")
    path = tmp_path / "outlay_step.py"
    path.write_text("from outlay_neighbour import VALUE\ndef build(n):\n    return lambda: VALUE\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield path
    for name in ("outlay_step", "outlay_neighbour"):
        sys.modules.pop(name, None)


def test_loads_a_function_and_its_neighbours(step_file: Path) -> None:
    build = load_function(parse_target(f"{step_file}:build"))
    assert build(2)() == 3


@pytest.mark.parametrize("text", ["", "train.py", ":build", "train.py:", "train.py:a b", "x:y"])
def test_what_is_not_a_target(text: str) -> None:
    with pytest.raises(InputError, match="is not a training step"):
        parse_target(text)


def test_no_such_file() -> None:
    with pytest.raises(InputError, match=r"There is no file nowhere/train\.py"):
        parse_target("nowhere/train.py:build")


def test_no_such_function_names_the_nearest(step_file: Path) -> None:
    with pytest.raises(NotKnown, match='Did you mean "build"'):
        load_function(parse_target(f"{step_file}:biuld"))


def test_not_a_function(step_file: Path) -> None:
    with pytest.raises(InputError, match=r"VALUE in outlay_step\.py is not a function"):
        load_function(parse_target(f"{step_file}:VALUE"))
