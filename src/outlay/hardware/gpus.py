"""GPUs as the facts table knows them, one value per row, in outlay's own units.

A `Gpu` is one device as CUDA or HIP shows it. Boards that carry several (K80, M60, A16, MI250)
are described per device, except what belongs to the board: power, connectors, width, prices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from outlay.errors import FactMissing
from outlay.facts import NONE, Fact, fact_of, rows_of
from outlay.units import GB, GIB, MIB, TERA

PEAKS = {
    "fp64": "peak_fp64",
    "fp64_tensor": "peak_fp64_tensor",
    "fp32": "peak_fp32",
    "tf32": "peak_tf32",
    "fp16": "peak_fp16",
    "bf16": "peak_bf16",
    "fp16_fp16acc": "peak_fp16_fp16acc",
    "int8": "peak_int8",
    "fp8": "peak_fp8",
}
"""Arithmetic by name, and the row that holds its dense peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Whether today's PyTorch runs on a GPU: a row of `data/software.csv`."""

    runs: str
    """`yes`, `old builds`, `special build`, `no` or `unknown`."""
    source: str
    as_of: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Libraries:
    """What CUDA, cuBLAS and torch take or choose on a GPU: rows of `data/libraries.csv`."""

    context_bytes: int
    """In use beside what torch's allocator reserves, once a step has run."""
    cublas_bytes: int
    """The workspace of one cuBLAS handle."""
    attention_fp16: str
    attention_bf16: str
    """The backend of unmasked attention: `cudnn`, `flash`, `efficient` or `math`."""
    threads_per_sm: int


Reach = Literal[
    "all",  # NVLink or Infinity Fabric between all GPUs of a machine, by switches
    "mesh",  # the same by direct links, so that few GPUs use few of them
    "pair",  # between two cards, by a bridge
    "none",
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gpu:
    """One GPU device: what it holds, how fast it computes and reads, what it draws."""

    name: str
    vendor: str
    architecture: str
    form: str
    devices_per_board: int
    memory_bytes: int
    """Nominal memory, as sold."""
    usable_bytes: int
    """What CUDA reports as total to a process, before the context takes its part."""
    memory_bytes_per_s: float
    sm_count: int
    boost_hz: float
    peak_flops_per_s: Mapping[str, float]
    """Dense peaks by arithmetic; one that is missing does not exist in this hardware."""
    board_tdp_w: float
    compute_capability: str
    software: Software
    libraries: Libraries
    peer_to_peer: bool | None
    """Whether drivers let two of them copy over PCIe without the host's memory; None: unknown."""
    nvlink_reach: Reach
    facts: Mapping[str, Fact]

    @property
    def tdp_w(self) -> float:
        """Power limit of one device: the board's, shared by its devices."""
        return self.board_tdp_w / self.devices_per_board

    @property
    def runs_pytorch(self) -> bool:
        """Whether today's PyTorch runs on it, as far as is known, whoever made it."""
        return self.software.runs != "no"

    @property
    def l2_bytes(self) -> float | None:
        """Size of the L2 cache."""
        return _scaled(self.facts["l2_size"], MIB)

    @property
    def nvlink_bytes_per_s(self) -> float | None:
        """NVLink or Infinity Fabric, both directions together; None without, or unknown."""
        return _scaled(self.facts["nvlink_bandwidth"], GB)

    @property
    def pcie_bytes_per_s(self) -> float | None:
        """PCIe in one direction, raw: a lane of generation 3 carries 0.985 GB/s, then doubling.

        Source: PCI-SIG; 8 GT/s with 128b/130b coding for generation 3.
        """
        generation = self.facts["pcie_generation"].number
        lanes = self.facts["pcie_lanes"].number
        if generation is None or lanes is None:
            return None
        per_lane = {1: 0.25e9, 2: 0.5e9}.get(int(generation), 0.985e9 * 2 ** (generation - 3))
        return lanes * per_lane

    def peak(self, arithmetic: str) -> float:
        """Dense peak of one kind of arithmetic, in FLOP/s."""
        if arithmetic not in self.peak_flops_per_s:
            fact = self.facts.get(PEAKS.get(arithmetic, ""))
            lacks = fact is not None and fact.text == NONE
            raise FactMissing(
                f'No {arithmetic} peak is known for "{self.name}".',
                why=f"It has no {arithmetic} units." if lacks else "",
                fix=f"Known: {', '.join(self.peak_flops_per_s)}.",
            )
        return self.peak_flops_per_s[arithmetic]


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every GPU in the facts table, by name."""
    facts: dict[str, dict[str, Fact]] = {}
    for row in rows_of("gpus.csv"):
        facts.setdefault(row["gpu"], {})[row["parameter"]] = fact_of(row)
    return {name: _gpu(name, of_gpu) for name, of_gpu in facts.items()}


def _gpu(name: str, facts: Mapping[str, Fact]) -> Gpu:
    peaks = {kind: _scaled(facts[row], TERA) for kind, row in PEAKS.items()}
    return Gpu(
        name=name,
        vendor=_text(facts["vendor"]),
        architecture=_text(facts["architecture"]),
        form=_text(facts["form"]),
        devices_per_board=int(_needed(name, "devices_per_board", facts)),
        memory_bytes=round(_needed(name, "memory_nominal", facts) * GIB),
        usable_bytes=round(_needed(name, "memory_usable", facts) * MIB),
        memory_bytes_per_s=_needed(name, "memory_bandwidth", facts) * GB,
        sm_count=int(_needed(name, "sm_count", facts)),
        boost_hz=_needed(name, "boost_clock", facts) * 1e6,
        peak_flops_per_s={kind: peak for kind, peak in peaks.items() if peak is not None},
        board_tdp_w=_needed(name, "tdp", facts),
        compute_capability=_text(facts["compute_capability"]),
        software=_software(name, _text(facts["vendor"]), _text(facts["compute_capability"])),
        libraries=_libraries(_text(facts["vendor"]), _text(facts["compute_capability"])),
        peer_to_peer=_PEERS.get(_link(name, "peer_to_peer")),
        nvlink_reach=_reach(_link(name, "nvlink_reach"), _link(name, "nvlink_topology")),
        facts=facts,
    )


_PEERS = {"yes": True, "no": False}


def _link(name: str, parameter: str) -> str:
    """What the first row that fits a GPU says about its links; empty where none does."""
    for row in _link_rows():
        if row["parameter"] == parameter and fnmatchcase(name, row["gpu_pattern"]):
            return row["value"]
    return ""


@cache
def _link_rows() -> list[dict[str, str]]:
    return rows_of("gpu_links.csv")


def _reach(value: str, topology: str) -> Reach:
    if value == "all":
        return "mesh" if "mesh" in topology else "all"
    return "pair" if value.isdecimal() and int(value) > 1 else "none"


def _software(name: str, vendor: str, capability: str) -> Software:
    for row in _software_rows():
        of_it = row["gpu"] == name if row["gpu"] else _covers(row, capability)
        if row["vendor"] == vendor and of_it:
            return Software(
                runs=row["runs"], source=row["source"], as_of=row["as_of"], note=row["note"]
            )
    return Software(runs="unknown", source="not found", as_of="", note="")


@cache
def _libraries(vendor: str, capability: str) -> Libraries:
    values: dict[str, str] = {}
    for row in rows_of("libraries.csv"):
        everywhere = not (row["target"] or row["from"])
        if row["vendor"] == vendor and (everywhere or _covers(row, capability)):
            values.setdefault(row["parameter"], row["value"])
    return Libraries(
        context_bytes=round(float(values["context"]) * MIB),
        cublas_bytes=round(float(values["cublas_workspace"]) * MIB),
        attention_fp16=values["attention_fp16"],
        attention_bf16=values["attention_bf16"],
        threads_per_sm=int(values["threads_per_sm"]),
    )


@cache
def _software_rows() -> list[dict[str, str]]:
    return rows_of("software.csv")


def _covers(row: Mapping[str, str], capability: str) -> bool:
    if row["target"]:
        return row["target"] == capability
    try:
        return float(row["from"]) <= float(capability) < float(row["below"])
    except ValueError:
        return False


def _needed(name: str, parameter: str, facts: Mapping[str, Fact]) -> float:
    number = facts[parameter].number
    if number is None:
        raise FactMissing(f'The facts table has no {parameter} for "{name}".')
    return number


def _scaled(fact: Fact, unit: float) -> float | None:
    return None if fact.number is None else fact.number * unit


def _text(fact: Fact) -> str:
    return fact.text or "unknown"
