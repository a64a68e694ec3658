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
import itertools
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
class Stretch:
    """Iterations between two lines of the log."""

    begin: int
    end: int
    time_s: float

    @property
    def iteration_s(self) -> float:
        return self.time_s / (self.end - self.begin)


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
    script: Script,
    preset: Preset,
    lines: Lines,
    *,
    from_step: float = WARM_UP_STEPS,
    until_step: float = float("inf"),
) -> OwnClock:
    """The mean step by the script's own lines, from one step to another."""
    each = script.lines_per_step
    stretches = [
        stretch
        for stretch in _stretches(script, preset, lines)
        if stretch.begin >= from_step * each and stretch.end <= until_step * each
    ]
    kept = _without_stalls(stretches)
    iterations = sum(stretch.end - stretch.begin for stretch in kept)
    total_s = sum(stretch.time_s for stretch in kept)
    return OwnClock(
        step_s=total_s / iterations * each if iterations else None,
        steps_timed=iterations // each,
        stretches=len(stretches),
        stretches_left_out=len(stretches) - len(kept),
        last_step=max((at for _, at in _iterations(script, preset, lines) if at), default=0)
        // each,
        peak_mib=_peak_mib(lines),
    )


def _iterations(script: Script, preset: Preset, lines: Lines) -> list[tuple[float, int | None]]:
    """When each line came, and the iteration that it is of, counted over all epochs."""
    per_epoch = (preset.steps_per_epoch or 0) * script.lines_per_step
    found = [(at_s, script.iteration(text)) for at_s, text in lines.lines]
    first = next((at[0] for _, at in found if at), 0)
    return [(at_s, at and (at[0] - first) * per_epoch + at[1]) for at_s, at in found]


def _stretches(script: Script, preset: Preset, lines: Lines) -> list[Stretch]:
    """Between lines that follow each other, in one epoch."""
    per_epoch = (preset.steps_per_epoch or 0) * script.lines_per_step
    stretches = []
    for (from_s, begin), (to_s, end) in itertools.pairwise(_iterations(script, preset, lines)):
        if begin is None or end is None or end <= begin:
            continue
        if per_epoch and script.is_endless:  # a loop may count from 0 or from 1
            is_in_one = (begin - 1) // per_epoch == end // per_epoch
        elif per_epoch and "epoch" in script.line:
            is_in_one = begin // per_epoch == end // per_epoch
        else:
            is_in_one = True
        if is_in_one:
            stretches.append(Stretch(begin=begin, end=end, time_s=to_s - from_s))
    return stretches


def _without_stalls(stretches: list[Stretch]) -> list[Stretch]:
    if not stretches:
        return []
    median_s = statistics.median(stretch.iteration_s for stretch in stretches)
    return [stretch for stretch in stretches if stretch.iteration_s <= STALL * median_s]


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
