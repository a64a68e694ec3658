"""How much can be trained for a sum: the most samples, or epochs, for which an option is within it.

A first plan of a few samples tells what each offer costs by the sample and what it costs whatever
the run's length. The offers that get furthest are then planned at lengths halved between too long
and short enough, and the answer is planned as every plan is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from outlay.offers.offer import Offer
from outlay.plan.option import Option
from outlay.plan.pipeline import rank_offers
from outlay.plan.question import TrainingQuestion, workload_of_question
from outlay.plan.ranking import Plan
from outlay.trace.profile import Profile
from outlay.workload.workload import Workload

Planned = Callable[[Workload], Plan]
"""The plan of a workload, with the prices and measurements at hand."""
FIRST_SAMPLES = 10_000
"""Samples of the first plan."""
LOOKED_AT = 12
"""Offers that are planned at several lengths."""
HALVINGS = 6
_LONGEST_FACTOR = 1e6
_FEWEST_SAMPLES = 10
_FEWER = 0.9
_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AffordableRun:
    """The longest run that the limits allow, and its plan."""

    question: TrainingQuestion
    """The one asked, with the amount that was found."""
    workload: Workload
    plan: Plan
    """Without a choice where not even the shortest run is within the limits."""


def affordable_run(question: TrainingQuestion, planned: Planned, today: str = "") -> AffordableRun:
    """The longest run that the question's budget and deadline allow.

    planned: the plan of a workload, with the prices and measurements at hand.
    """
    first = planned(workload_of_question(_of_length(question, FIRST_SAMPLES)))
    profile = first.profile
    assert profile is not None
    factor, offers = _furthest(first.options)
    amount = FIRST_SAMPLES * _longest(question, offers, profile, factor, today) if offers else 0.0
    for _ in range(_TRIES):
        found = _of_length(question, amount)
        workload = workload_of_question(found)
        plan = planned(workload)
        if plan.chosen is not None:
            break
        amount *= _FEWER
    return AffordableRun(question=found, workload=workload, plan=plan)


def _of_length(question: TrainingQuestion, samples: float) -> TrainingQuestion:
    """The question of so many samples: new ones, or passes over those there are."""
    if not question.as_many_epochs:
        return replace(question, samples=_rounded_down(max(samples, _FEWEST_SAMPLES)))
    data = question.data
    each = question.samples or (data.samples if data else FIRST_SAMPLES)
    epochs = max(math.floor(samples / each * 10) / 10, 0.1)
    return replace(question, epochs=epochs, as_many_epochs=False)


def _rounded_down(samples: float) -> float:
    """Two figures: prices and speeds are not known better."""
    step = 10.0 ** (math.floor(math.log10(samples)) - 1)
    return math.floor(samples / step + 1e-9) * step


def _furthest(options: Sequence[Option]) -> tuple[float, list[Offer]]:
    """How many times the first run's length is likely within the limits, and the offers that get
    furthest."""
    factors = [
        (factor, option)
        for option in options
        if not option.doubts and (factor := _factor(option)) > 0
    ]
    factors.sort(key=lambda entry: -entry[0])
    best = factors[:LOOKED_AT]
    return (best[0][0] if best else 0.0), [option.offer for _, option in best]


def _factor(option: Option) -> float:
    """How many times the run's work an option likely does within the limits."""
    run, samples = option.run, option.samples
    a_million_usd = option.training_usd_per_million_samples
    works = option.fits and option.blocked is None and option.runs and option.for_sale
    if not works or run is None or not samples or a_million_usd is None:
        return 0.0
    limits, training_usd = option.limits, a_million_usd * samples / 1e6
    factor = _LONGEST_FACTOR
    if limits.budget_usd is not None and training_usd > 0:
        factor = (limits.budget_usd - (option.usd - training_usd)) / training_usd
    if limits.deadline_s is not None:
        training_s = float(run.training_s)
        rest_s = float(run.completion_s) - training_s
        factor = min(factor, (limits.deadline_s - rest_s) / max(training_s, 1e-9))
    return min(factor, _LONGEST_FACTOR)


def _longest(
    question: TrainingQuestion,
    offers: Sequence[Offer],
    profile: Profile,
    factor: float,
    today: str,
) -> float:
    """The largest factor, up to the likely one, at which one of the offers satisfies the limits."""
    distinct = list({id(offer): offer for offer in offers}.values())

    def is_within(tried: float) -> bool:
        workload = workload_of_question(_of_length(question, FIRST_SAMPLES * tried))
        return rank_offers(workload, distinct, profile, today=today).chosen is not None

    if is_within(factor):
        return factor
    low, high = factor / 4, factor
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_within(middle) else (low, middle)
    return low
