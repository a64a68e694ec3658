"""Score predicted scaling against published training on several GPUs.

    python tools/score_scaling.py [--rows] [later]

The rows are Lambda's (github.com/lambdal/deeplearning-benchmark) as efficiencies, throughput of n
GPUs over n times that of one; `later` are those that nothing was chosen on. The time of one GPU is
the published one, so that scaling alone is scored; gradients are those of the code that was run.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outlay.hardware.gpu_names import find_gpu
from outlay.hardware.gpus import Gpu
from outlay.plan.placement import calibration
from outlay.predict.network import Wiring, fabric_of
from outlay.predict.parallel_time import CommunicationLoad, PhaseTimes, Site, parallel_step_time
from outlay.predict.strategy import Strategy

PUBLISHED = (
    Path(__file__).parent.parent / "tests" / "reference" / "data" / "published_efficiency.csv"
)
PARAMETERS = {
    "resnet50": 25_557_032,
    "bert_base_squad": 108_893_186,
    "bert_large_squad": 334_094_338,
    # As its authors publish them, or as counted in their code.
    "ssd": 22_900_000,
    "gnmt": 160_671_297,
    "waveglow": 268_100_000,
}
READY = {
    "resnet50": "0.004 0.03 0.03 0.04 0.065 0.065 0.09 0.09 0.12 0.12 0.17 0.22 0.29 0.35 0.4 1",
    "bert_base_squad": "0.085 0.17 0.24 0.33 0.4 0.49 0.54 0.62 0.7 0.78 0.86 0.94 1 1 1 1",
    "bert_large_squad": "0.06 0.13 0.21 0.27 0.34 0.42 0.48 0.55 0.62 0.68 0.76 0.83 0.89 0.96 1 1",
}
"""When gradients are finished, from traces of tests/reference/workloads/published.py."""
EVENLY = tuple((i + 1) / 16 for i in range(16))
SAMPLES = {"gnmt": 57.0, "waveglow": 8000.0}
"""What the published throughput counts in one sample: tokens of a sentence pair, audio samples."""
BACKWARD = 2 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One published efficiency and its prediction."""

    row: dict[str, str]
    measured: float
    low: float
    likely: float
    high: float

    @property
    def error(self) -> float:
        """Predicted less measured."""
        return self.likely - self.measured

    @property
    def covered(self) -> bool:
        """Whether the range holds the published figure."""
        return self.low <= self.measured <= self.high


def scores(*, later: bool) -> Iterator[Score]:
    """Every row, predicted."""
    with PUBLISHED.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["host"].startswith("later") is later:
                yield score(row)


def score(row: dict[str, str]) -> Score:
    """One row, predicted."""
    gpus, task = int(row["num_gpus"]), row["task"]
    size = float(row["batch_per_gpu_1"]) * SAMPLES.get(task, 1.0)
    step_s = size / float(row["throughput_1"])
    gpu = _gpu(row)
    wiring = Wiring(gpu_link="bridge") if _is_bridged(row) else Wiring()
    fabric = fabric_of(gpu, gpus, wiring, calibration())
    phases = PhaseTimes(
        forward_s=step_s * (1 - BACKWARD),
        backward_s=step_s * BACKWARD,
        update_s=0.0,
        host_pass_s=0.0,
        host_update_s=0.0,
    )
    load = _load(row)
    likely, slow, fast = (
        step_s
        / parallel_step_time(
            phases, load, Strategy(data=gpus), Site(gpus=gpus), fabric, case, 1, calibration()
        ).total_s
        for case in ("likely", "slow", "fast")
    )
    return Score(row=row, measured=float(row["efficiency"]), low=slow, likely=likely, high=fast)


def _gpu(row: dict[str, str]) -> Gpu:
    """Of several forms, the one with NVLink where the row says so."""
    forms = find_gpu(row["gpu"]).candidates
    joined = (
        [gpu for gpu in forms if gpu.nvlink_reach in ("all", "mesh")]
        if row["nvlink"] == "yes"
        else []
    )
    return (*joined, *forms)[0]


def _is_bridged(row: dict[str, str]) -> bool:
    return row["nvlink"] == "yes" and _gpu(row).nvlink_reach == "pair"


def _load(row: dict[str, str]) -> CommunicationLoad:
    """fp16 rows of BERT and GNMT ran with models in fp16, whose gradients are, too."""
    task = row["task"]
    width = 2 if row["precision"].startswith("fp16") and task != "ssd" else 4
    width = 4 if task in ("resnet50", "waveglow") else width
    size = float(width * PARAMETERS[task])
    return CommunicationLoad(
        gradient_bytes=size,
        gathered_bytes=size,
        blocks=0,
        block_bytes=0.0,
        rest_bytes=0.0,
        block_output_bytes=0.0,
        ready=tuple(map(float, READY[task].split())) if task in READY else EVENLY,
    )


def main(arguments: list[str]) -> None:
    """Print the errors by task and by GPU."""
    found = list(scores(later="later" in arguments))
    for name in ("task", "gpu", "num_gpus"):
        groups: dict[str, list[Score]] = defaultdict(list)
        for one in found:
            groups[one.row[name]].append(one)
        for key, members in sorted(groups.items()):
            _print(f"{name} {key}", members)
    _print("all", found)
    if "--rows" in arguments:
        for one in sorted(found, key=lambda one: -abs(one.error)):
            row = one.row
            print(
                f"{row['host']:28} {row['task']:16} {row['precision']:9} measured "
                f"{one.measured:.2f} predicted {one.low:.2f} {one.likely:.2f} {one.high:.2f}"
            )


def _print(name: str, members: list[Score]) -> None:
    error = statistics.mean(abs(one.error) for one in members)
    bias = statistics.mean(one.error for one in members)
    covered = statistics.mean(one.covered for one in members)
    width = statistics.mean(one.high - one.low for one in members)
    print(
        f"{name:28} {len(members):4} rows  error {error:.3f}  bias {bias:+.3f}  "
        f"covered {covered:.0%}  width {width:.2f}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
