"""Refreshing prices: every source asked about every provider it has, each on its own.

    ask -> read -> price_list -> refusal, doubts -> kept, or the last good prices stay

One provider that fails hurts no other; what happened to each is an `Attempt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from outlay.prices.download import Downloader
from outlay.prices.price_store import Attempt, PriceStore
from outlay.prices.sources import Source

Progress = Callable[[str], None]


def all_sources() -> tuple[Source, ...]:
    """Every source there is, in the order they are preferred where their prices are of one day."""
    raise NotImplementedError


def refresh_prices(
    *,
    sources: Iterable[str] = (),
    providers: Iterable[str] = (),
    now: str,
    store: PriceStore | None = None,
    downloader: Downloader | None = None,
    known_sources: Sequence[Source] = (),
    accept: bool = False,
    progress: Progress = lambda _: None,
) -> list[Attempt]:
    """Ask sources about providers (all of each, where none is named) and keep what is good.

    `now` is UTC, `2026-11-16T20:15:00Z`. `accept` takes what would be refused for having shrunk
    or moved too far. Raises `InputError` for a source or provider that nobody knows; what a source
    does is no error here but an `Attempt`.
    """
    raise NotImplementedError
