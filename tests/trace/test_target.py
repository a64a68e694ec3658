from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from outlay.errors import InputError, NotKnown
from outlay.plan.prediction import is_code
from outlay.trace.target import (
    load_function,
    marked_batch_size,
    parse_target,
    script_target,
    with_batch_mark,
)

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


@pytest.mark.parametrize(
    ("arguments", "marked", "batch_size"),
    [
        (["--batch-size", "8"], ["--batch-size", "{batch}"], 8),
        (["--lr", "0.1", "--batch_size=12"], ["--lr", "0.1", "--batch_size={batch}"], 12),
        (["-b", "4", "data"], ["-b", "{batch}", "data"], 4),
        (["train.batch_size=3"], ["train.batch_size={batch}"], 3),
        (["--per_device_train_batch_size", "2"], ["--per_device_train_batch_size", "{batch}"], 2),
        (["--eval-batch-size", "7", "--bs", "5"], ["--eval-batch-size", "7", "--bs", "{batch}"], 5),
        (["--batch-size", "{batch}"], ["--batch-size", "{batch}"], None),
        (["--val_batch_size=8", "--name", "a b"], ["--val_batch_size=8", "--name", "a b"], None),
    ],
)
def test_the_batch_size_among_the_arguments_of_a_script(
    step_file: Path, arguments: list[str], marked: list[str], batch_size: int | None
) -> None:
    text = script_target(str(step_file), arguments)
    assert is_code(text)
    target = parse_target(text)
    assert (target.is_script, target.name, list(target.arguments)) == (
        True,
        "outlay_step",
        arguments,
    )
    assert parse_target(target.text) == target
    assert list(with_batch_mark(target).arguments) == marked
    assert marked_batch_size(target) == batch_size


def test_a_script_without_arguments(step_file: Path) -> None:
    assert parse_target(script_target(str(step_file))).is_script
    with pytest.raises(InputError, match="There is no file nowhere.py"):
        parse_target(script_target("nowhere.py", ["--lr", "1"]))


def test_no_such_file() -> None:
    with pytest.raises(InputError, match=r"There is no file nowhere/train\.py"):
        parse_target("nowhere/train.py:build")


def test_no_such_function_names_the_nearest(step_file: Path) -> None:
    with pytest.raises(NotKnown, match='Did you mean "build"'):
        load_function(parse_target(f"{step_file}:biuld"))


def test_not_a_function(step_file: Path) -> None:
    with pytest.raises(InputError, match=r"VALUE in outlay_step\.py is not a function"):
        load_function(parse_target(f"{step_file}:VALUE"))
