"""A script of `scripts/` under `outlay probe`, as a program of its own, and what came of it."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from outlay.measurement.file import read_measurement
from outlay.measurement.measurement import Measurement, StepTime
from outlay.report.schemas import schema

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(__file__).parent / "scripts"
STAND_IN = Path(__file__).parent / "stand_in"
PYTHON = sys.executable
OUTLAY = (PYTHON, "-m", "outlay", "probe")
LONGEST_S = 180.0
"""What a probe may take on a machine that others keep busy; on an idle one it takes some 5 s."""


@dataclass(frozen=True, kw_only=True)
class Probed:
    """How a probe ended, what it wrote, and what the script measured by itself."""

    code: int
    out: str
    err: str
    folder: Path

    @functools.cached_property
    def measurement(self) -> Measurement:
        """What was written, once it is known to be as the schema says."""
        path = self.folder / "probe.json"
        jsonschema.validate(json.loads(path.read_bytes()), _schema())
        return read_measurement(path)

    @property
    def step(self) -> StepTime:
        """The step time, where there is one."""
        assert self.measurement.step is not None
        return self.measurement.step

    def own_s(self, name: str = "clock.json") -> list[float]:
        """When the script says its steps ended."""
        times_s: list[float] = json.loads((self.folder / name).read_bytes())
        return times_s

    def own_usual_mean_s(self, pause_after: int) -> float:
        """The script's own mean over the steps that outlay counted, where it pauses now and then.

        It does so after every `pause_after` steps; the counted ones are the last of the others.
        """
        own_s, seen = self.own_s(), self.measurement.steps_seen
        usual_s = [own_s[n] - own_s[n - 1] for n in range(1, seen) if n % pause_after]
        counted_s = usual_s[-self.step.steps :]
        return sum(counted_s) / len(counted_s)

    def own_mean_s(self, name: str = "clock.json", *, each: int = 1) -> float:
        """The script's own mean over the steps that outlay counted, `each` of its own in one.

        Those are the last ones of the timing; only for scripts without pauses in them.
        """
        own_s, steps, counted = self.own_s(name), self.measurement.steps_seen, self.step.steps
        return (own_s[steps * each - 1] - own_s[(steps - counted) * each - 1]) / counted


@functools.cache
def _schema() -> Any:
    return schema("measurement")


def environment(**more: str) -> dict[str, str]:
    """That of the tests, with this outlay in front and a few threads."""
    given = filter(None, [more.pop("PYTHONPATH", "")])
    path = os.pathsep.join([str(ROOT / "src"), *given, str(STAND_IN)])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def start(folder: Path, *arguments: object, prefix: Sequence[str] = (), **env: str) -> Any:
    """`outlay probe` with these arguments, running; its output goes into files."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        return subprocess.Popen(
            [*prefix, *OUTLAY, *map(str, arguments)],
            cwd=folder,
            env=environment(OUTLAY_DATA=str(folder / "own"), **env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )


def ended(process: Any, folder: Path, longest_s: float = LONGEST_S) -> Probed:
    """What came of it; fails where it does not end."""
    try:
        code = process.wait(longest_s)
    finally:
        if process.poll() is None:
            process.kill()
    return Probed(
        code=code,
        out=(folder / "out").read_text(),
        err=(folder / "err").read_text(),
        folder=folder,
    )


def probe(folder: Path, *arguments: object, **env: str) -> Probed:
    """Probe a command to its end; `probe.json` is written."""
    return ended(start(folder, "--json", "probe.json", *arguments, **env), folder)


def probe_script(folder: Path, name: str, *more: object, options: Sequence[object] = ()) -> Probed:
    """Probe a script of ours, which writes its own times to `clock.json`."""
    command = ("--", PYTHON, SCRIPTS / name, "clock.json", *more)
    return probe(folder, *options, *command)


def wait_for(condition: Callable[[], object], longest_s: float = LONGEST_S) -> None:
    """Wait until something is so; fails where it does not come about."""
    until_s = time.monotonic() + longest_s
    while not condition():
        assert time.monotonic() < until_s, "it never came about"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process is there and more than a dead one that nobody has waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def end(pid: int) -> None:
    """End a process that a test is done with."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def at_a_terminal(folder: Path, *command: object, size: tuple[int, int] | None = None) -> str:
    """Everything that a terminal of so many rows and columns gets of a command that ends well."""
    import pty  # there is none on Windows

    master, slave = pty.openpty()
    if size is not None:
        rows, columns = map(str, size)
        subprocess.run(["stty", "rows", rows, "cols", columns], stdin=slave, check=True)
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=folder,
        env=environment(OUTLAY_DATA=str(folder / "own"), TERM="xterm"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    output = b""
    with os.fdopen(master, "rb", buffering=0) as terminal:
        while True:
            try:
                output += terminal.read(65536)
            except OSError:  # all have let go of it
                break
    assert process.wait() == 0
    return output.decode()
