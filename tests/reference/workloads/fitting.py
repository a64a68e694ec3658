"""Five models and the changes people make so that they fit, written out by hand in plain PyTorch.

Each function takes a batch size and the changes, joined by " + ": `bf16 autocast`, `fp16
autocast`, `bf16`, `blocks`, `selective`, `fused`, `offloaded`, `accumulate 4`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)
from training import Step, allow_tf32

_AUTOCAST = {"bf16 autocast": torch.bfloat16, "fp16 autocast": torch.float16}
_aten = torch.ops.aten
_PRODUCTS = (
    _aten.mm.default,
    _aten.addmm.default,
    _aten.bmm.default,
    _aten.convolution.default,
    _aten._scaled_dot_product_flash_attention.default,
    _aten._scaled_dot_product_efficient_attention.default,
    _aten._scaled_dot_product_cudnn_attention.default,
)


def _keep_products(_context: object, operator: object, *_: object, **__: object) -> object:
    keep = operator in _PRODUCTS
    return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE


def _recomputing(changes: Sequence[str]) -> dict[str, object]:
    """Options of torch's checkpoint."""
    options: dict[str, object] = {"use_reentrant": False}
    if "selective" in changes:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _keep_products)
    return options


def _recomputes(changes: Sequence[str]) -> bool:
    return "blocks" in changes or "selective" in changes


def _wrap(blocks: Sequence[nn.Module], changes: Sequence[str]) -> None:
    if not _recomputes(changes):
        return
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, **_recomputing(changes))


class _OnHost:
    """An optimizer whose state and update are on the host."""

    def __init__(self, parameters: list[nn.Parameter], make: Callable[..., object]) -> None:
        self._parameters = parameters
        self._masters = [p.detach().cpu().pin_memory() for p in parameters]
        for master in self._masters:
            master.grad = torch.empty_like(master, device="cpu").pin_memory()
        self._update = make(self._masters)

    def step(self) -> None:
        for p, master in zip(self._parameters, self._masters, strict=True):
            master.grad.copy_(p.grad, non_blocking=True)
        torch.cuda.synchronize()
        self._update.step()
        with torch.no_grad():
            for p, master in zip(self._parameters, self._masters, strict=True):
                p.copy_(master, non_blocking=True)

    def zero_grad(self) -> None:
        for p in self._parameters:
            p.grad = None


def _train(
    model: nn.Module,
    loss_of: Callable[[slice], Tensor],
    batch_size: int,
    changes: Sequence[str],
    make: Callable[..., torch.optim.Optimizer],
) -> Step:
    allow_tf32(True)
    model.train()
    if "fused" in changes:
        make = partial(make, fused=True)
    parameters = list(model.parameters())
    update = _OnHost(parameters, make) if "offloaded" in changes else make(parameters)
    pieces = next((int(one.split()[1]) for one in changes if one.startswith("accumulate")), 1)
    dtype = next((_AUTOCAST[one] for one in changes if one in _AUTOCAST), None)
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    size = batch_size // pieces

    def plain() -> None:
        for i in range(pieces):
            loss = loss_of(slice(i * size, (i + 1) * size))
            (loss / pieces if pieces > 1 else loss).backward()
        update.step()
        update.zero_grad()

    def mixed() -> None:
        for i in range(pieces):
            with torch.autocast("cuda", dtype):
                loss = loss_of(slice(i * size, (i + 1) * size))
            scaler.scale(loss / pieces if pieces > 1 else loss).backward()
        scaler.step(update)
        scaler.update()
        update.zero_grad()

    return plain if dtype is None else mixed


def _changes(text: str) -> list[str]:
    return [one for one in text.split(" + ") if one]


def _classify(
    model: nn.Module, blocks: Sequence[nn.Module], batch_size: int, text: str, make: object
) -> Step:
    changes = _changes(text)
    x = torch.randn(batch_size, 3, 224, 224)
    y = torch.randint(1000, (batch_size,))
    if "bf16" in changes:
        model, x = model.bfloat16(), x.bfloat16()
    _wrap(blocks, changes)

    def loss_of(part: slice) -> Tensor:
        return functional.cross_entropy(model(x[part]), y[part])

    return _train(model, loss_of, batch_size, changes, make)


def resnet50(batch_size: int, changes: str = "") -> Step:
    from torchvision.models import resnet50

    model = resnet50()
    blocks = [*model.layer1, *model.layer2, *model.layer3, *model.layer4]
    make = partial(torch.optim.SGD, lr=0.01, momentum=0.9)
    return _classify(model, blocks, batch_size, changes, make)


def vit_b16(batch_size: int, changes: str = "") -> Step:
    from torchvision.models import vit_b_16

    model = vit_b_16()
    make = partial(torch.optim.AdamW, lr=1e-4)
    return _classify(model, list(model.encoder.layers), batch_size, changes, make)


def _language(model: nn.Module, length: int, batch_size: int, text: str) -> Step:
    changes = _changes(text)
    if "bf16" in changes:
        model = model.bfloat16()
    if _recomputes(changes):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=_recomputing(changes))
    ids = torch.randint(model.config.vocab_size, (batch_size, length))

    def loss_of(part: slice) -> Tensor:
        return model(input_ids=ids[part], labels=ids[part], use_cache=False).loss

    return _train(model, loss_of, batch_size, changes, partial(torch.optim.AdamW, lr=1e-4))


def gpt2_medium(batch_size: int, changes: str = "") -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=1024, n_layer=24, n_head=16, attn_implementation="sdpa")
    return _language(GPT2LMHeadModel(config), 512, batch_size, changes)


def llama_400m(batch_size: int, changes: str = "") -> Step:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=1024,
        intermediate_size=2816,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=16,
        vocab_size=32_000,
        attn_implementation="sdpa",
    )
    return _language(LlamaForCausalLM(config), 1024, batch_size, changes)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1)
        )
        self.second = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(width, width, 3, 1, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))


class _Denoiser(nn.Module):
    """Residual blocks at three resolutions, down and up again."""

    def __init__(self, widths: Sequence[int] = (128, 256, 512)) -> None:
        super().__init__()
        self.inlet = nn.Conv2d(3, widths[0], 3, 1, 1)
        self.down = nn.ModuleList(_Residual(w) for w in widths for _ in range(2))
        self.shrink = nn.ModuleList(nn.Conv2d(a, b, 3, 2, 1) for a, b in pairwise(widths))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairwise(widths))
        self.up = nn.ModuleList(_Residual(w) for w in widths[:-1] for _ in range(2))
        self.outlet = nn.Conv2d(widths[0], 3, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inlet(x)
        passed = []
        for i in range(3):
            x = self.down[2 * i + 1](self.down[2 * i](x))
            if i < 2:
                passed.append(x)
                x = self.shrink[i](x)
        for i in (1, 0):
            x = self.grow[i](x) + passed[i]
            x = self.up[2 * i + 1](self.up[2 * i](x))
        return self.outlet(x)


def denoiser(batch_size: int, changes: str = "") -> Step:
    asked = _changes(changes)
    model = _Denoiser()
    x, noise = torch.randn(2, batch_size, 3, 128, 128)
    if "bf16" in asked:
        model, x, noise = model.bfloat16(), x.bfloat16(), noise.bfloat16()
    _wrap([*model.down, *model.up], asked)

    def loss_of(part: slice) -> Tensor:
        return functional.mse_loss(model(x[part] + noise[part]), noise[part])

    make = partial(torch.optim.Adam, lr=1e-4)
    return _train(model, loss_of, batch_size, asked, make)
