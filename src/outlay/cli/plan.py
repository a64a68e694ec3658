"""`outlay plan`: the answer for a workload file."""

from __future__ import annotations

from pathlib import Path

import click

from outlay.cli.options import json_option, print_document, today


@click.command("plan", no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--best", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows to show."
)
@click.option(
    "--max-options", type=click.IntRange(1), help="Options in JSON, best first.  [default: all]"
)
@click.option("--sources", is_flag=True, help="Also say where the figures of the choice come from.")
@json_option
def command(file: Path, best: int, max_options: int | None, sources: bool, as_json: bool) -> int:
    """Rank every offer for a workload: time, cost line by line, and why others lost.

    FILE is a workload file (TOML); `outlay init` writes one.

    \b
    Example:
      outlay plan outlay.toml
      outlay plan outlay.toml --max-options 20 --json | jq .chosen

    Exits with 3 when no option satisfies the limits.
    """
    from outlay.pipeline import plan_workload, profile_for
    from outlay.workload_file import read_workload

    workload = read_workload(file)
    profile = profile_for(workload.step)
    plan = plan_workload(workload, profile, today=today())
    if as_json:
        from outlay.report.json import plan_document

        print_document(plan_document(plan, workload.name, max_options))
    else:
        from outlay.decide import trial
        from outlay.report.console import Page
        from outlay.report.plan_table import print_plan
        from outlay.report.sources_table import print_sources

        page = Page()
        print_plan(page, plan, workload, profile, best=best, trial=trial(plan))
        if sources and plan.chosen is not None:
            print_sources(page, plan.chosen, profile)
    return 0 if plan.chosen is not None else 3
