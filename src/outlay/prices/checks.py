"""What is doubtful about prices: rows one by one, and when a whole reply is refused.

Three times prices are looked at:

    refusal             as a reply comes in: is it what the source gives, and no less than before?
    doubted_by_past     as it comes in: does a price fit what it was, a machine what is known?
    doubted_by_others   as a price book is made: does it fit what others ask for the same GPU, and
                        what other sources say of the same machine?

A doubt is a word of `data/offer_doubts.csv`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outlay.offers.offer import Offer
from outlay.prices.listing import ProviderPrices
from outlay.prices.price_list import PriceList
from outlay.prices.sources import ReadListings


def refusal(
    read: ReadListings, prices: PriceList, before: Sequence[Offer], *, is_market: bool = False
) -> str | None:
    """Why a reply is refused whole, in plain words with figures; None where it is taken.

    More than a tenth of its rows fail (cannot be read, or cost many times what they did), or a
    third of the machine types that were there have vanished. `before`: the last good offers of the
    same source and provider, else the bundled ones. `is_market`: hosts come and go, so that GPUs
    are counted in their place.
    """
    raise NotImplementedError


def doubted_by_past(offers: Sequence[Offer], before: Sequence[Offer]) -> tuple[Offer, ...]:
    """Offers with what speaks against them by themselves and by their own last prices."""
    raise NotImplementedError


def doubted_by_others(
    offers: Sequence[Offer], second: Mapping[str, Sequence[ProviderPrices]] | None = None
) -> tuple[Offer, ...]:
    """Offers of all providers with what speaks against them beside each other.

    `second`: what further sources say of each provider.
    """
    raise NotImplementedError
