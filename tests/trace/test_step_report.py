"""Reports of whole steps: numbers worked out by hand, and the right lines of the user's code."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from tests.trace.together import Together

from outlay.errors import InputError, TraceFailed
from outlay.trace.step_report import CATEGORIES, StepReport, report_from_json, report_to_json
from outlay.trace.target import UNCHANGED
from outlay.trace.tracing import trace_step

pytestmark = pytest.mark.torch

STEPS = Path(__file__).with_name("steps.py")

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.head = nn.Linear(8, 10)

    def forward(self, x):
        y = self.conv(x)
        y = torch.relu(y)
        y = y.mean((2, 3))
        return self.head(y)
"""
TRAIN = """
import torch
from model import Net

def build(batch_size):
    model = Net()
    for p in model.head.parameters():
        p.requires_grad = False
    x = torch.randn(batch_size, 3, 32, 32)
    optimizer = torch.optim.SGD([model.conv.weight], lr=0.1)

    def step():
        scores = model(x)
        wide = scores.repeat(1, 100_000)
        loss = wide.exp().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step

if __name__ == "__main__":
    import outlay
    report = outlay.trace_step(build, 4)
    print(report.name, report.batch_size, report.flops, report.peak.site, report.peak.phase)
"""


def line_of(text: str, code: str) -> int:
    return next(n for n, line in enumerate(text.splitlines(), start=1) if code in line)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "model.py").write_text(MODEL)
    (folder / "train.py").write_text(TRAIN)
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> StepReport:
    return trace_step(f"{folder / 'train.py'}:build", 4)


@cache
def traced(function: str, batch_size: int = 8) -> StepReport:
    return trace_step(f"{STEPS}:{function}", batch_size)


def flops_by_phase(report: StepReport) -> dict[str, float]:
    return {total.phase: total.flops for total in report.phases}


def test_conv_net_by_hand(report: StepReport) -> None:
    # 3 * 8 * 3 * 3 weights of the convolution; 8 * 10 + 10 of the frozen head
    assert (report.parameters, report.trainable_parameters) == (216 + 90, 216)
    # convolution: 2 * 4 samples * 32 * 32 positions * 216; head: 2 * 4 * 8 * 10.
    # Backward: the convolution's weights alone (images need none), and the head's input.
    forward, head = 2 * 4 * 1024 * 216, 2 * 4 * 80
    assert flops_by_phase(report) == {
        "forward": forward + head,
        "backward": forward + head,
        "optimizer": 0,
    }
    assert report.flops == 2 * (forward + head)
    assert report.unknown_ops == {}


def test_lines_of_the_heaviest_are_the_users_own(report: StepReport) -> None:
    conv = line_of(MODEL, "y = self.conv(x)")
    by_flops = report.heaviest_by_flops(2)
    assert {op.name for op in by_flops} == {"aten.convolution", "aten.convolution_backward"}
    assert {str(op.site) for op in by_flops} == {f"model.py:{conv}"}
    assert {op.phase for op in by_flops} == {"forward", "backward"}
    assert by_flops[0].site is not None
    assert (by_flops[0].site.function, by_flops[0].site.code) == ("forward", "y = self.conv(x)")


def test_peak_is_at_the_right_line(report: StepReport) -> None:
    # Scores are repeated to 4 * 1,000,000 floats, exp makes as many, and its backward multiplies
    # them with the incoming gradient into as many again: 3 * 16 MB at that product.
    peak = report.peak
    assert (peak.name, peak.phase) == ("aten.mul", "backward")
    assert str(peak.site) == f"train.py:{line_of(TRAIN, 'wide.exp()')}"
    assert peak.memory.temporaries == 16_000_000
    assert 32_000_000 < peak.memory.activations < 32_300_000
    assert report.timeline.points[peak.operation - 1] == peak


def test_optimizer_belongs_to_its_call(report: StepReport) -> None:
    sites = {str(p.site) for p in report.timeline.points if p.phase == "optimizer"}
    assert sites == {f"train.py:{line_of(TRAIN, 'optimizer.step()')}"}


def test_every_backward_kernel_has_a_forward_line(report: StepReport) -> None:
    backward = [op for op in report.ops if op.phase == "backward"]
    assert backward
    assert all(op.site is not None for op in backward)


def test_callable_is_traced_in_its_own_process(folder: Path, report: StepReport) -> None:
    """As a user runs it: a script that hands over its function."""
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = ["build", "4", report.flops, report.peak.site, report.peak.phase]
    assert done.stdout.split() == list(map(str, expected))


def test_transformer_block_by_hand() -> None:
    batch, length, dim, vocabulary = 8, 64, 32, 100
    tokens = batch * length
    # a block: qkv and out projections, 2 * tokens * dim * (3 dim + dim), and causal attention,
    # two products of 2 * batch * length^2 * dim, halved
    block = 2 * tokens * dim * 4 * dim + 2 * batch * length**2 * dim
    head = 2 * tokens * dim * vocabulary
    forward = 2 * block + head
    # backward doubles products; attention has five there to two forward
    attention = 2 * batch * length**2 * dim
    backward = 2 * forward + 2 * attention // 2
    assert flops_by_phase(traced("transformer")) == {
        "forward": forward,
        "backward": backward,
        "optimizer": 0,
    }


PROFILED = ("linear_sgd", "linear_adam", "transformer", "gan", "lstm")
TOGETHER = Together(STEPS, [(name, (8,), UNCHANGED) for name in PROFILED])


@pytest.mark.parametrize("function", PROFILED)
def test_peak_is_that_of_the_profile(function: str) -> None:
    """The moments of the timeline sum up to the peak that predictions start from."""
    report = traced(function)
    memory = report.peak.memory
    assert sum(getattr(memory, category) for category in CATEGORIES) == memory.peak_bytes
    assert memory == TOGETHER.profile(function, (8,)).memory_at(8)
    assert all(p.memory.peak_bytes <= memory.peak_bytes for p in report.timeline.points)
    assert min(min(_amounts(p.memory)) for p in report.timeline.points) >= 0


def _amounts(memory: object) -> list[float]:
    return [getattr(memory, category) for category in CATEGORIES]


def test_adam_peaks_in_the_optimizer() -> None:
    peak = traced("linear_adam").peak
    assert (peak.phase, peak.site and peak.site.file) == ("optimizer", "steps.py")
    # parameters, gradients and a temporary of 4 MiB each, and two states
    assert peak.memory.optimizer_state >= 2 * 4 * 1024**2
    assert peak.memory.temporaries >= 4 * 1024**2


def test_activations_are_gone_after_the_step() -> None:
    last = traced("linear_sgd").timeline.points[-1].memory
    assert last.activations == 0
    assert last.parameters == last.gradients == 1024 * 512 * 4


def test_a_step_of_500_gigabytes_is_traced_like_any_other() -> None:
    # 100 million rows of 1024 floats, and of 512 floats behind the layer: 6144 bytes each
    peak = traced("linear_sgd", 100_000_000).peak.memory
    assert peak.inputs == 4096 * 100_000_000
    assert 6144 * 100_000_000 <= peak.peak_bytes < 6160 * 100_000_000


def test_several_steps_are_averaged() -> None:
    report = traced("every_fourth")
    assert report.period == 4
    # forward and the weight's gradient: 2 * 8 * 8 * 8 each, and once in four steps twice that
    assert report.flops == 2 * 1024 * (4 + 1) / 4
    assert report.timeline.operations == sum(total.operations for total in report.phases) * 4


def test_unknown_operator_and_its_note() -> None:
    assert traced("own_operator").unknown_ops == {"outlay_tests.twice": 1}


def test_report_survives_json() -> None:
    report = traced("transformer")
    assert report_from_json(report_to_json(report)) == report


@pytest.mark.parametrize(
    ("function", "error", "fragment"),
    [
        ("raises_in_step", TraceFailed, "steps.py"),
        ("raises_in_build", TraceFailed, "no data for 8"),
        ("returns_a_number", InputError, "not a training step"),
        ("aborts", TraceFailed, "SIGABRT"),
        ("transfromer", InputError, 'Did you mean "transformer"'),
    ],
)
def test_failures_are_told(function: str, error: type[Exception], fragment: str) -> None:
    with pytest.raises(error, match=fragment):
        trace_step(f"{STEPS}:{function}", 8)


def test_step_that_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "idle.py"
    path.write_text("def build(batch_size):\n    return lambda: None\n")
    with pytest.raises(InputError, match="runs nothing on the GPU"):
        trace_step(f"{path}:build")


RECOMPUTED = """
import torch
from torch.utils.checkpoint import checkpoint

def block(x, w):
    h = x @ w
    return torch.relu(h)

def build(batch_size, reentrant=False):
    x = torch.randn(batch_size, 64, requires_grad=True)
    w = torch.randn(64, 64, requires_grad=True)
    def step():
        checkpoint(block, x, w, use_reentrant=reentrant).sum().backward()
    return step

def reentrant(batch_size):
    return build(batch_size, True)

def penalised(batch_size):
    x = torch.randn(batch_size, 64, requires_grad=True)
    w = torch.randn(64, 64, requires_grad=True)
    def step():
        (grad,) = torch.autograd.grad(block(x, w).sum(), x, create_graph=True)
        grad.square().sum().backward()
    return step
"""


@pytest.mark.parametrize(
    ("function", "products"),
    [
        ("build", 1 + 1 + 2),  # forward, again in backward, and two gradients
        ("reentrant", 1 + 1 + 2),
        ("penalised", 1 + 1 + 2 + 2),  # forward, gradient of x, two each through both of them
    ],
)
def test_lines_of_graphs_made_in_backward(tmp_path: Path, function: str, products: int) -> None:
    """Nodes made while autograd runs are numbered anew, in its thread."""
    path = tmp_path / "recomputed.py"
    path.write_text(RECOMPUTED)
    report = trace_step(f"{path}:{function}")
    result = [op for op in report.ops if op.name == "aten.mm"]
    assert sum(op.count for op in result) == products
    assert {str(op.site) for op in result} == {f"recomputed.py:{line_of(RECOMPUTED, 'x @ w')}"}


@pytest.mark.parametrize("batch_size", [0, -1, True, "8", 1.5])
def test_what_is_not_a_batch_size(batch_size: object) -> None:
    with pytest.raises(InputError, match="is not a batch size"):
        trace_step("train.py:build", batch_size)  # type: ignore[arg-type]
