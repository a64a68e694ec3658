"""Every example in a shell or Python block of a page runs, unless its block says why not.

A block that cannot be run has `skip="needs a GPU"` behind its language. One with a title is a file
that examples name: `title="quotes.csv"`.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.docs.pages import PAGES, ROOT, Block, blocks, name_of
from tests.measured import a_measurement

import outlay
from outlay.cli.main import cli
from outlay.facts import DATA
from outlay.measurement.file import write_measurement
from outlay.trace.store import find_profile

SHELLS = ("sh", "console", "shell", "bash")
BLOCKS = [block for page in PAGES for block in blocks(page)]
SKIPPED = [block for block in BLOCKS if block.skipped]
ELSEWHERE = {
    "LightningProbe": "tests/inline/test_lightning.py",
    "TrainerProbe": "tests/inline/test_transformers.py",
}
"""Python blocks that need a library of their own, and the test that runs them."""
TRAIN = """
from train import training_step

def train():
    step = training_step(4)
    for _ in range(300):
        step()
"""
"""What a Python block may take as given."""
PROGRAMS = {"outlay": "-m outlay", "python": "", "torchrun": "-m torch.distributed.run"}
"""What examples call, as arguments of Python."""


def commands(block: Block) -> list[str]:
    """The outlay commands of a shell block, without their comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [
        shlex.join(shlex.split(line, comments=True)) if _is_plain(line) else line
        for line in (line.removeprefix("$ ") for line in lines)
        if line.startswith("outlay ")
    ]


def _is_plain(line: str) -> bool:
    """Whether a line is one command, with nothing that only a shell understands."""
    words = shlex.split(line, comments=True)
    return not {"|", ">", "&&", ";"} & {*words}


RUN = [block for block in BLOCKS if not block.skipped]
LINES = sorted({line for block in RUN if block.language in SHELLS for line in commands(block)})
TRAINING = [line for line in LINES if "train.py" in line or not _is_plain(line)]
PYTHON = [block for block in RUN if block.language == "python"]


@pytest.fixture
def bench(tmp_path, monkeypatch) -> Path:
    """A folder with all that examples name: a workload, a measurement, a script, a profile, and
    the files that pages show."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    shutil.copy(DATA / "template.toml", tmp_path / "outlay.toml")
    shutil.copy(DATA / "profiles" / "resnet50.json.gz", tmp_path / "mine.json.gz")
    shutil.copy(Path(__file__).parent / "train.py", tmp_path)
    write_measurement(a_measurement(profile=find_profile("resnet50")), tmp_path / "probe.json")
    for block in BLOCKS:
        if block.title:
            (tmp_path / block.title).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def with_two_processes(line: str) -> str:
    """A line with two processes where it has four: each imports torch."""
    return line.replace("--nproc-per-node 4 ", "--nproc-per-node 2 ")


def apart(command: list[str], folder: Path) -> None:
    """Run a command in a process of its own, where `outlay`, `python` and `torchrun` are found."""
    programs = folder / "programs"
    programs.mkdir()
    for name, words in PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        (programs / name).chmod(0o755)
    path = os.pathsep.join((str(programs), os.environ["PATH"]))
    source = str(Path(outlay.__file__).parents[1])
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path, "PYTHONPATH": source, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


@pytest.mark.parametrize("line", [line for line in LINES if line not in TRAINING])
def test_examples_run(line, bench):
    words = shlex.split(line)[1:]
    if words == ["init"]:
        (bench / "outlay.toml").unlink()
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output


@pytest.mark.torch
@pytest.mark.parametrize("line", TRAINING)
def test_examples_with_a_script_run(line, bench):
    apart(["bash", "-c", with_two_processes(line)], bench)


@pytest.mark.torch
@pytest.mark.parametrize(
    "block", PYTHON, ids=lambda block: f"{name_of(block.page)}: {block.text.splitlines()[-1]}"
)
def test_python_blocks_run(block, bench):
    for word, test in ELSEWHERE.items():
        if word in block.text:
            assert f'documented("{word}")' in (ROOT / test).read_text(encoding="utf-8")
            return
    (bench / "block.py").write_text(TRAIN + block.text)
    apart(["python", "block.py"], bench)


def test_there_are_examples_of_every_kind():
    assert len(LINES) >= 30
    assert len(TRAINING) >= 6
    assert len(PYTHON) >= 3


def test_few_blocks_are_left_out_and_each_says_why():
    assert len(SKIPPED) <= 10  # a run that is launched really starts, a machine is rented
    for block in BLOCKS:
        assert ("skip" in block.options) == bool(block.skipped), block
