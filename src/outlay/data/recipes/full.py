"""Full fine-tuning of a language model: every weight is trained.

As trl's SFTTrainer (1.16) and transformers' Trainer do it by default: fp32 weights under bf16
autocast, fused AdamW, gradients clipped to a norm of 1, blocks recomputed in backward (not
reentrant), samples padded to the longest of their batch. transformers shifts the labels and
computes the loss in fp32 of all logits; trl since 1.14 computes it without them, which
`LIGER` comes close to. With `PRECISION = "bf16"` weights, gradients and optimizer state
are bf16, as torchtune has them.
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

TOKENS: int = 1024  # of a sample, as it is padded or packed
PACKING: bool = False  # samples joined to full rows: no mask, no padding
PRECISION: Literal["bf16 autocast", "bf16", "fp16 autocast", "tf32", "fp32"] = "bf16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = True  # blocks keep their input only, and run again in backward
ACCUMULATION: int = 1  # batches before each update
ATTENTION: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
LIGER: bool = False  # fused kernels of liger_kernel: norms, gates, the loss without logits
COMPILE: bool = False
FROZEN: tuple[str, ...] = ()  # texts in the names of what is not trained: "embed_tokens"
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    weights, autocast = dtypes_of(PRECISION)
    if LIGER:
        apply_liger(CONFIG)
    model = transformers_model(AUTO_CLASS, CONFIG, weights, ATTENTION, CHECKPOINTING)
    trained = trained_parameters(model, FROZEN)
    batch = token_batch(model, batch_size, TOKENS, PACKING)
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        return run(**batch).loss

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
