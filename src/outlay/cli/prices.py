"""`outlay prices`: refresh them, compare sources, look back, be told when one falls."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import json_option, print_document, today
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.prices.own_lists import ListSummary


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


# --- history ---


# --- changes ---


# --- watch ---


# --- import ---


@command.command("import", no_args_is_help=True)
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--as", "name", metavar="NAME", default="", help="Keep it under this name.")
@click.option("--remove", "removed", metavar="NAME", help="Remove a list that was imported.")
@click.option("--list", "listed", is_flag=True, help="Say what is kept.")
@json_option
def import_command(
    file: Path | None, name: str, removed: str | None, listed: bool, as_json: bool
) -> None:
    """Take price lists of your own: offers, agreed discounts, cards, parts, exchange rates.

    Which of these FILE is, its columns say (CSV), or its tables (TOML). It is checked and kept
    whole, or not at all, in the place of a list of the same name; every command then works with
    it. Your own offers go before all other prices.

    \b
    Example:
      outlay prices import quotes.csv --as acme
      outlay prices import agreed.toml
      outlay prices import eurofxref-hist.zip
      outlay prices import --list

    \b
    Columns, most of them optional; units and currencies may stand in the heads (ram_gib,
    "Price per hour (EUR)"):
      offers   provider, gpu, gpus, instance, region, price_per_hour, spot_per_hour, currency,
               as_of, valid_until, vcpus, ram, local_disk, source, note ...
      cards    card, condition (new, used), price, currency, as_of, source, note
      parts    part, price, currency, as_of, source, note

    \b
    In TOML, [[offer]] as in a workload file, and what was agreed off list prices:
      [[discount]]
      provider = "aws"
      instance = "p4d*"          # also gpu, tenancy
      fraction = 0.15
      until = "2027-03-31"
    """
    from outlay.prices.own_lists import import_list, kept_summaries, remove_list
    from outlay.report.price_report import import_document, print_import

    given = [file is not None, removed is not None, listed]
    if sum(given) != 1 or (name and file is None):
        raise InputError(
            "Give one of FILE, --remove NAME and --list.", fix="--as NAME goes with FILE."
        )
    imported = None if file is None else import_list(file, today(), name)
    if removed is not None:
        remove_list(removed)
    if imported is not None and imported.kind == "parts":
        imported = _with_unknown_parts(imported)
    lists = kept_summaries(today())
    if as_json:
        print_document(import_document(imported, removed, lists))
        return
    from outlay.report.console import Page

    print_import(Page(), imported, removed, lists)


def _with_unknown_parts(imported: ListSummary) -> ListSummary:
    """What is in a list of parts, with the names that no table of parts has."""
    from dataclasses import replace

    from outlay.facts import ImportedPrices
    from outlay.prices.own_lists import own_lists
    from outlay.workstation.parts import catalogue

    kept = next(own for own in own_lists(today()) if own.name == imported.name)
    known = catalogue(imported=ImportedPrices(parts=kept.parts))
    return replace(imported, unknown=tuple(known.unknown_names))
