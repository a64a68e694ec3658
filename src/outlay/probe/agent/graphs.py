"""Steps captured in a CUDA graph: they run when it is replayed, not when they are called."""

from __future__ import annotations

import weakref
from typing import Any


class Graphs:
    """Which optimizer steps each graph of the process holds."""

    def __init__(self, watch: Any) -> None:
        self._watch = watch
        self._captured: list[tuple[Any, int]] = []
        self._steps: weakref.WeakKeyDictionary[Any, tuple[tuple[Any, int], ...]] = (
            weakref.WeakKeyDictionary()
        )
        """Optimizers in the order they step, with the backward passes before each."""
        self._is_on = False
        self.are_replayed = False
        """Whether a graph with a step in it was replayed."""

    def install(self) -> None:
        """Begin to watch graphs, where torch has them."""
        torch, patches = self._watch.torch, self._watch.patches
        if (torch.version.cuda or torch.version.hip) and hasattr(torch.cuda, "CUDAGraph"):
            self._is_on = True
            patches.wrap(torch.cuda.CUDAGraph, "capture_end", self._capture_end)
            patches.wrap(torch.cuda.CUDAGraph, "replay", self._replay)

    def captures(self, optimizer: Any) -> bool:
        """Whether a step that has just returned was captured; it is kept for the replays."""
        cuda = self._watch.torch.cuda
        if not (self._is_on and cuda.is_initialized() and cuda.is_current_stream_capturing()):
            return False
        since = self._watch.since
        self._captured.append((optimizer, since.passes))
        since.passes = 0
        return True

    def _capture_end(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        steps, self._captured = tuple(self._captured), []
        result = original(graph, *args, **kwargs)
        if steps:
            self._steps[graph] = steps
        return result

    def _replay(self, original: Any, graph: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(graph, *args, **kwargs)
        for optimizer, passes in self._steps.get(graph, ()):
            self.are_replayed = True
            self._watch.since.passes += passes
            self._watch.step_ended(optimizer)
        return result
