"""What interruptions cost in time: closed forms for a machine that may be taken away at any moment.

In: seconds of work, of a stretch between two saves and of a restart, and interruptions a second.
Out: how often they come, work lost and restarts (`InterruptionOverhead`), and the interval between
checkpoints that wastes least. Interruptions are a Poisson process of rate `r` in the time the
machine is held. Work is done in stretches of `interval` seconds, each followed by `write` seconds
to save it; an interruption throws back to the last save, and `restart` seconds pass (on the new
machine, which may itself be taken) before work goes on. J. T. Daly 2006, doi
10.1016/j.future.2004.11.016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outlay.uncertainty import Number, Sampler, middle

HOPELESS = 10.0
"""Interruptions expected in one stretch from which a run is said never to end (one try in e^10)."""
_MOST_EXPECTED = 30.0
"""Where what a drawn rate lets expect is cut off, so that what never ends stays a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptionOverhead:
    """What interruptions add to a run."""

    count: Number
    lost_s: Number
    """Work done again."""
    restart_s: Number
    """Getting back to where it was on new machines."""


NO_INTERRUPTIONS = InterruptionOverhead(count=0.0, lost_s=0.0, restart_s=0.0)


def interruption_overhead(
    work_s: Number, stretch_s: Number, restart_s: Number, rate_per_s: Number, sampler: Sampler
) -> InterruptionOverhead:
    """What interruptions add to `work_s` of work and writing, in stretches between saves.

    They come as often as on average over the time the machine is held, and stray more than
    Poisson where a stretch takes several tries (a try gets through with probability p: the
    variance is the mean over p). What each costs is on average what the closed form says,
    divided between work lost and restarts, and strays as a point strays in a stretch.
    """
    stretch_s = np.minimum(stretch_s, work_s)
    expected_s = expected_run_time_s(work_s, stretch_s, restart_s, rate_per_s)
    mean = expected_s * rate_per_s
    each_s = (expected_s - work_s) / mean
    success = np.exp(-np.minimum(rate_per_s * (stretch_s + restart_s), _MOST_EXPECTED))
    count = sampler.times("interruptions", mean, (1 - success) / (success * mean))
    restart_share = restart_s / (restart_s + _mean_lost_s(stretch_s, rate_per_s))
    lost_s = sampler.around(
        "work lost",
        count * each_s * (1 - restart_share),
        np.sqrt(count) * stretch_s / math.sqrt(12),
    )
    return InterruptionOverhead(
        count=count, lost_s=lost_s, restart_s=count * each_s * restart_share
    )


def expected_run_time_s(
    work_s: Number, stretch_s: Number, restart_s: Number, rate_per_s: Number
) -> Number:
    """Expected time a machine is held until `work_s` of work and writing is done.

    Daly 2006, equation 20: each stretch takes (exp(r stretch) - 1) exp(r restart) / r.
    """
    stretches = work_s / stretch_s
    growth = np.expm1(np.minimum(rate_per_s * stretch_s, _MOST_EXPECTED))
    restarts = np.exp(np.minimum(rate_per_s * restart_s, _MOST_EXPECTED))
    run_time_s: Number = stretches * growth * restarts / rate_per_s
    return run_time_s


def _mean_lost_s(stretch_s: Number, rate_per_s: Number) -> Number:
    """How far into a stretch an interruption comes on average, given that it comes.

    1/r - s/(e^(rs) - 1), which is s/2 where interruptions are rare.
    """
    expected = rate_per_s * stretch_s
    lost_s: Number = np.where(
        expected < 1e-4,
        stretch_s / 2,
        1 / rate_per_s - stretch_s / np.expm1(np.clip(expected, 1e-4, _MOST_EXPECTED)),
    )
    return lost_s


def is_hopeless(stretch_s: Number, restart_s: Number, rate_per_s: Number) -> bool:
    """Whether a stretch between two saves is so long that it hardly ever gets through."""
    return middle(rate_per_s * (stretch_s + restart_s)) > HOPELESS


def optimal_interval_s(write_s: float, rate_per_s: float) -> float:
    """The interval that wastes least, to a higher order than Young's sqrt(2 write / rate).

    J. T. Daly 2006, doi 10.1016/j.future.2004.11.016, equation 37; for writes longer than twice
    the mean time between interruptions, that mean time. J. W. Young 1974, doi
    10.1145/361147.361115, is its first term.
    """
    mean_s = 1 / rate_per_s
    if write_s >= 2 * mean_s:
        return mean_s
    ratio = math.sqrt(write_s / (2 * mean_s))
    first_order_s = math.sqrt(2 * write_s * mean_s)
    return first_order_s * (1 + ratio / 3 + ratio**2 / 9) - write_s
