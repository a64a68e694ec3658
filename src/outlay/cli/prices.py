"""`outlay prices`: refresh them, compare sources, look back, be told when one falls."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from outlay.cli.options import json_option, print_document, tell, today
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.prices.history import GoodTime, PriceChanges, PriceHistory
    from outlay.prices.price_store import PriceStore


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


@command.command("history")
@click.argument("gpu")
@click.option("--provider", default="", metavar="NAME", help="Only this provider.")
@click.option("--gpus", type=click.IntRange(1), help="Only machines of so many GPUs.")
@click.option("--spot/--on-demand", "spot", default=None, help="Only prices of that kind.")
@click.option("--since", default="", metavar="DAY", help="From this day or month on: 2025-06.")
@click.option("--until", default="", metavar="DAY", help="Up to this day or month.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the picture, too: .html, .svg, or .png (needs matplotlib).",
)
@json_option
def history_command(
    gpu: str,
    provider: str,
    gpus: int | None,
    spot: bool | None,
    since: str,
    until: str,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Show what a GPU-hour cost, and whether now is a good time.

    The bundled months from 2022-07 to 2026-08 and every refresh kept here since: on demand and as
    spot, the cheapest and the middle, by provider. Prices are those of a machine over its GPUs.

    \b
    Example:
      outlay prices history "A100 80GB"
      outlay prices history "H100 SXM" --gpus 8 --since 2025-01 --plot h100.html
      outlay prices history L4 --provider gcp --spot --json
    """
    from outlay.prices.history import TENANCIES, good_time, price_history

    since, until = day_of(since, "--since"), day_of(until, "--until")
    if plot is not None:
        from outlay.report.price_plot import check_history_path

        check_history_path(plot)
    tenancies = tuple(name for name in TENANCIES if spot is None or spot == (name == "spot"))
    with kept_prices() as store:
        history = price_history(
            gpu, provider=provider, gpus=gpus, until=until, tenancies=tenancies, store=store
        )
    day = min(day_of(until, "--until", last=True) or today(), today())
    times = [time for name in tenancies if (time := good_time(history, name, day)) is not None]
    shown = history.between(since, "")
    if plot is not None and shown.series:
        from outlay.report.price_plot import write_history_plot

        write_history_plot(plot, history, times, day, since)
    if as_json:
        from outlay.report.price_report import history_document

        print_document(history_document(shown, times, since, until))
        return
    _print_history(history, shown, times, day)
    if plot is not None and shown.series:
        tell(f"Written to {plot}.")


def _print_history(
    history: PriceHistory, shown: PriceHistory, times: Sequence[GoodTime], day: str
) -> None:
    from outlay.report import price_plot, price_report
    from outlay.report.console import INDENT, Page, bullets, muted

    out = Page()
    if not shown.series:
        out.print(price_report.nothing_known(history))
        return
    cheapest, middle = price_report.line_words(history)
    out.print(price_report.history_title(shown))
    out.print(muted(f"Line: {cheapest}. Dots: {middle}."))
    drawn = price_report.drawn_tenancies(shown)
    days = price_plot.span(shown, drawn)
    for tenancy in drawn:
        chart = price_plot.terminal_chart(
            shown.of(tenancy), days, out.width - INDENT, ascii_only=price_plot.needs_ascii()
        )
        years = price_report.provider_years(history, tenancy)
        out.print_section(price_report.TENANCY_WORDS[tenancy], "\n".join(chart))
        out.print()
        out.print(price_report.history_table(years, out.width))
    words = "\n\n".join("\n".join(price_report.good_time_words(time)) for time in times)
    if words:
        out.print_section("Is now a good time?", words)
    out.print()
    out.print(bullets(price_report.history_notes(history, day)))


# --- changes ---


@command.command("changes")
@click.option(
    "--since",
    required=True,
    metavar="DAY",
    help="A day, or a time where there were several refreshes: 2026-11-16T20:15:00Z.",
)
@click.option("--until", default="", metavar="DAY", help="Up to this day.")
@click.option("--provider", default="", metavar="NAME", help="Only this provider.")
@click.option("--gpu", default="", metavar="NAME", help="Only this GPU.")
@click.option(
    "--min-change",
    default="1%",
    show_default=True,
    metavar="SHARE",
    help="Leave out what changed by less: 5%, or 0 for everything.",
)
@click.option(
    "--max-changes", type=click.IntRange(1), help="Rows to show.  [default: 50; all in JSON]"
)
@json_option
def changes_command(
    since: str,
    until: str,
    provider: str,
    gpu: str,
    min_change: str,
    max_changes: int | None,
    as_json: bool,
) -> None:
    """List what became dearer, cheaper, new or gone since a day.

    Prices as they are now are compared with the last ones kept at that day; where none were kept,
    with the bundled snapshot or the first refresh after it, which is said.

    \b
    Example:
      outlay prices changes --since 2026-10-01
      outlay prices changes --since 2026-10-01 --gpu H100 --min-change 5%
      outlay prices changes --since 2026-10-01 --provider aws --json
    """
    from outlay.prices.history import PriceChanges, price_changes

    begin = time_of(since, "--since")
    least = share_of(min_change, "--min-change")
    end = day_of(until, "--until", last=True)
    with kept_prices() as store:
        changes = PriceChanges(since=begin, changes=(), totals=())
        if store is not None:
            changes = price_changes(
                begin, until=end, provider=provider, gpu=gpu, min_change=least, store=store
            )
    if as_json:
        from outlay.report.price_report import changes_document

        print_document(changes_document(changes))
        return
    _print_changes(changes, max_changes or 50)


def _print_changes(changes: PriceChanges, most: int) -> None:
    from outlay.report import price_report
    from outlay.report.console import Page, bullets

    out = Page()
    if not changes.totals:
        out.print(price_report.NOTHING_KEPT)
        return
    out.print(f"Prices that changed since {changes.since}, of whole machines")
    shown = changes.changes[:most]
    if shown:
        out.print()
        out.print(price_report.changes_table(shown, out.width))
    out.print()
    out.print(price_report.totals_table(changes.totals, out.width))
    out.print()
    out.print(f"Shown {len(shown)} of {len(changes.changes)} changes.")
    if begins := price_report.begin_words(changes):
        out.print(bullets(begins))


# What both read: days, shares, and the prices that are kept.


def kept_prices() -> AbstractContextManager[PriceStore | None]:
    """The store of refreshed prices; None where nothing was refreshed yet."""
    from outlay.prices.price_store import PriceStore

    store = PriceStore()
    return store if store.path.exists() else nullcontext(None)


def day_of(text: str, option: str, *, last: bool = False) -> str:
    """A day or month as it was written; of a month its last day where that is meant."""
    if not text:
        return ""
    if not is_day(text) or text > today()[: len(text)]:
        raise _no_day(text, option)
    if len(text) > 7:
        return text
    return f"{text}-{monthrange(int(text[:4]), int(text[5:]))[1]:02}" if last else text


def _no_day(text: str, option: str) -> InputError:
    return InputError(
        f"{option} {text!r} is no day or month of the past.",
        fix=f"Write for example {option} 2026-06-01 or {option} 2026-06.",
    )


def time_of(text: str, option: str) -> str:
    """A day, or a time in UTC."""
    from datetime import UTC, datetime

    if not text:
        raise _no_day(text, option)
    if "T" not in text:
        day = day_of(text, option)
        return day if len(day) > 7 else f"{day}-01"
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None:
        raise InputError(
            f"{option} {text!r} is no time.",
            fix=f"Write for example {option} 2026-11-16T20:15:00Z.",
        )
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_day(text: str) -> bool:
    """Whether a text is YYYY-MM-DD or YYYY-MM."""
    from datetime import date

    try:
        date.fromisoformat(text if len(text) == 10 else f"{text}-01")
    except ValueError:
        return False
    return len(text) in (7, 10) and text[4] == "-"


def share_of(text: str, option: str) -> float:
    """`5%` or `0.05` as a fraction."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if text.strip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 10:
        raise InputError(
            f"{option} {text!r} is no share.", fix=f"Write for example {option} 5% or {option} 0."
        )
    return share


# --- watch ---


# --- import ---
