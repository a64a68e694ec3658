"""A plan as a person reads it: the answer, its bill, the best ten, the frontier, the losers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outlay.decide import Swing, Trial
from outlay.option import Option
from outlay.plan import Plan, tie_usd_per_hour
from outlay.report.console import Page, bullets, muted, table
from outlay.report.plan_words import answer, machine_of, money, rent_or_buy, worth_knowing
from outlay.report.text import count, counted, duration, usd, usd_range
from outlay.trace.trace import Profile
from outlay.workload import Workload

BEST = 10
INDENT = 2
NARROW = 100
"""Columns below which words are kept short."""
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
    best: int = BEST,
    swing: Swing | None = None,
    trial: Trial | None = None,
) -> None:
    """Print the answer in words, the table of the best, and what else one should know."""
    page.print(_head(plan, workload, profile))
    for line in answer(plan, workload):
        page.print(line)
    known = list(worth_knowing(plan, swing, trial))
    for title, body in _sections(plan, known, page.width - INDENT, best):
        page.print()
        page.print(Text(title, style="bold"))
        page.print(Padding(body, (0, 0, 0, INDENT)))
    page.print()
    page.print(muted(_footer(plan)))


def _sections(
    plan: Plan, known: Sequence[str], width: int, best: int
) -> Iterable[tuple[str, RenderableType]]:
    priced = _representatives(option for option in plan.options if option.cost is not None)
    if priced:
        yield _best_title(plan, priced, best), _options(_shown(priced, best), plan, width)
    if known:
        yield "Worth knowing", bullets(known)
    faster = _worthwhile(plan)
    if len(faster) > 1:
        title = "Faster for more money: the frontier, in steps of a tenth of the time or more"
        yield title, _frontier(faster, width)
    doubtful = _representatives(one for one in plan.options if one.feasible and one.doubts)
    cheaper = [one for one in doubtful if _beats(one, plan)]
    if cheaper:
        yield "Cheaper, but doubtful", _doubtful(sorted(cheaper[:5], key=_usd), width)
    unpriced = _representatives(one for one in plan.options if one.run and not one.cost)
    if unpriced:
        yield "No price known", _unpriced(unpriced[:best], plan.chosen, width)
    if plan.break_even:
        yield "Rent or buy", bullets(rent_or_buy(plan))
    ruled_out = [one for one in plan.options if not one.feasible and (one.cost or not one.run)]
    if ruled_out:
        yield "Ruled out", _ruled_out(ruled_out, width)
    yield "Assumed", bullets(plan.assumptions)


def _footer(plan: Plan) -> str:
    asked = "1" if plan.chosen else "RANK"
    return (
        f"The bill line by line, what it hangs on, and every source: --explain {asked} "
        "(or a provider, a GPU ...)"
    )


def _head(plan: Plan, workload: Workload, profile: Profile) -> Text:
    limits = workload.limits
    said = [f"{workload.name}: {_work(workload, profile)}"]
    if limits.budget_usd is not None:
        said.append(f"budget {money(limits.budget_usd, workload)}")
    if limits.deadline_s is not None:
        said.append(f"deadline {duration(limits.deadline_s)}")
    offers = len({option.offer.identity for option in plan.options})
    options = counted(len(plan.options), "option")
    return Text(f"{', '.join(said)}. {options} from {counted(offers, 'offer')}.")


def _work(workload: Workload, profile: Profile) -> str:
    samples, length, usage = workload.samples(), workload.length, workload.usage
    if samples is not None:
        work = f"{count(samples)} samples" + (f" ({profile.sample})" if profile.sample else "")
    elif length.iterations is not None:
        work = f"{count(length.iterations)} iterations at each machine's own batch"
    else:
        work = f"{duration(length.training_s)} of training"
    if usage.sessions_per_month is not None:
        return f"{usage.sessions_per_month:g} sessions a month of {work}"
    return work


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
                _told_apart(option),
                option.tenancy,
                "-" if option.offer.owned else usd(option.offer.hourly_usd(option.tenancy)),
                str(option.step.batch_size),
                duration(option.step.step_time_s.likely),
                duration(option.busy_s),
                usd(option.usd),
                _range(option),
                usd(option.training_usd_per_million_samples),
                _mark(option, plan, width),
            )
        )
    drop = ["region", "$/M", "step", "batch", "#", "$/h", "range"]
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


def _told_apart(option: Option) -> str:
    """The machine, and what tells the user's own offers apart."""
    name = option.offer.instance
    short = name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1].rstrip()}…"
    own = f" ({short})" if option.offer.quoted else ""
    kept = f", {option.keeping}" if option.keeping else ""
    return f"{machine_of(option)}{own}{kept}"


def _mark(option: Option, plan: Plan, width: int) -> str:
    """What became of an option, and where there is room by how much it lost."""
    chosen = plan.chosen
    if chosen is not None and option.rank == chosen.rank:
        return "CHOSEN ✔"
    if not option.feasible:
        return _reason(option)
    if option.doubts:
        return f"doubtful: {option.doubts[0]}"
    head = "frontier" if option.on_frontier else ""
    if option.cost is not None and option.cost.usual_usd > 0.01 * option.usd:
        unpriced = f"+{usd(option.cost.usual_usd)}{' not priced' if width >= NARROW else '?'}"
        head = f"{head}, {unpriced}" if head else unpriced
    if chosen is None or width < WIDE:
        return head
    more_usd = _merit_usd(option, plan) - _merit_usd(chosen, plan)
    pace = chosen.training_s_per_sample / option.training_s_per_sample
    return f"{head + ': ' if head else ''}+{usd(more_usd)}, {pace:.1f}x as fast"


def _worthwhile(plan: Plan) -> list[Option]:
    """The frontier from cheap to fast, without steps that gain less than a tenth of the time."""
    kept: list[Option] = []
    for option in reversed(plan.frontier):
        if not kept or _time_s(option, plan) <= 0.9 * _time_s(kept[-1], plan):
            kept.append(option)
    return kept


def _time_s(option: Option, plan: Plan) -> float:
    return option.busy_s if plan.ranked_by == "cost" else option.training_s_per_sample


def _frontier(options: Sequence[Option], width: int) -> Table:
    rows = [
        (
            duration(option.busy_s),
            usd(option.usd),
            machine_of(option),
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
        return option.merit_usd
    return option.training_usd_per_million_samples or float("inf")


def _range(option: Option) -> str:
    return "" if option.cost_usd is None else usd_range(option.cost_usd)


def _usd(option: Option) -> float:
    return option.usd


def _doubtful(options: Sequence[Option], width: int) -> Table:
    rows = [
        (
            usd(option.usd),
            machine_of(option),
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
                machine_of(option),
                option.offer.provider,
                str(option.step.batch_size),
                duration(option.step.step_time_s.likely),
                duration(option.busy_s),
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
            _example(next((one for one in members if one.offer.quoted), members[0])),
        )
        for reason, members in sorted(groups.items(), key=lambda group: -len(group[1]))
    ]
    return table(("options", "why", "such as"), rows, width, right=("options",), wrap="such as")


def _example(option: Option) -> str:
    return f"{_told_apart(option)} at {option.offer.provider} ({option.tenancy}): {option.why_not}"


def _reason(option: Option) -> str:
    if not option.fits:
        return "does not fit"
    if option.blocked is not None:
        return "asked otherwise"
    if not option.runs:
        return "PyTorch does not run"
    if not option.for_sale:
        return "not for sale"
    if option.cost is None:
        return "no price known"
    return "over budget" if not option.within_budget else "too late"
