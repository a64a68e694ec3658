"""What the agents tell, read as it comes: one `ProcessLog` for each process that trains."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

# What the agent in a training process tells, as values.


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """One call of an optimizer's `step` that has ended, and what happened since the last one."""

    number: int
    """Optimizer steps of this process so far, from 1."""
    optimizer: int
    """Which of the script's optimizers, numbered in the order they were first seen."""
    host_s: float
    """When it returned, on the machine's monotonic clock, which all its processes share."""
    device_s: float | None = None
    """When the GPU had finished it, on a clock of its own; None on the CPU, or not known yet."""
    skipped: int = 0
    """Steps that a gradient scaler left out since the last one."""
    passes: int = 0
    """Backward passes."""
    batches: int = 0
    """Batches that came from DataLoaders."""
    samples: int | None = None
    """Samples in those; None where they could not be counted."""
    wait_s: float = 0.0
    """Waiting for those."""
    cpu_s: float | None = None
    """CPU time of the process, all its threads."""
    evaluated: bool = False
    """Whether a model was put into evaluation mode."""
    saves: int = 0
    """Checkpoints written."""
    saved_s: float = 0.0
    """Writing them."""
    new_epoch: bool = False
    """Whether a DataLoader was started anew."""
    aside: int = 0
    """Batches of DataLoaders that are not trained on."""
    gradless: bool = False
    """Whether most of the time was spent without gradients."""


# Records of one process as columns that grow, so that a look at them takes milliseconds.


Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

COLUMNS = (
    "number",
    "optimizer",
    "host_s",
    "device_s",
    "skipped",
    "passes",
    "batches",
    "samples",
    "wait_s",
    "cpu_s",
    "evaluated",
    "saves",
    "saved_s",
    "new_epoch",
    "aside",
    "gradless",
)
_PLACE = {name: place for place, name in enumerate(COLUMNS)}
_FEW = 1024


class OptimizerStepTable:
    """The optimizer steps of one process; unknown is NaN."""

    def __init__(self, records: Iterable[OptimizerStep] = ()) -> None:
        self._columns: Floats = np.empty((len(COLUMNS), _FEW))
        self._count = 0
        self._last = -math.inf
        self.extend(records)

    def __len__(self) -> int:
        return self._count

    def extend(self, records: Iterable[OptimizerStep]) -> None:
        """Take in new records, and known ones again that now have more (a time on the GPU)."""
        new: list[tuple[float, ...]] = []
        for record in records:
            if record.number > self._last:
                new.append(_row(record))
                self._last = record.number
            else:
                self._append(new)
                new = []
                self._replace(record)
        self._append(new)

    def reached(self, number: int, device_s: float) -> None:
        """Take in when the GPU had finished a step."""
        place = int(np.searchsorted(self.column("number"), number))
        if place < self._count and self._columns[0, place] == number:
            self._columns[_PLACE["device_s"], place] = device_s

    def column(self, name: str) -> Floats:
        """One field of all records."""
        return self._columns[_PLACE[name], : self._count]

    def _append(self, rows: list[tuple[float, ...]]) -> None:
        if not rows:
            return
        count = self._count + len(rows)
        if count > self._columns.shape[1]:
            larger = np.empty((len(COLUMNS), 2 * count))
            larger[:, : self._count] = self._columns[:, : self._count]
            self._columns = larger
        self._columns[:, self._count : count] = np.array(rows).T
        self._count = count

    def _replace(self, record: OptimizerStep) -> None:
        place = int(np.searchsorted(self.column("number"), record.number))
        if self._columns[0, place] == record.number:
            self._columns[:, place] = _row(record)


def _row(record: OptimizerStep) -> tuple[float, ...]:
    return (
        record.number,
        record.optimizer,
        record.host_s,
        math.nan if record.device_s is None else record.device_s,
        record.skipped,
        record.passes,
        record.batches,
        math.nan if record.samples is None else record.samples,
        record.wait_s,
        math.nan if record.cpu_s is None else record.cpu_s,
        record.evaluated,
        record.saves,
        record.saved_s,
        record.new_epoch,
        record.aside,
        record.gradless,
    )


LOSSES_KEPT = 2000
_STAGE = 20
"""Steps after which another process that began later is a stage of its own."""
_TRAINS = 10
"""Optimizer steps from which on a process is more than a test of one."""
_REPEATED = frozenset({"optimizer", "loader", "failed"})
"""What is told more than once, and kept in a list."""


@dataclass(slots=True)
class ProcessLog:
    """Everything one process has told so far."""

    table: OptimizerStepTable = field(default_factory=OptimizerStepTable)
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
                self.table = OptimizerStepTable()
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

    def is_before(self, other: ProcessLog) -> bool:
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
        self._told: dict[Path, ProcessLog] = {}
        self._settled: list[ProcessLog] | None = None

    def read(self) -> None:
        """Take in what has been written since the last time."""
        for path in sorted(self._folder.glob("*.lines")):
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                data = file.read()
            whole, _, _ = data.rpartition(b"\n")
            if whole:
                self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + 1
                self._told.setdefault(path, ProcessLog()).hear(whole.split(b"\n"))

    @property
    def everyone(self) -> list[ProcessLog]:
        """Every process that imported torch."""
        return list(self._told.values())

    @property
    def training(self) -> list[ProcessLog]:
        """The processes that train, by rank."""
        return training_of(self.everyone) if self._settled is None else self._settled

    def settle(self) -> None:
        """Stay with the processes that were timed: another may overtake them afterwards."""
        self._settled = self.training


def training_of(told: Iterable[ProcessLog]) -> list[ProcessLog]:
    """The processes that train: those with many steps, of each rank the one with the most.

    Of stages that follow each other, the last: that is the one which goes on.
    """
    stepping = [one for one in told if one.last_step]
    later = [one for one in stepping if one.last_step >= _STAGE]
    stepping = [one for one in stepping if not any(one.is_before(other) for other in later)]
    most = max((one.last_step for one in stepping), default=0)
    best: dict[int, ProcessLog] = {}
    for one in sorted(stepping, key=lambda one: -one.last_step):
        if one.last_step * 4 >= most:
            best.setdefault(int(one.process.get("rank", 0)), one)
    return [best[rank] for rank in sorted(best)]


def beside(told: Sequence[ProcessLog], everyone: Iterable[ProcessLog]) -> list[ProcessLog]:
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
