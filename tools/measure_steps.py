"""Measure the steps in `examples/` on the GPU at hand: time and memory, one fresh process each.

    python tools/measure_steps.py OUT.csv

The rows are what the prediction is fitted on and checked against (see docs/models/time.md).
"""

from __future__ import annotations

import csv
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

EXAMPLES = Path(__file__).parent.parent / "examples"

STEPS: list[tuple[str, int, dict[str, object]]] = [
    ("resnet50", 16, {}),
    ("resnet50", 64, {}),
    ("resnet50", 256, {}),
    ("resnet50", 128, {"precision": "tf32"}),
    ("resnet50", 64, {"precision": "fp32"}),
    ("resnet50", 256, {"precision": "fp16-amp", "channels_last": True}),
    ("vit_b16", 32, {}),
    ("vit_b16", 128, {}),
    ("vit_b16", 64, {"precision": "tf32"}),
    ("vit_b16", 128, {"precision": "bf16"}),
    ("gpt2_medium", 2, {}),
    ("gpt2_medium", 8, {}),
    ("gpt2_medium", 24, {}),
    ("gpt2_medium", 4, {"precision": "tf32"}),
    ("bert_large", 8, {}),
    ("bert_large", 32, {}),
    ("bert_large", 8, {"precision": "fp32"}),
    ("bert_large", 16, {"precision": "tf32"}),
    ("llama_1b", 2, {}),
    ("llama_1b", 8, {}),
    ("llama_1b", 4, {"precision": "bf16-amp"}),
    ("latent_diffusion_unet", 4, {}),
    ("latent_diffusion_unet", 16, {}),
    ("latent_diffusion_unet", 48, {}),
    ("latent_diffusion_unet", 16, {"precision": "tf32"}),
    ("latent_diffusion_unet", 16, {"precision": "bf16"}),
]
"""The module, the batch size, and the step's other arguments."""


def timed(step: Callable[[], object], *, about_s: float) -> dict[str, float]:
    """Times of a step in milliseconds, warm, issued back to back in three series of `about_s`."""
    import torch

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    started = time.perf_counter()
    step()
    torch.cuda.synchronize()
    steps = max(5, min(60, round(about_s / (time.perf_counter() - started))))
    series_ms, issue_ms = [], []
    for _ in range(3):
        started = time.perf_counter()
        for _ in range(steps):
            step()
        issued = time.perf_counter()
        torch.cuda.synchronize()
        series_ms.append((time.perf_counter() - started) / steps * 1e3)
        issue_ms.append((issued - started) / steps * 1e3)
    return {
        "step_ms": round(statistics.median(series_ms), 3),
        "step_min_ms": round(min(series_ms), 3),
        "step_max_ms": round(max(series_ms), 3),
        "issue_ms": round(statistics.median(issue_ms), 3),
    }


def measure(module: str, batch_size: int, arguments: dict[str, object]) -> dict[str, object]:
    """Time and memory of one step, in this process."""
    import torch

    torch.zeros(1, device="cuda")
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    context_bytes = total_bytes - free_bytes - torch.cuda.memory_reserved()
    sys.path.insert(0, str(EXAMPLES))
    with torch.device("cuda"):
        step = importlib.import_module(module).training_step(batch_size, **arguments)
    built_bytes = torch.cuda.memory_allocated()
    times_ms = timed(step, about_s=1.5)
    properties = torch.cuda.get_device_properties(0)
    return {
        "module": module,
        "batch_size": batch_size,
        "arguments": json.dumps(arguments),
        **times_ms,
        "built_mib": round(built_bytes / 2**20, 3),
        "peak_allocated_mib": round(torch.cuda.max_memory_allocated() / 2**20, 3),
        "peak_reserved_mib": round(torch.cuda.max_memory_reserved() / 2**20, 3),
        "context_mib": round(context_bytes / 2**20, 3),
        "total_mib": round(properties.total_memory / 2**20, 3),
        "gpu": properties.name,
        "torch": torch.__version__,
    }


def main(arguments: list[str]) -> None:
    """Measure every step in a process of its own and write the rows as they come."""
    if arguments[0] == "--one":
        print(json.dumps(measure(arguments[1], int(arguments[2]), json.loads(arguments[3]))))
        return
    rows: list[dict[str, object]] = []
    for module, batch_size, rest in STEPS:
        command = [sys.executable, __file__, "--one", module, str(batch_size), json.dumps(rest)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(module, batch_size, rest, done.stderr.strip().splitlines()[-1:], flush=True)
            continue
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], flush=True)
        with Path(arguments[0]).open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
