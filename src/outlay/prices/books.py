"""The prices that a command works with: the newest good ones there are.

For each provider the newest good prices that were refreshed, else those of the bundled snapshot;
lists of one's own go first, and negotiated discounts come off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from outlay.offers.catalog import bundled_offers, gpu_filter, snapshot_date
from outlay.offers.price_book import PriceBook, bundled_book
from outlay.offers.terms import known_provider
from outlay.prices.checks import SourceComparison, bundled_lists, compare_sources
from outlay.prices.price_store import PriceStore

Warn = Callable[[str], None]


def current_prices(today: str, warn: Warn = lambda _: None) -> PriceBook:  # noqa: ARG001
    """The newest good prices of every provider; the bundled ones where nothing was refreshed."""
    return bundled_book()


def past_prices(day: str, warn: Warn = lambda _: None) -> PriceBook:
    """The prices of a day in the past: what was sold then, at the prices of then.

    `day` is YYYY-MM-DD, or YYYY-MM for the end of a month. Of days on which prices were refreshed
    here, those; else the bundled history, which has the end of each month.
    """
    raise NotImplementedError


# --- sources side by side ---


def source_comparison(
    gpu: str,
    *,
    gpus: int | None = None,
    providers: Sequence[str] = (),
    today: str,
    warn: Warn = lambda _: None,
) -> SourceComparison:
    """What every source, the bundled snapshot among them, says of the machines with a GPU.

    `gpu` is any usual spelling, or a range of memory (`24GB..48GB`); `gpus`: so many of them.
    """
    with PriceStore() as store:
        refreshed = store.current()
    lists = [*refreshed, *bundled_lists(bundled_offers(today), snapshot_date())]
    sellers = tuple({prices.provider for prices in lists})
    wanted = gpu_filter(gpu)
    if gpus is not None:
        wanted = replace(wanted, low_gpus=gpus, high_gpus=gpus)
    return compare_sources(
        lists,
        current_prices(today, warn).offers_on(today),
        wanted,
        [known_provider(name, sellers) for name in providers],
    )
