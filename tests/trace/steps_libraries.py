"""Steps with Lightning, bitsandbytes and torchao."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Step = Callable[[], object]
N = 128
"""128 * 128 elements are four blocks of 4096, and eight of 2048."""


class _Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(N, N, bias=False)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        (x,) = batch
        loss = self.layer(x).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def lightning_by_hand(batch_size: int) -> Step:
    """A LightningModule's training_step, called by a step of one's own."""
    model, x = _Module(), torch.randn(batch_size, N)
    optimizer = model.configure_optimizers()

    def step() -> None:
        model.training_step([x], 0).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def lightning_trainer(batch_size: int) -> Step:
    """The Trainer runs one step a call."""
    model = _Module()
    with torch.device("cpu"):
        data = TensorDataset(torch.randn(batch_size, N))
    loader = DataLoader(data, batch_size, num_workers=2)

    def step() -> None:
        trainer = lightning.Trainer(
            max_steps=1,
            accelerator="gpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=tempfile.gettempdir(),
        )
        trainer.fit(model, loader)

    return step


def _trained(optimizer_of: Callable[..., torch.optim.Optimizer], batch_size: int) -> Step:
    model, x = nn.Linear(N, N, bias=False), torch.randn(batch_size, N)
    optimizer = optimizer_of(model.parameters())

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def bitsandbytes_adam8bit(batch_size: int) -> Step:
    """Adam with states of one byte an element."""
    import bitsandbytes

    return _trained(bitsandbytes.optim.Adam8bit, batch_size)


def bitsandbytes_paged(batch_size: int) -> Step:
    """AdamW with states of 32 bits in paged memory."""
    import bitsandbytes

    return _trained(bitsandbytes.optim.PagedAdamW32bit, batch_size)


def bitsandbytes_lion8bit(batch_size: int) -> Step:
    """Lion with a state of one byte an element."""
    import bitsandbytes

    return _trained(bitsandbytes.optim.Lion8bit, batch_size)


def torchao_adam8bit(batch_size: int) -> Step:
    """torchao's 8-bit Adam."""
    from torchao.optim import AdamW8bit

    return _trained(AdamW8bit, batch_size)
