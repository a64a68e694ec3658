"""How often spot machines of a kind are taken away; `offers.expected_price` has what they cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, lru_cache

from outlay.facts import assumed, assumed_range, assumptions, newest, rows_of
from outlay.offers.offer import Offer, SpotRisk
from outlay.offers.terms import terms_of
from outlay.uncertainty import Estimate, Uncertain


@cache
def _interruption_rows() -> Mapping[tuple[str, str, str], dict[str, str]]:
    rows = rows_of(newest("spot_interruptions"))
    return {(row["provider"], row["instance"], row["region"]): row for row in rows}


def spot_risk(offer: Offer) -> SpotRisk:
    """The risk of an offer: as the user said, its price book's, its bucket, its provider's rate, or
    assumed."""
    if offer.interruptions_per_month is not None:
        return SpotRisk(
            interruptions_per_month=_as_estimate(offer.interruptions_per_month),
            source=offer.source,
            is_assumption=False,
        )
    return offer.spot_risk or _known_risk(offer.identity)


@lru_cache(maxsize=4096)
def _known_risk(identity: tuple[str, str, str]) -> SpotRisk:
    row = _interruption_rows().get(identity)
    if row is not None:
        high = row["high_fraction_per_month"]
        return bucket_risk(
            float(row["low_fraction_per_month"]),
            float(high) if high else None,
            f"{row['source']}, {row['as_of']}",
        )
    terms = terms_of(identity[0])
    rate = terms.spot_interruptions_per_month
    if rate is not None:
        return SpotRisk(
            interruptions_per_month=Estimate(low=rate / 2, likely=rate, high=rate * 2),
            source=terms.source_of("spot_interruption_rate"),
            is_assumption=False,
        )
    name = assumed_interruptions(identity[0])
    fact = assumptions()[name]
    return SpotRisk(
        interruptions_per_month=_assumed_rate(name),
        source=f"assumed: {fact.note or fact.source}",
        is_assumption=True,
    )


def bucket_risk(low: float, high: float | None, source: str) -> SpotRisk:
    """The risk of machines of which this share, from `low` to `high`, is taken away in a month;
    `high` is None of a bucket that is open."""
    end = high
    if end is None:
        usual = assumed("spot_open_bucket_end")
        end = usual if usual > low else (low + 1) / 2
    return SpotRisk(
        interruptions_per_month=Estimate(
            low=hazard_per_month(low),
            likely=hazard_per_month((low + end) / 2),
            high=hazard_per_month(end),
        ),
        source=source,
        is_assumption=False,
    )


def hazard_per_month(interrupted_fraction: float) -> float:
    """Interruptions a month of running, where this share of instances is interrupted in a month.

    Of machines that are taken away at a rate r, exp(-r) are left after a month. AWS gives the
    share that was reclaimed in the trailing month; that many of them ran for less than a month is
    ignored, which makes the rate too low rather than too high.
    """
    return -math.log1p(-interrupted_fraction)


def assumed_interruptions(provider: str) -> str:
    """The assumption that holds where neither a type nor its provider has a published rate."""
    own = f"spot_interruptions_per_month_{provider}"
    return own if own in assumptions() else "spot_interruptions_per_month_default"


def _assumed_rate(name: str) -> Estimate:
    """Its own range where it has one, else from none to three times as many."""
    rate = assumed_range(name)
    return rate if isinstance(rate, Estimate) else Estimate(low=0.0, likely=rate, high=rate * 3)


def _as_estimate(value: Uncertain) -> Estimate:
    return value if isinstance(value, Estimate) else Estimate.exactly(value)
