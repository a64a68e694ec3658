"""A plan as a person reads it: the answer, its bill, the best ten, the frontier, the losers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from outlay.estimate import Estimate
from outlay.plan import Option, Plan, tie_usd_per_hour
from outlay.report.console import fitted, muted, table
from outlay.report.text import count, duration, usd, usd_range
from outlay.trace.trace import Profile
from outlay.units import HOUR_S
from outlay.workload import Workload

BEST = 10


def print_plan(
    console: Console, plan: Plan, workload: Workload, profile: Profile, *, best: int = BEST
) -> None:
    """Print the whole report."""
    console.print(_head(plan, workload, profile))
    console.print(_answer(plan, workload))
    sections: list[tuple[str, RenderableType]] = []
    if plan.chosen is not None:
        sections.append(("What it costs, line by line", _bill(plan.chosen, workload)))
    shown = _representatives(option for option in plan.options if option.cost is not None)
    width = console.width - 2
    sections.append((_best_title(plan, shown, best), _options(shown[:best], plan.chosen, width)))
    faster = _worthwhile(plan.frontier)
    if len(faster) > 1:
        sections.append(
            (
                "Faster for more money: the frontier, in steps of a tenth of the time or more",
                _frontier(faster),
            )
        )
    doubtful = _representatives(one for one in plan.options if one.feasible and one.doubts)
    cheaper = [one for one in doubtful if _beats(one, plan.chosen)]
    if cheaper:
        sections.append(("Cheaper if the price holds, which is doubtful", _doubtful(cheaper[:5])))
    unpriced = _representatives(one for one in plan.options if one.run and not one.cost)
    if unpriced:
        sections.append(("No price known", _unpriced(unpriced[:best], plan.chosen)))
    ruled_out = [one for one in plan.options if not one.feasible and (one.cost or not one.run)]
    if ruled_out:
        sections.append(("Ruled out", _ruled_out(ruled_out)))
    if plan.break_even:
        sections.append(("Rent or buy", _break_even(plan)))
    sections.append(("Assumed", _bullets(plan.assumptions)))
    for title, body in sections:
        console.print()
        console.print(Text(title, style="bold"))
        console.print(Padding(body, (0, 0, 0, 2)))


def _head(plan: Plan, workload: Workload, profile: Profile) -> Text:
    limits = workload.limits
    work = _work(workload, profile)
    said = [f"{workload.name}: {work}"]
    if limits.budget_usd is not None:
        said.append(f"budget {usd(limits.budget_usd)}")
    if limits.deadline_s is not None:
        said.append(f"deadline {duration(limits.deadline_s)}")
    offers = len({option.offer.identity for option in plan.options})
    return Text(", ".join(said) + f". {len(plan.options):,} options from {offers:,} offers.")


def _work(workload: Workload, profile: Profile) -> str:
    samples, length = workload.samples(), workload.length
    if samples is not None:
        return f"{count(samples)} samples ({profile.sample})"
    if length.iterations is not None:
        return f"{count(length.iterations)} iterations at each machine's own batch"
    return f"{duration(length.training_s)} of training"


def _answer(plan: Plan, workload: Workload) -> Text:
    chosen = plan.chosen
    if chosen is None or chosen.cost is None or chosen.run is None:
        return Text("No option satisfies the limits.", style="bold red")
    cost, run = chosen.cost.usd, chosen.run.busy_s
    text = Text("Cheapest: ", style="bold green")
    text.append(
        f"{_machine(chosen)} at {_place(chosen)}, {chosen.tenancy}: "
        f"{usd(cost.likely)} ({usd_range(cost)}), {duration(run.likely)} "
        f"({duration(run.low)} - {duration(run.high)})."
    )
    budget_usd = workload.limits.budget_usd
    if budget_usd is not None and cost.high > budget_usd:
        text.append(" May pass the budget in the worst tenth of cases.", style="yellow")
    if workload.currency != "USD":
        text.append(f" {cost.likely / workload.usd_per_unit:,.0f} {workload.currency}.")
    return text


def _machine(option: Option) -> str:
    """`8x H100 SXM`, or the share of a GPU: `1/8 L4`."""
    offer = option.offer
    if offer.gpu_share != 1:
        return f"{offer.gpu_share:.3g} of a {offer.gpu}"
    return f"{offer.gpus}x {offer.gpu}"


def _place(option: Option) -> str:
    """`gcp europe-north1 (a3-highgpu-1g)`."""
    offer = option.offer
    region = "" if offer.region == "any" else f" {offer.region}"
    return f"{offer.provider}{region} ({offer.instance})"


def _bill(option: Option, workload: Workload) -> Table:
    assert option.cost is not None
    made = table("line", "usd", "range", "how", right=("usd",))
    for line in option.cost.breakdown.lines:
        made.add_row(line.name, usd(line.usd.likely), _spread(line.usd), line.basis)
    made.add_row("total", usd(option.cost.usd.likely), _spread(option.cost.usd), "", style="bold")
    for missing in option.cost.unknown:
        made.add_row("not priced", "unknown", "", missing, style="yellow")
    if workload.usage.sessions_per_month:
        made.add_row("", "", "", "a month")
    return made


def _spread(estimate: Estimate) -> str:
    return "" if estimate.low == estimate.high else usd_range(estimate)


def _representatives(options: Iterable[Option]) -> list[Option]:
    """The best option of each provider, GPU and tenancy, in rank order."""
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
        f"Best {min(best, len(shown))} of {len(shown)} by {plan.ranked_by} ($/M), the best of each "
        f"provider, GPU and tenancy; all {len(plan.options):,} in --json"
    )


def _options(options: Sequence[Option], chosen: Option | None, width: int) -> Table:
    made = table(
        "#", "provider", "region", "machine", "tenancy", "$/h", "batch", "step", "time", "cost",
        "range", "$/M", "", right=("#", "$/h", "batch", "step", "time", "cost", "$/M"),
    )  # fmt: skip
    for option in options:
        assert option.cost is not None
        assert option.run is not None
        made.add_row(
            str(option.rank),
            option.offer.provider,
            option.offer.region,
            _machine(option),
            option.tenancy,
            usd(option.offer.hourly_usd(option.tenancy)) if not option.offer.owned else "-",
            str(option.step.batch_size),
            duration(option.step.step_time_s.likely),
            duration(option.run.busy_s.likely),
            usd(option.cost.usd.likely),
            usd_range(option.cost.usd),
            usd(option.training_usd_per_million_samples),
            _mark(option, chosen),
        )
    return fitted(made, width, ("region", "$/M", "step", "batch", "range", "$/h"))


def _mark(option: Option, chosen: Option | None) -> str:
    if chosen is not None and option.rank == chosen.rank:
        return "CHOSEN ✔"
    if option.doubts:
        return f"doubtful: {option.doubts[0]}"
    if not option.within_budget:
        return "over budget"
    if not option.meets_deadline:
        return "too late"
    return "frontier" if option.on_frontier else ""


def _worthwhile(frontier: Sequence[Option]) -> list[Option]:
    """The frontier from cheap to fast, without steps that gain less than a tenth of the time."""
    kept: list[Option] = []
    for option in reversed(frontier):
        if not kept or option.training_s_per_sample <= 0.9 * kept[-1].training_s_per_sample:
            kept.append(option)
    return kept


def _frontier(options: Sequence[Option]) -> Table:
    made = table("time", "cost", "machine", "provider", "tenancy", right=("time", "cost"))
    for option in options:
        assert option.cost is not None
        assert option.run is not None
        made.add_row(
            duration(option.run.busy_s.likely),
            usd(option.cost.usd.likely),
            _machine(option),
            option.offer.provider,
            option.tenancy,
        )
    return made


def _beats(option: Option, chosen: Option | None) -> bool:
    if option.cost is None:
        return False
    return chosen is None or chosen.cost is None or option.cost.usd.likely < chosen.cost.usd.likely


def _doubtful(options: Sequence[Option]) -> Table:
    made = table("cost", "machine", "provider", "tenancy", "why doubtful", right=("cost",))
    for option in options:
        assert option.cost is not None
        made.add_row(
            usd(option.cost.usd.likely),
            _machine(option),
            option.offer.provider,
            option.tenancy,
            f"{', '.join(option.doubts)}; seen {option.offer.as_of}",
        )
    return made


def _unpriced(options: Sequence[Option], chosen: Option | None) -> Table:
    made = table(
        "machine", "provider", "batch", "step", "time", "cheapest below",
        right=("batch", "step", "time", "cheapest below"),
    )  # fmt: skip
    for option in options:
        assert option.run is not None
        tie_usd = tie_usd_per_hour(option, chosen)
        made.add_row(
            _machine(option),
            option.offer.provider,
            str(option.step.batch_size),
            duration(option.step.step_time_s.likely),
            duration(option.run.busy_s.likely),
            "unknown" if tie_usd is None else f"{usd(tie_usd)}/h",
        )
    return made


def _ruled_out(options: Sequence[Option]) -> Table:
    made = table("options", "why", "such as", right=("options",))
    for reason, members in _by_reason(options).items():
        example = members[0]
        made.add_row(
            f"{len(members):,}",
            reason,
            f"{_machine(example)} at {example.offer.provider} "
            f"({example.tenancy}): {example.why_not}",
        )
    return made


def _by_reason(options: Sequence[Option]) -> dict[str, list[Option]]:
    groups: dict[str, list[Option]] = {}
    for option in options:
        groups.setdefault(_reason(option), []).append(option)
    order = Counter({reason: len(members) for reason, members in groups.items()})
    return {reason: groups[reason] for reason, _ in order.most_common()}


def _reason(option: Option) -> str:
    if not option.fits:
        return "does not fit"
    if not option.runs:
        return "PyTorch does not run"
    if not option.for_sale:
        return "not for sale"
    if option.cost is None:
        return "no price known"
    return "over budget" if not option.within_budget else "misses the deadline"


def _break_even(plan: Plan) -> RenderableType:
    lines = []
    for one in plan.break_even:
        if one.use_s is None:
            verdict = "never pays: running it costs more than renting the same work"
        else:
            verdict = f"pays after {one.use_s / HOUR_S:,.0f} h of use"
        lines.append(
            f"{one.buy} ({usd(one.purchase_usd)} less resale) {verdict}; it costs "
            f"{usd(one.owned_usd_per_hour)}/h to run, renting its work "
            f"{usd(one.rented_usd_per_hour)}/h ({one.rent})"
        )
    return _bullets(lines)


def _bullets(lines: Iterable[str]) -> Group:
    return Group(*(muted(f"- {line}") for line in lines))
