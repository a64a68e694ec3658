"""What cannot be traced is named with file and line and a way round it; nothing is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from outlay.errors import OutlayError, TraceFailed
from outlay.trace.tracing import trace_step

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
HEAD = """
import os, sys
import torch
from torch import nn

def _run(inner):
    model = nn.Linear(8, 8)
    def step():
        inner(model)
    return step
"""


def failure(folder: Path, text: str, **options: object) -> OutlayError:
    path = folder / "train.py"
    path.write_text(HEAD + text)
    with pytest.raises(OutlayError) as raised:
        trace_step(f"{path}:build", 4, **options)
    return raised.value


OPERATOR = """
library = torch.library.Library("my_kernels", "FRAGMENT")
library.define("swirl(Tensor x) -> Tensor")
library.impl("swirl", lambda x: x, "CUDA")

def build(n):
    x = torch.randn(n, 8)
    return lambda: torch.ops.my_kernels.swirl(x)
"""
EXITS = "def build(n):\n    return _run(lambda model: os._exit(3))\n"
LEAVES = "def build(n):\n    return _run(lambda model: sys.exit('enough'))\n"
READS = "def build(n):\n    return _run(lambda model: input('continue?'))\n"
RECURSES = """
def again(x):
    return again(x) + 1

def build(n):
    x = torch.randn(n, 8)
    return lambda: again(x)
"""
TOO_BIG = "everything = torch.zeros(2**62, dtype=torch.uint8)\n\ndef build(n): ...\n"
BROKEN = (
    "raise ImportError('libmine.so: cannot open shared object file')\n\ndef build(n):\n    pass\n"
)
GRAPH = "def build(n):\n    return _run(lambda model: torch.cuda.CUDAGraph())\n"
NESTED = """
def build(n):
    rows = [torch.randn(k, 8) for k in (3, 5)]
    return lambda: torch.nested.nested_tensor(rows, layout=torch.jagged).sum()
"""
FLOWS = """
def build(n):
    x = torch.randn(n, 8)
    def step():
        return x.view(int(x.sum()) + 3, -1)
    return step
"""


@pytest.mark.parametrize(
    ("text", "where", "why", "way_round"),
    [
        (OPERATOR, "train.py:", "my_kernels.swirl", 'outlay.register_op("my_kernels::swirl"'),
        (EXITS, "status 3", "", "os._exit"),
        (LEAVES, "train.py:", "enough", "sys.exit"),
        (READS, "train.py:", "EOFError", "no terminal"),
        (RECURSES, "train.py:", "RecursionError", "calls itself"),
        (TOO_BIG, "train.py:", "memory", "inside the function"),
        (BROKEN, "train.py:", "libmine.so", "Build it for this torch"),
        (GRAPH, "train.py:", "its replay shows no operations", "without the graph"),
        (NESTED, "train.py:", "", "Nested tensors cannot be traced"),
        (FLOWS, "train.py:", "shape '[3, -1]'", "values or devices that a trace does not have"),
    ],
    ids=["operator", "exit", "leave", "read", "recurse", "big", "so", "graph", "nested", "flow"],
)
def test_is_named_with_a_way_round(
    tmp_path: Path, text: str, where: str, why: str, way_round: str
) -> None:
    error = failure(tmp_path, text)
    assert where in error.what
    assert why in error.why
    assert way_round in error.fix
    assert "Traceback" not in str(error)


TRITON = """
import triton

def build(n):
    return _run(lambda model: triton.launch())
"""


def test_a_triton_kernel(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "triton"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "def launch():\n    raise RuntimeError('0 active drivers ([]).')\n"
    )
    text = f"sys.path.insert(0, {str(package.parent)!r})\n" + TRITON
    assert "A Triton kernel runs on a GPU alone" in failure(tmp_path, text).fix


PLEASANT = {
    "closes": "sys.stdout.close(); os.close(1)",
    "prints": "print('x' * 5_000_000)",
    "spawns": "_spawn()",
}


@pytest.mark.parametrize("what", PLEASANT)
def test_does_no_harm(tmp_path: Path, what: str) -> None:
    """A step that closes its output, prints megabytes, or leaves a process behind."""
    path = tmp_path / "train.py"
    path.write_text(
        HEAD
        + f"""
import subprocess

def _spawn():
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open({str(tmp_path / "pid")!r}, "w") as file:
        file.write(str(left.pid))

def build(n):
    model, x = nn.Linear(8, 8), torch.randn(n, 8)
    def step():
        model(x).sum().backward()
        if not done:
            {PLEASANT[what]}
        done.append(1)
    done = []
    return step
"""
    )
    assert trace_step(f"{path}:build", 4).parameters == 72
    if what == "spawns":
        assert _is_gone(int((tmp_path / "pid").read_text()))


def _is_gone(pid: int) -> bool:
    for _ in range(50):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


ENDLESS = """
def build(n):
    with open("pid", "w") as file:
        file.write(str(os.getpid()))
    def step():
        while True:
            pass
    return step
"""


def test_a_trace_may_take_so_long(tmp_path: Path) -> None:
    error = failure(tmp_path, ENDLESS.replace('open("pid"', "open(os.devnull"), timeout_s=3)
    assert isinstance(error, TraceFailed)
    assert "ended after 3 s" in error.what
    assert "--timeout" in error.fix


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_process_behind(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "train.py").write_text(HEAD + ENDLESS)
    program = subprocess.Popen(
        [sys.executable, "-m", "outlay", "trace", "train.py:build"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Shells have what they run in the background ignore SIGINT; this one is to heed it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    pid = tmp_path / "pid"
    for _ in range(300):
        if pid.exists() and pid.read_text():
            break
        time.sleep(0.1)
    program.send_signal(number)
    _out, err = program.communicate(timeout=20)
    if number == signal.SIGINT:
        assert program.returncode == 130
        assert err.splitlines()[-1] == "outlay: Interrupted."
        assert "Traceback" not in err
    assert _is_gone(int(pid.read_text()))


REGISTERED = """
import outlay

library = torch.library.Library("my_kernels", "FRAGMENT")
library.define("swirl(Tensor x) -> Tensor")

@torch.library.register_fake("my_kernels::swirl")
def _(x):
    return torch.empty_like(x)

outlay.register_op("my_kernels::swirl", flops=lambda x, out: 7 * x.shape[0], kind="gemm")

def build(n):
    x = torch.randn(n, 8)
    return lambda: torch.ops.my_kernels.swirl(x)
"""


def test_an_operator_registered_in_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + REGISTERED)
    report = trace_step(f"{path}:build", 4)
    assert report.flops == 7 * 4
    assert report.unknown_ops == {}


def test_an_unknown_operator_hides_a_share(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    unregistered = REGISTERED.replace("outlay.register_op", "(lambda *_, **__: None)")
    path.write_text(HEAD + unregistered.replace("return lambda: ", "return lambda: 1 + "))
    report = trace_step(f"{path}:build", 4)
    # swirl reads and writes 4 x 8 floats, as the sum does
    assert report.unknown_ops == {"my_kernels.swirl": 1}
    assert report.unknown_moved_fraction == 0.5


HOST = """
@torch.library.custom_op("my_host::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x

def build(n):
    x = torch.randn(n, 8)
    return lambda: twice(x)
"""


def test_an_operator_that_runs_on_the_host_shows_its_shape(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + HOST)
    report = trace_step(f"{path}:build", 4)
    assert report.unknown_ops == {"my_host.twice": 1}
    assert "found by running it on the host" in " ".join(report.notes)
