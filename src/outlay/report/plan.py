"""A plan as a person reads it: the answer in words and the best options on one screen; on request
the frontier, the losers and all that was assumed.

The words come first (`answer`, `worth_knowing`, `trial_words`, `rent_or_buy`), then the page with
its tables (`print_plan`). One option in full is `outlay.report.explain`.
"""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from outlay.cost.cash import USED_UP
from outlay.offers.offer import CHEAPEST_REGION
from outlay.offers.places import DataRoute
from outlay.plan.option import Option
from outlay.plan.ranking import (
    BreakEven,
    Plan,
    advantage_of,
    best_of_each_kind,
    kind_of,
    tie_usd_per_hour,
)
from outlay.plan.sensitivity import Swing, TrialValue, spot_limit_per_month
from outlay.report.console import INDENT, Page, Table, bullets, muted, table
from outlay.report.rests_on import rests_on
from outlay.report.text import (
    OLD_DAYS,
    clipped_percent,
    count,
    counted,
    duration,
    duration_range,
    in_currency,
    is_old,
    machine,
    prices_in_words,
    usd,
    usd_range,
)
from outlay.trace.profile import Profile
from outlay.uncertainty import Estimate
from outlay.units import DAY_S, GB, HOUR_S, days_between
from outlay.workload.workload import Workload

# In words: three lines that a person can act on, and what else decides.


def answer(plan: Plan, workload: Workload) -> Iterator[Text]:
    """What to take, what it may cost, and what else to think of: lines to act on."""
    if plan.chosen is None or plan.chosen.cost is None:
        yield _no_answer(plan)
        return
    yield _take(plan, plan.chosen, workload)
    yield from map(Text, hours_words(plan, plan.chosen, workload))
    for words in _tie(plan, plan.chosen):
        yield Text(words)
    yield _risk(plan.chosen)
    if plan.chosen.scarcity is not None:
        yield Text(f"Caution: {plan.chosen.scarcity}.", style="yellow")
    yield from map(Text, cash_words(plan.chosen, workload))
    yield from map(Text, before_renting(plan.chosen, workload))
    for caution in plan.cautions:
        yield Text(caution, style="yellow")
    yield Text(_instead(plan, plan.chosen))


def worth_knowing(
    plan: Plan, swing: Swing | None, trial: TrialValue | None, file: str = ""
) -> Iterator[str]:
    """Which input matters most, what interruptions to expect, and whether to try first."""
    chosen = plan.chosen
    if chosen is None:
        return
    if swing is not None and swing.width_usd > 0.05 * chosen.usd:
        yield _hinge(swing)
    if chosen.tenancy == "spot" and chosen.run is not None:
        yield _spot(plan, chosen)
    if trial is not None:
        yield trial_words(trial, file)


def _hinge(swing: Swing) -> str:
    cost = (
        f"Least certain: the {_input(swing.name)} ({usd(swing.usd.low)} to {usd(swing.usd.high)})"
    )
    if swing.winner is None:
        return f"{cost}; the choice stays the same."
    return f"{cost}; at one end {_named(swing.winner)} is the better choice."


def _input(name: str) -> str:
    """`speed: H200` as one would say it."""
    what, colon, whose = name.partition(": ")
    return f"{what} of {whose}" if colon and what == "speed" else name.replace(": ", " at ")


def _spot(plan: Plan, chosen: Option) -> str:
    assert chosen.run is not None
    count = float(chosen.run.interruptions)
    expected = f"{count:.2g}" if count >= 0.1 else "fewer than 0.1"
    expected = f"Expected interruptions of this run: {expected}"
    uninterrupted = _uninterrupted(plan)
    rate = None if uninterrupted is None else spot_limit_per_month(chosen, uninterrupted)
    if rate is None:
        return f"{expected}."
    return (
        f"{expected}. Spot stays cheaper than a machine without interruptions up to "
        f"{rate:,.0f} a month."
    )


def _take(plan: Plan, chosen: Option, workload: Workload) -> Text:
    """Where to run it, what that costs, how long it takes."""
    cost, time_s = chosen.cost_usd, chosen.run_time_s
    assert cost is not None
    assert time_s is not None
    a_month = " a month" if workload.usage.sessions_per_month is not None else ""
    text = Text("Take: " if plan.ranked_by == "cost" else "Best value: ", style="bold green")
    text.append(
        f"{machine_of(chosen)} at {place_of(chosen)}, {chosen.tenancy}: "
        f"{money(cost.likely, workload)}{a_month}{_bracketed(_spread(chosen, cost))}, "
        f"{duration(time_s.likely)}{_bracketed(duration_range(time_s))}{_calendar(chosen)}",
        style="none",
    )
    condition = chosen.condition
    text.append("." if condition is None else f", {condition}.", style="none")
    return text


def hours_words(plan: Plan, chosen: Option, workload: Workload) -> Iterator[str]:
    """Of a length in hours: how they are read, what is best in the other reading, and how to get
    that; nothing for other lengths."""
    if plan.hours_are_equal is None:
        return
    hours, other = f"{(workload.length.training_s or 0.0) / HOUR_S:,.4g} h", plan.best_otherwise
    is_same = other is None or _named(other) == _named(chosen)
    if plan.hours_are_equal:
        read = f"Hours are read as hours: {hours} on any machine, the cheapest first."
        otherwise = "By the training done in them: hours_are_equal = false"
        figures = "" if other is None else f"{_per_million(other)}, not {_per_million(chosen)}"
    else:
        read = f"Hours are read as work: the training done in {hours}, by a million samples."
        otherwise = "By the hour: hours_are_equal = true"
        figures = "" if other is None else _figures(other)
    best = "" if is_same or other is None else f" ({_named(other)}, {figures})"
    yield f"{read} {otherwise}{best}."


def _per_million(option: Option) -> str:
    return f"{usd(option.training_usd_per_million_samples)} a million samples"


def alert_words(plan: Plan, workload: Workload, below_usd: float) -> str:
    """Whether the choice is expected to cost less than a sum, in one sentence."""
    chosen = plan.chosen
    if chosen is None or chosen.expected_cost_usd is None:
        return f"{workload.name}: no option satisfies the limits."
    expected_usd = chosen.expected_cost_usd
    is_below = "below" if expected_usd < below_usd else "not below"
    return (
        f"{workload.name}: {usd(expected_usd)} on average, {is_below} {usd(below_usd)}. "
        f"{_take(plan, chosen, workload).plain}"
    )


def _spread(option: Option, cost: Estimate) -> str:
    """The range of its cost, and its mean."""
    return "; ".join(text for text in (usd_range(cost), _on_average(option)) if text)


def _on_average(option: Option) -> str:
    """What it costs on average, where that is not what is likely."""
    expected_usd = option.expected_cost_usd
    if expected_usd is None or abs(expected_usd - option.usd) < EXPECTED_APART * option.usd:
        return ""
    return f"{usd(expected_usd)} on average"


def _tie(plan: Plan, chosen: Option) -> Iterator[str]:
    """Who is as good, and why it is not taken."""
    best, key = plan.tied[0], kind_of(chosen)
    others = best_of_each_kind(option for option in plan.tied if kind_of(option) != key)
    if best.rank == chosen.rank and not others:
        return  # the same machine elsewhere
    first = others[0] if best.rank == chosen.rank else best
    others = [option for option in others if option is not first]
    more = f" and {len(others):,} more" if others else ""
    advantage = advantage_of(chosen, first)
    because = advantage or (
        "it costs least on average" if best.rank == chosen.rank else "it is as easy to use"
    )
    average_usd = first.expected_cost_usd
    amount = usd(first.usd) if average_usd is None else f"{usd(average_usd)} on average"
    yield (
        f"As good within the error: #{first.rank} ({_named(first)}, {amount} in "
        f"{duration(first.busy_s)}){more}; taken because {because}."
    )


def _risk(chosen: Option) -> Text:
    """What most of it is spent on, and how sure one can be of the limits."""
    text = Text(_spent_on(chosen))
    ranges = chosen.ranges
    assert ranges is not None
    chances = [
        ("the budget", ranges.within_budget),
        ("the deadline", ranges.meets_deadline),
    ]
    clauses = [
        f"{what}: {clipped_percent(chance)}" for what, chance in chances if chance is not None
    ]
    if clauses:
        low = min(chance for _, chance in chances if chance is not None) < 0.9
        words = f" Chance of keeping {', '.join(clauses)}."
        text.append(words, style="yellow" if low else "none")
    return text


def cash_words(option: Option, workload: Workload) -> Iterator[str]:
    """What must be paid on the first day, and what a term obliges to; nothing where nothing.

    A balance that the run uses up is its own bill, paid a little earlier.
    """
    cash = option.cash
    used_up = float(cash.upfront_usd) <= option.usd and all(
        payment.name in USED_UP for payment in cash.payments
    )
    sentences = []
    if float(cash.upfront_usd) > 0 and not used_up:
        names = ", ".join(payment.name for payment in cash.payments)
        sentences.append(f"On day one: {money(float(cash.upfront_usd), workload)} ({names}).")
    due_usd = float(cash.due_usd())
    if due_usd > 0:
        assert option.offer.commitment is not None
        sentences.append(
            f"It binds you for {option.offer.commitment.name}: {money(due_usd, workload)} "
            f"{'more ' if sentences else ''}must be paid by its end, even if you stop early."
        )
    if sentences:
        yield " ".join(sentences)


def _spent_on(chosen: Option) -> str:
    """The largest lines, and what share of the billed time is training."""
    assert chosen.cost is not None
    assert chosen.run is not None
    lines = sorted(chosen.cost.breakdown.lines, key=lambda line: -float(line.usd))
    largest = [line for line in lines[:3] if float(line.usd) >= 0.02 * chosen.usd]
    parts = ", ".join(f"{line.name} {usd(float(line.usd))}" for line in largest)
    training = float(chosen.run.training_s) / chosen.busy_s
    spending = f"Mostly {parts}" if parts else "It costs nothing"
    return f"{spending}; {clipped_percent(training)} of the time is training."


def _instead(plan: Plan, chosen: Option) -> str:
    """What a person who wants it faster, safer or their own would take."""
    sentences = [*_faster(plan, chosen), *_safer(plan, chosen), *_bought(plan)]
    return " ".join(sentences or _next(plan, chosen))


def _next(plan: Plan, chosen: Option) -> Iterator[str]:
    second = next(
        (
            option
            for option in plan.options
            if option.sound and option is not chosen and _named(option) != _named(chosen)
        ),
        None,
    )
    if second is not None:
        yield f"Next best: {_named(second)}, {_figures(second)}."
    else:
        yield "Nothing else satisfies the limits."


def _faster(plan: Plan, chosen: Option) -> Iterator[str]:
    """The cheapest that takes at most half as long."""
    if plan.ranked_by != "cost":
        return
    quick = [
        option for option in plan.options if option.sound and option.busy_s <= 0.5 * chosen.busy_s
    ]
    if quick:
        yield f"In half the time or less: {_named(quick[0])}, {_figures(quick[0])}."


def _safer(plan: Plan, chosen: Option) -> Iterator[str]:
    """The cheapest that nobody takes away."""
    uninterrupted = _uninterrupted(plan)
    if chosen.tenancy == "spot" and uninterrupted is not None:
        yield f"Without interruptions: {_named(uninterrupted)}, {_figures(uninterrupted)}."


def _uninterrupted(plan: Plan) -> Option | None:
    return next(
        (option for option in plan.options if option.sound and option.tenancy != "spot"), None
    )


def _bought(plan: Plan) -> Iterator[str]:
    for break_even in plan.break_even[:1]:
        if break_even.use_s is None:
            yield f"Buying {break_even.buy} never becomes cheaper than renting here."
        else:
            hours = f"{break_even.use_s / HOUR_S:,.0f} h"
            cash = f", but {break_even.over_budget}" if break_even.over_budget else ""
            yield (
                f"Buying {break_even.buy} becomes cheaper than renting after {hours} of use"
                f"{_by_the_calendar(break_even)}{cash}."
            )


def _named(option: Option) -> str:
    return f"{machine_of(option)} at {place_of(option, instance=False)} {option.tenancy}"


def _figures(option: Option) -> str:
    unpriced = option.cost is not None and option.cost.unknown
    more = f" (not all priced{_usually(option)})" if unpriced else ""
    average = _bracketed(_on_average(option))
    return f"{usd(option.usd)}{average}{more} in {duration(option.busy_s)}"


def _usually(option: Option) -> str:
    """What is not priced, at what others charge for it."""
    usual = option.usd_with_unpriced - option.usd
    return f": usually {usd(usual)} more" if usual else ""


def trial_words(trial: TrialValue, file: str = "") -> str:
    """Whether trying two machines first is worth it, and the command that does."""
    other = f"{machine_of(trial.second)} at {trial.second.offer.provider}"
    if trial.is_worth_it:
        return (
            f"Try both first: ten minutes of it and of {other} cost {usd(trial.cost_usd)} and save "
            f"{usd(trial.gain_usd)} on average ({clipped_percent(trial.second_wins)} that the "
            f"other is cheaper): outlay bench {shlex.quote(file) if file else 'FILE'} "
            "--on worth-it (its [run] table names your script)"
        )
    return (
        f"No trial needed: ten minutes of it and of {other} would cost {usd(trial.cost_usd)} and "
        f"save {usd(trial.gain_usd)} on average."
    )


def rent_or_buy(plan: Plan) -> Iterable[str]:
    """For each machine to be bought, after how much use it pays."""
    for break_even in plan.break_even:
        if break_even.use_s is None:
            verdict = "never becomes cheaper: running it costs more than renting the same work"
        else:
            hours = f"{break_even.use_s / HOUR_S:,.0f} h"
            verdict = f"becomes cheaper after {hours} of use{_by_the_calendar(break_even)}"
        resale = f" less {usd(break_even.resale_usd)} resale" if break_even.resale_usd else ""
        yield (
            f"{break_even.buy} ({usd(break_even.purchase_usd)}{resale}) {verdict}; it costs "
            f"{usd(break_even.owned_usd_per_hour)}/h to run, renting its work "
            f"{usd(break_even.rented_usd_per_hour)}/h ({break_even.rent})"
            + (f"; {break_even.over_budget}" if break_even.over_budget else "")
        )


def _by_the_calendar(break_even: BreakEven) -> str:
    """How long that is as it is used, and whether that is within its planned life."""
    if break_even.calendar_s is None or break_even.use_s is None or break_even.life_use_s is None:
        return ""
    late = "" if break_even.use_s <= break_even.life_use_s else ", after the end of its life"
    return f" ({break_even.calendar_s / DAY_S:,.0f} days as it is used{late})"


def _no_answer(plan: Plan) -> Text:
    text = Text("No option satisfies the limits.", style="bold red")
    nearest = plan.nearest
    if nearest is not None:
        text.append(f" Nearest: {_named(nearest)}, {usd(nearest.usd)}: {nearest.why_not}.", "none")
    return text


def _calendar(option: Option) -> str:
    """How long it takes by the calendar, where that is not the machine's time."""
    assert option.run is not None
    run = option.run
    if run.recurring or float(run.calendar_s) <= 1.01 * option.busy_s:
        return ""
    return f" of machine time over {duration(float(run.calendar_s))}"


def before_renting(option: Option, workload: Workload) -> Iterator[str]:
    """What passes before a machine can be rented, where that is a good part of it all: bringing
    the data to where it is kept."""
    run, route, data = option.run, option.route, workload.data
    if run is None or route is None:
        return
    before_s = float(run.before_s)
    if before_s <= 10 * HOUR_S and before_s <= 0.1 * float(run.calendar_s):
        return
    from_home = bool(run.upload_s)
    what = "upload from home" if from_home else f"copying from {route.origin} to {route.kept}"
    stated = data.upload_bytes_per_s if from_home else data.download_bytes_per_s
    key = "data.upload_mbit" if from_home else "data.download_mbit"
    rate = f"{route.size_bytes / before_s * 8 / 1e6:,.4g} Mbit/s"
    yield (
        f"Before that: {_hours(before_s)} of {what} ({route.size_bytes / GB:,.4g} GB at {rate}"
        f"{', assumed' if stated is None else ''}: {key}); {_copied_by(route)}."
    )


def _hours(time_s: float) -> str:
    """In hours, also where they are many: what one waits for is not read in days."""
    return f"{time_s / HOUR_S:,.0f} h" if time_s >= 10 * HOUR_S else duration(time_s)


def _copied_by(route: DataRoute) -> str:
    if route.copied_by == "copying machine":
        return "a small machine is rented for it"
    return "no machine is rented for it"


def machine_of(option: Option) -> str:
    """The machine of an option, and how many of them."""
    return machine(option.offer, option.step.placement.nodes)


def place_of(option: Option, *, instance: bool = True) -> str:
    """`gcp europe-north1 (a3-highgpu-1g)`, or short of the instance, which a table names."""
    offer = option.offer
    if not instance and not offer.quoted:
        return offer.provider
    region = "" if offer.region in ("any", "here") else f" {offer.region}"
    if offer.region == CHEAPEST_REGION:
        region = f", {offer.region}"
    term = "" if offer.commitment is None else f", {offer.commitment.name}"
    keeping = f"; {option.keeping}" if option.keeping else ""
    return f"{offer.provider}{region} ({offer.instance}{term}{keeping})"


def money(amount_usd: float, workload: Workload) -> str:
    """Dollars, and the user's own currency beside them."""
    return in_currency(amount_usd, workload.currency, workload.usd_per_unit)


def _bracketed(text: str) -> str:
    return f" ({text})" if text else ""


def grounds(plan: Plan) -> Iterator[Text]:
    """What the answer rests on, in one line below it; none where there is nothing to say."""
    sentences = rests_on(plan)
    if sentences:
        yield Text.assemble(("Rests on: ", "bold"), " ".join(sentences))


# As a page: the words above the tables of options.


BEST, BEST_IN_FULL = 5, 10
"""Rows of the table of the best, on one screen and in full."""
OWN_SHOWN = 3
"""Own offers that lost and are named with the reason on the first screen."""
NARROW = 100
"""Columns below which words are kept short."""
EXPECTED_APART = 0.005
"""From how much on the mean of a cost is said beside the likely one, as a share of it."""
NAME_WIDTH = 24
"""Characters of an own offer's name in a table."""
WIDE = 148
"""Columns from which the table of the best has room for more than figures."""


def print_plan(
    page: Page,
    plan: Plan,
    workload: Workload,
    profile: Profile,
    *,
    best: int | None = None,
    swing: Swing | None = None,
    trial: TrialValue | None = None,
    full: bool = False,
    file: str = "",
) -> None:
    """Print the answer in words and the table of the best; in full, what else there is to know.

    `file` is the workload's, for commands to go on with.
    """
    for sentence in prices_of_then(plan):
        page.print(sentence)
    page.print(_head(workload, profile))
    for sentence in price_age(plan):
        page.print(sentence)
    for line in (*answer(plan, workload), *grounds(plan)):
        page.print(line)
    remarks = list(worth_knowing(plan, swing, trial, file))
    best = best or (BEST_IN_FULL if full else BEST)
    if not full:
        _print_in_short(page, plan, swing, trial, best, file)
        return
    for title, body in _sections(plan, remarks, page.width - INDENT, best):
        page.print_section(title, body)
    page.print()
    page.print(muted(_explain_hint(plan)))


def _print_in_short(
    page: Page, plan: Plan, swing: Swing | None, trial: TrialValue | None, best: int, file: str
) -> None:
    """The rest of the first screen: what may change one's mind, the best, and where the rest is."""
    decides = swing if swing is not None and swing.winner is not None else None
    pays = trial if trial is not None and trial.is_worth_it else None
    for sentence in (*worth_knowing(plan, decides, pays, file), *_own_lost(plan)):
        page.print(Text(sentence))
    width = page.width - INDENT
    priced = best_of_each_kind(option for option in plan.options if option.cost is not None)
    if priced:
        page.print_section(_best_title(plan, priced, best), _best_table(plan, priced, best, width))
    ruled_out = plan.options[_feasible(plan) :]
    if plan.chosen is None and ruled_out:
        page.print_section("Ruled out", _ruled_out(ruled_out, width))
    page.print()
    for sentence in (*_cheaper_doubtful(plan), f"{_full_hint(plan)} {_explain_hint(plan)}"):
        page.print(muted(sentence))


def _own_lost(plan: Plan) -> Iterator[str]:
    """The user's own offers that cannot be taken, and why."""
    lost = [option for option in plan.options[_feasible(plan) :] if option.offer.quoted]
    for option in lost[:OWN_SHOWN]:
        yield f"Your {_distinct_name(option)} at {option.offer.provider}: {option.why_not}."
    if len(lost) > OWN_SHOWN:
        yield f"{len(lost) - OWN_SHOWN:,} more of your own offers are ruled out: --full."


def _feasible(plan: Plan) -> int:
    """How many options satisfy the limits: they come first."""
    return bisect_left(plan.options, True, key=lambda option: not option.feasible)


def _doubtful_options(plan: Plan) -> list[Option]:
    """What would be the choice if its price could be relied on; cheapest first."""
    last = _feasible(plan)
    first = bisect_left(plan.options, True, hi=last, key=lambda option: bool(option.doubts))
    cheaper = (option for option in plan.options[first:last] if _beats(option, plan))
    return sorted(best_of_each_kind(cheaper), key=_usd)


def _cheaper_doubtful(plan: Plan) -> Iterator[str]:
    doubtful = _doubtful_options(plan)
    if doubtful:
        first = doubtful[0]
        yield (
            f"Cheaper at doubtful prices, which are not chosen: {len(doubtful):,}, from "
            f"{usd(first.usd)} ({_named(first)}: {', '.join(first.doubts)})."
        )


def _full_hint(plan: Plan) -> str:
    """What else there is, and how to see it."""
    parts = []
    faster = len(_worthwhile(plan)) - 1
    if faster > 0:
        parts.append(f"{faster:,} faster for more money")
    if plan.break_even:
        parts.append("rent or buy")
    out = len(plan.options) - _feasible(plan)
    if out:
        parts.append(f"{counted(out, 'option')} ruled out")
    parts.append(f"{counted(len(plan.assumptions), 'assumption')}")
    return f"--full: {', '.join(parts)}."


def prices_of_then(plan: Plan) -> Iterable[str]:
    """The first line of a plan with prices of the past."""
    if plan.prices.kind == "past" and not _has_quotes_alone(plan):
        yield f"With {plan.prices.name}, as if it were that day."


def price_age(plan: Plan) -> Iterable[str]:
    """What the first lines say of the prices where they are old."""
    prices = plan.prices
    if _has_quotes_alone(plan) or prices.kind == "past":
        return
    if plan.today and _has_old_prices(plan):
        yield f"Old prices: {prices_in_words(prices, plan.today)}."


def _has_quotes_alone(plan: Plan) -> bool:
    return all(option.offer.quoted for option in plan.options)


def _has_old_prices(plan: Plan) -> bool:
    """Whether the choice rests on prices that nobody has asked for since long, or most options."""
    if not plan.prices.freshness:
        return days_between(plan.prices.as_of, plan.today) > OLD_DAYS
    listed = [option for option in plan.options if not option.offer.quoted]
    old = [
        option for option in listed if is_old(plan.prices, option.offer, option.tenancy, plan.today)
    ]
    return plan.chosen in old or 2 * len(old) > len(listed)


def _sections(
    plan: Plan, remarks: Sequence[str], width: int, best: int
) -> Iterable[tuple[str, RenderableType]]:
    priced = best_of_each_kind(option for option in plan.options if option.cost is not None)
    if priced:
        yield _best_title(plan, priced, best), _best_table(plan, priced, best, width)
    with_cash = [option for option in _shown(priced, best) if _has_cash(option)]
    if with_cash:
        yield "Paid on the first day, and due if you stop then", _cash_table(with_cash, width)
    if remarks:
        yield "Worth knowing", bullets(remarks)
    faster = _worthwhile(plan)
    if len(faster) > 1:
        title = "Faster for more money: each at least a tenth faster than the one before"
        yield title, _frontier(faster, plan, width)
    cheaper = _doubtful_options(plan)
    if cheaper:
        yield "Cheaper, but doubtful", _doubtful(cheaper[:5], width)
    unpriced = best_of_each_kind(
        option for option in plan.options if option.run and not option.cost
    )
    if unpriced:
        yield "No price known", _unpriced(unpriced[:best], plan.chosen, width)
    if plan.break_even:
        yield "Rent or buy", bullets(rent_or_buy(plan))
    ruled_out = [
        option for option in plan.options if not option.feasible and (option.cost or not option.run)
    ]
    if ruled_out:
        yield "Ruled out", _ruled_out(ruled_out, width)
    yield "Assumed", bullets(plan.assumptions)


def _explain_hint(plan: Plan) -> str:
    rank = plan.chosen.rank if plan.chosen else "RANK"
    return f"--explain {rank} (or a provider, a GPU): its bill line by line, its sources."


def _head(workload: Workload, profile: Profile) -> Text:
    limits = workload.limits
    clauses = [f"{workload.name}: {_work(workload, profile)}"]
    if limits.budget_usd is not None:
        clauses.append(f"budget {money(limits.budget_usd, workload)}")
    if limits.deadline_s is not None:
        clauses.append(f"deadline {duration(limits.deadline_s)}")
    return Text(f"{', '.join(clauses)}.")


def _work(workload: Workload, profile: Profile) -> str:
    samples, length, usage = workload.samples(), workload.length, workload.usage
    if samples is not None:
        work = f"{count(samples)} samples" + (f" ({profile.sample})" if profile.sample else "")
    elif length.iterations is not None:
        work = f"{count(length.iterations)} iterations at each machine's own batch"
    else:
        work = f"{duration(length.training_s)} of training"
    if usage.sessions_per_month is not None:
        sessions = f"{usage.sessions_per_month:g}"
        return f"{sessions} session{'s' if sessions != '1' else ''} a month of {work}"
    return work


def _best_title(plan: Plan, shown: Sequence[Option], best: int) -> str:
    measures = {"expected": "expected cost", "p90": "90th percentile of the cost"}
    is_cost = plan.ranked_by == "cost"
    measure = measures.get(plan.risk, "likely cost") if is_cost else plan.ranked_by
    return (
        f"Best {min(best, len(shown))} of {len(shown)} by {measure}: the best of each "
        f"provider, GPU and tenancy (of {counted(len(plan.options), 'option')})"
    )


def _shown(options: Sequence[Option], best: int) -> list[Option]:
    """The best, and after them what the user wrote into the file, wherever it ranks."""
    own = [option for option in options[best:] if option.offer.quoted]
    return [*options[:best], *own[:best]]


_COUNTED_BESIDE = (
    "* Counts, beside the bill: interruptions, waiting, preferences, usual prices of what has none."
)


def _best_table(plan: Plan, priced: Sequence[Option], best: int, width: int) -> RenderableType:
    """The table of the best, and what its marks mean."""
    shown = _shown(priced, best)
    made = _options(shown, plan, width)
    if any(_is_marked(option, plan) for option in shown):
        return Group(made, muted(_COUNTED_BESIDE))
    return made


def _options(options: Sequence[Option], plan: Plan, width: int) -> Table:
    rows = []
    marked = any(_is_marked(option, plan) for option in options)
    for option in options:
        assert option.cost is not None
        assert option.run is not None
        pad = "" if not marked else "*" if _is_marked(option, plan) else " "
        rows.append(
            (
                str(option.rank),
                option.offer.provider,
                option.offer.region,
                _distinct_name(option),
                option.tenancy,
                "-" if option.offer.owned else usd(option.hourly_usd),
                str(option.step.batch_size),
                duration(option.step.step_time_s.likely),
                duration(option.busy_s),
                usd(plan.measure_usd(option)) + pad,
                *([] if plan.ranked_by == "cost" else [usd(option.expected_cost_usd)]),
                _range(option),
                _mark(option, plan, width),
            )
        )
    head = _ranked_head(plan)
    cost = [] if plan.ranked_by == "cost" else ["cost"]
    return table(
        ("#", "provider", "region", "machine", "tenancy", "$/h", "batch", "step", "time", head,
         *cost, "range", ""),
        rows,
        width,
        right=("#", "$/h", "batch", "step", "time", head, *cost),
        drop=("region", "step", "batch", "$/h", *cost),
        fold=("", "range", "tenancy", "provider", "time"),
    )  # fmt: skip


def _ranked_head(plan: Plan) -> str:
    """The head of what a plan is ranked by."""
    if plan.ranked_by != "cost":
        return "$/M"
    return {"expected": "expected", "p90": "90 % below"}.get(plan.risk, "cost")


def _is_marked(option: Option, plan: Plan) -> bool:
    """Whether it is ranked by more than what it costs in money."""
    if plan.ranked_by != "cost":
        return False
    money_usd = option.expected_cost_usd if plan.risk == "expected" else None
    if money_usd is None:
        money_usd = option.paid_usd - (option.cost.usual_usd if option.cost else 0.0)
    return abs(option.merit_usd - money_usd) > EXPECTED_APART * money_usd


def _has_cash(option: Option) -> bool:
    """Whether it is bought or taken for a term: then a cost says little of what is paid when."""
    owned = option.offer.owned
    return option.offer.commitment is not None or bool(owned and owned.purchase_usd)


def _cash_table(options: Sequence[Option], width: int) -> Table:
    rows = []
    for option in options:
        commitment, cash = option.offer.commitment, option.cash
        rows.append(
            (
                str(option.rank),
                option.offer.provider,
                _distinct_name(option),
                "bought" if commitment is None else commitment.name,
                usd(float(cash.upfront_usd)),
                usd(float(cash.due_usd())),
                usd(option.usd),
            )
        )
    return table(
        ("#", "provider", "machine", "how", "on day one", "still due", "cost"),
        rows,
        width,
        right=("#", "on day one", "still due", "cost"),
        drop=("provider",),
        fold=("still due", "how"),
    )


def _distinct_name(option: Option) -> str:
    """The machine, and what tells the user's own offers apart."""
    name = option.offer.instance
    short = name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1].rstrip()}…"
    own = f" ({short})" if option.offer.quoted else ""
    keeping = f", {option.keeping}" if option.keeping else ""
    return f"{machine_of(option)}{own}{keeping}"


def _mark(option: Option, plan: Plan, width: int) -> str:
    """What became of an option, and where there is room by how much it lost."""
    chosen = plan.chosen
    if chosen is not None and option.rank == chosen.rank:
        return "CHOSEN ✔"
    if not option.feasible:
        return _short_reason(option)
    if option.doubts:
        return f"doubtful: {option.doubts[0]}"
    head = "frontier" if option.on_frontier else ""
    if option.rank in plan.tie:
        head = "tie"
    if option.cost is not None and option.cost.usual_usd > 0.01 * option.usd:
        unpriced = f"{usd(option.cost.usual_usd)}{' unpriced' if width >= NARROW else '?'}"
        head = f"{head}, {unpriced}" if head else unpriced
    elif option.cost is not None and option.cost.unknown:
        head = f"{head}, not all priced" if head else "not all priced"
    if chosen is None or width < WIDE:
        return head
    more_usd = plan.measure_usd(option) - plan.measure_usd(chosen)
    pace = chosen.training_s_per_sample / option.training_s_per_sample
    sign = "+" if more_usd >= 0 else "-"
    return f"{head + ': ' if head else ''}{sign}{usd(abs(more_usd))}, {pace:.1f}x as fast"


def _worthwhile(plan: Plan) -> list[Option]:
    """The choice, and from cheap to fast what is dearer and faster than it, without steps that
    gain less than a tenth of the time."""
    chosen = plan.chosen
    steps = [] if chosen is None else [chosen]
    for option in reversed(plan.frontier) if chosen is not None else ():
        dearer = _paid_usd(option, plan) > _paid_usd(steps[-1], plan)
        if dearer and _time_s(option, plan) <= 0.9 * _time_s(steps[-1], plan):
            steps.append(option)
    return steps


def _paid_usd(option: Option, plan: Plan) -> float:
    """What an option costs as the frontier counts it."""
    return option.paid_usd if plan.ranked_by == "cost" else option.training_merit_usd


def _time_s(option: Option, plan: Plan) -> float:
    return option.busy_s if plan.ranked_by == "cost" else option.training_s_per_sample


def _frontier(options: Sequence[Option], plan: Plan, width: int) -> Table:
    """What an option takes and costs: the run, or where runs do unequal work a million samples."""
    is_whole = plan.ranked_by == "cost"
    rows = [
        (
            str(option.rank),
            duration(option.busy_s if is_whole else option.training_s_per_sample * 1e6),
            usd(_paid_usd(option, plan)),
            machine_of(option),
            option.offer.provider,
            option.tenancy,
        )
        for option in options
        if option.run and option.cost
    ]
    what = {"expected": "expected ", "p90": "90th percentile of "}.get(plan.risk, "")
    heads = ("time", f"{what}cost") if is_whole else ("1M samples in", f"{what}$/M")
    all_heads = ("#", *heads, "machine", "provider", "tenancy")
    return table(
        all_heads, rows, width, right=("#", *heads), fold=("tenancy", "provider", "machine")
    )


def _beats(option: Option, plan: Plan) -> bool:
    """Whether a doubtful option would be the choice if its price held."""
    return plan.chosen is None or plan.measure_usd(option) < plan.measure_usd(plan.chosen)


def _range(option: Option) -> str:
    return "" if option.cost_usd is None else usd_range(option.cost_usd)


def _usd(option: Option) -> float:
    return option.usd


def _doubtful(options: Sequence[Option], width: int) -> Table:
    rows = [
        (
            str(option.rank),
            usd(option.usd),
            machine_of(option),
            option.offer.provider,
            option.tenancy,
            f"{', '.join(option.doubts)}; seen {option.offer.seen_on(option.tenancy)}",
        )
        for option in options
    ]
    return table(
        ("#", "cost", "machine", "provider", "tenancy", "why doubtful"),
        rows,
        width,
        right=("#", "cost"),
        fold=("why doubtful", "tenancy"),
        wrap="why doubtful",
    )


def _unpriced(options: Sequence[Option], chosen: Option | None, width: int) -> Table:
    rows = []
    for option in options:
        assert option.run is not None
        tie_usd = tie_usd_per_hour(option, chosen)
        rows.append(
            (
                str(option.rank),
                machine_of(option),
                option.offer.provider,
                str(option.step.batch_size),
                duration(option.step.step_time_s.likely),
                duration(option.busy_s),
                "unknown" if tie_usd is None else f"{usd(tie_usd)}/h",
            )
        )
    return table(
        ("#", "machine", "provider", "batch", "step", "time", "best value below"),
        rows,
        width,
        right=("#", "batch", "step", "time", "best value below"),
        drop=("batch", "step"),
    )


def _ruled_out(options: Sequence[Option], width: int) -> Table:
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(_short_reason(option), []).append(option)
    rows = [
        (
            f"{len(members):,}",
            reason,
            _example(next((member for member in members if member.offer.quoted), members[0])),
        )
        for reason, members in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
    return table(("options", "why", "such as"), rows, width, right=("options",), wrap="such as")


def _example(option: Option) -> str:
    return (
        f"{_distinct_name(option)} at {option.offer.provider} ({option.tenancy}): {option.why_not}"
    )


def _short_reason(option: Option) -> str:
    if not option.fits:
        return "does not fit"
    if option.blocked is not None:
        return "requirement not met"
    if not option.runs:
        return "PyTorch does not run"
    if not option.for_sale:
        return "not for sale"
    if option.cost is None:
        return "no price known"
    if not option.cash_within_budget:
        return "over budget on day one"
    return "over budget" if not option.within_budget else "too late"
