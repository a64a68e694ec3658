"""Scripts traced as they are: what a step is, at which batch size, and what is left alone."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from outlay.errors import OutlayError, TraceFailed
from outlay.trace.target import script_target
from outlay.trace.tracing import histories_of, profile_of, trace_step

pytestmark = pytest.mark.torch

SCRIPTS = Path(__file__).parent / "scripts"


def script(name: str, *arguments: str) -> str:
    return script_target(str(SCRIPTS / name), arguments)


def linear_flops(samples: int, inputs: int, outputs: int) -> int:
    return 2 * samples * inputs * outputs


def classifier_flops(samples: int) -> int:
    """Forward, and backward to all weights, and to the input of the second layer."""
    first, second = linear_flops(samples, 64, 256), linear_flops(samples, 256, 10)
    return 2 * first + 3 * second


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_script_with_a_loader_needs_no_glue_and_writes_nothing(folder: Path) -> None:
    log = folder / "runs" / "log.txt"
    log.parent.mkdir()
    log.write_text("of an earlier run\n")
    report = trace_step(script("classifier.py"))
    assert (report.name, report.batch_size, report.period) == ("classifier", 16, 1)
    assert report.flops == classifier_flops(16)
    assert report.parameters == 64 * 256 + 256 + 256 * 10 + 10
    # Parameters, gradients and two moments; the activations are small.
    assert report.peak.memory.optimizer_state == pytest.approx(2 * 4 * report.parameters, rel=0.05)
    heaviest = report.ops[0].site
    assert heaviest is not None
    assert "model(inputs)" in heaviest.code
    assert "The batch size is 16, the script's option batch_size." in report.notes
    assert log.read_text() == "of an earlier run\n"
    assert sorted(path.name for path in folder.rglob("*")) == ["log.txt", "runs"]


def test_a_script_at_any_batch_size_by_its_own_option(folder: Path) -> None:
    """Also at one above its 24 samples, which drop_last would leave without a batch."""
    profile = profile_of(script("classifier.py", "--out", "elsewhere"))
    assert profile.at(16).flops == classifier_flops(16)
    assert profile.at(1000).flops == classifier_flops(1000)
    assert profile.history is not None
    (history,) = histories_of(script("classifier.py"), [48]).values()
    assert history.events


def test_a_script_at_any_batch_size_by_its_arguments(folder: Path) -> None:
    profile = profile_of(script("language_model.py", "--batch_size=3"))
    # The samples of all four micro-batches are those of a step.
    assert profile.at(12).flops == 3 * linear_flops(12 * 16, 32, 100)
    assert profile.at(60).flops == 3 * linear_flops(60 * 16, 32, 100)
    assert profile.notes[0] == (
        "The batch size is 3, by the script's arguments, 12 samples a step."
    )


def test_a_script_without_loader_or_option_is_scaled_from_its_own_size(folder: Path) -> None:
    """Its two hundred batches of evaluation are answered from the first few."""
    profile = profile_of(script("language_model.py"))
    assert profile.at(24).flops == 3 * linear_flops(24 * 16, 32, 100)
    assert profile.at(48).flops == pytest.approx(3 * linear_flops(48 * 16, 32, 100))
    assert profile.notes[0].startswith("The batch size is taken to be 6")


def test_several_optimizers_make_one_step_and_a_penalty_its_share(folder: Path) -> None:
    report = trace_step(script("many_networks.py"))
    assert (report.batch_size, report.period) == (4, 4)
    (optimizer,) = [total for total in report.phases if total.phase == "optimizer"]
    one = trace_step(script("many_networks.py", "9"))
    assert one.period in (1, 4)
    # Six optimizer steps, each of a few multi-tensor kernels, in a training step.
    assert optimizer.operations % 6 == 0


MISSING = "import torch\nopen('images/list.txt')\n"
REFUSES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args()
"""
NOTHING = "import torch\ntorch.rand(3).cuda()\n"
STARTS = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'pass'])\n"
FEW = """
import torch
layer = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
layer(torch.rand(2, 4).cuda()).sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (MISSING, ["train.py:2", "images/list.txt", "put it where the script looks for it"]),
        (REFUSES, ["left with status 2", "--data", "arguments that it needs after --"]),
        (NOTHING, ["without a training step", "No optimizer of torch"]),
        (STARTS, ["without a training step of its own", "Trace the script that trains"]),
        (FEW, ["after 1 optimizer step", "at least four steps"]),
    ],
)
def test_why_a_script_cannot_be_traced_and_what_to_do(
    folder: Path, text: str, words: list[str]
) -> None:
    (folder / "train.py").write_text(text)
    with pytest.raises(OutlayError) as raised:
        trace_step(script_target(str(folder / "train.py")))
    error = raised.value
    for word in words:
        assert word in f"{error.what} {error.why} {error.fix}"


NEVER_ENDS = "import time\nopen('log.txt', 'w').write('x')\nwhile True:\n    time.sleep(0.1)\n"


def test_a_script_that_is_given_up_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "train.py").write_text(NEVER_ENDS)
    temporary = folder / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with pytest.raises(TraceFailed, match="ended after 6 s"):
        trace_step(script_target("train.py"), timeout_s=6)
    assert list(temporary.glob("outlay-*")) == []
    assert sorted(path.name for path in folder.iterdir()) == ["temporary", "train.py"]


LAUNCHED = """
import os
import torch
import torch.multiprocessing as mp
import torch.distributed as dist

def main(rank, world_size):
    os.environ["MASTER_ADDR"] = "localhost"
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    layer = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).to(rank))
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    while True:
        layer(torch.rand(int(os.environ["WORLD_SIZE"]) * 5, 8, device=rank)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    mp.spawn(main, args=(int(os.environ["WORLD_SIZE"]),), nprocs=2)
"""


def test_a_script_that_a_launcher_would_start_is_the_first_of_one(folder: Path) -> None:
    (folder / "train.py").write_text(LAUNCHED)
    report = trace_step(script_target("train.py"))
    assert report.batch_size == 5
    assert report.flops == 2 * linear_flops(5, 8, 8)
    assert any("RANK" in note for note in report.notes)


def test_the_script_is_not_run_in_this_folder_alone(tmp_path: Path) -> None:
    """Modules beside it are found, as by `python path/to/train.py`."""
    shutil.copy(SCRIPTS / "classifier.py", tmp_path / "train.py")
    text = (tmp_path / "train.py").read_text().replace("nn.ReLU()", "Beside()")
    (tmp_path / "train.py").write_text("from beside import Beside\n" + text)
    (tmp_path / "beside.py").write_text("from torch.nn import ReLU as Beside\n")
    assert trace_step(script_target(str(tmp_path / "train.py"))).flops == classifier_flops(16)
