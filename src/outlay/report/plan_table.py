"""A plan as a person reads it: the answer, its bill, the best ten, the frontier, the losers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outlay.plan import Option, Plan, tie_usd_per_hour
from outlay.report.console import Page, muted, table
from outlay.report.text import (
    count,
    counted,
    duration,
    duration_range,
    machine,
    usd,
    usd_range,
)
from outlay.trace.trace import Profile
from outlay.units import HOUR_S
from outlay.workload import Workload

BEST = 10
INDENT = 2
WIDE = 148
"""Columns from which the table of the best has room for more than figures."""


def print_plan(
    page: Page, plan: Plan, workload: Workload, profile: Profile, *, best: int = BEST
) -> None:
    """Print the whole report."""
    page.print(_head(plan, workload, profile))
    page.print(_answer(plan, workload))
    for title, body in _sections(plan, workload, page.width - INDENT, best):
        page.print()
        page.print(Text(title, style="bold"))
        page.print(Padding(body, (0, 0, 0, INDENT)))


def _sections(
    plan: Plan, workload: Workload, width: int, best: int
) -> Iterable[tuple[str, RenderableType]]:
    if plan.chosen is not None:
        yield "What it costs, line by line", _bill(plan.chosen, workload, width)
    priced = _representatives(option for option in plan.options if option.cost is not None)
    if priced:
        yield _best_title(plan, priced, best), _options(_shown(priced, best), plan, width)
    faster = _worthwhile(plan.frontier)
    if len(faster) > 1:
        title = "Faster for more money: the frontier, in steps of a tenth of the time or more"
        yield title, _frontier(faster, width)
    doubtful = _representatives(one for one in plan.options if one.feasible and one.doubts)
    cheaper = [one for one in doubtful if _beats(one, plan)]
    if cheaper:
        yield "Cheaper, but doubtful", _doubtful(cheaper[:5], width)
    unpriced = _representatives(one for one in plan.options if one.run and not one.cost)
    if unpriced:
        yield "No price known", _unpriced(unpriced[:best], plan.chosen, width)
    ruled_out = [one for one in plan.options if not one.feasible and (one.cost or not one.run)]
    if ruled_out:
        yield "Ruled out", _ruled_out(ruled_out, width)
    if plan.break_even:
        yield "Rent or buy", _bullets(_break_even(plan))
    yield "Assumed", _bullets(plan.assumptions)


def _head(plan: Plan, workload: Workload, profile: Profile) -> Text:
    limits = workload.limits
    said = [f"{workload.name}: {_work(workload, profile)}"]
    if limits.budget_usd is not None:
        said.append(f"budget {_money(limits.budget_usd, workload)}")
    if limits.deadline_s is not None:
        said.append(f"deadline {duration(limits.deadline_s)}")
    offers = len({option.offer.identity for option in plan.options})
    options = counted(len(plan.options), "option")
    return Text(f"{', '.join(said)}. {options} from {counted(offers, 'offer')}.")


def _work(workload: Workload, profile: Profile) -> str:
    samples, length, usage = workload.samples(), workload.length, workload.usage
    if samples is not None:
        work = f"{count(samples)} samples ({profile.sample})"
    elif length.iterations is not None:
        work = f"{count(length.iterations)} iterations at each machine's own batch"
    else:
        work = f"{duration(length.training_s)} of training"
    if usage.sessions_per_month is not None:
        return f"{usage.sessions_per_month:g} sessions a month of {work}"
    return work


def _money(amount_usd: float, workload: Workload) -> str:
    """Dollars, and the user's own currency beside them."""
    if workload.currency == "USD":
        return usd(amount_usd)
    return f"{usd(amount_usd)} ({amount_usd / workload.usd_per_unit:,.0f} {workload.currency})"


def _calendar(option: Option) -> str:
    """How long it takes by the calendar, where that is not the machine's time."""
    assert option.run is not None
    run = option.run
    if run.recurring or run.period_s.likely <= 1.01 * run.busy_s.likely:
        return ""
    return f" of machine time over {duration(run.period_s.likely)}"


def _answer(plan: Plan, workload: Workload) -> Text:
    chosen = plan.chosen
    if chosen is None or chosen.cost is None or chosen.run is None:
        return _no_answer(plan)
    cost, run = chosen.cost.usd, chosen.run.busy_s
    a_month = " a month" if workload.usage.sessions_per_month is not None else ""
    head = "Cheapest" if plan.ranked_by == "cost" else "Best value"
    text = Text(f"{head}: ", style="bold green")
    text.append(
        f"{_machine(chosen)} at {_place(chosen)}, {chosen.tenancy}: "
        f"{_money(cost.likely, workload)}{a_month}{_bracketed(usd_range(cost))}, "
        f"{duration(run.likely)}{_bracketed(duration_range(run))}{_calendar(chosen)}."
    )
    budget_usd = workload.limits.budget_usd
    if budget_usd is not None and cost.high > budget_usd:
        text.append(" May pass the budget in the worst tenth of cases.", style="yellow")
    return text


def _machine(option: Option) -> str:
    """The machine of an option, and how many of them."""
    return machine(option.offer, option.step.placement.nodes)


def _bracketed(text: str) -> str:
    return f" ({text})" if text else ""


def _no_answer(plan: Plan) -> Text:
    text = Text("No option satisfies the limits.", style="bold red")
    nearest = next((one for one in plan.options if one.cost is not None), None)
    if nearest is not None and nearest.cost is not None:
        text.append(
            f" Nearest: {_machine(nearest)} at {_place(nearest)}, {nearest.tenancy}, "
            f"{usd(nearest.cost.usd.likely)}: {nearest.why_not}."
        )
    return text


def _place(option: Option) -> str:
    """`gcp europe-north1 (a3-highgpu-1g)`."""
    offer = option.offer
    region = "" if offer.region in ("any", "here") else f" {offer.region}"
    return f"{offer.provider}{region} ({offer.instance})"


def _bill(option: Option, workload: Workload, width: int) -> Table:
    assert option.cost is not None
    rows = [
        (line.name, usd(line.usd.likely), usd_range(line.usd), line.basis)
        for line in option.cost.breakdown.lines
    ]
    total = option.cost.usd
    own = "" if workload.currency == "USD" else _money(total.likely, workload)
    rows.append(("total", usd(total.likely), usd_range(total), own))
    rows += [("not priced", "unknown", "", missing) for missing in option.cost.unknown]
    return table(
        ("line", "usd", "range", "how"), rows, width, right=("usd",), drop=("range",), wrap="how"
    )


def _representatives(options: Iterable[Option]) -> list[Option]:
    """The best option of each provider, GPU and tenancy, in rank order; every quote."""
    seen: set[tuple[str, str, str]] = set()
    best = []
    for option in options:
        key = (option.offer.provider, option.offer.gpu, option.tenancy)
        if key not in seen or option.offer.quoted:
            seen.add(key)
            best.append(option)
    return best


def _best_title(plan: Plan, shown: Sequence[Option], best: int) -> str:
    return (
        f"Best {min(best, len(shown))} of {len(shown)} by {plan.ranked_by}: the best of each "
        f"provider, GPU and tenancy (--json has all {len(plan.options):,})"
    )


def _shown(options: Sequence[Option], best: int) -> list[Option]:
    """The best, and after them what the user wrote into the file, wherever it ranks."""
    own = [option for option in options[best:] if option.offer.quoted]
    return [*options[:best], *own[:best]]


def _options(options: Sequence[Option], plan: Plan, width: int) -> Table:
    rows = []
    for option in options:
        assert option.cost is not None
        assert option.run is not None
        rows.append(
            (
                str(option.rank),
                option.offer.provider,
                option.offer.region,
                _machine(option),
                option.tenancy,
                "-" if option.offer.owned else usd(option.offer.hourly_usd(option.tenancy)),
                str(option.step.batch_size),
                duration(option.step.step_time_s.likely),
                duration(option.run.busy_s.likely),
                usd(option.cost.usd.likely),
                usd_range(option.cost.usd),
                usd(option.training_usd_per_million_samples),
                _mark(option, plan, wide=width >= WIDE),
            )
        )
    drop = ["region", "$/M", "step", "batch", "range", "$/h", "#"]
    if plan.ranked_by != "cost":
        drop.remove("$/M")
    return table(
        ("#", "provider", "region", "machine", "tenancy", "$/h", "batch", "step", "time", "cost",
         "range", "$/M", ""),
        rows,
        width,
        right=("#", "$/h", "batch", "step", "time", "cost", "$/M"),
        drop=drop,
    )  # fmt: skip


def _mark(option: Option, plan: Plan, *, wide: bool) -> str:
    """What became of an option, and where there is room by how much it lost."""
    chosen = plan.chosen
    if chosen is not None and option.rank == chosen.rank:
        return "CHOSEN ✔"
    if not option.feasible:
        return _reason(option)
    if option.doubts:
        return f"doubtful: {option.doubts[0]}"
    head = "frontier" if option.on_frontier else ""
    if chosen is None or not wide:
        return head
    more_usd = _merit_usd(option, plan) - _merit_usd(chosen, plan)
    pace = chosen.training_s_per_sample / option.training_s_per_sample
    return f"{head + ': ' if head else ''}+{usd(more_usd)}, {pace:.1f}x as fast"


def _worthwhile(frontier: Sequence[Option]) -> list[Option]:
    """The frontier from cheap to fast, without steps that gain less than a tenth of the time."""
    kept: list[Option] = []
    for option in reversed(frontier):
        if not kept or option.training_s_per_sample <= 0.9 * kept[-1].training_s_per_sample:
            kept.append(option)
    return kept


def _frontier(options: Sequence[Option], width: int) -> Table:
    rows = [
        (
            duration(option.run.busy_s.likely),
            usd(option.cost.usd.likely),
            _machine(option),
            option.offer.provider,
            option.tenancy,
        )
        for option in options
        if option.run and option.cost
    ]
    return table(
        ("time", "cost", "machine", "provider", "tenancy"), rows, width, right=("time", "cost")
    )


def _beats(option: Option, plan: Plan) -> bool:
    """Whether a doubtful option would be the choice if its price held."""
    return plan.chosen is None or _merit_usd(option, plan) < _merit_usd(plan.chosen, plan)


def _merit_usd(option: Option, plan: Plan) -> float:
    """The dollars a plan is ranked by."""
    if plan.ranked_by == "cost":
        return _cost_usd(option)
    return option.training_usd_per_million_samples or float("inf")


def _cost_usd(option: Option) -> float:
    return option.cost.usd.likely if option.cost else float("inf")


def _doubtful(options: Sequence[Option], width: int) -> Table:
    rows = [
        (
            usd(_cost_usd(option)),
            _machine(option),
            option.offer.provider,
            option.tenancy,
            f"{', '.join(option.doubts)}; seen {option.offer.as_of}",
        )
        for option in options
    ]
    return table(
        ("cost", "machine", "provider", "tenancy", "why doubtful"),
        rows,
        width,
        right=("cost",),
        wrap="why doubtful",
    )


def _unpriced(options: Sequence[Option], chosen: Option | None, width: int) -> Table:
    rows = []
    for option in options:
        assert option.run is not None
        tie_usd = tie_usd_per_hour(option, chosen)
        rows.append(
            (
                _machine(option),
                option.offer.provider,
                str(option.step.batch_size),
                duration(option.step.step_time_s.likely),
                duration(option.run.busy_s.likely),
                "unknown" if tie_usd is None else f"{usd(tie_usd)}/h",
            )
        )
    return table(
        ("machine", "provider", "batch", "step", "time", "best value below"),
        rows,
        width,
        right=("batch", "step", "time", "best value below"),
        drop=("batch", "step"),
    )


def _ruled_out(options: Sequence[Option], width: int) -> Table:
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(_reason(option), []).append(option)
    rows = [
        (
            f"{len(members):,}",
            reason,
            _example(members[0]),
        )
        for reason, members in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
    return table(("options", "why", "such as"), rows, width, right=("options",), wrap="such as")


def _example(option: Option) -> str:
    return f"{_machine(option)} at {option.offer.provider} ({option.tenancy}): {option.why_not}"


def _reason(option: Option) -> str:
    if not option.fits:
        return "does not fit"
    if not option.runs:
        return "PyTorch does not run"
    if not option.for_sale:
        return "not for sale"
    if option.cost is None:
        return "no price known"
    return "over budget" if not option.within_budget else "too late"


def _break_even(plan: Plan) -> Iterable[str]:
    for one in plan.break_even:
        if one.use_s is None:
            verdict = "never pays: running it costs more than renting the same work"
        else:
            verdict = f"pays after {one.use_s / HOUR_S:,.0f} h of use"
        resale = f" less {usd(one.resale_usd)} resale" if one.resale_usd else ""
        yield (
            f"{one.buy} ({usd(one.purchase_usd)}{resale}) {verdict}; it costs "
            f"{usd(one.owned_usd_per_hour)}/h to run, renting its work "
            f"{usd(one.rented_usd_per_hour)}/h ({one.rent})"
        )


def _bullets(lines: Iterable[str]) -> Group:
    return Group(*(muted(f"- {line}") for line in lines))
