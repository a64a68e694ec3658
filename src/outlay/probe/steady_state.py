"""Where the steady state begins, and how well the mean of what follows is known.

Warm-up is cut off by the marginal standard error rule (White 1997, "An effective truncation
heuristic for bias reduction in simulation output", Simulation 69(6), 323-334): leave out as many
as make the standard error of the mean of the rest smallest, here of medians of five, as in MSER-5
(White, Cobb and Spratt 2000, Winter Simulation Conference, 755-760), so that one outlier moves
nothing.

The confidence interval is that of batch means (Schmeiser 1982, "Batch size effects in the analysis
of simulation output", Operations Research 30(3), 556-568: 10 to 30 batches). Batches get longer as
long as their means are autocorrelated (Law and Carson 1979, "A sequential procedure for determining
the length of a steady-state simulation", Operations Research 27(5), 1011-1025), and what
autocorrelation remains widens the interval (Lada, Steiger and Wilson 2008, "SBatch", Journal of
Simulation 2, 170-185).
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
_MOST_BLOCKS = 1000
"""Blocks get longer rather than more, so that the arithmetic stays short."""
_RECENT = 4096
"""Intervals at the end in which a period is looked for."""
_PERIODIC = 0.3
"""Autocorrelation at a lag of one period, from which it counts: below, it hardly widens."""
_MOST_AUTOCORRELATION = 0.9
"""The most that is used, so that the variance inflation (1 + r) / (1 - r) stays within 19."""
_STUDENT_T95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160),
    *(2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056),
    *(2.052, 2.048, 2.045, 2.042),
)
"""Student's t, 97.5th percentile, for 1 to 30 degrees of freedom."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanInterval:
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
    medians, block = _block_medians(intervals_s)
    error = _marginal_standard_errors(medians)
    half = int(np.argmin(error[: len(medians) // 2 + 1]))
    beyond = int(np.argmin(error[: max(len(medians) - _BLOCK, len(medians) // 2) + 1]))
    # A cut in the later half is chance as a rule, but not where all was different before.
    is_chance = error[beyond] > error[half] / 10 or not _differs_before(medians, beyond)
    settled = beyond == half or is_chance
    cut = half if settled else beyond
    return max(least, cut * block if _differs_at_start(medians, cut) else 0), settled


def _block_medians(values: Floats) -> tuple[Floats, int]:
    """Medians of blocks of neighbours, and how many values each stands for.

    Of few values, the running median of three.
    """
    count = len(values)
    if count < 10 * _BLOCK:
        padded = np.pad(values, 1, mode="edge")
        return np.median(np.lib.stride_tricks.sliding_window_view(padded, 3), axis=1), 1
    block = max(_BLOCK, count // _MOST_BLOCKS)
    whole = values[: count // block * block]
    return np.median(whole.reshape(-1, block), axis=1), block


def _marginal_standard_errors(values: Floats) -> Floats:
    """The MSER statistic: the squared standard error of the mean after d values are left out.

    MSER(d) = sum of (x_i - mean)^2 over i > d, divided by (n - d)^2.
    """
    centred = values - np.median(values)
    left = np.arange(len(values), 0, -1)
    total = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum(centred[::-1] ** 2)[::-1]
    # What rounding leaves of nothing is nothing: equal values need no cut.
    error: Floats = np.maximum(squares - total**2 / left, 1e-12 * squares[0]) / left**2.0
    return error


def _differs_at_start(values: Floats, cut: int) -> bool:
    """Whether the very beginning differs from what follows a cut.

    Where it does not, it is no warm-up that is cut off but a bad while, as a GPU at its power
    limit or a busy host has again and again: that is part of the mean.
    """
    if not cut:
        return False
    early, late = np.median(values[: max(cut // 4, 1)]), np.median(values[cut:])
    return bool(abs(early - late) > DRIFT * late)


def _differs_before(values: Floats, cut: int) -> bool:
    """Whether what lies right before a cut is truly different from what follows."""
    if not cut:
        return False
    before, after = np.median(values[cut // 2 : cut]), np.median(values[cut:])
    return bool(abs(before - after) > DRIFT * after)


def drift_of(intervals_s: Floats, period: int = 1) -> float:
    """How far the later half is from the earlier over the mean; 0 where that may be noise.

    A two-sample t-test on the batch means of the halves: |later - earlier| over
    sqrt((var(earlier) + var(later)) / n) against Student's t.
    """
    means = _batch_means(intervals_s, _batch_length(intervals_s, period))
    half = len(means) // 2
    if half < 2:
        return 0.0
    early, late = means[:half], means[-half:]
    difference_s = abs(float(late.mean() - early.mean()))
    standard_error_s = math.sqrt((early.var(ddof=1) + late.var(ddof=1)) / half)
    # A third more than 95 % asks for: it is tested again and again.
    is_real = difference_s > 1.3 * student_t95(2 * half - 2) * standard_error_s
    return difference_s / abs(float(means.mean())) if is_real else 0.0


def mean_interval(intervals_s: Floats, period: int = 1) -> MeanInterval:
    """The mean of a steady state by batch means, with batches of whole periods if there are any."""
    length = _batch_length(intervals_s, period)
    means = _batch_means(intervals_s, length)
    mean_s = float(means.mean())
    half_s = _confidence_half_width(means) if len(means) > 1 else mean_s
    if len(intervals_s) < 3:
        half_s = max(half_s, mean_s / 2)  # two that agree by chance prove nothing
    return MeanInterval(
        mean_s=mean_s,
        low_s=max(mean_s - half_s, 0.0),
        high_s=mean_s + half_s,
        batches=len(means),
        steps=len(means) * length,
    )


def _confidence_half_width(means: Floats) -> float:
    """Half the 95 % interval of the mean of n autocorrelated batch means.

    t * sqrt(s^2 / n * (1 + r) / (1 - r)), with r the lag-1 autocorrelation, corrected for the bias
    of few values: r + (1 + 4 r) / n (Marriott and Pope 1954, Biometrika 41, 390-402).
    """
    count, estimate = len(means), _lag1_autocorrelation(means)
    corrected = estimate + (1 + 4 * estimate) / count
    correlation = min(max(corrected, 0.0), _MOST_AUTOCORRELATION)
    variance = float(means.var(ddof=1)) * (1 + correlation) / (1 - correlation)
    return student_t95(count - 1) * math.sqrt(variance / count)


def _batch_length(values: Floats, period: int) -> int:
    """Steps in a batch: a multiple of the period, doubled until batches are not autocorrelated."""
    count = len(values)
    unit = period if count >= LEAST_BATCHES * period else 1
    length = unit * max(1, math.ceil(count / MOST_BATCHES / unit))
    while count // (2 * length) >= LEAST_BATCHES:
        means = _batch_means(values, length)
        if _lag1_autocorrelation(means) <= 1 / math.sqrt(len(means)):
            break
        length *= 2
    return length


def _batch_means(values: Floats, length: int) -> Floats:
    """Means of batches; what is left over is at the start."""
    whole = len(values) // length * length
    means: Floats = values[len(values) - whole :].reshape(-1, length).mean(axis=1)
    return means


def _lag1_autocorrelation(values: Floats) -> float:
    """r_1 = sum of (x_i - m)(x_{i+1} - m) over the sum of (x_i - m)^2, at most 0.9."""
    if len(values) < 4:
        return 0.0
    centred = values - values.mean()
    squares = float(centred @ centred)
    if not squares > 0:
        return 0.0
    return min(float(centred[1:] @ centred[:-1]) / squares, _MOST_AUTOCORRELATION)


def student_t95(freedom: int) -> float:
    """Student's t for a two-sided 95 % interval, by degrees of freedom."""
    if freedom <= len(_STUDENT_T95):
        return _STUDENT_T95[freedom - 1]
    return 1.96 + 2.4 / freedom


def period_of(intervals_s: Floats, pattern: int = 1) -> int:
    """Steps after which times repeat: the pattern of optimizers, and what recurs beside it.

    Logging every 50 steps, or workers that deliver eight batches at once, shows as a peak of the
    autocorrelation that comes again at twice its lag.
    """
    count = len(intervals_s)
    recurrence = _autocorrelation_period(intervals_s[-_RECENT:])
    for period in (math.lcm(pattern, recurrence), recurrence, pattern):
        if count >= LEAST_BATCHES * period:
            return period
    return 1


def _autocorrelation_period(values: Floats) -> int:
    """The shortest lag with about the highest peak of the autocorrelation; 1 where none is real."""
    longest = len(values) // LEAST_BATCHES
    if longest < 2:
        return 1
    correlation = _autocorrelation(values)[: 2 * longest + 2]
    at_lag = correlation[2 : longest + 1]
    is_peak = (at_lag >= correlation[1:longest]) & (at_lag > correlation[3 : longest + 2])
    dip = np.minimum.accumulate(correlation[1:longest])
    at_twice_lag = correlation[4 : 2 * longest + 1 : 2]
    is_real = is_peak & (at_lag > _PERIODIC) & (at_lag - dip > 0.2)
    is_real &= at_twice_lag > _PERIODIC / 2
    if not is_real.any():
        return 1
    return int(np.flatnonzero(is_real & (at_lag >= 0.9 * at_lag[is_real].max()))[0]) + 2


def _autocorrelation(values: Floats) -> Floats:
    """r_k at every lag k, by the Fourier transform of the power spectrum (Wiener-Khinchin).

    Outliers are first clipped to the median plus or minus ten times 1.5 median absolute deviations.
    """
    median = float(np.median(values))
    spread = max(1.5 * float(np.median(np.abs(values - median))), 0.01 * median)
    centred = np.clip(values, median - 10 * spread, median + 10 * spread)
    centred = centred - centred.mean()
    size = 1 << (2 * len(centred) - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, size)) ** 2
    products: Floats = np.fft.irfft(power, size)[: len(centred)]
    return products / products[0] if products[0] > 0 else np.zeros_like(products)
