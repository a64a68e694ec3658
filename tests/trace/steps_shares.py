"""Steps that route, match, pad and ask by values. See test_shares.py."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

Step = Callable[[], object]
N = 64
EXPERTS = 8
TOKENS = 16
MANY_TOKENS = 2**15
ANCHORS = 400


def _layer() -> nn.Linear:
    return nn.Linear(N, N, bias=False)


def _backward(loss: Callable[[], Tensor]) -> Step:
    return lambda: loss().backward()


def _trained(model: nn.Module, loss: Callable[[], Tensor]) -> Step:
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# Mixtures of experts: two of eight for each of 16 tokens a sample


class _Routed(nn.Module):
    def __init__(self, batch_size: int, tokens: int = TOKENS) -> None:
        super().__init__()
        self.router = nn.Linear(N, EXPERTS, bias=False)
        self.experts = nn.ModuleList(_layer() for _ in range(EXPERTS))
        self.x = torch.randn(batch_size * tokens, N)

    def chosen(self) -> tuple[Tensor, Tensor]:
        weights, chosen = self.router(self.x).softmax(-1).topk(2, dim=-1)
        return weights, chosen


def experts_if_any(batch_size: int, tokens: int = TOKENS) -> Step:
    """A mask for each expert, and a question whether it has any tokens."""
    model = _Routed(batch_size, tokens)

    def loss() -> Tensor:
        weights, chosen = model.chosen()
        out = torch.zeros_like(model.x)
        for number, expert in enumerate(model.experts):
            mask = (chosen == number).any(-1)
            if not mask.any():
                continue
            out[mask] += expert(model.x[mask]) * weights[mask].sum(-1, keepdim=True)
        return out.sum()

    return _trained(model, loss)


def experts_of_many_tokens(batch_size: int) -> Step:
    """The same where nobody goes through the single choices."""
    return experts_if_any(batch_size, MANY_TOKENS)


def experts_hit(batch_size: int) -> Step:
    """Those that were hit at all, by a one-hot mask."""
    model = _Routed(batch_size)

    def loss() -> Tensor:
        weights, chosen = model.chosen()
        mask = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        out = torch.zeros_like(model.x)
        for number in torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero():
            choice, token = torch.where(mask[number].squeeze(0))
            kept = model.experts[number](model.x[token]) * weights[token, choice, None]
            out.index_add_(0, token, kept)
        return out.sum()

    return _trained(model, loss)


def experts_sorted(batch_size: int) -> Step:
    """Tokens sorted by expert, and read-back ends of each one's part."""
    model = _Routed(batch_size)

    def loss() -> Tensor:
        _, chosen = model.chosen()
        order = chosen.view(-1).argsort()
        ends = chosen.view(-1).bincount(minlength=EXPERTS).cpu().numpy().cumsum(0)
        out = torch.zeros_like(model.x)
        for number, end in enumerate(ends):
            start = ends[number - 1] if number else 0
            if start == end:
                continue
            token = order[start:end] // 2
            out.scatter_add_(0, token[:, None].expand(-1, N), model.experts[number](model.x[token]))
        return out.sum()

    return _trained(model, loss)


def experts_counted(batch_size: int) -> Step:
    """Counts of ones scattered at the choices, read as a list."""
    model = _Routed(batch_size)

    def loss() -> Tensor:
        _, chosen = model.chosen()
        hits = chosen.new_zeros((chosen.shape[0], EXPERTS))
        hits.scatter_(1, chosen, 1)
        order = chosen.view(-1).argsort()
        parts = model.x[order // 2].split(hits.sum(dim=0).tolist())
        return sum(expert(part).sum() for expert, part in zip(model.experts, parts, strict=True))

    return _trained(model, loss)


def experts_padded(batch_size: int) -> Step:
    """Every expert's part padded to the longest, as one batched product."""
    model = _Routed(batch_size)
    stacked = nn.Parameter(torch.randn(EXPERTS, N, N))

    def loss() -> Tensor:
        _, chosen = model.chosen()
        counts = torch.bincount(chosen.flatten(), minlength=EXPERTS)
        room = torch.zeros(EXPERTS, int(counts.max()), N, device="cuda")
        return (room @ stacked).sum() + model.router.weight.sum()

    return _trained(model, loss)


def experts_by_number(batch_size: int) -> Step:
    """Each number that occurs, read as a list."""
    model = _Routed(batch_size)

    def loss() -> Tensor:
        _, chosen = model.chosen()
        return sum(
            model.experts[number](model.x[(chosen == number).any(-1)]).sum()
            for number in chosen.unique().tolist()
        )

    return _trained(model, loss)


# Detection


def _assigned(predicted: Tensor, head: nn.Module, targets: Tensor, batch_size: int) -> Tensor:
    """The loss of a detector with task-aligned matching: ten candidates for each box."""
    image = targets[:, 0]
    _, counts = image.unique(return_counts=True)
    boxes = torch.zeros(batch_size, counts.to(torch.int32).max(), 5, device="cuda")
    for number in range(batch_size):
        matches = image == number
        if n := matches.sum():
            boxes[number, :n] = targets[matches, 1:]
    if boxes.shape[1] == 0:
        return predicted.sum() * 0
    there = boxes.sum(2, keepdim=True).gt_(0.0)
    inside = (boxes[:, :, None, :4] - predicted[:, None, :, :4]).amin(3).gt_(1e-9)
    scores = (boxes[:, :, None] * predicted[:, None, :, :5]).sum(-1) * inside
    _, best = scores.topk(10, dim=-1)
    hits = torch.zeros(scores.shape, dtype=torch.int8, device="cuda")
    ones = torch.ones_like(best[:, :, :1], dtype=torch.int8)
    for k in range(10):
        hits.scatter_add_(-1, best[:, :, k : k + 1], ones)
    hits.masked_fill_(hits > 1, 0)
    positive = hits.to(scores.dtype) * inside * there
    foreground = positive.sum(-2)
    if foreground.max() > 1:
        several = (foreground[:, None] > 1).expand_as(positive)
        nearest = torch.zeros_like(positive)
        nearest.scatter_(1, scores.argmax(1)[:, None], 1)
        positive = torch.where(several, nearest, positive)
        foreground = positive.sum(-2)
    loss = predicted.sigmoid().sum()
    if foreground.sum():
        loss = loss + head(predicted[foreground.bool()]).sum()
    return loss


def _detector(batch_size: int, image: Tensor) -> Step:
    head, features = _layer(), torch.randn(batch_size, ANCHORS, N, requires_grad=True)
    targets = torch.cat([image.view(-1, 1), torch.rand(image.numel(), 5)], 1)
    return _backward(lambda: _assigned(features, head, targets, batch_size))


def assigner(batch_size: int) -> Step:
    """Three boxes in each image, as a loader numbers them."""
    return _detector(batch_size, torch.arange(batch_size).repeat_interleave(3).float())


def assigner_drawn(batch_size: int) -> Step:
    """As many in images drawn at random."""
    return _detector(batch_size, torch.randint(0, batch_size, (3 * batch_size,)).float())


def assigner_unknown(batch_size: int) -> Step:
    """The same in images only the data could tell."""
    return _detector(batch_size, torch.randn(3 * batch_size))


def dynamic_candidates(batch_size: int) -> Step:
    """As many candidates a box as its overlaps sum up to, one at least."""
    head, features = _layer(), torch.randn(batch_size, ANCHORS, N, requires_grad=True)

    def loss() -> Tensor:
        total = features.sum() * 0
        for sample in features:
            overlaps = sample[:, :4].T.sigmoid()
            wanted = overlaps.topk(10, dim=1).values.sum(1).int().clamp(min=1)
            matching = torch.zeros_like(overlaps, dtype=torch.uint8)
            for box in range(4):
                _, place = torch.topk(overlaps[box], k=wanted[box].item())
                matching[box][place] = 1
            kept = matching.sum(0) > 0
            total = total + head(sample[kept]).sum()
        return total

    return _backward(loss)


def matched_by_overlap(batch_size: int) -> Step:
    """Anchors over a threshold are matched, those under one are background, others neither."""
    head, anchors = _layer(), torch.randn(batch_size, 20, N, requires_grad=True)
    other = _layer()

    def loss() -> Tensor:
        overlap, match = anchors.view(-1, N)[:, :3].max(1)
        below, between = overlap < 0.3, (overlap >= 0.3) & (overlap < 0.7)
        match[below] = -1
        match[between] = -2
        valid = anchors.view(-1, N)[:, 0] > 0
        valid &= ~below
        found, background = torch.where(match >= 0)[0], torch.where(match == -1)[0]
        flat = anchors.view(-1, N)
        return head(flat[found]).sum() + other(flat[background]).sum() + head(flat[valid]).sum()

    return _backward(loss)


def labelled_places(batch_size: int) -> Step:
    """A head over the places whose label is no background; without any, a loss of zero."""
    head, features = _layer(), torch.randn(batch_size, 20, N, requires_grad=True)
    labels = torch.randn(batch_size, 20).long()

    def loss() -> Tensor:
        flat = labels.view(-1)
        positive = ((flat >= 0) & (flat < 80)).nonzero().squeeze(1)
        if positive.numel() > 0:
            return head(features.view(-1, N)[positive]).sum()
        return features.sum() * 0

    return _backward(loss)


def matched_on_the_host(batch_size: int) -> Step:
    """Costs read as an array, a match for each of five targets made there."""
    head, queries = _layer(), torch.randn(batch_size, 20, N, requires_grad=True)
    targets = torch.randn(batch_size, 5, N)

    def loss() -> Tensor:
        costs = torch.cdist(queries, targets).cpu().numpy()
        rows = torch.as_tensor(costs.argsort(axis=1)[:, :5].max(-1), device="cuda")
        return head(queries.gather(1, rows[..., None].expand(-1, -1, N))).sum()

    return _backward(loss)


def skips_images_without_boxes(batch_size: int) -> Step:
    """Boxes above a threshold of each image, if there are any."""
    head, boxes = _layer(), torch.randn(batch_size, 20, N, requires_grad=True)

    def loss() -> Tensor:
        total = boxes.sum() * 0
        for found in boxes:
            kept = found[found[:, 0] > 0.7]
            if len(kept) == 0:
                continue
            total = total + head(kept).sum()
        return total

    return _backward(loss)


# Language


def masked_labels(batch_size: int) -> Step:
    """Labels other than -100, where 15 % were drawn."""
    head, hidden = _layer(), torch.randn(batch_size, 100, N, requires_grad=True)
    ids = torch.randint(5, 1000, (batch_size, 100))

    def loss() -> Tensor:
        drawn = torch.rand(batch_size, 100, device="cuda") < 0.15
        labels = ids.clone()
        labels[~drawn] = -100
        return head(hidden[labels != -100]).sum()

    return _backward(loss)


def masked_labels_of_a_long_batch(batch_size: int) -> Step:
    """The same where nobody goes through the single elements."""
    head, hidden = _layer(), torch.randn(batch_size, 50_000, N, requires_grad=True)
    ids = torch.randint(5, 1000, (batch_size, 50_000))

    def loss() -> Tensor:
        drawn = torch.rand(batch_size, 50_000, device="cuda") < 0.15
        labels = torch.where(drawn, ids, -100)
        return head(hidden[labels != -100]).sum()

    return _backward(loss)


def padded_to_the_longest(batch_size: int) -> Step:
    """Lengths by a mask that only the data could tell."""
    model, x = _layer(), torch.randn(batch_size, 40, N)
    padding = torch.randn(batch_size, 40) > 0

    def loss() -> Tensor:
        return model(x[:, : padding.sum(1).max()]).sum()

    return _backward(loss)


def padded_to_drawn_lengths(batch_size: int) -> Step:
    """Lengths from 1 to 40."""
    model, x = _layer(), torch.randn(batch_size, 40, N)
    lengths = torch.randint(1, 41, (batch_size,))
    return _backward(lambda: model(x[:, : int(lengths.max())]).sum())


def packed(batch_size: int) -> Step:
    """Documents of drawn lengths one after the other, cut at read-back ends."""
    model, x = _layer(), torch.randn(batch_size * 40, N)
    lengths = torch.randint(1, 41, (batch_size,))

    def loss() -> Tensor:
        ends = F.pad(lengths.cumsum(0), (1, 0)).tolist()
        return sum(model(x[a:b]).sum() for a, b in pairwise(ends))

    return _backward(loss)


def packed_for_a_recurrent_layer(batch_size: int) -> Step:
    """Sequences as long as an unknown mask says."""
    layer, x = nn.LSTM(N, N, batch_first=True), torch.randn(batch_size, 40, N)
    padding = torch.randn(batch_size, 40) > 0

    def loss() -> Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            x, padding.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        return layer(packed)[0].data.sum()

    return _backward(loss)


# Questions and loops


def turns(batch_size: int) -> Step:
    """A loop until all are done."""
    model, x = _layer(), torch.randn(batch_size, N)

    def loss() -> Tensor:
        y = x
        done = torch.zeros(batch_size, dtype=torch.bool, device="cuda")
        while not done.all():
            y = model(y)
            done = done | (y.sum(1) > 3)
        return y.sum()

    return _backward(loss)


def turns_by_number(batch_size: int) -> Step:
    """A loop until an error is small, read as a number."""
    model, x = _layer(), torch.randn(batch_size, N)

    def loss() -> Tensor:
        y, error = x, torch.ones((), device="cuda") * x.sum()
        while error.item() > 1e-4:
            z = model(y)
            error, y = (z - y).norm(), z
        return y.sum()

    return _backward(loss)


def turns_without_a_test(batch_size: int) -> Step:
    """A loop that only a question within it ends."""
    model, x = _layer(), torch.randn(batch_size, N)

    def loss() -> Tensor:
        y = x
        while True:
            y = model(y)
            if (y.abs().max() < 0.1) or (y > 0).all():
                break
        return y.sum()

    return _backward(loss)


def drawn_within_bounds(batch_size: int) -> Step:
    """Noise of a truncated distribution: torch draws it anew until none is out of bounds."""
    model, noise = _layer(), torch.empty(batch_size, N)

    def loss() -> Tensor:
        return model(nn.init.trunc_normal_(noise, std=0.02)).sum()

    return _backward(loss)


def early_exit(batch_size: int) -> Step:
    """Six layers, of which the last are left out once all are sure."""
    layers, x = nn.ModuleList(_layer() for _ in range(6)), torch.randn(batch_size, N)

    def loss() -> Tensor:
        y = x
        for layer in layers:
            y = layer(y)
            if (y.amax(1) > 0.9).all():
                break
        return y.sum()

    return _backward(loss)


def checked(batch_size: int) -> Step:
    """Checks of the data that raise."""
    model, x = _layer(), torch.randn(batch_size, N)
    labels = torch.randn(batch_size).long()

    def loss() -> Tensor:
        if (labels < 0).any() or (labels >= 10).any():
            raise ValueError("labels out of range")
        if not (x[:, 0] <= x[:, 1]).all():
            raise ValueError("boxes upside down")
        assert (x > 0).all(), "not positive"
        assert not (x == 3).any()
        return model(x).sum()

    return _backward(loss)


def work_behind_a_question(batch_size: int) -> Step:
    """More work where a number is large."""
    model, x = _layer(), torch.randn(batch_size, N)

    def loss() -> Tensor:
        y = model(x)
        if y.norm() > 3:
            y = model(y)
        return y.sum()

    return _backward(loss)


def work_behind_a_number(batch_size: int) -> Step:
    """The same with the number read first, and a check of another."""
    model, x = _layer(), torch.randn(batch_size, N)

    def loss() -> Tensor:
        y = model(x)
        if y.norm().item() > 0:
            y = model(y)
        if float(y.abs().max()) > 0.5:
            raise FloatingPointError("too large")
        return y.sum()

    return _backward(loss)
