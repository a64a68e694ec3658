"""QLoRA: the model is frozen in 4 bits (NF4 of bitsandbytes), small matrices beside it are trained.

As trl's SFTTrainer with peft and a BitsAndBytesConfig does it: linear layers but the last in NF4
with scales of 8 bits (double quantization), the rest and all products in bf16, adapters in bf16
(trl casts them for quantized models), fused AdamW, gradients clipped to a norm of 1, blocks
recomputed in backward (not reentrant), samples padded to the longest of their batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import (
    adapted,
    apply_liger,
    in_four_bits,
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
LORA_RANK: int = 16
LORA_ALPHA: int = 32
LORA_DROPOUT: float = 0.0
LORA_TARGETS: tuple[str, ...] = ("all-linear",)  # or names of layers: "q_proj", "v_proj"
DOUBLE_QUANTIZATION: bool = True  # scales in 8 bits, too
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = True  # blocks keep their input only, and run again in backward
ACCUMULATION: int = 1  # batches before each update
ATTENTION: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
LIGER: bool = False  # fused kernels of liger_kernel: norms, gates, the loss without logits
COMPILE: bool = False
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    bf16 = torch.bfloat16
    if LIGER:
        apply_liger(CONFIG)
    with torch.device("cpu"):  # the GPU never has the whole model in bf16
        model = transformers_model(AUTO_CLASS, CONFIG, bf16, ATTENTION, CHECKPOINTING)
    in_four_bits(model, DOUBLE_QUANTIZATION)
    model.to("cuda")
    model = adapted(model, LORA_RANK, LORA_ALPHA, LORA_DROPOUT, LORA_TARGETS)
    trained = trained_parameters(model)
    for parameter in trained:
        parameter.data = parameter.data.to(bf16)
    batch = token_batch(model.get_base_model(), batch_size, TOKENS, PACKING)
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        return run(**batch).loss

    return step_of(loss_of, trained, OPTIMIZER, bf16, ACCUMULATION, CLIP_NORM)
