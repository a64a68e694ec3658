"""Score predicted changes (`outlay fit`) against those measured on an H200.

    python tools/score_fit.py --traces DIR

Traces are made where DIR has none (needs torch, torchvision and transformers; minutes), one profile
for each model and change of tests/reference/workloads/fitting.py, by the changes that `outlay fit`
makes to a step; the measured steps have them written out by hand.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlay.fit.search import moments_of
from outlay.fit.variants import FitRequest, variant_of
from outlay.hardware.gpu_names import find_gpu
from outlay.plan.placement import calibration
from outlay.trace.profile import Profile
from outlay.trace.store import read_profile, write_profile
from outlay.trace.target import UNCHANGED, Changes
from outlay.trace.tracing import profile_of
from outlay.uncertainty import Estimate
from outlay.units import MIB

REFERENCE = Path(__file__).parent.parent / "tests" / "reference"
MEASURED = REFERENCE / "data" / "h200_fit_2026-11-15.csv"
_SINGLE = {
    "bf16 autocast": Changes(arithmetic="bf16 autocast"),
    "fp16 autocast": Changes(arithmetic="fp16 autocast"),
    "bf16": Changes(arithmetic="bf16"),
    "blocks": Changes(recompute="blocks"),
    "selective": Changes(recompute="selective"),
    "fused": Changes(update="fused"),
    "offloaded": Changes(update="offloaded"),
    "accumulate 4": Changes(accumulate=4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One measured step with its prediction."""

    row: dict[str, str]
    allocated_mib: float
    reserved_mib: float
    step_s: Estimate
    host_bound: bool

    @property
    def memory_error(self) -> float:
        """Predicted over measured, less one."""
        return self.allocated_mib / float(self.row["peak_allocated_mib"]) - 1

    @property
    def reserved_error(self) -> float:
        """Of what the allocator reserves."""
        return self.reserved_mib / float(self.row["peak_reserved_mib"]) - 1

    @property
    def time_error(self) -> float:
        """Of the step's time."""
        return self.step_s.likely * 1e3 / float(self.row["step_ms"]) - 1

    @property
    def covered(self) -> bool:
        """Whether the range holds the measured time."""
        return self.step_s.low <= float(self.row["step_ms"]) / 1e3 <= self.step_s.high


def changes_of(text: str) -> Changes:
    """The changes as the table of measurements names them."""
    found = UNCHANGED
    for name in filter(None, text.split(" + ")):
        found = found.joined(_SINGLE[name]) or found
    return found


def profile(model: str, changes: Changes, folder: Path) -> Profile:
    """The traced step, from the folder where it was traced before."""
    parts = (changes.arithmetic, changes.recompute, changes.update)
    path = folder / f"{model}_{'_'.join(filter(None, parts)) or 'base'}.json.gz".replace(" ", "-")
    if not path.exists():
        target = REFERENCE / "workloads" / f"fitting.py:{model}"
        write_profile(profile_of(str(target), changes=changes), path)
    return read_profile(path)


def scores(folder: Path) -> Iterator[Score]:
    """Every measured step, predicted."""
    from dataclasses import replace

    gpu = find_gpu("H200").gpu
    with MEASURED.open() as file:
        for row in csv.DictReader(file):
            changes = changes_of(row["changes"])
            traced = profile(row["model"], replace(changes, accumulate=1), folder)
            alone = profile(row["model"], UNCHANGED, folder)
            wish = FitRequest(gpu=gpu, batch_size=int(row["batch_size"]), moments=moments_of(alone))
            way = variant_of(traced, changes, wish, calibration())
            # The measured steps keep the samples of all passes on the GPU.
            size, passes = way.step.batch_size, changes.accumulate
            kept = traced.memory_at(size * passes).inputs - traced.memory_at(size).inputs
            yield Score(
                row=row,
                allocated_mib=(way.step.memory.allocated_bytes.likely + kept) / MIB,
                reserved_mib=(way.step.memory.reserved_bytes.likely + kept) / MIB,
                step_s=way.step.step_time_s,
                host_bound=way.step.host_time_s > way.step.device_time_s,
            )


def main(arguments: list[str]) -> None:
    """Print every row and the errors by change."""
    folder = Path(arguments[arguments.index("--traces") + 1])
    folder.mkdir(parents=True, exist_ok=True)
    groups: dict[str, list[Score]] = defaultdict(list)
    for one in scores(folder):
        groups[one.row["changes"] or "as it is"].append(one)
        groups["all"].append(one)
        print(
            f"{one.row['model']:12} {one.row['changes']:38} memory {one.memory_error:+.1%} "
            f"reserved {one.reserved_error:+.1%} time {one.time_error:+.1%} "
            f"({one.row['step_ms']} ms, {one.step_s.likely * 1e3:.1f} predicted"
            f"{', host' if one.host_bound else ''}){'' if one.covered else ' outside'}"
        )
    for name, members in groups.items():
        memory = statistics.mean(abs(one.memory_error) for one in members)
        reserved = statistics.mean(abs(one.reserved_error) for one in members)
        time = statistics.mean(abs(one.time_error) for one in members)
        covered = statistics.mean(one.covered for one in members)
        print(
            f"{name:38} {len(members):3}  memory {memory:.1%}  reserved {reserved:.1%}  "
            f"time {time:.1%}  covered {covered:.0%}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
