"""`outlay diff`: what another workload file changes."""

from __future__ import annotations

from pathlib import Path

import click

from outlay.cli.options import json_option, own_calibration, print_document, tell, today


@click.command("diff", no_args_is_help=True)
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@json_option
def command(first: Path, second: Path, as_json: bool) -> int:
    """Compare two plans: which inputs differ, what is chosen, every line that changed.

    \b
    Example:
      outlay diff today.toml with_spot.toml
      outlay diff a.toml b.toml --json | jq .change_usd

    Exits with 3 when the second has no option that satisfies its limits.
    """
    from functools import cache

    from outlay.plan.difference import difference
    from outlay.plan.from_measurement import evidence_for
    from outlay.plan.pipeline import plan_workload, profile_for
    from outlay.report.comparison import difference_document, print_difference
    from outlay.report.console import Page
    from outlay.workload.file import KIND, workload_of
    from outlay.workload.toml import parse_table, read_text

    tables, plans, profile = [], [], cache(profile_for)
    learned = own_calibration()
    for path in (first, second):
        _check_is_workload(path)
        written = read_text(path, KIND)
        table = parse_table(written, str(path))
        workload = workload_of(table, written, str(path), path.parent)
        tell(f"Planning {path} ...")
        traced = profile(workload.step)
        evidence = evidence_for(workload.step, traced, learned)
        plans.append(plan_workload(workload, traced, today=today(), evidence=evidence))
        tables.append(table)
    found = difference((tables[0], tables[1]), (plans[0], plans[1]))
    names = (str(first), str(second))
    if as_json:
        print_document(difference_document(names, found))
    else:
        print_difference(Page(), names, found)
    return 0 if found.after is not None else 3


def _check_is_workload(path: Path) -> None:
    """Raise where a measurement is given in the place of a workload file."""
    from outlay.errors import InputError
    from outlay.plan.from_measurement import measurement_at

    if measurement_at(str(path)) is not None:
        raise InputError(
            f"{path} is a measurement; diff compares workload files.",
            fix=f'Write one that names it, with [step] profile = "{path}", and compare that.',
        )
