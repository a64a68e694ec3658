"""What the allocator was asked for from the start on: for the search of the largest batch.

Recorded by torch itself (`torch.cuda.memory._record_memory_history`, without call stacks) up to
the end of a few steps. Two of these, at two batch sizes, say what a third will ask for.
"""

from __future__ import annotations

import os
from typing import Any

from .channel import complain

WANTED = "OUTLAY_PROBE_ALLOCATIONS"
"""The variable that asks for it."""
STEPS = 4
"""Optimizer steps until it is told: the first makes states, those after are alike."""


class Allocations:
    """Records from the start of CUDA to the end of `STEPS` steps."""

    def __init__(self, torch: Any, channel: Any) -> None:
        self._torch = torch
        self._channel = channel
        self._is_on = False

    def install(self) -> None:
        """Begin as soon as CUDA does, where it is wanted."""
        if os.environ.get(WANTED) and self._torch.version.cuda:
            self._torch.cuda._lazy_call(self._begin)

    def _begin(self) -> None:
        try:
            self._torch.cuda.memory._record_memory_history(
                enabled="all", context=None, stacks="python"
            )
            self._is_on = True
        except Exception as error:
            complain(error)

    def tell(self, index: int | None) -> None:
        """Tell what was seen on a GPU, and stop recording."""
        if not self._is_on or index is None:
            return
        self._is_on = False
        memory = self._torch.cuda.memory
        traces = memory._snapshot().get("device_traces", [])
        memory._record_memory_history(enabled=None)
        if index < len(traces):
            self._channel.tell_values("allocations", {"events": events_of(traces[index])})


def events_of(trace: list[dict[str, Any]]) -> list[int]:
    """Sizes in the order they were asked for; minus n where the n-th of them ended, from 1 on."""
    events: list[int] = []
    numbers: dict[int, int] = {}
    made = 0
    for entry in trace:
        if entry["action"] == "alloc":
            made += 1
            numbers[entry["addr"]] = made
            events.append(int(entry["size"]))
        elif entry["action"] == "free_completed" and entry["addr"] in numbers:
            events.append(-numbers.pop(entry["addr"]))
    return events
