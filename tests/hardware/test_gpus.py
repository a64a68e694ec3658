from __future__ import annotations

import pytest
from tests.builders import a_fact, a_gpu

from outlay.errors import FactMissing
from outlay.hardware.gpus import gpus
from outlay.units import GIB


def test_every_row_becomes_a_gpu_with_memory_speed_and_power():
    assert len(gpus()) > 100
    for name, gpu in gpus().items():
        assert gpu.name == name
        assert 0 < gpu.usable_bytes <= gpu.memory_bytes * 1.01
        assert gpu.memory_bytes_per_s > 1e10
        assert gpu.peak("fp32") > 1e12
        assert gpu.tdp_w > 0


@pytest.mark.parametrize(
    ("name", "memory_gib", "gb_per_s", "arithmetic", "tflops"),
    [
        # NVIDIA T4 datasheet: 16 GB GDDR6, 320 GB/s, 65 TFLOPS in fp16
        ("T4", 16, 320, "fp16", 65),
        # NVIDIA L4 datasheet: 24 GB, 300 GB/s, 242 TFLOPS in bf16 with sparsity: 121 dense
        ("L4", 24, 300, "bf16", 121),
        # NVIDIA A100 datasheet: SXM 80 GB, 2039 GB/s, 312 TFLOPS in bf16, dense
        ("A100 80GB SXM", 80, 2039, "bf16", 312),
        # NVIDIA H100 datasheet: SXM 80 GB, 3.35 TB/s, 1979 TFLOPS with sparsity: 989 dense
        ("H100 SXM", 80, 3350, "bf16", 989.5),
    ],
)
def test_gpu_against_its_datasheet(name, memory_gib, gb_per_s, arithmetic, tflops):
    gpu = gpus()[name]
    assert gpu.memory_bytes == memory_gib * GIB
    assert gpu.memory_bytes_per_s == pytest.approx(gb_per_s * 1e9, rel=0.01)
    assert gpu.peak(arithmetic) == pytest.approx(tflops * 1e12, rel=0.01)


def test_a_boards_power_is_shared_by_its_devices():
    # 300 W / 2 = 150 W
    assert a_gpu(board_tdp_w=300, devices_per_board=2).tdp_w == 150


def test_l2_and_nvlink_in_bytes():
    gpu = a_gpu(nvlink_gb_per_s=600)
    assert gpu.l2_bytes == 4 * 1024**2
    assert gpu.nvlink_bytes_per_s == 600e9


@pytest.mark.parametrize("value", [None, "none"])
def test_no_nvlink_is_none(value):
    assert a_gpu(nvlink_gb_per_s=value).nvlink_bytes_per_s is None


@pytest.mark.parametrize(
    ("generation", "lanes", "gb_per_s"),
    [
        (1, 16, 4.0),  # 0.25 x 16
        (2, 16, 8.0),  # 0.5 x 16
        (3, 16, 15.76),  # 0.985 x 16
        (4, 8, 15.76),  # 0.985 x 2 x 8
        (5, 16, 63.04),  # 0.985 x 4 x 16
    ],
)
def test_pcie_bytes_per_s(generation, lanes, gb_per_s):
    assert a_gpu(pcie=(generation, lanes)).pcie_bytes_per_s == pytest.approx(gb_per_s * 1e9)


@pytest.mark.parametrize("pcie", [(None, 16), (4, None)])
def test_pcie_unknown(pcie):
    assert a_gpu(pcie=pcie).pcie_bytes_per_s is None


def test_peak_that_the_hardware_lacks():
    gpu = a_gpu("Old card", facts={"peak_bf16": a_fact("none")})
    with pytest.raises(FactMissing, match='No bf16 peak is known for "Old card"') as caught:
        gpu.peak("bf16")
    assert caught.value.why == "It has no bf16 units."
    assert "fp32, fp16" in caught.value.fix
    assert caught.value.exit_code == 2


def test_peak_that_nobody_knows():
    gpu = a_gpu(facts={"peak_bf16": a_fact(None)})
    with pytest.raises(FactMissing) as caught:
        gpu.peak("bf16")
    assert caught.value.why == ""


@pytest.mark.parametrize(("name", "runs"), [("K80", "no"), ("T4", "yes"), ("H100 SXM", "yes")])
def test_whether_todays_pytorch_runs(name, runs):
    # Compute capability 3.7 is in no build for CUDA 12; 7.5 and 9.0 are.
    software = gpus()[name].software
    assert software.runs == runs
    assert software.source
