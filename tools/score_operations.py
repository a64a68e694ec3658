"""Single fp32 operations on five GPUs: the model's error on each GPU, left out of the fit.

    python tools/score_operations.py FOLDER

FOLDER holds `real_shapes.csv.gz` of the operations that NeuSight's authors measured (GitHub
sitar-lab/NeuSight; Lee, Phanishayee, Mahajan, ASPLOS 2025, doi 10.1145/3669940.3707265), one
operation of one shape on one GPU a row: gpu, op, b, m, n, k, h, ms. Nothing of an H200 is used.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from calibrate import base_calibration
from outlay.hardware.gpus import gpus
from outlay.predict.calibration import Calibration, PassNumbers, ProductNumbers
from outlay.predict.kernel_time import pass_time_s, product_time_s
from outlay.predict.kernels import Pass, Product
from outlay.predict.roofline import RooflineGpu, roofline_of
from outlay.uncertainty import Estimate

BOARDS = {
    "P4": "P4",
    "P100": "P100 PCIe 16GB",
    "T4": "T4",
    "V100": "V100 PCIe 32GB",
    "A100": "A100 40GB PCIe",
}
LOOKED_AT = 700
"""Rows of one GPU that a fit looks at."""
EVENTS_S = 14e-6
FLOOR_S = 32e-6
"""What CUDA events around one call add, and the least they show: how the rows were measured."""
OPERANDS = {
    "add": 3, "mul": 3, "div": 3, "pow": 3,
    "addu": 2, "mulu": 2, "divu": 2, "powu": 2, "relu": 2, "gelu": 2, "tanh": 2,
}  # fmt: skip
START = {
    "share": 0.9, "narrow": 10.0, "lead": 10.0, "memory": 0.8, "power": 6.6e10,
    "call": 10e-6, "old": 0.84, "gddr": 0.84, "alike": 0.9,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One measured operation."""

    gpu: str
    kind: str
    kernel: Product | Pass
    measured_s: float


def rows_in(path: Path) -> list[Row]:
    """The products and element-wise operations of the table."""
    found = []
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            board = next((b for b in BOARDS if b in row["gpu"].replace("-", " ").split()), None)
            board = board or next((b for b in BOARDS if b in row["gpu"]), None)
            kernel = _kernel_of(row)
            if board is not None and kernel is not None:
                kind = "product" if isinstance(kernel, Product) else "element-wise"
                found.append(Row(board, kind, kernel, float(row["ms"]) / 1e3))
    return found


def _kernel_of(row: dict[str, str]) -> Product | Pass | None:
    if row["op"] in ("bmm", "linear"):
        b, m, n, k = (int(float(row[name])) for name in ("b", "m", "n", "k"))
        batch, rows = (1, b * m) if row["op"] == "linear" else (b, m)
        moved_bytes = 4 * batch * (rows * n + n * k + rows * k)
        return Product(
            family="gemm", batch=batch, m=rows, n=k, k=n, precision="fp32", moved_bytes=moved_bytes
        )
    if row["op"] in OPERANDS:
        elements = float(row["b"]) * float(row["h"])
        moved = 4 * elements * OPERANDS[row["op"]]
        return Pass(family="alike", moved_bytes=moved, elements=elements)
    return None


def predicted_s(
    row: Row, machines: dict[str, RooflineGpu], calibration: Calibration, call_s: float
) -> float:
    """What the row would show."""
    machine = machines[row.gpu]
    if isinstance(row.kernel, Product):
        own_s = product_time_s(row.kernel, machine, calibration) + call_s
    else:
        own_s = pass_time_s(row.kernel, machine, calibration)
    return max(EVENTS_S + own_s, FLOOR_S)


def calibration_with(base: Calibration, numbers: dict[str, float]) -> Calibration:
    """The calibration with these numbers in the places that speak of fp32."""
    values = dict(base.values)
    values["power_fp32"] = Estimate.exactly(numbers["power"])
    values["memory_share_old"] = Estimate.exactly(numbers["old"])
    values["memory_share_gddr"] = Estimate.exactly(numbers["gddr"])
    product = ProductNumbers(
        start_s=4e-6,
        share=numbers["share"],
        narrow=numbers["narrow"],
        lead=numbers["lead"],
        memory_share=numbers["memory"],
    )
    alike = PassNumbers(
        start_s=2e-6, share=numbers["alike"], cycles=0.1, unit_cycles=1.0, serial_cycles=1.0
    )
    return replace(base, values=values, passes={"alike": alike}, products={"gemm_fp32": product})


def errors(rows: Iterable[Row], base: Calibration, numbers: dict[str, float]) -> list[float]:
    """Relative errors, signed."""
    calibration = calibration_with(base, numbers)
    machines = {board: roofline_of(gpus()[name], calibration) for board, name in BOARDS.items()}
    return [
        predicted_s(row, machines, calibration, numbers["call"]) / row.measured_s - 1
        for row in rows
    ]


def fit(rows: Sequence[Row], base: Calibration) -> dict[str, float]:
    """The numbers with the least mean absolute log error over the GPUs, one at a time."""
    numbers = dict(START)

    def loss(tried: dict[str, float]) -> float:
        return statistics.fmean(abs(math.log1p(error)) for error in errors(rows, base, tried))

    best = loss(numbers)
    for width in (0.5, 0.2, 0.1, 0.05, 0.02):
        improved = True
        while improved:
            improved = False
            for name in numbers:
                for factor in (1 + width, 1 / (1 + width)):
                    tried = numbers | {name: numbers[name] * factor}
                    if name in ("share", "memory", "old", "gddr", "alike"):
                        tried[name] = min(tried[name], 1.0)
                    error = loss(tried)
                    if error < best - 1e-5:
                        numbers, best, improved = tried, error, True
    return numbers


def main(arguments: list[str]) -> None:
    """Leave each GPU out in turn."""
    base = base_calibration()
    rows = rows_in(Path(arguments[0]) / "real_shapes.csv.gz")
    chosen = random.Random(1)
    means: dict[str, list[float]] = {}
    print("left out   kind           rows    mean  median   worst")
    for board in BOARDS:
        others: list[Row] = []
        for other in BOARDS:
            for kind in ("product", "element-wise"):
                own = [row for row in rows if row.gpu == other != board and row.kind == kind]
                others += chosen.sample(own, min(LOOKED_AT // 2, len(own)))
        numbers = fit(others, base)
        for kind in ("product", "element-wise"):
            left = [row for row in rows if row.gpu == board and row.kind == kind]
            found = [abs(error) for error in errors(left, base, numbers)]
            means.setdefault(kind, []).append(statistics.fmean(found))
            print(
                f"{board:10} {kind:13} {len(left):5}  {statistics.fmean(found):6.1%} "
                f"{statistics.median(found):6.1%} {max(found):6.0%}",
                flush=True,
            )
    for kind, found in means.items():
        print(f"mean of the five, {kind}: {statistics.fmean(found):.1%}")


if __name__ == "__main__":
    main(sys.argv[1:])
