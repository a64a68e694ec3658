"""What prices did: the bundled months and every refresh since, of one GPU or machine.

`price_history` puts both together as points in time; `good_time` says where today's price lies
in the last year and what waiting gained in the past; `price_changes` lists what became dearer,
cheaper, new or gone since a day.
"""

from __future__ import annotations

from calendar import monthrange
from dataclasses import dataclass
from functools import cache

from outlay.facts import rows_of
from outlay.offers.catalog import snapshot_date


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthlyPrice:
    """What one machine type cost at the end of a month: a row of `data/price_history.csv.gz`.

    Prices are of the whole machine. The lowest and the middle one over its regions are given.
    """

    provider: str
    instance: str
    gpu: str
    """As the facts table names it, or a family (`A100 80GB`) where the form is not stated."""
    gpus: float
    """Below 1 for a share of one GPU."""
    month: str
    """YYYY-MM."""
    price_usd_per_hour: float | None
    price_median_usd_per_hour: float | None
    spot_usd_per_hour: float | None
    """None, too, where the list had one that saved nothing."""
    spot_median_usd_per_hour: float | None
    regions: int
    """That list it; zones at AWS and GCP are counted by their region."""
    as_of: str
    """The day the provider's list became what it is in that month (YYYY-MM-DD)."""
    repeated: bool
    """Whether the list is the one of the month before: then it tells nothing new."""
    doubts: tuple[str, ...]
    """Words of `data/offer_doubts.csv`."""
    source: str

    @property
    def day(self) -> str:
        """The day it was read: the last of the month, or the snapshot's."""
        return month_end(self.month)


def month_end(month: str) -> str:
    """The last day of a month (YYYY-MM), but none after the bundled snapshot's."""
    days = monthrange(int(month[:4]), int(month[5:7]))[1]
    return min(f"{month}-{days:02}", snapshot_date())


@cache
def bundled_history() -> tuple[MonthlyPrice, ...]:
    """Every bundled monthly price, by provider, instance, GPU and month.

    2022-07 to 2026-08. Rows that only repeat the month before are there, and say so.
    """
    return tuple(_monthly_price(row) for row in rows_of("price_history.csv.gz"))


def _monthly_price(row: dict[str, str]) -> MonthlyPrice:
    return MonthlyPrice(
        provider=row["provider"],
        instance=row["instance"],
        gpu=row["gpu"],
        gpus=float(row["gpus"]),
        month=row["month"],
        price_usd_per_hour=_usd(row["price_usd_hour"]),
        price_median_usd_per_hour=_usd(row["price_usd_hour_median"]),
        spot_usd_per_hour=_usd(row["spot_usd_hour"]),
        spot_median_usd_per_hour=_usd(row["spot_usd_hour_median"]),
        regions=int(row["regions"]),
        as_of=row["as_of"],
        repeated=row["repeated"] == "yes",
        doubts=tuple(row["doubts"].split(";")) if row["doubts"] else (),
        source=row["source"],
    )


def _usd(text: str) -> float | None:
    return float(text) if text else None
