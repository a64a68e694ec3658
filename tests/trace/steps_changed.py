"""A small step as people write it, and the same with changes written out by hand."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(functional.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, width=64, blocks=4, *, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.inlet = nn.Linear(32, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.outlet = nn.Linear(width, 10)

    def forward(self, x):
        x = self.inlet(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.outlet(x)


def _step(batch_size, *, model=None, dtype=None, autocast=None, passes=1, fused=None):
    model = model or Model()
    if dtype is not None:
        model = model.to(dtype)
    x = torch.randn(batch_size, 128, 32, dtype=dtype)
    y = torch.randn(batch_size, 128, 10, dtype=dtype)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    calls = 0

    def step():
        nonlocal calls
        calls += 1
        with torch.autocast("cuda", autocast, enabled=autocast is not None):
            loss = functional.mse_loss(model(x), y)
        loss.backward()
        if calls % passes == 0:
            optimizer.step()
            optimizer.zero_grad()

    step.period = passes
    return step


def plain(batch_size):
    return _step(batch_size)


def bf16_autocast(batch_size):
    return _step(batch_size, autocast=torch.bfloat16)


def bf16(batch_size):
    return _step(batch_size, dtype=torch.bfloat16)


def blocks(batch_size):
    return _step(batch_size, model=Model(recompute=True))


def fused(batch_size):
    return _step(batch_size, fused=True)


def accumulated(batch_size):
    return _step(batch_size, passes=2)


def no_blocks(batch_size):
    """One block is none to choose from."""
    return _step(batch_size, model=Model(blocks=1))


def switched_off(batch_size):
    """Autocast is there, and off: what a flag would turn on."""
    return _step(batch_size)
