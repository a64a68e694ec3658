"""Small language models at any length and depth, traced in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

LAYERS, FEW = 4, 3
WIDTH, HEADS, VOCABULARY = 64, 4, 100
WINDOW = 256
LENGTHS = (64, 1024)


class Block(nn.Module):
    """Attention with a norm before."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        if rank:
            self.requires_grad_(False)
            self.first = nn.Linear(WIDTH, rank, bias=False)
            self.second = nn.Linear(rank, WIDTH, bias=False)
        self.rank = rank

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return x + self.proj(attended.flatten(2)) + (self.second(self.first(x)) if self.rank else 0)


class Model(nn.Module):
    """Words, blocks and scores; some put a mask in from a length on, some keep all layers."""

    def __init__(self, layers: int, rank: int, kind: str) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        if rank:
            self.words.requires_grad_(False)
        self.blocks = nn.ModuleList(Block(rank) for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.kind = kind

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        if self.kind == "windowed" and ids.shape[1] >= WINDOW:
            x = x * torch.ones(ids.shape[1], 1, dtype=x.dtype)
        kept = []
        for block in self.blocks:
            x = block(x)
            kept.append(x)
        if self.kind == "stacked":
            x = torch.cat(kept, -1).sum(-1, keepdim=True) + x
        return self.head(x)


def _built(layers: int, rank: int, kind: str, length: int, batch_size: int) -> Callable[[], None]:
    model = Model(layers, rank, kind).to(torch.bfloat16)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    ids = torch.randint(VOCABULARY, (batch_size, length))

    def step() -> None:
        F.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten()).backward()
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


def at_any_length(kind: str, length: int) -> dict[str, Any]:
    """The pieces of a step from few layers, and the profile of the whole at one length."""
    from outlay.errors import TraceFailed
    from outlay.trace import batch_scaling, length_profile
    from outlay.trace.capture import capture_steps
    from outlay.trace.child import import_torch
    from outlay.trace.length_scaling import length_profiles
    from outlay.trace.store import length_profile_to_json, profile_to_json

    import_torch()
    batch_scaling.ALLOCATOR_GRID = (1, 4)  # the rest would be simulated to no use
    length_profile.SHARE_GRID = (1, 4)
    rank = 4 if kind == "adapters" else 0

    def capture(layers: int, batch_size: int, length: int):
        return capture_steps(partial(_built, layers, rank, kind, length), batch_size)

    words = {"name": "small", "description": "", "sample": "{length} tokens"}
    try:
        pieces = length_profiles(
            partial(capture, LAYERS),
            LENGTHS,
            trace_few=partial(capture, FEW),
            hints=(WINDOW, WIDTH),
            **words,
        )
    except TraceFailed as error:
        return {"error": type(error).__name__, "what": str(error)}
    captures = [capture(LAYERS, batch_size, length) for batch_size in (8, 32)]
    direct = batch_scaling.profile_of_captures(captures, **{**words, "sample": f"{length} tokens"})
    return {
        "pieces": [length_profile_to_json(piece) for piece in pieces],
        "direct": profile_to_json(direct),
    }
