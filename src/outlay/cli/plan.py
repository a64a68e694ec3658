"""`outlay plan`: the answer for a workload file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    as_of_option,
    is_typed,
    json_option,
    learned_calibration,
    length_option,
    parse_length,
    prices_of,
    prices_option,
    print_document,
    tell,
    today,
    trust_option,
)
from outlay.cli.prices import alert_options, refresh_first, send_news, until_it_happens

if TYPE_CHECKING:
    from outlay.offers.price_book import PriceBook
    from outlay.plan.option import Option
    from outlay.plan.ranking import Plan
    from outlay.workload.workload import Workload


@click.command("plan", no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--best", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows to show."
)
@click.option(
    "--explain",
    metavar="OFFER",
    help="One option in full: its rank, or words of it (a provider, a GPU, an instance ...).",
)
@click.option(
    "--vary",
    metavar="INPUT=VALUES",
    help="Plan again and again with other values of one input: sessions=1..12, data.size=1TB,2TB.",
)
@click.option(
    "--max-options", type=click.IntRange(1), help="Options in JSON, best first.  [default: all]"
)
@click.option(
    "--measured",
    multiple=True,
    metavar="FILE",
    help="A measurement of the step (outlay probe), beside those the file names. Any number.",
)
@prices_option
@trust_option
@as_of_option
@click.option("--refresh", is_flag=True, help="Refresh prices first (as `outlay prices refresh`).")
@click.option(
    "--alert-below",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="Only say whether the choice is expected to cost less; exits with 3 where it is not.",
)
@alert_options
@length_option
@click.option("--sources", is_flag=True, help="Also say where the figures of the choice come from.")
@json_option
def command(
    file: Path,
    best: int,
    explain: str | None,
    vary: str | None,
    max_options: int | None,
    measured: tuple[str, ...],
    prices: str,
    trust: str | None,
    as_of: str | None,
    refresh: bool,
    alert_below: float | None,
    every: str | None,
    notify: tuple[str, ...],
    length: str | None,
    sources: bool,
    as_json: bool,
) -> int:
    """Rank every offer for a workload: time, cost line by line, and why others lost.

    FILE is a workload file (TOML); `outlay init` writes one. Or a measurement (.json) that `outlay
    probe` wrote, with --length where it does not know how long the whole run is.

    \b
    Example:
      outlay plan outlay.toml
      outlay plan outlay.toml --explain 1            the bill of the choice, and what it hangs on
      outlay plan outlay.toml --explain "lambda a10" why that one lost
      outlay plan outlay.toml --vary sessions=1..12  where the answer turns
      outlay plan outlay.toml --measured probe.json  with a step time that was measured
      outlay plan probe.json --length "90 epochs"    what a probed command costs everywhere
      outlay plan outlay.toml --as-of 2025-06        what it would have cost then
      outlay plan outlay.toml --max-options 20 --json | jq .chosen
      outlay plan outlay.toml --refresh --alert-below 80 --every 2h --notify ntfy://my-topic

    Exits with 3 when no option satisfies the limits.
    """
    if vary is not None and explain is not None:
        raise click.UsageError("--vary and --explain answer different questions: give one.")
    if as_of is not None and (refresh or alert_below is not None):
        other = "--refresh" if refresh else "--alert-below"
        raise click.UsageError(f"{other} and --as-of exclude each other: give one.")
    if refresh and prices == "bundled":
        raise click.UsageError("--refresh and --prices bundled exclude each other: give one.")
    if alert_below is None and (every is not None or is_typed("notify")):
        raise click.UsageError("--every and --notify go with --alert-below.")

    def newest() -> PriceBook:
        if refresh:
            refresh_first()
        return prices_of(prices, as_of, trust)

    if vary is not None:
        return _vary(file, vary, measured, length, newest(), as_json=as_json)
    from outlay.plan.from_measurement import load_workload
    from outlay.plan.pipeline import plan_workload
    from outlay.plan.sensitivity import named_option

    workload = load_workload(file, parse_length(length))

    def planned() -> Plan:
        book = newest()
        tell("Predicting and pricing every offer ...")
        return plan_workload(
            workload, measured=measured, learned=learned_calibration(), today=today(), prices=book
        )

    if alert_below is not None:
        return _alert(planned, workload, alert_below, every, notify, max_options, as_json=as_json)
    plan = planned()
    option = None if explain is None else named_option(plan, explain)
    if as_json:
        from outlay.report.documents import plan_document

        print_document(plan_document(plan, workload.name, max_options, explained=option))
    else:
        _print(plan, workload, option, best=best, sources=sources)
    return 0 if plan.chosen is not None else 3


def _print(
    plan: Plan, workload: Workload, explained: Option | None, *, best: int, sources: bool
) -> None:
    """The plan for people: one option in full, or the answer and the best of all."""
    from outlay.plan.sensitivity import rivals_of, swings, trial_value
    from outlay.report.console import Page
    from outlay.report.explain import print_explained, print_sources
    from outlay.report.plan import print_plan

    page, profile = Page(), plan.profile
    assert profile is not None
    if explained is not None:
        moved = swings(explained, rivals_of(plan) if explained is plan.chosen else ())
        print_explained(page, plan, explained, workload, profile, moved)
        return
    widest = next(iter(swings(plan.chosen, rivals_of(plan)) if plan.chosen else ()), None)
    trial = trial_value(plan)
    print_plan(page, plan, workload, profile, best=best, swing=widest, trial=trial)
    if sources and plan.chosen is not None:
        print_sources(page, plan.chosen, profile)


def _alert(
    planned: Callable[[], Plan],
    workload: Workload,
    below_usd: float,
    every: str | None,
    notify: tuple[str, ...],
    max_options: int | None,
    *,
    as_json: bool,
) -> int:
    """Plan until the choice is expected to cost less than a sum; say so."""
    from outlay.report.documents import plan_document
    from outlay.report.plan import alert_words

    def look() -> int:
        plan = planned()
        cost_usd = None if plan.chosen is None else plan.chosen.expected_cost_usd
        happened = cost_usd is not None and cost_usd < below_usd
        words = alert_words(plan, workload, below_usd)
        if as_json:
            print_document(plan_document(plan, workload.name, max_options))
        elif happened or every is None:
            click.echo(words)
        if happened and cost_usd is not None:
            name = f"plan of {workload.name}"
            send_news(
                notify, f"{workload.name} below ${below_usd:,.0f}", [words], [(name, cost_usd)]
            )
        return 0 if happened else 3

    return until_it_happens(look, every, notify)


def _vary(
    file: Path,
    inputs: str,
    measured: tuple[str, ...],
    length: str | None,
    prices: PriceBook,
    *,
    as_json: bool,
) -> int:
    from outlay.plan.vary import vary_workload
    from outlay.report.comparison import curves_document, print_curves
    from outlay.report.console import Page

    curves = vary_workload(
        file,
        inputs,
        length=parse_length(length),
        measured=measured,
        learned=learned_calibration(),
        today=today(),
        prices=prices,
        progress=tell,
    )
    if as_json:
        print_document(curves_document(curves.workload, curves))
    else:
        then = f", with {prices.name}" if prices.kind == "past" else ""
        print_curves(Page(), f"{curves.workload}{then}", curves)
    return 0 if any(point.chosen for point in curves.points) else 3
