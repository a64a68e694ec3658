"""DPO: a language model learns to prefer one of two answers, held against what it said before.

As trl's DPOTrainer with peft does it: the two answers of a pair in one batch (twice the rows),
padded; the model frozen in bf16, fp32 adapters under bf16 autocast, the reference the same model
with its adapters off; log-probabilities row by row, blocks recomputed in backward (not reentrant).
Without LORA_RANK every weight is trained, and the reference is a frozen copy in bf16.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import adapted, step_of, token_batch, trained_parameters, transformers_model
from torch import Tensor, nn
from torch.nn import functional

MODEL = ""
CONFIG: dict[str, Any] = {}
AUTO_CLASS = "AutoModelForCausalLM"

TOKENS: int = 1024  # of a question with one answer
LORA_RANK: int | None = 16  # without one, every weight is trained
LORA_TARGETS: tuple[str, ...] = ("all-linear",)  # or names of layers: "q_proj", "v_proj"
BETA: float = 0.1
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = True  # blocks keep their input only, and run again in backward
ACCUMULATION: int = 1  # batches before each update
ATTENTION: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size: so many pairs."""
    bf16 = torch.bfloat16
    weights = torch.float32 if LORA_RANK is None else bf16
    model = transformers_model(AUTO_CLASS, CONFIG, weights, ATTENTION, CHECKPOINTING)
    batch = token_batch(model, 2 * batch_size, TOKENS)
    labels = batch.pop("labels")
    if LORA_RANK is None:
        reference = transformers_model(AUTO_CLASS, CONFIG, bf16, ATTENTION)
        reference.requires_grad_(False)
        without_adapters = contextlib.nullcontext
    else:
        model = adapted(model, LORA_RANK, 2 * LORA_RANK, 0.0, LORA_TARGETS)
        reference, without_adapters = model, model.disable_adapter
    trained = trained_parameters(model)

    def margin_of(model: nn.Module) -> Tensor:
        logits = model(**batch).logits[:, :-1]
        nexts = labels[:, 1:].clamp(min=0)
        rows = zip(logits, nexts, strict=True)
        each = [row.log_softmax(-1).gather(-1, ids[:, None])[:, 0] for row, ids in rows]
        chosen, rejected = (torch.stack(each) * (labels[:, 1:] != -100)).sum(-1).chunk(2)
        return chosen - rejected

    def loss_of() -> Tensor:
        with torch.no_grad(), without_adapters():
            before = margin_of(reference)
        return -functional.logsigmoid(BETA * (margin_of(model) - before)).mean()

    return step_of(loss_of, trained, OPTIMIZER, bf16, ACCUMULATION, CLIP_NORM)
