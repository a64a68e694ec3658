"""Image classification with a model of timm, torchvision or transformers: every weight is trained.

bf16 autocast over fp32 weights, fused AdamW, cross entropy in fp32, as the training scripts of
these libraries have it; torchvision's own trains ResNets with SGD. Images are decoded and augmented
by the loader, which is no part of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import dtypes_of, image_classifier, step_of, trained_parameters
from torch import Tensor
from torch.nn import functional

MODEL = ""
CONFIG: dict[str, Any] = {}
LIBRARY = "timm"

IMAGE_SIZE: int | None = None  # height and width; without one, the model's own
CLASSES: int = 1000
PRECISION: Literal["bf16 autocast", "bf16", "fp16 autocast", "tf32", "fp32"] = "bf16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = False  # blocks keep their input only, and run again in backward
CHANNELS_LAST: bool = False
ACCUMULATION: int = 1  # batches before each update
COMPILE: bool = False
FROZEN: tuple[str, ...] = ()  # texts in the names of what is not trained: "blocks"
CLIP_NORM: float | None = None


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    weights, autocast = dtypes_of(PRECISION)
    model, size = image_classifier(LIBRARY, CONFIG, CLASSES, IMAGE_SIZE, CHECKPOINTING)
    layout = torch.channels_last if CHANNELS_LAST else torch.contiguous_format
    model = model.to(dtype=weights, memory_format=layout).train()
    trained = trained_parameters(model, FROZEN)
    images = torch.randn(batch_size, 3, size, size, dtype=weights).to(memory_format=layout)
    labels = torch.randint(CLASSES, (batch_size,))
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        scores = run(images)
        scores = getattr(scores, "logits", scores)
        return functional.cross_entropy(scores.float(), labels)

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
