"""What is kept of prices under the user's data folder: the last good ones, and all there ever were.

One SQLite file, `prices.sqlite`: a refresh is one transaction for each source and provider, so
that one that is killed leaves the old prices whole, and two at once wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from outlay.files import data_folder
from outlay.prices.listing import ProviderPrices
from outlay.prices.sources import Validators

State = Literal["fresh", "unchanged", "kept", "refused"]
"""How asking ended: new prices; the same as before; no answer, so that the last good ones are
kept; an answer that was refused whole, so that the last good ones are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One time that a source was asked about a provider."""

    source: str
    provider: str
    at: str
    """UTC, `2026-11-16T20:15:00Z`."""
    state: State
    offers: int
    """That are kept of it now."""
    as_of: str | None
    """The day of those; None where there are none."""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPrice:
    """A price from when it was seen first; both prices None where it is no longer listed."""

    at: str
    """When the source was asked: UTC, `2026-11-16T20:15:00Z`."""
    source: str
    provider: str
    instance: str
    region: str
    zone: str
    """Empty for the offer of the region."""
    gpu: str
    gpus: float
    price_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    as_of: str = ""
    """The day the source's list is of (YYYY-MM-DD), as of `ProviderPrices`; empty: not known, and
    taken for the day it was asked. A list that is old by then is no observation."""
    doubts: tuple[str, ...] = ()
    """Words of `data/offer_doubts.csv` that the offer had."""


class PriceStore:
    """The file of prices; a context manager."""

    def __init__(self, path: Path | None = None) -> None:
        """`path`: None for `prices.sqlite` in the data folder."""
        self.path = path or data_folder() / "prices.sqlite"

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError

    def replace(self, prices: ProviderPrices, validators: Validators) -> None:
        """Put good prices in the place of the last good ones of their source and provider, and
        every price that changed into the history; all or nothing."""
        raise NotImplementedError

    def note(self, attempt: Attempt) -> None:
        """Keep how asking ended."""
        raise NotImplementedError

    def validators(self, source: str, provider: str) -> Validators | None:
        """What the source said of its last good reply."""
        raise NotImplementedError

    def current(self) -> list[ProviderPrices]:
        """The last good prices of every source and provider."""
        raise NotImplementedError

    def attempts(self) -> list[Attempt]:
        """The last attempt of every source and provider."""
        raise NotImplementedError

    def past(
        self, gpus: Sequence[str] = (), *, provider: str = "", since: str = "", until: str = ""
    ) -> Iterator[PastPrice]:
        """Every change of a price, oldest first: of GPUs by outlay's names, or of all."""
        raise NotImplementedError

    def refresh_days(self, source: str, provider: str) -> list[str]:
        """The days on which the prices of a provider were confirmed or changed, oldest first."""
        raise NotImplementedError

    def prices_at(self, at: str) -> list[PastPrice]:
        """Every price as it stood at a time, of every source: the last change up to then."""
        raise NotImplementedError

    def add_past(self, prices: Iterable[PastPrice]) -> None:
        """Append to the history (imports and tests)."""
        raise NotImplementedError
