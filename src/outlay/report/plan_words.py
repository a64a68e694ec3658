"""A plan in words: three lines that a person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.text import Text

from outlay.decide import Swing, Trial, spot_limit_per_month
from outlay.option import Option
from outlay.plan import BreakEven, Plan
from outlay.report.text import (
    duration,
    duration_range,
    machine,
    per_cent,
    usd,
    usd_range,
)
from outlay.units import DAY_S, HOUR_S
from outlay.workload import Workload


def answer(plan: Plan, workload: Workload) -> Iterator[Text]:
    """What to take, what it may cost, and what else to think of: lines to act on."""
    if plan.chosen is None or plan.chosen.cost is None:
        yield _no_answer(plan)
        return
    yield _take(plan, plan.chosen, workload)
    yield _risk(plan.chosen, workload)
    for caution in plan.cautions:
        yield Text(caution, style="yellow")
    yield Text(_instead(plan, plan.chosen))


def worth_knowing(plan: Plan, swing: Swing | None, trial: Trial | None) -> Iterator[str]:
    """What the decision hangs on most, whether to try first, and what spot has to do with it."""
    chosen = plan.chosen
    if chosen is None:
        return
    if swing is not None and swing.width_usd > 0.05 * chosen.usd:
        yield _hinge(swing)
    if chosen.tenancy == "spot" and chosen.run is not None:
        yield _spot(plan, chosen)
    if trial is not None:
        yield trial_words(trial)


def _hinge(swing: Swing) -> str:
    said = (
        f"The cost hangs most on the {_input(swing.name)}: {usd(swing.usd.low)} to "
        f"{usd(swing.usd.high)} between its 10th and its 90th percentile"
    )
    if swing.winner is None:
        return f"{said}, and the choice stays the same."
    return f"{said}; at one end {_named(swing.winner)} would be the choice."


def _input(name: str) -> str:
    """`speed: H200` as one would say it."""
    what, colon, whose = name.partition(": ")
    return f"{what} of {whose}" if colon and what == "speed" else name.replace(": ", " at ")


def _spot(plan: Plan, chosen: Option) -> str:
    assert chosen.run is not None
    count = float(chosen.run.interruptions)
    said = f"Interruptions to expect: {count:.2g}" if count >= 0.1 else "Hardly an interruption"
    kept = _kept(plan)
    rate = None if kept is None else spot_limit_per_month(chosen, kept)
    if rate is None:
        return f"{said} in this run."
    return f"{said} in this run; spot pays up to {rate:,.0f} a month."


def _take(plan: Plan, chosen: Option, workload: Workload) -> Text:
    """Where to run it, what that costs, how long it takes."""
    cost, time_s = chosen.cost_usd, chosen.run_time_s
    assert cost is not None
    assert time_s is not None
    a_month = " a month" if workload.usage.sessions_per_month is not None else ""
    text = Text("Take: " if plan.ranked_by == "cost" else "Best value: ", style="bold green")
    text.append(
        f"{machine_of(chosen)} at {place_of(chosen)}, {chosen.tenancy}: "
        f"{money(cost.likely, workload)}{a_month}{_bracketed(usd_range(cost))}, "
        f"{duration(time_s.likely)}{_bracketed(duration_range(time_s))}{_calendar(chosen)}.",
        style="none",
    )
    return text


def _risk(chosen: Option, workload: Workload) -> Text:
    """What most of it is spent on, and how sure one can be of the limits."""
    text = Text(_spent_on(chosen))
    ranges, limits = chosen.ranges, workload.limits
    assert ranges is not None
    chances = [
        (f"to stay within {usd(limits.budget_usd)}", ranges.within_budget),
        (f"to be done in {duration(limits.deadline_s)}", ranges.meets_deadline),
    ]
    said = [f"{what}: {per_cent(chance)}" for what, chance in chances if chance is not None]
    if said:
        low = min(chance for _, chance in chances if chance is not None) < 0.9
        text.append(f" Chance {', '.join(said)}.", style="yellow" if low else "none")
    return text


def _spent_on(chosen: Option) -> str:
    """The largest lines, and what share of the billed time trains."""
    assert chosen.cost is not None
    assert chosen.run is not None
    lines = sorted(chosen.cost.breakdown.lines, key=lambda line: -float(line.usd))
    largest = [line for line in lines[:3] if float(line.usd) >= 0.02 * chosen.usd]
    parts = ", ".join(f"{line.name} {usd(float(line.usd))}" for line in largest)
    training = float(chosen.run.training_s) / chosen.busy_s
    missing = f" Not all of it is priced{_usually(chosen)}." if chosen.cost.unknown else ""
    spent = f"Of that {parts}" if parts else "It costs nothing"
    return f"{spent}; {per_cent(training)} of its time trains.{missing}"


def _instead(plan: Plan, chosen: Option) -> str:
    """What a person who wants it faster, safer or their own would take."""
    said = [*_faster(plan, chosen), *_safer(plan, chosen), *_bought(plan)]
    return " ".join(said or _next(plan, chosen))


def _next(plan: Plan, chosen: Option) -> Iterator[str]:
    second = next((one for one in plan.options if one.sound and one is not chosen), None)
    if second is not None:
        yield f"Next best: {_named(second)}, {_figures(second)}."
    else:
        yield "There is no other that satisfies the limits."


def _faster(plan: Plan, chosen: Option) -> Iterator[str]:
    """The cheapest that takes at most half as long."""
    if plan.ranked_by != "cost":
        return
    quick = [one for one in plan.options if one.sound and one.busy_s <= 0.5 * chosen.busy_s]
    if quick:
        yield f"In half the time or less: {_named(quick[0])}, {_figures(quick[0])}."


def _safer(plan: Plan, chosen: Option) -> Iterator[str]:
    """The cheapest that nobody takes away."""
    kept = _kept(plan)
    if chosen.tenancy == "spot" and kept is not None:
        yield f"Without interruptions: {_named(kept)}, {_figures(kept)}."


def _kept(plan: Plan) -> Option | None:
    return next((one for one in plan.options if one.sound and one.tenancy != "spot"), None)


def _bought(plan: Plan) -> Iterator[str]:
    for one in plan.break_even[:1]:
        if one.use_s is None:
            yield f"Buying {one.buy} never pays here."
        else:
            yield f"Buying {one.buy} pays from {one.use_s / HOUR_S:,.0f} h{_by_the_calendar(one)}."


def _named(option: Option) -> str:
    return f"{machine_of(option)} at {place_of(option, instance=False)} {option.tenancy}"


def _figures(option: Option) -> str:
    unpriced = option.cost is not None and option.cost.unknown
    more = f" (not all priced{_usually(option)})" if unpriced else ""
    return f"{usd(option.usd)}{more} in {duration(option.busy_s)}"


def _usually(option: Option) -> str:
    """What is not priced, at what others charge for it."""
    usual = option.expected_usd - option.usd
    return f": usually {usd(usual)} more" if usual else ""


def trial_words(trial: Trial) -> str:
    """Whether trying two machines first is worth it."""
    other = f"{machine_of(trial.second)} at {trial.second.offer.provider}"
    if trial.is_worth_it:
        return (
            f"Try it against {other} first: that costs {usd(trial.cost_usd)} and saves "
            f"{usd(trial.gain_usd)} on average ({per_cent(trial.second_wins)} that the other wins)."
        )
    return (
        f"No trial needed: one against {other} would cost {usd(trial.cost_usd)} and save "
        f"{usd(trial.gain_usd)} on average."
    )


def rent_or_buy(plan: Plan) -> Iterable[str]:
    """For each machine to be bought, after how much use it pays."""
    for one in plan.break_even:
        if one.use_s is None:
            verdict = "never pays: running it costs more than renting the same work"
        else:
            verdict = f"pays after {one.use_s / HOUR_S:,.0f} h of use{_by_the_calendar(one)}"
        resale = f" less {usd(one.resale_usd)} resale" if one.resale_usd else ""
        yield (
            f"{one.buy} ({usd(one.purchase_usd)}{resale}) {verdict}; it costs "
            f"{usd(one.owned_usd_per_hour)}/h to run, renting its work "
            f"{usd(one.rented_usd_per_hour)}/h ({one.rent})"
        )


def _by_the_calendar(one: BreakEven) -> str:
    """How long that is at the use it is put to, and whether it lives so long."""
    if one.calendar_s is None or one.use_s is None or one.life_use_s is None:
        return ""
    late = "" if one.use_s <= one.life_use_s else ", which it does not live to see"
    return f", {one.calendar_s / DAY_S:,.0f} days as it is used{late}"


def _no_answer(plan: Plan) -> Text:
    text = Text("No option satisfies the limits.", style="bold red")
    nearest = next((one for one in plan.options if one.cost is not None), None)
    if nearest is not None:
        text.append(f" Nearest: {_named(nearest)}, {usd(nearest.usd)}: {nearest.why_not}.", "none")
    return text


def _calendar(option: Option) -> str:
    """How long it takes by the calendar, where that is not the machine's time."""
    assert option.run is not None
    run = option.run
    if run.recurring or float(run.period_s) <= 1.01 * option.busy_s:
        return ""
    return f" of machine time over {duration(float(run.period_s))}"


def machine_of(option: Option) -> str:
    """The machine of an option, and how many of them."""
    return machine(option.offer, option.step.placement.nodes)


def place_of(option: Option, *, instance: bool = True) -> str:
    """`gcp europe-north1 (a3-highgpu-1g)`, or short of the instance, which a table names."""
    offer = option.offer
    if not instance and not offer.quoted:
        return offer.provider
    region = "" if offer.region in ("any", "here") else f" {offer.region}"
    term = "" if offer.commitment is None else f", {offer.commitment.name}"
    kept = f"; {option.keeping}" if option.keeping else ""
    return f"{offer.provider}{region} ({offer.instance}{term}{kept})"


def money(amount_usd: float, workload: Workload) -> str:
    """Dollars, and the user's own currency beside them."""
    if workload.currency == "USD":
        return usd(amount_usd)
    return f"{usd(amount_usd)} ({amount_usd / workload.usd_per_unit:,.0f} {workload.currency})"


def _bracketed(text: str) -> str:
    return f" ({text})" if text else ""
