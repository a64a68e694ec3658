"""What a price source is: where it is asked, and how its reply is read.

Asking and reading are apart: `ask` talks to the network and gives bytes, `read` makes listings of
bytes and touches nothing, so that any reply there ever was can be read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from outlay.prices.download import Downloader
    from outlay.prices.listing import Listing


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


class Unreadable(Exception):
    """A reply that is not what the source gives: refused whole, with the reason in plain words."""

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


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

        Raises `ProviderError` (with `MissingCredentials` for a key that is not there).
        """
        ...

    def read(self, provider: str, data: bytes) -> ReadListings:
        """The listings in an answer. Raises `Unreadable` where it is no such answer at all."""
        ...
