"""What each operation of a step read and wrote, and whether its code is compiled.

`FlowTracker` makes a `Flow` of each dispatched operator. `compiled_code` knows the functions and
modules that were given to torch.compile: they run as they were written, between marks.
"""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from outlay.trace.fusion import Flow, Value
from outlay.trace.profile import CompileMode
from outlay.trace.traffic import elements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch._ops import OpOverload

    from outlay.trace.capture.constant_values import Args, Kwargs
    from outlay.trace.capture.memory_tracker import MemoryTracker
    from outlay.trace.profile import Op

# Code that is compiled


_MODES: dict[str | None, CompileMode] = {
    None: "default",
    "default": "default",
    "reduce-overhead": "reduce-overhead",
    "max-autotune": "max-autotune",
    "max-autotune-no-cudagraphs": "default",
}


@dataclass(slots=True)
class CompiledCode:
    """What the user's code gives to torch.compile, in this process."""

    mode: CompileMode | None = None
    """Of the first that was compiled; None: nothing was."""
    depth: int = 0
    """How many compiled functions deep the code is that runs."""
    calls: int = 0
    """Of compiled functions from code that is not."""

    def compile(self, function: Any, options: dict[str, Any]) -> tuple[Any, str]:
        """The function or module as it was, marked where Inductor is asked, and a note."""
        is_module = isinstance(function, nn.Module)
        name = type(function).__name__ if is_module else getattr(function, "__name__", "a function")
        left_out = f"torch.compile was left out of the trace, which ran {name} as it is written"
        backend = options.get("backend", "inductor")
        if options.get("disable") or backend != "inductor":
            return function, f"{left_out}; its times are those of eager code."
        mode = _MODES.get(options.get("mode"), "default")
        if (options.get("options") or {}).get("triton.cudagraphs"):
            mode = "reduce-overhead"
        self.mode = self.mode or mode
        note = f"{left_out} (mode {mode})."
        if is_module:
            self._mark_module(function)
            return function, note
        return (self._marked(function) if callable(function) else function), note

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Forget at the end what is compiled meanwhile, by the step that is traced."""
        before = self.mode, self.depth, self.calls
        try:
            yield
        finally:
            self.mode, self.depth, self.calls = before

    def enter(self) -> None:
        """Say that a compiled function begins."""
        self.calls += self.depth == 0
        self.depth += 1

    def exit(self) -> None:
        """Say that it has ended."""
        self.depth -= 1

    def _mark_module(self, module: nn.Module) -> None:
        if _enter_module not in module._forward_pre_hooks.values():
            module.register_forward_pre_hook(_enter_module, prepend=True)
            module.register_forward_hook(_exit_module, always_call=True)

    def _marked(self, function: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            self.enter()
            try:
                return function(*args, **kwargs)
            finally:
                self.exit()

        return call


compiled_code = CompiledCode()
"""Of this process: torch.compile is called while the user's file is imported, and later."""


def _enter_module(*_: object) -> None:
    compiled_code.enter()


def _exit_module(*_: object) -> None:
    compiled_code.exit()


# Data


class FlowTracker:
    """Makes the flow of each operation, in order."""

    def __init__(self, memory: MemoryTracker) -> None:
        self._memory = memory
        self._versions: dict[int, int] = {}
        self._compiled_nodes: set[int] = set()
        """Autograd's numbers of nodes that compiled code made: their backward is compiled, too."""

    def flow_of(self, func: OpOverload, op: Op, args: Args, kwargs: Kwargs, out: object) -> Flow:
        """What an operator that has just run read and wrote."""
        is_compiled = self._is_compiled(op)
        if op.launches <= 0:
            return Flow(is_compiled=is_compiled)
        changed = [t for argument in _changed(func, args, kwargs) for t in _on_gpu(argument)]
        results = [t for t in _on_gpu(out) if not any(t is other for other in changed)]
        read = list({id(t): t for t in _on_gpu((args, kwargs))}.values())
        reads = [(self._value(t), int(t.storage_offset())) for t in read]
        writes = [self._written(t) for t in (*changed, *results)]
        written_bytes = [_bytes(t) for t in (*changed, *results)]
        limit = max(int(op.moved_bytes) - sum(written_bytes), 0)
        read_bytes = _within(limit, [_bytes(t) for t in read])
        whole = [t for t, size in zip(read, read_bytes, strict=True) if size == _bytes(t)]
        return Flow(
            reads=tuple(reads),
            writes=tuple(writes),
            sizes_bytes=(*read_bytes, *written_bytes),
            elements=max((math.prod(t.shape) for t in (*whole, *changed, *results)), default=0),
            is_compiled=is_compiled,
        )

    def _is_compiled(self, op: Op) -> bool:
        """Whether it is in compiled code, or what autograd runs for such; see `Compilable`."""
        if compiled_code.mode is None:
            return op.phase != "optimizer"
        node = torch._C._current_autograd_node()
        if node is not None and compiled_code.depth == 0:
            return node._sequence_nr() in self._compiled_nodes
        if compiled_code.depth:
            self._compiled_nodes.add(torch.autograd._get_sequence_nr() - 1)
        return compiled_code.depth > 0

    def _value(self, tensor: Tensor) -> Value:
        number = self._memory.number_of(tensor)
        if number is None:
            return -tensor.untyped_storage()._cdata, 0
        return number, self._versions.get(number, 0)

    def _written(self, tensor: Tensor) -> Value:
        number, version = self._value(tensor)
        self._versions[number] = version + 1
        return number, version + 1


def _within(limit_bytes: int, sizes_bytes: list[int]) -> list[int]:
    """What is really read of each tensor: where a formula has less, less of the largest.

    Of a table of embeddings some rows are read, of a target of a copy nothing.
    """
    excess = sum(sizes_bytes) - limit_bytes
    while excess > 0:
        place = max(range(len(sizes_bytes)), key=sizes_bytes.__getitem__)
        taken = min(sizes_bytes[place], excess)
        sizes_bytes[place] -= taken
        excess -= taken
    return sizes_bytes


def _bytes(tensor: Tensor) -> int:
    return int(elements(tensor) * tensor.dtype.itemsize)


def _on_gpu(values: object) -> Iterator[Tensor]:
    for value in tree_iter(values):
        if isinstance(value, Tensor) and value.layout == torch.strided:
            if type(value).__torch_dispatch__ is not Tensor.__torch_dispatch__ and hasattr(
                value, "__tensor_flatten__"
            ):
                continue  # made of other tensors, which are never fused
            if value.device.type == "cuda":
                yield value


def _changed(func: OpOverload, args: Args, kwargs: Kwargs) -> Iterator[object]:
    """The arguments that an operator writes to."""
    for place, name in _written_arguments(func):
        if place < len(args):
            yield args[place]
        elif name in kwargs:
            yield kwargs[name]


@cache
def _written_arguments(func: OpOverload) -> tuple[tuple[int, str], ...]:
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
