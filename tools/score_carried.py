"""Published training speeds, predicted alone and carried over from an H200: docs/models/time.md.

    python tools/score_carried.py --published FOLDER [--measured FILE] [--traces FOLDER] [--missing]

FOLDER holds timm_train_rtx3090.csv; FILE is what tools/measure_published.py
wrote on the H200 (default: the one in tests/reference/data). `--missing` lists the published steps
that no row of FILE is of. Needs torch, torchvision and transformers unless the traces are there.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure_published import IMAGES
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import gpus
from outlay.plan.placement import calibration
from outlay.predict.evidence import Evidence, MeasuredStep
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.uncertainty import Estimate
from score_steps import (
    HOST_BOUND,
    WORKLOADS,
    Sample,
    h200_samples,
    published_samples,
    rows_in,
    traced,
)

MEASURED = WORKLOADS.parent / "data" / "h200_published_2026-11-15.csv"
Row = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A published step: whose, with what its H200 measurements are found by."""

    source: str
    workload: str
    layout: str
    sample: Sample

    @property
    def label(self) -> str:
        """Its row in the table."""
        return f"{self.sample.gpu.name}{', timm' if self.source == 'timm' else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A published step, predicted alone and carried over."""

    published: Published
    alone: Estimate
    carried: Estimate


def published_steps(data: Path, folder: Path) -> Iterator[Published]:
    """Lambda's ResNet-50 on one GPU, and timm's models that torchvision has as well."""
    for samples in published_samples().values():
        for sample in samples:
            if sample.name.startswith("resnet50"):  # what was measured on the H200 as published
                yield Published(source="lambda", workload=sample.name, layout="nchw", sample=sample)
    for row in rows_in(data / "timm_train_rtx3090.csv"):
        size = round(float(row["batch"]))
        if IMAGES.get(row["model"]) == (int(row["img_size"]), size):
            yield _image_step(row, size, folder)


def _image_step(row: Row, size: int, folder: Path) -> Published:
    name, layout = row["model"], row["layout"]
    os.environ["OUTLAY_IMAGES"] = f"{name},{row['img_size']},{layout}"
    target = WORKLOADS / "published_images.py"
    profile = traced(target, "image_model", f"I-{name}-{layout}", folder, (size,))
    sample = Sample(
        gpu=find_gpu(row["gpu"]).gpu,
        name=f"{name} {layout}",
        batch_size=size,
        measured_s=size / float(row["samples_per_sec"]),
        host_bound=False,
        profile=profile,
    )
    return Published(source="timm", workload=name, layout=layout, sample=sample)


def seen_for(step: Published, rows: Sequence[Row]) -> list[MeasuredStep]:
    """The same step on the H200; with cudnn.benchmark where it was measured so, as others ran."""
    own = [row for row in rows if (row["workload"], row["layout"]) == (step.workload, step.layout)]
    if step.source == "timm":
        own = [row for row in own if int(row["batch_size"]) == step.sample.batch_size]
    chosen = {row["batch_size"]: row for row in sorted(own, key=lambda r: r["cudnn_benchmark"])}
    return [_seen(row) for row in chosen.values()]


def _seen(row: Row) -> MeasuredStep:
    step_s, busy_s = float(row["step_ms"]) / 1e3, float(row["busy_ms"]) / 1e3
    return MeasuredStep(
        gpu=gpus()["H200"],
        batch_size=int(row["batch_size"]),
        step_s=step_s,
        busy_s=busy_s,
        holder="host" if busy_s < HOST_BOUND * step_s else "gpu",
    )


def score(step: Published, seen: Sequence[MeasuredStep]) -> Score:
    """Both predictions of one published step."""

    def predicted(evidence: Evidence) -> Estimate:
        sample = step.sample
        found = predict_step(
            sample.profile,
            Placement(gpu=sample.gpu),
            sample.batch_size,
            calibration(),
            largest=1,
            conditions=Conditions(evidence=evidence),
        )
        return found.step_time_s

    return Score(
        published=step,
        alone=predicted(Evidence()),
        carried=predicted(Evidence(measured=tuple(seen))),
    )


def print_scores(scores: Sequence[Score]) -> None:
    """A row for each GPU, and one for all, as in the documentation."""
    print("| GPU | steps | alone: mean error | bias | inside | high / low "
          "| carried: mean error | bias | inside | high / low |")  # fmt: skip
    print("| --- " * 10 + "|")
    labels = sorted({one.published.label for one in scores})
    for label in labels:
        _print_row(label, [one for one in scores if one.published.label == label])
    _print_row("all", scores)


def _print_row(label: str, scores: Sequence[Score]) -> None:
    measured_s = [one.published.sample.measured_s for one in scores]
    alone = _columns([one.alone for one in scores], measured_s)
    carried = _columns([one.carried for one in scores], measured_s)
    print(f"| {label} | {len(scores)} | {alone} | {carried} |", flush=True)


def _columns(times: Sequence[Estimate], measured_s: Sequence[float]) -> str:
    pairs = list(zip(times, measured_s, strict=True))
    errors = [abs(time.likely / s - 1) for time, s in pairs]
    bias = math.expm1(statistics.fmean(math.log(time.likely / s) for time, s in pairs))
    inside = statistics.fmean(time.low <= s <= time.high for time, s in pairs)
    width = statistics.median(time.high / time.low for time in times)
    return f"{statistics.fmean(errors):.1%} | {bias:+.0%} | {inside:.0%} | {width:.2f}"


def _print_one(one: Score) -> None:
    sample = one.published.sample
    alone, carried = (time.likely / sample.measured_s - 1 for time in (one.alone, one.carried))
    print(
        f"{sample.gpu.name:18} {sample.name:34} {sample.batch_size:5} "
        f"{sample.measured_s * 1e3:8.1f} ms, alone {alone:+6.1%}, carried {carried:+6.1%}"
    )


def between(steps: Sequence[Published]) -> Iterator[Score]:
    """Lambda's steps carried from each other GPU of the same round of software, one at a time."""
    for one in steps:
        for other in steps:
            same = one.source == other.source == "lambda"
            if same and one.sample.name == other.sample.name and one.label != other.label:
                yield score(one, [_published_as_seen(other.sample)])


def _published_as_seen(sample: Sample) -> MeasuredStep:
    return MeasuredStep(
        gpu=sample.gpu, batch_size=sample.batch_size, step_s=sample.measured_s, holder="gpu"
    )


def between_sizes(folder: Path) -> Iterator[Score]:
    """Steps that the H200 was bound by, carried from one batch size to another."""
    found = h200_samples(folder)
    steps = [one for kind in ("fitted", "own") for one in found[kind] if not one.host_bound]
    for one in steps:
        for other in steps:
            if one.profile == other.profile and one.batch_size != other.batch_size:
                step = Published(source="own", workload=one.name, layout="", sample=one)
                yield score(step, [_published_as_seen(other)])


def print_missing(steps: Sequence[Published], rows: Sequence[Row]) -> None:
    """Published steps that no row is of."""
    for step in steps:
        if not seen_for(step, rows):
            print(f"{step.source} {step.workload} {step.layout} {step.sample.batch_size}")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--measured", type=Path, default=MEASURED)
    parser.add_argument("--traces", type=Path, help="keep the profiles here")
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--sizes", action="store_true", help="between batch sizes on the H200")
    arguments = parser.parse_args()
    folder = arguments.traces or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    sys.path.insert(0, str(WORKLOADS))
    rows = rows_in(arguments.measured) if arguments.measured.exists() else []
    steps = list(published_steps(arguments.published, folder))
    if arguments.missing:
        print_missing(steps, rows)
        return
    scores = [score(step, seen) for step in steps if (seen := seen_for(step, rows))]
    for one in scores:
        _print_one(one)
    if scores:
        print_scores(scores)
    print("\n== carried from one published GPU to another, same task and software")
    print_scores(list(between(steps)))
    if arguments.sizes:
        print("\n== carried from one batch size to another on the H200")
        print_scores(list(between_sizes(folder)))


if __name__ == "__main__":
    main()
