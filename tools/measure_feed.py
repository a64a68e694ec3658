"""How fast CPU threads feed a GPU: decode, augment, and a step that waits for them.

Writes JPEG and PNG images of natural smoothness to a folder, then times a DataLoader with 1 to all
CPU threads as workers, and training of ResNet-50 from it, against the slower of both alone.
Needs torch, Pillow, numpy and a GPU:

    python tools/measure_feed.py OUT.csv
"""

from __future__ import annotations

import csv
import importlib
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))

IMAGES = 2048
WIDTH, HEIGHT = 500, 375
MEAN = np.asarray([0.485, 0.456, 0.406], np.float32)
DEVIATION = np.asarray([0.229, 0.224, 0.225], np.float32)


def picture(luck: np.random.Generator, width: int, height: int) -> Image.Image:
    """An image with detail at several scales, as photographs have: about 110 KB as JPEG."""
    total = np.zeros((height, width, 3), np.float32)
    for cells, strength in ((8, 60), (32, 40), (128, 25), (400, 12)):
        coarse = luck.normal(0, strength, (max(cells * height // width, 2), cells, 3))
        small = Image.fromarray(np.clip(coarse + 128, 0, 255).astype(np.uint8))
        total += (
            np.asarray(small.resize((width, height), Image.Resampling.BICUBIC), np.float32) - 128
        )
    return Image.fromarray(np.clip(total + 128, 0, 255).astype(np.uint8))


class Images(torch.utils.data.Dataset):  # type: ignore[misc]
    """Files that are decoded, cropped to 224x224, flipped and normalised when asked for."""

    def __init__(self, files: list[Path], crop: int | None) -> None:
        self.files, self.crop = files, crop

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        data = io.BytesIO(self.files[index % len(self.files)].read_bytes())
        image = Image.open(data).convert("RGB")
        luck = np.random.default_rng(index)
        if self.crop:
            area = luck.uniform(0.08, 1.0) * image.width * image.height
            side = int(min(area**0.5, image.width, image.height))
            left = int(luck.integers(0, image.width - side + 1))
            top = int(luck.integers(0, image.height - side + 1))
            box = (left, top, left + side, top + side)
            image = image.resize((self.crop, self.crop), Image.Resampling.BILINEAR, box=box)
        pixels = np.asarray(image, np.float32) / 255
        if luck.random() < 0.5:
            pixels = pixels[:, ::-1]
        pixels = (pixels - MEAN) / DEVIATION
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))


def loader(files: list[Path], crop: int | None, workers: int, batch: int) -> Any:
    """Batches by so many worker processes."""
    return torch.utils.data.DataLoader(
        Images(files, crop), batch_size=batch, num_workers=workers, pin_memory=True,
        prefetch_factor=4, persistent_workers=True,
    )  # fmt: skip


def rate(batches: Any, batch: int, step: Any = None, seconds: float = 8.0) -> float:
    """Samples a second once the first batches are through."""
    source = iter(batches)
    for _ in range(3):
        first = next(source)
        if step is not None:
            step(first)
    torch.cuda.synchronize()
    started, done = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        images = next(source)
        if step is not None:
            step(images)
        done += batch
    torch.cuda.synchronize()
    return done / (time.perf_counter() - started)


def trainer() -> Any:
    """A training step of ResNet-50 in bf16 that takes a batch from the host."""
    resnet50 = importlib.import_module("resnet50")
    model = resnet50.ResNet().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()

    def step(images: torch.Tensor) -> None:
        images = images.cuda(non_blocking=True).to(memory_format=torch.channels_last)
        labels = torch.zeros(len(images), dtype=torch.long, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> int:
    """Measure and write a row for each."""
    threads = len(os.sched_getaffinity(0))
    luck = np.random.default_rng(0)
    torch.set_num_threads(1)
    step = trainer()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        kinds = {
            "jpeg 500x375 to 224": (".jpg", (WIDTH, HEIGHT), 224),
            "png 256": (".png", (256, 256), None),
            "jpeg 256": (".jpg", (256, 256), None),
        }
        fixed = torch.randn(128, 3, 224, 224).pin_memory()
        alone = rate(iter(lambda: fixed, None), 128, step)
        rows.append({"kind": "none", "workers": 0, "what": "gpu alone", "samples_per_s": alone})
        for kind, (ending, size, crop) in kinds.items():
            files = []
            for number in range(IMAGES):
                path = Path(folder) / f"{kind.replace(' ', '_')}_{number}{ending}"
                image = picture(luck, *size)
                image.save(path, quality=92)  # which PNG takes no notice of
                files.append(path)
            mean_bytes = sum(path.stat().st_size for path in files) / len(files)
            for workers in sorted({1, 2, 4, 8, threads - 1}):
                found = rate(loader(files, crop, workers, 128), 128, seconds=6.0)
                rows.append(
                    {"kind": kind, "workers": workers, "what": "loader alone",
                     "samples_per_s": found, "sample_bytes": mean_bytes}
                )  # fmt: skip
                if kind == "jpeg 500x375 to 224":
                    fed = rate(loader(files, crop, workers, 128), 128, step, seconds=6.0)
                    rows.append(
                        {"kind": kind, "workers": workers, "what": "training",
                         "samples_per_s": fed, "sample_bytes": mean_bytes}
                    )  # fmt: skip
                print(rows[-2:], flush=True)
    with Path(sys.argv[1]).open("w", newline="", encoding="utf-8") as file:
        heads = ["kind", "workers", "what", "samples_per_s", "sample_bytes"]
        writer = csv.DictWriter(file, heads, lineterminator="\n", restval="")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{threads} CPU threads, {torch.cuda.get_device_name()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
