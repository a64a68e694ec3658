"""From listings to offers: GPUs looked up, hosts and zones put together, known mistakes mended.

    listings of a source -> one offer for each machine type and region, with the doubts that the
    source's own way of listing calls for

The bundled snapshot is made by the same functions (`tools/build_offers.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outlay.offers.offer import Offer
from outlay.prices.listing import Listing, ZonePrice


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """What one source sells of one provider, before anything is compared with other prices."""

    offers: tuple[Offer, ...]
    zones: tuple[ZonePrice, ...] = ()
    """Of providers whose prices differ from zone to zone."""
    unknown: tuple[Offer, ...] = ()
    """Offers of GPUs that outlay does not know, by the source's spelling."""
    notes: tuple[str, ...] = ()


def price_list(listings: Sequence[Listing], *, source: str, as_of: str) -> PriceList:
    """The offers in listings of one provider. `source` is where they were read, to be cited."""
    raise NotImplementedError
