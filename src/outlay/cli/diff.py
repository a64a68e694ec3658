"""`outlay diff`: what another workload file changes."""

from __future__ import annotations

from pathlib import Path

import click

from outlay.cli.options import (
    as_of_option,
    cache_option,
    json_option,
    learned_calibration,
    prices_of,
    prices_option,
    print_document,
    progress_option,
    tell,
    today,
    trust_option,
)


@click.command("diff", no_args_is_help=True)
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@prices_option
@as_of_option
@trust_option
@cache_option
@progress_option
@json_option
def command(
    first: Path, second: Path, prices: str, as_of: str | None, trust: str | None, as_json: bool
) -> int:
    """Compare two plans: which inputs differ, what is chosen, every line that changed.

    \b
    Example:
      outlay diff today.toml with_spot.toml
      outlay diff a.toml b.toml --json | jq .change_usd
      outlay diff a.toml b.toml --as-of 2025-06

    Exits with 3 when the second has no option that satisfies its limits.
    """
    from outlay.files import name_of
    from outlay.plan.difference import compare_workloads
    from outlay.report.comparison import difference_document, print_difference
    from outlay.report.console import Page
    from outlay.report.text import amounts_in

    book = prices_of(prices, as_of, trust)
    difference = compare_workloads(
        first,
        second,
        learned=learned_calibration(),
        today=today(),
        prices=book,
        progress=tell,
    )
    names = (name_of(first), name_of(second))
    if as_json:
        print_document(difference_document(names, difference))
    else:
        page = Page()
        if book.kind == "past":
            page.print(f"Both with {book.name}.")
        with amounts_in(difference.currency, difference.usd_per_unit):
            print_difference(page, names, difference)
    return 0 if difference.after is not None else 3
