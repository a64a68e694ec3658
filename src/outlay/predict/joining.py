"""How far predictions of one step are off on different GPUs, and what one of them says of another.

Some of it is the step's own and the same everywhere, some is each GPU's; measurements on some GPUs
are joined to the best linear estimate for another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outlay.chance import PERCENTILE_90
from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.compute import DeviceTime
from outlay.predict.experience import OwnCalibration, gpu_error

Array = NDArray[np.float64]
_LEAST = 1e-9
_EXPLAINED = 3.0
"""Standard errors: what is slower by more has a reason that the model does not know; at twice that
nothing is left of the other explanation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """What measurements on some GPUs say of another, in logarithms."""

    shares: Array
    """Of each measurement in it."""
    log: float
    error: float
    """What is left of the prediction's."""
    unexplained: float = 0.0
    """How much of what was slower no error of the predictions explains."""
    disagreement: float = 0.0
    """Standard deviation of the GPUs' own parts, beyond what their errors let expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Variances and covariances of the errors of one step, in logarithms.

    Variances are those of a prediction alone. Of the kernels' errors and of the GPUs' own, two GPUs
    share so much that the ratio of two equally known ones is off by `doubt_kept` and `ratio_kept`
    of them: a correlation of 1 - kept^2 / 2.
    """

    device: DeviceTime
    own: OwnCalibration
    calibration: Calibration

    def joined(
        self, gpus: Sequence[Gpu], logs: Array, noise: Sequence[float], target: Gpu
    ) -> Joined:
        """The best linear estimate (no gain below 0, their sum at most 1) of a correction.

        What is off on one GPU is off on another as far as both share it. What is put down to the
        measured GPUs alone is at most their own error: a step that is off by more is another than
        was traced, everywhere. But one that is much slower may also have met a library that chose
        badly on that GPU alone: of what no error explains half is taken, and the range goes from
        none to all of it; of several measured GPUs only what they do not all have. Where they
        differ by more than their errors, another one may as well.
        """
        joint = np.array([[self._covariance(one, other) for other in gpus] for one in gpus])
        joint += np.diag(np.square(noise))
        shared = np.array([self._covariance(one, target) for one in gpus])
        gains = _gains(joint, shared)
        shares = gains / gains.sum()
        whole = float(shares @ logs)
        held_back = whole - float(gains @ logs)
        most = float(shares @ np.array([self._own_error(gpu) for gpu in gpus]))
        if abs(held_back) > most:
            held_back = math.copysign(most, held_back)
            gains = shares * (1 - held_back / whole)
        spread = float(shares @ np.square(logs - whole))
        expected = float(shares @ np.diag(joint) - shares @ joint @ shares)
        beyond = max(spread - expected, 0.0)
        variance = self._variance(target) - 2 * gains @ shared + gains @ joint @ gains
        corrected, error = whole - held_back, math.sqrt(max(float(variance), _LEAST) + beyond)
        explained = _EXPLAINED * float(shares @ np.sqrt(np.diag(joint)))
        unexplained = corrected * min(max(whole / explained - 1, 0.0), 1.0)
        if len(logs) > 1:
            unexplained = min(unexplained, float(np.ptp(logs)))
        return Joined(
            shares=shares,
            log=corrected - unexplained / 2,
            error=error + unexplained / 2 / PERCENTILE_90,
            unexplained=unexplained,
            disagreement=math.sqrt(beyond),
        )

    def _own_error(self, gpu: Gpu) -> float:
        return gpu_error(gpu, self.own, self.calibration)

    def _variance(self, gpu: Gpu) -> float:
        own = self._own_error(gpu)
        return step_error(self.device, self.calibration) ** 2 + own**2

    def _covariance(self, one: Gpu, other: Gpu) -> float:
        if one.name == other.name:
            return self._variance(one)
        number = self.calibration.number
        shared = 1 - number("doubt_kept") ** 2 / 2, 1 - number("ratio_kept") ** 2 / 2
        step = number("error_base") ** 2 + shared[0] * self.device.doubt**2
        return step + shared[1] * self._own_error(one) * self._own_error(other)


def _gains(joint: Array, shared: Array) -> Array:
    """The gains of the best linear estimate; what would count against itself is left out."""
    kept = list(range(len(shared)))
    while True:
        found = np.linalg.solve(joint[np.ix_(kept, kept)], shared[kept])
        if found.min() >= 0:
            break
        del kept[int(found.argmin())]
    gains = np.zeros(len(shared))
    gains[kept] = found / max(float(found.sum()), 1.0)
    return gains


def step_error(device: DeviceTime, calibration: Calibration) -> float:
    """What a step is expected to be off by on any GPU: what all have, and its own kernels' part."""
    return math.hypot(calibration.number("error_base"), device.doubt)
