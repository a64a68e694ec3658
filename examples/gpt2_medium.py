"""GPT-2 medium on sequences of 1024 tokens: AdamW under bf16 autocast.

Radford et al., "Language Models are Unsupervised Multitask Learners", 2019: 24 layers of width
1024, 16 heads, dropout 0.1, the head tied to the token embedding. 354,823,168 parameters. A sample
is a sequence.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from common import Step, training_step_of

VOCABULARY = 50257


class Block(nn.Module):
    """A pre-norm transformer block with causal attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of the same shape [B, T, width]."""
        dropout = self.dropout if self.training else 0.0
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).unbind(2)
        attended = F.scaled_dot_product_attention(
            *(part.transpose(1, 2) for part in (q, k, v)), dropout_p=dropout, is_causal=True
        )
        x = x + F.dropout(self.proj(attended.transpose(1, 2).flatten(2)), dropout)
        return x + F.dropout(self.mlp(self.norm2(x)), dropout)


class GPT2(nn.Module):
    """Token and position embeddings, transformer blocks, and the tied head."""

    def __init__(
        self,
        width: int = 1024,
        layers: int = 24,
        heads: int = 16,
        context: int = 1024,
        vocabulary: int = VOCABULARY,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for table in (self.tokens, self.positions):
            nn.init.normal_(table.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        """Scores [B, T, vocabulary] of the next token."""
        positions = self.positions.weight[: ids.shape[1]]
        x = self.blocks(self.dropout(self.tokens(ids) + positions))
        return F.linear(self.norm(x), self.tokens.weight)


def training_step(
    batch_size: int, precision: str = "bf16-amp", sequence: int = 1024, dropout: float = 0.1
) -> Step:
    """One step at a batch size, every token predicting the next."""
    model = GPT2(dropout=dropout)
    ids, next_ids = torch.randint(VOCABULARY, (2, batch_size, sequence)).unbind(0)

    def loss_of(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(ids).float().flatten(0, 1), next_ids.flatten())

    adamw = partial(torch.optim.AdamW, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    return training_step_of(model, loss_of, adamw, precision)
