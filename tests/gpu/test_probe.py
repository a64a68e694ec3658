"""`outlay probe` on a real GPU, against timing by hand and against largest batches by bisection.

Deselected where there is no GPU; on one: `OUTLAY_TEST_GPU=1 python -m pytest tests/gpu -s`.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outlay.measurement.file import read_measurement
from outlay.measurement.measurement import Measurement

pytestmark = pytest.mark.gpu

HERE = Path(__file__).parent
SCRIPTS = HERE / "scripts"
DATA = HERE.parent / "reference" / "data"
LONGEST_S = 500
PYTHON = (sys.executable,)
COMMANDS = {
    "plain": (*PYTHON, "plain.py"),
    "gan": (*PYTHON, "gan.py"),
    "ddp": ("torchrun", "--nproc-per-node", "1", "ddp.py"),
    "lightning": (*PYTHON, "lightning_fit.py"),
    "trainer": (*PYTHON, "trainer.py"),
    "accelerate": ("accelerate", "launch", "--num_processes", "1", "accelerated.py"),
    "compiled": (*PYTHON, "compiled.py"),
    "scaler": (*PYTHON, "scaler.py"),
    "graphed": (*PYTHON, "graphed.py"),
    "within": (*PYTHON, "within.py"),
    "sharded": ("torchrun", "--nproc-per-node", "1", "sharded.py"),
    "reduced": (*PYTHON, "reduced.py"),
}
"""Scripts that the GPU limits: a host that is the limit varies by itself from run to run."""
PRECISION = 0.02


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=SCRIPTS,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        check=False,
    )


def probed(
    out: Path, command: tuple[object, ...], *options: object, **environment: str
) -> Measurement:
    probe = (*PYTHON, "-m", "outlay", "probe", "--json", out, *options)
    done = run(*probe, "--", *command, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return read_measurement(out)


@pytest.mark.parametrize("name", COMMANDS)
def test_step_time_is_that_of_a_measurement_by_hand(name: str, tmp_path: Path) -> None:
    done = run(*COMMANDS[name], HAND=str(tmp_path / "hand.json"))
    assert done.returncode == 0, done.stderr[-3000:]
    hand = json.loads((tmp_path / "hand.json").read_bytes())
    measurement = probed(tmp_path / "probe.json", COMMANDS[name])
    step, finding = measurement.step, measurement.finding
    assert step is not None
    ratio = step.mean_s / hand["step_s"]
    series = ", ".join(f"{time_s * 1e3:.2f}" for time_s in hand["series_s"])
    sys.stderr.write(
        f"\n{name}: by hand {hand['step_s'] * 1e3:.3f} ms ({series}), probed "
        f"{step.mean_s * 1e3:.3f} ± {step.precision:.1%}, ratio {ratio:.4f}, "
        f"busy {(measurement.busy_s or 0) * 1e3:.2f} ms, by {finding and finding.holder}\n"
    )
    assert (measurement.profile is None) == (name == "graphed")  # a graph's operations are not seen
    assert ratio == pytest.approx(1, abs=PRECISION)


@pytest.mark.parametrize(
    ("script", "holder"), [("starved.py", "input"), ("tiny.py", "host"), ("plain.py", "gpu")]
)
def test_what_holds_a_script_back(script: str, holder: str, tmp_path: Path) -> None:
    """And its step time is what the script itself sees meanwhile, whatever holds it back."""
    hand = tmp_path / "hand.json"
    options = ("--for", "12s")
    measurement = probed(
        tmp_path / "probe.json", (*PYTHON, script), *options, HAND=str(hand), ALONG="1"
    )
    assert measurement.finding is not None
    assert measurement.finding.holder == holder
    assert measurement.step is not None
    step_s = json.loads(hand.read_bytes())["step_s"]
    sys.stderr.write(
        f"\n{script}: itself {step_s * 1e3:.3f} ms, probed {measurement.step.mean_s * 1e3:.3f}"
    )
    sys.stderr.write(
        f" ± {measurement.step.precision:.1%}, ratio {measurement.step.mean_s / step_s:.4f}\n"
    )
    assert measurement.step.mean_s == pytest.approx(step_s, rel=PRECISION)


@pytest.mark.parametrize(
    ("arguments", "arithmetic", "said", "unsaid"),
    [
        (("matmul",), "fp32", "It computes in fp32", "TF32 ("),
        (("matmul", "high"), "tf32", "It computes in TF32", "fp32"),
        (("matmul", "new"), "tf32", "It computes in TF32", "fp32"),
        (("conv",), "tf32", "It computes in TF32", "fp32"),  # as torch has it by default
        (("conv", "off"), "fp32", "cudnn.allow_tf32 = True", "set_float32"),
        (("both",), None, "set_float32_matmul_precision", "cudnn.allow_tf32"),
    ],
)
def test_products_are_called_by_how_they_ran(
    arguments: tuple[str, ...], arithmetic: str | None, said: str, unsaid: str, tmp_path: Path
) -> None:
    """An H200 has TF32: a script that uses it is not told that it computes in fp32."""
    command = (*PYTHON, "products.py", *arguments)
    measurement = probed(tmp_path / "probe.json", command, "--for", "6s")
    shares, finding = measurement.arithmetic, measurement.finding
    assert shares is not None
    assert finding is not None
    assert finding.holder == "gpu"
    cures = " ".join(finding.cures)
    sys.stderr.write(f"\n{' '.join(arguments)}: {dict(shares)}: {finding.cures[0]}\n")
    if arithmetic is None:
        assert set(shares) == {"fp32", "tf32"}
    else:
        assert shares[arithmetic] > 0.99
    assert said in cures
    if said != "It computes in fp32":  # there, TF32 is what is suggested
        assert unsaid not in cures


def test_what_cudnn_takes_to_try_algorithms_is_no_need(tmp_path: Path) -> None:
    done = run(*PYTHON, "searched.py", HAND=str(tmp_path / "hand.json"))
    assert done.returncode == 0, done.stderr[-3000:]
    hand = json.loads((tmp_path / "hand.json").read_bytes())
    peaks = tmp_path / "peaks.json"
    command = (*PYTHON, "searched.py")
    measurement = probed(tmp_path / "probe.json", command, "--for", "10s", PEAKS=str(peaks))
    own, memory = json.loads(peaks.read_bytes()), measurement.memory
    sys.stderr.write(f"\nby hand {hand}\nprobed {memory}\nthe script reads {own}\n")
    # The script shows what it is meant to show: its search takes much more than its steps.
    assert hand["whole"]["reserved"] > 1.3 * hand["later"]["reserved"]
    assert memory.allocated_bytes == pytest.approx(hand["later"]["allocated"], rel=0.02)
    assert memory.reserved_bytes == pytest.approx(hand["later"]["reserved"], rel=0.05)
    assert memory.search_bytes is not None
    assert memory.search_bytes == pytest.approx(hand["whole"]["reserved"], rel=0.05)
    assert memory.used_bytes is None or memory.used_bytes < memory.search_bytes
    # What the script reads of itself is as without outlay: the peak of the whole run.
    for name in ("allocated", "reserved"):
        assert own[name] == pytest.approx(hand["whole"][name], rel=0.05)


def caps() -> list[tuple[str, int, int]]:
    with (DATA / "h200_largest_calibration_2026-11.csv").open(newline="") as file:
        return [
            (row["workload"], int(row["cap_mib"]), int(row["max_batch"]))
            for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize(("workload", "cap_mib", "largest"), caps())
def test_largest_batch(workload: str, cap_mib: int, largest: int, tmp_path: Path) -> None:
    out = tmp_path / "batches.json"
    options = ("--find-batch", "batch", "--memory-cap-mib", cap_mib, "--json", out)
    command = (*PYTHON, "workload.py", workload, "--batch-size", "{batch}")
    done = run(*PYTHON, "-m", "outlay", "probe", *options, "--", *command)
    assert done.returncode == 0, done.stderr[-3000:]
    search = json.loads(out.read_bytes())
    trials = [(trial["batch_size"], trial["outcome"]) for trial in search["trials"]]
    sys.stderr.write(f"\n{workload} under {cap_mib} MiB: {largest}, found {search['largest']}")
    sys.stderr.write(f" in {len(trials)} trials {trials}\n")
    assert search["is_finished"]
    assert search["fails_at"] - search["largest"] <= max(0.02 * search["largest"], 1)
    assert len(trials) <= 6
    # The truth itself is known to 1/64: a larger batch that ran is no mistake.
    assert search["largest"] >= largest - max(0.02 * largest, 1)
