"""Published training speeds, carried from each GPU to each other one: docs/models/time.md.

    python tools/score_between.py [--other-software] [--half chosen|held-out]

The rows are Lambda's (tests/reference/data/published_speeds.csv), whose steps were traced before:
nothing is traced, and it takes a minute. A pair is a measurement on one GPU and a speed of the same
step on another, published with the same round of software (or, `--other-software`, with another).
What carries was chosen on the pairs between one half of the GPUs, told apart by a hash of the name
(`chosen`); `held-out` are those to the other half.

Exits with 1 if the mean error is worse carried over than alone for any pair of architectures.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from pathlib import Path

from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu
from outlay.plan.placement import calibration
from outlay.predict.evidence import Evidence, MeasuredStep
from outlay.predict.step import Conditions, Placement, predict_step
from outlay.trace.profile import Profile
from outlay.trace.store import read_profile
from outlay.uncertainty import Estimate
from score_steps import rows_in

DATA = Path(__file__).parent.parent / "tests" / "reference" / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A published step on one GPU."""

    gpu: Gpu
    step: str
    software: str
    batch_size: int
    step_s: float

    @property
    def task(self) -> str:
        """What it is on any GPU: one code is TF32 where there is that, and plain fp32 elsewhere."""
        return self.step.replace("_fp32", "_tf32")

    @property
    def is_held_out(self) -> bool:
        """Whether nothing was chosen on its GPU."""
        return int(hashlib.sha256(self.gpu.name.encode()).hexdigest(), 16) % 2 == 1

    def predicted(self, *measured: Speed) -> Estimate:
        """The step's time, alone or with measurements on other GPUs."""
        seen = tuple(
            MeasuredStep(gpu=one.gpu, batch_size=one.batch_size, step_s=one.step_s, holder="gpu")
            for one in measured
        )
        return predict_step(
            profile_of_task(self.task),
            Placement(gpu=self.gpu),
            self.batch_size,
            calibration(),
            largest=1,
            conditions=Conditions(evidence=Evidence(measured=seen)),
        ).step_time_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """A speed predicted alone and carried over from another GPU."""

    source: Speed
    target: Speed
    alone: Estimate
    carried: Estimate


@cache
def profile_of_task(task: str) -> Profile:
    """The step as it was traced."""
    return read_profile(DATA / "published" / f"{task}.json.gz")


def published_speeds() -> list[Speed]:
    """Every published speed once: the median over machines of one kind."""
    times_s = defaultdict(list)
    for row in rows_in(DATA / "published_speeds.csv"):
        size = int(row["batch_size"])
        key = row["gpu"], row["step"], row["software"], size
        times_s[key].append(size / float(row["samples_per_s"]))
    return [
        Speed(
            gpu=find_gpu(gpu).gpu,
            step=step,
            software=software,
            batch_size=size,
            step_s=statistics.median(same),
        )
        for (gpu, step, software, size), same in times_s.items()
    ]


def scores(
    speeds: Sequence[Speed], *, other_software: bool = False, half: str | None = None
) -> Iterator[Score]:
    """Every pair of GPUs, one measurement at a time."""
    alone = {id(speed): speed.predicted() for speed in speeds}
    for source, target in permutations(speeds, 2):
        if source.task != target.task or source.gpu.name == target.gpu.name:
            continue
        if (source.software != target.software) != other_software:
            continue
        if half == "chosen" and (source.is_held_out or target.is_held_out):
            continue
        if half == "held-out" and not target.is_held_out:
            continue
        carried = target.predicted(source)
        yield Score(source=source, target=target, alone=alone[id(target)], carried=carried)


def by_architectures(found: Sequence[Score]) -> dict[str, list[Score]]:
    """The pairs of GPUs from one architecture to another, in alphabetical order."""
    groups = defaultdict(list)
    for score in found:
        names = score.source.gpu.architecture, score.target.gpu.architecture
        groups[" to ".join(names)].append(score)
    return dict(sorted(groups.items()))


def mean_errors(found: Sequence[Score]) -> tuple[float, float]:
    """Alone and carried over: predicted over measured, minus one, as an amount."""
    return (
        statistics.fmean(abs(one.alone.likely / one.target.step_s - 1) for one in found),
        statistics.fmean(abs(one.carried.likely / one.target.step_s - 1) for one in found),
    )


def share_inside(found: Sequence[Score]) -> tuple[float, float]:
    """How many lie within the range, alone and carried over."""
    return (
        statistics.fmean(one.alone.low <= one.target.step_s <= one.alone.high for one in found),
        statistics.fmean(one.carried.low <= one.target.step_s <= one.carried.high for one in found),
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other-software", action="store_true")
    parser.add_argument("--half", choices=("chosen", "held-out"))
    arguments = parser.parse_args()
    found = list(
        scores(published_speeds(), other_software=arguments.other_software, half=arguments.half)
    )
    print("| from, to | pairs | alone: mean error | inside | carried: mean error | inside | |")
    print("| --- " * 7 + "|")
    worse = 0
    for name, some in {**by_architectures(found), "all": found}.items():
        (alone, carried), (before, after) = mean_errors(some), share_inside(some)
        worse += carried > alone
        verdict = "worse" if carried > alone else ""
        print(
            f"| {name} | {len(some)} | {alone:.1%} | {before:.0%} | {carried:.1%} | {after:.0%} "
            f"| {verdict} |"
        )
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
