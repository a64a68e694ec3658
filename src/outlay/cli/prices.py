"""`outlay prices`: refresh them, compare sources, look back, be told when one falls."""

from __future__ import annotations

from dataclasses import replace

import click

from outlay.cli.options import json_option, print_document, tell, today, warn


@click.group("prices")
def command() -> None:
    """Refresh prices, compare sources, look back, and be told when one falls.

    \b
    Example:
      outlay prices refresh
      outlay prices compare H100
      outlay prices history "A100 80GB"
    """


# --- refresh ---


def refresh_first() -> None:
    """Refresh all prices before a plan; what could not be refreshed is said, and is no error."""


# --- compare ---


@command.command("compare", no_args_is_help=True)
@click.argument("gpu")
@click.option("--gpus", type=click.IntRange(1), help="Only machines with so many of them.")
@click.option("--provider", "providers", multiple=True, help="Only of this provider.")
@click.option(
    "--max-machines", type=click.IntRange(1), help="Machines to show.  [default: 20; all in JSON]"
)
@json_option
def compare(
    gpu: str,
    gpus: int | None,
    providers: tuple[str, ...],
    max_machines: int | None,
    as_json: bool,
) -> None:
    """Compare what sources say a GPU costs, machine by machine.

    A row for each source that lists the machine, the price that a plan takes first, with its day
    and how far the others are from it. Those farthest apart come first; what only one source lists
    is counted.

    \b
    Example:
      outlay prices compare H100
      outlay prices compare "A100 80GB" --gpus 8 --provider aws
      outlay prices compare L4 --json | jq '.machines[] | select(.doubts != [])'
    """
    from outlay.prices.books import source_comparison

    tell("Reading what every source says ...")
    comparison = source_comparison(gpu, gpus=gpus, providers=providers, today=today(), warn=warn)
    if as_json:
        from outlay.report.price_report import compare_document

        document = compare_document(gpu, comparison)
        print_document(replace(document, machines=document.machines[:max_machines]))
        return
    from outlay.report.console import Page
    from outlay.report.price_report import print_comparison

    print_comparison(Page(), gpu, comparison, max_machines or 20)


# --- history ---


# --- changes ---


# --- watch ---


# --- import ---
