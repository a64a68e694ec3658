"""The U-Net of Stable Diffusion 1.x on 64x64x4 latents: AdamW under bf16 autocast.

Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models", arXiv 2112.10752,
at the sizes of Stable Diffusion 1: channels 320, 640, 1280, 1280, cross attention to 77 text
tokens of width 768. 859,520,964 parameters; 402 G multiply-adds forward a sample, 340 without the
products inside attention. A sample is the latents of a 512x512 image with its text embedding, both
computed beforehand: neither the autoencoder nor the text encoder runs here. No activation
checkpointing, no moving average.
"""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from common import Step, training_step_of


class ResBlock(nn.Module):
    """Two convolutions around a shortcut, told the time in between."""

    def __init__(self, inputs: int, outputs: int, time_width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, inputs), nn.GroupNorm(32, outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.time = nn.Linear(time_width, outputs)
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """A map [B, outputs, H, W]."""
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.shortcut(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    """Attention of tokens to a context, or to themselves."""

    def __init__(self, width: int, context_width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(context_width, width, bias=False) for _ in range(2))
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        """Tokens of the same shape [B, T, width]."""
        projected = (self.query(x), self.key(context), self.value(context))
        heads = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in projected)
        attended = F.scaled_dot_product_attention(*heads)
        return self.proj(attended.transpose(1, 2).flatten(2))


class TextTransformer(nn.Module):
    """A map's pixels as tokens: self attention, cross attention to the text, a gated MLP."""

    def __init__(self, channels: int, text_width: int, heads: int = 8) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, channels, eps=1e-6)
        self.enter, self.leave = (nn.Conv2d(channels, channels, 1) for _ in range(2))
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(channels) for _ in range(3))
        self.self_attention = Attention(channels, channels, heads)
        self.cross_attention = Attention(channels, text_width, heads)
        self.mlp_in = nn.Linear(channels, 8 * channels)
        self.mlp_out = nn.Linear(4 * channels, channels)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        """A map of the same shape [B, channels, H, W]."""
        tokens = self.enter(self.norm(x)).flatten(2).transpose(1, 2)
        normal = self.norm1(tokens)
        tokens = tokens + self.self_attention(normal, normal)
        tokens = tokens + self.cross_attention(self.norm2(tokens), text)
        value, gate = self.mlp_in(self.norm3(tokens)).chunk(2, -1)
        tokens = tokens + self.mlp_out(value * F.gelu(gate))
        return x + self.leave(tokens.transpose(1, 2).reshape(x.shape))


class Stage(nn.Module):
    """A residual block, and a transformer where a text width is given."""

    def __init__(self, inputs: int, outputs: int, time_width: int, text_width: int | None) -> None:
        super().__init__()
        self.block = ResBlock(inputs, outputs, time_width)
        self.transformer = TextTransformer(outputs, text_width) if text_width else None

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        """A map [B, outputs, H, W]."""
        x = self.block(x, time)
        return x if self.transformer is None else self.transformer(x, text)


class UNet(nn.Module):
    """Down through the levels, through the middle, and up again with what was kept on the way."""

    def __init__(
        self,
        base: int = 320,
        multiples: tuple[int, ...] = (1, 2, 4, 4),
        text_width: int = 768,
        latent_channels: int = 4,
    ) -> None:
        super().__init__()
        widths, time_width = [base * multiple for multiple in multiples], 4 * base
        lowest = len(widths) - 1
        stage = partial(Stage, time_width=time_width)

        def text_at(level: int) -> int | None:
            return None if level == lowest else text_width

        frequency = torch.exp(-math.log(10_000) * torch.arange(base // 2) / (base // 2))
        self.register_buffer("frequency", frequency, persistent=False)
        self.time = nn.Sequential(
            nn.Linear(base, time_width), nn.SiLU(), nn.Linear(time_width, time_width)
        )
        self.enter = nn.Conv2d(latent_channels, base, 3, padding=1)
        self.down, self.up, kept, width = nn.ModuleList(), nn.ModuleList(), [base], base
        for level, after in enumerate(widths):
            for _ in range(2):
                self.down.append(stage(width, after, text_width=text_at(level)))
                width = after
                kept.append(width)
            if level < lowest:
                self.down.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                kept.append(width)
        self.middle = nn.ModuleList(
            stage(width, width, text_width=text) for text in (text_width, None)
        )
        for level, after in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.up.append(stage(width + kept.pop(), after, text_width=text_at(level)))
                width = after
            if level > 0:
                conv = nn.Conv2d(width, width, 3, padding=1)
                self.up.append(nn.Sequential(nn.Upsample(scale_factor=2.0), conv))
        self.leave = nn.Sequential(
            nn.GroupNorm(32, width), nn.SiLU(), nn.Conv2d(width, latent_channels, 3, padding=1)
        )

    def forward(self, latents: Tensor, times: Tensor, text: Tensor) -> Tensor:
        """The noise in latents [B, 4, H, W] at times [B], told a text [B, tokens, width]."""
        angle = times[:, None] * self.frequency
        time = self.time(torch.cat([angle.cos(), angle.sin()], 1))
        x = self.enter(latents)
        kept = [x]
        for layer in self.down:
            x = layer(x, time, text) if isinstance(layer, Stage) else layer(x)
            kept.append(x)
        for layer in self.middle:
            x = layer(x, time, text)
        for layer in self.up:
            if isinstance(layer, Stage):
                x = layer(torch.cat([x, kept.pop()], 1), time, text)
            else:
                x = layer(x)
        return self.leave(x)


def kept_signal(steps: int = 1000) -> Tensor:
    """The share of the variance that is still signal after each noising step."""
    rates = torch.linspace(0.00085**0.5, 0.0120**0.5, steps).square()
    return (1 - rates).cumprod(0)


def training_step(batch_size: int, precision: str = "bf16-amp", size: int = 64) -> Step:
    """One step at a batch size: noise is added to latents, and the model tells which."""
    model, signal = UNet(), kept_signal()
    latents, text = torch.randn(batch_size, 4, size, size), torch.randn(batch_size, 77, 768)
    if precision == "bf16":
        latents, text, signal = latents.bfloat16(), text.bfloat16(), signal.bfloat16()

    def loss_of(model: nn.Module) -> Tensor:
        noise = torch.randn_like(latents)
        times = torch.randint(len(signal), (batch_size,), device=latents.device)
        share = signal[times][:, None, None, None]
        noisy = latents * share.sqrt() + noise * (1 - share).sqrt()
        return F.mse_loss(model(noisy, times, text).float(), noise.float())

    adamw = partial(torch.optim.AdamW, lr=1e-4, weight_decay=0.01)
    return training_step_of(model, loss_of, adamw, precision)
