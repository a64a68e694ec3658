"""What a decision hangs on: the inputs that move the cost, and whether a trial is worth its price.

All from the same distributions that give the ranges: one input after the other is moved to its
10th and its 90th percentile while the others stay likely.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from outlay.errors import InputError
from outlay.plan.option import Option, draws_of
from outlay.plan.ranking import Plan, equal_work
from outlay.predict.run_time import NeverEnds
from outlay.uncertainty import (
    LIKELY,
    PERCENTILE_90,
    Array,
    Draws,
    Estimate,
    InputRecorder,
    Number,
    OneAtLevel,
    OneFixed,
    Uncertain,
)
from outlay.units import HOUR_S, MINUTE_S

_NO_WORD = re.compile(r"[^a-z0-9.]+")
RIVALS = 12
"""Options beside the choice that are looked at."""
TRIAL_S = 10 * MINUTE_S
# Assumes: ten minutes of steps tell how fast a machine is.


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """What one uncertain input does to the cost of an option."""

    name: str
    value: Estimate
    usd: Estimate
    """The cost with the input at its 10th percentile, likely, and at its 90th; in that order
    of size, not of the input."""
    winner: Option | None = None
    """The option that would be chosen instead, at one end of it."""

    @property
    def width_usd(self) -> float:
        """How far it moves the cost."""
        return self.usd.high - self.usd.low


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialValue:
    """Trying the choice and its rival for a while before the run."""

    first: Option
    second: Option
    cost_usd: float
    gain_usd: float
    """What knowing both speeds saves on average, taking the better one."""
    second_wins: float
    """The chance that the rival turns out to be the cheaper one."""

    @property
    def is_worth_it(self) -> bool:
        """Whether it saves more than it costs."""
        return self.gain_usd > self.cost_usd


def swings(option: Option, rivals: Sequence[Option] = ()) -> tuple[Swing, ...]:
    """The uncertain inputs of an option, the one that moves its cost most first.

    A rival that shares the input moves with it; one that becomes so much better that it would be
    chosen is named.
    """
    if option.cost is None:
        return ()
    results = [_swing(name, value, option, rivals) for name, value in _inputs(option).items()]
    worth = [swing for swing in results if swing.width_usd > 1e-4 * option.usd or swing.winner]
    return tuple(sorted(worth, key=lambda swing: -swing.width_usd))


def _inputs(option: Option) -> dict[str, Estimate]:
    noted = InputRecorder()
    option.drawn(noted)
    return noted.inputs


def _swing(name: str, value: Estimate, option: Option, rivals: Sequence[Option]) -> Swing:
    ends = [OneAtLevel(name, level * PERCENTILE_90) for level in (-1, 1)]
    usual_usd = option.usd_with_unpriced - option.usd
    low_usd, high_usd = sorted(_usd(option, end) - usual_usd for end in ends)
    equal = equal_work((option, *rivals))
    winner = None
    for end in ends:
        own_usd = _ranked_usd(option, end, equal=equal)
        best_usd, best = min(
            ((_ranked_usd(rival, end, equal=equal), rival) for rival in rivals),
            key=itemgetter(0),
            default=(own_usd, None),
        )
        worth = option.prefer.worth_switching
        if best is not None and own_usd - best_usd > min(worth.usd, worth.fraction * own_usd):
            winner = best
    return Swing(
        name=name,
        value=value,
        usd=Estimate(
            low=min(low_usd, option.usd), likely=option.usd, high=max(high_usd, option.usd)
        ),
        winner=winner,
    )


def _usd(option: Option, sampler: OneAtLevel) -> float:
    try:
        _, cost = option.drawn(sampler)
    except NeverEnds:
        return float("inf")
    return float("inf") if cost is None else float(cost.usd) + cost.usual_usd


def _ranked_usd(option: Option, sampler: OneAtLevel, *, equal: bool) -> float:
    """What an option would be ranked by: what its uncertainty adds is taken to stay the same."""
    try:
        runs = option.simulation_of(*option.drawn(sampler))
    except NeverEnds:
        return float("inf")
    likely = option.likely_simulation
    if not equal:
        moved_usd = float(option.training_of(runs)) - float(option.training_of(likely))
        return option.training_merit_usd + moved_usd
    moved_usd = float(option.merit_of(runs)) - float(option.merit_of(likely))
    return option.merit_usd + moved_usd


def rivals_of(plan: Plan) -> tuple[Option, ...]:
    """The best sound option of each other machine: what would be taken if the choice were not."""
    chosen = plan.chosen
    machines: set[tuple[str, str, str]] = set()
    rivals: list[Option] = []
    for option in plan.options:
        key = _machine_key(option)
        if not option.sound or chosen is None or key == _machine_key(chosen) or key in machines:
            continue
        machines.add(key)
        rivals.append(option)
        if len(rivals) == RIVALS:
            break
    return tuple(rivals)


def _machine_key(option: Option) -> tuple[str, str, str]:
    return option.offer.provider, option.offer.gpu, option.tenancy


def trial_value(plan: Plan) -> TrialValue | None:
    """Whether to try the choice and its best rival on another GPU first; None without a rival."""
    chosen = plan.chosen
    rivals = [
        trial
        for trial in rivals_of(plan)
        if chosen and trial.offer.gpu != chosen.offer.gpu and trial.offer.owned is None
    ]
    if chosen is None or chosen.offer.owned or not rivals or plan.ranked_by != "cost":
        return None
    if chosen.work != chosen.samples:
        return None  # hours are said to be equal: speeds do not matter
    trials = [_trial(chosen, rival) for rival in rivals[:5]]
    return max(trials, key=lambda trial: trial.gain_usd - trial.cost_usd)


def _trial(first: Option, second: Option) -> TrialValue:
    sampler = _Speeds(draws_of(10_000))
    first_usd, second_usd = (_drawn_usd(option, sampler) for option in (first, second))
    known_usd = float(np.minimum(first_usd, second_usd).mean())
    return TrialValue(
        first=first,
        second=second,
        cost_usd=sum(_trial_usd(option) for option in (first, second)),
        gain_usd=max(min(float(first_usd.mean()), float(second_usd.mean())) - known_usd, 0.0),
        second_wins=float((second_usd < first_usd).mean()),
    )


def _drawn_usd(option: Option, sampler: _Speeds) -> Array:
    _, cost = option.drawn(sampler)
    assert cost is not None
    return np.broadcast_to(np.asarray(cost.usd, float), (sampler.draws.size,))


def _trial_usd(option: Option) -> float:
    """A machine set up with its data, ten minutes of steps, at its price."""
    run = option.run
    assert run is not None
    price = option.hourly_usd or 0.0
    before_s = (run.provisioning_s + run.setup_s + run.warmup_s) / run.sessions
    data_s = run.download_s + run.preparation_s
    return float(before_s + data_s + TRIAL_S) / HOUR_S * price * option.step.placement.nodes


@dataclass(frozen=True, slots=True)
class _Speeds:
    """Speeds drawn, everything else likely: what a trial would tell."""

    draws: Draws

    def of(self, name: str, value: Uncertain) -> Number:
        """Drawn if it is a speed."""
        if name.startswith("speed"):
            return self.draws.of(name, value)
        return value.likely if isinstance(value, Estimate) else value

    def times(self, name: str, mean: Number, spread: Number = 0.0) -> Number:
        """As often as on average."""
        return LIKELY.times(name, mean, spread)

    def around(self, name: str, mean: Number, deviation: Number) -> Number:
        """As much as on average."""
        return LIKELY.around(name, mean, deviation)


MOST_PER_MONTH = 100_000.0


def spot_limit_per_month(spot: Option, kept: Option) -> float | None:
    """Interruptions a month up to which a spot machine costs less than one that is kept.

    None where it costs more even undisturbed, or less whatever happens.
    """
    kept_usd = kept.usd_with_unpriced
    if kept.cost is None or _usd_at(spot, 0.0) >= kept_usd:
        return None
    low, high = 0.0, 1.0
    while _usd_at(spot, high) < kept_usd:
        low, high = high, 2 * high
        if high > MOST_PER_MONTH:
            return None
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if _usd_at(spot, middle) < kept_usd else (low, middle)
    return low


def _usd_at(spot: Option, per_month: float) -> float:
    try:
        _, cost = spot.drawn(OneFixed("interruption rate", per_month))
    except NeverEnds:
        return float("inf")
    return float("inf") if cost is None else float(cost.usd) + cost.usual_usd


def named_option(plan: Plan, name: str) -> Option:
    """The option of a plan that a rank or words name; an error where there is none."""
    option = find_option(plan.options, name)
    if option is None:
        raise InputError(
            f"No option is called {name!r}.",
            why=f"There are {len(plan.options):,}, by rank, provider, instance, region and GPU.",
            fix="Give a rank from the table, or words such as --explain 'lambda a10'.",
        )
    return option


def find_option(options: Iterable[Option], name: str) -> Option | None:
    """The best option that a text means: its rank, or words of its name in any order."""
    wanted = name.strip().removeprefix("#").lower()
    listed = list(options)
    if wanted.isdecimal():
        return next((option for option in listed if option.rank == int(wanted)), None)
    words = wanted.replace("/", " ").split()
    if not words:
        return None
    parted = set(_NO_WORD.split(" ".join(words)))
    whole = (
        option for option in listed if parted <= set(_NO_WORD.split(_called(option)))
    )  # a10, not a100
    parts = (option for option in listed if all(word in _called(option) for word in words))
    return next(whole, None) or next(parts, None)


def _called(option: Option) -> str:
    offer = option.offer
    named = (offer.provider, offer.instance, offer.region, offer.gpu, option.tenancy)
    return f"{' '.join(named)} {offer.gpus}x".lower()
