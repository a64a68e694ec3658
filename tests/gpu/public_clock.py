"""A clock outside of a script: when each line of its log came through a pipe.

A script prints a line every few iterations, after it has read back a loss, so that the GPU has done
all before it. Two such lines with none between them are so many iterations and so many seconds; an
evaluation, a sample or a checkpoint prints a line of its own, and what has one in it is left out.
Nothing is changed in the script or in Python.

    python tests/gpu/public_clock.py OUT.json nanogpt gpu         # a script of `public/` by itself
    python tests/gpu/public_clock.py OUT.json nanogpt tiny --for 20
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.gpu.public_scripts import SCRIPTS, Preset, Script

WARM_UP_STEPS = 10
STALL = 1.25
"""A stretch of so many times the median has something in it that printed no line: workers that a
new epoch starts, or outlay's own profile."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """What a command printed, with the second at which each line came, and its exit status."""

    lines: tuple[tuple[float, str], ...]
    status: int


@dataclass(frozen=True, kw_only=True)
class OwnClock:
    """What a script's own lines say of its steps."""

    step_s: float | None
    """Mean of a training step, evaluations, checkpoints and new epochs left out; None where too
    few lines came."""
    steps_timed: int
    stretches: int
    stretches_left_out: int
    """Longer than `STALL` times the median."""
    last_step: int
    """The training step of the last line."""
    peak_mib: float | None
    """The largest max_memory_allocated that it printed."""


def run_lines(
    command: Sequence[object], longest_s: float | None = None, **options: object
) -> Lines:
    """Run a command and note when each line of its output came; stop it after so long."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        start_new_session=True,
        **options,  # type: ignore[call-overload]
    )
    until_s = time.monotonic() + longest_s if longest_s else float("inf")
    lines = []
    for text in process.stdout:
        now_s = time.monotonic()
        lines.append((now_s, text.rstrip("\n")))
        if now_s > until_s:
            os.killpg(process.pid, signal.SIGTERM)
            break
    return Lines(lines=tuple(lines), status=process.wait())


def own_clock(
    script: Script, preset: Preset, lines: Lines, *, until_step: float = float("inf")
) -> OwnClock:
    """The mean step by the script's own lines, from the end of warm-up to `until_step`."""
    per_epoch = (preset.steps_per_epoch or 0) * script.lines_per_step
    first_epoch: int | None = None
    before: tuple[float, int] | None = None
    stretches: list[tuple[float, int]] = []
    last = 0
    for at_s, text in lines.lines:
        found = script.iteration(text)
        if found is None:
            before = None
            continue
        first_epoch = found[0] if first_epoch is None else first_epoch
        iteration = (found[0] - first_epoch) * per_epoch + found[1]
        last = max(last, iteration)
        is_new_epoch = (
            before is not None and per_epoch and before[1] // per_epoch < iteration // per_epoch
        )
        if (
            before is not None
            and before[1] < iteration
            and not (is_new_epoch and "epoch" in script.line)
        ):
            steps = (iteration - before[1]) / script.lines_per_step
            begins = before[1] / script.lines_per_step
            if begins >= WARM_UP_STEPS and begins + steps <= until_step:
                stretches.append((at_s - before[0], iteration - before[1]))
        before = at_s, iteration
    kept = _without_stalls(stretches)
    total_s, iterations = sum(s for s, _ in kept), sum(n for _, n in kept)
    return OwnClock(
        step_s=total_s / iterations * script.lines_per_step if iterations else None,
        steps_timed=iterations // script.lines_per_step,
        stretches=len(stretches),
        stretches_left_out=len(stretches) - len(kept),
        last_step=last // script.lines_per_step,
        peak_mib=_peak_mib(lines),
    )


def _without_stalls(stretches: list[tuple[float, int]]) -> list[tuple[float, int]]:
    if not stretches:
        return []
    median_s = statistics.median(seconds / count for seconds, count in stretches)
    return [(seconds, count) for seconds, count in stretches if seconds / count <= STALL * median_s]


def _peak_mib(lines: Lines) -> float | None:
    found = [
        float(value)
        for _, text in lines.lines
        for value in re.findall(r"(?i)mem:? ([\d.]+)MiB", text)
    ]
    return max(found, default=None)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("script", choices=SCRIPTS)
    parser.add_argument("preset", choices=("tiny", "gpu"))
    parser.add_argument(
        "--for", dest="longest_s", type=float, help="seconds after which it is stopped"
    )
    given = parser.parse_args()
    script = SCRIPTS[given.script]
    preset = getattr(script, given.preset)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    lines = run_lines([sys.executable, *script.command(preset)], given.longest_s, env=environment)
    result = {
        "script": given.script,
        "status": lines.status,
        **asdict(own_clock(script, preset, lines)),
    }
    result |= {"samples": preset.samples, "steps_per_epoch": preset.steps_per_epoch}
    Path(given.out).write_text(json.dumps(result, indent=1))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
