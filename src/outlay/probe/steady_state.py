"""Where the steady state begins, and how well the mean of what follows is known.

Warm-up is cut off by the marginal standard error rule (White 1997, "An effective truncation
heuristic for bias reduction in simulation output", Simulation 69(6), 323-334): leave out as many
as make the standard error of the mean of the rest smallest, here of medians of five, as in MSER-5
(White, Cobb and Spratt 2000, Winter Simulation Conference, 755-760), so that one outlier moves
nothing.

The confidence interval is that of batch means (Schmeiser 1982, "Batch size effects in the analysis
of simulation output", Operations Research 30(3), 556-568: 10 to 30 batches), longer ones as long as
they are alike with their neighbours (Law and Carson 1979, "A sequential procedure for determining
the length of a steady-state simulation", Operations Research 27(5), 1011-1025), and what likeness
remains widens it (Lada, Steiger and Wilson 2008, "SBatch", Journal of Simulation 2, 170-185).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outlay.probe.messages import Floats

LEAST_DROPPED = 2
"""Intervals that are always warm-up; the first step, which has none, comes before them."""
DRIFT = 0.02
"""Two halves that differ by less are the same for every use we make of a step time."""
MOST_BATCHES = 32
LEAST_BATCHES = 10
_BLOCK = 5
_BLOCKS = 1000
"""Blocks from which they get longer, so that a look stays short."""
_RECENT = 4096
"""Intervals at the end in which a period is looked for."""
_REPEATS = 0.3
"""Likeness of intervals one period apart, from which it counts: below, it hardly widens."""
_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160),
    *(2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056),
    *(2.052, 2.048, 2.045, 2.042),
)
"""Student's t, 97.5th percentile, for 1 to 30 degrees of freedom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean with its 95 % confidence interval."""

    mean_s: float
    low_s: float
    high_s: float
    batches: int
    steps: int
    """Counted: the last ones, a whole number of batches."""

    @property
    def precision(self) -> float:
        """Half the confidence interval over the mean; infinite where that is nothing."""
        return (self.high_s - self.low_s) / 2 / self.mean_s if self.mean_s > 0 else math.inf


def warm_up_of(intervals_s: Floats) -> tuple[int, bool]:
    """How many intervals to leave out at the start, and whether the rest has settled."""
    count = len(intervals_s)
    least = min(LEAST_DROPPED, count // 3)
    if count < 6:
        return least, False
    smooth, block = _smooth(intervals_s)
    error = _errors(smooth)
    half = int(np.argmin(error[: len(smooth) // 2 + 1]))
    beyond = int(np.argmin(error[: max(len(smooth) - _BLOCK, len(smooth) // 2) + 1]))
    # A cut in the later half is chance as a rule, but not where all was different before.
    settled = beyond == half or error[beyond] > error[half] / 10 or not _differ(smooth, beyond)
    cut = half if settled else beyond
    return max(least, cut * block if _starts_apart(smooth, cut) else 0), settled


def _smooth(values: Floats) -> tuple[Floats, int]:
    """Medians of neighbours, and how many values each stands for."""
    count = len(values)
    if count < 10 * _BLOCK:
        padded = np.pad(values, 1, mode="edge")
        return np.median(np.lib.stride_tricks.sliding_window_view(padded, 3), axis=1), 1
    block = max(_BLOCK, count // _BLOCKS)
    whole = values[: count // block * block]
    return np.median(whole.reshape(-1, block), axis=1), block


def _errors(values: Floats) -> Floats:
    """The squared standard error of the mean of what is left, by how many are left out."""
    centred = values - np.median(values)
    left = np.arange(len(values), 0, -1)
    total = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum(centred[::-1] ** 2)[::-1]
    # What rounding leaves of nothing is nothing: equal values need no cut.
    error: Floats = np.maximum(squares - total**2 / left, 1e-12 * squares[0]) / left**2.0
    return error


def _starts_apart(values: Floats, cut: int) -> bool:
    """Whether the very beginning differs from what follows a cut.

    Where it does not, it is no warm-up that is cut off but a bad while, as a GPU at its power
    limit or a busy host has again and again: that is part of the mean.
    """
    if not cut:
        return False
    early, late = np.median(values[: max(cut // 4, 1)]), np.median(values[cut:])
    return bool(abs(early - late) > DRIFT * late)


def _differ(values: Floats, cut: int) -> bool:
    """Whether what lies right before a cut is truly different from what follows."""
    if not cut:
        return False
    before, after = np.median(values[cut // 2 : cut]), np.median(values[cut:])
    return bool(abs(before - after) > DRIFT * after)


def drift_of(intervals_s: Floats, period: int = 1) -> float:
    """How far the later half is from the earlier over the mean; 0 where that may be noise."""
    means = _means(intervals_s, _batch_length(intervals_s, period))
    half = len(means) // 2
    if half < 2:
        return 0.0
    early, late = means[:half], means[-half:]
    apart = abs(float(late.mean() - early.mean()))
    noise = math.sqrt((early.var(ddof=1) + late.var(ddof=1)) / half)
    # A third more than 95 % asks for: it is looked at again and again.
    is_real = apart > 1.3 * t95(2 * half - 2) * noise
    return apart / abs(float(means.mean())) if is_real else 0.0


def mean_of(intervals_s: Floats, period: int = 1) -> Mean:
    """The mean of a steady state, with batches of whole periods where there are any."""
    length = _batch_length(intervals_s, period)
    means = _means(intervals_s, length)
    mean_s = float(means.mean())
    half_s = _half_width(means) if len(means) > 1 else mean_s
    if len(intervals_s) < 3:
        half_s = max(half_s, mean_s / 2)  # two that agree by chance prove nothing
    return Mean(
        mean_s=mean_s,
        low_s=max(mean_s - half_s, 0.0),
        high_s=mean_s + half_s,
        batches=len(means),
        steps=len(means) * length,
    )


def _half_width(means: Floats) -> float:
    found = _likeness(means)
    # Few values make neighbours look less alike than they are (Marriott and Pope 1954).
    alike = min(max(found + (1 + 4 * found) / len(means), 0.0), 0.9)
    variance = float(means.var(ddof=1)) * (1 + alike) / (1 - alike)
    return t95(len(means) - 1) * math.sqrt(variance / len(means))


def _batch_length(values: Floats, period: int) -> int:
    """Steps in a batch: a multiple of the period, and long enough that batches know no other."""
    count = len(values)
    unit = period if count >= LEAST_BATCHES * period else 1
    length = unit * max(1, math.ceil(count / MOST_BATCHES / unit))
    while count // (2 * length) >= LEAST_BATCHES:
        means = _means(values, length)
        if _likeness(means) <= 1 / math.sqrt(len(means)):
            break
        length *= 2
    return length


def _means(values: Floats, length: int) -> Floats:
    """Means of batches; what is left over is at the start."""
    whole = len(values) // length * length
    means: Floats = values[len(values) - whole :].reshape(-1, length).mean(axis=1)
    return means


def _likeness(values: Floats) -> float:
    """Correlation of neighbours, at most 0.9."""
    if len(values) < 4:
        return 0.0
    centred = values - values.mean()
    squares = float(centred @ centred)
    return min(float(centred[1:] @ centred[:-1]) / squares, 0.9) if squares > 0 else 0.0


def t95(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval."""
    return _T95[freedom - 1] if freedom <= len(_T95) else 1.96 + 2.4 / freedom


def period_of(intervals_s: Floats, pattern: int = 1) -> int:
    """Steps after which times repeat: the pattern of optimizers, and what recurs beside it.

    Logging every 50 steps, or workers that deliver eight batches at once, shows as a peak of the
    autocorrelation that comes again at twice its distance.
    """
    count = len(intervals_s)
    beside = _recurrence(intervals_s[-_RECENT:])
    for period in (math.lcm(pattern, beside), beside, pattern):
        if count >= LEAST_BATCHES * period:
            return period
    return 1


def _recurrence(values: Floats) -> int:
    count = len(values)
    longest = count // LEAST_BATCHES
    if longest < 2:
        return 1
    likeness = _autocorrelation(values)[: 2 * longest + 2]
    inner = likeness[2 : longest + 1]
    peaks = (inner >= likeness[1:longest]) & (inner > likeness[3 : longest + 2])
    dip = np.minimum.accumulate(likeness[1:longest])
    again = likeness[4 : 2 * longest + 1 : 2]
    real = peaks & (inner > _REPEATS) & (inner - dip > 0.2) & (again > _REPEATS / 2)
    if not real.any():
        return 1
    return int(np.flatnonzero(real & (inner >= 0.9 * inner[real].max()))[0]) + 2


def _autocorrelation(values: Floats) -> Floats:
    """Of all distances, after what lies far out has been drawn in."""
    middle = float(np.median(values))
    spread = max(1.5 * float(np.median(np.abs(values - middle))), 0.01 * middle)
    near = np.clip(values, middle - 10 * spread, middle + 10 * spread)
    near = near - near.mean()
    size = 1 << (2 * len(near) - 1).bit_length()
    power = np.abs(np.fft.rfft(near, size)) ** 2
    products: Floats = np.fft.irfft(power, size)[: len(near)]
    return products / products[0] if products[0] > 0 else np.zeros_like(products)
