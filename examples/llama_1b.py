"""A Llama of 1.1 B parameters on sequences of 2048 tokens: AdamW, everything in bf16.

The sizes of TinyLlama (Zhang et al., arXiv 2401.02385): 22 layers of width 2048, 32 query heads
sharing 4 key and value heads, SwiGLU of width 5632, rotary positions. 1,100,048,384 parameters.
Weights, gradients and both Adam moments are bf16. A sample is a sequence.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from common import Step, training_step_of

VOCABULARY = 32000


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Queries or keys [B, heads, T, d] turned by their positions."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


class Block(nn.Module):
    """A pre-norm transformer block with grouped-query attention and a gated MLP."""

    def __init__(self, width: int, heads: int, kv_heads: int, hidden: int) -> None:
        super().__init__()
        self.head_width = width // heads
        kv_width = kv_heads * self.head_width
        self.norm1, self.norm2 = (nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.query, self.proj = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.key, self.value = (nn.Linear(width, kv_width, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Tokens of the same shape [B, T, width]."""
        normal = self.norm1(x)
        q, k, v = (
            linear(normal).unflatten(-1, (-1, self.head_width)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        normal = self.norm2(x)
        return x + self.down(F.silu(self.gate(normal)) * self.up(normal))


class Llama(nn.Module):
    """A token embedding, transformer blocks, and a head of its own."""

    def __init__(
        self,
        width: int = 2048,
        layers: int = 22,
        heads: int = 32,
        kv_heads: int = 4,
        hidden: int = 5632,
        vocabulary: int = VOCABULARY,
        context: int = 2048,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, hidden) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, vocabulary, bias=False)
        head_width = width // heads
        frequency = 10_000 ** (-torch.arange(0, head_width, 2) / head_width)
        angle = torch.outer(torch.arange(context), frequency).repeat(1, 2)
        self.register_buffer("cosine", angle.cos(), persistent=False)
        self.register_buffer("sine", angle.sin(), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores [B, T, vocabulary] of the next token."""
        x = self.tokens(ids)
        cosine, sine = (table[: ids.shape[1]] for table in (self.cosine, self.sine))
        for block in self.blocks:
            x = block(x, cosine, sine)
        return self.head(self.norm(x))


def training_step(batch_size: int, precision: str = "bf16", sequence: int = 2048) -> Step:
    """One step at a batch size, every token predicting the next."""
    model = Llama(context=sequence)
    ids, next_ids = torch.randint(VOCABULARY, (2, batch_size, sequence)).unbind(0)

    def loss_of(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(ids).float().flatten(0, 1), next_ids.flatten())

    adamw = partial(torch.optim.AdamW, lr=4e-4, betas=(0.9, 0.95), weight_decay=0.1)
    return training_step_of(model, loss_of, adamw, precision)
