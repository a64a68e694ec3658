"""What the agents tell, read as it comes: one `Told` for each process that trains."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlay.probe.records import OptimizerStep
from outlay.probe.table import StepTable

LOSSES_KEPT = 2000
_STAGE = 20
"""Steps after which another process that began later is a stage of its own."""
_TRAINS = 10
"""Optimizer steps from which on a process is more than a test of one."""
_REPEATED = frozenset({"optimizer", "loader", "failed"})
"""What is told more than once, and kept in a list."""


@dataclass(slots=True)
class Told:
    """Everything one process has told so far."""

    table: StepTable = field(default_factory=StepTable)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What is told once: `process`, `kernels`, `operations`, `held`, `versions`, `oom` ..."""
    lists: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    peak_allocated_bytes: float | None = None
    peak_reserved_bytes: float | None = None
    losses: list[tuple[int, float | None]] = field(default_factory=list)
    last_step: int = 0

    def hear(self, lines: Iterable[bytes]) -> None:
        """Take in lines; one that was cut off by a death is left out."""
        steps = []
        times = []
        for line in lines:
            try:
                values = json.loads(line)
                kind = values[0]
            except (ValueError, IndexError, TypeError):
                continue
            if kind == "s":
                steps.append(_step(values))
            elif kind == "g":
                times.append((values[1], values[2]))
            elif kind == "anew":  # what were taken for steps before are none
                self.table = StepTable()
                steps.clear()
            else:
                self._hear_one(kind, values)
        self.table.extend(steps)
        for number, device_s in times:
            self.table.reached(number, device_s)
        if steps:
            self.last_step = steps[-1].number

    def _hear_one(self, kind: str, values: list[Any]) -> None:
        if kind == "m":
            self.peak_allocated_bytes = max(self.peak_allocated_bytes or 0.0, float(values[3]))
            self.peak_reserved_bytes = max(self.peak_reserved_bytes or 0.0, float(values[4]))
        elif kind == "l":
            self._keep_loss(values[1], values[2])
        elif kind in _REPEATED:
            self.lists.setdefault(kind, []).append(values[1])
        else:
            self.facts[kind] = values[1]

    def _keep_loss(self, step: int, value: float | None) -> None:
        self.losses.append((step, value))
        if len(self.losses) > LOSSES_KEPT:
            del self.losses[1::2]

    def is_before(self, other: Told) -> bool:
        """Whether its steps were over before another's began."""
        if not self.last_step or not other.last_step:
            return False
        return bool(self.table.column("host_s")[-1] < other.table.column("host_s")[0])

    @property
    def process(self) -> Mapping[str, Any]:
        """What the process said of itself at its first step; empty before."""
        return self.facts.get("process", {})

    @property
    def gpu_name(self) -> str | None:
        """What the GPU it computes on answers to in the driver; None on the CPU."""
        name: str | None = self.process.get("uuid") or self.process.get("bus")
        return name


class Listener:
    """Reads the files that agents write into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: dict[Path, int] = {}
        self._told: dict[Path, Told] = {}
        self._settled: list[Told] | None = None

    def read(self) -> None:
        """Take in what has been written since the last time."""
        for path in sorted(self._folder.glob("*.lines")):
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                data = file.read()
            whole, _, _ = data.rpartition(b"\n")
            if whole:
                self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + 1
                self._told.setdefault(path, Told()).hear(whole.split(b"\n"))

    @property
    def everyone(self) -> list[Told]:
        """Every process that imported torch."""
        return list(self._told.values())

    @property
    def training(self) -> list[Told]:
        """The processes that train, by rank."""
        return training_of(self.everyone) if self._settled is None else self._settled

    def settle(self) -> None:
        """Stay with the processes that were timed: another may overtake them afterwards."""
        self._settled = self.training


def training_of(told: Iterable[Told]) -> list[Told]:
    """The processes that train: those with many steps, of each rank the one with the most.

    Of stages that follow each other, the last: that is the one which goes on.
    """
    stepping = [one for one in told if one.last_step]
    later = [one for one in stepping if one.last_step >= _STAGE]
    stepping = [one for one in stepping if not any(one.is_before(other) for other in later)]
    most = max((one.last_step for one in stepping), default=0)
    best: dict[int, Told] = {}
    for one in sorted(stepping, key=lambda one: -one.last_step):
        if one.last_step * 4 >= most:
            best.setdefault(int(one.process.get("rank", 0)), one)
    return [best[rank] for rank in sorted(best)]


def beside(told: Sequence[Told], everyone: Iterable[Told]) -> list[Told]:
    """Processes that train by themselves: no ranks of the run that is measured."""
    known = {id(one) for one in told}
    return [one for one in everyone if one.last_step >= _TRAINS and id(one) not in known]


def _step(values: list[Any]) -> OptimizerStep:
    """The record in a line; `agent.watch.Since.line` writes it."""
    _, number, optimizer, host_s, skipped, passes, batches, samples, wait_s, cpu_s = values[:10]
    evaluated, saves, saved_s, new_epoch, aside, gradless = values[10:]
    return OptimizerStep(
        number=number,
        optimizer=optimizer,
        host_s=host_s,
        skipped=skipped,
        passes=passes,
        batches=batches,
        samples=samples or None,
        wait_s=wait_s,
        cpu_s=cpu_s,
        evaluated=bool(evaluated),
        saves=saves,
        saved_s=saved_s,
        new_epoch=bool(new_epoch),
        aside=aside,
        gradless=bool(gradless),
    )
