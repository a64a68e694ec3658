"""The lines that agents write, read as they come: one `ProcessLog` for each process that trains.

OptimizerStepTable  the steps of one process as columns that grow, so that reading takes little
ProcessLog          everything one process has reported
Listener            reads the files of all processes, and says which of them train

What a line holds is defined in `outlay.probe.agent.protocol`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from outlay.probe.agent.protocol import (
    DEVICE_TIME,
    LINES_SUFFIX,
    STEP,
    STEP_FIELDS,
    GpuFinishTime,
    LoaderInfo,
    Loss,
    MemoryPeaks,
    ModuleInputs,
    OptimizerInfo,
    PhaseFailed,
    ProcessInfo,
    StepOperations,
    StepsDiscarded,
    StepValues,
    parse_report,
)

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

# Steps as columns

COLUMNS = (*STEP_FIELDS, "device_s")
"""The fields of a step, and when the GPU had finished it."""
_PLACE = {name: place for place, name in enumerate(COLUMNS)}
_NUMBER, _SAMPLES, _DEVICE_S = (_PLACE[name] for name in ("number", "samples", "device_s"))
_FIRST_ROWS = 1024


class OptimizerStepTable:
    """The optimizer steps of one process; unknown is NaN."""

    def __init__(self, steps: Iterable[StepValues] = ()) -> None:
        self._columns: Floats = np.empty((len(COLUMNS), _FIRST_ROWS))
        self._count = 0
        self.extend(steps)

    def __len__(self) -> int:
        return self._count

    def extend(self, steps: Iterable[StepValues]) -> None:
        """Take in steps, the values of each in the order of `STEP_FIELDS`."""
        self._append(list(steps))

    def set_device_time(self, number: int, device_s: float) -> None:
        """Fill in when the GPU had finished a step."""
        place = self._place_of(number)
        if place is not None:
            self._columns[_DEVICE_S, place] = device_s

    def column(self, name: str) -> Floats:
        """One field of all steps."""
        return self._columns[_PLACE[name], : self._count]

    def _append(self, steps: list[StepValues]) -> None:
        if not steps:
            return
        count = self._count + len(steps)
        if count > self._columns.shape[1]:
            larger = np.empty((len(COLUMNS), 2 * count))
            larger[:, : self._count] = self._columns[:, : self._count]
            self._columns = larger
        self._columns[:, self._count : count] = _rows(steps).T
        self._count = count

    def _place_of(self, number: float) -> int | None:
        place = int(np.searchsorted(self.column("number"), number))
        is_known = place < self._count and self._columns[_NUMBER, place] == number
        return place if is_known else None


def _rows(steps: list[StepValues]) -> Floats:
    """A row for each step; the time on the GPU is not known yet."""
    rows = np.full((len(steps), len(COLUMNS)), math.nan)
    rows[:, :_DEVICE_S] = steps
    rows[rows[:, _SAMPLES] == 0, _SAMPLES] = math.nan
    return rows


# One process

MOST_LOSSES = 2000
Report = TypeVar("Report")
_REPEATED = (OptimizerInfo, LoaderInfo, PhaseFailed, StepOperations)
"""Reports that come more than once, and are all kept; of others the last one is."""


@dataclass(slots=True)
class ProcessLog:
    """Everything one process has reported so far."""

    table: OptimizerStepTable = field(default_factory=OptimizerStepTable)
    peak_allocated_bytes: float | None = None
    peak_reserved_bytes: float | None = None
    losses: list[tuple[int, float | None]] = field(default_factory=list)
    last_step: int = 0
    _last: dict[type[Any], Any] = field(default_factory=dict)
    _all: dict[type[Any], list[Any]] = field(default_factory=dict)

    def read_lines(self, lines: Iterable[bytes]) -> None:
        """Take in lines; one that was cut off by the death of its process is left out."""
        steps: list[StepValues] = []
        times: list[GpuFinishTime] = []
        for line in lines:
            try:
                kind, *values = json.loads(line)
            except (ValueError, TypeError):
                continue
            if kind == STEP:
                steps.append(values)
            elif kind == DEVICE_TIME:
                times.append(GpuFinishTime(*values))
            else:
                report = parse_report(kind, *values)
                if isinstance(report, StepsDiscarded):
                    self.table = OptimizerStepTable()
                    steps.clear()
                self.add(report)
        self.table.extend(steps)
        for time in times:
            self.table.set_device_time(*time)
        if steps:
            self.last_step = int(steps[-1][_NUMBER])

    def add(self, report: Any) -> None:
        """Take in one of the reports of `protocol`."""
        if isinstance(report, MemoryPeaks):
            allocated, reserved = self.peak_allocated_bytes or 0.0, self.peak_reserved_bytes or 0.0
            if report.given_back_allocated_bytes:  # those before had cuDNN's search in them
                allocated = reserved = 0.0
            self.peak_allocated_bytes = max(allocated, float(report.allocated_bytes))
            self.peak_reserved_bytes = max(reserved, float(report.reserved_bytes))
            self._last[MemoryPeaks] = report
        elif isinstance(report, Loss):
            self.losses.append((report.step, report.value))
            if len(self.losses) > MOST_LOSSES:
                del self.losses[1::2]
        elif isinstance(report, _REPEATED):
            self._all.setdefault(type(report), []).append(report)
        else:
            self._last[type(report)] = report
            if isinstance(report, ModuleInputs):
                self._all.setdefault(ModuleInputs, []).append(report)

    def last(self, kind: type[Report]) -> Report | None:
        """The last report of a kind; None where there was none."""
        report: Report | None = self._last.get(kind)
        return report

    def all(self, kind: type[Report]) -> list[Report]:
        """All reports of a kind that comes more than once."""
        return self._all.get(kind, [])

    def ended_before(self, other: ProcessLog) -> bool:
        """Whether its steps were over before another's began."""
        if not self.last_step or not other.last_step:
            return False
        return bool(self.table.column("host_s")[-1] < other.table.column("host_s")[0])

    @property
    def process(self) -> ProcessInfo:
        """What the process said of itself at its first step; nothing before."""
        return self.last(ProcessInfo) or ProcessInfo()

    @property
    def gpu_name(self) -> str | None:
        """What the GPU it computes on answers to in the driver; None on the CPU."""
        return self.process.uuid or self.process.bus


# All processes of a command

_STAGE_STEPS = 20
"""Steps after which another process that began later is a stage of its own."""
_TRAINING_STEPS = 10
"""Optimizer steps from which on a process is more than a test of one."""
_RANK_FRACTION = 0.25
"""Of the steps of the process with most: one with fewer is no rank of the same run."""


class Listener:
    """Reads the files that agents write into a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_bytes: dict[Path, int] = {}
        self._logs: dict[Path, ProcessLog] = {}
        self._timed: list[ProcessLog] | None = None

    def read(self) -> None:
        """Take in what has been written since the last time."""
        for path in sorted(self._folder.glob(f"*{LINES_SUFFIX}")):
            with path.open("rb") as file:
                file.seek(self._read_bytes.get(path, 0))
                data = file.read()
            whole, _, _ = data.rpartition(b"\n")
            if whole:
                self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + 1
                self._logs.setdefault(path, ProcessLog()).read_lines(whole.split(b"\n"))

    @property
    def all_logs(self) -> list[ProcessLog]:
        """Every program that imported torch; a process may be several, one after the other."""
        return list(self._logs.values())

    @property
    def training_logs(self) -> list[ProcessLog]:
        """The processes that train, by rank."""
        return training_ranks(self.all_logs) if self._timed is None else self._timed

    def freeze_ranks(self) -> None:
        """Stay with the processes that were timed: another may overtake them afterwards."""
        self._timed = self.training_logs


def training_ranks(logs: Iterable[ProcessLog]) -> list[ProcessLog]:
    """The processes that train: those with many steps, of each rank the one with the most.

    Of stages that follow each other, the last: that is the one which goes on.
    """
    stepping = [log for log in logs if log.last_step]
    stages = [log for log in stepping if log.last_step >= _STAGE_STEPS]
    stepping = [log for log in stepping if not any(log.ended_before(stage) for stage in stages)]
    most = max((log.last_step for log in stepping), default=0)
    ranks: dict[int, ProcessLog] = {}
    for log in sorted(stepping, key=lambda log: -log.last_step):
        if log.last_step >= _RANK_FRACTION * most:
            ranks.setdefault(log.process.rank, log)
    return [ranks[rank] for rank in sorted(ranks)]


def other_training(logs: Sequence[ProcessLog], all_logs: Iterable[ProcessLog]) -> list[ProcessLog]:
    """Processes that train by themselves: no ranks of the run that is measured."""
    ranks = {id(log) for log in logs}
    return [log for log in all_logs if log.last_step >= _TRAINING_STEPS and id(log) not in ranks]
