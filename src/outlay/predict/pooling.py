"""All that was measured on one GPU as one measurement, for the batch that is asked for.

Each counts by how near its batch is and by how well it is known itself. Nothing averages out of
what each may be off by, and where they scatter by more than that, so much is open:

    weight = 1 / ( (log 1.1)² + log(batch / asked batch)² ) / own error²
    ratio  = Σ weight · measured / predicted                  weights add up to 1
    error² = max( Σ weight · error², Σ weight · log(one ratio / ratio)² )
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outlay.hardware import Gpu
from outlay.predict.calibration import Calibration
from outlay.predict.compute import DeviceTime
from outlay.predict.experience import Seen
from outlay.predict.joining import step_error
from outlay.predict.told import Told, power_speed

_LEAST = 1e-9
_SAME_BATCH = math.log(1.1)
"""Batch sizes this near say about as much of each other as the same one."""
_FAR = math.log(4)
"""Batch sizes this far apart, or further, say equally little of each other."""
_WORTH_NAMING = 0.1

Pair = tuple[Seen, Told]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """What all measurements on one GPU tell together of its kernels."""

    seen: tuple[Seen, ...]
    """Those that count for something, by batch size."""
    device: float
    """Measured over predicted."""
    busy_s: float
    idle_s: float
    noise: float
    """What `device` may be off by, relative: each one's own error, or their scatter."""

    @property
    def gpu(self) -> Gpu:
        """Where they were taken."""
        return self.seen[0].gpu

    def left_idle_s(self, device_s: float) -> float:
        """What is left of pauses: kernels that take longer fill them, since the host goes on."""
        return max(self.idle_s - max(device_s - self.busy_s, 0.0), 0.0)


def pooled_by_gpu(
    told: Sequence[Pair], batch_size: int, device: DeviceTime, calibration: Calibration
) -> list[Pooled]:
    """One for each GPU, in the order they were given in; within a GPU no order matters."""
    by_gpu: dict[str, list[Pair]] = {}
    for pair in told:
        by_gpu.setdefault(pair[0].gpu.name, []).append(pair)
    return [
        _pooled(sorted(same, key=_rank), batch_size, device, calibration)
        for same in by_gpu.values()
    ]


def own_variance(seen: Seen, calibration: Calibration) -> float:
    """What a measurement itself is off by at its own batch: how steps repeat, and its limit."""
    lost = 1 - power_speed(seen, calibration)
    limit = calibration.number("power_loss_error") * lost
    return calibration.number("error_of_repeats") ** 2 + seen.error**2 + limit**2 + _LEAST**2


def _pooled(
    told: Sequence[Pair], batch_size: int, device: DeviceTime, calibration: Calibration
) -> Pooled:
    weights = _weights([seen for seen, _ in told], batch_size, calibration)
    ratio = _mean(weights, [one.device for _, one in told])
    known = [_variance(seen, batch_size, device, calibration) for seen, _ in told]
    scatter = [math.log(one.device / ratio) ** 2 for _, one in told]
    return Pooled(
        seen=tuple(
            seen
            for weight, (seen, _) in zip(weights, told, strict=True)
            if weight >= _WORTH_NAMING * max(weights)
        ),
        device=ratio,
        busy_s=_mean(weights, [one.busy_s for _, one in told]),
        idle_s=_mean(weights, [one.idle_s for _, one in told]),
        noise=math.sqrt(max(_mean(weights, known), _mean(weights, scatter))),
    )


def _weights(seen: Sequence[Seen], batch_size: int, calibration: Calibration) -> list[float]:
    """How much each counts: no jump in the middle of two, and the nearest by far where it is."""
    each = [
        1 / (_SAME_BATCH**2 + _apart(one, batch_size) ** 2) / own_variance(one, calibration)
        for one in seen
    ]
    return [one / sum(each) for one in each]


def _mean(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _variance(seen: Seen, batch_size: int, device: DeviceTime, calibration: Calibration) -> float:
    """What a measurement may be off by at another batch: so much more of the step's own error."""
    far = min(_apart(seen, batch_size) / _FAR, 1.0)
    kept = calibration.number("batch_kept") * far * step_error(device, calibration)
    return own_variance(seen, calibration) + float(kept) ** 2


def _apart(seen: Seen, batch_size: int) -> float:
    return abs(math.log(max(batch_size, 1) / seen.batch_size))


def _rank(pair: Pair) -> tuple[float, ...]:
    seen, told = pair
    return seen.batch_size, seen.gpus * seen.nodes, seen.step_s, told.busy_s, seen.error
