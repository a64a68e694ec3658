"""Semantic segmentation with a model of torchvision or transformers: a class for every pixel.

bf16 autocast over fp32 weights, fused AdamW, cross entropy of scores at the size of the image; the
auxiliary classifier of torchvision's models counts 0.5, as in its reference script.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import dtypes_of, step_of, trained_parameters, transformers_model
from torch import Tensor
from torch.nn import functional

MODEL = ""
CONFIG: dict[str, Any] = {}
LIBRARY = "torchvision"
AUTO_CLASS = "AutoModelForSemanticSegmentation"

IMAGE_SIZE: int = 512  # height and width
CLASSES: int = 21
PRECISION: Literal["bf16 autocast", "bf16", "fp16 autocast", "tf32", "fp32"] = "bf16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
ACCUMULATION: int = 1  # batches before each update
COMPILE: bool = False
FROZEN: tuple[str, ...] = ()  # texts in the names of what is not trained: "backbone"
CLIP_NORM: float | None = None


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    weights, autocast = dtypes_of(PRECISION)
    if LIBRARY == "torchvision":
        from torchvision.models import get_model

        model = get_model(
            CONFIG["architecture"], weights=None, weights_backbone=None, num_classes=CLASSES
        )
        model = model.to(dtype=weights).train()
    else:
        model = transformers_model(AUTO_CLASS, {**CONFIG, "num_labels": CLASSES}, weights)
    trained = trained_parameters(model, FROZEN)
    images = torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE, dtype=weights)
    labels = torch.randint(CLASSES, (batch_size, IMAGE_SIZE, IMAGE_SIZE))
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        result = run(images)
        scores = result["out"] if LIBRARY == "torchvision" else result.logits
        scores = functional.interpolate(scores.float(), labels.shape[-2:], mode="bilinear")
        loss = functional.cross_entropy(scores, labels, ignore_index=255)
        if "aux" in result:
            loss = loss + 0.5 * functional.cross_entropy(result["aux"].float(), labels)
        return loss

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
