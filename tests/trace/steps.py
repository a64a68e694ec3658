"""Training steps that the tests trace. Each function takes a batch size and returns one step."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

Step = Callable[[], object]


def linear_sgd(batch_size: int) -> Step:
    """One matrix, no bias."""
    model = nn.Linear(1024, 512, bias=False)
    x = torch.randn(batch_size, 1024)
    return _step(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda: model(x).sum())


def linear_adam(batch_size: int) -> Step:
    """A matrix of 4 MiB and few samples: the peak is in the optimizer."""
    model = nn.Linear(1024, 1024, bias=False)
    x = torch.randn(batch_size, 1024)
    return _step(model, torch.optim.Adam(model.parameters()), lambda: model(x).sum())


class _Bottleneck(nn.Module):
    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            *_conv_norm(channels_in, width, 1),
            nn.ReLU(),
            *_conv_norm(width, width, 3, stride),
            nn.ReLU(),
            *_conv_norm(width, out, 1),
        )
        plain = channels_in == out and stride == 1
        self.skip = (
            nn.Identity() if plain else nn.Sequential(*_conv_norm(channels_in, out, 1, stride))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


def _conv_norm(channels_in: int, out: int, size: int, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(channels_in, out, size, stride, size // 2, bias=False)
    return [conv, nn.BatchNorm2d(out)]


def _resnet50() -> nn.Module:
    layers: list[nn.Module] = [*_conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 * 2**stage
        for block in range(blocks):
            layers.append(_Bottleneck(channels, width, 2 if stage and not block else 1))
            channels = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def resnet50(batch_size: int) -> Step:
    """ResNet-50 in bf16 autocast."""
    model, x = _resnet50(), torch.randn(batch_size, 3, 224, 224)
    y = torch.randint(1000, (batch_size,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def loss() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(x)
        return F.cross_entropy(scores.float(), y)

    return _step(model, optimizer, loss)


def channels_last_tf32(batch_size: int) -> Step:
    """A convolution in NHWC with TF32 in cuDNN but not in matrix products."""
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = False
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    model.append(nn.Linear(16, 4)).to(memory_format=torch.channels_last)
    x = torch.randn(batch_size, 8, 32, 32).to(memory_format=torch.channels_last)
    return _step(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda: model(x).sum())


class _CausalBlock(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, dim = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, dim))


def transformer(batch_size: int) -> Step:
    """Two causal blocks in bf16 weights, moved to the GPU explicitly, with clipping."""
    vocabulary, length, dim = 100, 64, 32
    model = nn.Sequential(nn.Embedding(vocabulary, dim), *(_CausalBlock(dim, 4) for _ in range(2)))
    model.append(nn.Linear(dim, vocabulary))
    model.bfloat16().cuda()
    ids = torch.randint(vocabulary, (batch_size, length), device="cuda")
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        loss = F.cross_entropy(model(ids).view(-1, vocabulary).float(), ids.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    return step


def masked_attention(batch_size: int) -> Step:
    """fp32 attention with a mask: the memory-efficient kernel."""
    q = torch.randn(batch_size, 4, 64, 32, requires_grad=True)
    mask = torch.ones(64, 64, dtype=torch.bool)
    return lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()


def gan(batch_size: int) -> Step:
    """Two networks, two optimizers, two backward passes a step."""
    generator, critic = nn.Linear(16, 64), nn.Linear(64, 1)
    for_generator = torch.optim.Adam(generator.parameters())
    for_critic = torch.optim.Adam(critic.parameters())
    noise, real = torch.randn(batch_size, 16), torch.randn(batch_size, 64)

    def step() -> None:
        fake = generator(noise)
        for_critic.zero_grad()
        (critic(fake.detach()).mean() - critic(real).mean()).backward()
        for_critic.step()
        for_generator.zero_grad()
        (-critic(fake).mean()).backward()
        for_generator.step()

    return step


def fp16_scaled(batch_size: int) -> Step:
    """fp16 autocast with a GradScaler and Adam."""
    model, x = nn.Linear(256, 256), torch.randn(batch_size, 256)
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.float16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    return step


def every_fourth(batch_size: int) -> Step:
    """Regularised every fourth step, as StyleGAN is; says so by `period`."""
    model, x = nn.Linear(8, 8, bias=False), torch.randn(batch_size, 8)
    optimizer, steps = torch.optim.SGD(model.parameters(), lr=0.1), [0]

    def step() -> None:
        loss = model(x).sum()
        if steps[0] % 4 == 0:
            loss = loss + model(x).exp().sum()
        steps[0] += 1
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step.period = 4  # type: ignore[attr-defined]
    return step


def per_sample_loop(batch_size: int) -> Step:
    """Runs more operations the larger the batch is."""
    model, x = nn.Linear(8, 8, bias=False), torch.randn(batch_size, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _step(model, optimizer, lambda: sum(model(row[None]).sum() for row in x))


def pairwise(batch_size: int) -> Step:
    """Every sample against every other: quadratic in the batch size."""
    model, x = nn.Linear(32, 16), torch.randn(batch_size, 32)

    def loss() -> torch.Tensor:
        z = model(x)
        return F.cross_entropy(z @ z.T, torch.arange(batch_size, device=x.device))

    return _step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)


def boolean_mask(batch_size: int) -> Step:
    """Selects by values, which a trace does not have."""
    model, x = nn.Linear(8, 8), torch.randn(batch_size, 8)
    return _step(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda: model(x)[x > 0].sum())


def asks_the_gpu(batch_size: int) -> Step:
    """Code as found in the wild: device questions, streams, events, printing."""
    assert torch.cuda.is_available()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.cuda.manual_seed_all(0)
    model = torch.compile(nn.Linear(8, 8).to(device))
    x = torch.randn(batch_size, 8, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss() -> torch.Tensor:
        torch.cuda.synchronize()
        print("allocated", torch.cuda.memory_allocated(), torch.cuda.get_device_name())  # noqa: T201
        return model(x).sum()

    return _step(model, optimizer, loss)


def compiled_in_part(batch_size: int) -> Step:
    """Two calls of a compiled model a step, and a loss that is not compiled."""
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Tanh())
    fast = torch.compile(model, mode="reduce-overhead")
    x = torch.randn(batch_size, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _step(model, optimizer, lambda: (fast(x) + fast(x).exp()).sum())


def lstm(batch_size: int) -> Step:
    """Two layers: one cuDNN call each way."""
    model, x = nn.LSTM(32, 64, num_layers=2, batch_first=True), torch.randn(batch_size, 20, 32)
    return _step(model, torch.optim.SGD(model.parameters(), lr=0.1), lambda: model(x)[0].sum())


def noise_in_step(batch_size: int) -> Step:
    """Makes its noise on the default device, whichever that is."""
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return _step(model, optimizer, lambda: model(torch.randn(batch_size, 8)).sum())


def cpu_and_gpu(batch_size: int) -> Step:
    """Mixes devices, whatever the default is."""
    x = torch.randn(batch_size, 8)
    return lambda: x + torch.randn(batch_size, 8, device="cpu")


def tied_and_moved(batch_size: int) -> Step:
    """Built on the CPU, weights tied, optimizer made before the move to the GPU."""
    with torch.device("cpu"):
        first, last = nn.Embedding(50, 16), nn.Linear(16, 50, bias=False)
    last.weight = first.weight
    model = nn.Sequential(first, last)
    optimizer = torch.optim.Adam(model.parameters())
    model.to("cuda", torch.bfloat16)
    ids = torch.randint(50, (batch_size, 4), device="cuda")
    return _step(model, optimizer, lambda: model(ids).sum())


def own_operator(batch_size: int) -> Step:
    """An operator of the user's own without a formula."""
    x = torch.randn(batch_size, 8)
    return lambda: torch.ops.outlay_tests.twice(x)


_library = torch.library.Library("outlay_tests", "FRAGMENT")
_library.define("twice(Tensor x) -> Tensor")
_library.impl("twice", lambda x: 2 * x, "CPU")
_library.impl("twice", torch.empty_like, "Meta")


def raises_in_step(batch_size: int) -> Step:
    """Fails in the step."""
    x = torch.randn(batch_size, 3)
    return lambda: x @ x  # shapes do not match


def raises_in_build(batch_size: int) -> Step:
    """Fails before there is a step."""
    raise ValueError(f"no data for {batch_size}")


def returns_a_number(batch_size: int) -> int:
    """Not a step."""
    return batch_size


def wants_more(batch_size: int, path: str) -> Step:
    """Has an argument without default."""
    return lambda: (batch_size, path)


def aborts(batch_size: int) -> Step:
    """Takes the process down."""
    import os

    return os.abort


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor]
) -> Step:
    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def rms_norm(batch_size):
    """A linear layer and an RMS norm."""
    layer, norm = nn.Linear(256, 256), nn.RMSNorm(256)
    x = torch.randn(batch_size, 256)

    def step():
        norm(layer(x)).sum().backward()
        layer.zero_grad()
        norm.zero_grad()

    return step


def linear_of_a_turned_input(batch_size: int) -> Step:
    """A linear layer with a bias over a tensor with gaps."""
    layer = nn.Linear(16, 32)
    x = torch.randn(batch_size, 16, 8).transpose(1, 2)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)

    def step() -> None:
        layer(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def built_from_values(batch_size: int) -> Step:
    """Widths that are computed with tensors and read back, as RegNet has them."""
    widths = torch.round(torch.arange(3) * 8 + torch.linspace(8, 9, 3)).int().tolist()
    layers = nn.Sequential(*(nn.Linear(a, b) for a, b in itertools.pairwise(widths)))
    x = torch.randn(batch_size, widths[0])
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.1)

    def step() -> None:
        layers(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
