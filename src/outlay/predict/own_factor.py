"""The factor that measured steps make of what is taken for one GPU, or for one host.

All steps on a GPU share what its figures are off by, expected to be as large as the calibration
says (`prior`); every step is off by something of its own besides. In logarithms, with a vote for
each distinct step, weights w by the steps' own errors, and C their covariances:

    mean     = Σ w · log(measured / predicted)
    variance = scatter · Σ Σ w w C       scatter: as seen, never less than expected
    shrink   = prior² / (prior² + variance)
    factor   = exp( shrink · mean ), at most 3 prior away from 1
    error    = prior · √(1 − shrink)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from outlay.predict.experience import OwnFactor

_PRIOR_SPREADS = 2
# Assumes: until there are more, the scatter of a user's steps counts as if two had been seen with
# the errors that the calibration expects of them (a guess).
BOUND = 3.0
"""Standard deviations: what is further off has a reason that no error explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """Measured over predicted of one distinct step, and how far such a step is expected to be off.

    In logarithms; of repeats and other batch sizes of the step it is the median.
    """

    log: float
    base: float
    """What any step is off by; steps of one model share it."""
    doubts: Mapping[str, float] = field(default_factory=dict)
    """What its kernels are off by, by family; steps share what they have of a family."""
    noise: float = 0.0
    """What the measurement itself may be off by."""
    model: int = 0
    """Its parameters, by which models are told apart."""
    measurements: int = 1

    @property
    def error(self) -> float:
        """All of these together."""
        return math.hypot(self.base, self.noise, *self.doubts.values())


def is_explained(vote: Vote, prior: float) -> bool:
    """Whether the errors of a GPU (or host) and of the step explain what is measured."""
    return abs(vote.log) <= BOUND * math.hypot(prior, vote.error)


def own_factor(name: str, votes: Sequence[Vote], prior: float) -> OwnFactor:
    """The factor that some steps make of a prior error, and the error that is left."""
    weights = _weights(votes)
    mean = sum(weight * vote.log for weight, vote in zip(weights, votes, strict=True))
    variance = _scatter(votes, mean) * _variance(votes, weights)
    shrink = prior**2 / (prior**2 + variance)
    drawn, most = shrink * mean, BOUND * prior
    is_bounded = abs(drawn) > most
    return OwnFactor(
        name=name,
        measurements=sum(vote.measurements for vote in votes),
        steps=len(votes),
        mean_ratio=math.exp(mean),
        factor=math.exp(math.copysign(most, drawn) if is_bounded else drawn),
        error_before=prior,
        error=prior if is_bounded else prior * math.sqrt(1 - shrink),
        is_bounded=is_bounded,
    )


def _weights(votes: Sequence[Vote]) -> list[float]:
    each = [vote.error**-2 for vote in votes]
    return [one / sum(each) for one in each]


def _scatter(votes: Sequence[Vote], mean: float) -> float:
    """How much more steps scatter than expected; 1 where a few agree by chance."""
    seen = sum(((vote.log - mean) / vote.error) ** 2 for vote in votes)
    return max((_PRIOR_SPREADS + seen) / (_PRIOR_SPREADS + len(votes) - 1), 1.0)


def _variance(votes: Sequence[Vote], weights: Sequence[float]) -> float:
    """Of the weighted mean; what steps share does not average out."""
    pairs = list(zip(votes, weights, strict=True))
    return sum(
        one_weight * other_weight * _covariance(one, other)
        for one, one_weight in pairs
        for other, other_weight in pairs
    )


def _covariance(one: Vote, other: Vote) -> float:
    if one is other:
        return one.error**2
    kernels = sum(doubt * other.doubts.get(family, 0.0) for family, doubt in one.doubts.items())
    return kernels + (one.base * other.base if one.model == other.model else 0.0)


def over_hosts(hosts: Sequence[OwnFactor]) -> OwnFactor | None:
    """The host of a user's machines: the geometric mean over CPUs, each of them one vote.

    Its error is that of one of these machines, not knowing which: what is left of each, and how
    they differ.
    """
    if not hosts:
        return None
    logs = [math.log(one.factor) for one in hosts]
    mean = sum(logs) / len(logs)
    left = [one.error**2 + (log - mean) ** 2 for one, log in zip(hosts, logs, strict=True)]
    return OwnFactor(
        name="host",
        measurements=sum(one.measurements for one in hosts),
        steps=sum(one.steps for one in hosts),
        mean_ratio=math.exp(sum(math.log(one.mean_ratio) for one in hosts) / len(hosts)),
        factor=math.exp(mean),
        error_before=hosts[0].error_before,
        error=math.sqrt(sum(left) / len(left)),
    )
