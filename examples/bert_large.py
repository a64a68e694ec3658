"""BERT-large (uncased) pre-training on sequences of 512: AdamW under fp16 autocast, scaled loss.

Devlin et al., "BERT", arXiv 1810.04805: 24 layers of width 1024, 16 heads, dropout 0.1. The
encoder with pooler has 335,141,888 parameters; with the masked-token head (tied to the embedding)
and the next-sentence head, as trained here, 336,226,108. A sample is a full sequence of 512 tokens
of which 80 are masked and predicted (15 %, padded to 80).
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from common import Step, training_step_of

VOCABULARY = 30522


class Layer(nn.Module):
    """A post-norm transformer layer."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of the same shape [B, T, width]."""
        heads = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        dropout = self.dropout.p if self.training else 0.0
        attended = F.scaled_dot_product_attention(*heads, dropout_p=dropout)
        x = self.norm1(x + self.dropout(self.proj(attended.transpose(1, 2).flatten(2))))
        return self.norm2(x + self.dropout(self.mlp(x)))


class Bert(nn.Module):
    """The encoder with pooler, and the two heads of pre-training."""

    def __init__(
        self,
        width: int = 1024,
        layers: int = 24,
        heads: int = 16,
        vocabulary: int = VOCABULARY,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.tokens, self.positions, self.segments = (
            nn.Embedding(entries, width) for entries in (vocabulary, 512, 2)
        )
        for table in (self.tokens, self.positions, self.segments):
            nn.init.normal_(table.weight, std=0.02)
        self.norm, self.dropout = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.Sequential(*(Layer(width, heads, dropout) for _ in range(layers)))
        self.pooler = nn.Sequential(nn.Linear(width, width), nn.Tanh())
        self.token_head = nn.Sequential(
            nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width, eps=1e-12)
        )
        self.token_bias = nn.Parameter(torch.zeros(vocabulary))
        self.next_head = nn.Linear(width, 2)

    def forward(self, ids: Tensor, segments: Tensor, masked: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the masked tokens [B, masked, vocabulary], and of the next sentence [B, 2]."""
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]] + self.segments(segments)
        x = self.layers(self.dropout(self.norm(x)))
        hidden = x.gather(1, masked[:, :, None].expand(-1, -1, x.shape[2]))
        scores = F.linear(self.token_head(hidden), self.tokens.weight, self.token_bias)
        return scores, self.next_head(self.pooler(x[:, 0]))


def training_step(
    batch_size: int, precision: str = "fp16-amp", sequence: int = 512, masked: int = 80
) -> Step:
    """One step at a batch size: masked tokens and next sentence."""
    model = Bert()
    ids = torch.randint(VOCABULARY, (batch_size, sequence))
    segments = torch.randint(2, (batch_size, sequence))
    places = torch.randint(sequence, (batch_size, masked))
    hidden_ids = torch.randint(VOCABULARY, (batch_size, masked))
    follows = torch.randint(2, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        scores, next_scores = model(ids, segments, places)
        token_loss = F.cross_entropy(scores.float().flatten(0, 1), hidden_ids.flatten())
        return token_loss + F.cross_entropy(next_scores.float(), follows)

    adamw = partial(torch.optim.AdamW, lr=1e-4, weight_decay=0.01)
    return training_step_of(model, loss_of, adamw, precision)
