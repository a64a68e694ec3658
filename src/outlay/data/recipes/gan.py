"""Training a GAN: a generator and a discriminator of StyleGAN2 or DCGAN learn in turns.

Written in plain torch after the papers (arXiv 1912.04958 and 1511.06434). Non-saturating loss, an
Adam for each network. StyleGAN2 has R1 every 16th iteration and path lengths every 4th, rates
corrected for them, and a moving average of the generator; blurs are convolutions here, kernels of
their own there. Left out: style mixing, what augments images, and the loader. A sample is an image.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Literal

import torch
from parts import dtypes_of
from torch import Tensor, nn
from torch.nn import functional

MODEL = ""
CONFIG: dict[str, Any] = {}

IMAGE_SIZE: int | None = None  # height and width, a power of 2; without one, the model's own
PRECISION: Literal["tf32", "fp32", "bf16 autocast"] = "tf32"
R1_PERIOD: int | None = 16  # iterations from one penalty of gradients to the next; DCGAN has none
R1_WEIGHT: float = 1.0
PATH_PERIOD: int | None = 4  # iterations from one penalty of path lengths to the next
AVERAGE: bool = True  # keeps a moving average of the generator


def training_step(batch_size: int) -> Callable[[], None]:
    """One iteration at a batch size: both networks are updated."""
    size = IMAGE_SIZE or CONFIG["image_size"]
    if CONFIG["architecture"] == "dcgan":
        return Iteration(batch_size, size, *dcgan(size, CONFIG), 2e-4, (0.5, 0.999), None, None)
    networks = StyleGenerator(size, CONFIG), StyleDiscriminator(size, CONFIG)
    return Iteration(batch_size, size, *networks, 2e-3, (0.0, 0.99), R1_PERIOD, PATH_PERIOD)


class Iteration:
    """Calling it runs one iteration; it keeps the networks, their optimizers and the count."""

    def __init__(
        self,
        batch_size: int,
        size: int,
        generator: nn.Module,
        discriminator: nn.Module,
        rate: float,
        betas: tuple[float, float],
        r1_period: int | None,
        path_period: int | None,
    ) -> None:
        self.autocast = dtypes_of(PRECISION)[1]
        self.generator, self.discriminator = generator.train(), discriminator.train()
        self.average = copy.deepcopy(generator).requires_grad_(False) if AVERAGE else None
        self.real = torch.randn(batch_size, 3, size, size)
        self.r1_period, self.path_period = r1_period, path_period
        self.generator_update = adam(generator, rate, betas, path_period)
        self.discriminator_update = adam(discriminator, rate, betas, r1_period)
        self.path_length = torch.zeros(())
        self.period = math.lcm(r1_period or 1, path_period or 1)  # so many are of every kind
        self.kinds = [self.penalties(place) for place in range(self.period)]
        self.done = 0

    def penalties(self, place: int) -> str:
        """What an iteration does besides the two updates."""
        names = [("R1", self.r1_period), ("paths", self.path_period)]
        return " and ".join(name for name, period in names if period and place % period == 0)

    def skip(self, iterations: int) -> None:
        """Count iterations that are not run: a trace knows them from others of their kind."""
        self.done += iterations

    def __call__(self) -> None:
        """Run one iteration."""
        penalties = self.penalties(self.done)
        self.train_generator()
        if "paths" in penalties:
            self.penalise_paths()
        self.train_discriminator()
        if "R1" in penalties:
            self.penalise_gradients()
        if self.average is not None:
            self.update_average()
        self.done += 1

    def in_precision(self) -> torch.autocast:
        """The context that networks run in."""
        return torch.autocast("cuda", self.autocast, enabled=self.autocast is not None)

    def noise(self, count: int) -> Tensor:
        """What images are made of."""
        return torch.randn(count, self.generator.noise_width)

    def train_generator(self) -> None:
        """Images that the discriminator takes for real."""
        with self.in_precision():
            scores = self.discriminator(self.generator(self.noise(len(self.real))))
            loss = functional.softplus(-scores.float()).mean()
        updated(self.generator_update, loss)

    def train_discriminator(self) -> None:
        """High scores for real images, low ones for made ones."""
        with torch.no_grad(), self.in_precision():
            made = self.generator(self.noise(len(self.real)))
        with self.in_precision():
            loss = functional.softplus(self.discriminator(made).float()).mean()
            loss = loss + functional.softplus(-self.discriminator(self.real).float()).mean()
        updated(self.discriminator_update, loss)

    def penalise_gradients(self) -> None:
        """R1 (arXiv 1801.04406): the squared gradient of the scores at real images."""
        real = self.real.detach().requires_grad_()
        with self.in_precision():
            scores = self.discriminator(real)
        (gradient,) = torch.autograd.grad(scores.sum(), real, create_graph=True)
        penalty = gradient.float().square().sum((1, 2, 3)).mean()
        updated(self.discriminator_update, R1_WEIGHT / 2 * self.r1_period * penalty)

    def penalise_paths(self) -> None:
        """A step of the style is to change images equally far everywhere; at half the batch."""
        with self.in_precision():
            styles = self.generator.styles(self.noise(max(len(self.real) // 2, 1)))
            images = self.generator.drawn(styles)
        directions = torch.randn_like(images) / math.sqrt(images.shape[2] * images.shape[3])
        (gradient,) = torch.autograd.grad((images * directions).sum(), styles, create_graph=True)
        lengths = gradient.float().square().sum(2).mean(1).sqrt()
        self.path_length = self.path_length.lerp(lengths.detach().mean(), 0.01)
        penalty = (lengths - self.path_length).square().mean()
        updated(self.generator_update, 2 * self.path_period * penalty)

    def update_average(self) -> None:
        """Half of what the average has is from the last 10,000 images."""
        share = 1 - 0.5 ** (len(self.real) / 10_000)
        with torch.no_grad():
            pairs = zip(self.average.parameters(), self.generator.parameters(), strict=True)
            for average, parameter in pairs:
                average.lerp_(parameter, share)


def adam(
    network: nn.Module, rate: float, betas: tuple[float, float], period: int | None
) -> torch.optim.Adam:
    """Adam with a rate corrected for one update more in each period."""
    share = period / (period + 1) if period else 1.0
    corrected = betas[0] ** share, betas[1] ** share
    return torch.optim.Adam(network.parameters(), lr=rate * share, betas=corrected)


def updated(optimizer: torch.optim.Adam, loss: Tensor) -> None:
    """Take a step down the loss, with the gradients of one network alone."""
    optimizer.zero_grad()
    loss.backward(inputs=optimizer.param_groups[0]["params"])
    optimizer.step()


# StyleGAN2


def leaky(x: Tensor) -> Tensor:
    """Leaky ReLU with the gain that keeps the variance."""
    return functional.leaky_relu(x, 0.2) * math.sqrt(2)


def blurred(x: Tensor, padding: int, gain: float = 1.0) -> Tensor:
    """A map blurred with the binomial filter of four."""
    line = torch.tensor([1.0, 3.0, 3.0, 1.0], dtype=x.dtype, device=x.device) / 8
    kernel = (gain * torch.outer(line, line)).expand(x.shape[1], 1, 4, 4)
    return functional.conv2d(x, kernel, padding=padding, groups=x.shape[1])


def widths_of(size: int, config: dict[str, Any]) -> list[int]:
    """Channels at 4x4, 8x8, ... up to the size of images."""
    powers = range(2, int(math.log2(size)) + 1)
    return [min(config["widest"], config["channels"] // 2**power) for power in powers]


class Linear(nn.Module):
    """A linear layer whose weights are scaled when used, so that all layers learn at one rate."""

    def __init__(self, inputs: int, outputs: int, start: float = 0.0, rate: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / rate)
        self.bias = nn.Parameter(torch.full((outputs,), start / rate))
        self.scale, self.rate = rate / math.sqrt(inputs), rate

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, without activation."""
        return functional.linear(x, self.weight * self.scale, self.bias * self.rate)


class Conv(nn.Module):
    """A convolution with scaled weights and leaky ReLU; to go down, blurred and with stride 2."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, down: bool = False, plain: bool = False
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, kernel, kernel))
        self.bias = None if plain else nn.Parameter(torch.zeros(outputs))
        self.scale, self.kernel, self.down = 1 / math.sqrt(inputs * kernel**2), kernel, down

    def forward(self, x: Tensor) -> Tensor:
        """A map of as many pixels, or of a quarter of them."""
        if self.down:
            x = blurred(x, padding=self.kernel // 2 + 1)
        padding = 0 if self.down else self.kernel // 2
        x = functional.conv2d(
            x, self.weight * self.scale, self.bias, 2 if self.down else 1, padding
        )
        return x if self.bias is None else leaky(x)


class StyledConv(nn.Module):
    """A convolution whose inputs are weighted by a style, and its outputs by their variance."""

    def __init__(
        self, inputs: int, outputs: int, style_width: int, kernel: int = 3, up: bool = False
    ) -> None:
        super().__init__()
        self.gains = Linear(style_width, inputs, start=1.0)
        self.weight = nn.Parameter(torch.randn(outputs, inputs, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.noise_gain = nn.Parameter(torch.zeros(())) if kernel > 1 else None  # colours have none
        self.scale, self.up = 1 / math.sqrt(inputs * kernel**2), up

    def forward(self, x: Tensor, style: Tensor) -> Tensor:
        """A map of as many pixels, or of four times as many."""
        gains, weight = self.gains(style), self.weight * self.scale
        x = x * gains[:, :, None, None]
        if self.up:
            x = functional.conv_transpose2d(x, weight.transpose(0, 1), stride=2)
            x = blurred(x, padding=1, gain=4.0)
        else:
            x = functional.conv2d(x, weight, padding=weight.shape[-1] // 2)
        bias = self.bias[:, None, None]
        if self.noise_gain is None:
            return x + bias
        variance = gains.square() @ weight.square().sum((2, 3)).T
        x = x * torch.rsqrt(variance + 1e-8)[:, :, None, None]
        return leaky(x + self.noise_gain * torch.randn_like(x[:, :1]) + bias)


class StyleGenerator(nn.Module):
    """Noise to styles to images; each resolution adds to the image of the one before."""

    def __init__(self, size: int, config: dict[str, Any]) -> None:
        super().__init__()
        widths, style = widths_of(size, config), config["style_width"]
        self.noise_width, self.layers = style, 2 * len(widths)
        self.mapping = nn.ModuleList(Linear(style, style, rate=0.01) for _ in range(8))
        self.start = nn.Parameter(torch.randn(1, widths[0], 4, 4))
        self.ups = nn.ModuleList(StyledConv(*pair, style, up=True) for pair in pairwise(widths))
        self.convs = nn.ModuleList(StyledConv(width, width, style) for width in widths)
        self.colours = nn.ModuleList(StyledConv(width, 3, style, kernel=1) for width in widths)

    def styles(self, noise: Tensor) -> Tensor:
        """The style of each layer, [B, layers, width]."""
        x = noise * torch.rsqrt(noise.square().mean(1, keepdim=True) + 1e-8)
        for layer in self.mapping:
            x = leaky(layer(x))
        return x[:, None].repeat(1, self.layers, 1)

    def drawn(self, styles: Tensor) -> Tensor:
        """Images [B, 3, size, size] of the styles of all layers."""
        styles = styles.unbind(1)
        x = self.convs[0](self.start.expand(len(styles[0]), -1, -1, -1), styles[0])
        image = self.colours[0](x, styles[1])
        for level, up in enumerate(self.ups, 1):
            x = self.convs[level](up(x, styles[2 * level - 1]), styles[2 * level])
            larger = blurred(spread(image), padding=2, gain=4.0)[:, :, :-1, :-1]
            image = larger + self.colours[level](x, styles[2 * level + 1])
        return image

    def forward(self, noise: Tensor) -> Tensor:
        """Images of noise."""
        return self.drawn(self.styles(noise))


def spread(image: Tensor) -> Tensor:
    """Twice the resolution, with zeros between."""
    batch, channels, height, width = image.shape
    image = functional.pad(image[:, :, :, None, :, None], (0, 1, 0, 0, 0, 1))
    return image.reshape(batch, channels, 2 * height, 2 * width)


class StyleBlock(nn.Module):
    """Two convolutions that halve the resolution, beside one of a single pixel."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = Conv(inputs, inputs, 3), Conv(inputs, outputs, 3, down=True)
        self.beside = Conv(inputs, outputs, 1, down=True, plain=True)

    def forward(self, x: Tensor) -> Tensor:
        """A map of a quarter of the pixels."""
        return (self.second(self.first(x)) + self.beside(x)) / math.sqrt(2)


class StyleDiscriminator(nn.Module):
    """Images to scores."""

    def __init__(self, size: int, config: dict[str, Any]) -> None:
        super().__init__()
        widths = widths_of(size, config)[::-1]
        blocks = [StyleBlock(width, after) for width, after in pairwise(widths)]
        self.blocks = nn.Sequential(Conv(3, widths[0], 1), *blocks)
        self.last = Conv(widths[-1] + 1, widths[-1], 3)
        self.hidden = Linear(16 * widths[-1], widths[-1])
        self.score = Linear(widths[-1], 1)

    def forward(self, images: Tensor) -> Tensor:
        """Scores [B, 1]; one channel says how images in groups of four differ."""
        x = self.blocks(images)
        group = min(4, len(x))
        variance = x.view(group, -1, *x.shape[1:]).var(0, unbiased=False)
        differing = (variance + 1e-8).sqrt().mean((1, 2, 3)).repeat(group)
        differing = differing[:, None, None, None].expand(-1, 1, *x.shape[2:])
        x = self.last(torch.cat([x, differing], 1))
        return self.score(leaky(self.hidden(x.flatten(1))))


# DCGAN


def dcgan(size: int, config: dict[str, Any]) -> tuple[nn.Module, nn.Module]:
    """A generator and a discriminator of convolutions with stride 2."""
    levels = int(math.log2(size)) - 2
    widths = [config["channels"] * 2**level for level in range(levels)]
    up: list[nn.Module] = [nn.Unflatten(1, (config["noise_width"], 1, 1))]
    for place, (before, after) in enumerate(pairwise([config["noise_width"], *widths[::-1]])):
        stride, padding = (2, 1) if place else (1, 0)
        conv = nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False)
        up += [conv, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
    up += [nn.ConvTranspose2d(widths[0], 3, 4, 2, 1, bias=False), nn.Tanh()]
    down: list[nn.Module] = []
    for before, after in pairwise([3, *widths]):
        norm = [nn.BatchNorm2d(after)] if down else []
        conv = nn.Conv2d(before, after, 4, 2, 1, bias=False)
        down += [conv, *norm, nn.LeakyReLU(0.2, inplace=True)]
    down += [nn.Conv2d(widths[-1], 1, 4, bias=False), nn.Flatten()]
    generator = nn.Sequential(*up)
    generator.noise_width = config["noise_width"]
    return generator, nn.Sequential(*down)
