"""Being told when a price falls: which offers are below a price, and messages about them.

A message is sent once: of the same offer another one follows only where it has become cheaper, or
after a day (`SentAlerts`, kept in the data folder): looking every few minutes is no nuisance.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from outlay.errors import ExtraMissing, InputError, ProviderError, pip_command
from outlay.files import data_folder, make_folder, write_whole
from outlay.offers.catalog import OfferFilter, search
from outlay.offers.offer import Offer, Tenancy
from outlay.offers.price_book import PriceBook
from outlay.units import days_between

if TYPE_CHECKING:
    from apprise import Apprise

AGAIN_DAYS = 1
"""Days after which a message is sent again of what has not become cheaper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapOffer:
    """An offer below the price a person waits for."""

    offer: Offer
    tenancy: Tenancy
    usd_per_gpu_hour: float
    usd_per_hour: float
    """Of the whole machine."""


def offers_below(
    prices: PriceBook, query: OfferFilter, below_usd_per_gpu_hour: float, today: str
) -> list[CheapOffer]:
    """Offers whose hour of one GPU costs less, cheapest first.

    Of each the tenancy asked for (`query.spot`), else the cheaper. What is doubtful about its price
    (a caution), or cannot be had at it, is left out.
    """
    offers = search(prices.offers_on(today), replace(query, max_usd_per_hour=None))
    found = [cheap for offer in offers for cheap in _tenancies_below(offer, query.spot)]
    return sorted(
        (cheap for cheap in found if cheap.usd_per_gpu_hour < below_usd_per_gpu_hour),
        key=lambda cheap: (cheap.usd_per_gpu_hour, cheap.offer.identity),
    )


def _tenancies_below(offer: Offer, spot: bool | None) -> list[CheapOffer]:
    """The tenancy of an offer that a person would take, if it can be trusted."""
    wanted: Sequence[Tenancy] = ("on-demand", "spot") if spot is None else _only(spot=spot)
    cheap = [
        CheapOffer(
            offer=offer,
            tenancy=tenancy,
            usd_per_gpu_hour=usd / (offer.gpus * offer.gpu_share),
            usd_per_hour=usd,
        )
        for tenancy in wanted
        if (usd := offer.hourly_usd(tenancy)) is not None
        and not offer.cautions(tenancy)
        and not offer.not_for_sale(tenancy)
    ]
    return sorted(cheap, key=lambda found: found.usd_per_hour)[:1]


def _only(*, spot: bool) -> Sequence[Tenancy]:
    return ("spot",) if spot else ("on-demand",)


# --- once, not every few minutes ---


@dataclass(frozen=True, slots=True, kw_only=True)
class SentAlerts:
    """The last message of each thing: its figure and the day it was sent."""

    figures: Mapping[str, tuple[float, str]]

    def is_news(self, name: str, usd: float, today: str) -> bool:
        """Whether no message was sent of it, it has become cheaper, or that was a day ago."""
        if name not in self.figures:
            return True
        before_usd, day = self.figures[name]
        return usd < before_usd - 1e-9 or days_between(day, today) >= AGAIN_DAYS

    def and_now(self, figures: Iterable[tuple[str, float]], today: str) -> SentAlerts:
        """With the messages that are sent now."""
        now = {name: (usd, today) for name, usd in figures}
        return SentAlerts(figures={**self.figures, **now})


def sent_alerts(path: Path | None = None) -> SentAlerts:
    """The messages that were sent; none where the file is not there or not readable."""
    try:
        content = json.loads((path or _sent_path()).read_bytes())
        figures = {str(name): (float(usd), str(day)) for name, (usd, day) in content.items()}
        for _, day in figures.values():
            days_between(day, day)
    except (OSError, ValueError, TypeError, AttributeError):
        return SentAlerts(figures={})
    return SentAlerts(figures=figures)


def keep_sent_alerts(sent: SentAlerts, path: Path | None = None) -> None:
    """Keep what was sent."""
    path = path or _sent_path()
    make_folder(path.parent)
    write_whole(path, json.dumps(sent.figures, indent=1).encode())


def _sent_path() -> Path:
    return data_folder() / "alerts.json"


# --- messages ---


def check_addresses(addresses: Sequence[str]) -> None:
    """Refuse at once an address that no message can be sent to, before anything is waited for."""
    if not addresses:
        return
    apprise = _apprise()
    for address in addresses:
        if not apprise.add(address):
            scheme = address.partition(":")[0]
            raise InputError(
                f"Nothing can be sent to the address that begins with {scheme!r}.",
                why="apprise does not know its form.",
                fix="See `apprise --help`, or write for example ntfy://my-topic or mailto://...",
            )


def send(addresses: Sequence[str], title: str, text: str) -> None:
    """Send a message to every address; addresses may hold passwords and are never printed."""
    if not addresses:
        return
    apprise = _apprise()
    for address in addresses:
        apprise.add(address)
    if not apprise.notify(title=title, body=text):
        raise ProviderError(
            "The message could not be sent to every address.",
            why="apprise said that at least one of them failed.",
            fix="Try the address with `apprise -vv`.",
        )


def _apprise() -> Apprise:
    with warnings.catch_warnings():  # it loads all its plugins, some of which use old modules
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            from apprise import Apprise
        except ImportError:
            raise ExtraMissing(f"Messages need apprise: {pip_command('notify')}.") from None
        apprise = Apprise()
        apprise.add("json://localhost")  # it loads them when the first address is added
        apprise.clear()
        return apprise
