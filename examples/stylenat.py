"""One training iteration of StyleNAT on FFHQ at 256x256: a transformer GAN, fp32 with TF32.

Walton et al., "Efficient Image Generation with Variadic Attention Heads", arXiv 2211.05770, with
the published settings for FFHQ-256. Generator: 48,921,000 parameters (the paper says 48.92 M),
two style-modulated transformer blocks at each resolution, neighborhood attention with the heads
split over two dilations. Discriminator: the convolutions of StyleGAN2 on wavelet bands, spectral
norm, 26.2 M parameters, after StyleSwin (arXiv 2112.10762).

An iteration is a discriminator step (logistic loss and balanced consistency on augmented images;
its backward runs through the generator too, as published), a generator step, and a moving average
of the generator. Every 16th adds the R1 penalty with its double backward, so costs are means over
16 consecutive iterations: the step carries `period = 16`. A sample is an image; each iteration
draws two batches of real ones.

How faithful it is. It was written anew after github.com/SHI-Labs/StyleNAT (src/train.py, models/,
utils/CRDiffAug.py, conf/runs/ffhq_256.yaml at commit 63e466f). The same: layers, widths, heads,
kernels, dilations and parameters of both networks, the order of the losses and updates of an
iteration, clipping, R1 every 16th, the average, Adam, fp32 tensors, 8 images on each GPU. Not so:

1. Matrix products. The repository sets no precision, so today's PyTorch multiplies matrices in
   plain fp32 and only convolutions in TF32. Here both are in TF32, as users are advised. Without
   it an iteration takes about 1.6 times as long on an H200 and twice as long on an A100, and hardly
   longer on an RTX 3090 (outlay's own predictions, as are the shares below).
2. Attention. The repository calls NATTEN's `natten2dqkrpb` and `natten2dav` with a softmax between
   them, so that all weights go through memory; here it is one fused operator. In two kernels an
   iteration takes about a quarter longer and half a GiB more at 8 images.
3. At 8x8 the repository splits the heads in two groups of the same dilation, here there is one.
4. Resampling. Blur, up- and downsampling and the four wavelet filters are `upfirdn2d` kernels
   there, one for each band, and depthwise convolutions here: about the same time.
5. Biases with leaky ReLU are one kernel there (`fused_bias_act`), here a bias in the convolution,
   leaky ReLU and a product: nearly a GiB more at 8 images.
6. Augmentation does the same to an image, there by indexing with masks and grids, here by `where`,
   `gather` and comparisons: small beside the rest.
7. Position codes are made anew in every forward there, here once; maps are lists of positions
   there and maps here, with other copies between them.
8. The repository reads three losses back in each iteration, for its log: the host waits for them.
   Checkpoints, samples, evaluations, the decay of rates from 775,000 iterations on and
   `find_unused_parameters` of DDP are left out; cudnn.benchmark is set here alone.
9. Images are on the GPU already; there a loader of 8 processes reads, resizes and flips them.

The repository itself can be traced, too: outlay stands in for its kernels where they are not built.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from common import allow_tf32
from neighborhood_attention import neighborhood_attention, windows_2d

R1_PERIOD = 16
R1_WEIGHT = 10.0
CONSISTENCY_WEIGHT = 10.0
CLIP_NORM = 5.0
GENERATOR_RATE, DISCRIMINATOR_RATE = 5e-5, 2e-4
AVERAGE_DECAY = 0.5 ** (32 / 10_000)
BLUR = (1.0, 3.0, 3.0, 1.0)


def channels_at(resolution: int, widest: int) -> int:
    """512 up to 64x64, then halved with each doubling: 256 at 128x128, 128 at 256x256."""
    return min(widest, 128 * 256 // resolution)


def leaky(x: Tensor) -> Tensor:
    """Leaky ReLU with the gain that keeps the variance."""
    return F.leaky_relu(x, 0.2) * math.sqrt(2)


class EqualLinear(nn.Module):
    """A linear layer whose weights are scaled when used, so that all learn at one rate."""

    def __init__(self, inputs: int, outputs: int, rate: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / rate)
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.rate, self.scale = rate, rate / math.sqrt(inputs)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, without activation."""
        return F.linear(x, self.weight * self.scale, self.bias * self.rate)


class Mapping(nn.Module):
    """Noise to style: 8 layers, learning 100 times slower than the rest."""

    def __init__(self, width: int, depth: int = 8) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EqualLinear(width, width, 0.01) for _ in range(depth))

    def forward(self, noise: Tensor) -> Tensor:
        """Styles [B, width] of noise [B, width]."""
        x = noise * torch.rsqrt(noise.square().mean(1, keepdim=True) + 1e-8)
        for layer in self.layers:
            x = leaky(layer(x))
        return x


class StyleNorm(nn.Module):
    """Adaptive instance norm: each channel normalised over the map, then scaled by the style."""

    def __init__(self, channels: int, style_width: int) -> None:
        super().__init__()
        self.style = EqualLinear(style_width, 2 * channels)

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """A map [B, H, W, C] modulated by styles [B, width]."""
        gain, shift = self.style(style)[:, :, None].chunk(2, 1)
        normal = F.instance_norm(x.flatten(1, 2).transpose(1, 2))
        return (gain * normal + shift).transpose(1, 2).reshape(x.shape)


class SplitAttention(nn.Module):
    """Neighborhood attention, an equal group of heads at each dilation; full attention at 4x4."""

    def __init__(self, channels: int, heads: int, size: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.heads, self.size, self.dilations = heads, size, dilations
        self.kernel_size = 7 if dilations else size
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        groups, span = max(len(dilations), 1), 2 * self.kernel_size - 1
        self.biases = nn.ParameterList(
            nn.init.trunc_normal_(torch.empty(heads // groups, span, span), std=0.02)
            for _ in range(groups)
        )
        if not dilations:
            self.register_buffer("offsets", windows_2d(size, size, size, 1)[1])

    def forward(self, x: Tensor) -> Tensor:
        """A map of the same shape [B, H, W, C]."""
        qkv = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(3)
        attended = self.near(*qkv) if self.dilations else self.full(*qkv)
        return self.proj(attended.flatten(-2))

    def near(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Each head group within its own windows. A fused kernel wants dense tensors."""
        groups = zip(*(x.chunk(len(self.dilations), dim=3) for x in (q, k, v)), strict=True)
        results = [
            neighborhood_attention(
                *(x.contiguous() for x in group), bias, self.kernel_size, dilation
            )[0]
            for group, bias, dilation in zip(groups, self.biases, self.dilations, strict=True)
        ]
        return results[0] if len(results) == 1 else torch.cat(results, dim=3)

    def full(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Every position with every other, with the bias of their offset."""
        query, key, value = (x.flatten(1, 2).transpose(1, 2) for x in (q, k, v))
        scores = (query * q.shape[-1] ** -0.5) @ key.transpose(-1, -2)
        weights = (scores + self.biases[0].flatten(1)[:, self.offsets]).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(q.shape)


class Block(nn.Module):
    """A transformer block whose two norms take the style."""

    def __init__(self, channels: int, size: int, style_width: int) -> None:
        super().__init__()
        # Source: arXiv 2211.05770, FFHQ-256: [1] at 8x8, then [1, size / 8].
        dilations = {4: (), 8: (1,)}.get(size, (1, size // 8))
        self.norm1 = StyleNorm(channels, style_width)
        self.attention = SplitAttention(channels, max(channels // 32, 4), size, dilations)
        self.norm2 = StyleNorm(channels, style_width)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """A map of the same shape [B, H, W, C]."""
        x = x + self.attention(self.norm1(x, style))
        return x + self.mlp(self.norm2(x, style))


def sine_positions(size: int, channels: int) -> Tensor:
    """A [size, size, channels] grid of sines: half of the channels for x, half for y."""
    frequency = torch.exp(-math.log(10_000) * torch.linspace(0, 1, channels // 4))
    angle = torch.arange(1, size + 1)[:, None] * frequency
    line = torch.cat([angle.sin(), angle.cos()], 1)
    across, down = line[None].expand(size, -1, -1), line[:, None].expand(-1, size, -1)
    return torch.cat([across, down], 2)


class Upsample(nn.Module):
    """Twice the resolution, other channels, and the positions that attention does not see."""

    def __init__(self, inputs: int, outputs: int, size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.position_gain = nn.Parameter(torch.zeros(1))
        self.register_buffer("positions", sine_positions(2 * size, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """A map [B, 2 H, 2 W, outputs]."""
        x = F.interpolate(x.permute(0, 3, 1, 2), scale_factor=2.0, mode="bilinear")
        x = self.linear(self.norm(x.permute(0, 2, 3, 1)))
        return x + self.positions * self.position_gain


class Generator(nn.Module):
    """Noise to images, each resolution adding to the image of the one before."""

    def __init__(self, resolution: int, widest: int, style_width: int) -> None:
        super().__init__()
        sizes = [2**power for power in range(2, resolution.bit_length())]
        widths = [channels_at(size, widest) for size in sizes]
        self.style_width = style_width
        self.mapping = Mapping(style_width)
        self.start = nn.Parameter(torch.randn(1, 4, 4, widths[0]))
        self.blocks = nn.ModuleList(
            nn.ModuleList(Block(width, size, style_width) for _ in range(2))
            for size, width in zip(sizes, widths, strict=True)
        )
        self.upsamples = nn.ModuleList(
            Upsample(width, after, size)
            for size, width, after in zip(sizes[:-1], widths[:-1], widths[1:], strict=True)
        )
        # An image is read off after each change of resolution and at the end: 8, ..., 256, 256.
        self.to_rgbs = nn.ModuleList(nn.Conv2d(width, 3, 1) for width in (*widths[1:], widths[-1]))
        self.rgb_biases = nn.ParameterList(torch.zeros(1, 3, 1, 1) for _ in sizes)
        self.register_buffer("kernel", 4 * blur_kernel(3), persistent=False)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)

    def forward(self, noise: Tensor) -> Tensor:
        """Images [B, 3, resolution, resolution] of noise [B, style_width]."""
        style = self.mapping(noise)
        x, image = self.start.repeat(noise.shape[0], 1, 1, 1), None
        for level, (first, second) in enumerate(self.blocks):
            x = second(first(x, style), style)
            last = level == len(self.upsamples)
            x = x if last else self.upsamples[level](x)
            rgb = self.to_rgbs[level](x.permute(0, 3, 1, 2)) + self.rgb_biases[level]
            if image is not None and not last:
                image = F.conv_transpose2d(image, self.kernel, stride=2, padding=1, groups=3)
            image = rgb if image is None else rgb + image
        return image


def blur_kernel(channels: int) -> Tensor:
    """A binomial filter of sum 1 for each channel, [channels, 1, 4, 4]."""
    line = torch.tensor(BLUR) / sum(BLUR)
    return torch.outer(line, line).repeat(channels, 1, 1, 1)


def haar_kernel() -> Tensor:
    """The four 2x2 Haar filters for each of three colours, [12, 1, 2, 2]."""
    low, high = torch.tensor([1.0, 1.0]), torch.tensor([-1.0, 1.0])
    bands = [torch.outer(a, b) / 2 for a in (low, high) for b in (low, high)]
    return torch.stack(bands)[:, None].repeat(3, 1, 1, 1)


class Conv(nn.Module):
    """A convolution with spectral norm and leaky ReLU; with blur and stride 2 to go down."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, down: bool = False) -> None:
        super().__init__()
        stride, padding = (2, 0) if down else (1, kernel_size // 2)
        conv = nn.Conv2d(inputs, outputs, kernel_size, stride, padding)
        self.conv = spectral_norm(conv)
        self.down = down
        if down:
            self.register_buffer("kernel", blur_kernel(inputs), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """A map of as many pixels, or of a quarter of them."""
        if self.down:
            x = F.conv2d(x, self.kernel, padding=2, groups=x.shape[1])
        return leaky(self.conv(x))


class Discriminator(nn.Module):
    """Images to scores: StyleGAN2's convolutions, fed with wavelet bands at each resolution."""

    def __init__(self, resolution: int, widest: int) -> None:
        super().__init__()
        sizes = [2**power for power in range(2, resolution.bit_length() - 2)]
        widths = [channels_at(size, widest) for size in (resolution, *reversed(sizes))]
        self.from_rgbs = nn.ModuleList(Conv(12, width, 1) for width in widths)
        self.convs = nn.ModuleList(
            nn.Sequential(Conv(width, width, 3), Conv(width, after, 3, down=True))
            for width, after in pairwise(widths)
        )
        self.last_conv = Conv(widths[-1] + 1, widths[-1], 3)
        self.hidden = spectral_norm(nn.Linear(widths[-1] * 16, widths[-1]))
        self.score = spectral_norm(nn.Linear(widths[-1], 1))
        self.register_buffer("haar", haar_kernel(), persistent=False)
        self.register_buffer("blur", blur_kernel(3), persistent=False)

    def halve(self, bands: Tensor) -> Tensor:
        """The wavelet bands of the image at half its size."""
        image = F.conv_transpose2d(bands, self.haar, stride=2, groups=3)
        small = F.conv2d(image, self.blur, stride=2, padding=1, groups=3)
        return F.conv2d(small, self.haar, stride=2, groups=3)

    def forward(self, image: Tensor) -> Tensor:
        """Scores [B, 1] of images [B, 3, H, W]."""
        bands = F.conv2d(image, self.haar, stride=2, groups=3)
        x = self.from_rgbs[0](bands)
        for conv, from_rgb in zip(self.convs, self.from_rgbs[1:], strict=True):
            bands = self.halve(bands)
            x = conv(x) + from_rgb(bands)
        x = self.last_conv(torch.cat([x, batch_spread(x)], 1))
        return self.score(leaky(self.hidden(x.flatten(1))))


def batch_spread(x: Tensor) -> Tensor:
    """One channel: the mean standard deviation over groups of up to four images."""
    batch, _, height, width = x.shape
    group = next(size for size in (4, 3, 2, 1) if batch % size == 0)
    variance = x.view(group, -1, *x.shape[1:]).var(0, unbiased=False)
    spread = (variance + 1e-8).sqrt().mean((1, 2, 3))
    own_group = torch.arange(batch, device=x.device) % (batch // group)
    return spread[own_group][:, None, None, None].expand(-1, 1, height, width)


def augmented(x: Tensor) -> Tensor:
    """The images flipped, shifted, recoloured and partly cut out, each by its own chance."""
    batch, _, size, _ = x.shape

    def chance() -> Tensor:
        return torch.rand(batch, 1, 1, 1, device=x.device)

    x = torch.where(chance() < 0.5, x.flip(3), x)
    for axis in (2, 3):
        x = shifted(x, axis, size // 8)
    x = x + (chance() - 0.5)
    grey = x.mean(1, keepdim=True)
    x = (x - grey) * (2 * chance()) + grey
    mean = x.mean((1, 2, 3), keepdim=True)
    x = (x - mean) * (chance() + 0.5) + mean
    place = torch.arange(size, device=x.device)
    rows, columns = ((place - (chance() * size).floor()).abs() <= size // 4 for _ in range(2))
    return x * ~(rows.transpose(2, 3) & columns)


def shifted(x: Tensor, axis: int, furthest: int) -> Tensor:
    """Each image moved along one axis by its own number of pixels, zeros coming in."""
    size = x.shape[axis]
    shape = [1, 1, 1, 1]
    shape[axis] = size
    place = torch.arange(size, device=x.device).view(shape)
    by = torch.randint(-furthest, furthest + 1, (x.shape[0], 1, 1, 1), device=x.device)
    source = place + by
    inside = (source >= 0) & (source < size)
    return x.gather(axis, source.clamp(0, size - 1).expand_as(x)) * inside


class Iteration:
    """Calling it runs one iteration; it keeps the networks, the optimizers and the count."""

    period = R1_PERIOD
    kinds = ("with penalty", *["plain"] * (R1_PERIOD - 1))

    def __init__(self, batch_size: int, resolution: int, widest: int, style_width: int) -> None:
        self.generator = Generator(resolution, widest, style_width)
        self.average = Generator(resolution, widest, style_width).requires_grad_(False)
        self.average.load_state_dict(self.generator.state_dict())
        self.discriminator = Discriminator(resolution, widest)
        self.generator_optimizer = torch.optim.Adam(
            self.generator.parameters(), lr=GENERATOR_RATE, betas=(0.0, 0.99)
        )
        lazy = R1_PERIOD / (R1_PERIOD + 1)  # rates corrected for the extra update, as StyleGAN2
        self.discriminator_optimizer = torch.optim.Adam(
            self.discriminator.parameters(), lr=DISCRIMINATOR_RATE * lazy, betas=(0.0, 0.99**lazy)
        )
        # The second batch of real images is loaded in the generator step and, as published, unused.
        self.real_images = torch.randn(2, batch_size, 3, resolution, resolution)
        self.iteration = 0
        self.losses: dict[str, Tensor] = {}

    def __call__(self) -> None:
        """Run one iteration."""
        real = self.real_images[0]
        self.train_discriminator(real)
        if self.iteration % R1_PERIOD == 0:
            self.penalise_gradients(real)
        self.train_generator()
        self.update_average()
        self.iteration += 1

    def skip(self, iterations: int) -> None:
        """Count iterations that are not run: a trace knows them from others of their kind."""
        self.iteration += iterations

    def fake_images(self) -> Tensor:
        """New images from the generator, as many as there are real ones."""
        batch_size, width = self.real_images.shape[1], self.generator.style_width
        return self.generator(torch.randn(batch_size, width, device=self.real_images.device))

    def train_discriminator(self, real: Tensor) -> None:
        """Logistic loss and balanced consistency. The fake images stay part of the graph."""
        fake = self.fake_images()
        fake_score, real_score = self.discriminator(fake), self.discriminator(real)
        loss = F.softplus(-real_score).mean() + F.softplus(fake_score).mean()
        for image, score in ((real, real_score), (fake, fake_score)):
            changed = F.mse_loss(self.discriminator(augmented(image)), score)
            loss = loss + CONSISTENCY_WEIGHT * changed
        self.discriminator_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.discriminator.parameters(), CLIP_NORM)
        self.discriminator_optimizer.step()
        self.losses["discriminator"] = loss.detach()

    def penalise_gradients(self, real: Tensor) -> None:
        """R1 (arXiv 1801.04406): the squared gradient of the scores at real images."""
        real = real.detach().requires_grad_()
        score = self.discriminator(real)
        (gradient,) = torch.autograd.grad(score.sum(), real, create_graph=True)
        penalty = gradient.square().sum((1, 2, 3)).mean()
        self.discriminator_optimizer.zero_grad(set_to_none=True)
        (R1_WEIGHT / 2 * R1_PERIOD * penalty + 0 * score.sum()).backward()
        self.discriminator_optimizer.step()
        self.losses["r1"] = penalty.detach()

    def train_generator(self) -> None:
        """Non-saturating loss. The discriminator's gradients are computed too, and dropped."""
        loss = F.softplus(-self.discriminator(self.fake_images())).mean()
        self.generator_optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.generator_optimizer.step()
        self.losses["generator"] = loss.detach()

    @torch.no_grad()
    def update_average(self) -> None:
        """The moving average of the generator's weights, one weight after another."""
        pairs = zip(self.average.parameters(), self.generator.parameters(), strict=True)
        for mean, weight in pairs:
            mean.mul_(AVERAGE_DECAY).add_(weight, alpha=1 - AVERAGE_DECAY)


def training_step(
    batch_size: int, resolution: int = 256, widest: int = 512, style_width: int = 512
) -> Iteration:
    """One iteration at a batch size; `widest` caps the channels of both networks."""
    allow_tf32(True)
    torch.backends.cudnn.benchmark = True
    return Iteration(batch_size, resolution, widest, style_width)
