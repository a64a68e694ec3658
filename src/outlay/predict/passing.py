"""Time of a pass over memory: bytes at a share of bandwidth, or the instructions of its elements.

    time = launches x start + ( memory^4 + work^4 + serial^4 )^(1/4)

    memory = bytes / (bandwidth x share), faster where everything fits the L2 cache
    work   = (elements x cycles + units x unit) / (multiprocessors x clock)
    serial = elements / units x serial / clock: a unit's elements, one after another

Every family has a row with these numbers in `data/kernel_passes.csv`.
"""

from __future__ import annotations

import math

from outlay.predict.calibration import Calibration
from outlay.predict.kernels import Pass
from outlay.predict.machine import Machine


def pass_s(kernel: Pass, machine: Machine, calibration: Calibration) -> float:
    """Seconds of one pass on one GPU."""
    numbers = calibration.of_pass(kernel.family)
    rate = machine.bytes_per_s * numbers.share
    if kernel.moved_bytes < calibration.number("cache_fill") * machine.cache_bytes:
        rate *= calibration.number("cache_gain")
    memory = kernel.moved_bytes / rate
    work = kernel.elements * numbers.cycles
    alone = 0.0
    if kernel.units != math.inf:
        work += kernel.units * numbers.unit_cycles
        alone = kernel.elements / max(kernel.units, 1.0) * numbers.serial_cycles
        alone /= machine.clock_hz
    work /= machine.cycles_per_s
    started = kernel.launches * numbers.start_s
    longest = max(memory, work, alone)
    if longest <= 0:
        return started
    together = (memory / longest) ** 4 + (work / longest) ** 4 + (alone / longest) ** 4
    return started + longest * math.sqrt(math.sqrt(together))
