"""Single operations over many shapes, forward and backward, each sweep as one step to measure.

The shapes are drawn with a fixed seed from the ranges that training code uses. `measure_operations`
times every operator in them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

Step = Callable[[], None]
LARGEST_BYTES = 2**31
"""No tensor of a sweep is larger."""

_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "tf32": torch.float32,
    "fp32": torch.float32,
}


IMAGE_FUNCTIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda t: functional.max_pool2d(t, 2),
    lambda t: functional.max_pool2d(t, 3, 2, 1),
    lambda t: functional.avg_pool2d(t, 2),
    lambda t: functional.adaptive_avg_pool2d(t, 1),
    lambda t: functional.interpolate(t, scale_factor=2, mode="nearest"),
    lambda t: functional.interpolate(t, scale_factor=2, mode="bilinear"),
    lambda t: functional.pad(t, (1, 1, 1, 1)),
    lambda t: functional.pad(t, (1, 1, 1, 1), mode="reflect"),
    lambda t: functional.pixel_unshuffle(t, 2),
    lambda t: torch.roll(t, (1, 1), (2, 3)),
    lambda t: t + t.mean((2, 3), keepdim=True),
    lambda t: t.permute(0, 2, 3, 1).contiguous(),
    lambda t: functional.unfold(t, 2, stride=2),
)


def _precision(name: str) -> torch.dtype:
    torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = name == "tf32"
    return _DTYPES[name]


def _size(rng: random.Random, low: int, high: int, multiple: int = 1) -> int:
    """A size between two, evenly on a logarithmic scale."""
    drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(round(drawn / multiple), 1) * multiple


def _all(items: list[Step]) -> Step:
    def step() -> None:
        for item in items:
            item()

    return step


def _random(*shape: int, dtype: torch.dtype, grad: bool = False) -> Tensor:
    return torch.randn(shape, dtype=dtype, device="cuda").requires_grad_(grad)


def _fits(*shapes: tuple[int, ...]) -> bool:
    return all(4 * math.prod(shape) <= LARGEST_BYTES for shape in shapes)


def _backward(out: Tensor) -> None:
    out.backward(torch.randn_like(out))


# Matrix products


def _products(name: str, seed: int, count: int) -> Step:
    dtype, rng = _precision(name), random.Random(seed)
    items: list[Step] = []
    while len(items) < count:
        multiple = rng.choice([64, 64, 16, 8, 8, 2, 1])
        rows = _size(rng, 32, 65536)
        inner, outer = (_size(rng, 16, 16384, multiple) for _ in range(2))
        if 2 * rows * inner * outer > 2e13 or not _fits((rows, inner), (rows, outer)):
            continue

        def item(rows: int = rows, inner: int = inner, outer: int = outer) -> None:
            x = _random(rows, inner, dtype=dtype, grad=True)
            weight = _random(outer, inner, dtype=dtype, grad=True)
            _backward(functional.linear(x, weight))

        items.append(item)
    while len(items) < count + count // 3:
        batch, heads = _size(rng, 1, 64), rng.choice([4, 8, 12, 16, 32])
        length, dim = rng.choice([49, 64, 128, 197, 256, 512, 1024]), rng.choice([32, 64, 80, 128])
        if not _fits((batch, heads, length, length)):
            continue

        def scores(shape: tuple[int, ...] = (batch * heads, length, dim)) -> None:
            query, key = (_random(*shape, dtype=dtype, grad=True) for _ in range(2))
            _backward(torch.bmm(query, key.transpose(1, 2)))

        items.append(scores)
    return _all(items)


# Convolutions


def _convolutions(name: str, seed: int, count: int, *, channels_last: bool) -> Step:
    dtype, rng = _precision(name), random.Random(seed)
    items: list[Step] = []
    while len(items) < count:
        dimensions = rng.choices([1, 2, 3], [1, 12, 2])[0]
        narrow = rng.random() < 0.12
        channels = rng.choice([1, 3, 4]) if narrow else _size(rng, 16, 2048, 8)
        outs = _size(rng, 16, 2048, 8)
        kind = rng.choices(["plain", "depthwise", "grouped", "transposed"], [10, 3, 1, 2])[0]
        kernel = (
            rng.choice([1, 1, 3, 3, 3, 5, 7]) if kind != "transposed" else rng.choice([2, 3, 4])
        )
        if dimensions == 3:
            kernel = min(kernel, 3)
        stride = rng.choice([1, 1, 1, 2]) if kind != "transposed" else 2
        extent = {
            1: _size(rng, 64, 16384),
            2: rng.choice([7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224]),
            3: rng.choice([8, 16, 32, 64]),
        }[dimensions]
        groups = 1
        if kind == "depthwise" and not narrow:
            outs = groups = channels
        elif kind == "grouped" and not narrow:
            groups = rng.choice([2, 4, 8, 32])
            channels, outs = (max(size // groups, 1) * groups for size in (channels, outs))
        batch = _size(rng, 1, 256)
        in_shape = (batch, channels, *([extent] * dimensions))
        flops = 2 * batch * extent**dimensions * channels * outs // groups * kernel**dimensions
        out_elements = batch * outs * (extent * (2 if kind == "transposed" else 1)) ** dimensions
        if flops > 3e12 or not _fits(in_shape, (out_elements,)):
            continue
        if flops < 2e7:
            continue
        module = {
            ("plain", 1): nn.Conv1d,
            ("plain", 2): nn.Conv2d,
            ("plain", 3): nn.Conv3d,
            ("transposed", 1): nn.ConvTranspose1d,
            ("transposed", 2): nn.ConvTranspose2d,
            ("transposed", 3): nn.ConvTranspose3d,
        }[("transposed" if kind == "transposed" else "plain", dimensions)]
        bias = rng.random() < 0.4

        def item(
            module: type[nn.Module] = module,
            arguments: tuple[int, ...] = (channels, outs, kernel, stride),
            padding: int = (kernel - 1) // 2,
            groups: int = groups,
            bias: bool = bias,
            in_shape: tuple[int, ...] = in_shape,
        ) -> None:
            layer = module(*arguments, padding=padding, groups=groups, bias=bias)
            layer = layer.to("cuda", dtype)
            x = torch.randn(in_shape, dtype=dtype, device="cuda")
            if channels_last and len(in_shape) == 4:
                layer = layer.to(memory_format=torch.channels_last)
                x = x.contiguous(memory_format=torch.channels_last)
            elif channels_last and len(in_shape) == 5:
                layer = layer.to(memory_format=torch.channels_last_3d)
                x = x.contiguous(memory_format=torch.channels_last_3d)
            _backward(layer(x.requires_grad_()))

        items.append(item)
    return _all(items)


# Normalisation, softmax, attention


def _norms(name: str, seed: int) -> Step:
    dtype, rng = _precision(name), random.Random(seed)
    items: list[Step] = []

    def image() -> tuple[int, ...]:
        while True:
            shape = (
                _size(rng, 2, 256),
                _size(rng, 16, 1024, 16),
                rng.choice([7, 14, 16, 28, 32, 56, 64, 112]),
            )
            if _fits((*shape, shape[2])):
                return (*shape, shape[2])

    def images(
        layer: Callable[[int], nn.Module], count: int, *, last: bool = False
    ) -> Iterator[Step]:
        for _ in range(count):

            def item(shape: tuple[int, ...] = image()) -> None:
                module = layer(shape[1]).to("cuda")
                x = torch.randn(shape, dtype=dtype, device="cuda")
                if last:
                    x = x.contiguous(memory_format=torch.channels_last)
                with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                    _backward(module(x.requires_grad_()))

            yield item

    items += images(nn.BatchNorm2d, 24)
    items += images(nn.BatchNorm2d, 16, last=True)
    items += images(lambda channels: nn.GroupNorm(math.gcd(channels, 32), channels), 14)
    items += images(lambda channels: nn.InstanceNorm2d(channels, affine=True), 8)
    for _ in range(24):
        rows, width = _size(rng, 256, 100_000), _size(rng, 64, 8192, 32)
        if not _fits((rows, width)):
            continue

        def rows_of(shape: tuple[int, int] = (rows, width)) -> None:
            x = _random(*shape, dtype=dtype, grad=True)
            layer = nn.LayerNorm(shape[1], device="cuda", dtype=dtype)
            _backward(layer(x))
            y = _random(*shape, dtype=dtype, grad=True)
            _backward(functional.softmax(y, dim=-1))
            z = _random(*shape, dtype=dtype, grad=True)
            _backward(functional.log_softmax(z, dim=-1))
            w = _random(*shape, dtype=dtype, grad=True)
            _backward(
                functional.rms_norm(
                    w, (shape[1],), torch.ones(shape[1], dtype=dtype, device="cuda")
                )
            )

        items.append(rows_of)
    return _all(items)


def _attention(name: str, seed: int, count: int) -> Step:
    dtype, rng = _precision(name), random.Random(seed)
    items: list[Step] = []
    while len(items) < count:
        batch, heads = _size(rng, 1, 64), rng.choice([4, 8, 12, 16, 24, 32])
        length = rng.choice([49, 64, 128, 197, 256, 384, 512, 1024, 2048, 4096])
        dim = rng.choice([32, 64, 64, 80, 96, 128, 128])
        if batch * heads * length * length > 2e9:
            continue
        masked, causal = rng.random() < 0.25, rng.random() < 0.5
        dropout = rng.choice([0.0, 0.0, 0.1])

        def item(
            shape: tuple[int, ...] = (batch, length, heads, dim),
            masked: bool = masked,
            causal: bool = causal,
            dropout: float = dropout,
        ) -> None:
            q, k, v = (_random(*shape, dtype=dtype, grad=True).transpose(1, 2) for _ in range(3))
            mask = None
            if masked:
                mask = torch.zeros(shape[0], 1, shape[1], shape[1], dtype=dtype, device="cuda")
            _backward(
                functional.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal and not masked
                )
            )

        items.append(item)
    return _all(items)


# What only moves data


def _passes(name: str, seed: int) -> Step:
    dtype, rng = _precision(name), random.Random(seed)
    items: list[Step] = []
    unary = (
        torch.relu,
        torch.sigmoid,
        torch.tanh,
        torch.exp,
        functional.gelu,
        functional.silu,
        torch.sqrt,
        torch.abs,
        functional.softplus,
        functional.leaky_relu,
        functional.elu,
        functional.mish,
        torch.sin,
        functional.hardswish,
        lambda t: functional.gelu(t, approximate="tanh"),
    )
    for elements in (2**12, 2**16, 2**19, 2**21, 2**22, 2**23, 2**24, 2**26, 2**28):

        def flat(elements: int = elements) -> None:
            x = torch.rand(elements, dtype=dtype, device="cuda")
            y = torch.rand(elements, dtype=dtype, device="cuda")
            for function in unary:
                function(x)
            x + y
            x * y
            x / y
            x * 2.0
            x.add_(y)
            torch.addcmul(x, x, y)
            torch.where(x > y, x, y)
            x.float()
            x.half()
            x.clone()
            torch.zeros_like(x)
            torch.rand_like(x)
            torch.randn_like(x)
            functional.dropout(x, 0.1)
            x.sum()
            x.norm()
            torch.clamp(x, 0, 1)
            x**2
            x**3
            if elements <= 2**24:
                x.sort()
                torch.topk(x, 100)
                torch.cumsum(x, 0)

        items.append(flat)
    for _ in range(30):
        rows, columns = _size(rng, 16, 65536), _size(rng, 16, 65536)
        if rows * columns > 2**27:
            continue

        def matrix(shape: tuple[int, int] = (rows, columns)) -> None:
            x = torch.rand(shape, dtype=dtype, device="cuda")
            row, column = x[0].clone(), x[:, :1].clone()
            x + row
            x * column
            x.sum(0)
            x.sum(1)
            x.mean(1)
            x.amax(1)
            x.t().contiguous()
            x + x.t().contiguous().t()
            torch.cat([x, x], 0)
            torch.cat([x, x], 1)
            x[:, : shape[1] // 2].contiguous()
            x.argmax(1)
            places = torch.randint(shape[0], (shape[0],), device="cuda")
            x[places]
            torch.zeros_like(x).index_add_(0, places, x)
            functional.embedding(places, x)

        items.append(matrix)
    for _ in range(24):
        batch, channels = _size(rng, 1, 128), _size(rng, 8, 512, 8)
        extent = rng.choice([8, 14, 16, 28, 32, 56, 64, 112, 128])
        if not _fits((batch, channels, 2 * extent, 2 * extent)):
            continue
        last = rng.random() < 0.3

        def image(
            shape: tuple[int, ...] = (batch, channels, extent, extent), last: bool = last
        ) -> None:
            for function in IMAGE_FUNCTIONS:
                if shape[2] % 2:
                    continue
                x = torch.randn(shape, dtype=dtype, device="cuda")
                if last:
                    x = x.contiguous(memory_format=torch.channels_last)
                _backward(function(x.requires_grad_()))

        items.append(image)
    for _ in range(12):
        vocabulary, width = _size(rng, 1000, 120_000), _size(rng, 64, 4096, 64)
        tokens = _size(rng, 256, 32768)

        def words(vocabulary: int = vocabulary, width: int = width, tokens: int = tokens) -> None:
            table = _random(vocabulary, width, dtype=dtype, grad=True)
            places = torch.randint(vocabulary, (tokens,), device="cuda")
            _backward(functional.embedding(places, table))
            if tokens * vocabulary < 2**29:
                logits = _random(tokens, vocabulary, dtype=torch.float32, grad=True)
                functional.cross_entropy(logits, places).backward()

        items.append(words)
    return _all(items)


def _recurrent(name: str, seed: int) -> Step:
    dtype, rng = _precision(name), random.Random(seed)
    items: list[Step] = []
    for _ in range(8):
        kind = rng.choice([nn.LSTM, nn.GRU])
        hidden, width = (rng.choice([128, 256, 512, 650, 1024, 1500]) for _ in range(2))
        batch, length = _size(rng, 8, 256), rng.choice([32, 64, 128])
        layers, both = rng.choice([1, 2]), rng.random() < 0.3

        def item(
            kind: type[nn.RNNBase] = kind,
            sizes: tuple[int, int, int] = (width, hidden, layers),
            both: bool = both,
            shape: tuple[int, int] = (length, batch),
        ) -> None:
            layer = kind(*sizes, bidirectional=both).to("cuda", dtype)
            x = _random(*shape, sizes[0], dtype=dtype, grad=True)
            _backward(layer(x)[0])

        items.append(item)
    return _all(items)


def _updates(seed: int) -> Step:
    rng = random.Random(seed)
    items: list[Step] = []
    for width, count in ((64, 200), (512, 100), (1024, 150), (4096, 8)):
        parameters = [
            torch.randn(width, width if i % 2 else 4, device="cuda").requires_grad_()
            for i in range(count)
        ]
        for one in parameters:
            one.grad = torch.randn_like(one)
        updates: tuple[torch.optim.Optimizer, ...] = (
            torch.optim.AdamW(parameters),
            torch.optim.AdamW(parameters, fused=True),
            torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
            torch.optim.SGD(parameters, lr=0.1),
            torch.optim.RMSprop(parameters),
            torch.optim.Adagrad(parameters),
        )
        items += [update.step for update in updates]
        items.append(partial(nn.utils.clip_grad_norm_, parameters, 1.0))
    rng.shuffle(items)
    return _all(items)


def _named(
    function: Callable[..., Step], *arguments: object, **choices: object
) -> Callable[[int], Step]:
    def sweep(batch_size: int) -> Step:  # noqa: ARG001  a sweep has its own sizes
        return function(*arguments, **choices)

    return sweep


SWEEPS: dict[str, Callable[[int], Step]] = {
    **{f"products_{p}": _named(_products, p, 1, 90) for p in _DTYPES},
    **{f"convolutions_{p}": _named(_convolutions, p, 2, 110, channels_last=False) for p in _DTYPES},
    **{
        f"convolutions_{p}_nhwc": _named(_convolutions, p, 3, 60, channels_last=True)
        for p in ("bf16", "fp16", "tf32")
    },
    **{f"norms_{p}": _named(_norms, p, 4) for p in ("bf16", "fp16", "fp32")},
    **{f"attention_{p}": _named(_attention, p, 5, 40) for p in ("bf16", "fp16", "fp32", "tf32")},
    **{f"passes_{p}": _named(_passes, p, 6) for p in ("bf16", "fp32")},
    **{f"recurrent_{p}": _named(_recurrent, p, 7) for p in ("fp16", "tf32", "fp32")},
    "updates": _named(_updates, 8),
}
globals().update(SWEEPS)
