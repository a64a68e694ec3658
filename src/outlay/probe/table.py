"""Records of one process as columns that grow, so that a look at them takes milliseconds."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from outlay.probe.records import OptimizerStep

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


class StepTable:
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
