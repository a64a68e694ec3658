"""Live bytes over a step: every storage on the GPU from the operation that makes it to its end.

Sizes are rounded up to 512 bytes, as torch's caching allocator does. Categories are settled
after the step, when it is known what became a gradient or optimizer state.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, fields
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from outlay.trace.trace import Memory, Phase

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, UntypedStorage

_BLOCK_BYTES = 512

Role = Literal["parameters", "gradients", "optimizer_state"]


@dataclass(slots=True)
class _Storage:
    size_bytes: int
    made_in: Phase | Literal["before"]
    role: Role | None = None
    is_workspace: bool = False


class Ledger:
    """Allocations and frees in order; `restart` begins the part of which the peak is wanted."""

    def __init__(self) -> None:
        self._live: dict[int, _Storage] = {}
        self._references: dict[int, weakref.ref[UntypedStorage]] = {}
        self._events: list[tuple[int, _Storage]] = []
        self._at_restart: list[_Storage] = []

    def made(self, tensor: Tensor, phase: Phase | Literal["before"]) -> None:
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

    def call(self, role: Role, tensors: Iterable[Tensor]) -> None:
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

    def workspace(self, size_bytes: float, phase: Phase) -> None:
        """Note bytes an operator takes while it runs and gives back at its end."""
        entry = _Storage(
            -(-int(size_bytes) // _BLOCK_BYTES) * _BLOCK_BYTES, phase, is_workspace=True
        )
        self._events += [(entry.size_bytes, entry), (-entry.size_bytes, entry)]

    def live_bytes(self) -> list[int]:
        """Bytes allocated at `restart` and after each event since."""
        at_restart = sum(entry.size_bytes for entry in self._at_restart)
        return list(accumulate((change for change, _ in self._events), initial=at_restart))

    def peak(self) -> Memory:
        """What was allocated when most was, since `restart`."""
        live_bytes = self.live_bytes()
        return self.memory_at(live_bytes.index(max(live_bytes)))

    def memory_at(self, event: int) -> Memory:
        """What was allocated after an event; 0 is `restart`."""
        sums = {field.name: 0.0 for field in fields(Memory)}
        for entry in self._at_restart:
            sums[_category(entry)] += entry.size_bytes
        for change_bytes, entry in self._events[:event]:
            sums[_category(entry)] += change_bytes
        return Memory(**sums)


def _category(entry: _Storage) -> str:
    if entry.role is not None:
        return entry.role
    if entry.made_in == "before":
        return "inputs"
    kept = entry.made_in == "forward" and not entry.is_workspace
    return "activations" if kept else "temporaries"
