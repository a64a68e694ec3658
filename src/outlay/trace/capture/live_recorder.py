"""The operations of steps that really run, on whatever device: for a probe.

Nothing is faked or held back: every operator runs as it would, and is noted as a trace would note
it. Compiled code runs as it was written meanwhile. Whatever goes wrong in noting an operator, the
script goes on, and its errors look as they do without us.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn.modules import module
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode,
    _push_mode,
)
from torch.utils._pytree import tree_iter

from outlay.trace.capture.capture import force_eager
from outlay.trace.capture.constant_values import Args, Kwargs
from outlay.trace.capture.recorder import (
    PhaseTracker,
    op_of,
    track_modules,
    track_recomputation,
)

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from outlay.trace.profile import Op, Phase


_ATTENTION = "aten._scaled_dot_product_flash_attention"
_EQUIVALENTS = {
    # Operators of one device that do what one with a formula does.
    "aten._scaled_dot_product_cudnn_attention": _ATTENTION,
    "aten._scaled_dot_product_cudnn_attention_backward": f"{_ATTENTION}_backward",
    "aten._scaled_dot_product_flash_attention_for_cpu": _ATTENTION,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": f"{_ATTENTION}_backward",
}
_OTHER_NAMESPACES = ("prim", "c10d", "_c10d_functional", "profiler", "inductor")
"""Queries, exchanges between processes, and marks: no work of the step's own on its device."""


ModuleCalls = Callable[[Callable[..., None], Callable[[], None]], Callable[[], None]]
"""Has two functions called before and after each module, until what it gives is called."""


class LiveRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records from `start` to `stop`, which may lie in different calls of the user's code."""

    supports_higher_order_operators = True

    def __init__(self, device: str, module_calls: ModuleCalls | None = None) -> None:
        super().__init__()
        self._module_calls = module_calls
        """How modules are watched; None: by torch's own hooks."""
        self.is_muted = False
        """Whether nothing is noted until the record is taken."""
        self.most_gradless = 0
        self.on_excess: Callable[[], None] | None = None
        """Called before a module, once more than so many operators have run without gradients
        since the last step: that is an evaluation, which need not be recorded."""
        self.paused = 0
        """How many reasons there are to note nothing just now: a loader makes a batch."""
        self._device = device
        self._phases = PhaseTracker()
        self._ops: Counter[Op] = Counter()
        self._gradless: Counter[Op] = Counter()
        """Run without gradients since the last step: of the step, or of an evaluation before it."""
        self._gradless_run = 0
        """How many of them."""
        self._unknown: set[Op] = set()
        self._unnoted: Counter[str] = Counter()
        """Operators that could not be noted."""
        self._parameters: dict[int, Tensor] = {}
        self._trained: set[int] = set()
        """Of these, those that were to get a gradient or had one when an optimizer began."""
        self._rows: dict[bool, int] = {}
        """Of the first input with gradients, and of the first without."""
        self._stack = contextlib.ExitStack()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch need not keep its compiler out of us: nothing is compiled meanwhile."""
        return False

    def start(self) -> None:
        """Record from now on."""
        self._stack.enter_context(force_eager())
        if self._module_calls is None:
            # Of these hooks torch warns where a module is compiled.
            self._stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="Using `torch.compile", category=UserWarning)
            self._stack.enter_context(track_modules(self._phases, self._note_rows))
            self._stack.callback(module.register_module_forward_pre_hook(self.wake).remove)
        else:
            self._stack.callback(self._module_calls(self._before_module, self._after_module))
        self._stack.enter_context(track_recomputation(self._phases))
        self._stack.enter_context(self)

    @property
    def is_current(self) -> bool:
        """Whether it can be stopped here: no mode of the script's own is within it."""
        return _get_current_dispatch_mode() is self

    def _before_module(self, _: object, inputs: tuple[object, ...]) -> None:
        self.wake()
        self._phases.module_depth += 1
        self._note_rows(inputs)
        if self.on_excess is not None and self._gradless_run > self.most_gradless:
            self.on_excess()

    def _after_module(self, *_: object) -> None:
        self._phases.module_depth -= 1

    def wake(self, *_: object) -> None:
        """Record again, where a compiled function that was running at the start has ended.

        Compiled code leaves the state of the dispatcher as it found it: without us.
        """
        is_on = torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.Python)
        if not is_on and _get_current_dispatch_mode() is self:
            _pop_mode()
            _push_mode(self)

    def stop(self) -> dict[str, Any]:
        """Stop recording; returns the record as JSON values."""
        self._stack.close()
        return self.take()

    def take(self) -> dict[str, Any]:
        """The record since the start, or since it was last taken, as JSON values.

        Parameters are those of all optimizers that have stepped since the start.
        """
        self.step_was(is_pause=False)
        record = self._record()
        self._ops.clear()
        self._unknown.clear()
        self._unnoted.clear()
        self._rows.clear()
        self.is_muted = False
        return record

    def _record(self) -> dict[str, Any]:
        parameters = list(self._parameters.values())
        unknown = self._unnoted.copy()
        for op in self._unknown:
            unknown[op.name] += self._ops[op]
        return {
            "ops": [{**asdict(op), "count": count} for op, count in self._ops.items()],
            "unknown_ops": dict(+unknown),
            "rows": self._rows.get(True, self._rows.get(False)),
            "parameter_shapes": sorted({tuple(p.shape) for p in parameters}),
            "parameters": sum(p.numel() for p in parameters),
            "trainable_parameters": sum(
                p.numel() for key, p in self._parameters.items() if key in self._trained
            ),
        }

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: Args = (),
        kwargs: Kwargs | None = None,
    ) -> object:
        """Run one operator and note it."""
        kwargs = kwargs or {}
        is_noted = not self.paused and not self.is_muted
        is_plain = is_noted and isinstance(func, OpOverload)
        phase = self._phases.phase_of(func) if is_plain else "forward"
        try:
            out = func(*args, **kwargs)
        except BaseException as error:
            _hide_frames(error)
            raise
        if not is_noted:
            return out
        try:
            self._note(func, phase, args, kwargs, out)
        except Exception:  # not the fault of the script, which goes on
            self._unnoted[_name(func)] += 1
        return out

    def _note(
        self, func: OpOverload, phase: Phase, args: Args, kwargs: Kwargs, out: object
    ) -> None:
        if not isinstance(func, OpOverload):  # of higher order: what it runs, it runs without us
            self._unnoted[_name(func)] += 1
            return
        is_operation = func.namespace not in _OTHER_NAMESPACES and not isinstance(out, bool)
        if is_operation and self._ran_on_device(out, args):
            name = str(func.overloadpacket)
            op, is_known = op_of(func, phase, args, kwargs, out, _EQUIVALENTS.get(name, name))
            is_gradless = self._may_be_evaluation()
            self._gradless_run += is_gradless
            (self._gradless if is_gradless else self._ops)[op] += 1
            if not is_known:
                self._unknown.add(op)

    def _ran_on_device(self, out: object, args: Args) -> bool:
        """Whether an operator ran on the device of the steps: what the CPU does beside is not."""
        return any(
            isinstance(value, Tensor) and value.device.type == self._device
            for value in tree_iter((out, args))
        )

    def _may_be_evaluation(self) -> bool:
        """Whether what runs now may be no training: without gradients, between two steps."""
        if self._phases.in_optimizer or torch.is_grad_enabled():
            return False
        in_backward = torch._C._current_graph_task_id() != -1
        return not in_backward

    def _note_rows(self, inputs: tuple[object, ...]) -> None:
        """The rows of the first tensor that a module is given: mostly the samples of a pass."""
        first = inputs[0] if inputs else None
        if isinstance(first, Tensor) and first.dim():
            self._rows.setdefault(torch.is_grad_enabled(), int(first.shape[0]))

    def step_was(self, *, is_pause: bool) -> None:
        """Say whether there was an evaluation or a checkpoint before the step that has ended."""
        if not is_pause:
            self._ops.update(self._gradless)
        self._gradless.clear()
        self._gradless_run = 0

    def before_update(self, optimizer: Optimizer) -> None:
        """Say that an optimizer begins its step."""
        self._phases.enter_optimizer()
        for group in optimizer.param_groups:
            self._parameters.update((id(p), p) for p in group["params"])
            trained = [p for p in group["params"] if p.requires_grad or p.grad is not None]
            self._trained.update(map(id, trained))

    def after_update(self) -> None:
        """Say that it has ended."""
        self._phases.exit_optimizer()
        self._phases.start_step()


def _name(func: object) -> str:
    """What an operator is called; one of higher order has a name of its own."""
    return str(getattr(func, "overloadpacket", None) or getattr(func, "_name", func))


def _hide_frames(error: BaseException) -> None:
    """Take our frame, and that of torch's own call below it, off a traceback.

    Before a bare `raise`: the script sees the traceback that it would have without us.
    """
    traceback = error.__traceback__
    traceback = None if traceback is None else traceback.tb_next
    if traceback is not None and traceback.tb_frame.f_globals.get("__name__") == "torch._ops":
        traceback = traceback.tb_next
    error.__traceback__ = traceback
