"""ViT-B/16 on ImageNet-size images: AdamW under bf16 autocast.

Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv 2010.11929: 12 layers of width 768, 12
heads, patches of 16x16 and a class token. 86,567,656 parameters; 17.56 G multiply-adds forward an
image. A sample is an image of 224x224 and its class of 1000.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from common import Step, training_step_of


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-6) for _ in range(2))
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Tokens of the same shape [B, T, width]."""
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*qkv.unbind(0))
        x = x + self.proj(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """Patches and a class token through transformer blocks to a linear classifier."""

    def __init__(
        self,
        image_size: int = 224,
        patch: int = 16,
        width: int = 768,
        layers: int = 12,
        heads: int = 12,
        classes: int = 1000,
    ) -> None:
        super().__init__()
        tokens = (image_size // patch) ** 2 + 1
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width, eps=1e-6), nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores [B, classes] of images [B, 3, H, W]."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        first = self.class_token.expand(images.shape[0], -1, -1)
        x = torch.cat([first, patches], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def training_step(batch_size: int, precision: str = "bf16-amp") -> Step:
    """One step at a batch size."""
    model = VisionTransformer()
    images = torch.randn(batch_size, 3, 224, 224)
    images = images.bfloat16() if precision == "bf16" else images
    labels = torch.randint(1000, (batch_size,))

    def loss_of(model: nn.Module) -> Tensor:
        return F.cross_entropy(model(images).float(), labels)

    adamw = partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.3)
    return training_step_of(model, loss_of, adamw, precision)
