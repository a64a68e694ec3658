"""How a step is spread over GPUs: data, sharded, tensor and pipeline parallel, and their product.

data      every group of GPUs has its own samples; gradients are summed over all groups
sharding  groups share what they would each hold: optimizer state (ZeRO-1), gradients too
          (ZeRO-2), parameters too (ZeRO-3, FSDP); over all groups or over those of a machine
tensor    the matrices of each block are cut over GPUs that work on the same samples
pipeline  blocks are dealt out in stages; samples pass through in micro-batches
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from outlay.errors import InputError

Sharding = Literal["none", "zero1", "zero2", "zero3"]
SHARDINGS: tuple[Sharding, ...] = ("none", "zero1", "zero2", "zero3")
_NAMES = {"none": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "FSDP"}
_WORDS: dict[str, Sharding] = {
    "ddp": "none",
    "zero1": "zero1",
    "zero2": "zero2",
    "zero3": "zero3",
    "fsdp": "zero3",
}
_PART = re.compile(r"(?P<word>[a-z]+)\s*[=:]?\s*(?P<count>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How a step is spread over `gpus` GPUs."""

    data: int = 1
    """Groups that have samples of their own."""
    sharding: Sharding = "none"
    within_node: bool = False
    """Whether shards are spread over the groups of one machine only (hybrid sharding)."""
    tensor: int = 1
    pipeline: int = 1

    @property
    def gpus(self) -> int:
        """All GPUs it takes."""
        return self.data * self.tensor * self.pipeline

    @property
    def name(self) -> str:
        """As people call it: `DDP`, `FSDP`, `FSDP x tensor 8`."""
        parts = [self._data_name] if self.data > 1 else []
        parts += [f"tensor {self.tensor}"] if self.tensor > 1 else []
        parts += [f"pipeline {self.pipeline}"] if self.pipeline > 1 else []
        return " x ".join(parts) or "one GPU"

    @property
    def _data_name(self) -> str:
        shape = f"{_NAMES[self.sharding]}{' in each machine' if self.within_node else ''}"
        return shape if self.tensor == self.pipeline == 1 else f"{shape} {self.data}"


ONE_GPU = Strategy()


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRequest:
    """What a user asks for: parts left open are chosen."""

    sharding: Sharding | None = None
    within_node: bool | None = None
    tensor: int | None = None
    pipeline: int | None = None

    def allows(self, strategy: Strategy) -> bool:
        """Whether a strategy is one of those asked for."""
        return (
            (self.sharding is None or strategy.data == 1 or strategy.sharding == self.sharding)
            and (self.within_node is None or strategy.within_node == self.within_node)
            and (self.tensor is None or strategy.tensor == self.tensor)
            and (self.pipeline is None or strategy.pipeline == self.pipeline)
        )


ANY_STRATEGY = StrategyRequest()


def parse_strategy(text: str) -> StrategyRequest:
    """The strategies a text asks for: `auto`, `ddp`, `fsdp`, `zero2`, `fsdp,tensor=8`, `hybrid`."""
    if text.strip().lower() in ("", "auto"):
        return ANY_STRATEGY
    sharding: Sharding | None = None
    within_node = False
    counts = {"tensor": 1, "pipeline": 1}
    for word in re.split(r"[,+\s]+(?![=:]|\d)", text.strip().lower().replace("zero-", "zero")):
        part = _PART.fullmatch(word)
        if word in _WORDS:
            sharding = _WORDS[word]
        elif word in ("hybrid", "hsdp"):
            sharding, within_node = "zero3", True
        elif part is not None and _axis(part["word"]) and int(part["count"]) > 0:
            counts[_axis(part["word"])] = int(part["count"])
        else:
            raise InputError(
                f"{text!r} is no strategy: {word!r} is not known.",
                fix="Write auto, ddp, zero1, zero2, fsdp, hybrid, and tensor=8 or pipeline=4, "
                "joined by commas.",
            )
    return StrategyRequest(sharding=sharding, within_node=within_node, **counts)


def _axis(word: str) -> str:
    return {"tensor": "tensor", "tp": "tensor", "pipeline": "pipeline", "pp": "pipeline"}.get(
        word, ""
    )


def possible_strategies(
    gpus: int, nodes: int, *, blocks: int, heads: int | None, tensor: bool = True
) -> list[Strategy]:
    """Every strategy for `nodes` machines with `gpus` GPUs each.

    Tensor parallel stays within a machine and divides the heads of attention; a pipeline has no
    more stages than there are blocks.
    """
    total = gpus * nodes
    strategies = []
    for parts in _divisors(gpus) if tensor and heads else [1]:
        if heads is not None and heads % parts:
            continue
        for stages in _divisors(total // parts):
            if stages > max(blocks, 1):
                continue
            plain = Strategy(data=total // (parts * stages), tensor=parts, pipeline=stages)
            strategies.append(plain)
            if plain.data > 1:
                strategies += _sharded(plain)
                if nodes > 1 and parts * stages < gpus and gpus % (parts * stages) == 0:
                    strategies.append(replace(plain, sharding="zero3", within_node=True))
    return strategies


def _sharded(plain: Strategy) -> list[Strategy]:
    """The sharded ones; with a pipeline only state, as parameters pass with every micro-batch."""
    kinds: tuple[Sharding, ...] = ("zero1",) if plain.pipeline > 1 else ("zero1", "zero2", "zero3")
    return [replace(plain, sharding=kind) for kind in kinds]


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]
