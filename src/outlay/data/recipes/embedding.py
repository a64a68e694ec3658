"""Contrastive training of embeddings: each text finds its own among those of the batch.

As sentence-transformers' MultipleNegativesRankingLoss: two texts a sample, the mean over tokens,
cosine similarities times 20, cross entropy. CLIP finds the image of a text with its own loss. fp32
weights under bf16 autocast, fused AdamW, gradients clipped to a norm of 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import dtypes_of, step_of, token_batch, trained_parameters, transformers_model
from torch import Tensor
from torch.nn import functional

MODEL = ""
CONFIG: dict[str, Any] = {}
AUTO_CLASS = "AutoModel"

TOKENS: int = 256  # of each text
PRECISION: Literal["bf16 autocast", "bf16", "fp16 autocast", "tf32", "fp32"] = "bf16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = False  # blocks keep their input only, and run again in backward
ATTENTION: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
COMPILE: bool = False
FROZEN: tuple[str, ...] = ()  # texts in the names of what is not trained: "vision_model"
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    weights, autocast = dtypes_of(PRECISION)
    model = transformers_model(AUTO_CLASS, CONFIG, weights, ATTENTION, CHECKPOINTING)
    trained = trained_parameters(model, FROZEN)
    texts = [token_batch(model, batch_size, TOKENS) for _ in range(2)]
    own = torch.arange(batch_size)
    run = torch.compile(model) if COMPILE else model

    def embedded(batch: dict[str, Tensor]) -> Tensor:
        mask = batch["attention_mask"]
        hidden = run(input_ids=batch["input_ids"], attention_mask=mask).last_hidden_state
        share = mask[..., None].to(hidden.dtype)
        return functional.normalize((hidden * share).sum(1) / share.sum(1), dim=-1)

    def loss_of_texts() -> Tensor:
        first, second = (embedded(batch) for batch in texts)
        return functional.cross_entropy(20.0 * (first @ second.T).float(), own)

    vision = getattr(model.config, "vision_config", None)
    if vision is None:
        return step_of(loss_of_texts, trained, OPTIMIZER, autocast, 1, CLIP_NORM)
    images = torch.randn(batch_size, 3, vision.image_size, vision.image_size, dtype=weights)

    def loss_of_pairs() -> Tensor:
        return run(input_ids=texts[0]["input_ids"], pixel_values=images, return_loss=True).loss

    return step_of(loss_of_pairs, trained, OPTIMIZER, autocast, 1, CLIP_NORM)
