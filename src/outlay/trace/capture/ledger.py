"""Live bytes over a step: every storage on the GPU from the operation that makes it to its end.

Sizes are rounded up to 512 bytes, as torch's caching allocator does. Categories are settled
after the step, when it is known what became a gradient or optimizer state.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from outlay.trace.trace import Memory, Phase

_BLOCK_BYTES = 512

Role = Literal["parameters", "gradients", "optimizer_state"]


@dataclass(slots=True)
class _Storage:
    size_bytes: int
    made_in: Phase | Literal["before"]
    role: Role | None = None


class Ledger:
    """Allocations and frees in order; `restart` begins the part of which the peak is wanted."""

    def __init__(self) -> None:
        self._live: dict[int, _Storage] = {}
        self._references: dict[int, weakref.ref[Any]] = {}
        self._events: list[tuple[int, _Storage]] = []
        self._at_restart: list[_Storage] = []

    def made(self, tensor: Any, phase: Phase | Literal["before"]) -> None:
        """Note the tensor's storage if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        size_bytes = -(-storage.nbytes() // _BLOCK_BYTES) * _BLOCK_BYTES
        entry = _Storage(size_bytes, phase)
        self._live[key] = entry
        self._references[key] = weakref.ref(storage, lambda _: self._freed(key))
        self._events.append((size_bytes, entry))

    def _freed(self, key: int) -> None:
        entry = self._live.pop(key)
        del self._references[key]
        self._events.append((-entry.size_bytes, entry))

    def call(self, role: Role, tensors: Iterable[Any]) -> None:
        """Give the storages of these tensors a role; the first role stays."""
        for tensor in tensors:
            self.made(tensor, "before")
            entry = self._live[tensor.untyped_storage()._cdata]
            entry.role = entry.role or role

    def restart(self) -> None:
        """Begin a new part: what is live now existed before it."""
        self._events.clear()
        self._at_restart = list(self._live.values())
        for entry in self._at_restart:
            entry.made_in = "before"

    def peak(self) -> Memory:
        """What was allocated when most was, since `restart`."""
        live_bytes = peak_bytes = sum(entry.size_bytes for entry in self._at_restart)
        peak_at = 0
        for position, (change_bytes, _) in enumerate(self._events, start=1):
            live_bytes += change_bytes
            if live_bytes > peak_bytes:
                peak_bytes, peak_at = live_bytes, position
        return self._memory_at(peak_at)

    def _memory_at(self, position: int) -> Memory:
        sums = dict.fromkeys(Memory.__dataclass_fields__, 0)
        for entry in self._at_restart:
            sums[_category(entry)] += entry.size_bytes
        for change_bytes, entry in self._events[:position]:
            sums[_category(entry)] += change_bytes
        return Memory(**sums)


def _category(entry: _Storage) -> str:
    if entry.role is not None:
        return entry.role
    if entry.made_in == "before":
        return "inputs"
    return "activations" if entry.made_in == "forward" else "temporaries"
