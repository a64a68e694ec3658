"""The batch size of a training process, where no DataLoader tells it: what a module is given."""

from __future__ import annotations

from typing import Any

BATCH_LOOKED_FOR = 4
"""Steps at the beginning after each of which modules are asked; later, now and then."""


class BatchLook:
    """Asks the next module that gets a tensor; again and again, since batches may grow."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._hook: Any = None

    def forget(self) -> None:
        """Ask no module any more."""
        if self._hook is not None:
            self._hook.remove()
        self._hook = None

    def look(self) -> None:
        """Ask the next module, once a step has returned."""
        self.forget()
        if self._watch.steps != BATCH_LOOKED_FOR and self._may_hook_modules():
            modules = self._watch.torch.nn.modules.module
            self._hook = modules.register_module_forward_pre_hook(self._see_input)

    def _may_hook_modules(self) -> bool:
        """Not where a DataLoader tells, and not where modules were compiled."""
        from .ending import compiled_frames

        return not self._watch.since.batches and not compiled_frames()

    def _see_input(self, module: Any, inputs: Any) -> None:
        torch = self._watch.torch
        first = inputs[0] if inputs else None
        if isinstance(first, torch.Tensor) and first.dim() and torch.is_grad_enabled():
            self.forget()
            samples = int(first.shape[1 if self._is_sequence_first(module, first) else 0])
            told = {"samples": samples, "module": type(module).__name__}
            self._watch.channel.tell_values("batch", told)

    def _is_sequence_first(self, module: Any, first: Any) -> bool:
        """Whether a recurrent network within takes time steps first, and samples second."""
        recurrent = self._watch.torch.nn.RNNBase
        within = (one for one in module.modules() if isinstance(one, recurrent))
        return first.dim() == 3 and any(not one.batch_first for one in within)
