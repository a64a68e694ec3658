"""What the reference steps share: a training step out of a model, a loss and a few choices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

Step = Callable[[], None]

if torch.version.cuda is None:
    # torchvision's wheel needs CUDA libraries for its operators; its models import without them.
    try:
        _operators = torch.library.Library("torchvision", "FRAGMENT")
        for _name in ("nms", "qnms"):
            _operators.define(f"{_name}(Tensor a, Tensor b, float c) -> Tensor")
    except RuntimeError:
        pass

_AUTOCAST = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16}

_OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=1e-4),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
    "adamw-fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
    "adamw-loop": lambda p: torch.optim.AdamW(p, lr=1e-4, foreach=False),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-4),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
}


def allow_tf32(allowed: bool) -> None:
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def step_of(
    model: nn.Module,
    loss_of: Callable[[nn.Module], Tensor],
    precision: str = "bf16-amp",
    optimizer: str = "adamw",
    *,
    accumulate: int = 1,
    clip: bool = False,
) -> Step:
    """Forward, backward, update; `accumulate` micro-batches before each update."""
    allow_tf32(precision != "fp32")
    if precision == "bf16":
        model.bfloat16()
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    update = _OPTIMIZERS[optimizer](parameters)
    amp_dtype = _AUTOCAST.get(precision)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16-amp")

    def step() -> None:
        for _ in range(accumulate):
            with torch.autocast("cuda", amp_dtype, enabled=amp_dtype is not None):
                loss = loss_of(model) / accumulate
            scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(update)
            nn.utils.clip_grad_norm_(parameters, 1.0)
        scaler.step(update)
        scaler.update()
        update.zero_grad(set_to_none=True)

    return step


def classify(
    model: nn.Module,
    batch_size: int,
    precision: str = "bf16-amp",
    optimizer: str = "momentum",
    *,
    size: tuple[int, ...] = (224, 224),
    classes: int = 1000,
    channels_last: bool = False,
    **choices: object,
) -> Step:
    """A step of an image (or video) classifier on cross entropy."""
    x = torch.randn(batch_size, 3, *size)
    y = torch.randint(classes, (batch_size,))
    if channels_last:
        model, x = (
            model.to(memory_format=torch.channels_last),
            x.contiguous(memory_format=torch.channels_last),
        )
    if precision == "bf16":
        x = x.bfloat16()

    def loss_of(model: nn.Module) -> Tensor:
        return functional.cross_entropy(model(x).float(), y)

    return step_of(model, loss_of, precision, optimizer, **choices)
