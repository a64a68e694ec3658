"""Machines taken for a term at a discount: what is known of reserved and committed use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache

from outlay.facts import rows_of
from outlay.offers.offer import Commitment, Offer
from outlay.units import duration_s


def committed(offer: Offer) -> Iterator[Offer]:
    """An offer once more for each term it can be taken for, at its price then."""
    price_usd = offer.price_usd_per_hour
    if price_usd is None or offer.commitment is not None or offer.owned is not None:
        return
    for row in _rows():
        if row["provider"] == offer.provider and fnmatchcase(
            offer.instance, row["instance_pattern"]
        ):
            yield replace(
                offer,
                commitment=Commitment(
                    name=f"{row['term']}, {row['payment']}",
                    term_s=duration_s(row["term"]),
                    price_usd_per_hour=price_usd * (1 - float(row["discount"])),
                    source=f"{row['source']}, {row['as_of']}",
                ),
            )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    return tuple(rows_of("commitments.csv"))
