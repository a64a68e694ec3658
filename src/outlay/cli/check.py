"""`outlay check`: what is installed, which price sources answer, how old prices are."""

from __future__ import annotations

import click

from outlay import __version__
from outlay.cli.options import json_option, print_document, tell, today, warn


@click.command("check")
@click.option("--offline", is_flag=True, help="Ask no source whether it answers.")
@json_option
def command(offline: bool, as_json: bool) -> None:
    """Show what is installed, which price sources answer, and how old prices are.

    Also which keys of providers are set (never their values), and what is missing for what.

    \b
    Example:
      outlay check
      outlay check --offline --json | jq '.providers[] | select(.age_days > 14)'
    """
    from outlay.prices.books import current_prices
    from outlay.prices.download import HttpDownloader, Patience, is_offline
    from outlay.prices.status import set_up
    from outlay.report.price_report import check_document, print_set_up

    answers = None
    if not (offline or is_offline()):
        tell("Asking every price source ...")
        patience = Patience(connect_s=5.0, read_s=5.0, total_s=10.0, attempts=1)
        answers = HttpDownloader(patience=patience).answers
    found = set_up(__version__, current_prices(today(), warn), today(), answers, warn)
    if as_json:
        print_document(check_document(found))
    else:
        print_set_up(found, today())
