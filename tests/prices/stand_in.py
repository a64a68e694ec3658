"""A price source of a few lines, for tests of what is done with any source's answers."""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outlay.errors import ProviderError
from outlay.offers.offer import Offer
from outlay.prices.price_list import PriceList
from outlay.prices.sources import (
    Listing,
    ProviderPrices,
    ReadListings,
    Reply,
    Unreadable,
    Validators,
)

KNOWN_GPUS = ("H100 SXM", "A100 80GB", "L4")


@dataclass(kw_only=True)
class StandIn:
    """Answers with what it was given for each provider: rows, bytes, an error, or a function."""

    name: str = "stand-in"
    answers: dict[str, Any] = field(default_factory=dict)
    modified: str = ""
    is_live: bool = False
    takes_any_provider: bool = False
    has_etag: bool = True
    unlisted: tuple[str, ...] = ()
    """Providers that it answers about without saying so."""
    asked: list[tuple[str, Validators | None]] = field(default_factory=list)

    def providers(self) -> tuple[str, ...]:
        return tuple(name for name in self.answers if name not in self.unlisted)

    def ask(self, provider: str, downloader: Any, known: Validators | None) -> Reply | None:
        self.asked.append((provider, known))
        answer = self.answers.get(provider)
        if answer is None:
            raise ProviderError(
                f"https://prices.example/{provider} gave no prices.",
                why="There is nothing at this address (404).",
            )
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        etag = hashlib.sha256(data).hexdigest() if self.has_etag else ""
        if known is not None and etag and known.etag == etag:
            return None
        return Reply(
            data=data,
            validators=Validators(etag=etag),
            modified=self.modified,
            address=f"https://prices.example/{provider}",
            is_live=self.is_live,
        )

    def read(self, provider: str, data: bytes) -> ReadListings:
        try:
            rows = json.loads(data)
        except ValueError as error:
            raise Unreadable(reason="It is no list of prices.") from error
        good = [row for row in rows if isinstance(row, dict)]
        failed = [f"line {line}: {row!r}" for line, row in enumerate(rows) if row not in good]
        return ReadListings(
            listings=[_listing(provider, row) for row in good], rows=len(rows), failed=failed
        )


def _listing(provider: str, row: Mapping[str, Any]) -> Listing:
    return Listing(
        provider=provider,
        instance=row["instance"],
        gpu=row.get("gpu", "H100 SXM"),
        gpus=row.get("gpus", 1),
        region=row.get("region", "here"),
        price_usd_per_hour=row.get("price"),
        spot_usd_per_hour=row.get("spot"),
        vcpus=row.get("vcpus"),
    )


def rows(price: float, count: int = 3) -> list[dict[str, Any]]:
    """A list in which every machine costs the same, half of it as spot."""
    return [
        {"instance": f"box-{number}", "price": price, "spot": price / 2} for number in range(count)
    ]


# What other modules do with listings and offers, as little of it as can be.


def plain_price_list(
    listings: Sequence[Listing],
    *,
    source: str,
    as_of: str,
    today: str = "",
) -> PriceList:
    """An offer for each listing."""
    offers = [_offer(listing, source, as_of) for listing in listings]
    return PriceList(
        offers=tuple(offer for offer in offers if offer.gpu in KNOWN_GPUS),
        unknown=tuple(offer for offer in offers if offer.gpu not in KNOWN_GPUS),
    )


def _offer(listing: Listing, source: str, as_of: str) -> Offer:
    return Offer(
        provider=listing.provider,
        instance=listing.instance,
        gpu=listing.gpu,
        gpus=int(listing.gpus),
        region=listing.region,
        price_usd_per_hour=listing.price_usd_per_hour,
        spot_usd_per_hour=listing.spot_usd_per_hour,
        vcpus=listing.vcpus,
        as_of=as_of,
        source=source,
    )


def refused_if_halved(
    read: ReadListings, prices: PriceList, before: Sequence[Offer], **_: object
) -> str | None:
    """A list with less than half of what was there, or with nothing, is refused."""
    if not (prices.offers or prices.unknown):
        return "It lists no machine with a GPU."
    if 2 * len(prices.offers) < len(before):
        return f"{len(prices.offers)} of {len(before)} machines are left."
    return None


def as_they_are(offers: Iterable[Offer], *_: object) -> tuple[Offer, ...]:
    """Nothing is doubted."""
    return tuple(offers)


def stand_in_for_others(set_attribute: Callable[[str, object], None]) -> None:
    """Put the plain functions in the place of those that look up and doubt."""
    set_attribute("outlay.prices.refresh.price_list", plain_price_list)
    set_attribute("outlay.prices.refresh.refusal", refused_if_halved)
    set_attribute("outlay.prices.refresh.doubted_by_past", as_they_are)
    set_attribute("outlay.prices.refresh.same_machines", lambda *_: ())
    set_attribute("outlay.prices.books.doubted_by_others", as_they_are)


def offer(instance: str = "box", price: float | None = 2.0, **more: Any) -> Offer:
    """An offer of one H100 here."""
    values = {
        "provider": "lambda",
        "instance": instance,
        "gpu": "H100 SXM",
        "gpus": 1,
        "region": "here",
        "price_usd_per_hour": price,
        "as_of": "2026-11-10",
        "source": "test",
    }
    return Offer(**(values | more))


def prices(*offers: Offer, **more: Any) -> ProviderPrices:
    """A good list of lambda's."""
    values = {
        "source": "skypilot",
        "provider": "lambda",
        "as_of": "2026-11-10",
        "fetched_at": "2026-11-10T08:00:00Z",
    }
    return ProviderPrices(offers=offers, **(values | more))


@contextlib.contextmanager
def folder_in_memory() -> Iterator[Path]:
    """A data folder that is to be made, where commits take no time if there is such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name) / "data"
