"""Fit the efficiencies of `data/calibration.csv` to measured steps (needs torch to trace them).

    python tools/calibrate.py [--traces FOLDER] [--write]

Reads our own H200 rows and published training speeds, traces the steps in `examples/`, fits, prints
every row's error and that of each model or GPU left out of the fit; --write replaces the rows.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outlay.estimate import Estimate
from outlay.facts import DATA, rows_of
from outlay.gpu_names import find_gpu
from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration, calibration_of
from outlay.predict.compute import device_time_s, host_time_s
from outlay.trace.profile import profile_of
from outlay.trace.store import read_profile, write_profile
from outlay.trace.trace import Profile, Trace

EXAMPLES = Path(__file__).parent.parent / "examples"
HOST_OP_S = 11e-6
"""Host time an operation, as seen on the steps that wait for the host."""
MEASURED = "h200_steps_2026-11-15.csv"
PUBLISHED = "published_steps.csv"

FITTED: dict[str, tuple[tuple[str, ...], float]] = {
    "gemm 16-bit": (("gemm_bf16_fraction", "gemm_fp16_fraction"), 0.65),
    "gemm tf32": (("gemm_tf32_fraction",), 0.65),
    "gemm fp32": (("gemm_fp32_fraction",), 0.8),
    "conv 16-bit": (("conv_bf16_fraction", "conv_fp16_fraction"), 0.45),
    "conv 16-bit channels last": (
        ("conv_bf16_channels_last_fraction", "conv_fp16_channels_last_fraction"),
        0.6,
    ),
    "conv tf32": (("conv_tf32_fraction",), 0.5),
    "conv fp32": (("conv_fp32_fraction",), 0.6),
    "attention 16-bit": (("attention_bf16_fraction", "attention_fp16_fraction"), 0.45),
    "attention 32-bit": (("attention_tf32_fraction", "attention_fp32_fraction"), 0.4),
    "element-wise": (
        (
            "elementwise_memory_fraction",
            "copy_memory_fraction",
            "reduction_memory_fraction",
            "softmax_memory_fraction",
            "embedding_memory_fraction",
            "other_memory_fraction",
        ),
        0.9,
    ),
    "norm": (("norm_memory_fraction",), 0.7),
    "batch norm 16-bit": (
        ("batch_norm_bf16_memory_fraction", "batch_norm_fp16_memory_fraction"),
        0.3,
    ),
    "optimizer": (("optimizer_memory_fraction",), 0.8),
    "matrix operands": (
        ("gemm_memory_fraction", "conv_memory_fraction", "attention_memory_fraction"),
        0.9,
    ),
    "conv exponent": (("conv_peak_exponent",), 0.2),
    "gemm exponent": (("gemm_peak_exponent", "peak_exponent"), 0.1),
    "batch norm exponent": (("batch_norm_bandwidth_exponent",), 0.2),
    "bandwidth exponent": (("bandwidth_exponent",), 0.05),
}
"""What is fitted: the rows that share one number, and where the search starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured step with its trace and the GPU it ran on."""

    gpu: Gpu
    model: str
    label: str
    trace: Trace
    measured_s: float
    issue_s: float = 0.0

    @property
    def host_bound(self) -> bool:
        """Whether the host was the slower one: issuing took the whole step, and would have.

        A loss scaler reads a value back each step, so issuing takes the whole step there, too.
        """
        issuing_s = self.trace.issued_ops * HOST_OP_S
        return self.issue_s > 0.985 * self.measured_s and issuing_s > 0.75 * self.measured_s


def samples(folder: Path) -> list[Sample]:
    """Every measured step, traced (or read from `folder`, where traces are kept)."""
    ours = [
        Sample(
            gpu=find_gpu(row["gpu"]).gpu,
            model=row["module"],
            label=f"{row['module']} {row['batch_size']} {row['arguments']}",
            trace=traced_row(row, folder),
            measured_s=float(row["step_ms"]) / 1e3,
            issue_s=float(row["issue_ms"]) / 1e3,
        )
        for row in rows_of(MEASURED)
    ]
    published = [
        Sample(
            gpu=find_gpu(row["gpu"]).gpu,
            model=row["gpu"],
            label=f"{row['gpu']}: {row['module']} {row['batch_size']} {row['arguments']}",
            trace=traced_row(row, folder),
            measured_s=int(row["batch_size"]) / float(row["samples_per_s"]),
        )
        for row in rows_of(PUBLISHED)
    ]
    return ours + published


def traced_row(row: Mapping[str, str], folder: Path) -> Trace:
    """The trace of a row at its batch size."""
    profile = traced(row["module"], json.loads(row["arguments"]), folder)
    return profile.at(int(row["batch_size"]), shapes=False)


def traced(module: str, arguments: Mapping[str, object], folder: Path) -> Profile:
    """The profile of an example with the given arguments."""
    name = "-".join([module, *map(str, arguments.values())])
    path = folder / f"{name}.json.gz"
    if not path.exists():
        wrapper = folder / f"traced_{name.replace('-', '_')}.py"
        wrapper.write_text(
            f"import sys\nsys.path.insert(0, {str(EXAMPLES)!r})\n"
            f"from {module} import training_step\n\n"
            f"def step(batch_size):\n"
            f"    return training_step(batch_size, **{dict(arguments)!r})\n"
        )
        write_profile(profile_of(f"{wrapper}:step", (4, 8, 16, 32), name=name), path)
    return read_profile(path)


def calibration_with(values: Mapping[str, float], base: Calibration) -> Calibration:
    """The base with the fitted rows replaced."""
    rows = dict(base.values)
    for group, value in values.items():
        rows |= {name: Estimate.exactly(value) for name in FITTED[group][0]}
    return Calibration(values=rows, sources=base.sources)


def log_error(sample: Sample, calibration: Calibration) -> float:
    """Logarithm of predicted over measured."""
    return math.log(device_time_s(sample.trace, sample.gpu, calibration) / sample.measured_s)


def fit(measured: Iterable[Sample], base: Calibration) -> dict[str, float]:
    """The numbers with the least mean absolute log error, by search along one at a time.

    A weak pull towards the start keeps numbers in place that no sample speaks about.
    """
    rows = list(measured)
    values = {group: start for group, (_, start) in FITTED.items()}

    def loss(candidate: Mapping[str, float]) -> float:
        calibration = calibration_with(candidate, base)
        errors = [abs(log_error(sample, calibration)) for sample in rows]
        pull = sum(math.log(candidate[group] / FITTED[group][1]) ** 2 for group in candidate)
        return statistics.fmean(errors) + 0.01 * pull

    best = loss(values)
    for width in (0.2, 0.1, 0.05, 0.02, 0.01):
        best = _descend(values, best, width, loss)
    return values


def _descend(
    values: dict[str, float],
    best: float,
    width: float,
    loss: Callable[[Mapping[str, float]], float],
) -> float:
    improved = True
    while improved:
        improved = False
        for group in values:
            for factor in (1 + width, 1 / (1 + width)):
                candidate = values | {group: min(values[group] * factor, 1.2)}
                tried = loss(candidate)
                if tried < best - 1e-6:
                    values.update(candidate)
                    best, improved = tried, True
    return best


def left_out_errors(measured: list[Sample], base: Calibration) -> list[float]:
    """The log errors of each model's (or published GPU's) steps when it is not fitted."""
    errors = []
    for model in sorted({sample.model for sample in measured}):
        rest = [sample for sample in measured if sample.model != model]
        calibration = calibration_with(fit(rest, base), base)
        left = [sample for sample in measured if sample.model == model]
        errors += [log_error(sample, calibration) for sample in left]
    return errors


def main() -> None:
    """Fit, print, and perhaps write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=Path, help="keep the traces here")
    parser.add_argument("--write", action="store_true", help="replace the fitted rows")
    arguments = parser.parse_args()
    folder = arguments.traces or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    base = calibration_of(rows_of("calibration.csv"))
    everything = samples(folder)
    device_bound = [sample for sample in everything if not sample.host_bound]
    values = fit(device_bound, base)
    calibration = calibration_with(values, base)
    for sample in everything:
        error = math.exp(log_error(sample, calibration)) - 1
        host_ms = host_time_s(sample.trace, calibration) * 1e3
        print(
            f"{sample.label:60} {sample.measured_s * 1e3:8.1f} ms {error:+6.1%}"
            f"  host {host_ms:6.1f} ms, {sample.trace.issued_ops:.0f} operations"
            f"{'  host bound' if sample.host_bound else ''}"
        )
    fitted = [abs(math.exp(log_error(one, calibration)) - 1) for one in device_bound]
    unseen = left_out_errors(device_bound, base)
    print(values)
    print(f"mean error {statistics.fmean(fitted):.1%} on {len(fitted)} fitted steps")
    unseen_mean = statistics.fmean(abs(math.exp(error) - 1) for error in unseen)
    print(f"mean error {unseen_mean:.1%}, each model or GPU left out of the fit in turn")
    inside = sorted(unseen)
    print(
        f"predicted / measured when left out: 10th percentile "
        f"{math.exp(inside[len(inside) // 10]):.2f}, "
        f"90th {math.exp(inside[len(inside) * 9 // 10]):.2f}"
    )
    host = [one.issue_s / one.trace.issued_ops for one in everything if one.host_bound]
    print(f"host time an operation: {sorted(round(x * 1e6, 1) for x in host)} us")
    if arguments.write:
        write(values, statistics.fmean(fitted), len(fitted))


def write(values: Mapping[str, float], error: float, count: int) -> None:
    """Replace the fitted rows of the table."""
    names = {name: group for group, (members, _) in FITTED.items() for name in members}
    old = rows_of("calibration.csv")
    rows = [row for row in old if row["name"] not in names]
    for name, group in names.items():
        value = f"{values[group]:.3f}"
        rows.append(
            {
                "name": name,
                "low": value,
                "likely": value,
                "high": value,
                "unit": "exponent" if "exponent" in name else "fraction",
                "source": f"fitted by tools/calibrate.py on {MEASURED} and {PUBLISHED}",
                "as_of": MEASURED[-14:-4],
                "note": f"{group}: one of {len(values)} numbers fitted on {count} steps, "
                f"mean error {error:.1%}",
            }
        )
    with (DATA / "calibration.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(old[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
