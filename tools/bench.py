"""Time the commands people wait for, as ratios to a bare Python start: `make bench`.

Bounds: --help within 10 times `python -c pass`; the bundled plan within 3 s; all offers as JSON
within 1.5 s. Exits with 1 if one is missed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUTLAY = [sys.executable, "-m", "outlay.cli.main"]
HELP_RATIO, PLAN_S, OFFERS_S = 10.0, 3.0, 1.5


def seconds(command: list[str], runs: int = 7) -> float:
    """The median wall time of a command."""
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> int:
    """Print the table; 1 if a bound is missed."""
    bare_s = seconds([sys.executable, "-c", "pass"], runs=15)
    rows = [
        ("outlay --help", seconds([*OUTLAY, "--help"]), HELP_RATIO * bare_s),
        ("outlay plan examples/stylenat.toml",
         seconds([*OUTLAY, "plan", "examples/stylenat.toml"], 3), PLAN_S),
        ("outlay offers --json", seconds([*OUTLAY, "offers", "--json"], 3), OFFERS_S),
    ]  # fmt: skip
    print(f"{'python -c pass':36} {bare_s:6.3f} s")
    for name, taken_s, bound_s in rows:
        verdict = "ok" if taken_s <= bound_s else "TOO SLOW"
        print(f"{name:36} {taken_s:6.3f} s  {taken_s / bare_s:5.1f}x bare  "
              f"bound {bound_s:.3f} s  {verdict}")  # fmt: skip
    return int(any(taken_s > bound_s for _, taken_s, bound_s in rows))


if __name__ == "__main__":
    sys.exit(main())
