"""Compare predicted memory and largest batches with measured ones (needs torch).

    python tools/check_memory.py FOLDER

FOLDER has `workloads/`, Python files of steps, and somewhere below it two tables that name a step
as `file:function`:

    calibration.csv            workload, batch, peak_alloc_mib, peak_reserved_mib
    maxbatch_calibration.csv   workload, cap_mib, max_batch, fails_at

Each step is traced once. Exits with 1 if a bar is missed: allocated 2 % off on average and 6 % at
worst; reserved 5 % and 15 %; the largest batch within 5 % or one sample, and below `fails_at`.
"""

from __future__ import annotations

import csv
import statistics
import sys
from functools import cache
from pathlib import Path

from outlay.gpu_names import find_gpu
from outlay.pipeline import calibration
from outlay.predict.memory import largest_batch, memory_need, room_on
from outlay.trace.profile import profile_of
from outlay.trace.trace import Profile
from outlay.units import MIB

Row = dict[str, str]
_PLENTY_BYTES = 1e15


class Checker:
    """Profiles of the workloads in a folder, against the tables in it."""

    def __init__(self, folder: Path, gpu: str) -> None:
        self.folder = folder
        self.gpu = find_gpu(gpu).candidates[0]
        self.profile = cache(self._profile)

    def _profile(self, workload: str) -> Profile:
        module, function = workload.split(":")
        return profile_of(f"{self.folder / 'workloads' / module}.py:{function}")

    def rows(self, name: str) -> list[Row]:
        """The rows of a table, wherever it lies."""
        path = next(self.folder.rglob(name))
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    def peaks(self) -> bool:
        """Print peak memory beside what was measured; whether it is within the bars."""
        errors: dict[str, list[float]] = {"allocated": [], "reserved": []}
        print(f"{'workload':36}{'batch':>6}{'allocated MiB':>15}{'error':>8}", end="")
        print(f"{'reserved MiB':>15}{'error':>8}")
        for row in self.rows("calibration.csv"):
            profile = self.profile(row["workload"])
            room = room_on(self.gpu, cap_bytes=_PLENTY_BYTES)
            need = memory_need(profile, int(row["batch"]), room, calibration(), 0)
            print(f"{row['workload']:36}{row['batch']:>6}", end="")
            for name, estimate, truth in (
                ("allocated", need.allocated_bytes, row["peak_alloc_mib"]),
                ("reserved", need.reserved_bytes, row["peak_reserved_mib"]),
            ):
                errors[name].append(estimate.likely / MIB / float(truth) - 1)
                print(f"{estimate.likely / MIB:15,.0f}{errors[name][-1]:8.1%}", end="")
            print(flush=True)
        fine = True
        for (name, found), (mean_bar, worst_bar) in zip(
            errors.items(), ((0.02, 0.06), (0.05, 0.15)), strict=True
        ):
            mean, worst = statistics.fmean(map(abs, found)), max(map(abs, found))
            print(f"{name}: {mean:.1%} off on average, {worst:.1%} at worst")
            fine = fine and mean <= mean_bar and worst <= worst_bar
        return fine

    def largest(self) -> bool:
        """Print the largest batches beside what was measured; whether they are within the bars."""
        fine = True
        print(f"{'workload':36}{'cap MiB':>9}{'measured':>10}{'fails at':>10}{'predicted':>11}")
        for row in self.rows("maxbatch_calibration.csv"):
            cap_bytes = float(row["cap_mib"]) * MIB
            room = room_on(self.gpu, cap_bytes=cap_bytes)
            found = largest_batch(self.profile(row["workload"]), room, calibration())
            truth, fails_at = int(row["max_batch"]), int(row["fails_at"])
            good = found < fails_at and abs(found - truth) <= max(0.05 * truth, 1)
            fine = fine and good
            print(f"{row['workload']:36}{row['cap_mib']:>9}{truth:10}{fails_at:10}", end="")
            print(f"{found:11}{'' if good else '  missed'}", flush=True)
        return fine


if __name__ == "__main__":
    checker = Checker(Path(sys.argv[1]), *(sys.argv[2:] or ["H200"]))
    results = [checker.peaks(), checker.largest()]
    sys.exit(0 if all(results) else 1)
