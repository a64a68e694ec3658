"""Pretraining a language model from random weights, on packed rows of tokens.

bf16 autocast over fp32 weights, fused AdamW, gradients clipped to a norm of 1, nothing recomputed;
what differs from full fine-tuning is that rows are full: no mask, no padding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import (
    apply_liger,
    dtypes_of,
    step_of,
    token_batch,
    trained_parameters,
    transformers_model,
)
from torch import Tensor

MODEL = ""
CONFIG: dict[str, Any] = {}
AUTO_CLASS = "AutoModelForCausalLM"

TOKENS: int = 2048  # of a row
PACKING: bool = True  # rows are full: no mask, no padding
PRECISION: Literal["bf16 autocast", "bf16", "fp16 autocast", "tf32", "fp32"] = "bf16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = False  # blocks keep their input only, and run again in backward
ACCUMULATION: int = 1  # batches before each update
ATTENTION: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
LIGER: bool = False  # fused kernels of liger_kernel: norms, gates, the loss without logits
COMPILE: bool = False
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    weights, autocast = dtypes_of(PRECISION)
    if LIGER:
        apply_liger(CONFIG)
    model = transformers_model(AUTO_CLASS, CONFIG, weights, ATTENTION, CHECKPOINTING)
    trained = trained_parameters(model)
    batch = token_batch(model, batch_size, TOKENS, PACKING)
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        return run(**batch).loss

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
