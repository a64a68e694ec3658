"""Steps whose shapes depend on values. See test_selection.py."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

Step = Callable[[], object]
N = 64


def _layer() -> nn.Linear:
    return nn.Linear(N, N, bias=False)


def _backward(loss: Callable[[], torch.Tensor]) -> Step:
    return lambda: loss().backward()


def nonzero(batch_size: int) -> Step:
    """Rows whose sum is above zero."""
    model, x = _layer(), torch.randn(batch_size, 10, N)

    def loss() -> torch.Tensor:
        rows = x.view(-1, N)
        return model(rows[(rows.sum(1) > 0).nonzero().squeeze(1)]).sum()

    return _backward(loss)


def masked(batch_size: int) -> Step:
    """Indexing with a mask."""
    model, x = _layer(), torch.randn(batch_size, 10, N)
    return _backward(lambda: model(x[x.sum(-1) > 0]).sum())


def masked_select(batch_size: int) -> Step:
    """Single elements."""
    model, x = _layer(), torch.randn(batch_size, N)
    return _backward(lambda: model(x).masked_select(x > 0).sum())


def where(batch_size: int) -> Step:
    """torch.where of a condition alone."""
    model, x = _layer(), torch.randn(batch_size, 10, N)

    def loss() -> torch.Tensor:
        sample, place = torch.where(x.sum(-1) > 0)
        return model(x[sample, place]).sum()

    return _backward(loss)


def masked_language(batch_size: int) -> Step:
    """A mask of 15 %, drawn in the step."""
    model, x = _layer(), torch.randn(batch_size, 100, N)
    return _backward(lambda: model(x[torch.rand(batch_size, 100, device="cuda") < 0.15]).sum())


def off_diagonal(batch_size: int) -> Step:
    """Every pair of different samples: the mask is made of constants."""
    model, x = _layer(), torch.randn(batch_size, N)

    def loss() -> torch.Tensor:
        z = model(x)
        similar = z @ z.T
        others = ~torch.eye(batch_size, dtype=torch.bool, device="cuda")
        return similar[others].view(batch_size, batch_size - 1).logsumexp(1).sum()

    return _backward(loss)


def uniques(batch_size: int) -> Step:
    """Different ones among ten kinds."""
    table, ids = nn.Embedding(10, N), torch.randint(10, (batch_size, 100))
    return _backward(lambda: table(ids.unique()).sum())


def repeated(batch_size: int) -> Step:
    """Rows as often as a tensor of known lengths says."""
    model, x = _layer(), torch.randn(batch_size, N)
    lengths = torch.arange(1, batch_size + 1)
    return _backward(lambda: model(x).repeat_interleave(lengths, 0).sum())


def counted(batch_size: int) -> Step:
    """bincount, read as a list of sizes to split by."""
    model, x = _layer(), torch.randn(batch_size, 10, N)
    kinds = torch.randint(4, (batch_size * 10,))

    def loss() -> torch.Tensor:
        sizes = torch.bincount(kinds, minlength=4).tolist()
        parts = x.view(-1, N).split(sizes)
        return sum(model(part).sum() for part in parts)

    return _backward(loss)


def top_by_value(batch_size: int) -> Step:
    """As many of the largest as a mask has."""
    model, x = _layer(), torch.randn(batch_size, 100)
    chances = torch.rand(batch_size, 100)

    def loss() -> torch.Tensor:
        k = int((chances < 0.25).sum())
        best = x.flatten().topk(k).values
        return model(best[: k // N * N].view(-1, N)).sum()

    return _backward(loss)


def experts(batch_size: int) -> Step:
    """Two of eight experts a token, in a loop over lists of tokens."""
    router = nn.Linear(N, 8, bias=False)
    layers = nn.ModuleList(_layer() for _ in range(8))
    x = torch.randn(batch_size * 16, N)

    def loss() -> torch.Tensor:
        weights, chosen = router(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for expert, layer in enumerate(layers):
            token, choice = torch.where(chosen == expert)
            out.index_add_(0, token, layer(x[token]) * weights[token, choice, None])
        return out.sum()

    return _backward(loss)


def experts_one_hot(batch_size: int) -> Step:
    """The same by one-hot masks."""
    router = nn.Linear(N, 8, bias=False)
    layers = nn.ModuleList(_layer() for _ in range(8))
    x = torch.randn(batch_size * 16, N)

    def loss() -> torch.Tensor:
        weights, chosen = router(x).softmax(-1).topk(2, dim=-1)
        mask = F.one_hot(chosen, 8).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for expert, layer in enumerate(layers):
            choice, token = mask[expert].nonzero(as_tuple=True)
            out.index_add_(0, token, layer(x[token]) * weights[token, choice, None])
        return out.sum()

    return _backward(loss)


def ctc(batch_size: int) -> Step:
    """CTC loss of 50 positions with 10 labels."""
    scores = torch.randn(50, batch_size, 20, requires_grad=True)
    targets = torch.randint(1, 20, (batch_size, 10))

    def loss() -> torch.Tensor:
        lengths = torch.full((batch_size,), 50), torch.full((batch_size,), 10)
        return F.ctc_loss(scores.log_softmax(-1), targets.cuda(), *lengths)

    return _backward(loss)


def ctc_lists(batch_size: int) -> Step:
    """The same with lengths in lists and targets on the host."""
    scores = torch.randn(50, batch_size, 20, requires_grad=True)
    with torch.device("cpu"):
        targets = torch.randint(1, 20, (batch_size, 10))
    return _backward(
        lambda: F.ctc_loss(scores.log_softmax(-1), targets, [50] * batch_size, [10] * batch_size)
    )


def choices_on_the_host(batch_size: int) -> Step:
    """Random numbers and questions on the host."""
    model, x = _layer(), torch.randn(batch_size, N)

    def loss() -> torch.Tensor:
        shift = torch.randint(0, N, ()).item()
        scale = 2 if torch.rand(()) < 0.1 else 1
        return model(x.roll(int(shift), 1) * scale).sum()

    return _backward(loss)
