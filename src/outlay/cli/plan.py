"""`outlay plan`: the answer for a workload file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outlay.cli.options import (
    json_option,
    length_of,
    length_option,
    own_calibration,
    print_document,
    tell,
    today,
)

if TYPE_CHECKING:
    from outlay.plan.option import Option
    from outlay.plan.ranking import Plan
    from outlay.predict.evidence import Evidence
    from outlay.workload.workload import Step


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
      outlay plan outlay.toml --max-options 20 --json | jq .chosen

    Exits with 3 when no option satisfies the limits.
    """
    if vary is not None and explain is not None:
        raise click.UsageError("--vary and --explain answer different questions: give one.")
    if vary is not None:
        return _vary(file, vary, measured, length, as_json=as_json)
    from dataclasses import replace

    from outlay.plan.from_measurement import evidence_for
    from outlay.plan.pipeline import plan_workload, profile_for
    from outlay.workload.file import parse_workload

    text, pauses = _text(file, length, measured)
    workload = parse_workload(text, str(file), folder=file.parent)
    profile = profile_for(workload.step)
    evidence = evidence_for(workload.step, profile, own_calibration(), measured)
    tell("Predicting and pricing every offer ...")
    plan = plan_workload(workload, profile, today=today(), evidence=evidence)
    plan = replace(plan, assumptions=(*plan.assumptions, *pauses))
    asked = None if explain is None else _asked(plan, explain)
    if as_json:
        from outlay.report.documents import plan_document

        print_document(plan_document(plan, workload.name, max_options, explained=asked))
    else:
        from outlay.plan.sensitivity import rivals_of, swings, trial_value
        from outlay.report.console import Page
        from outlay.report.explain import print_explained, print_sources
        from outlay.report.plan import print_plan

        page = Page()
        if asked is not None:
            moved = swings(asked, rivals_of(plan) if asked is plan.chosen else ())
            print_explained(page, plan, asked, workload, profile, moved)
        else:
            most = next(iter(swings(plan.chosen, rivals_of(plan)) if plan.chosen else ()), None)
            print_plan(
                page, plan, workload, profile, best=best, swing=most, trial=trial_value(plan)
            )
            if sources and plan.chosen is not None:
                print_sources(page, plan.chosen, profile)
    return 0 if plan.chosen is not None else 3


def _text(file: Path, length: str | None, measured: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """The workload file, or one made of a measurement; and what of pauses is taken over."""
    from outlay.errors import InputError
    from outlay.measurement.file import read_measurement
    from outlay.plan.from_measurement import pauses_said, pauses_unsaid, text_of_workload
    from outlay.workload.file import KIND
    from outlay.workload.toml import parse_table, read_text

    found = text_of_workload(file.absolute(), **length_of(length))
    if found is not None:
        return found, pauses_said(file)
    if file.suffix == ".json":  # no workload file: say what is wrong with it as a measurement
        read_measurement(file)
    if length is not None:
        raise InputError(
            f"--length is for a measurement; {file} says itself how long its run is.",
            fix="Change [length] there, or vary it: --vary epochs=10,30,90.",
        )
    text = read_text(file, KIND)
    tables, pauses = pauses_unsaid(parse_table(text, str(file)), file.parent, measured)
    return text + tables, pauses


def _asked(plan: Plan, text: str) -> Option:
    """The option that `--explain` means."""
    from outlay.errors import InputError
    from outlay.plan.sensitivity import find_option

    found = find_option(plan.options, text)
    if found is None:
        raise InputError(
            f"No option is called {text!r}.",
            why=f"There are {len(plan.options):,}, by rank, provider, instance, region and GPU.",
            fix="Give a rank from the table, or words such as --explain 'lambda a10'.",
        )
    return found


def _vary(
    file: Path, text: str, measured: tuple[str, ...], length: str | None, *, as_json: bool
) -> int:
    from functools import cache

    from outlay.plan.from_measurement import evidence_for
    from outlay.plan.pipeline import plan_workload, profile_for
    from outlay.plan.vary import curves_of
    from outlay.report.comparison import curves_document, print_curves
    from outlay.report.console import Page
    from outlay.workload.file import workload_of
    from outlay.workload.toml import parse_table
    from outlay.workload.variation import variation_of, with_value

    written, _ = _text(file, length, measured)
    table = parse_table(written, str(file))
    variation = variation_of(text)
    profile = cache(profile_for)  # one profile, one prediction of it
    learned = own_calibration()

    @cache
    def evidence(step: Step) -> Evidence:
        return evidence_for(step, profile(step), learned, measured)

    def plan_at(value: Any) -> Plan:
        changed = with_value(table, variation.path, value)
        workload = workload_of(changed, written, str(file), file.parent)
        step = workload.step
        return plan_workload(workload, profile(step), today=today(), evidence=evidence(step))

    curves = curves_of(variation, plan_at, tell=tell)
    name = str(table.get("name", "training run"))
    if as_json:
        print_document(curves_document(name, curves))
    else:
        print_curves(Page(), name, curves)
    return 0 if any(point.chosen for point in curves.points) else 3
