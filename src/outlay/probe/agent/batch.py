"""What modules are given in a step, where no DataLoader tells it or where a batch is cut up.

Asked in whole steps at the beginning, and later in one now and then. The first input after each
backward pass is what the next pass is made of: one that was there before (SAM, a closure that is
called again) or none at all (several losses of one forward pass) is no new batch.
"""

from __future__ import annotations

import importlib
from typing import Any

from .channel import complain

BATCH_LOOKED_FOR = 4
"""Steps at the beginning after each of which modules are asked; later, now and then."""


class BatchLook:
    """Looks at all batches of the next step; again and again, since batches may grow."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._hook: Any = None
        self.last: dict[str, Any] = {}
        """What was told last."""

    @property
    def is_on(self) -> bool:
        """Whether modules are asked just now."""
        return self._hook is not None

    def forget(self) -> None:
        """Ask no module any more."""
        if self._hook is not None:
            self._hook.remove()
        self._hook = None

    def look(self) -> None:
        """Ask modules until the next step, once one has returned."""
        if self._hook is None and self._may_hook_modules():
            self._begin()
            reductions = importlib.import_module("torch.multiprocessing.reductions")
            self._reference = reductions.StorageWeakRef
            modules = self._watch.torch.nn.modules.module
            self._hook = modules.register_module_forward_pre_hook(self._see_input)

    def _begin(self) -> None:
        self._pass = -1
        self._inputs: set[Any] = set()
        self._rows: list[int] = []
        """Of each batch, in order."""
        self._inner: tuple[int, str] | None = None
        """The rows of an input that was computed with gradients, and who got it."""
        self._module = ""
        self._shape: tuple[int, ...] = ()
        """Of the last batch, until it is known where its samples are."""

    def _may_hook_modules(self) -> bool:
        """Not where DataLoaders tell everything, and not where modules were compiled."""
        from .shutdown import compiled_frames

        since = self._watch.since
        return (not since.batches or since.passes > since.batches) and not compiled_frames()

    def step_ended(self) -> None:
        """Tell what was seen; go on where that was nothing, or where steps were left out."""
        since = self._watch.since
        if not self._rows and self._inner is not None:
            self._rows, self._module = [self._inner[0]], self._inner[1]
        if not self._rows or since.skipped:
            self._begin()
            return
        self.forget()
        self.last = {
            "samples": self._rows[0],
            "module": self._module,
            "step": self._watch.steps,
            "inputs": len(self._rows),
            "rows": sum(self._rows),
            "passes": since.passes,
            "batches": since.batches,
            "loaded": since.samples,
        }
        self._watch.channel.tell_values("batch", self.last)

    def _see_input(self, module: Any, inputs: Any) -> None:
        watch = self._watch
        if watch.backward.is_running:  # to recompute
            return
        first = inputs[0] if inputs else None
        try:
            if watch.since.passes != self._pass and self._is_input(first):
                self._take(module, first)
            if self._shape and self._takes_positions_first(module):
                self._correct(first)
        except Exception as error:
            complain(error)

    def _is_input(self, value: Any) -> bool:
        torch = self._watch.torch
        return isinstance(value, torch.Tensor) and value.dim() > 0 and torch.is_grad_enabled()

    def _take(self, module: Any, first: Any) -> None:
        shape, name = tuple(map(int, first.shape)), type(module).__name__
        if first.grad_fn is not None:  # what another module made, mostly
            is_second = len(shape) == 3 and self._takes_positions_first(module)
            self._inner = self._inner or (shape[is_second], name)
            return
        self._pass, self._shape = self._watch.since.passes, ()
        key = self._key(first)
        if key not in self._inputs:
            self._inputs.add(key)
            self._rows.append(shape[0])
            self._shape = shape
            self._module = self._module or name

    def _key(self, tensor: Any) -> Any:
        """The same for the same values: of one storage, in one place, not written to since.

        The reference is weak: it keeps no memory, but the storage's own address from being reused.
        """
        try:
            storage = self._reference(tensor.untyped_storage())
            place = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
            return storage, place, tensor._version
        except Exception:  # no storage of its own, or no count of what was written
            return object()

    def _takes_positions_first(self, module: Any) -> bool:
        nn = self._watch.torch.nn
        is_sequential = isinstance(module, (nn.RNNBase, nn.MultiheadAttention))
        return is_sequential and not module.batch_first

    def _correct(self, given: Any) -> None:
        """Take the second dimension of the input, where the layer it gets to has samples there.

        An input of (positions, samples) does not tell by itself: some models turn it round.
        """
        if isinstance(given, self._watch.torch.Tensor):
            samples = int(given.shape[1]) if given.dim() == 3 else 0
        else:  # packed
            samples = int(given.batch_sizes[0])
        if samples and samples != self._shape[0] and samples in self._shape[1:2]:
            self._rows[-1] = samples
        self._shape = ()
