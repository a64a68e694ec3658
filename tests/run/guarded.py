"""A guard on a fast clock, as a program of its own: the seconds of a window are those of a test.

    python guarded.py FOLDER '{"idle_s": 1.5}' -- COMMAND...

The GPU is a stand-in whose use is in the file `gpu` of the folder: a share, or `unknown`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from outlay.probe.gpu_driver import GpuDevice, GpuReading
from outlay.run.guard import guard_command, guard_run
from outlay.run.rules import HourlyBilling
from outlay.run.supervisor import FolderFiles, Messages, Timing, WatchPlan
from outlay.workload.workload import WatchSettings

FAST = Timing(
    period_s=0.1,
    status_s=0.2,
    terminate_s=1.0,
    end_s=0.3,
    shut_down_s=0.2,
    left_s=1.5,
    agent_s=0.05,
)
FAST_RULES = {"idle_s": 1.5, "stall_s": 1.5, "grace_s": 0.6}


class FileDriver:
    """One GPU, as a file says."""

    vendor = "NVIDIA"
    devices = (GpuDevice(index=0, name="NVIDIA H200", uuid="GPU-1"),)

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, device):
        text = self._path.read_text().strip() if self._path.exists() else "0"
        fraction = None if text == "unknown" else float(text or 0)
        return GpuReading(fraction=fraction, used_bytes=1e9, power_w=100.0)

    def processes(self, device):
        return {}

    def close(self) -> None:
        pass


def main() -> int:
    folder, rules = Path(sys.argv[1]), {**FAST_RULES, **json.loads(sys.argv[2])}
    driver = FileDriver(folder / "gpu")
    if "--" not in sys.argv:
        return guard_run(folder, timing=FAST, driver=driver)
    command = sys.argv[sys.argv.index("--") + 1 :]
    more = {name: rules.pop(name) for name in list(rules) if name in WatchPlan.__slots__}
    if "bill" in more:
        more["bill"] = HourlyBilling(**more["bill"])
    log = folder / "log"
    with log.open("ab") as output:
        return guard_command(
            command,
            WatchPlan(settings=WatchSettings(**rules), **more),
            told=[FolderFiles(folder), Messages()],
            agent=folder / "agent",
            log=log,
            timing=FAST,
            driver=driver,
            output=(output.fileno(), output.fileno()),
        )


if __name__ == "__main__":
    sys.exit(main())
