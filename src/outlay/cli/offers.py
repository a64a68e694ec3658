"""`outlay offers`: prices, filtered and sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from outlay.cli.options import (
    as_of_option,
    json_option,
    prices_of,
    prices_option,
    print_document,
    today,
    trust_option,
)

if TYPE_CHECKING:
    from outlay.offers.price_book import Sort

SORTS = ("price", "spot", "gpu-price", "gpu", "provider", "memory", "age")
"""As of `list_offers`; written out, as importing it would slow every other command."""


RANKED_BY = {"spot": "spot $/h", "gpu-price": "$/gpu-h", "memory": "mem", "age": "as of"}
"""The column of an order; any other goes by price."""


@click.command("offers")
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="SPEC",
    help="A GPU with a count or range, or a memory range: A100-80GB:8, H100:1..8, 24GB..80GB.",
)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="NAME[/REGION]",
    help="Only this provider, or this region of it: aws, aws/us-east-1.",
)
@click.option("--region", "regions", multiple=True, help="Only regions that begin so.")
@click.option(
    "--spot/--on-demand", "spot", default=None, help="Only offers sold so, by that price."
)
@click.option(
    "--max-price", type=click.FloatRange(min=0, min_open=True), help="Dollars an hour at most."
)
@click.option("--sort", type=click.Choice(SORTS), help="Order; cheapest first unless said.")
@click.option(
    "--max-offers", type=click.IntRange(1), help="Rows to show.  [default: 50; all in JSON]"
)
@prices_option
@trust_option
@as_of_option
@json_option
def command(
    gpus: tuple[str, ...],
    providers: tuple[str, ...],
    regions: tuple[str, ...],
    spot: bool | None,
    max_price: float | None,
    sort: Sort | None,
    max_offers: int | None,
    prices: str,
    trust: str | None,
    as_of: str | None,
    as_json: bool,
) -> None:
    """List offers: filter by GPU, provider, region, price.

    Prices are the newest good ones (`outlay prices refresh` renews them), for the whole machine
    and hour; `outlay plan` works out what a run costs on them. Spot prices are the cheapest
    zone's. With --trust only what a plan may choose at that trust is listed.

    \b
    Example:
      outlay offers --gpu A100-80GB:8 --region us-
      outlay offers --gpu 24GB..48GB --spot --max-price 0.5
      outlay offers --provider lambda --sort gpu-price --json
      outlay offers --gpu H100 --trust strict        prices that nothing speaks against
      outlay offers --gpu H100 --as-of 2024-03
    """
    from outlay.offers.catalog import OfferFilter, gpu_filter
    from outlay.offers.price_book import list_offers

    places = [name.partition("/") for name in providers]
    query = OfferFilter(
        gpus=tuple(gpu_filter(text) for spec in gpus for text in spec.split(",")),
        providers=tuple(name for name, _, _ in places),
        regions=(*regions, *(region for _, slash, region in places if slash)),
        spot=spot,
        max_usd_per_hour=max_price,
        trusted=trust is not None,
    )
    book = prices_of(prices, as_of, trust)
    offers = list_offers(query, sort, today=today(), prices=book)
    if as_json:
        from outlay.report.documents import offers_document

        print_document(offers_document(offers[:max_offers]))
        return
    shown = offers[: max_offers or 50]
    from outlay.report.console import Page
    from outlay.report.tables import doubts_explained, offers_table
    from outlay.report.text import prices_in_words

    out = Page()
    names = [*gpus, *providers, *regions]
    if names:
        out.print(f"Offers of {', '.join(names)}")
    if shown:
        out.print(offers_table(shown, out.width, ranked_by=RANKED_BY.get(sort or "", "$/h")))
        for line in doubts_explained(shown):
            out.print(line)
    prices_said = prices_in_words(book, today())
    out.print(f"Shown {len(shown)} of {len(offers)} offers; {prices_said}.")
