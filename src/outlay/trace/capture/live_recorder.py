"""The operations of steps that really run, on whatever device: for a probe, after its timing.

Nothing is faked or held back: every operator runs as it would, and is noted as a trace would note
it. Compiled code runs as it was written meanwhile.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
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
    from torch._ops import OpOverload
    from torch.optim import Optimizer

    from outlay.trace.profile import Op


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


class LiveRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records from `start` to `stop`, which may lie in different calls of the user's code."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.paused = 0
        """How many reasons there are to note nothing just now: a loader makes a batch."""
        self._device = device
        self._phases = PhaseTracker()
        self._ops: Counter[Op] = Counter()
        self._gradless: Counter[Op] = Counter()
        """Run without gradients since the last step: of the step, or of an evaluation before it."""
        self._unknown: set[Op] = set()
        self._parameters: dict[int, Tensor] = {}
        self._rows: dict[bool, int] = {}
        """Of the first input with gradients, and of the first without."""
        self._stack = contextlib.ExitStack()

    def start(self) -> None:
        """Record from now on."""
        # Of the hooks that the phase is known by, torch warns where a module is compiled.
        self._stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", message="Using `torch.compile", category=UserWarning)
        self._stack.enter_context(force_eager())
        self._stack.enter_context(track_modules(self._phases, self._note_rows))
        self._stack.enter_context(track_recomputation(self._phases))
        self._stack.enter_context(self)
        self._stack.callback(module.register_module_forward_pre_hook(self.wake).remove)

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
        self.step_was(is_pause=False)
        parameters = list(self._parameters.values())
        unknown: Counter[str] = Counter()
        for op in self._unknown:
            unknown[op.name] += self._ops[op]
        return {
            "ops": [{**asdict(op), "count": count} for op, count in self._ops.items()],
            "unknown_ops": dict(+unknown),
            "rows": self._rows.get(True, self._rows.get(False)),
            "parameter_shapes": sorted({tuple(p.shape) for p in parameters}),
            "parameters": sum(p.numel() for p in parameters),
            "trainable_parameters": sum(p.numel() for p in parameters if p.requires_grad),
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
        phase = self._phases.phase_of(func)
        out = func(*args, **kwargs)
        is_operation = func.namespace not in _OTHER_NAMESPACES and not isinstance(out, bool)
        if is_operation and not self.paused and self._ran_on_device(out, args):
            name = str(func.overloadpacket)
            op, is_known = op_of(func, phase, args, kwargs, out, _EQUIVALENTS.get(name, name))
            (self._gradless if self._may_be_evaluation() else self._ops)[op] += 1
            if not is_known:
                self._unknown.add(op)
        return out

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

    def before_update(self, optimizer: Optimizer) -> None:
        """Say that an optimizer begins its step."""
        self._phases.enter_optimizer()
        for group in optimizer.param_groups:
            self._parameters.update((id(p), p) for p in group["params"])

    def after_update(self) -> None:
        """Say that it has ended."""
        self._phases.exit_optimizer()
        self._phases.start_step()
