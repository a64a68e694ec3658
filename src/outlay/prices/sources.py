"""What a price source is: where it is asked, and how its reply is read.

Asking and reading are apart: `ask` talks to the network and gives bytes, `read` makes listings of
bytes and touches nothing, so that any reply there ever was can be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from outlay.errors import ProviderError
from outlay.offers.offer import HostQuality, Offer

if TYPE_CHECKING:
    from outlay.prices.download import Downloader


@dataclass(frozen=True, slots=True, kw_only=True)
class Validators:
    """What a source said of its last reply, to ask whether it has changed since (RFC 9110, 13)."""

    etag: str = ""
    address: str = ""
    """Where it was read: what is said of a reply holds at that place alone."""
    version: str = ""
    """The source's own name of the reply, where it has one (gpuhunt's catalogue version)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a source answered."""

    data: bytes
    validators: Validators = Validators()
    modified: str = ""
    """The day the source says its data are of (YYYY-MM-DD), empty where it does not say."""
    address: str = ""
    """Where it was read, to be cited; no key or password in it."""
    is_same: bool = False
    """Whether it is, byte for byte, what was read before: prices that differ all the same were
    converted at another exchange rate."""
    is_live: bool = False
    """Whether the provider itself answered just now: then its prices are of the day it was asked,
    changed or not."""


class BadReply(ProviderError):
    """An answer that came, and is no list, or not all of one: refused whole, as `Unreadable`."""


class Unreadable(Exception):
    """A reply that is not what the source gives: refused whole, with the reason in plain words."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- what is read of a reply ---


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """One machine type in one zone (or region, where the source has no zones).

    A figure is None where the source does not give it; nothing is guessed here.
    """

    provider: str
    """As outlay names it (`lambda`, `vast`, `do`); as the source does where it is new to outlay."""
    instance: str
    gpu: str
    """The source's own spelling."""
    gpus: float
    """Below 1 for a share of one GPU."""
    region: str
    """As the source names it; empty where it names none."""
    zone: str = ""
    price_usd_per_hour: float | None
    """Of the whole machine, on demand."""
    spot_usd_per_hour: float | None = None
    gpu_memory_bytes: float | None = None
    """Of one GPU, as the source says: often wrong, so it is compared and not believed."""
    vcpus: float | None = None
    ram_bytes: float | None = None
    local_disk_bytes: float | None = None
    host: HostQuality | None = None
    """Of a single host of a marketplace."""
    doubts: tuple[str, ...] = ()
    """Words of `data/offer_doubts.csv` that the source's own way of listing calls for."""
    note: str = ""
    """What stands there, where that was converted: `2.6 EUR at 1.1699 USD of 2026-08-21`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZonePrice:
    """What a machine type costs in one zone on one day; USD an hour of the whole machine."""

    provider: str
    instance: str
    region: str
    zone: str
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPrices:
    """What one source says of one provider: offers of one day, looked up and checked."""

    source: str
    """`skypilot`, `gpuhunt`, `vast`, `own` ..."""
    provider: str
    as_of: str
    """The day the prices are of (YYYY-MM-DD): when what the source says last changed, as far as
    that is known; else the day it was asked."""
    fetched_at: str
    """When the source was asked: UTC, `2026-11-16T20:15:00Z`."""
    offers: tuple[Offer, ...]
    zones: tuple[ZonePrice, ...] = ()
    """Of providers whose prices differ from zone to zone."""
    unknown: tuple[Offer, ...] = ()
    """Offers of GPUs that outlay does not know, by the source's spelling: kept and named."""
    notes: tuple[str, ...] = ()
    """What to say of them: rows that could not be read, names that are new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadListings:
    """What was read of a reply."""

    listings: Sequence[Listing]
    rows: int
    """Of machines with a GPU, those that could not be read included."""
    failed: Sequence[str] = ()
    """What is wrong with each row that could not be read: `line 17: the price 'x' is no number`."""
    notes: Sequence[str] = ()


class Source(Protocol):
    """One place that prices come from."""

    name: str
    """`skypilot`."""

    def providers(self) -> tuple[str, ...]:
        """The providers it can be asked about, as outlay names them."""
        ...

    def ask(self, provider: str, downloader: Downloader, known: Validators | None) -> Reply | None:
        """Its answer about one provider; None where it has not changed since `known`.

        Raises `ProviderError` (`MissingCredentials` for a key that is not there, `BadReply` for
        what came and is no list).
        """
        ...

    def read(self, provider: str, data: bytes) -> ReadListings:
        """The listings in an answer. Raises `Unreadable` where it is no such answer at all."""
        ...
