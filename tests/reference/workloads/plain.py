"""Models written out in plain PyTorch: recurrent, generative, medical, recommendation, graphs."""

from __future__ import annotations

import copy
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from training import Step, allow_tf32, step_of


class _LanguageModel(nn.Module):
    def __init__(self, layer: nn.Module, vocabulary: int, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layer = layer
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(ids))[0])


def _recurrent(layer: nn.Module, width: int, batch_size: int, precision: str) -> Step:
    model = _LanguageModel(layer, 10_000, width)
    ids = torch.randint(10_000, (batch_size, 129))

    def loss_of(model: nn.Module) -> Tensor:
        scores = model(ids[:, :-1])
        return functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())

    return step_of(model, loss_of, precision, "adam", clip=True)


def lstm_language_model_fp32(batch_size: int) -> Step:
    layer = nn.LSTM(650, 650, 2, batch_first=True, dropout=0.5)
    return _recurrent(layer, 650, batch_size, "fp32")


def gru_language_model_bf16_amp(batch_size: int) -> Step:
    return _recurrent(nn.GRU(1024, 1024, 3, batch_first=True), 1024, batch_size, "bf16-amp")


def bilstm_tagger_tf32(batch_size: int) -> Step:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(30_000, 300)
            self.lstm = nn.LSTM(300, 512, 2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(1024, 50)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.lstm(self.embed(ids))[0])

    ids = torch.randint(30_000, (batch_size, 100))
    tags = torch.randint(50, (batch_size, 100))

    def loss_of(model: nn.Module) -> Tensor:
        return functional.cross_entropy(model(ids).flatten(0, 1), tags.flatten())

    return step_of(Tagger(), loss_of, "tf32", "adam")


def transformer_translation_fp16_amp(batch_size: int) -> Step:
    """torch's own nn.Transformer, with masks."""

    class Translator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(32_000, 512)
            self.transformer = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
            self.head = nn.Linear(512, 32_000)

        def forward(self, source: Tensor, target: Tensor, mask: Tensor) -> Tensor:
            hidden = self.transformer(
                self.embed(source), self.embed(target), tgt_mask=mask, tgt_is_causal=True
            )
            return self.head(hidden)

    source = torch.randint(32_000, (batch_size, 128))
    target = torch.randint(32_000, (batch_size, 129))
    mask = nn.Transformer.generate_square_subsequent_mask(128)

    def loss_of(model: nn.Module) -> Tensor:
        scores = model(source, target[:, :-1], mask)
        return functional.cross_entropy(
            scores.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1
        )

    return step_of(Translator(), loss_of, "fp16-amp", "adam")


class _Block(nn.Module):
    """A transformer block with shared key heads, RMS norm and a gated feed-forward layer."""

    def __init__(self, width: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.heads, self.key_heads, self.size = heads, key_heads, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * key_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, 8 * width // 3 * 2, bias=False)
        self.down = nn.Linear(8 * width // 3, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, length, self.heads, self.size).transpose(1, 2)
        kv = self.kv(y).view(batch, length, 2, self.key_heads, self.size)
        k, v = kv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * value)


class _Decoder(nn.Module):
    def __init__(self, width: int, depth: int, heads: int, key_heads: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(32_000, width)
        self.blocks = nn.ModuleList(_Block(width, heads, key_heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, 32_000, bias=False)
        self.checkpointed = False

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


def _decoder(model: _Decoder, batch_size: int, length: int, *args: str, **choices: object) -> Step:
    ids = torch.randint(32_000, (batch_size, length + 1))

    def loss_of(model: nn.Module) -> Tensor:
        scores = model(ids[:, :-1])
        return functional.cross_entropy(scores.flatten(0, 1).float(), ids[:, 1:].flatten())

    return step_of(model, loss_of, *args, **choices)


def decoder_grouped_bf16(batch_size: int) -> Step:
    return _decoder(_Decoder(1536, 12, 12, 4), batch_size, 1024, "bf16")


def decoder_checkpointed_bf16_amp(batch_size: int) -> Step:
    model = _Decoder(1024, 16, 16, 16)
    model.checkpointed = True
    return _decoder(model, batch_size, 2048, "bf16-amp", accumulate=2)


def decoder_fp32(batch_size: int) -> Step:
    return _decoder(_Decoder(768, 8, 12, 12), batch_size, 512, "fp32", "adamw-fused")


class _Double(nn.Module):
    """Two convolutions with batch norm, in two or three dimensions."""

    def __init__(self, channels: int, out: int, dims: int) -> None:
        super().__init__()
        conv = nn.Conv2d if dims == 2 else nn.Conv3d
        norm = nn.BatchNorm2d if dims == 2 else nn.InstanceNorm3d
        self.layers = nn.Sequential(
            conv(channels, out, 3, padding=1),
            norm(out),
            nn.ReLU(inplace=True),
            conv(out, out, 3, padding=1),
            norm(out),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class _UNet(nn.Module):
    def __init__(self, channels: int, classes: int, width: int, depth: int, dims: int) -> None:
        super().__init__()
        widths = [width << level for level in range(depth)]
        pool = nn.MaxPool2d if dims == 2 else nn.MaxPool3d
        up = nn.ConvTranspose2d if dims == 2 else nn.ConvTranspose3d
        head = nn.Conv2d if dims == 2 else nn.Conv3d
        self.pool = pool(2)
        self.down = nn.ModuleList(
            _Double(a, b, dims) for a, b in zip([channels, *widths], widths, strict=False)
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(up(a, b, 2, 2) for a, b in pairs)
        self.join = nn.ModuleList(_Double(2 * b, b, dims) for _, b in pairs)
        self.head = head(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            x = block(self.pool(x) if kept else x)
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return self.head(x)


def unet_2d_fp16_amp(batch_size: int) -> Step:
    x = torch.randn(batch_size, 3, 256, 256)
    y = torch.randint(2, (batch_size, 256, 256))
    model = _UNet(3, 2, 64, 5, 2)
    return step_of(model, lambda m: functional.cross_entropy(m(x), y), "fp16-amp", "rmsprop")


def unet_2d_fp32(batch_size: int) -> Step:
    x = torch.randn(batch_size, 1, 192, 192)
    y = torch.randint(4, (batch_size, 192, 192))
    return step_of(
        _UNet(1, 4, 32, 5, 2), lambda m: functional.cross_entropy(m(x), y), "fp32", "adam"
    )


def unet_3d_bf16_amp(batch_size: int) -> Step:
    x = torch.randn(batch_size, 1, 96, 96, 96)
    y = torch.randint(3, (batch_size, 96, 96, 96))
    return step_of(
        _UNet(1, 3, 24, 4, 3),
        lambda m: functional.cross_entropy(m(x).float(), y),
        "bf16-amp",
        "adam",
    )


def unet_3d_tf32(batch_size: int) -> Step:
    x = torch.randn(batch_size, 1, 64, 64, 64)
    y = torch.randint(3, (batch_size, 64, 64, 64))
    return step_of(
        _UNet(1, 3, 16, 4, 3), lambda m: functional.cross_entropy(m(x), y), "tf32", "adam"
    )


class _Generator(nn.Module):
    def __init__(self, z: int, width: int) -> None:
        super().__init__()
        widths = [width * 8, width * 8, width * 4, width * 2, width]
        layers: list[nn.Module] = [nn.ConvTranspose2d(z, widths[0], 4)]
        for a, b in pairwise(widths):
            layers += [nn.BatchNorm2d(a), nn.ReLU(True), nn.ConvTranspose2d(a, b, 4, 2, 1)]
        layers += [nn.BatchNorm2d(width), nn.ReLU(True), nn.ConvTranspose2d(width, 3, 4, 2, 1)]
        self.layers = nn.Sequential(*layers, nn.Tanh())

    def forward(self, z: Tensor) -> Tensor:
        return self.layers(z[:, :, None, None])


class _Critic(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [3, width, width * 2, width * 4, width * 8, width * 8]
        layers: list[nn.Module] = []
        for a, b in pairwise(widths):
            conv = nn.utils.parametrizations.spectral_norm(nn.Conv2d(a, b, 4, 2, 1))
            layers += [conv, nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(widths[-1], 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).flatten()


def gan_gradient_penalty_tf32(batch_size: int) -> Step:
    """WGAN-GP at 128 x 128: two optimizers, a second derivative."""
    allow_tf32(True)
    generator, critic = _Generator(128, 64), _Critic(64)
    update_g = torch.optim.Adam(generator.parameters(), lr=1e-4)
    update_c = torch.optim.Adam(critic.parameters(), lr=1e-4)
    real, z = torch.randn(batch_size, 3, 128, 128), torch.randn(batch_size, 128)
    share = torch.rand(batch_size, 1, 1, 1)

    def step() -> None:
        fake = generator(z).detach()
        mixed = (share * real + (1 - share) * fake).requires_grad_()
        (grad,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = (grad.flatten(1).norm(dim=1) - 1).square().mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        loss.backward()
        update_c.step()
        update_c.zero_grad(set_to_none=True)
        (-critic(generator(z)).mean()).backward()
        update_g.step()
        update_g.zero_grad(set_to_none=True)
        update_c.zero_grad(set_to_none=True)

    return step


class _Modulated(nn.Module):
    """A convolution whose weights depend on the sample: one group per sample (StyleGAN2)."""

    def __init__(self, channels: int, out: int, style: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1, out, channels, 3, 3))
        self.style = nn.Linear(style, channels)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        weight = self.weight * self.style(style)[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        x = x.reshape(1, batch * channels, height, width)
        x = functional.conv2d(x, weight.flatten(0, 1), padding=1, groups=batch)
        return functional.leaky_relu(
            x.view(batch, -1, height, width) + self.bias[:, None, None], 0.2
        )


def style_generator_fp16_amp(batch_size: int) -> Step:
    class Generator(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = nn.Parameter(torch.randn(1, 512, 4, 4))
            widths = [512, 512, 512, 256, 128, 64]
            self.layers = nn.ModuleList(_Modulated(a, b, 512) for a, b in pairwise(widths))
            self.image = nn.Conv2d(64, 3, 1)

        def forward(self, style: Tensor) -> Tensor:
            x = self.start.expand(style.shape[0], -1, -1, -1)
            for layer in self.layers:
                x = layer(functional.interpolate(x, scale_factor=2, mode="bilinear"), style)
            return self.image(x)

    style = torch.randn(batch_size, 512)
    target = torch.randn(batch_size, 3, 128, 128)
    return step_of(
        Generator(), lambda m: functional.mse_loss(m(style).float(), target), "fp16-amp", "adam"
    )


def vae_256_fp32(batch_size: int) -> Step:
    """A convolutional variational autoencoder."""

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [3, 32, 64, 128, 256]
            pairs = list(pairwise(widths))
            self.down = nn.Sequential(
                *(nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.ELU()) for a, b in pairs),
                nn.Conv2d(256, 32, 1),
            )
            self.up = nn.Sequential(
                nn.Conv2d(16, 256, 1),
                *(
                    nn.Sequential(nn.ELU(), nn.ConvTranspose2d(b, a, 3, 2, 1, 1))
                    for a, b in reversed(pairs)
                ),
            )

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            mean, spread = self.down(x).chunk(2, 1)
            z = mean + torch.randn_like(mean) * (0.5 * spread).exp()
            return self.up(z), mean, spread

    x = torch.rand(batch_size, 3, 256, 256)

    def loss_of(model: nn.Module) -> Tensor:
        out, mean, spread = model(x)
        divergence = (mean.square() + spread.exp() - spread - 1).sum((1, 2, 3)).mean()
        return functional.mse_loss(out, x, reduction="sum") / len(x) + divergence

    return step_of(Autoencoder(), loss_of, "fp32", "adam")


class _Residual(nn.Module):
    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(32, channels), nn.GroupNorm(32, out)
        self.conv1 = nn.Conv2d(channels, out, 3, padding=1)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv1(functional.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(y)))


class _Denoiser(nn.Module):
    """A small U-Net of residual blocks with attention at its lowest level."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(1, 512), nn.SiLU(), nn.Linear(512, 512))
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.a, self.b = _Residual(width, width, 512), _Residual(width, 2 * width, 512)
        self.middle = _Residual(2 * width, 2 * width, 512)
        self.attention = nn.MultiheadAttention(2 * width, 4, batch_first=True)
        self.c, self.d = _Residual(4 * width, width, 512), _Residual(2 * width, width, 512)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        t = self.time(time)
        a = self.a(self.first(x), t)
        b = self.b(functional.avg_pool2d(a, 2), t)
        m = self.middle(functional.avg_pool2d(b, 2), t)
        rows = m.flatten(2).transpose(1, 2)
        rows = rows + self.attention(rows, rows, rows, need_weights=False)[0]
        m = rows.transpose(1, 2).reshape(m.shape)
        y = self.c(torch.cat([functional.interpolate(m, scale_factor=2), b], 1), t)
        return self.last(self.d(torch.cat([functional.interpolate(y, scale_factor=2), a], 1), t))


def diffusion_ema_fp32(batch_size: int) -> Step:
    """With an exponential moving average of the weights after each update."""
    allow_tf32(False)
    model = _Denoiser()
    average = copy.deepcopy(model).requires_grad_(False)
    update = torch.optim.AdamW(model.parameters(), lr=1e-4)
    x, noise = torch.randn(2, batch_size, 3, 64, 64)
    time = torch.rand(batch_size, 1)

    def step() -> None:
        functional.mse_loss(model(x, time), noise).backward()
        update.step()
        update.zero_grad(set_to_none=True)
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new, 0.001)

    return step


def diffusion_bf16_amp_nhwc(batch_size: int) -> Step:
    model = _Denoiser(192).to(memory_format=torch.channels_last)
    x, noise = torch.randn(2, batch_size, 3, 64, 64)
    x = x.contiguous(memory_format=torch.channels_last)
    time = torch.rand(batch_size, 1)
    return step_of(model, lambda m: functional.mse_loss(m(x, time).float(), noise), "bf16-amp")


class _Adaptive(nn.Module):
    """A block of a diffusion transformer: norms scaled by the time embedding."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)
        )
        self.scale = nn.Sequential(nn.SiLU(), nn.Linear(width, 6 * width))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        a, b, c, d, e, f = self.scale(time)[:, None].chunk(6, -1)
        qkv = self.qkv(self.norm1(x) * (1 + a) + b)
        q, k, v = qkv.unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + c * self.out(y)
        return x + f * self.mlp(self.norm2(x) * (1 + d) + e)


def diffusion_transformer_bf16_amp(batch_size: int) -> Step:
    class Denoiser(nn.Module):
        def __init__(self, width: int = 768, depth: int = 12) -> None:
            super().__init__()
            self.patch = nn.Conv2d(4, width, 2, 2)
            self.time = nn.Linear(256, width)
            self.blocks = nn.ModuleList(_Adaptive(width, 12) for _ in range(depth))
            self.head = nn.Linear(width, 16)

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            rows, t = self.patch(x).flatten(2).transpose(1, 2), self.time(time)
            for block in self.blocks:
                rows = block(rows, t)
            return self.head(rows)

    x, time = torch.randn(batch_size, 4, 32, 32), torch.randn(batch_size, 256)
    target = torch.randn(batch_size, 256, 16)
    return step_of(
        Denoiser(), lambda m: functional.mse_loss(m(x, time).float(), target), "bf16-amp"
    )


def recommender_embedding_bags_fp32(batch_size: int) -> Step:
    """Eight tables of which each sample sums 20 rows, and dense layers."""

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(200_000, 64, mode="sum") for _ in range(8))
            self.dense = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, 64))
            self.top = nn.Sequential(
                nn.Linear(64 * 9, 1024), nn.ReLU(), nn.Linear(1024, 256), nn.ReLU(),
                nn.Linear(256, 1),
            )  # fmt: skip

        def forward(self, ids: Tensor, x: Tensor) -> Tensor:
            rows = [table(part) for table, part in zip(self.tables, ids, strict=True)]
            return self.top(torch.cat([*rows, self.dense(x)], 1))[:, 0]

    ids = torch.randint(200_000, (8, batch_size, 20))
    x, y = torch.randn(batch_size, 13), torch.rand(batch_size)
    return step_of(
        Recommender(),
        lambda m: functional.binary_cross_entropy_with_logits(m(ids, x), y),
        "fp32",
        "adagrad",
    )


def graph_convolution_fp32(batch_size: int) -> Step:
    """Message passing by gather and index_add; a sample is a graph of 100 nodes, 800 edges."""

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, 256)
            self.layers = nn.ModuleList(nn.Linear(512, 256) for _ in range(5))
            self.norms = nn.ModuleList(nn.BatchNorm1d(256) for _ in range(5))
            self.head = nn.Linear(256, 10)

        def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
            x = self.first(x)
            for layer, norm in zip(self.layers, self.norms, strict=True):
                messages = torch.zeros_like(x).index_add(0, target, x[source])
                x = x + functional.relu(norm(layer(torch.cat([x, messages], 1))))
            return self.head(x)

    nodes, edges = 100 * batch_size, 800 * batch_size
    x = torch.randn(nodes, 64)
    source, target = torch.randint(nodes, (2, edges))
    y = torch.randint(10, (nodes,))
    return step_of(
        Graph(), lambda m: functional.cross_entropy(m(x, source, target), y), "fp32", "adam"
    )


def radiance_field_fp16_amp(batch_size: int) -> Step:
    """A NeRF: a sample is one ray with 128 points."""

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = [63, *[256] * 8]
            self.layers = nn.Sequential(
                *(
                    nn.Sequential(nn.Linear(a, b), nn.ReLU(inplace=True))
                    for a, b in pairwise(widths)
                ),
                nn.Linear(256, 4),
            )

        def forward(self, points: Tensor) -> Tensor:
            scales = 2.0 ** torch.arange(10, device=points.device)
            angles = (points[..., None] * scales).flatten(-2)
            return self.layers(torch.cat([points, angles.sin(), angles.cos()], -1))

    points, colour = torch.randn(batch_size, 128, 3), torch.rand(batch_size, 3)

    def loss_of(model: nn.Module) -> Tensor:
        out = model(points).float()
        alpha = 1 - torch.exp(-functional.relu(out[..., 3]) * 0.05)
        passed = torch.cumprod(1 - alpha + 1e-10, 1)
        weights = alpha * passed
        return functional.mse_loss((weights[..., None] * out[..., :3].sigmoid()).sum(1), colour)

    return step_of(Field(), loss_of, "fp16-amp", "adam")


def point_net_tf32(batch_size: int) -> Step:
    """1024 points a sample, convolutions of size 1 and a maximum over all points."""
    widths = [3, 64, 128, 1024]
    features = [
        nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU()) for a, b in pairwise(widths)
    ]
    model = nn.Sequential(*features, nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(1024, 40))
    x, y = torch.randn(batch_size, 3, 1024), torch.randint(40, (batch_size,))
    return step_of(model, lambda m: functional.cross_entropy(m(x), y), "tf32", "adam")


def speech_convolutions_bf16_amp(batch_size: int) -> Step:
    """1-d convolutions over four seconds of sound (dilated, residual), as in a vocoder."""

    class Layer(nn.Module):
        def __init__(self, dilation: int) -> None:
            super().__init__()
            self.conv = nn.Conv1d(128, 256, 3, padding=dilation, dilation=dilation)
            self.out = nn.Conv1d(128, 128, 1)

        def forward(self, x: Tensor) -> Tensor:
            a, b = self.conv(x).chunk(2, 1)
            return x + self.out(a.tanh() * b.sigmoid())

    layers = [Layer(2**power) for _ in range(2) for power in range(8)]
    model = nn.Sequential(nn.Conv1d(1, 128, 1), *layers, nn.Conv1d(128, 1, 1))
    x = torch.randn(batch_size, 1, 64_000)
    return step_of(model, lambda m: functional.l1_loss(m(x).float(), x), "bf16-amp", "adam")


def mlp_mixer_bf16(batch_size: int) -> Step:
    class Mixer(nn.Module):
        def __init__(self, rows: int, width: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.tokens = nn.Sequential(nn.Linear(rows, 256), nn.GELU(), nn.Linear(256, rows))
            self.channels = nn.Sequential(
                nn.Linear(width, 2048), nn.GELU(), nn.Dropout(0.1), nn.Linear(2048, width)
            )

        def forward(self, x: Tensor) -> Tensor:
            x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.norm2(x))

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 512, 16, 16)
            self.layers = nn.Sequential(*(Mixer(196, 512) for _ in range(8)))
            self.head = nn.Linear(512, 1000)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.layers(self.patch(x).flatten(2).transpose(1, 2)).mean(1))

    x = torch.randn(batch_size, 3, 224, 224, dtype=torch.bfloat16)
    y = torch.randint(1000, (batch_size,))
    return step_of(
        Classifier(), lambda m: functional.cross_entropy(m(x).float(), y), "bf16", "adamw"
    )


def super_resolution_bf16_amp(batch_size: int) -> Step:
    """Wide convolutions without norms, and pixel shuffle (EDSR)."""

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True), nn.Conv2d(256, 256, 3, padding=1)
            )

        def forward(self, x: Tensor) -> Tensor:
            return x + 0.1 * self.layers(x)

    model = nn.Sequential(
        nn.Conv2d(3, 256, 3, padding=1),
        *(Block() for _ in range(16)),
        nn.Conv2d(256, 1024, 3, padding=1),
        nn.PixelShuffle(2),
        nn.Conv2d(256, 3, 3, padding=1),
    )
    x, y = torch.rand(batch_size, 3, 48, 48), torch.rand(batch_size, 3, 96, 96)
    return step_of(model, lambda m: functional.l1_loss(m(x).float(), y), "bf16-amp", "adam")


def contrastive_momentum_encoder_fp16_amp(batch_size: int) -> Step:
    """MoCo in small: a slow copy of the encoder without gradients, and a queue of keys."""
    allow_tf32(True)

    def encoder() -> nn.Module:
        widths = [3, 64, 128, 256, 512]
        layers = [
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True))
            for a, b in pairwise(widths)
        ]
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 128))

    fast, slow = encoder(), encoder().requires_grad_(False)
    update = torch.optim.SGD(fast.parameters(), lr=0.03, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    queue = functional.normalize(torch.randn(128, 16_384), dim=0)
    one, other = torch.randn(2, batch_size, 3, 128, 128)
    labels = torch.zeros(batch_size, dtype=torch.long)

    def step() -> None:
        with torch.no_grad():
            for kept, new in zip(slow.parameters(), fast.parameters(), strict=True):
                kept.mul_(0.999).add_(new, alpha=0.001)
        with torch.autocast("cuda", torch.float16):
            query = functional.normalize(fast(one), dim=1)
            with torch.no_grad():
                key = functional.normalize(slow(other), dim=1)
            same = (query * key).sum(1, keepdim=True)
            loss = functional.cross_entropy(torch.cat([same, query @ queue], 1) / 0.07, labels)
        scaler.scale(loss).backward()
        scaler.step(update)
        scaler.update()
        update.zero_grad(set_to_none=True)

    return step
