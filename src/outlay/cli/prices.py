"""`outlay prices`: refresh them, compare sources, look back, be told when one falls."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from outlay.cli.options import json_option, now, print_document, progress_option, tell, today, warn
from outlay.errors import InputError

if TYPE_CHECKING:
    from outlay.offers.price_book import PriceBook
    from outlay.prices.alerts import CheapOffer
    from outlay.prices.history import GoodTime, PriceHistory
    from outlay.prices.own_lists import ListSummary
    from outlay.prices.price_changes import PriceChanges
    from outlay.prices.price_store import Attempt, PriceStore

F = TypeVar("F", bound=Callable[..., Any])
LEAST_PAUSE_S = 60.0
"""Between two looks at prices: sources are public services."""


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


@command.command("refresh")
@click.option(
    "--provider", "providers", multiple=True, metavar="NAME", help="Only this provider. Any number."
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    help="Only this source: skypilot, gpuhunt, vast, spot-advisor, rates. Any number.",
)
@click.option(
    "--accept", is_flag=True, help="Take a list that has shrunk or moved too far to be believed."
)
@click.option("--offline", is_flag=True, help="Ask nobody, as with OUTLAY_OFFLINE=1: exits with 5.")
@progress_option
@json_option
def refresh(
    providers: tuple[str, ...],
    sources: tuple[str, ...],
    accept: bool,
    offline: bool,
    as_json: bool,
) -> int:
    """Fetch today's prices from public sources; commands use them from then on.

    Each source is asked about each provider it has. Where one does not answer, or gives what
    cannot be believed, the last good prices stay and the table says why. No account is needed; a
    provider that asks for a key is asked where its own tool's variable is set. Also renewed: how
    often AWS takes spot machines away (spot-advisor), and exchange rates (rates). docs/prices.md
    has every source and every check.

    \b
    Example:
      outlay prices refresh
      outlay prices refresh --provider lambda --provider runpod
      outlay prices refresh --source skypilot --json

    Exits with 5 when nothing could be refreshed.
    """
    from outlay.report.price_report import print_refresh, refresh_document

    attempts = _refreshed(providers, sources, accept=accept, offline=offline)
    if as_json:
        print_document(refresh_document(attempts))
    else:
        print_refresh(attempts)
    return 0 if any(attempt.state in ("fresh", "unchanged") for attempt in attempts) else 5


def _refreshed(
    providers: Sequence[str] = (),
    sources: Sequence[str] = (),
    *,
    accept: bool = False,
    offline: bool = False,
) -> list[Attempt]:
    """What became of asking; damaged prices that were put aside are warned of."""
    from outlay.errors import ProviderError
    from outlay.prices.download import is_offline
    from outlay.prices.price_store import PriceStore
    from outlay.prices.refresh import RefreshInterrupted, refresh_prices

    if offline or is_offline():
        raise ProviderError(
            "Prices were not refreshed: outlay is offline and asks nobody.",
            fix="Leave out --offline, and unset OUTLAY_OFFLINE.",
        )
    with PriceStore() as store:
        aside = store.put_damaged_aside()
        if aside is not None:
            warn(
                f"{store.path} is damaged: it is now {aside}, and new prices are kept in its place."
            )
        try:
            return refresh_prices(
                sources=sources,
                providers=providers,
                now=now(),
                store=store,
                accept=accept,
                progress=tell,
            )
        except RefreshInterrupted as interrupt:
            warn(f"{len(interrupt.done)} of {interrupt.asked} lists were refreshed and are kept.")
            raise


def refresh_first() -> None:
    """Refresh all prices before a plan; what could not be refreshed is said, and is no error."""
    from outlay.errors import OutlayError
    from outlay.report.price_report import refresh_failures

    try:
        failures = refresh_failures(_refreshed())
    except OutlayError as error:
        failures = str(error)
    if failures:
        warn(failures)


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

    Each machine has a row for every source that lists it: first the price that a plan takes, then
    the others, with their day and by how much they differ from it. Machines whose sources are
    farthest apart come first; those that only one source lists are counted at the end. `bundled` is
    the snapshot that comes with outlay.

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

    From the months that come with outlay (2022-07 to 2026-08) and every refresh on this machine
    since: on demand and as spot, the cheapest price and the middle one, by provider. A GPU-hour is
    the price of a machine divided by its GPUs.

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
    if as_json:
        from outlay.report.price_report import history_document

        print_document(history_document(shown, times, since, until))
    else:
        _print_history(history, shown, times, day)
    if plot is not None and shown.series:
        from outlay.report.price_plot import write_history_plot

        write_history_plot(plot, history, times, day, since)
        if not as_json:
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
@click.option(
    "--until", default="", metavar="DAY", help="The prices of this day in place of today's."
)
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

    Today's prices are compared with those that a refresh on this machine had brought by that day.
    Where none had, with the snapshot that comes with outlay, or with the first refresh after that
    day; a line below the table says which.

    \b
    Example:
      outlay prices changes --since 2026-10-01
      outlay prices changes --since 2026-10-01 --gpu H100 --min-change 5%
      outlay prices changes --since 2026-10-01 --provider aws --json
    """
    from outlay.prices.price_changes import PriceChanges, price_changes

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


def alert_options(command: F) -> F:
    """`--every` and `--notify`: look again and again, send a message."""
    command = click.option(
        "--notify",
        multiple=True,
        metavar="URL",
        envvar="OUTLAY_NOTIFY",
        help="Also send a message there (apprise: ntfy://, slack://, mailto:// ...). Any number.",
    )(command)
    return click.option(
        "--every",
        metavar="DURATION",
        help="Look again so often (15m, 2h) until it happens.  [default: look once]",
    )(command)


@command.command("watch")
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    required=True,
    metavar="SPEC",
    help="A GPU with a count or range, or a memory range: H100, A100-80GB:8, 24GB..80GB.",
)
@click.option(
    "--below",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    metavar="USD",
    help="Dollars an hour of one GPU.",
)
@click.option("--spot/--on-demand", "spot", default=None, help="Only offers sold so.")
@click.option("--provider", "providers", multiple=True, metavar="NAME", help="Only this provider.")
@click.option("--region", "regions", multiple=True, help="Only regions that begin so.")
@click.option("--offline", is_flag=True, help="Refresh nothing: look at the prices that are there.")
@alert_options
@json_option
def watch(
    gpus: tuple[str, ...],
    below: float,
    spot: bool | None,
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    offline: bool,
    every: str | None,
    notify: tuple[str, ...],
    as_json: bool,
) -> int:
    """Be told when a GPU costs less than so much an hour.

    Refreshes prices, then looks: where an offer costs less, it is printed, a message is sent
    (--notify), and the command exits with 0; where none does, it exits with 3, or looks again
    (--every). Prices are of one GPU of the machine. Offers whose price is doubtful (a caution) are
    left out. A second message of the same offer is sent only when it has become cheaper, or a day
    later: the command can run from cron every few minutes.

    \b
    Example:
      outlay prices watch --gpu H100 --below 2.00 --spot --every 15m --notify ntfy://my-topic
      outlay prices watch --gpu "RTX 4090" --below 0.30 && ./start_training.sh
    """
    from outlay.offers.catalog import OfferFilter, gpu_filter
    from outlay.prices.alerts import offers_below
    from outlay.report.price_report import cheap_offers_document, print_cheap_offers

    query = OfferFilter(
        gpus=tuple(gpu_filter(text) for spec in gpus for text in spec.split(",")),
        providers=providers,
        regions=regions,
        spot=spot,
    )

    def look() -> int:
        book = _newest_prices(providers, offline=offline)
        cheap = offers_below(book, query, below, today())
        if as_json:
            print_document(cheap_offers_document(cheap, below, book, today()))
        elif cheap or every is None:
            print_cheap_offers(cheap, gpus, below, book, today())
        names = [(_alert_name(found), found.usd_per_gpu_hour) for found in cheap]
        title = f"{', '.join(gpus)} below ${below:g} an hour"
        send_news(notify, title, [_alert_line(found) for found in cheap], names)
        return 0 if cheap else 3

    return until_it_happens(look, every, notify)


def _newest_prices(providers: tuple[str, ...], *, offline: bool) -> PriceBook:
    """Prices refreshed now; where that failed altogether, an error, as an alarm needs today's."""
    from outlay.prices.books import current_prices

    if not offline:
        attempts = _refreshed(providers)
        if not any(attempt.state in ("fresh", "unchanged") for attempt in attempts):
            from outlay.errors import ProviderError

            reasons = sorted({attempt.reason for attempt in attempts if attempt.reason})
            raise ProviderError(
                "No price could be refreshed.",
                why=" ".join(reasons[:2]),
                fix="Try again later, or look at the prices that are there: --offline.",
            )
    return current_prices(today(), warn)


def _alert_name(cheap: CheapOffer) -> str:
    return " / ".join((*cheap.offer.identity, cheap.tenancy))


def _alert_line(cheap: CheapOffer) -> str:
    offer = cheap.offer
    place = f"{offer.provider} {offer.region} {offer.instance}"
    gpus = f"{offer.gpus}x {offer.gpu}"
    price = f"${cheap.usd_per_gpu_hour:.3g} a GPU-hour (${cheap.usd_per_hour:.4g} the machine)"
    return f"{gpus} at {place}, {cheap.tenancy}: {price}"


def send_news(
    addresses: tuple[str, ...],
    title: str,
    lines: Sequence[str],
    figures: Sequence[tuple[str, float]],
) -> None:
    """Send a message of what is new; `figures` are what each line is known by, and its price."""
    from outlay.prices.alerts import keep_sent_alerts, send, sent_alerts

    if not addresses:
        return
    sent = sent_alerts()
    news = [
        (line, figure)
        for line, figure in zip(lines, figures, strict=True)
        if sent.is_news(*figure, today())
    ]
    if not news:
        return
    send(addresses, title, "\n".join(line for line, _ in news))
    keep_sent_alerts(sent.and_now((figure for _, figure in news), today()))


def until_it_happens(look: Callable[[], int], every: str | None, notify: tuple[str, ...]) -> int:
    """Look once, or again and again until it happens; the exit code of the last look."""
    import time

    from outlay.errors import ProviderError
    from outlay.prices.alerts import check_addresses
    from outlay.units import duration_s

    check_addresses(notify)
    if every is None:
        return look()
    pause_s = duration_s(every)
    if pause_s < LEAST_PAUSE_S:
        raise click.UsageError(f"--every {every}: at least a minute lies between two looks.")
    while True:
        try:
            status = look()
        except ProviderError as error:
            warn(f"{error} Looking again in {every}.")
            status = error.exit_code
        if status == 0:
            return status
        tell(f"Not yet. Looking again in {every}.")
        time.sleep(pause_s)


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

    The columns of FILE (CSV) or its tables (TOML) say which of these it is. It is checked, and kept
    whole or not at all; a list of the same name is replaced. Every command works with it from then
    on, and your own offers go before all other prices.

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
