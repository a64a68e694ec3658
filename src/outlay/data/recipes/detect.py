"""Object detection with a model of torchvision, which computes its own losses.

As torchvision's reference script has it: fp32 weights, SGD with momentum; here under bf16 autocast.
How many boxes are matched depends on the data: of such selections a trace keeps a share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import dtypes_of, step_of, trained_parameters
from torch import Tensor

MODEL = ""
CONFIG: dict[str, Any] = {}
LIBRARY = "torchvision"

IMAGE_SIZE: int = 800  # height and width, as the model resizes images to
CLASSES: int = 91
BOXES: int = 7  # in an image: COCO has so many
PRECISION: Literal["bf16 autocast", "fp16 autocast", "tf32", "fp32"] = "bf16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "sgd"
ACCUMULATION: int = 1  # batches before each update
FROZEN: tuple[str, ...] = ()  # texts in the names of what is not trained: "backbone.body"
CLIP_NORM: float | None = None


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    from torchvision.models import get_model

    weights, autocast = dtypes_of(PRECISION)
    model = get_model(
        CONFIG["architecture"], weights=None, weights_backbone=None, num_classes=CLASSES
    )
    model = model.to(dtype=weights).train()
    trained = trained_parameters(model, FROZEN)
    images = list(torch.rand(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE).unbind(0))
    quarter = IMAGE_SIZE / 4
    boxes = torch.tensor([[float(i), float(i), i + quarter, i + quarter] for i in range(BOXES)])
    targets = [{"boxes": boxes, "labels": torch.ones(BOXES, dtype=torch.long)} for _ in images]
    if "maskrcnn" in CONFIG["architecture"]:
        for target in targets:
            target["masks"] = torch.ones(BOXES, IMAGE_SIZE, IMAGE_SIZE, dtype=torch.uint8)

    def loss_of() -> Tensor:
        return sum(model(images, targets).values())

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
