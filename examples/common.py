"""What the example training steps share: one step out of a model, a loss and an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

Step = Callable[[], None]
OptimizerMaker = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]

AUTOCAST_DTYPES = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}
PRECISIONS = ("fp32", "tf32", "bf16", *AUTOCAST_DTYPES)


def allow_tf32(allowed: bool) -> None:
    """Let float32 matrix products and convolutions run in TF32, or forbid it."""
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def parameters_of(model: nn.Module) -> int:
    """The number of parameters, a tied weight counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def training_step_of(
    model: nn.Module,
    loss_of: Callable[[nn.Module], Tensor],
    optimizer: OptimizerMaker,
    precision: str,
) -> Step:
    """A step of forward, backward, update and dropping the gradients.

    `precision` is fp32, tf32 (fp32 tensors, TF32 arithmetic allowed), bf16-amp or fp16-amp
    (autocast; fp16 with a gradient scaler), or bf16 (weights, gradients and optimizer in bf16).
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")
    allow_tf32(precision != "fp32")
    if precision == "bf16":
        model.bfloat16()
    model.train()
    update = optimizer(model.parameters())
    device = next(model.parameters()).device.type
    amp_dtype = AUTOCAST_DTYPES.get(precision)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16-amp")

    def step() -> None:
        with torch.autocast(device, amp_dtype, enabled=amp_dtype is not None):
            loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()
        update.zero_grad(set_to_none=True)

    return step
