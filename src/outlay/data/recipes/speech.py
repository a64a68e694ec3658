"""Speech recognition: Whisper writes a text, wav2vec 2.0 is trained with CTC.

As transformers' Trainer does it: fp32 weights under fp16 autocast with a gradient scaler, fused
AdamW, gradients clipped to a norm of 1. Whisper sees 30 seconds whatever the length of a sample;
wav2vec 2.0 sees samples at 16 kHz, its feature encoder is frozen as in transformers' example.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import dtypes_of, step_of, trained_parameters, transformers_model
from torch import Tensor

MODEL = ""
CONFIG: dict[str, Any] = {}
AUTO_CLASS = "AutoModelForSpeechSeq2Seq"

SECONDS: float = 15.0  # of a sample; Whisper pads it to 30
TEXT_TOKENS: int = 64  # of its text
PRECISION: Literal["bf16 autocast", "bf16", "fp16 autocast", "tf32", "fp32"] = "fp16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = False  # blocks keep their input only, and run again in backward
ACCUMULATION: int = 1  # batches before each update
ATTENTION: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
COMPILE: bool = False
FROZEN: tuple[str, ...] = ()  # texts in the names of what is not trained: "encoder"
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    weights, autocast = dtypes_of(PRECISION)
    config = {**CONFIG, "layerdrop": 0.0, "mask_time_prob": 0.0}
    model = transformers_model(AUTO_CLASS, config, weights, ATTENTION, CHECKPOINTING)
    if hasattr(model, "freeze_feature_encoder"):
        model.freeze_feature_encoder()
    trained = trained_parameters(model, FROZEN)
    labels = torch.randint(1, model.config.vocab_size, (batch_size, TEXT_TOKENS))
    if AUTO_CLASS == "AutoModelForCTC":
        waves = torch.randn(batch_size, round(SECONDS * 16000), dtype=weights)
        batch = {"input_values": waves, "labels": labels}
    else:
        frames = 2 * model.config.max_source_positions
        features = torch.randn(batch_size, model.config.num_mel_bins, frames, dtype=weights)
        batch = {"input_features": features, "labels": labels}
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        return run(**batch).loss

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
