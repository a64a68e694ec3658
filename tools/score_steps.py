"""Predicted against measured step times: every table of docs/models/time.md.

    python tools/score_steps.py [--traces FOLDER] [--published FOLDER] [--left-out] TABLE ...

    h200        steps measured on an H200: those kernels were fitted on, 101 sizes of 78 others, and
                52 that no fit has seen (tests/reference/workloads, tests/reference/data)
    published   training speeds that Lambda has published, and fine-tuning of language models on an
                H200 (tests/reference/data, with traces): by architecture, by software, by GPU, and
                the error (`error_on_...` of calibration.csv) with which ranges would cover 8 of 10
    choices     what choosing a GPU by these predictions costs beyond the best choice: one GPU at
                the least on-demand price of every month (data/price_history.csv.gz), task by task
    images      speeds of image models that timm has published: FOLDER holds
                timm_train_rtx3090.csv
    --left-out  fit again for each family of models, without it

Steps are traced (needs torch, torchvision, transformers, timm; ten seconds each) unless FOLDER has
their profiles already.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import itertools
import math
import os
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate import FILES, MEASUREMENTS, base_calibration, fit_all, others, with_fitted
from measured import operations_of, steps_in
from outlay.errors import OutlayError
from outlay.facts import rows_of
from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu, gpus
from outlay.plan.placement import calibration
from outlay.predict.calibration import Calibration
from outlay.predict.step import Placement, StepPrediction, predict_step
from outlay.trace.profile import Profile
from outlay.trace.store import read_profile, write_profile
from outlay.trace.tracing import profile_of
from outlay.uncertainty import PERCENTILE_90

WORKLOADS = MEASUREMENTS.parent / "workloads"
TIMM_MODELS = 52
HOST_BOUND = 0.85
"""A step whose kernels take less than this share of it waits for the host."""
FAMILIES = {
    "resnet": "resn|simclr|distillation|detector|contrastive|deeplab|fcn|r3d|r2plus1d|mc3",
    "vit": "vit|swin|clip|maxvit",
    "efficientnet": "efficientnet|mobilenet|mnasnet",
    "vgg": "vgg|alexnet",
    "gpt2": "gpt|pythia|opt_|bloom|decoder",
    "bert": "bert|electra",
    "llama": "llama|mixtral|mistral|qwen|gemma",
    "ddpm": "ddpm|diffusion|unet",
    "dcgan": "gan|style_generator|vae",
}
"""Families of the models in the calibration rows, and what else is of their kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured step with its profile and the GPU it ran on."""

    gpu: Gpu
    name: str
    batch_size: int
    measured_s: float
    host_bound: bool
    profile: Profile

    def predicted(self, numbers: Calibration) -> StepPrediction:
        """The step as the calibration has it; the largest batch is not looked for."""
        placement = Placement(gpu=self.gpu)
        return predict_step(self.profile, placement, self.batch_size, numbers, largest=1)


def traced(target: Path, function: str, name: str, folder: Path, sizes: Sequence[int]) -> Profile:
    """A step's profile, kept in a folder."""
    path = folder / f"{name}.json.gz"
    if not path.exists():
        write_profile(profile_of(f"{target}:{function}", sizes), path)
    return read_profile(path)


# H200


def h200_samples(folder: Path) -> dict[str, list[Sample]]:
    """The three sets of steps."""
    gpu = gpus()["H200"]
    found: dict[str, list[Sample]] = {"fitted": [], "own": [], "held-out": []}
    for row in rows_in(MEASUREMENTS / "h200_calibration_2026-11.csv"):
        module, function = row["workload"].split(":")
        profile = traced(
            WORKLOADS / "calibration" / f"{module}.py",
            function,
            f"shared-{module}-{function}",
            folder,
            (2, 4, 8, 32),
        )
        found["fitted"].append(
            Sample(
                gpu=gpu,
                name=function,
                batch_size=int(row["batch"]),
                measured_s=float(row["pipelined_ms"]) / 1e3,
                host_bound=row["host_bound"] == "1",
                profile=profile,
            )
        )
    busy = _busy_ms()
    for kind, file in (
        ("own", "h200_times_2026-11-15.csv"),
        ("held-out", "h200_held_out_2026-11-15.csv"),
    ):
        for row in rows_in(MEASUREMENTS / file):
            module, function = row["workload"].split(":")
            size, step_ms = int(row["batch_size"]), float(row["step_ms"])
            sizes = (2, 4, 8, 32) if kind == "own" else (size,)
            prefix = "own" if kind == "own" else "held"
            try:
                profile = traced(
                    WORKLOADS / f"{module}.py",
                    function,
                    f"{prefix}-{module}-{function}",
                    folder,
                    sizes,
                )
            except Exception as error:
                print(f"not traced: {row['workload']}: {str(error)[:100]}")
                continue
            kernels_ms = float(row.get("busy_ms") or busy.get((row["workload"], size), 0.0))
            waits = kernels_ms < HOST_BOUND * step_ms if kernels_ms else _issued(row)
            found[kind].append(
                Sample(
                    gpu=gpu,
                    name=function,
                    batch_size=size,
                    measured_s=step_ms / 1e3,
                    host_bound=waits,
                    profile=profile,
                )
            )
    return found


def _issued(row: dict[str, str]) -> bool:
    """Whether issuing took the whole step, where its kernels were not looked at."""
    return float(row["issue_ms"]) > 0.985 * float(row["step_ms"])


def _busy_ms() -> dict[tuple[str, int], float]:
    steps = steps_in(FILES[0])
    return {(step["workload"], step["batch_size"]): step["busy_ms"] for step in steps}


def print_h200(folder: Path, *, left_out: bool) -> None:
    """Errors and coverage of each set; each family left out of the fit."""
    numbers = calibration()
    found = h200_samples(folder)
    for kind, samples in found.items():
        print(f"\n== H200, {kind}: {len(samples)} steps")
        for sample in samples:
            _print_one(sample, sample.predicted(numbers))
        for bound in (False, True):
            some = [one for one in samples if one.host_bound == bound]
            _print_errors(f"{kind}, {'host' if bound else 'GPU'}-bound", some, numbers)
    if left_out:
        errors: list[float] = []
        inside: list[bool] = []
        for family, pattern in FAMILIES.items():
            without = _fitted_without(pattern)
            own = [one for one in found["fitted"] if re.search(family, one.name)]
            own = [one for one in own if not one.host_bound]
            steps = [one.predicted(without) for one in own]
            ratios = [
                step.step_time_s.likely / one.measured_s
                for one, step in zip(own, steps, strict=True)
            ]
            errors += [abs(ratio - 1) for ratio in ratios]
            inside += [
                step.step_time_s.low <= one.measured_s <= step.step_time_s.high
                for one, step in zip(own, steps, strict=True)
            ]
            shown = ", ".join(f"{ratio - 1:+.1%}" for ratio in ratios)
            print(f"fitted without {family:13} {shown}", flush=True)
        print(
            f"GPU-bound calibration rows, family left out: mean {statistics.fmean(errors):.1%}, "
            f"worst {max(errors):.1%}, inside the range {statistics.fmean(inside):.0%}"
        )


def _fitted_without(pattern: str) -> Calibration:
    """The kernels fitted on everything but the models of one family."""
    base = base_calibration()
    steps = [step for path in FILES for step in steps_in(path)]
    kept = [step for step in steps if not re.search(pattern, step["workload"])]
    passes, products = fit_all([one for step in kept for one in operations_of(step)], base)
    passes.append(others(passes, base))
    return with_fitted(base, passes, products)


# Published


SPEEDS = MEASUREMENTS / "published_speeds.csv"


def is_held_out(gpu: Gpu) -> bool:
    """Whether no number was fitted on speeds of a GPU: half of them, told apart by their names."""
    return int(hashlib.sha256(gpu.name.encode()).hexdigest(), 16) % 2 == 0


def published_samples() -> dict[str, list[Sample]]:
    """Published speeds by task, precision and software; fine-tuning steps; traces are kept."""
    found: dict[str, list[Sample]] = {}
    for row in rows_in(SPEEDS):
        gpu, size = find_gpu(row["gpu"]).gpu, int(row["batch_size"])
        sample = _kept_sample(
            gpu, row["step"], "published", size, size / float(row["samples_per_s"])
        )
        found.setdefault(f"{row['software']} {row['step']}", []).append(sample)
    for row in rows_in(MEASUREMENTS / "h200_finetuning_2026-11-16.csv"):
        name, measured_s = row["workload"].partition(":")[2], float(row["step_ms"]) / 1e3
        sample = _kept_sample(
            gpus()["H200"], name, "finetuning", int(row["batch_size"]), measured_s
        )
        found.setdefault(FINE_TUNING, []).append(sample)
    return found


FINE_TUNING = "fine-tuning"


def image_samples(data: Path, folder: Path) -> list[Sample]:
    """timm's speeds on an RTX 3090, of models drawn with a fixed seed."""
    found = []
    for row in _drawn(rows_in(data / "timm_train_rtx3090.csv")):
        os.environ["OUTLAY_TIMM"] = f"{row['model']},{row['img_size']},{row['layout']}"
        name, size = f"T-{row['model']}-{row['layout']}", round(float(row["batch"]))
        try:
            profile = traced(WORKLOADS / "published.py", "timm_model", name, folder, (size,))
        except Exception as error:
            print(f"not traced: {name}: {str(error)[:100]}")
            continue
        sample = Sample(
            gpu=find_gpu(row["gpu"]).gpu,
            name=f"{row['model']} {row['layout']}",
            batch_size=size,
            measured_s=size / float(row["samples_per_sec"]),
            host_bound=False,
            profile=profile,
        )
        found.append(sample)
    return found


def _drawn(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """One model of each family that this timm still has, in an order drawn with a fixed seed."""
    sys.path.insert(0, str(WORKLOADS))
    importlib.import_module("training")  # makes torchvision importable without CUDA
    import timm

    known = set(timm.list_models())
    families: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        if row["model"] in known:
            family = "".join(c for c in row["model"].split("_")[0] if c.isalpha())
            families.setdefault(family, []).append(row)
    rng = random.Random(3)
    order = sorted(families, key=lambda family: -len(families[family]))
    rng.shuffle(order)
    return [rng.choice(families[family]) for family in order][:TIMM_MODELS]


def print_published() -> None:
    """Errors by architecture, by software and by GPU, and of the ratios between GPUs."""
    numbers = calibration()
    found = published_samples()
    groups: dict[str, list[Sample]] = {}
    for key, samples in found.items():
        for sample in samples:
            _print_one(sample, sample.predicted(numbers))
            if key == FINE_TUNING:
                groups.setdefault("H200, fine-tuning", []).append(sample)
                continue
            half = "held out" if is_held_out(sample.gpu) else "fitted on"
            software = f"software {key.partition(' ')[0]}"
            for group in ("all", half, software, sample.gpu.architecture, sample.gpu.name):
                groups.setdefault(group, []).append(sample)
    print("\n== published")
    for label, samples in sorted(groups.items()):
        _print_errors(label, samples, numbers)
        print(f"{label:32} 8 of 10 inside with an error of {_covering(samples, numbers):.2f}")
    ratios = [
        abs(_ratio(one, other, numbers) - 1)
        for key, samples in found.items()
        for one, other in itertools.combinations(samples, 2)
        if key != FINE_TUNING and one.gpu is not other.gpu
    ]
    print(
        f"ratios between two GPUs, same task and software: {len(ratios)}, "
        f"mean error {statistics.fmean(ratios):.1%}, median {statistics.median(ratios):.1%}"
    )


def _ratio(one: Sample, other: Sample, numbers: Calibration) -> float:
    """The predicted ratio of two GPUs over the measured one."""
    predicted = _per_sample(one, numbers) / _per_sample(other, numbers)
    return predicted / (one.measured_s / one.batch_size / (other.measured_s / other.batch_size))


def print_images(data: Path, folder: Path) -> None:
    """Errors of timm's image models."""
    numbers = calibration()
    samples = image_samples(data, folder)
    for sample in samples:
        _print_one(sample, sample.predicted(numbers))
    _print_errors("RTX 3090, timm", samples, numbers)


def _per_sample(sample: Sample, numbers: Calibration) -> float:
    return sample.predicted(numbers).device_time_s / sample.batch_size


# What choosing by predictions costs


def monthly_prices() -> dict[str, dict[str, float]]:
    """By month and GPU: the least on-demand price of an hour, a GPU of a machine, of anybody's."""
    found: dict[str, dict[str, float]] = {}
    for row in rows_of("price_history.csv.gz"):
        if not row["price_usd_hour"] or float(row["gpus"]) < 1:
            continue
        try:
            name = find_gpu(row["gpu"]).gpu.name
        except OutlayError:
            continue
        month = found.setdefault(row["month"], {})
        price = float(row["price_usd_hour"]) / float(row["gpus"])
        month[name] = min(price, month.get(name, price))
    return found


def regrets(
    samples: Sequence[Sample], prices: Mapping[str, Mapping[str, float]], numbers: Calibration
) -> tuple[list[float], list[float]]:
    """Beyond the best choice of a month, as a share: by predictions, and by bandwidth alone."""
    measured_s = {one.gpu.name: one.measured_s / one.batch_size for one in samples}
    predicted_s = {one.gpu.name: _per_sample(one, numbers) for one in samples}
    by_bandwidth_s = {one.gpu.name: 1 / one.gpu.memory_bytes_per_s for one in samples}
    found: tuple[list[float], list[float]] = ([], [])
    for month in prices.values():
        offered = [name for name in measured_s if name in month]
        if len(offered) < 2:
            continue
        cost = {name: month[name] * measured_s[name] for name in offered}
        for regret, belief in zip(found, (predicted_s, by_bandwidth_s), strict=True):
            chosen = min(offered, key=lambda name: month[name] * belief[name])
            regret.append(cost[chosen] / min(cost.values()) - 1)
    return found


def print_choices() -> None:
    """A line for each task, precision and software that two GPUs or more have."""
    numbers, prices = calibration(), monthly_prices()
    print("\n== choosing by predictions, and by memory bandwidth alone: paid beyond the best")
    every: tuple[list[float], list[float]] = ([], [])
    for key, samples in sorted(published_samples().items()):
        if key == FINE_TUNING:
            continue
        ours, others = regrets(samples, prices, numbers)
        if ours:
            print(
                f"{key:34} {len({one.gpu.name for one in samples}):3} GPUs, {len(ours):3} months: "
                f"{statistics.fmean(ours):6.2%} {statistics.fmean(others):7.1%}"
            )
        every[0].extend(ours)
        every[1].extend(others)
    print(f"{'all':34} {statistics.fmean(every[0]):6.2%} {statistics.fmean(every[1]):7.1%}")


# How well an architecture is known


def _kept_sample(gpu: Gpu, name: str, folder: str, size: int, measured_s: float) -> Sample:
    return Sample(
        gpu=gpu,
        name=name,
        batch_size=size,
        measured_s=measured_s,
        host_bound=False,
        profile=read_profile(MEASUREMENTS / folder / f"{name}.json.gz"),
    )


def _covering(samples: Sequence[Sample], numbers: Calibration) -> float:
    """The least error of an architecture with which 8 of 10 of its steps lie in their range."""
    now = numbers.first(f"error_on_{samples[0].gpu.architecture}", "error_on_others")
    needed = []
    for sample in samples:
        time = sample.predicted(numbers).step_time_s
        others = time.log_deviation**2 - now**2
        off = math.log(sample.measured_s / time.likely) / PERCENTILE_90
        needed.append(math.sqrt(max(off**2 - others, 0.0)))
    return sorted(needed)[math.ceil(0.8 * len(needed)) - 1]


# Printing


def rows_in(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _print_one(sample: Sample, step: StepPrediction) -> None:
    time = step.step_time_s
    inside = time.low <= sample.measured_s <= time.high
    print(
        f"{sample.gpu.name:18} {sample.name:46} {sample.batch_size:5} "
        f"{sample.measured_s * 1e3:9.1f} ms, predicted {time.likely * 1e3:9.1f} "
        f"({time.low * 1e3:.1f} - {time.high * 1e3:.1f}) "
        f"{time.likely / sample.measured_s - 1:+7.1%} {step.bound}{'' if inside else '  outside'}",
        flush=True,
    )


def _print_errors(label: str, samples: Iterable[Sample], numbers: Calibration) -> None:
    rows = [(sample, sample.predicted(numbers).step_time_s) for sample in samples]
    if not rows:
        return
    errors = [abs(time.likely / sample.measured_s - 1) for sample, time in rows]
    inside = [time.low <= sample.measured_s <= time.high for sample, time in rows]
    spread = statistics.median(time.high / time.low for _, time in rows)
    bias = statistics.fmean(math.log(time.likely / sample.measured_s) for sample, time in rows)
    print(
        f"{label:32} {len(rows):4} steps: mean error {statistics.fmean(errors):6.1%}, median "
        f"{statistics.median(errors):6.1%}, worst {max(errors):6.1%}, "
        f"bias {math.expm1(bias):+6.1%}; "
        f"inside the range {statistics.fmean(inside):4.0%}, high / low {spread:.2f}",
        flush=True,
    )


def main() -> None:
    """Print the tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "tables", nargs="*", default=["h200"], help="h200, published, choices, images"
    )
    parser.add_argument("--traces", type=Path, help="keep the profiles here")
    parser.add_argument("--published", type=Path, help="folder of the published speeds")
    parser.add_argument("--left-out", action="store_true", help="fit without each family")
    arguments = parser.parse_args()
    folder = arguments.traces or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    if "h200" in arguments.tables:
        print_h200(folder, left_out=arguments.left_out)
    if "published" in arguments.tables:
        print_published()
    if "choices" in arguments.tables:
        print_choices()
    if "images" in arguments.tables:
        print_images(arguments.published, folder)


if __name__ == "__main__":
    main()
