"""Measure changes that make a step fit, on the GPU at hand: memory and time, a process for each.

    python tools/measure_fit.py OUT.csv [only=TEXT]

The steps are those in tests/reference/workloads/fitting.py. torch, torchvision and transformers
must be installed.
"""

from __future__ import annotations

import csv
import importlib
import json
import subprocess
import sys
from pathlib import Path

from measure_steps import timed

WORKLOADS = Path(__file__).parent.parent / "tests" / "reference" / "workloads"
MIB = 2**20
MODELS = {"resnet50": 96, "vit_b16": 64, "gpt2_medium": 16, "llama_400m": 8, "denoiser": 32}
"""The batch size of each."""
CHANGES = (
    "",
    "bf16 autocast",
    "fp16 autocast",
    "bf16",
    "blocks",
    "selective",
    "fused",
    "offloaded",
    "accumulate 4",
    "bf16 autocast + blocks",
    "bf16 autocast + selective",
    "bf16 autocast + fused",
    "bf16 + blocks + fused",
    "bf16 autocast + blocks + accumulate 4",
    "bf16 autocast + blocks + offloaded",
)


def measure(model: str, batch_size: int, changes: str) -> dict[str, object]:
    """Time and memory of one step, in this process."""
    import torch

    torch.zeros(1, device="cuda")
    sys.path.insert(0, str(WORKLOADS))
    with torch.device("cuda"):
        step = getattr(importlib.import_module("fitting"), model)(batch_size, changes)
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    return {
        "model": model,
        "batch_size": batch_size,
        "changes": changes,
        "peak_allocated_mib": round(allocated / MIB, 3),
        "peak_reserved_mib": round(reserved / MIB, 3),
        **timed(step, about_s=1.0),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
    }


def main(arguments: list[str]) -> None:
    """Measure every step in a process of its own and write the rows as they come."""
    if arguments[0] == "--one":
        print(json.dumps(measure(arguments[1], int(arguments[2]), arguments[3])))
        return
    only = "".join(one.removeprefix("only=") for one in arguments[1:])
    rows: list[dict[str, object]] = []
    for model, batch_size in MODELS.items():
        for changes in CHANGES:
            if only not in f"{model}:{changes}":
                continue
            command = [sys.executable, __file__, "--one", model, str(batch_size), changes]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                print(model, changes, done.stderr.strip().splitlines()[-1:], flush=True)
                continue
            rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(list(rows[-1].values())[:7], flush=True)
            with Path(arguments[0]).open("w", newline="") as file:
                writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
