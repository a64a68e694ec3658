"""Which files are the user's own, what they are called, and that a trace names their lines."""

from __future__ import annotations

import json
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.trace.sweep import notes_text

from outlay.errors import TraceFailed
from outlay.trace.own_files import OwnFiles, library_name
from outlay.trace.step_report import StepReport
from outlay.trace.tracing import trace_step


def written(path: Path, text: str = "") -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_files_of_the_folder_and_of_another_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    glue = written(tmp_path / "glue" / "step.py")
    beside = written(tmp_path / "glue" / "parts" / "loss.py")
    submodule = written(tmp_path / "glue" / "third_party" / "net" / "blocks.py")
    checkout = written(tmp_path / "checkout" / "models" / "wide.py")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "checkout"), *sys.path])
    files = OwnFiles(glue)
    assert files.name_of(glue) == "step.py"
    assert files.name_of(beside) == "parts/loss.py"
    assert files.name_of(submodule) == "third_party/net/blocks.py"
    assert files.name_of(checkout) == "models/wide.py"


def test_an_editable_install_is_named_from_above_its_package(tmp_path: Path) -> None:
    glue = written(tmp_path / "glue" / "step.py")
    written(tmp_path / "src" / "package" / "__init__.py")
    written(tmp_path / "src" / "package" / "nets" / "__init__.py")
    layers = written(tmp_path / "src" / "package" / "nets" / "layers.py")
    assert OwnFiles(glue).name_of(layers) == "package/nets/layers.py"


def test_two_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = OwnFiles(written(tmp_path / "glue" / "model.py"))
    assert files.name_of(str(tmp_path / "glue" / "model.py")) == "model.py"
    assert files.name_of(written(tmp_path / "yours" / "model.py")) == "yours/model.py"
    assert files.name_of(written(tmp_path / "b" / "yours" / "model.py")) == "b/yours/model.py"


def test_what_is_not_the_users_own(tmp_path: Path) -> None:
    files = OwnFiles(written(tmp_path / "step.py"))
    library = written(tmp_path / "lib" / "site-packages" / "nets" / "wide.py")
    for other in (library, json.__file__, __import__("outlay").__file__, "<string>", "<frozen os>"):
        assert files.name_of(other) is None
    command = str(Path(sysconfig.get_path("scripts")) / "outlay")
    assert files.name_of(command) is None
    assert library_name(library) == "nets/wide.py"
    assert library_name("/x/site-packages/torch/nn/functional.py") is None
    assert library_name(str(tmp_path / "step.py")) is None


def line_of(text: str, code: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if code in line)


BLOCKS = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width, bias=False)
        self.second = nn.Linear(width, 2 * width, bias=False)
        self.third = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x)
        return self.third(x)

    def broken(self, x):
        raise ValueError("not today")
"""
GLUE = """
import sys
import torch
sys.path.insert(0, {path!r})
from nets.blocks import Net

def build(batch_size):
    model, x = Net(16), torch.randn(batch_size, 16)

    def step():
        loss = model(x).sum()
        loss.backward()

    return step

def fails(batch_size):
    model, x = Net(16), torch.randn(batch_size, 16)
    return lambda: model.broken(x)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projects")


def traced(folder: Path, root: str, function: str = "build") -> StepReport:
    written(folder / root / "nets" / "blocks.py", BLOCKS)
    glue = GLUE.format(path=str(folder / root))
    return trace_step(f"{written(folder / f'glue_{len(root)}' / 'step.py', glue)}:{function}", 8)


def products(report: StepReport) -> set[tuple[str, str]]:
    """The phase and line of every matrix product."""
    return {(op.phase, str(op.site)) for op in report.ops if op.name == "aten.mm"}


LINES = [
    f"nets/blocks.py:{line_of(BLOCKS, code)}" for code in ("first(x)", "second(x)", "third(x)")
]


@pytest.mark.torch
def test_lines_of_a_model_in_another_checkout_are_in_the_trace(folder: Path) -> None:
    report = traced(folder, "checkout")
    expected = {(phase, line) for phase in ("forward", "backward") for line in LINES}
    assert products(report) == expected
    # the sum that ends it is the glue's own
    summed = next(op for op in report.ops if op.name == "aten.sum")
    assert str(summed.site) == f"step.py:{line_of(GLUE, 'model(x).sum()')}"


@pytest.mark.torch
def test_a_failure_names_the_line_of_the_other_checkout(folder: Path) -> None:
    line = line_of(BLOCKS, "not today")
    with pytest.raises(TraceFailed, match=rf"nets/blocks\.py:{line} \(raise ValueError"):
        traced(folder, "checkout", "fails")


@pytest.mark.torch
def test_a_librarys_lines_stand_for_the_one_line_that_calls_its_model(folder: Path) -> None:
    report = traced(folder, "lib/site-packages")
    assert {line for _, line in products(report)} == set(LINES)
    line = line_of(GLUE, "model(x).sum()")
    assert f"that step.py:{line} (loss = model(x).sum()) calls" in notes_text(report)
