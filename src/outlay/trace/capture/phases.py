"""Which phase of a step an operation belongs to: forward, backward, recompute, optimizer."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch
from torch.nn.modules import module
from torch.utils import checkpoint

from outlay.trace.capture.patches import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch._ops import OpOverload

    from outlay.trace.trace import Phase


class PhaseTeller:
    """Knows what runs now, from hooks that tell it and from autograd's engine."""

    def __init__(self) -> None:
        self.in_optimizer = False
        self.optimizer_task = -1
        """The backward pass that called the optimizer from a hook, if one did."""
        self.modules_running = 0
        self.recomputing = 0
        """Whether torch's checkpoint runs a forward again: how deep."""
        self._after_backward = False

    def start_step(self) -> None:
        """Say that the next operation belongs to a new step."""
        self._after_backward = False

    def enter_optimizer(self) -> None:
        """Say that an optimizer updates from now on."""
        self.in_optimizer = True
        self.optimizer_task = torch._C._current_graph_task_id()

    def phase(self, func: OpOverload) -> Phase:
        """Backward is what autograd's engine runs; after it, whatever needs no gradient updates.

        What a module computes is forward, also without gradients (a teacher, an evaluation).
        """
        task = torch._C._current_graph_task_id()
        if task != -1:
            self._after_backward = True
            if self.in_optimizer and task == self.optimizer_task:
                return "optimizer"
            again = self.recomputing or (self.modules_running and torch.is_grad_enabled())
            return "recompute" if again else "backward"
        if self.modules_running:
            return "forward"
        if self.in_optimizer or func.name().startswith(("aten::_amp_", "aten::_fused_")):
            return "optimizer"
        if self._after_backward and not torch.is_grad_enabled():
            return "optimizer"
        return "forward"


@contextlib.contextmanager
def watched_recomputing(teller: PhaseTeller) -> Iterator[None]:
    """Tell the teller while torch's checkpoint runs a forward again."""
    patches = Patches()
    hook = getattr(checkpoint, "_recomputation_hook", None)

    def entering(original: Callable[..., object], change: int) -> Callable[..., object]:
        def call(*args: object) -> object:
            teller.recomputing += change
            return original(*args)

        return call

    if hook is not None:
        patches.set(hook, "__enter__", entering(hook.__enter__, 1))
        patches.set(hook, "__exit__", entering(hook.__exit__, -1))
    try:
        yield
    finally:
        patches.restore()


@contextlib.contextmanager
def watched_modules(
    teller: PhaseTeller, see_input: Callable[[tuple[object, ...]], None] | None = None
) -> Iterator[None]:
    """Tell the teller while a module computes, and what modules are given, where asked for."""

    def before(_: object, inputs: tuple[object, ...]) -> None:
        teller.modules_running += 1
        if see_input is not None:
            see_input(inputs)

    def after(*_: object) -> None:
        teller.modules_running -= 1

    handles = [
        module.register_module_forward_pre_hook(before),
        module.register_module_forward_hook(after, always_call=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
