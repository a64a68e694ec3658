"""Live bytes over a step: every storage on the GPU from the operation that makes it to its end.

Sizes are rounded up to 512 bytes, as torch's caching allocator does. Categories are settled
after the step, when it is known what became a gradient or optimizer state.
"""

from __future__ import annotations

import contextlib
import weakref
from bisect import bisect_left
from dataclasses import dataclass, fields
from itertools import accumulate, count
from typing import TYPE_CHECKING, Literal

from outlay.trace.batch_scaling import FREED
from outlay.trace.profile import Memory, Phase
from outlay.trace.workspace import CUBLAS, REFERENCE, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor, UntypedStorage


_BLOCK_BYTES = 512

Role = Literal["parameters", "gradients", "optimizer_state"]


@dataclass(slots=True, eq=False)
class _Storage:
    number: int
    size_bytes: int
    made_in: Phase | Literal["before"]
    role: Role | None = None
    is_workspace: bool = False
    is_seen: bool = True
    """Whether it is there on the GPU that peaks are shown for."""


class MemoryTracker:
    """Allocations and frees in order; `restart` begins the part of which the peak is wanted."""

    def __init__(self, batch_size: int = 1) -> None:
        self._batch_size = batch_size
        self._live: dict[int, _Storage] = {}
        self._references: dict[int, weakref.ref[UntypedStorage]] = {}
        self._events: list[tuple[int, _Storage]] = []
        self._at_restart: list[_Storage] = []
        self._history: list[tuple[int, int]] = []
        self._ended: list[_Storage] = []
        self._numbers = count()
        self._workspaces: list[_Storage] = []
        self._companions: dict[int, _Storage] = {}
        self._marks: list[tuple[int, list[_Storage]]] = []
        self._cublas_threads: set[bool] = set()
        self._kept_workspaces: list[_Storage] = []
        self.step_starts: list[int] = []
        """How long the history was when each step began."""
        self.optional: set[int] = set()
        """Storages that an operator can do without."""
        self.conditions: dict[int, str] = {}
        """Storages that are made only on GPUs that meet a condition."""

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
        companion = self._companions.pop(key, None)
        if companion is not None:
            self._ended.append(companion)

    def _settle(self) -> None:
        """Note the storages that ended together, in a fixed order.

        What a cache lets go of at once, it lets go of in any order; traces must be comparable.
        """
        for entry in sorted(self._ended, key=lambda entry: entry.number):
            if entry.is_seen:
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
        kept = (*self._live.values(), *self._companions.values(), *self._kept_workspaces)
        self._at_restart = [entry for entry in kept if entry.is_seen]
        for entry in self._at_restart:
            entry.made_in = "before"

    def finish(self) -> None:
        """Say that the last step is over: what ends from now on is no part of it."""
        self._settle()
        self._references.clear()

    def start_step(self) -> None:
        """Say that a step begins."""
        self.step_starts.append(len(self._history))

    def cublas(self, phase: Phase) -> None:
        """Note the workspace that cuBLAS keeps from a thread's first matrix product on.

        Source: aten/src/ATen/cuda/CublasHandlePool.cpp. Each thread has a handle of its own: the
        user's, and autograd's.
        """
        thread = phase == "backward"
        if thread not in self._cublas_threads:
            self._cublas_threads.add(thread)
            kept = Workspace(size_bytes=REFERENCE.cublas_bytes, condition=CUBLAS)
            self._kept_workspaces.append(self._take(kept, phase, CUBLAS))

    def workspaces(self, taken: Sequence[Workspace], phase: Phase, rows: int = 1) -> None:
        """Note what an operator takes while it runs and gives back at its end, turn by turn.

        `rows` is how many its tensors have in their first dimension.
        """
        throughout = self._take_all(taken, 0, phase, rows)
        for turn in sorted({workspace.turn for workspace in taken if workspace.turn}):
            self._settle()
            self._ended.extend(self._take_all(taken, turn, phase, rows))
        self._ended.extend(throughout)

    @contextlib.contextmanager
    def holding(self, taken: Sequence[Workspace], phase: Phase) -> Iterator[None]:
        """Note what an operator takes before it makes its results and gives back after."""
        entries = self._take_all(taken, 0, phase, 1)
        yield
        self._ended.extend(entries)

    def _take_all(
        self, taken: Sequence[Workspace], turn: int, phase: Phase, rows: int
    ) -> list[_Storage]:
        entries = [
            self._take(workspace, phase, workspace.condition_for(rows, self._batch_size))
            for workspace in taken
            if workspace.turn == turn
        ]
        self._workspaces.extend(entries)
        return entries

    def beside(self, tensor: Tensor, workspace: Workspace, phase: Phase) -> None:
        """Note bytes that some GPUs keep as long as a tensor lives."""
        key = tensor.untyped_storage()._cdata
        if key in self._live and key not in self._companions:
            self._companions[key] = self._take(workspace, phase, workspace.condition)

    def _take(self, workspace: Workspace, phase: Phase, condition: str) -> _Storage:
        entry = self._new(round(workspace.size_bytes), phase)
        entry.is_workspace = True
        if workspace.optional:
            self.optional.add(entry.number)
        if condition:
            self.conditions[entry.number] = condition
        taken_bytes = REFERENCE.taken_bytes(condition, entry.size_bytes, self._batch_size)
        entry.size_bytes = -(-round(taken_bytes) // _BLOCK_BYTES) * _BLOCK_BYTES
        entry.is_seen = taken_bytes > 0
        if entry.is_seen:
            self._events.append((entry.size_bytes, entry))
        return entry

    def mark(self) -> None:
        """Say that an operation has run: its results exist, and its workspace until now."""
        ended = [entry for entry in self._ended if entry not in self._workspaces and entry.is_seen]
        self._marks.append((len(self._events), ended))
        self._workspaces = []

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
    if entry.is_workspace:
        return "workspace"
    if entry.role is not None:
        return entry.role
    if entry.made_in == "before":
        return "inputs"
    return "activations" if entry.made_in == "forward" else "temporaries"
