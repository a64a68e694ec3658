"""Live bytes over a step: every storage on the GPU from the operation that makes it to its end.

Sizes are rounded up to 512 bytes, as torch's caching allocator does. Categories are settled
after the step, when it is known what became a gradient or optimizer state.
"""

from __future__ import annotations

import contextlib
import weakref
from bisect import bisect_left
from dataclasses import dataclass, fields, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

from outlay.trace.batch_scaling import FREED
from outlay.trace.profile import Memory, Phase
from outlay.trace.traffic import rounded
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
    on_reference: bool = True
    """Whether it is there on the reference GPU, for which peaks are shown."""

    @property
    def category(self) -> str:
        """The field of `Memory` that it counts in."""
        if self.is_workspace:
            return "workspace"
        if self.role is not None:
            return self.role
        if self.made_in == "before":
            return "inputs"
        return "activations" if self.made_in == "forward" else "temporaries"


@dataclass(frozen=True, slots=True, kw_only=True)
class _StepStart:
    """How much had been noted when a step began."""

    history: int
    events: int
    operations: int
    made: int
    """Storages that had been made."""
    pending: frozenset[int]
    """Numbers of those that had ended, and were not noted yet."""


class MemoryTracker:
    """Allocations and frees in order; `restart` begins the part whose peak is to be known."""

    def __init__(self, batch_size: int = 1) -> None:
        self._batch_size = batch_size
        self._live: dict[int, _Storage] = {}
        self._references: dict[int, weakref.ref[UntypedStorage]] = {}
        self._events: list[tuple[int, _Storage]] = []
        self._at_restart: list[_Storage] = []
        self._history: list[tuple[int, int]] = []
        self._freed: list[_Storage] = []
        """Storages that have ended and are not noted yet."""
        self._storages: list[_Storage] = []
        """All there have been, each at the place of its number."""
        self._op_workspaces: list[_Storage] = []
        """Those of the operation that runs."""
        self._companions: dict[int, _Storage] = {}
        self._operations: list[tuple[int, list[_Storage]]] = []
        """After each operation: how many events there were, and what had ended without one."""
        self._cublas_threads: set[bool] = set()
        self._cublas_workspaces: list[_Storage] = []
        self.step_starts: list[int] = []
        """How long the history was when each step began."""
        self._starts: list[_StepStart] = []
        """More of the last three."""
        self.optional: set[int] = set()
        """Storages that an operator can do without."""
        self.conditions: dict[int, str] = {}
        """Storages that are made only on GPUs that meet a condition."""

    # Tensors

    def add(self, tensor: Tensor, phase: Phase | Literal["before"]) -> None:
        """Note the tensor's storage if it is new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live:
            return
        entry = self._new(storage.nbytes(), phase)
        self._live[key] = entry
        self._references[key] = weakref.ref(storage, lambda _: self._free(key))
        self._events.append((entry.size_bytes, entry))

    def is_live(self, tensor: Tensor) -> bool:
        """Whether the tensor's storage was noted, and lives."""
        return tensor.untyped_storage()._cdata in self._live

    def number_of(self, tensor: Tensor) -> int | None:
        """The number of the tensor's storage; None where it was not noted."""
        entry = self._live.get(tensor.untyped_storage()._cdata)
        return None if entry is None else entry.number

    def set_role(self, role: Role, tensors: Iterable[Tensor]) -> None:
        """Give the storages of these tensors a role; the first role stays."""
        for tensor in tensors:
            self.add(tensor, "before")
            entry = self._live[tensor.untyped_storage()._cdata]
            entry.role = entry.role or role

    def _new(self, size_bytes: int, phase: Phase | Literal["before"]) -> _Storage:
        self._note_freed()
        entry = _Storage(len(self._storages), rounded(size_bytes, _BLOCK_BYTES), phase)
        self._storages.append(entry)
        self._history.append((entry.number, size_bytes))
        return entry

    def _free(self, key: int) -> None:
        entry = self._live.pop(key)
        del self._references[key]
        self._freed.append(entry)
        companion = self._companions.pop(key, None)
        if companion is not None:
            self._freed.append(companion)

    def _note_freed(self) -> None:
        """Note the storages that ended together, in a fixed order.

        What a cache lets go of at once, it lets go of in any order; traces must be comparable.
        """
        for entry in sorted(self._freed, key=lambda entry: entry.number):
            if entry.on_reference:
                self._events.append((-entry.size_bytes, entry))
            self._history.append((entry.number, FREED))
        self._freed.clear()

    # Workspaces

    def add_workspaces(self, workspaces: Sequence[Workspace], phase: Phase, rows: int = 1) -> None:
        """Note what an operator allocates while it runs and frees at its end, stage by stage.

        `rows` is how many its tensors have in their first dimension.
        """
        throughout = self._add_stage(workspaces, 0, phase, rows)
        for stage in sorted({workspace.stage for workspace in workspaces if workspace.stage}):
            self._note_freed()
            self._freed.extend(self._add_stage(workspaces, stage, phase, rows))
        self._freed.extend(throughout)

    @contextlib.contextmanager
    def workspaces_during(self, workspaces: Sequence[Workspace], phase: Phase) -> Iterator[None]:
        """Note what an operator allocates before it makes its results and frees after."""
        entries = self._add_stage(workspaces, 0, phase, 1)
        yield
        self._freed.extend(entries)

    def add_cublas_workspace(self, phase: Phase) -> None:
        """Note the workspace that cuBLAS keeps from a thread's first matrix product on.

        Source: aten/src/ATen/cuda/CublasHandlePool.cpp. Each thread has a handle of its own: the
        user's, and autograd's.
        """
        is_autograd = phase == "backward"
        if is_autograd not in self._cublas_threads:
            self._cublas_threads.add(is_autograd)
            workspace = Workspace(size_bytes=REFERENCE.cublas_bytes, condition=CUBLAS)
            self._cublas_workspaces.append(self._add_workspace(workspace, phase, CUBLAS))

    def add_companion(self, tensor: Tensor, workspace: Workspace, phase: Phase) -> None:
        """Note bytes that some GPUs keep as long as a tensor lives."""
        key = tensor.untyped_storage()._cdata
        if key in self._live and key not in self._companions:
            self._companions[key] = self._add_workspace(workspace, phase, workspace.condition)

    def _add_stage(
        self, workspaces: Sequence[Workspace], stage: int, phase: Phase, rows: int
    ) -> list[_Storage]:
        entries = [
            self._add_workspace(workspace, phase, workspace.condition_for(rows, self._batch_size))
            for workspace in workspaces
            if workspace.stage == stage
        ]
        self._op_workspaces.extend(entries)
        return entries

    def _add_workspace(self, workspace: Workspace, phase: Phase, condition: str) -> _Storage:
        entry = self._new(round(workspace.size_bytes), phase)
        entry.is_workspace = True
        if workspace.optional:
            self.optional.add(entry.number)
        if condition:
            self.conditions[entry.number] = condition
        size_bytes = REFERENCE.workspace_bytes(condition, entry.size_bytes, self._batch_size)
        entry.size_bytes = rounded(round(size_bytes), _BLOCK_BYTES)
        entry.on_reference = size_bytes > 0
        if entry.on_reference:
            self._events.append((entry.size_bytes, entry))
        return entry

    # Steps and operations

    def start_step(self) -> None:
        """Say that a step begins."""
        self.step_starts.append(len(self._history))
        self._starts = [*self._starts[-2:], self._here()]

    def _here(self) -> _StepStart:
        return _StepStart(
            history=len(self._history),
            events=len(self._events),
            operations=len(self._operations),
            made=len(self._storages),
            pending=frozenset(entry.number for entry in self._freed),
        )

    def restart(self) -> None:
        """Begin a new part: what is live now existed before it."""
        self._note_freed()
        self._events.clear()
        self._operations.clear()
        live = (*self._live.values(), *self._companions.values(), *self._cublas_workspaces)
        self._at_restart = [entry for entry in live if entry.on_reference]
        for entry in self._at_restart:
            entry.made_in = "before"

    def end_operation(self) -> None:
        """Say that an operation has run: its results exist, and its workspace until now."""
        freed = [
            entry
            for entry in self._freed
            if entry not in self._op_workspaces and entry.on_reference
        ]
        self._operations.append((len(self._events), freed))
        self._op_workspaces = []

    def finish(self) -> None:
        """Say that the last step is over: what ends from now on is no part of it."""
        self._note_freed()
        self._references.clear()

    # Steps that repeat

    def repeats_step(self) -> bool:
        """Whether the last step made and freed what the one before it did, one by one.

        Then another like it would do the same again, to what this one has left. What a step frees
        may be of the step before it, and of the one before that.
        """
        if len(self._starts) < 3:
            return False
        (first, before, start), end = self._starts, self._here()
        made = end.made - start.made
        if before.made - first.made != made or start.made - before.made != made:
            return False
        steps = (self._storages[each.made : each.made + made] for each in self._starts)
        if not all(all(map(self._are_alike, *pair)) for pair in pairwise(steps)):
            return False
        freed = _freed(self._history[start.history :])
        return min(freed, default=first.made) >= first.made and (
            self._left_at(start, first, made) == self._left_at(end, first, made)
        )

    def _left_at(self, end: _StepStart, first: _StepStart, made: int) -> tuple[set[int], set[int]]:
        """What there was of the last two steps before a place, and what had just ended."""
        freed = _freed(self._history[first.history : end.history])
        numbers = set(range(end.made - 2 * made, end.made)) - freed
        return {n - end.made for n in numbers}, {n - end.made for n in end.pending}

    def _are_alike(self, one: _Storage, other: _Storage) -> bool:
        return (
            (one.size_bytes, one.role, one.is_workspace, one.on_reference)
            == (other.size_bytes, other.role, other.is_workspace, other.on_reference)
            and (one.number in self.optional) == (other.number in self.optional)
            and self.conditions.get(one.number) == self.conditions.get(other.number)
        )

    def repeat_step(self, times: int) -> None:
        """Note the last step so many times more, as if it had run again (`repeats_step`).

        What lives now was then made in the last of them.
        """
        (_, before, start), end = self._starts, self._here()
        made = end.made - start.made
        events = [(change_bytes, entry.number) for change_bytes, entry in self._events]
        operations = [
            (place, [entry.number for entry in freed]) for place, freed in self._operations
        ]
        self._clone(self._storages[start.made :], times)
        self._move_living(before.made, times * made)
        self._events = [(change_bytes, self._storages[number]) for change_bytes, number in events]
        self._operations = [
            (place, [self._storages[number] for number in freed]) for place, freed in operations
        ]
        history = self._history[start.history :]
        events, operations = events[start.events :], operations[start.operations :]
        every = range(1, times + 1)
        self.step_starts += [start.history + turn * len(history) for turn in every]
        self._history += [
            (number + turn * made, size_bytes) for turn in every for number, size_bytes in history
        ]
        self._events += [
            (change_bytes, self._storages[number + turn * made])
            for turn in every
            for change_bytes, number in events
        ]
        self._operations += [
            (place + turn * len(events), [self._storages[n + turn * made] for n in freed])
            for turn in every
            for place, freed in operations
        ]
        self._starts = [_later(start, end, turn) for turn in range(times - 2, times + 1)]

    def _clone(self, entries: Sequence[_Storage], times: int) -> None:
        """Make storages like these, the last there are, so many times more."""
        for turn in range(1, times + 1):
            for entry in entries:
                clone = replace(entry, number=entry.number + turn * len(entries))
                self._storages.append(clone)
                if entry.number in self.optional:
                    self.optional.add(clone.number)
                if entry.number in self.conditions:
                    self.conditions[clone.number] = self.conditions[entry.number]

    def _move_living(self, since: int, places: int) -> None:
        """Let what lives and was made since then take the place of one made so much later."""
        living = (*self._live.values(), *self._companions.values(), *self._freed)
        recent = {entry.number: entry for entry in living if entry.number >= since}
        for number in sorted(recent, reverse=True):
            entry, later = recent[number], self._storages[number + places]
            self._storages[number], self._storages[number + places] = later, entry
            later.number, entry.number = number, number + places

    # What was allocated when

    @property
    def history(self) -> list[tuple[int, int]]:
        """Everything since the beginning, for the model of the allocator."""
        self._note_freed()
        return self._history

    def categories(self) -> dict[int, str]:
        """The field of `Memory` that each storage counts in which lives at `restart` or later."""
        self._note_freed()
        entries = (*self._at_restart, *(entry for _, entry in self._events))
        return {entry.number: entry.category for entry in entries}

    def live_bytes(self) -> list[int]:
        """Bytes allocated at `restart` and after each event since."""
        self._note_freed()
        at_restart = sum(entry.size_bytes for entry in self._at_restart)
        return list(accumulate((change for change, _ in self._events), initial=at_restart))

    def peak(self) -> Memory:
        """What was allocated when most was, since `restart`."""
        live_bytes = self.live_bytes()
        return self.at(live_bytes.index(max(live_bytes)))

    def at(self, event: int) -> Memory:
        """What was allocated after an event; 0 is `restart`."""
        sums = self._sums_at_restart()
        for change_bytes, entry in self._events[:event]:
            sums[entry.category] += change_bytes
        return Memory(**sums)

    def by_operation(self) -> list[Memory]:
        """What was allocated after each operation; after that nearest the peak, at the peak.

        The peak may lie between two operations, at a tensor that was found rather than made.
        """
        live_bytes = self.live_bytes()
        sums = self._sums_at_restart()
        memories, done = [], 0
        for event, freed in self._operations:
            for change_bytes, entry in self._events[done:event]:
                sums[entry.category] += change_bytes
            memories.append(_without(freed, sums))
            done = event
        if memories:
            peak = live_bytes.index(max(live_bytes))
            nearest = bisect_left(self._operations, peak, key=lambda operation: operation[0])
            memories[min(nearest, len(memories) - 1)] = self.at(peak)
        return memories

    def _sums_at_restart(self) -> dict[str, float]:
        sums = {category.name: 0.0 for category in fields(Memory)}
        for entry in self._at_restart:
            sums[entry.category] += entry.size_bytes
        return sums


def _later(start: _StepStart, end: _StepStart, turns: int) -> _StepStart:
    """Where a step begins after so many turns of the one that lies between two places."""
    made = turns * (end.made - start.made)
    return _StepStart(
        history=start.history + turns * (end.history - start.history),
        events=start.events + turns * (end.events - start.events),
        operations=start.operations + turns * (end.operations - start.operations),
        made=start.made + made,
        pending=frozenset(number + made for number in start.pending),
    )


def _freed(history: Sequence[tuple[int, int]]) -> set[int]:
    return {number for number, size_bytes in history if size_bytes == FREED}


def _without(freed: list[_Storage], sums: dict[str, float]) -> Memory:
    """The sums without storages that have ended but were not taken off yet."""
    rest = dict(sums)
    for entry in freed:
        rest[entry.category] -= entry.size_bytes
    return Memory(**rest)
