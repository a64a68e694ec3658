"""`outlay prices`: refresh them, compare sources, look back, be told when one falls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from outlay.cli.options import json_option, now, print_document, tell, today, warn

if TYPE_CHECKING:
    from outlay.offers.price_book import PriceBook
    from outlay.prices.alerts import CheapOffer
    from outlay.prices.price_store import Attempt

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
    "--provider", "providers", multiple=True, metavar="NAME", help="Only this one. Any number."
)
@click.option(
    "--source",
    "sources",
    multiple=True,
    metavar="NAME",
    help="Ask only this one: skypilot, gpuhunt, vast. Any number.",
)
@click.option(
    "--accept", is_flag=True, help="Take a list that has shrunk or moved too far to be believed."
)
@click.option("--offline", is_flag=True, help="Ask nobody, as with OUTLAY_OFFLINE=1: exits with 5.")
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
    provider that asks for a key is asked where its own tool's variable is set.

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
    from outlay.prices.price_store import PriceStore
    from outlay.prices.refresh import RefreshInterrupted, refresh_prices

    if offline or _is_offline():
        raise ProviderError("Prices were not refreshed: outlay is offline and asks nobody.")
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
                progress=_progress(),
            )
        except RefreshInterrupted as interrupt:
            warn(f"{len(interrupt.done)} of {interrupt.asked} lists were refreshed and are kept.")
            raise


def _is_offline() -> bool:
    import os

    return os.environ.get("OUTLAY_OFFLINE", "").strip().lower() not in ("", "0", "false", "no")


def _progress() -> Callable[[str], None]:
    """Says what is going on: to a terminal at once, elsewhere after two seconds."""
    import sys
    import time

    started_s = time.monotonic()

    def say(message: str) -> None:
        if sys.stderr.isatty() or time.monotonic() - started_s > 2:
            click.echo(message, err=True)

    return say


def refresh_first() -> None:
    """Refresh all prices before a plan; what could not be refreshed is said, and is no error."""
    from outlay.errors import OutlayError
    from outlay.report.price_report import refresh_failures

    try:
        failures = refresh_failures(_refreshed())
    except OutlayError as error:
        failures = f"prices were not refreshed. {error}"
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

    Refreshes prices and looks. Where an offer is below the price, prints it, sends a message and
    exits with 0; where none is, exits with 3, or looks again with --every. Prices are of one GPU of
    the machine. What is doubtful about its price is left out. A message of the same offer is sent
    again only where it has become cheaper, or after a day, so that it suits cron.

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
        from outlay.prices.refresh import refresh_prices

        attempts = refresh_prices(providers=providers, now=now(), progress=tell)
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
