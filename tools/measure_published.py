"""Measure, on the GPU at hand, the steps whose speed others have published on other GPUs.

    python tools/measure_published.py OUT.csv [--budget-s 220] [--without FILE] [only=TEXT]

Needs torch, torchvision and transformers. One process; what matters most comes first (Lambda's
steps, then timm's image models in torch's usual order, then channels last), and nothing new is
begun after `--budget-s` seconds. Each row is written as soon as it is there; steps that FILE has
are left out.

Every step: five to warm up, then three series of steps issued back to back between two CUDA events
(median, least and most of the three), then one step under the profiler for the time in which
kernels ran. `--benchmark` measures image models with `cudnn.benchmark` as well, which both sources
had on; on an H200 with PyTorch 2.11 it changed nothing (14 steps, 0.6 % at most).
"""

from __future__ import annotations

import argparse
import csv
import gc
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure_operations import added, bare, events_of, kernels_of

WORKLOADS = Path(__file__).parent.parent / "tests" / "reference" / "workloads"
SERIES = 3
SERIES_S = 0.2

LAMBDA: dict[str, tuple[int, ...]] = {
    "bert_base_fp16_amp": (20, 88, 192),
    "bert_large_fp16_amp": (4, 32, 64),
    "resnet50_fp16_amp": (160, 448, 928),
    "bert_base_tf32": (26, 80),
    "bert_large_tf32": (8, 28),
    "resnet50_tf32": (224, 360),
    "bert_base_fp32": (10, 56),
    "bert_large_fp32": (2, 18),
    "resnet50_fp32": (100, 296),
}
"""Functions of `published.py` and the batch sizes: from the least to the most that is published."""

IMAGES: dict[str, tuple[int, int]] = {
    # timm's name: image size, batch size
    "tv_resnet50": (224, 512),
    "vit_base_patch16_224": (224, 192),
    "convnext_tiny": (224, 256),
    "mobilenetv2_100": (224, 512),
    "resnext50_32x4d": (224, 384),
    "densenet169": (224, 256),
    "vgg11_bn": (224, 384),
    "regnetx_008": (224, 512),
    "efficientnetv2_s": (288, 128),
    "inception_v3": (299, 384),
    "resnet34": (224, 512),
    "vit_small_patch16_224": (224, 384),
    "mnasnet_100": (224, 512),
    "resnet101": (224, 256),
    "regnetx_016": (224, 512),
    "vit_base_patch32_224": (224, 512),
    "vgg13_bn": (224, 256),
    "ssl_resnet18": (224, 512),
    "tv_resnet152": (224, 192),
    "tv_densenet121": (224, 256),
    "densenet201": (224, 192),
    "convnext_small": (224, 192),
    "convnext_base": (224, 128),
    "resnext101_32x8d": (224, 128),
    "resnext101_64x4d": (224, 128),
    "mnasnet_050": (224, 512),
    "regnetx_032": (224, 384),
    "vgg11": (224, 512),
    "vit_tiny_patch16_224": (224, 512),
    "vit_large_patch16_224": (224, 64),
    "vit_large_patch32_224": (224, 256),
}
CHANNELS_LAST = 14
"""So many of the first are measured with channels last as well."""

Step = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A step to measure, and with which settings of cuDNN."""

    source: str
    name: str
    batch_size: int
    layout: str
    build: Callable[[], Step]
    benchmarks: tuple[bool, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """What its rows have in common."""
        return self.name, str(self.batch_size), self.layout


def jobs(*, benchmark: bool) -> Iterator[Job]:
    """What matters most first."""
    tried = (False, True) if benchmark else (False,)
    published = importlib.import_module("published")
    for name, sizes in LAMBDA.items():
        for size in sizes:
            build = _with_size(getattr(published, name), size)
            yield Job(
                source="lambda",
                name=name,
                batch_size=size,
                layout="nchw",
                build=build,
                benchmarks=tried if name.startswith("resnet") else (False,),
            )
    yield from (_image_job(name, "nchw", tried) for name in IMAGES)
    yield from (_image_job(name, "nhwc", tried) for name in list(IMAGES)[:CHANNELS_LAST])


def _with_size(function: Callable[[int], Step], size: int) -> Callable[[], Step]:
    return lambda: function(size)


def _image_job(name: str, layout: str, tried: tuple[bool, ...]) -> Job:
    image_step = importlib.import_module("published_images").image_step
    image_size, size = IMAGES[name]
    return Job(
        source="timm",
        name=name,
        batch_size=size,
        layout=layout,
        build=lambda: image_step(name, size, image_size, layout),
        benchmarks=(False,) if name.startswith("vit") else tried,
    )


def timed(step: Step) -> dict[str, float]:
    """Times of a step in milliseconds, warm, by CUDA events around series of steps."""
    import torch

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    steps = max(3, min(40, round(SERIES_S / (time.perf_counter() - started))))
    series_ms, issue_ms = [], []
    for _ in range(SERIES):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        started = time.perf_counter()
        first.record()
        for _ in range(steps):
            step()
        last.record()
        issue_ms.append((time.perf_counter() - started) / steps * 1e3)
        torch.cuda.synchronize()
        series_ms.append(first.elapsed_time(last) / steps)
    return {
        "step_ms": round(statistics.median(series_ms), 3),
        "step_min_ms": round(min(series_ms), 3),
        "step_max_ms": round(max(series_ms), 3),
        "issue_ms": round(statistics.median(issue_ms), 3),
        "steps": SERIES * steps,
    }


def busy(step: Step) -> dict[str, float]:
    """The time of one step in which kernels ran, and how many."""
    kernels = kernels_of(events_of(bare(step, 1)))
    busy_us = sum(one[0] for one in added(kernels))
    return {"busy_ms": round(busy_us / 1e3, 3), "kernels": len(kernels)}


def measured(job: Job) -> Iterator[dict[str, Any]]:
    """A row for each setting of cuDNN; the step is built once."""
    import torch

    with torch.device("cuda"):
        step = job.build()
    for benchmark in job.benchmarks:
        torch.backends.cudnn.benchmark = benchmark
        yield {
            "source": job.source,
            "workload": job.name,
            "batch_size": job.batch_size,
            "layout": job.layout,
            "cudnn_benchmark": int(benchmark),
            **timed(step),
            **busy(step),
            "peak_allocated_mib": round(torch.cuda.max_memory_allocated() / 2**20, 1),
            "gpu": torch.cuda.get_device_name(),
            "torch": torch.__version__,
        }


def _known(path: Path | None) -> set[tuple[str, str, str]]:
    """The steps that a table has."""
    if path is None:
        return set()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["workload"], row["batch_size"], row["layout"]) for row in rows}


def forget() -> None:
    """Give the last step's memory back."""
    import torch

    torch.backends.cudnn.benchmark = False
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def main() -> None:
    """Measure what there is time for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("only", nargs="?", default="only=", help="only=TEXT: names with TEXT in it")
    parser.add_argument("--budget-s", type=float, default=220.0)
    parser.add_argument("--without", type=Path, help="a table of steps not to measure again")
    parser.add_argument("--benchmark", action="store_true", help="with cudnn.benchmark as well")
    arguments = parser.parse_args()
    sys.path.insert(0, str(WORKLOADS))
    known = _known(arguments.without)
    started, count = time.perf_counter(), 0
    with arguments.out.open("w", newline="") as file:
        for job in jobs(benchmark=arguments.benchmark):
            if arguments.only.removeprefix("only=") not in job.name or job.key in known:
                continue
            if time.perf_counter() - started > arguments.budget_s:
                print(f"no time left: {job.name} and what follows", flush=True)
                break
            try:
                for row in measured(job):
                    writer = csv.DictWriter(file, fieldnames=list(row), lineterminator="\n")
                    if not count:
                        writer.writeheader()
                    writer.writerow(row)
                    file.flush()
                    count += 1
                    print(f"{time.perf_counter() - started:6.1f} s", row, flush=True)
            except Exception as error:
                print(f"not measured: {job.name}: {str(error)[:200]}", flush=True)
            forget()
    print(f"{count} rows in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
