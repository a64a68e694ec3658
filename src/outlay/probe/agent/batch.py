"""The inputs of modules in a step, where no DataLoader shows the batch or where it is cut up.

They are read in each of the first steps, and later in one now and then. The first input after each
backward pass is what the next pass is made of: one that was there before (SAM, a closure that is
called again) or none at all (several losses of one forward pass) is no new batch.
"""

from __future__ import annotations

import importlib
from typing import Any

from .channel import log_error
from .patches import module_calls
from .protocol import ModuleInputs

FIRST_STEPS = 4
"""Steps at the beginning in each of which inputs are read; later, now and then."""


class BatchWatch:
    """Reads all batches of the next step; again and again, since batches may grow."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._hook: Any = None
        self.last_inputs = ModuleInputs()
        """What was reported last."""

    @property
    def is_on(self) -> bool:
        """Whether inputs are read just now."""
        return self._hook is not None

    def stop(self) -> None:
        """Read no inputs any more."""
        if self._hook is not None:
            self._hook()
        self._hook = None

    def start(self) -> None:
        """Read inputs until the next step; called when one has returned."""
        if self._hook is None and self._may_hook_modules():
            self._reset()
            reductions = importlib.import_module("torch.multiprocessing.reductions")
            self._weak_reference = reductions.StorageWeakRef
            self._hook = module_calls(self._watch.torch, self._read_input)

    def _reset(self) -> None:
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
        """Not where DataLoaders show everything, and not where modules were compiled."""
        from .shutdown import compiled_frames

        counters = self._watch.counters
        is_shown = counters.batches and counters.passes <= counters.batches
        return not is_shown and not compiled_frames()

    def step_ended(self) -> None:
        """Report the inputs; go on where there were none, or where steps were left out."""
        counters = self._watch.counters
        if not self._rows and self._inner is not None:
            self._rows, self._module = [self._inner[0]], self._inner[1]
        if not self._rows or counters.skipped:
            self._reset()
            return
        self.stop()
        self.last_inputs = ModuleInputs(
            samples=self._rows[0],
            inputs=len(self._rows),
            rows=sum(self._rows),
            module=self._module,
            step=self._watch.steps,
            passes=counters.passes,
            batches=counters.batches,
            loaded=counters.samples,
        )
        self._watch.channel.report(self.last_inputs)

    def _read_input(self, module: Any, inputs: Any) -> None:
        watch = self._watch
        if watch.backward.is_running:  # to recompute
            return
        first = inputs[0] if inputs else None
        try:
            if watch.counters.passes != self._pass and self._is_input(first):
                self._count_input(module, first)
            if self._shape and self._takes_positions_first(module):
                self._correct_rows(first)
        except Exception as error:
            log_error(error)

    def _is_input(self, value: Any) -> bool:
        torch = self._watch.torch
        return isinstance(value, torch.Tensor) and value.dim() > 0 and torch.is_grad_enabled()

    def _count_input(self, module: Any, tensor: Any) -> None:
        shape, name = tuple(map(int, tensor.shape)), type(module).__name__
        if tensor.grad_fn is not None:  # what another module made, mostly
            is_second = len(shape) == 3 and self._takes_positions_first(module)
            self._inner = self._inner or (shape[is_second], name)
            return
        self._pass, self._shape = self._watch.counters.passes, ()
        key = self._key(tensor)
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
            storage = self._weak_reference(tensor.untyped_storage())
            place = tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
            return storage, place, tensor._version
        except Exception:  # no storage of its own, or no count of what was written
            return object()

    def _takes_positions_first(self, module: Any) -> bool:
        nn = self._watch.torch.nn
        is_sequential = isinstance(module, (nn.RNNBase, nn.MultiheadAttention))
        return is_sequential and not module.batch_first

    def _correct_rows(self, layer_input: Any) -> None:
        """Take the second dimension of the batch, where the layer it gets to has samples there.

        A batch of (positions, samples) does not show that by itself: some models turn it round.
        """
        if isinstance(layer_input, self._watch.torch.Tensor):
            samples = int(layer_input.shape[1]) if layer_input.dim() == 3 else 0
        else:  # packed
            samples = int(layer_input.batch_sizes[0])
        if samples and samples != self._shape[0] and samples in self._shape[1:2]:
            self._rows[-1] = samples
        self._shape = ()
