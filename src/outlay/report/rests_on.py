"""What the choice of a plan rests on, in plain sentences: its price, speed, quota, batch and bill.

The first screen shows them below the answer, `--json` has them as `rests_on`. What is certain is
not said: a sentence here is a reason to look twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from outlay.offers.terms import terms_of
from outlay.plan.option import Option
from outlay.plan.placement import batch_limit
from outlay.plan.ranking import Plan
from outlay.predict.evidence import PREDICTED
from outlay.report.text import count, counted, usd
from outlay.trace.profile import PublishedBatch
from outlay.units import days_between
from outlay.workload.workload import Step

FAR = 4.0
"""A batch so many times another is far from it: what was learned there may not hold."""
_MOVED = 1.1
"""A price whose range is wider than this may have moved since it was seen."""
_DIFFERS = "results and the right learning rate may differ; step.max_batch_size limits it"


def rests_on(plan: Plan) -> list[str]:
    """What one should know of the choice before acting on it; nothing where there is none."""
    chosen = plan.chosen
    if chosen is None or chosen.cost is None:
        return []
    return [
        *_price(chosen, plan.today),
        *_speed(plan, chosen),
        *_quota(chosen),
        *_batch(plan, chosen),
        *_unpriced(chosen),
    ]


def _price(chosen: Option, today: str) -> Iterator[str]:
    """The day its price is of, and what is to be said against it."""
    offer = chosen.offer
    if offer.owned is not None:
        return
    if offer.is_promised:
        price = "Price quoted to you"
        undated = offer.as_of in ("", today)
        seen = ", taken as today's" if undated else f" on {offer.as_of}"
    else:
        price = "Spot price seen" if chosen.tenancy == "spot" else "Price seen"
        seen = f" {offer.seen_on(chosen.tenancy)}"
    marks = _marks(chosen)
    day = offer.seen_on(chosen.tenancy)
    age = _age(day, today) + _by_now(chosen)
    yield f"{price}{seen}{age}{f', marked {marks}' if marks else ''}."


def _by_now(chosen: Option) -> str:
    """What an hour is expected to cost where that is not the quote, with its range."""
    expected, quote = chosen.price_usd_per_hour, chosen.offer.hourly_usd(chosen.tenancy)
    if expected is None or quote is None or expected.high < _MOVED * expected.low:
        return ""
    likely = "" if expected.likely == quote else f"about {usd(expected.likely)}, "
    return (
        f": {usd(quote)} an hour then, {likely}{usd(expected.low)} to {usd(expected.high)} "
        "expected during the run"
    )


def _age(as_of: str, today: str) -> str:
    """How long ago that was, where the day is known and after it."""
    days = days_between(as_of, today) if today and as_of else 0
    return f", {counted(days, 'day')} ago" if days > 0 else ""


def _marks(chosen: Option) -> str:
    """The doubts about what is paid, those that stop nobody included."""
    notes = [
        doubt.word
        for doubt in chosen.offer.doubts
        if doubt.kind == "note" and doubt.concerns(chosen.tenancy)
    ]
    return ", ".join(f'"{word}"' for word in dict.fromkeys((*chosen.price_doubts, *notes)))


def _speed(plan: Plan, chosen: Option) -> Iterator[str]:
    """Whether anybody measured how fast it is."""
    step, gpu = chosen.step, chosen.step.placement.gpu
    if plan.workload is not None and plan.workload.length.is_equal_hours:
        return
    if not step.is_checked:
        yield (
            f"Speed from the datasheet alone: no {gpu.architecture} GPU was ever measured against "
            "its prediction."
        )
    elif step.time_from == PREDICTED:
        yield f"Speed predicted, not measured on {gpu.name}."
        if step.compiled is not None:
            yield "It is of compiled code, which is known less well (--full says how)."
    else:
        yield f"Speed {step.time_from}."


def _quota(chosen: Option) -> Iterator[str]:
    """Whether a new account can start it at all."""
    provider = chosen.offer.provider
    if chosen.offer.owned is None and terms_of(provider).quality("quota") == "apply":
        yield f"Quota: a new account at {provider} has to ask for GPUs first."


# The batch: whose it is, and how far from what was published or measured


def _batch(plan: Plan, chosen: Option) -> Iterator[str]:
    if plan.workload is None or plan.profile is None or plan.workload.length.is_equal_hours:
        return
    asked, published = plan.workload.step, plan.profile.published
    if asked.global_batch_size is not None:
        return
    size, gpus = chosen.step.batch_size, chosen.step.placement.site.total
    usual = None if published is None else published.per_gpu_on(gpus)
    measured = max((step.batch_size for step in plan.measured), default=None)
    if published is not None and usual is not None and size > usual:
        yield f"{_times(chosen, usual)} the {_as_published(published)}: {_DIFFERS}."
    elif measured is not None and size > FAR * measured:
        yield f"{_times(chosen, measured)} the measured {measured:,}: {_DIFFERS}."
    elif _is_held_to_published(plan, chosen) and published is not None:
        yield _held_to_published(chosen, published)
    elif asked.batch_size is None and asked.max_batch_size is None:
        yield _largest_that_fits(chosen, published)
    elif gpus > 1:
        yield f"{_size(chosen)}."


def _is_held_to_published(plan: Plan, chosen: Option) -> bool:
    """Whether the published batch alone keeps it from being larger."""
    assert plan.workload is not None
    assert plan.profile is not None
    step: Step = plan.workload.step
    limit = batch_limit(step, plan.profile, chosen.step.placement.site.total)
    return (
        step.batch_size is None and step.max_batch_size is None and chosen.step.batch_size == limit
    )


def _held_to_published(chosen: Option, published: PublishedBatch) -> str:
    room = chosen.step.max_batch_size
    more = (
        f"; {count(room)} would fit: step.max_batch_size" if room > chosen.step.batch_size else ""
    )
    return f"{_size(chosen)}, as published ({published.where}){more}."


def _largest_that_fits(chosen: Option, published: PublishedBatch | None) -> str:
    if published is None:
        return (
            f"{_size(chosen)} is the largest that fits; results and the right learning rate depend "
            "on it: step.max_batch_size limits it."
        )
    return f"{_size(chosen)} is the largest that fits, below the {_as_published(published)}."


def _size(chosen: Option) -> str:
    """`Batch 8 per GPU`, and of several GPUs what they make together."""
    step = chosen.step
    if step.global_batch_size == step.batch_size:
        return f"Batch {count(step.batch_size)}"
    return (
        f"Batch {count(step.batch_size)} per GPU ({count(step.global_batch_size)} in each update)"
    )


def _as_published(published: PublishedBatch) -> str:
    if published.global_batch_size is not None:
        return f"published {count(published.global_batch_size)} in each update ({published.where})"
    return f"published {count(published.per_gpu or 0)} per GPU ({published.where})"


def _times(chosen: Option, other: int) -> str:
    """`Batch 472 is 59x`, or `1.4x` where it is near."""
    ratio = chosen.step.batch_size / other
    return (
        f"{_size(chosen)} is {ratio:,.0f}x" if ratio >= 10 else f"{_size(chosen)} is {ratio:.2g}x"
    )


def _unpriced(chosen: Option) -> Iterator[str]:
    """What of the bill nobody could price."""
    assert chosen.cost is not None
    if chosen.cost.unknown:
        usual_usd = chosen.cost.usual_usd
        usual = f" (usually {usd(usual_usd)} more)" if usual_usd else ""
        there = f" at {terms_of(chosen.offer.provider).name}"
        named = dict.fromkeys(
            what.removesuffix(": no price known").removesuffix(there)
            for what in chosen.cost.unknown
        )
        yield f"Not in the bill, as no price is known: {', '.join(named)}{usual}."
