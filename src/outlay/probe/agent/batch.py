"""The inputs of modules in a step, where no DataLoader shows the batch or where it is cut up.

They are read in each of the first steps, and later in one now and then. The first input after each
backward pass is what the next pass is made of: one that was there before (SAM, a closure that is
called again) or none at all (several losses of one forward pass) is no new batch. What the backward
pass does not come through is none, either: a policy that acts in an environment between updates.
"""

from __future__ import annotations

import importlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from .channel import log_error
from .patches import module_calls
from .protocol import ModuleInputs

FIRST_STEPS = 4
"""Steps at the beginning in each of which inputs are read; later, now and then."""
_MOST_CALLS = 10_000
"""Of modules in a step, that are kept apart."""
_MOST_OUTPUTS = 8
"""Tensors of a module's result that are looked at."""
VIEWS = 4
"""Single samples that a model gets before a backward pass, and that may be views of one: real and
fake, triplets. More are a batch that it gets one by one."""


class _Call:
    """A module's call that is within no other that is counted."""

    def __init__(self, module: Any, shape: tuple[int, ...], key: Any, number: int) -> None:
        self.module = id(module)
        self.name = type(module).__name__
        self.shape = shape
        self.rows = shape[0]
        self.key = key
        self.number = number
        """Backward passes of the step before it."""
        self.depth = 1
        self.is_recurrent = False
        """Whether it also got what was computed with gradients, as a state from the call before."""
        self.is_reachable = False
        """Whether a backward pass can come through its result."""
        self.is_reached = False

    def reached(self, _: Any) -> None:
        """Note that a backward pass has come through its result."""
        self.is_reached = True


class BatchWatch:
    """Reads all batches of the next step; again and again, since batches may grow."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._hook: Callable[[], None] | None = None
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
            self._hook = module_calls(self._watch.torch, self._read_input, self._read_output)

    def _reset(self) -> None:
        self._calls: list[_Call] = []
        self._open: _Call | None = None
        """The one that runs just now."""
        self._unsettled: deque[_Call] = deque(maxlen=_MOST_OUTPUTS)
        """The last ones, until it is known where their samples are."""
        self._inner: tuple[int, str] | None = None
        """The rows of an input that was computed with gradients, and who got it."""

    def _may_hook_modules(self) -> bool:
        """Not where DataLoaders show everything, and not where modules were compiled."""
        from .shutdown import compiled_frames

        counters = self._watch.counters
        is_shown = counters.batches and counters.passes <= counters.batches
        return not is_shown and not compiled_frames()

    def step_ended(self) -> None:
        """Report the inputs; go on where there were none, or where steps were left out."""
        counters = self._watch.counters
        batches = list(self._batches())
        if not batches and self._inner is not None:
            batches = [(*self._inner, 0, 1)]
        if not batches or counters.skipped:
            self._reset()
            return
        self.stop()
        self._open = None
        rows, module, singles, alike = batches[0]
        self.last_inputs = ModuleInputs(
            samples=rows,
            inputs=len(batches),
            rows=sum(batch[0] for batch in batches),
            module=module,
            step=self._watch.steps,
            passes=counters.passes,
            batches=counters.batches,
            loaded=counters.samples,
            singles=singles,
            alike=alike,
        )
        self._watch.channel.report(self.last_inputs)

    def _batches(self) -> Iterator[tuple[int, str, int, int]]:
        """Rows of each new batch, who got it, samples that came one by one, and inputs alike."""
        inputs: set[Any] = set()
        for _, group in itertools.groupby(self._calls, key=lambda call: call.number):
            calls = list(group)
            trained = [call for call in calls if call.is_reached or not call.is_reachable] or calls
            first = trained[0]
            if first.key in inputs:
                continue
            inputs.add(first.key)
            same = [call for call in trained if call.module == first.module]
            own = [call for call in same if call.rows == first.rows and not call.is_recurrent]
            alike = len({call.key for call in own}) or 1
            is_one_by_one = first.rows == 1 and alike > VIEWS
            rows, singles = (alike, alike) if is_one_by_one else (first.rows, 0)
            yield rows, first.name, singles, alike

    def _read_input(self, module: Any, inputs: Any) -> None:
        watch = self._watch
        if watch.backward.is_running:  # to recompute
            return
        first = inputs[0] if inputs else None
        try:
            self._forget_unended()
            if self._open is not None:
                self._open.depth += id(module) == self._open.module
            elif self._is_input(first):
                self._begin_call(module, first, inputs)
            self._correct_rows(module, first)
        except Exception as error:
            log_error(error)

    def _forget_unended(self) -> None:
        """A call that an error has left does not go on after a backward pass."""
        if self._open is not None and self._open.number != self._watch.counters.passes:
            self._open = None

    def _is_input(self, value: Any) -> bool:
        torch = self._watch.torch
        return isinstance(value, torch.Tensor) and value.dim() > 0 and torch.is_grad_enabled()

    def _begin_call(self, module: Any, tensor: Any, inputs: Any) -> None:
        shape, passes = tuple(map(int, tensor.shape)), self._watch.counters.passes
        if tensor.grad_fn is not None:  # what another module made, mostly
            is_second = len(shape) == 3 and self._takes_positions_first(module)
            is_first = not self._calls or self._calls[-1].number != passes
            if is_first:
                self._inner = self._inner or (shape[is_second], type(module).__name__)
            return
        if len(self._calls) >= _MOST_CALLS:
            return
        call = self._open = _Call(module, shape, self._key(tensor), passes)
        call.is_recurrent = any(
            tensor.grad_fn is not None for tensor in self._tensors(inputs[1:], _MOST_OUTPUTS)
        )
        self._calls.append(call)
        self._unsettled.append(call)

    def _read_output(self, module: Any, inputs: Any, output: Any) -> None:
        call = self._open
        if call is None or id(module) != call.module or self._watch.backward.is_running:
            return
        call.depth -= 1
        if call.depth:
            return
        self._open = None
        try:
            tensors = list(self._tensors(output, _MOST_OUTPUTS))
            self._settle_vector(call, inputs, tensors)
            for tensor in tensors:
                if tensor.grad_fn is not None:
                    tensor.register_hook(call.reached)
                    call.is_reachable = True
        except Exception as error:
            log_error(error)

    def _tensors(self, value: Any, most: int) -> Iterator[Any]:
        """The first tensors of what a module is given or returns."""
        waiting = [value]
        while waiting and most > 0:
            part = waiting.pop(0)
            if isinstance(part, self._watch.torch.Tensor):
                most -= 1
                yield part
            elif isinstance(part, dict):
                waiting += list(part.values())
            elif isinstance(part, (list, tuple)):
                waiting += list(part)

    def _settle_vector(self, call: _Call, inputs: Any, results: list[Any]) -> None:
        """One sample, where a vector of numbers goes in and none of that length comes out."""
        if len(call.shape) != 1 or not inputs or not inputs[0].is_floating_point():
            return
        lengths = [int(result.shape[0]) for result in results if result.dim()]
        if results and call.shape[0] not in lengths:
            call.rows = 1

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

    def _correct_rows(self, module: Any, layer_input: Any) -> None:
        """Correct what the first dimension of a batch says, where a layer it gets to tells.

        A batch of (positions, samples) does not show that by itself: some models turn it round. A
        layer that is given one dimension less than a batch has gets a single sample.
        """
        is_tensor = isinstance(layer_input, self._watch.torch.Tensor)
        if self._open is not None and is_tensor and self._is_single(module, layer_input):
            self._open.rows = 1
        if not self._unsettled or not self._takes_positions_first(module):
            return
        if is_tensor:
            samples = int(layer_input.shape[1]) if layer_input.dim() == 3 else 0
        else:  # packed, if it is given here at all
            packed = getattr(layer_input, "batch_sizes", None)
            samples = 0 if packed is None else int(packed[0])
        for call in self._unsettled:
            if samples and samples != call.shape[0] and samples in call.shape[1:2]:
                call.rows = samples
        self._unsettled.clear()

    def _is_single(self, module: Any, layer_input: Any) -> bool:
        """Whether a layer gets the input of the call that runs, as one sample."""
        nn, shape = self._watch.torch.nn, tuple(map(int, layer_input.shape))
        if isinstance(module, nn.Linear):
            dimensions = 1
        elif isinstance(module, nn.modules.conv._ConvNd):
            dimensions = len(module.kernel_size) + 1
        elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
            dimensions = 2
        else:
            return False
        given = self._open.shape if self._open is not None else ()
        is_same = shape == given and len(shape) == dimensions
        return is_same or (len(given) == dimensions and shape == (1, *given))
