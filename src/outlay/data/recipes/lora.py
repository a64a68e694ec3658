"""LoRA: the model is frozen in bf16, small matrices beside its linear layers are trained.

As trl's SFTTrainer with peft does it: adapters in fp32 (peft's autocast_adapter_dtype) under bf16
autocast, fused AdamW, gradients clipped to a norm of 1, blocks recomputed in backward (not
reentrant), samples padded to the longest of their batch. Adapters are beside every linear layer
but the last, as in the QLoRA paper; peft's own default for Llama is ("q_proj", "v_proj").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import adapted, apply_liger, step_of, token_batch, trained_parameters, transformers_model
from torch import Tensor

MODEL = ""
CONFIG: dict[str, Any] = {}
AUTO_CLASS = "AutoModelForCausalLM"

TOKENS: int = 1024  # of a sample, as it is padded or packed
PACKING: bool = False  # samples joined to full rows: no mask, no padding
LORA_RANK: int = 16
LORA_ALPHA: int = 32
LORA_DROPOUT: float = 0.0
LORA_TARGETS: tuple[str, ...] = ("all-linear",)  # or names of layers: "q_proj", "v_proj"
WEIGHTS: Literal["bf16", "fp16", "fp32"] = "bf16"  # of the frozen model
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = True  # blocks keep their input only, and run again in backward
ACCUMULATION: int = 1  # batches before each update
ATTENTION: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
LIGER: bool = False  # fused kernels of liger_kernel: norms, gates, the loss without logits
COMPILE: bool = False
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    weights = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[WEIGHTS]
    autocast = torch.float16 if WEIGHTS == "fp16" else torch.bfloat16
    if LIGER:
        apply_liger(CONFIG)
    model = transformers_model(AUTO_CLASS, CONFIG, weights, ATTENTION, CHECKPOINTING)
    model = adapted(model, LORA_RANK, LORA_ALPHA, LORA_DROPOUT, LORA_TARGETS)
    trained = trained_parameters(model)
    batch = token_batch(model.get_base_model(), batch_size, TOKENS, PACKING)
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        return run(**batch).loss

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
