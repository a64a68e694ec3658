"""Language models whose training on many GPUs others have published, rebuilt in plain PyTorch.

MPT as MosaicML's llm-foundry trains it (github.com/mosaicml/llm-foundry, scripts/train): learned
positions, no biases, layer norms, one product for queries, keys and values, GELU, embeddings tied
to the head, sequences of 2048, bf16, AdamW.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from training import Step

SIZES = {
    # name: width, heads, blocks
    "125m": (768, 12, 12),
    "350m": (1024, 16, 24),
    "760m": (1536, 12, 24),
    "1b": (2048, 16, 24),
    "3b": (2560, 20, 32),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
    "30b": (7168, 56, 48),
    "70b": (8192, 64, 80),
}
_VOCABULARY = 50_368
_LENGTH = 2048


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width, bias=False)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm_2 = nn.LayerNorm(width, bias=False)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        b, s, w = x.shape
        q, k, v = (
            part.view(b, s, self.heads, w // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, w))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class _Mpt(nn.Module):
    def __init__(self, width: int, heads: int, blocks: int, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.tokens = nn.Embedding(_VOCABULARY, width)
        self.positions = nn.Embedding(_LENGTH, width)
        self.blocks = nn.ModuleList(_Block(width, heads) for _ in range(blocks))
        self.norm = nn.LayerNorm(width, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return functional.linear(self.norm(x), self.tokens.weight)


def _mpt(size: str, batch_size: int, *, recompute: bool) -> Step:
    model = _Mpt(*SIZES[size], recompute=recompute).bfloat16()
    ids = torch.randint(_VOCABULARY, (batch_size, _LENGTH + 1))
    update = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        scores = model(ids[:, :-1])
        functional.cross_entropy(scores.flatten(0, 1), ids[:, 1:].flatten()).backward()
        update.step()
        update.zero_grad()

    return step


def _named(size: str, *, recompute: bool) -> None:
    def build(batch_size: int) -> Step:
        return _mpt(size, batch_size, recompute=recompute)

    globals()[f"mpt_{size}{'_recomputed' if recompute else ''}"] = build


for _size in SIZES:
    _named(_size, recompute=False)
    _named(_size, recompute=True)
