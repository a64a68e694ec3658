"""Training an image generator of diffusers: a U-Net or a diffusion transformer learns the noise.

As the training scripts of diffusers have it: fp32 weights under bf16 autocast, AdamW, gradients
clipped to a norm of 1, mean squared error in fp32. With LORA_RANK the model is frozen in bf16 and
small matrices beside its attention are trained, as in their LoRA scripts. Latents and texts are
encoded beforehand: neither the autoencoder nor the text encoders run here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from parts import diffusion_inputs, dtypes_of, step_of, trained_parameters
from torch import Tensor
from torch.nn import functional

MODEL = ""
CONFIG: dict[str, Any] = {}

IMAGE_SIZE: int | None = None  # in pixels; without one, the model's own
TEXT_TOKENS: int | None = None  # of a text; without one, 77, of Stable Diffusion 3 333, of Flux 512
PRECISION: Literal["bf16 autocast", "bf16", "fp16 autocast", "tf32", "fp32"] = "bf16 autocast"
OPTIMIZER: Literal["adamw", "adamw-8bit", "paged-adamw-8bit", "adafactor", "muon", "sgd"] = "adamw"
CHECKPOINTING: bool = False  # blocks keep their input only, and run again in backward
LORA_RANK: int | None = None  # without one, every weight is trained
LORA_TARGETS: tuple[str, ...] = ("to_k", "to_q", "to_v", "to_out.0")
ACCUMULATION: int = 1  # batches before each update
COMPILE: bool = False
FROZEN: tuple[str, ...] = ()  # texts in the names of what is not trained: "down_blocks"
CLIP_NORM: float | None = 1.0


def training_step(batch_size: int) -> Callable[[], None]:
    """One step at a batch size."""
    import diffusers

    weights, autocast = dtypes_of(PRECISION)
    if LORA_RANK is not None:
        weights, autocast = torch.bfloat16, torch.bfloat16
    model = getattr(diffusers, CONFIG["_class_name"]).from_config(CONFIG)
    model = model.to(dtype=weights).train()
    if CHECKPOINTING:
        model.enable_gradient_checkpointing()
    if LORA_RANK is not None:
        import peft

        model.requires_grad_(False)
        config = peft.LoraConfig(
            r=LORA_RANK, lora_alpha=LORA_RANK, target_modules=list(LORA_TARGETS)
        )
        peft.inject_adapter_in_model(config, model)
        for parameter in trained_parameters(model):
            parameter.data = parameter.data.float()
    trained = trained_parameters(model, FROZEN)
    inputs, shape = diffusion_inputs(model, batch_size, IMAGE_SIZE, TEXT_TOKENS, weights)
    noise = torch.randn(shape, dtype=weights)
    run = torch.compile(model) if COMPILE else model

    def loss_of() -> Tensor:
        predicted = run(**inputs, return_dict=False)[0]
        if predicted.shape[1] == 2 * noise.shape[1]:  # DiT predicts a variance, too
            predicted = predicted.chunk(2, 1)[0]
        return functional.mse_loss(predicted.float(), noise.float())

    return step_of(loss_of, trained, OPTIMIZER, autocast, ACCUMULATION, CLIP_NORM)
