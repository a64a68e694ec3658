"""Steps of NVIDIA's DeepLearningExamples as Lambda's benchmark ran them, rebuilt from sources.

github.com/NVIDIA/DeepLearningExamples: BERT on SQuAD (`run_squad.py`, sequences of 384 tokens),
GNMT (`train.py`, WMT16 English to German) and WaveGlow (segments of 8,000 samples of audio).
Half precision is apex's O2 (weights and activations in fp16, an update of copies in fp32), or for
WaveGlow autocast; TF32 and fp32 are plain. What a library would fuse today is not: a bias is added
before GELU, BERT's own Adam updates tensor after tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional
from training import Step, allow_tf32

TRANSLATED_TOKENS = (29, 28)
"""Source and target tokens of a sentence pair of WMT16 English to German, padding included."""
SEGMENT, HOP = 8000, 256
"""WaveGlow: audio samples of a segment, and samples from one column of its spectrogram to the next.
"""


def bert_base_fp16(batch_size: int) -> Step:
    return _bert(batch_size, "fp16", 768, 12)


def bert_base_tf32(batch_size: int) -> Step:
    return _bert(batch_size, "tf32", 768, 12)


def bert_base_fp32(batch_size: int) -> Step:
    return _bert(batch_size, "fp32", 768, 12)


def bert_large_fp16(batch_size: int) -> Step:
    return _bert(batch_size, "fp16", 1024, 24)


def bert_large_tf32(batch_size: int) -> Step:
    return _bert(batch_size, "tf32", 1024, 24)


def bert_large_fp32(batch_size: int) -> Step:
    return _bert(batch_size, "fp32", 1024, 24)


def gnmt_fp16(batch_size: int) -> Step:
    return _gnmt(batch_size, "fp16")


def gnmt_tf32(batch_size: int) -> Step:
    return _gnmt(batch_size, "tf32")


def gnmt_fp32(batch_size: int) -> Step:
    return _gnmt(batch_size, "fp32")


def waveglow_fp16(batch_size: int) -> Step:
    return _waveglow(batch_size, "fp16")


def waveglow_tf32(batch_size: int) -> Step:
    return _waveglow(batch_size, "tf32")


def waveglow_fp32(batch_size: int) -> Step:
    return _waveglow(batch_size, "fp32")


# How they are updated


def _o2_step(
    model: nn.Module,
    loss_of: Callable[[], Tensor],
    *,
    fused: bool,
    clip: bool = True,
) -> Step:
    """Weights in fp16, of which Adam updates copies in fp32, with their norm clipped."""
    weights = list(model.half().train().parameters())
    copies = [weight.detach().float() for weight in weights]
    update = torch.optim.Adam(copies, lr=1e-4, fused=fused, foreach=not fused)

    def step() -> None:
        (1024.0 * loss_of().float()).backward()
        for copy, weight in zip(copies, weights, strict=True):
            copy.grad = None if weight.grad is None else torch.empty_like(copy)
        had = [(c.grad, w.grad) for c, w in zip(copies, weights, strict=True) if c.grad is not None]
        torch._foreach_copy_([grad for grad, _ in had], [grad for _, grad in had])
        if clip:
            nn.utils.clip_grad_norm_(copies, 1.0)
        update.step()
        with torch.no_grad():
            torch._foreach_copy_(weights, copies)
        model.zero_grad(set_to_none=True)

    return step


def _bert_adam(parameters: Iterable[nn.Parameter]) -> Callable[[], None]:
    """BERT's own Adam: tensor after tensor, a kernel an operation."""
    weights = list(parameters)
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))

    @torch.no_grad()
    def update() -> None:
        torch._foreach_norm(weights)
        for weight, m, v in zip(weights, first, second, strict=True):
            if weight.grad is None:
                continue
            grad = weight.grad
            clipped = weight * 1.0 / 2.0
            m.mul_(0.9).add_(grad, alpha=0.1)
            v.mul_(0.999).addcmul_(grad, grad, value=0.001)
            change = m / (v.sqrt() + 1e-6)
            if weight.dim() > 1:
                change += 0.01 * clipped
            weight.add_(-(1e-5 * change))

    return update


# BERT


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.heads = width // 64

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = (batch, length, self.heads, 64)
        query, value = (
            part(x).reshape(split).permute(0, 2, 1, 3) for part in (self.query, self.value)
        )
        key = self.key(x).reshape(split).permute(0, 2, 3, 1)
        scores = torch.matmul(query, key) / 8.0 + mask
        shares = functional.dropout(functional.softmax(scores, dim=-1), 0.1)
        mixed = torch.matmul(shares, value).permute(0, 2, 1, 3).contiguous()
        mixed = self.out(mixed.view(batch, length, width))
        return self.norm(functional.dropout(mixed, 0.1) + x)


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = _Attention(width)
        self.wide = nn.Linear(width, 4 * width, bias=False)
        self.bias = nn.Parameter(torch.zeros(4 * width))
        self.narrow = nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attention(x, mask)
        wide = functional.gelu(self.bias + self.wide(x))
        return self.norm(functional.dropout(self.narrow(wide), 0.1) + x)


class _Bert(nn.Module):
    """Answers to questions: where each begins and ends."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(30528, width)  # padded to a multiple of eight
        self.places, self.segments = nn.Embedding(512, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(_Layer(width) for _ in range(layers))
        self.ends = nn.Linear(width, 2)

    def forward(self, tokens: Tensor, segments: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(tokens.size(1)).unsqueeze(0).expand_as(tokens)
        x = self.words(tokens) + self.places(places) + self.segments(segments)
        x = functional.dropout(self.norm(x), 0.1)
        hidden = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, hidden)
        return self.ends(x)


def _bert(batch_size: int, precision: str, width: int, layers: int) -> Step:
    allow_tf32(precision != "fp32")
    model = _Bert(width, layers).train()
    tokens, segments = (torch.randint(n, (batch_size, 384)) for n in (30_000, 2))
    mask = torch.ones(batch_size, 384)
    starts, ends = (torch.randint(384, (batch_size,)) for _ in range(2))

    def loss_of() -> Tensor:
        start, end = model(tokens, segments, mask).split(1, dim=-1)
        wrong = functional.cross_entropy(start.squeeze(-1), starts)
        return (wrong + functional.cross_entropy(end.squeeze(-1), ends)) / 2

    if precision == "fp16":
        return _o2_step(model, loss_of, fused=True)
    update = _bert_adam(model.parameters())

    def step() -> None:
        loss_of().backward()
        update()
        model.zero_grad(set_to_none=True)

    return step


# GNMT


class _Translator(nn.Module):
    """Four recurrent layers to read, the first in both directions, four to write."""

    def __init__(self, words: int = 32320, width: int = 1024) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=0)
        self.reads = nn.ModuleList(
            nn.LSTM(into, width, bidirectional=i == 0)
            for i, into in enumerate((width, 2 * width, width, width))
        )
        self.writes = nn.ModuleList(nn.LSTM(into, width) for into in (width, *[2 * width] * 3))
        self.query, self.key = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.score, self.bias = (nn.Parameter(torch.zeros(width)) for _ in range(2))
        self.scale = nn.Parameter(torch.ones(1))
        self.words = nn.Linear(width, words)

    def read(self, tokens: Tensor) -> Tensor:
        x = functional.dropout(self.embedding(tokens), 0.2)
        x, _ = self.reads[0](x)
        x, _ = self.reads[1](functional.dropout(x, 0.2))
        for layer in self.reads[2:]:
            x = layer(functional.dropout(x, 0.2))[0] + x
        return x

    def attend(self, query: Tensor, context: Tensor) -> Tensor:
        """Bahdanau's: every query is added to every key, in a tensor of its own."""
        keys = context.transpose(0, 1)
        asked, known = self.query(query.transpose(0, 1)), self.key(keys)
        together = asked.unsqueeze(2) + known.unsqueeze(1) + self.bias
        direction = self.score / self.score.norm() * self.scale
        shares = torch.tanh(together).matmul(direction).softmax(-1)
        return torch.bmm(shares, keys).transpose(0, 1)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        context = self.read(source)
        x, _ = self.writes[0](self.embedding(target))
        attended = self.attend(x, context)
        x = functional.dropout(x, 0.2)
        x, _ = self.writes[1](torch.cat((functional.dropout(x, 0.2), attended), dim=2))
        for layer in self.writes[2:]:
            mixed = torch.cat((functional.dropout(x, 0.2), attended), dim=2)
            x = layer(mixed)[0] + x
        return self.words(x)


def _gnmt(batch_size: int, precision: str) -> Step:
    allow_tf32(precision != "fp32")
    model = _Translator().train()
    source, target = (torch.randint(32_000, (n, batch_size)) for n in TRANSLATED_TOKENS)

    def loss_of() -> Tensor:
        """Cross entropy with a tenth of smoothing, as sums of logarithms in fp32."""
        out = model(source, target).view(-1, 32320)
        logs = functional.log_softmax(out, dim=-1, dtype=torch.float32)
        right = -logs.gather(dim=-1, index=target.view(-1, 1)).squeeze(1)
        return (0.9 * right - 0.1 * logs.mean(dim=-1)).sum() / batch_size

    if precision == "fp16":
        return _o2_step(model, loss_of, fused=False)
    update = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)

    def step() -> None:
        loss_of().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        update.step()
        model.zero_grad(set_to_none=True)

    return step


# WaveGlow


class _Filter(nn.Module):
    """Eight dilated convolutions that look at the spectrogram, too."""

    def __init__(self, channels: int, spectrum: int, width: int = 512, layers: int = 8) -> None:
        super().__init__()
        normed = nn.utils.weight_norm
        self.width = width
        self.start = normed(nn.Conv1d(channels, width, 1))
        self.inside = nn.ModuleList(
            normed(nn.Conv1d(width, 2 * width, 3, dilation=2**i, padding=2**i))
            for i in range(layers)
        )
        self.conditions = nn.ModuleList(
            normed(nn.Conv1d(spectrum, 2 * width, 1)) for _ in range(layers)
        )
        self.outside = nn.ModuleList(
            normed(nn.Conv1d(width, 2 * width if i < layers - 1 else width, 1))
            for i in range(layers)
        )
        self.end = nn.Conv1d(width, 2 * channels, 1)

    def forward(self, audio: Tensor, spectrum: Tensor) -> Tensor:
        audio = self.start(audio)
        total = torch.zeros_like(audio)
        layers = zip(self.inside, self.conditions, self.outside, strict=True)
        for number, (inside, condition, outside) in enumerate(layers):
            mixed = inside(audio) + condition(spectrum)
            gated = torch.tanh(mixed[:, : self.width]) * torch.sigmoid(mixed[:, self.width :])
            out = outside(gated)
            if number < len(self.inside) - 1:
                audio = out[:, : self.width] + audio
                total = out[:, self.width :] + total
            else:
                total = out + total
        return self.end(total)


class _Flow(nn.Module):
    """Twelve invertible steps; every fourth gives two of eight channels away."""

    def __init__(self) -> None:
        super().__init__()
        self.upsample = nn.ConvTranspose1d(80, 80, 1024, stride=HOP)
        channels = [8 - 2 * (i // 4) for i in range(12)]
        self.mixes = nn.ModuleList(nn.Conv1d(c, c, 1, bias=False) for c in channels)
        self.filters = nn.ModuleList(_Filter(c // 2, 80 * 8) for c in channels)

    def forward(self, spectrum: Tensor, audio: Tensor) -> tuple[Tensor, Tensor]:
        spectrum = self.upsample(spectrum)[:, :, : audio.size(1)]
        spectrum = spectrum.unfold(2, 8, 8).permute(0, 2, 1, 3)
        spectrum = spectrum.contiguous().view(spectrum.size(0), spectrum.size(1), -1)
        spectrum = spectrum.permute(0, 2, 1)
        audio = audio.unfold(1, 8, 8).permute(0, 2, 1)
        given, scales = [], audio.new_zeros(())
        for number, (mix, filtered) in enumerate(zip(self.mixes, self.filters, strict=True)):
            if number % 4 == 0 and number > 0:
                given.append(audio[:, :2])
                audio = audio[:, 2:]
            audio = mix(audio)
            half = audio.size(1) // 2
            first, second = audio[:, :half], audio[:, half:]
            out = filtered(first, spectrum)
            second = torch.exp(out[:, half:]) * second + out[:, :half]
            audio = torch.cat([first, second], 1)
            scales = scales + out[:, half:].sum()
        given.append(audio)
        return torch.cat(given, 1), scales


def _waveglow(batch_size: int, precision: str) -> Step:
    allow_tf32(precision != "fp32")
    model = _Flow().train()
    audio = torch.randn(batch_size, SEGMENT)
    spectrum = torch.randn(batch_size, 80, SEGMENT // HOP + 1)
    update = torch.optim.Adam(model.parameters(), lr=1e-4, foreach=False)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "fp16")

    def step() -> None:
        with torch.autocast("cuda", torch.float16, enabled=precision == "fp16"):
            flowed, scales = model(spectrum, audio)
            loss = ((flowed * flowed).sum() / 2 - scales) / flowed.numel()
        scaler.scale(loss).backward()
        scaler.unscale_(update)
        nn.utils.clip_grad_norm_(model.parameters(), 65504.0)
        scaler.step(update)
        scaler.update()
        update.zero_grad(set_to_none=True)

    return step
