"""Whole scripts, traced without a GPU, against what they took on an H200.

    python tools/score_scripts.py [NAME ...]

Scripts of tests/gpu/public, unchanged, with the arguments that were measured
(tests/reference/data/h200_scripts_2026-11-16.csv): peak memory of the traced step and its predicted
time with the range, beside the measured ones. Needs torch; 10 to 70 s a script. Without names, all.
"""

from __future__ import annotations

import csv
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.gpu.public_scripts import SCRIPTS  # noqa: E402

from outlay.errors import OutlayError  # noqa: E402
from outlay.hardware.gpu_names import find_gpu  # noqa: E402
from outlay.plan.placement import calibration  # noqa: E402
from outlay.predict.step import Placement, predict_step  # noqa: E402
from outlay.trace.target import script_target  # noqa: E402
from outlay.trace.tracing import profile_of  # noqa: E402

MEASURED = ROOT / "tests" / "reference" / "data" / "h200_scripts_2026-11-16.csv"


def measured_rows() -> dict[str, list[dict[str, str]]]:
    """The rows of each script."""
    rows: dict[str, list[dict[str, str]]] = {}
    with MEASURED.open(newline="") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["script"], []).append(row)
    return rows


def score(name: str, rows: list[dict[str, str]]) -> tuple[float | None, bool]:
    """Print one script; the error of its memory, and whether a measured time is in the range."""
    preset = SCRIPTS[name].gpu
    path, *arguments = SCRIPTS[name].command(preset)
    profile = profile_of(script_target(path, arguments))
    samples = preset.samples
    placement = Placement(gpu=find_gpu("H200").gpu)
    predicted = predict_step(profile, placement, samples, calibration(), largest=1).step_time_s
    times_s = [float(row["probed_step_s"]) for row in rows]
    inside = any(predicted.low <= time_s <= predicted.high for time_s in times_s)
    peaks = [float(row["peak_mib"]) for row in rows if row["peak_mib"]]
    peak_mib = profile.memory_at(samples).peak_bytes / 2**20
    error = peak_mib / peaks[-1] - 1 if peaks else None
    shown = ", ".join(f"{time_s * 1e3:.1f}" for time_s in times_s)
    span = f"{predicted.low * 1e3:.1f} to {predicted.high * 1e3:.1f}"
    print(
        f"{name:18} {peak_mib:9.0f} MiB {'' if error is None else f'{error:+.1%}':>7}  "
        f"{predicted.likely * 1e3:8.1f} ms ({span}), measured {shown}",
        "" if inside else " OUTSIDE",
        flush=True,
    )
    return error, inside


def main(names: list[str]) -> None:
    """Score the named scripts, or all that were measured."""
    rows = measured_rows()
    errors, insides = [], []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in names or rows:
            try:
                error, inside = score(name, rows[name])
            except OutlayError as failure:
                print(f"{name:18} {failure}")
                continue
            errors.append(error)
            insides.append(inside)
    known = [abs(error) for error in errors if error is not None]
    within = sum(error <= 0.03 for error in known)
    print(f"memory within 3 %: {within} of {len(known)}")
    print(f"time in the range: {sum(insides)} of {len(insides)}")


if __name__ == "__main__":
    main(sys.argv[1:])
