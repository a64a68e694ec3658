"""What of a step matters for spreading it over GPUs, watched while it is recorded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from torch import Tensor, nn

from outlay.trace.capture.blocks import blocks_of, first_tensor, living_models, parameters_of


@dataclass(slots=True, kw_only=True)
class Watched:
    """Gradients as they were finished, and the blocks that ran."""

    gradients: list[tuple[int, int]] = field(default_factory=list)
    """Of each gradient in order: how many operations were recorded before, and its bytes."""
    outputs: dict[int, tuple[nn.Module, Tensor]] = field(default_factory=dict)
    """The last output of each block that ran."""

    def blocks(self) -> dict[tuple[str, int, int], list[int]]:
        """Output bytes of every block, by class, parameters and width."""
        found: dict[tuple[str, int, int], list[int]] = {}
        for block, out in self.outputs.values():
            key = type(block).__name__, parameters_of(block), out.shape[-1] if out.dim() else 1
            found.setdefault(key, []).append(out.numel() * out.element_size())
        return found


@contextlib.contextmanager
def watching(parameters: Iterable[Tensor], recorded: Callable[[], int]) -> Iterator[Watched]:
    """Watch a step; `recorded` tells how many operations were recorded so far."""
    watched = Watched()

    def finished(parameter: Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None:
            size = gradient.numel() * gradient.element_size()
            watched.gradients.append((recorded(), size))

    def ran(block: nn.Module, _args: object, out: object) -> None:
        tensor = first_tensor(out)
        if tensor is not None:
            watched.outputs.setdefault(id(block), (block, tensor.detach().to("meta")))

    trained = [p for p in parameters if p.requires_grad and p.is_leaf]
    handles = [p.register_post_accumulate_grad_hook(finished) for p in trained]
    for model in living_models():
        handles += [block.register_forward_hook(ran) for block in blocks_of(model)]
    try:
        yield watched
    finally:
        for handle in handles:
            handle.remove()
