"""Figures that are not known for certain: estimates with a range, and how they are sampled.

An `Estimate` has a best single figure between its 10th and 90th percentile; every number a user is
shown is one. A `Sampler` gives the arithmetic of a run and of its bill its uncertain inputs. That
arithmetic is written once, on `Number`s: with `LIKELY` it gets the best single figures, and what
comes out is the sum of the lines; with `Draws` it gets ten thousand values of each input, and what
comes out are ten thousand bills, whose percentiles are the range (`range_of`).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

PERCENTILE_90 = 1.2815515594
"""Standard deviations from the middle to the 10th and the 90th percentile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A best single figure (`likely`) between its 10th (`low`) and 90th percentile (`high`)."""

    low: float
    likely: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.likely <= self.high:
            raise ValueError(f"not ordered: low {self.low}, likely {self.likely}, high {self.high}")

    @classmethod
    def exactly(cls, value: float) -> Estimate:
        """A figure without uncertainty, such as a quoted price."""
        return cls(low=value, likely=value, high=value)

    @classmethod
    def of(cls, value: Uncertain) -> Estimate:
        """The figure itself, or one that is known for certain as a figure without a range."""
        return value if isinstance(value, Estimate) else cls.exactly(value)

    @classmethod
    def log_normal(cls, median: float, error: float) -> Estimate:
        """The range of a log-normal figure, whose logarithm has a standard deviation of `error`.

        median · exp(±1.2816 error); for small errors, `error` is the relative one.
        """
        spread = math.exp(PERCENTILE_90 * error)
        return cls(low=median / spread, likely=median, high=median * spread)

    @property
    def log_deviation(self) -> float:
        """The standard deviation of its logarithm, were it log-normal: log(high / low) / 2.563."""
        return math.log(self.high / self.low) / (2 * PERCENTILE_90)

    def scaled(self, factor: float) -> Estimate:
        """All three figures times a factor that is known exactly and not negative."""
        return Estimate(low=self.low * factor, likely=self.likely * factor, high=self.high * factor)

    def at_least(self, least: float) -> Estimate:
        """All three figures, none of them below `least`."""
        return Estimate(
            low=max(self.low, least),
            likely=max(self.likely, least),
            high=max(self.high, least),
        )

    def at_most(self, most: float) -> Estimate:
        """All three figures, none of them above `most`."""
        return Estimate(
            low=min(self.low, most),
            likely=min(self.likely, most),
            high=min(self.high, most),
        )

    def plus(self, other: Estimate) -> Estimate:
        """The sum of two figures whose errors go together (the widest honest range)."""
        return Estimate(
            low=self.low + other.low,
            likely=self.likely + other.likely,
            high=self.high + other.high,
        )


def total(parts: Iterable[Estimate]) -> Estimate:
    """The sum of figures whose errors go together."""
    low = likely = high = 0.0
    for part in parts:
        low, likely, high = low + part.low, likely + part.likely, high + part.high
    return Estimate(low=low, likely=likely, high=high)


# Samplers: every uncertain input at its likely value, or drawn ten thousand times.
#
# The same name always gives the same draws, so that two options that share an input share its
# draws, too. Names of one family (`speed: H200`, `speed: T4`) share half of their variance: what is
# wrong with the prediction of a step is partly the step's fault and partly the GPU's.


Array = npt.NDArray[np.float64]
Number = float | Array
"""One figure, or one for each draw."""
Uncertain = Estimate | float

DRAWS = 10_000
SEED = 20
FAMILY_SHARE = 0.5
# Assumes: half of the variance of one family of inputs is common to all its members.
_MOST_CACHED = 1024
"""Drawn inputs that are remembered for the next option that asks."""
_NORMAL_FROM = 200.0
"""Events from which their number is taken to be normally distributed."""


class Sampler(Protocol):
    """Where the arithmetic gets its uncertain inputs from."""

    def of(self, name: str, value: Uncertain) -> Number:
        """An input that is not known for certain."""
        ...

    def times(self, name: str, mean: Number, spread: Number = 0.0) -> Number:
        """How often something happens that happens `mean` times on average.

        Independently (Poisson), or straying more: the mean itself has a relative variance.
        """
        ...

    def around(self, name: str, mean: Number, deviation: Number) -> Number:
        """A sum of many small things: its mean, and how far it strays."""
        ...


class _Likely:
    """Every input at its best single figure."""

    def of(self, name: str, value: Uncertain) -> Number:  # noqa: ARG002
        return value.likely if isinstance(value, Estimate) else value

    def times(self, name: str, mean: Number, spread: Number = 0.0) -> Number:  # noqa: ARG002
        return mean

    def around(self, name: str, mean: Number, deviation: Number) -> Number:  # noqa: ARG002
        return mean


LIKELY: Sampler = _Likely()


@dataclass(frozen=True, slots=True)
class Draws:
    """Every input drawn `size` times, repeatably: the same seed and name give the same draws."""

    size: int = DRAWS
    seed: int = SEED
    _normals: dict[str, Array] = field(default_factory=dict)
    _values: dict[tuple[str, Estimate], Array] = field(default_factory=dict)
    """What was asked for before: most options share most inputs."""

    def of(self, name: str, value: Uncertain) -> Number:
        """Two half log-normals that meet at `likely`, with 10th and 90th percentile as given.

        Where `low` is zero or below, two half normals instead, cut off at zero.
        """
        if not isinstance(value, Estimate) or value.low == value.high:
            return value.likely if isinstance(value, Estimate) else value
        key = (name, value)
        if key not in self._values:
            values = at_deviations(value, self.normal(name))
            if len(self._values) >= _MOST_CACHED:
                return values
            self._values[key] = values
        return self._values[key]

    def times(self, name: str, mean: Number, spread: Number = 0.0) -> Number:
        """Poisson, around a log-normal mean where that strays, too."""
        variance = np.log1p(np.asarray(spread, float))
        drift = np.sqrt(variance) * self.normal(f"how often: {name}") - variance / 2
        means = np.broadcast_to(np.asarray(mean, float) * np.exp(drift), (self.size,))
        return _poisson(means, self.uniform(name))

    def around(self, name: str, mean: Number, deviation: Number) -> Number:
        """Normal, never below zero."""
        return np.maximum(mean + deviation * self.normal(name), 0.0)

    def normal(self, name: str) -> Array:
        """Standard normal draws of that name, half of their variance from its family's."""
        if name not in self._normals:
            family, colon, _ = name.partition(":")
            own = self._strata(name)
            if colon:
                own = np.sqrt(FAMILY_SHARE) * self.normal(family) + np.sqrt(1 - FAMILY_SHARE) * own
            self._normals[name] = own
        return self._normals[name]

    def uniform(self, name: str) -> Array:
        """Draws of that name, uniform between 0 and 1."""
        order = self._generator(name).permutation(self.size)
        return (order + 0.5) / self.size

    def _strata(self, name: str) -> Array:
        """One draw from each of `size` equally likely strata, in an order of the name's own."""
        return self._generator(name).permutation(_normal_strata(self.size))

    def _generator(self, name: str) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])


@dataclass(frozen=True, slots=True)
class OneAtLevel:
    """Every input at its likely value but one, which is at `level` standard deviations."""

    name: str
    level: float

    def of(self, name: str, value: Uncertain) -> Number:
        """The input moved, or the likely one."""
        if not isinstance(value, Estimate):
            return value
        if name != self.name:
            return value.likely
        return float(at_deviations(value, np.asarray([self.level]))[0])

    times = _Likely.times
    around = _Likely.around


@dataclass(frozen=True, slots=True)
class OneFixed:
    """Every input at its likely value but one, which is as given."""

    name: str
    value: float

    def of(self, name: str, value: Uncertain) -> Number:
        """The given value, or the likely one."""
        return self.value if name == self.name else LIKELY.of(name, value)

    times = _Likely.times
    around = _Likely.around


@dataclass(frozen=True, slots=True)
class InputRecorder:
    """Likely values, keeping a note of every uncertain input that was asked for."""

    inputs: dict[str, Estimate] = field(default_factory=dict)

    def of(self, name: str, value: Uncertain) -> Number:
        """The likely value."""
        if isinstance(value, Estimate):
            if value.low < value.high:
                self.inputs[name] = value
            return value.likely
        return value

    times = _Likely.times
    around = _Likely.around


# What goes in and what comes out of them


def likely_of(value: Uncertain) -> float:
    """The best single figure of an input."""
    return value.likely if isinstance(value, Estimate) else value


def is_nonzero(number: Number) -> bool:
    """Whether there is any of it: not zero, or not zero in every draw."""
    return bool(number != 0) if isinstance(number, float | int) else bool(np.count_nonzero(number))


def middle(number: Number) -> float:
    """The median of draws, or the one figure there is."""
    return float(np.median(number)) if np.ndim(number) else float(number)


def range_of(likely: float, draws: Number) -> Estimate:
    """A figure with the 10th and 90th percentile of its draws.

    Where something rare lifts the expected figure beyond a percentile, the range takes it in.
    """
    if not isinstance(draws, np.ndarray):
        return Estimate.exactly(likely)
    tenth = len(draws) // 10
    ordered = np.partition(draws, (tenth, len(draws) - 1 - tenth))
    low, high = float(ordered[tenth]), float(ordered[-1 - tenth])
    return Estimate(low=min(low, likely), likely=likely, high=max(high, likely))


def percentile_90(draws: Number) -> float:
    """The 90th percentile of draws, as `range_of` takes it."""
    if not isinstance(draws, np.ndarray):
        return float(draws)
    place = len(draws) - 1 - len(draws) // 10
    return float(np.partition(draws, place)[place])


def mean_of(value: Uncertain) -> float:
    """The mean of what `Draws.of` draws of a figure.

    Of two half log-normals, likely (exp(b^2/2) Phi(-b) + exp(a^2/2) Phi(a)), with the deviations b
    below and a above; of two half normals, without what is cut off at zero.
    """
    if not isinstance(value, Estimate) or value.low == value.high:
        return value.likely if isinstance(value, Estimate) else value
    if value.low <= 0:
        skew = value.high - 2 * value.likely + value.low
        return value.likely + skew / PERCENTILE_90 / math.sqrt(2 * math.pi)
    below = math.log(value.likely / value.low) / PERCENTILE_90
    above = math.log(value.high / value.likely) / PERCENTILE_90
    halves = math.exp(below**2 / 2) * _normal_share(-below)
    halves += math.exp(above**2 / 2) * _normal_share(above)
    return value.likely * halves


def _normal_share(deviation: float) -> float:
    """How much of a normal distribution lies below so many standard deviations."""
    return (1 + math.erf(deviation / math.sqrt(2))) / 2


def share_up_to(limit: float, draws: Number) -> float:
    """How many of the draws stay within a limit, as a share."""
    kept = np.asarray(draws) <= limit
    return int(np.count_nonzero(kept)) / kept.size


# Distributions


def at_deviations(value: Estimate, normal: Array) -> Array:
    """An estimate at so many standard deviations from its likely figure.

    Two half log-normals that meet at `likely`; where `low` is zero or below, two half normals.
    """
    is_above = normal > 0
    if value.low > 0:
        below = np.log(value.likely / value.low) / PERCENTILE_90
        above = np.log(value.high / value.likely) / PERCENTILE_90
        values: Array = value.likely * np.exp(normal * np.where(is_above, above, below))
        return values
    below = (value.likely - value.low) / PERCENTILE_90
    above = (value.high - value.likely) / PERCENTILE_90
    return np.maximum(value.likely + normal * np.where(is_above, above, below), 0.0)


@cache
def _normal_strata(size: int) -> Array:
    inverse: Callable[[float], float] = NormalDist().inv_cdf
    return np.asarray([inverse((index + 0.5) / size) for index in range(size)])


def _poisson(mean: Array, uniform: Array) -> Array:
    """The number of events at each draw's mean; normally distributed where there are many."""
    few = mean <= _NORMAL_FROM
    if few.all():
        return _poisson_by_inversion(mean, uniform)
    normal = _normal_strata(len(uniform))[np.argsort(np.argsort(uniform))]
    count = np.maximum(np.rint(mean + np.sqrt(mean) * normal), 0.0)
    count[few] = _poisson_by_inversion(mean[few], uniform[few])
    return count


def _poisson_by_inversion(mean: Array, uniform: Array) -> Array:
    """The smallest count whose cumulative probability reaches the uniform draw."""
    most = float(mean.max(initial=0.0))
    probability = np.exp(-mean)
    cumulative, count = probability.copy(), np.zeros_like(mean)
    for number in range(1, int(most + 12 * np.sqrt(most) + 20)):
        is_beyond = uniform > cumulative
        if not is_beyond.any():
            break
        count[is_beyond] += 1
        probability = probability * mean / number
        cumulative = cumulative + probability
    return count
