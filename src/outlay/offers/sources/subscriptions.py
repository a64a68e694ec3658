"""Free notebooks as offers: `data/subscriptions.csv`."""

from __future__ import annotations

from functools import cache

from outlay.facts import Fact, fact_of, rows_of
from outlay.offers.offer import Offer
from outlay.units import GIB


@cache
def subscription_facts() -> dict[tuple[str, str], Fact]:
    """The facts of all plans by provider and parameter."""
    rows = rows_of("subscriptions.csv")
    return {(row["provider"], row["parameter"]): fact_of(row) for row in rows}


def free_offers() -> tuple[Offer, ...]:
    """What costs nothing: Kaggle's hours a week."""
    return (_kaggle(subscription_facts()),)


def _kaggle(facts: dict[tuple[str, str], Fact]) -> Offer:
    hours = facts["kaggle", "gpu_hours"]
    return Offer(
        provider="kaggle",
        instance="free notebook",
        gpu="T4",
        gpus=int(facts["kaggle", "gpus"].number or 1),
        region="any",
        price_usd_per_hour=0.0,
        vcpus=facts["kaggle", "vcpus"].number,
        ram_bytes=(facts["kaggle", "ram_gb"].number or 0.0) * GIB,
        as_of=hours.as_of,
        source=hours.source,
    )
