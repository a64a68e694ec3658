"""One request to a price source: conditional, bounded in time and size, tried again if it helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from outlay.prices.sources import Reply, Validators


class Downloader(Protocol):
    """What asks the network. Tests give one that answers from files."""

    def get(
        self,
        address: str,
        known: Validators | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        largest_bytes: int = 64 * 2**20,
    ) -> Reply | None:
        """What lies at an address; None where it has not changed since `known` (304).

        Raises `ProviderError` in plain words: what, with the address; why; what to do next.
        """
        ...

    def post(self, address: str, body: object, *, largest_bytes: int = 64 * 2**20) -> Reply:
        """The answer to a question in JSON."""
        ...
