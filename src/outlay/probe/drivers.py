"""The GPU driver of this machine."""

from __future__ import annotations

from outlay.probe.amd import open_amd
from outlay.probe.gpu_driver import Driver, Missing, NoDriver
from outlay.probe.nvidia import open_nvidia


def open_driver() -> Driver | NoDriver:
    """The first driver that has GPUs, or why none has."""
    missing = []
    for open_vendor in (open_nvidia, open_amd):
        found = open_vendor()
        if not isinstance(found, Missing):
            return found
        missing.append(found)
    return NoDriver(missing=tuple(missing))
