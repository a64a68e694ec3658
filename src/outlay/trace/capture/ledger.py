"""Live bytes over a step: every storage on the GPU from the operation that makes it to its end.

Sizes are rounded up to 512 bytes, as torch's caching allocator does. Categories are settled
after the step, when it is known what became a gradient or optimizer state.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left
from dataclasses import dataclass, fields
from itertools import accumulate, count
from typing import TYPE_CHECKING, Literal

from outlay.trace.history import FREED
from outlay.trace.trace import Memory, Phase
from outlay.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor, UntypedStorage

_BLOCK_BYTES = 512
CUBLAS_WORKSPACE_BYTES = 32 * MIB
# Source: aten/src/ATen/cuda/CublasHandlePool.cpp (Hopper; 8 MiB on other GPUs, where this is a
# little too much). Each thread has a handle of its own: the user's, and autograd's.

Role = Literal["parameters", "gradients", "optimizer_state"]


@dataclass(slots=True)
class _Storage:
    number: int
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
        self._history: list[tuple[int, int]] = []
        self._ended: list[_Storage] = []
        self._numbers = count()
        self._workspace: _Storage | None = None
        self._marks: list[tuple[int, list[_Storage]]] = []
        self._cublas_threads: set[bool] = set()
        self.step_starts: list[int] = []
        """How long the history was when each step began."""
        self.optional: set[int] = set()
        """Storages that an operator can do without."""

    def made(self, tensor: Tensor, phase: Phase | Literal["before"]) -> None:
        """Note the tensor's storage if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        entry = self._new(storage.nbytes(), phase)
        self._live[key] = entry
        self._references[key] = weakref.ref(storage, lambda _: self._freed(key))
        self._events.append((entry.size_bytes, entry))

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor's storage was made while this ledger was kept, and lives."""
        return tensor.untyped_storage()._cdata in self._live

    def _new(self, size_bytes: int, phase: Phase | Literal["before"]) -> _Storage:
        self._settle()
        entry = _Storage(next(self._numbers), -(-size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES, phase)
        self._history.append((entry.number, size_bytes))
        return entry

    def _freed(self, key: int) -> None:
        entry = self._live.pop(key)
        del self._references[key]
        self._ended.append(entry)

    def _settle(self) -> None:
        """Note the storages that ended together, in a fixed order.

        What a cache lets go of at once, it lets go of in any order; traces must be comparable.
        """
        for entry in sorted(self._ended, key=lambda entry: entry.number):
            self._events.append((-entry.size_bytes, entry))
            self._history.append((entry.number, FREED))
        self._ended.clear()

    @property
    def history(self) -> list[tuple[int, int]]:
        """Everything since the beginning, for the model of the allocator."""
        self._settle()
        return self._history

    def call(self, role: Role, tensors: Iterable[Tensor]) -> None:
        """Give the storages of these tensors a role; the first role stays."""
        for tensor in tensors:
            self.made(tensor, "before")
            entry = self._live[tensor.untyped_storage()._cdata]
            entry.role = entry.role or role

    def restart(self) -> None:
        """Begin a new part: what is live now existed before it."""
        self._settle()
        self._events.clear()
        self._marks.clear()
        self._at_restart = list(self._live.values())
        for entry in self._at_restart:
            entry.made_in = "before"

    def start_step(self) -> None:
        """Say that a step begins."""
        self.step_starts.append(len(self._history))

    def cublas(self, phase: Phase) -> None:
        """Note the workspace that cuBLAS keeps from a thread's first matrix product on.

        It goes into the history alone: it is no part of what the step's tensors take.
        """
        thread = phase == "backward"
        if thread not in self._cublas_threads:
            self._cublas_threads.add(thread)
            self._new(CUBLAS_WORKSPACE_BYTES, phase)

    def workspace(self, size_bytes: float, phase: Phase, *, optional: bool = False) -> None:
        """Note bytes an operator takes while it runs and gives back at its end."""
        entry = self._new(int(size_bytes), phase)
        entry.is_workspace = True
        if optional:
            self.optional.add(entry.number)
        self._events.append((entry.size_bytes, entry))
        self._ended.append(entry)
        self._workspace = entry

    def mark(self) -> None:
        """Say that an operation has run: its results exist, and its workspace until now."""
        ended = [entry for entry in self._ended if entry is not self._workspace]
        self._marks.append((len(self._events), ended))
        self._workspace = None

    def memory_at_marks(self) -> list[Memory]:
        """What was allocated at each mark; at the one nearest the peak, what was at the peak.

        The peak may lie between two marks, at a tensor found rather than made.
        """
        live_bytes = self.live_bytes()
        sums = {field.name: 0.0 for field in fields(Memory)}
        for entry in self._at_restart:
            sums[_category(entry)] += entry.size_bytes
        memories, done = [], 0
        for event, ended in self._marks:
            for change_bytes, entry in self._events[done:event]:
                sums[_category(entry)] += change_bytes
            memories.append(_memory(sums, ended))
            done = event
        if memories:
            peak = live_bytes.index(max(live_bytes))
            nearest = bisect_left(self._marks, peak, key=lambda mark: mark[0])
            memories[min(nearest, len(memories) - 1)] = self.memory_at(peak)
        return memories

    def live_bytes(self) -> list[int]:
        """Bytes allocated at `restart` and after each event since."""
        self._settle()
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


def _memory(sums: dict[str, float], ended: list[_Storage]) -> Memory:
    """The sums without storages that have ended but were not taken off yet."""
    left = dict(sums)
    for entry in ended:
        left[_category(entry)] -= entry.size_bytes
    return Memory(**left)


def _category(entry: _Storage) -> str:
    if entry.role is not None:
        return entry.role
    if entry.made_in == "before":
        return "inputs"
    kept = entry.made_in == "forward" and not entry.is_workspace
    return "activations" if kept else "temporaries"
