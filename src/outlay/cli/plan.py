"""`outlay plan`: the answer for a workload file, or for a model by its name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    as_of_option,
    cache_option,
    compiled_option,
    is_typed,
    json_option,
    learned_calibration,
    length_option,
    parse_length,
    prices_of,
    prices_option,
    print_document,
    progress_option,
    tell,
    today,
    trust_option,
)
from outlay.cli.prices import alert_options, refresh_first, send_news, until_it_happens
from outlay.cli.question import (
    ALL_METHODS,
    AskedOptions,
    is_model,
    question_of,
    question_options,
)

if TYPE_CHECKING:
    from outlay.offers.price_book import PriceBook
    from outlay.plan.affordable import Planned
    from outlay.plan.option import Option
    from outlay.plan.question import AnsweredQuestion, TrainingQuestion
    from outlay.plan.ranking import Plan
    from outlay.workload.workload import Compiling, Workload

ALL = 1_000_000_000
"""More options than there are."""


@click.command("plan", no_args_is_help=True)
@click.argument("subject", metavar="FILE|MODEL")
@question_options
@click.option(
    "--best", type=click.IntRange(1, 1000), help="Rows to show.  [default: 5; with --full 10]"
)
@click.option(
    "--full",
    is_flag=True,
    help="Also what is faster for more money, what was ruled out and why, and every assumption.",
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
    "--max-options",
    type=click.IntRange(1),
    help="Options in JSON, best first.  [default: those worth reading]",
)
@click.option("--all", "list_all", is_flag=True, help="Every option in JSON.")
@click.option(
    "--measured",
    multiple=True,
    metavar="FILE",
    help="A measurement of the step (outlay probe), beside those the file names. Any number.",
)
@compiled_option
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
@cache_option
@progress_option
@json_option
def command(
    subject: str,
    asked: AskedOptions,
    best: int | None,
    full: bool,
    explain: str | None,
    vary: str | None,
    max_options: int | None,
    list_all: bool,
    measured: tuple[str, ...],
    compiled: Compiling | None,
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

    FILE is a workload file (TOML); `outlay init` writes one, and - is standard input. Or a
    measurement (.json) that `outlay probe` wrote, with --length where it does not know how long the
    whole run is.

    MODEL is a model by its name (llama-3.1-8b, hf:ID, timm:NAME ...) or a bundled profile: what is
    to be trained is said with options, and no file is needed. A budget alone asks how much it pays.

    \b
    Example:
      outlay plan llama-3.1-8b --method qlora --samples 50k --tokens 1024 --epochs 3 --budget 100
      outlay plan llama-3.1-8b --method all --data train.jsonl --deadline 2d
      outlay plan llama-3.1-8b --method lora --budget 50
      outlay plan outlay.toml
      outlay plan outlay.toml --explain 1            the bill of the choice, and what it hangs on
      outlay plan outlay.toml --explain "lambda a10" why that one lost
      outlay plan outlay.toml --vary sessions=1..12  where the answer turns
      outlay plan outlay.toml --compiled             as torch.compile runs the step
      outlay plan outlay.toml --measured probe.json  with a step time that was measured
      outlay plan probe.json --length "90 epochs"    what a probed command costs everywhere
      outlay plan outlay.toml --as-of 2025-06        what it would have cost then
      outlay plan outlay.toml --full                 all that was ruled out and assumed
      outlay plan outlay.toml --json | jq .chosen    --all --json: every option
      outlay plan outlay.toml --refresh --alert-below 80 --every 2h --notify ntfy://my-topic

    Exits with 3 when no option satisfies the limits.
    """
    if list_all and max_options is not None:
        raise click.UsageError("--all and --max-options exclude each other: give one.")
    if vary is not None and compiled is not None:
        raise click.UsageError("--vary and --compiled: write compiled = true into [step] instead.")
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

    question, is_found = None, False
    if is_model(subject):
        question = question_of(subject, asked, length)
        _check_question(question, vary, alert_below)
    elif asked.first_given is not None:
        raise click.UsageError(f"{asked.first_given} is for a MODEL; {subject} is a file.")
    file = Path(subject)
    if vary is not None:
        return _vary(file, vary, measured, length, newest(), as_json=as_json)
    from outlay.plan.affordable import affordable_run
    from outlay.plan.from_measurement import load_workload
    from outlay.plan.pipeline import plan_workload
    from outlay.plan.question import answer, workload_of_question
    from outlay.plan.sensitivity import named_option
    from outlay.workload.file import naming_line_of

    def planner() -> Planned:
        book, learned = newest(), learned_calibration()

        def plan_of(workload: Workload) -> Plan:
            if compiled is not None:
                workload = replace(workload, step=replace(workload.step, compiled=compiled))
            with naming_line_of(file) if question is None else nullcontext():
                return plan_workload(
                    workload,
                    measured=measured,
                    learned=learned,
                    today=today(),
                    prices=book,
                    progress=tell,
                )

        return plan_of

    most = ALL if list_all else max_options
    if question is not None and question.method == ALL_METHODS:
        return _compare(question, planner(), as_json=as_json)
    if question is not None and question.is_about_money:
        run = affordable_run(question, planner(), today())
        question, workload, plan, is_found = run.question, run.workload, run.plan, True
    else:
        workload = (
            load_workload(file, parse_length(length))
            if question is None
            else workload_of_question(question)
        )
        if alert_below is not None:
            return _alert(
                lambda: planner()(workload),
                workload,
                alert_below,
                every,
                notify,
                most,
                as_json=as_json,
            )
        plan = planner()(workload)
    option = None if explain is None else named_option(plan, explain)
    answered = None if question is None else answer(question)
    if as_json:
        from outlay.report.documents import plan_document

        print_document(
            plan_document(plan, workload.name, most, explained=option, question=answered)
        )
    else:
        if answered is not None and option is None:
            _print_question(answered, workload, plan, is_found=is_found)
        shown = _Shown(best=best, full=full, sources=sources, file="" if question else subject)
        _print(plan, workload, option, shown)
    return 0 if plan.chosen is not None else 3


def _check_question(
    question: TrainingQuestion, vary: str | None, alert_below: float | None
) -> None:
    """Raise where an option needs one workload, and the question is none yet."""
    if vary is not None:
        raise click.UsageError(
            "--vary needs a file: write it with `outlay init --model ...`, and vary that."
        )
    is_open = question.method == ALL_METHODS or question.is_about_money
    if alert_below is not None and is_open:
        raise click.UsageError("--alert-below needs one method, and an amount to train.")


def _print_question(
    answered: AnsweredQuestion, workload: Workload, plan: Plan, *, is_found: bool
) -> None:
    """What was asked, and what was decided where nothing was said."""
    from outlay.plan.model_step import with_model_defaults
    from outlay.report.console import Page
    from outlay.report.question import print_question

    assert plan.profile is not None
    _, notes = with_model_defaults(workload, plan.profile)
    print_question(Page(), answered, notes, is_found=is_found)


def _compare(question: TrainingQuestion, planned: Planned, *, as_json: bool) -> int:
    """Every method side by side."""
    from outlay.plan.methods import compare_methods
    from outlay.report.console import Page
    from outlay.report.question import methods_document, print_methods

    methods = compare_methods(question, planned, today())
    if as_json:
        print_document(methods_document(question, methods))
    else:
        print_methods(Page(), question, methods)
    return 0 if any(method.cheapest for method in methods) else 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """How much of a plan is shown."""

    best: int | None
    full: bool
    sources: bool
    file: str


def _print(plan: Plan, workload: Workload, explained: Option | None, shown: _Shown) -> None:
    """The plan for people: one option in full, or the answer and the best of all."""
    from outlay.plan.sensitivity import rivals_of, swings, trial_value
    from outlay.report.console import Page
    from outlay.report.plan import print_plan
    from outlay.report.text import amounts_in

    page, profile = Page(), plan.profile
    assert profile is not None
    with amounts_in(workload.currency, workload.usd_per_unit):
        if explained is not None:
            from outlay.report.explain import print_explained

            moved = swings(explained, rivals_of(plan) if explained is plan.chosen else ())
            print_explained(page, plan, explained, workload, profile, moved)
            return
        widest = next(iter(swings(plan.chosen, rivals_of(plan)) if plan.chosen else ()), None)
        trial = trial_value(plan)
        print_plan(
            page,
            plan,
            workload,
            profile,
            best=shown.best,
            swing=widest,
            trial=trial,
            full=shown.full,
            file=shown.file,
        )
        if shown.sources and plan.chosen is not None:
            from outlay.report.explain import print_sources

            print_sources(page, plan.chosen, profile)


def _alert(
    planned: Callable[[], Plan],
    workload: Workload,
    below_usd: float,
    every: str | None,
    notify: tuple[str, ...],
    most: int | None,
    *,
    as_json: bool,
) -> int:
    """Plan until the choice is expected to cost less than a sum; say so."""
    from outlay.report.documents import plan_document
    from outlay.report.plan import alert_words
    from outlay.report.text import amounts_in, in_own_currency

    def look() -> int:
        plan = planned()
        cost_usd = None if plan.chosen is None else plan.chosen.expected_cost_usd
        happened = cost_usd is not None and cost_usd < below_usd
        with amounts_in(workload.currency, workload.usd_per_unit):
            words = in_own_currency(alert_words(plan, workload, below_usd))
        if as_json:
            print_document(plan_document(plan, workload.name, most))
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
    from outlay.report.text import amounts_in

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
        with amounts_in(curves.currency, curves.usd_per_unit):
            print_curves(Page(), f"{curves.workload}{then}", curves)
    return 0 if any(point.chosen for point in curves.points) else 3
