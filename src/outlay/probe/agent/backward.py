"""Backward passes of a training process: how many, of what loss, and the updates made within.

Some scripts update each parameter as soon as its gradient is there, by an optimizer of its own in
a hook: all that happens within one backward pass is one step, made when the pass has returned.
Others have no optimizer of torch's (updates by hand, fastai's own): there each pass is a step.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from .patches import hide_frames
from .protocol import StepsDiscarded

_SCALERS = {
    "torch.amp.grad_scaler": "GradScaler",
    "torch.distributed.fsdp.sharded_grad_scaler": "ShardedGradScaler",
}
PASSES_ALONE = 64
"""So many without a step of an optimizer: there is none. Gradients of fewer may be accumulated."""


class UnknownOptimizer:
    """Stands for an optimizer that is none of torch's, by the parameters that get gradients."""

    def __init__(self, tensors: Any) -> None:
        self.state: dict[Any, Any] = {}
        self._parameters = [weakref.ref(leaf) for leaf in _leaves(tensors)]

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """As optimizers have them."""
        parameters = [reference() for reference in self._parameters]
        return [{"params": [parameter for parameter in parameters if parameter is not None]}]


class Backward:
    """Counts passes, and keeps the loss of one of them now and then."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._runs = 0
        self._updated: list[Any] = []
        """Optimizers that stepped within the pass that runs."""
        self._loss: Any = None
        self._wants_loss = True
        self._scaling: Any = None
        """The last scaler, the loss it was given, and the scaled one."""
        self._has_optimizer = False
        self._passes_alone = 0
        """Passes before any optimizer made a step."""
        self._unknown: UnknownOptimizer | None = None
        self._is_watching = False
        self._leave: Callable[[], None] = lambda: None

    def install(self) -> None:
        """Begin to count."""
        torch, patches = self._watch.torch, self._watch.patches
        self._graph_task: Callable[[], int] = getattr(
            torch._C, "_current_graph_task_id", lambda: -1
        )
        patches.wrap(torch.autograd, "backward", self._count_pass)
        self._wrap_scalers()

    def _wrap_scalers(self) -> None:
        for name, kind in _SCALERS.items():
            action = functools.partial(self._wrap_scaler, kind)
            self._watch.patches.once_imported(name, action)

    def install_lean(self) -> None:
        """Begin to count, until an optimizer steps; from then on passes are not looked at."""
        self._wrap_scalers()
        self._graph_task = lambda: 0 if self._runs else -1
        self.watch_next()

    def watch_next(self) -> None:
        """Look at the next pass, for its loss; at all, while it is not known what steps are."""
        if self._is_watching:
            return
        autograd = self._watch.torch.autograd
        original = autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if self._has_optimizer:
                leave()
            try:
                return self._count_pass(original, tensors, *args, **kwargs)
            except BaseException as error:
                hide_frames(error)
                raise

        def leave() -> None:
            if autograd.backward is backward:  # else others have put theirs around ours
                autograd.backward = original
                self._is_watching = False

        autograd.backward = backward
        self._is_watching = True
        self._leave = leave

    def leave(self) -> None:
        """Look at no pass any more."""
        self._leave()

    def _wrap_scaler(self, kind: str, owner: Any) -> None:
        self._watch.patches.wrap(getattr(owner, kind), "scale", self._note_scaling)

    def _note_scaling(self, original: Any, scaler: Any, outputs: Any) -> Any:
        """Keep what a gradient scaler is given, where its loss is the next to be reported."""
        result = original(scaler, outputs)
        if self._wants_loss and self._is_scalar(outputs):
            self._scaling = scaler, outputs.detach(), weakref.ref(result)
        return result

    def reset(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._runs = self._passes_alone = 0
        self._has_optimizer = False
        self._updated.clear()
        self._unknown = self._scaling = None

    @property
    def is_running(self) -> bool:
        """Whether a pass runs just now."""
        return self._runs > 0

    def take_loss(self) -> Any:
        """The loss of a while ago, as a tensor, if there was one; the next pass's is kept."""
        loss, self._loss, self._wants_loss = self._loss, None, True
        return loss

    def defers(self, optimizer: Any) -> bool:
        """Whether a step that has just returned belongs to a pass: it counts at the pass's end."""
        if self._unknown is not None:
            self._unknown = None
            self._watch.channel.report(StepsDiscarded())
        self._has_optimizer = True
        if not self._runs or self._graph_task() == -1:
            return False
        self._updated.append(optimizer)
        return True

    def _count_pass(self, original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if self._graph_task() != -1:  # recomputing, within a pass that is counted
            return original(tensors, *args, **kwargs)
        self._watch.counters.passes += 1
        if self._wants_loss:
            recorder = self._watch.recorder
            if recorder is not None:
                recorder.paused += 1
            self._keep_loss(tensors)
            if recorder is not None:
                recorder.paused -= 1
        if not self._has_optimizer:
            self._count_pass_alone(tensors)
        self._runs += 1
        try:
            result = original(tensors, *args, **kwargs)
        except BaseException:
            self._updated.clear()
            raise
        finally:
            self._runs -= 1
        if self._updated:
            updated, self._updated = tuple(self._updated), []
            self._watch.step_ended(*updated)
        elif self._unknown is not None:
            self._watch.step_ended(self._unknown)
        return result

    def _count_pass_alone(self, tensors: Any) -> None:
        self._passes_alone += 1
        if self._passes_alone == PASSES_ALONE:
            self._unknown = UnknownOptimizer(tensors)

    def _keep_loss(self, tensors: Any) -> None:
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if self._is_scalar(first):
            self._loss = self._unscaled(first)
            self._wants_loss = False
        self._scaling = None

    def _is_scalar(self, value: Any) -> bool:
        return isinstance(value, self._watch.torch.Tensor) and value.numel() == 1

    def _unscaled(self, loss: Any) -> Any:
        """The loss as the script has it; computed where it was scaled and changed after that."""
        if self._scaling is None:
            return loss.detach()
        scaler, unscaled, scaled = self._scaling
        if scaled() is loss:
            return unscaled
        scale = getattr(scaler, "_scale", None)
        return loss.detach() if scale is None else loss.detach() / scale.to(loss.device)


def _leaves(tensors: Any) -> list[Any]:
    """Tensors that a pass leaves gradients in."""
    outputs = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
    nodes = [output.grad_fn for output in outputs if getattr(output, "grad_fn", None) is not None]
    visited, leaves = set(nodes), []
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        following = {function for function, _ in node.next_functions if function is not None}
        new = following - visited
        visited |= new
        nodes += new
    return leaves
