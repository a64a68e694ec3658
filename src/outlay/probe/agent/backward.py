"""Backward passes of a training process: how many, of what loss, and the updates made within.

Some scripts update each parameter as soon as its gradient is there, by an optimizer of its own in
a hook: all that happens within one backward pass is one step, made when the pass has returned.
"""

from __future__ import annotations

from typing import Any


class Backward:
    """Counts passes, and keeps the loss of one of them when it is asked to."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._runs = 0
        self._updated: list[Any] = []
        """Optimizers that stepped within the pass that runs."""
        self._loss: Any = None
        self._wants_loss = True

    def install(self) -> None:
        """Begin to count."""
        torch = self._watch.torch
        self._graph_task = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        self._watch.patches.wrap(torch.autograd, "backward", self._counted)

    def forget(self) -> None:
        """Begin anew, in a process that was just forked."""
        self._runs = 0
        self._updated.clear()

    def loss(self) -> Any:
        """The loss of a while ago, as a tensor, if there was one; look out for the next."""
        loss, self._loss, self._wants_loss = self._loss, None, True
        return loss

    def holds(self, optimizer: Any) -> bool:
        """Whether a step that has just returned belongs to a pass; it is told at its end."""
        if not self._runs or self._graph_task() == -1:
            return False
        self._updated.append(optimizer)
        return True

    def _counted(self, original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if self._graph_task() != -1:  # recomputing, within a pass that is counted
            return original(tensors, *args, **kwargs)
        self._watch.since.passes += 1
        if self._wants_loss:
            self._keep_loss(tensors)
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
        return result

    def _keep_loss(self, tensors: Any) -> None:
        first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
        if isinstance(first, self._watch.torch.Tensor) and first.numel() == 1:
            self._loss = first.detach()
            self._wants_loss = False
